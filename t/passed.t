#!/usr/bin/perl

# A session's first process that was taken over keeps a copy of the socket
# that it passed, and changes what the two share: that it does not block, how
# a close of it waits.  The worker waits for neither.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";

use IO::Select;
use Test::More;
use SandboxTest;
use POSIX ();
use SandboxTest::Core;

plan(skip_all => 'python3 is not installed') if !-x '/usr/bin/python3';

my $t = SandboxTest->new(workers => 1,
                         server => '        sandbox_port_timeout 4s;');
my $p = $t->prefix;

core_starts($p);
$t->start;

sub id { return 'i' . $_[0] . '0' x (24 - length $_[0]) }


# Another client of the same worker is answered while the core still holds on.

sub is_served {
    my ($mode, $name) = @_;

    my $id = id($mode);
    my $res = $t->http(GET => '/v1/nosuch', timeout => 10);

    is($res->{status}, 404, "$name: others are served");
    ok(core_says("^keeps $id") && !core_says("^lets go $id"),
       'while it is held');

    return;
}

sub let_go {
    my ($mode) = @_;

    open my $f, '>', "$p/told." . id($mode) or die $!;
    close $f;
    ok(core_said('^lets go ' . id($mode)), 'and then it is let go');

    return;
}


# Sends until nobody takes more for a second.

sub upload {
    my ($mode) = @_;

    my $c = $t->connect(timeout => 20);
    my $s = $c->socket;

    syswrite $s, 'PUT /v1/sessions/' . id($mode) . "/ports/80/ HTTP/1.1\r\n"
                 . "Host: localhost\r\nContent-Length: 3000000000\r\n\r\nx";
    ok(core_said('^keeps ' . id($mode)), "$mode: it is changed");

    $s->blocking(0);
    my ($write, $sent, $piece) = (IO::Select->new($s), 0, 'x' x 1_000_000);

    while ($write->can_write(1) && $sent < 1e9) {
        $sent += syswrite($s, $piece) // 0;
    }

    ok($sent < 1e9, 'nobody inside reads');

    return $c;
}

my $c = upload('portflags');
is_served('portflags', 'a socket that blocks');
let_go('portflags');
$c->close;

$c = upload('portlinger');
ok(core_said('^cut ' . id('portlinger')), 'its time is over: it is closed');
is_served('portlinger', 'a socket that lingers');
let_go('portlinger');
$c->close;

sub open_fds { return scalar(() = glob '/proc/' . ($t->workers)[0] . '/fd/*') }

my $fds = open_fds();
my $other = fork // die "fork: $!";

if ($other == 0) {
    $t->http(GET => '/v1/sessions/' . id('straylinger') . '/files/x',
             timeout => 20);
    POSIX::_exit(0);
}

waitpid $other, 0;
ok(SandboxTest::wait_for(sub { open_fds() <= $fds }, 10),
   'one that nobody asked for is closed');
is_served('straylinger', 'one that lingers');
let_go('straylinger');

core_ends();
$t->finish;
done_testing();
