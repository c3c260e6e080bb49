#!/usr/bin/perl

# Code that is told of as it runs: events in their order, both forms, slow and
# missing readers.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";

use Test::More;
use SandboxTest::More;
use SandboxTest::Code;
use SandboxTest::Stream;

my $t = code_server();
my $s = create_ok();

sub types { return join ' ', map { $_->{type} } @_ }


for my $form ('ndjson', 'sse') {
    subtest "$form: events of all types" => sub {
        my $f = code_stream($s, <<'PY', _http => { sse => $form eq 'sse' });
import sys
print('one')
display('shown')
print('two', file=sys.stderr)
display('again')
print('three')
6*7
PY

        is($f->{status}, 200, 'status');
        is($f->{headers}{'content-type'},
           $form eq 'sse' ? 'text/event-stream' : 'application/x-ndjson',
           'type');

        my $r = $f->rest;
        my @e = joined(@{ $r->{events} });

        my ($start, $end) = @e[0, -1];
        my @results = grep { $_->{type} eq 'result' } @e;

        # what is written after a result may be read together with it

        my %first;
        $first{ $e[$_]{type} } //= $_ for 0 .. $#e;
        my ($second) = grep { $e[$_]{type} eq 'result'
                              && $_ != $first{result} } 0 .. $#e;

        is($first{start}, 0, 'the start comes first');
        is($e[-1]{type}, 'end', 'the end last');
        cmp_ok($first{stdout}, '<', $first{result},
               'output before what is shown after it');
        cmp_ok($first{stderr}, '<', $second, 'of both streams');
        is("$start->{context_id} $start->{language}", 'python python',
           'start');
        is("$r->{stdout}$r->{stderr}", "one\nthree\ntwo\n", 'texts');

        my $at = 0;

        for my $e (grep { $_->{type} eq 'stdout' } @{ $r->{events} }) {
            is($e->{offset}, $at, 'an offset');
            $at += length $e->{data};
        }

        is(join(' ', map { $_->{'text/plain'} . $_->{is_main_result} }
                     @results), "'shown'0 'again'0 421", 'results in order');
        is("$end->{exit_code} $end->{reason} $end->{stdout_bytes}",
           '0 exited 10', 'the end');
        ok(!exists $end->{$_}, "has no $_")
            for qw(text stdout stderr results);
        is($end->{error}, undef, 'but the rest of the answer');
        ok($f->{whole}, 'the body ends as it should');
    };
}


subtest 'each event comes at once' => sub {
    my %by = ('the code' => "print('on')",
              'a child' => "import subprocess\n"
                           . "subprocess.run('echo on', shell=True)",
              'a C library' => "import ctypes\n"
                               . "ctypes.CDLL(None).puts(b'on')");

    for my $who (sort keys %by) {
        my $f = code_stream($s, "import os, time\n$by{$who}\n"
                                . "while not os.path.exists('go'): "
                                . "time.sleep(0.02)\nos.remove('go'); 'off'");

        like($f->until('stdout')->{data}, qr/^on/, "of $who, while it runs");
        put($s, 'go', '');
        like(types($f->until('end')), qr/result end$/,
             'and it is told the rest');
    }
};


subtest 'no event holds half a character' => sub {
    my $r = code_stream($s, "import os, time\n"
                            . "for b in b'\\xf0\\x9f\\xa4\\xa3x\\xc3':\n"
                            . "    os.write(1, bytes([b])); time.sleep(0.05)")
            ->rest;
    my @e = grep { $_->{type} eq 'stdout' } @{ $r->{events} };

    is($r->{stdout}, "\x{1f923}x\x{fffd}", 'but what never became whole');
    is($e[0]{offset}, 0, 'from its first byte');
    is($r->{end}{stdout_bytes}, 6, 'in bytes');
};


subtest 'errors and death' => sub {
    my $r = code_stream($s, "print('x')\n1/0")->rest;

    is(types(joined(@{ $r->{events} })), 'start stdout error end', 'an error');
    is("$r->{error}{name} $r->{end}{error}{name} $r->{end}{exit_code}",
       'ZeroDivisionError ZeroDivisionError 1', 'which the end tells again');

    $r = code_stream($s, "import time; time.sleep(600)", timeout_s => 0.3)
         ->rest;
    is("$r->{error}{name} $r->{end}{reason} $r->{end}{timed_out}",
       'KeyboardInterrupt timeout 1', 'its time is over');

    $r = code_stream($s, "print('x', flush=True)\nimport os; os._exit(3)")
         ->rest;
    is(types(joined(@{ $r->{events} })), 'start stdout error end', 'a death');
    is("$r->{error}{name} $r->{end}{restarted} $r->{end}{exit_code}",
       'KernelDied 1 3', 'and what of');
};


subtest 'a refusal is no stream' => sub {
    my %ndjson = (headers => { Accept => 'application/x-ndjson' });

    is_problem(code_call($s, '1', language => 'cobol', _http => \%ndjson),
               400, 'E3001', 'a language');
    is_problem(code_call($s, '1', context_id => 'none', _http => \%ndjson),
               404, 'E3005', 'a context');
};


subtest 'a stream is not capped' => sub {
    my $r = code_stream($s, "print('x' * 300000)", max_output_bytes => 1000)
            ->rest;

    is(length $r->{stdout}, 300001, 'all of it comes');
    ok(!$r->{end}{stdout_truncated}, 'and that is told');
};


subtest 'a run that waits' => sub {
    my $first = code_stream($s, "import os, time\nprint('on')\n"
                                . "while not os.path.exists('go2'): "
                                . "time.sleep(0.02)");
    $first->until('stdout');

    my $second = code_stream($s, "'second'");

    is($second->{status}, 200, 'has a header while it waits');
    is(types($second->next), 'ping', 'and is told that it does');
    put($s, 'go2', '');
    is($first->until('end')->{reason}, 'exited', 'the first ends');
    is(types($second->until('end')), 'start result end', 'then it begins');
};


subtest 'a reader that stalls stops the code, not the server' => sub {
    code($s, 'n = 0');

    my @workers = workers();
    my $before = rss(@workers);
    my $f = code_stream($s, "while True:\n  n += 1\n  print('x' * 1000)\n"
                            . "  if n % 1000 == 0: display('y' * 100000)",
                        timeout_s => undef, _http => { rcvbuf => 65536 });
    is(($f->until('stdout') // {})->{type}, 'stdout', 'it runs');

    ok(stands_still($s, 30), 'the code waits');

    SKIP: {
        skip 'a sanitizer keeps freed memory', 1 if $SandboxTest::SANITIZE;
        cmp_ok(rss(@workers) - $before, '<', 8 * 1024 * 1024,
               'memory of the workers is flat');
    }

    is(run($s, 'echo ok')->{stdout}, "ok\n", 'others are served');

    my $got = 0;

    while ($got < 3_000_000) {
        my $e = $f->next // last;
        $got += length($e->{data} // '');
    }

    cmp_ok($got, '>=', 3_000_000, 'and once it reads it is served again');
    $f->close;
    like(code($s, 'n')->{text}, qr/^\d+$/,
         'a reader that goes interrupts it, and its state stays');
};

$t->finish;
done_testing();
