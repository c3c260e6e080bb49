package SandboxTest::Load;

# Clients of every kind at work while nginx reloads again and again; each
# checks its own answers to the byte.
#
#   my $report = SandboxTest::Load::over_reloads($t, reloads => 20);
#
#   wrong    what was lost, refused or not as asked for: a line each
#   done     how much of each kind there was
#   retried  requests on a connection that nginx had closed between two, and
#            without a byte of an answer: sent again, as any client does
#   resumed  streams that went on in another worker
#   memory   of broker, master and the largest worker, after each reload
#   fds      of each process at rest, before and after
#   old      the most old workers at once

use strict;
use warnings;

use JSON::PP ();
use Time::HiRes qw(time sleep);

use SandboxTest;
use SandboxTest::More;
use SandboxTest::Stream;

my $JSON = JSON::PP->new->utf8->canonical;
my ($PORT, $STOP, $WRONG);

my %CLIENTS = (
    sessions => \&sessions,
    commands => \&commands,
    uploads => \&uploads,
    streams => \&streams,
    followed => \&followed,
    runs => \&runs,
);


sub over_reloads {
    my ($t, %o) = @_;

    ($PORT, $STOP) = ($t->port, $t->prefix . '/stop');
    unlink $STOP;

    # what is made once is made before anything is counted

    for (1 .. 2) {
        destroy(create_ok());
        $t->reload;
    }

    my $before = at_rest($t);
    my %jobs = map { my $run = $CLIENTS{$_};
                     $_ => async { client($run) } } sort keys %CLIENTS;
    my (@memory, $old);

    $old = 0;

    for my $n (1 .. $o{reloads}) {
        $t->reload or push @{ $WRONG }, "reload $n is not over";

        my @workers = $t->workers;
        my @going = grep { is_old($_) } @workers;

        $old = @going if @going > $old;
        push @memory, { broker => rss($t->broker), master => rss($t->master),
                        worker => largest(grep { !is_old($_) } @workers) };
        $o{each}->($n, $memory[-1], scalar @going) if $o{each};
    }

    open my $f, '>', $STOP or die $!;
    close $f;

    # who follows looks up when it is told to resume

    $t->reload;

    my %report = (wrong => [ @{ $WRONG // [] } ], memory => \@memory,
                  old => $old, retried => 0, resumed => 0);

    for my $kind (sort keys %jobs) {
        my $r = $jobs{$kind}->get(within(120));

        push @{ $report{wrong} }, map { "$kind: $_" }
                                  @{ $r->{wrong} // [ 'no result' ] };
        $report{done}{$kind} = $r->{done} // 0;
        $report{$_} += $r->{$_} // 0 for qw(retried resumed);
    }

    # as soon as what was asked for is all given back

    my $after;

    until_true {
        $after = at_rest($t);
        return $JSON->encode($after) eq $JSON->encode($before);
    } 30;

    $report{fds} = [ $before, $after ];
    splice @memory, 0, int(@memory / 10);

    return \%report;
}


sub is_old { return (slurp("/proc/$_[0]/cmdline") // '') =~ /shutting down/ }

sub largest { return (sort { $b <=> $a } map { rss($_) } @_)[0] // 0 }


sub at_rest {
    my ($t) = @_;

    until_true { !grep { is_old($_) } $t->workers } 30;

    my @workers = sort { $a <=> $b } $t->workers;

    return { broker => fds($t->broker), keeper => fds($t->keeper),
             master => fds($t->master), workers => scalar @workers,
             worker => (sort { $b <=> $a } map { fds($_) } @workers)[0] };
}


# ---- what all clients do -------------------------------------------------

sub client {
    my ($run) = @_;

    my $self = bless { wrong => [], done => 0, retried => 0, resumed => 0 },
                     __PACKAGE__;

    eval { $run->($self); 1 } or push @{ $self->{wrong} }, "died: $@";
    delete $self->{connection};

    return { %$self };
}


sub goes_on {
    my ($self) = @_;

    # who is wrong all the time need not say so for long

    return !-e $STOP && @{ $self->{wrong} } < 20;
}


sub wrong {
    my ($self, $text) = @_;

    push @{ $self->{wrong} }, sprintf '%.3f %s', time, $text;

    return undef;
}


# Over a connection that is kept.

sub ask {
    my ($self, $method, $path, %o) = @_;

    my %h = %{ $o{headers} || {} };

    if ($o{json}) {
        $o{body} = $JSON->encode($o{json});
        $h{'Content-Type'} = 'application/json';
    }

    for ( ;; ) {
        my $c = $self->{connection};
        my $kept = $c ? 1 : 0;

        $c //= $self->{connection} =
            SandboxTest::Connection->new(port => $PORT,
                                         timeout => within(60));
        return $self->wrong("$method $path: no connection: $!") // {}
            if !$c;

        my $res = $c->request($method, "/v1$path", body => $o{body},
                              headers => \%h);

        if ($res->{status} == 0) {
            delete $self->{connection};

            if ($kept && !$c->{timed_out} && $c->{buffer} eq '') {
                $self->{retried}++;
                next;
            }

            return $self->wrong("$method $path: no answer") // {};
        }

        delete $self->{connection}
            if ($res->{headers}{connection} // '') eq 'close';

        $self->wrong("$method $path: $res->{status} $res->{body}")
            if !grep { $_ == $res->{status} } @{ $o{want} || [ 200 ] };
        $self->wrong("$method $path: the body is cut") if !$res->{whole};

        $res->{json} = eval { $JSON->decode($res->{body}) }
            if ($res->{headers}{'content-type'} // '') =~ /json/;

        return $res;
    }
}


sub session {
    my ($self) = @_;

    my $key = sprintf '%d-%d-%d', $$, time * 1e6, rand 1e9;
    my $res = $self->ask('POST', '/sessions', want => [ 200, 201 ],
                         headers => { 'Idempotency-Key' => $key },
                         json => { tenant_id => 'load', user_id => 'load',
                                   timeout_s => 3600 });

    return $res->{json}{session_id} // die "no session\n";
}


sub end {
    my ($self, $id) = @_;

    return $self->ask('DELETE', "/sessions/$id", want => [ 204 ]);
}


# ---- clients -------------------------------------------------------------

# Every session that was made is there until it is destroyed, and not after.

sub sessions {
    my ($self) = @_;

    my (@alive, @dead);

    while ($self->goes_on) {
        push @alive, $self->session;
        $self->ask('GET', "/sessions/$_") for @alive;

        if (@alive > 3) {
            my $id = shift @alive;
            $self->end($id);
            push @dead, $id;
        }

        $self->{done}++;
    }

    $self->ask('GET', "/sessions/$_") for @alive;
    $self->end($_) for @alive;
    $self->ask('GET', "/sessions/$_", want => [ 404 ]) for @dead, @alive;

    return;
}


# Each command runs once, whatever connection it came by.

sub commands {
    my ($self) = @_;

    my $id = $self->session;

    while ($self->goes_on) {
        my $n = $self->{done}++;
        my $res = $self->ask('POST', "/sessions/$id/exec", json =>
                             { cmd => "echo $n >> log; echo $n" });

        $self->wrong("command $n: " . ($res->{body} // ''))
            if ($res->{json}{stdout} // '') ne "$n\n";
    }

    my $all = $self->ask('GET', "/sessions/$id/files/log")->{body} // '';

    $self->wrong("the commands were: $all")
        if $all ne join '', map { "$_\n" } 0 .. $self->{done} - 1;
    $self->end($id);

    return;
}


sub uploads {
    my ($self) = @_;

    my $id = $self->session;

    while ($self->goes_on) {
        my $n = $self->{done}++;
        my $bytes = pack('N', $n) x (50_000 + 1000 * ($n % 200));

        $self->ask('PUT', "/sessions/$id/files/f", body => $bytes,
                   want => [ 200, 201 ]);
        my $res = $self->ask('GET', "/sessions/$id/files/f");
        $self->wrong("file $n is another") if ($res->{body} // '') ne $bytes;
    }

    $self->end($id);

    return;
}


# A command that waits for its reader, and one that does not.

sub streams {
    my ($self) = @_;

    my $id = $self->session;

    while ($self->goes_on) {
        my $n = $self->{done}++;
        my $detach = $n % 2;
        my $f = stream('POST', "/sessions/$id/exec", sse => $n % 3 == 0,
                       json => { cmd => 'for i in 1 2 3 4 5 6 7 8; do '
                                        . "echo $n.\$i; sleep 0.1; done",
                                 on_disconnect => $detach ? 'detach'
                                                          : 'kill' });
        my $want = join '', map { "$n.$_\n" } 1 .. 8;

        $self->to_end($id, $f, $want, $detach);
    }

    $self->end($id);

    return;
}


sub to_end {
    my ($self, $id, $f, $want, $detach) = @_;

    my ($text, $e) = ('');

    for ( ;; ) {
        return $self->wrong("a stream: $f->{status}") if $f->{status} != 200;

        $e = $self->events($f, \$text);

        last if $e->{type} ne 'resume' || !$detach;

        $self->{resumed}++;
        $f = follow($id, $e->{pid}, "stdout_from=$e->{stdout_from}");
    }

    return $self->wrong("a stream ended with $e->{type}: $text")
        if $e->{type} ne 'exit' || $e->{exit_code} != 0;

    return $text eq $want ? 1 : $self->wrong("a stream brought $text");
}


# Appends to the text, whose end each event has to begin at; the last event.

sub events {
    my ($self, $f, $text) = @_;

    my $last = { type => 'nothing' };

    while (my $e = $f->next(60)) {
        $last = $e if $e->{type} ne 'ping';

        next if $e->{type} ne 'stdout';
        $self->wrong("an event at $e->{offset}, not " . length $$text)
            if $e->{offset} != length $$text;
        $$text .= $e->{data};
    }

    $self->wrong('a stream was cut') if !$f->{whole};
    $f->close;

    return $last;
}


# One process from the first reload to the last.

sub followed {
    my ($self) = @_;

    my $id = $self->session;
    my $stop = 0;
    my $pid = $self->ask('POST', "/sessions/$id/exec", want => [ 202 ],
                         json => { background => JSON::PP::true, cmd =>
                         'n=0; while [ ! -e stop ]; do echo $n; n=$((n+1)); '
                         . 'sleep 0.01; done' })->{json}{pid};
    my ($text, $e) = ('', {});

    for ( ;; ) {
        my $f = follow($id, $pid, 'stdout_from=' . length $text);

        $self->wrong("a follower: $f->{status}"), last
            if $f->{status} != 200;

        $e = $self->events($f, \$text);
        last if $e->{type} ne 'resume';

        $self->{resumed}++;
        $self->wrong("resumed at $e->{stdout_from}, not " . length $text)
            if $e->{stdout_from} != length $text;

        next if $stop || $self->goes_on;

        $self->ask('PUT', "/sessions/$id/files/stop", body => '',
                   want => [ 201 ]);
        $stop = 1;
    }

    my $n = 0;

    for my $line (split /\n/, $text) {
        $self->wrong("line $n is $line"), last if $line ne $n++;
    }

    $self->wrong("a process ended with $e->{type}")
        if $e->{type} ne 'exit' || ($e->{stdout_bytes} // -1) != length $text;
    $self->{done} = $n;
    $self->end($id);

    return;
}


sub runs {
    my ($self) = @_;

    while ($self->goes_on) {
        my $n = $self->{done}++;
        my $res = $self->ask('POST', '/run', json =>
                             { tenant_id => 'load', user_id => 'load',
                               files => { f => "run $n" },
                               steps => [ { cmd => 'cat f' },
                                          { cmd => 'true' } ] });

        $self->wrong("run $n: " . ($res->{body} // ''))
            if ($res->{json}{steps}[0]{stdout} // '') ne "run $n"
               || @{ $res->{json}{steps} } != 2;
    }

    return;
}


1;
