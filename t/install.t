#!/usr/bin/perl

# The install call before anything runs: what may be asked for, what the
# operator's lists say of names, and what the configuration may have.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";

use Test::More;
use SandboxTest;
use SandboxTest::Packages qw(make);

plan(skip_all => 'python3 is not installed') if !-x '/usr/bin/python3';

my $dir = File::Temp->newdir('sbxpkgXXXXXX', TMPDIR => 1);

chmod 0755, "$dir";
mkdir "$dir/pip" or die $!;

my $t = SandboxTest->new(http => <<"CONF");
    sandbox_package deny pip Bad_Name evil-*;
    sandbox_package allow npm left-pad \@team/*;
    sandbox_package_wheels $dir;
CONF

$t->start;

my $s = $t->api(POST => '/sessions', { tenant_id => 'a', user_id => 'b' })
          ->{json}{session_id};

sub install {
    my ($packages, %o) = @_;

    return $t->api(POST => "/sessions/$s/install",
                   { packages => $packages, %o });
}

sub refused {
    my ($manager, $package, $name) = @_;

    my $res = install([ 'good', $package ], manager => $manager);

    return ok($res->{status} == 400 && $res->{json}{code} eq 'E3001'
              && $res->{json}{detail} =~ m{^/packages/1: },
              $name // "$manager: \"" . ($package =~ s/[^ -~]/?/gr) . '"')
           || diag("$res->{status} $res->{body}");
}

sub taken {
    my ($manager, $package) = @_;

    # A list that says no comes after what can be asked for at all.

    my $res = install([ $package, $manager eq 'pip' ? 'evil-one' : 'no' ],
                      manager => $manager);

    return ok($res->{status} == 422 && $res->{json}{code} eq 'E3007',
              "$manager takes \"$package\"")
           || diag("$res->{status} $res->{body}");
}


# ---- requirements --------------------------------------------------------

taken('pip', $_) for 'a', 'A.b_c-d', 'a==1', 'a == 1.0.*', 'a>=1,<2, !=1.5',
    'a~=1.4', 'a===1+local', 'a[x]', 'a [x, y_z] >= 2',
    'a; python_version < "3.8"', 'a==1!2.0; sys_platform == \'win32\' and '
    . '(extra == "x" or os_name != "nt")';

refused('pip', $_) for '', ' a', '-r', '-rx', '--index-url=x', '.', './a',
    '../a', '/a', '~/a', '_a', 'a-', 'a/b', 'a\\b', "a\n-r b", "a\0", "a\x7f",
    "a\t", 'a b', 'a==', 'a=1', 'a==1 2', 'a==1,', 'a>', 'a[', 'a[x', 'a[]',
    'a[x,]', 'a[x y]', 'a@b', 'a @ file', 'a @ http://x/y', 'git+ssh://x',
    'file:a', 'http://x', 'a.whl', 'a.zip', 'a.tar.gz', 'a==1.tgz', 'a;',
    'a; `id`', 'a; $(id)', 'a; b|c', "a\x{e9}", 'a' x 1025, 'a' x 215;

taken('npm', $_) for 'left-pad', '@team/a', 'left-pad@1', 'left-pad@latest',
    'left-pad@^1.2.3', '@team/a@~1.0.0-rc.1', 'left-pad@>=1 <2 || 3.x',
    'left-pad@1.0.0+build';

refused('npm', $_) for '', ' a', '-g', '--prefix=x', '.', './a', '/a', '~/a',
    '_a', 'a/b', '@a', '@a/', '@/a', '@a/b/c', 'a@', 'a@.', 'a@./x', 'a@../x',
    'a@/x', 'a@~/x', 'a@b/c', 'a@npm:b', 'npm:a', 'a@file:x', 'git+ssh://x',
    'github:a/b', 'a@http://x', 'a.tgz', 'a@x.tgz', 'a@x.tar.gz', 'a@1.tar',
    "a\nb", "a\0", 'a@1;id', 'a@$(id)', 'a' x 215;

for my $body ({}, { packages => [] }, { packages => 'a' },
              { packages => [ 1 ] }, { packages => [ ('a') x 257 ] },
              { packages => [ 'a' ], manager => 'apt' },
              { packages => [ 'a' ], timeout_s => -1 },
              { packages => [ 'a' ], more => 1 })
{
    my $res = $t->api(POST => "/sessions/$s/install", $body);
    is("$res->{status} $res->{json}{code}", '400 E3001',
       'refused: ' . JSON::PP->new->canonical->encode($body));
}


# ---- names that the operator has lists of --------------------------------

for my $name ('bad-name', 'BAD.Name==1', 'Bad__name[x]', 'evil-thing',
              'Evil_Thing')
{
    my $res = install([ 'fine', $name ]);
    my ($package) = $name =~ /^([\w.-]+)/;

    is("$res->{status} $res->{json}{code}", '422 E3007', "denied: $name");
    is($res->{json}{package}, $package, 'and which it is');
    like($res->{json}{detail}, qr/\Q"$package"\E/, 'in words too');
    is($res->{json}{exit_code}, undef, 'nothing has run');
}

for my $name ('other', '@other/a', 'left-pad-more') {
    my $res = install([ '@team/x', $name ], manager => 'npm');
    is("$res->{status} $res->{json}{package}", "422 $name",
       "not among those allowed: $name");
}

is(scalar(@{ $t->api(GET => "/sessions/$s/processes")->{json}{processes} }),
   0, 'no process was started by any of these');

{
    my $res = install([ 'x' ], timeout_s => 1e7);
    is($res->{status}, 422, 'no maximum of configuration, none here');
}

$t->api(POST => "/sessions/$s/pause");
is(install([ 'a' ])->{json}{code}, 'E2010', 'a paused session');
$t->api(DELETE => "/sessions/$s");
is(install([ 'a' ])->{json}{code}, 'E2009', 'one that has gone');

$t->finish;


# ---- without anything to install from ------------------------------------

{
    my $off = SandboxTest->new(http => 'sandbox_package deny pip evil;');
    $off->start;

    my $id = $off->api(POST => '/sessions', { tenant_id => 'a',
                                              user_id => 'b' })
                 ->{json}{session_id};

    for my $manager ('pip', 'npm') {
        my $res = $off->api(POST => "/sessions/$id/install",
                            { packages => [ 'evil' ], manager => $manager });
        is("$res->{status} $res->{json}{code}", '403 E3003',
           "$manager without a network");
    }

    $off->finish;
}


# ---- configuration -------------------------------------------------------

my $c = SandboxTest->new;

sub conf {
    my ($lines) = @_;

    $c->write_conf(http => $lines);

    return $c->nginx('-t');
}

sub good {
    my ($lines) = @_;

    my ($status, $text) = conf($lines);

    return is($status, 0, "good: $lines") || diag($text);
}

sub bad {
    my ($lines, $pattern) = @_;

    my ($status, $text) = conf($lines);

    return ok($status != 0 && $text =~ $pattern, "bad: $lines")
           || diag($text);
}

mkdir "$dir/closed" or die $!;
chmod 0700, "$dir/closed";
open my $f, '>', "$dir/not-a-certificate" or die $!;
close $f;

good("sandbox_package_index pip $_;") for 'https://pypi.example.org/simple',
    'http://127.0.0.5:8080/simple/', 'https://[2001:db8::1]:443/simple',
    'http://localhost/', 'https://192.0.2.1';
good('sandbox_package_index npm https://npm.example.org/;'
     . ' sandbox_package_index pip https://x.example.org;');
good("sandbox_package_wheels $dir; sandbox_package_cache $dir;");
good('sandbox_package allow pip numpy; sandbox_package allow pip *;');

bad("sandbox_package_index pip $_;", qr/invalid value/)
    for 'ftp://x', 'https://', 'https://user:secret@x/', 'https://x/?q',
    'https://x/#y', '"https://x/a b"', 'http://[::1]/', 'http://[::1',
    'http://x:y/', 'http://-x/', 'x', 'https://' . 'x' x 600;
bad('sandbox_package_index gem https://x;', qr/"pip" or "npm"/);
bad('sandbox_package_index pip https://x; sandbox_package_index pip '
    . 'https://y;', qr/duplicate "pip"/);
bad('sandbox_package_index pip http://x ca=/etc/passwd;', qr/left out/);
bad('sandbox_package_index pip https://x cert=y;', qr/"ca=" and a file/);
bad("sandbox_package_index pip https://x ca=$dir/none;", qr/cannot read/);
bad("sandbox_package_index pip https://x ca=$dir/not-a-certificate;",
    qr/certificates/);
bad("sandbox_package_wheels $_;", qr/directory|absolute path/)
    for "$dir/none", 'relative', '/', '/etc/passwd';
bad("sandbox_package_wheels $dir/closed;", qr/chmod/);
bad("sandbox_package_cache $dir; sandbox_package_cache $dir;",
    qr/is duplicate/);
bad('sandbox_package permit pip x;', qr/"allow" or "deny"/);
bad('sandbox_package allow gem x;', qr/"pip" or "npm"/);
bad('sandbox_package allow pip;', qr/needs the name|invalid number/);
bad("sandbox_package allow pip $_;", qr/name of a package/)
    for '-x', 'a/b', 'a*b', '"a b"', '.';

$c->allow(qr{\[emerg\]});
$c->finish;
done_testing();
