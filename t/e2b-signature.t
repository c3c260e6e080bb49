#!/usr/bin/perl

# Addresses of files that are signed: with a sandbox that is named, and with
# none but the signature's own.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";

use Digest::SHA qw(sha256_base64);
use IO::Compress::Gzip qw(gzip);
use Test::More;
use SandboxTest::More;
use SandboxTest::Connect;

my $t = connect_server(workers => 1,
                       extra => 'sandbox_max_upload 1m;');
my $s = create_ok({ timeout_s => 3600 });


# Of a path, for "read" or "write", by a user, until then.

sub sign {
    my ($id, $path, $op, $user, $until) = @_;

    my $text = join ':', $path, $op, $user // '', token($id),
               defined $until ? $until : ();

    return 'v1_' . sha256_base64($text);
}

sub query {
    my (%o) = @_;

    return '?' . join '&', map { "$_=" . enc($o{$_}) }
                           grep { defined $o{$_} } sort keys %o;
}

# %o: path, username, signature, signature_expiration; id: of a sandbox that
# headers name; headers, body, base.

sub files {
    my ($method, %o) = @_;

    my %h = ('Content-Type' => 'application/octet-stream',
             %{ $o{headers} || {} });

    @h{'E2b-Sandbox-Id', 'E2b-Sandbox-Port'} = ($o{id}, 49983) if $o{id};

    return call($method, '/files' . query(map { $_ => $o{$_} } qw(path
                username signature signature_expiration)),
                base => $o{base} // '/e2b', body => $o{body}, headers => \%h,
                raw => $method eq 'GET');
}

sub get_signed {
    my ($path, %o) = @_;

    return files('GET', path => $path, signature =>
        sign($o{of} // $s, $path, 'read', $o{username},
             $o{signature_expiration}), %o);
}

sub is_401 {
    my ($r, $text, $name) = @_;

    my $j = eval { JSON::PP->new->decode($r->{body}) };

    ok($r->{status} == 401, $name // $text)
        && is_deeply($j, { code => 401, message => $text }, 'what it says')
        or diag("$r->{status} $r->{body}");
}


put($s, 'a b', 'content');


for my $id ($s, undef) {
    subtest(($id ? 'a sandbox that is named' : 'one that is not') => sub {
        my @by = $id ? (id => $id) : ();
        my $r = get_signed('a b', @by);

        is("$r->{status} $r->{body}", '200 content', 'reading');
        is(get_signed('a b', @by, username => 'user')->{status}, 200,
           'as a user');
        is(get_signed('a b', @by, username => 'root')->{status}, 404,
           'as another');
        is(get_signed('a b', @by, signature_expiration => int(time) + 10)
               ->{status}, 200, 'for a while');
        is(call('GET', '/files?path=a+b&signature='
                . enc(sign($s, 'a b', 'read')), base => '/e2b', raw => 1,
                headers => $id ? { 'E2b-Sandbox-Id' => $id,
                                   'E2b-Sandbox-Port' => 49983 } : {})
               ->{status}, 200, 'as a form writes it');

        $r = files('POST', @by, path => 'new', body => 'written',
                   signature => sign($s, 'new', 'write'));
        is_deeply($r->{json}, [ { path => '/home/user/new', name => 'new',
                                  type => 'file' } ], 'writing');
        $r = files('POST', @by, signature => sign($s, '', 'write'),
                   body => "--b\r\nContent-Disposition: form-data; "
                           . "name=\"file\"; filename=\"f\"\r\n\r\nx\r\n"
                           . "--b--\r\n",
                   headers => { 'Content-Type' =>
                                'multipart/form-data; boundary=b' });
        is($r->{status}, 200, 'a form, without a path') or diag($r->{body});

        is_401(files('GET', @by, path => 'a b'),
               'missing signature query parameter');
        is_401(files('GET', @by, path => 'a b', signature => $_),
               'invalid signature', "\"$_\"")
            for '', 'v1_', 'v1_' . 'A' x 43, sign($s, 'a b', 'read') . '=',
                sign($s, 'a b', 'write'), sign($s, 'a  b', 'read'),
                sign($s, 'a b', 'read', 'user'),
                sign($s, 'a b', 'read', undef, int(time) + 10),
                sign('i' . 'z' x 24, 'a b', 'read');
        is_401(get_signed('a b', @by, signature_expiration => $_),
               'signature is already expired', "until $_")
            for int(time) - 5, -10000, 0;
        is_401(files('GET', @by, path => 'a b', signature_expiration => 1,
                     signature => sign($s, 'a b', 'read', undef, 2)),
               'invalid signature', 'another expiration');
        is(files('GET', @by, path => 'a b', signature_expiration => $_,
                 signature => 'x')->{status}, 400, "\"$_\"")
            for '', 'x', '1x', '9' x 30, '--1';
        is_401(files('POST', @by, path => 'new', body => 'x' x 100_000,
                     signature => sign($s, 'new', 'read')),
               'invalid signature', 'writing by a signature for reading');
    });
}


is_401(get_signed('a b', id => $s, headers => { 'X-Access-Token' => 'x' }),
       'access token present in header but does not match',
       'a wrong token beside a right signature');
is(files('GET', path => 'a b', id => $s,
         headers => { 'X-Access-Token' => token($s) })->{status}, 200,
   'a right token needs none');
is(run($s, 'cat new')->{stdout}, 'written', 'nothing else was written');


subtest 'one of many' => sub {
    my @ids = map { create_ok() } 1 .. 12;

    for my $n (0 .. $#ids) {
        put($ids[$n], 'f', "file $n");
        is(get_signed('f', of => $ids[$n])->{body}, "file $n",
           "that of number $n");
    }

    my ($first, @others) = @ids;

    is(get_signed('f', of => $first)->{status}, 200, 'one again');
    destroy($first);
    my $r = get_signed('f', of => $first);
    is($r->{status}, 502, 'one that is gone, but was known');
    like($r->{body}, qr/"sandboxId":"$first"/, 'by its name');
    is_401(get_signed('g', of => $first), 'invalid signature',
           'or was not');

    call('POST', "/sessions/$others[0]/pause");
    is(get_signed('f', of => $others[0])->{status}, 502, 'a paused one');
    destroy($_) for @others;
};


subtest 'uploads have a limit' => sub {
    my $mb = 1 << 20;
    my $name = 'Content-Disposition: form-data; name="file"; filename=';

    my $post = sub {
        my ($body, %h) = @_;

        return files('POST', path => delete $h{path} // 'big', id => $s,
                     body => $body,
                     headers => { 'X-Access-Token' => token($s), %h });
    };

    my $too_large = sub {
        my ($r, $what) = @_;

        ok($r->{status} == 413 && $r->{json}{code} == 413
           && $r->{json}{message} =~ /1048576/, $what)
            or diag("$r->{status} $r->{body}");
    };

    is($post->('x' x $mb)->{status}, 200, 'what it allows');
    $too_large->($post->('x' x ($mb + 1)), 'a byte more');
    $too_large->($post->(sprintf("%x\r\n%s\r\n0\r\n\r\n", $mb + 1,
                                 'x' x ($mb + 1)),
                         'Transfer-Encoding' => 'chunked'), 'in chunks');

    gzip(\("\0" x ($mb + 1)), \my $packed) or die;
    $too_large->($post->($packed, 'Content-Encoding' => 'gzip'),
                 'compressed');

    my $form = "--b\r\n${name}a\r\n\r\n" . 'x' x ($mb / 2)
               . "\r\n--b\r\n${name}b\r\n\r\n";
    my %type = ('Content-Type' => 'multipart/form-data; boundary=b',
                path => '');

    is($post->($form . 'x' x ($mb / 2) . "\r\n--b--", %type)->{status}, 200,
       'a form with as much in it');
    $too_large->($post->($form . 'x' x ($mb / 2 + 1) . "\r\n--b--", %type),
                 'or more');
    is(run($s, 'stat -c %s big a b; ls -a | grep -c "^\\.sandbox"')
           ->{stdout}, "$mb\n" . $mb / 2 . "\n" . $mb / 2 . "\n0\n",
       'what was there stays');
};


subtest 'lookups have a rate' => sub {
    my %seen;

    is(get_signed('a b')->{status}, 200, 'one is looked up');

    # two hundred at once, and a hundred in a second

    for my $n (1 .. 2000) {
        my $r = files('GET', path => $n, signature => 'v1_' . 'A' x 43);

        $seen{ $r->{status} } = $n;
        last if $r->{status} == 429;
    }

    ok($seen{429}, 'beyond it: 429') or diag(explain(\%seen));
    is(files('GET', path => $seen{401}, signature => 'v1_' . 'A' x 43)
           ->{status}, 401, 'what was not found is remembered');
    is(get_signed('a b')->{status}, 200, 'and what was found');
    is(get_signed('new', id => $s)->{status}, 200,
       'one that is named needs no lookup');
};


$t->finish;
done_testing();
