#!/usr/bin/perl

# The plane of sandboxes of E2B's protocol, byte by byte: what is created,
# listed, timed, paused, measured and refused.

use strict;
use warnings;
use utf8;

use FindBin;
use lib "$FindBin::Bin/lib";

use JSON::PP ();
use Test::More;
use Time::HiRes qw(time);
use SandboxTest;
use SandboxTest::More;

binmode $_, ':utf8' for Test::More->builder->output,
                        Test::More->builder->failure_output;

my $JSON = JSON::PP->new->utf8->canonical;
my $port = SandboxTest::free_port();
my $KEY = 'e2b_' . '0' x 40;

my $t = SandboxTest->new(workers => 1, http => <<"CONF");
  sandbox_quota user sessions=8;
  sandbox_template tiny {
      memory 64MB;
      timeout 77;
      env OF template;
      capabilities shell;
  }
  server {
      listen 127.0.0.1:$port;
      include sandbox-errors.conf;
      location /v1/ { sandbox_api v1; }
      location / { sandbox_api e2b; }
      location /below/ { sandbox_api e2b; }
      location /named { sandbox_e2b_domain Sandbox.test:8443; sandbox_api e2b; }
      location /few/ {
          sandbox_tenant few;
          sandbox_user \$http_x_user;
          sandbox_api e2b;
      }
  }
CONF
$t->start;


# A body goes in chunks, as the SDK sends it.

sub ask {
    my ($method, $path, $json, %o) = @_;

    my %h = (Connection => 'close', 'X-API-Key' => $KEY,
             %{ $o{headers} || {} });
    my $body;

    if (defined $json) {
        my $text = ref $json ? $JSON->encode($json) : $json;
        $h{'Content-Type'} //= 'application/json';
        $h{'Transfer-Encoding'} = 'chunked';
        $body = length $text
                ? sprintf("%x\r\n%s\r\n0\r\n\r\n", length $text, $text)
                : "0\r\n\r\n";
    }

    my $c = SandboxTest::Connection->new(port => $port, timeout => 30);
    my $res = $c->request($method, $path, body => $body, headers => \%h);

    $c->close;
    $res->{json} = eval { $JSON->decode($res->{body}) };

    return $res;
}

sub new_id {
    my ($fields, $path) = @_;

    my $res = ask(POST => $path // '/v2/sandboxes',
                  { templateID => 'base', %{ $fields || {} } });

    is($res->{status}, 201, 'created') or diag($res->{body});

    return $res->{json}{sandboxID};
}

sub kill_id { return ask(DELETE => "/sandboxes/$_[0]")->{status} }

# {"code","message"} with the status, and nothing else.

sub refused {
    my ($res, $status, $like, $what) = @_;

    my $j = $res->{json} // {};

    ok($res->{status} == $status && ($j->{code} // 0) == $status
       && ($j->{message} // '') =~ $like && keys %$j == 2, $what)
        or diag("$res->{status} $res->{body}");

    return;
}

sub when_ms {
    my ($s) = @_;

    my ($y, $m, $d, $h, $i, $sec, $ms)
        = ($s // '') =~ /^(\d+)-(\d+)-(\d+)T(\d+):(\d+):(\d+)\.(\d{3})Z$/
        or return 0;

    require Time::Local;

    return Time::Local::timegm($sec, $i, $h, $d, $m - 1, $y) * 1000 + $ms;
}

sub lasts {
    my ($j) = @_;

    return (when_ms($j->{endAt}) - when_ms($j->{startedAt})) / 1000;
}


subtest 'create, get and kill' => sub {
    my $res = ask(POST => '/v2/sandboxes', { templateID => 'base' });
    my $j = $res->{json};

    is($res->{status}, 201, 'the least that is asked for');
    like($j->{sandboxID}, qr/^i[a-z0-9]{20,}$/, 'an id');
    is($j->{templateID}, 'base', 'its template');
    is($j->{envdVersion}, '0.6.13', 'the version of envd');
    like($j->{envdAccessToken}, qr/^[0-9a-f]{64}$/, 'a token');
    like($j->{trafficAccessToken}, qr/^[0-9a-f]{64}$/,
         'and one that clients send with calls about contexts');
    ok(exists $j->{domain} && !defined $j->{domain}, 'no domain');
    ok(length $j->{clientID}, 'a client');
    is($j->{envdUrl}, "http://localhost/envd/$j->{sandboxID}",
       'where its envd is');
    is(lasts($j), 300, 'it lasts five minutes');

    my $got = ask(GET => "/sandboxes/$j->{sandboxID}");
    is($got->{status}, 200, 'get');
    is_deeply($got->{json}, $j, 'tells the same');
    is($got->{json}{state}, 'running', 'it runs');
    is_deeply([ map { $_ + 0 } @{ $got->{json} }{qw(cpuCount memoryMB)} ],
              [ 1, 512 ], 'its limits');
    cmp_ok($got->{json}{diskSizeMB}, '>=', 1, 'its disk');
    is_deeply($got->{json}{metadata}, {}, 'no metadata');
    is_deeply($got->{json}{volumeMounts}, [], 'no volumes');
    ok(!$got->{json}{allowInternetAccess}, 'no internet');
    is_deeply($got->{json}{lifecycle},
              { onTimeout => 'kill', autoResume => JSON::PP::false },
              'its life');
    ok($got->{json}{network}{allowPublicTraffic}, 'its ports are open');

    my $native = ask(GET => "/v1/sessions/$j->{sandboxID}")->{json};
    is(join(' ', @{ $native->{capabilities} }), 'shell files code ports',
       'the native API sees it, with every capability');
    is("$native->{tenant_id} $native->{user_id}", 'default default',
       'whose it is');

    is(ask(HEAD => "/sandboxes/$j->{sandboxID}")->{status}, 200, 'HEAD');

    my $gone = ask(DELETE => "/sandboxes/$j->{sandboxID}");
    is("$gone->{status}$gone->{body}", '204', 'killed');
    refused(ask(DELETE => "/sandboxes/$j->{sandboxID}"), 404,
            qr/^The sandbox was not found$/, 'once');
    refused(ask(GET => "/sandboxes/$j->{sandboxID}"), 404, qr/not found/,
            'it is not there');
    refused(ask(DELETE => '/sandboxes/nonexistingsandbox'), 404, qr/./,
            'what is no id is none');

    # made by the native API

    my $id = ask(POST => '/v1/sessions',
                 { tenant_id => 'default', user_id => 'default',
                   metadata => { a => 'b' } })->{json}{session_id};
    $got = ask(GET => "/sandboxes/$id")->{json};
    is($got->{metadata}{a}, 'b', 'one of the native API');
    like($got->{envdAccessToken}, qr/^[0-9a-f]{64}$/, 'with a token');
    is(kill_id($id), 204, 'is ended here');
};


subtest 'what is asked for' => sub {
    my $res = ask(POST => '/v2/sandboxes', {
        templateID => 'code-interpreter-v1', timeout => 60,
        metadata => { 'a-b' => "c \x{e4}" }, envVars => { A => '1', B => 'x' },
        envs => { B => '2' }, autoPause => JSON::PP::true,
        autoResume => { enabled => JSON::PP::true },
        allow_internet_access => JSON::PP::true, cpuCount => 1.5,
        memoryMB => 256, diskSizeMB => 100, unknown => { x => [ 1, {} ] },
        network => { denyOut => [ '0.0.0.0/0' ], allowOut => [],
                     allowPublicTraffic => JSON::PP::false,
                     httpsPorts => [ 443 ], new => 1 },
        gpu => undef, mcp => { x => {} }, iam => undef, volumeMounts => [],
        autoPauseMemory => JSON::PP::true });
    my $j = $res->{json};
    my $id = $j->{sandboxID} // 'none';

    is($res->{status}, 201, 'much') or diag($res->{body});
    is("$j->{templateID} $j->{alias}",
       'code-interpreter-v1 code-interpreter-v1',
       'the template is told by the name that was asked for');
    is(ask(GET => "/v1/sessions/$id")->{json}{template},
       'code-interpreter-v1', 'by the native API too');
    is(lasts($j), 60, 'its time');
    is_deeply($j->{metadata}, { 'a-b' => "c \x{e4}" }, 'its metadata');
    is(join(' ', map { $_ + 0 } @{$j}{qw(cpuCount memoryMB diskSizeMB)}),
       '2 256 100', 'limits, processors rounded up');
    is_deeply($j->{lifecycle},
              { onTimeout => 'pause', autoResume => JSON::PP::true },
              'its life');
    like($j->{trafficAccessToken}, qr/^[0-9a-f]{64}$/, 'a token for ports');
    isnt($j->{trafficAccessToken}, $j->{envdAccessToken}, 'of its own');
    ok(!$j->{network}{allowPublicTraffic}, 'which are not open');

    is(ask(POST => "/v1/sessions/$id/exec", { cmd => 'echo $A $B' })
       ->{json}{stdout}, "1 2\n", 'variables of both names');
    kill_id($id);

    for my $word (qw(templateId template)) {
        my $other = ask(POST => '/v2/sandboxes',
                        { $word => 'base', metadata => undef,
                          envVars => undef, timeout => undef,
                          network => undef, autoResume => undef });
        is($other->{status}, 201, "$word, and null for what is left out")
            or diag($other->{body});
        kill_id($other->{json}{sandboxID});
    }

    # a template's own

    $id = new_id({ templateID => 'tiny' });
    $j = ask(GET => "/sandboxes/$id")->{json};
    is("$j->{memoryMB} " . lasts($j), '64 77', 'limits of a template');
    is_deeply(ask(GET => "/v1/sessions/$id")->{json}{capabilities},
              [ 'shell' ], 'and no more capabilities than it has');
    kill_id($id);

    # the older route

    my $old = ask(POST => '/sandboxes', { templateID => 'base' })->{json};
    is(lasts($old), 15, 'the older route: its default time');
    ok(!exists $old->{envdAccessToken}, 'no token');
    ok(!exists ask(GET => "/sandboxes/$old->{sandboxID}")
       ->{json}{envdAccessToken}, 'nor later');
    kill_id($old->{sandboxID});

    $old = ask(POST => '/sandboxes',
               { templateID => 'base', timeout => 5,
                 secure => JSON::PP::true,
                 allow_internet_access => JSON::PP::true })->{json};
    like($old->{envdAccessToken}, qr/^[0-9a-f]{64}$/, 'secure has one');
    is(lasts($old), 5, 'and its time');
    kill_id($old->{sandboxID});

    # where it is

    $res = ask(POST => '/below/sandboxes', { templateID => 'base' },
               headers => { Host => 'box.test:8080' });
    is($res->{json}{envdUrl},
       "http://box.test:8080/below/envd/$res->{json}{sandboxID}",
       'the address has what the client calls us');
    kill_id($res->{json}{sandboxID});

    $res = ask(POST => '/named/v2/sandboxes', { templateID => 'base' });
    is("$res->{json}{domain} $res->{json}{envdUrl}", 'sandbox.test:8443 '
       . "https://49983-$res->{json}{sandboxID}.sandbox.test:8443",
       'or a domain');
    kill_id($res->{json}{sandboxID});
};


subtest 'what is refused' => sub {
    my $new = sub {
        my ($fields, $like, $status) = @_;
        my $text = ref $fields ? { templateID => 'base', %$fields } : $fields;
        refused(ask(POST => '/v2/sandboxes', $text), $status // 400, $like,
                ref $fields ? $JSON->encode($fields) : "body: $fields");
    };
    my $false = JSON::PP::false;

    $new->({ templateID => undef }, qr/^templateID: is missing/);
    $new->({ templateID => '' }, qr/^templateID: /);
    $new->({ templateID => 'x' x 64 }, qr/^templateID: /);
    $new->({ templateID => 7 }, qr/^templateID: must be a string/);
    $new->({ templateID => 'nope' }, qr/no template "nope"/, 404);
    $new->({ templateID => '../base' }, qr/template/, 404);
    $new->({ timeout => 0 }, qr/^Timeout must be greater than 0$/);
    $new->({ timeout => -1 }, qr/^Timeout must be greater than 0/);
    $new->({ timeout => 1.5 }, qr/^Timeout must be greater than 0/);
    $new->({ timeout => 'x' }, qr/^Timeout must be greater than 0/);
    $new->({ timeout => 86401 },
           qr/^timeout asks for 86401 seconds, .* allowed is 86400$/);
    $new->('{"templateID":"base","timeout":99999999999999999999}',
           qr/^Timeout/);
    $new->({ memoryMB => 4097 },
           qr/^memoryMB asks for 4097, .* allowed is 4096$/);
    $new->({ memoryMB => 15 }, qr/^memoryMB must be at least 16$/);
    $new->({ memoryMB => -1 }, qr/^memoryMB: must be an integer/);
    $new->({ memoryMB => 1e15 }, qr/^memoryMB: must be an integer/);
    $new->({ diskSizeMB => 4097 },
           qr/^diskSizeMB asks for 4097, .* allowed is 4096$/);
    $new->({ diskSizeMB => 99999999 }, qr/^diskSizeMB .* allowed is 4096$/);
    $new->({ diskSizeMB => 0 }, qr/^diskSizeMB must be at least 1$/);
    $new->({ cpuCount => 5 }, qr/^cpuCount asks for 5, .* allowed is 4$/);
    $new->({ cpuCount => 0 }, qr/^cpuCount: must be at least/);
    $new->({ gpu => 'A10' }, qr/^gpu: /);
    $new->({ iam => { tokens => [] } }, qr/^iam: /);
    $new->({ volumeMounts => [ { name => 'a', path => '/a' } ] },
           qr/^volumeMounts: /);
    $new->({ network => { allowOut => [ '1.1.1.1' ] } },
           qr/^network\.allowOut\/0: |^network: /);
    $new->({ network => { allowOut => [ '1.1.1' ] } },
           qr/^network\.allowOut\/0: /);
    $new->({ network => { denyOut => [ '1.1.1.1', 'a b' ] } },
           qr/^network\.denyOut\/1: /);
    $new->({ network => { rules => {} } }, qr/^network\.rules: /);
    $new->({ network => { egressProxy => {} } }, qr/^network\.egressProxy: /);
    $new->({ network => { maskRequestHost => 'x' } },
           qr/^network\.maskRequestHost: /);
    $new->({ network => [] }, qr/^network: must be an object/);
    $new->({ autoPauseMemory => $false }, qr/^autoPauseMemory: /);
    $new->({ metadata => { a => 1 } }, qr/^metadata.*must be a string/);
    $new->({ metadata => { '' => 'x' } }, qr/^metadata.*a key has/);
    $new->({ metadata => { a => 'x' x 1025 } }, qr/^metadata\.a: a value/);
    $new->({ envVars => { 'A=B' => 'x' } }, qr/^envVars\.A=B: a variable/);
    $new->({ envs => { A => "\0" } }, qr/^envVars\.A: a variable/);
    $new->('{"templateID":"base","templateID":"base"}', qr/./);
    $new->('[]', qr/must be an object/);
    $new->('{"templateID":', qr/./);
    $new->('', qr/^templateID: is missing/);
    $new->("{\"templateID\":\"\xff\"}", qr/./);

    refused(ask(POST => '/v2/sandboxes', 'templateID=base',
                headers => { 'Content-Type' =>
                             'application/x-www-form-urlencoded' }),
            415, qr/json/, 'another type');
    refused(ask(POST => '/v2/sandboxes', '{"x":"' . 'y' x 1100000 . '"}'),
            413, qr/limited to/, 'too long a body');
    refused(ask(PUT => '/v2/sandboxes', {}), 405, qr/GET, HEAD, POST/,
            'another method');
    refused(ask(GET => '/v3/sandboxes'), 404, qr/route/, 'another route');
    refused(ask(GET => '/'), 404, qr/./, 'no route');

    is_deeply(ask(GET => '/v2/sandboxes')->{json}, [],
              'nothing was created by what was refused');
};


subtest 'lists' => sub {
    my @ids;

    for my $n (1 .. 5) {
        push @ids, new_id({ metadata => { n => "$n", 'a b' => "x&=\x{e4}%",
                                          odd => $n % 2 ? 'yes' : 'no' },
                            templateID => $n == 3 ? 'tiny' : 'base' });
    }

    my $list = sub {
        my ($query, $base) = @_;
        my $res = ask(GET => ($base // '/v2/sandboxes') . "?$query");
        return $res->{status} if $res->{status} != 200;
        my %at = map { $ids[$_ - 1] => $_ } 1 .. @ids;
        return join ' ', (map { $at{$_->{sandboxID}} // '?' }
                          @{ $res->{json} }),
                   map { "$_=" . ($res->{headers}{$_} // '-') }
                   qw(x-next-token);
    };
    my $none = 'x-next-token=-';

    # each level as the SDK has it: parts, the whole, the argument

    my $filter = sub {
        my (%m) = @_;
        my $s = join '&', map { enc(enc(to_utf8($_))) . '='
                                . enc(enc(to_utf8($m{$_}))) } sort keys %m;
        return 'metadata=' . enc($s);
    };

    my $whole = ask(GET => '/v2/sandboxes');
    is($list->(''), "5 4 3 2 1 $none", 'newest first');
    is($whole->{headers}{'x-total-running'}, 5, 'how many run');
    ok(!grep({ exists $_->{envdAccessToken} } @{ $whole->{json} }),
       'no tokens in it');
    is_deeply([ sort keys %{ $whole->{json}[0] } ],
              [ sort qw(templateID alias sandboxID clientID startedAt endAt
                        cpuCount memoryMB diskSizeMB metadata state
                        envdVersion volumeMounts envdUrl domain) ],
              'the rest is there');

    is(ask(POST => "/sandboxes/$ids[1]/pause", {})->{status}, 204,
       'the second is paused');
    is($list->(''), "5 4 3 2 1 $none", 'and keeps its place');
    is(ask(GET => '/v2/sandboxes')->{headers}{'x-total-running'}, 4,
       'but does not run');
    is($list->('state=running'), "5 4 3 1 $none", 'state=running');
    is($list->('state=paused'), "2 $none", 'state=paused');
    is($list->('state=running,paused'), "5 4 3 2 1 $none", 'both');
    is($list->('state=running%2Cpaused'), "5 4 3 2 1 $none", 'encoded');
    is($list->('state=running&state=paused'), "5 4 3 2 1 $none", 'twice');
    is($list->('state=odd'), 400, 'another one');

    is($list->($filter->(odd => 'yes')), "5 3 1 $none", 'by metadata');
    is($list->($filter->(odd => 'no', 'a b' => "x&=\x{e4}%")), "4 2 $none",
       'with what must be encoded');
    is($list->($filter->(odd => 'no', n => '1')), $none, 'all must fit');
    is($list->('metadata=n%3D5'), "5 $none", 'encoded once');
    is($list->('metadata=n'), 400, 'no pair');
    is($list->('metadata=n%3D%2525zz'), 400, 'a bad escape inside');
    is($list->('metadata=%zz'), 400, 'and outside');
    is($list->('metadata=' . enc(join '&', map { "k$_=v" } 1 .. 65)), 400,
       'too many pairs');
    is($list->('template=tiny'), "3 $none", 'template');
    is($list->('template=none'), $none, 'no such template');

    my $third = ask(GET => "/sandboxes/$ids[2]")->{json}{startedAt};
    is($list->('startedAfter=' . enc($third)), "5 4 $none", 'startedAfter');
    is($list->('startedAfter=' . enc($third =~ s/Z$/+00:00/r)),
       "5 4 $none", 'with an offset');
    is($list->('startedAfter=2100-01-01T00:00:00Z'), $none, 'later');
    is($list->("startedAfter=$_"), 400, "startedAfter=$_")
        for qw(x 2026-11-30 2026-13-01T00:00:00Z 2026-11-30T00:00:00
               2026-11-30T00:00:00.Zx 20261130T000000000Z);

    # pages

    my $pages = sub {
        my ($query) = @_;
        my ($token, @pages) = '';
        do {
            my $got = $list->($query . ($token ? "&nextToken=$token" : ''));
            $got =~ s/ ?x-next-token=(.*)//;
            $token = $1;
            push @pages, $got;
        } while ($token ne '-' && @pages < 9);
        return join ' | ', @pages;
    };

    is($pages->('limit=2'), '5 4 | 3 2 | 1', 'pages');
    is($pages->('limit=5'), '5 4 3 2 1', 'one that is just full');
    is($pages->('limit=2&order=asc'), '1 2 | 3 4 | 5', 'upwards');
    is($pages->('limit=5&order=asc'), '1 2 3 4 5', 'just full, upwards');
    is($pages->('order=asc'), '1 2 3 4 5', 'all of them');
    is($pages->('limit=1&order=asc&' . $filter->(odd => 'yes')),
       '1 | 3 | 5', 'upwards, filtered before pages');
    is($pages->('limit=1&' . $filter->(odd => 'yes')), '5 | 3 | 1',
       'filtered before pages');
    is($pages->('limit=1&order=desc&state=paused'), '2', 'one page of one');
    is($pages->('limit=1&order=asc&state=running'), '1 | 3 | 4 | 5',
       'upwards, by state');
    is($pages->('order=asc&' . $filter->(odd => 'maybe')), '', 'of none');

    # what comes and goes between pages moves nothing

    my ($next) = $list->('limit=2&order=asc') =~ /token=(.*)/;
    is(kill_id($ids[0]), 204, 'one goes');
    my $more = new_id();
    is($list->("limit=2&order=asc&nextToken=$next"),
       '3 4 x-next-token=' . ($list->("limit=2&order=asc&nextToken=$next")
                              =~ /token=(.*)/)[0], 'the next page');
    isnt(($list->("limit=2&order=asc&nextToken=$next") =~ /token=(.*)/)[0],
         '-', 'is not the last');
    kill_id($more);

    is($list->("nextToken=$next"), 400, 'a token of the other order');
    is($list->("nextToken=$_"), 400, "nextToken=$_")
        for qw(x d dzz d0 d-1 dffffffffffffffffff CURSOR2);
    is($list->("limit=$_"), 400, "limit=$_") for qw(0 101 x -1);
    is($list->('order=up'), 400, 'order=up');

    # the older route

    my $old = sub { return $list->($_[0], '/sandboxes') };

    is($old->(''), "5 4 3 $none", 'the older route: what runs');
    is($old->($filter->(odd => 'yes')), "5 3 $none", 'metadata');
    is($old->('status=paused'), "2 $none", 'status of another client');
    is($old->('limit=1&offset=1') =~ s/=d\w+$/=/r, '4 x-next-token=',
       'its limit and offset');
    is($old->('limit=1000&offset=3'), $none, 'past the end');
    is($old->('limit=1001'), 400, 'limit=1001');
    is($old->('offset=x'), 400, 'offset=x');

    kill_id($_) for @ids[1 .. 4];
};

sub to_utf8 {
    my ($s) = @_;

    utf8::encode($s);

    return $s;
}


subtest 'time' => sub {
    my $id = new_id({ timeout => 100 });
    my $end = sub { return when_ms(ask(GET => "/sandboxes/$id")
                                   ->{json}{endAt}) / 1000 };
    my $near = sub {
        my ($left, $what) = @_;
        my $got = $end->() - time;
        ok(abs($got - $left) < 5, $what) or diag($got);
    };
    my $set = sub {
        my ($what, $json) = @_;
        return ask(POST => "/sandboxes/$id/$what", $json);
    };

    $near->(100, 'as it was created');
    is($set->('timeout', { timeout => 500 })->{status}, 204, 'longer');
    $near->(500, 'it is');
    is($set->('timeout', { timeout => 50 })->{status}, 204, 'shorter');
    $near->(50, 'it is');
    is($end->(), $end->(), 'and always the same');

    my $before = $end->();
    is($set->('refreshes', {})->{status}, 204, 'a refresh of nothing');
    is($set->('refreshes', { duration => 20 })->{status}, 204, 'a short one');
    is($set->('refreshes', '')->{status}, 204, 'none at all');
    is($end->(), $before, 'changes nothing');
    is($set->('refreshes', { duration => 200 })->{status}, 204, 'a long one');
    $near->(200, 'does');
    refused($set->('refreshes', { duration => 3601 }), 400,
            qr/^duration: must be an integer from 0 to 3600/, 'too long');

    refused($set->('timeout', {}), 400, qr/^timeout is missing/, 'no time');
    refused($set->('timeout', ''), 400, qr/^timeout is missing/, 'nothing');
    refused($set->('timeout', { timeout => -1 }), 400, qr/^Timeout must/,
            'below zero');
    refused($set->('timeout', { timeout => 86401 }), 400,
            qr/^timeout asks for 86401 .* 86400/, 'too much');
    refused(ask(POST => "/sandboxes/i" . 'a' x 24 . "/$_",
                { timeout => 1 }), 404, qr/not found/, "$_ of none")
        for qw(timeout refreshes pause resume connect);

    is($set->('timeout', { timeout => 0 })->{status}, 204, 'no more time');
    ok(SandboxTest::wait_for(sub {
        return ask(GET => "/sandboxes/$id")->{status} == 404;
    }, 10), 'ends it');
};


subtest 'pause, resume, connect' => sub {
    my $id = new_id({ timeout => 100 });
    my $post = sub {
        my ($what, $json, $v2) = @_;
        return ask(POST => ($v2 ? '/v2' : '') . "/sandboxes/$id/$what",
                   $json);
    };
    my $state = sub { return ask(GET => "/sandboxes/$id")->{json}{state} };
    my $ends = sub { return ask(GET => "/sandboxes/$id")->{json}{endAt} };
    my $health = sub {
        return ask(GET => '/health', undef,
                   headers => { 'E2b-Sandbox-Id' => $id,
                                'E2b-Sandbox-Port' => 49983 })->{status};
    };

    is($health->(), 204, 'its envd answers');

    my $same = $post->('connect', { timeout => 10 }, 1);
    is($same->{status}, 200, 'connect to what runs');
    is(lasts($same->{json}), 100, 'takes no time away');
    is($same->{json}{endAt}, $ends->(), 'to the millisecond');
    like($same->{json}{envdAccessToken}, qr/^[0-9a-f]{64}$/, 'its token');
    is($post->('connect', {}, 1)->{status}, 200, 'with the default');
    cmp_ok((when_ms($ends->()) / 1000 - time), '>', 290, 'is five minutes');
    is($post->('connect', undef, 1)->{status}, 200, 'no body');
    is($post->('connect', { timeout => 400 })->{status}, 200,
       'the older route');
    cmp_ok((when_ms($ends->()) / 1000 - time), '>', 390, 'gives more');

    refused($post->('resume', { timeout => 10 }), 409, qr/already running/,
            'what runs is not resumed');

    is($post->('pause', '')->{status}, 204, 'paused, without a body');
    is($state->(), 'paused', 'it is');
    is($health->(), 502, 'its envd does not answer');
    refused($post->('pause', {}), 409, qr/already paused/, 'once');
    refused($post->('pause', { memory => JSON::PP::false }), 400,
            qr/^memory: /, 'memory is always kept');

    my $woken = $post->('connect', { timeout => 500 }, 1);
    is($woken->{status}, 201, 'connect resumes');
    is($woken->{json}{state}, 'running', 'it runs');
    cmp_ok(abs(when_ms($woken->{json}{endAt}) / 1000 - time - 500), '<', 5,
           'and has the time at once');
    is($health->(), 204, 'its envd answers');

    is($post->('pause', { memory => JSON::PP::true })->{status}, 204,
       'paused again');
    is($post->('resume', {})->{status}, 201, 'resumed');
    is($post->('pause', {})->{status}, 204, 'paused again');
    is($post->('connect', undef)->{status}, 201, 'the older route');

    is(ask(PUT => "/sandboxes/$id/network",
           { denyOut => [ '0.0.0.0/0' ],
             allow_internet_access => JSON::PP::false })->{status}, 204,
       'a network that allows nothing');
    is(ask(PUT => "/sandboxes/$id/network", {})->{status}, 204,
       'or all of what nobody grants');
    refused(ask(PUT => "/sandboxes/$id/network",
                { allowOut => [ '1.1.1' ] }), 400, qr/^allowOut\/0: /,
            'nor what there is none of');
    refused(ask(PUT => "/sandboxes/$id/network", { rules => {} }), 400,
            qr/^rules: /, 'nor what this server does not have');

    kill_id($id);
    refused($post->('connect', {}, 1), 404, qr/not found/,
            'there is no way back from death');
    is($health->(), 502, 'nor an envd');
};


subtest 'figures' => sub {
    my $id = new_id({ timeout => 100, memoryMB => 300, cpuCount => 2 });
    my $other = new_id();
    my $at = "/sandboxes/$id/metrics";
    my $now = int time;

    ask(POST => "/v1/sessions/$id/exec",
        { cmd => 'head -c 3000000 /dev/zero > x' });

    my $res = ask(GET => $at);

    is($res->{status}, 200, 'are told') or diag($res->{body});
    cmp_ok(scalar @{ $res->{json} }, '>=', 1, 'at once');

    # a second later there is another

    my $j = SandboxTest::wait_for(sub {
        my $now = ask(GET => $at)->{json};
        return $now->[-1]{diskUsed} >= 3000000 && $now;
    }, 10) || $res->{json};
    my $m = $j->[-1];

    is_deeply([ sort keys %$m ],
              [ sort qw(timestamp timestampUnix cpuCount cpuUsedPct memUsed
                        memTotal memCache diskUsed diskTotal) ], 'all');
    is($m->{cpuCount}, 2, 'processors');
    is($m->{memTotal}, 300 * 1048576, 'memory');
    ok($m->{cpuUsedPct} >= 0 && $m->{cpuUsedPct} <= 100, 'percent');
    cmp_ok($m->{memUsed}, '<=', $m->{memTotal}, 'of which some is used');
    cmp_ok($m->{diskUsed}, '>=', 3000000, 'what was written');
    cmp_ok($m->{diskTotal}, '>', $m->{diskUsed}, 'of the disk');
    is(int(when_ms($m->{timestamp}) / 1000), $m->{timestampUnix}, 'when');
    ok(!grep({ abs($_->{timestampUnix} - $now) > 10 } @$j), 'which is now');

    is_deeply(ask(GET => "$at?start=1000000000&end=1100000000")->{json}, [],
              'before it was there');
    cmp_ok(scalar @{ ask(GET => "$at?start=" . ($now - 10) . '&end='
                         . ($now + 60))->{json} }, '>=', 1, 'a range');
    refused(ask(GET => "$at?start=2&end=1"), 400, qr/start/, 'backwards');
    refused(ask(GET => "$at?start=x"), 400, qr/^start must be/, 'no number');
    refused(ask(GET => '/sandboxes/i' . 'b' x 24 . '/metrics'), 404,
            qr/not found/, 'of none');

    my $many = ask(GET => "/sandboxes/metrics?sandbox_ids=$other,$id,"
                   . 'i' . 'b' x 24 . ",$id,no")->{json}{sandboxes};
    is_deeply([ sort keys %$many ], [ sort $id, $other ],
              'of several, without what is not there');
    is($many->{$id}{memTotal}, 300 * 1048576, 'each its own');
    is_deeply(ask(GET => '/sandboxes/metrics?sandbox_ids=no')->{json},
              { sandboxes => {} }, 'of none');
    refused(ask(GET => '/sandboxes/metrics'), 400, qr/^sandbox_ids is/,
            'nobody named');
    refused(ask(GET => '/sandboxes/metrics?sandbox_ids='
                . join ',', map { 'i' . 'c' x 22 . sprintf '%03d', $_ }
                                1 .. 101), 400, qr/more than 100/,
            'too many');
    is(ask(GET => '/sandboxes/metrics?sandbox_ids='
           . join ',', map { 'i' . 'c' x 22 . sprintf '%03d', $_ } 1 .. 100)
       ->{status}, 200, 'and not too many');

    # envd's own

    my %to = ('E2b-Sandbox-Id' => $id, 'E2b-Sandbox-Port' => 49983);
    my $token = ask(GET => "/sandboxes/$id")->{json}{envdAccessToken};

    is(ask(GET => '/metrics', undef, headers => \%to)->{status}, 401,
       'of envd: not without the token');
    is(ask(GET => '/envs', undef, headers => \%to)->{status}, 401,
       'nor its variables');
    is(ask(GET => '/health', undef, headers => { %to,
           'X-Access-Token' => 'wrong' })->{status}, 401,
       'a wrong one is not as none');

    $to{'X-Access-Token'} = $token;
    $m = ask(GET => '/metrics', undef, headers => \%to)->{json} // {};
    is_deeply([ sort keys %$m ],
              [ sort qw(ts cpu_count cpu_used_pct mem_total mem_used mem_cache
                        mem_total_mib mem_used_mib disk_used disk_total) ],
              'its figures');
    is(($m->{mem_total_mib} // 0) + 0, 300, 'memory');

    for my $what (qw(init freeze unfreeze collapse fsfreeze fsthaw upgrade)) {
        refused(ask(POST => "/$what", {}, headers => \%to), 403, qr/./,
                "POST /$what");
    }

    kill_id($_) for $id, $other;
};


subtest 'variables and the log' => sub {
    my $id = new_id({ envVars => { A => "1\n\"2", B => '',
                                   E2B_SANDBOX => 'no' } });
    my %to = ('E2b-Sandbox-Id' => $id, 'E2b-Sandbox-Port' => 49983,
              'X-Access-Token' =>
                  ask(GET => "/sandboxes/$id")->{json}{envdAccessToken});
    my $res = ask(GET => '/envs', undef, headers => \%to);

    is($res->{status}, 200, 'variables');
    is($res->{json}{A}, "1\n\"2", 'are told as they are');
    is($res->{json}{B}, '', 'empty ones too');
    is("$res->{json}{E2B_SANDBOX} $res->{json}{E2B_SANDBOX_ID}", "true $id",
       'and what each command has');
    is(scalar(() = $res->{body} =~ /"E2B_SANDBOX"/g), 1, 'once');

    ask(POST => "/v1/sessions/$id/exec", { cmd => 'exit 3' });

    my $old = ask(GET => "/sandboxes/$id/logs");
    is($old->{status}, 200, 'a log') or diag($old->{body});
    my @lines = @{ $old->{json}{logs} };
    my @entries = @{ $old->{json}{logEntries} };

    cmp_ok(scalar @lines, '>=', 2, 'has lines');
    is(scalar @entries, scalar @lines, 'in both forms');
    like($lines[0]{line}, qr/started/, 'the first tells of the start');
    is_deeply([ sort keys %{ $entries[0] } ],
              [ sort qw(timestamp level message fields) ], 'an entry');
    ok((grep { ($_->{fields}{exit_code} // '') eq '3' } @entries),
       'a command and how it ended') or diag($old->{body});
    ok(when_ms($entries[0]{timestamp}), 'times are times');

    my $logs = sub { return ask(GET => "/v2/sandboxes/$id/logs?$_[0]") };
    my $texts = sub { return join '|', map { $_->{message} }
                                       @{ $logs->($_[0])->{json}{logs} } };
    my @all = split /\|/, $texts->('');

    is(join('|', @all), join('|', map { $_->{message} } @entries),
       'the newer route');
    is($texts->('direction=backward'), join('|', reverse @all), 'backward');
    is($texts->('limit=1'), $all[0], 'limit');
    is($texts->('limit=1&direction=backward'), $all[-1], 'of the newest');
    is($texts->('limit=0'), '', 'of none');
    is($texts->('search=STARTED') =~ /^session started/, 1, 'search');
    is($texts->('search=nothing+of+it'), '', 'that finds nothing');
    is($texts->('level=error'), '', 'level');
    is($texts->('level=debug'), join('|', @all), 'the lowest');
    is($texts->('cursor=99999999999999'), '', 'from later on');
    is($texts->('cursor=1&direction=backward'), '', 'from before on');
    is(scalar @{ ask(GET => "/sandboxes/$id/logs?start=99999999999999")
                 ->{json}{logs} }, 0, 'the older route: start');
    refused($logs->($_), 400, qr/must be/, $_)
        for qw(limit=1001 direction=up level=loud cursor=x);

    is(ask(POST => "/sandboxes/$id/pause", {})->{status}, 204, 'paused');
    like($texts->('direction=backward&limit=1'), qr/paused/,
         'one that is paused has its log');

    kill_id($id);
    refused($logs->(''), 404, qr/not found/, 'of none');
};


subtest 'templates, and what there is not' => sub {
    my $all = ask(GET => '/templates')->{json};

    is(join(' ', map { $_->{templateID} } @$all),
       'base code-interpreter-v1 tiny', 'templates');
    is_deeply(ask(GET => '/v2/templates')->{json}, $all, 'the newer route');
    is($all->[2]{memoryMB}, 64, 'with their limits');

    for my $name (qw(base code-interpreter-v1 tiny)) {
        is_deeply(ask(GET => "/templates/aliases/$name")->{json},
                  { templateID => $name, public => JSON::PP::true },
                  "$name is there");
    }

    refused(ask(GET => '/templates/aliases/none'), 404, qr/template/,
            'another is not');
    refused(ask(DELETE => '/templates/snapshot1'), 404, qr/snapshot/,
            'no snapshot is deleted');

    my $id = new_id();

    for my $case ([ POST => "/sandboxes/$id/fork", {} ],
                  [ POST => "/sandboxes/$id/snapshots", { name => 'x' } ],
                  [ GET => '/snapshots' ], [ POST => '/v3/templates', {} ],
                  [ POST => '/templates', {} ], [ GET => '/volumes' ],
                  [ DELETE => '/volumes/x' ],
                  [ GET => '/volumecontent/x/file' ],
                  [ POST => '/secrets', {} ], [ DELETE => '/secrets/a' ],
                  [ GET => '/templates/base/builds/1/status' ],
                  [ POST => '/v2/templates/base/builds/1', {} ],
                  [ DELETE => '/templates/base' ])
    {
        my ($method, $path, $json) = @$case;
        refused(ask($method => $path, $json), 501, qr/here.*\w{4}/,
                "$method " . $path =~ s/$id/ID/r);
    }

    kill_id($id);
    is(ask(GET => '/health')->{status}, 200, 'health');
};


subtest 'traffic that is not public' => sub {
    my $j = ask(POST => '/v2/sandboxes', { templateID => 'base',
        network => { allowPublicTraffic => JSON::PP::false } })->{json};
    my $traffic = 'E2B-Traffic-Access-Token';

    for my $case ([ 49999, '/contexts', 401 ],
                  [ 49999, '/contexts', 401, $traffic => 'x' ],
                  [ 49999, '/contexts', 401,
                    $traffic => $j->{envdAccessToken} ],
                  [ 49999, '/contexts', 200,
                    $traffic => $j->{trafficAccessToken} ],
                  [ 49999, '/contexts', 200,
                    'X-Access-Token' => $j->{envdAccessToken} ],
                  [ 49999, '/contexts', 401,
                    $traffic => $j->{trafficAccessToken},
                    'X-Access-Token' => $j->{trafficAccessToken} ],
                  [ 49999, '/health', 401 ],
                  [ 49999, '/health', 200,
                    $traffic => $j->{trafficAccessToken} ],
                  [ 8000, '/', 403 ],
                  [ 8000, '/', 403,
                    'X-Access-Token' => $j->{envdAccessToken} ],
                  [ 8000, '/', 502,
                    $traffic => $j->{trafficAccessToken} ],
                  [ 49983, '/health', 204 ])
    {
        my ($at, $path, $status, %h) = @$case;
        my $res = ask(GET => $path, undef,
                      headers => { 'E2b-Sandbox-Id' => $j->{sandboxID},
                                   'E2b-Sandbox-Port' => $at, %h });

        is($res->{status}, $status, "$at, " . join ' ', keys %h)
            or diag($res->{body});
    }

    kill_id($j->{sandboxID});
};


subtest 'quotas, users, variables of the log' => sub {
    my %ann = (headers => { 'X-User' => 'ann' });

    refused(ask(GET => '/few/sandboxes'), 401, qr/user/, 'nobody');

    my @ids = map { ask(POST => '/few/v2/sandboxes', { templateID => 'tiny' },
                        %ann)->{json}{sandboxID} } 1 .. 2;
    my $seen = ask(GET => "/v1/sessions/$ids[0]")->{json};
    is("$seen->{tenant_id} $seen->{user_id}", 'few ann', 'whose they are');

    is(scalar @{ ask(GET => '/few/v2/sandboxes', undef,
                     headers => { 'X-User' => 'bob' })->{json} }, 0,
       'another user has none');
    refused(ask(GET => "/sandboxes/$ids[0]"), 404, qr/not found/,
            'nor another tenant');

    my $full;

    for (1 .. 40) {
        $full = ask(POST => '/few/v2/sandboxes', { templateID => 'tiny' },
                    %ann);
        last if $full->{status} != 201;
        push @ids, $full->{json}{sandboxID};
    }

    refused($full, 429, qr/session/, 'too many');
    ok(!exists $full->{headers}{'retry-after'}, 'and no time to come back');
    is(scalar @ids, 8, 'the quota is that of the configuration');

    my $log = SandboxTest::slurp($t->prefix . '/logs/access.log');
    like($log, qr/"tenant":"few","user":"ann".*$ids[0]|$ids[0].*"few"/,
         'the log tells whose a sandbox is');

    ask(DELETE => "/few/sandboxes/$_", undef, %ann) for @ids;
};


$t->finish;
done_testing();
