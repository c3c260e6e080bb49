#!/usr/bin/perl

# The configurations of conf/identity/, as they are but for addresses and the
# paths of keys and passwords: who is let in as whom, and that what nginx
# refuses by itself has the API's form.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";

use File::Temp qw(tempdir);
use JSON::PP ();
use MIME::Base64 qw(encode_base64);
use Test::More;
use SandboxTest;
use SandboxTest::More;

my $JSON = JSON::PP->new->utf8->canonical;
my $KEYS = tempdir('sbxkeysXXXXXX', DIR => '/tmp', CLEANUP => 1);
my %PORT;

chmod 0755, $KEYS;

sub have {
    my ($program) = @_;

    return grep { -x "$_/$program" } split /:/, $ENV{PATH};
}

my $tls = have('openssl') && have('curl');

sub openssl {
    my (@args) = @_;

    return system("openssl @args >/dev/null 2>>'$KEYS/log'") == 0
           || die "openssl @args\n";
}

sub make_keys {
    for my $ca ('clients-ca', 'other-ca') {
        openssl("req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=$ca",
                "-keyout $KEYS/$ca.key -out $KEYS/$ca.pem");
    }

    for my $case ([ server => 'localhost', 'clients-ca' ],
                  [ acme => 'acme-corp', 'clients-ca' ],
                  [ comma => 'eve/OU=x,CN=acme-corp', 'clients-ca' ],
                  [ mallory => 'acme-corp', 'other-ca' ])
    {
        my ($name, $cn, $ca) = @$case;

        openssl("req -newkey rsa:2048 -nodes -subj '/CN=$cn'",
                "-keyout $KEYS/$name.key -out $KEYS/$name.csr");
        openssl("x509 -req -days 2 -in $KEYS/$name.csr -CA $KEYS/$ca.pem",
                "-CAkey $KEYS/$ca.key -CAcreateserial -out $KEYS/$name.pem");
    }

    return;
}

sub make_passwords {
    my ($file, @names) = @_;

    open my $f, '>', "$KEYS/$file" or die "$file: $!";
    print $f "$_:", crypt('secret', '$6$saltsalt$'), "\n" for @names;
    close $f;

    return;
}

make_keys() if $tls;
make_passwords('htpasswd', 'alice', 'bob');
make_passwords('admin.htpasswd', 'root');
chmod 0644, glob "$KEYS/*";

my @files = grep { $tls || !/certificates/ }
            glob "$SandboxTest::ROOT/conf/identity/*.conf";
my $conf = '';

# The service that knows tokens, and each file.

$PORT{tokens} = SandboxTest::free_port();

for my $file (@files) {
    my ($name) = $file =~ m{(\w+)\.conf$};
    my $text = SandboxTest::slurp($file);
    my $port = $PORT{$name} = SandboxTest::free_port();

    is(() = $text =~ s/listen (?:127\.0\.0\.1:)?\d+/listen 127.0.0.1:$port/g,
       1, "$name.conf has one address");
    $text =~ s{/etc/nginx/sandbox/}{$KEYS/}g;
    $text =~ s{127\.0\.0\.1:9000}{127.0.0.1:$PORT{tokens}};
    $text =~ s/^    server \{/  server {/mg;
    $text =~ s/^/  /mg;
    $conf .= $text;
}

my $t = SandboxTest->new(http => $conf . <<"CONF")->start;
  server {
      listen 127.0.0.1:$PORT{tokens};

      location = /check {
          if (\$http_authorization = "Bearer good") { return 204; }
          if (\$http_authorization = "Bearer barred") { return 403; }
          return 401;
      }
  }
CONF


sub ask {
    my ($name, $method, $path, $headers, $json) = @_;

    my %h = (Host => 'localhost', Connection => 'close', %{ $headers || {} });
    my %o;

    if ($json) {
        $h{'Content-Type'} = 'application/json';
        $o{body} = $JSON->encode($json);
    }

    my $c = SandboxTest::Connection->new(port => $PORT{$name}, timeout => 30);
    my $res = $c->request($method, $path, %o, headers => \%h);

    $c->close;
    $res->{json} = eval { $JSON->decode($res->{body}) };

    return $res;
}

sub basic {
    my ($user, $password) = @_;

    return { Authorization => 'Basic '
             . encode_base64("$user:" . ($password // 'secret'), '') };
}

sub whose {
    my ($res) = @_;

    return join ' ', $res->{status}, map { $res->{json}{$_} // '-' }
                                     qw(tenant_id user_id);
}

sub gone {
    my ($name, $headers, $res) = @_;

    return ask($name, DELETE => "/v1/sessions/$res->{json}{session_id}",
               $headers)->{status};
}


subtest 'certificates.conf' => sub {
    plan(skip_all => 'openssl or curl is not installed') if !$tls;

    my $curl = sub {
        my ($name, $scheme, $method, $path, $body) = @_;
        my @c = ('curl', '-sS', '-i', '--max-time', '30', '--http1.1',
                 '--cacert', "$KEYS/clients-ca.pem", '-X', $method,
                 '--resolve', "localhost:$PORT{certificates}:127.0.0.1");

        push @c, '--cert', "$KEYS/$name.pem", '--key', "$KEYS/$name.key"
            if $name;
        push @c, '-H', 'Content-Type: application/json', '-d', $body
            if defined $body;

        open my $out, '-|', @c,
            "$scheme://localhost:$PORT{certificates}$path" or die $!;
        my $all = join '', <$out>;
        close $out;

        my ($head, $text) = split /\r\n\r\n/, $all, 2;
        my ($status) = $head =~ m{^HTTP/\S+ (\d+)};
        my %h = map { /^([^:]+): (.*)/ ? (lc $1 => $2) : () }
                split /\r\n/, $head;

        return { status => $status, headers => \%h, body => $text,
                 json => scalar eval { $JSON->decode($text) } };
    };

    is_problem($curl->(undef, 'https', GET => '/v1/sessions'), 401, 'E1001',
               'no certificate');
    is_problem($curl->('mallory', 'https', GET => '/v1/sessions'), 401,
               'E1001', 'one of another authority');
    is_problem($curl->(undef, 'http', GET => '/v1/sessions'), 400, 'E3001',
               'no TLS');

    my $res = $curl->('acme', 'https', POST => '/v1/sessions',
                      '{"user_id":"ci"}');
    is(whose($res), '201 acme-corp ci', 'the name in it is the tenant');
    is_problem($curl->('acme', 'https', POST => '/v1/sessions',
                       '{"tenant_id":"other","user_id":"ci"}'), 403, 'E1002',
               'another cannot be named');

    my $eve = $curl->('comma', 'https', POST => '/v1/sessions',
                      '{"tenant_id":"acme-corp","user_id":"ci"}');
    is_problem($eve, 403, 'E1002', 'a comma in another value is no name',
               qr/"eve"/);
    is($curl->('acme', 'https', DELETE =>
               "/v1/sessions/$res->{json}{session_id}")->{status}, 204,
       'destroyed');
};


subtest 'passwords.conf' => sub {
    my $res = ask('passwords', GET => '/v1/sessions');
    is_problem($res, 401, 'E1001', 'none');
    like($res->{headers}{'www-authenticate'} // '', qr/^Basic realm/,
         'and how it can be sent');
    ok($res->{headers}{'x-request-id'}, 'with an id');
    is_problem(ask('passwords', GET => '/v1/sessions',
                   basic('alice', 'wrong')), 401, 'E1001', 'a wrong one');
    is_problem(ask('passwords', GET => '/v1/health'), 401, 'E1001',
               'here the password is before everything');

    $res = ask('passwords', POST => '/v1/sessions', basic('alice'), {});
    is(whose($res), '201 team alice', 'the right one tells who');
    is_problem(ask('passwords', GET =>
                   "/v1/sessions/$res->{json}{session_id}", basic('bob')),
               404, 'E2009', 'which nobody else is');
    is(gone('passwords', basic('alice'), $res), 204, 'destroyed');
};


subtest 'request.conf' => sub {
    my $token = sub { return { Authorization => "Bearer $_[0]" } };

    is_problem(ask('request', GET => '/v1/sessions'), 401, 'E1001', 'none');
    is_problem(ask('request', GET => '/v1/sessions', $token->('bad')), 401,
               'E1001', 'a wrong one');
    is_problem(ask('request', GET => '/v1/sessions', $token->('barred')),
               403, 'E1002', 'one that is barred');
    is_problem(ask('request', GET => '/v1/sessions', $token->('good')), 401,
               'E1001', 'one whose owner is not told', qr/tenant/);

    $t->write_conf(http => $t->{http}
        =~ s/return 204;/add_header X-Tenant token-corp;
                         add_header X-User carol;
                         return 204;/r);
    ok($t->reload, 'one whose owner is');

    my $res = ask('request', POST => '/v1/sessions', $token->('good'), {});
    is(whose($res), '201 token-corp carol', 'becomes him');
    is_problem(ask('request', POST => '/v1/run', $token->('good'),
                   { tenant_id => 'other', steps => [ { cmd => 'true' } ] }),
               403, 'E1002', 'and nobody else');
    is(gone('request', $token->('good'), $res), 204, 'destroyed');

    $t->allow(qr/connect\(\) failed|upstream|auth request unexpected status/);
    $t->write_conf(http => $t->{http}
        =~ s/127\.0\.0\.1:$PORT{tokens}\/check/127.0.0.1:1\/check/r);
    ok($t->reload, 'a service that is not there');
    is_problem(ask('request', GET => '/v1/sessions', $token->('good')), 500,
               'E5002', 'lets nobody in');
};


subtest 'networks.conf' => sub {
    my $res = ask('networks', POST => '/v1/sessions', undef,
                  { user_id => 'ann' });

    is(whose($res), '201 this-machine ann', 'an address tells who');
    is_problem(ask('networks', POST => '/v1/sessions', undef,
                   { tenant_id => 'acme-corp', user_id => 'ann' }), 403,
               'E1002', 'and nobody else');
    is(gone('networks', undef, $res), 204, 'destroyed');

    $t->write_conf(http => $t->{http} =~ s/allow 127\.0\.0\.0\/8;//r);
    ok($t->reload, 'another network');
    is_problem(ask('networks', GET => '/v1/sessions'), 403, 'E1002',
               'is refused');
};


subtest 'rates.conf' => sub {
    my $http = $t->{http};

    # as shipped it is not in the way

    my %seen;

    $seen{ ask('rates', GET => '/v1/sessions')->{status} }++ for 1 .. 40;
    is_deeply(\%seen, { 200 => 40 }, 'within the rate');

    $t->write_conf(http => $http =~ s/rate=50r\/s/rate=1r\/m/r
                                 =~ s/burst=100 nodelay/burst=1 nodelay/r
                                 =~ s/zone=sandbox_rate/zone=rate_2/gr);
    ok($t->reload, 'a small one');

    my @res = map { ask('rates', GET => '/v1/sessions') } 1 .. 4;
    is(join(' ', map { $_->{status} } @res), '200 200 503 503',
       'holds an address to it');
    is_problem($res[3], 503, 'E2004', 'in the form of the API');
    is($res[3]{headers}{'retry-after'}, 1, 'with when to come again');

    $t->write_conf(http => $http =~ s/sandbox_conn 64/sandbox_conn 1/r);
    ok($t->reload, 'one request at once');

    my $id = $t->session;
    my $job = async { ask('rates', POST => "/v1/sessions/$id/exec", undef,
                          { cmd => 'touch began; while [ ! -e go ]; do '
                                   . 'sleep 0.05; done' }) };
    ok(until_true(sub { $t->http(HEAD => "/v1/sessions/$id/files/began")
                        ->{status} == 200 }, 10), 'a command runs');
    is_problem(ask('rates', GET => '/v1/sessions'), 503, 'E2004',
               'a second is refused');
    $t->http(PUT => "/v1/sessions/$id/files/go", body => '');
    is($job->get->{status}, 200, 'the first goes on');
    $t->api(DELETE => "/sessions/$id");
};


subtest 'admin.conf' => sub {
    is_problem(ask('admin', GET => '/admin/settings'), 401, 'E1001',
               'no password');

    my $res = ask('admin', PUT => '/admin/quotas/acme', basic('root'),
                  { sessions => 9 });
    is("$res->{status} " . ($res->{json}{changed_by} // ''), '200 root',
       'changes have a name');
    is(ask('admin', GET => '/admin/quotas', basic('root'))
       ->{json}{quotas}[0]{changed_by}, 'root', 'that is kept');
    is(ask('admin', DELETE => '/admin/quotas/acme', basic('root'))->{status},
       204, 'removed');
    is(ask('admin', GET => '/metrics')->{status}, 200, 'metrics');
    is(ask('admin', GET => '/status/')->{status}, 200, 'the status page');
};


$t->finish;
done_testing();
