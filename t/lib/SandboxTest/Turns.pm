package SandboxTest::Turns;

# How long the workers of a server are away from their connections.
#
#   my $turns = SandboxTest::Turns->new;
#   my $t = server(%{ $turns->options });
#   $turns->begin;
#   ...
#   my $r = $turns->longest;        # { cpu => ms, wall => ms, slept => n, ... }
#
#   $turns->brief('a flood', sub { ... });          # a test
#
# A turn is the time from one return of epoll_wait() to the next call.  Its
# processor time is the worker's own, however loaded the machine is, but a
# virtual machine may lose time to its host in between, and what other
# processes have the kernel do is counted where it interrupts: so a turn is too
# long if it is so each of six times.  One that is emulated tells nothing of it.

use strict;
use warnings;

use Exporter qw(import);
use Test::More;

use SandboxTest::More;

our $LIMIT = 5;                   # ms of processor time that a turn may take

my $SLOTS = 64;
my @FIELDS = qw(pid round turns cpu wall slept sleeps total events when);
my $BUCKETS = 20;
my $SIZE = 8 * (@FIELDS + $BUCKETS);


sub library {
    my $lib = "$SandboxTest::ROOT/build/t/preload/turns.so";

    return -e $lib ? $lib : undef;
}


# A sanitizer's library is to be the first, and its turns are no measure.

sub missing {
    return 'a build with sanitizers is no measure' if $SandboxTest::SANITIZE;
    return 'turns.so is not built: make tests' if !library();
    return undef;
}


# Loads it into the server that is made next.

sub new {
    my ($class, %o) = @_;

    my $self = bless { file => $o{file} // "/tmp/sbxturns.$$" }, $class;

    # nginx need not be root's

    unlink $self->{file};
    open my $f, '>', $self->{file} or die "$self->{file}: $!";
    close $f;
    chmod 0666, $self->{file};

    $ENV{LD_PRELOAD} = library();
    $ENV{TURNS} = $self->{file};

    return $self;
}


# Once the server has been started: nothing else is to be loaded with it.

sub loaded {
    my ($self) = @_;

    delete @ENV{qw(LD_PRELOAD TURNS)};

    return until_true { scalar $self->slots };
}


sub DESTROY {
    my ($self) = @_;

    unlink $self->{file} if $$ == ($self->{pid} //= $$);

    return;
}


sub slots {
    my ($self) = @_;

    my $data = slurp($self->{file}) // return;
    return if length $data < 16;
    my ($round, $used) = unpack 'QQ', $data;
    my @slots;

    for my $n (0 .. ($used < $SLOTS ? $used : $SLOTS) - 1) {
        my %s;
        my @numbers = unpack 'Q*', substr $data, 16 + $n * $SIZE, $SIZE;

        @s{@FIELDS} = splice @numbers, 0, scalar @FIELDS;
        $s{buckets} = \@numbers;
        push @slots, \%s if SandboxTest::alive($s{pid});
    }

    return @slots;
}


# A round: what was before it is forgotten.

sub begin {
    my ($self) = @_;

    open my $f, '+<', $self->{file} or die "$self->{file}: $!";
    binmode $f;
    sysread $f, my $data, 8;
    my $round = 1 + unpack 'Q', $data;
    sysseek $f, 0, 0;
    syswrite $f, pack 'Q', $round;
    close $f;

    return $self->{round} = $round;
}


# Over all workers, of the round.

sub longest {
    my ($self) = @_;

    my %r = (cpu => 0, wall => 0, slept => 0, sleeps => 0, turns => 0,
             total => 0, events => 0, buckets => [ (0) x $BUCKETS ]);

    for my $s (grep { $_->{round} == $self->{round} } $self->slots) {
        @r{qw(cpu events when)} = @$s{qw(cpu events when)}
            if $s->{cpu} > $r{cpu};

        for my $what (qw(wall slept)) {
            $r{$what} = $s->{$what} if $s->{$what} > $r{$what};
        }

        $r{$_} += $s->{$_} for qw(turns sleeps total);
        $r{buckets}[$_] += $s->{buckets}[$_] for 0 .. $BUCKETS - 1;
    }

    $_ = sprintf '%.2f', $_ / 1e6 for @r{qw(cpu wall total)};

    return \%r;
}


# Runs it: no turn over the limit, and none that slept outside of epoll.

sub brief {
    my ($self, $name, $what, %o) = @_;

    local $Test::Builder::Level = $Test::Builder::Level + 1;

    my $limit = $o{limit} // $LIMIT;
    my $r;

    if ($ENV{SANDBOX_TEST_VM}) {
        $self->begin;
        $what->(1);
        SKIP: { skip 'an emulated processor is no measure', 1 }
        return $self->longest;
    }

    for my $try (1 .. 6) {
        $self->begin;
        $what->($try);
        $r = $self->longest;
        last if $r->{cpu} <= $limit && $r->{turns};
        diag("$name: a turn of $r->{cpu} ms, $r->{events} events, try $try");
    }

    note("$name: longest turn $r->{cpu} ms of processor, $r->{wall} ms of "
         . "clock; $r->{turns} turns, $r->{sleeps} sleeps");

    ok($r->{turns} > 0 && $r->{cpu} <= $limit,
       "$name: no turn of a worker takes more than $limit ms")
        or diag("$r->{cpu} ms, $r->{events} events, $r->{turns} turns");

    return $r;
}


1;
