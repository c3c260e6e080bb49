#!/usr/bin/perl

# The egress killed in each phase of a connection and of a question for a
# name, and the broker or the keeper while it stands there: who is cut off is
# told so, the next connection is made by the next egress, what is counted
# goes on, and a connection that has nothing to do with a dead broker stays.
# SANDBOX_TEST_LONG=1 kills every process at every point.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../lib";

use JSON::PP ();
use SandboxTest::Net;
use Test::More;
use SandboxTest::Fault;
use SandboxTest::Kill;
use SandboxTest::More;

# What becomes of what the program in the session does: done; cut (an error,
# at once); asked (of names: it asks once more and is answered, or is told
# that it cannot be).

my @MATRIX = (
    [ http => 'egress-conn-accepted',
      { held => 'cut', broker => 'done', keeper => 'done' } ],
    [ http => 'egress-conn-connecting',
      { held => 'cut', broker => 'done', keeper => 'done' } ],
    [ http => 'egress-conn-connected',
      { held => 'cut', broker => 'done', keeper => 'done' } ],
    [ http => 'egress-relay-taken',
      { held => 'cut', broker => 'done', keeper => 'done' } ],
    [ http => 'egress-relay-passed',
      { held => 'cut', broker => 'done', keeper => 'done' } ],
    [ name => 'egress-dns-taken',
      { held => 'asked', broker => 'done', keeper => 'done' } ],
    [ name => 'egress-dns-asked',
      { held => 'asked', broker => 'done', keeper => 'done' } ],
    [ name => 'egress-dns-answered',
      { held => 'asked', broker => 'done', keeper => 'done' } ],
);

my %SHORT = map { $_ => 1 } (
    'egress-conn-connected broker', 'egress-relay-taken keeper',
    'egress-dns-asked broker',
);

my $AT = '203.0.113.10';
my $HTTP = { do => 'http', to => $AT, port => 80 };

my $net = SandboxTest::Net->new(zone => {
    map { ("n$_.example.org" => { A => $AT }) } 1 .. 40
});

# SandboxTest::More's calls are to this server.

my $t = kill_server(server => sub {
    my (%o) = @_;

    my $made = $net->server(
        workers => 2, http => "$o{http}    sandbox_egress allow *;\n",
        location => '            add_header X-Worker $pid always;',
        edit => sub { s/(listen [^;]*);/$1 reuseport;/ });

    $SandboxTest::More::T = $made;
    $SandboxTest::More::PORT = $made->port;
    $SandboxTest::More::PREFIX = $made->prefix;

    return $made;
});

my $names = 0;
# A question that nobody answers is asked again after two seconds.

my $id = victim(manifest => { network => JSON::PP::true },
                env => { RES_OPTIONS => 'timeout:2' });
my $other = victim(manifest => { network => JSON::PP::true });

bystander();

my $held = $net->hold($other, $AT);

ok($held, 'another session has a connection');

sub usage {
    return call('GET', "/sessions/$id")->{json}{usage};
}

sub step {
    my ($what) = @_;

    return $what eq 'http' ? $HTTP
           : { do => 'lookup', name => 'n' . ++$names . '.example.org' };
}

sub became {
    my ($what, $r) = @_;

    return 'done' if ($r->{error} // '') eq ''
                     && ($what eq 'http' ? $r->{status} == 200
                                         : "@{ $r->{found} }" =~ /\Q$AT\E/);
    return ($r->{error} // '') eq '' ? 'an empty answer' : $r->{error};
}

my %EXPECTED = (
    done  => qr/^done$/,
    cut   => qr/^(?:ECONNRESET|EPIPE|short|IndexError|an empty answer)$/,
    asked => qr/^(?:done|gaierror)$/,
);

sub case {
    my ($what, $point, $victim, $outcome) = @_;

    my $name = "$point, $victim killed";
    my $before = usage();
    my $egress = egress_pid();
    my $job;
    my $step = step($what);

    strike($point, $victim, $id, sub {
        $job = async { ($net->try($id, $step))[0] };
    }, name => $name) or return;

    my $r = $job->get;

    like(became($what, $r), $EXPECTED{$outcome}, "$name: $what ($outcome)")
        or diag(explain($r));
    ok(recovered(egress => 1), "$name: all is served again");

    if ($victim eq 'held') {
        isnt(egress_pid(), $egress, "$name: another egress is there");
        like($net->held($other, $held, qr/^(?!up)/),
             qr/^(?:ECONNRESET|end)$/, "$name: connections ended");
        $held = $net->hold($other, $AT);

    } else {
        is(egress_pid(), $egress, "$name: the egress is the same");
        is($net->held($other, $held, qr/up/), 'up',
           "$name: connections go on");
    }

    # whatever was cut off, the next one is not

    is(became('http', ($net->try($id, $HTTP))[0]), 'done',
       "$name: the next connection is made");
    is(became('name', ($net->try($id, step('name')))[0]), 'done',
       "$name: the next name is known");

    my $after = usage();
    cmp_ok($after->{$_}, '>', $before->{$_}, "$name: $_ goes on")
        for qw(network_sent network_received);
    is($after->{connections}, 0, "$name: and no connection is counted")
        or diag(explain($after));
    others_live_on("$name: another session goes on");
}

for my $row (@MATRIX) {
    my ($what, $point, $outcomes) = @$row;

    for my $victim (qw(held broker keeper)) {
        case($what, $point, $victim, $outcomes->{$victim})
            if $LONG || $victim eq 'held' || $SHORT{"$point $victim"};
    }
}

destroy($_) for $id, $other;
kill_finish();
done_testing();
