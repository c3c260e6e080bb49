"""What the kernel does when a cell imports something.

linecache is told of the cells' sources, matplotlib shows its figures here and
finds glyphs for every script, and IPython gets its shell.
"""

import os
import sys

FONT_LISTS = os.path.join(os.path.dirname(os.path.dirname(__file__)), 'cache')
BACKEND = 'module://sandbox_kernel.figures'

# Where a glyph is looked for that the fonts asked for do not have.
FALLBACK_FONTS = (
    'Noto Sans CJK SC', 'Noto Sans CJK JP', 'WenQuanYi Micro Hei',
    'WenQuanYi Zen Hei', 'Droid Sans Fallback', 'DejaVu Sans', 'Noto Emoji',
    'Symbola')


class Finder:
    """The first finder: others find what it says is to be told of."""

    def __init__(self, after):
        self.after = after
        self.external = sys.modules['_frozen_importlib_external']

    def find_spec(self, name, path=None, target=None):
        tell = self.after.get(name)

        if tell is None:
            return None

        spec = self.external.PathFinder.find_spec(name, path, target)

        if spec is not None and hasattr(spec.loader, 'exec_module'):
            execute = spec.loader.exec_module

            def exec_module(module):
                execute(module)
                tell(module)

            try:
                spec.loader.exec_module = exec_module
            except AttributeError:
                pass

        return spec


def install(kernel):
    after = {
        'linecache': lambda module: tell_sources(kernel, module),
        'matplotlib': choose_backend,
        'matplotlib.font_manager': add_fallback_fonts,
        'IPython': lambda module: make_shell(kernel),
    }
    sys.meta_path.insert(0, Finder(after))

    if 'linecache' in sys.modules:
        tell_sources(kernel, sys.modules['linecache'])


class OwnPath:
    """Imports of the kernel's own: no file of the workspace is taken."""

    def __enter__(self):
        self.path = sys.path
        sys.path = [p for p in sys.path if p not in ('', os.getcwd())]

    def __exit__(self, *args):
        # What an import has added to it stays.
        self.path.extend(p for p in sys.path
                         if p not in self.path)
        sys.path = self.path


def preload(names):
    """Imported ahead; nothing is said of what fails."""
    import gc
    before = sys.stdout, sys.stderr
    null = open(os.devnull, 'w')

    try:
        sys.stdout = sys.stderr = null
        for name in names:
            try:
                with OwnPath():
                    __import__(name)
                warm(name)
            except BaseException:
                pass
    finally:
        sys.stdout, sys.stderr = before
        null.close()

    gc.collect()
    gc.freeze()


def warm(name):
    """The first use of some is as dear as their import."""
    if name == 'pandas':
        frame = sys.modules[name].DataFrame({'a': [1]})
        frame._repr_html_(), repr(frame)
    elif name.partition('.')[0] == 'matplotlib':
        from . import figures
        figures.warm()


def tell_sources(kernel, linecache):
    for name, code in kernel.sources.items():
        linecache.cache[name] = (len(code), None, code.splitlines(True), name)


def make_shell(kernel):
    from . import shell
    shell.make(kernel)


# ---- matplotlib -------------------------------------------------------------

def choose_backend(matplotlib):
    if 'MPLBACKEND' not in os.environ:
        matplotlib.rcParams['backend'] = BACKEND

    matplotlib.get_cachedir = seeded(matplotlib.get_cachedir)


def seeded(get_cachedir):
    """Puts the list of fonts there, which takes seconds to make."""
    done = []

    def cachedir():
        path = get_cachedir()

        if not done:
            done.append(1)
            try:
                for name in os.listdir(FONT_LISTS):
                    if name.startswith('fontlist-'):
                        copy(os.path.join(FONT_LISTS, name),
                             os.path.join(path, name))
            except OSError:
                pass

        return path

    cachedir.__doc__ = get_cachedir.__doc__
    return cachedir


def copy(source, target):
    if os.path.exists(target):
        return

    with open(source, 'rb') as f:
        data = f.read()

    new = '%s.%d' % (target, os.getpid())

    try:
        with open(new, 'wb') as f:
            f.write(data)
        os.rename(new, target)
    except OSError:
        try:
            os.unlink(new)
        except OSError:
            pass


def add_fallback_fonts(font_manager):
    """However a cell has set its fonts: no glyph that a font has is a box."""
    cls = font_manager.FontManager
    find = getattr(cls, '_find_fonts_by_props', None)

    # Before matplotlib 3.6 a text has one font.
    if find is None:
        return

    def find_with_fallbacks(self, prop, fontext='ttf', *args, **kwargs):
        found = find(self, prop, fontext, *args, **kwargs)

        if fontext != 'ttf':
            return found

        known = {}
        for font in self.ttflist:
            if font.name in FALLBACK_FONTS and os.path.exists(font.fname):
                if font.name not in known or font.style == 'normal' \
                        and font.weight in (400, 'normal', 'regular', 'book'):
                    known[font.name] = font.fname

        more = [known[name] for name in FALLBACK_FONTS if name in known]
        return found + [path for path in more if path not in found]

    cls._find_fonts_by_props = find_with_fallbacks
