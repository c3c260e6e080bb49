#!/usr/bin/perl

# filesystem.Filesystem of E2B: entries, lists, moving, removing, and watching
# both ways.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";

use Test::More;
use SandboxTest::More;
use SandboxTest::Connect;

my $TRUE = JSON::PP::true;

my $t = connect_server();
my $s = create_ok({ timeout_s => 3600 });


sub sh {
    my $r = run($s, @_);

    diag($r->{stderr}) if $r->{exit_code};

    return $r->{stdout};
}

sub fs {
    my ($method, $body, %o) = @_;

    return rpc($s, "filesystem.Filesystem/$method",
               ref $body ? $body : { path => $body }, %o);
}

sub watch {
    return rpc_stream($s, 'filesystem.Filesystem/WatchDir', @_);
}

sub error_is {
    my ($r, $status, $code, $re, $name) = @_;

    ok($r->{status} == $status && ($r->{json}{code} // '') eq $code
       && ($r->{json}{message} // '') =~ $re, $name)
        or diag("$r->{status} $r->{body}");
}

sub names { return join ' ', map { $_->{name} } @{ $_[0]{json}{entries} } }
sub paths { return join ' ', map { $_->{path} } @{ $_[0]{json}{entries} } }

# Of messages: "TYPE name".

sub event {
    my ($m) = @_;

    my $e = $m->{filesystem} // $m;

    return join ' ', ($e->{type} // '-') =~ s/^EVENT_TYPE_//r,
                     $e->{name} // '-';
}

sub until_event {
    my ($w, $wanted) = @_;

    while (my $m = $w->next) {
        return $m->{filesystem} if event($m) eq $wanted;
        last if $m->{end};
    }

    return {};
}


subtest 'an entry' => sub {
    sh('printf 12345 > plain; chmod 640 plain; touch -d @1700000000.25 plain;'
       . ' mkdir -m 755 dir; mkdir -m 1777 sticky; printf x > tool;'
       . ' chmod 4755 tool; mkfifo fifo; ln -s plain link; ln -s dir/ ld;'
       . ' ln -s nowhere broken; ln -s loop loop; ln -s link again;'
       . ' touch -d @1700000000 whole');

    my $r = fs(Stat => '/home/user/plain');

    is($r->{status}, 200, 'Stat');
    is_deeply($r->{json}{entry}, {
        name => 'plain', type => 'FILE_TYPE_FILE',
        path => '/home/user/plain', size => '5', mode => 0640,
        permissions => '-rw-r-----', owner => 'user', group => 'user',
        modifiedTime => '2023-11-14T22:13:20.250000000Z',
    }, 'a file');
    is_deeply($r->{json}{result}, $r->{json}{entry}, 'by another name');
    like($r->{body}, qr/"size":"5"/, 'a size is text');

    my %more = (
        dir => [ 'FILE_TYPE_DIRECTORY', 'drwxr-xr-x', 0755 ],
        sticky => [ 'FILE_TYPE_DIRECTORY', 'dtrwxrwxrwx', 0777 ],
        tool => [ 'FILE_TYPE_FILE', 'urwxr-xr-x', 0755 ],
        fifo => [ 'FILE_TYPE_UNSPECIFIED', 'prw-r--r--', 0644 ],
        link => [ 'FILE_TYPE_FILE', 'Lrwxrwxrwx', 0640,
                  '/home/user/plain' ],
        again => [ 'FILE_TYPE_FILE', 'Lrwxrwxrwx', 0640,
                   '/home/user/plain' ],
        ld => [ 'FILE_TYPE_DIRECTORY', 'Lrwxrwxrwx', 0755,
                '/home/user/dir' ],
        broken => [ 'FILE_TYPE_UNSPECIFIED', 'Lrwxrwxrwx', 0,
                    '/home/user/nowhere' ],
    );

    for my $name (sort keys %more) {
        my $e = fs(Stat => $name)->{json}{entry};
        my @got = ($e->{type}, $e->{permissions}, $e->{mode});
        push @got, $e->{symlinkTarget} if exists $e->{symlinkTarget};

        is_deeply(\@got, $more{$name}, $name) or diag(explain($e));
        is($e->{name}, $name, 'its name');
    }

    is(fs(Stat => 'whole')->{json}{entry}{modifiedTime},
       '2023-11-14T22:13:20Z', 'a whole second');

    is(fs(Stat => $_)->{json}{entry}{path}, '/home/user/plain', "\"$_\"")
        for '~/plain', 'plain', './dir/../plain', '/home//user/plain/',
            '/../home/user/plain';
    is(fs(Stat => { })->{json}{entry}{path}, '/home/user', 'no path');
    is(fs(Stat => '~', user => 'root')->{json}{entry}{path}, '/root',
       'the home of root');
    is(fs(Stat => '/')->{json}{entry}{name}, '/', 'the root');

    error_is(fs(Stat => 'nope'), 404, 'not_found',
             qr{^path '/home/user/nope' does not exist$}, 'what is missing');
    error_is(fs(Stat => '~other'), 400, 'invalid_argument', qr/home/,
             'a home of somebody else');
    error_is(fs(Stat => "a\0b"), 400, 'invalid_argument', qr/NUL/, 'a NUL');
    error_is(fs(Stat => 'a' x 5000), 400, 'invalid_argument', qr/longer/,
             'a path that is too long');
    error_is(fs(Stat => 'plain', user => 'bob'), 401, 'unauthenticated',
             qr/^error looking up user 'bob'/, 'a user who is unknown');
    error_is(fs(Stat => 'plain', token => 'x' x 64), 401, 'unauthenticated',
             qr/./, 'a wrong token');

    sh('python3 -c \'import os; f = os.setxattr;'
       . ' f("plain", "user.e2b.author", b"mish");'
       . ' f("plain", "user.other", b"x")\'');
    is_deeply(fs(Stat => 'plain')->{json}{entry}{metadata},
              { author => 'mish' }, 'metadata');
};


subtest 'lists' => sub {
    sh('mkdir -p l/b/c/d l/a l/b-; touch l/a/x l/b/y l/b/c/z l/.h; ln -s l s');

    is(names(fs(ListDir => 'l')), '.h a b b-', 'a directory, by name');
    is(names(fs(ListDir => { path => 'l', depth => 0 })), '.h a b b-',
       'depth 0 is 1');
    is(paths(fs(ListDir => { path => 'l', depth => 2 })),
       join(' ', map { "/home/user/l/$_" }
            qw(.h a a/x b b/c b/y b-)), 'depth 2: each before what it has');
    is(paths(fs(ListDir => { path => 'l', depth => 1000 })),
       join(' ', map { "/home/user/l/$_" }
            qw(.h a a/x b b/c b/c/d b/c/z b/y b-)), 'all of it');
    is(paths(fs(ListDir => 's')),
       join(' ', map { "/home/user/s/$_" } qw(.h a b b-)),
       'through a link, by its name');
    is_deeply(fs(ListDir => 'l/a')->{json}{entries}[0]{metadata}, undef,
              'no metadata');
    is_deeply(fs(ListDir => 'l/b/c/d')->{json}, { entries => [] },
              'an empty one');

    error_is(fs(ListDir => 'nope'), 404, 'not_found', qr/nope/, 'none');
    error_is(fs(ListDir => 'plain'), 400, 'invalid_argument',
             qr{^path '/home/user/plain': }, 'a file');
    error_is(fs(ListDir => 'loop'), 400, 'failed_precondition', qr/links/,
             'a link to itself');

    sh('mkdir many; cd many; seq 20001 | xargs touch; rm 20001');
    my $r = call('POST', '/filesystem.Filesystem/ListDir', base => '/e2b',
                 json => { path => 'many' }, raw => 1,
                 headers => rpc_headers($s));
    is(scalar(() = $r->{body} =~ /"name":/g), 20000, 'a large one');
    sh('touch many/20001');
    error_is(fs(ListDir => 'many'), 429, 'resource_exhausted', qr/20000/,
             'one that is larger');
    sh('rm -r many');
};


subtest 'directories are made, and things moved and removed' => sub {
    my $r = fs(MakeDir => 'm/n/o');

    is($r->{json}{entry}{path}, '/home/user/m/n/o', 'MakeDir');
    is($r->{json}{entry}{permissions}, 'drwxr-xr-x', 'its mode');
    is(sh('stat -c "%U %a" m m/n'), "user 755\nuser 755\n", 'its parents');
    error_is(fs(MakeDir => 'm/n'), 409, 'already_exists',
             qr{^directory already exists: /home/user/m/n$}, 'again');
    error_is(fs(MakeDir => 'plain'), 400, 'invalid_argument', qr/./,
             'where there is a file');
    is(fs(MakeDir => 'r', user => 'root')->{json}{entry}{path}, '/root/r',
       'by root');

    sh('printf 1 > f; printf 2 > g');
    $r = fs(Move => { source => 'f', destination => 'm/new/f' });
    is($r->{json}{entry}{path}, '/home/user/m/new/f', 'Move');
    is(sh('cat m/new/f'), '1', 'and its parents');
    is(fs(Move => { source => 'g', destination => 'm/new/f' })->{status},
       200, 'over a file');
    is(sh('cat m/new/f; ls f g 2>&1 | wc -l'), "22\n", 'it takes its place');
    is(fs(Move => { source => 'm', destination => 'mm' })->{status}, 200,
       'a directory');
    error_is(fs(Move => { source => 'no', destination => 'x' }), 404,
             'not_found', qr/no/, 'what is missing');

    is(fs(Remove => 'mm')->{body}, '{}', 'Remove, with all below');
    is(fs(Remove => 'mm')->{body}, '{}', 'what is gone');
    is(fs(Remove => 'link')->{body}, '{}', 'a link');
    is(sh('ls -d mm link plain 2>/dev/null'), "plain\n", 'and that alone');
    error_is(fs(Remove => '/usr'), 403, 'permission_denied', qr/./,
             'what may not be');
};


subtest 'forms of requests' => sub {
    my $r = rpc($s, 'filesystem.Filesystem/Stat', envelope('{"path":"dir"}'),
                type => 'application/connect+json');
    is($r->{json}{entry}{name}, 'dir', 'in an envelope');

    $r = rpc($s, 'filesystem.Filesystem/Stat', '{"path":"dir","x":[{}]}',
             type => 'application/connect+json');
    is($r->{json}{entry}{name}, 'dir', 'without one; what is unknown');

    $r = rpc($s, 'filesystem.Filesystem/Stat', '{"path":null}');
    is($r->{json}{entry}{name}, 'user', 'null');

    error_is(rpc($s, 'filesystem.Filesystem/Stat', '{"path":1}'), 400,
             'invalid_argument', qr/path/, 'a number');
    error_is(rpc($s, 'filesystem.Filesystem/Stat', '{'), 400,
             'invalid_argument', qr/./, 'no JSON');
};


subtest 'a stream of events' => sub {
    sh('mkdir -p w/deep; ln -s w wl; touch w/old');

    my $w = watch({ path => 'w' });
    is_deeply($w->next, { start => {} }, 'it is set');
    sh('printf x > w/new');
    is(event($w->next), 'CREATE new', 'a file that is made');
    is(event($w->next), 'WRITE new', 'written');
    sh('chmod 600 w/new; touch w/deep/unseen; mv w/new w/newer; rm w/newer');
    is_deeply(until_event($w, 'CHMOD new'),
              { name => 'new', type => 'EVENT_TYPE_CHMOD' }, 'chmod');
    is(event($w->next), 'RENAME new', 'renamed');
    is(event($w->next), 'CREATE newer', 'to');
    is(event($w->next), 'REMOVE newer', 'removed');
    close $w->{s};

    $w = watch({ path => '/home/user/wl', recursive => $TRUE,
                 includeEntry => $TRUE });
    is_deeply($w->next, { start => {} }, 'a link to one, with all below');
    put($s, 'w/deep/up', 'content');
    my $e = until_event($w, 'WRITE deep/up');
    is($e->{entry}{size}, '7', 'an upload, with its entry');
    is($e->{entry}{name}, 'up', 'whose name is its own');
    sh('rm w/deep/up; mkdir w/d2; printf y > w/d2/f');
    is(until_event($w, 'REMOVE deep/up')->{entry}, undef,
       'what is gone has none');
    ok(until_event($w, 'CREATE d2')->{entry}, 'a directory');
    ok(until_event($w, 'WRITE d2/f')->{name}, 'and what is made in it');
    close $w->{s};

    for ([ 'plain', 'invalid_argument' ], [ 'nope', 'not_found' ]) {
        $w = watch({ path => $_->[0] });
        is($w->{status}, 200, "$_->[0]: 200");
        is(($w->next // {})->{end}{error}{code}, $_->[1], 'and its error');
    }

    $w = watch({ path => 'w' }, ms => 300);
    is_deeply($w->next, { start => {} }, 'with a deadline');
    is(($w->next // {})->{end}{error}{code}, 'deadline_exceeded',
       'that passes');

    $w = watch({ path => 'w' }, headers => { 'Keepalive-Ping-Interval' => 1 });
    $w->next;
    is_deeply($w->next, { keepalive => {} }, 'a keepalive');

    sh('mv w gone; rm -r gone');
    my $end;
    do { $end = $w->next } while ($end && !$end->{end});
    is_deeply($end, { end => {} }, 'the end, once the directory is gone');
};


subtest 'a watcher' => sub {
    sh('mkdir -p p/q; printf x > p/old');

    my $r = fs(CreateWatcher => { path => 'p', recursive => $TRUE });
    my $id = $r->{json}{watcherId};
    like($id, qr/^\w/, 'CreateWatcher') or diag($r->{body});

    my $events = sub {
        my ($all, @more) = @_;

        until_true(sub {
            my $j = fs(GetWatcherEvents => { watcherId => $_[0] // $id })
                        ->{json};
            push @more, @{ $j->{events} || [] };
            return grep { event($_) eq $all } @more;
        });

        return \@more;
    };

    is_deeply(fs(GetWatcherEvents => { watcherId => $id })->{json},
              { events => [] }, 'nothing yet');
    put($s, 'p/old', 'again');
    is(event(fs(GetWatcherEvents => { watcherId => $id })
                 ->{json}{events}[0] // {}), 'WRITE old',
       'what an upload did is there when it is answered');
    sh('touch p/q/n; rm p/old');
    my $got = $events->('REMOVE old');
    ok((grep { event($_) eq 'CREATE q/n' } @$got), 'and what is below');
    ok(!(grep { $_->{entry} } @$got), 'no entries');

    my $other = fs(CreateWatcher => { path => '/home/user/p/q',
                                      includeEntry => $TRUE })
                    ->{json}{watcherId};
    isnt($other, $id, 'another');
    sh('printf abc > p/q/e');
    my $j;
    until_true(sub {
        $j = fs(GetWatcherEvents => { watcher_id => $other })->{json};
        @{ $j->{events} };
    });
    is($j->{events}[0]{entry}{path}, '/home/user/p/q/e', 'with entries')
        or diag(explain($j));

    my $s2 = create_ok();
    error_is(rpc($s2, 'filesystem.Filesystem/GetWatcherEvents',
                 { watcherId => $id }), 404, 'not_found',
             qr/^watcher with id \Q$id\E not found$/, 'in another session');

    is(fs(RemoveWatcher => { watcherId => $id })->{body}, '{}',
       'RemoveWatcher');
    error_is(fs($_ => { watcherId => $id }), 404, 'not_found',
             qr/^watcher with id \Q$id\E not found$/, "$_ of what is gone")
        for qw(GetWatcherEvents RemoveWatcher);
    error_is(fs(GetWatcherEvents => { watcherId => $_ }), 404, 'not_found',
             qr/^watcher with id/, "no id: \"$_\"")
        for '', 'w', 'x1-2-0', 'w1', 'w1-2', 'w1-2-', 'w-1-1-1', 'w9-9-00',
            'w99999999999999999999-1-0', 'w1-2-0x', 'y' x 1000;
    error_is(fs(CreateWatcher => 'plain'), 400, 'invalid_argument', qr/./,
             'of a file');
    error_is(fs(CreateWatcher => 'nope'), 404, 'not_found', qr/nope/,
             'of nothing');
};


$t->finish;
done_testing();
