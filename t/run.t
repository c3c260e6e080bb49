#!/usr/bin/perl

# sandboxctl run, without any server: as root and as an ordinary user, every
# option, what cannot be reached from inside, and what is left behind.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";

use File::Basename qw(dirname);
use File::Path qw(make_path);
use File::Temp qw(tempdir);
use IO::Socket::INET;
use IO::Socket::UNIX;
use POSIX ();
use Socket qw(SOCK_STREAM);
use Test::More;
use Time::HiRes qw(time sleep);

use SandboxTest;
use SandboxTest::More qw(within);
use SandboxTest::Run;

my $dir = run_set_up();

# Each helper tells its number, so that what it may leave is known for ours:
# other tests of this machine run helpers too.

rename "$dir/bin/sandbox-session", "$dir/bin/sandbox-session.real" or die $!;
write_file("$dir/helpers", '', 0666);
write_file("$dir/bin/sandbox-session", <<"SH", 0755);
#!/bin/sh
echo \$\$ >> $dir/helpers
exec \$0.real "\$@"
SH

my $MARK = "sbxmark$$";


# ---- what may be left -----------------------------------------------------

sub left {
    my @left;

    for my $proc (glob '/proc/[0-9]*') {
        my $cmd = SandboxTest::slurp("$proc/cmdline") // '';
        my ($pid) = $proc =~ /(\d+)$/;

        push @left, "process $pid $cmd"
            if $pid != $$ && ($cmd =~ /\Q$MARK\E(?!\d)|\Q$dir\E\/bin/
                              || is_program($pid));
    }

    push @left, glob "$dir/tmp/*";

    # A group has its helper's number.

    my %ours = map { $_ => 1 }
               split /\n/, SandboxTest::slurp("$dir/helpers") // '';

    push @left, grep { m{/ir(\d{10})x\w+$} && $ours{ $1 + 0 } }
                glob_groups();

    my %mounts;

    for my $file (glob '/proc/[0-9]*/mountinfo') {
        $mounts{$_} = 1 for grep { m{ \Q$dir\E[^ ]* } }
            split /\n/, SandboxTest::slurp($file) // '';
    }

    return @left, sort keys %mounts;
}


sub glob_groups {
    return map { split /\n/, `find $_ -type d -name 'ir0*' 2>/dev/null` }
           SandboxTest::cgroup_roots();
}


# Whatever it calls itself.

sub is_program {
    my ($pid) = @_;

    return (readlink("/proc/$pid/exe") // '') =~ m{^\Q$dir\E/};
}


sub nothing_left {
    my ($name) = @_;

    my @left;

    SandboxTest::wait_for(sub { return !(@left = left()) }, within(10));
    is("@left", '', $name);

    return;
}


# ---- whether an ordinary user may ------------------------------------------

my @who = run_who();


# ---- files of the host -----------------------------------------------------

write_file("$dir/plain", "plain text\n");
write_file("$dir/no-program", "x\n");
write_file("$dir/input", "line of input\n" x 20000);

make_path("$dir/home/.ssh", "$dir/home/.aws", "$dir/home/.config/gh",
          "$dir/home/work");
write_file("$dir/home/$_", "SECRET\n")
    for qw(.ssh/id_ed25519 .aws/credentials .config/gh/hosts.yml .netrc
           .npmrc);
write_file("$dir/home/.profile", "open\n");
write_file("/tmp/$MARK-host", "host\n");

END { unlink "/tmp/$MARK-host", "/run/$MARK.sock" if $MARK && $dir }


for my $who (@who) {
    my $w = "$dir/ws-$who";
    my $uid = $who eq 'root' ? 0 : $UID;

    mkdir $w or die $!;
    chown $uid, $uid, $w;
    my @ws = ('--workspace', $w);


    subtest "$who: status and streams" => sub {
        is(sh($who, 'exit 0')->{status}, 0, 'exit 0');
        is(sh($who, 'exit 3')->{status}, 3, 'exit 3');
        is(sh($who, 'kill -TERM $$')->{status}, 143, 'SIGTERM');
        is(sh($who, 'kill -KILL $$')->{status}, 137, 'SIGKILL');

        my $r = run($who, '--', '/no/such/program');
        is($r->{status}, 127, 'a program that is not there');
        like($r->{err}, qr/^sandbox: cannot run '\/no\/such\/program': /,
             'is told');
        is(finish(start($who, { PATH => '/root:/usr/bin:/bin:/root/bin' },
                        '--', 'no-such-program'))->{status}, 127,
           'a directory of PATH that is closed has no program');

        $r = run($who, '--', "$dir/no-program");
        is($r->{status}, 126, 'a file that is no program');

        $r = sh($who, 'echo out; echo err >&2');
        is($r->{out}, "out\n", 'standard output');
        is($r->{err}, "err\n", 'standard error');
        $r = sh($who, 'echo out > /dev/stdout; echo err > /dev/stderr');
        is("$r->{out}$r->{err}", "out\nerr\n", 'by their names as well');

        is(sh($who, 'cat; echo end')->{out}, "end\n",
           'standard input is at its end');
        is(sh($who, 'wc -c', '--input', "$dir/input")->{out}, "280000\n",
           '--input');
        is(sh($who, 'exec <&-; exit 4', '--input', "$dir/input")->{status}, 4,
           'input that nobody reads');
        my $j = json_sh($who, 'ls -l /proc/self/fd/0', '--input',
                        "$dir/input");
        like($j->{stdout}, qr/pipe:/, 'the command has a pipe, never the file');

        is(run($who, '--', 'printf', '%s|', 'a b', '$x', '')->{out},
           'a b|$x||', 'arguments are not parsed');
    };


    subtest "$who: json" => sub {
        my $j = json_sh($who, 'printf "a\377\000b"; echo e >&2; exit 5');

        is_deeply([ sort keys %$j ], [ sort qw(
            pid exit_code signal reason timed_out oom_killed cancelled stdout
            stderr stdout_truncated stderr_truncated stdout_bytes
            stderr_bytes duration_s usage enforcement measured isolated
            backend workspace note) ], 'has its fields');
        is_deeply([ sort keys %{ $j->{usage} } ], [ sort qw(
            cpu_user_s cpu_system_s memory_peak processes_peak read_bytes
            written_bytes throttled_s) ], 'and those of usage');
        is($j->{exit_code}, 5, 'exit_code');
        is($j->{signal}, undef, 'signal');
        is($j->{reason}, 'exited', 'reason');
        is($j->{stdout}, "a\x{fffd}\0b", 'stdout, as UTF-8');
        is($j->{stderr}, "e\n", 'stderr');
        is($j->{stdout_bytes}, 4, 'stdout_bytes');
        ok($j->{isolated}, 'isolated');
        is($j->{backend}, 'namespaces', 'backend');
        is($j->{enforcement}{seccomp}, 'filter', 'seccomp');
        is($j->{enforcement}{memory}, undef, 'no limit, no word');
        cmp_ok($j->{usage}{memory_peak}, '>', 100000, 'memory_peak');

        $j = json_sh($who, 'kill -SEGV $$');
        is("$j->{signal} $j->{exit_code} $j->{reason}",
           'SIGSEGV 139 signal', 'killed by a signal');
        $j = json($who, '--', '/no/such');
        is("$j->{exit_code} $j->{reason}", '127 not_started', 'not started');
        $j = json_sh($who, 'kill -KILL $$');
        is("$j->{exit_code} $j->{reason}", '137 signal',
           'its own SIGKILL is nothing else');
    };


    subtest "$who: output" => sub {
        my $r = sh($who, 'head -c 300000 /dev/zero; echo more >&2; exit 3',
                   '--max-output', '1KB');
        is($r->{status}, 3, 'too much output does not end the command');
        is(length $r->{out}, 1024, '--max-output keeps the head');
        like($r->{err}, qr/stdout was cut, it had 300000 bytes/, 'and says so');

        my $j = json_sh($who, 'head -c 5000 /dev/zero', '--max-output', 10);
        is("$j->{stdout_bytes} $j->{stdout_truncated} " . length $j->{stdout},
           '5000 1 10', 'in JSON too');
    };


    subtest "$who: environment" => sub {
        my $r = finish(start($who, { SECRET_TOKEN => 'x', LANG => 'C.UTF-8',
                                     LC_TIME => 'C', AWS_SECRET => 'y',
                                     LD_PRELOAD => '/no.so' },
                             '--env', 'ADDED=1', '--env=LANG=C', '--', 'env'));
        unlike($r->{out}, qr/SECRET|LD_PRELOAD/, 'is an allow-list');
        like($r->{out}, qr/^LC_TIME=C$/m, 'with LC_*');
        like($r->{out}, qr/^ADDED=1$/m, '--env adds');
        like($r->{out}, qr/^LANG=C$/m, 'and replaces');
        like($r->{out}, qr/^TMPDIR=\/tmp$/m, 'TMPDIR is the private one');
    };


    subtest "$who: workspace" => sub {
        my $j = json_sh($who, 'pwd; touch here; umask');
        like($j->{stdout}, qr{^\Q$j->{workspace}\E\n0022$}m, 'a private one');
        ok(!-e $j->{workspace}, 'is removed');

        my $r = sh($who, 'pwd; echo made > made; mkdir sub; ls -ln made', @ws);
        is((split /\n/, $r->{out})[0], $w, 'a given one is where it starts');
        is(SandboxTest::slurp("$w/made"), "made\n", 'and is written');
        is((stat "$w/made")[4], $uid, 'by its owner, as the host sees it');
        is(sh($who, 'pwd', @ws, '--cwd', 'sub')->{out}, "$w/sub\n",
           '--cwd is relative to it');
        is(sh($who, 'pwd', @ws, '--cwd', '/usr')->{out}, "/usr\n",
           'or absolute');
        $r = sh($who, 'pwd', @ws, '--cwd', 'none');
        is($r->{status}, 125, 'a missing one is an error');
        like($r->{err}, qr/^sandboxctl: cwd "none" .*No such file.*\n\z/,
             'that says so');

        # what a hostile command leaves is removed all the same
        $j = json_sh($who, 'for i in $(seq 60); do d=$(printf "%0200d" $i); '
                           . 'mkdir $d; cd $d; done; mkdir x; touch x/y; '
                           . 'chmod 0 x; ln -s /etc/passwd l; echo deep');
        is($j->{stdout}, "deep\n", 'a tree deeper than any path');
        ok(!-e $j->{workspace} =~ s{/work$}{}r, 'is removed');
    };


    subtest "$who: the host is read-only" => sub {
        my $r = sh($who, "cat $dir/plain; for f in $dir/new /usr/new /etc/new "
                         . "/new $dir/plain; do echo x >> \$f && echo \$f; "
                         . 'done 2>/dev/null; true');
        is($r->{out}, "plain text\n", 'read, and not written');
        is(SandboxTest::slurp("$dir/plain"), "plain text\n", 'at all');

        $r = sh($who, "ls /tmp; echo x > /tmp/$MARK-inside; "
                      . "echo x > /var/tmp/$MARK-inside; "
                      . 'echo x > /dev/shm/x; cat /tmp/*-inside', @ws);
        is($r->{out}, "x\n", '/tmp is private, and empty');
        ok(!-e "/tmp/$MARK-inside" && !-e "/var/tmp/$MARK-inside",
           'and stays so');

        $r = sh($who, 'for f in /proc/sys/kernel/hostname /proc/sysrq-trigger '
                      . '/proc/sys/kernel/core_pattern; do '
                      . 'echo x > $f && echo $f; done 2>/dev/null; '
                      . 'grep -E "^(Cap(Prm|Eff|Bnd|Amb)|NoNewPrivs|Seccomp):" '
                      . '/proc/self/status');
        is($r->{out}, join('', map { "Cap$_:\t0000000000000000\n" }
                           qw(Prm Eff Bnd Amb))
                      . "NoNewPrivs:\t1\nSeccomp:\t2\n",
           'no rights, and nothing of /proc/sys');

        $r = sh($who, 'unshare -U true; unshare -m true; '
                      . 'mount -t tmpfs x /tmp; umount /root; true');
        is(() = $r->{err} =~ /not permitted|denied|must be superuser/gi, 4,
           'no namespaces, no mounts') or diag($r->{err});

        my $ids = sh($who, 'grep -E "^Uid|^Groups" /proc/self/status; '
                           . 'cat /proc/self/uid_map')->{out};
        like($ids, qr/^\s*\d+\s+\d+\s+1$/m, 'one id and no other');
        unlike($ids, qr/^\s*\d+\s+0\s/m, 'which is not root of the host');
    };


    subtest "$who: no set-user-id program is left" => sub {
        my $r = sh($who, 'cp /bin/true p; chmod 4755 p; chmod 2755 p; '
                         . 'chmod u+s p; perl -e \'use Fcntl; '
                         . 'sysopen(F, "q", O_CREAT|O_WRONLY, 04755) '
                         . 'and print "made\n"; '
                         . 'syscall(452, -100, "p", 04755, 0) == 0 '
                         . 'and print "changed\n"\'; '
                         . 'find . -perm /6000', @ws);
        is($r->{out}, '', 'by chmod, by open, by fchmodat2');
        is(`find $w -perm /6000`, '', 'as the host sees it');
    };


    subtest "$who: credentials" => sub {
        my $show = 'for f in .ssh/id_ed25519 .aws/credentials .netrc .npmrc '
                   . '.config/gh/hosts.yml .profile; do '
                   . "cat $dir/home/\$f; done 2>/dev/null; "
                   . "ls -A $dir/home/.ssh 2>/dev/null; "
                   . 'cat /etc/shadow /etc/gshadow 2>/dev/null; true';

        is(sh($who, $show)->{out}, "open\n", 'cannot be read, the rest can');
        chown $uid, $uid, "$dir/home", "$dir/home/.config";
        is(sh($who, $show, '--workspace', "$dir/home")->{out}, "open\n",
           'nor in a workspace that holds them');
        is(sh($who, "mv $dir/home/.config $dir/home/.c; "
                    . "cat $dir/home/.c/gh/hosts.yml 2>/dev/null; "
                    . "mv $dir/home/.c $dir/home/.config; true",
              '--workspace', "$dir/home")->{out}, '', 'nor after a rename');
        chown 0, 0, "$dir/home", "$dir/home/.config";
        is(sh($who, 'ls /root 2>/dev/null | head -1')->{out}, '',
           "root's home neither");
    };


    subtest "$who: a procfs of the host that is mounted elsewhere" => sub {
        mkdir "$dir/other proc";
        system 'mount', '-t', 'proc', 'proc', "$dir/other proc";
        my $r = sh($who, "ls '$dir/other proc' 2>/dev/null; "
                         . "cat '$dir/other proc/$$/comm' 2>/dev/null; true");
        is($r->{out}, '', 'is no way out');
        system 'umount', "$dir/other proc";
    };


    subtest "$who: sockets" => sub {
        my $try = 'perl -MIO::Socket::UNIX -e \'print '
                  . 'IO::Socket::UNIX->new(Peer => $_, Type => 1) ? "in" : '
                  . '"out" for @ARGV\' ';
        my @listen = map {
            unlink $_;
            my $s = IO::Socket::UNIX->new(Local => $_, Listen => 4096,
                                          Type => SOCK_STREAM) or die "$_ $!";
            chmod 0777, $_;
            $s;
        } ("/run/$MARK.sock", "$dir/open.sock");

        is(sh($who, "$try /run/$MARK.sock $dir/open.sock")->{out}, 'outout',
           'of the host are out of reach, in /run and elsewhere');

        # a name is listed for each connection: 1200 of one do not use up the
        # room for the one that comes after them

        my @busy;

        for (1 .. 3) {
            pipe my $ready, my $told or die $!;
            push @busy, fork // die $!;

            if (!$busy[-1]) {
                my @c = map { IO::Socket::UNIX->new(Peer => "$dir/open.sock") }
                            1 .. 400;
                syswrite $told, "x";
                sleep 600;
                POSIX::_exit(0);
            }

            close $told;
            sysread $ready, my $byte, 1;
        }

        unlink "$dir/late.sock";
        push @listen, IO::Socket::UNIX->new(Local => "$dir/late.sock",
                                            Listen => 1) // die $!;
        chmod 0777, "$dir/late.sock";
        is(sh($who, "$try $dir/open.sock $dir/late.sock")->{out}, 'outout',
           'however many connections there are');
        kill 'KILL', @busy;
        waitpid $_, 0 for @busy;
        pop @listen;
        unlink "$dir/open.sock", "$dir/late.sock";

        if ($who eq 'root') {
            # not known to the run when it starts, and beside something that
            # takes no idmapped mount

            mkdir "$dir/proc";
            system 'mount', '-t', 'proc', 'proc', "$dir/proc";

            POSIX::mkfifo("$dir/fifo", 0666);
            chmod 0666, "$dir/fifo";
            sysopen my $fifo, "$dir/fifo", POSIX::O_RDWR() or die $!;
            my $job = start('root', {}, @ws, '--', '/bin/sh', '-c',
                            "touch at; until [ -e go ]; do sleep 0.05; done; "
                            . "$try $dir/late.sock; echo x > $dir/fifo "
                            . '|| echo closed');
            SandboxTest::wait_for(sub { -e "$w/at" }, within(20));
            my $late = IO::Socket::UNIX->new(Local => "$dir/late.sock",
                                             Listen => 1) or die $!;
            chmod 0777, "$dir/late.sock";
            write_file("$w/go", '');
            is(finish($job)->{out}, "outclosed\n",
               'nor one that listens later, nor a FIFO');
            unlink "$dir/late.sock", "$dir/fifo";
            system 'umount', "$dir/proc";
        }
    };


    subtest "$who: network" => sub {
        my $server = IO::Socket::INET->new(Listen => 5,
                                           LocalAddr => '127.0.0.1') or die $!;
        my $try = 'perl -MIO::Socket::INET -e \'print '
                  . 'IO::Socket::INET->new(PeerAddr => "127.0.0.1:" . shift) '
                  . '? "in" : "out"\' ' . $server->sockport;

        is(sh($who, $try)->{out}, 'out', "the host's is not there");
        is(sh($who, 'ls /sys/class/net /proc/net/dev >/dev/null 2>&1; '
                    . 'grep -c : /proc/net/dev')->{out} =~ /^1$/m ? 1 : 0, 1,
           'only lo');
        my $j = json_sh($who, 'perl -MSocket -MErrno -e \'socket(S, AF_INET, '
                        . 'SOCK_DGRAM, 0); connect(S, sockaddr_in(53, '
                        . 'inet_aton("198.51.100.1"))) or print $!{ENETUNREACH}'
                        . ' ? "unreachable" : $!\'');
        is($j->{stdout}, 'unreachable', 'at once');
        is(sh($who, $try, '--network')->{out}, 'in', '--network');

        # abstract sockets of the host, where the kernel can close them

        my $name = "\0$MARK";
        my $abstract = IO::Socket::UNIX->new(Local => $name, Listen => 1)
            or die $!;
        my $reach = 'perl -MIO::Socket::UNIX -e \'print '
                    . "IO::Socket::UNIX->new(Peer => qq(\\0$MARK)) "
                    . '? "in" : "out"\'';
        is(sh($who, $reach)->{out}, 'out', 'no abstract sockets');
        $j = json_sh($who, $reach, '--network');
        ok($j->{stdout} eq 'out'
           || ($j->{note} // '') =~ /abstract sockets/,
           'nor with --network, unless it is said');
    };


    subtest "$who: processes" => sub {
        my $j = json_sh($who, "kill -0 $$ 2>/dev/null && echo seen; "
                        . 'ls /proc | grep -cx "[0-9]*"; '
                        . 'ls -d /proc/1 2>/dev/null; kill -9 1; echo on');
        my ($count, @rest) = split /\n/, $j->{stdout};
        cmp_ok($count, '<', 8, 'of the host are not seen');
        is("@rest", 'on', 'the first one is neither seen nor killed');
    };


    subtest "$who: writable, deny-write, deny-read" => sub {
        my $d = "$dir/d-$who";
        make_path(map { "$d/$_" } qw(ws/.git/hooks ws/a/b more other));
        write_file("$d/$_", "old\n") for qw(ws/.git/config ws/a/b/kept
                                            ws/a/b/secret more/f other/f);
        symlink 'a', "$d/ws/link" or die $!;
        symlink "$d/ws/a", "$d/outside" or die $!;
        system 'chown', '-R', "$uid:$uid", $d;

        my @o = ('--workspace', "$d/ws");
        my $write = sub {
            my ($file, @more) = @_;
            write_file("$d/$file", "old\n");
            chown $uid, $uid, "$d/$file";
            sh($who, "echo new > $d/$file", @o, @more);
            return SandboxTest::slurp("$d/$file") eq "new\n" ? 1 : 0;
        };

        is($write->('other/f'), 0, 'what is not named is not writable');
        is($write->('more/f', '--writable', "$d/more"), 1, '--writable');
        is($write->('.././d-' . $who . '/more/f', '--writable', "$d/more",
                    '--deny-write', "$d/more"), 0, '--deny-write wins');
        is($write->('ws/.git/config', '--deny-write', '.git'), 0,
           'relative to the workspace, all that is below');
        is($write->('ws/a/b/kept', '--deny-write', 'a/b/kept'), 0, 'a file');
        is($write->('ws/a/b/kept', '--deny-write', "$d/outside/b/kept"), 0,
           'named through a link elsewhere');
        is($write->('ws/a/b/kept', '--deny-write', "$d"), 0,
           'in what holds the workspace');
        is($write->('ws/a/b/secret', '--deny-write', 'a/b/kept'), 1,
           'and nothing else');

        my $r = sh($who, 'mv a c; mkdir -p a/b; echo new > a/b/kept; '
                         . 'mv a/b a/x; rm -rf a/b; true',
                   @o, '--deny-write', 'a/b/kept');
        is(SandboxTest::slurp("$d/ws/a/b/kept") // 'gone', "old\n",
           'what leads to it cannot be put aside');
        $r = sh($who, 'echo x > a/b/kept; rm -f a/b/kept; mv a/b/kept k; '
                      . 'ln a/b/kept k; true', @o, '--writable', "$d/ws/a",
                '--deny-write', 'a/b/kept');
        is(SandboxTest::slurp("$d/ws/a/b/kept") // 'gone', "old\n",
           'nor itself, nested in a further writable one');
        is((stat "$d/ws/a/b/kept")[3], 1, 'nor linked');

        $r = sh($who, 'true', @o, '--deny-write', 'link/b');
        is($r->{status}, 125, 'a link that could be replaced is refused');
        like($r->{err}, qr/leads through a link .* name "\Q$d\E\/ws\/a\/b"/,
             'with what to name');
        $r = sh($who, 'true', @o, '--deny-write', 'not/there');
        is($r->{status}, 125, 'so is what is not there');
        like($r->{err}, qr/is not there.*make it first/, 'with what to do');
        ok(!-e "$d/ws/not", 'and nothing is made');
        $r = sh($who, 'echo x > there; cat there', @o, '--deny-read', 'there');
        is($r->{status}, 125, 'nor can be hidden what is yet to be made');
        like($r->{err}, qr/deny_read.*is not there.*make it first/,
             'with what to do');
        is(sh($who, 'echo ok', @o, '--deny-write', '/no/such',
              '--deny-read', '/no/such')->{out},
           "ok\n", 'where it could not be written it does not matter');
        is(sh($who, 'mkdir /tmp/x 2>/dev/null; echo x > /tmp/x/y && echo w; '
                    . 'true', @o, '--deny-write', '/tmp/x')->{out}, '',
           'in the private /tmp it is kept too');

        write_file("$d/ws/a/b/secret", "old\n");
        is(sh($who, 'cat a/b/secret', @o)->{out}, "old\n", 'is read');
        is(sh($who, 'cat a/b/secret; ls a; cat more 2>/dev/null; true', @o,
              '--deny-read', 'a/b/secret')->{out}, "b\n",
           '--deny-read of a file');
        is(sh($who, "ls a; cat a/b/secret; chmod 755 a; ls a; cat $d/other/f; "
                    . 'true', @o, '--deny-read', 'link', '--deny-read',
              "$d/other")->{out}, '', 'of a directory, by a link, elsewhere');
        is((stat "$d/ws/a")[2] & 07777, 0755, 'untouched on the host');
    };


    subtest "$who: processors that are seen" => sub {
        my $all = 0 + `nproc`;
        my $seen = 'env -u OMP_NUM_THREADS nproc; '
                   . 'echo $OMP_NUM_THREADS $GOMAXPROCS';

        is(sh($who, $seen, '--cpus', '0.5')->{out}, "1\n1 1\n",
           'as many as the share, rounded up');
        is(sh($who, $seen, '--cpus', '0.5', '--env', 'OMP_NUM_THREADS=3')
           ->{out}, "1\n3 1\n", '--env wins');
        is(sh($who, $seen, '--cpus', 4 * $all)->{out}, "$all\n$all $all\n",
           'no more than there are');
        is(sh($who, $seen)->{out}, "$all\n\n", 'all, where nothing is asked');
    };


    subtest "$who: limits" => sub {
        my $j = json($who, '--memory', '64MB', '--', 'perl', '-e',
                     '$x = "a" x (300 << 20); print "got it"');
        unlike($j->{stdout} // $j->{error}, qr/got it/, 'memory');
        is($j->{enforcement}{memory} =~ /^(?:cgroup v[12]|rlimit)$/ ? 1 : 0, 1,
           "kept by $j->{enforcement}{memory}");

        if ($j->{enforcement}{memory} =~ /cgroup/) {
            is($j->{reason}, 'memory', 'the kernel ended it, and it is said');
            ok($j->{oom_killed}, 'oom_killed');
        }

        $j = json($who, '--memory', '64MB', '--memory-strategy', 'rlimit',
                  '--', 'perl', '-e',
                  '$x = "a" x (300 << 20); print "got it"');
        is("$j->{enforcement}{memory} $j->{stdout} $j->{oom_killed}",
           'rlimit  0', '--memory-strategy rlimit');
        isnt($j->{reason}, 'memory', 'then it ended by itself');

        $j = json_sh($who, 'for i in 1 2 3; do (while :; do :; done) & done; '
                     . 'wait', '--cpu-seconds', '0.5', '--timeout', 60);
        is("$j->{reason} $j->{exit_code}", 'cpu_time 137',
           'cpu_seconds, of the whole tree');
        my $used = $j->{usage}{cpu_user_s} + $j->{usage}{cpu_system_s};
        ok($used > 0.3 && $used < 3, "at $used s");
        like($j->{enforcement}{cpu_seconds}, qr/^poll$/, 'by polling');

        $j = json_sh($who, 'for i in 1 2 3 4 5 6 7 8; do '
                     . 'perl -e \'1 for 1..2000000\'; done; while :; do '
                     . 'perl -e \'1 for 1..2000000\'; done',
                     '--cpu-seconds', '0.5', '--timeout', 60);
        is($j->{reason}, 'cpu_time', 'of children that came and went');

        $j = json($who, '--processes', 12, '--', 'perl', '-e', '$| = 1; '
                  . 'for (1..60) { my $p = fork; last if !defined $p; '
                  . 'if (!$p) { sleep 20; exit } $n++ } print $n');
        is($j->{stdout}, 11, 'processes, the command among them');
        isnt($j->{enforcement}{processes}, 'none', 'kept');

        $j = json_sh($who, 'head -c 100000 /dev/zero > f; stat -c %s f',
                     '--max-file-size', '10KB');
        is($j->{stdout}, "10240\n", 'max_file_size');
        is($j->{enforcement}{max_file_size}, 'rlimit', 'by rlimit');

        $j = json($who, '--open-files', 20, '--', 'perl', '-e',
                  'while (open my $f, "<", "/dev/null") { push @f, $f } '
                  . 'print scalar @f');
        cmp_ok($j->{stdout}, '<=', 17, 'open_files');
        is(sh($who, 'ulimit -s; ulimit -Hs', '--stack', '1MB')->{out},
           "1024\n1024\n", 'stack');

        $j = json_sh($who, 'true', '--cpus', '0.5');
        like($j->{enforcement}{cpus}, qr/^(?:cgroup v[12]|none)$/,
             "cpus: $j->{enforcement}{cpus}");
    };


    subtest "$who: time" => sub {
        my $detach = 'perl -MPOSIX -e \'$SIG{TERM} = $SIG{HUP} = "IGNORE"; '
                     . 'fork and exit; setsid; fork and exit; '
                     . "\$0 = '$MARK-daemon'; sleep 600\' ";
        my $begin = time;
        my $r = sh($who, "$detach & trap '' TERM; sleep 600; sleep 600",
                   '--timeout', '0.7');
        is($r->{status}, 124, '--timeout');
        like($r->{err}, qr/ended: timeout/, 'is said');
        cmp_ok(time - $begin, '<', within(30), 'and kept');
        is(scalar(grep { /daemon/ } left()), 0,
           'everything is dead before the answer');

        my $j = json_sh($who, "$detach; echo started; sleep 600",
                        '--timeout', '0.7');
        is("$j->{reason} $j->{timed_out} $j->{exit_code} $j->{stdout}",
           "timeout 1 137 started\n", 'what was printed before is there');

        $j = json_sh($who, "$detach; echo done", '--timeout', 'none');
        is("$j->{reason} $j->{stdout}", "exited done\n",
           'what is left in the background ends with the command');
        is(scalar(grep { /daemon/ } left()), 0, 'at once');
    };


    subtest "$who: the end of sandboxctl" => sub {
        for my $sig ('KILL', 'TERM', 'INT') {
            my $job = start($who, {}, @ws, '--timeout', 'none', '--',
                            '/bin/sh', '-c', "touch going-$sig; trap '' TERM "
                            . "HUP INT; setsid sleep 600 $MARK & sleep 601; "
                            . 'sleep 602');
            SandboxTest::wait_for(sub { -e "$w/going-$sig" }, within(20));
            ok(-e "$w/going-$sig", "$sig: it runs");
            kill $sig, $job->{pid};
            my $r = finish($job);
            is($r->{status}, $sig eq 'KILL' ? 'signal 9' : 137,
               'it ends') or diag($r->{err});
            nothing_left('and nothing is left');
        }

        my $job = start($who, {}, '--timeout', 'none', '--', '/bin/sh', '-c',
                        "echo $MARK; sleep 600");
        SandboxTest::wait_for(sub { -s "$job->{base}.out" }, within(20));
        kill 'KILL', $job->{pid};
        finish($job);
        nothing_left('nor a private workspace');
    };


    subtest "$who: strategies and backends" => sub {
        my $r = sh($who, 'true', '--memory', '64MB', '--memory-strategy',
                   'cgroup');
        ok($r->{status} == 0 || ($r->{status} == 125
           && $r->{err} =~ /^sandboxctl: memory_strategy cgroup: [^\n]+\n\z/),
           'cgroup: as asked, or refused') or diag($r->{err});
        isnt($r->{status}, 0, 'refused where the user has none')
            if $who eq 'user'
               && json_sh($who, 'true', '--memory', '64MB')->{enforcement}
                  {memory} eq 'rlimit';

        my $j = json_sh($who, "cat $dir/home/.ssh/id_ed25519; id -u; "
                        . "(setsid sleep 600 $MARK &) ; pwd", @ws,
                        '--backend', 'passthrough');
        like($j->{stdout}, qr/^SECRET\n$uid\n\Q$w\E\n/, 'passthrough is bare');
        ok(!$j->{isolated}, 'and says so');
        is("$j->{backend} $j->{enforcement}{seccomp}", 'passthrough none',
           'by its name');
        is(scalar(grep { /sleep/ } left()), 0, 'still nothing survives');

        $j = json_sh($who, 'sleep 600', '--backend', 'passthrough',
                     '--timeout', '0.3', '--memory', '1GB');
        is("$j->{reason} $j->{enforcement}{memory}", 'timeout rlimit',
           'it has time limits and rlimits');

        $r = sh($who, 'echo ran', '--backend', 'passthrough',
                '--require-isolation');
        is("$r->{status}$r->{out}", 125, 'never with --require-isolation');
        is(sh($who, 'echo ran', '--require-isolation')->{out}, "ran\n",
           '--require-isolation where there is');
    };

    nothing_left("$who: nothing is left");
    ok(-d $w, "$who: a given workspace is kept");
}


subtest 'what other runs of this machine leave is not counted' => sub {
    my $other = tempdir('sbxotherXXXXXX', DIR => dirname($dir), CLEANUP => 1);
    chmod 0755, $other;

    my $pid = fork // die $!;

    if (!$pid) {
        $ENV{TMPDIR} = $other;
        open STDOUT, '>', "$dir/theirs";
        open STDERR, '>', '/dev/null';
        exec "$SandboxTest::BUILD/sandboxctl", 'run', '--', '/bin/sh', '-c',
             'echo there; sleep 600' or POSIX::_exit(99);
    }

    ok(SandboxTest::wait_for(sub { -s "$dir/theirs" }, within(20)),
       'another runs');
    is(join(' ', left()), '', 'and is not counted');

    my @helpers = split ' ', SandboxTest::slurp(
                                 "/proc/$pid/task/$pid/children") // '';
    my @groups = glob_groups();
    kill 'KILL', @helpers;
    waitpid $pid, 0;

    my ($theirs) = grep { my $h = $_; grep { m{/ir0*${h}x} } @groups }
                   @helpers;

  SKIP: {
        skip 'a run has no group here', 1 if !defined $theirs;

        is(join(' ', left()), '', 'nor one whose helper was killed');
    }

    sh('root', 'true');               # which removes the dead one's group
};


subtest 'mistakes' => sub {
    my @cases = (
        [ 'no command', qr/no command/ ],
        [ 'no command', qr/no command/, '--' ],
        [ 'an unknown option', qr/unknown option "--frob"/, '--frob', '--',
          'true' ],
        [ 'no --', qr/"--" must come before/, 'true' ],
        [ 'a missing value', qr/--memory lacks a value/, '--memory' ],
        [ 'a value of a flag', qr/--json takes no value/, '--json=1', '--',
          'true' ],
        [ 'memory', qr/--memory 1MB: must be at least/, '--memory', '1MB',
          '--', 'true' ],
        [ 'a size', qr/--memory lots: must be bytes/, '--memory', 'lots',
          '--', 'true' ],
        [ 'processes', qr/must be at least 8/, '--processes', 2, '--',
          'true' ],
        [ 'open files', qr/must be at least 16/, '--open-files', 3, '--',
          'true' ],
        [ 'a backend', qr/must be auto, namespaces or passthrough/,
          '--backend', 'seatbelt', '--', 'true' ],
        [ 'a strategy', qr/must be auto, cgroup or rlimit/,
          '--memory-strategy', 'x', '--', 'true' ],
        [ 'a workspace', qr/workspace .* is no directory/, '--workspace',
          '/no/such', '--', 'true' ],
        [ 'a file as workspace', qr/workspace .* is no directory/,
          '--workspace', '/etc/passwd', '--', 'true' ],
        [ 'everything as workspace', qr/may not be made writable/,
          '--workspace', '/', '--', 'true' ],
        [ '/proc', qr/may not be made writable/, '--writable', '/proc/sys',
          '--', 'true' ],
        [ 'a writable path', qr/writable .* is no directory/, '--writable',
          '/no/such', '--', 'true' ],
        [ 'input', qr/cannot open "\/no\/such"/, '--input', '/no/such', '--',
          'true' ],
        [ 'a variable', qr/env "X" is not NAME=VALUE/, '--env', 'X', '--',
          'true' ],
        [ 'a helper', qr/cannot execute "\/no\/such"/, '--helper',
          '/no/such', '--', 'true' ],
        [ 'a timeout', qr/--timeout soon: /, '--timeout', 'soon', '--',
          'true' ],
        [ 'no limit where one must be', qr/--memory none: leave the option out/,
          '--memory', 'none', '--', 'true' ],
    );

    for my $case (@cases) {
        my ($name, $text, @args) = @$case;
        my $r = run('root', @args);

        ok($r->{status} eq '125' && $r->{out} eq ''
           && $r->{err} =~ /\Asandboxctl: [^\n]*\n\z/ && $r->{err} =~ $text,
           "$name: one line, and 125")
            or diag("$r->{status} $r->{out} $r->{err}");
    }
};

nothing_left('nothing is left at all');

done_testing();
