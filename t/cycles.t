#!/usr/bin/perl

# A thousand sessions made, used and destroyed leave what ten left: no
# process, mount, group, directory, id range or descriptor, and no memory.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";

use Test::More;
use Time::HiRes qw(sleep);
use SandboxTest::More;

my $slow = $SandboxTest::SANITIZE || $SandboxTest::SLOW > 1;
my $cycles = $slow ? 100 : 1000;

# Room for eight sessions at a time: a range that is not given back is missed
# after eight cycles.

my $t = server(uid_range => '1342177280-1342701567');

my ($keeper) = split ' ', slurp("$SandboxTest::More::PREFIX/keeper.pid");
my ($broker) = split ' ', slurp("$SandboxTest::More::PREFIX/broker.pid");
my @workers = workers();


sub cycle {
    my ($n) = @_;

    my $id = create_ok({ metadata => { n => "$n" } });
    my $r = run($id, [ '/bin/sh', '-c', 'echo $1 > f; cat f', 'sh', "$n" ]);

    if ($n % 10 == 0) {
        run($id, 'sleep 100 & (setsid sleep 100 &); mkdir d; touch d/x');
        put($id, 'up', 'x' x 10_000);
        get($id, 'up');
    }

    my $gone = destroy($id);

    return $r->{stdout} eq "$n\n" && $gone->{status} == 204;
}


sub state {
    my %s;

    $s{processes} = scalar session_pids();
    $s{'mounts of the host'} = scalar mounts();
    $s{'mounts of the broker'} = scalar mounts($broker);
    $s{groups} = scalar cgroup_dirs();
    $s{'session directories'} =
        () = glob "$SandboxTest::More::PREFIX/sessions/*";
    $s{"descriptors of the broker"} = fds($broker);
    $s{"descriptors of the keeper"} = fds($keeper);
    $s{"descriptors of worker $_"} = fds($workers[$_]) for 0 .. $#workers;
    $s{ipc} = scalar(() = (slurp('/proc/sysvipc/shm') // '') =~ /\n/g);

    return \%s;
}


# Connections that the kernel closes late are no leak.

sub settled {
    my ($want) = @_;

    my $now;
    until_true(sub {
        $now = state();
        return !grep { $now->{$_} > $want->{$_} } keys %$want;
    }, 8);

    return $now;
}


# Four clients at a time: how many cycles were done, and how many went wrong.

sub cycles {
    my ($from, $to, $deadline) = @_;

    my @jobs = map {
        my $first = $from + $_;

        async {
            my ($done, $bad) = (0, 0);

            for (my $n = $first; $n <= $to && time < $deadline; $n += 4) {
                $bad += !cycle($n);
                $done++;
            }

            return [ $done, $bad ];
        }
    } 0 .. 3;

    my ($done, $bad) = (0, 0);

    for my $job (@jobs) {
        my $r = $job->get($deadline - time + 30) // [ 0, 1 ];
        $done += $r->[0];
        $bad += $r->[1];
    }

    return ($done, $bad);
}


my (undef, $bad) = cycles(1, 100, time + 60);
is($bad, 0, 'a hundred cycles to warm up');

my $before = state();

until_true(sub {
    my $same = state();
    my $still = !grep { $same->{$_} != $before->{$_} } keys %$before;
    $before = $same;
    sleep 0.2 if !$still;
    return $still;
}, 8);

my $memory = rss($broker, $keeper);
my $worker_memory = rss(@workers);

my $t0 = time;
my $done;

($done, $bad) = cycles(101, 100 + $cycles, $t0 + 90);

# A machine that others use too may not get through all of them in time.

cmp_ok($done, '>=', $cycles * 0.3, "$done cycles of $cycles in "
                                   . int(time - $t0) . ' s');
is($bad, 0, 'every one of them worked');

my $after = settled($before);

cmp_ok($before->{groups}, '>', 0, 'groups were counted');

for my $k (sort keys %$before) {
    cmp_ok($after->{$k}, '<=', $before->{$k}, "$k: no more than before");
}

SKIP: {
    skip 'a sanitizer keeps what was freed', 2 if $SandboxTest::SANITIZE;

    my $noise = 512 << 10;
    cmp_ok(rss($broker, $keeper) - $memory, '<', $noise,
           'the memory of broker and keeper has not grown');
    cmp_ok(rss(@workers) - $worker_memory, '<', 4 * $noise,
           "nor the workers'");
}

my @ids = map { create_ok() } 1 .. 8;
my %ids = map { $_ => 1 } @ids;
is(scalar keys %ids, 8, 'all eight id ranges can be had');

my $res = create();
is_problem($res, 503, 'E2004', 'and the ninth session cannot');
is($res->{headers}{'retry-after'}, 60, 'for as long as all are in use');
destroy($res->{json}{session_id}) if $res->{status} == 201;
destroy($_) for @ids;

is_deeply(call('GET', '/sessions')->{json}{sessions}, [],
          'no session is left');


# Those that were made and left by their client are not left by the server.

for (1 .. 20) {
    my $q = open_request('POST', '/sessions',
                         json => { tenant_id => 'gone', user_id => 'u',
                                   timeout_s => 1 });
    close $q;
}

ok(until_true(sub {
    !@{ call('GET', '/sessions?tenant_id=gone')->{json}{sessions} }
}, 10), 'sessions whose client went away are gone by their time');

$after = settled($before);
is(join(', ', grep { $after->{$_} > $before->{$_} } sort keys %$before), '',
   'with all that was theirs');


$t->finish;
done_testing();
