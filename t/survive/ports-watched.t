#!/usr/bin/perl

# A program whose sockets are watched by hundreds of thousands: each packet to
# them wakes all of those in the time of who sends it.  A worker sends none.

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

my $CLIENTS = 8;

# Each watches the listener from all of its own: descriptors of one by epolls.
my $WATCH = <<'PYTHON';
import os, select, socket, time

EACH, PROCESSES = 440, 1

up = socket.socket()
up.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
up.bind(('127.0.0.1', 8080))
up.listen(64)
r, w = os.pipe()
for _ in range(PROCESSES):
    if os.fork() == 0:
        held = [os.dup(up.fileno()) for _ in range(EACH)]
        watches = 0
        for _ in range(EACH):
            e = select.epoll()
            held.append(e)
            for fd in held[:EACH]:
                e.register(fd, select.EPOLLIN)
                watches += 1
        os.write(w, b'%8d' % watches)
        time.sleep(1000)
n = 0
while n < EACH * EACH * PROCESSES:
    n += int(os.read(r, 8))
open('watched', 'w').write(str(n))
while True:
    c, _ = up.accept()
    try:
        c.recv(1000)
        c.send(b'HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok')
    except OSError:
        pass
    c.close()
PYTHON

my $turns = SandboxTest::Turns->new;
my $t = server(workers => 1);

ok($turns->loaded, 'turns are measured');

my $s = create_ok({ manifest => {
    capabilities => [qw(shell files ports)],
    resources => { memory => '512M' } } });

put($s, 'watch.py', $WATCH);

is(exec_call($s, [qw(python3 watch.py)],
             background => JSON::PP::true)->{status}, 202, 'a program');
ok((until_true { (get($s, 'watched')->{body} // '') eq 440 * 440 } 60),
   'its listener is watched by all of its epolls');

my $port = "/sessions/$s/ports/8080/";

$turns->brief('those who ask', sub {
    my @jobs = map { async { call('GET', $port, timeout => within(30)) } }
               1 .. $CLIENTS;
    my %got;

    $got{$_->get(within(40))->{body}}++ for @jobs;
    is_deeply(\%got, { ok => $CLIENTS }, 'all are answered');
});

is(run($s, 'echo x')->{stdout}, "x\n", 'the session is well');
is(destroy($s)->{status}, 204, 'it ends');

$t->finish;
done_testing();
