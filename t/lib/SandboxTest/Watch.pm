package SandboxTest::Watch;

# A command that is told by the kernel (inotify) what happens in a directory
# that its session shares with others.

use strict;
use warnings;

use Exporter qw(import);
use Test::More;

use SandboxTest::More;

our @EXPORT = qw(watch watch_is_told_of_itself);

# Any event that inotify has.

use constant ALL_EVENTS => 0xfff;

my $SCRIPT = <<'PY';
import ctypes, fcntl, os, sys, time
where, mask, opened, *locked = sys.argv[1:]
libc = ctypes.CDLL(None, use_errno=True)
fd = libc.inotify_init1(os.O_NONBLOCK)
locks = [open(name) for name in locked]
assert libc.inotify_add_watch(fd, where.encode(), int(mask)) != -1
for lock in locks:
    fcntl.flock(lock, fcntl.LOCK_EX)
open('/tmp/ready', 'w').close()
while not os.path.exists('/tmp/go'):
    time.sleep(0.01)
def events():
    try:
        return len(os.read(fd, 65536))
    except BlockingIOError:
        return 0
print('others', events())
open(opened, 'rb').close()
print('own', events() > 0)
PY


# Watches a directory until watch_is_told_of_itself(), and opens a file of it
# then:
#   mask           of events; all of them by default
#   locked         a file that it holds a lock of meanwhile

sub watch {
    my ($id, $dir, $file, $name, %o) = @_;

    local $Test::Builder::Level = $Test::Builder::Level + 1;

    my @words = ($dir, '' . ($o{mask} // ALL_EVENTS), $file,
                 $o{locked} // ());
    my $job = async { run($id, [ 'python3', '-c', $SCRIPT, @words ]) };

    ok(until_true(sub { get($id, '/tmp/ready')->{status} == 200 }, 10), $name);

    return { session => $id, job => $job };
}


sub watch_is_told_of_itself {
    my ($watch, $name) = @_;

    local $Test::Builder::Level = $Test::Builder::Level + 1;

    put($watch->{session}, '/tmp/go', '');

    return is($watch->{job}->get(within(20))->{stdout},
              "others 0\nown True\n", $name);
}


1;
