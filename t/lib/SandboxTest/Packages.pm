package SandboxTest::Packages;

# Packages that a test makes, and indexes that have them.
#
#     make($dir, { manager => 'pip', name => 'one', version => '1.0',
#                  files => { 'one.py' => "x = 1\n" } }, ...);
#     my $index = SandboxTest::Packages->serve($dir, '127.0.0.7');
#     $index->port; $index->asked;      # the paths that were asked for
#     $index->stop;
#
# lib/inside/packages.py has the details.

use strict;
use warnings;

use Exporter qw(import);
use File::Basename qw(dirname);
use JSON::PP ();
use POSIX ();
use Test::More;

use SandboxTest;

our @EXPORT_OK = qw(make lacks);

my $TOOL = dirname(__FILE__) . '/../inside/packages.py';
my %OURS;


# Why this machine cannot install by the manager, or undef.

sub lacks {
    my ($manager) = @_;

    return 'python3 is not installed' if !-x '/usr/bin/python3';

    if ($manager eq 'pip') {
        return undef if system('/usr/bin/python3 -I -m pip --version'
                               . ' >/dev/null 2>&1') == 0;
        return 'python3-pip is not installed';
    }

    return -x '/usr/bin/npm' && -x '/usr/bin/node' ? undef
           : 'npm is not installed';
}


sub make {
    my ($dir, @packages) = @_;

    my $old = umask 022;

    open my $f, '|-', '/usr/bin/python3', $TOOL, 'make', $dir or die "$!\n";
    print $f JSON::PP->new->utf8->encode(\@packages);
    close $f or die "packages.py make: $?\n";
    umask $old;

    return;
}


sub serve {
    my ($class, $dir, $host, @tls) = @_;

    my $log = "$dir/requests." . int(rand(1e9));
    my $pid = fork // die "fork: $!\n";

    if ($pid == 0) {
        open STDIN, '<', '/dev/null';
        open STDOUT, '>', $log;
        { no warnings 'exec';
          exec '/usr/bin/python3', $TOOL, 'serve', $dir, $host, @tls; }
        POSIX::_exit(127);
    }

    my $self = bless { pid => $pid, log => $log, host => $host }, $class;

    $OURS{$pid} = $$;
    SandboxTest::wait_for(sub { $self->port }) or die "no index\n";

    return $self;
}


sub lines {
    my ($self) = @_;

    return split /\n/, SandboxTest::slurp($self->{log}) // '';
}


sub port {
    my ($self) = @_;

    my ($port) = (SandboxTest::slurp($self->{log}) // '') =~ /^(\d+)\n/;

    return $port;
}


sub asked {
    my ($self) = @_;

    my (undef, @asked) = $self->lines;

    return map { s/ .*//r } @asked;
}


sub stop {
    my ($self) = @_;

    if (defined delete $OURS{ $self->{pid} }) {
        kill 'KILL', $self->{pid};
        waitpid $self->{pid}, 0;
    }

    return;
}


END {
    my $status = $?;

    for my $pid (grep { $OURS{$_} == $$ } keys %OURS) {
        kill 'KILL', $pid;
        waitpid $pid, 0;
    }

    $? = $status;
}


1;
