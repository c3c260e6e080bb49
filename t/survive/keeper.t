#!/usr/bin/perl

# The keeper killed with everything in flight: nothing is lost.  Keeper and
# broker killed at once, in every order: all sessions end, calls say so, and
# the next reload brings a fresh pair, before which nothing of the old stays.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../lib";

use JSON::PP ();
use Test::More;
use SandboxTest::Fault;
use SandboxTest::Flight;
use SandboxTest::More;
use SandboxTest::Net;

my $AT = '203.0.113.10';
my $net = SandboxTest::Net->new;
my $t = $net->server(workers => 2, http => <<'CONF');
    sandbox_egress allow *;
    sandbox_template pooled { egress allow *; }
    sandbox_pool pooled sessions=2;
CONF

($SandboxTest::More::T, $SandboxTest::More::PORT,
 $SandboxTest::More::PREFIX) = ($t, $t->port, $t->prefix);


sub networked {
    return create_ok({ manifest => { network => JSON::PP::true },
                       timeout_s => 3600 });
}

my $EGRESS;

sub egress {
    my ($pid) = grep { (slurp("/proc/$_/cmdline") // '') =~ /^sandbox-egress/ }
                map { SandboxTest::children($_) } $t->keeper;

    return $pid;
}

sub reaches {
    my ($id) = @_;

    return until_true {
        my ($r) = $net->try($id, { do => 'http', to => $AT, port => 80 });
        ($r->{status} // 0) == 200;
    } 10;
}

# The pair that serves, once it is another than before.

sub pair { return ($t->keeper // 0, $t->broker // 0) }

sub replaced {
    my (@old) = @_;
    my @new;

    until_true {
        @new = pair();
        return !grep({ !SandboxTest::alive($_) } @new)
               && $new[0] != $old[0] && $new[1] != $old[1] && $t->ready;
    } 20 or return;

    $t->note_processes;

    return @new;
}


sub directories {
    return map { m{([^/]+)$} } glob $t->prefix . '/sessions/*';
}


# ---- the keeper ------------------------------------------------------------

# What dies once costs no caller anything.  A call that is lost twice is told,
# and made again by its key.

sub over {
    my ($name, $kill, $often) = @_;

    subtest $name => sub {
        my $flight = SandboxTest::Flight->begin;
        my $id = networked();
        my $held = $net->hold($id, $AT);
        my $egress = $EGRESS //= egress();

        ok($held, 'a connection of a session is up');

        # sessions are made and ended all the while

        my $go = $t->prefix . '/go';
        open my $f, '>', $go or die $!;
        close $f;

        my $busy = async {
            my @wrong;
            my $n = 0;

            for ( ; -e $go; $n++) {
                my $res;

                until_true {
                    $res = create(undef, headers =>
                                  { 'Idempotency-Key' => "$$-$n" });
                    !$often || ($res->{json}{code} // '') ne 'E5001';
                } 20;

                my $made = $res->{json}{session_id};
                push @wrong, "create: $res->{status} $res->{body}"
                    if $res->{status} !~ /^20[01]$/;
                next if !$made;

                # told that its end is not known, a command is not run again

                $res = exec_call($made, "echo $n");
                push @wrong, "exec: $res->{status} $res->{body}"
                    if ($res->{json}{stdout} // '') ne "$n\n"
                       && !($often && ($res->{json}{code} // '') eq 'E5001');

                # asked once more where the first answer was lost

                until_true {
                    $res = destroy($made);
                    !$often || ($res->{json}{code} // '') ne 'E5001';
                } 20;

                push @wrong, "DELETE: $res->{status} $res->{body}"
                    if $res->{status} != 204
                       && ($res->{json}{ended} // '') ne 'destroyed';
            }

            return { wrong => \@wrong, done => $n };
        };

        $kill->();
        unlink $go;

        my $done = $busy->get(within(60));
        is_deeply($done->{wrong}, [], 'calls meanwhile are answered');
        cmp_ok($done->{done}, '>', 0, "$done->{done} of each");

        is_deeply($flight->land, [], 'nothing in flight is lost');
        is($flight->{resumed}, 0, 'nor cut');
        is($net->held($id, $held, qr/up/), 'up', 'connections go on');
        is(SandboxTest::alive($egress), 1, 'by the same egress');
        ok(reaches($id), 'and new ones work');
        is(destroy($id)->{status}, 204, 'it ends');

        my $health = call('GET', '/health')->{json};
        is($health->{sessions}, 0, 'the count of sessions is right');
    };

    return;
}

sub killed {
    my @old = pair();

    is($t->hit(KILL => $old[0]), 1, 'the keeper is killed');
    my @new = replaced(@old);
    is($new[0], $old[1], 'its broker has taken its place');
    isnt($new[1] // 0, $old[1], 'and has a broker');

    return @new;
}


over('the keeper is killed' => sub { killed() });

over('three times, one right after the other' => sub {
    killed() for 1 .. 3;
}, 1);

over('the next broker dies when it has the store' => sub {
    my ($old, $broker) = pair();

    arm($broker, 'broker-start-stored');
    $t->hit(KILL => $old);
    my $new = held($broker);
    ok($new && $new != $broker, 'another broker has the store');
    disarm($broker);
    ok(kill('KILL', $new), 'and is killed');

    my @pair = replaced($old, $new);
    is($pair[0], $broker, 'its keeper starts another');
}, 1);

over('the keeper dies again when its broker has the store' => sub {
    my ($old, $broker) = pair();

    arm($broker, 'broker-start-stored');
    $t->hit(KILL => $old);
    my $new = held($broker);
    ok($new && $new != $broker, 'the new broker has it');
    ok(kill('KILL', $broker), 'its keeper is killed');
    ok(release($new), 'it goes on');

    my @pair = replaced($broker, $new);
    is($pair[0], $new, 'and takes its place');
}, 1);


# Whoever moves a keeper, by hand or as systemd does, takes the next broker
# along, but not the groups that there are.

my $AWAY = "sbxtest-moved-$$";
my $OWNER = $$;
my @MOVED;

sub branches { return grep { m{/sandbox-[a-z0-9]+$} } cgroup_dirs() }

sub moved {
    my ($pid) = @_;

    for my $dir (map { s{[^/]+$}{$AWAY}r } branches()) {
        mkdir $dir or next;
        push @MOVED, $dir;
        open my $f, '>', "$dir/cgroup.procs" or next;
        syswrite $f, $pid;
    }

    my @at = grep { m{/\Q$AWAY\E$} }
             split /\n/, slurp("/proc/$pid/cgroup") // '';

    return @at && @at == @MOVED;
}

END {
    if ($$ == $OWNER) {
        local $?;
        rmdir for @MOVED;
    }
}

over('the broker dies when its keeper has been moved to other groups', sub {
    my ($keeper, $broker) = pair();
    my @before = branches();

    ok(moved($keeper), 'it is moved in every hierarchy');
    $t->hit(KILL => $broker);
    ok((until_true {
        my $new = $t->broker // 0;
        $new != $broker && SandboxTest::alive($new) && $t->ready;
    } 20), 'there is another broker');
    like(slurp('/proc/' . $t->broker . '/cgroup'), qr{/\Q$AWAY\E},
         'which was born there');
    is_deeply([ branches() ], \@before, 'the groups are where they were');
    killed();
    is_deeply([ branches() ], \@before, 'and after the keeper as well');
}, 1);


# ---- both ------------------------------------------------------------------

# Every kind of call, as it is when nobody is there to take it.

my @CALLS = (
    [ 'GET', '/health' ],
    [ 'GET', '/sessions' ],
    [ 'GET', '/sessions/ID' ],
    [ 'GET', '/capabilities' ],
    [ 'POST', '/sessions', json => { tenant_id => 'a', user_id => 'b' } ],
    [ 'POST', '/sessions/ID/exec', json => { cmd => 'echo' } ],
    [ 'POST', '/sessions/ID/exec', json => { cmd => 'echo' },
      headers => { Accept => 'application/x-ndjson' } ],
    [ 'POST', '/sessions/ID/code', json => { language => 'bash',
                                             code => 'echo' } ],
    [ 'GET', '/sessions/ID/processes' ],
    [ 'PUT', '/sessions/ID/files/f', body => 'x' ],
    [ 'GET', '/sessions/ID/files/f' ],
    [ 'GET', '/sessions/ID/files/' ],
    [ 'DELETE', '/sessions/ID/files/f' ],
    [ 'PATCH', '/sessions/ID', json => { timeout_s => 100 } ],
    [ 'POST', '/sessions/ID/pause' ],
    [ 'POST', '/sessions/ID/resume' ],
    [ 'POST', '/run', json => { tenant_id => 'a', user_id => 'b',
                                steps => [ { cmd => 'echo' } ] } ],
    [ 'DELETE', '/sessions/ID' ],
);

sub refused_all {
    my ($id) = @_;
    my @wrong;

    for my $c (@CALLS) {
        my ($method, $path, %o) = @$c;
        $path =~ s/ID/$id/;

        my $res = call($method, $path, %o);
        my $got = join ' ', $res->{status}, $res->{json}{code} // 'no code',
                  $res->{headers}{'retry-after'} // 'no time';
        push @wrong, "$method $path: $got" if $got ne '503 E5001 1';
    }

    return is_deeply(\@wrong, [], 'every call is 503, E5001, Retry-After: 1');
}

sub stopped {
    my (@pids) = @_;

    $t->hit(STOP => @pids);

    return until_true {
        !grep { (slurp("/proc/$_/stat") // '') !~ /\) T / } @pids
    } 10;
}

my @WAYS = (
    [ 'the keeper first' => sub {
        my ($keeper, $broker) = pair();
        ok(stopped($keeper, $broker), 'both stand still');
        $t->hit(KILL => $keeper);
        ok(SandboxTest::gone([ $keeper ]), 'the keeper is killed');
        $t->hit(KILL => $broker);
        return $broker;
    } ],
    [ 'the broker first' => sub {
        my ($keeper, $broker) = pair();
        ok(stopped($keeper, $broker), 'both stand still');
        $t->hit(KILL => $broker);
        ok(SandboxTest::gone([ $broker ]), 'the broker is killed');
        $t->hit(KILL => $keeper);
        return $keeper;
    } ],
    [ 'the broker as it takes the place of the keeper' => sub {
        my ($keeper, $broker) = pair();
        arm($broker, 'broker-replace-written');
        $t->hit(KILL => $keeper);
        is(held($broker), $broker, 'the store is written');
        ok(kill('KILL', $broker), 'and it is killed');
        return $broker;
    } ],
    [ 'the next keeper as it starts' => sub {
        my ($keeper, $broker) = pair();
        arm($broker, 'keeper-start-confined');
        $t->hit(KILL => $keeper);
        is(held($broker), $broker, 'it has the store, and no broker yet');
        ok(kill('KILL', $broker), 'and it is killed');
        return $broker;
    } ],
);

my $first = 1;

for my $way (@WAYS) {
    my ($name, $kill) = @$way;

    subtest "keeper and broker are killed, $name" => sub {
        my @ids = (create_ok(), create_ok(), networked());
        my ($runs, $paused, $id) = @ids;

        exec_call($runs, 'setsid sleep 1000 & :');
        exec_call($paused, 'setsid sleep 1000 & :');
        call('POST', "/sessions/$paused/pause");
        ok($net->hold($id, $AT), 'a connection is up');
        ok((until_true { directories() >= 5 } 60),
           'some sessions are nobody\'s');

        my @old = session_pids();
        my @dirs = directories();
        $t->remember($_) for @old;
        cmp_ok(scalar @old, '>=', 8, scalar(@old) . ' processes');

        my $last = $kill->();

        ok(SandboxTest::gone([ $last ]), 'nobody is left');
        ok(SandboxTest::gone(\@old, 15), 'every process of theirs has ended')
            || diag(map { slurp("/proc/$_/status") // '' }
                    grep { SandboxTest::alive($_) } @old);

        my $res = call('GET', '/health');
        is_problem($res, 503, 'E5001', 'the API says that it cannot');
        is($res->{headers}{'retry-after'}, 1, 'and to come again');
        refused_all($id) if $first;
        $first = 0;

        ok($t->reload, 'a reload');
        is(call('GET', '/health')->{json}{sessions}, 0, 'begins with none');

        my %there = map { $_ => 1 } directories();
        is_deeply([ grep { $there{$_} } @dirs ], [],
                  'no directory is left of the sessions before');

        my $dead = join '|', map { quotemeta } @dirs;
        is_deeply([ grep { m{/(?:$dead)$} } cgroup_dirs() ], [],
                  'nor a group');
        is_deeply([ grep { /$dead/ } map { mounts($_) } pair() ], [],
                  'nor a mount');

        $res = call('GET', "/sessions/$runs");
        is_problem($res, 404, 'E2009', 'who asks for one');
        is($res->{json}{ended}, 'node_restart', 'is told why it has ended');

        my $new = networked();
        is(run($new, 'echo new')->{stdout}, "new\n", 'new ones are made');
        ok(reaches($new), 'with a network');
        is(destroy($new)->{status}, 204, 'and destroyed');
        ok((until_true { directories() >= 2 } 60),
           'the pool is filled again');
    };
}

$t->finish;
done_testing();
