#!/usr/bin/perl

# process.Process of E2B: what a command sees, what its client is told, and
# what may be done to it.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";

use Digest::MD5 ();
use MIME::Base64 qw(encode_base64);
use Test::More;
use SandboxTest::More;
use SandboxTest::Connect;
use SandboxTest::Stream qw(stands_still);

my $FALSE = JSON::PP::false;
my $MB = 1 << 20;

my $H2 = SandboxTest::free_port();

my $t = connect_server(http => "server { listen 127.0.0.1:$H2 http2; "
                               . "location /e2b/ { sandbox_api e2b; } }\n");
my $s = create_ok({ timeout_s => 3600 });


sub ask { return rpc($s, "process.Process/$_[0]", $_[1], @_[2 .. $#_]) }

sub pid { return { process => { pid => $_[0]->{pid} } } }

sub follow_again { return rpc_stream($s, 'process.Process/Connect', @_) }

sub out { return start($s, $_[0], stdin => $FALSE, @_[1 .. $#_])->rest }

sub is_ok {
    my ($r, $name) = @_;

    ok($r->{status} == 200 && $r->{body} eq '{}', $name)
        or diag("$r->{status} $r->{body}");
}

sub error_is {
    my ($r, $code, $re, $name) = @_;

    ok(($r->{json}{code} // '') eq $code && $r->{json}{message} =~ $re,
       $name // $code)
        or diag("$r->{status} $r->{body}");
}

sub ends_with {
    my ($f, $code, $re, $name) = @_;

    my $end = $f->{first} // $f->next // {};
    my $e = $end->{end}{error} || {};

    ok(($e->{code} // '') eq $code && $e->{message} =~ $re, $name)
        or diag(explain($end, $f->{status}));
}

sub write_to {
    my ($f, $bytes, $kind) = @_;

    return ask('SendInput', { %{ pid($f) },
        input => { $kind // 'stdin' => base64($bytes) } });
}

sub end_it {
    my ($f) = @_;

    is_ok(ask('SendSignal', { %{ pid($f) }, signal => 'SIGNAL_SIGKILL' }));

    return $f->rest;
}

sub live { return map { $_->{pid} } @{ ask('List')->{json}{processes} } }


subtest 'what a command sees' => sub {
    is(out('pwd')->{stdout}, "/home/user\n", 'where it is');
    is(out('pwd', user => 'root')->{stdout}, "/home/user\n", 'and root');
    is(out('pwd', cwd => '/tmp')->{stdout}, "/tmp\n", 'where it is told to');
    is(out('mkdir -p d/e; pwd', cwd => '~')->{stdout}, "/home/user\n",
       'at home');
    is(out('pwd', cwd => '~/d')->{stdout}, "/home/user/d\n", 'below it');
    is(out('pwd', cwd => 'd/e')->{stdout}, "/home/user/d/e\n", 'relative');
    is(out('pwd', cwd => '~', user => 'root')->{stdout}, "/root\n",
       'that of root');
    ends_with(start($s, 'x', cwd => 'nowhere'), 'invalid_argument',
              qr{^cwd '/home/user/nowhere' does not exist$},
              'a directory that there is not');
    ends_with(start($s, 'x', cwd => '/etc/passwd'), 'invalid_argument',
              qr{^cwd '/etc/passwd': }, 'what is none');

    is(out('echo $A $HOME', envs => { A => "\x{e9}", HOME => '/tmp' })
           ->{stdout}, "\xc3\xa9 /tmp\n", 'its variables');
    is(out('echo $A', envVars => { A => 'b' })->{stdout}, "b\n",
       'by another name');
    is(out('echo $E2B_SANDBOX $E2B_SANDBOX_ID')->{stdout}, "true $s\n",
       'in which sandbox it is');
    is(out('echo $E2B_SANDBOX', envs => { E2B_SANDBOX => 'x' })->{stdout},
       "x\n", 'unless it is told otherwise');
    is(out('readlink /proc/self/fd/0')->{stdout}, "/dev/null\n",
       'no standard input');
    is(out([ '/usr/bin/printf', '%s.', 'a b', '', "\n", '!"$' ])->{stdout},
       "a b..\n.!\"\$.", 'its arguments');
    is(out("echo \"!@#\$%^&*()_+\"\necho 2")->{stdout},
       "!@#\$%^&*()_+\n2\n", 'a script');
    ends_with(start($s, [ '/nowhere' ]), 'invalid_argument',
              qr/^error starting process: /, 'a program that there is not');
    ends_with(start($s, [ "a\0b" ]), 'invalid_argument', qr/NUL/, 'a NUL');
    ends_with(start($s, 'x', tag => "a\n"), 'invalid_argument', qr/tag/,
              'a tag that is none');
    ends_with(start($s, 'x', envs => { 'A=B' => 'c' }), 'invalid_argument',
              qr/A=B/, 'a variable that is none');
};


subtest 'what its client is told' => sub {
    my $r = out('echo out; echo err >&2');

    is($r->{stdout}, "out\n", 'standard output');
    is($r->{stderr}, "err\n", 'standard error');
    is_deeply($r->{end}, { exitCode => 0, exited => JSON::PP::true,
                           status => 'exit status 0' }, 'success');

    $r = out('exit 3');
    is_deeply($r->{end}, { exitCode => 3, exited => JSON::PP::true,
                           status => 'exit status 3',
                           error => 'exit status 3' }, 'a failure');
    is($r->{error}, undef, 'which is none of the stream');

    $r = out('kill -SEGV $$');
    is_deeply($r->{end}, { exitCode => -1, exited => $FALSE,
                           status => 'signal: segmentation fault',
                           error => 'signal: segmentation fault' },
              'a signal');

    $r = out('head -c 100000 /dev/urandom | tee x; sha256sum < x >&2');
    is(length $r->{stdout}, 100000, 'any bytes');
    like($r->{stderr}, qr/^\Q${\ Digest::SHA::sha256_hex($r->{stdout})}\E /,
         'as they were');

    my $small = create_ok({ manifest => { resources => {
        memory => '48MB' } } });

    $r = start($small, 'exec tail /dev/zero', stdin => $FALSE)->rest;
    is($r->{end}{status}, 'signal: killed', 'a limit of memory');
    is($r->{end}{error}, 'signal: killed: its memory limit was reached',
       'is told');
    destroy($small);
};


subtest 'how long a command may run' => sub {
    my $short = create_ok({ manifest => { resources => {
        exec_timeout_s => 0.1 } } });
    my @sleep = ($short, 'sleep 0.3; echo ok', stdin => $FALSE);

    is(start(@sleep, ms => 60000)->rest->{stdout}, "ok\n",
       'as long as the call says, whatever the session has');
    is(start(@sleep)->rest->{stdout}, "ok\n", 'or for ever');
    is(start(@sleep, ms => 100)->rest->{error}{code}, 'deadline_exceeded',
       'or less');
    destroy($short);

    # who looks at it sees an end

    my $f = start($s, 'sleep 60', stdin => $FALSE, ms => 500);
    my $c = follow_again(pid($f));

    $f->close;
    is($c->rest->{end}{error}, 'signal: killed: its time was over',
       'when nobody listens any more, too');
};


subtest 'the list' => sub {
    my $f = start($s, [ 'sleep', '60' ], tag => 'a "tag"', cwd => '/tmp',
                  envs => { A => 'b' });

    is_deeply((grep { $_->{pid} == $f->{pid} }
                    @{ ask('List')->{json}{processes} })[0],
              { pid => $f->{pid}, tag => 'a "tag"',
                config => { cmd => 'sleep', args => [ '60' ],
                            envs => { A => 'b' }, cwd => '/tmp' } },
              'has what was asked for');

    my $pid = SandboxTest::Stream::background($s, 'sleep 61');

    ok(scalar(grep { $_ == $pid } live()), 'and those of another API');
    is_ok(ask('SendSignal', { process => { tag => 'a "tag"' },
                              signal => 'SIGNAL_SIGKILL' }),
          'a tag is a name');
    is($f->rest->{end}{status}, 'signal: killed');
    is_ok(ask('SendSignal', { process => { pid => $pid },
                              signal => 'SIGNAL_SIGKILL' }));
    ok((until_true { !live() } 5), 'none that has ended');
};


subtest 'signals' => sub {
    my $f = start($s, [ 'sleep', '60' ]);

    error_is(ask('SendSignal', { %{ pid($f) }, signal => $_ }),
             'unimplemented', qr/signal/, "not $_")
        for 'SIGNAL_SIGHUP', 'SIGNAL_UNSPECIFIED', 1, 0, '';
    error_is(ask('SendSignal', pid($f)), 'unimplemented', qr/signal/,
             'nor none');
    is_ok(ask('SendSignal', { %{ pid($f) }, signal => 'SIGNAL_SIGTERM' }));
    is($f->rest->{end}{error}, 'signal: terminated', 'SIGTERM');

    my $g = start($s, [ 'sleep', '60' ]);

    is_ok(ask('SendSignal', { %{ pid($g) }, signal => 9 }), 'a number');
    isnt(out("kill -0 $g->{pid}")->{end}{exitCode}, 0,
         'what was killed is gone');
    is($g->rest->{end}{error}, 'signal: killed');

    error_is(ask('SendSignal', { %{ pid($f) }, signal => 9 }), 'not_found',
             qr/^process with pid $f->{pid} not found$/, 'what has ended');

    for (999999, 0, 4294967295) {
        error_is(ask('SendSignal', { process => { pid => $_ },
                                     signal => 9 }),
                 'not_found', qr/^process with pid $_ not found$/, "pid $_");
    }

    error_is(ask('SendSignal', { process => { tag => 'none' }, signal => 9 }),
             'not_found', qr/^process with tag none not found$/, 'a tag');
    error_is(ask('SendSignal', { process => { tag => 'x' x 200 },
                                 signal => 9 }), 'not_found', qr/xxx not/,
             'one that cannot be');
    error_is(ask('SendSignal', { signal => 9 }), 'unimplemented',
             qr/pid or its tag/, 'nothing');
    error_is(ask('SendSignal', { process => { pid => 'x' }, signal => 9 }),
             'invalid_argument', qr/pid/, 'a pid that is none');
};


subtest 'a look at one that runs' => sub {
    my $f = start($s, 'echo before; read x; echo "after $x"; exit 4',
                  tag => 'seen');

    $f->until(qr/before\n/);

    my $c = follow_again(pid($f));

    is_deeply($c->next, { event => { start => { pid => $f->{pid} } } },
              'begins with its pid');

    my $d = follow_again({ process => { tag => 'seen' } });
    my $e = follow_again({ %{ pid($f) }, replay => JSON::PP::true });

    is($d->next->{event}{start}{pid}, $f->{pid}, 'by its tag');
    is($e->next->{event}{start}{pid}, $f->{pid}, 'with all that was');
    is_ok(write_to($f, "x\n"));

    for ([ $f, "before\nafter x\n" ], [ $c, "after x\n" ],
         [ $d, "after x\n" ], [ $e, "before\nafter x\n" ])
    {
        $_->[0]->until(qr/after x\n/);
        my $r = $_->[0]->rest;
        is($_->[0]{so_far}{stdout}, $_->[1], 'what is new');
        is($r->{end}{exitCode}, 4, 'its end');
    }

    my $r = follow_again(pid($f))->rest;

    is_deeply([ $r->{order}, $r->{stdout}, $r->{end}{exitCode}, $r->{error} ],
              [ [ qw(start end) ], '', 4, undef ], 'one that has ended');
    ends_with(follow_again({ process => { pid => 999999 } }), 'not_found',
              qr/^process with pid 999999 not found$/, 'none');
    ends_with(follow_again({}), 'unimplemented', qr/./, 'nobody');
};


subtest 'a client that goes away' => sub {
    my $f = start($s, 'echo a; read x; echo "b$x"; read y; exit 5');

    $f->until(qr/a\n/);
    $f->close;

    my $c = follow_again(pid($f));

    is($c->next->{event}{start}{pid}, $f->{pid}, 'its command goes on');
    is_ok(write_to($f, "1\n"), 'and reads');
    is($c->until(qr/b1\n/)->{stdout}, "b1\n", 'what is new');
    is_ok(write_to($f, "2\n"));
    is($c->rest->{end}{exitCode}, 5, 'its end');
};


subtest 'standard input' => sub {
    my $f = start($s, 'cat');
    my $bytes = join '', map { chr } 0 .. 255;
    my $text = base64($bytes);

    (my $url = $text) =~ tr{+/}{-_};
    (my $short = $url) =~ s/=+$//;

    for ([ $text, 'of the standard alphabet' ], [ $url, 'of the other' ],
         [ $short, 'without padding' ])
    {
        is_ok(ask('SendInput', { %{ pid($f) }, input => { stdin => $_->[0] }
              }), "bytes $_->[1]");
    }

    is_ok(write_to($f, ''), 'none');
    is_ok(ask('SendInput', { pid => $f->{pid}, data => "t\x{e9}xt\n" }),
          'text of another client');
    ok($f->until(qr/xt\n/)->{stdout} eq $bytes x 3 . "t\xc3\xa9xt\n",
       'all of it');

    error_is(ask('SendInput', { %{ pid($f) }, input => { stdin => $_ } }),
             'invalid_argument', qr/base64/, "not $_")
        for 'a', 'ab=', 'a=bc', '====', 'ab c', 'abc=d', 'ab====';
    error_is(ask('SendInput', { %{ pid($f) }, input => {} }),
             'unimplemented', qr/input/, 'nothing');
    error_is(write_to($f, 'x', 'pty'), 'internal', qr/^error writing to tty/,
             'it is no terminal');
    error_is(write_to({ pid => 999999 }, 'x'), 'not_found', qr/./, 'nobody');

    is_ok(ask('CloseStdin', pid($f)), 'it is closed');
    is($f->rest->{end}{exitCode}, 0, 'which ends cat');
    error_is(ask('CloseStdin', pid($f)), 'not_found', qr/./, 'it has ended');
    error_is(ask('SendInput', { pid => $f->{pid}, data => 'x' }),
             'not_found', qr/./, 'for another client, too');

    $f = start($s, 'exec 0<&-; echo x; exec sleep 60');
    $f->until(qr/x/);
    is_ok(ask('CloseStdin', pid($f)), 'closed');
    is_ok(ask('CloseStdin', pid($f)), 'closed again');
    error_is(ask('SendInput', { pid => $f->{pid}, data => 'x' }),
             'internal', qr/^error writing to stdin: .* not open/,
             'of another client');
    error_is(write_to($f, 'x'), 'internal', qr/^error writing to stdin/,
             'nothing is written to it');
    end_it($f);

    $f = start($s, [ 'sleep', '60' ], stdin => $FALSE);
    error_is(write_to($f, 'x'), 'internal', qr/^error writing to stdin/,
             'nor where there was none');
    is_ok(ask('CloseStdin', pid($f)));
    end_it($f);

    # more than a pipe holds, and than one frame

    $f = start($s, 'head -c 1000000 | md5sum');
    my $much = join '', map { pack 'N', $_ } 1 .. 250_000;
    is_ok(write_to($f, $much), 'a megabyte');
    like($f->rest->{stdout}, qr/^\Q${\ Digest::MD5::md5_hex($much)}\E /);
};


subtest 'a terminal' => sub {
    my %o = (envs => { TERM => 'xterm-256color', ABC => '123' },
             pty => { size => { cols => 80, rows => 24 } });
    my $f = start($s, [ '/bin/bash', '-i', '-l' ], %o);

    is_ok(write_to($f, "echo \$ABC; stty size\n", 'pty'));
    ok($f->until(qr/\b123\r\n24 80\r\n/), 'has its size');
    is_ok(ask('Update', { %{ pid($f) },
                          pty => { size => { cols => 100, rows => 30 } } }));
    is_ok(write_to($f, "stty size\n", 'pty'));
    ok($f->until(qr/\b30 100\r\n/), 'and another');
    is($f->{so_far}{stdout}, '', 'nothing else');

    is_ok(ask('Update', pid($f)), 'no size');
    error_is(ask('Update', { %{ pid($f) },
                             pty => { size => { cols => 0, rows => 9 } } }),
             'invalid_argument', qr/size/, 'one that cannot be');
    error_is(write_to($f, 'x'), 'internal', qr/^error writing to stdin/,
             'its input is no pipe');
    error_is(ask('CloseStdin', pid($f)), 'unknown',
             qr/^error closing stdin/, 'nor closed');

    $f->close;

    my $c = follow_again(pid($f));

    $c->next;
    is_ok(write_to($f, "echo b\"\"ack; exit 7\n", 'pty'));
    ok($c->until(qr/\bback\r\n/), 'another one looks');
    is($c->rest->{end}{exitCode}, 7);

    $f = start($s, [ 'sleep', '60' ]);
    error_is(ask('Update', { %{ pid($f) },
                             pty => { size => { cols => 9, rows => 9 } } }),
             'internal', qr/^error resizing tty/, 'none');
    end_it($f);
    error_is(ask('Update', { %{ pid($f) }, pty => { size => { cols => 9,
             rows => 9 } } }), 'not_found', qr/./, 'what has ended');

    is(start($s, 'stty size', pty => {})->rest->{pty}, "24 80\r\n",
       'without a size');
    ends_with(start($s, 'x', pty => { size => { cols => 70000 } }),
              'invalid_argument', qr/cols/, 'with none that can be');
};


# ---- StreamInput ----------------------------------------------------------

sub stream_input {
    my (@messages) = @_;

    my $c = SandboxTest::More::open_request('POST',
        '/process.Process/StreamInput', base => '/e2b', headers => {
            'Content-Type' => 'application/connect+json',
            'Transfer-Encoding' => 'chunked', %{ rpc_headers($s) } });

    say_it($c, @messages);

    return $c;
}

sub say_it {
    my ($c, @messages) = @_;

    my $bytes = join '', map { envelope(ref $_ ? SandboxTest::More::json_of($_)
                                               : $_) } @messages;

    SandboxTest::More::send_all($c, sprintf("%x\r\n", length $bytes)
                                    . "$bytes\r\n") if $bytes ne '';
}

# The messages of the answer, as [flags, value].

sub said {
    my ($c, $last) = @_;

    SandboxTest::More::send_all($c, $last // "0\r\n\r\n");

    my $r = SandboxTest::More::read_response($c, raw => 1);

    return [ map { [ $_->[0], SandboxTest::More::parse($_->[1]) ] }
                 envelopes($r->{body}) ];
}

sub data_of { return { data => { input => { stdin => base64($_[0]) } } } }

my $TAKEN = [ [ 0, {} ], [ 2, {} ] ];

sub is_refused {
    my ($said, $code, $re, $name) = @_;

    my $e = @$said == 1 && $said->[0][0] == 2 && $said->[0][1]{error} || {};

    ok(($e->{code} // '') eq $code && $e->{message} =~ $re, $name)
        or diag(explain($said));
}


subtest 'a stream of input' => sub {
    my $f = start($s, 'cat');
    my $g = start($s, 'cat');
    my $p = start($s, 'cat', pty => { size => { cols => 80, rows => 24 } });

    my $c = stream_input({ start => pid($f) }, data_of("one\n"));

    ok($f->until(qr/one\n/), 'goes at once');
    say_it($c, { keepalive => {} }, data_of(''), data_of("two\n"));
    ok($f->until(qr/two\n/), 'as it comes');
    say_it($c, { start => pid($g) }, data_of("three\n"),
           { start => pid($f) }, data_of("four\n"),
           { start => pid($p) },
           { data => { input => { pty => base64("five\n") } } });
    is_deeply(said($c), $TAKEN, 'its answer');
    is($f->until(qr/four\n/)->{stdout}, "one\ntwo\nfour\n", 'to one');
    is($g->until(qr/three\n/)->{stdout}, "three\n", 'to another');
    ok($p->until(qr/five\r\nfive\r\n/), 'to a terminal');

    # byte by byte, each in a chunk

    $c = stream_input();
    my $bytes = join '', map { envelope(SandboxTest::More::json_of($_)) }
        { start => pid($f) }, data_of("split\n"), data_of("up\n");
    SandboxTest::More::send_all($c, "1\r\n$_\r\n") for split //, $bytes;
    is_deeply(said($c), $TAKEN, 'split anywhere');
    ok($f->until(qr/split\nup\n/));

    is_deeply(said(stream_input()), $TAKEN, 'nothing');
    is_deeply(said(stream_input({ start => pid($f) })), $TAKEN,
              'nothing for somebody');
    is_refused(said(stream_input({ start => { process => { pid => 999 } } })),
               'not_found', qr/999/, 'nobody');
    is_refused(said(stream_input({ start => { process => { pid => 999 } } },
                                 data_of('x'))),
               'not_found', qr/999/, 'something for nobody');
    is_refused(said(stream_input(data_of('x'))), 'invalid_argument',
               qr/start/, 'no start');
    is_refused(said(stream_input({ start => {} })), 'unimplemented', qr/./,
               'nobody named');
    is_refused(said(stream_input({ what => {} })), 'unimplemented',
               qr/event/, 'another event');
    is_refused(said(stream_input({ start => pid($f) },
                                 { data => { input => { pty => 'eA==' } } })),
               'internal', qr/tty/, 'a terminal that is none');
    is_refused(said(stream_input({ start => pid($f) }, data_of('x'),
                                 { data => { input => { pty => 'eA==' } } })),
               'internal', qr/either/, 'both');
    is_refused(said(stream_input('{"start"')), 'invalid_argument', qr/./,
               'no JSON');
    is_refused(said(stream_input(), "7\r\n\0\0\0\0\11{}\r\n0\r\n\r\n"),
               'invalid_argument', qr/within a message/, 'cut off');
    is_refused(said(stream_input(), "5\r\n\1\0\0\0\0\r\n0\r\n\r\n"),
               'invalid_argument', qr/flags/, 'compressed');
    is_refused(said(stream_input(), "5\r\n\0\x7f\0\0\0\r\n0\r\n\r\n"),
               'resource_exhausted', qr/at most/, 'longer than can be');

    end_it($_) for $f, $g, $p;
};


subtest 'a stream of input that nobody reads' => sub {
    my $f = start($s, 'read go < fifo; wc -c', cwd => '~',
                  envs => {});
    my $c = stream_input({ start => pid($f) });
    my $r = end_it($f);

    is_refused(said($c), 'not_found', qr/./, 'ends with its reader');

    $f = start($s, 'mkfifo fifo; echo ready; read go < fifo; wc -c');
    $f->until(qr/ready/);

    # as much as the sockets take, which is bounded, and no more

    my @workers = workers();
    my $before = rss(@workers);
    my $piece = envelope(SandboxTest::More::json_of(data_of('x' x 60_000)));
    my $count = 0;

    $c = stream_input({ start => pid($f) });
    $c->blocking(0);

    my ($bytes, $at) = (sprintf("%x\r\n", length $piece) . "$piece\r\n", 0);

    for (my $idle = 0; $idle < 10 && $count < 1000; ) {
        my $n = syswrite $c, $bytes, length($bytes) - $at, $at;

        if (!defined $n) {
            $idle++;
            select undef, undef, undef, 0.02;
            next;
        }

        $idle = 0;
        $at += $n;
        next if $at < length $bytes;
        ($count, $at) = ($count + 1, 0);
    }

    cmp_ok($count, '<', 1000, 'the client waits');
    cmp_ok(rss(@workers) - $before, '<', 8 * $MB, 'memory does not grow');

    $c->blocking(1);
    out('echo > fifo');
    SandboxTest::More::send_all($c, substr $bytes, $at);
    is_deeply(said($c), $TAKEN, 'until it is read');
    is_ok(ask('CloseStdin', pid($f)));
    is($f->rest->{stdout}, ($count + 1) * 60_000 . "\n", 'all of it');
};


# A body that has ended before it is read.

subtest 'a stream of input over HTTP/2' => sub {
    plan(skip_all => 'curl has no HTTP/2')
        if `curl --version 2>/dev/null` !~ /HTTP2/;

    my $f = start($s, 'cat');
    my $h = rpc_headers($s);
    my $path = $t->prefix . '/message';

    for my $n (1 .. 5) {
        open my $file, '>', $path or die $!;
        print $file map({ envelope(SandboxTest::More::json_of($_)) }
                        { start => pid($f) }, data_of("line $n\n"));
        close $file;

        open my $curl, '-|', 'curl', '-sS', '--http2-prior-knowledge', '-m',
            within(30), map({ ('-H', "$_: $h->{$_}") } keys %$h), '-H',
            'Content-Type: application/connect+json', '--data-binary',
            "\@$path", "http://127.0.0.1:$H2/e2b/process.Process/StreamInput"
            or die $!;
        my $answer = do { local $/; <$curl> };
        close $curl;

        is_deeply([ map { $_->[0] } envelopes($answer) ], [ 0, 2 ],
                  "it is taken, $n");
    }

    is($f->until(qr/line 5\n/)->{stdout},
       join('', map { "line $_\n" } 1 .. 5), 'all of it');
    unlink $path;
    end_it($f);
};


subtest 'another client' => sub {
    my $f = rpc_stream($s, 'process.Process/Start',
                       '{"process":{"cmd":"/bin/bash","args":["-c","cat"],'
                       . '"envVars":{"A":"b"}}}', bare => 1);

    $f->{pid} = $f->next->{event}{start}{pid};

    my $c = follow_again('{"pid":' . $f->{pid} . '}', bare => 1);
    my @type = (type => 'application/connect+json');

    is($c->next->{event}{start}{pid}, $f->{pid}, 'Connect');
    is_ok(ask('SendInput', { pid => $f->{pid}, data => "in\n" }, @type),
          'SendInput');
    ok($c->until(qr/^in\n/));
    is_ok(ask('SendSignal', { pid => $f->{pid}, signal => 15 }, @type),
          'SendSignal');
    is($f->rest->{end}{status}, 'signal: terminated');

    $f = start($s, 'sleep 60', pty => {});
    is_ok(ask('Update', { pid => $f->{pid}, $_->[0] => $_->[1] }, @type),
          "Update by $_->[0]")
        for [ size => { rows => 10, cols => 20 } ],
            [ pty => { size => { rows => 10, cols => 20 } } ];
    is_ok(ask('Update', { pid => $f->{pid}, rows => 3, cols => 4 }, @type));
    end_it($f);
};


subtest '100 MB' => sub {
    my @workers = workers();

    out('head -c 5000000 /dev/zero');

    my $f = start($s, 'head -c 100000000 /dev/zero | tr "\\\\0" x',
                  stdin => $FALSE);
    my ($before, $most, $last) = (rss(@workers), 0, '');
    my $got = 0;

    # not parsed: a run of "x" is "eHh4" again and again

    for (my $n = 0; ; $n++) {
        my $piece = SandboxTest::More::read_some($f->{s}, time + within(60),
                                                 $MB);
        last if !defined $piece || $piece eq '';

        $got += $piece =~ tr/H//;
        $last = substr $last . $piece, -4096;

        if ($n % 100 == 0) {
            my $rss = rss(@workers);
            $most = $rss if $rss > $most;
        }
    }

    like($last, qr/"exitCode":0.*\x02\0\0\0\x02\{\}\r\n0\r\n\r\n\z/s,
         'to its end');
    cmp_ok($got, '>=', 33_000_000, 'all of it');

    SKIP: {
        skip 'a sanitizer keeps freed memory', 1 if $SandboxTest::SANITIZE;
        cmp_ok($most - $before, '<', 8 * $MB,
               'memory of the workers is flat')
            or diag("$before, at most $most");
    }
};


subtest 'slow readers' => sub {
    my $mark = "slow$$";
    my @workers = workers();
    my $before = rss(@workers);
    my @f = map { start($s, [ 'yes', $mark ], rcvbuf => 65536) } 1 .. 20;

    ok(stands_still($s, 60), 'their commands wait');

    SKIP: {
        skip 'a sanitizer keeps freed memory', 1 if $SandboxTest::SANITIZE;
        cmp_ok(rss(@workers) - $before, '<', 20 * $MB / 2,
               'each holds less than half a megabyte');
    }

    $_->close for @f;

    # nobody looks at them any more, and they go on

    is(scalar(live()), 20, 'they live');
    is_ok(ask('SendSignal', { process => { pid => $_ }, signal => 9 }))
        for live();
};


subtest 'a worker that is to end' => sub {
    my $path = $t->prefix . '/conf/nginx.conf';
    my $conf = SandboxTest::slurp($path);

    $conf =~ s/^worker_shutdown_timeout .*;/worker_shutdown_timeout 2s;/m
        or die 'no worker_shutdown_timeout';
    open my $file, '>', $path or die $!;
    print $file $conf;
    close $file;
    $t->reload;

    my @old = workers();
    my $f = start($s, 'while read x; do echo "got $x"; done; exit 6');

    $t->reload;
    is_ok(write_to($f, "1\n"));
    ok($f->until(qr/got 1\n/), 'a stream goes on in it');

    my $r = $f->rest(10);

    is($r->{error}{code}, 'aborted', 'until it must end');

    my $c = follow_again(pid($f));

    $c->next;
    is_ok(write_to($f, "2\n"));
    is($c->until(qr/got 2\n/)->{stdout}, "got 2\n",
       'and what ran can be looked at in the next');
    ok((until_true { !grep { kill 0, $_ } @old } 10), 'it has ended');
    is_ok(ask('CloseStdin', pid($f)));
    is($c->rest->{end}{exitCode}, 6);
};


subtest 'a session that ends' => sub {
    my $f = start($s, 'echo x; exec sleep 60', stdin => $FALSE);

    $f->until(qr/x/);
    destroy($s);

    my $r = $f->rest;

    is_deeply([ @$r{qw(closed end)} ], [ 0, undef ], 'is no end of a stream');
    ok($f->{eof} && !$f->{whole}, 'which breaks');
    is(ask('List')->{status}, 502, 'then it is not there');
};

$t->finish;
done_testing();
