#!/usr/bin/perl

# What keeps a session's files, each kind that this machine can: how much can
# be written, that it costs no memory, that nothing of it is left, and what a
# full disk of the host does.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";

use Test::More;
use Time::HiRes qw(sleep);
use SandboxTest::More;
use SandboxTest::Storage;

my $small = $ENV{SANDBOX_TEST_SMALL};
my $cycles = $small ? 5 : 50;


# Loop devices with a file below the directory, whether it has a name or not.

sub loops {
    my ($dir) = @_;

    return grep { index($_, "$dir/") == 0 } map { chomp(my $l = $_); $l }
           map { slurp($_) // () } glob '/sys/block/loop*/loop/backing_file';
}


sub leftovers { return grep { !m{/image\.} } glob "$_[0]/*" }


# ---- image ---------------------------------------------------------------

# Where /tmp is in memory, a disk is mounted for it.

my $on_disk = system('test "$(stat -f -c %T /tmp)" != tmpfs') == 0;
my $mounted;

serve('sandbox_storage auto' . ($on_disk ? '' : ' %%PREFIX%%/disk') . ';',
      $on_disk ? undef
               : sub { $mounted = mount_ext4("$_[0]/disk", 1400, '', '') });

my $images = $on_disk ? "$p/images" : glob("$p/disk/sandbox-*") // '';
my $first = make();
my $kind = info($first)->{enforcement}{disk};
my ($why) = $t->log =~ /files of sessions are kept in memory: (.*)/;
destroy($first);


sub images {
    return if $kind eq 'image';
    plan(skip_all => 'no images here: ' . ($why // 'the log says not why'));
}


subtest 'what auto comes to is told' => sub {
    my $c = call('GET', '/capabilities')->{json}{disk};
    my ($check) = grep { $_->{name} eq 'storage' }
                  @{ call('GET', '/doctor')->{json}{checks} };

    like($c->{by}, qr/\b\Q$kind\E\b/, "/capabilities: $c->{by}");
    ok($c->{enforced} && $check && $check->{ok}, '/doctor has the storage');
    like($check->{found}, qr/^\Q$kind\E/, "and its kind: $check->{found}");
    ok($kind eq 'image' || $why, 'a reason where it is no image');

    ($check) = grep { $_->{name} eq 'tmpfs' }
               @{ call('GET', '/doctor')->{json}{checks} };
    unlike($check->{found}, qr/image|ext4/,
           "the check of tmpfs is of that: $check->{found}");
};


subtest 'an image: sizes' => sub {
    images();

    my $s = make(memory => '256MB');
    my $i = info($s);

    is("$i->{enforcement}{disk} $i->{enforcement}{inodes}", 'image image',
       'enforcement');
    is($i->{resources}{disk}, 1 << 30, 'the default disk');
    within_percent(avail($s, '/'), 1 << 30, 1, 'df /');
    is(avail($s, '/tmp'), avail($s, '/var/tmp'), 'one disk for all');
    within_percent(avail($s, '/dev/shm'), 64 * $MB, 1, 'df /dev/shm');
    ok(!run($s, 'grep ext4 /proc/self/mounts | grep -v nosuid,nodev')
           ->{stdout}, 'nosuid and nodev');
    destroy($s);

    $s = make(disk => '40MB', inodes => 1000);
    my ($got, $said) = fill($s, 'f');
    within_percent($got, 40 * $MB, 2, 'as much as was asked for');
    like($said, qr/No space left/, 'then ENOSPC');
    is_problem(put($s, 'up', 'x' x 100_000), 507, 'E4006', 'PUT: E4006');
    run($s, 'rm f');
    is(put($s, 'up', 'x' x 100_000)->{status}, 201,
       'and fits again when there is room');

    my $made = run($s, 'mkdir d; cd d; seq 2000 | xargs touch 2>/dev/null;'
                       . ' ls | wc -l')->{stdout};
    within_percent($made + 2, 1000, 2, 'inodes');
    is_problem(put($s, 'more', 'x'), 507, 'E4006', 'PUT: E4006');
    destroy($s);
};


subtest 'an image: a small disk with many inodes' => sub {
    for my $mb (1, 2, 5) {
        my $res = create({ manifest => {
            resources => { disk => "${mb}MB", inodes => 1_000_000 } } });

        if ($res->{status} == 201) {
            pass('is made');
            destroy($res->{json}{session_id});

        } else {
            is_problem($res, 400, 'E2002', "or refused ($mb MB)",
                       qr{manifest/resources/inodes: no image});
        }
    }
};


subtest 'an image: writing is not memory' => sub {
    images();
    plan(skip_all => 'too much for an emulated disk') if $small;

    my $s = make(memory => '256MB');
    my $r = run($s, 'for i in 1 2 3 4; do head -c 104857600 /dev/zero > f$i'
                    . ' || exit 1; done; stat -c %s f? | sort -u');

    is("$r->{exit_code} $r->{reason} " . ($r->{oom_killed} ? 1 : 0),
       '0 exited 0', '400 MB of files in a session of 256 MB memory');
    is($r->{stdout}, "104857600\n", 'are whole');

    my $u = info($s)->{usage};
    within_percent($u->{disk}, 400 * $MB, 1, 'usage.disk');
    is(run($s, 'cat f? | md5sum')->{stdout} =~ s/ .*//sr,
       run($s, 'head -c 419430400 /dev/zero | md5sum')->{stdout}
           =~ s/ .*//sr, 'and are read back');

    # what is in /dev/shm is memory, which no command has less of for it

    run($s, 'head -c 60000000 /dev/zero > /dev/shm/x');
    $r = run($s, [ 'python3', '-c', 'print(len(bytearray(200 << 20)))' ]);
    is("$r->{reason} $r->{exit_code}", 'exited 0',
       'a command has its memory beside a full /dev/shm');
    my (undef, $said) = fill($s, '/dev/shm/y');
    like($said, qr/No space left/, '/dev/shm has an end of its own');

    my $t0 = time;
    is(destroy($s)->{status}, 204, 'DELETE');
    cmp_ok(time - $t0, '<', within(2), 'does not wait for the disk');
};


subtest 'an image: a broker that dies' => sub {
    images();

    my $s = make(disk => '64MB');
    run($s, 'head -c 20000000 /dev/zero > f; sync');
    my $before = info($s)->{usage}{disk};

    my $old = $t->broker;
    $t->hit('KILL', $old);
    ok(until_true(sub { ($t->broker // $old) != $old && $t->ready }, 20),
       'there is another');
    $t->note_processes;

    is(info($s)->{usage}{disk}, $before, 'it tells the use of the disk');
    is(run($s, 'stat -c %s f')->{stdout}, "20000000\n", 'files are there');
    my (undef, $said) = fill($s, 'g');
    like($said, qr/No space left/, 'the limit holds');
    is(destroy($s)->{status}, 204, 'DELETE');
    ok(until_true(sub { !loops($images) }, 10), 'its loop device is free');
};


subtest 'an image: nothing is left' => sub {
    images();

    my @many = map { make(disk => '8MB') } 1 .. 12;
    is(scalar loops($images), 12,
       'more loop devices than a machine begins with');
    destroy($_) for @many;

    for my $n (1 .. $cycles) {
        my $s = make();
        run($s, 'mkdir -p a/b; head -c 100000 /dev/zero > a/b/c');
        destroy($s);
    }

    ok(until_true(sub { !loops($images) }, 10),
       "no loop device after $cycles");
    is_deeply([ leftovers($images) ], [], 'no file but what is copied');
    is_deeply([ glob "$p/sessions/*" ], [], 'no directory');
    ok(!grep({ m{ \Q$p\E/(?!disk )} } mounts($t->broker)), 'no mount');

    make(disk => "${_}MB") for 8 .. 10;
    my @all = ($t->keeper, $t->broker, $t->master, workers(), session_pids());
    $t->note_processes;
    $t->hit('KILL', @all);
    ok(until_true(sub { !$t->noted_alive }, 10), 'all are killed at once');
    $t->reap;
    ok(until_true(sub { !loops($images) }, 10), 'the loop devices are free');
    $t->start;
    is_deeply([ leftovers($images) ], [], 'no file but what is copied');
    is(destroy(make())->{status}, 204, 'and sessions are made as before');
};


subtest 'an image: sizes that were asked for are not kept for ever' => sub {
    images();
    plan(skip_all => 'mkfs is slow there') if $small;

    destroy(make(disk => "${_}MB", inodes => 256)) for 1 .. 40;
    cmp_ok(scalar(() = glob "$images/image.*"), '<=', 32, 'only some');
};


$t->stop;
unmount("$p/disk") if $mounted;
$t->finish;


subtest 'an image: a disk of the host that is full' => sub {
    images();

    my $mounted;
    serve('sandbox_storage image %%PREFIX%%/host; sandbox_default disk=4MB;',
          sub { $mounted = mount_ext4("$_[0]/host", 240, '-m 0', '') });
    plan(skip_all => 'no file system can be mounted') if !$mounted;

    my ($reader, $writer) = (make(disk => '20MB'), make(disk => '100MB'));
    run($reader, 'head -c 1000000 /dev/zero > f; sync');
    run($writer, 'echo begun > f; sync');

    my $none = create({ manifest => { resources => { disk => '200MB' } } });
    is_problem($none, 503, 'E2004', 'no room for the disk that is asked for',
               qr/host's disk has \d+ MB free.* 200 MB/);
    is($none->{headers}{'retry-after'}, 60, 'for the moment');

    # all but nothing

    system "head -c 1G /dev/zero > $p/host/ballast 2>/dev/null; sync";

    my $r = run($writer, 'head -c 50000000 /dev/zero > g && sync g; echo $?');
    isnt($r->{stdout}, "0\n", 'who writes and syncs is told');
    is(run($reader, 'wc -c < f; echo x')->{stdout}, "1000000\nx\n",
       'who reads goes on');
    is_problem(create({ manifest => { resources => { disk => '1MB' } } }),
               503, 'E2004', 'no more sessions');
    is(call('GET', '/health')->{status}, 200, 'the server is well');
    is(destroy($_)->{status}, 204, 'DELETE') for $writer, $reader;

    unlink "$p/host/ballast";
    ok(until_true(sub {
        my $res = create({ manifest => { resources => { disk => '1MB' } } });
        return $res->{status} == 201;
    }, 10), 'and then there is room again');

    ok($t->stop, 'the server stops');
    unmount("$p/host");
    $t->finish;
};


# ---- tmpfs ---------------------------------------------------------------

subtest 'a tmpfs' => sub {
    serve('sandbox_storage tmpfs;');

    my $s = make(memory => '64MB');
    my $i = info($s);

    is("$i->{enforcement}{disk} $i->{enforcement}{inodes}", 'tmpfs tmpfs',
       'enforcement');
    is($i->{resources}{disk}, 32 * $MB, 'half of the memory by default');
    my ($got, $said) = fill($s, 'f');
    within_percent($got, 32 * $MB, 1, 'can be written');
    like($said, qr/No space left/, 'then ENOSPC');
    is_problem(put($s, 'up', 'x' x 100_000), 507, 'E4006', 'PUT: E4006');
    (undef, $said) = fill($s, '/dev/shm/f');
    like($said, qr/No space left/, 'and /dev/shm is of the same disk');
    destroy($s);

    is(info(make(memory => '4GB'))->{resources}{disk}, 1 << 30,
       'at most 1 GB');
    ok(!-e "$p/images", 'no images are made');
    $t->finish;
};


# ---- directory -----------------------------------------------------------

sub deep_tree {
    my ($id) = @_;

    return run($id, [ 'python3', '-c', <<'PY' ]);
import os
for d in range(600):
    os.mkdir('d' * 40); os.chdir('d' * 40)
    open('f', 'w').close()
os.chdir('/tmp')
os.mkdir('locked'); open('locked/f', 'w').close(); os.chmod('locked', 0)
print('made')
PY
}


subtest 'a directory without a quota' => sub {
    serve('sandbox_storage directory %%PREFIX%%/files;'
          . ' sandbox_default disk=4MB;', undef, 'weak');

    my $s = make();
    my $i = info($s);

    if ($i->{enforcement}{disk} ne 'none') {
        $t->finish;
        plan(skip_all => 'the file system of /tmp has a project quota');
    }

    is("$i->{enforcement}{inodes} " . ($i->{isolated} ? 1 : 0), 'none 0',
       'it says that its disk is not limited');
    my $res = create({ manifest => {
        require_isolation => JSON::PP::true } });
    is_problem($res, 400, 'E2002', 'who insists is refused', qr/disk/);

    my %check = map { ($_->{name} => $_) }
                @{ call('GET', '/doctor')->{json}{checks} };
    my $caps = call('GET', '/capabilities')->{json};
    my $mend = $check{storage}{mend};

    ok(!$check{storage}{ok}, "/doctor misses it: $check{storage}{found}");
    like($mend, qr/ && mount -o \S*prjquota |mounted with it: modprobe /,
         'and says how to mend it');
    is_deeply([ $caps->{disk}{mend}, $caps->{inodes}{mend},
                $res->{json}{suggestion} ], [ ($mend) x 3 ],
              'as do /capabilities and the refusal');
    ok(index($t->log, $mend) != -1, 'and the log');
    is_deeply([ map { "$_; or set sandbox_storage image" }
                $check{project_quota}{mend}, $caps->{project_quota}{mend} ],
              [ ($mend) x 2 ], 'and what is said of project quotas');
    ok(index($_, "$p/files") != -1, "names the directory: $_")
        for $check{project_quota}{found},
            ($mend =~ /loop,prjquota/ ? $mend : ());
    ok($check{tmpfs}{ok}, 'no tmpfs is missed');

    is(deep_tree($s)->{stdout}, "made\n", 'a deep tree');
    my ($dir) = glob "$p/files/sandbox-*";
    is_deeply([ map { m{([^/]+)$} } glob "$dir/*" ], [ $s ], 'lies there');
    is(destroy($s)->{status}, 204, 'DELETE');
    is_deeply([ glob "$dir/*" ], [], 'and is gone with the answer');

    $s = make();
    deep_tree($s);
    $t->note_processes;
    $t->hit('KILL', $t->keeper, $t->broker, $t->master, workers(),
            session_pids());
    ok(until_true(sub { !$t->noted_alive }, 10), 'all are killed at once');
    $t->reap;
    $t->start;
    ok(until_true(sub { !glob "$dir/*" }, 20), 'the next start removes it');

    $t->stop;
    $t->write_conf(edit => undef);
    $t->{ready} = 'port';
    $t->start;
    is_problem(create({}), 400, 'E2002',
               'sandbox_require_isolation refuses', qr/disk/);
    is(call('GET', '/health')->{status}, 503, 'and health says so');
    $t->finish;
};


done_testing();
