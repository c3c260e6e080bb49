/*
 * What a broker that is started again makes of what it finds: sessions go on
 * though the machine is not as it was, ids stay whose they are, and what does
 * not end by itself is ended.
 */

#include "broker_test.h"
#include "link.h"

#include <dirent.h>
#include <sys/mount.h>
#include <sys/resource.h>


#define MB  ((uint64_t) 1024 * 1024)


/* Programs of the test's own, the usual ones by links. */

static void
helpers(test_broker_t *t)
{
    size_t  i;
    char    dir[512], from[8192], to[8192];

    static const char  *names[] = {
        "sandbox-broker", "sandbox-init", "sandbox-egress", "kernels"
    };

    (void) snprintf(dir, sizeof(dir), "%s/helpers", t->dir);

    if (mkdir(dir, 0755) == -1) {
        test_die("mkdir");
    }

    for (i = 0; i < sbx_nelts(names); i++) {
        (void) snprintf(from, sizeof(from), "%s/%s", t->helpers, names[i]);
        (void) snprintf(to, sizeof(to), "%s/%s", dir, names[i]);

        if (symlink(from, to) == -1) {
            test_die("symlink");
        }
    }

    (void) strcpy(t->helpers, dir);
}


static void
replace(test_broker_t *t, const char *name, const char *by)
{
    char  path[8192];

    (void) snprintf(path, sizeof(path), "%s/%s", t->helpers, name);
    (void) unlink(path);

    if (by != NULL && symlink(by, path) == -1) {
        test_die("symlink");
    }
}


static pid_t
restart(test_broker_t *t)
{
    pid_t  broker;

    broker = test_pid(t, "broker.pid");
    ok(tap_kill(broker, SIGKILL) == 0, "the broker is killed");

    return test_await_successor(t, "broker.pid", broker);
}


/* Configuration, as a reload brings it. */

static int
tell(test_broker_t *t)
{
    int           control;
    sbx_error_t   e;
    sbx_hello_t   hello;
    sbx_client_t  client;

    client = t->client;
    client.spawn = 0;
    control = -1;

    if (sbx_client_start(&client, &control, &hello, &e) != 0) {
        printf("# %s\n", e.text);
        return -1;
    }

    (void) close(control);

    return 0;
}


static int
logged(test_broker_t *t, const char *text)
{
    int  i;

    for (i = 0; !test_logged(t, text) && i < TEST_WAIT / 10; i++) {
        (void) poll(NULL, 0, 10);
    }

    return test_logged(t, text);
}


/* The first process of a session, by what the keeper is the parent of. */

static pid_t
init_of(test_broker_t *t)
{
    int             parent;
    DIR            *proc;
    char            path[300], text[512], *p;
    pid_t           found, keeper;
    struct dirent  *entry;

    found = 0;
    keeper = test_pid(t, "keeper.pid");
    proc = opendir("/proc");

    while (proc != NULL && (entry = readdir(proc)) != NULL) {
        if (entry->d_name[0] < '1' || entry->d_name[0] > '9') {
            continue;
        }

        (void) snprintf(path, sizeof(path), "/proc/%.200s/cmdline",
                        entry->d_name);

        if (sbx_read_at(AT_FDCWD, path, text, sizeof(text)) <= 0
            || strncmp(text, "sandbox-init", 12) != 0)
        {
            continue;
        }

        (void) snprintf(path, sizeof(path), "/proc/%.200s/stat",
                        entry->d_name);

        if (sbx_read_at(AT_FDCWD, path, text, sizeof(text)) <= 0) {
            continue;
        }

        p = strrchr(text, ')');

        if (p != NULL && sscanf(p + 4, "%d", &parent) == 1
            && parent == keeper)
        {
            found = (pid_t) atoi(entry->d_name);
        }
    }

    if (proc != NULL) {
        (void) closedir(proc);
    }

    return found;
}


/* The highest descriptor of a process. */

static unsigned
highest(pid_t pid)
{
    DIR            *dir;
    char            path[64];
    unsigned        n;
    struct dirent  *entry;

    (void) snprintf(path, sizeof(path), "/proc/%d/fd", (int) pid);
    dir = opendir(path);
    n = 0;

    while (dir != NULL && (entry = readdir(dir)) != NULL) {
        if ((unsigned) atoi(entry->d_name) > n) {
            n = (unsigned) atoi(entry->d_name);
        }
    }

    if (dir != NULL) {
        (void) closedir(dir);
    }

    return n;
}


static test_answer_t *
create(test_broker_t *t, uint64_t disk)
{
    sbx_create_t  body;

    test_create_body(&body);
    body.limits.disk = disk;

    return test_answer(test_create_send(t->control, "acme", &body, -1));
}


static void
unmade(test_broker_t *t, const char *what)
{
    test_answer_t  *a;

    a = create(t, 8 * MB);
    is_int(a->error.code, SBX_E_UNAVAILABLE, "none can be made");
    ok(a->error.retry_after > 0, "now");
    ok(strstr(a->error.text, what) != NULL, "%s", a->error.text);

    a = test_answer(test_call(t->control, SBX_OP_HEALTH, "", ""));
    ok(!a->health.ok && strstr(a->health.text, what) != NULL
       && a->health.sessions == 1, "health says why: %s", a->health.text);
}


/* Without being told to. */

static void
made_again(test_broker_t *t)
{
    int             i;
    char            id[64];
    test_answer_t  *a;

    a = create(t, 8 * MB);

    for (i = 0; a->last != SBX_F_END && i < TEST_WAIT / 50; i++) {
        (void) poll(NULL, 0, 50);
        a = create(t, 8 * MB);
    }

    ok(a->last == SBX_F_END, "sessions are made again");
    (void) strcpy(id, a->session.id);
    ok(test_destroy(t, id), "and end");
    a = test_answer(test_call(t->control, SBX_OP_HEALTH, "", ""));
    is_int(a->health.ok, 1, "health is good");
}


/* What only creating needs is not there for a while. */

static void
test_lacking(void)
{
    char           id[64], init[8192];
    test_broker_t  t;

    test_open(&t, "lack");
    (void) snprintf(init, sizeof(init), "%s/sandbox-init", t.helpers);
    helpers(&t);
    is_int(test_start(&t), 0, "a broker runs");
    test_create(&t, "acme", id);

    replace(&t, "sandbox-init", NULL);
    ok(restart(&t) > 0, "another takes its place, and lacks a program");
    ok(test_alive(&t, id), "the session is adopted");
    unmade(&t, "sandbox-init");

    ok(tell(&t) != 0, "a reload is told");
    ok(test_alive(&t, id), "the session goes on");
    ok(restart(&t) > 0 && test_alive(&t, id), "over one more");

    replace(&t, "sandbox-init", init);
    made_again(&t);
    ok(test_alive(&t, id), "the session is still there");
    ok(test_destroy(&t, id), "and can be ended");
    test_close(&t);
}


/* Mounts a disk of its own there. */

static void
disk(const char *path, const char *options)
{
    if (mkdir(path, 0755) == -1
        || mount("disk", path, "tmpfs", 0, options) == -1)
    {
        test_die("mount");
    }
}


static void
fill(const char *path)
{
    int    fd;
    off_t  size, step;

    fd = open(path, O_WRONLY|O_CREAT|O_CLOEXEC, 0600);
    size = 0;

    for (step = 1 << 20; step >= 4096; step /= 2) {
        while (fallocate(fd, 0, size, step) == 0) {
            size += step;
        }
    }

    is_int(errno, ENOSPC, "a disk is full");
    (void) close(fd);
}


/* All ends, and the disk with it. */

static void
end(test_broker_t *t, const char *path)
{
    pid_t  broker, keeper;

    broker = test_pid(t, "broker.pid");
    keeper = test_pid(t, "keeper.pid");
    (void) close(t->control);
    t->control = -1;
    ok(test_await_end(keeper) == 0 && test_await_end(broker) == 0,
       "all ends");
    is_int(umount(path), 0, "and nothing uses the disk");
    test_close(t);
}


/* The disk is full, and the kind of disk was for the broker to choose. */

static void
test_full(void)
{
    char            id[64], path[512], file[600];
    sbx_enforce_t   before;
    test_broker_t   t;
    test_answer_t  *a;

    test_open(&t, "full");
    (void) snprintf(path, sizeof(path), "%s/disk", t.dir);
    (void) snprintf(file, sizeof(file), "%s/fill", path);
    disk(path, "size=192m,mode=755");
    t.config.storage = SBX_STORAGE_AUTO;
    (void) strcpy(t.config.storage_dir, path);
    is_int(test_start(&t), 0, "a broker runs");
    a = create(&t, 8 * MB);
    before = (sbx_enforce_t) a->session.enforcement.disk;
    (void) strcpy(id, a->session.id);

    if (before != SBX_BY_IMAGE) {
        skip("no images on a tmpfs", "a disk that is full");

    } else {
        fill(file);
        ok(restart(&t) > 0 && test_alive(&t, id), "the session is adopted");
        a = create(&t, 8 * MB);
        is_int(a->error.code, SBX_E_CAPACITY, "there is no room for another");

        (void) unlink(file);
        a = create(&t, 8 * MB);
        is_int(a->session.enforcement.disk, before,
               "and then one as the first one");
        ok(test_destroy(&t, a->session.id), "it ends");
    }

    ok(test_destroy(&t, id), "the first one too");
    end(&t, path);
}


/* A broker that is started again reserves commands' numbers for each session,
 * on a disk that has no room for them. */

static void
test_numbers(void)
{
    char                id[64], file[8192];
    sbx_call_t          head;
    test_broker_t       t;
    test_answer_t      *a;
    sbx_exec_limits_t   limits;

    test_open(&t, "numbers");
    (void) snprintf(file, sizeof(file), "%s/fill", t.state);
    disk(t.state, "size=64m,mode=755");
    t.config.storage = SBX_STORAGE_TMPFS;
    is_int(test_start(&t), 0, "a broker runs");
    test_create(&t, "acme", id);
    fill(file);

    ok(restart(&t) > 0 && test_alive(&t, id), "the session is adopted");
    memset(&limits, 0xff, sizeof(limits));
    test_head(&head, SBX_OP_EXEC, id, "acme", "alice", sizeof(limits));
    a = test_answer(test_send(t.control, &head, &limits, sizeof(limits), -1));
    is_int(a->error.code, SBX_E_UNAVAILABLE, "it can run no command");
    ok(strstr(a->error.text, "numbers") != NULL, "%s", a->error.text);

    ok(restart(&t) > 0 && test_alive(&t, id), "but is adopted once more");
    (void) unlink(file);
    made_again(&t);
    ok(test_destroy(&t, id), "and ends");
    end(&t, t.state);
}


/* Descriptors are short at each step of a create. */

static void
test_short(void)
{
    char            id[64];
    pid_t           broker;
    unsigned        made, n, odd, refused, top;
    test_answer_t  *a;
    test_broker_t   t;
    struct rlimit   few, usual;

    test_open(&t, "short");
    is_int(test_start(&t), 0, "a broker runs");
    test_create(&t, "acme", id);
    broker = test_pid(&t, "broker.pid");
    (void) prlimit(broker, RLIMIT_NOFILE, NULL, &usual);
    made = 0;
    odd = 0;
    refused = 0;
    top = highest(broker);
    few = usual;

    for (n = top - 4; n < top + 400 && made == 0; n++) {
        few.rlim_cur = n;
        (void) prlimit(broker, RLIMIT_NOFILE, &few, NULL);
        a = create(&t, 8 * MB);
        (void) prlimit(broker, RLIMIT_NOFILE, &usual, NULL);

        if (a->last == SBX_F_END) {
            made++;
            (void) test_destroy(&t, a->session.id);

        } else if (a->last == SBX_F_ERROR) {
            refused++;

            if (a->error.code != SBX_E_UNAVAILABLE
                || a->error.retry_after == 0)
            {
                odd++;
                printf("# %u: %u, %s (%d)\n", n, a->error.code,
                       a->error.text, a->error.err);
            }
        }
    }

    ok(refused > 2, "descriptors are short at %u steps", refused);
    is_int(odd, 0, "it is said to try again at each of them");
    ok(made == 1, "and with enough of them it is made");
    ok(test_alive(&t, id), "others live");
    ok(test_destroy(&t, id), "and end");
    test_close(&t);
}


/* An egress that is started before there is a session again. */

static void
test_slots(void)
{
    char           id[64];
    test_broker_t  t;

    test_open(&t, "slots");
    helpers(&t);
    replace(&t, "sandbox-egress", "/bin/false");
    is_int(test_start(&t), 0, "a broker runs");
    test_create(&t, "acme", id);

    t.config.egress[0] = SBX_EGRESS_ALLOW;
    (void) strcpy(t.config.egress + 1, "*");
    t.config.egress_size = 3;
    is_int(tell(&t), 0, "configuration grants a network");
    ok(logged(&t, "the egress is killed: it has closed")
       || logged(&t, "the egress has ended"),
       "by an egress that does not live");

    ok(restart(&t) > 0, "the next broker");
    ok(test_alive(&t, id), "has the session, whose ids it gave to nobody");
    ok(!test_logged(&t, "its ids are not ours"), "nor tried");
    ok(test_destroy(&t, id), "it can be ended");
    test_close(&t);
}


/* What cannot be read is ended, and has its ids until it is. */

static void
test_unread(void)
{
    char           id[64], path[8192];
    pid_t          init;
    test_broker_t  t;

    test_open(&t, "unread");
    is_int(test_start(&t), 0, "a broker runs");
    test_create(&t, "acme", id);
    init = init_of(&t);
    ok(init > 0, "the session has a first process");
    (void) snprintf(path, sizeof(path), "%s/sessions/%s/record", t.state, id);
    ok(unlink(path) == 0, "its record is lost");
    ok(restart(&t) > 0 && !test_alive(&t, id), "it is not adopted");
    ok(test_await_end(init) == 0, "but ended");
    test_create(&t, "acme", id);
    ok(test_destroy(&t, id), "and others are made");
    test_close(&t);
}


/* Root has more descriptors on their way than the keeper might send. */

static void
test_flight(void)
{
    int             fds[200], i, pair[2];
    char            id[64];
    pid_t           keeper;
    test_broker_t   t;
    struct rlimit   few;

    test_open(&t, "flight");
    is_int(test_start(&t), 0, "a broker runs");
    test_create(&t, "acme", id);
    keeper = test_pid(&t, "keeper.pid");

    few.rlim_cur = 256;
    few.rlim_max = 256;
    is_int(prlimit(keeper, RLIMIT_NOFILE, &few, NULL), 0,
           "the keeper has few descriptors");

    if (socketpair(AF_UNIX, SOCK_SEQPACKET|SOCK_CLOEXEC, 0, pair) == -1) {
        test_die("socketpair");
    }

    for (i = 0; i < 200; i++) {
        fds[i] = pair[1];
    }

    for (i = 0; i < 4; i++) {
        (void) sbx_wire_send(pair[0], "x", 1, fds, 200, MSG_DONTWAIT);
    }

    ok(i == 4, "and root 800 of them on their way");
    ok(restart(&t) > 0, "another broker");
    ok(test_alive(&t, id), "has the session all the same");
    ok(test_destroy(&t, id), "which can be ended");
    (void) close(pair[0]);
    (void) close(pair[1]);
    test_close(&t);
}


/*
 * A first process that obeys nobody, stopped in its place, and no broker that
 * would end it: the keeper does.
 */

static void
test_left(void)
{
    char           id[64];
    pid_t          broker, init, keeper;
    unsigned       i, before;
    test_broker_t  t;
    struct rlimit  few;

    test_open(&t, "left");
    is_int(test_start(&t), 0, "a broker runs");
    broker = test_pid(&t, "broker.pid");
    keeper = test_pid(&t, "keeper.pid");
    before = highest(keeper);
    test_create(&t, "acme", id);
    init = init_of(&t);

    for (i = 0; i < 1000 && highest(keeper) < before + SBX_LINK_FDS; i++) {
        (void) poll(NULL, 0, 10);
    }

    ok(i < 1000, "the keeper has what is of it");
    ok(tap_kill(init, SIGSTOP) == 0, "a first process is stopped");

    /* enough to start one with, and too few for it to work */

    few.rlim_cur = highest(keeper) + 5;
    few.rlim_max = few.rlim_cur;
    is_int(prlimit(keeper, RLIMIT_NOFILE, &few, NULL), 0,
           "no broker can be started");

    ok(tap_kill(broker, SIGSTOP) == 0 && tap_kill(keeper, SIGTERM) == 0
       && logged(&t, "everything ends") && tap_kill(broker, SIGKILL) == 0,
       "all is to end, and the broker is killed");
    ok(test_await_end(keeper) == 0, "the keeper ends");
    ok(!test_logged(&t, "adopted"), "no broker has come to it");
    ok(test_await_end(init) == 0, "the first process is gone");

    (void) tap_kill(init, SIGKILL);
    (void) close(t.control);
    is_int(test_start(&t), 0, "the next start sweeps");
    test_close(&t);
}


int
main(void)
{
    test_lacking();
    test_full();
    test_numbers();
    test_slots();
    test_unread();
    test_flight();
    test_short();
    test_left();

    return done_testing();
}
