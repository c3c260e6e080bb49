"""The kernel: takes frames, runs cells, tells what they gave.

It is ready a few milliseconds after the interpreter, and a plain cell costs
what compiling and running it costs: everything else is a module of its own
here, imported when a cell first needs it.  What the interpreter has in memory
anyway is used in place of modules that would have to be read.
"""

import _ast
import _signal
import _thread
import builtins
import io
import os
import sys

SIGINT = _signal.SIGINT
BODY_MAX = 16 * 1024 * 1024
PARSE = 0x400                   # ast.PyCF_ONLY_AST
TOP_LEVEL_AWAIT = 0x2000        # ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
COROUTINE = 0x80                # inspect.CO_COROUTINE
INTERRUPTED = 130

# The magics that IPython takes without their "%" in a cell of one line.
MAGIC_WORDS = frozenset(
    'cat cd clear conda cp dhist dirs env history ldir less lf lk ll load '
    'load_ext ls lsmagic lx magic man matplotlib mkdir more mv pip popd '
    'pushd pwd rm rmdir run time timeit who who_ls whos writefile'.split())

HELD = (_signal.SIGHUP, _signal.SIGUSR1, _signal.SIGUSR2, _signal.SIGALRM,
        _signal.SIGCHLD, _signal.SIGVTALRM, _signal.SIGPROF)

# Of these repr() is what is shown.
PLAIN = frozenset((int, float, str, bytes, bool, complex, type(None)))


class Channel:
    """Frames both ways, on a descriptor that no child has."""

    def __init__(self):
        self.fd = self.moved(3)
        self.lock = _thread.allocate_lock()
        self.main = _thread.get_ident()
        self.read = bytearray()
        self.pending = b''

    @staticmethod
    def moved(fd):
        for to in (1000, 200, 60, 20):
            try:
                os.dup2(fd, to, False)
                break
            except OSError:
                pass
        else:
            to = os.dup(fd)

        os.close(fd)
        return to

    def fill(self):
        data = os.read(self.fd, 65536)
        if not data:
            raise EOFError
        self.read += data

    def receive(self):
        """The next frame: its type, and its fields as a list of pairs."""
        while True:
            end = self.read.find(b'\n')
            if end != -1:
                break
            self.fill()

        kind, size = self.read[:end].decode('ascii').split(' ')
        end += 1
        size = end + int(size)

        while len(self.read) < size:
            self.fill()

        fields = []

        while end < size:
            at = self.read.index(b'\n', end)
            name, length = self.read[end:at].decode('ascii').split(' ')
            end = at + 1 + int(length)
            fields.append((name, self.read[at + 1:end].decode('utf-8',
                                                              'replace')))
            end += 1

        del self.read[:size]
        return kind, fields

    def send(self, kind, fields, later=False):
        """A whole frame or none: no signal and no thread comes between.

        later: at once with the next, which is not far."""
        body = b''.join([b'%s %d\n%s\n' % (name, len(value), value)
                         for name, value in fields])
        data = b'%s %d\n%s' % (kind, len(body), body)

        if _thread.get_ident() != self.main:
            with self.lock:
                self.write(data, later)
            return

        came = []
        before = _signal.getsignal(SIGINT)
        _signal.signal(SIGINT, lambda *args: came.append(1))

        try:
            with self.lock:
                self.write(data, later)
        finally:
            _signal.signal(SIGINT, before or _signal.SIG_DFL)

        if came and callable(before):
            before(SIGINT, None)

    def write(self, data, later):
        if self.fd == -1:
            return

        data = self.pending + data
        self.pending = b''

        if later and len(data) < 65536:
            self.pending = data
            return

        n = os.write(self.fd, data)

        while n < len(data):
            data = memoryview(data)[n:]
            n = os.write(self.fd, data)


class Output(io.FileIO):
    """A standard stream: what a signal cuts is written to its end."""

    def write(self, data):
        n = super().write(data)

        if n != len(data):
            data = memoryview(data).cast('B')
            while n < len(data):
                n += super().write(data[n:])

        return n


def class_name(value):
    """Whatever its metaclass says."""
    return type.__dict__['__name__'].__get__(type(value))


def output(fd, name):
    raw = Output(fd, 'w', closefd=False)
    raw.name = name
    stream = io.TextIOWrapper(raw, 'utf-8', 'backslashreplace',
                              write_through=True)
    stream.mode = 'w'
    return stream


class Quit:
    """exit and quit, which leave standard input open."""

    def __init__(self, name):
        self.name = name

    def __repr__(self):
        return 'Use %s() to end this cell' % self.name

    def __call__(self, code=None):
        raise SystemExit(*(() if code is None else (code,)))


class UsageError(Exception):
    """What is asked for is not there."""


class Kernel:

    def __init__(self, main):
        self.channel = Channel()
        self.pid = os.getpid()
        self.main = main
        self.ns = main.__dict__
        self.id = b'0'
        self.count = 0
        self.paths = []         # that a PYTHONPATH added
        self.running = False
        self.sources = {}               # of cells, by their file names
        self.flags = TOP_LEVEL_AWAIT    # and what "from __future__" adds
        self.shell = None               # IPython's, once a cell needs it
        self.held = {}                  # handlers, between cells
        self.noted = []                 # and the signals for them
        self.note = lambda number, frame: self.noted.append(number)
        self.loop = None                # of top-level await
        self.unders = []
        self.kept = {}                  # duplicates of 0, 1 and 2

    # ---- the interpreter as cells find it ---------------------------------

    def prepare(self):
        # Of main.py nothing is to be seen in the cells' namespace.
        for name in list(self.ns):
            if name not in ('__name__', '__builtins__'):
                del self.ns[name]

        self.ns.update(__doc__=None, __package__=None, __loader__=None,
                       __spec__=None)
        self.inputs = ['']
        self.outputs = {}
        self.name_history()

        sys.argv = ['']

        from . import imports
        own = os.path.dirname(os.path.dirname(__file__))
        sys.path[:] = [path for path in sys.path if path != own]
        self.packages = imports.install(self)
        sys.path.insert(0, '')

        sys.stdout = sys.__stdout__ = output(1, '<stdout>')
        sys.stderr = sys.__stderr__ = output(2, '<stderr>')
        self.streams = (sys.stdin, sys.stdout, sys.stderr)
        for fd in range(3):
            self.kept[fd] = self.keep(fd)

        sys.displayhook = sys.__displayhook__ = self.displayhook

        builtins.display = self.display
        builtins.get_ipython = self.get_ipython
        builtins.__IPYTHON__ = True
        builtins.exit = Quit('exit')
        builtins.quit = Quit('quit')

        os.register_at_fork(after_in_child=self.forked)

        import faulthandler
        faulthandler.enable(2)

    @staticmethod
    def keep(fd):
        import fcntl
        try:
            return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 20)
        except OSError:
            return -1

    def forked(self):
        """In a child that is still this program: it speaks to nobody."""
        self.channel.lock = _thread.allocate_lock()
        for fd in (self.channel.fd, *self.kept.values()):
            if fd != -1:
                os.close(fd)
        self.channel.fd = -1
        self.kept = {}

    # ---- frames -----------------------------------------------------------

    def serve(self):
        self.warm()
        self.ready()

        while True:
            kind, fields = self.next_frame()

            if kind == 'run':
                self.run(fields)
            elif kind == 'setup':
                self.setup(fields)

    def next_frame(self):
        if self.loop is not None and not self.channel.read:
            from . import tasks
            tasks.go_on(self)

        return self.channel.receive()

    def hold(self):
        """What a cell's handlers do, they do in the next one."""
        if 'signal' not in sys.modules:
            return

        for number in HELD:
            handler = _signal.getsignal(number)
            if callable(handler) and handler is not self.note:
                self.held[number] = handler
                _signal.signal(number, self.note)

    def release(self):
        while self.held:
            number, handler = self.held.popitem()
            _signal.signal(number, handler)

        while self.noted:
            number = self.noted.pop(0)
            handler = _signal.getsignal(number)
            if callable(handler):
                handler(number, None)

    def ready(self):
        version = '%d.%d.%d' % sys.version_info[:3]
        self.channel.send(b'ready', [(b'version', version.encode())])

    def warm(self):
        """What the first cell would pay for."""
        eval(self.compile('1+1', '<cell 0>')[1], {})
        self.sources.clear()
        import gc
        gc.freeze()

    def setup(self, fields):
        names = []

        for name, value in fields:
            if name == 'env':
                key, eq, value = value.partition('=')
                if key and eq:
                    self.set_variable(key, value)
            elif name == 'cwd':
                try:
                    os.chdir(value)
                except OSError:
                    pass
            elif name == 'preload':
                names.append(value)

        if names:
            from . import imports
            imports.preload(names)

        self.ready()

    def set_variable(self, name, value):
        if name == 'PYTHONPATH' and value != os.environ.get(name):
            for p in self.paths:
                if p in sys.path:
                    sys.path.remove(p)
            self.paths = [p for p in (value or '').split(':')
                          if p and p not in sys.path]
            sys.path[1:1] = self.paths

        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value

        if name == 'TZ':
            import time
            time.tzset()

    # ---- a run ------------------------------------------------------------

    def run(self, fields):
        code = ''
        env = {}

        for name, value in fields:
            if name == 'id':
                self.id = value.encode()
                self.count = int(value)
            elif name == 'code':
                code = value
            elif name == 'env':
                key, eq, value = value.partition('=')
                if key and eq:
                    env[key] = value

        before = {key: os.environ.get(key) for key in env}
        for key in env:
            self.set_variable(key, env[key])

        failed = self.guarded(self.cell, code)
        error = None
        status = 0

        if failed is not None:
            error, status = self.describe(failed)
            failed = None

        if os.getpid() != self.pid:
            self.leave_child(error, status)

        for key in before:
            if os.environ.get(key) == env[key]:
                self.set_variable(key, before[key])

        self.mend()

        if error is not None:
            self.channel.send(b'error', [(b'id', self.id)] + error)
        self.channel.send(b'end', [(b'id', self.id),
                                   (b'exit', b'%d' % status)])

    def guarded(self, what, *args):
        """Calls it so that a SIGINT ends it, and nothing but it.

        Returns what it raised."""
        try:
            try:
                self.running = True
                _signal.signal(SIGINT, _signal.default_int_handler)
                self.release()
                what(*args)
            finally:
                self.quiet()
        except BaseException as e:
            self.quiet()
            return e

        return None

    def quiet(self):
        """From now on no signal changes anything."""
        while True:
            try:
                _signal.signal(SIGINT, self.ignore)
                self.running = False
                self.hold()
                return
            except BaseException:
                pass

    @staticmethod
    def ignore(number, frame):
        pass

    def describe(self, failed):
        """Fields of an error frame, and the exit status."""
        name = class_name(failed)
        told = []

        def tell():
            from . import trace
            told.append(trace.describe(self, failed))

        again = self.guarded(tell)

        if again is not None or not told:
            told = [(name, '', '%s: <it cannot be shown: %s>'
                     % (name, class_name(again)))]

        status = 1

        if isinstance(failed, KeyboardInterrupt):
            status = INTERRUPTED
        elif isinstance(failed, SystemExit):
            code = failed.code
            status = 0 if code is None else \
                code & 255 if isinstance(code, int) else 1

        sys.last_type, sys.last_value = type(failed), failed
        sys.last_traceback = failed.__traceback__
        sys.last_exc = failed

        return [(key, self.text(value)) for key, value
                in zip((b'name', b'value', b'traceback'), told[0])], status

    @staticmethod
    def leave_child(error, status):
        """A fork of the cell has come to the cell's end."""
        try:
            if error is not None and error[0][1] != b'SystemExit':
                os.write(2, error[2][1] + b'\n')
            Kernel.flush()
        finally:
            os._exit(status)

    @staticmethod
    def flush():
        """Whatever a cell has put in the place of standard output."""
        try:
            sys.stdout.flush()
        except (AttributeError, OSError, ValueError):
            pass

    def mend(self):
        """Standard descriptors and streams that the cell has closed."""
        for fd, copy in self.kept.items():
            try:
                os.fstat(fd)
            except OSError:
                if copy != -1:
                    os.dup2(copy, fd)

        if self.streams[1].closed or self.streams[2].closed:
            fresh = (self.streams[0], output(1, '<stdout>'),
                     output(2, '<stderr>'))
            if sys.stdout is self.streams[1]:
                sys.stdout = fresh[1]
            if sys.stderr is self.streams[2]:
                sys.stderr = fresh[2]
            sys.__stdout__, sys.__stderr__ = fresh[1:]
            self.streams = fresh

    # ---- a cell -----------------------------------------------------------

    def cell(self, code):
        self.packages.refresh()
        self.remember_input(code)
        self.ns.pop('__warningregistry__', None)
        if self.loop is not None:
            from . import tasks
            tasks.current(self)

        if 'pd' in code and 'pd' not in self.ns:
            from . import images
            if images.in_notebook():
                images.name_pandas(self, code)

        shell = self.shell
        if shell is not None:
            shell.before_cell(self.count, code)

        try:
            body, last = self.compile(code, '<cell %d>' % self.count)

            value = self.evaluate(body, last)
            if value is not None:
                sys.displayhook(value)
        finally:
            # Figures of a cell that failed are shown as well.
            try:
                figures = sys.modules.get('sandbox_kernel.figures')
                if figures is not None:
                    figures.flush()
            finally:
                if self.shell is not None:
                    self.shell.after_cell()
                if sys.stdout is not self.streams[1]:
                    self.flush()

    def evaluate(self, body, last):
        flags = 0
        for code in (body, last):
            flags |= code.co_flags if code is not None else 0

        if flags & COROUTINE:
            from . import tasks
            return tasks.run(self, body, last)

        if body is not None:
            exec(body, self.ns)

        return eval(last, self.ns) if last is not None else None

    def compile(self, code, name):
        """Code of all but the last expression, and of that."""
        code = code.replace('\r\n', '\n')

        if self.shorthand(code):
            from . import special
            code = special.transform(self, code)

        tree, code = self.parse(code, name)
        last = None

        if tree.body and isinstance(tree.body[-1], _ast.Expr):
            if not self.silenced(code, tree.body[-1]):
                last = _ast.Expression(tree.body.pop().value)

        body = None

        if tree.body:
            body = compile(tree, name, 'exec', self.flags, True)
            if '__future__' in code:
                import __future__
                for feature in __future__.all_feature_names:
                    flag = getattr(__future__, feature).compiler_flag
                    self.flags |= flag & body.co_flags

        if last is not None:
            last = compile(last, name, 'eval', self.flags, True)

        return body, last

    def parse(self, code, name):
        """Its tree, and the code that this is the tree of."""
        self.keep_source(name, code)

        try:
            return compile(code, name, 'exec', PARSE | self.flags, True), code
        except SyntaxError as e:
            from . import special
            other = special.code(self, code, e)
            if other is None:
                raise

        self.keep_source(name, other)
        return compile(other, name, 'exec', PARSE | self.flags, True), other

    def shorthand(self, code):
        """Magics without their "%", which may be Python as well: ls -l"""
        word = code[:16].split(None, 1)[:1]

        if not word or word[0] not in MAGIC_WORDS:
            return False

        from . import special
        return special.is_shorthand(self, code)

    @staticmethod
    def silenced(code, node):
        """Ends in a semicolon, whatever comments come after it."""
        if ';' not in code:
            return False

        lines = code.split('\n')[node.end_lineno - 1:]
        lines[0] = lines[0].encode()[node.end_col_offset:].decode()

        return any(';' in line.partition('#')[0] for line in lines)

    def keep_source(self, name, code):
        self.sources[name] = code
        cache = sys.modules.get('linecache')
        if cache is not None:
            cache.cache[name] = (len(code), None, code.splitlines(True), name)

    # ---- In and Out -------------------------------------------------------

    def name_history(self):
        for name in ('_', '__', '___', '_i', '_ii', '_iii'):
            self.ns[name] = ''

        self.ns.update(In=self.inputs, Out=self.outputs, _ih=self.inputs,
                       _oh=self.outputs)
        self.unders = ['', '', '']

    def remember_input(self, code):
        ns, inputs = self.ns, self.inputs
        ns['_iii'], ns['_ii'] = ns.get('_ii', ''), ns.get('_i', '')
        ns['_i'] = inputs[-1]

        while len(inputs) < self.count < len(inputs) + 1000:
            inputs.append('')

        inputs.append(code)
        ns['_i%d' % self.count] = code

    def remember_output(self, value):
        ns, outputs = self.ns, self.outputs

        if value is outputs:
            return

        if len(outputs) >= 1000:
            for key in list(outputs)[:200]:
                del outputs[key]
                ns.pop('_%d' % key, None)

        # What a cell has named so itself is left alone.
        names = ('_', '__', '___')
        mine = all(ns.get(name, under) is under
                   for name, under in zip(names, self.unders))
        self.unders = [value] + self.unders[:2]

        if mine and not hasattr(builtins, '_'):
            ns.update(zip(names, self.unders))

        outputs[self.count] = value
        ns['_%d' % self.count] = value

    # ---- what is shown ----------------------------------------------------

    def displayhook(self, value):
        if value is None:
            return

        if type(value) in PLAIN and self.shell is None:
            self.publish([(b'text/plain', self.text(repr(value)))], True)
        else:
            from . import bundle
            bundle.show(self, value, main=True)

        self.remember_output(value)

    def display(self, *objs, include=None, exclude=None, metadata=None,
                transient=None, display_id=None, raw=False, clear=False,
                **kwargs):
        """Shows objects in the richest ways that they offer.

        raw: they are dictionaries of MIME types and what is shown."""
        from . import bundle
        return bundle.display(self, objs, include, exclude, metadata,
                              transient, display_id, raw, **kwargs)

    def get_ipython(self):
        """IPython's shell, or what becomes it when it is first used."""
        if self.shell is not None:
            return self.shell

        from . import special
        return special.stand_in(self)

    @staticmethod
    def text(value):
        return value.encode('utf-8', 'backslashreplace').replace(b'\0',
                                                                 b'\\x00')

    def publish(self, fields, main=False):
        """Fields are MIME types and values, in bytes."""
        if not self.running or self.channel.fd == -1:
            return

        size = sum([len(value) + 200 for name, value in fields])

        if size > BODY_MAX - 4096:
            from . import bundle
            fields = bundle.fit(fields, BODY_MAX - 4096)

        self.channel.send(b'result', [(b'id', self.id),
                                      (b'main', b'1' if main else b'0')]
                          + fields, main)


def main():
    kernel = Kernel(sys.modules['__main__'])
    kernel.quiet()
    kernel.prepare()

    try:
        kernel.serve()
    except (EOFError, BrokenPipeError, ConnectionResetError):
        pass

    # Nobody is there to wait for threads.
    try:
        import atexit
        atexit._run_exitfuncs()
    finally:
        os._exit(0)
