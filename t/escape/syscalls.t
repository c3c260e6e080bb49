#!/usr/bin/perl

# Every system call that there is, by its number and by every entry to the
# kernel: what a session must not have is refused as the policy says.  The
# policy is written down once more, in SandboxTest::Calls.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../lib";

use POSIX ();
use Test::More;
use SandboxTest::Calls;
use SandboxTest::More;

plan(skip_all => 'the numbers are those of x86-64')
    if (POSIX::uname())[4] ne 'x86_64';

my %word = (refused => 'EPERM', unknown => 'ENOSYS', idle => 'ok',
            probe => qr/^(?:ENOSYS|ENXIO|SIGILL)$/);

my @users = $ENV{SANDBOX_TEST_SMALL} ? 'root' : qw(user root);

my $t = server();
my $s = create_ok();


# What the filter answers is asked of it alone: a kernel that refuses by
# itself would hide a hole.

subtest 'the filter, number by number' => sub {
    my $dump = "$SandboxTest::BUILD/t/core/seccomp-calls";
    plan(skip_all => "$dump is not built") if !-x $dump;

    my %got = map { /^(\d+) (\S+)$/ ? ($1 => $2) : () }
              split /\n/, `$dump answers $SandboxTest::Calls::LAST`;
    my %kind = (refused => '^EPERM$', unknown => '^ENOSYS$',
                probe => '^ENOSYS$', idle => '^0$',
                allowed => '^allowed$', either => '^(?:allowed|ENOSYS)$');

    for my $nr (SandboxTest::Calls::numbers()) {
        my $class = SandboxTest::Calls::class($nr);
        like($got{$nr} // 'nothing', qr/$kind{$class}/,
             SandboxTest::Calls::name($nr) . " is $class");
    }
};


my $numbers = inside('numbers');

SKIP: {
    skip 'no static C library to build the prober with', 1
        if !defined $numbers;

    is(put($s, 'numbers', $numbers, query => 'mode=0755')->{status}, 201,
       'the prober is there');

    for my $user (@users) {
        subtest "natively, as $user" => sub { natively($user) };
        subtest "by x32 numbers, as $user" => sub { foreign($user, 'x32') };
        subtest "by int 0x80, as $user" => sub { foreign($user, 'int80') };
    }
}


sub natively {
    my ($user) = @_;

    my @try = grep { $word{SandboxTest::Calls::class($_)} }
              SandboxTest::Calls::numbers();
    my %got = probe($user, 'native', @try);

    for my $nr (@try) {
        my $want = $word{SandboxTest::Calls::class($nr)};
        like($got{$nr} // 'nothing', ref $want ? $want : qr/^$want$/,
             SandboxTest::Calls::name($nr) . ": $want");
    }

    return;
}


# None is let through, harmless ones no more than others.  A kernel without
# the 32-bit entry raises SIGSEGV before any filter.

sub foreign {
    my ($user, $entry) = @_;

    my %got = probe($user, $entry, "0-$SandboxTest::Calls::LAST");
    my $want = $entry eq 'int80' ? qr/^SIG(?:SYS|SEGV)$/ : qr/^SIGSYS$/;
    my @alive = grep { ($got{$_} // 'nothing') !~ $want }
                SandboxTest::Calls::numbers();

    is(join(' ', map { "$_=" . ($got{$_} // 'nothing') } @alive), '',
       "each of 0 to $SandboxTest::Calls::LAST is killed");

    return;
}


sub probe {
    my ($user, $entry, @numbers) = @_;

    my $r = run($s, [ './numbers', $entry, map { "$_" } @numbers ],
                user => $user, timeout_s => 50);
    my @lines = split /\n/, $r->{stdout};

    is(pop @lines, 'done', 'the prober ran to its end') or diag($r->{stderr});

    return map { split ' ' } @lines;
}


is(run($s, 'echo alive')->{stdout}, "alive\n", 'the session is well');

destroy($s);
$t->finish;
done_testing();
