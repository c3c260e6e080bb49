#!/usr/bin/perl

# The code interpreter as clients of E2B meet it: lines of a run, errors,
# contexts, and the forms of refusals.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";

use Digest::SHA qw(hmac_sha256_hex);
use JSON::PP ();
use Test::More;
use SandboxTest;
use SandboxTest::More;
use SandboxTest::Code;
use SandboxTest::Stream;

my $t = code_server(extra => <<'CONF');
        location /e2b/ { sandbox_api e2b; }
CONF
my $s = create_ok();
my $key = SandboxTest::slurp($t->prefix . '/token.key');
my %base = (base => '/e2b');

sub headers {
    my ($id, $port) = @_;

    return { 'E2b-Sandbox-Id' => $id, 'E2b-Sandbox-Port' => $port // 49999,
             'X-Access-Token' => hmac_sha256_hex("envd $id", $key) };
}

sub plane {
    my ($method, $path, %o) = @_;

    return call($method, $path, %base, timeout => within(60),
                headers => headers($s), %o);
}

# A run that is under way.

sub begin {
    my ($code, %fields) = @_;

    return stream('POST', '/execute', %base, headers => headers($s),
                  json => { code => $code, %fields });
}

# All lines of a run; texts put together, and the rest by type.

sub execute {
    my $f = begin(@_);
    my %r = (status => $f->{status}, stdout => '', stderr => '',
             results => [], lines => []);

    while (my $line = $f->next(60)) {
        push @{ $r{lines} }, $line;
        my $type = $line->{type};

        if ($type eq 'result') {
            push @{ $r{results} }, $line;
        } elsif (defined $line->{text}) {
            $r{$type} .= $line->{text};
        } else {
            $r{$type} = $line;
        }
    }

    ($r{main}) = grep { $_->{is_main_result} } @{ $r{results} };
    $r{text} = $r{main}{text};
    $r{types} = join ' ', map { $_->{type} } @{ $r{lines} };
    $r{whole} = $f->{whole};

    return \%r;
}

sub rpc {
    my ($name, $fields) = @_;

    return call('POST', "/code.CodeInterpreter/$name", %base,
                timeout => within(60), headers => headers($s, 49983),
                json => $fields);
}


subtest 'health' => sub {
    is(plane('GET', '//health')->{status}, 200,
       'an address that ends with a slash');

    my $res = plane('GET', '/health');

    is("$res->{status} $res->{body}", '200 "OK"', 'of one that runs');

    my $none = 'i' . '0' x 24;
    $res = plane('GET', '/health', headers => headers($none));
    is($res->{status}, 502, 'of none');
    is($res->{json}{sandboxId}, $none, 'with its name');
};


subtest 'lines of a run' => sub {
    my $r = execute(<<'PY');
import sys
print('one'); print('two', file=sys.stderr)
display({'text/html': '<b>', 'text/x-own': 'x', 'text/plain': 'p',
         'application/vnd.x+json': [1, '\u00e9']}, raw=True)
print('three')
'v' + "'"
PY

    is($r->{status}, 200, 'status');
    is_deeply($r->{lines}[0],
              { type => 'number_of_executions', execution_count => 1 },
              'first its number');
    is_deeply($r->{lines}[-1], { type => 'end_of_execution' }, 'last its end');
    is("$r->{stdout}$r->{stderr}", "one\nthree\ntwo\n", 'texts');
    ok($r->{whole}, 'the body ends as it should');

    my ($line) = grep { $_->{type} eq 'stdout' } @{ $r->{lines} };
    like($line->{timestamp}, qr/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z$/,
         'with their times');

    is_deeply($r->{results},
              [ { type => 'result', html => '<b>', text => 'p',
                  extra => { 'text/x-own' => 'x',
                             'application/vnd.x+json' => [ 1, "\x{e9}" ] },
                  is_main_result => JSON::PP::false },
                { type => 'result', text => "v'",
                  is_main_result => JSON::PP::true } ],
              'results with the names of the SDK, quotes gone');

    is(execute('6 * 7')->{text}, '42', 'a number');
    is(execute('x = 1')->{types}, 'number_of_executions end_of_execution',
       'nothing');
    is(execute("'a', 'b'")->{text}, "('a', 'b')", 'no pair of quotes');
};


subtest 'all is ASCII' => sub {
    my $f = begin("import os, time\n"
                  . "for b in '\x{1f923}\x{e9}'.encode():\n"
                  . "    os.write(1, bytes([b])); time.sleep(0.02)\n"
                  . "display('\x{20ac}')\n"
                  . "raise ValueError('\x{6f22}\"\\\\')");
    my $raw = '';

    while (defined(my $more = SandboxTest::More::read_some($f->{s},
                                                           time + 60))) {
        last if $more eq '';
        $raw .= $more;
    }

    $f->{raw} .= $raw;
    $f->{eof} = 1;
    unlike($f->{raw}, qr/[^\x00-\x7f]/, 'on the wire');
    like($f->{raw}, qr/\\ud83e\\udd23/, 'with surrogates');
    unlike($f->{raw}, qr/\n\n/, 'and no line is empty');

    my @lines;
    while (my $line = $f->next) { push @lines, $line }

    is(join('', map { $_->{text} // '' } @lines), "\x{1f923}\x{e9}\x{20ac}",
       'and whole again');
    is($lines[-2]{value}, "\x{6f22}\"\\", 'errors, too');
};


subtest 'errors' => sub {
    my $r = execute("print('x')\n1/0");

    is($r->{types}, 'number_of_executions stdout error end_of_execution',
       'an exception');
    is("$r->{error}{name} $r->{error}{value}",
       'ZeroDivisionError division by zero', 'its name and value');
    like($r->{error}{traceback}, qr/1\/0/, 'its traceback');
    is_deeply([ sort keys %{ $r->{error} } ],
              [ qw(name traceback type value) ], 'and nothing else');

    is(execute("kept = 1")->{error}, undef, 'none');
    $r = execute("import os; os._exit(3)");
    is($r->{error}{name}, 'ContextRestarting', 'an interpreter that died');
    like($r->{error}{value}, qr/exited/, 'of what');
    $r = execute('kept');
    is("$r->{error}{name} $r->{number_of_executions}{execution_count}",
       'NameError 1', 'and a new one');
};


subtest 'refusals are text' => sub {
    my %json = (headers => { %{ headers($s) } });
    my $res = plane('POST', '/execute', json => { code => '1',
                    context_id => 'c', language => 'python' });

    is($res->{status}, 400, 'both a context and a language');
    like($res->{headers}{'content-type'}, qr{^text/plain}, 'type');
    like($res->{body}, qr/context_id/, 'text');

    for my $id ('none', 'not/one', '') {
        my $path = $id =~ s{/}{%2F}r;
        next if $id eq '';

        $res = plane('POST', '/execute',
                     json => { code => '1', context_id => $id });
        is("$res->{status} $res->{body}", "404 Context $id not found",
           "a run in $id");
        $res = plane('POST', "/contexts/none/restart");
        is("$res->{status} $res->{body}", '404 Context none not found',
           'a restart');
        $res = plane('DELETE', '/contexts/none');
        is("$res->{status} $res->{body}", '404 Context none not found',
           'a removal');
    }

    $res = plane('POST', '/execute', json => { code => '1',
                                               language => 'cobol' });
    is($res->{status}, 400, 'a language that is not there');
    like($res->{body}, qr/python/, 'and those that are');

    $res = plane('POST', '/execute', json => { language => 'python' });
    is($res->{status}, 400, 'no code');

    my %none = %{ headers($s) };
    delete $none{'X-Access-Token'};
    is(plane('POST', '/execute', json => { code => '1' },
             headers => \%none)->{status}, 401, 'no token');
    is(plane('GET', '/contexts', headers => \%none)->{status}, 401,
       'which contexts ask for, too');
    is(plane('DELETE', '/contexts/python', headers => \%none)->{status}, 401,
       'before they are removed');
    $none{'E2B-Traffic-Access-Token'} = hmac_sha256_hex("traffic $s", $key);
    is(plane('GET', '/contexts', headers => \%none)->{status}, 200,
       'or for that of traffic, as clients have it');
    is(plane('POST', '/execute', json => { code => '1' },
             headers => \%none)->{status}, 401, 'which runs nothing');
};


subtest 'variables of one run' => sub {
    my $code = "import os; os.environ.get('FOO')";

    is(execute($code, env_vars => { FOO => 'bar' })->{text}, 'bar', 'in it');
    is(execute($code)->{text}, undef, 'and not after it');
    is(execute("os.environ['E2B_SANDBOX'], os.environ['E2B_SANDBOX_ID']")
       ->{text}, "('true', '$s')", 'and those of the sandbox');
    is(execute($code, env_vars => undef, context_id => undef,
               language => undef, more => {})->{text}, undef,
       'nulls and what is not known count as left out');
};


subtest 'languages' => sub {
    is(execute('1 + 1', language => ' Python ')->{text}, '2',
       'in any case, and trimmed');

    SKIP: {
        skip 'there is no node', 3 if !language_is_there('javascript');

        is(execute("'a' + 1", language => 'js')->{text}, 'a1', 'js');
        is(execute('const z = 1')->{error}{name}, 'SyntaxError', 'no Python');
        my $c = plane('POST', '/contexts',
                      json => { language => 'js', cwd => '/' })->{json};
        is("$c->{language} $c->{cwd}", 'javascript /', 'of a context');
        plane('DELETE', "/contexts/$c->{id}");
    }

    SKIP: {
        skip 'there is no bash', 1 if !language_is_there('bash');
        is(execute('echo $0 >&2; cd /; pwd', language => 'bash')->{stdout},
           "/\n", 'bash');
    }
};


subtest 'contexts' => sub {
    my $list = plane('GET', '/contexts')->{json};
    my %seen = map { $_->{id} => $_ } @$list;

    is_deeply($seen{python}, { id => 'python', language => 'python',
                               cwd => '/home/user' }, 'Python');
    is($seen{javascript}{language}, 'javascript', 'and JavaScript are there');

    my $fresh = create_ok();
    $list = plane('GET', '/contexts', headers => headers($fresh))->{json};
    is(join(' ', map { "$_->{id}:$_->{cwd}" } @$list),
       'python:/home/user javascript:/home/user', 'before their first use');
    my $res = plane('POST', '/contexts/python/restart',
                    headers => headers($fresh));
    is("$res->{status} $res->{body}", '200 null', 'which may be restarted');
    destroy($fresh);

    $res = plane('POST', '/contexts', json => { language => 'python',
                                                cwd => '/tmp' });
    my $c = $res->{json};
    is($res->{status}, 200, 'a new one');
    is_deeply([ @$c{qw(language cwd)} ], [ 'python', '/tmp' ], 'as asked for');
    is(plane('GET', '/contexts')->{json}[-1]{id}, $c->{id},
       'is the last of the list');

    my %c = (context_id => $c->{id});
    is(execute('import os; y = 5; os.getcwd()', %c)->{text}, '/tmp',
       'runs where it should');
    is(execute('y', %c)->{text}, '5', 'remembers');
    is(execute('y')->{error}{name}, 'NameError', 'for itself');

    $res = plane('POST', "/contexts/$c->{id}/restart",
                 headers => { %{ headers($s) }, 'Content-Length' => 0 });
    is("$res->{status} $res->{body}", '200 null', 'is restarted');
    is(execute('y', %c)->{error}{name}, 'NameError', 'and forgets');

    $res = plane('DELETE', "/contexts/$c->{id}");
    is("$res->{status} $res->{body}", '200 null', 'is removed');
    ok(!(grep { $_->{id} eq $c->{id} }
         @{ plane('GET', '/contexts')->{json} }), 'and gone');

    $c = plane('POST', '/contexts', json => {})->{json};
    is("$c->{language} $c->{cwd}", 'python /home/user', 'by default');
    plane('DELETE', "/contexts/$c->{id}");

    for my $cwd ('/not/there', '/root') {
        $c = plane('POST', '/contexts', json => { cwd => $cwd })->{json};
        is($c->{cwd}, '/home/user', "$cwd: it says where it begins");
        is(execute('import os; os.getcwd()', context_id => $c->{id})->{text},
           '/home/user', 'and does');
        plane('DELETE', "/contexts/$c->{id}");
    }
};


# One run waits for the other; both are told that nothing is wrong.

subtest 'turns, and a client that goes away' => sub {
    execute('state = "kept"; n = 0');

    my $first = begin("import time\nprint('on')\n"
                      . "while True: time.sleep(0.02); n += 1");
    $first->until('stdout');

    my $second = begin("n > 0, state");
    is($second->{status}, 200, 'has its header while it waits');
    is($second->next(20)->{type}, 'keepalive', 'and a sign of life');

    $first->close;

    my @lines = $second->until('end_of_execution', 60);
    my ($result) = grep { $_->{type} eq 'result' } @lines;
    is($result->{text}, "(True, 'kept')",
       'the first is interrupted, and its state stays');
};


subtest 'a sandbox that is killed' => sub {
    my $gone = create_ok();
    my $f = stream('POST', '/execute', %base, headers => headers($gone),
                   json => { code => "print('on')\nimport time; "
                                     . "time.sleep(60)" });
    $f->until('stdout');
    destroy($gone);

    my @lines = $f->until('end_of_execution', 20);
    ok(!(grep { $_->{type} eq 'end_of_execution' } @lines),
       'its stream has no end');
    ok(!$f->{whole}, 'but breaks off');
    is(plane('GET', '/health', headers => headers($gone))->{status}, 502,
       'and it is not there');
};


# What is not installed is not there in sessions either.

subtest 'figures, tables and images' => sub {
    my %has = map { $_ => system("/usr/bin/python3 -c 'import $_' "
                                 . '2>/dev/null') == 0 }
                  qw(matplotlib pandas PIL);

    SKIP: {
        skip 'matplotlib is not installed', 2 if !$has{matplotlib};

        my $r = execute("import matplotlib.pyplot as plt\n"
                        . "plt.plot([1, 2], [3, 4], label='\x{20ac}')\n"
                        . "plt.show()\n7");
        my ($figure) = @{ $r->{results} };

        is(join(' ', sort keys %$figure),
           'chart is_main_result png text type', 'a figure');
        is_deeply($figure->{chart}{elements},
                  [ { label => "\x{20ac}",
                      points => [ [ 1, 3 ], [ 2, 4 ] ] } ], 'as data');
        is($r->{text}, '7', 'beside the value');
    }

    SKIP: {
        skip 'pandas is not installed', 1 if !$has{pandas};

        is_deeply(execute("pd.DataFrame({'a': [1, 2]})")->{main}{data},
                  { a => [ 1, 2 ] }, 'a table');
    }

    SKIP: {
        skip 'PIL is not installed', 2 if !$has{PIL};

        my $r = execute("from PIL import Image\n"
                        . "i = Image.new('RGB', (2, 2))\ni.show()\n"
                        . "i.save('i.png')");
        is(scalar(grep { $_->{png} } @{ $r->{results} }), 2,
           'images that are shown, and saved');
        is($r->{stderr}, '', 'without a word');
    }
};


subtest 'code.CodeInterpreter' => sub {
    my $res = rpc('Execute', { code => "import os\nprint('a ', end='\\n\\n')\n"
                               . "os.getenv('K')", language => 'python',
                               timeout => 30, envVars => { K => 'v' } });
    my $j = $res->{json};

    is($res->{status}, 200, 'status');
    is($j->{stdout}, "a \n\n", 'output');
    is($j->{text}, 'a', 'and as text');
    is("$j->{exitCode} $j->{stderr}", '0 ', 'the rest');
    is($j->{results}[0]{text}, 'v', 'the result');
    is($j->{error}, undef, 'no error');
    like($j->{executionTime}, qr/^\d+(\.\d+)?$/, 'seconds');

    $j = rpc('Execute', { code => 'open("made", "w").write("x"); 1/0' })
         ->{json};
    is("$j->{exitCode} $j->{error}{name}", '1 ZeroDivisionError', 'an error');
    is($j->{outputFiles}[0]{path}, '/home/user/made', 'files that it made');

    $j = rpc('Execute', { code => 'import time; time.sleep(60)',
                          timeout => 0.3 })->{json};
    is("$j->{exitCode} $j->{error}{name} $j->{timedOut}",
       '130 KeyboardInterrupt 1', 'too long');

    is(rpc($_, { contextId => 'a' x 50000 })->{status}, 200,
       "$_ has no use for an id") for qw(CreateContext ListContexts);
    is(rpc($_, { contextId => 'a' x 50000 })->{status}, 404,
       "$_, of none") for qw(RestartContext RemoveContext);

    my $c = rpc('CreateContext', { language => 'python', cwd => '/tmp' })
            ->{json};
    is("$c->{language} $c->{cwd} $c->{contextId}", "python /tmp $c->{id}",
       'a context');
    is(rpc('Execute', { code => 'import os; os.getcwd()',
                        contextId => $c->{id} })->{json}{results}[0]{text},
       '/tmp', 'in which code runs');
    ok((grep { $_->{id} eq $c->{id} }
        @{ rpc('ListContexts', {})->{json}{contexts} }), 'is in the list');
    is(rpc('RestartContext', { contextId => $c->{id} })->{status}, 200,
       'is restarted');
    is(rpc('RemoveContext', { context_id => $c->{id} })->{status}, 200,
       'and removed');
    $res = rpc('RemoveContext', { contextId => $c->{id} });
    is("$res->{status} $res->{json}{code}", '404 not_found', 'once');
};

subtest 'a worker that is to end' => sub {
    my $path = $t->prefix . '/conf/nginx.conf';
    my $conf = SandboxTest::slurp($path);

    $conf =~ s/^worker_shutdown_timeout .*;/worker_shutdown_timeout 1s;/m
        or die 'no worker_shutdown_timeout';
    open my $file, '>', $path or die $!;
    print $file $conf;
    close $file;
    $t->reload;

    my @old = workers();
    my $f = begin("print('on')\nwhile True: pass");
    $f->until('stdout');
    $t->reload;

    my @lines = $f->until('end_of_execution', 20);
    is("$lines[-2]{name} $lines[-1]{type}",
       'UnexpectedEndOfExecution end_of_execution', 'tells so at last');
    ok((until_true { !grep { kill 0, $_ } @old } 10), 'it has ended');
    is(execute('1 + 1')->{text}, '2', 'and the run was interrupted');
};

$t->finish;
done_testing();
