#!/usr/bin/perl

# Commands in the background: the table, output that can be gone back to,
# standard input, signals, and what a reload leaves of a stream.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";

use JSON::PP ();
use Test::More;
use SandboxTest::More;
use SandboxTest::Stream;

my $yes = JSON::PP::true;
my $MARK = "proc$$";

my $t = server();
my $s = create_ok();

sub to { return "/sessions/$s/processes/$_[0]" }

sub over {
    my ($pid) = @_;

    return until_true { process($s, $pid)->{state} eq 'exited' } 20;
}


subtest 'background answers at once, the process lives on' => sub {
    my $res = exec_call($s, 'echo begun; sleep 30', background => $yes,
                        tag => "blue \x{e9}", cwd => '/tmp');

    is($res->{status}, 202, 'status');
    is(join(' ', keys %{ $res->{json} }), 'pid', 'the pid alone');

    my $pid = $res->{json}{pid};
    my $p = process($s, $pid);

    is(join(' ', sort keys %$p), 'cmd cwd exit_code kind pid started_at state '
                                 . 'tag user', 'its members');
    is_deeply($p->{cmd}, [ '/bin/sh', '-c', 'echo begun; sleep 30' ], 'cmd');
    is("$p->{pid} $p->{cwd} $p->{user} $p->{kind} $p->{state}",
       "$pid /tmp user command running", 'what it is');
    is($p->{tag}, "blue \x{e9}", 'tag');
    is($p->{exit_code}, undef, 'no exit code');
    like($p->{started_at}, qr/^20\d\d-\d\d-\d\dT[\d:.]+Z$/, 'started_at');

    my $list = call('GET', "/sessions/$s/processes");
    is_deeply([ grep { $_->{pid} == $pid } @{ $list->{json}{processes} } ],
              [ $p ], 'the list has the same');

    is(call('POST', to($pid) . '/signal', json => { signal => 'SIGTERM' })
       ->{status}, 204, 'a signal');
    over($pid);

    $p = process($s, $pid);
    is("$p->{state} $p->{signal} $p->{exit_code} $p->{reason}",
       'exited SIGTERM 143 signal', 'its result is kept');
    ok(exists $p->{usage} && !exists $p->{stdout}, 'without the texts');
    is(join(' ', map { $_->{cwd} } process($s, background($s, 'true'))),
       '/home/user', 'the workspace is where a command runs');
};


subtest 'output is kept, and gone back to' => sub {
    my $pid = background($s, 'echo one; echo err >&2; read x; echo two',
                         stdin_open => $yes);
    my $f = follow($s, $pid);

    is($f->{status}, 200, 'status');
    is($f->{headers}{'content-type'}, 'application/x-ndjson', 'type');

    my %first = map { ($_->{type} => $_) } $f->next, $f->next;
    is($first{stdout}{data} . $first{stderr}{data}, "one\nerr\n",
       'what was there');

    my $sse = follow($s, $pid, 'stdout_from=2&stderr_from=4', sse => 1);
    my $e = $sse->next;
    is("$e->{data}$e->{offset}", "e\n2", 'from an offset');

    is(call('POST', to($pid) . '/stdin', body => "go\n")->{status}, 204,
       'stdin');

    for ($f, $sse) {
        my $r = $_->rest;
        is("$r->{stdout}$r->{exit}{exit_code}", "two\n0", 'live, to the end');
        is($r->{exit}{pid}, $pid, 'exit has the pid');
        ok($_->{whole}, 'and a clean end');
    }

    my $r = follow($s, $pid)->rest;
    is("$r->{stdout}$r->{stderr}", "one\ntwo\nerr\n", 'all, after the end');
    $r = follow($s, $pid, 'stdout_from=8&stderr_from=4')->rest;
    is(scalar @{ $r->{events} }, 1, 'nothing but the end, after the end');

    is(call('HEAD', to($pid) . '/output')->{status}, 200, 'HEAD');
    is_problem(call('GET', to($pid) . '/output?stdout_from=9'), 400, 'E3001',
               'beyond the end');
    is_problem(call('GET', to($pid) . '/output?stdout_from=x'), 400, 'E3001',
               'no number', qr/stdout_from/);
    is_problem(call('GET', to($pid) . '/output?encoding=latin1'), 400,
               'E3001', 'no encoding', qr/encoding/);

    $r = follow($s, background($s, 'printf "\\377\\0"'), 'encoding=base64')
         ->rest;
    is(unb64($r->{events}[0]{data}), "\xff\0", 'base64');
};


subtest 'the ring keeps the newest' => sub {
    my $pid = background($s, 'seq 100000 999999 | head -c 299999',
                         max_output_bytes => 70000);

    over($pid);

    my $res = call('GET', to($pid) . '/output?stdout_from=0');

    is_problem($res, 410, 'E3008', 'what is gone is told');

    my $oldest = $res->{json}{stdout_oldest};
    is($res->{json}{stderr_oldest}, 0, 'stderr_oldest');
    cmp_ok($oldest, '>', 0, 'stdout_oldest');
    cmp_ok($oldest, '<=', 299999 - 60000, 'not more than must be');

    my $r = follow($s, $pid, "stdout_from=$oldest")->rest;
    is($oldest + length $r->{stdout}, 299999, 'from there on all is there');
    is($r->{events}[0]{offset}, $oldest, 'at that offset');
    is(substr($r->{stdout}, -7), "142856\n", 'the right bytes');
};


subtest 'standard input' => sub {
    my $pid = background($s, 'cat > in; echo done', stdin_open => $yes);
    my $bytes = join '', map { pack 'N', $_ } 1 .. 500000;

    is(call('POST', to($pid) . '/stdin', body => $bytes)->{status}, 204,
       '2 MB');
    is(call('POST', to($pid) . '/stdin', body => "5\r\nhello\r\n0\r\n\r\n",
            headers => { 'Transfer-Encoding' => 'chunked' })->{status}, 204,
       'in chunks');
    is(call('POST', to($pid) . '/stdin?eof=1')->{status}, 204, 'its end');
    is(follow($s, $pid)->rest->{stdout}, "done\n", 'it has ended');
    is(md5_hex(get($s, 'in')->{body}), md5_hex($bytes . 'hello'),
       'every byte has come');

    is_problem(call('POST', to($pid) . '/stdin', body => 'x'), 409, 'E2011',
               'after exit');

    $pid = background($s, 'cat; sleep 30');
    is_problem(call('POST', to($pid) . '/stdin', body => 'x'), 409, 'E2011',
               'without stdin_open');
    call('POST', to($pid) . '/signal', json => { signal => 9 });

    $pid = background($s, 'cat; sleep 30', stdin_open => $yes);
    call('POST', to($pid) . '/stdin?eof=1', body => 'x');
    is_problem(call('POST', to($pid) . '/stdin', body => 'x'), 409, 'E2011',
               'after its end');
    is_problem(call('POST', to($pid) . '/stdin?eof=2'), 400, 'E3001',
               'eof is a flag');
    call('POST', to($pid) . '/signal', json => { signal => 9 });

    # a process that does not read holds its writer up, and nobody else

    $pid = background($s, 'sleep 60; cat', stdin_open => $yes);
    my @workers = workers();
    my $before = rss(@workers);
    my $job = async {
        return call('POST', to($pid) . '/stdin', timeout => 60,
                    body => 'x' x 20_000_000)->{status};
    };

    select undef, undef, undef, 0.5;
    ok(!$job->ready, 'it waits');
    cmp_ok(rss(@workers) - $before, '<', 8 * 1024 * 1024,
           'memory of the workers is flat');
    call('POST', to($pid) . '/signal', json => { signal => 'SIGKILL' });
    is($job->get, 409, 'a process that ends meanwhile: E2011');
};


subtest 'signals by name and number' => sub {
    my $py = 'import signal,sys,time
for n in range(1, 65):
    try: signal.signal(n, lambda s, f: print(s, flush=True))
    except (OSError, ValueError): pass
print("ready", flush=True)
while True: time.sleep(60)';
    my $pid = background($s, [ 'python3', '-u', '-c', $py ]);
    my $f = follow($s, $pid);

    is($f->line, "ready\n", 'ready');

    my %number = (SIGHUP => 1, SIGUSR1 => 10, SIGTERM => 15, SIGWINCH => 28,
                  SIGPOLL => 29, SIGRTMIN => 34, 'SIGRTMIN+3' => 37,
                  SIGRTMAX => 64, 'SIGRTMAX-2' => 62, 12 => 12, 63 => 63);

    for my $name (sort keys %number) {
        my $value = $name =~ /^\d/ ? $name + 0 : $name;
        is(call('POST', to($pid) . '/signal', json => { signal => $value })
           ->{status}, 204, "signal $name");
        is($f->line, "$number{$name}\n", 'it has come');
    }

    for my $bad ('TERM', 'SIGFOO', 'SIGRTMIN+31', 'SIGRTMAX-99', '', 0, 65,
                 -1, 1.5, undef, $yes, [])
    {
        is_problem(call('POST', to($pid) . '/signal',
                        json => { signal => $bad }), 400, 'E3001',
                   'not ' . json_of([ $bad ]), qr{^/signal\b});
    }

    is_problem(call('POST', to($pid) . '/signal', json => {}), 400, 'E3001',
               'none', qr{/signal});
    is_problem(call('POST', to($pid) . '/signal',
                    json => { signal => 9, more => 1 }), 400, 'E3001',
               'a field too many', qr{^/more\b});
    is_problem(call('POST', to($pid) . '/resize',
                    json => { rows => 1, cols => 1 }), 409, 'E2011',
               'no terminal to resize');

    call('POST', to($pid) . '/signal', json => { signal => 'SIGKILL' });
    is($f->until('exit')->{signal}, 'SIGKILL', 'and the end');
    is_problem(call('POST', to($pid) . '/signal', json => { signal => 15 }),
               409, 'E2011', 'after it');

    # the whole group

    $pid = background($s, "sleep 5$$.5 & sleep 5$$.5");
    until_true { host_pids("sleep 5$$.5") >= 2 };
    call('POST', to($pid) . '/signal', json => { signal => 'SIGTERM' });
    ok(until_true { !host_pids("sleep 5$$.5") } 10);
};


subtest 'a terminal' => sub {
    my $pid = background($s, 'stty size; read x; stty size', tty => $yes,
                         stdin_open => $yes);
    my $f = follow($s, $pid);

    is($f->next->{data}, "24 80\r\n", 'its size');

    for my $bad ({ rows => 0, cols => 1 }, { rows => 1 },
                 { rows => 1, cols => 65536 }, { rows => '1', cols => 1 })
    {
        is_problem(call('POST', to($pid) . '/resize', json => $bad), 400,
                   'E3001', 'not ' . json_of($bad));
    }

    is(call('POST', to($pid) . '/resize', json => { rows => 40, cols => 120 })
       ->{status}, 204, 'another');
    call('POST', to($pid) . '/stdin', body => "\n");
    like($f->rest->{stdout}, qr/40 120/, 'it sees that');
};


subtest 'a terminal that is waited for' => sub {
    my $r = run($s, 'test -t 0 && test -t 1 && test -t 2 && tty;'
                    . ' echo $TERM; stty size; echo err >&2', tty => $yes);

    is($r->{stdout} =~ s{^/dev/pts/\d+}{TTY}r,
       "TTY\r\nxterm-256color\r\n24 80\r\nerr\r\n",
       'is all three, has a type and a size, and one output')
        or diag(explain($r));
    is("$r->{stderr} $r->{exit_code}", ' 0', 'of two');

    is(run($s, 'test -t 1; echo $?; echo $TERM')->{stdout}, "1\ndumb\n",
       'which there is none of where it is not asked for');

    # its other side is gone: so is the terminal, as a line is hung up

    $r = run($s, 'cat', tty => $yes, stdin => "typed\n\004");
    like($r->{stdout}, qr/typed/, 'what is given is typed');
    is($r->{exit_code}, 0, 'to its end');

    $r = run($s, 'cat; cat', tty => $yes, stdin => "typed\n\004");
    is($r->{exit_code}, 0, 'which comes by itself');

    $r = run($s, 'cat', tty => $yes, stdin => 'half a line');
    is("$r->{reason} $r->{stdout}", 'exited half a linehalf a line',
       'after half a line too');

    my $pid = background($s, 'cat', tty => $yes, stdin_open => $yes);
    call('POST', to($pid) . '/stdin', body => "whole\nha");
    call('POST', to($pid) . '/stdin?eof=1', body => 'lf');
    like(follow($s, $pid)->rest->{stdout}, qr/half\z/,
         'and after what came in pieces');

    $r = run($s, 'echo out; echo err >&2; echo out', merge_stderr => $yes);
    is("$r->{stdout}|$r->{stderr}", "out\nerr\nout\n|",
       'merge_stderr keeps the order without one');
    is($r->{stderr_bytes}, 0, 'and counts it there');
};


subtest 'as many terminals as a session may have' => sub {
    my $many = create_ok({ manifest => { resources => { processes => 200 } } });
    my $sleep = { cmd => [ 'sleep', "4$$.5" ], background => $yes,
                  tty => $yes };

    # its programs have them, too

    my $holder = background($many, [ 'python3', '-c', <<'PY' ]);
import os, time
held = [os.openpty() for i in range(60)]
print('held', flush=True)
time.sleep(600)
PY
    follow($many, $holder)->until('stdout');

    my @last = map { call('POST', "/sessions/$many/exec", json => $sleep) }
               1 .. 5;
    is($last[$_]{status}, 202, 'one more') for 0 .. 3;

    is_problem($last[4], 429, 'E2003', 'is too many', qr/64 terminals/);
    is("@{$last[4]{json}}{qw(scope resource limit)}", 'session terminals 64',
       'and says of what');
    is_problem(call('GET', "/sessions/$many/terminal", headers => {
                   Upgrade => 'websocket', Connection => 'Upgrade',
                   'Sec-WebSocket-Version' => 13,
                   'Sec-WebSocket-Key' => 'dGhlIHNhbXBsZSBub25jZQ==' }),
               429, 'E2003', 'as one of a shell');
    is(run($many, 'echo ok')->{stdout}, "ok\n", 'others run');

    call('POST', "/sessions/$many/processes/$last[0]{json}{pid}/signal",
         json => { signal => 9 });
    ok(until_true { call('POST', "/sessions/$many/exec", json => $sleep)
                    ->{status} == 202 }, 'where one has gone another comes');
    destroy($many);
};


subtest 'cancel' => sub {
    my @sleep = ('sleep', "4$$.25");
    my @pids = map { background($s, \@sleep) } 1 .. 2;
    my $job = async { return run($s, \@sleep) };

    # one process each: no shell has the words as well

    ok(until_true(sub { host_pids("@sleep") == 3 }, 10), 'three run');

    my $res = call('POST', "/sessions/$s/cancel");

    is($res->{status}, 200, 'status');
    is_deeply($res->{json}, { cancelled => 3 }, 'all that ran');

    my $r = $job->get;
    is($r->{reason}, 'cancelled', 'who waits is told');
    ok($r->{cancelled}, 'in both ways');

    for my $pid (@pids) {
        over($pid);
        is(process($s, $pid)->{reason}, 'cancelled', 'as the table tells');
    }

    is_deeply(call('POST', "/sessions/$s/cancel")->{json},
              { cancelled => 0 }, 'then there is none');
    is(run($s, 'cat in | wc -c')->{stdout}, "2000005\n", 'files are kept');
};


subtest 'what is left behind is an orphan' => sub {
    run($s, "sleep 3$$.75 >/dev/null 2>&1 &");

    my $all;
    my $o = until_true {
        $all = call('GET', "/sessions/$s/processes");
        return (grep { $_->{kind} eq 'orphan' }
                @{ $all->{json}{processes} })[0];
    };

    ok($o, 'it is listed') or diag($all->{body}), return;
    like($o->{cmd}[-1], qr/^sleep 3$$/, 'by the command that left it');
    is("$o->{state}", 'running', 'running');
    is($o->{exit_code}, undef, 'without a result');
    is(call('POST', to($o->{pid}) . '/signal', json => { signal => 9 })
       ->{status}, 204, 'it takes a signal');
    ok(until_true { !host_pids("sleep 3$$.75") } 10);
};


subtest 'no such process' => sub {
    for my $pid (99999, 0, -1, 'x', '1x', '99999999999999999999', '%20') {
        is_problem(call('GET', to($pid)), 404, 'E3002', "GET $pid");
    }

    is_problem(call('GET', to(99999) . '/output'), 404, 'E3002', 'output');
    is_problem(call('POST', to(99999) . '/stdin', body => 'x'), 404, 'E3002',
               'stdin');
    is_problem(call('POST', to(99999) . '/signal', json => { signal => 9 }),
               404, 'E3002', 'signal');
    is_problem(call('POST', to(99999) . '/resize',
                    json => { rows => 1, cols => 1 }), 404, 'E3002',
               'resize');
    is_problem(call('PUT', to(1)), 405, 'E3010', 'another method');
    is_problem(exec_call($s, 'true', background => $yes, tag => "a\nb"), 400,
               'E3001', 'a tag with a line in it', qr{^/tag\b});
    is_problem(exec_call($s, 'true', background => $yes, tag => 'x' x 129),
               400, 'E3001', 'a tag that is too long', qr{^/tag\b});
};


subtest 'a reload ends no background command, and loses no output' => sub {
    my $pid = background($s, [ 'python3', '-uc', 'import time
n = 0
while True:
    print("%08d \u20ac" % n, flush=True)
    n += 1
    time.sleep(0.001)' ]);

    my ($text, $from, $reloads) = ('', 0, 0);

    for my $round (1 .. 3) {
        my $f = follow($s, $pid, "stdout_from=$from&stderr_from=0");
        my $e;

        for (1 .. 200) {
            $e = $f->next // last;
            $text .= $e->{data} // '';
        }

        if ($round < 3) {
            my $job = async { $t->reload; return 1 };

            while ($e = $f->next) {
                last if $e->{type} eq 'resume';
                $text .= $e->{data} // '';
            }

            is(($e // {})->{type}, 'resume', "reload $round: it is told");
            is($f->next, undef, 'that was the last');
            ok($f->{whole}, 'and the body ends as it should');
            $from = $e->{stdout_from};
            is($e->{stderr_from}, 0, 'stderr_from');
            $job->get;
            $reloads++;
        }

        $f->close;
    }

    is($reloads, 2, 'twice');

    my $n = 0;

    # the last may lack its end yet

    for my $line ($text =~ /^(\d{8} \x{20ac})\n/mg) {
        last if $line ne sprintf "%08d \x{20ac}", $n;
        $n++;
    }

    cmp_ok($n, '>', 300, 'lines');
    is($n, scalar(() = $text =~ /\n/g), 'none is missing, none comes twice');
    is(process($s, $pid)->{state}, 'running', 'the command never noticed');

    # what runs for a request that waits ends with it, and not before

    my $f = stream('POST', "/sessions/$s/exec",
                   json => { cmd => 'echo; sleep 4; echo end' });
    $f->until('stdout');
    $t->reload;
    my $r = $f->rest;
    is("$r->{stdout}$r->{exit}{exit_code}", "end\n0",
       'a stream of a command goes on to its end');

    call('POST', "/sessions/$s/cancel");
};

$t->finish;
done_testing();
