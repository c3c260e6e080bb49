#!/usr/bin/perl

# What happens to files, as a stream of events.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";

use Test::More;
use SandboxTest::More;
use Time::HiRes qw(time);

sub send_all { return SandboxTest::More::send_all(@_) }
sub read_some { return SandboxTest::More::read_some(@_) }
sub parse { return SandboxTest::More::parse(@_) }

my $t = server();
my $s = create_ok();

sub sh { return run($s, @_)->{stdout} }

# A stream that is read event by event.

sub watch {
    my ($path, $query, %h) = @_;

    my $c = open_request('GET', "/sessions/$s/watch/$path"
                                . ($query ? "?$query" : ''), headers => \%h);
    my $res = read_head($c);

    return { c => $c, res => $res, raw => $res->{rest}, text => '',
             ended => 0 };
}

sub next_event {
    my ($w, $seconds) = @_;

    my $deadline = time + within($seconds // 10);

    for ( ;; ) {
        while ($w->{raw} =~ /\A([0-9A-Fa-f]+)\r\n/
               && length $w->{raw} >= length($1) + 2 + hex($1) + 2)
        {
            my ($n, $at) = (hex $1, length($1) + 2);
            $w->{ended} = 1 if $n == 0;
            $w->{text} .= substr $w->{raw}, $at, $n;
            substr $w->{raw}, 0, $at + $n + 2, '';
        }

        if ($w->{text} =~ s/\A(.*)\n//) {
            my $e = parse($1);
            next if $e->{type} eq 'ping';
            return $e;
        }

        return undef if $w->{ended};

        my $more = read_some($w->{c}, $deadline);
        return undef if !defined $more || $more eq '';
        $w->{raw} .= $more;
    }
}

# Events up to the creation of a mark that is made now, as "type path".

my $marks = 0;

sub events {
    my ($w, $where) = @_;

    my $mark = "$where/mark" . ++$marks;
    run($s, "touch $mark");
    my @all;

    for ( ;; ) {
        my $e = next_event($w);
        last if !defined $e;
        my $line = $e->{type} . ' ' . ($e->{path} // '');
        last if $line eq "create /home/user/$mark";
        push @all, $line if $line !~ m{/mark\d+$};
    }

    return \@all;
}

my $W = '/home/user';


subtest 'what happens in a directory' => sub {
    run($s, 'mkdir -p a/sub; echo x > a/there');

    my $w = watch('a');
    is($w->{res}{status}, 200, 'is answered');
    is($w->{res}{headers}{'content-type'}, 'application/x-ndjson', 'NDJSON');
    is_deeply(next_event($w), { type => 'ready' }, 'ready first');

    run($s, 'echo y > a/new');
    is_deeply(events($w, 'a'), [ "create $W/a/new", "write $W/a/new" ],
              'a command makes a file and writes it');
    run($s, 'echo y >> a/there');
    is_deeply(events($w, 'a'), [ "write $W/a/there" ], 'writes one');
    run($s, 'chmod 600 a/there');
    is_deeply(events($w, 'a'), [ "chmod $W/a/there" ], 'chmod');
    run($s, 'mv a/there a/other');
    is_deeply(events($w, 'a'), [ "rename $W/a/there", "create $W/a/other" ],
              'rename: the old name, then the new');
    run($s, 'rm a/other');
    is_deeply(events($w, 'a'), [ "remove $W/a/other" ], 'remove');
    run($s, 'mkdir a/d; touch a/d/below a/sub/below');
    is_deeply(events($w, 'a'), [ "create $W/a/d" ],
              'a directory, and nothing below it');

    run($s, 'rm -r a');
    my @last;

    while (my $e = next_event($w)) {
        push @last, "$e->{type} $e->{path}";
    }

    is($last[-1], "remove $W/a", 'the directory itself goes');
    ok($w->{ended}, 'and the stream ends as a whole one');
};


subtest 'uploads and archives are one event each' => sub {
    run($s, 'mkdir u; echo old > u/old');
    my $w = watch('u', 'recursive=1');
    next_event($w);

    put($s, 'u/file', 'x' x 300_000);
    is_deeply(events($w, 'u'), [ "create $W/u/file" ], 'a new one: create');
    put($s, 'u/file', 'y', query => 'mode=0600');
    is_deeply(events($w, 'u'), [ "write $W/u/file" ], 'replaced: write');
    put($s, 'u/file', 'z', headers => { 'If-Match' => '"no"' });
    is_deeply(events($w, 'u'), [], 'refused: none');

    my $c = open_request('PUT', "/sessions/$s/files/u/half",
                         headers => { 'Content-Length' => 100 });
    send_all($c, 'half');
    until_true { sh('ls -A u | grep -c sandbox-upload') == 1 };
    close $c;
    until_true { sh('ls -A u | grep -c sandbox-upload') == 0 };
    is_deeply(events($w, 'u'), [], 'given up: none');

    run($s, 'mkdir pk pk/d; echo 1 > pk/d/in; echo 2 > pk/old');
    my $tar = call('GET', "/sessions/$s/archive/pk")->{body};
    call('PUT', "/sessions/$s/archive/u", body => $tar);
    is_deeply([ sort @{ events($w, 'u') } ],
              [ "create $W/u/d", "create $W/u/d/in", "write $W/u/old" ],
              'an archive: one for each entry');

    call('POST', "/sessions/$s/mkdir", json => { path => 'u/m/n' });
    is_deeply(events($w, 'u'), [ "create $W/u/m", "create $W/u/m/n" ],
              'mkdir');
    call('POST', "/sessions/$s/move", json => { from => 'u/m', to => 'u/k' });
    is_deeply(events($w, 'u'), [ "rename $W/u/m", "create $W/u/k" ], 'move');
    del($s, 'u/file');
    is_deeply(events($w, 'u'), [ "remove $W/u/file" ], 'DELETE');
    close $w->{c};
};


subtest 'a tree, whatever becomes of its directories' => sub {
    run($s, 'mkdir -p r/a/b');
    my $w = watch('r', 'recursive=1');
    next_event($w);

    run($s, ': > r/a/b/deep');
    is_deeply(events($w, 'r'), [ "create $W/r/a/b/deep" ], 'below');

    run($s, 'mkdir -p r/x/y/z; echo 1 > r/x/y/z/f');
    my %seen = map { $_ => 1 } @{ events($w, 'r') };
    ok($seen{"create $W/r/x$_"}, "create $_") for '', '/y', '/y/z', '/y/z/f';

    run($s, 'mv r/a r/moved; : > r/moved/b/after');
    is_deeply(events($w, 'r'), [ "rename $W/r/a", "create $W/r/moved",
                                 "create $W/r/moved/b/after" ],
              'a path is that of now');

    run($s, 'mkdir outer; mv r/moved outer/; touch outer/moved/b/away');
    is_deeply(events($w, 'r'), [ "rename $W/r/moved" ],
              'what was moved away is not told of');
    run($s, 'mv outer/moved r/back; touch r/back/b/again');
    %seen = map { $_ => 1 } @{ events($w, 'r') };
    ok($seen{"create $W/r/back$_"}, "moved in: create $_")
        for '', '/b', '/b/deep', '/b/again';

    run($s, 'ln -s /etc r/etc');
    is_deeply(events($w, 'r'), [ "create $W/r/etc" ], 'links are not entered');
    run($s, 'rm -r r/x');
    %seen = map { $_ => 1 } @{ events($w, 'r') };
    ok($seen{"remove $W/r/x/y/z/f"} && $seen{"remove $W/r/x"}, 'removed');
    close $w->{c};
};


subtest 'forms, one file, and what cannot be watched' => sub {
    run($s, 'mkdir f; echo 1 > f/one; echo 2 > f/two');

    my $w = watch('f/one');
    next_event($w);
    run($s, 'echo 2 >> f/two; echo 2 >> f/one');
    put($s, 'f/one', 'new');
    run($s, 'rm f/one');
    is_deeply([ map { my $e = next_event($w); "$e->{type} $e->{path}" }
                1 .. 3 ],
              [ "write $W/f/one", "write $W/f/one", "remove $W/f/one" ],
              'a file, through its replacement');
    close $w->{c};

    $w = watch('f', '', Accept => 'text/event-stream');
    is($w->{res}{headers}{'content-type'}, 'text/event-stream', 'SSE');
    ok((until_true {
           my $more = read_some($w->{c}, time + 1);
           $w->{raw} .= $more // '';
           $w->{raw} =~ /event: ready\ndata: \{"type":"ready"\}\n\n/;
       }), 'its form');
    close $w->{c};

    is_problem(call('GET', "/sessions/$s/watch/none"), 404, 'E4001',
               'what is missing');
    is_problem(call('GET', "/sessions/$s/watch/%2Fproc"), 409, 'E4004',
               'the kernel\'s');
    is_problem(call('GET', "/sessions/$s/watch/%2Froot"), 403, 'E4003',
               'what cannot be read');
    is_problem(call('GET', "/sessions/$s/watch/f?recursive=x"), 400, 'E3001',
               'recursive=x');

    run($s, q{python3 -c "
import os
for i in range(1100): os.makedirs('wide/%d' % i)"});
    my $wide = call('GET', "/sessions/$s/watch/wide?recursive=1");
    is_problem($wide, 429, 'E2003', 'more directories than a watch may have',
               qr/1024/);
    is($wide->{headers}{'retry-after'}, undef, 'however long one waits');
    run($s, 'rm -r wide');
};


subtest 'more than anybody reads is told as lost' => sub {
    run($s, 'mkdir o');
    my $w = watch('o');
    next_event($w);

    my $r = run($s, q{python3 -c "
for i in range(60000):
    open('o/%d-%s' % (i, 'n' * 200), 'w').close()"}, timeout_s => 60);
    is($r->{exit_code}, 0, 'the command is not held up');

    my ($events, $lost) = (0, 0);

    while (my $e = next_event($w, 3)) {
        $events++;
        $lost++ if $e->{type} eq 'overflow';
        last if $lost;
    }

    ok($lost, "overflow, after $events events");
    close $w->{c};
    run($s, 'rm -r o');
};


subtest 'watches have a number of their own' => sub {
    my @w = map { watch('f') } 1 .. 16;
    is(scalar(grep { $_->{res}{status} == 200 } @w), 16, '16 watches');

    my $res = call('GET', "/sessions/$s/watch/f");
    is_problem($res, 429, 'E2003', 'one more');
    is("$res->{json}{scope} $res->{json}{resource} $res->{json}{limit}",
       'session watches 16', 'says which limit');
    is($res->{headers}{'retry-after'}, 1, 'and that another may end');

    my @jobs = map { my $n = $_; async { put($s, "f/n$n", 'x')->{status} } }
               1 .. 12;
    is(join(' ', map { $_->get } @jobs), join(' ', (201) x 12),
       'other file calls are served all the same');

    close $_->{c} for @w;
    ok((until_true { my $w = watch('f'); close $w->{c};
                    $w->{res}{status} == 200 }), 'and they are given back');
};


subtest 'the session ends' => sub {
    my $w = watch('f');
    next_event($w);
    is(destroy($s)->{status}, 204, 'destroyed');
    is(next_event($w), undef, 'the stream is cut');
    ok(!$w->{ended}, 'and not ended');
};


$t->finish;
done_testing();
