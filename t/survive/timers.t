#!/usr/bin/perl

# Timers that a session watches by hundreds of thousands take each processor
# for tens of milliseconds, many times a second, and with it whoever serves
# another session then.  Nobody holds that against the other one: it downloads
# and is asked for a directory by four clients meanwhile.
#
# It holds both processors for half a minute: with SANDBOX_TEST_LONG=1 alone.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../lib";

use JSON::PP ();
use Test::More;
use Time::HiRes qw(sleep time);

use SandboxTest;
use SandboxTest::More;

my $EACH = 450;
my $MS = 50;
my $SECONDS = 25;
my $CLIENTS = 4;

BEGIN {
    plan(skip_all => 'SANDBOX_TEST_LONG=1: it holds every processor')
        if !$ENV{SANDBOX_TEST_LONG};
}

{
    my $watches = slurp('/proc/sys/fs/epoll/max_user_watches') // 0;
    my ($kb) = (slurp('/proc/meminfo') // '') =~ /^MemAvailable:\s+(\d+)/m;

    plan(skip_all => 'fs.epoll.max_user_watches is below 500,000')
        if $watches < 500_000;
    plan(skip_all => 'less than 1 GB of memory is available')
        if ($kb // 0) < 1_000_000;
}

# After the skips, as it begins the file again in a network namespace.

use SandboxTest::Net;

# A timer for each of two processors, that is watched EACH x EACH times.

my $TIMERS = <<'PYTHON';
import ctypes, os, select, struct, sys, time

EACH, MS = int(sys.argv[1]), int(sys.argv[2])
libc = ctypes.CDLL(None, use_errno=True)
every = struct.pack('qqqq', 0, MS * 1000000, 0, MS * 1000000)
cpus = sorted(os.sched_getaffinity(0))
cpus = [cpus[0], cpus[-1]]
for k in range(2):
    if os.fork() == 0:
        timer = libc.timerfd_create(time.CLOCK_MONOTONIC, 0)
        held = [os.dup(timer) for _ in range(EACH)]
        epolls = [select.epoll() for _ in range(EACH)]
        n = 0
        for e in epolls:
            for fd in held:
                e.register(fd, select.EPOLLIN | select.EPOLLET)
                n += 1
        os.sched_setaffinity(0, {cpus[k]})
        open('watched%d' % k, 'w').write('%d' % n)
        while not os.path.exists('go'):
            time.sleep(.05)
        time.sleep(k * MS / 2000)
        libc.timerfd_settime(timer, 0, every, None)
        fired = 0
        while True:
            fired += struct.unpack('Q', os.read(timer, 8))[0]
            open('new%d' % k, 'w').write('%d' % fired)
            os.rename('new%d' % k, 'fired%d' % k)
time.sleep(1000)
PYTHON

my $DOWN = <<'PYTHON';
import socket, sys, time

until, n, errors = time.time() + float(sys.argv[2]), 0, []
while time.time() < until:
    try:
        s = socket.create_connection((sys.argv[1], 7002), 10)
        s.sendall(b'200000000\n')
        while time.time() < until:
            got = s.recv(65536)
            if not got:
                break
            n += len(got)
        s.close()
    except OSError as e:
        errors.append(str(e))
        time.sleep(.1)
print(n, *errors)
PYTHON


my $net = SandboxTest::Net->new;
my $t = $net->server(workers => 1, http => "    sandbox_egress allow *;\n");

($SandboxTest::More::T, $SandboxTest::More::PORT,
 $SandboxTest::More::PREFIX) = ($t, $t->port, $t->prefix);

my $s = create_ok({ tenant_id => 'timers', manifest => {
    capabilities => [qw(shell files)], resources => { memory => '512M' } } });
my $other = create_ok({ tenant_id => 'other', manifest => {
    capabilities => [qw(shell files)], network => JSON::PP::true } });

put($s, 'timers.py', $TIMERS);
is(exec_call($s, [ 'python3', 'timers.py', "$EACH", "$MS" ],
             background => JSON::PP::true, timeout_s => undef)->{status},
   202, 'a program');

for my $k (0, 1) {
    ok((until_true {
            (get($s, "watched$k")->{body} // '') eq $EACH * $EACH
        } 60), "timer $k is watched by all of its epolls");
}

sub fired { return map { get($s, "fired$_")->{body} // 0 } 0, 1 }

put($s, 'go', 'go');
ok((until_true { 2 == grep { /^\d+$/ && $_ >= 5 } fired() } 30),
   'they fire');

my @before = fired();

my $down = async {
    my $run = exec_call($other, [ 'python3', '-c', $DOWN, '203.0.113.10',
                                  "$SECONDS" ],
                        _http => { timeout => within($SECONDS * 4) });

    return ($run->{json}{stdout} // '') . ($run->{json}{stderr} // '')
           || "status $run->{status}\n";
};

my @asked = map { async {
    my $until = time + $SECONDS;
    my %got;

    while (time < $until) {
        my $res = call('GET', "/sessions/$other/stat/");
        $got{$res->{status}}++;
        return { %got, body => $res->{body} } if $res->{status} != 200;
    }

    return \%got;
} } 1 .. $CLIENTS;

my $calls = 0;

for my $job (@asked) {
    my $got = $job->get(within($SECONDS * 3));

    is_deeply([ keys %$got ], [ 200 ], 'a client has every answer')
        or diag(join ' ', %$got);
    $calls += $got->{200} // 0;
}

my $said = $down->get(within($SECONDS * 4));
my @after = fired();

like($said, qr/^[1-9]\d{6,}\n\z/, 'the download meets no error');
cmp_ok($calls, '>=', 1000, "$calls answers");
cmp_ok($after[$_] - $before[$_], '>=', 100, "timer $_ has fired "
       . ($after[$_] - $before[$_]) . ' times') for 0, 1;

ok(!$t->log_has(qr/has no network for/), 'no session is without its network');
ok(!$t->log_has(qr/costs? too much/), 'and none costs too much');

is(run($other, 'echo x')->{stdout}, "x\n", 'the other session goes on');
is(destroy($_)->{status}, 204, 'it ends') for $s, $other;

$t->finish;
done_testing();
