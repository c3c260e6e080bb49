#!/usr/bin/perl

# The power of a machine is cut, with sessions on it, and it comes up again: a
# virtual one, of which a disk is left with what had been written to it by
# then. Three boots of one server: its first start, after which the machine is
# cut at once; sessions of every state and quotas, and cut; the end.
#
# Minutes where there is no KVM: with SANDBOX_TEST_LONG=1 alone.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../lib";

use File::Temp qw(tempfile);
use JSON::PP ();
use POSIX ();
use Test::More;
use SandboxTest;
use SandboxTest::More;
use SandboxTest::Relay;

my $MB = 1024 * 1024;
my $DISK = '/tmp/disk';
my $PREFIX = "$DISK/server";
my $NOTES = "$DISK/notes";

my $POOLED = <<'HTTP';
    sandbox_default disk=64MB;
    sandbox_pool base sessions=2;
HTTP

my @BOOTS = (\&first_start, \&with_sessions, \&comes_up);

if (defined(my $boot = $ENV{SANDBOX_TEST_BOOT})) {
    in_guest($boot);

} else {
    outside();
}


# ---- outside ---------------------------------------------------------------

sub outside {
    my $run = "$FindBin::Bin/../lib/run-v2";

    plan(skip_all => 'takes minutes: SANDBOX_TEST_LONG=1 runs it')
        if !$ENV{SANDBOX_TEST_LONG};
    plan(skip_all => 'sanitizers are too slow under emulation')
        if $SandboxTest::SANITIZE;

    my $missing = SandboxTest::missing();
    plan(skip_all => $missing) if $missing;

    my $lacks = `$run -n 2>&1`;
    plan(skip_all => $lacks =~ s/\n.*//sr) if $? != 0;

    my ($fh, $image) = tempfile('sbxdiskXXXXXX', DIR => '/tmp', UNLINK => 1);
    truncate $fh, 2000 * $MB or die "$image: $!";
    close $fh;
    system("mkfs.ext4 -q '$image'") == 0 or die "mkfs.ext4: $?";

    $ENV{SANDBOX_TEST_SLOW} //= 8;
    $ENV{SANDBOX_TEST_VM} = 1;
    $ENV{SANDBOX_BUILD} = $SandboxTest::BUILD;

    for my $boot (0 .. $#BOOTS) {
        $ENV{SANDBOX_TEST_BOOT} = $boot;

        my $relay = SandboxTest::Relay->new("boot $boot");
        my ($cut, $last) = (0, $boot == $#BOOTS);

        open my $out, '-|', $run, '-t', 900, '-d', $image, 'perl', $0
            or die "$run: $!";

        while (my $line = <$out>) {
            chomp $line;

            if ($line =~ /^\@keep (\w+) (.*)/) {
                $ENV{"SANDBOX_TEST_WAS_\U$1"} = $2;

            } elsif ($line eq '@cut') {
                $cut = 1;

            } elsif ($line !~ /^\[ *\d+\.\d+\] sysrq: Resetting$/) {
                fail('it went on after the cut') if $cut;
                $relay->line($line);
            }
        }

        close $out;

        $relay->ended($last ? $? >> 8 : 0);
        is($cut . ($? >> 8), $last ? '00' : '1125',
           $last ? 'it ended by itself' : 'the machine is cut off');
    }

    is(system("e2fsck -fn '$image' > /dev/null 2>&1"), 0,
       'the file system is whole');
    done_testing();
}


# ---- inside ----------------------------------------------------------------

# Nothing is written out any more, no process ends: the next thing that the
# machine does is to start.

sub cut {
    done_testing();
    print "\@cut\n";
    POSIX::tcdrain(1);

    open my $f, '>', '/proc/sysrq-trigger' or die "sysrq: $!";
    syswrite $f, 'b';
    sleep 60;
    die "the machine is still there\n";
}

# What the next boot is told on another way than by the disk.

sub keep {
    my ($name, $value) = @_;

    print "\@keep $name $value\n";

    return;
}

sub was {
    my ($name) = @_;

    return $ENV{"SANDBOX_TEST_WAS_\U$name"} // "(no $name was told)";
}

sub make {
    my (%o) = @_;

    mkdir $PREFIX;
    unlink "$PREFIX/helpers/kernels";

    my $t = SandboxTest->new(
        workers => 2, prefix => $PREFIX, port => 28_080,
        server => '        location /v1/admin/ { sandbox_api admin; }', %o);

    ($SandboxTest::More::T, $SandboxTest::More::PORT,
     $SandboxTest::More::PREFIX) = ($t, $t->port, $PREFIX);

    return $t;
}

sub key { return unpack 'H*', slurp("$PREFIX/token.key") // '' }

sub boot_id { return slurp('/proc/sys/kernel/random/boot_id') =~ s/\s//gr }

sub free_mb {
    my ($blocks, $size) = split ' ', `stat -f -c '%f %S' $DISK`;

    return int $blocks * $size / $MB;
}

sub directories { return map { m{([^/]+)$} } glob "$PREFIX/sessions/*" }

sub quota {
    my ($name, $sessions) = @_;

    return call('PUT', "/admin/quotas/$name", json => { sessions => $sessions })
           ->{status};
}

sub in_guest {
    my ($boot) = @_;

    $| = 1;
    mkdir $DISK;
    system("mount -t ext4 /dev/vda $DISK") == 0 or die "mount: $?";

    if ($boot) {
        isnt(boot_id(), was('boot_id'), 'the machine has booted');
        like(`dmesg`, qr/EXT4-fs \(vda\): recovery complete/,
             'its disk was not taken leave of');
    }

    keep(boot_id => boot_id());
    $BOOTS[$boot]->();

    return;
}


# A key that somebody could have a token of is there for good.

sub first_start {
    my $t = make(http => '    sandbox_storage tmpfs;');

    system 'sync';
    $t->start;
    like(key(), qr/^[0-9a-f]{64}$/, 'the first start makes a key');
    keep(key => key());
    cut();
}


sub with_sessions {
    my $t = make(http => $POOLED);

    $t->start;
    is(key(), was('key'), 'the key is kept');
    ok((until_true { directories() == 2 } 60), 'the pool is full');

    my $free = free_mb();
    keep(free => $free);

    my %id = map { $_ => create_ok({ timeout_s => 36_000 }) }
             qw(runs paused destroyed);

    for my $id (@id{qw(runs paused)}) {
        exec_call($id, 'setsid sleep 1000 & '
                       . 'head -c 40000000 /dev/urandom > f; sync');
    }

    is(call('POST', "/sessions/$id{paused}/pause")->{status}, 200,
       'one is paused');
    is(destroy($id{destroyed})->{status}, 204, 'one has ended');
    is(quota(early => 7), 200, 'a quota is set');
    ok((until_true { directories() == 4 } 60), 'the pool is full again');

    # as it does by itself in the course of time

    system 'sync';
    cmp_ok(free_mb(), '<', $free - 60, 'sessions have files on the disk');

    $id{late} = create_ok({ timeout_s => 36_000 });
    exec_call($id{late}, 'setsid sleep 1000 & '
                         . 'head -c 10000000 /dev/urandom > f');
    is(quota(late => 8), 200, 'another quota is set at the last moment');
    is(call('POST', '/admin/drain')->{status}, 200, 'the node is drained');

    keep($_ => $id{$_}) for sort keys %id;
    cut();
}


sub comes_up {
    my $t = make(http => $POOLED);
    my @old = directories();

    cmp_ok(scalar @old, '>=', 4, 'directories of sessions are left');
    like(join(' ', @old), qr/\Q${\was('runs')}\E/, 'of those that there were');
    ok(-e "$PREFIX/broker.pid", 'and a pid file');

    $t->start;

    my $health = call('GET', '/health');

    is("$health->{status} $health->{json}{sessions}", '200 0',
       'it comes up, with no session');
    ok((until_true { directories() == 2 } 60), 'its pool fills');

    my %old = map { $_ => 1 } @old;

    is_deeply([ grep { $old{$_} } directories() ], [],
              'nothing of the sessions before is left');

    is(key(), was('key'), 'the key is kept');

    for my $name (qw(early late)) {
        is(call('GET', "/admin/quotas/$name")->{json}{limits}{sessions},
           $name eq 'early' ? 7 : 8, "the $name quota too");
    }

    is(destroy(create_ok())->{status}, 204, 'it is drained no more');

    # what the disk had of it tells how it ended

    for my $name (qw(runs paused destroyed)) {
        my $res = call('GET', '/sessions/' . was($name));

        is_problem($res, 404, 'E2009', "the session that was $name");
        is($res->{json}{ended},
           $name eq 'destroyed' ? 'destroyed' : 'node_restart',
           'has ended so');
    }

    my $late = call('GET', '/sessions/' . was('late'));

    is($late->{status}, 404, 'the one of the last moment is no more');
    note("$late->{json}{code} " . ($late->{json}{ended} // ''));

    ok((until_true { free_mb() >= was('free') - 4 } 60),
       'and nothing of their files')
        or diag(free_mb() . ' MB of ' . was('free') . ' are free');

    my $new = create_ok();

    put($new, 'f', 'new');
    is(run($new, 'cat f')->{stdout}, 'new', 'sessions are made');
    is(destroy($new)->{status}, 204, 'and destroyed');
    is(quota(early => 9), 200, 'quotas are written');

    is_deeply([ grep { /\.new$/ } map { m{([^/]+)$} } glob "$PREFIX/*" ], [],
              'nothing half is left');

    $t->finish;
    is(system("umount $DISK"), 0, 'nothing holds the disk');
    done_testing();
}
