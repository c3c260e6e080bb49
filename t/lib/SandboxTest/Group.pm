package SandboxTest::Group;

# A control group of the test's own, in which processes of a server are put
# that are to have no more of something.
#
#   my $group = SandboxTest::Group->new('pids') // plan skip_all => ...;
#   $group->put($t->broker);
#   $group->set('pids.max', $group->get('pids.current'));
#   $group->remove;          # or at the end of the file
#
# Beside the test's own group where the controller has a hierarchy of version
# 1, else below the root of version 2's.

use strict;
use warnings;

use SandboxTest ();

my @MADE;
my $OWNER = $$;


sub new {
    my ($class, $controller) = @_;

    my ($root, $two) = place($controller) or return;
    my $dir = "$root/sbxtest-$$-" . @MADE;

    mkdir $dir or return;

    my $self = bless { dir => $dir, two => $two }, $class;

    push @MADE, $self;

    return $self;
}


sub place {
    my ($controller) = @_;

    my %mounts = map { /^\S+ (\S+) (cgroup2?) (\S+)/ ? ($1 => [ $2, $3 ]) : () }
                 split /\n/, SandboxTest::slurp('/proc/mounts') // '';
    my $own = SandboxTest::slurp('/proc/self/cgroup') // '';

    for my $dir (sort keys %mounts) {
        my ($kind, $options) = @{ $mounts{$dir} };

        if ($kind eq 'cgroup' && ",$options," =~ /,\Q$controller\E,/) {
            my ($at) = $own =~ /^\d+:(?:[^:]*,)?\Q$controller\E(?:,[^:]*)?:(.*)$/m
                or next;
            return (-d "$dir$at" ? "$dir$at" : $dir, 0);
        }

        if ($kind eq 'cgroup2'
            && (SandboxTest::slurp("$dir/cgroup.subtree_control") // '')
               =~ /\b\Q$controller\E\b/)
        {
            return ($dir, 1);
        }
    }

    return;
}


sub two { return $_[0]{two} }


sub get {
    my ($self, $file) = @_;

    my $text = SandboxTest::slurp("$self->{dir}/$file") // '';

    chomp $text;

    return $text;
}


# One number of a file of names and numbers.

sub count {
    my ($self, $file, $name) = @_;

    my ($n) = $self->get($file) =~ /^\Q$name\E (\d+)$/m;

    return $n // 0;
}


sub set {
    my ($self, $file, $value) = @_;

    open my $f, '>', "$self->{dir}/$file" or return 0;

    return syswrite($f, $value) ? 1 : 0;
}


sub put {
    my ($self, @pids) = @_;

    return @pids == grep { $self->set('cgroup.procs', $_) } @pids;
}


# Whoever is in it goes back to where the test is.

sub leave {
    my ($self) = @_;

    my ($up) = $self->{dir} =~ m{^(.*)/};

    return SandboxTest::wait_for(sub {
        my @pids = split ' ', $self->get('cgroup.procs');

        for my $pid (@pids) {
            open my $f, '>', "$up/cgroup.procs" or next;
            syswrite $f, $pid;
        }

        return !@pids;
    }, 5);
}


sub remove {
    my ($self) = @_;

    return SandboxTest::wait_for(sub {
        $self->leave;

        return rmdir($self->{dir}) || !-d $self->{dir};
    }, 5);
}


END {
    if ($$ == $OWNER) {
        my $status = $?;

        $_->remove for grep { -d $_->{dir} } @MADE;
        $? = $status;
    }
}


1;
