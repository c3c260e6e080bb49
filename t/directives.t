#!/usr/bin/perl

# Every directive: good values, wrong ones that "nginx -t" refuses with a line
# that quotes them, duplicates, and where each may be.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";

use Test::More;
use SandboxTest;

my $t = SandboxTest->new;
my $p = $t->prefix;


# "nginx -t" with lines of the http, server and location blocks.

sub try_conf {
    my (%o) = @_;

    my $location = $o{at} // '/v1/';
    my $text = <<"CONF";
load_module modules/ngx_http_sandbox_module.so;
user www-data;
pid nginx.pid;
error_log logs/error.log notice;
events { }
http {
    client_body_temp_path client_body_temp;
    proxy_temp_path proxy_temp;
    fastcgi_temp_path fastcgi_temp;
    uwsgi_temp_path uwsgi_temp;
    scgi_temp_path scgi_temp;
    @{[$o{http} // '']}
    server {
        listen 127.0.0.1:%%PORT%%;
        @{[$o{server} // '']}
        location $location {
            @{[$o{location} // 'sandbox_api v1;']}
        }
    }
}
CONF

    $t->write_conf(conf => $text);

    return $t->nginx('-t');
}

sub is_good {
    my ($name, %o) = @_;

    my ($status, $text) = try_conf(%o);

    return is($status, 0, "good: $name") || diag($text);
}

sub is_bad {
    my ($name, $pattern, %o) = @_;

    my ($status, $text) = try_conf(%o);
    my @emerg = grep { /\[emerg\]/ } split /\n/, $text;

    return ok($status != 0 && @emerg == 1 && $emerg[0] =~ $pattern,
              "bad: $name") || diag($text);
}


is_good('nothing but an API');
is_good('no API at all', location => 'return 204;');

my @good = (
    'sandbox_state_dir state;', "sandbox_state_dir $p/state;",
    'sandbox_state_dir .;',
    'sandbox_template_dir templates;', 'sandbox_helper_dir helpers;',
    'sandbox_uid_range 65536-131071;',
    'sandbox_uid_range 1879048192-2147418111;',
    'sandbox_uid_range 131072-300000;',
    'sandbox_cgroup auto;', 'sandbox_cgroup /sandbox/a..b;',
    'sandbox_default memory=256MB cpus=0.5;',
    'sandbox_default memory=16MB; sandbox_default cpus=2;',
    'sandbox_default cpu_seconds=none exec_timeout=none;',
    'sandbox_default memory=8GB; sandbox_max memory=8GB;',
    'sandbox_max memory=16MB;', 'sandbox_max exec_timeout=30;',
    'sandbox_default max_file_size=1MB inodes=256 stack=64KB;',
    'sandbox_exec_timeout 500ms;', 'sandbox_exec_timeout 1m30s;',
    'sandbox_storage image /var/lib/sandbox;',
    'sandbox_require_isolation off;',
    'sandbox_max_json 1k;', 'sandbox_max_json 64m;',
    'sandbox_max_upload 0;', 'sandbox_max_upload 10g;',
);

is_good($_, http => $_) for @good;

for my $size ('sandbox_max_json 2m;', 'sandbox_max_upload 2m;') {
    is_good("$size in all contexts", http => $size, server => $size,
            location => "sandbox_api v1; $size");
}

my @bad = (
    [ 'sandbox_state_dir', '""' ],
    [ 'sandbox_template_dir', '""' ], [ 'sandbox_helper_dir', '""' ],
    [ 'sandbox_uid_range', '65536' ], [ 'sandbox_uid_range', '0-65535' ],
    [ 'sandbox_uid_range', '65537-140000' ],
    [ 'sandbox_uid_range', '65536-131070' ],
    [ 'sandbox_uid_range', '131072-65536' ],
    [ 'sandbox_uid_range', '65536-4294967295' ],
    [ 'sandbox_uid_range', '65536-99999999999' ],
    [ 'sandbox_uid_range', '-131071' ], [ 'sandbox_uid_range', '65536-' ],
    [ 'sandbox_uid_range', '65536-x' ], [ 'sandbox_uid_range', '1-2-3' ],
    [ 'sandbox_cgroup', 'sandbox' ], [ 'sandbox_cgroup', '/a/../b' ],
    [ 'sandbox_cgroup', '/a/..' ], [ 'sandbox_cgroup', '""' ],
    [ 'sandbox_cgroup', 'AUTO' ],
    [ 'sandbox_exec_timeout', '0' ], [ 'sandbox_exec_timeout', '-1' ],
    [ 'sandbox_exec_timeout', 'soon' ],
    [ 'sandbox_storage', 'floppy' ], [ 'sandbox_storage', '""' ],
    [ 'sandbox_require_isolation', 'maybe' ],
    [ 'sandbox_max_json', '0' ], [ 'sandbox_max_json', '100' ],
    [ 'sandbox_max_json', '2g' ], [ 'sandbox_max_json', 'big' ],
    [ 'sandbox_max_json', '-1' ],
    [ 'sandbox_max_upload', '-1' ], [ 'sandbox_max_upload', 'big' ],
);

for my $row (@bad) {
    my ($name, $value) = @$row;
    my $quoted = quotemeta($value eq '""' ? '' : $value);

    is_bad("$name " . substr($value, 0, 40), qr/"$quoted".*"$name"/,
           http => "$name $value;");
}

for my $name (qw(sandbox_state_dir sandbox_template_dir sandbox_helper_dir)) {
    is_bad("$name, too long",
           qr/path in "$name" directive is longer than 3968 bytes: "xxx/,
           http => "$name " . 'x' x 4000 . ';');
}

for my $name (qw(sandbox_default sandbox_max)) {
    for my $value ('memory', '=5', 'memory=', 'memory=x', 'memory=1MB',
                   'memory=none', 'memory=-5', 'memory=1.5GB',
                   'memory=99999999999999999999', 'cpus=0', 'cpus=0.0001',
                   'processes=7', 'open_files=15', 'disk=1KB',
                   'MEMORY=64MB', 'colour=red', 'timeout=none')
    {
        is_bad("$name $value", qr/"\Q$value\E".*"$name"/,
               http => "$name cpus=1 $value;");
    }

    is_bad("$name twice for one limit",
           qr/duplicate parameter "memory=64MB" in "$name"/,
           http => "$name memory=32MB; $name memory=64MB;");
}

is_bad('a default above its built-in maximum',
       qr/"memory=8589934592" is above its maximum "memory=4294967296"/,
       http => 'sandbox_default memory=8GB;');
is_bad('a default above its maximum, whatever comes first',
       qr/"disk=67108864" is above its maximum "disk=33554432"/,
       http => 'sandbox_max disk=32MB; sandbox_default disk=64MB;');
is_bad('a directory in memory',
       qr/"sandbox_storage tmpfs" has no directory, but "\/var" is given/,
       http => 'sandbox_storage tmpfs /var;');
is_bad('a time-out above its maximum',
       qr/"exec_timeout=60" is above its maximum "exec_timeout=30"/,
       http => 'sandbox_exec_timeout 60s; sandbox_max exec_timeout=30;');
is_bad('no time-out above a maximum',
       qr/"exec_timeout=none" is above its maximum "exec_timeout=30"/,
       http => 'sandbox_default exec_timeout=none;'
               . ' sandbox_max exec_timeout=30;');

for my $line ('sandbox_state_dir a;', 'sandbox_template_dir a;',
              'sandbox_helper_dir a;', 'sandbox_uid_range 65536-131071;',
              'sandbox_cgroup auto;', 'sandbox_cgroup /a;',
              'sandbox_exec_timeout 1s;', 'sandbox_require_isolation on;',
              'sandbox_storage tmpfs;',
              'sandbox_max_json 1m;', 'sandbox_max_upload 1m;')
{
    my ($name) = split ' ', $line;
    is_bad("$line twice", qr/"$name" directive is duplicate/,
           http => "$line $line");
}

is_bad('one time-out by two names',
       qr/"sandbox_exec_timeout" directive is duplicate/,
       http => 'sandbox_default exec_timeout=5; sandbox_exec_timeout 5s;');

mkdir "$p/offered" or die $!;
mkdir "$p/owned" or die $!;
mkdir "$p/half" or die $!;
chown 12345, 12345, "$p/owned" or die $!;
chown 12345, 0, "$p/half" or die $!;
symlink 'owned', "$p/link" or die $!;

is_good($_, http => $_)
    for "sandbox_bind models $p/offered ro;",
        "sandbox_bind a.b_c-9 $p/owned rw tenant=acme tenant=other\@x;",
        "sandbox_bind a $p/link rw; sandbox_bind b $p/owned ro;",
        "sandbox_bind " . 'n' x 64 . " $p/offered ro;";

for my $row (
    [ 'no mode', "models $p/offered", qr/"sandbox_bind" directive needs/ ],
    [ 'a directory that is not there', "models $p/none ro",
      qr{"\Q$p\E/none" in "sandbox_bind" directive is no directory.*No such} ],
    [ 'a file', "models $p/conf/nginx.conf ro", qr/is no directory/ ],
    [ 'a relative path', 'models offered ro',
      qr/"offered" in "sandbox_bind" .*absolute/ ],
    [ 'the root', 'models / ro', qr{"/" in "sandbox_bind" .*below} ],
    [ 'the root, otherwise', 'models /usr/.. ro', qr{below the root} ],
    [ 'a wrong mode', "models $p/offered rx", qr/"rx" .*"ro" or "rw"/ ],
    [ 'a wrong name', "Models $p/offered ro", qr/"Models" .*a name of/ ],
    [ 'a long name', 'n' x 65 . " $p/offered ro", qr/a name of/ ],
    [ 'a name that is a path', "a/b $p/offered ro", qr/a name of/ ],
    [ 'a name twice', "a $p/owned ro; sandbox_bind a $p/offered ro",
      qr/duplicate name "a" in "sandbox_bind"/ ],
    [ 'a wrong tenant', "a $p/offered ro tenant=-x", qr/"tenant=-x"/ ],
    [ 'a wrong parameter', "a $p/offered ro user=x", qr/"user=x"/ ],
    [ "root's, for writing", "a $p/offered rw", qr/belongs to .* root/ ],
    [ "group root's, for writing", "a $p/half rw", qr/belongs to .* root/ ],
    [ 'more than fits', join('; sandbox_bind ', map {
          "a$_ $p/offered ro " . join ' ', map { 'tenant=' . 't' x 120 } 1 .. 5
      } 1 .. 60), qr/take more than 32768 bytes/ ] )
{
    is_bad("sandbox_bind: $row->[0]", $row->[2],
           http => "sandbox_bind $row->[1];");
}

is_bad('an API of another name', qr/"v2" in "sandbox_api"/,
       location => 'sandbox_api v2;');
is_bad('an API twice', qr/"sandbox_api" directive is duplicate/,
       location => 'sandbox_api v1; sandbox_api v1;');
is_bad('ports without time', qr/"sandbox_port_timeout" directive|value must be/,
       location => 'sandbox_api v1; sandbox_port_timeout 0;');
is_bad('an API and ports by name',
       qr/"sandbox_port_host" directive cannot be where "sandbox_api" is/,
       location => 'sandbox_api v1; sandbox_port_host ports.localhost;');
is_bad('ports by name and an API',
       qr/"sandbox_api" directive cannot be where "sandbox_port_host" is/,
       location => 'sandbox_port_host ports.localhost; sandbox_api v1;');
is_bad('an API in a regex', qr/"sandbox_api v1" .* not in "\^\/v1\/"/,
       at => '~ ^/v1/');
is_bad('an API in a named location', qr/"sandbox_api v1" .* not in "\@api"/,
       at => '@api');
is_bad('an API outside of a location', qr/"sandbox_api".* is not allowed/,
       http => 'sandbox_api v1;');

for my $name (qw(sandbox_state_dir sandbox_default sandbox_uid_range)) {
    is_bad("$name in a server", qr/"$name" directive is not allowed/,
           server => "$name x;");
}

# nothing of all that started anything

ok(!-e "$p/sandbox" && !-e "$p/state" && !-e "$p/broker.sock",
   '"nginx -t" leaves no state directory');

unlink "$p/nginx.pid";
$t->allow(qr/\[emerg\]/);
$t->finish;

done_testing();
