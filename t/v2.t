#!/usr/bin/perl

# A chosen part of the tests again where every controller is in cgroup v2: in
# a virtual machine, one start of it for all of them.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";

use Test::More;
use SandboxTest;
use SandboxTest::Relay;

my $run = "$FindBin::Bin/lib/run-v2";

# Emulated, the machine is ten times as slow: what shows the isolation, the
# limits and the processes, not every field of every answer, and nothing that
# walks the whole of /usr.

my @files = qw(quickstart.t lifecycle.t limits-memory.t limits-cpu.t
               limits-processes.t limits-time.t limits-usage.t
               storage-quota.t
               escape/syscalls.t escape/kernel.t);
my @programs = grep { -x }
               map { "$SandboxTest::BUILD/t/core/$_" }
               map { m{([^/]+)\.c$} }
               sort glob "$FindBin::Bin/core/{cgroup,isolate}-*.c";

plan(skip_all => 'must run as root') if $> != 0;
plan(skip_all => 'this machine\'s own controllers are v2 already')
    if !grep { / - cgroup / } split /\n/,
       SandboxTest::slurp('/proc/self/mountinfo');
plan(skip_all => 'sanitizers are too slow under emulation')
    if $SandboxTest::SANITIZE;

my $lacks = `$run -n 2>&1`;
plan(skip_all => $lacks =~ s/\n.*//sr) if $? != 0;

my $missing = SandboxTest::missing();
plan(skip_all => $missing) if $missing;

my $script = join ' ', map {
    my $command = m{\.t$} ? "perl $FindBin::Bin/$_" : $_;
    my ($name) = m{([^/]+?)(?:\.t)?$};
    "echo '\@begin $name'; $command 2>&1; s=\$?; echo; echo \"\@end \$s\";"
} @programs, @files;

$ENV{SANDBOX_TEST_SLOW} = 8;
$ENV{SANDBOX_TEST_SMALL} = 1;
$ENV{SANDBOX_TEST_VM} = 1;
$ENV{SANDBOX_BUILD} = $SandboxTest::BUILD;
delete $ENV{PERL5LIB};

open my $out, '-|', $run, '-t', 1080, 'sh', '-c', $script or die "$run: $!";

my ($relay, $ended) = (undef, 0);

while (my $line = <$out>) {
    chomp $line;

    if ($line =~ /^\@begin (\S+)/) {
        $relay = SandboxTest::Relay->new("v2 $1");

    } elsif ($line =~ /^\@end (\d+)/ && $relay) {
        $relay->ended($1);
        $relay = undef;
        $ended++;

    } elsif ($relay) {
        $relay->line($line);
    }
}

close $out;

is($? >> 8, 0, 'the machine came up, and the script ended');
is($ended, @files + @programs, 'all that was chosen has run');

done_testing();
