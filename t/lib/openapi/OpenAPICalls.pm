package OpenAPICalls;

# Calls of a running server by the operations of docs/openapi.yaml, each
# compared with what is written there.
#
#   use OpenAPICalls;
#   $t = SandboxTest->new->start;          # whom calls() speaks to
#   calls(health => 200, 'answers');

use strict;
use warnings;

use Exporter qw(import);
use JSON::PP ();
use Test::More;
use OpenAPI;
use SandboxTest;

our @EXPORT = qw($t $doc %op %seen calls request target example);

my $JSON = JSON::PP->new->utf8->canonical;

our $t;
our $doc = OpenAPI->load("$SandboxTest::ROOT/docs/openapi.yaml");
our %op = map { $_->{id} => $_ } $doc->operations;
our %seen;                                # "operation status"


sub percent {
    my ($s) = @_;

    $s =~ s/([^A-Za-z0-9._~-])/sprintf '%%%02X', ord $1/ge;

    return $s;
}


# The request that the arguments mean for an operation:
#   session_id, path, name   in the address, as they are
#   query                    its parameters; must be documented
#   json, or body            with their content type
#   headers

sub target {
    my ($op, %a) = @_;

    my $target = $op->{base} . $op->{path};
    my %known = map { $_->{name} => 1 }
                grep { $_->{in} eq 'query' } @{ $op->{parameters} };

    $target =~ s/\{(\w+)\}/$a{$1} \/\/ die "$op->{id} needs $1\n"/ge;

    my @query;

    for my $name (sort keys %{ $a{query} || {} }) {
        my ($plain) = $name =~ /^(metadata)\./;
        die "$op->{id} documents no $name\n" if !$known{ $plain // $name };
        push @query, percent($name) . '=' . percent($a{query}{$name});
    }

    return @query ? $target . '?' . join '&', @query : $target;
}


sub request {
    my ($op, %a) = @_;

    my %h = %{ $a{headers} || {} };
    my %o = (timeout => 30);

    if (exists $a{json}) {
        $o{body} = ref $a{json} ? $JSON->encode($a{json}) : $a{json};
        $h{'Content-Type'} //= 'application/json';
    } elsif (exists $a{body}) {
        $o{body} = $a{body};
    }

    return $t->http($op->{method}, target($op, %a), %o, headers => \%h);
}


# Calls an operation and compares.  "want" is the status, and with a space
# the code of the problem behind it; HEAD has no body to have a code in.

sub calls {
    my ($id, $want, $name, %a) = @_;

    my $op = $op{$id} // die "no operation $id\n";
    my ($status, $code) = split / /, $want;

    my $res = $a{res} // request($op, %a);
    my @faults = $doc->response($op, $res);

    my $json = eval { $JSON->decode($res->{body}) };
    my $got = $res->{status};

    if (defined $code && $op->{method} ne 'HEAD') {
        $got .= ' ' . ($json && $json->{code} || 'no code');
        $want = "$status $code";
    } else {
        $want = $status;
    }

    push @faults, "is not documented for $id: $res->{status}"
        if !$op->{responses}{ $res->{status} } && !$a{other};
    push @faults, request_faults($op, $status, \%a);

    $seen{"$id $res->{status}"} = 1;

    ok($got eq $want && !@faults, "$id: $name")
        or diag(join "\n", "got $got, expected $want", @faults,
                substr $res->{body}, 0, 500);

    return { %$res, json => $json };
}


# A body that was taken must be one that its schema takes.

sub request_faults {
    my ($op, $status, $a) = @_;

    return if !ref $a->{json} || $status >= 400 && !$a->{valid};

    my $schema = $op->{request}{content}{'application/json'}{schema};

    return map { "request: $_" } $doc->validate($schema, $a->{json}, '');
}


sub example {
    my ($id, $name) = @_;

    return $op{$id}{request}{content}{'application/json'}{examples}{$name}
           {value} // die "$id has no example $name\n";
}


1;
