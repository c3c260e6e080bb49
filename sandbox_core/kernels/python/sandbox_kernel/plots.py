"""matplotlib, once a cell imports it: its figures are shown here, its list of
fonts is there already, and no glyph that a font has is a box.
"""

import os

FONT_LISTS = os.path.join(os.path.dirname(os.path.dirname(__file__)), 'cache')
BACKEND = 'module://sandbox_kernel.figures'

# Where a glyph is looked for that the fonts asked for do not have.
FALLBACK_FONTS = (
    'Noto Sans CJK SC', 'Noto Sans CJK JP', 'WenQuanYi Micro Hei',
    'WenQuanYi Zen Hei', 'Droid Sans Fallback', 'DejaVu Sans', 'Noto Emoji',
    'Symbola')


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
