#!/usr/bin/perl

# Processor time: how fast it may be used (cpus), and how much of it
# (cpu_seconds), by all that a command has started.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";

use Test::More;
use SandboxTest::More;
use SandboxTest::Limits;

my $t = server();
my $s = session(cpus => cores() > 4 ? 4 : cores(), processes => 200);

# A machine that others use too gives less than it may; never more.

sub is_share {
    my ($r, $cpus, $name) = @_;

    local $Test::Builder::Level = $Test::Builder::Level + 1;

    my $share = cpu_of($r) / ($r->{duration_s} || 1);

    is($r->{reason}, 'exited', "$name: ends by itself");
    cmp_ok($share, '<=', $cpus * 1.10 + 0.02, "$name: no more");

    SKIP: {
        skip "$name: the machine is busy", 1 if busy();
        cmp_ok($share, '>=', $cpus * 0.5, "$name: nor little");
    }

    return;
}


subtest 'a command has a share of its own' => sub {
    my $slow = session(cpus => 0.5);
    my $wall = small() ? 1.5 : 2.2;

    my %jobs = map { my $c = $_;
                     ($c => async { load($s, "burn 3 wide $wall",
                                         limits => { cpus => $c }) }) }
               0.25, 0.5;
    my $own = async { load($slow, "burn 3 wide $wall") };

    is_share($jobs{$_}->get, $_, "cpus $_") for sort keys %jobs;

    my $r = $own->get;
    is_share($r, 0.5, 'the session\'s');

    SKIP: {
        skip 'the machine is busy', 1 if busy();
        cmp_ok($r->{usage}{throttled_s}, '>', 0.1, 'the wait is told');
    }

    my ($n) = $r->{stdout} =~ /^processors (\d+)/m;
    is($n, cores(), 'it had made its way to every processor');

    SKIP: {
        skip 'one processor', 4 if cores() < 2;
        skip 'too slow here', 4 if small();
        is_share(load($s, "burn 3 wide $wall", limits => { cpus => 1.5 }),
                 1.5, 'cpus 1.5');
        $r = load($s, 'burn 1 wall 0.2', limits => { cpus => 1.5 });
        is($r->{usage}{throttled_s}, 0, 'who stays below never waits');
    }

    destroy($slow);
};


whole 'a session\'s share is for all its commands together' => sub {
    my $v = session(cpus => 0.5);
    my $t0 = time;
    my @jobs = map { async { load($v, 'burn 2 wide 2') } } 1 .. 3;
    my $cpu = 0;
    $cpu += cpu_of($_->get) for @jobs;
    my $took = time - $t0;

    cmp_ok($cpu, '<=', $took * 0.5 * 1.1 + 0.1, 'no more than it has');

    SKIP: {
        skip 'the machine is busy', 1 if busy();
        cmp_ok($cpu, '>=', $took * 0.25, 'and it has it');
    }

    destroy($v);
};


# One after the other in few words: name, what it does, its limit.

my @counted = (
    [ 'one process' => 'burn 1', 1 ],
    [ 'four in parallel' => 'burn 4', 1 ],
    [ 'one that ignores signals' => 'ignore burn 1', 0.5 ],
    [ 'many short-lived children' => 'churn', 0.5 ],
);

subtest 'cpu_seconds of a command\'s whole tree' => sub {
    for my $case (small() ? @counted[0, 3] : @counted) {
        my ($name, $words, $limit) = @$case;
        my $r = load($s, $words, limits => { cpu_seconds => $limit },
                     timeout_s => 50);

        is($r->{reason}, 'cpu_time', "$name: reason");
        is($r->{signal}, 'SIGKILL', "$name: signal");
        ok(!$r->{timed_out} && !$r->{oom_killed}, "$name: nothing else");
        cmp_ok(cpu_of($r), '>=', $limit, "$name: all of it was had");
        cmp_ok(cpu_of($r), '<=', $limit * within(1.05) + 0.03,
               "$name: no more");
        is(scalar host_pids("load $words"), 0, "$name: all is dead");
    }
};


subtest 'sleeping costs none' => sub {
    my ($limit, $nap) = small() ? (6, 4) : (0.3, 0.6);
    my $r = run($s, "sleep $nap & sleep $nap & sleep $nap; wait",
                limits => { cpu_seconds => $limit });

    is($r->{reason}, 'exited', 'it ends by itself');
    cmp_ok($r->{duration_s}, '>=', $nap, 'in its own time');
};


subtest 'what is left in the background is counted on' => sub {
    my $v = session(cpu_seconds => 1, cpus => 1);

    my $t0 = time;
    my $r = load($v, 'orphan burn 1');
    is("$r->{reason} $r->{exit_code}", 'exited 0', 'the leader has left');
    ok(until_true(sub { !host_pids('orphan burn 1') }, 15),
       'its child is ended by the limit');
    cmp_ok(time - $t0, '>=', 0.95, 'not before its time');

    my $u = call('GET', "/sessions/$v")->{json}{usage};
    cmp_ok($u->{cpu_seconds}, '<=', within(1.3), 'nor long after');

    $r = run($v, '/home/user/load orphan memory 1 3600; echo done');
    is($r->{stdout}, "done\n", 'one that sleeps');
    is(load($v, 'cpu 0.9')->{reason}, 'exited',
       'each command has the whole again');
    is(scalar host_pids('orphan memory 1 3600'), 1, 'and it sleeps on');
    destroy($v);
};


# The weight of a session's group: ten times another's while it is ahead.

sub is_ahead {
    my ($dirs) = @_;

    for my $dir (@$dirs) {
        my $w = slurp("$dir/cpu.shares") // slurp("$dir/cpu.weight") // next;
        return $w == 10240 || $w == 1000;
    }

    return undef;
}


subtest 'what has just begun goes first, as far as its credit goes' => sub {
    my $v = session(cpus => cores());
    my @dirs = grep { m{/\Q$v\E$} } cgroup_dirs();

    defined is_ahead(\@dirs)
        or plan skip_all => 'processors have no controller';

    ok(until_true(sub { !is_ahead(\@dirs) }), 'behind when nothing begins');

    my $job = async { run($v, 'sleep 1; exec /home/user/load cpu 1.5') };

    ok(until_true(sub { is_ahead(\@dirs) }), 'ahead when a command begins');
    ok(until_true(sub { !is_ahead(\@dirs) }), 'not for long');
    is($job->get->{reason}, 'exited', 'it ends behind');

    # begins something all the time, and uses more than comes back

    my $burns = async { load($v, 'burn 4 wide 4') };

    ok(until_true(sub { is_ahead(\@dirs) }), 'ahead again');

    my $stop = time + within(3);
    my $behind;

    while (!$behind && time < $stop) {
        head($v, 'load');
        $behind = !is_ahead(\@dirs);
    }

    SKIP: {
        skip 'the machine is busy', 1 if busy();
        ok($behind, 'till its credit is used up');
    }

    $burns->get;
    destroy($v);
};


destroy($s);
$t->finish;
done_testing();
