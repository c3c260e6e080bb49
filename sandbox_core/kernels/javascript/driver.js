'use strict';

/*
 * The JavaScript kernel: frames on descriptor 3, as kernels/README.md has
 * them.  Cells run in node's main context, one after another.
 *
 * An interrupt is one of two things.  A cell until it first waits runs as a
 * script within vm's breakOnSigint, its microtasks too: SIGINT ends it.  What
 * comes later, out of the event loop, is watched by a thread, watchdog.js: it
 * is started once a cell needs it, asks us to stop waiting, and has V8 end
 * what keeps us from answering.  For that the driver and the thread share
 * some numbers (shared.js): what the driver does itself is never ended, as
 * mask() makes the thread wait.
 *
 * node has the handler of SIGINT all the time: without one the signal would
 * end the process, and handlers come and go with listeners and scripts.
 */

const Module = require('module');
const net = require('net');
const path = require('path');
const util = require('util');
const vm = require('vm');
const { KeyboardInterrupt, sources, text, told, traceback }
      = require('./errors.js');
const { internalBinding, timers } = require('./internals.js');
const { CUT, DRIVER, OPEN, SENT, STATE, ASKED, GATE, RUNS, CUTS, LENGTH,
        OVERDUE } = require('./shared.js');
const { pause, stream, writeAll } = require('./streams.js');
const { transform, prepare } = require('./transform.js');

const TYPED = process.argv[2] === 'typescript';
const FRAME_MAX = 16 * 1024 * 1024;
const FIELD_MAX = 15 * 1024 * 1024;
const DISPLAY = Symbol.for('Jupyter.display');

/* Of the driver's own, whatever a cell does to the global ones. */
const { setImmediate, Promise, Error, SyntaxError, JSON, Buffer, Symbol: _ }
      = globalThis;
const { getOwnPropertyDescriptor, defineProperty, entries, keys } = Object;
const tick = process._tickCallback;
const env = process.env;

const SOURCES = 500;        /* cells whose lines errors can show */
const LATE = 200;           /* ms for a signal that a child got sooner */

let run = null;             /* { id, before, outcome } of what goes on */
let place = null;           /* the module that cells are, of one directory */
let watchdog = null;


/*
 * ---- streams -----------------------------------------------------------
 */

const stdout = stream(1);
const stderr = stream(2);

for (const [ name, value ] of [ [ 'stdout', stdout ], [ 'stderr', stderr ] ]) {
    defineProperty(process, name,
                   { value, configurable: true, enumerable: true,
                     writable: true });
}


/*
 * ---- what is not to be interrupted -------------------------------------
 */

const shared = new Int32Array(new SharedArrayBuffer(4 * LENGTH));
let   depth = 1;            /* of mask() */


function sleep(ms) {
    Atomics.wait(pause, 0, 0, ms);
}


/*
 * Until unmask() the thread ends nothing.  Where it has already said that it
 * will, this is where it happens: calls and waits are where V8 looks.
 */
function mask() {
    if (depth > 0) {
        depth++;
        return;
    }

    for ( ;; ) {
        const state = Atomics.load(shared, STATE);

        if (state === SENT) {
            sleep(1);
            sleep(1);
        }

        if (state !== CUT
            && Atomics.compareExchange(shared, STATE, state, DRIVER) === state)
        {
            depth = 1;
            return;
        }
    }
}


/* A cell that does little but call us is ended here. */
function unmask() {
    if (--depth > 0) {
        return;
    }

    Atomics.store(shared, STATE, OPEN);

    for (let i = 0; i < 100 && Atomics.load(shared, ASKED) === OVERDUE; i++) {
        sleep(1);
    }
}


/* The event loop has called the driver: nothing else is on the stack. */
function enter() {
    depth = 0;
    mask();
}


/* Who asks whether we are alive learns it. */
function answer() {
    if (Atomics.exchange(shared, ASKED, 0) !== 0) {
        Atomics.notify(shared, ASKED);
    }
}


/* A thread that waits for SIGINT would take it from a script. */
function gate(open) {
    Atomics.store(shared, GATE, open);
    Atomics.notify(shared, GATE);
}


/*
 * ---- frames ------------------------------------------------------------
 */

const { getPromiseDetails } = internalBinding('util');
const { WriteWrap } = internalBinding('stream_wrap');
const engine = new net.Socket({ fd: 3, readable: true, writable: true });
const handle = engine._handle;
const parts = [];
let   pending = 0;          /* bytes in parts */
let   frame = null;         /* { type, size } whose body has not come yet */


/*
 * One call hands a whole frame to libuv, which writes it now or later: there
 * is no place where an interrupt could cut it, as in a stream of node's.
 */
function send(type, fields) {
    const body = [];
    let   size = 0;

    for (const [ name, value ] of fields) {
        const data = Buffer.isBuffer(value) ? value
                     : Buffer.from(String(value).replaceAll('\0', '\ufffd'));

        body.push(Buffer.from(`${name} ${data.length}\n`), data,
                  Buffer.from('\n'));
    }

    for (const b of body) {
        size += b.length;
    }

    const req = new WriteWrap();

    req.handle = handle;
    req.oncomplete = () => {};
    req.buffer = Buffer.concat([ Buffer.from(`${type} ${size}\n`), ...body ]);
    handle.writeBuffer(req, req.buffer);
}


function fields(body) {
    const list = [];
    let   at = 0;

    while (at < body.length) {
        const end = body.indexOf(10, at);
        const [ name, size ] = body.toString('latin1', at, end).split(' ');

        at = end + 1 + Number(size);
        list.push([ name, body.toString('utf8', end + 1, at) ]);
        at++;
    }

    return list;
}


/* The next frame that is whole: { type, list }, or null. */
function next() {
    if (frame !== null && pending < frame.size) {
        return null;
    }

    let all = parts.length === 1 ? parts[0] : Buffer.concat(parts);
    let found = null;

    if (frame === null) {
        const end = all.indexOf(10);

        if (end !== -1) {
            const [ type, size ] = all.toString('latin1', 0, end).split(' ');

            frame = { type, size: Number(size) };
            all = all.subarray(end + 1);
        }
    }

    if (frame !== null && all.length >= frame.size) {
        found = { type: frame.type,
                  list: fields(all.subarray(0, frame.size)) };
        all = all.subarray(frame.size);
        frame = null;
    }

    pending = all.length;
    parts.length = 0;

    if (pending > 0) {
        parts.push(all);
    }

    return found;
}


function receive(chunk) {
    enter();

    parts.push(chunk);
    pending += chunk.length;

    for (let f = next(); f !== null; f = next()) {
        if (f.type === 'run') {
            begin(f.list);

        } else if (f.type === 'setup') {
            setup(f.list);
        }
    }

    unmask();
}


/*
 * ---- what a cell finds -------------------------------------------------
 */

/*
 * Cells are a module of the working directory, so that require and import
 * look where a script there would.
 */
function locate() {
    let cwd;

    try {
        cwd = process.cwd();

    } catch {
        cwd = '/';                      /* it has been removed */
    }

    if (place !== null && place.cwd === cwd) {
        return;
    }

    const file = path.join(cwd, 'cell.js');
    const self = new Module(file, null);

    self.filename = file;
    self.paths = Module._nodeModulePaths(cwd);
    process.mainModule = self;

    self._compile('module.exports = [ require, (s, o) => import(s, o) ];',
                  file);

    const [ require, load ] = self.exports;

    self.exports = {};
    place = { cwd, file, load };

    const names = { require, module: self, exports: self.exports,
                    __filename: file, __dirname: cwd };

    for (const [ name, value ] of entries(names)) {
        defineProperty(globalThis, name,
                       { value, configurable: true, writable: true });
    }
}


/* "import" in a cell: a function, with what import declarations need. */
function $$load(name, options) {
    return options === undefined ? place.load(name)
                                 : place.load(name, options);
}


$$load.pick = async (name, wanted, options) => {
    const space = await $$load(name, options);

    for (const one of wanted) {
        if (!(one in space)) {
            throw new SyntaxError(`The requested module '${name}' does not`
                                  + ` provide an export named '${one}'`);
        }
    }

    return space;
};


defineProperty($$load, 'meta', {
    get() {
        return { dirname: place.cwd, filename: place.file,
                 url: String(require('url').pathToFileURL(place.file)) };
    },
});


/*
 * var and function in a cell replace a global that only has a getter, as
 * let and const of a script would.
 */
function claim(names) {
    for (const name of names) {
        const p = getOwnPropertyDescriptor(globalThis, name);

        if (p !== undefined && p.configurable && !p.writable) {
            defineProperty(globalThis, name,
                           { value: undefined, writable: true,
                             enumerable: true, configurable: true });
        }
    }
}


/*
 * ---- results -----------------------------------------------------------
 */

function isBundle(value) {
    if (value === null || typeof value !== 'object') {
        return false;
    }

    const names = keys(value);

    return names.length > 0
           && names.every(n => /^[\x21-\x7e]+\/[\x21-\x7e]+$/.test(n));
}


function encode(type, value) {
    if (ArrayBuffer.isView(value)) {
        const data = Buffer.from(value.buffer, value.byteOffset,
                                 value.byteLength);

        return data.toString(/^text\/|[/+](xml|json)\b/.test(type) ? 'utf8'
                                                                   : 'base64');
    }

    if (typeof value !== 'string' || /[/+]json\b/.test(type)) {
        return typeof value === 'string' && isText(value)
               ? value : JSON.stringify(value) ?? 'null';
    }

    return value;
}


function isText(value) {
    try {
        JSON.parse(value);
        return true;

    } catch {
        return false;
    }
}


/* What the engine is told of a value: MIME types and strings. */
function describe(value) {
    let bundle = null;

    if (value !== null && (typeof value === 'object'
                           || typeof value === 'function'))
    {
        if (typeof value[DISPLAY] === 'function') {
            bundle = value[DISPLAY]();

        } else if (typeof value.toHTML === 'function') {
            bundle = { 'text/html': value.toHTML() };
        }
    }

    if (!isBundle(bundle)) {
        bundle = {};
    }

    if (bundle['text/plain'] === undefined) {
        bundle = { 'text/plain': util.inspect(value), ...bundle };
    }

    return bundle;
}


/* Runs what the value has of its own: not to be masked. */
function resultOf(id, main, bundle) {
    const list = [ [ 'id', id ], [ 'main', main ] ];
    let   left = FIELD_MAX;

    for (const [ type, value ] of entries(bundle).slice(0, 30)) {
        const data = Buffer.from(encode(type, value)
                                 .replaceAll('\0', '\ufffd'));

        if (type.length > 128 || data.length > left) {
            writeAll(2, Buffer.from(`${type} is too large to be shown\n`));
            continue;
        }

        left -= data.length;
        list.push([ type, data ]);
    }

    return list;
}


function display(...values) {
    for (const value of values) {
        if (run === null) {
            writeAll(1, Buffer.from(util.inspect(value) + '\n'));
            continue;
        }

        const list = resultOf(run.id, 0,
                              isBundle(value) ? value : describe(value));

        mask();

        if (run !== null) {
            send('result', list);
        }

        unmask();
    }
}


/*
 * ---- errors ------------------------------------------------------------
 */

/* Nobody waits for what has failed here. */
function uncaught(error) {
    let trace;

    try {
        trace = traceback(error);

    } catch {
        trace = text(error);
    }

    writeAll(2, Buffer.from(`Uncaught ${trace}\n`));
}


/*
 * ---- runs --------------------------------------------------------------
 */

function setup(list) {
    for (const [ name, value ] of list) {
        const at = value.indexOf('=');

        if (name === 'env' && at > 0) {
            env[value.slice(0, at)] = value.slice(at + 1);

        } else if (name === 'cwd') {
            try {
                process.chdir(value);

            } catch {
                /* the session's own: the next cell will see where it is */
            }
        }
    }

    locate();

    for (const [ name, value ] of list) {
        if (name === 'preload') {
            try {
                globalThis.require(value);

            } catch {
                /* as the contract has it */
            }
        }
    }

    send('ready', [ [ 'version', process.version ] ]);
}


/* Variables of one run: what they were before comes back at its end. */
function lend(list) {
    const before = [];

    for (const [ name, value ] of list) {
        const at = value.indexOf('=');

        if (name === 'env' && at > 0) {
            const key = value.slice(0, at);

            before.push([ key, env[key], value.slice(at + 1) ]);
            env[key] = value.slice(at + 1);
        }
    }

    return before;
}


function giveBack(before) {
    for (const [ key, old, lent ] of before.reverse()) {
        if (env[key] !== lent) {
            continue;                   /* the cell's own now */
        }

        if (old === undefined) {
            delete env[key];

        } else {
            env[key] = old;
        }
    }
}


function strip(code) {
    if (!TYPED || typeof Module.stripTypeScriptTypes !== 'function') {
        return code;
    }

    const warn = process.emitWarning;

    process.emitWarning = () => {};     /* that it is experimental */

    try {
        return Module.stripTypeScriptTypes(code);

    } finally {
        process.emitWarning = warn;
    }
}


/* As a script of the cell's; what it declares is claimed. */
function script(code, made, id) {
    const compiled = new vm.Script(made.code, { filename: `cell-${id}.js`,
                                                columnOffset: made.offset });

    claim(made.names);
    sources.set(id, { code, edits: made.edits });

    return compiled;
}


function compile(code, id) {
    sources.set(id, { code, edits: [] });
    sources.delete(String(id - SOURCES));

    code = strip(code);

    if (/^\s*\{/.test(code) && !/;\s*$/.test(code)) {
        /* an object, where it can be one */

        try {
            const made = transform(`(${code}\n)`);

            if (!made.waits && made.error === null) {
                made.offset = -1;
                return script(code, { ...made, edits: [] }, id);
            }

        } catch {
            /* a block */
        }
    }

    const made = transform(code);

    try {
        return script(code, made, id);

    } catch (e) {
        explain(e, code, made.error, id);
        throw e;
    }
}


/* Where V8's words about a cell that it cannot compile would mislead. */
function explain(e, code, error, id) {
    if (TYPED && typeof Module.stripTypeScriptTypes !== 'function') {
        const message = `${e.message} (types need node 22.13 or later, this`
                        + ` is ${process.version})`;

        e.stack = e.stack.replace(e.message, () => message);
        e.message = message;

    } else if (error !== null
               && /await is only|import statement|'import.meta'/
                  .test(e.message))
    {
        const { line, column } = error.loc;

        e.message = error.message.replace(/ \(\d+:\d+\)$/, '');
        e.stack = `cell-${id}.js:${line}\n${code.split('\n')[line - 1]}\n`
                  + `${' '.repeat(column)}^\n\nSyntaxError: ${e.message}`;
    }
}


/*
 * A child that was waited for has died of SIGINT.  If we were meant, too, the
 * thread that ends scripts may not have run yet: it gets its time within one.
 */
function childInterrupted(e) {
    try {
        return e.signal === 'SIGINT';

    } catch {
        return false;
    }
}


/* Called by a script, so that breakOnSigint covers the microtasks too. */
$$load.step = () => {
    const { job } = $$load;

    try {
        job.value = job.script.runInThisContext({ displayErrors: false });

        if (util.types.isPromise(job.value)) {
            job.value.then(() => {}, () => {});     /* awaited below */
        }

    } catch (e) {
        job.value = e;
        job.failed = true;

        if (childInterrupted(e)) {
            sleep(LATE);
        }
    }

    tick.call(process);
};

const first = new vm.Script('$$load.step()', { filename: __filename });


function begin(list) {
    const get = name => (list.find(f => f[0] === name) ?? [])[1] ?? '';
    const self = { id: get('id'), before: lend(list), outcome: null };
    const job = { script: null, value: undefined, failed: false };

    answer();                           /* of before, not of this run */
    run = self;
    Atomics.store(shared, RUNS, 1);
    locate();

    try {
        job.script = compile(get('code'), self.id);

    } catch (e) {
        finish(self, e, true);
        return;
    }

    $$load.job = job;
    gate(0);

    try {
        first.runInThisContext({ breakOnSigint: true });

    } catch (e) {
        /* what the cell threw is in job: it was interrupted, or this is what
         * it had called at once after itself */
        job.value = interrupts(e) ? new KeyboardInterrupt() : e;
        job.failed = true;
    }

    depth = 1;                          /* display() may have been left */
    $$load.job = null;
    gate(1);

    const { value, failed } = job;

    if (watchdog === null && goesOn(value)) {
        watch();
    }

    if (failed || !util.types.isPromise(value)) {
        finish(self, value, failed);
        return;
    }

    value.then(v => finish(self, v, false), e => finish(self, e, true));
}


/* e is vm's word for an interrupt; it may be anything of the cell's, too. */
function interrupts(e) {
    try {
        return e.code === 'ERR_SCRIPT_EXECUTION_INTERRUPTED';

    } catch {
        return false;
    }
}


/* Whether a cell has left what may run later: it may loop. */
function goesOn(value) {
    return util.types.isPromise(value) && getPromiseDetails(value)[0] === 0
           || process.getActiveResourcesInfo().length > 1;
}


function finish(self, value, failed) {
    if (self.outcome !== null) {
        return;
    }

    if (failed && Atomics.load(shared, ASKED) !== 0) {
        value = new KeyboardInterrupt();    /* of a child, first */
    }

    self.outcome = { value, failed };

    /* what else it has rejected is told within the run */
    setImmediate(close, self);
}


/* More than once, where an interrupt has ended it. */
function close(self) {
    if (run !== self) {
        return;
    }

    const frames = [];
    let   { value, failed } = self.outcome;
    let   exit = 0;

    if (!failed && value !== undefined) {
        try {
            frames.push([ 'result', resultOf(self.id, 1, describe(value)) ]);

        } catch (e) {
            failed = true;
            value = e;
        }
    }

    if (failed) {
        exit = value instanceof KeyboardInterrupt ? 130 : 1;
        frames.push([ 'error', [ [ 'id', self.id ], ...told(value) ] ]);
    }

    enter();

    for (const f of frames) {
        send(...f);
    }

    giveBack(self.before);
    run = null;
    Atomics.store(shared, RUNS, 0);
    answer();
    send('end', [ [ 'id', self.id ], [ 'exit', exit ] ]);
    unmask();
}


/*
 * The thread has asked, maybe after it has ended what we were in.
 */
function asked() {
    enter();

    if (Atomics.load(shared, ASKED) !== 0) {
        if (Atomics.exchange(shared, CUTS, 0) !== 0) {
            timers.mend();
        }

        if (run !== null) {
            run.outcome = { value: new KeyboardInterrupt(), failed: true };
            setImmediate(close, run);
        }

        answer();
    }

    unmask();
}


/* Who has no room for a thread goes on without. */
function watch() {
    if (watchdog !== null) {
        return;
    }

    const { Worker } = require('worker_threads');

    try {
        watchdog = new Worker(path.join(__dirname, 'watchdog.js'),
                              { workerData: shared, execArgv: [] });

    } catch {
        return;
    }

    watchdog.on('error', () => {});
    watchdog.on('message', asked);
    watchdog.unref();
}


/*
 * SIGINT is the kernel's.  A listener of a cell would take the signal from it,
 * and the last one that goes would leave the process without a handler.
 */
function keepSigint() {
    for (const event of [ 'newListener', 'removeListener' ]) {
        for (const listener of process.listeners(event)) {
            process.removeListener(event, listener);
            process.on(event, function (name, ...rest) {
                if (name !== 'SIGINT') {
                    listener.call(this, name, ...rest);
                }
            });
        }
    }

    internalBinding('contextify').startSigintWatchdog();
}


/*
 * ---- start -------------------------------------------------------------
 */

process.argv.splice(1);
process.execArgv.splice(0);

for (const [ name, value ] of entries({ $$load, display })) {
    defineProperty(globalThis, name, { value, configurable: name === 'display',
                                       writable: name === 'display' });
}

keepSigint();
process.on('uncaughtException', uncaught);
process.on('unhandledRejection', uncaught);

engine.on('data', receive);
engine.on('error', () => process.exit(1));
engine.on('end', () => process.exit(0));

locate();
prepare();
gate(1);
send('ready', [ [ 'version', process.version ] ]);
unmask();
