#!/usr/bin/perl

# The calls of E2B work with root's rights for the session's user: the
# manifest's rules about files hold all the same.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";

use Test::More;
use SandboxTest::More;
use SandboxTest::Connect;

my $t = connect_server();

# a path that is not there is made for its rule
my $s = create_ok({
    timeout_s => 3600,
    manifest => { filesystem => { deny_read => [ 'secret/', '/etc/fonts' ],
                                  deny_write => [ 'locked/' ] } }
});

sub path { return '/files?path=' . $_[0] }

sub upload {
    my ($path) = @_;

    return call('POST', path($path), base => '/e2b', body => 'x',
                headers => { 'Content-Type' => 'application/octet-stream',
                             %{ rpc_headers($s) } });
}

sub download {
    return call('GET', path($_[0]), base => '/e2b', raw => 1,
                headers => rpc_headers($s));
}

sub ask { return rpc($s, "filesystem.Filesystem/$_[0]", $_[1]) }


subtest 'where nothing may be written' => sub {
    run($s, 'ln -s locked link');

    for my $path (qw(locked locked/new locked/a/b link/new)) {
        my $r = upload($path);
        cmp_ok($r->{status}, '>=', 400, "upload: $path");
        $r = ask('MakeDir', { path => $path });
        cmp_ok($r->{status}, '>=', 400, "directory: $path");
    }

    upload('mine');

    for my $pair ([ 'mine', 'locked/mine' ], [ 'locked', 'other' ]) {
        my $r = ask('Move', { source => $pair->[0],
                              destination => $pair->[1] });
        cmp_ok($r->{status}, '>=', 400, "move: @$pair");
    }

    ask('Remove', { path => 'locked' });
    like(run($s, 'ls -d locked; ls locked | wc -l; cat mine')->{stdout},
         qr/^locked\n0\nx$/, 'and nothing has been');
};


subtest 'what may not be read' => sub {
    run($s, 'ln -s secret way');
    is(download('mine')->{status}, 200, 'another file is');

    for my $path (qw(secret way secret/x /etc/fonts/fonts.conf)) {
        my $r = download($path);
        cmp_ok($r->{status}, '>=', 400, "download: $path");
    }

    for my $path (qw(secret way /etc/fonts)) {
        my $r = ask('ListDir', { path => $path });
        ok($r->{status} >= 400 || !@{ $r->{json}{entries} || [] },
           "list: $path");
        $r = upload("$path/new");
        cmp_ok($r->{status}, '>=', 400, "upload: $path");
    }
};


subtest 'what is the host\'s' => sub {
    for my $path (qw(/usr/new /usr/bin/env /proc/sys/kernel/hostname
                     /sys/new /dev/null)) {
        my $r = upload($path);
        cmp_ok($r->{status}, '>=', 400, "upload: $path");
    }

    my $r = download('/proc/1/environ');
    cmp_ok($r->{status}, '>=', 400, 'nothing of process 1 is read');
};


$t->finish;
done_testing();
