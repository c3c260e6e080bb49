/*
 * What the commands of sandboxctl share: options, exit codes, and the ways
 * to print for people and for programs.  A command is a row of the table in
 * sandboxctl.c and a file of its own.
 */

#ifndef SBX_SANDBOXCTL_H
#define SBX_SANDBOXCTL_H

#include "isolate.h"
#include "sandbox_client.h"

#include <stdio.h>


#define SBX_CTL_STATE           "/run/nginx-sandbox"
#define SBX_CTL_TEMPLATES       "/usr/share/nginx-sandbox/templates"
#define SBX_CTL_GROUP           "sandboxctl"

typedef enum {
    SBX_CTL_OK,
    SBX_CTL_FAILED,               /* what was asked about is not well */
    SBX_CTL_USAGE,
    SBX_CTL_NO_BROKER
} sbx_ctl_exit_t;

typedef struct sbx_ctl_command_s  sbx_ctl_command_t;

struct sbx_ctl_command_s {
    const char   *name;
    const char   *arguments;      /* as the usage shows them */
    const char   *summary;        /* one line */
    const char   *help;           /* what --help says of the options */
    int         (*run)(const sbx_ctl_command_t *command, int argc,
                       char **argv);
};

/* Either a value follows, or it is a flag; ends with a NULL name. */
typedef struct {
    const char   *name;
    const char  **value;
    int          *flag;
} sbx_ctl_option_t;


/*
 * Takes argc words, all of them options.  0; else the exit code is in *code:
 * help was asked for and given, or the options are wrong and one line on
 * standard error says how.
 */
int sbx_ctl_options(const sbx_ctl_command_t *command, int argc, char **argv,
    const sbx_ctl_option_t *options, int *code);
void sbx_ctl_help(const sbx_ctl_command_t *command);
int sbx_ctl_refuse(const sbx_ctl_command_t *command, const char *what,
    const char *word);

/* Text that others chose: no control character reaches a terminal. */
void sbx_ctl_text(const char *s, int width);
/* A JSON string, quoted; invalid UTF-8 is replaced. */
void sbx_ctl_json(const char *s);
/* ,"name":"value" with the comma only where more is 1 */
void sbx_ctl_json_member(int more, const char *name, const char *value);

/*
 * ask.c: a connection to the broker of a state directory, then calls on it,
 * whose frames but the last are handed to frame().  -1 with e.
 */
typedef void (*sbx_ctl_frame_pt)(uint16_t type, const uint8_t *payload,
    size_t size, void *data);

int sbx_ctl_connect(const char *state_dir, int *control, sbx_error_t *e);
int sbx_ctl_ask(int control, sbx_op_t op, const char *session,
    const void *body, size_t size, sbx_ctl_frame_pt frame, void *data,
    sbx_error_t *e);

int sbx_ctl_key(const sbx_ctl_command_t *command, int argc, char **argv);
int sbx_ctl_doctor(const sbx_ctl_command_t *command, int argc, char **argv);
int sbx_ctl_sessions(const sbx_ctl_command_t *command, int argc,
    char **argv);
int sbx_ctl_template(const sbx_ctl_command_t *command, int argc,
    char **argv);


#endif
