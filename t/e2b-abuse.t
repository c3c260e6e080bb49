#!/usr/bin/perl

# The E2B protocol in the hands of somebody who means no good: bodies that are
# cut, tokens that are missing, streams that are not read.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";

use File::Temp qw(tempdir);
use IO::Compress::Gzip qw(gzip);
use Socket qw(SOL_SOCKET SO_LINGER);
use Test::More;
use Time::HiRes qw(sleep time);
use SandboxTest::More;
use SandboxTest::Connect;

my $TRUE = JSON::PP::true;
my $FALSE = JSON::PP::false;
my $H2 = SandboxTest::free_port();

my $t = connect_server(workers => 1, max_upload => '1m',
    http => "sandbox_audit_log logs/audit.log; server { listen 127.0.0.1:$H2 http2; "
            . "location /e2b/ { sandbox_api e2b; } }\n");
my $s = create_ok({ timeout_s => 3600,
                    manifest => { capabilities => [ 'shell', 'files', 'code',
                                                    'ports' ] } });

sub made {
    my (%o) = @_;

    my $res = call('POST', '/sandboxes', base => '/e2b',
                   headers => { 'X-API-Key' => 'e2b_00' },
                   json => { templateID => 'base', secure => $TRUE, %o });

    is($res->{status}, 201, 'a sandbox') or diag($res->{body});

    return $res->{json}{sandboxID};
}

sub plane {
    my ($id, $port, $method, $path, %headers) = @_;

    return call($method, $path, base => '/e2b', headers => {
        'E2b-Sandbox-Id' => $id, 'E2b-Sandbox-Port' => $port, %headers });
}


# What is read at once may be the end of the request, too; that none was ended
# twice the log says.

subtest 'a body that ends as it begins' => sub {
    my %bodies = (
        'files' => 'multipart/form-data; boundary=B',
        'process.Process/StreamInput' => 'application/connect+json'
    );

    for my $path (sort keys %bodies) {
        for my $i (1 .. 60) {
            my $c = open_request('POST', "/$path", base => '/e2b', headers => {
                %{ rpc_headers($s) }, 'Content-Length' => 1000,
                'Content-Type' => $bodies{$path} });

            setsockopt $c, SOL_SOCKET, SO_LINGER, pack('ii', 1, 0) if $i % 2;
            close $c;
        }
    }

    is(call('GET', '/health')->{status}, 200, 'and all goes on');
    unlike(slurp($t->prefix . '/logs/error.log'), qr/\[alert\]/, 'no alert');
};


# A client of HTTP/2 may have sent all of its body before it is read.

subtest 'an upload over HTTP/2' => sub {
    plan(skip_all => 'curl with HTTP/2 is needed')
        if `curl --version 2>/dev/null` !~ /HTTP2/;

    my $dir = tempdir(CLEANUP => 1);
    my @h = map { ('-H', $_) } "E2b-Sandbox-Id: $s", 'E2b-Sandbox-Port: 49983',
                               'X-Access-Token: ' . token($s);

    for my $size (1, 60_000, 400_000) {
        for my $kind ('known', 'unknown', 'form') {
            my $text = substr($kind, 0, 1) x $size;
            my @body = $kind eq 'form'
                       ? ('-F', "file=\@$dir/f;filename=whole")
                       : ('-H', 'Content-Type: application/octet-stream',
                          '-X', 'POST', $kind eq 'known'
                          ? ('--data-binary', "\@$dir/f") : ('-T', '-'));

            open my $f, '>', "$dir/f" or die $!;
            print $f $text;
            close $f;

            my $pid = fork // die $!;

            if ($pid == 0) {
                open STDIN, '<', "$dir/f";
                exec 'curl', '-s', '-m', within(30), '-o', '/dev/null',
                     '--http2-prior-knowledge', @h, @body,
                     "http://127.0.0.1:$H2/e2b/files?path=whole";
            }

            waitpid $pid, 0;
            ok(get($s, 'whole')->{body} eq $text, "$size bytes, $kind");
        }
    }
};


# Each of these has a call of its own, which is kept as long as its request is.

subtest 'a stream that begins again and again' => sub {
    my $p = start($s, 'cat > /dev/null');
    my $one = envelope(json_of({ start => { process =>
                                            { pid => $p->{pid} } } }))
              . envelope(json_of({ data => { input =>
                                             { stdin => 'eA==' } } }));

    my $res = call('POST', '/process.Process/StreamInput', base => '/e2b',
                   body => $one x 300, headers => { %{ rpc_headers($s) },
                       'Content-Type' => 'application/connect+json' });

    like($res->{body}, qr/"resource_exhausted"/, 'has an end');

    $res = call('POST', '/process.Process/StreamInput', base => '/e2b',
                body => $one x 200, headers => { %{ rpc_headers($s) },
                    'Content-Type' => 'application/connect+json' });

    is_deeply([ map { $_->[1] } envelopes($res->{body}) ], [ '{}', '{}' ],
              'of which a sound one has nothing to fear');

    rpc($s, 'process.Process/SendSignal', { process => { pid => $p->{pid} },
                                            signal => 'SIGNAL_SIGKILL' });
    $p->rest;
};


# What is in no file is counted, too: a little of it may stand for a lot.

subtest 'a form around nothing' => sub {
    my $part = "--B\r\nContent-Disposition: form-data; name=\"x\"\r\n\r\n";
    my $lot = "\0" x (17 << 20);

    for ([ 'before it', "$lot\r\n$part\r\n--B--\r\n" ],
         [ 'after it', "$part\r\n--B--\r\n$lot" ])
    {
        my ($where, $form) = @$_;

        gzip(\$form => \my $body);

        my $res = call('POST', '/files', base => '/e2b', body => $body,
                       headers => { %{ rpc_headers($s) },
                           'Content-Type' => 'multipart/form-data; boundary=B',
                           'Content-Encoding' => 'gzip' });

        is($res->{status}, 400, $where);
        like($res->{body}, qr/too much around/, 'and why');
    }

    # nobody is waited for who may do nothing

    my $c = open_request('POST', '/files', base => '/e2b', headers => {
        'E2b-Sandbox-Id' => $s, 'E2b-Sandbox-Port' => 49983,
        'Content-Type' => 'multipart/form-data; boundary=B',
        'Content-Length' => 1000 });

    is(read_head($c)->{status}, 401, 'of nobody');
    close $c;
};


subtest 'what is done to files is in the audit log' => sub {
    rpc($s, 'filesystem.Filesystem/MakeDir', { path => 'traced' });
    call('POST', '/files?path=~/traced/file', base => '/e2b', body => 'x',
         headers => { %{ rpc_headers($s) },
                      'Content-Type' => 'application/octet-stream' });

    for ([ mkdir => '/home/user/traced' ],
         [ upload => '/home/user/traced/file' ])
    {
        my ($op, $path) = @$_;

        ok(until_true { slurp($t->prefix . '/logs/audit.log')
                        =~ /"op":"$op",[^\n]*"path":"$path"/ }, $op);
    }

    # each of these is a look, though it is a POST

    rpc($s, $_, { path => '/tmp' })
        for 'filesystem.Filesystem/ListDir', 'filesystem.Filesystem/Stat',
            'process.Process/List', 'filesystem.Filesystem/CreateWatcher';

    my $last = rpc($s, 'filesystem.Filesystem/Remove', { path => 'traced' });
    my $id = $last->{headers}{'x-request-id'};

    ok(until_true { slurp($t->prefix . '/logs/audit.log') =~ /$id/ },
       'a removal');
    unlike(slurp($t->prefix . '/logs/audit.log'),
           qr/"op":"(?:list|stat|processes|watch)"/, 'and nothing before it');
};


# Whoever knows an id does not know a token.

subtest 'without a token' => sub {
    my $open = made();
    my $shut = made(network => { allowPublicTraffic => $FALSE });

    is(plane($open, 49999, 'GET', '/contexts')->{status}, 401,
       'contexts of one with open ports');
    is(plane($open, 8000, 'GET', '/')->{status}, 502, 'and a port');

    for ([ $shut, 'one with closed ports' ], [ $s, 'one of the native API' ]) {
        my ($id, $name) = @$_;

        for my $call ([ GET => '/contexts' ], [ DELETE => '/contexts/python' ],
                      [ POST => '/contexts/python/restart' ])
        {
            is(plane($id, 49999, @$call)->{status}, 401,
               "$name: $call->[0] $call->[1]");
        }

        is(plane($id, 8000, 'GET', '/')->{status}, 403, "$name: a port");
        is(plane($id, 49999, 'GET', '/contexts',
                 'X-Access-Token' => token($id))->{status}, 200,
           "$name: contexts, with one");
    }

    for ($open, $shut) {
        call('DELETE', "/sandboxes/$_", base => '/e2b',
             headers => { 'X-API-Key' => 'e2b_00' });
    }
};


$t->finish;
done_testing();
