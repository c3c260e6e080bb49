#!/usr/bin/perl

# Directives of the egress: what is taken, and what "nginx -t" refuses with a
# line that says why.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";

use JSON::PP ();
use Test::More;
use SandboxTest;

my $t = SandboxTest->new;
my $p = $t->prefix;

sub write_file {
    my ($name, $text) = @_;

    open my $f, '>', "$p/$name" or die "$name: $!";
    print $f $text;
    close $f or die "$name: $!";
    return "$p/$name";
}

my $ca = `openssl req -x509 -newkey rsa:2048 -nodes -subj /CN=test \\
          -keyout /dev/null -days 1 2>/dev/null`;

mkdir "$p/v";
write_file('v/key', "Bearer 1234\n");
write_file('conf/key', 'x');
write_file('v/plain', 'x');
write_file('v/max', ('x' x 8192) . "\n");
write_file('v/long', 'x' x 8193);
write_file('v/longer', 'x' x 9000);
write_file('v/empty', '');
write_file('v/newline', "\n");
write_file('v/two', "a\nb\n");
write_file('v/return', "a\r\n");
write_file('v/nul', "a\0b");
write_file('v/ca', $ca);
symlink 'key', "$p/v/link" or die $!;
symlink 'nothing', "$p/v/dangling" or die $!;
system('mkfifo', "$p/v/fifo") == 0 or die 'no fifo';

my $v = "$p/v";


sub is_good {
    my ($name, $text) = @_;

    $t->write_conf(http => $text);
    my ($status, $out) = $t->nginx('-t');

    return is($status, 0, "good: $name") || diag($out);
}

sub is_bad {
    my ($text, $pattern) = @_;

    $t->write_conf(http => $text);
    my ($status, $out) = $t->nginx('-t');
    my @emerg = grep { /\[emerg\]/ } split /\n/, $out;

    return ok($status != 0 && @emerg == 1 && $emerg[0] =~ $pattern,
              'bad: ' . substr $text =~ s/\Q$v\E/V/gr, 0, 70)
           || diag($out);
}


subtest 'rules' => sub {
    is_good('one', 'sandbox_egress allow index.org;');
    is_good('many forms',
            'sandbox_egress allow index.org:443 *.example.org 198.51.100.0/24'
            . ' 2001:db8::/32 [2001:db8::1]:53 *:443;'
            . 'sandbox_egress deny *:25 10.0.0.0/8;'
            . 'sandbox_egress allow Index.org;');
    is_good('private ones', "sandbox_egress allow *;\n"
                            . 'sandbox_egress_private on;');
    is_good('none of them', 'sandbox_egress_private off;');

    for my $case (
        [ 'sandbox_egress permit a.org;', qr/"permit".*"allow" or "deny"/ ],
        [ 'sandbox_egress allow;', qr/invalid number of arguments/ ],
        [ 'sandbox_egress allow a.org 1.2.3;',
          qr/"1\.2\.3" in "sandbox_egress" directive: it looks like/ ],
        [ 'sandbox_egress allow https://a.org;', qr/is a URL/ ],
        [ 'sandbox_egress allow "";', qr/is empty/ ],
        [ 'sandbox_egress deny a.org:0;', qr/port/ ],
        [ 'sandbox_egress allow 10.0.0.1/8;', qr/"10\.0\.0\.0\/8" fits/ ],
        [ 'sandbox_egress allow a.*.org;', qr/"\*"/ ],
        [ 'sandbox_egress_private maybe;', qr/"maybe".*"on" or "off"/ ],
        [ 'sandbox_egress_private on; sandbox_egress_private off;',
          qr/duplicate/ ],
        [ 'sandbox_egress allow ' . join(' ', map { "h$_." . 'x' x 60 . '.org' }
                                         1 .. 1000) . ';',
          qr/more than 65536 bytes/ ],
        [ 'server { sandbox_egress allow a.org; }', qr/not allowed here/ ],
    ) {
        is_bad(@$case);
    }
};


subtest 'headers' => sub {
    my $set = 'sandbox_egress_header api.example.org Authorization';

    is_good('one', "$set $v/key;");
    is_good('in TLS', "$set $v/key tls;");
    is_good('by a link', "$set $v/link;");
    is_good('from where the configuration is', "$set key;");
    is_good('without a newline', "$set $v/plain;");
    is_good('of 8192 bytes', "$set $v/max;");
    is_good('of two hosts', "$set $v/key;\n"
            . "sandbox_egress_header b.org X-Key $v/key;");

    for my $case (
        [ "$set;", qr/invalid number of arguments/ ],
        [ "$set $v/key tls tls;", qr/invalid number of arguments/ ],
        [ "$set $v/key ssl;", qr/"ssl".*"tls"/ ],
        [ "$set $v/nothing;", qr/cannot open.*nothing.*No such file/ ],
        [ "$set $v/dangling;", qr/cannot open/ ],
        [ "$set $v;", qr/no regular file/ ],
        [ "$set $v/fifo;", qr/no regular file/ ],
        [ "$set /dev/zero;", qr/no regular file/ ],
        [ "$set \"\";", qr/no path/ ],
        [ "$set $v/empty;", qr/empty/ ],
        [ "$set $v/newline;", qr/empty/ ],
        [ "$set $v/long;", qr/more than 8192/ ],
        [ "$set $v/longer;", qr/at most 8193 bytes/ ],
        [ "$set $v/two;", qr/more than a line/ ],
        [ "$set $v/return;", qr/control character/ ],
        [ "$set $v/nul;", qr/control character/ ],
        [ "$set $v/key; $set $v/plain;", qr/has a header already/ ],
        [ "$set $v/key; sandbox_egress_header API.example.org X $v/key tls;",
          qr/has a header already/ ],
        [ "sandbox_egress_header *.a.org X $v/key;", qr/no host's name/ ],
        [ "sandbox_egress_header a.org:80 X $v/key;", qr/no host's name/ ],
        [ "sandbox_egress_header 192.0.2.1 X $v/key;", qr/no host's name/ ],
        [ "sandbox_egress_header a.org 'X Y' $v/key;", qr/name of a header/ ],
        [ "sandbox_egress_header a.org X: $v/key;", qr/name of a header/ ],
        [ "sandbox_egress_header a.org host $v/key;", qr/name of a header/ ],
        [ "sandbox_egress_header a.org Content-Length $v/key;",
          qr/name of a header/ ],
        [ join("\n", map { "sandbox_egress_header h$_.org X $v/key;" } 1 .. 33),
          qr/more than 32 headers/ ],
    ) {
        is_bad(@$case);
    }

    chmod 0644, "$v/key" or die $!;
    $t->write_conf(http => "$set $v/key;");
    my ($status, $out) = $t->nginx('-T');
    unlike($out, qr/1234/, 'a value is not in what nginx tells');
    like($out, qr/warn.*"\Q$v\E\/key" can be read by others/,
         'but who may read it is');

    chmod 0600, "$v/key" or die $!;
    ($status, $out) = $t->nginx('-t');
    unlike($out, qr/read by others/, 'if others may');
};


subtest 'resolvers and certificates' => sub {
    is_good('a resolver', 'sandbox_egress_resolver 192.0.2.53;');
    is_good('several', 'sandbox_egress_resolver 127.0.0.1:5353 [::1]:53'
                       . ' 2001:db8::53;');
    is_good('certificates', "sandbox_egress_ca $v/ca;");

    for my $case (
        [ 'sandbox_egress_resolver dns.example.org;', qr/no address of a/ ],
        [ 'sandbox_egress_resolver 192.0.2.0/24;', qr/no address of a/ ],
        [ 'sandbox_egress_resolver *;', qr/no address of a/ ],
        [ 'sandbox_egress_resolver 192.0.2.1:0;', qr/port/ ],
        [ 'sandbox_egress_resolver 192.0.2.1; '
          . 'sandbox_egress_resolver 192.0.2.2;', qr/duplicate/ ],
        [ 'sandbox_egress_resolver ' . join(' ', map { "192.0.2.$_" } 1 .. 9)
          . ';', qr/more than 8/ ],
        [ "sandbox_egress_ca $v/key;", qr/without a certificate/ ],
        [ "sandbox_egress_ca $v/nothing;", qr/cannot open/ ],
        [ "sandbox_egress_ca $v;", qr/no regular file/ ],
        [ "sandbox_egress_ca $v/ca; sandbox_egress_ca $v/ca;",
          qr/duplicate/ ],
    ) {
        is_bad(@$case);
    }
};


subtest 'templates' => sub {
    my $t1 = 'sandbox_template a';

    is_good('lines', "$t1 { egress allow a.org b.org:443; egress deny *:25;"
            . " egress_private on; egress_header a.org X $v/key tls;"
            . ' network on; }');
    is_good('on by what holds outside', "sandbox_egress allow a.org;\n"
            . "$t1 { network on; }");
    is_good('off', "$t1 { network off; }");
    is_good('each a header of its own for a host',
            "sandbox_egress_header a.org X $v/key;\n"
            . "$t1 { egress_header a.org X $v/key; }");

    for my $case (
        [ "$t1 { egress; }", qr/"egress" directive needs "allow" or "deny"/ ],
        [ "$t1 { egress allow; }", qr/needs "allow" or "deny", and what/ ],
        [ "$t1 { egress allow 1.2.3; }", qr/looks like an address/ ],
        [ "$t1 { egress_private; }", qr/needs "on" or "off"/ ],
        [ "$t1 { egress_private on on; }", qr/needs "on" or "off"/ ],
        [ "$t1 { egress_private on; egress_private on; }",
          qr/"egress_private" of template "a" is duplicate/ ],
        [ "$t1 { egress_header a.org X; }", qr/needs a host/ ],
        [ "$t1 { egress_header a.org X $v/empty; }", qr/empty/ ],
        [ "$t1 { network maybe; }", qr/"network maybe" in template "a"/ ],
        [ "$t1 { network; }", qr/needs one value/ ],
        [ "$t1 { network on; network off; }",
          qr/"network" of template "a" is duplicate/ ],
        [ "$t1 { network on; }",
          qr{template "a": /network: template "a" is given no network} ],
        [ "sandbox_egress allow a.org;\n$t1 { egress deny b.org; network on; }",
          qr/given no network/ ],
        [ "sandbox_egress allow a.org;\n$t1 { egress_private off; network on; }",
          qr/given no network/ ],
        [ "$t1 { egress_resolver 192.0.2.1; }", qr/unknown "egress_resolver"/ ],
    ) {
        is_bad(@$case);
    }
};


subtest 'files of templates' => sub {
    my $grant = 'sandbox_egress allow a.org *.b.org:443;';
    my $file = sub {
        my ($network) = @_;

        mkdir "$p/templates/f";
        return write_file('templates/f/template.json',
                          JSON::PP->new->encode({ network => $network }));
    };

    for my $case ([ JSON::PP::true, 'true' ], [ JSON::PP::false, 'false' ],
                  [ { allow => [ 'a.org:443' ] }, 'a part' ],
                  [ { allow => [] }, 'nothing' ],
                  [ { deny => [ '*:25' ] }, 'a denial' ])
    {
        $file->($case->[0]);
        is_good($case->[1], $grant);
    }

    for my $case (
        [ { allow => [ 'c.org' ] },
          qr{"f": /network/allow/0: "c\.org" is not within} ],
        [ { allow => [ 'a.org', '1.2' ] }, qr{/network/allow/1: looks like} ],
        [ { deny => [ '' ] }, qr{/network/deny/0: is empty} ],
        [ { accept => [] }, qr{/network/accept} ],
        [ 'on', qr{/network: must be true, false or an object} ],
    ) {
        $file->($case->[0]);
        is_bad($grant, $case->[1]);
    }

    $file->(JSON::PP::true);
    is_bad('', qr/given no network/);
};

$t->allow(qr/emerg/);
$t->finish;
done_testing();
