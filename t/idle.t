#!/usr/bin/perl

# idle_timeout_s: whatever is under way keeps a session, and nothing else.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";

use JSON::PP ();
use Test::More;
use Time::HiRes qw(sleep);
use SandboxTest::More;
use SandboxTest::Stream;

# Longer than any step here takes.

my $IDLE = within(5);

my $t = server(extra => '        sandbox_port_timeout 60s;');


# A session whose server of port 8080 is what an ended command has left: by
# itself that is no reason to live on.

sub served {
    my ($id) = (create_ok({ manifest => {
        capabilities => [qw(shell files ports)],
        idle_timeout_s => $IDLE } }));

    put($id, 'ports.py',
        slurp("$FindBin::Bin/lib/inside/port-server.py"));
    run($id, 'setsid python3 ports.py 8080 >/tmp/up 2>&1 & '
             . 'while ! grep -q ready /tmp/up; do sleep 0.02; done');

    return $id;
}

# Whether the list, which is no use of a session, has it.

sub there {
    my ($id) = @_;

    my $list = call('GET', '/sessions?limit=1000')->{json}{sessions};

    return scalar grep { $_->{session_id} eq $id } @$list;
}


my %USE = (
    'a WebSocket of a port' => sub {
        my ($id) = @_;
        my $w = ws_open("/sessions/$id/ports/8080/ws");
        is($w->{status}, 101, 'upgraded');
        return sub { close $w->{s} };
    },
    'an answer of a port' => sub {
        my ($id) = @_;
        my $c = open_request('GET', "/sessions/$id/ports/8080/events"
                                    . '?file=/home/user/never');
        is(read_head($c, timeout => 20)->{status}, 200, 'begun');
        return sub { close $c };
    },
    'a port that has not answered' => sub {
        my ($id) = @_;
        my $c = open_request('GET', "/sessions/$id/ports/8080/hang");
        return sub { close $c };
    },
    'a watch' => sub {
        my ($id) = @_;
        my $c = open_request('GET', "/sessions/$id/watch/");
        is(read_head($c, timeout => 20)->{status}, 200, 'begun');
        return sub { close $c };
    },
    'a terminal' => sub {
        my ($id) = @_;
        my $w = ws_open("/sessions/$id/terminal");
        is($w->{status}, 101, 'upgraded');
        return sub { close $w->{s} };
    },
    'a download' => sub {
        my ($id) = @_;
        run($id, 'head -c 30000000 /dev/zero > big');
        my $c = open_request('GET', "/sessions/$id/files/big",
                             rcvbuf => 65536);
        is(read_head($c)->{status}, 200, 'begun');
        return sub { close $c };
    },
    'a command in the background' => sub {
        my ($id) = @_;
        my $pid = background($id, 'while [ ! -e go ]; do sleep 0.05; done');
        return sub { put($id, 'go', '') };
    },
    'a stream of output' => sub {
        my ($id) = @_;
        my $f = follow($id, background($id, 'exec sleep 1000'));
        is($f->{status}, 200, 'begun');
        return sub {
            $f->close;
            call('POST', "/sessions/$id/cancel");
        };
    },
);

# All at once: each has a session, and so the waits are one.

my %open;

for my $name (sort keys %USE) {
    subtest $name => sub {
        my $id = served();
        my $end = $USE{$name}->($id);

        $open{$name} = [ $id, $end ];
        pass('is under way');
    };
}

sleep $IDLE * 1.5;

subtest 'what is under way is use' => sub {
    ok(there($open{$_}[0]), "$_ keeps its session") for sort keys %open;
};

subtest 'its end is not' => sub {
    $_->[1]->() for values %open;
    my $ended = until_true { !grep { there($_->[0]) } values %open }
                3 * $IDLE + 10;
    ok($ended, 'all end after that');
    is(call('GET', "/sessions/$open{$_}[0]")->{json}{ended}, 'idle', $_)
        for sort keys %open;
};

$t->finish;
done_testing();
