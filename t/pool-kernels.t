#!/usr/bin/perl

# Interpreters in sessions that were made ahead: started, told what to import,
# and, when the session is given out, told of its environment and held to its
# limits.  The interpreter is one of the test's own, which writes down all that
# it is told; and then those that sessions have.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";

use File::Path qw(make_path);
use JSON::PP ();
use Test::More;
use SandboxTest;
use SandboxTest::More;
use SandboxTest::Pool;

my $KERNEL = <<'PYTHON';
import os, socket
s = socket.socket(fileno=3)
s.set_inheritable(False)
f = s.makefile("rb")
ready = b"version 1\n1\n"
def say():
    s.sendall(b"ready %d\n" % len(ready) + ready)
with open("/tmp/told", "ab") as out:
    out.write(b"start " + os.environ.get("COLOUR", "none").encode() + b"\n")
say()
while True:
    line = f.readline()
    if not line:
        break
    kind, n = line.split()
    body = f.read(int(n))
    with open("/tmp/told", "ab") as out:
        out.write(b"-- " + kind + b"\n" + body)
    say()
PYTHON

# Before nginx starts: languages are read once.

sub language {
    my ($t, $name, $main) = @_;

    my $dir = $t->prefix . "/helpers/kernels/$name";

    # those of the build are not the test's to write to

    unlink $t->prefix . '/helpers/kernels';
    make_path($dir);

    open my $f, '>', "$dir/main.py" or die $!;
    print $f $main;
    close $f;

    open $f, '>', "$dir/kernel.conf" or die $!;
    print $f "command /usr/bin/python3\ncommand -S\ncommand @/main.py\n";
    close $f;

    return;
}

sub kernels {
    my ($id) = @_;

    my $r = $SandboxTest::Pool::T->run($id, <<'SH');
for p in /proc/[0-9]*; do
    line="$(tr '\0' ' ' < $p/cmdline)"
    case $line in
    */python3*kernels/*/main.py*) echo ${p#/proc/} $line ;;
    esac
done
SH

    # and not the shell that looks

    return grep { m{^\d+ /usr/bin/python3 } } split /\n/, $r->{stdout};
}

my $HTTP = <<'CONF';
    sandbox_template coded {
        env COLOUR red;
        preload json os.path fractions;
        memory 200MB;
    }
CONF

my $t = SandboxTest->new(
    workers => 2,
    http => "$HTTP    sandbox_pool coded sessions=2 kernels=first,second;\n",
    server => '        location = /metrics { sandbox_api metrics; }');
$SandboxTest::Pool::T = $t;
language($t, $_, $KERNEL) for 'first', 'second';
language($t, 'dies', "raise SystemExit(3)\n");

# as they lie in the build, where a session does not see what links lead to

my @real = grep { -e "$SandboxTest::BUILD/kernels/$_/kernel.conf" }
           'python', 'bash';

system('cp', '-rp', "$SandboxTest::BUILD/kernels/$_",
       $t->prefix . "/helpers/kernels/$_") == 0 or die "cp: $?" for @real;

$t->start;


subtest 'they run before they are asked for' => sub {
    pool_full(2, 'coded');
    my $s = make(template => 'coded')->{json};
    my $id = $s->{session_id};

    is(pool_counts('coded'), '1', 'one of the pool');
    my @k = kernels($id);
    is(scalar(grep { m{kernels/first/main.py} } @k), 1, 'one of a language')
        or diag(@k);
    is(scalar(grep { m{kernels/second/main.py} } @k), 1,
       'and one of the other');
    is($t->api(GET => "/sessions/$id")->{json}{usage}{processes}, 2,
       'they are its processes');
    is($t->run($id, 'true')->{exit_code}, 0, 'it runs commands');
    ends_ok($id);
};


subtest 'told what to import, then of the environment' => sub {
    pool_full(2, 'coded');
    my $s = make(template => 'coded', env => { COLOUR => 'blue',
                                               MORE => 'x y' })->{json};
    my $id = $s->{session_id};

    my $told = '';
    until_true {
        $told = $t->run($id, 'cat /tmp/told')->{stdout};
        return (() = $told =~ /^MORE=x y$/mg) == 2;
    } 20;

    my ($before) = $told =~ /\A(.*?)^COLOUR=blue$/ms;
    is((() = $told =~ /^start red$/mg), 2,
       'both were started as the template has it');
    is((() = $before =~ /^os\.path$/mg), 2, 'told what to import ahead');
    unlike($before, qr/blue/, 'and knew nothing of who would come');
    is((() = $told =~ /^COLOUR=blue$/mg), 2, 'then of all variables')
        or diag($told);
    ends_ok($id);
};


subtest 'held to limits' => sub {
    pool_full(2, 'coded');
    my $hits = metric('pool_hits_total', template => 'coded');
    my $s = make(template => 'coded',
                 manifest => { resources => { open_files => 50,
                                              memory => '100MB' } })->{json};
    my $id = $s->{session_id};
    is(metric('pool_hits_total', template => 'coded'), $hits + 1,
       'one of the pool');

    my ($pid) = map { /^(\d+)/ } kernels($id);
    like($t->run($id, "cat /proc/$pid/limits")->{stdout},
         qr/^Max open files +50 +50 /m, 'descriptors');
    ends_ok($id);

    for my $case ([ open_files => 5000 ], [ stack => '64MB' ],
                  [ max_file_size => '2GB' ])
    {
        my ($name, $value) = @$case;
        my $res = make(template => 'coded',
                       manifest => { resources => { $name => $value } });
        is($res->{status}, 201, "more than the template has: $name")
            or diag($res->{body});
        is_deeply([ kernels($res->{json}{session_id}) ], [],
                  'no interpreter has less than what was asked for');
        ends_ok($res->{json}{session_id});
    }

    my $n = metric('pool_misses_total', template => 'coded',
                   reason => 'limits');
    is($n, 3, 'which is counted');

    my $res = make(template => 'coded',
                   manifest => { resources => { memory => '16MB' } });
    $n = metric('pool_misses_total', template => 'coded',
                reason => 'limits') - $n;
    my $used = metric('pool_memory_bytes', template => 'coded') / 2;
    SKIP: {
        skip 'they use less than 12 MB', 1 if $used < 12 << 20;
        is($n, 1, 'not below what they use already');
    }
    ends_ok($res->{json}{session_id});

    for my $name (qw(open_files stack)) {
        pool_full(2, 'coded');
        my $more = { open_files => 2000, stack => '16MB' }->{$name};
        my $before = metric('pool_misses_total', template => 'coded',
                            reason => 'limits') // 0;
        $res = make(template => 'coded',
                    manifest => { resources => { $name => $more } });
        is($res->{status}, 201, "more of $name: made")
            or diag($res->{body});
        is(metric('pool_misses_total', template => 'coded',
                  reason => 'limits'), $before + 1,
           'without an interpreter that could not have it');
        ends_ok($res->{json}{session_id});
    }
};


subtest 'what an interpreter reads when it starts cannot be changed' => sub {
    pool_full(2, 'coded');
    my $n = metric('pool_misses_total', template => 'coded',
                   reason => 'env') // 0;

    for my $name (qw(PYTHONPATH LD_PRELOAD LANG TZ)) {
        my $res = make(template => 'coded', env => { $name => 'other' });
        is($res->{status}, 201, "$name: made");
        is_deeply([ kernels($res->{json}{session_id}) ], [],
                  'without an interpreter of another environment');
        ends_ok($res->{json}{session_id});
    }

    is(metric('pool_misses_total', template => 'coded', reason => 'env'),
       $n + 4, 'which is counted');
};


subtest 'a session whose interpreter dies is replaced' => sub {
    pool_full(2, 'coded');
    my @ids = pooled_ids();
    my ($pid) = grep { (slurp("/proc/$_/cgroup") // '')
                       =~ m{/\Q$ids[0]\E/work/} }
                map { m{(\d+)$} } glob '/proc/[0-9]*';
    my $failures = metric('pool_failures_total', template => 'coded');
    ok($pid, 'one of them');
    kill KILL => $pid;
    ok(until_true(sub { !grep { $_ eq $ids[0] } pooled_ids() }, 20),
       'the session ends');
    pool_full(2, 'coded');
    is(metric('pool_failures_total', template => 'coded'), $failures + 1,
       'which is counted');
};


subtest 'the interpreters that sessions have' => sub {
    plan(skip_all => 'no kernels are built') if @real < 2;

    $t->write_conf(http => "$HTTP    sandbox_pool coded sessions=1 "
                           . "kernels=python,bash;\n");
    $t->reload;
    pool_full(1, 'coded');

    my $hits = metric('pool_hits_total', template => 'coded');
    my $id = make(template => 'coded', env => { COLOUR => 'blue' })
             ->{json}{session_id};
    my $cold = make(template => 'coded', env => { COLOUR => 'blue' },
                    manifest => { filesystem =>
                                  { deny_read => [ '/home/user/x' ] } })
               ->{json}{session_id};

    is(metric('pool_hits_total', template => 'coded'), $hits + 1,
       'one is of the pool, one is not');

    my $of = sub {
        my ($session, $code, %o) = @_;

        return $t->api(POST => "/sessions/$session/code",
                       { code => $code, %o })->{json};
    };

    my ($bash, $python) = sort { $a->{context_id} cmp $b->{context_id} }
        @{ $t->api(GET => "/sessions/$id/contexts")->{json}{contexts} };
    is("$bash->{context_id} $bash->{state} $python->{context_id} "
       . "$python->{state} $python->{execution_count}",
       'bash idle python idle 0', 'both are there before they are used');

    my $seen = "import os\n'fractions' in __import__('sys').modules, "
               . "os.getpid(), os.getcwd(), os.environ['COLOUR']";
    my $j = $of->($id, $seen);
    is($j->{text}, "(True, $python->{pid}, '/home/user', 'blue')",
       'what was to be imported is, and the rest is the session\'s')
        or diag(explain($j));
    is("$j->{startup_s} $j->{execution_count}", '0 1', 'it had begun');

    my $names = 'sorted(k for k in globals() if k not in ("os", "_"))';
    is($of->($id, $names)->{text}, do { $of->($cold, $seen);
                                        $of->($cold, $names)->{text} },
       'code finds no other names than in one that was not made ahead');

    $j = $of->($id, 'echo $COLOUR; pwd', language => 'bash');
    is("$j->{stdout}$j->{startup_s}", "blue\n/home/user\n0", 'bash as well');

    is($of->($id, 'os._exit(1)')->{restarted}, JSON::PP::true(), 'one dies');
    is($of->($id, "import os; os.environ['COLOUR']")->{text}, "'blue'",
       'and the next one is told the same');
    ends_ok($id, $cold);
};


subtest 'languages that are not there, or die' => sub {
    for my $case ([ 'none', qr/no interpreter of "none" ready: this machine/ ],
                  [ 'dies', qr/no interpreter of "dies" ready: / ])
    {
        my ($name, $line) = @$case;

        $t->write_conf(http => "$HTTP    sandbox_pool coded sessions=2 "
                               . "kernels=$name,first;\n");
        $t->reload;
        pool_full(2, 'coded');
        ok(until_true(sub { $t->log_has($line) }, 20), "$name: told");
        is($t->log_has($line), 1, 'once');
        cmp_ok(metric('pool_failures_total', template => 'coded'), '>=', 2,
               'and counted');

        my $id = make(template => 'coded')->{json}{session_id};
        is(scalar(grep { m{/first/} } kernels($id)), 1,
           'the other is ready');
        ends_ok($id);
    }
};


$t->finish;
done_testing();
