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
        location /boss/ {
            sandbox_user $http_x_user;
            sandbox_api admin;
        }
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
is($l->{network}, 'none', 'what it may reach');
like($l->{time}, qr/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/, 'when');

my $res = $t->api(POST => "/sessions/$id/exec",
                  { cmd => [ '/bin/sh', '-c', 'cat; exit 3' ],
                    stdin => 'stdin-secret', env => { A => 'env-secret2' } });
$l = line_of($res);
is("$l->{op} $l->{session_id} $l->{exit} $l->{reason}",
   "exec $id 3 exited", 'a command');
is("$l->{tenant_id} $l->{user_id}", 'acme ann', 'of whose session');
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
is("$l->{tenant_id} $l->{user_id}", 'acme ann', 'and its owner');


# Lines of a call's id, once there are as many.

sub lines_of {
    my ($res, $count) = @_;

    my $id = $res->{headers}{'x-request-id'} // 'none';
    my @found;

    SandboxTest::wait_for(sub {
        @found = grep { /"request_id":"\Q$id\E"/ } lines();
        return @found >= $count;
    }, 10);

    return map { JSON::PP->new->utf8->decode($_) } @found;
}

my %events = (Accept => 'text/event-stream');

subtest 'a command that is streamed' => sub {
    my $r = $t->api(POST => "/sessions/$id/exec", { cmd => 'echo; exit 4' },
                    headers => \%events);
    my $line = line_of($r);

    is("$line->{exit} $line->{reason}", '4 exited', 'its end');
    is_deeply($line->{argv}, [ '/bin/sh', '-c', 'echo; exit 4' ],
              'its arguments');
    cmp_ok($line->{pid}, '>', 1, 'its pid');
    ok(defined $line->{cpu_s} && $line->{wall_s} > 0
       && exists $line->{memory_peak}, 'its cost');
};


subtest 'a command in the background' => sub {
    my $r = $t->api(POST => "/sessions/$id/exec",
                    { cmd => 'exit 5', background => JSON::PP::true });
    my $line = line_of($r);

    is("$line->{status} $line->{pid}", "202 $r->{json}{pid}", 'has begun');
    ok(exists $line->{reason} && !defined $line->{reason}
       && !defined $line->{exit}, 'and no end');

    # who looks at it makes no line

    my $count = lines();
    $t->api(GET => "/sessions/$id/processes/$r->{json}{pid}/output",
            undef, headers => \%events);
    is(scalar(lines()), $count, 'nor does who looks at it');
};


subtest 'a client that goes away' => sub {
    my $c = $t->connect;
    my $json = '{"cmd":"echo; sleep 60"}';
    $c->send_request(POST => "/v1/sessions/$id/exec", body => $json,
                     headers => { %events, 'Content-Type' =>
                                  'application/json' });
    1 while ($c->read_line(time + 30) // '"stdout"') !~ /"stdout"/;
    $c->close;

    my $line;
    SandboxTest::wait_for(sub {
        ($line) = grep { /echo; sleep 60/ } lines();
        return $line;
    }, 20);
    $line = JSON::PP->new->utf8->decode($line // '{}');
    ok(exists $line->{reason} && !defined $line->{reason},
       'no end is made up');
    is("$line->{op} $line->{tenant_id}", 'exec acme', 'but there is a line');
};


subtest 'a run, and each of its steps' => sub {
    my $r = $t->api(POST => '/run',
                    { tenant_id => 'acme', user_id => 'ann', steps => [
                      { cmd => [ 'true' ] }, { cmd => [ 'sh', '-c', 'exit 6' ] },
                      { cmd => [ 'echo', 'never' ] } ] });
    my @l = lines_of($r, 3);

    is(join(' ', map { $_->{op} } @l), 'run_step run_step run', 'their lines');
    is_deeply([ map { $_->{step} } @l ], [ 0, 1, undef ], 'in order');
    is_deeply([ map { $_->{argv} } @l ],
              [ [ 'true' ], [ 'sh', '-c', 'exit 6' ], undef ], 'commands');
    is(join(' ', map { "$_->{exit} $_->{reason}" } @l),
       '0 exited 6 exited 6 exited', 'ends');
    is((grep { $_->{tenant_id} ne 'acme' || $_->{user_id} ne 'ann'
               || $_->{session_id} !~ /^i[a-z0-9]+$/ } @l), 0, 'whose');
    cmp_ok($l[2]{wall_s} + 1e-5, '>=', $l[0]{wall_s} + $l[1]{wall_s},
           'costs add up');
};


subtest 'a terminal' => sub {
    my $c = $t->connect;
    $c->send_request(GET => "/v1/sessions/$id/terminal", headers => {
        Connection => 'Upgrade', Upgrade => 'websocket',
        'Sec-WebSocket-Version' => 13,
        'Sec-WebSocket-Key' => 'dGhlIHNhbXBsZSBub25jZQ==' });

    # one frame, masked with zeros

    my $text = "exit 7\n";
    $c->send("\x82" . chr(0x80 | length $text) . "\0\0\0\0" . $text);

    my $line;
    SandboxTest::wait_for(sub {
        ($line) = grep { /"op":"terminal"/ } lines();
        return $line;
    }, 20);
    $line = JSON::PP->new->utf8->decode($line // '{}');
    is("$line->{status} $line->{exit} $line->{reason} $line->{user_id}",
       '101 7 exited ann', 'its end');
    $c->close;
};


my $n = lines();
$t->api(GET => "/sessions/$id");
$t->api(GET => '/health');
$t->http(GET => "/v1/sessions/$id/files/home/user/a%0Ab");
$res = $t->api(POST => '/sessions/' . 'a' x 26 . '/exec', { cmd => 'true' });
$l = line_of($res);
is("$l->{status} $l->{error}", '404 E2009', 'a refusal');
is($l->{tenant_id}, undef, 'of nobody');
is(scalar(lines()), $n + 1, 'looks have no line');

$res = $t->api(PUT => '/quotas/acme', { sessions => 7 }, base => '/admin');
$l = line_of($res);
is("$l->{op} $l->{by} $l->{tenant_id} $l->{change}",
   'admin_quota_change 127.0.0.1 acme {"sessions":7}', 'a change of a quota');

# Whatever the admin API changes, and by whom.

for my $case (
    [ admin_settings_change => PATCH => '/settings',
      { quotas => { user => { sessions => 30 } } } ],
    [ admin_settings_change => PATCH => '/settings',
      { reset => [ 'quotas.user.sessions' ] } ],
    [ admin_quota_change => PUT => '/quotas/acme/ann', { sessions => 7 } ],
    [ admin_quota_remove => DELETE => '/quotas/acme/ann' ],
    [ admin_quota_remove => DELETE => '/quotas/acme' ],
    [ admin_drain => POST => '/drain' ],
    [ admin_undrain => POST => '/undrain' ],
    [ admin_destroy => DELETE => '/sessions?tenant_id=nobody' ])
{
    my ($op, $method, $path, $json) = @$case;

    $l = line_of($t->api($method, $path, $json, base => '/boss',
                         headers => { 'X-User' => 'root' }));
    is("$l->{op} $l->{by}", "$op root", "$method $path");
    $l = line_of($t->api($method, $path, $json, base => '/boss',
                         headers => { 'X-User' => 'root',
                                      Origin => 'http://a.example' }));
    is("$l->{op} $l->{error}", "$op E1002", '  and where it is refused');
}

$res = $t->api(DELETE => "/sessions/$id");
$l = line_of($res);
is("$l->{op} $l->{session_id} $l->{status} $l->{tenant_id}",
   "destroy $id 204 acme", 'the end');

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
