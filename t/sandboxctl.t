#!/usr/bin/perl

# sandboxctl: what it prints, for people and for programs, its exit codes,
# and that looking at a broker changes nothing about it.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";

use JSON::PP;
use Test::More;
use SandboxTest;

my $BUILD = $ENV{SANDBOX_BUILD} || "$SandboxTest::ROOT/build";
my $CTL = "$BUILD/sandboxctl";


# (exit code, standard output, standard error)

sub ctl {
    my (@args) = @_;

    my $err = "/tmp/sbxctl.$$";
    my $pid = open(my $pipe, '-|') // die "fork: $!";

    if ($pid == 0) {
        open STDERR, '>', $err or die;
        my $as = ref $args[0] ? shift @args : [];
        my @command = (@$as, $CTL, @args);
        exec { $command[0] } @command or die;
    }

    local $/;
    my $out = <$pipe> // '';
    close $pipe;
    my $code = $? >> 8;
    my $text = SandboxTest::slurp($err) // '';
    unlink $err;

    return ($code, $out, $text);
}

sub wrong {
    my ($want, $expected, @args) = @_;

    local $Test::Builder::Level = $Test::Builder::Level + 1;

    my ($code, $out, $err) = ctl(@args);
    my $words = join ' ', map { ref ? () : $_ } @args;

    is($code, $want, "sandboxctl $words: exit code $want");
    is($out, '', 'nothing on standard output');
    like($err, qr/\Asandboxctl: [^\n]+\n\z/, 'one line of error');
    like($err, $expected, 'that tells');

    return;
}


subtest 'usage' => sub {
    my ($code, $out, $err) = ctl('--help');
    is("$code $err", '0 ', '--help');
    like($out, qr/^sandboxctl \Q$_\E\b/m, "names $_")
        for qw(doctor sessions template run version);

    for my $name (qw(doctor sessions template run version)) {
        ($code, $out, $err) = ctl($name, '--help');
        is("$code $err", '0 ', "$name --help");
        like($out, qr/\Asandboxctl $name /, 'tells how to use it');
    }

    wrong(125, qr/"--fly", see "sandboxctl run --help"/, 'run', '--fly');
    is((ctl())[0], 2, 'nothing is asked');
    wrong(2, qr/"fly"/, 'fly');
    wrong(2, qr/"--fly"/, $_, '--fly') for qw(doctor sessions version);
    wrong(2, qr/no value.*"--state"/, 'sessions', '--state');
    wrong(2, qr/"list"/, 'template', 'remove');
    wrong(2, qr/"list"/, 'template');
    like((ctl('version'))[1], qr/^sandboxctl \d+\.\d+\.\d+ /, 'version');
};


subtest 'templates' => sub {
    my $dir = "/tmp/sbxtemplates.$$";

    mkdir $_ for $dir, "$dir/one", "$dir/two", "$dir/two/rootfs",
                 "$dir/none", "$dir/.hidden";
    for my $name ('one', '.hidden') {
        open my $f, '>', "$dir/$name/template.json" or die;
        print $f '{}';
        close $f;
    }

    my ($code, $out) = ctl('template', 'list', '--json', '--templates', $dir);
    my $list = eval { decode_json($out) } || {};
    is($code, 0, 'template list');
    is(join(' ', map { "$_->{name}:$_->{root}" } @{ $list->{templates} }),
       'base:host code-interpreter-v1:host one:host two:own',
       'all that are there');
    is(join(' ', map { $_->{usable} ? $_->{name} : () }
                 @{ $list->{templates} }), 'base code-interpreter-v1',
       'which of them sessions can have');

    ($code, $out) = ctl('template', 'list', '--templates', $dir);
    like($out, qr/^base .*\n.*\n^one .*\n^two /m, 'for people');

    ($code, $out) = ctl('template', 'list', '--json', '--templates',
                        "$dir/nowhere");
    is($code, 0, 'no directory is no fault');
    is(scalar @{ decode_json($out)->{templates} }, 2, 'the built-in remain');

    system 'rm', '-rf', $dir;
};


subtest 'sessions' => sub {
    my $t = SandboxTest->new;
    my @state = ('--state', $t->prefix);

    wrong(3, qr/no broker/, 'sessions', @state);
    $t->start;

    my ($code, $out) = ctl('sessions', @state, '--json');
    is("$code $out", qq(0 {"sessions":[]}\n), 'none yet');

    my @ids = map { $t->session(tenant_id => "tenant-$_") } 1 .. 3;
    $t->http(PUT => "/v1/sessions/$ids[1]/files/big", body => 'x' x 300_000);
    $t->run($ids[1], 'true');

    ($code, $out) = ctl('sessions', @state, '--json');
    my $list = eval { decode_json($out) } || {};
    my %by = map { $_->{session_id} => $_ } @{ $list->{sessions} };

    is($code, 0, 'three sessions');
    is(join(' ', sort keys %by), join(' ', sort @ids), 'are listed');

    my $told = $t->api(GET => "/sessions/$ids[1]")->{json};
    my $s = $by{ $ids[1] };

    is($s->{$_}, $told->{$_}, "$_ as the API tells it")
        for qw(session_id tenant_id user_id template status created_at
               expires_at isolated);
    is($s->{usage}{$_}, $told->{usage}{$_}, "usage.$_ as well")
        for qw(disk inodes processes);
    cmp_ok($s->{usage}{disk}, '>', 300_000, 'which is what it uses');
    cmp_ok($s->{usage}{cpu_seconds}, '>', 0, 'and has used');

    ($code, $out) = ctl('sessions', @state);
    is($code, 0, 'for people');
    like($out, qr/\ASESSION +TENANT +USER/, 'with a head');
    like($out, qr/^\Q$ids[1]\E +tenant-2 +alice +base +running .* \d+\.\d\ds$/m,
         'and a line each');

    is($t->broker, $t->pid_file('broker.pid'), 'the broker is the same');
    is($t->run($ids[0], 'echo here')->{stdout}, "here\n",
       'and its sessions live');

    SKIP: {
        skip 'setpriv is not installed', 4 if !-x '/usr/bin/setpriv';

        my $user = getpwnam('nobody');
        wrong(3, qr/denied/, [ '/usr/bin/setpriv', "--reuid=$user",
                               '--clear-groups', '--' ], 'sessions', @state);
    }

    # it may come and go with the last server: it keeps nothing alive

    ok($t->stop, 'the server ends');
    wrong(3, qr/no broker/, 'sessions', @state);

    $t->finish;
};


subtest 'doctor' => sub {
    my ($code, $out, $err) = ctl('doctor', '--state', '/tmp');
    like($out, qr/^(?:ok|note|MISSING) +seccomp: /m, 'for people');

    # /tmp is anybody's
    is($code, 1, 'what is required and wrong is exit code 1');
    like($out, qr/^MISSING +state: .*\n +chown/m, 'and the command');

    ($code, $out) = ctl('doctor', '--json', '--state', '/tmp');
    my $doctor = eval { decode_json($out) } || {};
    ok(!$doctor->{ok}, 'as JSON, too');
    is($code, 1, 'with the same code');
};


done_testing();
