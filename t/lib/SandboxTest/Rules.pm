package SandboxTest::Rules;

# What the tests of the manifest's "filesystem" share: a server that offers
# directories of the host, sessions with rules, and a look at what each may
# do with a path.

use strict;
use warnings;

use Exporter qw(import);
use File::Temp qw(tempdir);
use Test::More;

use SandboxTest::More;

our @EXPORT = qw(
    rules_server $OWNER host_file own ask session refused out access_is
    host_is_as_it_was
);

our $OWNER = 12345;

my ($host, %before);


# The server and the directory that holds those that it offers.

sub rules_server {
    $host = tempdir('sbxhostXXXXXX', DIR => '/tmp', CLEANUP => 1);
    chmod 0755, $host;

    for my $dir (qw(ro ro/sub ro/sub/deep ro/hidden rw rw/sub rw/hidden mine
                    theirs gone turned prey))
    {
        mkdir "$host/$dir" or die $!;
    }

    host_file("ro/$_", "host $_\n") for qw(readme secret sub/deep/file
                                           hidden/file);
    host_file("rw/$_", "host $_\n") for qw(readme secret sub/file hidden/file);
    host_file("$_/file", "$_\n") for qw(mine theirs turned);
    host_file('rw/foreign', "host foreign\n");
    host_file('rw/foreign-secret', "host foreign-secret\n");
    symlink '/etc/hostname', "$host/rw/link" or die $!;
    own(qw(rw rw/readme rw/secret rw/sub rw/sub/file rw/hidden rw/hidden/file
           turned prey));
    chmod 0600, "$host/rw/foreign-secret" or die $!;

    my $t = server(http => <<"CONF");
    sandbox_bind models $host/ro ro;
    sandbox_bind work   $host/rw rw;
    sandbox_bind mine   $host/mine ro tenant=acme-corp tenant=another;
    sandbox_bind theirs $host/theirs ro tenant=other-corp;
    sandbox_bind gone   $host/gone ro;
    sandbox_bind turned $host/turned rw;
    sandbox_bind prey   $host/prey rw;
CONF

    # what must not have changed when all of it is over
    %before = (host => walk($host), usr => walk('/usr'),
               etc => walk('/etc'), mounts => join("\n", mounts()));

    return ($t, $host);
}


sub host_file {
    my ($name, $text) = @_;

    open my $f, '>', "$host/$name" or die "$name: $!";
    print $f $text;
    close $f;
}

sub own { chown $OWNER, $OWNER, map { "$host/$_" } @_ or die $! }

sub ask {
    my ($fs, %more) = @_;

    return create({ %more, manifest => { filesystem => $fs } });
}

sub session {
    my ($fs, %more) = @_;

    return create_ok({ %more, manifest => { filesystem => $fs } });
}

sub refused {
    my ($name, $detail, $fs, %more) = @_;

    local $Test::Builder::Level = $Test::Builder::Level + 1;

    my $res = ask($fs, %more);
    destroy($res->{json}{session_id}) if $res->{status} == 201;

    return is_problem($res, 400, 'E2002', $name, $detail);
}

sub out { return run(@_)->{stdout} }


# "rw", "r", "w" or "": what can be done with a file, or in a directory.

my $ACCESS = <<'SH';
for p in "$@"; do
    a=
    if [ -d "$p" ]; then
        ls "$p" > /dev/null 2>&1 && a=r
        n="$p/.new.$$"
        (: > "$n") 2> /dev/null && a=${a}w && rm -f "$n"
    else
        cat "$p" > /dev/null 2>&1 && a=r
        (: >> "$p") 2> /dev/null && a=${a}w
    fi
    echo "$p=$a"
done
SH

sub access_is {
    my ($id, $want, $name) = @_;

    local $Test::Builder::Level = $Test::Builder::Level + 1;

    for my $user (qw(user root)) {
        my @paths = sort keys %$want;
        my %w = map { my $v = $want->{$_};
                      ($_ => ref $v ? $v->{$user} : $v) } @paths;
        my %got = map { /^(.*)=(.*)$/ } split /\n/,
                  out($id, [ 'sh', '-c', $ACCESS, 'sh', @paths ],
                      user => $user);

        is_deeply(\%got, \%w, "$name ($user)");
    }
}

sub walk {
    my ($dir) = @_;

    return join '', sort split /^/m,
           `find \Q$dir\E -printf '%p %y %m %U %G %s %T@ %n %i\n' 2>/dev/null`;
}


sub host_is_as_it_was {
    local $Test::Builder::Level = $Test::Builder::Level + 1;

    subtest 'the host is as it was' => sub {
        # times of what was written through the read-write directory, and of
        # what was taken away and put back, are not

        my $plain = sub {
            join '', map { s/ \d+\.\d+ (?=\d+ \d+$)/ /r }
                     grep { !m{^\Q$host\E(?:/rw|/gone|/turned|/prey| )} }
                     split /^/m, $_[0];
        };

        is($plain->(walk($host)), $plain->($before{host}), 'what is offered');
        is(join(' ', sort map { s{.*/}{}r } glob "$host/rw/{,.}*"),
           '. .. foreign foreign-secret hidden link readme secret sub',
           'the read-write one');
        is(walk('/usr'), $before{usr}, '/usr');
        is(walk('/etc'), $before{etc}, '/etc');
        is(join("\n", mounts()), $before{mounts}, 'mounts');
    };

    return;
}


1;
