#!/usr/bin/perl

# The life of a server and of a session with nginx, master and workers, under
# memcheck: any error that it finds is a failure, and none is left out.
#
# The broker and the egress are not: they begin processes by clone3, which
# valgrind does not know.  Theirs are the sanitizers' (t/sanitize.t), with a
# search for leaks at the broker's end.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";

use Test::More;
use SandboxTest;
use SandboxTest::More;
use SandboxTest::Stream;

my ($valgrind) = grep { -x } map { "$_/valgrind" } split /:/, $ENV{PATH};

plan(skip_all => 'valgrind is not installed') if !$valgrind;
plan(skip_all => 'a sanitizer cannot be run under valgrind')
    if $SandboxTest::SANITIZE;

$SandboxTest::SLOW *= 6;

# valgrind keeps descriptors for itself, and lets nobody have more.

my $t = SandboxTest->new(workers => 1,
                         edit => sub { s/^worker_rlimit_nofile .*\n//m });

# What is written there finish() takes for a sanitizer's report.

$t->{wrapper} = [
    $valgrind, '--tool=memcheck', '--quiet', '--leak-check=no',
    '--track-origins=no', '--error-exitcode=99', '--num-callers=24',
    '--log-file=' . $t->prefix . '/asan/memcheck.%p',
];

($SandboxTest::More::T, $SandboxTest::More::PORT,
 $SandboxTest::More::PREFIX) = ($t, $t->port, $t->prefix);

$t->start;


# Its title is that of valgrind: a worker is known as the master's child.

sub children { return sort { $a <=> $b } SandboxTest::children($t->master) }


sub reload {
    my %old = map { $_ => 1 } children();

    $t->signal('HUP');

    return until_true(sub {
        my @now = children();
        return @now && !grep({ $old{$_} } @now) && $t->ready;
    }, 20);
}


sub session_lives {
    my ($when) = @_;

    my $id = create_ok();

    is(run($id, 'cat; echo $X', stdin => 'in', env => { X => '1' })->{stdout},
       "in1\n", "$when: a command");
    is(put($id, 'a/b', 'x' x 300_000)->{status}, 201, "$when: an upload");
    is(length get($id, 'a/b')->{body}, 300_000, "$when: a download");
    is(get($id, 'none')->{status}, 404, "$when: no file");
    is(glob_of($id, '**')->{status}, 200, "$when: a list");

    my $s = SandboxTest::Stream::stream('POST', "/sessions/$id/exec",
        json => { cmd => 'for i in 1 2 3; do echo $i; done' });
    is($s->rest->{stdout}, "1\n2\n3\n", "$when: a stream");
    $s->close;

    is(call('POST', "/sessions/$id/exec", body => '{"cmd":',
            headers => { 'Content-Type' => 'application/json' })->{status},
       400, "$when: JSON that is none");

    SKIP: {
        my $res = call('POST', "/sessions/$id/pause");
        skip 'sessions cannot be paused here', 2 if $res->{status} == 501
                                                  || $res->{status} == 400;
        is($res->{status}, 200, "$when: a pause");
        is(call('POST', "/sessions/$id/resume")->{status}, 200,
           "$when: and its end");
    }

    # a client that goes in the middle

    my $c = open_request('POST', "/sessions/$id/exec",
                         json => { cmd => 'sleep 60' });
    until_true(sub { @{ call('GET', "/sessions/$id/processes")
                         ->{json}{processes} // [] } > 0 });
    close $c;

    is(destroy($id)->{status}, 204, "$when: the end");

    return;
}


my ($worker) = children();

like(readlink "/proc/$worker/exe", qr/memcheck/, 'a worker under memcheck');
session_lives('at first');

ok(reload(), 'a reload');
session_lives('reloaded');

my $broker = $t->broker;

ok($t->hit('KILL', $broker), 'the broker is killed');
ok(until_true(sub { ($t->broker // 0) != $broker && $t->ready }, 20),
   'and another serves');
session_lives('another broker');

($worker) = children();
ok(kill('KILL', $worker), 'the worker is killed');
ok(until_true(sub { my @now = children();
                    return @now && $now[0] != $worker && $t->ready }, 20),
   'and another serves');
$t->allow(qr/worker process \d+ exited on signal 9/);
is(call('GET', '/health')->{status}, 200, 'well');

$t->finish;
done_testing();
