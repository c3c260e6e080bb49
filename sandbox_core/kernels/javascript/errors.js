'use strict';

/* What is told of errors: of the cells, and of nothing else. */

const util = require('util');

/* Of the driver's own, whatever a cell does to the global ones. */
const { Error } = globalThis;
const errorToString = Error.prototype.toString;

/* Of cells, by their numbers: { code, edits } as transform.js has them. */
const sources = new Map();


class KeyboardInterrupt {}


/*
 * Columns as they were written: an edit moves what follows it on its line.
 * null is a place that is not of the cell.
 */
function written({ code, edits }, line, column) {
    const lines = code.split('\n');

    if (line > lines.length) {
        return null;
    }

    let start = 0, moved = 0;

    for (const l of lines.slice(0, line - 1)) {
        start += l.length + 1;
    }

    for (const e of edits) {
        const at = e.start - start + 1;

        if (at < 1 || e.text.includes('\n')) {
            continue;
        }

        if (at > lines[line - 1].length + 1 || column < at + moved) {
            break;
        }

        moved += e.text.length - (e.end - e.start);
    }

    return Math.max(column - moved, 1);
}


/* The line that a cell's error points at, before all else, as node has it. */
function pointed(trace) {
    const head = /^cell-(\d+)\.js:(\d+)\n.*\n/.exec(trace);
    const at = head ?? /\bcell-(\d+)\.js:(\d+):(\d+)/.exec(trace);
    const source = at && sources.get(at[1]);
    const line = source && source.code.split('\n')[at[2] - 1];

    if (line === null || line === undefined) {
        return trace;
    }

    const name = `cell-${at[1]}.js:${at[2]}\n${line}\n`;

    return head ? name + trace.slice(head[0].length)
                : `${name}${' '.repeat(at[3] - 1)}^\n\n${trace}`;
}


/*
 * What has called a cell is no matter of its errors, wherever their stacks are
 * shown: frames end with the cell's.
 */
function frames(calls) {
    const first = calls.findIndex(c => c.getFileName()?.startsWith(__dirname));
    let   kept = first === -1 ? calls : calls.slice(0, first);

    if (first !== -1) {
        while (kept.length && kept.at(-1).getFileName() === 'node:vm') {
            kept.pop();
        }
    }

    kept = kept.filter(c => !c.getFileName()?.startsWith('node:internal/'));

    return kept.flatMap(call => {
        const id = /^cell-(\d+)\.js$/.exec(call.getFileName())?.[1];
        const source = sources.get(id);
        const text = `    at ${call}`;

        if (source === undefined) {
            return [ text ];
        }

        const column = written(source, call.getLineNumber(),
                               call.getColumnNumber());

        return column === null ? []
               : [ text.replace(/:\d+(\)?)$/, `:${column}$1`) ];
    });
}


Error.prepareStackTrace = (error, calls) => {
    let head;

    try {
        head = errorToString.call(error);

    } catch {
        head = 'Error';
    }

    return [ head, ...frames(calls) ].join('\n');
};


/* Plain text. */
function traceback(error) {
    let trace = util.stripVTControlCharacters(util.inspect(error));

    if (util.types.isNativeError(error) && trace.startsWith('[')) {
        /* without a frame the stack is in brackets */
        trace = trace.replace(`[${error.stack}]`, () => error.stack);
    }

    return util.types.isNativeError(error) ? pointed(trace) : trace;
}


function text(value) {
    try {
        return String(value);

    } catch {
        return '';
    }
}


function told(error) {
    if (error instanceof KeyboardInterrupt) {
        return [ [ 'name', 'KeyboardInterrupt' ], [ 'value', '' ],
                 [ 'traceback', 'KeyboardInterrupt' ] ];
    }

    let name = 'Error', value = '', trace;

    try {
        if (util.types.isNativeError(error) || error instanceof Error) {
            name = text(error.name) || 'Error';
            value = text(error.message);

        } else {
            name = 'Thrown';
            value = typeof error === 'string' ? error : util.inspect(error);
        }

        trace = traceback(error);

    } catch {
        trace = `${name}: ${value}`;     /* its own inspection throws */
    }

    return [ [ 'name', name.slice(0, 1000) ],
             [ 'value', value.slice(0, 1000000) ],
             [ 'traceback', trace.slice(0, 1000000) ] ];
}


module.exports = { KeyboardInterrupt, sources, text, told, traceback };
