#!/usr/bin/perl

# The JavaScript kernel, frame by frame: what a cell may do that a script may
# not, what it leaves to the next, and what an interrupt leaves of it.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";

use Test::More;
use SandboxTest::Kernel;

my $missing = kernel_missing('javascript');
plan(skip_all => $missing) if $missing;

my $k = kernel('javascript');
my $r;


sub shows {
    local $Test::Builder::Level = $Test::Builder::Level + 1;

    return $k->shows(@_);
}


sub file {
    my ($name, $text) = @_;

    my $path = $k->dir . "/$name";

    if ($name =~ m{^(.*)/}) {
        system('mkdir', '-p', $k->dir . "/$1");
    }

    open my $f, '>', $path or die "$path: $!";
    print $f $text;
    close $f or die "$path: $!";

    return;
}


like($k->version, qr/^v\d+\./, 'it tells its version');

# ---- values -----------------------------------------------------------------

$r = shows('6*7', '42', 'the last expression is the result');
is($r->{exit}, 0, 'exit is 0');
is($r->{error}, undef, 'there is no error');
shows('undefined', undef, 'undefined is none');
shows('var silent = 1;', undef, 'nor is a declaration');
shows('"text"', "'text'", 'values are shown as inspected');
shows('{a: 1, b: [2]}', '{ a: 1, b: [ 2 ] }', 'an object is no block');
shows('{ let inner = 3; inner }', '3', 'a block is no object');
shows('if (true) { 7 }', '7', 'a statement has its value');
shows('null', 'null', 'null is a value');
shows("#!/usr/bin/env node\n5", '5', 'a script may begin as one');
like($k->run('"\0\ud800"')->{text}, qr/^'\\x00\\ud800'$/i,
     'values that are no UTF-8 are shown');
shows('new Promise(r => setTimeout(() => r("late"), 5))', "'late'",
      'a promise is awaited');

# ---- declarations -----------------------------------------------------------

for my $what ([ 'let a = 1; const b = 2; class C { z = 3 }; a + b', '3' ],
              [ 'let a = 4; const b = 5; class C { z = 6 }; a + b', '9' ])
{
    shows(@$what, "let, const and class: $what->[1]");
}

shows('[a, b, new C().z]', '[ 4, 5, 6 ]', 'they persist');
shows('let a; a', undef, 'let without a value gives undefined');
shows('const {p, ...rest} = {p: 1, q: 2}; [p, rest]', '[ 1, { q: 2 } ]',
      'patterns are declarations too');
shows('function f() { return 1 }; f()', '1', 'a function');
shows('const f = () => 2; f()', '2', 'may become a constant');
shows('for (let i of [1]) { let hidden = i }; typeof hidden', "'undefined'",
      'what is in a block stays there');
shows('const crypto = require("crypto"); typeof crypto.createHash',
      "'function'", 'a global may be declared');
shows('export const e = 8; e', '8', 'export is of no consequence');

# ---- await ------------------------------------------------------------------

shows('await Promise.resolve(9)', '9', 'await at the top');
shows("const w = await Promise.resolve(1)\nlet v = 2\n;[w, v]", '[ 1, 2 ]',
      'declarations of a cell that awaits');
shows('[w, v]', '[ 1, 2 ]', 'persist');
shows("async function g() { return 3 }\n"
      . "for await (const z of [1, 2]) { var last = z }\nawait g() + last",
      '5', 'for await, and functions');
shows('typeof g + last', "'function2'", 'persist as well');
shows('`${await 5}`', "'5'", 'await in a template');
shows('"await x; let y"', "'await x; let y'", 'words in a string are none');

# ---- modules ----------------------------------------------------------------

file('common.js', 'module.exports = { q: 7 }');
file('esm.mjs', 'export default 5; export const one = 1, two = 2;');
file('data.json', '{"j": 1}');
file('node_modules/pkg/package.json',
     '{"exports": {"import": "./i.mjs", "require": "./r.js"}}');
file('node_modules/pkg/i.mjs', 'export default "imported"');
file('node_modules/pkg/r.js', 'module.exports = "required"');

shows('require("./common.js").q', '7', 'require finds the workspace');
shows('require("./data.json").j', '1', 'and JSON there');
shows('require("pkg")', "'required'", 'and its packages');
shows('(await import("pkg")).default', "'imported'", 'import does too');
shows('const load = async n => (await import(n)).two; await load("./esm.mjs")',
      '2', 'import in a function');
shows(qq{import d, {one as uno} from "./esm.mjs"\nimport * as all from }
      . qq{"./esm.mjs"\nimport fs from "fs"\n}
      . '[d, uno, all.two, typeof fs.readFileSync]',
      "[ 5, 1, 2, 'function' ]", 'import declarations');
shows('[d, uno]', '[ 5, 1 ]', 'and what they declare persists');
shows('require.main === module', 'true', 'a cell is the main module');
like($k->run('import.meta.url')->{text}, qr{^'file:///.*cell\.js'$},
     'import.meta is there');

$r = $k->run('import { nope } from "fs"');
is($r->{error}{name}, 'SyntaxError', 'what is not exported is an error');
like($r->{error}{value}, qr/'nope'/, 'that names it');

file('sub/common.js', 'module.exports = "of sub"');
shows('process.chdir("sub"); 1', '1', 'a directory');
shows('require("./common.js")', "'of sub'",
      'persists, and is where modules are looked for');
shows('process.chdir(".."); 1', '1', 'back');

# ---- streams ----------------------------------------------------------------

$r = $k->run('console.log("a"); console.error("b"); process.stdout.write("c");'
             . 'console.log({x: 1}); require("child_process")'
             . '.execSync("echo child", {stdio: "inherit"}); console.log("d")');
is($r->{stdout}, "a\nc{ x: 1 }\nchild\nd\n",
   'console, process.stdout and children write in order');
is($r->{stderr}, "b\n", 'console.error to the other');

$r = $k->run('for (let i = 0; i < 20000; i++) console.log("0123456789"); 1');
is(length $r->{stdout}, 220000, 'more than a pipe holds comes whole');
is($r->{exit}, 0, 'before the end');

$r = $k->run('require("child_process").spawnSync("sh", ["-c",'
             . '"echo end 0 >&3"], {stdio: ["ignore", "inherit", "ignore"]})'
             . '.status !== 0');
is($r->{text}, 'true', 'no child has descriptor 3');

# ---- rich results -----------------------------------------------------------

$r = $k->run('display({"text/html": "<b>x</b>"}); display(5); 6');
is_deeply([ map { $_->{types} } @{ $r->{results} } ],
          [ [ 'text/html' ], [ 'text/plain' ], [ 'text/plain' ] ],
          'display shows bundles and values');
is_deeply([ map { $_->{main} } @{ $r->{results} } ], [ 0, 0, 1 ],
          'the last expression is told apart');

$r = $k->run('({ [Symbol.for("Jupyter.display")]() { return {'
             . '"image/png": Buffer.from("abc"),'
             . '"application/json": {k: 1}} } })');
is($r->{main}{'image/png'}, 'YWJj', 'bytes are base64');
is($r->{main}{'application/json'}, '{"k":1}', 'JSON is text');
ok(defined $r->{text}, 'with text beside them');
is($k->run('({ toHTML() { return "<i>" } })')->{main}{'text/html'}, '<i>',
   'toHTML gives HTML');

$r = $k->run('display({"text/html": "x".repeat(17e6)}); 3');
is($r->{text}, '3', 'what no frame can hold is left out');
like($r->{stderr}, qr{text/html is too large}, 'and this is said');

# ---- errors -----------------------------------------------------------------

$r = $k->run("function thrower() {\n  throw new TypeError('in f')\n}\n"
             . 'thrower()');
my $cell = "cell-$r->{id}.js";
is($r->{exit}, 1, 'an error is exit 1');
is($r->{error}{name}, 'TypeError', 'it has a name');
is($r->{error}{value}, 'in f', 'and a message');
is($r->{error}{traceback},
   "$cell:2\n  throw new TypeError('in f')\n        ^\n\n"
   . "TypeError: in f\n    at thrower ($cell:2:9)\n    at $cell:4:1",
   'and a traceback of the cell alone');

$r = $k->run("const aw = await 1\nlet bw = 2, cw = missing.x");
like($r->{error}{traceback}, qr/^cell-\d+\.js:2\nlet bw = 2, cw = missing/,
     'one of a cell that awaits shows what was written');
like($r->{error}{traceback}, qr/:2:16$/, 'with its columns');

$r = $k->run("1;\nlet x y");
is($r->{error}{name}, 'SyntaxError', 'a syntax error');
like($r->{error}{traceback}, qr/^cell-\d+\.js:2\nlet x y\n      \^/,
     'points at its place');

is($k->run('throw "plain"')->{error}{value}, 'plain', 'anything is thrown');
is($k->run('throw null')->{error}{value}, 'null', 'null too');
is($k->run('throw { toString() { throw 1 }, get stack() { throw 2 } }')->{exit},
   1, 'an error that throws is one');
like($k->run('throw new Error("o", { cause: new Error("c") })')
     ->{error}{traceback}, qr/\[cause\]: Error: c/, 'a cause is shown');
is($k->run('function deep() { deep() }; deep()')->{error}{name}, 'RangeError',
   'endless recursion is an error');
is($k->run('({ get [Symbol.toStringTag]() { throw new Error("g") } })')
   ->{exit}, 1, 'so is a value that cannot be shown');
unlike($k->run('new Error("shown")')->{text}, qr/driver|node:/,
       'a stack that is a value has no frames of ours either');

$r = $k->run('Promise.reject(new Error("lost")); 5');
is($r->{text}, '5', 'a rejection that nobody waits for is no error');
like($r->{stderr}, qr/^Uncaught .*Error: lost/s, 'but told');

$r = $k->run('setTimeout(() => { throw new Error("later") }, 1);'
             . 'await new Promise(r => setTimeout(r, 20)); 6');
is($r->{text}, '6', 'nor does an exception of a timer end anything');
like($r->{stderr}, qr/^Uncaught .*Error: later/s, 'it is told');

$r = $k->run('process.nextTick(() => { throw new TypeError("tick"); }); 1');
is_deeply([ @{ $r->{error} }{qw(name value)} ], [ 'TypeError', 'tick' ],
          'what is thrown right after a cell is no interrupt');
is($r->{exit}, 1, 'but fails it');

# ---- between runs -----------------------------------------------------------

shows('globalThis.ticks = 0; var ticker = setInterval(() => ticks++, 1); 0', '0',
      'a timer');
shows('const seen = ticks; await new Promise(r => { const t = setInterval('
      . '() => { if (ticks > seen + 3) { clearInterval(t); r(1) } }, 1) })',
      '1', 'goes on');
$k->run('clearInterval(ticker)');

shows('process.env.OF_RUN', "'1'", 'a variable of the run', env => { OF_RUN => 1 });
shows('process.env.OF_RUN', undef, 'is gone in the next');
$k->run('process.env.OF_RUN = "own"', env => { OF_RUN => 1 });
shows('process.env.OF_RUN', "'own'", 'unless the cell has set it itself');

$r = $k->setup(env => { SET => 'up' }, cwd => $k->dir . '/sub',
               preload => [ 'os', 'not-there' ]);
is($r->{type}, 'ready', 'setup is answered');
shows('[process.env.SET, require("path").basename(process.cwd())]',
      "[ 'up', 'sub' ]", 'and has been done');

# ---- interrupts -------------------------------------------------------------

$k->interrupt for 1 .. 3;
shows('let kept = "kept"; kept', "'kept'", 'some between runs are nothing');

# What a library may do.
$k->run('process.on("SIGINT", () => process.exit(1))');

# [code, name of it]: it says that it has begun, at BEGUN.
for my $what (
    [ 'BEGUN; while (true) {}', 'a loop' ],
    [ 'for (;;) { try { BEGUN; for (;;) {} } catch {} }', 'one in try' ],
    [ 'while (true) { BEGUN }', 'one that prints' ],
    [ 'BEGUN; while (true) { display(1) }', 'one that displays' ],
    [ 'await null; BEGUN; while (true) {}', 'one after an await' ],
    [ 'BEGUN; await new Promise(() => {})', 'what waits for ever' ],
    [ 'await new Promise(r => setTimeout(r, 20)); BEGUN; while (true) {}',
      'a loop out of a timer' ],
    [ 'await new Promise(r => setTimeout(r, 20));'
      . 'BEGUN; while (true) { display(1) }', 'one that displays there' ],
    [ 'await new Promise(r => setTimeout(r, 1)); BEGUN;'
      . 'while (true) { await null }', 'one that awaits' ],
    [ 'setInterval(() => { BEGUN; while (true) {} }, 1);'
      . 'await new Promise(() => {})', 'a busy timer' ],
    [ 'setImmediate(() => { BEGUN; while (true) {} }); setImmediate(() => {});'
      . 'await new Promise(() => {})', 'one of many callbacks' ],
    [ '({ get x() { BEGUN; while (true) {} }, toHTML() { this.x } })',
      'what is shown' ],
    [ 'BEGUN; require("child_process").execSync("exec sleep 1000")',
      'a child' ],
    [ 'process.removeAllListeners("SIGINT"); BEGUN; while (true) {}',
      'a loop, again' ])
{
    my ($code, $name) = @$what;

    $code =~ s/BEGUN/console.log('begun')/;
    $k->send_run($code);
    ok($k->until_output(qr/begun/), "$name begins");
    $r = $k->interrupted;
    is($r->{error}{name}, 'KeyboardInterrupt', "$name is interrupted");
    is($r->{exit}, 130, 'with exit 130');
    shows('kept', "'kept'", 'and the state is kept');
}

# The child may have died, and its parent learnt it, before node's own thread
# has seen the signal.
my %ends;

for (1 .. 20) {
    $k->send_run('console.log("begun");'
                 . 'require("child_process").execSync("exec sleep 1000")');
    $k->until_output(qr/begun/);
    $ends{$k->interrupted->{exit}}++;
}

is_deeply(\%ends, { 130 => 20 }, 'nor is a child ever taken for a failure');

$r = $k->run('const { performance: perf } = require("perf_hooks");'
             . 'const was = perf.eventLoopUtilization();'
             . 'await new Promise(r => setTimeout(r, 300));'
             . 'perf.eventLoopUtilization(was).idle > 50');
is($r->{text}, 'true', 'and the event loop sleeps');

# What an interrupted run has left may keep the next from its beginning.
$k->send_run('const left = new Promise(r => globalThis.go = r);'
             . 'const loops = left.then(() => setTimeout(() => {'
             . 'console.log("loops"); while (true) {} }, 1)); go();'
             . 'await new Promise(() => {})', keep => 1);
$k->until_output(qr/loops/);
is($k->interrupted->{exit}, 130, 'a loop that nobody waits for');

$k->run('setTimeout(() => { console.log("behind"); while (true) {} }, 1); 1');
ok($k->until_output(qr/behind/), 'one begins between runs');
$k->send_run('kept');
$r = $k->interrupted;
ok($r->{exit} eq '0' || $r->{exit} eq '130', 'the next run ends');
shows('kept', "'kept'", 'and the state is kept');

# ---- ends -------------------------------------------------------------------

# The first that leaves something behind, in a kernel of its own.
$k = kernel('javascript');
$k->send_run('setImmediate(() => { console.log("begun"); while (true) {} });'
             . 'setImmediate(() => {}); 1');
ok($k->until_output(qr/begun/), 'a first callback loops');
is($k->interrupted->{exit}, 130, 'and is interrupted');

$r = $k->run('process.exit(4)');
is($r->{died} >> 8, 4, 'process.exit ends the kernel');

$k = kernel('javascript');
$k->hang_up;
is($k->wait_end, 0, 'so does the end of descriptor 3');

$k = kernel('javascript');
kill 'TERM', $k->pid;
is($k->wait_end & 127, 15, 'and SIGTERM');

# ---- TypeScript -------------------------------------------------------------

$k = kernel('typescript');
shows('6*7', '42', 'TypeScript may be without types');

$r = $k->run("const n: number = 5; n");

if (system('/usr/bin/node', '-e',
           'process.exit(require("module").stripTypeScriptTypes ? 0 : 1)'))
{
    like($r->{error}{value}, qr/types need node 22\.13/,
         'where node strips none this is said');

} else {
    is($r->{text}, '5', 'types are stripped');
}

done_testing();
