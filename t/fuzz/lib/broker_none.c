/*
 * What the broker of broker_here.h has not: threads that close descriptors,
 * languages, a keeper's start, a log but for its words.
 */

#include "broker_here.h"

#include <stdarg.h>
#include <unistd.h>


int
sbx_discard_open(sbx_broker_t *b, sbx_error_t *e)
{
    (void) b;
    (void) e;

    return 0;
}


void
sbx_discard(sbx_broker_t *b, int fd)
{
    (void) b;

    if (fd != -1) {
        must(close(fd) == 0);
    }
}


void
sbx_discard_all(sbx_broker_t *b, const int *fds, unsigned nfds)
{
    unsigned  i;

    for (i = 0; i < nfds; i++) {
        sbx_discard(b, fds[i]);
    }
}


int
sbx_discard_full(sbx_broker_t *b)
{
    (void) b;

    return 0;
}


void
sbx_discard_close(sbx_broker_t *b)
{
    (void) b;
}


void
sbx_languages_open(sbx_broker_t *b)
{
    (void) b;
}


void
sbx_languages_look(sbx_broker_t *b)
{
    (void) b;
}


void
sbx_languages_checks(sbx_broker_t *b,
    void (*check)(const sbx_f_check_t *c, void *data), void *data)
{
    (void) b;
    (void) check;
    (void) data;
}


void
sbx_languages_close(sbx_broker_t *b)
{
    (void) b;
}


int
sbx_keeper_start(sbx_keeper_t *k, sbx_error_t *e)
{
    (void) k;
    (void) e;
    abort();
}


void
sbx_keeper_pid_file(sbx_keeper_t *k, const char *name, pid_t pid)
{
    (void) k;
    (void) name;
    (void) pid;
}


void
sbx_keeper_report(sbx_keeper_t *k, const sbx_error_t *e)
{
    (void) k;
    must(e == NULL);
}


int
sbx_process_hide(sbx_error_t *e)
{
    (void) e;

    return 0;
}


void
sbx_process_raise_files(void)
{
    /* void */
}


/* A broker that takes its keeper's place is not there any more. */

int
sbx_options_exec(const sbx_options_t *options, sbx_error_t *e)
{
    (void) e;
    must(options->keeper && !options->broker && options->link == -1);
    broker_left = options->inherit;
    longjmp(broker_over, 1);
}


int
sbx_log_open(const char *path, sbx_error_t *e)
{
    (void) path;
    (void) e;

    return 0;
}


/* Whatever a line says, its words end. */

void
sbx_log(sbx_log_level_t level, const sbx_log_about_t *about, int err,
    const char *fmt, ...)
{
    char     line[4096];
    va_list  args;

    (void) err;

    if (about != NULL) {
        must(about->request == NULL
             || strlen(about->request) <= SBX_REQUEST_ID + 7);
        must(about->session == NULL
             || strlen(about->session) <= SBX_ID_MAX + 7);
    }

    va_start(args, fmt);
    (void) vsnprintf(line, sizeof(line), fmt, args);
    va_end(args);

    if (getenv("BROKER_SHOW") != NULL) {
        (void) fprintf(stderr, "[%d] %s\n", (int) level, line);
    }
}


void
sbx_log_error(sbx_log_level_t level, const sbx_log_about_t *about,
    const sbx_error_t *e, const char *what)
{
    sbx_log(level, about, e->err, "%s: %s", what, e->text);
}
