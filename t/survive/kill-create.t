#!/usr/bin/perl

# Each process killed in each phase of a create.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../lib";

use Test::More;
use SandboxTest::Fault;
use SandboxTest::More;

my $t = server();
my $other = create_ok();
put($other, 'mark', 'kept');

for my $point (qw(broker-create-taken broker-create-launched)) {
    my $broker = $t->broker;

    arm($broker, $point);
    my $job = async { create() };

    is(held($broker), $broker, "$point: reached");
    ok(kill('KILL', $broker), "$point: killed");

    my $res = $job->get;
    is($res->{status}, 201, "$point: the create is made all the same");
    is(destroy($res->{json}{session_id})->{status}, 204, "$point: and can be ended");
    is(get($other, 'mark')->{body}, 'kept', "$point: others live on");
}

$t->finish;
done_testing();
