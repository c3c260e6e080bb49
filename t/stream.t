#!/usr/bin/perl

# A command's output as it comes: both forms, what an event holds, what a slow
# or missing reader does, and every version of HTTP.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";

use Test::More;
use SandboxTest::More;
use SandboxTest::Stream;

my $H2 = SandboxTest::free_port();
my $MARK = "stream$$";

my $t = server(extra => "        listen 127.0.0.1:$H2 http2;\n"
                        . "        gzip on; gzip_min_length 1;\n"
                        . "        gzip_types application/x-ndjson;\n");
my $s = create_ok();

sub exec_stream {
    my ($cmd, %o) = @_;

    my $fields = delete $o{fields} || {};

    return stream('POST', "/sessions/$s/exec", %o,
                  json => { cmd => $cmd, %$fields });
}

sub types { return join ' ', map { $_->{type} } @_ }


for my $form ('ndjson', 'sse') {
    subtest "$form: start, output with offsets, exit" => sub {
        my $f = exec_stream('echo out; read x; echo err >&2; exit 3',
                            sse => $form eq 'sse');

        is($f->{status}, 200, 'status');
        is($f->{headers}{'content-type'},
           $form eq 'sse' ? 'text/event-stream' : 'application/x-ndjson',
           'its type');
        is($f->{headers}{'cache-control'}, 'no-store', 'nobody keeps it');
        is($f->{headers}{'x-accel-buffering'}, 'no', 'nor holds it back');

        my $r = $f->rest;
        my @e = @{ $r->{events} };

        is(types(@e), 'start stdout stderr exit', 'the events');
        cmp_ok($e[0]{pid}, '>', 1, 'pid');
        is("$e[1]{data}$e[1]{offset} $e[2]{data}$e[2]{offset}",
           "out\n0 err\n0", 'texts');
        is($e[3]{pid}, $e[0]{pid}, 'exit tells the same pid');
        is("$e[3]{exit_code} $e[3]{reason} $e[3]{stdout_bytes} "
           . $e[3]{stderr_bytes}, '3 exited 4 4', 'and the answer');
        ok(!exists $e[3]{stdout} && !exists $e[3]{stderr},
           'but for its texts');
        ok(exists $e[3]{usage}{cpu_user_s}, 'with the usage');
        ok($f->{whole}, 'the body ends as it should');
    };
}


subtest 'each event comes at once' => sub {
    my $f = exec_stream("echo one; sleep 31; echo two");

    is(types($f->until('stdout', 10)), 'start stdout',
       'before the command is over');
    $f->close;
};


subtest 'Accept decides' => sub {
    my %form = ('application/x-ndjson' => 'x-ndjson',
                'text/event-stream' => 'event-stream',
                'text/event-stream;q=0.5, application/x-ndjson' => 'x-ndjson',
                'application/x-ndjson;q=0, text/event-stream' =>
                'event-stream',
                'application/json, text/event-stream;q=0.9' => 'json',
                'TEXT/Event-Stream; charset=utf-8' => 'event-stream',
                '*/*' => 'json', 'text/html' => 'json');

    for my $accept (sort keys %form) {
        my $res = call('POST', "/sessions/$s/exec", json => { cmd => 'true' },
                       headers => { Accept => $accept }, raw => 1);
        like($res->{headers}{'content-type'}, qr{/\Q$form{$accept}\E$},
             $accept);
    }
};


subtest 'no event holds half a character' => sub {
    # each of four bytes by itself, with time for each to be read

    my $r = exec_stream('for b in 360 237 244 243; do printf "\\\\$b"; '
                        . 'sleep 0.2; done; printf x')->rest;
    my @e = grep { $_->{type} eq 'stdout' } @{ $r->{events} };

    is($r->{stdout}, "\x{1f923}x", 'a character in four pieces');
    is($e[0]{offset}, 0, 'it counts from its first byte');
    is($r->{exit}{stdout_bytes}, 5, 'in bytes');

    $r = exec_stream('printf "a\\303"; sleep 0.2; printf "(";'
                     . ' sleep 0.2; printf "\\342\\202"')->rest;
    @e = grep { $_->{type} eq 'stdout' } @{ $r->{events} };

    is($r->{stdout}, "a\x{fffd}(\x{fffd}",
       'what is none, and what never becomes whole');
    is(join(' ', map { $_->{offset} } @e), '0 1 3', 'their offsets');

    $r = exec_stream([ 'python3', '-c',
                       'print("\u00e9\u20ac\U0001f923" * 60000, end="")' ])
         ->rest;
    is($r->{stdout}, "\x{e9}\x{20ac}\x{1f923}" x 60000,
       'a text of many reads');

    my ($at, $wrong) = (0, 0);

    for my $e (grep { $_->{type} eq 'stdout' } @{ $r->{events} }) {
        utf8::encode(my $bytes = $e->{data});
        $wrong++ if $e->{offset} != $at;
        $at += length $bytes;
    }

    is($wrong, 0, 'each offset is where the one before ended');
};


subtest 'base64 is exact' => sub {
    my $r = exec_stream('head -c 100000 /dev/urandom > r; cat r',
                        fields => { encoding => 'base64' })->rest;
    my $bytes = join '', map { unb64($_->{data}) }
                grep { $_->{type} eq 'stdout' } @{ $r->{events} };

    is(length $bytes, 100000, 'its length');
    is(md5_hex($bytes), md5_hex(get($s, 'r')->{body}), 'its bytes');
};


subtest 'a stream is not capped' => sub {
    my $r = exec_stream('head -c 300000 /dev/zero | tr "\\\\0" x',
                        fields => { max_output_bytes => 1000 })->rest;

    is(length $r->{stdout}, 300000, 'all of it comes');
    ok(!$r->{exit}{stdout_truncated}, 'and that is told');
};


subtest 'what did not start, and what is refused' => sub {
    my $r = exec_stream([ 'no-such-program' ])->rest;

    is(types(@{ $r->{events} }), 'start stderr exit', 'the events');
    is("$r->{exit}{exit_code} $r->{exit}{reason}", '127 not_started',
       'the end');

    my $res = call('POST', "/sessions/$s/exec",
                   json => { cmd => 'true', cwd => '/nowhere' },
                   headers => { Accept => 'application/x-ndjson' });
    is_problem($res, 404, 'E4001', 'a refusal is no stream');

    $r = exec_stream('echo first; sleep 60', fields => { timeout_s => 0.5 })
         ->rest;
    is("$r->{stdout}$r->{exit}{reason}", "first\ntimeout", 'a timeout');
};


subtest 'a reader that goes ends the command' => sub {
    my $mark = "7$$.5";
    my $f = exec_stream("echo; sleep $mark");

    $f->until('stdout');
    is(scalar(host_pids("sleep $mark")) > 0, 1, 'it runs');
    $f->close;
    ok(until_true { !host_pids("sleep $mark") } 10);

    $f = exec_stream("echo; sleep $mark",
                     fields => { on_disconnect => 'detach' });
    my $pid = $f->until('start')->{pid};
    $f->until('stdout');
    $f->close;

    is(process($s, $pid)->{state}, 'running', 'unless it is to go on');
    call('POST', "/sessions/$s/cancel");
    ok(until_true { !host_pids("sleep $mark") } 10);
};


subtest 'a reader that stalls stops the command, not the server' => sub {
    my @workers = workers();
    my $before = rss(@workers);

    my $f = exec_stream("yes $MARK | tee /dev/stderr", rcvbuf => 65536);
    $f->until('stdout');

    ok(stands_still($s, 30), 'the command waits');

    my $grown = rss(@workers) - $before;

    cmp_ok($grown, '<', 8 * 1024 * 1024, 'memory of the workers is flat')
        or diag("$before + $grown");
    diag("workers have grown by $grown bytes");

    is(run($s, 'echo ok')->{stdout}, "ok\n", 'others are served');

    my $got = 0;

    my $much = $SandboxTest::SLOW > 1 ? 2_000_000 : 20_000_000;

    while ($got < $much) {
        my $e = $f->next // last;
        $got += length($e->{data} // '');
    }

    cmp_ok($got, '>=', $much, 'and once it reads it is served again');

    SKIP: {
        skip 'a sanitizer keeps freed memory', 1 if $SandboxTest::SANITIZE;

        $grown = rss(@workers) - $before;
        cmp_ok($grown, '<', 8 * 1024 * 1024, "memory is as flat after $much")
            or diag("$before + $grown");
    }


    $f->close;
    ok(until_true { !host_pids("yes $MARK") } 10);
};


subtest 'a quiet stream pings' => sub {
    my $f = exec_stream('sleep 14');

    $f->until('start');
    is(types($f->until('ping', 16)), 'ping', 'within 15 s');
    is($f->until('exit')->{exit_code}, 0, 'and goes on');
};


subtest 'HTTP/1.0 and HTTP/2' => sub {
    my $c = IO::Socket::INET->new(PeerAddr => '127.0.0.1',
                                  PeerPort => $t->port);
    my $body = json_of({ cmd => 'echo one; sleep 0.2; echo two' });

    print $c "POST /v1/sessions/$s/exec HTTP/1.0\r\n"
             . "Content-Type: application/json\r\n"
             . "Accept: application/x-ndjson\r\n"
             . 'Content-Length: ' . length($body) . "\r\n\r\n$body";

    my $all = join '', <$c>;

    unlike($all, qr/^transfer-encoding/mi, '1.0: no chunks');
    is(scalar(() = $all =~ /^\{"type":"(?:start|stdout|exit)"/mg), 4,
       '1.0: every event, then the end');

    my $curl = 'curl -sN --http2-prior-knowledge -H content-type:application/'
               . 'json -H accept:application/x-ndjson -w %{http_version} '
               . "http://127.0.0.1:$H2/v1/sessions/$s/exec -d";
    my @cmd = (split(/ /, $curl), json_of({ cmd => 'echo one; sleep 30.25' }));

    open my $f, '-|', @cmd or die "curl: $!";
    like(scalar <$f>, qr/^\{"type":"start"/, '2: the start');
    like(scalar <$f>, qr/"data":"one/, '2: at once');
    kill 'TERM', host_pids("$H2/v1/sessions/$s/exec");
    close $f;
    ok(until_true { !host_pids('sleep 30.25') } 10);

    $cmd[-1] = json_of({ cmd => 'head -c 3000000 /dev/zero | tr "\\\\0" x' });
    open $f, '-|', @cmd or die "curl: $!";
    my ($n, $end, $version) = (0, '', '');

    while (my $line = <$f>) {
        $n += length $1 if $line =~ /"type":"stdout","data":"(x*)"/;
        $end = $line if $line =~ /^\{"type":"exit"/;
        $version = $line if $line =~ /^\d/;
    }

    close $f;
    is($n, 3000000, '2: more than a window');
    like($end, qr/"exit_code":0/, '2: to its end');
    is($version, '2', 'by that version');
};


subtest 'a filter does not hold events back' => sub {
    plan(skip_all => 'no Compress::Raw::Zlib')
        if !eval { require Compress::Raw::Zlib };

    my $f = stream('POST', "/sessions/$s/exec",
                   json => { cmd => 'echo one; sleep 30' },
                   headers => { 'Accept-Encoding' => 'gzip' });

    is($f->{headers}{'content-encoding'}, 'gzip', 'it is compressed');

    my $z = Compress::Raw::Zlib::Inflate->new(
        -WindowBits => Compress::Raw::Zlib::WANT_GZIP());
    my $plain = '';

    until_true {
        $f->unchunk;
        my $packed = $f->{text};
        $f->{text} = '';
        $z->inflate($packed, my $out);
        $plain .= $out // '';
        return 1 if $plain =~ /"stdout"/;
        $f->{raw} .= SandboxTest::More::read_some($f->{s}, time + 1) // '';
        return 0;
    } 10;

    like($plain, qr/"type":"stdout","data":"one\\n"/, 'and it is there');
    $f->close;
};


subtest 'a broken stream is not ended' => sub {
    my %before = map { $_ => 1 } session_pids();
    my $other = create_ok();
    my $f = stream('POST', "/sessions/$other/exec",
                   json => { cmd => 'echo; sleep 60' });

    $f->until('stdout');

    # the whole session goes, and nobody is left to tell of the end

    my ($init) = grep { !$before{$_} && (slurp("/proc/$_/status") // '')
                                        =~ /^NSpid:.*\t1$/m } session_pids();
    my $r;

    if ($init) {
        $t->allow(qr/sandbox/);
        kill 'KILL', $init if $init > 1;
        $r = $f->rest;
        ok(!$r->{exit}, 'no exit is made up');
        ok(!$f->{whole}, 'and the body is cut');

    } else {
        fail('the session has a process 1');
    }

    destroy($other);
};


subtest 'a client that takes nothing is left after send_timeout' => sub {
    $t->write_conf(location => '            send_timeout 1s;');
    $t->reload;

    my $f = exec_stream("yes $MARK", rcvbuf => 4096);
    $f->until('stdout');

    ok(until_true { !host_pids("yes $MARK") } 20);
};

$t->finish;
done_testing();
