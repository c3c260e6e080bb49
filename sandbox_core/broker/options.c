#include "options.h"
#include "sandbox_fault.h"
#include "sandbox_util.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <stdio.h>
#include <string.h>


#define SBX_ARGS_MAX     24
#define SBX_PROGRAM      "sandbox-broker"


typedef enum {
    SBX_OPTION_PATH,      /* absolute */
    SBX_OPTION_STRING,
    SBX_OPTION_NUMBER,
    SBX_OPTION_FD
} sbx_option_type_t;

typedef struct {
    const char         *name;
    sbx_option_type_t   type;
    size_t              offset;
} sbx_option_t;


static int sbx_options_value(const sbx_option_t *option, char *value,
    sbx_options_t *options, sbx_error_t *e);
static int sbx_options_number(const sbx_option_t *option, const char *s,
    int *number, sbx_error_t *e);
static int sbx_options_check(sbx_options_t *options, sbx_error_t *e);
static int sbx_options_pass(int fd);


#define OPTION(field)  offsetof(sbx_options_t, field)

static const sbx_option_t  sbx_option_table[] = {
    { "--state", SBX_OPTION_PATH, OPTION(state_dir) },
    { "--helpers", SBX_OPTION_PATH, OPTION(helper_dir) },
    { "--kernels", SBX_OPTION_PATH, OPTION(kernels_dir) },
    { "--log", SBX_OPTION_STRING, OPTION(log_path) },
    { "--socket-group", SBX_OPTION_STRING, OPTION(socket_group) },
    { "--report", SBX_OPTION_FD, OPTION(report) },
    { "--link", SBX_OPTION_FD, OPTION(link) },
    { "--listen", SBX_OPTION_FD, OPTION(listen) },
    { "--inherit", SBX_OPTION_FD, OPTION(inherit) },
    { "--turn", SBX_OPTION_NUMBER, OPTION(turn) },
    { NULL, 0, 0 }
};


int
sbx_options_parse(int argc, char **argv, sbx_options_t *options,
    sbx_error_t *e)
{
    int                  i;
    const sbx_option_t  *option;

    memset(options, 0, sizeof(sbx_options_t));
    options->log_path = "";
    options->report = -1;
    options->link = -1;
    options->listen = -1;
    options->inherit = -1;

    for (i = 1; i < argc; i++) {

        if (strcmp(argv[i], "--keeper") == 0) {
            options->keeper = 1;
            continue;
        }

        if (strcmp(argv[i], "--broker") == 0) {
            options->broker = 1;
            continue;
        }

        if (strcmp(argv[i], "--standalone") == 0) {
            options->standalone = 1;
            continue;
        }

        for (option = sbx_option_table; option->name != NULL; option++) {
            if (strcmp(argv[i], option->name) == 0) {
                break;
            }
        }

        if (option->name == NULL || i + 1 == argc) {
            return sbx_error(e, 0, SBX_E_INVALID,
                             "option \"%.100s\" is unknown or lacks a value",
                             argv[i]);
        }

        if (sbx_options_value(option, argv[++i], options, e) != 0) {
            return -1;
        }
    }

    return sbx_options_check(options, e);
}


static int
sbx_options_value(const sbx_option_t *option, char *value,
    sbx_options_t *options, sbx_error_t *e)
{
    char  *field;

    field = (char *) options + option->offset;

    switch (option->type) {

    case SBX_OPTION_PATH:
        if (value[0] != '/') {
            return sbx_error(e, 0, SBX_E_INVALID,
                             "%s needs an absolute path, not \"%.100s\"",
                             option->name, value);
        }

        /* fall through */

    case SBX_OPTION_STRING:
        *(const char **) (void *) field = value;
        return 0;

    case SBX_OPTION_NUMBER:
    case SBX_OPTION_FD:
        break;
    }

    return sbx_options_number(option, value, (int *) (void *) field, e);
}


static int
sbx_options_number(const sbx_option_t *option, const char *s, int *number,
    sbx_error_t *e)
{
    long   n;
    char  *end;

    errno = 0;
    n = strtol(s, &end, 10);

    if (errno != 0 || end == s || *end != '\0' || n < 0 || n > 1 << 30) {
        return sbx_error(e, 0, SBX_E_INVALID,
                         "%s needs a number, not \"%.20s\"", option->name, s);
    }

    if (option->type == SBX_OPTION_FD
        && (n <= STDERR_FILENO || fcntl((int) n, F_SETFD, FD_CLOEXEC) == -1))
    {
        return sbx_error(e, 0, SBX_E_INVALID,
                         "%s: %ld is no open descriptor", option->name, n);
    }

    *number = (int) n;

    return 0;
}


static int
sbx_options_check(sbx_options_t *options, sbx_error_t *e)
{
    struct group  *group;

    if (options->keeper == options->broker) {
        return sbx_error(e, 0, SBX_E_INVALID,
                         "one of --keeper and --broker is needed");
    }

    if (options->state_dir == NULL || options->helper_dir == NULL) {
        return sbx_error(e, 0, SBX_E_INVALID,
                         "--state and --helpers are needed");
    }

    if (options->broker && options->link == -1) {
        return sbx_error(e, 0, SBX_E_INVALID,
                         "the broker is started by its keeper: use --keeper");
    }

    if (options->socket_group == NULL) {
        return 0;
    }

    if (!options->standalone) {
        return sbx_error(e, 0, SBX_E_INVALID,
                         "--socket-group needs --standalone");
    }

    group = getgrnam(options->socket_group);

    if (group == NULL) {
        return sbx_error(e, 0, SBX_E_INVALID,
                         "there is no group \"%.100s\"",
                         options->socket_group);
    }

    options->socket_gid = group->gr_gid;

    return 0;
}


static int
sbx_options_pass(int fd)
{
    return fcntl(fd, F_SETFD, 0);
}


int
sbx_options_exec(const sbx_options_t *options, sbx_error_t *e)
{
    int                  argc, number;
    char                *argv[SBX_ARGS_MAX], numbers[SBX_ARGS_MAX][12];
    char                 path[4096];
    const char          *field;
    const sbx_option_t  *option;

    argc = 0;
    argv[argc++] = (char *) (uintptr_t) SBX_PROGRAM;
    argv[argc++] = (char *) (uintptr_t) (options->keeper ? "--keeper"
                                                         : "--broker");

    if (options->standalone) {
        argv[argc++] = (char *) (uintptr_t) "--standalone";
    }

    for (option = sbx_option_table; option->name != NULL; option++) {
        field = (const char *) options + option->offset;

        if (option->type == SBX_OPTION_FD
            || option->type == SBX_OPTION_NUMBER)
        {
            number = *(const int *) (const void *) field;

            if (option->type == SBX_OPTION_FD
                && (number == -1 || sbx_options_pass(number) == -1))
            {
                continue;
            }

            argv[argc++] = (char *) (uintptr_t) option->name;
            (void) snprintf(numbers[argc], sizeof(numbers[argc]), "%d",
                            number);
            argv[argc] = numbers[argc];
            argc++;
            continue;
        }

        if (*(char *const *) (const void *) field != NULL) {
            argv[argc++] = (char *) (uintptr_t) option->name;
            argv[argc++] = *(char *const *) (const void *) field;
        }
    }

    argv[argc] = NULL;

#ifdef SBX_FAULTS
    if (sbx_fault_env() != NULL) {
        (void) putenv(sbx_fault_env());

    } else {
        /* of the point at which this process was held itself */
        (void) unsetenv("SANDBOX_FAULT");
    }
#endif

    /* the running program itself, also when an upgrade has replaced it */

    (void) execv("/proc/self/exe", argv);

    (void) snprintf(path, sizeof(path), "%s/" SBX_PROGRAM,
                    options->helper_dir);
    (void) execv(path, argv);

    return sbx_error(e, errno, SBX_E_UNAVAILABLE, "cannot execute \"%s\"",
                     path);
}
