#!/usr/bin/perl

# /sessions/{id}/files: uploads, downloads, removal and lists.  The file that
# streams through a worker has 600 MB, and 2.5 GB with SANDBOX_TEST_LONG=1.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";

use Test::More;
use SandboxTest::More;

my $MANY = $ENV{SANDBOX_TEST_LONG} ? 2560 : 600;      # MB
my $t = server(max_upload => $MANY > 1000 ? '4g' : '1g', extra => <<'CONF');
        location /small/ {
            sandbox_api v1;
            sandbox_max_upload 1m;
        }
CONF

my $s = create_ok();

sub sh { return run($s, @_)->{stdout} }


subtest 'a file is made, read, replaced and removed' => sub {
    my $res = put($s, 'data.txt', 'some content');
    is($res->{status}, 201, 'PUT of a new one: 201');
    is_deeply($res->{json}, { path => '/home/user/data.txt', size => 12 },
              'its path and size');
    like($res->{headers}{'x-request-id'}, qr/^[0-9a-f]{32}$/, 'X-Request-ID');

    $res = get($s, 'data.txt');
    is("$res->{status} $res->{body}", '200 some content', 'GET');
    is($res->{headers}{'content-length'}, 12, 'Content-Length');

    $res = put($s, 'data.txt', 'other');
    is("$res->{status} $res->{json}{size}", '200 5', 'PUT again: 200');
    is(sh('cat data.txt'), 'other', 'a command sees it');

    is(put($s, 'empty', '')->{status}, 201, 'an empty one');
    $res = get($s, 'empty');
    is("$res->{status}:$res->{body}:$res->{headers}{'content-length'}",
       '200::0', 'is empty');

    is(put($s, '/tmp/abs', 'x')->{json}{path}, '/tmp/abs', 'absolute paths');

    is(del($s, 'data.txt')->{status}, 204, 'DELETE: 204');
    is_problem(get($s, 'data.txt'), 404, 'E4001', 'GET of what is gone');
    is(head($s, 'data.txt')->{status}, 404, 'HEAD of it');
    is_problem(del($s, 'data.txt'), 404, 'E4001', 'DELETE of it');
    is_problem(get($s, 'data.txt/x'), 404, 'E4001', 'below what is missing');

    my $bytes = join '', map { chr } 0 .. 255;
    put($s, 'bin', $bytes x 100);
    is(get($s, 'bin')->{body}, $bytes x 100, 'every byte value');

    for my $id ('izzzzzzzzzzzzzzzzzzzzzzzzz', 'x', 'I' . 'a' x 25) {
        is_problem(get($id, 'x'), 404, 'E2009', "GET in session $id");
        is_problem(put($id, 'x', 'y'), 404, 'E2009', 'PUT');
        is_problem(del($id, 'x'), 404, 'E2009', 'DELETE');
    }
};


subtest 'owner, mode and parents' => sub {
    put($s, 'plain', 'x');
    put($s, 'a/b/c/deep', 'x');
    put($s, 'secret', 'x', query => 'mode=0600');
    put($s, 'tool', "#!/bin/sh\necho ran\n", query => 'mode=755');

    is(sh('stat -c "%n %a %U" plain a a/b/c a/b/c/deep secret tool'), <<'TEXT',
plain 644 user
a 755 user
a/b/c 755 user
a/b/c/deep 644 user
secret 600 user
tool 755 user
TEXT
       'new files are 0644 or as asked, parents are made');
    is(sh('./tool'), "ran\n", 'a program can be uploaded');

    run($s, 'chmod 640 plain; ln plain hard');
    put($s, 'plain', 'y');
    is(sh('stat -c %a plain'), "640\n", 'a replaced file keeps its mode');
    is(sh('stat -c %a secret; true > /dev/null'), "600\n", 'others too');

    for my $mode ('abc', '0999', '10000', '-1', '') {
        is_problem(put($s, 'm', 'x', query => "mode=$mode"), 400, 'E3001',
                   "mode=$mode");
    }

    is(get($s, 'm')->{status}, 404, 'nothing was made');

    is_problem(put($s, 'plain', 'z', query => 'overwrite=0'), 409, 'E4007',
               'overwrite=0 where it exists');
    is(get($s, 'plain')->{body}, 'y', 'keeps the old');
    is(put($s, 'fresh', 'z', query => 'overwrite=0')->{status}, 201,
       'overwrite=0 where it does not');
    is_problem(put($s, 'plain', 'z', query => 'overwrite=maybe'), 400,
               'E3001', 'overwrite=maybe');

    is_problem(put($s, 'plain', 'z', headers => { 'If-None-Match' => '*' }),
               412, 'E4008', 'If-None-Match: * where it exists');
    is_problem(put($s, 'plain', 'z', headers => { 'If-Match' => '"no"' }),
               412, 'E4008', 'If-Match with another tag');
    is(put($s, 'plain', 'w', headers =>
           { 'If-Match' => get($s, 'plain')->{headers}{etag} })->{status},
       200, 'If-Match with its tag');

    run($s, 'mkdir dir; touch file; mkdir locked; touch locked/x;'
            . ' chmod 555 locked');
    is_problem(put($s, 'dir', 'x'), 409, 'E4004', 'a directory');
    is_problem(put($s, 'file/x', 'x'), 409, 'E4004', 'below a file');
    is_problem(put($s, 'locked/new', 'x'), 403, 'E4003', 'not permitted');
    is_problem(put($s, '/etc/passwd', 'x'), 403, 'E4003', "root's file");
    is_problem(put($s, '/usr/bin/env', 'x'), 403, 'E4003',
               'what is read-only');
    is_problem(get($s, '/root/x'), 403, 'E4003', "in root's home");
    is_problem(get($s, 'dir'), 409, 'E4004', 'GET of a directory');
    is_problem(get($s, 'file/x'), 409, 'E4004', 'GET below a file');
};


subtest 'links' => sub {
    run($s, 'mkdir l; echo old > l/target; ln -s target l/link;'
            . ' ln -s missing l/dangling; ln -s /nowhere/x l/far;'
            . ' ln -s ../l l/dirlink; chmod 600 l/target');

    is(put($s, 'l/link', 'new')->{status}, 200, 'a link is followed');
    is(sh('cat l/target; readlink l/link; stat -c %a l/target'),
       "newtarget\n600\n", 'its target is replaced, with its mode');
    is(put($s, 'l/dangling', 'made')->{status}, 201, 'a dangling one');
    is(sh('cat l/missing; readlink l/dangling'), "mademissing\n",
       'gets its target');
    is(get($s, 'l/dirlink/dirlink/target')->{body}, 'new',
       'links to directories');
    is_problem(get($s, 'l/far'), 404, 'E4001', 'a target that is missing');

    is(del($s, 'l/link')->{status}, 204, 'DELETE takes the link');
    is(get($s, 'l/target')->{body}, 'new', 'not its target');
    is(del($s, 'l/dirlink', query => 'recursive=1')->{status}, 204,
       'a link to a directory too');
    is(get($s, 'l/target')->{body}, 'new', 'and nothing behind it');
};


subtest 'a download is what nginx makes of a static file' => sub {
    my $bytes = join '', map { sprintf '%07d ', $_ } 0 .. 4095;
    put($s, 'big.bin', $bytes);

    my $res = get($s, 'big.bin');
    my %h = %{ $res->{headers} };

    is($res->{body}, $bytes, 'its bytes');
    is($h{'content-type'}, 'application/octet-stream', 'Content-Type');
    is($h{'x-content-type-options'}, 'nosniff', 'nosniff');
    like($h{'content-disposition'},
         qr/^attachment;.*filename\*?="?[^"]*big\.bin/,
         'Content-Disposition');
    like($h{'content-security-policy'}, qr/\bsandbox\b/, 'a sandboxing CSP');
    like($h{'last-modified'}, qr/^\w{3}, \d\d \w{3} \d{4} .* GMT$/,
         'Last-Modified');
    like($h{etag}, qr/^"[^"]+"$/, 'ETag');
    is($h{'accept-ranges'}, 'bytes', 'Accept-Ranges');

    my $again = head($s, 'big.bin');
    is("$again->{status} $again->{headers}{'content-length'}",
       '200 ' . length $bytes, 'HEAD: the length, no body');
    is($again->{headers}{etag}, $h{etag}, 'the same ETag');
    is($again->{rest} // '', '', 'no byte after it');

    my %ranges = ('bytes=0-9' => [ 0, 10 ], 'bytes=100-' => [ 100, 32668 ],
                  'bytes=-8' => [ 32760, 8 ], 'bytes=5-5' => [ 5, 1 ],
                  'bytes=32000-99999' => [ 32000, 768 ]);

    for my $range (sort keys %ranges) {
        my ($at, $n) = @{ $ranges{$range} };
        $res = get($s, 'big.bin', headers => { Range => $range });
        is($res->{status}, 206, "$range: 206");
        is($res->{body}, substr($bytes, $at, $n), 'its bytes');
        is($res->{headers}{'content-range'},
           sprintf('bytes %d-%d/%d', $at, $at + $n - 1, length $bytes),
           'Content-Range');
    }

    $res = get($s, 'big.bin', headers => { Range => 'bytes=0-3,10-13' });
    is($res->{status}, 206, 'two ranges');
    like($res->{headers}{'content-type'}, qr{^multipart/byteranges},
         'in parts');
    is(get($s, 'big.bin', headers => { Range => 'bytes=99999-' })->{status},
       416, 'beyond the end: 416');
    is(get($s, 'big.bin', headers => { Range => 'bytes=0-9',
                                       'If-Range' => '"other"' })->{status},
       200, 'If-Range with another tag: the whole');

    is(get($s, 'big.bin',
           headers => { 'If-None-Match' => $h{etag} })->{status},
       304, 'If-None-Match: 304');
    is(get($s, 'big.bin', headers =>
           { 'If-Modified-Since' => $h{'last-modified'} })->{status},
       304, 'If-Modified-Since: 304');
    is(get($s, 'big.bin', headers => { 'If-None-Match' => '"x"' })->{status},
       200, 'another tag: 200');
    is(get($s, 'big.bin', headers => { 'If-Match' => '"x"' })->{status}, 412,
       'If-Match with another tag: 412');

    put($s, 'big.bin', $bytes);
    isnt(head($s, 'big.bin')->{headers}{etag}, $h{etag},
         'a new upload has another ETag, though its size is the same');
};


subtest 'a download never runs as a page' => sub {
    put($s, 'page.html', '<script>alert(1)</script>');

    my $res = get($s, 'page.html');
    is($res->{headers}{'content-type'}, 'application/octet-stream',
       'whatever its name');

    for my $type ('text/plain', 'image/png', 'application/json',
                  'text/plain; charset=utf-8')
    {
        $res = get($s, 'page.html', query => 'content_type=' . enc($type));
        is($res->{headers}{'content-type'}, $type, "$type may be asked for");
    }

    for my $type ('text/html', 'TEXT/HTML', 'text/html; charset=utf-8',
                  'text/html;x', 'application/xhtml+xml', 'image/svg+xml',
                  'text/xml', 'application/xml', 'application/rss+xml',
                  "text/plain\r\nX-Injected: 1", 'plain', '', 'a/b/c',
                  "text/plain\n", 'multipart/x-mixed-replace')
    {
        $res = get($s, 'page.html', query => 'content_type=' . enc($type));
        (my $show = $type) =~ s/[^ -~]/./g;
        is($res->{status}, 400, "\"$show\" may not");
        is($res->{headers}{'x-injected'}, undef, 'no header is injected');
    }
};


subtest 'an upload is there whole or not at all' => sub {
    my $n = 200_000;
    put($s, 'atomic', 'a' x $n);

    my $job = async {
        my %seen;
        for my $i (1 .. 40) {
            my $res = put($s, 'atomic', chr(97 + $i % 2) x $n);
            $seen{ $res->{status} }++;
        }
        return \%seen;
    };
    my $inside = async {
        run($s, [ 'python3', '-c', <<'PY' ], timeout_s => 30)->{stdout};
import os, time
bad = n = 0
while not os.path.exists("stop"):
    b = open("atomic", "rb").read()
    n += 1
    if b not in (b"a" * 200000, b"b" * 200000):
        bad += 1
print(bad, n > 5)
PY
    };

    my $bad = 0;
    my $reads = 0;

    until_true(sub {
        my $b = get($s, 'atomic')->{body};
        $reads++;
        $bad++ if $b ne 'a' x $n && $b ne 'b' x $n;
        return $job->ready;
    }, 20);

    is_deeply($job->get, { 200 => 40 }, 'forty replacements');
    put($s, 'stop', '');
    is($inside->get, "0 True\n", 'a reader inside sees the old or the new');
    is($bad, 0, "so do the $reads reads from outside");

    is(sh('ls -A | grep -v "^[a-zA-Z]"'), '', 'no temporary is left');
};


subtest 'an upload that is cut leaves nothing' => sub {
    run($s, 'mkdir cut; echo old > cut/there');

    for my $case ([ 'new', 'Content-Length' ], [ 'there', 'Content-Length' ],
                  [ 'new', 'chunked' ], [ 'x/y/new', 'Content-Length' ])
    {
        my ($name, $how) = @$case;
        my $half = 'z' x 300_000;

        my $q = $how eq 'chunked'
            ? open_request('PUT', "/sessions/$s/files/cut/$name",
                  headers => { 'Transfer-Encoding' => 'chunked' },
                  body => sprintf("%x\r\n%s\r\n", length $half, $half))
            : open_request('PUT', "/sessions/$s/files/cut/$name",
                  headers => { 'Content-Length' => 600_000 },
                  body => $half);

        my $begun = until_true(sub {
            sh('find cut -type f -size +100k | wc -l') > 0
        }, 5);
        ok($begun, "$name, $how: bytes have arrived");

        is(join(' ', map { $_->{name} }
                     @{ glob_of($s, 'cut/**')->{json}{entries} }),
           $name =~ /x/ ? 'there x y' : 'there',
           'a list shows no temporary')
            if $name !~ /x/;

        close $q;

        ok(until_true(sub {
            sh('find cut -type f') eq "cut/there\n"
        }, 5), 'nothing is left of it') or diag(sh('find cut -ls'));
        is(sh('cat cut/there'), "old\n", 'what was there is there');
    }

    # a chunked body that ends in garbage is cut too

    my $q = open_request('PUT', "/sessions/$s/files/cut/bad",
        headers => { 'Transfer-Encoding' => 'chunked' },
        body => "5\r\nhello\r\nZZ\r\n");
    is(read_response($q)->{status}, 400, 'a broken chunk is 400');
    close $q;
    ok(until_true(sub { sh('find cut -type f') eq "cut/there\n" }, 5),
       'and leaves nothing');

    $q = open_request('PUT', "/sessions/$s/files/cut/good",
        headers => { 'Transfer-Encoding' => 'chunked' },
        body => "5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n");
    is(read_response($q)->{status}, 201, 'a whole chunked body');
    close $q;
    is(get($s, 'cut/good')->{body}, 'hello world', 'is the file');
};


subtest 'what is too large is refused before it is sent' => sub {
    my %small = (base => '/small');

    my $q = open_request('PUT', "/sessions/$s/files/large", %small,
                         headers => { 'Content-Length' => (1 << 20) + 1 });
    is_problem(read_response($q), 413, 'E4005', 'by Content-Length');
    close $q;

    is(put($s, 'fits', 'x' x (1 << 20), %small)->{status}, 201,
       'as much as is allowed');

    my $chunk = sprintf("%x\r\n%s\r\n", 1 << 16, 'x' x (1 << 16));
    $q = open_request('PUT', "/sessions/$s/files/large", %small,
                      headers => { 'Transfer-Encoding' => 'chunked' },
                      body => $chunk x 17);
    is_problem(read_response($q), 413, 'E4005', 'by counting chunks');
    close $q;
    is(get($s, 'large')->{status}, 404, 'nothing of it stays');
    ok(until_true(sub { sh('find . -size +1000k -name ".*"') eq '' }, 5),
       'no temporary either');
};


subtest 'a full session says so' => sub {
    my $v = create_ok({ manifest => { resources => { disk => '4MB',
                                                     inodes => 300 } } });

    put($v, 'old', 'old content');
    my $free = run($v, 'df -k --output=avail . | tail -1')->{stdout} + 0;
    cmp_ok($free, '<=', 4096 + 16, 'its disk is of the size asked for');

    my $q = open_request('PUT', "/sessions/$v/files/large",
                         headers => { 'Content-Length' => 5 << 20 });
    is_problem(read_response($q), 507, 'E4006',
               'refused before the body, by Content-Length');
    close $q;

    my $chunk = sprintf("%x\r\n%s\r\n", 1 << 16, 'x' x (1 << 16));
    $q = open_request('PUT', "/sessions/$v/files/old",
                      headers => { 'Transfer-Encoding' => 'chunked' },
                      body => $chunk x 80 . "0\r\n\r\n");
    is_problem(read_response($q), 507, 'E4006', 'in the middle of one');
    close $q;

    is(get($v, 'old')->{body}, 'old content', 'what was there is there');
    is(get($v, 'large')->{status}, 404, 'what was not is not');
    ok(until_true(sub {
        my $now = run($v, 'df -k --output=avail . | tail -1')->{stdout} + 0;
        return $now >= $free - 8;
    }, 5), 'the room is given back');
    is(put($v, 'other', 'x' x 100_000)->{status}, 201, 'and can be used');

    run($v, 'i=0; mkdir many; while : > many/$i; do i=$((i + 1)); done'
            . ' 2>/dev/null', timeout_s => 20);
    is_problem(put($v, 'one-more', 'x'), 507, 'E4006', 'no inode is left');
    is(get($v, 'other')->{status}, 200, 'files can be read');
    is(del($v, 'many', query => 'recursive=1')->{status}, 204,
       'and removed');
    is(put($v, 'one-more', 'x')->{status}, 201, 'then there is room again');

    my $r = run($v, 'head -c 9000000 /dev/zero > fill; echo $?');
    like($r->{stdout}, qr/^[1-9]/, 'a command meets the same limit');
    is($r->{reason}, 'exited', 'and is not killed by it');
    destroy($v);
};


subtest 'removal' => sub {
    run($s, 'mkdir -p r/full/sub r/empty; touch r/full/x r/full/sub/y;'
            . ' ln -s /home/user/fits r/full/link; mkfifo r/full/p;'
            . ' chmod 555 r/full/sub');

    is_problem(del($s, 'r/full'), 409, 'E2011',
               'a directory that is not empty');
    is_problem(del($s, 'r/full', query => 'recursive=0'), 409, 'E2011',
               'with recursive=0 too');
    is(sh('find r/full | wc -l'), "6\n", 'is whole');
    is(del($s, 'r/empty')->{status}, 204, 'an empty one');
    run($s, 'chmod 755 r/full/sub');
    is(del($s, 'r/full', query => 'recursive=1')->{status}, 204,
       'recursive=1');
    is(sh('ls -A r'), '', 'takes all of it');
    is(get($s, 'fits')->{status}, 200, 'but nothing behind a link');
    is_problem(del($s, 'r', query => 'recursive=yes'), 400, 'E3001',
               'recursive=yes');

    for my $path ('/', '', '/home/user', '/home', '/usr', '/proc', '/dev') {
        my $res = del($s, '?path=' . enc($path) . '&recursive=1');
        ok($res->{status} =~ /^4\d\d$/,
           "\"$path\" is refused: $res->{status}");
    }

    is(sh('ls fits'), "fits\n", 'the workspace is as it was');
    is_problem(del($s, '/etc/passwd'), 403, 'E4003', "root's file");

    run($s, 'python3 -c "import os
for i in range(1500): os.mkdir(\"d\"); os.chdir(\"d\")"');
    is(del($s, 'd', query => 'recursive=1')->{status}, 204,
       'a chain of 1,500 directories');
    is(sh('ls -d d 2>/dev/null'), '', 'is gone');
};


subtest 'lists' => sub {
    my $v = create_ok();
    run($v, 'mkdir -p g/sub/deep g/.hidden; cd g; echo 1 > b.txt;'
            . ' echo 22 > a.txt; touch .dot.txt sub/c.txt sub/deep/d.txt'
            . ' .hidden/e.txt "x y.txt" z.md; ln -s a.txt link.txt;'
            . ' mkfifo fifo; chmod 600 b.txt; touch -d @1000000000 a.txt');

    my $names = sub {
        my ($pattern, $more) = @_;
        my $res = glob_of($v, $pattern, $more);
        return "status $res->{status}" if $res->{status} != 200;
        return join ' ', map { my $p = $_->{path}; $p =~ s{^/home/user/g/}{};
                               $p } @{ $res->{json}{entries} };
    };

    is($names->('g/*.txt'), 'a.txt b.txt link.txt x y.txt',
       'by a pattern, sorted, without hidden ones');
    is($names->('g/.*.txt'), '.dot.txt', 'hidden ones by their dot');
    is($names->('g/**/*.txt'),
       'a.txt b.txt link.txt sub/c.txt sub/deep/d.txt x y.txt',
       '** goes down, not into hidden directories');
    is($names->('g/?.txt'), 'a.txt b.txt', 'a "?" is one character');
    is($names->('g/[ab].txt'), 'a.txt b.txt', 'a class');
    is($names->('/home/user/g/*.md'), 'z.md', 'absolute');
    is($names->('g/nothing*'), '', 'nothing');
    is($names->('g/*/none/*.txt'), '', 'nor below what a pattern names');
    is_problem(glob_of($v, $_), 404, 'E4001', "$_, a missing directory")
        for 'missing/*', 'g/missing/**', 'missing/a.txt', '/missing/*/*';
    is_problem(glob_of($v, 'g/a.txt/*'), 409, 'E4004', 'in a file');
    is($names->('g/a.txt'), 'a.txt', 'a plain name');
    is($names->('*'), '/home/user/g', 'the workspace');

    my %e = map { $_->{name} => $_ } @{ glob_of($v, 'g/*')->{json}{entries} };

    is_deeply($e{'a.txt'}, { path => '/home/user/g/a.txt', name => 'a.txt',
        type => 'file', size => 3, mode => '0644', owner => 'user',
        group => 'user', modified_at => $e{'a.txt'}{modified_at},
        target => undef }, 'an entry of a file');
    like($e{'a.txt'}{modified_at}, qr/^2001-09-09T01:46:40(?:\.0+)?Z$/,
         'its time');
    is($e{'b.txt'}{mode}, '0600', 'mode');
    is("$e{'link.txt'}{type} $e{'link.txt'}{target}", 'link a.txt', 'a link');
    is("$e{sub}{type} $e{fifo}{type}", 'directory fifo', 'other types');

    run($v, 'mkdir n; cd n; for i in $(seq -w 1 25); do : > f$i; done');
    my (@seen, $cursor);

    for (1 .. 9) {
        my $j = glob_of($v, 'n/*', 'limit=10'
                        . ($cursor ? '&cursor=' . enc($cursor) : ''))->{json};
        push @seen, map { $_->{name} } @{ $j->{entries} };
        $cursor = $j->{next_cursor} // $j->{cursor};
        last if !defined $cursor;
    }

    is_deeply(\@seen, [ map { sprintf 'f%02d', $_ } 1 .. 25 ],
              'by pages: each once, in order');

    is(glob_of($v, 'n/*', $_)->{status}, 400, "$_ is refused")
        for 'limit=0', 'limit=-1', 'limit=x', 'cursor=nonsense', 'limit=';

    run($v, [ 'python3', '-c', 'import os; open(b"n/\xff\xfe", "w")' ]);
    my ($odd) = grep { defined $_->{path_base64} }
                @{ glob_of($v, 'n/*')->{json}{entries} };
    is(unb64($odd->{path_base64} // ''), "/home/user/n/\xff\xfe",
       'a name that is not UTF-8 is exact in base64');

    for my $pattern ('**/**/**/**/**/x', '*a*a*a*a*a*a*a*a*b', '[', '{', '\\',
                     '[z-a]', 'a' x 5000, '../../../../etc/*', '[[:foo:]]',
                     '(((((', '*' x 300)
    {
        my $t0 = time;
        my $res = glob_of($v, $pattern);
        ok($res->{status} =~ /^(?:200|400)$/ && time - $t0 < within(3),
           'the pattern ' . substr($pattern, 0, 20) . " is answered");
    }

    run($v, 'touch n/' . 'a' x 200);
    my $t0 = time;
    glob_of($v, 'n/' . '*a' x 100 . 'b');
    cmp_ok(time - $t0, '<', within(3), 'a pattern made to be slow is not');

    is(del($v, 'n', query => 'recursive=1')->{status}, 204, 'cleared');
    destroy($v);
};


subtest '33 MiB go up and come down' => sub {
    my $size = 33 << 20;
    my $block = join '', map { pack 'N', $_ * 2654435761 % 4294967296 }
                1 .. 1 << 18;
    my $bytes = $block x 33;
    my @workers = workers();
    my $before = rss(@workers);

    is(put($s, 'b33', $bytes)->{status}, 201, 'up');
    cmp_ok(rss(@workers) - $before, '<', 8 << 20,
           'the workers have not grown');
    is(sh('md5sum < b33'), md5_hex($bytes) . "  -\n", 'unchanged');

    my $res = get($s, 'b33');
    is(length $res->{body}, $size, 'down');
    is(md5_hex($res->{body}), md5_hex($bytes), 'unchanged');
    cmp_ok(rss(@workers) - $before, '<', 8 << 20, 'nor by that');
    del($s, 'b33');
};


subtest "$MANY MB stream through a worker that stays small" => sub {
    my ($kb) = slurp('/proc/meminfo') =~ /^MemAvailable:\s+(\d+)/m;
    plan skip_all => 'this machine has less than 3 GB to spare'
        if $kb < 3 << 20 || $SandboxTest::SLOW > 1;

    my $v = create_ok({ manifest => { resources => { disk => $MANY + 100 . 'MB',
                                                     memory => '256MB' } } });
    my @workers = workers();
    my $before = rss(@workers);
    my $peak = $before;
    my $size = $MANY << 20;
    my $block = 'q' x (1 << 20);

    my $q = open_request('PUT', "/sessions/$v/files/big",
                         headers => { 'Content-Length' => $size });

    for my $i (1 .. $MANY) {
        last if SandboxTest::More::send_all($q, $block) < length $block;
        next if $i % 25;
        my $now = rss(@workers);
        $peak = $now if $now > $peak;
    }

    is(read_response($q)->{status}, 201, 'up');
    close $q;
    cmp_ok($peak - $before, '<', 8 << 20, 'the workers stayed small');

    $q = open_request('GET', "/sessions/$v/files/big");
    my $res = read_head($q);
    my $calls = 0;
    my ($got, $whole) = body_stream($q, $res, sub {
        return if ++$calls % 100;
        my $now = rss(@workers);
        $peak = $now if $now > $peak;
    });
    close $q;

    is($got, $size, 'down');
    cmp_ok($peak - $before, '<', 8 << 20, 'and stayed small');
    is(destroy($v)->{status}, 204, 'its memory is given back');
};


subtest 'destroying a session cuts its downloads' => sub {
    my $v = create_ok({ manifest => { resources => { disk => '2GB' } } });
    run($v, 'truncate -s 1G sparse');

    my $q = open_request('GET', "/sessions/$v/files/sparse", rcvbuf => 65536);
    my $res = read_head($q, chunk => 4096);
    is($res->{status}, 200, 'one has begun');

    my $t0 = time;
    is(destroy($v)->{status}, 204, 'DELETE');
    cmp_ok(time - $t0, '<', within(3), 'does not wait for its reader');

    my ($got, $whole) = body_stream($q, $res, sub {}, timeout => 10);
    ok(!$whole, "the reader is cut after $got bytes");
    cmp_ok($got, '<', 1 << 29, 'long before the end');
    close $q;
};


subtest 'destroying a session ends its uploads' => sub {
    my $v = create_ok();
    my $q = open_request('PUT', "/sessions/$v/files/up",
                         headers => { 'Content-Length' => 1 << 20 },
                         body => 'x' x 300_000);
    ok(until_true(sub {
        run($v, 'find . -type f -size +100k | wc -l')->{stdout} > 0
    }, 5), 'one has begun');

    my $t0 = time;
    is(destroy($v)->{status}, 204, 'DELETE');
    cmp_ok(time - $t0, '<', within(3), 'does not wait for it');

    my $res = read_response($q, timeout => 10);
    ok($res->{status} == 0 && $res->{error} eq 'closed'
       || $res->{status} =~ /^[45]\d\d$/,
           "the client is told: $res->{status}");
    isnt($res->{error} // '', 'timeout', 'at once');
    close $q;
};


subtest 'capabilities and methods' => sub {
    my $v = create_ok({ manifest => { capabilities => [ 'shell' ] } });
    is_problem(put($v, 'x', 'y'), 403, 'E3004', 'no "files": PUT');
    is_problem(get($v, 'x'), 403, 'E3004', 'GET');
    is_problem(glob_of($v, '*'), 403, 'E3004', 'list');
    is(run($v, 'echo ok')->{stdout}, "ok\n", 'commands run');
    destroy($v);

    $v = create_ok({ manifest => { capabilities => [ 'files' ] } });
    is_problem(exec_call($v, 'true'), 403, 'E3004', 'no "shell": exec');
    is(put($v, 'x', 'y')->{status}, 201, 'files are there');
    destroy($v);

    my $res = call('POST', "/sessions/$s/files/x", body => '');
    is_problem($res, 405, 'E3010', 'POST to a file');
    is(join(' ', sort split /,\s*/, $res->{headers}{allow} // ''),
       'DELETE GET HEAD PUT', 'Allow');
};


destroy($s);
$t->finish;
done_testing();
