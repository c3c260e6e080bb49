#!/usr/bin/perl

# An upload, and each of the processes that have to do with it killed in each
# phase: the file is the new one, whole, or it is the old one, and nothing
# else is there.  The same of archives that are unpacked, and of files that
# are moved or removed.  SANDBOX_TEST_LONG=1 kills every process at every
# point.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../lib";

use File::Temp qw(tempdir);
use Test::More;
use SandboxTest::Fault;
use SandboxTest::Kill;
use SandboxTest::More;

# As in kill-exec.t, of what the caller is told: done, again, cut, gone (an
# error, the session is no more), lost (E5001), any.  "held" is the process
# that serves the call, or whoever else stands at the point.  The file is new
# where that was told.

my @MATRIX = (
    [ 'worker-call-opened',
      { held => 'cut', broker => 'done', keeper => 'done', init => 'gone' } ],
    [ 'worker-call-sent',
      { held => 'cut', broker => 'done', keeper => 'done', init => 'gone' } ],
    [ 'broker-call-taken',
      { held => 'again', worker => 'cut', keeper => 'done',
        init => 'gone' } ],
    [ 'broker-call-handed',
      { held => 'done', worker => 'any', keeper => 'done', init => 'any' } ],
    [ 'init-task-taken',
      { held => 'gone', worker => 'cut', broker => 'done',
        keeper => 'done' } ],
    [ 'init-file-forked',
      { held => 'any', worker => 'any', broker => 'done',
        keeper => 'done' } ],
    [ 'file-call-read',
      { held => 'lost', worker => 'cut', broker => 'done', keeper => 'done',
        init => 'gone' } ],
    [ 'file-put-made',
      { held => 'lost', worker => 'cut', broker => 'done', keeper => 'done',
        init => 'gone' } ],
    [ 'file-put-ready',
      { held => 'lost', worker => 'cut', broker => 'done', keeper => 'done',
        init => 'lost' } ],
    [ 'worker-upload-ready',
      { held => 'cut', broker => 'done', keeper => 'done', init => 'lost' } ],
    [ 'worker-upload-passed',
      { held => 'cut', broker => 'done', keeper => 'done', init => 'lost' } ],
    [ 'file-put-wrote',
      { held => 'lost', worker => 'cut', broker => 'done', keeper => 'done',
        init => 'lost' } ],
    [ 'worker-upload-sent',
      { held => 'cut', broker => 'done', keeper => 'done', init => 'any' } ],
    [ 'file-put-whole',
      { held => 'lost', worker => 'cut', broker => 'done', keeper => 'done',
        init => 'lost' } ],
    [ 'file-put-renamed',
      { held => 'lost', worker => 'cut', broker => 'done', keeper => 'done',
        init => 'lost' } ],
    [ 'init-file-reaped',
      { held => 'done', worker => 'any', broker => 'done',
        keeper => 'done' } ],
    [ 'worker-upload-over',
      { held => 'cut', broker => 'done', keeper => 'done', init => 'done' } ],
);

# Of an archive: old files stay until each is replaced, and none is cut.

my @UNPACK = (
    [ 'broker-call-taken', { held => 'again' } ],
    [ 'file-unpack-entry',
      { held => 'lost', worker => 'cut', broker => 'done', keeper => 'done',
        init => 'lost' } ],
    [ 'file-unpack-whole',
      { held => 'lost', worker => 'cut', broker => 'done', keeper => 'done',
        init => 'lost' } ],
    [ 'file-unpack-staged',
      { held => 'lost', worker => 'cut', broker => 'done', keeper => 'done',
        init => 'lost' } ],
    [ 'file-unpack-moved',
      { held => 'lost', worker => 'cut', broker => 'done', keeper => 'done',
        init => 'lost' } ],
);

# Of calls that change something at once: they are not sent again when it may
# have been done.

my @CHANGES = (
    [ 'broker-call-taken', { held => 'again' } ],
    [ 'file-call-read',
      { held => 'lost', worker => 'cut', broker => 'done', init => 'gone' } ],
    [ 'file-call-telling',
      { held => 'lost', worker => 'cut', broker => 'done', keeper => 'done',
        init => 'gone' } ],
);

my $AGAIN = qr/sandbox call was lost and is sent again/;
my $OLD = 'the old one';
my $SIZE = 700_000;

my $t = kill_server();
my $n = 0;
my $id = victim();

bystander();

my %EXPECTED = (
    done  => { answer => qr/^done$/, again => 0 },
    again => { answer => qr/^done$/, again => 1 },
    cut   => { answer => qr/^cut$/, again => 0 },
    gone  => { answer => qr/^(?:E2009|E5001)$/ },
    lost  => { answer => qr/^E5001$/, again => 0 },
    any   => { answer => qr/^(?:done|cut|E2009|E5001)$/ },
);

sub answered {
    my ($res) = @_;

    return 'done' if $res->{status} == 204
                     || ($res->{status} == 200 && ref $res->{json} eq 'HASH'
                         && (($res->{json}{entries} // 0) == 4
                             || $res->{json}{size} == $SIZE
                             || ($res->{json}{path} // '') =~ m{/up/2$}));
    return 'cut' if cut_off($res);
    return $res->{json}{code} if ref $res->{json} eq 'HASH'
                                 && $res->{json}{code};
    return "status $res->{status} " . ($res->{body} // '');
}

# Which one the file is.

sub which {
    my ($new) = @_;

    my $res = get($id, 'up/file');

    return $res->{status} != 200 ? "status $res->{status}"
           : $res->{body} eq $OLD ? 'old'
           : $res->{body} eq $new ? 'new'
           : 'neither, ' . length($res->{body}) . ' bytes';
}

# What each of the archive's files says; one that is not there says nothing.

sub said {
    return run($id, 'cd up; for i in a/1 a/2 3; do cat $i || echo none; done'
                    . ' 2>/dev/null | tr "\\n" " "')->{stdout};
}

sub names {
    return run($id, 'cd up; find . -mindepth 1 -type f | sort | tr "\\n" " "')
           ->{stdout};
}

# Files that are replaced, one that is new, and a gap before the end.

sub archive {
    my $dir = tempdir(DIR => '/tmp', CLEANUP => 1);

    mkdir "$dir/a";

    for my $name (qw(a/1 a/2 3)) {
        open my $f, '>', "$dir/$name" or die "$dir: $!";
        print $f "new\n";
        close $f;
    }

    return scalar `tar -C '$dir' -cf - --owner=0 --group=0 a 3`;
}

my $tar = archive();

sub case_of_archive {
    my ($point, $victim, $outcome) = @_;

    my $name = "archive: $point, $victim killed";

    run($id, 'rm -rf up; mkdir -p up/a; echo old | tee up/a/1 > up/a/2');
    return case($point, $victim, $outcome, $name, sub {
        ask($_[0], PUT => "/sessions/$id/archive/up", body => $tar);
    }, sub {
        my ($got) = @_;

        ok(until_true { names() !~ /sandbox/ }, "$name: nothing else is there")
            or diag(names());
        like(said(), $got eq 'done' ? qr/^new new new $/
                     : qr/^(?:old|new) (?:old|new) (?:none|new) $/,
             "$name: each file is whole");
    });
}

# A file is moved, or removed: that is done or not, and done once.

sub case_of_change {
    my ($point, $victim, $outcome, $how) = @_;

    my $name = "$how: $point, $victim killed";

    run($id, 'rm -rf up; mkdir up; echo it > up/1');
    return case($point, $victim, $outcome, $name, sub {
        return $how eq 'move'
               ? ask($_[0], POST => "/sessions/$id/move",
                     json => { from => 'up/1', to => 'up/2' })
               : ask($_[0], DELETE => "/sessions/$id/files/up/1");
    }, sub {
        my ($got) = @_;
        my $new = $how eq 'move' ? './2 ' : '';

        ok(until_true { names() !~ /sandbox/ }, "$name: nothing else is there")
            or diag(names());
        is(names(), $new, "$name: it is done")
            if $got eq 'done' || $point eq 'file-call-telling';
        like(names(), qr{^(?:\./1 |\Q$new\E)$}, "$name: or it is as it was");
    });
}

sub case_of_move { return case_of_change(@_, 'move') }

sub case_of_removal { return case_of_change(@_, 'removal') }

sub case_of_file {
    my ($point, $victim, $outcome) = @_;

    my $name = "$point, $victim killed";
    my $new = pack('N', ++$n) x ($SIZE / 4);

    run($id, 'rm -rf up');
    like(put($id, 'up/file', $OLD)->{status}, qr/^20[01]$/,
         "$name: there is an old file");

    return case($point, $victim, $outcome, $name, sub {
        ask($_[0], PUT => "/sessions/$id/files/up/file", body => $new);
    }, sub {
        my ($got) = @_;

        ok(until_true { names() eq './file ' }, "$name: nothing else is there")
            or diag(names());
        like(which($new), $got eq 'done' ? qr/^new$/ : qr/^(?:old|new)$/,
             "$name: the file is whole");
    });
}

sub case {
    my ($point, $victim, $outcome, $name, $begin, $check) = @_;

    my $want = $EXPECTED{$outcome};
    my $before = $t->log_has($AGAIN);
    my $line = strike($point, $victim, $id, $begin, name => $name) or return;

    my $res = answer($line);
    my $got = answered($res);

    like($got, $want->{answer}, "$name: the answer ($outcome)")
        or diag(substr $res->{body} // '', 0, 300);
    ok(recovered(), "$name: all is served again");

    if (!SandboxTest::alive(init_of($id))) {
        gone_with($id, "$name: the session is gone");
        $id = victim();

    } else {
        $check->($got);
    }

    is($t->log_has($AGAIN) - $before, $want->{again},
       "$name: how often it was sent again") if defined $want->{again};
    others_live_on("$name: another session goes on");
}

for my $row ((map { [ \&case_of_file, @$_ ] } @MATRIX),
             (map { [ \&case_of_archive, @$_ ] } @UNPACK),
             (map { [ \&case_of_move, @$_ ] } @CHANGES),
             (map { [ \&case_of_removal, @$_ ] } @CHANGES))
{
    my ($case, $point, $outcomes) = @$row;

    for my $victim (qw(held worker broker keeper init)) {
        $case->($point, $victim, $outcomes->{$victim})
            if $outcomes->{$victim} && ($LONG || $victim eq 'held');
    }
}


# Not killed, but too late: the clock of its step rings.

subtest 'an archive of which a step takes too long' => sub {
    my $line = dial();
    my $init = init_of($id);

    run($id, 'rm -rf up; mkdir -p up/a; echo old | tee up/a/1 > up/a/2');
    until_true { !SandboxTest::children($init) } 20;
    arm($init, 'file-unpack-entry', skip => 2);
    ask($line, PUT => "/sessions/$id/archive/up", body => $tar);

    my $held = held($init);

    ok($held, 'the third entry is read');
    like(names(), qr{/\.sandbox-upload-}, 'it is unpacked beside its place');
    is($t->hit(ALRM => $held), 1, 'the clock rings');
    disarm($init);
    release($held);

    my $res = answer($line);

    is_problem($res, 503, 'E5001', 'its caller is told', qr/took too long/);
    ok(until_true { names() eq './a/1 ./a/2 ' }, 'nothing else is there')
        or diag(names());
    is(said(), 'old old none ', 'each file is as it was');
    others_live_on('another session goes on');
};

destroy($id);
kill_finish();
done_testing();
