#!/usr/bin/perl

# nginx upgraded under way, taken back, and upgraded for good, with streams, an
# upload, a download, a terminal and a paused session in flight; and brokers
# that are of another version than their server.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../lib";

use Test::More;
use SandboxTest;
use SandboxTest::Flight;
use SandboxTest::More;
use SandboxTest::Preload;

# nginx takes USR2 only when its parent is not the one of its start.

my $t = SandboxTest->new(workers => 2, daemon => 1)->start;

sub to {
    my ($server) = @_;

    ($SandboxTest::More::T, $SandboxTest::More::PORT,
     $SandboxTest::More::PREFIX) = ($server, $server->port, $server->prefix);

    return;
}

to($t);


# ---- there and back --------------------------------------------------------

sub old_master { return $t->pid_file('nginx.pid.oldbin') }

sub serving {
    my ($master) = @_;

    return grep { (slurp("/proc/$_/cmdline") // '')
                  =~ /worker process\s*\0*\z/ }
           SandboxTest::children($master);
}

sub upgrade {
    my $old = $t->master;

    $t->signal('USR2');
    my $new;
    ok((until_true {
        $new = $t->master;
        $new && $new != $old && (old_master() // 0) == $old
            && serving($new) == 2;
    } 20), 'a second master has workers');
    $t->note_processes;

    return ($old, $new);
}

my @pair = ($t->keeper, $t->broker);
my $flight = SandboxTest::Flight->begin;

# Sessions are made, used and ended by whoever serves.

sub works {
    my ($name) = @_;

    my $ok = 1;

    for my $n (1 .. 3) {
        my $id = create()->{json}{session_id} // '';
        $ok &&= $id && run($id, "echo $n")->{stdout} eq "$n\n"
                && destroy($id)->{status} == 204;
    }

    $flight->keep;

    return ok($ok, "$name: sessions are made, used and ended");
}


subtest 'USR2, and back to the one before' => sub {
    my ($old, $new) = upgrade();
    my @workers = serving($old);

    works('by both');

    is($t->hit(WINCH => $old), 1, 'the old one is told to let its go');
    ok((until_true { !serving($old) } 20), 'which they do');
    ok(SandboxTest::alive($old), 'it stays itself');
    works('by the new one');

    is($t->hit(HUP => $old), 1, 'back: the old one has workers again');
    ok((until_true { serving($old) == 2 } 20), 'which serve');
    my @back = serving($new);
    is($t->hit(QUIT => $new), 1, 'and the new one goes');
    ok((until_true { !serving($new) } 20), 'its workers take no more');
    works('by the old one');
    is_deeply([ $t->keeper, $t->broker ], \@pair, 'all by the same pair');
};


subtest 'and for good' => sub {

    # the new master of before waits for its workers' last requests, and a
    # second one is started when it has gone: so those in it are ended first

    $flight->land_transfers;
    my $landed = $flight->land;
    is_deeply($landed, [], 'nothing in flight is lost');
    cmp_ok($flight->{resumed}, '>=', 1, 'output went on in other workers');
    ok((until_true { !defined old_master() && serving($t->master) == 2 } 30),
       'one master is left');

    $flight = SandboxTest::Flight->begin;
    my ($old, $new) = upgrade();
    works('by both');
    is($t->hit(QUIT => $old), 1, 'the old one is told to end');
    ok((until_true { !serving($old) } 20), 'its workers take no more');
    works('by the new one');

    is_deeply($flight->land, [], 'nothing in flight is lost');
    ok(SandboxTest::gone([ $old ], 30), 'the old one has gone');
    ok($t->reload, 'the new one reloads');
    is_deeply([ $t->keeper, $t->broker ], \@pair, 'the same pair serves it');
    is(call('GET', '/health')->{json}{sessions}, 0, 'no session is left');
};


# ---- other versions --------------------------------------------------------

my $other = preload('version');

SKIP: {
    skip 'a sanitizer has to be the first library', 2
        if $SandboxTest::SANITIZE;
    skip 'no compiler', 2 if !$other;

    my $speaks = 'the running broker speaks version \d+ and the server'
                 . ' version \d+: restart the one that was not upgraded';

    subtest 'a server of another version does not start' => sub {
        my $s = create_ok();
        my $master = $t->master;

        put($s, 'mark', 'kept');
        $t->write_conf(main => "env LD_PRELOAD=$other;");
        ok($t->reload, 'the next program is another version\'s');
        $t->signal('USR2');
        ok((until_true { $t->log_has(qr/\[emerg\].*$speaks/) } 20),
           'it says what does not fit');
        ok((until_true { ($t->master // 0) == $master && !old_master() } 20),
           'the one that runs serves on');
        is(get($s, 'mark')->{body}, 'kept', 'with its sessions');

        $t->write_conf(main => '');
        ok($t->reload, 'back');
        my ($old, $new) = upgrade();
        $t->hit(QUIT => $old);
        ok(SandboxTest::gone([ $old ], 30), 'one of the same version takes '
                                            . 'its place');
        is(get($s, 'mark')->{body}, 'kept', 'with the sessions');
        is(destroy($s)->{status}, 204, 'destroyed');
        $t->allow(qr/$speaks/);
    };

    subtest 'a broker of another version is refused' => sub {
        my $u = SandboxTest->new(workers => 2, trust => 'standalone');

        $u->start;
        to($u);
        my $s = create_ok();
        my ($keeper, $broker) = ($u->keeper, $u->broker);

        $u->hit(TERM => $keeper);
        ok(SandboxTest::gone([ $keeper, $broker ], 20), 'the service ends');
        $u->{broker_env} = { LD_PRELOAD => $other };
        ok($u->start_broker, 'and is started as another version');

        my @workers = $u->workers;
        $u->signal('HUP');
        ok((until_true { $u->log_has(qr/\[error\].*$speaks/) } 20),
           'a reload is refused by it');
        ok((until_true { !grep { SandboxTest::alive($_) } @workers } 20),
           'and has happened');
        is($u->http(GET => '/none')->{status}, 404, 'nginx serves');
        is_problem(call('GET', '/health'), 503, 'E5001', 'without sessions');

        ($keeper, $broker) = ($u->keeper, $u->broker);
        $u->hit(TERM => $keeper);
        ok(SandboxTest::gone([ $keeper, $broker ], 20), 'the service ends');
        $u->{broker_env} = {};
        ok($u->reload, 'and is started as this version, and a reload');
        is_problem(call('GET', "/sessions/$s"), 404, 'E2009',
                   'sessions of before have ended');
        my $new = create_ok();
        is(run($new, 'echo new')->{stdout}, "new\n", 'new ones are made');
        is(destroy($new)->{status}, 204, 'destroyed');
        $u->finish;
    };
}

to($t);
$t->finish;
done_testing();
