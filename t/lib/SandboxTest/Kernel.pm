package SandboxTest::Kernel;

# A kernel outside a session, as its kernel.conf starts it: the frames of
# sandbox_core/kernels/README.md, by hand.
#
#   my $k = kernel('python');                 # started, and ready
#   my $r = $k->run('print(1); 6*7');
#
# $r has id, exit, stdout, stderr, error ({name, value, traceback} or undef),
# results ([{main, 'text/plain' => ..., types => [names in order]}]) and
# events, all of these in order: ['stdout', 'text'], ['result', {...}] ...
# died is the wait status of a kernel that ended instead.

use strict;
use warnings;

use Cwd qw(abs_path);
use Exporter qw(import);
use Fcntl qw(:DEFAULT F_SETFL F_GETFL O_NONBLOCK);
use File::Temp qw(tempdir);
use IO::Select;
use POSIX ();
use Socket;
use Test::More;
use Time::HiRes qw(time sleep);

use SandboxTest;

our @EXPORT = qw(kernel kernel_missing);

my $BODY_MAX = 16 * 1024 * 1024;
my $FIRST_FREE = 64;
my %HAS_ERROR_FIELDS = map { $_ => 1 } qw(id name value traceback);


# What is built is what sessions see.

sub directory {
    my ($language) = @_;

    my $built = "$SandboxTest::BUILD/kernels/$language";

    return $ENV{SANDBOX_KERNELS} ? "$ENV{SANDBOX_KERNELS}/$language"
           : -d $built           ? $built
           : "$SandboxTest::ROOT/sandbox_core/kernels/$language";
}


# kernel.conf: {command => [...], environment => [...], needs => [...], ...}

sub description {
    my ($language) = @_;

    my $dir = directory($language);
    my %conf = (command => [], environment => [], needs => []);

    open my $f, '<', "$dir/kernel.conf" or die "$dir/kernel.conf: $!";

    while (<$f>) {
        chomp;
        next if /^(#|\s*$)/;

        my ($word, $rest) = split ' ', $_, 2;
        $rest =~ s{^\@/}{$dir/} if $word eq 'command';
        push @{ $conf{$word} }, $rest;
    }

    return \%conf;
}


# What the machine lacks for a language, or undef.

sub kernel_missing {
    my ($language) = @_;

    for my $path (@{ description($language)->{needs} }) {
        return "$path is not there" if !-x $path;
    }

    return undef;
}


# One that is ready.  dir: its workspace, a new one by default; env: besides
# what a session's commands have; limits: a shell command that comes first.

sub kernel {
    my ($language, %o) = @_;

    my $self = start($language, %o);
    my $ready = $self->next_frame;

    if (($ready->{type} // '') ne 'ready') {
        $self->stop;
        die "$language did not get ready: "
            . ($ready->{stderr} // $self->{errors} // 'silence');
    }

    $self->{version} = $ready->{version};

    return $self;
}


# Not waited for.

sub start {
    my ($language, %o) = @_;

    my $conf = description($language);
    my $dir = $o{dir} // tempdir('sbxXXXXXX', TMPDIR => 1, CLEANUP => 1);
    my @command = @{ $conf->{command} };

    unshift @command, '/bin/sh', '-c', "$o{limits}; exec \"\$@\"", 'sh'
        if $o{limits};

    socketpair(my $ours, my $theirs, AF_UNIX, SOCK_STREAM, PF_UNSPEC)
        or die "socketpair: $!";
    pipe(my $out, my $out_w) or die "pipe: $!";
    pipe(my $err, my $err_w) or die "pipe: $!";
    open my $null, '<', '/dev/null' or die "/dev/null: $!";

    defined(my $pid = fork) or die "fork: $!";

    if ($pid == 0) {
        my @from = map { fcntl($_, F_DUPFD, $FIRST_FREE) + 0 }
                   $null, $out_w, $err_w, $theirs;

        setpgrp(0, 0);
        POSIX::dup2($from[$_], $_) for 0 .. $#from;
        POSIX::close($_) for @from;
        POSIX::close($_) for 4 .. $FIRST_FREE - 1;

        %ENV = (PATH => '/usr/local/bin:/usr/bin:/bin', HOME => $dir,
                LANG => 'C.UTF-8', PYTHONUNBUFFERED => 1, USER => 'user',
                (map { split /=/, $_, 2 } @{ $conf->{environment} }),
                %{ $o{env} || {} });

        $SIG{$_} = 'DEFAULT' for qw(INT TERM PIPE CHLD);
        chdir $dir or POSIX::_exit(126);
        exec { $command[0] } @command or POSIX::_exit(127);
    }

    # In the parent too, so that the group is there at once.
    setpgrp($pid, $pid);

    my $self = bless { language => $language, pid => $pid, dir => $dir,
                       socket => $ours, stdout => $out, stderr => $err,
                       frames => [], buffer => '', owner => $$,
                       deadline => 60 * $SandboxTest::SLOW, count => 0,
                       events => [] }, __PACKAGE__;

    for my $f ($ours, $out, $err) {
        binmode $f;
        fcntl($f, F_SETFL, fcntl($f, F_GETFL, 0) | O_NONBLOCK);
    }

    $self->{open} = { map { $_ => $self->{$_} } qw(socket stdout stderr) };

    return $self;
}


sub pid { return $_[0]{pid} }
sub dir { return $_[0]{dir} }
sub version { return $_[0]{version} }


# ---- frames ---------------------------------------------------------------

# A frame of [name, value] pairs, in bytes.

sub frame {
    my ($type, @fields) = @_;

    my $body = join '', map {
        my ($name, $value) = @$_;
        utf8::encode($value) if utf8::is_utf8($value);
        "$name " . length($value) . "\n$value\n";
    } @fields;

    return "$type " . length($body) . "\n$body";
}


sub send_bytes {
    my ($self, $bytes) = @_;

    local $SIG{PIPE} = 'IGNORE';

    my $until = time + $self->{deadline};

    while (length $bytes && time < $until) {
        my $n = syswrite $self->{socket}, $bytes, 262144;

        if (defined $n) {
            substr $bytes, 0, $n, '';
            next;
        }

        return 0 if !$!{EAGAIN};

        # It may itself wait for what it says to be read.
        $self->pump(0.05);
    }

    return !length $bytes;
}


sub send_frame {
    my ($self, $type, @fields) = @_;

    return $self->send_bytes(frame($type, @fields));
}


sub env_fields {
    my ($env) = @_;

    return map { [ env => "$_=$env->{$_}" ] } sort keys %{ $env || {} };
}


# Whole frames out of the buffer; dies on what is none.

sub take_frames {
    my ($self) = @_;

    while ($self->{buffer} =~ /^([^\n]*)\n/) {
        my $head = $1;
        my ($type, $size) = $head =~ /^([!-~]{1,32}) (\d{1,8})$/
            or die "no frame: \"$head\"";
        die "a body of $size bytes" if $size > $BODY_MAX;

        my $at = length($head) + 1;
        return if length $self->{buffer} < $at + $size;

        my $body = substr $self->{buffer}, $at, $size;
        substr $self->{buffer}, 0, $at + $size, '';
        push @{ $self->{frames} }, fields_of($type, $body);
    }

    die 'no end of a frame\'s first line' if length $self->{buffer} > 64
                                             && $self->{buffer} !~ /\n/;

    return;
}


sub fields_of {
    my ($type, $body) = @_;

    my %frame = (type => $type, names => []);

    while (length $body) {
        $body =~ s/^([!-~]{1,128}) (\d{1,8})\n//
            or die "no field of $type: " . substr($body, 0, 80);
        my ($name, $size) = ($1, $2);
        my $value = substr $body, 0, $size, '';

        die "$type.$name is cut" if length $value != $size
                                    || $body !~ s/^\n//;
        die "$type.$name has a NUL" if $value =~ /\0/;
        die "$type.$name is not UTF-8" if !utf8::decode($value);

        push @{ $frame{names} }, $name;
        $frame{$name} = $value;
    }

    return \%frame;
}


# Reads what is there: the pipes until they are empty, and only then what has
# come as frames.

sub pump {
    my ($self, $wait) = @_;

    my $select = IO::Select->new(values %{ $self->{open} });
    $select->can_read($wait) if $select->count;

    my $closed = $self->{open}{socket} ? !$self->fill('socket') : 1;

    for my $name (qw(stdout stderr)) {
        $self->fill($name) if $self->{open}{$name};
        $self->event($name, delete $self->{"new_$name"})
            if length($self->{"new_$name"} // '');
    }

    $self->take_frames;

    return !$closed || @{ $self->{frames} };
}


sub fill {
    my ($self, $name) = @_;

    my $into = $name eq 'socket' ? 'buffer' : "new_$name";
    $self->{$into} //= '';

    for ( ;; ) {
        my $n = sysread $self->{open}{$name}, $self->{$into}, 262144,
                        length $self->{$into};
        next if $n;
        last if !defined $n && ($!{EAGAIN} || $!{EINTR});

        delete $self->{open}{$name};
        return 0;
    }

    return 1;
}


sub event {
    my ($self, $type, $what) = @_;

    my $last = $self->{events}[-1];

    if ($last && !ref $what && $last->[0] eq $type) {
        $last->[1] .= $what;
        return;
    }

    push @{ $self->{events} }, [ $type, $what ];

    return;
}


# The next frame, or undef: the kernel is gone, or silent for too long.

sub next_frame {
    my ($self, $within) = @_;

    my $until = time + ($within // $self->{deadline});

    while (!@{ $self->{frames} } && time < $until) {
        last if !$self->pump($until - time);
    }

    return shift @{ $self->{frames} };
}


# ---- runs -----------------------------------------------------------------

sub send_run {
    my ($self, $code, %o) = @_;

    $self->{id} = $o{id} // ++$self->{count};
    $self->{events} = [] if !$o{keep};

    return $self->send_frame('run', [ id => $self->{id} ], [ code => $code ],
                             env_fields($o{env}));
}


# Waits until an output has come that matches, before the end: an event, so
# that no test need sleep.

sub until_output {
    my ($self, $like) = @_;

    my $until = time + $self->{deadline};

    while (time < $until) {
        my $text = join '', map { $_->[1] }
                   grep { !ref $_->[1] } @{ $self->{events} };
        return 1 if $text =~ $like;

        last if !$self->pump(1) && !%{ $self->{open} };
    }

    return 0;
}


sub finish {
    my ($self, %o) = @_;

    my %r = (id => $self->{id}, results => [], error => undef,
             exit => undef);

    while (my $f = $self->next_frame($o{within})) {
        my $type = delete $f->{type};

        if ($type eq 'result') {
            my %result = %$f;
            $result{types} = [ grep { !/^(id|main)$/ }
                               @{ delete $result{names} } ];
            push @{ $r{results} }, \%result;
            $self->event(result => \%result);

        } elsif ($type eq 'error') {
            my @odd = grep { !$HAS_ERROR_FIELDS{$_} } @{ $f->{names} };
            die "error has @odd" if @odd;
            die 'a second error' if $r{error};
            $r{error} = { map { $_ => $f->{$_} } qw(name value traceback) };
            $self->event(error => $r{error});

        } elsif ($type eq 'end') {
            $r{exit} = $f->{exit};
            last;

        } else {
            die "$type in a run";
        }

        die "$type of run $f->{id}, not $self->{id}"
            if $f->{id} ne $self->{id};
    }

    if (!defined $r{exit}) {
        $r{died} = $self->wait_end;
    }

    $r{events} = $self->{events};

    for my $name (qw(stdout stderr)) {
        $r{$name} = join '', map { $_->[1] }
                    grep { $_->[0] eq $name } @{ $r{events} };
        utf8::decode($r{$name});
    }

    $r{main} = (grep { $_->{main} } @{ $r{results} })[0];
    $r{text} = $r{main} ? $r{main}{'text/plain'} : undef;

    return \%r;
}


sub run {
    my ($self, $code, %o) = @_;

    $self->send_run($code, %o);

    return $self->finish(%o);
}


# Runs code, of which the last expression is that text.

sub shows {
    my ($self, $code, $text, $name, %o) = @_;

    local $Test::Builder::Level = $Test::Builder::Level + 1;

    my $got = $self->run($code, %o);

    is($got->{text}, $text, $name)
        or diag($got->{error} ? $got->{error}{traceback} : $got->{stderr});

    return $got;
}


# To the group, as the engine does; again until the run is over.

sub interrupt {
    my ($self) = @_;

    return kill 'INT', -$self->{pid};
}


sub interrupted {
    my ($self) = @_;

    my $until = time + $self->{deadline};
    my $next = 0;

    while (!grep { $_->{type} eq 'end' } @{ $self->{frames} }) {
        last if time > $until;

        if (time >= $next) {
            $self->interrupt;
            $next = time + 0.5;
        }

        last if !$self->pump(0.1);
    }

    return $self->finish;
}


sub setup {
    my ($self, %o) = @_;

    $self->send_frame('setup', env_fields($o{env}),
                      defined $o{cwd} ? [ cwd => $o{cwd} ] : (),
                      map { [ preload => $_ ] } @{ $o{preload} || [] });

    return $self->next_frame;
}


# ---- its end --------------------------------------------------------------

# The wait status; undef where it lives on.

sub wait_end {
    my ($self, $within) = @_;

    my $until = time + ($within // $self->{deadline});

    while (!defined $self->{status} && time < $until) {
        if (waitpid($self->{pid}, POSIX::WNOHANG()) == $self->{pid}) {
            $self->{status} = $?;
            last;
        }
        $self->pump(0.02) if %{ $self->{open} };
        sleep 0.01 if !%{ $self->{open} };
    }

    # What it wrote before it died.
    $self->pump(0) if %{ $self->{open} };

    return $self->{status};
}


sub hang_up {
    my ($self) = @_;

    delete $self->{open}{socket};
    close $self->{socket};

    return;
}


sub stop {
    my ($self) = @_;

    return if $self->{owner} != $$ || $self->{stopped}++;

    kill 'KILL', -$self->{pid};
    $self->{status} //= waitpid($self->{pid}, 0) == $self->{pid} ? $? : 0;

    return;
}


sub DESTROY {
    my ($self) = @_;

    local ($?, $!, $@);
    $self->stop;

    return;
}


1;
