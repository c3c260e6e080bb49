package SandboxTest::Core;

# A core of the test's own (fake-core) in the place of the server's, which does
# what it is told by the session's id and writes down what it is asked.

use strict;
use warnings;

use Exporter qw(import);
use Test::More;

use SandboxTest ();

our @EXPORT = qw(core_starts core_ends core_log core_says core_said
                 core_pid);

my ($pid, $end, $log);


# Before the server is started, whose prefix it is.

sub core_starts {
    my ($prefix) = @_;

    pipe my $in, $end or die "pipe: $!";
    $log = "$prefix/core.log";
    $pid = fork // die "fork: $!";

    if ($pid == 0) {
        close $end;
        open STDIN, '<&', $in or die $!;
        exec '/usr/bin/python3', "$SandboxTest::ROOT/t/lib/fake-core", $prefix;
        die "exec: $!";
    }

    close $in;
    BAIL_OUT('the fake core does not start') if !core_said('^ready');

    return;
}


sub core_ends {
    close $end;
    waitpid $pid, 0;

    return;
}


sub core_pid { return $pid }
sub core_log { return SandboxTest::slurp($log) // '' }
sub core_says { return scalar(() = core_log() =~ /$_[0]/mg) }


sub core_said {
    my ($what, $n) = @_;

    return SandboxTest::wait_for(sub { core_says($what) >= ($n // 1) }, 10);
}


1;
