#!/usr/bin/perl

# A storm of reloads, one as soon as the one before serves, with clients of
# every kind at work and with streams, an upload, a download, a terminal and a
# paused session in flight: nothing is lost, old generations go, and neither
# memory nor descriptors grow.
#
# 30 reloads; with SANDBOX_TEST_LONG=1 200, and 20 sent without waiting for
# any.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../lib";

use Test::More;
use SandboxTest;
use SandboxTest::Flight;
use SandboxTest::Load;
use SandboxTest::More;

my $LONG = $ENV{SANDBOX_TEST_LONG};
my $RELOADS = $LONG ? 200 : 30;

# Nothing that is in flight is cut, however long the storm takes here: the
# upload's client sends some between two reloads, which may be a minute apart.

my $t = server(edit => sub {
    s/^worker_shutdown_timeout .*;/worker_shutdown_timeout 1h;/m
        or die 'no worker_shutdown_timeout';
    s/^(\s*client_body_timeout) .*;/$1 1h;/m
        or die 'no client_body_timeout';
});
my @pair = ($t->keeper, $t->broker);
my $master = $t->master;


# What has nobody's request any more is gone.

sub one_generation {
    return until_true {
        my @workers = $t->workers;
        !grep({ SandboxTest::Load::is_old($_) } @workers) && @workers == 2;
    } 60;
}

sub flat {
    my ($name, @n) = @_;

    my ($early) = sort { $b <=> $a } @n[0 .. $#n / 3];
    my ($late) = sort { $a <=> $b } @n[2 * $#n / 3 .. $#n];

    return cmp_ok($late - $early, '<', 2 << 20,
                  "$name: at most $early at first, then at least $late");
}


subtest "$RELOADS reloads under load" => sub {
    my $flight = SandboxTest::Flight->begin;
    my $generations = 0;

    my $report = SandboxTest::Load::over_reloads($t, reloads => $RELOADS,
        each => sub {
            my ($n) = @_;
            my %now = map { $_ => 1 } $t->workers;

            $generations += grep { !$flight->{seen}{$_}++ } keys %now;

            $n == $RELOADS ? $flight->land : $flight->keep;
        });

    cmp_ok($generations, '>=', 2 * $RELOADS, "$generations workers");
    is_deeply($report->{wrong}, [], 'nothing is lost, wrong or refused');
    cmp_ok($report->{done}{$_}, '>', 0, "$_: $report->{done}{$_}")
        for sort keys %{ $report->{done} };
    cmp_ok($report->{resumed}, '>', 0,
           "streams were resumed: $report->{resumed}");

    is_deeply($flight->{wrong}, [], 'nothing in flight is lost');
    cmp_ok($flight->{resumed}, '>', 0,
           "its output went on in other workers: $flight->{resumed}");

    is_deeply([ $t->keeper, $t->broker ], \@pair, 'the same pair serves');
    is($t->master, $master, 'below the same master');
    ok(one_generation(), 'no old worker stays');

    for my $of (qw(broker master worker)) {
        flat("memory of the $of", map { $_->{$of} } @{ $report->{memory} });
    }

    my ($before, $after) = @{ $report->{fds} };
    cmp_ok($after->{$_}, '<=', $before->{$_}, "descriptors of $_")
        for sort keys %$before;
};


# nginx takes signals that come together for one.

subtest 'reloads that nobody waits for' => sub {
    my $id = create_ok({ timeout_s => 3600 });
    my %seen = map { $_ => 1 } $t->workers;
    my $calls = 0;

    for my $n (1 .. ($LONG ? 20 : 5)) {
        $t->signal('HUP');
        is(run($id, "echo $n")->{stdout}, "$n\n", 'a call meanwhile')
            for 1 .. 2;
    }

    ok((until_true {
        grep { !$seen{$_} && !SandboxTest::Load::is_old($_) } $t->workers
    } 30), 'new workers have come');
    ok(one_generation(), 'and the old ones have gone');
    is(destroy($id)->{status}, 204, 'the session was there throughout');
    is_deeply([ $t->keeper, $t->broker ], \@pair, 'so was the pair');
};

$t->finish;
done_testing();
