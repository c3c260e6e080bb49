package OpenAPI;

# An OpenAPI 3.1 document, and the part of JSON Schema that it uses.  A
# keyword that is not known here is an error: what is written in a schema
# must be checked, not skipped.
#
#   my $doc = OpenAPI->load('docs/openapi.yaml');
#   my ($op) = grep { $_->{id} eq 'exec' } $doc->operations;
#   my @faults = $doc->response($op, $res);       # of SandboxTest->http
#   @faults = $doc->validate($schema, $data);     # of JSON::PP->decode
#
# Objects are closed: a property that no schema names is a fault, unless
# additionalProperties allows it.

use strict;
use warnings;

use B ();
use JSON::PP ();
use YAML::XS ();

my @METHODS = qw(get head post put delete patch options);

my %ANNOTATION = map { $_ => 1 } qw(description title summary default example
                                    examples deprecated);

my %KEYWORD = (
    '$ref'               => \&check_ref,
    type                 => \&check_type,
    enum                 => \&check_enum,
    const                => \&check_const,
    pattern              => \&check_pattern,
    format               => \&check_format,
    minLength            => \&check_min_length,
    maxLength            => \&check_max_length,
    minimum              => \&check_minimum,
    maximum              => \&check_maximum,
    exclusiveMinimum     => \&check_exclusive_minimum,
    required             => \&check_required,
    dependentRequired    => \&check_dependent,
    properties           => \&check_properties,
    propertyNames        => \&check_names,
    additionalProperties => \&check_additional,
    minProperties        => \&check_min_properties,
    maxProperties        => \&check_max_properties,
    items                => \&check_items,
    minItems             => \&check_min_items,
    maxItems             => \&check_max_items,
    allOf                => \&check_all_of,
    anyOf                => \&check_any_of,
    oneOf                => \&check_one_of,
);


sub load {
    my ($class, $file) = @_;

    local $YAML::XS::Boolean = 'JSON::PP';

    return bless { doc => plain(YAML::XS::LoadFile($file)) }, $class;
}


# A number that is written without quotes comes with its text; to be sent or
# compared as JSON it must be a number alone.

sub plain {
    my ($node) = @_;

    return [ map { plain($_) } @$node ] if ref $node eq 'ARRAY';
    return { map { $_ => plain($node->{$_}) } keys %$node }
        if ref $node eq 'HASH';
    return $node if ref $node || !defined $node;

    my $flags = B::svref_2object(\$node)->FLAGS;

    return $flags & (B::SVf_IOK | B::SVf_NOK) ? 0 + $node : $node;
}


# What a reference points at; anything else is itself.

sub resolve {
    my ($self, $node) = @_;

    while (ref $node eq 'HASH' && defined $node->{'$ref'}
           && keys %$node == 1)
    {
        $node = $self->pointer($node->{'$ref'});
    }

    return $node;
}


sub pointer {
    my ($self, $ref) = @_;

    my ($path) = $ref =~ m{^#/(.+)$} or die "no reference: $ref\n";
    my $node = $self->{doc};

    for my $key (split m{/}, $path) {
        $key =~ s{~1}{/}g;
        $key =~ s{~0}{~}g;
        $node = $node->{$key} // die "$ref points at nothing\n";
    }

    return $node;
}


sub operations {
    my ($self) = @_;

    my @found;

    for my $path (sort keys %{ $self->{doc}{paths} }) {
        my $item = $self->{doc}{paths}{$path};

        for my $method (grep { $item->{$_} } @METHODS) {
            my $op = $item->{$method};
            my @parameters = map { $self->resolve($_) }
                             @{ $item->{parameters} || [] },
                             @{ $op->{parameters} || [] };

            my ($base) = ($op->{servers} // $item->{servers}
                          // $self->{doc}{servers})->[0]{url}
                         =~ m{^http://[^/]+(.*)$};

            push @found, { id => $op->{operationId}, method => uc $method,
                           base => $base, path => $path,
                           parameters => \@parameters,
                           request => $self->resolve($op->{requestBody}),
                           responses => $op->{responses} };
        }
    }

    return @found;
}


sub statuses {
    my ($self, $op) = @_;

    return sort grep { $_ ne 'default' } keys %{ $op->{responses} };
}


# ---- answers ---------------------------------------------------------------

# Everything in which an answer is not what its operation documents.

sub response {
    my ($self, $op, $res) = @_;

    my $doc = $self->resolve($op->{responses}{ $res->{status} }
                             // $op->{responses}{default});

    return "status $res->{status} is not documented" if !$doc;

    return ($self->headers($doc, $res),
            $op->{method} eq 'HEAD' ? () : $self->body($doc, $res));
}


sub headers {
    my ($self, $doc, $res) = @_;

    my @faults;
    my $headers = $doc->{headers} || {};

    for my $name (sort keys %$headers) {
        my $header = $self->resolve($headers->{$name});
        my $value = $res->{headers}{lc $name};

        if (defined $value) {
            push @faults, $self->validate($header->{schema}, $value,
                                          "header $name");
        } elsif ($header->{required}) {
            push @faults, "header $name is missing";
        }
    }

    return @faults;
}


sub body {
    my ($self, $doc, $res) = @_;

    my $content = $doc->{content};

    if (!$content) {
        return length $res->{body} ? 'there is a body' : ();
    }

    my ($type) = ($res->{headers}{'content-type'} // '') =~ /^([^;\s]+)/;

    return 'there is no content type' if !defined $type;

    my $media = $content->{$type} // $content->{'*/*'}
                // return "content type $type is not documented";

    my @texts = $type =~ m{[/+]json$} ? $res->{body}
                : $type eq 'application/x-ndjson'
                    ? split /\n/, $res->{body}
                : $type eq 'text/event-stream'
                    ? $res->{body} =~ /^data: (.*)$/mg : ();

    my $json = JSON::PP->new->utf8->allow_nonref;
    my @faults;

    for my $text (@texts) {
        my $data = eval { $json->decode($text) };

        push @faults, $@ ? "the body is no JSON: $@"
                         : $self->validate($media->{schema}, $data, 'body');
    }

    return @faults;
}


# ---- schemas ---------------------------------------------------------------

sub validate {
    my ($self, $schema, $data, $at, %in) = @_;

    $at //= '';

    my @faults;

    for my $keyword (sort keys %$schema) {
        next if $ANNOTATION{$keyword};

        my $check = $KEYWORD{$keyword}
                    // die "$at: schema keyword $keyword is not known\n";
        push @faults, $check->($self, $schema->{$keyword}, $data, $at,
                               $schema, %in);
    }

    if (ref $data eq 'HASH' && !$in{part}) {
        my $known = $self->known($schema);

        push @faults, map { "$at/$_ is not documented" }
                      grep { !$known->{$_} } sort keys %$data if $known;
    }

    return @faults;
}


# The properties that a schema names, with those of its parts; undef where it
# is open, or leaves it to alternatives, which are closed each by itself.

sub known {
    my ($self, $schema) = @_;

    my $more = $schema->{additionalProperties};

    return undef if $schema->{oneOf} || $schema->{anyOf}
                    || ref $more eq 'HASH' || $more;

    my %known = map { $_ => 1 } keys %{ $schema->{properties} || {} };

    for my $part ($schema->{'$ref'} ? $self->pointer($schema->{'$ref'}) : (),
                  @{ $schema->{allOf} || [] })
    {
        my $names = $self->known($part) // return undef;
        %known = (%known, %$names);
    }

    return \%known;
}


sub kind {
    my ($data) = @_;

    return 'null' if !defined $data;
    return 'boolean' if JSON::PP::is_bool($data);
    return 'object' if ref $data eq 'HASH';
    return 'array' if ref $data eq 'ARRAY';

    my $flags = B::svref_2object(\$data)->FLAGS;

    return 'string' if $flags & B::SVf_POK || !($flags & (B::SVf_IOK
                                                          | B::SVf_NOK));
    return $data == int $data ? 'integer' : 'number';
}


sub is_number { return kind($_[0]) =~ /^(?:integer|number)$/ }


sub show {
    my ($data) = @_;

    return JSON::PP->new->canonical->allow_nonref->encode($data);
}


sub check_ref {
    my ($self, $ref, $data, $at, $schema, %in) = @_;

    return $self->validate($self->pointer($ref), $data, $at, %in, part => 1);
}


sub check_type {
    my ($self, $types, $data, $at) = @_;

    my $kind = kind($data);

    for my $type (ref $types ? @$types : $types) {
        return if $type eq $kind || $type eq 'number' && $kind eq 'integer';
    }

    return "$at is of type $kind";
}


sub check_enum {
    my ($self, $values, $data, $at) = @_;

    return if grep { show($_) eq show($data) } @$values;
    return "$at is " . show($data);
}


sub check_const {
    my ($self, $value, $data, $at) = @_;

    return check_enum($self, [ $value ], $data, $at);
}


sub check_pattern {
    my ($self, $pattern, $data, $at) = @_;

    return if kind($data) ne 'string' || $data =~ /$pattern/;
    return "$at is " . show($data);
}


sub check_format {
    my ($self, $format, $data, $at) = @_;

    die "$at: format $format is not known\n" if $format ne 'date-time';

    return if kind($data) ne 'string'
              || $data =~ /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z$/;
    return "$at is no time: $data";
}


# The sizes of things: [ what has it, how it is taken, which way it fails ].

sub bound {
    my ($data, $at, $kind, $size, $wrong) = @_;

    return if kind($data) ne $kind || !$wrong->($size->());
    return "$at has a size of " . $size->();
}

sub check_min_length {
    my ($self, $n, $data, $at) = @_;
    return bound($data, $at, 'string', sub { length $data },
                 sub { $_[0] < $n });
}

sub check_max_length {
    my ($self, $n, $data, $at) = @_;
    return bound($data, $at, 'string', sub { length $data },
                 sub { $_[0] > $n });
}

sub check_min_items {
    my ($self, $n, $data, $at) = @_;
    return bound($data, $at, 'array', sub { scalar @$data },
                 sub { $_[0] < $n });
}

sub check_max_items {
    my ($self, $n, $data, $at) = @_;
    return bound($data, $at, 'array', sub { scalar @$data },
                 sub { $_[0] > $n });
}

sub check_min_properties {
    my ($self, $n, $data, $at) = @_;
    return bound($data, $at, 'object', sub { scalar keys %$data },
                 sub { $_[0] < $n });
}

sub check_max_properties {
    my ($self, $n, $data, $at) = @_;
    return bound($data, $at, 'object', sub { scalar keys %$data },
                 sub { $_[0] > $n });
}


sub check_minimum {
    my ($self, $n, $data, $at) = @_;

    return if !is_number($data) || $data >= $n;
    return "$at is $data";
}


sub check_maximum {
    my ($self, $n, $data, $at) = @_;

    return if !is_number($data) || $data <= $n;
    return "$at is $data";
}


sub check_exclusive_minimum {
    my ($self, $n, $data, $at) = @_;

    return if !is_number($data) || $data > $n;
    return "$at is $data";
}


sub check_required {
    my ($self, $names, $data, $at) = @_;

    return if ref $data ne 'HASH';
    return map { "$at/$_ is missing" } grep { !exists $data->{$_} } @$names;
}


sub check_dependent {
    my ($self, $rules, $data, $at) = @_;

    return if ref $data ne 'HASH';
    return map { check_required($self, $rules->{$_}, $data, $at) }
           grep { exists $data->{$_} } sort keys %$rules;
}


sub check_properties {
    my ($self, $properties, $data, $at) = @_;

    return if ref $data ne 'HASH';
    return map { $self->validate($properties->{$_}, $data->{$_}, "$at/$_") }
           grep { exists $data->{$_} } sort keys %$properties;
}


sub check_names {
    my ($self, $rule, $data, $at) = @_;

    return if ref $data ne 'HASH';
    return map { $self->validate($rule, $_, "$at: a name") } sort keys %$data;
}


sub check_additional {
    my ($self, $rule, $data, $at, $schema) = @_;

    return if ref $data ne 'HASH';

    my @more = grep { !exists $schema->{properties}{$_} } sort keys %$data;

    if (JSON::PP::is_bool($rule)) {
        return $rule ? () : map { "$at/$_ is not allowed" } @more;
    }

    return map { $self->validate($rule, $data->{$_}, "$at/$_") } @more;
}


sub check_items {
    my ($self, $rule, $data, $at) = @_;

    return if ref $data ne 'ARRAY';
    return map { $self->validate($rule, $data->[$_], "$at/$_") }
           0 .. $#$data;
}


sub check_all_of {
    my ($self, $parts, $data, $at, $schema, %in) = @_;

    return map { $self->validate($_, $data, $at, %in, part => 1) } @$parts;
}


sub check_any_of {
    my ($self, $parts, $data, $at) = @_;

    my @faults = map { [ $self->validate($_, $data, $at) ] } @$parts;

    return if grep { !@$_ } @faults;
    return "$at is nothing of what it may be: "
           . join ' | ', map { join ', ', @$_ } @faults;
}


sub check_one_of {
    my ($self, $parts, $data, $at) = @_;

    my @faults = map { [ $self->validate($_, $data, $at) ] } @$parts;
    my $right = grep { !@$_ } @faults;

    return if $right == 1;
    return "$at is more than one of what it may be" if $right;
    return check_any_of($self, $parts, $data, $at);
}


1;
