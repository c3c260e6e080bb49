package SandboxTest::Connection;

# One HTTP/1.1 connection over a plain socket, so that a test can say exactly
# what goes over it: pieces, pauses, several requests, a close in the middle.

use strict;
use warnings;

use IO::Select;
use IO::Socket::INET;
use Time::HiRes qw(time);


sub new {
    my ($class, %o) = @_;

    my $socket = IO::Socket::INET->new(PeerAddr => $o{host} // '127.0.0.1',
                                       PeerPort => $o{port},
                                       Timeout  => $o{timeout} // 10)
        or return undef;

    binmode $socket;

    return bless { socket => $socket, buffer => '',
                   timeout => $o{timeout} // 30 }, $class;
}


sub socket { return $_[0]{socket} }


sub close {
    my ($self) = @_;

    close delete $self->{socket} if $self->{socket};

    return;
}


# False when the peer has closed or takes nothing until the time-out.

sub send {
    my ($self, $bytes) = @_;

    local $SIG{PIPE} = 'IGNORE';

    my $select = IO::Select->new($self->{socket});

    while (length $bytes) {
        return 0 if !$select->can_write($self->{timeout});

        my $n = syswrite $self->{socket}, $bytes, 262144;
        return 0 if !defined $n;

        substr $bytes, 0, $n, '';
    }

    return 1;
}


# One more piece into the buffer: true, or false at the end or time-out.

sub fill {
    my ($self, $deadline) = @_;

    my $left = $deadline - time;

    if ($left <= 0 || !IO::Select->new($self->{socket})->can_read($left)) {
        $self->{timed_out} = 1;
        return 0;
    }

    my $n = sysread $self->{socket}, $self->{buffer}, 262144,
                    length $self->{buffer};

    return $n ? 1 : 0;
}


sub send_request {
    my ($self, $method, $target, %o) = @_;

    my %h = (Host => 'localhost', %{ $o{headers} || {} });

    if (defined $o{body} && !grep { /^(content-length|transfer-enc)/i } keys %h)
    {
        $h{'Content-Length'} = length $o{body};
    }

    my $head = "$method $target HTTP/1.1\r\n"
               . join('', map { "$_: $h{$_}\r\n" }
                          grep { defined $h{$_} } sort keys %h);

    return $self->send("$head\r\n" . ($o{body} // ''));
}


sub read_line {
    my ($self, $deadline) = @_;

    while ((my $at = index $self->{buffer}, "\n") == -1) {
        return undef if !$self->fill($deadline);
    }

    $self->{buffer} =~ s/^([^\n]*)\n//;
    my $line = $1;
    $line =~ s/\r$//;

    return $line;
}


sub read_bytes {
    my ($self, $n, $deadline) = @_;

    while (length $self->{buffer} < $n) {
        last if !$self->fill($deadline);
    }

    return substr $self->{buffer}, 0, $n, '';
}


# {status, headers, body, whole}: whole is false where the body ended before
# what the headers promised.  Status 0: no answer.

sub read_response {
    my ($self, %o) = @_;

    my $deadline = time + ($o{timeout} // $self->{timeout});
    my ($status, %h);

    do {
        my $line = $self->read_line($deadline);
        return { status => 0, headers => {}, body => '', whole => 0,
                 timed_out => $self->{timed_out} } if !defined $line;

        ($status) = $line =~ m{^HTTP/1\.[01] (\d{3})};
        %h = ();

        while (defined($line = $self->read_line($deadline)) && $line ne '') {
            my ($k, $v) = split /:\s*/, $line, 2;
            $h{lc $k} = $v;
        }
    } while (defined $status && $status == 100);

    my $res = { status => $status // 0, headers => \%h, body => '',
                whole => 1 };

    if (($o{method} // '') eq 'HEAD' || $res->{status} == 204
        || $res->{status} == 304)
    {
        return $res;
    }

    if (($h{'transfer-encoding'} // '') eq 'chunked') {
        $self->read_chunks($res, $deadline);

    } elsif (defined(my $n = $h{'content-length'})) {
        $res->{body} = $self->read_bytes($n, $deadline);
        $res->{whole} = length $res->{body} == $n ? 1 : 0;

    } else {
        1 while $self->fill($deadline);
        $res->{body} = $self->{buffer};
        $self->{buffer} = '';
    }

    return $res;
}


sub read_chunks {
    my ($self, $res, $deadline) = @_;

    $res->{whole} = 0;

    while (defined(my $line = $self->read_line($deadline))) {
        my $n = hex $line;

        if ($n == 0) {
            $self->read_line($deadline);
            $res->{whole} = 1;
            return;
        }

        $res->{body} .= $self->read_bytes($n, $deadline);
        $self->read_line($deadline);
    }

    return;
}


sub request {
    my ($self, $method, $target, %o) = @_;

    $self->send_request($method, $target, %o);

    return $self->read_response(%o, method => $method);
}


1;
