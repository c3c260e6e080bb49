#!/usr/bin/perl

# Many sessions, and those who look at all of them: metrics, the list of
# sessions, page by page and filtered, by both APIs and the operator's.
#
# SANDBOX_TEST_LONG=1: a thousand sessions, else fifty.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../lib";

use Test::More;
use SandboxTest::Flood;
use SandboxTest::More;

BEGIN {
    my $why = SandboxTest::Flood::missing();
    plan(skip_all => $why) if $why;
}

my $N = $SandboxTest::Flood::LONG ? 1_000 : 50;
my $f = SandboxTest::Flood->new;
my $ROUNDS = 200;
my $all = $N + 1;                   # the bystander
my $page = $all > 1000 ? 1000 : $all;
my $broker = $f->t->broker;


# Made by a few clients, each of which has a tenth of them; one is whom the
# protocol of E2B takes everybody for.

my @jobs = map {
    my $k = $_;
    async {
        [ map { create_ok({ $k ? (tenant_id => "t$k", user_id => "u$_")
                               : (tenant_id => 'default',
                                  user_id => 'default'),
                            timeout_s => 3600,
                            metadata => { number => "$_" },
                            manifest => { resources => {
                                memory => '16MB', disk => '1MB',
                                inodes => 256 } } }) } 1 .. $N / 10 ]
    }
} 0 .. 9;
my @ids = map { @{ $_->get(within(600)) // [] } } @jobs;

is(scalar @ids, $N, "$N sessions");


sub flood {
    my ($name, $target, $right, %headers) = @_;

    $f->under($name, sub {
        my $wrong;
        my $n = pipelined(20, $ROUNDS,
            sub { raw_request(GET => $target, headers => \%headers) },
            sub { $wrong //= $_[0] if !$right->($_[0]) }, timeout => 200);

        is($n, $ROUNDS, "$name: each is answered");
        ok(!defined $wrong, "$name: rightly") or diag(substr $wrong, 0, 800);
    }, worker => 64);

    return;
}

sub has {
    my ($n) = @_;

    return sub {
        my $found = () = $_[0] =~ /"(?:session_id|sandboxID)":/g;
        $found == $n;
    };
}


subtest 'metrics' => sub {
    flood('metrics', '/metrics', sub {
        $_[0] =~ /^HTTP\/1.1 200 /
            && $_[0] =~ /^sandbox_sessions\{state="running"\} $all\r?$/m
    });
};

subtest 'lists' => sub {
    flood('all sessions', '/v1/sessions?limit=1000', has($page));
    flood('a page', '/v1/sessions?limit=10', has(10));
    flood('of one tenant', '/v1/sessions?limit=1000&tenant_id=t3',
          has($N / 10));
    flood('filtered', '/v1/sessions?limit=1000&metadata.number=2', has(10));
    flood('of the operator', '/admin/sessions?limit=1000',
          has($page));
    flood('of E2B', '/e2b/v2/sandboxes?limit=100',
          has($N / 10), 'X-API-Key' => 'e2b_0');
};


my @ends = map {
    my $k = $_;
    async {
        scalar grep { destroy($ids[$_])->{status} == 204 }
               grep { $_ % 10 == $k } 0 .. $#ids
    }
} 0 .. 9;
my $ended = 0;

$ended += $_->get(within(600)) for @ends;
is($ended, $N, 'all of them end');
is($f->t->broker, $broker, 'by the same broker');
$f->over;
done_testing();
