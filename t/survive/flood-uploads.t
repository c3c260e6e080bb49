#!/usr/bin/perl

# Uploads that are far too large: a gigabyte for a disk of 10 MB, forms of ten
# thousand parts, archives of very many entries and such that are small until
# they are unpacked.  Refused before the body where its length is known, else
# cut at the limit; nothing of them stays.
#
# SANDBOX_TEST_LONG=1: an archive has a hundred thousand entries and a bomb a
# gigabyte, else a tenth.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../lib";

use IO::Compress::Gzip ();
use Test::More;
use SandboxTest::Connect;
use SandboxTest::Flood;
use SandboxTest::More;

BEGIN {
    my $why = SandboxTest::Flood::missing();
    plan(skip_all => $why) if $why;
}

my $LONG = $SandboxTest::Flood::LONG;
my $MB = 1024 * 1024;
my $GB = 1024 * $MB;
my $f = SandboxTest::Flood->new(max_upload => '4g');
my $s = create_ok({ timeout_s => 3600, manifest => {
    resources => { disk => '10MB', inodes => 2000 } } });

put($s, 'kept', 'a file');


# What there is, hidden temporaries too, and room for more.

sub is_clean {
    my ($name) = @_;

    local $Test::Builder::Level = $Test::Builder::Level + 1;

    my $all = 'find . /tmp /data -mindepth 1 -not -path "*/lost+found" '
              . '2>/dev/null | grep -v "^\./\.\(bash\|profile\)" | sort';

    ok(until_true { run($s, $all)->{stdout} eq "./kept\n" },
       "$name: nothing of it is left") or diag(run($s, $all)->{stdout});
    is(get($s, 'kept')->{body}, 'a file', "$name: what was there is there");
    is(put($s, 'room', 'x' x (4 * $MB))->{status}, 201,
       "$name: and there is room");
    del($s, 'room');

    return;
}


# Sends piece after piece until there is an answer or all is gone: the answer,
# and how many bytes it took.

sub pour {
    my ($c, $piece, $most) = @_;

    local $SIG{PIPE} = 'IGNORE';

    my $sent = 0;
    my $r = IO::Select->new($c);

    while ($sent < $most && !$r->can_read(0)) {
        my $n = syswrite $c, $piece;
        last if !$n;
        $sent += $n;
    }

    return (read_response($c, timeout => within(60)), $sent);
}


subtest 'a gigabyte of known length' => sub {
    $f->under('a gigabyte of known length', sub {
        my $c = open_request(PUT => "/sessions/$s/files/big",
                             headers => { 'Content-Length' => $GB });
        my ($res, $sent) = pour($c, 'x' x 65536, $GB);

        is_problem($res, 507, 'E4006', 'is refused');
        cmp_ok($sent, '<', 16 * $MB, 'early: what sockets hold')
            or diag($sent);
        close $c;

        $c = open_request(PUT => "/sessions/$s/files/big",
                          headers => { 'Content-Length' => $GB,
                                       Expect => '100-continue' });
        $res = read_head($c);
        is($res->{status}, 507, 'before a byte of it, who asks');
        close $c;
    });

    is_clean('of known length');
};


subtest 'a gigabyte of chunks' => sub {
    my $chunk = sprintf("%x\r\n", 65536) . 'x' x 65536 . "\r\n";

    $f->under('a gigabyte of chunks', sub {
        my $c = open_request(PUT => "/sessions/$s/files/big",
                             headers => { 'Transfer-Encoding' => 'chunked' });
        my ($res, $sent) = pour($c, $chunk, $GB);

        is_problem($res, 507, 'E4006', 'is cut at the limit');
        cmp_ok($sent, '<', 24 * $MB, 'and no more is taken') or diag($sent);
        close $c;
    });

    is_clean('of chunks');
};


subtest 'many at once' => sub {
    my $n = 40;

    $f->under('many at once', sub {
        my @jobs = map {
            my $k = $_;
            async {
                my $c = open_request(PUT => "/sessions/$s/files/big$k",
                    headers => { 'Content-Length' => 9 * $MB });
                my ($res) = pour($c, 'x' x 65536, 9 * $MB);
                $res->{status} == 201 ? 201 : $res->{json}{code};
            }
        } 1 .. $n;
        my %got;

        $got{$_->get(within(120)) // 'none'}++ for @jobs;
        is(join(' ', grep { !/^(?:201|E4006)\z/ } keys %got), '',
           'each is taken or told that there is no room')
            or diag(explain(\%got));
        cmp_ok($got{201} // 0, '<=', 1, 'no more than there is room for');
        del($s, "big$_") for 1 .. $n;
    }, worker => 40);

    is_clean('many at once');
};


# The parts of a form: of one file, of many files, of none.

sub form {
    my ($id, $head) = @_;

    my $b = 'boundary';
    my $body = join '', map {
        "--$b\r\nContent-Disposition: form-data; name=" . $head->($_)
        . "\r\n\r\nx\r\n"
    } 1 .. 10_000;

    return call(POST => '/files', base => $SandboxTest::Connect::BASE,
                body => "$body--$b--\r\n", timeout => within(60), headers => {
        %{ rpc_headers($id) },
        'Content-Type' => "multipart/form-data; boundary=$b" });
}


subtest 'a form of ten thousand parts' => sub {
    $f->under('ten thousand parts of one file', sub {
        my $res = form($s, sub { '"file"; filename="f"' });

        is($res->{status}, 400, 'is refused');
        like($res->{body}, qr/two files have the path/, 'as what it is');
        del($s, 'f');
    });

    is_clean('one file');

    $f->under('ten thousand parts without a file', sub {
        my $res = form($s, sub { "\"field$_[0]\"" });

        is($res->{status}, 400, 'is refused') or diag($res->{body});
    });

    is_clean('no file');

    my $small = create_ok({ manifest => { resources => { disk => '10MB',
                                                         inodes => 400 } } });

    $f->under('ten thousand parts of as many files', sub {
        my $res = form($small, sub { "\"file\"; filename=\"f$_[0]\"" });

        is($res->{status}, 507, 'is refused when there is no room')
            or diag($res->{body});
        run($small, 'rm -f f*');
    });

    destroy($small);
};


# ---- archives --------------------------------------------------------------

sub entry {
    my ($name, $size, $type) = @_;

    my $h = pack 'a100a8a8a8a12a12a8a1a100a6a2a32a32a8a8a155x12', $name,
        '0000644', '0000000', '0000000', sprintf('%011o', $size),
        '00000000000', ' ' x 8, $type // '0', '', "ustar\0", '00', '', '',
        '', '', '';

    substr $h, 148, 8, sprintf "%06o\0 ", unpack '%32C*', $h;

    return $h;
}

sub gzip {
    my (@pieces) = @_;

    my $z = IO::Compress::Gzip->new(\my $out);

    print {$z} $_ for @pieces;
    close $z;

    return $out;
}

sub unpacked {
    my ($body) = @_;

    return call(PUT => "/sessions/$s/archive/tree", body => $body,
                timeout => within(200));
}


subtest 'an archive of very many entries' => sub {
    my $n = $LONG ? 100_000 : 10_000;
    my $tar = join '', map { entry("d/f$_", 0) } 1 .. $n;

    $tar .= "\0" x 1024;
    my $gz = gzip($tar);

    $f->under('an archive of very many entries', sub {
        is_problem(unpacked($gz), 507, 'E4006', 'has no room');
    });

    is_clean('very many entries');
};


subtest 'more entries than an archive may have' => sub {
    my $dirs = entry('d/', 0, '5');

    # one name again and again takes no room

    my $gz = gzip($dirs x 100_001, "\0" x 1024);

    $f->under('more entries than an archive may have', sub {
        my $res = unpacked($gz);

        is_problem($res, 413, 'E4005', 'is refused');
    });

    is_clean('too many entries');
};


subtest 'a bomb' => sub {
    my $zeros = "\0" x (4 * $MB);
    my $n = $LONG ? 256 : 25;
    my $bomb = gzip(entry('big', $n * 4 * $MB), ($zeros) x $n);

    note('the bomb has ' . length($bomb) . ' bytes');

    $f->under('a bomb', sub {
        is_problem(unpacked($bomb), 507, 'E4006', 'is cut at the limit');
    });

    is_clean('a bomb');

    # after the archive's end: not to be unpacked, and not for ever

    my $tail = gzip(entry('small', 0), "\0" x 1024, ($zeros) x 8);

    $f->under('a bomb after the end', sub {
        is_problem(unpacked($tail), 400, 'E3001', 'is refused');
    });

    is_clean('a bomb after the end');

    # bodies of E2B may be gzip: of a file, too

    my $file = gzip(($zeros) x 16);

    $f->under('a file that is a bomb', sub {
        my $res = call(POST => '/files?path=f',
                       base => $SandboxTest::Connect::BASE, body => $file,
                       timeout => within(60), headers => {
            %{ rpc_headers($s) }, 'Content-Encoding' => 'gzip',
            'Content-Type' => 'application/octet-stream' });

        is($res->{status}, 507, 'is cut at the limit') or diag($res->{body});
    });

    is_clean('a file that is a bomb');
};


is(destroy($s)->{status}, 204, 'the session ends');
is(join(' ', glob "$SandboxTest::More::PREFIX/{,run/}client_body_temp/*"), '',
   'nginx has kept nothing');
$f->over;
done_testing();
