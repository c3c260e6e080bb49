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

# What conf/nginx.conf has of ours is explained.

my ($lines) = $readme =~ /^## conf\/nginx\.conf.*?\n(.*?)^## /ms;
my %used = map { $_ => 1 }
           SandboxTest::slurp("$SandboxTest::ROOT/conf/nginx.conf")
           =~ /^\s*#?\s*(sandbox_[a-z_]+) /mg;
is(join(' ', grep { index($lines // '', $_) < 0 } sort keys %used), '',
   'each directive of the configuration is explained');


# Each block of commands that has a block of output after it; they share a
# shell.  The terminal has none: what a shell prints is its own affair.

my ($try) = $readme =~ /^## Try it\n(.*?)^## /ms;
my ($tour, $printed, $terminal) = ('', '', '');
my @blocks = ($try // '') =~ /^```(\w*)\n(.*?)^```$/msg;

while (my ($kind, $text, $after, $output) = @blocks) {
    splice @blocks, 0, 2;

    if ($kind eq 'sh' && $text =~ /terminal/) {
        $terminal = $text;

    } elsif ($kind eq 'sh' && defined $after && $after eq '') {
        $tour .= $text;
        $printed .= $output;
    }
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
    $text =~ s/"(pid|duration_s|startup_s|cpu_\w+_s|memory_peak|processes_peak|\w+_bytes|throttled_s)":[\d.e-]+/"$1":N/g;

    return [ split /\n/, $text ];
}


my $script = $t->prefix . '/tour';
open my $f, '>', $script or die $!;
print $f $tour;
close $f;

my $got = `bash $script 2>&1`;
is_deeply(plain($got), plain($printed), 'it prints what the README says')
    or diag($got);

SKIP: {
    local $ENV{PATH} = "/usr/bin:$ENV{PATH}";     # Debian's, before others

    skip 'python3-websockets is not installed', 2
        if system('python3 -c "import websockets" 2>/dev/null') != 0;

    my $s = $t->session;

    $terminal =~ s/127\.0\.0\.1:8080/127.0.0.1:@{[ $t->port ]}/g;
    open $f, '>', $script or die $!;
    print $f "s=$s\n$terminal";
    close $f;

    my $shown = `bash $script 2>&1`;
    is($?, 0, 'the terminal') or diag($shown);
    like($shown, qr/24 80/, 'prints the size that it has');
}

$t->finish;
done_testing();
