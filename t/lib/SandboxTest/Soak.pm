package SandboxTest::Soak;

# A server with everything that there is to be had, for the load of t/soak: see
# t/soak/main.py.  The caller has "use SandboxTest::Net" at its top.

use strict;
use warnings;

use File::Temp ();
use JSON::PP ();
use POSIX qw(WNOHANG);
use Test::More;

use SandboxTest;
use SandboxTest::Net;
use SandboxTest::Packages ();

my $JSON = JSON::PP->new->utf8->canonical;
my ($PYTHON, $STOP);


# minutes, seed, gap (seconds between kills); see plan_of() for the rest.  What
# the load has written as its report, with {ended_well}.

sub soak {
    my (%o) = @_;

    local $SIG{INT} = sub { $STOP = 1; kill 'INT', $PYTHON if $PYTHON };
    local $SIG{TERM} = $SIG{INT};

    my $net = SandboxTest::Net->new;
    my $dir = File::Temp->newdir('soakXXXXXX', TMPDIR => 1);

    chmod 0755, "$dir";

    my $index = packages("$dir");
    my $plan = plan_of(%o);
    my $t = server($net, $plan, $index, "$dir");

    %$plan = (%$plan, port => $t->port, prefix => $t->prefix,
              net => 1, packages => $index ? 1 : 0,
              json => $o{json} // "$dir/report");

    my $status = load($net, "$dir/plan", $plan);

    # what nginx itself says of a worker that was killed

    $t->allow(qr/worker process \d+ exited on signal 9/);
    my $clean = $t->finish;

    $index->stop if $index;

    my $report = eval { $JSON->decode(SandboxTest::slurp($plan->{json})) };

    return { %{ $report || {} },
             ended_well => $report && $status == 0 && $clean };
}


sub packages {
    my ($dir) = @_;

    return undef if SandboxTest::Packages::lacks('pip');

    mkdir "$dir/index" or die $!;
    SandboxTest::Packages::make("$dir/index",
        { manager => 'pip', name => 'sbx-soak', version => '1.0',
          files => { 'sbx_soak.py' => "x = 42\n" } });

    return SandboxTest::Packages->serve("$dir/index", '127.0.0.7');
}


sub plan_of {
    my (%o) = @_;

    my $seconds = ($o{minutes} // 5) * 60;
    my $calibrate = $o{calibrate} // ($seconds > 300 ? 60 : $seconds / 5);

    return {
        seed => 0 + ($o{seed} // 1),
        seconds => $seconds - $calibrate,
        calibrate => $calibrate,
        gap => 0 + ($o{gap} // 8),
        kinds => $o{kill} // [],
        once => $o{once} ? 1 : 0,
        judge => $o{judge} // ($seconds >= 600 ? 1 : 0),
        clients => 0 + ($o{clients} // 24),
        residents => 0 + ($o{residents} // 12),
        elders => 0 + ($o{elders} // 6),
        every => $o{every} // ($seconds >= 600 ? 30 : 10),
        young => $seconds >= 600 ? 60 : 10,
        big => ($o{big} // 50) << 20,
        slow => $o{slow} // 60000,          # lines that are read slowly
        pool => $o{pool} // 3,
        ids => $o{ids} // 96,
        workers => 2,
        life => 86400,
    };
}


sub server {
    my ($net, $plan, $index, $dir) = @_;

    my $at = $index ? '127.0.0.7:' . $index->port : undef;
    my $more = $at ? " $at" : '';
    my $http = <<"CONF";
    sandbox_template net {
        network on;
        egress allow *.example.org 203.0.113.10-203.0.113.14$more;
    }
    sandbox_pool base sessions=$plan->{pool} kernels=python;
    sandbox_quota user sessions=300 commands=2000;
    sandbox_quota organization sessions=600;
    sandbox_quota node sessions=600;
CONF

    $http =~ s/203\.0\.113\.10-\S+14/join ' ', map { "203.0.113.$_" } 10 .. 14/e;
    $http .= "    sandbox_package_index pip http://$at/simple;\n" if $at;

    return $net->server(
        workers => $plan->{workers}, dir => $dir, http => $http, server => <<'CONF',
        location /admin/ { sandbox_api admin; }
        location = /metrics { sandbox_api metrics; }
        location /status/ { sandbox_api status; }
CONF
        edit => sub {
            s/sandbox_max_upload .*;/sandbox_max_upload 200m;/;
            s{sandbox_uid_range (\d+)-\d+;}
             {"sandbox_uid_range $1-" . ($1 + $plan->{ids} * 65536 - 1) . ';'}e;
        });
}


# What the load answers with as it ends.

sub load {
    my ($net, $file, $plan) = @_;

    open my $f, '>', $file or die $!;
    print $f $JSON->encode($plan);
    close $f;

    $PYTHON = fork // die "fork: $!";

    if ($PYTHON == 0) {
        open STDIN, '<', '/dev/null';
        { no warnings 'exec';
          exec '/usr/bin/python3', "$SandboxTest::ROOT/t/soak/main.py",
               $file; }
        POSIX::_exit(127);
    }

    kill 'INT', $PYTHON if $STOP;

    # the world keeps what came to it until it is asked

    my $status;

    until (defined $status) {
        $net->seen;
        SandboxTest::wait_for(sub {
            return 0 if waitpid($PYTHON, WNOHANG) != $PYTHON;
            $status = $?;
            return 1;
        }, 5);
    }

    $PYTHON = undef;

    return $status;
}


1;
