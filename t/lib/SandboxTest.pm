package SandboxTest;

# A real nginx on a prefix of its own, for one test file.
#
#   my $t = SandboxTest->new(server => 'client_body_timeout 1s;');
#   $t->start;
#   my $res = $t->api(POST => '/sessions', { tenant_id => ... });
#   $t->finish;             # stops it; nothing may be left
#   done_testing();
#
# The configuration is conf/nginx.conf with the port replaced and the given
# lines added to its blocks, or the text that "conf" gives ("%%PORT%%" and
# "%%PREFIX%%" are replaced).  SANDBOX_BUILD says where the build is, and
# SANDBOX_TEST_TRUST=standalone (or "trust") that nginx is not root's: see
# SandboxTest::Standalone.

use strict;
use warnings;

use Cwd qw(abs_path);
use File::Basename qw(dirname);
use File::Copy qw(copy);
use File::Path qw(remove_tree);
use File::Temp qw(tempdir);
use IO::Socket::INET;
use JSON::PP ();
use POSIX qw(WNOHANG);
use Test::More;
use Time::HiRes qw(time sleep);

use SandboxTest::Connection;
use SandboxTest::Log;
use SandboxTest::Standalone;

our $ROOT = abs_path(dirname(__FILE__) . '/../..');
our $BUILD = abs_path($ENV{SANDBOX_BUILD} // "$ROOT/build")
             // "$ROOT/build";
our $SANITIZE = $ENV{SANDBOX_SANITIZE} ? 1 : 0;

# Everything that waits gets this many times longer on a slow machine.
our $SLOW = $ENV{SANDBOX_TEST_SLOW} || ($SANITIZE ? 3 : 1);

our $NGINX = $ENV{NGINX} // (grep { -x } map { "$_/nginx" }
    split(/:/, $ENV{PATH}), '/usr/sbin', '/usr/local/sbin')[0];

my $JSON = JSON::PP->new->utf8->canonical->allow_nonref;
my $OWNER = $$;
my @STARTED;


# What the machine or the build lacks for a test of the whole, or undef.

sub missing {
    return 'must run as root' if $> != 0;
    return 'nginx is not installed' if !$NGINX;

    for my $f (qw(ngx_http_sandbox_module.so sandbox-broker sandbox-init)) {
        return "$BUILD/$f is not built" if !-e "$BUILD/$f";
    }

    return undef;
}


sub new {
    my ($class, %o) = @_;

    if (my $why = missing()) {
        BAIL_OUT($why) if $ENV{SANDBOX_TEST_STRICT};
        plan(skip_all => $why);
    }

    my $self = bless { allow => [], daemon => 0, names => {}, pids => {},
                       %o }, $class;

    SandboxTest::Standalone->take($self)
        if ($o{trust} // $ENV{SANDBOX_TEST_TRUST} // '') eq 'standalone';

    $self->{prefix} //= tempdir('sbxXXXXXX', DIR => $o{dir} // '/tmp');
    $self->{port} //= free_port();
    $self->lay_out;

    push @STARTED, $self;

    return $self;
}


# A port that nobody listens on: below the range that the kernel gives to
# outgoing connections, so that none of those takes it meanwhile.

sub free_port {
    for (1 .. 200) {
        my $port = 20000 + int rand 10000;

        my $s = IO::Socket::INET->new(LocalAddr => '127.0.0.1',
                                      LocalPort => $port, Listen => 1,
                                      ReuseAddr => 1);
        if ($s) {
            close $s;
            return $port;
        }
    }

    die "no free port\n";
}


sub lay_out {
    my ($self) = @_;

    my $p = $self->{prefix};

    chmod 0755, $p;

    for my $dir ('', qw(/logs /conf /modules /helpers /templates)) {
        mkdir "$p$dir";
        chmod 0755, "$p$dir";
    }

    # A sanitizer in a worker, which is www-data, writes its report here.

    mkdir "$p/asan";
    chmod 01777, "$p/asan";

    for my $f (qw(sandbox-broker sandbox-init sandbox-egress)) {
        copy("$BUILD/$f", "$p/helpers/$f") or die "$f: $!";
        chmod 0755, "$p/helpers/$f";
    }

    if (-d "$BUILD/kernels") {
        symlink "$BUILD/kernels", "$p/helpers/kernels" or die $!;
    }

    copy("$BUILD/ngx_http_sandbox_module.so", "$p/modules/") or die $!;

    for my $f (glob "$ROOT/conf/*.conf") {
        copy($f, "$p/conf/") or die "$f: $!";
    }

    $self->write_conf;

    return;
}


sub write_conf {
    my ($self, %o) = @_;

    %$self = (%$self, %o);

    my $conf = $self->{conf} // $self->shipped_conf;

    $conf =~ s/%%PORT%%/$self->{port}/g;
    $conf =~ s/%%PREFIX%%/$self->{prefix}/g;

    if ($SANITIZE) {
        $conf = "env LD_PRELOAD;\nenv ASAN_OPTIONS;\nenv UBSAN_OPTIONS;\n"
                . $conf;
    }

    open my $f, '>', "$self->{prefix}/conf/nginx.conf" or die $!;
    print $f $conf;
    close $f;

    return;
}


sub shipped_conf {
    my ($self) = @_;

    my $conf = slurp("$ROOT/conf/nginx.conf");

    $conf =~ s/listen 127\.0\.0\.1:8080;/listen 127.0.0.1:$self->{port};/g
        or die "conf/nginx.conf has no listen to replace\n";
    $conf =~ s/^worker_processes .*?;/worker_processes $self->{workers};/m
        if $self->{workers};

    # Tests make more sessions for a user than the shipped quotas allow.

    $conf =~ s/^    sandbox_quota .*\n//mg if !$self->{quotas};

    my %block = (http => qr/^http \{\n/m, server => qr/^    server \{\n/m,
                 events => qr/^events \{\n/m,
                 location => qr{^        location /v1/ \{\n}m);

    for my $name (sort keys %block) {
        my $text = $self->{$name} // next;
        $conf =~ s/($block{$name})/$1$text\n/
            or die "conf/nginx.conf has no $name block\n";
    }

    $conf = "$self->{main}\n$conf" if defined $self->{main};

    if ($self->{edit}) {
        local $_ = $conf;
        $self->{edit}->();
        $conf = $_;
    }

    return $conf;
}


sub prefix { return $_[0]{prefix} }
sub port   { return $_[0]{port} }


sub slurp {
    my ($path) = @_;

    open my $f, '<', $path or return undef;
    binmode $f;
    local $/;

    return scalar <$f>;
}


# ---- waiting -------------------------------------------------------------

# Polls until the condition is true, and returns what it said last.

sub wait_for {
    my ($test, $seconds) = @_;

    my $deadline = time + ($seconds // 10) * $SLOW;
    my $pause = 0.005;

    for ( ;; ) {
        my $v = $test->();
        return $v if $v || time > $deadline;

        sleep $pause;
        $pause = $pause * 1.5 > 0.1 ? 0.1 : $pause * 1.5;
    }
}


# Whether the process runs: a zombie does not.

sub alive {
    my ($pid) = @_;

    return 0 if !$pid;

    my $stat = slurp("/proc/$pid/stat") // return 0;
    my ($state) = $stat =~ /^\d+ \(.*\) (\S)/s;

    return defined $state && $state !~ /[ZX]/ ? 1 : 0;
}


# Tells a process from a later one of the same number.

sub start_time {
    my ($pid) = @_;

    my $stat = slurp("/proc/$pid/stat") // return 0;

    return (split ' ', $stat =~ s/^.*\) //sr)[19] // 0;
}


# Signals processes that are known to be this server's, and never a group or
# whoever has the number of one by now.

sub hit {
    my ($self, $signal, @pids) = @_;

    my @ours = grep { defined && $_ > 1 && $self->is_ours($_) } @pids;

    return @ours ? kill($signal, @ours) : 0;
}


sub gone {
    my ($pids, $seconds) = @_;

    return wait_for(sub { !grep { alive($_) } @$pids }, $seconds);
}


# ---- processes -----------------------------------------------------------

sub command {
    my ($self, @more) = @_;

    return (@{ $self->{wrapper} || [] }, $NGINX, '-p', $self->{prefix},
            '-e', 'logs/error.log', '-c', 'conf/nginx.conf', @more);
}


sub environment {
    my ($self) = @_;

    return {} if !$SANITIZE;

    my $lib = `gcc -print-file-name=libasan.so`;
    chomp $lib;

    return { LD_PRELOAD => abs_path($lib),
             ASAN_OPTIONS => "detect_leaks=0:log_path=$self->{prefix}"
                             . '/asan/log:handle_segv=1:abort_on_error=0',
             UBSAN_OPTIONS => 'print_stacktrace=1' };
}


# Runs nginx with more arguments to its end: (exit status, output).

sub nginx {
    my ($self, @more) = @_;

    my $out = "$self->{prefix}/logs/out.$$";
    my $pid = $self->spawn($out, $self->command(@more));

    my $done = wait_for(sub { waitpid($pid, WNOHANG) == $pid }, 40);
    my $status = $?;

    if (!$done) {
        kill 'KILL', $pid;
        waitpid $pid, 0;
        $status = -1;
    }

    my $text = slurp($out) // '';
    unlink $out;

    return ($status >= 0 ? $status >> 8 : -1, $text);
}


sub spawn {
    my ($self, $out, @command) = @_;

    my $pid = fork // die "fork: $!";

    if ($pid == 0) {
        my $env = $self->environment;
        $ENV{$_} = $env->{$_} for keys %$env;

        open STDIN, '<', '/dev/null';
        open STDOUT, '>>', $out;
        open STDERR, '>>', $out;
        { no warnings 'exec'; exec { $command[0] } @command; }
        POSIX::_exit(127);
    }

    return $pid;
}


# Starts nginx and waits until it serves; a test file cannot go on without.

sub start {
    my ($self, @more) = @_;

    return $self if $self->try_start(@more);

    diag("nginx did not start:");
    diag($_) for split /\n/, $self->log;
    diag($_) for split /\n/, slurp("$self->{prefix}/logs/stderr.log") // '';
    $self->stop_hard;
    BAIL_OUT('nginx did not start') if $ENV{SANDBOX_TEST_STRICT};
    die "nginx did not start\n";
}


sub try_start {
    my ($self, @more) = @_;

    push @more, '-g', 'daemon off;' if !$self->{daemon};

    my $pid = $self->spawn("$self->{prefix}/logs/stderr.log",
                           $self->command(@more));

    my $ended = 0;
    my $up = wait_for(sub {
        $ended ||= waitpid($pid, WNOHANG) == $pid;
        return -1 if $ended && ($? != 0 || !$self->{daemon});
        return $self->ready;
    }, 20);

    $self->{child} = $pid if !$ended;

    return 0 if !$up || $up == -1;

    $self->note_processes;

    return 1;
}


sub ready {
    my ($self) = @_;

    if (defined $self->{ready} && $self->{ready} eq 'port') {
        my $c = SandboxTest::Connection->new(port => $self->{port},
                                             timeout => 1);
        return $c ? 1 : 0;
    }

    my $res = $self->http(GET => $self->{ready} // '/v1/health',
                          timeout => 5);

    return $res->{status} == 200;
}


sub pid_file {
    my ($self, $name) = @_;

    my ($pid) = (slurp("$self->{prefix}/$name") // '') =~ /^(\d+)\s*$/;

    return $pid;
}

sub master { return $_[0]->pid_file('nginx.pid') }
sub keeper { return $_[0]->pid_file('keeper.pid') }
sub broker { return $_[0]->pid_file('broker.pid') }


sub children {
    my ($pid) = @_;

    return map { split ' ', slurp($_) // '' } glob "/proc/$pid/task/*/children";
}


sub workers {
    my ($self) = @_;

    my $master = $self->master // return;

    return if !$self->is_ours($master);

    my @workers = grep {
        (slurp("/proc/$_/cmdline") // '') =~ /worker process/
    } children($master);

    $self->remember($_) for @workers;

    return @workers;
}


# Keeps what finish() must find gone: pids, and the names of cgroups, which
# the broker has open.

sub note_processes {
    my ($self) = @_;

    # A pid file may be older than its process's number.  Workers tell nothing
    # of the prefix, but are the master's children.

    for my $pid ($self->master, $self->keeper, $self->broker) {
        $self->remember($pid) if $pid && $self->is_ours($pid);
    }

    $self->workers;

    my $broker = $self->broker // return;

    return if !$self->is_ours($broker);

    for my $fd (glob "/proc/$broker/fd/*") {
        my $path = readlink $fd // next;
        $self->{names}{$1} = 1 if $path =~ m{/(sandbox-[a-z0-9]+)(?:/|$)};
    }

    return;
}


sub remember {
    my ($self, $pid) = @_;

    $self->{pids}{$pid} = start_time($pid);

    return;
}


sub signal {
    my ($self, $signal) = @_;

    return $self->hit($signal, $self->master);
}


# A reload is over when every worker of before has gone or is on its way,
# and new ones serve.

sub reload {
    my ($self) = @_;

    my %old = map { $_ => 1 } $self->workers;

    $self->signal('HUP');

    my $done = wait_for(sub {
        my @serving = grep { (slurp("/proc/$_/cmdline") // '')
                             !~ /shutting down/ } $self->workers;
        return @serving && !grep({ $old{$_} } @serving) && $self->ready;
    }, 20);

    $self->note_processes;

    return $done;
}


sub reap {
    my ($self) = @_;

    delete $self->{child}
        if $self->{child} && waitpid($self->{child}, WNOHANG) != 0;

    return !$self->{child};
}


sub noted_alive {
    my ($self) = @_;

    return grep { alive($_) && $self->{pids}{$_} == start_time($_) }
           keys %{ $self->{pids} };
}


# Ends nginx by a signal and waits for it, the keeper and the broker: true
# when all of them are gone within the time.

sub stop {
    my ($self, $signal, $seconds) = @_;

    $self->note_processes;
    $self->signal($signal // 'QUIT');

    return wait_for(sub {
        $self->reap;
        return !$self->noted_alive;
    }, $seconds // 20);
}


# Only what is this server's by its own looks, whatever a pid file says.

sub stop_hard {
    my ($self) = @_;

    $self->note_processes;

    if ($self->{child}) {
        kill 'KILL', $self->{child};
        waitpid delete $self->{child}, 0;
    }

    $self->hit('KILL', $self->left_processes);

    return;
}


# ---- HTTP ----------------------------------------------------------------

sub connect {
    my ($self, %o) = @_;

    return SandboxTest::Connection->new(port => $self->{port}, %o);
}


# One request on a connection of its own.  Status 0: no answer.

sub http {
    my ($self, $method, $target, %o) = @_;

    my $c = SandboxTest::Connection->new(
        port => $self->{port}, timeout => ($o{timeout} // 30) * $SLOW)
        or return { status => 0, headers => {}, body => '', whole => 0 };

    my %h = (Connection => 'close', %{ $o{headers} || {} });
    my $res = $c->request($method, $target, %o, timeout => undef,
                          headers => \%h);
    $c->close;

    return $res;
}


# A call of the API with a JSON body, or none.  {json} is the answer's.

sub api {
    my ($self, $method, $path, $json, %o) = @_;

    my %h = %{ $o{headers} || {} };

    if (defined $json) {
        $o{body} = ref $json ? $JSON->encode($json) : $json;
        $h{'Content-Type'} //= 'application/json';
    }

    my $res = $self->http($method, ($o{base} // '/v1') . $path, %o,
                          headers => \%h);

    if ($method ne 'HEAD'
        && ($res->{headers}{'content-type'} // '') =~ m{^application/\S*json})
    {
        $res->{json} = eval { $JSON->decode($res->{body}) };
        diag("bad JSON: $res->{body}") if $@;
    }

    return $res;
}


# A session's id, or the test file ends.

sub session {
    my ($self, %fields) = @_;

    my $res = $self->api(POST => '/sessions',
                         { tenant_id => 'acme-corp', user_id => 'alice',
                           %fields });

    if ($res->{status} != 201) {
        diag("create answered $res->{status}: $res->{body}");
        die "no session\n";
    }

    return $res->{json}{session_id};
}


# The exec answer of a command, {} where the server refused.

sub run {
    my ($self, $id, $cmd, %fields) = @_;

    my $res = $self->api(POST => "/sessions/$id/exec",
                         { cmd => $cmd, %fields });

    if ($res->{status} != 200) {
        diag("exec answered $res->{status}: $res->{body}");
        return {};
    }

    return $res->{json};
}


# ---- the end of every test file ------------------------------------------

sub log { return slurp("$_[0]{prefix}/logs/error.log") // '' }


# Lines of the log that match; for wait_for.

sub log_has {
    my ($self, $pattern) = @_;

    return scalar grep { $_ =~ $pattern } split /\n/, $self->log;
}


# Lets finish() accept lines of error.log that the test has provoked.

sub allow {
    my ($self, @patterns) = @_;

    push @{ $self->{allow} }, @patterns;

    return;
}


sub bad_lines {
    my ($self) = @_;

    my @bad;

    for my $line (split /\n/, $self->log
                  . (slurp("$self->{prefix}/logs/stderr.log") // ''))
    {
        next if $line !~ /\[(?:alert|emerg|crit)\]|Sanitizer|runtime error:/;
        next if grep { $line =~ $_ } @{ $self->{allow} };
        push @bad, $line;
    }

    for my $report (glob "$self->{prefix}/asan/*") {
        push @bad, split /\n/, slurp($report) // '';
    }

    return @bad;
}


# Processes that are this server's: seen as such before, or by the prefix in
# their command line, links or directory, or by the name of a cgroup.

sub is_ours {
    my ($self, $pid) = @_;

    my $dir = "/proc/$pid";

    return 1 if $self->{pids}{$pid}
                && $self->{pids}{$pid} == start_time($pid);

    my $all = join "\n", slurp("$dir/cmdline") // '',
                         readlink("$dir/exe") // '',
                         readlink("$dir/cwd") // '',
                         slurp("$dir/cgroup") // '', '';

    return 1 if $all =~ m{\Q$self->{prefix}\E(?![A-Za-z0-9_])};

    for my $name (keys %{ $self->{names} }) {
        return 1 if $all =~ m{/\Q$name\E(?:/|$)}m;
    }

    return 0;
}


sub left_processes {
    my ($self) = @_;

    return grep { $_ != $$ && alive($_) && $self->is_ours($_) }
           map { m{(\d+)$} } glob '/proc/[0-9]*';
}


sub left_mounts {
    my ($self) = @_;

    my %seen;

    for my $file (glob '/proc/[0-9]*/mountinfo') {
        for my $line (split /\n/, slurp($file) // '') {
            $seen{$line} = 1
                if $line =~ m{\Q$self->{prefix}\E(?![A-Za-z0-9_])};
        }
    }

    return sort keys %seen;
}


sub cgroup_roots {
    return map { (split ' ')[4] } grep { / - cgroup2? / }
           split /\n/, slurp('/proc/self/mountinfo') // '';
}


# The server's own groups, wherever a hierarchy is mounted.

sub left_cgroups {
    my ($self) = @_;

    my @left;
    my @todo = cgroup_roots();

    return if !%{ $self->{names} };

    while (defined(my $dir = shift @todo)) {
        opendir my $d, $dir or next;

        for my $name (grep { !/^\./ } readdir $d) {
            next if -l "$dir/$name" || !-d _;
            push @left, "$dir/$name" if $self->{names}{$name};
            push @todo, "$dir/$name";
        }
    }

    return @left;
}


sub left_files {
    my ($self) = @_;

    my $p = $self->{prefix};

    # nginx -t leaves an empty pid file, as it always does

    return map { substr $_, length($p) + 1 }
           grep { (-e || -l) && !(m{/nginx\.pid$} && -z) } map { glob "$p/$_" }
           qw(sessions/* broker.sock broker.pid keeper.pid nginx.pid
              nginx.pid.oldbin);
}


sub port_taken {
    my ($self) = @_;

    return !IO::Socket::INET->new(LocalAddr => '127.0.0.1',
                                  LocalPort => $self->{port}, Listen => 1,
                                  ReuseAddr => 1);
}


# Stops what runs; then no line of alarm, and nothing at all, is left.

sub finish {
    my ($self, %o) = @_;

    local $Test::Builder::Level = $Test::Builder::Level + 1;

    return 1 if $self->{finished};

    my $stopped = $self->stop($o{signal});
    my @wrong;

    push @wrong, 'still there 20 s after the end: '
                 . join ' ', $self->noted_alive
        if !$stopped;

    # The last process of a group is gone a moment before its group.

    my %left;
    wait_for(sub {
        %left = (
            processes => [ map { "$_ " . ((slurp("/proc/$_/cmdline") // '')
                                          =~ tr/\0/ /r) }
                           $self->left_processes ],
            mounts => [ $self->left_mounts ],
            cgroups => [ $self->left_cgroups ],
            files => [ $self->left_files ],
            port => [ $self->port_taken ? $self->{port} : () ],
        );
        return !grep { @$_ } values %left;
    }, 5);

    for my $what (sort keys %left) {
        push @wrong, map { "left: $what: $_" } @{ $left{$what} };
    }

    push @wrong, map { "log: $_" } $self->bad_lines;

    $self->{finished} = 1;
    ok(!@wrong, $o{name} // 'no alarm in the log, and nothing is left');
    diag($_) for @wrong;
    SandboxTest::Log::tell_errors($self->log);

    $self->clean(scalar @wrong);

    return !@wrong;
}


# What failed is kept for a look where SANDBOX_TEST_KEEP asks for it.

sub clean {
    my ($self, $failed) = @_;

    $self->stop_hard;

    if ($failed && $ENV{SANDBOX_TEST_KEEP}) {
        diag("kept: $self->{prefix}");
        return;
    }

    for my $line (reverse $self->left_mounts) {
        my $at = (split ' ', $line)[4];
        system 'umount', '-l', $at if index($at, "$self->{prefix}/") == 0;
    }

    for my $dir (reverse sort { length $a <=> length $b }
                 $self->left_cgroups)
    {
        system 'find', $dir, '-depth', '-type', 'd', '-exec', 'rmdir', '{}',
               ';';
    }

    remove_tree($self->{prefix}, { safe => 0 });

    return;
}


# A file that died, or that forgot finish(), still leaves nothing behind.

END {
    if ($$ == $OWNER) {
        my $status = $?;

        for my $self (grep { !$_->{finished} } @STARTED) {
            diag($_) for $self->bad_lines;
            $self->clean(1);
            $status ||= 1;
        }

        $? = $status;
    }
}


1;
