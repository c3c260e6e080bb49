#!/usr/bin/perl

# A read of a session's file may take as long as the session likes.  A worker's
# threads read, and they are few: one session has four of them at most, one
# tenant half, and nginx's own locations have others.  What is beyond waits in
# line, and goes on in its order.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../lib";

use Test::More;
use SandboxTest;
use SandboxTest::Held;
use SandboxTest::More;

my $CLIENTS = 40;
my $PARTS = 60;
my $STEP = 1000;                  # bytes of each: they differ by their ranges
my $OF_SESSION = 4;

if (my $why = SandboxTest::Held::missing()) {
    plan(skip_all => $why);
}

my $BYTES = join '', map { sprintf "%0${STEP}d", $_ } 0 .. $PARTS - 1;

sub asks {
    my ($s, $n, $name) = @_;

    my $from = $n * $STEP;

    return open_request(GET => "/sessions/$s/files/" . ($name // 'held'),
                        headers => { Range => 'bytes=' . $from . '-'
                                              . ($from + $STEP - 1) });
}

# Their headers are there as soon as they have a thread or are in line, unless
# the kernel is asked to wait for more.
sub begun {
    my ($c) = @_;

    my $r = read_head($c);

    die "not begun: $r->{head}$r->{error}\n" if $r->{status} != 206;

    return { c => $c, r => $r };
}

sub body {
    my ($job) = @_;

    my $body = '';
    body_stream($job->{c}, $job->{r}, sub { $body .= $_[0] });

    return $body;
}

sub part { return substr $BYTES, $_[0] * $STEP, $STEP }

sub leads {
    my ($pid) = @_;

    return scalar grep { (readlink $_ // '') =~ m{^(?!/tmp/).*/held$} }
                  glob "/proc/$pid/fd/*";
}

sub held_at {
    my ($held, $name, @n) = @_;

    my $want = join ' ', sort { $a <=> $b } map { $_ * $STEP } @n;

    until_true {
        join(' ', sort { $a <=> $b } $held->at('held')) eq $want;
    } 20;

    return is(join(' ', sort { $a <=> $b } $held->at('held')), $want, $name);
}

sub others_served {
    my ($when, @s) = @_;

    for my $s (@s) {
        my $r = get($s->{id}, 'own', timeout => within(10));
        is("$r->{status} " . ($r->{body} // ''), "200 $s->{who}",
           "$when, $s->{who} downloads");
    }

    return;
}

sub other {
    my ($who, %fields) = @_;

    my $id = create_ok({ %fields });

    put($id, 'own', $who);

    return { id => $id, who => $who };
}

sub own_file {
    my ($t) = @_;

    mkdir $t->prefix . '/nginx';
    open my $f, '>', $t->prefix . '/nginx/file' or die $!;
    print $f "nginx's own\n";
    close $f;

    return;
}

sub begin_held {
    my (%o) = @_;

    my $held = SandboxTest::Held->new
        // plan(skip_all => 'no compiler');
    my $t = server(workers => 1, %o,
                   extra => "tcp_nopush off;\n" . ($o{extra} // ''));

    $held->loaded;

    return ($held, $t);
}


sub one_session {
    my ($name, $extra) = @_;

    subtest $name => sub {
        my ($held, $t) = begin_held(extra => $extra . <<'EOC');
        location /nginx/ { root %%PREFIX%%; aio threads; }
EOC
        my ($worker) = workers();
        my $s = create_ok({ tenant_id => 'one' });
        my @others = (other('another session', tenant_id => 'one'),
                      other('another tenant', tenant_id => 'two'));

        own_file($t);
        put($s, 'held', $BYTES);
        put($s, 'own', 'the session');
        $held->hold('held');

        # in their order; the tenant is known though nobody has told it

        my @c = map { begun(asks($s, $_)) } 0 .. $CLIENTS - 1;

        held_at($held, 'four have a thread', 0 .. $OF_SESSION - 1);
        is(leads($worker), $CLIENTS, 'all others are in line');
        others_served('meanwhile', @others);
        is($t->http(GET => '/nginx/file')->{body}, "nginx's own\n",
           'and nginx sends what is its own');
        is(run($s, 'echo x')->{stdout}, "x\n",
           'the session serves all other calls');

        # one that has a thread ends, whichever it is, and the next begins

        $held->release('held', 2 * $STEP);
        is(body($c[2]), part(2), 'one that is let go has its bytes');
        held_at($held, 'and the first in line its thread', 0, 1, 3, 4);
        $held->release('held', 0);
        is(body($c[0]), part(0), 'so has another');
        held_at($held, 'and the next', 1, 3, 4, 5);

        # clients leave: in line, the next of it among them, and at work

        close $c[$_]{c} for 6 .. 15;
        ok((until_true { leads($worker) == $CLIENTS - 12 }),
           'nothing is kept of whoever leaves the line');
        close $c[1]{c};
        held_at($held, 'nobody gets a thread by that', 1, 3, 4, 5);
        $held->release('held', 1 * $STEP);
        held_at($held, 'until one is free', 3, 4, 5, 16);

        # a reload: they stay with the worker that is to end

        ok($t->reload, 'a reload');
        my ($new) = grep { $_ != $worker } workers();
        others_served('from the new worker', @others,
                      { id => $s, who => 'the session' });
        held_at($held, 'nothing has changed', 3, 4, 5, 16);

        $held->release('held');

        my @wrong = grep { body($c[$_]) ne part($_) }
                    3 .. 5, 16 .. $CLIENTS - 1;

        is("@wrong", '', 'all have their bytes when they are let go');
        ok((until_true { !SandboxTest::alive($worker) } 20),
           'and the old worker ends');
        is(leads($new), 0, 'nothing is left of it');

        # the session ends meanwhile

        $held->hold('held');
        @c = map { begun(asks($s, $_)) } 0 .. 9;
        held_at($held, 'four have a thread again', 0 .. $OF_SESSION - 1);

        my $end = async { destroy($s)->{status} };

        for my $n ($OF_SESSION .. 9) {
            my ($rest, $closed) = read_rest($c[$n]{c});
            is($c[$n]{r}{rest} . $rest, '', "number $n is cut in line");
        }

        others_served('at its end', @others);
        $held->release('held');
        is($end->get, 204, 'the session has ended');

        $t->finish;
    };

    return;
}

# Headers go out before what they belong to is read, in both.
one_session('by sendfile()', "sendfile on;\n");
one_session('by read()', "sendfile off;\npostpone_output 0;\n");


# So many sessions, 5 reads of each of which are asked for: which of them has
# how many, and all that were.
sub taken {
    my ($held, $n, $fields) = @_;

    my @c;

    for my $i (0 .. $n - 1) {
        my $s = create_ok($fields);
        put($s, 'held', $BYTES);
        push @c, map { { %{ begun(asks($s, $_)) }, n => $_ } }
                 5 * $i .. 5 * $i + 4;
    }

    return \@c;
}

# How many of each five are held, once there are so many of all.
sub how_many {
    my ($held, $all, @but) = @_;

    my (%but, @n);

    until_true { $held->at('held') == $all } 20;
    $but{$_}++ for @but;
    $n[$_ / $STEP / 5]++
        for grep { !$but{$_} || $but{$_}-- <= 0 } $held->at('held');

    return join ' ', map { $_ // 0 } @n;
}

subtest 'many sessions, of users of a tenant, and of another' => sub {
    my ($held, $t) = begin_held();
    my @others = (other('a third tenant', tenant_id => 'three'));
    my @all;

    $held->hold('held');

    # tenant, user, sessions; how many have a thread in all, and of these

    for my $of ([ qw(one a 4 8), '4 3 1' ], [ qw(one b 3 12), '2 2' ],
                [ qw(one c 3 14), '1 1' ], [ qw(one d 2 15), '1' ],
                [ qw(one e 1 16), '1' ], [ qw(one f 1 16), '' ],
                [ qw(two a 3 20), '2 2' ])
    {
        my ($tenant, $user, $n, $sum, $each) = @$of;
        my @before = $held->at('held');

        push @all, @{ taken($held, $n, { tenant_id => $tenant,
                                         user_id => $user }) };
        is(how_many($held, $sum, @before), $each,
           "user $user of tenant $tenant with $n sessions");
    }

    others_served('meanwhile', @others);
    $held->release('held');

    my @wrong = grep { body($_) ne part($_->{n}) } @all;

    is(scalar @wrong, 0, 'all have their bytes in the end');
    $t->finish;
};


subtest 'longer than nginx waits' => sub {
    my ($held, $t) = begin_held(extra => "send_timeout 1s;\n");
    my ($worker) = workers();
    my $s = create_ok();

    put($s, 'held', $BYTES);
    $held->hold('held');

    my @c = map { begun(asks($s, $_)) } 0 .. 5;

    for my $n (4, 5) {
        my ($rest, $closed) = read_rest($c[$n]{c});
        is("$closed $c[$n]{r}{rest}$rest", '1 ', "number $n is cut in line");
    }

    ok((until_true { leads($worker) == $OF_SESSION }),
       'nothing is kept but what has a thread');
    $held->release('held');
    ok((until_true { !leads($worker) }), 'until that ends');
    $t->finish;
};


# ---- HTTP/2 ------------------------------------------------------------------

sub frame {
    my ($type, $flags, $stream, $payload) = @_;

    return substr(pack('N', length $payload), 1)
           . pack('C C N', $type, $flags, $stream) . $payload;
}

# A connection of ten streams, 1 to 19, each with its part of the file.
sub ten_streams {
    my ($port, $s) = @_;

    my $c = IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $port)
        or die "port $port: $!";
    my $path = "/v1/sessions/$s/files/held";

    print $c "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", frame(4, 0, 0, ''), map {
        my $range = 'bytes=' . $_ * $STEP . '-' . ($_ * $STEP + $STEP - 1);

        # GET, http, and literals: :path, :authority, range

        frame(1, 5, 2 * $_ + 1,
              "\x82\x86" . pack('C C/a C C/a C C C/a', 4, $path, 1,
                                'localhost', 0x0f, 50 - 15, $range));
    } 0 .. 9;
    $c->flush;

    return $c;
}

# What each stream has brought, once those are over.
sub brought {
    my ($c, @n) = @_;

    my ($buf, %data) = ('');
    my %wanted = map { $_ => 1 } @n;
    my $deadline = time + within(20);

    while (%wanted) {
        while (length $buf < 9
               || length $buf < 9 + unpack 'N', "\0" . substr $buf, 0, 3)
        {
            my $more = SandboxTest::More::read_some($c, $deadline);
            return \%data if !length($more // '');
            $buf .= $more;
        }

        my $len = unpack 'N', "\0" . substr $buf, 0, 3;
        my ($type, $flags, $id) = unpack 'x3 C C N', $buf;

        $data{($id - 1) / 2} .= substr $buf, 9, $len if $type == 0;
        delete $wanted{($id - 1) / 2} if $type < 2 && $flags & 1;
        substr $buf, 0, 9 + $len, '';
    }

    return \%data;
}

sub over_http2 {
    my ($name, $extra, @first) = @_;

    subtest "$name of HTTP/2" => sub {
        my $port = SandboxTest::free_port();
        my ($held, $t) = begin_held(
            extra => "listen 127.0.0.1:$port http2;\n$extra");
        my ($worker) = workers();
        my $s = create_ok({ tenant_id => 'one' });
        my $other = other('another session', tenant_id => 'one');

        put($s, 'held', $BYTES);

        # they stay, one of each kind is reset, or all are gone

        for my $reset ([], [ 0, 9 ], undef) {
            $held->hold('held');

            my $c = ten_streams($port, $s);

            ok((until_true { $held->at('held') == @first
                             && leads($worker) == 10 } 20),
               @first . ' of ten have a thread');

            if ($reset) {
                print $c map { frame(3, 0, 2 * $_ + 1, "\0\0\0\x08") } @$reset;
                $c->flush;
            } else {
                close $c;
            }

            others_served('meanwhile', $other);
            $held->release('held');

            if ($reset) {
                my %reset = map { $_ => 1 } @$reset;
                my @stay = grep { !$reset{$_} } 0 .. 9;
                my $got = brought($c, @stay);
                my @wrong = grep { ($got->{$_} // '') ne part($_) } @stay;

                is("@wrong", '', 'all have their bytes in the end');
            }

            ok((until_true { !leads($worker) }), 'nothing stays open');
            close $c if $reset;
        }

        is((workers())[0], $worker, 'the worker lives');
        others_served('then', $other);
        $t->finish;
    };

    return;
}

over_http2('sendfile()', "sendfile on;\n", 0);
over_http2('read()', "sendfile off;\n", 0 .. $OF_SESSION - 1);


# ---- whose threads they are ------------------------------------------------

my $POOL = 'thread_pool sandbox_files threads=';

subtest 'nginx has its own, where it says "aio threads" of all' => sub {
    my ($held, $t) = begin_held(
        http => "aio threads;\n",
        extra => "location /nginx/ { root %%PREFIX%%; }\n");
    my $s = other('a session');

    own_file($t);
    $held->hold('file');

    local $SandboxTest::More::BASE = '/nginx';
    my @c = map { open_request(GET => '/file') } 1 .. 33;

    ok((until_true { $held->at('file') == 32 } 20),
       'as many as its pool has are held');
    $SandboxTest::More::BASE = '/v1';
    others_served('meanwhile', $s);
    $held->release('file');
    is(join('', map { read_response($_)->{body} } @c), "nginx's own\n" x 33,
       'and let go');
    $t->finish;
};

for my $of ([ 'of a number of its own', 2, '',
              sub { s/^/${POOL}2;\n/ } ],
            [ 'of a pool of its own', 1, "            aio threads=few;\n",
              sub { s/^/thread_pool few threads=1;\n/ } ])
{
    my ($name, $n, $location, $edit) = @$of;

    subtest "a configuration has threads $name" => sub {
        my ($held, $t) = begin_held(edit => sub {
            $edit->();
            s{^(        location /v1/ \{\n)}{$1$location}m or die;
        });
        my $s = create_ok();

        put($s, 'held', $BYTES);
        $held->hold('held');

        my @c = map { begun(asks($s, $_)) } 0 .. 4;

        held_at($held, 'they are as many', 0 .. $n - 1);
        $held->release('held');
        is(join('', map { body($_) } @c), join('', map { part($_) } 0 .. 4),
           'and all have their bytes');
        $t->finish;
    };
}

subtest 'a pool of that name that is said too late' => sub {
    my $t = SandboxTest->new(edit => sub { $_ .= "${POOL}8;\n" });
    my ($status, $text) = $t->nginx('-t');

    isnt($status, 0, 'is refused');
    like($text, qr/duplicate thread pool "sandbox_files"/, 'by its name');
    $t->allow(qr/duplicate thread pool "sandbox_files"/);
    $t->finish;
};

done_testing();
