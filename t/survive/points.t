#!/usr/bin/perl

# Each point in the sources is in the table of README.md, at the file that has
# it, in words, and named by each test of its row or by one of them; and the
# table has no others.

use strict;
use warnings;

use FindBin;

use File::Find qw(find);
use Test::More;

my $ROOT = "$FindBin::Bin/../..";

sub text {
    my ($file) = @_;

    open my $f, '<', $file or die "$file: $!\n";
    local $/;

    return scalar <$f>;
}

sub quoted { return $_[0] =~ /`([^`]+)`/g }


my %point;

find({ no_chdir => 1, wanted => sub {
    return if !/\.[ch]$/;

    my ($name) = m{([^/]+)$};
    my $source = text($_);

    $point{$1}{$name} = 1 while $source =~ /SBX_FAULT\("([^"]+)"\)/g;
} }, "$ROOT/sandbox_core", "$ROOT/ngx_sandbox_module");

cmp_ok(scalar keys %point, '>', 100, keys(%point) . ' points');

my @rows;

for my $line (split /\n/, text("$FindBin::Bin/README.md")) {
    my (undef, @cells) = split /\s*\|\s*/, $line;

    push @rows, { names => [ quoted($cells[0]) ], words => $cells[2],
                  files => { map { m{([^/]+)$} => 1 } quoted($cells[1]) },
                  tests => [ quoted($cells[3]) ] }
        if @cells == 4 && $cells[0] =~ /^`/;
}

cmp_ok(scalar @rows, '>', 20, scalar(@rows) . ' rows');

my %used;

for my $row (@rows) {
    my $name = join ', ', @{ $row->{names} };
    my @tests = map { text("$FindBin::Bin/$_") } @{ $row->{tests} };
    my (@mine, %words, @wrong);

    for my $pattern (@{ $row->{names} }) {
        my ($prefix) = $pattern =~ /^(.*-)\*$/;
        my @found = grep {
            $prefix ? /^\Q$prefix\E[^-]+$/ : $_ eq $pattern
        } sort keys %point;

        push @wrong, "$pattern is nowhere" if !@found;
        push @mine, @found;
        $words{ (split /-/)[-1] } = 1 for $prefix ? @found : ();
    }

    for my $point (@mine) {
        my ($at) = keys %{ $point{$point} };

        push @wrong, "$point is in two rows" if $used{$point}++;
        push @wrong, "$point is in $at" if !$row->{files}{$at};
        push @wrong, "no test of these names $point"
            if !grep { /(?<![\w-])\Q$point\E(?![\w-])/ } @tests;
    }

    my %told = map { $_ => 1 } quoted($row->{words});

    push @wrong, map { "\"$_\" is not told" } grep { !$told{$_} } keys %words;
    push @wrong, map { "\"$_\" is none" } grep { !$words{$_} } keys %told;

    for my $file (keys %{ $row->{files} }) {
        push @wrong, "$file has none of them"
            if !grep { $point{$_}{$file} } @mine;
    }

    for my $i (0 .. $#tests) {
        push @wrong, "$row->{tests}[$i] names none of them"
            if !grep { $tests[$i] =~ /(?<![\w-])\Q$_\E(?![\w-])/ } @mine;
    }

    is_deeply(\@wrong, [], $name);
}

is_deeply([ grep { !$used{$_} } sort keys %point ], [],
          'no point is missing');

done_testing();
