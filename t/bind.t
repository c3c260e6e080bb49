#!/usr/bin/perl

# What a session may not leave in a directory of the host's that it writes: a
# program that would run as the directory's owner for whoever starts it.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";

use File::Temp qw(tempdir);
use Test::More;
use SandboxTest::More;

my $OWNER = 12345;

my $modes = inside('modes');
plan(skip_all => 'no static program can be built here') if !defined $modes;

my $host = tempdir('sbxhostXXXXXX', DIR => '/tmp', CLEANUP => 1);
chmod 0755, $host;

for my $dir (qw(ro rw)) {
    mkdir "$host/$dir" or die $!;
    chown $OWNER, $OWNER, "$host/$dir" or die $!;
}

my $t = server(http => <<"CONF");
    sandbox_bind models $host/ro ro;
    sandbox_bind work   $host/rw rw;
CONF


sub session {
    my (@binds) = @_;

    my $s = create_ok({ manifest => { filesystem => { binds => \@binds } } });
    put($s, '/home/user/modes', $modes, query => 'mode=0755');

    return $s;
}

sub out { return run(@_)->{stdout} }

# What the probe says of each way: "NAME RESULT" => modes.

sub tried {
    my ($s, $dir, %more) = @_;

    my %ways;

    for (split /\n/, out($s, "mkdir -p $dir; /home/user/modes $dir", %more)) {
        my ($name, $bits, $result, $mode) = split;
        $ways{$name}{"$result " . ($mode =~ /^0/ ? 'none' : 'bits')}++;
    }

    return { map { ($_ => join ', ', sort keys %{ $ways{$_} }) } keys %ways };
}

sub special { return [ sort split /\n/, `find $host -perm /6000` ] }

my @refused = qw(chmod chmod-high fchmod fchmodat open openat creat mknod
                 mknodat tmpfile tmpfile-at socket elsewhere);
my %harmless = (mkdir => 'ok none', 'no-mode' => 'ok none');

# Linux 6.6; before, nobody has it
my %newer = (fchmodat2 => sub { qr/^(?:$_[0]|ENOSYS none)$/ });


subtest 'no way to a set-user-id or set-group-id bit' => sub {
    my $s = session('work');
    my $seen = tried($s, '/mnt/work/d');
    my $two = delete $seen->{fchmodat2};

    is_deeply($seen, { %harmless, openat2 => 'ENOSYS none',
                       map { ($_ => 'EPERM none') } @refused },
              'by any call');
    like($two, $newer{fchmodat2}('EPERM none'), 'fchmodat2');
    is_deeply(special(), [], 'as the host sees it');

    is_deeply(tried($s, '/home/user/d')->{chmod}, 'EPERM none',
              'nor elsewhere, from where it could be moved');
    like(tried($s, '/tmp/root', user => 'root')->{chmod}, qr/^EPERM none$/,
         "nor by the session's root");

    is(run($s, 'cd /mnt/work && cp /bin/true p && chmod 0755 p && chmod +t d'
               . ' && mkdir -m 1777 e && install -m 0700 p q && ./q'
               . ' && tar cf - p q | (mkdir x && cd x && tar xpf -) && x/q')
       ->{exit_code}, 0, 'every other mode is as ever');
    run($s, 'chmod u+s,g+s /mnt/work/p; chmod 6755 /mnt/work/p');
    is_deeply(special(), [], 'chmod(1)');

    run($s, 'rm -rf /mnt/work/*');
    destroy($s);
};


subtest "no way by the API's files" => sub {
    my $s = session('work');

    for my $mode (qw(4755 2755 6755 04755 7777)) {
        is_problem(put($s, '/mnt/work/up', 'x', query => "mode=$mode"), 400,
                   'E3001', "PUT, mode=$mode", qr/0777/);
    }

    is(get($s, '/mnt/work/up')->{status}, 404, 'nothing was made');
    is(put($s, '/mnt/work/up', 'x', query => 'mode=0755')->{status}, 201,
       'and is with a mode that may be');

    # one that the operator left there

    for my $user (qw(user root)) {
        chmod 06755, "$host/rw/up" or die $!;
        is(put($s, '/mnt/work/up', 'y', user => $user)->{status}, 200,
           "a file that has the bits is replaced ($user)");
        is(sprintf('%04o', (stat "$host/rw/up")[2] & 07777), '0755',
           'and has them no more');
    }

    chmod 06755, "$host/rw/up" or die $!;
    run($s, 'echo z >> /mnt/work/up');
    is(sprintf('%04o', (stat "$host/rw/up")[2] & 07777), '0755',
       'nor after a write');

    is_deeply(special(), [], 'as the host sees it');
    run($s, 'rm -rf /mnt/work/*');
    destroy($s);
};


subtest 'who writes nothing of the host\'s may set them' => sub {
    for my $binds ([], ['models']) {
        my $s = session(@$binds);
        my $seen = tried($s, '/home/user/d');

        # an overlay keeps no group's bit through a chmod

        s/^ok bits, ok none$/ok bits/ for values %$seen;

        my $two = delete $seen->{fchmodat2};
        my $elsewhere = delete $seen->{elsewhere};

        is_deeply($seen, { %harmless, openat2 => 'ok bits',
                           map { ($_ => 'ok bits') }
                           grep { $_ ne 'elsewhere' } @refused },
                  "binds: @$binds");
        like($two, $newer{fchmodat2}('ok bits'), 'fchmodat2');
        like($elsewhere, qr/^(?:ok bits|EXDEV none)$/, 'rename()');
        destroy($s);
    }
};


subtest 'a mixed session, and after a broker that died' => sub {
    my $s = session('models', 'work');
    my $old = $t->broker;

    kill 'KILL', $old;
    ok(until_true(sub { my $b = $t->broker; $b && $b != $old }, 20),
       'another broker is there');

    my $new = session('work', 'models');

    for my $one ($s, $new) {
        is(tried($one, '/mnt/work/d')->{chmod}, 'EPERM none', 'refused');
        is(put($one, '/mnt/work/d/up', 'x', query => 'mode=0711')->{status},
           201, 'and files go on');
        is(out($one, 'stat -c %a /mnt/work/d/up'), "711\n", 'with modes');
        run($one, 'rm -rf /mnt/work/*');
        destroy($one);
    }

    is_deeply(special(), [], 'as the host sees it');
};


$t->finish;
done_testing();
