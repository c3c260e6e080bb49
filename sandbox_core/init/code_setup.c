/*
 * What a kernel is told before its first run: the session's variables where
 * they are not those of its start, and what to import ahead.  Both come from
 * the broker, who fills a pool with sessions and hands them over.
 */

#include "init_code.h"
#include "sandbox_fault.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>


#define SBX_CODE_PRELOAD_MAX   65536
#define SBX_CODE_TELL_AGAIN    20000     /* us */


static void sbx_code_limits(const sbx_code_context_t *context);


void
sbx_code_setup(sbx_code_context_t *context)
{
    int          rc;
    char        *body, path[SBX_PATH_MAX];
    size_t       size, used, n;
    const char  *p, *end;

    body = NULL;
    size = 0;
    used = 0;
    rc = 0;

    p = sbx_init.env;
    end = p + sbx_init.config->env_size;

    for ( /* void */ ; p < end && rc == 0; p += strlen(p) + 1) {
        rc = sbx_code_append(&body, &size, &used, "env", p, strlen(p));
    }

    n = sbx_code_cwd(context, path);

    if (rc == 0) {
        rc = sbx_code_append(&body, &size, &used, "cwd", path, n);
    }

    p = context->preload != NULL ? context->preload : "";
    end = p + context->preload_size;

    for ( /* void */ ; p < end && rc == 0; p += strlen(p) + 1) {
        rc = sbx_code_append(&body, &size, &used, "preload", p, strlen(p));
    }

    context->setup = 0;
    free(context->preload);
    context->preload = NULL;
    context->preload_size = 0;

    context->kernel = SBX_KERNEL_STARTING;
    context->ready_by = sbx_now_us() + SBX_CODE_READY_WAIT;
    sbx_init_loop_wake(context->ready_by);

    if (rc == -1 || sbx_code_frame(context, "setup", body, used) == -1) {
        (void) sbx_code_kill(context, SBX_REASON_SIGNAL);
        return;
    }

    sbx_code_pump(context);
}


void
sbx_init_code_warm(const sbx_task_t *task, const int *fds, unsigned nfds)
{
    struct stat          st;
    sbx_code_context_t  *context;

    context = sbx_init.ending ? NULL : sbx_code_context_default(task->token);

    if (context == NULL) {
        (void) sbx_init_record_ask(SBX_R_WARM, task->token,
                                   SBX_REASON_NOT_STARTED);
        return;
    }

    if (nfds == 1 && fstat(fds[0], &st) == 0 && st.st_size > 0
        && st.st_size <= SBX_CODE_PRELOAD_MAX && context->preload == NULL)
    {
        context->preload = malloc((size_t) st.st_size);

        if (context->preload != NULL
            && pread(fds[0], context->preload, (size_t) st.st_size, 0)
               == st.st_size
            && context->preload[st.st_size - 1] == '\0')
        {
            context->preload_size = (size_t) st.st_size;
            context->setup = 1;
        }
    }

    context->warm = 1;

    if (context->kernel == SBX_KERNEL_READY && !context->setup) {
        sbx_code_warmed(context, 0);
        return;
    }

    context->starts = 1;
    sbx_code_next(context);
}


void
sbx_code_warmed(sbx_code_context_t *context, uint32_t reason)
{
    if (!context->warm) {
        return;
    }

    SBX_FAULT("init-warm-warmed");
    context->warm = 0;
    context->told = reason;
    context->untold = sbx_init_record_ask(SBX_R_WARM, context->number, reason)
                      != 0;

    if (context->untold) {
        sbx_init_loop_wake(sbx_now_us() + SBX_CODE_TELL_AGAIN);
    }
}


void
sbx_code_setup_tick(sbx_code_context_t *context, uint64_t now)
{
    if (!context->untold) {
        return;
    }

    context->untold = sbx_init_record_ask(SBX_R_WARM, context->number,
                                          context->told)
                      != 0;

    if (context->untold) {
        sbx_init_loop_wake(now + SBX_CODE_TELL_AGAIN);
    }
}


/*
 * The session is another's from now on: limits, variables, capabilities,
 * flags and network are those of the memfd, all else stays.  What the old
 * ones were mapped from stays too: a launch may be under way that has been
 * given them.
 */

void
sbx_init_hand_over(int fd)
{
    sbx_init_t                given;
    sbx_code_context_t       *context;
    static sbx_init_config_t  config;

    memset(&given, 0, sizeof(given));

    /* it is to be closed by the caller */
    fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);

    if (fd == -1) {
        sbx_init_loop_stop();
        return;
    }

    if (sbx_init_config_map(fd, &given, NULL) != 0) {
        /* nobody may have it as it was */
        (void) close(fd);
        sbx_init_loop_stop();
        return;
    }

    config = *sbx_init.config;
    config.limits = given.config->limits;
    config.env_size = given.config->env_size;
    config.capabilities = given.config->capabilities;
    config.flags = given.config->flags;
    config.network = given.config->network;

    sbx_init.config = &config;
    sbx_init.env = given.env;
    sbx_init.network = given.network;
    sbx_init_launch_env();
    sbx_init_log_begin();

    for (context = sbx_code_context_each(NULL);
         context != NULL;
         context = sbx_code_context_each(context))
    {
        if (context->kernel < SBX_KERNEL_STARTING
            || context->kernel == SBX_KERNEL_DYING)
        {
            continue;
        }

        sbx_code_limits(context);
        context->setup = 1;
        sbx_code_next(context);
    }
}


/*
 * Who sets another's limits must be of the same user, by real ids alone; so
 * init is, for as long as that takes.  Its effective id is what guards it.
 * A limit that would be raised past the hard one stays as it is.
 */

static void
sbx_code_limits(const sbx_code_context_t *context)
{
    pid_t                pid;
    unsigned             i;
    struct rlimit64      old, limit;
    sbx_f_exec_t        *exec;
    sbx_init_launch_t    launch;
    sbx_init_command_t  *c;

    c = context->command;
    pid = sbx_init_command_pid(c);

    if (pid <= 0 || c->reaped) {
        return;
    }

    memset(&launch, 0, sizeof(launch));
    exec = &c->exec;
    exec->max_output = SBX_UNSET;
    exec->cpu_seconds = SBX_UNSET;
    exec->max_file_size = SBX_UNSET;
    exec->open_files = SBX_UNSET;
    exec->stack = SBX_UNSET;
    (void) sbx_init_exec_limits(exec, NULL);
    c->memory = sbx_init.config->limits.memory;
    c->cpus = sbx_init.config->limits.cpus;

    sbx_init_launch_limits(&launch, c);

    (void) syscall(SYS_setresgid, sbx_init.config->gid, -1, -1);
    (void) syscall(SYS_setresuid, sbx_init.config->uid, -1, -1);

    for (i = 0; i < launch.nrlimits; i++) {
        if (launch.resources[i] == RLIMIT_CPU
            || syscall(SYS_prlimit64, pid, launch.resources[i], NULL, &old)
               == -1)
        {
            continue;
        }

        limit = launch.rlimits[i];

        if (limit.rlim_max > old.rlim_max) {
            limit.rlim_max = old.rlim_max;
        }

        if (limit.rlim_cur > limit.rlim_max) {
            limit.rlim_cur = limit.rlim_max;
        }

        (void) syscall(SYS_prlimit64, pid, launch.resources[i], &limit,
                       NULL);
    }

    (void) syscall(SYS_setresuid, 0, -1, -1);
    (void) syscall(SYS_setresgid, 0, -1, -1);

    sbx_init_code_cpu(c);
}
