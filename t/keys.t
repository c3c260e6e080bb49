#!/usr/bin/perl

# API keys: what a file of them may hold, who is let in as whom by both APIs,
# reloads, and sandboxctl that makes them.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";

use Digest::SHA qw(sha256_hex);
use JSON::PP ();
use Test::More;
use SandboxTest;
use SandboxTest::More;

my $JSON = JSON::PP->new->utf8->canonical;
my $port = SandboxTest::free_port();

# The same digest with another's name in another file: each location asks its
# own.

sub line { return 'sha256:' . sha256_hex($_[0]) . " $_[1] $_[2]" }

my %key = (ci => 'e2b_' . 'a1' x 20, ann => 'ann-secret', bob => 'b' x 512,
           other => "\xc3\xa4 key");
my $file = "# keys\n\n" . line($key{ci}, 'acme', 'ci') . "  # builds\n"
           . '  ' . line($key{ann}, 'acme', 'ann') . "\r\n"
           . uc(sha256_hex($key{bob})) =~ s/^/sha256:/r . "\tacme\tbob\n"
           . line($key{other}, 'other', 'ci');

my $t = SandboxTest->new(workers => 1, http => <<"CONF");
  server {
      listen 127.0.0.1:$port;
      sandbox_keys conf/keys;
      include sandbox-errors.conf;
      location /v1/ { sandbox_api v1; }
      location /e2b/ { sandbox_api e2b; }
      location /open/ { sandbox_keys off; sandbox_api v1; }
      location /any/ { sandbox_keys off; sandbox_api e2b; }
      location /team/ {
          sandbox_keys off;
          sandbox_tenant team;
          sandbox_api e2b;
      }
      location /admin/ { sandbox_api admin; }
  }
CONF

sub write_keys {
    my ($text, $mode) = @_;

    my $path = $t->prefix . '/conf/keys';

    open my $f, '>', $path or die "$path: $!";
    print $f $text;
    close $f;
    chmod $mode // 0600, $path;

    return;
}

write_keys($file);
$t->start;


sub ask {
    my ($method, $path, $headers, $json) = @_;

    my %h = (Connection => 'close', %{ $headers || {} });
    my %o;

    if ($json) {
        $h{'Content-Type'} = 'application/json';
        $o{body} = $JSON->encode($json);
    }

    my $c = SandboxTest::Connection->new(port => $port, timeout => 30);
    my $res = $c->request($method, $path, %o, headers => \%h);

    $c->close;
    $res->{json} = eval { $JSON->decode($res->{body}) };

    return $res;
}

sub api_key { return { 'X-API-Key' => $key{$_[0]} } }
sub bearer { return { Authorization => "Bearer $key{$_[0]}" } }


subtest 'the native API' => sub {
    my $none = ask(GET => '/v1/sessions');
    is_problem($none, 401, 'E1001', 'no key', qr/API key is needed/);
    is($none->{headers}{'www-authenticate'}, 'Bearer', 'tells what is wanted');
    is(ask(GET => '/v1/health')->{status}, 200, 'health needs none');

    my %bad = (
        'another key' => { 'X-API-Key' => 'e2b_' . 'a2' x 20 },
        'an empty one' => { 'X-API-Key' => '' },
        'no more than its beginning' =>
            { 'X-API-Key' => substr $key{ci}, 0, 20 },
        'more than it' => { 'X-API-Key' => "$key{ci}0" },
        'its digest' => { 'X-API-Key' => sha256_hex($key{ci}) },
        'one of 513 bytes' => { 'X-API-Key' => 'b' x 513 },
        'a control character' => { 'X-API-Key' => "$key{ann}\x01" },
        'a password' => { Authorization => 'Basic ' . b64("x:$key{ci}") },
        'a scheme alone' => { Authorization => 'Bearer' },
        'an empty Bearer' => { Authorization => 'Bearer  ' },
        'two that differ' => { %{ api_key('ci') }, %{ bearer('ann') } });

    for my $what (sort keys %bad) {
        is_problem(ask(GET => '/v1/sessions', $bad{$what}), 401, 'E1001',
                   $what);
    }

    my $c = SandboxTest::Connection->new(port => $port, timeout => 30);
    $c->send("GET /v1/sessions HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
             . "X-API-Key: $key{ci}\r\nX-API-Key: $key{ci}\r\n\r\n");
    is($c->read_response->{status}, 401, 'a header that is there twice');
    $c->close;

    my $res = ask(POST => '/v1/sessions', api_key('ci'), { template => 'base' });
    is($res->{status}, 201, 'a key opens') or diag($res->{body});
    is("$res->{json}{tenant_id} $res->{json}{user_id}", 'acme ci',
       'tenant and user are the line\'s');

    my $id = $res->{json}{session_id};

    for my $way (['X-API-Key' => api_key('ci')], [Bearer => bearer('ci')],
                 ['bearer, in small letters and with more space' =>
                  { Authorization => "bearer   $key{ci}" }],
                 ['both, the same' => { %{ api_key('ci') },
                                        %{ bearer('ci') } }],
                 ['a password beside it' =>
                  { %{ api_key('ci') }, Authorization => 'Basic eDp5' }])
    {
        is(ask(GET => "/v1/sessions/$id", $way->[1])->{status}, 200,
           $way->[0]);
    }

    is_problem(ask(POST => '/v1/sessions', api_key('ci'),
                   { tenant_id => 'other' }), 403, 'E1002',
               'another tenant cannot be named');
    is_problem(ask(POST => '/v1/sessions', api_key('ci'),
                   { user_id => 'ann' }), 403, 'E1002', 'nor another user');

    for my $who (qw(ann bob other)) {
        is_problem(ask(GET => "/v1/sessions/$id", api_key($who)), 404,
                   'E2009', "nothing of it for $who");
        is_deeply(ask(GET => '/v1/sessions', api_key($who))->{json}{sessions},
                  [], 'in no list');
        is_problem(ask(DELETE => "/v1/sessions/$id", api_key($who)), 404,
                   'E2009', 'and nothing to be ended');
    }

    is(ask(GET => "/open/sessions/$id")->{status}, 200,
       'keys that are off ask nobody');

    # the other API, and back

    is(ask(GET => "/e2b/sandboxes/$id", api_key('ci'))->{json}{sandboxID},
       $id, 'E2B sees it');
    is(ask(GET => "/e2b/sandboxes/$id", bearer('ann'))->{status}, 404,
       'and not for another user');
    is(ask(DELETE => "/e2b/sandboxes/$id", bearer('ci'))->{status}, 204,
       'and ends it');
};


subtest 'E2B' => sub {
    my $none = ask(GET => '/e2b/v2/sandboxes');
    is("$none->{status} $none->{json}{code}", '401 401', 'no key');
    is(ask(GET => '/e2b/v2/sandboxes', { 'X-API-Key' => 'e2b_00' })->{status},
       401, 'another key');
    is(ask(GET => '/e2b/health')->{status}, 200, 'health needs none');

    my $id = ask(POST => '/e2b/v2/sandboxes', api_key('other'),
                 { templateID => 'base' })->{json}{sandboxID};
    my $seen = ask(GET => "/v1/sessions/$id", bearer('other'))->{json};

    is("$seen->{tenant_id} $seen->{user_id}", 'other ci', 'whose it is');
    is_deeply(ask(GET => '/e2b/v2/sandboxes', api_key('ci'))->{json}, [],
              'others do not see it');

    for my $case ([ GET => '' ], [ DELETE => '' ], [ GET => '/metrics' ],
                  [ GET => '/logs' ], [ POST => '/pause', {} ],
                  [ POST => '/timeout', { timeout => 9 } ],
                  [ POST => '/connect', {} ], [ POST => '/refreshes', {} ],
                  [ PUT => '/network', {} ])
    {
        my ($method, $what, $json) = @$case;
        my $res = ask($method => "/e2b/sandboxes/$id$what", api_key('ci'),
                      $json);
        is("$res->{status} " . ($res->{json}{code} // '-'), '404 404',
           "$method $what of another's");
    }

    is_deeply(ask(GET => "/e2b/sandboxes/metrics?sandbox_ids=$id",
                  api_key('ci'))->{json}, { sandboxes => {} },
              'nor are its figures told');
    is(ask(DELETE => "/e2b/sandboxes/$id", api_key('other'))->{status}, 204,
       'its own ends it');
};


subtest 'without keys, or with a tenant' => sub {
    is(ask(GET => '/any/v2/sandboxes')->{status}, 401,
       'any key is needed all the same');
    is(ask(GET => '/any/v2/sandboxes', { 'X-API-Key' => "a\x7f" })->{status},
       401, 'and must be one');

    my $id = ask(POST => '/any/v2/sandboxes', { 'X-API-Key' => 'whatever' },
                 { templateID => 'base' })->{json}{sandboxID};
    my $seen = ask(GET => "/open/sessions/$id")->{json};

    is("$seen->{tenant_id} $seen->{user_id}", 'default default',
       'all are one');
    is(ask(GET => "/any/sandboxes/$id", { Authorization => 'Bearer else' })
       ->{status}, 200, 'for another key, too');
    is($t->log_has(qr/\[warn\].*takes any API key/), 1,
       'of which the log warns, once');
    ask(DELETE => "/any/sandboxes/$id", { 'X-API-Key' => 'x' });

    $id = ask(POST => '/team/v2/sandboxes', {}, { templateID => 'base' })
          ->{json}{sandboxID};
    $seen = ask(GET => "/open/sessions/$id")->{json};
    is("$seen->{tenant_id} $seen->{user_id}", 'team default',
       'a tenant of the configuration needs no key');
    is(ask(DELETE => "/team/sandboxes/$id")->{status}, 204, 'for any call');

    is(ask(GET => '/admin/settings')->{status}, 200,
       'keys of the server guard no admin API, as they are nobody there');
};


subtest 'a reload' => sub {
    my $id = ask(POST => '/v1/sessions', api_key('ann'), {})
             ->{json}{session_id};

    write_keys(line($key{ann}, 'acme', 'ann') . "\n"
               . line('new', 'acme', 'ann') . "\n");
    ok($t->reload, 'is over');

    is(ask(GET => "/v1/sessions/$id", { 'X-API-Key' => 'new' })->{status},
       200, 'a new key of the same user opens');
    is(ask(GET => '/v1/sessions', api_key('ci'))->{status}, 401,
       'one that is gone does not');

    write_keys("what is this\n");
    $t->signal('HUP');
    ok(SandboxTest::wait_for(sub { $t->log_has(qr/must be "sha256:/) }, 10),
       'a wrong file is told');
    $t->allow(qr/must be "sha256:/);
    is(ask(DELETE => "/v1/sessions/$id", api_key('ann'))->{status}, 204,
       'and the keys of before hold');
};


subtest 'what a file may not hold' => sub {
    my $one = line('a', 'x', 'y');
    my $hex = sha256_hex('a');

    my @cases = (
        [ "\n# x\n$one z\n", qr/must be "sha256:.*keys:3/, 'a word more' ],
        [ "sha256:$hex x\n", qr/must be.*keys:1/, 'no user' ],
        [ "sha256:${hex}0 x y\n", qr/must be.*keys:1/, 'a digit more' ],
        [ 'sha256:' . substr($hex, 1) . "g x y\n", qr/must be.*keys:1/,
          'another letter' ],
        [ "md5:$hex x y\n", qr/must be.*keys:1/, 'another digest' ],
        [ "e2b_00 x y\n", qr/must be.*keys:1/, 'a key itself' ],
        [ "sha256:$hex x/y z\n", qr/tenant or user.*keys:1/, 'no name' ],
        [ "sha256:$hex x \x01\n", qr/tenant or user.*keys:1/, 'a control' ],
        [ "$one\n" . line('b', 'x', 'y') . "\n\U$one\E\n"
          =~ s/SHA256/sha256/r, qr/key of line 1 is there again.*keys:3/,
          'a key twice' ],
        [ join('', map { line($_, 'x', 'y') . "\n" } 0 .. 16384),
          qr/more than 16384 keys.*keys:16385/, 'too many' ]);

    for my $case (@cases) {
        my ($text, $why, $what) = @$case;

        write_keys($text);
        my ($rc, $out) = $t->nginx('-t');
        ok($rc != 0 && $out =~ /\[emerg\].*$why/, $what) or diag($out);
    }

    write_keys(join '', map { line($_, 'x', 'y') . "\n" } 1 .. 16384);
    my ($rc, $out) = $t->nginx('-t');
    ok($rc == 0 && $out !~ /warn/, 'not too many') or diag($out);

    write_keys("# none\n");
    ($rc, $out) = $t->nginx('-t');
    ok($rc == 0 && $out =~ /\[warn\].*has no key/, 'none') or diag($out);

    write_keys("$one\n", 0644);
    ($rc, $out) = $t->nginx('-t');
    ok($rc == 0 && $out =~ /\[warn\].*read by others/, 'read by others')
        or diag($out);
};


subtest 'where keys may not be' => sub {
    my $good = $t->{http};

    my @cases = (
        [ 'sandbox_tenant x; sandbox_api v1;',
          qr/"sandbox_keys" and "sandbox_tenant" both tell who asks/ ],
        [ 'sandbox_user x; sandbox_api e2b;',
          qr/"sandbox_keys" and "sandbox_user" both tell who asks/ ],
        [ 'sandbox_keys conf/keys; sandbox_api admin;',
          qr/"sandbox_keys" is for the APIs.*"\/x\/"/ ],
        [ 'sandbox_keys conf/none; sandbox_api v1;',
          qr/conf\/none" cannot be read/ ],
        [ 'sandbox_keys conf; sandbox_api v1;', qr/is no file/ ],
        [ 'sandbox_keys ""; sandbox_api v1;', qr/must be a file, or off/ ],
        [ 'sandbox_keys off; sandbox_keys off; sandbox_api v1;',
          qr/is duplicate/ ],
        [ 'sandbox_e2b_domain "a b"; sandbox_api e2b;',
          qr/must be a domain/ ],
        [ 'sandbox_e2b_domain .a; sandbox_api e2b;', qr/must be a domain/ ],
        [ 'sandbox_e2b_domain a; sandbox_e2b_domain a;', qr/is duplicate/ ]);

    for my $case (@cases) {
        my ($text, $why) = @$case;

        $t->write_conf(http => $good
                       =~ s/(location \/v1\/)/location \/x\/ { $text } $1/r);
        my ($rc, $out) = $t->nginx('-t');
        ok($rc != 0 && $out =~ /\[emerg\].*$why/, $text) or diag($out);
    }

    $t->write_conf(http => $good
                   =~ s/(location \/v1\/)/location \/x\/ { sandbox_user a; }
                        location = \/y { sandbox_api status; } $1/r);
    my ($rc, $out) = $t->nginx('-t');
    is($rc, 0, 'where there is no API, or another, they are not asked')
        or diag($out);
};


subtest 'sandboxctl key' => sub {
    my $ctl = "$SandboxTest::BUILD/sandboxctl";
    my @one = split /\n/, `$ctl key acme-corp ci\@x 2>&1`;
    my @two = split /\n/, `$ctl key acme-corp ci\@x 2>&1`;

    like($one[0], qr/^e2b_[0-9a-f]{40}$/, 'a key of the form of E2B');
    is($one[1], line($one[0], 'acme-corp', 'ci@x'), 'its line');
    isnt($one[0], $two[0], 'no key is made twice');
    like(`$ctl key acme-corp ci 2>/dev/null`,
         qr/\Asha256:[0-9a-f]{64} acme-corp ci\n\z/,
         'the line alone goes to a file');

    for my $bad ('', 'a', 'a b c', "a 'b c'", '.a b') {
        my $out = `$ctl key $bad 2>&1`;
        ok($? >> 8 == 2 && $out =~ /--help/, "not: key $bad");
    }
};


# What "nginx -t" was asked for.

$t->allow(qr/\[emerg\] \d+#\d+: .*(?:keys|e2b_domain|tenant or user must|is no file)/);
$t->finish;
done_testing();
