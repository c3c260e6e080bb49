/*
 * Closing what a peer has sent.  The last close() of a descriptor that
 * somebody else chose does whatever is to be done at its end: it frees
 * gigabytes of a file that was removed, waits for the kernel's own threads, or
 * for a peer (a TCP socket with SO_LINGER); and of a socket that is ours, all
 * that was passed into its queue ends with it.  So they are closed by threads
 * that do nothing else, and whoever serves others waits for none of them.
 *
 * It is the caller's to take nothing more while too many are pending.
 */

#ifndef SBX_CLOSER_H
#define SBX_CLOSER_H

#include "sandbox_error.h"


typedef struct sbx_closer_s  sbx_closer_t;


/* Threads whose signals are blocked but for signo (0: all), which interrupts
 * one that lingers.  NULL: e says why. */
sbx_closer_t *sbx_closer_open(unsigned threads, int signo, sbx_error_t *e);

/* Takes fd over.  Without a closer it is closed at once.  *count, if there is
 * one, is one more until it is closed: only to be read, atomically, and there
 * as long as it is not 0. */
void sbx_closer_close(sbx_closer_t *c, int fd, unsigned *count);

/* How many are not closed yet. */
unsigned sbx_closer_pending(const sbx_closer_t *c);

/* Sends signo to each thread. */
void sbx_closer_nudge(sbx_closer_t *c);

/*
 * What is pending is closed all the same.  Without "wait" a thread that hangs
 * is left behind: its code and the process are to outlive it.  NULL is none.
 */
void sbx_closer_done(sbx_closer_t *c, int wait);


#endif
