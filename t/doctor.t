#!/usr/bin/perl

# What the machine has, as /doctor, /capabilities, /health and sandboxctl
# doctor tell it; and machines that lack something for real: a weaker session
# only where everybody agrees to it, and none at all without what keeps
# sessions apart.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";

use JSON::PP;
use POSIX ();
use Test::More;
use SandboxTest;

my $BUILD = $ENV{SANDBOX_BUILD} || "$SandboxTest::ROOT/build";
my $CTL = "$BUILD/sandboxctl";
my $WITHOUT = "$FindBin::Bin/lib/without";
my $who = { tenant_id => 'acme-corp', user_id => 'alice' };


# sandboxctl's exit code and what it printed, under a wrapper.

sub ctl {
    my ($wrapper, @args) = @_;

    open my $pipe, '-|', @$wrapper, $CTL, @args or die "$CTL: $!";
    local $/;
    my $text = <$pipe> // '';
    close $pipe;

    return ($? >> 8, $text);
}

sub by_name {
    my ($checks) = @_;

    return { map { $_->{name} => $_ } @{ $checks || [] } };
}

sub without { return [ $^X, $WITHOUT, $_[0], '--' ] }

sub can_be_without {
    my ($what) = @_;

    my ($code) = system(@{ without($what) }, '/bin/true');

    return $code == 0;
}


subtest 'a machine that has everything' => sub {
    my $t = SandboxTest->new->start;

    my $health = $t->api(GET => '/health')->{json};
    is($health->{status}, 'ok', 'health');
    is($health->{lacking}, undef, 'lacks nothing');

    my $doctor = $t->api(GET => '/doctor')->{json};
    my $checks = by_name($doctor->{checks});
    ok($doctor->{ok}, 'doctor agrees');

    for my $c (@{ $doctor->{checks} }) {
        next if JSON::PP::is_bool($c->{ok})
                && JSON::PP::is_bool($c->{required}) && length $c->{found}
                && !$c->{ok} == !!defined $c->{mend};
        fail("the check $c->{name}: " . JSON::PP->new->encode($c));
    }

    for my $name (qw(privileges user_namespaces namespaces cgroup seccomp
                     overlay tmpfs host_view private_proc memfd_exec
                     isolation state))
    {
        ok($checks->{$name} && $checks->{$name}{ok}
           && $checks->{$name}{required}, "$name is required, and there");
    }

    for my $name (qw(disk inodes open_files tasks pid_max threads_max
                     templates interpreter clock idmapped_mounts loop_devices
                     project_quota nftables userns_clone apparmor_userns
                     suid_dumpable ptrace_scope protected_symlinks
                     protected_hardlinks dmesg_restrict overcommit
                     epoll_watches
                     cgroup_version cpu_bandwidth swap_limit
                     namespace_limits))
    {
        ok($checks->{$name} && !$checks->{$name}{required},
           "$name is looked at");
    }

    my $caps = $t->api(GET => '/capabilities')->{json};

    for my $name (qw(memory swap cpus cpu_seconds processes max_file_size
                     open_files stack disk inodes exec_timeout max_output
                     timeout user_namespace pid_namespace mount_namespace
                     ipc_namespace uts_namespace network cgroup_namespace
                     seccomp no_new_privs capabilities filesystem host_view
                     private_proc kill oom_kill pause))
    {
        ok($caps->{$name}{enforced}, "$name is enforced")
            && isnt($caps->{$name}{by}, 'none', "by $caps->{$name}{by}");
        is($caps->{$name}{mend}, undef, 'and needs no mending');
    }

    for my $name (qw(idmapped_mounts network_grants network_conntrack
                     network_ipv6 image project_quota))
    {
        ok(JSON::PP::is_bool($caps->{$name}{enforced}), "$name is told");
        is(defined $caps->{$name}{mend}, !$caps->{$name}{enforced},
           'with how to mend it, if it is not there');
    }

    my $s = $t->api(POST => '/sessions', $who)->{json};
    my %enforced = %{ $s->{enforcement} };

    for my $name (qw(memory cpus processes)) {
        like($caps->{$name}{by}, qr/^\Q$enforced{$name}\E /,
             "a session says the same of $name");
    }

    my ($code, $text) = ctl([], 'doctor', '--json', '--state', $t->prefix);
    my $own = eval { decode_json($text) };
    is($code, 0, 'sandboxctl doctor finds the same') or diag($text);
    is(join(' ', map { $_->{name} } @{ $own->{checks} }),
       join(' ', grep { $_ ne 'storage' && !/^language_/ }
                 map { $_->{name} } @{ $doctor->{checks} }),
       'by the same checks, but for the storage and the languages that a '
       . 'server has');

    # whether a loop device is free changes with what others do

    is(join(' ', grep { $_ ne 'loop_devices' }
                 map { $_->{ok} ? () : $_->{name} } @{ $own->{checks} }),
       join(' ', grep { $_ ne 'loop_devices' && !/^language_/ }
                 map { $_->{ok} ? () : $_->{name} } @{ $doctor->{checks} }),
       'with the same results');

    subtest 'as many sessions as open_files has room for' => sub {
        my ($limit, $room) = $checks->{open_files}{found}
                             =~ /^hard limit (\d+): room for (\d+) sessions$/;
        my $broker = $t->broker;

        # what a create has open for a moment is gone when two looks agree
        my $open = sub {
            my ($last, $now) = -1;

            SandboxTest::wait_for(sub {
                ($last, $now) = ($now // -1,
                                 scalar(() = glob "/proc/$broker/fd/*"));
                return $now == $last;
            }, 10);
            return $now;
        };

        my @made = map { $t->session } 1 .. 2;
        my $before = $open->();

        push @made, $t->session for 1 .. 4;

        # one that was there for something else may have gone meanwhile

        my $each = POSIX::ceil(($open->() - $before) / 4);
        cmp_ok($each, '>', 0, "$each descriptors of the broker for each");

        # so many are kept for calls, and no session is made of them

        my $kept = $limit < 1280 ? $limit / 2 : 640;
        cmp_ok($before + $room * $each, '<=', $limit - $kept,
               "$room of them");
        cmp_ok($room * $each, '>', $limit * 0.8 - $kept,
               'and not far fewer');

        $t->api(DELETE => "/sessions/$_") for @made;
    };

    $t->finish;
};


# A service with RestrictNamespaces=, or a container: for real.

sub weak_server {
    my ($setting) = @_;

    return SandboxTest->new(
        wrapper => without('cgroup_namespace'), ready => 'port',
        edit => isolation($setting))->start;
}

sub isolation {
    my ($setting) = @_;

    return sub { s/sandbox_require_isolation \w+;/sandbox_require_isolation $setting;/
                     or die };
}

sub refused {
    my ($res, $name) = @_;

    local $Test::Builder::Level = $Test::Builder::Level + 1;

    is("$res->{status} $res->{json}{code}", '400 E2002', $name);
    like($res->{json}{detail}, qr/\bcgroup_namespace\b/, 'names the layer');
    like($res->{json}{suggestion}, qr/user\.max_cgroup_namespaces/,
         'and the mending command');

    return;
}

SKIP: {
    skip 'no filter can be installed', 2 if !can_be_without('cgroup_namespace');

    subtest 'a layer is lacking, and isolation is required' => sub {
        my $t = weak_server('on');

        my $res = $t->api(GET => '/health');
        is($res->{status}, 503, 'health is not well');
        like($res->{json}{detail}, qr/cgroup_namespace/, 'and says why');

        my $doctor = $t->api(GET => '/doctor')->{json};
        my $check = by_name($doctor->{checks})->{isolation};
        ok(!$doctor->{ok}, 'doctor says the same');
        ok(!$check->{ok} && $check->{required}, 'the isolation is required');
        like($check->{found}, qr/cgroup_namespace/, 'what lacks');
        like($check->{mend}, qr/sysctl/, 'and how to mend it');

        my $layer = $t->api(GET => '/capabilities')->{json}{cgroup_namespace};
        ok(!$layer->{enforced}, 'not enforced');
        is("$layer->{by}: $layer->{mend}", "none: $check->{mend}",
           'by nothing, and to be mended so');

        refused($t->api(POST => '/sessions', $who), 'no session is made');
        refused($t->api(POST => '/sessions',
                        { %$who,
                          manifest => { require_isolation => JSON::PP::false }
                        }), 'whatever the manifest says');

        like($t->log, qr/lacks layers of isolation: cgroup_namespace;.*refused/,
             'the log has it');
        $t->allow(qr/sandbox: isolation: /);
        $t->finish;
    };

    subtest 'a layer is lacking, and sessions may do without' => sub {
        my $t = weak_server('off');

        my $res = $t->api(GET => '/health');
        is($res->{status}, 200, 'health is well');
        is($res->{json}{lacking}, 'cgroup_namespace', 'and tells the lack');

        my $doctor = $t->api(GET => '/doctor')->{json};
        my $check = by_name($doctor->{checks})->{isolation};
        ok($doctor->{ok} && !$check->{ok} && !$check->{required},
           'doctor notes it');

        refused($t->api(POST => '/sessions',
                        { %$who,
                          manifest => { require_isolation => JSON::PP::true }
                        }), 'a manifest can insist');

        for my $manifest ({}, { require_isolation => JSON::PP::false }) {
            $res = $t->api(POST => '/sessions',
                           { %$who, manifest => $manifest });
            is($res->{status}, 201, 'else a session is made');

            my $s = $res->{json};
            ok(JSON::PP::is_bool($s->{isolated}) && !$s->{isolated},
               'that says that it is not isolated');
            ok(!$s->{enforcement}{cgroup_namespace}, 'by what');
            ok($s->{enforcement}{seccomp} && $s->{enforcement}{user_namespace},
               'and what it has all the same');
            is($t->run($s->{session_id}, 'id -un')->{stdout}, "user\n",
               'it runs');
            ok(!$t->api(GET => "/sessions/$s->{session_id}")->{json}{isolated},
               'and goes on to say so');
        }

        like($t->log, qr/not isolated by: cgroup_namespace/, 'it is logged');

        $t->write_conf(edit => isolation('on'));
        $t->reload;
        $res = $t->api(POST => '/sessions', $who);
        refused($res, 'after a reload that requires it none is made');

        $t->finish;
    };
}


# A network is given by nftables or not at all.

SKIP: {
    skip 'no filter can be installed', 1 if !can_be_without('netlink');

    subtest 'a machine that can give no network' => sub {
        my $t = SandboxTest->new(wrapper => without('netlink'),
                                 http => 'sandbox_egress allow *;')->start;

        my $layers = $t->api(GET => '/capabilities')->{json};

        for my $name (qw(network_grants network_conntrack network_ipv6)) {
            ok(!$layers->{$name}{enforced}, "$name is not there");
        }

        like($layers->{network_grants}{mend}, qr/nf_tables/,
             'and how it would be');

        my $res = $t->api(POST => '/sessions',
                          { %$who, manifest => { network =>
                                                 JSON::PP::true } });
        is("$res->{status} $res->{json}{code}", '400 E2002',
           'a session that asks for one is refused');
        like($res->{json}{detail}, qr{^/manifest/network: this machine},
             'for that');

        my $id = $t->session;
        is($t->api(GET => "/sessions/$id")->{json}{network}, 'none',
           'others have none');
        $res = $t->api(PATCH => "/sessions/$id",
                       { network => JSON::PP::true });
        is("$res->{status} $res->{json}{code}", '400 E2002',
           'and are given none');
        like($t->run($id, [ 'bash', '-c', 'echo > /dev/tcp/192.0.2.1/80' ])
               ->{stderr}, qr/unreachable/, 'by anything');

        $t->finish;
    };
}


# Nothing at all runs without these.

sub no_start {
    my ($name, $expected, %o) = @_;

    subtest "no start: $name" => sub {
        my $out;
        my $t = SandboxTest->new(%o);
        my $pid = $t->spawn($t->prefix . '/out',
                            $t->command('-g', 'daemon off;'));
        my $done = SandboxTest::wait_for(sub {
            waitpid($pid, POSIX::WNOHANG()) == $pid
        }, 30);
        my $status = $?;

        kill 'KILL', $pid if !$done;
        ok($done && $status != 0, 'nginx does not start');

        my %seen;
        my @emerg = grep { !$seen{s/^.*?\[emerg\]\s+(?:\d+#\d+: )?//r}++ }
                    grep { /\[emerg\]/ } split /\n/, $t->log;
        is(scalar @emerg, 1, 'one emerg line') or diag(@emerg);
        like($emerg[0] // '', $expected, 'that names what lacks');

        my ($code, $text) = ctl($o{wrapper}, 'doctor', '--json', '--state',
                                $t->prefix);
        my $doctor = eval { decode_json($text) };
        is($code, 1, 'sandboxctl doctor says so too') or diag($text);
        ok($doctor && !$doctor->{ok}
           && (grep { !$_->{ok} && $_->{required} && defined $_->{mend} }
                    @{ $doctor->{checks} }), 'with what mends it');

        $t->allow(qr/\[emerg\]/);
        $t->allow(qr/the broker ends|cannot start|no session can be made/);
        $t->finish;
    };

    return;
}

SKIP: {
    skip 'setpriv is not installed', 1 if !-x '/usr/bin/setpriv';

    no_start('without CAP_SYS_ADMIN', qr/cap_sys_admin/i,
             wrapper => [ '/usr/bin/setpriv', '--bounding-set',
                          '-sys_admin' ]);
}

SKIP: {
    skip 'unshare makes no user namespace here', 1
        if system('unshare -r true 2>/dev/null') != 0;

    no_start("as root of a user namespace",
             qr/capabilit|cgroup|namespace|not root|chown/i,
             wrapper => [ 'unshare', '-r', '--' ]);
}

SKIP: {
    skip 'no filter can be installed', 2 if !can_be_without('mounts');

    no_start('without user namespaces', qr/user_namespace/,
             wrapper => without('user_namespace'));
    no_start('without mounts of its own', qr/cgroup/,
             wrapper => without('mounts'));
}


# The broker's groups are reached by mounts of its own, so that how the host
# mounted them takes no limit away.

subtest 'the host mounts its control groups read-only' => sub {
    plan(skip_all => 'unshare is not installed') if !-x '/usr/bin/unshare';

    my $t = SandboxTest->new(
        wrapper => [ '/usr/bin/unshare', '-m', '--propagation', 'private',
                     'sh', '-c',
                     'for m in /sys/fs/cgroup $(awk \'$2 ~ "^/sys/fs/cgroup/"'
                     . ' { print $2 }\' /proc/mounts); do '
                     . 'mount -o remount,bind,ro "$m"; done; exec "$@"', 'sh'
                   ])->start;

    my $s = $t->api(POST => '/sessions',
                    { %$who, manifest => { resources => {
                        memory => '32MB', processes => 8 } } })->{json};
    ok($s->{isolated}, 'a session is isolated');
    is($t->run($s->{session_id},
               'for i in 1 2 3 4 5 6 7 8 9; do sleep 9 & done 2>&1; '
               . 'kill $(jobs -p); wait')->{reason}, 'exited', 'it runs');
    is($t->run($s->{session_id},
               [ 'python3', '-c', 'x = bytearray(200 << 20)' ])->{reason},
       'memory', 'and its memory is limited');

    $t->finish;
};


done_testing();
