#!/usr/bin/perl

# What a manifest grants is what a session reaches, and no more than what the
# operator grants: lists, ports, wildcards, nets, both families, changed live.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";

use JSON::PP ();
use Test::More;
use SandboxTest;
use SandboxTest::Net;

my ($yes, $no) = (JSON::PP::true, JSON::PP::false);

my $net = SandboxTest::Net->new(zone => {
    'denied.example.org' => { A => '203.0.113.18' },
});
my $t = $net->server(
    server => '        location /e2b/ { sandbox_api e2b; }',
    http => <<'CONF');
    sandbox_egress allow *;
    sandbox_egress deny denied.example.org 203.0.113.19;
    sandbox_template narrow {
        egress allow a.example.org 203.0.113.16/30:7003;
    }
    sandbox_template open {
        egress allow *;
    }
    sandbox_template given {
        network on;
    }
CONF


sub made {
    my ($network, %more) = @_;

    return $t->session(manifest => { network => $network }, %more);
}

sub http {
    my ($to, $port, %more) = @_;

    $more{host} //= "[$to]" if $to =~ /:/;

    return { do => 'http', to => $to, port => $port // 80, %more };
}

# A server that speaks first, and any bytes are for it.

sub banner {
    my ($to) = @_;

    return { do => 'tcp', to => $to, port => 7003, read => 11 };
}

sub word { return $t->api(GET => "/sessions/$_[0]")->{json}{network} }


subtest 'a session that is granted nothing has no network' => sub {
    for my $id ($t->session, made($no)) {
        my @r = $net->try($id, http('203.0.113.10'), http('a.example.org'),
                          http('2001:db8:2::10'),
                          { do => 'ask', name => 'a.example.org' });

        is($r[0]{error}, 'ENETUNREACH', 'an address');
        unknown($r[1], 'a name');
        is($r[2]{error}, 'ENETUNREACH', 'of IPv6');
        like($r[3]{error}, qr/^E(?:NETUNREACH|CONNREFUSED)$/, 'DNS');
        cmp_ok($_->{ms}, '<', 500 * $SandboxTest::SLOW, 'at once') for @r;
        is(word($id), 'none', 'which is told');
    }

    is_deeply([ $net->seen ], [], 'nothing has come to the world');
};


subtest 'true is all that the operator grants' => sub {
    my $id = made($yes);
    my @r = $net->try($id, http('a.example.org'), http('203.0.113.15', 8080),
                      http('2001:db8:2::11'), banner('203.0.113.12'),
                      http('denied.example.org'), http('203.0.113.18', 80,
                      host => 'denied.example.org'), http('203.0.113.19'),
                      banner('203.0.113.19'));

    is($r[0]{json}{address}, '203.0.113.10', 'a name');
    is($r[1]{json}{port}, 8080, 'an address');
    is($r[2]{json}{address}, '2001:db8:2::11', 'of IPv6');
    is($r[3]{data}, "220 ready\r\n", 'a server that speaks first');
    unknown($r[4], 'not a name that is denied');
    refused($r[5], 'nor its address, by that name');
    refused($r[6], 'nor an address that is');
    refused($r[7], 'whatever is said there');
    is(word($id), 'restricted', 'which is told');

    my %came = map { $_->{address} => 1 }
               grep { $_->{address} } $net->seen;
    ok(!$came{'203.0.113.19'}, 'nothing has come to what is denied');
};


subtest 'names' => sub {
    my $id = made({ allow => [ 'a.example.org' ] });
    my @r = $net->try($id, http('203.0.113.10', 80, host => 'a.example.org'),
                      http('a.example.org'), http('a.example.org', 8080),
                      http('b.example.org'), http('deep.a.example.org'),
                      http('203.0.113.11', 80, host => 'b.example.org'),
                      http('203.0.113.11', 80, host => 'a.example.org'),
                      http('203.0.113.10', 80, host => 'b.example.org'),
                      banner('203.0.113.10'));

    refused($r[0], 'an address that was not looked up');
    is($r[1]{status}, 200, 'the name');
    is($r[2]{status}, 200, 'at every port');
    unknown($r[3], 'another name');
    unknown($r[4], 'one below it');
    refused($r[5], 'the address of another');
    refused($r[6], 'where the name is not');
    refused($r[7], 'another name at its address');
    is($r[8]{data}, "220 ready\r\n", 'another protocol there');
    is(word($id), 'restricted', 'which is told');
};


subtest 'ports' => sub {
    my $id = made({ allow => [ 'a.example.org:80', '203.0.113.12:7003' ] });
    my @r = $net->try($id, http('a.example.org'), http('a.example.org', 8080),
                      http('203.0.113.10', 9090, host => 'a.example.org'),
                      banner('203.0.113.12'), http('203.0.113.12'));

    is($r[0]{status}, 200, 'of a name');
    refused($r[1], 'and no other');
    refused($r[2], 'whatever its address is asked by');
    is($r[3]{data}, "220 ready\r\n", 'of an address');
    refused($r[4], 'and no other');
};


subtest 'wildcards' => sub {
    my $id = made({ allow => [ '*.example.org' ] });
    my @r = $net->try($id, http('b.example.org'), http('deep.a.example.org'),
                      http('example.org'), http('c.example.net'),
                      http('other.test'));

    is($r[0]{status}, 200, 'a name below');
    is($r[1]{status}, 200, 'any number of labels below');
    unknown($r[2], 'not the name itself');
    unknown($r[3], 'nor others');
    unknown($r[4], 'of any kind');
};


subtest 'nets' => sub {
    my $id = made({ allow => [ '203.0.113.8/30' ] });
    my @r = $net->try($id, http('203.0.113.11'), http('203.0.113.12'),
                      http('b.example.org'), http('c.example.net'),
                      http('2001:db8:2::11'));

    is($r[0]{status}, 200, 'an address within');
    refused($r[1], 'one past its end');
    is($r[2]{status}, 200, 'a name for one within');
    nowhere($r[3], 'and for no other');
    refused($r[4], 'of another family');

    $id = made({ allow => [ '2001:db8:2::10/127' ] });
    @r = $net->try($id, http('2001:db8:2::11'), http('2001:db8:2::12'),
                   http('203.0.113.11'));

    is($r[0]{status}, 200, 'of IPv6');
    refused($r[1], 'and past its end');
    refused($r[2], 'and of IPv4');
};


subtest 'denials' => sub {
    my $id = made({ deny => [ 'b.example.org', '203.0.113.12', '*:7003' ] });
    my @r = $net->try($id, http('a.example.org'), http('b.example.org'),
                      http('203.0.113.11', 80, host => 'b.example.org'),
                      http('203.0.113.12'), http('c.example.net'),
                      banner('203.0.113.13'));

    is($r[0]{status}, 200, 'the rest is granted');
    unknown($r[1], 'a name');
    refused($r[2], 'by its address');
    refused($r[3], 'an address');
    unknown($r[4], 'by its name');
    refused($r[5], 'a port');

    $id = made({ allow => [ '*.example.org' ], deny => [ 'b.example.org' ] });
    @r = $net->try($id, http('a.example.org'), http('b.example.org'));
    is($r[0]{status}, 200, 'of what is allowed');
    unknown($r[1], 'denials come first');
};


subtest 'exceptions to denials' => sub {
    my $res = $t->api(POST => '/v2/sandboxes',
                      { templateID => 'base', network => {
                            allowOut => [ '203.0.113.11' ],
                            denyOut => [ '203.0.113.8/29' ] } },
                      base => '/e2b',
                      headers => { 'X-API-Key' => 'e2b_' . '0' x 40 });
    is($res->{status}, 201, 'as E2B has them') or diag($res->{body});
    my @r = $net->try($res->{json}{sandboxID}, http('203.0.113.11'),
                      http('203.0.113.12'), http('203.0.113.16'),
                      http('b.example.org'), http('c.example.net'));
    is($r[0]{status}, 200, 'one');
    refused($r[1], 'what is denied');
    is($r[2]{status}, 200, 'and what nothing is said of');
    is($r[3]{status}, 200, 'by name');
    nowhere($r[4], 'as well');
};


subtest 'no more than the operator grants' => sub {
    my $id = made($yes, template => 'narrow');
    my @r = $net->try($id, http('a.example.org'), http('b.example.org'),
                      banner('203.0.113.17'), http('203.0.113.17'));

    is($r[0]{status}, 200, 'a name of the template');
    nowhere($r[1], 'no other');
    is($r[2]{data}, "220 ready\r\n", 'a net of the template');
    refused($r[3], 'at its port');

    for my $rule ('b.example.org', '*', '203.0.113.16/30', '203.0.113.0/24',
                  '*.a.example.org')
    {
        my $res = $t->api(POST => '/sessions',
                          { tenant_id => 't', user_id => 'u',
                            template => 'narrow',
                            manifest => { network => { allow => [
                                'a.example.org', $rule ] } } });
        is($res->{json}{code}, 'E2002', "$rule is more than that");
        like($res->{json}{detail}, qr{^/manifest/network/allow/1\b},
             'and named');
    }

    is(word(made($yes, template => 'open')), 'open', 'all of it is told');
    is(word($t->session(template => 'given')), 'restricted',
       'a template may give it to those who do not ask');
    is(word(made($no, template => 'given')), 'none', 'unless they ask not to');
};


subtest 'a grant is changed while the session lives' => sub {
    my $id = made($yes, template => 'open');
    my $held = $net->hold($id, '203.0.113.10');
    my $kept = $net->hold($id, '203.0.113.11');

    ok($held && $kept, 'two connections');

    my $res = $t->api(PATCH => "/sessions/$id",
                      { network => { allow => [ '203.0.113.11', 'x.test' ] }
                      });
    is($res->{status}, 200, 'less of it') or diag($res->{body});
    is($net->held($id, $held, qr/^(?!up)/), 'ECONNRESET',
       'cuts what is no longer granted');
    is($net->held($id, $kept, qr/up/), 'up', 'and nothing else');
    is_deeply($t->api(GET => "/sessions/$id")->{json}{network_rules},
              { allow => [ '203.0.113.11', 'x.test' ], deny => [] },
              'and is told');

    my @r = $net->try($id, http('203.0.113.10'), http('203.0.113.11'));
    refused($r[0], 'what is new is judged so');
    is($r[1]{status}, 200, 'as well');

    is($t->api(PATCH => "/sessions/$id", { network => $no })->{status}, 200,
       'nothing of it');
    is($net->held($id, $kept, qr/^(?!up)/), 'ECONNRESET', 'cuts all');
    is(($net->try($id, http('203.0.113.11')))[0]{error}, 'ENETUNREACH',
       'as if there had been none');
    is(word($id), 'none', 'which is told');
    like($t->run($id, 'env')->{stdout}, qr/^PIP_RETRIES=1$/m,
         'to commands too');

    is($t->api(PATCH => "/sessions/$id", { network => $yes })->{status}, 200,
       'all of it');
    is(($net->try($id, http('a.example.org')))[0]{status}, 200, 'is there');
    unlike($t->run($id, 'env')->{stdout}, qr/^PIP_RETRIES=1$/m,
           'for commands too');

    $id = made({ allow => [ 'a.example.org' ] }, template => 'narrow');
    $res = $t->api(PATCH => "/sessions/$id",
                   { network => { allow => [ 'b.example.org' ] } });
    is($res->{json}{code}, 'E2002', 'no more than the operator grants');
    is(($net->try($id, http('a.example.org')))[0]{status}, 200,
       'and what was is as it was');
};

$t->finish;
done_testing();
