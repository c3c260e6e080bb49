#!/usr/bin/perl

# The README's tour, typed as it stands, prints what the README says: ids,
# times and measured amounts aside.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";

use Test::More;
use SandboxTest;

my $readme = SandboxTest::slurp("$SandboxTest::ROOT/README.md");

cmp_ok(($readme =~ tr/\n//), '<', 300, 'the README is short');

# Each block of commands up to the terminal, with the block of output after
# it; they share a shell.

my ($try) = $readme =~ /^## Try it\n(.*?)^A terminal is/ms;
my ($tour, $printed) = ('', '');

while (($try // '') =~ /^```sh\n((?!\.\/bootstrap).*?)^```\n(?:[^`]*?)
                        ^```\n(.*?)^```\n/msgx)
{
    $tour .= $1;
    $printed .= $2;
}

cmp_ok(($tour =~ tr/\n//), '>=', 9, 'the README has a tour and its output')
    or do {
    done_testing();
    exit;
};

my $t = SandboxTest->new->start;

$tour =~ s/127\.0\.0\.1:8080/127.0.0.1:@{[ $t->port ]}/g;


# Every number but those that the tour itself computes.

sub plain {
    my ($text) = @_;

    $text =~ s/"modified_at":"[^"]*"/"modified_at":"TIME"/g;
    $text =~ s/"(pid|duration_s|cpu_\w+_s|memory_peak|processes_peak|\w+_bytes|throttled_s)":[\d.e-]+/"$1":N/g;

    return [ split /\n/, $text ];
}


my $script = $t->prefix . '/tour';
open my $f, '>', $script or die $!;
print $f $tour;
close $f;

my $got = `bash $script 2>&1`;
is_deeply(plain($got), plain($printed), 'it prints what the README says')
    or diag($got);

$t->finish;
done_testing();
