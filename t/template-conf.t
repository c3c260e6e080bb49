#!/usr/bin/perl

# Templates in the configuration: what sessions get of them, what a caller
# may change, and what "nginx -t" finds.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";

use JSON::PP ();
use Test::More;
use SandboxTest;
use SandboxTest::More;

my $block = <<'CONF';
    sandbox_max memory=1GB;
    sandbox_template small {
        description "a <small> one";
        memory 64MB;
        processes 20;
        timeout 120;
        env COLOUR red;
        env SHAPE "a b";
        capabilities shell files;
    }
CONF

my $t = SandboxTest->new(http => $block);


sub write_json {
    my ($name, $text) = @_;

    my $dir = $t->prefix . "/templates/$name";
    mkdir $dir;
    open my $f, '>', "$dir/template.json" or die $!;
    print $f ref $text ? JSON::PP->new->canonical->encode($text) : $text;
    close $f;
    return;
}

write_json(other => { description => 'by a file', timeout_s => 200,
                      resources => { memory => '96MB', cpus => 0.5 },
                      env => { FROM => 'file' } });
$t->start;

sub made {
    my ($template, %o) = @_;

    return $t->api(POST => '/sessions',
                   { tenant_id => 'a', user_id => 'b',
                     template => $template, %o });
}

sub output {
    my ($id, $cmd) = @_;

    my $res = $t->api(POST => "/sessions/$id/exec", { cmd => $cmd });

    return $res->{json}{stdout} // $res->{body};
}

my $s = made('small')->{json};
is($s->{template}, 'small', 'a session of a block');
is($s->{resources}{memory}, 64 << 20, 'has its memory');
is($s->{resources}{processes}, 20, 'and processes');
is_deeply([ sort @{ $s->{capabilities} } ], [ qw(files shell) ],
          'and capabilities');
is(output($s->{session_id}, 'printf "$COLOUR $SHAPE"'), 'red a b',
   'and environment');
like(output($s->{session_id}, 'ls /usr/bin/env'), qr/env/,
     'with the programs of the machine');

my $other = made('small', env => { COLOUR => 'blue', MORE => '1' },
                   manifest => { resources => { memory => '128MB' },
                                 capabilities => [ 'shell' ] })->{json};
is($other->{resources}{memory}, 128 << 20, 'a request wins');
is($other->{resources}{processes}, 20, 'where it asks');
is(output($other->{session_id}, 'printf "$COLOUR $SHAPE $MORE"'),
   'blue a b 1', 'in the environment as well');
is_deeply($other->{capabilities}, [ 'shell' ], 'and may have fewer');

sub is_refused {
    my ($res, $want, $name, $detail) = @_;

    is("$res->{status} $res->{json}{code}", $want, $name)
        or diag($res->{body});
    return like($res->{json}{detail}, $detail, 'which is told');
}

is_refused(made('small', manifest => { capabilities => [ qw(shell code) ]}),
           '403 E3004', 'more than the template allows', qr/small/);
is_refused(made('small', manifest => { resources => { memory => '2GB' } }),
           '400 E2002', 'more than the maximum', qr/memory/);
is_refused(made('nothing'), '404 E2001', 'no template', qr/nothing/);
is_refused(made('../base'), '404 E2001', 'no name', qr/name/);

my $f = made('other')->{json};
is($f->{resources}{memory}, 96 << 20, 'one of a file');
is($f->{resources}{cpus}, 0.5, 'with its limits');
is(output($f->{session_id}, 'printf $FROM'), 'file', 'and environment');
is(made('base')->{json}{resources}{memory}, 512 << 20, 'base is as it was');

my $list = $t->api(GET => '/templates')->{json}{templates};
is_deeply([ sort map { $_->{name} } @$list ], [ qw(base other small) ],
          'all are listed');
is((grep { $_->{name} eq 'small' } @$list)[0]{description}, 'a <small> one',
   'with their descriptions');
is(scalar @{ $t->api(GET => '/sessions?template=small')->{json}{sessions} },
   2, 'sessions are found by them');


subtest 'a reload' => sub {
    $block =~ s/memory 64MB/memory 80MB/;
    $t->write_conf(http => $block);
    write_json(third => { timeout_s => 99 });
    $t->reload;

    my $new;

    # an old worker may take a call or two more

    SandboxTest::wait_for(sub {
        $new = made('small')->{json}{resources}{memory};
        return $new == 80 << 20;
    }, 10);

    is($new, 80 << 20, 'counts for new');
    is($t->api(GET => "/sessions/$s->{session_id}")->{json}{resources}{memory},
       64 << 20, 'and not for old');
    is(made('third')->{status}, 201, 'a new one is there');
    ok(SandboxTest::wait_for(sub {
        $t->log_has(qr/new limits.*count for new sessions, \d+ go on/) }, 5),
       'which the log says');
};


subtest 'what is wrong' => sub {
    my @cases = (
        [ 'sandbox_template a { memory 2GB; }', qr/memory.*nginx\.conf:\d+/ ],
        [ 'sandbox_template a { memory much; }', qr/memory much/ ],
        [ 'sandbox_template a { colour red; }', qr/unknown "colour"/ ],
        [ 'sandbox_template a { env A; }', qr/"env".*name and a value/ ],
        [ 'sandbox_template a { env A=B c; }', qr/variable's name/ ],
        [ 'sandbox_template a { capabilities fly; }', qr/"fly"/ ],
        [ 'sandbox_template a/b { }', qr{"a/b"} ],
        [ 'sandbox_template a { } sandbox_template a { }', qr/duplicate/ ],
        [ 'sandbox_template other { }', qr/other.*template\.json/ ],
        [ 'sandbox_template a { memory 32MB; memory 33MB; }', qr/duplicate/ ],
        [ 'sandbox_template a { description b; description c; }',
          qr/"description" of template "a" is duplicate/ ],
        [ 'sandbox_template a { env B 1; env C 2; env B 3; }',
          qr/"B" of template "a" is duplicate/ ],
        [ 'sandbox_template a { capabilities files; capabilities shell; }',
          qr/"capabilities" of template "a" is duplicate/ ],
        [ "sandbox_template a { description '" . 'x' x 200 . "'; }",
          qr/159/ ],
    );

    for my $case (@cases) {
        my ($text, $want) = @$case;
        $t->write_conf(http => "sandbox_max memory=1GB;\n$text");
        my ($rc, $out) = $t->nginx('-t');
        isnt($rc, 0, substr $text, 0, 60);
        like($out, $want, 'is told');
    }

    $t->write_conf(http => $block);

    for my $case ([ '{', qr/bad/ ], [ { colour => 1 }, qr{/colour} ],
                  [ { resources => { memory => '4GB' } }, qr/memory/ ],
                  [ { capabilities => [ 'fly' ] }, qr{/capabilities/0} ],
                  [ { env => { 'A B' => '1' } }, qr{/env} ],
                  [ '[]', qr/bad/ ], [ ' ' x 70_000, qr/64 KB/ ])
    {
        write_json(bad => $case->[0]);
        my ($rc, $out) = $t->nginx('-t');
        isnt($rc, 0, 'a file ' . (ref $case->[0] ? (%{ $case->[0] })[0]
                                                 : substr $case->[0], 0, 5));
        like($out, qr{templates/bad/template\.json}, 'is named');
        like($out, $case->[1], 'with the field');
    }

    unlink $t->prefix . '/templates/bad/template.json';
    my ($rc, $out) = $t->nginx('-t');
    is($rc, 0, 'and all is well without it') or diag($out);
};

$t->allow(qr/emerg/);
$t->finish;
done_testing();
