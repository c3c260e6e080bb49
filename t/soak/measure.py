"""What the server takes of the machine, every so often, and whether that is
flat."""

import glob
import os
import re
import time

from procs import age, children, link, slurp, stat

# name: (unit, how much of the first third it may be more in the last, and how
# much at least is no growth).  Those of the whole machine move with whatever
# else runs on it.
TOLERANCE = {
    "pss": ("KB", 0.10, 1024), "uss": ("KB", 0.10, 1024),
    "fds": ("", 0.15, 8), "threads": ("", 0, 2), "zombies": ("", 0, 2),
    "mounts": ("", 0, 2), "cgroups": ("", 0.25, 40), "netns": ("", 0.25, 6),
    "loops": ("", 0.25, 6), "ids": ("", 0.25, 6), "inits": ("", 0.25, 6),
    "records": ("", 0.25, 6), "sessions": ("", 0.25, 6),
    "disk": ("KB", 0.10, 1024),
    "SUnreclaim": ("KB", 0.10, 65536),
}

# What has to be as it was when all has ended.
EXACT = ["mounts of the machine", "mounts of the broker", "cgroups", "netns",
         "loops", "ids", "inits", "records", "fds of keeper", "fds of broker",
         "fds of master", "zombies", "entries of the state directory"]


def rollup(pid):
    text = slurp("/proc/%d/smaps_rollup" % pid)
    f = {k: int(v) for k, v in re.findall(r"^(\w+):\s+(\d+) kB", text, re.M)}
    if "Pss" not in f:
        return None
    return f["Pss"], f["Private_Clean"] + f["Private_Dirty"]


def fds(pid):
    try:
        return len(os.listdir("/proc/%d/fd" % pid))
    except OSError:
        return None


def threads(pid):
    m = re.search(r"^Threads:\s+(\d+)", slurp("/proc/%d/status" % pid), re.M)
    return int(m[1]) if m else 1


def median(values):
    v = sorted(values)
    n = len(v)
    return v[n // 2] if n % 2 else (v[n // 2 - 1] + v[n // 2]) / 2


def disk(prefix):
    """Blocks of what is below the state directory, logs apart, and its
    entries; what a kind of tombstones has is told beside."""
    total, entries = 0, []
    for top, dirs, names in os.walk(prefix):
        if top == prefix:
            for d in ("logs", "asan"):
                if d in dirs:
                    dirs.remove(d)
        for name in names + dirs:
            path = os.path.join(top, name)
            try:
                total += os.lstat(path).st_blocks // 2
            except OSError:
                continue
            short = os.path.relpath(path, prefix)
            if short != "ended" and not short.startswith(("base", "conf")):
                entries.append(short)
    return total, entries


def cgroups(name):
    """Directories of the server's groups, in every hierarchy."""
    count = 0
    for line in slurp("/proc/self/mountinfo").split("\n"):
        if " - cgroup" not in line:
            continue
        for top, dirs, _ in os.walk(line.split()[4]):
            if name in dirs:
                for _, below, _ in os.walk(os.path.join(top, name)):
                    count += 1
                dirs.remove(name)
    return count


def loops(prefix):
    return sum(prefix + "/" in slurp(f) for f in
               glob.glob("/sys/block/loop*/loop/backing_file"))


def slab():
    sizes = {}
    for line in slurp("/proc/slabinfo").split("\n")[2:]:
        f = line.split()
        if len(f) > 15:
            sizes[f[0]] = int(f[14]) * int(f[5]) * 4
    return sizes


class Measure:
    def __init__(self, node, procs, young):
        self.n, self.p, self.young = node, procs, young
        self.samples, self.lives = [], {}
        self.began = time.monotonic()

    def roles(self):
        p = self.p
        return {"master": [p.master], "worker": p.workers(),
                "keeper": [p.keeper], "broker": [p.broker],
                "egress": [p.egress()]}

    def take(self, keep=True):
        """One sample.  Memory of a young process is left out: it grows until
        it has what it needs."""
        at = time.monotonic() - self.began
        v, prefix = {}, self.n.prefix
        for role, found in self.roles().items():
            rows = {"pss": [], "uss": [], "fds": [], "threads": []}
            for pid in filter(None, found):
                count, memory = fds(pid), rollup(pid)
                if count is None or memory is None:
                    continue
                rows["fds"].append(count)
                rows["threads"].append(threads(pid))
                if age(pid) >= self.young:
                    rows["pss"].append(memory[0])
                    rows["uss"].append(memory[1])
                    self.lives.setdefault((role, pid), []).append(
                        (at, memory[1]))
            for what, found_values in rows.items():
                if found_values:
                    v["%s of %s" % (what, role)] = median(found_values)
        running = self.p.sessions()
        broker = self.p.broker
        inits = [pid for g in running.values() for pid in g.get("init", [])
                 if re.search(r"^NSpid:\s+\d+\s+1$",
                              slurp("/proc/%d/status" % pid), re.M)]
        v["inits"] = len(inits)
        v["ids"] = len({slurp("/proc/%d/uid_map" % pid) for pid in inits})
        v["netns"] = len({link("/proc/%d/ns/net" % pid) for g in
                          running.values() for f in g.values() for pid in f}
                         | {t for t in self.targets(broker)
                            if t.startswith("net:[")})
        v["zombies"] = sum((stat(c) or "?")[0] == "Z" for r in
                           (self.p.keeper, broker, self.p.master)
                           for c in (children(r) if r else []))
        v["mounts of the machine"] = sum(
            prefix in line for line in slurp("/proc/mounts").split("\n"))
        v["mounts of the broker"] = slurp(
            "/proc/%d/mountinfo" % broker).count("\n") if broker else 0
        v["cgroups"] = cgroups(self.p.name())
        v["loops"] = loops(prefix)
        v["disk"], entries = disk(prefix)
        v["entries of the state directory"] = len(entries)
        v["records"] = sum(e.count("/") == 1 and e.startswith("sessions/")
                           for e in entries)
        for line in slurp("/proc/meminfo").split("\n"):
            if line.startswith("SUnreclaim:"):
                v["SUnreclaim"] = int(line.split()[1])
        for name, kb in slab().items():
            v["slab " + name] = kb
        if keep:
            self.samples.append((at, v))
        return v

    def targets(self, pid):
        try:
            return [link("/proc/%d/fd/%s" % (pid, f))
                    for f in os.listdir("/proc/%d/fd" % pid)]
        except OSError:
            return []

    # ---- verdicts

    def thirds(self, warm):
        """A row for each measure: name, first third, last third, verdict."""
        taken = [(at, v) for at, v in self.samples if at >= warm]
        rows = []
        names = sorted({k for _, v in taken for k in v
                        if not k.startswith("slab ")})
        for name in names:
            series = [(at, v[name]) for at, v in taken if name in v]
            if len(series) < 6:
                rows.append((name, None, None, "too few samples"))
                continue
            n = len(series) // 3
            first = median([x for _, x in series[:n]])
            last = median([x for _, x in series[-n:]])
            _, share, least = tolerance(name)
            good = last - first <= max(first * share, least)
            rows.append((name, first, last, "flat" if good else "GROWS"))
        return rows

    def growth(self):
        """Per role: the median of how fast the memory of one process of that
        role grew, in KB an hour, of those seen for three minutes."""
        slopes = {}
        for (role, _), series in self.lives.items():
            if len(series) >= 6 and series[-1][0] - series[0][0] >= 150:
                s = [(b[1] - a[1]) / (b[0] - a[0]) for i, a in
                     enumerate(series) for b in series[i + 1:]]
                slopes.setdefault(role, []).append(median(s) * 3600)
        return {r: (len(s), round(median(s))) for r, s in slopes.items()}

    def caches(self, warm):
        """The kernel's caches that grew most."""
        taken = [v for at, v in self.samples if at >= warm]
        if len(taken) < 6:
            return []
        n = len(taken) // 3
        rows = []
        for name in taken[-1]:
            if name.startswith("slab "):
                a = median([v.get(name, 0) for v in taken[:n]])
                b = median([v.get(name, 0) for v in taken[-n:]])
                rows.append((b - a, name[5:], a, b))
        return sorted(rows, reverse=True)[:5]


def tolerance(name):
    for key in (name, name.split(" ")[0]):
        if key in TOLERANCE:
            return TOLERANCE[key]
    return "", 0.10, 4
