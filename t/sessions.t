#!/usr/bin/perl

# /sessions and the service's own routes: making, finding, listing and ending
# sessions, and what is said to requests that are wrong.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";

use JSON::PP ();
use Test::More;
use Time::Local qw(timegm);
use SandboxTest::More;

# The broker's own limit of open files is part of what it can give.

system('prlimit', '--pid', $$, '--nofile=20000:20000');

my $t = server(reuseport => 1, worker_header => 1);

my ($true, $false) = (JSON::PP::true, JSON::PP::false);
my $unknown = 'i' . 'z' x 25;

sub seconds {
    my ($y, $mo, $d, $h, $mi, $s, $f) = $_[0] =~
        /^(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(\.\d+)?Z$/
        or return 0;

    return timegm($s, $mi, $h, $d, $mo - 1, $y) + ($f // 0);
}

sub refused {
    my ($name, $status, $code, $detail, $json) = @_;

    local $Test::Builder::Level = $Test::Builder::Level + 1;

    if (ref $json) {
        $json = { tenant_id => 'refused', user_id => 'alice', %$json };
    }

    return is_problem(call('POST', '/sessions', json => $json), $status,
                      $code, $name, $detail);
}


subtest 'a session has every field, and no other' => sub {
    my $res = create({ metadata => { team => 'x' } });
    my $s = $res->{json};

    is($res->{status}, 201, 'POST: 201');
    like($res->{headers}{'content-type'}, qr{^application/json\b}, 'JSON');
    like($res->{headers}{'x-request-id'}, qr/^[0-9a-f]{32}$/, 'X-Request-ID');
    like($s->{session_id}, qr/^i[a-z0-9]{20,40}$/, 'session_id');
    is($res->{headers}{location}, "/v1/sessions/$s->{session_id}", 'Location');

    is(join(' ', sort keys %$s),
       'capabilities created_at enforcement expires_at isolated metadata '
       . 'network resources session_id status template tenant_id user_id '
       . 'workspace', 'its names');

    is("$s->{tenant_id} $s->{user_id} $s->{template}", 'acme-corp alice base',
       'whose it is, and of what template');
    is("$s->{status} $s->{network} $s->{workspace}",
       'running none /home/user', 'status, network, workspace');
    ok(JSON::PP::is_bool($s->{isolated}) && $s->{isolated}, 'isolated');
    is_deeply($s->{metadata}, { team => 'x' }, 'metadata');
    is(join(' ', sort @{ $s->{capabilities} }), 'code files shell',
       'capabilities');

    cmp_ok(abs(seconds($s->{created_at}) - time), '<', 5, 'created_at');
    cmp_ok(abs(seconds($s->{expires_at}) - seconds($s->{created_at}) - 300),
           '<', 0.1, 'expires_at: the default lifetime');

    my %r = %{ $s->{resources} };
    is("$r{memory} $r{cpus} $r{processes} $r{disk}",
       join(' ', 512 << 20, 1, 128,
            $s->{enforcement}{disk} eq 'tmpfs' ? 256 << 20 : 1 << 30),
       'resources: the defaults');

    my %words = map { $_ => 1 } 'cgroup v2', 'cgroup v1', 'rlimit', 'tmpfs',
                'project quota', 'image', 'poll', 'filter', 'none';
    my %e = %{ $s->{enforcement} };

    for my $k (sort keys %e) {
        next if JSON::PP::is_bool($e{$k});
        ok($words{ $e{$k} }, "enforcement.$k is $e{$k}");
    }

    ok(JSON::PP::is_bool($e{seccomp}) && $e{seccomp}, 'enforcement.seccomp');
    like("$e{memory} $e{cpus} $e{processes} $e{disk}",
         qr/^(cgroup v[12]) \1 \1 (?:tmpfs|image)$/, 'what the limits are kept by');

    $res = call('GET', "/sessions/$s->{session_id}");
    is($res->{status}, 200, 'GET: 200');

    my $usage = delete $res->{json}{usage};
    is_deeply($res->{json}, $s, 'the same session');
    is(join(' ', sort keys %$usage),
       'connections cpu_seconds disk inodes memory memory_cache memory_peak'
       . ' network_received network_refused network_sent processes',
       'and its usage');

    my %before = %$usage;
    run($s->{session_id},
        'head -c 20000000 /dev/zero > f; seq 300000 | md5sum;'
                          . ' mkdir m; touch m/1 m/2; sleep 60 & sleep 60 &');
    $usage = call('GET', "/sessions/$s->{session_id}")->{json}{usage};

    cmp_ok($usage->{disk} - $before{disk}, '>=', 20_000_000, 'usage.disk');
    cmp_ok($usage->{disk} - $before{disk}, '<', 22_000_000,
           'no more than is there');
    cmp_ok($usage->{inodes} - $before{inodes}, '>=', 4, 'usage.inodes');
    cmp_ok($usage->{memory}, '>=', 20_000_000, 'usage.memory');
    cmp_ok($usage->{memory_peak}, '>=', $usage->{memory}, 'usage.memory_peak');
    cmp_ok($usage->{cpu_seconds}, '>', $before{cpu_seconds},
           'usage.cpu_seconds');
    cmp_ok($usage->{processes}, '>=', 2, 'usage.processes');

    is(destroy($s->{session_id})->{status}, 204, 'DELETE: 204');
};


subtest 'who it is for' => sub {
    refused('no tenant', 400, 'E3001', qr{/tenant_id}, '{"user_id":"a"}');
    refused('no user', 400, 'E3001', qr{/user_id}, '{"tenant_id":"a"}');
    refused('an empty object', 400, 'E3001', qr{/tenant_id|/user_id}, '{}');

    my @bad = ('', '-a', '.a', '_a', '@a', 'a b', 'a/b', "a\n", 'a' x 129,
               "\x{e9}", 'a,b', "a\0", 'a"', 'a;b', 5, undef, [], {}, $true);

    for my $k (qw(tenant_id user_id)) {
        for my $v (@bad) {
            refused("$k: " . (json_of($v) =~ /^(.{0,20})/)[0], 400, 'E3001',
                    qr{/$k}, { $k => $v });
        }

        for my $v ('a', '0', 'A0._@:+-z', 'x' x 128) {
            my $id = create_ok({ $k => $v });
            is(call('GET', "/sessions/$id")->{json}{$k}, $v, "$k: $v");
            destroy($id);
        }
    }
};


subtest 'requests are strict, and their errors point at the field' => sub {
    my @cases = (
        [ 'an unknown field', qr{/foo}, { foo => 1 } ],
        [ 'one in the manifest', qr{/manifest/foo},
          { manifest => { foo => 1 } } ],
        [ 'one in the resources', qr{/manifest/resources/ram},
          { manifest => { resources => { ram => 1 } } } ],
        [ 'one in the filesystem', qr{/manifest/filesystem/x},
          { manifest => { filesystem => { x => [] } } } ],
        [ 'a string for seconds', qr{/timeout_s}, { timeout_s => '300' } ],
        [ 'zero seconds', qr{/timeout_s}, { timeout_s => 0 } ],
        [ 'negative seconds', qr{/timeout_s}, { timeout_s => -5 } ],
        [ 'an array for an object', qr{/manifest}, { manifest => [] } ],
        [ 'a string for an object', qr{/env}, { env => 'A=1' } ],
        [ 'a number in env', qr{/env/A}, { env => { A => 1 } } ],
        [ 'null in env', qr{/env/A}, { env => { A => undef } } ],
        [ 'an object in metadata', qr{/metadata/k},
          { metadata => { k => {} } } ],
        [ 'a name with "/" and "~"', qr{/metadata/a~1b~0c},
          { metadata => { 'a/b~c' => 5 } } ],
        [ 'a number for the template', qr{/template}, { template => 7 } ],
        [ 'a word for a size', qr{/manifest/resources/memory},
          { manifest => { resources => { memory => 'lots' } } } ],
        [ 'half a process', qr{/manifest/resources/processes},
          { manifest => { resources => { processes => 10.5 } } } ],
        [ 'a string for processes', qr{/manifest/resources/processes},
          { manifest => { resources => { processes => '10' } } } ],
        [ 'an unknown capability', qr{/manifest/capabilities/0},
          { manifest => { capabilities => [ 'fly' ] } } ],
        [ 'a word for on_timeout', qr{/manifest/on_timeout},
          { manifest => { on_timeout => 'sing' } } ],
        [ 'a word for a boolean', qr{/manifest/require_isolation},
          { manifest => { require_isolation => 'yes' } } ],
        [ 'a word for network', qr{/manifest/network},
          { manifest => { network => 'all' } } ],
    );

    refused($_->[0], 400, 'E3001', $_->[1], $_->[2]) for @cases;

    my $ids = '"tenant_id":"refused","user_id":"u"';

    refused(@$_) for
        [ 'a duplicate', 400, 'E3001', qr{/user_id},
          "{$ids,\"user_id\":\"v\"}" ],
        [ 'one in env', 400, 'E3001', qr{/env/A},
          "{$ids,\"env\":{\"A\":\"1\",\"A\":\"2\"}}" ],
        [ 'one written by an escape', 400, 'E3001', qr{/env/A},
          "{$ids,\"env\":{\"A\":\"1\",\"\\u0041\":\"2\"}}" ],
        [ 'no object', 400, 'E3001', undef, '[]' ],
        [ 'a string', 400, 'E3001', undef, '"x"' ],
        [ 'null', 400, 'E3001', undef, 'null' ],
        [ 'half a document', 400, 'E3001', undef, "{$ids" ],
        [ 'two of them', 400, 'E3001', undef, "{$ids}{$ids}" ],
        [ 'a comma too many', 400, 'E3001', undef, "{$ids,}" ],
        [ 'a comment', 400, 'E3001', undef, "{$ids /* x */}" ],
        [ 'single quotes', 400, 'E3001', undef, "{'tenant_id':'a'}" ],
        [ 'NaN', 400, 'E3001', undef, "{$ids,\"timeout_s\":NaN}" ],
        [ 'a huge exponent', 400, 'E3001', undef,
          "{$ids,\"timeout_s\":1e999}" ],
        [ 'a leading zero', 400, 'E3001', undef, "{$ids,\"timeout_s\":01}" ],
        [ 'invalid UTF-8', 400, 'E3001', undef,
          "{$ids,\"metadata\":{\"a\":\"\xff\"}}" ],
        [ 'an overlong form', 400, 'E3001', undef,
          "{$ids,\"metadata\":{\"a\":\"\xc0\xaf\"}}" ],
        [ 'a raw control character', 400, 'E3001', undef,
          "{$ids,\"metadata\":{\"a\":\"\n\"}}" ],
        [ 'a depth of a thousand', 400, 'E3001', undef,
          "{$ids,\"manifest\":" . '[' x 1000 . ']' x 1000 . '}' ],
        [ 'a depth of 100,000', 400, 'E3001', undef, '[' x 100_000 ],
        [ 'an empty body', 400, 'E3001', undef, '' ];

    is_deeply(call('GET', '/sessions?tenant_id=refused')->{json}{sessions},
              [], 'nothing was created by any of them');
};


subtest 'metadata' => sub {
    my %most = map { ("key$_" => 'v' x 10) } 1 .. 64;
    my $id = create_ok({ metadata => \%most });
    is_deeply(call('GET', "/sessions/$id")->{json}{metadata}, \%most,
              '64 pairs');
    destroy($id);

    refused('65 pairs', 400, 'E3001', qr{/metadata},
            { metadata => { %most, more => '' } });
    refused('a key of 129 bytes', 400, 'E3001', qr{/metadata},
            { metadata => { 'k' x 129 => '' } });
    refused('a value of 1,025 bytes', 400, 'E3001', qr{/metadata/k},
            { metadata => { k => 'v' x 1025 } });
    refused('513 characters of two bytes', 400, 'E3001', qr{/metadata/k},
            { metadata => { k => "\x{e9}" x 513 } });

    my %odd = ('k' x 128 => 'v' x 1024, "\x{6d4b}" => "\x{1f923}\x{e9}",
               'quote"' => "a\\\"b\n\t\x01/", 'n' => "\x{e9}" x 512,
               'nul' => "a\0b", '' => 'an empty key', 'sp ace' => '');
    $id = create({ metadata => \%odd });

    if ($id->{status} != 201) {
        delete @odd{'nul', ''};
        $id = create({ metadata => \%odd });
    }

    is($id->{status}, 201, 'odd ones') or diag($id->{body});
    is_deeply($id->{json}{metadata}, \%odd, 'come back as they were');
    destroy($id->{json}{session_id});
};


subtest 'the environment of a session' => sub {
    my %env = (A => '1', UTF => "\x{6d4b}", EMPTY => '', LINES2 => "a\nb",
               'ODD.NAME-1' => 'x', PATH2 => '/x:/y=z');
    my $id = create_ok({ env => \%env });
    my $got = run($id, [ 'python3', '-c', 'import os, json, sys
print(json.dumps({k: os.environ.get(k) for k in sys.argv[1:]}))',
        sort keys %env ])->{stdout};
    utf8::encode($got);
    is_deeply(eval { JSON::PP->new->utf8->decode($got) }, \%env,
              'is there in a command');
    destroy($id);

    refused('"=" in a name', 400, 'E3001', qr{/env/A=B},
            { env => { 'A=B' => '' } });
    refused('an empty name', 400, 'E3001', qr{/env}, { env => { '' => '' } });
    refused('NUL in a name', 400, 'E3001', qr{/env},
            { env => { "A\0" => '' } });
    refused('NUL in a value', 400, 'E3001', qr{/env/A},
            { env => { A => "\0" } });
    refused('300,000 bytes', 400, 'E3001', qr{/env},
            { env => { map { ("V$_" => 'x' x 1000) } 1 .. 300 } });
};


subtest 'what a session may ask for' => sub {
    my %max = (memory => '4097MB', cpus => 4.001, processes => 4097,
               open_files => 65537, stack => '1025MB', disk => '4097MB',
               inodes => 1_000_001, max_output_bytes => '65MB');

    for my $k (sort keys %max) {
        refused("$k above the cap", 400, 'E2002', qr/\b$k\b/,
                { manifest => { resources => { $k => $max{$k} } } });
    }

    refused('timeout_s above the cap', 400, 'E2002', qr/timeout_s.*86400/,
            { timeout_s => 86401 });
    refused('the cap is named', 400, 'E2002', qr/4294967296|4 ?GB/,
            { manifest => { resources => { memory => '5GB' } } });

    my %min = (memory => '15MB', processes => 7, open_files => 15,
               disk => '1023KB');

    for my $k (sort keys %min) {
        my $res = create({ tenant_id => 'refused',
                           manifest => { resources => { $k => $min{$k} } } });
        is($res->{status}, 400, "$k below the minimum");
        like($res->{json}{code} // '', qr/^E(?:2002|3001)$/, 'code');
        like($res->{json}{detail} // '', qr/$k/, 'names it');
    }

    refused('more open files than the broker has itself', 400, 'E2002',
            qr/open_files/,
            { manifest => { resources => { open_files => 20001 } } });

    my $id = create_ok({ manifest => { resources => {
        memory => '64MiB', cpus => 0.5, cpu_seconds => 60, processes => 8,
        max_file_size => '1MB', open_files => 16, stack => '1MB',
        disk => 1 << 20, inodes => 1000, exec_timeout_s => 0.5,
        max_output_bytes => '512KB' } } });
    my $r = call('GET', "/sessions/$id")->{json}{resources};
    is("$r->{memory} $r->{cpus} $r->{processes} $r->{disk}",
       join(' ', 64 << 20, 0.5, 8, 1 << 20), 'the smallest is given');
    is(run($id, 'echo ok')->{stdout}, "ok\n", 'and works');
    is(run($id, 'sleep 5')->{reason}, 'timeout', 'with its exec_timeout_s');
    destroy($id);

    refused('network: true', 400, 'E2002', qr/network/,
            { manifest => { network => $true } });
    refused('hosts', 400, 'E2002', qr/network/,
            { manifest => { network => { allow => [ 'index.org' ] } } });
    refused('binds', 400, 'E2002', qr/binds/,
            { manifest => { filesystem => { binds => [ 'models' ] } } });

    $id = create_ok({ manifest => {
        network => $false, resources => {},
            capabilities => [ 'shell', 'files' ],
        filesystem => { binds => [], writable => [], deny_write => [],
                        deny_read => [] },
        memory_strategy => 'auto', require_isolation => $true,
        on_timeout => 'destroy', idle_timeout_s => undef } });
    is(join(' ', sort @{ call('GET', "/sessions/$id")->{json}{capabilities} }),
       'files shell', 'a manifest with every field');
    destroy($id);

    is_deeply(call('GET', '/sessions?tenant_id=refused')->{json}{sessions},
              [], 'nothing was created by what was refused');
};


subtest 'templates' => sub {
    for my $name (qw(base code-interpreter-v1)) {
        my $id = create_ok({ template => $name });
        is(run($id, 'id -un')->{stdout}, "user\n", $name);
        destroy($id);
    }

    for my $name ('nope', '../etc', 'a/b', '', '.', '..', 'x' x 100, "a\0") {
        my $res = create({ template => $name, tenant_id => 'refused' });
        (my $show = $name) =~ s/\0/\\0/;
        ok($res->{status} == 404 && $res->{json}{code} eq 'E2001'
           || $res->{status} == 400 && $res->{json}{code} eq 'E3001',
           "no template \"$show\"") or diag($res->{body});
    }

    is_problem(create({ template => 'nope' }), 404, 'E2001', 'E2001');
    like(call('GET', '/templates')->{body}, qr/"base"/, 'GET /templates');
};


subtest 'a session ends at its time' => sub {
    my $res = create({ timeout_s => 1.5 });
    my $s = $res->{json};
    my $id = $s->{session_id};

    cmp_ok(abs(seconds($s->{expires_at}) - seconds($s->{created_at}) - 1.5),
           '<', 0.1, 'fractions of a second');
    run($id, "sleep 300.$$ &");
    ok(until_true(sub { host_pids("300.$$") }, 5), 'something runs in it');

    my $gone = until_true(sub {
        my $r = call('GET', "/sessions/$id");
        return $r->{status} == 404 && $r;
    }, 8);
    my $at = time;

    is_problem($gone, 404, 'E2009', 'it is gone');
    is($gone->{json}{ended}, 'expired', 'ended');
    cmp_ok(abs(seconds($gone->{json}{ended_at}) - seconds($s->{expires_at})),
           '<', 3, 'ended_at');
    cmp_ok($at, '>=', seconds($s->{expires_at}) - 0.1, 'not before its time');
    ok(until_true(sub { !host_pids("300.$$") }, 5), 'what ran is dead');

    is_problem(exec_call($id, 'true'), 404, 'E2009', 'exec');
    is_problem(put($id, 'x', 'y'), 404, 'E2009', 'PUT');
    # as long as something of it is left, its end is waited for

    is_problem(until_true(sub {
                   my $r = destroy($id);
                   return $r->{status} != 204 && $r;
               }), 404, 'E2009', 'DELETE');
};


subtest 'after its end the owner is told why' => sub {
    my $id = create_ok();
    is(destroy($id)->{status}, 204, 'DELETE');

    my $res = destroy($id);
    is_problem($res, 404, 'E2009', 'a second DELETE');
    is($res->{json}{ended}, 'destroyed', 'ended');
    cmp_ok(abs(seconds($res->{json}{ended_at}) - time), '<', 5, 'ended_at');

    $res = call('GET', "/sessions/$id");
    is($res->{json}{ended}, 'destroyed', 'GET');
    is($res->{json}{detail}, 'the session has ended', 'in words');
    is(exec_call($id, 'true')->{json}{ended}, 'destroyed', 'exec');

    $res = call('GET', "/sessions/$unknown");
    is_problem($res, 404, 'E2009', 'one that never was');
    ok(!exists $res->{json}{ended}, 'has no end');
    is($res->{json}{detail}, 'there is no such session', 'nor a word of one');

    is_problem(call('GET', "/sessions/$_"), 404, 'E2009', "no id: $_")
        for 'x', 'I' . 'a' x 25, 'i' . 'a' x 60, 'i..', '%2e%2e',
            'i' . 'A' x 25, '-';

    $id = create_ok();
    my @jobs = map { async { my $r = destroy($id); $r->{status} } } 1 .. 4;
    my @said = sort map { $_->get } @jobs;
    is($said[0], 204, 'of four who destroy it at once one is told 204');
    is(join(' ', grep { $_ != 204 && $_ != 404 } @said), '',
       'the others the same, or that it is gone');
};


subtest 'Idempotency-Key' => sub {
    my $key = "key-$$";
    my $make = sub {
        my ($k, %f) = @_;
        return create(\%f, headers => { 'Idempotency-Key' => $k });
    };

    my @jobs = map { async { my $r = $make->($key, metadata => { n => '1' });
                             [ $r->{status}, $r->{json}{session_id} ] } }
               1 .. 6;
    my @got = map { $_->get } @jobs;
    my %ids = map { $_->[1] => 1 } @got;

    is(scalar keys %ids, 1, 'six at once make one session');
    is(join(' ', sort map { $_->[0] } @got), '200 200 200 200 200 201',
       'one of them says 201');

    my ($id) = keys %ids;
    my $res = $make->($key, metadata => { n => '1' });
    is($res->{status}, 200, 'again: 200');
    is($res->{json}{session_id}, $id, 'the same');

    is_problem($make->($key, metadata => { n => '2' }), 409, 'E2011',
               'another body');
    my $other = $make->($key, tenant_id => 'other-corp');
    is($other->{status}, 201, "another tenant's key is another");
    destroy($other->{json}{session_id});

    $other = $make->("$key-2", metadata => { n => '1' });
    is($other->{status}, 201, 'another key, another session');
    isnt($other->{json}{session_id}, $id, 'of its own');
    destroy($other->{json}{session_id});

    is(destroy($id)->{status}, 204, 'destroyed');
    $res = $make->($key, metadata => { n => '1' });
    is($res->{status}, 201, 'the key is free with its session');
    isnt($res->{json}{session_id}, $id, 'a fresh one');
    is(run($res->{json}{session_id}, 'echo ok')->{stdout}, "ok\n",
       'that works at once');
    destroy($res->{json}{session_id});

    is_problem($make->('k' x 129), 400, 'E3001', 'a key of 129 bytes');
    is($make->("a\x01b")->{status}, 400, 'a control character in it');
    $res = $make->('k' x 128);
    is($res->{status}, 201, 'one of 128');
    destroy($res->{json}{session_id});
};


subtest 'lists' => sub {
    my @ids = map {
        create_ok({ tenant_id => 'list-corp',
                    user_id => $_ % 2 ? 'odd' : 'even',
                    metadata => { n => "$_",
                                  'third' => $_ % 3 ? 'no' : 'yes' },
                    ($_ == 12 ? (template => 'code-interpreter-v1') : ()) })
    } 1 .. 12;

    my $list = sub {
        my $res = call('GET', '/sessions?' . join '&', @_);
        return "status $res->{status}" if $res->{status} != 200;
        return join ' ', map { $_->{session_id} } @{ $res->{json}{sessions} };
    };

    my @mine = 'tenant_id=list-corp';

    is($list->(@mine), join(' ', reverse @ids), 'newest first');
    is($list->(@mine, 'user_id=odd'),
       join(' ', reverse @ids[0, 2, 4, 6, 8, 10]),
       'user_id');
    is($list->(@mine, 'metadata.third=yes'),
       join(' ', reverse @ids[2, 5, 8, 11]),
       'metadata');
    is($list->(@mine, 'metadata.third=yes', 'metadata.n=6'), $ids[5],
       'both must be met');
    is($list->(@mine, 'metadata.absent=x'), '', 'a key that none has');
    is($list->(@mine, 'status=running'), join(' ', reverse @ids), 'status');
    is($list->(@mine, 'status=paused'), '', 'another status');
    is($list->('tenant_id=nobody'), '', 'another tenant');
    is($list->(@mine, 'limit=2'), "$ids[11] $ids[10]", 'limit');
    like($list->(@mine, 'template=base'), qr/\Q$ids[0]\E/, 'template');
    is($list->(@mine, 'template=other'), '', 'another template');

    my $all = call('GET', '/sessions?tenant_id=list-corp')->{json};
    ok(exists $all->{next_cursor} && !defined $all->{next_cursor},
       'a whole list has no cursor');
    is(join(' ', sort keys %{ $all->{sessions}[0] }),
       join(' ', sort keys %{ call('GET', "/sessions/$ids[0]")->{json} })
       =~ s/ usage//r, 'its sessions are whole');

    # pages while sessions come and go

    my (%seen, @order, $cursor, @new);
    my %gone;

    for my $page (1 .. 20) {
        my $j = call('GET', '/sessions?tenant_id=list-corp&limit=3'
                     . ($cursor ? '&cursor=' . enc($cursor) : ''))->{json};
        cmp_ok(scalar @{ $j->{sessions} }, '<=', 3, 'a page is no longer')
            if $page == 1;

        for (@{ $j->{sessions} }) {
            $seen{ $_->{session_id} }++;
            push @order, $_->{session_id};
        }

        $cursor = $j->{next_cursor} // last;

        push @new, create_ok({ tenant_id => 'list-corp' });

        if ($page == 1) {
            for my $i (10, 3) {
                destroy($ids[$i]);
                $gone{ $ids[$i] } = 1;
            }
        }
    }

    is(join(' ', grep { ($seen{$_} // 0) != 1 && !$gone{$_} } @ids), '',
       'each that stayed is there once');
    is(join(' ', grep { $seen{$_} > 1 } keys %seen), '',
       'none is there twice');
    ok(!$seen{ $ids[3] }, 'one destroyed ahead of the cursor is not there');

    my %at;
    @at{@ids} = 0 .. $#ids;
    my @places = map { $at{$_} } grep { defined $at{$_} } @order;
    is("@places", join(' ', sort { $b <=> $a } @places),
       'newest first throughout');

    is_problem(call('GET', "/sessions?$_"), 400, 'E3001', $_)
        for 'limit=0', 'limit=-1', 'limit=x', 'limit=1000000', 'limit=',
            'cursor=nonsense', 'cursor=%ff', 'status=dead',
            'tenant_id=a%20b';

    destroy($_) for grep { !$gone{$_} } @ids, @new;
    is($list->(@mine), '', 'all are gone');
};


subtest 'media types, methods, routes' => sub {
    my $body = '{"tenant_id":"refused","user_id":"a"}';
    my $post = sub {
        my ($type) = @_;
        my $s = open_request('POST', '/sessions', body => $body,
                             headers => { 'Content-Type' => $type });
        return read_response($s);
    };

    is_problem($post->($_), 415, 'E3011', $_ // 'none at all')
        for 'text/plain', 'application/x-www-form-urlencoded',
            'multipart/form-data', 'application/jsonx', 'application/xml',
            'application/json-patch+json', undef;

    for my $type ('application/json; charset=utf-8', 'Application/JSON') {
        my $res = $post->($type);
        is($res->{status}, 201, $type);
        destroy($res->{json}{session_id});
    }

    my $id = create_ok();
    my %allow = ('/sessions' => 'GET HEAD POST',
                 "/sessions/$id" => 'DELETE GET HEAD',
                 "/sessions/$id/exec" => 'POST', '/health' => 'GET HEAD',
                 '/doctor' => 'GET HEAD', '/templates' => 'GET HEAD',
                 "/sessions/$id/files" => 'DELETE GET HEAD PUT');

    for my $path (sort keys %allow) {
        for my $method (qw(OPTIONS PATCH PUT)) {
            my $res = call($method, $path);

            next if $method eq 'PATCH' && $path eq "/sessions/$id"
                    && $res->{status} != 405;
            next if $method eq 'PUT' && $path =~ m{/files$};

            is_problem($res, 405, 'E3010', "$method $path");
            is(join(' ', grep { $_ ne 'PATCH' } sort split /,\s*/,
                         $res->{headers}{allow} // ''),
               $allow{$path}, 'Allow');
        }
    }

    is_problem(call('GET', $_), 404, 'E3009', $_)
        for '/nope', '/sessionsx', "/sessions/$id/nope", '/', '/health/x',
            "/sessions/$id/exec/x";

    is(call('HEAD', '/health')->{status}, 200, 'HEAD');
    destroy($id);
};


subtest 'bodies have a limit' => sub {
    my $q = open_request('POST', '/sessions',
        headers => { 'Content-Type' => 'application/json',
                     'Content-Length' => (4 << 20) + 1 });
    is_problem(read_response($q), 413, 'E4005', 'by Content-Length, at once');
    close $q;

    my $chunk = sprintf("%x\r\n%s\r\n", 1 << 16, ' ' x (1 << 16));
    $q = open_request('POST', '/sessions',
        headers => { 'Content-Type' => 'application/json',
                     'Transfer-Encoding' => 'chunked' },
        body => $chunk x 66);
    is_problem(read_response($q), 413, 'E4005', 'by counting chunks');
    close $q;

    my $json = '{"tenant_id":"acme-corp","user_id":"alice"}';
    $q = open_request('POST', '/sessions',
        headers => { 'Content-Type' => 'application/json',
                     'Transfer-Encoding' => 'chunked' },
        body => join('', map { sprintf "%x\r\n%s\r\n", length, $_ }
                     $json =~ /(.{1,5})/g) . "0\r\n\r\n");
    my $res = read_response($q);
    is($res->{status}, 201, 'a small one in chunks');
    destroy($res->{json}{session_id});
};


subtest 'the service tells of itself' => sub {
    my $n = call('GET', '/health')->{json}{sessions};
    my $id = create_ok();
    my $res = call('GET', '/health');

    is($res->{status}, 200, 'GET /health');
    is($res->{json}{status}, 'ok', 'status');
    like($res->{json}{version}, qr/^\d+\.\d+/, 'version');
    is($res->{json}{sessions}, $n + 1, 'sessions');
    destroy($id);
    is(call('GET', '/health')->{json}{sessions}, $n, 'and one less');

    $res = call('GET', '/doctor');
    is($res->{status}, 200, 'GET /doctor');
    my @checks = @{ $res->{json}{checks} || [] };
    cmp_ok(scalar @checks, '>=', 6, 'checks');
    is(scalar(grep { !JSON::PP::is_bool($_->{ok}) } @checks), 0,
       'each with "ok"');
    is(join(' ', map { $_->{name} } grep { $_->{required} && !$_->{ok} }
                 @checks), '', 'all that is required is well here');
    ok($res->{json}{ok}, 'which is what ok means');

    $res = call('GET', '/capabilities');
    is($res->{status}, 200, 'GET /capabilities');
    for my $k (qw(memory cpus processes disk seccomp)) {
        ok($res->{json}{$k}{enforced}, "$k is enforced");
        like($res->{json}{$k}{by} // '', qr/\w/, 'and by what');
    }

    $res = call('GET', '/health', headers => { 'X-Request-ID' => 'mine' });
    isnt($res->{headers}{'x-request-id'}, 'mine', 'a request id is its own');
    isnt(call('GET', '/health')->{headers}{'x-request-id'},
         $res->{headers}{'x-request-id'}, 'for each request');
    is($res->{headers}{'access-control-allow-origin'}, undef, 'no CORS');
};


subtest 'any worker serves any session' => sub {
    my $id = create_ok();
    my %by;

    until_true(sub {
        my $res = exec_call($id, 'echo here');
        my $worker = $res->{headers}{'x-worker'} // '?';
        $by{$worker}{ $res->{json}{stdout} // '' }++;
        return keys %by >= 2;
    }, 10);

    is(scalar keys %by, 2, 'two workers have answered');
    is_deeply([ map { join ',', keys %$_ } values %by ],
              [ "here\n", "here\n" ],
              'both ran its commands');

    put($id, 'shared', 'x');
    my %got;
    until_true(sub {
        my $res = get($id, 'shared');
        $got{ $res->{headers}{'x-worker'} // '?' }{ $res->{body} }++;
        return keys %got >= 2;
    }, 10);
    is_deeply([ map { join ',', keys %$_ } values %got ], [ 'x', 'x' ],
              'both read its files');
    destroy($id);
};


subtest 'forty sessions at once are forty' => sub {
    my @jobs = map {
        async {
            my @ids = map { create_ok({ tenant_id => 'many' }) } 1 .. 5;
            my @out = map { run($ids[$_], "echo $_; ls -A /tmp | wc -l;"
                                          . " touch /tmp/$_")->{stdout} }
                      0 .. 4;
            return [ \@ids, \@out ];
        }
    } 1 .. 8;
    my @got = map { $_->get(60) // [ [], [] ] } @jobs;
    my %ids = map { $_ => 1 } map { @{ $_->[0] } } @got;

    is(scalar keys %ids, 40, 'each with an id of its own');
    is_deeply([ map { $_->[1] } @got ],
              [ map { [ map { "$_\n0\n" } 0 .. 4 ] } 1 .. 8 ],
              'each with its own files');

    my $t0 = time;
    my @gone = map { my $part = $_;
                     async { join ' ', map { destroy($_)->{status} } @$part } }
               map { $_->[0] } @got;
    is_deeply([ map { $_->get(60) } @gone ], [ ('204 204 204 204 204') x 8 ],
              'all are destroyed');
};


$t->finish;
done_testing();
