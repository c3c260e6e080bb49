#!/usr/bin/perl

# A stream of any length, and readers that are slow, cost a worker no memory.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";

use Test::More;
use SandboxTest::More;
use SandboxTest::Stream;

my $MB = 1 << 20;
my $t = server();
my $s = create_ok({ timeout_s => 3600 });
my @workers = workers();

sub stream_of {
    my ($cmd, %o) = @_;

    return stream('POST', "/sessions/$s/exec", json => { cmd => $cmd }, %o);
}


subtest '200 MB' => sub {
    stream_of('head -c 5000000 /dev/zero | tr "\\\\0" x')->rest(60);

    my $f = stream_of('head -c 200000000 /dev/zero | tr "\\\\0" x');
    my ($before, $most, $last) = (rss(@workers), 0, '');
    my $got = $f->{raw} =~ tr/x//;      # it came with the head

    # not parsed: what it holds is this, and the end

    for (my $n = 0; ; $n++) {
        my $piece = SandboxTest::More::read_some($f->{s}, time + within(60),
                                                 $MB);
        last if !defined $piece || $piece eq '';

        $got += $piece =~ tr/x//;
        $last = substr $last . $piece, -4096;

        if ($n % 100 == 0) {
            my $rss = rss(@workers);
            $most = $rss if $rss > $most;
        }
    }

    like($last, qr/"type":"exit".*"stdout_bytes":200000000,/, 'to its end');
    like($last, qr/\r\n0\r\n\r\n\z/, 'the body is whole');
    cmp_ok($got, '>=', 200_000_000, 'all of it');
    cmp_ok($most - $before, '<', 8 * $MB, 'memory of the workers is flat')
        or diag("$before, at most $most");
    diag("workers: $before bytes, at most $most");
};


subtest '50 that are slow' => sub {
    my $before = rss(@workers);
    my $mark = "slow$$";
    my @f = map { stream_of([ 'yes', $mark ], rcvbuf => 65536) } 1 .. 50;

    $_->until('stdout') for @f;

    ok(stands_still($s, 60), 'the commands wait');

    my $stalled = rss(@workers);

    cmp_ok($stalled - $before, '<', 50 * $MB / 2,
           'each holds less than half a megabyte')
        or diag("$before, $stalled");
    is(run($s, 'echo ok')->{stdout}, "ok\n", 'others are served');

    for my $f (@f) {
        my $got = 0;

        while ($got < 300_000) {
            my $piece = SandboxTest::More::read_some($f->{s},
                                                     time + within(30)) // '';
            last if $piece eq '';
            $got += length $piece;
        }

        cmp_ok($got, '>=', 300_000, 'goes on') if $got < 300_000;
    }

    my $after = rss(@workers);

    cmp_ok($after - $stalled, '<', 8 * $MB, 'and as little after 15 MB more')
        or diag("$stalled, $after");
    diag("workers: $before bytes, all slow $stalled, after reading $after");

    $_->close for @f;
    ok(until_true { !host_pids("yes $mark") } 20);
};

$t->finish;
done_testing();
