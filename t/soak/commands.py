"""Operations: commands that end in every way, streams that are read to their
end, slowly, or left; processes with input, terminals, and code."""

import asyncio
import time

from table import op
from wire import Socket

NDJSON = {"Accept": "application/x-ndjson"}


@op(20)
async def exec_short(n):
    async with n.some() as s:
        word = n.name("e")
        out = await n.output(s, "echo %s; exit 0" % word)
        n.check(out == word + "\n", "%s: echo said %r" % (s, out), s)


@op(2)
async def exec_long(n):
    async with n.some() as s:
        out = await n.output(s, "sleep %.1f; echo over" % (
            n.plan["slow"] / 20000 * (0.3 + n.rng.random())))
        n.check(out == "over\n", "%s: said %r" % (s, out), s)


@op(1)
async def exec_timeout(n):
    async with n.some() as s:
        answer = await n.exec(s, "sleep 300 & sleep 300", timeout_s=0.5)
        n.check(answer.field("reason") == "timeout"
                and answer.field("timed_out") is True, answer, s)


@op(1)
async def exec_signal(n):
    async with n.some() as s:
        answer = await n.exec(s, "kill -9 $$")
        n.check(answer.field("reason") == "signal", answer, s)


@op(0.7)
async def exec_memory(n):
    async with n.some() as s:
        answer = await n.exec(s, ["tail", "/dev/zero"],
                              limits={"memory": "24MB"})
        n.check(answer.field("reason") == "memory"
                and answer.field("oom_killed") is True, answer, s)


@op(0.5)
async def exec_disk(n):
    async with n.some("disk", alone=True, elders=False) as s:
        try:
            answer = await n.exec(s, "head -c 20m /dev/zero > full1; "
                                  "head -c 20m /dev/zero > full2")
            n.check("No space left" in (answer.field("stderr") or ""), answer,
                    s)
            await n.refused(s, 507, "E4006", "PUT", "/files/more",
                            body=bytes(1 << 20))
        finally:
            for name in ("full1", "full2"):
                await n.call(s, "DELETE", "/files/" + name, want=(204, 404))


@op(0.7)
async def exec_pids(n):
    async with n.some() as s:
        answer = await n.exec(
            s, "for i in 1 2 3 4 5 6 7 8 9 10 11 12; do sleep 5 & done; wait",
            limits={"processes": 8})
        n.check(answer.field("reason") == "exited"
                and answer.field("exit_code") != 0
                and "ork" in (answer.field("stderr") or ""), answer, s)


@op(0.3)
async def cancel(n):
    async with n.some(alone=True, elders=False) as s:
        f = await n.stream(s, "POST", "/exec", headers=NDJSON,
                           data={"cmd": "echo up; sleep 1000"})
        try:
            while e := await f.event():
                if e["type"] == "stdout":
                    break
            n.check(e, f.answer, s)
            await n.call(s, "POST", "/cancel")
            e = await f.event()
            n.check(e, f.answer, s)
            n.check(e["type"] == "exit" and e["reason"] == "cancelled",
                    "%s: %s after a cancel" % (s, e), s, f.answer.began)
        finally:
            f.close()
            s.port = False          # what is to run all along was killed too
            await n.leave_process(s)


async def read_events(n, s, f, want, pause=0):
    """All of a stream's output: offsets have to follow each other."""
    at, last = 0, None
    while e := await f.event():
        last = e
        if e["type"] == "stdout":
            n.check(e["offset"] == at, "%s: output at %d, not %d" % (
                s, e["offset"], at), s, f.answer.began)
            at += len(e["data"])
            n.check(e["data"] == want[at - len(e["data"]):at],
                    "%s: other output at %d" % (s, at), s, f.answer.began)
            if pause:
                await asyncio.sleep(pause)
    return at, last


def stream_ended(n, s, f, at, last, want):
    n.check(f.whole and last, f.answer, s)
    n.check(last["type"] == "exit" and last["exit_code"] == 0
            and at == len(want), "%s: a stream ended at %d with %s" % (
                s, at, last), s, f.answer.began)


@op(4)
async def stream_read(n):
    lines = n.rng.randint(1, 2000)
    want = "".join("%d\n" % i for i in range(1, lines + 1))
    async with n.some() as s:
        f = await n.stream(s, "POST", "/exec", headers=NDJSON,
                           data={"cmd": ["seq", str(lines)]})
        try:
            stream_ended(n, s, f, *await read_events(n, s, f, want), want)
        finally:
            f.close()


@op(0.5)
async def stream_slow(n):
    lines = n.plan["slow"]
    want = "".join("%d\n" % i for i in range(1, lines + 1))
    async with n.some() as s:
        f = await n.stream(s, "POST", "/exec", headers=NDJSON, rcvbuf=4096,
                           data={"cmd": ["seq", str(lines)]})
        try:
            stream_ended(n, s, f, *await read_events(n, s, f, want, 0.05),
                         want)
        finally:
            f.close()


@op(1)
async def stream_left(n):
    tag = n.name("left")
    async with n.some() as s:
        f = await n.stream(s, "POST", "/exec", headers=NDJSON, data={
            "cmd": ["sh", "-c", "while :; do echo y; sleep 0.02; done",
                    tag]})
        try:
            e = await f.event()
            n.check(e and e["type"] == "start", f.answer, s)
            pid = e["pid"]
            await f.event()
        finally:
            f.close()
        await ended(n, s, pid)


async def ended(n, s, pid):
    """Who left ends his command."""
    began = time.monotonic()
    while True:
        answer = await n.call(s, "GET", "/processes/%d" % pid,
                              want=(200, 404))
        if answer.status == 404 or answer.field("state") != "running":
            return
        n.check(time.monotonic() - began < 30,
                "%s: a command outlived its client: %s" % (s, answer), s,
                began)
        await asyncio.sleep(0.2)


@op(2)
async def stdin(n):
    async with n.some() as s:
        answer = await n.call(s, "POST", "/exec", want=(202,), data={
            "cmd": ["cat"], "background": True, "stdin_open": True,
            "timeout_s": 60})
        pid, want = answer.field("pid"), ""
        for i in range(3):
            piece = "%d " % i * n.rng.randint(1, 3000)
            want += piece
            await n.call(s, "POST", "/processes/%d/stdin%s" % (
                pid, "?eof=1" if i == 2 else ""), want=(204,),
                body=piece.encode())
        f = await n.stream(s, "GET", "/processes/%d/output" % pid)
        try:
            at, last = await read_events(n, s, f, want)
            while f.whole and last and last["type"] == "resume":
                f.close()
                f = await n.stream(
                    s, "GET", "/processes/%d/output?stdout_from=%d" % (
                        pid, last["stdout_from"]))
                more, last = await read_events(n, s, Shifted(f, at), want)
                at = more
            stream_ended(n, s, f, at, last, want)
        finally:
            f.close()


class Shifted:
    """A stream that goes on where another ended."""

    def __init__(self, f, at):
        self.f, self.at, self.answer = f, at, f.answer

    async def event(self):
        return await self.f.event()


@op(1)
async def signal(n):
    async with n.some() as s:
        answer = await n.call(s, "POST", "/exec", want=(202,), data={
            "cmd": ["sleep", "1000"], "background": True, "timeout_s": 60})
        pid = answer.field("pid")
        await n.call(s, "POST", "/processes/%d/signal" % pid, want=(204,),
                     data={"signal": "SIGTERM"})
        await ended(n, s, pid)


@op(1)
async def terminal(n):
    async with n.some() as s:
        f = await n.wire.stream("GET", "/v1/sessions/%s/terminal" % s.id,
                                headers=Socket.HEADERS)
        try:
            n.check(f.status == 101, f.answer, s)
            w = Socket(f)
            w.type("echo $((6 * 7))seven\n")
            if good := await w.until(b"42seven"):
                w.send(1, b'{"type": "resize", "rows": 40, "cols": 120}')
                w.type("stty size; exit 0\n")
                good = await w.until(None) and w.closed[:2] == b"\3\xe8"
            f.answer.whole = good
            f.answer.body = w.text[-200:] + (w.closed or b"")
            n.check(good, f.answer, s)
        finally:
            f.close()


# ---- code

@op(6)
async def code_python(n):
    """Counts on where the last one stopped."""
    async with n.some("plain", "pool", "ports", "e2b") as s, s.code:
        kernels, was = s.kernels, s.counter
        s.counter = None            # not known, where no answer comes
        answer = await n.call(s, "POST", "/code", data={"code":
            "c = globals().get('c', 0) + 1\nprint(c)\nc"})
        text = answer.field("text")
        if answer.field("restarted") or answer.field("error"):
            n.check(s.kernels > kernels, answer, s)
            return
        now = int(text or -1)
        fresh = was is None or s.kernels > 0 and now == 1
        n.check(answer.field("stdout") == "%d\n" % now and (
            now == (was or 0) + 1 or fresh), "%s: counted to %s after %s: %s"
            % (s, now, was, answer), s)
        s.counter = now


@op(2)
async def code_bash(n):
    async with n.some("plain", "pool", "net") as s:
        answer = await n.call(s, "POST", "/code", data={
            "language": "bash", "code": "echo $((6 * 7))"})
        n.check(answer.field("stdout") == "42\n" or
                answer.field("restarted") and s.kernels, answer, s)


@op(0.7)
async def code_javascript(n):
    async with n.some("plain") as s:
        answer = await n.call(s, "POST", "/code", data={
            "language": "javascript", "code": "[6, 7].reduce((a, b) => a*b)"})
        n.check(answer.field("text") == "42" or
                answer.field("restarted") and s.kernels, answer, s)


@op(0.7)
async def code_contexts(n):
    async with n.some("plain", "pool", "ports") as s:
        answer = await n.call(s, "POST", "/contexts", want=(201,),
                              data={"language": "bash"})
        cid = answer.field("context_id")
        try:
            await n.call(s, "POST", "/code", data={"context_id": cid,
                                                   "code": "x=5"})
            await n.call(s, "POST", "/contexts/%s/restart" % cid)
            answer = await n.call(s, "POST", "/code", data={
                "context_id": cid, "code": "echo x$x"})
            n.check(answer.field("stdout") == "x\n" or
                    answer.field("restarted") and s.kernels, answer, s)
        finally:
            await n.call(s, "DELETE", "/contexts/" + cid, want=(204,))


@op(1)
async def code_stream(n):
    async with n.some("plain", "pool", "ports", "e2b") as s:
        f = await n.stream(s, "POST", "/code", headers=NDJSON, data={
            "language": "bash",
            "code": "for i in 1 2 3; do echo $i; sleep 0.1; done"})
        try:
            text, last = "", None
            while e := await f.event():
                last = e
                if e["type"] == "stdout":
                    text += e["data"]
            n.check(f.whole and last, f.answer, s)
            n.check(last["type"] == "end" and (text == "1\n2\n3\n" or
                    last.get("restarted") and s.kernels),
                    "%s: code said %r, %s" % (s, text, last), s,
                    f.answer.began)
        finally:
            f.close()


@op(0.5)
async def code_timeout(n):
    async with n.some("plain", "pool", "ports") as s:
        answer = await n.call(s, "POST", "/code", data={
            "language": "bash", "code": "sleep 300", "timeout_s": 0.5})
        n.check(answer.field("timed_out") is True or
                answer.field("restarted") and s.kernels, answer, s)
