#!/usr/bin/perl

# The short form of "make soak": everything that the API has, by few clients,
# while one of each kind of process is killed, then all that is to be lost is
# looked at.  SANDBOX_TEST_LONG=1 makes it five minutes of kills at random.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";

use Test::More;
use SandboxTest::Net;
use SandboxTest::Soak;

my $long = $ENV{SANDBOX_TEST_LONG};
my $r = SandboxTest::Soak::soak($long
    ? (minutes => 5, seed => 17)
    : (minutes => 0.3, seed => 17, once => 1, gap => 0.3, clients => 6,
       calibrate => 3, residents => 6, ids => 24, big => 5, slow => 10000));

my @wrong = @{ $r->{failures} || ['no report'] };

is(scalar @wrong, 0, 'every answer was right, and what was there is there');
diag($_) for @wrong;

my %killed = map { $_->[0] => 1 } @{ $r->{kills} || [] };
is(join(' ', sort keys %killed),
   'both broker command egress init keeper kernel reload worker',
   'each of them was killed') if !$long;

# Those of which nothing is done are of a session that was just killed.

my %tried = (%{ $r->{done} || {} }, %{ $r->{nobody} || {} },
             map { $_->[0] => 1 } @{ $r->{excused} || [] });
my @never = grep { !$tried{$_} } @{ $r->{kinds} || ['none'] };
my $done = grep { $r->{done}{$_} } @{ $r->{kinds} || [] };

is("@never", '', 'each kind of operation was begun');
cmp_ok($done, '>', 30, "$done kinds were done to their end");

done_testing();
