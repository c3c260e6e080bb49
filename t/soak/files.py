"""Operations: files, small and large, trees, archives, watches."""

import asyncio
import hashlib
import io
import tarfile
import time

from table import op

BIG = 50 << 20
PATTERN = bytes(range(256)) * 4096          # 1 MB


@op(8)
async def file_small(n):
    async with n.some() as s:
        name, body = n.name(), n.rng.randbytes(n.rng.randint(0, 20000))
        path = "/files/small/" + name
        await n.call(s, "PUT", path, body=body, want=(201,))
        try:
            answer = await n.call(s, "GET", path)
            n.check(answer.body == body, "%s: %s is another" % (s, name), s,
                    answer.began)
            await n.call(s, "HEAD", path)
        finally:
            await n.call(s, "DELETE", path, want=(204,))


@op(0.3, big=True)
async def file_big(n):
    size = n.plan["big"]
    body = (PATTERN * (size // len(PATTERN) + 1))[:size]
    async with n.some("plain", "ports", "e2b") as s:
        await n.call(s, "PUT", "/files/big", body=body, want=(200, 201))
        try:
            digest = hashlib.md5()
            answer = await n.call(s, "GET", "/files/big", sink=digest.update)
            n.check(digest.digest() == hashlib.md5(body).digest(),
                    "%s: a large file is another" % s, s, answer.began)
        finally:
            await n.call(s, "DELETE", "/files/big", want=(204,))


@op(0.5)
async def file_left(n):
    """An upload whose client leaves: nothing of it stays."""
    async with n.some() as s:
        name = n.name("half")
        try:
            reader, writer = await n.wire.connect()
        except OSError:
            return
        try:
            writer.write(("PUT /v1/sessions/%s/files/%s HTTP/1.1\r\n"
                          "Host: localhost\r\nContent-Length: 1000000\r\n\r\n"
                          % (s.id, name)).encode() + bytes(300000))
            await writer.drain()
        except OSError:
            pass
        finally:
            writer.transport.abort()
        await n.refused(s, 404, "E4001", "GET", "/files/" + name)


@op(0.5)
async def file_too_large(n):
    async with n.some() as s:
        await n.refused(s, 413, "E4005", "PUT", "/files/f", headers={
            "Content-Length": str(1 << 40)}, body=b"x")


@op(1)
async def multipart(n):
    async with n.some("e2b", "plain") as s:
        names = [n.name("part"), n.name("part")]
        bound = "b0undary"
        body = "".join(
            "--%s\r\nContent-Disposition: form-data; name=\"file\"; "
            "filename=\"%s\"\r\n\r\n%s\r\n" % (bound, f, f * 50)
            for f in names) + "--%s--\r\n" % bound
        await n.e2b(s, "POST", "/files?username=user", port=49983,
                    body=body.encode(), headers={
                        "Content-Type":
                        "multipart/form-data; boundary=" + bound})
        for f in names:
            answer = await n.e2b(s, "GET", "/files?username=user&path=" + f,
                                 port=49983)
            n.check(answer.body.decode() == f * 50, answer, s)
            await n.call(s, "DELETE", "/files/" + f, want=(204,))


@op(1)
async def archive(n):
    async with n.some() as s:
        top, word = n.name("tree"), n.name("w")
        raw = io.BytesIO()
        with tarfile.open(fileobj=raw, mode="w:gz") as tar:
            for i in range(20):
                info = tarfile.TarInfo("d%d/f" % i)
                info.size = len(word)
                tar.addfile(info, io.BytesIO(word.encode()))
        await n.call(s, "PUT", "/archive/" + top, body=raw.getvalue(),
                     want=(200, 201, 204))
        try:
            answer = await n.call(s, "GET", "/archive/%s?format=tar.gz" % top)
            with tarfile.open(fileobj=io.BytesIO(answer.body)) as tar:
                found = [m.name for m in tar if m.isfile()]
            n.check(len(found) == 20, "%s: an archive has %s" % (s, found), s,
                    answer.began)
        finally:
            await n.call(s, "DELETE", "/files/%s?recursive=1" % top,
                         want=(204,))


@op(3)
async def tree(n):
    async with n.some() as s:
        top, word = n.name("dir"), n.name("w")
        await n.call(s, "POST", "/mkdir", data={"path": top + "/a"},
                     want=(200, 201))
        try:
            await n.call(s, "PUT", "/files/%s/a/x.txt" % top,
                         body=word.encode(), want=(201,))
            await n.call(s, "POST", "/move", data={
                "from": top + "/a/x.txt", "to": top + "/b/y.txt"})
            answer = await n.call(s, "GET", "/files?glob=%s/**/*.txt" % top)
            n.check(len(answer.field("entries") or []) == 1, answer, s)
            answer = await n.call(s, "GET", "/list/%s?depth=2" % top)
            n.check(len(answer.field("entries") or []) == 3, answer, s)
            answer = await n.call(s, "GET", "/stat/%s/b/y.txt" % top)
            n.check(answer.field("size") == len(word), answer, s)
            answer = await n.call(s, "POST", "/search", data={
                "pattern": word, "path": top})
            n.check(len(answer.field("matches") or []) == 1, answer, s)
        finally:
            await n.call(s, "DELETE", "/files/%s?recursive=1" % top,
                         want=(204,))


@op(1)
async def watch(n):
    async with n.some() as s:
        top = n.name("watched")
        await n.call(s, "POST", "/mkdir", data={"path": top}, want=(201,))
        f = await n.stream(s, "GET", "/watch/" + top)
        try:
            e = await f.event()
            if e and e["type"] == "resume":
                return
            n.check(e and e["type"] == "ready", f.answer, s)
            await n.call(s, "PUT", "/files/%s/f" % top, body=b"x",
                         want=(201,))
            e = await f.event()
            n.check(e and (e["type"] == "create" and e["path"].endswith("/f")
                           or e["type"] == "resume"), f.answer, s)
        finally:
            f.close()
            await n.call(s, "DELETE", "/files/%s?recursive=1" % top,
                         want=(204,))


@op(0.5)
async def download_slow(n):
    """Read over some seconds, or left half read."""
    size = 3 << 20
    async with n.some("plain", "pool") as s:
        name = n.name("slow")
        await n.call(s, "PUT", "/files/" + name, body=PATTERN * 3,
                     want=(201,))
        f = await n.wire.stream("GET", "/v1/sessions/%s/files/%s" % (
            s.id, name), rcvbuf=16384)
        try:
            n.check(f.status == 200, f.answer, s)
            left = n.rng.random() < 0.5
            got = 0
            until = time.monotonic() + 2
            while got < size:
                piece = await f.reader.read(65536)
                if not piece:
                    break
                got += len(piece)
                if time.monotonic() < until:
                    await asyncio.sleep(0.02)
                    if left and got > size // 2:
                        break
            f.answer.whole = left or got == size
            n.check(f.answer.whole, f.answer, s)
        except OSError as e:
            f.answer.why = type(e).__name__
            n.check(False, f.answer, s)
        finally:
            f.close()
            await n.call(s, "DELETE", "/files/" + name, want=(204,))
