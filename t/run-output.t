#!/usr/bin/perl

# What all steps of a run print is in one answer, which a worker holds: no
# more of it is kept than one command may have.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";

use Test::More;
use SandboxTest::More;

my $t = server(http => "    sandbox_max max_output=100KB;\n");

my $res = call('POST', '/run', timeout => 60, json => {
    tenant_id => 'acme', user_id => 'alice',
    steps => [ map { { max_output_bytes => 100 * 1024,
                       cmd => "head -c 60000 /dev/zero | tr '\\0' $_;"
                              . ' echo e >&2' } } 'a' .. 'c' ] });
my @step = @{ $res->{json}{steps} || [] };

is($res->{status}, 200, 'status') or diag($res->{body});
is(join(' ', map { $_->{exit_code} } @step), '0 0 0', 'each step runs');
is(join(' ', map { length $_->{stdout} } @step), '60000 42400 0',
   'what is kept of them is what one may have');
is(join(' ', map { $_->{stdout_truncated} ? 1 : 0 } @step), '0 1 1',
   'which is told');
is(join(' ', map { $_->{stdout_bytes} } @step), '60000 60000 60000',
   'and all of it counted');
is(join('', map { $_->{stderr} } @step), "e\ne\ne\n", 'each stream by itself');

$t->finish;
done_testing();
