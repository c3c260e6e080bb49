#!/usr/bin/perl

# More at once than a quota has room for, by two workers: exactly as many as
# there is room for, whatever is counted and by whatever call.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";

use Test::More;
use SandboxTest;
use SandboxTest::More;

my $t = SandboxTest->new(
    quotas => 1,
    workers => 2,
    http => <<'CONF',
    sandbox_template small {
        memory 32MB;
        timeout 60;
    }
    sandbox_quota organization=capped memory=100MB;
    sandbox_quota organization=by-sessions sessions=4;
    sandbox_quota user=by-user/one sessions=3;
    sandbox_quota organization=by-memory memory=200MB;
    sandbox_quota organization=by-cpus cpus=1;
    sandbox_quota organization=by-disk disk=50MB;
    sandbox_quota organization=by-commands commands=3;
    sandbox_quota organization=by-run sessions=2;
CONF
    server => <<'CONF',
        location /admin/ {
            sandbox_api admin;
        }
CONF
    edit => sub { s/(listen [^;]*);/$1 reuseport;/ },
)->start;

my %SIZE = (memory => '40MB', disk => '10MB', cpus => 0.25);

sub used {
    my ($name) = @_;

    return $t->api(GET => "/quotas/$name", undef, base => '/admin')
           ->{json}{used};
}

sub make {
    my ($tenant, $user) = @_;

    return $t->api(POST => '/sessions',
                   { tenant_id => $tenant, user_id => $user // 'one',
                     manifest => { resources => { %SIZE } } });
}

sub tally {
    my %n;

    $n{ $_->{status} }++ for @_;

    return join ' ', map { "$_:$n{$_}" } sort keys %n;
}

sub refusals_say {
    my ($scope, $resource, $limit, @res) = @_;

    my %said = map { join(' ', map { $_ // '-' } @{ $_->{json} }
                                   {qw(code scope resource limit)}) => 1 }
               grep { $_->{status} == 429 } @res;

    is(join('; ', sort keys %said), "E2003 $scope $resource $limit",
       'each refusal says of what');
    is(scalar(grep { $_->{status} == 429
                     && ($_->{headers}{'retry-after'} // '') !~ /^[1-9]\d*$/ }
              @res), 0, 'and when to come again');

    return;
}


for my $case (
    [ 'by-sessions', 'organization', 'sessions', 4, 4 ],
    [ 'by-user', 'user', 'sessions', 3, 3 ],
    [ 'by-memory', 'organization', 'memory', 200 << 20, 5 ],
    [ 'by-cpus', 'organization', 'cpus', 1, 4 ],
    [ 'by-disk', 'organization', 'disk', 50 << 20, 5 ])
{
    my ($tenant, $scope, $resource, $limit, $n) = @$case;

    subtest "sessions, $tenant" => sub {
        my @jobs = map { async { make($tenant) } } 1 .. $n + 4;
        my @res = map { $_->get } @jobs;
        my @ids = map { $_->{json}{session_id} }
                  grep { $_->{status} == 201 } @res;

        is(tally(@res), "201:$n 429:4", 'exactly as many as fit');
        refusals_say($scope, $resource, $limit, @res);
        is(used($tenant)->{sessions}, $n, 'which are counted');

        # one goes, and of four that come at once one fits

        my $gone = pop @ids;
        is($t->api(DELETE => "/sessions/$gone")->{status}, 204, 'one ends');

        @jobs = map { async { make($tenant) } } 1 .. 4;
        @res = map { $_->get } @jobs;
        is(tally(@res), '201:1 429:3', 'one takes its place');
        push @ids, map { $_->{json}{session_id} }
                   grep { $_->{status} == 201 } @res;

        @jobs = map { my $id = $_; async {
            $t->api(DELETE => "/sessions/$id")->{status} } } @ids;
        is(join(' ', map { $_->get } @jobs), join(' ', (204) x @ids),
           'all end at once');

        my $used = used($tenant);
        is(join(' ', map { $used->{$_} } qw(sessions memory cpus disk)),
           '0 0 0 0', 'and all is given back');
    };
}


subtest 'commands that run' => sub {
    my @ids = map { make('by-commands')->{json}{session_id} } 1 .. 2;
    my $cmd = 'while [ ! -e go ]; do sleep 0.05; done';
    my @jobs = map { my $id = $ids[$_ % 2]; async {
        $t->api(POST => "/sessions/$id/exec", { cmd => $cmd }) } } 1 .. 7;

    # whoever is refused is so at once, the others wait

    ok(until_true(sub { 4 == grep { $_->ready } @jobs }, 20),
       'all but three are answered');
    is(used('by-commands')->{commands}, 3, 'three run');
    $t->http(PUT => "/v1/sessions/$_/files/go", body => '') for @ids;

    my @res = map { $_->get } @jobs;
    is(tally(@res), '200:3 429:4', 'exactly as many as may');
    refusals_say('organization', 'commands', 3, @res);
    is(used('by-commands')->{commands}, 0, 'none runs any more');

    # in the background as well

    @res = map { $t->api(POST => "/sessions/$ids[0]/exec",
                         { cmd => 'sleep 1000',
                           background => JSON::PP::true }) } 1 .. 4;
    is(tally(@res), '202:3 429:1', 'in the background as well');
    $t->api(POST => "/sessions/$ids[0]/cancel");
    ok(until_true(sub { used('by-commands')->{commands} == 0 }, 10),
       'until they are cancelled');
    $t->api(DELETE => "/sessions/$_") for @ids;
};


subtest 'POST /run' => sub {
    my $run = sub {
        my ($cmd, %o) = @_;
        return $t->api(POST => '/run',
                       { tenant_id => 'by-run', user_id => 'one',
                         manifest => { resources => { %SIZE } },
                         steps => [ { cmd => $cmd } ], %o });
    };
    my @jobs = map { async { $run->('sleep 3; echo ran') } } 1 .. 5;
    my @res = map { $_->get } @jobs;

    is(tally(@res), '200:2 429:3', 'exactly as many as fit');
    refusals_say('organization', 'sessions', 2, @res);
    is(join('', map { $_->{json}{steps}[0]{stdout} // '' } @res),
       "ran\nran\n", 'and those have run');
    is(used('by-run')->{sessions}, 0, 'nothing is left');

    # what is refused before or after it has a session gives it back, too

    $run->('true', files => { '/usr/x' => '' }) for 1 .. 3;
    $run->('true', manifest => { resources => { memory => '1TB' } })
        for 1 .. 3;
    is(used('by-run')->{sessions}, 0, 'nor of one that fails');

    for (1 .. 3) {
        my $c = $t->connect(timeout => 20);
        $c->send_request(POST => '/v1/run',
                         headers => { 'Content-Type' => 'application/json' },
                         body => SandboxTest::More::json_of({
                             tenant_id => 'by-run', user_id => 'one',
                             steps => [ { cmd => 'sleep 1000' } ] }));
        until_true(sub { used('by-run')->{sessions} == 1 }, 20);
        $c->close;
        ok(until_true(sub { used('by-run')->{sessions} == 0 }, 20),
           'nor of one whose client has left');
    }
};


subtest 'a template, a manifest, a cap and a quota' => sub {
    my $ask = sub {
        my (%fields) = @_;
        return $t->api(POST => '/sessions',
                       { tenant_id => 'capped', user_id => 'one',
                         template => 'small', %fields });
    };
    my $memory = sub {
        return $ask->(manifest => { resources => { memory => $_[0] } });
    };

    # what configuration does not permit is no matter of a quota

    is_problem($ask->(timeout_s => 90_000), 400, 'E2002', 'more time',
               qr/timeout_s.*86400/);
    is_problem($memory->('1TB'), 400, 'E2002', 'more memory', qr/memory/);
    is(used('capped')->{sessions}, 0, 'nothing is made');

    my $res = $ask->();
    is("$res->{status} $res->{json}{resources}{memory}",
       '201 ' . (32 << 20), 'the template says how much');
    is(used('capped')->{memory}, 32 << 20, 'which is what counts');
    my @ids = $res->{json}{session_id};

    $res = $memory->('64MB');
    is($res->{status}, 201, 'a manifest may say more');
    is(used('capped')->{memory}, 96 << 20, 'which then counts');
    push @ids, $res->{json}{session_id};

    $res = $ask->();
    is(join(' ', $res->{status}, @{ $res->{json} }{qw(scope resource)}),
       '429 organization memory', 'until the quota is used up');

    $t->api(DELETE => "/sessions/$_") for @ids;
};


$t->finish;
done_testing();
