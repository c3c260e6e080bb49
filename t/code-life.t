#!/usr/bin/perl

# Code and what happens around it: pauses, reloads, a broker that dies, the
# session's end, and sessions that are idle.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";

use Test::More;
use SandboxTest;
use SandboxTest::More;
use SandboxTest::Code;

my $t = code_server();
my $s = create_ok();

# Runs until the file is there, and says when it has begun.

my $WAITS = "import os, time\nprint('on', flush=True)\n"
            . "while not os.path.exists('go'): time.sleep(0.02)\n"
            . "os.remove('go')\n";


subtest 'a pause stops code and its clock' => sub {
    if (!call('GET', '/capabilities')->{json}{pause}{enforced}) {
        plan(skip_all => 'this machine has no cgroup.freeze');
    }

    my $f = code_stream($s, "${WAITS}'done'", timeout_s => 30);

    like($f->until('stdout')->{data}, qr/^on/, 'it runs');
    is(call('POST', "/sessions/$s/pause")->{status}, 200, 'is paused');
    is_problem(code_call($s, '1'), 409, 'E2010', 'nothing more is taken');
    is(call('POST', "/sessions/$s/resume")->{status}, 200, 'is resumed');
    put($s, 'go', '');

    my $r = $f->rest;
    is("$r->{result}{'text/plain'} $r->{end}{reason}", "'done' exited",
       'and goes on');
};


subtest 'a reload lets code go on' => sub {
    my $f = code_stream($s, "x = 5\n${WAITS}'done'");

    like($f->until('stdout')->{data}, qr/^on/, 'it runs');
    ok($t->reload, 'a reload');
    is(code_stream($s, '1')->{status}, 200, 'a new worker takes more');
    put($s, 'go', '');
    is($f->rest->{end}{reason}, 'exited', 'what ran is told to its end');
    is(code($s, 'x')->{text}, '5', 'by the same interpreter');
};


subtest 'a broker that dies takes no interpreter with it' => sub {
    my $f = code_stream($s, "y = 6\n${WAITS}'done'");

    like($f->until('stdout')->{data}, qr/^on/, 'it runs');

    my $broker = $t->broker;
    $t->hit('KILL', $broker);
    ok(until_true { my $b = $t->broker; $b && $b != $broker
                    && call('GET', "/sessions/$s")->{status} == 200 } 20);
    $t->note_processes;
    put($s, 'go', '');
    is($f->rest->{end}{reason}, 'exited', 'what ran ends');
    is(code($s, 'y')->{text}, '6', 'what it held is there');
    is(call('POST', "/sessions/$s/contexts", timeout => within(60))
       ->{status}, 201, 'and there may be more');
    is(code($s, 'import os; os._exit(1)')->{restarted}, 1, 'a death');
    is(code($s, '6*7')->{text}, '42', 'is followed by another start');
};


subtest 'the session\'s end' => sub {
    my $other = create_ok({ timeout_s => 600 });
    my $f = code_stream($other, $WAITS);

    like($f->until('stdout')->{data}, qr/^on/, 'it runs');

    my ($pid) = map { $_->{pid} } grep { $_->{kind} eq 'code' }
                @{ call('GET', "/sessions/$other/processes")
                   ->{json}{processes} };
    ok($pid, 'an interpreter');

    is(destroy($other)->{status}, 204, 'is destroyed');

    my $end = $f->rest->{end};
    ok(!defined $end || $end->{reason} eq 'session_ended',
       'no other end is made up');
    is_problem(code_call($other, '1'), 404, 'E2009', 'and there is no more');

    $other = create_ok();
    my $job = async { code_call($other, $WAITS . "kept = 1") };
    ok(until_true { (context($other, 'python')->{state} // '') eq 'running' }
       20);
    call('DELETE', "/sessions/$other?grace_s=2");
    my $res = $job->get;
    ok($res->{status} == 503 || ($res->{status} == 200
       && $res->{json}{reason} eq 'session_ended'), 'nor in one text')
        or diag($res->{body});
};


subtest 'an idle interpreter keeps no session' => sub {
    my $idle = create_ok({ manifest => { idle_timeout_s => 1 } });

    is(code($idle, "import time; time.sleep(2); 'done'")->{text}, "'done'",
       'one that runs does');

    my $res;
    # a list is no use of it
    until_true { ($res = call('GET', '/sessions'))
                 && !grep { $_->{session_id} eq $idle }
                    @{ $res->{json}{sessions} } } 20;
    $res = call('GET', "/sessions/$idle");
    is("$res->{status} $res->{json}{ended}", '404 idle', 'it ends');
};

$t->finish;
done_testing();
