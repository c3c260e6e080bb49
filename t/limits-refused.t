#!/usr/bin/perl

# What may not be asked for: less than the least, more than the cap, what is
# no number.  Nothing is run, and no session made, by a call that is refused.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";

use JSON::PP ();
use Test::More;
use SandboxTest::More;
use SandboxTest::Limits;

my $t = SandboxTest::More::server();

# In the units of JSON: minimum, one less; cap of the session below, one more.

my %bounds = (
    memory        => [ 16 * MB, 16 * MB - 1, 64 * MB, 64 * MB + 1 ],
    cpus          => [ 0.01, 0.009, 0.75, 0.751 ],
    cpu_seconds   => [ 0.01, 0.009, 30, 30.001 ],
    processes     => [ 8, 7, 24, 25 ],
    max_file_size => [ 1, 0, 4 * MB, 4 * MB + 1 ],
    open_files    => [ 16, 15, 128, 129 ],
    stack         => [ 64 << 10, (64 << 10) - 1, 4 * MB, 4 * MB + 1 ],
);

my %beside = (
    timeout_s        => [ 0.001, 0, 20, 20.001 ],
    max_output_bytes => [ 1, 0, 4096, 4097 ],
);

my %session = (
    %bounds,
    disk             => [ 1 * MB, 1 * MB - 1 ],
    inodes           => [ 256, 255 ],
    exec_timeout_s   => [ 0.001, 0 ],
    max_output_bytes => [ 1, 0 ],
);

my $s = create_ok({ manifest => { resources => {
    (map { $_ => $bounds{$_}[2] } keys %bounds),
    exec_timeout_s => 20, max_output_bytes => 4096, disk => '16MB' } } });


sub not_run {
    my ($name) = @_;

    local $Test::Builder::Level = $Test::Builder::Level + 1;

    my $out = run($s, 'ls /tmp')->{stdout};

    return is($out, '', "$name: nothing was run");
}


sub sessions { return scalar @{ call('GET', '/sessions')->{json}{sessions} } }


subtest 'of a command' => sub {
    for my $name (sort(keys %bounds), sort keys %beside) {
        my $limit = $bounds{$name};
        my ($min, $less, $cap, $more) = @{ $limit // $beside{$name} };
        my $ask = sub {
            my %fields = $limit ? (limits => { $name => $_[0] })
                                : ($name => $_[0]);
            return exec_call($s, 'touch /tmp/ran', %fields);
        };
        my $pointer = $limit ? qr{^/limits/$name\b} : qr{^/$name\b};

        is_problem($ask->($less), 400, 'E3001', "$name $less", $pointer);
        is_problem($ask->($more), 400, 'E2002', "$name $more",
                   qr/\b(?:exec_)?\Q$name\E\b.*\b\Q$cap\E\b/);
        is_problem($ask->($_), 400, 'E3001', "$name " . json_of($_), $pointer)
            for -1, 'much', [], {}, JSON::PP::true;
    }

    not_run('of all that');

    is_problem(exec_call($s, 'touch /tmp/ran', limits => { memory => undef }),
               400, 'E3001', 'memory null', qr{^/limits/memory\b});
    is_problem(exec_call($s, 'touch /tmp/ran',
                         limits => { processes => 8.5 }),
               400, 'E3001', 'half a process', qr{^/limits/processes\b});
    is_problem(exec_call($s, 'touch /tmp/ran', limits => { cpus => '1' }),
               400, 'E3001', 'cpus as a string', qr{^/limits/cpus\b});
    is_problem(exec_call($s, 'touch /tmp/ran', limits => []), 400, 'E3001',
               'limits that are none', qr{^/limits\b});
    is_problem(exec_call($s, 'touch /tmp/ran',
                         limits => { cpu_seconds => undef }),
               400, 'E3001', 'cpu_seconds null', qr{^/limits/cpu_seconds\b});

    for my $name (qw(disk inodes)) {
        is_problem(exec_call($s, 'touch /tmp/ran',
                             limits => { $name => 1000 }),
                   400, 'E3001', "$name is the session's alone",
                   qr{^/limits/$name: is the session's alone});
    }

    is_problem(exec_call($s, 'touch /tmp/ran', limits => { memry => 1 }),
               400, 'E3001', 'one that is unknown', qr{^/limits/memry\b});
    not_run('of the rest');
};


subtest 'the least and the cap are given' => sub {
    for my $name (sort(keys %bounds), sort keys %beside) {
        my $limit = $bounds{$name};
        my ($min, undef, $cap) = @{ $limit // $beside{$name} };

        for my $value ($min, $cap) {
            my %fields = $limit ? (limits => { $name => $value })
                                : ($name => $value);
            is(exec_call($s, [ 'true' ], %fields)->{status}, 200,
               "$name $value");
        }
    }

    is(exec_call($s, [ 'true' ], timeout_s => undef)->{status}, 200,
       'timeout_s null: until the session ends');
};


subtest 'of a session' => sub {
    my $before = sessions();

    for my $name (sort keys %session) {
        my $ask = sub { create({ manifest => { resources =>
                                               { $name => $_[0] } } }) };

        is_problem($ask->($session{$name}[1]), 400, 'E3001',
                   "$name $session{$name}[1]",
                   qr{^/manifest/resources/$name\b});
        is_problem($ask->($_), 400, 'E3001', "$name " . json_of($_),
                   qr{^/manifest/resources/$name\b})
            for -1, 'much', [], JSON::PP::false;
    }

    for my $case ([ memory => '4097MB', 4 << 30 ], [ cpus => 4.001, 4 ],
                  [ processes => 4097, 4096 ], [ open_files => 65537, 65536 ],
                  [ stack => '1025MB', 1 << 30 ], [ disk => '5GB', 4 << 30 ],
                  [ inodes => 1_000_001, 1_000_000 ],
                  [ max_output_bytes => '65MB', 64 * MB ])
    {
        my ($name, $more, $cap) = @$case;

        is_problem(create({ manifest => { resources => { $name => $more } } }),
                   400, 'E2002', "$name $more", qr/\b$name\b.*\b$cap\b/);
    }

    is(sessions(), $before, 'no session was made');

    my $res = create({ manifest => { resources => {
        map { $_ => $session{$_}[0] } keys %session } } });
    is($res->{status}, 201, 'the least of everything is given');

    my %told = %{ $res->{json}{resources} };
    is($told{$_}, $session{$_}[0], "$_ is told") for sort keys %session;
    destroy($res->{json}{session_id});
};


destroy($s);
$t->finish;
done_testing();
