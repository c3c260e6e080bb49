#!/usr/bin/perl

# sandboxctl run, and what it meets on a host: directories that are shut, file
# systems without idmapped mounts, a delegated group, and no isolation to be
# had.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";

use File::Path qw(make_path);
use File::Temp qw(tempdir);
use Test::More;

use SandboxTest;
use SandboxTest::More qw(within host_pids);
use SandboxTest::Run;

my $dir = run_set_up();
my $MARK = "sbxmark$$";
my @who = run_who();

make_path("$dir/home");


subtest 'user: directories that a command could open to itself' => sub {
    plan(skip_all => 'no ordinary user may make sandboxes') if @who == 1;

    my $d = "$dir/shut";
    make_path("$d/ws/a/b", "$d/ws/.config/gh", "$d/ws/home/.ssh", "$d/more");
    write_file("$d/ws/$_", "old\n")
        for qw(a/b/f .config/gh/hosts.yml home/.ssh/id);
    system 'chown', '-R', "$UID:$UID", $d;

    my $open = sub {
        my ($home, $shut, $script, @more) = @_;
        chmod 0, "$d/$shut" or die $!;
        my $r = finish(start('user', { HOME => "$d/$home" }, '--workspace',
                             "$d/ws", @more, '--', '/bin/sh', '-c',
                             "chmod 700 $d/$shut; $script"));
        chmod 0700, "$d/$shut" or die $!;
        return $r->{out};
    };

    is($open->('.', 'ws/a', 'cat a/b/f'), "old\n", 'unless a rule is in them');

    for my $shut (qw(ws/a ws/a/b)) {
        is($open->('.', $shut, 'echo new > a/b/f; cat a/b/f',
                   '--deny-read', 'a/b/f'), '', "deny-read, $shut");
        $open->('.', $shut, 'echo new > a/b/f', '--deny-write', 'a/b/f');
        is(SandboxTest::slurp("$d/ws/a/b/f"), "old\n", "deny-write, $shut");
    }

    is($open->('ws', 'ws/.config', 'cat .config/gh/hosts.yml'), '',
       'credentials');
    is($open->('ws/home', 'ws/home', 'cat home/.ssh/id'), '', 'a home');

    chmod 0, "$d/more";
    my $r = run('user', '--workspace', "$d/ws", '--writable', "$d/more", '--',
                'true');
    like("$r->{status} $r->{err}", qr/^125 .*"\Q$d\E\/more" cannot be entered/,
         'are not given as writable');
};


for my $who (@who) {
    my $d = "$dir/many-$who";
    make_path("$d/a/b/c/d");
    write_file("$d/a/b/c/d/$_", "old\n") for 1 .. 60;
    system 'chown', '-R', ($who eq 'root' ? "4321:4321" : "$UID:$UID"), $d;

    my $r = sh($who, 'for i in a/b/c/d/*; do echo new > $i; done; mv a/b/c e; '
                     . 'wc -l < /proc/self/mountinfo', '--workspace', $d,
               map { ('--deny-write', "a/b/c/d/$_") } 1 .. 60);
    is((grep { SandboxTest::slurp("$d/a/b/c/d/$_") eq "old\n" } 1 .. 60), 60,
       "$who: many rules in one directory");
    cmp_ok($r->{out}, '<', 400, 'do not double what is mounted');
}


subtest 'root: directories that only their owner may enter' => sub {
    make_path("$dir/closed/way/ws");
    write_file("$dir/closed/beside", "beside\n");
    chown 4321, 4321, "$dir/closed", "$dir/closed/way/ws";
    chmod 0700, "$dir/closed";

    my $r = sh('root', 'pwd; echo x > f; cd ../ws && cat ../../beside; '
                       . 'touch ../../new; ls ../..',
               '--workspace', "$dir/closed/way/ws");
    is($r->{out}, "$dir/closed/way/ws\n", 'lead to the workspace, no more');
    is(join(' ', (stat "$dir/closed/way/ws/f")[4, 5]), '4321 4321',
       "what is written is the directory's owner's");
    ok(!-e "$dir/closed/new", 'and nothing else');
};


subtest 'root: a file system without idmapped mounts' => sub {
    my $tmp = tempdir(CLEANUP => 1);
    mkdir "$tmp/$_" for qw(lower upper work m);
    mkdir "$tmp/lower/$_" for qw(theirs roots);
    chown 4321, 4321, "$tmp/lower/theirs";

    plan(skip_all => 'no overlay can be mounted')
        if system('mount', '-t', 'overlay', '-o', "lowerdir=$tmp/lower,"
                  . "upperdir=$tmp/upper,workdir=$tmp/work", 'overlay',
                  "$tmp/m") != 0;

    my $j = json_sh('root', 'echo x > f; grep -c . /proc/self/uid_map',
                    '--workspace', "$tmp/m/theirs");

    if (defined $j->{note}) {
        like($j->{note}, qr/^runs as host user 4321/, "the owner's id is told");
        my $r = sh('root', 'true', '--workspace', "$tmp/m/roots");
        is($r->{status}, 125, "root's directory is refused");
        like($r->{err}, qr/takes no idmapped mounts: give the directory to/,
             'with what to do');
    }

    is((stat "$tmp/m/theirs/f")[4], 4321, "it is the owner's in any case");

    my $r = finish(start('root', { TMPDIR => "$tmp/m" }, '--', 'sh', '-c',
                         'echo x > f; cat f /proc/self/uid_map'));
    like($r->{out}, qr/^x\n\s*1000\s+2147\d+\s+1$/m,
         'a private workspace there is nobody\'s');
    is(join(' ', glob "$tmp/m/sandbox*"), '', 'and is removed');
    system 'umount', "$tmp/m";
};


# A group of cgroup v2 that belongs to the user, as systemd delegates one.

subtest 'a delegated group' => sub {
    my $top = '/sys/fs/cgroup';

    plan(skip_all => 'an ordinary user cannot make sandboxes here')
        if !grep { $_ eq 'user' } @who;
    plan(skip_all => 'cgroup v2 alone is not what this machine has')
        if !-e "$top/cgroup.controllers";

    my $g = "$top/$MARK";
    system 'sh', '-c', "echo +memory +pids +cpu > $top/cgroup.subtree_control";
    mkdir $g or plan(skip_all => "$g: $!");
    mkdir "$g/shell";
    system 'sh', '-c', "echo +memory +pids +cpu > $g/cgroup.subtree_control";
    system 'chown', '-R', "$UID:$UID", $g;

    local $AS{user} = [ 'sh', '-c', "echo 0 > $g/shell/cgroup.procs && "
                        . 'exec "$@"', 'sh', @{ $AS{user} } ];

    my $j = json('user', '--memory', '64MB', '--memory-strategy', 'cgroup',
                 '--cpus', '0.5', '--processes', 12, '--cpu-seconds', 30,
                 '--', 'perl', '-e', '$x = "a" x (300 << 20); print "got"');
    is(join(' ', map { $j->{enforcement}{$_} // $j->{error} }
            qw(memory cpus processes)),
       'cgroup v2 cgroup v2 cgroup v2', 'keeps the limits');
    is($j->{reason}, 'memory', 'and the kernel ends who is above');
    SandboxTest::wait_for(sub { !-d "$g/sandbox-run" }, within(5));
    ok(!-d "$g/sandbox-run", 'nothing of it is left');
    rmdir "$g/shell";
    rmdir $g;
};


subtest 'where user namespaces are refused' => sub {
    plan(skip_all => 'an ordinary user cannot make one here')
        if !grep { $_ eq 'user' } @who;

    my $refused = sub {
        my $script = 'echo 0 > /proc/sys/user/max_user_namespaces && exec "$@"';
        local $AS{user} = [ @{ $AS{user} }, 'unshare', '-r', 'sh', '-c',
                            $script, 'sh' ];
        return sh('user', 'echo ran', @_);
    };

    my $r = $refused->('--require-isolation');
    is($r->{status}, 125, 'an error when isolation is required');
    is($r->{out}, '', 'nothing ran');
    like($r->{err}, qr/user namespace: .*user\.max_user_namespaces/,
         'it names the layer and how to mend it');

    $r = $refused->('--backend', 'namespaces');
    is($r->{status}, 125, 'or the backend is named');

    $r = $refused->();
    is("$r->{status} $r->{out}", "0 ran\n", 'else it runs');
    like($r->{err}, qr/^sandboxctl: not isolated: user namespace/,
         'and says what it is');
};


# In a user namespace that has all ids the helper is root, and the limits are
# that namespace's own.

subtest 'root: no isolation to be had' => sub {
    my $map = write_file("$dir/map.pl", <<'PERL');
pipe my $r, my $w or die;
my $p = fork // die;
if (!$p) {
    close $w;
    open STDIN, '<&', $r;
    exec 'unshare', '--user', 'sh', '-c',
         'read go; exec unshare -m sh -c "$@"', 'sh',
         'echo 0 > /proc/sys/user/max_pid_namespaces && exec "$@"', 'sh',
         @ARGV;
}
close $r;
my $own = readlink '/proc/self/ns/user';
for (1 .. 1000) {
    last if (readlink("/proc/$p/ns/user") // $own) ne $own;
    select undef, undef, undef, 0.01;
}
for my $file (qw(uid_map gid_map)) {
    open my $f, '>', "/proc/$p/$file" or die $!;
    syswrite $f, "0 0 4294967295\n" or die $!;
}
syswrite $w, "go\n";
waitpid $p, 0;
exit $? >> 8;
PERL
    my @map = ('perl', $map);

    plan(skip_all => 'no user namespace with all ids')
        if system(@map, 'true') != 0;

    local $AS{root} = \@map;
    mkdir "$dir/given";
    chown 4321, 4321, "$dir/given";
    my @o = ('--workspace', "$dir/given");
    my $r = sh('root', 'echo ran', @o);
    is($r->{status}, 125, 'is an error, not a command with all rights');
    is($r->{out}, '', 'nothing ran');
    like($r->{err}, qr/namespace/, 'that names the layer');
    is(sh('root', 'echo ran', @o, '--backend', 'passthrough')->{out}, "ran\n",
       'unless that is asked for');
};


my @left;

SandboxTest::wait_for(sub {
    @left = (host_pids("$dir/bin"), glob("$dir/tmp/*"),
             grep { m{ \Q$dir\E} } split /\n/,
                 SandboxTest::slurp('/proc/self/mountinfo'));

    return !@left;
}, within(10));
is("@left", '', 'nothing is left');

done_testing();
