#!/usr/bin/perl

# A worker serves many: no connection has it to itself, however fast its two
# ends are.  What the worker does in one turn is read from its debug log.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";

use JSON::PP ();
use Test::More;
use SandboxTest::More;
use SandboxTest::Stream;

BEGIN {
    my $nginx = $SandboxTest::NGINX // '';

    plan(skip_all => 'nginx is built without --with-debug')
        if $nginx && `$nginx -V 2>&1` !~ /--with-debug/;
}

my $t = SandboxTest->new(workers => 1, edit => sub {
    s/^(error_log .*;)/$1\nerror_log logs\/debug.log debug_event;/m;
});
$SandboxTest::More::T = $t;
($SandboxTest::More::PORT, $SandboxTest::More::PREFIX) = ($t->port,
                                                          $t->prefix);
$t->start;

my $LOG = $t->prefix . '/logs/debug.log';
my $MOST = 40;
my $s = create_ok({ manifest => { capabilities => [qw(shell files ports)] } });

put($s, 'ports.py',
    slurp("$FindBin::Bin/lib/inside/port-server.py"));
is(exec_call($s, [qw(python3 ports.py 8080)],
             background => JSON::PP::true)->{status}, 202, 'a program');
ok(until_true { call('GET', "/sessions/$s/ports/8080/")->{status} == 200 },
   'that listens');


# The most that was read from one connection in a turn, and all that was.

sub turns {
    my ($what) = @_;

    my ($most, $all, %in) = (0, 0);
    my $mark = -s $LOG;

    $what->();

    open my $f, '<', $LOG or die "$LOG: $!";
    seek $f, $mark, 0;

    while (<$f>) {
        if (/: worker cycle$/) {
            %in = ();

        } elsif (/ recv: fd:(\d+) [1-9]/) {
            $all++;
            $most = $in{$1} if ++$in{$1} > $most;
        }
    }

    return ($most, $all);
}

sub is_fair {
    my ($name, $least, $what, $may) = @_;

    my ($most, $all) = turns($what);

    cmp_ok($all, '>', $least, "$name: enough was read to tell");
    cmp_ok($most, '<=', $may // $MOST, 'not all of it in a turn');
}


subtest 'a terminal whose client floods it' => sub {
    my $w = ws_open("/sessions/$s/terminal");
    my $frame = SandboxTest::Stream::Socket::frame(10, '');

    is($w->{status}, 101, 'a terminal');

    is_fair('pongs', 200, sub {
        SandboxTest::More::send_all($w->{s}, $frame x 500_000);
        $w->send(8, pack 'n', 1000);
        is_deeply([ $w->closed ], [ 1000, '' ], 'all of them are read');
    }, 300);            # it is alone in the line, whose time is bounded
};


subtest 'a program that floods its client' => sub {
    my $n = 500_000;

    is_fair('chunks of one byte', 100, sub {
        my $r = call('GET', "/sessions/$s/ports/8080/ones?n=$n",
                     timeout => 60);
        is(length $r->{body}, $n, 'each arrives');
        is($r->{body} =~ tr/z//, $n, 'as it was');
    });

    is_fair('an upgraded connection', 100, sub {
        my $w = ws_open("/sessions/$s/ports/8080/pour?n=8000000",
                        Upgrade => 'pour');
        is($w->{status}, 101, 'upgraded');
        my ($rest) = SandboxTest::More::read_rest($w->{s}, timeout => 60);
        is(length($w->{raw}) + length $rest, 8_000_000, 'all of it arrives');
    });
};


subtest 'a client that floods a program' => sub {
    is_fair('a body', 100, sub {
        my $r = call('POST', "/sessions/$s/ports/8080/sink",
                     body => 'x' x 8_000_000, timeout => 60);
        like($r->{body}, qr/^8000000 /, 'all of it arrives');
    }, 200);            # it is alone in the line, too
};


destroy($s);
$t->finish;
done_testing();
