#!/usr/bin/perl

# The audit log: who did what, at which cost; nothing that was inside, and no
# line that a caller made.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";

use Digest::SHA qw(sha256_hex);
use JSON::PP ();
use Test::More;
use SandboxTest;
use SandboxTest::More;

my $t = SandboxTest->new(
    http => '    sandbox_audit_log logs/audit.log;',
    server => <<'CONF')->start;
        location /admin/ { sandbox_api admin; }
CONF

my $file = $t->prefix . '/logs/audit.log';


sub lines {
    my ($path) = @_;

    return split /\n/, SandboxTest::slurp($path // $file) // '';
}


# The line of the request that was answered so.

sub line_of {
    my ($res, $path) = @_;

    my $id = $res->{headers}{'x-request-id'} // 'none';
    my @found;

    SandboxTest::wait_for(sub {
        @found = grep { /"request_id":"\Q$id\E"/ } lines($path);
        return scalar @found;
    }, 5);

    is(scalar @found, 1, 'has one line');

    return eval { JSON::PP->new->utf8->decode($found[0] // '{}') } // {};
}

my $created = $t->api(POST => '/sessions',
                      { tenant_id => 'acme', user_id => 'ann',
                        metadata => { k => 'meta-secret' },
                        env => { TOKEN => 'env-secret' } });
my $id = $created->{json}{session_id};
my $l = line_of($created);
is("$l->{op} $l->{tenant_id} $l->{user_id} $l->{session_id} $l->{status}",
   "create acme ann $id 201", 'a creation');
is($l->{address}, '127.0.0.1', 'from where');
like($l->{time}, qr/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/, 'when');

my $res = $t->api(POST => "/sessions/$id/exec",
                  { cmd => [ '/bin/sh', '-c', 'cat; exit 3' ],
                    stdin => 'stdin-secret', env => { A => 'env-secret2' } });
$l = line_of($res);
is("$l->{op} $l->{session_id} $l->{exit} $l->{reason}",
   "exec $id 3 exited", 'a command');
is_deeply($l->{argv}, [ '/bin/sh', '-c', 'cat; exit 3' ], 'its arguments');
ok(defined $l->{cpu_s} && $l->{wall_s} > 0 && exists $l->{memory_peak},
   'its cost');

$res = $t->api(POST => "/sessions/$id/exec",
               { cmd => [ 'true', "a\n{\"op\":\"forged\"}\n",
                          "\x{1b}[2J\"\\", "\x{2028}" ] });
$l = line_of($res);
is($l->{argv}[1], "a\n{\"op\":\"forged\"}\n", 'a newline is escaped');
is((grep { /^\{"op":"forged"/ } lines()), 0, 'and makes no line');
is($l->{argv}[2], "\x{1b}[2J\"\\", 'nor does a quote end a string');
is((grep { /[\x00-\x1f]/ } lines()), 0, 'no control character is there');

my @long = map { "argument-$_-" . 'x' x 100 } 1 .. 200;
$res = $t->api(POST => "/sessions/$id/exec", { cmd => [ 'true', @long ] });
$l = line_of($res);
cmp_ok(scalar @{ $l->{argv} }, '<', 60, 'long arguments are cut');
is($l->{argv_cut}, JSON::PP::true, 'which is told');
is($l->{argv_sha256}, sha256_hex(join '', map { "$_\0" } 'true', @long),
   'with the hash of all');

$res = $t->api(POST => "/sessions/$id/exec", { cmd => [ 'sleep', '60' ],
                                               timeout_s => 1 });
is(line_of($res)->{reason}, 'timeout', 'what ended a command');

$res = $t->http(PUT => "/v1/sessions/$id/files/home/user/a%0Ab",
                body => 'file-secret');
$l = line_of($res);
is("$l->{op} $l->{status}", "upload $res->{status}", 'a file');
is($l->{path}, "home/user/a\nb", 'by its path');

my $n = lines();
$t->api(GET => "/sessions/$id");
$t->api(GET => '/health');
$t->http(GET => "/v1/sessions/$id/files/home/user/a%0Ab");
$res = $t->api(POST => '/sessions/' . 'a' x 26 . '/exec', { cmd => 'true' });
$l = line_of($res);
is("$l->{status} $l->{error}", '404 E2009', 'a refusal');
is(scalar(lines()), $n + 1, 'looks have no line');

$res = $t->api(PUT => '/quotas/acme', { sessions => 7 }, base => '/admin');
$l = line_of($res);
is("$l->{op} $l->{by} $l->{tenant_id} $l->{change}",
   'admin_quota_change 127.0.0.1 acme {"sessions":7}', 'a change of a quota');

$res = $t->api(DELETE => "/sessions/$id");
$l = line_of($res);
is("$l->{op} $l->{session_id} $l->{status}", "destroy $id 204", 'the end');

my $all = SandboxTest::slurp($file);
unlike($all, qr/secret/, 'nothing of input, environment, metadata, files');
is((grep { !eval { JSON::PP->new->utf8->decode($_) } } lines()), 0,
   'each line is JSON');


subtest 'rotation' => sub {
    rename $file, "$file.1" or die $!;
    my $old = scalar lines("$file.1");
    $t->hit(USR1 => $t->master);
    ok(SandboxTest::wait_for(sub { -e $file }, 10), 'USR1 opens it anew');

    # a worker opens it when it gets to the signal

    my $in_new = SandboxTest::wait_for(sub {
        $t->api(DELETE => '/sessions/' . 'b' x 26);
        return scalar lines();
    }, 10);
    ok($in_new, 'and lines go there');
};


subtest 'many at once' => sub {
    my $before = lines();
    my @jobs = map { async {
        $t->api(DELETE => '/sessions/' . 'c' x 26) for 1 .. 20;
        return 1;
    } } 1 .. 6;

    $_->get for @jobs;

    my $all = SandboxTest::wait_for(sub { lines() >= $before + 120 }, 10);
    ok($all, 'each has its line');
    is((grep { !eval { JSON::PP->new->utf8->decode($_) } } lines()), 0,
       'and none is mixed with another');
};

subtest 'each step of a run that ran, and none that did not' => sub {
    my $res = $t->api(POST => '/run',
                      { tenant_id => 'acme', user_id => 'ann',
                        steps => [ { cmd => [ 'echo', 'one' ] },
                                   { cmd => 'exit 3' },
                                   { cmd => [ 'echo', 'never' ] } ] });
    my $rid = $res->{headers}{'x-request-id'};
    my @told;

    SandboxTest::wait_for(sub {
        @told = map { JSON::PP->new->utf8->decode($_) }
                grep { /"request_id":"\Q$rid\E"/ } lines();
        return @told && defined $told[-1]{status};
    }, 5);

    is(scalar @told, 2, 'a line each');
    is(join(' ', @{ $told[0]{argv} }, @{ $told[0] }{qw(op step exit reason)},
            $told[0]{status} // 'null'),
       'echo one run 1 0 exited null', 'the first, which has no answer yet');
    is(join(' ', @{ $told[1]{argv} }, @{ $told[1] }{qw(step exit status)}),
       '/bin/sh -c exit 3 2 3 200', 'the last, with the request\'s status');
    is($told[0]{session_id}, $told[1]{session_id}, 'of one session');
};

$t->finish;


subtest 'hashes instead of arguments' => sub {
    my $h = SandboxTest->new(
        http => '    sandbox_audit_log logs/audit.log argv=hash;')->start;
    my $s = $h->session;
    my $r = $h->api(POST => "/sessions/$s/exec", { cmd => 'echo private' });
    my $line = line_of($r, $h->prefix . '/logs/audit.log');
    is($line->{argv_sha256}, sha256_hex("/bin/sh\0-c\0echo private\0"),
       'the hash');
    ok(!exists $line->{argv}, 'and no arguments');
    $h->finish;
};


subtest 'a full disk' => sub {
    my $h = SandboxTest->new(
        workers => 1, http => '    sandbox_audit_log /dev/full;')->start;
    my $s = $h->session;

    for (1 .. 3) {
        my $r = $h->api(POST => "/sessions/$s/exec", { cmd => 'true' });
        is($r->{json}{exit_code}, 0, 'calls go on');
    }

    $h->api(DELETE => "/sessions/$s");
    my @told = grep { /\[alert\].*audit log.*takes no lines/ }
               split /\n/, $h->log;
    is(scalar @told, 1, 'and it is told once') or diag(@told);
    $h->allow(qr/audit log/);
    $h->finish;
};


subtest 'configuration' => sub {
    my $h = SandboxTest->new(http => '    sandbox_audit_log a.log argv=no;');
    my ($rc, $out) = $h->nginx('-t');
    isnt($rc, 0, 'a bad parameter');
    like($out, qr/argv=full.*argv=hash/, 'is refused');
    $h->allow(qr/argv=no/);
    $h->finish;
};

done_testing();
