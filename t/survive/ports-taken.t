#!/usr/bin/perl

# A session that has taken every port that a connection can come from: who
# connects to one of its ports from outside is told so, and does not look for
# long.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../lib";

use Test::More;
use SandboxTest;
use SandboxTest::More;
use SandboxTest::Turns;

BEGIN {
    my $why = SandboxTest::Turns::missing();
    plan(skip_all => $why) if $why;
}

my $CLIENTS = 48;

# Each process has as many as it may; the last word is the number of them all.
my $TAKE = <<'PYTHON';
import os, socket, time

FIRST, LAST, EACH = 32768, 60999, 900

up = socket.socket()
up.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
up.bind(('127.0.0.1', 8080))
up.listen(64)
r, w = os.pipe()
for at in range(FIRST, LAST + 1, EACH):
    if os.fork() == 0:
        up.close()
        held = []
        for port in range(at, min(at + EACH, LAST + 1)):
            s = socket.socket()
            s.bind(('127.0.0.1', port))
            held.append(s)
        os.write(w, b'%6d' % len(held))
        time.sleep(1000)
n = 0
while n < LAST + 1 - FIRST:
    n += int(os.read(r, 6))
open('taken', 'w').write(str(n))
while True:
    c, _ = up.accept()
    c.recv(1000)
    c.send(b'HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok')
    c.close()
PYTHON

my $turns = SandboxTest::Turns->new;
my $t = server(workers => 1);

ok($turns->loaded, 'turns are measured');

my $s = create_ok({ manifest => {
    capabilities => [qw(shell files ports)],
    resources => { memory => '1G' } } });

put($s, 'take.py', $TAKE);

is(exec_call($s, [qw(python3 take.py)],
             background => JSON::PP::true)->{status}, 202, 'a program');
ok((until_true { get($s, 'taken')->{body} eq '28232' } 30),
   'every port is taken');

my $port = "/sessions/$s/ports/8080/";
my $res = call('GET', $port);

is_problem($res, 503, 'E5001', 'nobody can connect', qr/ports in use/);
is($res->{headers}{'retry-after'}, 1, 'for the moment');

$turns->brief('those who try', sub {
    my %got;
    my @jobs = map { async { call('GET', $port)->{status} } } 1 .. $CLIENTS;

    $got{$_->get}++ for @jobs;
    is_deeply(\%got, { 503 => $CLIENTS }, 'all are told');
});

is(run($s, 'echo x')->{stdout}, "x\n", 'the session is well');
run($s, 'kill $(grep -l "[t]ake.py" /proc/[0-9]*/cmdline | cut -d/ -f3)');
ok((until_true { call('GET', $port)->{status} == 502 } 10),
   'and when they are free nothing listens, which is told');
destroy($s);

my $other = create_ok({ manifest => { capabilities => [qw(shell ports)] } });

is(call('GET', "/sessions/$other/ports/8080/")->{status}, 502,
   'another has its own');
destroy($other);

$t->finish;
done_testing();
