#!/usr/bin/perl

# A command, and each of the processes that have to do with it killed in each
# phase of the call.  Before a command is accepted the call is sent again, and
# it is run once; after that its end is told, or that it is not known, and it
# is never run twice.  SANDBOX_TEST_LONG=1 kills every process at every point.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../lib";

use JSON::PP ();
use Test::More;
use SandboxTest::Fault;
use SandboxTest::Kill;
use SandboxTest::More;

# What the caller gets, when the process is killed at the point:
#
#   done      the answer, as if nothing had been; the command ran once
#   again     the same, by a call that was sent twice
#   cut       no answer; it ran once, or not at all
#   never     an error, and it was not run
#   ran       an error, and it ran once or not at all
#
# A session whose init is killed is gone in each of these cases.

my @MATRIX = (
    [ 'worker-call-opened',
      { worker => 'cut', broker => 'done', keeper => 'done',
        init => 'never' } ],
    [ 'worker-call-sent',
      { worker => 'cut', broker => 'done', keeper => 'done', init => 'any' } ],
    [ 'broker-call-taken',
      { worker => 'cut', broker => 'again', keeper => 'done',
        init => 'never' } ],
    [ 'broker-call-checked',
      { worker => 'cut', broker => 'again', keeper => 'done',
        init => 'never' } ],
    [ 'broker-call-handed',
      { worker => 'any', broker => 'done', keeper => 'done', init => 'any' } ],
    [ 'init-task-taken',
      { worker => 'cut', broker => 'done', keeper => 'done',
        init => 'never' } ],
    [ 'init-exec-read',
      { worker => 'cut', broker => 'done', keeper => 'done',
        init => 'never' } ],
    [ 'init-exec-accepted',
      { worker => 'cut', broker => 'done', keeper => 'done',
        init => 'lost' } ],
    [ 'worker-call-accepted',
      { worker => 'cut', broker => 'done', keeper => 'done', init => 'any' } ],
    [ 'init-exec-launching',
      { worker => 'cut', broker => 'done', keeper => 'done',
        init => 'lost' } ],
    [ 'init-exec-started',
      { worker => 'cut', broker => 'done', keeper => 'done',
        init => 'lost' } ],
    [ 'worker-exec-started',
      { worker => 'cut', broker => 'done', keeper => 'done', init => 'any' } ],
    [ 'init-exec-output',
      { worker => 'cut', broker => 'done', keeper => 'done',
        init => 'lost' } ],
    [ 'init-exec-over',
      { worker => 'cut', broker => 'done', keeper => 'done',
        init => 'lost' } ],
    [ 'broker-command-over',
      { worker => 'any', broker => 'done', keeper => 'done', init => 'any' } ],
    [ 'init-exec-told',
      { worker => 'cut', broker => 'done', keeper => 'done',
        init => 'lost' } ],
    [ 'init-exec-answered',
      { worker => 'any', broker => 'done', keeper => 'done',
        init => 'done' } ],
    [ 'worker-exec-over',
      { worker => 'cut', broker => 'done', keeper => 'done',
        init => 'done' } ],
);

# Who is killed at a point in the short form: the one that stands there; the
# long one kills all.

my %OWN = (worker => 'worker', broker => 'broker', init => 'init');
my $AGAIN = qr/sandbox call was lost and is sent again/;

my $t = kill_server();
my $n = 0;
my $id = victim();

bystander(code => 1);

sub answered {
    my ($res) = @_;

    return 'done' if $res->{status} == 200 && ref $res->{json} eq 'HASH'
                     && $res->{json}{exit_code} == 0
                     && $res->{json}{stdout} eq "out\n"
                     && $res->{json}{reason} eq 'exited';
    return 'cut' if cut_off($res);
    return $res->{json}{code} if ref $res->{json} eq 'HASH'
                                 && $res->{json}{code};
    return "status $res->{status} " . ($res->{body} // '');
}

my %EXPECTED = (
    done  => { answer => qr/^done$/, runs => qr/^1$/, again => 0 },
    again => { answer => qr/^done$/, runs => qr/^1$/, again => 1 },
    cut   => { answer => qr/^cut$/, runs => qr/^[01]$/, again => 0 },
    never => { answer => qr/^(?:E2009|E5001)$/, runs => qr/^0$/ },
    lost  => { answer => qr/^E5001$/, runs => qr/^[01]$/, again => 0 },
    any   => { answer => qr/^(?:done|cut|E2009|E5001)$/, runs => qr/^[01]$/ },
);

sub case {
    my ($point, $victim, $outcome) = @_;

    my $tag = 'exec-' . $n++;
    my $name = "$point, $victim killed";
    my $want = $EXPECTED{$outcome};
    my $before = $t->log_has($AGAIN);
    my $line = strike($point, $victim, $id, sub {
        ask($_[0], POST => "/sessions/$id/exec", json => {
            cmd => "echo $tag >> /mnt/shared/$tag; echo out" });
    }, name => $name) or return;

    my $res = answer($line);
    my $got = answered($res);
    my $runs = lines($tag);

    like($got, $want->{answer}, "$name: the answer ($outcome)")
        or diag($res->{body} // '');
    ok(recovered(), "$name: all is served again");

    if ($victim eq 'init') {
        gone_with($id, "$name: the session is gone");
        $id = victim();

    } else {
        is(run($id, 'echo next')->{stdout}, "next\n",
           "$name: the session is there");
    }

    like(lines($tag), $got eq 'done' ? qr/^1$/ : $want->{runs},
         "$name: how often it ran");
    is($t->log_has($AGAIN) - $before, $want->{again},
       "$name: how often it was sent again") if defined $want->{again};
    others_live_on("$name: another session goes on");
}

for my $row (@MATRIX) {
    my ($point, $outcomes) = @$row;
    my ($program) = $point =~ /^(\w+?)-/;

    for my $victim (qw(worker broker keeper init)) {
        case($point, $victim, $outcomes->{$victim})
            if $LONG || $victim eq $OWN{$program};
    }
}

destroy($id);
kill_finish();
done_testing();
