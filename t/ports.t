#!/usr/bin/perl

# ANY /sessions/{id}/ports/{port}/...: what a program in a session gets of a
# request, what a client gets of its answer, and what neither may get.

use strict;
use warnings;

use Digest::SHA qw(sha256_hex);
use FindBin;
use lib "$FindBin::Bin/lib";

use IO::Socket::INET;
use Test::More;
use SandboxTest::More;
use SandboxTest::Stream;

use File::Temp qw(tempdir);

# The names of ports, as shipped, on a port of their own.

my $DIR = tempdir(CLEANUP => 1);
my ($H2, $NAMES) = (SandboxTest::free_port(), SandboxTest::free_port());

chmod 0755, $DIR;

my $conf = SandboxTest::slurp("$SandboxTest::ROOT/conf/sandbox-ports.conf");

$conf =~ s/127\.0\.0\.1:8081/127.0.0.1:$NAMES/;
open my $f, '>', "$DIR/ports.conf" or die $!;
print $f $conf;
close $f;

my $t = server(extra => "        listen 127.0.0.1:$H2 http2;\n"
                        . "        sandbox_port_timeout 3s;",
               http => "    include $DIR/ports.conf;\n");
my $s = create_ok({ manifest => { capabilities => [qw(shell files ports)] } });
my $BASE = "/sessions/$s/ports/8080";

sub serve {
    my ($id, @args) = @_;

    my $res = exec_call($id, ['python3', 'ports.py', map { "$_" } @args],
                        background => JSON::PP::true);
    my $port = $args[0];

    is($res->{status}, 202, "a server on port $port") or diag($res->{body});
    ok(until_true {
        run($id, "grep -ci ':@{[ sprintf '%04X', $port ]} .* 0A ' "
                 . '/proc/net/tcp /proc/net/tcp6')->{stdout} =~ /:[1-9]/
    }, 'that listens');

    return $res->{json}{pid};
}

sub raw {
    my ($bytes, %o) = @_;

    my $query = 'b=' . enc(b64($bytes)) . '&times=' . ($o{times} // 1)
                . '&pad=' . ($o{pad} // 0) . ($o{hang} ? '&hang=1' : '');

    return call('GET', "$BASE/raw?$query", timeout => 20, %o);
}

put($s, 'ports.py', SandboxTest::slurp("$FindBin::Bin/lib/inside/port-server.py"));
serve($s, 8080);


subtest 'a request arrives as it is' => sub {
    my $r = call('GET', "$BASE/a%20b/..%2fc//d?x=%zz&path=/etc&y=1+2");

    is($r->{status}, 200, 'status') or diag($r->{body});
    like($r->{body}, qr{^GET /a%20b/\.\.%2fc//d\?x=%zz&path=/etc&y=1\+2 HTTP/1\.1\r},
         'path and query');
    like($r->{body}, qr/^Host: localhost:8080\r$/m, 'Host');
    like($r->{body}, qr/^X-Forwarded-For: 127\.0\.0\.1\r$/m, 'for whom');
    like($r->{body}, qr/^X-Forwarded-Proto: http\r$/m, 'how');
    like($r->{body}, qr/^X-Forwarded-Host: localhost\r$/m, 'by what name');
    like($r->{body}, qr{^X-Forwarded-Prefix: /v1$BASE\r?$}m, 'below what');

    like(call('GET', $BASE)->{body}, qr{^GET / HTTP}, 'no path is the root');
    like(call('GET', "$BASE?x=%zz&path=%00&path=b")->{body},
         qr{^GET /\?x=%zz&path=%00&path=b HTTP}, 'with its query');
    like(call('GET', "$BASE/")->{body}, qr{^GET / HTTP}, 'and so is a slash');
    like(call($_, "$BASE/m")->{body}, qr{^$_ /m HTTP}, $_)
        for qw(POST PUT PATCH DELETE OPTIONS PURGE);
    is(call('HEAD', "$BASE/m")->{status}, 200, 'HEAD');
};


subtest 'what is not for the program' => sub {
    my $r = call('GET', "$BASE/", headers => {
        Authorization => 'Bearer secret', 'X-API-Key' => 'secret',
        Cookie => 'secret=1', 'Proxy-Authorization' => 'secret',
        'X-Forwarded-For' => 'secret', Forwarded => 'for=secret',
        'X-Real-IP' => 'secret', TE => 'trailers', 'Keep-Alive' => 'secret',
        Connection => 'close, X-Secret', 'X-Secret' => 'secret',
        'X-Port-Authorization' => 'Basic dTpw', 'X-Plain' => 'plain' });

    unlike($r->{body}, qr/secret|trailers/i, 'stays out');
    like($r->{body}, qr/^X-Plain: plain\r?$/m, 'the rest passes');
    like($r->{body}, qr/^Authorization: Basic dTpw\r?$/m,
         'and what is meant for it');
    is(() = $r->{body} =~ /^Connection:/mg, 1, 'one Connection');

    is_problem(call('GET', "$BASE/", headers => {
                    Connection => join ',', map { "x$_" } 1 .. 40 }),
               400, 'E3001', 'a Connection without end', qr/Connection/);
};


subtest 'what is not for the client' => sub {
    my @h = ('Set-Cookie: a=1', 'Service-Worker-Allowed: /',
             'Access-Control-Allow-Origin: *', 'Clear-Site-Data: "*"',
             'X-Accel-Redirect: /v1/health', 'X-Accel-Buffering: yes',
             'Connection: X-Gone', 'X-Gone: 1', 'Keep-Alive: 5',
             'Strict-Transport-Security: max-age=9', 'X-Kept: kept',
             'WWW-Authenticate: Basic realm=x', 'Content-Encoding: x');
    my $r = call('GET', "$BASE/?" . join '&', map { 'h=' . enc($_) } @h);
    my $got = $r->{headers};

    is($r->{status}, 200, 'status');
    like($r->{body}, qr{^GET /}, 'no internal redirect');
    is($got->{'x-kept'}, 'kept', 'the rest passes');
    is($got->{'content-encoding'}, 'x', 'with what it says of itself');
    is($got->{$_}, undef, $_)
        for map { lc((split /:/)[0]) } grep { !/Kept|^Conn|Encod/ } @h;
    like($got->{'content-security-policy'}, qr/^sandbox$/, 'a CSP');
    is($got->{'x-content-type-options'}, 'nosniff', 'no sniffing');
    ok($got->{'x-request-id'}, 'X-Request-ID');

    for (['/in' => "/v1$BASE/in"], ['http://localhost:8080/in?q' =>
         "/v1$BASE/in?q"], ['http://else.example/' => 'http://else.example/'])
    {
        my ($from, $to) = @$_;

        $r = call('GET', "$BASE/?h=" . enc("Location: $from"));
        like($r->{headers}{location}, qr{(?:http://[^/]+)?\Q$to\E$},
             "Location: $from");
    }
};


subtest 'bodies' => sub {
    my $body = join '', map { chr(rand 256) } 1 .. 100_000;

    is(call('POST', "$BASE/sink", body => $body)->{body},
       '100000 ' . sha256_hex($body), 'by length');

    my $c = open_request('POST', "$BASE/sink",
                         headers => { 'Transfer-Encoding' => 'chunked' });

    SandboxTest::More::send_all($c, sprintf "%x\r\n%s\r\n", length $_, $_)
        for map { substr $body, $_ * 10_000, 10_000 } 0 .. 9;
    SandboxTest::More::send_all($c, "0\r\n\r\n");
    is(read_response($c, method => 'POST')->{body},
       '100000 ' . sha256_hex($body), 'in chunks');

    is(call('POST', "$BASE/sink")->{body}, '0 ' . sha256_hex(''), 'none');

    is(call('GET', "$BASE/chunks")->{body}, 'onetwo' . 'x' x 70000,
       'an answer in chunks');
    is(call('GET', "$BASE/big?n=0")->{body} // '', '', 'an empty answer');
    is(raw("HTTP/1.0 200 OK\r\n\r\nto the end")->{body}, 'to the end',
       'an answer that ends with its connection');
    is(raw("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 X\r\nLink: x\r\n\r\n"
           . "HTTP/1.1 404 No\r\nContent-Length: 2\r\n\r\nno")->{status}, 404,
       'what comes before the answer is not it');
    is(raw("HTTP/1.1 204 No\r\n\r\n")->{status}, 204, 'no content');
    is(raw("HTTP/1.1 304 No\r\nETag: \"x\"\r\n\r\n")->{status}, 304,
       'not modified');
};


subtest 'large bodies, flat memory' => sub {
    my $size = 100 * 1024 * 1024;
    my $block = '0123456789abcdef' x 65536;
    my ($before) = sort { $b <=> $a } map { rss($_) } workers();
    my $c = open_request('GET', "$BASE/big?n=$size");
    my $head = read_head($c, timeout => 30);
    my $got = length $head->{rest};

    is($head->{status}, 200, 'a download begins');
    while (sysread $c, my $buf, 1 << 20) { $got += length $buf }
    is($got, $size, 'and is whole');
    close $c;

    $c = open_request('POST', "$BASE/sink",
                      headers => { 'Content-Length' => $size });
    SandboxTest::More::send_all($c, $block) for 1 .. 100;
    like(read_response($c, method => 'POST', timeout => 60)->{body},
         qr/^$size /, 'an upload');
    close $c;

    my ($after) = sort { $b <=> $a } map { rss($_) } workers();
    cmp_ok($after - $before, '<', 4 * 1024 * 1024, 'no worker has grown')
        or diag("$before, then $after");
};


subtest 'events come at once' => sub {
    my $c = open_request('GET', "$BASE/events?file=/home/user/go");
    my $head = read_head($c, timeout => 20);
    my $text = $head->{rest};

    is($head->{headers}{'content-type'}, 'text/event-stream', 'type');
    $text .= SandboxTest::More::read_some($c, time + within(20)) // '' until $text =~ /data: 1/;
    unlike($text, qr/data: 2/, 'one');
    put($s, 'go', '');
    $text .= SandboxTest::More::read_some($c, time + within(20)) // last while $text !~ /data: 2/;
    like($text, qr/data: 2/, 'and the next');
};


subtest 'WebSocket' => sub {
    my $w = ws_open("$BASE/ws");

    is($w->{status}, 101, 'upgraded') or return diag($w->{body});
    is($w->{headers}{'sec-websocket-accept'}, 's3pPLMBiTxaQ9kYGzzhZRbK+xOo=',
       'by the program');
    like($w->{headers}{upgrade}, qr/^websocket$/i, 'Upgrade');
    is($w->{headers}{'x-hop'}, undef, 'what Connection names is left out');

    for my $size (0, 5, 126, 70_000) {
        my $data = 'x' x $size;
        $w->send(2, $data);
        is_deeply($w->next, [ 2, $data ], "an echo of $size bytes");
    }

    $w->send(8, pack 'n', 1000);
    is_deeply([ $w->closed ], [ 1000, '' ], 'closed by both');

    like(call('GET', "$BASE/", headers => { Upgrade => 'websocket' })->{body},
         qr/^Connection: close/m, 'Upgrade alone is none');
    like(call('POST', "$BASE/", body => 'x', headers => {
              Connection => 'Upgrade', Upgrade => 'websocket' })->{body},
         qr/^Connection: close/m, 'nor is one with a body');
    is(raw("HTTP/1.1 101 No\r\nUpgrade: x\r\n\r\n")->{status}, 502,
       'none that was not asked for');
};


subtest 'HTTP/2' => sub {
    plan skip_all => 'curl with HTTP/2 is needed'
        if `curl --version 2>/dev/null` !~ /HTTP2/;

    my $u = "http://127.0.0.1:$H2/v1$BASE";
    my @curl = ('curl', '-sS', '--http2-prior-knowledge', '-m', within(30));
    my $out = sub { open my $p, '-|', @curl, @_ or die; local $/; <$p> };

    like($out->("$u/h2?x=1"), qr{^GET /h2\?x=1 HTTP/1\.1\r}, 'GET');
    like($out->('--data-binary', 'abc', "$u/sink"), qr/^3 /, 'a body');
    like($out->('-w', '%{http_code}', '-H', 'Sec-WebSocket-Version: 13',
                "$u/ws"),
         qr/HTTP\/1\.1.*400$/s, 'an upgrade is refused');
};


subtest 'bad answers' => sub {
    my $ok = "HTTP/1.1 200 OK\r\n";

    is(raw($_->[1], %{ $_->[2] || {} })->{status}, 502, $_->[0]) for (
        ['nothing', ''],
        ['garbage', "\x00\x01garbage\r\n\r\n"],
        ['HTTP/0.9', "hello\n"],
        ['half a head', "${ok}Content-"],
        ['status 099', "HTTP/1.1 099 X\r\n\r\n"],
        ['status 999', "HTTP/1.1 999 X\r\n\r\n"],
        ['length and chunks', "${ok}Content-Length: 5\r\n"
                              . "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"],
        ['chunks and length', "${ok}Transfer-Encoding: chunked\r\n"
                              . "Content-Length: 5\r\n\r\n0\r\n\r\n"],
        ['two lengths', "${ok}Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello!"],
        ['a negative length', "${ok}Content-Length: -1\r\n\r\nx"],
        ['a length in words', "${ok}Content-Length: 5, 5\r\n\r\nhello"],
        ['another coding', "${ok}Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"],
        ['chunks of HTTP/1.0', "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"],
        ['a folded header', "${ok}X-A: b\r\n c\r\n\r\n"],
        ['a NUL', "${ok}X-A: b\0c\r\n\r\n"],
        ['300 headers', $ok . "X-A: b\r\n" x 300 . "\r\n"],
        ['20 KB of head', $ok . 'X-A: ', { pad => 20_000 }],
        ['informational without end', "HTTP/1.1 100 C\r\n\r\n", { times => 2000 }]);

    is(call('GET', "$BASE/endless", timeout => 20)->{status}, 502,
       'headers without end');

    my $whole = join '', read_rest(open_request('GET',
        "$BASE/raw?times=1&pad=0&b=" . enc(b64("garbage\r\n\r\n"))));
    is(() = $whole =~ /^X-Request-ID:/mgi, 1, 'an id, and one alone');

    my $r = raw("${ok}Content-Length: 100\r\n\r\nshort");
    isnt($r->{error} // '', '', 'a short body is cut');
    my $c = open_request('GET', "$BASE/raw?times=1&pad=0&b=" . enc(b64(
        "${ok}Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nzz\r\n")));
    my ($all, $closed) = read_rest($c);
    ok($closed && $all !~ /^0\r\n/m, 'a bad chunk too');
    is(raw("${ok}Content-Length: 5\r\n\r\nhello, and more")->{body}, 'hello',
       'what is too much is dropped');

    is(call('GET', "$BASE/hang", timeout => 30)->{status}, 504, 'no answer');
    is(raw("HTTP/1.1 200 O", hang => 1, timeout => 30)->{status}, 504,
       'nor the rest of one');
    is(call('GET', "$BASE/")->{status}, 200, 'and all goes on');
};


subtest 'who is refused' => sub {
    is_problem(call('GET', "/sessions/$s/ports/8081/"), 502, 'E5002',
               'nothing listens', qr/nothing listens on port 8081/);
    is_problem(call('GET', "/sessions/$s/ports/$_/"), 400, 'E3001',
               "port $_", qr/1 to 65535/) for qw(0 65536 x 08080 -1 99999999);
    is_problem(call('GET', '/sessions/i00000000000000000000000/ports/80/'),
               404, 'E2009', 'no session');

    my $other = create_ok();
    is_problem(call('GET', "/sessions/$other/ports/8080/"), 403, 'E3004',
               'without the capability');
    destroy($other);

    serve($s, 8082, 'v6');
    is(call('GET', "/sessions/$s/ports/8082/")->{status}, 200, 'on ::1 alone');

    my $pid = exec_call($s, ['python3', '-c', <<'END'],
import socket, time
s = socket.socket()
s.bind(('127.0.0.1', 8083))
s.listen(0)
held = [socket.create_connection(('127.0.0.1', 8083))]
print('full', flush=True)
time.sleep(1000)
END
        background => JSON::PP::true)->{json}{pid};

    until_true { run($s, "grep -c ':1F93 ' /proc/net/tcp")->{stdout} >= 3 };
    is_problem(call('GET', "/sessions/$s/ports/8083/", timeout => 30), 504,
               'E5002', 'a listener that takes nobody in', qr/takes no/);
};


subtest 'the end of a session' => sub {
    my $id = create_ok({ manifest => { capabilities => [qw(shell files ports)] } });

    put($id, 'ports.py', SandboxTest::slurp("$FindBin::Bin/lib/inside/port-server.py"));
    serve($id, 9000);

    my $c = open_request('GET',
                         "/sessions/$id/ports/9000/big?n=10000000000");
    is(read_head($c, timeout => 20)->{status}, 200, 'an answer begins');
    my $w = ws_open("/sessions/$id/ports/9000/ws");
    is($w->{status}, 101, 'and an upgrade');

    is(destroy($id)->{status}, 204, 'the session is destroyed');

    my $n = 0;
    while (defined(my $more = SandboxTest::More::read_some($c, time + within(20)))) {
        last if $more eq '';
        $n += length $more;
    }
    cmp_ok($n, '<', 10_000_000_000, 'the answer is cut');
    is($w->next, undef, 'and the WebSocket');
    is_problem(call('GET', "/sessions/$id/ports/9000/"), 404, 'E2009',
               'no session is left');
};


subtest 'by name' => sub {
    my $ask = sub {
        my ($host, %h) = @_;

        local $SandboxTest::More::PORT = $NAMES;
        local $SandboxTest::More::BASE = '';

        return call('GET', delete $h{path} // '/a%2fb?x=%zz',
                    headers => { Host => $host, %h });
    };
    my $name = "8080-$s.ports.localhost";
    my $r = $ask->("$name:$NAMES", Cookie => 'a=1',
                   Authorization => 'Bearer secret');

    is($r->{status}, 200, 'status') or diag($r->{body});
    like($r->{body}, qr{^GET /a%2fb\?x=%zz HTTP}, 'path and query');
    like($r->{body}, qr/^X-Forwarded-Host: \Q$name\E:$NAMES\r?$/m, 'its name');
    unlike($r->{body}, qr/X-Forwarded-Prefix|secret/, 'no prefix, no secret');
    like($r->{body}, qr/^Cookie: a=1\r?$/m, 'its own cookies');
    is($r->{headers}{'content-security-policy'}, undef, 'no CSP');

    $r = $ask->($name, path => '/?h=' . enc('Set-Cookie: a=1') . '&h='
                               . enc('Location: http://localhost:8080/x'));
    is($r->{headers}{'set-cookie'}, 'a=1', 'cookies are set');
    like($r->{headers}{location}, qr{^(http://[^/]+)?/x$}, 'Location')
        and unlike($r->{headers}{location}, qr/localhost:8080/, 'is its own');

    is_problem($ask->("8081-$s.ports.localhost"), 502, 'E5002', 'no port',
               qr/nothing listens/);
    is_problem($ask->('8080-i00000000000000000000000.ports.localhost'), 404,
               'E2009', 'no session');
    is_problem($ask->("0-$s.ports.localhost"), 400, 'E3001', 'port 0');
    is_problem($ask->("$_.ports.localhost"), 404, 'E3009', "name $_")
        for 'x', "-$s", '8080-', "$s";
    is_problem($ask->("8080-x.ports.localhost"), 404, 'E2009', 'no id');
};


subtest 'one connection, many requests' => sub {
    my $c = $t->connect(timeout => within(20));

    for my $i (1 .. 5) {
        my $r = $c->request(POST => "/v1$BASE/sink", body => 'x' x $i);
        is($r->{body}, "$i " . sha256_hex('x' x $i), "request $i");
        $r = $c->request(GET => "/v1$BASE/chunks");
        is(length $r->{body}, 70006, 'and chunks');
    }

    # answered before its body has come: the rest is no request

    $c = open_request('POST', "$BASE/big?n=5", headers => {
                      'Content-Length' => 1_000_000,
                      Connection => 'keep-alive' });
    is(read_head($c, timeout => 20)->{status}, 200, 'an early answer');
    SandboxTest::More::send_all($c, "GET /v1/health HTTP/1.1\r\n"
                                    . "Host: x\r\n\r\n");
    unlike((read_rest($c, timeout => within(20)))[0], qr/HTTP/,
           'what follows is its body');
};


subtest 'clients that go away' => sub {
    my @w = workers();
    my $open = sub { my $n = 0; $n += fds($_) for @w; return $n };
    my $before = $open->();
    my @c = map { open_request('GET', "$BASE/big?n=1000000000") } 1 .. 10;

    is(read_head($_, timeout => 20)->{status}, 200, 'an answer') for @c;

    push @c, my $up = open_request('POST', "$BASE/sink",
                                   headers => { 'Content-Length' => 1e9 });
    SandboxTest::More::send_all($up, 'x' x 1_000_000);
    push @c, open_request('GET', "$BASE/hang");
    push @c, ws_open("$BASE/ws")->{s};

    ok(until_true { $open->() > $before + 30 }, 'sockets are open');
    close $_ for @c;
    ok(until_true { $open->() <= $before + 2 }, 'and closed with them')
        or diag($open->() . ", not $before");
    ok(until_true {
        run($s, "cat /proc/net/tcp | grep -c ':1F90 .* 01 '")->{stdout} == 0
    }, 'inside too');
    is(call('GET', "$BASE/")->{status}, 200, 'and all goes on');
};

$t->finish;
done_testing();
