#!/usr/bin/perl

# Ways out of a session that have worked in public against systems like this
# one.  Each is tried as it was then, and as the session's root too.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";

use Test::More;
use SandboxTest::More;

my $t = server();
my $s = create_ok();

sub out { return run($s, @_)->{stdout} }


subtest 'a helper of the server is never reachable through /proc' => sub {
    put($s, 'x', "#!/proc/self/exe\n", query => 'mode=0755');

    my $watch = 'end=$(($(date +%s) + ' . within(5) . "))\n" . <<'SH';
while [ $(date +%s) -lt $end ] && [ ! -e /tmp/stop ]; do
    for p in /proc/[0-9]*; do
        l=$(readlink $p/exe) && echo "exe $l"
        head -c 4 $p/exe 2>/dev/null | od -An -tx1 | sed "s,^,head $p,"
        dd if=/dev/null of=$p/exe conv=notrunc 2>/dev/null && echo "WROTE $p"
    done
done | sort | uniq -c | sort -rn | head -n 60
SH

    for my $user (qw(user root)) {
        run($s, 'rm -f /tmp/stop', user => 'root');
        my $job = async { run($s, $watch, user => $user) };

        for (1 .. 30) {
            run($s, [ './x' ], timeout_s => 2);
            run($s, [ '/bin/true' ]);
        }

        run($s, 'touch /tmp/stop');
        my $seen = $job->get(within(20))->{stdout};

        like($seen, qr{exe \S+/(?:ba|da)?sh$}m,
             "$user: the loop saw its own programs");
        unlike($seen, qr/WROTE/, "$user: no program could be opened to write");
        unlike($seen, qr{exe .*(?:sandbox|memfd|init|deleted)},
               "$user: no link names a helper");
        unlike($seen, qr{head /proc/1\s},
               "$user: process 1's program cannot be read");
    }

    my $r = run($s, [ './x' ], timeout_s => 5);
    isnt($r->{exit_code}, 0, 'an interpreter of /proc/self/exe runs nothing');

    # the sleeping command is dumpable and its user's own; process 1 is not

    $r = run($s, 'cat /proc/1/exe; ls -l /proc/1/exe /proc/1/fd /proc/1/cwd'
                 . ' /proc/1/root; exit 0', user => 'root');
    is($r->{stdout}, '', 'nothing of process 1 is readable by root')
        or diag($r->{stdout});
};


subtest 'a working directory never leads to a directory of the host' => sub {
    run($s, 'mkdir -p w; for n in $(seq 3 64); do'
            . ' ln -sfn /proc/self/fd/$n w/l$n; done');

    my @bad;
    my %kinds;

    for my $n (3 .. 64) {
        for my $cwd ("/proc/self/fd/$n", "/proc/thread-self/fd/$n",
                     "/home/user/w/l$n", "/proc/1/fd/$n", "w/l$n/..")
        {
            next if $n > 24 && $cwd !~ m{self/fd};

            my $res = exec_call($s, 'pwd; ls ../../../../', cwd => $cwd);
            $kinds{$res->{status}}++;

            next if $res->{status} == 404 || $res->{status} == 409
                    || $res->{status} == 403 || $res->{status} == 400;

            push @bad, "$cwd: $res->{status} $res->{body}";
        }
    }

    is("@bad", '', 'all refused') or diag(explain(\%kinds));

    for my $cwd ('/proc/self/cwd', '/proc/self/root', '/proc/1/root',
                 '/proc/1/cwd', '/proc/self/task/1/root')
    {
        my $res = exec_call($s, 'pwd -P; ls -d /root /app', cwd => $cwd);

        ok($res->{status} =~ /^(?:403|404|409|400)$/
           || $res->{json}{stdout} =~ m{^/[^(]*\n},
                                        "$cwd is refused or inside")
            or diag($res->{body});
    }

    my $fds = out([ 'python3', '-c', "import os\n"
        . "print([n for n in range(3, 1024) if os.path.exists("
        . "'/proc/self/fd/%d' % n) and os.readlink('/proc/self/fd/%d' % n)"
        . "[:5] != '/proc'])" ]);
    is($fds, "[]\n", 'a command has no descriptor above 2');
};


subtest 'no cgroup file system can be had, so no release agent' => sub {
    for my $user (qw(user root)) {
        my $r = run($s, "unshare -UrmC sh -c 'mount -t cgroup -o memory x /mnt"
                        . " && echo 1 >/mnt/notify_on_release;"
                        . " cat /mnt/release_agent && echo GOT'",
                    user => $user);
        isnt($r->{exit_code}, 0, "$user: refused");
        unlike($r->{stdout}, qr/GOT/, "$user: nothing was mounted");
        like($r->{stderr}, qr/not permitted|denied|not implemented/i,
             "$user: by the kernel's word");
    }

    is(out('grep -- " - cgroup" /proc/self/mountinfo; ls /sys/fs/cgroup 2>/dev/null'),
       '', 'none is visible');
};


my $probe = inside('probe');

SKIP: {
    skip 'no static C library to build the prober with', 1
        if !defined $probe;

    is(put($s, 'probe', $probe, query => 'mode=0755')->{status}, 201,
       'the prober is there');

    for my $user (qw(user root)) {
        subtest "system calls by number, as $user" => sub {
            probe_lines(run($s, [ './probe' ], user => $user));
        };
    }
}


sub probe_lines {
    my ($r) = @_;

    my %seen;
    my @lines = split /\n/, $r->{stdout};

    is($lines[-1], 'done', 'the prober ran to its end')
        or diag($r->{stderr});

    for (@lines) {
        my ($group, $name, $result) = split ' ';
        $seen{$group}{$name} = $result if defined $result;
    }

    is($seen{unknown}{$_} // 'none', 'ENOSYS', "$_ is not known: ENOSYS")
        for qw(clone3 io_uring_setup io_uring_enter io_uring_register
               newer_600 newer_9999);

    my $refused = $seen{refused} || {};
    cmp_ok(scalar keys %$refused, '>=', 35, 'every call was tried');

    like($refused->{$_}, qr/^(?:EPERM|ENOSYS)$/, "$_ is refused")
        for sort keys %$refused;

    is($seen{terminal}{$_} // 'none', 'EPERM',
       "$_ is denied before the terminal is asked")
        for qw(tiocsti tiocsti_high tioclinux tioclinux_high);

    like($seen{socket}{$_} // 'none',
         qr/^(?:EPERM|EACCES|EAFNOSUPPORT|EPROTONOSUPPORT|ENOSYS)$/,
         "a socket of kind $_ is refused")
        for qw(vsock alg packet raw);

    my $x32 = $seen{x32} || {};
    my @alive = grep { $x32->{$_} ne 'SIGSYS' } sort keys %$x32;
    is(join(' ', map { "$_=$x32->{$_}" } @alive), '',
       'every x32 number is killed by SIGSYS');
    ok(exists $x32->{getpid}, 'a harmless one too');

  SKIP: {
        my $int80 = $seen{int80};
        skip 'no int 0x80 on this processor', 1 if !$int80;

        # a kernel without 32-bit emulation raises SIGSEGV before any filter

        @alive = grep { $int80->{$_} !~ /^SIG(?:SYS|SEGV)$/ }
                 sort keys %$int80;
        is(join(' ', map { "$_=$int80->{$_}" } @alive), '',
           'every call by int 0x80 is killed');
    }
}


subtest 'io_uring is not known, and libc goes on without it' => sub {
    is(out([ 'python3', '-c', <<'PY' ]), "-1 38\nthread\nchild 3\n",
import ctypes, subprocess, threading
libc = ctypes.CDLL(None, use_errno=True)
p = ctypes.create_string_buffer(256)
print(libc.syscall(425, 8, p), ctypes.get_errno())
t = threading.Thread(target=lambda: print("thread"))
t.start(); t.join()
print("child", subprocess.run(["sh", "-c", "exit 3"]).returncode)
PY
       'io_uring_setup is ENOSYS; threads and children work');
};


subtest 'no keystroke can be put into a terminal of the server' => sub {
    for my $user (qw(user root)) {
        is(out([ 'python3', '-c', <<'PY' ], user => $user),
import fcntl, os, pty, errno
def attempt(fd, req):
    try:
        fcntl.ioctl(fd, req, b"x")
        return "pushed"
    except (OSError, OverflowError) as e:
        return errno.errorcode.get(getattr(e, "errno", None), str(e))
print([attempt(n, 0x5412) for n in (0, 1, 2)])
m, s = pty.openpty()
print(attempt(s, 0x5412), attempt(m, 0x5412))
PY
           "['EPERM', 'EPERM', 'EPERM']\nEPERM EPERM\n",
           "$user: denied on the standard descriptors and on an own terminal");
    }
};


subtest 'a session leaves no trace on the host' => sub {
    my $prefix = $SandboxTest::More::PREFIX;

    # others may work on this machine: what is the server's doing comes back
    # in every round

    my $state = sub {
        my @files = sort grep { !m{/(?:logs|[a-z]+_temp)(?:/|$)} }
                    split /\n/, `find \Q$prefix\E / /run /mnt /media /srv \\
                        -maxdepth 1 2>/dev/null; find \Q$prefix\E /etc /dev \\
                        -xdev -not -path '*/logs/*' 2>/dev/null`;
        return { map { $_ => 1 } @files, mounts(), cgroup_dirs() };
    };

    my @extra;

    for my $round (1 .. 3) {
        my $before = $state->();
        my $id = create_ok();
        run($id, 'touch /tmp/x /home/user/y; mkdir -p ~/z; sleep 100 &');
        is(destroy($id)->{status}, 204, 'destroyed') if $round == 1;
        destroy($id) if $round > 1;
        my $after = $state->();

        @extra = (grep({ !$before->{$_} } sort keys %$after),
                  grep({ !$after->{$_} } sort keys %$before));
        last if !@extra;
    }

    is("@extra", '', 'no file, mount or group more or less than before');
};


destroy($s);
$t->finish;
done_testing();
