package SandboxTest::Node;

# Programs for node with packages of npm, and the TAP that they print.
#
#   my $n = SandboxTest::Node->new("$FindBin::Bin/clients/e2b-js");
#   plan(skip_all => $n->{why}) if $n->{why};
#   $n->run('main.mjs', { NAME => 'value' }, @arguments);
#
# The packages of the directory's package.json, with their exact versions, are
# installed once, below the build.  node is the machine's, or where that is
# too old for them, one of npm.

use strict;
use warnings;

use File::Copy qw(copy);
use File::Path qw(make_path remove_tree);
use POSIX qw(uname);
use Test::More;
use SandboxTest;

my $OLDEST = '20.18.1';
my $NEWER = '20.20.2';
my %ARCH = (x86_64 => 'x64', aarch64 => 'arm64');


sub new {
    my ($class, $source) = @_;

    my ($name) = $source =~ m{([^/]+)$};
    my $self = bless { source => $source,
                       dir => "$SandboxTest::BUILD/clients/$name" }, $class;

    $self->{why} = $self->lay_out;

    return $self;
}


sub version {
    my ($node) = @_;

    my ($v) = (`$node --version 2>/dev/null` // '') =~ /^v(\d+\.\d+\.\d+)/;

    return sprintf '%03d%03d%03d', split /\./, $v // '0.0.0';
}


sub new_enough {
    my ($node) = @_;

    return version($node) ge sprintf '%03d%03d%03d', split /\./, $OLDEST;
}


# undef, or why there are no clients.

sub lay_out {
    my ($self) = @_;

    my $dir = $self->{dir};

    return 'node is not installed' if `node --version 2>/dev/null` eq '';
    return 'npm is not installed' if `npm --version 2>/dev/null` eq '';

    my @more;
    $self->{node} = 'node';

    if (!new_enough('node')) {
        my $arch = $ARCH{ (uname())[4] }
            // return "node is older than $OLDEST";
        @more = ("node-linux-$arch\@$NEWER");
        $self->{node} = "$dir/node_modules/node-linux-$arch/bin/node";
    }

    my $wanted = join "\n", SandboxTest::slurp("$self->{source}/package.json"),
                            @more;

    if ((SandboxTest::slurp("$dir/.installed") // '') ne $wanted) {
        remove_tree($dir);
        make_path($dir);
        copy("$self->{source}/package.json", $dir) or die $!;

        my $log = "$dir/npm.log";
        my $start = time;

        if (system("cd $dir && timeout 180 npm install --no-package-lock"
                   . ' --no-save --no-audit --no-fund --ignore-scripts'
                   . " @more > $log 2>&1 < /dev/null") != 0)
        {
            my ($why) = (SandboxTest::slurp($log) // '')
                        =~ /^npm (?:error|ERR!) code (.+)/m;
            return 'npm cannot install: ' . ($why // 'it takes too long');
        }

        note('installed in ', time - $start, ' s');

        open my $f, '>', "$dir/.installed" or die $!;
        print $f $wanted;
        close $f;
    }

    for my $file (glob "$self->{source}/*.mjs") {
        copy($file, $dir) or die "$file: $!";
    }

    return undef;
}


# Starts a program: what it prints.

sub open_program {
    my ($self, $program, $env, @arguments) = @_;

    local %ENV = (%ENV, %$env);

    delete @ENV{ grep { !defined $ENV{$_} || /^(?:https?|no|all)_proxy$/i }
                 keys %ENV };

    open my $out, '-|', 'timeout', 600 * $SandboxTest::SLOW, $self->{node},
         '--import', "$self->{dir}/names.mjs", "$self->{dir}/$program",
         @arguments
        or die "$self->{node}: $!";

    return $out;
}


# What a program prints that has this text, and its status.

sub output {
    my ($self, $text, $env) = @_;

    open my $f, '>', "$self->{dir}/text.mjs" or die $!;
    print $f $text;
    close $f;

    my $out = $self->open_program('text.mjs', $env);
    my $said = join '', <$out>;
    close $out;

    return ($said, $?);
}


# Runs a program to its end: each line of its TAP is a test of this file.

sub run {
    my ($self, $program, $env, @arguments) = @_;

    local $Test::Builder::Level = $Test::Builder::Level + 1;

    my $out = $self->open_program($program, $env, @arguments);
    my ($seen, $plan) = (0);

    while (my $line = <$out>) {
        chomp $line;

        if ($line =~ /^(not )?ok - (.*)/) {
            ok(!$1, $2);
            $seen++;
        } elsif ($line =~ /^1\.\.(\d+)$/) {
            $plan = $1;
        } elsif ($line =~ /^# (.*: \d+ ms)$/) {
            note($1);
        } else {
            diag($line =~ s/^# //r);
        }
    }

    close $out;
    is("$? " . ($plan // 'no plan'), "0 $seen", "$program goes to its end");

    return;
}


1;
