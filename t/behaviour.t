#!/usr/bin/perl

# What users of such services have run into, as one would meet it: short
# programs, and what a person would expect of each.  SANDBOX_TEST_LONG=1 looks
# for a call that the filter lacks in 2,000 runs instead of 25.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";

use Test::More;
use SandboxTest::More;
use SandboxTest::Stream;

my $t = server();
my $s = create_ok({ timeout_s => 3600 });


subtest 'a timeout of two seconds takes two seconds' => sub {
    my $r = run($s, 'sleep 5; echo hi > late; echo hi', timeout_s => 2);
    cmp_ok($r->{duration_s}, '>=', 2, 'not before');
    cmp_ok($r->{duration_s}, '<', within(3), 'not after');
    ok($r->{timed_out}, 'timed_out');
    is($r->{stdout}, '', 'no hi');

    $r = run($s, 'sleep 3.2; ls late 2>/dev/null');
    is($r->{stdout}, '', 'nor later anywhere');
};


subtest 'times as programs reckon them' => sub {
    my $s = create_ok({ timeout_s => 1000 / 3 });

    is(run($s, 'true', timeout_s => 20.1 + 0.2)->{reason}, 'exited',
       'more decimals than there are milliseconds');

    for my $body ('{"cmd":"true","timeout_s":0.30000000000000004}',
                  '{"cmd":"true","timeout_s":1.5e1}',
                  '{"cmd":"true","limits":{"cpu_seconds":0.3333333333333333}}')
    {
        is(call('POST', "/sessions/$s/exec", body => $body, headers => {
               'Content-Type' => 'application/json' })->{status}, 200, $body);
    }

    is(call('PATCH', "/sessions/$s",
            json => { timeout_s => 1000 / 7 })->{status}, 200, 'PATCH');
    destroy($s);
};


subtest 'a line without its end is not lost to a timeout' => sub {
    for my $program ('printf "half a line"; sleep 9',
                     q{python3 -c 'import time; print("half a line", end="");}
                     . q{ time.sleep(9)'},
                     q{perl -e '$| = 1; print "half a line"; sleep 9'})
    {
        my $r = run($s, $program, timeout_s => 1);
        is($r->{stdout}, 'half a line', substr $program, 0, 20);
        ok($r->{timed_out}, 'timed_out');
    }
};


subtest 'what reads its input, and has none, ends at once' => sub {
    for my $cmd ('cat', 'grep x', 'read x', 'sort', 'python3 -',
                 'cat & wait $!', '(read x; echo "[$x]") & wait')
    {
        my $r = run($s, $cmd, timeout_s => 10);
        ok(!$r->{timed_out} && $r->{duration_s} < 5, $cmd);
    }

    # ... and so it does where nobody waits for it

    for my $cmd ('cat', 'grep x', 'read x', 'python3 -') {
        my $pid = background($s, "$cmd; echo at its end");
        my $got;

        ok(until_true(sub {
            $got = call('GET', "/sessions/$s/processes/$pid")->{json};
            return $got->{state} ne 'running';
        }, 10), "in the background: $cmd");
        is($got->{exit_code}, 0, 'ends by itself');
    }
};


subtest 'a child in the background' => sub {
    my $r = run($s, "sleep 20.$$ & echo STARTED");
    is($r->{stdout}, "STARTED\n", 'STARTED');
    cmp_ok($r->{duration_s}, '<', within(2), 'at once');
    ok(until_true(sub { host_pids("20.$$") }, 5), 'it lives on');

    my $v = create_ok();
    run($v, "sleep 21.$$ & (setsid sleep 21.$$ &)");
    ok(until_true(sub { host_pids("21.$$") == 2 }, 5),
       'two in another session');
    destroy($v);
    is(scalar host_pids("21.$$"), 0, 'die with it');
    is(scalar host_pids("20.$$"), 1, 'and only they');
};


subtest 'much output is no crime' => sub {
    my $lines = sub { join '', map { "line $_\n" } 1 .. $_[0] };

    my $r = run($s, 'for i in $(seq 1626); do echo "line $i"; done');
    is($r->{stdout}, $lines->(1626), '1,626 lines are whole');

    $r = run($s, [ 'python3', '-c',
                   'for i in range(1, 3001): print("line", i)' ]);
    is($r->{stdout}, $lines->(3000), '3,000 lines are whole');
    ok(!$r->{stdout_truncated}, 'and not flagged');

    $r = run($s, 'yes | head -n 5000000');
    is("$r->{reason} $r->{exit_code}", 'exited 0', 'ten million bytes');
    ok($r->{stdout_truncated}, 'are cut');
    is($r->{stdout_bytes}, 10_000_000, 'and counted');
};


subtest 'streams, status and bytes' => sub {
    my $r = run($s, 'printf out; printf err >&2; exit 7');
    is("$r->{stdout}|$r->{stderr}|$r->{exit_code}", 'out|err|7', 'three');

    my $res = exec_call($s, q(printf '\377\376\000'));
    is($res->{status}, 200, 'bytes that are no text are no error');
    is($res->{json}{stdout}, "\x{fffd}\x{fffd}\0", 'replaced');
    is(unb64(run($s, q(printf '\377\376\000'),
                 encoding => 'base64')->{stdout}), "\xff\xfe\0", 'or exact');
};


subtest 'names of files' => sub {
    for my $name ("\xf0\x9f\xa4\xa3.txt",
                  "\xe6\xb5\x8b\xe8\xaf\x95 \xe6\x96\x87\xe4\xbb\xb6.txt",
                  'ends in a space ')
    {
        is(put($s, $name, "content\n")->{status}, 201, 'up');

        my $res = get($s, $name);
        is($res->{body}, "content\n", 'down');
        like($res->{headers}{'content-disposition'},
             qr/filename\*=UTF-8''\Q@{[ enc($name) ]}\E/, 'filename*');

        my $r = run($s, 'ls; rm -f -- *.txt *" "');
        utf8::encode($r->{stdout});
        like($r->{stdout}, qr/^\Q$name\E$/m, 'a command sees the name');
    }

    run($s, 'mkdir -p real none; touch real/a real/b; ln -s real by-link;'
            . ' touch "real/c "');
    my @names = map { $_->{name} } @{ glob_of($s,
                                              'by-link/*')->{json}{entries} };
    is_deeply(\@names, [ 'a', 'b', 'c ' ], 'a list by a link, with its space');
    is_deeply(glob_of($s, 'none/*')->{json}{entries}, [],
              'an empty directory');
};


subtest 'removing what seems to be needed' => sub {
    my $v = create_ok();

    for my $cmd ('rm -rf /tmp', 'rm -rf /tmp/* /tmp/.[!.]*', 'rm -rf $HOME',
                 'mkdir -p ~/here; cd ~/here && rm -rf ~/here; rm -rf "$PWD"',
                 'find / -delete')
    {
        run($v, "$cmd 2>/dev/null");
        is(run($v, 'echo test')->{stdout}, "test\n", $cmd);

        for my $file ('x', '/workspace/x', '/tmp/x') {
            like(put($v, $file, 'y')->{status}, qr/^20[01]$/,
                 "and $file can be written");
        }
    }

    destroy($v);
};


subtest 'a clean answer for what ran out of memory' => sub {
    my $v = create_ok({ manifest => { resources => { memory => '64MB' } } });

    my $r = run($v, [ 'python3', '-c', 'bytearray(2 << 30)' ]);
    ok($r->{reason} eq 'memory' && $r->{oom_killed}
       || $r->{reason} eq 'exited' && $r->{stderr} =~ /MemoryError/,
       "2 GB at once: $r->{reason}");

    $r = run($v, [ 'python3', '-c', 'x = bytearray(2 << 30)
for i in range(0, len(x), 4096): x[i] = 1' ]);
    ok($r->{reason} eq 'memory'
       || $r->{reason} eq 'exited' && $r->{stderr} =~ /MemoryError/,
       "touched: $r->{reason}");

    $r = run($v, [ 'python3', '-c', 'x = []
while True: x.append(bytearray(1 << 18))' ], timeout_s => 30);
    is($r->{reason}, 'memory', 'a slow leak');
    ok($r->{oom_killed}, 'oom_killed');
    is($r->{exit_code}, 137, 'exit_code');
    cmp_ok($r->{usage}{memory_peak}, '>', 40 << 20, 'its peak');

    $r = run($v, 'python3 -c "
x = []
while True: x.append(bytearray(1 << 18))"; echo "the shell lives: $?"');
    like("$r->{reason} $r->{stdout}",
         qr/^(?:memory |exited the shell lives: 137\n)$/,
         'a child that leaks takes its command along');
    ok($r->{oom_killed}, 'and says that a child was killed');

    $r = run($v, [ 'python3', '-c', 'import resource
resource.setrlimit(resource.RLIMIT_AS, (200 << 20,) * 2)
try:
    bytearray(1 << 30)
except MemoryError:
    print("clean")' ]);
    is("$r->{reason} $r->{stdout}", "exited clean\n", 'a clean MemoryError');
    ok(!$r->{oom_killed}, 'is nobody\'s kill');

    # more than the session's memory and its half again

    $r = run($v, 'head -c 200000000 /dev/zero > /dev/shm/fill; echo $?');
    like("$r->{reason} $r->{stdout}", qr/^(?:memory |exited [1-9]\d*\n)$/,
         '/dev/shm is bounded');

    $r = run($v, 'stat -c %s /dev/shm/fill; rm /dev/shm/fill');
    cmp_ok($r->{stdout}, '>=', 1 << 20, 'though there is some');
    cmp_ok($r->{stdout}, '<=', 96 << 20, 'to what was asked for');
    is(run($v, 'echo alive')->{stdout}, "alive\n", 'the session lives');
    destroy($v);
};


subtest 'the environment is inherited and does not leak' => sub {
    my $v = create_ok({ env => { COLOR => 'red', KEEP => '1' } });

    is(run($v, 'echo $COLOR')->{stdout}, "red\n", 'exec');
    is(run($v, 'sh -c "echo \$COLOR" & wait')->{stdout}, "red\n",
       'in the background');
    is(run($v, [ 'python3', '-c', 'import os; print(os.environ["COLOR"])' ],
           env => { COLOR => 'blue' })->{stdout}, "blue\n", 'the call wins');
    is(run($v, 'echo $COLOR $KEEP')->{stdout}, "red 1\n", 'once');

    background($v, 'echo $COLOR $KEEP > of-a-process');
    ok(until_true(sub { get($v, 'of-a-process')->{body} eq "red 1\n" }, 10),
       'a process');

    my %code = (python => [ 'import os; print(os.environ["COLOR"])' ],
                javascript => [ 'console.log(process.env.COLOR)' ],
                bash => [ 'echo $COLOR' ]);

    for my $language (sort keys %code) {
        my $run = sub {
            my $res = call('POST', "/sessions/$v/code", json => {
                language => $language, code => $code{$language}[0], @_ });

            return $res->{json}{stdout} // $res->{json}{code};
        };

      SKIP: {
            my $said = $run->();

            skip "this machine has no $language", 3 if $said eq 'E3004';
            is($said, "red\n", $language);
            is($run->(env => { COLOR => 'blue' }), "blue\n", 'the run wins');
            is($run->(), "red\n", 'once');
        }
    }

    my $w = ws_open("/sessions/$v/terminal");
    is($w->{status}, 101, 'a terminal');
    $w->type("echo =\$COLOR=\$KEEP=\n");
    ok($w->expect(qr/=red=1=\r\n/), 'has it too');
    $w->type("exit\n");
    is(join(' ', $w->closed), '1000 exited 0', 'and ends');
    destroy($v);
};


subtest 'without a network programs fail at once' => sub {
    my $r = run($s, 'curl -sS -m 20 https://example.com/; echo $?');
    cmp_ok($r->{duration_s}, '<', within(2), 'curl');
    like($r->{stdout}, qr/^(?:6|7|127)\n$/, 'its own error');

    $r = run($s, [ 'python3', '-c', 'import urllib.request
urllib.request.urlopen("http://192.0.2.1/", timeout=20)' ]);
    cmp_ok($r->{duration_s}, '<', within(4), 'python');
    like($r->{stderr}, qr/unreachable/, 'told as such');

    my %installers = (
        pip => [ '/usr/bin/pip install --break-system-packages requestsx',
                 qr/Temporary failure in name resolution/ ],
        npm => [ 'npm install left-pad', qr/EAI_AGAIN|ENOTFOUND/ ],
    );

    for my $tool (sort keys %installers) {
        my ($cmd, $text) = @{ $installers{$tool} };

      SKIP: {
            skip "this machine has no /usr/bin/$tool", 4
                if run($s, "/usr/bin/$tool --version")->{exit_code} != 0;

            # npm waits ten seconds, and a minute, before it tries again

            $r = run($s, $cmd, timeout_s => 60);
            is("$r->{reason} $r->{exit_code}", 'exited 1', $tool);
            cmp_ok(scalar(() = $r->{stderr} =~ /Retrying/g), '<', 2,
                   'does not try again and again');
            like($r->{stderr}, $text, 'told as such');

            my $name = $tool eq 'pip' ? 'PIP_RETRIES'
                                      : 'npm_config_fetch_retries';
            is(run($s, "echo \$$name", env => { $name => '7' })->{stdout},
               "7\n", "a call's own $name wins");
        }
    }
};


subtest 'variables that are dangerous outside are harmless' => sub {
    my $v = create_ok({ env => { LD_PRELOAD => '/home/user/evil.so',
                                 BASH_ENV => '/home/user/evil.sh',
                                 PYTHONPATH => '/home/user/evil',
                                 PATH => '/home/user/evil:/usr/bin:/bin' } });

    put($v, 'evil.so', "\x7fELF not a library");
    put($v, 'evil.sh', "echo evil\n");
    put($v, 'evil/ls', "#!/bin/sh\necho evil ls\n", query => 'mode=0755');

    is(run($v, [ 'bash', '-c', 'echo ok' ])->{stdout}, "evil\nok\n",
       'they do inside what they do');
    is(run($v, 'ls')->{stdout}, "evil ls\n", 'PATH too');
    is(get($v, 'evil.sh')->{body}, "echo evil\n", 'files are served');
    is(glob_of($v, '*')->{status}, 200, 'lists too');
    is(put($v, 'x', 'y')->{status}, 201, 'uploads too');
    is(destroy($v)->{status}, 204, 'and it can be destroyed');
};


subtest 'a client that goes away leaves no made-up end' => sub {
    my $q = open_request('POST', "/sessions/$s/exec",
                         json => { cmd => "echo begun; sleep 22.$$" });
    ok(until_true(sub { host_pids("22.$$") }, 5), 'it runs');
    shutdown $q, 1;
    close $q;
    ok(until_true(sub { !host_pids("22.$$") }, 5), 'and ends with its client');
    is(run($s, 'echo next')->{stdout}, "next\n", 'the next is served');
};


subtest 'tools that a programmer expects' => sub {
    for my $cmd ('python3 --version', 'bash --version', 'sh -c true',
                 'ls -l /', 'sed --version', 'awk "BEGIN { print 1 }"',
                 'tar --version', 'find /etc -maxdepth 1', 'ps aux || true',
                 'date', 'id', 'hostname', 'getent passwd user',
                 'python3 -c "import ssl, sqlite3, json, threading"',
                 'python3 -c "import multiprocessing as m;'
                 . ' print(m.Pool(2).map(abs, [-1, -2]))"',
                 'python3 -c "import asyncio; asyncio.run(asyncio.sleep(0))"',
                 'python3 -c "import socket; socket.socketpair();'
                 . ' print(socket.gethostbyname(\'localhost\'))"',
                 'python3 -c "import tempfile; tempfile.mkstemp()"',
                 'python3 -c "import getpass;'
                 . ' assert getpass.getuser() == \'user\'"',
                 'python3 -c "import pty, os; pty.openpty()"',
                 'perl -e "print 1"')
    {
        my $r = run($s, $cmd);
        is($r->{exit_code}, 0, $cmd) or diag($r->{stderr});
    }

    for my $tool (qw(git gcc node)) {
      SKIP: {
            skip "this machine has no $tool", 1 if !-x "/usr/bin/$tool";
            my $r = run($s, "$tool --version");
            is($r->{exit_code}, 0, $tool) or diag($r->{stderr});
        }
    }

  SKIP: {
        skip 'this machine has no git', 1 if !-x '/usr/bin/git';
        my $r = run($s, 'mkdir repo && cd repo && git init -q . && git config'
            . ' user.email a@b && git config user.name a && echo x > f &&'
            . ' git add f && git commit -qm one && git log --oneline | wc -l');
        is($r->{stdout}, "1\n", 'git works') or diag($r->{stderr});
    }

    my ($seen, $runs) = (0, $ENV{SANDBOX_TEST_LONG} ? 2000 : 25);

    for (1 .. $runs) {
        my $r = run($s, [ 'python3', '-c',
            'import asyncio, subprocess, threading, json;'
            . ' subprocess.run(["true"]); asyncio.run(asyncio.sleep(0));'
            . ' t = threading.Thread(target=print); t.start(); t.join()' ]);
        $seen++ if $r->{exit_code} != 0 || ($r->{signal} // '') eq 'SIGSYS';
    }

    is($seen, 0, "none of $runs runs met a call that the filter lacks");
};


subtest 'fork bombs and thread bombs stay in their session' => sub {
    my $v = create_ok({ manifest => { resources => { processes => 64 } } });

    # its leader needs no process more, which there is none for

    my $job = async {
        run($v, 'bomb() { bomb | bomb & }; bomb; exec sleep 20',
            timeout_s => 3)
    };
    my @late;

    for (1 .. 10) {
        my $t0 = time;
        push @late, 'exec' if run($s, 'echo ok')->{stdout} ne "ok\n"
                              || time - $t0 > within(3);
        $t0 = time;
        push @late, 'file' if get($v, '/etc/passwd')->{status} != 200
                              || time - $t0 > within(3);
    }

    is("@late", '', 'other sessions and its own files are served');
    is($job->get(30)->{reason}, 'timeout', 'it ends at its time');
    is(run($v, 'echo alive')->{stdout}, "alive\n", 'and nothing of it stays');

    # threads, and more workers than there may be: an error inside, no hang

    my $r = run($v, [ 'python3', '-c', 'import threading
e = threading.Event()
try:
    for n in range(1000): threading.Thread(target=e.wait, daemon=True).start()
except RuntimeError as x:
    print(n < 64, x)' ], timeout_s => 30);
    is($r->{stdout}, "True can't start new thread\n", 'a thread bomb');

    $r = run($v, [ 'python3', '-c', 'import multiprocessing as m
try:
    m.Pool(64)
except OSError as x:
    print(x.strerror, flush=True)' ], timeout_s => 30);
    like($r->{stdout}, qr/^Resource temporarily unavailable\n/,
         'a pool of 64 in a session of 64');
    is(run($v, 'echo alive')->{stdout}, "alive\n", 'the session goes on');

    my $t0 = time;
    is(destroy($v)->{status}, 204, 'it can be destroyed');
    cmp_ok(time - $t0, '<', within(3), 'quickly');
};


destroy($s);
$t->finish;
done_testing();
