package SandboxSummary;

# prove's own formatter, with one line more before its closing ones: how many
# tests were skipped, and why.

use strict;
use warnings;

use TAP::Formatter::Console;
use TAP::Formatter::File;

our @ISA = -t STDOUT ? 'TAP::Formatter::Console' : 'TAP::Formatter::File';


sub summary {
    my ($self, $aggregate, @rest) = @_;

    my $count = 0;
    my @why;

    for my $parser ($aggregate->parsers) {
        if (defined(my $all = $parser->skip_all)) {
            $count++;
            push @why, "the whole file: $all";
        }

        $count += $parser->skipped;
    }

    $self->_output("Skipped: $count\n");
    $self->_output("  $_\n") for @why;

    return $self->SUPER::summary($aggregate, @rest);
}


1;
