/*
 * A sandbox-broker of the test's own, in a directory of its own, reached as
 * a server reaches it: through the client library and the wire.
 */

#ifndef SBX_BROKER_TEST_H
#define SBX_BROKER_TEST_H

#include "sandbox_client.h"
#include "sandbox_util.h"
#include "wire.h"
#include "tap.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>


/* No test uses all of it. */
#pragma GCC diagnostic ignored "-Wunused-function"

#define TEST_WAIT   20000     /* ms, for anything */


typedef struct {
    char            dir[256];         /* everything of the test is below */
    char            state[4096];
    char            log[4096];
    char            helpers[4096];
    sbx_config_t    config;
    sbx_client_t    client;
    sbx_hello_t     hello;
    sbx_error_t     error;
    int             control;
} test_broker_t;

/* The frames of one answer, read to its last. */

typedef struct {
    uint16_t          last;           /* type of the last frame; 0: EOF */
    sbx_f_error_t     error;
    sbx_f_end_t       end;
    sbx_f_exit_t      exit;
    sbx_f_health_t    health;
    sbx_f_metrics_t   metrics;
    sbx_f_session_t   session;        /* the newest */
    char              meta[SBX_META_MAX + 1];
    size_t            meta_size;
    unsigned          sessions;
    unsigned          frames;
    unsigned          accepted;
    uint64_t          seqs[4096];
} test_answer_t;


static void
test_die(const char *what)
{
    printf("Bail out! %s: %s\n", what, strerror(errno));
    exit(1);
}


static void
test_open(test_broker_t *t, const char *name)
{
    const char         *build;
    const sbx_limit_t  *limit;

    memset(t, 0, sizeof(test_broker_t));
    build = getenv("SANDBOX_BUILD");

    if (build == NULL) {
        build = "build";
    }

    if (realpath(build, t->helpers) == NULL) {
        test_die("SANDBOX_BUILD");
    }

    (void) snprintf(t->dir, sizeof(t->dir), "/tmp/sandbox-%s-XXXXXX", name);

    if (mkdtemp(t->dir) == NULL) {
        test_die("mkdtemp");
    }

    (void) snprintf(t->state, sizeof(t->state), "%s/state", t->dir);
    (void) snprintf(t->log, sizeof(t->log), "%s/error.log", t->dir);

    t->config.uid_first = 1073741824;
    t->config.uid_count = 1073741824;
    t->config.require_isolation = 1;

    for (limit = sbx_limit_table; limit->name != NULL; limit++) {
        *sbx_limit_field(&t->config.max, limit) = limit->cap;
    }

    t->client.state_dir = t->state;
    t->client.helper_dir = t->helpers;
    t->client.log_path = t->log;
    t->client.config = &t->config;
    t->client.spawn = 1;
    t->client.timeout_ms = TEST_WAIT;
    t->control = -1;
}


static int
test_start(test_broker_t *t)
{
    return sbx_client_start(&t->client, &t->control, &t->hello, &t->error);
}


/* The end of a process that is not a child. 0: it is gone. */

static int
test_await_end(pid_t pid)
{
    int            rc;
    struct pollfd  pfd;

    if (pid <= 0) {
        return -1;
    }

    pfd.fd = (int) syscall(SYS_pidfd_open, pid, 0);

    if (pfd.fd == -1) {
        return errno == ESRCH ? 0 : -1;
    }

    pfd.events = POLLIN;
    rc = poll(&pfd, 1, TEST_WAIT);
    (void) close(pfd.fd);

    return rc == 1 ? 0 : -1;
}


static pid_t
test_pid(test_broker_t *t, const char *name)
{
    int   dir;
    char  text[32];

    dir = open(t->state, O_RDONLY|O_DIRECTORY|O_CLOEXEC);

    if (dir == -1) {
        return -1;
    }

    if (sbx_read_at(dir, name, text, sizeof(text)) <= 0) {
        text[0] = '\0';
    }

    (void) close(dir);

    return text[0] != '\0' ? (pid_t) atoi(text) : -1;
}


/* Until the pid file names somebody else. */

static pid_t
test_await_successor(test_broker_t *t, const char *name, pid_t old)
{
    int    i;
    pid_t  pid;

    for (i = 0; i < TEST_WAIT / 5; i++) {
        pid = test_pid(t, name);

        if (pid > 0 && pid != old) {
            return pid;
        }

        (void) poll(NULL, 0, 5);
    }

    return -1;
}


static int
test_exists(const char *dir, const char *name)
{
    char         path[8192];
    struct stat  st;

    (void) snprintf(path, sizeof(path), "%s/%s", dir, name);

    return lstat(path, &st) == 0;
}


static int
test_unlink(const char *path, const struct stat *st, int flag,
    struct FTW *ftw)
{
    (void) st;
    (void) flag;
    (void) ftw;

    return remove(path);
}


/* 1 if a line of the log holds text. */

static int
test_logged(test_broker_t *t, const char *text)
{
    int    found;
    char   line[4096];
    FILE  *log;

    log = fopen(t->log, "re");
    found = 0;

    if (log == NULL) {
        return 0;
    }

    while (!found && fgets(line, sizeof(line), log) != NULL) {
        found = strstr(line, text) != NULL;
    }

    (void) fclose(log);

    return found;
}


/* Hangs up, and looks whether anything stays. */

static void
test_close(test_broker_t *t)
{
    pid_t  broker, keeper;

    broker = test_pid(t, "broker.pid");
    keeper = test_pid(t, "keeper.pid");

    if (t->control != -1) {
        (void) close(t->control);
        t->control = -1;
    }

    if (keeper > 0) {
        ok(test_await_end(keeper) == 0 && test_await_end(broker) == 0,
           "keeper and broker end when the server is gone");
    }

    ok(!test_exists(t->state, "broker.sock")
       && !test_exists(t->state, "keeper.pid")
       && !test_exists(t->state, "broker.pid")
       && !test_exists(t->state, "sessions"),
       "no socket, pid file or session is left");
    ok(!test_logged(t, "[alert]") && !test_logged(t, "[emerg]")
       && !test_logged(t, "Sanitizer") && !test_logged(t, "runtime error"),
       "no alert, emerg or sanitizer line in the log");

    if (tap_failed != 0) {
        printf("# kept: %s\n", t->dir);
        return;
    }

    (void) nftw(t->dir, test_unlink, 16, FTW_DEPTH|FTW_PHYS);
}


/*
 * ---- calls ---------------------------------------------------------------
 */

static void
test_head(sbx_call_t *head, sbx_op_t op, const char *session,
    const char *tenant, const char *user, size_t body)
{
    memset(head, 0, sizeof(sbx_call_t));
    head->magic = SBX_WIRE_MAGIC;
    head->version = SBX_WIRE_VERSION;
    head->op = (uint16_t) op;
    head->size = (uint32_t) (sizeof(sbx_call_t) + body);
    (void) strcpy(head->request_id, "0123456789abcdef0123456789abcdef");
    (void) strcpy(head->session, session);
    (void) strcpy(head->tenant, tenant);
    (void) strcpy(head->user, user);
}


/* The worker's end of a call that was sent. */

static int
test_send(int control, const sbx_call_t *head, const void *body, size_t size,
    int blob)
{
    int      fds[2], pair[2];
    char     datagram[sizeof(sbx_call_t) + 4096];
    ssize_t  n;

    if (socketpair(AF_UNIX, SOCK_STREAM|SOCK_CLOEXEC, 0, pair) == -1) {
        test_die("socketpair");
    }

    memcpy(datagram, head, sizeof(sbx_call_t));

    if (size != 0) {
        memcpy(datagram + sizeof(sbx_call_t), body, size);
    }

    fds[0] = pair[1];
    fds[1] = blob;

    do {
        n = sbx_wire_send(control, datagram, sizeof(sbx_call_t) + size, fds,
                          blob == -1 ? 1 : 2, 0);
    } while (n == -1 && errno == EAGAIN && poll(NULL, 0, 5) == 0);

    (void) close(pair[1]);

    return pair[0];
}


static int
test_call(int control, sbx_op_t op, const char *session, const char *tenant)
{
    size_t       size;
    sbx_call_t   head;
    sbx_patch_t  none;

    /* what is asked for beside being resumed: nothing */

    memset(&none, 0, sizeof(none));
    size = op == SBX_OP_RESUME ? sizeof(none) : 0;
    test_head(&head, op, session, tenant, "", size);

    return test_send(control, &head, &none, size, -1);
}


static void
test_take(test_answer_t *a, const sbx_frame_t *frame, const uint8_t *p)
{
    a->frames++;

    switch (frame->type) {

    case SBX_F_ERROR:
        memcpy(&a->error, p, sizeof(a->error));
        a->last = frame->type;
        break;

    case SBX_F_END:
        memcpy(&a->end, p, sizeof(a->end));
        a->last = frame->type;
        break;

    case SBX_F_EXIT:
        memcpy(&a->exit, p, sizeof(a->exit));
        a->last = frame->type;
        break;

    case SBX_F_ACCEPTED:
        a->accepted++;
        break;

    case SBX_F_HEALTH:
        memcpy(&a->health, p, sizeof(a->health));
        break;

    case SBX_F_METRICS:
        memcpy(&a->metrics, p, sizeof(a->metrics));
        break;

    case SBX_F_SESSION:
        memcpy(&a->session, p, sizeof(a->session));
        a->meta_size = 0;

        if (a->sessions < sbx_nelts(a->seqs)) {
            a->seqs[a->sessions] = a->session.seq;
        }

        a->sessions++;
        break;

    case SBX_F_META:
        if (a->meta_size + frame->length < sizeof(a->meta)) {
            memcpy(a->meta + a->meta_size, p, frame->length);
            a->meta_size += frame->length;
        }

        break;
    }
}


/* Reads a whole answer and closes the call. */

static test_answer_t *
test_answer(int fd)
{
    ssize_t                n;
    sbx_wire_t             w;
    sbx_frame_t            frame;
    struct pollfd          pfd;
    const uint8_t         *payload;

    static test_answer_t   a;
    static uint8_t         buf[sizeof(sbx_frame_t) + SBX_FRAME_MAX];

    memset(&a, 0, sizeof(test_answer_t));
    sbx_wire_init(&w, buf, sizeof(buf));
    pfd.fd = fd;
    pfd.events = POLLIN;

    while (a.last == 0) {
        if (poll(&pfd, 1, TEST_WAIT) != 1) {
            printf("# no answer in time\n");
            break;
        }

        n = read(fd, buf + w.end, w.size - w.end);

        if (n <= 0) {
            break;
        }

        w.end += (size_t) n;

        while (a.last == 0 && sbx_wire_next(&w, &frame, &payload) == 1) {
            test_take(&a, &frame, payload);
        }
    }

    (void) close(fd);

    return &a;
}


static void
test_create_body(sbx_create_t *create)
{
    const sbx_limit_t  *limit;

    memset(create, 0, sizeof(sbx_create_t));
    (void) strcpy(create->template, "base");
    create->capabilities = SBX_CAP_SHELL|SBX_CAP_FILES;

    for (limit = sbx_limit_table; limit->name != NULL; limit++) {
        *sbx_limit_field(&create->limits, limit) = limit->fallback;
    }

    create->limits.memory = 64 * 1024 * 1024;
    create->limits.disk = 8 * 1024 * 1024;
    create->limits.processes = 16;
}


static int
test_blob(sbx_create_t *create, const char *meta, const char *env,
    size_t env_size)
{
    int  fd;

    fd = memfd_create("blob", MFD_CLOEXEC|MFD_ALLOW_SEALING);
    create->meta_size = (uint32_t) strlen(meta);
    create->env_size = (uint32_t) env_size;

    if (fd == -1 || sbx_write_all(fd, meta, strlen(meta)) == -1
        || sbx_write_all(fd, env, env_size) == -1
        || fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE|F_SEAL_SHRINK|F_SEAL_GROW)
           == -1)
    {
        test_die("memfd");
    }

    return fd;
}


static int
test_create_send(int control, const char *tenant, const sbx_create_t *create,
    int blob)
{
    sbx_call_t  head;

    test_head(&head, SBX_OP_CREATE, "", tenant, "alice",
              sizeof(sbx_create_t));

    return test_send(control, &head, create, sizeof(sbx_create_t), blob);
}


/* A plain session; its id, "" if it could not be made. */

static void
test_create(test_broker_t *t, const char *tenant, char *id)
{
    sbx_create_t    create;
    test_answer_t  *a;

    test_create_body(&create);
    a = test_answer(test_create_send(t->control, tenant, &create, -1));

    if (a->last != SBX_F_END) {
        printf("# create: %s (%d)\n", a->error.text, a->error.err);
    }

    (void) strcpy(id, a->last == SBX_F_END ? a->session.id : "");
}


/* 1 if the session answers to its owner. */

static int
test_alive(test_broker_t *t, const char *id)
{
    return test_answer(test_call(t->control, SBX_OP_GET, id, ""))->last
           == SBX_F_END;
}


static int
test_destroy(test_broker_t *t, const char *id)
{
    return test_answer(test_call(t->control, SBX_OP_DESTROY, id, ""))->last
           == SBX_F_END;
}


/* A frame on a call's own socket. */

static void
test_frame(int fd, sbx_frame_type_t type, const void *payload, size_t size)
{
    uint8_t  buf[sizeof(sbx_frame_t) + SBX_FRAME_MAX];
    size_t   n;

    n = sbx_wire_header(buf, type, size);

    if (size != 0) {
        memcpy(buf + n, payload, size);
    }

    (void) send(fd, buf, n + size, MSG_NOSIGNAL);
}


/* Takes frames until that is all. */

static void
test_follow(int fd, void (*take)(const sbx_frame_t *f, const uint8_t *p),
    int (*all)(const char *text), const char *text)
{
    ssize_t         n;
    sbx_wire_t      w;
    sbx_frame_t     f;
    struct pollfd   pfd;
    const uint8_t  *p;

    static uint8_t  buf[sizeof(sbx_frame_t) + SBX_FRAME_MAX];

    sbx_wire_init(&w, buf, sizeof(buf));
    pfd.fd = fd;
    pfd.events = POLLIN;

    while (!all(text)) {
        if (poll(&pfd, 1, TEST_WAIT) != 1) {
            printf("# no answer in time\n");
            return;
        }

        n = read(fd, buf + w.end, w.size - w.end);

        if (n <= 0) {
            return;
        }

        w.end += (size_t) n;

        while (sbx_wire_next(&w, &f, &p) == 1) {
            take(&f, p);
        }
    }
}


#endif
