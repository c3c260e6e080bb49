package SandboxTest::Net;

# A host and a world for one test file, without a touch to this machine's
# network: the file runs again in a network namespace of its own, which is the
# host that nginx, its broker and its egress are in; a pair of interfaces leads
# to another, the world, in which servers answer on every address.
#
#   use SandboxTest::Net;                      # before anything is started
#   my $net = SandboxTest::Net->new(zone => {...});
#   my $t = $net->server(http => 'sandbox_egress allow *;');
#   my ($r) = $net->try($id, { do => 'http', to => '203.0.113.10',
#                              port => 80, host => 'a.example.org' });
#   my @seen = $net->seen;                     # what came to the world
#
# See t/lib/inside/world.py for the servers, SandboxTest::Dns for the zone, and
# t/lib/inside/net.py for the steps of try().

use strict;
use warnings;

use Exporter qw(import);
use IO::Handle;
use JSON::PP ();
use POSIX qw(WNOHANG);
use Test::More;
use SandboxTest;
use SandboxTest::Dns;

our @EXPORT = qw(refused reached unknown nowhere);

my $JSON = JSON::PP->new->utf8->canonical;

# What the world answers on; the first ones are public.

my @WORLD4 = ((map { "203.0.113.$_" } 10 .. 19, 53), '198.18.0.9',
              qw(10.20.30.40 172.16.5.5 192.168.7.7 100.64.0.5
                 169.254.169.254 169.254.7.7 192.88.99.9));
my @WORLD6 = ((map { "2001:db8:2::$_" } 10 .. 19),
              qw(fd00:1::5 fd00:ec2::254 64:ff9b::a14:1e28
                 64:ff9b::cb00:710a 2002:a14:1e28::1));

# Names of the tests; d has an address of a's.

our %ZONE = (
    'a.example.org' => { A => '203.0.113.10', AAAA => '2001:db8:2::10' },
    'b.example.org' => { A => '203.0.113.11', AAAA => '2001:db8:2::11' },
    'c.example.net' => { A => '203.0.113.12' },
    'd.example.org' => { A => '203.0.113.10' },
    'deep.a.example.org' => { A => '203.0.113.13' },
    'example.org' => { A => '203.0.113.14' },
    'other.test' => { A => '203.0.113.15' },
);

our $HOST4 = '198.51.100.1';
our $HOST6 = '2001:db8:1::1';
our $DNS = '203.0.113.53';
our $DNS6 = '2001:db8:2::19';


BEGIN {
    my $why = SandboxTest::missing();

    if (!$why && !$^C && !$ENV{SANDBOX_TEST_NETWORK}) {
        local $ENV{SANDBOX_TEST_NETWORK} = 1;
        no warnings 'exec';

        system('unshare', '-n', 'true') == 0
            or $why = 'no network namespaces here';

        exec 'unshare', '-n', '--', $^X, (map { "-I$_" } @INC), $0, @ARGV
            if !$why;
    }

    plan(skip_all => $why) if $why;
}


sub new {
    my ($class, %o) = @_;

    for my $tool (qw(ip nsenter openssl)) {
        grep { -x "$_/$tool" } split(/:/, $ENV{PATH}), '/usr/sbin', '/sbin'
            or plan(skip_all => "$tool is not installed");
    }

    my $self = bless { dir => File::Temp::tempdir('sbxnetXXXXXX',
                                                  DIR => '/tmp',
                                                  CLEANUP => 1),
                       %o }, $class;

    chmod 0755, $self->{dir};
    $self->certificates;
    $self->begin_world;

    return $self;
}


# ---- the world -------------------------------------------------------------

# A CA, and one certificate for all names of the tests.

sub certificates {
    my ($self) = @_;

    my $d = $self->{dir};
    my $new = 'openssl req -x509 -nodes -days 2 -newkey ec'
              . ' -pkeyopt ec_paramgen_curve:prime256v1';

    for my $command (
        "$new -subj /CN=world-ca -keyout $d/ca.key -out $d/ca.pem"
        . ' -addext basicConstraints=critical,CA:TRUE',
        "$new -subj /CN=world -CA $d/ca.pem -CAkey $d/ca.key"
        . " -keyout $d/key.pem -out $d/cert.pem"
        . ' -addext basicConstraints=critical,CA:FALSE'
        . ' -addext subjectAltName=DNS:*.example.org,DNS:example.org,'
        . 'DNS:*.example.net')
    {
        system("$command 2>>$d/openssl") == 0
            or die 'openssl: ' . SandboxTest::slurp("$d/openssl");
    }

    return;
}

sub ca { return "$_[0]{dir}/ca.pem" }


sub begin_world {
    my ($self) = @_;

    pipe my $in, my $to or die $!;
    pipe my $from, my $out or die $!;

    my $pid = fork // die "fork: $!";

    if ($pid == 0) {
        open STDIN, '<&', $in;
        open STDOUT, '>&', $out;
        close $to;
        { no warnings 'exec';
          exec 'unshare', '-n', 'python3',
               "$SandboxTest::ROOT/t/lib/inside/world.py"; }
        POSIX::_exit(127);
    }

    close $in;
    close $out;
    $to->autoflush;

    %$self = (%$self, world => $pid, to => $to, from => $from);

    # it is in its own namespace once its program runs

    SandboxTest::wait_for(sub {
        return (readlink "/proc/$pid/exe") =~ /python/;
    }, 60) or die "no world\n";

    ip(<<"HOST");
link set lo up
link add sbx0 type veth peer name sbx0 netns $pid
addr add $HOST4/24 dev sbx0
addr add $HOST6/64 dev sbx0 nodad
link set sbx0 up
HOST

    ip(join("\n",
       'link set lo up', 'addr add 198.51.100.2/24 dev sbx0',
       'addr add 2001:db8:1::2/64 dev sbx0 nodad', 'link set sbx0 up',
       (map { "addr add $_/32 dev lo" } @WORLD4),
       (map { "addr add $_/128 dev lo nodad" } @WORLD6), ''), $pid);

    ip(<<'ROUTES');
route add default via 198.51.100.2
route add default via 2001:db8:1::2
ROUTES

    $self->tell(do => 'start', cert => "$self->{dir}/cert.pem",
                key => "$self->{dir}/key.pem",
                addresses => [ @WORLD4, @WORLD6 ]);

    $self->{dns} = SandboxTest::Dns->start(
        dir => $self->{dir}, listen => [ $DNS, $DNS6 ], port => 53,
        prefix => [ 'nsenter', "--net=/proc/$pid/ns/net" ],
        zone => { %ZONE, %{ $self->{zone} || {} } });

    return;
}


sub ip {
    my ($text, $world) = @_;

    my @inside = $world ? ('nsenter', '-t', $world, '-n') : ();

    open my $ip, '|-', @inside, 'ip', '-batch', '-' or die "ip: $!";
    print $ip $text;
    close $ip or die "ip failed: $text";

    return;
}


sub tell {
    my ($self, %order) = @_;

    print { $self->{to} } $JSON->encode(\%order), "\n";

    my $line = readline $self->{from} // die "the world has ended\n";

    return $JSON->decode($line);
}

# What has come to the world since the last time; of those kinds, if given.

sub seen {
    my ($self, @kinds) = @_;

    my %kind = map { $_ => 1 } @kinds;

    return grep { !@kinds || $kind{$_->{kind}} }
           @{ $self->tell(do => 'seen') };
}

# Another zone beside that of all tests, and what was asked of it: see
# SandboxTest::Dns.

sub zone {
    my ($self, %zone) = @_;

    $self->{dns}->zone({ %ZONE, %zone });

    return;
}

sub asked {
    my ($self, @of) = @_;

    return $self->{dns}->asked(@of);
}


# ---- nginx, and what its sessions try --------------------------------------

# Names of id ranges belong to network namespaces, so this nginx has one that
# others do not: of the machine's other tests, nobody's.

sub server {
    my ($self, %o) = @_;

    my $cell = 100 + int rand 120;
    my $first = $cell << 23;

    $o{http} = sprintf("    sandbox_uid_range %d-%d;\n"
                       . "    sandbox_egress_resolver %s;\n",
                       $first, $first + (1 << 23) - 1, $DNS)
               . ($o{http} // '');

    $self->{t} = SandboxTest->new(%o);
    $self->{t}->start if !$o{stopped};

    return $self->{t};
}


my $probe;

# Steps in one session, one after the other: their results.

sub try {
    my ($self, $id, @steps) = @_;

    $probe //= SandboxTest::slurp("$SandboxTest::ROOT/t/lib/inside/net.py");

    my $res = $self->{t}->run($id, [ 'python3', '-c', $probe ],
                              stdin => $JSON->encode(\@steps),
                              timeout_s => 60);
    my $out = eval { $JSON->decode($res->{stdout} // '') };

    if (!$out) {
        diag($res->{stderr} // 'no answer');
        return map { { error => 'nothing', ms => 0 } } @steps;
    }

    return @$out;
}


# A refusal is at once and no silence, nor an end like any other.

sub refused {
    my ($r, $name) = @_;

    local $Test::Builder::Level = $Test::Builder::Level + 1;

    my $ok = $r->{error} =~ /^(?:ECONNRESET|EPIPE|ECONNREFUSED|EPERM|EACCES
                                |ENETUNREACH|EHOSTUNREACH)$/x
             && $r->{ms} < 1000 * $SandboxTest::SLOW;

    ok($ok, $name) or diag(explain($r));

    return $ok;
}


# A name that there is none of for the session, which it is told at once.

sub unknown {
    my ($r, $name) = @_;

    local $Test::Builder::Level = $Test::Builder::Level + 1;

    my $ok = $r->{error} eq 'gaierror' && $r->{ms} < 1000 * $SandboxTest::SLOW;

    ok($ok, $name) or diag(explain($r));

    return $ok;
}


# Either: some names are told, for addresses that other rules are about.

sub nowhere {
    my ($r, $name) = @_;

    local $Test::Builder::Level = $Test::Builder::Level + 1;

    return $r->{error} eq 'gaierror' ? unknown($r, $name)
                                     : refused($r, $name);
}


sub reached {
    my ($r, $name) = @_;

    local $Test::Builder::Level = $Test::Builder::Level + 1;

    my $ok = ok($r->{error} eq '', $name);
    diag(explain($r)) if !$ok;

    return $ok;
}


# ---- connections that stay -------------------------------------------------

# Opens one to the world's echo in the background of the session; its state is
# "up" once something has come back over it, then how it ended.

sub hold {
    my ($self, $id, $to, %o) = @_;

    my $name = 'held-' . ++$self->{held};
    my $code = <<'PY';
import errno, os, socket, sys
name, to, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
def tell(what):
    with open(name + ".new", "w") as f:
        f.write(what)
    os.rename(name + ".new", name)
try:
    s = socket.create_connection((to, port), 5)
    s.settimeout(None)
    s.sendall(b"x")
    s.recv(1)
    tell("up")
    while data := s.recv(1):
        s.sendall(data)
    tell("end")
except OSError as e:
    tell(errno.errorcode.get(e.errno, type(e).__name__))
PY

    $self->{t}->api(POST => "/sessions/$id/exec",
                    { cmd => [ 'python3', '-c', $code, $name, $to,
                               '' . ($o{port} // 7000) ],
                      background => JSON::PP::true });

    return $self->held($id, $name, qr/./) eq 'up' ? $name : undef;
}

# Waits until its state is so, and tells it.

sub held {
    my ($self, $id, $name, $wanted) = @_;

    my $state = '';

    return 'none' if !defined $name;

    SandboxTest::wait_for(sub {
        my $res = $self->{t}->http(GET => "/v1/sessions/$id/files/$name");
        $state = $res->{status} == 200 ? $res->{body} : '';
        return $state =~ $wanted;
    }, 5);

    return $state;
}


sub DESTROY {
    my ($self) = @_;

    my $pid = delete $self->{world} // return;

    local $?;

    delete $self->{dns};

    close $self->{to};
    SandboxTest::wait_for(sub { waitpid($pid, WNOHANG) != 0 }, 5)
        or kill('KILL', $pid) && waitpid($pid, 0);

    return;
}


1;
