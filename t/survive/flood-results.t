#!/usr/bin/perl

# Results of code that streams tell clients of who do not read: a worker holds
# no more of them than it may of answers, tells what it has left out, and has
# all of its room again when they have gone.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../lib";

use Digest::SHA qw(hmac_sha256_hex);
use Test::More;
use SandboxTest::More;
use SandboxTest::Code;

use constant {
    MB    => 1 << 20,
    FEW   => 12,          # that do not read, of 20 MB each
    MANY  => 20,
    BOUND => 256,         # MB
    ROOM  => 110,         # MB, for what malloc and nginx have besides
};

my $t = code_server(workers => 1, extra => <<'CONF');
        location /e2b/ { sandbox_api e2b; }
CONF
my ($worker) = workers();
my $s = create_ok({ manifest => { resources => { memory => '512M' } } });
my $token = hmac_sha256_hex("envd $s", slurp($t->prefix . '/token.key'));

# nearly as much as the JSON of a result may have
my $SHOW = "from IPython.display import display, HTML\n"
           . "def show(): display(HTML('\\x01' * 3_400_000))\n";
my $BIG = '"' . '\u0001' x 3_400_000 . '"';

my @forms = (
    [ "/sessions/$s/code", { Accept => 'application/x-ndjson' } ],
    [ '//e2b/execute', { 'E2b-Sandbox-Port' => 49999, 'E2b-Sandbox-Id' => $s,
                         'X-Access-Token' => $token } ],
);
my ($runs, @clients) = 0;

sub is_over {
    $runs++;

    return until_true {
        my $python = context($s, 'python');

        ($python->{execution_count} // 0) == $runs
            && $python->{state} eq 'idle';
    } 30;
}

# A client that does not read.
sub holds {
    my ($path, $headers) = @{ $forms[@clients % @forms] };

    push @clients, open_request(POST => $path, rcvbuf => 4096,
                                headers => $headers,
                                json => { code => 'show()' });

    return is_over();
}

# One that does: its events, as lines.
sub reads {
    my ($code, $path, $headers) = (@_, @{ $forms[0] });
    my $c = open_request(POST => $path, headers => $headers,
                         json => { code => $code });
    my ($raw, $text) = (read_head($c, timeout => within(60))->{rest}, '');

    for ( ;; ) {
        my $more = SandboxTest::More::read_some($c, time + within(60), MB);
        last if !defined $more || $more eq '';
        $raw .= $more;
    }

    while ($raw =~ /\G([0-9a-f]+)\r\n/gc) {
        $text .= substr $raw, pos $raw, hex $1;
        pos($raw) += 2 + hex $1;
    }

    is_over();

    return split /\n/, $text;
}

# How many of a reader's results are whole, and whether all are told to be.
sub told {
    my @lines = @_;

    return [ scalar(grep { /\A\{"type":"result",/ && index($_, $BIG) != -1 }
                    @lines),
             $lines[-1] =~ /"results_truncated":true/ ? 'cut' : 'all' ];
}


code($s, $SHOW);
is_over();

my $before = rss($worker);

ok(!(grep { !holds() } 1 .. FEW), 'clients that do not read');

# for two more there would be no room

my $other = call('POST', "/sessions/$s/contexts",
                 json => { language => 'python' })->{json}{context_id};
my $idle = open_request(POST => "/sessions/$s/code",
                        headers => $forms[0][1],
                        json => { code => "$SHOW\nshow()\n"
                                          . "import time; time.sleep(1000)",
                                  context_id => $other });
my $end = '';

while (index($end, '"is_main_result"') == -1) {
    my $more = SandboxTest::More::read_some($idle, time + within(60), MB);
    last if !defined $more || $more eq '';
    $end = substr $end . $more, -200;
}

like($end, qr/"is_main_result"/,
     'a client that has read a result, of a run that goes on');
is_deeply(told(reads('show(); show()')), [ 2, 'all' ],
          'what has gone leaves its room to others, and to the next');
close $idle;
ok(!(grep { !holds() } FEW + 1 .. MANY), 'more clients that do not read');

my $has = (rss($worker) - $before) / MB;

cmp_ok($has, '>', BOUND - ROOM, 'the worker holds a lot of it');
cmp_ok($has, '<', BOUND + ROOM, 'but not more than it may');

is_deeply(told(reads('show()')), [ 0, 'cut' ],
          'what is above is left out, which is told');

my $r = code($s, 'show()');
is_over();
is_deeply([ $r->{results}, $r->{results_truncated} ],
          [ [], JSON::PP::true() ], 'of an answer as well');

$r = code($s, "raise Exception('\\x01' * 250_000)");
is_over();
is($r->{error}{name}, 'Exception', 'an error is told of');
cmp_ok(length $r->{error}{value}, '>', 10_000, 'at least its beginning');
is(code($s, '6 * 7')->{text}, '42', 'and what is small is whole');
is_over();

close $_ for @clients;

ok(until_true { told(reads('show()'))->[0] == 1 }, 'and all is as before');

destroy($s);
$t->finish;
done_testing();
