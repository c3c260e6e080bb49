package SandboxTest::Preload;

# Libraries that are loaded into nginx or a broker, from t/lib/preload.
#
#   my $lib = preload('clock') // plan(skip_all => 'no compiler');

use strict;
use warnings;

use Exporter qw(import);
use File::Path qw(make_path);

use SandboxTest;

our @EXPORT = qw(preload);


# "make tests" makes them; whoever runs one file alone has it made here.

sub preload {
    my ($name) = @_;

    my $src = "$SandboxTest::ROOT/t/lib/preload/$name.c";
    my $dir = "$SandboxTest::ROOT/build/t/preload";
    my $lib = "$dir/$name.so";

    if (!-e $lib || (stat $lib)[9] < (stat $src)[9]) {
        eval { make_path($dir) };
        my $new = "$lib.$$";
        system('gcc', '-std=gnu11', '-D_GNU_SOURCE', '-O2', '-Wall',
               '-Wextra', '-Werror', '-fPIC', '-shared', '-o', $new, $src,
               '-ldl') == 0
            or return undef;
        rename $new, $lib;
    }

    return $lib;
}


1;
