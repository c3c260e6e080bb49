#!/usr/bin/perl

# A real pip: from packages that the operator shows, without a network, and
# from an index on the host's loopback, by the egress.  What a package's own
# code may do while it is installed is what any command may do.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";

use Test::More;
use SandboxTest;
use SandboxTest::Packages qw(make lacks);

my $why = lacks('pip');
plan(skip_all => $why) if $why;

my $dir = File::Temp->newdir('sbxpkgXXXXXX', TMPDIR => 1);

chmod 0755, "$dir";
mkdir "$dir/$_" or die $! for qw(shown index cache);

sub pip {
    my ($name, $version, %o) = @_;

    return { manager => 'pip', name => $name, version => $version, %o };
}

make("$dir/shown",
     pip('sbx-one', '1.0', requires => [ 'sbx-two>=1' ],
         files => { 'sbx_one.py' => "import sbx_two\nx = sbx_two.y + 1\n" }),
     pip('sbx-two', '1.5', files => { 'sbx_two.py' => "y = 41\n" }),
     pip('sbx-needy', '1.0', requires => [ 'sbx-missing' ]),
     pip('sbx-bad', '1.0', requires => [ 'sbx-evil' ]),
     pip('sbx-evil', '6.6', files => { 'sbx_evil.py' => '' }));

# Says who it is, tries what it may not, and leaves a process behind.

my $SETUP = <<'PYTHON';
import os, socket, subprocess, sys

def tried(what):
    try:
        what()
        return 'done'
    except OSError as e:
        return type(e).__name__

def connect(host, port):
    s = socket.socket()
    s.settimeout(5)
    s.connect((host, port))
    s.sendall(b'GET / HTTP/1.0\r\nHost: 192.0.2.1\r\n\r\n')
    if not s.recv(1):
        raise ConnectionResetError

with open('/home/user/setup-ran', 'a') as f:
    f.write('uid %d\n' % os.getuid())
    f.write('raw %s\n' % tried(lambda: socket.socket(
        socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)))
    f.write('away %s\n' % tried(lambda: connect('192.0.2.1', 80)))
    f.write('shadow %s\n' % tried(lambda: open('/etc/shadow').read()))
    f.write('usr %s\n' % tried(lambda: open('/usr/sbx', 'w')))
    f.write('server %s\n' % os.environ.get('SBX_SERVER', 'unknown'))

if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        devnull = os.open('/dev/null', os.O_RDWR)
        for fd in range(3):
            os.dup2(devnull, fd)
        os.execv('/bin/sleep', ['sbx-daemon', '300'])
    os._exit(0)

from setuptools import setup
setup(name='sbx-sdist', version='3.0', py_modules=['sbx_sdist'])
PYTHON

make("$dir/index",
     pip('sbx-net', '1.0', files => { 'sbx_net.py' => "z = 1\n" }),
     pip('sbx-net', '2.0', files => { 'sbx_net.py' => "z = 2\n" }),
     pip('sbx-kept', '1.0', files => { 'sbx_kept.py' => "z = 3\n" }),
     pip('sbx-live', '1.0', files => { 'sbx_live.py' => "z = 4\n" }),
     pip('sbx-sdist', '3.0', setup => $SETUP,
         files => { 'sbx_sdist.py' => "z = 6\n" }));
make("$dir/cache",
     pip('sbx-kept', '1.0', files => { 'sbx_kept.py' => "z = 3\n" }));


my ($t, $s);

sub begin {
    my ($conf, %manifest) = @_;

    $t = SandboxTest->new(main => 'env SBX_SERVER;', http => $conf);
    $t->start;
    $s = session(%manifest);

    return;
}

sub session {
    my (%manifest) = @_;

    my $res = $t->api(POST => '/sessions',
                      { tenant_id => 'a', user_id => 'b',
                        manifest => { %manifest } });

    return $res->{json}{session_id} // diag($res->{body});
}

sub install {
    my ($packages, %o) = @_;

    return $t->api(POST => "/sessions/$s/install",
                   { packages => $packages, %o }, timeout => 120);
}

sub run {
    my ($cmd) = @_;

    return $t->api(POST => "/sessions/$s/exec", { cmd => $cmd },
                   timeout => 120)->{json};
}

sub code {
    my ($code) = @_;

    return $t->api(POST => "/sessions/$s/code", { code => $code },
                   timeout => 120)->{json};
}

sub installed {
    my ($res) = @_;

    my $list = $res->{json}{installed} // return $res->{body};

    return join ' ', sort map { lc "$_->{name} $_->{version}" =~ s/_/-/gr } @$list;
}


# ---- without a network ---------------------------------------------------

begin("sandbox_package_wheels $dir/shown; sandbox_package deny pip sbx-evil;");

is(code('import sbx_one')->{error}{name}, 'ModuleNotFoundError',
   'a context runs, and has no such package');

my $res = install([ 'sbx-one', 'pip' ], timeout_s => 300);

is($res->{status}, 200, 'what the operator shows needs no network')
    or diag($res->{body});
like(installed($res), qr/^pip \d\S* sbx-one 1.0 sbx-two 1.5$/,
     'with what it needs, and what was there already');
like($res->{json}{stdout}, qr/Successfully installed/, "pip's own text");
is($res->{json}{exit_code}, 0, 'its exit status');
cmp_ok($res->{json}{duration_s}, '>', 0, 'and how long it took');

is(code('import sbx_one; sbx_one.x')->{text}, '42',
   'the context that runs imports it at once');
is(run('python3 -c "import sbx_one; print(sbx_one.x)"')->{stdout}, "42\n",
   'so does a command');
is(run('find /tmp /home/user -newer /etc/hostname -name ".install*"')
       ->{stdout}, '', 'and nothing of the call is left');

$res = install([ 'sbx-needy' ]);
is("$res->{status} $res->{json}{code}", '422 E3007', 'what cannot be had');
like($res->{json}{stderr}, qr/No matching distribution found for sbx-missing/,
     "pip's own text");
is($res->{json}{exit_code}, 1, 'and its exit status');

$res = install([ 'sbx-bad' ]);
is("$res->{status} $res->{json}{code}", '422 E3007',
   'what brings along what the operator denies');
is($res->{json}{package}, 'sbx-evil', 'is refused by its name');
is(run('ls /home/user/.local/lib/*/site-packages | grep -ic "evil\|bad"')
       ->{stdout}, "0\n", 'before anything is installed');

is(run('echo x > /opt/packages/pip/x')->{exit_code}, 2,
   'nobody writes what is shown');

my $r = run('pip install requests-sbx');

is($r->{exit_code}, 1, 'pip alone, without a network');
like($r->{stderr}, qr/Temporary failure in name resolution/, 'says so');
is(scalar(() = $r->{stderr} =~ /Retrying/g), 1, 'and does not go on trying');

$r = code("%pip install sbx-two\nimport sbx_two\nsbx_two.y");
is($r->{text}, '41', '%pip finds what is shown') or diag($r->{stdout});

is(install([ 'sbx-one' ], timeout_s => 0.05)->{json}{reason}, 'timeout',
   'a time-out');

$t->finish;


# ---- from an index -------------------------------------------------------

SKIP: {
    my $tool = "$SandboxTest::BUILD/sandbox-egress";
    skip 'there is no egress', 1 if !-x $tool;

    my $index = SandboxTest::Packages->serve("$dir/index", '127.0.0.5');
    my $at = '127.0.0.5:' . $index->port;

    local $ENV{SBX_SERVER} = 'known';

    begin("sandbox_egress allow $at; sandbox_egress allow 127.0.0.6:9;"
          . " sandbox_package_index pip http://$at/simple;"
          . " sandbox_package_cache $dir/cache;", network => JSON::PP::true);

    $res = install([ 'sbx-net' ]);
    is(installed($res), 'sbx-net 2.0', 'the newest of an index')
        or diag($res->{body}, join("\n", $index->asked), $t->log);
    is(installed(install([ 'sbx-kept' ])), 'sbx-kept 1.0',
       'what the cache has');
    is(scalar(grep { m{^/files/sbx_kept} } $index->asked), 0,
       'is not fetched');

    $r = code("!pip install -q sbx-live\nimport sbx_live\nsbx_live.z");
    is($r->{text}, '4', '!pip in a context has the same index')
        or diag($r->{stderr});

    # Package code is a command's.

    $res = install([ 'sbx-sdist' ], timeout_s => 300);
    is(installed($res), 'sbx-sdist 3.0', 'a package with a setup.py')
        or diag($res->{body});

    my $ran = run('cat setup-ran')->{stdout};
    like($ran, qr/\Auid 1000\n/, "that ran as the session's user");
    like($ran, qr/^raw PermissionError$/m, 'without raw sockets');
    like($ran, qr/^away \w*Error$/m, 'without a way past the egress');
    like($ran, qr/^shadow \w*Error$/m, 'without the accounts');
    like($ran, qr/^usr \w*Error$/m, 'without the programs');
    like($ran, qr/^server unknown$/m, "without the server's environment");

    my @left = grep { "@{ $_->{cmd} }" =~ /pip\.py/ }
               @{ $t->api(GET => "/sessions/$s/processes")
                    ->{json}{processes} };
    cmp_ok(scalar(grep { $_->{kind} eq 'orphan' } @left), '>', 0,
           'what it left behind is listed');
    is($t->api(POST => "/sessions/$s/cancel")->{status}, 200, 'and ended');
    is(run('pgrep -c sleep')->{stdout}, "0\n", 'for good');

    # What commands see of the network follows it.

    is(run('echo $PIP_RETRIES')->{stdout}, "3\n", 'pip tries again');
    is($t->api(PATCH => "/sessions/$s", { network => JSON::PP::false })
           ->{status}, 200, 'the network is taken away');
    is(run('echo $PIP_RETRIES')->{stdout}, "1\n", 'and does not any more');
    is(installed(install([ 'sbx-kept' ])), 'sbx-kept 1.0',
       'what is there needs none');

    # Without a grant of its own the index is of no use.

    $s = session(network => { allow => [ '127.0.0.6:9' ] });
    $res = install([ 'sbx-net' ]);
    is("$res->{status} $res->{json}{code}", '422 E3007',
       "an index that the session's manifest leaves out");

    $t->finish;
    $index->stop;
}


# ---- an index with a certificate of its own ------------------------------

SKIP: {
    my $tool = "$SandboxTest::BUILD/sandbox-egress";
    skip 'there is no egress', 1 if !-x $tool;
    skip 'openssl is not installed', 1 if !-x '/usr/bin/openssl';

    is(system('/usr/bin/openssl', 'req', '-x509', '-newkey', 'ec',
              '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes', '-days',
              '2', '-subj', '/CN=index', '-addext',
              'subjectAltName=IP:240.0.0.5', '-keyout', "$dir/key.pem",
              '-out', "$dir/cert.pem") >> 8, 0, 'a certificate');

    my $index = SandboxTest::Packages->serve("$dir/index", '127.0.0.5',
                                             "$dir/cert.pem",
                                             "$dir/key.pem");
    my $at = '127.0.0.5:' . $index->port;

    begin("sandbox_egress allow $at;"
          . " sandbox_package_index pip https://$at/simple"
          . " ca=$dir/cert.pem;", network => JSON::PP::true);

    is(installed(install([ 'sbx-net' ])), 'sbx-net 2.0', 'is trusted');
    is(run("curl -sS -o /dev/null https://240.0.0.5:" . $index->port
           . '/simple/sbx-net/ && echo yes')->{stdout}, "yes\n",
       'by other programs too');
    is(run('grep -c BEGIN /etc/ssl/certs/sandbox-egress.pem')->{stdout},
       "1\n", 'is in a file alone');
    cmp_ok(run('grep -c BEGIN /etc/ssl/certs/ca-certificates.crt')->{stdout},
           '>', 1, "and beside the machine's own");

    $t->finish;
    $index->stop;
}


done_testing();
