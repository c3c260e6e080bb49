#!/usr/bin/perl

# Keeper and broker killed while a session is being launched: its first
# process, which has all that the broker had open until it becomes another
# program, is not to be what keeps everything else from ending.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../lib";

use Test::More;
use SandboxTest::Fault;
use SandboxTest::More;

my $t = server();

for my $point (qw(child-create-named child-create-unshared
                  child-create-mapped))
{
    my @ids = (create_ok(), create_ok());
    my ($keeper, $broker) = ($t->keeper, $t->broker);

    exec_call($ids[0], 'setsid sleep 1000 & :');
    my @old = session_pids();
    cmp_ok(scalar @old, '>=', 4, "$point: sessions are there");

    arm($broker, $point);
    my $job = async { create() };
    my $pid = held($keeper);

    ok($pid && $pid != $broker, "$point: a first process comes there");
    $t->remember($_) for @old, $pid;

    $t->hit(STOP => $keeper, $broker);
    $t->hit(KILL => $keeper);
    ok(SandboxTest::gone([ $keeper ]), "$point: the keeper is killed");
    $t->hit(KILL => $broker);
    ok(SandboxTest::gone([ $broker ]), "$point: and the broker");

    ok(release($pid), "$point: it goes on");
    ok(SandboxTest::gone([ $pid, @old ], 15),
       "$point: it ends, and all sessions with it");

    is_problem($job->get, 503, 'E5001', "$point: the create");
    is_problem(call('GET', '/health'), 503, 'E5001', "$point: and others");

    ok($t->reload, "$point: a reload");
    is_problem(call('GET', "/sessions/$ids[1]"), 404, 'E2009',
               "$point: they are gone");
    is(run(create_ok(), 'echo new')->{stdout}, "new\n",
       "$point: new ones are made");
}

$t->finish;
done_testing();
