#!/usr/bin/perl

# What a command has used, and it alone; what a session uses.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";

use Test::More;
use SandboxTest::More;
use SandboxTest::Limits;
use SandboxTest::Stream qw(background stands_still);

my $t = server();
my $s = session(cpus => cores() > 4 ? 4 : cores(), memory => '256MB');
my $span = small() ? 1.6 : 1.10;


subtest 'processor time' => sub {
    for my $case ([ 'cpu 0.5', 0.5, 'a process' ],
                  [ 'cpu 0.25 2', 0.5, 'with a child that has exited' ],
                  [ 'churn 150', undef, 'short children' ])
    {
        my ($words, $want, $name) = @$case;
        my $r = load($s, $words);
        my $u = $r->{usage};

        $want //= 0.3;
        cmp_ok(cpu_of($r), '>=', $want * 0.9, "$name: no less");
        cmp_ok(cpu_of($r), '<=', ($name =~ /short/ ? $r->{duration_s} * 2
                                                   : $want) * $span + 0.03,
               "$name: no more");
        ok($u->{cpu_user_s} >= 0 && $u->{cpu_system_s} >= 0,
           "$name: both parts");
    }

    # A double-forked child, still there and dead, counts as long as the
    # command runs.

    my $r = run($s, '/home/user/load orphan cpu 0.4;'
                    . ' while pgrep -x load > /dev/null; do sleep 0.1; done');
    cmp_ok(cpu_of($r), '>=', 0.36, 'a double-forked child counts');

    $r = load($s, 'memory 1 0.5');
    cmp_ok(cpu_of($r), '<', within(0.1), 'sleeping costs none');
};


subtest 'memory' => sub {
    my $r = load($s, 'memory 100');
    cmp_ok($r->{usage}{memory_peak}, '>=', 100 * MB, '100 MB: no less');
    cmp_ok($r->{usage}{memory_peak}, '<=', 110 * MB, '100 MB: no more');

    $r = load($s, 'memory 1');
    cmp_ok($r->{usage}{memory_peak}, '>=', 1 * MB, 'the next: its own');
    cmp_ok($r->{usage}{memory_peak}, '<', 6 * MB, 'and not the last one\'s');

    $r = load($s, 'write f 20');
    cmp_ok($r->{usage}{memory_peak}, '>=', 20 * MB, 'files in memory count');
    run($s, 'rm f');
};


subtest 'processes' => sub {
    is(load($s, 'memory 1')->{usage}{processes_peak}, 1, 'one');
    is(load($s, 'forks 9 0')->{usage}{processes_peak}, 10, 'ten');
    is(load($s, 'threads 9 0')->{usage}{processes_peak}, 10, 'threads');
};


subtest 'bytes read and written' => sub {
    my $r = load($s, 'write f 4 sync');
    is($r->{reason}, 'exited', 'a file is written and synced');

    my ($disk) = call('GET', "/sessions/$s")->{json}{enforcement}{disk};

    if ($disk eq 'tmpfs') {
        is($r->{usage}{written_bytes}, 0, 'a disk of memory writes nothing');

    } else {
        cmp_ok($r->{usage}{written_bytes}, '>=', 4 * MB, 'no less');
        cmp_ok($r->{usage}{written_bytes}, '<', 16 * MB, 'nor much more');
    }

    $r = load($s, 'memory 1');
    is($r->{usage}{written_bytes}, 0, 'who writes nothing has written none');
};


subtest 'of two commands at once, each has its own' => sub {
    my $wall = hold(1);
    my $big = async { load($s, "memory 60 $wall") };
    my $burn = async { load($s, "cpu 0.4 2") };
    my $many = async { load($s, "forks 20 $wall") };
    my ($m, $c, $p) = map { $_->get } $big, $burn, $many;

    cmp_ok($m->{usage}{memory_peak}, '>=', 60 * MB, 'memory: who has it');
    cmp_ok($_->{usage}{memory_peak}, '<', 30 * MB, 'and the others not')
        for $c, $p;
    cmp_ok(cpu_of($c), '>=', 0.72, 'processor time: who has used it');
    cmp_ok(cpu_of($_), '<', within(0.7), 'and the others not') for $m, $p;
    is($p->{usage}{processes_peak}, 21, 'processes: who has made them');
    is($m->{usage}{processes_peak}, 1, 'and the others not');
    is($c->{usage}{processes_peak}, 2, 'nor the third');
};


subtest 'of a session' => sub {
    my $v = session(memory => '128MB', disk => '32MB');
    my $usage = sub { call('GET', "/sessions/$v")->{json}{usage} };
    my $before = $usage->();

    is(join(' ', sort keys %$before),
       'connections cpu_seconds disk inodes memory memory_cache memory_peak'
       . ' network_received network_refused network_sent processes',
       'its names');

    my $job = async { load($v, 'forks 5 ' . hold(1)) };
    ok(until_true(sub { $usage->()->{processes} == 6 }, 5),
       'processes that are there');
    $job->get;
    load($v, "memory 60");
    load($v, 'cpu 0.3');
    load($v, 'write kept 10');

    my $u = $usage->();
    is($u->{processes}, 0, 'no processes any more');
    cmp_ok($u->{memory_peak}, '>=', 60 * MB, 'the peak of memory');
    cmp_ok($u->{memory}, '<', 30 * MB, 'what is in use');
    cmp_ok($u->{memory}, '>=', 10 * MB, 'with the files');
    cmp_ok($u->{cpu_seconds} - $before->{cpu_seconds}, '>=', 0.27,
           'processor time');
    cmp_ok($u->{disk} - $before->{disk}, '>=', 10 * MB, 'the disk');
    cmp_ok($u->{disk} - $before->{disk}, '<=', 10.5 * MB, 'to the file');
    is($u->{inodes}, $before->{inodes} + 1, 'a file more');
    destroy($v);
};


# Nor does its first process look at it by the clock.

subtest 'a session whose command waits uses no processor time' => sub {
    my $v = session(memory => '64MB');
    my $pid = background($v, 'exec sleep 600');

    ok(stands_still($v, 20), 'not a microsecond');
    is(call('GET', "/sessions/$v/processes/$pid")->{json}{state}, 'running',
       'while the command is there');
    destroy($v);
};


destroy($s);
$t->finish;
done_testing();
