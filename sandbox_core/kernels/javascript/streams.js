'use strict';

/* Output: written at once and in order. */

const fs = require('fs');
const util = require('util');
const { Writable } = require('stream');

/* Of the driver's own, whatever a cell does to the global ones. */
const { Buffer } = globalThis;
const { nextTick } = process;

const pause = new Int32Array(new SharedArrayBuffer(4));


function writeAll(fd, data) {
    let at = 0;

    while (at < data.length) {
        try {
            at += fs.writeSync(fd, data, at);

        } catch (e) {
            /* somebody who shares the pipe has made it non-blocking */
            if (e.code !== 'EAGAIN') {
                throw e;
            }

            Atomics.wait(pause, 0, 0, 2);
        }
    }
}


/*
 * node's own streams make a pipe non-blocking, for the children of a cell
 * too, and may still hold output when a run ends.  There is nothing here that
 * an interrupt could leave half done.
 */
function stream(fd) {
    const put = (chunk, done) => {
        try {
            writeAll(fd, chunk);

        } catch (e) {
            if (e.code !== 'EPIPE' && e.code !== 'EBADF') {
                done(e);
                return;
            }
        }

        done(null);
    };

    const out = new Writable({
        decodeStrings: true,
        write: (chunk, encoding, done) => put(chunk, done),
    });

    out.write = function (chunk, encoding, done) {
        if (typeof encoding === 'function') {
            done = encoding;
            encoding = 'utf8';
        }

        if (typeof chunk === 'string') {
            chunk = Buffer.from(chunk, encoding);

        } else if (!util.types.isUint8Array(chunk)) {
            return Writable.prototype.write.call(this, chunk, encoding, done);
        }

        put(chunk, error => {
            if (typeof done === 'function') {
                nextTick.call(process, done, error);
            }
        });

        return true;
    };

    out.setMaxListeners(0);
    out.fd = fd;
    out._type = 'pipe';
    out._isStdio = true;
    out.destroySoon = out.destroy;

    return out;
}


module.exports = { pause, stream, writeAll };
