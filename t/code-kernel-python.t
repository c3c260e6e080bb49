#!/usr/bin/perl

# The Python kernel, frame by frame: what a cell does, what it leaves to the
# next, and that nothing that code does can end or confuse the kernel but its
# own death.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";

use File::Temp qw(tempdir);
use Test::More;
use SandboxTest::Kernel;

my $missing = kernel_missing('python');
plan(skip_all => $missing) if $missing;

my $k = kernel('python');
my $r;


sub with_module {
    my ($name, $tests, $code) = @_;

  SKIP: {
        skip "Python's $name is not installed", $tests
            if system("/usr/bin/python3 -c 'import $name' 2> /dev/null") != 0;
        $code->();
    }

    return;
}


sub shows {
    local $Test::Builder::Level = $Test::Builder::Level + 1;

    return $k->shows(@_);
}


sub fails {
    my ($code, $error, $value, $name) = @_;

    local $Test::Builder::Level = $Test::Builder::Level + 1;

    my $got = $k->run($code);

    is($got->{error}{name}, $error, "$name: its name");
    like($got->{error}{value}, $value, "$name: its value");
    unlike($got->{error}{traceback}, qr/\e/, "$name: no terminal codes");
    unlike($got->{error}{traceback}, qr/sandbox_kernel/,
           "$name: nothing of the kernel's own");

    return $got;
}


sub writes {
    my ($code, $text, $name, %o) = @_;

    local $Test::Builder::Level = $Test::Builder::Level + 1;

    my $got = $k->run($code, %o);

    is($got->{stdout}, $text, $name)
        or diag($got->{error} ? $got->{error}{traceback} : $got->{stderr});

    return $got;
}


sub lives {
    my ($name) = @_;

    local $Test::Builder::Level = $Test::Builder::Level + 1;

    return shows('6*7', '42', $name);
}


# ---- values ---------------------------------------------------------------

like($k->version, qr/^3\.\d+\.\d+$/, 'it tells its version when it is ready');

$r = shows('6*7', '42', 'the last expression is the result');
is($r->{exit}, '0', 'and it ends with 0');
is_deeply($r->{main}{types}, ['text/plain'], 'of one type');
is($r->{main}{main}, '1', 'which is the main one');

shows('_ + 1', '43', '_ is the result before');
shows('__, _', '(42, 43)', '__ that before it');
shows('Out[1], In[1]', "(42, '6*7')", 'In and Out have them by number');
shows('_1, _i2', "(42, '_ + 1')", 'and so have names with numbers');

is($k->run('x = 3')->{main}, undef, 'a statement has none');
is($k->run('None')->{main}, undef, 'nor has None');
is($k->run('x;')->{main}, undef, 'a semicolon keeps it back');
is($k->run("x; # this\n")->{main}, undef, 'before a comment, too');
is($k->run("(x\n);")->{main}, undef, 'and behind brackets');
shows("'a;b'", "'a;b'", 'not one within');
shows("x # ;", '3', 'nor within a comment');
is($k->run('')->{exit}, '0', 'a cell may be empty');
is($k->run("# nothing\n")->{exit}, '0', 'or a comment');
shows("y = 5\n\nif y:\n    z = y\nz", '5', 'statements, then an expression');
shows('x, y', '(3, 5)', 'names stay');
shows("  a = 1\n  a + 1", '2', 'an indented cell is as good');
shows("1 +\\\r\n1\r\n", '2', 'and so are lines that end in CR LF');
shows("_ = 7\n_", '7', '_ is a name as others once it is assigned');
shows("del _\n1", '1', 'until it is deleted');

shows('{3, 1, 2}', '{1, 2, 3}', 'sets are sorted as IPython has them');
shows('list(range(100))', join(",\n ", map { $_ ? $_ : '[0' } 0 .. 98)
      . ",\n 99]", 'what is too long for a line is on many');
shows("class A: pass\nA, A.__init__ is A.__init__", '(__main__.A, True)',
      'classes have their names');
like($k->run('A()')->{text}, qr/^<__main__\.A at 0x[0-9a-f]+>$/,
     'and objects that of their class');
shows("d = {}\nd['d'] = d\nd", "{'d': {...}}", 'a value within itself');
shows("class P:\n    def _repr_pretty_(self, p, cycle):\n"
      . "        with p.group(2, 'P(', ')'):\n            p.pretty([1])\n"
      . "[P()]", '[P([1])]', '_repr_pretty_ is asked');

with_module('IPython', 1, sub {
    my $same = <<'PY';
import io, collections, datetime, re, types
from IPython.lib.pretty import pretty as theirs
from sandbox_kernel.pretty import pretty as ours
class L(list): pass
class E(Exception): pass
class R:
    def __repr__(self): return 'first\nsecond'
def f(a, *b, c=1): return a
values = [
    1, 1.5, 'a\nb', b'\0', None, True, 10**100, 1j, ..., (1,), (), [], {},
    set(), frozenset(), {1: 'x' * 80, 2: ['y' * 50, 'z' * 50]},
    {'k%d' % i: list(range(i)) for i in range(40)}, list(range(2000)),
    [[i] * 30 for i in range(5)], L([1, 2]), E('a', 1), ValueError(),
    R(), [R(), R()], f, len, [].append, int, E, object, type, {f: int},
    collections.OrderedDict(a=1), collections.Counter('aab'),
    collections.defaultdict(list, a=[1]), collections.deque([1], 5),
    collections.namedtuple('N', 'a b')(1, 2), types.SimpleNamespace(a=1),
    re.compile(r'\d+', re.I), range(3), slice(1, 2), datetime.date(2020, 1, 1),
    frozenset([2, 1]), {'b', 'a'}, {1, 'a'}, types, int.__dict__['real'],
    ('a' * 30, 'b' * 30, 'c' * 30), {('a', 1): {'b': {'c': list('x' * 40)}}},
]
[v for v in values if theirs(v) != ours(v)]
PY
    shows($same, '[]', 'text is what IPython shows');
});

my $dir = $k->dir;
shows('import os; os.getcwd()', "'$dir'", 'it runs in the workspace');
shows("open('mod.py', 'w').write('v = 8'); import mod; mod.v", '8',
      'from which modules are imported');
shows("import sys; sys.path[0]", "''", 'before all others');
shows('__name__, sys.argv', "('__main__', [''])", 'it is the main module');
shows('"__file__" in globals()', 'False', 'without a file');
shows("if __name__ == '__main__': q = 1\nq", '1', 'so that programs run');
shows("def g(a):\n    return a\nimport inspect\ninspect.getsource(g)",
      "'def g(a):\\n    return a\\n'", 'functions have their source');
shows("import pickle\nclass B: n = 4\npickle.loads(pickle.dumps(B())).n", '4',
      'objects of a cell\'s class can be pickled');
shows("from dataclasses import dataclass\n\@dataclass\nclass D:\n    a: int\n"
      . "D(1)", 'D(a=1)', 'data classes show themselves');
shows("from __future__ import annotations\n1", '1',
      'what comes of __future__');
shows("def h(a: b): pass\nh.__annotations__", "{'a': 'b'}",
      'is there in all cells that follow');
shows('exit', 'Use exit() to end this cell', 'exit tells what it is');


# ---- output ---------------------------------------------------------------

writes('print("a"); print("b", end="")', "a\nb", 'what is printed');
$r = $k->run("import sys\nprint('out')\nprint('err', file=sys.stderr)");
is("$r->{stdout}|$r->{stderr}", "out\n|err\n", 'to two streams');
writes("for i in range(3): print(f'\\r{i}', end='')", "\r0\r1\r2",
       'as bars of progress do it');

writes(<<'PY', "1\n2\n3\n4\n5\n6", 'in order, whoever writes');
import ctypes, subprocess, sys
print(1)
ctypes.CDLL(None).printf(b'2\n')
os.write(1, b'3\n')
subprocess.run(['echo', '4'])
os.system('echo 5')
sys.stdout.buffer.write(b'6') and None
PY

$k->send_run("print('first', end='')\nimport time\n"
             . "while not os.path.exists('go'): time.sleep(0.01)\nprint(2)");
ok($k->until_output(qr/first/), 'a half line comes while its cell runs');
open my $go, '>', "$dir/go" or die $!;
$r = $k->finish;
is($r->{stdout}, "first2\n", 'and the rest later');

writes('print("\ud800\x00é😀")', "\\ud800\0\x{e9}\x{1f600}\n",
       'nothing that is printed is an error');
is(length $k->run('print("x" * 5_000_000)')->{stdout}, 5_000_001,
   'much output at once');

$r = $k->run("import warnings\nwarnings.warn('careful')");
like($r->{stderr}, qr/^<cell \d+>:2: UserWarning: careful\n.*warn\(/,
     'warnings are told with their line');
like($k->run("import warnings\nwarnings.warn('careful')")->{stderr},
     qr/careful/, 'and once more in the next cell');
like($k->run("import logging\nlogging.warning('hm')")->{stderr},
     qr/WARNING:root:hm/, 'logging writes');

$r = fails('input("name? ")', 'EOFError', qr/EOF when reading a line/,
           'input()');
is($r->{stdout}, 'name? ', 'after its question');
is($k->run('sys.stdin.read()')->{text}, "''", 'nothing is on standard input');


# ---- what code does to its streams -----------------------------------------

is($k->run("import io\nsys.stdout = io.StringIO()\nprint('lost')\n"
           . "sys.stdout = sys.__stdout__\nprint('seen')")->{stdout},
   "seen\n", 'standard output can be replaced');
$k->run('sys.stdout = None; sys.stderr = None');
is($k->run('1/0')->{error}{name}, 'ZeroDivisionError',
   'it runs without streams');
$k->run('sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__');
$k->run('sys.stdout.close()');
writes('print(1)', "1\n", 'one that was closed is open in the next cell');
$k->run('os.close(0); os.close(1); os.close(2)');
$r = $k->run("print(1)\nprint(2, file=sys.stderr)");
is("$r->{stdout}$r->{stderr}", "1\n2\n", 'and so are closed descriptors');
is($k->run("os.dup2(os.open('f', os.O_CREAT | os.O_WRONLY), 1)\n"
           . "print('to a file')")->{exit}, '0', 'they can be redirected');
is($k->run("os.dup2(2, 1); print('back')")->{stderr}, "back\n",
   'and stay so');
$k->run('sys.stdout = 5');
is($k->run("6*7")->{text}, '42', 'or are no streams at all');
is($k->run("os.mkdir('gone'); os.chdir('gone'); os.rmdir('../gone')\n1/0")
   ->{error}{name}, 'ZeroDivisionError', 'it runs where no directory is');

$k = kernel('python', dir => $dir);
$k->run('import os, sys, time, subprocess, threading, signal');


# ---- errors ---------------------------------------------------------------

$r = fails("def f(n):\n    a = 1\n    return a / n\n\nf(0)",
           'ZeroDivisionError', qr/^division by zero$/, 'an error');
is($r->{exit}, '1', 'it ends with 1');
like($r->{error}{traceback},
     qr/^-{75}\nZeroDivisionError[ ]+Traceback[ ]\(most[ ]recent[ ].*\)\n
        Cell[ ]In\[2\],[ ]line[ ]5\n
        [ ]{6}3[ ]{5}return[ ]a[ ]\/[ ]n\n[ ]{6}4\n---->[ ]5[ ]f\(0\)\n\n
        Cell[ ]In\[2\],[ ]line[ ]3,[ ]in[ ]f\(n\)\n
        [ ]{6}1[ ]def[ ]f\(n\):\n[ ]{6}2[ ]{5}a[ ]=[ ]1\n
        ---->[ ]3[ ]{5}return[ ]a[ ]\/[ ]n\n[ ]{6}4\n[ ]{6}5[ ]f\(0\)\n\n
        ZeroDivisionError:[ ]division[ ]by[ ]zero$/x,
     'the traceback points at the cell and its lines');
is($k->run('1')->{error}, undef, 'the next cell has none');
like($k->run('f(0)')->{error}{traceback},
     qr/Cell In\[4\], line 1\n.*Cell In\[2\], line 3, in f/s,
     'frames are of the cells that they are in');

$r = fails("x = 1\ny = (1 +* 2)\n", 'SyntaxError', qr/invalid syntax/,
           'a syntax error');
like($r->{error}{traceback},
     qr/^  Cell In\[5\], line 2\n    y = \(1 \+\* 2\)\n            \^\nSynt/,
     'is pointed at');
fails("def f():\nx", 'IndentationError', qr/expected an indented block/,
      'an indentation error');
fails("\x{1}", 'SyntaxError', qr/./, 'a control character');

$r = fails("try:\n    1/0\nexcept Exception as e:\n    raise KeyError('k') "
           . "from e", 'KeyError', qr/^'k'$/, 'one error of another');
like($r->{error}{traceback}, qr/ZeroDivisionError:[ ]division[ ]by[ ]zero\n\n
     The[ ]above[ ]exception[ ]was[ ]the[ ]direct[ ]cause.*KeyError:[ ]'k'$/sx,
     'both are told');
$r = $k->run("try:\n    1/0\nexcept Exception:\n    nosuch");
like($r->{error}{traceback}, qr/During handling.*NameError: name 'nosuch'/s,
     'and so are those while another was handled');

fails("import json\njson.loads('{')", 'JSONDecodeError', qr/Expecting/,
      'one in a library');
like($k->run("json.loads('{')")->{error}{traceback},
     qr{File .*/json/decoder\.py:\d+, in (?:JSONDecoder\.)?\w+\(},
     'is shown with its file, line and function');
$r = $k->run("open('broken.py', 'w').write('def :') and None\n"
             . "import broken");
like($r->{error}{traceback}, qr/File .*broken\.py:1\n    def :\n.*\^/s,
     'a syntax error in a module has its line');

$r = fails('raise BaseException("b")', 'BaseException', qr/^b$/,
           'what is no Exception');
$r = fails('sys.exit("bye")', 'SystemExit', qr/^bye$/, 'sys.exit()');
is($r->{exit}, '1', 'with a text ends with 1');
is($k->run('sys.exit(3)')->{exit}, '3', 'with a number with that');
is($k->run('exit(4)')->{exit}, '4', 'exit() does the same');
is($k->run('exit()')->{exit}, '0', 'and the kernel lives');
is($k->run('input()')->{error}{name}, 'EOFError', 'with its input');

$r = fails("def r(n): return r(n + 1)\nr(0)", 'RecursionError',
           qr/maximum recursion depth/, 'recursion without end');
like($r->{error}{traceback}, qr/skipping similar frames.*\(\d+ times\)/,
     'is told once');
cmp_ok(length $r->{error}{traceback}, '<', 5000, 'briefly');
fails("a = []\na.append(a)\nx = a\nfor i in range(100000): x = [x]\nx",
      'RecursionError', qr/recursion/, 'a value that is too deep');
fails("class S(Exception):\n    def __str__(self): raise ValueError\n"
      . "raise S()", 'S', qr/failed/, 'an error that has no text');
fails("class T:\n    def __repr__(self): raise ValueError('no')\nT()",
      'ValueError', qr/^no$/, 'a value that has none');
fails("class M(type):\n    __name__ = property(lambda s: 1/0)\n"
      . "class N(Exception, metaclass=M): pass\nraise N()", 'N', qr/^$/,
      'an error of which the name is a trap');
fails("bytearray(1 << 62)", 'MemoryError', qr/^$/, 'no memory');
$r = $k->run("e = ValueError('v')\ne.add_note('a note') if "
             . "hasattr(e, 'add_note') else None\nraise e");
like($r->{error}{traceback}, qr/ValueError: v(\na note)?$/, 'notes');
fails("raise ValueError('x' * 10_000_000)", 'ValueError',
      qr/^x+\n\[\.\.\. \d+ characters \.\.\.\]\nx+$/, 'a huge error');
fails("raise ValueError('\\ud800\\0')", 'ValueError', qr/^\\ud800\\x00$/,
      'one that is no text');

SKIP: {
    skip 'groups of exceptions came with Python 3.11', 1
        if $k->run('sys.version_info >= (3, 11)')->{text} ne 'True';

    like($k->run("raise ExceptionGroup('g', [ValueError('a'), "
                 . "TypeError('b')])")->{error}{traceback},
         qr/ExceptionGroup: g.*ValueError: a.*TypeError: b/s, 'a group');
}

$r = $k->run("def t(): raise ValueError('in a thread')\n"
             . "th = threading.Thread(target=t); th.start(); th.join()");
like($r->{stderr}, qr/ValueError: in a thread/, 'a thread\'s is printed');
is($r->{error}, undef, 'and is not the cell\'s');
is($k->run("th = threading.Thread(target=exit); th.start(); th.join(); 5")
   ->{text}, '5', 'exit() in a thread ends the thread');
lives('after all of these it lives');


# ---- frames ---------------------------------------------------------------

is(length $k->run('"x" * 3_000_000')->{text}, 3_000_002, 'a large result');
$r = $k->run('"x" * 20_000_000');
like($r->{text}, qr/^<text\/plain of \d+ bytes: too large/,
     'one too large for a frame is dropped and told of');
shows('"\ud800", "\0"', q{('\ud800', '\x00')}, 'text that is no text');
shows("class Z:\n    def __repr__(self): return 'a\\0\\ud800b'\nZ()",
      'a\x00\ud800b', 'not even repr() can break a frame');
$r = $k->run('x = """' . ('y' x 1_000_000) . '"""; len(x)');
is($r->{text}, '1000000', 'much code');
shows("'\x{e9}\x{4e2d}\x{1f600}'", "'\x{e9}\x{4e2d}\x{1f600}'", 'any script');

writes("pid = os.fork()\nif pid == 0:\n    display('child'); 1\n    6*7\n"
       . "else:\n    os.waitpid(pid, 0); print('parent')", "'child'\nparent\n",
       'a fork says nothing on the channel');
$r = $k->run("pid = os.fork()\nif pid == 0: raise ValueError('c')\n"
             . "os.waitpid(pid, 0)[1]");
is($r->{text}, '256', 'one that fails ends');
like($r->{stderr}, qr/ValueError: c/, 'and tells on standard error');
shows("import multiprocessing\ndef sq(n): return n * n\n"
      . "with multiprocessing.Pool(2) as p: r = p.map(sq, [1, 2, 3])\nr",
      '[1, 4, 9]', 'multiprocessing works on functions of cells');
shows("from concurrent.futures import ProcessPoolExecutor\n"
      . "with ProcessPoolExecutor(2) as p: r = list(p.map(sq, [4]))\nr",
      '[16]', 'and so do its executors');
shows("import json\nwith multiprocessing.get_context('spawn').Pool(1) as p:\n"
      . "    r = p.map(json.dumps, [[1]])\nr", "['[1]']", 'new ones too');
is($k->run("subprocess.run(['ls', '/proc/self/fd'], capture_output=True)"
           . ".stdout.split()")->{text}, "[b'0', b'1', b'2', b'3']",
   'a child has no descriptor of the kernel\'s');
is($k->run("[os.readlink(f'/proc/self/fd/{i}')[:6] for i in (3, 4) "
           . "if os.path.exists(f'/proc/self/fd/{i}')]")->{text} =~ /socket/,
   '', 'the channel is not where code would look');

$k->run(<<'PY');
def late():
    ev.wait()
    print('late')
    display('late')
ev = threading.Event()
th = threading.Thread(target=late)
th.start()
PY
$k->run("import atexit\nthreading.Timer(0, ev.set).start()\nNone");
$r = $k->run('th.join()');
lives('a thread that goes on after its cell does no harm');


# ---- environment ------------------------------------------------------------

shows("os.environ['ONE'], os.getenv('TWO')", "('1', '2')",
      'a run has variables of its own', env => { ONE => 1, TWO => 2 });
shows("os.getenv('ONE'), os.getenv('TWO')", '(None, None)',
      'which are gone in the next');
writes("subprocess.run(['sh', '-c', 'echo \$ONE'])\nNone", "1\n",
       'its children have them', env => { ONE => 1 });
$k->run("os.environ['MINE'] = 'a'; os.environ['ONE'] = 'set'",
        env => { ONE => 1 });
shows("os.environ['MINE'], os.environ['ONE']", "('a', 'set')",
      'what the cell sets itself stays');
$k->run('1', env => { MINE => 'b' });
shows("os.environ['MINE']", "'a'", 'and comes back after a run without it');

# Where modules are looked for is one of them.

$k->run('import sys; before = list(sys.path)');
shows("sys.path[1:3]", "['/one', '/two']",
      'a run looks for modules of its own', env => { PYTHONPATH => '/one:/two' });
shows('sys.path == before, os.getenv("PYTHONPATH")', '(True, None)',
      'and the next one does not');
$k->run("os.environ['PYTHONPATH'] = '/mine'");
$k->run('1', env => { PYTHONPATH => '/one' });
shows('sys.path[1], "/one" in sys.path', "('/mine', False)",
      'which the context gets back');
$k->run("del os.environ['PYTHONPATH']; sys.path[:] = before");
$k->run("del os.environ['MINE']", env => { MINE => 'b' });
shows("'MINE' in os.environ", 'False', 'unless the cell deletes it');
shows("os.environ['E']", "'a=b'", 'a value may have a "="',
      env => { E => 'a=b' });
shows("time.localtime(0).tm_hour", '9', 'the zone is known at once',
      env => { TZ => 'JST-9' });
shows("time.localtime(0).tm_hour", '0', 'and that it is no more');


# ---- packages ---------------------------------------------------------------

my $site = $k->run('import site; site.getusersitepackages()')->{text} // '';
$site =~ s/'//g;
BAIL_OUT("user's packages are not in the workspace: $site")
    if index($site, "$dir/") != 0;
ok(!-e $site, 'where nothing was installed');
is(system("mkdir -p $site && echo 'v = 1' > $site/fresh_one.py"), 0,
   'a package comes');
shows('import fresh_one; fresh_one.v', '1', 'and is there at once');
fails('import fresh_two', 'ModuleNotFoundError', qr/fresh_two/, 'another');
is(system("echo 'v = 2' > $site/fresh_two.py; mkdir $dir/apart;"
          . "echo 'v = 3' > $dir/apart/fresh_three.py;"
          . "echo $dir/apart > $site/apart.pth"), 0, 'comes, too');
shows('import fresh_two, fresh_three; fresh_two.v + fresh_three.v', '5',
      'it is there, with what .pth files name');

my $other = kernel('python', dir => $dir);
is($other->run('import fresh_three; fresh_three.v')->{text}, '3',
   'a new kernel has them all');
is($other->run("open('traceback.py', 'w').write('1/0') and None\n"
               . "open('linecache.py', 'w').write('1/0') and None\n"
               . "open('tokenize.py', 'w').write('1/0') and None\n"
               . "import json; json.loads('')")->{error}{name},
   'JSONDecodeError', 'files of the workspace take nothing from the kernel');
unlink map { "$dir/$_.py" } qw(traceback linecache tokenize);
$other->stop;


# ---- setup ------------------------------------------------------------------

my $warm = kernel('python');
my $elsewhere = tempdir('sbxXXXXXX', TMPDIR => 1, CLEANUP => 1);
$r = $warm->setup(env => { LATER => 'x', HOME => $elsewhere },
                  cwd => $elsewhere, preload => [qw(json nosuch fractions)]);
is($r->{type}, 'ready', 'a kernel that is set up is ready again');
$r = $warm->run("import os, sys\nos.environ['LATER'], os.getcwd(), "
                . "'fractions' in sys.modules");
is($r->{text}, "('x', '$elsewhere', True)",
   'with its variables, its directory and its modules');
is($r->{stdout} . $r->{stderr}, '', 'nothing is said of what failed');
is($warm->run('json')->{error}{name}, 'NameError',
   'what is imported ahead is no name of a cell');
$warm->stop;


# ---- await ------------------------------------------------------------------

shows("import asyncio\nasync def w(v):\n    await asyncio.sleep(0)\n"
      . "    return v\nawait w(5)", '5', 'await at the top of a cell');
shows("a = await w(1)\nb = [await w(i) for i in range(3)]\na, b",
      '(1, [0, 1, 2])', 'as a statement, too');
shows(<<'PY', '[0, 1]', 'async for and async with');
class C:
    async def __aenter__(self): return 'c'
    async def __aexit__(self, *a): pass
async def gen():
    for i in range(2): yield i
out = []
async with C() as c:
    async for i in gen(): out.append(i)
out
PY
shows("loop = asyncio.get_running_loop()\nawait w(0)\n"
      . "loop is asyncio.get_running_loop()", 'True', 'in one event loop');
shows("await w(0)\nloop is asyncio.get_running_loop()", 'True',
      'which is kept from cell to cell');
$k->run("async def bg():\n    await asyncio.sleep(0.01)\n    print('bg')\n"
        . "task = asyncio.create_task(bg())\nawait w(0)");
$k->until_output(qr/bg/);
is($k->run('task.done()')->{text}, 'True', 'tasks go on between cells');
shows('asyncio.run(w(7))', '7', 'asyncio.run() works in a cell without await');
shows('await w(8)', '8', 'and await after it');
fails("async def bad(): raise ValueError('a')\nawait bad()", 'ValueError',
      qr/^a$/, 'an error in what is awaited');
like($k->run('await bad()')->{error}{traceback},
     qr/line 1\n----> 1 await bad\(\)\n.*, in bad\(\)\n/s, 'is pointed at');


# ---- interrupts -------------------------------------------------------------

for (["while True: pass", 'a loop'],
     ["time.sleep(1000)", 'a sleep'],
     ["subprocess.run(['sleep', '1000'])", 'a child'],
     ["await asyncio.sleep(1000)", 'an await'],
     ["t = threading.Thread(target=time.sleep, args=(1000,), daemon=True)\n"
      . "t.start(); t.join()", 'a join of a thread'],
     ["class I:\n    def __repr__(self):\n        while True: pass\n"
      . "print('go')\nI()", 'a repr() without end'])
{
    my ($code, $what) = @$_;

    $k->send_run("kept = '$what'\nprint('go')\n$code");
    ok($k->until_output(qr/go\n/), "$what goes on");
    $r = $k->interrupted;
    is($r->{error}{name}, 'KeyboardInterrupt', "an interrupt ends $what");
    is($r->{exit}, '130', 'with 130');
    shows('kept', "'$what'", 'and the state is kept');
}

like($k->run("async def long():\n    try: await asyncio.sleep(1000)\n"
             . "    finally: print('cleaned')\nimport os, signal\n"
             . "asyncio.get_event_loop_policy().get_event_loop().call_later("
             . "0.01, os.kill, os.getpid(), signal.SIGINT)\n"
             . "await long()")->{stdout},
     qr/cleaned/, 'what was awaited cleans up');

$k->send_run("try:\n    print('go')\n    time.sleep(1000)\n"
             . "except KeyboardInterrupt:\n    print('caught')\n9");
$k->until_output(qr/go\n/);
$r = $k->interrupted;
is("$r->{stdout}$r->{text}", "go\ncaught\n9", 'code can catch it');

$k->send_run("signal.signal(signal.SIGINT, lambda *a: print('mine'))\n"
             . "print('go')\nsignal.pause()\n1");
$k->until_output(qr/go/);
$r = $k->interrupted;
like($r->{stdout}, qr/mine/, 'or have a handler of its own');

for (1 .. 200) {
    $k->interrupt;
    $r = $k->run('1+1') if $_ % 10 == 0;
}
lives('signals between runs change nothing');

$k->run("def late(*a): raise TimeoutError('late')\n"
        . "signal.signal(signal.SIGALRM, late)\nNone");
kill 'ALRM', $k->pid;
fails('1', 'TimeoutError', qr/^late$/, 'what a handler raises between runs');
shows("signal.getsignal(signal.SIGALRM) is late", 'True', 'which it keeps');
$k->run("signal.signal(signal.SIGALRM, signal.SIG_DFL)");

my $broken = 0;

for (1 .. 60) {
    $k->send_run("for i in range(30): display('x' * 3000)\nprint('done')\n5");
    $k->pump(0.0001 * ($_ % 20));
    $r = $k->interrupted;
    $broken++ if defined $r->{died};
}
is($broken, 0, 'and none breaks a frame, wherever it comes');
lives('after all of these it lives');


# ---- its end ----------------------------------------------------------------

my %deaths = (
    'os._exit(7)' => [ 7 << 8, 'os._exit()' ],
    'import ctypes; ctypes.string_at(0)' => [ 11, 'a segmentation fault' ],
    'import os; os.kill(os.getpid(), 9)' => [ 9, 'SIGKILL' ],
    'import os; os.kill(os.getpid(), 15)' => [ 15, 'SIGTERM' ],
);

for my $code (sort keys %deaths) {
    my ($status, $what) = @{ $deaths{$code} };
    my $one = kernel('python', limits => 'ulimit -c 0');

    $r = $one->run("import os\n$code");
    is($r->{exit}, undef, "$what: there is no end");
    is($r->{died} & ~128, $status, 'but that of the kernel');
    $one->stop;
}

my $left = kernel('python');
$left->run("import threading, time, atexit\natexit.register(print, 'bye')\n"
           . "threading.Thread(target=time.sleep, args=(1000,)).start()");
$left->hang_up;
is($left->wait_end, 0, 'it ends when nobody listens, whatever threads it has');
$left->stop;

my $small = kernel('python', limits => 'ulimit -v 400000');
is($small->run("x = []\nwhile True: x.append(bytearray(10_000_000))")
   ->{error}{name}, 'MemoryError', 'without memory it tells');
is($small->run("del x\n1")->{text}, '1', 'and lives');
$small->stop;

my $few = kernel('python', limits => 'ulimit -n 32');
is($few->run('f = [open("/dev/null") for i in range(99)]')->{error}{name},
   'OSError', 'without descriptors it tells');
is($few->run('1/0')->{error}{name}, 'ZeroDivisionError', 'and lives');
$few->stop;

done_testing();
