package SandboxTest::Connect;

# The Connect protocol with JSON, as clients of E2B speak it: unary calls, and
# streams of messages in envelopes, taken one by one.

use strict;
use warnings;

use Digest::SHA qw(hmac_sha256_hex);
use Exporter qw(import);
use JSON::PP ();
use MIME::Base64 qw(decode_base64 encode_base64);
use Time::HiRes qw(time);

use SandboxTest::More ();
use SandboxTest::Stream ();

our @ISA = ('SandboxTest::Stream');
our @EXPORT = qw(connect_server token rpc rpc_headers rpc_stream envelope
                 envelopes start base64);

our $STREAM = 'application/connect+json';
our $BASE = '/e2b';

my $JSON = JSON::PP->new->utf8->canonical->allow_nonref;


# A server with both APIs, that of E2B below /e2b/.

sub connect_server {
    my (%o) = @_;

    my $extra = delete $o{extra} // '';

    return SandboxTest::More::server(%o, extra => <<"END");
        location $BASE/ {
            sandbox_api e2b;
            $extra
        }
END
}


# The access token of a session, as the server derives it.

sub token {
    my ($id) = @_;

    my $key = SandboxTest::slurp($SandboxTest::More::PREFIX . '/token.key');

    return hmac_sha256_hex("envd $id", $key);
}


sub base64 { return encode_base64($_[0], '') }

sub envelope {
    my ($text, $flags) = @_;

    return pack('CN', $flags // 0, length $text) . $text;
}


# [flags, text] of each; the last one is cut where the bytes are.

sub envelopes {
    my ($bytes) = @_;

    my @all;

    while (length $bytes >= 5) {
        my ($flags, $n) = unpack 'CN', $bytes;
        push @all, [ $flags, substr $bytes, 5, $n ];
        substr $bytes, 0, 5 + $n, '';
    }

    push @all, [ -1, $bytes ] if length $bytes;

    return @all;
}


sub rpc_headers {
    my ($id, %o) = @_;

    my %h = ('E2b-Sandbox-Id' => $id, 'E2b-Sandbox-Port' => 49983,
             'X-Access-Token' => $o{token} // token($id),
             'Connect-Protocol-Version' => 1, %{ $o{headers} || {} });

    $h{Authorization} = 'Basic ' . base64("$o{user}:") if defined $o{user};
    $h{'Connect-Timeout-Ms'} = $o{ms} if defined $o{ms};

    return \%h;
}


sub text_of { return ref $_[0] ? $JSON->encode($_[0]) : $_[0] }


# A unary call: the answer, with its {json}.

sub rpc {
    my ($id, $method, $body, %o) = @_;

    return SandboxTest::More::call('POST', "/$method", base => $BASE,
        body => text_of($body // {}),
        headers => { 'Content-Type' => $o{type} // 'application/json',
                     %{ rpc_headers($id, %o) } });
}


# A call that is answered by a stream.

sub rpc_stream {
    my ($id, $method, $body, %o) = @_;

    my $s = SandboxTest::More::open_request('POST', "/$method",
        base => $BASE, rcvbuf => $o{rcvbuf},
        body => $o{bare} ? text_of($body) : envelope(text_of($body)),
        headers => { 'Content-Type' => $o{type} // $STREAM,
                     %{ rpc_headers($id, %o) } });

    return bless(take($s), __PACKAGE__);
}


sub take {
    my ($s) = @_;

    my $head = SandboxTest::More::read_head($s);

    return bless { s => $s, text => '', whole => 0, head => $head,
                   status => $head->{status}, headers => $head->{headers},
                   raw => $head->{rest},
                   chunked => ($head->{headers}{'transfer-encoding'} // '')
                              eq 'chunked' }, __PACKAGE__;
}


# The next message; that of the end is { end => ... }.  undef: there is none,
# or none in time.

sub next {
    my ($self, $seconds) = @_;

    my $deadline = time + SandboxTest::More::within($seconds // 20);

    for ( ;; ) {
        $self->unchunk;

        if (length $self->{text} >= 5) {
            my ($flags, $n) = unpack 'CN', $self->{text};

            if (length $self->{text} >= 5 + $n) {
                my $text = substr $self->{text}, 5, $n;

                substr $self->{text}, 0, 5 + $n, '';

                return $flags == 2 ? { end => $JSON->decode($text) }
                       : $flags == 0 ? $JSON->decode($text)
                       : { flags => $flags, text => $text };
            }
        }

        return undef if $self->{eof};

        my $more = SandboxTest::More::read_some($self->{s}, $deadline);

        return undef if !defined $more;
        $self->{eof} = 1 if $more eq '';
        $self->{raw} .= $more;
    }
}


# Of a process: all of it, put together.  {end} is its own, {error} and
# {closed} are the stream's.

sub rest {
    my ($self, $seconds) = @_;

    my %r = (stdout => '', stderr => '', pty => '', keepalives => 0,
             closed => 0);

    while (my $message = $self->next($seconds)) {
        add(\%r, $message);
        last if $r{closed};
    }

    return \%r;
}


sub add {
    my ($r, $message) = @_;

    if (exists $message->{end}) {
        $r->{closed} = 1;
        $r->{error} = $message->{end}{error};
        return;
    }

    my $event = $message->{event} // {};
    my ($type) = keys %$event;

    push @{ $r->{order} }, $type;

    if ($type eq 'data') {
        $r->{$_} .= decode_base64($event->{data}{$_})
            for keys %{ $event->{data} };

    } elsif ($type eq 'keepalive') {
        $r->{keepalives}++;

    } else {
        $r->{$type} = $event->{$type};
    }

    return;
}


# Until what came so far, of all streams, matches.

sub until {
    my ($self, $re, $seconds) = @_;

    my $r = $self->{so_far} //= { stdout => '', stderr => '', pty => '',
                                  keepalives => 0, closed => 0 };

    while ("$r->{stdout}$r->{stderr}$r->{pty}" !~ $re) {
        my $message = $self->next($seconds) // return undef;

        add($r, $message);
        return undef if $r->{closed};
    }

    return $r;
}


# A command that runs: its stream, with {pid}.

sub start {
    my ($id, $cmd, %o) = @_;

    my @argv = ref $cmd ? @$cmd : ('/bin/bash', '-l', '-c', $cmd);

    my %process = (cmd => shift @argv, args => \@argv);
    $process{$_} = $o{$_} for grep { exists $o{$_} } qw(cwd envs envVars);

    my %body = (process => \%process);
    $body{$_} = $o{$_} for grep { exists $o{$_} } qw(tag stdin pty);

    my $f = rpc_stream($id, 'process.Process/Start', \%body, %o);
    my $first = $f->next;

    $f->{first} = $first;
    $f->{pid} = $first->{event}{start}{pid} if $first && $first->{event};

    return $f;
}


1;
