#!/usr/bin/perl

# The status page: what it is served with, what it gets, and what a browser
# makes of it.  SANDBOX_SCREENSHOT names a file for what that shows.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";

use Digest::SHA qw(sha256_base64);
use File::Temp qw(tempdir);
use Test::More;
use SandboxTest;
use SandboxTest::More;

my $t = SandboxTest->new(
    http => "    sandbox_quota node sessions=40;\n"
            . "    sandbox_quota user=acme/bob sessions=1;",
    server => <<'CONF')->start;
        location /status { sandbox_api status; }
CONF

my $evil = q(<img src=x onerror="document.title='injected'">);
my $id = $t->api(POST => '/sessions',
                 { tenant_id => 'acme', user_id => 'ann',
                   metadata => { "<script>document.title='injected'</script>"
                                 => $evil, "a'\"&lt;" => '</script><b>' } })
         ->{json}{session_id};
$t->session(tenant_id => 'acme', user_id => 'bob');
$t->api(POST => '/sessions', { tenant_id => 'acme', user_id => 'bob' });

for my $name ('<b>x</b>', q("onload="x), 'a&lt;b') {
    is($t->api(POST => '/sessions', { tenant_id => $name, user_id => 'u' })
       ->{status}, 400, "no tenant is named $name");
}

my $page = $t->http(GET => '/status/');
is($page->{status}, 200, 'the page');
is($page->{headers}{'content-type'}, 'text/html; charset=utf-8', 'is HTML');

my $csp = $page->{headers}{'content-security-policy'};
like($csp, qr/^default-src 'none';/, 'allows nothing but');
unlike($csp, qr/unsafe/, 'nothing unsafe');

for my $tag (qw(script style)) {
    my ($text) = $page->{body} =~ m{<$tag>(.*?)</$tag>}s;
    my $hash = sha256_base64($text);
    $hash .= '=' while length($hash) % 4;
    like($csp, qr/$tag-src 'sha256-\Q$hash\E'(?:;|$)/, "its own $tag");
}

unlike($page->{body}, qr{https?://|\bsrc=|\bon\w+="}, 'it loads nothing');
unlike($page->{body}, qr/innerHTML|insertAdjacent|document\.write|eval\(/,
       'and makes no markup of data');
is($t->http(GET => '/status')->{status}, 200, 'without the slash as well');
is($t->http(POST => '/status/')->{status}, 405, 'no POST');
is($t->http(GET => '/status/health')->{status}, 404, 'no other route');

my $data = $t->http(GET => '/status/data');
my $d = eval { SandboxTest::More::parse($data->{body}) } // {};
is($d->{sessions}{running}, 2, 'its data: sessions');
is("$d->{used}{sessions} $d->{limits}{sessions}", '2 40', 'use and limits');
is($d->{limits}{memory}, undef, 'what has no limit');

SandboxTest::wait_for(sub {
    $d = SandboxTest::More::parse($t->http(GET => '/status/data')->{body});
    return @{ $d->{refusals} };
}, 5);
is_deeply($d->{refusals}, [ { scope => 'user', resource => 'sessions',
                              count => 1 } ], 'refusals');

my $l = SandboxTest::More::parse(
            $t->http(GET => '/status/sessions?limit=100')->{body});
is(scalar @{ $l->{sessions} }, 2, 'and sessions');


subtest 'in a browser' => sub {
    my ($chromium) = grep { -x } map { "$_/chromium" }
                     split /:/, $ENV{PATH} . ':/usr/bin';
    plan(skip_all => 'chromium is not installed') if !$chromium;

    my $home = tempdir(CLEANUP => 1);
    my $shot = $ENV{SANDBOX_SCREENSHOT} // "$home/status.png";
    my $url = 'http://127.0.0.1:' . $t->port . '/status/';
    my @with = ('timeout', 90, $chromium, '--headless', '--no-sandbox',
                '--disable-gpu', '--disable-dev-shm-usage',
                '--no-first-run', '--disable-background-networking',
                "--user-data-dir=$home/profile", '--window-size=1100,900',
                '--virtual-time-budget=5000');

    local $ENV{HOME} = $home;

    my $dom = do {
        open my $p, '-|', "@with --enable-logging=stderr --dump-dom '$url' "
                          . "2>'$home/log'" or die $!;
        local $/;
        <$p>;
    } // '';

    my ($rows) = $dom =~ m{<tbody id="sessions">(.*?)</tbody>}s;

    plan(skip_all => 'chromium does not run here: '
         . ((SandboxTest::slurp("$home/log") // '') =~ /(\N*ERROR\N*)/)[0])
        if $dom eq '';

    like($rows, qr/\Q$id\E/, 'the session is shown');
    like($dom, qr{<tbody id="refusals">.*?<td>user</td>}s, 'the refusal too');
    like($dom, qr{id="state"[^>]*>version }, 'and that it is live');
    like($rows, qr/&lt;script&gt;/, 'metadata is text');
    unlike($rows, qr/<(?:script|img|b)\b/, 'and no markup');
    unlike($dom, qr{<title>injected}, 'nothing of it ran');
    my $log = SandboxTest::slurp("$home/log") // '';
    unlike($log, qr/CONSOLE.*(?:Content Security Policy|Error)/,
           'the policy is not in the way')
        or diag(grep { /CONSOLE/ } split /^/, $log);

    system "@with --screenshot='$shot' '$url' >/dev/null 2>&1";
    cmp_ok(-s $shot // 0, '>', 10_000, 'a picture of it');
};

$t->finish;
done_testing();
