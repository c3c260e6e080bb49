#!/usr/bin/perl

# docs/openapi.yaml against a linter, and its examples against its schemas;
# and what t/openapi.t compares with: it must see what is wrong.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib", "$FindBin::Bin/lib/openapi";

use File::Copy qw(copy);
use File::Path qw(make_path);
use Test::More;
use SandboxTest;

plan(skip_all => 'YAML::XS is not installed (libyaml-libyaml-perl)')
    if !eval { require OpenAPI };

my $YAML = "$SandboxTest::ROOT/docs/openapi.yaml";
my $doc = OpenAPI->load($YAML);


sub why_no_linter {
    my ($dir) = @_;

    for my $program (qw(node npm timeout)) {
        return "$program is not installed"
            if !grep { -x "$_/$program" } split /:/, $ENV{PATH};
    }

    make_path($dir);

    my $same = 1;

    for my $name (qw(package.json package-lock.json)) {
        my $source = "$FindBin::Bin/lib/openapi/$name";

        next if (SandboxTest::slurp($source) // '')
                eq (SandboxTest::slurp("$dir/$name") // '');

        $same = 0;
        copy($source, "$dir/$name") or die "$dir/$name: $!";
    }

    return undef if $same && -e "$dir/installed" && -d "$dir/node_modules";

    unlink "$dir/installed";

    my $out = `cd '$dir' && timeout 150 npm ci --ignore-scripts --no-audit \\
               --no-fund 2>&1`;

    return 'npm could not install the linter: ' . (split /\n/, $out)[0]
        if $? != 0;

    open my $mark, '>', "$dir/installed" or die "$dir/installed: $!";

    return undef;
}


subtest 'the linter finds nothing' => sub {
    my $dir = "$SandboxTest::BUILD/openapi";
    my $lint = "$FindBin::Bin/lib/openapi/lint.js";

    if (my $why = why_no_linter($dir)) {
        plan(skip_all => $why);
    }

    my $out = `node '$lint' '$dir' '$YAML' 2>&1`;
    is($?, 0, 'in the document');
    diag($out) if $out ne '';

    # It must be able to find something.

    my $wrong = "$dir/wrong.yaml";
    my $text = SandboxTest::slurp($YAML);
    $text =~ s/sessions: 3\}/sessions: three}/ or die 'no example to break';

    open my $f, '>', $wrong or die "$wrong: $!";
    print $f $text;
    close $f;

    $out = `node '$lint' '$dir' '$wrong' 2>&1`;
    isnt($?, 0, 'and finds an example that is wrong');
    like($out, qr/must be integer/, 'and says so');
    unlink $wrong;
};


subtest 'the examples are what their schemas say' => sub {
    for my $op ($doc->operations) {
        for my $status (sort keys %{ $op->{responses} }) {
            my $content = $doc->resolve($op->{responses}{$status})->{content};

            for my $media (grep { exists $_->{example} } values %{ $content
                                                                   || {} })
            {
                is(join('; ', $doc->validate($media->{schema},
                                             $media->{example}, '')),
                   '', "$op->{id} $status");
            }
        }
    }
};


subtest 'the checker sees what is wrong' => sub {
    my $schema = sub { return { '$ref' => "#/components/schemas/$_[0]" } };
    my %problem = (status => 404, title => 't', error => 'session_not_found',
                   code => 'E2009', detail => 'd', suggestion => 's');
    my %health = (status => 'ok', version => '1.2.3', sessions => 0,
                  lacking => undef);

    my @cases = (
        [ E2009 => { %problem }, 1, 'a right problem' ],
        [ E2009 => { %problem, code => 'E2010' }, 0, 'another code' ],
        [ E2009 => { %problem, status => '404' }, 0, 'a number as a string' ],
        [ E2009 => { %problem, more => 1 }, 0, 'a property too many' ],
        [ E2009 => { %problem, ended => 'expired' }, 0,
          'ended without ended_at' ],
        [ Health => { %health }, 1, 'a right object' ],
        [ Health => { %health, sessions => -1 }, 0, 'a number too small' ],
        [ Health => { %health, more => 1 }, 0, 'an undocumented property' ],
        [ Health => { status => 'ok', version => '1.2.3' }, 0,
          'a property that is missing' ],
        [ Size => 'one MB', 0, 'neither number nor size' ],
        [ Size => '1 MB', 1, 'a size' ],
        [ Time => '2031-04-02 10:00', 0, 'no time' ],
        [ SessionList => { sessions => [ {} ], next_cursor => undef }, 0,
          'a wrong element' ],
    );

    for my $case (@cases) {
        my ($name, $data, $right, $what) = @$case;
        my @faults = $doc->validate($schema->($name), $data, '');

        is(@faults ? 0 : 1, $right, $what) or diag("@faults");
    }
};


done_testing();
