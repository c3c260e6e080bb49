#!/usr/bin/perl

# The variables, as access_log tells them.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";

use Test::More;
use SandboxTest;

my $names = join ' ', map { "$_=\$sandbox_$_" }
            qw(op session tenant user exit reason error quota
               cpu_ms wall_ms memory_peak);

my $t = SandboxTest->new(
    http => "log_format vars '\$request_method \$request_uri \$status "
            . "\$request_id $names'; access_log logs/vars.log vars;",
    server => <<'CONF');
        location /redirected/ {
            sandbox_api v1;
            client_max_body_size 10;
            error_page 413 /elsewhere;
        }
        location /elsewhere { return 413 "elsewhere\n"; }
        location /other { return 200; }
CONF

$t->start;


# The log's line of the request that was answered so.

sub line_of {
    my ($res) = @_;

    my $id = $res->{headers}{'x-request-id'} // 'none';
    my $line;

    SandboxTest::wait_for(sub {
        my $all = SandboxTest::slurp($t->prefix . '/logs/vars.log') // '';
        ($line) = grep { / \Q$id\E / } split /\n/, $all;
        return $line;
    }, 5);

    return { ($line // '') =~ /(\w+)=(\S+)/g };
}

my $res = $t->http(GET => '/other');
my $none = SandboxTest::wait_for(sub {
    my $all = SandboxTest::slurp($t->prefix . '/logs/vars.log') // '';
    return $all =~ m{^GET /other 200 \S+ (.*)}m ? $1 : undef;
}, 5);
is($none, 'op=- session=- tenant=- user=- exit=- reason=- error=- quota=- '
          . 'cpu_ms=- wall_ms=- memory_peak=-', 'what is no call has none');

my $v = line_of($t->api(GET => '/health'));
is("$v->{op} $v->{session} $v->{exit}", 'health - -', 'a call has its name');

$v = line_of($t->api(GET => '/nothing'));
is($v->{op}, '-', 'no route, no name');

my $id = 'i' . 'a' x 24;
$v = line_of($t->api(GET => "/sessions/$id"));
is("$v->{op} $v->{session}", "get $id",
   'a session is named though it is not there');

$res = $t->api(POST => '/sessions',
               { tenant_id => 'acme-corp', user_id => 'alice' });
my $s = $res->{json}{session_id};
$v = line_of($res);
is("$v->{op} $v->{session} $v->{tenant} $v->{user}",
   "create $s acme-corp alice", 'a create tells whose');

$v = line_of($t->api(POST => "/sessions/$s/exec",
                     { cmd => 'i=0; while [ $i -lt 20000 ]; do i=$((i+1));'
                              . ' done; sleep 0.2; exit 7' }));
is("$v->{op} $v->{session} $v->{exit} $v->{reason}", "exec $s 7 exited",
   'an exec tells how it ended');
like($v->{cpu_ms}, qr/^[1-9]\d*$/, 'its processor time');
cmp_ok($v->{wall_ms}, '>=', 200, 'its time');
like($v->{memory_peak}, qr/^[1-9]\d{4,}$/, 'its memory');

$v = line_of($t->api(POST => "/sessions/$s/exec",
                     { cmd => [ 'sleep', '9' ], timeout_s => 0.2 }));
is($v->{reason}, 'timeout', 'and why');

$v = line_of($t->http(PUT => "/v1/sessions/$s/files/x", body => 'x'));
is("$v->{op} $v->{session} $v->{exit}", "upload $s -", 'a file');

# internal redirects: to an error page after the handler has run

$t->http(POST => '/redirected/sessions', headers =>
         { 'Content-Type' => 'application/json',
           'Transfer-Encoding' => 'chunked' },
         body => "b\r\nxxxxxxxxxxx\r\n0\r\n\r\n");

ok(SandboxTest::wait_for(sub {
       return (SandboxTest::slurp($t->prefix . '/logs/vars.log') // '')
              =~ m{ /redirected/sessions 413 \S+ op=create }m;
   }, 5), 'an error page does not make a call forgotten');

$t->finish;

done_testing();
