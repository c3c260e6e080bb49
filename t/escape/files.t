#!/usr/bin/perl

# Files that are made to trick: set-user-id programs, whiteouts and attributes
# of overlays, links, devices, trees and names that are hard to remove,
# leases, pages of read-only files.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../lib";

use Test::More;
use SandboxTest::More;

my $t = server();
my $s = create_ok();

sub out { return run($s, @_)->{stdout} }


subtest 'no program gives anybody more rights' => sub {
    my @suid = grep { -u || -g _ } map { glob "$_/*" }
               qw(/usr/bin /usr/sbin /usr/lib/openssh);
    note("of the host: @suid");

    my $probe = 'id -u; grep -E "^Cap(Eff|Prm)" /proc/self/status';
    my $user = out($probe);

    run($s, 'for p in id sh; do cp /usr/bin/$p /tmp/su-$p; done;'
            . ' chown 0:0 /tmp/su-*; chmod 6755 /tmp/su-*; ls -l /tmp/su-*',
        user => 'root');
    like(out('ls -l /tmp/su-id'), qr/^-rws/, 'the bits can be set');
    is(out('/tmp/su-id -u'), "1000\n", 'and give nothing');
    is(out("/tmp/su-sh -p -c '$probe'"), $user, 'nor to a shell');

    # copies that an overlay makes of what is below it

    run($s, 'chmod 4755 /usr/bin/id; cp -p /usr/bin/su /home/user/su;'
            . ' chown 0 /home/user/su; chmod 4755 /home/user/su',
        user => 'root');
    isnt(run($s, 'echo | ./su -c "id -u" 2>&1')->{exit_code}, 0,
         'su asks, and has no rights to switch');

    for my $prog (map { m{([^/]+)$} } @suid) {
        my $r = run($s, "exec 2>&1; echo | timeout 5 $prog -c id root"
                        . ' </dev/null', timeout_s => 20);
        unlike($r->{stdout}, qr/uid=0|euid=0/, "$prog gives no root");
    }

    for my $u (qw(user root)) {
        my $got = out([ 'python3', '-c', <<'PY' ], user => $u);
import os, struct
open("/tmp/cap", "wb").close()
cap = struct.pack("<IIIII", 0x02000001, 0xffffffff, 0, 0xffffffff, 0)
for name, value in (("security.capability", cap),
                    ("trusted.overlay.opaque", b"y"),
                    ("trusted.overlay.redirect", b"/etc"),
                    ("trusted.overlay.metacopy", b""),
                    ("system.posix_acl_access", b"x")):
    for f in ("/tmp/cap", "/home/user"):
        try:
            os.setxattr(f, name, value)
            print(f, name)
        except OSError:
            pass
PY
        is($got, '', "$u: no file capability, no attribute of overlays");
    }
};


# The kernel counts an access list's memory for nobody.

subtest 'large attributes are refused, small ones are counted' => sub {
    my $got = out([ 'python3', '-c', <<'PY' ]);
import errno, os, struct
def acl(n):
    e = [(1, 7, -1)] + [(2, 7, 1000)] * n + [(4, 7, -1), (16, 7, -1),
                                             (32, 7, -1)]
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHi", *x) for x in e)
for where in ("/tmp/d", "/home/user/d", "/dev/shm/d", "/run/user/1000/d"):
    os.mkdir(where)
    for name in ("system.posix_acl_access", "system.posix_acl_default",
                 "user.x"):
        for n in (5, 100, 8000):
            try:
                os.setxattr(where, name, acl(n))
                print("set", where, name, n)
            except OSError as e:
                if e.errno != errno.EOPNOTSUPP:
                    print(e, where, name, n)
    fd = os.open(where, os.O_RDONLY)
    try:
        os.setxattr(fd, "system.posix_acl_access", acl(8000))
        print("set by descriptor")
    except OSError:
        pass
try:
    os.setxattr("/tmp/d", "system.posix_acl_access", acl(1))
    print("small")
except OSError as e:
    print("small" if e.errno == errno.EOPNOTSUPP else e)
PY
    is($got, "small\n", 'no list that is larger than a few entries');
};


subtest 'whiteouts and devices made by hand' => sub {
    for my $u (qw(user root)) {
        my $got = out([ 'python3', '-c', <<'PY', $u ], user => $u);
import os, stat, sys
for where in ("/tmp", "/home/user", "/etc", "/usr/bin", "/run/lock"):
    for kind, major, minor in ((stat.S_IFCHR, 1, 1), (stat.S_IFCHR, 1, 3),
                               (stat.S_IFCHR, 5, 1), (stat.S_IFBLK, 8, 0),
                               (stat.S_IFBLK, 7, 0), (stat.S_IFBLK, 254, 0),
                               (stat.S_IFCHR, 10, 229)):
        try:
            os.mknod(where + "/n", kind | 0o666, os.makedev(major, minor))
            print("made", where, major, minor)
        except OSError:
            pass
for where in ("/tmp", "/dev/shm", "/home/user", "/etc"):
    try:
        os.mknod(where + "/w-" + sys.argv[1], stat.S_IFCHR | 0o666, 0)
    except OSError:
        continue
    try:
        os.open(where + "/w-" + sys.argv[1], os.O_RDONLY)
        print("opened", where)
    except OSError:
        pass
PY
        is($got, '', "$u: no device, and a whiteout is none either");
    }

    # none hides or shows a file of what lies below

    is(out('ls /etc/passwd /usr/bin/env && cat /etc/passwd | grep -c root:'),
       "/etc/passwd\n/usr/bin/env\n1\n", 'nothing is hidden');
    like(get($s, '/tmp/w-user')->{status}, qr/^4/, 'the file API refuses one');
    like(glob_of($s, '/tmp/w-*')->{status}, qr/^200/, 'and lists go on');
};


subtest 'links to what is not the session\'s' => sub {
    for my $u (qw(user root)) {
        my $got = out('for f in /usr/bin/su /etc/passwd /proc/1/exe'
                      . ' /proc/self/exe /dev/null /proc/version; do'
                      . ' ln $f /tmp/l 2>/dev/null && echo $f'
                      . ' && rm -f /tmp/l; done; true', user => $u);
        is($got, '', "$u: no hard link crosses");
    }

    my $got = out([ 'python3', '-c', <<'PY' ]);
import os
for f in ("/usr/bin/env", "/proc/version", "/dev/zero", "/proc/self/exe"):
    fd = os.open(f, os.O_RDONLY)
    try:
        os.link("/proc/self/fd/%d" % fd, "/tmp/by-fd", follow_symlinks=True)
        print(f)
    except OSError:
        pass
    try:
        os.close(os.open("/proc/self/fd/%d" % fd, os.O_RDWR))
        if f != "/dev/zero":
            print("reopened", f)
    except OSError:
        pass
PY
    is($got, '', 'nor by a descriptor, and none is opened anew for writing');
};


# Writing to a pipe that holds a page of a read-only file must not change it.

subtest 'pages of the host\'s files stay as they are' => sub {
    my $got = out([ 'python3', '-c', <<'PY' ]);
import ctypes, hashlib, mmap, os
libc = ctypes.CDLL(None, use_errno=True)
f = "/usr/bin/env"
before = hashlib.sha256(open(f, "rb").read()).hexdigest()
fd = os.open(f, os.O_RDONLY)
for size in (1, 4095, 4096):
    r, w = os.pipe()
    n = libc.fcntl(w, 1032)
    os.write(w, b"x" * n)           # every buffer may be merged into
    os.read(r, n)
    off = ctypes.c_longlong(0)
    libc.splice(fd, ctypes.byref(off), w, None, 1, 0)
    os.write(w, b"EVIL" * 100)
for how in ((mmap.MAP_SHARED, mmap.PROT_WRITE),
            (mmap.MAP_PRIVATE, mmap.PROT_WRITE)):
    try:
        m = mmap.mmap(fd, 4096, how[0], how[1] | mmap.PROT_READ)
        m[0:4] = b"EVIL"
    except (OSError, ValueError):
        pass
after = hashlib.sha256(open(f, "rb").read()).hexdigest()
print(before == after)
for call in (lambda: os.truncate(f, 0), lambda: os.ftruncate(fd, 0),
             lambda: os.posix_fallocate(fd, 0, 10),
             lambda: os.utime(f), lambda: os.chmod(f, 0o777),
             lambda: os.rename(f, f + "x"), lambda: os.unlink(f),
             lambda: os.copy_file_range(fd, fd, 10, 0, 4096)):
    try:
        call()
        print("changed")
    except OSError:
        pass
PY
    is($got, "True\n", 'read through a pipe, mapped, and called upon');
};


subtest 'a lease or a lock does not hold a file call up' => sub {
    put($s, 'leased', 'x' x 1000);
    run($s, 'rm -f /tmp/ready /tmp/go');

    my $job = async { run($s, [ 'python3', '-c', <<'PY' ], timeout_s => 50) };
import fcntl, os, signal, time
signal.signal(signal.SIGIO, signal.SIG_IGN)
f = os.open("leased", os.O_RDWR)
fcntl.flock(f, fcntl.LOCK_EX)
fcntl.lockf(f, fcntl.LOCK_EX)
try:
    fcntl.fcntl(f, fcntl.F_SETLEASE, fcntl.F_WRLCK)
    print("leased")
except OSError as e:
    print(e.strerror)
open("/tmp/ready", "w").close()
while not os.path.exists("/tmp/go"):
    time.sleep(0.02)
PY
    until_true(sub { get($s, '/tmp/ready')->{status} == 200 }, 20);

    for my $what ('get', 'put', 'delete') {
        my $t0 = time;
        my $res = $what eq 'get' ? get($s, 'leased')
                : $what eq 'put' ? put($s, 'leased', 'new')
                :                  del($s, 'leased');
        like($res->{status}, qr/^(?:20[014]|409|423|5\d\d|403)$/, "$what");
        cmp_ok(time - $t0, '<', within(8), 'is answered at once');
    }

    put($s, '/tmp/go', '');
    $job->get(within(30));
};


subtest 'what is hard to remove is removed with its session' => sub {
    my $v = create_ok({ manifest => { resources => { inodes => 20000 } } });

    my $r = run($v, [ 'python3', '-c', <<'PY' ], timeout_s => 60);
import os
top = os.getcwd()
# deeper than any path can say
for i in range(1500):
    os.mkdir("d" * 100)
    os.chdir("d" * 100)
open("bottom", "w").close()
os.chdir(top)
os.mkdir("many")
for i in range(1500):
    open("many/" + ("%d" % i).ljust(255, "n"), "w").close()
open("links", "w").close()
n = 0
try:
    for i in range(3000):
        os.link("links", "many/l%d" % i)
        n += 1
except OSError:
    pass
with open("sparse", "w") as f:
    try:
        f.truncate(1 << 40)
    except OSError:
        f.truncate(1 << 27)
for name in (b"\n", b"a\nb mountinfo\n1 2 3", b"\xff\xfe", b"-rf", b"\x1b[31m",
             b" ", b"\\", b"'", b'"'):
    open(name, "w").close()
os.mkdir("shut")
open("shut/in", "w").close()
os.chmod("shut", 0)
for i in range(40):
    os.symlink("loop%d" % ((i + 1) % 40), "loop%d" % i)
print("made", n)
PY
    like($r->{stdout}, qr/^made \d+$/, 'it is there') or diag($r->{stderr});
    is(glob_of($v, '*')->{status}, 200, 'a list of it is answered');

    my $t0 = time;
    like(del($v, 'dddd' , query => 'recursive=true')->{status}, qr/^4/,
         'what is not there cannot be removed');
    is(destroy($v)->{status}, 204, 'the session can be destroyed');
    cmp_ok(time - $t0, '<', within(10), 'in time');
};


subtest 'inodes and links are counted' => sub {
    my $v = create_ok({ manifest => { resources => { inodes => 1000 } } });

    for my $kind ('open(n, "w").close()', 'os.symlink("x" * 100, n)',
                  'os.symlink("x" * 4000, n)', 'os.mkdir(n)', 'os.mkfifo(n)',
                  'os.link("/tmp/one", n)', 'socket.socket(1).bind(n)',
                  'keep.append(os.open("/tmp", os.O_TMPFILE | os.O_RDWR))')
    {
        # On a disk a link costs no inode, and a file has 65,000 at most.
        my $most = $kind =~ /link\("/ && $kind !~ /symlink/ ? 66_000 : 1_200;
        my $r = run($v, [ 'python3', '-c', "import os, socket\nkeep = []\n"
            . "open('/tmp/one', 'w').close()\nos.mkdir('/tmp/k')\nn = 0\n"
            . "import resource\n"
            . "try:\n for i in range($most * 2):\n"
            . "  n = '/tmp/k/%d' % i\n  $kind\n"
            . "except OSError as e: print(e.errno, i < $most)\n"
            . "keep.clear()\n" ]);
        like($r->{stdout}, qr/^(?:28|24|31) True$/, "ENOSPC, or no descriptor"
             . " or link is left, for: $kind") or diag($r->{stderr});
        run($v, 'rm -rf /tmp/k /tmp/one');
    }

    destroy($v);
};


is(out('echo alive'), "alive\n", 'the session is well');

destroy($s);
$t->finish;
done_testing();
