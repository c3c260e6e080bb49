#!/usr/bin/perl

# No memory: an allocation that fails is an answer, and the process goes on;
# one that the kernel kills for want of memory is like one that is killed.

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

my $t = exhaust_server(t => $net->server(
    workers => 1, quotas => 1, http => "    sandbox_egress allow *;\n",
    server => '        location /admin/ { sandbox_api admin; }'));

my $s = SandboxTest::Survive->new(t => $t);
my $id = $s->create({ timeout_s => 1800,
                      manifest => { network => JSON::PP::true } })
         ->{json}{session_id};
my $ticks = ticks($s->{runs});
my ($broker, $keeper) = ($t->broker, $t->keeper);
my ($worker) = $t->workers;
my %http = (do => 'http', to => $AT, port => 80);

put($id, 'mark', 'mark');

# Of what a session is made with, as much as there may be.

my %env = map { ("V$_" => 'x' x 4000) } 1 .. 50;


# ---- allocations that fail -------------------------------------------------

subtest 'a worker' => sub {
    my @status;

    # a line that it has to put together from pieces; bodies that it keeps

    ok(little_memory($worker), 'it has no more memory');

    for my $n (1 .. 6) {
        my $res = $s->create({ metadata => { map { ("m$_" => 'x' x 900) }
                                             1 .. 16 },
                               env => \%env, manifest => {
                                 filesystem => { files => [] } } });
        push @status, $res->{status};
        destroy($res->{json}{session_id}) if $res->{status} == 201;
        push @status, exec_call($id, 'head -c 900000 /dev/zero')->{status};
    }

    my %odd = map { $_ => 1 } grep { !/^(?:0|20[01]|500)$/ } @status;

    is(join(' ', sort keys %odd), '', 'answers are what they may be')
        or diag("@status");
    cmp_ok($t->log_has(qr/alloc\(\d+\) failed \(12:|\(12: Cannot alloc/),
           '>', 0, 'its log tells why') or diag("@status");

    # an answer that has begun needs memory now and then, too: it is cut when
    # there was none for it, and by nothing else

    my $heard = is_heard($ticks);
    my $lacked = $t->log_has(qr/alloc\(\d+\) failed \(12:.*\Q$s->{runs}\E/);

    ok($heard || $lacked, 'an answer that has begun and needs none goes on');
    at_rest('it does not try without end', $worker);
    enough_memory($worker);

    if (!$heard) {
        $ticks->close;
        $ticks = ticks($s->{runs});
    }

    is(($t->workers)[0], $worker, 'it has not ended');
    works_again($s, 'a worker');
    $s->unharmed('nothing is left or lost', $id);
};

subtest 'the broker' => sub {
    my ($refused, $odd, $last, @made) = (0, '', '');

    ok(little_memory($broker), 'it has no more memory');

    # its heap may have room for some, which then stay

    for my $n (1 .. 200) {
        my $res = $s->create({ tenant_id => "t$n", env => \%env,
                               metadata => { map { ("m$_" => 'x' x 900) }
                                             1 .. 16 } });
        my $code = $res->{json}{code} // '';

        if ($res->{status} == 201) {
            push @made, $res->{json}{session_id};
            next;
        }

        $last = $res->{body};
        $odd = $res->{body} if $res->{status} != 503 || $code ne 'E5001'
                               || !$res->{headers}{'retry-after'};
        last if ++$refused == 6;
    }

    cmp_ok($refused, '>', 0, 'sessions are refused');
    is($odd, '', 'for a while');
    cmp_ok($t->log_has(qr/ $broker#\d+: .*\(12: Cannot allocate memory\)/),
           '>', 0, 'its log tells why') or diag($last);
    is(run($id, [ 'echo', 'on' ])->{stdout}, "on\n", 'commands run');
    at_rest('it does not try without end', $broker);
    goes_on($ticks);
    is((grep { destroy($_)->{status} != 204 } @made), 0, 'sessions end');
    enough_memory($broker);
    is($t->broker, $broker, 'it has not ended');
    works_again($s, 'the broker');
    $s->unharmed('nothing is left or lost', $id);
};


# ---- killed by the kernel --------------------------------------------------

# Whoever is in a group with so little is killed with the next page.

sub killed_by_kernel {
    my ($pid, $name, $need) = @_;

    my $group = SandboxTest::Group->new('memory')
        // plan(skip_all => 'no group for memory can be made here');
    my ($limit, $events) = $group->two
        ? ('memory.max', 'memory.events')
        : ('memory.limit_in_bytes', 'memory.oom_control');

    $group->set('memory.swap.max', 0) if $group->two;
    ok($group->set($limit, 4096), 'a group has hardly any memory');
    ok($group->put($pid), "$name is in it");

    my $res = $need->();

    ok(SandboxTest::gone([ $pid ], 20), 'it is killed');
    cmp_ok($group->count($events, 'oom_kill'), '>', 0, 'by the kernel');
    ok($group->remove, 'the group is removed');

    return $res;
}

subtest 'a worker that is killed for memory' => sub {
    my $res = killed_by_kernel($worker, 'the worker', sub {
        exec_call($id, 'head -c 900000 /dev/zero');
    });

    is($res->{status}, 0, 'its connections are cut');
    ok(until_true(sub { $t->workers == 1
                        && call('GET', '/health')->{status} == 200 }, 20),
       'another one serves');
    works_again($s, 'the next worker');
};

# what was followed was the worker's

$ticks->close;
$ticks = ticks($s->{runs});

subtest 'the broker that is killed for memory' => sub {
    my $res = killed_by_kernel($broker, 'the broker', sub {
        $s->create({ env => \%env });
    });

    is($res->{status}, 201, 'the next one makes the session');
    destroy($res->{json}{session_id});
    goes_on($ticks, 'what runs goes on');
    $broker = $t->broker;
    is($t->keeper, $keeper, 'the keeper is the same');
    $s->unharmed('nothing is left or lost', $id);
};

subtest 'the egress that is killed for memory' => sub {
    my $egress = $s->egress;

    killed_by_kernel($egress, 'the egress', sub {
        my @jobs = map { async { [ $net->try($id, (\%http) x 4) ] } } 1 .. 3;
        $_->get for @jobs;
    });

    ok(until_true(sub {
        my ($r) = $net->try($id, \%http);
        return ($r->{status} // 0) == 200;
    }, 20), 'the next one leads to the world');
    $s->unharmed('nothing is left or lost', $id);
};


$ticks->close;
is(destroy($id)->{status}, 204, 'the session ends');
$t->allow(qr/alloc\(\d+\) failed \(12:/);
$s->over;

done_testing();
