# What a program in a session tries on its network: reads a list of steps as
# JSON, and writes what became of each.  A step that fails says so by the name
# of its error, and every one tells how long it took.

import errno
import json
import select
import socket
import ssl
import struct
import sys
import time


def family(address):
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def read(s, step):
    wanted, data = step.get("read", 65536), b""
    until = step.get("until", "").encode()
    while len(data) < wanted:
        piece = s.recv(min(65536, wanted - len(data)))
        if not piece:
            break
        data += piece
        if until and until in data:
            break
        if step.get("once"):
            break
    return data


def opened(step):
    s = socket.socket(family(step["to"]), socket.SOCK_STREAM)
    s.settimeout(step.get("timeout", 5))
    s.connect((step["to"], step["port"]))
    return s


def tcp(step):
    with opened(step) as s:
        for piece in step.get("send", []):
            s.sendall(piece.encode("latin-1"))
            if step.get("apart"):
                time.sleep(step["apart"])
        if step.get("shut"):
            s.shutdown(socket.SHUT_WR)
        return {"data": read(s, step).decode("latin-1")}


def http(step):
    host = step.get("host", step["to"])
    lines = ["GET %s HTTP/1.1" % step.get("path", "/"), "Host: " + host,
             "Connection: close"] + step.get("headers", [])
    with opened(step) as s:
        if step.get("tls"):
            context = ssl.create_default_context(cafile=step.get("ca"))
            if step.get("blind"):
                context.check_hostname = False
                context.verify_mode = ssl.CERT_NONE
            s = context.wrap_socket(
                s, server_hostname=step.get("sni", host) or None)
        s.sendall("\r\n".join(lines + ["", ""]).encode("latin-1"))
        data = read(s, step).decode("latin-1")
        out = {"data": data}
        if step.get("tls"):
            out["issuer"] = str(s.getpeercert().get("issuer"))
        head, _, body = data.partition("\r\n\r\n")
        out["status"] = int(head.split(" ")[1]) if head else 0
        if body.startswith("{"):
            out["json"] = json.loads(body)
        return out


def hello(name, more=None):
    context = ssl.create_default_context()
    if name is None:
        context.check_hostname = False
    out = ssl.MemoryBIO()
    tls = context.wrap_bio(ssl.MemoryBIO(), out, server_hostname=name)
    try:
        tls.do_handshake()
    except ssl.SSLWantReadError:
        pass
    data = out.read()
    if more is None:
        return data
    # one more extension, at the end: lengths of all that is around it
    body = bytearray(data[5:])
    at = 4 + 2 + 32
    at += 1 + body[at]
    at += 2 + struct.unpack("!H", body[at:at + 2])[0]
    at += 1 + body[at]
    extra = struct.pack("!HH", more, 4) + b"\0\1\2\3"
    size = struct.unpack("!H", body[at:at + 2])[0] + len(extra)
    body[at:at + 2] = struct.pack("!H", size)
    body += extra
    body[1:4] = struct.pack("!I", len(body) - 4)[1:]
    return b"\x16\3\1" + struct.pack("!H", len(body)) + bytes(body)


def client_hello(step):
    data = hello(step.get("sni"), step.get("extension"))
    if step.get("records"):               # records of so many bytes each
        n, body = step["records"], data[5:]
        data = b"".join(b"\x16\3\1" + struct.pack("!H", len(body[i:i + n]))
                        + body[i:i + n] for i in range(0, len(body), n))
    n = step.get("pieces", len(data))     # segments of so many bytes each
    with opened(step) as s:
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for i in range(0, len(data), n):
            s.sendall(data[i:i + n])
        got = s.recv(65536)
        return {"data": got[:1].hex(), "first": got[:1] == b"\x16"}


def ask(step):
    words = {"A": 1, "NS": 2, "CNAME": 5, "SOA": 6, "NULL": 10, "PTR": 12,
             "MX": 15, "TXT": 16, "AAAA": 28, "SVCB": 64, "HTTPS": 65,
             "AXFR": 252, "ANY": 255}
    kind = words[step.get("type", "A")]
    query = (struct.pack("!HHHHHH", 0x1234, 0x0100, 1, 0, 0, 0)
             + b"".join(bytes([len(p)]) + p.encode()
                        for p in step["name"].split(".")) + b"\0"
             + struct.pack("!HH", kind, 1))
    server = step.get("server", "192.0.0.8")
    if step.get("over") == "tcp":
        with socket.socket(family(server), socket.SOCK_STREAM) as s:
            s.settimeout(step.get("timeout", 5))
            s.connect((server, 53))
            s.sendall(struct.pack("!H", len(query)) + query)
            size = struct.unpack("!H", s.recv(2, socket.MSG_WAITALL))[0]
            data = s.recv(size, socket.MSG_WAITALL)
    else:
        with socket.socket(family(server), socket.SOCK_DGRAM) as s:
            s.settimeout(step.get("timeout", 5))
            s.connect((server, 53))
            s.send(query)
            data = s.recv(65536)
    flags, _, count = struct.unpack("!HHH", data[2:8])
    at, found = 12, []

    def skip(at):
        while data[at] and data[at] < 0xc0:
            at += 1 + data[at]
        return at + (2 if data[at] else 1)
    at = skip(at) + 4
    for _ in range(count):
        at = skip(at)
        of, _, ttl, size = struct.unpack("!HHIH", data[at:at + 10])
        at += 10
        if of in (1, 28):
            found.append(socket.inet_ntop(
                socket.AF_INET if of == 1 else socket.AF_INET6,
                data[at:at + size]))
        at += size
    return {"rcode": flags & 15, "found": found, "cut": bool(flags & 0x200),
            "size": len(data)}


def lookup(step):
    rows = socket.getaddrinfo(step["name"], step.get("port", 80),
                              type=socket.SOCK_STREAM)
    return {"found": sorted({row[4][0] for row in rows})}


def udp(step):
    with socket.socket(family(step["to"]), socket.SOCK_DGRAM) as s:
        s.settimeout(step.get("timeout", 2))
        s.connect((step["to"], step["port"]))
        for _ in range(2):                # the error may come with the second
            s.send(b"x")
            if select.select([s], [], [], 0.2)[0]:
                break
        return {"data": s.recv(100).decode("latin-1")}


kinds = {"tcp": tcp, "http": http, "hello": client_hello, "ask": ask,
         "lookup": lookup, "udp": udp}
results = []

for step in json.loads(sys.stdin.read()):
    began = time.monotonic()
    try:
        out = kinds[step["do"]](step)
        out["error"] = ""
    except (ssl.SSLError, socket.gaierror) as e:
        out = {"error": type(e).__name__, "text": str(e)}
    except TimeoutError:
        out = {"error": "timeout"}
    except OSError as e:
        out = {"error": errno.errorcode.get(e.errno, str(e)), "text": str(e)}
    except (IndexError, struct.error, ValueError) as e:
        out = {"error": "short", "text": str(e)}
    out["ms"] = round((time.monotonic() - began) * 1000, 1)
    results.append(out)

print(json.dumps(results))
