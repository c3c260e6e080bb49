package SandboxTest::Run;

# What the tests of "sandboxctl run" share: a copy of the programs that an
# ordinary user may reach, and who runs them.

use strict;
use warnings;

use Exporter qw(import);
use File::Copy qw(copy);
use File::Temp qw(tempdir);
use JSON::PP ();
use POSIX ();
use Test::More;

use SandboxTest ();

our @EXPORT = qw(
    run_set_up run_who $UID %AS write_file start finish run sh json json_sh
);

our $UID = 65534;

my $JSON = JSON::PP->new->utf8;
my $dir;


# The directory of a test: bin/ with the programs, tmp/ for private
# workspaces.  Not below /tmp, which each run has its own of.

sub run_set_up {
    plan(skip_all => 'must run as root') if $> != 0;
    plan(skip_all => "$SandboxTest::BUILD/sandbox-session is not built")
        if !-x "$SandboxTest::BUILD/sandbox-session";

    my ($place) = grep { -d && -w } qw(/srv /opt /var/lib);
    $dir = tempdir('sbxrunXXXXXX', DIR => $place, CLEANUP => 1);
    chmod 0755, $dir;
    mkdir "$dir/bin";
    mkdir "$dir/tmp";
    chmod 01777, "$dir/tmp";

    for my $name (qw(sandboxctl sandbox-session)) {
        copy("$SandboxTest::BUILD/$name", "$dir/bin/$name") or die $!;
        chmod 0755, "$dir/bin/$name";
    }

    return $dir;
}


# Those that can make sandboxes on this machine.

sub run_who {
    my $r = sh('user', 'exit 7', '--backend', 'namespaces');

    if ($r->{status} eq '125') {
        SKIP: { skip "an ordinary user: $r->{err}", 1 }

        return 'root';
    }

    is($r->{status}, 7, 'an ordinary user may make sandboxes');

    return qw(root user);
}


sub write_file {
    my ($name, $text, $mode) = @_;

    open my $f, '>', $name or die "$name: $!";
    print $f $text;
    close $f or die $!;
    chmod $mode // 0644, $name;

    return $name;
}


# What is before the command: who runs it.

our %AS = (
    root => [],
    user => [ 'setpriv', "--reuid=$UID", "--regid=$UID", '--clear-groups' ],
);

my $seen = 0;


sub start {
    my ($who, $env, @args) = @_;

    my $base = "$dir/out" . $seen++;
    my $pid = fork // die $!;

    if (!$pid) {
        %ENV = (PATH => '/usr/bin:/bin:/usr/sbin:/sbin', HOME => "$dir/home",
                TMPDIR => "$dir/tmp",
                ($SandboxTest::SANITIZE
                 ? (ASAN_OPTIONS => 'detect_leaks=0') : ()), %$env);
        open STDIN, '<', '/dev/null';
        open STDOUT, '>', "$base.out" or die $!;
        open STDERR, '>', "$base.err" or die $!;
        chdir $dir;
        exec(@{ $AS{$who} }, "$dir/bin/sandboxctl", 'run', @args)
            or POSIX::_exit(99);
    }

    return { pid => $pid, base => $base };
}


sub finish {
    my ($job) = @_;

    waitpid $job->{pid}, 0;
    my $status = $?;

    return {
        status => $status & 127 ? "signal " . ($status & 127) : $status >> 8,
        out => SandboxTest::slurp("$job->{base}.out") // '',
        err => SandboxTest::slurp("$job->{base}.err") // '',
    };
}


sub run { return finish(start(shift, {}, @_)) }


sub sh {
    my ($who, $script, @options) = @_;

    return run($who, @options, '--', '/bin/sh', '-c', $script);
}


sub json {
    my $r = run(shift, '--json', @_);

    return $r->{json} = eval { $JSON->decode($r->{out}) }
           // { error => "$r->{status} $r->{err} $r->{out}" };
}


sub json_sh {
    my ($who, $script, @options) = @_;

    return json($who, @options, '--', '/bin/sh', '-c', $script);
}


1;
