#!/usr/bin/perl

# POST /sessions/{id}/exec: every field of the request and of the answer.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";

use JSON::PP ();
use Test::More;
use SandboxTest::More;

my $t = server();
my $s = create_ok({ env => { FROM_SESSION => 'one', BOTH => 'session' } });

sub out { return run($s, @_)->{stdout} }

sub refused {
    my ($name, $status, $code, $detail, $json) = @_;

    local $Test::Builder::Level = $Test::Builder::Level + 1;

    return is_problem(call('POST', "/sessions/$s/exec", json => $json),
                      $status, $code, $name, $detail);
}


subtest 'the answer has every field, and no other' => sub {
    my $res = exec_call($s, [ 'python3', '-c', 'print(6*7)' ]);
    my $r = $res->{json};

    is($res->{status}, 200, 'status');
    like($res->{headers}{'content-type'}, qr{^application/json\b}, 'JSON');
    like($res->{headers}{'x-request-id'}, qr/^[0-9a-f]{32}$/, 'X-Request-ID');

    is(join(' ', sort keys %$r),
       'cancelled duration_s exit_code oom_killed pid reason signal stderr '
       . 'stderr_bytes stderr_truncated stdout stdout_bytes stdout_truncated '
       . 'timed_out usage', 'its names');
    is(join(' ', sort keys %{ $r->{usage} }),
       'cpu_system_s cpu_user_s memory_peak processes_peak read_bytes '
       . 'throttled_s written_bytes', 'names of its usage');

    is($r->{stdout}, "42\n", 'stdout');
    is($r->{stderr}, '', 'stderr');
    is($r->{exit_code}, 0, 'exit_code');
    is($r->{signal}, undef, 'signal');
    is($r->{reason}, 'exited', 'reason');
    is("$r->{stdout_bytes} $r->{stderr_bytes}", '3 0', 'bytes');
    cmp_ok($r->{pid}, '>', 1, 'pid');
    cmp_ok($r->{duration_s}, '>', 0, 'duration_s');
    cmp_ok($r->{duration_s}, '<', within(20), 'in seconds');

    for my $k (qw(timed_out oom_killed cancelled stdout_truncated
                  stderr_truncated))
    {
        ok(JSON::PP::is_bool($r->{$k}) && !$r->{$k}, "$k is false");
    }

    for my $k (sort keys %{ $r->{usage} }) {
        cmp_ok($r->{usage}{$k}, '>=', 0, "usage.$k");
    }
};


subtest 'a string is for the shell, an array is not parsed' => sub {
    is(out('echo $HOME; echo a b | tr a-z A-Z'), "/home/user\nA B\n",
       'a string');
    is(out([ 'echo', '$HOME; ls', '*', '' ]), "\$HOME; ls * \n", 'an array');
    is(out([ 'printf', '[%s]', 'a b', "c\nd", '', "\x{1f923}" ]),
       "[a b][c\nd][][\x{1f923}]", 'its elements are whole');

    my $r = run($s, 'printf out; printf err >&2; exit 7');
    is("$r->{stdout} $r->{stderr} $r->{exit_code} $r->{reason}",
       'out err 7 exited', 'streams and status are told apart');

    $r = run($s, 'exit 137');
    is($r->{exit_code}, 137, 'exit 137');
    is($r->{reason}, 'exited', 'is an exit');
    is($r->{signal}, undef, 'by no signal');
    ok(!$r->{oom_killed} && !$r->{timed_out}, 'and by no limit');

    is(run($s, 'exit 255')->{exit_code}, 255, 'exit 255');

    my @pids = map { run($s, 'true')->{pid} } 1 .. 3;
    is(scalar(keys %{ { map { $_ => 1 } @pids } }), 3, 'each has a pid');
    my $j = run($s, 'echo $$');
    is($j->{stdout}, "$j->{pid}\n", 'the pid is the one that it sees itself');
};


subtest 'death by a signal is told by its name' => sub {
    my %signals = (SEGV => 11, KILL => 9, TERM => 15, ABRT => 6, FPE => 8,
                   PIPE => 13, USR1 => 10, HUP => 1);

    for my $name (sort keys %signals) {
        my $r = run($s, "kill -$name \$\$; sleep 5");

        is($r->{reason}, 'signal', "SIG$name: reason");
        is($r->{signal}, "SIG$name", 'signal');
        is($r->{exit_code}, 128 + $signals{$name}, 'exit_code');
        ok(!$r->{oom_killed} && !$r->{timed_out}, 'no limit is blamed');
    }

    # two are the C library's own, and between the names

    for my $row ([ 32, 'SIG32' ], [ 33, 'SIG33' ], [ 34, 'SIGRTMIN' ],
                 [ 37, 'SIGRTMIN+3' ])
    {
        my $r = run($s, [ 'python3', '-c',
                          "import os; os.kill(os.getpid(), $row->[0])" ]);
        is($r->{signal}, $row->[1], "signal $row->[0]")
            or diag(JSON::PP->new->canonical->encode($r));
    }
};


subtest 'a timeout ends everything that the command started' => sub {
    my $r = run($s, 'echo first; sleep 5; echo hi', timeout_s => 0.5);
    is($r->{reason}, 'timeout', 'reason');
    ok($r->{timed_out}, 'timed_out');
    is($r->{signal}, 'SIGKILL', 'signal');
    is($r->{exit_code}, 137, 'exit_code');
    is($r->{stdout}, "first\n", 'what came before it is kept');
    cmp_ok($r->{duration_s}, '>=', 0.5, 'not before its time');
    cmp_ok($r->{duration_s}, '<', within(1.5), 'nor long after');

    my $mark = "6$$.25";
    my %ways = (
        'a pipeline' => "sleep $mark | sleep $mark",
        'a background child' => "sleep $mark & sleep $mark",
        'a new session' => "setsid sleep $mark & sleep $mark",
        'a double fork' => "(setsid sh -c 'sleep $mark &' &); sleep $mark",
        'nohup' => "nohup sleep $mark & nohup sleep $mark",
        'one that ignores signals' => 'python3 -c "import os,signal,time;'
            . ' [signal.signal(n, signal.SIG_IGN) for n in (1, 2, 3, 15)];'
            . ' [os.fork() for _ in range(3)];'
            . ' os.setsid() if os.getpid() != os.getpgid(0) else 0;'
            . " time.sleep($mark)\"",
        'a stopped one' => "sleep $mark & kill -STOP \$!; kill -STOP \$\$",
        'many' => "for i in \$(seq 40); do sleep $mark & done; wait",
    );

    for my $way (sort keys %ways) {
        $r = run($s, $ways{$way}, timeout_s => 1);
        my @left = host_pids($mark);

        is($r->{reason}, 'timeout', "$way: reason");
        cmp_ok($r->{duration_s}, '<', within(3), 'in time');
        is("@left", '', 'nothing is left when the answer is there')
            or diag(map { (slurp("/proc/$_/status") // '')
                          =~ /^((?:Name|State|PPid).*\n)/mg } @left);
    }

    $r = run($s, [ 'python3', '-c', 'import time; print("part", end="");'
                   . ' time.sleep(9)' ], timeout_s => 1);
    is($r->{stdout}, 'part', 'output without a newline is there');

    is(run($s, 'sleep 0.3; echo ok', timeout_s => undef)->{stdout}, "ok\n",
       'null is no timeout');
    is(run($s, 'echo ok', timeout_s => 30)->{stdout}, "ok\n", 'a whole one');
};


subtest 'what cannot be started says so in one line' => sub {
    run($s, 'echo text > plain; mkdir -p dir; printf "#!/nowhere/sh\n" > bad;'
            . ' chmod +x bad; head -c 100 /dev/urandom > junk;'
            . ' chmod +x junk');

    for my $case ([ 127, '/no/such/program' ], [ 127, 'no-such-program' ],
                  [ 127, './missing' ], [ 126, './plain' ], [ 126, './dir' ],
                  [ 126, './junk' ], [ 126, '/etc/passwd' ],
                  [ qr/^12[67]$/, './bad' ], [ qr/^12[67]$/, './plain/x' ])
    {
        my ($code, $program) = @$case;
        my $r = run($s, [ $program, 'arg' ]);

        is($r->{reason}, 'not_started', "$program: reason");
        like($r->{exit_code}, ref $code ? $code : qr/^$code$/, 'exit_code');
        is($r->{signal}, undef, 'no signal');
        is($r->{stdout}, '', 'no output');
        like($r->{stderr}, qr/^[^\n]*\Q$program\E[^\n]*\n$/,
             'one line names it');
    }

    my $r = run($s, [ 'no-such-program' ],
                env => { PATH => '/usr/bin:/root:/root/bin' });
    is("$r->{reason} $r->{exit_code}", 'not_started 127',
       'a directory of PATH that is closed has no program');
    run($s, 'mkdir -p bin; echo text > bin/unfit');
    $r = run($s, [ 'unfit' ], env => { PATH => '/root:/home/user/bin' });
    is($r->{exit_code}, 126, 'but one that is there is told of');

    $r = run($s, 'no-such-program');
    is("$r->{reason} $r->{exit_code}", 'exited 127',
       'in a shell the shell tells');
};


subtest 'standard input' => sub {
    is(out([ 'cat' ], stdin => "a\x{1f923}b"), "a\x{1f923}b", 'text');
    is(out([ 'cat' ], stdin_base64 => b64("plain")), 'plain', 'base64');
    is(unb64(out([ 'cat' ], stdin_base64 => b64(join '', map { chr } 0 .. 255),
                 encoding => 'base64')), join('', map { chr } 0 .. 255),
       'every byte');
    is(unb64(run($s, [ 'cat' ], stdin => "a\0b",
                 encoding => 'base64')->{stdout}), "a\0b", 'NUL in text');
    is(out([ 'wc', '-c' ], stdin => 'x' x 1_000_000), "1000000\n",
       'a megabyte');
    is(out([ 'md5sum' ], stdin => 'y' x 300_000),
       md5_hex('y' x 300_000) . "  -\n", 'unchanged');
    is(out([ 'readlink', '/proc/self/fd/0' ]), "/dev/null\n",
       'without any it is /dev/null');

    refused('both forms', 400, 'E3001', qr{/stdin},
            { cmd => 'cat', stdin => 'x', stdin_base64 => 'eA==' });
    refused('what is not base64', 400, 'E3001', qr{/stdin_base64},
            { cmd => 'cat', stdin_base64 => 'a*b=' });
};


subtest 'encodings' => sub {
    is(out([ 'printf', '%s', "\x{6d4b}\x{8bd5}" ]), "\x{6d4b}\x{8bd5}",
       'UTF-8 by default');

    my $r = run($s, 'printf "a\377b"; printf "\376" >&2',
                encoding => 'base64');
    is(unb64($r->{stdout}), "a\xffb", 'base64: stdout');
    is(unb64($r->{stderr}), "\xfe", 'and stderr');
    is($r->{stdout_bytes}, 3, 'bytes, not characters of base64');

    refused('an unknown encoding', 400, 'E3001', qr{/encoding},
            { cmd => 'true', encoding => 'latin-1' });
};


subtest 'the cap on output' => sub {
    my $all = join '', map { "$_\n" } 1 .. 1000;

    my $r = run($s, 'seq 1000', max_output_bytes => 10);
    is($r->{stdout}, substr($all, 0, 10), 'the head is kept');
    is($r->{stdout_bytes}, length $all, 'all is counted');
    ok($r->{stdout_truncated} && !$r->{stderr_truncated}, 'flags');
    is($r->{exit_code}, 0, 'the command is none the wiser');

    $r = run($s, 'seq 1000', max_output_bytes => length $all);
    is($r->{stdout}, $all, 'exactly at the cap it is whole');
    ok(!$r->{stdout_truncated}, 'and not flagged');

    $r = run($s, 'seq 1000', max_output_bytes => length($all) - 1);
    ok($r->{stdout_truncated}, 'a byte less is');

    $r = run($s, 'seq 1000 >&2; echo short', max_output_bytes => 10);
    is($r->{stdout}, "short\n", 'each stream has its own');
    ok(!$r->{stdout_truncated} && $r->{stderr_truncated}, 'flags');

    $r = run($s, 'head -c 3000000 /dev/zero | tr "\0" a');
    is(length $r->{stdout}, 1 << 20, 'the default is 1 MiB');
    is($r->{stdout_bytes}, 3_000_000, 'counted');

    $r = run($s, 'seq 1000', max_output_bytes => '1KB');
    is(length $r->{stdout}, 1024, 'sizes may have a unit');
};


subtest 'merge_stderr' => sub {
    my $r = run($s, 'echo a; echo b >&2; echo c',
                merge_stderr => JSON::PP::true);
    is($r->{stdout}, "a\nb\nc\n", 'in the order in which it was written');
    is("$r->{stderr_bytes}$r->{stderr}", '0', 'stderr is empty');
};


subtest "the environment: an allow-list, the session's, the call's" => sub {
    my $plain = create_ok();
    my %env = run($plain, [ '/usr/bin/env' ])->{stdout} =~ /^(\w+)=(.*)$/mg;

    is(join(' ', sort keys %env),
       'BLIS_NUM_THREADS GOMAXPROCS HOME LANG LOGNAME MKL_NUM_THREADS'
       . ' NUMEXPR_MAX_THREADS NUMEXPR_NUM_THREADS OMP_NUM_THREADS'
       . ' OPENBLAS_NUM_THREADS PATH PIP_BREAK_SYSTEM_PACKAGES'
       . ' PIP_DISABLE_PIP_VERSION_CHECK PIP_RETRIES POLARS_MAX_THREADS'
       . ' PYTHONUNBUFFERED RAYON_NUM_THREADS TERM USER'
       . ' VECLIB_MAXIMUM_THREADS npm_config_fetch_retries'
       . ' npm_config_fetch_retry_maxtimeout'
       . ' npm_config_fetch_retry_mintimeout npm_config_update_notifier',
       'the allow-list and nothing else');
    is($env{HOME}, '/home/user', 'HOME');
    is("$env{USER} $env{LOGNAME}", 'user user', 'USER, LOGNAME');
    is($env{LANG}, 'C.UTF-8', 'LANG');
    is($env{PYTHONUNBUFFERED}, 1, 'PYTHONUNBUFFERED');
    like($env{PATH}, qr{^/[\w/]+(?::/[\w/]+)+$}, 'PATH');

    like(run($plain, 'echo $PATH', user => 'root')->{stdout},
         qr{:/sbin\b|/usr/sbin}, "root's PATH has sbin");
    is(run($plain, 'bash -lc "echo \$PATH"')->{stdout}, "$env{PATH}\n",
       'bash -l keeps PATH');
    destroy($plain);

    is(out('echo $FROM_SESSION $BOTH'), "one session\n", "the session's");
    is(out('echo $BOTH $MINE', env => { BOTH => 'call', MINE => "a b\n=" }),
       "call a b =\n", "the call's wins");
    is(out('echo $BOTH; echo ${MINE-unset}'), "session\nunset\n",
       'and does not leak into the next');
    is(out([ '/usr/bin/env' ], env => { HOME => '/tmp', 'ODD.NAME-1' => '1',
                                        EMPTY => '' })
       =~ /^(?:HOME=|EMPTY=|ODD.NAME-1=).*$/m ? 'yes' : 'no', 'yes',
       'odd names and empty values are passed');
    my @homes = out([ '/usr/bin/env' ], env => { HOME => '/tmp' })
                =~ /^HOME=(.*)$/mg;
    is("@homes", '/tmp', 'a name is there once');

    my $r = run($s, [ 'env' ], env => { PATH => '/nonexistent' });
    is("$r->{reason} $r->{exit_code}", 'not_started 127',
       "the program is looked up by the command's PATH");

    for my $name (qw(LD_PRELOAD LD_LIBRARY_PATH LD_AUDIT BASH_ENV ENV
                     PYTHONPATH PYTHONSTARTUP IFS GCONV_PATH MALLOC_CHECK_
                     GLIBC_TUNABLES))
    {
        $r = run($s, [ 'sh', '-c', 'echo fine' ],
                 env => { $name => '/tmp/evil.so' });
        is("$r->{reason} $r->{stdout}", "exited fine\n",
           "$name is the command's own matter");
    }

    is(out('echo ok'), "ok\n", 'the session goes on');
};


subtest 'the working directory' => sub {
    run($s, 'mkdir -p sub/deep /tmp/w; touch file; ln -sfn sub link;'
            . ' ln -sfn /nowhere dangling');

    is(out('pwd'), "/home/user\n", 'the workspace, if none is given');
    is(out('pwd', cwd => 'sub/deep'), "/home/user/sub/deep\n", 'relative');
    is(out('pwd', cwd => '/tmp/w'), "/tmp/w\n", 'absolute');
    is(out('pwd -P', cwd => 'link'), "/home/user/sub\n", 'by a link');
    is(out('pwd', cwd => '.'), "/home/user\n", '"."');
    is(out('pwd -P', cwd => '../../../..'), "/\n",
       'above the root is the root');
    is(out('pwd', cwd => '/'), "/\n", 'the root');

    refused('one that is missing', 404, 'E4001', undef,
            { cmd => 'pwd', cwd => 'missing' });
    refused('a dangling link', 404, 'E4001', undef,
            { cmd => 'pwd', cwd => 'dangling' });
    refused('a file', 409, 'E4004', undef, { cmd => 'pwd', cwd => 'file' });
    refused('below a file', 409, 'E4004', undef,
            { cmd => 'pwd', cwd => 'file/x' });
    refused("root's own", 403, 'E4003', undef,
            { cmd => 'pwd', cwd => '/root' });
    is(out('pwd', cwd => '/root', user => 'root'), "/root\n", 'root may');

    my $res = exec_call($s, 'pwd', cwd => 'x' x 5000);
    is($res->{status}, 400, 'a path longer than PATH_MAX');

    my $gone = create_ok();
    run($gone, 'rm -rf /home/user', user => 'root');
    is(run($gone, 'pwd')->{stdout}, "/\n",
       'if the workspace is gone, the default is the root');
    is(exec_call($gone, 'pwd', cwd => '/home/user')->{status}, 404,
       'but asked for by name it is missing');
    destroy($gone);
};


subtest 'users' => sub {
    is(out('id -u; id -g; id -un; id -G; echo $HOME'),
       "1000\n1000\nuser\n1000\n/home/user\n", 'user, by default');
    is(out('id -u; id -g; id -un; echo $HOME $USER', user => 'root'),
       "0\n0\nroot\n/root root\n", 'root');
    is(out('id -u', user => 'user'), "1000\n", 'user, by name');
    is(out('stat -c "%a %u" /root /home/user', user => 'root'),
       "700 0\n755 1000\n", 'their homes');

    for my $u ('bob', '', '0', "root\n") {
        refused("no user \"$u\"", 400, 'E3001', qr{/user},
                { cmd => 'id', user => $u });
    }

    is(out('umask; touch f; mkdir m; stat -c %a f m'), "0022\n644\n755\n",
       'umask');
    is(out('for d in /app /data /workspace; do touch $d/x && echo $d; done'),
       "/app\n/data\n/workspace\n", 'what a user may write');
};


subtest 'limits of one command' => sub {
    my $r = run($s, [ 'python3', '-c', 'x = bytearray(300 << 20); print(1)' ],
                limits => { memory => '64MB' });
    is($r->{reason}, 'memory', 'memory: reason');
    ok($r->{oom_killed}, 'oom_killed');
    is("$r->{exit_code} $r->{signal}", '137 SIGKILL', 'how it ended');
    ok(!$r->{timed_out}, 'no timeout');
    cmp_ok($r->{usage}{memory_peak}, '<=', 65 << 20, 'its peak is the limit');
    cmp_ok($r->{usage}{memory_peak}, '>', 40 << 20, 'and was reached');
    is(out('echo ok'), "ok\n", 'the session lives');

    $r = run($s, 'python3 -c "x = bytearray(300 << 20)"; echo "child $?"',
             limits => { memory => '64MB' });
    like("$r->{reason} $r->{stdout}", qr/^(?:memory |exited child 137\n)$/,
         'a child that the kernel killed: the rest follows, or is quicker');
    ok($r->{oom_killed}, 'and oom_killed tells it');

    my $t0 = time;
    $r = run($s, 'while :; do :; done', limits => { cpu_seconds => 1 },
             timeout_s => 30);
    is($r->{reason}, 'cpu_time', 'cpu_seconds: reason');
    my $cpu = $r->{usage}{cpu_user_s} + $r->{usage}{cpu_system_s};
    cmp_ok($cpu, '>=', 0.95, 'it had its second');
    cmp_ok($cpu, '<', 1.4, 'and not much more');

    $r = run($s, ": 99.$$; for i in 1 2 3; do (while :; do :; done) & done;"
                 . ' wait', limits => { cpu_seconds => 1 }, timeout_s => 30);
    is($r->{reason}, 'cpu_time', 'the time of a whole tree counts');
    is(scalar host_pids("99.$$"), 0, 'none of it is left');

    $r = run($s, 'sleep 0.8', limits => { cpu_seconds => 0.5 });
    is($r->{reason}, 'exited', 'sleeping costs nothing');

    $r = run($s, 'for i in $(seq 30); do sleep 2 & done; echo end',
             limits => { processes => 8 }, timeout_s => 5);
    like($r->{stderr}, qr/fork/i, 'processes: the ninth is refused');
    cmp_ok($r->{usage}{processes_peak}, '<=', 8, 'and never was there');

    $r = run($s, [ 'python3', '-c', 'import threading, time
n = 0
try:
    for i in range(40):
        threading.Thread(target=time.sleep, args=(1,), daemon=True).start()
        n += 1
except RuntimeError:
    pass
print(n)' ], limits => { processes => 10 });
    is($r->{stdout}, "9\n", 'threads count too');

    $r = run($s, 'head -c 100000 /dev/zero > big; echo $?; stat -c %s big',
             limits => { max_file_size => '10KB' });
    like($r->{stdout}, qr/^[1-9]\d*\n10240\n$/, 'max_file_size');

    $r = run($s, [ 'sh', '-c', 'exec head -c 100000 /dev/zero > big' ],
             limits => { max_file_size => '10KB' });
    isnt($r->{exit_code}, 0, 'the command is told');

    $r = run($s, [ 'python3', '-c', 'import os
n = 0
try:
    while True:
        os.open("/dev/null", 0)
        n += 1
except OSError as e:
    print(n + 3, e.strerror)' ], limits => { open_files => 32 });
    is($r->{stdout}, "32 Too many open files\n", 'open_files');

    is(out('ulimit -Hn; ulimit -Sn'), "1024\n1024\n",
       "the session's without any");

    $r = run($s, 'ulimit -s; ulimit -Hs', limits => { stack => '2MB' });
    is($r->{stdout}, "2048\n2048\n", 'stack');
};


subtest 'a command cannot have more than its session' => sub {
    my $small = create_ok({ manifest => { resources => {
        memory => '128MB', processes => 32, open_files => 100,
        max_file_size => '10MB', cpu_seconds => 5, stack => '4MB',
        exec_timeout_s => 2, max_output_bytes => 4096 } } });

    my %more = (memory => '129MB', processes => 33, open_files => 101,
                max_file_size => '11MB', cpu_seconds => 6, stack => '5MB');

    for my $name (sort keys %more) {
        is_problem(exec_call($small, 'touch /tmp/ran',
                             limits => { $name => $more{$name} }),
                   400, 'E2002', "$name above the session's", qr/$name/);
    }

    is_problem(exec_call($small, 'touch /tmp/ran', timeout_s => 3), 400,
               'E2002', "timeout_s above the session's", qr/timeout/);
    is(get($small, '/tmp/ran')->{status}, 404, 'nothing of it was run');

    my %same = (memory => '128MB', processes => 32, open_files => 100,
                max_file_size => '10MB', cpu_seconds => 5, stack => '4MB');
    is(run($small, 'echo ok', limits => \%same, timeout_s => 2)->{stdout},
       "ok\n", 'as much is given');

    my $r = run($small, 'sleep 9');
    is($r->{reason}, 'timeout', "the session's timeout is the default");
    cmp_ok($r->{duration_s}, '<', within(3.5), 'of two seconds');

    $r = run($small, 'seq 10000');
    is(length $r->{stdout}, 4096,
       "the session's cap on output is the default");

    is(run($small, 'ulimit -n')->{stdout}, "100\n", 'open files too');

    is_problem(call('POST', "/sessions/$small/exec",
                    json => { cmd => 'true',
                              limits => { $_->[0] => $_->[1] } }),
               400, 'E3001', "limits.$_->[0]: " . json_of($_->[1]),
               qr{/limits/$_->[0]})
        for [ memory => -1 ], [ memory => 'much' ], [ processes => 1.5 ],
            [ processes => '9' ], [ open_files => [] ], [ disk => '1MB' ],
            [ unknown => 1 ], [ cpu_seconds => '1s' ];

    destroy($small);
};


subtest 'usage is plausible' => sub {
    my $r = run($s, [ 'python3', '-c', 'import time
x = bytearray(100 << 20)
t = time.process_time()
while time.process_time() - t < 0.4: pass' ]);
    my $u = $r->{usage};

    cmp_ok($u->{cpu_user_s} + $u->{cpu_system_s}, '>=', 0.4, 'cpu');
    cmp_ok($u->{cpu_user_s} + $u->{cpu_system_s}, '<=',
           $r->{duration_s} * 2 + 0.2, 'no more than there was');
    cmp_ok($u->{memory_peak}, '>=', 100 << 20, 'memory_peak');
    cmp_ok($u->{memory_peak}, '<', 180 << 20, 'is of this command');

    $r = run($s, 'sleep 0.2 & sleep 0.2 & sleep 0.2 & wait');
    cmp_ok($r->{usage}{processes_peak}, '>=', 4, 'processes_peak');
    cmp_ok($r->{duration_s}, '>=', 0.2, 'duration_s');
    cmp_ok($r->{usage}{cpu_user_s}, '<', 0.2, 'sleeping is no cpu time');
    cmp_ok($r->{usage}{memory_peak}, '<', 60 << 20,
           "an earlier command's peak is not this one's");

    my $half = create_ok({ manifest => { resources => { cpus => 0.2 } } });
    $r = run($half, [ 'python3', '-c', 'import time
t = time.process_time()
while time.process_time() - t < 0.3: pass' ]);
    cmp_ok($r->{duration_s}, '>', 0.8, 'a fifth of a cpu takes its time');
    cmp_ok($r->{usage}{throttled_s}, '>', 0, 'throttled_s tells');
    destroy($half);
};


subtest 'the answer waits for the command, not for what it left' => sub {
    my $t0 = time;
    my $r = run($s, "sleep 20.$$ & echo STARTED");
    cmp_ok(time - $t0, '<', within(3), 'at once');
    is("$r->{stdout}$r->{reason}", "STARTED\nexited", 'with its output');
    ok(until_true(sub { host_pids("20.$$") }, 5), 'the child lives on');

    run($s, 'rm -f go late');
    $r = run($s, '(while [ ! -e go ]; do sleep 0.02; done; seq 100000;'
                 . ' seq 100000 >&2; echo $? > late) & echo STARTED');
    is($r->{stdout}, "STARTED\n", 'one that will write');
    run($s, 'touch go');
    ok(until_true(sub { get($s, 'late')->{body} eq "0\n" }, 10),
       'is neither blocked nor killed by its pipe');

    $t0 = time;
    $r = run($s, '(setsid sleep 300 &) ; exit 0', timeout_s => 2);
    is("$r->{reason} $r->{exit_code}", 'exited 0', 'a detached child');
    cmp_ok(time - $t0, '<', within(2), 'does not hold the answer');

    $r = run($s, 'mkfifo q; (while :; do echo c; sleep 0.1; done) > q & cat q',
             timeout_s => 1);
    is($r->{reason}, 'timeout', 'a fifo between them');
    like($r->{stdout}, qr/^(?:c\n)+$/, 'gives what came until then');
};


subtest 'commands run side by side' => sub {
    run($s, 'mkfifo meet');
    my $job = async { run($s, 'cat meet', timeout_s => 10) };
    my $r = run($s, 'echo hello > meet', timeout_s => 10);

    is($r->{reason}, 'exited', 'the one that needs the other');
    is($job->get(15)->{stdout}, "hello\n", 'and the other');

    my @jobs = map { my $n = $_; async { run($s, "sleep 0.3; echo $n") } }
               1 .. 8;
    is_deeply([ map { $_->get(20)->{stdout} } @jobs ],
              [ map { "$_\n" } 1 .. 8 ], 'eight, each with its own answer');
};


subtest 'the service survives a session without home or /tmp' => sub {
    my $v = create_ok();

    for my $cmd ('rm -rf /tmp/* /tmp', 'rm -rf $HOME', 'rm -rf /tmp /var/tmp'
                 . ' /run/* /dev/shm/* /home /etc/* /app /data /workspace')
    {
        run($v, $cmd, user => 'root');
        is(run($v, 'echo test')->{stdout}, "test\n", "after $cmd");
        is(put($v, '/srv-file', 'x')->{status}, 403, 'files are answered');
    }

    is(run($v, [ 'echo', 'x' ], user => 'root')->{stdout}, "x\n", 'root too');
    is(destroy($v)->{status}, 204, 'it can be destroyed');
};


subtest 'a session that ends, ends its commands' => sub {
    my $v = create_ok();
    my $mark = "55.$$";
    my $job = async { exec_call($v, ": $mark; sleep 30; :") };
    ok(until_true(sub { host_pids($mark) }, 5), 'a command runs');

    my $t0 = time;
    is(destroy($v)->{status}, 204, 'DELETE');
    cmp_ok(time - $t0, '<', within(2), 'waits for nothing');
    is(scalar host_pids($mark), 0, 'all is dead when it answers');

    my $res = $job->get(10);
    is($res->{status}, 200, 'the command is answered');
    is($res->{json}{reason}, 'session_ended', 'with what ended it');

    my $w = create_ok({ timeout_s => 1 });
    $job = async { exec_call($w, "trap 'echo bye; exit 3' TERM;"
                                 . ' while :; do sleep 0.05; done') };
    $res = $job->get(15);
    is($res->{status}, 200, 'at its expiry');
    is($res->{json}{reason}, 'session_ended', 'reason');
    is($res->{json}{stdout}, "bye\n", 'SIGTERM came first');

    is_problem(exec_call($v, 'true'), 404, 'E2009', 'afterwards it is gone');
};


subtest 'no room for a process is no room' => sub {
    my $v = create_ok({ manifest => { resources => { processes => 8 } } });
    my $r = run($v, 'for i in $(seq 7); do sleep 60 & done; echo full');
    is($r->{stdout}, "full\n", 'the session is nearly full');
    my $mark = "66.$$";
    my $job = async { run($v, [ 'sleep', $mark ])->{reason} };
    ok(until_true(sub { host_pids($mark) }, 5), 'and now is full');

    my $res = exec_call($v, [ 'true' ]);
    is_problem($res, 429, 'E2003', 'the next is refused', qr/process/);
    is($res->{json}{scope}, 'session', 'scope');
    is($res->{json}{resource}, 'processes', 'resource');
    is($res->{json}{limit}, 8, 'limit');

    is(put($v, 'still', 'here')->{status}, 201, 'files can be written');
    is(get($v, 'still')->{body}, 'here', 'and read');

    my $t0 = time;
    is(destroy($v)->{status}, 204, 'and it can be destroyed');
    cmp_ok(time - $t0, '<', within(2), 'quickly');
    is($job->get(10), 'session_ended', 'which is what ended the last');
};


subtest 'requests are strict' => sub {
    refused('no command', 400, 'E3001', qr{/cmd}, {});
    refused('an empty array', 400, 'E3001', qr{/cmd}, { cmd => [] });
    refused('an empty program', 400, 'E3001', qr{/cmd/0}, { cmd => [ '' ] });
    refused('a number', 400, 'E3001', qr{/cmd}, { cmd => 5 });
    refused('a number in it', 400, 'E3001', qr{/cmd/1}, { cmd => [ 'a', 5 ] });
    refused('an unknown field', 400, 'E3001', qr{/shell},
            { cmd => 'true', shell => 1 });
    refused('an unknown limit', 400, 'E3001', qr{/limits/mem},
            { cmd => 'true', limits => { mem => 1 } });
    refused('a duplicate', 400, 'E3001', qr{/cmd},
            '{"cmd":"true","cmd":"false"}');
    refused('a string for a number', 400, 'E3001', qr{/timeout_s},
            { cmd => 'true', timeout_s => '5' });
    refused('a negative timeout', 400, 'E3001', qr{/timeout_s},
            { cmd => 'true', timeout_s => -1 });
    refused('no timeout at all', 400, 'E3001', qr{/timeout_s},
            { cmd => 'true', timeout_s => 0 });
    refused('no object', 400, 'E3001', undef, '["true"]');
    refused('no JSON', 400, 'E3001', undef, '{"cmd":');
    refused('more than JSON', 400, 'E3001', undef, '{"cmd":"true"} x');
    refused('a bad value of a word', 400, 'E3001', qr{/on_disconnect},
            { cmd => 'true', on_disconnect => 'maybe' });

    is(call('POST', "/sessions/$s/exec", body => '{"cmd":"true"}',
            headers => { 'Content-Type' => 'text/plain' })->{status}, 415,
       'another media type');
    is(call('GET', "/sessions/$s/exec")->{headers}{allow}, 'POST',
       'another method: Allow');
};


subtest 'install tells that there is no network' => sub {
    my $install = sub { call('POST', "/sessions/$_[0]/install",
                             json => $_[1]) };

    is_problem($install->($s, { packages => [ 'numpy' ] }), 403, 'E3003',
               'a good request');
    is_problem($install->('izzzzzzzzzzzzzzzzzzzzzzzzz',
                          { packages => [ 'numpy' ] }), 404, 'E2009',
               'an unknown session');

    for my $p ('-r/etc/passwd', '--index-url=http://x', '/tmp/x', '../x',
               './x', 'git+file:///x', "a\nb", '', 'file:///x')
    {
        (my $show = $p) =~ s/\n/\\n/;
        is_problem($install->($s, { packages => [ $p ] }), 400, 'E3001',
                   "\"$show\"", qr{/packages/0});
    }

    is_problem($install->($s, {}), 400, 'E3001', 'no packages', qr{/packages});
    is_problem($install->($s, { packages => [ 'x' ], manager => 'apt' }), 400,
               'E3001', 'an unknown manager', qr{/manager});
};


destroy($s);
$t->finish;
done_testing();
