# The world that sessions of a test reach: servers on every address of a
# network namespace of its own.  Reads a line of JSON for each command and
# answers with one; ends with its standard input.
#
#   {"do": "start", "cert": "...", "key": "...",
#    "addresses": [those of UDP]}
#   {"do": "seen"}       what has arrived since the last time

import asyncio
import hashlib
import json
import socket
import ssl
import struct
import sys

HTTP, HTTPS = (80, 8080, 9090), (443, 8443)
ECHO, SINK, SOURCE, BANNER, HALF, RESET, DEAF, MUTE = range(7000, 7008)

seen = []


def note(kind, writer, **more):
    address, port = writer.get_extra_info("sockname")[:2]
    if address.startswith("::ffff:"):
        address = address[7:]
    seen.append(dict(more, kind=kind, address=address, port=port))
    return address, port


async def http(reader, writer):
    tls = writer.get_extra_info("ssl_object")
    first = True
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            lines = head.decode("latin-1").split("\r\n")
            headers = {}
            for line in lines[1:]:
                if ":" in line:
                    key, value = line.split(":", 1)
                    headers.setdefault(key.lower(), []).append(value.strip())
            body = await reader.readexactly(
                int(headers.get("content-length", ["0"])[0]))
            address, port = note("https" if tls else "http", writer,
                                 line=lines[0], headers=headers,
                                 sni=getattr(tls, "sbx_name", None),
                                 first=first)
            first = False
            path = lines[0].split(" ")[1]
            if path.startswith("/bytes/"):
                answer = b"x" * int(path[7:])
            else:
                answer = json.dumps({
                    "line": lines[0], "headers": headers, "address": address,
                    "port": port, "tls": bool(tls),
                    "body": body.decode("latin-1")}).encode()
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n"
                         % len(answer) + answer)
            await writer.drain()
            if "close" in headers.get("connection", []):
                return
    except (asyncio.IncompleteReadError, ConnectionError, ValueError,
            IndexError) as e:
        partial = getattr(e, "partial", b"")
        if partial:
            note("part", writer, data=partial.decode("latin-1"))
    finally:
        writer.close()


async def echo(reader, writer):
    note("echo", writer)
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()


async def sink(reader, writer):
    n = 0
    while data := await reader.read(262144):
        n += len(data)
    note("sink", writer, n=n)
    writer.close()


async def source(reader, writer):
    left = int(await reader.readline())
    note("source", writer, n=left)
    piece = bytes(range(256)) * 256
    while left:
        writer.write(piece[:left])
        left -= min(left, len(piece))
        await writer.drain()
    writer.close()


async def banner(reader, writer):
    note("banner", writer)
    writer.write(b"220 ready\r\n")
    await echo(reader, writer)


async def half(reader, writer):
    digest, n = hashlib.sha256(), 0
    while data := await reader.read(65536):
        digest.update(data)
        n += len(data)
    note("half", writer, n=n)
    writer.write(b"%d %s\n" % (n, digest.hexdigest().encode()))
    await writer.drain()
    writer.close()


async def reset(reader, writer):
    await reader.read(1)
    note("reset", writer)
    writer.get_extra_info("socket").setsockopt(
        socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def deaf(reader, writer):
    note("deaf", writer)
    writer.transport.pause_reading()
    await asyncio.sleep(3600)


async def mute(reader, writer):
    note("mute", writer)
    await reader.read()
    writer.close()


class Udp(asyncio.DatagramProtocol):
    def __init__(self, port):
        self.port = port

    def connection_made(self, transport):
        self.transport = transport

    def datagram_received(self, data, peer):
        seen.append({"kind": "udp", "port": self.port})
        self.transport.sendto(data, peer)


async def start(order):
    loop = asyncio.get_running_loop()
    table = {ECHO: echo, SINK: sink, SOURCE: source, BANNER: banner,
             HALF: half, RESET: reset, DEAF: deaf, MUTE: mute}
    table.update({port: http for port in HTTP})

    async def listen(port, handler, tls=None):
        for host in ("0.0.0.0", "::"):
            s = socket.socket(socket.AF_INET6 if host == "::"
                              else socket.AF_INET)
            s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if host == "::":
                s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            s.bind((host, port))
            await asyncio.start_server(handler, sock=s, ssl=tls,
                                       backlog=4096)

    for port, handler in table.items():
        await listen(port, handler)

    if order.get("cert"):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(order["cert"], order["key"])

        def named(tls, name, _):
            tls.sbx_name = name
        context.sni_callback = named
        for port in HTTPS:
            await listen(port, http, context)

    # an answer comes from the address that was asked

    for host in order["addresses"]:
        for port in (443, ECHO):
            s = socket.socket(socket.AF_INET6 if ":" in host
                              else socket.AF_INET, socket.SOCK_DGRAM)
            s.bind((host, port))
            await loop.create_datagram_endpoint(
                lambda port=port: Udp(port), sock=s)
    return {"ok": True}


async def main():
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=1 << 24)
    await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    loop.set_exception_handler(lambda *_: None)
    while line := await reader.readline():
        order = json.loads(line)
        if order["do"] == "start":
            out = await start(order)
        else:
            out, seen[:] = list(seen), []
        print(json.dumps(out), flush=True)

asyncio.run(main())
