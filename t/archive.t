#!/usr/bin/perl

# Trees as archives, out and in.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";

use File::Temp ();
use Test::More;
use SandboxTest::More;

sub send_all { return SandboxTest::More::send_all(@_) }

my $t = server(max_upload => '64m');
my $s = create_ok();
my $dir = File::Temp->newdir;

sub sh { return run($s, @_)->{stdout} }

sub archive {
    my ($path, %o) = @_;

    my $q = delete $o{query};

    return call('GET', "/sessions/$s/archive/$path" . ($q ? "?$q" : ''), %o);
}

sub unpack_to {
    my ($path, $bytes, %o) = @_;

    return call('PUT', "/sessions/$s/archive/$path", %o, body => $bytes,
                timeout => within(60));
}

sub left { return sh('find / -xdev -name ".sandbox-upload-*" 2>/dev/null') }


# A header as tar has it; %o: type, link, mode, size, data, name.

sub member {
    my ($name, %o) = @_;

    my $data = $o{data} // '';
    my $h = pack 'a100 a8 a8 a8 a12 a12 A8 a1 a100 a6 a2 a32 a32 a8 a8 a155'
                 . ' x12',
                 $name, sprintf('%07o', $o{mode} // 0644), '0001750',
                 '0001750', sprintf('%011o', $o{size} // length $data),
                 sprintf('%011o', $o{mtime} // 1000000000), '',
                 $o{type} // '0', $o{link} // '', "ustar\0", '00', 'x', 'x',
                 '', '', $o{prefix} // '';

    my $sum = unpack '%32C*', $h;
    substr $h, 148, 8, sprintf "%06o\0 ", $sum;

    return $h . $data . "\0" x (-length($data) % 512);
}

sub tar { return join('', @_) . "\0" x 1024 }

sub spew {
    my ($name, $bytes) = @_;

    open my $f, '>', "$dir/$name" or die "$dir/$name: $!";
    binmode $f;
    print $f $bytes;
    close $f;

    return "$dir/$name";
}


subtest 'a tree goes out as a tar' => sub {
    run($s, <<'SH');
mkdir -p out/a/b out/empty
printf hello > out/a/file; printf x > out/a/b/deep
ln -s a/file out/link; chmod 750 out/a; chmod 640 out/a/file
touch -d @1234567890 out/a/file; mkfifo out/fifo
printf long > out/$(printf 'n%.0s' $(seq 200))
head -c 1000000 /dev/urandom > out/big
SH

    my $res = archive('out');
    is($res->{status}, 200, 'is answered');
    is($res->{headers}{'content-type'}, 'application/x-tar', 'its type');
    like($res->{headers}{'content-disposition'},
         qr/^attachment; filename="out\.tar"/, 'its name');
    is($res->{headers}{'x-content-type-options'}, 'nosniff', 'nosniff');
    like($res->{headers}{'content-security-policy'}, qr/sandbox/, 'CSP');

    my $file = spew('out.tar', $res->{body});
    my $list = `tar -tvf '$file' --numeric-owner 2>&1`;
    is($?, 0, 'tar reads it') or diag($list);
    like($list, qr/^drwxr-x---.* a\/$/m, 'a directory and its mode');
    like($list, qr/^-rw-r-----.* 5 .* a\/file$/m, 'a file');
    like($list, qr/^l.* link -> a\/file$/m, 'a link');
    like($list, qr/ n{200}$/m, 'a long name');
    unlike($list, qr/fifo|sandbox-upload/, 'no FIFO');

    mkdir "$dir/x";
    system("tar -C '$dir/x' -xf '$file'");
    is(slurp("$dir/x/a/b/deep"), 'x', 'and unpacks it');
    is((stat "$dir/x/a/file")[9], 1234567890, 'with the times');
    ok((slurp("$dir/x/big") // '') eq get($s, 'out/big')->{body},
       'and every byte');

    $res = archive('out', query => 'format=tar.gz');
    is($res->{headers}{'content-type'}, 'application/gzip', 'tar.gz');
    is(substr($res->{body}, 0, 2), "\x1f\x8b", 'is compressed');
    $file = spew('out.tgz', $res->{body});
    is(`tar -tzf '$file' | sort`, `tar -tf '$dir/out.tar' | sort`,
       'with the same in it');

    $res = archive('out/a/file');
    $file = spew('one.tar', $res->{body});
    is(`tar -tf '$file'`, "file\n", 'one file');
    is(call('HEAD', "/sessions/$s/archive/out")->{status}, 200, 'HEAD');
    is(call('GET', "/sessions/$s/archive?path=out")->{status}, 200, '?path=');

    is_problem(archive('none'), 404, 'E4001', 'what is missing');
    is_problem(archive('out', query => 'format=zip'), 400, 'E3001', 'zip');
    is_problem(archive('out/fifo'), 409, 'E4004', 'a FIFO');

    run($s, 'mkdir out/no; chmod 0 out/no');
    is_problem(archive('out'), 403, 'E4003', 'what cannot be read', qr/no/);
    run($s, 'chmod 700 out/no; rmdir out/no');
};


subtest 'an archive comes in' => sub {
    system("mkdir -p '$dir/in/d/e' && cd '$dir/in' && echo f > d/f"
           . " && echo g > d/e/g && ln -s e/g d/link && ln d/f d/hard"
           . " && chmod 700 d/e && chmod 755 d/f"
           . " && tar -cf ../in.tar . && tar -czf ../in.tgz .");

    for my $kind ('tar', 'tgz') {
        my $res = unpack_to("new/$kind", slurp("$dir/in.$kind"));
        is($res->{status}, 200, "$kind: 200");
        is($res->{json}{path}, "/home/user/new/$kind", 'where');
        is($res->{json}{entries}, 7, 'entries');
        is($res->{json}{size}, 4, 'bytes of files');
        is(sh("cd new/$kind; cat d/f d/e/g d/link; stat -c '%a %h %U' d/e"
              . ' d/f; cmp d/f d/hard && echo same'),
           "f\ng\ng\n700 2 user\n755 2 user\nsame\n", 'all of it');
    }

    my $res = archive('out');
    is(unpack_to('copy', $res->{body})->{status}, 200,
       'what went out comes in');
    is(sh('rm out/fifo; diff -r out copy && echo same'), "same\n",
       'as it was');

    my $chunked = open_request('PUT', "/sessions/$s/archive/ch",
                               headers => { 'Transfer-Encoding' =>
                                            'chunked' });
    my $tar = tar(member('x', data => 'y'));
    send_all($chunked,
             sprintf("%x\r\n%s\r\n0\r\n\r\n", length $tar, $tar));
    is(read_response($chunked)->{status}, 200, 'chunked');
    close $chunked;
    is(sh('cat ch/x'), 'y', 'too');

    is(unpack_to('ch', tar())->{json}{entries}, 0, 'an empty one');
    is(unpack_to('', tar(member('into-workspace', data => 'w')))->{status},
       200, 'into the workspace');
    is(sh('cat into-workspace'), 'w', 'it is there');
    is(left(), '', 'nothing hidden is left');
};


subtest 'it is merged into what is there' => sub {
    run($s, 'mkdir -p m/d/keep; echo old > m/d/f; echo mine > m/mine;'
            . ' ln -s mine m/l; chmod 711 m/d');
    my $res = unpack_to('m', tar(
        member('d/', type => '5', mode => 0700),
        member('d/f', data => 'new', mode => 0600),
        member('d/n/', type => '5'), member('d/n/x', data => 'x'),
        member('l', data => 'no link now')));
    is($res->{status}, 200, 'is answered');
    is(sh('cat m/d/f m/d/n/x m/mine; ls m/d; stat -c "%A %a" m/l m/d m/d/f'),
       "newxmine\nf\nkeep\nn\n-rw-r--r-- 644\ndrwx--x--x 711\n"
       . "-rw------- 600\n",
       'files are replaced, directories merged, links not followed');

    is_problem(unpack_to('m', tar(member('new1', data => 'x'),
                                  member('mine/x', data => 'x'))),
               409, 'E4004', 'a directory onto a file');
    is_problem(unpack_to('m', tar(member('new2', data => 'x'),
                                  member('d', data => 'x'))),
               409, 'E4004', 'a file onto a directory');
    is_problem(unpack_to('m/mine', tar(member('x'))), 409, 'E4004',
               'into a file');
    is_problem(unpack_to('/etc', tar(member('x'))), 403, 'E4003',
               "into root's directory");
    run($s, 'chmod 444 m/mine');
    is_problem(unpack_to('m', tar(member('new3', data => 'x'),
                                  member('mine', data => 'x'))),
               403, 'E4003', 'onto what cannot be written');
    is(sh('ls m; cat m/mine'), "d\nl\nmine\nmine\n", 'and nothing has stayed');
    is(left(), '', 'nothing hidden is left');
};


subtest 'of an archive that may not be nothing stays' => sub {
    run($s, 'mkdir h; ln -s /tmp h/out');

    my $ok = member('ok', data => 'fine');
    my %bad = (
        'an absolute member' => member('/tmp/abs', data => 'x'),
        'a member that escapes' => member('../esc', data => 'x'),
        'one that escapes within' => member('a/../../esc', data => 'x'),
        'an absolute link' => member('l', type => '2', link => '/etc'),
        'a link that escapes' => member('l', type => '2', link => '../x'),
        'a deep link that escapes' => member('a/b/l', type => '2',
                                             link => '../../../x'),
        'a link with a way back' => member('l', type => '2',
                                           link => 'a/../..'),
        'a member through a link' => member('l', type => '2', link => 'ok')
                                     . member('l/x', data => 'x'),
        'a member through a link of its own'
            => member('d/', type => '5')
               . member('l', type => '2', link => 'd')
               . member('l/x', data => 'x'),
        'a hard link out' => member('l', type => '1', link => '/etc/passwd'),
        'a hard link that escapes' => member('l', type => '1',
                                             link => '../st'),
        'a hard link to what is not in it' => member('l', type => '1',
                                                     link => 'h'),
        'a hard link through a link'
            => member('d', type => '2', link => 'ok')
               . member('l', type => '1', link => 'd/passwd'),
        'a character device' => member('dev', type => '3'),
        'a block device' => member('dev', type => '4'),
        'a FIFO' => member('fifo', type => '6'),
        'a reserved name' => member('.sandbox-upload-x', data => 'x'),
        'a file and a directory' => member('f', data => 'x')
                                    . member('f/', type => '5'),
        'a damaged header' => do {
            my $m = member('x', data => 'x'); substr $m, 3, 1, 'y'; $m },
        'a size that is no number' => do {
            my $m = member('x'); substr $m, 124, 2, "\xff\xff"; $m },
        'a file that ends early' => substr(member('x', data => 'x' x 2000),
                                           0, 1024),
    );

    for my $name (sort keys %bad) {
        my $bytes = $ok . $bad{$name};
        $bytes .= "\0" x 1024 if $name !~ /early/;
        is_problem(unpack_to('h', $bytes), 400, 'E3001', $name);
        is_problem(unpack_to('h/new', $bytes), 400, 'E3001',
                   "$name, into a new directory")
            if $name =~ /absolute|device/;
    }

    is_problem(unpack_to('h', 'no archive' x 100), 400, 'E3001', 'no archive');
    is_problem(unpack_to('h', "\x1f\x8bno gzip" x 100), 400, 'E3001',
               'no gzip');

    open my $tail, '|-', "gzip -1 > '$dir/tail.tgz'" or die "gzip: $!";
    print $tail $ok, "\0" x 1024, 'after' x 1_000_001;
    close $tail or die 'gzip failed';

    my $long = slurp("$dir/tail.tgz");
    is(unpack_to('tail', $long)->{status}, 200,
       'what follows the end is passed over');
    substr $long, -8, 4, "\0" x 4;
    is_problem(unpack_to('h', $long), 400, 'E3001', 'but its sum counts');

    # a few kilobytes that would be hours of zeros

    system("head -c 40000000 /dev/zero | gzip > '$dir/zeros.gz'") == 0
        or die 'gzip failed';
    is_problem(unpack_to('h', slurp("$dir/zeros.gz")), 400, 'E3001',
               'endless zeros after the end', qr/after its end/);

    my $tgz = slurp("$dir/in.tgz");
    is_problem(unpack_to('h', substr($tgz, 0, length($tgz) / 2)), 400,
               'E3001', 'half of one that is compressed');

    # what is a link outside of the archive is no way out either

    is_problem(unpack_to('h', tar(member('out/x', data => 'x'))), 409,
               'E4004', 'through a link that is there');

    is(sh('ls -A h; ls -A /tmp | grep -c .; ls esc 2>/dev/null'),
       "out\n0\n", 'nothing has stayed, and nothing has come out');
    is(left(), '', 'nothing hidden is left');
};


subtest 'a client that goes away leaves nothing' => sub {
    my $c = open_request('PUT', "/sessions/$s/archive/gone",
                         headers => { 'Content-Length' => 100000 });
    send_all($c, member('x', data => 'x') . member('y', size => 90000));
    ok((until_true { left() ne '' }), 'it is being unpacked');
    close $c;
    ok((until_true { left() eq '' }), 'and all of it goes');
    is(sh('ls gone 2>&1 | grep -c x'), "0\n", 'no entry is there');
};


subtest 'a server that is killed leaves nothing' => sub {
    my $c = open_request('PUT', "/sessions/$s/archive/killed",
                         headers => { 'Content-Length' => 100000 });
    send_all($c, member('x', data => 'x') . member('d/', type => '5')
                 . member('y', size => 90000));
    ok((until_true { left() ne '' }), 'it is being unpacked');
    ok((until_true {
           run($s, 'kill -9 -1'); left() eq ''
       } 20), 'by the session itself: init has it removed');
    close $c;
    is(sh('ls killed 2>&1 | grep -c x'), "0\n", 'no entry is there');
};


subtest 'what is too much' => sub {
    my $v = create_ok({ manifest => { resources => { disk => '8MB' } } });

    # 64 MB of zeros, in 64 KB

    open my $f, '|-', "gzip -9 > '$dir/bomb.tgz'" or die "gzip: $!";
    print $f member('bomb', size => 64 << 20), "\0" x (64 << 20), "\0" x 1024;
    close $f;

    my $res = call('PUT', "/sessions/$v/archive/b",
                   body => slurp("$dir/bomb.tgz"), timeout => within(60));
    is_problem($res, 507, 'E4006', 'more than the disk holds');

    open $f, '|-', "gzip -1 > '$dir/many.tgz'" or die "gzip: $!";
    print $f member('many/x', mtime => $_) for 1 .. 100_001;
    print $f "\0" x 1024;
    close $f;

    $res = call('PUT', "/sessions/$v/archive/b",
                body => slurp("$dir/many.tgz"), timeout => within(120));
    is_problem($res, 413, 'E4005', 'more entries than may be');

    is(run($v, 'ls -A')->{stdout}, '', 'and nothing of either is there');
    destroy($v);

    is_problem(unpack_to('big', '', headers =>
               { 'Content-Length' => 65 << 20 }), 413, 'E4005',
               'more bytes than an upload may have');
};


subtest 'a slow reader costs nobody memory' => sub {
    run($s, 'mkdir slow; head -c 24000000 /dev/urandom > slow/big');

    my @pids = workers();
    my @before = map { rss($_) } @pids;
    my $c = open_request('GET', "/sessions/$s/archive/slow",
                         rcvbuf => 65536);
    my $res = read_head($c);
    is($res->{status}, 200, 'it has begun');

    # as much as fits on the way has been sent, and the rest waits

    is(archive('ch')->{status}, 200, 'another archive comes meanwhile');
    is(put($s, 'with', 'x')->{status}, 201, 'and other calls');

    for my $i (0 .. $#pids) {
        cmp_ok(rss($pids[$i]) - $before[$i], '<', 8 << 20,
               'a worker has not grown');
    }

    my ($bytes) = read_rest($c, timeout => within(60));
    $bytes = $res->{rest} . $bytes;
    cmp_ok(length $bytes, '>', 24_000_000, 'all of it comes');
    is(substr($bytes, -7), "\r\n0\r\n\r\n", 'to its end');
    close $c;
    del($s, 'slow', query => 'recursive=1');
};


subtest 'an archive that cannot be ended is none' => sub {
    run($s, 'mkdir cut; head -c 24000000 /dev/zero > cut/big');
    my $c = open_request('GET', "/sessions/$s/archive/cut", rcvbuf => 65536);
    read_head($c);
    run($s, 'kill -9 -1');
    my ($bytes) = read_rest($c, timeout => within(60));
    isnt(substr($bytes, -7), "\r\n0\r\n\r\n",
         'its server is killed: there is no last chunk');
    close $c;
    del($s, 'cut', query => 'recursive=1');
};


subtest 'a tree that is too deep' => sub {
    run($s, q{mkdir dp; cd dp; python3 -c "
import os
for i in range(210): os.mkdir('d'); os.chdir('d')"});
    is_problem(archive('dp'), 413, 'E4005', 'is told before anything is sent');
    del($s, 'dp', query => 'recursive=1');
};


subtest 'archives do not use up the servers of other calls' => sub {
    my @open = map {
        my $c = open_request('PUT', "/sessions/$s/archive/w$_",
                             headers => { 'Content-Length' => 100000 });
        send_all($c, member('x', data => 'x'));
        $c
    } 1 .. 4;

    ok((until_true { 4 == (my @l = split /\n/, left()) }), 'four are open');
    is_problem(archive('out'), 429, 'E2003', 'a fifth');
    is(put($s, 'beside', 'x')->{status}, 201, 'a file call is served');
    close $_ for @open;
    ok((until_true { archive('out')->{status} == 200 }), 'and then again');
    ok((until_true { left() eq '' }), 'nothing is left');
};


destroy($s);
$t->finish;
done_testing();
