#!/usr/bin/perl

# A real npm: from tarballs that the operator shows, without a network, and
# from a registry on the host's loopback, by the egress.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";

use Test::More;
use SandboxTest;
use SandboxTest::Packages qw(make lacks);

my $why = lacks('npm');
plan(skip_all => $why) if $why;

my $dir = File::Temp->newdir('sbxpkgXXXXXX', TMPDIR => 1);

chmod 0755, "$dir";
mkdir "$dir/$_" or die $! for qw(shown index);

sub npm {
    my ($name, $version, %o) = @_;

    return { manager => 'npm', name => $name, version => $version, %o };
}

make("$dir/shown",
     npm('sbx-left', '1.0.0', files => { 'index.js' =>
                                             'module.exports = 1;' }),
     npm('sbx-left', '1.10.0', files => { 'index.js' =>
                                              'module.exports = 10;' }),
     npm('sbx-left', '2.0.0-rc.1', files => { 'index.js' =>
                                                  'module.exports = 20;' }),
     npm('@sbx/deep', '2.0.0', requires => { 'sbx-left' => '^1.2.0' },
         files => { 'index.js' =>
                        'module.exports = require("sbx-left") + 32;' }),
     npm('sbx-bad', '1.0.0', requires => { 'sbx-evil' => '*' }),
     npm('sbx-evil', '6.6.6'));

make("$dir/index",
     npm('sbx-net', '1.0.0', files => { 'index.js' =>
                                            'module.exports = "net";' }),
     npm('sbx-script', '1.0.0',
         scripts => { install => 'id -u > /home/user/script-ran' }),
     npm('sbx-mixed', '1.0.0', requires => { 'sbx-left' => '1.0.0' },
         files => { 'index.js' => 'module.exports = require("sbx-left");' }));


my ($t, $s);

sub begin {
    my ($conf, %manifest) = @_;

    $t = SandboxTest->new(http => $conf);
    $t->start;

    my $res = $t->api(POST => '/sessions',
                      { tenant_id => 'a', user_id => 'b',
                        manifest => { %manifest } });

    $s = $res->{json}{session_id} // diag($res->{body});

    return;
}

sub install {
    my ($packages, %o) = @_;

    return $t->api(POST => "/sessions/$s/install",
                   { packages => $packages, manager => 'npm',
                     timeout_s => 300, %o }, timeout => 120);
}

sub run {
    my ($cmd) = @_;

    return $t->api(POST => "/sessions/$s/exec", { cmd => $cmd },
                   timeout => 120)->{json};
}

sub code {
    my ($code) = @_;

    return $t->api(POST => "/sessions/$s/code",
                   { code => $code, language => 'javascript' },
                   timeout => 120)->{json};
}

sub installed {
    my ($res) = @_;

    my $list = $res->{json}{installed} // return $res->{body};

    return join ' ', sort map { "$_->{name} $_->{version}" } @$list;
}


# ---- without a network ---------------------------------------------------

begin("sandbox_package_wheels $dir/shown; sandbox_package deny npm sbx-evil;");

is(code('1 + 1')->{text}, '2', 'a context runs');

my $res = install([ '@sbx/deep@^2' ]);

is(installed($res), '@sbx/deep 2.0.0 sbx-left 1.10.0',
   'what the operator shows, with what it needs, by its range')
    or diag($res->{body});
like($res->{json}{stdout}, qr/added 2 packages/, "npm's own text");
is(code('require("@sbx/deep")')->{text}, '42',
   'the context that runs finds it at once');
is(run('node -p "require(\'@sbx/deep\')"')->{stdout}, "42\n",
   'so does a script of the workspace');
unlike(run('cat package-lock.json')->{stdout}, qr/127\.0\.0\.1/,
       'and where it came from is not written down');

is(installed(install([ 'sbx-left' ])), 'sbx-left 1.10.0',
   'what is there already is told too');

$res = install([ 'sbx-missing' ]);
is("$res->{status} $res->{json}{code}", '422 E3007', 'what cannot be had');
like($res->{json}{stderr}, qr/network of this session is off/, 'says why');

$res = install([ 'sbx-bad' ]);
is("$res->{status} $res->{json}{package}", '422 sbx-evil',
   'what brings along what the operator denies is refused by its name');
is(run('ls node_modules | grep -c "bad\|evil"')->{stdout}, "0\n",
   'before anything is installed');

my $r = run('npm install sbx-other');

isnt($r->{exit_code}, 0, 'npm alone, without a network');
like($r->{stderr}, qr/EAI_AGAIN|ENOTFOUND|ENETUNREACH/, 'says so');

$t->finish;


# ---- from a registry -----------------------------------------------------

SKIP: {
    my $tool = "$SandboxTest::BUILD/sandbox-egress";
    skip 'there is no egress', 1 if !-x $tool;

    my $index = SandboxTest::Packages->serve("$dir/index", '127.0.0.5');
    my $at = '127.0.0.5:' . $index->port;

    begin("sandbox_egress allow $at; sandbox_package_index npm http://$at/;"
          . " sandbox_package_cache $dir/shown;", network => JSON::PP::true);

    $res = install([ 'sbx-net' ]);
    is(installed($res), 'sbx-net 1.0.0', 'of a registry')
        or diag($res->{body}, join("\n", $index->asked), $t->log);
    is(code('require("sbx-net")')->{text} =~ s/['"]//gr, 'net',
       'for a context too');

    is(installed(install([ 'sbx-mixed' ])), 'sbx-left 1.0.0 sbx-mixed 1.0.0',
       'of both, the registry and the cache');
    is(scalar(grep { /sbx-left/ } $index->asked), 0,
       'what the cache has is not asked for');

    is(installed(install([ 'sbx-script' ])), 'sbx-script 1.0.0',
       'a package with a script');
    is(run('cat script-ran')->{stdout}, "1000\n",
       "runs it as the session's user");

    is(run('npm install --silent sbx-net && echo yes')->{stdout}, "yes\n",
       'npm in a command has the same registry');

    $res = install([ 'sbx-none' ]);
    is("$res->{status} $res->{json}{code}", '422 E3007', 'what it lacks');
    like($res->{json}{stderr}, qr/E404/, "in npm's own words");

    $t->finish;
    $index->stop;
}


done_testing();
