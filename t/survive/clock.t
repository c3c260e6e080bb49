#!/usr/bin/perl

# The clock on the wall is set, by hours, forth and back, under nginx and its
# broker: everything lasts as long as it was to, what is told of times agrees
# with the new clock, and a broker that comes after knows no better.
#
# The machine's own clock stays as it is: t/lib/preload/clock.c.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../lib";

use Digest::SHA qw(sha256_base64);
use JSON::PP ();
use Test::More;
use Time::HiRes qw(time);
use Time::Local qw(timegm);
use SandboxTest;
use SandboxTest::Connect;
use SandboxTest::More;
use SandboxTest::Preload;

plan(skip_all => 'a sanitizer has to be the first library')
    if $SandboxTest::SANITIZE;

my $lib = preload('clock') // plan(skip_all => 'no compiler');
my $file = "/tmp/sbxclock.$$";

sub set {
    my ($hours) = @_;

    # in place: it is mapped

    open my $f, -e $file ? '+<:raw' : '>:raw', $file or die "$file: $!";
    print $f pack 'q', $hours * 3600 * 1e9;
    close $f;

    return;
}

END { unlink $file if $file }

set(0);
local @ENV{qw(LD_PRELOAD CLOCK_AHEAD)} = ($lib, $file);

my $t = SandboxTest->new(workers => 2, trust => 'standalone',
                         broker_env => { LD_PRELOAD => $lib,
                                         CLOCK_AHEAD => $file });

($SandboxTest::More::T, $SandboxTest::More::PORT,
 $SandboxTest::More::PREFIX) = ($t, $t->port, $t->prefix);
$t->start;


# ---- times -----------------------------------------------------------------

my %MONTH;
@MONTH{qw(Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec)} = 0 .. 11;

# What nginx takes for now.

sub date {
    my ($res) = @_;

    my ($d, $m, $y, $h, $mi, $s) = ($res->{headers}{date} // '')
        =~ /^\w+, (\d\d) (\w+) (\d{4}) (\d\d):(\d\d):(\d\d) GMT$/ or return 0;

    return timegm($s, $mi, $h, $d, $MONTH{$m}, $y);
}

sub seconds {
    my ($y, $mo, $d, $h, $mi, $s, $f) = ($_[0] // '') =~
        /^(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(\.\d+)?Z$/
        or return 0;

    return timegm($s, $mi, $h, $d, $mo - 1, $y) + ($f // 0);
}

# A session by that clock: seconds since it was made, and until it ends.

sub look {
    my ($id) = @_;

    my $res = call('GET', "/sessions/$id");
    my $now = date($res);
    my $j = $res->{json};

    return { age => $now - seconds($j->{created_at}), status => $j->{status},
             left => seconds($j->{expires_at}) - $now, at => time,
             json => $j };
}

# The two looks tell of the same session, as much later as it really is.

sub goes_on {
    my ($old, $id, $name, %o) = @_;

    local $Test::Builder::Level = $Test::Builder::Level + 1;

    my $new = look($id);
    my $passed = $new->{at} - $old->{at};
    my $older = $new->{age} - $old->{age} - $passed;
    my $less = $old->{left} - $new->{left} - ($o{paused} ? 0 : $passed);

    # both round to seconds, and one look may take one

    return ok(abs($older) < within(3) && abs($less) < within(3),
              "$name: made and ending as long ago and as soon as it is")
           || diag("$passed s later: age $old->{age}, $new->{age}; "
                   . "left $old->{left}, $new->{left}");
}

sub crash {
    my $old = $t->broker;

    $t->hit(KILL => $old);

    return until_true {
        my $new = $t->broker;
        $new && $new != $old && $t->ready;
    } 20;
}

sub signed {
    my ($id, $path, $until) = @_;

    my $text = join ':', $path, 'read', '', token($id), $until;

    return call('GET', "/files?path=$path&signature="
                       . enc('v1_' . sha256_base64($text))
                       . "&signature_expiration=$until",
                base => '', raw => 1,
                headers => { 'E2b-Sandbox-Id' => $id,
                             'E2b-Sandbox-Port' => 49983 });
}


# ---- forth and back --------------------------------------------------------

my ($runs, $still) = (create_ok({ timeout_s => 3000, tenant_id => 'default',
                                    user_id => 'default' }),
                      create_ok({ timeout_s => 2000 }));
my $pid = exec_call($runs, 'n=0; while :; do echo $n; n=$((n+1)); '
                           . 'sleep 0.05; done',
                    background => JSON::PP::true)->{json}{pid};
my $pauses = call('POST', "/sessions/$still/pause")->{status} == 200;
my $hours = 0;

put($runs, 'signed', 'signed');

for my $to (5, -7) {
    my $by = $to - $hours;

    subtest "the clock is set by $by h" => sub {
        my $brief = create_ok({ timeout_s => within(4) });
        my $idle = create_ok({ timeout_s => 3000, manifest =>
                               { idle_timeout_s => within(3) } });
        my $ended = create_ok();
        destroy($ended);

        my %was = map { $_ => look($_) } $runs, $still;
        my $date = date(call('GET', '/health'));
        my $began = time;

        set($hours = $to);

        ok((until_true {
            abs(date(call('GET', '/health')) - $date - $by * 3600)
            < 3 + time - $began;
        } 10), 'nginx has another time');

        goes_on($was{$runs}, $runs, 'one that runs');
        goes_on($was{$still}, $still, 'one that is paused',
                paused => $pauses);
        ok($t->log_has(qr/\[notice\].*the clock was set by -?\d+ ms/),
           'the log tells of it');

        my ($listed) = grep { $_->{session_id} eq $runs }
                       @{ call('GET', '/sessions')->{json}{sessions} };
        my $one = look($runs)->{json};
        is("$listed->{created_at} $listed->{expires_at}",
           "$one->{created_at} $one->{expires_at}",
           'the list tells the same');

        my $res = call('GET', "/sessions/$ended");
        is($res->{json}{ended}, 'destroyed', 'what has ended is remembered');
        cmp_ok(abs(date($res) - seconds($res->{json}{ended_at})), '<',
               within(10) + time - $began, 'to have ended just now');

        # what it has used, second by second

        my $figures = call('GET', "/sandboxes/$runs/metrics", base => '',
                           headers => { 'X-API-Key' => 'e2b_' . '0' x 40 });
        $figures = $figures->{json};
        my @when = map { $_->{timestampUnix} }
                   ref $figures eq 'ARRAY' ? @$figures : ();
        my @sorted = sort { $a <=> $b } @when;
        my $then = date(call('GET', '/health'));
        ok(@when && "@when" eq "@sorted" && $when[-1] <= $then + 2
           && $when[0] >= $then - within(600),
           'what it has used is told in its order') or diag(explain([ $figures, $then ]));

        my $t0 = time;
        my $r = run($runs, 'sleep 100', timeout_s => 1);
        is($r->{reason}, 'timeout', 'a command ends at its time');
        cmp_ok(time - $t0, '<', within(10), 'after as long');
        cmp_ok($r->{duration_s}, '<', within(10), 'which it is told');

        ok((until_true {
            (call('GET', "/sessions/$brief")->{json}{ended} // '')
            eq 'expired'
        } 20), 'a session ends when its time is over');
        cmp_ok(time - $began, '<', within(20), 'not later');
        # to ask for it by its name would be to use it

        ok((until_true {
            $t->log_has(qr/session ends: idle, session: $idle/)
        } 20), 'and one when nobody has used it');
        is(call('GET', "/sessions/$idle")->{json}{ended}, 'idle',
           'which it says');

        my $new = create_ok({ timeout_s => 1000 });
        my $look = look($new);
        cmp_ok(abs($look->{left} - 1000), '<', within(4),
               'a new one has its time');
        is(call('PATCH', "/sessions/$new", json => { timeout_s => 500 })
           ->{status}, 200, 'which is changed');
        cmp_ok(abs(look($new)->{left} - 500), '<', within(4),
               'by the clock of now');
        is(destroy($new)->{status}, 204, 'destroyed');

        # an address that is signed until a time is so by the wall's clock

        my $now = date(call('GET', '/health'));
        is(signed($runs, 'signed', $now + 600)->{body}, 'signed',
           'what is signed until later');
        is(signed($runs, 'signed', $now - 600)->{status}, 401,
           'and what is not any more');

        ok(crash(), 'another broker');
        goes_on($was{$runs}, $runs, 'after it');
        goes_on($was{$still}, $still, 'and the paused one',
                paused => $pauses);

        # set while there is none

        $t->hit(STOP => $t->keeper);
        my $old = $t->broker;
        $t->hit(KILL => $old);
        SandboxTest::gone([ $old ]);
        set($hours = $to + 3);
        $t->hit(CONT => $t->keeper);
        ok((until_true { my $n = $t->broker;
                         $n && $n != $old && $t->ready } 20),
           'set while no broker is there');
        goes_on($was{$runs}, $runs, 'the one that comes knows');
        goes_on($was{$still}, $still, 'of the paused one too',
                paused => $pauses);

        my ($state) = call('GET', "/sessions/$runs/processes/$pid")
                      ->{json}{state};
        is($state, 'running', 'what runs goes on');
    };
}


subtest 'the paused one has what it had left' => sub {
    plan(skip_all => 'this machine cannot pause') if !$pauses;

    my $left = look($still)->{left};

    is(call('POST', "/sessions/$still/resume")->{status}, 200, 'resumed');
    my $now = look($still);
    cmp_ok(abs($now->{left} - $left), '<', within(4), 'as much as before');
    cmp_ok($now->{left}, '>', 1900, 'nearly all');
};


is(destroy($_)->{status}, 204, 'destroyed') for $runs, $still;
$t->finish;
done_testing();
