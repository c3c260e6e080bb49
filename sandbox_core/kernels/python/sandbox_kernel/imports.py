"""Where modules come from, and what the kernel does when one has come.

The directories of packages are those of the module site, without what their
.pth files say: these cost as much as the rest of the interpreter's start, and
are read when a module is not found without them.

linecache is told of the cells' sources, matplotlib shows its figures here and
finds glyphs for every script, and IPython gets its shell.
"""

import os
import sys

external = sys.modules['_frozen_importlib_external']


# ---- directories of packages ------------------------------------------------

class Packages:

    def __init__(self):
        import site
        self.site = site
        self.pending = []
        self.user = None
        self.known = 0

    def add(self):
        """As the interpreter itself does without -S."""
        real = self.site.addpackage

        def later(directory, name, known_paths):
            self.pending.append((directory, name))
            return known_paths

        self.site.addpackage = later
        try:
            self.site.main()
        finally:
            self.site.addpackage = real

        if not self.site.ENABLE_USER_SITE:
            return

        # It may be made by the first package that a cell installs.
        self.user = self.site.getusersitepackages()
        self.known = self.changed()

        if self.user not in sys.path:
            at = [i for i, path in enumerate(sys.path)
                  if path.endswith(('site-packages', 'dist-packages'))]
            sys.path.insert(at[0] if at else len(sys.path), self.user)

    def changed(self):
        try:
            return os.stat(self.user).st_mtime_ns
        except OSError:
            return 0

    def read_pending(self):
        pending, self.pending = self.pending, []

        for directory, name in pending:
            self.site.addpackage(directory, name, None)

    def refresh(self):
        """What has been installed since, or written, is importable."""
        for path, finder in list(sys.path_importer_cache.items()):
            if finder is None:
                del sys.path_importer_cache[path]
            elif hasattr(finder, 'invalidate_caches'):
                finder.invalidate_caches()

        metadata = sys.modules.get('importlib.metadata')
        if metadata is not None:
            metadata.MetadataPathFinder.invalidate_caches()

        if self.user and self.changed() != self.known:
            self.known = self.changed()
            self.site.addsitedir(self.user)

    # The last finder: nobody else has it.

    def find_spec(self, name, path=None, target=None):
        if self.pending:
            self.read_pending()
        elif self.user and self.changed() != self.known:
            self.refresh()
        else:
            return None

        for finder in sys.meta_path:
            if finder is not self and hasattr(finder, 'find_spec'):
                spec = finder.find_spec(name, path, target)
                if spec is not None:
                    return spec

        return None


# ---- modules that the kernel waits for --------------------------------------

class Finder:
    """The first finder: others find what it says is to be told of."""

    def __init__(self, after):
        self.after = after

    def find_spec(self, name, path=None, target=None):
        tell = self.after.get(name)

        if tell is None:
            return None

        spec = external.PathFinder.find_spec(name, path, target)

        if spec is not None and hasattr(spec.loader, 'exec_module'):
            execute = spec.loader.exec_module

            def exec_module(module):
                execute(module)
                try:
                    tell(module)
                except Exception as e:
                    print('%s is not fitted in: %r' % (name, e),
                          file=sys.stderr)

            try:
                spec.loader.exec_module = exec_module
            except AttributeError:
                pass

        return spec


def install(kernel):
    packages = Packages()
    packages.add()

    sys.meta_path.insert(0, Finder({
        'linecache': lambda module: tell_sources(kernel, module),
        'matplotlib': choose_backend,
        'matplotlib.font_manager': add_fallback_fonts,
        'IPython': lambda module: make_shell(kernel),
        'PIL.Image': lambda module: show_saved(kernel, module),
        'PIL.ImageShow': add_viewer,
    }))
    sys.meta_path.append(packages)

    if 'linecache' in sys.modules:
        tell_sources(kernel, sys.modules['linecache'])

    return packages


def tell_sources(kernel, linecache):
    for name, code in kernel.sources.items():
        linecache.cache[name] = (len(code), None, code.splitlines(True), name)


def choose_backend(matplotlib):
    from . import plots
    plots.choose_backend(matplotlib)


def add_fallback_fonts(font_manager):
    from . import plots
    plots.add_fallback_fonts(font_manager)


def show_saved(kernel, image):
    from . import images
    images.show_saved(kernel, image)


def add_viewer(image_show):
    from . import images
    images.add_viewer(image_show)


def make_shell(kernel):
    from . import shell
    shell.make(kernel)


# ---- imports of the kernel's own --------------------------------------------

class OwnPath:
    """Imports of the kernel's own: no file of the workspace is taken."""

    def __enter__(self):
        self.path = sys.path
        try:
            here = os.getcwd()
        except OSError:
            here = ''
        sys.path = [p for p in sys.path if p not in ('', here)]

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
