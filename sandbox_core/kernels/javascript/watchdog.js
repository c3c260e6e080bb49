'use strict';

/*
 * A thread that waits for SIGINT while the event loop runs what cells have
 * left there.  In a thread only a script within breakOnSigint learns of the
 * signal, and of several scripts in a process the one that began last: so none
 * is begun here while a cell is one.  What is missed comes again.
 */

const { Session } = require('inspector');
const { parentPort, workerData: shared } = require('worker_threads');
const vm = require('vm');
const { CUT, OPEN, SENT, STATE, ASKED, GATE, RUNS, CUTS, OVERDUE }
      = require('./shared.js');

const ANSWER = 200;         /* ms that a run has to answer */
const ALIVE = 1000;         /* and who has none: it may only be slow */
const PATIENCE = 1000;      /* ms for the driver's own work */

const session = new Session();
const pause = new Int32Array(new SharedArrayBuffer(4));

globalThis.wait = () => Atomics.wait(shared, GATE, 1);

const waiting = new vm.Script('wait()');


/* Whether there is something that may be ended, and is told so. */
function claim() {
    for (let i = 0; i < PATIENCE; i++) {
        const state = Atomics.load(shared, STATE);

        if (Atomics.load(shared, ASKED) !== OVERDUE) {
            return false;
        }

        if ((state === OPEN || state === SENT)
            && Atomics.compareExchange(shared, STATE, state, CUT) === state)
        {
            return true;
        }

        Atomics.wait(pause, 0, 0, 1);
    }

    return false;
}


function cut() {
    try {
        /* who is connected when node ends makes it say so */
        session.connectToMainThread();
        session.post('Runtime.terminateExecution');
        session.disconnect();

    } catch {
        /* it has no inspector: the engine kills it */
    }

    Atomics.store(shared, CUTS, 1);
    Atomics.store(shared, STATE, SENT);
}


function interrupted() {
    if (Atomics.load(shared, GATE) === 0) {
        return;
    }

    const patience = Atomics.load(shared, RUNS) ? ANSWER : ALIVE;

    Atomics.store(shared, ASKED, 1);
    parentPort.postMessage('asked');

    if (Atomics.wait(shared, ASKED, 1, patience) === 'timed-out'
        && Atomics.compareExchange(shared, ASKED, 1, OVERDUE) === 1
        && claim())
    {
        cut();
    }
}


for ( ;; ) {
    Atomics.wait(shared, GATE, 0);

    try {
        waiting.runInThisContext({ breakOnSigint: true });

    } catch {
        interrupted();
    }
}
