package SandboxTest::Standalone;

# The other way to trust: nginx runs as www-data from its master on, and finds
# a broker that is a service of its own (sandbox-broker --standalone), whose
# socket is that group's.  What sessions may be is root's to say: an nginx of
# root's with the same configuration says it, and goes.
#
# Every server of a run is of this kind with SANDBOX_TEST_TRUST=standalone,
# one alone with SandboxTest->new(trust => 'standalone').
#
#   broker_env   of the service's environment: { NAME => value }
#
# The test stands in for the init system: what it starts is started again by
# reload(), where it is gone, and ended by stop().

use strict;
use warnings;

use POSIX qw(WNOHANG);
use Test::More;

our @ISA = qw(SandboxTest);
our $USER = 'www-data';


sub take {
    my ($class, $self) = @_;

    if (!-x '/usr/bin/setpriv') {
        plan(skip_all => 'setpriv is not installed');
    }

    # what is around a whole server is around both of its halves

    $self->{broker_wrapper} = $self->{wrapper} // [];
    $self->{wrapper} = [ '/usr/bin/setpriv', "--reuid=$USER",
                         "--regid=$USER", '--clear-groups',
                         @{ $self->{broker_wrapper} } ];

    return bless $self, $class;
}


sub lay_out {
    my ($self) = @_;

    mkdir "$self->{prefix}/run";

    $self->SUPER::lay_out;
    $self->hand_over;

    return;
}


# What nginx writes to is below two directories; the rest is root's, as the
# state directory has to be.

sub hand_over {
    my ($self) = @_;

    my $p = $self->{prefix};

    for my $log ("$p/logs/error.log", "$p/logs/stderr.log") {
        open my $f, '>>', $log or die "$log: $!";
    }

    system('chown', '-RH', "$USER:$USER", "$p/run", "$p/logs") == 0
        or die "chown: $?";

    return;
}


sub write_conf {
    my ($self, %o) = @_;

    $self->SUPER::write_conf(%o);

    my $p = $self->{prefix};
    my $conf = SandboxTest::slurp("$p/conf/nginx.conf");

    $conf =~ s{^pid nginx\.pid;}{pid run/nginx.pid;}m;
    $conf =~ s{^(\s*\w+_temp_path) (\w+);}{$1 run/$2;}mg;
    $conf =~ s{^user \S+;}{}m;
    put_file("$p/conf/nginx.conf", $conf);

    $conf =~ s{run/nginx\.pid}{root.pid}g;
    $conf =~ s{_temp_path run/}{_temp_path root_}g;
    put_file("$p/conf/root.conf", $conf);

    return;
}


sub put_file {
    my ($path, $text) = @_;

    open my $f, '>', $path or die "$path: $!";
    print $f $text;
    close $f;

    return;
}


sub pid_file {
    my ($self, $name) = @_;

    return $self->SUPER::pid_file($name =~ /^nginx\.pid/ ? "run/$name"
                                                         : $name);
}


# ---- the service ---------------------------------------------------------

sub start_broker {
    my ($self) = @_;

    my $p = $self->{prefix};
    my %env = (PATH => $ENV{PATH}, %{ $self->environment },
               %{ $self->{broker_env} || {} });
    my $pid = fork // die "fork: $!";

    if ($pid == 0) {
        %ENV = %env;
        delete $ENV{LD_PRELOAD} if !$self->{broker_env}{LD_PRELOAD};
        open STDIN, '<', '/dev/null';
        open STDOUT, '>>', "$p/logs/stderr.log";
        open STDERR, '>>', "$p/logs/stderr.log";
        { no warnings 'exec';
          exec @{ $self->{broker_wrapper} },
               "$p/helpers/sandbox-broker", '--keeper', '--standalone',
               '--state', $p, '--helpers', "$p/helpers",
               '--log', "$p/logs/error.log", '--socket-group', $USER; }
        POSIX::_exit(127);
    }

    $self->{service} = $pid;

    return SandboxTest::wait_for(sub {
        my $broker = $self->broker;

        return -1 if waitpid($pid, WNOHANG) == $pid;
        return ($self->keeper // 0) == $pid && SandboxTest::alive($broker);
    }, 20) == 1;
}


# Root's word: what the broker is to do for everybody else.

sub configure {
    my ($self) = @_;

    my $p = $self->{prefix};
    no warnings "once";
    my @command = ($SandboxTest::NGINX, '-p', $p, '-e', 'logs/root.log', '-c',
                   'conf/root.conf', '-g', 'daemon off;');
    my $pid = $self->spawn("$p/logs/stderr.log", @command);
    my $ended = 0;
    my $up = SandboxTest::wait_for(sub {
        $ended ||= waitpid($pid, WNOHANG) == $pid;
        return $ended ? -1 : $self->ready;
    }, 20);

    kill 'QUIT', $pid if !$ended;
    SandboxTest::wait_for(sub {
        return $ended ||= waitpid($pid, WNOHANG) == $pid;
    }, 20);
    kill 'KILL', $pid if !$ended;

    $self->hand_over;

    return $up && $up != -1;
}


sub has_broker {
    my ($self) = @_;

    my $keeper = $self->keeper;

    return $keeper && SandboxTest::alive($keeper) && $self->is_ours($keeper);
}


# ---- what differs --------------------------------------------------------

sub try_start {
    my ($self, @more) = @_;

    if (!$self->has_broker) {
        return 0 if !$self->start_broker || !$self->configure;
    }

    return $self->SUPER::try_start(@more);
}


sub reload {
    my ($self) = @_;

    if (!$self->has_broker) {
        return 0 if !$self->start_broker;

        # root's nginx cannot have the port: it has another

        my $path = "$self->{prefix}/conf/root.conf";
        my $conf = SandboxTest::slurp($path);
        my $port = SandboxTest::free_port();

        put_file($path, $conf =~ s/127\.0\.0\.1:\K$self->{port}\b/$port/gr);
        local $self->{port} = $port;
        my $done = $self->configure;
        put_file($path, $conf);

        return 0 if !$done;
    }

    return $self->SUPER::reload;
}


# nginx first, then the service.

sub stop {
    my ($self, $signal, $seconds) = @_;

    $self->note_processes;
    $self->signal($signal // 'QUIT');

    my %service = map { $_ => 1 } grep { defined } $self->keeper,
                                                   $self->broker;

    SandboxTest::wait_for(sub {
        $self->reap;
        return !grep { !$service{$_} } $self->noted_alive;
    }, $seconds // 20);

    $self->hit('TERM', $self->keeper);

    return SandboxTest::wait_for(sub {
        waitpid $self->{service}, WNOHANG if $self->{service};
        return !$self->noted_alive;
    }, $seconds // 20);
}


sub left_files {
    my ($self) = @_;

    my $p = $self->{prefix};

    return ($self->SUPER::left_files,
            map { substr $_, length($p) + 1 } glob "$p/run/nginx.pid*");
}


1;
