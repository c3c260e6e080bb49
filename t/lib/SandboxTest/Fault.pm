package SandboxTest::Fault;

# Processes held at the named points of sandbox_fault.h, from outside.
#
#   use SandboxTest::Fault;        # before any server is made
#
#   arm($broker, 'broker-create-cloned');
#   ... what leads there, in the background ...
#   my $pid = held($broker);       # 0: it was not reached
#   kill 'KILL', $pid;             # or release($pid)
#
# Servers of a file that uses this run the build with the points in it.

use strict;
use warnings;

use Exporter qw(import);
use Test::More;
use SandboxTest;

our @EXPORT = qw(arm disarm held release descendants);

use constant {
    NAME  => 48,
    SIZE  => 56,
    IDLE  => 0,
    ARMED => 1,
    HELD  => 2,
};

my %OFFSET;

if (!$SandboxTest::SANITIZE) {
    my $faults = "$SandboxTest::BUILD/faults";

    plan(skip_all => "$faults is not built (make faults)")
        if !-e "$faults/sandbox-broker";
    $SandboxTest::BUILD = $faults;
}


# Where sbx_fault_armed is in the file, and whether that is the address.

sub offset {
    my ($file) = @_;

    return @{ $OFFSET{$file} } if $OFFSET{$file};

    my ($type) = unpack 'x16 v', SandboxTest::slurp($file) // '';
    my ($line) = grep { / sbx_fault_armed$/ } `nm '$file' 2>/dev/null`;
    my ($at) = ($line // '') =~ /^([0-9a-f]+)/
        or die "$file has no points\n";

    $OFFSET{$file} = [ hex $at, $type == 2 ];

    return @{ $OFFSET{$file} };
}


# The address of sbx_fault_armed in a process, by what it runs.

sub address {
    my ($pid) = @_;

    my $maps = SandboxTest::slurp("/proc/$pid/maps") // return;

    for my $name (qw(ngx_http_sandbox_module.so sandbox-broker sandbox-init
                     sandbox-egress))
    {
        my ($base) = $maps =~ m{^([0-9a-f]+)-\S+\ \S+\ 00000000\ .*
                                (?:/|memfd:)\Q$name\E(?:\s|$)}mx or next;
        my $file = "$SandboxTest::BUILD/$name";
        my ($at, $absolute) = offset($file);

        no warnings qw(portable);
        return $absolute ? $at : hex($base) + $at;
    }

    return;
}


sub peek {
    my ($pid) = @_;

    my $at = address($pid) // return;

    open my $f, '<:raw', "/proc/$pid/mem" or return;
    sysseek $f, $at, 0 or return;
    return if (sysread($f, my $bytes, SIZE) // 0) != SIZE;

    my ($name, $skip, $state) = unpack 'Z' . NAME . 'VV', $bytes;

    return { name => $name, skip => $skip, state => $state };
}


sub poke {
    my ($pid, $name, $skip, $state) = @_;

    my $at = address($pid) // return 0;

    open my $f, '+<:raw', "/proc/$pid/mem" or return 0;
    sysseek $f, $at, 0 or return 0;

    return (syswrite($f, pack 'Z' . NAME . 'VV', $name, $skip, $state) // 0)
           == SIZE;
}


# Arms a point in each of the processes: the one that comes there (or what it
# forks or executes by then) is held.

sub arm {
    my ($pids, $name, %o) = @_;

    for my $pid (ref $pids ? @$pids : $pids) {
        poke($pid, $name, $o{skip} // 0, ARMED)
            or die "cannot arm $name in process $pid\n";
    }

    return;
}


sub disarm {
    my (@pids) = @_;

    poke($_, '', 0, IDLE) for @pids;

    return;
}


sub descendants {
    my (@pids) = @_;

    return map { ($_, descendants(SandboxTest::children($_))) } @pids;
}


# Waits until one of the processes, or of what is below them, is held, and
# says which; 0 where none comes to be.

sub held {
    my ($pids, $seconds) = @_;

    my @pids = ref $pids ? @$pids : $pids;

    return SandboxTest::wait_for(sub {
        for my $pid (descendants(@pids)) {
            my $v = peek($pid) // next;
            return $pid if $v->{state} == HELD;
        }

        return 0;
    }, $seconds // 10);
}


sub release {
    my ($pid) = @_;

    return poke($pid, '', 0, IDLE);
}


1;
