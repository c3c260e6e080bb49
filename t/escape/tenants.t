#!/usr/bin/perl

# What two sessions might share behind the server's back: objects with names,
# open files of one inode, and accounts that the kernel keeps for a user.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../lib";

use Test::More;
use SandboxTest::More;

my $t = server();
my $one = create_ok();
my $two = create_ok({ tenant_id => 'other-corp', user_id => 'bob' });


# Runs a script in the first session that says "ready" by a file, goes on
# when /tmp/go is there, and prints; meanwhile the code given runs.

sub beside {
    my ($script, $code, %o) = @_;

    run($one, 'rm -f /tmp/ready /tmp/go', user => 'root');

    my $job = async {
        run($one, [ 'python3', '-c', "import os, time\ndef ready():\n"
            . " open('/tmp/ready', 'w').close()\n"
            . " while not os.path.exists('/tmp/go'): time.sleep(0.02)\n"
            . $script ], %o);
    };

    until_true(sub { get($one, '/tmp/ready')->{status} == 200 }, 20);
    my @got = $code->();
    put($one, '/tmp/go', '');

    my $r = $job->get(within(40));
    diag($r->{stderr}) if $r->{stderr};

    return ($r->{stdout}, @got);
}


subtest 'a descriptor cannot be handed to another session' => sub {
    my ($out, $seen) = beside(<<'PY', sub {
import array, socket
a = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
a.bind("\0drop")
b = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
b.bind("/tmp/drop")
ready()
a.setblocking(False)
b.setblocking(False)
for s in (a, b):
    try:
        print(s.recvmsg(10, 1000)[0])
    except BlockingIOError:
        print("nothing")
PY
        run($two, [ 'python3', '-c', <<'PY' ])->{stdout} });
import array, os, socket
f = os.open("/etc/passwd", os.O_RDONLY)
for name in ("\0drop", "/tmp/drop"):
    try:
        s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        s.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS,
                            array.array("i", [f]))], 0, name)
        print("sent")
    except OSError as e:
        print(type(e).__name__)
PY
    is($seen, "ConnectionRefusedError\nFileNotFoundError\n", 'nobody is there');
    is($out, "nothing\nnothing\n", 'nothing has come');
};


# The host's files are one inode for all: each session has a layer of its
# own above them.

subtest 'locks, leases and watches of the host\'s files' => sub {
    my @files = grep { -f } qw(/usr/bin/env /usr/bin/od /usr/bin/id
                               /usr/lib/os-release);

    my ($out, $seen) = beside("files = '@files'.split()\n" . <<'PY', sub {
import ctypes, fcntl
libc = ctypes.CDLL(None, use_errno=True)
held = [open(f, "rb") for f in files]
for f in held:
    fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
    try:
        fcntl.fcntl(f, fcntl.F_SETLEASE, fcntl.F_RDLCK)
    except OSError:
        pass
fd = libc.inotify_init1(os.O_NONBLOCK)
for f in files + ["/usr/bin", "/dev", "/dev/null", "/proc", "/sys"]:
    libc.inotify_add_watch(fd, f.encode(), 0xfff)
try:
    while True:
        os.read(fd, 65536)
except BlockingIOError:
    pass
ready()
try:
    print(os.read(fd, 65536))
except BlockingIOError:
    pass
PY
        run($two, [ 'python3', '-c', <<'PY', @files ])->{stdout} });
import fcntl, os, sys
for f in sys.argv[1:]:
    h = open(f, "rb")
    h.read()
    try:
        fcntl.flock(h, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as e:
        print(f, e.strerror)
open("/dev/null", "w").write("x")
os.listdir("/usr/bin")
PY
    is($seen, '', 'what one has locked, another locks too');
    is($out, '', 'what another opens is not told');
};


# Had all sessions one account at the kernel, one of them could use it up.
# Each line takes all that is to be had; the other must get as much.

subtest 'accounts that the kernel keeps for a user' => sub {
    my $take = <<'PY';
import ctypes, fcntl, os, socket, struct
libc = ctypes.CDLL(None, use_errno=True)
def take(name, what, most):
    n = 0
    try:
        while n < most:
            if what(n) == -1:
                break
            n += 1
    except OSError:
        pass
    print(name, n)
def pipe(n):
    r, w = os.pipe()
    keep.append((r, w))
    fcntl.fcntl(w, 1031, 1 << 20)
    return os.write(w, b"x")
keep = []
take("inotify", lambda n: libc.inotify_init1(0), 200)
fd = libc.inotify_init1(0)
take("signals", lambda n: libc.sigqueue(os.getpid(), 40, 0), 3000) \
    if libc.pthread_sigmask(0, ctypes.byref(ctypes.c_ulonglong(1 << 39)), None) \
    == 0 else None
take("queues", lambda n: libc.mq_open(b"/q%d" % n, 0o102, 0o600, None), 30)
take("pipes", pipe, 80)
take("lock", lambda n: libc.mlock(ctypes.create_string_buffer(65536), 65536),
     100)
ep = libc.epoll_create1(0)
def watch(n):
    e = libc.eventfd(0, 0)
    return libc.epoll_ctl(ep, 1, e, ctypes.create_string_buffer(16))
take("epoll", watch, 200)
PY
    my ($first, $second) = beside($take . "import sys; sys.stdout.flush()\n"
                                  . "ready()\n",
        sub { run($two, [ 'python3', '-c', $take ])->{stdout} });

    like($first, qr/^inotify \d+\nsignals \d+\nqueues \d+\npipes \d+\n/,
         'the first takes what it gets');
    is($second, $first, 'the second gets as much');
};


subtest 'what the kernel numbers or counts for all is not to be written' => sub {
    # a message by a counter: only readers of the same one would get it; the
    # sockets of a session's first process have no name, and are its own

    my %same;

    for my $f (qw(/proc/sys/kernel/ns_last_pid /proc/sys/kernel/random/uuid
                  /proc/sysvipc/shm /proc/sysvipc/msg /proc/sysvipc/sem
                  /proc/net/unix /proc/net/tcp /proc/net/netlink /proc/locks
                  /proc/keys /proc/key-users /proc/cgroups /proc/timer_list
                  /proc/buddyinfo /proc/slabinfo /proc/interrupts
                  /proc/softirqs /proc/schedstat /proc/zoneinfo
                  /proc/diskstats /proc/consoles /proc/bootconfig
                  /proc/allocinfo /proc/pagetypeinfo /proc/kpagecount))
    {
        for my $user (qw(user root)) {
            my $text = run($one, "tail -n +2 $f 2>/dev/null"
                                 . ($f =~ /unix/ ? " | awk 'NF > 7'" : '')
                                 . ' | head -c 500',
                           user => $user)->{stdout};
            $same{$f} = 1 if $text ne '' && $f !~ /uuid|netlink/;
        }
    }

    is(join(' ', sort keys %same), '', 'these tell nothing');
};


subtest 'System V objects die with their session, not before' => sub {
    my $v = create_ok();
    my $key = 0x7e57;

    is(run($v, "ipcmk -M 100000 >/dev/null && ipcmk -Q >/dev/null"
               . ' && ipcmk -S 2 >/dev/null; ipcs -a | grep -c ^0x')->{stdout},
       "3\n", 'made by one command');
    is(run($v, 'ipcs -a | grep -c ^0x')->{stdout}, "3\n",
       'there for the next');
    is(run($two, 'ipcs -a | grep -c ^0x')->{stdout}, "0\n",
       'not in another session');
    destroy($v);
    $v = create_ok();
    is(run($v, 'ipcs -a | grep -c ^0x')->{stdout}, "0\n",
       'nor in a new one');
    destroy($v);
};


destroy($_) for $one, $two;
$t->finish;
done_testing();
