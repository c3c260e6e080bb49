#!/usr/bin/perl

# Ways around the egress that a program in a session might try: everything
# that is no connection as the egress knows it, the rules that lead there, and
# the sockets at their ends.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../lib";

use IO::Select;
use IO::Socket::INET;
use JSON::PP ();
use Test::More;
use SandboxTest;
use SandboxTest::Net;

my $net = SandboxTest::Net->new;
my $t = $net->server(http => <<'CONF');
    sandbox_egress allow 203.0.113.10:80;
    sandbox_template local { egress allow 127.0.0.1; }
CONF
my @ids = map { $t->session(manifest => { network => JSON::PP::true }) } 1, 2;
my $none = $t->session;


# Each line that a script prints is something that it could do.

sub tries {
    my ($id, $script, %more) = @_;

    my $res = $t->run($id, [ 'python3', '-c', <<'PY' . $script ], %more);
import ctypes, errno, os, socket, struct, subprocess, time
libc = ctypes.CDLL(None, use_errno=True)
def attempt(name, what):
    try:
        out = what()
        print(name, "" if out is None else out, sep=": ")
    except (OSError, subprocess.CalledProcessError) as e:
        pass
PY
    return $res->{stdout} . ($res->{stderr} // '');
}

sub world_is_quiet {
    my ($name) = @_;

    local $Test::Builder::Level = $Test::Builder::Level + 1;

    return is_deeply([ $net->seen ], [], $name);
}

is(($net->try($ids[0], { do => 'http', to => '203.0.113.10', port => 80 }))
   [0]{status}, 200, 'what is granted is reached');
$net->seen;

# What there is to find, or all the rest would be silent for nothing.

is(tries($ids[0], 'attempt("x", lambda: 1)'), "x: 1\n", 'a success is seen');


subtest 'sockets that are no connections' => sub {
    for my $who (qw(user root)) {
        is(tries($ids[0], <<'PY', user => $who), '', $who);
for family, kind, number in (
    (socket.AF_INET, socket.SOCK_RAW, 1), (socket.AF_INET, socket.SOCK_RAW, 6),
    (socket.AF_INET, socket.SOCK_RAW, 17),
    (socket.AF_INET, socket.SOCK_RAW, 255),
    (socket.AF_INET6, socket.SOCK_RAW, 58),
    (socket.AF_INET, socket.SOCK_DGRAM, 1),
    (socket.AF_INET6, socket.SOCK_DGRAM, 58),
    (socket.AF_PACKET, socket.SOCK_RAW, 0x300),
    (socket.AF_PACKET, socket.SOCK_DGRAM, 0x300),
    (socket.AF_INET, socket.SOCK_STREAM, 132),
    (socket.AF_INET, socket.SOCK_SEQPACKET, 132),
    (socket.AF_INET, 6, 33), (40, socket.SOCK_STREAM, 0),
    (38, socket.SOCK_SEQPACKET, 0), (44, socket.SOCK_RAW, 0),
    (21, socket.SOCK_SEQPACKET, 0), (30, socket.SOCK_STREAM, 0)):
    def opened():
        s = socket.socket(family, kind, number)
        if number in (1, 58) and kind == socket.SOCK_DGRAM:
            s.connect(("203.0.113.10", 0) if number == 1
                      else ("2001:db8:2::10", 0, 0, 0))
            s.send(b"\x08\0\0\0\0\0\0\0")
    attempt("%d/%d/%d" % (family, kind, number), opened)
PY
    }

    world_is_quiet('nothing has come to the world');
};


subtest 'datagrams' => sub {
    my @r = $net->try($ids[0],
        { do => 'udp', to => '203.0.113.10', port => 443 },
        { do => 'udp', to => '203.0.113.10', port => 80 },
        { do => 'udp', to => '203.0.113.10', port => 7000 },
        { do => 'udp', to => '2001:db8:2::10', port => 443 },
        { do => 'udp', to => '198.51.100.1', port => 443 },
        { do => 'udp', to => '240.0.0.1', port => 7000 });

    refused($_, 'are refused at once') for @r;
    is(tries($ids[0], <<'PY'), '', 'to many at once, too');
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
for host in ("255.255.255.255", "224.0.0.251", "239.1.2.3", "203.0.113.10"):
    def sent():
        for _ in range(2):
            s.sendto(b"x", (host, 443))
            time.sleep(0.01)
    attempt(host, sent)
PY
    world_is_quiet('nothing has come to the world');
};


subtest 'rules, routes and interfaces are not the session\'s' => sub {
    for my $who (qw(user root)) {
        is(tries($ids[0], <<'PY', user => $who), '', $who);
for tool in ("nft list ruleset", "nft flush ruleset", "iptables -F",
             "ip route add 10.0.0.0/8 dev lo",
             "ip addr add 10.1.1.1/32 dev lo",
             "ip link add x type dummy", "ip link set lo down",
             "ip rule add from all lookup 5", "ip netns add x",
             "sysctl -w net.ipv4.ip_forward=1", "conntrack -L",
             "unshare -n true", "unshare -Un true",
             "nsenter -t 1 -n true"):
    attempt(tool, lambda: subprocess.run(tool.split(), check=True,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) and None)
for number in (0, 4, 6, 12, 15, 16, 20, 21):
    def netlink():
        s = socket.socket(16, socket.SOCK_RAW, number)
        s.bind((0, 0))
        # a new rule of routing, a new table of netfilter
        for kind in (32, 0x0a00, 24, 16, 20):
            s.send(struct.pack("IHHII", 28, kind, 0x605, 1, 0)
                   + struct.pack("12B", 2, *([0] * 11)))
            s.settimeout(1)
            got = s.recv(4096)
            if struct.unpack("i", got[16:20])[0] == 0:
                return kind
        raise OSError
    attempt("netlink %d" % number, netlink)
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
import fcntl
for request in (0x8914, 0x8916, 0x890b, 0x8922, 0x89a0, 0x8946):
    attempt("ioctl %x" % request,
            lambda: fcntl.ioctl(s, request, struct.pack("16s16s", b"lo", b"")
                                + bytes(64)) and None)
for path in ("net/ipv4/ip_forward", "net/ipv4/conf/all/route_localnet",
             "net/netfilter/nf_log/2", "net/ipv4/ip_local_port_range",
             "net/ipv4/conf/lo/rp_filter"):
    attempt(path, lambda: os.close(os.open("/proc/sys/" + path, os.O_WRONLY)))
PY
    }
};


subtest 'options of sockets' => sub {
    is(tries($ids[0], <<'PY'), '', 'none leads past the rules');
def told(level, name, value):
    s = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    s.settimeout(2)
    s.setsockopt(level, name, value)
    s.connect(("203.0.113.11", 80))
    s.sendall(b"GET / HTTP/1.0\r\n\r\n")
    return s.recv(10)
def reached(*option):
    if not told(*option):
        raise OSError
for name, option in {
    "mark": (socket.SOL_SOCKET, 36, 0x1234),
    "device": (socket.SOL_SOCKET, 25, b"sbx0\0"),
    "loopback": (socket.SOL_SOCKET, 25, b"lo\0"),
    "index": (socket.IPPROTO_IP, 50, struct.pack("!I", 2)),
    "no route": (socket.SOL_SOCKET, 5, 1),
    "transparent": (socket.IPPROTO_IP, 19, 1),
    "any address": (socket.IPPROTO_IP, 15, 1),
    "source route": (socket.IPPROTO_IP, 4, bytes([131, 7, 4]) + bytes(
        [203, 0, 113, 11]) + b"\0"),
    "record route": (socket.IPPROTO_IP, 4, bytes([7, 7, 4, 0, 0, 0, 0, 0])),
    "fast open": (6, 30, 1), "priority": (socket.SOL_SOCKET, 12, 6),
}.items():
    attempt(name, lambda: reached(*option))
def quick():
    s = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    s.settimeout(2)
    s.sendto(b"GET / HTTP/1.0\r\n\r\n", 0x20000000, ("203.0.113.11", 80))
    if not s.recv(10):
        raise OSError
attempt("data with the first packet", quick)
PY
    world_is_quiet('nothing has come to the world');
};


subtest 'the ends of the rules' => sub {
    # Whatever listens in the session is the session's, but for those sockets.

    my $ports = tries($ids[0], <<'PY');
for name in ("tcp", "udp", "tcp6", "udp6"):
    for line in open("/proc/net/" + name).readlines()[1:]:
        where, state = line.split()[1], line.split()[3]
        if state in ("0A", "07"):
            print(name, int(where.split(":")[1], 16), where.split(":")[0])
PY
    my @ports = $ports =~ /^\S+ (\d+) /mg;

    cmp_ok(scalar @ports, '>=', 2, 'are seen');

    my @r = $net->try($ids[0], map {
        my $port = $_ + 0;
        map { +{ do => 'tcp', to => $_, port => $port, send => [ 'x' ],
                 timeout => 3 } }
            qw(127.0.0.1 192.0.0.8 0.0.0.0 ::1 fd00:5b::1)
    } @ports);
    refused($_, 'connections to themselves') for @r;

    # not even where the host's loopback is granted, and has such a server

    my ($port) = $ports =~ /^tcp (\d+) /m;
    my $server = IO::Socket::INET->new(LocalAddr => "127.0.0.1:$port",
                                       Listen => 5) or die "listen: $!";
    my $local = $t->session(template => 'local', manifest => { network =>
                                                   JSON::PP::true });
    my $dial = sub {
        my ($host) = @_;

        return ($net->try($local, { do => 'tcp', to => $host,
                                    port => $port + 0, timeout => 0.5,
                                    send => [ 'x' ], once => 1 }))[0];
    };

    refused($dial->('127.0.0.1'), 'the host is not behind them');
    ok(!IO::Select->new($server)->can_read(0), 'nothing has come there');
    is($dial->('240.0.0.1')->{error}, 'timeout', 'as it is at its address');
    ok(IO::Select->new($server)->can_read(1), 'where it comes');
    close $server;

    my $got = tries($ids[0], <<"PY");
for port in (@{[ join ', ', 53, @ports ]}):
    for host in ("0.0.0.0", "192.0.0.8", "127.0.0.1"):
        for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
            def taken():
                s = socket.socket(socket.AF_INET, kind)
                s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                s.setsockopt(socket.SOL_SOCKET, 15, 1)
                s.bind((host, port))
                if kind == socket.SOCK_STREAM:
                    s.listen()
                c = socket.socket(socket.AF_INET, kind)
                c.settimeout(1)
                c.connect(("203.0.113.10", 80 if kind == 1 else 53))
                c.send(b"x")
                s.settimeout(0.05)
                (s.accept if kind == 1 else s.recv)(*(() if kind == 1
                                                      else (10,)))
            attempt("%s %d" % (host, port), taken)
PY
    is($got, '', 'nobody takes their place');
    is(($net->try($ids[0], { do => 'http', to => '203.0.113.10', port => 80 }))
       [0]{status}, 200, 'and they go on');
    $net->seen;
};


subtest 'the session\'s own loopback stays its own' => sub {
    is(tries($ids[0], <<'PY'), "127.0.0.1: True\n::1: True\n127.9.9.9: True\n",
for host in ("127.0.0.1", "::1", "127.9.9.9"):
    def own():
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        s = socket.socket(family)
        s.bind((host, 0))
        s.listen()
        c = socket.create_connection(s.getsockname()[:2], 2)
        return s.accept()[0].getpeername()[0] == host or True
    attempt(host, own)
PY
       'its servers are reached by it');
    my @r = $net->try($ids[0], { do => 'tcp', to => '127.0.0.1',
                                 port => $t->port },
                      { do => 'tcp', to => '240.0.0.1', port => $t->port });
    refused($_, 'nginx is not there') for @r;
};


subtest 'another session' => sub {
    $t->api(POST => "/sessions/$ids[1]/exec", { cmd => [ 'python3', '-c',
        <<'PY' ], background => JSON::PP::true });
import socket, time
a = socket.socket()
a.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
a.bind(("0.0.0.0", 9090))
a.listen()
b = socket.socket(socket.AF_UNIX)
b.bind("\0secret")
b.listen()
open("/tmp/ready", "w").close()
time.sleep(300)
PY
    SandboxTest::wait_for(sub {
        return $t->http(GET => "/v1/sessions/$ids[1]/files/%2Ftmp%2Fready")
               ->{status} == 200;
    }, 10);
    my $gone = tries($ids[0], <<'PY');
for host in ("192.0.0.8", "fd00:5b::1", "203.0.113.10"):
    attempt(host, lambda: socket.create_connection((host, 9090), 1).recv(1)
            and None or (_ for _ in ()).throw(OSError))
s = socket.socket(socket.AF_UNIX)
attempt("unix", lambda: s.connect("\0secret"))
for i in range(0, 400):
    attempt("abstract", lambda: s.connect("\0nginx-sandbox-ids-%d" % i))
PY
    is($gone, '', 'is not reached by any of their addresses');
};


subtest 'what is seen of the network' => sub {
    my $got = $t->run($ids[0], 'cat /proc/net/* /proc/net/stat/* 2>/dev/null',
                      user => 'root')->{stdout} // '';
    unlike($got, qr/sbx0|sbxnet/, 'no interface of the host');
    unlike($got, qr/017133C6|0171CB00/i, 'no address of it');

    is(tries($ids[0], <<'PY'), '', 'and no table of connections');
for path in ("/proc/net/nf_conntrack", "/proc/net/ip_conntrack",
             "/proc/net/netfilter/nfnetlink_queue"):
    attempt(path, lambda: open(path).read() or (_ for _ in ()).throw(OSError))
PY
};


subtest 'a session without a network has no more by any of it' => sub {
    my @r = $net->try($none,
        (map { +{ do => 'tcp', to => $_, port => 80 } }
             qw(203.0.113.10 2001:db8:2::10 240.0.0.1 198.51.100.1
                192.0.0.8 ::ffff:203.0.113.10)),
        { do => 'udp', to => '203.0.113.10', port => 443 },
        { do => 'udp', to => '192.0.0.8', port => 53 });

    refused($_, 'nothing is reached') for @r;
    world_is_quiet('nothing has come to the world');
};


subtest 'names inside of what is granted' => sub {
    # DNS over TLS and HTTPS by address: no rule, no way

    my @r = $net->try($ids[0],
        { do => 'tcp', to => '203.0.113.53', port => 853, send => [ 'x' ] },
        { do => 'http', to => '203.0.113.53', port => 443, tls => 1,
          blind => 1, host => 'dns.example.org' });

    refused($_, 'another way to ask') for @r;
};

$t->finish;
done_testing();
