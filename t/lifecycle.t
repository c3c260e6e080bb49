#!/usr/bin/perl

# Keeper, broker and sessions over everything that happens to an nginx: tests
# of its configuration, reloads, upgrades, kills, and ends of every kind.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";

use Test::More;
use Time::HiRes qw(time);
use SandboxTest;

my $killed = qr/worker process \d+ exited on signal 9/;


# What is alike wherever the control groups are need not be shown by an
# emulated machine, where each start takes ten times as long.

sub apart {
    my ($name, $code) = @_;

    return if $ENV{SANDBOX_TEST_SMALL};

    local $Test::Builder::Level = $Test::Builder::Level + 1;

    return subtest($name, $code);
}


# What the session's file holds tells that it is the same session still.

sub marked {
    my ($t) = @_;

    my $s = $t->session;
    $t->http(PUT => "/v1/sessions/$s/files/mark", body => $s);

    return $s;
}

sub is_there {
    my ($t, $s, $name) = @_;

    local $Test::Builder::Level = $Test::Builder::Level + 1;

    my $r = $t->run($s, [ 'cat', 'mark' ]);

    return is($r->{stdout}, $s, $name);
}

sub is_over {
    my ($t, $name, @pids) = @_;

    local $Test::Builder::Level = $Test::Builder::Level + 1;

    my $ok = SandboxTest::wait_for(sub {
        return !$t->port_taken && !$t->left_processes;
    }, 15);

    return ok($ok, $name)
           || diag(map { "left: $_\n" } map {
                  (SandboxTest::slurp("/proc/$_/cmdline") // '') =~ tr/\0/ /r
              } $t->left_processes);
}


apart 'nginx -t starts nothing' => sub {
    my $t = SandboxTest->new;

    my ($status, $text) = $t->nginx('-t');
    is($status, 0, 'the shipped configuration is good') or diag($text);
    is_deeply([ $t->left_processes ], [], 'and nothing runs');
    is_deeply([ $t->left_files ], [], 'and nothing was made');

    $t->finish;
};


apart 'with daemon on, nginx returns and lets go of its pipe' => sub {
    my $t = SandboxTest->new(daemon => 1);

    # "nginx | cat" ends when the last holder of the pipe does.

    my @command = $t->command;
    my $env = $t->environment;
    local %ENV = (%ENV, %$env);
    my $t0 = time;

    open my $pipe, '-|', "@command 2>&1" or die $!;
    my @lines;
    {
        local $SIG{ALRM} = sub { die "late\n" };
        alarm 30 * $SandboxTest::SLOW;
        eval { @lines = <$pipe> };
        alarm 0;
    }
    is($@, '', 'the pipe ended');
    is("@lines", '', 'without a word');
    ok(SandboxTest::wait_for(sub { $t->ready }, 10), 'and nginx serves');

    $t->note_processes;
    is_there($t, marked($t), 'sessions too');
    $t->finish;
};


subtest 'a reload keeps broker, keeper and sessions' => sub {
    my $t = SandboxTest->new->start;
    my $s = marked($t);
    my @before = ($t->keeper, $t->broker);

    ok($t->reload, "reload $_") for 1 .. 3;
    is_deeply([ $t->keeper, $t->broker ], \@before, 'the same processes');
    is_there($t, $s, 'the same session');

    $t->write_conf(http => '    sandbox_nonsense on;');
    my ($status) = $t->nginx('-t');
    isnt($status, 0, 'a reload with a mistake');
    $t->signal('HUP');
    ok(SandboxTest::wait_for(sub { $t->log_has(qr/sandbox_nonsense/) }),
       'is told');
    is_there($t, $s, 'and changes nothing');

    $t->allow(qr/unknown directive "sandbox_nonsense"/);
    $t->finish;
};


apart 'a reload is enough for an nginx that had no module' => sub {
    my $t = SandboxTest->new(ready => 'port', conf => <<'CONF')->start;
user www-data;
pid nginx.pid;
error_log logs/error.log notice;
events { }
http {
    access_log off;
    client_body_temp_path client_body_temp;
    proxy_temp_path proxy_temp;
    fastcgi_temp_path fastcgi_temp;
    uwsgi_temp_path uwsgi_temp;
    scgi_temp_path scgi_temp;
    server { listen 127.0.0.1:%%PORT%%; }
}
CONF
    is($t->broker, undef, 'nothing of a sandbox runs');

    my $master = $t->master;

    $t->write_conf(conf => undef, ready => undef);
    ok($t->reload, 'a reload');
    is($t->master, $master, 'the same master');
    is_there($t, marked($t), 'has sessions');

    $t->finish;
};


apart 'kill -9 of a worker' => sub {
    my $t = SandboxTest->new(workers => 2)->start;
    my $s = marked($t);

    my @workers = $t->workers;
    $t->hit('KILL', @workers);
    ok(SandboxTest::gone(\@workers), 'they are gone');
    ok(SandboxTest::wait_for(sub { $t->ready }), 'others serve');
    is_there($t, $s, 'the session is there');

    $t->allow($killed);
    $t->finish;
};


subtest 'kill -9 of the broker: another adopts the sessions' => sub {
    my $t = SandboxTest->new->start;
    my @s = map { marked($t) } 1 .. 3;

    for my $round (1 .. 3) {
        my $old = $t->broker;
        my $t0 = time;
        $t->hit('KILL', $old);

        my $res = SandboxTest::wait_for(sub {
            my $pid = $t->broker;
            return $pid && $pid != $old && SandboxTest::alive($pid)
                   && $t->ready;
        }, 5);
        ok($res, "round $round: another broker answers");
        cmp_ok(time - $t0, '<', 1 + $SandboxTest::SLOW, 'within a second');
        is_there($t, $_, 'a session is there') for @s;
    }

    my $n = $t->api(GET => '/health')->{json}{sessions};
    is($n, 3, 'it counts the sessions that it adopted');
    is($t->api(DELETE => "/sessions/$s[0]")->{status}, 204,
       'and destroys one');

    $t->finish;
};


apart 'a call sent while the broker is down waits for the next' => sub {
    my $t = SandboxTest->new->start;
    my $s = marked($t);

    for (1 .. 5) {
        $t->hit('KILL', $t->broker);
        my $r = $t->api(POST => "/sessions/$s/exec",
                        { cmd => [ 'cat', 'mark' ] });
        is("$r->{status} " . ($r->{json}{stdout} // ''), "200 $s",
           'it is answered');
        SandboxTest::wait_for(sub { SandboxTest::alive($t->broker) });
    }

    $t->finish;
};


subtest 'kill -9 of the keeper: another takes its place' => sub {
    my $t = SandboxTest->new->start;
    my $s = marked($t);
    my $old = $t->keeper;

    $t->hit('KILL', $old);
    ok(SandboxTest::wait_for(sub {
        my $pid = $t->keeper;
        return $pid && $pid != $old && SandboxTest::alive($pid);
    }), 'a keeper is there');
    $t->note_processes;
    ok(SandboxTest::wait_for(sub { $t->ready }), 'the API answers');
    is_there($t, $s, 'the session is there');
    is($t->api(DELETE => "/sessions/$s")->{status}, 204,
       'and can be destroyed');

    $t->finish;
};


apart 'kill -9 of keeper and broker: 503 until the next reload' => sub {
    my $t = SandboxTest->new->start;
    my $s = marked($t);

    $t->hit('STOP', $t->broker);
    $t->hit('KILL', $t->keeper, $t->broker);

    my $res;
    ok(SandboxTest::wait_for(sub {
        $res = $t->api(GET => '/health');
        return $res->{status} == 503;
    }), 'the API says that it cannot');
    is($res->{json}{code}, 'E5001', 'for want of a broker');

    ok($t->reload, 'after a reload it can');
    $t->note_processes;
    is($t->api(GET => "/sessions/$s")->{status}, 404,
       'the session has ended');
    is_there($t, marked($t), 'and another is made');

    $t->finish;
};


subtest 'kill -9 of the master, and then the end of its workers' => sub {
    my $t = SandboxTest->new->start;
    marked($t);

    my $id = $t->session;
    $t->run($id, 'setsid sleep 1000 & :');

    # Workers outlive their master until they are told: nginx's own way.

    my @workers = $t->workers;
    my $master = $t->master;
    $t->hit('KILL', $master);
    SandboxTest::wait_for(sub { $t->reap });
    ok(!SandboxTest::alive($master), 'it is dead');
    is($t->run($id, 'echo on')->{stdout}, "on\n", 'its workers serve on');
    $t->hit('TERM', @workers);

    is_over($t, 'no process is left, and the port is free');
    unlink $t->prefix . '/nginx.pid';
    $t->finish;
};


subtest 'kill -9 of everything, and a start after it' => sub {
    my $t = SandboxTest->new->start;
    my $s = marked($t);

    # a master that is stopped starts no further worker

    $t->run($s, 'setsid sleep 1000 & :');
    $t->hit('STOP', $t->master);
    SandboxTest::wait_for(sub {
        SandboxTest::slurp('/proc/' . $t->master . '/stat') =~ /\) T /;
    });

    my @all = ($t->master, $t->workers, $t->keeper, $t->broker);
    $t->hit('STOP', @all);
    $t->hit('KILL', @all);
    $t->reap;

    is_over($t, 'no process is left, and the port is free');
    ok(-e $t->prefix . "/sessions/$s", 'but what nobody could remove');

    unlink $t->prefix . '/nginx.pid';
    delete $t->{child};
    $t->start;
    is($t->api(GET => '/health')->{json}{sessions}, 0,
       'the next server has no session');
    is_deeply([ glob $t->prefix . '/sessions/*' ], [],
              'and has swept what nobody owned');
    is_there($t, marked($t), 'and works');

    $t->finish;
};


apart 'quit lets a request in flight end' => sub {
    my $t = SandboxTest->new->start;
    my $s = $t->session;

    my $c = $t->connect;
    my $body = '{"cmd":"echo begun > flag; sleep 2; echo whole"}';
    $c->send_request(POST => "/v1/sessions/$s/exec", body => $body,
                     headers => { 'Content-Type' => 'application/json' });
    SandboxTest::wait_for(sub {
        $t->http(GET => "/v1/sessions/$s/files/flag")->{status} == 200;
    });

    my $t0 = time;
    my ($status) = $t->nginx('-s', 'quit');
    is($status, 0, 'nginx -s quit');

    my $res = $c->read_response;
    is($res->{status}, 200, 'the command is answered');
    like($res->{body}, qr/"stdout":"whole\\n"/, 'whole');
    $c->close;

    is_over($t, 'then everything ends');
    cmp_ok(time - $t0, '<', 12 * $SandboxTest::SLOW, 'soon');
    $t->finish;
};


apart 'term ends everything at once' => sub {
    my $t = SandboxTest->new->start;
    my $s = $t->session;

    my $c = $t->connect;
    $c->send_request(POST => "/v1/sessions/$s/exec",
                     body => '{"cmd":"echo > flag; sleep 1000"}',
                     headers => { 'Content-Type' => 'application/json' });
    SandboxTest::wait_for(sub {
        $t->http(GET => "/v1/sessions/$s/files/flag")->{status} == 200;
    });

    my $t0 = time;
    ok($t->stop('TERM', 10), 'all processes have ended');
    cmp_ok(time - $t0, '<', 6 * $SandboxTest::SLOW, 'within seconds');
    $c->close;
    $t->finish;
};


apart 'master_process off' => sub {
    my $t = SandboxTest->new(main => 'master_process off;',
                             workers => 1)->start;
    my $s = marked($t);

    is_there($t, $s, 'a session');
    $t->finish(signal => 'TERM');
};


subtest 'USR2: the new nginx finds the broker that runs' => sub {
    # nginx takes the signal only when its parent is not the one of its start.

    my $t = SandboxTest->new(daemon => 1)->start;
    my $s = marked($t);
    my @before = ($t->keeper, $t->broker);
    my $old = $t->master;

    $t->signal('USR2');
    ok(SandboxTest::wait_for(sub {
        my $pid = $t->master;
        return $pid && $pid != $old && $t->pid_file('nginx.pid.oldbin');
    }), 'two masters');
    $t->note_processes;

    $t->hit('QUIT', $old);
    ok(SandboxTest::wait_for(sub {
        $t->reap;
        return !SandboxTest::alive($old);
    }), 'the old one ends');

    ok($t->ready, 'the new one serves');
    is_deeply([ $t->keeper, $t->broker ], \@before,
              'by the same keeper and broker');
    is_there($t, $s, 'and the session is there');

    $t->finish;
};


apart 'two servers with a state directory each' => sub {
    my $one = SandboxTest->new->start;
    my $two = SandboxTest->new->start;

    isnt($one->broker, $two->broker, 'have a broker each');

    my ($s1, $s2) = (marked($one), marked($two));
    is($two->api(GET => "/sessions/$s1")->{status}, 404,
       'do not know the other\'s sessions');

    $one->finish(name => 'one ends');
    is_there($two, $s2, 'and the other goes on');
    $two->finish;
};


apart "a service, and an nginx that is not root's" => sub {
    my $t = SandboxTest->new(trust => 'standalone');

    ok($t->start_broker, 'the service');
    my ($status, $text) = $t->nginx('-g', 'daemon off;');
    isnt($status, 0, 'before root has said anything nginx does not start');
    like($t->log . $text, qr/\[emerg\].*waits for root's configuration/,
         'and tells why');
    $t->allow(qr/waits for root's configuration/);

    ok($t->configure, 'root says what sessions may be');
    $t->start;

    for my $pid ($t->master, $t->workers) {
        my ($uid) = SandboxTest::slurp("/proc/$pid/status")
                    =~ /^Uid:\s+(\d+)/m;
        is($uid, scalar getpwnam('www-data'), 'nginx is a user');
    }

    my $s = marked($t);
    is_there($t, $s, 'and has sessions');

    $t->write_conf(http => '    sandbox_quota user sessions=1;');
    ok($t->reload, 'it reloads');
    is($t->api(DELETE => '/sessions/' . marked($t))->{status}, 204,
       'which changes nothing of what root has said');

    my @pair = ($t->keeper, $t->broker);
    $t->signal('QUIT');
    ok(SandboxTest::wait_for(sub { $t->reap; !SandboxTest::alive($t->master) }),
       'nginx ends');
    is_deeply([ grep { !SandboxTest::alive($_) } @pair ], [],
              'and the service does not');
    $t->start;
    is_there($t, $s, 'nor the session');

    $t->finish;
};


subtest "the flags of the machine's cgroup2 stay" => sub {
    my $flags = sub {
        my ($line) = grep { / - cgroup2 / }
                     split /\n/, SandboxTest::slurp('/proc/self/mountinfo');
        return ($line // '') =~ /(\S+)$/ ? $1 : '';
    };
    my $before = $flags->();

  SKIP: {
        skip 'no cgroup2 is mounted here', 2 if $before eq '';

        my $t = SandboxTest->new->start;
        is($flags->(), $before, 'while a broker runs');
        $t->finish;
        is($flags->(), $before, 'and after it');
    }
};


# ---- starts that fail ----------------------------------------------------

# One line that says what is missing and how to mend it.

sub fails {
    my ($name, $pattern, $t) = @_;

    local $Test::Builder::Level = $Test::Builder::Level + 1;

    my ($status, $text) = $t->nginx('-g', 'daemon off;');
    my @emerg = grep { /\[emerg\]/ } split /\n/, $t->log . $text;
    my %seen;
    @emerg = grep { !$seen{s/^.*?\[emerg\]\s+(?:\d+#\d+: )?//r}++ } @emerg;

    isnt($status, 0, "$name: nginx does not start");
    is(scalar @emerg, 1, "$name: one emerg line") or diag($text, $t->log);
    like($emerg[0] // '', $pattern, "$name: that tells why, and the way out");

    $t->allow(qr/\[emerg\]/);
    $t->finish(name => "$name: leaves nothing");

    return;
}

sub with_state {
    my ($dir) = @_;

    return SandboxTest->new(edit => sub {
        s/sandbox_state_dir \.;/sandbox_state_dir $dir;/ or die;
    });
}

fails('a state directory that cannot be made', qr/state directory.*: \S/s,
      with_state('/proc/no'));

my $foreign = "/tmp/sbx-foreign.$$";
mkdir $foreign;
chown scalar getpwnam('www-data'), -1, $foreign;
fails('a state directory of somebody else', qr/chown|root/,
      with_state($foreign));
rmdir $foreign;

fails('no helpers', qr/sandbox_helper_dir/, SandboxTest->new(edit => sub {
    s/sandbox_helper_dir helpers;/sandbox_helper_dir nowhere;/ or die;
}));

# Below a file no group can be made, in v1 and in v2.

fails('no cgroup', qr/cgroup/, SandboxTest->new(
    http => '    sandbox_cgroup /cgroup.procs/group;'));

SKIP: {
    skip 'would change a setting of the whole machine', 1
        if !$ENV{SANDBOX_TEST_VM};

    my $sysctl = '/proc/sys/user/max_user_namespaces';
    chomp(my $was = SandboxTest::slurp($sysctl));

    system "echo 0 > $sysctl";
    fails('no user namespaces', qr/user_namespace/, SandboxTest->new);
    system "echo $was > $sysctl";
}

SKIP: {
    skip 'setpriv is not installed', 1 if !-x '/usr/bin/setpriv';

    my $t = SandboxTest->new;
    my $uid = getpwnam('www-data');
    system 'chown', '-R', 'www-data', $t->prefix;

    my $out = $t->prefix . '/out';
    my $pid = $t->spawn($out, 'setpriv', "--reuid=$uid", '--clear-groups',
                        $t->command('-g', 'daemon off;'));
    my $done = SandboxTest::wait_for(sub {
        waitpid($pid, POSIX::WNOHANG()) == $pid
    }, 15);
    my $status = $?;

    kill 'KILL', $pid if !$done;
    ok($done && $status != 0, 'no root: nginx does not start');

    my %seen;
    my @emerg = grep { !$seen{s/^.*?\[emerg\]\s+(?:\d+#\d+: )?//r}++ }
                grep { /\[emerg\]/ }
                split /\n/, $t->log . (SandboxTest::slurp($out) // '');
    is(scalar @emerg, 1, 'no root: one emerg line') or diag(@emerg);
    like($emerg[0] // '', qr/root|service/, 'no root: that tells the way out');

    $t->allow(qr/\[emerg\]/);
    $t->finish(name => 'no root: leaves nothing');
}

done_testing();
