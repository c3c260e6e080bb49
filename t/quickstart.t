#!/usr/bin/perl

# The tour of the README, over the configuration that is shipped: a session
# for a tenant and a user, a command, a file, and its end.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";

use Test::More;
use SandboxTest;

my $t = SandboxTest->new->start;

my $res = $t->api(GET => '/health');
is($res->{status}, 200, 'health answers');
is($res->{json}{status}, 'ok', 'and is well');
is($res->{json}{sessions}, 0, 'with no session yet');

$res = $t->api(GET => '/doctor');
is($res->{status}, 200, 'doctor answers');
diag($res->{body}) if $res->{status} != 200;

$res = $t->api(POST => '/sessions',
               { tenant_id => 'acme-corp', user_id => 'alice' });
is($res->{status}, 201, 'a session is made');
my $s = $res->{json}{session_id};
like($s, qr/^i[a-z0-9]{20,40}$/, 'and has an id');
is($res->{headers}{location}, "/v1/sessions/$s", 'and a place');

$res = $t->api(POST => "/sessions/$s/exec",
               { cmd => [ 'python3', '-c', 'print(6 * 7)' ] });
is($res->{status}, 200, 'a command runs');
is($res->{json}{stdout}, "42\n", 'and prints the answer');
is($res->{json}{exit_code}, 0, 'and exits with 0');
is($res->{json}{reason}, 'exited', 'by itself');

$res = $t->http(PUT => "/v1/sessions/$s/files/data.txt",
                body => 'some content');
is($res->{status}, 201, 'a file is written');

$res = $t->http(GET => "/v1/sessions/$s/files/data.txt");
is($res->{status}, 200, 'and read');
is($res->{body}, 'some content', 'as it was written');

$res = $t->api(GET => "/sessions/$s/files?glob=*.txt");
is(join(' ', map { $_->{path} } @{ $res->{json}{entries} }),
   '/home/user/data.txt', 'and found by its pattern');

$res = $t->api(POST => "/sessions/$s/install", { packages => [ 'numpy' ] });
is("$res->{status} $res->{json}{code}", '403 E3003',
   'packages need the network, which the manifest did not ask for');

$res = $t->api(DELETE => "/sessions/$s");
is($res->{status}, 204, 'the session is destroyed');

$res = $t->api(GET => "/sessions/$s");
is("$res->{status} $res->{json}{code}", '404 E2009', 'and is not found again');
is($res->{json}{ended}, 'destroyed', 'but its owner is told how it ended');

$t->finish;


# "make start" and "make stop", as the README says them.

my $run = "$SandboxTest::ROOT/conf/sandbox-run";
my $prefix = "/tmp/sbxquick.$$";
my $port = SandboxTest::free_port();

is(system("$run start $prefix $port $SandboxTest::BUILD >/dev/null"), 0,
   'a server is started');
my $made = `curl -s http://127.0.0.1:$port/v1/sessions --json '{"tenant_id":"a","user_id":"b"}'`;
like($made, qr/"session_id":/, 'and makes a session');
is(system("$run stop $prefix >/dev/null"), 0, 'and stopped');
opendir my $d, $prefix or die "$prefix: $!";
is(join(' ', grep { !/^\.\.?$/ } readdir $d), 'logs',
   'only logs/ stays, no images either');
closedir $d;
system('rm', '-rf', $prefix);

done_testing();
