#!/usr/bin/perl

# What has led other servers astray in their uploads and downloads, on all the
# routes that take a path or a body: stat, list, mkdir, move, search, archive,
# watch, and those that take nothing.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";

use JSON::PP ();
use Test::More;
use SandboxTest::More;
use SandboxTest::Stream;

# one worker: if any call held it, every later one would be late

my $t = server(workers => 1, extra => "        location /admin/ {\n"
                                      . "            sandbox_api admin;\n"
                                      . "        }\n");
my $s = create_ok({ manifest => {
    capabilities => [ qw(shell files ports) ] } });
my $B = "/sessions/$s";

# Each route with a path, as [ name, status, body ]; a stream is left at once.

sub routes {
    my ($path) = @_;

    my $q = '?path=' . enc($path);

    my @calls = (
        [ GET => "$B/stat$q" ], [ GET => "$B/list$q" ],
        [ POST => "$B/mkdir", json => { path => "$path/made" } ],
        [ POST => "$B/move", json => { from => 'plain', to => "$path/moved" } ],
        [ POST => "$B/search", json => { pattern => 'root:', path => $path,
                                        glob => 'passwd*' } ],
        [ GET => "$B/archive$q" ], [ PUT => "$B/archive$q", body => '' ],
        [ PUT => "$B/files?path=" . enc("$path/put"), body => 'x' ],
    );
    my @answers;

    for my $c (@calls) {
        my ($method, $where, %o) = @$c;
        my $t0 = time;
        my $res = call($method, $where, %o, timeout => 20);

        push @answers, { name => "$method $where", took => time - $t0,
                         status => $res->{status}, body => $res->{body} };
    }

    my $w = SandboxTest::Stream::stream('GET', "$B/watch$q");
    push @answers, { name => "watch $path", took => 0, body => '',
                     status => $w->{status} };
    $w->close;

    return @answers;
}


subtest 'no route follows a link out of the session' => sub {
    put($s, 'plain', 'x');

    my $theirs = slurp('/etc/passwd');
    my $probe = "/tmp/abuse-routes-$$";

    my %links = (magic => '/proc/self/root/etc', other => '/proc/1/root/etc',
                 cwd => '/proc/self/cwd', up => '../../../../../../etc',
                 dangling => $probe, loop => 'loop', whole => '/');

    for my $name (sort keys %links) {
        run($s, [ 'ln', '-sfn', $links{$name}, $name ]);

        my @answers = routes($name);
        my @odd = grep { $_->{status} !~ /^(?:20[01]|4\d\d)$/ } @answers;

        is_deeply([ map { "$_->{name}: $_->{status}" } @odd ], [],
                  "$name: every route answers");
        ok(!(grep { index($_->{body}, (split /\n/, $theirs)[-1]) != -1 }
             @answers), 'with nothing of the host');
    }

    is(slurp('/etc/passwd'), $theirs, "the host's passwd is as it was");
    ok(!-e $probe && !-e "$probe/made" && !-e "$probe/put",
       'nothing was made outside');
    ok(!-e "/etc/$_", "no /etc/$_") for qw(made moved put);
};


subtest 'no route waits for what is no regular file' => sub {
    run($s, 'mkfifo p; ln -sfn p lp; ln -sfn /dev/zero lz;'
            . ' python3 -c "import socket;'
            . ' socket.socket(socket.AF_UNIX).bind(\"so\")"');

    for my $path (qw(p so lp lz /dev/zero /dev/tty /dev/ptmx /proc/kmsg
                     /dev/pts /proc/self/mem))
    {
        my @late = grep { $_->{took} > within(3)
                          || $_->{status} !~ /^(?:200|4\d\d)$/ }
                   routes($path);

        is_deeply([ map { "$_->{name}: $_->{status} $_->{took}" } @late ],
                  [], "$path: every route answers at once");
    }

    is(call('POST', "$B/search", json => { pattern => 'x' })->{status}, 200,
       'a search passes them by');
    is(call('GET', "$B/archive/")->{status}, 200, 'so does an archive');
    run($s, 'rm -f p lp lz so');
};


subtest 'where nothing can be made is no lack of room' => sub {
    for my $path (qw(/dev/pts/x /dev/x /proc/x /sys/x)) {
        my $res = put($s, $path, 'x');

        like($res->{status}, qr/^4(?:03|09)$/,
             "$path: " . ($res->{json}{error} // ''));
    }
};


subtest 'names that break framing, on all routes' => sub {
    for my $name ("a\nb", "a\r\nX-Evil: 1", "a\tb", 'a"b', '%2e%2e%2f',
                  '-rf', "\xe6\xb5\x8b \xe8\xaf\x95", 'end ', 'a\\b', "a'b")
    {
        my $text = $name;
        utf8::decode($text);

        my $show = enc($name);
        my $w = SandboxTest::Stream::stream('GET', "$B/watch/");
        is($w->next->{type}, 'ready', "$show: watched");

        my $res = call('POST', "$B/mkdir", json => { path => $text });
        is("$res->{status} $res->{json}{name}", "201 $text", 'mkdir');
        is_deeply($w->next, { type => 'create', path => "/home/user/$text" },
                  'one event on one line');
        $w->close;

        is(put($s, "$name/f", "needle\n")->{status}, 201, 'an upload');

        $res = call('POST', "$B/search", json => { pattern => 'needle' });
        is_deeply($res->{json}{matches},
                  [ { path => "/home/user/$text/f", line => 1,
                      text => 'needle' } ], 'search');

        $res = call('POST', "$B/move",
                    json => { from => "$text/f", to => "moved/$text" });
        is($res->{json}{path}, "/home/user/moved/$text", 'move');

        $res = call('GET', "$B/list/moved");
        is_deeply([ map { $_->{name} } @{ $res->{json}{entries} } ],
                  [ $text ], 'list');

        $res = call('GET', "$B/archive/" . enc($name));
        my @evil = grep { /evil/i } keys %{ $res->{headers} };
        is_deeply([ $res->{status}, @evil ], [ 200 ], 'archive');

        del($s, $_, query => 'recursive=1') for $name, 'moved';
        call('DELETE', "$B/files?recursive=1&path=" . enc($_))
            for $name, 'moved';
    }

    my @nul = ([ mkdir => { path => "a\0b" }, 'E4002', qr{^/path} ],
               [ move => { from => "a\0b", to => 'c' }, 'E4002', qr{^/from} ],
               [ move => { from => 'a', to => "c\0" }, 'E4002', qr{^/to} ],
               [ search => { pattern => "a\0" }, 'E3001', qr{^/pattern} ],
               [ search => { pattern => 'a', glob => "b\0" }, 'E3001',
                 qr{^/glob} ]);

    for my $case (@nul) {
        my ($route, $json, $code, $detail) = @$case;

        is_problem(call('POST', "$B/$route", json => $json), 400, $code,
                   "$route: a NUL is named by its field", $detail);
    }
};


subtest 'what takes no field refuses every field' => sub {
    my $pid = SandboxTest::Stream::background($s, 'sleep 600');

    for my $route (map({ "/v1$B/$_" } qw(cancel pause resume)),
                   qw(/admin/drain /admin/undrain))
    {
        my $res = $t->http(POST => $route, body => '{"pid":1}', headers => {
            'Content-Type' => 'application/json' });
        $res->{json} = eval { JSON::PP::decode_json($res->{body}) };
        is_problem($res, 400, 'E3001', "$route: an unknown field",
                   qr{^/pid: });

        $res = $t->http(POST => $route, body => '{}');
        is($res->{status}, 415, 'a body has its type');
    }

    is(SandboxTest::Stream::process($s, $pid)->{state}, 'running',
       'nothing was cancelled');
    is(call('GET', $B)->{json}{status}, 'running', 'nothing was paused');
    is(create()->{status}, 201, 'nothing drains');

    my $res = call('POST', "$B/cancel", json => {});
    is_deeply($res->{json}, { cancelled => 1 }, 'an empty object is none');
};


subtest 'an answer has one X-Request-ID, whoever refuses' => sub {
    run($s, q(cat > hostile.py <<'END'
import socket
s = socket.socket()
s.bind(("127.0.0.1", 9000))
s.listen(9)
print("ready", flush=True)
while True:
    c, _ = s.accept()
    if b"garbage" in c.recv(9999):
        c.sendall(b"garbage\r\n\r\n")
    else:
        c.sendall(b"HTTP/1.1 200 OK\r\nX-Request-ID: theirs\r\n"
                  b"X-Accel-Redirect: /v1/health\r\n"
                  b"Content-Length: 2\r\n\r\nok")
    c.close()
END
));
    my $pid = SandboxTest::Stream::background($s, 'python3 hostile.py');
    my $out = SandboxTest::Stream::follow($s, $pid);
    like($out->next->{data}, qr/^ready/, 'a hostile server listens');
    $out->close;

    my %raw = (
        'a broken answer of a port' => [ 502, "GET /v1$B/ports/9000/garbage" ],
        "a port's own" => [ 200, "GET /v1$B/ports/9000/fine" ],
        'a port without anybody' => [ 502, "GET /v1$B/ports/9001/" ],
        'nginx itself' => [ 405, 'TRACE /v1/health' ],
        'no route' => [ 404, 'GET /nothing' ],
        'the API' => [ 404, 'GET /v1/nothing' ],
    );

    for my $name (sort keys %raw) {
        my ($status, $line) = @{ $raw{$name} };
        my $c = IO::Socket::INET->new(PeerAddr => '127.0.0.1',
                                      PeerPort => $t->port) or die $!;
        print $c "$line HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
        my $answer = do { local $/; <$c> };
        my ($head) = split /\r\n\r\n/, $answer;
        my @ids = $head =~ /^X-Request-ID: (\S+)\r?$/mgi;

        like($head, qr{^HTTP/1\.1 $status }, "$name: $status");
        ok(@ids == 1 && $ids[0] =~ /^[0-9a-f]{32}$/, 'one id') or diag($head);
        like($head, qr/^Allow: .*GET/m, 'and what is allowed')
            if $status == 405;
    }

    call('POST', "$B/cancel");
};


subtest 'clients that go away from any stream leave nothing' => sub {
    my ($worker) = workers();
    my $pid = SandboxTest::Stream::background($s, 'sleep 600');

    run($s, 'head -c 20000000 /dev/zero > big');
    run($s, 'true');

    my $quiet = fds($worker);
    my @paths = ("$B/watch/?recursive=1", "$B/processes/$pid/output",
                 "$B/archive/big", "$B/files/big");

    for my $path ((@paths) x 3) {
        my $q = open_request('GET', $path);
        read_head($q, timeout => 20);
        close $q;
    }

    for my $path ("$B/files/half", "$B/archive/half",
                  "$B/processes/$pid/stdin")
    {
        my $method = $path =~ /stdin/ ? 'POST' : 'PUT';
        my $q = open_request($method, $path, body => 'x' x 100,
                             headers => { 'Content-Length' => 100000 });
        close $q;
    }

    my $q = open_request('POST', '/run', json => {
        tenant_id => 'gone', user_id => 'u',
        steps => [ { cmd => "sleep 88.$$", on_disconnect => 'detach' } ] });
    ok(until_true(sub { host_pids("88.$$") }, 10), 'a run runs');
    close $q;
    ok(until_true(sub { !host_pids("88.$$") }, 10), 'and ends with it');
    ok(until_true(sub {
        !@{ call('GET', '/sessions?tenant_id=gone')->{json}{sessions} }
    }, 10), 'its session too');

    ok(until_true(sub { fds($worker) <= $quiet }, 10),
       'no descriptor is left in the worker')
        or diag($quiet, ' and now ', fds($worker));
    is(call('GET', "$B/stat/half")->{status}, 404, 'no half upload');
    call('POST', "$B/cancel");
};


destroy($s);
$t->finish;
done_testing();
