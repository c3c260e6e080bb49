package SandboxTest::Stream;

# Answers that come as they happen: NDJSON and Server-Sent Events, taken one
# by one, and a WebSocket client that can do what no client should.

use strict;
use warnings;

use Digest::SHA qw(sha1);
use Exporter qw(import);
use JSON::PP ();
use MIME::Base64 qw(encode_base64);
use Time::HiRes qw(time);

use SandboxTest::More ();

our @EXPORT = qw(stream follow background process stands_still ws_open);
our $NDJSON = 'application/x-ndjson';
our $SSE = 'text/event-stream';

my $JSON = JSON::PP->new->utf8->allow_nonref;


# A request whose answer is read event by event.

sub stream {
    my ($method, $path, %o) = @_;

    my $s = SandboxTest::More::open_request($method, $path, %o,
        headers => { Accept => $o{sse} ? $SSE : $NDJSON,
                     %{ $o{headers} || {} } });
    my $self = bless { s => $s, raw => '', text => '', whole => 0,
                       sse => $o{sse} }, __PACKAGE__;

    my $head = SandboxTest::More::read_head($s);

    $self->{head} = $head;
    $self->{status} = $head->{status};
    $self->{headers} = $head->{headers};
    $self->{raw} = $head->{rest};
    $self->{chunked} = ($head->{headers}{'transfer-encoding'} // '')
                       eq 'chunked';

    return $self;
}


# Moves what is whole of the chunks into the text.

sub unchunk {
    my ($self) = @_;

    if (!$self->{chunked}) {
        $self->{text} .= $self->{raw};
        $self->{raw} = '';
        return;
    }

    while ($self->{raw} =~ /\A([0-9A-Fa-f]+)\r\n/) {
        my ($n, $at) = (hex $1, $+[0]);

        if ($n == 0) {
            $self->{whole} = 1 if $self->{raw} =~ /\A0\r\n\r\n\z/;
            return;
        }

        return if length $self->{raw} < $at + $n + 2;

        $self->{text} .= substr $self->{raw}, $at, $n;
        substr $self->{raw}, 0, $at + $n + 2, '';
    }
}


# The next event, or undef at the end (or when it does not come in time).

sub next {
    my ($self, $seconds) = @_;

    my $deadline = time + SandboxTest::More::within($seconds // 20);
    my $end = $self->{sse} ? "\n\n" : "\n";

    for ( ;; ) {
        $self->unchunk;

        my $at = index $self->{text}, $end;

        if ($at != -1) {
            my $text = substr $self->{text}, 0, $at + length $end, '';
            return $self->parse(substr $text, 0, $at);
        }

        return undef if $self->{eof};

        my $more = SandboxTest::More::read_some($self->{s}, $deadline);

        return undef if !defined $more;
        $self->{eof} = 1 if $more eq '';
        $self->{raw} .= $more;
    }
}


sub parse {
    my ($self, $text) = @_;

    return $JSON->decode($text) if !$self->{sse};

    my ($name, $data) = $text =~ /\Aevent: (\S+)\ndata: ([^\n]*)\z/
        or die "not an event: $text";
    my $event = $JSON->decode($data);

    die "event $name has type $event->{type}" if $name ne $event->{type};

    return $event;
}


# Events up to one of a type, pings left out; in list context all of them.

sub until {
    my ($self, $type, $seconds) = @_;

    my @all;

    while (my $event = $self->next($seconds)) {
        next if $event->{type} eq 'ping' && $type ne 'ping';
        push @all, $event;
        last if $event->{type} eq $type;
    }

    return wantarray ? @all : $all[-1];
}


# All events, and the texts put together.

sub rest {
    my ($self, $seconds) = @_;

    my %r = (stdout => '', stderr => '', events => []);

    while (my $event = $self->next($seconds)) {
        next if $event->{type} eq 'ping';
        push @{ $r{events} }, $event;
        $r{ $event->{type} } .= $event->{data} if defined $event->{data};
        $r{$event->{type}} = $event if !defined $event->{data};
    }

    return \%r;
}


# The next line of standard output, however it was cut.

sub line {
    my ($self, $seconds) = @_;

    $self->{line} //= '';

    for ( ;; ) {
        my $at = index $self->{line}, "\n";

        return substr $self->{line}, 0, $at + 1, '' if $at != -1;

        my $event = $self->next($seconds) // return undef;
        $self->{line} .= $event->{data} if $event->{type} eq 'stdout';
    }
}


sub close { return close $_[0]{s} }


sub follow {
    my ($id, $pid, $query, %o) = @_;

    return stream('GET', "/sessions/$id/processes/$pid/output"
                         . ($query ? "?$query" : ''), %o);
}


sub background {
    my ($id, $cmd, %fields) = @_;

    my $res = SandboxTest::More::exec_call($id, $cmd, background =>
                                           JSON::PP::true, %fields);

    if ($res->{status} != 202) {
        Test::More::diag("exec answered $res->{status}: $res->{body}");
        return 0;
    }

    return $res->{json}{pid};
}


sub process {
    my ($id, $pid) = @_;

    my $res = SandboxTest::More::call('GET', "/sessions/$id/processes/$pid");

    return $res->{json} || {};
}


# Whether a session uses no more processor time for a while, as one does whose
# output nobody reads.

sub stands_still {
    my ($id, $seconds) = @_;
    my ($last, $same) = (-1, 0);

    SandboxTest::More::until_true(sub {
        my $n = SandboxTest::More::call('GET', "/sessions/$id")
                ->{json}{usage}{cpu_seconds};

        $same = $n == $last ? $same + 1 : 0;
        $last = $n;
        select undef, undef, undef, 0.1;
        return $same >= 5;
    }, $seconds);

    return $same >= 5;
}


# ---- WebSocket -----------------------------------------------------------

our $KEY = 'dGhlIHNhbXBsZSBub25jZQ==';

sub ws_open {
    my ($path, %headers) = @_;

    my $s = SandboxTest::More::open_request('GET', $path, headers => {
        Connection => 'Upgrade', Upgrade => 'websocket',
        'Sec-WebSocket-Version' => 13, 'Sec-WebSocket-Key' => $KEY,
        %headers });
    my $head = SandboxTest::More::read_head($s);
    my $self = bless { s => $s, status => $head->{status}, head => $head,
                       headers => $head->{headers}, raw => $head->{rest},
                       seen => '' }, 'SandboxTest::Stream::Socket';

    if ($head->{status} != 101) {
        my $body = $head->{rest}
                   . (SandboxTest::More::read_rest($s, timeout => 5))[0];
        $self->{body} = $body;
        $self->{json} = eval { $JSON->decode($body) };
    }

    return $self;
}


package SandboxTest::Stream::Socket;

use Time::HiRes qw(time);


sub accept_of {
    my ($class, $key) = @_;

    return MIME::Base64::encode_base64(
        Digest::SHA::sha1($key . '258EAFA5-E914-47DA-95CA-C5AB0DC85B11'), '');
}


sub frame {
    my ($opcode, $data, %o) = @_;

    my $len = length $data;
    my $mask = $o{mask} // pack 'N', int rand 2**32;
    my $first = ($o{fin} // 1) << 7 | $opcode | ($o{rsv} // 0) << 4;
    my $bit = $o{unmasked} ? 0 : 0x80;
    my $head = $len < 126 ? pack('CC', $first, $bit | $len)
             : $len < 65536 ? pack('CCn', $first, $bit | 126, $len)
             : pack('CCQ>', $first, $bit | 127, $len);

    return $head . $data if $o{unmasked};

    my $key = substr $mask x (1 + $len / 4), 0, $len;

    return $head . $mask . ($data ^ $key);
}


sub send {
    my ($self, $opcode, $data, %o) = @_;

    return SandboxTest::More::send_all($self->{s}, frame($opcode, $data, %o));
}

sub type { my ($self, $bytes) = @_; return $self->send(2, $bytes) }
sub say_text { my ($self, $text) = @_; return $self->send(1, $text) }


# The next frame: [opcode, data], or undef.

sub next {
    my ($self, $seconds) = @_;

    my $deadline = time + SandboxTest::More::within($seconds // 20);

    for ( ;; ) {
        my $raw = $self->{raw};

        if (length $raw >= 2) {
            my ($first, $len) = unpack 'CC', $raw;
            my $at = 2;

            die 'the server masks' if $len & 0x80;

            if ($len == 126 && length $raw >= 4) {
                ($len, $at) = (unpack('n', substr $raw, 2), 4);

            } elsif ($len == 127 && length $raw >= 10) {
                ($len, $at) = (unpack('Q>', substr $raw, 2), 10);

            } elsif ($len > 125) {
                $len = 2**62;
            }

            if (length $raw >= $at + $len) {
                substr $self->{raw}, 0, $at + $len, '';
                return [ $first & 15, substr $raw, $at, $len ];
            }
        }

        my $more = SandboxTest::More::read_some($self->{s}, $deadline);
        return undef if !defined $more || $more eq '';
        $self->{raw} .= $more;
    }
}


# Terminal output up to what matches; '' if it does not come.

sub expect {
    my ($self, $pattern, $seconds) = @_;

    my $deadline = time + SandboxTest::More::within($seconds // 10);

    for ( ;; ) {
        return substr $self->{seen}, 0, $+[0], ''
            if $self->{seen} =~ $pattern;

        my $frame = time < $deadline ? $self->next($deadline - time) : undef;

        if (!$frame || $frame->[0] == 8) {
            my $end = $frame ? 'closed: ' . join ' ', unpack 'n a*', $frame->[1]
                    : time < $deadline ? 'the connection has ended'
                    : 'nothing more comes';

            $self->{closed} //= $frame;
            Test::More::diag("no $pattern in: $self->{seen} ($end)");
            return '';
        }

        $self->{seen} .= $frame->[1] if $frame->[0] == 2;
    }
}


# The code and reason of the close that comes.

sub closed {
    my ($self, $seconds) = @_;

    my $frame = $self->{closed};

    while (!$frame) {
        my $n = $self->next($seconds) // return (0, 'cut');
        $frame = $n if $n->[0] == 8;
    }

    return (0, '') if length $frame->[1] < 2;
    return unpack 'na*', $frame->[1];
}


1;
