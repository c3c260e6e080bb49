/*
 * What an init that is nobody's friend can make the broker hold: calls that
 * it does not read, with their descriptors, and groups that it asks for.
 * Whoever else is there is served meanwhile.
 */

#include "broker_init.h"

#include <dirent.h>


#define COMMANDS   200       /* with some 18 descriptors each, if all went */
#define FILES      400
#define LESS       1024      /* descriptors of a broker */

/* What the docs say. */

#define WAITING    256
#define SHARE      (LESS / 4)
#define LEAST      8
#define UNREAD     96        /* calls in the socket, at the very most */
#define GROUPS     24        /* of them with a group */
#define BUCKET     96
#define EVERY      50000     /* us for one more */


static int   calls[COMMANDS + FILES];
static char  good[64];


static void
create(test_broker_t *t, const char *mode, char *id)
{
    int             blob;
    char            env[64];
    sbx_create_t    body;
    test_answer_t  *a;

    (void) snprintf(env, sizeof(env), "MODE=%s", mode);
    test_create_body(&body);
    body.capabilities |= SBX_CAP_CODE;
    blob = test_blob(&body, "", env, strlen(env) + 1);
    a = test_answer(test_create_send(t->control, "acme", &body, blob));
    (void) close(blob);

    if (!ok(a->last == SBX_F_END, "a session that is \"%s\"", mode)) {
        printf("# %s\n", a->error.text);
    }

    (void) strcpy(id, a->session.id);
}


static int
file_send(test_broker_t *t, const char *id)
{
    return test_call(t->control, SBX_OP_FILE, id, "acme");
}


static int
exec_send(test_broker_t *t, const char *id)
{
    sbx_call_t         head;
    sbx_exec_limits_t  unset;

    memset(&unset, 0xff, sizeof(unset));
    test_head(&head, SBX_OP_EXEC, id, "acme", "", sizeof(unset));

    return test_send(t->control, &head, &unset, sizeof(unset), -1);
}


static unsigned
broker_files(test_broker_t *t)
{
    DIR       *dir;
    char       path[64];
    unsigned   n;

    (void) snprintf(path, sizeof(path), "/proc/%d/fd",
                    (int) test_pid(t, "broker.pid"));
    dir = opendir(path);

    for (n = 0; dir != NULL && readdir(dir) != NULL; n++) { /* void */ }

    if (dir != NULL) {
        (void) closedir(dir);
    }

    return n;
}


static int
answered(int fd)
{
    struct pollfd  pfd;

    pfd.fd = fd;
    pfd.events = POLLIN;

    return poll(&pfd, 1, 0) == 1;
}


static void
others(test_broker_t *t, const char *while_)
{
    ok(test_answer(exec_send(t, good))->last == SBX_F_EXIT
       && test_answer(file_send(t, good))->last == SBX_F_END,
       "another session is served %s", while_);
}


/* Of some calls, how many more the broker has refused; the rest stay open. */

static unsigned
refused(unsigned first, unsigned last)
{
    unsigned        n, i;
    test_answer_t  *a;

    n = 0;

    for (i = first; i < last; i++) {
        if (calls[i] == -1 || !answered(calls[i])) {
            continue;
        }

        a = test_answer(calls[i]);
        calls[i] = -1;
        n += a->error.code == SBX_E_UNAVAILABLE && a->error.retry_after > 0
             && strstr(a->error.text, "does not take") != NULL;
    }

    return n;
}


static void
hang_up(void)
{
    unsigned  i;

    for (i = 0; i < sbx_nelts(calls); i++) {
        if (calls[i] != -1) {
            (void) close(calls[i]);
            calls[i] = -1;
        }
    }
}


static void
test_unread(test_broker_t *t)
{
    char      id[64];
    unsigned  before, crowd, i, kept, n;

    create(t, "deaf", id);
    before = broker_files(t);

    for (i = 0; i < COMMANDS; i++) {
        calls[i] = exec_send(t, id);
    }

    others(t, "while commands are not read");
    n = broker_files(t);
    ok(n < before + COMMANDS + 16,
       "each that waits has one descriptor of the broker (%u and %u)", before,
       n);

    /* these wait behind them */

    for ( /* void */ ; i < COMMANDS + FILES; i++) {
        calls[i] = file_send(t, id);
    }

    others(t, "while nothing is read");
    n = broker_files(t);
    ok(n < before + WAITING + 16, "which is bounded (%u)", n);
    crowd = refused(COMMANDS, COMMANDS + FILES);
    ok(crowd >= COMMANDS + FILES - GROUPS - WAITING,
       "what is too much for it is refused at once (%u)", crowd);

    /* the rest, when its time is over */

    kept = COMMANDS;

    for (n = 0; n < TEST_WAIT / 20 && kept > GROUPS; n++) {
        crowd += refused(COMMANDS, COMMANDS + FILES);
        kept -= refused(0, COMMANDS);
        (void) poll(NULL, 0, 20);
    }

    ok(kept > 0 && kept <= GROUPS,
       "and only %u of %u were on their way with descriptors of a group",
       kept, COMMANDS);

    for (i = 0; i < TEST_WAIT / 20 && broker_files(t) > before + 16; i++) {
        (void) poll(NULL, 0, 20);
    }

    n = broker_files(t);
    ok(n <= before + 16, "nothing else of them is left (%u)", n);
    crowd += refused(COMMANDS, COMMANDS + FILES);
    ok(crowd >= FILES - UNREAD, "the socket has few of the others (%u)",
       FILES - crowd);

    ok(test_destroy(t, id), "it can be destroyed");
    hang_up();
}


/* Of calls without a group there may be more in the socket. */

static void
test_files(test_broker_t *t)
{
    char      id[64];
    unsigned  gone, i;

    create(t, "deaf", id);

    for (i = 0; i < FILES; i++) {
        calls[i] = file_send(t, id);
    }

    others(t, "while file calls are not read");
    gone = refused(0, FILES);
    ok(gone >= FILES - UNREAD - WAITING && gone < FILES - WAITING,
       "%u file calls are refused, the socket has few", gone);
    ok(test_destroy(t, id), "it can be destroyed");
    hang_up();
}


/* Many that do not read are bounded together. */

static void
test_share(test_broker_t *t)
{
    char      first[64], id[64], made[64];
    unsigned  gone, i, n;

    create(t, "deaf", first);
    create(t, "deaf", id);

    for (i = 0; i < FILES; i++) {
        calls[i] = file_send(t, first);
    }

    gone = refused(0, FILES);

    for ( /* void */ ; i < FILES + COMMANDS; i++) {
        calls[i] = file_send(t, id);
    }

    others(t, "while a quarter of the broker's descriptors waits");
    n = refused(FILES, FILES + COMMANDS);
    ok(gone < FILES - SHARE, "one may have as many as there are: %u are left",
       FILES - gone);
    ok(n >= COMMANDS - UNREAD - LEAST && n <= COMMANDS - LEAST,
       "then each of the others may have few: %u of %u are refused", n,
       COMMANDS);
    create(t, "good", made);
    ok(test_destroy(t, made), "sessions are made meanwhile");
    ok(test_destroy(t, id), "the second one can be destroyed");
    ok(test_destroy(t, first), "the first one can be destroyed");
    hang_up();
}


static void
test_groups(test_broker_t *t)
{
    int             i;
    char            id[64];
    uint64_t        begun, most;
    unsigned        had, have;
    test_answer_t  *a;

    begun = sbx_now_us();
    create(t, "asker", id);
    is_int(test_answer(file_send(t, id))->last, SBX_F_END,
           "a thousand groups are asked for");
    others(t, "meanwhile");

    /* what it is given is before this call in the same socket */

    a = test_answer(file_send(t, id));
    most = BUCKET + (sbx_now_us() - begun) / EVERY + 1;
    have = a->end.truncated;
    ok(have >= BUCKET && have <= most,
       "%u are given, and not more than %u", have, (unsigned) most);

    /* then some every second */

    had = have;

    for (i = 0; i < TEST_WAIT / 20 && have < had + 3; i++) {
        have = test_answer(file_send(t, id))->end.truncated;
        (void) poll(NULL, 0, 20);
    }

    most = BUCKET + (sbx_now_us() - begun) / EVERY + 1;
    ok(have >= had + 3 && have <= most, "then one now and then (%u)", have);
    ok(test_destroy(t, id), "who asked is destroyed");
}


int
main(void)
{
    unsigned       i;
    test_broker_t  t;
    struct rlimit  less;

    if (init_is()) {
        return init_main();
    }

    if (geteuid() != 0) {
        return skip_all("needs root");
    }

    for (i = 0; i < sbx_nelts(calls); i++) {
        calls[i] = -1;
    }

    less.rlim_cur = LESS;
    less.rlim_max = LESS;

    if (setrlimit(RLIMIT_NOFILE, &less) == -1) {
        test_die("setrlimit");
    }

    test_open(&t, "flood");
    init_helpers(&t);

    if (!ok(test_start(&t) == 0, "a broker starts")) {
        printf("# %s\n", t.error.text);
        return done_testing();
    }

    create(&t, "good", good);
    test_unread(&t);
    test_files(&t);
    test_share(&t);
    test_groups(&t);
    ok(test_destroy(&t, good), "the good one is destroyed");
    test_close(&t);

    return done_testing();
}
