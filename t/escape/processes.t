#!/usr/bin/perl

# A session's commands against the processes that serve it, and against each
# other: signals, traces, limits, /proc, inherited things.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../lib";

use Test::More;
use SandboxTest::More;

my $t = server();
my $s = create_ok();

sub out { return run($s, @_)->{stdout} }


# What init is made of is the server's; its root is not the session's root.

subtest 'nothing of process 1 can be had' => sub {
    for my $user (qw(user root)) {
        my $got = out([ 'python3', '-c', <<'PY' ], user => $user);
import ctypes, errno, os
libc = ctypes.CDLL(None, use_errno=True)
def attempt(name, what):
    try:
        what()
        print(name)
    except OSError as e:
        pass
for f in ("mem", "environ", "maps", "auxv", "exe", "root", "cwd", "map_files",
          "fd", "fdinfo", "ns/mnt", "ns/net", "stack", "syscall", "pagemap",
          "smaps", "io", "clear_refs", "coredump_filter", "oom_score_adj",
          "task/1/mem", "personality", "patch_state", "timers", "mountinfo",
          "attr/current", "cgroup", "limits", "status"):
    for flags in (os.O_RDONLY, os.O_RDWR, os.O_PATH):
        attempt("%s/%x" % (f, flags),
                lambda: os.close(os.open("/proc/1/" + f, flags)))
def ptrace(request):
    if libc.ptrace(request, 1, 0, 0) == -1:
        raise OSError(ctypes.get_errno(), "")
attempt("attach", lambda: ptrace(16))
attempt("seize", lambda: ptrace(0x4206))
pidfd = os.pidfd_open(1)
for nr in range(0xff00, 0xff10):        # namespaces, by a pidfd's requests
    def ask():
        if libc.ioctl(pidfd, nr, 0) == -1:
            raise OSError(ctypes.get_errno(), "")
    attempt("pidfd/%x" % nr, ask)
for ns in os.listdir("/proc/self/ns"):   # the owner and the parent of its own
    fd = os.open("/proc/self/ns/" + ns, os.O_RDONLY)
    for nr in (0xb701, 0xb702):
        def ask():
            if libc.ioctl(fd, nr, 0) == -1:
                raise OSError(ctypes.get_errno(), "")
        if ns != "user" and nr == 0xb701:
            continue                     # owned by whom the session is not
        attempt("%s/%x" % (ns, nr), ask)
PY
        is($got, '', "$user");
    }
};


subtest 'the owner of mounts and network is not the session' => sub {
    for my $user (qw(user root)) {
        my $got = out([ 'python3', '-c', <<'PY' ], user => $user);
import fcntl, os
for ns in ("mnt", "net", "pid", "uts", "ipc", "cgroup"):
    try:
        fcntl.ioctl(os.open("/proc/self/ns/" + ns, os.O_RDONLY), 0xb701)
        print(ns)
    except OSError:
        pass
PY
        is($got, '', "$user is shown no user namespace above its own");
    }
};


subtest 'the session\'s root cannot take its first process down' => sub {
    my $v = create_ok();

    my $r = run($v, [ 'python3', '-c', <<'PY' ], user => 'root');
import ctypes, os, resource, signal
for n in list(range(1, 65)):
    try:
        os.kill(1, n)
        signal.pidfd_send_signal(os.pidfd_open(1), n)
    except (OSError, ValueError):
        pass
print("alive")
PY
    is($r->{stdout}, "alive\n", 'no signal does');
    is(run($v, 'echo on')->{stdout}, "on\n", 'commands run');
    is(put($v, 'f', 'x')->{status}, 201, 'files are written');

    # limits of a process with the same ids may be lowered: the session then
    # serves itself badly, and nobody else

    run($v, [ 'python3', '-c', <<'PY' ], user => 'root');
import os, resource
for r in (resource.RLIMIT_NOFILE, resource.RLIMIT_AS, resource.RLIMIT_FSIZE,
          resource.RLIMIT_NPROC, resource.RLIMIT_DATA, resource.RLIMIT_STACK):
    try:
        resource.prlimit(1, r, (0, 0))
    except OSError:
        pass
for what in (lambda: os.sched_setscheduler(1, os.SCHED_IDLE,
                                           os.sched_param(0)),
             lambda: os.setpriority(os.PRIO_PROCESS, 1, 19)):
    try:
        what()
    except OSError:
        pass
PY
    my $t0 = time;
    exec_call($v, 'echo on');
    get($v, 'f');
    cmp_ok(time - $t0, '<', within(20), 'calls are answered, one way or other');
    is(out('echo well'), "well\n", 'another session does not notice');

    $t0 = time;
    is(destroy($v)->{status}, 204, 'it can be destroyed');
    cmp_ok(time - $t0, '<', within(5), 'as fast as any');
};


# They run as the session's user, who may signal them: a call that suffers
# ends, and the next is served.

subtest 'file calls while their servers are hunted' => sub {
    my $v = create_ok();
    put($v, 'f', 'x' x 100_000);

    my $hunt = <<'PY';
import ctypes, os, resource, signal, sys
libc = ctypes.CDLL(None, use_errno=True)
me = os.getpid()
seen = {}
open("/tmp/hunting", "w").close()
while not os.path.exists("/tmp/stop"):
    for pid in range(2, 400):
        if pid == me:
            continue
        try:
            os.kill(pid, 0)
        except OSError:
            continue
        for name in ("mem", "exe", "fd", "environ", "root", "maps"):
            try:
                os.close(os.open("/proc/%d/%s" % (pid, name), os.O_RDONLY))
                seen[name] = 1
            except OSError:
                pass
        if libc.ptrace(16, pid, 0, 0) == 0:
            seen["ptrace"] = 1
        try:
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, 0))
            os.kill(pid, signal.SIGKILL)
        except OSError:
            pass
print(sorted(seen))
PY
    my $job = async { run($v, [ 'python3', '-c', $hunt ]) };
    ok(until_true(sub { -1 != index glob_text($v, '/tmp/hunting'), 'hunting' },
                  20), 'the hunter is on its way');

    my ($bad, $slow) = ('', 0);

    for my $n (1 .. 40) {
        my $t0 = time;
        my $res = $n % 2 ? get($v, 'f') : put($v, "g$n", 'y' x 5000);
        $bad .= " $res->{status}" if $res->{status} !~ /^(?:20[01]|5\d\d)$/;
        $bad .= ' short' if $res->{status} == 200 && $n % 2
                            && length $res->{body} != 100_000;
        $slow = 1 if time - $t0 > within(10);
    }

    is($bad, '', 'each call is answered whole, or by an error');
    ok(!$slow, 'in time');

    until_true(sub { put($v, '/tmp/stop', '')->{status} == 201 }, 20);
    my $r = $job->get(within(30));
    is($r->{stdout}, "[]\n", 'nothing of a server was to be seen or traced');
    like(get($v, '?path=' . '/home/user')->{body} // '', qr/./, 'lists go on');
    is(out('ls -A ~ | grep -c "^\.sandbox" || true'), "0\n",
       'no hidden temporary is left');
    destroy($v);
};

sub glob_text { return glob_of($_[0], $_[1])->{body} // '' }


subtest 'a command cannot better what it was given' => sub {
    for my $user (qw(user root)) {
        my $got = out([ 'python3', '-c', <<'PY' ], user => $user);
import os, resource
def write(name, text):
    try:
        with open(name, "w") as f:
            f.write(text)
        return "written"
    except OSError as e:
        return "refused"
for r in ("NOFILE", "FSIZE", "CPU", "CORE", "MEMLOCK", "NICE", "RTPRIO",
          "SIGPENDING", "MSGQUEUE"):
    n = getattr(resource, "RLIMIT_" + r, {"MSGQUEUE": 12, "NICE": 13,
                                          "RTPRIO": 14, "SIGPENDING": 11}
                .get(r))
    soft, hard = resource.getrlimit(n)
    if hard == resource.RLIM_INFINITY:
        continue
    try:
        resource.prlimit(0, n, (soft, hard + 1))
        print(r, "raised")
    except (OSError, ValueError):
        pass
adj = int(open("/proc/self/oom_score_adj").read())
print("oom", adj)
print("lower", write("/proc/self/oom_score_adj", "-1000"))
print("higher", write("/proc/self/oom_score_adj", "900"))
PY
        is($got, "oom 300\nlower refused\nhigher written\n", "$user");
    }

  SKIP: {
        my $broker = $t->broker;
        my ($held) = slurp("/proc/$broker/status") =~ /^CapEff:\s*(\w+)/m;

        skip 'the server lacks CAP_SYS_RESOURCE here', 1
            if !(hex($held) & 1 << 24);

        is(out('echo 299 > /proc/self/oom_score_adj || echo refused'),
           "refused\n", 'the standing when memory runs out is a floor');
    }
};


subtest 'children that are given to process 1 are reaped' => sub {
    # CLONE_PARENT makes siblings, double forks make orphans: more than the
    # session may have processes at once

    my $r = run($s, [ 'python3', '-c', <<'PY' ]);
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
n = 0
for i in range(200):
    pid = libc.syscall(56, 0x8000 | 17, 0, 0, 0, 0)
    if pid == 0:
        os._exit(7)
    n += pid > 0
    if i % 10 == 0:
        pid = os.fork()
        if pid == 0:
            if os.fork() == 0:
                os._exit(9)
            os._exit(0)
        os.waitpid(pid, 0)
print(n > 150)
os._exit(3)
PY
    is($r->{exit_code}, 3, 'the status is the command\'s own');
    is($r->{stdout}, "True\n", 'and so is its output');
    ok(until_true(sub { out('ls -d /proc/[0-9]* | wc -l') <= 6 }, 10),
       'no zombie stays');
};


subtest 'a program that nobody may read is not traced or dumped' => sub {
    my $r = run($s, [ 'python3', '-c', <<'PY' ]);
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
pid = os.fork()
if pid == 0:
    libc.ptrace(0, 0, 0, 0)
    os.execv("/usr/bin/true", ["true"])
os.waitpid(pid, 0)
print("own child traced")
PY
    is($r->{stdout}, "own child traced\n", 'an own child may be traced');

    my $job = async { run($s, 'touch /tmp/r; exec sleep 20', user => 'root') };
    until_true(sub { get($s, '/tmp/r')->{status} == 200 }, 10);
    is(out([ 'python3', '-c', <<'PY' ]), '', 'the user reaches none of root');
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
for pid in range(2, 5000):
    if pid == os.getpid():
        continue
    for what in ("mem", "environ", "fd/1"):
        try:
            os.close(os.open("/proc/%d/%s" % (pid, what), os.O_RDONLY))
            print(pid, what)
        except OSError:
            pass
    if libc.ptrace(16, pid, 0, 0) == 0:
        print(pid, "traced")
    try:
        os.kill(pid, 9)
        print(pid, "killed")
    except OSError:
        pass
PY
    run($s, 'pkill -x sleep', user => 'root');
    $job->get(within(30));
};


subtest 'no key ring, no helper and no loader is taken over' => sub {
    for my $user (qw(user root)) {
        is(out('keyctl show 2>&1 | grep -c keyring; cat /proc/keys',
               user => $user), "0\n", "$user: no key ring");
    }

    # LD_PRELOAD and friends reach commands of the session alone

    run($s, [ 'sh', '-c', 'echo "/tmp/evil.so" > /etc/ld.so.preload;'
              . ' printf "#!/bin/sh\ntouch /tmp/ran\n" > /etc/profile.d/x.sh'],
        user => 'root');
    is(put($s, '/tmp/n', 'x')->{status}, 201, 'a file is written');
    is(get($s, '/tmp/n')->{body}, 'x', 'and read');
    is(out('ls /tmp/ran 2>/dev/null'), '', 'nothing was run for it');
    run($s, 'rm -f /etc/ld.so.preload', user => 'root');

    my $r = run($s, [ 'python3', '-c', <<'PY' ]);
import os
fd = os.memfd_create("x", 0)
os.write(fd, open("/usr/bin/id", "rb").read())
os.execve(fd, ["id", "-u"], os.environ)
PY
    is($r->{stdout}, "1000\n", 'a program in memory has no more rights');
};


is(out('echo alive'), "alive\n", 'the session is well');

destroy($s);
$t->finish;
done_testing();
