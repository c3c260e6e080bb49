#!/usr/bin/perl

# Clients that are slow, that close one half of their connection or all of it,
# that reset it, or that fall silent, in each phase of what they can ask for:
# the server forgets them, what they asked for ends as it should, and others do
# not notice.
#
# With SANDBOX_TEST_LONG=1 each phase sees each end, else two of the three, and
# who is silent for less than the server allows is so for 100 s: else the clock
# of the process that serves him in the session is made to ring.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../lib";

use IO::Socket::INET;
use Socket qw(IPPROTO_TCP TCP_NODELAY SOL_SOCKET SO_LINGER SO_RCVBUF
              SHUT_WR MSG_PEEK MSG_DONTWAIT);
use Test::More;
use SandboxTest::Connect;
use SandboxTest::More;
use SandboxTest::Stream;

my $MB = 1 << 20;

# Below /short/ nobody is waited for for longer than a second, on a machine that
# is not slow.

my $patience = within(1);
my $t = server(workers => 1, extra => <<"CONF");
        location /e2b/ { sandbox_api e2b; }
        location /short/ {
            sandbox_api v1;
            client_body_timeout ${patience}s;
            send_timeout ${patience}s;
        }
        location /patient/ {
            sandbox_api v1;
            client_body_timeout 1h;
            send_timeout 1h;
        }
CONF

my ($worker) = workers();
my $s = create_ok({ timeout_s => 3600, manifest => {
    capabilities => [qw(shell files ports)],
    resources => { exec_timeout_s => 3600 } } });
my $b = create_ok({ timeout_s => 3600 });

put($s, 'large', 'z' x (16 * $MB));
put($s, 'ports.py', slurp("$FindBin::Bin/../lib/inside/port-server.py"));
background($s, [qw(python3 ports.py 8080)]);
ok(until_true(sub {
    call('GET', "/sessions/$s/ports/8080/")->{status} == 200
}, 30), 'a program that listens');


# ---- where a client is -----------------------------------------------------

# Whether the worker has read all that was sent; it may have closed since, if
# the client has been silent for too long, and would have reset otherwise.

sub is_taken {
    my ($c) = @_;

    my $mine = sprintf ':%04X', $c->sockport;
    my $port = sprintf ':%04X', $t->port;

    return until_true(sub {
        return 1 if (slurp('/proc/net/tcp') // '')
            =~ /^\s*\d+:\s\S+$port\s\S+$mine\s01\s\S+:00000000\s/m;

        my $next = 'more';

        return defined recv($c, $next, 1, MSG_PEEK | MSG_DONTWAIT)
               && $next eq '';
    }, 60);
}

sub plain {
    my $c = IO::Socket::INET->new(PeerAddr => '127.0.0.1',
                                  PeerPort => $t->port)
            // die "cannot connect: $!";

    setsockopt $c, IPPROTO_TCP, TCP_NODELAY, 1;

    return $c;
}

# How a client comes to each phase: its socket, once that is proven.  What
# runs for it has the mark in its command line.

my $mark = "5$$.25";

sub begun {
    my ($c, $pattern) = @_;

    my ($raw, $deadline) = ('', time + within(20));

    while ($raw !~ $pattern) {
        my $more = SandboxTest::More::read_some($c, $deadline, 1000);
        return undef if !defined $more || $more eq '';
        $raw .= $more;
    }

    return $c;
}

sub send_some {
    my ($c, $bytes) = @_;

    SandboxTest::More::send_all($c, $bytes);

    return is_taken($c) ? $c : undef;
}

sub runs {
    my ($c, $n) = @_;

    return until_true(sub { host_pids("sleep $mark") == $n }, 20);
}

my %body = (cmd => "echo on; exec sleep $mark", timeout_s => 3600);
my %phases = (
    'the head' => sub {
        my $c = plain();
        return send_some($c, "PUT $_[0]/sessions/$s/files/half HTTP/1.1\r\n"
                             . "Host: localhost\r\nX-Half: ");
    },
    'a JSON body' => sub {
        my $c = open_request(POST => "/sessions/$s/exec", base => $_[0],
            headers => { 'Content-Type' => 'application/json',
                         'Content-Length' => 100 },
            body => '{"cmd":"true",');
        return is_taken($c) ? $c : undef;
    },
    'an upload' => sub {
        my $c = open_request(PUT => "/sessions/$s/files/half",
            base => $_[0], headers => { 'Content-Length' => 2 * $MB },
            body => 'h' x $MB);
        return (until_true(sub {
            run($s, 'find . -name ".*" -type f -size +900k')->{stdout} ne ''
        }, 20)) && is_taken($c) ? $c : undef;
    },
    'a download' => sub {
        my $c = open_request(GET => "/sessions/$s/files/large",
                             base => $_[0], rcvbuf => 4096);
        return begun($c, qr/z{100}/);
    },
    'a command' => sub {
        my $c = open_request(POST => "/sessions/$s/exec", base => $_[0],
                             json => \%body);
        return runs($c, 1) ? $c : undef;
    },
    'NDJSON' => sub {
        my $c = open_request(POST => "/sessions/$s/exec", base => $_[0],
            json => \%body, headers => { Accept => 'application/x-ndjson' });
        return begun($c, qr/"on\\n"/) && runs($c, 1) ? $c : undef;
    },
    'SSE' => sub {
        my $c = open_request(POST => "/sessions/$s/exec", base => $_[0],
            json => \%body, headers => { Accept => 'text/event-stream' });
        return begun($c, qr/"on\\n"/) && runs($c, 1) ? $c : undef;
    },
    'a terminal' => sub {
        my $w = ws_open("/sessions/$s/terminal");
        $w->type("unset HISTFILE; echo o\"\"n; exec sleep $mark\n");
        return $w->expect(qr/\ron\r\n/) && runs($w->{s}, 1) ? $w->{s} : undef;
    },
    'a stream of Connect' => sub {
        my $f = start($s, [ 'sleep', $mark ]);
        return $f->{pid} && runs($f->{s}, 1) ? $f->{s} : undef;
    },
    'a request to a port' => sub {
        my $c = open_request(POST => "/sessions/$s/ports/8080/sink",
            base => $_[0], headers => { 'Content-Length' => 2 * $MB },
            body => 'p' x $MB);
        return is_taken($c) ? $c : undef;
    },
    'an answer of a port' => sub {
        my $c = open_request(GET => "/sessions/$s/ports/8080/big?n=100000000",
                             base => $_[0], rcvbuf => 4096);
        return begun($c, qr/\r\n\r\n.{100}/s);
    },
    'a WebSocket of a port' => sub {
        my $w = ws_open("/sessions/$s/ports/8080/ws");
        return $w->{status} == 101 ? $w->{s} : undef;
    },
);

my %ends = (
    'closes' => sub { close $_[0] },
    'resets' => sub {
        setsockopt $_[0], SOL_SOCKET, SO_LINGER, pack 'ii', 1, 0;
        close $_[0];
    },
    'closes its half' => sub { shutdown $_[0], SHUT_WR },
);


# ---- what is left of it ----------------------------------------------------

# What there is of a server: descriptors of the worker, the broker and both
# inits, and the processes of both sessions: one serves each file call.

sub there_is {
    my @pids = session_pids();
    my @inits = grep {
        (slurp("/proc/$_/status") // '') =~ /^NSpid:\s+\d+\s+1$/m
    } @pids;

    return join ' ', scalar @pids,
                     map { fds($_) } $worker, $t->broker, sort @inits;
}

sub is_no_more {
    my ($now, $before) = map { [ split / / ] } @_;

    return @$now == @$before && !grep { $now->[$_] > $before->[$_] }
                                      0 .. $#$now;
}


# At rest: what a call of before has left to close or to reap is gone, which
# takes as long as it takes, so it is looked for until there is no less for a
# while.

my $before = there_is();
my $same = 0;

unlike($before, qr/-/, 'descriptors of each can be counted');
until_true(sub {
    my $now = there_is();

    $same = $now eq $before ? $same + 1 : 0;
    $before = $now;

    return $same == 10;
}, 20);


sub is_forgotten {
    my ($who, %o) = @_;

    local $Test::Builder::Level = $Test::Builder::Level + 1;

    if ($o{goes_on}) {
        ok(until_true(sub { fds($worker) <= (split / /, $before)[1] }, 20),
           "$who: the worker forgets it");
        is(scalar host_pids("sleep $mark"), 1, 'what it began goes on');
        run($s, [ 'pkill', 'sleep' ]);
    }

    my $now;

    ok(until_true(sub { is_no_more($now = there_is(), $before) }, 20),
       "$who: the server forgets it")
        or diag("$before, now $now");
    ok(until_true(sub { !host_pids("sleep $mark") }, 20),
       'nothing runs for it');

    # who serves an upload removes its file, at the end of its call

    my $files;

    until_true(sub {
        $files = run($s, 'ls -A')->{stdout};
        return $files eq "large\nports.py\n";
    }, 20);
    is($files, "large\nports.py\n", 'nor is a file left');

    return;
}


my $turn = 0;

for my $phase (sort grep { !/flood/ } keys %phases) {
    subtest $phase => sub {
        my @ends = sort keys %ends;

        splice @ends, $turn++ % 3, 1 if !$ENV{SANDBOX_TEST_LONG};

        for my $end (@ends) {
            my $c = $phases{$phase}->('/v1');

            ok($c, "a client is there that $end") or next;
            is(run($b, 'echo here')->{stdout}, "here\n", 'others are served');
            $ends{$end}->($c);
            is_forgotten("one that $end",
                         goes_on => $phase eq 'a stream of Connect');
        }
    };
}

# Who neither closes nor goes on, nor takes what it asked for: its time ends,
# and nginx tells it nothing.

my @silent = ('a JSON body', 'an upload', 'a download', 'a request to a port',
              'an answer of a port', 'a flood of events');

$phases{'a flood of events'} = sub {
    my $c = open_request(POST => "/sessions/$s/exec", base => $_[0],
        rcvbuf => 4096,
        json => { %body, cmd => "yes \$(sleep 0; echo $mark)" },
        headers => { Accept => 'application/x-ndjson' });
    return begun($c, qr/$mark/);
};

# A body that stops is so in the access log.

sub late {
    return scalar grep { /"status":"408"/ && m{"/short/} }
                  split /\n/, slurp($t->prefix . '/logs/access.log') // '';
}

subtest 'who falls silent' => sub {
    for my $phase (@silent) {
        my $were = late();
        my $c = $phases{$phase}->('/short');

        ok($c, "a client in $phase") or next;
        is(run($b, 'echo here')->{stdout}, "here\n", 'others are served');
        is_forgotten($phase);

        if ($phase =~ /body|upload|request/) {
            is(sysread($c, my $said, 1), 0, 'it is told nothing');
            ok((until_true(sub { late() == $were + 1 }, 10)),
               'the access log tells of it');
        }

        close $c;
    }
};


# Who is silent for less than the server allows goes on where he was, though
# the process in the session that waits for him has a clock for its own steps,
# and init one for that process, of 90 s.

sub file_processes {
    return grep { (slurp("/proc/$_/cgroup") // '') =~ m{/\Q$s\E/work/files$}m }
           session_pids();
}

# In the middle of its wait: poll(), for no other reason than its client.

sub waits {
    my ($pid) = @_;
    my ($was, $same) = ('', 0);

    return until_true(sub {
        my $now = join ' ', slurp("/proc/$pid/syscall") // '',
                  (slurp("/proc/$pid/status") // '')
                      =~ /^voluntary_ctxt_switches:\s+(\d+)/m;

        $same = $now eq $was ? $same + 1 : 0;
        $was = $now;

        return $same >= 6 && $now =~ /^(?:7|73|271) /;
    }, 20);
}

sub rung {
    my ($pid) = @_;

    $t->note_processes;

    return $t->hit(ALRM => $pid) == 1 && until_true(sub {
        my $now = slurp("/proc/$pid/status") // '';

        return $now =~ /^State:\s+S/m && $now =~ /^SigPnd:\s+0+\n/m
               && $now =~ /^ShdPnd:\s+0+\n/m;
    }, 20);
}

sub tar_of {
    my ($name) = @_;

    return call('GET', "/sessions/$s/archive/$name",
                timeout => within(60))->{body};
}

my ($large, $tar) = ('h' x (2 * $MB), tar_of('large'));
my %patient = (
    'an upload' => sub {
        my ($c) = @_;

        SandboxTest::More::send_all($c, substr $large, $MB);
        is(read_response($c, timeout => within(60))->{status}, 201, 'is made');
        ok(get($s, 'half')->{body} eq $large, 'whole');
        del($s, 'half');
    },
    'an archive that is unpacked' => sub {
        my ($c) = @_;

        SandboxTest::More::send_all($c, substr $tar, $MB);
        is(read_response($c, timeout => within(60))->{status}, 200,
           'is unpacked');
        ok(get($s, 'unpacked/large')->{body} eq 'z' x (16 * $MB), 'whole');
        run($s, 'rm -r unpacked');
    },
    'an archive that is downloaded' => sub {
        my ($c) = @_;
        my ($raw) = read_rest($c, timeout => within(60));

        ok($raw =~ s/\r\n0\r\n\r\n\z//, 'is read to its end');
        like($raw, qr/\0{1024}\z/, 'which is an archive\'s');
    },
);

$phases{'an archive that is unpacked'} = sub {
    my $c = open_request(PUT => "/sessions/$s/archive/unpacked",
        base => $_[0], headers => { 'Content-Length' => length $tar },
        body => substr $tar, 0, $MB);
    return is_taken($c) ? $c : undef;
};

# As much is sent as both ends' buffers hold.

$phases{'an archive that is downloaded'} = sub {
    my $c = open_request(GET => "/sessions/$s/archive/large",
                         base => $_[0], rcvbuf => 65536);
    return begun($c, qr/z{100}/);
};

subtest 'who is silent, and goes on in time' => sub {
    my %c;

    for my $phase (sort keys %patient) {
        my %others = map { $_ => 1 } file_processes();

        $c{$phase} = $phases{$phase}->('/patient');
        ok($c{$phase}, "a client in $phase") or next;

        next if $ENV{SANDBOX_TEST_LONG};

        my @new = grep { !$others{$_} } file_processes();

        is(scalar @new, 1, 'one process serves it');
        ok(waits($new[0]), 'and waits');
        ok(rung($new[0]), 'its clock rings');
    }

    sleep 100 if $ENV{SANDBOX_TEST_LONG};

    for my $phase (sort keys %c) {
        subtest $phase => sub { $patient{$phase}->($c{$phase}) };
        close $c{$phase};
    }

    is_forgotten('they');
};


# A byte at a time, both ways.

sub slowly {
    my ($head, $body) = @_;

    my $c = plain();
    my $text = "$head HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
               . 'Content-Length: ' . length($body) . "\r\n"
               . "Content-Type: application/json\r\n\r\n$body";
    my $answer = '';

    setsockopt $c, SOL_SOCKET, SO_RCVBUF, 4096;

    # of the last one the answer tells

    my $last = chop $text;

    for my $byte (split //, $text) {
        send_some($c, $byte) or return '(it is not read)';
    }

    SandboxTest::More::send_all($c, $last);

    $answer .= $_ while sysread($c, $_, 1);

    return $answer;
}

subtest 'who sends and reads byte by byte' => sub {
    my $r = slowly("POST /v1/sessions/$s/exec",
                   '{"cmd":"head -c 20000 /dev/zero | tr \"\\\\0\" x"}');
    like($r, qr/"stdout":"x{20000}"/, 'has the answer to a command');

    $r = slowly("PUT /v1/sessions/$s/files/slow", 'bytes');
    like($r, qr{^HTTP/1.1 201 }, 'has a file made');
    is(get($s, 'slow')->{body}, 'bytes', 'as it was');

    $r = slowly("POST /v1/sessions/$s/ports/8080/sink", 'bytes');
    like($r, qr/\r\n5 /, 'and has a program answer');

    del($s, 'slow');
    is_forgotten('it');
};

is(run($b, 'echo here')->{stdout}, "here\n", 'the other session lives');
destroy($_) for $s, $b;
$t->finish;
done_testing();
