/*
 * For tests of a session's processes: calls about them, and their answers.
 */

#ifndef SBX_PROCESS_TEST_H
#define SBX_PROCESS_TEST_H

#include "init_test.h"


static init_session_t  s;
static init_result_t   r __attribute__((unused));


/* What a call about processes has been answered. */

typedef struct {
    init_result_t   r;
    int             accepted;
    int             ready;
    unsigned        states;
    sbx_f_state_t   state;           /* the last one */
    char            cwd[SBX_PATH_MAX];
    char            tag[SBX_TAG_MAX + 1];
    char            args[SBX_FRAME_MAX];
    sbx_f_output_t  output;
    int             has_output;
} answer_t;


static answer_t  a;


static void
ask(init_call_t *call, uint32_t verb, int pid, const sbx_f_process_t *more)
{
    sbx_f_process_t  p;

    memset(&p, 0, sizeof(p));

    if (more != NULL) {
        p = *more;
    }

    if (verb == SBX_PROCESS_OUTPUT && more == NULL) {
        p.from[0] = SBX_UNSET;
        p.from[1] = SBX_UNSET;
    }

    p.verb = verb;
    p.pid = pid;

    init_call(&s, SBX_OP_PROCESS, NULL, NULL, 0, call);
    init_send(call->fd, SBX_F_PROCESS, &p, sizeof(p));
}


/* One frame; its type, 0 at the end. */

static int
next(init_call_t *call, answer_t *w)
{
    size_t          n;
    sbx_frame_t     frame;
    const char     *cwd, *tag, *args;
    const uint8_t  *p;

    if (init_next(call, &frame, &p, NULL, INIT_WAIT) != 1) {
        return 0;
    }

    n = frame.length;

    switch (frame.type) {

    case SBX_F_ACCEPTED:
        w->accepted = 1;
        break;

    case SBX_F_READY:
        w->ready = 1;
        break;

    case SBX_F_STARTED:
        w->r.started = 1;
        memcpy(&w->r.pid, p, sizeof(w->r.pid));
        break;

    case SBX_F_STATE:
        w->states++;

        if (sbx_wire_check_state(p, n, &w->state, &cwd, &tag, &args) != 0) {
            printf("Bail out! a state is malformed\n");
            exit(1);
        }

        (void) sbx_copy_string(w->cwd, sizeof(w->cwd), cwd,
                               w->state.cwd_len);
        (void) sbx_copy_string(w->tag, sizeof(w->tag), tag,
                               w->state.tag_len);
        memcpy(w->args, args, (size_t) w->state.args_len
                              + w->state.env_len);
        break;

    case SBX_F_OUTPUT:
        memcpy(&w->output, p, sizeof(w->output));
        w->has_output = 1;
        break;

    case SBX_F_STDOUT:
        init_append(&w->r.out, &w->r.out_size, p, n);
        break;

    case SBX_F_STDERR:
        init_append(&w->r.err, &w->r.err_size, p, n);
        break;

    case SBX_F_EXIT:
        memcpy(&w->r.exit, p, sizeof(w->r.exit));
        w->r.ended = SBX_F_EXIT;
        break;

    case SBX_F_ERROR:
        memcpy(&w->r.error, p, sizeof(w->r.error));
        w->r.ended = SBX_F_ERROR;
        break;

    case SBX_F_END:
        memcpy(&w->r.end, p, sizeof(w->r.end));
        w->r.ended = SBX_F_END;
        break;
    }

    return frame.type;
}


static void
fresh(answer_t *w)
{
    init_result_free(&w->r);
    memset(w, 0, sizeof(*w));
}


static void
finish(init_call_t *call, answer_t *w)
{
    while (!w->r.ended && next(call, w) != 0) { /* void */ }
}


/* A whole call. */

static void
whole(uint32_t verb, int pid, const sbx_f_process_t *more)
{
    init_call_t  call;

    fresh(&a);
    ask(&call, verb, pid, more);
    finish(&call, &a);
    init_hang_up(&call);
}


static int
failed(int code)
{
    return a.r.ended == SBX_F_ERROR && a.r.error.code == (uint32_t) code;
}


/* Begins one in the background; its pid. */

static int
background(const char *script, init_exec_t *more)
{
    init_exec_t  x = { 0 };
    init_call_t  call;
    const char  *argv[] = { "/bin/sh", "-c", script, NULL };

    if (more != NULL) {
        x = *more;
    }

    if (x.argv == NULL) {
        x.argv = argv;
    }

    x.flags |= SBX_EXEC_BACKGROUND;
    fresh(&a);
    init_exec_begin(&s, &x, &call);

    if (x.input_size != 0) {
        init_send(call.fd, SBX_F_STDIN, x.input, x.input_size);
    }

    init_send(call.fd, SBX_F_STDIN, NULL, 0);
    finish(&call, &a);
    init_hang_up(&call);

    return a.r.ended == SBX_F_END && a.r.started ? a.r.pid : 0;
}


/* 1 once the process has ended. */

static int
ends(int pid)
{
    int  i;

    for (i = 0; i < 2000; i++) {
        whole(SBX_PROCESS_GET, pid, NULL);

        if (a.state.flags & SBX_STATE_EXITED) {
            return 1;
        }

        (void) usleep(5000);
    }

    return 0;
}


static void
put(init_call_t *call, const char *text)
{
    init_send(call->fd, SBX_F_STDIN, text, strlen(text));
}


/* Standard input by a call of its own. */

static void
feed(int pid, const char *text, uint32_t flags)
{
    init_call_t      call;
    sbx_f_process_t  p = { .flags = flags };

    fresh(&a);
    ask(&call, SBX_PROCESS_STDIN, pid, &p);

    while (!a.r.ended && !a.ready && next(&call, &a) != 0) { /* void */ }

    if (a.ready) {
        put(&call, text);
        init_send(call.fd, SBX_F_STDIN, NULL, 0);
        finish(&call, &a);
    }

    init_hang_up(&call);
}


/* Reads the call's output until a text is in it. */

static int
until(init_call_t *call, const char *text)
{
    while (strstr(init_text(a.r.out), text) == NULL) {
        if (next(call, &a) == 0 || a.r.ended) {
            return strstr(init_text(a.r.out), text) != NULL;
        }
    }

    return 1;
}


#endif
