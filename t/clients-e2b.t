#!/usr/bin/perl

# The SDKs of E2B, as npm has them, against the configuration that is shipped:
# by one address, and by names of hosts with TLS, which are all this machine.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";

use Digest::SHA qw(sha256_hex);
use Test::More;
use SandboxTest;
use SandboxTest::Node;

plan(skip_all => SandboxTest::missing()) if SandboxTest::missing();
plan(skip_all => 'openssl is not installed')
    if `openssl version 2>/dev/null` eq '';

my $node = SandboxTest::Node->new("$FindBin::Bin/clients/e2b-js");

plan(skip_all => $node->{why}) if $node->{why};

# Port 443 is a SDK's, with no way to say another: an address of our own.

my $address = join '.', 127, map { 2 + int rand 250 } 1 .. 3;
my $domain = 'sandbox.test';
my $key = 'e2b_' . 'ab12' x 10;
my $small = 'e2b_' . 'cd34' x 10;
my $told = 'e2b_' . '0' x 40;            # of the documents

my $t = SandboxTest->new(
    http => '    sandbox_egress allow *.example.org;',
    server => '        location /admin/ { sandbox_api admin; }',
    edit => sub {
        s/# sandbox_keys /sandbox_keys /;
        s/# listen 443 ssl http2;/listen $address:443 ssl http2;/g;
        s/# (ssl_certificate) [^;]+/$1 tls.pem/g;
        s/# (ssl_certificate_key) [^;]+/$1 tls.key/g;
    });
my $p = $t->prefix;


sub openssl {
    my (@arguments) = @_;

    system("openssl req -x509 -nodes -days 2 -newkey ec"
           . " -pkeyopt ec_paramgen_curve:prime256v1 @arguments"
           . " 2>>$p/logs/openssl") == 0
        or die 'openssl: ' . SandboxTest::slurp("$p/logs/openssl");

    return;
}

openssl("-subj /CN=test-ca -keyout $p/conf/ca.key -out $p/conf/ca.pem",
        '-addext basicConstraints=critical,CA:TRUE');
openssl("-subj /CN=$domain -CA $p/conf/ca.pem -CAkey $p/conf/ca.key",
        "-keyout $p/conf/tls.key -out $p/conf/tls.pem",
        "-addext subjectAltName=DNS:*.$domain",
        '-addext basicConstraints=critical,CA:FALSE');

open my $f, '>', "$p/conf/keys" or die $!;
print $f 'sha256:', sha256_hex($key), " acme-corp alice\n",
         'sha256:', sha256_hex($small), " acme-corp bob\n",
         'sha256:', sha256_hex($told), " acme-corp carol\n";
close $f;
chmod 0600, "$p/conf/keys";

$t->start;

is($t->api(PUT => '/quotas/acme-corp/bob', { sessions => 1 },
           base => '/admin')->{status}, 200, 'a user has a quota');

my %both = (E2B_API_KEY => $key, QUOTA_KEY => $small, ADDRESS => $address,
            NODE_EXTRA_CA_CERTS => "$p/conf/ca.pem",
            SANDBOX_TEST_SLOW => $SandboxTest::SLOW);
my $here = 'http://127.0.0.1:' . $t->port;

my %one = (%both, STYLE => 'one', E2B_API_URL => $here,
           E2B_SANDBOX_URL => $here, E2B_DOMAIN => undef);

for my $name ('README.md', 'docs/e2b.md') {
    my ($text) = SandboxTest::slurp("$SandboxTest::ROOT/$name")
                 =~ /^```js\n(.*?)^```$/ms;

    $text =~ s/127\.0\.0\.1:8080/127.0.0.1:@{[ $t->port ]}/g;
    my ($said, $status) = $node->output($text,
                                        { %one, E2B_API_KEY => $told });
    like("$status $said", qr/^0 (?:Hello\n)?42$/, "what $name shows");
}

$node->run('main.mjs', \%one, @ARGV);

$node->run('main.mjs', { %both, STYLE => 'names', E2B_DOMAIN => $domain,
                         E2B_API_URL => undef, E2B_SANDBOX_URL => undef },
           @ARGV);

$t->finish;
done_testing();
