#!/usr/bin/perl

# What a cell of the Python kernel shows, and the pieces of IPython that come
# when a cell needs them.

use strict;
use warnings;
use utf8;

use FindBin;
use lib "$FindBin::Bin/lib";

use File::Temp qw(tempdir);
use JSON::PP ();
use MIME::Base64 qw(decode_base64);
use Test::More;
use SandboxTest::Kernel;

my $missing = kernel_missing('python');
plan(skip_all => $missing) if $missing;

my $FIGURE = 'text/plain image/png application/vnd.sandbox.chart+json';
my $PNG = "\x89PNG\r\n\x1a\n";
my ($k, $r);


sub has {
    my ($name) = @_;

    return system("/usr/bin/python3 -c 'import $name' 2> /dev/null") == 0;
}


sub shows {
    local $Test::Builder::Level = $Test::Builder::Level + 1;

    return $k->shows(@_);
}


# The results of a run: their types, and of one type their values.

sub types {
    my ($got) = @_;

    diag($got->{error}{traceback}) if $got->{error};
    diag($got->{stderr}) if $got->{stderr};

    return [ map { join ' ', @{ $_->{types} } } @{ $got->{results} } ];
}


sub values_of {
    my ($got, $type) = @_;

    return [ map { $_->{$type} } grep { defined $_->{$type} }
             @{ $got->{results} } ];
}


# ---- without IPython ------------------------------------------------------

my $blocked = tempdir('sbxXXXXXX', TMPDIR => 1, CLEANUP => 1);
mkdir "$blocked/IPython" or die $!;
open my $f, '>', "$blocked/IPython/__init__.py" or die $!;
print $f "raise ImportError('not here')\n";
close $f;

$k = kernel('python', env => { PYTHONPATH => $blocked });

shows('6*7', '42', 'without IPython a cell runs');
$r = $k->run(<<'PY');
class Rich:
    def _repr_html_(self): return '<b>é</b>'
    def _repr_markdown_(self): return '# m'
    def _repr_svg_(self): return '<svg/>'
    def _repr_png_(self): return b'\x89PNG'
    def _repr_pdf_(self): return b'%PDF'
    def _repr_jpeg_(self): return b'\xff\xd8'
    def _repr_latex_(self): return '$x$'
    def _repr_json_(self): return {'a': [1, float('nan'), 'é']}
    def _repr_javascript_(self): return 'f()'
    def __repr__(self): return 'rich'
Rich()
PY
is_deeply($r->{main}{types},
          [qw(text/plain text/html text/markdown image/svg+xml image/png
              application/pdf image/jpeg text/latex application/json
              application/javascript)], 'a value is shown in all its ways');
is($r->{text}, 'rich', 'as text');
is($r->{main}{'text/html'}, '<b>é</b>', 'as HTML');
is(decode_base64($r->{main}{'image/png'}), "\x89PNG", 'as an image in base64');
is(decode_base64($r->{main}{'application/pdf'}), '%PDF', 'as a PDF');
is($r->{main}{'application/json'}, '{"a": [1, null, "é"]}', 'as JSON');

$r = $k->run("display(1)\nprint('between')\ndisplay(Rich(), 'two')\n3");
is(scalar @{ $r->{results} }, 4, 'display() shows what it is given');
is_deeply([ map { $_->{'text/plain'} } @{ $r->{results} } ],
          [ '1', 'rich', "'two'", '3' ], 'in order');
is_deeply([ map { $_->{main} } @{ $r->{results} } ], [ 0, 0, 0, 1 ],
          'of which none is the main result');

$r = $k->run("display({'text/plain': 'p', 'application/x-own': 'o', "
             . "'application/vnd.a+json': {'b': 1}, 'image/png': b'i', "
             . "'bad name': 1, 'id': 5, 'text/none': None}, raw=True)");
is_deeply(types($r), [ 'text/plain application/x-own application/vnd.a+json '
                       . 'image/png' ], 'MIME types of its own');
is($r->{results}[0]{'application/vnd.a+json'}, '{"b": 1}', 'JSON is text');

$r = $k->run("class B:\n    def _repr_mimebundle_(self, include=None, "
             . "exclude=None):\n        return {'a/b': 'c', 'text/html': 'h'},"
             . " {'a/b': {}}\n    def _repr_html_(self): return 'no'\nB()");
is($r->{main}{'a/b'}, 'c', 'a bundle of them');
is($r->{main}{'text/html'}, 'h', 'comes before the methods');

$r = $k->run("class D:\n    def _ipython_display_(self): display('shown')\n"
             . "D()");
is_deeply(values_of($r, 'text/plain'), ["'shown'"],
          'a value that shows itself');

$r = $k->run("class F:\n    def __repr__(self): return 'f'\n"
             . "    def _repr_html_(self): raise ValueError('broken')\nF()");
is("@{ $r->{main}{types} }", 'text/plain', 'a way that fails is left out');
like($r->{stderr}, qr/ValueError: broken/, 'and told of');
is($r->{error}, undef, 'but is no error');
shows("class G:\n    def __getattr__(self, name): return lambda *a: 'x'\n"
      . "    def __repr__(self): return 'g'\nG()", 'g',
      'a value that has every attribute');
is("@{ $k->run('Rich')->{main}{types} }", 'text/plain',
   'a class has no such ways');

$r = $k->run("display({'image/png': b'x' * 15_000_000, 'text/plain': 'p', "
             . "'text/html': 'h'}, raw=True)");
is_deeply(types($r), ['text/plain text/html'],
          'what is too large is left out');
$r = $k->run("display({'image/png': b'x' * 15_000_000}, raw=True)");
like($r->{results}[0]{'text/plain'}, qr/<image\/png of \d+ bytes: too large/,
     'and told of where nothing else is');

for my $code ('%time 1', '!echo 1', "%%bash\necho 1", 'len?', 'x = !echo') {
    my ($first) = split /\n/, $code;
    $r = $k->run($code);
    is($r->{error}{name}, 'UsageError', "$first is an error");
    like($r->{error}{value}, qr/need IPython, which is not installed/,
         'that says what is missing');
}
is($k->run('get_ipython().ast_node_interactivity')->{error}{name},
   'AttributeError', 'and so is the shell');
shows('5 %2', '1', 'Python is still Python');
$k->stop;

$k = kernel('python');
is($k->run("1/0\n")->{error}{name}, 'ZeroDivisionError', 'a cell');
shows("display(1); class_ = 1\n[[1], {2}]", '[[1], {2}]', 'and another');
shows("import sys; [m for m in ('IPython', 'matplotlib', 'asyncio', 'json') "
      . "if m in sys.modules]", '[]', 'do not pay for what they do not use');


# ---- IPython --------------------------------------------------------------

SKIP: {
    skip 'IPython is not installed', 1 if !has('IPython');

    $r = $k->run(<<'PY');
from IPython.display import (display, HTML, Markdown, SVG, Image, Latex, JSON,
                             Javascript, clear_output, update_display)
display(HTML('<i>h</i>'), Markdown('*m*'), SVG(data='<svg></svg>'),
        Latex('$x$'), JSON({'a': 1}), Javascript('f()'))
display(Image(data=b'\x89PNG\r\n\x1a\n' + b'0' * 24, format='png'),
        Image(data=b'\xff\xd8\xff', format='jpeg'))
HTML('last')
PY
    is_deeply([ map { (grep { $_ ne 'text/plain' } @{ $_->{types} })[0] }
                @{ $r->{results} } ],
              [qw(text/html text/markdown image/svg+xml text/latex
                  application/json application/javascript image/png
                  image/jpeg text/html)], 'IPython\'s objects, in order');
    is($r->{main}{'text/html'}, 'last', 'the last one is the main one');
    like(decode_base64($r->{results}[6]{'image/png'}), qr/^$PNG/, 'an image');

    is($k->run("clear_output(); clear_output(wait=True)")->{exit}, '0',
       'clear_output() does no harm');
    $r = $k->run("h = display('a', display_id='one')\nh.update('b')\n"
                 . "update_display('c', display_id='one')");
    is_deeply(values_of($r, 'text/plain'), [ "'a'", "'b'", "'c'" ],
              'what is updated is shown again');

    $r = $k->run("print(1)\n!echo 2; echo 3 >&2\nprint(4)");
    is("$r->{stdout}$r->{stderr}", "1\n2\n4\n3\n", '!command writes in order');
    shows("x = !echo a; echo b\nx", "['a', 'b']", 'or gives its lines');
    shows("name = 'n'\nx = !echo {name} \$name\nx[0]", "'n n'",
          'with the names of cells');
    shows("!exit 3\n_exit_code", '3', 'its exit status is known');
    $r = $k->run("%%bash\nfor i in 1 2; do echo \$i; done\necho e >&2");
    is("$r->{stdout}$r->{stderr}", "1\n2\ne\n", '%%bash');
    $r = $k->run("%%bash\nexit 5");
    is($r->{error}{name}, 'CalledProcessError', 'and where it fails');
    like($r->{error}{value}, qr/exit status 5/, 'its status');
    like($k->run("%%sh\necho \$0")->{stdout}, qr/sh/, '%%sh');
    is($k->run("%%script cat -\nas it is")->{stdout}, "as it is\n",
       '%%script');
    is($k->run("%%bash --out o\necho kept")->{stdout}, '', 'with options');
    shows('o', "'kept\\n'", 'into a name');

    like($k->run('%timeit -n 2 -r 2 pass')->{stdout},
         qr/per loop \(mean .* of 2 runs, 2 loops each\)/, '%timeit');
    $r = $k->run("%time 6*7");
    is($r->{text}, '42', '%time has a result');
    like($r->{stdout}, qr/Wall time:/, 'and tells the time');
    $r = $k->run("%%time\na = 3\na");
    is($r->{text}, '3', 'and so has %%time');
    $k->run('%env SOME=value');
    shows("import os; os.environ['SOME']", "'value'", '%env');
    my $dir = $k->dir;
    $k->run("os.mkdir('sub')\n%cd -q sub");
    shows('os.getcwd()', "'$dir/sub'", '%cd');
    $k->run('cd -q ..');
    shows('os.getcwd()', "'$dir'", 'cd');
    shows('pwd', "'$dir'", 'pwd');
    like($k->run('ls -d sub')->{stdout}, qr{^sub/?\s}, 'ls -d sub');
    is($k->run("%%writefile a.txt\nin a file\n")->{exit}, '0', '%%writefile');
    is($k->run('!cat a.txt')->{stdout}, "in a file\n", 'writes');
    is($k->run("%matplotlib inline\n5")->{text}, '5', '%matplotlib inline')
        if has('matplotlib');
    like($k->run('len?')->{stdout}, qr/Return the number of items/, 'len?');
    like($k->run("def f():\n    'doc of f'\n    return 1\nf??")->{stdout},
         qr/return 1/, 'f??');
    is($k->run("%load_ext autoreload\n%autoreload 2\n1")->{exit}, '0',
       '%load_ext');
    $r = $k->run('%nosuch');
    is($r->{error}{name}, 'UsageError', 'a magic that is none');
    is($r->{error}{traceback},
       'UsageError: Line magic function `%nosuch` not found.', 'is told of');
    shows(">>> 1 + 1", '2', 'a prompt that was copied');
    is($k->run("x = (1 +")->{error}{name}, 'SyntaxError', 'what is no Python');
    shows("In[-1], Out is _oh", q{('In[-1], Out is _oh', True)},
          'In and Out are the same');
    shows('%precision 3', "'%.3f'", '%precision');
    shows('3.14159', '3.142', 'is kept to');
    $k->run('%precision %r');
    $k->run("from IPython import get_ipython as g\n"
            . "g().display_formatter.formatters['text/html'].for_type("
            . "int, lambda n: f'<n>{n}</n>')");
    is($k->run('8')->{main}{'text/html'}, '<n>8</n>',
       'a formatter that a cell registers');
    shows('x = get_ipython().run_cell("1 + 1"); x.result', '2', 'run_cell()');
    $r = $k->run("%%capture c\nprint('in'); display(1)");
    is($r->{stdout} . @{ $r->{results} }, '0', '%%capture keeps it back');
    shows("c.stdout, len(c.outputs)", "('in\\n', 1)", 'and has it');
    shows("%reset -f\nIn[-1][:6], Out", q{('%reset', {})}, '%reset');
    is($k->run('%who_ls')->{text}, '[]',
       'names of the kernel are no names of cells');

    $k->send_run("print('go')\n!sleep 1000\nprint('never')");
    ok($k->until_output(qr/go\n/), 'a command');
    $r = $k->interrupted;
    is($r->{error}{name}, 'KeyboardInterrupt', 'ends by an interrupt');
    is("$r->{exit}$r->{stdout}", "130go\n", 'with its cell');
    $k->send_run("%%bash\necho go\nsleep 1000");
    ok($k->until_output(qr/go/), 'a script');
    is($k->interrupted->{error}{name}, 'KeyboardInterrupt', 'ends so, too');

  SKIP: {
        skip 'pip is not installed', 4 if !has('pip');

        $k->run(<<'PY');
import zipfile
with zipfile.ZipFile('tiny_one-1.0-py3-none-any.whl', 'w') as z:
    z.writestr('tiny_one.py', 'v = 5\n')
    at = 'tiny_one-1.0.dist-info/'
    z.writestr(at + 'METADATA', 'Metadata-Version: 2.1\nName: tiny-one\n'
                                'Version: 1.0\n')
    z.writestr(at + 'WHEEL', 'Wheel-Version: 1.0\nGenerator: t\n'
                             'Root-Is-Purelib: true\nTag: py3-none-any\n')
    z.writestr(at + 'RECORD', '')
PY
        $r = $k->run("%pip install --user --no-index ./tiny_one-1.0-py3-none-"
                     . "any.whl\nimport tiny_one\ntiny_one.v");
        like($r->{stdout}, qr/Successfully installed tiny-one-1\.0/, '%pip');
        is($r->{text}, '5', 'the package is there at once');
        ok(-e (glob "$dir/.local/lib/python3*/site-packages/tiny_one.py")[0],
           'in the user\'s own place');
        shows('import importlib.metadata as m; m.version("tiny_one")',
              "'1.0'", 'with its version');
    }
}
$k->stop;

SKIP: {
    skip 'IPython is not installed', 3 if !has('IPython');

    $k = kernel('python');
    $k->setup(preload => ['IPython']);
    shows('%time 6*7', '42', 'IPython can be imported ahead');
    shows("_, In[-2], 'IPython' in dir()", q{(42, '%time 6*7', False)},
          'and counts cells from the first');
    is($k->run('display(1, display_id="a"); 1')->{results}[0]{'text/plain'},
       '1', 'with displays');
    $k->stop;
}


# ---- figures --------------------------------------------------------------

SKIP: {
    skip 'matplotlib is not installed', 1 if !has('matplotlib');

    $k = kernel('python');
    my $plt = "import matplotlib.pyplot as plt, sys\n";

    $r = $k->run("${plt}plt.plot([1, 2])\nplt.show()");
    is_deeply(types($r), [$FIGURE], 'a figure that is shown');
    like(decode_base64($r->{results}[0]{'image/png'}), qr/^$PNG/, 'is a PNG');
    like($r->{results}[0]{'text/plain'},
         qr/^<Figure size \d+x\d+ with 1 Axes>/, 'and text');
    shows("'IPython' in sys.modules", 'False', 'it takes nothing of IPython');

    my ($list) = glob SandboxTest::Kernel::directory('python')
                      . '/cache/fontlist-*';
    ok($list, 'a list of fonts was made by the build');
    is(system('cmp', '-s', $list, glob $k->dir . '/.cache/matplotlib/*'), 0,
       'which is the one that is used');
    is($k->run('import os')->{exit}, '0', 'a cell');


    $r = $k->run("plt.plot([1, 2])\nNone");
    is_deeply(types($r), [$FIGURE], 'one that is not shown is');
    is_deeply(types($k->run('1')), ['text/plain'], 'once');

    $r = $k->run("l = plt.plot([1, 2])\nprint(1)\nplt.figure()\n"
                 . "plt.bar([1], [2])\nplt.figure(); 6*7");
    is(scalar @{ values_of($r, 'image/png') }, 2, 'several');
    is($r->{text}, '42', 'beside the result');

    $r = $k->run("plt.plot([1]); plt.show()\nprint('x')\nplt.plot([2, 1]); "
                 . "plt.show()");
    my $images = values_of($r, 'image/png');
    is(scalar @$images, 2, 'one after the other');
    isnt($images->[0], $images->[1], 'each with its own lines');

    $r = $k->run("fig, ax = plt.subplots()\nax.plot([1])\nfig");
    is_deeply(types($r), [$FIGURE], 'a figure as a value');
    is($r->{results}[0]{main}, '1', 'is the result, once');
    $r = $k->run("fig, ax = plt.subplots()\nax.plot([1])\ndisplay(fig)\n"
                 . "ax.plot([2, 3])\nNone");
    is(scalar @{ values_of($r, 'image/png') }, 2,
       'one that is drawn on after it was shown comes again');
    is(scalar @{ $k->run("fig, ax = plt.subplots()\nplt.close(fig)")
                 ->{results} }, 0, 'one that is closed does not come');
    $r = $k->run("plt.plot([1])\n1/0");
    is(scalar @{ values_of($r, 'image/png') }, 1,
       'one of a cell that fails does');
    is($r->{error}{name}, 'ZeroDivisionError', 'with the error');

    $r = $k->run("plt.title('\$\\\\nosuch\$')\nplt.figure()\n"
                 . "plt.plot([1])\nNone");
    is($r->{error}{name}, 'ValueError', 'one that cannot be drawn is an error');
    is(scalar @{ values_of($r, 'image/png') }, 1, 'but keeps no other back');
    is_deeply(types($k->run('1')), ['text/plain'], 'and does not come again');

    $r = $k->run("from matplotlib.figure import Figure\nf = Figure()\n"
                 . "f.subplots().plot([1])\nf");
    is_deeply(types($r), [$FIGURE], 'one without pyplot');
    is($k->run("plt.plot([1]); plt.savefig('a.png'); plt.close()\n"
               . "os.path.getsize('a.png') > 1000")->{text}, 'True',
       'one that is saved');
    is($k->run("import subprocess\nsubprocess.run([sys.executable, '-c', "
               . "'import matplotlib.pyplot as p; p.plot([1])']).returncode")
       ->{text}, '0', 'a child has a backend of its own');

  SKIP: {
        skip 'no font of Chinese is installed', 7
            if `fc-list :lang=zh family 2> /dev/null` !~ /\S/;

        my $draw = <<'PY';
import numpy, warnings
def drawn(text):
    fig = Figure(figsize=(1, 1))
    from matplotlib.backends.backend_agg import FigureCanvasAgg as C
    fig.text(0.1, 0.3, text, fontsize=30)
    canvas = C(fig); canvas.draw()
    return bytes(canvas.buffer_rgba())
def boxes(text):
    box = drawn('\U000f0000')
    return [c for c in text if drawn(c) == box]
PY
        $k->run($draw . "warnings.simplefilter('ignore'); len(drawn('a'))");
        shows("boxes('中文字日本あé')", '[]',
              'glyphs of East Asia are no boxes');
        shows(q{len(boxes('\U000f0000'))}, '1', 'but for what no font has');

      SKIP: {
            skip 'no font of emoji is installed', 1
                if `fc-list : family 2> /dev/null` !~ /Symbola|Noto Emoji/;
            shows("boxes('😀🚀❤')", '[]', 'nor are emoji');
        }

        $k->run("warnings.simplefilter('default')");
        $r = $k->run("plt.title('图表 😀'); plt.xlabel('横轴')\nplt.show()");
        is($r->{stderr}, '', 'nothing is said of glyphs');

        for my $set ("plt.rcParams['font.family'] = 'serif'",
                     "plt.style.use('ggplot')",
                     "plt.rcParams['font.sans-serif'] = ['No Such Font']")
        {
            shows("$set\nboxes('中文')", '[]', "whatever is set: $set");
        }
    }

    $k->stop;

  SKIP: {
        skip 'IPython is not installed', 4 if !has('IPython');

        $k = kernel('python');
        $r = $k->run("%matplotlib inline\n${plt}plt.plot([1]); plt.show()\n"
                     . "plt.plot([2]);");
        is(scalar @{ values_of($r, 'image/png') }, 2, 'figures with IPython');
        $r = $k->run("%config InlineBackend.figure_format = 'svg'\n"
                     . "plt.plot([1]); None");
        is_deeply(types($r), [ $FIGURE =~ s/png/svg+xml/r ], 'as SVG');
        like($r->{results}[0]{'image/svg+xml'}, qr/<svg/, 'which is one');
        $r = $k->run("%config InlineBackend.figure_format = 'retina'\n"
                     . "plt.plot([1]); None");
        is_deeply(types($r), [$FIGURE], 'of double size');
        $k->stop;
    }

    $k = kernel('python', env => { MPLBACKEND => 'agg' });
    $r = $k->run("${plt}plt.plot([1]);");
    is(scalar @{ $r->{results} }, 0, 'a backend that is asked for is used');
    $k->stop;

    $k = kernel('python');
    $k->setup(preload => [qw(matplotlib.pyplot)]);
    $r = $k->run("import sys; 'matplotlib.pyplot' in sys.modules");
    is($r->{text}, 'True', 'it can be imported ahead');
    is(scalar @{ $r->{results} }, 1, 'of which nothing is seen');
    $r = $k->run("${plt}plt.plot([1]);");
    is(scalar @{ values_of($r, 'image/png') }, 1, 'and shows figures');
    $k->stop;
}


# ---- pandas and numpy -----------------------------------------------------

SKIP: {
    skip 'pandas is not installed', 1 if !has('pandas');

    $k = kernel('python');
    $r = $k->run("import pandas as pd\npd.DataFrame({'a': [1, 2], "
                 . "'é': ['x', None]})");
    is("@{ $r->{main}{types} }", 'text/plain text/html '
       . 'application/vnd.sandbox.data+json', 'a data frame');
    is($r->{text}, "   a     é\n0  1     x\n1  2  None", 'is text');
    like($r->{main}{'text/html'}, qr{<table.*<th>é</th>.*<td>None</td>}s,
         'and HTML');
    like($k->run("pd.DataFrame([range(18)], columns=[f'column_{i}' for i in "
                 . "range(18)])")->{main}{'text/html'},
         qr/column_0.*column_8.*column_17/s, 'with all its columns');
    is("@{ $k->run('pd.Series([1, 2])')->{main}{types} }", 'text/plain',
       'a series is text');
    shows("import numpy as np; np.arange(3)", 'array([0, 1, 2])', 'an array');
    shows("import sys; 'IPython' in sys.modules", 'False',
          'none of it takes IPython');
    $k->stop;

    $k = kernel('python');
    is($k->setup(preload => [qw(numpy pandas)])->{type}, 'ready',
       'they can be imported ahead');
    $r = $k->run("import sys; 'pandas' in sys.modules");
    is($r->{text}, 'True', 'and are there');
    is($r->{stdout} . $r->{stderr}, '', 'silently');
    $k->stop;
}

done_testing();
