/*
 * What the broker does for a session's network: the egress is started, told
 * and replaced, and what is a session's is kept, whoever dies.
 */

#include "broker_egress.h"

#include <dirent.h>
#include <sched.h>
#include <sys/mount.h>


static test_broker_t   t;
static int             heard;           /* the call of refusals */
static sbx_f_check_t   check;
static unsigned        nchecks;
static unsigned        ended;
static sbx_f_refusal_t refusal;
static size_t          rules_told;
static char            rules[SBX_NETWORK_SIZE];


/*
 * ---- configuration -------------------------------------------------------
 */

static void
row(char type, const char *a, const char *b, const char *c)
{
    size_t       i;
    char        *p;
    const char  *text[3] = { a, b, c };

    p = t.config.egress + t.config.egress_size;
    *p++ = type;

    for (i = 0; i < 3 && text[i] != NULL; i++) {
        (void) strcpy(p, text[i]);
        p += strlen(p) + 1;
    }

    t.config.egress_size = (uint32_t) (p - t.config.egress);
}


static int
tell(void)
{
    int           control;
    sbx_hello_t   hello;
    sbx_client_t  client;

    client = t.client;
    client.spawn = 0;
    control = -1;

    if (sbx_client_start(&client, &control, &hello, &t.error) != 0) {
        printf("# %s\n", t.error.text);
        return -1;
    }

    (void) close(control);

    return 0;
}


static void
take_check(const sbx_frame_t *f, const uint8_t *p)
{
    sbx_f_check_t  c;

    ended |= f->type == SBX_F_END;

    if (f->type == SBX_F_CHECK) {
        memcpy(&c, p, sizeof(c));

        if (strcmp(c.name, "egress") == 0) {
            check = c;
            nchecks++;
        }
    }
}


static int
is_ended(const char *text)
{
    (void) text;

    return ended != 0;
}


/* The egress's pid, as /doctor has it; 0: it does not run, -1: it need not. */

static pid_t
egress_pid(void)
{
    int  fd, pid;

    ended = 0;
    nchecks = 0;
    fd = test_call(t.control, SBX_OP_DOCTOR, "", "");
    test_follow(fd, take_check, is_ended, NULL);
    (void) close(fd);

    if (nchecks == 0) {
        return -1;
    }

    return check.ok && sscanf(check.found, "process %d", &pid) == 1 ? pid : 0;
}


static pid_t
await_egress(pid_t old)
{
    int    i;
    pid_t  pid;

    for (i = 0; i < TEST_WAIT / 10; i++) {
        pid = egress_pid();

        if (pid > 0 && pid != old) {
            return pid;
        }

        (void) poll(NULL, 0, 10);
    }

    return -1;
}


static int
await_logged(const char *text)
{
    int  i;

    for (i = 0; i < TEST_WAIT / 10; i++) {
        if (test_logged(&t, text)) {
            return 1;
        }

        (void) poll(NULL, 0, 10);
    }

    return 0;
}


/*
 * ---- what the egress was told --------------------------------------------
 */

static void
take_refusal(const sbx_frame_t *f, const uint8_t *p)
{
    if (f->type == SBX_F_ACCEPTED) {
        ended = 1;
    }

    if (f->type == SBX_F_REFUSAL) {
        memcpy(&refusal, p, sizeof(refusal));
    }
}


static void
listen_to(void)
{
    ended = 0;
    heard = test_call(t.control, SBX_OP_REFUSALS, "", "");
    test_follow(heard, take_refusal, is_ended, NULL);
}


/* Until the egress has been told that of the session. */

static int
await_told(const char *id, const char *text)
{
    ssize_t         n;
    sbx_frame_t     frame;
    struct pollfd   pfd;

    pfd.fd = heard;
    pfd.events = POLLIN;

    while (poll(&pfd, 1, TEST_WAIT) == 1) {
        n = recv(heard, &frame, sizeof(frame), MSG_WAITALL);

        if (n != sizeof(frame) || frame.type != SBX_F_REFUSAL
            || frame.length != sizeof(refusal)
            || recv(heard, &refusal, sizeof(refusal), MSG_WAITALL)
               != sizeof(refusal))
        {
            break;
        }

        if (strcmp(refusal.session, id) == 0
            && strstr(refusal.name, text) != NULL)
        {
            return 1;
        }
    }

    printf("# \"%s\" is not told; the last was \"%s\" of \"%s\"\n", text,
           refusal.name, refusal.session);

    return 0;
}


/*
 * ---- sessions ------------------------------------------------------------
 */

static void
put(char *buf, uint32_t *size, char type, const char *text)
{
    buf[(*size)++] = type;
    (void) strcpy(buf + *size, text);
    *size += (uint32_t) strlen(text) + 1;
}


static int
sealed(const char *data, size_t size)
{
    int  fd;

    if (size == 0) {
        return -1;
    }

    fd = memfd_create("blob", MFD_CLOEXEC|MFD_ALLOW_SEALING);

    if (fd == -1 || sbx_write_all(fd, data, size) == -1
        || fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE|F_SEAL_SHRINK|F_SEAL_GROW)
           == -1)
    {
        test_die("memfd");
    }

    return fd;
}


static test_answer_t *
create(sbx_network_mode_t mode, const char *rule)
{
    int             blob;
    sbx_create_t    body;
    test_answer_t  *a;

    test_create_body(&body);
    body.network = mode;

    if (rule != NULL) {
        put(rules, &body.network_size, 'a', rule);
    }

    blob = sealed(rules, body.network_size);
    a = test_answer(test_create_send(t.control, "acme", &body, blob));

    if (blob != -1) {
        (void) close(blob);
    }

    return a;
}


static int
made(test_answer_t *a, char *id)
{
    if (a->last != SBX_F_END) {
        printf("# create: %s (%d)\n", a->error.text, a->error.err);
        id[0] = '\0';
        return 0;
    }

    (void) strcpy(id, a->session.id);

    return 1;
}


static int
patch_send(const char *id, sbx_network_mode_t mode, size_t size)
{
    int          blob, fd;
    sbx_call_t   head;
    sbx_patch_t  patch;

    memset(&patch, 0, sizeof(patch));
    patch.flags = SBX_PATCH_NETWORK;
    patch.network = mode;
    patch.network_size = (uint32_t) size;
    blob = sealed(rules, size);
    test_head(&head, SBX_OP_PATCH, id, "acme", "alice", sizeof(patch));
    fd = test_send(t.control, &head, &patch, sizeof(patch), blob);

    if (blob != -1) {
        (void) close(blob);
    }

    return fd;
}


static test_answer_t *
patch(const char *id, sbx_network_mode_t mode, const char *rule)
{
    uint32_t  size;

    size = 0;

    if (rule != NULL) {
        put(rules, &size, 'a', rule);
    }

    return test_answer(patch_send(id, mode, size));
}


static void
take_rules(const sbx_frame_t *f, const uint8_t *p)
{
    ended |= f->type == SBX_F_END || f->type == SBX_F_ERROR;

    if (f->type == SBX_F_NETWORK) {
        rules_told = f->length;
        memcpy(rules, p, f->length);
    }
}


/* Its usage, by a GET. */

static sbx_usage_t *
usage(const char *id)
{
    static sbx_usage_t  u;

    u = test_answer(test_call(t.control, SBX_OP_GET, id, ""))->session.usage;

    return &u;
}


static sbx_f_metrics_t *
metrics(void)
{
    static sbx_f_metrics_t  m;

    m = test_answer(test_call(t.control, SBX_OP_METRICS, "", ""))->metrics;

    return &m;
}


static void
put_file(const char *path, const char *text)
{
    FILE  *file;

    file = fopen(path, "we");

    if (file == NULL || fputs(text, file) == EOF || fclose(file) != 0) {
        test_die(path);
    }
}


/*
 * ---- tests ---------------------------------------------------------------
 */

static void
test_none(void)
{
    test_answer_t  *a;

    is_int(egress_pid(), -1, "without a grant there is no egress");
    a = create(SBX_NETWORK_ALL, NULL);
    ok(a->last == SBX_F_ERROR && a->error.code == SBX_E_MANIFEST
       && strncmp(a->error.text, "/manifest/network", 17) == 0,
       "and no session has a network: %s", a->error.text);
}


static void
test_grant(char *id)
{
    int             fd;
    pid_t           pid;
    char            path[64];
    struct stat     st;
    test_answer_t  *a;

    row(SBX_EGRESS_ALLOW, "*.example.org", NULL, NULL);
    row(SBX_EGRESS_ALLOW, "*.test", NULL, NULL);
    ok(tell() == 0, "a configuration that grants something");
    pid = await_egress(0);
    ok(pid > 0, "starts the egress");
    (void) snprintf(path, sizeof(path), "/proc/%d", (int) pid);
    ok(stat(path, &st) == 0 && st.st_uid >= t.config.uid_first,
       "as a user of the sessions' range");
    listen_to();

    a = create(SBX_NETWORK_LISTS, "a.example.org");

    if (!ok(made(a, id), "a session is granted")) {
        return;
    }

    ok(a->session.network == SBX_NETWORK_LISTS
       && a->session.network_size == 15 && !a->session.network_open,
       "and told what it was granted");
    ok(await_told(id, "grant-2-15-a.example.org-"), "as the egress is");
    is_str(refusal.tenant, "acme", "what it says has a tenant,");
    is_str(refusal.user, "alice", "a user,");
    is_int(refusal.port, 443, "a port");

    ended = 0;
    fd = test_call(t.control, SBX_OP_GET, id, "");
    test_follow(fd, take_rules, is_ended, NULL);
    (void) close(fd);
    ok(rules_told == 15 && memcmp(rules, "aa.example.org", 15) == 0,
       "a GET tells its rules");

    a = create(SBX_NETWORK_LISTS, "example.net");
    ok(a->last == SBX_F_ERROR && a->error.code == SBX_E_MANIFEST,
       "more than configuration allows is refused: %s", a->error.text);
    a = create(SBX_NETWORK_ALL, "a.example.org");
    is_int(a->error.code, SBX_E_INVALID, "rules without their mode, too");
    a = create(SBX_NETWORK_LISTS, "a..example.org");
    ok(a->last == SBX_F_ERROR, "and what is no rule");
}


static void
test_change(const char *id)
{
    test_answer_t  *a;

    a = patch(id, SBX_NETWORK_LISTS, "b.example.org");
    ok(a->last == SBX_F_END && a->session.network_size == 15,
       "what it may reach is changed");
    ok(await_told(id, "change-2-15-b.example.org-"), "in the egress too");

    a = patch(id, SBX_NETWORK_LISTS, "example.net");
    ok(a->last == SBX_F_ERROR && a->error.code == SBX_E_MANIFEST
       && strncmp(a->error.text, "/network", 8) == 0,
       "not to more than configuration allows: %s", a->error.text);

    a = patch(id, SBX_NETWORK_NONE, NULL);
    ok(a->last == SBX_F_END && a->session.network == SBX_NETWORK_NONE,
       "it is taken away");
    ok(await_told(id, "revoke-0-0--"), "in the egress too");
    a = patch(id, SBX_NETWORK_ALL, NULL);
    ok(a->last == SBX_F_END && a->session.network == SBX_NETWORK_ALL,
       "and given");
    ok(await_told(id, "grant-1-0--"), "with sockets");
    is_int((int64_t) usage(id)->network_sent, 2 * EGRESS_SENT,
           "what it has sent goes on");
    is_int((int64_t) usage(id)->connections, 3, "its connections are told");
}


static void
test_deaths(const char *id)
{
    pid_t     egress, old, keeper;
    uint64_t  restarts;

    old = egress_pid();
    ok(tap_kill(old, SIGKILL) == 0, "the egress is killed");
    egress = await_egress(old);
    ok(egress > 0, "another one is there");
    ok(await_told(id, "grant-1-0--"), "and told of the session");
    is_int((int64_t) usage(id)->network_sent, 3 * EGRESS_SENT,
           "what the session has sent goes on");
    restarts = metrics()->egress_restarts;
    is_int((int64_t) restarts, 1, "it is counted");

    old = test_pid(&t, "broker.pid");
    (void) tap_kill(old, SIGKILL);
    ok(test_await_successor(&t, "broker.pid", old) > 0,
       "the broker is killed and another one there");
    listen_to();
    is_int(egress_pid(), egress, "the egress is the same");
    is_int((int64_t) usage(id)->network_sent >= 3 * EGRESS_SENT, 1,
           "what the session has sent is known");
    is_int(patch(id, SBX_NETWORK_LISTS, "c.test")->last, SBX_F_END,
           "it can be changed");
    ok(await_told(id, "-2-8-c.test-"), "in the egress too");

    old = test_pid(&t, "broker.pid");
    (void) tap_kill(old, SIGKILL);
    (void) tap_kill(egress, SIGKILL);
    ok(test_await_successor(&t, "broker.pid", old) > 0, "both are killed");
    listen_to();
    old = egress;
    egress = await_egress(old);
    ok(egress > 0, "and both replaced");
    ok(await_told(id, "grant-2-8-c.test-"), "the session is granted again");

    keeper = test_pid(&t, "keeper.pid");
    old = test_pid(&t, "broker.pid");
    (void) tap_kill(keeper, SIGKILL);
    ok(test_await_successor(&t, "broker.pid", old) > 0,
       "the keeper is replaced");
    listen_to();
    is_int(egress_pid(), egress, "the egress is the same");
    (void) tap_kill(egress, SIGKILL);
    egress = await_egress(egress);
    ok(egress > 0, "its end is seen though the keeper is not its parent");
    ok(await_told(id, "grant-2-8-c.test-"), "and the session granted");
}


/* One that takes nothing delays nobody. */

static void
test_stopped(const char *id)
{
    int        i;
    char       other[64];
    pid_t      egress;
    uint32_t   size;
    uint64_t   begun;

    egress = egress_pid();
    (void) tap_kill(egress, SIGSTOP);
    begun = sbx_now_us();

    for (i = 0, size = 0; size < SBX_NETWORK_SIZE - 200 && i < 250; i++) {
        (void) memset(rules + size + 1, 'x', 60);
        put(rules, &size, 'a', "");
        size--;
        (void) snprintf(rules + size, 80, "x%059d.d%03d.test", 0, i);
        size += (uint32_t) strlen(rules + size) + 1;
    }

    for (i = 0; i < 16; i++) {
        if (test_answer(patch_send(id, SBX_NETWORK_LISTS, size))->last
            != SBX_F_END)
        {
            break;
        }
    }

    is_int(i, 16, "changes are answered while the egress is stopped");
    ok(made(create(SBX_NETWORK_ALL, NULL), other), "a session is made");
    ok(sbx_now_us() - begun < 5000000, "at once");
    is_int(patch(id, SBX_NETWORK_LISTS, "last.test")->last, SBX_F_END,
           "one change more");
    (void) tap_kill(egress, SIGCONT);
    ok(await_told(other, "grant-1-0--"),
       "it is told of the session when it goes on");
    ok(await_told(id, "change-2-11-last.test-"), "and of the last change");
    ok(test_destroy(&t, other), "which goes");
}


static void
test_gone(void)
{
    char               id[64];
    uint64_t           sent;
    sbx_f_metrics_t   *m;

    ok(made(create(SBX_NETWORK_ALL, NULL), id)
       && await_told(id, "grant-1-0--"), "another session");
    m = metrics();
    sent = m->network_sent;
    ok(sent >= EGRESS_SENT && m->connections >= 3 && m->egress_up == 1
       && m->refused[SBX_REFUSED_RULE] > 0, "metrics tell of it");
    ok(test_destroy(&t, id), "it goes");
    ok(metrics()->network_sent == sent, "what it has sent stays counted");
}


/* The process that the session's cgroup has: its init. */

static pid_t
init_of(const char *id)
{
    DIR            *dir;
    char            path[300], text[2048];
    FILE           *file;
    pid_t           pid;
    struct dirent  *entry;

    pid = 0;
    dir = opendir("/proc");

    while (dir != NULL && pid == 0 && (entry = readdir(dir)) != NULL) {
        (void) snprintf(path, sizeof(path), "/proc/%s/cgroup", entry->d_name);
        file = atoi(entry->d_name) > 0 ? fopen(path, "re") : NULL;

        while (file != NULL && fgets(text, sizeof(text), file) != NULL) {
            if (strstr(text, id) != NULL) {
                pid = (pid_t) atoi(entry->d_name);
            }
        }

        if (file != NULL) {
            (void) fclose(file);
        }
    }

    if (dir != NULL) {
        (void) closedir(dir);
    }

    return pid;
}


/* Of a session that ends while there is no broker the egress is to know. */

static void
test_meanwhile(const char *id)
{
    int      i;
    char     gone[64];
    pid_t    broker, init;
    int64_t  told;

    ok(made(create(SBX_NETWORK_ALL, NULL), gone)
       && await_told(gone, "grant-1-0--"), "a session");
    init = init_of(gone);
    broker = test_pid(&t, "broker.pid");
    ok(init > 0 && tap_kill(broker, SIGSTOP) == 0
       && tap_kill(init, SIGKILL) == 0 && test_await_end(init) == 0,
       "ends while the broker is stopped,");
    ok(tap_kill(broker, SIGKILL) == 0
       && test_await_successor(&t, "broker.pid", broker) > 0,
       "which is replaced");

    /* the only other one is granted again, which makes one */

    for (i = 0, told = 0; told < 2 && i < TEST_WAIT / 10; i++) {
        (void) poll(NULL, 0, 10);
        told = (int64_t) metrics()->refused[SBX_REFUSED_RULE];
    }

    is_int(told, 2, "and tells the egress that the session is over");
    listen_to();

    is_int(patch(id, SBX_NETWORK_LISTS, "d.test")->last, SBX_F_END,
           "another change");
    ok(await_told(id, "change-2-8-d.test-"), "is told");
    is_int(refusal.more, 1, "with what nobody has heard before");
    is_int(patch(id, SBX_NETWORK_LISTS, "last.test")->last, SBX_F_END,
           "one more");
    ok(await_told(id, "change-2-11-last.test-") && refusal.more == 0,
       "is told alone");
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


/* A session that was made ahead is granted when it is given out. */

static void
test_pooled(void)
{
    int                  i;
    char                 id[64], path[128];
    sbx_create_t         body;
    test_answer_t       *a;
    sbx_pool_config_t   *pool;

    test_create_body(&body);
    t.config.egress_size = 0;
    row(SBX_EGRESS_ALLOW, "*", NULL, NULL);

    pool = &t.config.pools.pools[0];
    t.config.pools.count = 1;
    (void) strcpy(pool->template, "base");
    pool->sessions = 1;
    pool->capabilities = body.capabilities;
    pool->limits = body.limits;
    (void) tell();

    for (i = 0; i < TEST_WAIT / 10 && metrics()->pools[0].ready == 0; i++) {
        (void) poll(NULL, 0, 10);
    }

    a = create(SBX_NETWORK_ALL, NULL);
    ok(made(a, id) && a->session.network == SBX_NETWORK_ALL
       && a->session.network_open, "a session with a network that is open");
    is_int((int64_t) metrics()->pools[0].hits, 1, "was made ahead");
    ok(await_told(id, "grant-1-0--"), "of which the egress is told");
    ok(test_destroy(&t, id), "it goes");

    for (i = 0; i < TEST_WAIT / 10 && metrics()->pools[0].ready == 0; i++) {
        (void) poll(NULL, 0, 10);
    }

    (void) strcpy(t.config.packages, "/usr/share");
    (void) tell();
    ok(made(create(SBX_NETWORK_NONE, NULL), id), "the next one");
    (void) snprintf(path, sizeof(path), "/proc/%d/root" SBX_PACKAGES "/doc",
                    (int) init_of(id));
    ok(access(path, F_OK) == 0,
       "has packages that were not there when one was made ahead");
    ok(test_destroy(&t, id), "it goes, too");
    t.config.packages[0] = '\0';

    memset(&t.config.pools, 0, sizeof(t.config.pools));
    (void) tell();
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


int
main(void)
{
    int    status;
    char   id[64];
    pid_t  egress, other;

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

    test_open(&t, "network");
    egress_helpers(&t);

    if (!ok(test_start(&t) == 0, "a broker starts")) {
        printf("# %s\n", t.error.text);
        return done_testing();
    }

    test_none();
    test_grant(id);
    test_change(id);
    test_deaths(id);
    test_stopped(id);
    test_gone();
    test_meanwhile(id);
    test_nonsense(id);
    test_descriptors();
    test_values(id);
    test_pooled();
    test_unable();
    egress = egress_pid();
    test_close(&t);
    ok(egress > 0 && test_await_end(egress) == 0, "so does the egress");
    (void) waitpid(other, &status, 0);
    is_int(status, 0,
           "one that is not ready in time is replaced, a first certificate "
           "is awaited, and another resolv.conf seen");

    return done_testing();
}
