/* Sessions as their callers see them: made, found, listed, ended. */

#include "broker_test.h"

#include <time.h>


#define ENV(s)   s, sizeof(s)


static int64_t
now_ms(void)
{
    struct timespec  ts;

    (void) clock_gettime(CLOCK_REALTIME, &ts);

    return (int64_t) ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}


static test_answer_t *
create(test_broker_t *t, const sbx_create_t *body, int blob)
{
    test_answer_t  *a;

    a = test_answer(test_create_send(t->control, "acme", body, blob));

    if (blob != -1) {
        (void) close(blob);
    }

    return a;
}


static test_answer_t *
get(test_broker_t *t, const char *id, const char *tenant, const char *user)
{
    sbx_call_t  head;

    test_head(&head, SBX_OP_GET, id, tenant, user, 0);

    return test_answer(test_send(t->control, &head, NULL, 0, -1));
}


static test_answer_t *
list(test_broker_t *t, const char *tenant, uint64_t limit, uint64_t before)
{
    sbx_list_t  filter;
    sbx_call_t  head;

    memset(&filter, 0, sizeof(filter));
    filter.limit = limit;
    filter.before = before;
    test_head(&head, SBX_OP_LIST, "", tenant, "", sizeof(filter));

    return test_answer(test_send(t->control, &head, &filter, sizeof(filter),
                                 -1));
}


static void
test_whole_answer(test_broker_t *t)
{
    int64_t         before;
    sbx_create_t    body;
    test_answer_t  *a;
    char            id[64];

    before = now_ms();
    test_create_body(&body);
    (void) strcpy(body.template, "code-interpreter-v1");
    a = create(t, &body, test_blob(&body, "{\"team\":\"x\"}",
                                   ENV("A=1\0LONG=two words")));

    is_int(a->last, SBX_F_END, "create ends well");
    is_int(a->end.created, 1, "and says that it is new");
    ok(sbx_session_id_ok(a->session.id, strlen(a->session.id)),
       "id \"%s\" is well-formed", a->session.id);
    is_str(a->session.tenant, "acme", "tenant");
    is_str(a->session.user, "alice", "user");
    is_str(a->session.template, "code-interpreter-v1",
           "the template is the one that was asked for");
    is_str(a->meta, "{\"team\":\"x\"}", "metadata comes back");
    ok(a->session.created >= before && a->session.created <= now_ms(),
       "created is now");
    is_int(a->session.expires - a->session.created, 300000,
           "it expires by its timeout");
    is_int((int64_t) a->session.limits.max_file_size, 8 * 1024 * 1024,
           "max_file_size follows disk");
    ok(a->session.enforcement.memory != SBX_BY_NONE
       && a->session.enforcement.seccomp != SBX_BY_NONE
       && a->session.isolated == 1, "every layer is there");

    (void) strcpy(id, a->session.id);
    a = get(t, id, "acme", "");
    is_int(a->last, SBX_F_END, "its tenant finds it");
    is_int(a->session.has_usage, 1, "with its usage");
    is_str(a->meta, "{\"team\":\"x\"}", "and metadata");

    ok(get(t, id, "acme", "alice")->last == SBX_F_END, "its user finds it");
    is_int(get(t, id, "evil", "")->error.code, SBX_E_SESSION,
           "another tenant does not");
    is_int(get(t, id, "acme", "bob")->error.code, SBX_E_SESSION,
           "nor does another user");
    is_int(test_answer(test_call(t->control, SBX_OP_DESTROY, id, "evil"))
               ->error.code,
           SBX_E_SESSION, "another tenant cannot destroy it");

    a = test_answer(test_call(t->control, SBX_OP_HEALTH, "", ""));
    ok(a->health.ok && a->health.sessions == 1, "health counts it");

    ok(test_destroy(t, id), "its owner can destroy it");
    a = get(t, id, "acme", "alice");
    is_int(a->error.code, SBX_E_SESSION, "then it is gone");
    is_int(a->error.ended, SBX_ENDED_DESTROYED, "its owner is told how");
    ok(a->error.ended_at >= before && a->error.ended_at <= now_ms(),
       "and when");
    a = get(t, id, "evil", "");
    is_int(a->error.ended, SBX_ENDED_NOT, "nobody else is told anything");
    a = test_answer(test_call(t->control, SBX_OP_DESTROY, id, "acme"));
    is_int(a->error.code, SBX_E_SESSION, "a second destroy finds nothing");
}


typedef struct {
    const char   *what;
    sbx_code_t    code;
    const char   *says;
    size_t        offset;
    uint64_t      value;
} refusal_t;

static const refusal_t  refusals[] = {
    { "more memory than allowed", SBX_E_MANIFEST, "memory",
      offsetof(sbx_create_t, limits.memory), 1ULL << 50 },
    { "less memory than sensible", SBX_E_MANIFEST, "memory",
      offsetof(sbx_create_t, limits.memory), 4096 },
    { "memory without a limit", SBX_E_MANIFEST, "memory",
      offsetof(sbx_create_t, limits.memory), SBX_UNLIMITED },
    { "too long a life", SBX_E_MANIFEST, "timeout_s",
      offsetof(sbx_create_t, limits.timeout), 86400 * 1000 + 1 },
    { "too few processes", SBX_E_MANIFEST, "processes",
      offsetof(sbx_create_t, limits.processes), 7 },
    { "too many open files", SBX_E_MANIFEST, "open_files",
      offsetof(sbx_create_t, limits.open_files), 1048576 },
    { "a larger file than the maximum", SBX_E_MANIFEST, "disk",
      offsetof(sbx_create_t, limits.disk), 1ULL << 45 },
};


static void
test_refusals(test_broker_t *t)
{
    size_t          i;
    sbx_create_t    body;
    sbx_call_t      head;
    test_answer_t  *a;

    for (i = 0; i < sbx_nelts(refusals); i++) {
        test_create_body(&body);
        memcpy((char *) &body + refusals[i].offset, &refusals[i].value,
               sizeof(uint64_t));
        a = create(t, &body, -1);

        if (!ok(a->last == SBX_F_ERROR && a->error.code == refusals[i].code
                && strstr(a->error.text, refusals[i].says) != NULL,
                "%s is refused by name", refusals[i].what))
        {
            printf("# %u: %s\n", a->error.code, a->error.text);
        }
    }

    test_create_body(&body);
    (void) strcpy(body.template, "../base");
    is_int(create(t, &body, -1)->error.code, SBX_E_TEMPLATE,
           "an unknown template is refused");

    test_create_body(&body);
    body.capabilities = 0x100;
    is_int(create(t, &body, -1)->error.code, SBX_E_INVALID,
           "unknown capabilities are refused");

    test_create_body(&body);
    test_head(&head, SBX_OP_CREATE, "", "", "alice", sizeof(body));
    is_int(test_answer(test_send(t->control, &head, &body, sizeof(body), -1))
               ->error.code,
           SBX_E_INVALID, "a tenant is needed");
}


typedef struct {
    const char   *what;
    const char   *env;
    size_t        size;
} env_case_t;

static const env_case_t  bad_envs[] = {
    { "an end without a NUL", "A=1", 3 },
    { "no name", ENV("=1") },
    { "no sign", ENV("A") },
    { "an empty variable", "A=1\0\0", 5 },
    { "a line feed in a name", ENV("A\nB=1") },
};


static void
test_blobs(test_broker_t *t)
{
    int           fd;
    size_t        i;
    sbx_create_t  body;

    for (i = 0; i < sbx_nelts(bad_envs); i++) {
        test_create_body(&body);
        fd = test_blob(&body, "", bad_envs[i].env, bad_envs[i].size);
        is_int(create(t, &body, fd)->error.code, SBX_E_INVALID,
               bad_envs[i].what);
    }

    test_create_body(&body);
    fd = memfd_create("blob", MFD_CLOEXEC|MFD_ALLOW_SEALING);
    (void) sbx_write_all(fd, "A=1", 4);
    body.env_size = 4;
    is_int(create(t, &body, fd)->error.code, SBX_E_INVALID,
           "a blob that can still change is refused");

    test_create_body(&body);
    fd = test_blob(&body, "{}", ENV("A=1"));
    body.env_size += 4096;
    is_int(create(t, &body, fd)->error.code, SBX_E_INVALID,
           "a blob of another size is refused");

    test_create_body(&body);
    body.meta_size = 2;
    is_int(create(t, &body, -1)->error.code, SBX_E_INVALID,
           "a blob that is missing is refused");

    test_create_body(&body);
    body.meta_size = SBX_META_MAX + 1;
    is_int(create(t, &body, -1)->error.code, SBX_E_TOO_LARGE,
           "too much metadata is refused");
}


static void
test_keys(test_broker_t *t)
{
    int             first, second;
    char            id[64];
    unsigned        created;
    sbx_create_t    body;
    test_answer_t  *a;

    test_create_body(&body);
    (void) strcpy(body.key, "key-1");
    body.body_digest[3] = 7;

    first = test_create_send(t->control, "acme", &body, -1);
    second = test_create_send(t->control, "acme", &body, -1);
    a = test_answer(first);
    created = a->end.created;
    (void) strcpy(id, a->session.id);
    a = test_answer(second);
    is_str(a->session.id, id, "two creates with one key give one session");
    is_int(created + a->end.created, 1, "one of them made it");

    a = create(t, &body, -1);
    ok(strcmp(a->session.id, id) == 0 && a->end.created == 0,
       "so does one that comes later");

    body.body_digest[3] = 8;
    is_int(create(t, &body, -1)->error.code, SBX_E_CONFLICT,
           "the key with another body is a conflict");

    a = test_answer(test_create_send(t->control, "other", &body, -1));
    ok(a->last == SBX_F_END && strcmp(a->session.id, id) != 0,
       "another tenant's key is another key");
    (void) test_destroy(t, a->session.id);

    ok(test_destroy(t, id), "the session goes");
    a = create(t, &body, -1);
    ok(a->last == SBX_F_END && a->end.created == 1
       && strcmp(a->session.id, id) != 0,
       "and its key with it: the next create gives a fresh one");
    (void) test_destroy(t, a->session.id);
}


static void
test_lists(test_broker_t *t)
{
    int             i, fd;
    char            ids[6][64], *meta;
    uint64_t        next;
    unsigned        k;
    sbx_create_t    body;
    sbx_list_t      filter;
    sbx_call_t      head;
    test_answer_t  *a;

    /* each with so much metadata that no socket takes them all at once */

    meta = malloc(SBX_META_MAX + 1);
    memset(meta, 'm', SBX_META_MAX);
    meta[SBX_META_MAX] = '\0';

    for (i = 0; i < 6; i++) {
        test_create_body(&body);
        fd = test_blob(&body, meta, "", 0);
        a = test_answer(test_create_send(t->control, i < 4 ? "acme" : "other",
                                         &body, fd));
        (void) close(fd);
        (void) strcpy(ids[i], a->session.id);
    }

    a = list(t, "acme", 0, 0);
    ok(a->last == SBX_F_END && a->sessions == 4 && a->end.next == 0,
       "a tenant's sessions are listed");
    ok(a->seqs[0] > a->seqs[1] && a->seqs[1] > a->seqs[2]
       && a->seqs[2] > a->seqs[3], "newest first");
    is_int((int64_t) a->meta_size, SBX_META_MAX, "with their metadata");
    is_int(list(t, "", 0, 0)->sessions, 6, "all tenants' for whom may");

    a = list(t, "acme", 3, 0);
    next = a->end.next;
    ok(a->sessions == 3 && next != 0, "a page, and where the next begins");
    a = list(t, "acme", 3, next);
    ok(a->sessions == 1 && a->end.next == 0, "and the last one");
    ok(strcmp(a->session.id, ids[0]) == 0, "with the oldest session");

    memset(&filter, 0, sizeof(filter));
    (void) strcpy(filter.template, "other");
    test_head(&head, SBX_OP_LIST, "", "", "", sizeof(filter));
    a = test_answer(test_send(t->control, &head, &filter, sizeof(filter),
                              -1));
    ok(a->last == SBX_F_END && a->sessions == 0, "none of another template");

    /* a reader that does not read stops nobody, and sees no freed session */

    memset(&filter, 0, sizeof(filter));
    test_head(&head, SBX_OP_LIST, "", "", "", sizeof(filter));
    fd = test_send(t->control, &head, &filter, sizeof(filter), -1);

    for (k = 0; k < 6; k++) {
        ok(test_destroy(t, ids[k]), "destroyed beside a slow reader");
    }

    a = test_answer(fd);
    is_int(a->last, SBX_F_END, "whose list ends well");
    ok(a->sessions < 6, "without those that went meanwhile");

    free(meta);
}


static void
test_expiry(test_broker_t *t)
{
    char            id[64];
    int             i;
    sbx_create_t    body;
    test_answer_t  *a;

    test_create_body(&body);
    body.limits.timeout = 200;
    a = create(t, &body, -1);
    (void) strcpy(id, a->session.id);
    is_int(a->last, SBX_F_END, "a session of a short life is made");

    for (i = 0; i < TEST_WAIT / 10 && test_alive(t, id); i++) {
        (void) poll(NULL, 0, 10);
    }

    a = get(t, id, "acme", "");
    is_int(a->error.ended, SBX_ENDED_EXPIRED, "it expires by itself");
}


static void
test_gone_peer(test_broker_t *t)
{
    int             i;
    sbx_create_t    body;
    test_answer_t  *a;

    test_create_body(&body);
    (void) close(test_create_send(t->control, "acme", &body, -1));

    for (i = 0; i < TEST_WAIT / 10; i++) {
        a = list(t, "", 0, 0);

        if (a->sessions == 0 && i > 20) {
            break;
        }

        (void) poll(NULL, 0, 10);
    }

    is_int(a->sessions, 0, "a session that nobody waits for is removed");
}


static void
test_many(test_broker_t *t)
{
    int       calls[40];
    char      ids[40][64];
    unsigned  i, made, gone;
    sbx_create_t    body;
    test_answer_t  *a;

    test_create_body(&body);
    made = 0;
    gone = 0;

    for (i = 0; i < sbx_nelts(calls); i++) {
        calls[i] = test_create_send(t->control, "acme", &body, -1);
    }

    for (i = 0; i < sbx_nelts(calls); i++) {
        a = test_answer(calls[i]);
        made += a->last == SBX_F_END;
        (void) strcpy(ids[i], a->session.id);
    }

    is_int(made, sbx_nelts(calls), "forty sessions are made at once");

    for (i = 0; i < sbx_nelts(calls); i++) {
        calls[i] = test_call(t->control, SBX_OP_DESTROY, ids[i], "");
    }

    for (i = 0; i < sbx_nelts(calls); i++) {
        gone += test_answer(calls[i])->last == SBX_F_END;
    }

    is_int(gone, sbx_nelts(calls), "and destroyed at once");
}


int
main(void)
{
    test_broker_t  t;

    if (geteuid() != 0) {
        return skip_all("needs root");
    }

    test_open(&t, "sessions");

    if (!ok(test_start(&t) == 0, "a broker starts")) {
        printf("# %s\n", t.error.text);
        return done_testing();
    }

    test_whole_answer(&t);
    test_refusals(&t);
    test_blobs(&t);
    test_keys(&t);
    test_lists(&t);
    test_expiry(&t);
    test_gone_peer(&t);
    test_many(&t);
    test_close(&t);

    return done_testing();
}
