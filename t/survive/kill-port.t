#!/usr/bin/perl

# A request to a port, and each of the processes that have to do with it killed
# in each phase until the program inside is connected: who asks has its answer
# or is told that there is none, the program is asked once at most, and nobody
# keeps anything of it.  SANDBOX_TEST_LONG=1 kills every process at every
# point.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../lib";

use JSON::PP ();
use Test::More;
use SandboxTest::Fault;
use SandboxTest::Kill;
use SandboxTest::More;

# What the client gets: whole; again (whole, by a call that was sent twice);
# cut (no answer); gone (an error, the session is no more).  "held" stands at
# the point.

my @CASES = (
    [ 'broker-port-linked',
      { held => 'again', worker => 'cut', keeper => 'whole',
        init => 'gone' } ],
    [ 'broker-call-handed',
      { held => 'whole', keeper => 'whole' } ],
    [ 'init-task-taken',
      { held => 'gone', worker => 'cut', broker => 'whole',
        keeper => 'whole' } ],
    [ 'init-port-accepted',
      { held => 'gone', worker => 'cut', broker => 'whole' } ],
    [ 'worker-port-accepted',
      { held => 'cut', broker => 'whole', keeper => 'whole',
        init => 'gone' }, 'init' ],
);

my %EXPECTED = (
    whole => { answer => qr/^200 hello$/, asked => 1, again => 0 },
    again => { answer => qr/^200 hello$/, asked => 1, again => 1 },
    cut   => { answer => qr/^cut$/, asked => 0, again => 0 },
    gone  => { answer => qr/^(?:404 E2009|50[23] E500[12])$/, asked => 0 },
);

my $AGAIN = qr/sandbox call was lost and is sent again/;
my $SERVER = <<'END';
import http.server

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        with open('/mnt/shared/asked', 'a') as f:
            f.write('x\n')
        self.send_response(200)
        self.send_header('Content-Length', '5')
        self.end_headers()
        self.wfile.write(b'hello')

http.server.ThreadingHTTPServer(('127.0.0.1', 8000), Handler).serve_forever()
END

my $t = kill_server();
my ($id, $open);

bystander();

sub descriptors { return scalar(() = glob '/proc/' . init_of($id) . '/fd/*') }

sub serving {
    $id = victim(manifest => { capabilities => [qw(shell files ports)] });
    put($id, 'server.py', $SERVER);
    is(exec_call($id, [qw(python3 server.py)],
                 background => JSON::PP::true)->{status}, 202, 'a server');
    ok((until_true {
        run($id, q(grep ':1F40 .* 0A ' /proc/net/tcp || true))->{stdout} ne ''
    } 20), 'that listens');
    $open = descriptors();

    return;
}

sub got {
    my ($res) = @_;

    return 'cut' if cut_off($res);
    return "$res->{status} " . ($res->{json}{code} // $res->{body} // '');
}

sub case {
    my ($point, $victim, $outcome) = @_;

    my $name = "$point, $victim killed";
    my $want = $EXPECTED{$outcome};
    my ($again, $asked) = ($t->log_has($AGAIN), lines('asked'));

    my $line = strike($point, $victim, $id, sub {
        ask($_[0], GET => "/sessions/$id/ports/8000/");
    }, name => $name) or return;

    like(got(answer($line)), $want->{answer}, "$name: the answer ($outcome)");
    ok(recovered(), "$name: all is served again");
    is(lines('asked') - $asked, $want->{asked},
       "$name: how often the program was asked");
    is($t->log_has($AGAIN) - $again, $want->{again},
       "$name: how often it was sent again") if defined $want->{again};

    if (!SandboxTest::alive(init_of($id))) {
        gone_with($id, "$name: the session is gone");
        serving();

    } else {
        is(got(answer(ask(dial(), GET => "/sessions/$id/ports/8000/"))),
           '200 hello', "$name: then there is an answer");
        ok((until_true { descriptors() <= $open } 20),
           "$name: the first process has as much open as before")
            or diag("$open before, " . descriptors() . ' after');
    }

    others_live_on("$name: another session goes on");

    return;
}

serving();

for my $row (@CASES) {
    my ($point, $outcomes, $too) = @$row;

    for my $victim (qw(held worker broker keeper init)) {
        case($point, $victim, $outcomes->{$victim})
            if $outcomes->{$victim}
               && ($LONG || $victim eq 'held' || $victim eq ($too // ''));
    }
}

is(destroy($id)->{status}, 204, 'nobody holds its ports any more');
kill_finish();
done_testing();
