#!/usr/bin/perl

# Commands that try to hang, flood, crash or outlive the server: on their
# standard streams, in their arguments, and by a client that goes away.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";

use Test::More;
use SandboxTest::More;

my $t = server();
my $s = create_ok({ manifest => { resources => { max_output_bytes => '8MB',
                                                 processes => 256 } } });


subtest 'standard input that was not given is at its end at once' => sub {
    my %want = (
        'cat' => [ '', 0 ],
        'python3' => [ '', 0 ],
        'read x; echo "got:$x"' => [ "got:\n", 0 ],
        'grep x' => [ '', 1 ],
        'wc -c' => [ "0\n", 0 ],
        'sh' => [ '', 0 ],
        'python3 -c "import sys; print(repr(sys.stdin.read()))"'
            => [ "''\n", 0 ],
        'cat & wait; echo over' => [ "over\n", 0 ],
    );

    for my $cmd (sort keys %want) {
        for my $how ({}, { stdin => '' }, { stdin_base64 => '' }) {
            my $r = run($s, $cmd, timeout_s => 10, %$how);
            my ($given) = (%$how, 'nothing');

            is($r->{stdout}, $want{$cmd}[0], "$cmd with $given: its output");
            is($r->{exit_code}, $want{$cmd}[1], 'its status');
            ok(!$r->{timed_out}, 'no wait');
        }
    }
};


subtest 'floods of output are cut by bytes, counted and drained' => sub {
    my $cap = 100_000;

    my $r = run($s, 'head -c 20000000 /dev/zero', max_output_bytes => $cap);
    is($r->{reason}, 'exited', 'zeros: the command is not killed for it');
    is($r->{exit_code}, 0, 'and ends well');
    is(length $r->{stdout}, $cap, 'the head is kept');
    is($r->{stdout_bytes}, 20_000_000, 'all of it is counted');
    ok($r->{stdout_truncated}, 'flagged');
    ok(!$r->{stderr_truncated}, 'the other stream is not');

    $r = run($s, 'yes | head -c 300000000 >&2', max_output_bytes => $cap);
    is($r->{reason}, 'exited', '300 MB on stderr alone');
    is($r->{stderr_bytes}, 300_000_000, 'counted');
    is(length $r->{stderr}, $cap, 'cut');
    is($r->{stdout_bytes}, 0, 'stdout is empty');

    $r = run($s, '(yes a | head -c 5000000) & (yes b | head -c 5000000) >&2;'
                 . ' wait', max_output_bytes => $cap);
    is("$r->{stdout_bytes} $r->{stderr_bytes}", '5000000 5000000',
       'both at once');
    is(length($r->{stdout}) . ' ' . length($r->{stderr}), "$cap $cap",
       'each to its cap');

    $r = run($s, 'yes', timeout_s => 1, max_output_bytes => $cap);
    is($r->{reason}, 'timeout', 'yes ends by its timeout and nothing else');
    cmp_ok($r->{stdout_bytes}, '>', $cap, 'it was drained meanwhile');
    is($r->{stdout}, "y\n" x ($cap / 2), 'its head is whole');

    my $res = exec_call($s, [ 'python3', '-c',
        'import sys; sys.stdout.buffer.write(b"\1" * (8 << 20))' ],
        max_output_bytes => 8 << 20, _http => { raw => 1 });
    is($res->{status}, 200, '8 MiB of a byte that JSON must escape');

    my $n = $res->{body} =~ s/\\u0001//g;
    is($n, 8 << 20, 'arrives whole');
    is(SandboxTest::More::parse($res->{body})->{stdout}, '', 'as JSON');
};


subtest 'fifty floods at once leave the server as it was' => sub {
    my @workers = workers();
    run($s, 'true');
    my $before = rss(@workers);
    my $held = total(@workers);

    my @jobs = map {
        async {
            my $r = run($s, 'yes', timeout_s => 1, max_output_bytes => 65536);
            # Fifty share the session's processor: how far each one came
            # by its timeout is the scheduler's choice.
            return [ $r->{reason}, length $r->{stdout} <= 65536 ? 1 : 0,
                     ($r->{stdout_bytes} > 65536)
                         == ($r->{stdout_truncated} ? 1 : 0) ? 1 : 0 ];
        }
    } 1 .. 50;

    my $peak = $before;
    my $late = 0;
    my $t0;

    until_true(sub {
        my $now = rss(@workers);
        $peak = $now if $now > $peak;
        $t0 = time;
        $late = 1 if call('GET', '/health')->{status} != 200
                     || time - $t0 > within(5);
        return !grep { !$_->ready } @jobs;
    }, 40);

    is_deeply([ map { $_->get(10) } @jobs ],
              [ ([ 'timeout', 1, 1 ]) x 50 ],
              'each is answered, cut where the caller asked, and says so');
    cmp_ok($peak - $before, '<', 64 << 20,
           'the workers grew by less than 64 MB meanwhile');
    ok(!$late, 'health was answered all the time');

    ok(until_true(sub { total(@workers) <= $held }, 5),
       'no descriptor is left in a worker');
};


subtest 'output that is no text becomes valid JSON, exact in base64' => sub {
    my $u = "\x{fffd}";

    my $r = run($s, [ 'printf', '\xff\xfe\x00\x80' ]);
    is($r->{stdout}, "$u$u\0$u", 'invalid bytes are U+FFFD, NUL survives');
    is($r->{stdout_bytes}, 4, 'counted as they were');

    $r = run($s, [ 'printf', '\xff\xfe\x00\x80' ], encoding => 'base64');
    is(unb64($r->{stdout}), "\xff\xfe\0\x80", 'base64 gives the bytes');

    my $moon = "\xf0\x9f\x8c\x9d";

    for my $cap (1 .. 5) {
        my $res = exec_call($s, [ 'printf', '%s', "\x{1f31d}a" ],
                            max_output_bytes => $cap);
        ok(ref $res->{json} eq 'HASH', "cut after $cap bytes: valid JSON")
            or diag($res->{error});
        like($res->{json}{stdout} // '', $cap < 4 ? qr/^\x{fffd}{0,3}$/
                                       : qr/^\x{1f31d}a?$/,
                                           'of whole characters');
        is(unb64(run($s, [ 'printf', '%s', "\x{1f31d}a" ],
                     encoding => 'base64',
                     max_output_bytes => $cap)->{stdout}),
           substr($moon . 'a', 0, $cap), 'and exact bytes');
    }

    $r = run($s, [ 'python3', '-c',
        'import sys; sys.stdout.buffer.write(b"\xed\xa0\xbd|\xc0\xaf|\xf4\x90'
        . '\x80\x80|\xe2\x82|\xf0\x9f")' ]);
    like($r->{stdout},
         qr/^\x{fffd}+\|\x{fffd}+\|\x{fffd}+\|\x{fffd}+\|\x{fffd}+$/,
         'surrogates, overlong forms and what is above U+10FFFF are replaced');

    $r = run($s, [ 'python3', '-c', 'print("\ud83d")' ]);
    is($r->{exit_code}, 1, 'a lone surrogate is the program\'s own error');
    like($r->{stderr}, qr/surrogates not allowed/, 'told as such');

    $r = run($s, [ 'printf', '\x01\x1f"\\\\/\b\t\x7f\n' ]);
    is($r->{stdout}, "\x01\x1f\"\\/\b\t\x7f\n", 'control characters');
};


subtest 'NUL and oversized strings are refused, never cut' => sub {
    my $json = sub { call('POST', "/sessions/$s/exec", json => $_[0]) };

    is_problem($json->('{"cmd":["echo","a\u0000b"]}'), 400, 'E3001',
               'NUL in an argument', qr{/cmd/1});
    is_problem($json->('{"cmd":"echo a\u0000b"}'), 400, 'E3001',
               'NUL in a shell command', qr{/cmd});
    is_problem($json->('{"cmd":"env","env":{"A\u0000B":"x"}}'), 400, 'E3001',
               'NUL in the name of a variable', qr{/env});
    is_problem($json->('{"cmd":"env","env":{"A":"x\u0000y"}}'), 400, 'E3001',
               'NUL in its value', qr{/env/A});
    is_problem($json->('{"cmd":"env","env":{"A=B":"x"}}'), 400, 'E3001',
               '"=" in a name', qr{/env/A=B});
    is_problem($json->('{"cmd":"env","env":{"":"x"}}'), 400, 'E3001',
               'an empty name', qr{/env});
    my $res = $json->('{"cmd":"pwd","cwd":"/tmp\u0000/x"}');
    is($res->{status}, 400, 'NUL in the working directory');
    like($res->{json}{code}, qr/^E(?:3001|4002)$/, 'is refused as such');

    is(run($s, [ 'sh', '-c', 'echo ${#A}' ],
           env => { A => 'x' x 100_000 })->{stdout}, "100000\n",
       'a variable of 100,000 bytes');

    my %many = map { (sprintf('V%05d', $_), 'x') } 1 .. 10_000;
    my $r = run($s, [ 'sh', '-c', 'env | grep -c ^V[0-9]' ], env => \%many);
    is($r->{stdout}, "10000\n", '10,000 variables are all there');

    $r = run($s, [ 'echo', 'x' x (200 << 10) ]);
    is($r->{reason}, 'not_started', 'an argument of 200 KiB cannot start');
    is($r->{exit_code}, 126, 'exit code 126');
    like($r->{stderr}, qr/^[^\n]*(?:too long|E2BIG)[^\n]*\n$/i,
         'and one line says why');

    $r = run($s, [ 'sh', '-c', 'echo ${#1}', 'sh', 'x' x (100 << 10) ]);
    is($r->{stdout}, (100 << 10) . "\n", 'one of 100 KiB is whole');

    $r = run($s, [ 'sh', '-c', 'echo $#', 'sh', ('y') x 5000 ]);
    is($r->{stdout}, "5000\n", '5,000 arguments');
};


subtest 'input that nobody reads' => sub {
    my $big = 'x' x (3 << 20);
    my @workers = workers();
    my $t0 = time;

    my $r = run($s, [ 'sleep', '30' ], stdin => $big, timeout_s => 1);
    is($r->{reason}, 'timeout', 'the timeout is honoured');
    cmp_ok(time - $t0, '<', within(4), 'in time');

    $r = run($s, [ 'true' ], stdin => $big);
    is("$r->{reason} $r->{exit_code}", 'exited 0', 'an early exit is one');

    $r = run($s, 'exec <&-; sleep 0.1; echo closed', stdin => $big);
    is("$r->{reason} $r->{stdout}", "exited closed\n", 'so is a closed one');

    $r = run($s, [ 'head', '-c', '3' ], stdin => $big);
    is("$r->{exit_code} $r->{stdout}", '0 xxx', 'or one that reads a little');

    $r = run($s, [ 'wc', '-c' ], stdin => $big);
    is($r->{stdout}, (3 << 20) . "\n", 'one that reads all gets all');

    $r = run($s, 'sleep 0.5; wc -c', stdin => $big);
    is($r->{stdout}, (3 << 20) . "\n", 'a late reader too');

    # the body is bounded before a byte of it is kept

    my $before = rss(@workers);
    my $q = open_request('POST', "/sessions/$s/exec",
        headers => { 'Content-Type' => 'application/json',
                     'Content-Length' => 100 << 20 });
    my $res = read_response($q);
    is_problem($res, 413, 'E4005', '100 MB of it are too much, told at once');
    close $q;

    cmp_ok(rss(@workers) - $before, '<', 32 << 20, 'the workers are as small');

    my @jobs = map {
        async { run($s, [ 'sleep', '30' ], stdin => $big,
                    timeout_s => 1)->{reason} }
    } 1 .. 5;
    is_deeply([ map { $_->get(20) } @jobs ], [ ('timeout') x 5 ],
              'five at once');
    is(run($s, 'echo ok')->{stdout}, "ok\n", 'and the session goes on');
};


subtest 'a client that goes away ends its command' => sub {
    my @workers = workers();
    my $quiet = run($s, 'true') && total(@workers);
    my $n = 0;

    for my $cmd ("yes > /dev/null", "yes", "cat /dev/zero >&2", "sleep MARK",
                 "trap '' TERM HUP INT; while :; do sleep MARK; done",
                 "setsid sleep MARK & sleep MARK")
    {
        my $mark = 4000 + $$ % 1000 + ++$n * 1000 . ".$$";
        my $c = $cmd;
        $c =~ s/MARK/$mark/g;
        $c = ": mark$mark; $c; :";

        my $q = open_request('POST', "/sessions/$s/exec",
                             json => { cmd => $c, timeout_s => 50 });
        ok(until_true(sub { host_pids($mark) }, 5), "$cmd runs");
        close $q;
        ok(until_true(sub { !host_pids($mark) }, 5), 'and is gone with it');
    }

    # half a request is no command at all

    my $q = open_request('POST', "/sessions/$s/exec",
                         headers => { 'Content-Type' => 'application/json',
                                      'Content-Length' => 100 },
                         body => '{"cmd":"touch /tmp/half"');
    close $q;

    # the client closes while its input is still on its way

    $q = open_request('POST', "/sessions/$s/exec",
                      json => { cmd => "sleep 77.$$",
                                stdin => 'x' x (3 << 20) });
    ok(until_true(sub { host_pids("77.$$") }, 5), 'with input that waits');
    close $q;
    ok(until_true(sub { !host_pids("77.$$") }, 5), 'it ends as well');

    is(run($s, 'ls /tmp/half 2>/dev/null')->{stdout}, '',
       'half a request ran nothing');

    ok(until_true(sub { total(@workers) <= $quiet }, 5),
       'no descriptor is left in a worker')
        or diag($quiet, ' and now ', total(@workers));
};


subtest 'on_disconnect "detach" lets a command go on' => sub {
    my $q = open_request('POST', "/sessions/$s/exec",
        json => { cmd => "while [ ! -e /tmp/go ]; do sleep 0.02; done;"
                         . " : 88.$$; echo done > /tmp/detached",
                  on_disconnect => 'detach' });
    ok(until_true(sub { host_pids("88.$$") }, 5), 'it runs');
    close $q;
    is(run($s, 'true')->{exit_code}, 0, 'the client is gone');
    run($s, 'touch /tmp/go');
    ok(until_true(sub { get($s, '/tmp/detached')->{body} eq "done\n" }, 5),
       'it has gone on to its end');
};


is(destroy($s)->{status}, 204, 'the session can be destroyed');
$t->finish;
done_testing();


# Descriptors of all workers: which of them holds a connection is chance.

sub total {
    my $n = 0;

    $n += fds($_) for @_;

    return $n;
}
