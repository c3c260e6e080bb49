#!/usr/bin/perl

# Requests by the ten thousand, as fast as they are taken, for a session that
# has ended and for sessions that never were: each is answered as one would
# be, nothing is remembered of them, and nobody else waits.
#
# SANDBOX_TEST_LONG=1: ten thousand of each kind, else of the first.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../lib";

use Test::More;
use SandboxTest::Connect;
use SandboxTest::Flood;
use SandboxTest::More;

BEGIN {
    my $why = SandboxTest::Flood::missing();
    plan(skip_all => $why) if $why;
}

my $f = SandboxTest::Flood->new;
my $MANY = 10_000;
my $SOME = $SandboxTest::Flood::LONG ? $MANY : 2_000;
my $dead = create_ok();

put($dead, 'file', 'x');
is(destroy($dead)->{status}, 204, 'a session has ended');


# Every request is answered, and all by the same few answers.

sub flood {
    my ($name, $n, $connections, $want, @requests) = @_;

    $f->under($name, sub {
        my %got;
        my $n = pipelined($connections, $n,
            sub { $requests[$_[0] % @requests] },
            sub {
                my ($status) = $_[0] =~ m{^HTTP/1\.1 (\d+)};
                my ($code) = $_[0] =~ /"code":"(\w+)"/;
                my ($ended) = $_[0] =~ /"ended":"(\w+)"/;
                $got{join ' ', grep { defined } $status, $code, $ended}++;
            });

        is_deeply(\%got, { $want => $n }, "$name: each is told")
            or diag(explain(\%got));
    });

    return;
}


my $v1 = "/v1/sessions/$dead";

subtest 'a session that has ended' => sub {
    flood('a look', $MANY, 100, '404 E2009 destroyed',
          raw_request(GET => $v1));

    flood('calls of every kind', $SOME, 50, '404 E2009 destroyed',
          raw_request(POST => "$v1/exec", json => { cmd => 'true' }),
          raw_request(GET => "$v1/files/file"),
          raw_request(PUT => "$v1/files/file", body => 'x' x 100),
          raw_request(GET => "$v1/files?glob=*"),
          raw_request(GET => "$v1/list/"),
          raw_request(GET => "$v1/processes"),
          raw_request(POST => "$v1/pause"),
          raw_request(DELETE => $v1));
};


subtest 'a session that never was' => sub {
    my $n = 0;
    my @ids = map { my $id = $dead;
                    substr $id, -6, 6, sprintf '%06d', $_; $id } 1 .. 500;

    flood('unknown ids', $SOME, 50, '404 E2009',
          map { raw_request(GET => "/v1/sessions/$_") } @ids);

    flood('ids that are none', $SOME, 50, '404 E2009',
          map { raw_request(GET => "/v1/sessions/$_") }
          'x', 'i' x 4000, "$dead$dead", 'i' . '0' x 20);
};


subtest 'by the protocol of E2B' => sub {
    my %h = %{ rpc_headers($dead) };
    my %json = (headers => { %h, 'Content-Type' => 'application/json' },
                body => '{}');
    my %count;

    $f->under('e2b', sub {
        %count = ();
        my @all = (raw_request(GET => "/e2b/sandboxes/$dead",
                               headers => { 'X-API-Key' => 'e2b_0' }),
                   raw_request(POST => '/e2b/process.Process/List', %json),
                   raw_request(GET => '/e2b/files?path=file',
                               headers => \%h));
        my $n = pipelined(50, $SOME, sub { $all[$_[0] % @all] },
                          sub { my ($status) = $_[0] =~ m{^HTTP/1\.1 (\d+)};
                                $count{$_[1] % @all . " $status"}++ });

        is($n, $SOME, 'each is answered');
    });

    is_deeply([ sort keys %count ], [ '0 404', '1 502', '2 502' ],
              'as one that is not there') or diag(explain(\%count));
};


is(call(GET => "/sessions/$dead")->{json}{ended}, 'destroyed',
   'what it was is remembered');
$f->over;
done_testing();
