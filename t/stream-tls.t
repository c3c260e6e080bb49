#!/usr/bin/perl

# Streams over TLS, by the version of HTTP that client and server agree on;
# and what needs HTTP/1.1 says so over HTTP/2.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";

use File::Temp qw(tempdir);
use JSON::PP ();
use Test::More;
use SandboxTest::More;
use SandboxTest::Stream;

plan(skip_all => 'openssl and curl with HTTP/2 are needed')
    if `openssl version 2>/dev/null` eq ''
       || `curl --version 2>/dev/null` !~ /HTTP2/;

my $keys = tempdir(CLEANUP => 1);
my $port = SandboxTest::free_port();

system("openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost"
       . " -keyout $keys/key -out $keys/pem 2>$keys/log") == 0
    or die "openssl: " . slurp("$keys/log");

my $t = server(extra => <<"CONF");
        listen 127.0.0.1:$port ssl http2;
        ssl_certificate $keys/pem;
        ssl_certificate_key $keys/key;
CONF
my $s = create_ok();
my $json = JSON::PP->new->utf8;
my @jobs;

# curl's output line by line; the last one is the version.

sub curl {
    my ($path, @o) = @_;

    my $pid = open my $f, '-|', 'curl', '-skN', '-m', within(60),
                   '-w', '\nversion %{http_version}\n', @o,
                   "https://127.0.0.1:$port/v1/sessions/$s/$path"
        or die "curl: $!";
    push @jobs, $pid;

    return $f;
}

sub exec_of {
    my ($cmd, @o) = @_;

    return curl('exec', '-H', 'content-type: application/json', '-H',
                'accept: application/x-ndjson', '-d',
                json_of({ cmd => $cmd }), @o);
}

sub event {
    my ($f) = @_;

    while (defined(my $line = <$f>)) {
        return $json->decode($line) if $line =~ /^\{/;
        return { type => "version $1" } if $line =~ /^version (\S+)/;
    }

    return { type => 'nothing' };
}


for my $version ([ '--http2', 2 ], [ '--http1.1', 1.1 ]) {
    my ($option, $number) = @$version;

    subtest "HTTP/$number" => sub {
        my $f = exec_of('echo one; while [ ! -e go ]; do sleep 0.05; done; '
                        . 'rm go; echo two; exit 3', $option);

        is(event($f)->{type}, 'start', 'start');
        is(event($f)->{data}, "one\n", 'at once');
        put($s, 'go', '');
        is(event($f)->{data}, "two\n", 'and on');
        is(event($f)->{exit_code}, 3, 'to its end');
        is(event($f)->{type}, "version $number", 'by that version');

        $f = exec_of('head -c 5000000 /dev/zero | tr "\\\\0" x', $option);
        my ($n, $e) = (0);

        while (($e = event($f))->{type} !~ /^(exit|version|nothing)/) {
            $n += length($e->{data} // '');
        }

        is($n, 5_000_000, 'more than any window');
        is($e->{exit_code}, 0, 'with its end');

        $f = exec_of('echo; sleep 31.5', $option);
        event($f) for 1, 2;
        kill 'TERM', $jobs[-1];
        close $f;
        ok(until_true { !host_pids('sleep 31.5') } 10);
    };

    subtest "HTTP/$number, a reload" => sub {
        my $pid = background($s, 'n=0; while :; do echo $n; n=$((n+1)); '
                                 . 'sleep 0.01; done');
        my ($text, $e) = ('');

        for my $round (1 .. 3) {
            my $f = curl("processes/$pid/output?stdout_from=" . length $text,
                         $option);

            for (my $n = 0; ($e = event($f))->{type} eq 'stdout'; $n++) {
                is($e->{offset}, length $text, 'an offset') or last
                    if $e->{offset} != length $text;
                $text .= $e->{data};
                next if $n != 10;
                $round < 3 ? $t->reload
                           : call('POST', "/sessions/$s/processes/$pid/signal",
                                  json => { signal => 9 });
            }

            is($e->{type}, $round < 3 ? 'resume' : 'exit', 'its last');
            is($e->{stdout_from}, length $text, 'where to go on')
                if $round < 3;
            is(event($f)->{type}, "version $number", 'a clean end');
        }

        my $n = () = $text =~ /\n/g;
        is($text, join('', map { "$_\n" } 0 .. $n - 1), 'every line once');
    };
}


# A client of HTTP/2 may have sent all of its body, and its end, before the
# session has said that it takes it.

subtest 'a whole body before it is read' => sub {
    my @curl = ('-sk', '-m', within(60), '--http2');
    my $url = "https://127.0.0.1:$port/v1/sessions/$s";

    for my $size (1, 500, 60_000) {
        for my $round (1 .. 5) {
            my $text = chr(96 + $round) x $size;

            open my $f, '|-', 'curl', @curl, '-o', '/dev/null', '-T', '-',
                 "$url/files/whole" or die "curl: $!";
            print $f $text;
            close $f;
            is(call('GET', "/sessions/$s/files/whole")->{body}, $text,
               "$size bytes, $round");
        }
    }

    my $pid = background($s, 'cat > given', stdin_open => JSON::PP::true());

    for my $text ('one ', 'two ', 'three') {
        my $said = $t->prefix . '/said';
        my $to = "$url/processes/$pid/stdin"
                 . ($text eq 'three' ? '?eof=1' : '');

        open my $f, '|-', "exec curl @curl -X POST -T - -w '%{http_code}' '$to'"
                          . " > $said" or die "curl: $!";
        print $f $text;
        ok(close $f, 'curl has its answer');
        is(slurp($said), 204, "'$text' is taken");
    }

    ok(until_true { call('GET', "/sessions/$s/processes/$pid")->{json}{state}
                    ne 'running' } 10);
    is(call('GET', "/sessions/$s/files/given")->{body}, 'one two three',
       'input of a process');
};


subtest 'what HTTP/2 has no place for' => sub {
    my @ws = ('-H', 'Sec-WebSocket-Version: 13', '-H',
              "Sec-WebSocket-Key: $SandboxTest::Stream::KEY");

    for my $what ('terminal', 'ports/8000/socket') {
        my $f = curl($what, '--http2', @ws);
        my $e = event($f);

        is("$e->{status} $e->{code}", '400 E3001', "$what: refused");
        like($e->{detail}, qr{HTTP/1\.1}, 'and why');
        is(event($f)->{type}, 'version 2', 'over HTTP/2');
    }

    my $f = curl('terminal', '--http1.1', '-i', '-m', 5, @ws, '-H',
                 'Connection: Upgrade', '-H', 'Upgrade: websocket');
    like(scalar <$f>, qr{^HTTP/1\.1 101 }, 'over HTTP/1.1 it is there');
    kill 'TERM', $jobs[-1];
    close $f;
};

$t->finish;
done_testing();
