#!/usr/bin/perl

# What a session can see and reach: nothing of the host, nothing of another
# session, and its own machine only within its limits.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";

use Socket qw(inet_ntoa);
use Sys::Hostname ();
use Test::More;
use SandboxTest::More;
use SandboxTest::Watch;

use constant IN_OPEN => 0x20;           # of inotify

my $t = server();
my $one = create_ok();
my $two = create_ok({ tenant_id => 'other-corp', user_id => 'bob' });

sub out { return run(@_)->{stdout} }

sub memory_by {
    return call('GET', "/sessions/$_[0]")->{json}{enforcement}{memory};
}

sub sh { return out($one, $_[0]) }

sub root_sh { return out($one, $_[0], user => 'root') }


subtest 'the mount table tells nothing of the host' => sub {
    my $prefix = $SandboxTest::More::PREFIX;

    for my $file (qw(/proc/self/mountinfo /proc/self/mounts /proc/mounts
                     /proc/self/mountstats))
    {
        for my $user (qw(user root)) {
            my $text = out($one, "cat $file 2>&1", user => $user);
            next if $file =~ /stats/ && $text =~ /denied|No such/;

            like($text, qr{ / }, "$file is readable to $user");

            # where a session has the interpreters' drivers
            $text =~ s{ /sandbox /run/sandbox }{ / /run };
            $text =~ s{/run/sandbox(?:/kernels)?\b}{/run}g;

            unlike($text, qr{\Q$prefix\E|/\S*sandbox|process_api|/sessions/},
                   "$file names no directory of the server ($user)");
            unlike($text, qr{(?:upperdir|lowerdir|workdir)=/(?!proc/self/fd)},
                   "$file has no absolute layer ($user)");
        }
    }

    my @mounts = split /\n/, sh('cat /proc/self/mountinfo');
    my @suid = grep { (split ' ')[5] !~ /nosuid/ } @mounts;
    my @dev = grep { my @f = split ' '; $f[5] !~ /nodev/
                     && $f[4] !~ m{^/dev(/|$)} } @mounts;

    is("@suid", '', 'every mount is nosuid');
    is("@dev", '', 'every mount but /dev is nodev');
    is(join(' ', grep { / - cgroup2? / } @mounts), '',
       'no cgroup file system is mounted');
};


subtest "what others open below /usr is not told" => sub {
    my $watch = watch($one, '/usr/bin', '/usr/bin/env',
                      'a directory of /usr is watched', mask => IN_OPEN);
    open my $f, '<', '/usr/bin/env' or die "/usr/bin/env: $!";
    close $f;
    is(out($two, [ '/usr/bin/env', 'true' ]), '', 'the other session opens');
    watch_is_told_of_itself($watch, 'neither the host nor the other session '
                                    . 'is seen, only itself');
};


subtest 'a command holds no capability and gets none' => sub {
    my %s = sh('cat /proc/self/status') =~ /^(\w+):\s*(.*?)\s*$/mg;

    is($s{$_}, '0' x 16, "$_ is empty")
        for qw(CapInh CapPrm CapEff CapBnd CapAmb);
    is($s{NoNewPrivs}, 1, 'no_new_privs is set');
    is($s{Seccomp}, 2, 'a seccomp filter is on');

    my %r = root_sh('cat /proc/self/status')
            =~ /^(\w+):\s*(.*?)\s*$/mg;
    my $allowed = 1 << 0 | 1 << 1 | 1 << 3 | 1 << 6 | 1 << 7;

    for (qw(CapInh CapPrm CapEff CapBnd CapAmb)) {
        is(hex(substr $r{$_}, 8) & ~$allowed | hex(substr $r{$_}, 0, 8), 0,
           "the session's root: $_ has at most chown, dac_override, fowner,"
           . " setgid and setuid");
    }

    is($r{NoNewPrivs}, 1, "the session's root: no_new_privs");
    is($r{Seccomp}, 2, "the session's root: seccomp");
};


subtest 'the network is off: refused at once, nothing but lo' => sub {
    my $text = out($one, [ 'python3', '-c', <<'PY' ]);
import socket, time, errno
for fam, addr in ((socket.AF_INET, ("1.1.1.1", 80)),
                  (socket.AF_INET, ("10.0.0.1", 22)),
                  (socket.AF_INET, ("169.254.169.254", 80)),
                  (socket.AF_INET6, ("2001:db8::1", 80))):
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        s = socket.socket(fam, kind)
        s.settimeout(3)
        t = time.monotonic()
        try:
            s.connect(addr)
            print("connected", addr)
        except OSError as e:
            d = time.monotonic() - t
            print(errno.errorcode.get(e.errno, str(e)),
                  "fast" if d < 0.3 else "slow")
l = socket.socket()
l.bind(("127.0.0.1", 80))
l.listen(1)
c = socket.create_connection(("127.0.0.1", 80), 2)
print("own port 80")
PY

    is($text, "ENETUNREACH fast\n" x 8 . "own port 80\n",
       'ENETUNREACH everywhere; a low port of lo can be bound');

    my @devices = sh('tail -n +3 /proc/net/dev') =~ /^\s*(\S+):/mg;
    is("@devices", 'lo', 'lo is the only interface');

    my $port = $SandboxTest::More::PORT;
    my $reach = out($one, [ 'python3', '-c', "import socket,sys\n"
        . "try:\n socket.create_connection(('127.0.0.1', $port), 2)\n"
        . " print('reached')\nexcept OSError as e: print(e.strerror)" ]);
    is($reach, "Connection refused\n",
       'the server itself is not reachable over lo');

    my $r = run($one, 'curl -sS -m 5 http://example.com/ 2>&1; echo $?');
    cmp_ok($r->{duration_s}, '<', within(2),
           'a name that needs the network fails'
                                     . ' within two seconds');
};


subtest 'what /proc would tell of the host is masked' => sub {
    for my $f (qw(kcore keys timer_list kallsyms sched_debug kmsg
                  sysrq-trigger latency_stats slabinfo iomem ioports))
    {
        my $size = root_sh("test -e /proc/$f || { echo 0; exit; }; "
                           . "timeout 1 head -c 64 /proc/$f 2>/dev/null"
                           . ' | tr -d " 0:\n" | grep -v "^$" | wc -c');
        next if $f =~ /^io/ && $size > 0
                && root_sh("cat /proc/$f") !~ /[1-9a-f]{4}-/;
        is($size + 0, 0, "/proc/$f gives nothing, to root either");
    }

    is(run($one, 'cat /proc/sys/net/ipv4/tcp_congestion_control')->{stdout},
       "reno\n", 'what is sent on lo is not paced, whatever the host does');

    for my $user (qw(user root)) {
        for my $f (qw(/proc/sysrq-trigger /proc/sys/kernel/core_pattern
                      /proc/sys/kernel/hostname /proc/sys/vm/drop_caches
                      /proc/sys/kernel/modprobe /proc/1/oom_score_adj
                      /proc/sys/net/ipv4/ip_unprivileged_port_start))
        {
            my $r = run($one, "echo 0 > $f", user => $user);
            isnt($r->{exit_code}, 0, "$f cannot be written by $user");
        }
    }

    my $core = slurp('/proc/sys/kernel/core_pattern');
    isnt($core, "0\n", "the host's core pattern is what it was");

    my $r = run($one, 'dmesg 2>&1', user => 'root');
    isnt($r->{exit_code}, 0, "the kernel's log is refused");
};


subtest 'no process but its own' => sub {
    my @pids = split ' ', sh('cd /proc; echo [0-9]*');
    cmp_ok(scalar @pids, '<=', 3, 'a command sees itself and no neighbour');

    my $argv = root_sh('cat /proc/[0-9]*/cmdline | tr "\0" " "');
    unlike($argv, qr{nginx|broker|/helpers|\Q$SandboxTest::More::PREFIX\E},
           'no command line of the server');

    for my $f (qw(environ mem maps auxv stack fd/3)) {
        my $r = run($one, "head -c 100 /proc/1/$f", user => 'root');
        is($r->{stdout}, '', "/proc/1/$f gives nothing to root");
    }

    run($one, 'kill -9 1; kill -STOP 1; kill -9 -1', user => 'root');
    run($one, 'kill -9 1; kill -STOP 1; kill -9 -1');
    is(sh('echo alive'), "alive\n", 'signals to process 1 change nothing');
};


subtest "the host's files are read-only or out of reach" => sub {
    for my $user (qw(user root)) {
        for my $f (qw(/usr/x /usr/bin/x /bin/x /lib/x /proc/x /sys/x
                      /dev/x))
        {
            my $r = run($one, "touch $f 2>&1", user => $user);
            isnt($r->{exit_code}, 0, "$user cannot make $f");
        }

        my $r = run($one, 'chmod 777 /usr/bin/env; chown 0 /usr/bin/env;'
                        . ' rm -f /usr/bin/env; mv /usr/bin /usr/b;'
                        . ' true > /usr/bin/env',
                    user => $user);
        isnt($r->{exit_code}, 0, "$user cannot change /usr");
    }

    ok(-x '/usr/bin/env', "the host's /usr/bin/env is there");

    my ($line) = grep { /^root:/ } split /\n/, slurp('/etc/shadow') // '';

  SKIP: {
        skip 'this machine has no line for root in /etc/shadow', 1
            if !defined $line;
        unlike(root_sh('cat /etc/shadow /etc/shadow- /etc/gshadow 2>&1'),
               qr{^\Q$line\E$}m, "the host's /etc/shadow is not there");
    }

    my ($secret) = split /\n/, `find /usr -xdev -type f ! -perm -o=r \\
                                     -size -2000k 2>/dev/null`;

  SKIP: {
        skip "no file below this host's /usr is root's alone", 2
            if !defined $secret;

        for my $user (qw(user root)) {
            my $r = run($one, [ 'head', '-c', '10', $secret ], user => $user);
            is($r->{stdout}, '', "$user cannot read $secret");
        }
    }

    my $mine = "$SandboxTest::More::PREFIX/nginx.pid";
    isnt(run($one, [ 'cat', $mine ], user => 'root')->{exit_code}, 0,
         "the server's directory is not there");
};


subtest 'the host name is its own' => sub {
    my $name = sh('hostname; cat /proc/sys/kernel/hostname /etc/hostname');
    my $host = Sys::Hostname::hostname();

    unlike($name, qr/^\Q$host\E$/m, "not the host's");
    isnt(out($one, 'hostname') , '', 'there is one');
    isnt(run($one, 'hostname changed', user => 'root')->{exit_code}, 0,
         'root cannot change it');
};


subtest 'the machine is of the size of the limits' => sub {
    my $s = create_ok({ manifest => { resources => { memory => '200MB',
                                                     cpus => 1 } } });

    is(out($s, 'nproc'), "1\n", 'nproc');
    is(out($s, [ 'python3', '-c', 'import os; print(os.cpu_count())' ]),
       "1\n", 'os.cpu_count()');
    is(out($s, 'grep -c ^processor /proc/cpuinfo'), "1\n", '/proc/cpuinfo');
    is(out($s, 'grep ^MemTotal: /proc/meminfo'),
       sprintf("MemTotal:%15d kB\n", 200 * 1024), 'MemTotal');

    my ($free) = out($s, 'grep ^MemAvailable: /proc/meminfo') =~ /(\d+)/;
    cmp_ok($free, '<=', 200 * 1024, 'MemAvailable is not above it');
    cmp_ok($free, '>', 0, 'nor zero');

    my @free = split ' ', out($s, 'free -k | grep ^Mem:') || '- 0';
  SKIP: {
        skip 'no free(1) on this machine', 1 if !-x '/usr/bin/free';
        is($free[1], 200 * 1024, 'free(1)');
    }

    is(out($s, 'grep ^cpu /proc/stat; cat /proc/loadavg'),
       "cpu  0 0 0 0 0 0 0 0 0 0\ncpu0 0 0 0 0 0 0 0 0 0 0\n"
       . "0.00 0.00 0.00 1/1 1\n", 'load and counts of the host are not told');
    is(out($s, 'cat /proc/vmstat /proc/buddyinfo /proc/zoneinfo'
               . ' /proc/pagetypeinfo'), '', 'nor those of its memory');

    my ($boot) = out($s, 'grep ^btime /proc/stat') =~ /(\d+)/;
    my ($own) = slurp('/proc/stat') =~ /^btime (\d+)/m;
    cmp_ok(abs($boot - $own), '<=', 2, 'ps can date processes');

    destroy($s);
};


subtest 'no namespace may be made, whatever the filter lets through' => sub {
    my $before = slurp('/proc/sys/user/max_user_namespaces');

    for my $kind (qw(cgroup ipc mnt net pid user uts)) {
        is(sh("cat /proc/sys/user/max_${kind}_namespaces"), "0\n", $kind);
        isnt(run($one, "echo 9 >/proc/sys/user/max_${kind}_namespaces",
                 user => 'root')->{exit_code}, 0, "root cannot raise $kind");
    }

    is(slurp('/proc/sys/user/max_user_namespaces'), $before,
       "the host's limit is as it was");
};


subtest 'libraries start as many threads as there are processors' => sub {
    my $s = create_ok({ manifest => { resources => { cpus => 1.5 } } });
    my $script = 'echo $OMP_NUM_THREADS $OPENBLAS_NUM_THREADS'
                 . ' $MKL_NUM_THREADS $GOMAXPROCS $RAYON_NUM_THREADS; nproc';
    my ($cpus) = `nproc` =~ /(\d+)/;
    my $n = $cpus < 2 ? $cpus : 2;

    is(out($s, $script), "$n $n $n $n $n\n$n\n",
       'as the session has, rounded up');
    is(run($s, 'echo $OMP_NUM_THREADS', env => { OMP_NUM_THREADS => '7' })
           ->{stdout}, "7\n", 'unless the call says other');

    destroy($s);
};


subtest 'memory_strategy rlimit: an allocation fails, no kill' => sub {
    my $ask = [ 'python3', '-c', <<'PY' ];
try:
    x = bytearray(200 << 20)
    print("given")
except MemoryError:
    print("refused")
PY
    my %size = (resources => { memory => '128MB' });

    for my $strategy (qw(auto cgroup)) {
        my $s = create_ok({ manifest => { %size,
                                          memory_strategy => $strategy } });

        isnt(memory_by($s), 'rlimit', "$strategy: by a group");
        is(run($s, $ask)->{reason}, 'memory', 'the kernel kills');
        destroy($s);
    }

    my $s = create_ok({ manifest => { %size, memory_strategy => 'rlimit' } });

    is(memory_by($s), 'rlimit', 'rlimit is told');
    is(run($s, $ask)->{stdout}, "refused\n", 'the program is told');
    is(run($s, 'ulimit -v')->{stdout}, (128 << 10) . "\n",
       'it is the address space of each process');
    is(run($s, 'ulimit -v', limits => { memory => '64MB' })->{stdout},
       (64 << 10) . "\n", "or of the command's own limit");

    ok(run($s, [ 'python3', '-c', <<'PY' ])->{oom_killed},
import os, time
for i in range(6):
    if os.fork() == 0:
        x = bytearray(50 << 20)
        time.sleep(3)
        os._exit(0)
for i in range(6):
    os.wait()
PY
       'many processes together still meet the limit of the group');
    destroy($s);
};


subtest 'a command starts with three descriptors and no terminal' => sub {
    for my $user (qw(user root)) {
        my $fds = out($one, [ 'python3', '-c', <<'PY' ], user => $user);
import os
own = os.open("/proc/self/fd", os.O_RDONLY)
print(sorted(int(n) for n in os.listdir(own) if int(n) != own
             and os.path.exists("/proc/self/fd/" + n)))
print(os.getsid(0) == os.getpid(), os.getpgrp() == os.getpid())
print([os.isatty(n) for n in (0, 1, 2)])
try:
    os.open("/dev/tty", os.O_RDWR)
    print("a terminal")
except OSError as e:
    print(e.strerror)
PY
        is($fds, "[0, 1, 2]\nTrue True\n[False, False, False]\n"
                 . "No such device or address\n", $user);
    }
};


subtest 'two sessions share no file' => sub {
    my @dirs = qw(/tmp /dev/shm /var/tmp /run /run/lock /workspace /data
                  /app /home/user /srv);
    my $names = join ' ', map { "$_/bean" } @dirs;

    run($one, "for f in $names; do echo bean > \$f; done", user => 'root');
    my $left = sh("ls $names 2>/dev/null | wc -l");
    cmp_ok($left, '>=', 6, 'the first session has made files');

    is(out($two, "ls $names 2>/dev/null", user => 'root'), '',
       'the second sees none of them');

    destroy($one);
    $one = create_ok();
    is(sh("ls $names 2>/dev/null; ls -A /tmp /dev/shm /var/tmp"),
       "/dev/shm:\n\n/tmp:\n\n/var/tmp:\n",
       'a new session of the same user sees none either');
};


subtest 'two sessions share no socket, no IPC object, no name' => sub {
    my $script = <<'PY';
import ctypes, os, socket, sys
libc = ctypes.CDLL(None, use_errno=True)
def attempt(name, what):
    try:
        r = what()
    except OSError as e:
        r = e.strerror
    print(name, r)
def call(fn, *args):
    r = fn(*args)
    return os.strerror(ctypes.get_errno()) if r < 0 else "made"
KEY = 0x5eed
PY
    my $make = $script . <<'PY';
u = socket.socket(socket.AF_UNIX); u.bind("\0leak"); u.listen(1)
n = socket.socket(); n.bind(("127.0.0.1", 7777)); n.listen(1)
attempt("shm", lambda: call(libc.shmget, KEY, 4096, 0o1666))
attempt("sem", lambda: call(libc.semget, KEY, 1, 0o1666))
attempt("msg", lambda: call(libc.msgget, KEY, 0o1666))
attempt("mq", lambda: call(libc.mq_open, b"/leak", os.O_CREAT | os.O_RDWR,
                           0o666, None))
open("/tmp/made", "w").close()
import time
time.sleep(30)
PY
    my $find = $script . <<'PY';
def connect(fam, addr):
    s = socket.socket(fam); s.settimeout(2); s.connect(addr); return "reached"
attempt("unix", lambda: connect(socket.AF_UNIX, "\0leak"))
attempt("tcp", lambda: connect(socket.AF_INET, ("127.0.0.1", 7777)))
attempt("shm", lambda: call(libc.shmget, KEY, 4096, 0o666))
attempt("sem", lambda: call(libc.semget, KEY, 1, 0o666))
attempt("msg", lambda: call(libc.msgget, KEY, 0o666))
attempt("mq", lambda: call(libc.mq_open, b"/leak", os.O_RDWR))
print("names", [l.split()[7] for l in open("/proc/net/unix")
                if len(l.split()) > 7][1:])
PY
    my $job = async { run($one, [ 'python3', '-c', $make ]) };
    ok(until_true(sub { get($one, '/tmp/made')->{status} == 200 }, 10),
       'the first session has made them');

    my $seen = out($one, [ 'python3', '-c', $find ]);
    like($seen, qr/^unix reached\ntcp reached\nshm made\n/,
         'a second command of the same session finds them');

    is(out($two, [ 'python3', '-c', $find ]), <<'TEXT',
unix Connection refused
tcp Connection refused
shm No such file or directory
sem No such file or directory
msg No such file or directory
mq No such file or directory
names []
TEXT
       'another session finds nothing');

    # and what the host has bound by abstract names is out of reach too

    my $try = out($two, [ 'python3', '-c', <<'PY', map { /@(\S+)/ ? $1 : () }
import socket, sys
for name in sys.argv[1:]:
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_SEQPACKET):
        try:
            socket.socket(socket.AF_UNIX, kind).connect("\0" + name)
            print("reached", name)
        except OSError:
            pass
PY
        split /\n/, slurp('/proc/net/unix') ]);
    is($try, '', "no abstract name of the host's is reachable");

    destroy($one);
    $job->get(10);
    $one = create_ok();
};


subtest "the session's root is root of the session only" => sub {
    my %try = (
        'mount a tmpfs' => 'mount -t tmpfs none /mnt',
        'mount proc' => 'mount -t proc none /mnt',
        'bind' => 'mount --bind /home /mnt',
        'remount /usr for writing' => 'mount -o remount,rw /usr',
        'remount / with suid' => 'mount -o remount,suid,dev /',
        'unmount a mask' => 'umount /proc/kcore || umount /proc/meminfo',
        'make a device' => 'mknod /tmp/mem c 1 1',
        'make a block device' => 'mknod /tmp/disk b 8 0',
        'change its root' => 'chroot /tmp /bin/true',
        'a new user namespace' => 'unshare -Ur true',
        'a new mount namespace' => 'unshare -m true',
        'enter the namespaces of process 1' => 'nsenter -t 1 -m true',
        'swap' => 'truncate -s 1M /tmp/s; swapon /tmp/s',
        'set the time' => 'date -s 2001-01-01',
        'raise a limit' => 'ulimit -Hn 2000000',
        'renice below zero' => 'renice -n -5 -p $$',
        'bring an interface up' => 'ip link add x type dummy',
    );

    for my $what (sort keys %try) {
        my $r = run($one, "$try{$what} 2>&1", user => 'root');
        isnt($r->{exit_code}, 0, "refused: $what")
            or diag($r->{stdout});
    }

    my $r = run($one, 'id -u; touch /root/x /home/user/y;'
                    . ' chown 1000:1000 /home/user/y; stat -c %u /home/user/y;'
                    . ' python3 -c "import os; os.setuid(1000);'
                    . ' print(os.getuid())"',
                user => 'root');
    is($r->{stdout}, "0\n1000\n1000\n", 'what root is for works')
        or diag($r->{stderr});

    run($one, 'cp /bin/bash /tmp/b; chmod 4755 /tmp/b', user => 'root');
    is(sh('/tmp/b -p -c "id -u"'), "1000\n",
       'a set-user-id file of root gives nobody root');
    isnt(run($one, 'su -c id root 2>&1 | grep -q uid=0')->{exit_code}, 0,
         "nor do the host's");
};


subtest 'every namespace is its own, and of cgroups only "/" is seen' => sub {
    for my $ns (qw(pid mnt ipc uts net user cgroup)) {
        my $in = sh("readlink /proc/self/ns/$ns");
        chomp $in;
        like($in, qr/^$ns:\[\d+\]$/, "$ns is readable");
        isnt($in, readlink("/proc/self/ns/$ns"), "$ns is not the host's");
        isnt($in, do { my $o = out($two, "readlink /proc/self/ns/$ns");
                       chomp $o; $o }, "$ns is not another session's");
    }

    my $groups = sh('cat /proc/self/cgroup');
    unlike($groups, qr/\Q$one\E|process_api|sandbox|init|\.slice/,
           'no path of a group');
    is(sh('find /sys -name "*cgroup*" -o -name "release_agent"; '
          . 'ls /sys/fs 2>/dev/null; ls /sys/kernel 2>/dev/null'), '',
       '/sys tells of no group and no kernel');
};


subtest 'devices are six and harmless' => sub {
    my @names = split ' ', sh('find /dev -xdev \( -type c -o -type b \)'
                              . ' -printf "%f\n" | sort');
    is_deeply([ grep { !/^(?:full|null|ptmx|random|tty|urandom|zero)$/ }
                     @names ], [], 'no other node');
    is(sh('head -c 4 /dev/zero | od -An -tx1; head -c 8 /dev/urandom | wc -c;'
          . ' echo x > /dev/null;'
          . ' echo x 2>/dev/null > /dev/full || echo full'),
       " 00 00 00 00\n8\nfull\n", 'they work');
};


subtest 'a crash leaves no core file and nothing on the host' => sub {
    my $r = run($one, 'ulimit -c; ulimit -c unlimited 2>/dev/null;'
                    . ' sh -c \'kill -SEGV $$\'; ls -A . /tmp | grep core');
    like($r->{stdout}, qr/^0\n/, 'the core limit is 0');
    unlike($r->{stdout}, qr/core/, 'and none is written');
};


$t->finish;
done_testing();
