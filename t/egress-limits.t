#!/usr/bin/perl

# Limits of what goes over a session's network, and what is told of it.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";

use Digest::SHA qw(sha256_hex);
use JSON::PP ();
use Test::More;
use SandboxTest;
use SandboxTest::Net;

my $net = SandboxTest::Net->new;
my $t = $net->server(server => <<'SERVER', http => <<'CONF');
        location = /metrics { sandbox_api metrics; }
SERVER
    sandbox_egress allow *;
    sandbox_max connections=40 network_rate=1GB;
    sandbox_audit_log logs/audit.log;
CONF
my $audit = $t->prefix . '/logs/audit.log';
my $at = '203.0.113.10';


sub session {
    my (%resources) = @_;

    return $t->session(manifest => { network => JSON::PP::true,
                                     resources => { %resources } });
}

sub usage { return $t->api(GET => "/sessions/$_[0]")->{json}{usage} }

sub python {
    my ($id, $code, @args) = @_;

    return $t->run($id, [ 'python3', '-c', $code, @args ])->{stdout} // '';
}


subtest 'connections at once' => sub {
    my $id = session(connections => 5);
    my $other = session();
    my $got = python($id, <<'PY', $at);
import socket, sys
def opened():
    s = socket.socket()
    try:
        s.connect((sys.argv[1], 7000))
        s.sendall(b"x")
        return s, s.recv(1) == b"x"
    except OSError:
        return s, False
kept = [opened() for _ in range(8)]
print(sum(ok for _, ok in kept))
kept[0][0].close()
import time
for _ in range(100):
    s, ok = opened()
    if ok:
        break
    time.sleep(0.02)
print(ok)
PY
    is($got, "5\nTrue\n", 'five, and another when one has ended');
    is(($net->try($other, { do => 'http', to => $at, port => 80 }))[0]{status},
       200, 'of one session alone');
    is(usage($id)->{network_refused} >= 3, 1, 'the rest is counted')
        or diag(explain(usage($id)));
    is($t->api(POST => '/sessions',
               { tenant_id => 't', user_id => 'u', manifest => {
                     network => JSON::PP::true,
                     resources => { connections => 41 } } })->{json}{code},
       'E2002', 'no more than the operator grants');
};


# One second's worth may go at once.

subtest 'bytes in a second' => sub {
    my $id = session(network_rate => 4_000_000);
    my $got = python($id, <<'PY', $at);
import socket, sys, time
began, n = time.monotonic(), 0
s = socket.create_connection((sys.argv[1], 7002), 5)
s.sendall(b"8000000\n")
while data := s.recv(65536):
    n += len(data)
print(n, time.monotonic() - began)
PY
    my ($n, $took) = split ' ', $got;
    is($n, 8_000_000, 'all of it comes');
    cmp_ok($took, '>', 0.9, 'not before its time');
    cmp_ok($took, '<', 2.6 * $SandboxTest::SLOW, 'nor long after');
};


subtest 'bytes in all' => sub {
    my $id = session(network_bytes => 1_000_000);
    my $code = <<'PY';
import socket, sys
n = 0
s = socket.socket()
try:
    s.connect((sys.argv[1], 7002))
    s.sendall(b"5000000\n")
    while data := s.recv(65536):
        n += len(data)
    print(n, "end")
except OSError:
    print(n, "reset")
PY
    my ($n, $how) = split ' ', python($id, $code, $at);
    is($how, 'reset', 'cuts what goes on');
    cmp_ok($n, '<=', 1_000_000, 'no byte more');
    is(python($id, $code, $at), "0 reset\n", 'then nothing goes');

    my $u = usage($id);
    cmp_ok($u->{network_received} + $u->{network_sent}, '<=', 1_000_000,
           'as is told');
    cmp_ok($u->{network_received}, '>', 500_000, 'all that was granted went');
};


subtest 'what was sent and received is told' => sub {
    my $id = session();
    my $data = join '', map { chr($_ * 7 % 251) } 1 .. 100_003;
    my $got = python($id, <<'PY', $at, '30');
import socket, sys
data = bytes(n * 7 % 251 for n in range(1, 100004))
s = socket.create_connection((sys.argv[1], 7004), 5)
for _ in range(int(sys.argv[2])):
    s.sendall(data)
s.shutdown(socket.SHUT_WR)
print(s.makefile().read(), end="")
PY
    my ($n, $sum) = split ' ', $got;
    is($n, 30 * 100_003, 'a side that has ended still hears');
    is($sum, sha256_hex($data x 30), 'and every byte was as it was');

    my $u;
    SandboxTest::wait_for(sub {
        $u = usage($id);
        return $u->{connections} == 0;
    }, 5);
    is($u->{connections}, 0, 'none is open');
    is($u->{network_sent}, 30 * 100_003, 'sent');
    is($u->{network_received}, length $got, 'received');
    is($u->{network_refused}, 0, 'refused');

    my $held = $net->hold($id, $at);
    is(usage($id)->{connections}, 1, 'one is open');
};


subtest 'who does not read is not read for' => sub {
    my $id = session();
    my $got = python($id, <<'PY', $at);
import socket, sys
s = socket.create_connection((sys.argv[1], 7006), 5)
s.settimeout(0.5)
n = 0
try:
    while True:
        n += s.send(b"x" * 65536)
except TimeoutError:
    print(n)
PY
    cmp_ok($got, '>', 0, 'something goes');
    cmp_ok($got, '<', 16 << 20, 'and no more than lies on the way');
    is(($net->try($id, { do => 'http', to => $at, port => 80 }))[0]{status},
       200, 'others do not wait for it');
};

# Lines of the audit log about a session, once there are so many.

sub lines {
    my ($id, $count) = @_;

    my @lines;

    SandboxTest::wait_for(sub {
        @lines = grep { /"op":"network_refused".*"session_id":"\Q$id\E"/ }
                 split /\n/, SandboxTest::slurp($audit) // '';
        return @lines >= $count;
    }, 10);

    return map { JSON::PP->new->utf8->decode($_) } @lines;
}

sub refusals {
    my ($why) = @_;

    my ($n) = $t->http(GET => '/metrics')->{body}
              =~ /^sandbox_network_refused_total\{reason="$why"\} (\d+)$/m;

    return $n;
}


subtest 'what is refused is told' => sub {
    my $id = $t->session(tenant_id => 'acme', user_id => 'ann', manifest => {
        network => { allow => [ 'a.example.org' ] } });
    my %before = map { $_ => refusals($_) }
                 qw(rule address name hidden query protocol);

    $net->try($id, { do => 'lookup', name => 'a.example.org' },
              { do => 'http', to => '203.0.113.12', port => 8080 },
              { do => 'http', to => '10.20.30.40', port => 80 },
              { do => 'http', to => $at, port => 80, host => 'other.test' },
              { do => 'hello', to => $at, port => 443 },
              { do => 'ask', name => "sec'ret\x{7f}.other.test" },
              { do => 'ask', name => 'other.test' },
              { do => 'tcp', to => $at, port => 80, send => [
                    "GET / HTTP/1.1\r\nHost: a.example.org\r\n"
                    . "Content-Length: 1\r\nContent-Length: 2\r\n\r\n" ] });

    my @lines = lines($id, 6);
    my %of = map { ("$_->{refused} " . ($_->{to_port} // '-')) => $_ } @lines;

    is_deeply([ @{ $of{'rule 8080'} || {} }{qw(to_address to_name tenant_id
                                               user_id)} ],
              [ '203.0.113.12', undef, 'acme', 'ann' ], 'an address')
        or diag(explain(\@lines));
    is($of{'address 80'}{to_address}, '10.20.30.40', 'a private one');
    is("@{ $of{'name 80'} || {} }{qw(to_address to_name)}",
       "$at other.test", 'a name at an address');
    is($of{'hidden 443'}{to_address}, $at, 'no name');
    is($of{'protocol 80'}{to_address}, $at, 'what is no HTTP');
    my ($asked) = grep { ($_->{to_name} // '') eq 'other.test'
                         && $_->{refused} eq 'query' } @lines;
    ok($asked && !defined $asked->{to_address}, 'a name that was asked for');
    like($lines[0]{time} // '', qr/^\d{4}-\d\d-\d\dT.*Z$/, 'when');
    is((grep { /[^ -~]/ } map { $_->{to_name} // '' } @lines), 0,
       'nothing that is not printable');

    cmp_ok(refusals($_), '>', $before{$_}, "$_ is counted")
        for sort keys %before;
    ok($t->log_has(qr/203\.0\.113\.12.*\b\Q$id\E|\Q$id\E.*203\.0\.113\.12/),
       'and is in the log') or diag(grep { /\Q$id\E/ } split /^/, $t->log);
};


subtest 'whoever is there to write it' => sub {
    my $id = session();
    my $refused = { do => 'http', to => '10.20.30.40', port => 80 };
    my $written = sub {
        my ($name) = @_;

        my @before = lines($id, 0);

        # what is refused while nobody listens is only counted

        ok(SandboxTest::wait_for(sub {
            $net->try($id, $refused);
            my @now = lines($id, 0);
            return @now > @before;
        }, 10), $name);
    };

    $written->('a worker');
    $t->reload;
    $written->('the next');

    my $broker = $t->broker;
    $t->hit(KILL => $broker);
    SandboxTest::wait_for(sub { ($t->broker // 0) != $broker && $t->ready },
                          10);
    $written->('and after a broker has died');
};

$t->finish;
done_testing();
