package SandboxTest::Flood;

# A server that is flooded, and what is to be true meanwhile.
#
#   my $f = SandboxTest::Flood->new;          # one worker, a bystander
#   $f->under('requests for the dead', sub { ... }, worker => 8);
#   $f->over;                                 # finish()
#
# While the block runs, a location of nginx that has nothing to do with
# sessions is asked again and again, and so is a session that has nothing to
# do with the flood: both are served.  No turn of the worker takes longer than
# it may.  No process grows by more megabytes than the test says ("worker",
# "broker", "keeper", "egress", "init": the largest one), and afterwards all
# of it is given back, descriptors too.  An allocator gives back what is above
# everything that lives, so it may keep some for the next: then the flood comes
# once more, and takes what was kept rather than as much again.
#
# The peak of a process is the kernel's own (VmHWM, set back before), so that
# none is missed: PSS before, and what its resident set grew by.
#
# With SANDBOX_FLOOD_REPORT=file a line of JSON for each flood is added to it:
# the same in figures, and how long the location took, alone and beside it.

use strict;
use warnings;

use Exporter qw(import);
use IO::Select;
use IO::Socket::INET;
use JSON::PP ();
use Socket qw(SOL_SOCKET SO_RCVBUF);
use Test::More;
use Time::HiRes qw(time sleep);

use SandboxTest ();
use SandboxTest::Connection;
use SandboxTest::More;
use SandboxTest::Turns;

our @EXPORT = qw(crowd pipelined answer_of raw_request);
our $LONG = $ENV{SANDBOX_TEST_LONG} ? 1 : 0;

my $MB = 1024 * 1024;
my $JSON = JSON::PP->new->utf8->canonical->allow_nonref;
my $REPORT = $ENV{SANDBOX_FLOOD_REPORT};

# What a process may grow by and, of that, keep, in megabytes.

my %GROWTH = (worker => 4, broker => 2, keeper => 1, egress => 1, init => 1);
my $KEPT = 3;

my $SERVER = <<'CONF';
        location = /probe { return 204; }
        location = /metrics { sandbox_api metrics; }
        location /admin/ { sandbox_api admin; }
        location /e2b/ { sandbox_api e2b; }
CONF


sub missing { return SandboxTest::Turns::missing() }


# As server(): extra and http are added to.

sub new {
    my ($class, %o) = @_;

    my $turns = SandboxTest::Turns->new;
    my $t = server(workers => 1, %o, extra => $SERVER . ($o{extra} // ''));
    my $self = bless { t => $t, turns => $turns }, $class;

    ok($turns->loaded, 'turns are measured');

    $self->{bystander} = create_ok({ tenant_id => 'by', user_id => 'stander',
                                     timeout_s => 3600 });
    put($self->{bystander}, 'mark', 'a mark')->{status} == 201
        or die "no file in a session\n";

    # what is made once is made before anything is counted

    run($self->{bystander}, 'true');
    destroy(create_ok());
    $self->{alone} = $self->watch(sub { sleep 3 })->{times} if $REPORT;

    return $self;
}


sub t { return $_[0]{t} }
sub turns { return $_[0]{turns} }


sub over {
    my ($self) = @_;

    local $Test::Builder::Level = $Test::Builder::Level + 1;

    is(get($self->{bystander}, 'mark')->{body}, 'a mark',
       'the bystander has its file');
    is(destroy($self->{bystander})->{status}, 204,
       'and ends when it is told to');

    return $self->{t}->finish;
}


# ---- one flood -------------------------------------------------------------

sub under {
    my ($self, $name, $what, %o) = @_;

    local $Test::Builder::Level = $Test::Builder::Level + 1;

    my %bound = (%GROWTH, %o);
    my $before = $self->memory;
    my $fds = $self->rest;

    $self->forget_peaks;

    my ($turn, $begun, $seconds);
    my $seen = $self->watch(sub {
        $begun = time;
        $turn = $self->{turns}->brief($name, $what, limit => $o{limit});
        $seconds = time - $begun;
    });

    my $peak = $self->peaks($before);
    my $after = $self->settled($before);

    if (grown($before, $after)) {
        note("$name: once more");
        $what->('again');
        $after = $self->settled($before);

        my $again = $self->peaks($before);

        # how much waits in one moment is chance, up to what the test says

        is(join(' ', grep { my $most = 3 * ($peak->{$_}
                                            - $before->{$_}{pss}) / 2;
                            my $may = $bound{$_} * $MB * 3 / 4;
                            $again->{$_} - $before->{$_}{pss} > $KEPT * $MB
                                + ($most > $may ? $most : $may) }
                     grep { $again->{$_} && $before->{$_} } keys %GROWTH),
           '', "$name: what was kept is used again");
        $peak = $again;
        $bound{kept} = 1;
    }

    my $left = until_true {
        my $now = $self->descriptors;
        !grep { $now->{$_} > $fds->{$_} } keys %$fds;
    } 15;

    $self->tell($name, $seen, $before, $peak, $after, \%bound);
    ok($left, "$name: every descriptor is given back")
        or diag(join ' ', map { "$_ $fds->{$_}->" . $self->descriptors->{$_} }
                          sort keys %$fds);
    $self->report($name, $seen, $turn, $before, $peak, $after, $seconds)
        if $REPORT;

    return $turn;
}


# Who has more than before, and may not.

sub grown {
    my ($before, $after) = @_;

    return grep { $after->{$_}{pss} > $before->{$_}{pss} + $KEPT * $MB }
           grep { $after->{$_} && $before->{$_} } keys %GROWTH;
}


sub settled {
    my ($self, $before) = @_;

    my $after;

    until_true {
        $after = $self->memory;
        !grown($before, $after);
    } 2;

    return $after;
}


sub tell {
    my ($self, $name, $seen, $before, $peak, $after, $bound) = @_;

    local $Test::Builder::Level = $Test::Builder::Level + 1;

    my @wrong;

    for my $who (grep { $before->{$_} } sort keys %GROWTH) {
        my @kb = map { int $_ / 1024 } $before->{$who}{pss}, $peak->{$who},
                                       $after->{$who}{pss} // 0;

        note("$name: $who $kb[0] KB before, $kb[1] at its peak, $kb[2] after");
        push @wrong, "$who has grown from $kb[0] to $kb[1] KB"
            if $kb[1] - $kb[0] > $bound->{$who} * 1024;
        push @wrong, "$who has kept $kb[2] KB, of $kb[0] before"
            if $kb[2] - $kb[0] > $KEPT * 1024 && !$bound->{kept};
    }

    ok(!@wrong, "$name: memory is bounded");
    diag("    $_") for @wrong;

    my @times = sort { $a <=> $b } @{ $seen->{times} };

    ok(@times >= 5 && !@{ $seen->{wrong} } && $seen->{rounds} >= 1,
       "$name: others are served meanwhile");
    diag("    $_") for @{ $seen->{wrong} };
    note(sprintf '%s: probe %d times, median %.2f ms, longest %.2f; '
                 . 'bystander %d times', $name, scalar @times,
         $times[@times / 2] // 0, $times[-1] // 0, $seen->{rounds});

    return;
}


sub report {
    my ($self, $name, $seen, $turn, $before, $peak, $after, $seconds) = @_;

    my %memory = map {
        $_ => [ map { int $_ / 1024 } $before->{$_}{pss}, $peak->{$_},
                                      $after->{$_}{pss} // 0 ]
    } grep { $before->{$_} } keys %GROWTH;

    open my $f, '>>', $REPORT or die "$REPORT: $!";
    print $f $JSON->encode({ name => $name, memory => \%memory,
                             seconds => $seconds, turn => $turn->{cpu},
                             wrong => $seen->{wrong},
                             alone => $self->{alone},
                             beside => $seen->{times} }), "\n";
    close $f;

    return;
}


# ---- others ----------------------------------------------------------------

# Runs the block with a job beside it that asks both; what the job saw.

sub watch {
    my ($self, $what) = @_;

    my $stop = "$SandboxTest::More::PREFIX/watched";
    unlink $stop;

    my $job = async { $self->others($stop) };

    # a watcher whose first answers are there is at work

    until_true { -e "$stop.on" } 20;
    unlink "$stop.on";

    my $done = eval { $what->(); 1 };
    my $why = $@;

    touch($stop);
    my $seen = $job->get(within(120));
    die $why if !$done;

    return $seen // { times => [], rounds => 0, wrong => [ 'no watcher' ] };
}


sub touch {
    my ($path) = @_;

    open my $f, '>', $path or die "$path: $!";
    close $f;

    return;
}


sub others {
    my ($self, $stop) = @_;

    my %r = (times => [], rounds => 0, wrong => []);
    my ($c, $next) = (undef, 0);

    # a few times at least, however short the flood

    for (my $n = 0; ($n < 8 || !-e $stop) && @{ $r{wrong} } < 10; $n++) {
        $c //= SandboxTest::Connection->new(
            port => $SandboxTest::More::PORT, timeout => within(60));

        my $begun = time;
        my $res = $c ? $c->request('GET', '/probe', headers => {})
                     : { status => 0 };

        push @{ $r{times} }, 1000 * (time - $begun);
        push @{ $r{wrong} }, "the probe: status $res->{status}"
            if $res->{status} != 204;
        $c = undef if $res->{status} != 204 || $n % 9000 == 8999;

        if (time > $next) {
            $self->bystander(\%r);
            $next = time + 0.1;
        }

        touch("$stop.on") if $n == 1;
        sleep 0.004;
    }

    return \%r;
}


sub bystander {
    my ($self, $r) = @_;

    my $id = $self->{bystander};
    my $n = $r->{rounds}++;
    my $res = get($id, 'mark', timeout => within(60));

    push @{ $r->{wrong} }, "the bystander's file: $res->{status}"
        if $res->{status} != 200 || $res->{body} ne 'a mark';

    return if $n % 8;

    $res = exec_call($id, "echo $n", _http => { timeout => within(60) });

    push @{ $r->{wrong} }, "the bystander's command: $res->{status}"
        if $res->{status} != 200 || $res->{json}{stdout} ne "$n\n";

    return;
}


# ---- memory and descriptors ------------------------------------------------

# Pids by what they are; there may be many inits.

sub processes {
    my ($self) = @_;

    my $t = $self->{t};
    my %p = (worker => [ $t->workers ], broker => [ $t->broker ],
             keeper => [ $t->keeper ]);

    for my $pid (SandboxTest::children($t->keeper)) {
        next if $pid == $t->broker;

        my $egress = (slurp("/proc/$pid/cmdline") // '') =~ /^sandbox-egress/;
        push @{ $p{ $egress ? 'egress' : 'init' } }, $pid;
    }

    return \%p;
}


sub number {
    my ($pid, $file, $field) = @_;

    my ($kb) = (slurp("/proc/$pid/$file") // '') =~ /^$field:\s+(\d+)/m;

    return 1024 * ($kb // 0);
}


# Of each kind the largest: { pss, rss, pid }.

sub memory {
    my ($self) = @_;

    my $p = $self->processes;
    my %m;

    for my $who (keys %$p) {
        for my $pid (@{ $p->{$who} }) {
            my $pss = number($pid, 'smaps_rollup', 'Pss');

            $m{$who} = { pss => $pss, pid => $pid,
                         rss => number($pid, 'status', 'VmRSS') }
                if !$m{$who} || $pss > $m{$who}{pss};
        }
    }

    return \%m;
}


sub forget_peaks {
    my ($self) = @_;

    for my $pid (map { @$_ } values %{ $self->processes }) {
        open my $f, '>', "/proc/$pid/clear_refs" or next;
        syswrite $f, '5';
        close $f;
    }

    return;
}


sub peaks {
    my ($self, $before) = @_;

    my $p = $self->processes;
    my %peak;

    for my $who (keys %$p) {
        for my $pid (@{ $p->{$who} }) {
            my $base = $before->{$who} // { pss => 0, rss => 0 };
            my $n = $base->{pss} - $base->{rss}
                    + number($pid, 'status', 'VmHWM');

            $peak{$who} = $n if $n > ($peak{$who} // 0);
        }
    }

    return \%peak;
}


sub descriptors {
    my ($self) = @_;

    my $p = $self->processes;

    return { map { $_ => fds($p->{$_}[0]) } grep { $p->{$_} && $p->{$_}[0] }
             qw(worker broker keeper egress) };
}


# The same, when nothing is on its way any more: what a session that was just
# made has the keeper store may still be.

sub rest {
    my ($self) = @_;

    my ($fds, $were, $same) = ({}, '', 0);

    until_true {
        $fds = $self->descriptors;

        my $now = join ' ', map { "$_ $fds->{$_}" } sort keys %$fds;

        $same = $now eq $were ? $same + 1 : 0;
        $were = $now;
        $same == 5
    } 10;

    return $fds;
}


# ---- many clients ----------------------------------------------------------

sub raw_request {
    my ($method, $target, %o) = @_;

    my $body = $o{json} ? $JSON->encode($o{json}) : $o{body};
    my %h = (Host => 'localhost', %{ $o{headers} || {} });

    $h{'Content-Type'} //= 'application/json' if $o{json};
    $h{'Content-Length'} //= length $body if defined $body;

    return "$method $target HTTP/1.1\r\n"
           . join('', map { "$_: $h{$_}\r\n" } sort keys %h)
           . "\r\n" . ($body // '');
}


# { status, headers, body, json } of the text of one answer.

sub answer_of {
    my ($text) = @_;

    my ($head, $body) = split /\r\n\r\n/, $text, 2;
    my ($status) = ($head // '') =~ m{^HTTP/1\.1 (\d{3})};
    my %h = map { /^([^:]+):\s*(.*)$/ ? (lc $1, $2) : () }
            split /\r\n/, $head // '';
    my $json = ($h{'content-type'} // '') =~ /json/
               ? eval { $JSON->decode($body) } : undef;

    return { status => $status // 0, headers => \%h, body => $body // '',
             json => $json };
}


# So many connections at once: all are open before any is used, each sends one
# request (with "Connection: close"), and their answers are read as they come.

sub crowd {
    my ($n, $request, %o) = @_;

    my @c = map { connection(%o) } 1 .. $n;
    my @text = ('') x $n;
    my %number = map { fileno($c[$_]) => $_ } 0 .. $#c;
    my $select = IO::Select->new(@c);
    my $deadline = time + within($o{timeout} // 120);

    SandboxTest::More::send_all($c[$_], $request->($_)) for 0 .. $#c;

    while ($select->count && time < $deadline) {
        for my $c ($select->can_read(1)) {
            my $at = \$text[ $number{ fileno $c } ];

            next if sysread $c, $$at, 65536, length $$at;
            $select->remove($c);
            close $c;
        }
    }

    return map { answer_of($_) } @text;
}


sub connection {
    my (%o) = @_;

    my $c = IO::Socket::INET->new(PeerAddr => '127.0.0.1', Timeout => 20,
                                  PeerPort => $SandboxTest::More::PORT)
        or die "cannot connect: $!";

    binmode $c;
    setsockopt $c, SOL_SOCKET, SO_RCVBUF, $o{rcvbuf} if $o{rcvbuf};

    return $c;
}


# Requests one after the other on few connections, as fast as they are taken
# and without waiting for an answer; take->(answer, number of the request).
# How many were answered, in order.

sub pipelined {
    my ($connections, $n, $request, $take, %o) = @_;

    my $deadline = time + within($o{timeout} // 120);
    my $next = 0;
    my $answered = 0;
    my (%c, $reads, $writes);

    $reads = IO::Select->new;
    $writes = IO::Select->new;

    for (1 .. $connections) {
        my $s = connection();

        $s->blocking(0);
        $c{ fileno $s } = { out => '', in => '', sent => [] };
        $reads->add($s);
        $writes->add($s);
    }

    while ($reads->count && $answered < $n && time < $deadline) {
        my ($r, $w) = IO::Select->select($reads, $writes, undef, 1);

        for my $s (@{ $w // [] }) {
            my $c = $c{ fileno $s };

            while (length $c->{out} < 16384 && $next < $n) {
                push @{ $c->{sent} }, $next;
                $c->{out} .= $request->($next++);
            }

            local $SIG{PIPE} = 'IGNORE';
            my $k = syswrite $s, $c->{out};

            substr $c->{out}, 0, $k, '' if $k;
            $writes->remove($s) if $next >= $n && $c->{out} eq '';
        }

        for my $s (@{ $r // [] }) {
            my $c = $c{ fileno $s };

            if (!sysread $s, $c->{in}, 262144, length $c->{in}) {
                $reads->remove($s);
                $writes->remove($s);
            }

            while (defined(my $text = whole(\$c->{in}))) {
                $take->($text, shift @{ $c->{sent} });
                $answered++;
            }
        }
    }

    return $answered;
}


# Takes one whole answer from the front of the buffer; undef: there is none.

sub whole {
    my ($in) = @_;

    my $end = index $$in, "\r\n\r\n";
    return undef if $end == -1;

    my $head = substr $$in, 0, $end;
    my ($length) = $head =~ /^Content-Length: (\d+)/mi;
    my $n = $end + 4 + ($length // 0);

    # no text of the API has such a line of its own

    if ($head =~ /^Transfer-Encoding: chunked/mi) {
        my $last = index $$in, "\r\n0\r\n\r\n", $end;

        return undef if $last == -1;
        $n = $last + 7;
    }

    return length $$in >= $n ? substr $$in, 0, $n, '' : undef;
}


1;
