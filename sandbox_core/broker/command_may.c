/* What a session may have run, before anything is made for it. */

#include "broker.h"

#include <stdio.h>
#include <string.h>


#define SBX_COMMAND_ASKS          96        /* groups that init may ask for */
#define SBX_COMMAND_ASK_EVERY     50000     /* us for one more */


static const char *sbx_command_capability(uint16_t op, uint32_t *needed);
static int sbx_command_limit(const char *name, uint64_t asked, uint64_t cap,
    sbx_error_t *e);


/* A bucket: each group is some directories and files of the kernel's. */

int
sbx_command_may_ask(sbx_session_t *s)
{
    uint64_t  now, more;

    now = sbx_now_us();
    more = (now - s->asked_at) / SBX_COMMAND_ASK_EVERY;

    if (more >= SBX_COMMAND_ASKS - s->asks) {
        s->asks = SBX_COMMAND_ASKS;
        s->asked_at = now;

    } else {
        s->asks += (uint32_t) more;
        s->asked_at += more * SBX_COMMAND_ASK_EVERY;
    }

    if (s->asks == 0) {
        return 0;
    }

    s->asks--;

    return 1;
}


/*
 * What waits for an init has a descriptor of the broker's each.  One session
 * may have many; those that do not read, together, no more than a quarter of
 * all, so that whoever else calls finds some.
 */

int
sbx_command_crowded(const sbx_session_t *s)
{
    return s->ntasks >= SBX_TASKS_MAX
           || (s->ntasks >= SBX_TASKS_LEAST
               && s->broker->ntasks >= s->broker->open_files / 4);
}


static const char *
sbx_command_capability(uint16_t op, uint32_t *needed)
{
    size_t  i;

    static const struct {
        uint16_t     op;
        uint32_t     needed;
        const char  *name;
    } table[] = {
        { SBX_OP_EXEC, SBX_CAP_SHELL, "shell" },
        { SBX_OP_PROCESS, SBX_CAP_SHELL, "shell" },
        { SBX_OP_FILE, SBX_CAP_FILES, "files" },
        { SBX_OP_PORT, SBX_CAP_PORTS, "ports" },
        { SBX_OP_CODE, SBX_CAP_CODE, "code" },
        { 0, 0, "" }
    };

    for (i = 0; table[i].op != 0 && table[i].op != op; i++) { /* void */ }

    *needed = table[i].needed;

    return table[i].name;
}


int
sbx_command_check(sbx_session_t *s, const sbx_call_t *head,
    const sbx_exec_limits_t *limits, sbx_f_error_t *error)
{
    uint32_t             needed;
    const char          *name;
    sbx_error_t          e;
    const sbx_limits_t  *own;

    own = &s->info.limits;
    name = sbx_command_capability(head->op, &needed);

    if ((s->info.status == SBX_STATUS_PAUSED || s->frozen)
        && head->op != SBX_OP_LOG)
    {
        (void) sbx_error(&e, 0, SBX_E_PAUSED, "the session is paused");

    } else if ((s->info.capabilities & needed) != needed) {
        (void) sbx_error(&e, 0, SBX_E_CAPABILITY,
                         "the session lacks the capability \"%s\"", name);

    } else if (sbx_command_crowded(s)) {
        (void) sbx_error(&e, 0, SBX_E_UNAVAILABLE,
                         "the session does not take its calls");

    } else if (head->op == SBX_OP_EXEC
               && s->ncommands >= SBX_COMMANDS_MAX)
    {
        (void) sbx_error(&e, 0, SBX_E_QUOTA,
                         "%u commands run in the session, and no more may",
                         s->ncommands);

    } else if (sbx_command_limit("memory", limits->memory, own->memory, &e)
                   == 0
               && sbx_command_limit("processes", limits->processes,
                                    own->processes, &e) == 0
               && sbx_command_limit("cpus", limits->cpus, own->cpus, &e) == 0)
    {
        return 0;
    }

    sbx_call_fill(error, &e);

    if (e.code == SBX_E_QUOTA) {
        memcpy(error->scope, "session", sizeof("session"));
        memcpy(error->resource, "commands", sizeof("commands"));
        error->limit = SBX_COMMANDS_MAX;
        error->retry_after = 1;
    }

    return -1;
}


static int
sbx_command_limit(const char *name, uint64_t asked, uint64_t cap,
    sbx_error_t *e)
{
    char                got[32], most[32];
    const sbx_limit_t  *limit;

    if (asked == SBX_UNSET) {
        return 0;
    }

    limit = sbx_limit_find(name, strlen(name), 0);

    if (asked >= limit->min && asked <= cap) {
        return 0;
    }

    got[sbx_limit_print(limit, asked, got)] = '\0';
    most[sbx_limit_print(limit, asked < limit->min ? limit->min : cap, most)]
        = '\0';

    return sbx_error(e, 0, SBX_E_MANIFEST,
                     asked < limit->min
                     ? "limits: %s asks for %s, but the least is %s"
                     : "limits: %s asks for %s, but the session has %s",
                     limit->json, got, most);
}
