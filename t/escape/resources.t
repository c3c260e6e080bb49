#!/usr/bin/perl

# Each kind of memory, of processes and of processor time: a session gets
# what it was given, by whatever way it asks, and lives on.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../lib";

use Test::More;
use SandboxTest::More;

my $t = server();
my $other = create_ok();


# The memory of a session is 64 MB for each command, its disk 16 MB.  What
# each way of taking ten times as much comes to: killed, or refused.

my %hogs = (
    'anonymous' => 'x = bytearray(640 << 20)',
    'in small pieces' => "x = []\nwhile True: x.append(bytearray(5000))",
    'memfd' => "while True:\n f = os.memfd_create('x')\n"
        . " for i in range(8): os.write(f, bytes(1 << 20))",
    'shared mapping' => "import mmap\nm = mmap.mmap(-1, 640 << 20)\n"
        . "for i in range(0, 640 << 20, 4096): m[i] = 1",
    'System V shared memory' => "libc.shmat.restype = ctypes.c_void_p\n"
        . "for i in range(10):\n"
        . "  a = libc.shmat(libc.shmget(i + 1, 64 << 20, 0o1600), None, 0)\n"
        . "  ctypes.memset(ctypes.c_void_p(a), 1, 64 << 20)",
    '/dev/shm' => "for k in range(640):\n"
        . " f = open('/dev/shm/%d' % k, 'wb', buffering=0)\n"
        . " f.write(bytes(1 << 20))",
    'files of the workspace' => "for k in range(640):\n"
        . " f = open('%d' % k, 'wb', buffering=0)\n"
        . " f.write(bytes(1 << 20))",
    'pipes' => "k = []\nwhile True:\n r, w = os.pipe()\n"
        . " k.append((r, w))\n os.set_blocking(w, False)\n"
        . " try: fcntl.fcntl(w, 1031, 1 << 20)\n except OSError: pass\n"
        . " try: os.write(w, bytes(1 << 20))\n except OSError: pass",
    'unix sockets' => "k = []\nwhile True:\n a, b = socket.socketpair()\n"
        . " k.append((a, b))\n a.setblocking(False)\n"
        . " a.setsockopt(1, 7, 1 << 24)\n"
        . " try:\n  while True: a.send(bytes(1 << 16))\n"
        . " except BlockingIOError: pass",
    'UDP of the loopback' => "k = []\nwhile True:\n"
        . " a = socket.socket(2, 2); a.bind(('127.0.0.1', 0))\n k.append(a)\n"
        . " a.setsockopt(1, 8, 1 << 24)\n"
        . " for i in range(60): a.sendto(bytes(9000), a.getsockname())",
    'descriptors in flight' => "import array\nk = []\nwhile True:\n"
        . " a, b = socket.socketpair()\n k.append((a, b))\n"
        . " try: a.sendmsg([b'x'], [(1, 1, array.array('i',"
        . " [a.fileno()] * 250))])\n except OSError: break\n"
        . "print('refused')",
    'page tables' => "import mmap\nm = mmap.mmap(-1, 1 << 43,"
        . " flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000,"
        . " prot=mmap.PROT_READ)\n"
        . "for i in range(0, 1 << 43, 1 << 21): m[i]",
    'mappings' => "import mmap\nk = []\n"
        . "for i in range(60000): k.append(mmap.mmap(-1, 4096 * (i % 2 + 1)))\n"
        . "print('refused')",
    'timers' => "n = ctypes.c_void_p()\nk = 0\n"
        . "while libc.syscall(222, 1, 0, ctypes.byref(n)) == 0: k += 1\n"
        . "print('refused' if k < 70000 else k)",
    'message queues' => "q = 0\nfor i in range(300):\n"
        . " if libc.mq_open(b'/q%d' % i, 0o102, 0o600, None) < 0: break\n"
        . " q += 1\nprint('refused' if q < 20 else q)",
    'watches' => "fd = libc.inotify_init1(0)\nk = 0\nos.mkdir('w')\n"
        . "while True:\n os.mkdir('w/%d' % k)\n"
        . " if libc.inotify_add_watch(fd, b'w/%d' % k, 0xfff) < 0: break\n"
        . " k += 1\n",
);

# Ends of those that are no death for memory.

my %ends = (
    '/dev/shm' => qr/No space left/,
    'files of the workspace' => qr/No space left/,
    'pipes' => qr/Too many open files|^$/,
    'unix sockets' => qr/Too many open files|No buffer space|^$/,
    'UDP of the loopback' => qr/Too many open files|^$/,
    'watches' => qr/No space left|Disk quota|^$/,
    'page tables' => qr/Cannot allocate|^$/,
);


subtest 'memory of every kind' => sub {
    for my $kind (sort keys %hogs) {
        my $s = create_ok({ manifest => { resources => { memory => '64MB',
            disk => '16MB', inodes => 5000, processes => 32 } } });

        my $r = run($s, [ 'python3', '-c', "import ctypes, fcntl, os, socket\n"
            . "libc = ctypes.CDLL(None, use_errno=True)\n$hogs{$kind}\n" ],
            timeout_s => 40);

        my $said = $r->{stderr} . $r->{stdout};
        my $end = $ends{$kind} // qr/^refused$/m;

        ok($r->{reason} eq 'memory' || $said =~ $end || $said =~ /MemoryError/,
           "$kind: ends as it is told")
            or diag("$r->{reason}: ", substr $said, -300);
        is(run($s, 'echo on', timeout_s => 20)->{stdout}, "on\n",
           'the session goes on');
        destroy($s);
    }
};


subtest 'processes of every kind' => sub {
    my $s = create_ok({ manifest => { resources => { processes => 32,
        memory => '128MB' } } });
    put($s, 'f', 'x' x 1000);

    my %bombs = (
        fork => 'while True: os.fork()',
        threads => "import threading, time\nn = 0\ntry:\n while True:\n"
            . "  threading.Thread(target=time.sleep, args=(60,)).start()\n"
            . "  n += 1\nexcept RuntimeError: pass\n"
            . "print(n)\nsys.stdout.flush()\ntime.sleep(60)",
        zombies => "import time\ntry:\n while True:\n"
            . "  if os.fork() == 0: os._exit(0)\nexcept OSError: pass\n"
            . "time.sleep(60)",
        sessions => "import time\nwhile True:\n try:\n"
            . "  if os.fork() == 0: os.setsid()\n except OSError:\n"
            . "  time.sleep(0.01)",
    );

    for my $kind (sort keys %bombs) {
        my $job = async {
            run($s, [ 'python3', '-c', "import os, sys, signal\n"
                . "signal.signal(15, signal.SIG_IGN)\n$bombs{$kind}\n" ],
                timeout_s => 3)
        };

        my ($bad, $late) = ('', 0);

        for my $n (1 .. 6) {
            my $t0 = time;
            my $res = $n % 2 ? get($s, 'f') : put($s, "g$n", 'y');
            $bad .= " $res->{status}" if $res->{status} !~ /^20[01]$/;
            my $r = run($other, 'echo ok', timeout_s => 30);
            $bad .= ' other' if $r->{stdout} ne "ok\n";
            $late = 1 if time - $t0 > within(12);
        }

        is($bad, '', "$kind: files are served, and another session");
        ok(!$late, 'in time');

        my $r = $job->get(within(60));
        ok(($r->{reason} // '') =~ /^(?:timeout|exited|signaled|memory)$/,
           'the command ends') or diag(explain($r));
        ok(until_true(sub { (run($s, 'ls -d /proc/[0-9]* | wc -l')->{stdout}
                             =~ /^(\d+)$/ ? $1 : 99) <= 5 }, 20),
           'nothing of it is left');
    }

    my $t0 = time;
    is(destroy($s)->{status}, 204, 'the session can be destroyed');
    cmp_ok(time - $t0, '<', within(5), 'in time');
};


# A quota is of all that runs, whatever the affinity, policy or number of
# those that want it.

subtest 'processor time has a quota' => sub {
    my $s = create_ok({ manifest => { resources => { cpus => 0.5 } } });

    my $r = run($s, [ 'python3', '-c', <<'PY' ], timeout_s => 30);
import os, time
for what in (lambda: os.sched_setaffinity(0, range(os.sysconf(83) + 64)),
             lambda: os.sched_setaffinity(0, range(1024)),
             lambda: os.setpriority(os.PRIO_PROCESS, 0, -20),
             lambda: os.sched_setscheduler(0, os.SCHED_FIFO,
                                           os.sched_param(99)),
             lambda: os.sched_setscheduler(0, os.SCHED_BATCH,
                                           os.sched_param(0))):
    try:
        what()
    except (OSError, ValueError):
        pass
end = time.monotonic() + 4
for i in range(6):
    if os.fork() == 0:
        os.setsid()
        while time.monotonic() < end:
            pass
        os._exit(0)
while True:
    try:
        os.wait()
    except ChildProcessError:
        break
PY
    my $cpu = ($r->{usage}{cpu_user_s} // 0) + ($r->{usage}{cpu_system_s} // 0)
              || $r->{usage}{cpu_s} || $r->{usage}{cpu_seconds};

    is($r->{exit_code}, 0, 'six that spin for four seconds')
        or diag($r->{stderr});
    ok(defined $cpu, 'their time is told') or diag(explain($r->{usage}));
    cmp_ok($cpu // 99, '<', $r->{duration_s} * 0.5 * 1.3 + 0.3,
           'is half of one processor\'s');
    destroy($s);
};


subtest 'a storm of timers and signals' => sub {
    my $s = create_ok({ manifest => { resources => { cpus => 0.5 } } });

    my $job = async { run($s, [ 'python3', '-c', <<'PY' ], timeout_s => 5) };
import ctypes, os, signal, struct, time
libc = ctypes.CDLL(None, use_errno=True)
signal.signal(signal.SIGALRM, lambda *a: None)
signal.setitimer(signal.ITIMER_REAL, 1e-6, 1e-6)
for i in range(500):
    fd = libc.timerfd_create(1, 0)
    libc.timerfd_settime(fd, 0, struct.pack("qqqq", 0, 1, 0, 1), None)
for i in range(1000):
    t = ctypes.c_void_p()
    if libc.syscall(222, 1, struct.pack("QiiQQQQQQ", 0, 40, 1, 0, 0, 0, 0, 0,
                                        0), ctypes.byref(t)):
        break
while True:
    os.read(fd, 8)
PY
    my $slow = 0;

    for (1 .. 10) {
        my $t0 = time;
        run($other, 'true');
        $slow = 1 if time - $t0 > within(8);
    }

    ok(!$slow, 'another session is served');
    is($job->get(within(60))->{reason}, 'timeout', 'it ends by its time');
    destroy($s);
};


is(run($other, 'echo alive')->{stdout}, "alive\n", 'the other session is well');

destroy($other);
$t->finish;
done_testing();
