#!/usr/bin/perl

# What a worker makes of sockets for a port that are none, or come when they
# may not, and of a core that goes while it connects or while one is used: a
# fake core does as the session's id tells it to.

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

# What is asked for is a port of this machine's, where the core listens.

my $listens = SandboxTest::free_port();

sub path {
    my ($mode) = @_;

    return '/sessions/i' . $mode . '0' x (24 - length $mode)
           . "/ports/$listens/";
}

sub port {
    my ($mode) = @_;

    return $t->api(GET => path($mode));
}

sub open_fds { return scalar(() = glob '/proc/' . ($t->workers)[0] . '/fd/*') }

is(port('port')->{body}, 'hello', 'a socket is connected, and proxied over');

my $fds = open_fds();

is(port('portsix')->{body}, 'hello', 'the second, where it is ::1 that listens');
is(port('portfour')->{body}, 'hello', 'one may be all that there are');

for my $bad (qw(none unix udp blocks file two load bare lie order three more
                twice settled late first))
{
    my $res = port("port$bad");

    is("$res->{status} " . ($res->{json}{code} // ''), '500 E5002',
       "what cannot be: $bad");
    ok(core_said($bad eq 'late' ? '^over iportlate0'
                                : "^(?:eof|left) iport${bad}0"),
       'and the call is closed');
}

my $res = port('portunmet');

is($res->{status}, 502, 'nobody listens');
like($res->{json}{message} // $res->{body}, qr/nothing listens on port/,
     'which is told');
is(port('portrefused')->{json}{code}, 'E2003', 'one that is refused');
is(port('portlost')->{body}, 'hello',
   'a core that goes between two sockets is asked again');
is(port('portearly')->{body}, 'hello',
   'a call that ends before the answer leaves it to the socket');

# while it waits to be let in

$res = port('portgone');
is("$res->{status} " . ($res->{json}{code} // ''), '503 E5001',
   'the call ends while it connects');
like($res->{raw} // "Retry-After: $res->{headers}{'retry-after'}",
     qr/Retry-After: \d/i, 'and may be made again');
ok(core_said('^over iportgone'), 'the core is done with it');
$res = port('portagain');
is("$res->{status} " . ($res->{json}{code} // ''), '500 E5002',
   'the core says more than it may while it connects');

ok(core_said('^over iportagain'), 'and is done with it');

my $leaves = $t->connect(timeout => 20);
$leaves->send_request(GET => '/v1' . path('portwaits'));
ok(core_said('^full iportwaits'), 'a client waits');
is($t->api(GET => '/nosuch')->{status}, 404, 'which keeps nobody waiting');
$leaves->close;
ok(core_said('^eof iportwaits'), 'it leaves, and with it the call');

my $c = $t->connect(timeout => 20);
$c->send_request(GET => '/v1' . path('portover'));
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
