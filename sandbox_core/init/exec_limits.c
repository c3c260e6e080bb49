/*
 * A command's own limits: what its call asks for, within what the session
 * has; and what of them the kernel counts for each process.
 */

#include "init.h"

#include <stdio.h>
#include <string.h>


#define SBX_INIT_MEMLOCK    (8 * 1024 * 1024)
#define SBX_INIT_MSGQUEUE   819200
#define SBX_INIT_PENDING    4096


static int sbx_init_limit_settle(const sbx_limit_t *limit, uint64_t *value,
    uint64_t session, sbx_error_t *e);


#define EXEC(f)     offsetof(sbx_f_exec_t, f)
#define SESSION(f)  offsetof(sbx_limits_t, f)

static const struct {
    size_t   exec;
    size_t   session;
} sbx_init_limits[] = {
    { EXEC(timeout), SESSION(exec_timeout) },
    { EXEC(max_output), SESSION(max_output) },
    { EXEC(cpu_seconds), SESSION(cpu_seconds) },
    { EXEC(max_file_size), SESSION(max_file_size) },
    { EXEC(open_files), SESSION(open_files) },
    { EXEC(stack), SESSION(stack) }
};


int
sbx_init_exec_limits(sbx_f_exec_t *exec, sbx_error_t *e)
{
    size_t              i;
    uint64_t            session, *value;
    const sbx_limit_t  *limit;

    for (i = 0; i < sbx_nelts(sbx_init_limits); i++) {
        value = (uint64_t *) (void *)
                    ((char *) exec + sbx_init_limits[i].exec);
        session = *(const uint64_t *) (const void *)
                      ((const char *) &sbx_init.config->limits
                       + sbx_init_limits[i].session);

        for (limit = sbx_limit_table;
             limit->offset != sbx_init_limits[i].session;
             limit++)
        { /* void */ }

        if (session == SBX_UNSET) {
            session = sbx_init_limits[i].session == SESSION(max_file_size)
                      ? sbx_init.config->limits.disk : limit->fallback;
        }

        /* "until the session ends" is within every session, and so is less,
         * of a call that has it so */

        if (limit->offset == SESSION(exec_timeout)
            && (exec->flags & SBX_EXEC_LONG) && *value != SBX_UNSET)
        {
            session = SBX_UNLIMITED;
        }

        if (limit->offset == SESSION(exec_timeout) && *value == SBX_UNLIMITED)
        {
            continue;
        }

        if (sbx_init_limit_settle(limit, value, session, e) != 0) {
            return -1;
        }
    }

    return 0;
}


static int
sbx_init_limit_settle(const sbx_limit_t *limit, uint64_t *value,
    uint64_t session, sbx_error_t *e)
{
    char  asked[32], cap[32];

    if (*value == SBX_UNSET) {
        *value = session;
        return 0;
    }

    if (*value < limit->min) {
        cap[sbx_limit_print(limit, limit->min, cap)] = '\0';
        return sbx_error(e, 0, SBX_E_MANIFEST, "%s must be at least %s",
                         limit->json, cap);
    }

    if (session == SBX_UNLIMITED || *value <= session) {
        return 0;
    }

    asked[sbx_limit_print(limit, *value, asked)] = '\0';
    cap[sbx_limit_print(limit, session, cap)] = '\0';

    return sbx_error(e, 0, SBX_E_MANIFEST,
                     "%s asks for %s, but the most that the session has is "
                     "%s", limit->json,
                     *value == SBX_UNLIMITED ? "no limit" : asked, cap);
}


/*
 * Of processor time the kernel's own limit is a backstop for each process;
 * that of the whole group is polled.  Those that are nobody's wish follow
 * what init has, where that is lower: nobody here may raise a limit.
 */

void
sbx_init_launch_limits(sbx_init_launch_t *launch,
    const sbx_init_command_t *c)
{
    unsigned           i, n;
    uint64_t           soft, hard, space;
    struct rlimit64    own;
    struct rlimit64   *limit;

    struct {
        int         resource;
        uint64_t    value;
        unsigned    asked:1;
    } limits[] = {
        { RLIMIT_NOFILE, c->exec.open_files, 1 },
        { RLIMIT_FSIZE, c->exec.max_file_size, 1 },
        { RLIMIT_STACK, c->exec.stack, 1 },
        { RLIMIT_CPU, c->exec.cpu_seconds, 1 },
        { RLIMIT_AS, 0, 1 },
        { RLIMIT_CORE, 1, 0 },      /* at 0 the kernel runs the host's
                                       crash handler */
        { RLIMIT_MEMLOCK, SBX_INIT_MEMLOCK, 0 },
        { RLIMIT_MSGQUEUE, SBX_INIT_MSGQUEUE, 0 },
        { RLIMIT_SIGPENDING, SBX_INIT_PENDING, 0 },
        { RLIMIT_RTPRIO, 0, 0 },
        { RLIMIT_NICE, 0, 0 }
    };

    n = 0;
    space = (sbx_init.config->flags & SBX_CREATE_MEMORY_RLIMIT)
            ? c->memory : SBX_UNLIMITED;

    for (i = 0; i < sbx_nelts(limits); i++) {
        soft = limits[i].resource == RLIMIT_AS ? space : limits[i].value;

        if (limits[i].asked && soft >= SBX_UNLIMITED) {
            continue;
        }

        hard = soft;

        if (limits[i].resource == RLIMIT_CPU) {
            soft = soft / 1000 + 2;
            hard = soft + 1;
        }

        if (getrlimit64(limits[i].resource, &own) == 0
            && hard > own.rlim_max && !limits[i].asked)
        {
            soft = own.rlim_max;
            hard = own.rlim_max;
        }

        limit = &launch->rlimits[n];
        limit->rlim_cur = soft;
        limit->rlim_max = hard;
        launch->resources[n++] = limits[i].resource;
    }

    launch->nrlimits = n;
}
