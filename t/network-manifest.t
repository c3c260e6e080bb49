#!/usr/bin/perl

# What a manifest may ask of the network, and what a PATCH may change: what
# configuration does not grant is refused with the entry that asks for it.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";

use JSON::PP ();
use Test::More;
use SandboxTest;
use SandboxTest::More;

my ($TRUE, $FALSE) = (JSON::PP::true, JSON::PP::false);

my $t = SandboxTest->new(http => <<'CONF');
    sandbox_max connections=500 network_rate=10MB;
    sandbox_egress allow index.org *.example.org:443 198.51.100.0/24
                         10.1.0.0/16;
    sandbox_egress deny bad.example.org 198.51.100.7;

    sandbox_template none { egress deny *; }
    sandbox_template all { egress allow *; }
    sandbox_template on { network on; }
    sandbox_template off { egress allow *; network off; }
    sandbox_template private { egress allow *; egress_private on; }
CONF

$t->start;

sub made {
    my ($network, %o) = @_;

    my $manifest = delete $o{manifest} // {};
    $manifest->{network} = $network if defined $network;

    return $t->api(POST => '/sessions', { tenant_id => 'a', user_id => 'b',
                                          manifest => $manifest, %o });
}

sub is_refused {
    my ($res, $want, $detail, $name) = @_;

    ok("$res->{status} $res->{json}{code}" eq $want
       && ($res->{json}{detail} // '') =~ $detail, $name)
        or diag($res->{body});
    return;
}


subtest 'what a manifest may not ask for' => sub {
    my @cases = (
        # no rules
        [ 'on', '400 E3001', qr{^/manifest/network: must be true, false or} ],
        [ [], '400 E3001', qr{^/manifest/network} ],
        [ { accept => [] }, '400 E3001', qr{^/manifest/network/accept} ],
        [ { allow => 'index.org' }, '400 E3001', qr{^/manifest/network/allow} ],
        [ { allow => [ 1 ] }, '400 E3001', qr{^/manifest/network/allow/0} ],
        [ { allow => [ 'index.org', '1.2.3' ] }, '400 E3001',
          qr{^/manifest/network/allow/1: looks like an address} ],
        [ { deny => [ 'https://a.org' ] }, '400 E3001',
          qr{^/manifest/network/deny/0: is a URL} ],
        [ { allow => [ "a\0b" ] }, '400 E3001', qr{/allow/0: .*control} ],
        [ { allow => [ "b\x{fc}cher.de" ] }, '400 E3001', qr{/allow/0: .*ASCII} ],
        [ { allow => [ ('index.org') x 257 ] }, '400 E3001',
          qr{^/manifest/network/allow} ],
        [ { allow => [ ('index.org') x 200 ], deny => [ ('a.org') x 57 ] },
          '400 E3001', qr{^/manifest/network: has 257 rules} ],
        [ { allow => [ map { join('.', ('x' x 60) x 4) . ":$_" } 1 .. 256 ] },
          '400 E3001', qr{^/manifest/network: takes more than 32768} ],

        # more than configuration gives
        [ { allow => [ 'index.org', 'a.org' ] }, '400 E2002',
          qr{^/manifest/network/allow/1: "a\.org" is not within} ],
        [ { allow => [ 'www.example.org' ] }, '400 E2002',
          qr{/allow/0: "www\.example\.org" is not within} ],
        [ { allow => [ 'bad.example.org:443' ] }, '400 E2002',
          qr{/allow/0: "bad\.example\.org:443" is denied} ],
        [ { allow => [ '*' ] }, '400 E2002', qr{/allow/0: "\*" is not} ],
        [ { allow => [ '198.51.100.7' ] }, '400 E2002', qr{denied} ],
        [ { allow => [ '198.51.0.0/16' ] }, '400 E2002', qr{not within} ],
        [ { allow => [ '10.0.0.0/8' ] }, '400 E2002', qr{not within} ],
        [ { allow => [ '127.0.0.1' ] }, '400 E2002', qr{not within} ],
        [ { allow => [ '::ffff:127.0.0.1' ] }, '400 E2002',
          qr{"127\.0\.0\.1" is not within} ],
    );

    for my $case (@cases) {
        my ($network, $want, $detail) = @$case;
        my $name = substr json_of([ $network ]), 0, 60;

        is_refused(made($network), $want, $detail, $name);
    }

    for my $case ([ none => $TRUE ], [ none => { allow => [ 'a.org' ] } ],
                  [ none => { deny => [ 'a.org' ] } ])
    {
        is_refused(made($case->[1], template => $case->[0]), '400 E2002',
                   qr{^/manifest/network: template "none" is given no},
                   'a template without a network');
    }

    is_refused(made({ allow => [ '10.1.1.1' ] }, template => 'all'),
               '400 E2002', qr{not within}, 'all has no private addresses');
    is_refused(made({ allow => [ '169.254.169.254' ] }, template => 'private'),
               '400 E2002', qr{not within}, 'and private ones no metadata');
    is_refused(made({ allow => [ 'a.org' ] }, template => 'code-interpreter-v1'),
               '400 E2002', qr{not within}, 'by the other name of a template');

    is(scalar @{ $t->api(GET => '/sessions')->{json}{sessions} }, 0,
       'none of them was made');
};


subtest 'limits' => sub {
    my $res = made(undef, manifest => { resources => {
                       connections => 20, network_rate => '1MB',
                       network_bytes => '2GB' } });

    is($res->{json}{resources}{connections}, 20, 'connections');
    is($res->{json}{resources}{network_rate}, 1 << 20, 'a rate');
    is($res->{json}{resources}{network_bytes}, 2 << 30, 'and bytes in all');
    is($t->api(DELETE => "/sessions/$res->{json}{session_id}")->{status}, 204,
       'is gone');

    for my $case ([ connections => 501, '400 E2002' ],
                  [ connections => 0, '400 E3001' ],
                  [ network_rate => '11MB', '400 E2002' ],
                  [ network_rate => undef, '400 E2002' ],
                  [ network_rate => 1023, '400 E3001' ],
                  [ network_bytes => 'much', '400 E3001' ])
    {
        my ($name, $value, $want) = @$case;

        is_refused(made(undef, manifest => { resources => {
                            $name => $value } }), $want, qr/$name/,
                   "$name " . ($value // 'null'));
    }
};


subtest 'nothing granted' => sub {
    for my $case ([ undef, 'left out' ], [ $FALSE, 'false' ],
                  [ { allow => [] }, 'an empty list' ])
    {
        my $res = made($case->[0]);
        my $id = $res->{json}{session_id};

        is($res->{status}, 201, $case->[1]) or diag($res->{body});
        is($res->{json}{network}, 'none', 'is none');

        $res = $t->api(GET => "/sessions/$id");
        is($res->{json}{network}, 'none', 'and stays so');
        ok(!exists $res->{json}{network_rules}, 'without rules');
        is_deeply({ map { $_ => $res->{json}{usage}{$_} }
                    qw(connections network_sent network_received
                       network_refused) },
                  { connections => 0, network_sent => 0,
                    network_received => 0, network_refused => 0 },
                  'and uses nothing');
        is($t->api(DELETE => "/sessions/$id")->{status}, 204, 'is gone');
    }

    my $res = made(undef, template => 'off');
    is($res->{json}{network}, 'none', 'a template that says so');
    is($t->api(DELETE => "/sessions/$res->{json}{session_id}")->{status}, 204,
       'is gone');
};


subtest 'a PATCH' => sub {
    my $id = made(undef)->{json}{session_id};
    my $none = made(undef, template => 'none')->{json}{session_id};
    my $patch = sub {
        my ($network, $session) = @_;

        return $t->api(PATCH => '/sessions/' . ($session // $id),
                       { network => $network });
    };

    for my $case (
        [ 'on', '400 E3001', qr{^/network: must be true, false or} ],
        [ { allow => [ '1.2' ] }, '400 E3001',
          qr{^/network/allow/0: looks like an address} ],
        [ { deny => [ 'a.org', '' ] }, '400 E3001',
          qr{^/network/deny/1: is empty} ],
        [ { allow => [ 'a.org' ] }, '400 E2002',
          qr{^/network/allow/0: "a\.org" is not within} ],
        [ { allow => [ 'bad.example.org:443' ] }, '400 E2002',
          qr{^/network/allow/0: "bad\.example\.org:443" is denied} ],
    ) {
        my ($network, $want, $detail) = @$case;

        is_refused($patch->($network), $want, $detail,
                   substr json_of([ $network ]), 0, 60);
    }

    is_refused($patch->($TRUE, $none), '400 E2002',
               qr{^/network: template "none" is given no network},
               'of a template without a network');

    is($t->api(GET => "/sessions/$id")->{json}{network}, 'none',
       'nothing has changed');
    is($patch->($FALSE)->{json}{network}, 'none', 'false changes nothing');
    is($patch->({ allow => [] }, $none)->{json}{network}, 'none',
       'nor does an empty list');
};


subtest 'what is granted is told' => sub {
    my $by = $t->api(GET => '/capabilities')->{json}{network_grants};

    plan(skip_all => "no network can be granted here: $by->{by}")
        if !$by->{enforced};

    # what is asked for, template; what answers say, and the lists of GET

    my @long = map { join('.', map { $_ x 60 } 'a' .. 'b') . "$_.example.org:443" }
               1 .. 200;
    my @cases = (
        [ $TRUE, 'base', 'restricted' ],
        [ $TRUE, 'code-interpreter-v1', 'restricted' ],
        [ $TRUE, 'all', 'open' ],
        [ $TRUE, 'private', 'open' ],
        [ undef, 'on', 'restricted' ],
        [ $FALSE, 'on', 'none' ],
        [ $TRUE, 'off', 'open' ],
        [ {}, 'all', 'open' ],
        [ { deny => [] }, 'all', 'open' ],
        [ { allow => [ '*' ] }, 'all', 'open', [ [ '*' ], [] ] ],
        [ { allow => [ '*:443' ] }, 'all', 'restricted', [ [ '*:443' ], [] ] ],
        [ { deny => [ '*:25' ] }, 'all', 'restricted', [ [], [ '*:25' ] ] ],
        [ { allow => [ '10.7.0.0/16', 'fd00:1::/32' ] }, 'private',
          'restricted', [ [ '10.7.0.0/16', 'fd00:1::/32' ], [] ] ],
        [ { allow => [ 'Index.org', '::ffff:198.51.100.0/120',
                       'WWW.example.org:443' ],
            deny => [ '[2001:DB8:0::1]:80' ] }, 'base', 'restricted',
          [ [ 'index.org', '198.51.100.0/24', 'www.example.org:443' ],
            [ '[2001:db8::1]:80' ] ] ],
        [ { allow => \@long }, 'base', 'restricted', [ \@long, [] ] ],
    );

    for my $case (@cases) {
        my ($network, $template, $word, $lists) = @$case;
        my $name = "$template: " . substr json_of([ $network ]), 0, 50;
        my $res = made($network, template => $template,
                       metadata => { name => 'x' x 1000 });
        my $id = $res->{json}{session_id};

        is($res->{json}{network} // $res->{body}, $word, $name);
        next if !defined $id;
        ok(!exists $res->{json}{network_rules}, 'without lists in the answer');

        $res = $t->api(GET => "/sessions/$id");
        is($res->{json}{network}, $word, 'the same later');
        is_deeply($res->{json}{network_rules},
                  $lists && { allow => $lists->[0], deny => $lists->[1] },
                  'and with its lists');
        is(length $res->{json}{metadata}{name}, 1000, 'beside metadata');
        is($t->api(DELETE => "/sessions/$id")->{status}, 204, 'is gone');
    }
};


subtest 'what is granted changes' => sub {
    my $by = $t->api(GET => '/capabilities')->{json}{network_grants};

    plan(skip_all => "no network can be granted here: $by->{by}")
        if !$by->{enforced};

    my $id = made(undef, metadata => { a => 'b' })->{json}{session_id};

    for my $case (
        [ $TRUE, 'restricted' ],
        [ { allow => [ 'index.org' ] }, 'restricted', [ [ 'index.org' ], [] ] ],
        [ { deny => [ 'index.org' ] }, 'restricted', [ [], [ 'index.org' ] ] ],
        [ $FALSE, 'none' ],
    ) {
        my ($network, $word, $lists) = @$case;
        my $res = $t->api(PATCH => "/sessions/$id", { network => $network });

        is($res->{json}{network}, $word, json_of([ $network ]));

        $res = $t->api(GET => "/sessions/$id");
        is($res->{json}{network}, $word, 'is so');
        is_deeply($res->{json}{network_rules},
                  $lists && { allow => $lists->[0], deny => $lists->[1] },
                  'with its lists');
        is_deeply($res->{json}{metadata}, { a => 'b' }, 'and nothing else');
    }

    my $res = $t->api(PATCH => "/sessions/$id",
                      { metadata => { c => 'd' }, network => $TRUE,
                        timeout_s => 900 });
    is($res->{json}{network}, 'restricted', 'with all else');
    is_deeply($res->{json}{metadata}, { c => 'd' }, 'that is changed, too');

    $res = $t->api(PATCH => "/sessions/$id",
                   { metadata => { e => 'f' },
                     network => { allow => [ 'a.org' ] } });
    is($res->{status}, 400, 'or nothing is changed');
    is_deeply($t->api(GET => "/sessions/$id")->{json}{metadata},
              { c => 'd' }, 'of all of it');
};

$t->finish;
done_testing();
