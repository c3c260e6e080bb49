package SandboxTest::Dns;

# A name server whose answers are a script: a zone is data, an answer can
# differ from the one before it, and every question is written down.
#
#     my $dns = SandboxTest::Dns->start(
#         listen => ['203.0.113.53', '2001:db8::53'],   # UDP and TCP
#         port   => 53,                 # 0 takes one that is free
#         dir    => $dir,               # for its zone and its log
#         prefix => ['nsenter', "--net=/proc/$pid/ns/net"],   # optional
#         zone   => {
#             'a.test'   => { A => '203.0.113.1', ttl => 5 },
#             '*.b.test' => { A => ['203.0.113.2', '203.0.113.3'] },
#             'c.test'   => { CNAME => 'a.test' },
#             'd.test'   => [ { A => '203.0.113.4', ttl => 0 },
#                             { A => '10.0.0.1', ttl => 0 } ],
#         },
#     );
#
# An entry is an answer, or a list of answers: the first question of a type is
# answered by the first, and so on; the last one stays.  An answer has
#
#     A, AAAA    an address or a list of them
#     CNAME      a name; what the zone has for it follows, chains and loops too
#     ttl        of its records (60)
#     many       so many addresses of the type are made up (198.51.0.1 ...,
#                of "net" instead if given, 2001:db8:ffff::1 ...)
#     rcode      'NXDOMAIN', 'SERVFAIL', 'REFUSED', or a number
#     minimum    of the SOA that an answer without records has (60)
#     tc         over UDP: truncated, nothing in it
#     drop       no answer
#     close      over TCP: closed without an answer
#     raw        hexadecimal: this, after the question's own id
#     id         added to the id: a wrong one
#     other      the question is another one
#
# A name that is not in the zone is NXDOMAIN.

use strict;
use warnings;

use IO::Select;
use IO::Socket::IP;
use JSON::PP;
use POSIX ();
use Socket qw(inet_pton AF_INET AF_INET6);
use Time::HiRes qw(sleep time);

my %TYPE  = (A => 1, NS => 2, CNAME => 5, SOA => 6, AAAA => 28);
my %NAME  = (reverse(%TYPE), 12 => 'PTR', 16 => 'TXT', 64 => 'SVCB',
             65 => 'HTTPS', 255 => 'ANY');
my %RCODE = (NOERROR => 0, FORMERR => 1, SERVFAIL => 2, NXDOMAIN => 3,
             NOTIMP => 4, REFUSED => 5);


sub start {
    my ($class, %args) = @_;

    my $self = bless {
        zone_file => "$args{dir}/dns-zone.json",
        log       => "$args{dir}/dns-asked.log",
        ready     => "$args{dir}/dns-port",
        parent    => $$,
    }, $class;

    unlink $self->{ready};
    $self->zone($args{zone} // {});

    open my $log, '>', $self->{log} or die "$self->{log}: $!";
    close $log;

    my @run = (@{ $args{prefix} // [] }, $^X, '-I' . _lib(),
               '-MSandboxTest::Dns', '-e', 'SandboxTest::Dns::serve(@ARGV)',
               $self->{zone_file}, $self->{log}, $self->{ready},
               $args{port} // 0, @{ $args{listen} // ['127.0.0.1'] });

    my $pid = fork() // die "fork: $!";

    if ($pid == 0) {
        exec { $run[0] } @run or POSIX::_exit(127);
    }

    $self->{pid} = $pid;

    my $until = time() + 10 * ($ENV{SANDBOX_TEST_SLOW} || 1);

    until (-s $self->{ready}) {
        die "the name server has ended\n"
            if waitpid($pid, POSIX::WNOHANG()) == $pid;
        die "the name server does not start\n" if time() > $until;
        sleep 0.01;
    }

    open my $in, '<', $self->{ready} or die "$self->{ready}: $!";
    chomp($self->{port} = <$in>);
    close $in;

    return $self;
}


sub port { return $_[0]->{port} }


# Another zone, from the next question on; lists begin anew.

sub zone {
    my ($self, $zone) = @_;

    my $new = "$self->{zone_file}.new";

    open my $out, '>', $new or die "$new: $!";
    print {$out} JSON::PP->new->canonical->encode($zone);
    close $out or die "$new: $!";
    rename $new, $self->{zone_file} or die "$new: $!";

    return;
}


# The questions so far, "NAME TYPE udp" or "... tcp"; of one name, or of one
# name and type, if they are given.  In a scalar context their number.

sub asked {
    my ($self, $name, $type) = @_;

    open my $in, '<', $self->{log} or die "$self->{log}: $!";
    my @lines = <$in>;
    close $in;
    chomp @lines;

    if (defined $name) {
        my $want = lc($name) . ' ' . ($type // '');

        @lines = grep { index($_, $want) == 0 } @lines;
    }

    return wantarray ? @lines : scalar @lines;
}


sub stop {
    my ($self) = @_;

    my $pid = delete $self->{pid};

    return if !defined $pid || $self->{parent} != $$;

    kill 'KILL', $pid;
    waitpid $pid, 0;

    return;
}


sub DESTROY {
    my ($self) = @_;

    local ($?, $!, $@);

    $self->stop;

    return;
}


sub _lib {
    my $path = $INC{'SandboxTest/Dns.pm'};

    $path =~ s{/?SandboxTest/Dns\.pm$}{};

    return $path eq '' ? '.' : $path;
}


# ---- the process of its own ------------------------------------------------

sub serve {
    my ($zone_file, $log_file, $ready, $port, @listen) = @_;

    my $parent = getppid();
    my $select = IO::Select->new;
    my %tcp;                              # listening, and what has come
    my %state = (zone_file => $zone_file, zone => {}, seen => '', turn => {});

    open $state{log}, '>>', $log_file or die "$log_file: $!";
    $state{log}->autoflush(1);

    for my $address (@listen) {
        my ($udp, $tcp) = _bind($address, \$port);

        $select->add($udp, $tcp);
        $tcp{ fileno $tcp } = 'listen';
    }

    open my $out, '>', "$ready.new" or die "$ready: $!";
    print {$out} "$port\n";
    close $out;
    rename "$ready.new", $ready or die "$ready: $!";

    while (1) {
        my @can = $select->can_read(1);

        exit 0 if getppid() != $parent;

        for my $sock (@can) {
            my $kind = $tcp{ fileno $sock };

            if (!defined $kind) {
                _udp(\%state, $sock);

            } elsif (!ref $kind) {
                my $new = $sock->accept or next;

                $tcp{ fileno $new } = { in => '' };
                $select->add($new);

            } elsif (!_tcp(\%state, $sock, $kind)) {
                $select->remove($sock);
                delete $tcp{ fileno $sock };
                close $sock;
            }
        }
    }

    return;
}


# A port that is free for one protocol may not be so for the other.

sub _bind {
    my ($address, $port) = @_;

    for (1 .. 50) {
        my $udp = IO::Socket::IP->new(Proto => 'udp', LocalHost => $address,
                                      LocalPort => $$port)
            or die "UDP $address:$$port: $@";
        my $tcp = IO::Socket::IP->new(Proto => 'tcp', Listen => 64,
                                      LocalHost => $address, ReuseAddr => 1,
                                      LocalPort => $udp->sockport);

        if ($tcp) {
            $$port = $udp->sockport;
            return ($udp, $tcp);
        }

        die "TCP $address:$$port: $@" if $$port;
    }

    die "no port of $address is free\n";
}


sub _udp {
    my ($state, $sock) = @_;

    my $peer = recv $sock, my $in, 65535, 0;

    return if !defined $peer;

    my $out = _answer($state, $in, 'udp');

    send $sock, $out, 0, $peer if defined $out;

    return;
}


sub _tcp {
    my ($state, $sock, $conn) = @_;

    sysread $sock, $conn->{in}, 65536, length $conn->{in} or return 0;

    while (length $conn->{in} >= 2) {
        my $n = unpack 'n', $conn->{in};

        last if length $conn->{in} < 2 + $n;

        my $in  = substr $conn->{in}, 2, $n;
        my $out = _answer($state, $in, 'tcp');

        substr $conn->{in}, 0, 2 + $n, '';

        return 0 if !defined $out;

        $out = pack('n', length $out) . $out;

        while (length $out) {
            my $sent = syswrite $sock, $out or return 0;

            substr $out, 0, $sent, '';
        }
    }

    return 1;
}


sub _answer {
    my ($state, $in, $proto) = @_;

    return undef if length $in < 12;

    my ($id, $flags, $count) = unpack 'n3', $in;
    my ($name, $at) = ('', 12);

    while (my $n = unpack 'C', substr($in, $at, 1) || "\0") {
        $name .= ($name eq '' ? '' : '.') . substr $in, $at + 1, $n;
        $at += 1 + $n;
    }

    my ($type, $class) = unpack 'n2', substr($in, $at + 1, 4) . "\0" x 4;
    my $question = substr $in, 12, $at + 5 - 12;
    my $word     = $NAME{$type} // "TYPE$type";

    $name = lc $name;
    print { $state->{log} } "$name $word $proto\n";
    _read($state);

    my $answer = _entry($state, $name, $word);

    return undef if $answer->{drop} || ($answer->{close} && $proto eq 'tcp');

    $id = ($id + ($answer->{id} // 0)) & 0xffff;

    return pack('n', $id) . pack 'H*', $answer->{raw} if $answer->{raw};

    $question = "\5other\4test\0" . pack 'n2', $type, 1 if $answer->{other};

    if ($answer->{tc} && $proto eq 'udp') {
        return pack('n6', $id, 0x8380, 1, 0, 0, 0) . $question;
    }

    my ($code, @records) = _records($state, $name, $word, $answer);
    my @soa;

    push @soa, _soa($answer) if !@records && ($code == 0 || $code == 3);

    my $size = 12 + length $question;
    my $tc   = 0;
    my $body = '';
    my $sent = 0;

    for my $record (@records) {
        if ($size + length($record) > ($proto eq 'udp' ? 1232 : 65535)) {
            $tc = $proto eq 'udp' ? 0x0200 : 0;
            last;
        }

        $body .= $record;
        $size += length $record;
        $sent++;
    }

    return pack('n6', $id, 0x8180 | $tc | $code, 1, $sent, scalar @soa, 0)
           . $question . $body . join '', @soa;
}


sub _read {
    my ($state) = @_;

    my @st   = Time::HiRes::stat($state->{zone_file});
    my $seen = "$st[1] $st[9]";

    return if $seen eq $state->{seen};

    open my $in, '<', $state->{zone_file} or die "$state->{zone_file}: $!";
    local $/ = undef;
    $state->{zone} = decode_json(<$in>);
    close $in;

    $state->{seen} = $seen;
    $state->{turn} = {};

    return;
}


# What is to be answered now: moves on in a list.

sub _entry {
    my ($state, $name, $word) = @_;

    my $entry = $state->{zone}{$name};

    for (my $below = $name; !defined $entry && $below =~ s/^[^.]*\.//; ) {
        $entry = $state->{zone}{"*.$below"};
    }

    return { rcode => 'NXDOMAIN' } if !defined $entry;
    return $entry if ref $entry ne 'ARRAY';

    my $turn = $state->{turn}{"$name $word"}++;

    return $entry->[$turn > $#$entry ? $#$entry : $turn];
}


sub _records {
    my ($state, $name, $word, $answer) = @_;

    my @records;

    for my $hop (0 .. 20) {
        my $rcode = $answer->{rcode} // 0;
        my $code  = $RCODE{$rcode} // $rcode;

        return ($code, @records) if $code;

        my $ttl = $answer->{ttl} // 60;

        if (defined(my $to = $answer->{CNAME})) {
            push @records, _rr($name, 'CNAME', $ttl, _wire($to));
            $name   = lc $to;
            $answer = _entry($state, $name, $word);
            next;
        }

        push @records, map { _rr($name, $word, $ttl, $_) }
                           _addresses($word, $answer);
        last;
    }

    return (0, @records);
}


sub _addresses {
    my ($word, $answer) = @_;

    return () if $word ne 'A' && $word ne 'AAAA';

    my $family = $word eq 'A' ? AF_INET : AF_INET6;
    my $list   = $answer->{$word} // [];
    my @list   = map { inet_pton($family, $_) // die "$_ is no $word\n" }
                     ref $list ? @$list : ($list);

    for my $n (1 .. $answer->{many} // 0) {
        my $net = $answer->{net}
                  // ($word eq 'A' ? '198.51.0.0' : '2001:db8:ffff::');
        my $address = inet_pton($family, $net);

        substr $address, -2, 2, pack 'n', $n;
        push @list, $address;
    }

    return @list;
}


sub _soa {
    my ($answer) = @_;

    return _rr('test', 'SOA', $answer->{ttl} // 60,
               _wire('ns.test') . _wire('root.test')
               . pack 'N5', 1, 3600, 600, 86400, $answer->{minimum} // 60);
}


sub _rr {
    my ($name, $word, $ttl, $data) = @_;

    return _wire($name) . pack('n2Nn', $TYPE{$word}, 1, $ttl, length $data)
           . $data;
}


sub _wire {
    my ($name) = @_;

    return join('', map { pack 'C/a*', $_ } split /\./, $name) . "\0";
}


1;
