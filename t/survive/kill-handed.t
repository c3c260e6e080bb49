#!/usr/bin/perl

# Brokers that die when they have handed a command or an interpreter's group
# to a session's first process, which has not looked at it yet: it runs all the
# same, once, is counted, and leaves nothing, however many of them died.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../lib";

use JSON::PP ();
use Test::More;
use SandboxTest ();
use SandboxTest::Fault;
use SandboxTest::Kill qw(init_of);
use SandboxTest::More;

my $t = server(workers => 1, extra => <<'CONF');
        location /admin/ { sandbox_api admin; }
CONF

my $UNTIL_GO = 'until [ -e go ]; do sleep 0.1; done';
my $id = create_ok({ manifest => { capabilities => [qw(shell files code)] } });
my $init = init_of($id);

sub used {
    my ($tenant) = $t->api(GET => "/sessions/$id")->{json}{tenant_id};

    return $t->api(GET => "/quotas/$tenant", undef, base => '/admin')
           ->{json}{used}{commands};
}

# Groups of commands, by number.

sub groups {
    my %n = map { m{/\Q$id\E/work/run/(\d+)$} ? ($1 => 1) : () } cgroup_dirs();

    return keys %n;
}

sub stopped {
    return (slurp("/proc/$init/stat") // '') =~ /\) [Tt] /;
}

sub command {
    return exec_call($id, $_[0], _http => { timeout => 90 });
}

# For each of the calls a broker, killed when it has done what leads it there.

sub struck {
    my ($point, @calls) = @_;

    my @jobs;

    for my $call (@calls) {
        my $broker = $t->broker;

        arm($broker, $point);
        push @jobs, async { $call->() };
        my $held = held($broker, 20);
        ok($held, "a broker has handed it on");
        disarm($broker);
        kill KILL => $broker;
        SandboxTest::gone([ $broker ], 10);
        until_true { my $b = $t->broker; $b && $b != $broker } 20;
        is(call(GET => "/sessions/$id")->{status}, 200, 'another has come');
    }

    return @jobs;
}

is(call(POST => "/sessions/$id/code",
        json => { code => 'x = 1', language => 'python' })->{status}, 200,
   'an interpreter is there');
is(used(), 0, 'no command runs');

my @before = groups();

kill STOP => $init;
until_true { stopped() } 10;

my @jobs = struck('broker-call-handed',
    sub { command("echo a >> log; $UNTIL_GO") },
    sub { command("echo b >> log; $UNTIL_GO") },
    sub { command('echo c >> log') });

ok(stopped(), 'the first process has looked at none of them');
cmp_ok(scalar groups(), '>=', @before + 2, 'whose groups are there');
kill CONT => $init;

is($jobs[2]->get(60)->{status}, 200, 'what is over is answered');
until_true { used() == 2 } 20;
is(used(), 2, 'those that run are counted, the interpreter is not');
put($id, 'go', '');
is(join(' ', map { $_->get(60)->{status} } @jobs[0, 1]), '200 200',
   'all are answered');
is(join(' ', sort split /\n/, get($id, 'log')->{body}), 'a b c',
   'each has run once');
until_true { used() == 0 } 20;
is(used(), 0, 'none runs any more');
until_true { groups() <= @before } 20;
is(scalar groups(), scalar @before, 'none has left a group');

is(call(POST => "/sessions/$id/code",
        json => { code => 'x', language => 'python' })->{json}{text}, '1',
   'the interpreter is the one that was there');

# ---- an interpreter's group --------------------------------------------------

arm($init, 'init-kernel-asked');

my $job = async {
    call(POST => "/sessions/$id/code", timeout => 90,
         json => { code => 'echo bash', language => 'bash' });
};
my $held = held($init, 20);
ok($held, 'a group for another interpreter is asked for');
kill STOP => $init;
until_true { stopped() } 10;
release($held);

my $broker = $t->broker;
until_true { @before < groups() } 10;
kill KILL => $broker;
SandboxTest::gone([ $broker ], 10);
until_true { my $b = $t->broker; $b && $b != $broker } 20;
is(call(GET => "/sessions/$id")->{status}, 200, 'another broker has come');
kill CONT => $init;
my $res = $job->get(60);
is("$res->{status} " . ($res->{json}{stdout} // ''), "200 bash\n",
   'the interpreter has begun in it');

is(destroy($id)->{status}, 204, 'the session ends');

$t->finish;
done_testing();
