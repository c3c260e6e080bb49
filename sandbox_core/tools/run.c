/*
 * sandboxctl run: one command in a sandbox, without any server.  The exit
 * status is the command's (128 + n for a signal), 124 after the time limit,
 * 126 and 127 for a program that cannot be run, 125 for what is wrong with
 * the call itself.
 *
 * SIGINT, SIGTERM and SIGHUP cancel: a thread waits for them, so that the
 * end is the same as any other, with nothing left behind.
 */

#include "run.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>


#define SBX_RUN_MISTAKE   125
#define SBX_RUN_TIMEOUT   124


typedef struct {
    const char              **items;
    size_t                    n;
} sbx_run_list_t;

typedef struct {
    sbx_sandbox_options_t     o;
    sbx_sandbox_command_t     c;
    sbx_run_list_t            writable;
    sbx_run_list_t            deny_write;
    sbx_run_list_t            deny_read;
    sbx_run_list_t            env;
    const char               *input;
    unsigned                  json;
} sbx_run_args_t;

typedef enum {
    SBX_RUN_LIMIT,                /* by its name in the table */
    SBX_RUN_STRING,
    SBX_RUN_LIST,
    SBX_RUN_FLAG,
    SBX_RUN_WORD
} sbx_run_type_t;

typedef struct {
    const char          *name;
    sbx_run_type_t       type;
    size_t               offset;
    const char          *limit;
    const char *const   *words;
} sbx_run_option_t;


static int sbx_run_parse(sbx_run_args_t *a, int argc, char **argv);
static int sbx_run_option(sbx_run_args_t *a, const sbx_run_option_t *option,
    const char *value);
static int sbx_run_limit(sbx_run_args_t *a, const sbx_run_option_t *option,
    const char *value);
static const char *sbx_run_shown(const char *value);
static int sbx_run_mistake(const char *fmt, ...)
    __attribute__((format(printf, 1, 2)));
static int sbx_run_error(const sbx_error_t *e);
static int sbx_run_go(sbx_run_args_t *a);
static void sbx_run_output(int stream, const void *data, size_t size,
    void *ctx);
static void sbx_run_tell(const sbx_run_args_t *a,
    const sbx_sandbox_result_t *r);
static void *sbx_run_signals(void *data);


static const char *const  sbx_run_backends[] = {
    [SBX_BACKEND_AUTO] = "auto", [SBX_BACKEND_NAMESPACES] = "namespaces",
    [SBX_BACKEND_PASSTHROUGH] = "passthrough", NULL
};

static const char *const  sbx_run_strategies[] = {
    [SBX_MEMORY_AUTO] = "auto", [SBX_MEMORY_CGROUP] = "cgroup",
    [SBX_MEMORY_RLIMIT] = "rlimit", NULL
};

#define ARG(f)  offsetof(sbx_run_args_t, f)

static const sbx_run_option_t  sbx_run_options[] = {
    { "--memory", SBX_RUN_LIMIT, 0, "memory", NULL },
    { "--cpus", SBX_RUN_LIMIT, 0, "cpus", NULL },
    { "--cpu-seconds", SBX_RUN_LIMIT, 0, "cpu_seconds", NULL },
    { "--processes", SBX_RUN_LIMIT, 0, "processes", NULL },
    { "--max-file-size", SBX_RUN_LIMIT, 0, "max_file_size", NULL },
    { "--open-files", SBX_RUN_LIMIT, 0, "open_files", NULL },
    { "--stack", SBX_RUN_LIMIT, 0, "stack", NULL },
    { "--timeout", SBX_RUN_LIMIT, 0, "exec_timeout", NULL },
    { "--max-output", SBX_RUN_LIMIT, 0, "max_output", NULL },
    { "--workspace", SBX_RUN_STRING, ARG(o.workspace), NULL, NULL },
    { "--cwd", SBX_RUN_STRING, ARG(c.cwd), NULL, NULL },
    { "--input", SBX_RUN_STRING, ARG(input), NULL, NULL },
    { "--helper", SBX_RUN_STRING, ARG(o.helper), NULL, NULL },
    { "--writable", SBX_RUN_LIST, ARG(writable), NULL, NULL },
    { "--deny-write", SBX_RUN_LIST, ARG(deny_write), NULL, NULL },
    { "--deny-read", SBX_RUN_LIST, ARG(deny_read), NULL, NULL },
    { "--env", SBX_RUN_LIST, ARG(env), NULL, NULL },
    { "--network", SBX_RUN_FLAG, ARG(o.network), NULL, NULL },
    { "--require-isolation", SBX_RUN_FLAG, ARG(o.require_isolation), NULL,
      NULL },
    { "--json", SBX_RUN_FLAG, ARG(json), NULL, NULL },
    { "--backend", SBX_RUN_WORD, ARG(o.backend), NULL, sbx_run_backends },
    { "--memory-strategy", SBX_RUN_WORD, ARG(o.memory_strategy), NULL,
      sbx_run_strategies },
    { NULL, SBX_RUN_FLAG, 0, NULL, NULL }
};


int
sbx_ctl_run(int argc, char **argv)
{
    int             rc;
    sbx_run_args_t  a;

    memset(&a, 0, sizeof(a));
    sbx_sandbox_options_init(&a.o);
    sbx_sandbox_command_init(&a.c);

    rc = sbx_run_parse(&a, argc, argv);

    if (rc == 0) {
        rc = sbx_run_go(&a);
    }

    free(a.writable.items);
    free(a.deny_write.items);
    free(a.deny_read.items);
    free(a.env.items);

    return rc;
}


const char *
sbx_run_backend_word(sbx_backend_t backend)
{
    return sbx_run_backends[backend];
}


static int
sbx_run_mistake(const char *fmt, ...)
{
    va_list  args;

    (void) fprintf(stderr, "sandboxctl: ");
    va_start(args, fmt);
    (void) vfprintf(stderr, fmt, args);
    va_end(args);
    (void) fputc('\n', stderr);

    return SBX_RUN_MISTAKE;
}


static int
sbx_run_error(const sbx_error_t *e)
{
    return e->err != 0 ? sbx_run_mistake("%s: %s", e->text, strerror(e->err))
                       : sbx_run_mistake("%s", e->text);
}


static int
sbx_run_parse(sbx_run_args_t *a, int argc, char **argv)
{
    int                      i, rc;
    size_t                   len;
    const char              *value;
    const sbx_run_option_t  *option;

    for (i = 0; i < argc && strcmp(argv[i], "--") != 0; i++) {
        value = strchr(argv[i], '=');
        len = value != NULL ? (size_t) (value - argv[i]) : strlen(argv[i]);

        for (option = sbx_run_options; option->name != NULL; option++) {
            if (strlen(option->name) == len
                && strncmp(option->name, argv[i], len) == 0)
            {
                break;
            }
        }

        if (option->name == NULL) {
            return argv[i][0] == '-'
                   ? sbx_run_mistake("unknown option \"%s\", see "
                                     "\"sandboxctl run --help\"", argv[i])
                   : sbx_run_mistake("\"--\" must come before the command "
                                     "\"%s\"", argv[i]);
        }

        if (option->type == SBX_RUN_FLAG) {
            if (value != NULL) {
                return sbx_run_mistake("%s takes no value", option->name);
            }

            *(unsigned *) (void *) ((char *) a + option->offset) = 1;
            continue;
        }

        if (value != NULL) {
            value++;

        } else if (i + 1 < argc) {
            value = argv[++i];

        } else {
            return sbx_run_mistake("%s lacks a value", option->name);
        }

        rc = sbx_run_option(a, option, value);

        if (rc != 0) {
            return rc;
        }
    }

    if (i + 1 >= argc) {
        return sbx_run_mistake("there is no command after \"--\"");
    }

    a->c.argv = (const char *const *) (void *) (argv + i + 1);
    a->o.writable = a->writable.items;
    a->o.deny_write = a->deny_write.items;
    a->o.deny_read = a->deny_read.items;
    a->o.env = a->env.items;

    return 0;
}


static int
sbx_run_option(sbx_run_args_t *a, const sbx_run_option_t *option,
    const char *value)
{
    void             *field;
    unsigned          i;
    const char      **items;
    sbx_run_list_t   *list;

    field = (char *) a + option->offset;

    switch (option->type) {

    case SBX_RUN_LIMIT:
        return sbx_run_limit(a, option, value);

    case SBX_RUN_STRING:
        *(const char **) field = value;
        return 0;

    case SBX_RUN_LIST:
        list = field;
        items = realloc(list->items, (list->n + 2) * sizeof(char *));

        if (items == NULL) {
            return sbx_run_mistake("no memory");
        }

        items[list->n++] = value;
        items[list->n] = NULL;
        list->items = items;
        return 0;

    case SBX_RUN_WORD:
        for (i = 0; option->words[i] != NULL; i++) {
            if (strcmp(option->words[i], value) == 0) {
                *(unsigned *) field = i;
                return 0;
            }
        }

        return sbx_run_mistake("%s %s: must be %s, %s or %s", option->name,
                               sbx_run_shown(value), option->words[0],
                               option->words[1], option->words[2]);

    case SBX_RUN_FLAG:
        break;
    }

    return 0;
}


/* Without the option most are without a limit; "none" is for the rest. */
static int
sbx_run_limit(sbx_run_args_t *a, const sbx_run_option_t *option,
    const char *value)
{
    uint64_t           *field;
    sbx_error_t         e;
    const sbx_limit_t  *limit;

    limit = sbx_limit_find(option->limit, strlen(option->limit), 0);
    field = sbx_limit_field(&a->o.limits, limit);

    if (sbx_limit_parse(limit, value, strlen(value), field, &e) == 0) {
        return 0;
    }

    if (strcmp(value, "none") == 0
        && strcmp(limit->name, "max_output") != 0)
    {
        return sbx_run_mistake("%s none: leave the option out for no limit",
                               option->name);
    }

    return sbx_run_mistake("%s %s: %s%s", option->name, sbx_run_shown(value),
                           e.text, limit->unlimited_ok ? ", or none" : "");
}


static const char *
sbx_run_shown(const char *value)
{
    return value[0] != '\0' ? value : "\"\"";
}


static int
sbx_run_go(sbx_run_args_t *a)
{
    int                    rc;
    sigset_t               set;
    pthread_t              thread;
    sbx_error_t            e;
    sbx_sandbox_t         *sb;
    sbx_sandbox_result_t   r;

    if (a->input != NULL) {
        a->c.input_fd = open(a->input, O_RDONLY | O_CLOEXEC);

        if (a->c.input_fd == -1) {
            return sbx_run_mistake("cannot open \"%s\": %s", a->input,
                                   strerror(errno));
        }
    }

    (void) signal(SIGPIPE, SIG_IGN);
    (void) sigemptyset(&set);
    (void) sigaddset(&set, SIGINT);
    (void) sigaddset(&set, SIGTERM);
    (void) sigaddset(&set, SIGHUP);
    (void) pthread_sigmask(SIG_BLOCK, &set, NULL);

    if (sbx_sandbox_open(&a->o, &sb, &e) == -1) {
        return sbx_run_error(&e);
    }

    if (!a->json) {
        a->c.output = sbx_run_output;
    }

    if (pthread_create(&thread, NULL, sbx_run_signals, sb) != 0) {
        sbx_sandbox_free(sb);
        return sbx_run_mistake("no thread can be made");
    }

    if (sbx_sandbox_run(sb, &a->c, &r, &e) == -1) {
        rc = sbx_run_error(&e);

    } else {
        sbx_run_tell(a, &r);

        rc = r.timed_out ? SBX_RUN_TIMEOUT : r.exit_code;

        if (a->json && sbx_run_json(&r, sbx_sandbox_workspace(sb)) == -1) {
            rc = sbx_run_mistake("the result cannot be written");
        }

        sbx_sandbox_result_free(&r);
    }

    (void) pthread_cancel(thread);
    (void) pthread_join(thread, NULL);
    sbx_sandbox_free(sb);

    return rc;
}


/* Each signal cancels: one may come before there is anything to cancel. */
static void *
sbx_run_signals(void *data)
{
    int       sig;
    sigset_t  set;

    (void) sigemptyset(&set);
    (void) sigaddset(&set, SIGINT);
    (void) sigaddset(&set, SIGTERM);
    (void) sigaddset(&set, SIGHUP);

    for ( ;; ) {
        if (sigwait(&set, &sig) != 0) {
            continue;
        }

        while (sbx_sandbox_cancel(data) == 0) {
            (void) usleep(1000);
        }
    }

    return NULL;
}


static void
sbx_run_output(int stream, const void *data, size_t size, void *ctx)
{
    (void) ctx;

    /* who does not read shall not keep the command from its end */

    (void) sbx_write_all(stream, data, size);
}


static void
sbx_run_tell(const sbx_run_args_t *a, const sbx_sandbox_result_t *r)
{
    size_t  i;

    const struct {
        const char                  *name;
        const sbx_sandbox_output_t  *out;
    } streams[] = { { "stdout", &r->out }, { "stderr", &r->err } };

    if (r->note[0] != '\0') {
        (void) fprintf(stderr, "sandboxctl: %s\n", r->note);
    }

    if (a->json) {
        return;
    }

    for (i = 0; i < sbx_nelts(streams); i++) {
        if (streams[i].out->truncated) {
            (void) fprintf(stderr, "sandboxctl: %s was cut, it had %llu "
                           "bytes\n", streams[i].name,
                           (unsigned long long) streams[i].out->total);
        }
    }

    if (strcmp(r->reason, "exited") != 0 && strcmp(r->reason, "signal") != 0
        && strcmp(r->reason, "not_started") != 0)
    {
        (void) fprintf(stderr, "sandboxctl: ended: %s\n", r->reason);
    }
}
