#!/usr/bin/perl

# Every process that has a part in making a session, killed after each step of
# it.  What the caller is told is true: either there is one session, made once
# whoever had to begin again, or there is none; nobody else notices anything.
#
# SANDBOX_TEST_LONG=1 kills every process at every point; without it each
# point is met once by who comes to it, and each other process at a few.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../lib";

use Test::More;
use SandboxTest::Fault;
use SandboxTest::More qw(until_true);
use SandboxTest::Survive;

my $LONG = $ENV{SANDBOX_TEST_LONG};

# In the order in which they are come to.

my @BROKER = qw(broker-create-admitted broker-create-taken
                broker-create-grouped broker-create-cloned
                broker-create-launched broker-create-mapped
                broker-create-executed broker-create-ready
                broker-create-recorded broker-create-routed
                broker-create-stored broker-create-answered);
my @CHILD = qw(child-create-entered child-create-named child-create-volume
               child-create-rooted child-create-unshared child-create-mapped
               child-create-reduced child-create-filtered);
my @INIT = qw(init-create-executed init-create-opened);
my @WRITER = qw(broker-record-written broker-record-renamed);

# Ids of two sessions, which the bystanders have, and then those of the cells
# that follow: the next session has one reserved.

my $CELL = 128 * 65_536;
my $FIRST = (8 + $$ % 64) * $CELL - 2 * 65_536;
my $s = SandboxTest::Survive->new(
    http => "    sandbox_uid_range $FIRST-2147418111;\n");
my $t = $s->{t};


# One session, which works and ends.

sub made {
    my ($res, $name) = @_;

    local $Test::Builder::Level = $Test::Builder::Level + 1;

    is($res->{status}, 201, "$name: it is made") or diag($res->{body});

    my $id = $res->{json}{session_id} // return;

    $s->unharmed("$name: once, and nobody notices", $id);
    is($s->destroy($id)->{status}, 204, "$name: it ends");

    return;
}

sub refused {
    my ($res, $name) = @_;

    local $Test::Builder::Level = $Test::Builder::Level + 1;

    is("$res->{status} " . ($res->{json}{code} // ''), '503 E5001',
       "$name: it is refused") or diag($res->{body});

    return;
}

# Its first process dies as it is answered: it was there, or it was not.

sub brief {
    my ($res, $name) = @_;

    local $Test::Builder::Level = $Test::Builder::Level + 1;

    return refused($res, $name) if $res->{status} != 201;

    my $id = $res->{json}{session_id};

    my $over = until_true {
        ($s->session($id)->{ended} // '') eq 'node_restart'
    } 10;
    ok($over, "$name: it ends, and is said to have");

    return;
}

# The client is told nothing, and has nothing.

sub silent {
    my ($res, $name) = @_;

    local $Test::Builder::Level = $Test::Builder::Level + 1;

    is($res->{status}, 0, "$name: the connection is cut");

    return;
}

sub strike {
    my ($point, $victim, $after, @key) = @_;

    my $name = "$victim killed at $point" . (@key ? ', with a key' : '');
    my %o = @key ? (headers => { 'Idempotency-Key' => "key-$point-$victim" })
                 : ();
    my $make = sub { $s->create({}, %o) };
    my $res = $s->struck(point => $point, victim => $victim, name => $name,
                         call => $make) // return;

    if (@key) {
        # whoever asks once more gets what there is, or the first one

        my $again = $make->();
        my $id = $again->{json}{session_id};

        like($again->{status}, qr/^20[01]$/, "$name: there is one");
        is($id, $res->{json}{session_id}, "$name: the same")
            if $res->{status} == 200 || $res->{status} == 201;
        $s->unharmed("$name: one alone", $id);
        is($s->destroy($id)->{status}, 204, "$name: it ends");

    } else {
        $after->($res, $name);
    }

    $s->unharmed("$name: as it was before");

    return;
}


strike('broker-ids-reserved', 'broker', \&made);
strike($_, 'broker', \&made) for @BROKER, @WRITER;
strike($_, 'held', \&refused) for @CHILD, @INIT;
strike('init-create-ready', 'held', \&brief);

# Each of the others, while the broker stands.

for my $point ($LONG ? @BROKER[0 .. $#BROKER - 1] : qw(broker-create-cloned
                                                        broker-create-stored))
{
    strike($point, 'keeper', \&made);
    strike($point, 'worker', \&silent);
}

for my $point ($LONG ? @BROKER[4 .. $#BROKER - 1]
                     : qw(broker-create-launched broker-create-recorded
                          broker-create-stored))
{
    strike($point, 'init', \&brief);
}

strike('keeper-store-kept', $_, \&made) for qw(keeper broker);
strike('worker-call-sent', 'held', \&silent);
strike('worker-call-ended', 'held', \&silent);
strike('worker-call-ended', $_, \&made) for qw(broker keeper);

# One that has answered keeps what it has answered with, whoever dies then.

{
    my $name = 'worker killed at worker-create-told';
    my $res = $s->struck(point => 'worker-create-told', victim => 'broker',
                         call => sub { $s->create });
    made($res, $name);
}

for my $point ($LONG ? @BROKER : qw(broker-create-recorded
                                    broker-create-stored
                                    broker-create-answered))
{
    strike($point, 'broker', undef, 'key');
}

strike($_, 'worker', undef, 'key')
    for qw(broker-create-launched broker-create-stored);

$s->over;
done_testing();
