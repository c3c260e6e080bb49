#!/usr/bin/perl

# What a worker says of code, and what it makes of the answer: a fake core
# answers as the session's id tells it to, rightly or not.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";

use Encode qw(encode_utf8);
use JSON::PP ();
use Test::More;
use SandboxTest;
use SandboxTest::Core;
use SandboxTest::More;
use SandboxTest::Stream;

plan(skip_all => 'python3 is not installed') if !-x '/usr/bin/python3';

my $t = SandboxTest->new(workers => 1, edit => sub {
    s/^( *)sandbox_max_json .*/$1sandbox_max_json 4m;/m;
}, http => '    sandbox_audit_log logs/audit.log;', server => <<'CONF');
        location = /metrics { sandbox_api metrics; }
CONF
my $p = $t->prefix;

core_starts($p);
$t->start;
($SandboxTest::More::T, $SandboxTest::More::PORT) = ($t, $t->port);


sub id { return 'i' . $_[0] . '0' x (24 - length $_[0]) }

sub code {
    my ($mode, %fields) = @_;

    return call('POST', '/sessions/' . id($mode) . '/code',
                json => { code => '6*7', %fields });
}

sub events {
    my ($mode, %o) = @_;

    return stream('POST', '/sessions/' . id($mode) . '/code', %o,
                  json => { code => '6*7' });
}

sub types { return join ' ', map { $_->{type} } @_ }

sub says {
    my ($res) = @_;

    return "$res->{status} " . ($res->{json}{code} // '');
}


subtest 'a run, as one text' => sub {
    my $res = code('code', context_id => 'c1', env => { A => 'b' },
                   timeout_s => 1.5, max_output_bytes => 1000);
    my $j = $res->{json};

    is($res->{status}, 200, 'status');
    is($j->{text}, "\x{e9}\x{20ac}\x{1f923} \"x\"",
       'the text of the main result, whose characters came in pieces');
    is($j->{stdout}, "out \x{20ac}\x{fffd}", 'output');
    is($j->{stderr}, 'err', 'errors');
    is_deeply($j->{results},
              [ { 'text/html' => "<b>\"1\"</b>\n", 'image/png' => 'iVBO',
                  is_main_result => JSON::PP::false },
                { 'text/plain' => $j->{text},
                  'application/json' => { a => [ 1, "\n" ] },
                  is_main_result => JSON::PP::true } ],
              'bundles, with JSON as JSON; of nothing there is none');
    is_deeply($j->{output_files},
              [ { path => '/home/user/a', size => 3 },
                { path => "/home/user/\x{fffd}", size => 4 } ], 'files');

    my %rest = (error => undef, execution_count => 4, exit_code => 0,
                signal => undef, reason => 'exited', duration_s => '0.007',
                startup_s => '0.008', context_id => 'c1', language => 'bash',
                stdout_bytes => 5, stderr_bytes => 6,
                map { $_ => JSON::PP::false }
                qw(timed_out cancelled oom_killed restarted stdout_truncated
                   stderr_truncated results_truncated
                   output_files_truncated));

    is_deeply({ map { $_ => $j->{$_} } keys %rest }, \%rest, 'the rest');
    is(join(' ', sort keys %$j),
       join(' ', sort keys %rest, qw(text stdout stderr results
                                     output_files)), 'and nothing besides');

    ok(core_said('^code 1 1 2 0 0 1 3 7 1500 1000 b\'c1\' 1 7 '
                 . 'b\'6\*7A=b'), 'what was asked is what was sent');
    ok(core_said('^eof icode0'), 'and the call is closed');
};


subtest 'a run, as it comes' => sub {
    for my $sse (0, 1) {
        my $r = events('code', sse => $sse)->rest;
        my @e = @{ $r->{events} };

        is(types(@e), 'start stdout stderr stdout result result end',
           'the events');
        is("$e[0]{context_id} $e[0]{language}", 'c1 bash', 'its context');
        is("$r->{stdout} $r->{stderr}", "out \x{20ac}\x{fffd} err", 'output');
        is($e[3]{offset}, 4, 'no half character, and offsets');
        is_deeply([ map { delete $_->{type}; $_ } @e[4, 5] ],
                  code('code')->{json}{results}, 'the results');

        my $answer = code('code')->{json};
        delete @$answer{qw(text stdout stderr results)};
        delete $r->{end}{type};
        is_deeply($r->{end}, $answer, 'the end is the answer without these');
    }
};


subtest 'what is sent where little is asked' => sub {
    code('code');
    ok(core_said('^code 1 1 0 0 0 0 3 3 \d{18,} \d{18,} b\'\' 1 3 b\'6\*7'),
       'limits are the session\'s');
    code('code', timeout_s => undef, language => 'bash');
    ok(core_said('^code 1 1 0 4 0 0 3 3 \d{18,} \d{18,} b\'bash\' '),
       'a language');
    code('code', language => $_) for 'Python', '', 'x' x 40;
    is(scalar(() = core_log() =~ /^code 1 1 0 1 0 0 3 3 \d+ \d+ b'_'/mg), 3,
       'what is no name is one that no language has');
    events('code');
    ok(core_said('^code 1 0 '), 'a stream is not capped');

    my $long = 'x' x (1024 * 1024);
    is(code('code', code => $long)->{status}, 200, 'a megabyte of code');
    ok(core_said('^code 1 1 0 0 0 0 1048576 1048576 '), 'is sent');
    is(code('code', code => '')->{status}, 200, 'and none at all');
    ok(core_said('^code 1 1 0 0 0 0 0 0 '), 'is as well');
};


subtest 'what is JSON, and what only says so' => sub {
    my $j = code('codejson')->{json};

    is_deeply([ map { $_->{'application/geo+json'} } @{ $j->{results} } ],
              [ 'NaN', '{"a":1}x', '[' x 80 . ']' x 80, "\"\x{fffd}\"",
                '"\ud800"', '', '{', 7 ],
              'all but the last are texts: ' . scalar @{ $j->{results} });

    my $r = events('codejson')->rest;
    is(scalar @{ $r->{events} }, 10, 'so it is in a stream');
};


subtest 'names of fields' => sub {
    my $j = code('codenames')->{json};

    is_deeply($j->{results}, [ { 'text/plain' => '1',
                                 is_main_result => JSON::PP::true } ],
              'each once, and none but MIME types');
    is_deeply($j->{error}, { name => '', value => 'v', traceback => '' },
              'an error has all of its members');

    my $r = events('codenames')->rest;
    is(types(@{ $r->{events} }), 'start result error end', 'in a stream');
    is($r->{error}{value}, 'v', 'the first error');
    is_deeply($r->{end}{error}, $j->{error}, 'which the end tells again');
};


subtest 'what never became whole, and a death' => sub {
    my $j = code('codehalf')->{json};

    is_deeply([ map { $_->{'text/plain'} } @{ $j->{results} } ], [ 'whole' ],
              'is dropped');
    is($j->{text}, undef, 'and is no text');
    is($j->{error}{name}, 'KernelDied', 'an error of its own');
    like($j->{error}{value}, qr/\(memory\): its memory was used up; use less/,
         'that says why and what to do');
    is("$j->{reason} $j->{exit_code} $j->{signal} $j->{oom_killed} "
       . $j->{restarted}, 'memory 137 SIGKILL 1 1', 'as exec tells it');

    my $r = events('codehalf')->rest;
    is(types(@{ $r->{events} }), 'start result error end', 'in a stream');
    is($r->{error}{name}, 'KernelDied', 'with its event');
};


subtest 'before its turn' => sub {
    my $j = code('codeunbegun')->{json};

    is("$j->{reason} $j->{exit_code} $j->{cancelled}", 'cancelled 130 1',
       'a run that was cancelled');
    is($j->{context_id}, undef, 'has seen no context');
    is(types(@{ events('codeunbegun')->rest->{events} }), 'end',
       'nor a start');

    is(says(code('coderefused')), '404 E3005', 'no such context');
    is_problem(call('POST', '/sessions/' . id('coderefused') . '/code',
                    json => { code => '1' },
                    headers => { Accept => 'text/event-stream' }),
               404, 'E3005', 'a refusal is no stream');
    is(says(code('codenone')), '403 E3004', 'no interpreter');
    my $r = events('codenone')->rest;
    is(types(@{ $r->{events} }), 'start error end', 'and none for a stream');
    is("$r->{error}{name} $r->{error}{value} $r->{end}{reason}",
       'KernelDied there is no interpreter not_started', 'which says so');

    is(says(code('code', context_id => $_)), '404 E3005', "none: \"$_\"")
        for 'a b', '', 'x' x 65, "\x{e9}";
};


subtest 'lost calls' => sub {
    is(code('codelost')->{status}, 200, 'one that had not begun is repeated');
    my @sent = core_log() =~ /^code .* \[?b'' ([12] 3 b'6\*7')$/mg;
    is_deeply([ grep { /^2/ } @sent ], [ "2 3 b'6*7'" ],
              'once, with all that belongs to it');

    is(says(code('codedead')), '503 E5001', 'one that had begun is not');
    is(scalar(() = core_log() =~ /^call codedead 2/mg), 0, 'ever');

    my $f = events('codedead');
    my $r = $f->rest;
    is(types(@{ $r->{events} }), 'start stdout', 'no end is made up');
    ok(!$f->{whole}, 'and the body is cut');
};


subtest 'frames that cannot be' => sub {
    for my $bad ('a' .. 'p') {
        is(says(code("bad$bad")), '500 E5002', "one: $bad");
        ok(core_said("^eof ibad${bad}0"), 'the call is closed');
    }

    for my $bad ('c' .. 'h', 'j') {
        my $f = events("bad$bad");
        $f->rest;
        ok(!$f->{whole}, "a stream is cut: $bad");
    }
};


my $rss = sub { return rss($t->workers) };

# Texts so long that nobody wants them parsed.

sub text_of {
    my ($mode) = @_;

    return $t->http(POST => '/v1/sessions/' . id($mode) . '/code',
                    headers => { 'Content-Type' => 'application/json' },
                    body => '{"code":""}', timeout => 120)->{body};
}


subtest 'as much as a worker keeps' => sub {
    my $text = text_of('codelarge');

    like($text, qr/"results_truncated":true/, 'what is over is told');
    is(join(' ', $text =~ /"text\/plain":"(\d\d)x/g),
       join(' ', '00' .. '19'), 'and dropped');

    my $j = code('codeover')->{json};
    ok($j->{results_truncated}, 'of one that is too large');
    is_deeply([ map { $_->{'text/plain'} } @{ $j->{results} } ], [ 'small' ],
              'that alone is dropped');

    $text = text_of('codemany');
    like($text, qr/"results_truncated":true/, 'many small ones');
    cmp_ok(length $text, '<', 22_000_000, 'have a bound as well');

    $text = text_of('codefiles');
    like($text, qr/"output_files_truncated":true/, 'and so have files');
    cmp_ok(length $text, '<', 2_000_000, 'a lower one');
};


subtest 'as much as a stream holds' => sub {
    my $before = $rss->();
    my $f = events('codelarge', rcvbuf => 65536);
    my ($n, $most, $text) = (0, 0, $f->{raw});

    for ( ;; ) {
        my $more = SandboxTest::More::read_some($f->{s}, time + within(20));
        last if !defined $more || $more eq '';

        $text .= $more;
        $n++ while $text =~ /"text\/plain":"\d\dx/gc;
        $text = substr $text, -15 if length $text > 15;
        pos($text) = undef;
        last if $text =~ /\r\n0\r\n\r\n\z/;

        my $grown = $rss->() - $before;
        $most = $grown if $grown > $most;
    }

    is($n, 30, 'every result comes');

    SKIP: {
        skip 'a sanitizer keeps freed memory', 1 if $SandboxTest::SANITIZE;
        cmp_ok($most, '<', 8_000_000, 'and the worker holds one at a time');
    }
};


subtest 'a client that goes' => sub {
    my $f = events('codelarge', rcvbuf => 4096);
    $f->next;
    $f->close;
    ok(core_said('^left icodelarge'), 'ends its call');
};


subtest 'a stream that waits for its turn says so' => sub {
    my $f = events('codewaits');

    is($f->{status}, 200, 'it begins');
    is(($f->next(30) // {})->{type}, 'ping', 'with a ping');
    open my $go, '>', "$p/core.go" or die $!;
    is(types($f->until('end')), 'start end', 'then its turn comes');
    unlink "$p/core.go";
};


subtest 'contexts' => sub {
    my $of = sub { return '/sessions/' . id($_[0]) . '/contexts' };
    my $res = call('GET', $of->('listthree'));

    is_deeply($res->{json}{contexts},
              [ map { { context_id => "c$_->[0]", language => 'python',
                        cwd => '/tmp', state => $_->[1], pid => 7,
                        waiting => 0, execution_count => 3 } }
                [ 0, 'starting' ], [ 1, 'idle' ], [ 2, 'running' ] ],
              'a list');
    is_deeply(call('GET', $of->('listnone'))->{json}, { contexts => [] },
              'an empty one');

    $res = call('POST', $of->('listone'),
                json => { language => 'bash', cwd => '/tmp' });
    is($res->{status}, 201, 'a new one');
    is($res->{headers}{location}, '/v1' . $of->('listone') . '/c0',
       'and where it is');
    is($res->{json}{context_id}, 'c0', 'and what');
    ok(core_said('^code 2 0 0 4 4 0 0 0 0 0 b\'bash/tmp\''), 'as asked for');

    $res = call('POST', $of->('listone') . '/c-1/restart');
    is("$res->{status} $res->{json}{context_id}", '200 c0', 'a restart');
    ok(core_said('^code 5 0 3 0 0 0 0 0 0 0 b\'c-1\''), 'of that one');
    is(call('DELETE', $of->('listnone') . '/c-1')->{status}, 204, 'an end');
    ok(core_said('^code 4 0 3 0 0 0 0 0 0 0 b\'c-1\''), 'of that one');

    is(says(call('DELETE', $of->('listnone') . "/$_")), '404 E3005',
       "no name: $_") for 'a.b', '%61', 'x' x 65;
    is(says(call('GET', $of->('listmany'))), '500 E5002', 'too many');
    is(says(call('POST', $of->($_))), '500 E5002', "a new one: $_")
        for 'listnone', 'listthree';
    is(says(call('POST', $of->('listnone') . '/c/restart')), '500 E5002',
       'a restart of nothing');
};


subtest 'what the log and the metrics tell' => sub {
    my ($line) = grep { /"op":"code"/ } split /\n/, slurp("$p/logs/audit.log");
    my $j = SandboxTest::More::parse($line);

    is("$j->{context_id} $j->{language} $j->{pid} $j->{exit} $j->{reason} "
       . $j->{wall_s}, 'c1 bash 7 0 exited 0.007', 'the audit log');
    unlike(slurp("$p/logs/audit.log"), qr/6\*7/, 'which has no code');
    ok(!exists $j->{cpu_s} && !exists $j->{memory_peak},
       'and no cost that nobody knows');

    my $text = $t->http(GET => '/metrics')->{body};
    my %n;

    diag(substr $text, 0, 300) if $text !~ /code_runs/;
    for (split /\n/, $text) {
        $n{"$1 $2"} = $3
            if /^sandbox_code_runs_total\{language="(\w+)",outcome="(\w+)"\}
                \ (\d+)$/x;
    }

    cmp_ok($n{'bash ok'}, '>', 5, 'runs that ended well');
    is($n{'python died'}, 2, 'interpreters that died');
    is($n{'python error'}, 3, 'errors');
    cmp_ok($n{'python unfinished'}, '>', 1, 'and ends that nobody knows');
    is(scalar keys %n, 24, 'in no more series than there are');
};


core_ends();
unlink "$p/core.log";

$t->finish;
done_testing();
