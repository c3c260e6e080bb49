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
# walks the whole of /usr. Two at a time, the longest first; what measures
# processor time or changes a setting of the machine is alone at the end.

my @files = qw(storage-quota.t survive/reboot.t quickstart.t
               limits-memory.t limits-processes.t limits-time.t limits-usage.t
               escape/syscalls.t escape/kernel.t);
my @alone = qw(lifecycle.t limits-cpu.t);
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

# What one has said is told when it has ended, and not into another's words.

my $script = <<'SH';
one() {
    name=${1##*/}; name=${name%.t}
    case $1 in *.t) set -- perl "$1" ;; esac
    "$@" > "/tmp/out.$name" 2>&1 < /dev/null
    status=$?
    {
        flock 9
        echo "@begin $name"; cat "/tmp/out.$name"; echo; echo "@end $status"
    } 9> /tmp/told
}
export -f one
SH

my %tests = (
    2 => [ (map { "$FindBin::Bin/$_" } @files), @programs ],
    1 => [ map { "$FindBin::Bin/$_" } @alone ],
);

for my $lanes (2, 1) {
    $script .= "printf '%s\\n' @{ $tests{$lanes} }"
               . " | xargs -P $lanes -I{} bash -c 'one {}'\n";
}

$ENV{SANDBOX_TEST_SLOW} = 8;
$ENV{SANDBOX_TEST_SMALL} = 1;
$ENV{SANDBOX_TEST_VM} = 1;
$ENV{SANDBOX_BUILD} = $SandboxTest::BUILD;
delete $ENV{PERL5LIB};

open my $out, '-|', $run, '-t', 1080, 'bash', '-c', $script or die "$run: $!";

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
is($ended, @files + @alone + @programs, 'all that was chosen has run');

done_testing();
