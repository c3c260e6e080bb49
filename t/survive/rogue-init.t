#!/usr/bin/perl

# A session whose first process is its enemy's answers every kind of call with
# every kind of frame, and each of them wrong in every way.  What cannot be is
# refused as such and the call is closed at once; whatever else comes, the
# worker answers as the contract says, other requests go on meanwhile, and it
# holds no more than before.
#
# The attacks are t/lib/inside/rogue-init's.  SANDBOX_TEST_LONG=1: each of them
# upon each route; else every route has a part of those of a single frame, and
# all routes together have all.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../lib";

use IO::Select;
use IO::Socket::INET;
use JSON::PP ();
use Test::More;
use Time::HiRes qw(time);
use SandboxTest;
use SandboxTest::Connect qw(rpc_headers envelope);
use SandboxTest::More;

use constant {
    JOBS   => 4,          # routes at a time
    PART   => 12,         # of the frames, for each route
    LARGE  => 1 << 20,    # as much of an answer is read
    WAIT   => 40,         # seconds for it
    GROWTH => 48 << 20,   # bytes that a worker may have more
};

my $init = inside('rogue-init');

plan(skip_all => 'the rogue init cannot be built') if !defined $init;

my $t = SandboxTest->new(workers => 2, server => <<'END');
        location /e2b/ {
            sandbox_api e2b;
        }
END

($SandboxTest::More::T, $SandboxTest::More::PORT,
 $SandboxTest::More::PREFIX) = ($t, $t->port, $t->prefix);

my $file = $t->prefix . '/helpers/sandbox-init';

unlink $file;
open my $f, '>:raw', $file or die $!;
print $f $init;
close $f or die $!;
chmod 0755, $file;

my @attacks = map { [ split / /, $_, 4 ] } split /\n/, `$file --list`;
my $frames = grep { $_->[2] ne '-' } @attacks;

cmp_ok($frames, '>', 400, 'frames that are wrong in each way');
cmp_ok(@attacks - $frames, '>', 35, 'and what else can be done');

# nginx says so of a file that is cut while it is sent

$t->allow(qr/sendfile\(\) reported that "\S*" was truncated/);
$t->start;


# ---- routes ---------------------------------------------------------------

my $EXEC = { cmd => ['other'] };
my $NDJSON = 'application/x-ndjson';
my $KEY = { 'X-API-Key' => 'e2b_' . '0' x 40 };

# Name, method, path below the session's, body, headers; the word: which of
# the whole attacks are its, beside those that are everybody's.

my @routes = (
    [ exec => POST => '/exec', $EXEC ],
    [ 'exec, streamed' => POST => '/exec', $EXEC, { Accept => $NDJSON } ],
    [ 'exec, in the background' => POST => '/exec',
      { cmd => ['other'], background => \1 } ],
    [ terminal => GET => '/terminal', undef,
      { Connection => 'Upgrade', Upgrade => 'websocket',
        'Sec-WebSocket-Version' => 13,
        'Sec-WebSocket-Key' => 'dGhlIHNhbXBsZSBub25jZQ==' } ],
    [ code => POST => '/code', { code => '1', language => 'python' } ],
    [ 'code, streamed' => POST => '/code',
      { code => '1', language => 'python' }, { Accept => $NDJSON } ],
    [ 'a context' => POST => '/contexts', { language => 'python' } ],
    [ contexts => GET => '/contexts' ],
    [ 'a context less' => DELETE => '/contexts/abc' ],
    [ 'a context anew' => POST => '/contexts/abc/restart' ],
    [ processes => GET => '/processes' ],
    [ process => GET => '/processes/7' ],
    [ output => GET => '/processes/7/output' ],
    [ 'output, streamed' => GET => '/processes/7/output', undef,
      { Accept => $NDJSON } ],
    [ stdin => POST => '/processes/7/stdin', { data => 'x' } ],
    [ signal => POST => '/processes/7/signal', { signal => 'SIGTERM' } ],
    [ resize => POST => '/processes/7/resize', { rows => 1, cols => 1 } ],
    [ cancel => POST => '/cancel' ],
    [ glob => GET => '/files?glob=*' ],
    [ download => GET => '/files/x', undef, undef, 'file' ],
    [ 'a range' => GET => '/files/x', undef, { Range => 'bytes=1-3' },
      'file' ],
    [ head => HEAD => '/files/x', undef, undef, 'file' ],
    [ upload => PUT => '/files/x', 'x' x 100_000 ],
    [ unlink => DELETE => '/files/x' ],
    [ stat => GET => '/stat/x' ],
    [ list => GET => '/list/x' ],
    [ mkdir => POST => '/mkdir', { path => 'x' } ],
    [ move => POST => '/move', { from => 'x', to => 'y' } ],
    [ search => POST => '/search', { pattern => 'x' } ],
    [ archive => GET => '/archive/x' ],
    [ unpack => PUT => '/archive/x', 'x' x 10_000,
      { 'Content-Type' => 'application/x-tar' } ],
    [ watch => GET => '/watch/x' ],
    [ port => GET => '/ports/80/', undef, undef, 'socket' ],
    [ 'e2b: process' => POST => 'e2b/process.Process/Start',
      envelope('{"process":{"cmd":"other"}}'),
      { 'Content-Type' => 'application/connect+json' } ],
    [ 'e2b: processes' => POST => 'e2b/process.Process/List', {} ],
    [ 'e2b: files' => POST => 'e2b/filesystem.Filesystem/ListDir',
      { path => '/x' } ],
    [ 'e2b: stat' => POST => 'e2b/filesystem.Filesystem/Stat',
      { path => '/x' } ],
    [ 'e2b: watch' => POST => 'e2b/filesystem.Filesystem/WatchDir',
      envelope('{"path":"/x"}'),
      { 'Content-Type' => 'application/connect+json' } ],
    [ 'e2b: download' => GET => 'e2b/files?path=/x', undef, undef, 'file' ],
    [ 'e2b: variables' => GET => 'e2b/envs' ],
    [ 'e2b: code' => POST => 'e2b/execute', { code => '1' },
      { 'E2b-Sandbox-Port' => 49999 } ],
    [ 'e2b: logs' => GET => 'e2b/sandboxes/%s/logs', undef, $KEY ],
);


# ---- a request, and what is wrong with its answer -------------------------

# What a body of JSON is about; undef where it is none.

sub parsed {
    my ($body) = @_;

    return eval { JSON::PP->new->utf8->allow_nonref->decode($body) };
}


sub ask {
    my ($id, $route) = @_;

    my (undef, $method, $path, $body, $more) = @$route;
    my %h = (%{ $path =~ /^e2b/ && $path !~ /sandboxes/ ? rpc_headers($id)
                                                        : {} },
             $method eq 'HEAD' ? () : ('X-Rogue' => 1), %{ $more || {} });

    $path = $path =~ s{^e2b}{}r =~ s/%s/$id/r if $path =~ /^e2b/;

    my $s = open_request($method, $route->[2] =~ /^e2b/ ? $path
                                                    : "/sessions/$id$path",
                         base => $route->[2] =~ /^e2b/ ? '/e2b' : '/v1',
                         headers => \%h,
                         ref $body ? (json => $body) : (body => $body));
    my $all = '';
    my $end = time + WAIT * $SandboxTest::SLOW;
    my $closed = 0;

    while (length $all < LARGE) {
        my $left = $end - time;
        last if $left <= 0 || !IO::Select->new($s)->can_read($left);
        my $n = sysread $s, $all, 65536, length $all;

        # a WebSocket's client is to say when it ends, and keeps alive what
        # is none

        $closed = 1, last
            if !$n || $all =~ m{^HTTP/1\.1\ 101}x
               || ($h{Upgrade} && $all =~ /\}\s*\z/);
    }

    close $s;

    my ($head, $rest) = split /\r\n\r\n/, $all, 2;
    my ($status) = ($head // '') =~ m{^HTTP/1\.1 (\d{3})};
    my ($type) = ($head // '') =~ /^Content-Type: ([^\r]*)/mi;
    my ($length) = ($head // '') =~ /^Content-Length: (\d+)/mi;

    return { status => $status // 0, type => $type // '', body => $rest // '',
             closed => $closed || length $all >= LARGE,
             whole => defined $length && $length == length($rest // '') };
}


# What must not be, or undef.

my $STREAMS = qr/streamed|watch|e2b: process$|e2b: code|terminal/;
my %KNOWN = map { $_ => 1 } qw(101 200 201 202 204 206 400 403 404 409 410 412 413
                               416 429 500 502 503 504 507);

sub wrong {
    my ($res, $attack, $route) = @_;

    my (undef, $make, $begin) = @$attack;

    return "no answer in time: $res->{status}" if !$res->{closed};

    # a stream that breaks is cut, be it before its first byte is on its way

    return undef if $res->{status} == 0
                    && ($begin eq '2' || $route->[0] =~ $STREAMS);
    return "status $res->{status}" if !$KNOWN{ $res->{status} };

    my $json = $res->{whole} && $res->{type} =~ m{^application/(?:\S*\+)?json}
               && $route->[1] ne 'HEAD';

    return "no JSON: $res->{body}"
        if $json && length $res->{body} && !defined parsed($res->{body});
    return "a control character: $res->{body}"
        if $json && $res->{body} =~ /[\0-\x09\x0b-\x1f]/;

    return undef if $make ne 'bad' || $begin eq '2'
                    || ($begin eq '1' && $res->{status} == 200
                        && $route->[0] =~ $STREAMS && !$res->{whole});

    # the port, where nobody listens, may have been asked before it

    return undef if $begin eq '1' && $route->[0] eq 'port'
                    && $res->{status} == 502;

    # a bad frame before anything was said

    my $said = $route->[1] eq 'HEAD' ? '"E5002"' : $res->{body};

    return undef if $route->[2] =~ /^e2b/
                    && ($res->{status} == 500 || $said =~ /"internal"/);

    return $res->{status} == 500 && $said =~ /"E5002"/
           ? undef : "a bad frame is answered $res->{status} $said";
}


# ---- all of them ----------------------------------------------------------

sub order {
    my ($id, @words) = @_;

    return call('POST', "/sessions/$id/exec",
                json => { cmd => [ 'rogue', @words ] })->{json}{stdout} // '';
}


# The attacks of a route: lists of numbers, each in equal steps.

sub parts {
    my ($route, $n) = @_;

    my $step = $ENV{SANDBOX_TEST_LONG} ? 1 : PART;
    my @frames = grep { $_ < $frames && ($_ - $n) % $step == 0 } 0 .. $frames;
    my @all = ([ @frames ]);
    my $own = $route->[5] // '';
    my $last = -1;

    for my $i ($frames .. $#attacks) {
        my $name = $attacks[$i][3];
        my $of = $name =~ /socket|two sockets/ && $name !~ /for a file/
                 ? 'socket'
                 : $name =~ /file|FIFO|directory|dev|O_PATH|memfd/ ? 'file'
                 : '';

        next if $of ne $own && $of ne '';
        next if $name =~ /much|many|over and over/ && ($i + $n) % $step;

        push @all, [] if $i != $last + 1;
        push @{ $all[-1] }, $last = $i;
    }

    return @all;
}


sub attack_route {
    my ($route, $n) = @_;

    my $id = $route->[2] =~ /sandboxes/
        ? call('POST', '/sandboxes', base => '/e2b', headers => $KEY,
               json => { templateID => 'base' })->{json}{sandboxID}
        : create_ok({ manifest => {
              capabilities => [qw(shell files code ports)] } });
    my (@wrong, $seen);

    for my $part (parts($route, $n)) {
        order($id, from => $part->[0] . ' '
                           . (@$part > 1 ? $part->[1] - $part->[0] : 1));

        for my $i (@$part) {
            my $why = wrong(ask($id, $route), $attacks[$i], $route);
            push @wrong, "$i $attacks[$i][3]: $why" if defined $why;
            $seen++;
        }

        # each of them has come to pass

        my $next = $part->[-1] + (@$part > 1 ? $part->[1] - $part->[0] : 1);
        my $at = order($id, 'at');
        push @wrong, "after $part->[-1] it is at $at" if $at ne $next;
    }

    destroy($id);

    return { wrong => \@wrong, seen => $seen };
}


my $spare = create_ok();
my @workers = sort { $a <=> $b } $t->workers;
my (%files, %memory);

# what they need once and keep

attack_route([ @{ $routes[0] }[0 .. 4], "none" ], 0);
$files{$_} = fds($_) for @workers;
$memory{$_} = rss($_) for @workers;

my %jobs;
my $n = 0;
my $slowest = 0;
my $others = 0;

while ($n < @routes || %jobs) {
    while ($n < @routes && keys %jobs < JOBS) {
        my $i = $n++;
        $jobs{$i} = async { attack_route($routes[$i], $i) };
    }

    # others are served all the while

    my $start = time;
    my $res = call('GET', "/sessions/$spare");
    my $took = time - $start;
    $slowest = $took if $took > $slowest;
    $others++ if $res->{status} != 200;

    for my $i (grep { $jobs{$_}->ready } sort keys %jobs) {
        my $v = (delete $jobs{$i})->get(600) // {};
        my @wrong = @{ $v->{wrong} // ['it did not end'] };

        ok(!@wrong, "$routes[$i][0]: " . ($v->{seen} // 0) . ' attacks');
        diag("    $_") for @wrong > 12 ? @wrong[0 .. 11] : @wrong;
    }

    select undef, undef, undef, 0.02;
}

is($others, 0, 'no other request fails');
cmp_ok($slowest, '<', within(5), 'others are served all the while');
is_deeply([ sort { $a <=> $b } $t->workers ], \@workers,
          'the workers are the same');

for my $pid (@workers) {
    ok(until_true(sub { fds($pid) <= $files{$pid} + 1 }, 20),
       'no descriptor is left')
        or diag("$files{$pid} before, " . fds($pid) . ' after');

    SKIP: {
        skip 'a sanitizer keeps freed memory', 1 if $SandboxTest::SANITIZE;
        cmp_ok(rss($pid) - $memory{$pid}, '<', GROWTH, 'nor memory');
    }
}

is(destroy($spare)->{status}, 204, 'the session that was idle goes');
$t->finish;
done_testing();
