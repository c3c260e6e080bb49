#!/usr/bin/perl

# What other programs make of our archives, and we of theirs: GNU tar, and
# Python's tarfile.  And a merge that fails half-way.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";

use File::Temp ();
use Test::More;
use SandboxTest::More;

my $t = server(max_upload => '64m');
my $s = create_ok();
my $dir = File::Temp->newdir;

sub sh { return run($s, @_)->{stdout} }

sub archive {
    my ($path, %o) = @_;

    my $q = delete $o{query};

    return call('GET', "/sessions/$s/archive/$path" . ($q ? "?$q" : ''), %o,
                timeout => within(60));
}

sub unpack_to {
    my ($path, $bytes, %o) = @_;

    return call('PUT', "/sessions/$s/archive/$path", %o, body => $bytes,
                timeout => within(60));
}

sub left { return sh('find / -xdev -name ".sandbox-upload-*" 2>/dev/null') }

sub spew {
    my ($name, $bytes) = @_;

    open my $f, '>', "$dir/$name" or die "$dir/$name: $!";
    binmode $f;
    print $f $bytes;
    close $f;

    return "$dir/$name";
}

# Runs Python here; what it prints.

sub python {
    my ($code, @args) = @_;

    open my $p, '-|', 'python3', '-c', $code, @args or die "python3: $!";
    binmode $p;
    local $/;
    my $out = <$p>;
    close $p;

    return $out;
}

# The names of a tree, and their bytes, as something to compare.

my $tree = q{
import os, sys
top = os.fsencode(sys.argv[1])
for root, dirs, files in sorted(os.walk(top)):
    for n in sorted(dirs + files):
        p = os.path.join(root, n)
        st = os.lstat(p)
        print(p[len(top):], oct(st.st_mode), st.st_mtime_ns
              if not os.path.isdir(p) and not os.path.islink(p) else '',
              os.readlink(p) if os.path.islink(p) else
              open(p, 'rb').read() if os.path.isfile(p) else '')
};

my $make = q{
import os, sys
top = os.fsencode(sys.argv[1])
os.makedirs(top)
names = [b'plain', 'caf\u00e9'.encode(), 'cafe\u0301'.encode(),
         '\U0001f600 \u65e5\u672c'.encode(), b'two\nlines', b'a = b\\c',
         b'\xff\xfe-\xc0\x80', b'latin-\xe9', b'n' * 200,
         b'm' * 120 + '\U0001f600'.encode(), b'l' * 150 + b'\xe9', b' ',
         b'-rf', b'x' * 100, b'y' * 99]
for i, n in enumerate(names):
    p = os.path.join(top, n)
    open(p, 'wb').write(b'%d' % i)
    os.utime(p, ns=(0, 1234567890123456789 + i))
    os.symlink(n, os.path.join(top, b'l%d' % i))
    os.makedirs(os.path.join(top, b'd', n, n))
open(os.path.join(top, b'old'), 'w').close()
os.utime(os.path.join(top, b'old'), (-5, -5))
open(os.path.join(top, b'late'), 'w').close()
os.utime(os.path.join(top, b'late'), (1 << 33, 1 << 33))
};

my $inside = spew('tree.py', $tree);

sub tree_of { return python($tree, @_) }

sub tree_in {
    my ($path) = @_;

    put($s, '/tmp/tree.py', slurp($inside));

    return sh("python3 /tmp/tree.py $path");
}


subtest 'names are bytes, and times are to the nanosecond' => sub {
    python($make, "$dir/names");
    my $want = tree_of("$dir/names");
    cmp_ok(length $want, '>', 3000, 'there is something to compare');

    my %made = (
        'GNU tar, its own format' => 'tar -C names --format=gnu -c .',
        'GNU tar, pax' => 'tar -C names --format=posix -c .',
        'tarfile, pax' => 'python3 -c "'
            . 'import tarfile, sys;'
            . "t = tarfile.open(fileobj=sys.stdout.buffer, mode='w|',"
            . " format=tarfile.PAX_FORMAT); t.add('names', '.'); t.close()\"",
        'tarfile, GNU' => 'python3 -c "'
            . 'import tarfile, sys;'
            . "t = tarfile.open(fileobj=sys.stdout.buffer, mode='w|',"
            . " format=tarfile.GNU_FORMAT); t.add('names', '.');"
            . ' t.close()"',
    );

    my $n = 0;
    my $whole = $want =~ s/ 1234567890\d{9} / 1234567890 /gr;

    for my $who (sort keys %made) {
        my $res = unpack_to('n' . ++$n, scalar `cd '$dir' && $made{$who}`);
        is($res->{status}, 200, "$who: is taken") or diag($res->{body});

        # GNU's format has whole seconds, tarfile's pax a float's digits

        my $got = tree_in("n$n");
        my $exact = $who eq 'GNU tar, pax';
        $got =~ s/ 1234567890\d{9} / 1234567890 /g if !$exact;
        is($got, $exact ? $want : $whole, "$who: the same");
    }

    my $file = spew('names.tar', archive('n2')->{body});

    for my $locale ('C', 'C.UTF-8') {
        mkdir "$dir/gnu-$locale";
        local $ENV{LC_ALL} = $locale;
        my $said = `tar -C '$dir/gnu-$locale' -xf '$file' 2>&1`;
        is($?, 0, "GNU tar, $locale: takes ours") or diag($said);
        is(tree_of("$dir/gnu-$locale"), $want, "GNU tar, $locale: the same");

        python(q{
import sys, tarfile
tarfile.open(sys.argv[1]).extractall(sys.argv[2])
        }, $file, "$dir/python-$locale");
        my $got = tree_of("$dir/python-$locale");
        $got =~ s/ 1234567890\d{9} / 1234567890 /g;
        is($got, $whole, "tarfile, $locale: the same");
    }
};


subtest 'sparse files, and links to files' => sub {
    python(q{
import os, sys
os.makedirs(sys.argv[1])
f = open(sys.argv[1] + '/s', 'wb')
f.write(b'a' * 5000)
for i in range(40):
    f.seek((i + 1) << 16)
    f.write(b'%d' % i)
f.truncate(5 << 20)
f.close()
f = open(sys.argv[1] + '/hole', 'wb')
f.truncate(3 << 20)
f.close()
os.link(sys.argv[1] + '/s', sys.argv[1] + '/t')
    }, "$dir/sparse");

    my $sum = `cd '$dir/sparse' && sha256sum hole s t`;

    for my $format ('gnu', 'posix --sparse-version=0.0',
                    'posix --sparse-version=0.1',
                    'posix --sparse-version=1.0')
    {
        my $res = unpack_to('sp', scalar
                            `tar -C '$dir/sparse' -S --format=$format -c .`);
        is($res->{status}, 200, "$format: is taken") or diag($res->{body});
        is($res->{json}{size}, 8 << 20, "$format: its size");
        is(sh('cd sp && sha256sum hole s t'), $sum, "$format: the same");
        is(sh('test sp/s -ef sp/t && du -k sp | cut -f1') < 1024, 1,
           "$format: with its holes, and linked");
        del($s, 'sp', query => 'recursive=1');
    }

    # a map that does not fit its file, and a file that no disk holds

    my $tar = `tar -C '$dir/sparse' -S --format=gnu -c s`;
    substr $tar, 483, 12, sprintf "%011o\0", 1 << 20;
    substr $tar, 148, 8, ' ' x 8;
    substr $tar, 148, 7, sprintf "%06o\0", unpack '%32C*', substr $tar, 0, 512;
    is_problem(unpack_to('sp', $tar), 400, 'E3001', 'a map beyond its file');

    open my $f, '>', "$dir/sparse/huge" or die;
    truncate $f, 1 << 42;
    close $f;
    is_problem(unpack_to('sp', scalar `tar -C '$dir/sparse' -S -c huge`),
               507, 'E4006', 'a file of four terabytes, all hole');
    is(left(), '', 'nothing is left');
};


subtest 'compressed data in parts, and with an end that is none' => sub {
    mkdir "$dir/z";
    spew("z/$_", "$_ " x 20_000) for qw(a b);
    my $tar = `tar -C '$dir/z' -c a b`;
    my @gz = map { scalar `gzip -c < '$_'` }
        spew('one', substr $tar, 0, 30_000), spew('two', substr $tar, 30_000);

    is(unpack_to('z1', join '', @gz)->{json}{size}, 80_000, 'two parts');
    is(sh('head -c 4 z1/a; tail -c 4 z1/b'), 'a a b b ', 'both are read');
    is(unpack_to('z2', join('', @gz) . "\0" x 70_000)->{json}{entries}, 2,
       'zeros after them');
    is(unpack_to('z3', join('', @gz) . 'rubbish' x 3)->{json}{entries}, 2,
       'rubbish after them, as gzip');
    is(unpack_to('z4', $tar . 'rubbish' x 10_000)->{json}{entries}, 2,
       'and after the end of one that is not compressed');

    is_problem(unpack_to('z5', $gz[0]), 400, 'E3001', 'the first part alone');
    is_problem(unpack_to('z5', substr(join('', @gz), 0, -4)), 400, 'E3001',
               'an end that is cut off');
    my $bad = join '', @gz;
    substr $bad, -8, 1, chr(1 ^ ord substr $bad, -8, 1);
    is_problem(unpack_to('z5', $bad), 400, 'E3001', 'a sum that is wrong');

    for my $how ('bzip2', 'xz', 'zstd') {
        next if system("command -v $how > /dev/null") != 0;
        is_problem(unpack_to('z5', scalar `$how -c < '$dir/one'`), 400,
                   'E3001', "$how is not asked for");
    }

    for my $how ('cpio -o -H newc', 'zip -q - a') {
        my ($first) = split / /, $how;
        next if system("command -v $first > /dev/null") != 0;
        my $bytes = `cd '$dir/z' && ls a | $how 2> /dev/null`;
        next if length $bytes < 100;
        is_problem(unpack_to('z5', $bytes), 400, 'E3001',
                   "$first makes no tar");
    }

    is_problem(unpack_to('z5', "#mtree\n./a type=file\n" x 100), 400, 'E3001',
               'nor is a list of names one');
    is(sh('ls -d z5 2>/dev/null'), '', 'nothing of these is there');
    is(left(), '', 'nothing is left');
};


subtest 'what an archive says of itself is bounded' => sub {
    my %head = (
        'a name of a megabyte' => ['L', 1 << 20],
        'a name of a gigabyte' => ['L', 1 << 30],
        'an extension of a gigabyte' => ['x', 1 << 30],
    );

    for my $what (sort keys %head) {
        my ($type, $size) = @{$head{$what}};
        open my $z, '|-', "gzip -1 > '$dir/head.tgz'" or die;
        my $h = pack 'a100 a8 a8 a8 a12 a12 A8 a1 a100 a6 a2 x247', 'x',
                     '0000644', '0001750', '0001750', sprintf('%011o', $size),
                     '0', '', $type, '', "ustar\0", '00';
        substr $h, 148, 8, sprintf "%06o\0 ", unpack '%32C*', $h;
        print $z $h, 'n' x (1 << 20), "\0" x 1024;
        close $z;
        is_problem(unpack_to('w', slurp("$dir/head.tgz")), 400, 'E3001',
                   $what);
    }

    # a map of a sparse file, of more parts than there is memory for

    my $part = "1\n0\n";
    my $count = 12_000_000;
    my $map = $count * length $part;
    my $pax = '';

    for my $record ('GNU.sparse.major=1', 'GNU.sparse.minor=0',
                    'GNU.sparse.name=x', 'GNU.sparse.realsize=1000')
    {
        my $n = length($record) + 4;
        $n++ if length $n > 1 && $n < 10;
        $pax .= sprintf "%02d %s\n", $n, $record;
    }

    open my $z, '|-', "gzip -1 > '$dir/map.tgz'" or die;

    for (['x', length $pax, $pax], ['0', $map + 1024, '']) {
        my ($type, $size, $data) = @$_;
        my $h = pack 'a100 a8 a8 a8 a12 a12 A8 a1 a100 a6 a2 x247', 'x',
                     '0000644', '0001750', '0001750', sprintf('%011o', $size),
                     '0', '', $type, '', "ustar\0", '00';
        substr $h, 148, 8, sprintf "%06o\0 ", unpack '%32C*', $h;
        print $z $h, $data, "\0" x (-length($data) % 512);
    }

    print $z "$count\n", $part x 100_000 for 1;
    print $z $part x 100_000 for 2 .. $count / 100_000;
    print $z "\0" x 2048;
    close $z;

    my $res = unpack_to('w', slurp("$dir/map.tgz"));
    like($res->{status}, qr/^(?:400|413|503)$/, 'a map of 12 million parts')
        or diag($res->{body});
    note($res->{body});
    ok((until_true { left() eq '' }), 'nothing is left');
    is(sh('ls -d w 2>/dev/null'), '', 'and nothing is there');
    is(put($s, 'after', 'x')->{status}, 201, 'the session goes on');
};


subtest 'a merge that fails half-way is undone' => sub {

    # The user may write root's file, so that nothing is found beforehand,
    # but in a sticky directory he may not put another in its place.

    is(run($s, 'mkdir -m 1777 /tmp/u /tmp/u/d; echo root > /tmp/u/d/m;'
               . ' chmod 666 /tmp/u/d/m', user => 'root')->{exit_code}, 0,
       'the target');
    run($s, 'cd /tmp/u; for i in $(seq 40); do echo old $i > d/f$i;'
            . ' echo old $i > e$i; done; mkdir k; echo k > k/k; ln -s k kl');

    my $list = 'find /tmp/u -printf "%P %y %i %m %s %T@ %l\n" | grep -v "^ \|'
               . '^d d\|^k d" | sort; cat /tmp/u/*/* /tmp/u/e*';
    my $before = sh($list);
    like($before, qr/^d\/m f /m, 'is as it is');

    python(q{
import os, sys
os.makedirs(sys.argv[1] + '/d')
os.makedirs(sys.argv[1] + '/k/new')
os.makedirs(sys.argv[1] + '/n/o')
for i in range(1, 41):
    for p in ('d/f%d', 'e%d', 'd/new%d', 'new%d', 'n/o/%d', 'k/%d'):
        open(sys.argv[1] + '/' + p % i, 'w').write('new')
for p in ('d/m', 'k/k', 'kl'):
    open(sys.argv[1] + '/' + p, 'w').write('new')
    }, "$dir/merge");

    my $tar = `tar -C '$dir/merge' -c d e1 e2 k kl n new1 new2 e3 e4 e5`;
    my $res = unpack_to('/tmp/u', $tar);
    is_problem($res, 403, 'E4003', 'is refused');
    is(sh($list), $before, 'each file is the one it was');
    is(sh('find / -xdev -name ".sandbox-upload-*" 2>/dev/null;'
          . ' find /tmp -name ".sandbox-upload-*"'), '',
       'and nothing hidden is left');

    is(run($s, 'rm /tmp/u/d/m', user => 'root')->{exit_code}, 0,
       'without that file');
    is(unpack_to('/tmp/u', scalar `tar -C '$dir/merge' -c d e1 k`)->{status},
       200, 'it is merged');
    is(sh('cat /tmp/u/d/m /tmp/u/e1 /tmp/u/k/k /tmp/u/d/f40'), 'new' x 4,
       'all of it');
    is(sh('find /tmp -name ".sandbox-upload-*"'), '', 'and nothing is left');
};


destroy($s);
$t->finish;
done_testing();
