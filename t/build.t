#!/usr/bin/perl

# The build as a user meets it: twice is once, an install puts each file
# where Debian looks for it, and what it installs fits nginx.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";

use File::Find qw(find);
use File::Temp qw(tempdir);
use Test::More;
use SandboxTest;

my $root = $SandboxTest::ROOT;
my $build = $SandboxTest::BUILD;

my $missing = SandboxTest::missing();
plan(skip_all => $missing) if $missing;

delete @ENV{qw(MAKEFLAGS MAKELEVEL MFLAGS)};

my @make = ('make', '-C', $root, "BUILD=$build",
            $SandboxTest::SANITIZE ? 'SANITIZE=1' : ());


sub output {
    my (@command) = @_;

    open my $out, '-|', "@command 2>&1" or return (-1, '');
    local $/;
    my $text = <$out> // '';
    close $out;

    return ($? >> 8, $text);
}


my ($status, $text) = output(@make, '--no-print-directory', 'build');
is($status, 0, 'make build') or diag($text);
($status, $text) = output(@make, '--no-print-directory', 'build');
is($text, '', 'a second time does nothing');

my $empty = tempdir('sbxXXXXXX', TMPDIR => 1, CLEANUP => 1);

($status, $text) = output('make', '-C', $root, "BUILD=$empty/build",
                          "NGX_SRC=$empty", 'build');
isnt($status, 0, "without nginx's source it fails");
like($text, qr/nginx\.h is missing: install nginx-dev/, 'and says why');


# ---- what is built -------------------------------------------------------

my %want = (
    'ngx_http_sandbox_module.so' => qr/shared object/,
    'sandbox-broker' => qr/pie executable/,
    'sandbox-init' => qr/statically linked/,
    'sandboxctl' => qr/pie executable/,
);

SKIP: {
    skip 'file is not installed', scalar keys %want if !-x '/usr/bin/file';

    for my $name (sort keys %want) {
        like(`file -L $build/$name`, $want{$name}, "$name is of its kind");
    }
}

my @shown = grep { !/^_/ } map { (split ' ')[-1] }
            grep { / [A-TV-Z] / } `nm -D --defined-only $build/ngx_http_sandbox_module.so`;
is(join(' ', sort @shown),
   $SandboxTest::SANITIZE ? join(' ', sort @shown)
                          : 'ngx_module_names ngx_module_order ngx_modules',
   'the module shows nginx its tables and nothing else');

SKIP: {
    skip 'sanitizers change how programs are linked', 2
        if $SandboxTest::SANITIZE;

    for my $name ('sandbox-broker', 'ngx_http_sandbox_module.so') {
        my $d = `readelf -d -l $build/$name`;
        ok($d =~ /BIND_NOW|NOW/ && $d =~ /GNU_RELRO/
           && $d !~ /GNU_STACK.*\n.*RWE/, "$name is hardened");
    }
}


# ---- install -------------------------------------------------------------

my $dest = tempdir(CLEANUP => 1);

($status, $text) = output(@make, '--no-print-directory', "DESTDIR=$dest",
                          'install');
is($status, 0, 'make install') or diag($text);

my %mode = (
    'usr/lib/nginx/modules/ngx_http_sandbox_module.so' => 0644,
    'usr/lib/nginx/sandbox/sandbox-broker' => 0755,
    'usr/lib/nginx/sandbox/sandbox-init' => 0755,
    'usr/lib/nginx/sandbox/sandbox-session' => 0755,
    'usr/include/nginx-sandbox/sandbox_session.h' => 0644,
    'usr/lib/libsandbox_session.a' => 0644,
    'usr/lib/pkgconfig/sandbox-session.pc' => 0644,
    'usr/sbin/sandboxctl' => 0755,
    'usr/share/man/man8/sandboxctl.8' => 0644,
    'usr/share/nginx/modules-available/mod-http-sandbox.conf' => 0644,
    'etc/nginx/snippets/sandbox.conf' => 0644,
    'etc/nginx/snippets/sandbox-log.conf' => 0644,
    'etc/nginx/snippets/sandbox-errors.conf' => 0644,
    'etc/nginx/snippets/sandbox-errors-e2b.conf' => 0644,
    'etc/nginx/snippets/sandbox-ports.conf' => 0644,
    map({ ("etc/nginx/snippets/sandbox-identity/$_.conf" => 0644) }
        qw(admin certificates networks passwords rates request)),
    'lib/systemd/system/sandbox-broker.service' => 0644,
    'etc/logrotate.d/nginx-sandbox' => 0644,
    'usr/share/doc/nginx-sandbox/README.md' => 0644,
    'usr/share/doc/nginx-sandbox/SECURITY.md' => 0644,
    'usr/share/doc/nginx-sandbox/nginx.conf' => 0644,
    'usr/share/doc/nginx-sandbox/nginx-delegate.conf' => 0644,
    'usr/share/doc/nginx-sandbox/examples/run.c' => 0644,
);

for my $file (glob "$root/docs/*.md $root/docs/*.yaml $root/docs/*.svg") {
    my ($name) = $file =~ m{([^/]+)$};
    $mode{"usr/share/doc/nginx-sandbox/$name"} = 0644;
}

for my $file (glob "$root/sandbox_core/kernels/*/kernel.conf") {
    my ($name) = $file =~ m{([^/]+/kernel\.conf)$};
    $mode{"usr/lib/nginx/sandbox/kernels/$name"} = 0644;
}

for my $file (sort keys %mode) {
    my @st = stat "$dest/$file";
    is(@st ? sprintf('%04o %d', $st[2] & 07777, $st[4]) : 'missing',
       sprintf('%04o 0', $mode{$file}), $file);
}

ok(-d "$dest/usr/share/nginx-sandbox/templates", 'a place for templates');

# ... and whoever reads them there can follow what they link to.

my ($links, @astray) = 0;

for my $file (glob "$dest/usr/share/doc/nginx-sandbox/*.md") {
    for my $to (SandboxTest::slurp($file) =~ m{\]\(([\w./-]+)}g) {
        $links++;
        push @astray, $file =~ s{.*/}{}r . ": $to"
            if !-e "$dest/usr/share/doc/nginx-sandbox/$to";
    }
}

cmp_ok($links, '>', 100, 'installed documents have links');
is("@astray", '', 'that lead to what is installed');

($status, $text) = output('diff', '-r', "$build/kernels",
                          "$dest/usr/lib/nginx/sandbox/kernels");
is($text, '', 'kernels are installed as they were prepared');

my @writable;
find(sub {
    push @writable, $File::Find::name if !-l && ((stat)[2] & 022);
}, $dest);
is("@writable", '', 'nothing that others may write');


# ---- what systemd, logrotate and man make of it ---------------------------

SKIP: {
    skip 'systemd-analyze is not installed', 2
        if !grep { -x "$_/systemd-analyze" } split /:/, $ENV{PATH};

    my $units = tempdir(CLEANUP => 1);
    my $unit = SandboxTest::slurp(
        "$dest/lib/systemd/system/sandbox-broker.service");
    my $dropin = SandboxTest::slurp(
        "$dest/usr/share/doc/nginx-sandbox/nginx-delegate.conf");

    # where the programs are now
    $unit =~ s{=/usr/lib/nginx/sandbox/}{=$dest/usr/lib/nginx/sandbox/};

    for my $case ([ 'sandbox-broker.service', $unit ],
                  [ 'nginx-try.service', $dropin =~ s/^ExecStart=\n//mr ])
    {
        my ($name, $text) = @$case;
        open my $f, '>', "$units/$name" or die $!;
        print $f $text;
        close $f;

        my ($status, $said) = output('systemd-analyze', 'verify',
                                     "$units/$name");
        is($said =~ s/^(?!.*\Q$name\E).*\n//mgr, '', "systemd takes $name");
    }
}

SKIP: {
    skip 'logrotate is not installed', 1 if !-x '/usr/sbin/logrotate';

    my ($status, $said) = output('/usr/sbin/logrotate', '-d',
                                 "$dest/etc/logrotate.d/nginx-sandbox");
    is($status, 0, 'logrotate takes its file') or diag($said);
}

SKIP: {
    skip 'man is not installed', 1 if !-x '/usr/bin/man';

    my ($status, $said) = output('man', '--warnings', '-E', 'UTF-8', '-l',
                                 "$dest/usr/share/man/man8/sandboxctl.8");
    ok($status == 0 && $said =~ /SYNOPSIS/ && $said !~ /warning/,
       'man shows the page') or diag($said);
}


# The load file names the module as nginx finds it: below its prefix.  The
# snippets must be good where they are meant for.

my $p = tempdir(CLEANUP => 1);
chmod 0755, $p;
mkdir "$p/$_" for qw(modules logs snippets);
system('cp', $_, "$p/modules/")
    for "$dest/usr/lib/nginx/modules/ngx_http_sandbox_module.so";
system("cp -r $dest/etc/nginx/snippets/* $p/snippets/");

open my $f, '>', "$p/nginx.conf" or die $!;
print $f SandboxTest::slurp(
    "$dest/usr/share/nginx/modules-available/mod-http-sandbox.conf"), <<"CONF";
pid nginx.pid;
error_log logs/error.log;
events { }
http {
    include snippets/sandbox.conf;
    access_log logs/access.log sandbox;
    include snippets/sandbox-ports.conf;
    include snippets/sandbox-identity/[anpr]*.conf;
    server {
        listen 127.0.0.1:${\ SandboxTest::free_port() };
        include snippets/sandbox-errors.conf;
        location /v1/ { sandbox_api v1; }
    }
}
CONF
close $f;

my $env = SandboxTest->can('environment')->({ prefix => $p });
local %ENV = (%ENV, %$env);

($status, $text) = output($SandboxTest::NGINX, '-p', $p, '-e',
                          'logs/error.log', '-c', 'nginx.conf', '-t');
is($status, 0, 'nginx takes the load file and the snippets') or diag($text);

done_testing();
