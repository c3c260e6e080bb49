#!/usr/bin/perl

# Hundreds of streams whose clients read a few bytes at a time, and of
# terminals whose clients type a byte at a time: what waits waits in the
# sessions, a worker holds a little of each, and all of it goes with its
# client.
#
# SANDBOX_TEST_LONG=1: five hundred of each kind where the short form has
# fewer.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../lib";

use JSON::PP ();
use Test::More;
use SandboxTest::Connect;
use SandboxTest::Flood;
use SandboxTest::More;
use SandboxTest::Stream;

BEGIN {
    my $why = SandboxTest::Flood::missing();
    plan(skip_all => $why) if $why;
}

my $LONG = $SandboxTest::Flood::LONG;
my $f = SandboxTest::Flood->new;
my @sessions = map {
    create_ok({ timeout_s => 3600,
                manifest => { resources => { processes => 512 } } })
} 1 .. ($LONG ? 4 : 2);


# Reads a few bytes from each, round after round, until the bystander's file
# has been asked for often enough; what each has had.

sub sip {
    my ($streams, $had, $rounds, $bytes) = @_;

    for (1 .. $rounds) {
        for my $n (0 .. $#$streams) {
            sysread $streams->[$n], $had->[$n], $bytes // 16,
                    length($had->[$n] //= '');
        }
    }

    return;
}

sub running {
    my ($id) = @_;

    return scalar grep { $_->{state} eq 'running' }
           @{ call(GET => "/sessions/$id/processes")->{json}{processes} };
}


subtest '500 who follow' => sub {
    my @s = (@sessions, map { create_ok() } @sessions + 1 .. 4);
    my @pids = map {
        background($_, "head -c 900000 /dev/zero | tr '\\0' W; "
                       . 'touch written; sleep 600')
    } @s;

    for my $id (@s) {
        until_true { head($id, 'written')->{status} == 200 } 20;
    }

    $f->under('500 who follow', sub {
        my @c = map {
            my $k = $_ % 4;

            open_request(GET => "/sessions/$s[$k]/processes/$pids[$k]/output",
                         rcvbuf => $_ == 1 ? undef : 4096, headers => {
                Accept => $_ % 8 < 4 ? $SandboxTest::Stream::SSE
                                     : $SandboxTest::Stream::NDJSON })
        } 0 .. 499;
        my @had;

        sip(\@c, \@had, 40);
        is(scalar(grep { /^HTTP\/1.1 200 / } @had), 500, 'each is answered');

        # one is in a hurry after all

        my $got = $had[1] =~ tr/W//;

        while ($got < 900_000) {
            my $more = SandboxTest::More::read_some($c[1],
                                                    time + within(30)) // '';
            last if $more eq '';
            $got += $more =~ tr/W//;
        }

        cmp_ok($got, '>=', 900_000, 'one has all of it once it reads');
        close $_ for @c;
    }, worker => 80, init => 64);

    destroy($_) for @s[@sessions .. 3];
};


subtest 'more than may follow' => sub {
    my $s = $sessions[0];
    my $pid = background($s, 'sleep 600');

    $f->under('more than may follow', sub {
        my @c = map {
            open_request(GET => "/sessions/$s/processes/$pid/output")
        } 1 .. 300;
        my %got;

        $got{$_->{status}}++ for map { read_head($_) } @c;
        is_deeply(\%got, { 200 => 128, 429 => 172 }, 'the others are told')
            or diag(explain(\%got));
        is_problem(call(GET => "/sessions/$s/processes/$pid/output"), 429,
                   'E2003', 'of what', qr/128 process streams/);
        is(call(POST => "/sessions/$s/processes/$pid/signal",
                json => { signal => 'SIGCONT' })->{status}, 204,
           'who has a signal for it has room');
        close $_ for @c;
        ok(until_true {
            my $c = open_request(GET =>
                                 "/sessions/$s/processes/$pid/output");
            read_head($c)->{status} == 200;
        }, 'who comes later has room');
    });
};


subtest 'commands that say yes' => sub {
    my $n = $LONG ? 500 : 64;

    $f->under('commands that say yes', sub {
        my (@c, @had);

        for my $k (0 .. $n - 1) {
            push @c, open_request(
                POST => "/sessions/$sessions[$k % @sessions]/exec",
                rcvbuf => 4096, json => { cmd => 'yes' },
                headers => { Accept => $SandboxTest::Stream::NDJSON });
        }

        until_true {
            sip(\@c, \@had, 1);
            !grep { length $_ < 400 } @had;
        } 60;

        sip(\@c, \@had, 20);
        is(scalar(grep { /^HTTP\/1.1 200 .*"stdout"/s } @had), $n,
           'each is answered') or diag($had[0]);
        ok(stands_still($sessions[0], 60), 'and then waits for its reader');
        close $_ for @c;

        my $left = until_true { !grep { running($_) > 5 } @sessions } 60;
        ok($left, 'none of them is left');
    }, worker => 200, init => 64);
};


# Each byte is six of the answer.

subtest 'commands that say nothing but zeros' => sub {
    my $n = 16;

    $f->under('zeros', sub {
        my @jobs = map {
            my $k = $_;
            async {
                my $c = open_request(
                    POST => "/sessions/$sessions[$k % @sessions]/exec",
                    json => { cmd => 'head -c 1000000 /dev/zero' },
                    headers => { Accept => $k % 2
                                     ? $SandboxTest::Stream::SSE
                                     : $SandboxTest::Stream::NDJSON });
                my $got = 0;

                while (sysread $c, my $more, 1 << 20) {
                    $got += length $more;
                }

                $got;
            }
        } 1 .. $n;

        is(scalar(grep { $_->get(within(120)) > 6_000_000 } @jobs), $n,
           'are answered, whole');
    }, worker => 32, init => 64);
};


subtest 'processes of E2B that say yes' => sub {
    my $n = $LONG ? 500 : 64;

    $f->under('e2b', sub {
        my (@c, @had);

        for my $k (0 .. $n - 1) {
            my $id = $sessions[$k % @sessions];

            push @c, open_request(POST => '/process.Process/Start',
                base => $SandboxTest::Connect::BASE, rcvbuf => 4096,
                body => envelope('{"process":{"cmd":"yes"}}'),
                headers => { 'Content-Type' => $SandboxTest::Connect::STREAM,
                             %{ rpc_headers($id) } });
        }

        until_true {
            sip(\@c, \@had, 1);
            !grep { length $_ < 400 } @had;
        } 60;

        is(scalar(grep { /^HTTP\/1.1 200 .*"start"/s } @had), $n,
           'each is answered');
        close $_ for @c;

        # a process of this protocol outlives its client

        for my $id (@sessions) {
            my $list = rpc($id, 'process.Process/List')->{json}{processes};

            rpc($id, 'process.Process/SendSignal',
                { process => { pid => $_->{pid} },
                  signal => 'SIGNAL_SIGKILL' })
                for grep { $_->{config}{cmd} eq 'yes' } @{ $list // [] };
        }

        my $left = until_true { !grep { running($_) > 5 } @sessions } 60;
        ok($left, 'none of them is left');
    }, worker => 200, init => 64);
};


subtest 'terminals' => sub {
    my $n = $LONG ? 240 : 100;
    my $lines = 10;

    $f->under('terminals', sub {
        my @w = map {
            my $id = $sessions[$_ % @sessions];
            ws_open("/sessions/$id/terminal")
        } 0 .. $n - 1;

        is(scalar(grep { $_->{status} == 101 } @w), $n, 'as many terminals');

        # every key has a frame of its own, and so has every echo

        my $typed = join '', map {
            SandboxTest::Stream::Socket::frame(2, $_)
        } split //, ('#' x 50 . "\r") x $lines . "echo o\$((41+1))k\r";

        SandboxTest::More::send_all($_->{s}, $typed) for @w;

        is(scalar(grep { $_->expect(qr/o42k/, 60) } @w), $n,
           'each is typed into');
        close $_->{s} for @w;

        my $left = until_true { !grep { running($_) > 5 } @sessions } 60;
        ok($left, 'and ends with its client');
    }, worker => 64, init => 64);
};


is(destroy($_)->{status}, 204, 'a session ends') for @sessions;
$f->over;
done_testing();
