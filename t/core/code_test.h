/*
 * For tests of code: calls that run it, their answers, and an interpreter
 * that does as it is told, good or bad.
 */

#ifndef SBX_CODE_TEST_H
#define SBX_CODE_TEST_H

#include "sandbox_languages.h"

#include "code_kernel.h"
#include "init_test.h"


typedef struct {
    uint32_t            verb;        /* 0: RUN */
    const char         *context;
    const char         *language;
    const char         *cwd;
    const char         *code;
    size_t              code_size;   /* 0: of the text */
    const char *const  *env;
    uint32_t            flags;
    uint64_t            timeout;     /* 0: the session's, as below */
    uint64_t            max_output;
} code_t;

typedef struct {
    init_call_t      call;
    int              ended;          /* SBX_F_RAN, _ERROR, _END; 0: EOF */
    int              accepted;
    unsigned         contexts;
    sbx_f_context_t  context;        /* the last one, */
    char             id[SBX_CONTEXT_MAX + 1];
    char             language[SBX_LANGUAGE_MAX + 1];
    char             cwd[SBX_PATH_MAX];
    sbx_f_ran_t      ran;
    sbx_f_error_t    error;
    char            *out;
    size_t           out_size;
    char            *err;
    size_t           err_size;
    char             order[256];     /* a letter for each frame */
    char             results[8192];  /* kind{name=value,...} */
    size_t           result_bytes;
    unsigned         complete;       /* results */
    uint64_t         field;          /* bytes of it that are to come */
    unsigned         files;
    char             paths[8192];    /* each with a space after it */
    size_t           path_bytes;
    uint64_t         size;           /* of the last one */
} code_answer_t;


static init_session_t  s;
static init_result_t   r;
static code_answer_t   a;
static int             code_deaf;    /* groups are not given */
static char            code_table[SBX_LANGUAGES_SIZE];


static void
code_group(void)
{
    sbx_task_t  task;

    memset(&task, 0, sizeof(task));
    task.command = ++init_number;
    task.token = s.token;
    init_task(&s, SBX_OP_GROUP, &task, -1, NULL, 0);
}


/* Records that are there; groups are given. */

static void
code_records(void)
{
    uint32_t       groups;
    struct pollfd  pfd;

    pfd.fd = s.control;
    pfd.events = POLLIN;

    while (poll(&pfd, 1, 0) == 1) {
        groups = s.groups;
        init_records(&s, INIT_WAIT);

        if (s.groups != groups && !code_deaf) {
            code_group();
        }
    }
}


static void
code_add(size_t *used, const char *name, const char *text)
{
    sbx_error_t  e;

    if (sbx_language_add(code_table, used, name, text, strlen(text), &e)
        != 0)
    {
        printf("Bail out! %s\n", e.text);
        exit(1);
    }

    init_languages = code_table;
    init_languages_size = *used;
}


static void
code_begin(const code_t *x, code_answer_t *w)
{
    char          buf[sizeof(sbx_f_code_t) + SBX_CONTEXT_MAX
                      + SBX_LANGUAGE_MAX + SBX_PATH_MAX];
    char         *strings;
    size_t        n, i, left;
    sbx_f_code_t  code;

    memset(&code, 0, sizeof(code));
    code.verb = x->verb != 0 ? x->verb : SBX_CODE_RUN;
    code.flags = x->flags;
    code.timeout = x->timeout ? x->timeout : SBX_UNSET;
    code.max_output = x->max_output ? x->max_output : SBX_UNSET;

    n = sizeof(code);

#define NAME(f)                                                              \
    if (x->f != NULL) {                                                      \
        code.f ## _len = (uint32_t) strlen(x->f);                            \
        memcpy(buf + n, x->f, strlen(x->f));                                 \
        n += strlen(x->f);                                                   \
    }

    NAME(context)
    NAME(language)
    NAME(cwd)

    strings = malloc(SBX_CODE_STRINGS_MAX * 2);
    left = 0;

    if (x->code != NULL) {
        left = x->code_size ? x->code_size : strlen(x->code);
        memcpy(strings, x->code, left);
        code.code_size = (uint32_t) left;
    }

    for (i = 0; x->env != NULL && x->env[i] != NULL; i++) {
        left += (size_t) (stpcpy(strings + left, x->env[i])
                          - (strings + left)) + 1;
        code.envc++;
    }

    code.strings_size = (uint32_t) left;
    memcpy(buf, &code, sizeof(code));

    init_call(&s, SBX_OP_CODE, NULL, NULL, 0, &w->call);
    init_send(w->call.fd, SBX_F_CODE, buf, n);

    for (i = 0; i < left; i += n) {
        n = left - i < SBX_FRAME_MAX ? left - i : SBX_FRAME_MAX;
        init_send(w->call.fd, SBX_F_STRINGS, strings + i, n);
    }

    free(strings);
}


static void
code_order(code_answer_t *w, char letter)
{
    size_t  n;

    n = strlen(w->order);

    if (n + 1 < sizeof(w->order) && (n == 0 || w->order[n - 1] != letter)) {
        w->order[n] = letter;
    }
}


static void
code_text(char *to, size_t size, const char *text, size_t len)
{
    size_t  n;

    n = strlen(to);
    len = len < size - n - 1 ? len : size - n - 1;
    memcpy(to + n, text, len);
    to[n + len] = '\0';
}


static void
code_take(code_answer_t *w, const sbx_frame_t *frame, const uint8_t *p)
{
    size_t           n;
    const char      *s1, *s2, *s3, *s4;
    sbx_f_field_t    field;
    sbx_f_entry_t    entry;
    sbx_f_result_t   result;
    const char      *kinds[] = { "display{", "main{", "error{" };

    n = frame->length;

    switch (frame->type) {

    case SBX_F_ACCEPTED:
        w->accepted++;
        break;

    case SBX_F_CONTEXT:
        w->contexts++;
        code_order(w, 'c');

        if (sbx_wire_check_context(p, n, &w->context, &s1, &s2, &s3) != 0) {
            printf("Bail out! a context is malformed\n");
            exit(1);
        }

        (void) sbx_copy_string(w->id, sizeof(w->id), s1, w->context.id_len);
        (void) sbx_copy_string(w->language, sizeof(w->language), s2,
                               w->context.language_len);
        (void) sbx_copy_string(w->cwd, sizeof(w->cwd), s3,
                               w->context.cwd_len);
        break;

    case SBX_F_STDOUT:
        code_order(w, 'o');
        init_append(&w->out, &w->out_size, p, n);
        break;

    case SBX_F_STDERR:
        code_order(w, 'e');
        init_append(&w->err, &w->err_size, p, n);
        break;

    case SBX_F_RESULT:
        code_order(w, 'r');

        if (sbx_wire_check_result(p, n, &result) != 0) {
            printf("Bail out! a result is malformed\n");
            exit(1);
        }

        code_text(w->results, sizeof(w->results), kinds[result.kind],
                  strlen(kinds[result.kind]));
        break;

    case SBX_F_FIELD:
        if (sbx_wire_check_field(p, n, &field, &s1) != 0 || w->field != 0) {
            printf("Bail out! a field is malformed\n");
            exit(1);
        }

        if (field.name_len == 0) {
            w->complete++;
            code_text(w->results, sizeof(w->results), "}", 1);
            break;
        }

        code_text(w->results, sizeof(w->results), " ", 1);
        code_text(w->results, sizeof(w->results), s1, field.name_len);
        code_text(w->results, sizeof(w->results), "=", 1);
        w->field = field.size;
        break;

    case SBX_F_PIECE:
        if (n > w->field) {
            printf("Bail out! a piece too many\n");
            exit(1);
        }

        w->field -= n;
        w->result_bytes += n;
        code_text(w->results, sizeof(w->results), (const char *) p, n);
        break;

    case SBX_F_ENTRY:
        code_order(w, 'f');

        if (sbx_wire_check_entry(p, n, &entry, &s1, &s2, &s3, &s4) != 0) {
            printf("Bail out! an entry is malformed\n");
            exit(1);
        }

        w->files++;
        w->path_bytes += entry.path_len;
        w->size = entry.size;
        code_text(w->paths, sizeof(w->paths), s1, entry.path_len);
        code_text(w->paths, sizeof(w->paths), " ", 1);
        break;

    case SBX_F_RAN:
        if (sbx_wire_check_ran(p, n, &w->ran) != 0) {
            printf("Bail out! the end of a run is malformed\n");
            exit(1);
        }

        w->ended = SBX_F_RAN;
        break;

    case SBX_F_ERROR:
        memcpy(&w->error, p, sizeof(w->error));
        w->ended = SBX_F_ERROR;
        break;

    case SBX_F_END:
        w->ended = SBX_F_END;
        break;
    }
}


/* One frame, meanwhile serving as broker; 0: the end, -1: none in time. */

static int
code_next(code_answer_t *w)
{
    int             rc;
    sbx_frame_t     frame;
    struct pollfd   pfd[2];
    const uint8_t  *p;

    for ( ;; ) {
        code_records();
        rc = init_next(&w->call, &frame, &p, NULL, 0);

        if (rc == 1) {
            code_take(w, &frame, p);
            return frame.type;
        }

        if (rc == 0) {
            return 0;
        }

        pfd[0].fd = w->call.fd;
        pfd[0].events = POLLIN;
        pfd[1].fd = s.control;
        pfd[1].events = POLLIN;

        if (poll(pfd, 2, INIT_WAIT) < 1) {
            printf("# nothing came in time\n");
            return -1;
        }
    }
}


static void
code_finish(code_answer_t *w)
{
    while (!w->ended && code_next(w) > 0) { /* void */ }

    (void) close(w->call.fd);
    w->call.fd = -1;
    code_records();
}


static void
code_fresh(code_answer_t *w)
{
    free(w->out);
    free(w->err);
    memset(w, 0, sizeof(*w));
    w->call.fd = -1;
}


/* A whole call. */

static void
code_call(const code_t *x)
{
    code_fresh(&a);
    code_begin(x, &a);
    code_finish(&a);
}


static void
code(const char *text)
{
    code_t  x = { .code = text };

    code_call(&x);
}


static int
code_failed(int error)
{
    return a.ended == SBX_F_ERROR && a.error.code == (uint32_t) error;
}


/* 1: its interpreter has died, for that reason. */

static int
code_died(sbx_reason_t reason)
{
    return a.ended == SBX_F_RAN && (a.ran.flags & SBX_RAN_DIED)
           && a.ran.reason == (uint32_t) reason;
}


/* Until the call has said so. */

static int
code_until(code_answer_t *w, const char *text)
{
    while (strstr(init_text(w->out), text) == NULL) {
        if (w->ended || code_next(w) <= 0) {
            return strstr(init_text(w->out), text) != NULL;
        }
    }

    return 1;
}


/* The session, unless it cannot be tested here: 0, skipped. */

static int
code_open(void)
{
    size_t  used = 0;

    if (geteuid() != 0) {
        return 0;
    }

    if (init_program() == NULL || access("/usr/bin/python3", X_OK) == -1) {
        return 0;
    }

    init_defaults();
    init_config.capabilities |= SBX_CAP_CODE;
    code_add(&used, "python", "command /usr/bin/python3\ncommand -S\n"
             "command /tmp/kernel.py\ngrace 1\nenvironment OWN=1\n");
    code_add(&used, "other", "command /usr/bin/python3\ncommand -S\n"
             "command /tmp/kernel.py\n");
    code_add(&used, "none", "command /no/such/program\n");
    code_add(&used, "early", "command /bin/sh\ncommand -c\n"
             "command echo early >&2; exit 5\n");

    return 1;
}


static void
code_start(void)
{
    init_exec_t  x = { 0 };

    init_start(&s);

    x.argv = (const char *[]) { "/bin/sh", "-c", "cat > /tmp/kernel.py",
                                NULL };
    x.input = code_kernel;
    x.input_size = sizeof(code_kernel) - 1;
    init_exec(&s, &x, &r);
}


#endif
