/*
 * A run's result as the HTTP interface answers an exec, and beside it what
 * only a run has: enforcement, measured, isolated, backend, workspace, note.
 */

#include "run.h"

#include <stdio.h>
#include <string.h>
#include <yajl/yajl_gen.h>


static void sbx_json_key(yajl_gen g, const char *key);
static void sbx_json_word(yajl_gen g, const char *key, const char *word);
static void sbx_json_number(yajl_gen g, const char *key, uint64_t n);
static void sbx_json_seconds(yajl_gen g, const char *key, uint64_t us);
static void sbx_json_bool(yajl_gen g, const char *key, unsigned value);
static int sbx_json_text(yajl_gen g, const char *key,
    const sbx_sandbox_output_t *out);
static size_t sbx_json_valid(const unsigned char *s, size_t left);
static void sbx_json_signal(yajl_gen g, int sig);
static void sbx_json_usage(yajl_gen g, const sbx_sandbox_result_t *r);
static void sbx_json_enforcement(yajl_gen g,
    const sbx_sandbox_enforcement_t *enf);


int
sbx_run_json(const sbx_sandbox_result_t *r, const char *workspace)
{
    int                   rc;
    size_t                size;
    yajl_gen              g;
    const unsigned char  *text;

    g = yajl_gen_alloc(NULL);

    if (g == NULL) {
        return -1;
    }

    (void) yajl_gen_map_open(g);
    sbx_json_number(g, "pid", (uint64_t) r->pid);
    sbx_json_number(g, "exit_code", (uint64_t) r->exit_code);
    sbx_json_signal(g, r->signal);
    sbx_json_word(g, "reason", r->reason);
    sbx_json_bool(g, "timed_out", r->timed_out);
    sbx_json_bool(g, "oom_killed", r->oom_killed);
    sbx_json_bool(g, "cancelled", r->cancelled);

    rc = sbx_json_text(g, "stdout", &r->out);

    if (rc == 0) {
        rc = sbx_json_text(g, "stderr", &r->err);
    }

    sbx_json_bool(g, "stdout_truncated", r->out.truncated);
    sbx_json_bool(g, "stderr_truncated", r->err.truncated);
    sbx_json_number(g, "stdout_bytes", r->out.total);
    sbx_json_number(g, "stderr_bytes", r->err.total);
    sbx_json_seconds(g, "duration_s", r->duration_us);
    sbx_json_usage(g, r);
    sbx_json_enforcement(g, &r->enforcement);
    sbx_json_word(g, "measured", r->measured);
    sbx_json_bool(g, "isolated", r->isolated);
    sbx_json_word(g, "backend", sbx_run_backend_word(r->backend));
    sbx_json_word(g, "workspace", workspace);
    sbx_json_word(g, "note", r->note[0] != '\0' ? r->note : NULL);
    (void) yajl_gen_map_close(g);

    if (rc == 0
        && (yajl_gen_get_buf(g, &text, &size) != yajl_gen_status_ok
            || sbx_write_all(STDOUT_FILENO, text, size) == -1
            || sbx_write_all(STDOUT_FILENO, "\n", 1) == -1))
    {
        rc = -1;
    }

    yajl_gen_free(g);

    return rc;
}


static void
sbx_json_key(yajl_gen g, const char *key)
{
    (void) yajl_gen_string(g, (const unsigned char *) key, strlen(key));
}


static void
sbx_json_word(yajl_gen g, const char *key, const char *word)
{
    sbx_sandbox_output_t  text;

    if (word == NULL) {
        sbx_json_key(g, key);
        (void) yajl_gen_null(g);
        return;
    }

    memset(&text, 0, sizeof(text));
    text.data = (char *) (uintptr_t) word;
    text.size = strlen(word);
    (void) sbx_json_text(g, key, &text);
}


static void
sbx_json_number(yajl_gen g, const char *key, uint64_t n)
{
    sbx_json_key(g, key);
    (void) yajl_gen_integer(g, (long long) n);
}


static void
sbx_json_seconds(yajl_gen g, const char *key, uint64_t us)
{
    int   n;
    char  text[40];

    n = snprintf(text, sizeof(text), "%llu.%06u",
                 (unsigned long long) (us / 1000000),
                 (unsigned) (us % 1000000));

    while (text[n - 1] == '0') {
        n--;
    }

    n -= (text[n - 1] == '.');

    sbx_json_key(g, key);
    (void) yajl_gen_number(g, text, (size_t) n);
}


static void
sbx_json_bool(yajl_gen g, const char *key, unsigned value)
{
    sbx_json_key(g, key);
    (void) yajl_gen_bool(g, value != 0);
}


/* Each byte that begins no valid sequence becomes U+FFFD. */
static int
sbx_json_text(yajl_gen g, const char *key, const sbx_sandbox_output_t *out)
{
    char                 *text;
    size_t                i, n, size;
    const unsigned char  *s;

    sbx_json_key(g, key);
    text = malloc(out->size * 3 + 1);

    if (text == NULL) {
        return -1;
    }

    s = (const unsigned char *) out->data;
    size = 0;

    for (i = 0; i < out->size; i += n) {
        n = sbx_json_valid(s + i, out->size - i);

        if (n != 0) {
            memcpy(text + size, s + i, n);
            size += n;

        } else {
            memcpy(text + size, "\xef\xbf\xbd", 3);
            size += 3;
            n = 1;
        }
    }

    (void) yajl_gen_string(g, (unsigned char *) text, size);
    free(text);

    return 0;
}


/* The length of the sequence that begins here, or 0. */
static size_t
sbx_json_valid(const unsigned char *s, size_t left)
{
    size_t    i, n;
    uint32_t  c;

    static const uint32_t  least[] = { 0, 0, 0x80, 0x800, 0x10000 };

    if (s[0] < 0x80) {
        return 1;
    }

    n = s[0] >= 0xf0 ? 4 : s[0] >= 0xe0 ? 3 : 2;

    if (s[0] < 0xc2 || s[0] > 0xf4 || n > left) {
        return 0;
    }

    c = s[0] & (0x7fu >> n);

    for (i = 1; i < n; i++) {
        if ((s[i] & 0xc0) != 0x80) {
            return 0;
        }

        c = c << 6 | (s[i] & 0x3f);
    }

    return c < least[n] || c > 0x10ffff || (c >= 0xd800 && c <= 0xdfff) ? 0
                                                                        : n;
}


static void
sbx_json_signal(yajl_gen g, int sig)
{
    char         name[32];
    const char  *word;

    word = sig != 0 ? sigabbrev_np(sig) : NULL;

    if (word != NULL) {
        (void) snprintf(name, sizeof(name), "SIG%s", word);

    } else {
        (void) snprintf(name, sizeof(name), "SIGRTMIN+%d", sig - 34);
    }

    sbx_json_word(g, "signal", sig != 0 ? name : NULL);
}


static void
sbx_json_usage(yajl_gen g, const sbx_sandbox_result_t *r)
{
    sbx_json_key(g, "usage");
    (void) yajl_gen_map_open(g);
    sbx_json_seconds(g, "cpu_user_s", r->cpu_user_us);
    sbx_json_seconds(g, "cpu_system_s", r->cpu_system_us);

    if (r->memory_peak != 0) {
        sbx_json_number(g, "memory_peak", r->memory_peak);

    } else {
        sbx_json_word(g, "memory_peak", NULL);
    }

    sbx_json_number(g, "processes_peak", r->processes_peak);
    sbx_json_number(g, "read_bytes", r->read_bytes);
    sbx_json_number(g, "written_bytes", r->written_bytes);
    sbx_json_seconds(g, "throttled_s", r->throttled_us);
    (void) yajl_gen_map_close(g);
}


static void
sbx_json_enforcement(yajl_gen g, const sbx_sandbox_enforcement_t *enf)
{
    size_t  i;

    const struct {
        const char  *key;
        const char  *word;
    } rows[] = {
        { "memory", enf->memory },
        { "cpus", enf->cpus },
        { "cpu_seconds", enf->cpu_seconds },
        { "processes", enf->processes },
        { "max_file_size", enf->max_file_size },
        { "open_files", enf->open_files },
        { "stack", enf->stack },
        { "seccomp", enf->seccomp }
    };

    sbx_json_key(g, "enforcement");
    (void) yajl_gen_map_open(g);

    for (i = 0; i < sbx_nelts(rows); i++) {
        sbx_json_word(g, rows[i].key, rows[i].word);
    }

    (void) yajl_gen_map_close(g);
}
