package SandboxTest::Relay;

# Results of other test programs under this one's plan: each of their lines
# becomes a test of ours, named after the program.

use strict;
use warnings;

use Test::More;


sub new {
    my ($class, $name) = @_;

    return bless { name => $name, count => 0 }, $class;
}


sub line {
    my ($self, $line) = @_;

    local $Test::Builder::Level = $Test::Builder::Level + 1;

    my $name = $self->{name};

    if (my ($not, $text) = $line =~ /^(not )?ok \d+(?:(?: -)? (.*))?$/) {
        $self->{count}++;
        $text //= '';

        if ($text =~ s/\s*# skip\S*\s+(.*)$//i) {
            skipped("$name: $1");

        } else {
            ok(!$not, "$name: $text");
        }

    } elsif ($line =~ /^1\.\.(\d+)(?:\s+# SKIP (.*))?/) {
        $self->{plan} = $1;
        skipped("$name: " . ($2 // 'no reason')) if $1 == 0;

    } elsif ($line =~ /^# Subtest/) {

        # not on stderr: from that on prove waits for a line of this test
        # alone, and starts no other

        note("$name: $line");

    } elsif ($line =~ /\S/ && $line !~ /^\s+(?:ok|1\.\.|# Subtest)/) {
        diag("$name: $line");
    }

    return;
}


sub skipped {
    my ($why) = @_;

    SKIP: {
        skip $why, 1;
    }

    return;
}


# The program's end with its exit status.

sub ended {
    my ($self, $status) = @_;

    local $Test::Builder::Level = $Test::Builder::Level + 1;

    my $plan = $self->{plan} // 'none';

    return ok($status eq '0' && $plan eq $self->{count},
              "$self->{name}: runs to its end (status $status, plan $plan,"
              . " tests $self->{count})");
}


1;
