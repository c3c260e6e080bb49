#!/usr/bin/perl

# What a worker does with a core that is slow, gone, or hostile: a fake one
# answers as the session's id tells it to.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";

use Test::More;
use Time::HiRes qw(time);
use SandboxTest;
use SandboxTest::Core;

plan(skip_all => 'python3 is not installed') if !-x '/usr/bin/python3';

my $t = SandboxTest->new(workers => 1);
my $p = $t->prefix;

core_starts($p);
$t->start;


sub id { return 'i' . $_[0] . '0' x (24 - length $_[0]) }

sub get {
    my ($mode, @more) = @_;

    return $t->api(GET => '/sessions/' . id($mode), undef, @more);
}

sub download { return $t->api(GET => '/sessions/' . id($_[0]) . '/files/x') }

sub says {
    my ($res) = @_;

    return "$res->{status} " . ($res->{json}{code} // '');
}

sub open_fds { return scalar(() = glob '/proc/' . ($t->workers)[0] . '/fd/*') }

my $res = get('good');
my $fds = open_fds();

is($res->{status}, 200, 'a call is answered');
is($res->{json}{session_id}, id('good'), 'by the session');

is(get('pieces')->{status}, 200, 'frames may come a byte at a time');

is(get('once')->{status}, 200, 'a call that nobody answered is sent again');
is(core_says('^call once 2'), 1, 'once');

is(says(get('never')), '503 E5001', 'lost twice, it is 503');
is(core_says('^call never'), 2, 'and was not sent a third time');
is(get('never')->{headers}{'retry-after'}, 1, 'which says when to try');

is(says(get('late')), '503 E5001', 'cut off after it was accepted: 503');
is(core_says('^call late'), 1, 'and never sent again');

for my $bad (qw(kind direction short huge stray lie owner)) {
    is(says(get($bad)), '500 E5002', "a bad frame is refused: $bad");
    ok(core_said("^eof i${bad}0"), 'and the call closed');
}

# What the other API is told.

sub look {
    my ($path, %h) = @_;

    return $t->api(GET => $path, undef, base => '', headers => \%h);
}

sub control { return look($_[1], 'X-API-Key' => 'e2b_00') }

sub envd {
    my ($mode, $path) = @_;

    return look($path, 'E2b-Sandbox-Id' => id($mode),
                'E2b-Sandbox-Port' => 49983);
}

sub log_of { return control($_[0], '/sandboxes/' . id($_[0]) . '/logs') }
sub figures_of { return control($_[0], '/sandboxes/' . id($_[0])
                                . '/metrics') }

is_deeply(log_of('logs')->{json}{logEntries},
          [ { timestamp => '2023-11-14T22:13:20.000Z', level => 'error',
              message => "\"\n\x{fffd}",
              fields => { '' => '', B => "\x01" } } ],
          'a log is told, whatever is in it');
is(figures_of('samples')->{json}[0]{cpuUsedPct} + 0, 100,
   'nobody has more than all processors');

for my $bad (qw(loglie loglevel logmany loglong)) {
    $res = log_of($bad);
    is("$res->{status} $res->{json}{code}", '500 500', "refused: $bad");
    ok(core_said("^eof i${bad}0"), 'and the call closed');
}

for my $bad (qw(samplefirst samplemany samplenone)) {
    $res = figures_of($bad);
    is("$res->{status} $res->{json}{code}", '500 500', "refused: $bad");
    ok(core_said("^eof i${bad}0"), 'and the call closed');
}

is_deeply(figures_of('sampleless')->{json}, [], 'there may be no figures');
is(envd('samples', '/metrics')->{json}{mem_cache}, 3, 'figures of envd');
is_deeply(envd('vars', '/envs')->{json},
          { A => '1', B => "\x{fffd}", '' => '2', C => 3,
            E2B_SANDBOX => 'true', E2B_SANDBOX_ID => id('vars') },
          'variables');

for my $bad ([ sampleless => '/metrics' ], [ samplenone => '/metrics' ],
             [ samplefirst => '/metrics' ], [ varsmany => '/envs' ])
{
    $res = envd(@$bad);
    is("$res->{status} $res->{json}{code}", '500 500',
       "refused: $bad->[0] as $bad->[1]");
}

$res = get('unended');
is(says($res), '409 E2011', 'strings without an end are given one');
is(length $res->{json}{detail}, 247, 'within their arrays');

get('forge');
ok($t->log_has(qr/sandbox: one\?2026\S+ forged/), 'a text that the log takes');
ok(!$t->log_has(qr{^2026/01/01 forged}m), 'makes no line of its own');

is(download('file')->{body}, 'hello', 'a file comes as a descriptor');

for my $bad (qw(none two pipe writable opath)) {
    is(says(download($bad)), '500 E5002', "a bad descriptor: $bad");
}

my $c = $t->connect;
$c->send_request(GET => '/v1/sessions/' . id('silent'));
core_said('^call silent');
$c->close;
ok(core_said('^eof isilent'), 'a client that goes away ends its call');

my $stdin = 'x' x 500_000;
my $exec = { cmd => ['x'], stdin => $stdin };

$res = $t->api(POST => '/sessions/' . id('deaf') . '/exec', $exec);
is(says($res), '429 E2003', 'an error is heard while nobody takes the rest');
is(join(',', @{$res->{json}}{qw(scope resource limit)}),
   'session,processes,7', 'with what it says of the limit');

$res = $t->api(POST => '/sessions/' . id('take') . '/exec', $exec);
is($res->{json}{exit_code}, 3, 'what was queued is sent again with the call');
my ($first) = core_log() =~ /^taken (\d+)/m;
my ($second) = core_log() =~ /^again (\d+)/m;
ok($first > 500_000, 'all of it was taken');
is($second, $first, 'twice the same');

my $rss = sub {
    my ($kb) = SandboxTest::slurp('/proc/' . ($t->workers)[0] . '/status')
               =~ /^VmRSS:\s+(\d+)/m;
    return $kb;
};

SKIP: {
    skip 'a sanitizer keeps freed memory', 1 if $SandboxTest::SANITIZE;

    cmp_ok($rss->(), '<', 64 * 1024, 'a flood leaves the worker small');
}

# The door: the core does not take calls for a while, then it does.

get('stall', timeout => 5);
core_said('^stalls');

my @waiting;

for (1 .. 400) {
    my $w = $t->connect(timeout => 20) or last;
    $w->send_request(GET => '/v1/sessions/' . id('good'));
    push @waiting, $w;
}

my $start = time;
is($t->http(GET => '/')->{status}, 404, 'others are served meanwhile');
cmp_ok(time - $start, '<', 1 * $SandboxTest::SLOW, 'at once');

my %got;
$got{ $_->read_response(timeout => 20)->{status} }++ for @waiting;
is_deeply(\%got, { 200 => 400 }, '400 calls wait at a full door, and pass');
$_->close for @waiting;

# And one that stays shut: calls have their deadline, nothing else waits.

kill 'STOP', core_pid();

@waiting = ();

for (1 .. 500) {
    my $w = $t->connect(timeout => 60) or last;
    $w->send_request(GET => '/v1/sessions/' . id('good'));
    push @waiting, $w;
}

$start = time;
ok(SandboxTest::wait_for(sub { $t->log_has(qr/takes no call/) }, 20),
   'a call does not wait for ever');
is($t->http(GET => '/')->{status}, 404, 'nor does anybody else');

kill 'CONT', core_pid();

%got = ();
$got{ $_->read_response(timeout => 30)->{status} }++ for @waiting;
is(join(' ', sort keys %got), '200 503', 'some came in time, others are told');
$_->close for @waiting;

ok(SandboxTest::wait_for(sub { open_fds() <= $fds + 1 }, 10),
   'no descriptor is left')
    or diag("$fds before, " . open_fds() . ' after');

# Gone for good.

core_ends();

is(says(get('good')), '503 E5001', 'without a core: 503');
is(get('good')->{headers}{'retry-after'}, 1, 'and when to try again');

unlink "$p/core.log";
$t->finish;

done_testing();
