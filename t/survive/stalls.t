#!/usr/bin/perl

# A machine that is not run for moments, as a virtual one may be: what it was
# not run for looks like the time of whatever was under way.  Nobody's session
# ends for it.  One whose calls truly cost the broker much does, also where
# most of them do not.
#
# The moments are spent by t/lib/preload/stall.c.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../lib";

use Test::More;
use SandboxTest;
use SandboxTest::More;
use SandboxTest::Preload;

plan(skip_all => 'a sanitizer has to be the first library')
    if $SandboxTest::SANITIZE;

my $lib = preload('stall') // plan(skip_all => 'no compiler');
my $file = "/tmp/sbxstall.$$";

END { unlink $file if $file }

# One of so many calls, or each time after so many microseconds of them.

sub every {
    my ($calls, $us, $each) = @_;

    # in place: it is mapped

    open my $f, -e $file ? '+<:raw' : '>:raw', $file or die "$file: $!";
    print $f pack 'Q7', $calls, $each // 0, $us, 0, 0, 0, 0;
    close $f;

    return;
}

sub stalls { return (unpack 'Q7', slurp($file))[4] }

every(0, 0);

my $t = SandboxTest->new(workers => 1, trust => 'standalone',
                         broker_env => { LD_PRELOAD => $lib,
                                         STALL => $file });

($SandboxTest::More::T, $SandboxTest::More::PORT,
 $SandboxTest::More::PREFIX) = ($t, $t->port, $t->prefix);
$t->start;

my $other = create_ok();

# The broker hands each of these on to the session's first process.

sub calls {
    my ($s, $n) = @_;

    for my $k (1 .. $n) {
        my $res = call('GET', "/sessions/$s/processes");
        return ($k, $res) if $res->{status} != 200;
    }

    return ($n, undef);
}


subtest 'whatever runs takes 6 ms longer now and then' => sub {
    my $s = create_ok();

    every(0, 6000, 100);

    my ($n, $failed) = calls($s, 600);
    my $stalls = stalls();

    every(0, 0);
    is($failed, undef, 'all are answered') or diag($failed->{body});
    cmp_ok($stalls, '>=', 10, "$stalls times");
    is(destroy($s)->{status}, 204, 'the session is there');
};


# How many calls a session is allowed that are as slow.

for my $case ([ 1, 6000, 20, 'all calls take 6 ms longer' ],
              [ 3, 15000, 600, 'one call of three takes 15 ms longer' ])
{
    my ($every, $us, $most, $name) = @$case;

    subtest $name => sub {
        my $s = create_ok();

        every($every, $us);

        my ($n, $failed) = calls($s, $most);

        every(0, 0);
        is_problem($failed // { status => 0 }, 404, 'E2009',
                   "at call $n the session is gone");
        ok($t->log_has(qr/init's control socket costs too much, session: $s/),
           'the log says why');
    };
}


is(run($other, 'echo x')->{stdout}, "x\n", 'another session goes on');
is(destroy($other)->{status}, 204, 'and ends when it is told to');

$t->finish;
done_testing();
