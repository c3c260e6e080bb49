/*
 * A command's standard input: one frame at a time goes from the call's
 * buffer into the pipe.  What the pipe does not take stays in the buffer,
 * and the call is read no further; a worker that goes away is noticed all
 * the same.  What a command no longer reads is dropped.
 */

#include "init_process.h"

#include <errno.h>


static void sbx_init_input_event(sbx_init_source_t *source, uint32_t events);
static void sbx_init_input_write(sbx_init_command_t *c);
static int sbx_init_input_end(sbx_init_command_t *c);


int
sbx_init_input_open(sbx_init_command_t *c, int *end)
{
    int  fds[2];

    if (sbx_init_pipe(c, 1, fds) == -1) {
        return -1;
    }

    *end = fds[0];
    sbx_init_input_take(c, fds[1]);

    return 0;
}


void
sbx_init_input_take(sbx_init_command_t *c, int fd)
{
    c->input.fd = fd;
    c->input.handler = sbx_init_input_event;
    c->input.data = c;
}


void
sbx_init_input_frame(sbx_init_command_t *c, const uint8_t *data, size_t size)
{
    if (size == 0) {
        c->input_end = 1;

        if ((c->exec.flags & SBX_EXEC_STDIN_OPEN) == 0) {
            sbx_init_input_eof(c);
        }

        return;
    }

    if (c->input.fd == -1 || c->input_eof) {
        return;
    }

    c->input_data = data;
    c->input_left = size;

    if (c->writer == NULL) {
        sbx_init_input_write(c);
    }
}


void
sbx_init_input_eof(sbx_init_command_t *c)
{
    if (c->input.fd != -1) {
        c->input_eof = 1;
        sbx_init_input_next(c);
    }
}


void
sbx_init_input_next(sbx_init_command_t *c)
{
    size_t  left;

    if (c->input.fd == -1) {
        return;
    }

    left = c->input_left;

    if (c->writer != NULL || c->input_left == 0) {
        sbx_init_process_input(c);
    }

    if (c->writer == NULL && c->input_left != 0) {
        sbx_init_input_write(c);
    }

    if (left != 0 && c->input_left == 0 && c->call.fd != -1) {
        /* its call goes on, after this round */
        sbx_init_exec_starve(c);
    }

    if (c->input.fd == -1 || c->input_left != 0 || c->writer != NULL) {
        sbx_init_source_set(&c->input, c->input.fd != -1 ? EPOLLOUT : 0);
        return;
    }

    sbx_init_source_set(&c->input, 0);

    if (!c->input_eof) {
        return;
    }

    if ((c->exec.flags & SBX_EXEC_TTY) != 0 && sbx_init_input_end(c) == -1) {
        sbx_init_source_set(&c->input, EPOLLOUT);
        return;
    }

    sbx_init_input_close(c);
}


/*
 * A terminal stays when its input is over, so what reads from it is told.
 * Within a line the character that ends the input only hands the line over:
 * there it takes a second one.  -1: not all of it could be written yet.
 */

static int
sbx_init_input_end(sbx_init_command_t *c)
{
    ssize_t   n;
    uint8_t   last;
    unsigned  times;

    times = sbx_init_tty_eof(c->input.fd, c->input_last, &last);

    while (times != 0) {
        n = sbx_init_input_put(c, &last, 1);

        if (n == -1 && errno == EINTR) {
            continue;
        }

        if (n == 0 || (n == -1 && errno == EAGAIN)) {
            return -1;
        }

        if (n == -1) {
            return 0;
        }

        times--;
    }

    return 0;
}


ssize_t
sbx_init_input_put(sbx_init_command_t *c, const uint8_t *data, size_t size)
{
    ssize_t  n;

    n = write(c->input.fd, data, size);

    if (n > 0) {
        c->input_last = data[n - 1];
    }

    return n;
}


static void
sbx_init_input_write(sbx_init_command_t *c)
{
    ssize_t  n;

    while (c->input_left != 0) {
        n = sbx_init_input_put(c, c->input_data, c->input_left);

        if (n > 0) {
            c->input_data += n;
            c->input_left -= (size_t) n;
            continue;
        }

        if (n == -1 && errno == EINTR) {
            continue;
        }

        if (n == -1 && errno == EAGAIN) {
            sbx_init_source_set(&c->input, EPOLLOUT);
            return;
        }

        sbx_init_input_close(c);
        return;
    }

    sbx_init_source_set(&c->input, 0);
}


static void
sbx_init_input_event(sbx_init_source_t *source, uint32_t events)
{
    sbx_init_command_t  *c;

    (void) events;

    c = source->data;

    if (c->writer == NULL && c->input_left != 0) {
        sbx_init_input_write(c);
    }

    sbx_init_input_next(c);

    if (c->input_left == 0 && c->call.fd != -1) {
        sbx_init_exec_resume(c);
    }
}


void
sbx_init_input_close(sbx_init_command_t *c)
{
    c->input_left = 0;
    c->input_eof = 0;
    sbx_init_source_close(&c->input);
    sbx_init_process_input_closed(c);
}
