#!/usr/bin/perl

# What a session may ask for names, what it is told, and how soon; a name
# server that does what it should not does no harm.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";

use JSON::PP ();
use Test::More;
use SandboxTest;
use SandboxTest::Net;

my $net = SandboxTest::Net->new(zone => {
    'chain.example.org' => { CNAME => 'two.example.net' },
    'two.example.net' => { CNAME => 'three.test' },
    'three.test' => { A => '203.0.113.16' },
    'loop.example.org' => { CNAME => 'loop2.example.org' },
    'loop2.example.org' => { CNAME => 'loop.example.org' },
    'huge.example.org' => { many => 1000 },
    'broken.example.org' => { rcode => 'SERVFAIL' },
    'tcp.example.org' => { tc => 1, A => '203.0.113.17' },
    'short.example.org' => [ { ttl => 1, A => '203.0.113.10' },
                             { ttl => 1, A => '203.0.113.11' } ],
    'long.example.org' => [ { ttl => 300, A => '203.0.113.10' },
                            { ttl => 300, A => '203.0.113.11' } ],
    '*.wild.example.org' => { A => '203.0.113.10' },
});
my $t = $net->server(http => '    sandbox_egress allow *.example.org;');
my ($id, $two) = map {
    $t->session(manifest => { network => JSON::PP::true }) } 1, 2;

my %code = (0 => 'NOERROR', 1 => 'FORMERR', 2 => 'SERVFAIL', 3 => 'NXDOMAIN',
            4 => 'NOTIMP', 5 => 'REFUSED');


sub ask { return { do => 'ask', name => @_ } }

sub code { return $code{$_[0]{rcode} // -1} // $_[0]{error} }


subtest 'names that are granted' => sub {
    my @r = $net->try($id, ask('a.example.org'),
                      ask('a.example.org', over => 'tcp'),
                      ask('a.example.org', type => 'AAAA'),
                      ask('A.EXAMPLE.ORG'), ask('chain.example.org'),
                      ask('a.example.org', server => '203.0.113.99'),
                      ask('a.example.org', server => '2001:db8::99'),
                      ask('tcp.example.org'));

    is_deeply($r[$_]{found}, [ '203.0.113.10' ], "are told, form $_")
        for 0, 1, 3;
    is_deeply($r[2]{found}, [ '2001:db8:2::10' ], 'with IPv6');
    is_deeply($r[4]{found}, [ '203.0.113.16' ],
              'through aliases, which need no grant');
    is_deeply($r[5]{found}, [ '203.0.113.10' ], 'whoever is asked');
    is_deeply($r[6]{found}, [ '203.0.113.10' ], 'of IPv6, too');
    is_deeply($r[7]{found}, [ '203.0.113.17' ],
              'where the server answers over TCP alone');
};


subtest 'names that are not' => sub {
    my $before = () = $net->asked;
    my @r = $net->try($id, ask('other.test'), ask('example.org'),
                      ask('other.test', over => 'tcp'),
                      ask('other.test', type => 'AAAA'),
                      ask('x' x 63 . '.other.test'), ask('three.test'));

    is(code($_), 'NXDOMAIN', 'are none') for @r;
    cmp_ok($_->{ms}, '<', 200 * $SandboxTest::SLOW, 'at once') for @r;
    is(scalar(() = $net->asked), $before, 'and nobody was asked');
};


subtest 'what is no question for an address' => sub {
    my %wanted = (HTTPS => 'NOERROR', SVCB => 'NOERROR', PTR => 'NXDOMAIN',
                  map { $_ => 'REFUSED' } qw(TXT NULL MX NS SOA CNAME AXFR
                                             ANY));
    my @types = sort keys %wanted;
    my @r = $net->try($id, (map { ask('a.example.org', type => $_) } @types),
                      ask('a.example.org', type => 'AXFR', over => 'tcp'));

    is(code($r[$_]), $wanted{$types[$_]}, $types[$_]) for 0 .. $#types;
    is(code($r[-1]), 'REFUSED', 'nor over TCP');
    is_deeply([ grep { !/ A(?:AAA)? / } $net->asked ], [],
              'nobody was asked');
};


subtest 'servers that do what they should not' => sub {
    my @r = $net->try($id, ask('broken.example.org'),
                      ask('loop.example.org'), ask('gone.example.org'));

    is(code($r[0]), 'SERVFAIL', 'one that fails');
    like(code($r[1]), qr/^(?:SERVFAIL|NXDOMAIN|NOERROR)$/, 'a circle');
    is_deeply($r[1]{found} || [], [], 'leads nowhere');
    is(code($r[2]), 'NXDOMAIN', 'a name that there is none of');

    @r = $net->try($id, ask('huge.example.org'),
                   ask('huge.example.org', over => 'tcp'),
                   ask('a.example.org'));
    ok($r[0]{cut} || @{ $r[0]{found} || [] } <= 32, 'a huge answer')
        or diag(explain($r[0]));
    cmp_ok(scalar @{ $r[1]{found} || [] }, '>', 0, 'has something');
    cmp_ok(scalar @{ $r[1]{found} || [] }, '<=', 32, 'and not all');
    is(code($r[2]), 'NOERROR', 'all goes on');
};


subtest 'answers are kept for their time, for one session' => sub {
    my $asked = sub { return scalar(() = $net->asked($_[0], 'A')) };
    my @r = $net->try($id, ask('long.example.org'), ask('long.example.org'));

    is_deeply($r[1]{found}, [ '203.0.113.10' ], 'not asked for again');
    is($asked->('long.example.org'), 1, 'once');

    @r = $net->try($two, ask('long.example.org'));
    is_deeply($r[0]{found}, [ '203.0.113.11' ], 'but for another');

    ($r[0]) = $net->try($id, ask('short.example.org'));
    is_deeply($r[0]{found}, [ '203.0.113.10' ], 'a short one');
    my $found;
    SandboxTest::wait_for(sub {
        ($found) = $net->try($id, ask('short.example.org'));
        return $found->{found}[0] eq '203.0.113.11';
    }, 5);
    is_deeply($found->{found}, [ '203.0.113.11' ], 'is over after it');
};


subtest 'what was looked up by one is nothing to another' => sub {
    my $get = { do => 'http', to => '203.0.113.11', port => 80,
                host => 'b.example.org' };
    my @r = $net->try($id, { do => 'lookup', name => 'b.example.org' }, $get);
    is($r[1]{status}, 200, 'an address by its name');
    refused(($net->try($two, $get))[0], 'which another has not asked for');
};


subtest 'names as a way out' => sub {
    my $res = $t->run($id, [ 'python3', '-c', <<'PY' ]);
import socket, struct
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.connect(("192.0.0.8", 53))
s.settimeout(1)
codes = {}
for i in range(400):
    name = b"".join(bytes([len(p)]) + p for p in
                    (b"%032x" % i, b"wild", b"example", b"org")) + b"\0"
    s.send(struct.pack("!HHHHHH", i, 256, 1, 0, 0, 0) + name
           + struct.pack("!HH", 1, 1))
try:
    while len(codes) < 400:
        d = s.recv(2000)
        codes[d[:2]] = d[3] & 15
except TimeoutError:
    pass
print(sum(c == 0 for c in codes.values()),
      sum(c == 5 for c in codes.values()))
PY
    my ($ok, $refused) = split ' ', $res->{stdout};
    cmp_ok($ok, '<=', 300, 'is narrow') or diag($res->{stdout});
    cmp_ok($refused, '>', 50, 'the rest is refused');
    my $asked = () = grep { /wild/ } $net->asked;
    cmp_ok($asked, '<=', 300, 'and nobody was asked for it');
    is(code(($net->try($two, ask('a.example.org')))[0]), 'NOERROR',
       'other sessions are served');
};

$t->finish;
done_testing();
