#!/usr/bin/perl

# Parts of the kernel that system calls which are allowed would reach by an
# argument: modules that load by themselves, terminals, protocols, machine
# code of filters, files of /proc that the kernel acts on.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../lib";

use Test::More;
use SandboxTest::More;

my @users = $ENV{SANDBOX_TEST_SMALL} ? 'root' : qw(user root);

my $t = server();
my $s = create_ok();
my $modules = slurp('/proc/modules');

# Every script begins with this: name and answer, one line each.
my $python = <<'PY';
import ctypes, errno, fcntl, os, socket, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
def word(e):
    return errno.errorcode.get(e, str(e))
def attempt(name, what):
    try:
        r = what()
        print(name, "done" if r is None else r)
    except OSError as e:
        print(name, word(e.errno))
def call(nr, *args):
    ctypes.set_errno(0)
    r = libc.syscall(*[ctypes.c_long(a) if isinstance(a, int) else a
                       for a in (nr,) + args])
    if r == -1:
        raise OSError(ctypes.get_errno(), "")
PY

sub answers {
    my ($script, %o) = @_;

    my $r = run($s, [ 'python3', '-c', $python . $script ], %o);
    my %got = map { /^(\S+) (.*)$/ ? ($1 => $2) : () }
              split /\n/, $r->{stdout};

    diag($r->{stderr}) if $r->{stderr} ne '';

    return \%got;
}


sub all_are {
    my ($got, $count, $want, $name) = @_;

    local $Test::Builder::Level = $Test::Builder::Level + 1;

    my @other = grep { $got->{$_} !~ /^(?:$want)$/ } sort keys %$got;

    is(scalar keys %$got, $count, "$name: all were tried");
    is(join(' ', map { "$_=$got->{$_}" } @other), '', "$name: $want");

    return;
}


for my $user (@users) {
    subtest "families of sockets, as $user" => sub {
        my $got = answers(<<'PY', user => $user);
for f in range(0, 50):
    if f in (1, 2, 10, 16):
        continue
    for kind in (1, 2, 3, 5):
        attempt("%d/%d" % (f, kind), lambda: call(41, f, kind, 0))
        attempt("high/%d/%d" % (f, kind),
                lambda: call(41, f | 1 << 32, kind, 0))
PY
        all_are($got, 46 * 8, 'EPERM', 'AF_PACKET, AF_ALG, AF_VSOCK …');

        $got = answers(<<'PY', user => $user);
for p in range(1, 24):
    attempt(str(p), lambda: call(41, 16, 3, p))
PY
        all_are($got, 23, 'EPERM', "netlink but its route family");
    };


    # Each of these pairs would start the host's modprobe.

    subtest "protocols that are modules, as $user" => sub {
        my $got = answers(<<'PY', user => $user);
for f in (2, 10):
    for kind in (0, 1, 2, 4, 5, 6, 10):
        for p in (0, 1, 2, 6, 17, 33, 47, 58, 115, 132, 136, 255, 262):
            if (kind, p) in ((1, 0), (1, 6), (2, 0), (2, 17)):
                continue
            attempt("%d/%d/%d" % (f, kind, p), lambda: call(41, f, kind, p))
PY
        all_are($got, 2 * (7 * 13 - 4), 'EPROTONOSUPPORT', 'pairs');

        $got = answers(<<'PY', user => $user);
for f in (2, 10):
    for p in (0, 1, 6, 58, 255):
        attempt("%d/%d" % (f, p), lambda: call(41, f, 3, p))
for p in (socket.AF_INET, socket.AF_INET6):
    socket.socket(p, socket.SOCK_STREAM).close()
    socket.socket(p, socket.SOCK_DGRAM).close()
PY
        all_are($got, 10, 'EPERM', 'raw sockets');
    };


    subtest "requests of terminals and interfaces, as $user" => sub {
        my $got = answers(<<'PY', user => $user);
m, s = os.openpty()
n = socket.socket(socket.AF_UNIX)
b = ctypes.create_string_buffer(64)
for name, r in (("sti", 0x5412), ("linux", 0x541c), ("setd", 0x5423)):
    for fd in (0, m, s):
        for high in (0, 1 << 32, 0xffffffff << 32):
            attempt("%s/%d/%x" % (name, fd, high),
                    lambda: call(16, fd, r | high, b))
for r in (0x8940, 0x8941, 0x8980, 0x8981, 0x8982, 0x8983, 0x89a0, 0x89a1):
    attempt("net/%x" % r, lambda: call(16, n.fileno(), r, b))
PY
        all_are($got, 27 + 8, 'EPERM',
                'TIOCSTI, TIOCLINUX, TIOCSETD, bridges, VLANs');

        $got = answers(<<'PY', user => $user);
d = os.open(".", os.O_RDONLY)
for high in (0, 1 << 32, 0xffffffff << 32):
    attempt("notify/%x" % high, lambda: call(72, d, 1026 | high, 0x80000001))
PY
        all_are($got, 3, 'EINVAL', 'watches of directories without number');

        $got = answers(<<'PY', user => $user);
import termios, tty
m, s = os.openpty()
attempt("attributes", lambda: termios.tcgetattr(s) and None)
attempt("raw", lambda: tty.setraw(s) and None)
attempt("size", lambda: fcntl.ioctl(s, termios.TIOCGWINSZ, bytes(8)) and None)
PY
        all_are($got, 3, 'done', 'what terminals are used for');
    };


    subtest "options of sockets, as $user" => sub {
        my $got = answers(<<'PY', user => $user);
t = socket.socket(socket.AF_INET6, socket.SOCK_STREAM)
prog = struct.pack("HHI", 6, 0, 1)
mem = ctypes.create_string_buffer(prog)
fprog = struct.pack("HxxxxxxQ", 1, ctypes.addressof(mem))
for level, name in ((1, 26), (1, 50), (1, 51), (1, 52), (6, 14), (6, 31),
                    (6, 32), (6, 38), (41, 20), (41, 27), (41, 42), (41, 46),
                    (41, 48)):
    attempt("%d/%d" % (level, name),
            lambda: t.setsockopt(level, name, fprog + bytes(512)))
PY
        all_are($got, 13, 'EPERM', 'filters, keys, other protocols, groups');

        $got = answers(<<'PY', user => $user);
t = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
for name, size in ((64, 96), (65, 96), (96, 96)):
    attempt("set/%d" % name, lambda: t.setsockopt(0, name, bytes(size)))
    attempt("get/%d" % name, lambda: t.getsockopt(0, name, size))
PY
        all_are($got, 6, 'EPERM|ENOPROTOOPT', 'tables of netfilter');
    };


    subtest "namespaces by clone, as $user" => sub {
        my $got = answers(<<'PY', user => $user);
for name, bit in (("mnt", 0x20000), ("cgroup", 0x2000000), ("uts", 0x4000000),
                  ("ipc", 0x8000000), ("user", 0x10000000),
                  ("pid", 0x20000000), ("net", 0x40000000), ("time", 0x80)):
    for more in (0, 0x10000000, 1 << 32):
        attempt("%s/%x" % (name, more), lambda: call(56, bit | more, 0, 0))
        attempt("unshare/%s/%x" % (name, more),
                lambda: call(272, bit | more))
PY
        all_are($got, 48, 'EPERM', 'each kind');
    };


    subtest "what else hangs on an argument, as $user" => sub {
        my $got = answers(<<'PY', user => $user);
for p in (0x0008000, 0x0040000, 0x0100000, 0x0200000, 0x0400000, 0x0800000,
          0x1000000, 0x2000000, 0x4000000, 0x8000000, 0x20000000, 0x00000001,
          0x0040000 | 1 << 32):
    attempt("persona/%x" % p, lambda: call(135, p))
attempt("core", lambda: call(157, 62, 1, 0, 0, 0))
attempt("core/to", lambda: call(157, 62, 2, 0, 1, 0))
PY
        all_are($got, 15, 'EPERM', 'personality, core scheduling');

        $got = answers(<<'PY', user => $user);
attempt("map", lambda: call(9, 0, 1 << 21, 3, 0x40022, -1, 0))
attempt("memfd", lambda: call(319, ctypes.c_char_p(b"x"), 4))
attempt("shm", lambda: call(29, 0, 1 << 21, 0o5600))
PY
        all_are($got, 3, 'ENOMEM', 'huge pages');

        $got = answers(<<'PY', user => $user);
import mmap
m = mmap.mmap(-1, 65536)
attempt("merge", lambda: m.madvise(12))
attempt("poison", lambda: m.madvise(100))
attempt("offline", lambda: m.madvise(101))
PY
        all_are($got, 3, 'EINVAL|EPERM', 'pages merged or poisoned');

        $got = answers(<<'PY', user => $user);
class P(ctypes.Structure):
    _fields_ = [("v", ctypes.c_int)]
for policy, prio in ((1, 1), (1, 99), (2, 1), (2, 50)):
    attempt("policy/%d/%d" % (policy, prio),
            lambda: os.sched_setscheduler(0, policy, os.sched_param(prio)))
attempt("deadline", lambda: call(314, 0, ctypes.create_string_buffer(
    struct.pack("IIQiIQQQ", 48, 6, 0, 0, 0, 10**7, 10**8, 10**8)), 0))
attempt("nice", lambda: os.setpriority(os.PRIO_PROCESS, 0, -1))
attempt("ioprio", lambda: call(251, 1, 0, 1 << 13))
PY
        all_are($got, 7, 'EPERM|EACCES', 'priorities above others\'');
    };


    # What the kernel runs or does for whoever writes these.

    subtest "files that the kernel acts on, as $user" => sub {
        my @files = qw(
            sys/kernel/core_pattern sys/kernel/core_pipe_limit
            sys/kernel/modprobe sys/kernel/poweroff_cmd sys/kernel/hotplug
            sys/kernel/usermodehelper/inheritable sys/kernel/ns_last_pid
            sys/kernel/yama/ptrace_scope sys/kernel/kptr_restrict
            sys/kernel/unprivileged_bpf_disabled sys/kernel/pid_max
            sys/kernel/threads-max sys/kernel/sysrq sys/kernel/panic
            sys/kernel/shmmax sys/kernel/msgmni sys/kernel/cad_pid
            sys/vm/drop_caches sys/vm/overcommit_memory sys/vm/swappiness
            sys/vm/panic_on_oom sys/vm/nr_hugepages sys/vm/compact_memory
            sys/fs/binfmt_misc/register sys/fs/suid_dumpable
            sys/fs/protected_hardlinks sys/fs/mqueue/queues_max
            sys/fs/file-max sys/fs/inotify/max_user_instances
            sys/user/max_user_namespaces sys/net/ipv4/ip_forward
            sys/net/core/somaxconn sys/net/ipv4/ping_group_range
            sys/dev/tty/ldisc_autoload sysrq-trigger kcore kmsg
            self/uid_map self/gid_map self/setgroups self/timens_offsets
            self/loginuid self/projid_map self/attr/exec
            acpi/wakeup irq/default_smp_affinity scsi/scsi mtrr fb bus/pci
            sys/fs/binfmt_misc/status);

        my $got = answers("for f in '@files'.split():\n" . <<'PY',
    def put():
        with open("/proc/" + f, "wb", buffering=0) as o:
            o.write(b"|/tmp/x")
    attempt(f, put)
for f in ("/sys/kernel/uevent_helper", "/sys/kernel/debug",
          "/sys/fs/cgroup/release_agent", "/sys/power/state",
          "/dev/mem", "/dev/kmsg", "/dev/port", "/dev/fuse", "/dev/net/tun",
          "/dev/kvm", "/dev/loop-control", "/dev/sda", "/dev/vda",
          "/dev/console", "/dev/tty0", "/dev/tty1", "/dev/vhost-vsock",
          "/dev/userfaultfd", "/dev/mapper/control", "/dev/tty"):
    attempt(f, lambda: os.close(os.open(f, os.O_RDWR)))
PY
                          user => $user);

        all_are($got, @files + 20,
                'ENOENT|EACCES|EROFS|EPERM|EINVAL|ENXIO|EISDIR|EIO',
                'none can be written');
    };
}


# Whoever is asked for first may load one: of these none was.

subtest 'the kernel has loaded nothing for a session' => sub {
    plan(skip_all => 'this kernel has no modules') if !defined $modules;

    my %before = map { /^(\S+)/ ? ($1 => 1) : () } split /\n/, $modules;
    my @new = grep { !$before{$_} }
              map { /^(\S+)/ ? $1 : () } split /\n/, slurp('/proc/modules');
    my @ours = grep { /^(?:bridge|8021q|dlci|sctp|dccp|tipc|rds|smc|tls|vsock
                         |af_|algif|can|bluetooth|appletalk|n_|slip|ppp
                         |hdlc|xt_|ip_tables|ip6_tables|nf_|mptcp|l2tp
                         |pppox|phonet|kcm|ax25|netrom|rose|x25|llc|atm
                         |crypto_user|sock_diag|inet_diag|md5)/x } @new;

    is("@ours", '', 'no protocol, no line discipline, no bridge');
};


subtest 'sync and dropped caches are the session\'s own affair' => sub {
    my $got = answers(<<'PY');
attempt("sync", os.sync)
f = os.open("/usr/bin/env", os.O_RDONLY)
attempt("dontneed", lambda: os.posix_fadvise(f, 0, 0, os.POSIX_FADV_DONTNEED))
o = open("/tmp/x", "wb"); o.write(b"x")
attempt("fsync", lambda: (o.flush(), os.fsync(o.fileno())) and None)
attempt("syncfs", lambda: call(306, o.fileno()))
PY
    all_are($got, 4, 'done', 'said to be done');
};


subtest 'a filter of their own is let through, and stays within ours' => sub {
    my $got = answers(<<'PY');
import threading
prog = struct.pack("HHI", 6, 0, 0x7fff0000)
mem = ctypes.create_string_buffer(prog)
fprog = ctypes.create_string_buffer(
    struct.pack("HxxxxxxQ", 1, ctypes.addressof(mem)))
attempt("filter", lambda: call(317, 1, 0, fprog))
attempt("unshare", lambda: call(272, 0x10000000))
attempt("mount", lambda: call(165, 0, 0, 0, 0, 0))
PY
    is_deeply($got, { filter => 'done', unshare => 'EPERM', mount => 'EPERM' },
              'one that allows everything allows nothing more');
};


is(run($s, 'echo alive')->{stdout}, "alive\n", 'the session is well');

destroy($s);
$t->finish;
done_testing();
