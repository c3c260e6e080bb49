package SandboxTest::Code;

# Code over HTTP, with the kernels of the build.

use strict;
use warnings;

use Exporter qw(import);
use Test::More;

use SandboxTest ();
use SandboxTest::More;
use SandboxTest::Stream;

our @EXPORT = qw(code_server code_call code code_stream joined context
                 contexts language_is_there);


# As server(), where there is an interpreter to test with.

sub code_server {
    my (%o) = @_;

    plan(skip_all => 'no kernels are built')
        if !-e "$SandboxTest::BUILD/kernels/python/kernel.conf";
    plan(skip_all => 'python3 is not installed') if !-x '/usr/bin/python3';

    return server(%o);
}


sub code_call {
    my ($id, $code, %fields) = @_;

    my %o = %{ delete $fields{_http} || {} };

    return call('POST', "/sessions/$id/code", timeout => within(60), %o,
                json => { code => $code, %fields });
}


# The answer; of a refusal one that no test takes for an answer.

sub code {
    my ($id, $code, %fields) = @_;

    my $res = code_call($id, $code, %fields);

    if ($res->{status} != 200 || ref $res->{json} ne 'HASH') {
        diag("code answered $res->{status}: "
             . substr($res->{body} // '', 0, 600) . ($res->{error} // ''));
        return { text => "(status $res->{status})", stdout => '(none)',
                 stderr => '(none)', results => [], output_files => [],
                 reason => 'refused', exit_code => -1, error => {} };
    }

    return $res->{json};
}


sub code_stream {
    my ($id, $code, %fields) = @_;

    my %o = %{ delete $fields{_http} || {} };

    return stream('POST', "/sessions/$id/code", %o,
                  json => { code => $code, %fields });
}


# Events, with texts as they were before anybody cut them.

sub joined {
    my @all;

    for my $event (@_) {
        if (defined $event->{data} && @all
            && $all[-1]{type} eq $event->{type})
        {
            $all[-1]{data} .= $event->{data};
        } else {
            push @all, { %$event };
        }
    }

    return @all;
}


sub contexts {
    my ($id) = @_;

    return @{ call('GET', "/sessions/$id/contexts")->{json}{contexts} || [] };
}


# One of them; {} where it is not there.

sub context {
    my ($id, $name) = @_;

    my ($found) = grep { $_->{context_id} eq $name } contexts($id);

    return $found || {};
}


sub language_is_there {
    my ($name) = @_;

    return -e "$SandboxTest::BUILD/kernels/$name/kernel.conf";
}


1;
