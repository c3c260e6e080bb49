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
use SandboxTest::Connect;
use SandboxTest::More qw(call until_true);
use SandboxTest::Survive;

my $LONG = $ENV{SANDBOX_TEST_LONG};

# In the order in which they are come to.

my @CHANGE = qw(broker-change-begun broker-change-queued broker-record-written
                broker-record-renamed broker-change-written
                broker-change-applied broker-change-answered);

my $s = SandboxTest::Survive->new(
    server => '        location /e2b/ { sandbox_api e2b; }');
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

# The first process is killed while it stops its clocks, or has started them:
# its session ends, and no other.

for my $what (qw(pause resume)) {
    my $other = $t->session;
    my $point = $what eq 'pause' ? 'init-pause-stopped'
                                 : 'init-resume-started';
    my ($its) = grep {
        (SandboxTest::slurp("/proc/$_/cgroup") // '') =~ /\Q$other\E/
    } $s->inits;

    $s->post($other, 'pause') if $what eq 'resume';

    my $res = $s->struck(point => $point, victim => 'held', in => [ $its ],
                         call => sub { $s->post($other, $what) }) // next;

    like($res->{status}, qr/^(?:200|404)$/,
         "init killed at $point: the caller is told");

    my $over = until_true { ($s->session($other)->{code} // '') eq 'E2009' }
                          10;
    ok($over, "init killed at $point: its session ends");
    $s->unharmed("init killed at $point: no other", $id);
}

# A call that a session is resumed for waits in the broker, or in the next
# one, and is done once.

{
    ($SandboxTest::More::T, $SandboxTest::More::PORT,
     $SandboxTest::More::PREFIX) = ($t, $t->port, $t->prefix);

    my %key = (headers => { 'X-API-Key' => 'e2b_' . '0' x 40 });
    my $made = call('POST', '/v2/sandboxes', base => '/e2b', %key,
                    json => { templateID => 'base',
                              autoPause => JSON::PP::true,
                              autoResume => { enabled => JSON::PP::true } });
    my $other = $made->{json}{sandboxID} // 'none';

    is($made->{status}, 201, 'a session that calls may resume')
        or diag($made->{body});

    for my $victim (qw(broker keeper worker)) {
        my $name = "a call that resumes, $victim killed at broker-resume-held";
        my $paused = call('POST', "/sandboxes/$other/pause", base => '/e2b',
                          %key);
        is($paused->{status}, 204, "$name: it is paused");

        my $res = $s->struck(
            point => 'broker-resume-held', victim => $victim, name => $name,
            call => sub {
                rpc($other, 'filesystem.Filesystem/MakeDir',
                    { path => "/home/user/$victim" })
            }) // next;

        is($res->{status}, $victim eq 'worker' ? 0 : 200,
           "$name: what the caller is told") or diag($res->{body});

        # made already, where the call before was done

        my $again = rpc($other, 'filesystem.Filesystem/ListDir',
                        { path => '/home/user' });
        my @found = grep { $_->{name} eq $victim }
                    @{ $again->{json}{entries} || [] };

        is($again->{status}, 200, "$name: the next call is served")
            or diag($again->{body});
        cmp_ok(scalar @found, $victim eq 'worker' ? '<=' : '==', 1,
               "$name: it has been done");
    }

    is(call('DELETE', "/sandboxes/$other", base => '/e2b', %key)->{status},
       204, 'it ends');
    $s->unharmed('calls that resume: nobody else notices', $id);
}

is($s->destroy($id)->{status}, 204, 'it ends');
$s->over;
done_testing();
