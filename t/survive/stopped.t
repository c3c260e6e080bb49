#!/usr/bin/perl

# Processes that somebody on the host has stopped, or that a debugger or a dead
# disk holds: their own calls are told so in time, nobody else notices, and
# what goes on comes back.  (A session's first process: t/lifecycle-stop.t.)

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../lib";

use JSON::PP ();
use Test::More;
use Time::HiRes qw(time);
use SandboxTest;
use SandboxTest::Flight;
use SandboxTest::More;
use SandboxTest::Net;

my $AT = '203.0.113.10';
my $net = SandboxTest::Net->new;
my @LATE = (timeout => 120);

my $other = $net->server(workers => 2, server => <<'CONF');
        location = /probe { return 204; }
CONF
my $t = $net->server(workers => 2, http => <<'CONF');
    sandbox_egress allow *;
CONF


# What the library calls talk to from now on.

sub to {
    my ($server) = @_;

    ($SandboxTest::More::T, $SandboxTest::More::PORT,
     $SandboxTest::More::PREFIX) = ($server, $server->port, $server->prefix);

    return;
}

sub stopped {
    my ($server, @pids) = @_;

    $server->hit(STOP => @pids);

    return until_true {
        !grep { (slurp("/proc/$_/stat") // '') !~ /\) [Tt] / } @pids
    } 10;
}

sub networked {
    return create_ok({ manifest => { network => JSON::PP::true },
                       timeout_s => 3600 });
}


# ---- a broker, whose callers wait beside everything that follows ------------

to($other);

my $flight = SandboxTest::Flight->begin;
my $s = create_ok({ timeout_s => 3600 });
my $ends = create_ok({ timeout_s => 3600 });
my $broker = $other->broker;
my $began = time;
my $follower = $flight->{follow};

ok(stopped($other, $broker), 'a broker is stopped');

my %waits = (
    'a command' => async { exec_call($s, 'echo ran >> ran',
                                     _http => { @LATE }) },
    'an upload' => async { put($s, 'new', 'x' x 4096, @LATE) },
    'a download' => async { get($s, 'mark', @LATE) },
    'a new session' => async { create({ metadata => { late => 'yes' } },
                                      @LATE) },
    'a look at one' => async { call('GET', "/sessions/$s", @LATE) },
    'the end of one' => async { call('DELETE', "/sessions/$ends", @LATE) },
    'health' => async { call('GET', '/health', @LATE) },
);


# ---- a keeper that a reload has to reach ------------------------------------

my $third = SandboxTest->new(workers => 2)->start;

to($third);

my $kept = create_ok({ timeout_s => 3600 });
my @pair = ($third->keeper, $third->broker);
my %before = map { $_ => 1 } $third->workers;
my $unreached = qr/\[error\].* sandbox: /;

ok(stopped($third, $pair[0]), 'the keeper of another one is stopped');
is($third->log_has($unreached), 0, 'of which nothing is told yet');
$third->signal('HUP');

to($other);


subtest 'what has its session already goes on without it' => sub {
    my $length = length $flight->{text};

    for (1 .. 20) {
        my $e = $follower->until('stdout') // last;
        $flight->{text} .= $e->{data};
    }

    cmp_ok(length $flight->{text}, '>', $length + 20, 'output comes');

    $flight->{terminal}->type("echo st\"\"ands\n");
    ok($flight->{terminal}->expect(qr/stands\r\n/), 'a terminal answers');

    $flight->land_transfers;
    is_deeply($flight->{wrong}, [], 'an upload and a download end');

    my $t0 = time;
    my $n = grep { $other->http(GET => '/probe')->{status} == 204 } 1 .. 50;
    is($n, 50, 'nginx serves what else there is');
    cmp_ok((time - $t0) / 50, '<', within(0.5), 'at once');
    is((grep { $_->ready } values %waits), 0, 'while calls to it wait');
};


# ---- a keeper --------------------------------------------------------------

to($t);

subtest 'a keeper is stopped' => sub {
    my ($keeper, $old) = ($t->keeper, $t->broker);
    my $there = create_ok();

    ok(stopped($t, $keeper), 'it stands still');

    for my $n (1 .. 3) {
        my $id = $n == 1 ? networked() : create_ok();
        is(run($id, "echo $n")->{stdout}, "$n\n", 'sessions are made');
        is(destroy($id)->{status}, 204, 'and destroyed');
    }

    my $res = call('POST', "/sessions/$there/pause");
    is($res->{status}, 200, 'one is paused');
    is(call('POST', "/sessions/$there/resume")->{status}, 200, 'and resumed');

    $t->hit(KILL => $old);
    ok(SandboxTest::gone([ $old ]), 'its broker is killed');

    my $call = async { exec_call($there, 'echo back', _http => { @LATE }) };
    my $new = async { create({}, @LATE) };

    $t->hit(CONT => $keeper);
    is($call->get(120)->{json}{stdout}, "back\n",
       'the keeper goes on, and a call that waited is answered');
    my $made = $new->get(120);
    is($made->{status}, 201, 'as is another');
    is($t->keeper, $keeper, 'by the same keeper');
    isnt($t->broker, $old, 'and a broker of today');
    $t->note_processes;
    is(destroy($_)->{status}, 204, 'a session ends')
        for $there, $made->{json}{session_id};
};


to($other);
$flight->keep;
to($t);


# ---- an interpreter --------------------------------------------------------

SKIP: {
    skip 'no kernels are built', 1
        if !-e "$SandboxTest::BUILD/kernels/bash/kernel.conf";

    subtest 'an interpreter is stopped' => sub {
        my $id = create_ok({ timeout_s => 3600 });
        my $calm = create_ok();
        my $code = sub {
            my ($text, %o) = @_;
            return call('POST', "/sessions/$id/code", @LATE,
                        json => { language => 'bash', code => $text, %o });
        };

        is($code->('x=1; echo $x')->{json}{stdout}, "1\n", 'it runs');

        my ($pid) = grep {
            (slurp("/proc/$_/cmdline") // '') =~ m{/kernels/|--norc}
        } session_pids();

        ok($pid, 'it is found');
        ok(stopped($t, $pid), 'it stands still');

        my $run = async { $code->('x=$((x+1)); echo $x') };
        is(run($id, 'echo other')->{stdout}, "other\n",
           'commands of its session do not notice');
        is(run($calm, 'echo calm')->{stdout}, "calm\n", 'nor do others');
        ok(!$run->ready, 'a run waits');
        $t->hit(CONT => $pid);
        is($run->get(120)->{json}{stdout}, "2\n", 'and goes on with it');

        ok(stopped($t, $pid), 'once more');
        my $res = $code->('echo never', timeout_s => 1);
        is("$res->{status} $res->{json}{timed_out}", '200 1',
           'a run ends at its time');
        ok(SandboxTest::gone([ $pid ]), 'and the interpreter with it');
        is($code->('echo "<$x>"')->{json}{stdout}, "<>\n",
           'the next run has another');
        is(destroy($_)->{status}, 204, 'destroyed') for $id, $calm;
    };
}


# ---- the egress ------------------------------------------------------------

sub egress {
    my ($pid) = grep { (slurp("/proc/$_/cmdline") // '') =~ /^sandbox-egress/ }
                SandboxTest::children($t->keeper);

    return $pid;
}

sub asks {
    my ($id) = @_;

    return ($net->try($id, { do => 'http', to => $AT, port => 80 }))[0];
}

subtest 'the egress is stopped' => sub {
    my $id = networked();
    my $held = $net->hold($id, $AT);
    my $egress = egress();

    ok($held && $egress, 'a connection is up');
    $t->remember($egress);
    ok(stopped($t, $egress), 'it stands still');

    my $ask = async { asks($id) };
    my $t0 = time;
    my $new = networked();
    is(run($new, 'echo made')->{stdout}, "made\n",
       'a session with a network is made meanwhile');
    is(run($id, 'echo own')->{stdout}, "own\n", 'commands run');
    ok(!$ask->ready, 'connections wait');

    $t->hit(CONT => $egress);

  SKIP: {
        # one that is stopped for ten seconds is replaced, see below
        skip 'the machine took too long for it', 3 if time - $t0 > 8;

        is($ask->get(60)->{status}, 200, 'and are made when it goes on');
        is($net->held($id, $held, qr/up/), 'up', 'those before are up');
        is(egress(), $egress, 'by the same process');
    }

    is(asks($new)->{status}, 200, 'of the other session too');

    $egress = egress();
    $t->remember($egress);
    ok(stopped($t, $egress), 'it is stopped for longer');
    ok((until_true { (egress() // $egress) != $egress } 40),
       'and is replaced');
    ok(SandboxTest::gone([ $egress ]), 'the one before is gone');
    ok((until_true { (asks($id)->{status} // 0) == 200 } 10),
       'connections are made again');
    like($net->held($id, $held, qr/^(?!up)/), qr/^(?:ECONNRESET|end)$/,
         'those before have ended');
    is(destroy($_)->{status}, 204, 'destroyed') for $id, $new;
};


# ---- a reload that could not reach its keeper -------------------------------

to($third);

subtest 'a reload that does not reach the broker' => sub {
    ok((until_true {
        my @now = $third->workers;
        @now == 2 && !grep { $before{$_} } @now;
    } 40), 'is done all the same');
    is($third->log_has($unreached), 1, 'the log tells of it');
    is(run($kept, 'echo old')->{stdout}, "old\n",
       'new workers go on with the connection of before');

    my $new = create_ok();
    is(run($new, 'echo new')->{stdout}, "new\n", 'sessions are made');
    is(destroy($new)->{status}, 204, 'and end');

    $third->hit(CONT => $pair[0]);
    ok($third->reload, 'the next reload reaches it');
    is(run($kept, 'echo old')->{stdout}, "old\n", 'the session is there');
    is_deeply([ $third->keeper, $third->broker ], \@pair, 'so is the pair');
    is(destroy($kept)->{status}, 204, 'destroyed');
};


# ---- the broker again ------------------------------------------------------

to($other);

for my $name (sort keys %waits) {
    my $res = $waits{$name}->get(120);

    is_problem($res, 503, 'E5001', "$name: is told");
    is($res->{headers}{'retry-after'}, 1, 'and when to try again');
}

cmp_ok(time - $began, '>', 25, 'after half a minute');
$flight->keep;

subtest 'what goes on comes back' => sub {
    my $call = async { exec_call($s, 'echo once >> ran; echo back',
                                 _http => { @LATE }) };
    ok(!$call->ready, 'a call waits');
    $other->hit(CONT => $broker);
    is($call->get(120)->{json}{stdout}, "back\n", 'and is answered');
    is(get($s, 'ran')->{body}, "once\n",
       'what its caller was told is not done was not done');
    is(get($s, 'new')->{status}, 404, 'nor was the file made');

    my $list = sub { return call('GET', '/sessions')->{json}{sessions} };
    my %may = map { $_ => 1 } $s, $ends, $flight->sessions;
    is_deeply([ grep { !$may{ $_->{session_id} } } @{ $list->() } ], [],
              'nor a session');
    like(destroy($ends)->{status}, qr/^(?:204|404)$/,
         'what was to end may have ended');
    is($other->broker, $broker, 'it is the same broker');

    is_deeply($flight->land, [], 'nothing in flight is lost');
    is(destroy($s)->{status}, 204, 'destroyed');
};

$_->finish for $other, $t, $third;
done_testing();
