#!/usr/bin/perl

# Directories with very many files, patterns that explode, watches with very
# many events; and requests with very many headers, and very many requests of
# one client.  A worker holds a page, and goes on in pieces.
#
# SANDBOX_TEST_LONG=1: a hundred thousand files and events, else a fifth.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../lib";

use Test::More;
use SandboxTest::Connect;
use SandboxTest::Flood;
use SandboxTest::More;
use SandboxTest::Stream;

BEGIN {
    my $why = SandboxTest::Flood::missing();
    plan(skip_all => $why) if $why;
}

my $LONG = $SandboxTest::Flood::LONG;
my $MANY = $LONG ? 100_000 : 20_000;
my $f = SandboxTest::Flood->new;
my $s = create_ok({ timeout_s => 3600, manifest => {
    resources => { disk => '1GB', inodes => 300_000, memory => '1GB',
                   exec_timeout_s => within(60) } } });

# Names of 40 bytes, in one directory and in a hundred.

my $PYTHON = <<'END';
import os, sys
n = int(sys.argv[1])
for d in ("wide", "deep"):
    os.mkdir(d)
for i in range(100):
    os.mkdir("deep/dir%d" % i)
for i in range(n):
    d = "wide" if i % 2 else "deep/dir%d" % (i % 100)
    os.close(os.open("%s/%040d" % (d, i), os.O_CREAT | os.O_WRONLY))
END

my $made = run($s, [ 'python3', '-c', $PYTHON, "$MANY" ],
               timeout_s => within(60));

is($made->{exit_code}, 0, "$MANY files are made") or diag($made->{stderr});


# Every page; entries, and how many pages.  Not parsed: that takes longer than
# all else.

sub pages {
    my ($path) = @_;

    my ($n, $pages, $cursor) = (0, 0, undef);

    do {
        my $res = call(GET => $path . (defined $cursor ? "&cursor=$cursor"
                                                       : ''),
                       timeout => within(60), raw => 1);

        return "status $res->{status}: $res->{body}"
            if $res->{status} != 200;

        $n += () = $res->{body} =~ /"path":/g;
        ($cursor) = $res->{body} =~ /"next_cursor":"([^"]+)"/;
        $pages++;
    } while (defined $cursor && $pages < 1000);

    return "$n on $pages";
}


subtest 'lists' => sub {
    my $half = $MANY / 2;
    my $tenth = $MANY / 10 + 10;      # and directories
    my $many = $half . ' on ' . int(($half + 9999) / 10_000);

    $f->under('a directory', sub {
        is(pages("/sessions/$s/list/wide?limit=10000"), $many,
           'all of them, page by page');
    }, worker => 24);

    $f->under('a tree', sub {
        my $n = $half + 100;

        is(pages("/sessions/$s/list/deep?depth=3&limit=10000"),
           $n . ' on ' . int(($n + 9999) / 10_000), 'all of it');
    }, worker => 24);

    $f->under('a pattern', sub {
        my $glob = enc('**/*7');

        is(pages("/sessions/$s/files?glob=$glob&limit=10000"),
           $tenth . ' on ' . int(($tenth + 9999) / 10_000),
           'is answered with what matches');
    }, worker => 64);

    $f->under('a directory of E2B', sub {
        my $res = call(POST => '/filesystem.Filesystem/ListDir',
                       base => $SandboxTest::Connect::BASE, raw => 1,
                       json => { path => '/home/user/wide', depth => 1 },
                       headers => rpc_headers($s), timeout => within(60));
        my $n = () = $res->{body} =~ /"path":/g;

        if ($half > 20_000) {
            is($res->{status}, 429, 'has more entries than one may have');
            like($res->{body}, qr/more than the 20000 entries/, 'and says so');
            return;
        }

        is($res->{status}, 200, 'is answered')
            or diag(substr $res->{body}, 0, 300);
        is($n, $half, 'whole');
    }, worker => 128);

    $f->under('ten clients', sub {
        my @jobs = map {
            async { pages("/sessions/$s/list/wide?limit=10000") }
        } 1 .. 10;

        is(join(', ', map { $_->get(within(120)) } @jobs),
           join(', ', ($many) x 10), 'have all of it');
    }, worker => 128);

    $f->under('a search', sub {
        my $res = call(POST => "/sessions/$s/search",
                       json => { pattern => 'x' }, timeout => within(60));

        is($res->{status}, 200, 'is answered');
    });
};


# Each is of a kind whose plain matchers take exponential time.

subtest 'patterns that explode' => sub {
    put($s, 'line', 'a' x 50_000 . "\n");
    put($s, 'a' x 200, '');

    my @globs = ('*a' x 60 . 'b', '**/' x 100 . 'x', '{a,b}' x 40,
                 '[!b]*' x 60 . 'z', '?' x 200 . '*' x 200,
                 '{' x 2000, '**' x 1000);

    $f->under('globs', sub {
        for my $glob (@globs) {
            my $res = glob_of($s, $glob, '');

            ok($res->{status} == 200 || $res->{status} == 400,
               substr($glob, 0, 20) . ": $res->{status}")
                or diag($res->{body});
        }
    }, worker => 16);

    my @regexes = ('(a+)+$', '(a|aa)+$', '(a*)*b', '(.*)(.*)(.*)(.*)(.*)z',
                   '^(a?){40}a{40}$', '(' x 2000);

    $f->under('expressions', sub {
        for my $re (@regexes) {
            my $res = call(POST => "/sessions/$s/search", json =>
                           { pattern => $re, path => 'line' },
                           timeout => within(60));

            ok($res->{status} == 200 || $res->{status} == 400,
               substr($re, 0, 20) . ": $res->{status}")
                or diag($res->{body});
        }
    });
};


subtest 'a watch with very many events' => sub {
    my $touch = 'import os, sys' . "\n" . 'for i in range(int(sys.argv[1])):'
                . "\n" . ' open("watched/%d" % (i % 100), "w").close()';

    run($s, 'mkdir watched');

    $f->under('a watch', sub {
        my $w = stream('GET', "/sessions/$s/watch/watched");

        $w->until('ready');
        my $job = async { run($s, [ 'python3', '-c', $touch, '' . $MANY / 2 ],
                              timeout_s => within(60))->{exit_code} };
        my $n = 0;

        until ($job->ready) {
            my $e = $w->next(0.2) // next;
            $n++ if $e->{type} ne 'ping';
        }

        is($job->get, 0, 'whoever makes them is not held up');
        put($s, 'watched/last', 'x');

        my $last;

        while ($last = $w->next(10)) {
            last if $last->{type} eq 'overflow'
                    || ($last->{path} // '') =~ /last$/;
        }

        ok($last, 'they come, or it is said that some were lost')
            or diag("$n events");
        $w->close;
        del($s, 'watched/last');
    }, worker => 16);

    $f->under('a watch that nobody reads', sub {
        my $w = stream('GET', "/sessions/$s/watch/watched", rcvbuf => 4096);

        $w->until('ready');
        is(run($s, [ 'python3', '-c', $touch, "$MANY" ],
               timeout_s => within(60))->{exit_code}, 0, 'holds nobody up');
        is(put($s, 'file', 'x')->{status}, 201, 'nor other calls');
        del($s, 'file');
        $w->close;
    }, worker => 16);
};


subtest 'requests' => sub {
    my %many = map { ("X-Header-$_" => 'v') } 1 .. 3_000;
    my %large = map { ("X-Header-$_" => 'v' x 15_000) } 1 .. 3;

    $f->under('very many headers', sub {
        my @all = crowd(20, sub {
            raw_request(GET => "/v1/sessions/$s",
                        headers => { Connection => 'close', %many }) });

        is(scalar(grep { $_->{status} == 431 || $_->{status} == 400
                         || $_->{status} == 200 } @all), 20, 'are answered')
            or diag(explain($all[0]));
    }, worker => 16);

    $f->under('large headers', sub {
        my @all = crowd(100, sub {
            raw_request(GET => "/v1/sessions/$s",
                        headers => { Connection => 'close', %large }) });

        is(scalar(grep { $_->{status} == 200 } @all), 100, 'are taken')
            or diag(explain($all[0]));

        @all = crowd(20, sub {
            raw_request(GET => "/v1/sessions/$s", headers => {
                Connection => 'close', 'X-Header' => 'v' x 20_000 }) });

        is(scalar(grep { $_->{status} == 431 } @all), 20, 'up to a size')
            or diag(explain($all[0]));
    }, worker => 16);

    $f->under('ten thousand requests of one client', sub {
        my %got;
        my $n = pipelined(4, 10_000,
            sub { raw_request(GET => '/v1/no/such/route') },
            sub { $got{ substr $_[0], 9, 3 }++ });

        is_deeply(\%got, { 404 => 10_000 }, 'are answered');
    });
};


is(destroy($s)->{status}, 204, 'the session ends');
$f->over;
done_testing();
