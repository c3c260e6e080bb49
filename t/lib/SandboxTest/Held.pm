package SandboxTest::Held;

# Reads of files by the server's workers, held until the test lets go of them.
#
#   my $held = SandboxTest::Held->new // plan(skip_all => 'no compiler');
#   my $t = server(...);
#   $held->loaded;
#   $held->hold('name');            # each read of any file of that name
#   ... $held->at('name') ...       # the offsets that are held, in order
#   $held->release('name', $offset);
#   $held->release('name');         # all, and those that come
#
# A read is known by its file's name and by where it begins: a range for each.

use strict;
use warnings;

use Fcntl qw(:DEFAULT F_WRLCK F_UNLCK SEEK_SET);
use File::Path qw(remove_tree);

use SandboxTest;
use SandboxTest::Preload;

my $F_OFD_SETLK = 37;


# A sanitizer's library is to be the first.

sub missing {
    return 'a sanitizer\'s library is to be loaded first'
        if $SandboxTest::SANITIZE;
    return undef;
}


# Loads it into the server that is made next.

sub new {
    my ($class) = @_;

    my $lib = preload('held') // return undef;
    my $self = bless { dir => "/tmp/sbxheld.$$", pid => $$, fd => {} },
                     $class;

    mkdir $self->{dir} or die "$self->{dir}: $!";
    chmod 0777, $self->{dir};

    @ENV{qw(LD_PRELOAD HELD)} = ($lib, $self->{dir});

    return $self;
}


# Once the server has been started: nothing else is to be loaded with it.

sub loaded {
    delete @ENV{qw(LD_PRELOAD HELD)};

    return;
}


sub DESTROY {
    my ($self) = @_;

    remove_tree($self->{dir}) if $$ == $self->{pid};

    return;
}


sub lock_file {
    my ($self, $name, $type, $from, $n) = @_;

    my $lock = pack 's s x4 q q i x4', $type, SEEK_SET, $from, $n, 0;

    fcntl($self->{fd}{$name}, $F_OFD_SETLK, $lock) or die "$name: $!";

    return;
}


sub hold {
    my ($self, $name) = @_;

    sysopen my $fd, "$self->{dir}/$name", O_RDWR|O_CREAT or die "$name: $!";
    chmod 0644, "$self->{dir}/$name";
    $self->{fd}{$name} = $fd;
    $self->lock_file($name, F_WRLCK, 0, 0);

    return;
}


sub release {
    my ($self, $name, $offset) = @_;

    return $self->lock_file($name, F_UNLCK, $offset, 1) if defined $offset;

    unlink "$self->{dir}/$name";
    $self->lock_file($name, F_UNLCK, 0, 0);
    delete $self->{fd}{$name};

    return;
}


sub at {
    my ($self, $name) = @_;

    my @at;

    for (split /\n/, SandboxTest::slurp("$self->{dir}/$name.log") // '') {
        my ($who, $sign, $offset) = /^(\d+ \d+) ([+-])(\d+)$/ or next;

        if ($sign eq '+') {
            push @at, [ $who, $offset ];
        } else {
            @at = grep { $_->[0] ne $who || $_->[1] != $offset } @at;
        }
    }

    return map { $_->[1] } @at;
}


1;
