#!/usr/bin/perl

# Every input that is kept goes through its parser once more, under
# AddressSanitizer and UBSan: seeds, what coverage was found with, and each
# finding that there ever was.  "make fuzz" looks for new ones.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";

use Test::More;
use SandboxTest;

my $root = $SandboxTest::ROOT;
my $build = "$SandboxTest::BUILD/fuzz";

# Seconds for all inputs of a target, on a machine that has other work.
my $LIMIT = 300;


plan(skip_all => 'another build has the sanitizers')
    if $SandboxTest::SANITIZE;

chomp(my $runtime = `clang -print-resource-dir 2>/dev/null` // '');
plan(skip_all => 'clang and its runtime are missing: install libclang-rt-dev')
    unless glob("$runtime/lib/linux/libclang_rt.fuzzer-*.a");

my @targets = map { m{([^/]+)\.c$} } glob("$root/t/fuzz/*.c");
cmp_ok(scalar @targets, '>', 20, 'there are targets');


# How it ended, and what it said.

sub replay {
    my ($name, @inputs) = @_;

    my $pid = open my $out, '-|';
    defined $pid or return (-1, "fork: $!");

    if ($pid == 0) {
        open STDERR, '>&', \*STDOUT;
        chdir $build;
        alarm $LIMIT;
        exec "$build/$name", '-timeout=60', '-rss_limit_mb=2048', @inputs;
        exit 127;
    }

    local $/;
    my $text = <$out> // '';
    close $out;

    return ($?, $text);
}


for my $name (@targets) {
    subtest $name => sub {
        my @inputs = grep { -f } glob("$root/t/fuzz/corpus/$name/*");

        ok(-x "$build/$name", 'it is built')
            or return;
        ok(@inputs > 0, 'there are inputs');
        ok(-s "$root/t/fuzz/dict/$name.dict", 'there are words');

        my ($code, $text) = replay($name, @inputs);
        my $ran = () = $text =~ /^Executed \S+ in \d+ ms$/mg;

        is($code, 0, 'none of them is a finding')
            or diag(substr $text, -4000);
        is($ran, scalar @inputs, scalar(@inputs) . ' inputs went through');
    };
}

# What is kept stays small, and belongs to a target.

my @all = grep { -f } glob("$root/t/fuzz/corpus/*/*");
my $size = 0;
$size += -s for @all;

cmp_ok(scalar @all, '<=', 7 * @targets, 'they are not many: ' . @all);
cmp_ok($size, '<', 300 * 1024, "nor large: $size bytes");

my %known = map { $_ => 1 } @targets;
is_deeply([grep { !$known{$_} }
           map { m{/([^/]+?)(?:\.dict)?$} }
           glob("$root/t/fuzz/corpus/* $root/t/fuzz/dict/*")],
          [], 'each is a target\'s');

done_testing();
