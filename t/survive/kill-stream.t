#!/usr/bin/perl

# Streams of output, and each of the processes that have to do with them
# killed in each phase: a stream is whole, or can be seen to be cut; and where
# the process goes on, whoever comes back has each byte once.
# SANDBOX_TEST_LONG=1 kills every process at every point.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../lib";

use Test::More;
use SandboxTest::Connect;
use SandboxTest::Fault;
use SandboxTest::Kill;
use SandboxTest::More;
use SandboxTest::Stream;

# The forms: exec (which ends with its client), detach, output (of a process
# that runs), and start (a process of the E2B protocol).
#
# What becomes of a stream: whole; again (the same, by a call that was sent
# twice); cut; none (no answer, or a refusal); broken (one of these two); any
# of all.

my @MATRIX = (
    [ exec => 'broker-call-taken',
      { held => 'again', worker => 'none', keeper => 'whole',
        init => 'none' } ],
    [ exec => 'broker-call-handed',
      { held => 'whole', worker => 'any', keeper => 'whole',
        init => 'any' } ],
    [ exec => 'init-exec-started',
      { held => 'cut', worker => 'broken', broker => 'whole',
        keeper => 'whole' } ],
    [ exec => 'worker-stream-started',
      { held => 'cut', broker => 'whole', keeper => 'whole',
        init => 'broken' } ],
    [ exec => 'init-exec-output',
      { held => 'cut', worker => 'broken', broker => 'whole',
        keeper => 'whole' } ],
    [ exec => 'worker-stream-output',
      { held => 'cut', broker => 'whole', keeper => 'whole',
        init => 'broken' } ],
    [ exec => 'init-exec-over',
      { held => 'cut', worker => 'broken', broker => 'whole',
        keeper => 'whole' } ],
    [ exec => 'worker-stream-over',
      { held => 'cut', broker => 'whole', keeper => 'whole',
        init => 'whole' } ],

    [ detach => 'worker-stream-started',
      { held => 'cut', broker => 'whole', init => 'broken' } ],
    [ detach => 'init-exec-output',
      { worker => 'broken', broker => 'whole', held => 'cut' } ],
    [ detach => 'worker-stream-output',
      { held => 'cut', broker => 'whole', keeper => 'whole' } ],
    [ detach => 'worker-stream-over',
      { held => 'cut', broker => 'whole', init => 'whole' } ],

    [ output => 'worker-call-opened',
      { held => 'none', broker => 'whole', init => 'none' } ],
    [ output => 'broker-call-taken',
      { held => 'again', worker => 'none', keeper => 'whole' } ],
    [ output => 'init-task-taken',
      { held => 'none', worker => 'none', broker => 'whole' } ],
    [ output => 'init-process-accepted',
      { held => 'none', worker => 'none', broker => 'whole' } ],
    [ output => 'init-output-attached',
      { held => 'cut', worker => 'any', broker => 'whole' } ],
    [ output => 'init-output-sent',
      { held => 'cut', worker => 'broken', broker => 'whole',
        keeper => 'whole' } ],
    [ output => 'worker-stream-output',
      { held => 'cut', broker => 'whole', init => 'broken' } ],
    [ output => 'worker-stream-over',
      { held => 'cut', broker => 'whole', init => 'whole' } ],

    [ start => 'broker-call-taken',
      { held => 'again', worker => 'none', keeper => 'whole' } ],
    [ start => 'init-exec-output',
      { held => 'cut', worker => 'broken', broker => 'whole',
        keeper => 'whole' } ],
    [ start => 'init-exec-over',
      { held => 'cut', broker => 'whole', keeper => 'whole' } ],
);

# The short form has these besides what stands at each point.

my %SHORT = map { $_ => 1 } (
    'detach init-exec-output worker', 'output init-output-sent worker',
    'output init-output-sent broker', 'exec init-exec-output broker',
    'exec init-exec-output keeper', 'start init-exec-output worker',
);

my $AGAIN = qr/sandbox call was lost and is sent again/;
my $LINES = 20;
my $TEXT = join '', map { "line $_\n" } 1 .. $LINES;

my $t = kill_server(server => \&connect_server);
my $n = 0;
my $id = victim();

bystander();


# What the process does; one that others come back to waits for that.

sub command {
    my ($tag, $waits) = @_;

    return "echo $tag >> /mnt/shared/$tag; for i in \$(seq 1 $LINES); do "
           . 'echo line $i; sleep 0.01; done'
           . ($waits ? "; until [ -e back-$tag ]; do sleep 0.02; done" : '');
}

sub begin {
    my ($form, $tag, $line) = @_;

    return ask($line, GET => "/sessions/$id/processes/"
                             . by_tag($tag)->{pid} . '/output')
        if $form eq 'output';

    return ask($line, POST => '/process.Process/Start', base => '/e2b',
               headers => { 'Content-Type' => 'application/connect+json',
                            %{ rpc_headers($id) } },
               body => envelope(json_of({
                   process => { cmd => '/bin/sh',
                                args => [ '-c', command($tag) ] },
                   tag => $tag })))
        if $form eq 'start';

    return ask($line, POST => "/sessions/$id/exec",
               headers => { Accept => 'application/x-ndjson' },
               json => { cmd => command($tag), tag => $tag,
                         $form eq 'detach' ? (on_disconnect => 'detach')
                                           : () });
}

# The process of a tag; the tag is its command's as well.

sub by_tag {
    my ($tag) = @_;

    my $all = call('GET', "/sessions/$id/processes")->{json}{processes};
    my ($found) = grep { ($_->{tag} // '') eq $tag } @{ $all || [] };

    return $found || {};
}

# Takes all of a stream: what it is, and its text up to where it is broken.

sub take {
    my ($form, $line) = @_;

    return take_start($line) if $form eq 'start';

    my $f = events($line);
    my ($text, $last) = ('', '');

    return ('none', '') if $f->{status} != 200;

    while (my $e = $f->next(30)) {
        $last = $e->{type} if $e->{type} ne 'ping';
        next if $e->{type} ne 'stdout';
        return ("an event at $e->{offset}", $text)
            if $e->{offset} != length $text;
        $text .= $e->{data};
    }

    $f->close;

    return ($f->{whole} ? $last eq 'exit' ? 'whole' : "whole after $last"
            : $last eq 'exit' ? 'an exit, and a cut' : 'cut', $text);
}

sub take_start {
    my ($line) = @_;

    my $f = events($line, connect => 1);

    return ('none', '') if $f->{status} != 200;

    my $r = $f->rest(30);
    $f->close;

    return (!$r->{closed} || $r->{error}
            ? $r->{end} ? 'an end, and a cut' : 'cut'
            : $r->{end} && $r->{end}{exited} ? 'whole' : 'no end',
            $r->{stdout});
}

my %EXPECTED = (
    whole => { stream => qr/^whole$/, again => 0 },
    again => { stream => qr/^whole$/, again => 1 },
    cut   => { stream => qr/^cut$/, again => 0 },
    none  => { stream => qr/^none$/ },
    broken => { stream => qr/^(?:cut|none)$/, again => 0 },
    any   => { stream => qr/^(?:whole|cut|none)$/ },
);

# Whoever comes back to what goes on has the rest, and nothing twice.

sub comes_back {
    my ($form, $tag, $text, $name) = @_;

    my $p = by_tag($tag);

    return pass("$name: it was never begun") if !lines($tag) && !$p->{pid};

    put($id, "back-$tag", '');

    if ($form eq 'exec') {
        ok(until_true { (by_tag($tag)->{state} // '') eq 'exited' },
           "$name: it has ended with its client");
        like(call('GET', "/sessions/$id/processes/$p->{pid}")->{json}{reason},
             qr/^(?:disconnected|exited)$/, "$name: which is told");
        return;
    }

    if ($form eq 'start') {
        # its output from now on, and its end
        my $f = rpc_stream($id, 'process.Process/Connect',
                           { process => { pid => $p->{pid} } });
        my $r = $f->rest(30);
        ok(!$r->{error}, "$name: who connects to it hears its end")
            or diag(explain($r));
        ok($TEXT =~ /\Q$r->{stdout}\E\z/, "$name: and what it writes now");
        return;
    }

    my $f = follow($id, $p->{pid}, 'stdout_from=' . length $text);
    my $end;

    while (my $e = $f->next(30)) {
        $text .= $e->{data} if $e->{type} eq 'stdout'
                               && $e->{offset} == length $text;
        $end = $e if $e->{type} eq 'exit';
    }

    is($text, $TEXT, "$name: who comes back has each byte once");
    is($end->{exit_code}, 0, "$name: and its end");
}

sub case {
    my ($form, $point, $victim, $outcome) = @_;

    my $tag = 'stream-' . $n++;
    my $name = "$form: $point, $victim killed";
    my $want = $EXPECTED{$outcome};
    my $before = $t->log_has($AGAIN);

    background($id, command($tag), tag => $tag) if $form eq 'output';

    my $pid = by_tag($tag)->{pid};
    my $line = strike($point, $victim, $id, sub {
        my ($to) = @_;

        return $form eq 'output'
               ? ask($to, GET => "/sessions/$id/processes/$pid/output")
               : begin($form, $tag, $to);
    }, name => $name) or return;

    my ($stream, $text) = take($form, $line);

    like($stream, $want->{stream}, "$name: the stream ($outcome)");
    is(substr($TEXT, 0, length $text), $text, "$name: nothing else is in it");
    is($text, $TEXT, "$name: all of it") if $stream eq 'whole';
    ok(recovered(), "$name: all is served again");

    if (!SandboxTest::alive(init_of($id))) {
        gone_with($id, "$name: the session is gone");
        $id = victim();

    } elsif ($stream ne 'whole') {
        comes_back($form, $tag, $text, $name);
    }

    like(lines($tag), $stream eq 'whole' ? qr/^1$/ : qr/^[01]$/,
         "$name: how often it ran");
    is($t->log_has($AGAIN) - $before, $want->{again},
       "$name: how often it was sent again") if defined $want->{again};
    others_live_on("$name: another session goes on");
}

for my $row (@MATRIX) {
    my ($form, $point, $outcomes) = @$row;

    for my $victim (qw(held worker broker keeper init)) {
        case($form, $point, $victim, $outcomes->{$victim})
            if $outcomes->{$victim} && ($LONG || $victim eq 'held'
                                        || $SHORT{"$form $point $victim"});
    }
}


# Nobody is left who knows the sessions: all of them end, and what was under
# way is cut, until a reload begins anew.

subtest 'keeper and broker at once' => sub {
    my $exec = ask(dial(), POST => "/sessions/$id/exec",
                   json => { cmd => 'touch begun; sleep 1000',
                             timeout_s => undef });
    my $upload = ask(dial(), PUT => "/sessions/$id/files/new", body => 'half',
                     length => 1000);

    ok(until_true { get($id, 'begun')->{status} == 200 }, 'a command runs');

    my $line = strike('init-exec-output', 'both', $id, sub {
        begin('exec', 'both', $_[0]);
    }) or return;
    my ($stream) = take('exec', $line);

    is($stream, 'cut', 'a stream is cut');
    is_problem(answer($exec), 503, 'E5001', 'a command is told so');
    is_problem(answer($upload), 503, 'E5001', 'an upload too');

    my $res = call('GET', '/health');
    is_problem($res, 503, 'E5001', 'and so is everybody');
    ok($res->{headers}{'retry-after'}, 'with when to come again');

    forget_bystander();
    ok($t->reload, 'after a reload');
    $t->note_processes;
    is(ended_of($id) =~ /^status/, '', 'the session has ended');
    $id = victim();
    is(run($id, 'echo again')->{stdout}, "again\n", 'and others are made');
};

destroy($id);
kill_finish();
done_testing();
