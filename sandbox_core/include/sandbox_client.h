/*
 * Reaching the broker from the process that uses it: the root master of an
 * nginx, at start and on reload.  Blocking calls with a deadline; not for
 * workers, which only use the control connection that is handed to them.
 */

#ifndef SANDBOX_CLIENT_H
#define SANDBOX_CLIENT_H

#include "sandbox_wire.h"


typedef struct {
    const char           *state_dir;      /* absolute */
    const char           *helper_dir;     /* absolute; sandbox-broker and
                                             sandbox-init are in it */
    const char           *log_path;       /* absolute, or "" for none */
    const sbx_config_t   *config;
    uint32_t              spawn;          /* 0: only a running one will do */
    uint32_t              timeout_ms;
} sbx_client_t;


/*
 * Connects to <state>/broker.sock; where nobody listens, starts
 * "<helper>/sandbox-broker --keeper" (double fork, setsid, signals to their
 * defaults, /dev/null on 0-2, every other descriptor closed, exec) and waits
 * until it answers.  Sends the configuration on a connection of its own,
 * waits for the answer, then opens the control connection: *control is
 * non-blocking and close-on-exec, the caller's.
 *
 * -1: the text is one line that says what is missing and how to mend it; it
 * comes from the broker's own start where that failed (a pipe carries it).
 */
int sbx_client_start(const sbx_client_t *client, int *control,
    sbx_hello_t *hello, sbx_error_t *e);

/*
 * A connection for tools of root's that only look (HELLO_WATCH): state_dir
 * and timeout_ms of client are used, nothing is started and nothing is
 * configured.  -1: SBX_E_UNAVAILABLE, err is ENOENT or ECONNREFUSED where
 * nobody listens.
 */
int sbx_client_watch(const sbx_client_t *client, int *control,
    sbx_hello_t *hello, sbx_error_t *e);


#endif
