package SandboxTest::More;

# What the black-box tests share above SandboxTest: sessions, commands and
# files in one call each, requests that are left half done, jobs beside the
# test, and a look at the server's processes from outside.

use strict;
use warnings;

use Digest::MD5 qw(md5_hex);
use Errno qw(EINTR);
use Exporter qw(import);
use File::Path qw(make_path);
use IO::Select;
use IO::Socket::INET;
use JSON::PP ();
use MIME::Base64 qw(encode_base64 decode_base64);
use POSIX ();
use Socket qw(IPPROTO_TCP TCP_NODELAY MSG_PEEK MSG_DONTWAIT SOL_SOCKET
              SO_RCVBUF);
use Test::More;
use Time::HiRes qw(time sleep);

use SandboxTest ();

our @EXPORT = qw(
    server call json_of create create_ok destroy run exec_call put get head
    del glob_of enc b64 unb64 md5_hex time
    is_problem until_true async open_request read_head read_response
    read_rest body_stream
    within host_pids workers rss fds inside slurp session_pids
    mounts cgroup_dirs
);

our ($T, $PORT, $PREFIX);
our $BASE = '/v1';

my $JSON = JSON::PP->new->utf8->canonical->allow_nonref;

sub slurp { return SandboxTest::slurp($_[0]) }


# Percent-encodes all but what is plain in any part of a URI.

sub enc {
    my ($s) = @_;

    $s =~ s/([^A-Za-z0-9._~-])/sprintf '%%%02X', ord $1/ge;

    return $s;
}


sub b64 { return encode_base64($_[0], '') }

sub unb64 { return decode_base64($_[0]) }


# Seconds as this machine needs them: more under a sanitizer, or emulated.

sub within { return $_[0] * $SandboxTest::SLOW }


# ---- the server ----------------------------------------------------------

# The shipped configuration with two workers (or "workers"), and:
#   extra          lines for the server block
#   http           lines for the http block
#   max_upload, uid_range     values of those directives
#   reuseport      each worker listens by itself, so that both are met
#   worker_header  X-Worker tells which one answered
#   edit           changes what is then in $_

sub server {
    my (%o) = @_;

    my $http = $o{uid_range} ? "    sandbox_uid_range $o{uid_range};" : '';
    my $upload = $o{max_upload} // '1g';

    $http .= $o{http} // '';

    $T = SandboxTest->new(
        workers => $o{workers} // 2,
        http => $http,
        server => $o{extra} // '',
        location => $o{worker_header}
                    ? '            add_header X-Worker $pid always;' : '',
        edit => sub {
            s/^ {8}sandbox_max_json .*\n//m;
            s/^ {8}sandbox_max_upload .*\n//m;
            s/^(    server \{\n)/$1        sandbox_max_json 4m;\n/m;
            s/^(    server \{\n)/$1        sandbox_max_upload $upload;\n/m;
            s/(listen [^;]*);/$1 reuseport;/ if $o{reuseport};
            $o{edit}->() if $o{edit};
        });

    ($PORT, $PREFIX) = ($T->port, $T->prefix);
    $T->start;
    check_walls();

    return $T;
}


# The tests do inside what would ruin the machine outside: none of it is
# begun where a command is not behind its walls.

sub check_walls {
    my $id = create_ok();
    my $r = run($id, 'for n in pid mnt user net; do readlink /proc/self/ns/$n;'
                     . " done; ls -d \Q$PREFIX\E /boot/vmlinuz* 2>/dev/null");
    my @ns = map { readlink "/proc/self/ns/$_" } qw(pid mnt user net);
    my @in = split /\n/, $r->{stdout};

    destroy($id);

    return if @in == 4 && !grep { $in[$_] eq $ns[$_] } 0 .. 3;

    diag($r->{stdout}, $r->{stderr});
    die "a command is not isolated: nothing more is tried\n";
}


# ---- HTTP ----------------------------------------------------------------

sub open_request {
    my ($method, $path, %o) = @_;

    my $s = IO::Socket::INET->new(PeerAddr => '127.0.0.1',
                                  PeerPort => $PORT, Timeout => 10)
        or die "cannot connect to $PORT: $!";

    binmode $s;
    setsockopt $s, IPPROTO_TCP, TCP_NODELAY, 1;
    setsockopt $s, SOL_SOCKET, SO_RCVBUF, $o{rcvbuf} if $o{rcvbuf};

    my %h = (Host => 'localhost', Connection => 'close',
             %{ $o{headers} || {} });

    my $body = $o{body};

    if (exists $o{json}) {
        $body = ref $o{json} ? $JSON->encode($o{json}) : $o{json};
        $h{'Content-Type'} //= 'application/json';
    }

    $h{'Content-Length'} = length $body
        if defined $body && !exists $h{'Content-Length'}
           && !exists $h{'Transfer-Encoding'};

    my $target = $path =~ m{^//} ? substr($path, 1)
                                 : ($o{base} // $BASE) . $path;
    my $head = "$method $target HTTP/1.1\r\n";

    for my $k (sort keys %h) {
        $head .= "$k: $h{$k}\r\n" if defined $h{$k};
    }

    send_all($s, "$head\r\n" . ($body // ''));

    return $s;
}


# Writes what the peer takes; a peer that closed is no error here: what it
# answered is read afterwards.

sub send_all {
    my ($s, $bytes) = @_;

    local $SIG{PIPE} = 'IGNORE';
    my $at = 0;

    while ($at < length $bytes) {
        my $n = syswrite $s, $bytes, length($bytes) - $at, $at;

        if (!defined $n) {
            next if $! == EINTR;
            return $at;
        }

        $at += $n;
    }

    return $at;
}


sub read_some {
    my ($s, $deadline, $max) = @_;

    my $left = $deadline - time;
    return undef if $left <= 0;
    return undef if !IO::Select->new($s)->can_read($left);

    my $n = sysread $s, my $buf, $max // 65536;

    return defined $n && $n > 0 ? $buf : '';
}


# The status line and headers; what came after them is in {rest}.

sub read_head {
    my ($s, %o) = @_;

    my $deadline = time + ($o{timeout} // within(30));
    my $buf = $o{rest} // '';
    my $end;

    while (($end = index $buf, "\r\n\r\n") == -1) {
        my $more = read_some($s, $deadline, $o{chunk});

        if (!defined $more || $more eq '') {
            return { status => 0, headers => {}, body => '', rest => $buf,
                     error => defined $more ? 'closed' : 'timeout' };
        }

        $buf .= $more;
    }

    my ($first, @lines) = split /\r\n/, substr($buf, 0, $end);
    my ($status) = $first =~ m{^HTTP/1\.[01] (\d{3})};
    my (%h, @all);

    for my $line (@lines) {
        my ($k, $v) = $line =~ /^([^:]+):\s*(.*)$/ or next;
        push @all, [ lc $k, $v ];
        $h{lc $k} = $v;
    }

    my $rest = substr $buf, $end + 4;

    if ($status && $status == 100) {
        return read_head($s, %o, rest => $rest);
    }

    return { status => $status || 0, headers => \%h, all => \@all,
             rest => $rest, head => substr($buf, 0, $end) };
}


# Calls back with each piece of a body; the count of bytes, and whether the
# end was the one that the headers promised.

sub body_stream {
    my ($s, $res, $take, %o) = @_;

    my $deadline = time + ($o{timeout} // within(60));
    my $want = $res->{headers}{'content-length'};
    my $got = 0;
    my $piece = delete $res->{rest};

    for ( ;; ) {
        if (length $piece) {
            $got += length $piece;
            $take->($piece);
        }

        last if defined $want && $got >= $want;

        $piece = read_some($s, $deadline, $o{chunk} // 262144);
        last if !defined $piece || $piece eq '';
    }

    return ($got, defined $want ? $got == $want : defined $piece);
}


sub read_rest {
    my ($s, %o) = @_;

    my $deadline = time + ($o{timeout} // within(30));
    my $all = '';

    for ( ;; ) {
        my $more = read_some($s, $deadline);
        return ($all, 0) if !defined $more;
        return ($all, 1) if $more eq '';
        $all .= $more;
    }
}


sub read_response {
    my ($s, %o) = @_;

    my $res = read_head($s, %o);
    my $no_body = ($o{method} // '') eq 'HEAD' || $res->{status} == 204
                  || $res->{status} == 304 || $res->{status} == 0;

    if ($no_body) {
        $res->{body} = '';
        return $res;
    }

    if (($res->{headers}{'transfer-encoding'} // '') eq 'chunked') {
        my ($rest, $closed) = read_rest($s, %o);
        my $raw = $res->{rest} . $rest;
        my $body = '';

        while ($raw =~ s/^([0-9A-Fa-f]+)[^\r\n]*\r\n//) {
            my $n = hex $1;
            last if $n == 0;
            $body .= substr $raw, 0, $n;
            substr $raw, 0, $n + 2, '';
        }

        $res->{body} = $body;

    } else {
        my $body = '';
        my (undef, $whole) = body_stream($s, $res, sub { $body .= $_[0] },
                                         %o);
        $res->{body} = $body;
        $res->{error} = 'cut' if !$whole;
    }

    if (($res->{headers}{'content-type'} // '') =~ m{^application/\S*json}
        && !$o{raw})
    {
        $res->{json} = eval { parse($res->{body}) };
        $res->{error} = "bad JSON: $@" if $@;
    }

    return $res;
}


sub call {
    my ($method, $path, %o) = @_;

    my $s = open_request($method, $path, %o);
    my $res = read_response($s, %o, method => $method);
    close $s;

    return $res;
}


sub json_of { return $JSON->encode($_[0]) }

sub parse { return $JSON->decode($_[0]) }


# ---- the API -------------------------------------------------------------

sub create {
    my ($fields, %o) = @_;

    return call('POST', '/sessions', %o,
                json => { tenant_id => 'acme-corp', user_id => 'alice',
                          %{ $fields || {} } });
}


# The id of a session that is there; a test file cannot go on without.

sub create_ok {
    my ($fields, %o) = @_;

    my $res = create($fields, %o);

    if ($res->{status} != 201) {
        diag("create answered $res->{status}: " . ($res->{body} // '')
             . ($res->{error} // ''));
        die "no session\n";
    }

    return $res->{json}{session_id};
}


sub destroy {
    my ($id) = @_;

    return call('DELETE', "/sessions/$id");
}


sub exec_call {
    my ($id, $cmd, %fields) = @_;

    my %o = %{ delete $fields{_http} || {} };

    # whoever calls waits for longer than the command may take

    $o{timeout} //= within(30) + $1
        if ($fields{timeout_s} // '') =~ /^(\d+)/;

    return call('POST', "/sessions/$id/exec", %o,
                json => { cmd => $cmd, %fields });
}


# The answer of a command that was run; where the server refused, a hash
# that no test of an answer takes for one.

sub run {
    my ($id, $cmd, %fields) = @_;

    my $res = exec_call($id, $cmd, %fields);

    if ($res->{status} != 200 || ref $res->{json} ne 'HASH') {
        diag("exec answered $res->{status}: "
             . substr($res->{body} // '', 0, 600) . ($res->{error} // ''));
        return { stdout => "(status $res->{status})", stderr => '',
                 exit_code => -1, reason => 'refused', usage => {},
                 duration_s => -1, stdout_bytes => -1, stderr_bytes => -1 };
    }

    return $res->{json};
}


sub file_path {
    my ($id, $path) = @_;

    # "?..." goes as it is: the caller uses the query's forms

    return "/sessions/$id/files$path" if $path =~ /^\?/;

    my $p = join '/', map { enc($_) } split m{/}, $path, -1;

    return "/sessions/$id/files/$p";
}


sub put {
    my ($id, $path, $bytes, %o) = @_;

    my $q = delete $o{query};

    return call('PUT', file_path($id, $path) . ($q ? "?$q" : ''), %o,
                body => $bytes);
}


sub get {
    my ($id, $path, %o) = @_;

    my $q = delete $o{query};

    return call('GET', file_path($id, $path) . ($q ? "?$q" : ''), %o);
}


sub head {
    my ($id, $path, %o) = @_;

    return call('HEAD', file_path($id, $path), %o);
}


sub del {
    my ($id, $path, %o) = @_;

    my $q = delete $o{query};

    return call('DELETE', file_path($id, $path) . ($q ? "?$q" : ''), %o);
}


sub glob_of {
    my ($id, $pattern, $more) = @_;

    return call('GET', "/sessions/$id/files?glob=" . enc($pattern)
                       . ($more ? "&$more" : ''));
}


sub is_problem {
    my ($res, $status, $code, $name, $detail) = @_;

    local $Test::Builder::Level = $Test::Builder::Level + 1;

    my $j = ref $res->{json} eq 'HASH' ? $res->{json} : {};
    my @wrong;

    push @wrong, "status $res->{status}, not $status"
        if $res->{status} != $status;
    push @wrong, 'code ' . ($j->{code} // 'none') . ", not $code"
        if ($j->{code} // '') ne $code;
    push @wrong, 'the body tells another status'
        if ($j->{status} // -1) != $res->{status};
    push @wrong, 'type ' . ($res->{headers}{'content-type'} // 'none')
        if ($res->{headers}{'content-type'} // '')
           !~ m{^application/problem\+json\b};

    for my $k (qw(title error detail suggestion)) {
        push @wrong, "no $k" if !defined $j->{$k} || $j->{$k} eq '';
    }

    push @wrong, 'detail "' . ($j->{detail} // '') . "\" !~ $detail"
        if $detail && ($j->{detail} // '') !~ $detail;

    if (!ok(!@wrong, $name)) {
        diag("    $_") for @wrong, substr($res->{body} // '', 0, 400),
                           ($res->{error} // ());
        return 0;
    }

    return 1;
}


# ---- waiting -------------------------------------------------------------

sub until_true (&;$) {
    my ($test, $seconds) = @_;

    my $deadline = time + within($seconds // 5);
    my $pause = 0.002;

    for ( ;; ) {
        my $v = $test->();
        return $v if $v;
        return $v if time > $deadline;
        sleep $pause;
        $pause = $pause * 1.5 > 0.1 ? 0.1 : $pause * 1.5;
    }
}


# Runs the block beside the test; ->get waits for what it returned.

sub async (&) {
    my ($code) = @_;

    pipe my $r, my $w or die "pipe: $!";
    my $pid = fork // die "fork: $!";

    if ($pid == 0) {
        close $r;
        my $v = eval { $code->() };
        my $out = $JSON->encode([ $v, $@ ]);
        send_all($w, $out);
        close $w;
        POSIX::_exit(0);
    }

    close $w;

    return bless { pid => $pid, r => $r }, 'SandboxTest::More::Job';
}


sub SandboxTest::More::Job::ready {
    my ($job) = @_;

    return IO::Select->new($job->{r})->can_read(0) ? 1 : 0;
}


sub SandboxTest::More::Job::get {
    my ($job, $seconds) = @_;

    return $job->{value} if $job->{done};

    my $deadline = time + ($seconds // 60);
    my $all = '';

    for ( ;; ) {
        my $more = read_some($job->{r}, $deadline);

        if (!defined $more) {
            kill 'KILL', $job->{pid};
            last;
        }

        last if $more eq '';
        $all .= $more;
    }

    waitpid $job->{pid}, 0;
    $job->{done} = 1;

    my $v = eval { $JSON->decode($all) } || [ undef, 'the job was too late' ];
    diag("job: $v->[1]") if $v->[1];

    return $job->{value} = $v->[0];
}


# ---- the server from outside ---------------------------------------------

sub workers { return $T->workers }


sub rss {
    my $sum = 0;

    for my $pid (@_) {
        my ($n) = (slurp("/proc/$pid/status") // '') =~ /^VmRSS:\s+(\d+)/m;
        $sum += $n // 0;
    }

    return $sum * 1024;
}


# Of one that has ended there are none, nor of one that cannot be looked at,
# which is no number that a test may go on with.

sub fds {
    my ($pid) = @_;

    opendir my $d, "/proc/$pid/fd"
        or return SandboxTest::alive($pid)
                  ? die "what process $pid has open cannot be seen: $!\n"
                  : -1;

    return scalar grep { /^\d/ } readdir $d;
}


# Processes of the whole machine whose command line holds the marker.

sub host_pids {
    my ($marker) = @_;

    my @found;

    for my $dir (glob '/proc/[0-9]*') {
        my $line = slurp("$dir/cmdline") // next;
        $line =~ tr/\0/ /;
        my ($pid) = $dir =~ /(\d+)$/;

        push @found, $pid if $pid != $$ && index($line, $marker) != -1;
    }

    return @found;
}


# Everything below the keeper: the broker, inits and what they started.

sub session_pids {
    my @all;
    my @todo = SandboxTest::children($T->keeper);

    while (defined(my $pid = shift @todo)) {
        push @all, $pid;
        push @todo, SandboxTest::children($pid);
    }

    return @all;
}


sub mounts {
    my ($pid) = @_;

    my @lines = sort split /\n/,
                slurp('/proc/' . ($pid // 'self') . '/mountinfo') // '';

    return @lines;
}


# The group directories of this server, in every hierarchy.

sub cgroup_dirs {
    $T->note_processes;

    my @all;
    my @todo = map { [ $_, 0 ] } SandboxTest::cgroup_roots();

    while (defined(my $e = shift @todo)) {
        my ($dir, $own) = @$e;

        opendir my $d, $dir or next;

        for my $name (grep { !/^\./ } readdir $d) {
            next if -l "$dir/$name" || !-d _;
            my $mine = $own || $T->{names}{$name};
            push @all, "$dir/$name" if $mine;
            push @todo, [ "$dir/$name", $mine ];
        }
    }

    @all = sort @all;

    return @all;
}


# A static program of t/lib/inside, built once; its bytes.

sub inside {
    my ($name) = @_;

    my $src = "$SandboxTest::ROOT/t/lib/inside/$name.c";
    my $dir = "$SandboxTest::ROOT/build/t/inside";
    my $exe = "$dir/$name";

    if (!-e $exe || (stat $exe)[9] < (stat $src)[9]) {
        eval { make_path($dir) };
        my $new = "$exe.$$";
        system('gcc', '-std=gnu11', '-D_GNU_SOURCE', '-O2', '-static',
               '-o', $new, $src) == 0
            or return undef;
        rename $new, $exe;
    }

    return slurp($exe);
}


1;
