"""matplotlib's backend: figures are PNG images among a cell's results.

plt.show() shows all that are open and closes them, and so does the end of the
cell.
"""

import io
import sys
import weakref

from matplotlib._pylab_helpers import Gcf
from matplotlib.backend_bases import FigureManagerBase
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

FORMATS = {
    'png': ('image/png', 'png'),
    'png2x': ('image/png', 'png'),
    'retina': ('image/png', 'png'),
    'jpeg': ('image/jpeg', 'jpeg'),
    'jpg': ('image/jpeg', 'jpeg'),
    'svg': ('image/svg+xml', 'svg'),
    'pdf': ('application/pdf', 'pdf'),
}

FigureCanvas = FigureCanvasAgg

shown = weakref.WeakSet()


class FigureManager(FigureManagerBase):

    def show(self):
        show_one(self)


def new_figure_manager(num, *args, FigureClass=Figure, **kwargs):
    return new_figure_manager_given_figure(num, FigureClass(*args, **kwargs))


def new_figure_manager_given_figure(num, figure):
    return FigureManager(FigureCanvas(figure), num)


def draw_if_interactive():
    pass


def show(*args, **kwargs):
    for manager in Gcf.get_all_fig_managers():
        show_one(manager)


def show_one(manager):
    figure = manager.canvas.figure

    try:
        # Not again, unless something was drawn on it since.
        if not (figure in shown and not figure.stale):
            sys.modules['builtins'].display(figure)
    finally:
        Gcf.destroy(manager)


def flush():
    """At the end of a cell."""
    managers = [m for m in Gcf.get_all_fig_managers()
                if isinstance(m, FigureManager)]

    for manager in managers:
        show_one(manager)


def formats():
    """As "%config InlineBackend" has set them."""
    config = sys.modules.get('matplotlib_inline.config')

    if config is None or not config.InlineBackend.initialized():
        return ['png'], {}

    inline = config.InlineBackend.instance()
    names = sorted(n for n in inline.figure_formats if n in FORMATS)
    return names or ['png'], dict(inline.print_figure_kwargs or {})


def images(figure, bundle):
    """By MIME type, besides those that are there already."""
    made = {}

    if not figure.axes and not figure.lines and not figure.texts \
            and not figure.images:
        return made

    names, more = formats()

    for name in names:
        kind, fmt = FORMATS[name]

        if kind in bundle:
            continue

        out = io.BytesIO()
        options = {
            'format': fmt,
            'dpi': figure.dpi * (2 if name in ('retina', 'png2x') else 1),
            'bbox_inches': 'tight',
            'facecolor': figure.get_facecolor(),
            'edgecolor': figure.get_edgecolor(),
        }
        options.update(more)
        figure.canvas.print_figure(out, **options)
        data = out.getvalue()
        made[kind] = data.decode('utf-8') if fmt == 'svg' else data

    shown.add(figure)
    figure.stale = False

    return made


def warm():
    """A first figure, which nobody sees."""
    from matplotlib import pyplot

    figure = Figure()
    FigureCanvas(figure)
    figure.add_subplot().plot([1, 2])
    images(figure, {})
    pyplot.close('all')
