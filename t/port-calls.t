#!/usr/bin/perl

# What a worker makes of a port's socket that is none, and of a core that
# goes while it is used: a fake core does as the session's id tells it to.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";

use Test::More;
use SandboxTest;
use SandboxTest::Core;

plan(skip_all => 'python3 is not installed') if !-x '/usr/bin/python3';

my $t = SandboxTest->new(workers => 1);
my $p = $t->prefix;

core_starts($p);
$t->start;

sub port {
    my ($mode) = @_;

    return $t->api(GET => '/sessions/i' . $mode . '0' x (24 - length $mode)
                          . '/ports/80/');
}

sub open_fds { return scalar(() = glob '/proc/' . ($t->workers)[0] . '/fd/*') }

is(port('port')->{body}, 'hello', 'a socket is proxied over');

my $fds = open_fds();

for my $bad (qw(none unix udp blocks file two load)) {
    my $res = port("port$bad");

    is("$res->{status} " . ($res->{json}{code} // ''), '500 E5002',
       "a bad descriptor: $bad");
    ok(core_said("^eof iport${bad}0"), 'and the call is closed');
}

is(port('portunmet')->{status}, 502, 'a socket that is not connected');
is(port('portearly')->{body}, 'hello',
   'a call that ends before the answer leaves it to the socket');

my $c = $t->connect(timeout => 20);
$c->send_request(GET => '/v1/sessions/iportover' . '0' x 16 . '/ports/80/');
my $raw = '';
while (sysread $c->socket, my $buf, 4096) { $raw .= $buf }
like($raw, qr/hello\z/, 'one that ends within an answer cuts the client');
ok(core_said('^cut'), 'and the socket');
$c->close;

is(port('port')->{body}, 'hello', 'all goes on');
ok(SandboxTest::wait_for(sub { open_fds() <= $fds + 1 }, 10),
   'no descriptor is left')
    or diag("$fds before, " . open_fds() . ' after');

core_ends();
unlink "$p/core.log";
$t->finish;

done_testing();
