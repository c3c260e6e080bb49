#!/usr/bin/perl

# A worker that has no connection left: nginx refuses who comes, or the API
# does who would need one more; what runs goes on, and every connection comes
# back.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../lib";

use IO::Socket::INET;
use Test::More;
use SandboxTest;
use SandboxTest::Connect;
use SandboxTest::More;
use SandboxTest::Stream;

my $MOST = 24;
my $t = SandboxTest->new(workers => 1, edit => sub {
    s/worker_connections \d+;/worker_connections $MOST;/;
    s{^(    server \{\n)}{$1        location /e2b/ { sandbox_api e2b; }\n}m;
});
$SandboxTest::More::T = $t;
($SandboxTest::More::PORT, $SandboxTest::More::PREFIX) = ($t->port,
                                                          $t->prefix);
$t->start;
$t->allow(qr/ \d+ worker_connections are not enough/);

my ($worker) = workers();
my $s = create_ok({ manifest =>
                    { capabilities => [qw(shell files code ports)] } });

put($s, 'ports.py', slurp("$FindBin::Bin/../lib/inside/port-server.py"));
background($s, [qw(python3 ports.py 8080)]);
ok(until_true(sub {
    call('GET', "/sessions/$s/ports/8080/")->{status} == 200
}, 30), 'a program that listens');

my $fds = fds($worker);


# A connection whose head has begun, which nginx closes for nobody; undef
# where it was not taken.

sub occupy {
    my $c = IO::Socket::INET->new(PeerAddr => '127.0.0.1',
                                  PeerPort => $t->port) // die "connect: $!";
    my $before = fds($worker);
    my $gone;

    SandboxTest::More::send_all($c, "GET / HTTP/1.1\r\nX-");

    until_true(sub {
        $gone = IO::Select->new($c)->can_read(0);
        $gone || is_taken($c);
    }, 20);

    return $gone ? undef : $c;
}

sub is_taken {
    my ($c) = @_;

    my $mine = sprintf ':%04X', $c->sockport;
    my $port = sprintf ':%04X', $t->port;

    return (slurp('/proc/net/tcp') // '')
           =~ /^\s*\d+:\s\S+$port\s\S+$mine\s01\s\S+:00000000\s/m;
}

# All of them but so many.

my @taken;

sub fill {
    my ($free) = @_;

    while (my $c = occupy()) {
        push @taken, $c;
        die "there is no limit\n" if @taken > $MOST;
    }

    let_go($free);

    return;
}

sub let_go {
    my ($n) = @_;

    my $left = fds($worker) - $n;

    close pop @taken for 1 .. $n;
    until_true(sub { fds($worker) <= $left }, 20)
        or die "a connection is not closed\n";

    return;
}


subtest 'connections that are idle give way' => sub {
    my @idle;

    for (1 .. 2 * $MOST) {
        my $c = open_request(GET => '/sessions/none',
                             headers => { Connection => 'keep-alive' });
        push @idle, $c;
        my $head = read_head($c);
        is($head->{status}, 404, 'is served') if $head->{status} != 404;
    }

    cmp_ok(fds($worker), '<=', $fds + $MOST, 'no more than there may be');
    close $_ for @idle;
    ok(until_true(sub { fds($worker) <= $fds }, 20), 'all are closed');
};


my $f = follow($s, background($s, 'while read x; do echo "$x"; done',
                              stdin_open => JSON::PP::true));
my $w = ws_open("/sessions/$s/terminal");
$w->type("echo be\"\"gun\n");
ok($w->expect(qr/begun\r\n/), 'a terminal');

my $most;

subtest 'none is left' => sub {
    fill(0);
    $most = @taken;
    cmp_ok($most, '>', 5, "$most are taken");
    is(occupy(), undef, 'who comes is closed at once');
    cmp_ok($t->log_has(qr/worker_connections are not enough/), '>', 1,
           'and the log says why');

    $w->type("echo st\"\"ill\n");
    ok($w->expect(qr/still\r\n/), 'a terminal goes on');
};


# What is asked for has a connection, and needs another.

my %calls = (
    'a session' => sub { call('GET', "/sessions/$s") },
    'a create' => sub { create() },
    'a command' => sub { exec_call($s, 'echo x >> ran') },
    'code' => sub { call('POST', "/sessions/$s/code",
                         json => { code => '1' }) },
    'an upload' => sub { put($s, 'up', 'x') },
    'a download' => sub { get($s, 'ports.py') },
    'a port' => sub { call('GET', "/sessions/$s/ports/8080/") },
);

subtest 'one is left' => sub {
    let_go(1);

    for my $name (sort keys %calls) {
        my $r = $calls{$name}->();

        is_problem($r, 503, 'E5001', $name);
        is($r->{headers}{'retry-after'}, 1, 'which may be asked for again');
    }

    my $ws = ws_open("/sessions/$s/terminal");
    is("$ws->{status} " . ($ws->{json}{code} // ''), '503 E5001',
       'a terminal');

    my $r = rpc($s, 'process.Process/List');
    is("$r->{status} " . ($r->{json}{code} // ''), '503 unavailable',
       'a call of the E2B protocol');
    is($r->{headers}{'retry-after'}, 1, 'may be made again, too');
};


subtest 'two are left' => sub {
    let_go(1);
    is(run($s, 'ls')->{stdout}, "ports.py\n",
       'what was refused has not happened');

    my $r = call('GET', "/sessions/$s/ports/8080/");
    is_problem($r, 503, 'E5001', 'a port needs a third');

    let_go(1);
    is(call('GET', "/sessions/$s/ports/8080/")->{status}, 200, 'and has it');
};


subtest 'all come back' => sub {
    close $_ for splice @taken;
    $w->type("echo aft\"\"er\n");
    ok($w->expect(qr/after\r\n/), 'the terminal goes on');
    fill(0);
    is(scalar @taken, $most, 'as many as before');
};


subtest 'a reload, when none is left' => sub {
    ok($t->reload, 'is done');
    is(run($s, 'echo new')->{stdout}, "new\n", 'the new worker serves');
    $w->type("echo on\"\"ce\n");
    ok($w->expect(qr/once\r\n/), 'the old one goes on with what it has');
    close $_ for splice @taken;
    $w->send(8, '');
    close $w->{s};
    $f->close;
    ok(until_true(sub { !SandboxTest::alive($worker) }, 20),
       'and goes when that has ended');
};

destroy($s);
$t->finish;
done_testing();
