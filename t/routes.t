#!/usr/bin/perl

# What every route of docs/openapi.yaml answers where a session is paused,
# another's, over or was never there, and where nobody says who he is; that
# each of these answers is documented for its route; and ports by name.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib", "$FindBin::Bin/lib/openapi";

use JSON::PP ();
use Test::More;
use SandboxTest::More;

plan(skip_all => 'YAML::XS is not installed (libyaml-libyaml-perl)')
    if !eval { require OpenAPI };

my $NAMES = SandboxTest::free_port();

# Indented otherwise than the shipped server, which the library looks for.

my $t = server(extra => <<'CONF', http => <<"NAMES");
        location /own/ {
            sandbox_tenant $http_x_tenant;
            sandbox_user $http_x_user;
            sandbox_api v1;
        }

        location /boss/ {
            sandbox_user $http_x_user;
            sandbox_api admin;
        }
CONF
  server {
      listen 127.0.0.1:$NAMES;
      server_name *.ports.test;
      include sandbox-errors.conf;

      location / {
          sandbox_tenant \$http_x_tenant;
          sandbox_user \$http_x_user;
          sandbox_port_host ports.test;
      }
  }
NAMES

my $doc = OpenAPI->load("$SandboxTest::ROOT/docs/openapi.yaml");
my %op = map { $_->{id} => $_ } $doc->operations;
my @of_session = sort { $a->{id} cmp $b->{id} }
                 grep { $_->{path} =~ m{^/sessions/\{session_id\}} }
                 values %op;

my %ALICE = ('X-Tenant' => 'acme', 'X-User' => 'alice');
my %BOB = ('X-Tenant' => 'acme', 'X-User' => 'bob');
my %EVE = ('X-Tenant' => 'evil', 'X-User' => 'alice');

# What a route needs so that nothing but the session can be wrong.

my %JSON_OF = (
    createSession => {},
    run => { steps => [ { cmd => 'true' } ] },
    patchSession => { metadata => {} },
    exec => { cmd => 'touch /tmp/has-run' },
    runCode => { code => 'open("/tmp/has-run", "w")' },
    install => { packages => [ 'x' ] },
    signalProcess => { signal => 15 },
    resizeProcess => { rows => 1, cols => 1 },
    makeDirectory => { path => 'made' },
    moveFile => { from => 'kept', to => 'moved' },
    searchFiles => { pattern => 'x' },
    changeSettings => { quotas => { user => { sessions => 7 } } },
    setQuota => { sessions => 7 },
    setUserQuota => { sessions => 7 },
);
my %UPGRADE = (Connection => 'Upgrade', Upgrade => 'websocket',
               'Sec-WebSocket-Version' => 13,
               'Sec-WebSocket-Key' => 'dGhlIHNhbXBsZSBub25jZQ==');


sub ask {
    my ($op, $id, $base, %headers) = @_;

    my %in = (session_id => $id, path => 'kept', pid => 7, port => 8080,
              rest => 'x', name => 'report', tenant_id => 'someone',
              user_id => 'sometimes', context_id => 'python');
    my $path = $op->{path} =~ s{^/admin}{}r;

    $path =~ s/\{(\w+)\}/$in{$1}/g;
    $path .= '?path=kept' if $op->{id} =~ /ByQuery/;
    $path .= '?tenant_id=someone' if $op->{id} eq 'destroyTenantSessions';
    %headers = (%headers, %UPGRADE) if $op->{id} eq 'terminal';

    my $json = $JSON_OF{ $op->{id} };

    return $t->http(HEAD => "$base$path", headers => \%headers)
        if $op->{method} eq 'HEAD';

    return $t->api($op->{method}, $path, $json, base => $base,
                   headers => \%headers,
                   $op->{method} eq 'PUT' && !$json ? (body => 'new') : (),
                   $op->{id} eq 'writeStdin' ? (body => 'x') : ());
}


sub by_name {
    my ($id, %headers) = @_;

    my $c = SandboxTest::Connection->new(port => $NAMES, timeout => 30);
    my $res = $c->request(GET => '/', headers => {
        Host => "8080-$id.ports.test", Connection => 'close', %headers });

    $c->close;
    $res->{json} = eval { JSON::PP->new->utf8->decode($res->{body}) };

    return $res;
}


# The status and code, and that the document has both for this route.

sub answers {
    my ($op, $res, $want, $name) = @_;

    local $Test::Builder::Level = $Test::Builder::Level + 1;

    my ($status, $code) = split / /, $want;
    my $head = $op->{method} eq 'HEAD';
    my @faults = $doc->response($op, $res);

    push @faults, "$status is not in the document"
        if !$op->{responses}{ $res->{status} };

    my $got = $res->{status} . ($code && !$head
                                ? ' ' . ($res->{json}{code} // '') : '');

    is($got, $head ? $status : $want, "$op->{id}: $name")
        or return diag($res->{body});
    is(join('; ', @faults), '', '  as documented');

    return;
}


sub owned {
    return $t->api(POST => '/sessions',
                   { manifest => { capabilities => [qw(shell files code ports)] } },
                   base => '/own', headers => \%ALICE)->{json}{session_id};
}

# What will be has no session to look at.

my %reserved = map { $_ => 1 } qw(listCommands listEndpoints runCommand);


subtest 'a paused session' => sub {
    if (!call('GET', '/capabilities')->{json}{pause}{enforced}) {
        plan(skip_all => 'this machine has no cgroup.freeze');
    }

    my $id = owned();
    my %open = map { $_ => 200 }
               qw(getSession patchSession pauseSession);

    put($id, 'kept', 'as it was');
    is(call('POST', "/sessions/$id/pause")->{status}, 200, 'is paused');

    for my $op (@of_session) {
        next if $op->{id} =~ /^(?:resume|destroy)Session$/;

        answers($op, ask($op, $id, '/own', %ALICE),
                $open{ $op->{id} } // ($reserved{ $op->{id} } ? '501 E5003'
                                                              : '409 E2010'),
                'while it is paused');
    }

    is_problem($t->api($_ => "/sessions/$id/ports/8080/", undef,
                       base => '/own', headers => \%ALICE), 409, 'E2010',
               "$_ to a port") for qw(POST PUT DELETE OPTIONS PURGE);
    is_problem(by_name($id, %ALICE), 409, 'E2010', 'a port by name');
    is_problem(call('GET', "/sessions/$id/ports/8080/",
                    headers => \%UPGRADE), 409, 'E2010', 'a WebSocket');

    answers($op{resumeSession}, ask($op{resumeSession}, $id, '/own', %ALICE),
            200, 'wakes it');
    is(get($id, 'kept')->{body}, 'as it was', 'nothing has been done');
    is(run($id, 'ls; ls /tmp')->{stdout}, "kept\n", 'at all');
    answers($op{destroySession}, ask($op{destroySession}, $id, '/own',
                                     %ALICE), 204, 'ends it');
};


subtest 'a session of somebody else' => sub {
    my $id = owned();

    put($id, 'kept', 'as it was');

    for my $case ([ 'another tenant', %EVE ], [ 'another user', %BOB ]) {
        my ($name, %who) = @$case;

        answers($_, ask($_, $id, '/own', %who),
                $reserved{ $_->{id} } ? '501 E5003' : '404 E2009',
                "for $name") for @of_session;
        is_problem(by_name($id, %who), 404, 'E2009',
                   "a port by name for $name");
        is_problem($t->api(GET => "/sessions/$id/ports/8080/", undef,
                           base => '/own', headers => { %who, %UPGRADE }),
                   404, 'E2009', "a WebSocket for $name");
    }

    is(get($id, 'kept')->{body}, 'as it was', 'nothing has been done');
    is(call('GET', "/sessions/$id")->{json}{status}, 'running', 'to it');

    # its owner is told that nothing listens, others that there is nothing

    is_problem(by_name($id, %ALICE), 502, 'E5002', 'its owner gets there');

    destroy($id);

    for my $op (grep { !$reserved{ $_->{id} } } @of_session) {
        my $res = ask($op, $id, '/own', %ALICE);

        answers($op, $res, '404 E2009', 'once it is over');
        is($res->{json}{ended}, 'destroyed', '  the owner is told how')
            if $op->{method} ne 'HEAD';

        $res = ask($op, $id, '/own', %EVE);
        answers($op, $res, '404 E2009', 'for others once it is over');
        ok(!exists(($res->{json} // {})->{ended}), '  nobody else is');

        answers($op, ask($op, 'i' . '0' x 25, '/own', %ALICE), '404 E2009',
                'where there was none');
    }

    is_problem(by_name($id, %ALICE), 404, 'E2009', 'a port by name');
};


subtest 'nobody' => sub {
    my $id = owned();

    for my $op (sort { $a->{id} cmp $b->{id} } values %op) {
        next if $op->{path} =~ m{^/(?:admin|status)/} || $op->{id} eq 'health';

        answers($op, ask($op, $id, '/own'), '401 E1001', 'without a name');
        answers($op, ask($op, $id, '/own', 'X-Tenant' => 'acme'),
                '401 E1001', 'with half of one');
    }

    is_problem(by_name($id), 401, 'E1001', 'a port by name');
    is(call('GET', "/sessions/$id")->{json}{status}, 'running',
       'nothing has been done');
    destroy($id);
};


subtest 'the admin API' => sub {
    for my $op (sort { $a->{id} cmp $b->{id} }
                grep { $_->{path} =~ m{^/admin/} } values %op)
    {
        answers($op, ask($op, '', '/boss'), '401 E1001', 'nobody');

        next if $op->{method} eq 'GET';

        answers($op, ask($op, '', '/boss', 'X-User' => 'root',
                         Origin => 'http://evil.example'), '403 E1002',
                'a page of somebody\'s');
    }

    my $res = $t->api(GET => '/quotas/someone', undef, base => '/boss',
                      headers => { 'X-User' => 'root' });
    is($res->{json}{override}, undef, 'nothing has been changed');
};


subtest 'POST /run binds as a create does' => sub {
    my %steps = (steps => [ { cmd => 'echo ran' } ]);
    my $run = sub {
        my ($body, %who) = @_;
        return $t->api(POST => '/run', { %steps, %$body }, base => '/own',
                       headers => \%who);
    };

    for my $case ([ 'another tenant', { tenant_id => 'evil' } ],
                  [ 'another user', { user_id => 'bob' } ],
                  [ 'both', { tenant_id => 'evil', user_id => 'bob' } ],
                  [ 'an empty tenant', { tenant_id => '' } ])
    {
        my ($name, $body) = @$case;
        answers($op{run}, $run->($body, %ALICE), '403 E1002', $name);
    }

    for my $body ({}, { tenant_id => 'acme' },
                  { tenant_id => 'acme', user_id => 'alice' })
    {
        my $res = $run->($body, %ALICE);
        is($res->{status} . ' ' . ($res->{json}{steps}[0]{stdout} // ''),
           "200 ran\n", 'who says nothing, or what he is, may')
            or diag($res->{body});
    }

    # its session is the caller's, and nobody else's

    $steps{steps} = [ { cmd => 'touch began; while [ ! -e go ]; do'
                               . ' sleep 0.05; done' } ];
    my $job = async { $run->({}, %ALICE) };
    my $id;

    ok(until_true {
        my $list = $t->api(GET => '/sessions', undef, base => '/own',
                           headers => \%ALICE)->{json}{sessions};
        $id = ($list->[0] // {})->{session_id};
        $id && head($id, 'began')->{status} == 200
    }, 'its owner sees it run');

    is_deeply($t->api(GET => '/sessions', undef, base => '/own',
                      headers => \%BOB)->{json}{sessions}, [],
              'another user does not');
    is($t->api(PUT => "/sessions/$id/files/go", undef, base => '/own',
               headers => \%EVE, body => '')->{status}, 404,
       'nor does another tenant');
    put($id, 'go', '');
    is($job->get->{status}, 200, 'it ends');
};


$t->finish;
done_testing();
