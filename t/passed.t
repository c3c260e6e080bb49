#!/usr/bin/perl

# A session's first process that was taken over keeps a copy of what it passes,
# and changes what the two share: how a close of it waits.  The worker waits
# for none, takes none where none may come, and closes all.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";

use Test::More;
use SandboxTest;
use POSIX ();
use SandboxTest::Core;

plan(skip_all => 'python3 is not installed') if !-x '/usr/bin/python3';

my $t = SandboxTest->new(workers => 1);
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
    ok(core_said("^keeps $id") && !core_says("^lets go $id"),
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


sub open_fds { return scalar(() = glob '/proc/' . ($t->workers)[0] . '/fd/*') }

my $fds = open_fds();
# Who asks does not matter: it is about others.

sub asks {
    my ($path) = @_;

    my $pid = fork // die "fork: $!";

    if ($pid == 0) {
        $t->http(GET => $path, timeout => 20);
        POSIX::_exit(0);
    }

    waitpid $pid, 0;

    return;
}

for ([ straylinger => '/files/x', 'one that nobody asked for' ],
     [ portlinger => '/ports/8000/',
       'a socket of a port that comes too late' ])
{
    my ($mode, $path, $what) = @$_;

    asks('/v1/sessions/' . id($mode) . $path);
    ok(SandboxTest::wait_for(sub { open_fds() <= $fds }, 10),
       "$what is closed");
    is_served($mode, "$what, which lingers");
    let_go($mode);
}

core_ends();
$t->finish;
done_testing();
