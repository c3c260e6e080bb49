package SandboxTest::Storage;

# What the tests of storage share: a server with the kind that is asked for,
# and sessions that fill their disk.

use strict;
use warnings;

use Exporter qw(import);
use Test::More;

use SandboxTest ();
use SandboxTest::More;

our @EXPORT = qw($t $p $MB serve make info avail fill within_percent
                 mount_ext4 unmount);

our $MB = 1 << 20;

# The server of the last serve(), and its prefix.

our ($t, $p);


# A server whose http block has these lines; "before" may mount things below
# its prefix, which it is given; "weak" leaves isolation to who asks.

sub serve {
    my ($http, $before, $weak) = @_;

    $t = SandboxTest->new(
        workers => 1, http => "    $http",
        edit => sub { s/(require_isolation) on/$1 off/ if $weak });
    ($SandboxTest::More::T, $SandboxTest::More::PORT, $p)
        = ($t, $t->port, $t->prefix);
    $SandboxTest::More::PREFIX = $p;
    $before->($p) if $before;
    $t->start;
    SandboxTest::More::check_walls();

    return $t;
}


sub make {
    my (%resources) = @_;

    # a file may be larger than the disk, so that the disk is what is met

    return create_ok({ manifest => {
        resources => { max_file_size => '64GB', %resources } } });
}


sub info { return call('GET', "/sessions/$_[0]")->{json} }


sub avail {
    my ($id, $where) = @_;

    return run($id, "df -k --output=avail $where | tail -1")->{stdout} * 1024;
}


# Writes until it cannot: the bytes that fitted, and what was said.

sub fill {
    my ($id, $file) = @_;

    my $r = run($id, "cat /dev/zero > $file; stat -c %s $file");

    return ($r->{stdout} + 0, $r->{stderr});
}


sub within_percent {
    my ($got, $want, $percent, $name) = @_;

    local $Test::Builder::Level = $Test::Builder::Level + 1;

    return ok(abs($got - $want) * 100 <= $want * $percent,
              "$name ($got of $want)");
}


# An ext4 of that many megabytes on the directory; 0 where there is none.

sub mount_ext4 {
    my ($dir, $megabytes, $format, $options) = @_;

    mkdir $dir;
    system("truncate -s ${megabytes}M $dir.img && mkfs.ext4 -q -F $format"
           . " $dir.img && mount -o loop$options $dir.img $dir 2>/dev/null")
        == 0 or return 0;

    return 1;
}


sub unmount {
    my ($dir) = @_;

    ok(until_true(sub { system("umount $dir 2>/dev/null") == 0 }, 20),
       'nothing holds the file system');
    unlink "$dir.img";
    rmdir $dir;

    return;
}


1;
