#!/usr/bin/perl

# Who asks: sandbox_tenant and sandbox_user from client certificates,
# passwords, auth_request and plain headers; and what nginx's own limits do
# before them.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";

use File::Temp qw(tempdir);
use JSON::PP ();
use MIME::Base64 qw(encode_base64);
use POSIX ();
use Test::More;
use SandboxTest;
use SandboxTest::More;

my $JSON = JSON::PP->new->utf8->canonical;
my $PKI = tempdir('sbxpkiXXXXXX', DIR => '/tmp', CLEANUP => 1);
chmod 0755, $PKI;


sub openssl {
    my (@args) = @_;

    system("openssl @args >/dev/null 2>>'$PKI/log'") == 0
        or die "openssl @args\n";

    return;
}

sub have {
    my ($program) = @_;

    return grep { -x "$_/$program" } split /:/, $ENV{PATH};
}

my $tls = have('openssl') && have('curl');

sub make_pki {
    for my $ca ('ca', 'other-ca') {
        openssl("req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=$ca",
                "-keyout $PKI/$ca.key -out $PKI/$ca.pem");
    }

    for my $case ([ server => 'localhost', 'ca' ],
                  [ alice => 'acme-corp', 'ca' ],
                  [ mallory => 'acme-corp', 'other-ca' ],
                  [ odd => 'a b', 'ca' ])
    {
        my ($name, $cn, $ca) = @$case;
        openssl("req -newkey rsa:2048 -nodes -subj '/CN=$cn'",
                "-keyout $PKI/$name.key -out $PKI/$name.csr");
        openssl("x509 -req -days 2 -in $PKI/$name.csr -CA $PKI/$ca.pem",
                "-CAkey $PKI/$ca.key -CAcreateserial -out $PKI/$name.pem");
    }

    chmod 0644, glob "$PKI/*";

    return;
}

make_pki() if $tls;

my $tls_port = SandboxTest::free_port();
my $hash = crypt 'secret', '$6$saltsalt$';
open my $passwords, '>', "$PKI/htpasswd" or die $!;
print $passwords "alice:$hash\nbob:$hash\n";
close $passwords;
chmod 0644, "$PKI/htpasswd";

# Indented otherwise than the shipped blocks, which the library looks for.

my $tls_server = $tls ? <<"CONF" : '';
  map \$ssl_client_s_dn \$tenant_of_certificate {
      ~(?:^|,)CN=(?<cn>[^,]+) \$cn;
  }

  server {
      listen 127.0.0.1:$tls_port ssl;
      ssl_certificate $PKI/server.pem;
      ssl_certificate_key $PKI/server.key;
      ssl_client_certificate $PKI/ca.pem;
      ssl_verify_client optional;
      include sandbox-errors.conf;

      location /v1/ {
          if (\$ssl_client_verify != SUCCESS) { return 401; }
          sandbox_tenant \$tenant_of_certificate;
          sandbox_user "svc";
          sandbox_api v1;
      }
  }
CONF

my $t = SandboxTest->new(
    http => <<"CONF",
$tls_server
    limit_req_zone \$binary_remote_addr zone=few:1m rate=1r/m;
    limit_conn_zone \$binary_remote_addr zone=one:1m;
CONF
    server => <<"CONF",
        location /by-header/ {
            sandbox_tenant \$http_x_tenant;
            sandbox_user \$http_x_user;
            sandbox_api v1;
        }

        location /tenant-only/ {
            sandbox_tenant \$http_x_tenant;
            sandbox_api v1;
        }

        location /by-password/ {
            auth_basic "sandbox";
            auth_basic_user_file $PKI/htpasswd;
            sandbox_tenant "team";
            sandbox_user \$remote_user;
            sandbox_api v1;
        }

        location /by-request/ {
            auth_request /auth;
            auth_request_set \$tenant \$upstream_http_x_tenant;
            auth_request_set \$user \$upstream_http_x_user;
            sandbox_tenant \$tenant;
            sandbox_user \$user;
            sandbox_api v1;
        }

        location = /auth {
            internal;
            proxy_pass http://127.0.0.1:%%PORT%%/tokens/\$http_x_token;
            proxy_pass_request_body off;
            proxy_set_header Content-Length "";
        }

        location = /tokens/good {
            add_header X-Tenant token-corp;
            add_header X-User carol;
            return 204;
        }

        location = /tokens/empty { return 204; }
        location /tokens/ { return 401; }

        location /denied/ {
            deny 127.0.0.1;
            allow all;
            sandbox_api v1;
        }

        location /rated/ {
            limit_req zone=few burst=1 nodelay;
            sandbox_api v1;
        }

        location /one-at-a-time/ {
            limit_conn one 1;
            sandbox_api v1;
        }

        location /boss/ {
            sandbox_user \$http_x_user;
            sandbox_api admin;
        }
CONF
)->start;


sub as {
    my ($tenant, $user) = @_;

    return { 'X-Tenant' => $tenant, defined $user ? ('X-User' => $user) : () };
}

sub ask {
    my ($base, $headers, $method, $path, $json) = @_;

    return $t->api($method, $path, $json, base => $base,
                   headers => { %{ $headers || {} } });
}

sub by_header { return ask('/by-header', @_) }

sub is_refused {
    my ($res, $want, $name) = @_;

    local $Test::Builder::Level = $Test::Builder::Level + 1;
    is("$res->{status} " . ($res->{json}{code} // ''), $want, $name)
        or diag($res->{body});

    return;
}

my ($alice, $bob, $eve) = (as('acme', 'alice'), as('acme', 'bob'),
                           as('evil', 'alice'));


subtest 'the body need not and cannot say another' => sub {
    my $res = by_header($alice, POST => '/sessions', {});
    is($res->{status}, 201, 'nothing is said');
    is("$res->{json}{tenant_id} $res->{json}{user_id}", 'acme alice',
       'and known');
    my $id = $res->{json}{session_id};

    $res = by_header($alice, POST => '/sessions',
                     { tenant_id => 'acme', user_id => 'alice' });
    is($res->{status}, 201, 'oneself can be said');
    my $other = $res->{json}{session_id};

    is_refused(by_header($alice, POST => '/sessions', { tenant_id => 'evil' }),
               '403 E1002', 'another tenant');
    is_refused(by_header($alice, POST => '/sessions', { user_id => 'bob' }),
               '403 E1002', 'another user');
    is_refused(by_header($alice, POST => '/sessions', { tenant_id => '' }),
               '403 E1002', 'an empty one');
    is_refused(by_header($alice, POST => '/sessions', { tenant_id => 5 }),
               '400 E3001', 'a number');

    is(@{ by_header($alice, GET => '/sessions')->{json}{sessions} }, 2,
       'nothing was made');
    is(by_header($alice, DELETE => "/sessions/$_")->{status}, 204,
       'destroyed') for $id, $other;
};


subtest 'of others there is nothing' => sub {
    my $mine = by_header($alice, POST => '/sessions', {})
               ->{json}{session_id};
    my $his = by_header($bob, POST => '/sessions', {})->{json}{session_id};
    my $evils = by_header($eve, POST => '/sessions', {})->{json}{session_id};

    # every route of a session, with a body where it takes one

    my $text = SandboxTest::slurp("$SandboxTest::ROOT/ngx_sandbox_module/v1/"
                                  . 'ngx_http_sandbox_v1.c');
    my @routes;

    while ($text =~ /\{\s((?:NGX_HTTP_\w+\|?)+),\s"(sessions\/\{id\}[^"]*)",
                     \s*NGX_HTTP_SANDBOX_BODY_(\w+),.*?\n\s*(\w+),\s\w+\s\}/gsx)
    {
        my ($methods, $path, $body, $handler) = ($1, $2, $3, $4);

        next if $handler =~ /reserved/;
        push @routes, [ $_, $path, $body ]
            for map { s/NGX_HTTP_//r } split /\|/, $methods;
    }

    cmp_ok(scalar @routes, '>', 10, 'the routes are found');

    for my $case ([ $eve, 'another tenant' ], [ $bob, 'another user' ]) {
        my ($who, $name) = @$case;

        for my $route (@routes) {
            my ($method, $path, $body) = @$route;

            # what a request lacks may be told before whose it is
            $path =~ s/\{id\}/$mine/;
            $path =~ s/\{path\}/x/;
            $path =~ s/\{\w+\}/7/g;
            $path .= '?glob=*' if $method eq 'GET' && $path =~ /files$/;
            $path .= '?path=x' if $method ne 'GET' && $path =~ /files$/;

            my %fields = $path =~ /exec$/ ? (cmd => 'true')
                       : $path =~ /install$/ ? (packages => [ 'x' ]) : ();
            my $res = by_header($who, $method => "/$path",
                                $body eq 'JSON' ? \%fields : undef);

            next if $res->{status} == 400 && $path !~ /exec$|files/;
            is($res->{status}, 404, "$name: $method $path")
                or diag($res->{body});
            is($res->{json}{code}, 'E2009', 'and not because of a file')
                if $method ne 'HEAD';
        }
    }

    is($t->api(GET => "/sessions/$mine")->{status}, 200,
       'a location that asks not who sees it');
    is(by_header($alice, GET => "/sessions/$mine")->{status}, 200,
       'and so does its owner');

    my @cases = (
        [ $alice, '', $mine ], [ $bob, '', $his ], [ $eve, '', $evils ],
        [ $alice, '?tenant_id=acme', $mine ],
        [ $alice, '?tenant_id=evil', '' ], [ $alice, '?user_id=bob', '' ],
        [ $eve, '?tenant_id=acme&user_id=alice', '' ],
    );

    for my $case (@cases) {
        my ($who, $query, $want) = @$case;
        my $res = by_header($who, GET => "/sessions$query");
        is($res->{status} . join(' ', '', map { $_->{session_id} }
                                 @{ $res->{json}{sessions} || [] }),
           $want eq '' ? 200 : "200 $want",
           "a list of " . join('/', values %$who) . $query);
    }

    my $res = ask('/tenant-only', as('acme'), GET => '/sessions');
    is(@{ $res->{json}{sessions} }, 2, 'a tenant sees all of its users');
    is_refused(ask('/tenant-only', as('acme'), POST => '/sessions', {}),
               '400 E3001', 'and must say for which it creates');
    $res = ask('/tenant-only', as('acme'), POST => '/sessions',
               { user_id => 'dave' });
    is("$res->{json}{tenant_id} $res->{json}{user_id}", 'acme dave',
       'which it may choose');
    is(ask('/tenant-only', as('acme'), DELETE =>
           "/sessions/$res->{json}{session_id}")->{status}, 204, 'destroyed');

    is(by_header($alice, DELETE => "/sessions/$mine")->{status}, 204,
       'the owner ends it');
    is(by_header($alice, GET => "/sessions/$mine")->{json}{ended},
       'destroyed', 'and is told so later');
    ok(!exists by_header($eve, GET => "/sessions/$mine")->{json}{ended},
       'which others are not');
    is(by_header($bob, DELETE => "/sessions/$his")->{status}, 204, 'bob');
    is(by_header($eve, DELETE => "/sessions/$evils")->{status}, 204, 'eve');
};


subtest 'who is nobody' => sub {
    is_refused(by_header({}, GET => '/sessions'), '401 E1001', 'no header');
    is_refused(by_header({ 'X-Tenant' => 'acme' }, GET => '/sessions'),
               '401 E1001', 'half of it');
    is_refused(by_header({}, POST => '/sessions',
                         { tenant_id => 'acme', user_id => 'alice' }),
               '401 E1001', 'a body is no identity');

    for my $name ('-a', 'a b', 'a/b', 'a' x 129, "\x{c3}\x{a9}", '..') {
        my $res = by_header(as($name, 'x'), GET => '/sessions');
        is_refused($res, '401 E1001', "the tenant $name");
        like($res->{json}{detail}, qr/letter or digit/, 'with the reason');
    }

    is(by_header({}, GET => '/health')->{status}, 200,
       'whether the server lives may be asked by anybody');
    is_refused(by_header({}, GET => '/doctor'), '401 E1001',
               'what it is made of may not');
};


subtest 'a password' => sub {
    my $as = sub { return { Authorization => 'Basic '
                            . encode_base64("$_[0]:$_[1]", '') } };
    my $in = sub { return ask('/by-password', @_) };

    is($in->({}, GET => '/sessions')->{status}, 401, 'none');
    is($in->($as->('alice', 'wrong'), GET => '/sessions')->{status}, 401,
       'a wrong one');

    my $res = $in->($as->('alice', 'secret'), POST => '/sessions', {});
    is("$res->{json}{tenant_id} $res->{json}{user_id}", 'team alice',
       'the right one tells who');
    my $id = $res->{json}{session_id};
    is_refused($in->($as->('bob', 'secret'), GET => "/sessions/$id"),
               '404 E2009', 'another user has another');
    is($in->($as->('alice', 'secret'), DELETE => "/sessions/$id")->{status},
       204, 'destroyed');
};


subtest 'auth_request' => sub {
    my $in = sub { return ask('/by-request', { 'X-Token' => $_[0] },
                              @_[1 .. $#_]) };

    is($in->('bad', GET => '/sessions')->{status}, 401, 'a bad token');

    my $res = $in->('good', POST => '/sessions', {});
    is("$res->{json}{tenant_id} $res->{json}{user_id}", 'token-corp carol',
       'a good one tells who') or diag($res->{body});
    is($in->('good', DELETE => "/sessions/$res->{json}{session_id}")
           ->{status}, 204, 'destroyed');
    is_refused($in->('empty', GET => '/sessions'), '401 E1001',
               'one that tells nobody');
};


subtest 'a client certificate' => sub {
    plan(skip_all => 'openssl or curl is not installed') if !$tls;

    my $in = sub {
        my ($name, $method, $path, $body) = @_;
        my @c = ('curl', '-s', '--max-time', '20', '--cacert', "$PKI/ca.pem",
                 '--resolve', "localhost:$tls_port:127.0.0.1",
                 '-X', $method, '-w', '\n%{http_code}');

        push @c, '--cert', "$PKI/$name.pem", '--key', "$PKI/$name.key"
            if $name;
        push @c, '-H', 'Content-Type: application/json', '-d', $body
            if defined $body;

        open my $out, '-|', @c, "https://localhost:$tls_port/v1$path"
            or die $!;
        my $all = join '', <$out>;
        close $out;

        my ($text, $status) = $all =~ /\A(.*)\n(\d+)\z/s;

        return { status => $status, body => $text,
                 json => scalar eval { $JSON->decode($text) } };
    };

    is($in->(undef, GET => '/sessions')->{status}, 401, 'none');
    is_refused($in->('mallory', GET => '/sessions'), '401 E1001',
               'one of another authority');

    my $res = $in->('alice', POST => '/sessions', '{}');
    is("$res->{json}{tenant_id} $res->{json}{user_id}", 'acme-corp svc',
       'a good one tells who') or diag($res->{body});
    is($in->('alice', DELETE => "/sessions/$res->{json}{session_id}")
           ->{status}, 204, 'destroyed');
    is_refused($in->('alice', POST => '/sessions', '{"tenant_id":"other"}'),
               '403 E1002', 'another cannot be named');
    is_refused($in->('odd', GET => '/sessions'), '401 E1001',
               'a name that is no tenant');
};


subtest 'what nginx refuses by itself' => sub {
    is_refused($t->api(GET => '/sessions', undef, base => '/denied'),
               '403 E1002', 'allow and deny');

    my @codes = map { $t->api(GET => '/sessions', undef, base => '/rated')
                      ->{status} } 1 .. 4;
    is("@codes", '200 200 503 503', 'limit_req');

    my $id = $t->session;
    my $job = async { $t->api(POST => "/sessions/$id/exec",
                              { cmd => 'touch began; while [ ! -e go ]; do '
                                       . 'sleep 0.05; done' },
                              base => '/one-at-a-time') };
    ok(until_true(sub { $t->http(HEAD => "/v1/sessions/$id/files/began")
                        ->{status} == 200 }, 10), 'a command runs');
    is($t->api(GET => "/sessions/$id", undef, base => '/one-at-a-time')
           ->{status}, 503, 'limit_conn');
    $t->http(PUT => "/v1/sessions/$id/files/go", body => '');
    is($job->get->{status}, 200, 'the one goes on');
    is($t->api(GET => "/sessions/$id", undef, base => '/one-at-a-time')
           ->{status}, 200, 'and then the next');
    $t->api(DELETE => "/sessions/$id");
};


subtest 'the admin API has an identity, too' => sub {
    is_refused(ask('/boss', {}, GET => '/settings'), '401 E1001', 'nobody');
    my $res = ask('/boss', { 'X-User' => 'root' }, PUT => '/quotas/x',
                  { sessions => 1 });
    is($res->{json}{changed_by}, 'root', 'who changes is known');
    is(ask('/boss', { 'X-User' => 'root' }, DELETE => '/quotas/x')->{status},
       204, 'removed');
};


subtest 'the log warns where nobody is asked' => sub {
    is($t->log_has(qr/\[warn\].*sandbox_tenant/), 1, 'once');

    my $asked = SandboxTest->new(http => '    sandbox_tenant $http_x_t;',
                                 ready => '/v1/health')->start;
    is($asked->log_has(qr/\[warn\].*sandbox_tenant/), 0,
       'and not where all are');
    $asked->finish;
};


$t->finish;
done_testing();
