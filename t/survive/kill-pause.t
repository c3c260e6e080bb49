#!/usr/bin/perl

# Every process that has a part in pausing and resuming a session, killed
# after each step of it.  The session is as its caller was told, which its
# command proves: it stands still, or it runs.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../lib";

use JSON::PP ();
use Test::More;
use Time::HiRes qw(sleep);
use SandboxTest;
use SandboxTest::More qw(until_true);
use SandboxTest::Survive;

my $LONG = $ENV{SANDBOX_TEST_LONG};

# In the order in which they are come to.

my @CHANGE = qw(broker-change-begun broker-change-queued broker-record-written
                broker-record-renamed broker-change-written
                broker-change-applied broker-change-answered);

my $s = SandboxTest::Survive->new;
my $t = $s->{t};
my $id = $t->session(timeout_s => 1800);
my $pid = $t->api(POST => "/sessions/$id/exec",
                  { cmd => 'while :; do echo; sleep 0.02; done',
                    background => JSON::PP::true })->{json}{pid};
my ($init) = grep {
    (SandboxTest::slurp("/proc/$_/cgroup") // '') =~ /\Q$id\E/
} $s->inits;

sub status { return $s->session($id)->{status} // 'unknown' }

# Voluntary switches of the command, which grow while it runs.

my ($command) = grep {
    (SandboxTest::slurp("/proc/$_/cmdline") // '') =~ /while/
} SandboxTest::children($init);

sub switches {
    my ($n) = (SandboxTest::slurp("/proc/$command/status") // '')
              =~ /^voluntary_ctxt_switches:\s+(\d+)/m;

    return $n // 0;
}

sub runs {
    my $n = switches();

    return until_true { switches() > $n + 2 } 5;
}

# What is frozen does not switch, however long it is looked at.

sub stands {
    my $n = switches();

    sleep 0.3;

    return switches() == $n;
}

sub is_so {
    my ($what, $name) = @_;

    local $Test::Builder::Level = $Test::Builder::Level + 1;

    my $told = until_true { status() eq ($what eq 'pause' ? 'paused'
                                                          : 'running') } 10;

    ok($told, "$name: GET says so") or diag(status());
    ok($what eq 'pause' ? stands() : runs(),
       "$name: its command " . ($what eq 'pause' ? 'stands' : 'runs'));

    return;
}

# Once the victim is dead the call is made again where it was not answered, as
# a caller does.

sub strike {
    my ($what, $point, $victim, $status) = @_;

    my $name = "$what, $victim killed at $point";
    my $res = $s->struck(
        point => $point, victim => $victim, name => $name,
        in => $point =~ /^init/ ? [ $init ] : undef,
        call => sub { $s->post($id, $what) }) // return;

    is($res->{status}, $status // 200, "$name: what the caller is told")
        or diag($res->{body});
    is($s->post($id, $what)->{status}, 200, "$name: asked once more")
        if defined $status;
    is_so($what, $name);
    $s->unharmed("$name: nobody else notices", $id);

    return;
}

ok(runs(), 'a command runs');

for my $point (@CHANGE) {
    strike($_, $point, 'broker') for qw(pause resume);
}

for my $point ($LONG ? @CHANGE : qw(broker-change-begun
                                    broker-change-written))
{
    for my $victim (qw(keeper worker)) {
        strike($_, $point, $victim, $victim eq 'worker' ? 0 : undef)
            for $point eq 'broker-change-answered' && $victim eq 'worker'
                ? () : qw(pause resume);
    }
}

# Killed between two that were answered, it is as it was.

for my $what (qw(pause resume)) {
    is($s->post($id, $what)->{status}, 200, $what);

    my $broker = $t->broker;
    kill 'KILL', $broker;
    $s->another('broker', $broker);
    is_so($what, "$what, then a broker is killed");
}

# The first process is killed while it stops its clocks: its session ends, and
# no other.

{
    my $other = $t->session;
    my ($its) = grep {
        (SandboxTest::slurp("/proc/$_/cgroup") // '') =~ /\Q$other\E/
    } $s->inits;
    my $res = $s->struck(point => 'init-pause-stopped', victim => 'held',
                         in => [ $its ],
                         call => sub { $s->post($other, 'pause') });

    like($res->{status}, qr/^(?:200|404)$/,
         'init killed at init-pause-stopped: the caller is told');

    my $over = until_true { ($s->session($other)->{code} // '') eq 'E2009' }
                          10;
    ok($over, 'init killed at init-pause-stopped: its session ends');
    $s->unharmed('init killed at init-pause-stopped: no other', $id);
}

is($s->destroy($id)->{status}, 204, 'it ends');
$s->over;
done_testing();
