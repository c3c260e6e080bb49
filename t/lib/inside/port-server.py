# Runs inside a session: a server that does as the path says, well or badly.

import base64, hashlib, json, os, socket, struct, sys, threading, time, \
    urllib.parse

BLOCK = b'0123456789abcdef' * 4096


def head_of(c):
    data = b''
    while b'\r\n\r\n' not in data:
        more = c.recv(65536)
        if not more:
            return None, b''
        data += more
    head, rest = data.split(b'\r\n\r\n', 1)
    return head.decode('latin-1'), rest


def body_of(c, head, rest):
    fields = {k.lower(): v.strip() for k, v in
              (line.split(':', 1) for line in head.split('\r\n')[1:])}
    if fields.get('transfer-encoding') == 'chunked':
        f = c.makefile('rb')

        def readline(buf):
            while b'\n' not in buf[0]:
                buf[0] += f.read1(65536) or b'\n'
            line, buf[0] = buf[0].split(b'\n', 1)
            return line

        def readn(buf, n):
            while len(buf[0]) < n:
                more = f.read1(65536)
                if not more:
                    return
                buf[0] += more
            out, buf[0] = buf[0][:n], buf[0][n:]
            yield out

        buf = [rest]
        while True:
            n = int(readline(buf), 16)
            yield from readn(buf, n)
            readline(buf)
            if n == 0:
                return
    left = int(fields.get('content-length', 0)) - len(rest)
    yield rest
    while left > 0:
        more = c.recv(min(left, 262144))
        if not more:
            return
        left -= len(more)
        yield more


def reply(c, body, *lines):
    text = '\r\n'.join(('HTTP/1.1 200 OK', 'Content-Type: text/plain',
                        'Content-Length: %d' % len(body)) + lines)
    c.sendall(text.encode('latin-1') + b'\r\n\r\n' + body)


def websocket(c, head, rest):
    key = [l.split(':', 1)[1].strip() for l in head.split('\r\n')
           if l.lower().startswith('sec-websocket-key:')][0]
    accept = base64.b64encode(hashlib.sha1(
        (key + '258EAFA5-E914-47DA-95CA-C5AB0DC85B11').encode()).digest())
    c.sendall(b'HTTP/1.1 101 Whatever\r\nUpgrade: websocket\r\n'
              b'Connection: Upgrade, X-Hop\r\nX-Hop: 1\r\n'
              b'Sec-WebSocket-Accept: ' + accept + b'\r\n\r\n')
    buf = rest

    def need(n):
        nonlocal buf
        while len(buf) < n:
            more = c.recv(65536)
            if not more:
                return False
            buf += more
        return True

    while need(2):
        op, n, at = buf[0] & 15, buf[1] & 127, 2
        if n == 126 and need(4):
            n, at = struct.unpack('>H', buf[2:4])[0], 4
        elif n == 127 and need(10):
            n, at = struct.unpack('>Q', buf[2:10])[0], 10
        if not need(at + 4 + n):
            return
        mask, data = buf[at:at + 4], buf[at + 4:at + 4 + n]
        buf = buf[at + 4 + n:]
        data = bytes(b ^ mask[i & 3] for i, b in enumerate(data))
        size = struct.pack('>B', n) if n < 126 else \
            struct.pack('>BH', 126, n) if n < 65536 else \
            struct.pack('>BQ', 127, n)
        c.sendall(bytes([0x80 | op]) + size + data)
        if op == 8:
            return


def serve(c):
    head, rest = head_of(c)
    if head is None:
        return
    target = head.split(' ')[1]
    path, _, query = target.partition('?')
    arg = urllib.parse.parse_qs(query)

    if path == '/sink':
        n, sha = 0, hashlib.sha256()
        for piece in body_of(c, head, rest):
            n += len(piece)
            sha.update(piece)
        reply(c, b'%d %s' % (n, sha.hexdigest().encode()))
    elif path == '/big':
        n = int(arg['n'][0])
        c.sendall(b'HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n' % n)
        while n > 0:
            c.sendall(BLOCK[:n])
            n -= len(BLOCK)
    elif path == '/chunks':
        c.sendall(b'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n')
        for piece in (b'one', b'two', b'x' * 70000):
            c.sendall(b'%x;ext=1\r\n%s\r\n' % (len(piece), piece))
        c.sendall(b'0\r\nX-Trailer: 1\r\n\r\n')
    elif path == '/ones':
        c.sendall(b'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n'
                  + b'1;x\r\nz\r\n' * int(arg['n'][0]) + b'0\r\n\r\n')
    elif path == '/pour':
        c.sendall(b'HTTP/1.1 101 Switching Protocols\r\nUpgrade: pour\r\n'
                  b'Connection: Upgrade\r\n\r\n'
                  + b'z' * int(arg['n'][0]))
    elif path == '/raw':
        c.sendall(base64.b64decode(arg['b'][0]) * int(arg['times'][0])
                  + b'x' * int(arg['pad'][0]))
        if 'hang' in arg:
            c.recv(1)
    elif path == '/endless':
        c.sendall(b'HTTP/1.1 200 OK\r\n')
        while True:
            c.sendall(b'X-More: ' + b'x' * 1000 + b'\r\n')
    elif path == '/events':
        c.sendall(b'HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n'
                  b'\r\ndata: 1\n\n')
        while not os.path.exists(arg['file'][0]):
            time.sleep(0.02)
        c.sendall(b'data: 2\n\n')
    elif path == '/hang':
        c.recv(1)
    elif path == '/ws':
        websocket(c, head, rest)
    else:
        for piece in body_of(c, head, rest):
            pass
        reply(c, head.encode('latin-1'), *arg.get('h', ()))


def one(c):
    try:
        serve(c)
    except OSError:
        pass
    finally:
        c.close()


family, address = (socket.AF_INET6, '::1') if len(sys.argv) > 2 \
    else (socket.AF_INET, '127.0.0.1')
s = socket.socket(family)
s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind((address, int(sys.argv[1])))
s.listen(64)
print('ready', flush=True)
while True:
    threading.Thread(target=one, args=(s.accept()[0],), daemon=True).start()
