"""The kinds of operations, by name."""

OPS = {}


class Op:
    def __init__(self, run, weight, net, big):
        self.run, self.name = run, run.__name__
        self.weight, self.net, self.big = weight, net, big


def op(weight, net=False, big=False):
    """weight: how often, against the others.  net: what the egress's end may
    fail.  big: at most one at a time."""

    def add(run):
        OPS[run.__name__] = Op(run, weight, net, big)
        return run

    return add
