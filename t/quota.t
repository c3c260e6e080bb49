#!/usr/bin/perl

# Quotas: what organizations, users and the node may have at once, by
# configuration, by the admin API, and over the broker's death.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";

use JSON::PP ();
use Test::More;
use SandboxTest;
use SandboxTest::More;

my $JSON = JSON::PP->new->utf8->canonical;

my $t = SandboxTest->new(
    quotas => 1,
    http => <<'CONF',
    sandbox_quota organization=small sessions=3 memory=300MB;
    sandbox_quota user=small/one sessions=2;
    sandbox_quota organization=racing sessions=5;
    sandbox_quota user=racing/r sessions=none;
    sandbox_quota organization=sized memory=256MB cpus=1.5 disk=64MB;
    sandbox_quota organization=busy commands=2;
    sandbox_quota node sessions=20;
CONF
    server => <<'CONF',
        location /admin/ {
            allow 127.0.0.1;
            deny all;
            sandbox_api admin;
        }
CONF
)->start;

sub make {
    my ($tenant, $user, %resources) = @_;

    return $t->api(POST => '/sessions',
                   { tenant_id => $tenant, user_id => $user,
                     manifest => { resources => { memory => '64MB',
                                                  disk => '16MB',
                                                  cpus => 0.25,
                                                  %resources } } });
}

sub admin { return $t->api(@_[0 .. 2], base => '/admin') }

sub used { return admin(GET => "/quotas/$_[0]")->{json}{used} }

sub gone {
    my (@ids) = @_;

    is($t->api(DELETE => "/sessions/$_")->{status}, 204, 'destroyed')
        for @ids;

    return;
}

# A refusal says of what, whose and how much.

sub refused {
    my ($res, $want, $name) = @_;

    local $Test::Builder::Level = $Test::Builder::Level + 1;

    my $j = $res->{json} || {};
    my $limit = $j->{limit};

    is(join(' ', $res->{status}, $j->{code} // '', $j->{scope} // '',
            $j->{resource} // '', defined $limit ? $limit + 0 : ''),
       $want, $name)
        or diag($res->{body});

    return;
}


subtest 'by user, by organization, by node' => sub {
    my @ids = map { my $res = make('small', 'one');
                    is($res->{status}, 201, 'within') or diag($res->{body});
                    $res->{json}{session_id} } 1 .. 2;

    my $res = make('small', 'one');
    refused($res, '429 E2003 user sessions 2', 'the user has his two');
    like($res->{headers}{'retry-after'} // '', qr/^[1-9]\d*$/,
         'waiting helps');
    cmp_ok($res->{headers}{'retry-after'}, '<=', 60, 'for a bounded while');

    $res = make('small', 'two');
    is($res->{status}, 201, 'another user has room');
    push @ids, $res->{json}{session_id};

    refused(make('small', 'three'), '429 E2003 organization sessions 3',
            'the organization has its three');
    is(make('Small', 'one')->{status}, 201, 'another organization has room');

    is_deeply(used('small'), { sessions => 3, memory => 3 * (64 << 20),
                               cpus => 0.75, disk => 3 * (16 << 20),
                               commands => 0 }, 'all of it is counted');

    gone(pop @ids);
    is(used('small')->{sessions}, 2, 'and given back');
    my $again = make('small', 'two');
    is($again->{status}, 201, 'as soon as it is destroyed');
    gone(@ids, $again->{json}{session_id});
};


subtest 'memory, processors and disk' => sub {
    my $res = make('sized', 'a', memory => '200MB');
    my $id = $res->{json}{session_id};
    is($res->{status}, 201, 'within');

    $res = make('sized', 'a', memory => '100MB');
    refused($res, '429 E2003 organization memory ' . (256 << 20), 'memory');
    ok($res->{headers}{'retry-after'}, 'waiting helps');

    $res = make('sized', 'a', memory => '300MB');
    refused($res, '429 E2003 organization memory ' . (256 << 20),
            'more than there ever is');
    ok(!defined $res->{headers}{'retry-after'}, 'waiting does not help');

    refused(make('sized', 'a', memory => '16MB', cpus => 1.375),
            '429 E2003 organization cpus 1.5', 'processors');
    refused(make('sized', 'a', memory => '16MB', disk => '60MB'),
            '429 E2003 organization disk ' . (64 << 20), 'disk');
    is(used('sized')->{sessions}, 1, 'what was refused counts nowhere');
    gone($id);
    is_deeply([ @{ used('sized') }{qw(memory cpus disk)} ], [ 0, 0, 0 ],
              'all is given back');
};


subtest 'N and more at once give N' => sub {
    for my $round (1, 2) {
        my @jobs = map { my $n = $_; async { make('racing', 'r') } } 1 .. 12;
        my @res = map { $_->get } @jobs;
        my @made = map { $_->{json}{session_id} }
                   grep { $_->{status} == 201 } @res;

        is(scalar @made, 5, 'exactly as many as there is room for');
        is((grep { $_->{status} == 429 } @res), 7, 'the others are told');
        is(used('racing')->{sessions}, 5, 'and so does the broker count');

        is((grep { $_->get->{status} == 204 }
            map { my $id = $_; async { $t->api(DELETE => "/sessions/$id") } }
            @made), 5, 'all are destroyed');
        is(used('racing')->{sessions}, 0, 'and given back');
    }
};


subtest 'commands that run' => sub {
    my $res = make('busy', 'a');
    my $id = $res->{json}{session_id};
    my $other = make('busy', 'b')->{json}{session_id};

    my @jobs = map { my $s = $_;
                     async { $t->api(POST => "/sessions/$s/exec",
                                     { cmd => 'touch began; while [ ! -e go ];'
                                              . ' do sleep 0.05; done' }) }
               } $id, $other;

    ok(until_true(sub { used('busy')->{commands} == 2 }, 10), 'two run');

    $res = $t->api(POST => "/sessions/$id/exec", { cmd => 'true' });
    refused($res, '429 E2003 organization commands 2', 'a third is refused');
    ok($res->{headers}{'retry-after'}, 'waiting helps');

    $t->http(PUT => "/v1/sessions/$_/files/go", body => '') for $id, $other;
    is($_->get->{json}{exit_code}, 0, 'they end') for @jobs;

    my @wrong = grep { $_ != 200 }
                map { $t->api(POST => "/sessions/$id/exec",
                              { cmd => 'true' })->{status} } 1 .. 40;
    is("@wrong", '', 'one after the other needs no more than one');
    is(used('busy')->{commands}, 0, 'none runs');
    gone($id, $other);
};


subtest 'the node' => sub {
    my $have = $t->api(GET => '/health')->{json}{sessions};

    is(admin(PATCH => '/settings', { quotas => { node =>
             { sessions => $have + 1 } } })->{status}, 200, 'is made small');

    my $id = make('anyone', 'a')->{json}{session_id};
    my $res = make('anyone', 'a');
    is("$res->{status} $res->{json}{code}", '503 E2004', 'it is full');
    like($res->{json}{detail}, qr/node.*sessions/, 'and says of what');
    gone($id);
    is(admin(PATCH => '/settings', { reset => [ 'quotas.node.sessions' ] })
           ->{json}{quotas}{node}{sessions}{value}, 20, 'and large again');
};


subtest 'names that are merely asked for leave nothing behind' => sub {
    my $broker = $t->broker;
    my $size = sub {
        return SandboxTest::slurp("/proc/$broker/status")
               =~ /^VmRSS:\s+(\d+)/m ? $1 : 0;
    };

    admin(PUT => '/quotas/blocked', { sessions => 0 });
    refused(make('blocked', 'x'), '429 E2003 organization sessions 0',
            'nothing at all');
    ok(!defined make('blocked', 'x')->{headers}{'retry-after'},
       'and no waiting for it');

    admin(PATCH => '/settings', { quotas => { user => { sessions => 0 } } });
    make("warm$_", 'x') for 1 .. 100;
    my $before = $size->();
    make("name$_", 'u' x 100) for 1 .. 400;

    SKIP: {
        skip 'a sanitizer keeps freed memory', 1 if $SandboxTest::SANITIZE;
        cmp_ok($size->() - $before, '<', 300, 'no memory');
    }

    admin(PATCH => '/settings', { reset => [ 'quotas.user.sessions' ] });
    admin(DELETE => '/quotas/blocked');
};


subtest 'the broker dies' => sub {
    is(admin(PUT => '/quotas/kept', { sessions => 3 })->{status}, 200,
       'an override');
    is(admin(PUT => '/quotas/kept/one', { sessions => 1 })->{status}, 200,
       'one of a user');
    admin(PATCH => '/settings', { quotas => { organization =>
                                              { commands => 7 } } });

    my @ids = map { make('kept', $_)->{json}{session_id} } qw(one two);
    my $job = async { $t->api(POST => "/sessions/$ids[1]/exec",
                              { cmd => 'while [ ! -e go ]; do sleep 0.05;'
                                       . ' done' }) };
    ok(until_true(sub { used('kept')->{commands} == 1 }, 10), 'a command');

    my $old = $t->broker;
    $t->allow(qr/broker/);
    kill KILL => $old;
    ok(until_true(sub { my $pid = $t->broker;
                        $pid && $pid != $old && $t->ready }, 20),
       'another takes over');

    my $q = admin(GET => '/quotas/kept')->{json};
    is($q->{limits}{sessions}, 3, 'the override holds');
    is($q->{limits}{commands}, 7, 'and the setting');
    is($q->{used}{sessions}, 2, 'sessions are counted');
    is($q->{used}{memory}, 2 * (64 << 20), 'with their size');
    is($q->{used}{commands}, 1, 'and the command that runs');
    refused(make('kept', 'one'), '429 E2003 user sessions 1',
            'the user has his one');

    $t->http(PUT => "/v1/sessions/$ids[1]/files/go", body => '');
    is($job->get->{json}{exit_code}, 0, 'the command ends');
    ok(until_true(sub { used('kept')->{commands} == 0 }, 10),
       'and is not counted any more');
    gone(@ids);
    is(used('kept')->{sessions}, 0, 'all is given back');
};


subtest 'a reload' => sub {
    my $id = make('small', 'one')->{json}{session_id};

    $t->write_conf(http => <<'CONF');
    sandbox_quota organization=small sessions=1;
    sandbox_quota organization=kept sessions=50 memory=1GB;
CONF
    ok($t->reload, 'is done');
    ok($t->log_has(qr/new limits and quotas count for new sessions/),
       'and the log says for whom');
    ok($t->log_has(qr/of the admin API win over the configuration/),
       'and what wins');
    refused(make('small', 'two'), '429 E2003 organization sessions 1',
            'new values count');

    my $q = admin(GET => '/quotas/kept')->{json};
    is($q->{limits}{sessions}, 3, 'what was set live wins');
    is($q->{configured}{sessions}, 50, 'over what is configured');
    is($q->{limits}{memory}, 1 << 30, 'which holds for the rest');
    is(admin(DELETE => '/quotas/kept')->{status}, 204, 'until it is removed');
    is(admin(GET => '/quotas/kept')->{json}{limits}{sessions}, 50,
       'then that holds');
    gone($id);
};


subtest 'what is shipped' => sub {
    my $q = admin(GET => '/settings')->{json}{quotas};

    is($q->{organization}{sessions}{configured}, 60, 'an organization');
    is($q->{user}{sessions}{configured}, 25, 'a user');
    is($q->{node}{memory}{configured}, undef, 'the node has no limit');
};


subtest 'a damaged file' => sub {
    is(admin(PUT => '/quotas/kept', { sessions => 9 })->{status}, 200,
       'an override');

    my $file = $t->prefix . '/quotas';
    my $size = -s $file;
    ok($size, 'is in the state directory');
    is((stat $file)[2] & 07777, 0600, 'for root alone');
    ok(!-e $t->prefix . '/record.new', 'and no part of it beside');

    open my $f, '+<', $file or die "$file: $!";
    seek $f, $size - 5, 0;
    print $f 'x';
    close $f;

    my $old = $t->broker;
    kill KILL => $old;
    ok(until_true(sub { my $pid = $t->broker;
                        $pid && $pid != $old && $t->ready }, 20),
       'the broker starts');
    ok($t->log_has(qr/quotas" is damaged/), 'and tells');
    is(admin(GET => '/quotas/kept')->{json}{limits}{sessions}, 50,
       'configuration holds');
};


subtest 'the directive' => sub {
    my @wrong = (
        [ 'sessions=5 sessions=6', qr/"sessions=5"/ ],
        [ 'user', qr/number of arguments/ ],
        [ 'node=x sessions=5', qr/"node=x"/ ],
        [ 'user=x sessions=5', qr/"user=x"/ ],
        [ 'user=a/-b sessions=5', qr{"user=a/-b"} ],
        [ 'organization= sessions=5', qr/"organization="/ ],
        [ 'organization sessions=-1', qr/"sessions=-1"/ ],
        [ 'organization pids=1', qr/"pids=1"/ ],
        [ 'organization sessions=1 sessions=2', qr/duplicate.*"sessions=2"/ ],
    );

    for my $case (@wrong) {
        my ($text, $want) = @$case;
        my $other = SandboxTest->new(http =>
                                     "    sandbox_quota $text;\n");
        my ($status, $out) = $other->nginx('-t');
        isnt($status, 0, "$text: refused");
        like($out . $other->log, $want, 'and quoted');
        $other->allow(qr/emerg/);
        $other->finish;
    }
};


$t->finish;
done_testing();
