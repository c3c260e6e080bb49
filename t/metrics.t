#!/usr/bin/perl

# Metrics, read by a strict parser of Prometheus' text format.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";

use JSON::PP ();
use Test::More;
use SandboxTest;
use SandboxTest::More;

my $t = SandboxTest->new(
    workers => 2,
    http => "    sandbox_quota user sessions=2;\n"
            . "    sandbox_quota node sessions=50 memory=64GB;\n"
            . "    sandbox_pool base sessions=1;",
    server => <<'CONF')->start;
        location = /metrics { sandbox_api metrics; }
        location /admin/ { sandbox_api admin; }
        location /tenant/ {
            sandbox_tenant $http_x_tenant;
            sandbox_api v1;
        }
CONF


# { name => { "label=value,..." => number } }, or what is wrong.

sub parse_text {
    my ($text) = @_;

    my (%type, %help, %seen, %done, $family);
    my $name = qr/[a-zA-Z_:][a-zA-Z0-9_:]*/;

    return 'no end of line' if $text !~ /\n\z/;

    for my $line (split /\n/, $text) {

        if ($line =~ /^# HELP ($name) ([^\n]+)$/) {
            return "HELP of $1 twice" if $help{$1}++;
            $done{$family} = 1 if defined $family;
            $family = $1;
            next;
        }

        if ($line =~ /^# TYPE ($name) (counter|gauge|histogram)$/) {
            return "TYPE of $1 without its HELP"
                if $1 ne ($family // '') || $type{$1};
            $type{$1} = $2;
            next;
        }

        my ($n, $labels, $value) =
            $line =~ /^($name)(?:\{([^}]*)\})? (-?[0-9.]+(?:e[+-]?\d+)?)$/
            or return "line: $line";
        $labels //= '';

        for my $pair (split /,/, $labels) {
            return "label: $line"
                if $pair !~ /^[a-zA-Z_]\w*="(?:[^"\\\n]|\\[\\"n])*"$/;
        }

        my $base = ($type{$family // ''} // '') eq 'histogram'
                   ? $n =~ s/_(?:bucket|sum|count)$//r : $n;
        return "$n is not of $family" if $base ne ($family // '');
        return "$family has two parts" if $done{$family};
        return "$n is negative" if $type{$family} ne 'gauge' && $value < 0;
        return "$n is no counter's name"
            if $type{$family} eq 'counter' && $n !~ /_total$/;
        return "$line twice" if exists $seen{$n}{$labels};
        $seen{$n}{$labels} = $value;
    }

    for my $f (grep { $type{$_} eq 'histogram' } keys %type) {
        my %last;

        for my $l (sort { bound($a) <=> bound($b) }
                   keys %{ $seen{"${f}_bucket"} })
        {
            my $rest = $l =~ s/,?le="[^"]*"//r;
            my $v = $seen{"${f}_bucket"}{$l};
            return "$f: buckets fall" if $v < ($last{$rest} // 0);
            $last{$rest} = $v;
        }

        for my $rest (keys %last) {
            return "$f: no +Inf, or not the count"
                if !defined $seen{"${f}_count"}{$rest}
                   || $seen{"${f}_count"}{$rest} != $last{$rest}
                   || !defined $seen{"${f}_sum"}{$rest};
        }
    }

    return \%seen;
}

sub bound {
    my ($labels) = @_;

    return 9**9**9 if $labels =~ /le="\+Inf"/;
    return $labels =~ /le="([^"]+)"/ ? $1 : -1;
}

sub metrics {
    my $res = $t->http(GET => '/metrics');
    my $m = parse_text($res->{body});

    ref $m or BAIL_OUT("metrics: $m");

    return $m;
}

# Counts happen when a request has been answered, a moment after the answer.

sub soon {
    my ($name, $labels, $want, $what) = @_;

    my $got;
    SandboxTest::wait_for(sub {
        $got = metrics()->{"sandbox_$name"}{$labels} // 'none';
        return $got eq $want;
    }, 5);

    return is($got, $want, $what);
}


subtest 'the parser refuses what is wrong' => sub {
    my $ok = "# HELP a_total x\n# TYPE a_total counter\n";
    is(ref parse_text($ok . "a_total 1\n"), 'HASH', 'and takes what is right');
    isnt(ref parse_text($ok . $_), 'HASH', 'bad: ' . s/\n/\\n/gr)
        for "a_total 1", "b_total 1\n", "a_total{x=1} 1\n", "a_total\n",
            "a_total 1\na_total 2\n", "a_total x\n", "a_total -1\n";
};

my $res = $t->http(GET => '/metrics');
is($res->{status}, 200, 'an answer');
is($res->{headers}{'content-type'},
   'text/plain; version=0.0.4; charset=utf-8', 'its type');
is($t->http(HEAD => '/metrics')->{status}, 200, 'HEAD');
is($t->http(POST => '/metrics')->{status}, 405, 'no POST');

my $m = parse_text($res->{body});
is(ref $m, 'HASH', 'the format') or diag($m);
is($m->{sandbox_broker_up}{''}, 1, 'the broker is up');
is((values %{ $m->{sandbox_build_info} })[0], 1, 'the build');
is($m->{sandbox_node_limit}{'resource="sessions"'}, 50, 'a limit');
is($m->{sandbox_node_free}{'resource="memory"'}, 64 << 30, 'what is free');
ok(!exists $m->{sandbox_node_limit}{'resource="disk"'}, 'no limit, no line');

my @ids = map { $t->session(tenant_id => 'acme', user_id => 'ann') } 1, 2;
soon('sessions', 'state="running"', 2, 'sessions that run');
soon('creates_total', 'result="created"', 2, 'creates');
soon('node_used', 'resource="sessions"', 2, 'use');
soon('node_free', 'resource="sessions"', 48, 'and the rest');

is($t->api(POST => '/sessions', { tenant_id => 'acme', user_id => 'ann' })
   ->{status}, 429, 'a third session');
soon('quota_refusals_total', 'scope="user",resource="sessions"', 1,
     'is counted by scope and resource');
soon('errors_total', 'code="E2003"', 1, 'and by code');
soon('creates_total', 'result="refused"', 1, 'and as a refusal');

$t->api(POST => '/drain', undef, base => '/admin');
is($t->api(POST => '/sessions', { tenant_id => 'acme', user_id => 'bob' })
   ->{json}{code}, 'E2004', 'a node that drains');
$t->api(POST => '/undrain', undef, base => '/admin');
soon('creates_total', 'result="refused"', 2, 'refuses as well');
is(metrics()->{sandbox_creates_total}{'result="failed"'}, 0,
   'which is no failure of the server');

$t->api(POST => "/sessions/$ids[0]/exec", { cmd => 'exit 3' }) for 1 .. 5;
$t->api(POST => "/sessions/$ids[0]/exec", { cmd => 'sleep 9',
                                            timeout_s => 1 });
soon('execs_total', 'reason="exited"', 5, 'commands');
soon('execs_total', 'reason="timeout"', 1, 'by reason');
soon('request_duration_seconds_count', 'op="exec"', 6, 'their times');
cmp_ok(metrics()->{sandbox_request_duration_seconds_sum}{'op="exec"'}, '>=',
       0.9, 'add up');
is(metrics()->{sandbox_request_duration_seconds_bucket}
   {'op="exec",le="0.5"'}, 5, 'and are in buckets')
    if $SandboxTest::SLOW == 1 && !$ENV{SANDBOX_TEST_NOISY};

my $before = metrics();
$t->http(PUT => "/v1/sessions/$ids[0]/files/home/user/f", body => 'x' x 50000);
$t->http(GET => "/v1/sessions/$ids[0]/files/home/user/f");
SandboxTest::wait_for(sub {
    my $now = metrics();
    return $now->{sandbox_requests_total}{'op="download",class="2xx"'} == 1;
}, 5);
my $after = metrics();
cmp_ok($after->{"sandbox_${_}_bytes_total"}{''}
       - $before->{"sandbox_${_}_bytes_total"}{''}, '>=', 50000, "bytes $_")
    for qw(received sent);

$t->api(DELETE => "/sessions/$ids[1]");
soon('sessions_ended_total', 'reason="destroyed"', 1, 'ends');
soon('request_duration_seconds_count', 'op="destroy"', 1, 'with their time');

subtest 'every command is counted once, whoever sees its end' => sub {
    my $s = $t->session(tenant_id => 'other', user_id => 'bob');
    my %events = (headers => { Accept => 'text/event-stream' });
    my $want = metrics()->{sandbox_execs_total};
    my $counts = sub {
        my ($reason, $n, $name) = @_;
        soon('execs_total', qq(reason="$reason"),
             $want->{qq(reason="$reason")} += $n, $name);
    };

    $t->api(POST => "/sessions/$s/exec", { cmd => 'echo' }, %events);
    $counts->('exited', 1, 'streamed');

    my $pid = $t->api(POST => "/sessions/$s/exec",
                      { cmd => 'kill -9 $$', background => JSON::PP::true })
              ->{json}{pid};
    $counts->('signal', 1, 'in the background');
    $t->api(GET => "/sessions/$s/processes/$pid/output", undef, %events)
        for 1 .. 3;
    $t->api(GET => "/sessions/$s/processes/$pid") for 1 .. 3;
    $counts->('signal', 0, 'and not again when it is looked at');

    $t->api(POST => "/sessions/$s/exec", { cmd => [ 'no-such-program' ] });
    $counts->('not_started', 1, 'what could not begin');

    my $c = $t->connect;
    $c->send_request(POST => "/v1/sessions/$s/exec",
                     body => '{"cmd":"echo; sleep 60"}', headers => {
                     Accept => 'application/x-ndjson',
                     'Content-Type' => 'application/json' });
    1 while ($c->read_line(time + 30) // '"stdout"') !~ /"stdout"/;
    $c->close;
    $counts->('disconnected', 1, 'left by its client');

    my $made = metrics()->{sandbox_creates_total}{'result="created"'};
    $t->api(POST => '/run', { tenant_id => 'other', user_id => 'eve', steps =>
                              [ { cmd => 'true' }, { cmd => 'exit 1' },
                                { cmd => 'true' } ] });
    $counts->('exited', 2, 'each step of a run');
    soon('creates_total', 'result="created"', $made + 1, 'which is a create');

    $t->api(POST => "/sessions/$s/exec",
            { cmd => 'sleep 60', background => JSON::PP::true }) for 1 .. 2;
    $t->api(DELETE => "/sessions/$s");
    $counts->('session_ended', 2, 'what ended with its session');
};


my $text = $t->http(GET => '/metrics')->{body};
unlike($text, qr/acme|ann|\Q$ids[0]\E/, 'no id is in a label');


subtest 'the document tells each family, its type and its labels' => sub {
    my %known = map { split ' ', $_, 2 }
                $text =~ /^# TYPE (\S+ \S+)$/mg;
    my $doc = SandboxTest::slurp("$SandboxTest::ROOT/docs/metrics.md");
    my (%told, %labels);

    while ($doc =~ /^\| (`sandbox_[^|]*) \| (\w+) \|([^|]*)\|/mg) {
        my ($names, $type, $labels) = ($1, $2, $3);

        for my $name ($names =~ /`(\w+)`/g) {
            $told{$name} = $type;
            $labels{$name} = { map { /^\s*`(\w+)`(.*)/ ? ($1 => $2) : () }
                               split /;/, $labels };
        }
    }

    is_deeply(\%told, \%known, 'families and types');

    my %seen = map { $_ => {} } keys %known;

    while ($text =~ /^(\w+)(?:\{([^}]*)\})? /mg) {
        my ($name, $labels) = ($1, $2 // '');

        $name =~ s/_(?:bucket|sum|count)$// if !$known{$name};
        $seen{$name}{$1}{$2} = 1 while $labels =~ /(\w+)="([^"]*)"/g;
        delete $seen{$name}{le};
    }

    for my $name (sort keys %seen) {
        is(join(' ', sort keys %{ $labels{$name} || {} }),
           join(' ', sort keys %{ $seen{$name} }), "$name: labels");

        # values, where the document lists them

        for my $label (sort keys %{ $seen{$name} }) {
            my ($list) = ($labels{$name}{$label} // '') =~ /^: (.*)/ or next;

            is(join(' ', sort $list =~ /`(\w+)`/g),
               join(' ', sort keys %{ $seen{$name}{$label} }),
               "$name: values of $label");
        }
    }
};


subtest 'names of callers make no series' => sub {
    my $count = () = $text =~ /\n/g;
    $t->http(GET => '/tenant/sessions', headers => { 'X-Tenant' => "t$_" })
        for 1 .. 10;
    my $now = () = $t->http(GET => '/metrics')->{body} =~ /\n/g;
    is($now, $count, 'as many lines as before');
};


subtest 'all workers tell the same, and so does the next' => sub {
    my %pids = map { $_ => 1 } $t->workers;
    my $made = metrics()->{sandbox_creates_total}{'result="created"'};
    my @seen = map { metrics()->{sandbox_creates_total}{'result="created"'} }
               1 .. 20;
    is((grep { $_ != $made } @seen), 0, 'whoever answers');

    $t->reload;
    is(metrics()->{sandbox_creates_total}{'result="created"'}, $made,
       'a reload keeps the counters');
};


subtest 'the broker dies' => sub {
    is(metrics()->{sandbox_broker_restarts_total}{''}, 0, 'not so far');
    $t->hit(KILL => $t->broker);

    my $m = SandboxTest::wait_for(sub {
        my $now = metrics();
        return ($now->{sandbox_broker_restarts_total}{''} // 0) == 1
               ? $now : undef;
    }, 20);

    ok($m, 'and is counted');
    is($m->{sandbox_sessions}{'state="running"'}, 1, 'with what it found');
    cmp_ok($m->{sandbox_creates_total}{'result="created"'}, '>=', 2,
           'what workers counted is still there');
};

$t->finish;
done_testing();
