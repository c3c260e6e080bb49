#!/usr/bin/perl

# Processes and threads: of a session, of a command; nobody else is touched.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";

use Test::More;
use SandboxTest::More;
use SandboxTest::Limits;

my $t = server();


subtest 'each session has its own' => sub {
    my @v = map { session(processes => 8) } 1, 2;

    # The same user id inside, and both at once: 8 are to be had in each.

    my @jobs = map { my $id = $_;
                     async { load($id, 'forks 20 ' . hold(1.5)) } } @v;

    for my $job (@jobs) {
        my $r = $job->get;

        is($r->{stdout}, "refused EAGAIN\nforked 7\n", 'itself and seven');
        is($r->{usage}{processes_peak}, 8, 'which is told');
    }

    is(load($v[0], 'threads 20 0')->{stdout}, "refused EAGAIN\nthreads 7\n",
       'threads count as processes do');
    destroy($_) for @v;
};


subtest 'a command has what its call asks for' => sub {
    my $v = session(processes => 40);
    my %ten = (limits => { processes => 10 });
    my @jobs = map { async { load($v, 'forks 30 1', %ten) } } 1, 2;

    for my $job (@jobs) {
        my $r = $job->get;

        is($r->{stdout}, "refused EAGAIN\nforked 9\n", 'of two, each');
        is($r->{usage}{processes_peak}, 10, 'which is told');
    }

    is(load($v, 'forks 30 0')->{stdout}, "forked 30\n",
       'the next has the session\'s');

    is(load($v, 'threads 30 0', %ten)->{stdout},
       "refused EAGAIN\nthreads 9\n", 'threads too');

    # A command's own limit does not make room that the session has not.

    my $job = async { load($v, 'forks 34 ' . hold(2)) };
    ok(until_true(sub { host_pids('load forks 34') >= 35 }, 10), 'it fills');
    is(load($v, 'forks 20 0', %ten)->{stdout}, "refused EAGAIN\nforked 4\n",
       'the session\'s limit is met first');
    $job->get;
    destroy($v);
};


subtest 'a full session can be read, written and ended' => sub {
    my $v = session(processes => 8);
    my $other = session(processes => 8);
    my %bombs = (
        'a fork bomb' => 'bomb',
        'a thread bomb' => 'threadbomb',
        'one of another session' => 'orphan bomb',
    );

    for my $name (sort keys %bombs) {
        next if small() && $name ne 'a fork bomb';

        my $words = $bombs{$name} =~ s/^orphan //r;
        my $cmd = $words eq $bombs{$name}
                  ? "exec /home/user/load $words"
                  : "/home/user/load orphan $words; exec sleep 60";
        my $job = async { run($v, $cmd, timeout_s => hold(2)) };

        ok(until_true(sub { my $u = call('GET', "/sessions/$v")->{json}{usage};
                            $u->{processes} >= 8 }, 5), "$name: it is full");

        # One that was counted may be the bomb's own maker, on its way out.

        my $res;
        until_true(sub { $res = exec_call($v, [ 'true' ]);
                         $res->{status} != 200 }, 5);
        is_problem($res, 429, 'E2003', "$name: another command is refused",
                   qr/process/);
        like(put($v, 'file', $name)->{status}, qr/^20[01]$/,
             "$name: a file is written");
        is(get($v, 'file')->{body}, $name, "$name: and read");
        is(glob_of($v, '*')->{status}, 200, "$name: and listed");
        cmp_ok(call('GET', "/sessions/$v")->{json}{usage}{processes}, '<=', 8,
               "$name: never more");

        is(load($other, 'forks 20 0')->{stdout},
           "refused EAGAIN\nforked 7\n",
           "$name: another session has all of its own");
        is($job->get->{reason}, 'timeout', "$name: its time ends it");
        is(run($v, 'echo room')->{stdout}, "room\n",
           "$name: all of it is dead");
    }

    is(destroy($_)->{status}, 204, 'DELETE') for $v, $other;
};


# What init needs for a start is not the session's; who comes beyond it waits.

subtest 'many commands at once, on little of a processor' => sub {
    my $v = session(processes => 512, cpus => 0.1);
    my @c = map {
        open_request(POST => "/sessions/$v/exec", json => { cmd => ['true'] })
    } 1 .. 120;
    my %got;

    $got{$_->{status}}++ for map { read_head($_, timeout => within(60)) } @c;
    is_deeply(\%got, { 200 => 120 }, 'each of them runs')
        or diag(explain(\%got));
    is(destroy($v)->{status}, 204, 'DELETE');
};


$t->finish;
done_testing();
