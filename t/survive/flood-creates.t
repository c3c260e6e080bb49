#!/usr/bin/perl

# A thousand creates at once, far more than there is room for: as many
# sessions as a quota has are made, the others are told so, and what is counted
# afterwards is what there is.
#
# SANDBOX_TEST_LONG=1: a thousand of each kind, else of the first.

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

my $NODE = 9;
my $f = SandboxTest::Flood->new(http => <<"CONF", extra => <<'SERVER');
    sandbox_quota organization=flood sessions=6;
    sandbox_quota user=flood/one sessions=4;
    sandbox_quota node sessions=$NODE;
    limit_req_zone \$server_port zone=rate:1m rate=1r/m;
CONF
        location /rated/ {
            limit_req zone=rate burst=2 nodelay;
            sandbox_api v1;
        }
SERVER
my $t = $f->t;
my $MANY = 1_000;
my $SOME = $SandboxTest::Flood::LONG ? $MANY : 200;
my %small = (memory => '16MB', disk => '1MB', inodes => 256);


sub create_of {
    my ($tenant, $user, %o) = @_;

    return raw_request(POST => ($o{base} // '/v1') . '/sessions',
        headers => { Connection => 'close', %{ $o{headers} // {} } },
        json => { tenant_id => $tenant, user_id => $user,
                  manifest => { resources => \%small } });
}


# What is counted, wherever sessions are: [ of the tenant, of the broker ].

sub counts {
    my ($tenant) = @_;

    my $used = $t->api(GET => "/quotas/$tenant", undef, base => '/admin')
               ->{json}{used};
    my $list = call(GET => "/sessions?tenant_id=$tenant&limit=1000")
               ->{json}{sessions} // [];
    my $health = call(GET => '/health')->{json}{sessions};

    return [ $used->{sessions}, $used->{memory} >> 20, scalar @$list,
             $health ];
}


# Of the answers: how many of each kind.  The sessions that were made are
# destroyed, so that the flood can be repeated.

sub flood {
    my ($name, $n, $request, $tenant, $want, $most) = @_;

    $f->under($name, sub {
        my @all = crowd($n, $request);
        my (%got, @ids);

        for my $r (@all) {
            my $j = $r->{json} // {};

            $got{join ' ', grep { defined } $r->{status}, $j->{code},
                 $j->{scope}, $j->{resource}}++;
            push @ids, $j->{session_id} if $r->{status} == 201;
        }

        is_deeply(\%got, $want, "$name: as many as there is room for")
            or diag(explain(\%got));

        my @refused = grep { $_->{status} != 201 } @all;
        my @late = grep { ($_->{headers}{'retry-after'} // 'none')
                          !~ /^(?:[1-9]|[1-5]\d|60)\z/ } @refused;

        is(scalar @late, 0, "$name: the others are told when to come again")
            or diag(explain($late[0]));

        is_deeply(counts($tenant), [ $most, 16 * $most, $most, $most + 1 ],
                  "$name: what is counted is what there is");
        is(join(' ', map { run($_, 'echo here')->{stdout} } @ids),
           join(' ', ("here\n") x @ids), "$name: each of them works");
        is(scalar(grep { $_->get->{status} == 204 }
                  map { my $id = $_; async { destroy($id) } } @ids),
           $most, "$name: and ends");
        is_deeply(counts($tenant), [ 0, 0, 0, 1 ],
                  "$name: after which nothing is");
    }, worker => 24);

    return;
}


subtest 'an organization' => sub {
    flood('of ten users', $MANY,
          sub { create_of('flood', 'user' . $_[0] % 10) }, 'flood',
          { 201 => 6, '429 E2003 organization sessions' => $MANY - 6 }, 6);
};


subtest 'a user' => sub {
    flood('of one user', $SOME, sub { create_of('flood', 'one') }, 'flood',
          { 201 => 4, '429 E2003 user sessions' => $SOME - 4 }, 4);
};


subtest 'the node' => sub {
    flood('of one that has no quota', $SOME,
          sub { create_of('free', "user$_[0]") }, 'free',
          { 201 => $NODE - 1, '503 E2004' => $SOME - $NODE + 1 }, $NODE - 1);
};


subtest 'one key' => sub {
    my $try = 0;

    $f->under('one key', sub {
        my $key = 'key' . $try++;
        my %got;

        $got{"$_->{status} " . ($_->{json}{session_id} // '')}++
            for crowd($SOME, sub {
                create_of('flood', 'one',
                          headers => { 'Idempotency-Key' => $key }) });

        my ($id) = map { /^201 (.+)/ ? $1 : () } keys %got;

        is_deeply(\%got, { "201 $id" => 1, "200 $id" => $SOME - 1 },
                  'one session, for all of them') or diag(explain(\%got));
        is_deeply(counts('flood'), [ 1, 16, 1, 2 ], 'which counts once');
        destroy($id);
    }, worker => 24);
};


subtest 'a rate' => sub {
    my $made = 0;

    $f->under('a rate', sub {
        my %got;

        for my $r (crowd($SOME, sub { create_of('flood', 'one',
                                                base => '/rated') }))
        {
            $got{join ' ', $r->{status}, $r->{json}{code} // '',
                 $r->{headers}{'retry-after'} // ''}++
                if $r->{status} != 201;
            destroy($r->{json}{session_id}), $made++ if $r->{status} == 201;
        }

        is(join(', ', keys %got), '503 E2004 1', 'the others come again')
            or diag(explain(\%got));
    });

    is($made, 3, 'as many sessions as the rate admits');
    is_deeply(counts('flood'), [ 0, 0, 0, 1 ], 'and nothing is counted');
};


$f->over;
done_testing();
