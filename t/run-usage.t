#!/usr/bin/perl

# What sandboxctl run tells of a command that did not end by itself, where no
# cgroup counts: what was seen of it, or nothing, never a figure made up.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";

use File::Copy qw(copy);
use File::Temp qw(tempdir);
use JSON::PP ();
use Test::More;

use SandboxTest;
use SandboxTest::More qw(within);

plan(skip_all => 'must run as root') if $> != 0;
plan(skip_all => "$SandboxTest::BUILD/sandbox-session is not built")
    if !-x "$SandboxTest::BUILD/sandbox-session";

my $UID = 65534;
my $MB = 1 << 20;

# Not below /tmp, which each run has its own of.

my ($place) = grep { -d && -w } qw(/srv /opt /var/lib);
my $dir = tempdir('sbxusageXXXXXX', DIR => $place, CLEANUP => 1);
chmod 0755, $dir;
mkdir "$dir/tmp";
chmod 01777, "$dir/tmp";

for my $name (qw(sandboxctl sandbox-session)) {
    copy("$SandboxTest::BUILD/$name", "$dir/$name") or die $!;
    chmod 0755, "$dir/$name";
}


sub usage {
    my ($who, @args) = @_;

    my $pid = open my $out, '-|';

    if (!$pid) {
        %ENV = (PATH => '/usr/bin:/bin', HOME => $dir, TMPDIR => "$dir/tmp",
                ASAN_OPTIONS => 'detect_leaks=0');
        open STDIN, '<', '/dev/null';
        open STDERR, '>&', \*STDOUT;
        chdir $dir;
        exec(($who eq 'user' ? ('setpriv', "--reuid=$UID", "--regid=$UID",
                                '--clear-groups') : ()),
             "$dir/sandboxctl", 'run', '--json', @args) or exit 99;
    }

    my $text = do { local $/; <$out> };
    close $out;

    return eval { JSON::PP->new->utf8->decode($text) }
           // { reason => "none: $text", usage => {} };
}


# 64 MB that are touched, said to a file as soon as they are, and no end.

my $BIG = q(my $x = "a" x (64 << 20); open my $f, ">", "there"; close $f;)
          . q( 1 while 1;);
my $SLEEP = $BIG =~ s/1 while 1;/sleep 60;/r;

my @runs = ([ 'user', '--backend', 'namespaces' ],
            [ 'user', '--backend', 'passthrough' ]);

my $probe = usage('user', '--backend', 'namespaces', '--', 'true');

for my $run (@runs) {
    my ($who, @options) = @$run;
    my $plain = $options[1] eq 'passthrough';

  SKIP: {
        skip "an ordinary user: $probe->{reason}", 1
            if !$plain && $probe->{reason} ne 'exited';

        subtest "$who: $options[1]" => sub {
            my @perl = ('--', 'perl', '-e');
            my $seconds = within(4);

            my $j = usage($who, @options, '--cpu-seconds', 1, @perl, $BIG);
            is($j->{reason}, 'cpu_time', 'ended for its processor time');
            is($j->{measured}, 'processes', 'no group counted');
            cmp_ok($j->{usage}{memory_peak}, '>', 64 * $MB, 'its memory');
            cmp_ok($j->{usage}{memory_peak}, '<', 256 * $MB, 'and not more');

            for my $program ($BIG, $SLEEP,
                             "system('perl', '-e', '$SLEEP')")
            {
                $j = usage($who, @options, '--timeout', $seconds, @perl,
                           $program);
                is($j->{reason}, 'timeout', 'ended by the clock');
                cmp_ok($j->{usage}{memory_peak}, '>', 64 * $MB,
                       'its memory');
                cmp_ok($j->{usage}{cpu_user_s} + $j->{usage}{cpu_system_s},
                       '>', 0.01, 'its processor time')
                    if $program eq $BIG;
            }

            $j = usage($who, @options, @perl, "$BIG kill 9, \$\$"
                                              =~ s/1 while 1;//r);
            is($j->{reason}, 'signal', 'killed');
            cmp_ok($j->{usage}{memory_peak}, '>', 64 * $MB, 'its memory');
        };
    }
}


subtest 'what lives on in the background counts' => sub {
    plan(skip_all => "an ordinary user: $probe->{reason}")
        if $probe->{reason} ne 'exited';

    my $j = usage('user', '--', 'sh', '-c', "perl -e '$SLEEP' & "
                  . 'while [ ! -e there ]; do sleep 0.1; done');
    is($j->{reason}, 'exited', 'it ended by itself');
    cmp_ok($j->{usage}{memory_peak}, '>', 64 * $MB, 'its memory');
};


subtest 'nothing ran, nothing is known' => sub {
    plan(skip_all => "an ordinary user: $probe->{reason}")
        if $probe->{reason} ne 'exited';

    my $j = usage('user', '--', '/no/such/program');
    is($j->{reason}, 'not_started', 'not started');
    ok(exists $j->{usage}{memory_peak} && !defined $j->{usage}{memory_peak},
       'null');
};


subtest 'root has a group' => sub {
    my $j = usage('root', '--timeout', within(2), '--', 'perl', '-e', $SLEEP);

    plan(skip_all => "no cgroup: $j->{note}") if defined $j->{note};

    like($j->{measured}, qr/^cgroup v[12]$/, 'that counts');
    cmp_ok($j->{usage}{memory_peak}, '>', 64 * $MB, 'its memory');
};

done_testing();
