package SandboxTest::Pool;

# A server with a pool, and what its metrics and its directories tell of it.

use strict;
use warnings;

use Exporter qw(import);
use Test::More;

use SandboxTest ();
use SandboxTest::More;

our @EXPORT = qw(pool_server metric pool_full pool_counts pooled_ids
                 init_of ends_ok make);

our $T;


# http: lines beside those of the pool; more goes to SandboxTest->new().

sub pool_server {
    my (%o) = @_;

    my $http = delete $o{http};

    $T = SandboxTest->new(workers => 2, http => $http,
                          server => '        location = /metrics '
                                    . '{ sandbox_api metrics; }'
                                    . ($o{more} // ''), %o)->start;

    return $T;
}


sub make {
    my (%o) = @_;

    return $T->api(POST => '/sessions',
                   { tenant_id => 'acme', user_id => 'alice', %o });
}


# The value of one metric, or undef.

sub metric {
    my ($name, %labels) = @_;

    my $text = $T->http(GET => '/metrics')->{body};

    LINE: for (split /\n/, $text) {
        my ($l, $value) = /^sandbox_\Q$name\E(?:\{(.*)\})? (\S+)$/ or next;

        for my $k (keys %labels) {
            next LINE if ($l // '') !~ /(?:^|,)$k="\Q$labels{$k}\E"/;
        }

        return $value;
    }

    return undef;
}


# Waits until a template's pool has as many as it is to have.

sub pool_full {
    my ($n, $template) = @_;

    local $Test::Builder::Level = $Test::Builder::Level + 1;

    my @about = (template => $template // 'base');
    my $ready;

    until_true {
        $ready = metric('pool_sessions', @about, state => 'ready') // 'no';
        return $ready eq $n
               && metric('pool_sessions', @about, state => 'filling') == 0;
    } 120;

    return is($ready, $n, "the pool has $n")
           || diag(grep { /pool|warn|error/ } map { "$_\n" }
                   split /\n/, $T->log);
}


# Hits, then misses as "reason=n", of those that there were.

sub pool_counts {
    my ($template) = @_;

    $template //= 'base';

    my $text = $T->http(GET => '/metrics')->{body};
    my ($hits) = $text
        =~ /^sandbox_pool_hits_total\{template="\Q$template\E"\} (\d+)/m;
    my @misses = map { "$_->[0]=$_->[1]" } grep { $_->[1] }
        map { [ /reason="(\w+)"\} (\d+)$/ ] }
        grep { /^sandbox_pool_misses_total\{template="\Q$template\E"/ }
        split /\n/, $text;

    return join ' ', $hits // 'none', sort @misses;
}


# Sessions that have a directory and are nobody's.

sub pooled_ids {
    my %own = map { $_->{session_id} => 1 }
              @{ $T->api(GET => '/sessions?limit=1000')->{json}{sessions} };

    return grep { !$own{$_} } map { m{([^/]+)$} }
           glob $T->prefix . '/sessions/*';
}


# The host's pid of a session's first process.

sub init_of {
    my ($id) = @_;

    for my $dir (glob '/proc/[0-9]*') {
        return $dir =~ s{.*/}{}r
            if (slurp("$dir/cgroup") // '') =~ m{/\Q$id\E/init$}m;
    }

    return undef;
}


sub ends_ok {
    my (@ids) = @_;

    local $Test::Builder::Level = $Test::Builder::Level + 1;

    my @wrong = grep { $T->api(DELETE => "/sessions/$_")->{status} != 204 }
                @ids;

    return is("@wrong", '', 'destroyed');
}


1;
