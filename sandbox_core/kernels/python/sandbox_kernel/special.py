"""Cells that are more than Python: IPython's magics, shell commands, help."""

from .core import UsageError

MISSING = ('magics (%), shell commands (!) and help (?) need IPython, '
           'which is not installed here')


class ZMQInteractiveShell:
    """What get_ipython() gives until something of IPython is asked for.

    Programs tell by its name, and by "kernel", that results are shown in
    more ways than a terminal's."""

    kernel = None

    def __init__(self, kernel):
        object.__setattr__(self, '_kernel', kernel)

    def __getattr__(self, name):
        if name.startswith('_ipython_') or name.startswith('_repr_') \
                or name.startswith('__'):
            raise AttributeError(name)

        if not available(self._kernel):
            raise AttributeError('%s: IPython is not installed here' % name)

        return getattr(self._kernel.shell, name)

    def __setattr__(self, name, value):
        if available(self._kernel):
            setattr(self._kernel.shell, name, value)


def stand_in(kernel):
    if not hasattr(kernel, 'stand_in'):
        kernel.stand_in = ZMQInteractiveShell(kernel)

    return kernel.stand_in


def available(kernel):
    """Whether IPython is there, which is imported to know."""
    if kernel.shell is not None:
        return True

    from .imports import OwnPath

    try:
        with OwnPath():
            import IPython      # noqa: F401: makes the shell
    except ImportError:
        return False

    return kernel.shell is not None


def looks_special(code):
    for line in code.split('\n'):
        line = line.strip()

        if line[:1] in ('%', '!', '?', '/', ',', ';') and line \
                or line[-1:] == '?' or line[:3] == '>>>' \
                or line[:4] == 'In [' or line[:4] == '... ':
            return True

        after = line.partition('=')[2].lstrip()
        if after[:1] in ('!', '%') and after:
            return True

    return False


def code(kernel, text, error):
    """Python for a text that is none, or None."""
    if isinstance(error, IndentationError) and 'unexpected' in error.msg:
        less = dedented(text)
        if less != text:
            return transform(kernel, less) if looks_special(less) else less

    if looks_special(text) or is_shorthand(kernel, text):
        other = transform(kernel, text)
        if other.rstrip('\n') != text.rstrip('\n'):
            return other

    return None


def dedented(text):
    lines = text.split('\n')
    first = next((line for line in lines if line.strip()), '')
    space = first[:len(first) - len(first.lstrip())]

    return '\n'.join(line[len(space):] if line.startswith(space) else line
                     for line in lines)


def is_shorthand(kernel, text):
    from .core import MAGIC_WORDS

    text = text.strip()
    word, _, rest = text.partition(' ')

    return ('\n' not in text and word in MAGIC_WORDS
            and word not in kernel.ns
            and rest.lstrip()[:1] not in tuple('=([.,:)'))


def transform(kernel, text):
    if not available(kernel):
        raise UsageError(MISSING)

    return kernel.shell.transform_cell(text)
