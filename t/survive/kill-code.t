#!/usr/bin/perl

# Code, and each of the processes that have to do with it killed in each phase
# of a run: the interpreter, before it is there, while it runs and when it has
# ended; the session's first process, the broker, the keeper, a worker.  What
# an interpreter had read is never run twice.  SANDBOX_TEST_LONG=1 kills every
# process at every point.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../lib";

use Test::More;
use SandboxTest::Code;
use SandboxTest::Fault;
use SandboxTest::Kill;
use SandboxTest::More;

# What the caller gets: done; again (by a call that was sent twice); died (the
# run is told that its interpreter has died, which had read it); given (done,
# by another interpreter); cut (no answer); gone (an error, and the session is
# no more); lost (E5001); any of these.

my @MATRIX = (
    [ 'worker-call-opened', { held => 'cut', broker => 'done' } ],
    [ 'broker-call-taken',
      { held => 'again', worker => 'cut', keeper => 'done',
        init => 'gone' } ],
    [ 'broker-call-handed',
      { held => 'done', worker => 'any', keeper => 'done', init => 'any' } ],
    [ 'init-task-taken',
      { held => 'gone', worker => 'cut', broker => 'done' } ],
    [ 'init-kernel-asked',
      { held => 'lost', worker => 'cut', broker => 'done',
        keeper => 'done' } ],
    [ 'broker-group-asked',
      { held => 'done', worker => 'cut', keeper => 'done', init => 'lost' } ],
    [ 'init-kernel-group',
      { held => 'lost', worker => 'cut', broker => 'done',
        keeper => 'done' } ],
    [ 'init-exec-launching',
      { held => 'lost', worker => 'cut', broker => 'done',
        keeper => 'done' } ],
    [ 'init-kernel-ready',
      { kernel => 'given', held => 'lost', worker => 'cut',
        broker => 'done', keeper => 'done' } ],
    [ 'init-code-begun',
      { kernel => 'died', held => 'any', worker => 'cut', broker => 'done',
        keeper => 'done' } ],
    [ 'init-code-told',
      { kernel => 'died', held => 'lost', worker => 'cut', broker => 'done',
        keeper => 'done' } ],
    [ 'worker-call-accepted',
      { held => 'cut', kernel => 'died', broker => 'done',
        keeper => 'done', init => 'any' } ],
    [ 'init-code-over',
      { kernel => 'done', held => 'lost', worker => 'cut',
        broker => 'done', keeper => 'done' } ],
);

my $AGAIN = qr/sandbox call was lost and is sent again/;
my $MAIN = 'kernels/python/main.py';

my $t = kill_server();
my $n = 0;
my $id = victim();

plan(skip_all => 'no kernels are built') if !language_is_there('python');

bystander(code => 1);


# The interpreter of the session, as the host sees it.

sub kernel_of {
    my $init = init_of($id);
    my ($pid) = grep {
        (slurp("/proc/$_/cmdline") // '') =~ /\Q$MAIN\E/
    } SandboxTest::children($init // return);

    return $pid;
}

# What is to be killed while it runs waits for that, when it has told that it
# has begun.

sub text {
    my ($tag, $waits) = @_;

    return "with open('/mnt/shared/$tag', 'a') as f: f.write('ran\\n')\n"
           . ($waits ? "import time; time.sleep(60)\n" : '')
           . "print('out')\n6 * 7";
}

sub answered {
    my ($res) = @_;

    return 'cut' if cut_off($res);

    my $j = ref $res->{json} eq 'HASH' ? $res->{json} : {};

    return $j->{code} // "status $res->{status}" if $res->{status} != 200;
    return 'done' if !$j->{error} && ($j->{text} // '') eq '42'
                     && $j->{stdout} eq "out\n";
    return 'died' if $j->{restarted} && $j->{error}{name} eq 'KernelDied';

    return $res->{body};
}

my %EXPECTED = (
    done  => { answer => qr/^done$/, runs => qr/^1$/, again => 0 },
    again => { answer => qr/^done$/, runs => qr/^1$/, again => 1 },
    died  => { answer => qr/^died$/, runs => qr/^1$/, again => 0 },
    given => { answer => qr/^done$/, runs => qr/^1$/, again => 0 },
    cut   => { answer => qr/^cut$/, runs => qr/^[01]$/, again => 0 },
    lost  => { answer => qr/^E5001$/, runs => qr/^[01]$/, again => 0 },
    gone  => { answer => qr/^(?:E2009|E5001)$/, runs => qr/^0$/ },
    any   => { answer => qr/^(?:done|cut|E2009|E5001)$/, runs => qr/^[01]$/ },
);

sub case {
    my ($point, $victim, $outcome) = @_;

    my $tag = 'code-' . $n++;
    my $name = "$point, $victim killed";
    my $want = $EXPECTED{$outcome};
    my $before = $t->log_has($AGAIN);
    my $waits = $victim eq 'kernel' && $outcome eq 'died';

    # the way of an interpreter begins where there is none

    call('DELETE', "/sessions/$id/contexts/python")
        if $point =~ /^(?:broker-group|init-kernel|init-exec)/;

    my $line = strike($point, $victim ne 'kernel' ? $victim : sub {
        until_true { lines($tag) } 20 if $waits;
        return kernel_of();
    }, $id, sub {
        ask($_[0], POST => "/sessions/$id/code",
            json => { code => text($tag, $waits) });
    }, name => $name) or return;

    my $res = answer($line);
    my $got = answered($res);

    like($got, $want->{answer}, "$name: the answer ($outcome)")
        or diag(substr $res->{body} // '', 0, 400);
    ok(recovered(), "$name: all is served again");

    if (!SandboxTest::alive(init_of($id))) {
        gone_with($id, "$name: the session is gone");
        $id = victim();

    } elsif ($victim eq 'kernel') {
        my $next = code($id, '6 * 7');

        is($next->{text}, '42', "$name: the next run has an interpreter");
        is($next->{execution_count}, $outcome eq 'given' ? 2 : 1,
           "$name: a new one");

    } else {
        is(code($id, '6 * 7')->{text}, '42',
           "$name: the next run is answered");
    }

    like(lines($tag), $got eq 'done' ? qr/^1$/ : $want->{runs},
         "$name: how often it was run");
    is($t->log_has($AGAIN) - $before, $want->{again},
       "$name: how often it was sent again") if defined $want->{again};
    others_live_on("$name: another session goes on");
}

is(code($id, '6 * 7')->{text}, '42', 'code is run');

for my $row (@MATRIX) {
    my ($point, $outcomes) = @$row;

    for my $victim (qw(kernel held worker broker keeper init)) {
        case($point, $victim, $outcomes->{$victim})
            if $outcomes->{$victim}
               && ($LONG || $victim eq 'held' || $victim eq 'kernel');
    }
}


subtest 'an interpreter that waits for code' => sub {
    code($id, 'kept = 1');
    my $pid = kernel_of();

    ok(kill('KILL', $pid) && SandboxTest::gone([$pid]), 'is killed');

    my $next = code($id, "'kept' in globals()");

    is($next->{text}, 'False', 'the next run has another');
    is($next->{execution_count}, 1, 'that knows nothing of the old one');
    isnt(kernel_of(), $pid, 'by its own process');
    others_live_on();
};


subtest 'the broker and an interpreter at once' => sub {
    my $tag = 'code-both';
    my $job = async { code_call($id, text($tag, 1)) };

    my $runs = until_true { lines($tag) } 20;
    ok($runs, 'code runs');

    my @pids = ($t->broker, kernel_of());
    ok(kill('KILL', @pids) == 2 && SandboxTest::gone(\@pids), 'both die');

    is(answered($job->get), 'died', 'the run is told so');
    is(code($id, '6 * 7')->{text}, '42', 'and the next one has another');
    is(lines($tag), 1, 'it was run once');
    ok(recovered(), 'all is served again');
    others_live_on();
};

# Its start is held up by the session's own variable: what bash reads before
# the driver tells that it has begun, and waits until it may go on.

subtest 'an interpreter that is killed while it starts' => sub {
    my $s = victim(env => { BASH_ENV => '/mnt/shared/start' });
    my $kernel = sub {
        my ($pid) = grep {
            (slurp("/proc/$_/cmdline") // '') =~ /driver\.sh/
        } SandboxTest::children(init_of($s));
        return $pid;
    };

    run($s, 'echo \'echo >> /mnt/shared/begun;'
            . ' [ -e /mnt/shared/go ] || sleep 1000\' > /mnt/shared/start');

    my $killed = sub {
        my ($n, $name, $call) = @_;
        my $job = async { $call->() };

        ok((until_true { lines('begun') == $n } 20), "$name: one starts");

        my $pid = $kernel->();

        ok(kill('KILL', $pid) && SandboxTest::gone([ $pid ]),
           'and is killed');

        return $job->get;
    };

    my $res = $killed->(1, 'for a run', sub {
        code_call($s, 'echo out', language => 'bash') });

    is("$res->{status} " . ($res->{json}{error}{name} // ''),
       '200 KernelDied', 'the run is told so');
    is($res->{json}{stdout}, '', 'and was not begun');

    $res = $killed->(2, 'for a context', sub {
        call('POST', "/sessions/$s/contexts", json => { language => 'bash' });
    });
    is_problem($res, 503, 'E5001', 'whose maker is told');
    like($res->{json}{detail}, qr/before it was ready/, 'and why');

    my $all = call('GET', "/sessions/$s/contexts")->{json}{contexts};

    is_deeply([ grep { $_->{context_id} ne 'bash' } @$all ], [],
              'there is no such context');
    is($kernel->(), undef, 'nor a process of either');

    run($s, 'touch /mnt/shared/go');

    my $next = code($s, 'echo $((6 * 7))', language => 'bash');

    is($next->{stdout}, "42\n", 'the next one is started, and runs code');
    is($next->{execution_count}, 1, 'its first');
    is(destroy($s)->{status}, 204, 'the session ends');
    others_live_on();
};

destroy($id);
kill_finish();
done_testing();
