#!/usr/bin/perl

# pause and resume: what stands still, what is answered meanwhile, and what
# becomes of calls that were under way.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";

use IO::Select;
use Test::More;
use Time::HiRes qw(sleep);
use Time::Local qw(timegm);
use SandboxTest::More;

my $t = server();

if (!call('GET', '/capabilities')->{json}{pause}{enforced}) {
    $t->finish;
    plan(skip_all => 'this machine has no cgroup.freeze');
}

sub seconds {
    my ($y, $mo, $d, $h, $mi, $s, $f) = ($_[0] // '') =~
        /^(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(\.\d+)?Z$/
        or return 0;

    return timegm($s, $mi, $h, $d, $mo - 1, $y) + ($f // 0);
}

sub pause  { return call('POST', "/sessions/$_[0]/pause") }
sub resume { return call('POST', "/sessions/$_[0]/resume") }
sub session { return call('GET', "/sessions/$_[0]")->{json} }

sub crash {
    my $old = $t->broker;

    kill 'KILL', $old;

    return until_true {
        my $new = $t->broker;
        $new && $new != $old && call('GET', '/health')->{status} == 200
    };
}

# A command that writes a line 20 times a second, and how many it has.

my $counter = 'i=0; while [ $i -lt %d ]; do i=$((i+1)); echo $i >> /tmp/n;'
              . ' sleep 0.05; done; echo counted';

# Processor time that the session has used, which no call of ours adds to.

sub used { return session($_[0])->{usage}{cpu_seconds} }

sub stands_still {
    my ($id) = @_;

    my $before = used($id);

    sleep 0.5;

    return used($id) == $before;
}


subtest 'pause and resume' => sub {
    my $id = create_ok({ timeout_s => 200 });
    my $expires = seconds(session($id)->{expires_at});

    my $res = pause($id);
    my $t0 = time;
    is("$res->{status} $res->{json}{status}", '200 paused', 'paused');
    is($res->{json}{session_id}, $id, 'it is the session that is answered');
    is(pause($id)->{status}, 200, 'twice is once');
    is(session($id)->{status}, 'paused', 'GET');
    ok(exists session($id)->{usage}, 'with its usage');

    my $list = sub {
        return join ' ', map { $_->{session_id} }
               @{ call('GET', "/sessions?$_[0]")->{json}{sessions} };
    };
    is($list->('status=paused'), $id, 'the list knows it');
    is($list->('status=running'), '', 'and not as running');

    for my $c ([ 'exec', sub { exec_call($id, 'true') } ],
               [ 'upload', sub { put($id, 'x', 'y') } ],
               [ 'download', sub { get($id, '/etc/passwd') } ],
               [ 'files', sub { call('GET', "/sessions/$id/files") } ],
               [ 'remove', sub { del($id, 'x') } ])
    {
        is_problem($c->[1]->(), 409, 'E2010', $c->[0]);
    }

    sleep 1;
    $res = resume($id);
    my $moved = seconds($res->{json}{expires_at}) - $expires;
    is("$res->{status} $res->{json}{status}", '200 running', 'resumed');
    cmp_ok($moved, '>=', 1, 'the time paused moves expires_at');
    cmp_ok($moved, '<', time - $t0 + 1, 'by no more than that');
    is(resume($id)->{status}, 200, 'twice is once');
    is(run($id, 'echo on')->{stdout}, "on\n", 'it works');
    destroy($id);

    is_problem(pause($id), 404, 'E2009', 'pause of an ended one');
    is_problem(resume($id), 404, 'E2009', 'resume of an ended one');
};


# The file that says whether the kernel has frozen a session's processes: in
# a hierarchy that may be nobody's but the broker's.

sub events_file {
    my ($id) = @_;

    for my $fd (glob '/proc/' . $t->broker . '/fd/*') {
        my $file = "$fd/$id/work/cgroup.events";
        return $file if -e $file;
    }

    return undef;
}


subtest 'it is answered when all stand still' => sub {
    my $id = create_ok({ manifest => { resources => { memory => '400MB' } } });
    my $file = events_file($id);
    my @moving;

    ok($file, 'the kernel tells') or return;

    # most of the time this is where nothing but SIGKILL can interrupt it

    my $job = async { exec_call($id, [ 'python3', '-c', <<'PY' ]) };
import mmap
open('/tmp/begun', 'w').close()
while True:
    mmap.mmap(-1, 256 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
              | mmap.MAP_POPULATE).close()
PY

    ok(until_true { get($id, '/tmp/begun')->{status} == 200 }, 'it runs');

    for my $round (1 .. 8) {
        is(pause($id)->{status}, 200, 'paused');
        push @moving, $round if slurp($file) !~ /^frozen 1$/m;
        resume($id);
        ok(until_true { slurp($file) =~ /^frozen 0$/m }, 'and resumed');
    }

    is("@moving", '', 'nothing moves any more');
    destroy($id);
    $job->get;
};


subtest 'commands that begin as it is paused' => sub {
    my $id = create_ok();
    my $file = events_file($id);

    for my $round (1 .. 8) {
        my @jobs = map { async {
            exec_call($id, 'echo ran', timeout_s => within(20))
        } } 1 .. 6;
        my $res = pause($id);

        is($res->{status}, 200, 'paused');
        ok(until_true { slurp($file) =~ /^frozen 1$/m },
           'and whatever has begun stands still');
        is(resume($id)->{status}, 200, 'resumed');

        my @got = map { $_->get } @jobs;
        my %how;

        for (@got) {
            $how{ $_->{status} == 200 ? $_->{json}{stdout}
                                      : $_->{json}{code} // 'none' }++;
        }

        is(join(' ', grep { !/^(?:ran\n|E2010)$/ } keys %how), '',
           'each has run, or was refused');
    }

    destroy($id);
};


subtest 'changes at once' => sub {
    my $id = create_ok();
    my @jobs = map { my $n = $_; async {
        ($n % 2 ? pause($id) : resume($id))->{status}
    } } 1 .. 12;

    is(join(' ', map { $_->get } @jobs), join(' ', (200) x 12),
       'all are answered');
    is(resume($id)->{json}{status}, 'running', 'the last holds');
    is(run($id, 'echo on')->{stdout}, "on\n", 'and it works');

    @jobs = map { my $n = $_; async {
        ($n == 3 ? destroy($id) : pause($id))->{status}
    } } 1 .. 5;

    is(join(' ', grep { !/^(?:200|204|404)$/ } map { $_->get } @jobs), '',
       'one of them is its end');
    is(call('GET', "/sessions/$id")->{status}, 404, 'which it is');
};


subtest 'a command under way stands still, and goes on' => sub {
    my $id = create_ok();
    my $job = async {
        exec_call($id, sprintf($counter, 40),
                  timeout_s => within(5))->{json}
    };

    ok(until_true { get($id, '/tmp/n')->{status} == 200 }, 'it runs');
    is(pause($id)->{json}{status}, 'paused', 'paused');
    ok(stands_still($id), 'it does nothing');

    # past its own time-out, had its clock gone on

    sleep within(5) + 0.5;
    ok(!$job->ready, 'its call waits');
    resume($id);

    my $r = $job->get;
    is("$r->{stdout} $r->{reason}", "counted\n exited", 'all of it was done');
    cmp_ok($r->{duration_s}, '<', within(5),
           'the time paused is not in its duration');

    # the clock goes on after that

    $job = async {
        exec_call($id, 'touch /tmp/long; sleep 1000',
                  timeout_s => 2)->{json}
    };
    until_true { get($id, '/tmp/long')->{status} == 200 };
    pause($id);
    resume($id);
    is($job->get->{reason}, 'timeout', 'a time-out comes all the same');
    destroy($id);
};


subtest 'a client that waits is not given up' => sub {
    my $id = create_ok();
    my $job = async {
        exec_call($id, 'touch /tmp/b; sleep 1; echo end',
                  timeout_s => 3)
    };

    until_true { get($id, '/tmp/b')->{status} == 200 };
    pause($id);

    # the worker takes a call for dead 15 s after its command's time-out

    sleep 20;
    ok(!$job->ready, 'it waits');
    resume($id);
    is($job->get->{json}{stdout}, "end\n", 'and is answered');
    destroy($id);
};


subtest 'a client that goes away ends its command' => sub {
    my $id = create_ok();
    my $s = open_request('POST', "/sessions/$id/exec",
                         json => { cmd => 'touch /tmp/b; sleep 1000' });

    until_true { get($id, '/tmp/b')->{status} == 200 };
    my $n = session($id)->{usage}{processes};
    cmp_ok($n, '>', 0, 'it runs');
    pause($id);
    close $s;
    ok(until_true { session($id)->{usage}{processes} == 0 },
       'frozen or not');
    is(session($id)->{status}, 'paused', 'the session is as it was');
    resume($id);
    is(run($id, 'echo on')->{stdout}, "on\n", 'and works');
    destroy($id);
};


subtest 'an upload under way' => sub {
    my $id = create_ok();
    my $s = open_request('PUT', "/sessions/$id/files/up",
                         headers => { 'Content-Length' => 8 },
                         body => 'half');

    ok(until_true { session($id)->{usage}{disk} > 0 }, 'it has begun');
    sleep 0.3;
    pause($id);
    SandboxTest::More::send_all($s, 'rest');
    ok(!IO::Select->new($s)->can_read(1), 'waits');
    resume($id);
    is(read_response($s)->{status}, 201, 'and goes on');
    is(get($id, 'up')->{body}, 'halfrest', 'whole');
    destroy($id);
};


subtest 'a download under way' => sub {
    my $id = create_ok();
    run($id, 'head -c 30000000 /dev/zero > big');

    my $s = open_request('GET', "/sessions/$id/files/big", rcvbuf => 65536);
    my $res = read_head($s);
    is($res->{status}, 200, 'it has begun');
    pause($id);

    my ($n, $whole) = body_stream($s, $res, sub { });
    is($n, 30000000, 'it is the server that sends it: it goes on');
    ok($whole, 'to the end');
    destroy($id);
};


subtest 'a paused session ends' => sub {
    my $id = create_ok();
    my $job = async { run($id, 'touch /tmp/b; sleep 1000') };

    until_true { get($id, '/tmp/b')->{status} == 200 };
    pause($id);
    my $t0 = time;
    is(call('DELETE', "/sessions/$id")->{status}, 204, 'by DELETE');
    cmp_ok(time - $t0, '<', within(3), 'at once');
    is($job->get->{reason}, 'session_ended', 'its command is told');

    $id = create_ok();
    $job = async {
        run($id, 'trap "echo obeyed; exit" TERM; touch /tmp/b;'
                 . ' while :; do sleep 0.05; done')
    };
    until_true { get($id, '/tmp/b')->{status} == 200 };
    pause($id);
    is(call('DELETE', "/sessions/$id?grace_s=20")->{status}, 204,
       'by DELETE with time');
    is($job->get->{stdout}, "obeyed\n", 'which it can use');
};


subtest 'paused over a crash' => sub {
    my $id = create_ok({ timeout_s => 200 });
    my $job = async {
        exec_call($id, sprintf($counter, 60),
                  timeout_s => within(30))->{json}
    };

    until_true { get($id, '/tmp/n')->{status} == 200 };
    my $left = seconds(session($id)->{expires_at}) - time;
    pause($id);
    ok(crash(), 'a broker again');

    is(session($id)->{status}, 'paused', 'it is paused still');
    ok(stands_still($id), 'and does nothing');
    is_problem(exec_call($id, 'true'), 409, 'E2010', 'exec');

    my $s = resume($id)->{json};
    is($s->{status}, 'running', 'it can be resumed');
    cmp_ok(abs(seconds($s->{expires_at}) - time - $left), '<', 5,
           'with the time that it had');
    is($job->get->{stdout}, "counted\n", 'what ran before goes on');
    is(run($id, 'echo on')->{stdout}, "on\n", 'and it works');

    ok(crash(), 'another broker');
    is(session($id)->{status}, 'running', 'resumed over a crash');
    is(run($id, 'echo on')->{stdout}, "on\n", 'it works');
    destroy($id);
};

$t->finish;


subtest 'sandbox_max paused=' => sub {
    $t = server(http => '    sandbox_max paused=1;');

    my $id = create_ok({ timeout_s => 200 });
    my $other = create_ok();

    pause($id);
    pause($other);
    resume($other);
    ok(until_true { call('GET', "/sessions/$id")->{status} == 404 },
       'paused for longer, it ends');
    is(call('GET', "/sessions/$id")->{json}{ended}, 'expired', 'expired');
    is(run($other, 'echo on')->{stdout}, "on\n",
       'one that was resumed lives on');
    destroy($other);
    $t->finish;
};


subtest 'it is no limit of a manifest or a default' => sub {
    my $conf = SandboxTest->new(http => '    sandbox_default paused=1;');
    $conf->allow(qr/"sandbox_default" directive/);
    my ($status, $text) = $conf->nginx('-t');

    isnt($status, 0, 'sandbox_default paused=');
    like($text, qr/paused/, 'is refused by name');
    $conf->finish;
};

done_testing;
