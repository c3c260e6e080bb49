#!/usr/bin/perl

# Lists that clients ask for and do not read: a worker holds no more of them
# than it may of answers.  A page is shorter then, and the next one begins
# where it ends; what has no pages is refused, for as long as that is so.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../lib";

use Test::More;
use SandboxTest::Connect;
use SandboxTest::More;

use constant {
    MB    => 1 << 20,
    FILES => 2800,        # whose names make 8 MB of JSON
    MANY  => 70,          # that do not read
    BOUND => 256,         # MB of all, and one of each
    ROOM  => 110,         # MB, for what malloc and nginx have besides
};

my $t = server(workers => 1, extra => <<'CONF');
        send_timeout 600s;      # who does not read is there until the end
        location /e2b/ { sandbox_api e2b; }
CONF
my ($worker) = workers();
my $s = create_ok({ manifest => { resources => {
    disk => '100MB', inodes => 20_000, memory => '512M' } } });
my $name = "\\x01" x 200;
my $made = run($s, [ 'python3', '-c', "import os\nos.mkdir('d')\n"
                     . 'for i in range(' . FILES . "):\n"
                     . "    os.close(os.open('d/$name%d' % i, 65))" ],
               timeout_s => 60);

is($made->{exit_code}, 0, 'files with long names') or diag($made->{stderr});

my $list = "/sessions/$s/list/d?limit=10000";

# All pages: how many names there are, how many of them differ, and how many
# were on the first page.
sub pages {
    my ($n, $first, %names, $cursor) = (0);

    do {
        my $res = call(GET => $list . (defined $cursor ? "&cursor=$cursor"
                                                       : ''),
                       timeout => within(60), raw => 1);

        return "status $res->{status}: $res->{body}"
            if $res->{status} != 200;

        for ($res->{body} =~ m{"name":"(?:\\u0001)+(\d+)"}g) {
            $n++;
            $names{$_} = 1;
        }

        $first //= $n;
        ($cursor) = $res->{body} =~ /"next_cursor":"([^"]+)"/;
    } while (defined $cursor);

    return ($first, join ' ', $n, scalar keys %names);
}

sub of_e2b {
    return rpc($s, 'filesystem.Filesystem/ListDir', { path => 'd' });
}

my ($usual, $all) = pages();

is($usual, FILES, 'a page has all of them');
is($all, FILES . ' ' . FILES, 'each once');
is(of_e2b()->{status}, 200, 'E2B lists them in one');

# Processes that have ended, whose list has no pages either, and 48 KB of each.

run($s, [ 'true', "\x01" x 10_000 ]) for 1 .. 160;

my $processes = call(GET => "/sessions/$s/processes", raw => 1);
my $n = () = $processes->{body} =~ /"cmd":\["true"/g;

is("$processes->{status} $n", '200 160', 'and processes are, too');
cmp_ok(length $processes->{body}, '>', 7 * MB,
       'which is more than any list may have');

my $before = rss($worker);
my @clients = map { open_request(GET => $list, rcvbuf => 4096) } 1 .. MANY;
my ($few, $still);

# of those that came at once a session may have refused some, and one that
# finds no room for the rest of its answer gives back what it had

ok(until_true(sub {
    ($few, $still) = pages();
    return 1 if $few < $usual / 2 && of_e2b()->{status} == 503;
    push @clients, open_request(GET => $list, rcvbuf => 4096);
    return 0;
}, 60), 'many clients do not read theirs: a page is shorter then');
is($still, FILES . ' ' . FILES, 'and all pages have all, once');

my $has = (rss($worker) - $before) / MB;

cmp_ok($has, '>', BOUND / 2, 'the worker holds a lot of them');
cmp_ok($has, '<', BOUND + MANY + ROOM, 'and no more than it may');

my $res = of_e2b();

is("$res->{status} " . ($res->{json}{code} // ''), '503 unavailable',
   'what has no pages is refused');
like($res->{json}{message} // '', qr/answers that are not read/, 'and why');
my $later = call(GET => "/sessions/$s/processes", timeout => within(60));
is_problem($later, 503, 'E5001', 'of the native API as well',
           qr/answers that are not read/);
is($later->{headers}{'retry-after'}, 1, 'and when to ask again');
is(run($s, 'echo here')->{stdout}, "here\n", 'what is small is served');

close $_ for @clients;

ok(until_true { (pages())[0] == $usual }, 'and all is as before');
is(of_e2b()->{status}, 200, 'for E2B, too');
destroy($s);
$t->finish;
done_testing();
