#!/usr/bin/perl

# What each process of a running server may do, as its /proc/PID/status says:
# the table of docs/security.md is compared with it.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";

use IO::Socket::UNIX;
use POSIX ();
use Socket qw(SOCK_SEQPACKET);
use Test::More;
use SandboxTest;
use SandboxTest::More;

my @NAMES = qw(CHOWN DAC_OVERRIDE DAC_READ_SEARCH FOWNER FSETID KILL SETGID
               SETUID SETPCAP LINUX_IMMUTABLE NET_BIND_SERVICE NET_BROADCAST
               NET_ADMIN NET_RAW IPC_LOCK IPC_OWNER SYS_MODULE SYS_RAWIO
               SYS_CHROOT SYS_PTRACE SYS_PACCT SYS_ADMIN SYS_BOOT SYS_NICE
               SYS_RESOURCE SYS_TIME SYS_TTY_CONFIG MKNOD LEASE AUDIT_WRITE
               AUDIT_CONTROL SETFCAP MAC_OVERRIDE MAC_ADMIN SYSLOG WAKE_ALARM
               BLOCK_SUSPEND AUDIT_READ PERFMON BPF CHECKPOINT_RESTORE);

my $doc = SandboxTest::slurp("$SandboxTest::ROOT/docs/security.md");
my ($section) = $doc =~ /^## Rights on the host\n(.*?)^## /ms;
my %row;

for my $line (split /\n/, $section // '') {
    my (undef, $name, @cells) = map { s/^\s+|\s+$//gr } split /\|/, $line;
    $row{$name} = \@cells if @cells == 5 && $name !~ /^(?:process|---)$/;
}

my $t = SandboxTest->new(workers => 1)->start;
my $resource = names(status('self')->{CapEff}) =~ /\bSYS_RESOURCE\b/;


sub status {
    my ($pid) = @_;

    my $text = SandboxTest::slurp("/proc/$pid/status") // '';

    return { $text =~ /^(\w+):\s+(.*)$/mg };
}

sub names {
    my ($hex) = @_;

    no warnings 'portable';
    my $bits = hex $hex;

    return join ' ', sort map { $NAMES[$_] }
                          grep { $bits & (1 << $_) } 0 .. $#NAMES;
}

sub told {
    my ($text) = @_;

    $text =~ s/, SYS_RESOURCE// if !$resource;

    return join ' ', sort $text =~ /\b([A-Z]{2,}(?:_[A-Z]+)*)\b/g;
}

sub namespaces {
    my ($pid) = @_;

    return { map { m{/(\w+)$}; ($1 => readlink) }
             map { "/proc/$pid/ns/$_" }
             qw(user pid mnt ipc uts net cgroup) };
}

my $ours = namespaces('self');

sub compare {
    my ($name, $pid, $inner) = @_;

    subtest $name => sub {
        my $row = $row{$name};
        ok($row, 'has a row') or return;

        my ($user, $caps, $bounding, $filter, $spaces) = @$row;
        my $s = status($pid);
        my ($ids) = $s->{Uid} =~ /^(\d+)/;

        is($s->{Uid}, join("\t", ($ids) x 4), 'one user id');

        if ($inner) {
            my ($first) = (SandboxTest::slurp("/proc/$pid/uid_map") // '')
                          =~ /^\s*0\s+(\d+)/;
            my ($inside) = $user =~ /^(\d+) of the session/;
            is($ids, $first + $inside, 'which is the session\'s');

        } else {
            is(scalar getpwuid $ids, $user =~ s/`//gr, 'whose');
        }

        is($s->{$_}, '0000000000000000', $_) for qw(CapInh CapAmb);
        is(names($s->{CapEff}), told($caps), 'capabilities in effect');
        is(names($s->{CapBnd}), told($bounding), 'what can be had at most')
            if $bounding ne 'all';
        is($s->{NoNewPrivs}, $filter =~ /no_new_privs/ ? 1 : 0,
           'no_new_privs');
        is($s->{Seccomp}, $filter =~ /seccomp/ ? 2 : 0, 'a filter');

        my $its = namespaces($pid);
        my $own = join ' ', grep { $its->{$_} ne $ours->{$_} } sort keys %$its;
        is($own, join(' ', sort $spaces =~ /`(\w+)`/g),
           'namespaces of its own');
    };

    return;
}

my $id = $t->session;
my @runs = map {
    $t->api(POST => "/sessions/$id/exec",
            { cmd => [ 'sleep', '1000' ], background => JSON::PP::true,
              user => $_ })->{json}{pid}
} qw(user root);


sub children {
    my ($pid) = @_;

    return split ' ', SandboxTest::slurp("/proc/$pid/task/$pid/children")
                      // '';
}

# An upload that does not end, so that there is somebody who serves it.

my $upload = SandboxTest::Connection->new(port => $t->port);
$upload->send("PUT /v1/sessions/$id/files/x HTTP/1.1\r\nHost: localhost\r\n"
               . "Content-Length: 100\r\n\r\nabc");

# The processes of the session, by their number inside.

my ($init) = grep { $_ != $t->broker } children($t->keeper);
my (%inside, @servers);

SandboxTest::wait_for(sub {
    %inside = map { ((split ' ', status($_)->{NSpid} // '')[-1] // 0 => $_) }
              children($init);
    @servers = grep { status($_)->{Name} =~ /sandbox-i/ } values %inside;
    return @servers == 1
           && !grep { !$inside{$_}
                      || (status($inside{$_})->{Name} // '') ne 'sleep' }
                    @runs;
}, 10);

is(scalar keys %row, 7, 'the document has a row for each');

compare('nginx worker', ($t->workers)[0]);
compare('keeper', $t->keeper);
compare('broker', $t->broker);
compare('first process of a session', $init, 1);
compare('what serves a file', $servers[0], 1);
compare('a command as `user`', $inside{$runs[0]}, 1);
compare('a command as `root`', $inside{$runs[1]}, 1);

$upload->close;


# As somebody else of the host: what is below the state directory.

subtest 'what other users of the host can read' => sub {
    my $p = $t->prefix;
    my @readable = as_nobody(sub {
        my @found;

        for my $dir ('', '/sessions', '/images', '/storage') {
            opendir my $d, "$p$dir" or next;
            push @found, map { "$dir/$_" }
                         grep { !/^\.\.?$/ && open my $f, '<', "$p$dir/$_" }
                         readdir $d;
        }

        return @found;
    });

    my %allowed = map { ("/$_" => 1) }
                  qw(asan base conf helpers logs modules templates nginx.pid
                     keeper.pid broker.pid);
    my @more = grep { !$allowed{$_} && !m{^/base-\w+$} } @readable;

    cmp_ok(scalar @readable, '>', 3, 'something, so the test sees');
    is("@more", '', 'and nothing of a session');

    my ($connected) = as_nobody(sub {
        return IO::Socket::UNIX->new(Type => SOCK_SEQPACKET,
                                     Peer => "$p/broker.sock")
               ? 'yes' : "no: $!";
    });
    is($connected, 'no: Permission denied', 'nor is the broker reached');
};


sub as_nobody {
    my ($what) = @_;

    my $pid = open(my $out, '-|') // die "fork: $!";

    if ($pid == 0) {
        my ($uid, $gid) = (getpwnam 'nobody')[2, 3];

        $) = "$gid $gid";
        $( = $gid;
        ($<, $>) = ($uid, $uid);
        print map { "$_\n" } $> == $uid ? $what->() : 'still root';
        close STDOUT;
        POSIX::_exit(0);
    }

    chomp(my @lines = <$out>);
    close $out;

    return @lines;
}

$t->finish;
done_testing();
