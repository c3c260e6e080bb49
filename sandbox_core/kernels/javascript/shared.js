'use strict';

/*
 * What driver and watchdog share: numbers that both change, at these places.
 */

module.exports = {
    STATE:  0,              /* one of those below */
    ASKED:  1,              /* 1: SIGINT waits for an answer, or OVERDUE */
    GATE:   2,              /* 1: no script within breakOnSigint runs */
    RUNS:   3,              /* 1: between run and end */
    CUTS:   4,              /* 1: something has been ended */
    LENGTH: 5,

    OVERDUE: 2,

    DRIVER: 0,              /* the driver, or a script: not to be ended */
    OPEN:   1,              /* the event loop, and what cells left there */
    CUT:    2,              /* the watchdog is about to end what runs */
    SENT:   3,              /* and has done so: V8 knows */
};
