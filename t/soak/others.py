"""Operations: ports, the network, packages, and the protocol of E2B."""

import asyncio
import base64
import json

from node import Deviation
from table import op
from wire import envelope

SERVER = """
import http.server, socketserver
class H(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'
    def do_GET(self):
        body = ('said ' + self.path).encode()
        self.send_response(200)
        self.send_header('Content-Length', str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *a): pass
class S(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True
S(('127.0.0.1', 8000), H).serve_forever()
"""


@op(3)
async def port(n):
    async with n.some("ports") as s:
        async with s.code:
            if not s.port:
                await serve(n, s)
        word = n.name("p")
        answer = await n.call(s, "GET", "/ports/8000/" + word)
        n.check(answer.body.decode() == "said /" + word, answer, s)


async def serve(n, s):
    await n.call(s, "POST", "/exec", want=(202,), data={
        "cmd": ["python3", "-c", SERVER], "background": True,
        "timeout_s": None, "tag": "server"})
    for _ in range(200):
        answer = await n.call(s, "GET", "/ports/8000/up", want=(200, 502))
        if answer.status == 200:
            s.port = True
            return
        await asyncio.sleep(0.1)
    n.check(False, answer, s)


# ---- the network

FETCH = ("exec 3<>/dev/tcp/%s/80 && printf 'GET /bytes/%d HTTP/1.1\\r\\n"
         "Host: a.example.org\\r\\nConnection: close\\r\\n\\r\\n' >&3 "
         "&& cat <&3 | wc -c")


@op(2, net=True)
async def fetch(n):
    async with n.some("net") as s:
        size = n.rng.choice([10, 1000, 300000])
        where = n.rng.choice(["203.0.113.10", "a.example.org"])
        out = await n.output(s, ["bash", "-c", FETCH % (where, size)])
        n.check(int(out or 0) > size, "%s: %s bytes of %d" % (s, out, size), s)


@op(0.7, net=True)
async def echo(n):
    """A connection that lives for seconds."""
    async with n.some("net") as s:
        out = await n.output(s, ["bash", "-c", """
            exec 3<>/dev/tcp/203.0.113.10/7000 || exit 1
            for i in 1 2 3 4 5 6; do
                echo $i >&3; read -r x <&3 || exit 2; echo $x; sleep 0.3
            done"""])
        n.check(out == "1\n2\n3\n4\n5\n6\n", "%s: %r came back" % (s, out), s)


@op(0.7)
async def not_granted(n):
    async with n.some("plain", "net") as s:
        where = "203.0.113.15" if s.kind == "net" else "203.0.113.10"
        answer = await n.exec(s, ["bash", "-c", "exec 3<>/dev/tcp/%s/80 "
                                  "&& echo x >&3 && read -r a <&3 "
                                  "&& echo reached" % where])
        n.check(answer.field("reason") == "exited"
                and "reached" not in (answer.field("stdout") or ""), answer, s)


@op(0.3, net=True, big=True)
async def install(n):
    async with n.some("net", elders=False) as s:
        answer = await n.call(s, "POST", "/install", data={
            "packages": ["sbx-soak"], "timeout_s": 110})
        n.check(any(p["name"] == "sbx-soak" for p in answer.field("installed")
                    or []), answer, s)
        out = await n.output(s, ["python3", "-c",
                                 "import sbx_soak; print(sbx_soak.x)"])
        n.check(out == "42\n", "%s: %r was installed" % (s, out), s)


# ---- E2B

@op(1)
async def e2b_life(n):
    # not for long: whoever is told nothing of it knows no id to end
    s = await n.create("e2b", timeout=300)
    try:
        await n.e2b(s, "GET", "/sandboxes/" + s.id)
        await n.e2b(s, "POST", "/sandboxes/%s/timeout" % s.id, want=(204,),
                    data={"timeout": 600})
        answer = await n.e2b(None, "GET", "/v2/sandboxes?limit=100")
        n.check(any(x["sandboxID"] == s.id for x in answer.json or [])
                or len(answer.json) == 100, answer, s)
        await n.e2b(s, "POST", "/sandboxes/%s/pause" % s.id, want=(204,))
        await n.e2b(s, "POST", "/v2/sandboxes/%s/connect" % s.id,
                    want=(200, 201), data={"timeout": 600})
        await n.e2b(s, "GET", "/sandboxes/%s/metrics" % s.id)
        await n.e2b(s, "GET", "/sandboxes/%s/logs" % s.id)
    finally:
        await n.end(s)


@op(2)
async def e2b_process(n):
    async with n.some("e2b") as s:
        word = n.name("p")
        f = await n.wire.stream(
            "POST", "/process.Process/Start", headers=n.envd(s, **{
                "Content-Type": "application/connect+json",
                "Connect-Timeout-Ms": "60000"}),
            body=envelope({"process": {"cmd": "/bin/bash", "args":
                           ["-l", "-c", "echo %s; sleep 0.2" % word]},
                           "stdin": False}))
        try:
            n.check(f.status == 200, f.answer, s)
            said, code, end = b"", None, None
            while (m := await f.message()) and end is None:
                flags, data = m
                if flags == 2:
                    end = data
                    break
                e = data.get("event", {})
                for piece in e.get("data", {}).values():
                    said += base64.b64decode(piece)
                if "end" in e:
                    code = e["end"].get("exitCode", 0)
            f.answer.whole = end is not None
            f.answer.body = json.dumps([end, code]).encode() + said
            n.check(f.answer.whole, f.answer, s)
            if end.get("error"):
                d = Deviation(f.answer, s)
                d.status = {"unavailable": 503, "internal": 500}.get(
                    end["error"].get("code"), 400)
                raise d
            n.check(code == 0 and said == word.encode() + b"\n", f.answer, s)
        finally:
            f.close()


@op(1)
async def e2b_rpc(n):
    async with n.some("e2b") as s:
        name = n.name("rpc")

        async def rpc(method, data):
            return await n.e2b(s, "POST", "/filesystem.Filesystem/" + method,
                               port=49983, data=data)
        await rpc("MakeDir", {"path": name})
        answer = await rpc("Stat", {"path": name})
        n.check(answer.field("entry", "name") == name, answer, s)
        await rpc("ListDir", {"path": "/home/user", "depth": 1})
        await n.e2b(s, "POST", "/process.Process/List", port=49983, data={})
        answer = await rpc("CreateWatcher", {"path": name})
        wid = answer.field("watcherId")
        try:
            await n.call(s, "PUT", "/files/%s/f" % name, body=b"x",
                         want=(201,))
            answer = await rpc("GetWatcherEvents", {"watcherId": wid})
        finally:
            await rpc("RemoveWatcher", {"watcherId": wid})
            await rpc("Remove", {"path": name})


@op(1)
async def e2b_code(n):
    async with n.some("e2b") as s:
        answer = await n.e2b(s, "POST", "/execute", port=49999,
                             data={"code": "6 * 7", "language": "python"})
        n.check(b'"42"' in answer.body or s.kernels
                and b"ContextRestarting" in answer.body, answer, s)
