/*
 * For tests of sandbox-init: calls, as a worker makes them.  Part of
 * init_test.h.
 */

#ifndef SBX_INIT_CALLS_H
#define SBX_INIT_CALLS_H

typedef struct {
    const char *const  *argv;
    const char *const  *env;
    const char         *cwd;
    const char         *input;
    size_t              input_size;
    uint32_t            flags;
    uint32_t            user;
    uint64_t            timeout;     /* 0: the session's, as below */
    uint64_t            max_output;
    uint64_t            cpu_seconds;
    uint64_t            max_file_size;
    uint64_t            open_files;
    uint64_t            stack;
    uint32_t            rows;
    uint32_t            cols;
    const char         *tag;
    sbx_task_t          task;        /* group: fds, attach_count ... */
    const int          *fds;
    unsigned            nfds;
} init_exec_t;


typedef struct {
    int             accepted;
    int             started;
    int             pid;
    int             ended;           /* SBX_F_EXIT, _ERROR, _END, or 0: EOF */
    sbx_f_exit_t    exit;
    sbx_f_error_t   error;
    sbx_f_end_t     end;
    char           *out;
    size_t          out_size;
    char           *err;
    size_t          err_size;
} init_result_t;


typedef struct {
    int         fd;
    sbx_wire_t  wire;
    uint8_t     buf[sizeof(sbx_frame_t) + SBX_FRAME_MAX];
} init_call_t;


static void
init_send(int fd, sbx_frame_type_t type, const void *payload, size_t size)
{
    uint8_t  buf[sizeof(sbx_frame_t) + SBX_FRAME_MAX];
    size_t   n;

    n = sbx_wire_header(buf, type, size);

    if (size != 0) {
        memcpy(buf + n, payload, size);
    }

    (void) send(fd, buf, n + size, MSG_NOSIGNAL);
}


static void
init_task(init_session_t *s, sbx_op_t op, const sbx_task_t *more, int call,
    const int *fds, unsigned nfds)
{
    int         all[SBX_TASK_FDS_MAX + 8];
    unsigned    i, n;
    sbx_task_t  task;

    if (more != NULL) {
        task = *more;

    } else {
        memset(&task, 0, sizeof(task));
    }

    task.magic = SBX_WIRE_MAGIC;
    task.version = SBX_WIRE_VERSION;
    task.op = (uint16_t) op;

    n = 0;

    if (call != -1) {
        all[n++] = call;
    }

    for (i = 0; i < nfds; i++) {
        all[n++] = fds[i];
    }

    if (sbx_wire_send(s->control, &task, sizeof(task), all, n, 0) == -1) {
        printf("Bail out! task: %s\n", strerror(errno));
        exit(1);
    }
}


static void
init_call(init_session_t *s, sbx_op_t op, const sbx_task_t *task,
    const int *fds, unsigned nfds, init_call_t *call)
{
    int  pair[2];

    if (socketpair(AF_UNIX, SOCK_STREAM|SOCK_CLOEXEC, 0, pair) == -1) {
        printf("Bail out! socketpair\n");
        exit(1);
    }

    init_task(s, op, task, pair[1], fds, nfds);
    (void) close(pair[1]);

    call->fd = pair[0];
    sbx_wire_init(&call->wire, call->buf, sizeof(call->buf));
}


static void
init_hang_up(init_call_t *call)
{
    (void) close(call->fd);
    call->fd = -1;
}


/* 1: a frame; 0: the end of the call, or (-1) none in time. */

static int
init_next(init_call_t *call, sbx_frame_t *frame, const uint8_t **payload,
    int *fd, int ms)
{
    int            rc, got[1];
    ssize_t        n;
    unsigned       nfds;
    struct pollfd  pfd;

    for ( ;; ) {
        rc = sbx_wire_next(&call->wire, frame, payload);

        if (rc != 0) {
            return rc;
        }

        pfd.fd = call->fd;
        pfd.events = POLLIN;

        if (poll(&pfd, 1, ms) != 1) {
            return -1;
        }

        nfds = 1;
        n = sbx_wire_recv(call->fd, call->buf + call->wire.end,
                          sizeof(call->buf) - call->wire.end, got, &nfds, 0);

        if (n <= 0) {
            return 0;
        }

        if (nfds == 1) {
            if (fd != NULL) {
                *fd = got[0];

            } else {
                (void) close(got[0]);
            }
        }

        call->wire.end += (size_t) n;
    }
}


static void
init_exec_begin(init_session_t *s, const init_exec_t *x, init_call_t *call)
{
    char          *strings;
    size_t         n, i, left;
    sbx_task_t     task;
    sbx_f_exec_t   exec;

    strings = calloc(1, SBX_STRINGS_MAX + 4096);
    memset(&exec, 0, sizeof(exec));
    n = 0;

#define ADD(str)                                                             \
    do {                                                                     \
        size_t  len_ = strlen(str) + 1;                                      \
        if (n + len_ <= SBX_STRINGS_MAX + 4096) {                            \
            memcpy(strings + n, str, len_);                                  \
            n += len_;                                                       \
        }                                                                    \
    } while (0)

    ADD(x->cwd != NULL ? x->cwd : "");

    for (i = 0; x->argv != NULL && x->argv[i] != NULL; i++) {
        ADD(x->argv[i]);
        exec.argc++;
    }

    for (i = 0; x->env != NULL && x->env[i] != NULL; i++) {
        ADD(x->env[i]);
        exec.envc++;
    }

    exec.flags = x->flags | (x->cwd == NULL ? SBX_EXEC_DEFAULT_CWD : 0);
    exec.user = x->user;
    exec.strings_size = (uint32_t) n;
    exec.timeout = x->timeout ? x->timeout : SBX_UNSET;
    exec.max_output = x->max_output ? x->max_output : SBX_UNSET;
    exec.cpu_seconds = x->cpu_seconds ? x->cpu_seconds : SBX_UNSET;
    exec.max_file_size = x->max_file_size ? x->max_file_size : SBX_UNSET;
    exec.open_files = x->open_files ? x->open_files : SBX_UNSET;
    exec.stack = x->stack ? x->stack : SBX_UNSET;
    exec.rows = x->rows;
    exec.cols = x->cols;
    (void) snprintf(exec.tag, sizeof(exec.tag), "%s",
                    x->tag != NULL ? x->tag : "");

    task = x->task;
    task.command = ++init_number;
    init_call(s, SBX_OP_EXEC, &task, x->fds, x->nfds, call);

    init_send(call->fd, SBX_F_EXEC, &exec, sizeof(exec));

    for (i = 0; i < n; i += left) {
        left = n - i < SBX_FRAME_MAX ? n - i : SBX_FRAME_MAX;
        init_send(call->fd, SBX_F_STRINGS, strings + i, left);
    }

    free(strings);
}


static void
init_append(char **buf, size_t *size, const uint8_t *data, size_t n)
{
    if (*buf == NULL) {
        *buf = calloc(1, INIT_OUT + 1);
    }

    if (n > INIT_OUT - *size) {
        n = INIT_OUT - *size;
    }

    memcpy(*buf + *size, data, n);
    *size += n;
    (*buf)[*size] = '\0';
}


/* Reads the call to its end. */

static void
init_finish(init_call_t *call, init_result_t *r)
{
    sbx_frame_t      frame;
    const uint8_t   *payload;
    sbx_f_started_t  started;

    while (!r->ended
           && init_next(call, &frame, &payload, NULL, INIT_WAIT) == 1)
    {
        switch (frame.type) {

        case SBX_F_ACCEPTED:
            r->accepted = 1;
            break;

        case SBX_F_STARTED:
            memcpy(&started, payload, sizeof(started));
            r->started = 1;
            r->pid = started.pid;
            break;

        case SBX_F_STDOUT:
            init_append(&r->out, &r->out_size, payload, frame.length);
            break;

        case SBX_F_STDERR:
            init_append(&r->err, &r->err_size, payload, frame.length);
            break;

        case SBX_F_EXIT:
            memcpy(&r->exit, payload, sizeof(r->exit));
            r->ended = SBX_F_EXIT;
            break;

        case SBX_F_ERROR:
            memcpy(&r->error, payload, sizeof(r->error));
            r->ended = SBX_F_ERROR;
            break;

        case SBX_F_END:
            memcpy(&r->end, payload, sizeof(r->end));
            r->ended = SBX_F_END;
            break;
        }
    }
}


static void
init_result_free(init_result_t *r)
{
    free(r->out);
    free(r->err);
    memset(r, 0, sizeof(*r));
}


static const char *
init_text(const char *s)
{
    return s != NULL ? s : "";
}


/* A whole command, its input in one go. */

static void
init_exec(init_session_t *s, const init_exec_t *x, init_result_t *r)
{
    size_t       i, n;
    init_call_t  call;

    init_result_free(r);
    init_exec_begin(s, x, &call);

    for (i = 0; i < x->input_size; i += n) {
        n = x->input_size - i < SBX_FRAME_MAX ? x->input_size - i
                                              : SBX_FRAME_MAX;
        init_send(call.fd, SBX_F_STDIN, x->input + i, n);
    }

    init_send(call.fd, SBX_F_STDIN, NULL, 0);
    init_finish(&call, r);
    init_hang_up(&call);
}


static void
init_shell(init_session_t *s, const char *script, init_result_t *r)
{
    init_exec_t  x = { 0 };
    const char  *argv[] = { "/bin/sh", "-c", script, NULL };

    x.argv = argv;
    x.flags = SBX_EXEC_CAP;
    init_exec(s, &x, r);
}


/* 1 if the script says "yes" before long. */

static int
init_until(init_session_t *s, const char *script)
{
    int            i, yes;
    init_result_t  r = { 0 };

    for (i = 0, yes = 0; i < 400 && !yes; i++) {
        init_shell(s, script, &r);
        yes = strcmp(init_text(r.out), "yes\n") == 0;

        if (!yes) {
            (void) usleep(5000);
        }
    }

    init_result_free(&r);

    return yes;
}


#endif
