"""What the load knows of the server: its sessions, each with a mark that has
to stay; what was killed, and which failures that excuses."""

import asyncio
import contextlib
import hashlib
import hmac
import json
import random
import time

from wire import Answer, Wire


class Deviation(Exception):
    """Something was not as the contract has it, but for what was killed."""

    def __init__(self, what, session=None, began=None):
        answer = what if isinstance(what, Answer) else None
        super().__init__(str(what))
        self.session, self.answer = session, answer
        self.began = answer.began if answer else began
        self.ended = time.monotonic()
        self.status = answer.status if answer else None
        self.code = answer.code if answer else ""
        self.ended_as = None        # the method, and how the session ended
        if answer and self.code == "E2009" and (
                answer.what.startswith("DELETE ")
                or answer.what == "POST /v1/run"):
            self.ended_as = (answer.what.split()[0], answer.field("ended"))
        self.late = bool(answer and answer.late)
        self.cut = bool(answer and not answer.late and not answer.whole)

    @property
    def label(self):
        if self.late:
            return "late"
        if self.status is None:
            return "state"
        if self.status >= 400:
            return self.code if self.code.startswith("E") else str(self.status)
        return "cut" if self.cut else str(self.status)


class Nobody(Exception):
    """No session of that kind is there just now."""


class Kill:
    """Something that was done to the server, and until when it was seen."""

    def __init__(self, kind, session=None, text=""):
        self.kind, self.session, self.text = kind, session, text
        self.at, self.clock = time.monotonic(), time.time()
        self.over = None            # when all was served again
        self.seconds = None

    def done(self):
        if self.over is None:
            self.over = time.monotonic()
            self.seconds = self.over - self.at

    def excuses(self, d, net):
        """Whether a caller may see that of this kill.  An answer that does
        not come at all is never right."""
        after = (self.over if self.over is not None else d.ended) + 1
        if d.late or d.ended < self.at:
            return False
        if self.kind in ("init", "both") and self.lost(d.session):
            return True
        if d.began > after:
            return False
        if self.kind == "worker":
            return d.cut and d.began <= self.at + 0.2
        if self.kind == "both" and d.cut:
            return True
        if self.kind in ("broker", "keeper", "both"):
            # the broker takes the keeper's place, so it is new then too; a
            # DELETE that it had begun is over when it is asked for once more,
            # and what POST /run had made ends
            return (d.status == 503 or d.ended_as in (
                ("DELETE", "destroyed"), ("POST", "node_restart")))
        if self.kind == "egress":
            return net
        if self.kind in ("command", "kernel"):
            return d.session is self.session
        return False

    def lost(self, session):
        return session is not None and session.lost is self


class Session:
    def __init__(self, sid, kind, elder=False):
        self.id, self.kind, self.elder = sid, kind, elder
        self.mark = "%016x" % random.getrandbits(64)
        self.tag = None             # of the process that runs all along
        self.made = time.monotonic()
        self.lost = None            # the kill that it died of
        self.ending = True          # or not there yet for every operation
        self.leaving = False        # somebody is about to end it
        self.asked = 0              # how often to end
        self.kernels = 0            # interpreters that were killed
        self.counter = None         # what its Python has counted to
        self.port = False           # whether its server has been started
        self.users, self.alone = 0, False
        self.turn = asyncio.Condition()
        self.code = asyncio.Lock()

    def __str__(self):
        return "%s session %s" % (self.kind, self.id)

    @contextlib.asynccontextmanager
    async def held(self, alone):
        """Many work in a session at once, or one that troubles the others."""
        async with self.turn:
            while self.alone or alone and self.users:
                await self.turn.wait()
            if alone:
                self.alone = True
            else:
                self.users += 1
        try:
            yield self
        finally:
            async with self.turn:
                if alone:
                    self.alone = False
                else:
                    self.users -= 1
                self.turn.notify_all()


class Node:
    """The server, and what is in it."""

    def __init__(self, plan):
        self.plan = plan
        self.rng = random.Random(plan["seed"])
        self.port, self.prefix = plan["port"], plan["prefix"]
        self.wire = Wire(self.port)
        self.sessions = []          # those that are to live
        self.ended = []             # those that must be gone, the newest
        self.kills = []
        self.names = 0
        self.key = None
        self.tenants = [("acme", "alice"), ("acme", "bob"), ("other", "carol")]

    def name(self, what="f"):
        self.names += 1
        return "%s%d" % (what, self.names)

    def living(self, *kinds):
        return [s for s in self.sessions if not s.ending and not s.lost
                and (not kinds or s.kind in kinds)]

    @contextlib.asynccontextmanager
    async def some(self, *kinds, alone=False, elders=True):
        """A session to work in; which kinds none of are there: Nobody."""
        fit = [s for s in self.living(*kinds) if elders or not s.elder]
        # the less there is under way in one, the better
        fit.sort(key=lambda s: (s.alone, s.users + self.rng.random() * 3))
        if not fit:
            raise Nobody()
        s = fit[0]
        async with s.held(alone):
            if s.ending or s.lost:
                raise Nobody()
            yield s

    # ---- calls

    async def call(self, s, method, path, *, want=(200,), **o):
        """A call of the native API, about a session or none."""
        target = "/v1" + ("/sessions/" + s.id if s else "") + path
        return self.right(await self.wire.ask(method, target, **o), s, want)

    def right(self, answer, s, want):
        if answer.status not in want or not answer.whole:
            raise Deviation(answer, s)
        return answer

    async def refused(self, s, status, code, method, path, **o):
        answer = await self.call(s, method, path, want=(status,), **o)
        self.check(answer.code == code, answer, s)
        return answer

    def check(self, so, what, s=None, began=None):
        if so:
            return
        if isinstance(what, Answer):
            d = Deviation(what, s)
        else:
            d = Deviation(what, s, began or time.monotonic())
        raise d

    async def stream(self, s, method, path, *, want=(200,), **o):
        f = await self.wire.stream(method, "/v1/sessions/" + s.id + path, **o)
        if f.status not in want:
            f.close()
            raise Deviation(f.answer, s)
        return f

    async def exec(self, s, cmd, **fields):
        o = {"cmd": cmd, **fields}
        answer = await self.call(s, "POST", "/exec", data=o)
        return answer

    async def output(self, s, cmd, **fields):
        """The output of a command that has to end well."""
        answer = await self.exec(s, cmd, **fields)
        self.check(answer.field("reason") == "exited"
                   and answer.field("exit_code") == 0, answer, s)
        return answer.field("stdout")

    def token(self, s):
        if self.key is None:
            with open(self.prefix + "/token.key", "rb") as f:
                self.key = f.read()
        return hmac.new(self.key, ("envd " + s.id).encode(),
                        hashlib.sha256).hexdigest()

    def envd(self, s, port=49983, **more):
        return {"E2b-Sandbox-Id": s.id, "E2b-Sandbox-Port": str(port),
                "X-Access-Token": self.token(s),
                "Connect-Protocol-Version": "1", **more}

    async def e2b(self, s, method, path, *, want=(200,), port=None,
                  headers=None, **o):
        h = {"X-API-Key": "e2b_" + "0" * 40}
        if s and port:
            h = self.envd(s, port)
        answer = await self.wire.ask(method, path, headers={
            **h, **(headers or {})}, **o)
        return self.right(answer, s, want)

    # ---- sessions

    MANIFESTS = {
        "plain": {"manifest": {"resources": {"cpus": 0.5}}},
        "pool": {},
        "disk": {"manifest": {"resources": {"disk": "24MB",
                                            "inodes": 4000}}},
        "net": {"template": "net"},
        "ports": {"manifest": {"capabilities": ["shell", "files", "ports",
                                                "code"]}},
    }

    async def create(self, kind, elder=False, **fields):
        """A session, however often it has to be asked for: the key makes it
        one all the same.  It is known from here on."""
        key = self.name("key") + "-%d" % self.plan["seed"]
        if kind == "e2b":
            answer = await self.e2b(None, "POST", "/v2/sandboxes", want=(201,),
                                    data={"templateID": "base",
                                          "timeout": fields.get(
                                              "timeout", self.plan["life"]),
                                          "metadata": {"key": key}})
            s = Session(answer.field("sandboxID"), kind, elder)
        else:
            tenant, user = self.rng.choice(self.tenants)
            data = {"tenant_id": tenant, "user_id": user,
                    "timeout_s": self.plan["life"],
                    **self.MANIFESTS[kind], **fields}
            while True:
                try:
                    answer = await self.call(
                        None, "POST", "/sessions", want=(200, 201), data=data,
                        headers={"Idempotency-Key": key})
                    break
                except Deviation as d:
                    if not self.excuse(d, False):
                        raise
                    await asyncio.sleep(0.3)
            s = Session(answer.field("session_id"), kind, elder)
        s.began = answer.began
        self.note_both(s)
        self.sessions.append(s)
        return s

    def note_both(self, s):
        """One that was made while broker and keeper died may be gone."""
        for k in self.kills:
            if k.kind == "both" and (k.over is None or s.began < k.over):
                s.lost = k

    async def resident(self, kind, elder=False):
        s = await self.create(kind, elder)
        try:
            await self.leave_mark(s)
        except Deviation:
            await self.end(s)
            raise
        s.ending = False
        return s

    async def leave_mark(self, s):
        await self.call(s, "PUT", "/files/mark", body=s.mark.encode(),
                        want=(200, 201))
        await self.leave_process(s)

    async def leave_process(self, s):
        s.tag = self.name("tag")
        await self.call(s, "POST", "/exec", want=(202,), data={
            "cmd": ["sleep", "100000"], "background": True,
            "timeout_s": None, "tag": s.tag})

    async def end(self, s, **o):
        """Ends it, however often that has to be asked for."""
        s.ending = True
        async with s.held(True):
            while True:
                s.asked += 1
                try:
                    answer = await self.call(s, "DELETE", "",
                                             want=(204, 404), **o)
                    break
                except Deviation as d:
                    if not self.excuse(d, False):
                        raise
                    await asyncio.sleep(0.3)
            if s in self.sessions:
                self.sessions.remove(s)
                self.ended.append(s)
                del self.ended[:-50]
            return answer

    def forget(self, s):
        """That it is a session of nobody's any more; until here what is
        killed marks it."""
        if s in self.sessions:
            self.sessions.remove(s)

    # ---- what was killed

    def excuse(self, d, net):
        for k in reversed(self.kills):
            if k.over is not None and d.began - k.over > 900 \
                    and not (d.session and d.session.lost is k):
                continue
            if k.excuses(d, net):
                return k
        return None


def dumps(data):
    return json.dumps(data, indent=1, sort_keys=True)
