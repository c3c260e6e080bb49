package SandboxTest::Flight;

# A bit of everything in flight, and what has become of it once it has landed.
#
#   my $flight = SandboxTest::Flight->begin;
#   ... what may cut none of it ...
#   is_deeply($flight->land, [], 'nothing is lost');
#
# A process whose output is followed, an upload and a download that are half
# done, a command that waits, a terminal, a session that is paused, and the
# variable of a context.  What ends by a worker's leave to go on elsewhere is
# gone on with; {resumed} counts that.

use strict;
use warnings;

use Digest::MD5 qw(md5_hex);
use POSIX ();
use Test::More;

use SandboxTest ();
use SandboxTest::More;
use SandboxTest::Stream;

my $FILE = 6 << 20;
my %MORE = (manifest => { resources => { exec_timeout_s => 600 } });
my $COUNT = 'n=0; while [ ! -e stop ]; do echo $n; n=$((n+1)); sleep 0.02;'
            . ' done; echo end';
my $TICK = 'n=0; while :; do echo $n >> ticks; n=$((n+1)); sleep 0.02; done';


sub begin {
    my ($class, %o) = @_;

    my $self = bless { resumed => 0, wrong => [], %o }, $class;

    $self->{id} = create_ok({ timeout_s => 3600, %MORE });
    $self->{still} = create_ok({ timeout_s => 3600, %MORE });
    $self->{data} = join '', map { pack('N', $_) x 16 } 1 .. $FILE / 64;

    for my $id ($self->sessions) {
        put($id, 'mark', $id);
    }

    $self->begin_paused;
    $self->begin_code;
    $self->begin_follow;
    $self->begin_command;
    $self->begin_terminal;
    $self->begin_download;
    $self->begin_upload;

    return $self;
}


sub sessions { return @{ $_[0] }{qw(id still)} }


sub wrong {
    my ($self, @text) = @_;

    push @{ $self->{wrong} }, join '', @text;

    return;
}


# What a client does now and then: type, and send some of what it is sending.

sub keep {
    my ($self) = @_;

    $self->{terminal}->type("echo n\"\"ow\n");
    $self->{terminal}->expect(qr/now\r\n/)
        or $self->wrong('the terminal does not answer');
    $self->upload(4096) if $self->{up};

    return;
}


# Everything to its end: what is wrong with it.

sub land {
    my ($self) = @_;

    $self->land_transfers if $self->{up};
    $self->land_files;
    $self->land_terminal;
    $self->land_command;
    $self->land_follow;
    $self->land_code;
    $self->land_paused;

    for my $id ($self->sessions) {
        my $mark = get($id, 'mark')->{body} // '';
        $self->wrong("the mark of $id is $mark") if $mark ne $id;
        my $status = destroy($id)->{status};
        $self->wrong("DELETE of $id is $status") if $status != 204;
    }

    return $self->{wrong};
}


# ---- each ----------------------------------------------------------------

sub begin_follow {
    my ($self) = @_;

    $self->{pid} = background($self->{id}, $COUNT);
    $self->{text} = '';
    $self->follow_on;
    $self->{text} .= ($self->{follow}->until('stdout') // {})->{data} // '';

    return;
}


sub follow_on {
    my ($self) = @_;

    $self->{follow} = follow($self->{id}, $self->{pid},
                             'stdout_from=' . length $self->{text});
    $self->wrong("a follower: $self->{follow}{status}")
        if $self->{follow}{status} != 200;

    return;
}


sub land_follow {
    my ($self) = @_;

    my $end = '';

    put($self->{id}, 'stop', '');

    while ($end ne 'exit') {
        my $r = $self->{follow}->rest(60);

        for my $e (grep { defined $_->{data} } @{ $r->{events} }) {
            $self->wrong("output at $e->{offset}, not ",
                         length $self->{text})
                if $e->{offset} != length $self->{text};
            $self->{text} .= $e->{data};
        }

        my $last = $r->{events}[-1];
        $end = $last ? $last->{type} : 'nothing';

        if ($end eq 'resume') {
            $self->{resumed}++;
            $self->follow_on;

        } elsif ($end ne 'exit') {
            return $self->wrong("output ended with $end");
        }
    }

    my @lines = split /\n/, $self->{text};

    $self->wrong('the last line is ', $lines[-1] // 'none')
        if (pop(@lines) // '') ne 'end';

    for my $n (0 .. $#lines) {
        return $self->wrong("line $n is $lines[$n]") if $lines[$n] ne $n;
    }

    return;
}


sub begin_command {
    my ($self) = @_;

    my $id = $self->{id};

    run($id, 'mkfifo fifo');
    $self->{command} = async {
        exec_call($id, 'echo $$ >> begun; read x < fifo; echo "$x"',
                  timeout_s => 600, _http => { timeout => within(120) })
    };
    until_true { get($id, 'begun')->{status} == 200 } 20;

    return;
}


sub land_command {
    my ($self) = @_;

    run($self->{id}, 'echo on > fifo');

    my $res = $self->{command}->get(within(120)) // { status => 'none' };

    $self->wrong("a command: $res->{status} ", $res->{body} // '')
        if $res->{status} != 200 || $res->{json}{stdout} ne "on\n";
    my $begun = get($self->{id}, 'begun')->{body} // '';
    $self->wrong("it was begun: $begun") if $begun !~ /\A\d+\n\z/;

    return;
}


sub begin_terminal {
    my ($self) = @_;

    $self->{terminal} = ws_open("/sessions/$self->{id}/terminal");
    $self->{terminal}->type("echo be\"\"gun\n");
    $self->{terminal}->expect(qr/begun\r\n/)
        or $self->wrong('no terminal');
    $self->begin_pongs;

    return;
}


# A client's machine answers pings whatever the test is at, which may be slow.

sub begin_pongs {
    my ($self) = @_;

    $self->{test} = $$;
    $self->{pongs} = fork // die "fork: $!";

    if ($self->{pongs} == 0) {
        $SIG{$_} = 'DEFAULT' for qw(TERM PIPE);

        while (getppid != 1 && $self->{terminal}->send(10, '')) {
            sleep 10;
        }

        POSIX::_exit(0);
    }

    return;
}


sub end_pongs {
    my ($self) = @_;

    my $pid = delete $self->{pongs} // return;

    return if $$ != $self->{test};

    kill 'TERM', $pid;
    waitpid $pid, 0;

    return;
}


sub DESTROY { local $?; $_[0]->end_pongs; return }


sub land_terminal {
    my ($self) = @_;

    $self->end_pongs;
    $self->{terminal}->type("echo st\"\"ill\n");
    $self->{terminal}->expect(qr/still\r\n/)
        or $self->wrong('the terminal is not there any more');
    $self->{terminal}->send(8, '');

    return;
}


sub begin_download {
    my ($self) = @_;

    put($self->{id}, 'down', $self->{data});

    my $s = SandboxTest::More::open_request('GET',
        "/sessions/$self->{id}/files/down", rcvbuf => 65536);
    my $head = read_head($s, chunk => 4096);

    $self->wrong("a download: $head->{status}") if $head->{status} != 200;
    $self->{down} = [ $s, $head ];

    return;
}


sub upload {
    my ($self, $n) = @_;

    $self->{sent} += SandboxTest::More::send_all($self->{up},
        substr $self->{data}, $self->{sent} // 0, $n);

    return;
}


# Of the two that wait for their client, which may not take for ever; neither
# needs the broker for it.

sub land_transfers {
    my ($self) = @_;

    my ($s, $head) = @{ delete $self->{down} };
    my $body = '';
    my ($n, $whole) = body_stream($s, $head, sub { $body .= $_[0] });

    $self->wrong("a download: $n bytes of $FILE") if !$whole;
    $self->wrong('a download is another file')
        if md5_hex($body) ne md5_hex($self->{data});

    $self->upload($FILE - $self->{sent});

    my $res = read_response(delete $self->{up}, timeout => within(60));

    $self->wrong("an upload: $res->{status} ", $res->{body} // '')
        if $res->{status} != 201;

    return;
}


# Sent to the middle, and as far as that the session has some of it.

sub begin_upload {
    my ($self) = @_;

    my $id = $self->{id};
    my $s = SandboxTest::More::open_request('PUT', "/sessions/$id/files/up",
        headers => { 'Content-Length' => $FILE });

    $self->{up} = $s;
    $self->upload($FILE / 2);

    my $there = 0;
    until_true {
        $there = run($id, 'stat -c %s .[!.]* 2>/dev/null'
                          . ' | sort -n | tail -1')->{stdout};
        $there =~ /^[1-9]\d{4,}$/m;
    } 20 or $self->wrong("an upload has not begun: $there");

    return;
}


sub land_files {
    my ($self) = @_;

    $self->wrong('what was uploaded is another file')
        if md5_hex(get($self->{id}, 'up')->{body} // '')
           ne md5_hex($self->{data});

    my $left = run($self->{id}, 'ls -A | grep ^\\\\.')->{stdout};
    $self->wrong("left of uploads: $left") if $left ne '';

    return;
}


# Its ticks stand still while it is paused, whoever dies meanwhile.

sub begin_paused {
    my ($self) = @_;

    my $id = $self->{still};

    background($id, $TICK);
    until_true { length(get($id, 'ticks')->{body} // '') > 20 } 20;

    my $res = call('POST', "/sessions/$id/pause");

    if ($res->{status} == 400) {
        $self->{cannot_pause} = 1;          # no cgroup.freeze on the machine

    } elsif ($res->{status} != 200) {
        $self->wrong("pause: $res->{status}");
    }

    # who is frozen is counted as such just before it leaves its processor

    $self->{stands} = '';

    until_true {
        my $last = $self->{stands};
        $self->{stands} = $self->processes;
        !$self->{awake} && $self->{stands} eq $last;
    } 10;
    $self->wrong('nothing of it is there') if $self->{stands} eq '';

    return;
}


# What runs comes to a processor and leaves it, which the kernel counts; a
# tick is a process of its own besides.

sub processes {
    my ($self) = @_;

    my @all;

    $self->{awake} = 0;

    for my $dir (glob '/proc/[0-9]*') {
        next if (slurp("$dir/cgroup") // '')
                !~ m{/\Q$self->{still}\E/(?!init$)}m;

        my ($pid) = $dir =~ /(\d+)$/;
        my $status = slurp("$dir/status") // '';

        $self->{awake}++ if $status =~ /^State:\s+R/m;
        push @all, join '/', $pid, SandboxTest::start_time($pid),
                             $status =~ /ctxt_switches:\s+(\d+)/g;
    }

    return join ' ', sort @all;
}


sub land_paused {
    my ($self) = @_;

    my $id = $self->{still};

    if (!$self->{cannot_pause}) {
        my $status = call('GET', "/sessions/$id")->{json}{status} // '';
        my $now = $self->processes;

        $self->wrong("the paused session is $status") if $status ne 'paused';
        $self->wrong("the paused session has run: $self->{stands}; $now")
            if $now ne $self->{stands};

        my $res = call('POST', "/sessions/$id/resume");
        $self->wrong("resume: $res->{status}") if $res->{status} != 200;
    }

    my $old = get($id, 'ticks')->{body};
    my $new;

    until_true {
        $new = get($id, 'ticks')->{body};
        length $new > length $old;
    } 20 or $self->wrong('it does not go on');

    my @lines = split /\n/, $new;
    my @bad = grep { $lines[$_] ne $_ } 0 .. $#lines - 1;
    $self->wrong("tick $bad[0] is $lines[$bad[0]]") if @bad;

    return;
}


sub begin_code {
    my ($self) = @_;

    return if !-e "$SandboxTest::BUILD/kernels/bash/kernel.conf";

    my $res = $self->code('x=kept');

    $self->{kernel} = $res->{status} == 200;
    $self->wrong("code: $res->{status}") if !$self->{kernel};

    return;
}


sub land_code {
    my ($self) = @_;

    return if !$self->{kernel};

    my $said = $self->code('echo $x')->{json}{stdout} // '';

    $self->wrong("the variable is $said") if $said ne "kept\n";

    return;
}


sub code {
    my ($self, $code) = @_;

    return call('POST', "/sessions/$self->{id}/code",
                timeout => within(60),
                json => { language => 'bash', code => $code });
}


1;
