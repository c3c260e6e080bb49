#!/usr/bin/perl

# What a session has passed, or may have, is closed by nobody who serves
# others: closing the last of a large file that was removed takes its time,
# and so does what a first process has made for this to take long.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../lib";

use IPC::Open2 qw(open2);
use Socket;
use Test::More;
use SandboxTest;
use SandboxTest::Exhaust;
use SandboxTest::More;
use SandboxTest::Turns;

BEGIN {
    my $why = SandboxTest::Turns::missing();
    plan(skip_all => $why) if $why;
}

my $MB = 1 << 20;

# How many of a process's descriptors lead to such a name.
sub leads {
    my ($pid, $name) = @_;

    return scalar grep { (readlink $_ // '') =~ /\Q$name\E/ }
                  glob "/proc/$pid/fd/*";
}


my $heavy = inside('heavy-init');

plan(skip_all => 'the heavy init cannot be built') if !defined $heavy;


# The memory of the machine is given back by somebody: not by the worker.

subtest 'a file that is removed while it is sent' => sub {
    my $turns = SandboxTest::Turns->new;
    my $t = server(workers => 1);

    ok($turns->loaded, 'turns are measured');

    $turns->brief('its end', sub {
        my $s = create_ok({ manifest => { resources => {
            disk => '600M', memory => '1G' } } });

        is(run($s, 'head -c 400M /dev/zero > large && echo made')->{stdout},
           "made\n", 'a large file');

        my $c = open_request(GET => "/sessions/$s/files/large",
                             headers => { Connection => 'close' });
        sysread $c, (my $head), $MB;
        like($head, qr{^HTTP/1.1 200 }, 'is being sent');
        is(run($s, 'rm large; ls large 2>/dev/null; echo gone')->{stdout},
           "gone\n", 'and removed');
        is(leads((workers())[0], 'large'), 1, 'the worker has the last of it');

        $turns->begin;
        close $c;
        ok(until_true { !leads((workers())[0], 'large') }, 'and not for long');
        is(call('GET', '/health')->{status}, 200, 'and serves');
        destroy($s);
    });

    $t->finish;
};


subtest 'what a first process has made' => sub {
    my $turns = SandboxTest::Turns->new;
    my $t = SandboxTest->new(workers => 1);
    my $file = $t->prefix . '/helpers/sandbox-init';

    ($SandboxTest::More::T, $SandboxTest::More::PORT,
     $SandboxTest::More::PREFIX) = ($t, $t->port, $t->prefix);

    unlink $file;
    open my $f, '>:raw', $file or die "$file: $!";
    print $f $heavy;
    close $f or die "$file: $!";
    chmod 0755, $file;

    $t->start;
    ok($turns->loaded, 'turns are measured');

    my ($worker) = workers();
    my $before = fds($worker);

    # name, what is asked; with "many" the worker has no numbers for them
    for my $what ([ 'with a frame that brings nothing', GET => '/processes' ],
                  [ 'with a frame that brings another', GET => '/files/bad' ],
                  [ 'left in the queue', GET => '/files/late' ],
                  [ 'out of band', GET => '/files/oob' ],
                  [ 'more than it can have', GET => '/files/many' ],
                  [ 'with half a frame', POST => '/exec', { cmd => 'x' } ])
    {
        my ($name, $method, $path, $json) = @$what;
        my $r;

        my $turn = $turns->brief($name, sub {
            my $s = create_ok({ manifest => {
                capabilities => [qw(shell files)],
                resources => { memory => '1G' } } });

            few_files($worker, 8) if $path =~ /many/;
            $r = call($method, "/sessions/$s$path", json => $json);
            ok(until_true { fds($worker) <= $before },
               "$name: nothing of it stays");
            enough_files($worker) if $path =~ /many/;
            destroy($s) });
        is($turn->{sleeps}, 0, "$name: nor does a worker wait for it");
        like($r->{status}, qr/^50[03]$/, "$name: $r->{status}");
        unlike($r->{body}, qr/nothing to pass/, "$name: and there was some");
        note($r->{body});
        is(call('GET', '/health')->{status}, 200,
           "$name: the server serves");
    }

    $t->allow(qr/sandbox call (?:brought|cannot be read)/);
    $t->finish;
};


# Threads that stand still, as those do whose descriptor's end takes long.
# Their tracer has them until it ends.

my $TRACER = <<'PYTHON';
import ctypes, os, sys
SEIZE, INTERRUPT, WALL = 0x4206, 0x4207, 0x40000000
c = ctypes.CDLL(None, use_errno=True)
c.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p,
                     ctypes.c_void_p]
for tid in map(int, sys.argv[1:]):
    if c.ptrace(SEIZE, tid, None, None) or c.ptrace(INTERRUPT, tid, None, None):
        print(os.strerror(ctypes.get_errno()), flush=True)
        sys.exit()
    os.waitpid(tid, WALL)
print('stopped', flush=True)
sys.stdin.read()
PYTHON

sub stopped {
    my (@tids) = @_;

    my $pid = open2(my $out, my $in, '/usr/bin/python3', '-c', $TRACER, @tids);
    my $line = <$out> // '';
    chomp $line;

    return { pid => $pid, in => $in, line => $line };
}

sub go_on {
    my ($tracer) = @_;

    close $tracer->{in};
    waitpid $tracer->{pid}, 0;

    return;
}


sub closers {
    my ($worker) = @_;

    return grep {
        (slurp("/proc/$worker/task/$_/comm") // '') eq "sandbox-closer\n"
    } map { m{(\d+)$} } glob "/proc/$worker/task/*";
}


# Whether a call that brings no descriptor can be brought one.
sub refuses {
    socketpair my $one, my $two, AF_UNIX, SOCK_STREAM, 0 or die $!;

    return setsockopt $one, SOL_SOCKET, 83, 0;      # SO_PASSRIGHTS
}


# A session's file system has no other holder than the download that is cut.

subtest 'a file system whose last holder is a download' => sub {
    my $turns = SandboxTest::Turns->new;
    my $t = server(workers => 1, http => '    sandbox_storage tmpfs;');
    my ($worker) = workers();
    my $tracer = stopped(closers($worker));

    go_on($tracer);
    plan(skip_all => "no thread can be stopped: $tracer->{line}")
        if $tracer->{line} ne 'stopped';

    ok($turns->loaded, 'turns are measured');

    $turns->brief('its end', sub {
        my $s = create_ok({ manifest => { resources => {
            disk => '600M', memory => '1G' } } });

        run($s, 'head -c 400M /dev/zero > large');

        my $c = open_request(GET => "/sessions/$s/files/large",
                             headers => { Connection => 'close' });
        sysread $c, (my $some), $MB;
        like($some, qr{^HTTP/1.1 200 }, 'a large file is being sent');

        $tracer = stopped(closers($worker));
        is($tracer->{line}, 'stopped', 'the threads that close stand still');

        $turns->begin;
        is(destroy($s)->{status}, 204, 'and its session is destroyed');

        my $n = 0;

        while (sysread $c, $some, $MB) {
            $n += length $some;
        }

        cmp_ok($n, '<', 400 * $MB, 'which cuts it');
        is(leads($worker, 'large'), 1, 'the worker has the last of it');
        is(call('GET', '/health')->{status}, 200, 'and serves');
        go_on($tracer);
        ok(until_true { !leads($worker, 'large') }, 'a thread closes it');
    });

    $t->finish;
};


subtest 'more than may wait to be closed' => sub {
    my $t = server(workers => 1);
    my ($s, $other) = (create_ok(), create_ok());
    my $file = put($s, 'f', 'x' x 1000);
    put($other, 'f', 'y' x 1000);
    my $ticks = ticks($s);
    my ($worker) = workers();
    my $before = fds($worker);
    my @closers = closers($worker);
    my $tracer = stopped(@closers);

    if ($tracer->{line} ne 'stopped') {
        go_on($tracer);
        plan(skip_all => "no thread can be stopped: $tracer->{line}");
    }

    is($file->{status}, 201, 'a file');
    is(scalar @closers, 2, 'the two threads that close stand still');

    # each download has a descriptor that somebody else has passed

    my ($n, $res) = (0);

    while ($n < 1000) {
        $res = call('GET', "/sessions/$s/files/f");
        last if $res->{status} != 200;
        $n++;
    }

    is($n, 129, 'files that were passed, and no more');
    cmp_ok(fds($worker) - $before, '>=', $n, 'wait to be closed');
    told_to_wait($res, 'the next call');
    like($res->{body}, qr/that the session has passed is still being closed/,
         'which says why');

    if (refuses()) {
        is(run($s, 'echo ran')->{stdout}, "ran\n",
           'a command, which can bring nothing, is run');
    } else {
        told_to_wait(exec_call($s, 'touch run'), 'a command');
    }

    goes_on($ticks, 'what had begun goes on');

    # nobody else waits

    my %seen;

    $seen{get($other, 'f')->{body}}++ for 1 .. 100;
    is_deeply(\%seen, { 'y' x 1000 => 100 }, 'files of another session');
    is(run($other, 'echo ran')->{stdout}, "ran\n", 'its commands');

    my $new = create_ok();
    put($new, 'f', 'z');
    is(get($new, 'f')->{body}, 'z', 'a new session');
    is(destroy($new)->{status}, 204, 'which ends');
    is(destroy($s)->{status}, 204, 'and so does who has passed so many');

    # in all there are 512, of those who have some there

    $n = 0;
    my @all = map { my $id = create_ok(); put($id, 'f', 'a'); $id } 1 .. 4;

    while ($n < 1000) {
        $res = call('GET', "/sessions/$all[$n % 4]/files/f");
        last if $res->{status} != 200;
        $n++;
    }

    cmp_ok($n, '<=', 513 - 129 - 100, '512 of all');
    told_to_wait($res, 'one of many');

    $new = create_ok();
    put($new, 'f', 'z');
    is(get($new, 'f')->{body}, 'z', 'who has none there is served');

    go_on($tracer);
    ok((until_true { fds($worker) <= $before + 1 }), 'all are closed');
    is(get($all[0], 'f')->{body}, 'a', 'calls are answered again');

    close $ticks->{s};
    destroy($_) for $other, $new, @all;
    $t->finish;
};

done_testing();
