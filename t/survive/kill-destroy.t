#!/usr/bin/perl

# Every process that has a part in the end of a session, killed after each
# step of it; and a broker that is killed while it takes over from another.
# The caller is told that the session has ended, whoever had to end it, and
# nothing is left of it; nobody else notices anything.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../lib";

use Test::More;
use Time::HiRes qw(time);
use SandboxTest;
use SandboxTest::Fault;
use SandboxTest::More qw(async until_true);
use SandboxTest::Survive;

my $LONG = $ENV{SANDBOX_TEST_LONG};

# In the order in which they are come to.

my @BROKER = qw(broker-destroy-asked broker-end-buried broker-end-cut
                broker-end-dropped broker-end-killed broker-end-reaped
                broker-end-ungrouped broker-end-emptied broker-end-removed
                broker-end-answered);
my @INIT = qw(init-end-asked);
my @KEEPER = qw(keeper-drop-dropped keeper-exit-reaped);

my $s = SandboxTest::Survive->new;
my $t = $s->{t};


# A session with a command that runs, one by one.

sub session {
    my $id = $t->session;

    $t->api(POST => "/sessions/$id/exec",
            { cmd => 'sleep 600', background => JSON::PP::true });

    return $id;
}

# What the end of it is to its owner.

sub is_over {
    my ($id, $name) = @_;

    local $Test::Builder::Level = $Test::Builder::Level + 1;

    my $j = $s->session($id);

    is(join(' ', map { $_ // '-' } @$j{qw(code ended)}), 'E2009 destroyed',
       "$name: its owner is told how it ended");
    is($s->destroy($id)->{status}, 404, "$name: it cannot be ended twice");
    $s->unharmed("$name: nothing of it counts, nobody notices");

    return;
}

sub strike {
    my ($point, $victim, $status) = @_;

    my $id = session();
    my %was = map { $_ => 1 } $s->inits;
    my ($init) = grep { $was{$_} && cgroup_of($_) =~ /\Q$id\E/ } keys %was;
    my $name = "$victim killed at $point";
    my $res = $s->struck(
        point => $point, name => $name,
        victim => $victim eq 'init' ? sub { $init } : $victim,
        in => $point =~ /^init/ ? [ $init ] : undef,
        call => sub { $s->destroy($id) }) // return;

    is($res->{status}, $status // 204, "$name: what the caller is told")
        or diag($res->{body});

    if (defined $status) {
        # whoever asks again is told in the end

        my $gone = until_true { $s->destroy($id)->{status} == 404 } 10;
        ok($gone, "$name: it has ended all the same");
    }

    is_over($id, $name);

    return;
}

sub cgroup_of { return SandboxTest::slurp("/proc/$_[0]/cgroup") // '' }


strike($_, 'broker') for @BROKER;
strike($_, 'held') for @INIT, @KEEPER;

for my $point ($LONG ? @BROKER : qw(broker-destroy-asked broker-end-killed
                                    broker-end-emptied))
{
    strike($point, 'keeper');
    strike($point, 'worker', $point eq 'broker-end-answered' ? undef : 0)
        if $point ne 'broker-end-answered';
}

strike($_, 'init') for $LONG ? @BROKER[0 .. 3] : 'broker-destroy-asked';
strike('worker-call-sent', 'held', 0);
strike('worker-call-ended', 'held', 0);
strike('worker-call-ended', 'broker');

# A broker that takes over is killed by itself, or the keeper that has started
# it: the next one does.

# What a keeper has started by then has the point too, and comes to it when it
# is a keeper itself: it goes on then.

sub freed {
    my ($first) = @_;

    return async {
        return until_true {
            my $keeper = $t->keeper;
            my $v = SandboxTest::Fault::peek($keeper) // {};

            return $keeper != $first
                   && ($v->{state} // 0) == SandboxTest::Fault::HELD
                   && release($keeper);
        } 20;
    };
}

for my $point (qw(keeper-spawn-forked keeper-spawn-spawned
                  broker-start-stored
                  broker-start-configured broker-adopt-read
                  broker-adopt-taken broker-adopt-adopted
                  broker-sweep-ungrouped broker-sweep-emptied
                  broker-start-restored))
{
    my $id = session();
    my $first = $t->broker;
    my $keeper = $t->keeper;

    # the session that is ended is what the second broker has to find

    my $res = $s->struck(
        point => $point, in => [ $t->keeper ],
        victim => 'held', name => "a successor killed at $point",
        call => sub {
            my $freed = $point eq 'keeper-spawn-spawned' ? freed($keeper) : 0;

            kill 'KILL', $first;

            my $ended = $s->destroy($id);
            $freed->get(30) if $freed;

            return $ended;
        });

    next if !$res;

    is($res->{status}, 204, "a successor killed at $point: the call waits");
    is_over($id, "a successor killed at $point");
}

# One after the other, more often than keepers may die that do not live: these
# have lived, though their brokers have not.

{
    my $seen = time;

    for my $round (1 .. 8) {
        my $keeper = $t->keeper;
        my $broker = $t->broker;

        # for a moment, which is more than a keeper has to live in this build

        until_true { time > $seen + 0.4 } 5;

        kill 'KILL', $broker;
        $s->another('broker', $broker);
        until_true { $t->ready } 20;
        kill 'KILL', $keeper;

        ok($s->another('keeper', $keeper), "by turns, $round: another keeper")
            or last;
        $seen = time;
    }

    $t->note_processes;
    $s->unharmed('by turns: nobody notices');
}

# A keeper that dies while it looks at a broker that has died takes all with
# it: there was one of the two too few.

{
    my @inits = $s->inits;
    my $broker = $t->broker;
    my $keeper = $t->keeper;

    arm($keeper, 'keeper-died-read');
    $t->remember($_) for @inits, $broker, $keeper;
    kill 'KILL', $broker;
    is(held($keeper), $keeper, 'keeper and broker: reached');
    kill 'KILL', $keeper;
    ok(SandboxTest::gone([ $keeper, @inits ], 20),
       'keeper and broker: all sessions end with them');

    my $res = $t->api(GET => '/health');
    is($res->{status}, 503, 'keeper and broker: the server says so');

    ok($t->reload, 'a reload starts others');

    my $made = $s->create;
    is($made->{status}, 201, 'sessions can be made again');
    is($s->destroy($made->{json}{session_id})->{status}, 204, 'and ended');
}

# Keepers that die as soon as their brokers have the store: each broker takes
# the place of one, until the last of too many in a row gives up.  One that has
# lived for longer, as it may on a busy machine, begins that count anew.

{
    my $id = session();
    my @inits = $s->inits;
    my $gives_up = qr/keepers die as soon as they start: the broker gives up/;
    my $point = 'broker-start-stored';
    my ($keeper, $next) = ($t->keeper, $t->broker);
    my $deaths = 1;

    $t->remember($_) for @inits;
    cmp_ok(scalar @inits, '>', 0, 'in a row: a session is there');
    arm($next, $point);
    kill 'KILL', $keeper;

    while ($deaths < 100 && !$t->log_has($gives_up)) {
        ($keeper, $next) = ($next, held($next, 5));

        last if !$next;

        $t->remember($_) for $keeper, $next;
        kill 'KILL', $keeper;

        # goes on, and has the point for the one that it starts

        arm($next, $point);
        $deaths++;
        SandboxTest::gone([ $keeper ], 5);
    }

    ok($t->log_has($gives_up), 'in a row: the broker gives up')
        or diag("$deaths deaths");
    cmp_ok($deaths, '>=', 6, "in a row: after $deaths, not before");
    ok(SandboxTest::gone([ @inits ], 20), 'in a row: all sessions end');

    my $res = $t->api(GET => '/health');
    is("$res->{status} " . ($res->{json}{code} // ''), '503 E5001',
       'in a row: the server says so');
    ok($t->reload, 'in a row: a reload starts others');
    is($s->session($id)->{ended}, 'node_restart',
       'in a row: who asks for a session of before is told');
}

$t->finish;
done_testing();
