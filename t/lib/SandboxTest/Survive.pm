package SandboxTest::Survive;

# A server whose processes are killed at named points, and sessions beside
# them that must not notice.
#
#   my $s = SandboxTest::Survive->new;         # a server, two bystanders
#   my $res = $s->struck(point => 'broker-create-cloned', victim => 'broker',
#                        call => sub { $s->create });
#   $s->unharmed('...', @ids);                 # and these sessions, no others
#   $s->over;                                  # finish()
#
# The program that a point is in is the first word of its name.

use strict;
use warnings;

use JSON::PP ();
use Test::More;

use SandboxTest ();
use SandboxTest::Fault;
use SandboxTest::More qw(async until_true);

my $KILLED = qr/worker process \d+ exited on signal 9/;
my $TICK = 'i=0; while :; do i=$((i+1)); echo $i; sleep 0.3; done';


# More goes to SandboxTest->new(); t: a server that is there; pooled: so that
# first processes are not counted.

sub new {
    my ($class, %o) = @_;

    my $t = delete $o{t};
    my $pooled = delete $o{pooled};

    if (!$t) {
        my $more = delete $o{server} // '';
        $t = SandboxTest->new(workers => 1, quotas => 1,
                              server => "$more\n        location /admin/ "
                                        . '{ sandbox_api admin; }', %o);
        $t->start;
    }

    $t->allow($KILLED);

    my $self = bless { t => $t, pooled => $pooled }, $class;
    my $s = $self->{runs} = $t->session(timeout_s => 1800);

    $self->{paused} = $t->session(timeout_s => 1800);

    for my $id ($s, $self->{paused}) {
        $t->http(PUT => "/v1/sessions/$id/files/mark", body => "mark of $id");
    }

    $self->{pid} = $t->api(POST => "/sessions/$s/exec",
                           { cmd => $TICK, background => JSON::PP::true })
                   ->{json}{pid};
    $self->post($self->{paused}, 'pause')->{status} == 200
        or die "no session can be paused\n";

    return $self;
}


# ---- calls -----------------------------------------------------------------

sub create {
    my ($self, $fields, %o) = @_;

    return $self->{t}->api(POST => '/sessions',
                           { tenant_id => 'acme-corp', user_id => 'alice',
                             %{ $fields // {} } }, timeout => 60, %o);
}

sub post {
    my ($self, $id, $what) = @_;

    return $self->{t}->api(POST => "/sessions/$id/$what", undef,
                           timeout => 60);
}

sub destroy {
    my ($self, $id) = @_;

    return $self->{t}->api(DELETE => "/sessions/$id", undef, timeout => 60);
}

sub session {
    my ($self, $id) = @_;

    return $self->{t}->api(GET => "/sessions/$id")->{json} // {};
}

# A session does what sessions are for.

sub works {
    my ($self, $id, $name) = @_;

    local $Test::Builder::Level = $Test::Builder::Level + 1;

    my $t = $self->{t};
    my $put = $t->http(PUT => "/v1/sessions/$id/files/own", body => $id);
    my $r = $t->run($id, [ 'cat', 'own' ]);

    return is("$put->{status} " . ($r->{stdout} // ''), "201 $id", $name);
}


# ---- who is killed ---------------------------------------------------------

# The first processes of sessions, init or what becomes it.

sub inits {
    my ($self) = @_;

    my $t = $self->{t};

    my @pids;

    # a keeper that has died leaves them to the machine's first process

    for my $dir (glob '/proc/[0-9]*') {
        my ($pid) = $dir =~ /(\d+)$/;
        next if (SandboxTest::slurp("$dir/status") // '')
                !~ /^NSpid:\s+\d+\s+1$/m;
        next if (SandboxTest::slurp("$dir/cmdline") // '') =~ /^sandbox-egress/;
        push @pids, $pid if SandboxTest::alive($pid) && $t->is_ours($pid);
    }

    return @pids;
}

sub egress {
    my ($self) = @_;

    my ($pid) = grep {
        (SandboxTest::slurp("/proc/$_/cmdline") // '') =~ /^sandbox-egress/
    } SandboxTest::children($self->{t}->keeper);

    # one of an earlier keeper's is nobody's child

    $self->{egress} = $pid if $pid;

    return SandboxTest::alive($self->{egress}) ? $self->{egress} : undef;
}


# Where a point is armed: in those that come to it, or that start who does.

my %ARMED = (
    broker => sub { $_[0]{t}->broker },
    child  => sub { $_[0]{t}->broker },
    init   => sub { $_[0]{t}->broker },
    egress => sub { $_[0]->egress // $_[0]{t}->broker },
    keeper => sub { $_[0]{t}->keeper },
    worker => sub { $_[0]{t}->workers },
);

# Arms a point, makes the call, waits until a process is held there, kills the
# victim and lets the others go on.  What the call returned; undef where the
# point was not reached.
#
#   in        processes to arm, if not those of the table
#   victim    "held", or a process's name, or a function of the held one
#   call      made in a process of its own
#   meanwhile done while it is held, before the kill

sub struck {
    my ($self, %o) = @_;

    local $Test::Builder::Level = $Test::Builder::Level + 1;

    my $t = $self->{t};
    my $name = $o{name} // "$o{victim} killed at $o{point}";
    my ($program) = $o{point} =~ /^(\w+)-/;
    my @in = $o{in} ? @{ $o{in} } : $ARMED{$program}->($self);
    my %was = map { $_ => 1 } $self->inits;
    my $keeper = $t->keeper;
    my $broker = $t->broker;
    my @fresh;

    arm(\@in, $o{point}, skip => $o{skip} // 0);
    my $job = async { $o{call}->() };
    my $held = held([ @in, $keeper ], 20);

    disarm(grep { $_ != $held } @in);

    if (!ok($held, "$name: reached")) {
        $job->get;
        return;
    }

    $o{meanwhile}->($held) if $o{meanwhile};

    my $victim = ref $o{victim} ? $o{victim}->($held)
               : $o{victim} eq 'held' ? $held
               : $o{victim} eq 'init' ? (grep { !$was{$_} } $self->inits)[0]
               : $o{victim} eq 'egress' ? $self->egress
               : $o{victim} eq 'worker' ? ($t->workers)[0]
               : $t->can($o{victim})->($t);

    $t->remember($_) for grep { $_ } $victim, $held;

    my $struck = $victim && kill('KILL', $victim)
                 && SandboxTest::gone([ $victim ], 10);

    ok($struck, "$name: killed");
    release($held) if $held != ($victim // 0);

    if (!$struck) {
        $job->get;
        return;
    }

    # both have others in their places when the keeper has gone

    if ($victim == $keeper) {
        $self->another('keeper', $keeper);
        $self->another('broker', $broker);

    } elsif ($victim == $broker) {
        $self->another('broker', $broker);
    }

    my $res = $job->get(90);

    $t->note_processes;

    return $res // {};
}


sub another {
    my ($self, $who, $before) = @_;

    my $t = $self->{t};

    return until_true {
        my $pid = $t->$who;
        $pid && $pid != $before && SandboxTest::alive($pid)
    } 20;
}


# ---- who must not notice ---------------------------------------------------

# Nothing is wrong with the bystanders, and there are just these sessions
# beside them, wherever sessions are counted.

sub unharmed {
    my ($self, $name, @ids) = @_;

    local $Test::Builder::Level = $Test::Builder::Level + 1;

    my @wrong;

    until_true {
        @wrong = $self->wrong(@ids);
        !@wrong
    } 15;

    return ok(!@wrong, $name) || diag(map { "    $_\n" } @wrong);
}


sub wrong {
    my ($self, @ids) = @_;

    my $t = $self->{t};
    my ($runs, $paused) = @$self{qw(runs paused)};
    my @wrong;

    my $file = $t->http(GET => "/v1/sessions/$runs/files/mark")->{body} // '';
    my $state = $t->api(GET => "/sessions/$runs/processes/$self->{pid}")
                ->{json}{state} // 'unknown';
    my $status = $self->session($paused)->{status} // 'unknown';

    push @wrong, "a bystander's file is \"$file\"" if $file ne "mark of $runs";
    push @wrong, "a bystander's command is $state" if $state ne 'running';
    push @wrong, "a paused bystander is $status" if $status ne 'paused';

    my @all = sort $runs, $paused, @ids;
    my $list = $t->api(GET => '/sessions?tenant_id=acme-corp')
               ->{json}{sessions} // [];
    my @found = sort map { $_->{session_id} } @$list;

    push @wrong, "listed are @found, not @all" if "@found" ne "@all";

    my $used = $t->api(GET => '/quotas/acme-corp', undef, base => '/admin')
               ->{json}{used}{sessions} // 'none';
    my $health = $t->api(GET => '/health')->{json}{sessions} // 'none';

    push @wrong, "the quota counts $used of " . @all if $used ne @all;
    push @wrong, "the broker counts $health of " . @all if $health ne @all;

    my @inits = $self->inits;
    push @wrong, 'there are ' . @inits . ' first processes of ' . @all
        if !$self->{pooled} && @inits != @all;

    return @wrong;
}


sub over {
    my ($self) = @_;

    local $Test::Builder::Level = $Test::Builder::Level + 1;

    my ($t, $paused) = @$self{qw(t paused)};

    is($self->post($paused, 'resume')->{status}, 200, 'the paused one goes on');
    is($t->http(GET => "/v1/sessions/$paused/files/mark")->{body},
       "mark of $paused", 'and has its file');
    is(join(' ', map { $self->destroy($_)->{status} } $self->{runs}, $paused),
       '204 204', 'the bystanders end when they are told to');

    return $t->finish;
}


1;
