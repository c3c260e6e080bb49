#!/usr/bin/perl

# What streams do when the broker, or their session, ends: an end that is
# told is one that was seen, and what was not seen is not told.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";

use Test::More;
use SandboxTest::More;
use SandboxTest::Stream;

my $t = server();
my $mark = "4$$.75";

sub exec_stream {
    my ($s, $cmd, %fields) = @_;

    my $f = stream('POST', "/sessions/$s/exec",
                   json => { cmd => $cmd, %fields });
    $f->until('stdout');

    return $f;
}


# One of each kind, under way.

sub all_kinds {
    my ($s, $cmd) = @_;

    my $pid = background($s, $cmd);
    my %f = (exec => exec_stream($s, $cmd),
             detached => exec_stream($s, $cmd, on_disconnect => 'detach'),
             output => follow($s, $pid),
             watch => stream('GET', "/sessions/$s/watch/"));

    $f{output}->until('stdout');
    $f{watch}->until('ready');

    my $w = ws_open("/sessions/$s/terminal");
    $w->type("echo ter\"\"minal\n");
    $w->expect(qr/terminal\r\n/);

    return ($w, %f);
}


subtest 'the broker dies' => sub {
    my $s = create_ok();
    my ($w, %f) = all_kinds($s, 'echo begun; while [ ! -e go ]; do '
                                . 'sleep 0.05; done; echo end; exit 3');
    my $old = $t->broker;

    $t->allow(qr/sandbox/);
    $t->hit(KILL => $old);
    ok(until_true { my $new = $t->broker;
                    $new && $new != $old && create()->{status} == 201 } 20);

    is(put($s, 'go', '')->{status}, 201, 'the session is still there');

    for my $kind (qw(exec detached output)) {
        my $r = $f{$kind}->rest;

        is("$r->{stdout}$r->{exit}{exit_code} $r->{exit}{reason}",
           "end\n3 exited", "$kind goes on to its end");
        ok($f{$kind}->{whole}, 'the body ends as it should');
    }

    is($f{watch}->until('create')->{path}, '/home/user/go',
       'a watch goes on');
    $f{watch}->close;
    $w->type("echo st\"\"ill\n");
    ok($w->expect(qr/still\r\n/), 'a terminal goes on');
    $w->type("exit 2\n");
    is_deeply([ $w->closed ], [ 1000, 'exited 2' ], 'and has its own end');
    destroy($s);
};


for my $how ('DELETE', 'its time is over') {
    subtest "the session ends: $how" => sub {
        my $s = create_ok();
        my ($w, %f) = all_kinds($s, "echo begun; trap '' TERM; "
                                    . "sleep $mark; echo never");

        if ($how eq 'DELETE') {
            is(destroy($s)->{status}, 204, 'destroyed');

        } else {
            is(call('PATCH', "/sessions/$s", json => { timeout_s => 1 })
               ->{status}, 200, 'a second is left');
        }

        for my $kind (qw(exec detached output)) {
            my $r = $f{$kind}->rest;
            my $end = $r->{exit};

            is($r->{stdout}, '', "$kind: nothing is made up");

            if ($end) {
                is($end->{reason}, 'session_ended', 'the end that it was');
                ok($f{$kind}->{whole}, 'and a whole body');

            } else {
                ok(!$r->{resume} && !$f{$kind}->{whole}, 'the body is cut');
            }
        }

        my $r = $f{watch}->rest;
        is((grep { $_->{type} eq 'resume' } @{ $r->{events} }), 0,
           'a watch is not to be resumed');

        my ($code, $text) = $w->closed;
        ok(($code == 1000 && $text =~ /^session_ended/) || $code == 1011,
           'a terminal is told') or diag("$code $text");
        ok(until_true { !host_pids("sleep $mark") } 10);
        is(call('GET', "/sessions/$s")->{status}, 404, 'it is gone');
    };
}

$t->finish;
done_testing();
