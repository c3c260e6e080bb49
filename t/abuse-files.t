#!/usr/bin/perl

# Files, links and names that have led servers astray: out of the session,
# into a wait without end, or into a header of their own making.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";

use Test::More;
use SandboxTest::More;

# one worker: if any call held it, every later one would be late

my $t = server(workers => 1);
my $s = create_ok();

sub sh { return run($s, @_)->{stdout} }


subtest 'a link planted before the server writes leads nowhere new' => sub {
    my $passwd = slurp('/etc/passwd');
    my $inside = sh('cat /etc/passwd');

    isnt($inside, $passwd, "the session's passwd is not the host's");

    for my $name (qw(main.py stdin stdout script run.sh)) {
        run($s, [ 'ln', '-sfn', '/etc/passwd', $name ]);
        is(run($s, [ 'python3', '-c', 'print(1)' ], stdin => 'x')->{stdout},
           "1\n", "$name is a link: a program runs");

        my $res = put($s, $name, "x\n");
        is_problem($res, 403, 'E4003', "$name: writing through it is denied");
    }

    is(slurp('/etc/passwd'), $passwd, "the host's file is as it was");
    is(sh('cat /etc/passwd'), $inside, "the session's too");

    run($s, 'mkdir -p t; echo old > t/target; ln -sfn t/target good');
    is(put($s, 'good', "new\n")->{status}, 200, 'a link inside is followed');
    is(sh('cat t/target; readlink good'), "new\nt/target\n",
       'its target has the bytes, and the link is still one');
};


subtest "links are resolved inside the session's own root" => sub {
    my $inside = sh('cat /etc/passwd');

    my %links = (
        'out.txt' => '/etc/passwd',
        'up.txt' => '../../../../../../../../etc/passwd',
        'chain' => 'chain2',
    );

    run($s, [ 'ln', '-sfn', $links{$_}, $_ ]) for sort keys %links;
    run($s, [ 'ln', '-sfn', '/home/user/out.txt', 'chain2' ]);

    for my $name (sort keys %links) {
        my $res = get($s, $name);
        is($res->{status}, 200, "$name -> $links{$name} can be read");
        is($res->{body}, $inside, 'it is the passwd of the session');
    }

    for my $path ('../../../../../../etc/passwd',
                  '..%2f..%2f..%2f..%2fetc%2fpasswd')
    {
        my $res = get($s, '?path=' . ($path =~ /%/ ? $path : enc($path)));
        ok($res->{status} == 200 && $res->{body} eq $inside
           || $res->{status} >= 400 && $res->{status} < 500,
           "?path=$path is the session's or refused");
    }

    run($s, 'ln -sfn /proc/self/root/etc m1; ln -sfn /proc/1/root m2;'
            . ' ln -sfn /proc/self/cwd m3; ln -sfn /proc/self/fd m4;'
            . ' ln -sfn /proc/self/exe m5; ln -sfn loop1 loop2;'
            . ' ln -sfn loop2 loop1; ln -sfn /proc/self/root m6');

    for my $path (qw(m1/passwd m1/shadow m2/etc/passwd m2/etc/shadow m3/x
                     m4/0 m4/3 m4/4 m5 m6/etc/shadow loop1
                     /proc/self/root/etc/passwd /proc/1/root/etc/passwd
                     /proc/self/exe /proc/self/fd/3 /proc/self/fd/4))
    {
        my $res = get($s, $path);
        ok($res->{status} =~ /^4\d\d$/, "$path is refused: $res->{status}")
            or diag($res->{body});

        $res = put($s, $path, 'x');
        ok($res->{status} =~ /^4\d\d$/,
           "$path cannot be written: $res->{status}") or diag($res->{body});
    }
};


subtest 'a dangling link makes its target inside, never on the host' => sub {
    my $probe = "/tmp/escape_probe_$$";
    run($s, [ 'ln', '-sfn', $probe, 'new.txt' ]);

    my $res = put($s, 'new.txt', "x\n");
    ok($res->{status} == 201 || $res->{status} =~ /^4/,
       "answered $res->{status}");
    ok(!-e $probe, 'nothing was made on the host');

    if ($res->{status} == 201) {
        is(sh([ 'cat', $probe ]), "x\n", "the session's own file has it");
    }

    run($s, [ 'ln', '-sfn', "/nonexistent$$/dir/file", 'far.txt' ]);
    $res = put($s, 'far.txt', "x\n");
    ok($res->{status} =~ /^(?:201|4\d\d)$/, 'a target without its directory'
                                        . " is answered: $res->{status}");
    ok(!-e "/nonexistent$$", 'and makes none on the host');
    is(sh('find / -xdev -name ".sandbox*" 2>/dev/null'), '',
       'no temporary is left');
};


subtest 'what is no regular file is refused at once' => sub {
    run($s, 'mkfifo p; mkdir d; ln -sfn p lp; ln -sfn /dev/zero lz;'
            . ' python3 -c "import socket;'
            . ' socket.socket(socket.AF_UNIX).bind(\"s\")"');

    my @paths = qw(p s lp lz d /dev/zero /dev/null /dev/random /dev/tty
                   /dev/ptmx /proc/kmsg /proc/version /proc/self/mem
                   /proc/self/maps /proc/self/environ /proc/kcore
                   /proc/1/environ);

    for my $path (@paths) {
        for my $method (qw(GET HEAD PUT)) {
            my $t0 = time;
            my $res = $method eq 'GET' ? get($s, $path)
                    : $method eq 'HEAD' ? head($s, $path)
                    : put($s, $path, 'x');
            my $dt = time - $t0;

            ok($res->{status} =~ /^4\d\d$/ && $dt < within(2),
               sprintf('%s %s: %d in %.3f s', $method, $path,
                       $res->{status}, $dt));
        }
    }

    is_problem(get($s, $_), 409, 'E4004', "$_: the wrong type of file")
        for qw(p s d /dev/zero);

    is(glob_of($s, '*')->{status}, 200, 'a list with all of them in it');

    my %type = map { $_->{name} => $_->{type} }
               @{ glob_of($s, '*')->{json}{entries} };
    is_deeply([ @type{qw(p s d lp)} ], [ qw(fifo socket directory link) ],
              'tells the type of each');

    # many at once, none of which a writer will ever come for

    my @jobs = map { async { get($s, 'p')->{status} } } 1 .. 20;
    my $t0 = time;
    is(call('GET', '/health')->{status}, 200, 'the worker serves others');
    cmp_ok(time - $t0, '<', within(2), 'without delay');
    is_deeply([ map { $_->get(10) } @jobs ], [ (409) x 20 ],
              'and all twenty are answered');
    is(del($s, 'p')->{status}, 204, 'a FIFO can be removed');
};


subtest 'names that break framing come and go intact' => sub {
    my @names = ("a\nb", "a\r\nX-Injected: 1\r\n\r\nb", "a\tb", 'a"b',
                 '%2e%2e%2f', '..%5c', '..\\x', '-rf', "-", ' ', 'end ',
                 'x' x 255, "\xff\xfe", "\xe6\xb5\x8b\xe8\xaf\x95.txt",
                 "\xf0\x9f\xa4\xa3.txt", "a;b=c", "a'b", "a%b", '*', '[x]',
                 '{a,b}', '~', '$HOME', "\x01\x7f", "...", "a,b;c\\");

    run($s, [ 'mkdir', 'names' ]);

    for my $name (@names) {
        my $show = $name;
        $show =~ s/([^ -~])/sprintf '\\x%02x', ord $1/ge;
        $show = substr($show, 0, 20) . '...' if length $show > 40;

        my $bytes = 'content of ' . unpack 'H*', substr $name, 0, 20;
        my $res = put($s, "names/$name", $bytes);
        is($res->{status}, 201, "put $show") or diag($res->{body});

        for my $how ("names/$name",
                     '?path_base64=' . enc(b64("names/$name")),
                     ($name =~ /\xff/ ? ()
                                      : '?path=' . enc("names/$name")))
        {
            my $got = get($s, $how);
            my $by = $how =~ /^(\?\w+)=/ ? $1 : 'the path';

            is($got->{body}, $bytes, "get $show by $by");
            is($got->{headers}{'x-injected'}, undef, 'no header came of it');

            my @cd = grep { $_->[0] eq 'content-disposition' }
                     @{ $got->{all} || [] };
            is(scalar @cd, 1, 'one Content-Disposition');
            like($cd[0][1], qr/^attachment; [\x20-\x7e]*$/, 'printable');

            my ($star) = $cd[0][1] =~ /filename\*=UTF-8''([^;\s]*)/;
            next if $name =~ /\xff/;
            ok(defined $star, 'filename* is there') or next;
            unlike($star, qr/[^A-Za-z0-9!#\$&+.^_`|~%-]/, 'of safe bytes');
            $star =~ s/%([0-9A-Fa-f]{2})/chr hex $1/ge;
            is($star, $name, 'and decodes to the name');
        }
    }

    my $res = glob_of($s, 'names/*', 'limit=1000');
    is($res->{status}, 200, 'the list parses as JSON');

    my %listed;

    for my $e (@{ $res->{json}{entries} || [] }) {
        my $path;

        if (defined $e->{path_base64}) {
            $path = unb64($e->{path_base64});

        } else {
            $path = $e->{path};
            utf8::encode($path);
        }

        $listed{$path} = $e;
    }

    is_deeply([ sort keys %listed ],
              [ sort map { "/home/user/names/$_" }
                     grep { !/^\./ } @names ],
              'and has every name that is not hidden, byte for byte');

    for my $name (@names) {
        my $gone = $name =~ /\xff/
                   ? del($s, '?path_base64=' . enc(b64("names/$name")))
                   : del($s, "names/$name");
        is($gone->{status}, 204, 'deleted') or diag($gone->{body});
    }

    is(sh('ls -A names'), '', 'and no other name was made');
};


subtest 'odd paths are refused or mean what the kernel means' => sub {
    run($s, 'mkdir -p a; echo in > a/b; rm -rf names');

    is(get($s, '?path=' . enc('a//b'))->{body}, "in\n", 'a//b is a/b');
    is(get($s, '?path=' . enc('./a/./b'))->{body}, "in\n", './a/./b too');
    is(get($s, '?path=' . enc('a/../a/b'))->{body}, "in\n", 'a/../a/b too');

    is_problem(get($s, '?path=' . enc($_)), 409, 'E4004',
               "\"$_\" is a directory")
        for '', '.', '..', 'a', 'a/', '/';

    ok(get($s, '?path=' . enc('a/b/'))->{status} =~ /^4/,
       'a file with a slash after it is refused');
    ok(put($s, '?path=' . enc($_), 'x')->{status} =~ /^4/,
       "\"$_\" cannot be written")
        for '', '.', '..', 'a', 'new/', 'a/b/', 'a/b/c', '/';

    is(call('GET', "/sessions/$s/files/a%00b")->{status}, 400,
       '%00 in the path is 400');
    is(get($s, '?path=a%00b')->{status}, 400, '%00 in ?path= is 400');
    is_problem(get($s, '?path_base64=' . enc(b64("a\0b"))), 400, 'E4002',
               'NUL in ?path_base64=');
    is(get($s, '?path_base64=!!!')->{status}, 400, 'no base64');
    is_problem(get($s, 'x' x 256), 400, 'E4002', 'a name of 256 bytes');
    is_problem(get($s, '?path=' . enc('y/' x 2100 . 'z')), 400, 'E4002',
               'a path longer than PATH_MAX');
    is(call('GET', "/sessions/$s/files/a%zz")->{status}, 400,
       'a broken escape is 400');
    is(call('GET', "/sessions/$s/files/a%2Fb")->{body}, "in\n",
       '%2F is a slash, decoded once');
    is_problem(call('GET', "/sessions/$s/files/a%252Fb"), 404, 'E4001',
               '%252F is not decoded twice');
    is(call('GET', "/sessions/$s/files/%2Fhome/user/a/b")->{body}, "in\n",
       'a first %2F makes it absolute');
    is(call('GET', "/sessions/$s/files//home/user/a/b")->{body}, "in\n",
       'so does a slash');
    is_problem(get($s, '?path=a%2Fb&path_base64=' . enc(b64('a/b'))), 400,
               'E3001', 'both forms of ?path= in one call');
};


destroy($s);
$t->finish;
done_testing();
