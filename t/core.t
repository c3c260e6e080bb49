#!/usr/bin/perl

# The C tests of the core, each a program of its own below the build's t/core.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";

use Test::More;
use SandboxTest;
use SandboxTest::Relay;

my $dir = "$SandboxTest::BUILD/t/core";
my @names = map { m{([^/]+)\.c$} } sort glob "$FindBin::Bin/core/*.c";

plan(skip_all => "$dir is not built: make tests") if !-d $dir;

$ENV{UBSAN_OPTIONS} //= 'print_stacktrace=1';

for my $name (@names) {
    my $relay = SandboxTest::Relay->new($name);

    open my $out, '-|', "exec $dir/$name 2>&1" or die "$name: $!";

    while (my $line = <$out>) {
        chomp $line;
        $relay->line($line);
    }

    close $out;
    $relay->ended($?);
}

done_testing();
