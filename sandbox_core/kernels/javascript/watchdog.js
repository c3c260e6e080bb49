'use strict';

/*
 * A thread that waits for SIGINT while cells wait.  Only a script within
 * breakOnSigint learns of signals in a thread, and only the innermost one is
 * told; the outer one keeps the signal's handler in place all the time, as
 * node would end the process of a SIGINT that comes between two of them.
 */

const { Session } = require('inspector');
const { parentPort, workerData: flags } = require('worker_threads');
const vm = require('vm');

const session = new Session();
const never = new Int32Array(new SharedArrayBuffer(4));


function interrupted() {
    Atomics.store(flags, 1, 0);
    parentPort.postMessage('interrupt');

    if (Atomics.wait(flags, 1, 0, 200) === 'timed-out') {
        /* who is connected when node ends makes it say so */
        session.connectToMainThread();
        session.post('Runtime.terminateExecution');
        session.disconnect();
    }
}


globalThis.watch = () => {
    for ( ;; ) {
        try {
            vm.runInThisContext('wait()', { breakOnSigint: true });

        } catch {
            interrupted();
        }
    }
};

globalThis.wait = () => Atomics.wait(never, 0, 0);

parentPort.postMessage('loaded');
Atomics.wait(flags, 0, 0);
vm.runInThisContext('watch()', { breakOnSigint: true });
