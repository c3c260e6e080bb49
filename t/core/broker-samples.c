/* What sessions use, by samples. */

#include "broker.h"
#include "broker_test.h"


#define SAMPLES   (SBX_SAMPLES_MAX + 8)


static sbx_f_sample_t   samples[SAMPLES];
static unsigned         nsamples;
static sbx_f_session_t  told;
static sbx_f_end_t      end;
static sbx_f_error_t    error;
static int              last;


/* 200,000 looks of a second each, in which as many us were used as had come
 * before. */

static void
test_thin(void)
{
    uint32_t        i, n;
    uint64_t        span, cpu;
    sbx_sampled_t   d;
    sbx_f_sample_t  one;

    memset(&d, 0, sizeof(d));
    memset(&one, 0, sizeof(one));
    d.stride = 1;
    n = 200000;
    cpu = 0;

    for (i = 1; i <= n; i++) {
        one.time = (int64_t) i * 1000;
        one.span = 1000000;
        one.cpu_us = i;
        cpu += i;
        sbx_samples_add(&d, &one);

        if (d.count > SBX_SAMPLES_MAX || d.size > SBX_SAMPLES_MAX) {
            break;
        }
    }

    is_int(i, n + 1, "there are never too many");
    ok(d.count > SBX_SAMPLES_MAX / 2 - 1, "nor too few");
    is_int(d.ring[d.count - 1].time, (int64_t) n * 1000,
           "the last is as new as the last look");

    for (i = 0, span = 0; i < d.count; i++) {
        span += d.ring[i].span;
        cpu -= d.ring[i].cpu_us;

        if (d.ring[i].time != (int64_t) (span / 1000)
            || (i + 1 < d.count
                && d.ring[i].span != (uint64_t) d.stride * 1000000))
        {
            break;
        }
    }

    is_int(i, d.count, "each tells of as long a time, without a gap");
    is_int((int64_t) cpu, 0, "and nothing that was used is missing");
    free(d.ring);
}


static void
take(const sbx_frame_t *f, const uint8_t *p)
{
    switch (f->type) {

    case SBX_F_SESSION:
        memcpy(&told, p, sizeof(told));
        break;

    case SBX_F_SAMPLE:
        if (nsamples < SAMPLES) {
            memcpy(&samples[nsamples++], p, sizeof(samples[0]));
        }
        break;

    case SBX_F_ERROR:
        memcpy(&error, p, sizeof(error));
        last = f->type;
        break;

    case SBX_F_END:
        memcpy(&end, p, sizeof(end));
        last = f->type;
        break;
    }
}


static int
all(const char *text)
{
    (void) text;

    return last != 0;
}


static void
ask(test_broker_t *t, const char *id, int64_t from, int64_t to, uint32_t most)
{
    int            fd;
    sbx_call_t     head;
    sbx_samples_t  body;

    nsamples = 0;
    last = 0;
    memset(&end, 0, sizeof(end));
    memset(&error, 0, sizeof(error));
    memset(&body, 0, sizeof(body));
    body.start = from;
    body.end = to;
    body.last = most;
    test_head(&head, SBX_OP_SAMPLES, id, "acme", "", sizeof(body));
    fd = test_send(t->control, &head, &body, sizeof(body), -1);
    test_follow(fd, take, all, NULL);
    (void) close(fd);
}


static void
now(test_broker_t *t, const char *id)
{
    ask(t, id, 0, INT64_MAX, 0);
}


static void
run(test_broker_t *t, const char *id, const char *script)
{
    int                fd;
    char               strings[4096];
    size_t             n;
    sbx_call_t         head;
    sbx_f_exec_t       exec;
    sbx_exec_limits_t  limits;

    memset(&limits, 0xff, sizeof(limits));
    memset(&exec, 0, sizeof(exec));
    n = (size_t) snprintf(strings, sizeof(strings), "%c/bin/sh%c-c%c%s", 0,
                          0, 0, script) + 1;
    exec.flags = SBX_EXEC_DEFAULT_CWD;
    exec.argc = 3;
    exec.strings_size = (uint32_t) n;
    exec.timeout = SBX_UNSET;
    exec.max_output = SBX_UNSET;
    exec.cpu_seconds = SBX_UNSET;
    exec.max_file_size = SBX_UNSET;
    exec.open_files = SBX_UNSET;
    exec.stack = SBX_UNSET;

    test_head(&head, SBX_OP_EXEC, id, "acme", "", sizeof(limits));
    fd = test_send(t->control, &head, &limits, sizeof(limits), -1);
    test_frame(fd, SBX_F_EXEC, &exec, sizeof(exec));
    test_frame(fd, SBX_F_STRINGS, strings, n);
    test_frame(fd, SBX_F_STDIN, NULL, 0);
    is_int(test_answer(fd)->exit.exit_code, 0, script);
}


static void
test_session(test_broker_t *t)
{
    char             id[64];
    pid_t            old;
    int64_t          first;
    uint64_t         cpu;
    unsigned         i, n;
    test_answer_t   *a;
    sbx_f_sample_t  *s;

    test_create(t, "acme", id);
    now(t, id);
    ok(last == SBX_F_END && nsamples == 1 && end.count == 1
       && strcmp(told.id, id) == 0, "a new session has one");
    s = &samples[0];
    ok(s->disk_total == 8 * 1024 * 1024 && s->disk < s->disk_total,
       "of its disk");
    first = s->time;

    run(t, id, "head -c 3000000 /dev/zero > big; i=0;"
               " while [ $i -lt 200000 ]; do i=$((i+1)); done");
    (void) poll(NULL, 0, 1100);
    now(t, id);
    ok(nsamples >= 2 && samples[0].time == first, "later there are more");
    s = &samples[nsamples - 1];

    for (i = 0, cpu = 0; i < nsamples; i++) {
        cpu += samples[i].cpu_us;
    }

    ok(cpu > 20000 && s->span >= 1000000, "time that was used, and when");
    ok(s->disk > 3000000, "what is on its disk");
    ok(s->memory >= s->memory_cache, "its memory");
    a = test_answer(test_call(t->control, SBX_OP_GET, id, "acme"));

    if (a->session.enforcement.disk == SBX_BY_TMPFS) {
        ok(s->memory_cache > 2000000, "with what is files' of it");
        ok(a->session.usage.memory_cache > 2000000
           && a->session.usage.memory_cache <= a->session.usage.memory,
           "which the session tells too");
    }

    n = nsamples;
    now(t, id);
    is_int(nsamples, n, "who asks again at once is told the same");

    ask(t, id, 0, INT64_MAX, 1);
    ok(nsamples == 1 && end.count == 1 && samples[0].time == s->time,
       "the newest alone");
    ask(t, id, first, first, 0);
    ok(nsamples == 1 && samples[0].time == first, "those of a time");
    ask(t, id, first + 1, INT64_MAX, 0);
    is_int(nsamples, n - 1, "and after it");
    ask(t, id, 0, first - 1, 0);
    ok(last == SBX_F_END && nsamples == 0, "before it there is nothing");

    /* what is paused uses nothing */

    a = test_answer(test_call(t->control, SBX_OP_PAUSE, id, "acme"));

    if (a->last == SBX_F_END) {
        now(t, id);
        n = nsamples;
        first = samples[n - 1].time;
        (void) poll(NULL, 0, 1200);
        now(t, id);
        ok(nsamples == n && samples[n - 1].time == first,
           "there are no more while it is paused");
        (void) test_answer(test_call(t->control, SBX_OP_RESUME, id, "acme"));
        (void) poll(NULL, 0, 1100);
        now(t, id);
        ok(nsamples == n + 1 && samples[n].span < 2000000
           && samples[n].time - first > 2000,
           "nor is that time anybody's");
    }

    old = test_pid(t, "broker.pid");
    (void) kill(old, SIGKILL);
    (void) test_await_successor(t, "broker.pid", old);
    now(t, id);
    ok(last == SBX_F_END && nsamples == 1 && samples[0].cpu_us == 0,
       "a new broker begins anew");

    ask(t, "i00000000000000000000", 0, INT64_MAX, 0);
    is_int(error.code, SBX_E_SESSION, "there is no such session");
    ok(test_destroy(t, id), "destroyed");
}


int
main(void)
{
    test_broker_t  t;

    if (geteuid() != 0) {
        return skip_all("needs root");
    }

    test_thin();
    test_open(&t, "samples");

    if (!ok(test_start(&t) == 0, "a broker starts")) {
        printf("# %s\n", t.error.text);
        return done_testing();
    }

    test_session(&t);
    test_close(&t);

    return done_testing();
}
