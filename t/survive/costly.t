#!/usr/bin/perl

# A first process that has been taken over may have each use of a socket, whose
# other end it has, cost the worker tens of milliseconds.  The worker leaves
# its session alone then, and no other.  A machine that stalls for moments is
# not taken for one.
#
# The time is spent by t/lib/preload/stall.c: where "stall" is sent, or now and
# then.  SANDBOX_TEST_LONG=1 waits until the sessions are no longer left alone.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../lib";

use Test::More;
use Time::HiRes qw(sleep);
use SandboxTest;
use SandboxTest::More;
use SandboxTest::Preload;

plan(skip_all => 'a sanitizer has to be the first library')
    if $SandboxTest::SANITIZE;

my $lib = preload('stall') // plan(skip_all => 'no compiler');
my $file = "/tmp/sbxcostly.$$";
my $bytes = 'stall' x 400_000;

END { unlink $file if $file }

sub stall {
    my (%o) = @_;

    # in place: it is mapped

    open my $f, -e $file ? '+<:raw' : '>:raw', $file or die "$file: $!";
    print $f pack 'Q7', 0, $o{each} // 0, $o{us} // 0, 0, 0, 0,
                  $o{said} // 0;
    close $f;

    return;
}

sub stalls { return (unpack 'Q7', slurp($file))[4] }

# Microseconds of calls from one stall to the next: a part, of so many, of what
# one use takes in them, and no fewer than the least.  So not each call is hit
# where all of them are slow.

sub share {
    my ($least, $parts, $use) = @_;

    stall(each => 1 << 50);
    $use->() for 1 .. 10;

    my $us = (unpack 'Q7', slurp($file))[5] / 10 / $parts;

    return $us > $least ? int $us : $least;
}

stall();
chmod 0666, $file;                # the server may not be root's

my $t;

{
    local @ENV{qw(LD_PRELOAD STALL)} = ($lib, $file);
    $t = server(workers => 1);
}

my $SERVER = <<'PYTHON';
import socket
up = socket.socket()
up.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
up.bind(('127.0.0.1', 8080))
up.listen(64)
open('up', 'w').write('up')
while True:
    c, _ = up.accept()
    try:
        got = b'?'
        while got and b'END' not in got:
            got = c.recv(65536)
        c.send(b'HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok')
    except OSError:
        pass
    c.close()
PYTHON

my $other = create_ok();


sub ports_ok {
    my $s = create_ok({ manifest => {
        capabilities => [qw(shell files ports)] } });

    put($s, 'server.py', $SERVER);
    exec_call($s, [qw(python3 server.py)], background => JSON::PP::true);
    ok((until_true { get($s, 'up')->{status} == 200 } 20), 'a program');

    return $s;
}


# What costs too much, by what it is answered; by how it is begun anew.

for my $case ([ 'an upload', sub { create_ok() }, [ 500 ],
                sub { put($_[0], 'x', $bytes) } ],
              [ 'a port', \&ports_ok, [ 502, 503 ],
                sub { call('POST', "/sessions/$_[0]/ports/8080/",
                           body => $bytes . 'END') } ])
{
    my ($name, $new, $cut, $use) = @$case;

    subtest "$name: each piece costs 10 ms" => sub {
        my $s = $new->();

        like($use->($s)->{status}, qr/^20[01]$/, 'it is well');

        stall(us => 10_000, said => 1);

        my $res = $use->($s);
        my $n = stalls();

        is(scalar(grep { $res->{status} == $_ } @$cut), 1,
           'the call is cut off') or diag("$res->{status} $res->{body}");
        cmp_ok($n, '>=', 13, "after $n pieces");
        cmp_ok($n, '<=', 16, 'and no more');
        ok($t->log_has(qr/session "$s" costs too much/), 'the log says why');

        for my $again ($use->($s), exec_call($s, 'echo x')) {
            is_problem($again, 503, 'E5001', 'the next is refused',
                       qr/cost too much/);
            like($again->{headers}{'retry-after'} // '', qr/^([1-9]|10)$/,
                 'for seconds');
        }

        is(stalls(), $n, 'before anything is sent');
        stall();

        is(run($other, 'echo x')->{stdout}, "x\n", 'another goes on');
        like(put($other, 'x', $bytes)->{status}, qr/^20[01]$/,
             'with the same');
        is(call('GET', "/sessions/$s")->{status}, 200, 'it is still there');

        if ($ENV{SANDBOX_TEST_LONG}) {
            ok((until_true { $use->($s)->{status} =~ /^20[01]$/ } 30),
               'and served again');
        }

        is(destroy($s)->{status}, 204, 'it ends when it is told to');
    };
}


subtest 'whatever runs takes 6 ms longer now and then' => sub {
    my %got;

    # calls that bring a descriptor are slow in the middle, too

    put($other, 'small', 'x');
    stall(us => 6000,
          each => share(20, 1, sub { get($other, 'small') }));

    for (1 .. 1000) {
        $got{get($other, 'small')->{status}}++;
        last if stalls() >= 100;
    }

    cmp_ok(stalls(), '>=', 100, 'in downloads');
    stall(us => 6000,
          each => share(100, 4, sub { put($other, 'x', $bytes) }));

    for (1 .. 1000) {
        $got{put($other, 'x', $bytes)->{status}}++;
        last if stalls() >= 100;
    }

    my $n = stalls();

    stall();
    is_deeply([ grep { !/^20[01]$/ } keys %got ], [], 'all are answered')
        or diag(join ' ', %got);
    cmp_ok($n, '>=', 100, "$n times");
    ok(!$t->log_has(qr/session "$other" costs too much/), 'it is nobody\'s');
};


is(destroy($other)->{status}, 204, 'the other one ends');

$t->finish;
done_testing();
