#!/usr/bin/perl

# What a worker makes of a link to a port that is none, or comes when it may
# not, and of a core that goes while it waits for the program or while one is
# used: a fake core does as the session's id tells it to.

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

sub path {
    my ($mode) = @_;

    return '/sessions/i' . $mode . '0' x (24 - length $mode)
           . '/ports/8000/';
}

sub port {
    my ($mode) = @_;

    return $t->api(GET => path($mode));
}

sub open_fds { return scalar(() = glob '/proc/' . ($t->workers)[0] . '/fd/*') }

is(port('port')->{body}, 'hello', 'a program is proxied to, over the link');

my $fds = open_fds();

for my $bad (qw(none tcp udp gram blocks file two load twice late first done))
{
    my $res = port("port$bad");

    # by then it is the link's end that tells
    is("$res->{status} " . ($res->{json}{code} // ''),
       ($bad eq 'late' ? 502 : 500) . ' E5002', "what cannot be: $bad");
    ok(core_said("^(?:eof|left) iport${bad}0"), 'and the call is closed');
}

my $res = port('portunmet');

is($res->{status}, 502, 'nobody listens');
like($res->{json}{message} // $res->{body}, qr/nothing listens on port/,
     'which is told');
$res = port('portslow');
is($res->{status}, 504, 'who listens takes nobody');
like($res->{json}{message} // $res->{body}, qr/takes no connection/,
     'which is told, too');
$res = port('portshort');
is("$res->{status} " . ($res->{json}{code} // ''), '503 E5001',
   'another reason is one to try again');
is(port('portrefused')->{json}{code}, 'E2003', 'one that is refused');
is(port('portlost')->{body}, 'hello',
   'a core that goes after the link is asked again');
is(port('portearly')->{body}, 'hello',
   'a call that ends before the answer leaves it to the link');

is(length(port('portreset')->{body}), 100_000,
   'so does one that is told of a reset after all of it has been said');

# an answer that ends with its connection

sub raw {
    my ($mode) = @_;

    my $c = $t->connect(timeout => 20);
    my $raw = '';

    $c->send_request(GET => '/v1' . path($mode),
                     headers => { Connection => 'close' });

    while (sysread $c->socket, my $buf, 4096) { $raw .= $buf }

    $c->close;

    return $raw;
}

like(raw('portend'), qr/\r\nhello\r\n0\r\n\r\n\z/,
     'one whose end the core tells of is whole');
like(raw('portcut'), qr/\r\nhello(?:\r\n)?\z/,
     'one whose end it does not is cut');

# while it waits to be let in

$res = port('portgone');
is("$res->{status} " . ($res->{json}{code} // ''), '503 E5001',
   'the call ends while it waits');
like($res->{raw} // "Retry-After: $res->{headers}{'retry-after'}",
     qr/Retry-After: \d/i, 'and may be made again');

my $leaves = $t->connect(timeout => 20);
$leaves->send_request(GET => '/v1' . path('portwaits'));
ok(core_said('^waits iportwaits'), 'a client waits');
is($t->api(GET => '/nosuch')->{status}, 404, 'which keeps nobody waiting');
$leaves->close;
ok(core_said('^eof iportwaits'), 'it leaves, and with it the call');

like(raw('portover'), qr/hello\z/,
     'one that ends within an answer cuts the client');

is(port('port')->{body}, 'hello', 'all goes on');
ok(SandboxTest::wait_for(sub { open_fds() <= $fds + 1 }, 10),
   'no descriptor is left')
    or diag("$fds before, " . open_fds() . ' after');

core_ends();
unlink "$p/core.log";
$t->finish;

done_testing();
