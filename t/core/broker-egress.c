/*
 * The egress's process as the broker has it: one that fails, that says
 * nonsense or cannot be started, what it is given, and what it is believed.
 */

#include "broker_network.h"

#include <sched.h>
#include <sys/mount.h>


/* An egress that counts what cannot be. */

static void
test_counters(void)
{
    char         id[64];
    sbx_usage_t  u, *now;

    ok(made(create(SBX_NETWORK_LISTS, "full.test"), id)
       && await_told(id, "grant-2-11-full.test-"), "a page of ones");
    u = *usage(id);
    ok(u.connections > 0 && u.connections <= 4096,
       "is no more connections than there may be: %lld",
       (long long) u.connections);
    ok(u.network_sent == 1ULL << 53 && u.network_received == 1ULL << 53
       && u.network_refused == 1ULL << 53, "and no more bytes than are told");
    (void) patch(id, SBX_NETWORK_NONE, NULL);
    (void) patch(id, SBX_NETWORK_LISTS, "none.test");
    ok(await_told(id, "grant-2-11-none.test-"), "a page of zeros");
    now = usage(id);
    ok(now->network_sent == u.network_sent
       && now->network_received == u.network_received
       && now->network_refused == u.network_refused, "takes nothing back");
    is_int((int64_t) now->connections, 0, "but connections");
    ok(test_destroy(&t, id), "it goes");
    ok(metrics()->network_sent >= u.network_sent
       && metrics()->network_sent < 1ULL << 54, "what it was is in the sum");
}


/* What there is to be read of refusals of the session: how many frames. */

static unsigned
take_flood(const char *id, uint64_t *sum)
{
    unsigned        n;
    sbx_frame_t     frame;
    struct pollfd   pfd;

    pfd.fd = heard;
    pfd.events = POLLIN;

    for (n = 0; poll(&pfd, 1, 50) == 1; ) {
        if (recv(heard, &frame, sizeof(frame), MSG_WAITALL) != sizeof(frame)
            || frame.length != sizeof(refusal)
            || recv(heard, &refusal, sizeof(refusal), MSG_WAITALL)
               != sizeof(refusal))
        {
            break;
        }

        if (strcmp(refusal.session, id) == 0) {
            *sum += (uint64_t) refusal.more + 1;
            n++;
        }
    }

    return n;
}


static uint64_t
refused(void)
{
    size_t                  i;
    uint64_t                sum;
    const sbx_f_metrics_t  *m;

    m = metrics();
    sum = 0;

    for (i = 0; i < SBX_REFUSED_REASONS; i++) {
        sum += m->refused[i];
    }

    return sum;
}


static void
test_flood(void)
{
    char      id[64];
    unsigned  i, n, patches, seconds;
    uint64_t  base, begun, sum, due;

    sum = 0;
    base = refused();
    due = 2 * EGRESS_FLOOD + 1;
    begun = sbx_now_us();
    ok(made(create(SBX_NETWORK_LISTS, "flood.test"), id),
       "an egress that tells of too many refusals");

    /* who is told of them is late */

    for (i = 0; i < TEST_WAIT / 10 && refused() < base + due; i++) {
        (void) poll(NULL, 0, 10);
    }

    ok(refused() >= base + due, "the broker has all of them");
    n = take_flood(id, &sum);

    for (patches = 0; patches < TEST_WAIT / 50 && sum != due + patches; ) {
        (void) patch(id, SBX_NETWORK_LISTS, "calm.test");
        patches++;
        n += take_flood(id, &sum);
    }

    seconds = (unsigned) ((sbx_now_us() - begun) / 1000000);
    ok(n <= (seconds + 2) * 1001 + patches,
       "is heard so often in a second: %u in %u", n, seconds);
    is_int((int64_t) sum, (int64_t) (due + patches), "and nothing is lost");
    ok(test_destroy(&t, id), "it goes");
}


static void
test_nonsense(const char *id)
{
    int       i;
    char      bad[64];
    uint64_t  before;

    before = metrics()->egress_restarts;
    ok(made(create(SBX_NETWORK_LISTS, "nonsense.test"), bad),
       "an egress that goes mad");

    /* each that comes is told of the session, too */

    for (i = 0; i < TEST_WAIT / 10; i++) {
        if (metrics()->egress_restarts > before) {
            break;
        }

        (void) poll(NULL, 0, 10);
    }

    ok(i < TEST_WAIT / 10, "is replaced");
    ok(test_logged(&t, "it has sent nonsense"), "which is logged");
    ok(test_destroy(&t, bad), "without what drove it mad");
    ok(await_egress(0) > 0, "one stays");
    (void) patch(id, SBX_NETWORK_LISTS, "sane.test");
    ok(await_told(id, "-2-11-sane.test-"), "and all goes on");
}


static void
test_values(const char *id)
{
    char  path[4200];

    (void) snprintf(path, sizeof(path), "%s/value", t.dir);
    row(SBX_EGRESS_HEADER, "a.example.org", "X-Key", path);
    ok(tell() == 0, "a header whose value is not there");
    ok(await_logged("the egress is not told of the configuration"),
       "is told of in the log");

    put_file(path, "secret");
    ok(tell() == 0, "once it is there");
    (void) patch(id, SBX_NETWORK_ALL, NULL);
    ok(await_told(id, "change-1-0--secret"), "the egress has it");

    (void) remove(path);
    (void) mkfifo(path, 0600);
    (void) tell();
    (void) patch(id, SBX_NETWORK_LISTS, "e.test");
    ok(await_told(id, "change-2-8-e.test-secret"),
       "what is no file is not taken, and delays nobody");

    t.config.egress_size = 0;
    row(SBX_EGRESS_ALLOW, "unfit.test", NULL, NULL);
    (void) tell();
    ok(await_logged("does not take its configuration: unfit.test"),
       "a table that the egress does not take is told of");
    is_int(egress_pid(), 0, "and something that the doctor finds");
    ok(strstr(check.found, "has not taken the configuration") != NULL,
       "by what it is: %s", check.found);

    t.config.egress_size = 0;
    row(SBX_EGRESS_ALLOW, "*.test", NULL, NULL);
    (void) tell();
    ok(await_egress(0) > 0, "until it takes one");
}


/* As many descriptors as before: the broker's. */

static unsigned
descriptors(void)
{
    char            path[64];
    unsigned        n;
    DIR            *dir;

    (void) snprintf(path, sizeof(path), "/proc/%d/fd",
                    (int) test_pid(&t, "broker.pid"));
    dir = opendir(path);

    for (n = 0; dir != NULL && readdir(dir) != NULL; n++) {
        /* void */
    }

    if (dir != NULL) {
        (void) closedir(dir);
    }

    return n;
}


static void
test_descriptors(void)
{
    int       i, j;
    char      id[64];
    pid_t     egress;
    unsigned  before, now;

    now = 0;
    before = descriptors();

    for (i = 0; i < 3; i++) {
        if (tell() != 0 || !made(create(SBX_NETWORK_ALL, NULL), id)) {
            break;
        }

        egress = egress_pid();
        (void) tap_kill(egress, SIGKILL);
        (void) await_egress(egress);
        (void) patch(id, SBX_NETWORK_NONE, NULL);
        (void) patch(id, SBX_NETWORK_LISTS, "f.test");
        (void) test_destroy(&t, id);
    }

    /* what was taken from strangers is closed by threads */

    for (j = 0; j < TEST_WAIT / 10; j++) {
        now = descriptors();

        if (now <= before) {
            break;
        }

        (void) poll(NULL, 0, 10);
    }

    ok(i == 3 && now <= before, "no descriptor stays: %u, %u", before, now);
}


/* What keeps the egress from being started. */

static void
test_unable(void)
{
    char           path[8192], id[64];
    pid_t          old;
    test_answer_t  *a;

    t.config.egress_size = 0;
    row(SBX_EGRESS_ALLOW, "*.test", NULL, NULL);
    (void) tell();
    old = await_egress(0);

    (void) snprintf(path, sizeof(path), "%s/egress-ca.crt", t.state);
    (void) remove(path);
    (void) mkdir(path, 0700);
    (void) tap_kill(old, SIGKILL);
    ok(await_logged("the egress cannot be started"),
       "one that cannot be started is told of");
    is_int(egress_pid(), 0, "by /doctor too");
    a = test_answer(test_call(t.control, SBX_OP_HEALTH, "", ""));
    ok(a->health.ok && strstr(a->health.text, "egress") != NULL,
       "and where the node's health is asked for");
    a = create(SBX_NETWORK_ALL, NULL);
    is_int(a->error.code, SBX_E_UNAVAILABLE, "no session has a network");
    ok(made(create(SBX_NETWORK_NONE, NULL), id), "but they are made");
    is_int(patch(id, SBX_NETWORK_ALL, NULL)->error.code, SBX_E_UNAVAILABLE,
           "and given none");
    (void) rmdir(path);
    ok(await_egress(old) > 0, "it is started once it can be");
    ok(test_destroy(&t, id) && made(create(SBX_NETWORK_ALL, NULL), id)
       && await_told(id, "grant-1-0--"), "and told of those that come");
    ok(test_destroy(&t, id), "they go");
}


/* Another resolv.conf goes to the egress with a later grant; 0: it does. */

static int
test_resolv(const char *id, const char *path)
{
    int      i;
    ssize_t  n;

    listen_to();
    put_file(path, "# test two");

    for (i = 0; i < TEST_WAIT / 50; i++) {
        if (patch(id, SBX_NETWORK_ALL, NULL)->last != SBX_F_END) {
            return -1;
        }

        (void) poll(NULL, 0, 50);

        n = recv(heard, rules, sizeof(rules), MSG_DONTWAIT);

        if (n > 0 && memmem(rules, (size_t) n, "secrettwo", 9) != NULL) {
            return 0;
        }
    }

    return -1;
}


/*
 * Beside all that, as it takes a while: an egress that does not say that it is
 * ready, and whose certificate sessions wait for.
 */

static int
other_main(void)
{
    char   id[64], path[8192];
    pid_t  pid;

    (void) freopen("/dev/null", "w", stdout);
    test_open(&t, "network-late");
    egress_helpers(&t);

    /* the machine's own is not ours to write */

    (void) snprintf(path, sizeof(path), "%s/resolv.conf", t.dir);
    put_file(path, "# test one");

    if (unshare(CLONE_NEWNS) == -1
        || mount(NULL, "/", NULL, MS_REC|MS_PRIVATE, NULL) == -1
        || mount(path, "/etc/resolv.conf", NULL, MS_BIND, NULL) == -1)
    {
        return 6;
    }

    (void) snprintf(path, sizeof(path), "%s/value", t.dir);
    put_file(path, "secret");
    row(SBX_EGRESS_ALLOW, "*.test", NULL, NULL);
    row(SBX_EGRESS_TLS_HEADER, "a.test", "X-Key", path);

    /* the first certificate is awaited */

    if (test_start(&t) != 0 || !made(create(SBX_NETWORK_ALL, NULL), id)) {
        return 2;
    }

    (void) snprintf(path, sizeof(path), "%s/resolv.conf", t.dir);

    if (test_resolv(id, path) != 0) {
        return 5;
    }

    pid = egress_pid();
    (void) snprintf(path, sizeof(path), "%s/egress-ca.crt", t.state);
    put_file(path, "late");

    if (tap_kill(pid, SIGKILL) != 0 || !await_logged("not ready in time")) {
        return 3;
    }

    if (await_egress(pid) <= 0) {
        return 4;
    }

    test_close(&t);

    return tap_failed != 0;
}


/* Beside it too: an egress that is asked and does not answer. */

static int
hung_main(void)
{
    char   id[64];
    pid_t  pid;

    (void) freopen("/dev/null", "w", stdout);
    test_open(&t, "network-hung");
    egress_helpers(&t);
    row(SBX_EGRESS_ALLOW, "*.test", NULL, NULL);

    if (test_start(&t) != 0 || !made(create(SBX_NETWORK_ALL, NULL), id)) {
        return 2;
    }

    pid = await_egress(0);
    listen_to();

    if (pid <= 0 || tap_kill(pid, SIGSTOP) != 0
        || !await_logged("the egress is killed: it does not answer"))
    {
        return 3;
    }

    if (await_egress(pid) <= 0 || !await_told(id, "grant-1-0--")) {
        return 4;
    }

    test_close(&t);

    return tap_failed != 0;
}


int
main(void)
{
    int    status;
    char   id[64];
    pid_t  other, hung;

    if (egress_is()) {
        return egress_main();
    }

    if (geteuid() != 0) {
        return skip_all("needs root");
    }

    other = fork();

    if (other == 0) {
        exit(other_main());
    }

    hung = fork();

    if (hung == 0) {
        exit(hung_main());
    }

    test_open(&t, "egress");
    egress_helpers(&t);
    row(SBX_EGRESS_ALLOW, "*.example.org", NULL, NULL);
    row(SBX_EGRESS_ALLOW, "*.test", NULL, NULL);

    if (!ok(test_start(&t) == 0 && await_egress(0) > 0, "an egress starts")) {
        printf("# %s\n", t.error.text);
        return done_testing();
    }

    listen_to();
    ok(made(create(SBX_NETWORK_ALL, NULL), id)
       && await_told(id, "grant-1-0--"), "a session is granted");
    test_counters();
    test_flood();
    test_nonsense(id);
    test_descriptors();
    test_values(id);
    test_unable();
    test_close(&t);
    (void) waitpid(other, &status, 0);
    is_int(status, 0,
           "one that is not ready in time is replaced, a first certificate "
           "is awaited, and another resolv.conf seen");
    (void) waitpid(hung, &status, 0);
    is_int(status, 0, "one that does not answer is replaced");

    return done_testing();
}
