#!/usr/bin/perl

# What the router refuses, how it reads paths and bodies, and that whatever
# it answers leaves the connection as HTTP says.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";

use MIME::Base64 qw(encode_base64 encode_base64url);
use Test::More;
use SandboxTest;

my $t = SandboxTest->new(
    http => 'sandbox_max_json 64k;',
    edit => sub { s/sandbox_max_json 1m;//; s/sandbox_max_upload 4g;// },
    server => <<'CONF');
        location /api { sandbox_api v1; }
        location /old/ { rewrite ^/old/(.*)$ /v1/$1 last; }
        location /limited/ {
            sandbox_api v1;
            limit_except GET { deny 203.0.113.1; }
        }
        location /small/ { sandbox_api v1; sandbox_max_json 1k; }
        location /static/ { return 200 "static\n"; }
CONF

$t->start;


sub says {
    my ($method, $path, $json, %o) = @_;

    my $res = $t->api($method, $path, $json, %o);

    return "$res->{status} " . ($res->{json}{code} // '');
}

my $id = 'i' . 'a' x 24;


# ---- routes

is(says(GET => '/health'), '200 ', 'a route');
is(says(GET => "/$_"), '404 E3009', "no route: /$_")
    for '', 'healthy', 'health/', '/health', 'sessions/', 'session',
        "sessions/$id/", "sessions/$id/nothing", 'HEALTH', '%68ealth',
        './health', 'x/../health', "sessions//$id";
is(says(GET => '/..%2fv1'), '404 404', 'nor one that leaves the location');
is(says(GET => '/health?x=1&y'), '200 ', 'a query is none of the route');

is(says(GET => '/health', undef, base => '/api'), '200 ',
   'a location without a slash at its end');
is(says(GET => '', undef, base => '/api'), '404 E3009', 'the same, empty');
is(says(GET => 'x/health', undef, base => '/api'), '404 E3009',
   'the same, with more than its name');
is(says(GET => '/health', undef, base => '/old'), '200 ',
   'a rewritten URI');
is(says(GET => '/health', undef, base => '/limited'), '200 ',
   'a location with limit_except');
is(says(PUT => '/health', undef, base => '/limited'), '405 E3010',
   'the methods within limit_except');
is(says(GET => '/health', undef, base => '/static/../v1'), '404 E3009',
   'a raw URI that begins with another location');
is($t->http(GET => '/v1/sessions/../../static/')->{body}, "static\n",
   'nginx itself chooses the location');

for my $bad ('x', 'i', 'iABCDEFGHIJKLMNOPQRSTUVWX', $id . '%41', "I$id",
             'i' . 'a' x 19, 'i' . 'a' x 41)
{
    is(says(GET => "/sessions/$bad"), '404 E2009', "no session: $bad");
}

my %allow = (
    '/health' => 'GET, HEAD',
    '/sessions' => 'GET, HEAD, POST',
    "/sessions/$id" => 'GET, HEAD, PATCH, DELETE',
    "/sessions/$id/exec" => 'POST',
    "/sessions/$id/files/x" => 'GET, HEAD, PUT, DELETE',
);

for my $path (sort keys %allow) {
    for my $method (grep { $allow{$path} !~ /\b$_\b/ }
                    qw(OPTIONS PATCH MKCOL WHATEVER))
    {
        my $res = $t->api($method, $path);

        is("$res->{status} $res->{json}{code} $res->{headers}{allow}",
           "405 E3010 $allow{$path}", "$method $path");
    }
}

my $res = $t->http(HEAD => '/v1/health');
is("$res->{status} $res->{headers}{'content-type'} " . length $res->{body},
   '200 application/json 0', 'HEAD where GET is');
is($t->http(HEAD => '/v1/nothing')->{status}, 404, 'HEAD of nothing');


# ---- headers of every answer

for my $path ('/health', '/nothing', "/sessions/$id") {
    $res = $t->api(GET => $path);
    like($res->{headers}{'x-request-id'}, qr/^[0-9a-f]{32}$/,
         "$path has X-Request-ID");
    is($res->{headers}{'cache-control'}, 'no-store', 'and is not stored');
}

isnt($t->api(GET => '/health')->{headers}{'x-request-id'},
     $t->api(GET => '/health')->{headers}{'x-request-id'},
     'each has its own');


# ---- bodies

my $create = { tenant_id => 'acme-corp', user_id => 'alice', wrong => 1 };

for my $type (undef, 'text/plain', 'application/jsonp',
              'application/x-www-form-urlencoded', 'text/application/json')
{
    my $name = $type // 'none';
    my $res = $t->http(POST => '/v1/sessions', body => '{}', headers => {
        defined $type ? ('Content-Type' => $type) : () });

    is($res->{status}, 415, "media type $name");
}

is(says(POST => '/sessions', $create, headers => { 'Content-Type' => $_ }),
   '400 E3001', "media type $_")
    for 'application/json', 'application/json; charset=utf-8',
        'Application/JSON', 'application/json;x';

is(says(POST => '/sessions', undef), '400 E3001',
   'an empty body needs no type');


sub chunked {
    my ($c, $type, @pieces) = @_;

    $c->send("POST /v1/sessions HTTP/1.1\r\nHost: x\r\n"
             . ($type ? "Content-Type: $type\r\n" : '')
             . "Transfer-Encoding: chunked\r\n\r\n");
    $c->send(sprintf "%x\r\n%s\r\n", length $_, $_) || last for @pieces;
    $c->send("0\r\n\r\n");

    return $c->read_response;
}

my $c = $t->connect;

is(chunked($c, 'application/json', '{"tenant', '_id":1', '}')->{status},
   400, 'a chunked body is one');
is(chunked($c, undef)->{status}, 400, 'an empty chunked one needs no type');
$res = chunked($c, 'text/plain', '{}');
is($res->{status}, 415, 'another does');

$c->close;
$c = $t->connect;

$res = chunked($c, 'application/json', ('x' x 4096) x 17);
is($res->{status}, 413, 'a chunked body over the limit');
$c->close;

my $big = '{"tenant_id":"' . 'x' x 65536 . '"}';

$res = $t->api(POST => '/sessions', $big);
is("$res->{status} $res->{json}{code}", '413 E4005', 'a body over the limit');
like($res->{json}{detail}, qr/65536/, 'is told what the limit is');
is(says(POST => '/sessions', '{' . ' ' x 65534 . '}'), '400 E3001',
   'a body of just the limit is read');
is(says(POST => '/sessions', ' ' x 2000, base => '/small'), '413 E4005',
   'a location has a limit of its own');

$c = $t->connect;
$c->send("POST /v1/sessions HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n"
         . "Content-Type: application/json\r\nContent-Length: 99999\r\n\r\n");
my $line = $c->read_line(time + 10);
like($line, qr/ 413 /, 'a refusal takes the place of "100 Continue"');
$c->close;

$c = $t->connect;
$c->send("POST /v1/sessions HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n"
         . "Content-Type: application/json\r\nContent-Length: 2\r\n\r\n");
like($c->read_line(time + 10), qr/ 100 /, 'it comes where the body is wanted');
$c->close;

# a body where none is needed is thrown away, and the next request is found

$c = $t->connect;
$res = $c->request(GET => '/v1/health', body => 'x' x 5000);
is($res->{status}, 200, 'a body that nobody wants');
is($c->request(GET => '/v1/health')->{status}, 200,
   'is not the next request');
is($c->request(GET => '/v1/nothing', body => 'x' x 5000)->{status}, 404,
   'nor where there is no route');
is($c->request(GET => '/v1/health')->{status}, 200, 'either');
is(says(GET => '/health', 'x' x 70000), '413 E4005', 'it is counted too');
$c->close;

# slowly, and with the next request behind it

$c = $t->connect;
my $text = '{"tenant_id":1}';
$c->send("POST /v1/sessions HTTP/1.1\r\nHost: x\r\n"
         . "Content-Type: application/json\r\nContent-Length: "
         . length($text) . "\r\n\r\n");
select(undef, undef, undef, 0.02), $c->send($_) for split //, $text;
$c->send("GET /v1/health HTTP/1.1\r\nHost: x\r\n\r\n");
is($c->read_response->{status}, 400, 'a body byte by byte');
is($c->read_response->{status}, 200, 'with a pipelined request after it');

$c->send("GET /v1/health HTTP/1.1\r\nHost: x\r\n\r\n" x 3);
is(join(',', map { $c->read_response->{status} } 1 .. 3), '200,200,200',
   'pipelined calls');
$c->close;

$c = $t->connect;
$c->send("GET /v1/health HTTP/1.0\r\n\r\n");
is($c->read_response->{json} // 200, 200, 'HTTP/1.0');
$c->close;


# ---- paths, as files keep them

my $s = $t->session;

sub put { return $t->http(PUT => "/v1/sessions/$s/files$_[0]", body => 'x') }

sub path_of {
    my ($at) = @_;

    my $res = put($at);

    return $res->{status} if $res->{status} !~ /^20/;
    return JSON::PP->new->utf8->decode($res->{body})->{path};
}

my %paths = (
    '/a.txt' => '/home/user/a.txt',
    '/b%20c' => '/home/user/b c',
    '/b+c' => '/home/user/b+c',
    '/%2525' => '/home/user/%25',
    '/d%2Fe' => '/home/user/d/e',
    '//tmp/f' => '/tmp/f',
    '/%2Ftmp/g' => '/tmp/g',
    '/h%3Fi%23' => '/home/user/h?i#',
    '?path=j.txt' => '/home/user/j.txt',
    '?path=k+l' => '/home/user/k l',
    '?path=k%2Bl' => '/home/user/k+l',
    '?path=/tmp/m' => '/tmp/m',
    '?x=1&path=n&y' => '/home/user/n',
    '/?path=o' => '/home/user/o',
    '?path_base64=' . encode_base64('p>?~', '') => '/home/user/p>?~',
    '?path_base64=' . encode_base64url('q>?~') => '/home/user/q>?~',
);

is(path_of($_), $paths{$_}, "path: $_") for sort keys %paths;

my %refused = (
    '/%zz' => 400, '/%2' => 400, '/a%' => 400,
    '?path=%zz' => 'E3001', '?path=a&path=b' => 'E3001',
    '/a?path=b' => 'E3001',
    '?path=a&path_base64=YQ==' => 'E3001', '?path_base64=*' => 'E3001',
    '?path_base64=YQ=' => 'E3001', '?path_base64=YQ==YQ==' => 'E3001',
    '?path_base64=Y' => 'E3001', '?path=a%00b' => 'E4002',
    '?path_base64=' . encode_base64("a\0b", '') => 'E4002',
    '?path=' . 'x' x 4096 => 'E4002', '/' . 'x' x 4096 => 'E4002',
);

for my $at (sort keys %refused) {
    my $res = put($at);
    my $want = $refused{$at};
    my $j = eval { JSON::PP->new->utf8->decode($res->{body}) } || {};

    is($res->{status}, 400, 'refused: ' . substr $at, 0, 40);
    is($j->{code}, $want, 'with its code') if $want =~ /^E/;
}

is(says(GET => "/sessions/$s/files?glob=%zz"), '400 E3001',
   'a query is well-formed where it is read');

# a client that goes away in the middle of its body leaves nothing

$c = $t->connect;
$c->send("POST /v1/sessions HTTP/1.1\r\nHost: x\r\n"
         . "Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{");
$c->close;

is(says(GET => '/health'), '200 ', 'the worker serves on');

$t->finish;

done_testing();
