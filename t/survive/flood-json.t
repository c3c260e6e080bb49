#!/usr/bin/perl

# Texts that are long, deep or full of escapes, in requests and in answers:
# no turn of a worker takes longer for them than it may, others are served in
# between, and memory holds what there is to tell and one piece more.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../lib";

use JSON::PP ();
use Test::More;
use SandboxTest::More;
use SandboxTest::Turns;

BEGIN {
    my $why = SandboxTest::Turns::missing();
    plan(skip_all => $why) if $why;
}

my $MB = 1024 * 1024;
my $turns = SandboxTest::Turns->new;
my $H2 = SandboxTest::free_port();
my $t = server(workers => 1,
               extra => "        listen 127.0.0.1:$H2 http2;\n"
                        . "        gzip on; gzip_min_length 1;\n"
                        . "        gzip_types application/json;\n");

ok($turns->loaded, 'turns are measured');

my ($worker) = workers();
my $s = create_ok({ manifest => {
    capabilities => [qw(shell files code)],
    resources => { max_output_bytes => 64 * $MB } } });


# The whole answer, without JSON being parsed: its bytes, and some of them.

sub ask {
    my ($path, $body) = @_;

    my $c = open_request(POST => "/sessions/$s$path",
                         headers => { 'Content-Type' => 'application/json',
                                      Connection => 'close' },
                         body => $body);
    my ($head, $tail, $n) = ('', '', 0);

    while (sysread $c, my $more, $MB) {
        $n += length $more;
        $head .= $more if length $head < 4096;
        $tail = substr $tail . $more, -1024;
    }

    close $c;

    return { status => ($head =~ m{^HTTP/1\.1 (\d+)})[0] // 0, n => $n,
             head => $head, tail => $tail };
}

sub exec_body {
    my ($cmd, $mb) = @_;

    return '{"cmd":"' . $cmd . '","timeout_s":60,"max_output_bytes":'
           . $mb * $MB . '}';
}

sub peak {
    return 1024 * (slurp("/proc/$worker/status") =~ /^VmHWM:\s+(\d+)/m)[0];
}


subtest 'output that is all escapes' => sub {
    my $r;

    $turns->brief('a megabyte of zeros', sub {
        $r = ask('/exec', exec_body('head -c 1048576 /dev/zero', 1));
    });

    is($r->{status}, 200, 'is answered');
    cmp_ok($r->{n}, '>', 6 * $MB, 'whole');
    like($r->{tail}, qr/\r\n0\r\n\r\n\z/, 'to its end');

    $turns->brief('a megabyte of no characters', sub {
        $r = ask('/exec', exec_body("head -c 1048576 /dev/zero | tr '\\\\\\\\0'"
                                    . " '\\\\\\\\377'", 1));
    });

    is($r->{status}, 200, 'is answered');
    cmp_ok($r->{n}, '>', 3 * $MB, 'as U+FFFD');

    my $mb = $ENV{SANDBOX_TEST_LONG} ? 64 : 16;
    my $before = peak();

    $turns->brief("$mb megabytes of zeros, the probe beside it", sub {
        my $job = async {
            my $r = ask('/exec', exec_body("head -c @{[ $mb * $MB ]}"
                                           . ' /dev/zero', $mb));
            [ $r->{status}, $r->{n}, $r->{tail} ];
        };
        my $served = 0;

        until ($job->ready) {
            $served++ if call('GET', '/sessions/none')->{status} == 404;
        }

        my ($status, $n, $tail) = @{ $job->get };

        is($status, 200, 'is answered');
        cmp_ok($n, '>', 6 * $mb * $MB, 'whole');
        like($tail, qr/\r\n0\r\n\r\n\z/, 'to its end');
        cmp_ok($served, '>', 5, "others are served meanwhile: $served");
    });

    cmp_ok(peak() - $before, '<', ($mb + 8) * $MB,
           'memory holds the output and a piece of the answer');
};


subtest 'a client that does not read' => sub {
    my $c = open_request(POST => "/sessions/$s/exec", rcvbuf => 65536,
                         headers => { 'Content-Type' => 'application/json',
                                      Connection => 'close' },
                         body => exec_body('head -c 2097152 /dev/zero', 2));

    my $got = sysread $c, my $some, 1000;
    cmp_ok($got, '>', 0, 'its answer has begun');
    is(run($s, 'echo here')->{stdout}, "here\n", 'others are served');

    my $n = $got;
    $n += length $some while sysread $c, $some, 65536;
    cmp_ok($n, '>', 12 * $MB, 'and it has all of it once it reads');
    close $c;

    $c = open_request(POST => "/sessions/$s/exec", rcvbuf => 4096,
                      headers => { 'Content-Type' => 'application/json' },
                      body => exec_body('head -c 4194304 /dev/zero', 4));
    sysread $c, $some, 1000;
    close $c;

    ok(until_true { run($s, 'echo here')->{stdout} eq "here\n" },
       'one that goes away in between is forgotten');
};


# Each is of a megabyte or less, which is what sandbox_max_json is by default.

my $field = '{"cmd":"true","limits":{"disk":';
my %bodies = (
    'many names' => [ 400, qr/names and values/, $field . '{'
        . join(',', map { sprintf '"%x":1', $_ * 2654435761 & 0xffffffff }
               1 .. 80_000) . '}}}' ],
    'many numbers' => [ 400, qr/names and values/,
        $field . '[' . join(',', (1) x 500_000) . ']}}' ],
    'one string' => [ 400, qr/E3001/, $field . '"' . 'a' x 1_000_000 . '"}}' ],
    'one name' => [ 400, qr/E3001/, '{"' . 'a' x 1_000_000 . '":1}' ],
    'one number' => [ 400, qr/E3001/, $field . '9' x 1_000_000 . '}}' ],
    'brackets' => [ 400, qr/nested deeper/, $field . '[' x 100_000
        . ']' x 100_000 . '}}' ],
    'braces' => [ 400, qr/nested deeper/, $field . '{"a":' x 100_000 ],
    'open quotes' => [ 400, qr/E3001/, $field . '"' . '\\"' x 490_000 ],
    'escapes of letters' => [ 200, qr/165000/,
        '{"cmd":"wc -c","stdin":"' . '\\u0041' x 165_000 . '"}' ],
    'escapes of lines' => [ 200, qr/490000/,
        '{"cmd":"wc -c","stdin":"' . '\\n' x 490_000 . '"}' ],
    'base64' => [ 200, qr/735000/,
        '{"cmd":"wc -c","stdin_base64":"' . 'aaaa' x 245_000 . '"}' ],
    'no JSON' => [ 400, qr/not JSON/, '{' . ' ' x 1_000_000 . ';' ],
    'variables' => [ 200, qr/exited/, '{"cmd":"true","env":{'
        . join(',', map { "\"a$_\":\"\"" } 1 .. 15_000) . '}}' ],
);

subtest 'bodies' => sub {
    for my $name (sort keys %bodies) {
        my ($status, $words, $body) = @{ $bodies{$name} };
        my $r;

        $turns->brief($name, sub { $r = ask('/exec', $body) });
        is($r->{status}, $status, "$name: $status");
        like($r->{head}, $words, "$name: and what");
    }
};


# The pieces of an answer, through what nginx may do with them.

subtest 'framings' => sub {
    my $own = 'http://127.0.0.1:' . $t->port;
    my $h2 = "http://127.0.0.1:$H2";
    my $body = '{"cmd":"yes \'\\\\\"a\' | head -c 3000000",'
               . '"max_output_bytes":4000000}';

    for my $how ([ '1.1', $own, '--http1.1' ], [ '1.1', $own, '--http1.0' ],
                 [ '1.1', $own, '--http1.1', '--compressed' ],
                 [ '2', $h2, '--http2-prior-knowledge' ],
                 [ '2', $h2, '--http2-prior-knowledge', '--compressed' ],
                 [ '2', $h2, '--http2-prior-knowledge', '--limit-rate',
                   '20m' ])
    {
        my ($version, $to, @how) = @$how;

        open my $f, '-|', 'curl', '-sS', @how, '-m', 60, '-H',
            'content-type: application/json', '-w', "\n%{http_version}",
            '-d', $body, "$to/v1/sessions/$s/exec" or die "curl: $!";
        my $all = do { local $/; <$f> };
        close $f;

        my ($text, $used) = $all =~ /\A(.*)\n(.*)\z/s;
        my $r = eval { JSON::PP::decode_json($text) };

        is($used, $version, "HTTP/@how");
        ok($r->{stdout} eq substr("\\\"a\n" x 750_000, 0, 3_000_000),
           'every byte');
    }
};


is(run($s, 'echo end')->{stdout}, "end\n", 'the session lives');
destroy($s);
$t->finish;
done_testing();
