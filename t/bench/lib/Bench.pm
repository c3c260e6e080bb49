package Bench;

# What the benchmarks share: requests for the clock (measure.c), medians, the
# peers, tables and plots.  All times are microseconds.

use strict;
use warnings;

use Exporter 'import';
use File::Path qw(make_path remove_tree);
use File::Temp qw(tempdir);
use JSON::PP ();

our @EXPORT = qw(request http_rounds command_rounds core_rounds median
                 percentile machine versions have bundle plot table out_dir
                 runs_by_itself);

our $BUILD = $ENV{SANDBOX_BUILD} // 'build';
our $MEASURE = "$BUILD/bench/measure";

my $JSON = JSON::PP->new->canonical;
my $dir = tempdir(CLEANUP => 1);
my $made = 0;

chmod 0755, $dir;


sub median { return percentile(50, @_) }


sub percentile {
    my ($p, @v) = @_;

    @v = sort { $a <=> $b } @v;
    return undef if !@v;

    return $v[int($#v * $p / 100 + 0.5)];
}


# A request in a file, as measure.c reads it.

sub request {
    my ($status, $method, $path, $body) = @_;
    my $text = "$method $path HTTP/1.1\r\nHost: bench\r\n";

    if (defined $body) {
        $body = $JSON->encode($body) if ref $body;
        $text .= "Content-Type: application/json\r\n"
                 . 'Content-Length: ' . length($body) . "\r\n";
    }

    my $file = "$dir/request" . ++$made;
    open my $f, '>:raw', $file or die "$file: $!\n";
    print $f "$status\n$text\r\n", $body // '';
    close $f;

    return $file;
}


sub lines_of {
    my (@command) = @_;

    open my $out, '-|', @command or die "$command[0]: $!\n";
    my @rows = map { [ split ] } <$out>;
    close $out or die "@command: failed\n";

    return @rows;
}


# A list of times for each request, in the order of the requests.

sub http_rounds {
    my ($port, $count, @files) = @_;
    my @rows = lines_of($MEASURE, 'http', $port, $count, @files);

    return map { my $i = $_; [ map { $_->[$i] } @rows ] } 0 .. $#files;
}


sub command_rounds {
    my ($count, @command) = @_;

    return map { $_->[0] } lines_of($MEASURE, 'run', $count, @command);
}


sub core_rounds {
    my ($state, $id, $count, @command) = @_;

    return map { $_->[0] }
        lines_of($MEASURE, 'core', $state, $id, $count, @command);
}


sub have {
    my ($name) = @_;

    for my $d (split(/:/, $ENV{PATH}), qw(/usr/sbin /sbin)) {
        return "$d/$name" if -x "$d/$name";
    }

    return undef;
}


sub first_line {
    my ($command) = @_;
    my ($line) = split /\n/, `$command 2>&1`;

    return $line // '';
}


sub machine {
    my ($model) = slurp('/proc/cpuinfo') =~ /^model name\s*:\s*(.*)$/m;
    my ($kb) = slurp('/proc/meminfo') =~ /^MemTotal:\s+(\d+)/m;
    my ($name) = slurp('/etc/os-release') =~ /^PRETTY_NAME="?([^"\n]*)/m;
    my $cpus = () = slurp('/proc/cpuinfo') =~ /^processor\s*:/mg;

    chomp(my $kernel = `uname -r`);

    return sprintf '%s, %d processors (%s), %d GB, Linux %s, load %s', $name,
                   $cpus, $model // 'unknown', $kb / 1048576 + 0.5, $kernel,
                   (split ' ', slurp('/proc/loadavg'))[0];
}


sub versions {
    my %v = (nginx => first_line('nginx -v'));

    $v{$_} = first_line("$_ --version") for grep { have($_) }
        qw(bwrap crun runc python3 node);

    return \%v;
}


sub slurp {
    my ($path) = @_;

    open my $f, '<', $path or return '';
    local $/;

    return scalar <$f>;
}


# An OCI bundle whose root shows the machine's /usr.

sub bundle {
    my ($spec, @args) = @_;
    my $b = "$dir/bundle" . ++$made;

    make_path("$b/rootfs/usr");
    symlink "usr/$_", "$b/rootfs/$_" for qw(bin lib lib64 sbin);
    system("cd '$b' && '$spec' spec") == 0 or die "$spec spec: failed\n";

    my $config = $JSON->decode(slurp("$b/config.json"));

    $config->{process}{terminal} = JSON::PP::false;
    $config->{process}{args} = \@args;
    push @{ $config->{mounts} }, { destination => '/usr', type => 'bind',
                                   source => '/usr',
                                   options => [ 'rbind', 'ro' ] };
    delete $config->{linux}{resources};

    open my $f, '>', "$b/config.json" or die "$b/config.json: $!\n";
    print $f $JSON->encode($config);
    close $f;

    return $b;
}


# Neither runs where cgroup v1 and v2 are mixed: in a mount namespace of its
# own each sees an empty v2 tree and is told to make no groups.

sub runs_by_itself {
    my ($name, $b, $count) = @_;
    my $program = have($name) or return;
    my $flag = $name eq 'crun' ? '--cgroup-manager=disabled' : '';
    my $script = "cd '$b' && mount -t cgroup2 none /sys/fs/cgroup && "
                 . "exec '$MEASURE' run $count '$program' $flag run bench$$";

    my @rows = eval {
        lines_of('unshare', '-m', '--propagation', 'private', 'sh', '-c',
                 $script)
    };

    return map { $_->[0] } @rows;
}


sub out_dir {
    my $out = $ENV{BENCH_OUT} // "$BUILD/bench/out";

    make_path($out);

    return $out;
}


# Rows of a name and numbers as lines of Markdown.

sub table {
    my ($head, @rows) = @_;

    return join '', map { '| ' . join(' | ', @$_) . " |\n" }
        $head, [ map { '---' } @$head ], @rows;
}


# Horizontal bars, longest last: [ name, value ]...

sub plot {
    my ($name, $title, $unit, @rows) = @_;
    my $gnuplot = have('gnuplot') or return;
    my $file = out_dir() . "/$name.svg";
    my $n = @rows;
    my $height = 90 + 34 * $n;
    my $i = 0;
    my $most = (sort { $b <=> $a } map { $_->[1] } @rows)[0] * 1.25;
    my $data = join '', map {
        sprintf "%d %.6g \"%s\" \"%.3g %s\"\n", $n - $i++, $_->[1], $_->[0],
                $_->[1], $unit
    } @rows;

    open my $g, '|-', $gnuplot or return;
    print $g <<"GNUPLOT";
set terminal svg size 720,$height font "sans-serif,13" background "#ffffff"
set output "$file"
set title "$title"
set xlabel "$unit"
set xrange [0:$most]
set yrange [0.4:$n.6]
set grid xtics lc rgb "#dddddd"
set border 3
set tics nomirror out
unset key
set style fill solid
set boxwidth 0.6
\$data << EOD
${data}EOD
plot \$data using (\$2/2):1:(\$2/2):(0.3):yticlabels(3) with boxxyerror lc rgb "#3a6ea5", \\
     \$data using 2:1:4 with labels left offset 0.6,0
GNUPLOT
    close $g;

    return $file;
}


1;
