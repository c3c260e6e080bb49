#!/usr/bin/perl

# Pages of sessions while others come and go at the same time, by two workers;
# and keys that make a create safe to repeat, when it is.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";

use Test::More;
use SandboxTest::More;

my $t = server(reuseport => 1);
my %who = (tenant_id => 'churn', user_id => 'alice');

sub crash {
    my $old = $t->broker;

    kill 'KILL', $old;

    return until_true {
        my $new = $t->broker;
        $new && $new != $old && call('GET', '/health')->{status} == 200
    } 30;
}


# Reads all pages: ids in their order.

sub pages {
    my ($query) = @_;

    my (@ids, $cursor);

    for my $page (1 .. 200) {
        my $json = call('GET', "/sessions?$query"
                        . ($cursor ? '&cursor=' . enc($cursor) : ''))
                   ->{json};

        push @ids, map { $_->{session_id} } @{ $json->{sessions} };
        $cursor = $json->{next_cursor} // return @ids;
    }

    return (@ids, 'pages without end');
}


subtest 'pages while sessions come and go' => sub {
    my @live = map { create_ok({ %who, metadata => {
        kind => $_ % 2 ? 'odd' : 'even', 'a b&c' => 'x=y+z' } }) } 1 .. 8;
    my $stop = $t->prefix . '/stop';

    my @churn = map { my $n = $_; async {
        my $made = 0;

        until (-e $stop && $made >= 2) {
            my $res = create({ %who, user_id => "churn$n",
                               metadata => { kind => 'odd' } });
            last if $res->{status} != 201;
            destroy($res->{json}{session_id});
            $made++;
        }

        return $made;
    } } 1 .. 2;

    my @cases = (
        [ 'tenant_id=churn&limit=1', [ reverse @live ] ],
        [ 'tenant_id=churn&limit=3', [ reverse @live ] ],
        [ 'tenant_id=churn&metadata.kind=odd&limit=2',
          [ reverse @live[0, 2, 4, 6] ] ],
        [ 'tenant_id=churn&user_id=alice&status=running&limit=2'
          . '&metadata.kind=even', [ reverse @live[1, 3, 5, 7] ] ],
        [ 'tenant_id=churn&limit=2&metadata.a+b%26c=x%3dy%2Bz',
          [ reverse @live ] ],
        [ 'tenant_id=churn&user_id=alice&limit=1000', [ reverse @live ] ],
    );
    my %live = map { $_ => 1 } @live;

    for my $round (1 .. 3) {
        for my $case (@cases) {
            my ($query, $want) = @$case;
            my @got = pages($query);
            my %n;

            $n{$_}++ for @got;
            is(join(' ', grep { $live{$_} } @got), join(' ', @$want),
               "$query: those that live all along, once, newest first");
            is(join(' ', grep { $n{$_} > 1 } sort keys %n), '',
               '  and none twice');
        }
    }

    open my $f, '>', $stop or die $!;
    close $f;

    my $made = 0;
    $made += $_->get for @churn;
    cmp_ok($made, '>', 2, "while $made came and went");

    is(join(' ', pages('tenant_id=churn&limit=3')), join(' ', reverse @live),
       'and after that');
    destroy($_) for @live;
};


subtest 'what is wrong in a query is named' => sub {
    for my $case ([ 'cursor=nonsense', qr/cursor/ ],
                  [ 'cursor=s', qr/cursor/ ], [ 'cursor=s0', qr/cursor/ ],
                  [ 'cursor=-1', qr/cursor/ ],
                  [ 'cursor=sffffffffffffffffff', qr/cursor/ ],
                  [ 'cursor=gff', qr/cursor/ ], [ 'cursor=', qr/cursor/ ],
                  [ 'limit=0', qr/limit/ ], [ 'limit=1001', qr/limit/ ],
                  [ 'status=dead', qr/status/ ],
                  [ 'tenant_id=a%20b', qr/tenant_id/ ],
                  [ 'user_id=-', qr/user_id/ ],
                  [ 'template=a%2Fb', qr/template/ ],
                  [ 'metadata.=x', qr/metadata/ ],
                  [ 'metadata.k', qr/metadata/ ])
    {
        my ($query, $detail) = @$case;
        is_problem(call('GET', "/sessions?$query"), 400, 'E3001', $query,
                   $detail);
    }
};


subtest 'a key and a crash' => sub {
    my %how = (headers => { 'Idempotency-Key' => "same-$$" });
    my %body = (%who, metadata => { n => '1' });
    my @jobs = map { async { create(\%body, %how) } } 1 .. 4;
    my @res = map { $_->get } @jobs;
    my %ids = map { ($_->{json}{session_id} // 'none') => 1 } @res;
    my ($id) = keys %ids;

    is(scalar keys %ids, 1, 'creates at once make one session');
    is((grep { $_->{status} == 201 } @res), 1, 'which one of them has made');
    is(call('GET', '/sessions?tenant_id=churn')->{json}{sessions}[1], undef,
       'and no other');

    my $other = create({ %body, tenant_id => 'other' }, %how);
    is($other->{status}, 201, 'the key of another tenant is another');

    ok(crash(), 'another broker');

    @res = map { $_->get } map { async { create(\%body, %how) } } 1 .. 4;
    is(join(' ', map { "$_->{status} $_->{json}{session_id}" } @res),
       join(' ', ("200 $id") x 4), 'knows it');
    is_problem(create({ %body, metadata => { n => '2' } }, %how), 409,
               'E2011', 'and the body');
    is(create({ %body, tenant_id => 'other' }, %how)->{json}{session_id},
       $other->{json}{session_id}, 'and whose it is');
    is(call('POST', "/sessions/$id/exec", json => { cmd => 'echo on' })
       ->{json}{stdout}, "on\n", 'it works');

    destroy($id);
    ok(crash(), 'and another');
    my $fresh = create(\%body, %how);
    is($fresh->{status}, 201, 'after its end a fresh one is made');
    isnt($fresh->{json}{session_id}, $id, 'of its own');
    destroy($_->{json}{session_id}) for $fresh, $other;
};


$t->finish;
done_testing();
