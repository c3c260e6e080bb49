#!/usr/bin/perl

# A part of this directory again with an nginx that is not root's and a broker
# that is a service of its own: keepers and brokers that die, a start after all
# has died. SANDBOX_TEST_TRUST=standalone runs the others so.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../lib";

use Test::More;
use SandboxTest;
use SandboxTest::Relay;

my @files = qw(keeper.t reboot.t);

my $missing = SandboxTest::missing();
plan(skip_all => $missing) if $missing;
plan(skip_all => 'all tests are run so')
    if ($ENV{SANDBOX_TEST_TRUST} // '') eq 'standalone';
plan(skip_all => 'what a sanitizer says of it is told by the files themselves')
    if $SandboxTest::SANITIZE;

$ENV{SANDBOX_TEST_TRUST} = 'standalone';

my %out;

for my $file (@files) {
    my @command = ($^X, "$FindBin::Bin/$file");

    open $out{$file}, '-|', "exec @command 2>&1" or die "$file: $!";
}

for my $file (@files) {
    my $relay = SandboxTest::Relay->new("standalone $file");
    my $out = $out{$file};

    while (my $line = <$out>) {
        chomp $line;
        $relay->line($line);
    }

    close $out;
    $relay->ended($? >> 8);
}

done_testing();
