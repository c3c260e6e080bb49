"""The load of "make soak": reads its plan (JSON) from the file that it is
given, works until its time is over, and writes a report.

First it finds out how many operations a second the machine is through with
when clients wait for nothing but answers; then they come by themselves, at
random moments, seven for each ten of those.  Meanwhile things are killed
(kills.py).  What an operation is answered has to be what the contract says,
but for what was killed at that moment (node.py)."""

import asyncio
import collections
import json
import random
import signal
import sys
import time

import commands
import files
import others
import sessions
from kills import Killer
from measure import EXACT, Measure
from node import Deviation, Node, Nobody, dumps
from procs import Procs, slurp
from report import report
from table import OPS

PARTS = (commands, files, others, sessions)
AT_ONCE = 64            # operations under way, beyond which none is begun


class Soak:
    def __init__(self, plan):
        self.plan = plan
        self.n = Node(plan)
        self.p = Procs(plan["prefix"])
        self.measure = Measure(self.n, self.p, plan["young"])
        self.killer = Killer(self.n, self.p, self.say,
                             random.Random(plan["seed"] + 1))
        self.stop = asyncio.Event()
        self.began = time.monotonic()
        self.done = collections.Counter()
        self.nobody = collections.Counter()
        self.excused = collections.Counter()
        self.times = collections.defaultdict(list)
        self.failures = []
        self.under_way, self.big = set(), 0
        self.dealt, self.all_dealt = set(), False
        self.behind = self.arrived = 0
        self.idle = {}
        self.result = {}

    def say(self, text):
        print("%7.1f  %s" % (time.monotonic() - self.began, text), flush=True)

    # ---- operations

    def choose(self):
        names = [o for o in OPS.values() if (self.plan["net"] or not o.net)
                 and not (o.big and self.big)
                 and (self.plan["packages"] or o.name != "install")]
        if self.plan["once"]:
            # a short run has each kind, and then each again
            fit = [o for o in names if o.name not in self.dealt]
            if not fit:
                self.all_dealt = True
                self.dealt.clear()
                fit = names
            o = self.n.rng.choice(fit)
            self.dealt.add(o.name)
            return o
        return self.n.rng.choices(names, [o.weight for o in names])[0]

    async def perform(self, o):
        began = time.monotonic()
        self.big += o.big
        try:
            await o.run(self.n)
            self.done[o.name] += 1
            self.times[o.name].append(time.monotonic() - began)
        except Nobody:
            self.nobody[o.name] += 1
        except Deviation as d:
            d.began = began if d.began is None else d.began
            k = self.n.excuse(d, o.net)
            if k:
                self.excused[o.name, d.label, k.kind] += 1
            else:
                self.failed("%s: %s" % (o.name, d))
        except Exception as e:
            self.failed("%s: %s: %s" % (o.name, type(e).__name__, e))
            if self.plan.get("debug"):
                raise
        finally:
            self.big -= o.big

    def failed(self, text):
        last = [k for k in self.n.kills if time.monotonic() - k.at < 20]
        near = ", ".join("%s%s %.2f s before" % (
            k.kind, " of " + k.session.id if k.session else "",
            time.monotonic() - k.at) for k in last)
        text = "%s [%s]" % (text, near or "no kill in 20 s")
        self.failures.append("%.1f %s" % (time.monotonic() - self.began,
                                          text))
        if len(self.failures) <= 100:
            self.say("FAILURE " + text)

    def begin(self, o):
        t = asyncio.ensure_future(self.perform(o))
        self.under_way.add(t)
        t.add_done_callback(self.under_way.discard)
        return t

    async def closed(self, clients, seconds):
        """So many clients, each with one operation after the other: how many
        operations a second they got through."""
        until = time.monotonic() + seconds

        async def client():
            while time.monotonic() < until and not self.stop.is_set():
                await self.begin(self.choose())
        before, at = sum(self.done.values()), time.monotonic()
        busy = Busy()
        every = [asyncio.ensure_future(client()) for _ in range(clients)]
        await self.pause(seconds)
        rate = (sum(self.done.values()) - before) / (time.monotonic() - at)
        self.idle["closed"] = busy.share()
        await asyncio.gather(*every)
        return rate

    async def paced(self, rate, seconds):
        until = time.monotonic() + seconds
        busy = Busy()
        at, before = time.monotonic(), sum(self.done.values())
        due = at
        while (due < until or self.lacks(until)) and not self.stop.is_set():
            due += self.n.rng.expovariate(rate)
            await self.pause(due - time.monotonic())
            self.arrived += 1
            if len(self.under_way) >= AT_ONCE:
                self.behind += 1
                continue
            self.begin(self.choose())
        took = self.took = time.monotonic() - at
        self.idle["paced"] = busy.share()
        return (sum(self.done.values()) - before) / took

    def lacks(self, until):
        """A short run on a slow machine takes longer to have each kind."""
        return (self.plan["once"] and len(self.dealt) < len(OPS) - 2
                and not self.all_dealt and time.monotonic() < until + 90)

    async def pause(self, seconds):
        if seconds > 0:
            try:
                await asyncio.wait_for(self.stop.wait(), seconds)
            except TimeoutError:
                pass

    async def sampler(self):
        n = self.n
        while True:
            await asyncio.sleep(self.plan["every"])
            v = self.measure.take()
            told = await self.told(v)
            self.say("%d done, %d under way, %d excused, %d wrong; %s sessions"
                     " told, %d known, %d run; broker %s KB, workers %s KB" % (
                         sum(self.done.values()), len(self.under_way),
                         sum(self.excused.values()), len(self.failures), told,
                         len(n.sessions), v["inits"],
                         v.get("uss of broker"), v.get("uss of worker")))

    async def told(self, v):
        """How many sessions the server tells of.  All that live have to be
        among them, and hardly more than those."""
        n, before = self.n, self.n.living()
        answer = await n.wire.ask("GET", "/admin/sessions?limit=500")
        if answer.status != 200:
            return None             # its own operations judge that
        told = {s["session_id"] for s in answer.field("sessions")}
        for s in before:
            if s.id not in told and not s.ending and not s.lost:
                self.failed("%s is not told of: %s" % (s, answer))
        v["sessions of no client"] = len(
            told - {s.id for s in n.sessions + n.ended})
        return len(told)

    # ---- from the beginning to the end

    async def run(self):
        plan, n = self.plan, self.n
        await self.settled_pool()
        await self.warm()
        await self.settled_pool()
        self.start = await self.still()
        self.say("at rest: " + ", ".join("%s %s" % (k, self.start.get(k))
                                         for k in EXACT))
        kinds = [k for k in sessions.KINDS if plan["net"] or k != "net"]
        for kind in kinds[:plan["elders"]]:
            await n.resident(kind, elder=True)
        for i in range(plan["residents"]):
            await n.resident(kinds[i % len(kinds)])
        self.say("%d sessions are there" % len(n.sessions))

        rate = await self.closed(plan["clients"], plan["calibrate"])
        pace = rate * 0.7
        self.say("%d clients: %.1f operations a second, %d %% of the "
                 "processors; from here on %.1f" % (
                     plan["clients"], rate, self.idle["closed"], pace))
        self.measure.began = time.monotonic()
        sampling = asyncio.ensure_future(self.sampler())
        killing = asyncio.ensure_future(self.killer.run(
            plan["gap"], plan["once"])) if plan["gap"] else None
        self.pace, self.rate = pace, rate
        real = await self.paced(max(pace, 0.5), plan["seconds"])
        self.say("the time is over: %.1f operations a second" % real)
        if plan["once"] and killing and not self.stop.is_set():
            await asyncio.wait([killing])
        self.killer.stop.set()
        if killing:
            await killing
        await self.drain()
        sampling.cancel()
        self.result = {"rate": rate, "pace": pace, "real": real}
        await self.close_down()

    async def warm(self):
        """What is made once is made before anything is counted."""
        for kind in sessions.KINDS:
            if kind == "net" and not self.plan["net"]:
                continue
            s = await self.n.resident(kind)
            for language in ("python", "bash", "javascript"):
                await self.n.call(s, "POST", "/code", data={
                    "code": "1", "language": language})
            await self.n.end(s)

    async def settled_pool(self):
        wanted = self.plan["pool"]
        for _ in range(600):
            text = (await self.n.wire.ask("GET", "/metrics")).body.decode()
            ready = sum(int(line.split()[-1]) for line in text.split("\n")
                        if line.startswith("sandbox_pool_sessions{")
                        and 'state="ready"' in line)
            if ready >= wanted:
                return
            await asyncio.sleep(0.1)
        self.failed("the pool never had its %d sessions" % wanted)

    async def still(self):
        """What is there when it has stopped to change."""
        last = None
        for _ in range(60):
            v = self.measure.take(keep=False)
            now = [v.get(k) for k in EXACT]
            if now == last:
                return v
            last = now
            await asyncio.sleep(0.5)
        return v

    async def drain(self):
        late = time.monotonic() + 150
        while self.under_way and time.monotonic() < late:
            await asyncio.wait(list(self.under_way), timeout=1)
        if self.under_way:
            self.failed("%d operations never ended" % len(self.under_way))

    async def close_down(self):
        n = self.n
        alive = n.living()
        for s in alive:
            try:
                await sessions.marked(n, s)
            except Deviation as d:
                self.failed("at the end, %s: %s" % (s, d))
        self.say("%d of %d sessions have what was left in them" % (
            len(alive) - sum("at the end" in f for f in self.failures),
            len(alive)))
        await asyncio.gather(*(n.end(s) for s in list(n.sessions)))
        await self.gone()
        await self.ids()
        n.wire.close()
        await self.settled_pool()
        await self.compare()

    async def gone(self):
        """No session is told of but those that nobody knows: created for a
        client that was cut off and asked again for none."""
        for _ in range(300):
            answer = await self.n.wire.ask("GET", "/admin/sessions?limit=500")
            left = answer.field("sessions") or []
            if answer.status == 200 and not left:
                return
            await asyncio.sleep(0.2)
            lost = [s["session_id"] for s in left]
            for sid in lost:
                await self.n.wire.ask("DELETE", "/v1/sessions/" + sid)
            self.lost = len(lost)
        self.failed("sessions that do not end: %s" % answer)

    async def ids(self):
        """All ranges of ids can be had again."""
        n, count = self.n, self.plan["ids"] - self.plan["net"]  # the egress's

        async def some(k):
            found = []
            for _ in range(k):
                answer = await n.wire.ask("POST", "/v1/sessions", data={
                    "tenant_id": "acme", "user_id": "alice"})
                found.append(answer)
            return found
        made = sum(await asyncio.gather(*(
            some((count + i) // 8) for i in range(8))), [])
        good = [a for a in made if a.status == 201]
        if len(good) != count:
            bad = [a for a in made if a.status != 201]
            await asyncio.sleep(3)
            later = await some(len(bad))
            good += [a for a in later if a.status == 201]
            self.failed("%d of %d ranges of ids can be had, %d three seconds "
                        "later: %s" % (count - len(bad), count, len(good),
                                       bad[0]))
        over = await n.wire.ask("POST", "/v1/sessions", data={
            "tenant_id": "acme", "user_id": "alice"})
        if over.code != "E2004":
            self.failed("one more than there are ids: %s" % over)
        if over.status == 201:
            good.append(over)
        self.say("%d of %d ranges of ids can be had" % (len(good), count))
        for a in good:
            await n.wire.ask("DELETE", "/v1/sessions/" +
                             a.field("session_id"))

    async def compare(self):
        """What was there before is there now, and nothing else."""
        for _ in range(60):
            self.end = await self.still()
            wrong = [k for k in EXACT if k in self.start
                     and self.end.get(k) != self.start[k]]
            if not wrong:
                return
            await asyncio.sleep(0.5)
        for k in wrong:
            self.failed("%s: %s at the start, %s at the end" % (
                k, self.start[k], self.end.get(k)))


class Busy:
    """How much of the machine's processors was in use since it was made."""

    def __init__(self):
        self.first = self.now()

    @staticmethod
    def now():
        f = [int(x) for x in slurp("/proc/stat").split("\n")[0].split()[1:9]]
        return sum(f), f[3] + f[4]

    def share(self):
        total, idle = (b - a for a, b in zip(self.first, self.now()))
        return 100 * (total - idle) / max(total, 1)


async def main(path):
    with open(path) as f:
        plan = json.load(f)
    soak = Soak(plan)
    loop = asyncio.get_running_loop()
    for s in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(s, soak.stop.set)
    soak.say("seed %d, %d s" % (plan["seed"], plan["seconds"]))
    try:
        await soak.run()
    except Exception as e:
        soak.failed("the run broke off: %s: %s" % (type(e).__name__, e))
    text, data = report(soak)
    with open(plan["json"], "w") as f:
        f.write(dumps(data))
    print(text, flush=True)
    return 1 if data["failures"] else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[1])))
