"""What a run found, as tables of Markdown and as JSON."""

import collections

from measure import median
from table import OPS


def table(head, rows):
    out = ["| " + " | ".join(head) + " |",
           "| " + " | ".join("---" for _ in head) + " |"]
    return out + ["| " + " | ".join(str(c) for c in row) + " |"
                  for row in rows]


def number(x):
    if x is None:
        return "—"
    return "%.1f" % x if isinstance(x, float) and x % 1 else "%d" % x


def report(soak):
    plan, result = soak.plan, soak.result
    warm = plan["seconds"] * 0.15
    rows = soak.measure.thirds(warm)
    if plan["judge"]:
        for name, first, last, verdict in rows:
            if verdict == "GROWS":
                soak.failures.append("%s grows: %s, then %s" % (
                    name, number(first), number(last)))
    soak.failures += soak.killer.wrong
    out = []
    if result:
        out += ["", "%d clients in a closed loop: %.1f operations a second, "
                "%d %% of the processors. Then %.1f a second for %d s: %.1f "
                "were done, %d %% of the processors; %d of %d that came found "
                "%d under way, and were left out. Seed %d." % (
                    plan["clients"], result["rate"], soak.idle["closed"],
                    result["pace"], soak.took, result["real"],
                    soak.idle["paced"], soak.behind, soak.arrived, 64,
                    plan["seed"]), ""]
    out += operations(soak) + [""] + kills(soak) + [""]
    out += table(["measure", "first third", "last third", "at the start",
                  "at the end", "verdict"],
                 [(n, number(a), number(b), number(soak_value(soak, "start",
                                                              n)),
                   number(soak_value(soak, "end", n)), v)
                  for n, a, b, v in rows]) + [""]
    growth = soak.measure.growth()
    if growth:
        out += table(["memory of one process", "processes seen for minutes",
                      "KB an hour"],
                     [(r, n, kb) for r, (n, kb) in sorted(growth.items())])
        out.append("")
    caches = soak.measure.caches(warm)
    if caches:
        out += table(["cache of the kernel (the whole machine's)",
                      "first third, KB", "last third, KB"],
                     [(n, number(a), number(b)) for _, n, a, b in caches])
        out.append("")
    out += ["FAILURE " + f for f in soak.failures]
    out.append("%d failures" % len(soak.failures))
    data = {"plan": plan, "result": result, "failures": soak.failures,
            "kinds": sorted(OPS), "done": dict(soak.done), "nobody": dict(soak.nobody),
            "retried": soak.n.wire.retried,
            "excused": [list(k) + [v] for k, v in soak.excused.items()],
            "kills": [[k.kind, round(k.clock, 2), k.seconds, k.text]
                      for k in soak.n.kills],
            "measures": rows, "growth": growth, "caches": caches,
            "start": getattr(soak, "start", None),
            "end": getattr(soak, "end", None),
            "samples": soak.measure.samples}
    return "\n".join(out), data


def soak_value(soak, when, name):
    return getattr(soak, when, {}).get(name)


def operations(soak):
    allowed = collections.defaultdict(list)
    for (name, label, kill), count in sorted(soak.excused.items()):
        allowed[name].append("%s %d (%s)" % (label, count, kill))
    rows = []
    for name in sorted(set(soak.done) | set(allowed)):
        times = soak.times.get(name) or [0]
        rows.append((name, soak.done[name], "%d ms" % (median(times) * 1000),
                     "%d ms" % (max(times) * 1000),
                     ", ".join(allowed[name]) or "none"))
    return table(["operation", "done", "median", "longest",
                  "failures that a kill excuses"], rows)


def kills(soak):
    by = collections.defaultdict(list)
    for k in soak.n.kills:
        by[k.kind].append(k.seconds or 0)
    return table(["killed", "times", "served again: median", "longest"],
                 [(kind, len(s), "%.2f s" % median(s), "%.2f s" % max(s))
                  for kind, s in sorted(by.items())])
