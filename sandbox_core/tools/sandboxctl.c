/*
 * sandboxctl: what an operator asks without any HTTP, and a sandbox without
 * any server.
 */

#include "sandboxctl.h"
#include "run.h"

#include "json.h"

#include <string.h>


#ifndef SBX_VERSION
#define SBX_VERSION             "unknown"
#endif


static int sbx_ctl_version(const sbx_ctl_command_t *command, int argc,
    char **argv);
static int sbx_ctl_run_command(const sbx_ctl_command_t *command, int argc,
    char **argv);
static void sbx_ctl_usage(FILE *out);


static const sbx_ctl_command_t  sbx_ctl_commands[] = {

    { "doctor", "[--state DIR] [--templates DIR] [--json]",
      "checks what this machine can give to sessions",
      "  --state DIR      the server's state directory, " SBX_CTL_STATE "\n"
      "  --templates DIR  where templates are, " SBX_CTL_TEMPLATES "\n"
      "  --json           one JSON object, as GET /doctor gives it\n",
      sbx_ctl_doctor },

    { "sessions", "[--state DIR] [--json]",
      "lists the sessions of the running broker; root only",
      "  --state DIR      the server's state directory, " SBX_CTL_STATE "\n"
      "  --json           one JSON object\n",
      sbx_ctl_sessions },

    { "template", "list [--templates DIR] [--json]",
      "lists the templates that there are",
      "  --templates DIR  where templates are, " SBX_CTL_TEMPLATES "\n"
      "  --json           one JSON object\n",
      sbx_ctl_template },

    { "run", "[OPTION...] -- COMMAND [ARGUMENT...]",
      "runs a command in a sandbox of its own",
      "  --workspace DIR        where it starts and may write; else a private "
                               "one\n"
      "  --writable DIR         one more that it may write; may be repeated\n"
      "  --deny-write PATH      stays unwritable; may be repeated\n"
      "  --deny-read PATH       cannot be read; may be repeated\n"
      "  --env NAME=VALUE       a variable; may be repeated\n"
      "  --cwd DIR              where to start; else the workspace\n"
      "  --input FILE           standard input; else it is at its end\n"
      "  --memory SIZE          512MB, of all that runs\n"
      "  --cpus N               processors, 0.5\n"
      "  --cpu-seconds S        processor time of all that runs\n"
      "  --processes N          processes and threads at once\n"
      "  --max-file-size SIZE   of one file\n"
      "  --open-files N         of one process\n"
      "  --stack SIZE           of one process\n"
      "  --timeout S            seconds, or none; else 60\n"
      "  --max-output SIZE      kept of each stream; else 1MB\n"
      "  --memory-strategy WORD auto, cgroup or rlimit\n"
      "  --backend WORD         auto, namespaces or passthrough\n"
      "  --require-isolation    fails rather than isolate less\n"
      "  --network              the host's own network; else only lo\n"
      "  --json                 one JSON object instead of the streams\n"
      "  --helper FILE          sandbox-session, where it is not found\n"
      "\n"
      "The exit status is the command's; 128 and the number of a signal, 124 "
      "after\nthe time limit, 125 where the call is wrong, 126 and 127 where "
      "the program\ncannot be run and is not there.\n",
      sbx_ctl_run_command },

    { "key", "TENANT USER",
      "makes an API key, and its line for a file of sandbox_keys",
      "The first line is the key, which is nowhere kept; the second one is "
      "for the\nfile.\n",
      sbx_ctl_key },

    { "version", "",
      "tells the version",
      "",
      sbx_ctl_version },

    { NULL, NULL, NULL, NULL, NULL }
};


int
main(int argc, char **argv)
{
    const sbx_ctl_command_t  *command;

    if (argc < 2) {
        sbx_ctl_usage(stderr);
        return SBX_CTL_USAGE;
    }

    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "help") == 0) {
        sbx_ctl_usage(stdout);
        return SBX_CTL_OK;
    }

    for (command = sbx_ctl_commands; command->name != NULL; command++) {
        if (strcmp(argv[1], command->name) == 0) {
            return command->run(command, argc - 2, argv + 2);
        }
    }

    (void) fprintf(stderr, "sandboxctl: unknown command \"%s\", see "
                   "\"sandboxctl --help\"\n", argv[1]);

    return SBX_CTL_USAGE;
}


/* Its options are many, and repeat: it reads them by itself. */

static int
sbx_ctl_run_command(const sbx_ctl_command_t *command, int argc, char **argv)
{
    if (argc != 0 && strcmp(argv[0], "--help") == 0) {
        sbx_ctl_help(command);
        return SBX_CTL_OK;
    }

    return sbx_ctl_run(argc, argv);
}


static int
sbx_ctl_version(const sbx_ctl_command_t *command, int argc, char **argv)
{
    int                     code;
    const sbx_ctl_option_t  none[] = { { NULL, NULL, NULL } };

    if (sbx_ctl_options(command, argc, argv, none, &code) != 0) {
        return code;
    }

    (void) printf("sandboxctl %s (wire %d)\n", SBX_VERSION, SBX_WIRE_VERSION);

    return SBX_CTL_OK;
}


int
sbx_ctl_options(const sbx_ctl_command_t *command, int argc, char **argv,
    const sbx_ctl_option_t *options, int *code)
{
    int                      i;
    const sbx_ctl_option_t  *option;

    for (i = 0; i < argc; i++) {

        if (strcmp(argv[i], "--help") == 0) {
            sbx_ctl_help(command);
            *code = SBX_CTL_OK;
            return -1;
        }

        for (option = options; option->name != NULL; option++) {
            if (strcmp(argv[i], option->name) == 0) {
                break;
            }
        }

        if (option->name == NULL) {
            *code = sbx_ctl_refuse(command, "unknown argument", argv[i]);
            return -1;
        }

        if (option->value == NULL) {
            *option->flag = 1;
            continue;
        }

        if (i + 1 == argc) {
            *code = sbx_ctl_refuse(command, "no value for", argv[i]);
            return -1;
        }

        *option->value = argv[++i];
    }

    return 0;
}


int
sbx_ctl_refuse(const sbx_ctl_command_t *command, const char *what,
    const char *word)
{
    (void) fprintf(stderr, "sandboxctl: %s \"%s\", see \"sandboxctl %s "
                   "--help\"\n", what, word, command->name);

    return SBX_CTL_USAGE;
}


static void
sbx_ctl_usage(FILE *out)
{
    const sbx_ctl_command_t  *command;

    for (command = sbx_ctl_commands; command->name != NULL; command++) {
        (void) fprintf(out, "sandboxctl %s %s\n    %s\n", command->name,
                       command->arguments, command->summary);
    }
}


void
sbx_ctl_help(const sbx_ctl_command_t *command)
{
    (void) printf("sandboxctl %s %s\n\n%s.\n\n%s", command->name,
                  command->arguments, command->summary, command->help);
}


void
sbx_ctl_text(const char *s, int width)
{
    int  n;

    for (n = 0; *s != '\0'; s++, n++) {
        (void) putchar((unsigned char) *s < ' ' || *s == 0x7f ? '?' : *s);
    }

    for ( /* void */ ; n < width; n++) {
        (void) putchar(' ');
    }
}


void
sbx_ctl_json(const char *s)
{
    size_t       n, left;
    const char  *special;

    static const char  escapes[] = "\"\\\b\f\n\r\t";
    static const char  letters[] = "\"\\bfnrt";

    (void) putchar('"');

    for (left = strlen(s); left != 0; s += n, left -= n) {
        n = sbx_utf8_sequence(s, left);

        if (n > 1) {
            (void) fwrite(s, 1, n, stdout);
            continue;
        }

        special = strchr(escapes, *s);

        if (n == 0) {
            (void) fputs("\\ufffd", stdout);
            n = 1;

        } else if (special != NULL) {
            (void) printf("\\%c", letters[special - escapes]);

        } else if ((unsigned char) *s < ' ' || *s == 0x7f) {
            (void) printf("\\u%04x", (unsigned) (unsigned char) *s);

        } else {
            (void) putchar(*s);
        }
    }

    (void) putchar('"');
}


void
sbx_ctl_json_member(int more, const char *name, const char *value)
{
    (void) printf("%s\"%s\":", more ? "," : "", name);
    sbx_ctl_json(value);
}
