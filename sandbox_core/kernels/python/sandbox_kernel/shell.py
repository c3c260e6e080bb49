"""IPython's shell: made when a cell first needs a piece of it, in the
namespace of the cells, which go on to be run by the kernel itself."""

import io
import os
import re
import subprocess
import sys

from IPython.core.displayhook import DisplayHook
from IPython.core.displaypub import DisplayPublisher
from IPython.core.formatters import DisplayFormatter
from IPython.core.interactiveshell import InteractiveShell
from IPython.core.magic import Magics, cell_magic, line_magic, magics_class
from IPython.display import display
from IPython.lib import pretty
from traitlets.config import Config

from . import bundle

KERNEL = None
TERMINAL_CODES = re.compile(r'\x1b\[[0-9;]*[A-Za-z]')


class Publisher(DisplayPublisher):

    def publish(self, data, metadata=None, source=None, *, transient=None,
                update=False, **kwargs):
        bundle.send(KERNEL, data)

    def clear_output(self, wait=False):
        pass


class Formatter(DisplayFormatter):
    """What is shown does not depend on whether IPython is there."""

    def format(self, obj, include=None, exclude=None):
        if self.ipython_display_formatter(obj):
            return {}, {}

        return bundle.of(KERNEL, obj, include, exclude), {}


class Hook(DisplayHook):

    def __call__(self, result=None):
        KERNEL.displayhook(result)


class ZMQInteractiveShell(InteractiveShell):
    """By its name programs know that results are shown in many ways."""

    kernel = None

    # ---- nothing of a terminal's, nothing of a history's ------------------

    def init_sys_modules(self):
        pass

    def init_user_ns(self):
        self.user_ns['_dh'] = [os.getcwd()]
        self.history_manager.input_hist_parsed = KERNEL.inputs
        self.history_manager.input_hist_raw = KERNEL.inputs
        self.history_manager.output_hist = KERNEL.outputs
        KERNEL.name_history()
        self.user_ns_hidden.update(In=KERNEL.inputs, Out=KERNEL.outputs)

    def init_virtualenv(self):
        pass

    def init_display_formatter(self):
        self.display_formatter = Formatter(parent=self)
        self.configurables.append(self.display_formatter)

    def enable_gui(self, gui=None):
        pass

    def enable_matplotlib(self, gui=None):
        import matplotlib
        from . import plots

        if matplotlib.get_backend() != plots.BACKEND:
            matplotlib.use(plots.BACKEND)

        return 'inline', plots.BACKEND

    def ask_exit(self):
        raise SystemExit

    # ---- what the kernel asks for -----------------------------------------

    display = staticmethod(display)

    def plain(self, value):
        if type(value) is float and not self.precision_is_set():
            return repr(value)

        formatter = self.display_formatter.formatters['text/plain']

        if not formatter.pprint:
            return repr(value)

        out = io.StringIO()
        printer = pretty.RepresentationPrinter(
            out, formatter.verbose, formatter.max_width, formatter.newline,
            max_seq_length=formatter.max_seq_length,
            singleton_pprinters=formatter.singleton_printers,
            type_pprinters=formatter.type_printers,
            deferred_pprinters=formatter.deferred_printers)
        printer.pretty(value)
        printer.flush()
        return out.getvalue()

    def precision_is_set(self):
        formatter = self.display_formatter.formatters['text/plain']
        return formatter.float_format != '%r'

    def before_cell(self, count, code):
        self.execution_count = count
        self.events.trigger('pre_execute')
        self.events.trigger('pre_run_cell', None)

    def after_cell(self):
        self.events.trigger('post_execute')
        self.events.trigger('post_run_cell', None)

    # ---- commands ---------------------------------------------------------

    def system(self, cmd):
        """On the kernel's own standard streams, as it writes."""
        KERNEL.flush()
        status = run(['/bin/sh', '-c', self.var_expand(cmd, depth=1)])
        self.user_ns['_exit_code'] = status
        KERNEL.packages.refresh()


def run(argv, text=None):
    """Its exit status.  An interrupt ends it, and the cell."""
    stdin = subprocess.PIPE if text is not None else subprocess.DEVNULL

    with subprocess.Popen(argv, stdin=stdin) as child:
        try:
            child.communicate(text)
        except BaseException:
            end(child)
            raise

    return child.returncode


def end(child):
    for signal in (child.terminate, child.kill):
        signal()
        try:
            child.wait(1)
            return
        except subprocess.TimeoutExpired:
            pass


@magics_class
class Scripts(Magics):
    """%%bash and others, on the kernel's own standard streams."""

    @cell_magic('script')
    def script(self, line, cell):
        # With options they are IPython's.
        if line.startswith('-') or not line.strip():
            return THEIRS['script'](line, cell)

        return script(line.split(), cell)

    @line_magic
    def matplotlib(self, line):
        """Figures are shown among the results: there is nothing to choose."""
        if line.strip() in ('-l', '--list'):
            print('Available matplotlib backends: [\'inline\']')
            return

        self.shell.enable_matplotlib(line)

    @line_magic
    def config(self, line):
        # Of figures: it would import matplotlib.
        if 'InlineBackend' in line:
            inline_options(self.shell)

        return THEIRS['config'](line)


def script(argv, cell):
    try:
        status = run(argv, cell.encode('utf-8', 'replace'))
    except FileNotFoundError:
        print("Couldn't find program: %r" % argv[0])
        return

    if status:
        raise subprocess.CalledProcessError(status, cell)


def script_magic(name):
    theirs = THEIRS[name]

    def magic(line, cell):
        if line.strip():
            return theirs(line, cell)
        return script([name], cell)

    magic.__doc__ = theirs.__doc__
    return magic


THEIRS = {}


def show_in_pager(shell, data, start=0, screen_lines=0):
    if isinstance(data, dict):
        data = data.get('text/plain', '')
    print(TERMINAL_CODES.sub('', data))


def make(kernel):
    global KERNEL

    if kernel.shell is not None:
        return

    KERNEL = kernel
    config = Config()
    config.HistoryManager.enabled = False
    config.HistoryManager.hist_file = ':memory:'
    config.InteractiveShell.colors = 'NoColor'
    config.InteractiveShell.autoindent = False
    config.InteractiveShell.display_page = False

    hook = sys.displayhook, sys.excepthook
    ZMQInteractiveShell.displayhook_class = Hook
    ZMQInteractiveShell.display_pub_class = Publisher

    shell = ZMQInteractiveShell.instance(
        config=config, user_module=kernel.main, user_ns=kernel.ns)
    sys.displayhook, sys.excepthook = hook

    shell.execution_count = kernel.count
    shell.set_hook('show_in_pager', show_in_pager)
    THEIRS.update(shell.magics_manager.magics['cell'],
                  config=shell.magics_manager.magics['line']['config'])
    shell.register_magics(Scripts)

    for name in ('bash', 'sh'):
        if name in THEIRS:
            shell.register_magic_function(script_magic(name), 'cell', name)

    kernel.shell = shell


def inline_options(shell):
    """%config InlineBackend"""
    try:
        from matplotlib_inline.config import InlineBackend
    except ImportError:
        return

    inline = InlineBackend.instance(parent=shell)
    inline.shell = shell
    if inline not in shell.configurables:
        shell.configurables.append(inline)
