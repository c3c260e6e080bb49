#!/usr/bin/perl

# Results of code that are as large as they may be, in every form that an
# answer has: no turn of a worker takes longer for them than it may, others
# are served in between, and each byte arrives.
#
# With SANDBOX_TEST_LONG every kind of result is told in every form, else in
# two of the four.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../lib";

use Digest::SHA qw(hmac_sha256_hex);
use Test::More;
use SandboxTest::More;
use SandboxTest::Code;
use SandboxTest::Turns;

BEGIN {
    my $why = SandboxTest::Turns::missing();
    plan(skip_all => $why) if $why;
}

my $MB = 1024 * 1024;
my $LONG = $ENV{SANDBOX_TEST_LONG};
my $turns = SandboxTest::Turns->new;
my $t = code_server(workers => 1, extra => <<'CONF');
        location /e2b/ { sandbox_api e2b; }
CONF

ok($turns->loaded, 'turns are measured');

my ($worker) = workers();
my $s = create_ok({ manifest => { resources => { memory => '1GB' } } });
my $token = hmac_sha256_hex("envd $s", slurp($t->prefix . '/token.key'));



# How each form is asked for, and whether it has names of its own for what is
# shown, and nothing but ASCII.

my %forms = (
    answer => [ "/v1/sessions/$s/code", {}, 0, 0 ],
    stream => [ "/v1/sessions/$s/code",
                { Accept => 'application/x-ndjson' }, 0, 0 ],
    execute => [ '/e2b/execute', { 'E2b-Sandbox-Port' => 49999 }, 1, 1 ],
    rpc => [ '/e2b/code.CodeInterpreter/Execute',
             { 'E2b-Sandbox-Port' => 49983 }, 1, 0 ]
);

my %own = ('text/plain' => 'text', 'text/html' => 'html',
           'image/png' => 'png', 'application/json' => 'json');


sub ask {
    my ($form, $code) = @_;

    my ($path, $headers) = @{ $forms{$form} };
    my $c = open_request(POST => "/$path", json => { code => $code },
                         headers => { %$headers, 'E2b-Sandbox-Id' => $s,
                                      'X-Access-Token' => $token });
    my $head = read_head($c, timeout => within(60));
    my ($raw, $body, $at) = ($head->{rest}, '', 0);

    for ( ;; ) {
        my $more = SandboxTest::More::read_some($c, time + within(60), $MB);
        last if !defined $more || $more eq '';
        $raw .= $more;
    }

    close $c;
    pos($raw) = 0;

    if (($head->{headers}{'transfer-encoding'} // '') ne 'chunked') {
        return { status => $head->{status}, body => $raw,
                 whole => ($head->{headers}{'content-length'} // -1)
                          == length $raw };
    }

    while ($raw =~ /\G([0-9a-f]+)\r\n/gc) {
        $at = pos $raw;
        last if $1 eq '0';
        $body .= substr $raw, $at, hex $1;
        pos($raw) = $at + 2 + hex $1;
    }

    return { status => $head->{status}, body => $body,
             whole => $at == length($raw) - 2 };
}


# Frames of an interpreter, which the code in it may write as it likes.

my $PYTHON = <<'PY';
import os, socket, sys
frame = sys._getframe()
while not hasattr(frame.f_locals.get('self'), 'channel'): frame = frame.f_back
kernel = frame.f_locals['self']
def say(kind, *fields):
    body = b''.join(b'%s %d\n%s\n' % (k.encode(), len(v), v)
                    for k, v in (('id', kernel.id),) + fields)
    with socket.socket(fileno=os.dup(kernel.channel.fd)) as s:
        s.sendall(b'%s %d\n' % (kind, len(body)))
        s.sendall(body)
def show(name, value):
    say(b'result', ('main', b'0'), (name, value))
PY

my $told = 0;

sub code_of { return "$PYTHON$_[0]" }


# What is shown, by which name, and how its value is told: by the native API,
# and by the other in UTF-8 and in ASCII where they differ.

my $QUOTED = '\n' x 4_700_000;
my $FACE = "\xf0\x9f\xa4\xa3";

my %kinds = (
    'an image' => [ 'image/png', "b'YWJj' * 2_400_000",
                    '"' . 'YWJj' x 2_400_000 . '"' ],
    'HTML' => [ 'text/html', "b'<b>\\n' * 2_400_000",
                '"' . '<b>\n' x 2_400_000 . '"' ],
    'a text that is all escapes' =>
        [ 'text/html', "b'\\x01' * 3_300_000",
          '"' . '\u0001' x 3_300_000 . '"' ],
    'a text in quotes' =>
        [ 'text/plain', "b'\"' + b'\\n' * 4_700_000 + b'\"'",
          "\"\\\"$QUOTED\\\"\"", "\"$QUOTED\"" ],
    'a text of no ASCII' =>
        [ 'text/plain', "b'\\xf0\\x9f\\xa4\\xa3' * 1_600_000",
          '"' . $FACE x 1_600_000 . '"', undef,
          '"' . '\ud83e\udd23' x 1_600_000 . '"' ],
    'a text that is no UTF-8' =>
        [ 'text/plain', "b'\\xff' * 3_000_000",
          '"' . "\xef\xbf\xbd" x 3_000_000 . '"', undef,
          '"' . '\ufffd' x 3_000_000 . '"' ],
    'JSON' => [ 'application/json', "b'[' + b'{\"a\":[1,\\n2]},' * 600_000"
                                    . " + b'null]'",
                '[' . '{"a":[1,2]},' x 600_000 . 'null]' ],
    'a string as JSON' =>
        [ 'application/json', "b'\"' + b'\\xf0\\x9f\\xa4\\xa3' * 1_600_000"
                              . " + b'\"'",
          '"' . $FACE x 1_600_000 . '"', undef,
          '"' . '\ud83e\udd23' x 1_600_000 . '"' ],
    'what is no JSON at its end' =>
        [ 'application/json', "b'[' + b'\"\",' * 3_000_000",
          '"[' . '\"\",' x 3_000_000 . '"' ],
);


sub is_told {
    my ($form, $kind) = @_;

    my (undef, undef, $names, $ascii) = @{ $forms{$form} };
    my ($type, $value, $text, $own, $plain) = @{ $kinds{$kind} };
    my $name = $names ? $own{$type} : $type;
    my $r;

    $text = $own if $names && defined $own;
    $text = $plain if $ascii && defined $plain;

    $turns->brief("$kind, $form", sub {
        $r = ask($form, code_of("show('$type', $value)"));
    });

    is($r->{status}, 200, 'is answered');
    ok($r->{whole}, 'to its end');

    my $at = index $r->{body}, "\"$name\":", index $r->{body}, 'result';

    ok($at != -1
       && substr($r->{body}, $at + 3 + length $name, length $text) eq $text,
       'each byte of it')
        or diag(length $r->{body}, ' ', substr $r->{body}, 0, 400);

    return;
}


is(code($s, code_of($PYTHON))->{error}, undef, 'an interpreter');

for my $kind (sort keys %kinds) {
    subtest $kind => sub {
        my @two = sort keys %forms;

        @two = @two[map { ($told + $_) % 4 } 0, 2] if !$LONG;
        is_told($_, $kind) for @two;
        $told++;
    };
}


subtest 'an error' => sub {
    my $text = 'line\n' x 900_000;

    for my $form (sort keys %forms) {
        my $r;

        $turns->brief("a traceback, $form", sub {
            $r = ask($form, code_of("say(b'error', ('name', b'E'), "
                     . "('value', b'v'), ('traceback', b'line\\n' * "
                     . "900_000))"));
        });

        is($r->{status}, 200, "$form: is answered");
        ok($r->{whole}, 'to its end');

        # a stream tells of it at once, and its end does again

        my @all = split /"name":"E","value":"v","traceback":"/, $r->{body};
        my $times = $form eq 'stream' ? 2 : 1;

        is(scalar @all - 1, $times, "told $times time(s)");
        ok(!(grep { index($_, "$text\"") != 0 } @all[1 .. $times]),
           'each byte of it');
    }
};


subtest 'many that are small' => sub {
    for my $form (sort keys %forms) {
        my $r;

        $turns->brief("3000 results, $form", sub {
            $r = ask($form, code_of("for n in range(3000): "
                                    . "show('text/html', b'<b>%04d' % n"
                                    . " + b'\\n' * 1000)"));
        });

        my @all = $r->{body} =~ /"<b>(\d{4})(?:\\n){1000}"/g;

        ok($r->{whole}, "$form: to its end");
        is("@all", join(' ', map { sprintf '%04d', $_ } 0 .. 2999),
           'each, in order');
    }
};


# A text whose end decides how it is told: it is written while the client
# waits, and the run waits with it.

my $SLOW = "show('text/plain', b'\"' + b'\\n' * 4_700_000 + b'\"')\n"
           . "show('application/json', b'[' + b'1,' * 200_000)\n";

subtest 'others meanwhile, and clients that go away or are slow' => sub {
    my $job = async {
        my @r = map { my $r = ask('execute', code_of($SLOW)); $r->{whole} }
                1 .. 2;
        "@r";
    };
    my ($served, $ready) = (0, 0);

    $turns->brief('two, and others', sub {
        until ($ready) {
            $ready = $job->ready;
            $served++ if call('GET', '/sessions/none')->{status} == 404;
        }
    });

    is($job->get, '1 1', 'each is told to its end');
    cmp_ok($served, '>', 20, "others are served in between: $served");

    my $fds = fds($worker);

    for my $form (sort keys %forms) {
        my ($path, $headers) = @{ $forms{$form} };
        my $c = open_request(POST => "/$path", rcvbuf => 4096,
                             json => { code => code_of("$SLOW$SLOW") },
                             headers => { %$headers, 'E2b-Sandbox-Id' => $s,
                                          'X-Access-Token' => $token });

        sysread $c, my $some, 100;
        is(length $some, 100, "$form: it is being told");
        is(call('GET', '/sessions/none')->{status}, 404, 'others are served');
        close $c;
        ok(until_true(sub { fds($worker) == $fds }, 30),
           'and it is forgotten');
        ok(until_true(sub {
            (context($s, 'python')->{state} // '') ne 'running'
        }, 60), 'with its run');
    }

    my $c = open_request(POST => "/sessions/$s/code", rcvbuf => 65536,
                         json => { code => code_of("$SLOW\nprint('end')") },
                         headers => { Accept => 'application/x-ndjson' });
    my ($n, $tail) = (0, '');

    while (sysread $c, my $some, $n < 60_000 ? 7 : $MB) {
        $n += length $some;
        $tail = substr $tail . $some, -1200;
    }

    cmp_ok($n, '>', 9_800_000, 'a slow reader has all of it');
    like($tail, qr/"type":"end".*"reason":"exited".*\r\n0\r\n\r\n\z/s,
         'and its end');
};


is(code($s, code_of('6 * 7'))->{text}, '42', 'the interpreter lives');
destroy($s);
$t->finish;
done_testing();
