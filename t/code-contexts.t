#!/usr/bin/perl

# Contexts: interpreters of one session beside each other, what they share and
# what not, their queues, restarts and ends.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";

use Test::More;
use SandboxTest::More;
use SandboxTest::Code;

my $t = code_server();
my $s = create_ok();

sub make {
    my (%fields) = @_;

    return call('POST', "/sessions/$s/contexts", timeout => within(60),
                json => \%fields);
}

# Code that is there until a file is.

sub until_file {
    my ($name) = @_;

    my $path = "/home/user/$name";

    return "import os, time\nopen('$path.on', 'w').close()\n"
           . "while not os.path.exists('$path'): time.sleep(0.02)\n";
}

sub is_on { my ($name) = @_; return get($s, "$name.on")->{status} == 200 }


subtest 'the default ones are made when they are used' => sub {
    is(scalar contexts($s), 0, 'none at first');
    is_problem(code_call($s, '1', context_id => 'nothing'), 404, 'E3005',
               'one that is not there');
    code($s, 'where = "default"');

    my ($c, @more) = contexts($s);

    is(scalar @more, 0, 'one of them');
    is("$c->{context_id} $c->{language} $c->{cwd} $c->{state} $c->{waiting} "
       . $c->{execution_count}, 'python python /home/user idle 0 1',
       'as it is told');
    is(code($s, 'where', context_id => 'python')->{text}, "'default'",
       'is found by its name');
    is(code($s, 'where', language => 'python', context_id => undef)->{text},
       "'default'", 'and by its language');
};


subtest 'another one' => sub {
    my $res = make(language => 'python', cwd => '/tmp');
    my $c = $res->{json};

    is($res->{status}, 201, 'status');
    like($c->{context_id}, qr/^[A-Za-z0-9_-]{1,64}$/, 'id');
    is($res->{headers}{location}, "/v1/sessions/$s/contexts/$c->{context_id}",
       'where it is');
    is("$c->{language} $c->{cwd} $c->{state}", 'python /tmp idle', 'what');

    my %c = (context_id => $c->{context_id});

    is(code($s, "'where' in globals()", %c)->{text}, 'False',
       'has no state of another');
    is(code($s, 'import os; os.getcwd()', %c)->{text}, "'/tmp'",
       'begins where it was told to');
    is(code($s, 'os.chdir("/"); x = 2', %c)->{context_id}, $c->{context_id},
       'is named in its answers');
    is(code($s, 'x, os.getcwd()', %c)->{text}, "(2, '/')", 'remembers');
    is(code($s, 'open("/tmp/shared", "w").write("hi")')->{text}, '2',
       'files are');
    is(code($s, 'open("/tmp/shared").read()', %c)->{text}, "'hi'",
       'the session\'s');
    is(scalar contexts($s), 2, 'both are listed');

    is_problem(code_call($s, '1', %c, language => 'cobol'), 400, 'E3001',
               'an unknown language', qr{^/language});

    SKIP: {
        skip 'there is no other language', 1 if !language_is_there('bash');
        is_problem(code_call($s, '1', %c, language => 'bash'), 400, 'E3001',
                   'another one\'s', qr{^/context_id});
    }

    is(make()->{json}{cwd}, '/home/user', 'all may be left out');
};


subtest 'runs of one wait for each other' => sub {
    my $first = async { code($s, until_file('one') . "order = ['first']") };
    ok(until_true { is_on('one') } 20);

    my @more = map {
        my $n = $_;
        my $job = async { code($s, "order.append($n); order") };
        until_true { context($s, 'python')->{waiting} == $n } 20;
        $job;
    } 1 .. 3;

    my $c = context($s, 'python');
    is("$c->{state} $c->{waiting}", 'running 3', 'as the list tells');

    put($s, 'one', '');
    is($first->get->{error}, undef, 'the first');
    is($more[2]->get->{text}, "['first', 1, 2, 3]",
       'the others in their order');
};


subtest 'contexts run in parallel' => sub {
    my $id = make()->{json}{context_id};
    my $first = async { code($s, until_file('two') . "'first'") };

    ok(until_true { is_on('two') } 20);
    is(code($s, "open('two', 'w').close(); 'second'",
            context_id => $id)->{text}, "'second'", 'one ends');
    is($first->get->{text}, "'first'", 'what another waits for');
};


subtest 'a restart' => sub {
    my $id = make(cwd => '/tmp')->{json}{context_id};
    my %c = (context_id => $id);

    code($s, 'x = 1; import os; os.chdir("/")', %c);

    my $pid = context($s, $id)->{pid};
    my $running = async { code($s, until_file('never'), %c) };
    ok(until_true { is_on('never') } 20);
    my $waiting = async { code($s, 'print("never")', %c) };
    ok(until_true { context($s, $id)->{waiting} == 1 } 20);

    my $res = call('POST', "/sessions/$s/contexts/$id/restart",
                   timeout => within(60));
    is($res->{status}, 200, 'is answered');
    is("$res->{json}{context_id} $res->{json}{state} "
       . "$res->{json}{execution_count}", "$id idle 0", 'when it is ready');
    isnt($res->{json}{pid}, $pid, 'with another interpreter');

    my $j = $running->get;
    is("$j->{reason} $j->{error}{name}", 'cancelled KernelDied',
       'what ran is told');
    $j = $waiting->get;
    is("$j->{reason} $j->{stdout}", 'cancelled ', 'and what waited');
    is(code($s, "'x' in globals()", %c)->{text}, 'False', 'state is gone');
    is(code($s, 'import os; os.getcwd()', %c)->{text}, "'/tmp'",
       'it begins where it did');
    is_problem(call('POST', "/sessions/$s/contexts/none/restart"), 404,
               'E3005', 'of none');
    is_problem(call('POST', "/sessions/$s/contexts/$id/restart",
                    json => { x => 1 }), 400, 'E3001', 'it has no fields');
};


subtest 'an end' => sub {
    my $id = make()->{json}{context_id};
    my $pid = context($s, $id)->{pid};
    my $running = async { code($s, until_file('end'), context_id => $id) };

    ok(until_true { context($s, $id)->{state} eq 'running' } 20);
    is(call('DELETE', "/sessions/$s/contexts/$id")->{status}, 204, 'status');
    is($running->get->{reason}, 'cancelled', 'what ran is told');
    is_deeply(context($s, $id), {}, 'it is not listed');
    is_problem(code_call($s, '1', context_id => $id), 404, 'E3005',
               'nor there');
    is_problem(call('DELETE', "/sessions/$s/contexts/$id"), 404, 'E3005',
               'twice');

    my ($p) = grep { $_->{pid} == $pid }
              @{ call('GET', "/sessions/$s/processes")->{json}{processes} };
    is($p ? $p->{state} : 'exited', 'exited', 'its interpreter is dead');

    call('DELETE', "/sessions/$s/contexts/python");
    is(code($s, "'where' in globals()")->{text}, 'False',
       'a language\'s own is made anew');
};


subtest 'how many there may be' => sub {
    my $many = create_ok();
    my $first = call('POST', "/sessions/$many/contexts",
                     timeout => within(60))->{json}{context_id};
    my $job = async { code($many, 'import time; time.sleep(600)') };
    ok(until_true { (context($many, 'python')->{state} // '') eq 'running' }
       20);

    my @waiting = map {
        open_request('POST', "/sessions/$many/code", json => { code => '1' })
    } 1 .. 64;

    ok(until_true { context($many, 'python')->{waiting} == 64 } 30);

    my $res = code_call($many, '1');
    is_problem($res, 429, 'E2003', 'runs that wait');
    is("$res->{json}{scope} $res->{json}{resource} $res->{json}{limit}",
       'session runs 64', 'have a limit');
    is(call('POST', "/sessions/$many/cancel")->{json}{cancelled}, 65,
       'all are cancelled');
    is(read_response($waiting[63])->{json}{reason}, 'cancelled', 'the last');
    $job->get;
    destroy($many);
};


subtest 'requests that are refused' => sub {
    is_problem(make(language => 'cobol'), 400, 'E3001', 'a language',
               qr{^/language: .*python});
    is_problem(make(language => 7), 400, 'E3001', 'no language');
    is_problem(make(cwd => "/a\0b"), 400, 'E4002', 'no directory');
    is_problem(make(cwd => ''), 400, 'E4002', 'an empty one');
    is_problem(make(name => 'x'), 400, 'E3001', 'an unknown field',
               qr{^/name});
    is_problem(call('PUT', "/sessions/$s/contexts", json => {}), 405,
               'E3010', 'another method');
    is_problem(call('GET', "/sessions/$s/contexts/python"), 405, 'E3010',
               'one alone');
};

$t->finish;
done_testing();
