#!/usr/bin/perl

# POST /run: a session's whole life in one call.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";

use Test::More;
use Time::HiRes qw(sleep);
use SandboxTest::More;

my $t = server();

sub run_call {
    my ($body, %o) = @_;

    return call('POST', '/run', %o, json => { tenant_id => 'runner',
                                              user_id => 'alice', %$body });
}

sub sessions {
    return @{ call('GET', '/sessions?tenant_id=runner')->{json}{sessions} };
}

# Nothing of a run is left, sooner or later.

sub nothing_left {
    my ($name, $at_once) = @_;

    local $Test::Builder::Level = $Test::Builder::Level + 1;

    return ok($at_once ? !sessions() : until_true { !sessions() }, $name);
}


subtest 'files, steps, and nothing is left' => sub {
    my $res = run_call({
        files => { 'a.txt' => "one\n", 'deep/er/b.txt' => "two\n",
                   '/tmp/c' => '', 'name with ~ and /slash' => 'x' },
        files_base64 => { 'bin' => b64("\0\xff\x80") },
        env => { WHO => 'me' },
        steps => [
            { cmd => 'cat a.txt deep/er/b.txt; echo $WHO' },
            { cmd => [ 'od', '-An', '-tx1', 'bin' ] },
            { cmd => 'cat > from-stdin; cat from-stdin; test -e /tmp/c',
              stdin => 'typed', cwd => 'deep' },
            { cmd => 'pwd; ls; echo to stderr >&2', encoding => 'base64',
              env => { X => '1' } },
        ] });

    my $id = create_ok();
    my $plain = run($id, 'true');
    destroy($id);

    is($res->{status}, 200, 'it is answered');
    is(join(' ', keys %{ $res->{json} }), 'steps', 'the answer has steps');

    my @s = @{ $res->{json}{steps} };
    is(scalar(@s), 4, 'all of them');
    is($s[0]{stdout}, "one\ntwo\nme\n", 'files and environment are there');
    is($s[1]{stdout}, " 00 ff 80\n", 'bytes too');
    is("$s[2]{stdout} $s[2]{exit_code}", 'typed 0', 'stdin, cwd');
    is(unb64($s[3]{stderr}), "to stderr\n", 'encoding');
    is(join(' ', sort keys %{ $s[0] }),
       join(' ', sort keys %$plain), 'a step has the fields of an exec');
    nothing_left('the session is gone with the answer', 1);
};


subtest 'a step that fails is the last' => sub {
    my $res = run_call({ steps => [ { cmd => 'echo 1' },
                                    { cmd => 'echo 2; exit 3' },
                                    { cmd => 'echo 3' } ] });
    my @s = @{ $res->{json}{steps} };

    is("$res->{status} " . join(' ', map { $_->{exit_code} } @s), '200 0 3',
       'what ran is answered');

    for ([ 'a timeout', 'timeout', { cmd => 'sleep 100', timeout_s => 0.2 } ],
         [ 'a program that there is not', 'not_started',
           { cmd => [ 'no-such-program' ] } ],
         [ 'a signal', 'signal', { cmd => 'kill -SEGV $$' } ])
    {
        my ($name, $reason, $step) = @$_;
        $res = run_call({ steps => [ $step, { cmd => 'true' } ] });
        is(join(' ', map { $_->{reason} } @{ $res->{json}{steps} }), $reason,
           $name);
    }

    nothing_left('nothing is left', 1);
};


subtest 'each step has its limits' => sub {
    my $res = run_call({
        manifest => { resources => { memory => '64MB' } },
        steps => [ { cmd => 'ulimit -n', limits => { open_files => 32 } },
                   { cmd => 'ulimit -n' },
                   { cmd => 'head -c 100 /dev/zero', max_output_bytes => 10 }
                 ] });
    my @s = @{ $res->{json}{steps} };

    is($s[0]{stdout}, "32\n", 'its own');
    is($s[1]{stdout}, "1024\n", 'and no other\'s');
    is("$s[2]{stdout_bytes} $s[2]{stdout_truncated}", '100 1',
       'of output too');
};


subtest 'a refused body makes nothing' => sub {
    my @ok = ({ cmd => 'true' });

    for ([ 'no steps', 'E3001', qr{^/steps: }, {} ],
         [ 'empty steps', 'E3001', qr{^/steps: }, { steps => [] } ],
         [ 'steps of strings', 'E3001', qr{^/steps/0: },
           { steps => [ 'true' ] } ],
         [ 'steps within steps', 'E3001', qr{^/steps/1: },
           { steps => [ @ok, [] ] } ],
         [ 'steps that are none', 'E3001', qr{^/steps: },
           { steps => { } } ],
         [ 'a step without cmd', 'E3001', qr{^/steps/1/cmd: },
           { steps => [ @ok, {} ] } ],
         [ 'an empty command', 'E3001', qr{^/steps/1/cmd: },
           { steps => [ @ok, { cmd => '' } ] } ],
         [ 'a field that there is not', 'E3001', qr{^/steps/0/shell: },
           { steps => [ { cmd => 'true', shell => 'x' } ] } ],
         [ 'a bad limit', 'E3001', qr{^/steps/0/limits/memory: },
           { steps => [ { cmd => 'true', limits => { memory => 'x' } } ] } ],
         [ 'a background step', 'E3001', qr{^/steps/0/background: },
           { steps => [ { cmd => 'true', background => JSON::PP::true } ] } ],
         [ 'too many steps', 'E3001', qr{^/steps: },
           { steps => [ (@ok) x 65 ] } ],
         [ 'a file that is no text', 'E3001', qr{^/files/a~1b: },
           { steps => \@ok, files => { 'a/b' => 1 } } ],
         [ 'bad base64', 'E3001', qr{^/files_base64/x: },
           { steps => \@ok, files_base64 => { x => '*' } } ],
         [ 'a file without a name', 'E4002', qr{^/files/: },
           { steps => \@ok, files => { '' => 'x' } } ],
         [ 'bad metadata', 'E3001', qr{^/metadata/k},
           { steps => \@ok, metadata => { k => 1 } } ],
         [ 'a manifest above the cap', 'E2002', qr{memory},
           { steps => \@ok,
             manifest => { resources => { memory => '1TB' } } } ],
         [ 'a run that is to be paused', 'E2002', qr{^/manifest/on_timeout: },
           { steps => \@ok, manifest => { on_timeout => 'pause' } } ],
         [ 'a bad user', 'E3001', qr{/user_id},
           { steps => \@ok, user_id => '' } ])
    {
        my ($name, $code, $detail, $body) = @$_;
        is_problem(run_call($body), 400, $code, $name, $detail);
    }

    is_problem(run_call({ steps => \@ok, template => 'none-such' }), 404,
               'E2001', 'a template that there is not');
    is_problem(run_call({ steps => \@ok },
                        headers => { 'Idempotency-Key' => 'x' }), 400,
               'E3001', 'a key');
    nothing_left('nothing is left', 1);
};


subtest 'what goes wrong later names the place, and nothing is left' => sub {
    my @ok = ({ cmd => 'true' });

    for ([ 'a file where a directory is', 409, 'E4004', qr{^/files/~1tmp: },
           { steps => \@ok, files => { '/tmp' => 'x' } } ],
         [ 'a file that may not be written', 403, 'E4003',
           qr{^/files/~1usr~1x: },
           { steps => \@ok, files => { '/usr/x' => 'x' } } ],
         [ 'a directory that there is not', 404, 'E4001', qr{^/steps/1: },
           { steps => [ @ok, { cmd => 'true', cwd => '/none' } ] } ],
         [ 'a limit above the session\'s', 400, 'E2002',
           qr{^/steps/0: .*memory},
           { steps => [ { cmd => 'true', limits => { memory => '2GB' } } ] }
         ],
         [ 'a capability that is lacking', 403, 'E3004', qr{^/files/x: .*files},
           { steps => \@ok, files => { x => '' },
             manifest => { capabilities => [ 'shell' ] } } ],
         [ 'more than the disk', 507, 'E4006', qr{^/files/big: },
           { steps => \@ok, files => { big => 'x' x 2_000_000 },
             manifest => { resources => { disk => '1MB' } } } ],
         [ 'no shell', 403, 'E3004', qr{^/steps/0: .*shell},
           { steps => \@ok, manifest => { capabilities => [ 'files' ] } } ])
    {
        my ($name, $status, $code, $detail, $body) = @$_;
        is_problem(run_call($body), $status, $code, $name, $detail);
        nothing_left('  and nothing is left', 1);
    }
};


subtest 'a client that goes away' => sub {
    my $s = open_request('POST', '/run', json => {
        tenant_id => 'runner', user_id => 'alice',
        steps => [ { cmd => 'sleep 1000' }, { cmd => 'sleep 1000' } ] });
    my $session;

    until_true { ($session) = sessions(); $session };
    ok($session, 'its session is there');
    ok(until_true { session_pids($session->{session_id}) > 1 }, 'and runs');
    close $s;
    nothing_left('it goes with its client');
    is(call('GET', "/sessions/$session->{session_id}")->{json}{ended},
       'destroyed', 'destroyed');

    # before anything was answered

    for (1 .. 20) {
        $s = open_request('POST', '/run', json => {
            tenant_id => 'runner', user_id => 'alice',
            files => { f => 'x' x 100_000 }, steps => [ { cmd => 'true' } ] });
        sleep rand 0.02;
        close $s;
    }

    nothing_left('whenever that is');
};


subtest 'a session that ends under its run' => sub {
    my $job = async { run_call({ steps => [ { cmd => 'sleep 1000' },
                                            { cmd => 'true' } ] }) };
    my $id;

    until_true { $id = ((sessions())[0] // {})->{session_id} };
    until_true { session_pids($id) > 1 };
    is(call('DELETE', "/sessions/$id")->{status}, 204, 'by DELETE');

    my $res = $job->get;
    is(join(' ', $res->{status},
            map { $_->{reason} } @{ $res->{json}{steps} }),
       '200 session_ended', 'is told');

    $res = run_call({ timeout_s => 3, steps => [ { cmd => 'sleep 1000' },
                                                   { cmd => 'true' } ] });
    is(join(' ', $res->{status},
            map { $_->{reason} } @{ $res->{json}{steps} }),
       '200 session_ended', 'by its time too');
    nothing_left('nothing is left', 1);
};


subtest 'a broker and a worker that die' => sub {
    my $job = async { run_call({ steps => [ { cmd => 'sleep 1000' } ] }) };
    my $id;

    until_true { $id = ((sessions())[0] // {})->{session_id} };
    until_true { session_pids($id) > 1 };

    my $old = $t->broker;
    kill 'KILL', $old;
    ok(until_true {
        my $new = $t->broker;
        $new && $new != $old && call('GET', '/health')->{status} == 200
    }, 'a broker again');
    nothing_left('a run does not outlive its broker');
    ok($job->get->{status}, 'its client is answered');

    $t->allow(qr/sandbox call was (?:cut off|lost)/,
              qr/worker process \d+ exited on signal 9/);
    $job = async { run_call({ steps => [ { cmd => 'sleep 1000' } ] }) };
    until_true { $id = ((sessions())[0] // {})->{session_id} };
    until_true { session_pids($id) > 1 };
    kill 'KILL', workers();
    nothing_left('nor its worker');
    $job->get;
    is(run_call({ steps => [ { cmd => 'echo on' } ] })->{json}{steps}[0]
       {stdout}, "on\n", 'and it goes on');
};


subtest 'many at once' => sub {
    my @jobs = map { my $n = $_; async {
        run_call({ files => { n => "$n" }, steps => [ { cmd => 'cat n' } ] })
            ->{json}{steps}[0]{stdout}
    } } 1 .. 12;

    is(join(' ', map { $_->get // '-' } @jobs), join(' ', 1 .. 12),
       'each has its own');
    nothing_left('nothing is left', 1);
};


$t->finish;
done_testing;
