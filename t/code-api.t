#!/usr/bin/perl

# POST /sessions/{id}/code with real interpreters: what is asked, what is
# answered, what is refused, and what an interpreter's death means.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";

use JSON::PP ();
use Test::More;
use SandboxTest::More;
use SandboxTest::Code;

my $t = code_server(http => '    sandbox_audit_log logs/audit.log;',
                    extra => "        location = /metrics {\n"
                             . "            sandbox_api metrics;\n"
                             . "        }\n");
my $s = create_ok();


subtest 'the answer' => sub {
    my $res = code_call($s, '6*7');
    my $j = $res->{json};

    is($res->{status}, 200, 'status');
    is($res->{headers}{'content-type'}, 'application/json', 'type');
    is($j->{text}, '42', 'text');
    is_deeply($j->{results}, [ { 'text/plain' => '42',
                                 is_main_result => JSON::PP::true } ],
              'results');

    my %same = (stdout => '', stderr => '', error => undef,
                execution_count => 1, exit_code => 0, signal => undef,
                reason => 'exited', output_files => [],
                context_id => 'python', language => 'python',
                stdout_bytes => 0, stderr_bytes => 0,
                map { $_ => JSON::PP::false }
                qw(timed_out cancelled oom_killed restarted stdout_truncated
                   stderr_truncated results_truncated
                   output_files_truncated));

    is_deeply({ map { $_ => $j->{$_} } keys %same }, \%same, 'the rest');
    cmp_ok($j->{duration_s}, '>=', $j->{startup_s}, 'times');
    cmp_ok($j->{startup_s}, '>', 0, 'of which the first has a start');
    is(code($s, '1')->{startup_s}, 0, 'and no other');

    $j = code($s, "x = 1\nprint('out')\nimport sys\n"
                  . "print('err', file=sys.stderr)");
    is($j->{text}, undef, 'no last expression, no text');
    is("$j->{stdout}|$j->{stderr}", "out\n|err\n", 'output');
    is("$j->{stdout_bytes} $j->{stderr_bytes}", '4 4', 'in bytes');
    is(code($s, 'x + 1')->{text}, '2', 'state persists');
    is(code($s, '')->{execution_count}, 5, 'no code is a run as well');
};


subtest 'children, C libraries and what is no text' => sub {
    my $j = code($s, "import os, subprocess, ctypes\n"
                     . "print('a')\n"
                     . "subprocess.run('echo b', shell=True)\n"
                     . "os.write(1, b'\\xff\\n')\n"
                     . "libc = ctypes.CDLL(None); libc.puts(b'd')\n"
                     . "libc.fflush(None); print('e')");
    is($j->{stdout}, "a\nb\n\x{fffd}\nd\ne\n", 'in the order of writing');
};


subtest 'errors' => sub {
    my $j = code($s, "def f():\n    return 1/0\nf()");

    is($j->{error}{name}, 'ZeroDivisionError', 'name');
    is($j->{error}{value}, 'division by zero', 'value');
    like($j->{error}{traceback}, qr/line 2.*1\/0/s, 'traceback of the cell');
    unlike($j->{error}{traceback}, qr/\x1b/, 'without terminal codes');
    is("$j->{exit_code} $j->{reason}", '1 exited', 'how it ended');
    is(code($s, '(')->{error}{name}, 'SyntaxError', 'in the syntax');
    is(code($s, 'input()')->{error}{name}, 'EOFError',
       'there is no standard input');
    is(code($s, 'f.__name__')->{text}, "'f'", 'state stays');
};


subtest 'results' => sub {
    my $j = code($s, <<'PY');
class A:
    def _repr_html_(self): return '<b>a</b>'
    def _repr_json_(self): return {"a": [1, None]}
    def __repr__(self): return 'A'
display(A())
display({'application/x.custom+json': {'k': 'v'}, 'text/plain': 'c'}, raw=True)
A()
PY
    my @r = @{ $j->{results} };

    is(scalar @r, 3, 'in order');
    is($r[0]{'text/html'}, '<b>a</b>', 'HTML');
    is_deeply($r[0]{'application/json'}, { a => [ 1, undef ] }, 'JSON');
    is_deeply($r[1]{'application/x.custom+json'}, { k => 'v' }, 'a custom');
    is(join(' ', map { $_->{is_main_result} ? 1 : 0 } @r), '0 0 1',
       'the main one is told apart');
    is($j->{text}, 'A', 'and is the text');
};


subtest 'what a run leaves in the workspace' => sub {
    my $f = create_ok();
    my $of = sub {
        return join ' ', map { "$_->{path}:$_->{size}" }
               sort { $a->{path} cmp $b->{path} }
               @{ code($f, $_[0])->{output_files} };
    };

    put($f, 'old', 'before');
    is($of->('6*7'), '', 'nothing, where it did nothing');
    is($of->("open('a', 'w').write('hi')"), '/home/user/a:2', 'a new file');
    is($of->('6*7'), '', 'is not the next run\'s');
    is($of->("import os; os.makedirs('d/e'); open('d/e/f', 'w').close()\n"
             . "open('a', 'a').write('!')"),
       '/home/user/a:3 /home/user/d/e/f:0', 'a changed one, and one below');
    is($of->("os.makedirs('.cache/x'); open('.cache/x/y', 'w').close()\n"
             . "open('/tmp/z', 'w').close(); os.symlink('/etc/passwd', 'l')"),
       '', 'no cache, no link, and nothing elsewhere');
    is($of->("open('a', 'w').write('x'); 1/0"), '/home/user/a:1',
       'of a run with an error as well');
    is(get($f, 'a')->{body}, 'x', 'and there they are');
    destroy($f);
};


subtest 'time' => sub {
    my $j = code($s, "kept = 1\nimport time\nwhile True: time.sleep(60)",
                 timeout_s => 0.5);

    ok($j->{timed_out}, 'over');
    is("$j->{reason} $j->{exit_code} $j->{error}{name}",
       'timeout 130 KeyboardInterrupt', 'it is interrupted');
    ok(!$j->{restarted}, 'and the interpreter stays');
    is(code($s, 'kept')->{text}, '1', 'with what it held');

    $j = code($s, "while True:\n  try:\n    time.sleep(60)\n"
                  . "  except KeyboardInterrupt: pass", timeout_s => 0.5);
    is("$j->{reason} $j->{error}{name}", 'timeout KernelDied',
       'what an interrupt does not stop');
    ok($j->{timed_out} && $j->{restarted}, 'is killed, and that is told');
    like($j->{error}{value}, qr/\(timeout\)/, 'with the reason');
    is(code($s, "'kept' in globals()")->{text}, 'False', 'all is lost');

    my $short = create_ok({ manifest => { resources =>
                                          { exec_timeout_s => 1 } } });
    $j = code($short, "import time; time.sleep(60)");
    is($j->{reason}, 'timeout', 'left out, it is the session\'s');
    is_problem(code_call($short, '1', timeout_s => 2), 400, 'E2002',
               'more than that', qr/exec_timeout_s.*1/);
    is(code($short, '1', timeout_s => undef)->{text}, '1',
       'null is until the session ends');
    destroy($short);
};


subtest 'death' => sub {
    my %how = ('import os; os._exit(7)' => [ 'exited', 7, undef ],
               'import os; os.kill(os.getpid(), 9)' =>
               [ 'signal', 137, 'SIGKILL' ],
               'import ctypes; ctypes.string_at(0)' =>
               [ 'signal', 139, 'SIGSEGV' ]);

    for my $code (sort keys %how) {
        my $j = code($s, "print('before', flush=True)\n$code");
        my ($reason, $exit, $signal) = @{ $how{$code} };

        is("$j->{error}{name} $j->{reason} $j->{exit_code}",
           "KernelDied $reason $exit", $code);
        is($j->{signal}, $signal, 'by which signal');
        ok($j->{restarted}, 'that it is restarted');
        is($j->{stdout}, "before\n", 'with what it had said');
        is(code($s, '1')->{execution_count}, 1, 'the next has a new one');
    }

    my $small = create_ok({ manifest => { resources =>
                                          { memory => '64MB' } } });
    my $j = code($small, "x = bytearray(200 << 20)");
    is("$j->{error}{name} $j->{reason}", 'KernelDied memory', 'memory');
    ok($j->{oom_killed}, 'the kernel\'s kill');
    like($j->{error}{value}, qr/memory was used up/, 'and what to do');
    is(code($small, '6*7')->{text}, '42', 'and on it goes');
    destroy($small);
};


subtest 'variables' => sub {
    my $e = create_ok({ env => { A => 'session' } });
    my $of = "import os; print(os.environ.get('A'), os.environ.get('B'))";

    is(code($e, $of)->{stdout}, "session None\n", 'the session\'s');
    is(code($e, $of, env => { A => 'run', B => 'b' })->{stdout},
       "run b\n", 'those of the run');
    is(code($e, $of)->{stdout}, "session None\n", 'are its own');
    destroy($e);
};


subtest 'output' => sub {
    my $j = code($s, "print('x' * 5000)\nimport sys\n"
                     . "print('y' * 10, file=sys.stderr)",
                 max_output_bytes => 1000);

    is(length $j->{stdout}, 1000, 'as much as is asked for');
    ok($j->{stdout_truncated} && !$j->{stderr_truncated}, 'that is told');
    is("$j->{stdout_bytes} $j->{stderr_bytes}", '5001 11', 'all is counted');
    is_problem(code_call($s, '1', max_output_bytes => '2MB'), 400, 'E2002',
               'more than the session has', qr/max_output_bytes/);

    $j = code($s, "class B:\n  def __repr__(self): return 'z' * (9 << 20)\n"
                  . "display(B()); display(B()); 'end'");
    ok($j->{results_truncated}, 'results have an end');
    is(scalar @{ $j->{results} }, 2, 'what does not fit is dropped');
    is($j->{text}, "'end'", 'and what does is there');
};


subtest 'requests that are refused' => sub {
    my %bad = ('an unknown field' => [ { code => '1', colour => 'red' },
                                       qr{/colour} ],
               'no code' => [ {}, qr{/code} ],
               'code of another type' => [ { code => 1 }, qr{/code} ],
               'a NUL' => [ { code => "a\0b" }, qr{^/code} ],
               'a language of another type' =>
               [ { code => '1', language => 7 }, qr{/language} ],
               'a time that is none' =>
               [ { code => '1', timeout_s => 0 }, qr{/timeout_s} ],
               'a variable without a name' =>
               [ { code => '1', env => { '' => 'x' } }, qr{/env} ],
               'a variable with a NUL' =>
               [ { code => '1', env => { A => "\0" } }, qr{/env/A} ]);

    for my $name (sort keys %bad) {
        is_problem(call('POST', "/sessions/$s/code", json => $bad{$name}[0]),
                   400, 'E3001', $name, $bad{$name}[1]);
    }

    for my $language ('cobol', 'Python', '', '../bash', 'x' x 100) {
        is_problem(code_call($s, '1', language => $language), 400, 'E3001',
                   "language \"$language\"", qr{^/language: .*python});
    }

    is_problem(code_call($s, 'x' x (1024 * 1024 + 1)), 400, 'E3001',
               'more than a megabyte', qr{/code});
    is_problem(code_call($s, 'x' x (1024 * 1024), env =>
                         { map { ("K$_" => 'x' x 1000) } 1 .. 70 }),
               400, 'E3001', 'or with its environment', qr{/code});
    is_problem(call('POST', "/sessions/$s/code", body => '{"code":"1"}',
                    headers => { 'Content-Type' => 'text/plain' }),
               415, 'E3011', 'another type of body');
    is(code($s, '# ' . 'x' x (1024 * 1024 - 2))->{error}, undef,
       'a megabyte runs');
};


subtest 'sessions that take no code' => sub {
    my $other = create_ok({ manifest => { capabilities => [ 'shell' ] } });

    is_problem(code_call($other, '1'), 403, 'E3004', 'without the capability');
    is_problem(call('GET', "/sessions/$other/contexts"), 403, 'E3004',
               'contexts neither');
    destroy($other);
    is_problem(code_call($other, '1'), 404, 'E2009', 'one that has ended');

    $other = create_ok();
    code($other, 'x = 1');
    call('POST', "/sessions/$other/pause");
    is_problem(code_call($other, 'x'), 409, 'E2010', 'one that is paused');
    call('POST', "/sessions/$other/resume");
    is(code($other, 'x')->{text}, '1', 'which goes on as it was');
    destroy($other);
};


subtest 'cancel interrupts code and keeps interpreters' => sub {
    my $c = create_ok();

    code($c, 'kept = 7');

    my $f = code_stream($c, "print('on')\nimport time; time.sleep(600)");
    $f->until('stdout');
    my $queued = async { code($c, "print('never')") };
    ok(until_true { (context($c, 'python')->{waiting} // 0) == 1 } 10);
    my $command = async { run($c, 'sleep 600') };
    ok(until_true { grep { $_->{cmd}[-1] eq 'sleep 600' }
                    @{ call('GET', "/sessions/$c/processes")
                       ->{json}{processes} } } 10);

    is(call('POST', "/sessions/$c/cancel")->{json}{cancelled}, 3,
       'counts what runs, what waits, and commands');

    my $end = $f->until('end');
    is("$end->{reason} $end->{cancelled} $end->{restarted}",
       'cancelled 1 0', 'the one that runs');

    my $j = $queued->get;
    is("$j->{reason} $j->{stdout}", 'cancelled ', 'the one that waits');
    is($command->get->{reason}, 'cancelled', 'the command');
    is(code($c, 'kept')->{text}, '7', 'the interpreter has its state');
    destroy($c);
};


subtest 'a client that leaves interrupts its run' => sub {
    my $c = create_ok();

    code($c, 'kept = 7; import time');

    my $f = open_request('POST', "/sessions/$c/code",
                         json => { code => "kept = 8; open('on', 'w').close()"
                                           . "; time.sleep(600); kept = 9" });
    ok(until_true { get($c, 'on')->{status} == 200 } 10);
    close $f;
    is(code($c, 'kept')->{text}, '8', 'and its state stays');
    destroy($c);
};


subtest 'processes, log and metrics' => sub {
    my ($p) = grep { $_->{kind} eq 'code' && $_->{state} eq 'running' }
              @{ call('GET', "/sessions/$s/processes")->{json}{processes} };

    is($p->{user}, 'user', 'an interpreter is the user\'s');
    is($p->{pid}, context($s, 'python')->{pid}, 'and told by its pid');

    my @lines = map { SandboxTest::More::parse($_) }
                grep { /"op":"code"/ }
                split /\n/, slurp($t->prefix . '/logs/audit.log');
    my $j = $lines[0];

    is("$j->{session_id} $j->{context_id} $j->{language} $j->{status} "
       . "$j->{exit} $j->{reason}", "$s python python 200 0 exited",
       'the audit log');
    is(scalar(grep { /6\*7|kept/ } @lines), 0, 'has no code');

    my $text = $t->http(GET => '/metrics')->{body};

    for my $outcome (qw(ok error timeout cancelled died unfinished)) {
        like($text, qr/^sandbox_code_runs_total\{language="python",
                        outcome="$outcome"\}\ [1-9]/mx, "counts $outcome");
    }
};

$t->finish;
done_testing();
