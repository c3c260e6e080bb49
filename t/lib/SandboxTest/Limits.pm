package SandboxTest::Limits;

# What the tests of limits share: sessions that hold the program "load"
# (t/lib/inside/load.c), which uses up what it is told to.

use strict;
use warnings;

use Exporter qw(import);
use Test::More;

use SandboxTest ();
use SandboxTest::More;

our @EXPORT = qw(session load cpu_of small whole cores v2 MB);

use constant MB => 1 << 20;


# Emulated, or where little is wanted: the part that shows each limit.

sub small { return $ENV{SANDBOX_TEST_SMALL} ? 1 : 0 }


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


sub cores {
    my $n = () = (SandboxTest::slurp('/proc/cpuinfo') // '')
                 =~ /^processor\s*:/mg;

    return $n || 1;
}


# Whether memory is limited by cgroup v2 here.

sub v2 {
    my ($id) = @_;

    my $j = call('GET', "/sessions/$id")->{json};

    return $j->{enforcement}{memory} eq 'cgroup v2';
}


1;
