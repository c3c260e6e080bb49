#!/usr/bin/perl

# The manifest's "filesystem": what may be written and read besides the usual,
# and the host's directories that an operator offers.  All of it is looked at
# as the session's user, as its root and through the API's files.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";

use Test::More;
use SandboxTest::More;
use SandboxTest::Rules;
use SandboxTest::Watch;

# the session's root has no id there, and so makes nothing
my $RW_BIND = { user => 'rw', root => 'r' };

my ($t, $host) = rules_server();


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

    my $watch = watch($s, '/mnt/models', '/mnt/models/secret',
                      'one session watches and locks',
                      locked => '/mnt/models/readme');
    is(out($two, [ 'python3', '-c', "import fcntl\n"
                   . "f = open('/mnt/models/readme')\n"
                   . "fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)\n"
                   . "print(f.read(), end='')" ]), "host readme\n",
       'another locks the same');
    watch_is_told_of_itself($watch, 'and neither is told of the other');

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

    is(run($s, 'cd /mnt/work && echo made > new && mkdir dir && mv new dir/')
       ->{exit_code}, 0, 'files are made there');
    is(put($s, '/mnt/work/up', 'loaded')->{status}, 201, 'and uploaded');

    for my $name (qw(dir dir/new up)) {
        my @st = stat "$host/rw/$name";
        is("$st[4] $st[5]", "$OWNER $OWNER", "on the host $name is the"
                                             . ' owner\'s');
    }

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


host_is_as_it_was();


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
