"""Text of values as IPython has it: on lines of 79 columns, sets sorted.

The printer offers what objects with a method _repr_pretty_ ask it for.
"""

import sys
from collections import deque
from contextlib import contextmanager

WIDTH = 79
LONGEST = 1000                  # items of a container


class Group:

    def __init__(self, depth):
        self.depth = depth
        self.breaks = deque()           # those that are not written yet
        self.broken = False


class Break:

    def __init__(self, printer, text):
        self.text = text
        self.indentation = printer.indentation
        self.group = printer.groups[-1]
        self.group.breaks.append(self)


class Printer:
    """A group of which a line would be too long is broken at all its breaks,
    the outermost first."""

    def __init__(self, width=WIDTH, longest=LONGEST):
        self.max_width = width
        self.max_seq_length = longest
        self.verbose = False
        self.out = []
        self.column = 0
        self.waiting = deque()          # texts, and breaks not decided upon
        self.waiting_width = 0
        self.indentation = 0
        outer = Group(0)
        self.groups = [outer]
        self.by_depth = [[outer]]
        self.stack = []

    # ---- what a _repr_pretty_ uses ----------------------------------------

    def text(self, text):
        if self.waiting:
            self.waiting.append(text)
            self.waiting_width += len(text)
            self.fit()
        else:
            self.out.append(text)
            self.column += len(text)

    def breakable(self, sep=' '):
        group = self.groups[-1]

        if group.broken:
            self.flush()
            self.new_line(self.indentation)
        else:
            self.waiting.append(Break(self, sep))
            self.waiting_width += len(sep)
            self.fit()

    def break_(self):
        group = self.outermost()
        if group is not None:
            self.break_group(group)

        self.flush()
        self.new_line(self.indentation)

    def begin_group(self, indent=0, open=''):
        if open:
            self.text(open)

        group = Group(self.groups[-1].depth + 1)
        self.groups.append(group)

        while len(self.by_depth) <= group.depth:
            self.by_depth.append([])

        self.by_depth[group.depth].append(group)
        self.indentation += indent

    def end_group(self, dedent=0, close=''):
        self.indentation -= dedent
        group = self.groups.pop()

        if not group.breaks:
            self.forget(group)
        if close:
            self.text(close)

    @contextmanager
    def group(self, indent=0, open='', close=''):
        self.begin_group(indent, open)
        try:
            yield
        finally:
            self.end_group(indent, close)

    @contextmanager
    def indent(self, indent):
        self.indentation += indent
        try:
            yield
        finally:
            self.indentation -= indent

    def pretty(self, value):
        cycle = id(value) in self.stack
        self.stack.append(id(value))
        self.begin_group()

        try:
            printer_of(value)(value, self, cycle)
        finally:
            self.end_group()
            self.stack.pop()

    def flush(self):
        while self.waiting:
            self.write(self.waiting.popleft())
        self.waiting_width = 0

    # ---- where lines are broken -------------------------------------------

    def new_line(self, indentation):
        self.out.append('\n' + ' ' * indentation)
        self.column = indentation

    def write(self, item):
        if isinstance(item, str):
            self.out.append(item)
            self.column += len(item)
            self.waiting_width -= len(item)
            return

        self.waiting_width -= len(item.text)
        item.group.breaks.popleft()

        if item.group.broken:
            self.new_line(item.indentation)
            return

        if not item.group.breaks:
            self.forget(item.group)

        self.out.append(item.text)
        self.column += len(item.text)

    def fit(self):
        while self.column + self.waiting_width > self.max_width:
            group = self.outermost()
            if group is None:
                return
            self.break_group(group)

    def break_group(self, group):
        while group.breaks:
            self.write(self.waiting.popleft())

        while self.waiting and isinstance(self.waiting[0], str):
            self.write(self.waiting.popleft())

    def outermost(self):
        for groups in self.by_depth:
            for i in range(len(groups) - 1, -1, -1):
                if groups[i].breaks:
                    group = groups.pop(i)
                    group.broken = True
                    return group

            for group in groups:
                group.broken = True
            groups.clear()

        return None

    def forget(self, group):
        try:
            self.by_depth[group.depth].remove(group)
        except ValueError:
            pass

    # ---- values -----------------------------------------------------------

    def items(self, values):
        """With a comma after each but the last."""
        for i, value in enumerate(values):
            if i:
                self.text(',')
                self.breakable()
            if i >= self.max_seq_length:
                self.text('...')
                return
            yield value

    def call(self, name, args=(), kwargs=()):
        self.begin_group(len(name) + 1, name + '(')

        for key, value in self.items([(None, v) for v in args]
                                     + list(kwargs)):
            if key is None:
                self.pretty(value)
            else:
                with self.group(len(key) + 1, key + '='):
                    self.pretty(value)

        self.end_group(len(name) + 1, ')')


def pretty(value):
    printer = Printer()
    printer.pretty(value)
    printer.flush()
    return ''.join(printer.out)


def printer_of(value):
    cls = getattr(value, '__class__', None)
    cls = cls if isinstance(cls, type) else type(value)

    for base in cls.__mro__:
        if base in PRINTERS:
            return PRINTERS[base]

        name = getattr(base, '__module__', None), base.__name__
        if name in NAMED:
            return NAMED[name]

        own = base.__dict__.get('_repr_pretty_')
        if callable(own):
            return own

        if base is not object and callable(base.__dict__.get('__repr__')):
            return by_repr

    return by_default


def by_repr(value, p, cycle):
    with p.group():
        for i, line in enumerate(repr(value).splitlines()):
            if i:
                p.break_()
            p.text(line)


def by_default(value, p, cycle):
    if type(value).__repr__ is not object.__repr__:
        by_repr(value, p, cycle)
        return

    with p.group(1, '<', '>'):
        p.pretty(type(value))
        p.text(' at 0x%x' % id(value))


def sequence(start, end):
    def show(value, p, cycle):
        if cycle:
            p.text(start + '...' + end)
            return

        with p.group(len(start), start, ''):
            for item in p.items(value):
                p.pretty(item)
            if len(value) == 1 and isinstance(value, tuple):
                p.text(',')

        p.text(end)

    return show


def a_set(start, end):
    def show(value, p, cycle):
        if cycle:
            p.text(start + '...' + end)
            return

        if not value:
            p.text(type(value).__name__ + '()')
            return

        items = value

        if len(value) < p.max_seq_length:
            try:
                items = sorted(value)
            except Exception:
                items = sorted_by_text(value)

        with p.group(len(start), start, end):
            for item in p.items(items):
                p.pretty(item)

    return show


def sorted_by_text(values):
    try:
        return sorted(values, key=str)
    except Exception:
        return list(values)


def mapping(start, end):
    def show(value, p, cycle):
        if cycle:
            p.text('{...}')
            return

        with p.group(len(start), start, end):
            for key in p.items(value.keys()):
                p.pretty(key)
                p.text(': ')
                p.pretty(value[key])

    return show


def name_of(value, attribute):
    name = getattr(value, attribute, None)
    if not isinstance(name, str):
        name = value.__name__

    module = getattr(value, '__module__', None)
    return name if module in (None, 'builtins') else module + '.' + name


def a_type(value, p, cycle):
    with_repr = [c for c in type(value).__mro__ if '__repr__' in c.__dict__]

    if with_repr[:1] != [type]:
        by_repr(value, p, cycle)
        return

    p.text(name_of(value, '__qualname__'))


def a_function(value, p, cycle):
    from inspect import signature
    name = name_of(value, '__qualname__')
    try:
        name += str(signature(value))
    except ValueError:
        pass
    p.text('<function %s>' % name)


def an_exception(value, p, cycle):
    if cycle:
        p.text(type(value).__name__ + '(...)')
        return

    p.call(name_of(type(value), '__qualname__'), value.args)


def a_namespace(value, p, cycle):
    p.call('namespace', (), value.__dict__.items())


def a_pattern(value, p, cycle):
    import re
    text = 'r' + repr(value.pattern).replace('\\\\', '\\')
    flags = ['re.' + name for name in
             ('TEMPLATE', 'IGNORECASE', 'LOCALE', 'MULTILINE', 'DOTALL',
              'UNICODE', 'VERBOSE', 'DEBUG')
             if value.flags & getattr(re, name, 0)]
    p.text('re.compile(%s)' % ', '.join([text] + ['|'.join(flags)][:bool(
        flags)]))


def a_counter(value, p, cycle):
    p.call(type(value).__name__, [dict(value.most_common())] if value else ())


def a_defaultdict(value, p, cycle):
    p.call(type(value).__name__, (value.default_factory, dict(value)))


def a_deque(value, p, cycle):
    limit = [('maxlen', value.maxlen)] if value.maxlen is not None else []
    p.call(type(value).__name__, [list(value)], limit)


def an_ordered_dict(value, p, cycle):
    p.call(type(value).__name__, [list(value.items())] if value else ())


PRINTERS = {
    list: sequence('[', ']'),
    tuple: sequence('(', ')'),
    dict: mapping('{', '}'),
    set: a_set('{', '}'),
    frozenset: a_set('frozenset({', '})'),
    type: a_type,
    type(pretty): a_function,
    type(len): a_function,
    type([].append): a_function,
    type(sys.implementation): a_namespace,
    BaseException: an_exception,
    type(type.__dict__): mapping('mappingproxy({', '})'),
    int: by_repr, float: by_repr, str: by_repr, bytes: by_repr,
}

NAMED = {
    ('re', 'Pattern'): a_pattern,
    ('collections', 'Counter'): a_counter,
    ('collections', 'defaultdict'): a_defaultdict,
    ('collections', 'deque'): a_deque,
    ('collections', 'OrderedDict'): an_ordered_dict,
}
