#!/usr/bin/perl

# Time-outs: when they are due, however much there is to kill.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";

use Test::More;
use SandboxTest::More;
use SandboxTest::Limits;

my $t = server();
my $s = session(processes => 1000, cpus => cores() > 4 ? 4 : cores());


# What the machine itself needs for so many processes, in seconds.

sub floor_of {
    my ($n) = @_;

    my ($ms) = `$SandboxTest::ROOT/build/t/inside/load floor $n`
               =~ /^floor (\d+)/m;

    return ($ms // 0) / 1000;
}


subtest 'a command ends when its time has come' => sub {
    for my $due (0.05, small() ? () : 0.3, 1) {
        my $t0 = time;
        my $r = load($s, 'memory 1 60', timeout_s => $due);
        my $took = time - $t0;

        is("$r->{reason} $r->{signal} $r->{exit_code}", 'timeout SIGKILL 137',
           "$due s: reason");
        ok($r->{timed_out} && !$r->{oom_killed}, "$due s: flags");
        cmp_ok($r->{duration_s}, '>=', $due, "$due s: not before");
        cmp_ok($r->{duration_s}, '<', $due + within(0.1), "$due s: in time");
        cmp_ok($took, '<', $due + within(0.5), "$due s: the answer too");
    }

    my $v = session(exec_timeout_s => 0.3);
    is(load($v, 'memory 1 60')->{reason}, 'timeout',
       'the session\'s, where the call asks for none');
    is(load($v, 'memory 1 0.5', timeout_s => undef)->{reason}, 'exited',
       'null is none');
    destroy($v);
};


subtest 'with many processes to kill' => sub {
    my $n = small() ? 50 : 500;

    for my $how ("forks $n 60", small() ? () : "ignore forks $n 60") {
        my $floor = floor_of($n);
        my $due = small() ? 2.5 : within(2.5) + 10 * $floor;
        my $t0 = time;
        my $r = load($s, $how, timeout_s => $due);
        my $late = time - $t0 - $due;

        is($r->{reason}, 'timeout', "$how: reason");
        is($r->{usage}{processes_peak}, $n + 1, "$how: all were there");
        is(scalar host_pids("load $how"), 0, "$how: all are dead");
        cmp_ok($late, '<', within(0.3) + 3 * $floor, "$how: in time");
        note(sprintf '%d processes: %.0f ms after the time, of which the'
             . ' machine needs %.0f', $n, $late * 1000, $floor * 1000);
    }
};


subtest 'a command that may hardly run is ended in time' => sub {
    my $t0 = time;
    my $r = load($s, 'burn 4', limits => { cpus => 0.01 },
                 timeout_s => hold(0.5));

    is($r->{reason}, 'timeout', 'reason');
    cmp_ok(time - $t0, '<', within(1.5), 'its quota does not delay its end');
};


subtest 'what a command left in the background lives on' => sub {
    my $r = load($s, 'orphan memory 2 3600', timeout_s => 0.3);
    is($r->{reason}, 'exited', 'the leader has left');
    is(load($s, 'memory 1 0.5')->{reason}, 'exited', 'time goes by');
    is(scalar host_pids('orphan memory 2 3600'), 1,
       'the time-out was the command\'s alone');
    is(run($s, 'pkill -x load; echo done')->{stdout},
       "done\n", 'others of the session may end it');
    ok(until_true(sub { !host_pids('orphan memory 2 3600') }, 5), 'it is over');
};


destroy($s);
$t->finish;
done_testing();
