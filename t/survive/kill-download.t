#!/usr/bin/perl

# A download, and each of the processes that have to do with it killed in each
# phase: what the client has is the whole file, or can be seen to be less.
# The same of an archive, whose length nobody knows before.
# SANDBOX_TEST_LONG=1 kills every process at every point.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../lib";

use Test::More;
use SandboxTest::Fault;
use SandboxTest::Kill;
use SandboxTest::More;

# What the client gets: whole; again (whole, by a call that was sent twice);
# cut (no answer, or one that ends too early); lost (E5001); gone (an error,
# the session is no more); any of these.  "held" stands at the point.

my @FILE = (
    [ 'worker-call-opened',
      { held => 'cut', broker => 'whole', keeper => 'whole',
        init => 'gone' } ],
    [ 'broker-call-taken',
      { held => 'again', worker => 'cut', keeper => 'whole',
        init => 'gone' } ],
    [ 'broker-call-handed',
      { held => 'whole', worker => 'cut', keeper => 'whole',
        init => 'any' } ],
    [ 'init-task-taken',
      { held => 'gone', worker => 'cut', broker => 'whole',
        keeper => 'whole' } ],
    [ 'init-file-forked',
      { held => 'any', worker => 'cut', broker => 'whole',
        keeper => 'whole' } ],
    [ 'file-call-read',
      { held => 'lost', worker => 'cut', broker => 'whole',
        keeper => 'whole', init => 'gone' } ],
    [ 'file-open-opened',
      { held => 'lost', worker => 'cut', broker => 'whole',
        keeper => 'whole', init => 'gone' } ],
    [ 'file-open-passed',
      { held => 'cut', worker => 'cut', broker => 'whole',
        keeper => 'whole', init => 'cut' } ],
    [ 'init-file-reaped',
      { held => 'cut', worker => 'cut', broker => 'whole',
        keeper => 'whole' } ],
    [ 'worker-download-opened',
      { held => 'cut', broker => 'whole', keeper => 'whole',
        init => 'cut' } ],
    [ 'worker-download-sending',
      { held => 'cut', broker => 'whole', keeper => 'whole',
        init => 'cut' } ],
);

my @ARCHIVE = (
    [ 'broker-call-taken', { held => 'again' } ],
    [ 'file-pack-ready',
      { held => 'cut', worker => 'cut', broker => 'whole',
        keeper => 'whole', init => 'any' } ],
    [ 'file-pack-sent',
      { held => 'cut', worker => 'cut', broker => 'whole',
        keeper => 'whole', init => 'cut' } ],
    [ 'file-pack-whole',
      { held => 'cut', worker => 'any', broker => 'whole',
        keeper => 'whole', init => 'cut' } ],
);

# More than sockets take while nobody reads.

my $SIZE = 24 * 1024 * 1024;
my $AGAIN = qr/sandbox call was lost and is sent again/;

my $t = kill_server();
my ($id, $sum, $archive);

# nginx's own, of a file whose session's disk is gone.

$t->allow(qr/sendfile\(\) failed \(5: Input/);

bystander();


# A session with the file, and the sum of what is to come of it.

sub filled {
    $id = victim();
    run($id, "head -c $SIZE /dev/urandom > file; mkdir tree;"
             . ' for i in 1 2 3 4; do head -c 500000 file > tree/$i; done');
    ($sum) = run($id, 'md5sum file')->{stdout} =~ /^(\w+)/;
    $archive = call('GET', "/sessions/$id/archive/tree");
    $archive->{status} == 200 or die "no archive\n";
    $archive = $archive->{body};
}

# What the client has, told by nothing but what HTTP tells it.

sub got {
    my ($res, $kind) = @_;

    return $res->{json}{code} // "status $res->{status}"
        if $res->{status} != 0 && $res->{status} != 200;
    return 'cut' if cut_off($res) || ($kind eq 'archive' && !$res->{last});
    return 'whole' if $kind eq 'file' ? md5_hex($res->{body}) eq $sum
                                      : $res->{body} eq $archive;
    return 'status 200 with ' . length($res->{body}) . ' other bytes';
}

# As answer(), with the last chunk told of.

sub answer_of {
    my ($line, $kind) = @_;

    return answer($line) if $kind eq 'file';

    my $head = SandboxTest::More::read_head($line->{s}, timeout => within(60));
    return $head if $head->{status} != 200 && !$head->{headers}{'content-type'};

    my ($rest) = SandboxTest::More::read_rest($line->{s},
                                              timeout => within(60));
    my $raw = $head->{rest} . $rest;
    close $line->{s};

    if ($head->{status} != 200) {
        $head->{json} = eval { JSON::PP->new->decode($raw) };
        return $head;
    }

    $head->{body} = '';

    while ($raw =~ s/^([0-9A-Fa-f]+)\r\n//) {
        my $n = hex $1;
        $head->{last} = $n == 0 && $raw eq "\r\n";
        last if $n == 0 || length $raw < $n + 2;
        $head->{body} .= substr $raw, 0, $n;
        substr $raw, 0, $n + 2, '';
    }

    return $head;
}

my %EXPECTED = (
    whole => { answer => qr/^whole$/, again => 0 },
    again => { answer => qr/^whole$/, again => 1 },
    cut   => { answer => qr/^cut$/, again => 0 },
    lost  => { answer => qr/^E5001$/, again => 0 },
    gone  => { answer => qr/^(?:E2009|E5001)$/ },
    any   => { answer => qr/^(?:whole|cut|E2009|E5001)$/ },
);

sub case {
    my ($kind, $point, $victim, $outcome) = @_;

    my $name = "$kind: $point, $victim killed";
    my $want = $EXPECTED{$outcome};
    my $before = $t->log_has($AGAIN);
    my $path = $kind eq 'file' ? 'files/file' : 'archive/tree';

    my $line = strike($point, $victim, $id, sub {
        ask($_[0], GET => "/sessions/$id/$path");
    }, name => $name) or return;

    my $got = got(answer_of($line, $kind), $kind);

    like($got, $want->{answer}, "$name: the answer ($outcome)");
    ok(recovered(), "$name: all is served again");

    if (!SandboxTest::alive(init_of($id))) {
        gone_with($id, "$name: the session is gone");
        filled();

    } else {
        # what was read is still there, and let go of
        is(got(answer_of(ask(dial(), GET => "/sessions/$id/$path"), $kind),
               $kind), 'whole', "$name: then it is whole");
    }

    is($t->log_has($AGAIN) - $before, $want->{again},
       "$name: how often it was sent again") if defined $want->{again};
    others_live_on("$name: another session goes on");
}

filled();

for my $row ((map { [ file => @$_ ] } @FILE),
             (map { [ archive => @$_ ] } @ARCHIVE))
{
    my ($kind, $point, $outcomes) = @$row;

    for my $victim (qw(held worker broker keeper init)) {
        case($kind, $point, $victim, $outcomes->{$victim})
            if $outcomes->{$victim} && ($LONG || $victim eq 'held');
    }
}

is(destroy($id)->{status}, 204, 'nobody holds its files any more');
kill_finish();
done_testing();
