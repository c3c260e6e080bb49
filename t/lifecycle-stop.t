#!/usr/bin/perl

# A session whose first process somebody on the host has stopped: its calls
# are told so in time, it can be ended, and nobody else notices.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";

use Test::More;
use Time::HiRes qw(time);
use SandboxTest;
use SandboxTest::More;

plan(skip_all => 'must run as root') if $> != 0;

my $t = server();
my @LONG = (_http => { timeout => 120 });


# The first process of a session's pid namespace, found from one of it.

my $n = 0;

sub init_of {
    my ($s) = @_;

    my $mark = '9' . $n++ . "00.$$";
    run($s, "sleep $mark & :");
    until_true(sub { host_pids($mark) }, 10);
    my ($pid) = host_pids($mark);

    for (1 .. 10) {
        my $status = SandboxTest::slurp("/proc/$pid/status") // last;
        return $pid if $status =~ /^NSpid:\t\d+.*\t1$/m;
        ($pid) = $status =~ /^PPid:\t(\d+)$/m;
    }

    BAIL_OUT('the first process of a session is not found');
}

sub stop {
    my ($pid) = @_;

    kill STOP => $pid or die "kill: $!";
    until_true(sub {
        return (SandboxTest::slurp("/proc/$pid/stat") // '') =~ /\) T /;
    }, 10);
}


my $s = create_ok();
my $other = create_ok();
put($s, 'there', "old\n");
my $init = init_of($s);

# One that runs, and three that come when nobody is there to take them.

my $running = async {
    exec_call($s, 'touch begun; sleep 60', timeout_s => within(3), @LONG)
};
until_true(sub { get($s, 'begun')->{status} == 200 }, 10);
stop($init);

my @calls = (
    [ 'a command that ran', $running ],
    [ 'a command', async {
        exec_call($s, 'true', timeout_s => 1, @LONG) } ],
    [ 'a download', async { get($s, 'there', timeout => 120) } ],
    [ 'an upload', async { put($s, 'new', 'x' x 4096, timeout => 120) } ],
);

subtest 'meanwhile' => sub {
    my $late = 0;

    for (1 .. 10) {
        my $t1 = time;
        is(run($other, 'echo ok')->{stdout}, "ok\n", 'others are served');
        is(call('GET', '/sessions')->{status}, 200, 'the list');
        is(call('GET', "/sessions/$s")->{status}, 200, 'the session itself');
        $late++ if time - $t1 > within(5);
    }

    is($late, 0, 'none of them waits');

    my $new = create_ok();
    is(run($new, 'echo new')->{stdout}, "new\n", 'sessions are made');
    is(destroy($new)->{status}, 204, 'and destroyed');
};

for my $call (@calls) {
    my ($name, $job) = @$call;
    my $res = $job->get(120);

    is_problem($res, 503, 'E5001', "$name: is told");
    is($res->{headers}{'retry-after'}, 1, 'and when to try again');
}

is(run($other, 'echo ok')->{stdout}, "ok\n", 'the others are served still');


subtest 'DELETE ends it at once' => sub {
    my $call = async { exec_call($s, 'true', @LONG) };
    my $t0 = time;

    is(destroy($s)->{status}, 204, 'is answered');
    cmp_ok(time - $t0, '<', within(5), 'at once');
    ok(!SandboxTest::alive($init), 'its first process is gone');
    is_problem(call('GET', "/sessions/$s"), 404, 'E2009', 'it has ended');

    my $res = $call->get(120);
    like($res->{status}, qr/^(?:404|503)$/, 'who waits in it is told');
};


subtest 'what goes on comes back' => sub {
    my $v = create_ok();
    my $pid = init_of($v);

    stop($pid);
    my $call = async { exec_call($v, 'echo back', @LONG) };
    is(run($other, 'echo ok')->{stdout}, "ok\n", 'another in between');
    kill CONT => $pid;
    is($call->get(120)->{json}{stdout}, "back\n", 'the call is answered');
    is(destroy($v)->{status}, 204, 'destroyed');
};


subtest 'it ends by its time' => sub {
    my $v = create_ok({ timeout_s => within(6) });
    my $pid = init_of($v);

    stop($pid);
    ok(until_true(sub { !SandboxTest::alive($pid) }, 30), 'as any other');
    is(call('GET', "/sessions/$v")->{json}{ended}, 'expired', 'expired');
};


destroy($other);
$t->finish;
done_testing();
