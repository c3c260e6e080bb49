/*
 * The library's handle: options, the private workspace, cancel and close.
 * Runs are in session_run.c, the environment and the helper's start in
 * session_helper.c.  This code may be called from threads: no fork of its
 * own, and no state but the handle's.
 */

#include "session.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>


static int sbx_sandbox_limits(sbx_sandbox_t *sb,
    const sbx_sandbox_options_t *o, sbx_error_t *e);
static int sbx_sandbox_paths(sbx_sandbox_t *sb,
    const sbx_sandbox_options_t *o, sbx_error_t *e);
static int sbx_sandbox_list(char ***copy, const char *const *list,
    int absolute, const char *what, sbx_error_t *e);
static int sbx_sandbox_workspace_make(sbx_sandbox_t *sb,
    const sbx_sandbox_options_t *o, sbx_error_t *e);
static int sbx_sandbox_keep(sbx_sandbox_t *sb, sbx_error_t *e);


/* What a run can be limited in. */
static const char  *sbx_sandbox_known[] = {
    "memory", "cpus", "cpu_seconds", "processes", "max_file_size",
    "open_files", "stack", "exec_timeout", "max_output"
};


void
sbx_sandbox_options_init(sbx_sandbox_options_t *o)
{
    memset(o, 0, sizeof(sbx_sandbox_options_t));
    sbx_limits_clear(&o->limits);
}


void
sbx_sandbox_command_init(sbx_sandbox_command_t *c)
{
    memset(c, 0, sizeof(sbx_sandbox_command_t));
    c->input_fd = -1;
    c->timeout = SBX_UNSET;
    c->max_output = SBX_UNSET;
}


int
sbx_sandbox_open(const sbx_sandbox_options_t *o, sbx_sandbox_t **out,
    sbx_error_t *e)
{
    sbx_sandbox_t  *sb;

    sb = calloc(1, sizeof(sbx_sandbox_t));

    if (sb == NULL) {
        return sbx_error(e, errno, SBX_E_INTERNAL, "no memory");
    }

    sb->keeper = -1;
    sb->backend = o->backend;
    sb->memory_strategy = o->memory_strategy;
    sb->network = o->network != 0;
    sb->require = o->require_isolation != 0;
    (void) pthread_mutex_init(&sb->mutex, NULL);
    (void) pthread_cond_init(&sb->idle, NULL);

    if (sbx_sandbox_limits(sb, o, e) == -1
        || sbx_helper_find(sb, o->helper, e) == -1
        || sbx_sandbox_paths(sb, o, e) == -1
        || sbx_sandbox_workspace_make(sb, o, e) == -1
        || sbx_helper_environment(sb, o->env, e) == -1)
    {
        sbx_sandbox_free(sb);
        return -1;
    }

    *out = sb;

    return 0;
}


static int
sbx_sandbox_limits(sbx_sandbox_t *sb, const sbx_sandbox_options_t *o,
    sbx_error_t *e)
{
    char                least[32];
    size_t              i;
    uint64_t            value;
    const sbx_limit_t  *limit;

    sb->limits = o->limits;

    for (i = 0; i < sbx_nelts(sbx_sandbox_known); i++) {
        limit = sbx_limit_find(sbx_sandbox_known[i],
                               strlen(sbx_sandbox_known[i]), 0);
        value = *sbx_limit_field(&sb->limits, limit);

        if (value >= SBX_UNLIMITED) {
            continue;
        }

        if (value < limit->min || value > limit->max) {
            least[sbx_limit_print(limit, value < limit->min ? limit->min
                                                            : limit->max,
                                  least)] = '\0';

            return sbx_error(e, 0, SBX_E_INVALID, "%s must be at %s %s",
                             limit->name,
                             value < limit->min ? "least" : "most", least);
        }
    }

    /* a run without a word about these is not without a limit */

    for (i = 0; i < 2; i++) {
        limit = sbx_limit_find(i == 0 ? "exec_timeout" : "max_output",
                               i == 0 ? 12 : 10, 0);

        if (*sbx_limit_field(&sb->limits, limit) == SBX_UNSET) {
            *sbx_limit_field(&sb->limits, limit) = limit->fallback;
        }
    }

    return 0;
}


static int
sbx_sandbox_paths(sbx_sandbox_t *sb, const sbx_sandbox_options_t *o,
    sbx_error_t *e)
{
    if (sbx_sandbox_list(&sb->writable, o->writable, 1, "writable", e) == -1
        || sbx_sandbox_list(&sb->deny_write, o->deny_write, 0, "deny_write",
                            e)
           == -1
        || sbx_sandbox_list(&sb->deny_read, o->deny_read, 0, "deny_read", e)
           == -1)
    {
        return -1;
    }

    return 0;
}


static int
sbx_sandbox_list(char ***copy, const char *const *list, int absolute,
    const char *what, sbx_error_t *e)
{
    size_t  i, n;

    for (n = 0; list != NULL && list[n] != NULL; n++) { /* void */ }

    if (n > SBX_BOX_LIST_MAX) {
        return sbx_error(e, 0, SBX_E_INVALID, "more than %d paths in %s",
                         SBX_BOX_LIST_MAX, what);
    }

    *copy = calloc(n + 1, sizeof(char *));

    for (i = 0; *copy != NULL && i < n; i++) {
        if (list[i][0] == '\0') {
            return sbx_error(e, 0, SBX_E_INVALID, "%s: an empty path", what);
        }

        (*copy)[i] = absolute ? realpath(list[i], NULL) : strdup(list[i]);

        if ((*copy)[i] == NULL) {
            return sbx_error(e, errno, SBX_E_INVALID,
                             "%s \"%.180s\" is no directory that can be "
                             "reached", what, list[i]);
        }
    }

    return *copy == NULL ? sbx_error(e, errno, SBX_E_INTERNAL, "no memory")
                         : 0;
}


static int
sbx_sandbox_workspace_make(sbx_sandbox_t *sb, const sbx_sandbox_options_t *o,
    sbx_error_t *e)
{
    struct stat  st;

    if (o->workspace == NULL) {
        return sbx_sandbox_keep(sb, e);
    }

    sb->workspace = realpath(o->workspace, NULL);

    if (sb->workspace == NULL || stat(sb->workspace, &st) == -1
        || !S_ISDIR(st.st_mode))
    {
        return sbx_error(e, sb->workspace == NULL ? errno : ENOTDIR,
                         SBX_E_INVALID, "workspace \"%.180s\" is no directory "
                         "that can be reached", o->workspace);
    }

    return 0;
}


/* The keeper makes it, and removes it when this process is gone, however. */
static int
sbx_sandbox_keep(sbx_sandbox_t *sb, sbx_error_t *e)
{
    const char        *dir;
    sbx_box_answer_t   answer;
    sbx_box_request_t  request;

    dir = getenv("TMPDIR");
    sb->workspace = realpath(dir != NULL && dir[0] == '/' ? dir : "/tmp",
                             NULL);

    if (sb->workspace == NULL) {
        return sbx_error(e, errno, SBX_E_UNAVAILABLE,
                         "there is no directory for temporary files");
    }

    sbx_helper_request(sb, SBX_BOX_KEEP, &request);

    if (sbx_helper_start(sb, &request, NULL, NULL, 0, &sb->keeper,
                         &sb->keeper_pid, e)
        == -1
        || sbx_helper_answer(sb->keeper, &answer, e) == -1)
    {
        return -1;
    }

    free(sb->workspace);
    sb->workspace = strdup(answer.text);
    sb->private = 1;

    return sb->workspace == NULL
           ? sbx_error(e, errno, SBX_E_INTERNAL, "no memory") : 0;
}


const char *
sbx_sandbox_workspace(const sbx_sandbox_t *sb)
{
    return sb->workspace;
}


unsigned
sbx_sandbox_cancel(sbx_sandbox_t *sb)
{
    unsigned             n;
    sbx_sandbox_run_t   *run;

    n = 0;
    (void) pthread_mutex_lock(&sb->mutex);

    for (run = sb->runs; run != NULL; run = run->next) {
        if (!run->cancelled) {
            run->cancelled = 1;
            n += (send(run->socket, "", 1, MSG_NOSIGNAL | MSG_DONTWAIT) == 1);
        }
    }

    (void) pthread_mutex_unlock(&sb->mutex);

    return n;
}


void
sbx_sandbox_close(sbx_sandbox_t *sb)
{
    int    keeper;
    pid_t  pid;

    (void) pthread_mutex_lock(&sb->mutex);
    sb->closed = 1;
    (void) pthread_mutex_unlock(&sb->mutex);

    (void) sbx_sandbox_cancel(sb);

    (void) pthread_mutex_lock(&sb->mutex);

    while (sb->nruns != 0) {
        (void) pthread_cond_wait(&sb->idle, &sb->mutex);
    }

    keeper = sb->keeper;
    pid = sb->keeper_pid;
    sb->keeper = -1;

    /* a second caller waits for the first, and finds it removed */

    if (keeper != -1) {
        sbx_helper_end(keeper, pid);
    }

    (void) pthread_mutex_unlock(&sb->mutex);
}


void
sbx_sandbox_free(sbx_sandbox_t *sb)
{
    size_t   i;
    char   **lists[4], **p;

    if (sb == NULL) {
        return;
    }

    sbx_sandbox_close(sb);

    lists[0] = sb->writable;
    lists[1] = sb->deny_write;
    lists[2] = sb->deny_read;
    lists[3] = sb->env;

    for (i = 0; i < sbx_nelts(lists); i++) {
        for (p = lists[i]; p != NULL && *p != NULL; p++) {
            free(*p);
        }

        free(lists[i]);
    }

    (void) pthread_mutex_destroy(&sb->mutex);
    (void) pthread_cond_destroy(&sb->idle);
    free(sb->workspace);
    free(sb->home);
    free(sb->helper);
    free(sb);
}


int
sbx_sandbox_capabilities(sbx_sandbox_t *sb,
    void (*capability)(const char *name, const char *by, void *ctx),
    void *ctx, sbx_error_t *e)
{
    int                 fd, rc;
    pid_t               pid;
    size_t              i;
    sbx_box_answer_t    answer;
    sbx_box_request_t   request;

    sbx_helper_request(sb, SBX_BOX_PROBE, &request);

    if (sbx_helper_start(sb, &request, NULL, NULL, 0, &fd, &pid, e) == -1) {
        return -1;
    }

    rc = sbx_helper_answer(fd, &answer, e);
    sbx_helper_end(fd, pid);

    if (rc == -1) {
        return -1;
    }

    const struct {
        const char     *name;
        uint8_t         by;
    } rows[] = {
        { "memory", answer.enforcement.memory },
        { "cpus", answer.enforcement.cpus },
        { "cpu_seconds", answer.enforcement.cpu_seconds },
        { "processes", answer.enforcement.processes },
        { "max_file_size", answer.enforcement.max_file_size },
        { "open_files", answer.enforcement.open_files },
        { "stack", answer.enforcement.stack },
        { "seccomp", answer.enforcement.seccomp }
    };

    for (i = 0; i < sbx_nelts(rows); i++) {
        capability(rows[i].name, sbx_enforce_word((sbx_enforce_t) rows[i].by),
                   ctx);
    }

    capability("isolation", answer.isolated ? "namespaces" : "none", ctx);

    return 0;
}
