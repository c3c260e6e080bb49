/*
 * The launch of one command: its pipes, its hand-over to the thread that
 * makes the process (launch.c), and what the outcome means.
 */

#include "init_command.h"
#include "sandbox_fault.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>


static void sbx_init_launched(sbx_init_source_t *source, uint32_t events);
static void sbx_init_command_launched(sbx_init_command_t *c);
static int sbx_init_command_full(const sbx_init_command_t *c);
static void sbx_init_command_cwd(sbx_init_command_t *c, int err);
static int sbx_init_command_pipes(sbx_init_command_t *c, int with_input);


static sbx_init_source_t  sbx_init_launches;


int
sbx_init_command_open(sbx_error_t *e)
{
    sbx_init_launches.fd = sbx_init_launch_open(e);
    sbx_init_launches.handler = sbx_init_launched;

    if (sbx_init_launches.fd == -1) {
        return -1;
    }

    sbx_init_source_set(&sbx_init_launches, EPOLLIN);

    return sbx_init_output_start(e);
}


void
sbx_init_command_start(sbx_init_command_t *c, int with_input)
{
    uint64_t            now;
    sbx_error_t         e;
    sbx_f_error_t       error;
    sbx_init_launch_t  *launch;

    launch = c->launch;
    launch->index = sbx_init_command_index(c);
    launch->workspace = sbx_init.config->workspace;
    launch->default_cwd = (c->exec.flags & SBX_EXEC_DEFAULT_CWD) != 0;
    launch->uid = launch->root ? 0 : sbx_init.config->uid;
    launch->gid = launch->root ? 0 : sbx_init.config->gid;
    launch->attach = c->attach;
    launch->nattach = c->nattach;
    launch->core = c->core;
    launch->group = c->fds[SBX_INIT_FD_DIR];
    launch->pids = c->fds[SBX_INIT_FD_PIDS_CURRENT];
    launch->processes = sbx_init.config->limits.processes;
    launch->filter = sbx_init.filter;
    launch->filter_size = sbx_init.config->filter_size;
    sbx_init_launch_limits(launch, c);

    if (sbx_init_process_new(c) == -1
        || sbx_init_command_pipes(c, with_input) == -1
        || sbx_init_launch_go(launch) == -1)
    {
        if ((c->exec.flags & SBX_EXEC_TTY)
            && (errno == ENOENT || errno == ENOTTY))
        {
            (void) sbx_error(&e, errno, SBX_E_CAPABILITY,
                             "the session has no terminals");
            sbx_init_error_fill(&error, &e);

        } else if ((c->exec.flags & SBX_EXEC_TTY) && errno == ENOSPC
                   && sbx_init_tty_full())
        {
            sbx_init_call_full(&error, "terminals", SBX_TERMINALS_MAX);

        } else {
            sbx_init_error_soon(&error, errno,
                                "the command cannot be started now");
        }

        sbx_init_command_ends(c);
        sbx_init_launch_free(launch);
        c->launch = NULL;
        sbx_init_exec_fail(c, &error);
        return;
    }

    SBX_FAULT("init-exec-launching");
    now = sbx_now_us();

    c->state = SBX_INIT_LAUNCHING;
    c->started = 1;
    c->start = now;

    if (c->exec.timeout != SBX_UNLIMITED) {
        c->deadline = now + c->exec.timeout * 1000;
        sbx_init_loop_wake(c->deadline);
    }

    if (c->exec.cpu_seconds != SBX_UNLIMITED) {
        sbx_init_command_cpu(c, now);
        sbx_init_loop_wake(c->poll);
    }

    sbx_init_command_memory(c);
}


static int
sbx_init_command_pipes(sbx_init_command_t *c, int with_input)
{
    int  ends[2];

    ends[0] = -1;
    ends[1] = -1;

    if (c->code != NULL) {
        return sbx_init_code_pipes(c);
    }

    if (c->exec.flags & SBX_EXEC_TTY) {
        if (sbx_init_tty_open(c, ends) == -1) {
            return -1;
        }

        c->launch->tty = 1;
        c->launch->stdio[0] = ends[0];
        c->launch->stdio[1] = ends[0];
        c->launch->stdio[2] = ends[0];

        return 0;
    }

    if (with_input && sbx_init_input_open(c, &c->launch->stdio[0]) == -1) {
        return -1;
    }

    if (sbx_init_output_open(c, ends) == -1) {
        c->launch->stdio[1] = ends[0];
        return -1;
    }

    c->launch->stdio[1] = ends[0];
    c->launch->stdio[2] = (c->exec.flags & SBX_EXEC_MERGE) ? ends[0]
                                                           : ends[1];

    return 0;
}


void
sbx_init_command_ends(sbx_init_command_t *c)
{
    int       *stdio;
    unsigned   i;

    stdio = c->launch->stdio;

    if (stdio[2] == stdio[1]) {
        stdio[2] = -1;
    }

    if (stdio[1] == stdio[0]) {
        stdio[1] = -1;
    }

    for (i = 0; i < 3; i++) {
        if (stdio[i] != -1) {
            (void) close(stdio[i]);
            stdio[i] = -1;
        }
    }

    if (c->launch->extra != -1) {
        (void) close(c->launch->extra);
        c->launch->extra = -1;
    }

    while (c->nattach != 0) {
        (void) close(c->attach[--c->nattach]);
    }
}


static void
sbx_init_launched(sbx_init_source_t *source, uint32_t events)
{
    uint32_t  index;

    (void) events;

    while (read(source->fd, &index, sizeof(index)) == sizeof(index)) {
        sbx_init_command_launched(sbx_init_command_of(index));
    }
}


static void
sbx_init_command_launched(sbx_init_command_t *c)
{
    int                err;
    sbx_error_t        e;
    sbx_f_error_t      error;
    sbx_f_started_t    started;
    sbx_init_stage_t   stage;

    stage = c->launch->outcome.stage;
    err = c->launch->outcome.err;
    c->pid = c->launch->outcome.pid;
    c->exec_done = 1;

    sbx_init_command_ends(c);
    sbx_init_launch_free(c->launch);
    c->launch = NULL;

    switch (stage) {

    case SBX_INIT_STAGE_NONE:
        c->state = SBX_INIT_RUNNING;
        break;

    case SBX_INIT_STAGE_EXEC:
        c->state = SBX_INIT_RUNNING;
        c->failed = err;
        break;

    case SBX_INIT_STAGE_CWD:
        sbx_init_command_cwd(c, err);
        return;

    case SBX_INIT_STAGE_CLONE:
        if (c->pid == 0) {
            c->started = 0;
        }

        if (err == EDQUOT || (err == EAGAIN && sbx_init_command_full(c))) {
            sbx_init_error_quota(&error,
                                 sbx_init.config->limits.processes);
            sbx_init_exec_fail(c, &error);
            return;
        }

        if (err == EAGAIN) {
            sbx_init_error_soon(&error, err,
                                "the command cannot be started now");
            sbx_init_exec_fail(c, &error);
            return;
        }

        /* fall through */

    case SBX_INIT_STAGE_SETUP:
        /* whose group is gone: it has not run, and another may */
        (void) sbx_error(&e, err, err == ENODEV ? SBX_E_UNAVAILABLE
                                                : SBX_E_INTERNAL,
                         "the command cannot be prepared");
        sbx_init_error_fill(&error, &e);
        error.retry_after = err == ENODEV;
        sbx_init_exec_fail(c, &error);
        return;
    }

    sbx_init_process_started(c);

    if (!c->failed || c->background) {
        started.pid = c->pid;
        started.pad = 0;
        sbx_init_exec_send(c, SBX_F_STARTED, &started, sizeof(started));
        SBX_FAULT("init-exec-started");
    }

    sbx_init_exec_begun(c);

    if (c->reaped) {
        sbx_init_command_over(c);
        return;
    }

    sbx_init_output_watch(c);

    if (c->code != NULL) {
        sbx_init_code_heard(c);
    }

    if (c->call.fd != -1) {
        sbx_init_exec_resume(c);
    }
}


/* Whether it is the session's own limit that lets no process be made. */

static int
sbx_init_command_full(const sbx_init_command_t *c)
{
    char     text[24];
    ssize_t  n;

    n = pread(c->fds[SBX_INIT_FD_PIDS_CURRENT], text, sizeof(text) - 1, 0);

    if (n <= 0) {
        return 0;
    }

    text[n] = '\0';

    return strtoull(text, NULL, 10) >= sbx_init.config->limits.processes;
}


static void
sbx_init_command_cwd(sbx_init_command_t *c, int err)
{
    size_t         i;
    sbx_error_t    e;
    sbx_f_error_t  error;

    static const struct {
        int          err;
        sbx_code_t   code;
        const char  *text;
    } table[] = {
        { ENOENT, SBX_E_FILE, "there is no such working directory" },
        { ENOTDIR, SBX_E_FILE_TYPE,
          "the working directory is not a directory" },
        { EACCES, SBX_E_DENIED, "the working directory may not be entered" },
        { EPERM, SBX_E_DENIED, "the working directory may not be entered" },
        { ELOOP, SBX_E_PATH,
          "the working directory's links cannot be followed" },
        { ENAMETOOLONG, SBX_E_PATH, "the working directory is too long" },
        { 0, SBX_E_INTERNAL, "the working directory cannot be entered" }
    };

    for (i = 0; table[i].err != 0 && table[i].err != err; i++) { /* void */ }

    (void) sbx_error(&e, err, table[i].code, "%s", table[i].text);
    sbx_init_error_fill(&error, &e);
    sbx_init_exec_fail(c, &error);
}
