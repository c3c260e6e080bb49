#!/usr/bin/perl

# Code of a session holds the lock of a file that is being sent: punching a
# hole into hundreds of megabytes takes its time, and so long nobody reads what
# is not in memory.  A thread of the worker waits for it, and the worker serves
# others.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../lib";

use Test::More;
use SandboxTest;
use SandboxTest::More;

my $CLIENTS = 4;
my $SEEN = 3;                     # times that a thread is found waiting

my $PUNCH = <<'PYTHON';
import ctypes, os

SIZE = 160 << 20
libc = ctypes.CDLL(None, use_errno=True)
libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_long,
                           ctypes.c_long]
fd = os.open('f', os.O_RDWR | os.O_CREAT, 0o644)
os.ftruncate(fd, SIZE)
buf = b'x' * (1 << 20)
n = 0
while True:
    for at in range(1 << 20, SIZE, 1 << 20):
        os.pwrite(fd, buf, at)
    if libc.fallocate(fd, 3, 4096, SIZE - 4096) != 0:
        open('fails', 'w').write(os.strerror(ctypes.get_errno()))
        break
    n += 1
    open('n', 'w').write(str(n))
PYTHON

# The threads of a process that wait for a file's pages, of which the program
# leaves none to be read from a disk: so for the lock.
sub waiting {
    my ($pid) = @_;

    return grep {
        (slurp("/proc/$pid/task/$_/stat") // '') =~ /\) D /
        && (slurp("/proc/$pid/task/$_/wchan") // '')
               =~ /^(?:page_cache|filemap|rwsem|down_read)/
    } map { m{(\d+)$} } glob "/proc/$pid/task/*";
}


sub punched {
    my ($name, %o) = @_;

    subtest $name => sub {
        my $t = server(workers => 1, %o);
        my $s = create_ok({ manifest => {
            capabilities => [qw(shell files)],
            resources => { memory => '1G', disk => '600M' } } });
        my $other = create_ok();
        my $kind = call('GET', "/sessions/$s")->{json}{enforcement}{disk};

        if ($kind eq 'tmpfs') {
            destroy($_) for $s, $other;
            $t->finish;
            plan(skip_all => 'readers of a tmpfs wait for no such lock');
        }

        put($s, 'punch.py', $PUNCH);
        is(exec_call($s, [qw(python3 punch.py)],
                     background => JSON::PP::true)->{status}, 202,
           'a program');
        ok((until_true { get($s, 'n')->{status} == 200
                         || get($s, 'fails')->{status} == 200 } 60),
           'punches');
        is(get($s, 'fails')->{status}, 404, 'what it may');

        my ($worker) = workers();
        my $stop = $t->prefix . '/stop';
        my @jobs = map { async {
            my %got;

            while (!-e $stop) {
                my $r = call('GET', "/sessions/$s/files/f", headers => {
                    Range => 'bytes=8192-400000' });
                $got{"$r->{status} " . length $r->{body}}++;
            }

            return join ' ', keys %got;
        } } 1 .. $CLIENTS;

        my ($threads, $itself) = (0, 0);

        ok((until_true {
            my @w = waiting($worker);

            $itself++ if grep { $_ == $worker } @w;
            $threads++ if grep { $_ != $worker } @w;

            return $threads >= $SEEN || $itself >= $SEEN;
        } 60), 'the lock is waited for');
        is($itself, 0, 'never by the worker');
        cmp_ok($threads, '>=', $SEEN, 'but by its threads');
        is(run($other, 'echo x')->{stdout}, "x\n", 'others are served');

        open my $f, '>', $stop or die "$stop: $!";
        close $f;
        is_deeply([ map { $_->get } @jobs ], [ ('206 391809') x $CLIENTS ],
                  'whoever asks has all of it');

        # one whose client leaves, and one whose session ends, meanwhile

        my $leaves = open_request(GET => "/sessions/$s/files/f",
                                  headers => { Connection => 'close' });
        my $stays = open_request(GET => "/sessions/$s/files/f",
                                 headers => { Connection => 'close' });

        sysread $stays, (my $head), 4096;
        like($head, qr{^HTTP/1.1 200 }, 'another is being sent');
        close $leaves;
        is(destroy($s)->{status}, 204, 'the session ends');
        { local $/; my $rest = <$stays> // '';
          cmp_ok(length $rest, '<', 160 << 20, 'which cuts it'); }
        ok((until_true { !grep { (readlink $_ // '') =~ m{/f(?: |$)} }
                              glob "/proc/$worker/fd/*" }),
           'and the worker has let go of the file');

        $t->finish;
    };

    return;
}

punched('by sendfile()', extra => "sendfile on;\n");
punched('by read()', extra => "sendfile off;\n");

done_testing();
