#!/usr/bin/perl

# A start after everything was killed at once, or after the machine was: with
# stale state of every kind.  It comes up, removes what is nobody's any more,
# keeps what is to be kept, and touches nothing that is foreign.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../lib";

use JSON::PP ();
use Test::More;
use SandboxTest;
use SandboxTest::More;

my $t = SandboxTest->new(workers => 2, http => <<'HTTP', server => <<'SERVER');
    sandbox_pool base sessions=2;
HTTP
        location /v1/admin/ { sandbox_api admin; }
SERVER
my $p = $t->prefix;

($SandboxTest::More::T, $SandboxTest::More::PORT,
 $SandboxTest::More::PREFIX) = ($t, $t->port, $p);
$t->start;


sub put_file {
    my ($path, $bytes) = @_;

    open my $f, '>:raw', $path or die "$path: $!";
    print $f $bytes;
    close $f or die "$path: $!";

    return;
}

sub directories { return map { m{([^/]+)$} } glob "$p/sessions/*" }

sub state_of {
    my ($state) = (slurp("/proc/$_[0]/stat") // '') =~ /\) (\S)/;

    return $state // 'gone';
}

# What only has a number in common with a process of ours.

my $foreign = fork // die "fork: $!";

if ($foreign == 0) {
    exec 'sleep', '1000';
}

my $NAME = "sandbox-zzz$$";

# Beside the broker's groups, another's of the same kind of name.

my ($beside) = map { s{[^/]+$}{$NAME}r }
               grep { m{/sandbox-[a-z0-9]+$} } cgroup_dirs();

ok($beside && mkdir($beside), "another's group is there");
put_file("$beside/cgroup.procs", "$foreign\n");
like(slurp("/proc/$foreign/cgroup"), qr{/\Q$NAME\E$}m,
     'with a process');

END {
    if ($foreign) {
        local $?;
        kill 'KILL', $foreign;
        waitpid $foreign, 0;
        rmdir $beside if $beside;
    }
}


# ---- everything at once ----------------------------------------------------

sub kill_all {
    my @all = grep { defined } $t->master, $t->workers, $t->keeper,
                               $t->broker;
    my @inside = session_pids();

    $t->remember($_) for @all, @inside;
    $t->note_processes;

    # stopped first, so that none of them cleans up after another

    $t->hit(STOP => @all, @inside);
    until_true { !grep { state_of($_) !~ /[TtZ]/ } @all } 10;
    my $n = $t->hit(KILL => @all, @inside);

    $t->reap;
    waitpid $t->{service}, 0 if $t->{service};
    my $gone = SandboxTest::gone([ @all, @inside ], 15);
    $t->reap;
    delete @$t{qw(child service)};

    return $gone && $n > 6;
}

sub pids_of_somebody {
    for my $name (qw(keeper.pid broker.pid),
                  -d "$p/run" ? 'run/nginx.pid' : 'nginx.pid')
    {
        put_file("$p/$name", "$foreign\n");
    }

    return;
}

sub admin {
    my ($method, $path, $json) = @_;

    return call($method, "/admin$path", $json ? (json => $json) : ());
}


for my $boot (0, 1) {
    my $name = $boot ? 'the machine was' : 'everything was killed';

    subtest "a start after $name" => sub {
        my ($runs, $paused) = (create_ok(), create_ok());
        my %was;

        exec_call($runs, 'setsid sleep 1000 & head -c 100000 /dev/zero > f');
        exec_call($paused, 'setsid sleep 1000 & :');
        call('POST', "/sessions/$paused/pause");
        ok((until_true { directories() >= 4 } 60), 'four sessions are there');

        my $ended = create_ok();
        is(destroy($ended)->{status}, 204, 'one has ended');

        is(admin(PUT => '/quotas/kept', { sessions => 9 })->{status}, 200,
           'a quota is set');
        is(admin(POST => '/drain')->{status}, 200, 'the node is drained');
        $was{$_} = slurp("$p/$_") for qw(token.key quotas);
        ok(length $was{$_}, "$_ is there") for sort keys %was;

        ok(kill_all(), 'all is killed, the sessions too');

        my @old = directories();
        cmp_ok(scalar @old, '>=', 2, 'directories are left');
        my @groups = grep { m{/(?:$runs|$paused)$} } cgroup_dirs();
        cmp_ok(scalar @groups, '>=', 2, 'and groups') if !$boot;

        if ($boot) {

            # groups, mounts and sockets end with the machine; what it had
            # not written out yet is missing or half of it is

            for my $dir (reverse cgroup_dirs()) {
                rmdir $dir if $dir ne $beside;
            }

            is((grep { $_ ne $beside } cgroup_dirs()), 0, 'no group is left');
            unlink "$p/broker.sock";
            unlink "$p/lock";
        }

        # pid files that name somebody, and what was being written

        pids_of_somebody();
        put_file("$p/$_", 'half')
            for qw(keeper.pid.new broker.pid.new token.key.new record.new);
        put_file("$p/ended", 'x' x 10_001) if $boot;

        # records: whole, half, of another version, of nothing, of another

        my $record = slurp("$p/sessions/$runs/record");
        ok(length $record, 'a record is there');
        my %records = (
            half => substr($record, 0, length($record) / 2),
            other => substr($record, 0, 4) . pack('V', 4)
                     . substr($record, 8),
            empty => '', noise => join('', map { chr($_ % 251) } 1 .. 4000),
            stranger => $record,
        );

        for my $what (keys %records) {
            mkdir "$p/sessions/$what";
            put_file("$p/sessions/$what/record", $records{$what});
            put_file("$p/sessions/$what/record.new", 'half');
        }

        # and whatever else may lie there

        my $outside = "$p/outside";
        mkdir $outside;
        put_file("$outside/theirs", 'theirs');
        mkdir "$p/sessions/links";
        symlink $outside, "$p/sessions/links/out";
        symlink $outside, "$p/sessions/out";
        put_file("$p/sessions/file", 'x');
        system 'mkfifo', "$p/sessions/fifo";
        mkdir "$p/sessions/mounted";
        is(system('mount', '-t', 'tmpfs', 'tmpfs', "$p/sessions/mounted"), 0,
           'something is mounted there');
        put_file("$p/sessions/mounted/in", 'x');
        is(system('mount', '-t', 'tmpfs', 'tmpfs', $outside), 0,
           'and elsewhere');
        put_file("$outside/theirs", 'theirs');

        for my $images (grep { -d } "$p/images", "$p/storage") {
            put_file("$images/$_", 'half') for qw(new.1.2.3 loop.7 foreign);
        }

        $t->start;
        ok($t->log_has(qr{sessions/mounted" was left mounted}),
           'it starts, and tells what was left');
        is(call('GET', '/health')->{json}{sessions}, 0, 'with no session');
        ok((until_true { directories() == 2 } 60), 'its pool fills');

        my %old = map { $_ => 1 } @old, qw(links out file fifo mounted),
                  keys %records;
        is_deeply([ grep { $old{$_} } directories() ], [],
                  'nothing of the sessions before is left');
        is_deeply([ grep { -e } @groups ], [], 'no group');
        is((grep { m{\Q$p\E/sessions} } mounts()), 0, 'no mount');

        for my $images (grep { -d } "$p/images", "$p/storage") {
            is_deeply([ grep { -e "$images/$_" } qw(new.1.2.3 loop.7) ], [],
                      'no half image');
            ok(-e "$images/foreign", 'but what is foreign');
            unlink "$images/foreign";
        }

        is(slurp("$outside/theirs"), 'theirs', 'what links led to is there');
        is(system('umount', $outside), 0, 'what was mounted elsewhere too');
        is(slurp("$outside/theirs"), 'theirs', 'and what was below');

        like(state_of($foreign), qr/^[RSD]$/,
             'the process that the pid files named lives');
        like(slurp("/proc/$foreign/cgroup"), qr{/\Q$NAME\E$}m,
             'in its group');
        isnt($t->keeper, $foreign, 'they name our own now');

        is(slurp("$p/token.key"), $was{'token.key'}, 'the key is kept');
        is(admin(GET => '/quotas/kept')->{json}{limits}{sessions}, 9,
           'the quota too');
        is(call('GET', '/health')->{status}, 200,
           'a new start takes sessions again');

        for my $id ($runs, $paused) {
            my $res = call('GET', "/sessions/$id");
            is_problem($res, 404, 'E2009', 'a session of before');
            is($res->{json}{ended}, 'node_restart', 'has ended so');
        }

        my $res = call('GET', "/sessions/$ended");
        is_problem($res, 404, 'E2009', 'one that had ended before');
        is($res->{json}{ended}, $boot ? undef : 'destroyed',
           $boot ? 'is not known, of a file that is none' : 'is told how');

        my $new = create_ok();
        is(run($new, 'echo new')->{stdout}, "new\n", 'sessions are made');
        is(destroy($new)->{status}, 204, 'and destroyed');

        is(admin(PUT => '/quotas/kept', { sessions => 9 })->{status}, 200,
           'quotas are written');

        my @files = grep { -e "$p/$_" }
                    qw(keeper.pid.new broker.pid.new record.new);
        is_deeply(\@files, [], 'nothing half is left');
    };
}


# ---- what it does not start with -------------------------------------------

subtest 'a key that is cut is told, and nothing else is made of it' => sub {
    ok(kill_all(), 'all is killed');

    my $key = slurp("$p/token.key");
    put_file("$p/token.key", 'short');

    if ($t->{trust} || $ENV{SANDBOX_TEST_TRUST}) {
        ok(!$t->try_start, 'no start');
        $t->stop_hard;
        waitpid $t->{service}, 0 if $t->{service};

    } else {
        my ($status) = $t->nginx('-g', 'daemon off;');
        isnt($status, 0, 'no start');
    }

    ok($t->log_has(qr/token\.key in the state directory is not 32 bytes: /),
       'with the way out');
    $t->allow(qr/token\.key in the state directory/);

    ok((until_true { !$t->left_processes } 20), 'nobody stays');
    delete @$t{qw(child service)};
    put_file("$p/token.key", $key);
    $t->start;
    my $new = create_ok();
    is(run($new, 'echo new')->{stdout}, "new\n", 'mended, it works');
    is(destroy($new)->{status}, 204, 'and ends');
};

$t->finish;
done_testing();
