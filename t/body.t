#!/usr/bin/perl

# Bodies that nginx reads in other ways than the module asks for: whole,
# before the handler runs, for another module; in pieces as large as the
# operator's buffer.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";

use Digest::MD5 qw(md5_hex);
use JSON::PP ();
use Test::More;
use SandboxTest::More;
use SandboxTest::Stream;

my $other = SandboxTest::free_port();

my $t = server(max_upload => '1g', http => <<"HTTP", extra => <<"EXTRA");
  server {
        listen 127.0.0.1:$other;
        client_max_body_size 0;
        location / {
            return 204;
        }
    }
HTTP
        location /copied/ {
            mirror /copy;
            sandbox_api v1;
        }
        location = /copy {
            internal;
            proxy_pass http://127.0.0.1:$other;
        }
        location /large/ {
            client_body_buffer_size 64m;
            sandbox_api v1;
        }
EXTRA

my $s = create_ok();

# More than a window, and than what a call may have in its queue.

my $bytes = join '', map { pack 'N', $_ } 1 .. 4_000_000;

sub from {
    my ($location, $method, $path, %o) = @_;

    local $SandboxTest::More::BASE = "/$location";

    return call($method, "/sessions/$s$path", %o);
}


for my $location ('copied', 'large') {
    subtest "a body by way of /$location/" => sub {
        my $res = from($location, 'PUT', '/files/f', body => $bytes);

        is($res->{status}, 201, 'an upload');
        is($res->{json}{size}, length $bytes, 'its size');
        is(md5_hex(get($s, 'f')->{body}), md5_hex($bytes), 'every byte');

        $res = from($location, 'PUT', '/files/c',
                    body => sprintf("%x\r\n%s\r\n0\r\n\r\n", length $bytes,
                                    $bytes),
                    headers => { 'Transfer-Encoding' => 'chunked' });
        is($res->{json}{size}, length $bytes, 'of unknown length');
        is(md5_hex(get($s, 'c')->{body}), md5_hex($bytes), 'every byte');

        my $pid = background($s, 'md5sum', stdin_open => JSON::PP::true);

        $res = from($location, 'POST', "/processes/$pid/stdin?eof=1",
                    body => $bytes);
        is($res->{status}, 204, 'standard input');
        like(follow($s, $pid)->rest->{stdout},
             qr/^\Q${\ md5_hex($bytes)}/, 'every byte');

        is(from($location, 'POST', '/exec', json => { cmd => 'echo x' })
             ->{json}{stdout}, "x\n", 'JSON');
        del($s, $_) for 'f', 'c';
    };
}

destroy($s);
$t->finish;
done_testing();
