package SandboxTest::Log;

# What a server has logged, for whoever looks at a test that has failed.

use strict;
use warnings;

use Test::More;

use constant LINES => 30;


# The last errors of a log, where anything has failed so far; what is worse
# than those is told by finish() in any case.

sub tell_errors {
    my ($log) = @_;

    return if Test::More->builder->is_passing;

    my @errors = grep { /\[error\]/ } split /\n/, $log;

    splice @errors, 0, @errors - LINES if @errors > LINES;
    diag("log: $_") for @errors;

    return;
}


1;
