#!/usr/bin/perl

# The framing of Connect: envelopes, ends, errors in both forms, deadlines,
# users, and what a client may not send.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";

use MIME::Base64 qw(encode_base64);
use Test::More;
use SandboxTest::More;
use SandboxTest::Connect;

my $LIST = 'process.Process/List';
my $START = 'process.Process/Start';
my $STREAM = 'application/connect+json';
my $FALSE = JSON::PP::false;

my $t = connect_server(extra => 'sandbox_max_json 16k;');
my $s = create_ok({ timeout_s => 3600 });
my $bare = create_ok({ manifest => { capabilities => [ 'files' ] } });


# The answer to a unary call is an error of this code.

sub error_is {
    my ($r, $status, $code, $re, $name) = @_;

    my $ok = $r->{status} == $status && ($r->{json}{code} // '') eq $code
             && ($r->{json}{message} // '') =~ $re
             && $r->{headers}{'content-type'} eq 'application/json';

    ok($ok, $name) or diag("$r->{status} $r->{body}");

    return;
}


# That of a stream: 200, and nothing but an end.

sub ends_with {
    my ($f, $code, $re, $name) = @_;

    my $end = $f->next;
    my $e = $end && $end->{end}{error} || {};

    ok($f->{status} == 200 && $f->{headers}{'content-type'} eq $STREAM
       && ($e->{code} // '') eq $code && ($e->{message} // '') =~ $re
       && !defined $f->next, $name)
        or diag(explain($f->{status}, $f->{raw}, $end));

    return;
}


sub raw_stream {
    my ($bytes, %o) = @_;

    return rpc_stream($s, $o{method} // $START, $bytes, bare => 1, %o);
}


subtest 'a unary body' => sub {
    my $whole = { processes => [] };

    is_deeply(rpc($s, $LIST, '{}')->{json}, $whole, 'is JSON');
    is_deeply(rpc($s, $LIST, '', headers => { 'Content-Length' => 0 })->{json},
              $whole, 'or nothing');
    is_deeply(rpc($s, $LIST, '{}',
                  type => 'application/json; charset=utf-8')->{json}, $whole,
              'with a charset');
    is_deeply(rpc($s, $LIST, '{"later":[1]}')->{json}, $whole,
              'with members that are not known');

    my $r = rpc($s, $LIST, ' {}', type => $STREAM);

    is_deeply($r->{json}, $whole, 'bare where an envelope is announced');
    is($r->{headers}{'content-type'}, 'application/json',
       'and so is the answer');
    is_deeply(rpc($s, $LIST, envelope('{}'), type => $STREAM)->{json},
              $whole, 'or in its envelope');
    is_deeply(rpc($s, $LIST, envelope(''), type => $STREAM)->{json},
              $whole, 'which may be empty');

    my @bad = (
        [ envelope('{}', 1), qr/compressed/, 'compressed' ],
        [ envelope('{}', 2), qr/flags 0x02/, 'the end of a stream' ],
        [ envelope('{}') . envelope('{}'), qr/one whole message/,
          'two messages' ],
        [ substr(envelope('{}'), 0, 6), qr/one whole message/, 'cut off' ],
        [ "\0\0\0", qr/cut off after 3 bytes/, 'less than a head' ],
        [ "\0\xff\xff\xff\xff{}", qr/tells of 4294967295 bytes/,
          'longer than can be' ],
        [ '[]', qr/object/, 'another value' ],
        [ '{', qr/./, 'no JSON' ],
        [ "{\"\xff\":1}", qr/./, 'no UTF-8' ]
    );

    for (@bad) {
        error_is(rpc($s, $LIST, $_->[0], type => $STREAM), 400,
                 'invalid_argument', $_->[1], "$_->[2] is refused");
    }
};


subtest 'the body of a stream' => sub {
    my $json = '{"process":{"cmd":"/bin/true"},"stdin":false}';

    for ([ envelope($json), 'in its envelope' ], [ $json, 'bare' ]) {
        my $f = raw_stream($_->[0]);

        ok($f->next->{event}{start}{pid}, "$_->[1]: it starts");
        is($f->next->{event}{end}{status}, 'exit status 0', 'it ends');
        is_deeply($f->next, { end => {} }, 'and so does the stream');
        is($f->next, undef);
    }

    my $s1 = SandboxTest::More::open_request('POST', "/$START",
        base => '/e2b', headers => {
            'Content-Type' => $STREAM, 'Transfer-Encoding' => 'chunked',
            %{ rpc_headers($s) } });

    # each byte by itself, and each in a packet

    for (split(//, envelope($json))) {
        SandboxTest::More::send_all($s1, "1\r\n$_\r\n");
    }

    SandboxTest::More::send_all($s1, "0\r\n\r\n");

    my $r = SandboxTest::More::read_response($s1, raw => 1);

    is($r->{status}, 200, 'byte by byte');
    is(substr($r->{body}, -7), "\2\0\0\0\2{}", 'the last bytes of an answer');
    is_deeply([ map { $_->[0] } envelopes($r->{body}) ], [ 0, 0, 2 ],
              'start, end, and the end of the stream');

    ends_with(raw_stream(envelope($json, 1)), 'invalid_argument',
              qr/compressed/, 'compressed is refused');
    ends_with(raw_stream(envelope($json) x 2), 'invalid_argument',
              qr/one whole message/, 'so are two messages');
    ends_with(raw_stream(''), 'invalid_argument', qr/cmd/, 'and nothing');
};


subtest 'refusals before the call' => sub {
    error_is(rpc($s, $LIST, '{}', type => 'text/plain'), 415,
             'invalid_argument', qr/./, 'another media type');
    error_is(rpc($s, $LIST, '', type => 'application/proto'), 415,
             'invalid_argument', qr/./, 'of nothing, too');
    is(raw_stream('{}', type => 'text/plain')->{status}, 415,
       'of a stream, too');
    error_is(rpc($s, $LIST, '{"a":"' . 'x' x 20000 . '"}'), 429,
             'resource_exhausted', qr/16384/, 'too large');
    ends_with(raw_stream('{"a":"' . 'x' x 20000 . '"}'),
              'resource_exhausted', qr/16384/, 'too large, of a stream');
    error_is(rpc($bare, $LIST, '{}'), 403, 'permission_denied', qr/shell/,
             'a capability that is missing');
    ends_with(rpc_stream($bare, $START, { process => { cmd => 'x' } }),
              'permission_denied', qr/shell/, 'of a stream');

    my $gone = 'i' . 'x' x 25;

    for (rpc($gone, $LIST, '{}'),
         rpc_stream($gone, $START, { process => { cmd => 'id' } }))
    {
        is($_->{status}, 502, 'a sandbox that is not there');
    }

    is_deeply(rpc($gone, $LIST, '{}')->{json},
              { sandboxId => $gone, code => 502,
                message => 'The sandbox was not found' }, 'in its words');

    for my $token ('0' x 64, 'x') {
        error_is(rpc($s, $LIST, '{}', token => $token), 401,
                 'unauthenticated', qr/./, 'a wrong token');
        is(rpc_stream($s, $START, { process => { cmd => 'id' } },
                      token => $token)->{status}, 401,
           'of a stream');
    }

    my $r = SandboxTest::More::call('GET', "/$LIST", base => '/e2b',
                                    headers => rpc_headers($s));

    is($r->{status}, 405, 'GET');
    is(rpc($s, 'process.Process/Nothing', '{}')->{status}, 404,
       'a method that there is not');
};


subtest 'users' => sub {
    my $who = sub {
        my $r = start($s, 'echo $HOME $USER $LOGNAME $(id -un) $(id -u)',
                      stdin => $FALSE, @_)->rest;
        return $r->{stdout};
    };

    my $user = "/home/user user user user 1000\n";

    is($who->(), $user, 'nobody is named');
    is($who->(user => 'user'), $user, 'user');
    is($who->(user => ''), $user, 'the empty name');
    is($who->(user => 'root'), "/root root root root 0\n", 'root');
    is($who->(headers => { Authorization => 'Bearer cm9vdDo=' }), $user,
       'another scheme');
    is($who->(headers => { Authorization => 'Basic !' }), $user,
       'no base64');
    is($who->(headers => { Authorization => 'basic  '
                                            . encode_base64('root:x', '') }),
       "/root root root root 0\n", 'a password does not matter');

    my $f = rpc_stream($s, $START, { process => { cmd => 'id' } },
                       user => "bob\"\x01");

    is($f->{status}, 401, 'an unknown one');
    like($f->{raw}, qr/"unauthenticated","message":"error\ looking\ up
                       \ user\ 'bob\\"\\u0001'/x, 'is told');
};


subtest 'deadlines' => sub {
    for my $ms ('x', '-1', '1.5', '12345678901') {
        ends_with(rpc_stream($s, $START, { process => { cmd => 'id' } },
                             ms => $ms),
                  'invalid_argument', qr/Connect-Timeout-Ms/, "not $ms");
    }

    my $f = start($s, 'sleep 600', stdin => $FALSE, ms => 300);
    my $r = $f->rest;

    is($r->{error}{code}, 'deadline_exceeded', 'a command has its time');
    is($r->{end}, undef, 'and no end of its own');
    ok(!grep({ $_->{pid} == $f->{pid} }
             @{ rpc($s, $LIST)->{json}{processes} }), 'it is gone');

    $f = start($s, 'sleep 600', stdin => $FALSE, ms => 0);

    my $c = rpc_stream($s, 'process.Process/Connect',
                       { process => { pid => $f->{pid} } }, ms => 200);

    is($c->next->{event}{start}{pid}, $f->{pid}, 'a look at another');
    is($c->rest->{error}{code}, 'deadline_exceeded', 'has its time, too');
    is(scalar(grep { $_->{pid} == $f->{pid} }
              @{ rpc($s, $LIST)->{json}{processes} }), 1,
       'which is not the command\'s');
    is(rpc($s, 'process.Process/SendSignal',
           { process => { pid => $f->{pid} }, signal => 'SIGNAL_SIGKILL' })
           ->{body}, '{}');
    is($f->rest->{end}{status}, 'signal: killed');
};


subtest 'keepalives' => sub {
    my $f = start($s, 'sleep 2.3; echo x', stdin => $FALSE,
                  headers => { 'Keepalive-Ping-Interval' => 1 });
    my $r = $f->rest;

    is($r->{keepalives}, 2, 'one for each second of silence');
    is($r->{stdout}, "x\n");
    is_deeply($r->{order}, [ qw(keepalive keepalive data end) ], 'before it');
};

$t->finish;
done_testing();
