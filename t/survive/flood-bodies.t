#!/usr/bin/perl

# Bodies that many clients have sent but for their last byte, and then all of
# them at once: each waits for its turn to be read, inflated and parsed, and no
# turn of a worker is longer for all of them than for one.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../lib";

use IO::Compress::Gzip qw(gzip);
use IO::Socket::INET;
use POSIX ();
use Test::More;
use SandboxTest;
use SandboxTest::Connect qw(rpc_headers envelope);
use SandboxTest::More;
use SandboxTest::Turns;

use constant {
    CLIENTS  => 40,
    REQUESTS => 60,       # one after the other on one connection
};

BEGIN {
    my $why = SandboxTest::Turns::missing();
    plan(skip_all => $why) if $why;
}

my $turns = SandboxTest::Turns->new;
my $H2 = SandboxTest::free_port();
my $t = server(workers => 1, extra => <<"END");
        listen 127.0.0.1:$H2 http2;
        location /e2b/ {
            sandbox_api e2b;
        }
END

ok($turns->loaded, 'turns are measured');

my $s = create_ok();
my %json = ('Content-Type' => 'application/json');
my %rpc = %{ rpc_headers($s) };


sub request {
    my ($method, $path, $body, %headers) = @_;

    return "$method $path HTTP/1.1\r\nHost: x\r\n"
           . join('', map { "$_: $headers{$_}\r\n" } sort keys %headers)
           . 'Content-Length: ' . length($body) . "\r\n\r\n$body";
}


sub client {
    return IO::Socket::INET->new(PeerAddr => '127.0.0.1',
                                 PeerPort => $t->port) // die "connect: $!";
}


sub send_all {
    my ($c, $bytes) = @_;

    my $at = 0;

    while ($at < length $bytes) {
        my $n = syswrite $c, $bytes, 1 << 20, $at;
        return if !defined $n;
        $at += $n;
    }

    return;
}


# The statuses of all that it says until its end.

sub statuses {
    my ($c) = @_;

    my $all = '';
    1 while sysread $c, $all, 1 << 16, length $all;
    close $c;

    return $all =~ m{HTTP/1\.1 (\d+) }g;
}


# [name, status, request]

my $field = '{"cmd":["a"],"env":{';
my $variables = $field . join(',', map { "\"n$_\":\"\"" } 1 .. 15_000)
                . '},"timeout_s":"x"}';
my $form = "--b\r\nContent-Disposition: form-data; name=\"file\"; "
           . "filename=\"x\"\r\n\r\n" . ('x' x 400_000) . "\r\n--b--\r\n";
my $gzip;

gzip(\$form => \$gzip) or die 'gzip';

my @bodies = (
    [ 'names and values', 400,
      request(POST => "/v1/sessions/$s/exec", $variables, %json,
              Connection => 'close') ],
    [ 'escapes', 400,
      request(POST => "/v1/sessions/$s/code", '{"language":"python","code":"'
              . '\\u00e9' x 150_000 . '","zz":1}', %json,
              Connection => 'close') ],
    [ 'files', 201,
      request(PUT => "/v1/sessions/$s/files/x", 'x' x 400_000,
              Connection => 'close') ],
    [ 'compressed forms', 200,
      request(POST => '/e2b/files?path=/workspace/f', $gzip, %rpc,
              'Content-Type' => 'multipart/form-data; boundary=b',
              'Content-Encoding' => 'gzip', Connection => 'close') ],
    [ 'messages of a stream', 200,
      request(POST => '/e2b/process.Process/StreamInput',
              envelope('{"keepalive":{' . join(',', map { "\"k$_\":0" }
                                              1 .. 16_000) . '}}') x 3,
              %rpc, 'Content-Type' => 'application/connect+json',
              Connection => 'close') ],
);

for my $body (@bodies) {
    my ($name, $status, $request) = @$body;

    $turns->brief($name, sub {
        my @clients = map { client() } 1 .. CLIENTS;
        my %seen;

        send_all($_, substr $request, 0, -1) for @clients;
        is(call('GET', '/health')->{status}, 200, "$name: all but the last");
        syswrite $_, substr $request, -1 for @clients;
        $seen{$_}++ for map { statuses($_) } @clients;

        # of those that make a file all but the first replace it
        $seen{201} += delete $seen{200} // 0 if $status == 201;
        is_deeply(\%seen, { $status => CLIENTS }, "$name: $status to each")
            or diag(explain(\%seen));
    });
}

$turns->brief('one after the other', sub {
    my $c = client();
    my $body = '{"cmd":["wc","-c"],"stdin":"' . 'x' x 135_000 . '"}';
    my $one = request(POST => "/v1/sessions/$s/exec", $body, %json);
    my $pid = fork // die "fork: $!";

    if ($pid == 0) {
        send_all($c, $one x (REQUESTS - 1)
                     . request(POST => "/v1/sessions/$s/exec", $body, %json,
                               Connection => 'close'));
        POSIX::_exit(0);
    }

    is(scalar(grep { $_ == 200 } statuses($c)), REQUESTS, 'each is answered');
    waitpid $pid, 0;
});

# By HTTP/2 a body may be whole before its session takes it.
my $headers = join ' ', map { "-H '$_: $rpc{$_}'" } sort keys %rpc;

for my $by ([ 'files by HTTP/2', "-T %s /v1/sessions/$s/files/h" ],
            [ 'forms by HTTP/2',
              "$headers -F file=@%s /e2b/files?path=/workspace/g" ])
{
    my ($name, $what) = @$by;

    $turns->brief($name, sub {
        my $file = $t->prefix . '/file';

        open my $f, '>', $file or die "$file: $!";
        print $f 'x' x 60_000;
        close $f;

        my $curl = 'curl -sS -m 30 --http2-prior-knowledge -o /dev/null'
                   . " -w '%{http_code}\n' "
                   . $what =~ s/%s/$file/r
                           =~ s{ /(?=v1|e2b)}{ http://127.0.0.1:$H2/}r;
        my %seen;

        $seen{ s/^200/201/r =~ s/\n//r }++
            for split /^/, `for n in \$(seq @{[CLIENTS]}); do $curl\$n & done;
                            wait`;
        is_deeply(\%seen, { 201 => CLIENTS }, "$name: each is taken")
            or diag(explain(\%seen));
    });
}

is(run($s, 'echo end')->{stdout}, "end\n", 'the session lives');
destroy($s);
$t->finish;
done_testing();
