# nginx's program as a library for the targets of the module: a copy of it in
# which one flag is cleared, the one by which the dynamic linker refuses to
# load a program a second time.  Its functions are nginx's own, of the very
# version that the module is built for; nothing of it runs but what is called.

use strict;
use warnings;

my ($program, $library) = @ARGV;
my $DT_FLAGS_1 = 0x6ffffffb;
my $DF_1_PIE = 0x08000000;
my $PT_DYNAMIC = 2;

open my $in, '<:raw', $program or die "$program: $!\n";
my $elf = do { local $/; <$in> };

# 64 bits, little endian, position-independent

die "$program is no program that can be linked with\n"
    unless substr($elf, 0, 6) eq "\x7fELF\x02\x01"
           && unpack('v', substr $elf, 16, 2) == 3;

my $at = unpack 'Q<', substr $elf, 32, 8;
my ($size, $n) = unpack 'v v', substr $elf, 54, 4;

for my $i (0 .. $n - 1) {
    my ($type, undef, $from, undef, undef, $len) =
        unpack 'V V Q< Q< Q< Q<', substr $elf, $at + $i * $size, 40;

    next if $type != $PT_DYNAMIC;

    for (my $to = $from + $len; $from < $to; $from += 16) {
        my ($tag, $value) = unpack 'Q< Q<', substr $elf, $from, 16;

        substr($elf, $from + 8, 8) = pack 'Q<', $value & ~$DF_1_PIE
            if $tag == $DT_FLAGS_1;
    }
}

# Whoever has the old one mapped keeps it.

open my $out, '>:raw', "$library.new" or die "$library: $!\n";
print $out $elf or die "$library: $!\n";
close $out or die "$library: $!\n";
rename "$library.new", $library or die "$library: $!\n";
