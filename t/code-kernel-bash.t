#!/usr/bin/perl

# The bash kernel, frame by frame: a shell that goes on from cell to cell,
# whatever ends one.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";

use Test::More;
use SandboxTest::Kernel;

my $missing = kernel_missing('bash');
plan(skip_all => $missing) if $missing;

my $k = kernel('bash');
my $r;


# Code, its output, its exit.

sub prints {
    my ($code, $out, $exit, $name, %o) = @_;

    local $Test::Builder::Level = $Test::Builder::Level + 1;

    my $got = $k->run($code, %o);

    is($got->{stdout}, $out, "$name: output")
        or diag($got->{stderr});
    is($got->{exit}, $exit, "$name: exit");

    return $got;
}


like($k->version, qr/^\d+\.\d+/, 'it tells its version');

# ---- state ------------------------------------------------------------------

$r = prints('echo hi; x=5; false', "hi\n", 1, 'a cell');
is($r->{error}, undef, 'a mere exit status is no error');
prints('echo $? $x', "1 5\n", 0, 'status and variables persist');
prints('cd /; f() { echo "f $1"; }; declare -A m=([k]=v); a=(1 "2 3")', '', 0,
       'directory, functions, arrays');
prints('pwd; f 1; echo "${m[k]}" "${a[1]}"', "/\nf 1\nv 2 3\n", 0,
       'persist');
prints('shopt -s expand_aliases; alias greet="echo hello"', '', 0, 'an alias');
prints('greet', "hello\n", 0, 'persists');
prints('set -- one two', '', 0, 'parameters');
prints('echo "$2"', "two\n", 0, 'persist');
prints("cat <<X\nhere \$x\nX", "here 5\n", 0, 'a here-document');
prints('read line; echo $?', "1\n", 0, 'read meets the end at once');
prints('printf "\0\1\377" | od -An -tx1', " 00 01 ff\n", 0, 'bytes');
prints('sleep 0.01 & wait $!; echo $?', "0\n", 0, 'jobs are waited for');
is($k->run("true\nnosuch")->{stderr},
   "bash: line 2: nosuch: command not found\n", 'lines are the cell\'s');
is($k->run('printf "\377"')->{events}[0][1], "\xff", 'output is as written');

$r = $k->run('if (');
is($r->{exit}, 2, 'a syntax error is exit 2');
like($r->{stderr}, qr/syntax error/, 'and told');

# ---- what ends a shell ends a run -------------------------------------------

for my $way ([ 'exit 3', 3 ], [ 'set -e; false; echo no', 1 ],
             [ 'set +e; g() { exit 9; }; g; echo no', 9 ],
             [ 'break', 0 ], [ 'continue', 0 ], [ 'exec nosuchprogram', 127 ],
             [ 'kill -USR1 $$', 0 ])
{
    my ($code, $exit) = @$way;

    $k->run("x='$code'");
    prints($code, '', $exit, $code);
    prints('echo "$x"; pwd; f 2; echo "${m[k]}" "${a[1]}" "$2"; greet',
           "$code\n/\nf 2\nv 2 3 two\nhello\n", 0, 'all is kept');
}

is($k->run('set -u; echo $undefined; echo no')->{stdout}, '',
   'an unset variable ends a run');
prints('set +u; echo $x', "kill -USR1 \$\$\n", 0, 'and keeps the state');
is($k->run('readonly R=1; R=2; echo no')->{exit}, 1, 'so does a constant');
prints('echo $R', "1\n", 0, 'which stays one');
prints("set -euo pipefail\nfalse | true\necho no", '', 1, 'strict mode');
prints('echo on; false; echo no', "on\n", 1, 'goes on in the next');
prints('set +euo pipefail; false; echo off', "off\n", 0, 'until it is ended');
prints('(exit 4); echo $?; x=$(exit 5); echo $?', "4\n5\n", 0,
       'subshells have their own exit');
prints('return 1', '', 2, 'return is of functions alone');
prints('shopt -s extglob; h() { [[ $1 == @(a|b) ]] && echo match; }; exit 0',
       '', 0, 'a function with patterns');
prints('h b', "match\n", 0, 'is taken over');

# ---- traps ------------------------------------------------------------------

prints('t=5; trap "echo clean \$t; exit 7" EXIT; exit 2', "clean 5\n", 7,
       'a trap on EXIT runs when exit does');
prints('trap -p; exit 1', '', 1, 'and once');
prints('trap "echo bye" EXIT; trap -p EXIT', "trap -- 'echo bye' EXIT\n", 0,
       'it is listed');
prints('(exit 1); trap - EXIT; exit 6', '', 6, 'and may be taken back');
prints('trap "echo ERR" ERR; false', "ERR\n", 1, 'a trap on ERR');
prints('false', "ERR\n", 1, 'persists');
prints('trap - ERR; trap "echo D" DEBUG; true', "D\n", 0, 'one on DEBUG');
prints('true; true', "D\nD\n", 0, 'sees the cell\'s commands alone');
prints('trap - DEBUG', "D\n", 0, 'and is taken back');
prints('i() { trap "echo R" RETURN; echo in; }; i; trap - RETURN',
       "in\nR\n", 0, 'one on RETURN');
prints('trap "echo usr" USR1; exit 0', '', 0, 'one on a signal');
prints('kill -USR1 $$', "usr\n", 0, 'outlives exit');
prints('(trap "echo sub" EXIT; exit 2); echo $?', "sub\n2\n", 0,
       'subshells have theirs');

# ---- nothing of a cell's confuses the driver --------------------------------

is($k->run('set -x; echo traced')->{stderr}, "+++ echo traced\n",
   'set -x shows the cell alone');
like($k->run('echo again; set +x')->{stderr}, qr/\A\++ echo again\n\S+ set \+x\n\z/,
     'in the next too');
prints('read() { echo r; }; printf() { echo p; }; eval() { echo e; };'
       . 'exec() { echo x; }; read; eval',
       "r\ne\n", 0, 'functions named like builtins');
prints('exit 3', '', 3, 'do no harm');
prints('printf', "p\n", 0, 'and are kept');
prints('unset -f read printf eval exec; IFS=0123456789; LC_ALL=C',
       '', 0, 'separators and locale');
prints("echo '\x{e9}'; unset IFS LC_ALL", "\x{e9}\n", 0, 'neither');
prints('shopt -s nocasematch; set -f; set -C', '', 0, 'nor options');
prints('[[ A == a ]] && echo on; set +f; set +C; shopt -u nocasematch',
       "on\n", 0, 'which persist');
prints("exec 5>'" . $k->dir . "/five'; echo 1 >&5; exit", '', 0,
       'a descriptor');
prints("echo 2 >&5; exec 5>&-; cat '" . $k->dir . "/five'", "1\n2\n", 0,
       'stays open');
prints('exec 3>&1; echo three >&3; exec 3>&-', "three\n", 0,
       'descriptor 3 is free');
prints('ls -l /proc/self/fd | grep -c socket; (sleep 0; ls -l /proc/self/fd)'
       . ' | grep -c socket; (echo end 0 >&3) 2> /dev/null || echo closed',
       "0\n0\nclosed\n", 0, 'no program of a cell has the engine\'s');

my $big = 'x' x 1000000;
prints("y=$big", '', 0, 'a megabyte of code');
prints('echo ${#y}; exit', "1000000\n", 0, 'is taken');
prints('echo ${#y}; unset y', "1000000\n", 0, 'and taken over');

# ---- variables of a run -----------------------------------------------------

prints('was=1; echo $OF_RUN; env | grep -c ^OF_RUN=; echo $was', "1\n1\n1\n",
       0, 'a variable of the run', env => { OF_RUN => 1 });
prints('echo "[$OF_RUN]"', "[]\n", 0, 'is gone in the next');
prints('echo $was', "2\n", 0, 'it covers another', env => { was => 2 });
prints('echo $was; env | grep -c ^was=', "1\n0\n", 1, 'that comes back');
prints('OF_RUN=own', '', 0, 'the cell\'s own', env => { OF_RUN => 1 });
prints('echo $OF_RUN', "own\n", 0, 'stays');
prints('exit 1', '', 1, 'exit in one', env => { GONE => 1 });
prints('echo "[$GONE]"', "[]\n", 0, 'gives it back too');

is($k->setup(env => { SET => 'up' }, cwd => $k->dir)->{type}, 'ready',
   'setup is answered');
prints('echo $SET; pwd', "up\n" . $k->dir . "\n", 0, 'and done');

# ---- interrupts -------------------------------------------------------------

$k->interrupt;
prints('kept=kept', '', 0, 'an interrupt between runs is nothing');

for my $code ('while :; do :; done', 'sleep 1000; echo no',
              'sleep 1000 | cat', '(while :; do :; done)',
              'v=$(sleep 1000)', 'j() { local l; sleep 1000; }; j')
{
    $k->send_run("echo begun; $code");
    ok($k->until_output(qr/begun/), "begun: $code");
    $r = $k->interrupted;
    is($r->{error}{name}, 'KeyboardInterrupt', 'it is interrupted');
    is($r->{exit}, 130, 'its exit is 130');
    is($r->{stdout}, "begun\n", 'and nothing of it goes on');
    prints('echo $kept $?', "kept 130\n", 0, 'the state is kept');
}

# ---- ends -------------------------------------------------------------------

$k->run('trap "echo over" EXIT');
$k->hang_up;
is($k->wait_end, 0, 'the end of descriptor 3 ends it');

$k = kernel('bash');
kill 'TERM', $k->pid;
is($k->wait_end & 127, 15, 'and SIGTERM');

$k = kernel('bash');
$r = $k->run('kill -KILL $$');
is($r->{died} & 127, 9, 'a kernel that is killed is dead');

done_testing();
