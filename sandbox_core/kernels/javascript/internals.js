'use strict';

/*
 * What the driver needs of node's inside, the same from 18 to 22
 * (--expose-internals).
 */

const warn = process.emitWarning;

process.emitWarning = () => {};         /* that it is internal */

const { internalBinding } = require('internal/test/binding');

process.emitWarning = warn;

const inner = require('internal/timers');
const { immediateInfo, toggleImmediateRef } = internalBinding('timers');


/*
 * setImmediate's callbacks are taken off their list before they run: those
 * that come after one that V8 has ended are lost, but still counted, and the
 * event loop would never sleep again.
 */
function mend() {
    const { kCount, kRefCount } = inner.immediateInfoFields;
    let   count = 0, referenced = 0;

    for (let i = inner.immediateQueue.head; i; i = i._idleNext) {
        count++;
        referenced += i[inner.kRefed] ? 1 : 0;
    }

    immediateInfo[kCount] = count;
    immediateInfo[kRefCount] = referenced;
    toggleImmediateRef(referenced > 0);
}


module.exports = { internalBinding, timers: { mend } };
