package SandboxTest::Limits;

# What the tests of limits share: sessions that hold the program "load"
# (t/lib/inside/load.c), which uses up what it is told to.

use strict;
use warnings;

use Exporter qw(import);
use Test::More;

use SandboxTest ();
use SandboxTest::More;

our @EXPORT = qw(session load cpu_of small hold whole cores busy MB);

use constant MB => 1 << 20;


# Emulated, or where little is wanted: the part that shows each limit.

sub small { return $ENV{SANDBOX_TEST_SMALL} ? 1 : 0 }


# Seconds for which something stays, so that the test may look at it.

sub hold { return $_[0] * (small() ? 2.5 : 1) * ($SandboxTest::SANITIZE + 1) }


# A subtest that is left out then.

sub whole {
    my ($name, $code) = @_;

    return subtest $name => small() ? sub { plan(skip_all => 'too slow here') }
                                    : $code;
}


sub session {
    my (%resources) = @_;

    my $lives = delete $resources{timeout_s} // 300;
    my $id = create_ok({ timeout_s => $lives,
                         manifest => { resources => \%resources } });
    my $res = put($id, 'load', inside('load'), query => 'mode=0755');

    die "load: $res->{body}\n" if $res->{status} != 201;

    return $id;
}


sub load {
    my ($id, $words, %fields) = @_;

    return run($id, [ '/home/user/load', split ' ', $words ], %fields);
}


sub cpu_of {
    my ($r) = @_;

    return ($r->{usage}{cpu_user_s} // 0) + ($r->{usage}{cpu_system_s} // 0);
}


# A machine that others use up gives nobody what he may have: then no test
# can tell that a limit gives enough.

sub busy {
    my ($load) = split ' ', SandboxTest::slurp('/proc/loadavg') // '0';

    return small() || $load > 1.5 * cores();
}


sub cores {
    my $n = () = (SandboxTest::slurp('/proc/cpuinfo') // '')
                 =~ /^processor\s*:/mg;

    return $n || 1;
}


1;
