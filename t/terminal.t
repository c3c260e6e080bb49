#!/usr/bin/perl

# GET /sessions/{id}/terminal: the handshake, a shell, and what no client
# should send.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";

use JSON::PP ();
use Test::More;
use SandboxTest::More;
use SandboxTest::Stream;

my $H2 = SandboxTest::free_port();
my $t = server(extra => "        listen 127.0.0.1:$H2 http2;");
my $s = create_ok();
my $PATH = "/sessions/$s/terminal";

sub refused {
    my ($name, $detail, %headers) = @_;

    my $w = ws_open($PATH, %headers);

    is($w->{status}, 400, "$name: status");
    is($w->{json}{code}, 'E3001', 'its code');
    like($w->{json}{detail}, $detail, 'and what is wrong');
    is($w->{headers}{'sec-websocket-version'}, 13, 'the version there is');
}

sub shell {
    my ($query, %headers) = @_;

    my $w = ws_open($PATH . ($query // ''), %headers);

    is($w->{status}, 101, 'upgraded') or diag($w->{body});
    $w->type("bind 'set enable-bracketed-paste off' 2>/dev/null\n"
             . "PS1='ready'\\> ; echo set\"\" up\n");
    $w->expect(qr/set up\r\nready>/);

    return $w;
}


subtest 'the handshake' => sub {
    my $w = ws_open($PATH);

    is($w->{status}, 101, 'status');
    is($w->{headers}{upgrade}, 'websocket', 'Upgrade');
    like($w->{headers}{connection}, qr/^upgrade$/i, 'Connection');
    is($w->{headers}{'sec-websocket-accept'}, 's3pPLMBiTxaQ9kYGzzhZRbK+xOo=',
       'Sec-WebSocket-Accept, as the standard has it');
    $w->send(8, pack 'n', 1000);
    is_deeply([ $w->closed ], [ 1000, '' ], 'a close is answered');

    refused('no Upgrade', qr/WebSocket/, Upgrade => undef);
    refused('another Upgrade', qr/WebSocket/, Upgrade => 'h2c');
    refused('no Connection', qr/WebSocket/, Connection => 'close');
    refused('an old version', qr/Version/, 'Sec-WebSocket-Version' => 8);
    refused('no key', qr/Key/, 'Sec-WebSocket-Key' => undef);
    refused('a short key', qr/Key/, 'Sec-WebSocket-Key' => 'AAAA');
    refused('no base64', qr/Key/, 'Sec-WebSocket-Key' => '!' x 24);
    is_problem(call('GET', $PATH, body => 'xxxx', headers => {
                    Connection => 'Upgrade', Upgrade => 'websocket',
                    'Sec-WebSocket-Version' => 13,
                    'Sec-WebSocket-Key' => $SandboxTest::Stream::KEY }),
               400, 'E3001', 'a body', qr/body/);

    is_problem(call('GET', "$PATH?rows=24"), 400, 'E3001', 'a plain GET',
               qr/WebSocket/);
    is(ws_open("$PATH?rows=0")->{json}{code}, 'E3001', 'no rows');
    is(ws_open("$PATH?cols=x")->{json}{code}, 'E3001', 'columns of none');
    is(ws_open('/sessions/i00000000000000000000000/terminal')->{json}{code},
       'E2009', 'no session');

    is(ws_open($PATH, Origin => 'http://evil.example')->{status}, 403,
       'a page of another site');
    is(ws_open($PATH, Origin => 'null')->{status}, 403, 'one of no site');
    shell('', Origin => 'http://localhost')->send(8, '');

    my $all = `curl -s --http2-prior-knowledge http://127.0.0.1:$H2/v1$PATH`;
    like($all, qr/"status":400.*HTTP\/1\.1/, 'HTTP/2 is told what it needs');
};


subtest 'a shell' => sub {
    my $w = shell('?rows=33&cols=99');

    $w->type("stty size; echo \$TERM; tty; pwd\n");
    like($w->expect(qr/ready>/), qr{33\ 99\r\nxterm-256color\r\n/dev/pts/\d+
                                     \r\n/home/user\r\n}x, 'as it should be');

    $w->say_text('{"type":"resize","rows":40,"cols":120}');
    $w->type("stty size\n");
    ok($w->expect(qr/40 120\r\n/), 'resized');

    $w->send(1, '{"type":"res', fin => 0);
    $w->send(9, 'still there?');
    $w->send(0, 'ize","rows":41,"cols":121}');
    $w->type("stty size\n");
    ok($w->expect(qr/41 121\r\n/), 'by a message in parts');

    $w->type("trap 'echo g\"\"ot it' USR1\n");
    $w->expect(qr/USR1\r\n.*ready>/s);
    $w->say_text('{"type":"signal","signal":"SIGUSR1"}');
    $w->type("\n");
    ok($w->expect(qr/got it/), 'a signal');

    my $mark = "9$$.5";

    $w->type("sleep $mark\n");
    until_true { host_pids("sleep $mark") } 10;
    $w->type("\x03");
    ok($w->expect(qr/\^C\r\nready>/), 'a control character');

    $mark = "8$$.5";
    $w->type("sleep $mark\n");
    until_true { host_pids("sleep $mark") } 10;
    $w->say_text('{"type":"signal","signal":"SIGINT"}');
    $w->type("echo rc=\$?\n");
    ok($w->expect(qr/rc=130\r\n/), 'a signal is for what the shell runs');

    $w->type("printf '\\303\\251\\0\\377' | od -An -tx1\n");
    ok($w->expect(qr/c3 a9 00 ff/), 'bytes are bytes');

    $w->type("exit 5\n");
    is_deeply([ $w->closed ], [ 1000, 'exited 5' ], 'its end is told');
};


subtest 'an editor' => sub {
    my $w = shell('?rows=20&cols=70');

    $w->type("command -v vi || command -v vim; echo look\"\"ed\n");

    plan(skip_all => 'no vi in a session')
        if $w->expect(qr/looked/) !~ m{/vim?\r\n};

    $w->type("vi -u NONE note\n");
    $w->expect(qr/\e\[/);
    $w->type("ihello from vi\e");
    $w->say_text('{"type":"resize","rows":30,"cols":90}');
    $w->type(":wq\r");
    $w->expect(qr/ready>/);
    is(get($s, 'note')->{body}, "hello from vi\n", 'wrote the file');
    $w->send(8, '');
};


subtest 'its end' => sub {
    my $mark = "8$$.5";
    my $w = shell();

    $w->type("sleep $mark\n");
    ok(until_true { host_pids("sleep $mark") } 10);
    $w->send(8, pack('n', 1001) . 'leaving');
    is_deeply([ $w->closed ], [ 1001, '' ], 'a close is answered');
    ok(until_true { !host_pids("sleep $mark") } 10);

    $w = shell();
    $w->type("sleep $mark\n");
    until_true { host_pids("sleep $mark") } 10;
    close $w->{s};
    ok(until_true { !host_pids("sleep $mark") } 10);

    $w = shell();
    $w->type("sleep $mark\n");
    until_true { host_pids("sleep $mark") } 10;
    call('POST', "/sessions/$s/cancel");
    is_deeply([ $w->closed ], [ 1000, 'cancelled 137' ], 'cancel');

    my $other = create_ok();
    $w = ws_open("/sessions/$other/terminal");
    $w->next;
    destroy($other);
    my ($code) = $w->closed;
    ok($code == 1000 || $code == 1011, 'the end of the session')
        or diag($code);
};


subtest 'what no client should send' => sub {
    my @wrong = (
        [ 1002, 'no mask', 2, 'x', unmasked => 1 ],
        [ 1002, 'a reserved bit', 2, 'x', rsv => 4 ],
        [ 1002, 'an opcode of none', 3, 'x' ],
        [ 1002, 'a continuation of nothing', 0, 'x' ],
        [ 1002, 'a ping in parts', 9, 'x', fin => 0 ],
        [ 1002, 'a long ping', 9, 'x' x 126 ],
        [ 1002, 'a close with half a code', 8, 'x' ],
        [ 1002, 'a close with a code of none', 8, pack('n', 1006) ],
        [ 1007, 'a reason that is no text', 8, pack('n', 1000) . "\xff" ],
        [ 1009, 'a long text', 1, 'x' x 2000 ],
        [ 1008, 'no JSON', 1, 'resize' ],
        [ 1008, 'nothing', 1, '' ],
        [ 1008, 'an unknown type', 1, '{"type":"dance","rows":1,"cols":1}' ],
        [ 1008, 'no size', 1, '{"type":"resize"}' ],
        [ 1008, 'no signal', 1, '{"type":"signal","signal":"SIGNOT"}' ],
        [ 1008, 'a field too many', 1,
          '{"type":"signal","signal":9,"pid":1}' ],
        [ 1008, 'a list', 1, '[]' ],
    );

    for (@wrong) {
        my ($code, $name, @frame) = @$_;
        my $w = ws_open($PATH);

        $w->send(@frame);
        is(($w->closed)[0], $code, $name);
    }

    my $w = ws_open($PATH);
    $w->say_text('{"type":"signal","signal":0}');
    like(($w->closed)[1], qr{^/signal: must be}, 'and it is said what');

    $w = ws_open($PATH);
    SandboxTest::More::send_all($w->{s}, "\x82\xff" . "\xff" x 8 . 'mask');
    is(($w->closed)[0], 1002, 'a length beyond all');

    # a frame as long as may be is passed on as it comes

    my @workers = workers();
    my $before = rss(@workers);

    $w = shell();
    $w->type("stty -echo raw; head -c 8000000 | wc -c; stty sane\n");
    $w->expect(qr/\n/);
    select undef, undef, undef, 0.3;
    SandboxTest::More::send_all($w->{s}, "\x82\xff"
                                . pack('Q>', 2**50) . "\0" x 4);
    SandboxTest::More::send_all($w->{s}, 'x' x 100000) for 1 .. 80;
    ok($w->expect(qr/8000000/, 60), 'a frame of 2**50 bytes');
    cmp_ok(rss(@workers) - $before, '<', 8 * 1024 * 1024,
           'memory of the workers is flat');
    close $w->{s};

    for my $n (1 .. 20) {
        $w = ws_open($PATH);
        SandboxTest::More::send_all($w->{s}, join '', map { chr int rand 256 }
                                                      1 .. 3000);
        close $w->{s};
    }

    is(run($s, 'echo ok')->{stdout}, "ok\n", 'the server goes on');
};


subtest 'a client that reads nothing' => sub {
    my @workers = workers();
    my $before = rss(@workers);
    my $w = ws_open($PATH);

    $w->type("yes term$$\n");
    $w->expect(qr/term$$\r\nterm$$/);

    select undef, undef, undef, 1;
    cmp_ok(rss(@workers) - $before, '<', 8 * 1024 * 1024,
           'memory of the workers is flat');
    $w->type("\x03");
    $w->type("echo un\"\"stuck\n");
    ok($w->expect(qr/unstuck/, 60), 'and it goes on where it was');
    $w->send(8, '');
};


subtest 'a client that pings and reads nothing' => sub {
    my @workers = workers();
    my $before = rss(@workers);
    my $w = ws_open($PATH);
    my $ping = SandboxTest::Stream::Socket::frame(9, 'x' x 125);

    # 60 MB of pings, more than any buffer on the way back holds

    SandboxTest::More::send_all($w->{s}, $ping x 5000) for 1 .. 90;
    cmp_ok(rss(@workers) - $before, '<', 8 * 1024 * 1024,
           'memory of the workers is flat');
    $w->type("echo un\"\"stuck\n");
    ok($w->expect(qr/unstuck/, 60), 'and it is answered');
    $w->send(8, '');
};


subtest 'another client' => sub {
    my $py = q{
import asyncio, json, sys, websockets
async def main(url):
    async with websockets.connect(url) as w:
        await w.send(json.dumps({"type": "resize", "rows": 31, "cols": 77}))
        await w.send(b"stty size; exit 3\n")
        seen = b""
        try:
            while True:
                seen += await w.recv()
        except websockets.ConnectionClosed as e:
            print(b"31 77" in seen, e.rcvd.code, e.rcvd.reason)
asyncio.run(main(sys.argv[1]))
};

    my ($python) = grep {
        system("$_ -c 'import websockets' 2>/dev/null") == 0
    } 'python3', '/usr/bin/python3';

    plan(skip_all => 'python3-websockets is not installed') if !$python;

    open my $f, '-|', $python, '-c', $py,
                     'ws://127.0.0.1:' . $t->port . "/v1$PATH" or die;
    is(scalar <$f>, "True 1000 exited 3\n", 'python3-websockets');
    close $f;
};

$t->finish;
done_testing();
