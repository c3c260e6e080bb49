#!/usr/bin/perl

# The admin API: settings, quotas, sessions of all tenants, draining.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";

use JSON::PP ();
use Test::More;
use SandboxTest;
use SandboxTest::More;

my ($true, $false) = (JSON::PP::true, JSON::PP::false);

my $t = SandboxTest->new(
    http => <<'CONF',
    sandbox_quota organization sessions=60;
CONF
    server => <<'CONF',
        location /admin/ {
            allow 127.0.0.1;
            deny all;
            sandbox_api admin;
        }
CONF
)->start;

sub admin {
    my ($method, $path, $json, %o) = @_;

    return $t->api($method, $path, $json, base => '/admin', %o);
}

sub is_refused {
    my ($res, $want, $name, $detail) = @_;

    local $Test::Builder::Level = $Test::Builder::Level + 1;
    is("$res->{status} " . ($res->{json}{code} // ''), $want, $name)
        or diag($res->{body});
    like($res->{json}{detail}, $detail, 'and says why') if $detail;

    return;
}

sub sessions {
    my ($tenant, $n) = @_;

    return map { $t->session(tenant_id => $tenant) } 1 .. $n;
}


subtest 'routes' => sub {
    is_refused(admin(GET => '/nothing'), '404 E3009', 'an unknown one');
    is_refused(admin(GET => '/health'), '404 E3009', 'one of the other API');
    is_refused(admin(PUT => '/settings', {}), '405 E3010', 'a method');
    is_refused(admin(POST => '/sessions', {}), '405 E3010', 'no creating');
    is_refused($t->api(GET => '/settings'), '404 E3009',
               'none of them in the other API');
    is_refused(admin(PATCH => '/settings', '{"quotas":{}}', headers =>
                     { 'Content-Type' => 'text/plain' }), '415 E3011',
               'a body of another type');

    for my $case ([ POST => '/drain' ], [ DELETE => '/sessions?tenant_id=x' ],
                  [ PUT => '/quotas/x', { sessions => 1 } ])
    {
        my ($method, $path, $json) = @$case;
        is_refused(admin($method, $path, $json,
                         headers => { Origin => 'http://127.0.0.1' }),
                   '403 E1002', "no web page may $method $path");
    }
};


subtest 'settings' => sub {
    my $res = admin(GET => '/settings');
    is($res->{status}, 200, 'GET');
    is_deeply([ sort keys %{ $res->{json} } ],
              [ qw(draining quotas require_isolation) ], 'what there is');
    is_deeply($res->{json}{draining},
              { value => $false, changed_by => undef, changed_at => undef },
              'draining');
    is_deeply($res->{json}{require_isolation},
              { value => $true, configured => $true, previous => undef,
                changed_by => undef, changed_at => undef }, 'isolation');
    is_deeply($res->{json}{quotas}{organization}{sessions},
              { value => 60, configured => 60, previous => undef,
                changed_by => undef, changed_at => undef }, 'a quota');
    is($res->{json}{quotas}{user}{memory}{value}, undef, 'one without limit');

    $res = admin(PATCH => '/settings',
                 { quotas => { organization => { sessions => 10 },
                               user => { memory => '1GB', cpus => 1.5 },
                               node => { disk => undef } } });
    is($res->{status}, 200, 'PATCH');
    my $s = $res->{json}{quotas}{organization}{sessions};
    is("$s->{value} $s->{configured} $s->{previous} $s->{changed_by}",
       '10 60 60 127.0.0.1', 'what it is, was, and who changed it');
    like($s->{changed_at}, qr/^\d{4}-\d\d-\d\dT/, 'and when');
    is($res->{json}{quotas}{user}{memory}{value}, 1 << 30, 'a size');
    is($res->{json}{quotas}{user}{cpus}{value}, 1.5, 'a fraction');
    is($res->{json}{quotas}{user}{sessions}{changed_at}, undef,
       'others are as they were');

    $res = admin(PATCH => '/settings',
                 { quotas => { organization => { sessions => 20 } } });
    is($res->{json}{quotas}{organization}{sessions}{previous}, 10,
       'the last change counts');

    is($t->log_has(qr/\[notice\].*quotas\.organization\.sessions: 10, by/),
       1, 'each change is a line in the log');

    $res = admin(PATCH => '/settings',
                 { reset => [ 'quotas.organization.sessions',
                              'quotas.user.memory', 'quotas.user.cpus',
                              'quotas.node.disk' ] });
    is($res->{json}{quotas}{organization}{sessions}{value}, 60, 'and back');
    is($res->{json}{quotas}{user}{cpus}{value}, undef, 'all of them');
};


subtest 'settings that are refused change nothing' => sub {
    my $before = admin(GET => '/settings')->{json};

    my @cases = (
        [ {}, '400 E3001', qr/no setting/ ],
        [ { quotas => {} }, '400 E3001', qr/no setting/ ],
        [ { quotas => { user => { sessions => -1 } } }, '400 E3001',
          qr{/quotas/user/sessions} ],
        [ { quotas => { user => { sessions => 1.5 } } }, '400 E3001',
          qr{/quotas/user/sessions} ],
        [ { quotas => { user => { memory => 'much' } } }, '400 E3001',
          qr{/quotas/user/memory} ],
        [ { quotas => { user => { pids => 1 } } }, '400 E3001',
          qr{/quotas/user/pids} ],
        [ { quotas => { team => {} } }, '400 E3001', qr{/quotas/team} ],
        [ { colour => 1 }, '400 E3001', qr{/colour} ],
        [ { quotas => { user => { sessions => 1 } },
            reset => [ 'colour' ] }, '400 E3001', qr{/reset/0} ],
        [ { quotas => { user => { sessions => 1 } },
            reset => [ 'quotas.user.sessions' ] }, '400 E3001',
          qr{/reset/0} ],
        [ { require_isolation => 1 }, '400 E3001', qr{/require_isolation} ],
        [ { require_isolation => $false,
            quotas => { user => { sessions => 1 } } }, '409 E2011',
          qr{/require_isolation} ],
    );

    for my $case (@cases) {
        my ($body, $want, $detail) = @$case;
        is_refused(admin(PATCH => '/settings', $body), $want,
                   SandboxTest::More::json_of($body), $detail);
    }

    is_deeply(admin(GET => '/settings')->{json}, $before, 'nothing');
};


subtest 'isolation is only made stricter' => sub {
    $t->write_conf(edit => sub {
        s/sandbox_require_isolation on;/sandbox_require_isolation off;/;
    });
    ok($t->reload, 'configuration does not insist');

    my $s = admin(PATCH => '/settings', { require_isolation => $true })
            ->{json}{require_isolation};
    ok($s->{value} && !$s->{configured} && !$s->{previous}, 'made strict');
    $s = admin(PATCH => '/settings', { require_isolation => $false })
         ->{json}{require_isolation};
    ok(!$s->{value} && $s->{previous}, 'and as configured again');

    $t->write_conf(edit => sub {});
    ok($t->reload, 'configuration insists');
    $s = admin(GET => '/settings')->{json}{require_isolation};
    ok($s->{value} && $s->{configured}, 'and wins');
};


subtest 'quotas by name' => sub {
    my $res = admin(GET => '/quotas/acme-corp');
    is($res->{status}, 200, 'GET of one that nobody has heard of');
    my $none = { map { $_ => undef } qw(memory cpus disk commands) };
    is_deeply($res->{json},
              { tenant_id => 'acme-corp', user_id => undef,
                limits => { sessions => 60, %$none },
                configured => { sessions => 60, %$none },
                used => { sessions => 0, memory => 0, cpus => 0, disk => 0,
                          commands => 0 },
                override => undef, changed_by => undef,
                changed_at => undef }, 'all of it');

    $res = admin(PUT => '/quotas/acme-corp', { sessions => undef,
                                               memory => '2GB', cpus => 0.5 });
    is($res->{status}, 200, 'PUT');
    is_deeply($res->{json}{override}, { sessions => undef,
                                        memory => 2 << 30, cpus => 0.5 },
              'what was set');
    is($res->{json}{limits}{sessions}, undef, 'null is no limit');
    is($res->{json}{limits}{disk}, undef, 'what was left out is as before');
    is($res->{json}{changed_by}, '127.0.0.1', 'who');

    $res = admin(PUT => '/quotas/acme-corp', { disk => 5 });
    is_deeply($res->{json}{override}, { disk => 5 }, 'PUT is the whole');
    is($res->{json}{limits}{sessions}, 60, 'the rest is as configured');

    $res = admin(PUT => '/quotas/acme-corp/alice', { sessions => 1 });
    is($res->{json}{user_id}, 'alice', 'one of a user');
    is(admin(GET => '/quotas/acme-corp/bob')->{json}{limits}{sessions},
       undef, 'is not another\'s');

    my ($id) = sessions('acme-corp', 0);
    is_refused(admin(PUT => '/quotas/acme-corp', {}), '400 E3001',
               'an empty one', qr/no resource/);
    is_refused(admin(PUT => '/quotas/acme-corp', { sessions => 'x' }),
               '400 E3001', 'a wrong one', qr{/sessions});
    is_refused(admin(GET => "/quotas/$_"), '400 E3001', "of \"$_\"")
        for '', '-x', 'a/', 'a/b/c', 'a%20b', 'a/-b';

    is(admin(DELETE => '/quotas/acme-corp')->{status}, 204, 'DELETE');
    is(admin(DELETE => '/quotas/acme-corp')->{status}, 204, 'again');
    is(admin(GET => '/quotas/acme-corp/alice')->{json}{limits}{sessions}, 1,
       'is not the user\'s');
    is(admin(DELETE => '/quotas/acme-corp/alice')->{status}, 204,
       'that one has its own');
    is($t->log_has(qr{\[notice\].*user acme-corp/alice: as configured, by}),
       1, 'logged');
};


subtest 'the list of what was set' => sub {
    my $names = sub {
        my ($query) = @_;
        my $res = admin(GET => "/quotas$query");
        my @names = map { join '/', $_->{tenant_id}, $_->{user_id} // () }
                    @{ $res->{json}{quotas} };

        return wantarray ? ($res->{json}{next_cursor}, @names) : "@names";
    };

    is(scalar $names->(''), '', 'nothing');

    admin(PUT => "/quotas/$_", { sessions => 5 })
        for qw(b-corp/zoe a-corp a-corp/bob c-corp a-corp/al b-corp);

    my @all = qw(a-corp a-corp/al a-corp/bob b-corp b-corp/zoe c-corp);

    is(scalar $names->(''), "@all", 'all, by name');
    is(scalar $names->('?tenant_id=a-corp'), "@all[0 .. 2]",
       'those of a tenant');
    is(scalar $names->('?tenant_id=nobody'), '', 'of one that has none');
    is_deeply(admin(GET => '/quotas?limit=1')->{json}{quotas}[0],
              admin(GET => '/quotas/a-corp')->{json}, 'each as by its name');

    # pages, while some come and go

    my ($cursor, @page) = $names->('?limit=3');
    my @seen = @page;

    is("@seen", "@all[0 .. 2]", 'a page');
    admin(DELETE => '/quotas/a-corp/bob');
    admin(PUT => '/quotas/a-corp/aa', { sessions => 1 });
    admin(PUT => '/quotas/b-corp/amy', { sessions => 1 });

    while (defined $cursor) {
        ($cursor, @page) = $names->('?limit=1&cursor=' . enc($cursor));
        push @seen, @page;
    }

    is("@seen", "@all[0 .. 3] b-corp/amy @all[4, 5]",
       'each that was there throughout once');

    is_refused(admin(GET => "/quotas?$_"), '400 E3001', $_,
               qr/limit|cursor|tenant_id/)
        for 'limit=0', 'limit=501', 'cursor=x', 'cursor=YS9iL2M',
            'cursor=', 'tenant_id=-', 'cursor=%00';

    # more than one page can hold, or one answer

    admin(PUT => "/quotas/many/u$_", { sessions => 1 }) for 1 .. 120;
    ($cursor, @page) = $names->('?tenant_id=many');
    is(scalar @page, 100, 'a page has 100 unless more are asked for');
    ($cursor, @page) = $names->('?tenant_id=many&limit=500');
    is(scalar @page, 120, 'and may have 500');
    is($cursor, undef, 'and then there are no more');

    admin(DELETE => "/quotas/$_")
        for @all, qw(a-corp/aa b-corp/amy), map { "many/u$_" } 1 .. 120;
    is(scalar $names->(''), '', 'nothing again');
};


subtest 'changes at once are all kept' => sub {
    my @jobs = map { my $n = $_;
                     async { admin(PUT => "/quotas/many/u$n",
                                   { sessions => $n })->{status} }
               } 1 .. 20;
    is((grep { $_->get == 200 } @jobs), 20, 'each is answered');

    my $old = $t->broker;
    kill KILL => $old;
    ok(until_true(sub { my $pid = $t->broker;
                        $pid && $pid != $old && $t->ready }, 20),
       'another broker');
    my @wrong = grep { admin(GET => "/quotas/many/u$_")
                       ->{json}{limits}{sessions} != $_ } 1 .. 20;
    is("@wrong", '', 'has them all');
    admin(DELETE => "/quotas/many/u$_") for 1 .. 20;
};


subtest 'sessions of all, and the end of a tenant\'s' => sub {
    my @a = sessions('a-corp', 3);
    my @b = sessions('b-corp', 1);

    my $list = admin(GET => '/sessions')->{json}{sessions};
    is_deeply([ sort map { $_->{session_id} } @$list ], [ sort @a, @b ],
              'are listed');
    $list = admin(GET => '/sessions?tenant_id=b-corp')->{json}{sessions};
    is(@$list, 1, 'and filtered');

    is_refused(admin(DELETE => "/sessions$_"), '400 E3001', "all$_")
        for '', '?tenant_id=', '?tenant_id=-', '?user_id=x';
    is(@{ admin(GET => '/sessions')->{json}{sessions} }, 4,
       'ends nothing');

    my $job = async { $t->api(POST => "/sessions/$a[0]/exec",
                              { cmd => 'touch began; sleep 60' })->{json} };
    ok(until_true(sub { $t->http(HEAD => "/v1/sessions/$a[0]/files/began")
                        ->{status} == 200 }, 10), 'a command runs');

    my $res = admin(DELETE => '/sessions?tenant_id=a-corp');
    is_deeply([ $res->{status}, $res->{json} ], [ 200, { destroyed => 3 } ],
              'by name');
    is(admin(GET => '/quotas/a-corp')->{json}{used}{sessions}, 0,
       'nothing is left when it is answered');
    is($t->api(GET => "/sessions/$a[1]")->{json}{ended}, 'admin', 'its end');
    isnt(($job->get || {})->{reason} // '', 'exited', 'and the command\'s');
    is($t->api(GET => "/sessions/$b[0]")->{status}, 200, 'others go on');
    is(admin(DELETE => '/sessions?tenant_id=a-corp')->{json}{destroyed}, 0,
       'a second time there are none');
    is(admin(DELETE => '/sessions?tenant_id=b-corp')->{json}{destroyed}, 1,
       'the others, too');
};


subtest 'draining' => sub {
    my ($id, $calm) = sessions('a-corp', 2);

    my $res = admin(POST => '/drain');
    is_deeply([ $res->{status}, $res->{json} ],
              [ 200, { draining => $true, sessions => 2, ended => 0 } ],
              'on');

    $res = $t->api(POST => '/sessions', { tenant_id => 'a', user_id => 'b' });
    is_refused($res, '503 E2004', 'nothing is made', qr/draining/);
    is($t->api(GET => '/health')->{status}, 503, '/health tells');
    is($t->run($id, 'echo still')->{stdout}, "still\n", 'what runs goes on');

    my $old = $t->broker;
    kill KILL => $old;
    ok(until_true(sub { my $pid = $t->broker;
                        $pid && $pid != $old
                        && $t->api(GET => '/health')->{status} == 503 }, 20),
       'also after the broker\'s death');
    ok(admin(GET => '/settings')->{json}{draining}{value}, 'it drains');

    is(admin(POST => '/undrain')->{json}{draining}, $false, 'off');
    is($t->api(GET => '/health')->{status}, 200, '/health tells');
    is(sessions('a-corp', 1), 1, 'and sessions are made');

    # SIGTERM lets it write, and SIGKILL comes without being asked

    my $job = async {
        $t->api(POST => "/sessions/$id/exec",
                { cmd => 'trap "echo ending; exit 3" TERM; touch began; '
                         . 'while :; do sleep 0.05; done' })->{json};
    };
    ok(until_true(sub { $t->http(HEAD => "/v1/sessions/$id/files/began")
                        ->{status} == 200 }, 10), 'a command runs');

    $res = admin(POST => '/drain?end=1');
    is_deeply($res->{json}, { draining => $true, sessions => 0, ended => 3 },
              'with the end of all');
    my $end = $job->get;
    is(($end->{stdout} // ''), "ending\n", 'the command had its SIGTERM');
    ok(until_true(sub { admin(GET => '/quotas/a-corp')
                        ->{json}{used}{sessions} == 0 }, 10), 'all end');
    is($t->api(GET => "/sessions/$id")->{json}{ended}, 'admin', 'by whom');

    is_refused(admin(POST => '/drain?end=2'), '400 E3001', 'end=2');
    admin(POST => '/undrain');
};


subtest 'a full stop ends draining' => sub {
    admin(POST => '/drain');
    admin(PUT => '/quotas/kept', { sessions => 4 });
    ok($t->stop, 'stopped');
    $t->start;
    is(admin(GET => '/settings')->{json}{draining}{value}, $false,
       'a server that is started takes sessions');
    is(admin(GET => '/quotas/kept')->{json}{limits}{sessions}, 4,
       'and has kept its quotas');
};


subtest 'where it is not mounted' => sub {
    my $other = SandboxTest->new->start;
    is($other->api(GET => '/settings', undef, base => '/admin')->{status},
       404, 'there is none');
    $other->finish;
};


$t->finish;
done_testing();
