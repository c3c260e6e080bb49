#!/usr/bin/perl

# Descriptors are used up in each process, one after the other: whoever needs
# one is told to try again, what has what it needs goes on, and when there are
# some again everything is as before, without a restart.
#
# SANDBOX_TEST_LONG=1 has more of them free, one by one, and waits until a
# call that cannot be sent is given up.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../lib";

use JSON::PP ();
use SandboxTest::Net;
use Test::More;
use SandboxTest::Exhaust;
use SandboxTest::More;
use SandboxTest::Preload;
use SandboxTest::Survive;

my $LONG = $ENV{SANDBOX_TEST_LONG};
my $AT = '203.0.113.10';
my $net = SandboxTest::Net->new;

my $t = exhaust_server(t => $net->server(
    workers => 1, quotas => 1, http => "    sandbox_egress allow *;\n",
    server => '        location /admin/ { sandbox_api admin; }'));

my $s = SandboxTest::Survive->new(t => $t);
my $id = $s->create({ timeout_s => 1800,
                      manifest => { network => JSON::PP::true } })
         ->{json}{session_id};
my $ticks = ticks($s->{runs});
my ($worker) = $t->workers;
my ($broker, $keeper) = ($t->broker, $t->keeper);

put($id, 'mark', 'x' x 10_000);

sub log_has { return $t->log_has($_[0]) }


# ---- the broker ------------------------------------------------------------

subtest 'the broker' => sub {
    for my $free (0 .. ($LONG ? 5 : 1)) {
        my $name = "$free free";

        ok(few_files($broker, $free), "$name: the broker has so many");
        told_to_wait($s->create, "$name: a new session");
        told_to_wait(exec_call($id, 'echo no'), "$name: a command");
        goes_on($ticks, "$name: what runs goes on");
    }

    few_files($broker, 0);
    told_to_wait(destroy($id), 'none free: the end of a session');
    told_to_wait(call('GET', '/health'), 'none free: health');
    cmp_ok(log_has(qr/a call was dropped: .* no descriptor is free/), '>', 2,
           'its log tells why');

    # a reload, whose connections it cannot take

    my %old = map { $_ => 1 } $t->workers;

    $t->signal('HUP');
    at_rest('nobody tries without end', $broker, $keeper, $worker);
    ok(enough_files($broker), 'there are some again');
    ok(until_true(sub {
        my @new = grep { !$old{$_} } $t->workers;
        return @new == 1;
    }, 20), 'then the reload goes on');
    is($t->broker, $broker, 'with the same broker');

    # what is followed holds a worker of before

    $ticks->close;
    ok(until_true(sub { $t->workers == 1 }, 20), 'the old worker goes');
    $ticks = ticks($s->{runs});

    works_again($s, 'the broker');
    $s->unharmed('nothing of it is left or lost', $id);
};


# ---- the keeper ------------------------------------------------------------

subtest 'the keeper' => sub {
    ok(few_files($keeper, 0), 'the keeper has none');

    # it is answered before the keeper has been asked

    my $made = $s->create->{json}{session_id};

    $s->works($made, 'a session is made');
    ok(until_true(sub {
        log_has(qr/the keeper has no descriptor or no memory for more/)
    }), 'which it cannot store, and says so');
    told_to_wait($s->create, 'another one');
    $s->works($id, 'those that are there are served');
    at_rest('nobody tries without end', $broker, $keeper);
    is($t->broker, $broker, 'nor is the broker to blame');

    # a reload is done, without a connection of its own

    my %old = map { $_ => 1 } $t->workers;

    $t->signal('HUP');
    ok(until_true(sub { grep { !$old{$_} } $t->workers }, 20), 'a reload');
    ok(log_has(qr/\[error\].*the keeper has no room for another connection/),
       'is told that there is no room for it');
    $ticks->close;
    ok(until_true(sub { !grep { $old{$_} } $t->workers }, 20),
       'the old worker goes');
    is(run($id, [ 'echo', 'on' ])->{stdout}, "on\n",
       'the new one goes on with the connection of before');
    $ticks = ticks($s->{runs});

    ok(enough_files($keeper), 'there are some again');
    ok(until_true(sub { log_has(qr/the keeper has everything/) }),
       'it is asked again, and has it');
    works_again($s, 'the keeper');

    # and none when a broker is to be started

    ok(few_files($keeper, 0), 'it has none once more');
    $t->hit(KILL => $broker);
    ok(until_true(sub {
        log_has(qr/the broker cannot be started: .* \(24:/)
    }, 10), 'no broker can be started');
    goes_on($ticks, 'what runs goes on');
    at_rest('the keeper waits', $keeper);

    my $call = async { get($id, 'mark') };

    enough_files($keeper);
    is($call->get->{status}, 200, 'a call waits until there is one');
    $broker = $t->broker;
    is(get($made, 'own')->{body}, $made,
       'the session that was stored late is there');
    is(destroy($made)->{status}, 204, 'and ends');
    $s->unharmed('nobody was lost', $id);
};


# ---- the worker ------------------------------------------------------------

subtest 'a worker' => sub {
    ($worker) = $t->workers;

    my $were = open_files($worker);
    my $line = $t->connect;

    $line->request(GET => '/v1/capabilities');
    ok(quiet($worker, $were + 1), 'one connection is open');

    for my $free (0 .. ($LONG ? 1 : 0)) {
        few_files($worker, $free);

        for my $call ([ POST => '/v1/sessions',
                        '{"tenant_id":"acme-corp","user_id":"alice"}' ],
                      [ GET => "/v1/sessions/$id/files/mark" ],
                      [ GET => '/v1/health' ])
        {
            my ($method, $path, $body) = @$call;
            my $res = $line->request($method, $path, timeout => 20,
                defined $body ? (body => $body, headers =>
                    { 'Content-Type' => 'application/json' }) : ());

            $res->{json} = eval { JSON::PP::decode_json($res->{body}) };
            told_to_wait($res, "$free free: $method $path");
        }
    }

    few_files($worker, 0);
    cmp_ok(log_has(qr/socketpair\(\) .* failed \(24:/), '>', 2,
           'its log tells why');

    my $next = async { call('GET', '/health') };

    ok(until_true(sub { log_has(qr/accept4\(\) failed \(24:/) }),
       'a connection cannot be taken');
    at_rest('it does not try without end', $worker);
    goes_on($ticks, 'an answer that has begun goes on');
    ok(!$next->ready, 'the connection waits');
    enough_files($worker);
    is($next->get->{status}, 200, 'and is served when there is one');

    $line->close;
    is(($t->workers)[0], $worker, 'by the same worker');
    works_again($s, 'a worker');
    $s->unharmed('nothing of it is left or lost', $id);
};

# More than a worker may have on their way: of all that its user has sent and
# nobody has received yet.

my $FLIGHT = <<'PY';
import os, resource, socket, sys
os.setgroups([]); os.setresgid(*[int(sys.argv[2])] * 3)
os.setresuid(*[int(sys.argv[1])] * 3)
a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
a.setblocking(False)
for i in range(4):
    socket.send_fds(a, [b"x"], [0] * 100)
print("sent", flush=True)
sys.stdin.read()
PY

subtest 'descriptors on their way' => sub {
    my ($uid, $gid) = (getpwnam 'www-data')[2, 3];

    for my $late (0 .. ($LONG ? 1 : 0)) {
        pipe my $in, my $hold or die $!;
        my $pid = open(my $out, '-|') // die $!;

        if ($pid == 0) {
            close $hold;
            open STDIN, '<&', $in;
            exec '/usr/bin/python3', '-c', $FLIGHT, $uid, $gid;
        }

        close $in;
        is(readline $out, "sent\n", 'the user of the workers has 400');
        ok(few_files($worker, 30), 'a worker may have fewer');

        my $call = async { call('GET', "/sessions/$id") };

        at_rest('it tries now and then', $worker);
        ok(!$call->ready, 'a call waits');
        told_to_wait($call->get, 'for five seconds') if $late;
        kill 'KILL', $pid;
        is($call->get->{status}, 200, 'until they have come') if !$late;
        close $out;
        close $hold;
        enough_files($worker);
    }

    works_again($s, 'on their way');
};


# ---- a session's first process ---------------------------------------------

subtest 'a first process' => sub {
    my $init = init_of($id);
    my $python = "/sessions/$id/code";
    my @code = (json => { code => '40 + 2', timeout_s => 50 });

    is(run($id, [ 'echo', 'on' ])->{stdout}, "on\n", 'a command');
    is(call('POST', $python, @code)->{json}{text}, 42, 'and code');
    my $groups = groups_of($id);

    for my $free (0, $LONG ? (1 .. 12) : (3, 9)) {
        ok(few_files($init, $free), "$free free");
        told_to_wait(exec_call($id, [ 'echo', 'no' ]), "$free: a command");
        goes_on($ticks, "$free: another session goes on");

        if ($free != 0) {
            is(get($id, 'mark')->{status}, 200, "$free: a file");
        }

        enough_files($init);
        is(run($id, [ 'echo', 'on' ])->{stdout}, "on\n",
           "$free: then there are some again");
    }

    # an interpreter, which needs a group and then a pair of sockets

    for my $free ($LONG ? (1 .. 14) : (4, 11)) {
        is(run($id, 'pkill python3; sleep 0.1; echo')->{exit_code}, 0,
           'the interpreter is gone');
        until_true { !grep { (slurp("/proc/$_/cmdline") // '') =~ /kernels/ }
                           SandboxTest::children($init) } 10;
        few_files($init, $free);

        my $res = call('POST', $python, @code);

        if ($free < 10) {
            told_to_wait($res, "$free: an interpreter");

        } elsif ($res->{status} != 200) {
            told_to_wait($res, "$free: an interpreter");

        } else {
            is($res->{json}{text}, 42, "$free: an interpreter");
        }

        enough_files($init);
        is(call('POST', $python, @code)->{json}{text}, 42,
           "$free: then there is one");
    }

    at_rest('it has nothing to do', $init, $broker);
    ok(until_true(sub { groups_of($id) <= $groups }, 10),
       'no group of a command is left')
        or diag("$groups, " . groups_of($id));
    $s->unharmed('nobody else has noticed', $id);
};

sub groups_of {
    my ($id) = @_;

    return scalar grep { m{/\Q$id\E/} } cgroup_dirs();
}


# ---- the egress ------------------------------------------------------------

# Whether there is a connection in the network of a session's first process
# that who listens has not taken: it is counted as what he has not read.

sub waits_to_be_taken {
    my ($init) = @_;

    return grep { (slurp("/proc/$init/net/$_") // '')
                  =~ /^\s*\d+:\s\S+\s\S+\s0A\s\S+:0*[1-9A-F]/m } qw(tcp tcp6);
}

subtest 'the egress' => sub {
    my $egress = $s->egress;
    my %http = (do => 'http', to => $AT, port => 80);
    my ($r) = $net->try($id, \%http);

    is($r->{status}, 200, 'a session reaches the world');
    ok(few_files($egress, 0), 'the egress has none');

    my $job = async { [ $net->try($id, \%http) ] };

    ok(until_true(sub { waits_to_be_taken(init_of($id)) }, 10),
       'a connection comes');
    at_rest('it does not try without end', $egress);
    ok(!$job->ready, 'a connection waits');
    goes_on($ticks, 'who needs no network goes on');
    enough_files($egress);
    is($job->get->[0]{status}, 200, 'until there is one');

    few_files($egress, 1);
    ($r) = $net->try($id, \%http);
    refused($r, 'one that can be taken and not made is reset');
    enough_files($egress);
    ($r) = $net->try($id, \%http);
    is($r->{status}, 200, 'then there are some again');
    is($s->egress, $egress, 'and it is the same egress');
};


$ticks->close;
is(destroy($id)->{status}, 204, 'the session ends');
$t->allow(qr/accept4\(\) failed \(24:/);
$s->over;


# ---- as many sessions as there are descriptors for -------------------------

subtest 'as many sessions as fit' => sub {
    my $full = exhaust_server(
        wrapper => [ 'prlimit', '--nofile=160:160' ], quotas => 0,
        edit => sub {
            s/^worker_rlimit_nofile.*\n//m;
            s/worker_connections 4096/worker_connections 100/;
            s/open_files=1024/open_files=64/;
        });
    my (@ids, $res);

    while (@ids < 40) {
        $res = create({ timeout_s => 1800 });
        last if $res->{status} != 201;
        push @ids, $res->{json}{session_id};
    }

    cmp_ok(scalar @ids, '>', 4, 'some are made');
    is_problem($res, 503, 'E2004', 'until it is said that no more fit',
               qr/the broker may open 160 files/);
    is($res->{headers}{'retry-after'}, 60, 'and when to come again');

    my $all = sub {
        return grep { (exec_call($_, [ 'echo', $_ ])->{json}{stdout} // '')
                      eq "$_\n" } @ids;
    };

    is($all->(), @ids, 'all of them can be used');

    my $died = $full->broker;

    $full->hit(KILL => $died);
    ok(until_true(sub {
        my $next = $full->broker // $died;
        return $next != $died && call('GET', '/health')->{status} == 200;
    }, 20), 'and when another broker has them');
    is($all->(), @ids, 'all the same');
    is_problem(create(), 503, 'E2004', 'there is no room for more');
    is(destroy(shift @ids)->{status}, 204, 'until one ends');
    until_true { create({ timeout_s => 1800 })->{status} == 201 } 10;
    is(scalar(grep { destroy($_)->{status} == 204 } @ids), @ids,
       'and the others can be ended');

    $full->finish;
};


subtest 'more descriptors for a broker that runs' => sub {
    plan(skip_all => 'a sanitizer has to be the first that is loaded')
        if $SandboxTest::SANITIZE;

    my $lib = preload('files') // plan(skip_all => 'no compiler');
    my $as = "/tmp/sbx-files-as-$$";
    my $may = sub {
        open my $f, -e $as ? '+<' : '>', $as or die $!;
        print $f pack 'Q', $_[0];
        close $f or die $!;
    };

    $may->(160);

    my $full = exhaust_server(
        quotas => 0, trust => 'standalone',
        broker_env => { LD_PRELOAD => $lib, FILES_AS => $as },
        edit => sub {
            s/^worker_rlimit_nofile.*\n//m;
            s/worker_connections 4096/worker_connections 100/;
            s/open_files=1024/open_files=64/;
        });
    my $broker = $full->broker;
    my ($res, $refused, $calls) = (undef, 0, 0);

    # what a call has open for a moment is counted as well

    while ($refused < 5 && $calls++ < 60) {
        $res = create({ timeout_s => 1800 });
        $refused = $res->{status} == 201 ? 0 : $refused + 1;
    }

    is_problem($res, 503, 'E2004', 'it is full, and stays so',
               qr/the broker may open 160 files/);

    # what prlimit does for it, which takes a right that not all have

    $may->(400);
    $res = create({ timeout_s => 1800 });
    is($res->{status}, 201, 'what it is given is used at once')
        or diag($res->{body});
    is($full->broker, $broker, 'without an end of it');

    $full->finish;
    unlink $as;
};

done_testing();
