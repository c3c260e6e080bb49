#!/usr/bin/perl

# The example of the library, built from what is installed and nothing else.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";

use File::Copy qw(copy);
use File::Temp qw(tempdir);
use Test::More;

use SandboxTest;

my $build = $SandboxTest::BUILD;
my $root = $SandboxTest::ROOT;

plan(skip_all => "$build/libsandbox_session.a is not built")
    if !-e "$build/libsandbox_session.a";

my $dir = tempdir(CLEANUP => 1);
mkdir "$dir/include";
copy("$root/sandbox_core/include/sandbox_$_.h", "$dir/include") or die $!
    for qw(session limits error);

my $cc = $ENV{SANDBOX_CC} // 'gcc';
my $san = $SandboxTest::SANITIZE ? '-fsanitize=address,undefined' : '';
my $text = `$cc -std=c11 -D_POSIX_C_SOURCE=200809L -Wall -Wextra -Werror $san -I$dir/include -o $dir/run $root/docs/examples/run.c $build/libsandbox_session.a -pthread 2>&1`;

is($?, 0, 'it needs three headers, one archive and libc') or diag($text);

$ENV{SANDBOX_SESSION} = "$build/sandbox-session";
$text = `$dir/run sh -c 'echo \$((6*7)); exit 3' 2>&1`;

SKIP: {
    skip $text, 2 if $? && $text =~ /namespace/;
    is($?, 0, 'it runs');
    like($text, qr/\A42\n\[exited 3, memory kept by [\w ]+\]\n\z/,
         'and tells how the command ended');
}

# Every name that the archive gives away begins with sbx_.

my @names = map { (split ' ')[-1] } grep { / [A-TV-Z] / }
            `nm --defined-only -g $build/libsandbox_session.a`;
is(join(' ', grep { !/^sbx_|^__(?:asan|odr|ubsan)|^_GLOBAL_/ } @names), '',
   'it defines no foreign names');

done_testing();
