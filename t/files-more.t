#!/usr/bin/perl

# stat, list, mkdir, move, search, and uploads with conditions.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";

use Test::More;
use SandboxTest::More;

sub send_all { return SandboxTest::More::send_all(@_) }

my $t = server();
my $s = create_ok();

sub sh { return run($s, @_)->{stdout} }

sub path_call {
    my ($route, $path, $query) = @_;

    my $p = join '/', map { enc($_) } split m{/}, $path, -1;

    return call('GET', "/sessions/$s/$route/$p" . ($query ? "?$query" : ''));
}

sub post {
    my ($route, $json) = @_;

    return call('POST', "/sessions/$s/$route", json => $json);
}

sub names { return [ map { $_->{path} } @{ $_[0]{json}{entries} || [] } ] }


subtest 'stat tells of one entry' => sub {
    run($s, 'printf hello > st; chmod 640 st; ln -s st lk; mkdir -p d/e');

    my $res = path_call('stat', 'st');
    is($res->{status}, 200, 'a file');
    is(ref $res->{json}, 'HASH', 'one object');
    is(join(' ', map { $res->{json}{$_} // 'null' }
            qw(path name type size mode owner group target)),
       '/home/user/st st file 5 0640 user user null', 'all of it');
    like($res->{json}{modified_at}, qr/^\d{4}-\d\d-\d\dT[\d:.]+Z$/, 'time');

    $res = path_call('stat', 'lk');
    is("$res->{json}{type} $res->{json}{target}", 'link st',
       'a link is told of as one');
    is(path_call('stat', 'd/')->{json}{type}, 'directory', 'a directory');
    is(path_call('stat', '/etc')->{json}{path}, '/etc', 'absolute');
    is(call('GET', "/sessions/$s/stat?path=d/../st")->{json}{name}, 'st',
       '?path= with what a client would normalize');
    is(call('GET', "/sessions/$s/stat?path_base64=" . enc(b64('st')))
       ->{json}{name}, 'st', '?path_base64=');

    run($s, q{python3 -c "open(b'n\xff','w')"});
    $res = call('GET', "/sessions/$s/stat?path_base64=" . enc(b64("n\xff")));
    is($res->{json}{path_base64}, b64("/home/user/n\xff"),
       'a name that is no UTF-8');

    is_problem(path_call('stat', 'none'), 404, 'E4001', 'what is missing');
    is_problem(path_call('stat', 'st/x'), 409, 'E4004', 'below a file');
    is_problem(call('GET', "/sessions/$s/stat"), 400, 'E4002', 'no path');
    is_problem(call('POST', "/sessions/$s/stat/st"), 405, 'E3010', 'POST');
};


subtest 'list tells of a directory, to a depth' => sub {
    run($s, 'mkdir -p ls/a/b/c ls/z; touch ls/a/1 ls/a/b/2 ls/a/b/c/3 ls/.h'
            . ' ls/a.x; ln -s a ls/link');

    my $res = path_call('list', 'ls');
    is_deeply(names($res), [ map { "/home/user/ls/$_" }
                             qw(.h a a.x link z) ], 'depth 1, sorted');
    is($res->{json}{next_cursor}, undef, 'no cursor');
    is($res->{json}{truncated}, undef, 'and nothing is cut');

    is_deeply(names(path_call('list', 'ls', 'depth=3')),
              [ map { "/home/user/ls/$_" }
                qw(.h a a.x a/1 a/b a/b/2 a/b/c link z) ],
              'depth 3: in the order of paths, links not followed');
    is(scalar @{ names(path_call('list', 'ls', 'depth=200')) }, 10,
       'depth 200: all');
    is_deeply(names(call('GET', "/sessions/$s/list?path=ls/a/b&depth=2")),
              [ map { "/home/user/ls/a/b/$_" } qw(2 c c/3) ], '?path=');
    ok(scalar(grep { $_ eq '/home/user/ls' }
              @{ names(call('GET', "/sessions/$s/list")) }),
       'without a path: the workspace');

    my @seen;
    my $q = 'depth=9&limit=3';

    for (1 .. 9) {
        $res = path_call('list', 'ls', $q);
        push @seen, @{ names($res) };
        last if !defined $res->{json}{next_cursor};
        $q = "depth=9&limit=3&cursor=$res->{json}{next_cursor}";
    }

    is_deeply(\@seen, names(path_call('list', 'ls', 'depth=9')),
              'page by page');

    for my $bad ('depth=0', 'depth=201', 'depth=x', 'limit=0',
                 'limit=10001', 'cursor=x')
    {
        is_problem(path_call('list', 'ls', $bad), 400, 'E3001', $bad);
    }

    is_problem(path_call('list', 'st'), 409, 'E4004', 'a file');
    is_problem(path_call('list', 'none'), 404, 'E4001', 'nothing');
    is_problem(path_call('list', '/root'), 403, 'E4003', "root's");
};


subtest 'a deep or full tree makes nobody grow' => sub {
    my $r = run($s, <<'SH');
mkdir deep; cd deep
python3 - <<'PY'
import os
for i in range(600):
    os.mkdir('d' * 100)
    os.chdir('d' * 100)
PY
SH
    is($r->{exit_code}, 0, '600 directories below each other');

    my @rss = map { rss($_) } workers();
    my $res = path_call('list', 'deep', 'depth=200&limit=10000');
    is($res->{status}, 200, 'are listed');
    cmp_ok(scalar @{ names($res) }, '<=', 200, 'to the depth');

    $res = call('GET', "/sessions/$s/files?glob=" . enc('deep/**'));
    is($res->{status}, 200, 'and found');
    ok($res->{json}{truncated}, 'which says that it is not all');

    is(del($s, 'deep', query => 'recursive=1')->{status}, 204, 'and removed');

    $r = run($s, q{mkdir full; python3 -c "
for i in range(50000): open('full/%06d' % i + 'n' * 100, 'w').close()"},
             timeout_s => 60);
    is($r->{exit_code}, 0, '50000 files in a directory');
    $res = path_call('list', 'full', 'limit=10');
    is(scalar @{ names($res) }, 10, 'are listed by pages');
    $res = path_call('list', 'full', "limit=10&cursor=gc346");
    is(names($res)->[0], '/home/user/full/049990' . 'n' x 100,
       'to the last');
    is($res->{json}{next_cursor}, undef, 'which is the last');
    $res = path_call('list', 'full', 'limit=10000');
    is(scalar @{ names($res) }, 10000, 'the longest page');

    my $i = 0;

    for my $pid (workers()) {
        cmp_ok(rss($pid) - $rss[$i++], '<', 48 << 20,
               'a worker has grown by one page at most');
    }

    del($s, 'full', query => 'recursive=1');
};


subtest 'mkdir makes parents, and says what was there' => sub {
    my $res = post('mkdir', { path => 'mk/a/b' });
    is($res->{status}, 201, 'a new one');
    is("$res->{json}{path} $res->{json}{type} $res->{json}{mode}",
       '/home/user/mk/a/b directory 0755', 'the entry');
    is(post('mkdir', { path => 'mk/a/b' })->{status}, 200, 'again');
    is(post('mkdir', { path => 'mk/a/b/' })->{status}, 200, 'with a slash');
    is(post('mkdir', { path => '/tmp/mk' })->{status}, 201, 'absolute');
    is(post('mkdir', { path_base64 => b64("mk/\xfe") })->{json}{path_base64},
       b64("/home/user/mk/\xfe"), 'path_base64');

    is_problem(post('mkdir', { path => 'st' }), 409, 'E4004', 'on a file');
    is_problem(post('mkdir', { path => 'st/x' }), 409, 'E4004', 'below one');
    is_problem(post('mkdir', { path => '/etc/x' }), 403, 'E4003', 'in /etc');
    is_problem(post('mkdir', {}), 400, 'E3001', 'no path', qr{/path});
    is_problem(post('mkdir', { path => 'x', path_base64 => 'eA==' }), 400,
               'E3001', 'both');
    is_problem(post('mkdir', { path_base64 => '!' }), 400, 'E3001',
               'what is no base64');
    is_problem(post('mkdir', { path => "a\0b" }), 400, 'E4002', 'a NUL');
    is_problem(post('mkdir', { path => 'x' x 5000 }), 400, 'E4002', 'length');
    is_problem(post('mkdir', { path => 'x', mode => 1 }), 400, 'E3001',
               'an unknown field', qr{/mode});
};


subtest 'move' => sub {
    run($s, 'mkdir mv; echo one > mv/one; echo two > mv/two; mkdir -p mv/d/x'
            . ' mv/full; touch mv/full/f');

    my $res = post('move', { from => 'mv/one', to => 'mv/new/deep/1' });
    is($res->{status}, 200, 'is answered');
    is($res->{json}{path}, '/home/user/mv/new/deep/1',
       'the entry, its parents made');
    is(sh('cat mv/new/deep/1; ls mv/one 2>&1 | wc -l'), "one\n1\n", 'moved');

    is_problem(post('move', { from => 'mv/two', to => 'mv/new/deep/1' }), 409,
               'E4007', 'onto what is there');
    is(sh('cat mv/new/deep/1 mv/two'), "one\ntwo\n", 'keeps both');
    is(post('move', { from => 'mv/two', to => 'mv/new/deep/1',
                      overwrite => \1 })->{status}, 200, 'overwrite');
    is(sh('cat mv/new/deep/1'), "two\n", 'replaces');

    is(post('move', { from => 'mv/d', to => 'mv/e' })->{json}{type},
       'directory', 'a directory');
    is(sh('ls mv/e'), "x\n", 'with what is in it');

    is_problem(post('move', { from => 'mv/e', to => 'mv/new/deep/1',
                              overwrite => \1 }), 409, 'E4004',
               'a directory onto a file');
    is_problem(post('move', { from => 'mv/new/deep/1', to => 'mv/e',
                              overwrite => \1 }), 409, 'E4004',
               'a file onto a directory');
    is_problem(post('move', { from => 'mv/e', to => 'mv/full',
                              overwrite => \1 }), 409, 'E2011',
               'onto a directory that is not empty');
    is_problem(post('move', { from => 'mv/e', to => 'mv/e/in' }), 409,
               'E2011', 'into itself');
    is_problem(post('move', { from => 'mv/none', to => 'mv/p/q' }), 404,
               'E4001', 'what is missing');
    is(path_call('stat', 'mv/p')->{status}, 404, 'makes no parents');
    is_problem(post('move', { from => '/home/user', to => '/tmp/u' }), 403,
               'E4003', 'the workspace');
    is_problem(post('move', { from => 'mv/e', to => '/dev/shm/e' }), 409,
               'E2011', 'a directory across mounts', qr/mount/);

    run($s, 'echo far > mv/far; chmod 640 mv/far;'
            . ' touch -d @1000000000 mv/far');
    is(post('move', { from => 'mv/far', to => '/dev/shm/a/far' })
       ->{json}{path}, '/dev/shm/a/far', 'a file across mounts');
    is(sh('stat -c "%a %Y" /dev/shm/a/far; cat /dev/shm/a/far; ls mv/far'
          . ' 2>/dev/null; ls -A /dev/shm/a'),
       "640 1000000000\nfar\nfar\n", 'with its mode and time');
    put($s, 'mv/there', 'x');
    is_problem(post('move', { from => '/dev/shm/a/far', to => 'mv/there' }),
               409, 'E4007', 'onto what is there');
    is_problem(post('move', { from => '/dev/shm/a/far', to => 'mv/full',
                              overwrite => \1 }), 409, 'E4004',
               'onto a directory');
    is(post('move', { from => '/dev/shm/a/far', to => 'mv/there',
                      overwrite => \1 })->{status}, 200, 'and back');
    is(sh('cat mv/there; ls -A /dev/shm/a mv | grep -c sandbox-upload'),
       "far\n0\n", 'replaced, and nothing is left');
    is_problem(post('move', { from => 'mv/e' }), 400, 'E3001', 'no to');

    run($s, 'ln -s full mv/lk');
    is(post('move', { from => 'mv/lk', to => 'mv/lk2' })->{json}{type},
       'link', 'a link itself');
    is(post('move', { from_base64 => b64('mv/lk2'),
                      to_base64 => b64("mv/\xff") })->{status}, 200,
       'base64');
};


subtest 'search' => sub {
    run($s, <<'SH');
mkdir -p se/sub se/.hid
printf 'alpha\nbeta alpha\r\nGamma\n' > se/a.txt
printf 'def alpha(x):\n    return x\n' > se/sub/b.py
printf 'alpha\0' > se/bin
printf 'no end alpha' > se/sub/c.txt
printf 'alpha' > se/.hid/h
ln -s a.txt se/link
SH

    my $find = sub { my $r = post('search', { @_ });
                     return [ map { "$_->{path}:$_->{line}:$_->{text}" }
                              @{ $r->{json}{matches} || [ { path =>
                                 "status $r->{status}", line => 0,
                                 text => $r->{body} } ] } ] };
    my $w = '/home/user/se';

    is_deeply($find->(pattern => 'alpha', path => 'se'),
              [ "$w/.hid/h:1:alpha", "$w/a.txt:1:alpha",
                "$w/a.txt:2:beta alpha", "$w/sub/b.py:1:def alpha(x):",
                "$w/sub/c.txt:1:no end alpha" ],
              'every line, sorted; no binary file, no link');
    is_deeply($find->(pattern => '^(alpha|G\w+)$', path => 'se/a.txt'),
              [ "$w/a.txt:1:alpha", "$w/a.txt:3:Gamma" ],
              'a regular expression, in one file');
    is_deeply($find->(pattern => 'alpha(x)', path => 'se', regex => \0),
              [ "$w/sub/b.py:1:def alpha(x):" ], 'a fixed string');
    is_deeply($find->(pattern => 'alpha', path => 'se', glob => '*.py'),
              [ "$w/sub/b.py:1:def alpha(x):" ], 'a glob of names');
    is_deeply($find->(pattern => 'alpha', path => 'se',
                      glob => 'sub/*.txt'),
              [ "$w/sub/c.txt:1:no end alpha" ], 'a glob with a directory');
    is_deeply($find->(pattern => 'alpha', path => 'se', glob => 'no/*'), [],
              'one that is not there');

    my $res = post('search', { pattern => 'a', path => 'se', limit => 2 });
    is(scalar @{ $res->{json}{matches} }, 2, 'limit');
    ok($res->{json}{truncated}, 'is told');
    $res = post('search', { pattern => 'Gamma', path => 'se' });
    ok(!$res->{json}{truncated}, 'and is not where all was seen');

    run($s, q{python3 -c "print('\xc3\xa9' * 3000)" > se/long});
    $res = post('search', { pattern => '^.', path => 'se/long' });
    cmp_ok(length $res->{json}{matches}[0]{text}, '<=', 1000,
           'a long line is cut');
    unlike($res->{json}{matches}[0]{text}, qr/\x{fffd}/,
           'and not within a character');

    is_problem(post('search', { pattern => '(', path => 'se' }), 400, 'E3001',
               'a wrong pattern', qr{/pattern});
    is_problem(post('search', { pattern => '' }), 400, 'E3001', 'an empty');
    is_problem(post('search', { pattern => 'a', glob => '' }), 400, 'E3001',
               'an empty glob');
    is_problem(post('search', { pattern => 'a', limit => 0 }), 400, 'E3001',
               'limit 0');
    is_problem(post('search', { pattern => 'a', path => 'none' }), 404,
               'E4001', 'a path that is missing');
    is_problem(post('search', { pattern => "a\0" }), 400, 'E3001', 'a NUL');
};


subtest 'a catastrophic pattern costs its session alone' => sub {
    run($s, q{mkdir bad; python3 -c "
for i in range(40):
    print('a' * 30000 + 'b')" > bad/x});

    my $job = async {
        my $res = post('search', { pattern => '^(a+)+$', path => 'bad' });
        return [ $res->{status}, $res->{json}{truncated} ? 1 : 0 ];
    };

    my $other = create_ok();
    is(put($other, 'x', 'y')->{status}, 201, 'another goes on');
    is(path_call('stat', 'bad/x')->{status}, 200, 'and so does this one');
    destroy($other);

    is_deeply($job->get(within(60)), [ 200, 1 ], 'it ends, and says how');

    # few steps from each place of a line, which has many

    run($s, q{python3 -c "print('a' * 60000 + '\n' + 'z' * 9000 + 'needle')"}
            . ' > bad/x');

    my $res = post('search', { pattern => '(a(?=a))++$|z+needle',
                               path => 'bad' });

    is_deeply([ $res->{status}, $res->{json}{truncated} ? 1 : 0 ], [ 200, 1 ],
              'a long line costs too much');
    is_deeply([ map { $_->{line} } @{ $res->{json}{matches} } ], [ 2 ],
              'and the next one does not');
};


subtest 'an upload with a condition' => sub {
    put($s, 'c', 'one');
    my $tag = get($s, 'c')->{headers}{etag};

    is(put($s, 'c', 'two', headers => { 'If-Match' => qq{"x", $tag} })
       ->{status}, 200, 'If-Match, in a list');
    is_problem(put($s, 'c', 'three', headers => { 'If-Match' => $tag }), 412,
               'E4008', 'the tag of the old');
    is_problem(put($s, 'c', 'three', headers => { 'If-Match' => "W/" .
               get($s, 'c')->{headers}{etag} }), 412, 'E4008', 'a weak tag');
    is(put($s, 'c', 'three', headers => { 'If-Match' => '*' })->{status}, 200,
       'If-Match: *');
    is_problem(put($s, 'cnew', 'x', headers => { 'If-Match' => '*' }), 412,
               'E4008', 'If-Match: * where there is none');
    is(get($s, 'cnew')->{status}, 404, 'makes none');
    is_problem(put($s, 'cdir/x/y', 'x', headers => { 'If-Match' => '*' }),
               412, 'E4008', 'where not even its directory is');
    is(path_call('stat', 'cdir')->{status}, 404, 'makes none of these');
    is(put($s, 'cnew', 'x', headers => { 'If-None-Match' => '*' })->{status},
       201, 'If-None-Match: *');
    is_problem(put($s, 'cnew', 'x', headers => { 'If-None-Match' => '*' }),
               412, 'E4008', 'a second time');

    $tag = get($s, 'c')->{headers}{etag};
    is_problem(put($s, 'c', 'x', headers => { 'If-None-Match' => "W/$tag" }),
               412, 'E4008', 'If-None-Match with its tag');
    is(get($s, 'c')->{body}, 'three', 'and it is as it was');
};


subtest 'of uploads with the same tag one wins' => sub {
    my $lost = 0;

    for my $round (1 .. 5) {
        put($s, 'race', 'base');
        my $tag = get($s, 'race')->{headers}{etag};

        # all are past their first look before any ends

        my @open = map {
            open_request('PUT', "/sessions/$s/files/race",
                         headers => { 'If-Match' => $tag,
                                      'Content-Length' => 2 })
        } 1 .. 4;

        send_all($_, 'x') for @open;
        until_true { sh('ls -A | grep -c sandbox-upload') == 4 };
        send_all($_, 'y') for @open;

        my @res = map { read_response($_)->{status} } @open;
        close $_ for @open;

        is(join(' ', sort @res), '200 412 412 412', "round $round");
    }

    is(sh('ls -A | grep -c sandbox-upload'), "0\n", 'nothing is left');
};


destroy($s);
$t->finish;
done_testing();
