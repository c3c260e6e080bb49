#!/usr/bin/perl

# What nginx itself refuses has the API's form too, and each code has its row
# in the contract.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";

use JSON::PP ();
use Test::More;
use SandboxTest;

my $by_name = <<'CONF';
    server {
        listen 127.0.0.1:%%PORT%%;
        server_name e2b.test;
        include sandbox-errors-e2b.conf;
        location /closed { root html; deny all; }
        location /limited { limit_req zone=one; root html; }
        location /small { client_max_body_size 1; proxy_pass
                          http://127.0.0.1:1; }
        location /nobody { proxy_pass http://127.0.0.1:1; }
    }
CONF

my $t = SandboxTest->new(
    http => 'limit_req_zone $binary_remote_addr zone=one:1m rate=1r/m;',
    edit => sub { s/(?=^    server \{\n.*\n        server_name)/$by_name/m },
    server => <<'CONF');
        location /t/closed { root html; deny all; }
        location /t/limited { limit_req zone=one; root html; }
        location /t/small { client_max_body_size 1; proxy_pass
                            http://127.0.0.1:1; }
        location /t/nobody { proxy_pass http://127.0.0.1:1; }
        location /t/none { return 404; }
CONF

# The shipped file admits 127.0.0.1: here a location must refuse it.
$t->start;


sub raw {
    my ($bytes) = @_;

    my $c = $t->connect(timeout => 10 * $SandboxTest::SLOW);
    $c->send($bytes);
    my $res = $c->read_response;
    $c->close;

    return $res;
}


sub is_form {
    my ($res, $status, $code, $name) = @_;

    local $Test::Builder::Level = $Test::Builder::Level + 1;

    my $j = eval { JSON::PP->new->utf8->decode($res->{body}) } || {};

    return is(join(' ', $res->{status}, $j->{status} // '', $j->{code} // '',
                   $res->{headers}{'content-type'} // '',
                   $res->{headers}{'x-request-id'} ? 'id' : 'no id',
                   grep { !$j->{$_} } qw(title error detail suggestion)),
              "$status $status $code application/problem+json id", $name);
}


my $long = 'a' x 70_000;
my $end = "\r\nHost: x\r\nConnection: close\r\n\r\n";

is_form(raw("GET /v1/%00 HTTP/1.1$end"), 400, 'E3001', '%00 in a path');
is_form(raw("GET\r\n\r\n"), 400, 'E3001', 'no request line');
is_form(raw("GET /v1/health HTTP/1.1\r\n\r\n"), 400, 'E3001', 'no Host');
is_form(raw("GET /v1/../../etc HTTP/1.1$end"), 400, 'E3001',
        'a path above the root');
is_form(raw("GET /$long HTTP/1.1$end"), 414, 'E3001', 'a long request line');
is_form(raw("GET / HTTP/1.1\r\nX: $long$end"), 431, 'E3001', 'long headers');
is_form(raw("GET / HTTP/9.9$end"), 505, 'E3001', 'an unknown version');
is_form(raw("POST /v1/sessions HTTP/1.1\r\nTransfer-Encoding: odd$end"),
        501, 'E3001', 'an unknown transfer coding');
is_form($t->http(GET => '/t/none'), 404, 'E3009', 'no such location');
is_form($t->http(GET => '/t/closed'), 403, 'E1002', 'not admitted');
is_form($t->http(GET => '/t/nobody'), 502, 'E5002', 'nobody behind');
is_form($t->http(POST => '/t/small', body => 'abc'), 413, 'E4005',
        'a large body');

$t->http(GET => '/t/limited');
my $res = $t->http(GET => '/t/limited');
is_form($res, 503, 'E2004', 'limit_req');
is($res->{headers}{'retry-after'}, 1, 'tells when to come again');


is_form($t->http(GET => '/.sandbox-error/403'), 404, 'E3009',
        'the pages of errors are not reached from outside');


# The form of the E2B protocol: a number that is the status, and a message.

sub is_e2b {
    my ($res, $status, $name) = @_;

    local $Test::Builder::Level = $Test::Builder::Level + 1;

    my $j = eval { JSON::PP->new->utf8->decode($res->{body}) } || {};

    return is(join(' ', $res->{status}, $j->{code} // '',
                   $res->{headers}{'content-type'} // '',
                   $res->{headers}{'x-request-id'} ? 'id' : 'no id',
                   join ',', sort keys %$j),
              "$status $status application/json id code,message", $name);
}


my $host = "\r\nHost: 8000-i0123456789012345678901234.x.test"
           . "\r\nConnection: close";

my %e2b = (headers => { Host => 'e2b.test' });

is_e2b($t->http(GET => '/'), 404, 'E2B: nothing is at the root');
is_e2b($t->http(GET => '//sandbox-error/busy', %e2b), 404,
       'E2B: nor are pages of errors');
is_e2b($t->http(GET => '/closed', %e2b), 403, 'E2B: not admitted');
is_e2b($t->http(GET => '/nobody', %e2b), 502, 'E2B: nobody behind');
is_e2b($t->http(POST => '/small', body => 'abc', %e2b), 413,
       'E2B: a large body');
$res = $t->http(GET => '/limited', %e2b);
is_e2b($res, 503, 'E2B: limit_req');
is($res->{headers}{'retry-after'}, 1, 'E2B: tells when to come again');
is_e2b(raw("TRACE / HTTP/1.1$host\r\n\r\n"), 405, 'by name: a bad method');
is_e2b(raw("GET / HTTP/1.1$host\r\nX: $long\r\n\r\n"), 431,
       'by name: long headers');
is_e2b(raw("POST / HTTP/1.1$host\r\nTransfer-Encoding: odd\r\n\r\n"), 501,
       'by name: an unknown transfer coding');

$t->finish;
done_testing();
