#!/usr/bin/perl

# What a session can do about the rules of its manifest's "filesystem": every
# way that we know of around them is tried, as its user and as its root.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";

use Test::More;
use SandboxTest::More;
use SandboxTest::Rules;

my ($t, $host) = rules_server();


# Attacks leave little of it.

sub fill_prey {
    system('rm', '-rf', glob "$host/prey/*");
    mkdir "$host/prey/$_" or die $! for qw(sub hidden);
    host_file("prey/$_", "host $_\n") for qw(secret sub/file hidden/file);
    own(map { "prey/$_" } qw(secret sub sub/file hidden hidden/file));
}


# Every way that we know of to get at a file, or a new one by its name.

my $ATTACK = <<'PY';
import ctypes, os, sys

libc = ctypes.CDLL(None, use_errno=True)
kind, path, marker = sys.argv[1:4]
path = os.path.join('/home/user', path)
parent, name = os.path.split(path)
other = '/tmp/other.%d' % os.getpid()
AT = -100

def sys_(n, *a):
    r = libc.syscall(n, *a)
    if r < 0:
        raise OSError(ctypes.get_errno(), 'syscall %d' % n)
    return r

def read(p, **k):
    with open(p, 'rb', **k) as f:
        return f.read(1 << 16)

def b(s):
    return ctypes.c_char_p(s.encode())

def fresh(p, directory=False):
    if directory:
        os.makedirs(p, exist_ok=True)
        p += '/file'
    with open(p, 'wb') as f:
        f.write(marker.encode())

def by_fd():
    fd = os.open(path, os.O_PATH)
    for p in ('/proc/self/fd/%d', '/dev/fd/%d', '/proc/thread-self/fd/%d'):
        try:
            return read(p % fd)
        except OSError:
            pass
    return read('file', opener=lambda n, f: os.open(n, f, dir_fd=fd))

def by_dirfd():
    fd = os.open(parent, os.O_PATH)
    return read(name, opener=lambda n, f: os.open(n, f, dir_fd=fd))

def by_nofollow_fd():
    fd = os.open(path, os.O_PATH | os.O_NOFOLLOW)
    os.fchmod(fd, 0o777)

def by_root():
    return read('/proc/self/root' + path)

def by_cwd():
    os.chdir(parent)
    return read('/proc/self/cwd/' + name)

def by_other_process():
    out = b''
    for p in os.listdir('/proc'):
        if p.isdigit():
            for q in ('/root' + path, '/cwd/' + name):
                try:
                    out += read('/proc/' + p + q)
                except OSError:
                    pass
    return out

def by_link():
    os.link(path, other)
    return read(other)

def by_link_beside():
    os.link(path, path + '.link')
    return read(path + '.link')

def by_symlink():
    os.symlink(path, other)
    return read(other)

def by_rename():
    os.rename(path, path + '.away')
    return read(path + '.away')

def by_exchange():
    fresh(path + '.x')
    sys_(316, AT, b(path + '.x'), AT, b(path), 2)
    return read(path + '.x')

def by_rename_over():
    fresh(path + '.x')
    os.rename(path + '.x', path)

def by_directory_over():
    os.mkdir(path + '.d')
    os.rename(path + '.d', path)

def by_unlink():
    os.unlink(path)

def by_rmdir():
    os.rmdir(path)

def by_chmod():
    os.chmod(path, 0o777)
    return read(path)

def by_chown():
    os.chown(path, os.getuid(), os.getgid())
    return read(path)

def by_acl():
    os.setxattr(path, 'user.x', b'y')

def by_write():
    fresh(path)

def by_append():
    with open(path, 'ab') as f:
        f.write(marker.encode())

def by_create_below():
    fresh(path + '/file')

def by_truncate():
    os.truncate(path, 3)

def by_writable_map():
    import mmap
    fd = os.open(path, os.O_RDWR)
    mmap.mmap(fd, 1)[0] = 33

def by_copy_range():
    i = os.open(path, os.O_RDONLY)
    o = os.open(other, os.O_RDWR | os.O_CREAT)
    os.copy_file_range(i, o, 1 << 16)
    return read(other)

def by_list():
    return ' '.join(os.listdir(path)).encode()

def by_umount():
    for flag in (0, 2, 8):
        if libc.umount2(b(path), flag) == 0:
            return read(path)
    raise OSError(ctypes.get_errno(), 'umount2')

def by_umount_parent():
    p = parent
    while p != '/':
        libc.umount2(b(p), 2)
        p = os.path.dirname(p)
    return read(path)

def by_bind():
    os.makedirs(other + '.d', exist_ok=True)
    if libc.mount(b(parent), b(other + '.d'), None, 4096, None) != 0:
        raise OSError(ctypes.get_errno(), 'mount')
    return read(other + '.d/' + name)

def by_remount():
    if libc.mount(None, b(path), None, 32 | 4096, None) != 0:
        raise OSError(ctypes.get_errno(), 'mount')
    fresh(path)

def by_open_tree():
    fd = sys_(428, AT, b(parent), 1)
    return read(name, opener=lambda n, f: os.open(n, f, dir_fd=fd))

def by_open_tree_plain():
    fd = sys_(428, AT, b(parent), 0)
    return read(name, opener=lambda n, f: os.open(n, f, dir_fd=fd))

def by_setattr():
    attr = (ctypes.c_uint64 * 4)(0, 1, 0, 0)
    sys_(442, AT, b(path), 0x8000, attr, 32)
    fresh(path)

def by_new_namespace():
    if libc.unshare(0x10020000) != 0:
        raise OSError(ctypes.get_errno(), 'unshare')
    libc.umount2(b(path), 2)
    return read(path)

def by_handle():
    buf = ctypes.create_string_buffer(b'\x80\0\0\0' + bytes(200))
    mnt = ctypes.c_int()
    sys_(303, AT, b(path), buf, ctypes.byref(mnt), 0)
    fd = sys_(304, os.open(parent, os.O_RDONLY), buf, 0)
    return os.read(fd, 1 << 16)

def by_chroot():
    os.chroot(parent)
    return read('/' + name)

def parents():
    p = parent
    while p != '/':
        yield p
        p = os.path.dirname(p)

def by_moved_parent():
    for p in parents():
        try:
            os.rename(p, p + '.moved')
        except OSError:
            continue
        try:
            return read(path.replace(p, p + '.moved', 1))
        except OSError:
            pass
        finally:
            os.makedirs(parent, exist_ok=True)
            fresh(path)

def by_exchanged_parent():
    for p in parents():
        q = p + '.copy'
        try:
            os.makedirs(q + path[len(p):-len(name)], exist_ok=True)
            fresh(q + path[len(p):])
            sys_(316, AT, b(q), AT, b(p), 2)
        except OSError:
            pass

def by_removed_parent():
    import shutil
    shutil.rmtree(parent, ignore_errors=True)
    os.makedirs(parent, exist_ok=True)
    fresh(path)

ways = [f for n, f in sorted(globals().items()) if n.startswith('by_')]

for way in ways:
    got = b''
    try:
        got = way() or b''
    except (OSError, ValueError, RecursionError):
        pass
    if kind == 'read' and marker.encode() in got:
        print('READ', way.__name__)
    if kind == 'write':
        for p in (path, path + '/file'):
            try:
                if marker.encode() in read(p):
                    print('WRITTEN', way.__name__)
            except OSError:
                pass
        if not os.path.lexists(path):
            print('GONE', way.__name__)
            break
    if kind == 'name':
        for p in (path, path + '/file'):
            try:
                read(p)
                print('MADE', way.__name__)
            except OSError:
                pass
        try:
            os.listdir(path)
            print('LISTED', way.__name__)
        except OSError:
            pass
print('tried', len(ways))
PY

sub attack {
    my ($id, $kind, $path, $marker) = @_;

    local $Test::Builder::Level = $Test::Builder::Level + 1;

    for my $user (qw(user root)) {
        my $r = run($id, [ 'python3', '-c', $ATTACK, $kind, $path, $marker ],
                    user => $user);
        like($r->{stdout}, qr/^tried 3\d\n\z/,
             "$user, $kind of $path by every way")
            or diag($r->{stderr});
    }
}

subtest 'no way around deny_read' => sub {
    fill_prey();

    my $s = session({ binds => [ 'models', 'prey' ], deny_read => [
        '/etc/services', '/usr/share/perl5', '/mnt/models/secret',
        '/mnt/models/sub/deep', '/mnt/prey/secret', '/mnt/prey/hidden',
        'a/b/secret', 'a/b/dir/', '/opt/x/y', '/tmp/t/u', '/srv/q' ] });

    attack($s, 'read', '/etc/services', 'ftp');
    attack($s, 'read', '/mnt/models/secret', 'host secret');
    attack($s, 'read', '/mnt/models/sub/deep', 'file');
    attack($s, 'read', '/mnt/prey/secret', 'host secret');
    attack($s, 'read', '/mnt/prey/hidden', 'file');
    attack($s, 'read', '/usr/share/perl5', '.pm');

    attack($s, 'name', $_, 'made')
        for qw(/etc/services a/b/secret a/b/dir /opt/x/y /tmp/t/u /srv/q
               /mnt/prey/secret);
    destroy($s);
};


subtest 'no way around deny_write' => sub {
    fill_prey();

    my $s = session({ binds => [ 'models', 'prey' ], deny_write => [
        '/etc/services', '/etc/perl', '/mnt/prey/secret', '/mnt/prey/sub',
        'a/b/file', 'a/b/dir/', '/opt/x/y', '/tmp/t/u', '/srv/q/',
        '/var/lib/z', '/var/run/k/l' ] });

    attack($s, 'write', $_, 'changed')
        for qw(/etc/services /etc/perl /mnt/prey/secret /mnt/prey/sub
               a/b/file a/b/dir /opt/x/y /tmp/t/u /srv/q /var/lib/z
               /run/k/l /var/run/k/l);

    destroy($s);
};


subtest 'the attack finds what is not defended' => sub {
    fill_prey();

    my $s = session({ binds => [ 'prey' ] });

    run($s, 'mkdir -p a/b && echo marker > a/b/file');

    my $r = run($s, [ 'python3', '-c', $ATTACK, 'read', 'a/b/file',
                      'marker' ]);
    cmp_ok(scalar(() = $r->{stdout} =~ /^READ /mg), '>=', 10, 'to read');

    for my $way (qw(by_link_beside by_root by_cwd by_fd by_rename
                    by_exchange by_chmod by_moved_parent)) {
        like($r->{stdout}, qr/^READ $way$/m, "read $way");
    }

    run($s, 'rm -rf a; mkdir -p a/b && echo old > a/b/file', user => 'root');
    $r = run($s, [ 'python3', '-c', $ATTACK, 'write', 'a/b/file',
                   'changed' ]);
    like($r->{stdout}, qr/^WRITTEN /m, 'to write');

    run($s, 'rm -rf a*; mkdir -p a/b', user => 'root');
    $r = run($s, [ 'python3', '-c', $ATTACK, 'name', 'a/b/file', 'made' ]);
    like($r->{stdout}, qr/^MADE by_write$/m, 'to make');
    destroy($s);
};


subtest 'parents keep their names, and nothing else does' => sub {
    my $s = session({ deny_read => [ 'proj/deep/.env' ],
                      deny_write => [ 'repo/.git/' ] });

    for my $user (qw(user root)) {
        my $r = run($s, <<'SH', user => $user);
for d in proj/deep proj repo /home/user /home; do
    mv $d $d.moved 2> /dev/null && echo "moved $d"
    rmdir $d 2> /dev/null && echo "removed $d"
done
mkdir -p proj/deep repo 2> /dev/null
echo new > proj/deep/.env && echo written
echo new > repo/.git/config && echo written
ls -A
SH
        is($r->{stdout}, "proj\nrepo\n", "$user moves none of them");
    }

    my $r = run($s, <<'SH');
set -e
mkdir src; echo 1 > src/a; mv src/a src/b; mv src lib; mkdir -p x/y
mv lib x/y/; mv x z; ln z/y/lib/b hard; mv hard proj/; rm -r z
echo 2 > proj/deep/f; mv proj/deep/f proj/deep/g; ln proj/deep/g proj/deep/h
mkdir proj/src; mv proj/src proj/lib; ls -A . proj proj/deep
SH
    is($r->{stdout}, ".:\nproj\nrepo\n\nproj:\ndeep\nhard\nlib\n\n"
                     . "proj/deep:\n.env\ng\nh\n",
       'files and directories beside them are moved as ever')
        or diag($r->{stderr});

    is(put($s, 'proj/deep/new', 'x')->{status}, 201, 'and uploaded');
    is(del($s, 'proj/deep/new')->{status}, 204, 'and deleted');

    my $n = () = out($s, 'cat /proc/self/mountinfo') =~ m{ /home}g;
    cmp_ok($n, '<=', 14, 'a few mounts are all it takes');
    destroy($s);
};


subtest 'links on the way' => sub {
    my $s = session({ deny_write => [ '/var/run/held/x', '/bin/x-none' ],
                      deny_read => [ '/var/lock/hidden' ],
                      writable => [ '/lib' ] });

    for my $user (qw(user root)) {
        my $r = run($s, <<'SH', user => $user);
for l in /var/run /var/lock /bin; do
    rm -f $l; mv $l $l.old; ln -sfn /tmp $l; [ -L $l ] || echo "lost $l"
done 2> /dev/null
mv /var /var2 2> /dev/null && echo moved
for f in /var/run/held/x /var/lock/hidden /run/held/x /run/lock/hidden; do
    echo new > $f && echo "written $f"
done 2> /dev/null
cat /run/held/x
cat /run/lock/hidden 2> /dev/null && echo read
readlink /var/run
SH
        is($r->{stdout}, "/run\n", "$user: a link keeps its name");
    }

    destroy($s);
};


host_is_as_it_was();


$t->finish;
done_testing();
