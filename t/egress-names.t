#!/usr/bin/perl

# Where a grant is a name, what a program names must be what it looked up and
# may reach: in TLS, in each request of HTTP, and whatever comes in pieces.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";

use JSON::PP ();
use Test::More;
use SandboxTest;
use SandboxTest::Net;

my $net = SandboxTest::Net->new;
my $t = $net->server(http => '    sandbox_egress allow *.example.org;');
my $id = $t->session(manifest => { network => JSON::PP::true });

my $at = '203.0.113.10';                      # of a and d
my $host = "Host: a.example.org\r\n";

$t->http(PUT => "/v1/sessions/$id/files/ca.pem",
         body => SandboxTest::slurp($net->ca));


sub tls {
    my ($sni, %more) = @_;

    return { do => 'http', tls => 1, blind => 1, to => $at, port => 443,
             host => $sni, sni => $sni, %more };
}

sub hello { return { do => 'hello', to => $at, port => 443, @_ } }

# Bytes as they are, up to the end of one answer, or of the connection.

sub bytes {
    my (@pieces) = @_;

    return { do => 'tcp', to => $at, port => 80, once => 1,
             send => [ @pieces ] };
}

sub look { return { do => 'lookup', name => $_[0] } }


subtest 'TLS' => sub {
    my @r = $net->try($id, tls('a.example.org'), look('a.example.org'),
                      tls('a.example.org', blind => 0, ca => 'ca.pem'),
                      tls('A.Example.ORG'), tls('d.example.org'),
                      look('b.example.org'), tls('b.example.org'),
                      tls('other.test'), hello(),
                      hello(sni => 'a.example.org', extension => 0xfe0d),
                      hello(sni => 'a.example.org', extension => 0xfa0d),
                      look('d.example.org'), tls('d.example.org'),
                      tls('a.example.org', port => 8443));

    refused($r[0], 'an address before its name was looked up');
    reached($r[1], 'then it is');
    is($r[2]{status}, 200, 'the name that was looked up');
    like($r[2]{issuer} // '', qr/world-ca/, 'is spoken to as it is');
    is($r[3]{status}, 200, 'in other letters');
    refused($r[4], 'a name of this address that was not looked up');
    refused($r[6], 'a name that was, of another address');
    refused($r[7], 'a name that is not granted');
    refused($r[8], 'no name at all');
    refused($r[9], 'a name that is encrypted');
    ok($r[10]{first}, 'an extension that is nothing');
    is($r[12]{status}, 200, 'the other name, once it was looked up');
    is($r[13]{status}, 200, 'another port');

    my %named = map { lc($_->{sni} // '-') => 1 } $net->seen('https');
    is_deeply([ sort keys %named ], [ qw(a.example.org d.example.org) ],
              'nothing of what was refused has come to the server');
};


subtest 'TLS in pieces' => sub {
    my @r = $net->try($id,
        hello(sni => 'a.example.org', records => 1),
        hello(sni => 'a.example.org', pieces => 1),
        hello(sni => 'a.example.org', records => 7, pieces => 3),
        hello(sni => 'other.test', records => 1),
        hello(sni => 'other.test', pieces => 1),
        hello(sni => 'other.test', records => 7, pieces => 3));

    ok($r[$_]{first}, 'a name that is granted') or diag(explain($r[$_]))
        for 0 .. 2;
    refused($r[$_], 'one that is not') for 3 .. 5;
};


subtest 'HTTP' => sub {
    my @r = $net->try($id,
        bytes("GET /1 HTTP/1.1\r\n$host\r\n"),
        bytes("GET /2 HTTP/1.1\r\nhOST:a.EXAMPLE.org\r\n\r\n"),
        bytes('GET /3 HT', "TP/1.1\r\nHo", "st: a.exam", "ple.org\r\n",
              "\r\n"),
        bytes("GET http://a.example.org/4 HTTP/1.1\r\n$host\r\n"),
        bytes("GET /5 HTTP/1.1\r\nHost: a.example.org:80\r\n\r\n"),
        bytes("GET /no HTTP/1.1\r\nHost: other.test\r\n\r\n"),
        bytes("GET /no HTTP/1.1\r\nHost: b.example.org\r\n\r\n"),
        bytes("GET /no HTTP/1.1\r\n${host}Host: other.test\r\n\r\n"),
        bytes("GET /no HTTP/1.1\r\nHost: other.test\r\n$host\r\n"),
        bytes("GET http://other.test/no HTTP/1.1\r\n$host\r\n"),
        bytes("GET http://a.example.org\@other.test/no HTTP/1.1\r\n$host\r\n"),
        bytes("GET /no HTTP/1.1\r\n\r\n"),
        bytes("GET /no HTTP/1.0\r\n\r\n"),
        bytes("GET /no\r\n"),
        bytes("GET /no HTTP/1.1\r\nHost : a.example.org\r\n\r\n"),
        bytes("GET /no HTTP/1.1\r\nX: y\r\n Host: a.example.org\r\n\r\n"),
        bytes("GET /no HTTP/1.1\r\nHost: a.example.org:81\r\n\r\n"),
        bytes("GET /no HTTP/1.1\r\nHost: 203.0.113.10\r\n\r\n"),
        bytes("GET /no HTTP/1.1\nHost: other.test\n\n"));

    like($r[$_]{data} // '', qr/ 200 /, 'its own name, form ' . ($_ + 1))
        or diag(explain($r[$_])) for 0 .. 4;
    refused($r[$_], "another, or none, form $_") for 5 .. $#r;

    is((grep { $_->{line} =~ /no/ } $net->seen('http', 'part')), 0,
       'nothing of what was refused has come to the server');
};


subtest 'every request of a connection' => sub {
    my $first = "GET /first HTTP/1.1\r\n$host\r\n";
    my $other = "GET /second HTTP/1.1\r\nHost: other.test\r\n\r\n";
    my $long = "POST /first HTTP/1.1\r\n${host}Content-Length: "
               . length($other) . "\r\n\r\n$other";
    my $lump = sprintf "POST /first HTTP/1.1\r\n${host}"
               . "Transfer-Encoding: chunked\r\nContent-Length: %d\r\n\r\n",
               5 + length $other;

    my @r = $net->try($id,
        { %{ bytes($first, "GET /again HTTP/1.1\r\n$host\r\n") }, once => 0,
          until => '/again' },
        { %{ bytes($first . $other) }, once => 0 },
        { %{ bytes($first, $other) }, once => 0 },
        bytes($long),
        { %{ bytes($lump . "0\r\n\r\n" . $other) }, once => 0 });

    is(scalar(() = ($r[0]{data} // '') =~ / 200 /g), 2, 'two of its own');
    refused($r[1], 'a second one for another, at once');
    refused($r[2], 'or later');
    like($r[3]{data} // '', qr/ 200 /, 'a body is no request');
    refused($r[4], 'two lengths');

    is((grep { /second/ } map { $_->{line} // $_->{data} // '' } $net->seen),
       0, 'nothing of it has come to the server');
};


subtest 'a proxy that is granted leads nowhere else' => sub {
    my @r = $net->try($id,
        bytes("CONNECT other.test:443 HTTP/1.1\r\n$host\r\n"),
        bytes("CONNECT other.test:443 HTTP/1.1\r\n"
              . "Host: other.test:443\r\n\r\n"),
        bytes("CONNECT 203.0.113.15:443 HTTP/1.1\r\n$host\r\n"));

    refused($r[$_], "CONNECT, form $_") for 0 .. 2;
    is((grep { /CONNECT/ } map { $_->{line} // $_->{data} // '' } $net->seen),
       0, 'nothing of it has come there');
};


subtest 'other protocols' => sub {
    my @r = $net->try($id,
        { do => 'tcp', to => $at, port => 7003, read => 11 },
        { do => 'tcp', to => $at, port => 7000, send => [ "\0\1binary" ],
          read => 8 },
        { do => 'tcp', to => '203.0.113.12', port => 7003, read => 11 },
        bytes("SSH-2.0-x\r\n"), bytes("\0\0\0\0"),
        { %{ bytes("SSH-2.0-x\r\n") }, port => 443 },
        { %{ bytes("GET / HTTP/1.1\r\n${host}\r\n") }, port => 443 },
        bytes("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
        { %{ bytes("GET / HTTP/1.1\r\nHost: other.test\r\n\r\n") },
          port => 9090 },
        hello(sni => 'other.test', port => 7000), hello(port => 7000),
        { %{ bytes("GET / HTTP/1.1\r\n${host}\r\n") }, port => 9090 });

    is($r[0]{data}, "220 ready\r\n", 'a server that speaks first');
    is($r[1]{data}, "\0\1binary", 'a client that does');
    refused($r[2], 'but not where no name leads');
    refused($r[3], 'and not where HTTP is spoken');
    refused($r[4], 'whatever it is');
    refused($r[5], 'nor where TLS is');
    like($r[6]{error} || 'ECONNRESET', qr/^E/,
         'HTTP there is judged as HTTP is');
    refused($r[7], 'nor HTTP without its name');
    refused($r[8], 'HTTP is judged at every port');
    refused($r[9], 'and TLS');
    refused($r[10], 'with a name or without one');
    like($r[11]{data} // '', qr/ 200 /, 'as what is granted is');
};


subtest 'an open grant needs no look' => sub {
    my $open = $t->session(template => 'base',
                           manifest => { network => JSON::PP::true });
    my @r = $net->try($open, look('other.test'));
    unknown($r[0], 'names are judged by the grant of the operator');
};

$t->finish;
done_testing();
