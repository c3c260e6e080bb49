/*
 * The string table of a call becomes the command's arguments and
 * environment: a short allow-list of init's own making, what installers need
 * and, where there is no network, what keeps them from trying again, the
 * counts of processors (cpus.c), the session's variables, the call's; the
 * last of a name wins, and each is there once.  No variable of init's
 * environment is ever passed on.
 */

#include "init.h"

#include <string.h>
#include <sys/random.h>


static const char *sbx_init_environ_string(char **p, const char *end);
static int sbx_init_environ_all(sbx_init_launch_t *launch,
    const sbx_f_exec_t *exec, char *p, const char *end, sbx_error_t *e);
static void sbx_init_environ_base(sbx_init_launch_t *launch, size_t *n);
static void sbx_init_environ_add(sbx_init_launch_t *launch, size_t *n,
    char *variable);


int
sbx_init_launch_strings(sbx_init_launch_t *launch, const sbx_f_exec_t *exec,
    sbx_error_t *e)
{
    char        *p;
    uint32_t     i;
    const char  *end;

    p = launch->strings;
    end = p + launch->strings_size;

    launch->cwd = sbx_init_environ_string(&p, end);

    if (launch->cwd == NULL) {
        return sbx_error(e, 0, SBX_E_INVALID,
                         "the working directory is not terminated");
    }

    for (i = 0; i < exec->argc; i++) {
        launch->argv[i] = (char *) (uintptr_t) sbx_init_environ_string(&p,
                                                                       end);

        if (launch->argv[i] == NULL) {
            return sbx_error(e, 0, SBX_E_INVALID,
                             "argument %u is missing", i);
        }
    }

    launch->argv[i] = NULL;
    launch->own = p;

    return sbx_init_environ_all(launch, exec, p, end, e);
}


static const char *
sbx_init_environ_string(char **p, const char *end)
{
    char  *s, *nul;

    s = *p;
    nul = s < end ? memchr(s, '\0', (size_t) (end - s)) : NULL;

    if (nul == NULL) {
        return NULL;
    }

    *p = nul + 1;

    return s;
}


static int
sbx_init_environ_all(sbx_init_launch_t *launch, const sbx_f_exec_t *exec,
    char *p, const char *end, sbx_error_t *e)
{
    char        *s, *session;
    size_t       n;
    uint32_t     i;
    const char  *last;

    n = 0;
    sbx_init_environ_base(launch, &n);

    if (exec->flags & SBX_EXEC_TTY) {
        static char  term[] = "TERM=xterm-256color";

        sbx_init_environ_add(launch, &n, term);
    }

    /* read-only, and nobody writes to it: execve() wants no const */

    session = (char *) (uintptr_t) sbx_init.env;
    last = session + sbx_init.config->env_size;

    while (session < last) {
        s = (char *) (uintptr_t) sbx_init_environ_string(&session, last);
        sbx_init_environ_add(launch, &n, s);
    }

    for (i = 0; i < exec->envc; i++) {
        s = (char *) (uintptr_t) sbx_init_environ_string(&p, end);

        if (s == NULL) {
            return sbx_error(e, 0, SBX_E_INVALID,
                             "variable %u is missing", i);
        }

        if (s[0] == '=' || strchr(s, '=') == NULL) {
            return sbx_error(e, 0, SBX_E_INVALID,
                             "variable %u has no name", i);
        }

        sbx_init_environ_add(launch, &n, s);
    }

    launch->envp[n] = NULL;

    if (p != end) {
        return sbx_error(e, 0, SBX_E_INVALID,
                         "the string table is longer than its strings");
    }

    return 0;
}


static void
sbx_init_environ_base(sbx_init_launch_t *launch, size_t *n)
{
    char        *s;
    size_t       i, len;
    const char  *value;

    static char  base[2][SBX_INIT_BASE_VARIABLES]
                     [sizeof(sbx_init.config->path) + 8];
    static char  offline[SBX_INIT_OFFLINE][32] = { SBX_OFFLINE_VARIABLES };
    static char  packages[SBX_INIT_PACKAGES][40] = { SBX_PACKAGE_VARIABLES };
    static const struct {
        const char  *name;
        const char  *values[2];       /* of the user, of root */
    } table[SBX_INIT_BASE_VARIABLES] = {
        { "PATH=", { NULL, NULL } },
        { "HOME=", { NULL, "/root" } },
        { "USER=", { "user", "root" } },
        { "LOGNAME=", { "user", "root" } },
        { "LANG=", { "C.UTF-8", "C.UTF-8" } },
        { "TERM=", { "dumb", "dumb" } },       /* without a terminal */
        { "PYTHONUNBUFFERED=", { "1", "1" } }
    };

    for (i = 0; i < SBX_INIT_BASE_VARIABLES; i++) {
        s = base[launch->root][i];
        len = strlen(table[i].name);

        if (s[0] == '\0') {
            value = table[i].values[launch->root];

            if (value == NULL) {
                value = i == 0 ? sbx_init.config->path
                               : sbx_init.config->home;
            }

            memcpy(s, table[i].name, len);
            (void) sbx_copy_string(s + len, sizeof(base[0][0]) - len, value,
                                   strlen(value));
        }

        sbx_init_environ_add(launch, n, s);
    }

    for (i = 0; i < SBX_INIT_PACKAGES; i++) {
        sbx_init_environ_add(launch, n, packages[i]);
    }

    if (sbx_init.network == SBX_NETWORK_NONE) {
        for (i = 0; i < SBX_INIT_OFFLINE; i++) {
            sbx_init_environ_add(launch, n, offline[i]);
        }
    }

    for (i = 0; i < SBX_INIT_CPUS_VARIABLES; i++) {
        sbx_init_environ_add(launch, n, launch->threads[i]);
    }
}


/* The hash is keyed: names are a stranger's, and so would collisions be. */

static void
sbx_init_environ_add(sbx_init_launch_t *launch, size_t *n, char *variable)
{
    size_t           i, len;
    uint64_t         hash;
    const char      *equals;
    static uint64_t  key;

    equals = strchr(variable, '=');

    if (equals == NULL || equals == variable) {
        return;
    }

    if (key == 0) {
        if (getrandom(&key, sizeof(key), 0) != sizeof(key)) {
            key = sbx_now_us() * 0x9e3779b97f4a7c15u;
        }

        key |= 1;
    }

    len = (size_t) (equals - variable) + 1;
    hash = key;

    for (i = 0; i < len; i++) {
        hash = (hash ^ (uint8_t) variable[i]) * 0x9e3779b97f4a7c15u;
        hash ^= hash >> 29;
    }

    hash *= key;
    hash ^= hash >> 32;

    for (i = hash & (launch->nslots - 1);
         launch->slots[i] != 0;
         i = (i + 1) & (launch->nslots - 1))
    {
        if (strncmp(launch->envp[launch->slots[i] - 1], variable, len) == 0) {
            launch->envp[launch->slots[i] - 1] = variable;
            return;
        }
    }

    launch->envp[(*n)++] = variable;
    launch->slots[i] = (uint32_t) *n;
}
