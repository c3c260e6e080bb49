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


def image(figure):
    """As a PNG; None for one with nothing in it."""
    if not (figure.axes or figure.lines or figure.texts or figure.images):
        return None

    out = io.BytesIO()
    figure.canvas.print_figure(
        out, format='png', dpi=figure.dpi, bbox_inches='tight',
        facecolor=figure.get_facecolor(), edgecolor=figure.get_edgecolor())

    return out.getvalue()


def was_shown(figure):
    shown.add(figure)
    figure.stale = False


def warm():
    """A first figure, which nobody sees."""
    from matplotlib import pyplot

    figure = Figure()
    FigureCanvas(figure)
    figure.add_subplot().plot([1, 2])
    image(figure)
    pyplot.close('all')
