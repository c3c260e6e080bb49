package SandboxTest::Kill;

# A process killed while a call stands at a named point, and what the others
# have of it.
#
#   use SandboxTest::Fault;
#   use SandboxTest::Kill;
#
#   my $t = kill_server();
#   my $id = victim();
#   my $line = strike('init-exec-started', 'broker', $id, sub {
#       ask($_[0], POST => "/sessions/$id/exec", json => { cmd => '...' });
#   });
#   my $res = answer($line);
#   is(lines('tag'), 1, 'it ran once');
#   others_live_on();
#
# Each case has a connection whose worker is known, so that a worker can be
# killed which serves it and nobody else.  The bystander is a session that
# nothing is done to: it has a file, a command whose output is read all the
# time by another worker, and, where that is asked for, a variable of a
# context.  What commands append to /mnt/shared lies on the host, and tells
# what was run when its session is no more.

use strict;
use warnings;

use Exporter qw(import);
use File::Temp qw(tempdir);
use IO::Socket::INET;
use JSON::PP ();
use POSIX ();
use Test::More;
use Time::HiRes qw(time);

use SandboxTest ();
use SandboxTest::Connect ();
use SandboxTest::Fault;
use SandboxTest::More;
use SandboxTest::Stream;

our @EXPORT = qw(kill_server victim bystander others_live_on dial ask answer
                 events strike recovered lines init_of egress_pid gone_with
                 ended_of cut_off kill_finish
                 forget_bystander $LONG);

# Seconds, and a little more, after which a broker counts as one that stays.

use constant STEADY => 5.2;

our $LONG = $ENV{SANDBOX_TEST_LONG} ? 1 : 0;

# Who owns what sessions append to; nobody of this machine.

my $OWNER = 54_321;

my ($T, $SHARE, $MOUNTED, %BY);
my $keepers = 0;
my $JSON = JSON::PP->new->utf8->canonical->allow_nonref;


# As server(), with a directory that all sessions share and the name of the
# worker in each answer.

sub kill_server {
    my (%o) = @_;

    $SHARE = tempdir('sbxshareXXXXXX', DIR => '/tmp', CLEANUP => 1);
    chmod 0755, $SHARE;
    mkdir "$SHARE/rw" or die "$SHARE: $!";
    mount_share() if `stat -f -c %T '$SHARE'` eq "tmpfs\n";
    chown $OWNER, $OWNER, "$SHARE/rw" or die "$SHARE: $!";

    my $http = "    sandbox_bind shared $SHARE/rw rw;\n" . ($o{http} // '');

    my $make = delete $o{server} // \&server;

    $T = $make->(%o, http => $http, reuseport => 1, worker_header => 1);
    $T->allow(qr/worker process \d+ exited on signal 9/);

    return $T;
}


# A tmpfs takes no idmapped mount before Linux 6.3.

sub mount_share {
    system("truncate -s 16M '$SHARE/img' && mkfs.ext4 -q '$SHARE/img'"
           . " && mount -o loop '$SHARE/img' '$SHARE/rw'") == 0
        or die "$SHARE: no file system: $?\n";
    $MOUNTED = $$;

    return;
}

END {
    local $?;
    system 'umount', '-l', "$SHARE/rw" if $MOUNTED && $MOUNTED == $$;
}


sub victim {
    my (%fields) = @_;

    my $manifest = { filesystem => { binds => ['shared'] },
                     %{ delete $fields{manifest} || {} } };

    return create_ok({ timeout_s => 3600, manifest => $manifest, %fields });
}


# How often something was appended to a file that all sessions share.

sub lines {
    my ($tag) = @_;

    return (slurp("$SHARE/rw/$tag") // '') =~ tr/\n//;
}


# ---- processes -------------------------------------------------------------

# Both outlive the keeper whose children they were.  The egress that is ours
# is in this file's network, as SandboxTest::Net made it.

sub init_of {
    my ($id) = @_;

    my ($pid) = grep {
        (slurp("/proc/$_/cgroup") // '') =~ m{/\Q$id\E/init$}m
    } map { m{(\d+)$} } glob '/proc/[0-9]*';

    return $pid;
}


sub egress_pid {
    my ($pid) = grep {
        (slurp("/proc/$_/cmdline") // '') =~ /^sandbox-egress/
        && (readlink("/proc/$_/ns/net") // '') eq readlink '/proc/self/ns/net'
    } map { m{(\d+)$} } glob '/proc/[0-9]*';

    return $pid;
}


# Who comes to a point: its name begins with the program's.

sub comers {
    my ($point, $id, $line) = @_;

    return $point =~ /^worker-/ ? $line->{worker}
           : $point =~ /^broker-/ ? $T->broker
           : $point =~ /^egress-/ ? egress_pid()
           : init_of($id);
}


sub whose {
    my ($victim, $id, $line, $held) = @_;

    return ref $victim ? $victim->($id)
           : $victim eq 'held' ? $held
           : $victim eq 'worker' ? $line->{worker}
           : $victim eq 'broker' ? $T->broker
           : $victim eq 'keeper' ? $T->keeper
           : $victim eq 'egress' ? egress_pid()
           : $victim eq 'init' ? init_of($id)
           : $victim eq 'both' ? ($T->broker, $T->keeper)
           : die "no victim $victim\n";
}


# ---- one case --------------------------------------------------------------

# What served the last file call ends after the call was answered.

sub at_rest {
    my ($id) = @_;

    my $init = init_of($id);

    until_true {
        !grep { (slurp("/proc/$_/cmdline") // '') =~ /^sandbox-init/ }
              SandboxTest::children($init);
    } 10;

    return;
}


# The point is armed, the call is begun, and when somebody stands at the point
# the victim is killed; whoever stands there and lives goes on.  The call's
# connection, or undef where the point was not reached.
# in: processes to arm; below: whose children come to it.

sub strike {
    my ($point, $victim, $id, $begin, %o) = @_;

    local $Test::Builder::Level = $Test::Builder::Level + 1;

    my $name = $o{name} // $point;
    steady() if $victim eq 'keeper';

    my $line = $o{line} // dial();

    at_rest($id) if $id;

    my @comers = $o{in} ? @{ $o{in} } : comers($point, $id, $line);

    arm(\@comers, $point, skip => $o{skip} // 0);
    $begin->($line);

    my $held = held([ @comers, @{ $o{below} || [] } ], $o{seconds} // 15);

    if (!$held) {
        disarm(grep { SandboxTest::alive($_) } @comers);
        fail("$name: nobody came to the point");
        return undef;
    }

    my @pids = grep { $_ } whose($victim, $id, $line, $held);
    die "no $victim\n" if !@pids;

    # whoever follows a victim is not to have the point too

    disarm(grep { $_ != $held && SandboxTest::alive($_) } @comers);

    # of several none is to see another die

    kill STOP => @pids if @pids > 1;

    my $dead = kill('KILL', @pids) == @pids
               && SandboxTest::gone(\@pids, 10);

    disarm(grep { SandboxTest::alive($_) } @comers);
    release($held) if SandboxTest::alive($held);

    ok($dead, "$name: it is dead") or diag("@pids") && return undef;

    return $line;
}


# A broker gives up when keepers die one after the other in its first seconds:
# one that is old enough now and then begins that count anew.

sub steady {
    return if ++$keepers % 4 != 0;

    my $broker = $T->broker;
    my $ticks = POSIX::sysconf(POSIX::_SC_CLK_TCK());

    until_true {
        my ($up) = split ' ', slurp('/proc/uptime');

        return $up - SandboxTest::start_time($broker) / $ticks > STEADY;
    } 20;

    return;
}


# The processes that there have to be are there, and the API answers.

sub recovered {
    my (%o) = @_;

    return until_true {
        my ($keeper, $broker) = ($T->keeper, $T->broker);

        return SandboxTest::alive($keeper) && SandboxTest::alive($broker)
               && $T->workers == 2 && call('GET', '/health')->{status} == 200
               && $keeper == $T->keeper && $broker == $T->broker
               && (!$o{egress} || egress_pid());
    } 20;
}


# ---- connections -----------------------------------------------------------

# A connection, and the worker that has it: not the bystander's.

sub dial {
    my ($not) = @_;

    $not //= $BY{worker} // 0;

    for (1 .. 200) {
        my $s = IO::Socket::INET->new(PeerAddr => '127.0.0.1',
                                      PeerPort => $T->port, Timeout => 10)
            or next;

        binmode $s;
        $T->note_processes;

        my $line = ask({ s => $s }, GET => '/health',
                       headers => { Connection => undef });
        my $res = SandboxTest::More::read_response($s);
        my $worker = $res->{headers}{'x-worker'} // 0;

        return { s => $s, worker => $worker }
            if $res->{status} == 200 && $worker != $not;

        select undef, undef, undef, 0.05 if $res->{status} != 200;
    }

    die "no worker serves\n";
}


sub ask {
    my ($line, $method, $path, %o) = @_;

    my %h = (Host => 'localhost', Connection => 'close',
             %{ $o{headers} || {} });
    my $body = $o{body};

    if ($o{json}) {
        $body = $JSON->encode($o{json});
        $h{'Content-Type'} //= 'application/json';
    }

    $h{'Content-Length'} //= $o{length} // length $body if defined $body;

    my $head = "$method " . ($o{base} // '/v1') . "$path HTTP/1.1\r\n";
    $head .= join '', map { "$_: $h{$_}\r\n" }
                      grep { defined $h{$_} } sort keys %h;
    my $bytes = "$head\r\n" . ($body // '');

    # a long body is taken as fast as the other side can, which may be held

    if (length $bytes < 32_768) {
        SandboxTest::More::send_all($line->{s}, $bytes);

    } else {
        $line->{sender} = async {
            return SandboxTest::More::send_all($line->{s}, $bytes);
        };
    }

    return $line;
}


sub answer {
    my ($line, %o) = @_;

    my $res = SandboxTest::More::read_response($line->{s},
                                               timeout => within(60), %o);

    close $line->{s};
    $line->{sender}->get if $line->{sender};

    return $res;
}


# The answer as a stream of events, or of messages of Connect.

sub events {
    my ($line, %o) = @_;

    my $f = SandboxTest::Connect::take($line->{s});

    return $o{connect} ? $f : bless($f, 'SandboxTest::Stream');
}


# A connection that ends without a whole answer.

sub cut_off {
    my ($res) = @_;

    return ($res->{status} == 0 && ($res->{error} // '') eq 'closed')
           || ($res->{error} // '') =~ /^cut|bad JSON/;
}


# ---- sessions that end -----------------------------------------------------

# Nothing of a session whose init was killed is left, and it is told how it
# ended.

sub gone_with {
    my ($id, $name) = @_;

    local $Test::Builder::Level = $Test::Builder::Level + 1;

    my %left;
    my $ended = until_true {
        $left{told} = ended_of($id) ne 'node_restart';
        $left{directory} = -e $T->prefix . "/sessions/$id";
        $left{processes} = grep {
            (slurp("$_/cgroup") // '') =~ m{/\Q$id\E(?:/|$)}m
        } glob '/proc/[0-9]*';

        return !grep { $_ } values %left;
    } 20;

    return ok($ended, $name)
           || diag(join ' ', map { "$_: $left{$_}" } sort keys %left);
}


sub ended_of {
    my ($id) = @_;

    my $res = call('GET', "/sessions/$id");

    return $res->{status} == 404 ? $res->{json}{ended} // 'unknown'
                                 : "status $res->{status}";
}


# ---- the bystander ---------------------------------------------------------

sub bystander {
    my (%o) = @_;

    my $id = create_ok({ timeout_s => 3600 });

    %BY = (id => $id, code => $o{code}, next => 0);
    put($id, 'mark', $id);
    SandboxTest::More::exec_call($id, 'true');

    if ($o{code}) {
        my $res = call('POST', "/sessions/$id/code",
                       json => { code => "mark = '$id'" });
        $res->{status} == 200 or die "no code: $res->{body}\n";
    }

    $BY{line} = dial();
    $BY{worker} = $BY{line}{worker};
    ask($BY{line}, POST => "/sessions/$id/exec",
        headers => { Accept => 'application/x-ndjson' },
        json => { cmd => [ '/bin/bash', '-c', 'n=0; while :; do echo '
                           . '$((n++)) $EPOCHREALTIME; sleep 0.05; done' ],
                  timeout_s => undef });
    $BY{stream} = events($BY{line});
    $BY{stream}{status} == 200 or die "no bystander\n";

    return $id;
}


# The command's output up to now: each line once, in its order.

sub stream_goes_on {
    my $now = time;

    for ( ;; ) {
        my $text = $BY{stream}->line(20) // return 'its output has ended';
        my ($n, $at) = split ' ', $text;

        return "line $BY{next} of its output is $n" if $n != $BY{next}++;
        return '' if $at > $now;
    }
}


sub others_live_on {
    my ($name) = @_;

    local $Test::Builder::Level = $Test::Builder::Level + 1;

    my @wrong = grep { $_ } stream_goes_on();
    my $id = $BY{id};
    my $file = get($id, 'mark');

    push @wrong, 'its file: ' . $file->{body} if $file->{body} ne $id;

    if ($BY{code}) {
        my $res = call('POST', "/sessions/$id/code",
                       json => { code => 'mark' });
        my $text = $res->{json}{text} // $res->{body};
        push @wrong, "its variable: $text" if $text ne "'$id'";
    }

    return ok(!@wrong, $name // 'another session goes on')
           || diag(join "\n", @wrong);
}


# Everything has ended, and the bystander with it: nothing of it is asked any
# more.

sub forget_bystander {
    $BY{stream}->close if $BY{stream};
    %BY = ();

    return;
}


# The bystander goes, and with it what keeps a worker from ending.

sub kill_finish {
    local $Test::Builder::Level = $Test::Builder::Level + 1;

    if (my $id = $BY{id}) {
        $BY{stream}->close;
        is(destroy($id)->{status}, 204, 'the other session can be ended');
        %BY = ();
    }

    return $T->finish;
}


1;
