#!/usr/bin/perl

# Sessions that are made ahead: how many there are, who sees them, who is
# given one, and what becomes of them when anything changes or dies.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";

use Test::More;
use SandboxTest;
use SandboxTest::More;
use SandboxTest::Pool;

my $LIMITS = <<'CONF';
    sandbox_template small {
        memory 64MB;
        disk 16MB;
        processes 20;
        env COLOUR red;
        capabilities shell files;
    }
CONF

my $ADMIN = <<'CONF';

        location /admin/ { sandbox_api admin; }
        location /status/ { sandbox_api status; }
CONF


subtest 'nginx -t finds every mistake' => sub {
    my $t = SandboxTest->new;

    my @bad = (
        [ 'nothing sessions=2', qr/no such template in .*nginx.conf:\d+/ ],
        [ 'base', qr/invalid number of arguments/ ],
        [ 'base kernels=python', qr/needs "sessions=NUMBER"/ ],
        [ 'base sessions=0', qr/"sessions=0".*from 1 to 1024/ ],
        [ 'base sessions=1025', qr/"sessions=1025".*from 1 to 1024/ ],
        [ 'base sessions=many', qr/"sessions=many"/ ],
        [ 'base sessions=2 sessions=2', qr/duplicate parameter/ ],
        [ 'base sessions=2 kernels=', qr/"kernels=".*name languages/ ],
        [ 'base sessions=2 kernels=python,', qr/name languages/ ],
        [ 'base sessions=2 kernels=py-thon', qr/name languages/ ],
        [ 'base sessions=2 kernels=python,python', qr/each once/ ],
        [ 'base sessions=2 size=3', qr/"size=3".*must be "sessions=/ ],
        [ 'base sessions=2; sandbox_pool base sessions=3',
          qr/"base" has two "sandbox_pool"/ ],
        [ 'base sessions=2; sandbox_pool code-interpreter-v1 sessions=3',
          qr/"base" has two "sandbox_pool"/ ],
    );

    for my $case (@bad) {
        $t->write_conf(http => "    sandbox_pool $case->[0];");
        my ($status, $text) = $t->nginx('-t');
        ok($status != 0 && $text =~ $case->[1], "refused: $case->[0]")
            or diag($text);
    }

    my @templates = (
        [ 'preload;', qr/needs 1 to 64 names/ ],
        [ 'preload a b; preload c;', qr/is duplicate/ ],
        [ 'preload "a b";', qr/must be a module's name/ ],
        [ 'preload ../x;', qr/must be a module's name/ ],
    );

    for my $case (@templates) {
        $t->write_conf(http => "    sandbox_template x { $case->[0] }");
        my ($status, $text) = $t->nginx('-t');
        ok($status != 0 && $text =~ $case->[1], "refused: $case->[0]")
            or diag($text);
    }

    $t->write_conf(http => '    sandbox_pool x sessions=2 kernels=a,b_2;'
                           . ' sandbox_pool code-interpreter-v1 sessions=1;'
                           . ' sandbox_template x { preload os xml.dom; }');
    my ($status, $text) = $t->nginx('-t');
    is($status, 0, 'what is right is taken, in any order') or diag($text);

    $t->allow(qr/emerg/);
    $t->finish;
};


my $t = pool_server(http => "$LIMITS    sandbox_pool base sessions=3;\n"
                            . "    sandbox_pool small sessions=2;\n"
                            . "    sandbox_quota node sessions=6;\n"
                            . "    sandbox_quota organization=few "
                            . "sessions=1;\n", more => $ADMIN,
                    quotas => 1);


subtest 'it is filled, and nobody sees that' => sub {
    pool_full(3);
    pool_full(2, 'small');

    my @ids = pooled_ids();
    is(scalar @ids, 5, 'as many are there');
    is(scalar(grep { init_of($_) } @ids), 5, 'and each runs');

    is($t->api(GET => '/health')->{json}{sessions}, 0, 'health has none');
    is_deeply($t->api(GET => '/sessions')->{json}{sessions}, [], 'nor lists');
    is_deeply($t->http(GET => '/admin/sessions')->{body}
              =~ /"sessions":\[\]/ ? 1 : 0, 1, 'nor the list of all tenants');
    is(metric('sessions', state => $_), 0, "nor the metric of $_")
        for qw(creating running ending);
    is(metric('node_used', resource => $_), 0, "nor $_ of the node")
        for qw(sessions memory cpus disk);
    is(metric('pool_sessions_wanted', template => 'base'), 3,
       'but those of the pool');
    cmp_ok(metric('pool_memory_bytes', template => 'base'), '>', 100_000,
           'with its memory');
    like($t->http(GET => '/status/data')->{body},
         qr/"pools":\[\{"template":"base","wanted":3,"ready":3,/,
         'and the status page');

    for my $id (@ids) {
        for my $call ([ GET => "/sessions/$id" ],
                      [ POST => "/sessions/$id/exec", { cmd => 'true' } ],
                      [ POST => "/sessions/$id/pause" ],
                      [ PATCH => "/sessions/$id", { timeout_s => 5 } ],
                      [ GET => "/sessions/$id/processes" ],
                      [ GET => "/sessions/$id/list/" ],
                      [ DELETE => "/sessions/$id" ],
                      [ DELETE => "/sessions/$id?grace_s=1" ])
        {
            my $res = $t->api(@$call);
            is("$res->{status} " . ($res->{json}{code} // ''), '404 E2009',
               "$call->[0] of one finds nothing");
            ok(!exists $res->{json}{ended}, 'not even that it ended');
        }
    }

    is($t->http(DELETE => '/admin/sessions?tenant_id=acme')->{status}, 200,
       'what ends sessions of a tenant');
    is_deeply([ sort(pooled_ids()) ], [ sort @ids ], 'ends none of them');
};


subtest 'a create is given one, once' => sub {
    my %was = map { $_ => 1 } pooled_ids();
    my $res = make();
    my $id = $res->{json}{session_id};

    is($res->{status}, 201, 'created');
    ok($was{$id}, 'one of those that were ready');
    is(pool_counts(), '1', 'which is counted');
    is(metric('sessions', state => 'running'), 1, 'it is a session now');
    is(metric('node_used', resource => 'sessions'), 1, 'that counts');
    is($t->api(GET => '/health')->{json}{sessions}, 1, 'everywhere');
    is($t->run($id, 'echo hi')->{stdout}, "hi\n", 'and works');

    pool_full(3);
    ends_ok($id);
    is($t->api(GET => "/sessions/$id")->{json}{ended}, 'destroyed',
       'it ends as a session does');
    ok(!(grep { $_ eq $id } pooled_ids()), 'and is not used again');
    is(metric('sessions_ended_total', reason => 'destroyed'), 1,
       'it alone is counted');
};


subtest 'only one that can become what is asked for' => sub {
    pool_full(3);
    my $before = pool_counts();
    my @cases = (
        [ 'limits', manifest => { resources => { cpus => 2 } } ],
        [ 'storage', manifest => { resources => { disk => '17MB' } } ],
        [ 'storage', manifest => { resources => { inodes => 500 } } ],
        [ 'files', manifest => { filesystem =>
                                 { deny_read => [ '/home/user/x' ] } } ],
        [ 'memory_strategy', manifest => { memory_strategy => 'rlimit' } ],
    );

    shift @cases if `nproc` < 2;

    for my $case (@cases) {
        my ($why, @asked) = @$case;
        my $n = metric('pool_misses_total', template => 'base',
                       reason => $why);
        my %was = map { $_ => 1 } pooled_ids();
        my $res = make(@asked);

        is($res->{status}, 201, "made: $why") or diag($res->{body});
        ok(!$was{$res->{json}{session_id}}, 'when it was asked for');
        is(metric('pool_misses_total', template => 'base', reason => $why),
           $n + 1, 'and told why');
        ends_ok($res->{json}{session_id});
    }

    is(metric('pool_hits_total', template => 'base'),
       ($before =~ /^(\d+)/)[0], 'none of them had one of the pool');
};


subtest 'quotas hold for it as for any other' => sub {
    pool_full(3);
    my $few = make(tenant_id => 'few');
    is($few->{status}, 201, 'one');

    my $hits = metric('pool_hits_total', template => 'base');
    my $res = make(tenant_id => 'few');
    is("$res->{status} $res->{json}{code}", '429 E2003', 'another is refused');
    is(metric('pool_hits_total', template => 'base'), $hits, 'and takes none');

    my @ids = map { make()->{json}{session_id} } 1 .. 5;
    is(scalar(grep { defined } @ids), 5, 'what the node has room for');
    $res = make();
    is("$res->{status} $res->{json}{code}", '503 E2004', 'and no more');
    ends_ok(@ids, $few->{json}{session_id});
};


subtest 'creates at once: each has a session of its own' => sub {
    for my $round (1 .. 3) {
        pool_full(3);
        my $hits = metric('pool_hits_total', template => 'base');
        my @jobs = map { async { make() } } 1 .. 6;
        my @res = map { $_->get } @jobs;
        my %ids = map { $_->{json}{session_id} => 1 } @res;

        is((grep { $_->{status} == 201 } @res), 6, 'all are made');
        is(scalar keys %ids, 6, 'and none twice');
        cmp_ok(metric('pool_hits_total', template => 'base') - $hits, '>=', 3,
               'those of the pool among them');

        my @out = map { my $id = $_;
                        async { $t->run($id, "echo $id")->{stdout} } }
                  keys %ids;
        is(join('', sort map { $_->get } @out),
           join('', map { "$_\n" } sort keys %ids), 'each is its own');
        ends_ok(keys %ids);
    }
};


subtest 'by its key; destroyed at once; by a run' => sub {
    pool_full(3);
    my %key = (headers => { 'Idempotency-Key' => 'k1',
                            'Content-Type' => 'application/json' });
    my $body = '{"tenant_id":"acme","user_id":"alice"}';
    my @res = map { $_->get }
              map { async { $t->api(POST => '/sessions', $body, %key) } }
              1 .. 3;
    my %ids = map { $_->{json}{session_id} => 1 } @res;
    is(scalar keys %ids, 1, 'one session for a key');
    is(join(' ', sort map { $_->{status} } @res), '200 200 201', 'made once');
    ends_ok(keys %ids);

    for (1 .. 10) {
        my $id = make()->{json}{session_id};
        is($t->api(DELETE => "/sessions/$id")->{status}, 204, 'at once');
        is($t->api(GET => "/sessions/$id")->{status}, 404, 'it is gone');
    }

    pool_full(3);
    my $hits = metric('pool_hits_total', template => 'base');
    my $res = $t->api(POST => '/run',
                      { tenant_id => 'acme', user_id => 'alice',
                        files => { 'x' => 'text' },
                        steps => [ { cmd => 'cat x' } ] });
    is($res->{json}{steps}[0]{stdout}, 'text', 'a run has one');
    is(metric('pool_hits_total', template => 'base'), $hits + 1,
       'of the pool');
    ok(until_true(sub { metric('sessions', state => 'running') == 0 }, 10),
       'and it ends with it');
};


subtest 'one that dies is replaced' => sub {
    pool_full(3);
    my @ids = pooled_ids();
    my $ended = metric('sessions_ended_total', reason => 'node_restart');

    for my $id (@ids[0, 1]) {
        kill KILL => init_of($id);
    }

    ok(until_true(sub { !grep { my $id = $_; grep { $_ eq $id } @ids[0, 1] }
                        pooled_ids() }, 20), 'they are gone');
    pool_full(3);
    pool_full(2, 'small');
    is(metric('sessions_ended_total', reason => 'node_restart'), $ended,
       'which is no end of a session');
    my $id = make()->{json}{session_id};
    is($t->run($id, 'echo alive')->{stdout}, "alive\n", 'who asks has one');
    ends_ok($id);
};


subtest 'the broker dies: none is orphaned, none is handed out half-made' =>
sub {
    pool_full(3);
    my $id = make()->{json}{session_id};
    my %was = map { $_ => 1 } pooled_ids();
    my $old = $t->broker;

    $t->allow(qr/broker/);
    kill KILL => $old;
    ok(until_true(sub { my $pid = $t->broker;
                        $pid && $pid != $old && $t->ready }, 20),
       'another takes over');

    is($t->run($id, 'echo here')->{stdout}, "here\n",
       'what was given out goes on');
    pool_full(3);
    pool_full(2, 'small');
    ok(!(grep { $was{$_} } pooled_ids()), 'the others have ended');
    is($t->api(GET => '/health')->{json}{sessions}, 1, 'one is counted');

    for my $gone (sort keys %was) {
        ok(!exists $t->api(GET => "/sessions/$gone")->{json}{ended},
           'of the others nobody is told');
    }

    my $keeper = $t->keeper;
    kill KILL => $keeper;
    ok(until_true(sub { my $pid = $t->keeper;
                        $pid && $pid != $keeper && $t->ready }, 20),
       'and after the keeper');
    pool_full(3);
    is($t->run($id, 'echo here')->{stdout}, "here\n", 'it goes on');
    ends_ok($id);
    $t->allow(qr/keeper/);
};


subtest 'draining' => sub {
    pool_full(3);
    is($t->http(POST => '/admin/drain', body => '{}', headers =>
                { 'Content-Type' => 'application/json' })->{status}, 200,
       'no more sessions');
    ok(until_true(sub { !pooled_ids() }, 20), 'so none is kept');
    is(make()->{status}, 503, 'nor given out');
    is($t->http(POST => '/admin/undrain')->{status}, 200, 'sessions again');
    pool_full(3);
};


subtest 'a reload' => sub {
    my $conf = $t->{http};
    pool_full(3);
    pool_full(2, 'small');
    my @ids = sort(pooled_ids());

    $t->reload;
    pool_full(3);
    is_deeply([ sort(pooled_ids()) ], \@ids,
              'that changes nothing keeps them');

    $t->write_conf(http => $conf =~ s/base sessions=3/base sessions=1/r);
    $t->reload;
    pool_full(1);
    ok(until_true(sub { pooled_ids() == 3 }, 20), 'fewer: the rest ends');
    ok(!(grep { my $id = $_; !grep { $_ eq $id } @ids } pooled_ids()),
       'and those that stay are the same');

    my $small = make(template => 'small')->{json};
    is($t->run($small->{session_id}, 'printf $COLOUR')->{stdout}, 'red',
       'the template as it was');
    ends_ok($small->{session_id});
    pool_full(2, 'small');

    $t->write_conf(http => $conf =~ s/COLOUR red/COLOUR blue/r
                                 =~ s/memory 64MB/memory 96MB/r);
    $t->reload;
    pool_full(3);
    pool_full(2, 'small');

    my $hits = metric('pool_hits_total', template => 'small');
    $small = make(template => 'small')->{json};
    is(metric('pool_hits_total', template => 'small'), $hits + 1,
       'one of the pool');
    is($t->run($small->{session_id}, 'printf $COLOUR; head -1 /proc/meminfo')
           ->{stdout}, "blueMemTotal:          98304 kB\n",
       'has the template as it is');
    is($small->{resources}{memory}, 96 << 20, 'and says so');
    ends_ok($small->{session_id});

    $t->write_conf(http => $conf =~ s/^ *sandbox_pool .*\n//mgr);
    $t->reload;
    ok(until_true(sub { !pooled_ids() }, 20), 'without a pool none is left');
    is(metric('pool_sessions', template => 'base'), undef, 'nor a metric');
    my $id = make()->{json}{session_id};
    is($t->run($id, 'echo cold')->{stdout}, "cold\n", 'sessions are made');
    ends_ok($id);

    $t->write_conf(http => $conf);
    $t->reload;
    pool_full(3);
};


subtest 'no timer of a session runs on them' => sub {
    $t->write_conf(http => "    sandbox_template short { timeout 1; }\n"
                           . "    sandbox_pool short sessions=1;\n");
    $t->reload;
    pool_full(1, 'short');
    my ($id) = pooled_ids();
    sleep 2;        # longer than one lives that is somebody's
    is_deeply([ pooled_ids() ], [ $id ], 'it is still there');

    my $s = make(template => 'short')->{json};
    is($s->{session_id}, $id, 'it is given out');
    ok(until_true(sub { ($t->api(GET => "/sessions/$id")->{json}{ended} // '')
                        eq 'expired' }, 10), 'and then its time runs');
};


$t->finish;


# Four sessions have room on the whole node.

subtest 'what is nobody\'s keeps nobody out' => sub {
    # from a block of ids that no other server is likely to use

    my $first = (176 + int rand 40) << 23;
    my $last = $first + 4 * 65536 - 1;

    $t = pool_server(http => "    sandbox_uid_range $first-$last;\n"
                             . "    sandbox_pool base sessions=4;\n");
    pool_full(4);

    my @other = (manifest => { resources => { inodes => 500 } });
    my @jobs = map { async { make(@other) } } 1 .. 3;
    my @ids = map { my $res = $_->get;
                    is($res->{status}, 201, 'made all the same')
                        or diag($res->{body});
                    $res->{json}{session_id} } @jobs;
    push @ids, make()->{json}{session_id};
    ok(defined $ids[3], 'the last place as well');

    my $res = make();
    is("$res->{status} $res->{json}{code}", '503 E2004',
       'all places are taken by sessions');
    ok(until_true(sub { metric('pool_failures_total',
                               template => 'base') > 0 }, 20),
       'the pool finds no room');
    ok(until_true(sub { $t->log_has(qr/no session can be made for the pool/)
                        == 1 }, 10), 'and says so once');
    is($t->run($_, 'echo ok')->{stdout}, "ok\n", 'they work') for @ids;
    ends_ok(@ids);
    pool_full(4);
    is($t->log_has(qr/no session can be made for the pool/), 1,
       'still one line');
    is($t->log_has(qr/the pool "base" is filled again/), 1, 'until it can');
    $t->finish;
};


done_testing();
