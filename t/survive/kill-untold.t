#!/usr/bin/perl

# Brokers that die when a session is kept, and nobody has been told of it yet.
# It goes, unless the call that made it is sent again: then that has it.  One
# that somebody was told of stays, whoever dies.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../lib";

use IO::Select;
use IO::Socket::INET;
use Test::More;
use SandboxTest::Fault;
use SandboxTest::Survive;
use SandboxTest ();
use SandboxTest::More qw(async);

my $s = SandboxTest::Survive->new;
my $t = $s->{t};

# A session of the same owner in the list, beside those that are known.

sub others {
    my %known = map { $_ => 1 } $s->{runs}, $s->{paused}, @_;
    my $list = $t->api(GET => '/sessions?tenant_id=acme-corp')
               ->{json}{sessions};

    return $list ? grep { !$known{$_->{session_id}} } @$list : undef;
}

# The broker is held at a point by a create; who made the call goes with it.

sub given_up {
    my ($point) = @_;

    my $broker = $t->broker;

    arm($broker, $point);
    my $client = IO::Socket::INET->new(PeerAddr => '127.0.0.1',
                                       PeerPort => $t->port);
    my $body = '{"tenant_id":"acme-corp","user_id":"alice"}';

    print {$client} "POST /v1/sessions HTTP/1.1\r\nHost: localhost\r\n"
                    . "Content-Type: application/json\r\nContent-Length: "
                    . length($body) . "\r\n\r\n$body";
    $client->flush;

    my $held = held($broker, 20);

    ok($held, "$point: a create has come there");
    shutdown $client, 1;
    ok(IO::Select->new($client)->can_read(20) && !sysread($client, my $end, 1),
       'its client has gone');
    kill KILL => $held;
    $s->another('broker', $broker);

    return;
}

# ---- told ---------------------------------------------------------------------

my @told;

for my $point (qw(broker-create-stored broker-create-answered)) {
    my $res = $s->struck(point => $point, victim => 'broker',
                         call => sub { $s->create });

    is($res->{status}, 201, "$point: the client has its session");
    push @told, $res->{json}{session_id};
}

# ---- not told -----------------------------------------------------------------

given_up('broker-create-stored');
is(scalar others(@told), 1, 'the next broker has it');
$s->unharmed('it ends, and none that somebody was told of', @told);

# ---- the call was sent twice, and both brokers died ----------------------------

my ($broker, $keeper) = ($t->broker, $t->keeper);

arm($broker, 'broker-create-admitted');
my $job = async { $s->create };
my $held = held($broker, 20);
ok($held, 'a create is with the first broker');
arm($keeper, 'broker-create-stored');
kill KILL => $held;
$held = held($keeper, 20);
ok($held && $held != $broker, 'and with the second');
disarm($keeper);
kill KILL => $held;
$s->another('broker', $held);

my $res = $job->get(90);

is("$res->{status} $res->{json}{code}", '503 E5001', 'it is told so');
$s->unharmed('nothing of it stays', @told);

is(join(' ', map { $s->destroy($_)->{status} } @told), '204 204',
   'what was told of can be ended');
$s->over;
done_testing();
