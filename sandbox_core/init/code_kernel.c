/*
 * The process of a context.  Its group comes from the broker, who is asked by
 * a record and answers by a task with the same token; one that dies before it
 * has answered is asked again, and an answer that nobody waits for any more
 * is given back as a command that never was.
 *
 * From then on it is a command like others, but for three things: its output
 * and its frames are the context's, its processor time counts anew with each
 * run, and all that it leaves behind dies with it.
 */

#include "init_code.h"
#include "init_command.h"
#include "sandbox_fault.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>


#define SBX_CODE_ASK_AGAIN   1000000     /* us */
#define SBX_CODE_ROOM_AGAIN  5000
#define SBX_CODE_MUTE        1000000     /* from the end of its socket to a
                                            kill: it may just be ending */


static void sbx_code_launch(sbx_code_context_t *context);
static size_t sbx_code_launch_size(const sbx_code_context_t *context,
    sbx_f_exec_t *exec);
static void sbx_code_launch_strings(const sbx_code_context_t *context,
    char *p);


static uint32_t  sbx_code_tokens;
static size_t    sbx_code_unsent;       /* bytes on their way to kernels */


void
sbx_code_start(sbx_code_context_t *context)
{
    context->kernel = SBX_KERNEL_ASKED;
    context->token = ++sbx_code_tokens;
    context->ask = sbx_now_us() + SBX_CODE_ASK_AGAIN;
    sbx_init_loop_wake(context->ask);

    (void) sbx_init_record_ask(SBX_R_GROUP, context->token, 0);
    SBX_FAULT("init-kernel-asked");
}


void
sbx_init_code_group(const sbx_task_t *task, int *fds, unsigned nfds)
{
    sbx_error_t          e;
    sbx_f_error_t        error;
    sbx_init_command_t  *c;
    sbx_code_context_t  *context;

    for (context = sbx_code_context_each(NULL);
         context != NULL;
         context = sbx_code_context_each(context))
    {
        if (context->kernel == SBX_KERNEL_ASKED
            && context->token == task->token)
        {
            break;
        }
    }

    c = context != NULL && task->refused == 0 ? sbx_init_command_new() : NULL;

    if (c != NULL) {
        SBX_FAULT("init-kernel-group");
        c->number = task->command;
        c->state = SBX_INIT_ASKED;
        c->code = context;
        sbx_init_exec_group(c, task, fds, nfds);

        context->command = c;
        context->kernel = SBX_KERNEL_ROOM;

        if (c->nattach == task->attach_count) {
            sbx_code_launch(context);
            return;
        }

        /* it would run outside its group */

        (void) sbx_code_kill(context, SBX_REASON_SIGNAL);
        nfds = 0;
    }

    while (nfds != 0) {
        (void) close(fds[--nfds]);
    }

    if (task->refused == 0 && c == NULL) {
        sbx_init_record_over(task->command, NULL);
    }

    if (context == NULL) {
        return;
    }

    (void) sbx_error(&e, 0, task->refused != 0 && task->refused < SBX_E_MAX
                            ? (sbx_code_t) task->refused : SBX_E_QUOTA,
                     "the session has no room for another interpreter");
    sbx_init_error_fill(&error, &e);
    error.retry_after = 1;

    if (e.code == SBX_E_QUOTA) {
        memcpy(error.scope, "session", sizeof("session"));
        memcpy(error.resource, "commands", sizeof("commands"));
        error.limit = SBX_COMMANDS_MAX;
    }

    sbx_code_lost(context, &error);
}


static void
sbx_code_launch(sbx_code_context_t *context)
{
    uint64_t             seconds, now;
    sbx_error_t          e;
    sbx_f_exec_t        *exec;
    sbx_f_error_t        error;
    sbx_init_launch_t   *launch;
    sbx_init_command_t  *c;

    c = context->command;
    exec = &c->exec;
    memset(exec, 0xff, sizeof(sbx_f_exec_t));
    exec->flags = 0;
    memset(exec->tag, 0, sizeof(exec->tag));

    (void) sbx_init_exec_limits(exec, NULL);

    exec->user = SBX_USER_USER;
    exec->flags = context->cwd[0] == '\0' ? SBX_EXEC_DEFAULT_CWD : 0;
    exec->timeout = SBX_UNLIMITED;
    exec->strings_size = (uint32_t) sbx_code_launch_size(context, exec);
    (void) snprintf(exec->tag, sizeof(exec->tag), "%s", context->id);

    launch = sbx_init_launch_room() ? sbx_init_launch_new(exec) : NULL;
    now = sbx_now_us();

    if (launch == NULL) {
        context->ask = now + SBX_CODE_ROOM_AGAIN;
        sbx_init_loop_wake(context->ask);
        return;
    }

    sbx_code_launch_strings(context, launch->strings);
    sbx_init_launch_cpus(launch, c);
    c->launch = launch;

    if (sbx_init_launch_strings(launch, exec, &e) != 0) {
        sbx_init_error_fill(&error, &e);
        sbx_init_exec_fail(c, &error);
        return;
    }

    (void) snprintf(c->program, sizeof(c->program), "%s", launch->argv[0]);

    /* the kernel's own limit would count all runs together */

    seconds = exec->cpu_seconds;
    exec->cpu_seconds = SBX_UNLIMITED;

    context->kernel = SBX_KERNEL_STARTING;
    context->ready_at = 0;
    context->late = 0;
    context->unread = 0;
    context->executions = 0;
    context->ready_by = now + SBX_CODE_READY_WAIT;
    sbx_init_loop_wake(context->ready_by);

    sbx_init_command_start(c, 0);

    if (context->command == c) {
        exec->cpu_seconds = seconds;
        sbx_init_code_cpu(c);
    }
}


static size_t
sbx_code_launch_size(const sbx_code_context_t *context, sbx_f_exec_t *exec)
{
    size_t                 size;
    uint32_t               i;
    const char            *p;
    const sbx_language_t  *l;

    l = &context->language;
    exec->argc = l->argc;
    exec->envc = l->envc;
    size = strlen(context->cwd) + 1;

    for (p = l->args, i = 0; i < l->argc; i++) {
        size += strlen(p) + 1;
        size += p[0] == '@' && p[1] == '/'
                ? strlen(SBX_KERNELS_INSIDE) + strlen(l->name) : 0;
        p += strlen(p) + 1;
    }

    for (p = l->env, i = 0; i < l->envc; i++) {
        size += strlen(p) + 1;
        p += strlen(p) + 1;
    }

    return size;
}


/* "@/" stands for SBX_KERNELS_INSIDE/<name>/. */

static void
sbx_code_launch_strings(const sbx_code_context_t *context, char *p)
{
    uint32_t               i;
    const char            *s;
    const sbx_language_t  *l;

    l = &context->language;
    p = stpcpy(p, context->cwd) + 1;

    for (s = l->args, i = 0; i < l->argc; i++) {
        if (s[0] == '@' && s[1] == '/') {
            p = stpcpy(p, SBX_KERNELS_INSIDE "/");
            p = stpcpy(p, l->name);
            p = stpcpy(p, s + 1) + 1;

        } else {
            p = stpcpy(p, s) + 1;
        }

        s += strlen(s) + 1;
    }

    for (s = l->env, i = 0; i < l->envc; i++) {
        p = stpcpy(p, s) + 1;
        s += strlen(s) + 1;
    }
}


/* The ends that the process is given. */

int
sbx_init_code_pipes(sbx_init_command_t *c)
{
    int                  i, fds[2];
    sbx_code_context_t  *context;

    context = c->code;

    for (i = 0; i < SBX_CODE_FRAMES; i++) {
        if (sbx_init_pipe(c, 0, fds) == -1) {
            return -1;
        }

        context->sources[i].fd = fds[0];
        c->launch->stdio[i + 1] = fds[1];
    }

    if (socketpair(AF_UNIX, SOCK_STREAM|SOCK_CLOEXEC, 0, fds) == -1) {
        return -1;
    }

    context->sources[SBX_CODE_FRAMES].fd = fds[0];
    c->launch->extra = fds[1];
    sbx_code_pump(context);

    return 0;
}


/* Its processor time counts from now on. */

void
sbx_init_code_cpu(sbx_init_command_t *c)
{
    if (c->exec.cpu_seconds == SBX_UNLIMITED) {
        return;
    }

    c->cpu_base = 0;
    c->cpu_base = sbx_init_usage_cpu(c);
    sbx_init_command_cpu(c, sbx_now_us());
    sbx_init_loop_wake(c->poll);
}


/* There is no process, or one that never came to its program. */

void
sbx_init_code_fail(sbx_init_command_t *c, const sbx_f_error_t *error)
{
    sbx_code_context_t  *context;

    context = c->code;
    c->code = NULL;
    context->command = NULL;

    sbx_code_pump_close(context);
    sbx_code_lost(context, error);
}


/* The process is dead, and all that it has started. */

void
sbx_init_code_over(sbx_init_command_t *c)
{
    sbx_code_context_t  *context;

    context = c->code;
    c->code = NULL;

    context->command = NULL;
    context->exit = c->exit;
    context->failed = c->failed;
    context->kernel = SBX_KERNEL_DYING;
    context->over = 1;

    sbx_code_pump_last(context);
    sbx_code_pump(context);
}


void
sbx_init_code_heard(sbx_init_command_t *c)
{
    sbx_code_pump(c->code);
}


int
sbx_code_kill(sbx_code_context_t *context, sbx_reason_t reason)
{
    sbx_init_command_t  *c;

    c = context->command;

    switch (context->kernel) {

    case SBX_KERNEL_NONE:
        return 0;

    case SBX_KERNEL_ASKED:
        context->kernel = SBX_KERNEL_NONE;
        return 0;

    case SBX_KERNEL_ROOM:
        context->command = NULL;
        context->kernel = SBX_KERNEL_NONE;
        c->code = NULL;
        sbx_init_command_free(c);
        return 0;

    case SBX_KERNEL_DYING:
        return 1;

    default:
        context->kernel = SBX_KERNEL_DYING;

        if (reason == SBX_REASON_SIGNAL
            && context->cut != SBX_REASON_EXITED)
        {
            reason = context->cut;
        }

        if (c != NULL) {
            sbx_init_command_kill(c, reason);
        }

        return 1;
    }
}


void
sbx_code_interrupt(sbx_code_context_t *context, sbx_reason_t reason)
{
    uint64_t  now;

    if (context->cut != SBX_REASON_EXITED
        || context->kernel != SBX_KERNEL_RUNNING)
    {
        return;
    }

    now = sbx_now_us();

    context->cut = reason;
    context->cut_next = now + SBX_CODE_INTERRUPT;
    context->cut_kill = now + (uint64_t) context->language.grace * 1000000;
    sbx_init_loop_wake(context->cut_next);

    (void) sbx_init_command_signal(context->command, SIGINT);
}


void
sbx_code_kernel_tick(sbx_code_context_t *context, uint64_t now)
{
    switch (context->kernel) {

    case SBX_KERNEL_ASKED:
        if (now >= context->ask) {
            context->ask = now + SBX_CODE_ASK_AGAIN;
            (void) sbx_init_record_ask(SBX_R_GROUP, context->token, 0);
        }

        sbx_init_loop_wake(context->ask);
        return;

    case SBX_KERNEL_ROOM:
        if (now >= context->ask) {
            sbx_code_launch(context);

        } else {
            sbx_init_loop_wake(context->ask);
        }

        return;

    case SBX_KERNEL_STARTING:
        if (sbx_init_paused()) {
            return;
        }

        if (now >= context->ready_by) {
            context->late = 1;
            (void) sbx_code_kill(context, SBX_REASON_TIMEOUT);
            return;
        }

        sbx_init_loop_wake(context->ready_by);
        break;

    case SBX_KERNEL_READY:
        if (context->run != NULL && !context->run->sent) {
            /* it waits for room */
            sbx_code_next(context);
            return;
        }

        break;

    case SBX_KERNEL_RUNNING:
        break;

    default:
        return;
    }

    if (sbx_init_paused()) {
        return;
    }

    if (context->cut_kill != 0 && now >= context->cut_kill) {
        (void) sbx_code_kill(context, SBX_REASON_SIGNAL);
        return;
    }

    if (context->cut_next != 0 && now >= context->cut_next) {
        context->cut_next = now + SBX_CODE_INTERRUPT;
        (void) sbx_init_command_signal(context->command, SIGINT);
    }

    if (context->cut_next != 0) {
        sbx_init_loop_wake(context->cut_next);
    }

    if (context->cut_kill != 0) {
        sbx_init_loop_wake(context->cut_kill);
    }
}


/* Its socket has ended. */

void
sbx_code_mute(sbx_code_context_t *context)
{
    if (context->over || context->cut_kill != 0) {
        return;
    }

    context->cut_kill = sbx_now_us() + SBX_CODE_MUTE;
    sbx_init_loop_wake(context->cut_kill);
}


void
sbx_code_ready(sbx_code_context_t *context)
{
    if (context->kernel != SBX_KERNEL_STARTING) {
        return;
    }

    if (context->setup) {
        sbx_code_setup(context);
        return;
    }

    SBX_FAULT("init-kernel-ready");
    context->kernel = SBX_KERNEL_READY;
    context->ready_at = sbx_now_us();
    context->ready_by = 0;
    sbx_init_log_kernel(context, 0);
    sbx_code_started(context);
}


void
sbx_code_run(sbx_code_context_t *context)
{
    char             *body, *s;
    char              id[24];
    int               n, rc;
    size_t            size, used;
    uint32_t          i;
    sbx_error_t       e;
    sbx_code_call_t  *run;

    run = context->run;
    body = NULL;
    size = 0;
    used = 0;

    if (sbx_code_unsent != 0
        && sbx_code_unsent + run->ask.strings_size > SBX_CODE_WAITING)
    {
        sbx_init_loop_wake(sbx_now_us() + SBX_CODE_ROOM_AGAIN);
        return;
    }

    n = snprintf(id, sizeof(id), "%llu",
                 (unsigned long long) context->executions + 1);

    rc = sbx_code_append(&body, &size, &used, "id", id, (size_t) n);

    if (rc == 0) {
        rc = sbx_code_append(&body, &size, &used, "code", run->strings,
                             run->ask.code_size);
    }

    s = run->strings != NULL ? run->strings + run->ask.code_size : NULL;

    for (i = 0; i < run->ask.envc && s != NULL && rc == 0; i++) {
        rc = sbx_code_append(&body, &size, &used, "env", s, strlen(s));
        s += strlen(s) + 1;
    }

    if (rc == -1) {
        context->run = NULL;
        (void) sbx_error(&e, ENOMEM, SBX_E_UNAVAILABLE, "out of memory");
        sbx_code_error(run, &e);
        sbx_code_next(context);
        return;
    }

    (void) clock_gettime(CLOCK_REALTIME_COARSE, &run->since);

    run->sent = 1;
    context->kernel = SBX_KERNEL_RUNNING;
    context->crumbs = 0;
    context->dropped = 0;
    run->ran.execution = ++context->executions;

    if (context->ready_at > run->turn) {
        run->ran.started_us = context->ready_at - run->turn;
    }

    sbx_init_code_cpu(context->command);

    if (sbx_code_frame(context, "run", body, used) == -1) {
        /* it is dead, which the loop is about to be told: nothing of this
         * has been run */
        run->sent = 0;
        context->executions--;
        (void) sbx_code_kill(context, SBX_REASON_SIGNAL);
        return;
    }

    if (run->ask.strings_size > SBX_CODE_AGAIN) {
        sbx_code_strings_free(run);
    }

    SBX_FAULT("init-code-begun");
    sbx_code_pump(context);
    SBX_FAULT("init-code-told");
}


int
sbx_code_append(char **body, size_t *size, size_t *used, const char *name,
    const char *value, size_t len)
{
    int      n;
    char    *p;
    size_t   need;

    /* and room for the line that begins the frame */

    need = *used + strlen(name) + len + 64;

    if (need > *size) {
        *size = need * 2 < 1024 ? 1024 : need + need / 4;
        p = realloc(*body, *size);

        if (p == NULL) {
            free(*body);
            *body = NULL;
            return -1;
        }

        *body = p;
    }

    p = *body + *used;
    n = sprintf(p, "%s %zu\n", name, len);
    p += n;

    if (len != 0) {
        memcpy(p, value, len);
    }

    p[len] = '\n';
    *used += (size_t) n + len + 1;

    return 0;
}


/* Takes the body, of which size bytes are used; there is room for a line. */

int
sbx_code_frame(sbx_code_context_t *context, const char *type, char *body,
    size_t size)
{
    int   n;
    char  line[48];

    n = snprintf(line, sizeof(line), "%s %zu\n", type, size);
    memmove(body + n, body, size);
    memcpy(body, line, (size_t) n);

    sbx_code_unwrite(context);
    context->frame = body;
    context->frame_start = 0;
    context->frame_end = size + (size_t) n;
    sbx_code_unsent += context->frame_end;

    return sbx_code_write(context);
}


void
sbx_code_unwrite(sbx_code_context_t *context)
{
    if (context->frame != NULL) {
        free(context->frame);
        context->frame = NULL;
        sbx_code_unsent -= context->frame_end;
    }
}


int
sbx_code_write(sbx_code_context_t *context)
{
    int      fd;
    ssize_t  n;

    if (context->frame == NULL) {
        return 0;
    }

    fd = context->sources[SBX_CODE_FRAMES].fd;

    while (fd != -1 && context->frame_start < context->frame_end) {
        n = send(fd, context->frame + context->frame_start,
                 context->frame_end - context->frame_start,
                 MSG_DONTWAIT|MSG_NOSIGNAL);

        if (n == -1 && errno == EINTR) {
            continue;
        }

        if (n == -1 && errno == EAGAIN) {
            return 0;
        }

        if (n == -1) {
            break;
        }

        context->frame_start += (size_t) n;
    }

    n = context->frame_start < context->frame_end ? -1 : 0;
    sbx_code_unwrite(context);

    return (int) n;
}
