/*
 * sandboxctl: what an operator asks without any server.
 *
 *   sandboxctl doctor [--state DIR] [--templates DIR]
 *   sandboxctl version
 */

#include "isolate.h"

#include <stdio.h>
#include <string.h>


#ifndef SBX_VERSION
#define SBX_VERSION             "unknown"
#endif

#define SBX_CTL_STATE           "/run/nginx-sandbox"
#define SBX_CTL_TEMPLATES       "/usr/share/nginx-sandbox/templates"
#define SBX_CTL_GROUP           "sandboxctl"


typedef struct {
    const char   *name;
    const char   *arguments;
    const char   *help;
    int         (*run)(int argc, char **argv);
} sbx_ctl_command_t;

typedef struct {
    const char   *name;
    const char  **value;
} sbx_ctl_option_t;


static int sbx_ctl_doctor(int argc, char **argv);
static int sbx_ctl_version(int argc, char **argv);
static int sbx_ctl_options(int argc, char **argv,
    const sbx_ctl_option_t *options);
static void sbx_ctl_check(const sbx_f_check_t *c, void *data);
static int sbx_ctl_usage(FILE *out);


static const sbx_ctl_command_t  sbx_ctl_commands[] = {

    { "doctor", "[--state DIR] [--templates DIR]",
      "checks what this machine can give to sessions",
      sbx_ctl_doctor },

    { "version", "",
      "tells the version",
      sbx_ctl_version },

    { NULL, NULL, NULL, NULL }
};


int
main(int argc, char **argv)
{
    const sbx_ctl_command_t  *command;

    if (argc < 2) {
        return sbx_ctl_usage(stderr);
    }

    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "help") == 0) {
        (void) sbx_ctl_usage(stdout);
        return 0;
    }

    for (command = sbx_ctl_commands; command->name != NULL; command++) {
        if (strcmp(argv[1], command->name) == 0) {
            return command->run(argc - 2, argv + 2);
        }
    }

    (void) fprintf(stderr, "sandboxctl: unknown command \"%s\"\n", argv[1]);

    return sbx_ctl_usage(stderr);
}


/* 0: all is well, 1: something is missing, 2: it was asked wrongly. */

static int
sbx_ctl_doctor(int argc, char **argv)
{
    int                     missing;
    const char             *state, *templates;
    sbx_error_t             e;
    sbx_cgroup_t           *cg;
    const sbx_ctl_option_t  options[] = {
        { "--state", &state },
        { "--templates", &templates },
        { NULL, NULL }
    };

    state = SBX_CTL_STATE;
    templates = SBX_CTL_TEMPLATES;

    if (sbx_ctl_options(argc, argv, options) != 0) {
        return 2;
    }

    missing = 0;
    cg = NULL;

    if (sbx_cgroup_open(NULL, SBX_CTL_GROUP, &cg, &e) != 0) {
        cg = NULL;
    }

    sbx_doctor(state, templates, cg, sbx_ctl_check, &missing);

    if (cg != NULL) {
        sbx_cgroup_close(cg);
    }

    return missing;
}


static void
sbx_ctl_check(const sbx_f_check_t *c, void *data)
{
    int  *missing;

    missing = data;

    (void) printf("%-8s %s: %s\n", c->ok ? "ok" : "MISSING", c->name,
                  c->found);

    if (!c->ok) {
        *missing = 1;
        (void) printf("%-8s %s\n", "", c->mend);
    }
}


static int
sbx_ctl_version(int argc, char **argv)
{
    const sbx_ctl_option_t  none[] = { { NULL, NULL } };

    if (sbx_ctl_options(argc, argv, none) != 0) {
        return 2;
    }

    (void) printf("sandboxctl %s (wire %d)\n", SBX_VERSION, SBX_WIRE_VERSION);

    return 0;
}


static int
sbx_ctl_options(int argc, char **argv, const sbx_ctl_option_t *options)
{
    int                      i;
    const sbx_ctl_option_t  *option;

    for (i = 0; i < argc; i += 2) {

        for (option = options; option->name != NULL; option++) {
            if (strcmp(argv[i], option->name) == 0) {
                break;
            }
        }

        if (option->name == NULL || i + 1 == argc) {
            (void) fprintf(stderr,
                           "sandboxctl: \"%s\" is unknown or lacks a value\n",
                           argv[i]);
            return -1;
        }

        *option->value = argv[i + 1];
    }

    return 0;
}


static int
sbx_ctl_usage(FILE *out)
{
    const sbx_ctl_command_t  *command;

    for (command = sbx_ctl_commands; command->name != NULL; command++) {
        (void) fprintf(out, "sandboxctl %s %s\n    %s\n", command->name,
                       command->arguments, command->help);
    }

    return 2;
}
