#!/usr/bin/perl

# What the documents show is what works: nginx takes every block of
# configuration, a server answers every command with what is no error, and
# JSON is JSON.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";

use JSON::PP ();
use Test::More;
use SandboxTest;
use SandboxTest::More;

my $ROOT = $SandboxTest::ROOT;


# [ name with line, text ] of each block of a kind.

sub blocks {
    my ($kind) = @_;

    my @found;

    for my $file ("$ROOT/README.md", sort glob "$ROOT/docs/*.md") {
        my $text = SandboxTest::slurp($file);
        my ($name) = $file =~ m{([^/]+)$};

        while ($text =~ /^```\Q$kind\E\n(.*?)^```$/msg) {
            my $line = 1 + (substr($text, 0, $-[0]) =~ tr/\n//);
            push @found, [ "$name:$line", $1 ];
        }
    }

    return @found;
}


# ---- configuration -------------------------------------------------------

my $t = SandboxTest->new(
    workers => 1,
    http => "    sandbox_quota user sessions=100;\n",
    server => <<'CONF')->start;
        location /admin/ { sandbox_api admin; }
        location = /metrics { sandbox_api metrics; }
CONF

my $p = $t->prefix;
my $tls = (grep { -x "$_/openssl" } split /:/, $ENV{PATH})
          && system("openssl req -x509 -newkey rsa:2048 -nodes -days 2"
                    . " -subj /CN=x -keyout $p/tls.key -out $p/tls.pem"
                    . " 2>$p/logs/openssl") == 0;

# what the reader has made by then

open my $keys, '>', "$p/conf/keys" or die $!;
print $keys 'sha256:', '0' x 64, " acme-corp alice\n";
close $keys;
chmod 0600, "$p/conf/keys";

open my $token, '>', "$p/conf/api.token" or die $!;
print $token "Bearer 1234\n";
close $token;

mkdir "$p/conf/snippets";
system("cp $ROOT/conf/sandbox*.conf $p/conf/snippets/");


sub takes {
    my ($where, $text) = @_;

    # what the reader has and this machine has not

    $text =~ s{/etc/nginx/clients-ca\.pem}{$p/tls.pem}g;
    $text =~ s{/etc/ssl/mirror\.pem}{$p/tls.pem}g;
    $text =~ s{/srv/packages}{$p/templates}g;
    $text =~ s{/run/nginx-sandbox|/var/lib/nginx-sandbox}{$p/$&}g;
    $text =~ s/^\s*#.*\n//mg;

    my $certificate = $text =~ /ssl_verify_client/ && $tls
        ? "ssl_certificate $p/tls.pem; ssl_certificate_key $p/tls.key;" : '';
    my %in = (http => $text);

    if ($where eq 'server') {
        $in{http} = "server { listen 127.0.0.1:8080; $text }";
    } elsif ($where eq 'location') {
        $in{http} = 'server { listen 127.0.0.1:8080;'
                    . " location /here/ { $text } }";
    }

    open my $f, '>', "$p/conf/block.conf" or die $!;
    print $f "load_module modules/ngx_http_sandbox_module.so;\n",
             "pid block.pid; events { }\nhttp {\n",
             "map \$host \$variable { default x; }\n", $certificate, "\n",
             "$in{http}\n}\n";
    close $f;

    my $env = $t->environment;
    local %ENV = (%ENV, %$env);
    open my $out, '-|', "$SandboxTest::NGINX -p $p -e logs/block.log"
                        . ' -c conf/block.conf -t 2>&1' or die $!;
    my $said = join '', <$out>;

    return (close $out, $said);
}

subtest 'nginx takes every block' => sub {
    my @blocks = blocks('nginx');
    cmp_ok(scalar @blocks, '>', 12, 'there are some');

    for my $block (@blocks) {
        my ($name, $text) = @$block;
        my @said;

        if (!$tls && $text =~ /ssl_/) {
            note("$name: openssl is not installed");
            next;
        }

        for my $where (qw(http server location)) {
            my ($ok, $said) = takes($where, $text);
            @said = $ok ? () : (@said, "$where: $said");
            last if $ok;
        }

        is("@said", '', $name);
    }
};

subtest 'nginx takes every default' => sub {
    my $text = SandboxTest::slurp("$ROOT/docs/directives.md");

    for my $default ($text =~ /^\| Default \| `([^`]+)` \|$/mg) {
        my ($ok, $said) = takes('http', $default);
        ok($ok, $default) or diag($said);
    }
};


# ---- JSON ----------------------------------------------------------------

subtest 'JSON is JSON' => sub {
    for my $block (blocks('json')) {
        my ($name, $text) = @$block;

        # "…" stands for what is left out
        ok(eval { JSON::PP->new->utf8->decode($text) }, $name) or diag($@);
    }
};


# ---- commands ------------------------------------------------------------

# Those of one document run one after the other in one shell, with the
# session that the document has made, or one that is made for it.

sub with_document {
    my ($name, @texts) = @_;

    my $text = join "\n", @texts;
    my $api = 'http://127.0.0.1:' . $t->port . '/v1';

    # operators have a port of their own, here it is one

    $text =~ s/127\.0\.0\.1:808[02]/127.0.0.1:@{[ $t->port ]}/g;

    my $made = $t->session(manifest =>
                           { capabilities => [ qw(shell files code ports) ] });
    my $script = <<"SH";
set -u
cd $p
api=$api
s=$made
curl() {
    echo "= curl \$*" >&2
    command curl --noproxy '*' --max-time 20 --retry 20 --retry-delay 1 "\$@" \\
        | tee /dev/fd/2
    echo "
= status \${PIPESTATUS[0]}" >&2
}
echo 'a file' > data.txt
command curl -s -X PUT \$api/sessions/\$s/files/src/x -d x > /dev/null
$text
SH

    open my $f, '>', "$p/$name.sh" or die $!;
    print $f $script;
    close $f;

    return `bash $p/$name.sh 2>&1 >/dev/null`;
}

my %of;

for my $block (blocks('sh')) {
    my ($name, $text) = @$block;

    # what installs, builds, or never ends, is for others to show

    next if $text !~ /curl/ || $text =~ /apt-get|systemctl|-sN|\.\/bootstrap/;
    push @{ $of{ $name =~ s/:.*//r } }, $text;
}

for my $name (sort keys %of) {
    subtest "commands of $name" => sub {
        my $said = with_document($name, @{ $of{$name} });
        my @calls = split /^= curl /m, $said;

        shift @calls;
        cmp_ok(scalar @calls, '>=', 1, 'there are some');

        for my $call (@calls) {
            my ($what) = $call =~ /\A(.{0,70})/;
            my ($status) = $call =~ /^= status (\d+)$/m;

            is($status, 0, $what) or diag($call);

            # a program that was just started may listen a moment later
            $call =~ s/\{"status":502[^}]*\}(?=[^\n])//g;
            unlike($call, qr/"code":"E\d/, 'and is no error');
        }
    };
}

$t->finish;
done_testing();
