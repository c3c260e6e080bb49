"""Operations: sessions come, change, stop and end; marks stay."""

import asyncio
import time

from node import Nobody
from table import op

KINDS = ["plain", "pool", "disk", "net", "ports", "e2b"]


@op(6)
async def create_destroy(n):
    s = await n.create(n.rng.choice(["plain", "pool", "pool", "disk"]))
    try:
        word = n.name("w")
        out = await n.output(s, ["echo", word])
        n.check(out == word + "\n", "%s: echo said %r" % (s, out), s)
        await n.call(s, "GET", "")
    finally:
        answer = await n.end(s)
    n.check(answer.status == 204 or s.lost or s.asked > 1, answer, s)
    await gone(n, s, "destroyed")


async def gone(n, s, how):
    answer = await n.refused(s, 404, "E2009", "GET", "")
    n.check(answer.field("ended") == how or s.lost, answer, s)


@op(1)
async def create_grace(n):
    s = await n.create("pool")
    try:
        await n.call(s, "POST", "/exec", want=(202,), data={
            "cmd": "trap 'exit 0' TERM; while :; do sleep 0.1; done",
            "background": True})
    finally:
        answer = await n.wire.ask("DELETE", "/v1/sessions/%s?grace_s=5" % s.id)
        if answer.status not in (204, 404):
            await n.end(s)          # in some other way
        n.forget(s)
    n.check(answer.status == 204 and answer.whole or s.lost, answer, s)


@op(0.5)
async def create_expire(n):
    s = await n.create("pool", timeout_s=1.5)
    deadline = time.monotonic() + 60
    try:
        while True:
            answer = await n.call(s, "GET", "", want=(200, 404))
            if answer.status == 404:
                break
            n.check(time.monotonic() < deadline, "%s: never ended" % s, s)
            await asyncio.sleep(0.5)
    finally:
        n.forget(s)
    n.check(answer.field("ended") == "expired" or s.lost, answer, s)


@op(1)
async def turnover(n):
    """One of those that stay goes, and another comes."""
    kinds = [k for k in KINDS if k != "net" or n.plan["net"]]
    counts = {k: len(n.living(k)) for k in kinds}
    kind = min(kinds, key=lambda k: (counts[k], n.rng.random()))
    await n.resident(kind)
    while True:
        old = [s for s in n.living() if not s.elder and not s.leaving]
        if len(old) <= n.plan["residents"]:
            return
        s = min(old, key=lambda s: s.made)
        s.leaving = True            # others take another
        async with s.held(False):
            if s.ending or s.lost:
                continue
            await marked(n, s)
        await n.end(s)
        await gone(n, s, "destroyed")


@op(8)
async def mark(n):
    s = n.rng.choice(n.living() or [None])
    if s is None:
        raise Nobody()
    async with s.held(False):
        if not s.ending and not s.lost:
            await marked(n, s)


async def marked(n, s):
    """All that was left in a session is there."""
    answer = await n.call(s, "GET", "/files/mark", keep=True)
    n.check(answer.body == s.mark.encode(), answer, s)
    answer = await n.call(s, "GET", "/processes", keep=True)
    n.check(any(p.get("tag") == s.tag and p.get("state") == "running"
                for p in answer.field("processes") or []), answer, s)


@op(2)
async def dead(n):
    """What has ended stays ended."""
    if not n.ended:
        raise Nobody()
    s = n.rng.choice(n.ended)
    await n.refused(s, 404, "E2009", "POST", "/exec", data={"cmd": "true"})


@op(1)
async def pause(n):
    async with n.some(alone=True) as s:
        try:
            # it may be done although its answer is cut off
            await n.call(s, "POST", "/pause")
            await n.refused(s, 409, "E2010", "POST", "/exec",
                            data={"cmd": "true"})
            answer = await n.call(s, "GET", "")
            n.check(answer.field("status") == "paused", answer, s)
        finally:
            await resumed(n, s)
        await marked(n, s)


async def resumed(n, s):
    while not s.lost:
        answer = await n.wire.ask("POST", "/v1/sessions/%s/resume" % s.id)
        if answer.status not in (503, 0):
            n.right(answer, s, (200,))
            return
        await asyncio.sleep(0.3)


@op(1)
async def patch(n):
    async with n.some() as s:
        word = n.name("m")
        answer = await n.call(s, "PATCH", "", data={
            "metadata": {"word": word}, "timeout_s": n.plan["life"]})
        n.check(answer.field("metadata", "word") is not None, answer, s)


@op(2)
async def listing(n):
    answer = await n.call(None, "GET", "/sessions?limit=100", keep=True)
    n.check(isinstance(answer.field("sessions"), list), answer)


@op(2)
async def read_state(n):
    path = n.rng.choice(["/v1/health", "/v1/templates", "/v1/capabilities",
                         "/admin/settings", "/admin/sessions?limit=100",
                         "/admin/quotas/acme", "/metrics", "/status/data",
                         "/health"])
    answer = await n.wire.ask("GET", path, keep=True)
    n.right(answer, None, (200, 204))


@op(2)
async def run_call(n):
    word = n.name("run")
    answer = await n.call(None, "POST", "/run", data={
        "tenant_id": "acme", "user_id": "alice",
        "files": {"d/f": word}, "steps": [
            {"cmd": "cat d/f"}, {"cmd": ["false"]}, {"cmd": "echo never"}]})
    steps = answer.field("steps") or []
    n.check(len(steps) == 2 and steps[0].get("stdout") == word
            and steps[1].get("exit_code") == 1, answer)
