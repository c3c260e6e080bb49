"""The server's processes, seen from outside; only what is proved to be its
own is ever counted or killed."""

import os
import re

GROUP = re.compile(r"/(sandbox-[a-z0-9]+)/(i[a-z0-9]+)/(\S+)$", re.M)
HZ = os.sysconf("SC_CLK_TCK")


def slurp(path):
    try:
        with open(path, "rb") as f:
            return f.read().decode("utf-8", "replace")
    except OSError:
        return ""


def link(path):
    try:
        return os.readlink(path)
    except OSError:
        return ""


def stat(pid):
    """(state, parent, start), or None."""
    text = slurp("/proc/%d/stat" % pid)
    if not text:
        return None
    f = text.rpartition(")")[2].split()
    return f[0], int(f[1]), int(f[19])


def alive(pid):
    s = stat(pid) if pid else None
    return bool(s) and s[0] not in "ZX"


def age(pid):
    s = stat(pid)
    if not s:
        return 0
    return float(slurp("/proc/uptime").split()[0]) - s[2] / HZ


def pids():
    return [int(p) for p in os.listdir("/proc") if p.isdigit()]


def cmdline(pid):
    return slurp("/proc/%d/cmdline" % pid).replace("\0", " ").strip()


class Procs:
    def __init__(self, prefix):
        self.prefix = prefix
        self.group = None

    def pid_file(self, name):
        text = slurp("%s/%s.pid" % (self.prefix, name)).strip()
        pid = int(text) if text.isdigit() else 0
        return pid if pid and self.ours(pid) else 0

    def ours(self, pid):
        return self.prefix in (cmdline(pid) + link("/proc/%d/exe" % pid)
                               + link("/proc/%d/cwd" % pid))

    @property
    def master(self):
        return self.pid_file("nginx")

    @property
    def keeper(self):
        return self.pid_file("keeper")

    @property
    def broker(self):
        return self.pid_file("broker")

    def workers(self, old=False):
        """Those that serve, or those that are shutting down."""
        master, found = self.master, []
        for pid in children(master):
            line = cmdline(pid)
            if "worker process" in line and ("shutting" in line) == old:
                found.append(pid)
        return found

    def egress(self):
        """Whoever its parent is by now: the broker watches it."""
        broker = self.broker
        try:
            fds = os.listdir("/proc/%d/fdinfo" % broker)
        except OSError:
            fds = []
        for fd in fds:
            m = re.search(r"^Pid:\s+(\d+)$", slurp(
                "/proc/%d/fdinfo/%s" % (broker, fd)), re.M)
            if m and cmdline(int(m[1])).startswith("sandbox-egress"):
                return int(m[1])
        return 0

    def name(self):
        """That of the server's groups, which the broker has open."""
        if not self.group:
            broker = self.broker
            try:
                fds = os.listdir("/proc/%d/fd" % broker)
            except OSError:
                fds = []
            for fd in fds:
                m = re.search(r"/(sandbox-[a-z0-9]+)(?:/|$)",
                              link("/proc/%d/fd/%s" % (broker, fd)))
                if m:
                    self.group = m[1]
        return self.group

    def sessions(self):
        """{session: {group below it: [pid]}} of what runs."""
        found, name = {}, self.name()
        for pid in pids():
            m = GROUP.search(slurp("/proc/%d/cgroup" % pid))
            if m and m[1] == name and alive(pid):
                found.setdefault(m[2], {}).setdefault(m[3], []).append(pid)
        return found

    def init(self, sid):
        for pid in self.sessions().get(sid, {}).get("init", []):
            if (stat(pid) or (0, 0))[1] in (1, self.keeper, self.broker) \
                    or cmdline(pid).startswith("sandbox-init"):
                return pid
        return 0


def children(pid):
    found = []
    try:
        tasks = os.listdir("/proc/%d/task" % pid)
    except OSError:
        return found
    for t in tasks:
        found += map(int, slurp("/proc/%d/task/%s/children"
                                % (pid, t)).split())
    return found
