#!/usr/bin/perl

# Sessions that are made ahead, with an interpreter and a network: every
# process that has a part in making one, in giving it out and in its way to the
# network, killed after each step.  A pool fills again, a create is made once,
# and what was granted works.
#
# SANDBOX_TEST_LONG=1 meets every point; without it a few of each kind.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../lib";

use JSON::PP ();
use Test::More;
use SandboxTest;
use SandboxTest::Fault;
use SandboxTest::Net;
use SandboxTest::More qw(until_true);
use SandboxTest::Survive;

my $LONG = $ENV{SANDBOX_TEST_LONG};

# In the order in which they are come to.

my @POOL = qw(broker-pool-begun broker-pool-launched broker-pool-started
              broker-pool-asked broker-pool-warmed broker-pool-ready);
my @TAKE = qw(broker-take-told broker-take-changed broker-take-owned
              broker-take-recorded broker-create-recorded
              broker-create-routed broker-create-stored
              broker-egress-granted);
my @INIT = qw(init-warm-begun init-warm-warmed init-take-taken);

my $net = SandboxTest::Net->new;
my $t = $net->server(workers => 1, quotas => 1, server => <<'CONF',
        location /admin/ { sandbox_api admin; }
        location = /metrics { sandbox_api metrics; }
CONF
                     http => <<'CONF');
    sandbox_egress allow *;
    sandbox_template pooled { egress allow *; }
    sandbox_pool pooled sessions=1 kernels=bash;
CONF
my $s = SandboxTest::Survive->new(t => $t, pooled => 1);
my $at = { do => 'http', to => '203.0.113.10', port => 80 };


sub metric {
    my ($name) = @_;

    my ($n) = $t->http(GET => '/metrics')->{body}
              =~ /^sandbox_\Q$name\E (\S+)$/m;

    return $n // 'none';
}

sub full {
    return until_true {
        metric('pool_sessions{template="pooled",state="ready"}') eq '1'
            && metric('pool_sessions{template="pooled",state="filling"}')
               eq '0'
    } 60;
}

sub make {
    return $s->create({ template => 'pooled',
                        manifest => { network => JSON::PP::true } });
}

# Its interpreter, its files and its network.

sub made {
    my ($res, $name) = @_;

    local $Test::Builder::Level = $Test::Builder::Level + 1;

    is($res->{status}, 201, "$name: it is made") or diag($res->{body});

    my $id = $res->{json}{session_id} // return;
    my $r;
    my $reached = until_true {
        ($r) = $net->try($id, $at);
        ($r->{status} // 0) == 200
    } 20;

    ok($reached, "$name: its network works") or diag(explain($r));

    my $code = $t->api(POST => "/sessions/$id/code",
                       { code => 'echo $((6 * 7))', language => 'bash' });
    like($code->{body} // '', qr/42/, "$name: its interpreter works");

    $s->unharmed("$name: once, and nobody notices", $id);
    is($s->destroy($id)->{status}, 204, "$name: it ends");

    return;
}

sub strike {
    my ($point, $victim, %o) = @_;

    my $name = "$victim killed at $point";

    ok(full(), "$name: the pool is full");

    my $res = $s->struck(point => $point, victim => $victim, name => $name,
                         call => \&make, %o) // return;

    made($res, $name);
    $s->unharmed("$name: as it was before");

    return;
}

# The first process of the one that is ready.

sub ready_init {
    my %known = map { $_->{session_id} => 1 }
                @{ $t->api(GET => '/sessions')->{json}{sessions} };

    my ($init) = grep {
        my ($id) = (SandboxTest::slurp("/proc/$_/cgroup") // '')
                   =~ m{/(i[a-z0-9]{26})(?:/|$)}m;
        $id && !$known{$id}
    } $s->inits;

    return $init;
}


ok(full(), 'the pool is filled');
made(make(), 'one of it');

strike($_, 'broker') for $LONG ? @POOL : @POOL[1, 3, 5];
strike($_, 'broker') for $LONG ? @TAKE : @TAKE[0, 2, 3, 6, 7];
strike($_, 'keeper') for $LONG ? (@POOL, @TAKE) : qw(broker-pool-asked
                                                     broker-take-owned);

# The first process of the one that is being made, and of the one that is
# given out: another create would be told, and this one may be.

strike($_, 'held', in => [ $t->broker ]) for @INIT[0, 1];

{
    ok(full(), 'init killed as it is given out: the pool is full');

    my $name = "init killed at $INIT[2]";
    my $res = $s->struck(point => $INIT[2], victim => 'held', name => $name,
                         in => [ ready_init() ], call => \&make);

    if ($res->{status} == 201) {
        my $over = until_true {
            ($s->session($res->{json}{session_id})->{code} // '') eq 'E2009'
        } 10;
        ok($over, "$name: it ends");

    } else {
        is("$res->{status} " . ($res->{json}{code} // ''), '503 E5001',
           "$name: it is refused");
    }

    $s->unharmed("$name: nobody notices");
}

# The interpreter of the one that is being made: before its first process has
# heard anything of it, and when that is about to tell that it is warm.

for my $point (qw(init-exec-started init-warm-warmed)) {
    my $name = "an interpreter killed at $point";

    ok(full(), "$name: the pool is full");

    my $failed = metric('pool_failures_total{template="pooled"}');
    my $res = $s->struck(point => $point, name => $name,
                         in => [ $t->broker ], call => \&make,
                         victim => sub {
        my ($init) = @_;
        my ($kernel) = grep {
            (SandboxTest::slurp("/proc/$_/cmdline") // '') =~ /driver\.sh/
        } SandboxTest::children($init);

        return $kernel;
    });

    ok((until_true {
        metric('pool_failures_total{template="pooled"}') > $failed } 20),
       "$name: it is counted");
    made($res, $name);
    ok(full(), "$name: another one is made");
    made(make(), "$name: the next one");
}

$s->over;
done_testing();
