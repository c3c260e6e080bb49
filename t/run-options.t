#!/usr/bin/perl

# What the options of sandboxctl run take: every number with its bounds, and
# one line that names the option, what it takes, and from where to where.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";

use File::Temp qw(tempdir);
use Test::More;

use SandboxTest;

my $CTL = "$SandboxTest::BUILD/sandboxctl";

plan(skip_all => "$SandboxTest::BUILD/sandbox-session is not built")
    if !-x "$SandboxTest::BUILD/sandbox-session";

my $dir = tempdir(CLEANUP => 1);

# Where every value is right, no workspace stops the call before it runs.

my @STOP = ('--workspace', "$dir/none");


sub answer {
    my @args = @_;

    my $pid = fork // die $!;

    if (!$pid) {
        open STDIN, '<', '/dev/null';
        open STDOUT, '>', "$dir/out";
        open STDERR, '>', "$dir/err";
        exec $CTL, 'run', @args, '--', 'true' or POSIX::_exit(99);
    }

    waitpid $pid, 0;

    return ($? >> 8, SandboxTest::slurp("$dir/err") // '',
            SandboxTest::slurp("$dir/out") // '');
}


sub refused {
    my ($option, $value, $text) = @_;

    my @args = $value eq '' ? "$option=" : ($option, $value);
    my ($status, $err, $out) = answer(@args, @STOP);
    my $shown = $value eq '' ? '""' : $value;

    local $Test::Builder::Level = $Test::Builder::Level + 1;

    return is("$status|$out|$err",
              "125||sandboxctl: $option $shown: $text\n", "$option $shown");
}


sub taken {
    my ($option, $value) = @_;

    my ($status, $err) = answer($option, $value, @STOP);

    local $Test::Builder::Level = $Test::Builder::Level + 1;

    return like("$status $err", qr/^125 sandboxctl: workspace "/,
                "$option $value is taken");
}


my $size = 'bytes or a size such as "512MB" (KB, MB, GB, TB)';
my $count = 'a whole number';
my $number = 'a number with at most three decimals';
my $seconds = 'seconds with at most three decimals';

my @NONE = qw(--cpu-seconds --timeout);
my %none = map { $_ => 1 } @NONE;

# What it takes; the bounds as they are told; values at them and beyond.

my %options = (
    '--memory' => [ $size, '16MB', '64TB', [ '16MB', '16777216', '64 TiB' ],
                    [ '16777215', '1KB', '0', '65TB', '70368744177665' ] ],
    '--cpus' => [ $number, '0.01', '4096', [ '0.01', '0.5', '1.500',
                                             '1.5000', '4096' ],
                  [ '0', '0.009', '4096.001', '99999999' ] ],
    '--cpu-seconds' => [ $seconds, '0.01', '31536000',
                         [ '0.01', '31536000' ],
                         [ '0', '0.001', '31536000.001' ] ],
    '--processes' => [ $count, '8', '4194304', [ '8', '4194304' ],
                       [ '0', '7', '4194305' ] ],
    '--max-file-size' => [ $size, '1', '64TB', [ '1', '64TB' ],
                           [ '0', '0KB', '65TB' ] ],
    '--open-files' => [ $count, '16', '1048576', [ '16', '1048576' ],
                        [ '0', '15', '1048577' ] ],
    '--stack' => [ $size, '64KB', '64GB', [ '64KB', '64GB' ],
                   [ '0', '65535', '65GB' ] ],
    '--timeout' => [ $seconds, '0.001', '31536000',
                     [ '0.001', '31536000', '1.5' ],
                     [ '0', '0.000', '31536000.001', '99999999999' ] ],
    '--max-output' => [ $size, '1', '1GB', [ '1', '1GB' ],
                        [ '0', '1073741825', '2GB' ] ],
);

my @garbage = ('', '-1', '+1', ' 1', "1\t", 'nan', 'inf', '-inf', '1e9',
               '0x20', '32x', '32;', '32.', '.5', '1,5', 'lots', 'NONE',
               '18446744073709551615', '18446744073709551616',
               '99999999999999999999999999999999999999', '1' x 5000);

for my $option (sort keys %options) {
    my ($kind, $least, $most, $good, $beyond) = @{ $options{$option} };
    my $none = $none{$option} ? ', or none' : '';

    subtest $option => sub {
        my @wrong = @garbage;

        push @wrong, '32.5' if $kind ne $number && $kind ne $seconds;
        push @wrong, '1.0001', '1.5.5', '32KB'
            if $kind eq $number || $kind eq $seconds;
        push @wrong, '32KB' if $kind eq $count;
        push @wrong, '32kb', '32 KB ', '32XB', 'MB', '99999999999999999TB'
            if $kind eq $size;

        for my $value (@wrong) {
            refused($option, $value, "must be $kind, from $least to $most"
                                     . $none);
        }

        refused($option, $_, "must be at least $least and at most $most"
                             . $none)
            for @$beyond;

        taken($option, $_) for @$good;

        if ($none) {
            taken($option, 'none');

        } elsif ($option eq '--max-output') {
            refused($option, 'none', 'cannot be without a limit');

        } else {
            refused($option, 'none', 'leave the option out for no limit');
        }
    };
}


subtest 'every option of a number is in the table' => sub {
    my $help = `$CTL run --help`;
    my @numbers = $help =~ /^  (--[a-z-]+) (?:SIZE|N|S) /mg;

    is_deeply([ sort @numbers ], [ sort keys %options ],
              'and in the help');
};


subtest 'options of a word' => sub {
    my %words = ('--backend' => 'auto, namespaces or passthrough',
                 '--memory-strategy' => 'auto, cgroup or rlimit');

    for my $option (sort keys %words) {
        refused($option, $_, "must be $words{$option}")
            for '', 'AUTO', 'autox', '1';
    }
};

done_testing();
