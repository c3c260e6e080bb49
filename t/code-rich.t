#!/usr/bin/perl

# What a user of Python sees in a session: plots, tables, bundles and magics,
# with the files and fonts that a session has.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";

use Test::More;
use SandboxTest::More;
use SandboxTest::Code;

my $t = code_server();
my $s = create_ok({ manifest => { resources => { memory => '1GB',
                                                 exec_timeout_s => 300 } } });
my %slow = (timeout_s => 300, _http => { timeout => within(300) });
# What is not installed is not there in sessions either.

my %has = map { $_ => system("/usr/bin/python3 -c 'import $_' 2>/dev/null")
                      == 0 } qw(IPython numpy pandas matplotlib);

sub types_of {
    my ($bundle) = @_;

    return join ' ', sort grep { $_ ne 'is_main_result' } keys %$bundle;
}


subtest 'plots' => sub {
    plan(skip_all => 'matplotlib is not installed') if !$has{matplotlib};

    my $j = code($s, "import matplotlib.pyplot as plt\n"
                     . "plt.plot([1, 2]); plt.figure(); plt.plot([2, 1])\n"
                     . "plt.title('\x{6f22}\x{5b57} \x{2713} \x{1f600}')\n"
                     . "print('done')", %slow);
    my @png = map { unb64($_->{'image/png'} // '') } @{ $j->{results} };

    is($j->{error}, undef, 'without an error') or diag($j->{error}{traceback});
    is($j->{stderr}, '', 'nor a word of missing glyphs or caches');
    is(scalar @png, 2, 'each figure is a result');
    is(scalar(grep { /^\x89PNG\r\n/ } @png), 2, 'as PNG');

    $j = code($s, "plt.plot([3]); plt.show(); print('after'); plt.plot([4])",
              %slow);
    is(scalar(grep { $_->{'image/png'} } @{ $j->{results} }), 2,
       'with show() and without');
    like($j->{text}, qr/Line2D/, 'beside the last value');
    is(scalar @{ code($s, '1')->{results} }, 1, 'and each once');
};


subtest 'tables' => sub {
    plan(skip_all => 'pandas is not installed') if !$has{pandas};

    my $j = code($s, "import pandas as pd\npd.DataFrame({'a': [1, 2]})",
                 %slow);

    is(types_of($j->{results}[0]), 'application/vnd.sandbox.data+json '
       . 'text/html text/plain', 'data, HTML and text');
    is_deeply($j->{results}[0]{'application/vnd.sandbox.data+json'},
              { a => [ 1, 2 ] }, 'of which this');
    like($j->{results}[0]{'text/html'}, qr/<table.*<td>2</s, 'and this');
    like($j->{text}, qr/^   a\n0  1\n1  2$/, 'and this');
};


subtest 'every type there is' => sub {
    plan(skip_all => 'IPython is not installed') if !$has{IPython};

    my $j = code($s, <<'PY', %slow);
from IPython.display import *
class Pdf:
    def _repr_pdf_(self): return b'%PDF-1.4'
class Jpeg:
    def _repr_jpeg_(self): return b'\xff\xd8\xff'
display(Markdown('**x**')); display(Latex('$x$')); display(HTML('<i>'))
display(JSON({'a': [1]})); display(Javascript('1'))
display(SVG('<svg xmlns="http://www.w3.org/2000/svg"/>'))
display(Pdf()); display(Jpeg())
display({'application/vnd.x+json': [1], 'text/x-own': 'own'}, raw=True)
PY
    my @r = @{ $j->{results} };
    my @types = map { my %b = %$_; delete @b{qw(text/plain is_main_result)};
                      join ' ', sort keys %b } @r;

    is_deeply(\@types, [ qw(text/markdown text/latex text/html
                            application/json application/javascript
                            image/svg+xml application/pdf image/jpeg),
                         'application/vnd.x+json text/x-own' ], 'in order');
    is($r[0]{'text/markdown'}, '**x**', 'Markdown');
    is_deeply($r[3]{'application/json'}, { a => [1] }, 'JSON');
    is(unb64($r[6]{'application/pdf'}), '%PDF-1.4', 'PDF');
    is(unb64($r[7]{'image/jpeg'}), "\xff\xd8\xff", 'JPEG');
    is_deeply($r[8]{'application/vnd.x+json'}, [1], 'a custom one');
};


subtest 'magics' => sub {
    plan(skip_all => 'IPython is not installed') if !$has{IPython};

    is(code($s, '!echo hi', %slow)->{stdout}, "hi\n", 'a line for the shell');
    is(code($s, "x = !echo a; echo b\nlist(x)")->{text}, "['a', 'b']",
       'kept');
    is(code($s, "%%bash\necho \$((6*7))\npwd")->{stdout},
       "42\n/home/user\n", 'a cell of bash');
    like(code($s, '%timeit -n1 -r1 1')->{stdout}, qr/per loop/, 'timeit');
    is(code($s, "%cd /tmp\nimport os; os.getcwd()")->{text}, "'/tmp'",
       'a directory');
    code($s, '%cd /home/user');
    is(code($s, '%nosuchmagic')->{exit_code} != 0
       || code($s, '%nosuchmagic')->{stderr} ne '', 1, 'none says so');
};


subtest 'the rest of the language' => sub {
    is(code($s, "import asyncio\nawait asyncio.sleep(0.01)\n7")->{text}, '7',
       'await');

    put($s, 'helper.py', "def f(): return 'helped'\n");
    is(code($s, 'import helper; helper.f()')->{text}, "'helped'",
       'modules of the workspace');
    is(code($s, 'import os; os.getuid(), os.getcwd()')->{text},
       "(1000, '/home/user')", 'who and where');
    is(code($s, '1;')->{text}, undef, 'a semicolon hides');
    is(code($s, '2')->{text} . code($s, '_ + 1')->{text}, '23',
       'the value before');
    is(code($s, "import sys; sys.exit(3)")->{restarted}, 0,
       'sys.exit ends no interpreter');
};


subtest 'an interpreter is behind the session\'s walls' => sub {
    my $j = code($s, <<'PY');
import os, socket
print(os.path.exists('/run/sandbox/kernels/python/kernel.conf'))
try: open('/run/sandbox/kernels/python/x', 'w')
except OSError as e: print(type(e).__name__)
try: socket.create_connection(('192.0.2.1', 80), 2)
except OSError as e: print(e.errno == 101)
PY
    my @lines = split /\n/, $j->{stdout};

    is($lines[0], 'True', 'it sees what it is made of');
    like($lines[1], qr/OSError|PermissionError/, 'and cannot change it');
    is($lines[2], 'True', 'it has no network');

    my $pid = context($s, 'python')->{pid};
    my $r = run($s, "cat /proc/$pid/status");
    like($r->{stdout}, qr/^CapEff:\s0+$/m, 'no capabilities');
    like($r->{stdout}, qr/^NoNewPrivs:\s1$/m, 'no new privileges');
    like($r->{stdout}, qr/^Seccomp:\s2$/m, 'a filter');
};

$t->finish;
done_testing();
