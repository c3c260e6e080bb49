#!/usr/bin/perl

# /files of E2B: files as they are, and uploads, as one body or as a form,
# compressed or not.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";

use IO::Compress::Gzip qw(gzip);
use IO::Uncompress::Gunzip qw(gunzip);
use Test::More;
use SandboxTest::More;
use SandboxTest::Connect;

my $MB = 1 << 20;
my $B = 'boundary';

my $t = connect_server(extra => <<'CONF');
            gzip on;
            gzip_types *;
            types { text/html html; image/svg+xml svg; text/plain txt;
                    application/json json; image/png png; }
CONF
my $s = create_ok({ timeout_s => 3600,
                    manifest => { resources => {
                        disk => '24MB', memory => '256MB' } } });


sub sh { return run($s, @_)->{stdout} }

# Of a query.

sub query {
    my (%o) = @_;

    return join '', map { ($_ eq 'path' ? '?' : '&') . "$_=" . enc($o{$_}) }
        sort grep { defined $o{$_} } keys %o;
}

sub download {
    my ($path, %o) = @_;

    return call($o{method} // 'GET', '/files?path=' . enc($path)
                . ($o{query} // ''), base => '/e2b', raw => 1,
                headers => { %{ rpc_headers($s) }, %{ $o{headers} || {} } });
}

sub upload {
    my ($body, %o) = @_;

    my $path = defined $o{path} ? '?path=' . enc($o{path}) : '?';

    return call('POST', "/files$path" . ($o{query} // ''), base => '/e2b',
                body => $body,
                headers => { 'Content-Type' => $o{type}
                                             // 'application/octet-stream',
                             %{ rpc_headers($s, token => $o{token}) },
                             %{ $o{headers} || {} } });
}

# A form of [filename, content, name].

sub form {
    return join('', map {
        "--$B\r\nContent-Disposition: form-data; name=\""
        . ($_->[2] // 'file') . '"'
        . (defined $_->[0] ? "; filename=\"$_->[0]\"" : '')
        . "\r\nContent-Type: application/octet-stream\r\n\r\n$_->[1]\r\n"
    } @_) . "--$B--\r\n";
}

sub upload_form {
    my ($parts, %o) = @_;

    return upload(ref $parts ? form(@$parts) : $parts, %o,
                  type => "multipart/form-data; boundary=$B");
}

sub packed {
    my ($bytes, $packed) = @_;

    gzip(\$bytes, \$packed) or die;

    return $packed;
}

sub is_error {
    my ($r, $status, $re, $name) = @_;

    my $j = $r->{json} // eval { JSON::PP->new->utf8->decode($r->{body}) } // {};

    ok($r->{status} == $status && ($j->{code} // 0) == $status
       && ($j->{message} // '') =~ $re, $name)
        or diag("$r->{status} $r->{body}");
}

sub chunked {
    my ($bytes, $size) = @_;

    return join('', map { sprintf "%x\r\n%s\r\n", length, $_ }
                unpack "(a$size)*", $bytes) . "0\r\n\r\n";
}


subtest 'a file as it is' => sub {
    put($s, 'a b.txt', 'content');
    put($s, 'empty', '');

    my $r = download('a b.txt');
    is("$r->{status} $r->{body}", '200 content', 'GET');
    is($r->{headers}{'content-type'}, 'text/plain', 'its type');
    is($r->{headers}{'content-length'}, 7, 'its length');
    is($r->{headers}{'content-disposition'},
       "inline; filename=\"a b.txt\"; filename*=UTF-8''a%20b.txt",
       'its name');
    like($r->{head}, qr/^vary: accept-encoding/mi, 'Vary');
    is($r->{headers}{'x-content-type-options'}, 'nosniff', 'nosniff');
    like($r->{headers}{'content-security-policy'}, qr/^sandbox;/, 'CSP');

    my ($etag, $date) = @{ $r->{headers} }{qw(etag last-modified)};

    $r = download('empty');
    is("$r->{status} $r->{headers}{'content-length'} $r->{body}", '200 0 ',
       'an empty one');
    is(download('a b.txt', method => 'HEAD')->{status}, 200, 'HEAD');

    $r = download('a b.txt', headers => { Range => 'bytes=2-4' });
    is("$r->{status} $r->{body}", '206 nte', 'a range');
    is(download('a b.txt', headers => { 'If-None-Match' => $etag })
           ->{status}, 304, 'If-None-Match');
    is(download('a b.txt', headers => { 'If-Modified-Since' => $date })
           ->{status}, 304, 'If-Modified-Since');
    is(download('a b.txt', headers => { 'If-Match' => '"x"' })->{status},
       412, 'If-Match');

    put($s, "x.$_", '<script>1</script>') for qw(html svg);
    is(download("x.$_")->{headers}{'content-type'}, 'text/plain',
       "$_ is shown as text") for qw(html svg);
    put($s, "y.$_", '1') for qw(JSON png zzz);
    is(download('y.JSON')->{headers}{'content-type'}, 'application/json',
       'another type');
    is(download('y.zzz')->{headers}{'content-type'},
       'application/octet-stream', 'one that is not known');

    is(download('/home/user/a b.txt', query => '&username=user')->{status},
       200, 'as user');
    is(download('~/a b.txt')->{status}, 200, 'in the home');
    is(download('../a b.txt', query => '&username=root')->{status}, 404,
       'as root, elsewhere');
    is(call('GET', '/files?path=a+b.txt', base => '/e2b', raw => 1,
            headers => rpc_headers($s))->{status}, 200, 'a "+" is a space');

    is_error(download('nope'), 404,
             qr{^path '/home/user/nope' does not exist$}, 'none');
    is_error(download('/tmp'), 400, qr{^path '/tmp' is a directory$},
             'a directory');
    is_error(download(''), 400, qr{^path '/home/user' is a directory$},
             'no path');
    is_error(download('x', query => '&username=bob'), 401,
             qr/^error looking up user 'bob'/, 'a user who is unknown');
    is_error(download("a\0b"), 400, qr/NUL/, 'a NUL');
    is_error(download('/proc/self/status'), 400, qr/./, 'what is no file');
};


subtest 'a file that nginx compresses' => sub {
    my $text = 'all work and no play ' x 5000;
    put($s, 'long.txt', $text);

    my $r = download('long.txt', headers => { 'Accept-Encoding' => 'gzip' });
    is($r->{headers}{'content-encoding'}, 'gzip', 'gzip');
    gunzip(\$r->{body}, \my $plain);
    ok($plain eq $text, 'all of it');

    $r = download('long.txt');
    is($r->{headers}{'content-encoding'}, undef, 'if it is asked for');
    is_error(download('long.txt', headers => { 'Accept-Encoding' => $_ }),
             406, qr/identity/, $_)
        for 'identity;q=0', 'gzip, *;q=0', 'identity; q=0.000, gzip',
            'br, IDENTITY;Q=0';
    is(download('long.txt', headers => { 'Accept-Encoding' => $_ })
           ->{status}, 200, $_)
        for '*;q=0, identity;q=0.1', 'identity;q=1', 'br;q=0', ';', '=,=';

    $r = rpc($s, 'filesystem.Filesystem/ListDir', { path => '/usr/bin' },
             headers => { 'Accept-Encoding' => 'gzip' });
    ok(length $r->{body} > 10000
       && !defined $r->{headers}{'content-encoding'},
       'a list is never compressed');
};


subtest 'one file as the body' => sub {
    my $r = upload('content', path => 'n/e/w');
    is($r->{status}, 200, 'POST');
    is_deeply($r->{json}, [ { path => '/home/user/n/e/w', name => 'w',
                              type => 'file' } ], 'what is answered');
    is(sh('cat n/e/w; stat -c " %U %a" n n/e/w'),
       "content user 755\n user 644\n", 'what is written');
    is(upload('x', path => '/0/1/f')->{status}, 200, 'at the root');
    is(sh('stat -c "%U:%G %a" /0 /0/1 /0/1/f'),
       "user:user 755\nuser:user 755\nuser:user 644\n", 'is the user\'s');
    sh('umask 077; mkdir own; printf secret > own/f');
    is(upload('new', path => 'own/f')->{status}, 200, 'over one of his own');
    is(sh('cat own/f; stat -c " %U %a" own own/f'),
       "new user 700\n user 600\n", 'which keeps its mode');
    is(upload('', path => 'none')->{status}, 200, 'an empty one');
    is(download('none')->{body}, '', 'is empty');
    is(upload('x', path => 'r', query => '&username=root')->{json}[0]{path},
       '/root/r', 'by root');
    is(download('~/r', query => '&username=root')->{body}, 'x', 'is there');
    is(rpc($s, 'filesystem.Filesystem/Stat', { path => '/root/r' })
           ->{json}{entry}{owner}, 'root', 'and belongs to root');

    my $big = join '', map { pack 'N', $_ } 1 .. $MB;
    $r = upload(chunked($big, 100_003), path => 'big',
                headers => { 'Transfer-Encoding' => 'chunked' });
    is($r->{status}, 200, '4 MB in chunks');
    is(sh('md5sum < big'), md5_hex($big) . "  -\n", 'are what came');
    is(upload(packed($big), path => 'big2',
              headers => { 'Content-Encoding' => 'gzip' })->{status}, 200,
       'compressed');
    is(sh('cmp big big2 && echo same; rm big big2'), "same\n",
       'the same');
    is(upload(packed('one') . packed('two'), path => 'two',
              headers => { 'Content-Encoding' => 'GZIP' })->{status}, 200,
       'of two members');
    is(sh('cat two'), 'onetwo', 'both');

    my $p = packed('content');
    my %bad = ('no gzip' => 'plain text', 'a cut one' => substr($p, 0, -1),
               'none at all' => '', 'what follows it' => $p . 'x',
               'zeros after it' => $p . "\0" x 8,
               'a wrong checksum' => substr($p, 0, -8) . 'x' x 8,
               'empty members without end' => packed('') x 60_000);

    for my $name (sort keys %bad) {
        is_error(upload($bad{$name}, path => 'two',
                        headers => { 'Content-Encoding' => 'gzip' }), 400,
                 qr/gzip/, $name);
    }

    is(sh('cat two; ls -a | grep -c sandbox'), "onetwo0\n",
       'nothing is left of these');

    is_error(upload('x', path => 'two', type => $_), 400,
             qr/^unsupported content type: \Q$_\E, expected/, $_)
        for 'text/plain', 'application/octet-streams', 'multipart/mixed', '';
    is_error(upload('x', path => 'two',
                    headers => { 'Content-Encoding' => 'br' }), 400,
             qr/Content-Encoding/, 'another encoding');
    is_error(upload('x'), 400, qr/path/, 'no path');
    is_error(upload('x', path => '/tmp'), 400,
             qr{^path '/tmp' is a directory$}, 'onto a directory');
    is_error(upload('x', path => 'two/below'), 400, qr/./, 'below a file');
    is_error(upload('x', path => 'x', query => '&username=bob'), 401,
             qr/bob/, 'a user who is unknown');
    is_error(upload('x', path => '/usr/x'), 403, qr{^path '/usr/x': },
             'where none may be');
    is_error(upload('x', path => 'x', token => '0' x 64), 401,
             qr/^access token present in header but does not match$/,
             'a wrong token');
};


subtest 'files in a form' => sub {
    my $r = upload_form([ [ '/tmp/1', 'one' ], [ 'd/2', '' ],
                          [ undef, 'dropped', 'other' ],
                          [ "/tmp/\xc3\xa4 %22x", "\r\n--\r\n--$B-\r\n" ] ]);
    is($r->{status}, 200, 'several') or diag($r->{body});
    is_deeply($r->{json}, [
        { path => '/tmp/1', name => '1', type => 'file' },
        { path => '/home/user/d/2', name => '2', type => 'file' },
        { path => "/tmp/\xe4 \"x", name => "\xe4 \"x", type => 'file' },
    ], 'in their order');
    is(sh('cat /tmp/1 d/2; cat /tmp/*x'),
       "one\r\n--\r\n--$B-\r\n", 'what is in them');

    is(upload_form([ [ 'ignored', 'x' ] ], path => 'q')->{json}[0]{path},
       '/home/user/q', 'the path of the query');
    is(upload_form([ [ undef, 'y' ] ], path => 'q')->{status}, 200,
       'without a filename');
    is(sh('cat q'), 'y', 'is written');
    is_deeply(upload_form([ [ undef, 'x', 'other' ] ])->{json}, [],
              'no file');
    is_deeply(upload_form("--$B--")->{json}, [], 'and no part');
    is(upload_form([ map { [ "m/$_", $_ ] } 1 .. 100 ])->{status}, 200,
       'a hundred');
    is(sh('cat m/* | wc -c'), "192\n", 'all of them');

    my $form = form([ 'g/1', 'x' x 100_000 ], [ 'g/2', "\r" x 100_000 ]);
    is(upload_form(packed($form),
                   headers => { 'Content-Encoding' => 'gzip' })->{status},
       200, 'compressed');
    is(upload_form(chunked($form, 7),
                   headers => { 'Transfer-Encoding' => 'chunked' })
           ->{status}, 200, 'in small chunks');
    is(sh('cat g/1 | md5sum; cat g/2 | md5sum'),
       md5_hex('x' x 100_000) . "  -\n" . md5_hex("\r" x 100_000) . "  -\n",
       'as they came');

    is_error(upload_form([ [ 's', '1' ], [ './s', '2' ] ]), 400,
             qr{'/home/user/s'}, 'one path twice');
    is(sh('cat s'), '1', 'the first is written');
    is_error(upload_form([ [ 'v', '1' ], [ 'w', '2' ] ], path => 'u'), 400,
             qr{'/home/user/u'}, 'two for one path of the query');
    is_error(upload_form([ [ undef, '1' ] ]), 400, qr/filename/,
             'no name at all');
    is_error(upload_form([ [ "a%0d\0", '1' ] ]), 400, qr/control/, 'a NUL');
    is_error(upload_form([ [ 'ok', '1' ], [ '/tmp', '2' ], [ 'no', 3 ] ]),
             400, qr{^path '/tmp' is a directory$}, 'the second fails');
    is(sh('ls ok no 2>/dev/null'), "ok\n", 'the first alone is there');

    $form = form([ 'cut', 'content' ]);
    is_error(upload_form(substr $form, 0, -length "--$B--\r\n"), 400,
             qr/boundary/, 'a form that ends too early');
    is_error(upload_form(substr $form, 0, -6), 400, qr/boundary/,
             'or within its end');
    is(sh('ls cut 2>&1 | grep -c cannot'), "1\n", 'leaves nothing');
    is_error(upload_form("--$B\r\n" . 'x' x 17000), 400, qr/long/,
             'headers that are too long');
    is_error(upload('x', type => 'multipart/form-data'), 400, qr/boundary/,
             'no boundary');
};


subtest 'metadata' => sub {
    my %h = ('X-Metadata-Author' => 'mish', 'x-metadata-purpose' => 'a b');

    my $r = upload('x', path => 'meta', headers => \%h);
    is_deeply($r->{json}, [ { path => '/home/user/meta', name => 'meta',
                              type => 'file',
                              metadata => { author => 'mish',
                                            purpose => 'a b' } } ],
              'is told') or diag($r->{body});
    is_deeply(rpc($s, 'filesystem.Filesystem/Stat', { path => 'meta' })
                  ->{json}{entry}{metadata},
              { author => 'mish', purpose => 'a b' }, 'and kept');
    upload('y', path => 'meta', headers => { 'X-Metadata-New' => '1' });
    is_deeply(rpc($s, 'filesystem.Filesystem/Stat', { path => 'meta' })
                  ->{json}{entry}{metadata}, { new => '1' }, 'replaced');
    upload('z', path => 'meta');
    is(rpc($s, 'filesystem.Filesystem/Stat', { path => 'meta' })
           ->{json}{entry}{metadata}, undef, 'gone');

    $r = upload_form([ [ 'f1', 1 ], [ 'f2', 2 ] ], headers => \%h);
    is($r->{json}[1]{metadata}{author}, 'mish', 'of all files of a form');

    is_error(upload('x', path => 'meta', headers => { @$_ }), 400, qr/./,
             "$_->[0]: " . length $_->[1])
        for [ 'X-Metadata-' . 'k' x 247, 'v' ],
            [ 'X-Metadata-K', "\xc3\xa4" ],
            [ 'X-Metadata-K', 'v' x 4096 ];
    is(upload('x', path => 'meta', headers => { 'X-Metadata-' => 'v' })
           ->{status}, 200, 'no key');
};


subtest 'limits' => sub {
    my $r = upload(chunked("\0" x (30 * $MB), 1 << 16), path => 'huge',
                   headers => { 'Transfer-Encoding' => 'chunked' });
    is_error($r, 507, qr/./, 'more than the disk has');
    is(upload_form(form([ 'huge', "\0" x (30 * $MB) ]))->{status}, 507,
       'in a form');
    is(upload(packed("\0" x (30 * $MB)), path => 'huge',
              headers => { 'Content-Encoding' => 'gzip' })->{status}, 507,
       'compressed');
    is(sh('ls huge 2>&1 | grep -c cannot'), "1\n", 'nothing is left');
};


subtest 'clients that are slow, or go' => sub {
    my $form = form([ 'slow/1', "a\r\n--bound" ], [ 'slow/2', 'b' ]);
    my %h = (%{ rpc_headers($s) }, 'Content-Length' => length $form,
             'Content-Type' => "multipart/form-data; boundary=$B");

    my $c = open_request('POST', '/files', base => '/e2b', headers => \%h);
    SandboxTest::More::send_all($c, $_) for split //, $form;
    is(read_response($c)->{status}, 200, 'a byte at a time');
    is(sh('cat slow/*'), "a\r\n--boundb", 'is written');

    $c = open_request('POST', '/files', base => '/e2b', headers => \%h);
    SandboxTest::More::send_all($c, substr $form, 0, 120);
    close $c;

    $h{'Content-Type'} = 'application/octet-stream';
    $c = open_request('POST', '/files?path=half', base => '/e2b',
                      headers => { %h, 'Content-Length' => 100 });
    SandboxTest::More::send_all($c, 'x' x 99);
    until_true(sub { sh('ls -a | grep -c "^\.sandbox"') > 0 });
    close $c;
    ok(until_true(sub { sh('ls -a | grep -c "^\.sandbox"') == 0 }),
       'one that goes leaves nothing');
    is(sh('ls half 2>&1 | grep -c cannot'), "1\n", 'not its file either');

    for ([ 'half', 100 ], [ '/tmp', 400 ]) {
        $c = open_request('POST', "/files?path=$_->[0]", base => '/e2b',
                          headers => { %h, 'Content-Length' => 3,
                                       Expect => '100-continue' });
        my $line = SandboxTest::More::read_some($c, time + within(20));
        like($line, qr{^HTTP/1.1 $_->[1] }, "Expect: $_->[1]");
        close $c;
    }
};


subtest 'a body that is more than it seems' => sub {
    my $zeros = packed(form([ undef, "\0" x (32 * $MB), 'other' ]));

    # what is dropped is a part that is no file, and what follows the form

    my $bomb = $zeros . packed("\0" x (32 * $MB)) x 20;
    my $before = rss(workers());
    my $job = async {
        upload($bomb, type => "multipart/form-data; boundary=$B",
               headers => { 'Content-Encoding' => 'gzip' })->{status};
    };

    my $worst = 0;

    do {
        my $from = time;

        call('GET', '/health');
        $worst = time - $from if time - $from > $worst;
    } while (!$job->ready);

    is($job->get, 200, 'it is read');
    cmp_ok($worst, '<', within(0.5), 'others are not held up');
    cmp_ok(rss(workers()) - $before, '<', 32 * $MB, 'nor is memory taken');
};


subtest 'several files become one' => sub {
    sub compose {
        return call('POST', '/files/compose', base => '/e2b',
                    json => $_[0], headers => rpc_headers($s));
    }

    sh('printf 1 > c1; printf 2 > c2; mkdir cd');

    my $r = compose({ source_paths => [ 'c1', '/home/user/c2' ],
                      destination => 'c/all' });
    is($r->{status}, 200, 'compose');
    is_deeply($r->{json}, { path => '/home/user/c/all', name => 'all',
                            type => 'file' }, 'is told');
    is(sh('cat c/all; ls c1 c2 2>&1 | grep -c cannot'), "122\n",
       'and the sources are gone');
    is_error(compose({ source_paths => [], destination => 'x' }), 400,
             qr/source_paths/, 'of none');
    is_error(compose({ source_paths => ['c/all'] }), 400, qr/destination/,
             'to nowhere');
    is_error(compose({ source_paths => ['c/all'], destination => 'c/all' }),
             400, qr/destination/, 'to itself');
    is_error(compose({ source_paths => ['nope'], destination => 'x' }), 404,
             qr/./, 'what is missing');
    is_error(compose({ source_paths => ['cd'], destination => 'x' }), 400,
             qr/./, 'a directory');
    is_error(compose({ source_paths => ['c/all'], destination => 'x',
                       username => 'bob' }), 401, qr/bob/,
             'a user who is unknown');
};


$t->finish;
done_testing();
