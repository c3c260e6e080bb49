#!/usr/bin/perl

# Memory: of a command with all that it starts, of a session; who ended it is
# told.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";

use Test::More;
use SandboxTest::More;
use SandboxTest::Limits;

# Files in memory: what they cost is the session's memory, to the page.
my $t = server(http => '    sandbox_storage tmpfs;');
my $s = session(memory => '128MB', disk => '128MB');
my %small = (limits => { memory => '64MB' });


subtest 'a command has what its call asks for' => sub {
    my $r = load($s, 'memory 100', %small);
    is("$r->{reason} $r->{signal} $r->{exit_code}", 'memory SIGKILL 137',
       'more is not to be had');
    ok($r->{oom_killed} && !$r->{timed_out}, 'and the flags say why');
    cmp_ok($r->{usage}{memory_peak}, '<=', 64 * MB, 'never was there more');
    cmp_ok($r->{usage}{memory_peak}, '>=', 0.95 * 64 * MB, 'nor much less');

    is(load($s, 'memory 61', %small)->{reason}, 'exited',
       '95 % of it are the program\'s own');
    is(load($s, 'memory 65', %small)->{reason}, 'memory', 'no MB more is');
    is(load($s, 'memory 100')->{reason}, 'exited',
       'the session\'s, where the call asks for none');
    is(load($s, 'memory 15', limits => { memory => '16MB' })->{reason},
       'exited', 'the least that may be asked for');
};


subtest 'a command has what its session has' => sub {
    my $v = session(memory => '32MB', disk => '16MB');

    is(load($v, 'memory 30')->{reason}, 'exited', '95 % of it');
    is(load($v, 'memory 33')->{reason}, 'memory', 'no MB more');
    destroy($v);
};


subtest 'what a command starts counts, and ends with it' => sub {
    my $mark = "3600.1$$";
    my %ways = (
        'children that share it' => '/home/user/load children 40 2',
        'a child beside a sleeper'
            => "sleep $mark & /home/user/load memory 100; sleep $mark",
        'a session of its own'
            => "setsid sleep $mark & /home/user/load memory 100 &"
               . " sleep $mark",
        'one that ignores signals'
            => "/home/user/load ignore memory 5 3600 & /home/user/load"
               . " memory 100 & sleep $mark",
    );

    for my $way (small() ? 'a child beside a sleeper' : sort keys %ways) {
        my $r = run($s, ": $mark; $ways{$way}", %small);
        my @left = (host_pids($mark), host_pids('ignore memory 5 3600'));

        is($r->{reason}, 'memory', "$way: reason");
        ok($r->{oom_killed}, 'oom_killed');
        cmp_ok($r->{usage}{memory_peak}, '<=', 64 * MB, 'within the limit');
        is("@left", '', 'all is dead when the answer is there');
    }
};


subtest 'who ended it says why' => sub {
    my $r = run($s, 'kill -9 $$', %small);
    is("$r->{reason} $r->{signal}", 'signal SIGKILL', 'its own SIGKILL');
    ok(!$r->{oom_killed}, 'is no limit');

    $r = run($s, 'exit 137', %small);
    is("$r->{reason} $r->{exit_code}", 'exited 137', 'exit 137');
    ok(!$r->{oom_killed}, 'neither');

    # The kernel kills the grandchild, and the rest follows; the leader may
    # be quicker.

    $r = run($s, '(/home/user/load memory 100); echo "child $?"', %small);
    ok($r->{oom_killed}, 'a grandchild that met the limit is told');
    like("$r->{reason} $r->{stdout}", qr/^(?:memory |exited child 137\n)$/,
         'and the reason is whoever was first');

    # The leader has left by itself long before.

    $r = load($s, 'orphan memory 100 3600', %small);
    is($r->{reason}, 'exited', 'a leader that left first has exited');
    is($r->{exit_code}, 0, 'with its own status');
    ok(until_true(sub { !host_pids('orphan memory 100 3600') }, 10),
       'what it left meets the limit by itself');

    $r = load($s, 'orphan children 40 2', %small);
    is($r->{reason}, 'exited', 'one that left several');
    ok(until_true(sub { !host_pids('orphan children 40 2') }, 10),
       'of which none survives the first');
};


subtest 'each command has the whole again' => sub {
    my $v = session(memory => '48MB', disk => '64MB');

    is(load($v, 'memory 44')->{reason}, 'exited', "command $_") for 1 .. (small() ? 2 : 3);

    my @jobs = map { async { load($v, 'memory 40 1')->{reason} } } 1, 2;
    is(join(' ', map { $_->get } @jobs), 'exited exited', 'side by side');

    # Pages of files are charged to their writer and stay the session's.

    my $r = load($v, 'write /tmp/a 30');
    is($r->{reason}, 'exited', '30 MB of files are written');
    cmp_ok($r->{usage}{memory_peak}, '>=', 30 * MB, 'by the command\'s leave');
    $r = load($v, 'write /tmp/b 30');
    is($r->{reason}, 'exited', 'and again');

    my $u = call('GET', "/sessions/$v")->{json}{usage};
    cmp_ok($u->{memory}, '>=', 60 * MB, 'the session has them');
    is(load($v, 'memory 44')->{reason}, 'exited',
       'the next command has all of its own');

    run($v, 'rm /tmp/a /tmp/b');
    $u = call('GET', "/sessions/$v")->{json}{usage};
    cmp_ok($u->{memory}, '<', 20 * MB, 'removed, they are gone');

    is(load($v, 'write /tmp/c 50')->{reason}, 'memory',
       'more files in one command than its memory');
    destroy($v);
};


whole 'a full session answers every call' => sub {
    my $v = session(memory => '32MB', disk => '48MB', processes => 64);

    is(load($v, 'orphan memory 27 3600')->{reason}, 'exited',
       'what is left holds memory') for 1 .. 3;

    # 80 MB in all, 81 are held: somebody must go.

    for my $n (1 .. 3) {
        my $res = put($v, "big$n", 'x' x (12 * MB));

        ok($res->{status} == 201
           || ($res->{status} =~ /^50[37]$/
               && ($res->{json}{code} // '') =~ /^E(?:4006|5001)$/),
           "upload $n is answered") or diag($res->{status}, $res->{body});
    }

    my $r = run($v, 'echo here');
    like("$r->{reason} $r->{stdout}", qr/^(?:exited here\n|memory )$/,
         'commands are answered');
    is(get($v, 'load')->{status}, 200, 'files are read');
    is(destroy($v)->{status}, 204, 'it is destroyed');
    is(scalar host_pids('orphan memory 27 3600'), 0, 'with all it held');
};


destroy($s);
$t->finish;
done_testing();
