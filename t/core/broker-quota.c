/*
 * Quotas in the broker itself: what is asked for at once, what a table of
 * configuration may say, and who may change anything.
 */

#include "broker_test.h"


#define MB      ((uint64_t) 1024 * 1024)
#define AT_ONCE 12


static sbx_quota_row_t *
row(test_broker_t *t, const char *tenant, const char *user)
{
    sbx_quota_row_t  *r;

    r = &t->config.quotas.rows[t->config.quotas.count++];
    (void) strcpy(r->tenant, tenant);
    (void) strcpy(r->user, user);
    sbx_quota_clear(&r->limits);

    return r;
}


static void
configure(test_broker_t *t)
{
    unsigned  i;

    t->config.quotas.set = 1;
    t->config.quotas.admin = 1;

    for (i = 0; i < SBX_SCOPES; i++) {
        sbx_quota_clear(&t->config.quotas.defaults[i]);
    }

    row(t, "race", "")->limits.sessions = 4;
    row(t, "paused", "")->limits.sessions = 1;
    row(t, "memory", "alice")->limits.memory = 150 * MB;
}


static test_answer_t *
create(test_broker_t *t, const char *tenant)
{
    sbx_create_t  body;

    test_create_body(&body);

    return test_answer(test_create_send(t->control, tenant, &body, -1));
}


static test_answer_t *
call(test_broker_t *t, sbx_op_t op, const char *tenant, const char *user,
    const void *body, size_t size)
{
    sbx_call_t  head;

    test_head(&head, op, "", tenant, user, size);

    return test_answer(test_send(t->control, &head, body, size, -1));
}


/* The one frame of a kind that an answer has; test_answer() keeps none. */

static int
quota_of(test_broker_t *t, const char *tenant, const char *user,
    sbx_f_quota_t *quota)
{
    int          fd;
    char         buf[sizeof(sbx_frame_t) + sizeof(sbx_f_quota_t)];
    sbx_call_t   head;
    sbx_frame_t  frame;

    test_head(&head, SBX_OP_QUOTA_GET, "", tenant, user, 0);
    fd = test_send(t->control, &head, NULL, 0, -1);

    if (recv(fd, buf, sizeof(buf), MSG_WAITALL) != sizeof(buf)) {
        (void) close(fd);
        return -1;
    }

    (void) close(fd);
    memcpy(&frame, buf, sizeof(sbx_frame_t));
    memcpy(quota, buf + sizeof(sbx_frame_t), sizeof(sbx_f_quota_t));

    return frame.type == SBX_F_QUOTA ? 0 : -1;
}


static uint64_t
used(test_broker_t *t, const char *tenant)
{
    sbx_f_quota_t  quota;

    return quota_of(t, tenant, "", &quota) == 0 ? quota.used.sessions
                                                : UINT64_MAX;
}


static void
test_race(test_broker_t *t)
{
    int             fds[AT_ONCE], i, made, refused, scoped;
    char            ids[AT_ONCE][64];
    sbx_create_t    body;
    test_answer_t  *a;

    test_create_body(&body);
    made = 0;
    refused = 0;
    scoped = 0;

    for (i = 0; i < AT_ONCE; i++) {
        fds[i] = test_create_send(t->control, "race", &body, -1);
    }

    for (i = 0; i < AT_ONCE; i++) {
        a = test_answer(fds[i]);

        if (a->last == SBX_F_END) {
            (void) strcpy(ids[made++], a->session.id);
            continue;
        }

        refused += a->error.code == SBX_E_QUOTA;
        scoped += strcmp(a->error.scope, "organization") == 0
                  && strcmp(a->error.resource, "sessions") == 0
                  && a->error.limit == 4 && a->error.retry_after != 0;
    }

    is_int(made, 4, "of twelve at once four are made");
    is_int(refused, AT_ONCE - 4, "the others are over the quota");
    is_int(scoped, AT_ONCE - 4, "and told of which");
    is_int((int64_t) used(t, "race"), 4, "four count");

    for (i = 0; i < made; i++) {
        ok(test_destroy(t, ids[i]), "destroyed");
    }

    is_int((int64_t) used(t, "race"), 0,
           "none when the last is told to be gone");
}


/* Whoever goes away before his session is there has none. */

static void
test_gone_away(test_broker_t *t)
{
    int           i, n;
    sbx_create_t  body;

    test_create_body(&body);

    for (i = 0; i < 4; i++) {
        (void) close(test_create_send(t->control, "race", &body, -1));
    }

    for (n = 0; n < TEST_WAIT / 10 && used(t, "race") != 0; n++) {
        (void) poll(NULL, 0, 10);
    }

    is_int((int64_t) used(t, "race"), 0, "what nobody waits for is given "
           "back");
    is_int(create(t, "race")->last, SBX_F_END, "and can be had");
}


/* What is paused has its own time, and what is to be paused has both. */

static void
test_paused(test_broker_t *t)
{
    char            id[64];
    sbx_call_t      head;
    sbx_create_t    body;
    test_answer_t  *a;

    test_create_body(&body);
    body.limits.timeout = 10000;
    body.limits.paused = 86400000;
    a = test_answer(test_create_send(t->control, "paused", &body, -1));
    (void) strcpy(id, a->session.id);
    a = create(t, "paused");
    ok(a->error.code == SBX_E_QUOTA && a->error.retry_after <= 10,
       "one that lives for ten seconds is waited for so long");

    test_head(&head, SBX_OP_PAUSE, id, "paused", "", 0);
    a = test_answer(test_send(t->control, &head, NULL, 0, -1));

    if (a->error.code == SBX_E_MANIFEST) {
        printf("# %s\n", a->error.text);
        (void) test_destroy(t, id);
        return;
    }

    is_int((int64_t) create(t, "paused")->error.retry_after, 60,
           "one that is paused is not");
    ok(test_destroy(t, id), "destroyed");

    body.flags |= SBX_CREATE_ON_TIMEOUT_PAUSE;
    a = test_answer(test_create_send(t->control, "paused", &body, -1));
    (void) strcpy(id, a->session.id);
    is_int((int64_t) create(t, "paused")->error.retry_after, 60,
           "nor one that is to be paused then");
    ok(test_destroy(t, id), "destroyed");
}


static void
test_refused(test_broker_t *t)
{
    sbx_create_t    body;
    test_answer_t  *a;

    is_int(create(t, "memory")->last, SBX_F_END, "64 of 150 MB");
    is_int(create(t, "memory")->last, SBX_F_END, "128 of them");
    a = create(t, "memory");
    is_int(a->error.code, SBX_E_QUOTA, "192 are too many");
    is_str(a->error.scope, "user", "for the user");
    is_str(a->error.resource, "memory", "of memory");
    ok(a->error.retry_after != 0, "some will be free");

    test_create_body(&body);
    body.limits.memory = 200 * MB;
    a = test_answer(test_create_send(t->control, "memory", &body, -1));
    is_int(a->error.code, SBX_E_QUOTA, "200 at once never fit");
    is_int((int64_t) a->error.retry_after, 0, "and waiting is no help");

    /* refused by another check, after this one */

    test_create_body(&body);
    body.meta_size = 2;
    a = test_answer(test_create_send(t->control, "refused", &body, -1));
    is_int(a->error.code, SBX_E_INVALID, "a create that is malformed");
    is_int((int64_t) used(t, "refused"), 0, "counts nowhere");
}


static void
test_admin(test_broker_t *t)
{
    sbx_drain_t         drain;
    sbx_f_quota_t       quota;
    sbx_quota_set_t     set;
    sbx_destroy_all_t   all;
    sbx_settings_set_t  settings;

    memset(&set, 0, sizeof(set));
    sbx_quota_clear(&set.limits);
    set.limits.sessions = 1;
    (void) strcpy(set.by, "tester");

    is_int(call(t, SBX_OP_QUOTA_SET, "live", "", &set, sizeof(set))->last,
           SBX_F_END, "a quota is set");
    ok(quota_of(t, "live", "", &quota) == 0 && quota.live
       && quota.limits.sessions == 1 && strcmp(quota.by, "tester") == 0
       && quota.limits.memory == SBX_UNLIMITED, "and told");
    is_int(create(t, "live")->last, SBX_F_END, "one");
    is_int(create(t, "live")->error.code, SBX_E_QUOTA, "and no other");

    set.limits.sessions = UINT64_MAX / 2;
    is_int(call(t, SBX_OP_QUOTA_SET, "live", "", &set, sizeof(set))
               ->error.code,
           SBX_E_INVALID, "what is out of range is refused");
    is_int(call(t, SBX_OP_QUOTA_SET, "", "", &set, sizeof(set))->error.code,
           SBX_E_INVALID, "and what is nobody's");
    memset(set.by, 'x', sizeof(set.by));
    is_int(call(t, SBX_OP_QUOTA_SET, "live", "", &set, sizeof(set))
               ->error.code,
           SBX_E_INVALID, "and a name without an end");

    memset(&settings, 0, sizeof(settings));
    settings.mask = 1;
    is_int(call(t, SBX_OP_SETTINGS_SET, "", "", &settings, sizeof(settings))
               ->error.code,
           SBX_E_CONFLICT, "isolation is not made weaker");
    settings.values[0] = 7;
    is_int(call(t, SBX_OP_SETTINGS_SET, "", "", &settings, sizeof(settings))
               ->error.code,
           SBX_E_CONFLICT, "nor anything else");
    settings.mask = ~0u;
    memset(settings.values, 0xff, sizeof(settings.values));
    is_int(call(t, SBX_OP_SETTINGS_SET, "", "", &settings, sizeof(settings))
               ->last,
           SBX_F_END, "bits of no setting mean nothing");

    memset(&drain, 0, sizeof(drain));
    drain.on = 1;
    is_int(call(t, SBX_OP_DRAIN, "", "", &drain, sizeof(drain))->last,
           SBX_F_END, "draining");
    is_int(create(t, "other")->error.code, SBX_E_CAPACITY, "refuses");
    drain.on = 0;
    (void) call(t, SBX_OP_DRAIN, "", "", &drain, sizeof(drain));

    memset(&all, 0, sizeof(all));
    is_int(call(t, SBX_OP_DESTROY_ALL, "", "", &all, sizeof(all))
               ->error.code,
           SBX_E_INVALID, "not everybody's sessions at once");
    is_int((int64_t) call(t, SBX_OP_DESTROY_ALL, "memory", "", &all,
                          sizeof(all))->end.count,
           2, "those of one");
    is_int((int64_t) used(t, "memory"), 0, "are gone");
}


/* What the first connection has told holds; so it is another broker. */

static void
test_not_offered(test_broker_t *t)
{
    sbx_drain_t  drain;

    memset(&drain, 0, sizeof(drain));
    drain.on = 1;
    is_int(call(t, SBX_OP_DRAIN, "", "", &drain, sizeof(drain))->error.code,
           SBX_E_FORBIDDEN, "without the admin API no admin's calls");
    is_int(create(t, "acme")->last, SBX_F_END, "and no quota");
}


static void
test_bad_tables(void)
{
    unsigned           i;
    test_broker_t      t;
    sbx_quota_row_t   *r;

    for (i = 0; i < 4; i++) {
        test_open(&t, "quota");
        configure(&t);
        r = row(&t, "fine", "");

        switch (i) {

        case 0:
            t.config.quotas.count = SBX_QUOTA_ROWS + 1;
            break;

        case 1:
            memset(r->tenant, 'a', sizeof(r->tenant));
            break;

        case 2:
            (void) strcpy(r->tenant, "a b");
            break;

        default:
            r->limits.sessions = SBX_UNLIMITED - 1;
            break;
        }

        ok(test_start(&t) == -1 && strstr(t.error.text, "quotas") != NULL,
           "a malformed table is refused: %u", i);
        test_close(&t);
    }
}


int
main(void)
{
    test_broker_t  t;

    if (geteuid() != 0) {
        return skip_all("needs root");
    }

    test_open(&t, "quota");
    configure(&t);

    if (!ok(test_start(&t) == 0, "the broker starts")) {
        printf("# %s\n", t.error.text);
        return done_testing();
    }

    test_race(&t);
    test_gone_away(&t);
    test_paused(&t);
    test_refused(&t);
    test_admin(&t);
    test_close(&t);

    test_open(&t, "quota");

    if (ok(test_start(&t) == 0, "another starts")) {
        test_not_offered(&t);
    }

    test_close(&t);
    test_bad_tables();

    return done_testing();
}
