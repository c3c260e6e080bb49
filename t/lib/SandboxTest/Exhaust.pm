package SandboxTest::Exhaust;

# What runs out, and what a server makes of it.
#
#   use SandboxTest::Exhaust;
#
#   my $s = SandboxTest::Survive->new;
#   my $ticks = ticks($s);                   # a bystander's output, followed
#   few_files($broker, 0);                   # not one more descriptor
#   told_to_wait($res, 'a new session');     # 503, E5001, Retry-After
#   at_rest($broker, 'the broker');          # it does not try without end
#   goes_on($ticks);
#   enough_files($broker);

use strict;
use warnings;

use Exporter qw(import);
use POSIX ();
use Test::More;
use Time::HiRes qw(time sleep);

use SandboxTest ();
use SandboxTest::More;
use SandboxTest::Stream ();

our @EXPORT = qw(exhaust_server few_files enough_files open_files quiet
                 little_memory enough_memory
                 told_to_wait at_rest ticks goes_on is_heard init_of works_again);

# How long a look is; of what a process has that has work all the time, the
# most that one at rest may have; and of a processor what it may have always,
# whatever others are busy with.  A machine that is emulated stands still now
# and then, which is looked at for longer.

use constant {
    LOOK => 0.4,
    SHARE => 0.3,
    LITTLE => 0.03,
};

my %USUAL;


# A server, with two bystanders and the output of one more.

sub exhaust_server {
    my (%o) = @_;

    my $t = $o{t} // SandboxTest->new(
        workers => 1, quotas => 1, %o,
        server => ($o{server} // '')
                  . "\n        location /admin/ { sandbox_api admin; }");

    $t->start if !$o{t} && !$o{stopped};
    ($SandboxTest::More::T, $SandboxTest::More::PORT,
     $SandboxTest::More::PREFIX) = ($t, $t->port, $t->prefix);

    return $t;
}


# ---- descriptors -----------------------------------------------------------

# Their numbers.  Dies where they cannot be seen: "none" would pass for few.

sub open_files {
    my ($pid) = @_;

    opendir my $dir, "/proc/$pid/fd"
        or die "what process $pid has open cannot be seen: $!\n";

    my @open = sort { $a <=> $b } grep { /^\d+$/ } readdir $dir;

    return @open;
}


# Set by somebody of the process's own ids: root may not where it is without
# CAP_SYS_RESOURCE, as in a container.

sub limit {
    my ($pid, $name, $soft) = @_;

    my $status = slurp("/proc/$pid/status") // '';
    my ($uid) = $status =~ /^Uid:\s+(\d+)/m or return 0;
    my ($gid) = $status =~ /^Gid:\s+(\d+)/m;

    return system('setpriv', "--reuid=$uid", "--regid=$gid", '--clear-groups',
                  'prlimit', '--pid', $pid, "--$name=$soft:") == 0;
}


# What it has open when nothing is on its way to be closed any more.

sub settled {
    my ($pid) = @_;

    my ($were, $same) = ('', 0);

    until_true {
        my $now = join ' ', open_files($pid);

        $same = $now eq $were ? $same + 1 : 0;
        $were = $now;
        $same == 5
    } 10;

    return split ' ', $were;
}


# So many may be opened by the process, and no more.

sub few_files {
    my ($pid, $free) = @_;

    my ($usual) = (slurp("/proc/$pid/limits") // '')
                  =~ /^Max open files\s+(\d+)/m;
    my %used = map { $_ => 1 } settled($pid);
    my $limit = 0;

    $USUAL{$pid} //= $usual;

    for ( ;; $limit++) {
        next if $used{$limit};
        last if $free-- == 0;
    }

    # of those above it nothing is said: they stay open

    return limit($pid, nofile => $limit);
}


sub enough_files {
    my ($pid) = @_;

    return limit($pid, nofile => delete $USUAL{$pid});
}


# Not a page more may be mapped by the process.

sub little_memory {
    my ($pid) = @_;

    my ($size) = (slurp("/proc/$pid/status") // '') =~ /^VmSize:\s+(\d+)/m;

    return limit($pid, as => 1024 * $size);
}


sub enough_memory { return limit($_[0], as => 'unlimited') }


# Until connections of before are closed: as many are open as then.

sub quiet {
    my ($pid, $count) = @_;

    return until_true { open_files($pid) <= $count } 10;
}


# ---- answers ---------------------------------------------------------------

sub told_to_wait {
    my ($res, $name) = @_;

    local $Test::Builder::Level = $Test::Builder::Level + 1;

    my $ok = is_problem($res, 503, 'E5001', $name);

    return ok(($res->{headers}{'retry-after'} // 0) > 0, "$name: later")
           && $ok;
}


# Neither the process nor a thread of it has work all the time: the measure is
# one beside them that has, and gets as much as the machine has for it.

sub at_rest {
    my ($name, @pids) = @_;

    local $Test::Builder::Level = $Test::Builder::Level + 1;

    my $me = $$;
    my $always = fork // die "fork: $!\n";

    if ($always == 0) {
        1 while getppid == $me;
        POSIX::_exit(0);
    }

    until_true { ran($always) > 0 } 10;

    my %before = map { $_ => ran($_) } @pids, $always;
    my $began = time;

    sleep within(LOOK);

    my %ran = map { $_ => ran($_) - $before{$_} } @pids, $always;
    my $most = $ran{$always} * SHARE;
    my $little = (time - $began) * LITTLE;

    kill 'KILL', $always;
    waitpid $always, 0;
    $most = $little if $most < $little;

    my @busy = grep { $ran{$_} > $most } @pids;

    return ok(!@busy, $name)
           || diag(map { sprintf "    process %d ran %.3f s of %.3f\n",
                                 $_, $ran{$_}, $ran{$always} } @busy);
}


# Seconds that the process has run.

sub ran {
    my ($pid) = @_;

    my $ns = 0;

    for my $file (glob "/proc/$pid/task/*/schedstat") {
        $ns += (split ' ', slurp($file) // '0')[0];
    }

    return $ns / 1e9;
}


# ---- who must not notice ---------------------------------------------------

sub ticks {
    my ($id) = @_;

    my $ticks = SandboxTest::Stream::stream(
        POST => "/sessions/$id/exec",
        json => { cmd => [ '/bin/bash', '-c', 'while :; do'
                           . ' echo $EPOCHREALTIME; sleep 0.05; done' ],
                  timeout_s => undef });

    $ticks->{status} == 200 or die "no stream\n";

    return $ticks;
}


# Whether what is written after this was called arrives.

sub is_heard {
    my ($ticks) = @_;

    my $now = time;
    my $at;

    while (my $e = $ticks->until('stdout', 20)) {
        ($at) = ($e->{data} // '') =~ /^([\d.]+)$/m;
        last if ($at // 0) > $now;
    }

    return ($at // 0) > $now;
}


sub goes_on {
    my ($ticks, $name) = @_;

    local $Test::Builder::Level = $Test::Builder::Level + 1;

    return ok(is_heard($ticks), $name // 'another session goes on');
}


# Sessions can be made, used and ended: there is room again.

sub works_again {
    my ($s, $name) = @_;

    local $Test::Builder::Level = $Test::Builder::Level + 1;

    my $res;

    until_true {
        $res = $s->create;
        $res->{status} == 201 || $res->{status} != 503
    } 15;

    my $id = $res->{json}{session_id} // '';

    $s->works($id, "$name: sessions are made again") or diag($res->{body});

    return is($s->destroy($id)->{status}, 204, "$name: and ended");
}


sub init_of {
    my ($id) = @_;

    my ($pid) = grep {
        (slurp("/proc/$_/cgroup") // '') =~ m{/\Q$id\E/init$}m
    } map { m{(\d+)$} } glob '/proc/[0-9]*';

    return $pid;
}


1;
