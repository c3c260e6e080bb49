#!/usr/bin/perl

# Figures and tables as data: what a client can draw for itself.

use strict;
use warnings;
use utf8;

use FindBin;
use lib "$FindBin::Bin/lib";

use JSON::PP ();
use Test::More;
use SandboxTest::Kernel;

my $missing = kernel_missing('python');
plan(skip_all => $missing) if $missing;

my $CHART = 'application/vnd.sandbox.chart+json';
my $DATA = 'application/vnd.sandbox.data+json';
my $json = JSON::PP->new->allow_nonref;
my $k = kernel('python');


sub has {
    my ($name) = @_;

    return system("/usr/bin/python3 -c 'import $name' 2> /dev/null") == 0;
}


sub charts {
    my ($code) = @_;

    my $r = $k->run("import matplotlib.pyplot as plt\n$code");

    diag($r->{error}{traceback}) if $r->{error};
    diag($r->{stderr}) if $r->{stderr};

    return map { $json->decode($_->{$CHART}) }
           grep { defined $_->{$CHART} } @{ $r->{results} };
}

sub chart { return (charts(@_))[0] // {} }

sub column { my ($chart, $name) = @_;
             return [ map { $_->{$name} } @{ $chart->{elements} } ] }


SKIP: {
    skip 'matplotlib is not installed', 1 if !has('matplotlib');

    subtest 'lines' => sub {
        my $c = chart(<<'PY');
plt.plot([1, 2, 3], [1.5, float('nan'), 4], label='a')
plt.plot([1, 2], [3, 3])
plt.axhline(2)
plt.title('T'); plt.xlabel('Length (cm)'); plt.ylabel('Weight [kg]')
plt.grid(True); plt.show()
PY
        is("$c->{type} $c->{title}", 'line T', 'type and title');
        is_deeply([ @$c{qw(x_label y_label x_unit y_unit)} ],
                  [ 'Length (cm)', 'Weight [kg]', 'cm', 'kg' ], 'labels');
        is_deeply([ @$c{qw(x_scale y_scale)} ], [ 'linear', 'linear' ],
                  'scales');
        is_deeply($c->{elements},
                  [ { label => 'a',
                      points => [ [ 1, 1.5 ], [ 2, undef ], [ 3, 4 ] ] },
                    { label => 'Line 1', points => [ [ 1, 3 ], [ 2, 3 ] ] } ],
                  'points, without the line that only marks a height');
        is(scalar @{ $c->{x_ticks} }, scalar @{ $c->{x_tick_labels} },
           'ticks have labels');
        like($c->{x_ticks}[0], qr/^-?[\d.]+$/, 'and are numbers');

        $c = chart("plt.plot([1, 10], [1, 100])\nplt.xscale('symlog')\n"
                   . "plt.yscale('log'); plt.ylabel('Y (log scale)')");
        is("$c->{x_scale} $c->{y_scale} $c->{y_unit}", 'symlog log log scale',
           'other scales');
        is_deeply([ @$c{qw(title x_label x_unit)} ], [ undef, undef, undef ],
                  'what is not there is null');

        $c = chart("import datetime\nplt.plot([datetime.date(2023, 9, i) "
                   . "for i in (1, 2)], ['A', 'B'])");
        is("$c->{x_scale} $c->{y_scale}", 'datetime categorical',
           'dates and names');
        is_deeply($c->{elements}[0]{points},
                  [ [ '2023-09-01', 'A' ], [ '2023-09-02', 'B' ] ], 'points');
        like($c->{x_ticks}[0], qr/^20\d\d-\d\d-\d\dT/, 'ticks of dates');
    };

    subtest 'a cell that fails' => sub {
        my $r = $k->run("import datetime\nplt.plot([datetime.date(2023, 9, "
                        . "i) for i in (1, 2)], [1, 2, 3])");
        my $c = $json->decode($r->{results}[0]{$CHART} // '{}');

        is($r->{error}{name}, 'ValueError', 'does so');
        is("$c->{type} $c->{x_scale}", 'line datetime',
           'and shows what there is');
        is_deeply($c->{elements}, [], 'of no lines');
    };

    subtest 'dots, bars and slices' => sub {
        my $c = chart("plt.scatter([1, 2], [3, 4], label='d'); "
                      . "plt.scatter(['a'], [5]); plt.grid(True)");

        # the axis has names by then
        is($c->{type}, 'scatter', 'a scatter');
        is_deeply(column($c, 'label'), [ 'd', 'Scatter 1' ], 'with labels');

        $c = chart("plt.scatter([1.5, 2], [3, 4])");
        is_deeply($c->{elements}[0]{points}, [ [ 1.5, 3 ], [ 2, 4 ] ],
                  'and points');

        $c = chart("plt.bar(['A', 'B'], [1, 2], label='x'); "
                   . "plt.bar(['A', 'B'], [3, 4], bottom=[1, 2]); "
                   . "plt.plot([0, 1], [2, 2])");
        is($c->{type}, 'bar', 'bars');
        is_deeply($c->{elements},
                  [ { label => 'A', group => 'x', value => 1 },
                    { label => 'B', group => 'x', value => 2 },
                    { label => 'A', group => 'Group 1', value => 3 },
                    { label => 'B', group => 'Group 1', value => 4 } ],
                  'of groups');

        $c = chart("plt.barh(['A', 'B'], [1, 2]); plt.xlabel('Sold')");
        is_deeply([ column($c, 'label'), column($c, 'value'), $c->{y_label},
                    $c->{x_label} ],
                  [ [ 'A', 'B' ], [ 1, 2 ], 'Sold', undef ],
                  'that lie have their labels turned');

        $c = chart("plt.pie([90, 10], labels=['No', 'No, in blue'], "
                   . "autopct='%1.1f%%', startangle=90); plt.title('W')");
        is("$c->{type} $c->{title}", 'pie W', 'a pie');
        is_deeply($c->{elements},
                  [ { label => 'No', angle => 324, radius => 1 },
                    { label => 'No, in blue', angle => 36, radius => 1 } ],
                  'of slices');
    };

    subtest 'boxes' => sub {
        for my $vert ('True', 'False') {
            my $c = chart(<<"PY");
fig, ax = plt.subplots()
ax.set_xlabel('Class'); ax.set_ylabel('Score')
data = {'A': [85, 90, 78, 92, 88], 'B': [95, 89, 76, 91, 84, 87],
        'C': [75, 82, 88, 79, 86]}
ax.boxplot(data.values(), labels=data.keys(), patch_artist=True, vert=$vert)
plt.show()
PY
            is($c->{type}, 'box_and_whisker', "boxes, upright: $vert");
            is_deeply(column($c, 'label'), [ 'A', 'B', 'C' ], 'labels');
            is_deeply($c->{elements}[1],
                      { label => 'B', min => 84, first_quartile => 84.75,
                        median => 88, third_quartile => 90.5, max => 95,
                        outliers => [76] }, 'figures');
            is_deeply([ map { [ @$_{qw(min max)} ] } @{ $c->{elements} } ],
                      [ [ 78, 92 ], [ 84, 95 ], [ 75, 88 ] ], 'whiskers');
            is($c->{x_label}, $vert eq 'True' ? 'Class' : 'Score',
               'what the boxes are of');
        }
    };

    subtest 'several axes, and what is none of these' => sub {
        my $c = chart("fig, axs = plt.subplots(1, 2)\nfig.suptitle('S')\n"
                      . "axs[0].plot([1, 2]); axs[0].set_title('one')\n"
                      . "axs[1].scatter([1], [2])\nplt.show()");
        is("$c->{type} $c->{title}", 'superchart S', 'all of them');
        is_deeply([ column($c, 'type'), column($c, 'title') ],
                  [ [ 'line', 'scatter' ], [ 'one', undef ] ], 'each');

        $c = chart("fig, ax = plt.subplots()\nax.add_artist(plt.Circle((0, "
                   . "0), 1)); ax.grid(True); plt.title('C')");
        is_deeply($c, { type => 'unknown', title => 'C', elements => [] },
                  'circles');
        $c = chart("m = plt.imshow([[1, 2]]); plt.colorbar(m)");
        is($c->{type}, 'unknown', 'an image, whose colours are no axes');
        is(scalar charts("plt.figure(); plt.show()"), 0, 'nothing at all');
    };

    subtest 'too much, or broken' => sub {
        my $c = chart("plt.plot(range(20001))");
        is_deeply($c->{elements}, [], 'too many points are no points');
        like($c->{omitted}, qr/more than 20000/, 'and it is told');
        is(scalar @{ chart("plt.plot(range(19000))")
                     ->{elements}[0]{points} }, 19000, 'many are there');

        my $r = $k->run("fig, ax = plt.subplots()\n"
                        . "ax.get_title = lambda: 1 / 0\nplt.show()\n'on'");
        is($r->{text}, "'on'", 'an axes that fails fails no cell');
        is($r->{stderr}, '', 'without a word');
        is("@{ $r->{results}[0]{types} }", "text/plain image/png $CHART",
           'the image is there');
    };

    subtest 'once' => sub {
        my $r = $k->run("plt.plot([1])\nplt.show()\nx = 3\nx");

        is(scalar @{ $r->{results} }, 2, 'a figure that was shown');
        is($r->{results}[1]{main}, 1, 'and the last value is the main one');
    };
}


SKIP: {
    skip 'pandas is not installed', 1 if !has('pandas');

    subtest 'tables' => sub {
        my $r = $k->run(<<'PY');
import pandas as pd, numpy as np
pd.DataFrame({'a': [1, 2], 'b': [0.5, np.nan], 3: ['x', None],
              't': pd.to_datetime(['2024-01-02', None])})
PY
        diag($r->{error}{traceback}) if $r->{error};
        is_deeply($json->decode($r->{main}{$DATA}),
                  { a => [ 1, 2 ], b => [ 0.5, undef ], 3 => [ 'x', undef ],
                    t => [ '2024-01-02T00:00:00', undef ] },
                  'columns and their values');

        $r = $k->run("pd.DataFrame({'a': range(100001)})");
        is("@{ $r->{main}{types} }", 'text/plain text/html',
           'not of too many cells');
    };
}

ok($k->run('import sys; "matplotlib" in sys.modules')->{text} eq 'True'
   || !has('matplotlib'), 'loaded by cells alone');
$k = kernel('python');
is($k->run("import sys; 'sandbox_kernel.charts' in sys.modules")->{text},
   'False', 'a cell without figures pays for none');

done_testing();
