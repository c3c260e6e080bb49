#!/usr/bin/perl

# The manifest's "filesystem": what may be written and read besides the usual,
# and the host's directories that an operator offers.  All of it is looked at
# as the session's user, as its root and through the API's files; and what a
# session can do about it is tried.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";

use File::Temp qw(tempdir);
use Test::More;
use SandboxTest::More;

my $OWNER = 12345;

# the session's root has no id there, and so makes nothing
my $RW_BIND = { user => 'rw', root => 'r' };

my $host = tempdir('sbxhostXXXXXX', DIR => '/tmp', CLEANUP => 1);
chmod 0755, $host;

for my $dir (qw(ro ro/sub ro/sub/deep ro/hidden rw rw/sub rw/hidden mine
                theirs gone turned prey))
{
    mkdir "$host/$dir" or die $!;
}

host_file("ro/$_", "host $_\n") for qw(readme secret sub/deep/file
                                       hidden/file);
host_file("rw/$_", "host $_\n") for qw(readme secret sub/file hidden/file);
host_file("$_/file", "$_\n") for qw(mine theirs turned);
host_file('rw/foreign', "host foreign\n");
host_file('rw/foreign-secret', "host foreign-secret\n");
symlink '/etc/hostname', "$host/rw/link" or die $!;
own(qw(rw rw/readme rw/secret rw/sub rw/sub/file rw/hidden rw/hidden/file
       turned prey));
chmod 0600, "$host/rw/foreign-secret" or die $!;

my $t = server(http => <<"CONF");
    sandbox_bind models $host/ro ro;
    sandbox_bind work   $host/rw rw;
    sandbox_bind mine   $host/mine ro tenant=acme-corp tenant=another;
    sandbox_bind theirs $host/theirs ro tenant=other-corp;
    sandbox_bind gone   $host/gone ro;
    sandbox_bind turned $host/turned rw;
    sandbox_bind prey   $host/prey rw;
CONF


sub host_file {
    my ($name, $text) = @_;

    open my $f, '>', "$host/$name" or die "$name: $!";
    print $f $text;
    close $f;
}

sub own { chown $OWNER, $OWNER, map { "$host/$_" } @_ or die $! }

# Attacks leave little of it.

sub fill_prey {
    system('rm', '-rf', glob "$host/prey/*");
    mkdir "$host/prey/$_" or die $! for qw(sub hidden);
    host_file("prey/$_", "host $_\n") for qw(secret sub/file hidden/file);
    own(map { "prey/$_" } qw(secret sub sub/file hidden hidden/file));
}

sub ask {
    my ($fs, %more) = @_;

    return create({ %more, manifest => { filesystem => $fs } });
}

sub session {
    my ($fs, %more) = @_;

    return create_ok({ %more, manifest => { filesystem => $fs } });
}

sub refused {
    my ($name, $detail, $fs, %more) = @_;

    local $Test::Builder::Level = $Test::Builder::Level + 1;

    my $res = ask($fs, %more);
    destroy($res->{json}{session_id}) if $res->{status} == 201;

    return is_problem($res, 400, 'E2002', $name, $detail);
}

sub out { return run(@_)->{stdout} }


# "rw", "r", "w" or "": what can be done with a file, or in a directory.

my $ACCESS = <<'SH';
for p in "$@"; do
    a=
    if [ -d "$p" ]; then
        ls "$p" > /dev/null 2>&1 && a=r
        n="$p/.new.$$"
        (: > "$n") 2> /dev/null && a=${a}w && rm -f "$n"
    else
        cat "$p" > /dev/null 2>&1 && a=r
        (: >> "$p") 2> /dev/null && a=${a}w
    fi
    echo "$p=$a"
done
SH

sub access_is {
    my ($id, $want, $name) = @_;

    local $Test::Builder::Level = $Test::Builder::Level + 1;

    for my $user (qw(user root)) {
        my @paths = sort keys %$want;
        my %w = map { my $v = $want->{$_};
                      ($_ => ref $v ? $v->{$user} : $v) } @paths;
        my %got = map { /^(.*)=(.*)$/ } split /\n/,
                  out($id, [ 'sh', '-c', $ACCESS, 'sh', @paths ],
                      user => $user);

        is_deeply(\%got, \%w, "$name ($user)");
    }
}

sub walk {
    my ($dir, $pattern) = @_;

    return join '', sort split /^/m,
           `find \Q$dir\E -printf '%p %y %m %U %G %s %T@ %n %i\n' 2>/dev/null`;
}


# What must not have changed when all of it is over.

my %before = (host => walk($host), usr => walk('/usr'), etc => walk('/etc'),
              mounts => join("\n", mounts()));


subtest 'what cannot be a rule is refused, by the name of its entry' => sub {
    my @bad = (
        [ 'nothing', '' ], [ 'the root', '/' ], [ 'the root', '//./' ],
        [ 'the parent', '..' ], [ 'a way up', 'a/../b' ],
        [ 'a way up at the end', '/home/user/..' ],
        [ 'a process', '/proc/self' ], [ '/proc', '/proc' ],
        [ '/proc otherwise', '//proc/./x' ], [ '/sys', '/sys/' ],
        [ '/dev', '/dev/shm' ], [ 'a line', "a\nb" ], [ 'a NUL', "a\0b" ],
        [ 'a delete', "a\x7f" ], [ 'a long name', 'n' x 256 ],
        [ 'a long path', '/' . 'a/' x 2048 ],
        [ 'what a link makes the kernel\'s', '/etc/mtab' ]
    );

    for my $list (qw(writable deny_write deny_read)) {
        for my $bad (@bad) {
            refused("$list: $bad->[0]", qr{^/manifest/filesystem/$list/1: },
                    { $list => [ 'fine', $bad->[1] ] });
        }
    }

    for my $name ('', 'Models', '.x', '-x', '../models', 'models/', "models\0",
                  'n' x 65, 'models ')
    {
        refused("binds: \"$name\"", qr{^/manifest/filesystem/binds/0: },
                { binds => [ $name ] });
    }

    refused('a bind twice', qr{binds/1: is asked for twice},
            { binds => [ 'models', 'models' ] });

    for my $list (qw(binds writable deny_write deny_read)) {
        my $res = ask({ $list => [ map { "x$_" } 1 .. 65 ] });
        is($res->{status}, 400, "65 entries in $list");
    }

    my $res = ask({ deny_read => [ map { "$_/" . ('n' x 200 . '/') x 15 }
                                   1 .. 60 ] });
    is_problem($res, 400, 'E2002', 'more than 128 KB', qr{131072 bytes});

    $res = ask({ deny_write => [ map { "$_" . '/a' x 900 } 1 .. 15 ] });
    is_problem($res, 400, 'E2002', 'more names than can be mounted',
               qr{manifest/filesystem: .* more than 8192 names});

    my $most = session({ deny_read => [ map { "r$_" } 1 .. 64 ],
                         deny_write => [ map { "w$_" } 1 .. 64 ],
                         writable => [ map { "/opt/o$_" } 1 .. 64 ] });
    access_is($most, { 'r1' => '', 'r64' => '', 'w1' => 'r', 'w64' => 'r',
                       '/opt/o1' => 'rw', '/opt/o64' => 'rw' },
              'as many as there may be');
    destroy($most);
};


subtest 'deny_read' => sub {
    my @denied = qw(
        /home/user/missing /home/user/missing-dir/ /home/user/.aws/credentials
        /tmp/missing /srv/a/b/c /opt/missing/deep /run/missing
        /etc/services /etc/passwd /etc/perl /usr/bin/env /usr/share/perl5
        /mnt/models/secret /mnt/models/hidden /mnt/work/secret
        /mnt/work/hidden
    );

    # by a link: the path and what it leads to

    my %linked = ('/var/run/linked' => '/run/linked',
                  '/bin/true' => '/usr/bin/true');

    my $s = session({ binds => [ 'models', 'work' ],
                      deny_read => [ @denied, 'relative', sort keys %linked ] });

    my %all = map { s{/$}{}r => '' } @denied, %linked,
                                     '/home/user/relative';
    access_is($s, \%all, 'nothing is read or written');
    access_is($s, { '/home/user' => 'rw', '/tmp' => 'rw',
                    '/home/user/.aws' => 'rw',
                    '/etc/protocols' => 'r',
                    '/etc/hosts' => { user => 'r', root => 'rw' },
                    '/usr/bin/cat' => 'r', '/mnt/models/readme' => 'r',
                    '/mnt/work/readme' => 'rw' },
              'what lies beside it is as ever');

    for my $path (sort keys %all) {
        is_problem(get($s, $path), 403, 'E4003', "GET $path");
        is_problem(put($s, $path, 'x'), 403, 'E4003', "PUT $path")
            if $path !~ /-dir|perl5?$|hidden$/;
        is_problem(del($s, $path, query => 'recursive=1'), 403, 'E4003',
                   "DELETE $path");
    }

    for my $dir (qw(missing-dir /usr/share/perl5 /mnt/models/hidden
                    /mnt/work/hidden /etc/perl))
    {
        is_problem(get($s, "$dir/x"), 403, 'E4003', "GET below $dir");
        is_problem(put($s, "$dir/x", 'x'), 403, 'E4003', "PUT below $dir");
    }

    my $found = glob_of($s, '*')->{json};
    like(json_of($found), qr{"[^"]*missing-dir"},
         'a list shows that there is a name');
    unlike(json_of(glob_of($s, '/mnt/*/hidden/*')->{json}), qr{hidden/file},
           'and nothing in it');

    is(run($s, '/bin/true')->{exit_code}, 126, 'nor is it executed');

    for my $user (qw(user root)) {
        is(out($s, 'stat -c "%a %u %s" missing missing-dir .aws/credentials'
                   . ' /etc/passwd', user => $user),
           "0 65534 0\n0 65534 40\n0 65534 0\n0 65534 0\n",
           "$user sees somebody else's and no size");
    }

    destroy($s);
};


subtest 'deny_write' => sub {
    my $s = session({ binds => [ 'models', 'work' ], deny_write => [
        '.git/', 'file', '/srv/conf/x.json', '/etc/services', '/etc/perl',
        '/var/log', '/tmp/held/', '/mnt/work/secret', '/mnt/work/sub',
        '/mnt/models/readme', '/usr/share', '/var/run/lock' ] });

    my %want = map { $_ => 'r' } qw(
        /home/user/.git /home/user/file /srv/conf/x.json /etc/services
        /etc/perl /var/log /tmp/held /mnt/work/secret /mnt/work/sub
        /mnt/work/sub/file /mnt/models/readme /usr/share /run/lock
        /var/run/lock );

    access_is($s, \%want, 'is read and not written');
    access_is($s, { '/home/user' => 'rw', '/srv/conf' => 'rw',
                    '/tmp' => 'rw', '/mnt/work' => $RW_BIND,
                    '/mnt/work/readme' => 'rw',
                    '/var' => { user => 'r', root => 'rw' } },
              'what lies beside it is as ever');

    is(out($s, 'stat -c "%F %a %U" .git file'),
       "directory 755 user\nregular empty file 444 user\n",
       'what was not there: a directory by its "/", else an empty file');

    for my $user (qw(user root)) {
        my $r = run($s, <<'SH', user => $user);
for p in .git file /etc/services /mnt/work/secret /mnt/work/sub; do
    chmod 777 $p; chown 1000 $p; touch -d 2001-01-01 $p; rm -rf $p
    mv $p $p.moved; mv /tmp/new $p; ln -f /etc/hostname $p
    rmdir $p; mkdir $p/x; cp /etc/hostname $p; ln -s / $p/l
    truncate -s 5 $p; setfattr -n user.x -v y $p
done
ls -d .git file /etc/services /mnt/work/secret /mnt/work/sub | wc -l
ls -A .git | wc -l; cat file; cat /mnt/work/secret
SH
        is($r->{stdout}, "5\n0\nhost secret\n",
           "$user cannot change, move or replace it");
    }

    for my $path (qw(file /etc/services /mnt/work/secret .git/x /var/log/x
                     /mnt/work/sub/file))
    {
        is_problem(put($s, $path, 'x'), 403, 'E4003', "PUT $path");
        is_problem(del($s, $path), 403, 'E4003', "DELETE $path")
            if $path !~ /x$/;
    }

    is(get($s, '/mnt/work/secret')->{body}, "host secret\n", 'GET reads it');

    destroy($s);
};


subtest 'writable' => sub {
    my $s = session({ binds => [ 'models' ], writable => [
        '/opt/a/b', '/var/lib', '/usr/local', '/usr/share/perl5/new',
        'sub/dir', '/srv', '/var/run/dir', '/root' ] })
        if ask({ writable => [ '/usr/share/perl5/new' ] })->{status} == 201;

    ok(!$s, 'a new directory in a read-only place is not made');
    refused('a directory that is not there, in a read-only place',
            qr{writable/0: .*read-only}, { writable => [ '/usr/x-none' ] });
    refused('a file', qr{writable/0: .*directory},
            { writable => [ '/etc/passwd' ] });
    refused('below a file', qr{writable/0: .*directory},
            { writable => [ '/etc/passwd/x' ] });
    refused('in a directory of the host', qr{writable/0: .*host},
            { binds => [ 'models' ], writable => [ '/mnt/models/sub' ] });

    $s = session({ writable => [ '/opt/a/b', '/var/lib', '/usr/local',
                                 '/usr/share/perl5', 'sub/dir', '/srv',
                                 '/var/run/dir', '/lib', '/tmp/x/y' ] });

    access_is($s, { map { $_ => 'rw' } qw(
        /opt/a/b /var/lib /usr/local /usr/share/perl5 /home/user/sub/dir
        /home/user/sub /srv /run/dir /usr/lib /lib /tmp/x /tmp/x/y) },
              'can be written');
    access_is($s, { '/opt' => { user => 'r', root => 'rw' },
                    '/opt/a' => { user => 'r', root => 'rw' },
                    '/usr/bin' => 'r', '/usr' => 'r', '/usr/share' => 'r' },
              'what is above it cannot');

    my ($name) = grep { -f } glob '/usr/share/perl5/*.pm';
    my $text = SandboxTest::slurp($name);
    is(out($s, [ 'cat', $name ]), $text, 'what was there is there');
    is(out($s, "rm $name && echo mine > $name && cat $name"), "mine\n",
       'and can be replaced');
    is(SandboxTest::slurp($name), $text, 'for the session alone');

    my $two = session({ writable => [ '/usr/share/perl5' ] });
    is(out($two, [ 'cat', $name ]), $text, 'another sees none of it');
    destroy($two);

    is(put($s, '/opt/a/b/new', 'x')->{status}, 201, 'an upload');
    is(put($s, '/usr/local/new', 'x')->{status}, 201, 'and in /usr');

    my ($secret) = split /\n/, `find /usr/lib /usr/share/perl5 -xdev -type f \\
                                     ! -perm -o=r -size -2000k 2>/dev/null`;

  SKIP: {
        skip "no file below this host's /usr/lib is root's alone", 2
            if !defined $secret;

        for my $user (qw(user root)) {
            is(out($s, "cat $secret; mv $secret $secret.x;"
                       . " chmod 777 $secret.x; cp $secret.x /tmp/c;"
                       . ' cat /tmp/c', user => $user), '',
               "$user reads no file of the host's root");
        }
    }

    my $disk = create_ok({ manifest => {
        resources => { disk => '4MB', max_file_size => '64MB' },
        filesystem => { writable => [ '/usr/local' ] } } });
    my $r = run($disk, 'head -c 8000000 /dev/zero > /usr/local/big');
    like($r->{stderr}, qr/No space left/, "the session's disk limit counts");
    destroy($disk);
    destroy($s);
};


subtest 'nested and overlapping rules: the stricter wins' => sub {
    my $s = session({
        binds => [ 'work' ],
        writable => [ '/opt/w', '/opt/w/ro/rw', '/opt/hidden/rw', '/srv/x',
                      '/usr/local', '/data/same', '/var/lib/both' ],
        deny_write => [ '/opt/w/ro/', '/opt/w/ro/secret', '/srv/x',
                        '/usr/local/share', '/usr', '/app/d/', '/app/d/e/f',
                        '/data/same', '/var/lib/both', '/mnt/work/sub',
                        'tree/' ],
        deny_read => [ '/opt/hidden', '/opt/w/ro/secret', '/usr/local/bin',
                       '/app/d/e', '/var/lib/both', '/mnt/work/sub/file',
                       'tree/in/', '/usr/share/perl5/CPAN' ] });

    access_is($s, {
        '/opt/w' => 'rw', '/opt/w/ro' => 'r', '/opt/w/ro/rw' => 'r',
        '/opt/w/ro/secret' => '', '/opt/hidden' => '',
        '/opt/hidden/rw' => '', '/srv/x' => 'r', '/usr/local' => 'r',
        '/usr/local/share' => 'r', '/usr/local/bin' => '', '/usr' => 'r',
        '/app' => 'rw', '/app/d' => 'r', '/app/d/e' => '',
        '/data/same' => 'r', '/var/lib/both' => '', '/mnt/work' => $RW_BIND,
        '/mnt/work/sub' => 'r', '/mnt/work/sub/file' => '',
        '/home/user/tree' => 'r', '/home/user/tree/in' => '',
    }, 'each by the strictest rule');
    destroy($s);

    # what is mounted below goes with it

    $s = session({ binds => [ 'models', 'work' ], writable => [ '/usr/local' ],
                   deny_write => [ '/mnt', '/usr', '/var', '/home' ] });
    access_is($s, { '/mnt' => 'r', '/mnt/work' => 'r',
                    '/mnt/work/readme' => 'r', '/mnt/models/readme' => 'r',
                    '/usr/local' => 'r', '/var/tmp' => 'r',
                    '/home/user' => 'r', '/tmp' => 'rw' },
              'a rule above mounts');
    destroy($s);

    # the order in the manifest is none

    my @rules = ('a', 'a/b/', 'a/b/c', 'a/b/c/d');

    for my $list ([ @rules ], [ reverse @rules ]) {
        $s = session({ deny_write => [ $list->[0] eq 'a' ? 'a/' : @$list[0],
                                       map { $_ eq 'a' ? 'a/' : $_ } @$list ],
                       deny_read => [ 'a/b/c' ] });
        access_is($s, { '/home/user/a' => 'r',
                        '/home/user' => 'rw' }, "@$list");
        destroy($s);
    }
};


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


subtest 'a directory of the host, read-only' => sub {
    my $s = session({ binds => [ 'models', 'mine' ] });
    my $two = session({ binds => [ 'models' ] }, tenant_id => 'other-corp');

    is(out($s, 'cat /mnt/models/readme /mnt/models/sub/deep/file'),
       "host readme\nhost sub/deep/file\n", 'is read');
    is(get($s, '/mnt/models/readme')->{body}, "host readme\n", 'and by GET');
    is_problem(put($s, '/mnt/models/x', 'x'), 403, 'E4003', 'PUT');
    is_problem(del($s, '/mnt/models/readme'), 403, 'E4003', 'DELETE');
    access_is($s, { '/mnt/models' => 'r', '/mnt/models/readme' => 'r',
                    '/mnt/models/sub/deep' => 'r', '/mnt/mine' => 'r' },
              'and not written');
    is(out($s, 'ls /mnt'), "mine\nmodels\n", 'nothing else is there');

    my ($line) = grep { m{ /mnt/models } } split /\n/,
                 out($s, 'cat /proc/self/mountinfo');
    like($line, qr{ ro,nosuid,nodev}, 'nosuid, nodev');
    unlike($line, qr{\Q$host\E}, 'its name on the host is not told');

    my $watch = <<'PY';
import ctypes, fcntl, os, time
libc = ctypes.CDLL(None, use_errno=True)
fd = libc.inotify_init1(os.O_NONBLOCK)
lock = open('/mnt/models/readme')
assert libc.inotify_add_watch(fd, b'/mnt/models', 0xfff) != -1
fcntl.flock(lock, fcntl.LOCK_EX)
open('/tmp/ready', 'w').close()
while not os.path.exists('/tmp/go'):
    time.sleep(0.01)
def events():
    try:
        return len(os.read(fd, 65536))
    except BlockingIOError:
        return 0
print('others', events())
open('/mnt/models/secret', 'rb').close()
print('own', events() > 0)
PY
    my $job = async { run($s, [ 'python3', '-c', $watch ]) };
    ok(until_true(sub { get($s, '/tmp/ready')->{status} == 200 }, 10),
       'one session watches and locks');
    is(out($two, [ 'python3', '-c', "import fcntl\n"
                   . "f = open('/mnt/models/readme')\n"
                   . "fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)\n"
                   . "print(f.read(), end='')" ]), "host readme\n",
       'another locks the same');
    put($s, '/tmp/go', '');
    is($job->get(20)->{stdout}, "others 0\nown True\n",
       'and neither is told of the other');

    destroy($_) for $s, $two;
};


subtest 'a directory of the host, read-write' => sub {
    my $s = session({ binds => [ 'work' ] });

    access_is($s, { '/mnt/work' => $RW_BIND, '/mnt/work/readme' => 'rw',
                    '/mnt/work/sub' => $RW_BIND,
                    '/mnt/work/foreign' => 'r',
                    '/mnt/work/foreign-secret' => '' },
              'what is its owner\'s is the user\'s, what is not is nobody\'s');
    is(out($s, 'stat -c "%U %G" /mnt/work /mnt/work/readme'
               . ' /mnt/work/foreign'),
       "user user\nuser user\nnobody nogroup\n", 'by its owners');

    is(run($s, 'cd /mnt/work && echo made > new && mkdir dir && mv new dir/'
               . ' && cp /bin/bash dir/suid && chmod 6755 dir/suid')
       ->{exit_code}, 0, 'files are made there');
    is(put($s, '/mnt/work/up', 'loaded')->{status}, 201, 'and uploaded');

    for my $name (qw(dir dir/new up)) {
        my @st = stat "$host/rw/$name";
        is("$st[4] $st[5]", "$OWNER $OWNER", "on the host $name is the"
                                             . ' owner\'s');
    }

    is(out($s, '/mnt/work/dir/suid -p -c "id -u" 2>&1'), "1000\n",
       'a set-user-id file means nothing in a session');

    my $r = run($s, 'cd /mnt/work; touch by-root && echo made;'
                    . ' chown 0:0 readme && echo given;'
                    . ' chown 1000:1000 foreign && echo taken;'
                    . ' mknod node c 1 3 && echo node; cat foreign-secret',
                user => 'root');
    is($r->{stdout}, '', "the session's root has no id there");

    like(run($s, 'cat /mnt/work/link; echo x > /mnt/work/link')->{stdout},
         qr/^sandbox$/m, 'a link leads into the session, not to the host');
    run($s, 'ln -s /etc/shadow /mnt/work/evil; ln -s ../mine /mnt/work/up2');
    isnt(run($s, 'cat /mnt/work/up2/file')->{exit_code}, 0,
         'nor does a relative one');

    my ($line) = grep { m{ /mnt/work } } split /\n/,
                 out($s, 'cat /proc/self/mountinfo');
    like($line, qr{ rw,nosuid,nodev}, 'nosuid, nodev');

    my $big = create_ok({ manifest => {
        resources => { max_file_size => '1MB' },
        filesystem => { binds => [ 'work' ] } } });
    run($big, 'head -c 3000000 /dev/zero > /mnt/work/big');
    is(-s "$host/rw/big", 1 << 20, 'max_file_size holds');

    is(out($big, 'cat /mnt/work/dir/new'), "made\n",
       'another session sees what was made');
    is(run($big, 'rm -rf /mnt/work/dir /mnt/work/up /mnt/work/big'
                 . ' /mnt/work/evil /mnt/work/up2')->{exit_code}, 0,
       'and may remove it');

    destroy($_) for $s, $big;
};


subtest 'who is offered what' => sub {
    my @texts = map { (refuse_text({ binds => [ $_ ] })) } qw(theirs nothing);

    is($texts[0], $texts[1],
       "another tenant's and one that is not there: the same words");
    like($texts[0], qr{^/manifest/filesystem/binds/0: }, 'naming the entry');

    my $s = session({ binds => [ 'theirs' ] }, tenant_id => 'other-corp');
    is(out($s, 'cat /mnt/theirs/file'), "theirs\n", 'its own tenant has it');
    destroy($s);

    $s = session({ binds => [ 'mine' ] }, tenant_id => 'another');
    is(out($s, 'cat /mnt/mine/file'), "mine\n", 'one of two tenants');
    destroy($s);

    refused('not a third one', qr{binds/0}, { binds => [ 'mine' ] },
            tenant_id => 'other-corp');
};

sub refuse_text { return ask(@_)->{json}{detail} }


subtest 'a directory that is no longer what it was' => sub {
    my $list = sub { join ' ', sort glob "$SandboxTest::More::PREFIX/sandbox/"
                                         . 'sessions/*' };
    my @was = ($list->(), join("\n", cgroup_dirs()), join("\n", mounts()));

    rmdir "$host/gone" or die $!;
    refused('gone', qr{binds/0: .*gone}, { binds => [ 'gone' ] });
    symlink '/etc', "$host/gone" or die $!;
    refused('a link in its place', qr{binds/0: .*link},
            { binds => [ 'gone' ] });
    unlink "$host/gone";
    host_file('gone', 'x');
    refused('a file in its place', qr{binds/0: }, { binds => [ 'gone' ] });
    unlink "$host/gone";
    mkdir "$host/gone" or die $!;

    for my $ids ([ 0, $OWNER ], [ $OWNER, 0 ]) {
        chown @$ids, "$host/turned" or die $!;
        refused("rw, of @$ids", qr{binds/0: .*root},
                { binds => [ 'turned' ] });
    }

    own('turned');
    my $s = session({ binds => [ 'turned', 'gone' ] });
    is(out($s, 'cat /mnt/turned/file; ls /mnt/gone'), "turned\n",
       'and back as it was');
    destroy($s);

    refused('not there in a directory of the host',
            qr{deny_read/0: .*host},
            { binds => [ 'work' ], deny_read => [ '/mnt/work/none' ] });

    ok(until_true(sub {
        join("\0", $list->(), join("\n", cgroup_dirs()),
             join("\n", mounts()))
        eq join("\0", @was)
    }, 10), 'what was refused leaves nothing');
};


subtest 'the rules outlive the broker' => sub {
    my $s = session({ binds => [ 'models' ], deny_read => [ 'x/secret' ],
                      deny_write => [ '/mnt/models' ] });
    my $old = $t->broker;

    kill 'KILL', $old;
    ok(until_true(sub { my $b = $t->broker; $b && $b != $old }, 20),
       'another broker is there');
    access_is($s, { '/home/user/x/secret' => '', '/mnt/models' => 'r' },
              'a session keeps its rules');

    my $new = session({ binds => [ 'mine' ] });
    is(out($new, 'cat /mnt/mine/file'), "mine\n",
       'and the new broker knows what is offered');
    destroy($_) for $s, $new;
};


subtest 'the host is as it was' => sub {
    # times of what was written through the read-write directory, and of what
    # was taken away and put back, are not

    my $plain = sub {
        join '', map { s/ \d+\.\d+ (?=\d+ \d+$)/ /r }
                 grep { !m{^\Q$host\E(?:/rw|/gone|/turned|/prey| )} }
                 split /^/m, $_[0];
    };

    is($plain->(walk($host)), $plain->($before{host}), 'what is offered');
    is(join(' ', sort map { s{.*/}{}r } glob "$host/rw/{,.}*"),
       '. .. foreign foreign-secret hidden link readme secret sub',
       'the read-write one');
    is(walk('/usr'), $before{usr}, '/usr');
    is(walk('/etc'), $before{etc}, '/etc');
    is(join("\n", mounts()), $before{mounts}, 'mounts');
};


subtest 'a reload changes what is offered to new sessions' => sub {
    my $s = session({ binds => [ 'models' ] });

    my $conf = SandboxTest::slurp("$SandboxTest::More::PREFIX/conf/nginx.conf");
    $conf =~ s/sandbox_bind models .*\n/sandbox_bind later $host\/ro ro;\n/;
    $t->write_conf(conf => $conf);
    ok($t->reload, 'reloaded');

    is(out($s, 'cat /mnt/models/readme'), "host readme\n",
       'a session keeps what it has');
    refused('what is offered no more', qr{binds/0}, { binds => [ 'models' ] });

    my $new = session({ binds => [ 'later' ] });
    is(out($new, 'cat /mnt/later/readme'), "host readme\n",
       'what is offered now');
    destroy($_) for $s, $new;
};


$t->finish;
done_testing();
