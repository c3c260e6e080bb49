#!/usr/bin/perl

# A session's files in a directory of the host's with a project quota: both
# limits are met, told, nobody's but the session's, and given back. Kernels
# without quotas skip it; t/v2.t runs it on one that has them.

use strict;
use warnings;

use Fcntl qw(:flock);
use FindBin;
use lib "$FindBin::Bin/lib";

use Test::More;
use SandboxTest::More;
use SandboxTest::Storage;

my $mounted;

serve('sandbox_storage directory %%PREFIX%%/host;'
      . ' sandbox_default disk=4MB;',
      sub {
          $mounted = mount_ext4("$_[0]/host", 300,
                                '-O project,quota -E quotatype=prjquota',
                                ',prjquota');
      }, 'weak');

my $first = make();

# a kernel without quotas mounts it all the same

if (!$mounted || (info($first)->{enforcement}{disk} eq 'none'
                  && !$ENV{SANDBOX_TEST_VM}))
{
    $t->stop;
    unmount("$p/host") if $mounted;
    $t->finish;
    SKIP: { skip 'the kernel has no project quota for ext4', 1 }
    done_testing();
    exit;
}

destroy($first);

my ($dir) = glob "$p/host/sandbox-*";

# Free megabytes and inodes, as the host has them; its directories and the
# kernel's own list of projects grow by some blocks.

sub room {
    my ($blocks, $size, $inodes) = split ' ', `stat -f -c '%a %S %d' $p/host`;

    return [ sprintf('%.0f', $blocks * $size / $MB), $inodes ];
}

my $room = room();

# Until the kernel says no: how many times, and by which errno.

my $UNTIL = <<'PY';
import errno, os, sys
def more(n):
    if sys.argv[1] == 'bytes':
        with open('bytes', 'ab', 0) as f:
            f.write(b'x' * 65536)
    else:
        open('made/%d' % n, 'x').close()
os.makedirs('made', exist_ok=True)
n = 0
try:
    while n < 5000:
        more(n)
        n += 1
    print(n, 'no end')
except OSError as e:
    print(n, errno.errorcode[e.errno])
PY

sub until_no {
    my ($id, $what) = @_;

    return split ' ', run($id, [ 'python3', '-c', $UNTIL, $what ])->{stdout};
}


subtest 'both limits are told and met' => sub {
    my $s = make(disk => '30MB', inodes => 500);
    my $other = make(disk => '30MB');
    my $i = info($s);

    is("$i->{enforcement}{disk} $i->{enforcement}{inodes}",
       'project quota project quota', 'enforcement');
    ok($i->{isolated}, 'no layer is lacking');

    my $c = call('GET', '/capabilities')->{json};
    is_deeply([ map { $c->{$_}{enforced} ? $c->{$_}{by} : 'none' }
                qw(disk inodes) ],
              [ 'project quota of blocks', 'project quota of inodes' ],
              '/capabilities');

    within_percent(avail($s, '/'), 30 * $MB, 2, 'df /');

    my ($n, $errno) = until_no($s, 'bytes');
    within_percent($n * 65536, 30 * $MB, 2, 'as much as was asked for');
    like($errno, qr/^(?:EDQUOT|ENOSPC)$/, 'then no more bytes');
    is_problem(put($s, 'up', 'x' x 100_000), 507, 'E4006', 'PUT: E4006');
    cmp_ok(info($s)->{usage}{disk}, '>=', 29 * $MB, 'usage.disk');
    cmp_ok(info($other)->{usage}{disk}, '<', $MB, 'of that session alone');
    run($s, 'rm bytes');
    is(put($s, 'up', 'x' x 100_000)->{status}, 201, 'room again');

    ($n, $errno) = until_no($s, 'inodes');
    within_percent($n + 2, 500, 2, 'as many inodes as were asked for');
    like($errno, qr/^(?:EDQUOT|ENOSPC)$/, 'then no more');
    is_problem(put($s, 'more', 'x'), 507, 'E4006', 'PUT: E4006');
    cmp_ok(info($s)->{usage}{inodes}, '>=', 490, 'usage.inodes');
    run($s, 'rm -r made');
    is(put($s, 'more', 'x')->{status}, 201, 'room again');

    my $r = run($s, 'chattr -p 0 /tmp /home/user; chattr -P /tmp; cd /tmp;'
                    . ' head -c 60000000 /dev/zero > f; stat -c %s f');
    cmp_ok($r->{stdout}, '<', 32 * $MB, 'nobody leaves his project');

    is(destroy($s)->{status}, 204, 'DELETE');
    ok(!-e "$dir/$s", 'its directory is gone');
    is(put($other, 'up', 'x')->{status}, 201, 'the other one goes on');
    destroy($other);
};


subtest 'what was held is given back' => sub {
    my $back = sub {
        my $now = room();
        return $now->[0] >= $room->[0] - 1 && $now->[1] >= $room->[1];
    };

    ok(until_true(sub { $back->() }, 5), 'bytes and inodes')
        or diag("@{ room() }, and before @$room");

    # more of them than the file system could hold, had one of them stayed

    for my $n (1 .. 4) {
        my $s = make(disk => '100MB', inodes => 300);
        my $r = run($s, 'head -c 90000000 /dev/zero > f; stat -c %s f');
        is($r->{stdout}, "90000000\n", "session $n has its disk");
        destroy($s);
    }

    ok(until_true(sub { $back->() }, 5), 'all of it');
};


subtest 'the limit outlives the broker' => sub {
    my $s = make(disk => '20MB');
    run($s, 'head -c 10000000 /dev/zero > f');
    my $old = $t->broker;

    $t->hit('KILL', $old);
    ok(until_true(sub { ($t->broker // $old) != $old && $t->ready }, 20),
       'there is another broker');
    $t->note_processes;

    within_percent(info($s)->{usage}{disk}, 10_000_000, 5, 'usage.disk');
    my ($n, $errno) = until_no($s, 'bytes');
    within_percent($n * 65536 + 10_000_000, 20 * $MB, 3, 'the rest of it');
    like($errno, qr/^(?:EDQUOT|ENOSPC)$/, 'then no more');
    is(destroy($s)->{status}, 204, 'DELETE');
};


# Everything is killed, and what removes a tree is held up: whoever comes next
# has another number, and a limit that stays.

subtest 'a tree that is still being removed has its number to itself' => sub {
    my $s = make(disk => '30MB');
    run($s, 'head -c 20000000 /dev/zero > f');
    my ($keeper, $broker) = ($t->keeper, $t->broker);

    kill 'STOP', $broker;
    kill 'KILL', $keeper, $broker;
    ok(until_true(sub { !grep { SandboxTest::alive($_) } $keeper, $broker },
                  20), 'keeper and broker are dead');

    open my $tree, '<', "$dir/$s" or die "$dir/$s: $!";
    ok(flock($tree, LOCK_EX), 'another is at work on the tree');
    $t->reload;
    ok(until_true(sub { ($t->broker // $broker) != $broker && $t->ready },
                  20), 'there is another pair');
    $t->note_processes;

    my $next = make(disk => '30MB');
    ok(-d "$dir/$s", 'the tree is there, and so is the next session');
    my @number = map { (split ' ', `lsattr -pd $dir/$_`)[0] } $s, $next;
    isnt($number[1], $number[0], "which has another number (@number)");

    close $tree;
    ok(until_true(sub { !-e "$dir/$s" }, 20), 'the tree goes');

    my ($n, $errno) = until_no($next, 'bytes');
    within_percent($n * 65536, 30 * $MB, 3, 'its limit is what it was');
    like($errno, qr/^(?:EDQUOT|ENOSPC)$/, 'and is met');
    is(destroy($next)->{status}, 204, 'DELETE');
};


ok($t->stop, 'the server stops');
unmount("$p/host");
$t->finish;
done_testing();
