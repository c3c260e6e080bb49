"""PIL's images: show() shows them among a cell's results, since there is no
other way to see one here.

Where SANDBOX_NOTEBOOK is set, as for callers who know notebooks with more to
them, what is saved to a file is shown as well, and pandas is there under the
name that it usually has.
"""

import builtins
import os
import re
import sys


def in_notebook():
    return bool(os.environ.get('SANDBOX_NOTEBOOK'))


def add_viewer(image_show):

    class Viewer(image_show.Viewer):

        def show(self, image, **options):
            builtins.display(image)
            return 1

    image_show.register(Viewer(), -1)


def show_saved(kernel, image):
    save = image.Image.save

    def save_and_show(self, fp, format=None, **params):
        save(self, fp, format, **params)

        # matplotlib saves its figures so, which are shown anyway.
        caller = sys._getframe(1).f_globals.get('__name__', '')

        if isinstance(fp, (str, os.PathLike)) and in_notebook() \
                and not caller.startswith('matplotlib'):
            builtins.display(self)

    save_and_show.__doc__ = save.__doc__
    image.Image.save = save_and_show


def name_pandas(kernel, code):
    if re.search(r'\bpd\b', code) and 'pd' not in kernel.ns:
        try:
            import pandas
            kernel.ns['pd'] = pandas
        except ImportError:
            pass
