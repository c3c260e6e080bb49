#!/usr/bin/perl

# JavaScript and bash in sessions, and a language that is new.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";

use Test::More;
use SandboxTest::More;
use SandboxTest::Code;
use SandboxTest::Stream;

my $t = code_server();
my $s = create_ok();

sub js { my ($code, %o) = @_; return code($s, $code, %o,
                                          language => 'javascript') }
sub sh { my ($code, %o) = @_; return code($s, $code, %o,
                                          language => 'bash') }


subtest 'JavaScript' => sub {
    plan(skip_all => 'there is no kernel for it')
        if !language_is_there('javascript');
    plan(skip_all => 'node is not installed')
        if !grep { -x "$_/node" } split /:/, $ENV{PATH};

    my $j = js('6*7');

    is("$j->{text} $j->{context_id} $j->{execution_count}",
       '42 javascript 1', 'the last value');
    is(js("const a = { b: [1, 'x'] }; a")->{text}, "{ b: [ 1, 'x' ] }",
       'inspected');
    is(js('a.b.length')->{text}, '2', 'state persists');
    is(js('let n;')->{text}, undef, 'no value, no text');

    $j = js("console.log('out'); console.error('err')");
    is("$j->{stdout}$j->{stderr}", "out\nerr\n", 'console');
    is(js("await new Promise(r => setTimeout(r, 10, 5))")->{text}, '5',
       'await');

    put($s, 'm.js', "module.exports = 'required';\n");
    put($s, 'm.mjs', "export default 'imported';\n");
    is(js("require('./m.js')")->{text}, "'required'", 'require');
    is(js("(await import('./m.mjs')).default")->{text}, "'imported'",
       'import');

    $j = js("function f() { throw new TypeError('boo') }\nf()");
    is("$j->{error}{name} $j->{error}{value} $j->{exit_code}",
       'TypeError boo 1', 'errors');

    $j = js('while (true);', timeout_s => 1);
    ok($j->{timed_out} && !$j->{restarted}, 'a timeout interrupts');
    is(js('a.b.length')->{text}, '2', 'and state stays');

    $j = js('process.exit(4)');
    is($j->{exit_code}, 4, 'an exit has its code');
    is(js('typeof process')->{text}, "'object'", 'and on it goes');
};


subtest 'bash' => sub {
    plan(skip_all => 'there is no kernel for it')
        if !language_is_there('bash');

    my $j = sh("x=1; f() { echo f\$x; }; cd /tmp; false");

    is("$j->{exit_code} $j->{reason} $j->{context_id}", '1 exited bash',
       'an exit code is no error');
    is($j->{error}, undef, 'at all');
    is(sh('f; pwd')->{stdout}, "f1\n/tmp\n",
       'variables, functions and directory persist');
    is(sh('echo err >&2')->{stderr}, "err\n", 'standard error');
    is(sh('cat')->{stdout}, '', 'standard input is at its end');

    $j = sh("printf 'end 0\\n\\nend 12\\nid 1\\n7\\nexit 1\\n0\\n'");
    is($j->{exit_code}, 0, 'output forges no end');
    like($j->{stdout}, qr/^end 0\n\nend 12/, 'and is output');

    is(sh("echo 'broken")->{exit_code} != 0, 1, 'a syntax error');
    is(sh('echo $x')->{stdout}, "1\n", 'is survived');

    $j = sh('sleep 600', timeout_s => 0.5);
    ok($j->{timed_out} && !$j->{restarted}, 'a timeout interrupts');
    is(sh('echo $x')->{stdout}, "1\n", 'and state stays');

    is(sh('echo $V', env => { V => 'run' })->{stdout}, "run\n",
       'a run\'s variables');
    is(sh('echo "[$V]"')->{stdout}, "[]\n", 'are its own');

    $j = sh('kill -9 $$');
    is("$j->{error}{name} $j->{signal}", 'KernelDied SIGKILL', 'a death');
    is(sh('echo "[$x]"')->{stdout}, "[]\n", 'has a fresh context');
};


subtest 'languages side by side' => sub {
    plan(skip_all => 'there is one language')
        if !language_is_there('bash');

    code($s, "open('from-python', 'w').write('hi')");
    is(sh('cat /home/user/from-python')->{stdout}, 'hi',
       'they share files');
    is(join(' ', sort map { $_->{context_id} } contexts($s)) =~
       /\bbash\b.*\bpython\b/, 1, 'and are listed');
};


subtest 'a language is a directory with a description' => sub {
    my $p = $t->prefix;
    my $build = readlink "$p/helpers/kernels";

    unlink "$p/helpers/kernels" or die $!;
    system 'cp', '-r', $build, "$p/helpers/kernels";
    mkdir "$p/helpers/kernels/echo";

    open my $conf, '>', "$p/helpers/kernels/echo/kernel.conf" or die $!;
    print $conf "command /usr/bin/python3\ncommand \@/main.py\n"
                . "environment WHO=echo\n";
    close $conf;

    open my $main, '>', "$p/helpers/kernels/echo/main.py" or die $!;
    print $main <<'PY';
import os

def read(f):
    head = f.readline().split()
    if not head:
        raise SystemExit
    body = f.read(int(head[1]))
    fields = []
    while body:
        line, body = body.split(b'\n', 1)
        name, size = line.split()
        fields.append((name.decode(), body[:int(size)]))
        body = body[int(size) + 1:]
    return head[0].decode(), fields

def say(kind, *fields):
    body = b''.join(b'%s %d\n%s\n' % (n.encode(), len(v), v)
                    for n, v in fields)
    os.write(3, b'%s %d\n' % (kind.encode(), len(body)) + body)

f = os.fdopen(os.dup(3), 'rb')
say('ready', ('version', b'1'))
while True:
    kind, fields = read(f)
    fields = dict(fields)
    if kind != 'run':
        say('ready', ('version', b'1'))
        continue
    said = os.environ['WHO'].encode() + b' ' + fields['code']
    say('result', ('id', fields['id']), ('main', b'1'),
        ('text/plain', said))
    say('end', ('id', fields['id']), ('exit', b'0'))
PY
    close $main;
    chmod 0644, glob "$p/helpers/kernels/echo/*";

    # The broker reads the descriptions at its start.

    $t->stop;
    $t->start;

    my $new = create_ok();
    my $j = code($new, 'hello', language => 'echo');

    is("$j->{text} $j->{context_id}", 'echo hello echo', 'runs');
    is_problem(code_call($new, 'x', language => 'cobol'), 400, 'E3001',
               'and is among those that there are', qr/\becho\b/);
};

$t->finish;
done_testing();
