#!/usr/bin/perl

# What becomes of a session's network when processes die, configuration
# changes, and the session stops, goes on and ends.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";

use JSON::PP ();
use Test::More;
use SandboxTest;
use SandboxTest::Net;

my $net = SandboxTest::Net->new;
my $t = $net->server(server => <<'CONF', http => conf('*'));
        location = /metrics { sandbox_api metrics; }
CONF
my $at = '203.0.113.10';
my $get = { do => 'http', to => $at, port => 80 };


sub conf {
    my ($rules) = @_;

    return <<"CONF";
    sandbox_egress allow $rules;
    sandbox_template pooled { egress allow *; }
    sandbox_pool pooled sessions=2;
CONF
}

sub session {
    return $t->session(manifest => { network => JSON::PP::true }, @_);
}

sub usage { return $t->api(GET => "/sessions/$_[0]")->{json}{usage} }

sub metric {
    my ($name) = @_;

    my ($n) = $t->http(GET => '/metrics')->{body}
              =~ /^sandbox_\Q$name\E (\S+)$/m;

    return $n;
}

# The process that has all connections: it has no child and is the keeper's.

sub egress {
    my ($pid) = grep {
        (SandboxTest::slurp("/proc/$_/cmdline") // '') =~ /^sandbox-egress/
    } SandboxTest::children($t->keeper);

    return $pid;
}

sub works {
    my ($id) = @_;

    my $r;
    SandboxTest::wait_for(sub {
        ($r) = $net->try($id, $get);
        return ($r->{status} // 0) == 200;
    }, 5);

    return reached($r, 'new connections work');
}


subtest 'the egress is nobody' => sub {
    ok($net->hold(session(), $at), 'it works');

    my $pid = egress() // 'none';
    my $status = SandboxTest::slurp("/proc/$pid/status") // '';

    like($status, qr/^Uid:\s+([1-9]\d*)\s+\1\s+\1\s+\1$/m, 'no root');
    like($status, qr/^Cap$_:\s+0+$/m, "no capability, $_")
        for qw(Inh Prm Eff Amb);
    like($status, qr/^NoNewPrivs:\s+1$/m, 'nor a way to one');
    like($status, qr/^Seccomp:\s+2$/m, 'with a filter')
        if !$SandboxTest::SANITIZE;
    like($status, qr/^Groups:\s*$/m, 'in no group');
    is((grep { !/^(?:dev|etc|lib\w*|proc|usr)$/ }
        map { m{/root/(.*)} } glob "/proc/$pid/root/*"), 0,
       'no files are there for it but programs');

    for my $ns (qw(mnt pid ipc uts)) {
        isnt(readlink "/proc/$pid/ns/$ns",
             readlink "/proc/@{[ $t->broker ]}/ns/$ns", "its own $ns");
    }

    is((SandboxTest::slurp("/proc/$pid/environ") // '') =~ tr/=//, 0,
       'it has no environment');
    my @open = grep { defined && m{^/} }
               map { readlink } glob "/proc/$pid/fd/*";
    is((grep { !m{^/(?:(?:dev/)?null$|memfd:)|/egress-ca\.(?:pem|crt)$
                  |/error\.log$|^/proc/1/task/1/schedstat$}x } @open), 0,
       'and no file but what it needs') or diag("@open");
};


subtest 'the egress dies' => sub {
    my $id = session();
    my $held = $net->hold($id, $at);
    my $sent = usage($id)->{network_sent};
    my $old = egress();

    ok($old, 'it runs');
    isnt((stat "/proc/$old")[4], 0, 'as nobody who has rights');
    is(metric('egress_up'), 1, 'which is told');
    $t->remember($old);
    $t->hit(KILL => $old);

    like($net->held($id, $held, qr/^(?!up)/), qr/^(?:ECONNRESET|end)$/,
         'connections end');
    works($id);
    isnt(egress(), $old, 'by another');
    is(metric('egress_restarts_total'), 1, 'which is counted');
    cmp_ok(usage($id)->{network_sent}, '>', $sent, 'totals go on');
    is($t->api(DELETE => "/sessions/$id")->{status}, 204, 'and it ends');
};


subtest 'the broker dies' => sub {
    my $id = session();
    my $held = $net->hold($id, $at);
    my ($broker, $egress) = ($t->broker, egress());

    $t->hit(KILL => $broker);
    SandboxTest::wait_for(sub {
        my $pid = $t->broker // 0;
        return $pid != $broker && SandboxTest::alive($pid) && $t->ready;
    }, 10);

    is($net->held($id, $held, qr/up/), 'up', 'connections go on');
    works($id);
    is(egress(), $egress, 'by the same process');
    cmp_ok(usage($id)->{connections}, '>=', 1, 'what is used is told');
    is($t->api(PATCH => "/sessions/$id", { network => JSON::PP::false })
       ->{status}, 200, 'and can be changed');
    is($net->held($id, $held, qr/^(?!up)/), 'ECONNRESET', 'at once');
};


subtest 'a session that stops and goes on' => sub {
    my $id = session();
    my $held = $net->hold($id, $at);

    is($t->api(POST => "/sessions/$id/pause")->{status}, 200, 'is paused');
    is($t->api(POST => "/sessions/$id/resume")->{status}, 200, 'goes on');
    is($net->held($id, $held, qr/up/), 'up', 'with its connections');
    works($id);
};


subtest 'a session that ends' => sub {
    my $id = session();
    my $before = metric('network_connections');

    ok($net->hold($id, $at) && $net->hold($id, $at), 'with connections');
    is(metric('network_connections'), $before + 2, 'which are counted');
    $t->api(DELETE => "/sessions/$id");
    is(SandboxTest::wait_for(sub {
        return metric('network_connections') == $before;
    }, 5), 1, 'ends them');
};


subtest 'a session that was made before' => sub {
    SandboxTest::wait_for(sub {
        return $t->http(GET => '/metrics')->{body} =~
               /^sandbox_pool_sessions\{template="pooled",state="ready"\} 2/m;
    }, 10);
    my $id = session(template => 'pooled');
    like($t->http(GET => '/metrics')->{body},
         qr/^sandbox_pool_hits_total\{template="pooled"\} 1/m, 'is given out');
    is(($net->try($id, $get))[0]{status}, 200, 'with its network');
    my $none = $t->session(template => 'pooled');
    is(($net->try($none, $get))[0]{error}, 'ENETUNREACH', 'or without');
};


subtest 'the operator grants less' => sub {
    my $id = session();
    my $held = $net->hold($id, $at);
    my $kept = $net->hold($id, '203.0.113.11');

    my $http = $t->{http} =~ s/sandbox_egress allow \K\*/203.0.113.11/r;
    $t->write_conf(http => $http);
    $t->reload;

    is($net->held($id, $held, qr/^(?!up)/), 'ECONNRESET',
       'which cuts what is no longer granted');
    is($net->held($id, $kept, qr/up/), 'up', 'and nothing else');
    refused(($net->try($id, $get))[0], 'what is new is judged so');
    is(($net->try($id, { %$get, to => '203.0.113.11' }))[0]{status}, 200,
       'as well');

    # none at all

    $t->write_conf(http => $http =~ s/\s+sandbox_egress allow[^;]*;//r);
    $t->reload;
    is($net->held($id, $kept, qr/^(?!up)/), 'ECONNRESET', 'nothing of it');
    refused(($net->try($id, { %$get, to => '203.0.113.11' }))[0], 'is left');
    is($t->api(GET => "/sessions/$id")->{json}{network}, 'none',
       'which is told');
    is($t->api(POST => "/sessions/$id/install", { packages => ['six'] })
       ->{json}{code}, 'E3003', 'and known before anything is installed');

    $t->write_conf(http => $http);
    $t->reload;
    is($t->api(GET => "/sessions/$id")->{json}{network}, 'restricted',
       'until some is granted again');
    is(($net->try($id, { %$get, to => '203.0.113.11' }))[0]{status}, 200,
       'which holds then');
};

$t->finish;
done_testing();
