"""Errors as IPython tells them, in plain text: the frames of cells and
files, each with the lines around the one that ran."""

import os

from .core import class_name

HERE = os.path.dirname(__file__) + os.sep
AROUND = 2
RULE = 75
NUMBERS = 7                     # columns of a line's number
FRAMES = 40                     # of an exception; those between are left out
CHAIN = 20                      # exceptions that one came of
LINE_MAX = 1000
VALUE_MAX = 64 * 1024
TEXT_MAX = 512 * 1024
HEAD = 'Traceback (most recent call last)'
CAUSE = 'The above exception was the direct cause of the following exception:'
CONTEXT = ('During handling of the above exception, another exception '
           'occurred:')


def describe(kernel, error):
    """Its name, its value and the whole text."""
    name = class_name(error)
    text = []

    if isinstance(error, SyntaxError) and not frames_of(kernel, error):
        text.append(last_lines(kernel, error))
    elif name == 'UsageError':
        text.append('UsageError: %s' % value_of(error))
    else:
        text.append('-' * RULE)

        for i, (one, link) in enumerate(chain_of(error)):
            if link:
                text += ['', link, '']
            head = class_name(one)
            text.append(head + ' ' * max(1, RULE - len(head) - len(HEAD))
                        + HEAD)
            text += tell_frames(kernel, frames_of(kernel, one))
            text += ['', last_lines(kernel, one)]

    return name, cut(value_of(error), VALUE_MAX), cut('\n'.join(text),
                                                      TEXT_MAX)


def value_of(error):
    try:
        return str(error)
    except Exception:
        return '<exception str() failed>'


def cut(text, limit):
    if len(text) <= limit:
        return text

    half = limit // 2
    return '%s\n[... %d characters ...]\n%s' % (
        text[:half], len(text) - 2 * half, text[-half:])


def chain_of(error):
    """Those that it came of first, each with what leads to it."""
    chain = []
    seen = set()

    while error is not None and id(error) not in seen and len(chain) < CHAIN:
        seen.add(id(error))

        if error.__cause__ is not None:
            before, link = error.__cause__, CAUSE
        elif error.__context__ is not None and not error.__suppress_context__:
            before, link = error.__context__, CONTEXT
        else:
            before, link = None, None

        chain.append([error, link])
        error = before

    # The oldest was cut off, or is told already.
    chain[-1][1] = None
    chain.reverse()

    return chain


def frames_of(kernel, error):
    """(code, line) of each frame but the kernel's own."""
    found = []
    tb = error.__traceback__

    while tb is not None:
        found.append((tb.tb_frame.f_code, tb.tb_lineno))
        tb = tb.tb_next

    # What led to the cell.
    if found and found[0][0].co_filename.startswith(HERE):
        first = [i for i, f in enumerate(found)
                 if f[0].co_filename in kernel.sources]
        found = found[first[0]:] if first else found

    own = [f for f in found if f[0].co_filename.startswith(HERE)]
    theirs = [f for f in found if f not in own
              and not is_ipython(f[0].co_filename)]

    # Of IPython's only where it is IPython itself that fails.
    if found[-1:] in (theirs[-1:], own[-1:]):
        return theirs

    return [f for f in found if f not in own]


def is_ipython(path):
    return '/IPython/core/' in path


def tell_frames(kernel, frames):
    text = []
    same = 0

    if len(frames) > FRAMES:
        frames = collapse(frames)

    for i, frame in enumerate(frames):
        if isinstance(frame, str):
            text += [frame, '']
            continue

        text += tell_frame(kernel, *frame)
        if i != len(frames) - 1:
            text.append('')

    return text


def collapse(frames):
    """A recursion's once, and some of all the others."""
    short = []
    i = 0

    while i < len(frames):
        n = 1
        while i + n < len(frames) and frames[i + n] == frames[i]:
            n += 1

        short.append(frames[i])
        if n > 3:
            code, line = frames[i]
            short.append('    [... skipping similar frames: %s at line %d '
                         '(%d times)]' % (code.co_name, line, n - 2))
            short.append(frames[i])
        else:
            short += [frames[i]] * (n - 1)
        i += n

    if len(short) > FRAMES:
        half = FRAMES // 2
        short = short[:half] + ['    [... skipping %d frames ...]'
                                % (len(short) - 2 * half)] + short[-half:]

    return short


def tell_frame(kernel, code, line):
    path = code.co_filename
    head = place(kernel, path, line)

    if code.co_name != '<module>':
        args = code.co_varnames[:code.co_argcount + code.co_kwonlyargcount]
        name = getattr(code, 'co_qualname', code.co_name)
        head += ', in %s(%s)' % (name.rpartition('<locals>.')[2],
                                 ', '.join(args))

    lines = source(kernel, path)
    shown = [head]

    for number in range(max(1, line - AROUND),
                        min(len(lines), line + AROUND) + 1):
        mark = '%d' % number
        if number == line:
            mark = '-' * (NUMBERS - 2 - len(mark)) + '> ' + mark
        shown.append(('%*s %s' % (NUMBERS, mark,
                                  cut(lines[number - 1], LINE_MAX))).rstrip())

    return shown


def place(kernel, path, line):
    if path in kernel.sources:
        return 'Cell In[%s], line %d' % (path[6:-1], line)

    return 'File %s:%s' % (path, line)


def source(kernel, path):
    if path in kernel.sources:
        return kernel.sources[path].split('\n')

    from .imports import OwnPath
    with OwnPath():
        import linecache

    linecache.checkcache(path)
    return [line.rstrip('\n') for line in linecache.getlines(path)]


def last_lines(kernel, error):
    """The error itself, as the interpreter has it."""
    name = class_name(error)
    text = []

    if isinstance(error, SyntaxError):
        text += syntax(kernel, error)
        text.append('%s: %s' % (name, error.msg))
    else:
        value = value_of(error)
        text.append('%s: %s' % (name, value) if value else name)

    notes = getattr(error, '__notes__', None)
    if isinstance(notes, (list, tuple)):
        text += [str(note) for note in notes]

    inner = getattr(error, 'exceptions', None)
    if isinstance(inner, tuple) and hasattr(error, 'derive'):
        for i, one in enumerate(inner[:15]):
            lines = '\n'.join(tell_frames(kernel, frames_of(kernel, one))
                              + [last_lines(kernel, one)]).split('\n')
            text.append('  +-- %d' % (i + 1))
            text += ['  | ' + line for line in lines]

    return '\n'.join(text)


def syntax(kernel, error):
    path, line = error.filename, error.lineno

    if not path or not isinstance(line, int):
        return []

    text = ['  ' + place(kernel, path, line)]
    got = error.text

    if got is None and path in kernel.sources:
        got = (source(kernel, path) + [''] * line)[line - 1]

    if not got:
        return text

    shown = got.rstrip('\n')
    stripped = shown.lstrip(' \t\f')
    text.append('    ' + cut(stripped, LINE_MAX))

    if len(stripped) > LINE_MAX:
        return text

    if error.offset is not None and error.offset > 0:
        at = error.offset - 1 - (len(shown) - len(stripped))
        end = getattr(error, 'end_offset', None)
        same = getattr(error, 'end_lineno', None) in (None, line)
        width = end - error.offset if end and same else 1
        text.append('    ' + ' ' * max(0, at)
                    + '^' * max(1, min(width, len(stripped) - at)))

    return text
