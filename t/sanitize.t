#!/usr/bin/perl

# What hostile bytes meet, with AddressSanitizer and UndefinedBehaviorSanitizer
# in the broker, the keeper, the egress and the workers (in a session's first
# process, which is static, undefined behaviour is a trap): the tests of rogue
# workers and rogue first processes run once more against such a build.  Each
# report of theirs is a failure, wherever it is written.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";

use Cwd qw(abs_path);
use File::Temp qw(tempdir);
use Test::More;
use SandboxTest;
use SandboxTest::Relay;

my $dir = "$SandboxTest::BUILD/asan";
my $asan = `gcc -print-file-name=libasan.so`;

plan(skip_all => 'needs root') if $> != 0;
plan(skip_all => 'all tests are run with sanitizers already')
    if $SandboxTest::SANITIZE;
plan(skip_all => 'libasan is not installed') if $asan !~ m{/};
plan(skip_all => "$dir is not built (make sanitized TESTS=t/sanitize.t)")
    if !-e "$dir/ngx_http_sandbox_module.so";

# SAN_TESTS of the Makefile, and files of Perl that start a server.

my ($programs) = SandboxTest::slurp("$SandboxTest::ROOT/Makefile")
                 =~ /^SAN_TESTS\s*:=((?:.*\\\n)*.*)/m;
my @programs = grep { $_ ne '\\' } split ' ', $programs;
my @files = qw(t/calls.t t/port-calls.t t/survive/rogue-init.t);

cmp_ok(@programs, '>=', 7, 'programs that play somebody hostile');

my $reports = tempdir('sbxsanXXXXXX', DIR => '/tmp', CLEANUP => 1);
chmod 01777, $reports;

$ENV{SANDBOX_BUILD} = $dir;
$ENV{SANDBOX_SANITIZE} = 1;


# The build is what it is taken for, or nothing would be found.

for my $file (qw(sandbox-broker sandbox-egress ngx_http_sandbox_module.so)) {
    ok(scalar(grep { /__asan_report|__ubsan_handle/ }
              `nm -D '$dir/$file' 2>/dev/null`),
       "$file has the sanitizers in it");
}


sub reports {
    return map { SandboxTest::slurp($_) =~ /(.*\n)/g } glob "$reports/*";
}


sub relay {
    my ($name, @command) = @_;

    my $relay = SandboxTest::Relay->new($name);

    open my $out, '-|', "exec @command 2>&1" or die "$name: $!";

    while (my $line = <$out>) {
        chomp $line;
        $relay->line($line);
    }

    close $out;
    $relay->ended($?);

    my @reports = reports();

    ok(!@reports, "$name: the sanitizers have nothing to report");
    diag(@reports) if @reports;
    unlink glob "$reports/*";

    return;
}


# A broker's own output is nowhere: its reports go to files.

for my $name (@programs) {
    local $ENV{ASAN_OPTIONS} = "log_path=$reports/asan";
    local $ENV{UBSAN_OPTIONS} = "print_stacktrace=1:log_path=$reports/ubsan";

    relay($name, "'$dir/t/core/$name'");
}

# Such files have a place for reports of their own, and look at it.

for my $file (@files) {
    relay($file, "'$^X' -I'$SandboxTest::ROOT/t/lib'",
          "'$SandboxTest::ROOT/$file'");
}

done_testing();
