#!/usr/bin/perl

# What a sandbox of the E2B API may reach, as it is asked for, told and
# changed; t/egress-grants.t has what comes of it.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";

use JSON::PP ();
use Test::More;
use SandboxTest;

my $t = SandboxTest->new(
    workers => 1,
    server => '        location /e2b/ { sandbox_api e2b; }',
    http => <<'CONF')->start;
    sandbox_template netted {
        egress allow *.example.org 203.0.113.0/24;
    }
CONF


sub ask {
    my ($method, $path, $json) = @_;

    return $t->api($method, $path, $json, base => '/e2b',
                   headers => { 'X-API-Key' => 'e2b_' . '0' x 40 });
}

sub refused {
    my ($res, $status, $text, $name) = @_;

    is($res->{status}, $status, $name);
    like($res->{json}{message} // '', $text, 'by name');

    return;
}

sub kill_id { return ask(DELETE => "/sandboxes/$_[0]") }

# What a sandbox may reach: what it asks for, as it is told.

sub network {
    my ($j) = @_;

    return join ' ', $j->{allowInternetAccess} ? 'on' : 'off',
                     map { '[' . join(',', @$_) . ']' }
                     @{ $j->{network} }{qw(allowOut denyOut)};
}

subtest 'networks' => sub {
    my $all = '0.0.0.0/0';
    my ($true, $false) = (JSON::PP::true, JSON::PP::false);

    for my $row (
        [ 'nothing is asked for', {}, 'on [] []' ],
        [ 'all of it', { allow_internet_access => $true }, 'on [] []' ],
        [ 'nothing of it', { allow_internet_access => $false },
          "off [] [$all]" ],
        [ 'null', { allow_internet_access => undef, network => undef },
          'on [] []' ],
        [ 'all is denied', { network => { denyOut => [ $all ] } },
          "off [] [$all]" ],
        [ 'something is denied', { network => { denyOut => [ '203.0.113.9' ] }
                                 }, 'on [] [203.0.113.9]' ],
        [ 'something is allowed', { network => {
              allowOut => [ 'a.EXAMPLE.org' ], denyOut => [ $all ] } },
          "on [a.example.org] [$all]" ],
        [ 'the same', { allow_internet_access => $false, network => {
              allowOut => [ '203.0.113.0/30' ] } },
          "on [203.0.113.0/30] [$all]" ],
        [ 'exceptions', { network => { allowOut => [ '203.0.113.7' ],
                                       denyOut => [ '203.0.113.0/28' ] } },
          'on [203.0.113.7] [203.0.113.0/28]' ],
        [ 'exceptions of nothing', { network => {
              allowOut => [ '203.0.113.7' ] } }, 'on [203.0.113.7] []' ],
        [ 'all is allowed', { network => { allowOut => [ $all ],
                                           denyOut => [ '203.0.113.7' ] } },
          'on [] []' ],
        [ 'where nothing is granted', { templateID => 'base' },
          "off [] [$all]" ],
        [ 'some of nothing', { templateID => 'base', network => {
              denyOut => [ '203.0.113.7' ] } }, "off [] [$all]" ])
    {
        my ($name, $body, $told) = @$row;
        my $res = ask(POST => '/v2/sandboxes',
                      { templateID => 'netted', %$body });

        is($res->{status}, 201, $name) or diag($res->{body});
        is(network(ask(GET => "/sandboxes/$res->{json}{sandboxID}")->{json}),
           $told, 'as is told');
        kill_id($res->{json}{sandboxID});
    }

    refused(ask(POST => '/v2/sandboxes',
                { templateID => 'netted', network => {
                      allowOut => [ 'a.example.org', 'other.test' ] } }),
            400, qr{^network\.allowOut/1: }, 'more than is granted');

    my $id = ask(POST => '/v2/sandboxes', { templateID => 'netted' })
             ->{json}{sandboxID};
    my $put = sub { return ask(PUT => "/sandboxes/$id/network", $_[0]) };
    my $now = sub { return network(ask(GET => "/sandboxes/$id")->{json}) };

    is($put->({ allowOut => [ 'b.example.org' ], denyOut => [ $all ] })
       ->{status}, 204, 'less of it');
    is($now->(), "on [b.example.org] [$all]", 'from now on');
    is($t->api(GET => "/sessions/$id")->{json}{network}, 'restricted',
       'the native API sees it');
    refused($put->({ allowOut => [ 'other.test' ] }), 400, qr{^allowOut/0: },
            'more than is granted');
    is($now->(), "on [b.example.org] [$all]", 'is nothing');
    is($put->({ allow_internet_access => $false })->{status}, 204,
       'none of it');
    is($now->(), "off [] [$all]", 'from now on');
    is($put->({})->{status}, 204, 'what is left out');
    is($now->(), 'on [] []', 'is cleared');
    kill_id($id);
};


subtest 'what a template does not grant' => sub {
    my $id = ask(POST => '/v2/sandboxes', { templateID => 'base' })
             ->{json}{sandboxID};

    is(ask(PUT => "/sandboxes/$id/network", {})->{status}, 400,
       'is not given later');
    is(ask(PUT => "/sandboxes/$id/network",
           { denyOut => [ '0.0.0.0/0' ] })->{status}, 204, 'nothing is');
    kill_id($id);
};

$t->finish;
done_testing();
