/*
 * What happens in a context.  Of the runs in its queue one has its turn; a
 * kernel is started when there is something for it to do, and stays until it
 * dies, by itself or because the context is restarted or deleted.
 */

#include "init_code.h"
#include "sandbox_fault.h"

#include <string.h>


static void sbx_code_turn(sbx_code_context_t *context);
static void sbx_code_cancel(sbx_code_context_t *context, sbx_reason_t reason,
    uint32_t flags);
static void sbx_code_answer(sbx_code_context_t *context,
    const sbx_f_error_t *error);
static int sbx_code_unread(const sbx_code_context_t *context);
static void sbx_code_died(sbx_code_context_t *context);
static void sbx_code_context_tick(sbx_code_context_t *context, uint64_t now);


void
sbx_code_next(sbx_code_context_t *context)
{
    if (!context->used || context->over
        || context->kernel == SBX_KERNEL_DYING)
    {
        return;
    }

    if (sbx_init.ending) {
        sbx_code_cancel(context, SBX_REASON_SESSION_ENDED, SBX_RAN_DIED);
        return;
    }

    if (context->kernel == SBX_KERNEL_READY
        && context->sources[SBX_CODE_FRAMES].fd == -1)
    {
        /* it says nothing any more */
        (void) sbx_code_kill(context, SBX_REASON_SIGNAL);
        return;
    }

    sbx_code_turn(context);

    if (!context->used) {
        return;
    }

    switch (context->kernel) {

    case SBX_KERNEL_NONE:
        if (context->run != NULL) {
            (void) sbx_code_flush(context->run);
        }

        if (context->run != NULL || context->starts) {
            sbx_code_start(context);
        }

        return;

    case SBX_KERNEL_READY:
        if (context->setup) {
            sbx_code_setup(context);
            return;
        }

        if (context->run != NULL && !context->run->sent) {
            /* what there is for the worker goes when the kernel has begun */
            sbx_code_run(context);
        }

        return;

    default:
        /* what has become empty is filled again, and nobody else sees that
         * it has */
        if (context->run != NULL) {
            sbx_code_pump(context);
        }

        return;
    }
}


static void
sbx_code_turn(sbx_code_context_t *context)
{
    sbx_code_call_t  *run;

    run = context->queue;

    if (context->run != NULL || run == NULL) {
        return;
    }

    if (run->state == SBX_CODE_CALL_STRINGS) {
        sbx_code_head(run);
        return;
    }

    context->queue = run->next;
    context->run = run;

    run->next = NULL;
    run->state = SBX_CODE_CALL_TURN;
    run->turn = sbx_now_us();

    if (run->ask.timeout != SBX_UNLIMITED) {
        run->deadline = run->turn + run->ask.timeout * 1000;
        sbx_init_loop_wake(run->deadline);
    }

    sbx_code_context_frame(run, context);
}


/* Runs that wait, and the one that waits for a kernel. */

static void
sbx_code_cancel(sbx_code_context_t *context, sbx_reason_t reason,
    uint32_t flags)
{
    sbx_code_call_t  *call;

    while (context->queue != NULL) {
        call = context->queue;
        context->queue = call->next;
        call->next = NULL;
        sbx_code_never(call, reason, flags);
    }

    call = context->run;

    if (call != NULL && !call->sent
        && (context->kernel < SBX_KERNEL_STARTING
            || reason == SBX_REASON_SESSION_ENDED || flags == 0))
    {
        context->run = NULL;
        sbx_code_never(call, reason, flags);
    }
}


void
sbx_code_delete(sbx_code_context_t *context, sbx_code_call_t *call)
{
    sbx_error_t    e;
    sbx_f_error_t  error;

    (void) sbx_error(&e, 0, SBX_E_CONTEXT, "the context \"%s\" has been "
                     "deleted", context->id);
    sbx_init_error_fill(&error, &e);

    context->deleted = 1;
    context->starts = 0;
    sbx_code_answer(context, &error);
    sbx_code_warmed(context, SBX_REASON_CANCELLED);

    if (call != NULL) {
        sbx_code_wait(context, call);
    }

    if (!sbx_code_kill(context, SBX_REASON_CANCELLED)) {
        sbx_code_cancel(context, SBX_REASON_CANCELLED, SBX_RAN_DIED);
        sbx_code_free(context);
        return;
    }

    sbx_code_cancel(context, SBX_REASON_CANCELLED, SBX_RAN_DIED);
}


void
sbx_code_restart(sbx_code_context_t *context, sbx_code_call_t *call)
{
    int  dying;

    context->starts = 1;
    sbx_code_wait(context, call);

    dying = sbx_code_kill(context, SBX_REASON_CANCELLED);
    sbx_code_cancel(context, SBX_REASON_CANCELLED, SBX_RAN_DIED);

    if (!dying) {
        sbx_code_next(context);
    }
}


/* Those that wait for a start are answered: NULL, it is there.  Those that
 * wait for the context's end go on to wait. */

static void
sbx_code_answer(sbx_code_context_t *context, const sbx_f_error_t *error)
{
    sbx_code_call_t  *call, *next, *others;

    others = NULL;

    for (call = context->waiters; call != NULL; call = next) {
        next = call->next;

        if (call->ask.verb == SBX_CODE_DELETE) {
            call->next = others;
            others = call;
            continue;
        }

        call->next = NULL;

        if (error != NULL) {
            sbx_code_refuse(call, error);

        } else {
            sbx_code_context_frame(call, context);
            sbx_code_end(call);
        }
    }

    context->waiters = others;
}


void
sbx_code_left(sbx_code_context_t *context)
{
    sbx_code_call_t  *run;

    run = context->run;

    if (run->sent) {
        sbx_code_interrupt(context, SBX_REASON_DISCONNECTED);
        sbx_code_pump(context);
        return;
    }

    context->run = NULL;
    sbx_code_call_free(run);
    sbx_code_pump(context);
    sbx_code_next(context);
}


void
sbx_code_started(sbx_code_context_t *context)
{
    context->starts = 0;
    sbx_code_answer(context, NULL);
    sbx_code_warmed(context, 0);
    sbx_code_next(context);
}


/* Nobody else's fault than of the one whose turn it is. */

void
sbx_code_lost(sbx_code_context_t *context, const sbx_f_error_t *error)
{
    int               created;
    sbx_code_call_t  *call;

    created = 0;

    for (call = context->waiters; call != NULL; call = call->next) {
        created |= call->created;
    }

    context->starts = 0;
    context->kernel = SBX_KERNEL_NONE;
    sbx_code_answer(context, error);
    sbx_code_warmed(context, SBX_REASON_NOT_STARTED);

    call = context->run;
    context->run = NULL;

    if (call != NULL) {
        sbx_code_refuse(call, error);
    }

    if (context->deleted || created) {
        context->deleted = 1;
        sbx_code_cancel(context, SBX_REASON_CANCELLED, SBX_RAN_DIED);
        sbx_code_free(context);
        return;
    }

    sbx_code_next(context);
}


void
sbx_code_finish(sbx_code_context_t *context)
{
    sbx_code_call_t  *run;

    run = context->run;
    context->run = NULL;
    SBX_FAULT("init-code-over");

    if (!context->over) {
        context->kernel = SBX_KERNEL_READY;
    }

    run->ran.exit_code = (int32_t) context->parser.exit;
    run->ran.reason = context->cut;

    context->cut = SBX_REASON_EXITED;
    context->cut_next = 0;
    context->cut_kill = 0;

    if (context->sources[SBX_CODE_FRAMES].fd == -1) {
        sbx_code_mute(context);
    }

    sbx_code_files(run);
    sbx_code_ran(run);
    sbx_code_next(context);
}


void
sbx_code_over(sbx_code_context_t *context)
{
    sbx_error_t    e;
    sbx_f_error_t  error;

    sbx_code_pump_close(context);
    context->over = 0;
    context->kernel = SBX_KERNEL_NONE;
    context->executions = 0;
    context->cut_next = 0;
    context->cut_kill = 0;

    if (context->cut != SBX_REASON_EXITED
        && (context->exit.reason == SBX_REASON_EXITED
            || context->exit.reason == SBX_REASON_SIGNAL))
    {
        /* by what should only have interrupted its run */
        context->exit.reason = context->cut;
    }

    context->cut = SBX_REASON_EXITED;
    sbx_init_log_kernel(context, 1);

    if (context->exit.reason == SBX_REASON_NOT_STARTED) {
        (void) sbx_error(&e, context->failed, SBX_E_CAPABILITY,
                         "the interpreter \"%.80s\" of \"%s\" cannot be run "
                         "in this session; the doctor says what the machine "
                         "lacks", context->language.args,
                         context->language.name);
        sbx_init_error_fill(&error, &e);
        sbx_code_lost(context, &error);
        return;
    }

    if (context->late) {
        context->late = 0;
        (void) sbx_error(&e, 0, SBX_E_UNAVAILABLE,
                         "the interpreter of \"%s\" was not ready in time",
                         context->language.name);
        sbx_init_error_fill(&error, &e);
        sbx_code_lost(context, &error);
        return;
    }

    sbx_code_died(context);
}


/*
 * An interpreter that ends by itself may do so just when the next run is on
 * its way to it.  The kernel tells whether it has read that.
 */

static int
sbx_code_unread(const sbx_code_context_t *context)
{
    const sbx_code_call_t  *run;

    run = context->run;

    return run->sent && !run->again && context->unread
           && (run->strings != NULL || run->ask.strings_size == 0)
           && (context->exit.reason == SBX_REASON_EXITED
               || context->exit.reason == SBX_REASON_SIGNAL
               || context->exit.reason == SBX_REASON_MEMORY);
}


static void
sbx_code_died(sbx_code_context_t *context)
{
    int               first;
    sbx_error_t       e;
    sbx_f_exit_t     *x;
    sbx_f_error_t     error;
    sbx_code_call_t  *run;

    x = &context->exit;
    first = context->ready_at == 0;
    run = context->run;

    if (run != NULL && sbx_code_unread(context)) {
        /* nothing of it has been run: another one is to try */
        run->sent = 0;
        run->again = 1;
    }

    if (run != NULL && (run->sent || first
                        || context->deleted
                        || x->reason == SBX_REASON_CANCELLED))
    {
        context->run = NULL;
        run->ran.exit_code = x->exit_code;
        run->ran.signal = x->signal;
        run->ran.reason = x->reason;
        run->ran.flags |= SBX_RAN_DIED;
        run->ran.flags |= (x->flags & SBX_EXIT_OOM_KILLED)
                          ? SBX_RAN_OOM_KILLED : 0;

        if (run->sent) {
            sbx_code_files(run);
        }

        sbx_code_ran(run);
    }

    if (context->deleted) {
        sbx_code_free(context);
        return;
    }

    if (first && context->starts && x->reason != SBX_REASON_CANCELLED) {
        (void) sbx_error(&e, 0, SBX_E_UNAVAILABLE,
                         "the interpreter of \"%s\" has ended before it was "
                         "ready: %s, exit code %d", context->language.name,
                         sbx_reason_word((sbx_reason_t) x->reason),
                         x->exit_code);
        sbx_init_error_fill(&error, &e);
        sbx_code_lost(context, &error);
        return;
    }

    sbx_code_next(context);
}


unsigned
sbx_init_code_cancel(void)
{
    unsigned             n;
    sbx_code_call_t     *call;
    sbx_code_context_t  *context;

    n = 0;

    for (context = sbx_code_context_each(NULL);
         context != NULL;
         context = sbx_code_context_each(context))
    {
        for (call = context->queue; call != NULL; call = call->next) {
            n++;
        }

        n += context->run != NULL;

        if (context->run != NULL && context->run->sent) {
            sbx_code_interrupt(context, SBX_REASON_CANCELLED);
        }

        sbx_code_cancel(context, SBX_REASON_CANCELLED, 0);
    }

    return n;
}


int
sbx_init_code_cancelling(void)
{
    sbx_code_context_t  *context;

    for (context = sbx_code_context_each(NULL);
         context != NULL;
         context = sbx_code_context_each(context))
    {
        if (context->run != NULL && context->cut == SBX_REASON_CANCELLED) {
            return 1;
        }
    }

    return 0;
}


/* The session ends: who has not begun never will. */

void
sbx_init_code_ending(void)
{
    sbx_code_context_t  *context;

    for (context = sbx_code_context_each(NULL);
         context != NULL;
         context = sbx_code_context_each(context))
    {
        sbx_code_cancel(context, SBX_REASON_SESSION_ENDED, SBX_RAN_DIED);
    }
}


/* Clocks have stood still since then. */

void
sbx_init_code_thaw(uint64_t frozen_at, uint64_t now)
{
    uint64_t             stood;
    sbx_code_call_t     *run;
    sbx_code_context_t  *context;

    for (context = sbx_code_context_each(NULL);
         context != NULL;
         context = sbx_code_context_each(context))
    {
        stood = now - frozen_at;
        context->cut_next += context->cut_next != 0 ? stood : 0;
        context->cut_kill += context->cut_kill != 0 ? stood : 0;
        context->ready_by += context->ready_by != 0 ? stood : 0;
        run = context->run;

        if (run == NULL) {
            continue;
        }

        stood = now - (run->turn > frozen_at ? run->turn : frozen_at);
        run->turn += stood;

        if (run->deadline != SBX_INIT_NONE) {
            run->deadline += stood;
        }
    }
}


static void
sbx_code_context_tick(sbx_code_context_t *context, uint64_t now)
{
    sbx_code_call_t  *run;

    run = context->run;

    if (run == NULL || run->deadline == SBX_INIT_NONE || sbx_init_paused()) {
        return;
    }

    if (now < run->deadline) {
        sbx_init_loop_wake(run->deadline);
        return;
    }

    run->deadline = SBX_INIT_NONE;

    if (run->sent) {
        sbx_code_interrupt(context, SBX_REASON_TIMEOUT);
        return;
    }

    /* its kernel goes on to start, for the next one */

    context->run = NULL;
    sbx_code_never(run, SBX_REASON_TIMEOUT, 0);
    sbx_code_next(context);
}


void
sbx_init_code_tick(uint64_t now)
{
    sbx_code_context_t  *context;

    for (context = sbx_code_context_each(NULL);
         context != NULL;
         context = sbx_code_context_each(context))
    {
        sbx_code_context_tick(context, now);
        sbx_code_kernel_tick(context, now);
        sbx_code_setup_tick(context, now);
        sbx_code_pump_tick(context, now);
    }

    sbx_code_calls_tick(now);
}
