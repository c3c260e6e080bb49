#!/usr/bin/perl

# Credentials that the egress adds for a session, which never has them.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";

use JSON::PP ();
use Test::More;
use SandboxTest;
use SandboxTest::Net;

my $net = SandboxTest::Net->new;
my @values = map { "Bearer $_-" . join '', map { ('a' .. 'z')[rand 26] }
                   1 .. 32 } qw(plain tls);

for my $n (0, 1) {
    my $path = "$net->{dir}/value$n";
    open my $f, '>', $path or die $!;
    print $f "$values[$n]\n";
    close $f;
    chmod 0600, $path;
}

my $t = $net->server(http => <<"CONF");
    sandbox_egress allow *.example.org *.example.net;
    sandbox_egress_header a.example.org Authorization $net->{dir}/value0;
    sandbox_egress_header b.example.org X-Api-Key $net->{dir}/value1 tls;
    sandbox_egress_ca @{[ $net->ca ]};
    sandbox_template plain { egress allow *.example.org; }
CONF

my $id = $t->session(manifest => { network => JSON::PP::true });

$t->http(PUT => "/v1/sessions/$id/files/ca.pem",
         body => SandboxTest::slurp($net->ca));


# An answer that does not say what was asked.

sub http {
    my ($to, $port, @headers) = @_;

    return { do => 'http', to => $to, host => $to, port => $port // 80,
             path => '/bytes/5', headers => \@headers };
}

sub tls { return { %{ http(@_[0, 1]) }, tls => 1, @_[2 .. $#_] } }

# Of the one request that came to the world.

sub header {
    my ($name) = @_;

    my @seen = $net->seen('http', 'https');
    is(scalar @seen, 1, 'one request has come');

    return join '|', @{ $seen[0]{headers}{$name} || [] };
}


subtest 'HTTP' => sub {
    my ($r) = $net->try($id, http('a.example.org'));
    is($r->{status}, 200, 'a request');
    is(header('authorization'), $values[0], 'has the header');

    ($r) = $net->try($id, http('a.example.org', 80, 'AUTHORIZATION: mine'));
    is(header('authorization'), $values[0], 'in place of its own');

    ($r) = $net->try($id, http('c.example.net', 80));
    is($r->{status}, 200, 'another host');
    is(header('authorization'), '', 'has none');

    ($r) = $net->try($id, http('b.example.org', 80));
    is(header('x-api-key'), $values[1], 'one of TLS is for HTTP too');

    ($r) = $net->try($id, http('a.example.org', 80,
                               'Connection: Authorization'));
    my @seen = $net->seen('http');
    ok(!@seen || $seen[0]{headers}{authorization}[0] eq $values[0],
       'and no word of a client takes it away');

    my $other = $t->session(template => 'plain',
                            manifest => { network => JSON::PP::true });
    ($r) = $net->try($other, http('a.example.org'));
    is(header('authorization'), '', 'nor has another template');
};


subtest 'requests that would say it' => sub {
    my @r = $net->try($id,
        { do => 'tcp', to => 'a.example.org', port => 80, once => 1,
          send => [ "TRACE / HTTP/1.1\r\nHost: a.example.org\r\n\r\n" ] },
        { do => 'tcp', to => '203.0.113.10', port => 80, once => 1,
          send => [ "GET / HTTP/1.1\r\nHost: c.example.net\r\n\r\n" ] });

    refused($r[0], 'TRACE');
    refused($r[1], 'another name at its address');
    is_deeply([ $net->seen('http', 'part') ], [], 'nothing has come');
};


subtest 'TLS' => sub {
    my ($r) = $net->try($id, tls('b.example.org', 443));
    is($r->{status}, 200, 'a host that the operator named')
        or diag(explain($r));
    like($r->{issuer} // '', qr/sandbox egress/, 'as the egress shows it');
    is(header('x-api-key'), $values[1], 'has the header');

    ($r) = $net->try($id, tls('a.example.org', 443, ca => 'ca.pem'));
    is($r->{status}, 200, 'one that he did not');
    like($r->{issuer} // '', qr/world-ca/, 'is spoken to as it is');
    is(header('authorization'), '', 'and has none');

    my $res = $t->run($id, [ qw(curl -sS -o /dev/null -w %{http_code}
                                https://b.example.org/bytes/5) ]);
    is($res->{stdout}, 200, 'what the session has trusts it')
        or diag($res->{stderr});
    $net->seen;

    my $other = $t->session(template => 'plain',
                            manifest => { network => JSON::PP::true });
    ($r) = $net->try($other, tls('b.example.org', 443));
    is($r->{error}, 'SSLCertVerificationError',
       'others trust nobody whom they need not');
};


subtest 'the value is nowhere in the session' => sub {
    my $kept = $t->api(POST => "/sessions/$id/exec",
        { cmd => [ 'python3', '-c', <<'PY' ], background => JSON::PP::true });
import socket, ssl, time
kept = []
for name, tls in (("a.example.org", 0), ("b.example.org", 1)):
    s = socket.create_connection((name, 443 if tls else 80), 5)
    if tls:
        s = ssl.create_default_context().wrap_socket(s, server_hostname=name)
    s.sendall(b"GET /bytes/3 HTTP/1.1\r\nHost: %s\r\n\r\n" % name.encode())
    kept.append((s, s.recv(65536)))
open("ready", "w").close()
time.sleep(600)
PY
    SandboxTest::wait_for(sub {
        return $t->http(GET => "/v1/sessions/$id/files/ready")->{status}
               == 200;
    }, 5);

    my $res = $t->run($id, [ 'grep', '-rslaF', '-e', 'Bearer plain-', '-e',
                             'Bearer tls-', '/etc', '/home', '/tmp', '/run',
                             '/var', '/dev/shm' ], user => 'root');
    is($res->{stdout}, '', 'in no file');

    # as the host sees the memory of all that runs there

    my ($ns, @found, $scanned);
    my $of = sub { return readlink("/proc/$_[0]/ns/pid") // '' };

    $ns = $of->($_) for grep {
        (SandboxTest::slurp("/proc/$_/cmdline") // '') =~ /kept = \[\]/
    } map { m{(\d+)$} } glob '/proc/[0-9]*';
    ok($ns, 'its processes are seen');

    for my $pid (grep { $of->($_) eq $ns } map { m{(\d+)$} }
                 glob '/proc/[0-9]*')
    {
        $scanned++;
        for my $file (qw(environ cmdline)) {
            push @found, "$pid $file"
                if (SandboxTest::slurp("/proc/$pid/$file") // '')
                   =~ /Bearer (?:plain|tls)-/;
        }

        push @found, "$pid memory" if in_memory($pid);
    }

    cmp_ok($scanned, '>=', 2, 'init is one of them');
    is_deeply(\@found, [], 'in no memory, and no environment');
};


sub in_memory {
    my ($pid) = @_;

    no warnings 'portable';

    open my $mem, '<', "/proc/$pid/mem" or return 0;
    binmode $mem;

    for my $line (split /\n/, SandboxTest::slurp("/proc/$pid/maps") // '') {
        my ($from, $to) = $line =~ /^([0-9a-f]+)-([0-9a-f]+) rw/ or next;
        my $size = hex($to) - hex($from);

        sysseek $mem, hex($from), 0 or next;
        sysread($mem, my $data, $size) or next;
        return 1 if index($data, $values[0]) >= 0
                    || index($data, $values[1]) >= 0;
    }

    return 0;
}

$t->finish;
done_testing();
