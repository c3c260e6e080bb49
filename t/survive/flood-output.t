#!/usr/bin/perl

# Output that many commands write at once, each as much as it may: a worker
# keeps no more of it than is said, tells what it has left out, and has all of
# its room again when they are over.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../lib";

use Test::More;
use SandboxTest::More;

use constant {
    MB    => 1 << 20,
    MANY  => 4,           # commands, with 64 MB on each of two streams
    BOUND => 256,         # MB
    ROOM  => 100,         # MB, for what malloc and nginx have besides
};

my $t = server(workers => 1);
my ($worker) = workers();
my $s = create_ok({ manifest => { resources => {
    max_output_bytes => 64 * MB, memory => '256M' } } });

# What is kept of 2 MB: bytes, and whether all is told to be.

sub two {
    my $r = run($s, 'head -c 2M /dev/zero | tr "\\\\0" x',
                max_output_bytes => 4 * MB);

    return (length $r->{stdout}, $r->{stdout_truncated});
}

is_deeply([ two() ], [ 2 * MB, JSON::PP::false() ], 'two megabytes are kept');

my $before = rss($worker);
my $body = json_of({ cmd => 'head -c 64M /dev/zero; head -c 64M /dev/zero >&2;'
                            . ' sleep 1000',
                     timeout_s => undef, max_output_bytes => 64 * MB });
my @clients = map {
    open_request(POST => "/sessions/$s/exec", body => $body,
                 headers => { 'Content-Type' => 'application/json' })
} 1 .. MANY;

ok((until_true {
       my $r = run($s, 'ps -e -o args= | grep -c "^[s]leep 1000"');
       $r->{stdout} == MANY;
   } 30), 'all of it is written') or diag(run($s, 'ps -ef')->{stdout});

my $has = (rss($worker) - $before) / MB;

cmp_ok($has, '>', BOUND - ROOM, 'the worker keeps a lot of it');
cmp_ok($has, '<', BOUND + ROOM, 'but not more than it may');

my ($kept, $truncated) = two();

cmp_ok($kept, '>=', MB, 'others have what each may have');
cmp_ok($kept, '<', 2 * MB, 'and no more');
ok($truncated, 'which is told');
is(run($s, 'echo short')->{stdout}, "short\n", 'short output is whole');

close $_ for @clients;

ok(until_true { (two())[0] == 2 * MB }, 'and all is as before');

destroy($s);
$t->finish;
done_testing();
