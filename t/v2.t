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
    test=$1; name=${1##*/}; name=${name%.t}
    case $1 in *.t) set -- perl "$1" ;; esac
    "$@" > "/tmp/out.$name" 2>&1 < /dev/null
    status=$?
    {
        flock 9
        echo "@begin $test"; cat "/tmp/out.$name"; echo; echo "@end $status"
    } 9> /tmp/told
}
export -f one
SH

$ENV{SANDBOX_TEST_SLOW} = 8;
$ENV{SANDBOX_TEST_SMALL} = 1;
$ENV{SANDBOX_TEST_VM} = 1;
$ENV{SANDBOX_BUILD} = $SandboxTest::BUILD;
delete $ENV{PERL5LIB};

# An emulated machine may hang for reasons of its own.  What has not ended is
# begun anew in another one, once.

my %lanes = (2 => [ (map { "$FindBin::Bin/$_" } @files), @programs ],
             1 => [ map { "$FindBin::Bin/$_" } @alone ]);
my $until = time + 1080;
my $status;

for (1, 2) {
    $status = machine($until - time);
    last if $status != 126;
    diag("the machine hangs; left: @{ $lanes{2} } @{ $lanes{1} }");
}

is($status, 0, 'the machine came up, and the script ended');
is_deeply(\%lanes, { 2 => [], 1 => [] }, 'all that was chosen has run');

done_testing();


sub machine {
    my ($seconds) = @_;

    my $all = join '', $script,
              map { "printf '%s\\n' @{ $lanes{$_} }"
                    . " | xargs -r -P $_ -I{} bash -c 'one {}'\n" } 2, 1;
    my ($relay, $test);

    open my $out, '-|', $run, '-t', $seconds, 'bash', '-c', $all
        or die "$run: $!";

    while (my $line = <$out>) {
        chomp $line;

        if ($line =~ /^\@begin (\S+)/) {
            $test = $1;
            $relay = SandboxTest::Relay->new(
                         'v2 ' . $test =~ s{.*/}{}r =~ s/\.t$//r);

        } elsif ($line =~ /^\@end (\d+)/ && $relay) {
            $relay->ended($1);
            $relay = undef;
            @$_ = grep { $_ ne $test } @$_ for values %lanes;

        } elsif ($relay) {
            $relay->line($line);
        }
    }

    close $out;

    return $? >> 8;
}
