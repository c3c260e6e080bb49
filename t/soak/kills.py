"""What is killed all along, in an order that the seed decides, and how long
it takes until everything is served again."""

import asyncio
import os
import signal
import time

from node import Deviation, Kill, Nobody
from procs import alive, cmdline

# How often of each, against the others.
WEIGHTS = {"command": 6, "kernel": 4, "init": 4, "worker": 2, "reload": 1,
           "egress": 1, "broker": 1, "keeper": 0.6, "both": 0.15}

PATIENCE = 90       # seconds until something that does not come back is told


class NotBack(Exception):
    pass


class Killer:
    def __init__(self, node, procs, say, rng):
        self.n, self.p, self.say, self.rng = node, procs, say, rng
        self.stop = asyncio.Event()
        self.wrong = []
        self.skipped = 0

    async def run(self, gap, once):
        """once: each kind one time, the worst at the end."""
        kinds = [k for k in WEIGHTS if k in (self.n.plan["kinds"] or WEIGHTS)
                 and (k != "egress" or self.n.plan["net"])]
        order = None
        if once:
            order = [k for k in kinds if k != "both"]
            self.rng.shuffle(order)
            if "both" in kinds:
                order.append("both")
        while not self.stop.is_set():
            if order is not None and not order:
                return
            wait = gap if once else self.rng.expovariate(1 / gap)
            try:
                await asyncio.wait_for(self.stop.wait(), wait)
                if not once:
                    return
            except TimeoutError:
                pass
            kind = order.pop(0) if once else self.rng.choices(
                kinds, [WEIGHTS[k] for k in kinds])[0]
            for _ in range(20 if once else 1):
                if await self.one(kind):
                    break
                await asyncio.sleep(0.1)

    async def one(self, kind):
        """Whether anybody was there to be killed."""
        before = len(self.n.kills)
        try:
            await getattr(self, kind)()
        except Nobody:
            self.skipped += 1
        except (NotBack, Deviation) as e:
            self.wrong.append("%s: %s" % (kind, e))
            self.say("FAILURE after a kill of %s: %s" % (kind, e))
        for k in self.n.kills[before:]:
            k.done()
            self.say("kill %-8s %s: served again after %.2f s" % (
                k.kind, k.text, k.seconds))
        return len(self.n.kills) > before

    def note(self, kind, session=None, text=""):
        k = Kill(kind, session, text)
        self.n.kills.append(k)
        return k

    def kill(self, kind, pid, session=None):
        if not pid or not alive(pid):
            raise Nobody()
        k = self.note(kind, session, "%d%s" % (
            pid, " of " + session.id if session else ""))
        if session and kind == "init":
            session.lost = k
        os.kill(pid, signal.SIGKILL)
        return k

    async def until(self, test, what):
        deadline = time.monotonic() + PATIENCE
        pause = 0.01
        while True:
            found = test()
            if asyncio.iscoroutine(found):
                found = await found
            if found:
                return
            if time.monotonic() > deadline:
                raise NotBack("%s, not in %d s" % (what, PATIENCE))
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, 0.2)

    # ---- whether all is served

    async def healthy(self):
        for _ in range(3):
            answer = await self.n.wire.ask("GET", "/v1/health", seconds=30)
            if answer.status != 200:
                return False
        return True

    async def knows(self):
        """The broker answers about a session that has been there."""
        for s in self.n.living():
            answer = await self.n.wire.ask("GET", "/v1/sessions/" + s.id)
            return answer.status == 200
        return True

    # ---- each of them

    async def worker(self):
        pid = self.rng.choice(self.p.workers() or [0])
        count = self.n.plan["workers"]
        self.kill("worker", pid)
        await self.until(lambda: not alive(pid) and
                         len(self.p.workers()) == count, "another worker")
        await self.until(self.healthy, "health after a worker")

    async def broker(self):
        pid = self.p.broker
        self.kill("broker", pid)
        await self.until(lambda: self.p.broker not in (0, pid),
                         "another broker")
        await self.until(self.knows, "sessions after a broker")
        await self.until(self.healthy, "health after a broker")

    async def keeper(self):
        pid = self.p.keeper
        self.kill("keeper", pid)
        await self.until(lambda: self.p.keeper not in (0, pid),
                         "another keeper")
        await self.until(self.knows, "sessions after a keeper")
        await self.until(self.healthy, "health after a keeper")

    async def egress(self):
        pid = self.p.egress()
        self.kill("egress", pid)
        await self.until(lambda: self.p.egress() not in (0, pid),
                         "another egress")
        await self.until(self.reaches, "the network after an egress")

    async def reaches(self):
        for s in self.n.living("net"):
            answer = await self.n.wire.ask(
                "POST", "/v1/sessions/%s/exec" % s.id, data={
                    "cmd": ["bash", "-c", "exec 3<>/dev/tcp/203.0.113.10/7000"
                            " && echo x >&3 && read -r -t 5 a <&3 && echo $a"]
                })
            return answer.field("stdout") == "x\n"
        return True

    def session(self, *kinds):
        # nobody works alone in it: a paused one has its kernel killed later
        fit = [s for s in self.n.living(*kinds) if not s.elder and not s.alone]
        if not fit:
            raise Nobody()
        return self.rng.choice(fit)

    async def init(self):
        s = self.session()
        k = self.kill("init", self.p.init(s.id), s)
        n = self.n

        async def over():
            answer = await n.wire.ask("GET", "/v1/sessions/" + s.id)
            return answer.status == 404 and answer
        await self.until(over, "the end of %s" % s)
        answer = await over()
        n.check(answer.field("ended") == "node_restart", answer)
        k.done()
        if s in n.sessions:
            n.sessions.remove(s)
        await n.resident(s.kind)

    def processes(self, sid):
        """(pid, command line) of a session's commands and interpreters."""
        for group, found in self.p.sessions().get(sid, {}).items():
            if group.startswith("work/run/"):
                for pid in found:
                    yield pid, cmdline(pid)

    async def kernel(self):
        s = self.session("plain", "pool", "ports", "e2b")
        await self.n.wire.ask("POST", "/v1/sessions/%s/code" % s.id,
                              data={"code": "1"})
        fit = [pid for pid, line in self.processes(s.id)
               if "/run/sandbox/kernels/python" in line]
        if not fit or s.ending or s.lost:
            raise Nobody()
        s.kernels += 1
        s.counter = None
        self.kill("kernel", self.rng.choice(fit), s)

        async def counts():
            answer = await self.n.wire.ask(
                "POST", "/v1/sessions/%s/code" % s.id, data={"code": "6*7"})
            return answer.field("text") == "42" or s.ending or s.lost
        await self.until(counts, "code after a kernel")

    async def command(self):
        """One that the load has there, or one of its own, whose answer has
        to tell by what it was ended."""
        s = self.session()
        fit = [pid for pid, line in self.processes(s.id)
               if "kernels" not in line and "sleep 100000" not in line
               and "http.server" not in line]
        if fit and self.rng.random() < 0.5:
            pid = self.rng.choice(fit)
            self.kill("command", pid, s)
            await self.until(lambda: not alive(pid), "the end of a command")
            return
        async with s.held(False):
            if not s.ending and not s.lost:
                await self.own_command(s)

    async def own_command(self, s):
        n = self.n
        mark = "1000.%06d" % self.rng.randrange(10 ** 6)
        asked = asyncio.ensure_future(n.wire.ask(
            "POST", "/v1/sessions/%s/exec" % s.id,
            data={"cmd": ["sleep", mark], "timeout_s": 60}))
        try:
            pid = 0
            deadline = time.monotonic() + 30
            while not pid and not asked.done():
                pid = next((p for p, line in self.processes(s.id)
                            if line == "sleep " + mark), 0)
                if time.monotonic() > deadline:
                    break
                await asyncio.sleep(0.05)
            k = self.kill("command", pid, s)
            answer = await asked
            if not s.lost:
                n.check(answer.field("reason") == "signal"
                        and answer.field("signal") in ("SIGKILL", 9), answer)
            k.done()
        finally:
            asked.cancel()

    async def reload(self):
        n = self.n
        master, old = self.p.master, set(self.p.workers())
        if not master:
            raise Nobody()
        self.note("reload", None, str(master))
        os.kill(master, signal.SIGHUP)
        await self.new_workers(old)

    async def new_workers(self, old):
        count = self.n.plan["workers"]

        def renewed():
            found = self.p.workers()
            return len(found) == count and not old & set(found)
        await self.until(renewed, "new workers")
        await self.until(self.healthy, "health after a reload")

    async def both(self):
        n = self.n
        keeper, broker = self.p.keeper, self.p.broker
        if not keeper or not broker:
            raise Nobody()
        k = self.note("both", None, "%d and %d" % (keeper, broker))
        os.kill(broker, signal.SIGKILL)
        os.kill(keeper, signal.SIGKILL)
        kinds = [(s.kind, s.elder) for s in n.living()]
        for s in n.sessions:
            s.lost = k
        await self.until(lambda: not self.p.sessions(),
                         "the end of all sessions")
        answer = await n.wire.ask("POST", "/v1/sessions", data={
            "tenant_id": "acme", "user_id": "alice"})
        n.check(answer.status == 503 and answer.code == "E5001"
                and "retry-after" in answer.headers, answer)
        old = set(self.p.workers())
        os.kill(self.p.master, signal.SIGHUP)
        await self.new_workers(old)
        await self.until(lambda: self.p.broker and self.p.keeper,
                         "broker and keeper")
        await self.until(self.healthy, "health after a reload")
        k.done()
        for s in [s for s in n.sessions if s.lost is k]:
            n.sessions.remove(s)
            n.ended.append(s)
        for kind, elder in kinds:
            await n.resident(kind, elder)
