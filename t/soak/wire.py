"""HTTP/1.1, streams, the Connect protocol and WebSockets, as a client has
them: answers are told as they came, and what was cut is never taken for
whole."""

import asyncio
import base64
import json
import os
import socket
import struct
import time


class Answer:
    """status 0: none came.  whole: the end was the one that was promised."""

    def __init__(self, what):
        self.what, self.status, self.headers = what, 0, {}
        self.began = time.monotonic()
        self.body, self.whole, self.late = b"", False, False
        self.why = ""

    @property
    def json(self):
        try:
            return json.loads(self.body)
        except ValueError:
            return None

    def field(self, *path):
        at = self.json
        for name in path:
            if not isinstance(at, dict):
                return None
            at = at.get(name)
        return at

    @property
    def code(self):
        """The code of a refusal, in either API's form, or ""."""
        found = self.field("code")
        return str(found) if found is not None and self.status >= 400 else ""

    @property
    def request_id(self):
        return self.headers.get("x-request-id", "-")

    def __str__(self):
        text = "%s: " % self.what
        if self.late:
            text += "no answer in time"
        elif not self.status:
            text += "no answer (%s)" % self.why
        else:
            text += "%d %s" % (self.status, self.body[:300].decode(
                "utf-8", "replace"))
            text += "" if self.whole else " (cut: %s)" % self.why
        return text + " [request %s]" % self.request_id


class Wire:
    """One server.  Each request has a connection of its own, but for those
    that ask to keep one."""

    def __init__(self, port):
        self.port, self.kept, self.retried = port, [], 0

    async def connect(self, rcvbuf=None):
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", self.port, limit=1 << 17)
        if rcvbuf:
            writer.get_extra_info("socket").setsockopt(
                socket.SOL_SOCKET, socket.SO_RCVBUF, rcvbuf)
        return reader, writer

    async def ask(self, method, target, *, data=None, body=None, headers=None,
                  host="localhost", seconds=120, keep=False, sink=None):
        """sink takes each piece of the body, which is not kept then."""
        answer = Answer("%s %s" % (method, target))
        kept = None
        try:
            async with asyncio.timeout(seconds):
                while True:
                    kept = self.kept.pop() if keep and self.kept else None
                    reader, writer = kept or await self.connect()
                    try:
                        await self.exchange(answer, reader, writer, method,
                                            target, data, body, headers, host,
                                            keep, sink)
                    finally:
                        if not (keep and answer.whole and answer.headers.get(
                                "connection") != "close"):
                            writer.transport.abort()
                    if kept and not answer.status:
                        # closed between two requests, without a byte
                        self.retried += 1
                        continue
                    if keep and answer.whole and answer.headers.get(
                            "connection") != "close":
                        self.kept.append((reader, writer))
                    return answer
        except TimeoutError:
            answer.late = True
        except OSError as e:
            answer.why = type(e).__name__
        return answer

    async def exchange(self, answer, reader, writer, method, target, data,
                       body, headers, host, keep, sink):
        try:
            send(writer, method, target, data, body, headers, host, keep)
            sent = asyncio.ensure_future(drain(writer))
            try:
                await read_head(answer, reader)
                await read_body(answer, reader, method, sink)
            finally:
                sent.cancel()
        except (asyncio.IncompleteReadError, ConnectionError) as e:
            answer.why = type(e).__name__

    async def stream(self, method, target, *, data=None, body=None,
                     headers=None, host="localhost", seconds=60, rcvbuf=None):
        answer = Answer("%s %s" % (method, target))
        f = Stream(answer)
        try:
            async with asyncio.timeout(seconds):
                f.reader, f.writer = await self.connect(rcvbuf)
                send(f.writer, method, target, data, body, headers, host,
                     False)
                await f.writer.drain()
                await read_head(answer, f.reader)
                if answer.status >= 300:
                    await read_body(answer, f.reader, method, None)
        except TimeoutError:
            answer.late = True
        except (OSError, asyncio.IncompleteReadError) as e:
            answer.why = type(e).__name__
        return f

    def close(self):
        for _, writer in self.kept:
            writer.transport.abort()
        self.kept = []


def send(writer, method, target, data, body, headers, host, keep):
    h = {"Host": host, "Connection": "keep-alive" if keep else "close"}
    if data is not None:
        body = json.dumps(data).encode()
        h["Content-Type"] = "application/json"
    if body is not None:
        h["Content-Length"] = str(len(body))
    h.update(headers or {})
    head = "%s %s HTTP/1.1\r\n" % (method, target) + "".join(
        "%s: %s\r\n" % (k, v) for k, v in h.items() if v is not None)
    writer.write(head.encode("latin-1") + b"\r\n")
    if body:
        writer.write(body)


async def drain(writer):
    try:
        await writer.drain()
    except ConnectionError:
        pass                # what the peer answered is read all the same


async def read_head(answer, reader):
    while True:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        lines = head.split("\r\n")
        status = int(lines[0].split(" ")[1])
        if status != 100:
            break
    answer.headers = {}
    for line in lines[1:]:
        name, _, value = line.partition(":")
        if name:
            answer.headers[name.lower()] = value.strip()
    answer.status = status


async def read_body(answer, reader, method, sink):
    pieces = []
    take = sink or pieces.append
    h = answer.headers
    try:
        if method == "HEAD" or answer.status in (101, 204, 304):
            answer.whole = True
        elif h.get("transfer-encoding") == "chunked":
            while piece := await read_chunk(reader):
                take(piece)
            answer.whole = True
        elif "content-length" in h:
            left = int(h["content-length"])
            while left:
                piece = await reader.read(min(left, 1 << 18))
                if not piece:
                    answer.why = "closed"
                    break
                left -= len(piece)
                take(piece)
            answer.whole = not left
        else:
            while piece := await reader.read(1 << 18):
                take(piece)
            answer.whole = True
    finally:
        answer.body = b"".join(pieces)


async def read_chunk(reader):
    line = await reader.readuntil(b"\r\n")
    n = int(line.split(b";")[0], 16)
    piece = await reader.readexactly(n + 2)
    return piece[:n]


class Stream:
    """An answer that is taken piece by piece."""

    def __init__(self, answer):
        self.answer, self.reader, self.writer = answer, None, None
        self.buffer, self.whole, self.ended = b"", False, False

    @property
    def status(self):
        return self.answer.status

    async def more(self):
        """False at the end; whole tells whether it was one."""
        if self.ended:
            return False
        try:
            piece = await read_chunk(self.reader)
        except (asyncio.IncompleteReadError, OSError) as e:
            self.ended, self.answer.why = True, type(e).__name__
            return False
        if not piece:
            self.ended = self.whole = self.answer.whole = True
            return False
        self.buffer += piece
        return True

    async def event(self, seconds=60):
        """The next line of JSON, None at the end, pings left out."""
        try:
            async with asyncio.timeout(seconds):
                while True:
                    line, found, rest = self.buffer.partition(b"\n")
                    if found:
                        self.buffer = rest
                        e = json.loads(line)
                        if e.get("type") != "ping":
                            return e
                    elif not await self.more():
                        return None
        except TimeoutError:
            self.answer.late = True
            return None

    async def message(self, seconds=60):
        """The next envelope of the Connect protocol: (flags, JSON)."""
        try:
            async with asyncio.timeout(seconds):
                while True:
                    if len(self.buffer) >= 5:
                        flags, n = struct.unpack("!BI", self.buffer[:5])
                        if len(self.buffer) >= 5 + n:
                            text = self.buffer[5:5 + n]
                            self.buffer = self.buffer[5 + n:]
                            return flags, json.loads(text)
                    if not await self.more():
                        return None
        except TimeoutError:
            self.answer.late = True
            return None

    def close(self):
        if self.writer:
            self.writer.transport.abort()


def envelope(data):
    text = json.dumps(data).encode()
    return struct.pack("!BI", 0, len(text)) + text


class Socket:
    """The client's side of a WebSocket, over a Stream that was upgraded."""

    HEADERS = {"Connection": "Upgrade", "Upgrade": "websocket",
               "Sec-WebSocket-Version": "13",
               "Sec-WebSocket-Key": base64.b64encode(bytes(16)).decode()}

    def __init__(self, stream):
        self.stream, self.text, self.closed = stream, b"", None

    def send(self, kind, data):
        mask = os.urandom(4)
        n = len(data)
        head = bytes([0x80 | kind])
        if n < 126:
            head += bytes([0x80 | n])
        else:
            head += bytes([0x80 | 126]) + struct.pack("!H", n)
        body = bytes(b ^ mask[i % 4] for i, b in enumerate(data))
        self.stream.writer.write(head + mask + body)

    def type(self, text):
        self.send(2, text.encode())

    async def frame(self):
        reader = self.stream.reader
        first, n = await reader.readexactly(2)
        if n == 126:
            n, = struct.unpack("!H", await reader.readexactly(2))
        elif n == 127:
            n, = struct.unpack("!Q", await reader.readexactly(8))
        return first & 15, await reader.readexactly(n)

    async def until(self, wanted, seconds=60):
        """Takes frames until the text has that (None: until the close)."""
        deadline = time.monotonic() + seconds
        try:
            while wanted is None or wanted not in self.text:
                if self.closed is not None:
                    return False
                async with asyncio.timeout(deadline - time.monotonic()):
                    kind, data = await self.frame()
                if kind == 8:
                    self.closed = data
                    self.send(8, data[:2])
                    return wanted is None
                if kind == 9:
                    self.send(10, data)
                elif kind in (0, 1, 2):
                    self.text += data
        except TimeoutError:
            self.stream.answer.late = True
            return False
        except (asyncio.IncompleteReadError, OSError) as e:
            self.stream.answer.why = type(e).__name__
            return False
        return True
