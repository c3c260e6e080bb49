#!/usr/bin/perl

# How long a session lives: PATCH, idle_timeout_s, grace_s, on_timeout, and
# what a broker's crash leaves of all that.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";

use Test::More;
use Time::HiRes qw(sleep);
use Time::Local qw(timegm);
use SandboxTest::More;

my $t = server();

sub seconds {
    my ($y, $mo, $d, $h, $mi, $s, $f) = ($_[0] // '') =~
        /^(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(\.\d+)?Z$/
        or return 0;

    return timegm($s, $mi, $h, $d, $mo - 1, $y) + ($f // 0);
}

sub patch { return call('PATCH', "/sessions/$_[0]", json => $_[1]) }

sub crash {
    my $old = $t->broker;

    kill 'KILL', $old;

    return until_true {
        my $new = $t->broker;
        $new && $new != $old && call('GET', '/health')->{status} == 200
    };
}

# The answer of a session that has ended, once it has.

sub ended {
    my ($id, $seconds) = @_;

    my $res;

    until_true {
        $res = call('GET', "/sessions?tenant_id=acme-corp");
        !grep { $_->{session_id} eq $id } @{ $res->{json}{sessions} }
    } $seconds // 10;

    return call('GET', "/sessions/$id");
}


subtest 'PATCH changes the time, the metadata, or both' => sub {
    my $id = create_ok({ timeout_s => 100, metadata => { a => '1' } });

    my $res = patch($id, { timeout_s => 600 });
    is($res->{status}, 200, 'it is answered');
    is($res->{json}{session_id}, $id, 'the session');
    cmp_ok(abs(seconds($res->{json}{expires_at}) - time - 600), '<', 5,
           'timeout_s counts from now');
    is_deeply($res->{json}{metadata}, { a => '1' },
              'metadata stays as it was');

    my $expires = $res->{json}{expires_at};

    $res = patch($id, { metadata => { b => '2', c => '3' } });
    is_deeply($res->{json}{metadata}, { b => '2', c => '3' },
              'metadata is replaced');
    is($res->{json}{expires_at}, $expires, 'the time stays as it was');

    $res = patch($id, { timeout_s => 50.5, metadata => {} });
    is_deeply($res->{json}{metadata}, {}, 'and cleared');
    cmp_ok(abs(seconds($res->{json}{expires_at}) - time - 50.5), '<', 5,
           'both at once');

    $res = patch($id, {});
    is($res->{status}, 200, 'nothing is no mistake');

    my $get = call('GET', "/sessions/$id")->{json};
    is($get->{expires_at}, $res->{json}{expires_at}, 'GET says the same');
    destroy($id);
};


subtest 'a PATCH that is refused changes nothing' => sub {
    my $id = create_ok({ timeout_s => 100, metadata => { a => '1' } });
    my $before = call('GET', "/sessions/$id")->{json};

    for ([ 'above the cap', 'E2002', qr/timeout_s/, { timeout_s => 86401 } ],
         [ 'one of two', 'E2002', qr/timeout_s/,
           { timeout_s => 86401, metadata => { z => '1' } } ],
         [ 'nothing at all', 'E3001', qr{/timeout_s}, { timeout_s => undef } ],
         [ 'zero', 'E3001', qr{/timeout_s}, { timeout_s => 0 } ],
         [ 'a word', 'E3001', qr{/timeout_s}, { timeout_s => 'long' } ],
         [ 'a number', 'E3001', qr{/metadata/n}, { metadata => { n => 1 } } ],
         [ 'null', 'E3001', qr{/metadata}, { metadata => undef } ],
         [ 'a field that there is not', 'E3001', qr{/user_id},
           { user_id => 'bob' } ],
         [ 'a value that is too long', 'E3001', qr{/metadata/v},
           { timeout_s => 50, metadata => { v => 'x' x 1025 } } ])
    {
        my ($name, $code, $detail, $json) = @$_;
        is_problem(patch($id, $json), 400, $code, $name, $detail);
    }

    my $after = call('GET', "/sessions/$id")->{json};
    is("$after->{expires_at} $after->{metadata}{a}",
       "$before->{expires_at} 1", 'all is as it was');

    is_problem(patch('i' . 'z' x 25, { timeout_s => 5 }), 404, 'E2009',
               'one that there is not');
    destroy($id);
    is_problem(patch($id, { timeout_s => 5 }), 404, 'E2009', 'an ended one');
};


subtest 'many changes at once go one after the other' => sub {
    my $id = create_ok();
    my @jobs = map { my $n = $_; async {
        patch($id, { metadata => { n => "$n" }, timeout_s => 1000 + $n })
    } } 1 .. 8;
    my @got = map { $_->get } @jobs;

    is(scalar(grep { $_->{status} == 200 } @got), 8, 'all are done');

    my $get = call('GET', "/sessions/$id")->{json};
    my $n = $get->{metadata}{n};
    my ($same) = grep { $_->{json}{metadata}{n} == $n } @got;

    is($get->{expires_at}, $same->{json}{expires_at},
       'time and metadata of one of them, not of two');
    destroy($id);
};


subtest 'a change outlives the broker' => sub {
    my $id = create_ok({ timeout_s => 100, env => { WHO => 'me' },
                         metadata => { old => '1' } });
    my $res = patch($id, { timeout_s => 900, metadata => { new => '1' } });

    ok(crash(), 'a broker again');

    my $get = call('GET', "/sessions/$id")->{json};
    is($get->{expires_at}, $res->{json}{expires_at}, 'its time');
    is_deeply($get->{metadata}, { new => '1' }, 'its metadata');
    is(run($id, 'echo $WHO')->{stdout}, "me\n", 'its environment');
    destroy($id);
};


subtest 'a shorter time ends it' => sub {
    my $id = create_ok({ timeout_s => 100 });

    patch($id, { timeout_s => 0.2 });

    my $res = ended($id);
    is_problem($res, 404, 'E2009', 'it is over');
    is($res->{json}{ended}, 'expired', 'expired');
};


subtest 'an idle session ends' => sub {
    my $id = create_ok({ manifest => { idle_timeout_s => 0.3 } });
    my $res = ended($id);

    is_problem($res, 404, 'E2009', 'it is over');
    is($res->{json}{ended}, 'idle', 'idle');

    $id = create_ok({ manifest => { idle_timeout_s => undef } });
    ok($id, 'null is none');
    destroy($id);
};


subtest 'one that is used does not' => sub {
    my $id = create_ok({ manifest => { idle_timeout_s => 1 } });
    my $r = run($id, 'sleep 2.5; echo still there');

    is($r->{stdout}, "still there\n", 'while a command runs');

    my $end = time + 2.5;

    while (time < $end) {
        last if call('GET', "/sessions/$id")->{status} != 200;
        sleep 0.1;
    }

    is(call('GET', "/sessions/$id")->{status}, 200, 'while calls come');

    my $s = open_request('PUT', "/sessions/$id/files/slow",
                         headers => { 'Content-Length' => 4 }, body => 'ab');
    sleep 2.5;
    SandboxTest::More::send_all($s, 'cd');
    is(read_response($s)->{status}, 201, 'while an upload is under way');

    is(ended($id, 15)->{json}{ended}, 'idle', 'it ends after that');
};


subtest 'idle time and a new broker' => sub {
    my $idle = within(1);
    my $id = create_ok({ manifest => { idle_timeout_s => $idle } });
    my $job = async {
        run($id, 'sleep ' . (2 * $idle + 2) . '; echo done')->{stdout}
    };

    ok(until_true { @{ [ session_pids($id) ] } > 1 }, 'it runs');
    ok(crash(), 'a broker again');
    is($job->get, "done\n", 'what ran before is no idleness');
    is(ended($id, within(15))->{json}{ended}, 'idle', 'it ends after that');
};


subtest 'DELETE with time to end' => sub {
    my $trap = 'trap "echo obeyed; exit 3" TERM; echo ready;'
               . ' while :; do sleep 0.05; done';
    my $begun = sub {
        my ($id) = @_;
        return until_true { get($id, '/tmp/begun')->{status} == 200 };
    };

    my $id = create_ok();
    my $job = async { run($id, "touch /tmp/begun; $trap") };
    ok($begun->($id), 'a command that obeys');

    my $t0 = time;
    my $res = call('DELETE', "/sessions/$id?grace_s=20");
    is($res->{status}, 204, 'it ends');
    cmp_ok(time - $t0, '<', within(10), 'it is not waited in vain');

    my $r = $job->get;
    is("$r->{stdout} $r->{reason}", "ready\nobeyed\n session_ended",
       'it could say its last words');

    $id = create_ok();
    $job = async { run($id, "trap '' TERM; touch /tmp/begun;"
                            . ' while :; do sleep 0.05; done') };
    ok($begun->($id), 'one that does not');

    my $end = async {
        call('DELETE', "/sessions/$id?grace_s=0.5")->{status}
    };
    my $gone;
    until_true {
        $gone = call('GET', "/sessions/$id");
        $gone->{status} == 404
    };
    is_problem($gone, 404, 'E2009', 'calls meanwhile');
    is($gone->{json}{ended}, 'destroyed', 'are told why');
    is($end->get, 204, 'it is killed then');
    is($job->get->{reason}, 'session_ended', 'and its command with it');

    $id = create_ok();
    $job = async { run($id, "trap '' TERM; touch /tmp/begun;"
                            . ' while :; do sleep 0.05; done') };
    ok($begun->($id), 'a third');
    $end = async { call('DELETE', "/sessions/$id?grace_s=300")->{status} };
    until_true { call('GET', "/sessions/$id")->{status} == 404 };
    is(call('DELETE', "/sessions/$id")->{status}, 204,
       'one that is given time can be ended at once');
    is($end->get, 204, 'which the first call sees too');
    $job->get;

    $id = create_ok();
    is(run($id, 'sleep 1000 & setsid sleep 1000 & exit 0')->{exit_code}, 0,
       'what a command has left behind');
    $t0 = time;
    is(call('DELETE', "/sessions/$id?grace_s=60")->{status}, 204,
       'is told too');
    cmp_ok(time - $t0, '<', within(30), 'and obeys');

    undef $id;

    for my $bad ('-1', 'x', '601', '') {
        $id //= create_ok();
        is_problem(call('DELETE', "/sessions/$id?grace_s=$bad"), 400,
                   'E3001', "grace_s=$bad", qr/grace_s/);
    }
};


subtest 'an end by time gives two seconds' => sub {
    my $id = create_ok({ timeout_s => 100 });
    my $job = async {
        run($id, 'trap "echo obeyed; exit 3" TERM; touch /tmp/begun;'
                 . ' while :; do sleep 0.05; done')
    };

    until_true { get($id, '/tmp/begun')->{status} == 200 };
    patch($id, { timeout_s => 0.1 });
    is($job->get->{stdout}, "obeyed\n", 'SIGTERM comes first');
};


subtest 'on_timeout "pause"' => sub {
    my $id = create_ok({ timeout_s => 0.5,
                         manifest => { on_timeout => 'pause' } });
    my $s;

    ok(until_true {
        $s = call('GET', "/sessions/$id")->{json};
        ($s->{status} // '') eq 'paused'
    }, 'its time over, it is paused');

    is_problem(exec_call($id, 'true'), 409, 'E2010',
               'it runs nothing');
    is(patch($id, { timeout_s => 100 })->{json}{status}, 'paused',
       'PATCH does not wake it');

    my $res = call('POST', "/sessions/$id/resume");
    is("$res->{status} $res->{json}{status}", '200 running', 'resume does');
    cmp_ok(abs(seconds($res->{json}{expires_at}) - time - 100), '<', 5,
           'with the time that it was given meanwhile');
    is(run($id, 'echo back')->{stdout}, "back\n", 'it works');

    patch($id, { timeout_s => 1 });
    ok(until_true {
        $s = call('GET', "/sessions/$id")->{json};
        ($s->{status} // '') eq 'paused'
    }, 'paused once more');
    $res = call('POST', "/sessions/$id/resume")->{json};
    cmp_ok(seconds($res->{expires_at}) - time, '>', 0.2,
           'given none, it has what it had last');
    is(call('DELETE', "/sessions/$id")->{status}, 204, 'destroyed');
};


subtest 'pages go on over a crash' => sub {
    my %who = (tenant_id => 'pages', user_id => 'alice');
    my @ids = map { create_ok({ %who, metadata => { n => "$_" } }) } 1 .. 5;

    destroy($ids[0]);
    push @ids, create_ok(\%who);

    my $page = call('GET', '/sessions?tenant_id=pages&limit=2')->{json};
    is(join(' ', map { $_->{session_id} } @{ $page->{sessions} }),
       "$ids[5] $ids[4]", 'the newest first');

    ok(crash(), 'a broker again');
    my $new = create_ok(\%who);
    destroy($ids[3]);

    $page = call('GET', '/sessions?tenant_id=pages&limit=2&cursor='
                        . enc($page->{next_cursor}))->{json};
    is(join(' ', map { $_->{session_id} } @{ $page->{sessions} }),
       "$ids[2] $ids[1]", 'what is left of what was below');
    ok(!defined $page->{next_cursor}, 'and no more');

    $page = call('GET', '/sessions?tenant_id=pages')->{json};
    is(join(' ', map { $_->{session_id} } @{ $page->{sessions} }),
       "$new $ids[5] $ids[4] $ids[2] $ids[1]", 'the order is as it was');

    destroy($_) for $new, @ids[1, 2, 4, 5];
};


subtest 'an Idempotency-Key outlives the broker' => sub {
    my %how = (headers => { 'Idempotency-Key' => "crash-$$" });
    my $id = create({}, %how)->{json}{session_id};

    ok(crash(), 'a broker again');

    my $res = create({}, %how);
    is("$res->{status} $res->{json}{session_id}", "200 $id", 'the same');
    is_problem(create({ timeout_s => 5 }, %how), 409, 'E2011',
               'another body');
    destroy($id);
    $res = create({}, %how);
    is($res->{status}, 201, 'its end is the key\'s');
    destroy($res->{json}{session_id});
};


$t->finish;
done_testing;
