#!/usr/bin/perl

# What a session that was made ahead is, once it is somebody's: nothing that
# is seen inside or told outside differs from one that was made when it was
# asked for.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";

use Test::More;
use SandboxTest;
use SandboxTest::More;
use SandboxTest::Pool;

my $TEMPLATES = <<'CONF';
    sandbox_template plain {
        memory 96MB;
        disk 32MB;
        env SHAPE round;
        env COLOUR red;
    }
CONF

# What a command sees, a part after the other.

my %SEEN = (
    environment => 'env | sort',
    identity => 'id; hostname; cat /etc/passwd /etc/group /etc/hosts; umask;'
                . ' pwd; grep -E "^(Cap|Seccomp|NoNewPrivs|Uid|Gid|Groups)" '
                . '/proc/self/status; '
                . 'awk "{ print \$1, \$3 }" /proc/self/uid_map',
    limits => 'cat /proc/self/limits',
    machine => 'nproc; getconf _NPROCESSORS_ONLN; cat /proc/meminfo; '
               . 'grep -v -E "MHz|bogomips" /proc/cpuinfo; cat /proc/stat '
               . '| grep -v btime; cat /sys/devices/system/cpu/online',
    mounts => 'sed -E "s/^[0-9]+ [0-9]+ [0-9:]+ //; s/ (shared|master):[0-9]+'
              . '//g; s/gid=[0-9]+/gid=N/; s/[a-z]*dev=?[0-9]+//g;'
              . ' s:/dev/loop[0-9]+:loop:g" /proc/self/mountinfo',
    room => '{ df -P / /home/user /dev/shm /run /tmp; df -iP / /dev/shm; } '
            . '| sed -E "s:/dev/loop[0-9]+:loop:; s/ +/ /g"',
    files => 'ls -lanR /home /tmp /run /dev/shm /var/tmp /root 2>&1 '
             . '| sed -E "s/ [A-Z][a-z]{2} +[0-9]+ +[0-9:]+ / /"',
    processes => 'for p in /proc/[0-9]*; do read -r name < $p/comm; '
                 . 'echo $name; done',
    groups => 'cat /proc/self/cgroup; ls /sys/fs/cgroup 2>&1',
    network => 'cat /proc/net/tcp /proc/net/unix | grep -v "^sl" | wc -l; '
               . 'ls /sys/class/net 2>&1',
    descriptors => 'ls -l /proc/self/fd | sed -E "s/.*[0-9:]{5} //; '
                   . 's/:\[[0-9]+\]//; s:/proc/[0-9]+:proc:"',
);

sub seen {
    my ($id) = @_;

    my %seen;

    for my $what (sort keys %SEEN) {
        my $r = $SandboxTest::Pool::T->run($id, $SEEN{$what});
        $seen{$what} = $r->{stdout} . $r->{stderr};
    }

    return \%seen;
}

# What is told of a session, but for what is its own.

sub told {
    my ($s) = @_;

    my %told = %$s;
    delete @told{qw(session_id created_at expires_at usage)};

    return \%told;
}

my @ASKS = (
    [ 'nothing', template => 'base' ],
    [ 'a template', template => 'plain' ],
    [ 'limits and names', template => 'plain', user_id => 'bob',
      tenant_id => 'other', timeout_s => 77, metadata => { a => 'b' },
      env => { COLOUR => 'blue', MORE => 'x y' },
      manifest => { capabilities => [ 'shell', 'files' ],
                    idle_timeout_s => 600, on_timeout => 'pause',
                    resources => { cpus => 0.5, processes => 100,
                                   memory => '150MB',
                                   open_files => 100, cpu_seconds => 20,
                                   max_file_size => '3MB', stack => '4MB',
                                   exec_timeout_s => 9,
                                   max_output_bytes => 4096 } } ],
);


# ---- the same asked of a server with a pool, and of one without -----------

my (%warm, %cold, %ids);

for my $round ('warm', 'cold') {
    my $warm = $round eq 'warm';
    my $t = pool_server(http => $TEMPLATES . ($warm ? <<'CONF' : ''));
    sandbox_pool base sessions=1;
    sandbox_pool plain sessions=1;
CONF

    for my $ask (@ASKS) {
        my ($name, %o) = @$ask;

        if ($warm) {
            pool_full(1, $_) for 'base', 'plain';
            my %was = map { $_ => 1 } pooled_ids();
            my $res = make(%o);
            is($res->{status}, 201, "$name: made");
            ok($was{$res->{json}{session_id}}, 'of what was ready');
            $warm{$name} = $res->{json};

        } else {
            $cold{$name} = make(%o)->{json};
        }

        my $s = $warm ? $warm{$name} : $cold{$name};
        my $id = $s->{session_id};

        is_deeply(told($t->api(GET => "/sessions/$id")->{json}), told($s),
                  'GET tells the same');
        $s->{seen} = seen($id);
    }

    $t->finish;
}


for my $ask (@ASKS) {
    my ($name) = @$ask;

    subtest "asked for $name" => sub {
        my ($w, $c) = ($warm{$name}, $cold{$name});
        my ($seen, $want) = (delete $w->{seen}, delete $c->{seen});

        is_deeply(told($w), told($c), 'what is told is the same');

        for my $what (sort keys %SEEN) {
            ok(length $want->{$what}, "$what: something is seen");
            is($seen->{$what}, $want->{$what}, 'and it is the same');
        }
    };
}


# ---- times, use and limits are its own ------------------------------------

my $t = pool_server(http => "$TEMPLATES    sandbox_pool plain sessions=2;\n");

subtest 'its time begins when it is given out' => sub {
    pool_full(2, 'plain');
    select undef, undef, undef, 1.2;    # of its age nothing is to be seen
    my $t0 = time;
    my $s = make(template => 'plain', timeout_s => 100)->{json};
    my $now = time;
    my ($made) = map { iso($_) } $s->{created_at};

    cmp_ok($made, '>=', int($t0 - 1e-3), 'created then');
    cmp_ok($made, '<=', $now + 1, 'not later');
    cmp_ok(abs(iso($s->{expires_at}) - $made - 100), '<', 0.01, 'expires');

    my $u = $t->api(GET => "/sessions/$s->{session_id}")->{json}{usage};
    cmp_ok($u->{cpu_seconds}, '<', 0.01, 'has used nothing');
    is($u->{processes}, 0, 'and runs nothing');
    ends_ok($s->{session_id});
};


subtest 'the newest comes first in a list' => sub {
    pool_full(2, 'plain');
    my @ids = map { make(template => $_)->{json}{session_id} }
              'base', 'plain', 'base', 'plain';
    is_deeply([ map { $_->{session_id} }
                @{ $t->api(GET => '/sessions')->{json}{sessions} } ],
              [ reverse @ids ], 'by when they were given out');
    ends_ok(@ids);
};


subtest 'what it asked for is what holds' => sub {
    pool_full(2, 'plain');
    my $hits = metric('pool_hits_total', template => 'plain');
    my $s = make(template => 'plain',
                 manifest => { capabilities => [ 'shell' ],
                               resources => { processes => 12,
                                              open_files => 40,
                                              max_file_size => '1MB',
                                              exec_timeout_s => 6,
                                              memory => '40MB',
                                              cpus => 0.25 } })->{json};
    my $id = $s->{session_id};

    is(metric('pool_hits_total', template => 'plain'), $hits + 1,
       'one of the pool');
    is($t->api(GET => "/sessions/$id/list/")->{json}{code}, 'E3004',
       'capabilities');

    my $r = $t->run($id, 'i=0; while [ $i -lt 30 ]; do sleep 20 & '
                         . 'i=$((i+1)); done; wait');
    like($r->{stderr}, qr/fork/i, 'processes');
    $t->api(POST => "/sessions/$id/cancel");

    is($t->run($id, 'ulimit -n')->{stdout}, "40\n", 'open files');
    like($t->run($id, 'free -m')->{stdout}, qr/^Mem: +40 /m, 'memory, seen');
    $r = $t->run($id, [ 'python3', '-c', 'x = b"x" * (60 << 20)' ]);
    is($r->{reason}, 'memory', 'and kept');
    like($t->run($id, 'head -c 2000000 /dev/zero > big; ls -l big')->{stdout},
         qr/ 1048576 /, 'file size');
    is($t->run($id, 'sleep 60')->{reason}, 'timeout', 'time of a command');
    is($t->run($id, 'true', limits => { processes => 12 })->{exit_code}, 0,
       'a command may have all of it');
    is($t->api(POST => "/sessions/$id/exec",
               { cmd => 'true', limits => { processes => 13 } })
           ->{json}{code}, 'E2002', 'and no more');

    my ($quota) = map { slurp($_) } grep { -e }
        map { ("$_/$id/work/cpu.max", "$_/$id/work/cpu.cfs_quota_us") }
        map { glob "$_/sandbox-*" } cgroup_dirs_of($id);
    like($quota // 'none', qr/^25000\b/, 'processors');
    ends_ok($id);
};


subtest 'what it did before it was given out leaves nothing' => sub {
    pool_full(2, 'plain');
    my @ids = map { make(template => 'plain')->{json}{session_id} } 1, 2;
    my @seen = map { seen($_) } @ids;

    is_deeply($seen[0], $seen[1], 'two see the same');
    $t->run($ids[0], 'echo secret > mine; touch /tmp/mine');
    is($t->run($ids[1], 'ls /home/user /tmp')->{stdout} =~ /mine/ ? 1 : 0, 0,
       'and nothing of one another');
    ends_ok(@ids);
};


subtest 'it is adopted as any other' => sub {
    pool_full(2, 'plain');
    my $s = make(template => 'plain', metadata => { k => 'v' },
                 env => { MORE => '1' })->{json};
    my $id = $s->{session_id};
    my $old = $t->broker;

    $t->allow(qr/broker/);
    kill KILL => $old;
    ok(until_true(sub { my $pid = $t->broker;
                        $pid && $pid != $old && $t->ready }, 20),
       'another broker');
    my $now = $t->api(GET => "/sessions/$id")->{json};
    delete $now->{usage};
    is_deeply($now, $s, 'tells the same of it');
    is($t->run($id, 'echo $MORE $SHAPE')->{stdout}, "1 round\n",
       'and it goes on');
    is($t->api(POST => "/sessions/$id/pause")->{status}, 200, 'paused');
    is($t->api(POST => "/sessions/$id/resume")->{status}, 200, 'resumed');
    ends_ok($id);
};


$t->finish;
done_testing();


sub iso {
    my ($text) = @_;

    my @p = $text =~ /^(\d+)-(\d+)-(\d+)T(\d+):(\d+):(\d+)(\.\d+)?Z$/
        or return 0;
    require Time::Local;

    return Time::Local::timegm(@p[5, 4, 3, 2], $p[1] - 1, $p[0])
           + ($p[6] // 0);
}


# Directories that hold the group of this server's broker.

sub cgroup_dirs_of {
    my ($id) = @_;

    my %dirs;

    for my $root (SandboxTest::cgroup_roots()) {
        for my $dir (split /\n/, `find $root -maxdepth 6 -name $id`) {
            $dirs{$1} = 1 if $dir =~ m{^(.*)/sandbox-[^/]+/};
        }
    }

    return keys %dirs;
}
