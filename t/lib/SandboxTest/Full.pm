package SandboxTest::Full;

# A server whose state, programs and temporary files are on a small disk of
# the test's own, and whose logs are on another; both in a mount namespace that
# the file is run again in.
#
#   use SandboxTest::Full;              # before anything is started
#   my $disk = SandboxTest::Full->new(inodes => 0);
#   my $t = exhaust_server($disk->conf);
#   $disk->fill('disk');                # or "logs"; nothing more fits
#   $disk->free('disk');
#   $disk->gone;                        # after finish()
#
#   story(inodes => 0);                 # the whole of it, and done_testing()

use strict;
use warnings;

use Errno qw(ENOSPC);
use Exporter qw(import);
use File::Temp qw(tempdir);
use JSON::PP ();
use Test::More;

use SandboxTest ();
use SandboxTest::Exhaust;
use SandboxTest::More;
use SandboxTest::Survive;

our @EXPORT = qw(story);

my %SIZE = (disk => '48m', logs => '4m');
my %INODES = (disk => 1600, logs => 12);


BEGIN {
    my $why = SandboxTest::missing();

    if (!$why && !$^C && !$ENV{SANDBOX_TEST_MOUNTS}) {
        local $ENV{SANDBOX_TEST_MOUNTS} = 1;
        no warnings 'exec';

        system('unshare', '-m', 'true') == 0
            or $why = 'no mount namespaces here';

        exec 'unshare', '-m', '--', $^X, (map { "-I$_" } @INC), $0, @ARGV
            if !$why;
    }

    plan(skip_all => $why) if $why;
}


# inodes: it is those that are used up.

sub new {
    my ($class, %o) = @_;

    my $base = tempdir('sbxfullXXXXXX', DIR => '/tmp');
    my $self = bless { base => $base, %o }, $class;

    chmod 0755, $base;

    for my $name (sort keys %SIZE) {
        my $inodes = $o{inodes} ? ",nr_inodes=$INODES{$name}" : '';

        mkdir "$base/$name";
        system('mount', '-t', 'tmpfs', '-o',
               "mode=0755,size=$SIZE{$name}$inodes", 'sbxfull',
               "$base/$name") == 0
            or plan(skip_all => 'no tmpfs can be mounted here');
    }

    mkdir "$base/disk/p";
    symlink "$base/logs", "$base/disk/p/logs" or die $!;

    return $self;
}


# Of sessions only what is in the state directory is on the disk.

sub conf {
    my ($self) = @_;

    return (prefix => "$self->{base}/disk/p",
            http => '    sandbox_storage tmpfs;'
                    . ' sandbox_audit_log logs/audit.log;');
}


sub fill {
    my ($self, $name) = @_;

    my $dir = "$self->{base}/$name/filler";
    my $n = 0;

    mkdir $dir;

    for ( ;; ) {
        open my $f, '>', "$dir/" . $n++ or last;
        next if $self->{inodes};
        1 while syswrite $f, "\0" x 4096;
        last;
    }

    return $! == ENOSPC;
}


sub free {
    my ($self, $name) = @_;

    return system('rm', '-r', "$self->{base}/$name/filler") == 0;
}


sub gone {
    my ($self) = @_;

    for my $name (keys %SIZE) {
        my $dir = "$self->{base}/$name";

        SandboxTest::wait_for(sub {
            return system("umount $dir 2>/dev/null") == 0;
        }, 5);
        rmdir $dir;
    }

    return rmdir $self->{base};
}


# ---- the story -------------------------------------------------------------

my $FULL = qr/\(28: No space left on device\)/;

my ($disk, $t, $s, $id, $ticks);


sub story {
    my (%o) = @_;

    $disk = SandboxTest::Full->new(%o);
    $t = exhaust_server($disk->conf);
    $s = SandboxTest::Survive->new(t => $t);
    $id = $s->create({ timeout_s => 1800 })->{json}{session_id};
    put($id, 'mark', 'mark');
    $ticks = ticks($s->{runs});

    subtest 'nothing more fits into the state directory' => \&state_full;
    subtest 'there is room again' => \&state_free;
    subtest 'nothing more fits into the logs' => \&logs_full;

    $ticks->close;
    is(destroy($id)->{status}, 204, 'the session ends');
    $t->allow($FULL, qr/audit log .* takes no lines/);
    $s->over;
    ok($disk->gone, 'nothing holds the disk');
    done_testing();

    return;
}


sub state_full {
    my ($broker, $keeper) = ($t->broker, $t->keeper);
    my $ends = $s->create({ timeout_s => 1800 })->{json}{session_id};
    my $were = session($id)->{expires_at};

    ok($disk->fill('disk'), 'it is full');
    told_to_wait($s->create, 'a new session');
    told_to_wait($s->post($id, 'pause'), 'a pause');
    is(session($id)->{status}, 'running', 'which there is none of then');
    told_to_wait(call('PATCH', "/sessions/$id", json => { timeout_s => 3600 }),
                 'another time');
    is(session($id)->{expires_at}, $were, 'which it does not have then');
    cmp_ok($t->log_has($FULL), '>', 1, 'the log tells why');

    # what the operator sets holds at once, and is written when it can be

    told_to_wait(call('PUT', '/quotas/other', base => '/admin',
                      json => { sessions => 3 }), 'a quota');
    is(quota(), 3, 'holds');

    # what sessions do has nothing to do with it

    is(run($id, [ 'cat', 'mark' ])->{stdout}, 'mark', 'a command runs');
    is(put($id, 'new', 'x' x 2_000_000)->{status}, 201, 'an upload ends');
    is(length get($id, 'new')->{body}, 2_000_000, 'a download, too');
    is(run($id, [ 'wc', '-c' ], stdin => 'x' x 700_000)->{stdout},
       "700000\n", 'a long request is taken');
    numbers() if $ENV{SANDBOX_TEST_LONG};
    at_rest('nobody tries without end', $broker, $keeper, $t->workers);
    goes_on($ticks, 'what runs goes on');

    # the end of one makes room, which is used up at once

    is(destroy($ends)->{status}, 204, 'a session can be ended');
    is(call('GET', "/sessions/$ends")->{json}{ended}, 'destroyed',
       'and is remembered');
    is(call('GET', '/health')->{status}, 503, 'health tells of it');

    my %old = map { $_ => 1 } $t->workers;

    $t->signal('HUP');
    ok(until_true(sub { grep { !$old{$_} } $t->workers }, 20),
       'nginx is reloaded');
    is(get($id, 'mark')->{body}, 'mark', 'and serves');
    is($t->broker . ' ' . $t->keeper, "$broker $keeper",
       'by the same processes');

    return;
}


# Numbers of commands are reserved in a file, a thousand at a time.

sub numbers {
    my $res;

    for (1 .. 1100) {
        $res = exec_call($id, [ 'true' ]);
        last if $res->{status} != 200;
    }

    told_to_wait($res, 'a command, when a thousand have run');

    return;
}


sub state_free {
    ok($disk->free('disk'), 'there is');
    works_again($s, 'a disk with room');
    is(call('GET', '/health')->{status}, 200, 'health tells of it');
    is($s->post($id, 'pause')->{status}, 200, 'a session is paused');
    is($s->post($id, 'resume')->{status}, 200, 'and resumed');
    is(call('PATCH', "/sessions/$id", json => { timeout_s => 3600 })
       ->{status}, 200, 'and given another time');

    # a later broker knows what an earlier one could not write at once

    my $broker = $t->broker;

    ok(until_true(sub {
        (slurp($t->prefix . '/quotas') // '') =~ /other/
    }, 20), 'the quota is written');
    $t->hit(KILL => $broker);
    ok(until_true(sub {
        ($t->broker // $broker) != $broker
        && call('GET', '/health')->{status} == 200
    }, 20), 'another broker');
    is(quota(), 3, 'knows the quota');
    $s->unharmed('nothing is left or lost', $id);

    return;
}


sub logs_full {
    my ($broker) = $t->broker;
    my $size = -s $t->prefix . '/logs/error.log';

    ok($disk->fill('logs'), 'they are full');

    my $made = $s->create->{json}{session_id};

    $s->works($made, 'a session is made and used');
    is(call('GET', '/sessions/none')->{status}, 404, 'errors are told');
    at_rest('nobody waits or tries for a line', $broker, $t->keeper,
            $t->workers);
    goes_on($ticks, 'what runs goes on');

    # by those who write lines as well

    $t->hit(KILL => $broker);
    ok(until_true(sub { ($t->broker // $broker) != $broker }, 20),
       'a broker is replaced');
    is(destroy($made)->{status}, 204, 'the session ends');

    ok($disk->free('logs'), 'there is room again');
    is(call('GET', '/sessions/none')->{status}, 404, 'an error is told');
    ok(until_true(sub { -s $t->prefix . '/logs/error.log' > $size }, 5),
       'lines are written again');

    my $last = $s->create->{json}{session_id};

    ok(until_true(sub {
        (slurp($t->prefix . '/logs/audit.log') // '') =~ /\Q$last\E/
    }, 5), 'of the audit, too');
    is(destroy($last)->{status}, 204, 'and it ends');
    $s->unharmed('nothing is left or lost', $id);

    return;
}


sub session { return call('GET', "/sessions/$_[0]")->{json} // {} }

sub quota {
    return call('GET', '/quotas/other', base => '/admin')
           ->{json}{limits}{sessions};
}


1;
