#!/usr/bin/perl

# The keeper killed with everything in flight: nothing is lost.  Keeper and
# broker killed at once, in every order: all sessions end, calls say so, and
# the next reload brings a fresh pair, before which nothing of the old stays.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../lib";

use JSON::PP ();
use Test::More;
use SandboxTest::Connect;
use SandboxTest::Fault;
use SandboxTest::Flight;
use SandboxTest::More;
use SandboxTest::Net;

my $AT = '203.0.113.10';
my $net = SandboxTest::Net->new;
my $t = $net->server(workers => 2, server => <<'E2B', http => <<'CONF');
        location /e2b/ { sandbox_api e2b; }
E2B
    sandbox_egress allow *;
    sandbox_template pooled { egress allow *; }
    sandbox_pool pooled sessions=2;
CONF

($SandboxTest::More::T, $SandboxTest::More::PORT,
 $SandboxTest::More::PREFIX) = ($t, $t->port, $t->prefix);


sub networked {
    return create_ok({ manifest => { network => JSON::PP::true },
                       timeout_s => 3600 });
}

my $EGRESS;

sub egress {
    my ($pid) = grep { (slurp("/proc/$_/cmdline") // '') =~ /^sandbox-egress/ }
                map { SandboxTest::children($_) } $t->keeper;

    return $pid;
}

sub reaches {
    my ($id) = @_;

    return until_true {
        my ($r) = $net->try($id, { do => 'http', to => $AT, port => 80 });
        ($r->{status} // 0) == 200;
    } 10;
}

# The pair that serves, once it is another than before.

sub pair { return ($t->keeper // 0, $t->broker // 0) }

sub replaced {
    my (@old) = @_;
    my @new;

    until_true {
        @new = pair();
        return !grep({ !SandboxTest::alive($_) } @new)
               && $new[0] != $old[0] && $new[1] != $old[1] && $t->ready;
    } 20 or return;

    $t->note_processes;

    return @new;
}


sub directories {
    return map { m{([^/]+)$} } glob $t->prefix . '/sessions/*';
}


# ---- the keeper ------------------------------------------------------------

# What dies once costs no caller anything.  A call that is lost twice is told,
# and made again by its key.

sub over {
    my ($name, $kill, $often) = @_;

    subtest $name => sub {
        my $flight = SandboxTest::Flight->begin;
        my $id = networked();
        my $held = $net->hold($id, $AT);
        my $egress = $EGRESS //= egress();

        ok($held, 'a connection of a session is up');

        # sessions are made and ended all the while

        my $go = $t->prefix . '/go';
        open my $f, '>', $go or die $!;
        close $f;

        my $busy = async {
            my @wrong;
            my $n = 0;

            for ( ; -e $go; $n++) {
                my $res;

                until_true {
                    $res = create(undef, headers =>
                                  { 'Idempotency-Key' => "$$-$n" });
                    !$often || ($res->{json}{code} // '') ne 'E5001';
                } 20;

                my $made = $res->{json}{session_id};
                push @wrong, "create: $res->{status} $res->{body}"
                    if $res->{status} !~ /^20[01]$/;
                next if !$made;

                # told that its end is not known, a command is not run again

                $res = exec_call($made, "echo $n");
                push @wrong, "exec: $res->{status} $res->{body}"
                    if ($res->{json}{stdout} // '') ne "$n\n"
                       && !($often && ($res->{json}{code} // '') eq 'E5001');

                # asked once more where the first answer was lost

                until_true {
                    $res = destroy($made);
                    !$often || ($res->{json}{code} // '') ne 'E5001';
                } 20;

                push @wrong, "DELETE: $res->{status} $res->{body}"
                    if $res->{status} != 204
                       && ($res->{json}{ended} // '') ne 'destroyed';
            }

            return { wrong => \@wrong, done => $n };
        };

        $kill->();
        unlink $go;

        my $done = $busy->get(within(60));
        is_deeply($done->{wrong}, [], 'calls meanwhile are answered');
        cmp_ok($done->{done}, '>', 0, "$done->{done} of each");

        is_deeply($flight->land, [], 'nothing in flight is lost');
        is($flight->{resumed}, 0, 'nor cut');
        is($net->held($id, $held, qr/up/), 'up', 'connections go on');
        is(SandboxTest::alive($egress), 1, 'by the same egress');
        ok(reaches($id), 'and new ones work');
        is(destroy($id)->{status}, 204, 'it ends');

        my $health = call('GET', '/health')->{json};
        is($health->{sessions}, 0, 'the count of sessions is right');
    };

    return;
}

sub killed {
    my @old = pair();

    is($t->hit(KILL => $old[0]), 1, 'the keeper is killed');
    my @new = replaced(@old);
    is($new[0], $old[1], 'its broker has taken its place');
    isnt($new[1] // 0, $old[1], 'and has a broker');

    return @new;
}


over('the keeper is killed' => sub { killed() });

over('three times, one right after the other' => sub {
    killed() for 1 .. 3;
}, 1);

over('the next broker dies when it has the store' => sub {
    my ($old, $broker) = pair();

    arm($broker, 'broker-start-stored');
    $t->hit(KILL => $old);
    my $new = held($broker);
    ok($new && $new != $broker, 'another broker has the store');
    disarm($broker);
    ok(kill('KILL', $new), 'and is killed');

    my @pair = replaced($old, $new);
    is($pair[0], $broker, 'its keeper starts another');
}, 1);

over('the keeper dies again when its broker has the store' => sub {
    my ($old, $broker) = pair();

    arm($broker, 'broker-start-stored');
    $t->hit(KILL => $old);
    my $new = held($broker);
    ok($new && $new != $broker, 'the new broker has it');
    ok(kill('KILL', $broker), 'its keeper is killed');
    ok(release($new), 'it goes on');

    my @pair = replaced($broker, $new);
    is($pair[0], $new, 'and takes its place');
}, 1);


# Whoever moves a keeper, by hand or as systemd does, takes the next broker
# along, but not the groups that there are.

my $AWAY = "sbxtest-moved-$$";
my $OWNER = $$;
my @MOVED;

sub branches { return grep { m{/sandbox-[a-z0-9]+$} } cgroup_dirs() }

sub moved {
    my ($pid) = @_;

    for my $dir (map { s{[^/]+$}{$AWAY}r } branches()) {
        mkdir $dir or next;
        push @MOVED, $dir;
        open my $f, '>', "$dir/cgroup.procs" or next;
        syswrite $f, $pid;
    }

    my @at = grep { m{/\Q$AWAY\E$} }
             split /\n/, slurp("/proc/$pid/cgroup") // '';

    return @at && @at == @MOVED;
}

END {
    if ($$ == $OWNER) {
        local $?;
        rmdir for @MOVED;
    }
}

over('the broker dies when its keeper has been moved to other groups', sub {
    my ($keeper, $broker) = pair();
    my @before = branches();

    ok(moved($keeper), 'it is moved in every hierarchy');
    $t->hit(KILL => $broker);
    ok((until_true {
        my $new = $t->broker // 0;
        $new != $broker && SandboxTest::alive($new) && $t->ready;
    } 20), 'there is another broker');
    like(slurp('/proc/' . $t->broker . '/cgroup'), qr{/\Q$AWAY\E},
         'which was born there');
    is_deeply([ branches() ], \@before, 'the groups are where they were');
    killed();
    is_deeply([ branches() ], \@before, 'and after the keeper as well');
}, 1);


# ---- both ------------------------------------------------------------------

# Every kind of call, as it is when nobody is there to take it.

my @CALLS = (
    [ 'GET', '/health' ],
    [ 'GET', '/sessions' ],
    [ 'GET', '/sessions/ID' ],
    [ 'GET', '/capabilities' ],
    [ 'POST', '/sessions', json => { tenant_id => 'a', user_id => 'b' } ],
    [ 'POST', '/sessions/ID/exec', json => { cmd => 'echo' } ],
    [ 'POST', '/sessions/ID/exec', json => { cmd => 'echo' },
      headers => { Accept => 'application/x-ndjson' } ],
    [ 'POST', '/sessions/ID/code', json => { language => 'bash',
                                             code => 'echo' } ],
    [ 'GET', '/sessions/ID/processes' ],
    [ 'PUT', '/sessions/ID/files/f', body => 'x' ],
    [ 'GET', '/sessions/ID/files/f' ],
    [ 'GET', '/sessions/ID/files/' ],
    [ 'DELETE', '/sessions/ID/files/f' ],
    [ 'PATCH', '/sessions/ID', json => { timeout_s => 100 } ],
    [ 'POST', '/sessions/ID/pause' ],
    [ 'POST', '/sessions/ID/resume' ],
    [ 'POST', '/run', json => { tenant_id => 'a', user_id => 'b',
                                steps => [ { cmd => 'echo' } ] } ],
    [ 'DELETE', '/sessions/ID' ],
);

sub refused_all {
    my ($id) = @_;
    my @wrong;

    for my $c (@CALLS) {
        my ($method, $path, %o) = @$c;
        $path =~ s/ID/$id/;

        my $res = call($method, $path, %o);
        my $got = join ' ', $res->{status}, $res->{json}{code} // 'no code',
                  $res->{headers}{'retry-after'} // 'no time';
        push @wrong, "$method $path: $got" if $got ne '503 E5001 1';
    }

    return is_deeply(\@wrong, [], 'every call is 503, E5001, Retry-After: 1');
}

# The same by the protocol of E2B, in the form that each of its planes has:
# of sandboxes and files, JSON; of port 49999, text; of Connect, its own code,
# of a stream in its last message.  A port is the native API's.

my %E2B = (
    control => {
        'POST v2/sandboxes' => { templateID => 'base' },
        'POST sandboxes' => { templateID => 'base' },
        'GET v2/sandboxes' => undef,
        'GET sandboxes' => undef,
        'GET sandboxes/metrics' => '?sandbox_ids=ID',
        'GET sandboxes/ID' => undef,
        'DELETE sandboxes/ID' => undef,
        'POST sandboxes/ID/timeout' => { timeout => 60 },
        'POST sandboxes/ID/refreshes' => { duration => 60 },
        'POST sandboxes/ID/pause' => {},
        'POST sandboxes/ID/resume' => {},
        'POST sandboxes/ID/connect' => { timeout => 60 },
        'POST v2/sandboxes/ID/connect' => { timeout => 60 },
        'PUT sandboxes/ID/network' => {},
        'GET sandboxes/ID/metrics' => undef,
        'GET sandboxes/ID/logs' => undef,
        'GET v2/sandboxes/ID/logs' => undef,
    },
    data => {
        'GET health' => undef,
        'GET metrics' => undef,
        'GET envs' => undef,
        'GET files' => '?path=f',
        'POST files' => '?path=f',
        'POST files/compose' => { source_paths => [ 'f' ],
                                  destination => 'g' },
    },
    code => {
        'GET health' => undef,
        'POST execute' => { code => '1' },
        'GET contexts' => undef,
        'POST contexts' => {},
        'POST contexts/ID/restart' => undef,
        'DELETE contexts/ID' => undef,
    },
    rpc => {
        'process.Process/List' => {},
        'process.Process/Update' => { process => { pid => 2 } },
        'process.Process/SendInput' => { process => { pid => 2 },
                                         input => { stdin => 'eA==' } },
        'process.Process/SendSignal' => { process => { pid => 2 },
                                          signal => 'SIGNAL_SIGKILL' },
        'process.Process/CloseStdin' => { process => { pid => 2 } },
        'filesystem.Filesystem/Stat' => { path => 'f' },
        'filesystem.Filesystem/MakeDir' => { path => 'f' },
        'filesystem.Filesystem/Move' => { source => 'f',
                                          destination => 'g' },
        'filesystem.Filesystem/ListDir' => { path => '.' },
        'filesystem.Filesystem/Remove' => { path => 'f' },
        'filesystem.Filesystem/CreateWatcher' => { path => '.' },
        'filesystem.Filesystem/GetWatcherEvents' => { watcherId => 'w1-10-1' },
        'filesystem.Filesystem/RemoveWatcher' => { watcherId => 'w1-10-1' },
        'code.CodeInterpreter/Execute' => { code => '1' },
        'code.CodeInterpreter/CreateContext' => {},
        'code.CodeInterpreter/ListContexts' => {},
        'code.CodeInterpreter/RestartContext' => { contextId => 'c' },
        'code.CodeInterpreter/RemoveContext' => { contextId => 'c' },
    },
    stream => {
        'process.Process/Start' => { process => { cmd => 'true' } },
        'process.Process/Connect' => { process => { pid => 2 } },
        'process.Process/StreamInput' =>
            { start => { process => { pid => 2 } } },
        'filesystem.Filesystem/WatchDir' => { path => '.' },
    },
);

# Those that ask no session, or are there to be refused.

my @ALONE = ('GET health', 'GET templates', 'GET v2/templates',
             'GET templates/aliases/ID', 'DELETE templates/ID', 'POST ID');

sub e2b_routes {
    my ($plane) = @_;

    my $text = slurp("$SandboxTest::ROOT/ngx_sandbox_module/e2b/"
                     . "ngx_http_sandbox_e2b_$plane.c");
    my %in;

    $text =~ s/\bLOOK\(/{ NGX_HTTP_GET, /g;
    $text =~ s/\bRPC\(/{ NGX_HTTP_POST, /g;
    $text =~ s/\bTELL\(/{ /g;
    $in{"$1 " . $2 =~ s/\{\w+\}/ID/gr} = 1
        while $text =~ /\{\s*NGX_HTTP_(\w+),\s*"([^"]+)"/g;

    return keys %in;
}

sub e2b_refused {
    my ($id, $plane, $call) = @_;

    my $what = $E2B{$plane}{$call};
    my ($method, $path) = $call =~ / / ? split(/ /, $call) : ('POST', $call);
    my $type = $plane eq 'stream' ? 'application/connect+json'
                                  : 'application/json';
    my %h = $plane eq 'control'
        ? ('X-API-Key' => 'e2b_' . '0' x 40)
        : (%{ rpc_headers($id) },
           'E2b-Sandbox-Port' => $plane eq 'code' ? 49999 : 49983);
    my $body = ref $what ? json_of($what) : undef;

    $body = 'x' if $call eq 'POST files';
    $type = 'application/octet-stream' if $call eq 'POST files';
    $body = envelope($body) if $plane eq 'stream';
    $h{'Content-Type'} = $type if defined $body;
    $path .= $what if defined $what && !ref $what;
    $path =~ s/ID/$id/;

    my $res = call($method, "/$path", base => '/e2b', body => $body,
                   headers => \%h);
    my $json = $res->{json} // {};
    my $later = $res->{headers}{'retry-after'} // 'no time';

    if ($plane eq 'stream') {
        my ($last) = (envelopes($res->{body}))[-1];
        my $error = eval { JSON::PP::decode_json($last->[1])->{error} } // {};
        return "$res->{status} $last->[0] " . ($error->{code} // 'no code');
    }

    return join ' ', $res->{status}, $json->{code} // 'no code', $later;
}

my %FORM = (control => '503 503 1', data => '503 503 1',
            code => '503 no code 1', rpc => '503 unavailable 1',
            stream => '200 2 unavailable');

sub refused_e2b {
    my ($id) = @_;

    my %all = map { my $p = $_; map { (/ / ? $_ : "POST $_") => 1 }
                                keys %{ $E2B{$p} } } keys %E2B;
    my %there = map { $_ => 1 } map { e2b_routes($_) } qw(control envd code);

    delete @there{@ALONE};
    is_deeply([ grep { !/ health$/ } sort keys %all ], [ sort keys %there ],
              'every route of E2B is called');

    my @wrong;

    for my $plane (sort keys %E2B) {
        for my $call (sort keys %{ $E2B{$plane} }) {
            my $got = e2b_refused($id, $plane, $call);
            push @wrong, "$plane $call: $got" if $got ne $FORM{$plane};
        }
    }

    my $res = call('GET', '/', base => '/e2b', headers => {
        'E2b-Sandbox-Id' => $id, 'E2b-Sandbox-Port' => 8000 });
    push @wrong, "port: $res->{status}" if $res->{status} != 503;

    return is_deeply(\@wrong, [], 'and each is refused in its own form');
}

sub stopped {
    my (@pids) = @_;

    $t->hit(STOP => @pids);

    return until_true {
        !grep { (slurp("/proc/$_/stat") // '') !~ /\) T / } @pids
    } 10;
}

my @WAYS = (
    [ 'the keeper first' => sub {
        my ($keeper, $broker) = pair();
        ok(stopped($keeper, $broker), 'both stand still');
        $t->hit(KILL => $keeper);
        ok(SandboxTest::gone([ $keeper ]), 'the keeper is killed');
        $t->hit(KILL => $broker);
        return $broker;
    } ],
    [ 'the broker first' => sub {
        my ($keeper, $broker) = pair();
        ok(stopped($keeper, $broker), 'both stand still');
        $t->hit(KILL => $broker);
        ok(SandboxTest::gone([ $broker ]), 'the broker is killed');
        $t->hit(KILL => $keeper);
        return $keeper;
    } ],
    [ 'the broker as it takes the place of the keeper' => sub {
        my ($keeper, $broker) = pair();
        arm($broker, 'broker-replace-written');
        $t->hit(KILL => $keeper);
        is(held($broker), $broker, 'the store is written');
        ok(kill('KILL', $broker), 'and it is killed');
        return $broker;
    } ],
    [ 'the next keeper as it starts' => sub {
        my ($keeper, $broker) = pair();
        arm($broker, 'keeper-start-confined');
        $t->hit(KILL => $keeper);
        is(held($broker), $broker, 'it has the store, and no broker yet');
        ok(kill('KILL', $broker), 'and it is killed');
        return $broker;
    } ],
);

my $first = 1;

for my $way (@WAYS) {
    my ($name, $kill) = @$way;

    subtest "keeper and broker are killed, $name" => sub {
        my @ids = (create_ok(), create_ok(), networked());
        my ($runs, $paused, $id) = @ids;

        exec_call($runs, 'setsid sleep 1000 & :');
        exec_call($paused, 'setsid sleep 1000 & :');
        call('POST', "/sessions/$paused/pause");
        ok($net->hold($id, $AT), 'a connection is up');
        ok((until_true { directories() >= 5 } 60),
           'some sessions are nobody\'s');

        my @old = session_pids();
        my @dirs = directories();
        $t->remember($_) for @old;
        cmp_ok(scalar @old, '>=', 8, scalar(@old) . ' processes');

        my $last = $kill->();

        ok(SandboxTest::gone([ $last ]), 'nobody is left');
        ok(SandboxTest::gone(\@old, 15), 'every process of theirs has ended')
            || diag(map { slurp("/proc/$_/status") // '' }
                    grep { SandboxTest::alive($_) } @old);

        my $res = call('GET', '/health');
        is_problem($res, 503, 'E5001', 'the API says that it cannot');
        is($res->{headers}{'retry-after'}, 1, 'and to come again');
        refused_all($id) if $first;
        refused_e2b($id) if $first;
        $first = 0;

        ok($t->reload, 'a reload');
        is(call('GET', '/health')->{json}{sessions}, 0, 'begins with none');

        my %there = map { $_ => 1 } directories();
        is_deeply([ grep { $there{$_} } @dirs ], [],
                  'no directory is left of the sessions before');

        my $dead = join '|', map { quotemeta } @dirs;
        is_deeply([ grep { m{/(?:$dead)$} } cgroup_dirs() ], [],
                  'nor a group');
        is_deeply([ grep { /$dead/ } map { mounts($_) } pair() ], [],
                  'nor a mount');

        $res = call('GET', "/sessions/$runs");
        is_problem($res, 404, 'E2009', 'who asks for one');
        is($res->{json}{ended}, 'node_restart', 'is told why it has ended');

        my $new = networked();
        is(run($new, 'echo new')->{stdout}, "new\n", 'new ones are made');
        ok(reaches($new), 'with a network');
        is(destroy($new)->{status}, 204, 'and destroyed');
        ok((until_true { directories() >= 2 } 60),
           'the pool is filled again');
    };
}

$t->finish;
done_testing();
