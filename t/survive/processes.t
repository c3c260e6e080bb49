#!/usr/bin/perl

# No process can be made any more, by the broker, the keeper, or a session's
# first process: what runs goes on, what would need one is told to try again,
# and all of it comes back with the first that can be made.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../lib";

use JSON::PP ();
use SandboxTest::Net;
use Test::More;
use SandboxTest::Exhaust;
use SandboxTest::Group;
use SandboxTest::More;
use SandboxTest::Survive;

my $AT = '203.0.113.10';
my $net = SandboxTest::Net->new;
my $group = SandboxTest::Group->new('pids')
    // plan(skip_all => 'no group for processes can be made here');

my $t = exhaust_server(t => $net->server(
    workers => 1, quotas => 1, http => "    sandbox_egress allow *;\n",
    server => '        location /admin/ { sandbox_api admin; }'));

my $s = SandboxTest::Survive->new(t => $t);
my $id = $s->create({ timeout_s => 1800,
                      manifest => { network => JSON::PP::true } })
         ->{json}{session_id};
my $ticks = ticks($s->{runs});
my ($broker, $keeper) = ($t->broker, $t->keeper);
my %http = (do => 'http', to => $AT, port => 80);

put($id, 'mark', 'mark');

sub refusals { return $group->count('pids.events', 'max') }

sub no_more { return $group->set('pids.max', $group->get('pids.current')) }

sub reaches {
    my ($r) = $net->try($id, \%http);

    return ($r->{status} // 0) == 200;
}


subtest 'the broker' => sub {
    ok($group->put($broker) && no_more(), 'it may have no more');

    create_refused();
    is(run($id, [ 'echo', 'on' ])->{stdout}, "on\n",
       'a command of a session runs');
    is(put($id, 'more', 'x')->{status}, 201, 'a file is written');
    is(call('POST', "/sessions/$id/code", json => { code => '40 + 2' })
       ->{json}{text}, 42, 'code runs');
    ok(reaches(), 'the world is reached');
    at_rest('nobody tries without end', $broker, $keeper);

    # the egress, for which there is then no other

    my $egress = $s->egress;

    ok(kill(KILL => $egress) && SandboxTest::gone([ $egress ], 10),
       'the egress is killed');
    no_more();

    my $were = refusals();

    ok(until_true(sub { refusals() > $were }, 10),
       'another one cannot be made') or diag($group->get('pids.events'));
    at_rest('nor without end', $broker, $keeper);
    goes_on($ticks, 'who needs no network goes on');

    ok($group->leave, 'it may again');
    ok(until_true(sub { ($s->egress // $egress) != $egress }, 10),
       'then there is one');
    ok(until_true(\&reaches, 10), 'and the world is reached');
    is($t->broker, $broker, 'by the same broker');
    works_again($s, 'the broker');
    $s->unharmed('nothing is left or lost', $id);
};


# Of version 2's groups a session's first process is made in the one that it is
# to be in, and counted there: then what holds those of all sessions is full.
# The group that would count the refusal is gone with the session.

sub create_refused {
    my $all = (first_group($id) // '') =~ s{/\Q$id\E/init$}{}r;
    my $usual = $group->two ? slurp("$all/pids.max") : undef;
    my $told = qr/clone the session's first process \(11:/;
    my ($were, $said) = (refusals(), $t->log_has($told));

    set_max($all, slurp("$all/pids.current")) if $usual;
    told_to_wait($s->create, 'a new session');
    set_max($all, $usual) if $usual;

    cmp_ok($usual ? $t->log_has($told) : refusals(), '>',
           $usual ? $said : $were, 'the kernel has refused it');

    return;
}


subtest 'the keeper' => sub {
    my $were = refusals();

    ok($group->put($keeper) && $group->set('pids.max', 1),
       'it may have no more');
    ok($t->hit(KILL => $broker) && SandboxTest::gone([ $broker ], 10),
       'the broker is killed');
    ok(until_true(sub {
        $t->log_has(qr/the broker cannot be started: fork\(\) .* \(11:/)
    }, 10), 'no other can be started');
    cmp_ok(refusals(), '>', $were, 'the kernel has counted it');
    goes_on($ticks, 'what runs goes on');
    at_rest('the keeper waits', $keeper);

    # a broker without its threads

    my $call = async { get($id, 'mark') };

    $were = refusals();
    $group->set('pids.max', 3);
    ok(until_true(sub { refusals() > $were }, 10),
       'then one that lacks threads');

    # a broker makes its groups where it is: the next one has to be where the
    # first one was

    ok($group->leave, 'it may again');
    is($call->get->{status}, 200, 'a call waits for one that has them');
    is($t->keeper, $keeper, 'the keeper is the same');
    $broker = $t->broker;
    works_again($s, 'the keeper');
    $s->unharmed('nothing is left or lost', $id);
};


subtest 'a first process' => sub {
    my @own = own_groups($id);

    plan(skip_all => 'it has no group') if !@own;

    my %usual = map { $_ => slurp("$_/pids.max") } @own;

    set_max($_, slurp("$_/pids.current")) for @own;

    my $were = events(@own);

    told_to_wait(exec_call($id, [ 'echo', 'no' ]), 'a command');
    told_to_wait(put($id, 'more', 'y'), 'an upload');
    told_to_wait(get($id, 'mark'), 'a download');
    cmp_ok(events(@own), '>=', $were + 3, 'the kernel has counted them');
    at_rest('it does not try without end', init_of($id), $broker);
    goes_on($ticks, 'another session goes on');
    set_max($_, $usual{$_}) for @own;

    is(run($id, [ 'echo', 'on' ])->{stdout}, "on\n", 'then a command runs');
    is(get($id, 'more')->{body}, 'x', 'and the file is as it was');
    is(call('POST', "/sessions/$id/code", json => { code => '40 + 2' })
       ->{json}{execution_count}, 2, 'the interpreter is the same');
};

sub first_group {
    my ($id) = @_;

    return (grep { m{/init$} } own_groups($id))[0];
}

# Where it makes processes: in its own group or, of version 2's, in that of
# those who serve file calls.

sub own_groups {
    my ($id) = @_;

    return grep { m{/\Q$id\E/(?:init|work/files)$} && -e "$_/pids.max" }
           cgroup_dirs();
}

sub set_max {
    my ($dir, $value) = @_;

    open my $f, '>', "$dir/pids.max" or die "$dir: $!";
    syswrite $f, $value or die "$dir: $!";

    return;
}

sub events {
    my $n = 0;

    $n += (slurp("$_/pids.events") =~ /max (\d+)/)[0] for @_;

    return $n;
}


$ticks->close;
is(destroy($id)->{status}, 204, 'the session ends');
$s->over;
ok($group->remove, 'the group is removed');

done_testing();
