#!/usr/bin/perl

# Addresses that are nobody's on the internet, and the host's own, are reached
# by nobody whom the operator does not let: as they are, as another address
# has them in it, and by whatever name.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";

use JSON::PP ();
use Test::More;
use SandboxTest;
use SandboxTest::Net;

my $host4 = $SandboxTest::Net::HOST4;
my $host6 = $SandboxTest::Net::HOST6;

my %special = (
    private => [ qw(10.20.30.40 172.16.5.5 192.168.7.7 100.64.0.5 198.18.0.9
                    fd00:1::5) ],
    'link-local' => [ qw(169.254.7.7 fe80::5) ],
    metadata => [ qw(169.254.169.254 fd00:ec2::254) ],
    multicast => [ qw(224.0.0.1 255.255.255.255 ff02::1 ff05::2) ],
    reserved => [ qw(192.0.0.9 250.1.2.3) ],
    'loopback of the host' => [ qw(240.0.0.1 240.0.0.53) ],
    'the host' => [ $host4, $host6 ],
    'an IPv4 address within' => [ qw(::ffff:10.20.30.40 64:ff9b::10.20.30.40
                                     64:ff9b::169.254.169.254
                                     2002:a14:1e28::1 ::10.20.30.40) ],
);

my %zone = (
    'public.example.org' => { A => '203.0.113.10' },
    'mixed.example.org' => { A => [ '10.20.30.40', '203.0.113.10',
                                    '127.0.0.1', '169.254.169.254' ] },
    'alias.example.org' => { CNAME => 'inner.example.net' },
    'inner.example.net' => { A => '10.20.30.40' },
    'zero.example.org' => { A => '0.0.0.0', AAAA => '::' },
    'local.example.org' => { A => '127.0.0.1', AAAA => '::1' },
    'rebind.example.org' => [ { ttl => 0, A => '203.0.113.10' },
                              { ttl => 0, A => '10.20.30.40' } ],
);

for my $kind (keys %special) {
    my $n = 0;
    for my $address (@{ $special{$kind} }) {
        my $word = $kind =~ tr/a-z//cdr;
        $zone{"$word" . $n++ . '.example.org'}
            = { ($address =~ /:/ ? 'AAAA' : 'A') => $address };
    }
}

my $net = SandboxTest::Net->new(zone => \%zone);
my $t = $net->server(server => "        listen $host4:8088;\n",
                     http => <<"CONF", workers => 1, stopped => 1);
    sandbox_egress allow *;
    sandbox_template some {
        egress allow * 10.20.30.40:80 169.254.7.7 127.0.0.1:%%PORT%%;
    }
    sandbox_template private {
        egress allow *;
        egress_private on;
    }
    sandbox_template self {
        egress allow * $host4/32:8088 198.51.100.0/24:80;
    }
CONF
$t->start;

sub session {
    return $t->session(manifest => { network => JSON::PP::true }, @_);
}

sub http {
    my ($to, $port, %more) = @_;

    return { do => 'http', to => $to, port => $port // 80, %more };
}


subtest 'as they are' => sub {
    my $id = session();

    is(($net->try($id, http('203.0.113.10')))[0]{status}, 200,
       'a public one is reached');
    $net->seen;

    my @to = grep { !/^fe80/ } map { @{ $special{$_} } } sort keys %special;
    my @r = $net->try($id, map { http($_), http($_, 7000) } @to);

    refused($r[$_], $to[$_ / 2]) for 0 .. $#r;

    is_deeply([ $net->seen ], [], 'nothing has come there');

    my ($r) = $net->try($id, http($host4, 8088, path => '/v1/health'));
    refused($r, 'nginx itself');
};


subtest 'by name' => sub {
    my $id = session();
    my @names = grep { ref $zone{$_} eq 'HASH' && !$zone{$_}{CNAME} }
                sort keys %zone;

    @names = grep { !/^(?:public|mixed|rebind|alias|inner)/ } @names;

    my @r = $net->try($id, map {
        +{ do => 'ask', name => $_, type => $zone{$_}{A} ? 'A' : 'AAAA' }
    } @names);
    is("$r[$_]{error}@{ $r[$_]{found} || [] }", '', "$names[$_] leads nowhere")
        for 0 .. $#names;

    @r = $net->try($id, { do => 'ask', name => 'mixed.example.org' },
                      { do => 'ask', name => 'alias.example.org' },
                      { do => 'lookup', name => 'public.example.org' });
    is_deeply($r[0]{found}, [ '203.0.113.10' ],
              'of several addresses, those that may be reached');
    is_deeply($r[1]{found}, [], 'behind an alias as well');
    reached($r[2], 'others are as they are');
};


subtest 'a name that changes its mind' => sub {
    my $id = $t->session(manifest => { network =>
                                       { allow => [ '*.example.org' ] } });
    my @r = $net->try($id, { do => 'ask', name => 'rebind.example.org' });
    is_deeply($r[0]{found}, [ '203.0.113.10' ], 'is public first');

    # an answer that is kept is no new one

    my $found;
    SandboxTest::wait_for(sub {
        ($found) = $net->try($id, { do => 'ask',
                                    name => 'rebind.example.org' });
        return !@{ $found->{found} || [] };
    }, 5);
    is_deeply($found->{found}, [], 'then nothing');

    my ($r) = $net->try($id, http('10.20.30.40', 80,
                                  host => 'rebind.example.org'));
    refused($r, 'and what it has become is not reached');
};


subtest 'where the operator says so' => sub {
    my @r = $net->try(session(template => 'some'),
        http('10.20.30.40'), http('10.20.30.40', 8080), http('172.16.5.5'),
        http('inner.example.net'), http('alias.example.org'),
        http('169.254.7.7'), http('169.254.169.254'),
        http('64:ff9b::10.20.30.40'),
        http('240.0.0.1', $t->port, path => '/v1/health'),
        http('240.0.0.2', $t->port, path => '/v1/health'),
        http('local.example.org', $t->port, path => '/v1/health'),
        http('203.0.113.10'));

    is($r[0]{status}, 200, 'an address');
    refused($r[1], 'at its port');
    refused($r[2], 'and no other');
    is($r[3]{status}, 200, 'by its name');
    is($r[4]{status}, 200, 'and by another');
    is($r[5]{status}, 200, 'of the link');
    refused($r[6], 'where credentials are');
    refused($r[7], 'but not within another address');
    is($r[8]{status}, 200, 'loopback of the host is at 240/8');
    refused($r[9], 'and only what was said of it');
    is($r[10]{status}, 200, 'and by name');
    is($r[11]{status}, 200, 'and the world as ever');
};


subtest 'private addresses like all others' => sub {
    my @r = $net->try(session(template => 'private'),
        http('10.20.30.40'), http('192.168.7.7'), http('fd00:1::5'),
        http('inner.example.net'), http($host4, 8088), http('240.0.0.1',
        $t->port), http('255.255.255.255'));

    is($r[$_]{status}, 200, "private, $_") for 0 .. 3;
    refused($r[4], 'the host itself is none');
    refused($r[5], 'nor is its loopback');
    refused($r[6], 'nor is everybody');
};


subtest 'the host itself' => sub {
    my @r = $net->try(session(template => 'self'),
        http($host4, 8088, path => '/v1/health'), http($host4),
        http('198.51.100.2'));

    is($r[0]{status}, 403, 'where a rule is that one address, nginx is asked');
    refused($r[1], 'which a net is not');
    is($r[2]{status}, 200, 'but for its neighbours');
};

$t->finish;
done_testing();
