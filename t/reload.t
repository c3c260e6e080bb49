#!/usr/bin/perl

# Streams over reloads: what goes on without its worker says where to resume,
# what ends with it is never said to have ended otherwise; and a load of all
# kinds of requests while nginx reloads again and again.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";

use JSON::PP ();
use Test::More;
use SandboxTest::Load;
use SandboxTest::More;
use SandboxTest::Stream;

my $COUNT = 'n=0; while :; do echo $n; echo e$n >&2; n=$((n+1)); '
            . 'sleep 0.01; done';

my $t = server();
my $s = create_ok({ timeout_s => 3600 });

sub timeout_is {
    my ($time) = @_;

    $t->write_conf(edit => sub {
        s/^worker_shutdown_timeout .*;/worker_shutdown_timeout $time;/m
            or die 'no worker_shutdown_timeout';
    });

    return $t->reload;
}

# What has no worker any more ends, and with it the old worker.

sub one_generation {
    return until_true {
        !grep { (slurp("/proc/$_/cmdline") // '') =~ /shutting down/ }
              $t->workers;
    } 20;
}

# The texts of events, each where the one before ended.

sub contiguous {
    my ($at, $text, @events) = @_;

    for my $e (grep { defined $_->{data} } @events) {
        my $type = $e->{type};

        return "$type is at $e->{offset}, not $at->{$type}"
            if $e->{offset} != ($at->{$type} //= 0);

        utf8::encode(my $bytes = $e->{data});
        $at->{$type} += length $bytes;
        $text->{$type} .= $e->{data};
    }

    return '';
}

sub counted {
    my ($text) = @_;

    for my $pair ([ stdout => '' ], [ stderr => 'e' ]) {
        my ($type, $prefix) = @$pair;
        my @lines = split /\n/, $text->{$type} // '', -1;
        pop @lines;
        return "no $type" if !@lines;

        for my $n (0 .. $#lines) {
            return "line $n of $type is $lines[$n]"
                if $lines[$n] ne "$prefix$n";
        }
    }

    return '';
}


for my $form ('ndjson', 'sse') {
    subtest "output, $form: resumed, nothing is lost or comes twice" => sub {
        my $pid = background($s, $COUNT);
        my (%at, %text, $e);

        for my $round (1 .. 4) {
            my $f = follow($s, $pid, 'stdout_from=' . ($at{stdout} // 0)
                                     . '&stderr_from=' . ($at{stderr} // 0),
                           sse => $form eq 'sse');

            is(contiguous(\%at, \%text, $f->until('stderr')), '', 'begins');
            $t->signal('HUP') if $round < 4;
            call('POST', "/sessions/$s/processes/$pid/signal",
                 json => { signal => 9 }) if $round == 4;

            my $r = $f->rest;
            $e = $r->{events}[-1];

            is(contiguous(\%at, \%text, @{ $r->{events} }), '', 'goes on');
            ok($f->{whole}, 'the body ends as it should');
            last if $round == 4;

            is($e->{type}, 'resume', 'the worker leaves');
            is("$e->{pid} $e->{stdout_from} $e->{stderr_from}",
               "$pid $at{stdout} $at{stderr}", 'at the next byte of each');
        }

        is($e->{reason}, 'signal', 'the end at last');
        is($e->{stdout_bytes}, $at{stdout}, 'of all that was written');
        is(counted(\%text), '', 'every line once');
        ok(one_generation(), 'no old worker stays');
    };
}


subtest 'exec that is to go on: resumed at its process' => sub {
    my $f = stream('POST', "/sessions/$s/exec",
                   json => { cmd => $COUNT, on_disconnect => 'detach' });
    my (%at, %text);

    is(contiguous(\%at, \%text, $f->until('stderr')), '', 'begins');
    $t->signal('HUP');

    my $r = $f->rest;
    my $e = $r->{events}[-1];

    is(contiguous(\%at, \%text, @{ $r->{events} }), '', 'goes on');
    is($e->{type}, 'resume', 'the worker leaves');
    ok(!$r->{exit}, 'without an end of the command');
    ok($f->{whole}, 'the body ends as it should');

    # what was on its way to the old worker is kept as well

    my $g = follow($s, $e->{pid}, "stdout_from=$e->{stdout_from}"
                                  . "&stderr_from=$e->{stderr_from}");
    is(contiguous(\%at, \%text, $g->until('stderr')), '', 'from there on');
    call('POST', "/sessions/$s/processes/$e->{pid}/signal",
         json => { signal => 9 });
    $r = $g->rest;
    is(contiguous(\%at, \%text, @{ $r->{events} }), '', 'to its end');
    is($r->{exit}{stdout_bytes}, $at{stdout}, 'all of it');
    is(counted(\%text), '', 'every line once');
};


subtest 'a reader that is behind is told as well' => sub {
    my $f = stream('POST', "/sessions/$s/exec", rcvbuf => 262144,
                   json => { cmd => [ 'python3', '-c', 'import os
n = 0
while n < 2500000:
    os.write(1, b"".join(b"%07d\n" % i for i in range(n, n + 1000)))
    n += 1000' ], on_disconnect => 'detach' });
    my (%at, %text);

    is(contiguous(\%at, \%text, $f->until('stdout')), '', 'begins');
    select undef, undef, undef, 0.3;    # lets the pipes fill; no test of it
    $t->reload;

    my $r = $f->rest;
    my $e = $r->{events}[-1];

    is(contiguous(\%at, \%text, @{ $r->{events} }), '', 'goes on');
    is($e->{type}, 'resume', 'the worker leaves') or return;

    select undef, undef, undef, 1.5;    # as long as a client may be away

    my $g = follow($s, $e->{pid}, "stdout_from=$e->{stdout_from}");

    is($g->{status}, 200, 'what it had not got is kept');
    $r = $g->rest(60);
    is(contiguous(\%at, \%text, @{ $r->{events} }), '', 'to its end');
    is($at{stdout}, 20_000_000, 'every byte');
    is(md5_hex($text{stdout}),
       md5_hex(join '', map { sprintf "%07d\n", $_ } 0 .. 2_499_999), 'once');
};


subtest 'one that writes as it can, over reloads' => sub {
    my $bytes = 20_000_000;
    my $pid = background($s, "read _; head -c $bytes /dev/zero | tr '\\0' x",
                         stdin_open => JSON::PP::true);
    my (%at, $e, $gone);

    for my $round (0 .. 3) {
        my $f = follow($s, $pid, 'stdout_from=' . ($at{stdout} // 0)
                                 . '&stderr_from=0');

        if ($f->{status} == 410 && $gone && time - $gone > 8) {
          SKIP: {
                skip 'a place is kept for 10 s, and the machine took them', 1;
            }

            return;
        }

        is($f->{status}, 200, 'what comes next is kept') or return;

        # it writes once it is followed: what nobody reads is not kept

        is(call('POST', "/sessions/$s/processes/$pid/stdin?eof=1",
                body => "\n")->{status}, 204, 'begins to write')
            if $round == 0;

        is(contiguous(\%at, {}, $f->until('stdout')), '', 'begins');
        $gone = time;
        $t->signal('HUP') if $round < 3;

        my $r = $f->rest(60);
        $e = $r->{events}[-1];
        is(contiguous(\%at, {}, @{ $r->{events} }), '', 'goes on');
        last if $e->{type} ne 'resume';
        select undef, undef, undef, 1.5;
    }

    is($e->{type}, 'exit', 'the end at last');
    is($at{stdout}, $bytes, 'every byte');
};


subtest 'a watch ends with the word to watch again' => sub {
    my $f = stream('GET', "/sessions/$s/watch/");

    is($f->next->{type}, 'ready', 'ready');
    put($s, 'seen', 'x');
    is($f->next->{type}, 'create', 'a change');
    $t->signal('HUP');
    is(($f->until('resume') // {})->{type}, 'resume', 'the worker leaves');
    is($f->next, undef, 'that was the last');
    ok($f->{whole}, 'the body ends as it should');
};


subtest 'a command that waits for its reader goes on' => sub {
    run($s, 'mkfifo fifo');

    my $f = stream('POST', "/sessions/$s/exec",
                   json => { cmd => 'echo begun; read x < fifo; echo end' });

    $f->until('stdout');
    $t->reload;

    my $w = ws_open("/sessions/$s/terminal");
    $w->type("echo ter\"\"minal\n");
    $w->expect(qr/terminal\r\n/);
    $t->reload;

    $w->type("echo st\"\"ill there > fifo\n");
    my $r = $f->rest;
    is("$r->{stdout}$r->{exit}{exit_code}", "end\n0", 'to its end');
    is(join(' ', map { $_->{type} } @{ $r->{events} }), 'stdout exit',
       'without a word of the reload');
    $w->type("echo th\"\"ere\n");
    ok($w->expect(qr/there\r\n/), 'and so does a terminal');
    $w->send(8, '');
};


subtest 'until worker_shutdown_timeout' => sub {
    timeout_is('2s');

    my $mark = "6$$.25";
    my $f = stream('POST', "/sessions/$s/exec",
                   json => { cmd => "echo; sleep $mark" });
    my $d = stream('POST', "/sessions/$s/exec",
                   json => { cmd => "cat; sleep 30; echo on",
                             stdin => 'fed', on_disconnect => 'detach' });
    my $w = ws_open("/sessions/$s/terminal");

    $f->until('stdout');
    $d->until('stdout');
    $w->type("echo ter\"\"minal\n");
    $w->expect(qr/terminal\r\n/);
    $t->reload;

    my $r = $f->rest;
    ok(!$r->{exit}, 'a command: no end is made up');
    ok(!$f->{whole}, 'and the body is cut');

    $r = $d->rest;
    my $e = $r->{events}[-1] // {};
    is($e->{type}, 'resume', 'one that goes on, and had input, is resumed');
    is(process($s, $e->{pid})->{state}, 'running', 'it runs');
    is($e->{stdout_from}, 3, 'from where it was');
    is_deeply([ $w->closed ], [ 1001, 'the server ends' ], 'a terminal');
    ok((until_true { !host_pids("sleep $mark") } 10),
       'what nobody reads has ended');

    call('POST', "/sessions/$s/cancel");
    ok(one_generation(), 'no old worker stays');
    timeout_is('5m');
};


subtest 'a load over reloads' => sub {
    my $report = SandboxTest::Load::over_reloads($t, reloads => 20);

    is_deeply($report->{wrong}, [], 'nothing is lost, wrong or refused');
    cmp_ok($report->{done}{$_}, '>', 0, "$_: $report->{done}{$_}")
        for sort keys %{ $report->{done} };

    my ($first, $last) = @{ $report->{memory} }[0, -1];

    cmp_ok($last->{broker} - $first->{broker}, '<', 4 << 20,
           "the broker's memory: $first->{broker}, $last->{broker}");
    cmp_ok($last->{master} - $first->{master}, '<', 4 << 20,
           "the master's memory: $first->{master}, $last->{master}");
    cmp_ok($last->{worker} - $first->{worker}, '<', 4 << 20,
           "a worker's memory: $first->{worker}, $last->{worker}");
    cmp_ok($report->{fds}[1]{$_}, '<=', $report->{fds}[0]{$_},
           "descriptors of $_")
        for sort keys %{ $report->{fds}[0] };
};

$t->finish;
done_testing();
