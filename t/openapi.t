#!/usr/bin/perl

# docs/openapi.yaml against the server: every operation is called, and each
# answer must be what the document says in status, content type, headers and
# shape.  A status that is documented for an operation and never seen fails,
# unless %NOT_HERE tells why it cannot be provoked.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib", "$FindBin::Bin/lib/openapi";

use JSON::PP ();
use MIME::Base64 qw(encode_base64);
use Test::More;
use SandboxTest;

BEGIN {
    plan(skip_all => 'YAML::XS is not installed (libyaml-libyaml-perl)')
        if !eval { require YAML::XS };
}

use OpenAPICalls;
use OpenAPICode;

my $JSON = JSON::PP->new->utf8->canonical;

# By status, or by operation and status.
my %NOT_HERE = (
    'terminal 101' => 'is another protocol: t/terminal.t',
    'proxyPort 101' => 'is another protocol: t/ports.t',
    'proxyPort 429' => 'takes 256 connections: t/core/init-port.c',
    'proxyPort 504' => 'takes a program that is silent: t/ports.t',
    401 => 'takes an identity: t/routes.t',
    500 => 'only a failing machine gives it',
    'install 200' => 'takes a package manager: t/install-pip.t',
    'install 422' => 'takes a package manager: t/install-pip.t',
    'install 429' => 'takes as many commands as a session may have',
    'pauseSession 400' => 'takes a kernel that cannot freeze',
    'run 429' => 'takes a session that fills between two steps',
    'run 507' => 'takes a body longer than this server reads',
    map({ ("$_ 403" => 'takes a page of somebody else: t/routes.t') }
        qw(changeSettings setQuota removeQuota setUserQuota removeUserQuota
           destroyTenantSessions drain undrain)),
    map({ ("$_ 409" => 'takes a paused session: t/routes.t') }
        qw(listProcesses getProcess getOutput cancel terminal proxyPort
           install searchFiles runCode listContexts createContext
           deleteContext restartContext)),
    map({ ("$_ 429" => 'takes as much as a session may: t/code-contexts.t') }
        qw(runCode createContext deleteContext restartContext)),
    map {
        ("$_ 429" => 'takes a session whose file processes are all busy')
    } qw(listFiles uploadFileByQuery deleteFileByQuery downloadFile
         uploadFile deleteFile statFile statFileByQuery listDirectory
         listDirectoryByQuery makeDirectory moveFile searchFiles packArchive
         packArchiveByQuery unpackArchive unpackArchiveByQuery watchFiles
         watchFilesByQuery)
);


# ---- the server ------------------------------------------------------------

my $net = "sandbox_template net { egress allow *; }\n";

$t = SandboxTest->new(http => $net, location => <<'CONF', server => <<'ADMIN')
            sandbox_max_json 64k;
            sandbox_max_upload 4m;
CONF
        location /admin/ {
            sandbox_max_json 64k;
            sandbox_api admin;
        }
        location /status/ {
            sandbox_api status;
        }
ADMIN
    ->start;


my %who = (tenant_id => 'acme-corp', user_id => 'alice');
my $unknown = 'i' . 'a' x 24;


subtest 'service' => sub {
    calls(health => 200, 'answers');
    calls(doctor => 200, 'answers');
    calls(capabilities => 200, 'answers');
    calls(templates => 200, 'answers');
};


my $id;
my %session;

subtest 'sessions' => sub {
    my $res = calls(createSession => 201, 'the least example',
                    json => example(createSession => 'least'));
    $id = $res->{json}{session_id} // die "no session\n";
    is($res->{headers}{location}, "/v1/sessions/$id", 'tells where it is');

    $res = calls(createSession => 201, 'the other example',
                 json => example(createSession => 'limited'));
    $session{limited} = $res->{json}{session_id};
    is($res->{json}{resources}{memory}, 128 << 20, 'has what it asked for');

    for my $only (qw(shell files code)) {
        $res = calls(createSession => 201, "only $only",
                     json => { %who, manifest => { capabilities => [ $only ] }
                             });
        $session{$only} = $res->{json}{session_id};
    }

    my %key = (headers => { 'Idempotency-Key' => 'once' });

    $res = calls(createSession => 201, 'with a key', %key,
                 json => { %who, metadata => { team => 'x' } });
    my $again = calls(createSession => 200, 'with the same key', %key,
                      json => { %who, metadata => { team => 'x' } });
    is($again->{json}{session_id}, $res->{json}{session_id},
       'gives the same session');
    calls(createSession => '409 E2011', 'with the key and another body', %key,
          json => { %who });

    calls(createSession => '404 E2001', 'no such template', valid => 1,
          json => { %who, template => 'nothing' });
    calls(createSession => '400 E2002', 'more than there may be', valid => 1,
          json => { %who, timeout_s => 1_000_000 });
    calls(createSession => '400 E2002', 'a network', valid => 1,
          json => { %who, manifest => { network => JSON::PP::true } });
    calls(createSession => '400 E3001', 'an unknown field',
          json => { %who, colour => 'red' });
    calls(createSession => '400 E3001', 'a required field is missing',
          json => { tenant_id => 'acme-corp' });
    calls(createSession => '413 E4005', 'a large body',
          json => { %who, env => { A => 'a' x 70_000 } });
    calls(createSession => '415 E3011', 'another type of body', json => '{}',
          headers => { 'Content-Type' => 'text/plain' });

    $res = calls(listSessions => 200, 'all of them');
    cmp_ok(scalar @{ $res->{json}{sessions} }, '>=', 5, 'are there');

    $res = calls(listSessions => 200, 'by every filter',
                 query => { tenant_id => 'acme-corp', user_id => 'alice',
                            status => 'running', template => 'base',
                            'metadata.team' => 'x', limit => 10 });
    is(scalar @{ $res->{json}{sessions} }, 1, 'finds the one');

    $res = calls(listSessions => 200, 'a page', query => { limit => 1 });
    ok(defined $res->{json}{next_cursor}, 'that is not the last');
    calls(listSessions => 200, 'the next page',
          query => { limit => 1, cursor => $res->{json}{next_cursor} });
    calls(listSessions => '400 E3001', 'a limit that cannot be',
          query => { limit => 0 });

    calls(getSession => 200, 'with its usage', session_id => $id);

    SKIP: {
        my $by = calls(capabilities => 200, 'with what can be granted')
                 ->{json}{network_grants};

        skip("no network can be granted here: $by->{by}", 8)
            if !$by->{enforced};

        my $reaches = calls(createSession => 201, 'with a network',
                            json => { %who, template => 'net', manifest => {
                                network => { allow => [ '*:443' ],
                                             deny => [ 'a.org' ] } } })
                      ->{json}{session_id};

        $res = calls(getSession => 200, 'tells its rules',
                     session_id => $reaches);
        is_deeply($res->{json}{network_rules},
                  { allow => [ '*:443' ], deny => [ 'a.org' ] }, 'all of them');
        $res = calls(patchSession => 200, 'takes others',
                     session_id => $reaches,
                     json => example(patchSession => 'network'));
        is($res->{json}{network}, 'restricted', 'which is told');
        $res = calls(patchSession => 200, 'or all', session_id => $reaches,
                     json => { network => JSON::PP::true });
        is($res->{json}{network}, 'open', 'of them');
        calls(destroySession => 204, 'is gone', session_id => $reaches);
    }

    calls(getSession => '404 E2009', 'one that never was',
          session_id => $unknown);

    $res = calls(createSession => 201, 'one to be destroyed',
                 json => { %who });
    my $gone = $res->{json}{session_id};

    calls(patchSession => 200, 'both', session_id => $gone,
          json => example(patchSession => 'both'));
    calls(patchSession => '400 E2002', 'a network', session_id => $gone,
          valid => 1, json => example(patchSession => 'network'));
    calls(patchSession => '400 E2002', 'too much', session_id => $gone,
          valid => 1, json => { timeout_s => 1_000_000 });
    calls(patchSession => '400 E3001', 'no number', session_id => $gone,
          json => { timeout_s => 'x' });
    calls(patchSession => '404 E2009', 'one that never was',
          session_id => $unknown, json => {});
    calls(patchSession => '413 E4005', 'a large body', session_id => $gone,
          json => { metadata => { map { ("k$_" => 'v' x 1024) } 1 .. 70 } });
    calls(patchSession => '415 E3011', 'another type', session_id => $gone,
          json => '{}', headers => { 'Content-Type' => 'text/plain' });

    calls(pauseSession => 200, 'frozen', session_id => $gone);
    calls(pauseSession => '404 E2009', 'one that never was',
          session_id => $unknown);
    calls(exec => '409 E2010', 'of a paused one', session_id => $gone,
          valid => 1, json => { cmd => 'true' });
    calls(listFiles => '409 E2010', 'of a paused one', session_id => $gone);
    calls(resumeSession => 200, 'thawed', session_id => $gone);
    calls(resumeSession => '404 E2009', 'one that never was',
          session_id => $unknown);

    calls(destroySession => '400 E3001', 'too long a grace',
          session_id => $gone, query => { grace_s => 601 });
    calls(destroySession => 204, 'all of it', session_id => $gone,
          query => { grace_s => 5 });
    calls(destroySession => '404 E2009', 'twice', session_id => $gone);

    $res = calls(getSession => '404 E2009', 'one that has ended',
                 session_id => $gone);
    is($res->{json}{ended}, 'destroyed', 'tells how');
};


subtest 'run' => sub {
    my @ok = ({ cmd => 'true' });

    my $res = calls(run => 200, 'the example',
                    json => example(run => 'build'));
    is($res->{json}{steps}[1]{stdout}, "hello\n", 'does what it says');

    calls(run => '400 E3001', 'no steps', json => { %who });
    calls(run => '400 E2002', 'too much', valid => 1,
          json => { %who, steps => \@ok, timeout_s => 1_000_000 });
    calls(run => '403 E4003', 'a file that may not be', valid => 1,
          json => { %who, steps => \@ok, files => { '/usr/x' => '' } });
    calls(run => '404 E2001', 'no such template', valid => 1,
          json => { %who, steps => \@ok, template => 'nothing' });
    calls(run => '404 E4001', 'no such directory', valid => 1,
          json => { %who, steps => [ { cmd => 'true', cwd => '/none' } ] });
    calls(run => '409 E4004', 'a file where a directory is', valid => 1,
          json => { %who, steps => \@ok, files => { '/tmp' => '' } });
    calls(run => '413 E4005', 'a large body',
          json => { %who, steps => \@ok, env => { A => 'a' x 70_000 } });
    calls(run => '415 E3011', 'another type of body', json => '{}',
          headers => { 'Content-Type' => 'text/plain' });
};


subtest 'commands' => sub {
    my %s = (session_id => $id);
    my $res;

    for my $name (qw(array shell limited)) {
        calls(exec => 200, "the example $name", %s,
              json => example(exec => $name));
    }

    $res = calls(exec => 200, 'a program that is not there', %s,
                 json => { cmd => [ '/nothing/here' ] });
    is($res->{json}{reason}, 'not_started', 'is an answer');

    $res = calls(exec => 200, 'one that is killed', %s,
                 json => { cmd => 'kill -9 $$' });
    is($res->{json}{signal}, 'SIGKILL', 'names the signal');

    $res = calls(exec => 200, 'one that takes too long', %s,
                 json => { cmd => 'sleep 60', timeout_s => 0.2 });
    is($res->{json}{reason}, 'timeout', 'is ended');

    calls(exec => '400 E3001', 'an unknown field', %s,
          json => { cmd => 'true', colour => 'red' });
    calls(exec => '400 E2002', 'more than the session has', %s, valid => 1,
          json => { cmd => 'true', limits => { memory => '2GB' } });
    calls(exec => '400 E4002', 'a directory that is no path', %s,
          json => { cmd => 'true', cwd => "/a\0b" });
    calls(exec => '403 E4003', 'a directory that is another\'s', %s,
          valid => 1, json => { cmd => 'true', cwd => '/root' });
    calls(exec => '403 E3004', 'without the capability', valid => 1,
          session_id => $session{files}, json => { cmd => 'true' });
    calls(exec => '404 E4001', 'a directory that is not there', %s,
          valid => 1, json => { cmd => 'true', cwd => 'nowhere' });
    calls(exec => '404 E2009', 'no such session', session_id => $unknown,
          valid => 1, json => { cmd => 'true' });
    calls(exec => '409 E4004', 'a file for a directory', %s, valid => 1,
          json => { cmd => 'true', cwd => '/etc/passwd' });
    calls(exec => '413 E4005', 'a large body', %s,
          json => { cmd => 'a' x 70_000 });
    calls(exec => '415 E3011', 'another type of body', %s, json => '{}',
          headers => { 'Content-Type' => 'text/plain' });

    calls(install => '403 E3003', 'without a network', %s, valid => 1,
          json => example(install => 'pip'));
    calls(install => '400 E3001', 'an option', %s, valid => 1,
          json => { packages => [ '--index-url=x' ] });
    calls(install => '404 E2009', 'no such session', valid => 1,
          session_id => $unknown, json => { packages => [ 'x' ] });
    calls(install => '413 E4005', 'a large body', %s,
          json => { packages => [ 'a' x 70_000 ] });
    calls(install => '415 E3011', 'another type of body', %s, json => '{}',
          headers => { 'Content-Type' => 'text/plain' });
};


subtest 'code' => sub {
    plan(skip_all => 'there is no interpreter')
        if grep { !-e "$SandboxTest::BUILD/kernels/$_/kernel.conf" }
                qw(python bash);

    code_calls(with => $session{code}, without => $session{shell},
               unknown => $unknown);
};


subtest 'processes' => sub {
    my %s = (session_id => $id);
    my %none = (%s, pid => 99999);
    my %gone = (session_id => $unknown, pid => 1);
    my %files = (session_id => $session{files}, pid => 1);

    for my $type (qw(application/x-ndjson text/event-stream)) {
        my $res = calls(exec => 200, "as $type", %s,
                        json => { cmd => 'echo hi' },
                        headers => { Accept => $type });
        is($res->{headers}{'content-type'}, $type, 'is of that type');
    }

    my $res = calls(exec => 202, 'the example background', %s,
                    json => example(exec => 'background'));
    my %p = (%s, pid => $res->{json}{pid});

    calls(listProcesses => 200, 'has it', %s);
    calls(getProcess => 200, 'while it runs', %p);
    calls(resizeProcess => 204, 'the example', %p,
          json => example(resizeProcess => 'wide'));
    calls(writeStdin => 204, 'some text', %p, body => "hello\n");
    calls(signalProcess => 204, 'the example', %p,
          json => example(signalProcess => 'name'));
    SandboxTest::wait_for(sub {
        calls(getProcess => 200, 'after it', %p)->{json}{state} eq 'exited';
    });
    calls(getOutput => 200, 'of what has ended', %p);
    calls(getOutput => 200, 'from an offset', %p,
          query => { stdout_from => 1, stderr_from => 0,
                     encoding => 'base64' });
    calls(getOutput => '400 E3001', 'no offset', %p,
          query => { stdout_from => 'x' });

    $res = calls(exec => 202, 'one that writes much', %s,
                 json => { cmd => 'yes | head -c 200000', max_output_bytes =>
                           65536, background => JSON::PP::true });
    my %much = (%s, pid => $res->{json}{pid});
    SandboxTest::wait_for(sub {
        calls(getProcess => 200, 'and ends', %much)->{json}{state}
            eq 'exited';
    });
    calls(getOutput => '410 E3008', 'what is gone', %much,
          query => { stdout_from => 0 });

    calls(cancel => 200, 'none', %s);
    calls(cancel => '404 E2009', 'no such session', %gone);

    calls(terminal => '400 E3001', 'by a plain GET', %s,
          query => { rows => 24, cols => 80 });

    my %upgrade = (Connection => 'Upgrade', Upgrade => 'websocket',
                   'Sec-WebSocket-Version' => 13,
                   'Sec-WebSocket-Key' => 'dGhlIHNhbXBsZSBub25jZQ==');

    calls(terminal => '403 E1002', 'of another site', %s,
          headers => { %upgrade, Origin => 'http://evil.example' });
    calls(terminal => '403 E3004', 'without the capability', %files,
          headers => \%upgrade);
    calls(terminal => '404 E2009', 'no such session', %gone,
          headers => \%upgrade);

    my %more = (listProcesses => {}, getProcess => {}, getOutput => {},
                writeStdin => { body => 'x' },
                signalProcess => { json => { signal => 15 }, valid => 1 },
                resizeProcess => { json => { rows => 1, cols => 1 },
                                   valid => 1 });

    for my $name (sort keys %more) {
        my %a = %{ $more{$name} };

        calls($name => '403 E3004', 'without the capability', %files, %a);
        calls($name => '404 E2009', 'no such session', %gone, %a);
        next if $name eq 'listProcesses';
        calls($name => '404 E3002', 'no such process', %none, %a);
        next if $name =~ /^get/;
        calls($name => '409 E2011', 'after its end', %p, %a);
        next if $name eq 'writeStdin';
        calls($name => '400 E3001', 'an empty object', %p, json => {});
        calls($name => '413 E4005', 'a large body', %p,
              json => { signal => 'a' x 70_000 });
        calls($name => '415 E3011', 'another type of body', %p,
              json => '{}', headers => { 'Content-Type' => 'text/plain' });
    }

    calls(writeStdin => '400 E3001', 'a flag that cannot be', %p,
          query => { eof => 2 }, body => 'x');
};


subtest 'ports' => sub {
    my %p = (session_id => $t->session(manifest =>
                               { capabilities => [qw(shell ports)] }),
             port => 8000, rest => '');

    calls(proxyPort => '502 E5002', 'nothing listens', %p);
    calls(exec => 202, 'a server', %p, json => {
          cmd => 'cd /etc && python3 -m http.server 8000',
          background => JSON::PP::true });
    SandboxTest::wait_for(sub {
        $t->api(GET => "/sessions/$p{session_id}/ports/8000/")->{status}
            == 200;
    });
    calls(proxyPort => 200, 'its list', %p);
    calls(proxyPort => 200, 'its file', %p, rest => 'passwd');
    calls(proxyPort => '400 E3001', 'no port', %p, port => 70000);
    calls(proxyPort => '403 E3004', 'without the capability', %p,
          session_id => $id);
    calls(proxyPort => '404 E2009', 'no such session', %p,
          session_id => $unknown);
    calls(destroySession => 204, 'its session', %p);
};


subtest 'a session that is full' => sub {
    my $full = $t->session(manifest => { resources => { processes => 8 } });
    my $c = $t->connect(timeout => 30);
    my $body = $JSON->encode({
        cmd => 'for i in 1 2 3 4 5 6 7; do sleep 60 & done; echo full > full;'
               . ' wait' });

    $c->send_request(POST => "/v1/sessions/$full/exec", body => $body,
                     headers => { 'Content-Type' => 'application/json' });

    ok(SandboxTest::wait_for(sub {
           $t->http(GET => "/v1/sessions/$full/files/full")->{status} == 200;
       }), 'as many processes as may be');

    my $res = calls(exec => '429 E2003', 'no room for a process',
                    session_id => $full, json => { cmd => [ 'true' ] },
                    valid => 1);
    is($res->{json}{scope}, 'session', 'it is the session\'s limit');

    $c->close;
    calls(destroySession => 204, 'the full one', session_id => $full);
};


subtest 'files' => sub {
    my $res;

    # The two forms of each operation on a file: by address and by query.

    for my $by ('', 'ByQuery') {
        my $where = sub {
            my ($path, %query) = @_;

            return (session_id => $id, path => $path, query => \%query)
                if $by eq '';
            return (session_id => $id, query => { path => $path, %query });
        };
        my ($put, $head, $delete) = map { "$_$by" }
                                    qw(uploadFile headFile deleteFile);
        my $get = $by eq '' ? 'downloadFile' : 'listFiles';
        my $file = "data$by.txt";
        my %other = ('If-Match' => '"0-0-0"');

        $t->run($id, 'mkdir -p full/of; echo 1 > full/of/it');

        calls($put => 201, 'a new file', $where->($file, mode => '0640'),
              body => 'some content');
        calls($put => 200, 'another content', $where->($file),
              body => '0123456789');
        calls($put => '400 E3001', 'a mode that cannot be',
              $where->($file, mode => '99'), body => '');
        calls($put => '403 E4003', 'where the user may not',
              $where->('/usr/x'), body => '');
        calls($put => '403 E3004', 'without the capability',
              $where->($file), session_id => $session{shell}, body => '');
        calls($put => '404 E2009', 'no such session', $where->($file),
              session_id => $unknown, body => '');
        calls($put => '409 E4004', 'onto a directory', $where->('/tmp'),
              body => '');
        calls($put => '409 E4007', 'one that is there',
              $where->($file, overwrite => 0), body => '');
        calls($put => '412 E4008', 'if it is another', $where->($file),
              headers => { %other }, body => '');
        calls($put => '413 E4005', 'a large one', $where->($file),
              headers => { 'Content-Length' => 5 << 20 });

        my $small = $session{"small$by"}
            = $t->session(manifest => { resources => { disk => '1MB' } });
        calls($put => '507 E4006', 'more than there is room for',
              $where->($file), session_id => $small, body => 'a' x (2 << 20));

        $res = calls($get => 200, 'all of it', $where->($file));
        is($res->{body}, '0123456789', 'as it was written');
        my $etag = $res->{headers}{etag};

        $res = calls($get => 206, 'a part', $where->($file),
                     headers => { Range => 'bytes=2-4' });
        is($res->{body}, '234', 'is that part');
        $res = calls($get => 200, 'as another type',
                     $where->($file, content_type => 'text/plain'));
        is($res->{headers}{'content-type'}, 'text/plain', 'has that type');
        calls($get => 304, 'again', $where->($file),
              headers => { 'If-None-Match' => $etag });
        calls($get => '400 E3001', 'as a page',
              $where->($file, content_type => 'text/html'));
        calls($get => '403 E4003', 'another\'s', $where->('/root/x'));
        calls($get => '403 E3004', 'without the capability', $where->($file),
              session_id => $session{shell});
        calls($get => '404 E4001', 'none', $where->('none'));
        calls($get => '404 E2009', 'no such session', $where->($file),
              session_id => $unknown);
        calls($get => '409 E4004', 'a directory', $where->('/tmp'));
        calls($get => '412 E4008', 'if it is another', $where->($file),
              headers => { %other });
        calls($get => 416, 'a part that is not there', $where->($file),
              headers => { Range => 'bytes=100-' });

        calls($head => 200, 'its headers', $where->($file));
        calls($head => 304, 'its headers again', $where->($file),
              headers => { 'If-None-Match' => $etag });
        calls($head => 400, 'as a page',
              $where->($file, content_type => 'text/html'));
        calls($head => 403, 'another\'s', $where->('/root/x'));
        calls($head => 404, 'none', $where->('none'));
        calls($head => 409, 'a directory', $where->('/tmp'));

        calls($delete => '400 E3001', 'a flag that cannot be',
              $where->($file, recursive => 2));
        calls($delete => '403 E4003', 'where the user may not',
              $where->('/usr/bin/env'));
        calls($delete => '403 E3004', 'without the capability',
              $where->($file), session_id => $session{shell});
        calls($delete => '404 E4001', 'none', $where->('none'));
        calls($delete => '404 E2009', 'no such session', $where->($file),
              session_id => $unknown);
        calls($delete => '409 E2011', 'a directory that is not empty',
              $where->('full'));
        calls($delete => 204, 'a file', $where->($file));
        calls($delete => 204, 'a directory with all that is in it',
              $where->('full', recursive => 1));
    }

    my %s = (session_id => $id);
    my $odd = "\xff odd";

    calls(uploadFileByQuery => 201, 'a name that is no UTF-8', %s,
          query => { path_base64 => encode_base64($odd, '') }, body => 'x');
    $t->run($id, 'ln -s odd link; mkfifo pipe; mkdir dir; touch a.txt b.txt');

    $res = calls(listFiles => 200, 'by a pattern', %s,
                 query => { glob => '*.txt' });
    is(join(' ', map { $_->{name} } @{ $res->{json}{entries} }),
       'a.txt b.txt', 'finds them, sorted');

    $res = calls(listFiles => 200, 'every kind of entry', %s);
    is_deeply({ map { $_->{type} => 1 } @{ $res->{json}{entries} } },
              { map { $_ => 1 } qw(file directory link fifo) }, 'is told');
    ok((grep { $_->{path_base64} } @{ $res->{json}{entries} }),
       'and what is no UTF-8 has its bytes');

    $res = calls(listFiles => 200, 'a page', %s,
                 query => { glob => '*', limit => 2 });
    calls(listFiles => 200, 'the next page', %s,
          query => { glob => '*', limit => 2,
                     cursor => $res->{json}{next_cursor} // 'none' });
    calls(listFiles => '400 E3001', 'a cursor that nobody gave', %s,
          query => { cursor => 'x' });
};


subtest 'more of files' => sub {
    my ($res, $block) = (undef, "\0" x 1024);

    for my $by ('', 'ByQuery') {
        my $where = sub {
            my ($path, %query) = @_;

            return (session_id => $id, path => $path, query => \%query)
                if $by eq '';
            return (session_id => $id, query => { path => $path, %query });
        };

        $t->run($id, 'mkdir -p more/d; echo text > more/file');

        for my $op ("statFile$by", "listDirectory$by", "packArchive$by",
                    "watchFiles$by", "unpackArchive$by")
        {
            my @body = $op =~ /unpack/ ? (body => $block) : ();
            my $file = $op =~ /stat/ ? 'more/file/x'
                       : $op =~ /pack(?!Archive)|list|unpack/ ? 'more/file'
                       : '/proc';

            calls($op => '403 E3004', 'without the capability',
                  $where->('more'), session_id => $session{shell}, @body);
            calls($op => '404 E2009', 'no such session', $where->('more'),
                  session_id => $unknown, @body);
            calls($op => '409 E4004', 'another type', $where->($file), @body);

            next if $op =~ /unpack/;

            calls($op => '404 E4001', 'none', $where->('none'));
            calls($op => '403 E4003', 'another\'s', $where->('/root/x'));
        }

        calls("statFile$by" => 200, 'an entry', $where->('more/file'));
        calls("statFile$by" => '400 E4002', 'no path',
              $where->('x' x 5000));
        calls("listDirectory$by" => 200, 'entries',
              $where->('more', depth => 2, limit => 10));
        calls("listDirectory$by" => '400 E3001', 'no depth',
              $where->('more', depth => 0));
        $res = calls("packArchive$by" => 200, 'an archive', $where->('more'));
        calls("packArchive$by" => 200, 'a compressed one',
              $where->('more', format => 'tar.gz'));
        calls("packArchive$by" => '400 E3001', 'another',
              $where->('more', format => 'zip'));
        calls("unpackArchive$by" => 200, 'the first', $where->('again'),
              body => $res->{body});
        calls("unpackArchive$by" => '400 E3001', 'none', $where->('again'),
              body => 'none' x 200);
        calls("unpackArchive$by" => '413 E4005', 'a large one',
              $where->('again'), headers => { 'Content-Length' => 5 << 20 });

        $t->run($id, 'head -c 3000000 /dev/zero > more/zeros');
        $res = request($op{"packArchive$by"},
                       $where->('more', format => 'tar.gz'));
        calls("unpackArchive$by" => '507 E4006', 'more than there is room for',
              $where->('x'), session_id => $session{"small$by"},
              body => $res->{body});

        $t->run($id, 'mkdir watched; (sleep 1; rmdir watched)'
                     . ' > /dev/null 2>&1 &');
        $res = calls("watchFiles$by" => 200, 'events',
                     $where->('watched', recursive => 1));
        like($res->{body}, qr/ready.*remove/s, 'are told');
        calls("watchFiles$by" => '400 E3001', 'a flag that cannot be',
              $where->('more', recursive => 2));
    }

    my %s = (session_id => $id);
    my @posts = (makeDirectory => { path => 'more/x' },
                 moveFile => { from => 'more/x', to => 'more/y' },
                 searchFiles => { pattern => 'text', path => 'more' });

    calls(makeDirectory => 201, 'a new one', %s, json => $posts[1]);
    calls(makeDirectory => 200, 'again', %s, json => $posts[1]);
    calls(makeDirectory => '404 E4001', 'through a link to nothing', %s,
          valid => 1, json => { path => 'link/x' });
    calls(makeDirectory => '409 E4004', 'onto a file', %s, valid => 1,
          json => { path => 'more/file' });
    calls(makeDirectory => '403 E4003', 'where the user may not', %s,
          valid => 1, json => { path => '/usr/x' });
    calls(moveFile => 200, 'a directory', %s, json => $posts[3]);
    calls(moveFile => '404 E4001', 'none', %s, valid => 1,
          json => { from => 'none', to => 'x' });
    calls(moveFile => '409 E4007', 'onto another', %s, valid => 1,
          json => { from => 'more/y', to => 'more/file' });
    calls(moveFile => '403 E4003', 'the workspace', %s, valid => 1,
          json => { from => '/home/user', to => '/tmp/x' });
    $res = calls(searchFiles => 200, 'a line', %s, json => $posts[5]);
    is(scalar @{ $res->{json}{matches} }, 1, 'is found');
    calls(searchFiles => '404 E4001', 'nowhere', %s, valid => 1,
          json => { pattern => 'x', path => 'none' });
    calls(searchFiles => '403 E4003', 'another\'s', %s, valid => 1,
          json => { pattern => 'x', path => '/root' });

    while (my ($op, $json) = splice @posts, 0, 2) {
        calls($op => '400 E3001', 'an unknown field', %s,
              json => { %$json, colour => 'red' });
        calls($op => '403 E3004', 'without the capability', valid => 1,
              session_id => $session{shell}, json => $json);
        calls($op => '404 E2009', 'no such session', valid => 1,
              session_id => $unknown, json => $json);
        calls($op => '413 E4005', 'a large body', %s,
              json => { %$json, colour => 'a' x 70_000 });
        calls($op => '415 E3011', 'another type of body', %s, json => '{}',
              headers => { 'Content-Type' => 'text/plain' });
    }
};


subtest 'reserved and unknown routes' => sub {
    my %s = (session_id => $id);

    for my $name (qw(listCommands listEndpoints runCommand)) {
        my %a = $name eq 'runCommand' ? (name => 'report') : ();

        calls($name => '501 E5003', 'not yet', %s, %a);
        calls($name => '404 E2009', 'no such session', %a,
              session_id => 'malformed');
    }

    my $res = $t->http(PATCH => '/v1/sessions');
    calls(listSessions => '405 E3010', 'another method', res => $res,
          other => 1);
    is(join(' ', sort split /,\s*/, $res->{headers}{allow} // ''),
       'GET HEAD POST', 'and which there are');

    $res = $t->http(GET => '/v1/nothing');
    calls(listSessions => '404 E3009', 'no such route', res => $res,
          other => 1);
    $res = $t->http(GET => '/v1/%00');
    calls(listSessions => '400 E3001', 'what nginx itself refuses',
          res => $res);
};


subtest 'the admin API' => sub {
    my %tenant = (tenant_id => 'acme-corp');
    my %type = (headers => { 'Content-Type' => 'text/plain' });
    my $large = { reset => [ 'a' x 70_000 ] };

    calls(getSettings => 200, 'all of it');
    calls(changeSettings => 200, 'the example',
          json => example(changeSettings => 'quotas'));
    calls(changeSettings => 200, 'back', json =>
          { reset => [ 'quotas.organization.sessions',
                       'quotas.node.memory', 'quotas.node.cpus' ] });
    calls(changeSettings => '400 E3001', 'nothing', json => {}, valid => 1);
    calls(changeSettings => '409 E2011', 'weaker isolation', valid => 1,
          json => { require_isolation => JSON::PP::false });
    calls(changeSettings => '413 E4005', 'a large body', json => $large);
    calls(changeSettings => '415 E3011', 'another type', json => '{}', %type);

    for my $case ([ Quota => %tenant ],
                  [ UserQuota => %tenant, user_id => 'alice' ])
    {
        my ($name, %of) = @$case;
        my %bad = (%of, tenant_id => '-');

        calls("set$name" => 200, 'the example', %of,
              json => { sessions => 100, memory => '32GB', cpus => undef });
        calls("get$name" => 200, 'one that was set', %of);
        calls("remove$name" => 204, 'as before', %of);
        calls("get$name" => 200, 'one that was not', %of);
        calls("get$name" => '400 E3001', 'no name', %bad);
        calls("set$name" => '400 E3001', 'no name', %bad,
              json => { sessions => 1 }, valid => 1);
        calls("remove$name" => '400 E3001', 'no name', %bad);
        calls("set$name" => '413 E4005', 'a large body', %of, json => $large);
        calls("set$name" => '415 E3011', 'another type', %of, json => '{}',
              %type);
    }

    calls(setQuota => 200, 'one to be listed', tenant_id => 'x',
          json => { sessions => 1 });
    calls(listQuotas => 200, 'those that were set',
          query => { tenant_id => 'x', limit => 5 });
    calls(listQuotas => '400 E3001', 'a cursor that nobody gave',
          query => { cursor => 'x' });
    calls(removeQuota => 204, 'removed', tenant_id => 'x');

    calls(listAllSessions => 200, 'all',
          query => { tenant_id => 'acme-corp', user_id => 'alice',
                     limit => 1 });
    calls(listAllSessions => '400 E3001', 'a limit that cannot be',
          query => { limit => 0 });
    calls(destroyTenantSessions => 200, 'of nobody',
          query => { tenant_id => 'nobody' });
    calls(destroyTenantSessions => '400 E3001', 'without a name');

    calls(drain => 200, 'no more sessions');
    calls(createSession => '503 E2004', 'none', json => { %who }, valid => 1);
    calls(health => 503, 'tells', other => 1);
    calls(statusData => 200, 'the status page tells of it');
    calls(undrain => 200, 'again');
    calls(drain => '400 E3001', 'a flag that cannot be',
          query => { end => 2 });
};


subtest 'quotas and identity' => sub {
    my $small = SandboxTest->new(location => <<'CONF')->start;
            sandbox_tenant $http_x_tenant;
CONF
    my $here = $t;
    my %as = (headers => { 'X-Tenant' => 'acme-corp' });

    $t = $small;
    calls(createSession => '401 E1001', 'nobody', json => \%who,
          valid => 1);
    calls(createSession => '403 E1002', 'another', valid => 1, %as,
          json => { tenant_id => 'other', user_id => 'alice' });
    $t->write_conf(http => '    sandbox_quota user sessions=0;');
    ok($t->reload, 'with quotas');
    calls(createSession => '429 E2003', 'no room', valid => 1, %as,
          json => { user_id => 'alice' });
    $t = $here;

    $small->finish(name => 'the other server leaves nothing');
};


subtest 'a node that is full' => sub {
    # One session's ids, away from those that other servers share.

    my $one = SandboxTest->new(http => <<'CONF')->start;
    sandbox_uid_range 1870659584-1870725119;
CONF
    my $here = $t;

    $t = $one;
    calls(createSession => 201, 'the only one that fits', json => \%who);
    calls(createSession => '503 E2004', 'another', json => \%who,
          valid => 1);
    $t = $here;

    $one->finish(name => 'the full node leaves nothing');
};


subtest 'without a broker' => sub {
    # Either would start the other anew, so neither gets the chance.

    $t->hit('STOP', $t->broker);
    $t->hit('KILL', $t->keeper, $t->broker);

    SandboxTest::wait_for(sub {
        $t->api(GET => '/health')->{status} == 503;
    });

    my %json = (patchSession => {}, createSession => { %who },
                run => { %who, steps => [ { cmd => 'true' } ] },
                exec => { cmd => 'true' },
                runCode => { code => '1' },
                install => { packages => [ 'x' ] },
                signalProcess => { signal => 15 },
                resizeProcess => { rows => 1, cols => 1 },
                makeDirectory => { path => 'x' },
                moveFile => { from => 'x', to => 'y' },
                searchFiles => { pattern => 'x' },
                changeSettings => { require_isolation => JSON::PP::true },
                setQuota => { sessions => 1 },
                setUserQuota => { sessions => 1 });
    my %upgrade = (Connection => 'Upgrade', Upgrade => 'websocket',
                   'Sec-WebSocket-Version' => 13,
                   'Sec-WebSocket-Key' => 'dGhlIHNhbXBsZSBub25jZQ==');

    for my $name (sort keys %op) {
        next if !$op{$name}{responses}{503};

        calls($name => '503 E5001', 'cannot be', session_id => $id,
              path => 'data.txt', pid => 7, port => 8000, rest => '',
              context_id => 'python',
              tenant_id => 'acme-corp', user_id => 'alice',
              $name eq 'terminal' ? (headers => \%upgrade) : (),
              query => $name =~ /ByQuery/ ? { path => 'data.txt' }
                     : $name eq 'destroyTenantSessions'
                       ? { tenant_id => 'acme-corp' } : {},
              $json{$name} ? (json => $json{$name}, valid => 1)
                           : $op{$name}{method} eq 'PUT' ? (body => 'x')
                           : ());
    }

    ok($t->reload, 'a reload brings it back');
    calls(health => 200, 'and sessions can be made');
    calls(createSession => 201, 'again', json => \%who);
};


subtest 'everything that is documented has been seen' => sub {
    for my $name (sort keys %op) {
        for my $status ($doc->statuses($op{$name})) {
            my $why = $NOT_HERE{"$name $status"} // $NOT_HERE{$status};

            if ($why && !$seen{"$name $status"}) {
                pass("$name $status: $why");
            } else {
                ok($seen{"$name $status"}, "$name $status");
            }
        }
    }
};

$t->finish;
done_testing();
