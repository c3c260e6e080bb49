/*
 * A run, in the caller's thread: pipes for the command's streams, and a poll
 * on them and on the helper's socket until the helper has answered and the
 * pipes are at their end.
 */

#include "session.h"

#include "wire.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>


#define SBX_RUN_BUFFER   65536


typedef struct {
    sbx_sandbox_run_t             run;
    const sbx_sandbox_command_t  *c;
    uint64_t                      max;
    int                           out[2];         /* our ends */
    int                           in;
    const char                   *input;          /* still to be written */
    size_t                        input_left;
    char                          buf[SBX_RUN_BUFFER];
    char                          piece[4096];    /* of input_fd */
    sbx_box_answer_t              answer;
    int                           rc;
    unsigned                      answered:1;
    unsigned                      input_end:1;
} sbx_running_t;


static int sbx_running_check(const sbx_sandbox_t *sb,
    const sbx_sandbox_command_t *c, sbx_error_t *e);
static int sbx_running_start(sbx_sandbox_t *sb, sbx_running_t *r,
    sbx_box_request_t *request, pid_t *pid, sbx_error_t *e);
static int sbx_running_enter(sbx_sandbox_t *sb, sbx_running_t *r,
    sbx_error_t *e);
static void sbx_running_leave(sbx_sandbox_t *sb, sbx_running_t *r);
static int sbx_running_poll(sbx_running_t *r, sbx_sandbox_result_t *result,
    sbx_error_t *e);
static int sbx_running_read(sbx_running_t *r, int stream,
    sbx_sandbox_output_t *out, sbx_error_t *e);
static int sbx_running_keep(sbx_sandbox_output_t *out, const char *data,
    size_t size);
static void sbx_running_write(sbx_running_t *r);
static void sbx_running_result(const sbx_sandbox_t *sb,
    const sbx_running_t *r, sbx_sandbox_result_t *result);


int
sbx_sandbox_run(sbx_sandbox_t *sb, const sbx_sandbox_command_t *c,
    sbx_sandbox_result_t *result, sbx_error_t *e)
{
    int                 rc;
    pid_t               pid;
    sbx_running_t      *r;
    sbx_box_request_t   request;

    memset(result, 0, sizeof(sbx_sandbox_result_t));

    if (sbx_running_check(sb, c, e) == -1) {
        return -1;
    }

    r = calloc(1, sizeof(sbx_running_t));

    if (r == NULL) {
        return sbx_error(e, errno, SBX_E_INTERNAL, "no memory");
    }

    r->c = c;
    r->out[0] = -1;
    r->out[1] = -1;
    r->in = -1;
    r->run.socket = -1;
    r->max = c->max_output != SBX_UNSET ? c->max_output
                                        : sb->limits.max_output;

    sbx_helper_request(sb, SBX_BOX_RUN, &request);

    if (c->timeout != SBX_UNSET) {
        request.limits.exec_timeout = c->timeout;
    }

    rc = sbx_running_start(sb, r, &request, &pid, e);

    if (rc == 0) {
        rc = sbx_running_enter(sb, r, e);

        if (rc == 0) {
            rc = sbx_running_poll(r, result, e);
            sbx_running_leave(sb, r);
        }

        sbx_helper_end(r->run.socket, pid);
    }

    if (rc == 0) {
        sbx_running_result(sb, r, result);

    } else {
        sbx_sandbox_result_free(result);
    }

    if (r->in != -1) {
        (void) close(r->in);
    }

    if (r->out[0] != -1) {
        (void) close(r->out[0]);
    }

    if (r->out[1] != -1) {
        (void) close(r->out[1]);
    }

    free(r);

    return rc;
}


void
sbx_sandbox_result_free(sbx_sandbox_result_t *r)
{
    free(r->out.data);
    free(r->err.data);
    r->out.data = NULL;
    r->err.data = NULL;
    r->out.size = 0;
    r->err.size = 0;
}


static int
sbx_running_check(const sbx_sandbox_t *sb, const sbx_sandbox_command_t *c,
    sbx_error_t *e)
{
    size_t  i;

    (void) sb;

    if ((c->argv == NULL || c->argv[0] == NULL)
        && (c->argv != NULL || c->shell == NULL))
    {
        return sbx_error(e, 0, SBX_E_INVALID, "there is no command");
    }

    if (c->timeout == 0) {
        return sbx_error(e, 0, SBX_E_INVALID, "timeout must be above 0");
    }

    for (i = 0; c->env != NULL && c->env[i] != NULL; i++) {
        if (c->env[i][0] == '=' || strchr(c->env[i], '=') == NULL) {
            return sbx_error(e, 0, SBX_E_INVALID,
                             "env \"%.100s\" is not NAME=VALUE", c->env[i]);
        }
    }

    return 0;
}


static int
sbx_running_start(sbx_sandbox_t *sb, sbx_running_t *r,
    sbx_box_request_t *request, pid_t *pid, sbx_error_t *e)
{
    int          rc, pair[2], fds[3];
    unsigned     n;
    sbx_auto_fd  in = -1, out = -1, err = -1;

    n = 0;

    if (r->c->input != NULL || r->c->input_fd != -1) {
        if (pipe2(pair, O_CLOEXEC) == -1) {
            return sbx_error(e, errno, SBX_E_INTERNAL, "pipe2() failed");
        }

        in = pair[0];
        r->in = pair[1];
        (void) fcntl(r->in, F_SETFL, O_NONBLOCK);
        r->input = r->c->input;
        r->input_left = r->c->input != NULL ? r->c->input_size : 0;
        r->input_end = r->c->input != NULL;
        request->flags |= SBX_BOX_INPUT;
        fds[n++] = in;
    }

    if (pipe2(pair, O_CLOEXEC) == -1) {
        return sbx_error(e, errno, SBX_E_INTERNAL, "pipe2() failed");
    }

    r->out[0] = pair[0];
    out = pair[1];

    if (pipe2(pair, O_CLOEXEC) == -1) {
        return sbx_error(e, errno, SBX_E_INTERNAL, "pipe2() failed");
    }

    r->out[1] = pair[0];
    err = pair[1];
    fds[n++] = out;
    fds[n++] = err;

    rc = sbx_helper_start(sb, request, r->c, fds, n, &r->run.socket, pid, e);

    if (rc == 0) {
        (void) fcntl(r->out[0], F_SETFL, O_NONBLOCK);
        (void) fcntl(r->out[1], F_SETFL, O_NONBLOCK);
    }

    return rc;
}


static int
sbx_running_enter(sbx_sandbox_t *sb, sbx_running_t *r, sbx_error_t *e)
{
    int  closed;

    (void) pthread_mutex_lock(&sb->mutex);

    closed = (int) sb->closed;

    if (!closed) {
        sb->nruns++;
        r->run.next = sb->runs;
        sb->runs = &r->run;
    }

    (void) pthread_mutex_unlock(&sb->mutex);

    return closed ? sbx_error(e, 0, SBX_E_CONFLICT, "the sandbox is closed")
                  : 0;
}


static void
sbx_running_leave(sbx_sandbox_t *sb, sbx_running_t *r)
{
    sbx_sandbox_run_t  **p;

    (void) pthread_mutex_lock(&sb->mutex);

    for (p = &sb->runs; *p != &r->run; p = &(*p)->next) { /* void */ }

    *p = r->run.next;
    sb->nruns--;

    if (sb->nruns == 0) {
        (void) pthread_cond_broadcast(&sb->idle);
    }

    (void) pthread_mutex_unlock(&sb->mutex);
}


static int
sbx_running_poll(sbx_running_t *r, sbx_sandbox_result_t *result,
    sbx_error_t *e)
{
    struct pollfd  fds[5];

    while (!r->answered || r->out[0] != -1 || r->out[1] != -1) {
        memset(fds, 0, sizeof(fds));
        fds[0].fd = r->answered ? -1 : r->run.socket;
        fds[1].fd = r->out[0];
        fds[2].fd = r->out[1];
        fds[3].fd = r->input_left != 0 || r->input_end ? r->in : -1;
        fds[4].fd = r->in != -1 && r->input_left == 0 && !r->input_end
                    ? r->c->input_fd : -1;
        fds[0].events = fds[1].events = fds[2].events = POLLIN;
        fds[4].events = POLLIN;
        fds[3].events = POLLOUT;

        if (poll(fds, 5, -1) == -1) {
            if (errno == EINTR) {
                continue;
            }

            return sbx_error(e, errno, SBX_E_INTERNAL, "poll() failed");
        }

        if (fds[0].revents != 0) {
            if (sbx_helper_answer(r->run.socket, &r->answer, e) == -1) {
                return -1;
            }

            r->answered = 1;
        }

        if ((fds[1].revents != 0
             && sbx_running_read(r, 0, &result->out, e) == -1)
            || (fds[2].revents != 0
                && sbx_running_read(r, 1, &result->err, e) == -1))
        {
            return -1;
        }

        if (fds[3].revents != 0 || fds[4].revents != 0) {
            sbx_running_write(r);
        }
    }

    return 0;
}


static int
sbx_running_read(sbx_running_t *r, int stream, sbx_sandbox_output_t *out,
    sbx_error_t *e)
{
    size_t   keep;
    ssize_t  n;

    n = read(r->out[stream], r->buf, sizeof(r->buf));

    if (n == -1 && (errno == EAGAIN || errno == EINTR)) {
        return 0;
    }

    if (n <= 0) {
        (void) close(r->out[stream]);
        r->out[stream] = -1;
        return 0;
    }

    keep = out->total >= r->max ? 0
           : r->max - out->total < (size_t) n ? (size_t) (r->max - out->total)
           : (size_t) n;

    out->total += (size_t) n;
    out->truncated |= keep < (size_t) n;

    if (keep == 0) {
        return 0;
    }

    if (r->c->output != NULL) {
        r->c->output(stream + 1, r->buf, keep, r->c->ctx);
        return 0;
    }

    return sbx_running_keep(out, r->buf, keep) == 0 ? 0
           : sbx_error(e, errno, SBX_E_INTERNAL, "no memory");
}


static int
sbx_running_keep(sbx_sandbox_output_t *out, const char *data, size_t size)
{
    char    *grown;
    size_t   room;

    /* doubles: a NUL always fits after it */

    for (room = 4096; room < out->size + 1; room *= 2) { /* void */ }

    if (out->data == NULL || room < out->size + size + 1) {
        while (room < out->size + size + 1) {
            room *= 2;
        }

        grown = realloc(out->data, room);

        if (grown == NULL) {
            return -1;
        }

        out->data = grown;
    }

    memcpy(out->data + out->size, data, size);
    out->size += size;
    out->data[out->size] = '\0';

    return 0;
}


/* The thread's SIGPIPE is blocked for the write, and taken if it came. */
static ssize_t
sbx_running_pipe(int fd, const void *data, size_t size)
{
    int              err;
    ssize_t          n;
    sigset_t         pipe_signal, old, pending;
    struct timespec  now = { 0, 0 };

    (void) sigemptyset(&pipe_signal);
    (void) sigaddset(&pipe_signal, SIGPIPE);
    (void) sigemptyset(&pending);
    (void) sigpending(&pending);
    (void) pthread_sigmask(SIG_BLOCK, &pipe_signal, &old);

    n = write(fd, data, size);
    err = errno;

    if (n == -1 && err == EPIPE && !sigismember(&pending, SIGPIPE)) {
        while (sigtimedwait(&pipe_signal, NULL, &now) == -1
               && errno == EINTR)
        { /* void */ }
    }

    (void) pthread_sigmask(SIG_SETMASK, &old, NULL);
    errno = err;

    return n;
}


/*
 * Always through a pipe: a descriptor of a file would be a way to the file,
 * with the rights of the host's mount.
 */
static void
sbx_running_write(sbx_running_t *r)
{
    ssize_t  n;

    if (r->input_left == 0 && !r->input_end) {
        n = read(r->c->input_fd, r->piece, sizeof(r->piece));

        if (n == -1 && (errno == EAGAIN || errno == EINTR)) {
            return;
        }

        r->input_end = n <= 0;

        if (n > 0) {
            r->input = r->piece;
            r->input_left = (size_t) n;
        }
    }

    while (r->input_left != 0) {
        n = sbx_running_pipe(r->in, r->input, r->input_left);

        if (n == -1) {
            if (errno == EAGAIN || errno == EINTR) {
                return;
            }

            r->input_left = 0;
            r->input_end = 1;
            break;
        }

        r->input += n;
        r->input_left -= (size_t) n;
    }

    if (r->input_end) {
        (void) close(r->in);
        r->in = -1;
    }
}


static const char *
sbx_running_word(uint64_t asked, uint8_t by)
{
    return asked >= SBX_UNLIMITED ? NULL
                                  : sbx_enforce_word((sbx_enforce_t) by);
}


static void
sbx_running_result(const sbx_sandbox_t *sb, const sbx_running_t *r,
    sbx_sandbox_result_t *result)
{
    const sbx_limits_t         *l;
    const sbx_f_exit_t         *x;
    const sbx_enforcement_t    *by;
    sbx_sandbox_enforcement_t  *enf;

    x = &r->answer.exit;
    by = &r->answer.enforcement;
    enf = &result->enforcement;
    l = &sb->limits;

    result->pid = x->pid;
    result->exit_code = x->exit_code;
    result->signal = x->signal;
    result->reason = sbx_reason_word((sbx_reason_t) x->reason);
    result->timed_out = (x->flags & SBX_EXIT_TIMED_OUT) != 0;
    result->oom_killed = (x->flags & SBX_EXIT_OOM_KILLED) != 0;
    result->cancelled = (x->flags & SBX_EXIT_CANCELLED) != 0;
    result->duration_us = x->duration_us;
    result->cpu_user_us = x->cpu_user_us;
    result->cpu_system_us = x->cpu_system_us;
    result->memory_peak = x->memory_peak;
    result->processes_peak = x->processes_peak;
    result->read_bytes = x->read_bytes;
    result->written_bytes = x->written_bytes;
    result->throttled_us = x->throttled_us;
    result->isolated = r->answer.isolated;
    result->backend = (sbx_backend_t) r->answer.backend;
    result->measured = r->answer.measured == SBX_BY_NONE ? "processes"
                       : sbx_enforce_word((sbx_enforce_t) r->answer.measured);
    memcpy(result->note, r->answer.note, sizeof(result->note));

    enf->memory = sbx_running_word(l->memory, by->memory);
    enf->cpus = sbx_running_word(l->cpus, by->cpus);
    enf->cpu_seconds = sbx_running_word(l->cpu_seconds, by->cpu_seconds);
    enf->processes = sbx_running_word(l->processes, by->processes);
    enf->max_file_size = sbx_running_word(l->max_file_size,
                                          by->max_file_size);
    enf->open_files = sbx_running_word(l->open_files, by->open_files);
    enf->stack = sbx_running_word(l->stack, by->stack);
    enf->seccomp = sbx_enforce_word((sbx_enforce_t) by->seccomp);

    if (result->out.data == NULL && r->c->output == NULL) {
        result->out.data = strdup("");
    }

    if (result->err.data == NULL && r->c->output == NULL) {
        result->err.data = strdup("");
    }
}
