"""A value's MIME bundle: each representation that it offers."""

import binascii
import sys

# In the order in which they are told.
METHODS = (
    ('text/html', '_repr_html_'),
    ('text/markdown', '_repr_markdown_'),
    ('image/svg+xml', '_repr_svg_'),
    ('image/png', '_repr_png_'),
    ('application/pdf', '_repr_pdf_'),
    ('image/jpeg', '_repr_jpeg_'),
    ('text/latex', '_repr_latex_'),
    ('application/json', '_repr_json_'),
    ('application/javascript', '_repr_javascript_'),
)
SCALARS = frozenset((int, float, str, bytes, bool, complex, type(None)))
CHART = 'application/vnd.sandbox.chart+json'
DATA = 'application/vnd.sandbox.data+json'
SHORT = 79                      # columns, as in pretty
NAME_MAX = 128


# ---- from a value to a bundle ----------------------------------------------

def method_of(value, name):
    if isinstance(value, type):
        return None

    try:
        # Some have an attribute of every name.
        canary = '_ipython_canary_method_should_not_exist_'
        if getattr(value, canary, None) is not None:
            return None
        method = getattr(value, name, None)
    except Exception:
        return None

    return method if callable(method) else None


def plain(kernel, value):
    kind = type(value)

    if kernel.shell is not None:
        return kernel.shell.plain(value)

    if kind in SCALARS:
        return repr(value)

    # Short containers of scalars are on one line, and look as repr() has it.
    if kind in (list, tuple, dict) and len(value) < 40:
        parts = value
        if kind is dict:
            parts = list(value) + list(value.values())
        if all(type(part) in SCALARS for part in parts):
            text = repr(value)
            if len(text) <= SHORT:
                return text

    from . import pretty
    return pretty.pretty(value)


def of(kernel, value, include=None, exclude=None):
    """A dictionary of MIME types and what to show."""
    found = {}

    method = method_of(value, '_repr_mimebundle_')
    if method is not None:
        got = rich(kernel, method, include=include, exclude=exclude)
        if isinstance(got, dict):
            found.update(got)

    bundle = {}
    if 'text/plain' not in found:
        bundle['text/plain'] = plain(kernel, value)

    for kind, name in METHODS:
        if kind in found:
            continue

        method = registered(kernel, kind, value)
        if method is None:
            method = method_of(value, name)
        if method is None:
            continue

        got = rich(kernel, method)
        if got is not None:
            bundle[kind] = got

    if 'matplotlib.figure' in sys.modules and \
            isinstance(value, sys.modules['matplotlib.figure'].Figure):
        from . import figures

        # Unless "%config InlineBackend" says what it is to be.
        if len(bundle) == 1:
            bundle['image/png'] = figures.image(value)

        # Once it is drawn, which gives its ticks their labels.
        from . import charts
        bundle[CHART] = charts.of(value)
        figures.was_shown(value)

    if 'pandas.core.frame' in sys.modules and \
            isinstance(value, sys.modules['pandas.core.frame'].DataFrame):
        from . import tables
        bundle[DATA] = tables.of(value)

    bundle.update(found)

    for kind in list(bundle):
        if include and kind not in include or exclude and kind in exclude:
            del bundle[kind]

    return bundle


def registered(kernel, kind, value):
    """What a cell has told IPython's formatters to use."""
    if kernel.shell is None:
        return None

    try:
        formatters = kernel.shell.display_formatter.formatters
        function = formatters[kind].lookup(value)
    except KeyError:
        return None

    return lambda: function(value)


def rich(kernel, method, **kwargs):
    """One that fails is told of and left out, as the text is there."""
    try:
        got = method(**kwargs)
    except NotImplementedError:
        return None
    except Exception as e:
        from . import trace
        print(trace.describe(kernel, e)[2], file=sys.stderr)
        return None

    # With metadata.
    return got[0] if isinstance(got, tuple) and len(got) == 2 else got


# ---- from a bundle to a frame ----------------------------------------------

def encode(kernel, bundle):
    fields = []

    for kind, value in bundle.items():
        if value is None or not isinstance(kind, str):
            continue

        name = kind.encode('ascii', 'replace')
        if not name or len(name) > NAME_MAX \
                or any(not 0x21 <= c <= 0x7e for c in name) \
                or kind in ('id', 'main'):
            continue

        if kind == 'application/json' or kind.endswith('+json'):
            value = json_text(value)
        elif isinstance(value, (bytes, bytearray, memoryview)):
            value = base64(bytes(value))
        elif isinstance(value, (dict, list)):
            value = json_text(value)
        else:
            value = str(value)

        fields.append((name, value if isinstance(value, bytes)
                       else kernel.text(value)))

    return fields


def base64(data):
    return binascii.b2a_base64(data, newline=False)


def json_text(value):
    import json

    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False,
                          default=str)
    except (ValueError, TypeError):
        text = json.dumps(finite(value), ensure_ascii=False, default=str)

    return text.encode('utf-8', 'replace')


def finite(value):
    """What JSON has no number for is null."""
    if isinstance(value, float):
        return value if value - value == 0 else None
    if isinstance(value, dict):
        return {str(key): finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(item) for item in value]
    return value


def fit(fields, limit):
    """Without the largest, until what is left can be told."""
    dropped = []

    def size():
        return sum(len(value) + 200 for name, value in fields + dropped)

    while size() > limit:
        rest = [field for field in fields if field[0] != b'text/plain']
        name, value = largest = max(rest or fields,
                                    key=lambda field: len(field[1]))
        fields = [field for field in fields if field is not largest]

        note = b'<%s of %d bytes: too large to be shown>' % (name, len(value))
        dropped = [(b'text/plain', note)]

        if name == b'text/plain':
            break
        if any(field[0] == b'text/plain' for field in fields):
            dropped = []

    return dropped + fields


def send(kernel, bundle, main=False):
    fields = encode(kernel, bundle)
    if fields:
        kernel.publish(fields, main)


# ---- showing ---------------------------------------------------------------

def show(kernel, value, main=False, include=None, exclude=None):
    method = method_of(value, '_ipython_display_')

    if method is not None:
        try:
            method()
            return
        except NotImplementedError:
            pass

    send(kernel, of(kernel, value, include, exclude), main)


def display(kernel, values, include, exclude, metadata, transient, display_id,
            raw, **kwargs):
    if kernel.channel.fd == -1:
        # In a forked child.
        for value in values:
            print(value if raw else plain(kernel, value))
        return None

    if display_id is not None or kwargs or transient:
        # A handle is wanted.
        from . import special
        if special.available(kernel):
            return kernel.shell.display(
                *values, include=include, exclude=exclude, metadata=metadata,
                transient=transient, display_id=display_id, raw=raw, **kwargs)

    for value in values:
        if raw:
            send(kernel, dict(value))
        else:
            show(kernel, value, False, include, exclude)

    return None
