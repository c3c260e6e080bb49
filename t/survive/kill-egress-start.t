#!/usr/bin/perl

# The egress killed in each phase of its start, and where it is told of a
# session or of its end; the broker and the keeper while it stands there.
# Sessions are made and ended meanwhile, and have a network again as soon as
# there is an egress.  SANDBOX_TEST_LONG=1 kills every process at every point.

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

# In the order in which they are come to, when an egress has died.

my @START = qw(broker-egress-launched broker-egress-stored
               child-egress-reduced egress-start-confined egress-start-ready
               broker-egress-configured egress-config-taken);

my %SHORT = map { $_ => 1 } (
    'egress-start-confined keeper', 'egress-grant-told broker',
);

my $AT = '203.0.113.10';
my $net = SandboxTest::Net->new;

# SandboxTest::More's calls are to this server.

my $t = kill_server(server => sub {
    my (%o) = @_;

    my $made = $net->server(
        workers => 2, http => "$o{http}    sandbox_egress allow *;\n",
        location => '            add_header X-Worker $pid always;',
        edit => sub { s/(listen [^;]*);/$1 reuseport;/ });

    ($SandboxTest::More::T, $SandboxTest::More::PORT,
     $SandboxTest::More::PREFIX) = ($made, $made->port, $made->prefix);

    return $made;
});

my $id = victim(manifest => { network => JSON::PP::true });

bystander();


sub reaches {
    my ($session) = @_;

    return until_true {
        my ($r) = $net->try($session, { do => 'http', to => $AT, port => 80 });
        ($r->{status} // 0) == 200;
    } 20;
}

sub case {
    my ($point, $victim, $begin, $after) = @_;

    my $name = "$point, $victim killed";

    ok(reaches($id), "$name: there is a network");
    strike($point, $victim, $id, $begin, name => $name,
           $point =~ /^egress-(?:grant|revoke)/
           ? () : (in => [ $t->broker ], below => [ $t->keeper ]))
        or return;
    $t->note_processes;
    ok(recovered(egress => 1), "$name: all is served again");

    $after->($name) if $after;

    ok(reaches($id), "$name: the session has its network again");

    my $usage = call('GET', "/sessions/$id")->{json}{usage};
    is($usage->{connections}, 0, "$name: no connection is counted")
        or diag(explain($usage));
    others_live_on("$name: another session goes on");

    # one egress, whoever had begun to start another

    my @all;

    until_true {
        @all = grep {
            (slurp("/proc/$_/cmdline") // '') =~ /^sandbox-egress/
            && (readlink("/proc/$_/ns/net") // '')
               eq readlink '/proc/self/ns/net'
        } map { m{(\d+)$} } glob '/proc/[0-9]*';

        return @all == 1;
    } 15;

    is(scalar @all, 1, "$name: one egress is there");

    return;
}

sub cases {
    my ($point, $begin, $after) = @_;

    for my $victim (qw(held broker keeper)) {
        next if !$LONG && $victim ne 'held' && !$SHORT{"$point $victim"};
        next if $victim eq 'broker' && $point =~ /^broker/;
        case($point, $victim, $begin, $after);
    }

    return;
}


# When the one before has died.

cases($_, sub { kill 'KILL', egress_pid() }) for @START;

# A session begins.

for my $point (qw(egress-grant-told egress-grant-taken)) {
    my $job;

    cases($point, sub {
        $job = async {
            create({ manifest => { network => JSON::PP::true } })
        };
    }, sub {
        my ($name) = @_;

        my $res = $job->get;
        is($res->{status}, 201, "$name: it is made") or diag($res->{body});
        my $new = $res->{json}{session_id};
        ok(reaches($new), "$name: and has a network");
        is(destroy($new)->{status}, 204, "$name: it ends");
    });
}

# One ends.

{
    my ($job, $old);

    cases('egress-revoke-revoked', sub {
        $old = create_ok({ manifest => { network => JSON::PP::true } });
        $job = async { destroy($old) };
    }, sub {
        my ($name) = @_;

        is($job->get->{status}, 204, "$name: a session ends");
        is(ended_of($old), 'destroyed', "$name: and is told so");
    });
}

destroy($id);
kill_finish();
done_testing();
