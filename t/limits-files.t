#!/usr/bin/perl

# What the kernel limits for each process: the size of a file, open files,
# the stack; and what a session's disk holds.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";

use Test::More;
use SandboxTest::More;
use SandboxTest::Limits;

# Files in memory: what they cost is the session's memory, to the page.
my $t = server(http => '    sandbox_storage tmpfs;');
my $s = session(max_file_size => '8MB', open_files => 64, stack => '2MB',
                disk => '16MB', inodes => 400, memory => '128MB');


subtest 'the size of a file' => sub {
    my $r = load($s, 'write big 9');
    is("$r->{reason} $r->{signal}", 'signal SIGXFSZ', 'the session\'s');
    is(run($s, 'stat -c %s big')->{stdout}, (8 * MB) . "\n",
       'to the byte');
    is(load($s, 'write big 8')->{reason}, 'exited', 'as much is written');

    $r = load($s, 'write own 3', limits => { max_file_size => '2MB' });
    is($r->{signal}, 'SIGXFSZ', 'a command\'s own');
    is(run($s, 'stat -c %s own')->{stdout}, (2 * MB) . "\n", 'to the byte');

    $r = load($s, 'ignore write own 3', limits => { max_file_size => '2MB' });
    is("$r->{reason} $r->{exit_code} $r->{stdout}", "exited 1 written 2\n",
       'ignored, the write fails');
    run($s, 'rm -f big own');
};


subtest 'open files' => sub {
    is(load($s, 'files 100')->{stdout}, "refused EMFILE\nopen 64\n",
       'the session\'s');
    is(load($s, 'files 100', limits => { open_files => 32 })->{stdout},
       "refused EMFILE\nopen 32\n", 'a command\'s own');
    is(load($s, 'files 16', limits => { open_files => 16 })->{stdout},
       "open 16\n", 'the least');
    is(run($s, 'ulimit -n 65 2>/dev/null || echo no; ulimit -Hn')->{stdout},
       "no\n64\n", 'it cannot be raised');
};


subtest 'the stack' => sub {
    is(load($s, 'stack 1600')->{stdout}, "stacked 1600\n",
       'most of the session\'s');
    is(load($s, 'stack 2200')->{signal}, 'SIGSEGV', 'no more');
    is(load($s, 'stack 700', limits => { stack => '1MB' })->{reason},
       'exited', 'a command\'s own');
    is(load($s, 'stack 1100', limits => { stack => '1MB' })->{signal},
       'SIGSEGV', 'no more');
    is(run($s, 'ulimit -Hs', limits => { stack => '1MB' })->{stdout},
       "1024\n", 'the hard limit too');
};


subtest 'the disk, by bytes and by files' => sub {
    my $r = run($s, 'for i in 1 2 3 4; do /home/user/load write f$i 5'
                    . ' || echo "full $?"; done');
    like($r->{stdout}, qr/^(?:written 5\n){2}.*full 1/s, 'is full');
    ok(!$r->{oom_killed}, 'and nobody is killed for it');
    is_problem(put($s, 'more', 'x' x (2 * MB)), 507, 'E4006',
               'an upload is told');
    is(run($s, 'rm -f f*; echo ok')->{stdout}, "ok\n", 'room is made');

    my $u = call('GET', "/sessions/$s")->{json}{usage};
    cmp_ok($u->{disk}, '<', 3 * MB, 'which the usage tells');

    $r = run($s, 'mkdir n; cd n; for i in $(seq 500); do true > $i || break;'
                 . ' done; ls | wc -l', limits => { cpu_seconds => 20 });
    like($r->{stdout}, qr/^3\d\d$/m, 'so many files');
    is_problem(put($s, 'more', 'x'), 507, 'E4006', 'an upload is told');

    $u = call('GET', "/sessions/$s")->{json}{usage};
    cmp_ok($u->{inodes}, '>=', 350, 'the usage tells them');
    is(run($s, 'rm -rf n; echo ok')->{stdout}, "ok\n", 'room is made');
};


destroy($s);
$t->finish;
done_testing();
