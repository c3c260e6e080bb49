/*
 * Every kind of call that a worker may send, what follows its header, and
 * what can be wrong with it.  The kinds are the wire's own enum: a new one
 * does not compile here until it has its place.
 */

#ifndef ROGUE_WORKER_H
#define ROGUE_WORKER_H

#include "broker_test.h"

#include <dirent.h>
#include <stddef.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/un.h>


#define ROGUE_OPS       256       /* of which the wire knows a few */
#define ROGUE_BODY_MAX  4000      /* of a call; a configuration has more */
#define ROGUE_FDS_MAX   8
#define ROGUE_GROWTH    (16 * 1024)   /* KB that a broker may grow */


typedef enum {
    ROGUE_HELLO,                  /* no call on a connection that has begun */
    ROGUE_ANSWERED,               /* by the broker */
    ROGUE_ADMIN,                  /* the same, of the whole node */
    ROGUE_HANDED,                 /* on to a session */
    ROGUE_INNER,                  /* said by the broker alone */
    ROGUE_NONE                    /* of no meaning */
} rogue_class_t;

typedef struct {
    const char     *name;
    rogue_class_t   class;
    size_t          body;
} rogue_op_t;

typedef struct {
    const char  *name;
    sbx_op_t     op;              /* whose body it is in; 0: the header's */
    size_t       offset;
    size_t       size;
} rogue_string_t;


#define ROGUE_OP(op, class, body)                                            \
    case op: return (rogue_op_t) { #op, class, body }

/* No default: the compiler tells what is missing. */

static rogue_op_t
rogue_op(sbx_op_t op)
{
    switch (op) {
    ROGUE_OP(SBX_OP_HELLO_CONTROL, ROGUE_HELLO, 0);
    ROGUE_OP(SBX_OP_HELLO_CONFIG, ROGUE_HELLO, sizeof(sbx_config_t));
    ROGUE_OP(SBX_OP_HELLO_WATCH, ROGUE_HELLO, 0);
    ROGUE_OP(SBX_OP_HEALTH, ROGUE_ANSWERED, 0);
    ROGUE_OP(SBX_OP_DOCTOR, ROGUE_ANSWERED, 0);
    ROGUE_OP(SBX_OP_CAPABILITIES, ROGUE_ANSWERED, 0);
    ROGUE_OP(SBX_OP_TEMPLATES, ROGUE_ANSWERED, 0);
    ROGUE_OP(SBX_OP_CREATE, ROGUE_ANSWERED, sizeof(sbx_create_t));
    ROGUE_OP(SBX_OP_GET, ROGUE_ANSWERED, 0);
    ROGUE_OP(SBX_OP_LIST, ROGUE_ANSWERED, sizeof(sbx_list_t));
    ROGUE_OP(SBX_OP_DESTROY, ROGUE_ANSWERED, 0);
    ROGUE_OP(SBX_OP_PATCH, ROGUE_ANSWERED, sizeof(sbx_patch_t));
    ROGUE_OP(SBX_OP_PAUSE, ROGUE_ANSWERED, 0);
    ROGUE_OP(SBX_OP_RESUME, ROGUE_ANSWERED, sizeof(sbx_patch_t));
    ROGUE_OP(SBX_OP_END, ROGUE_ANSWERED, sizeof(sbx_end_t));
    ROGUE_OP(SBX_OP_SAMPLES, ROGUE_ANSWERED, sizeof(sbx_samples_t));
    ROGUE_OP(SBX_OP_QUOTA_GET, ROGUE_ADMIN, 0);
    ROGUE_OP(SBX_OP_QUOTA_SET, ROGUE_ADMIN, sizeof(sbx_quota_set_t));
    ROGUE_OP(SBX_OP_SETTINGS_GET, ROGUE_ADMIN, 0);
    ROGUE_OP(SBX_OP_SETTINGS_SET, ROGUE_ADMIN, sizeof(sbx_settings_set_t));
    ROGUE_OP(SBX_OP_DRAIN, ROGUE_ADMIN, sizeof(sbx_drain_t));
    ROGUE_OP(SBX_OP_DESTROY_ALL, ROGUE_ADMIN, sizeof(sbx_destroy_all_t));
    ROGUE_OP(SBX_OP_QUOTA_LIST, ROGUE_ADMIN, sizeof(sbx_quota_list_t));
    ROGUE_OP(SBX_OP_METRICS, ROGUE_ANSWERED, 0);
    ROGUE_OP(SBX_OP_REFUSALS, ROGUE_ANSWERED, 0);
    ROGUE_OP(SBX_OP_EXEC, ROGUE_HANDED, sizeof(sbx_exec_limits_t));
    ROGUE_OP(SBX_OP_FILE, ROGUE_HANDED, 0);
    ROGUE_OP(SBX_OP_PROCESS, ROGUE_HANDED, 0);
    ROGUE_OP(SBX_OP_PORT, ROGUE_HANDED, 0);
    ROGUE_OP(SBX_OP_CANCEL, ROGUE_HANDED, 0);
    ROGUE_OP(SBX_OP_CODE, ROGUE_HANDED, 0);
    ROGUE_OP(SBX_OP_LOG, ROGUE_HANDED, 0);
    ROGUE_OP(SBX_OP_ENV, ROGUE_HANDED, 0);
    ROGUE_OP(SBX_OP_CUT, ROGUE_INNER, 0);
    ROGUE_OP(SBX_OP_TERMINATE, ROGUE_INNER, 0);
    ROGUE_OP(SBX_OP_FREEZE, ROGUE_INNER, 0);
    ROGUE_OP(SBX_OP_THAW, ROGUE_INNER, 0);
    ROGUE_OP(SBX_OP_BUSY, ROGUE_INNER, 0);
    ROGUE_OP(SBX_OP_GROUP, ROGUE_INNER, 0);
    ROGUE_OP(SBX_OP_WARM, ROGUE_INNER, 0);
    ROGUE_OP(SBX_OP_HAND_OVER, ROGUE_INNER, 0);
    ROGUE_OP(SBX_OP_NETWORK, ROGUE_INNER, 0);
    ROGUE_OP(SBX_OP_COMMANDS, ROGUE_INNER, 0);
    }

    return (rogue_op_t) { "unknown", ROGUE_NONE, 0 };
}


#define ROGUE_STRING(op, type, field)                                        \
    { #type "." #field, op, offsetof(type, field),                           \
      sizeof(((type *) 0)->field) }

static const rogue_string_t  rogue_strings[] = {
    ROGUE_STRING(0, sbx_call_t, request_id),
    ROGUE_STRING(0, sbx_call_t, session),
    ROGUE_STRING(0, sbx_call_t, tenant),
    ROGUE_STRING(0, sbx_call_t, user),
    ROGUE_STRING(SBX_OP_CREATE, sbx_create_t, template),
    ROGUE_STRING(SBX_OP_CREATE, sbx_create_t, key),
    ROGUE_STRING(SBX_OP_LIST, sbx_list_t, template),
    ROGUE_STRING(SBX_OP_QUOTA_SET, sbx_quota_set_t, by),
    ROGUE_STRING(SBX_OP_SETTINGS_SET, sbx_settings_set_t, by),
    ROGUE_STRING(SBX_OP_DRAIN, sbx_drain_t, by),
    ROGUE_STRING(SBX_OP_DESTROY_ALL, sbx_destroy_all_t, by),
    ROGUE_STRING(SBX_OP_QUOTA_LIST, sbx_quota_list_t, tenant),
    ROGUE_STRING(SBX_OP_QUOTA_LIST, sbx_quota_list_t, user)
};


/*
 * ---- descriptors that are no call's --------------------------------------
 */

typedef enum {
    ROGUE_FD_STREAM,              /* good: one end of a pair */
    ROGUE_FD_SEQPACKET,
    ROGUE_FD_DGRAM,
    ROGUE_FD_TCP,
    ROGUE_FD_PIPE,
    ROGUE_FD_PIPE_WRITE,
    ROGUE_FD_DIRECTORY,
    ROGUE_FD_FILE,
    ROGUE_FD_PATH,
    ROGUE_FD_NULL,
    ROGUE_FD_MEMFD,
    ROGUE_FD_EVENT,
    ROGUE_FD_EPOLL,
    ROGUE_FD_CONTROL,             /* the broker's own connection */
    ROGUE_FD_CLOSED,              /* a pair whose other end is closed */
    ROGUE_FD_UNMET,               /* a stream socket that is not connected */
    ROGUE_FD_LISTENS,             /* one that others connect to */
    ROGUE_FD_MAX
} rogue_fd_t;

static const char  *rogue_fd_names[] = {
    "a stream socket", "a packet socket", "a datagram socket",
    "a TCP socket", "a pipe", "a pipe's other end", "a directory",
    "a file", "an O_PATH descriptor", "/dev/null", "a memfd", "an eventfd",
    "an epoll", "the control connection", "one end of a pair alone",
    "a socket that is not connected", "a socket that listens"
};

_Static_assert(sbx_nelts(rogue_fd_names) == ROGUE_FD_MAX,
               "each descriptor has a name");


static int
rogue_pair(int type, int *other)
{
    int  pair[2];

    if (socketpair(AF_UNIX, type|SOCK_CLOEXEC, 0, pair) == -1) {
        test_die("socketpair");
    }

    if (other != NULL) {
        *other = pair[1];

    } else {
        (void) close(pair[1]);
    }

    return pair[0];
}


/* other: our end of it, or -1. */

static int
rogue_fd(test_broker_t *t, rogue_fd_t kind, int *other)
{
    int                 fd, pipes[2];
    struct sockaddr_un  addr;

    *other = -1;
    fd = -1;

    switch (kind) {

    case ROGUE_FD_STREAM:
        fd = rogue_pair(SOCK_STREAM, other);
        break;

    case ROGUE_FD_SEQPACKET:
        fd = rogue_pair(SOCK_SEQPACKET, other);
        break;

    case ROGUE_FD_DGRAM:
        fd = rogue_pair(SOCK_DGRAM, other);
        break;

    case ROGUE_FD_TCP:
        fd = socket(AF_INET, SOCK_STREAM|SOCK_CLOEXEC, 0);
        break;

    case ROGUE_FD_PIPE:
    case ROGUE_FD_PIPE_WRITE:
        if (pipe2(pipes, O_CLOEXEC) == -1) {
            test_die("pipe2");
        }

        fd = pipes[kind == ROGUE_FD_PIPE_WRITE];
        *other = pipes[kind == ROGUE_FD_PIPE];
        break;

    case ROGUE_FD_DIRECTORY:
        fd = open("/tmp", O_RDONLY|O_DIRECTORY|O_CLOEXEC);
        break;

    case ROGUE_FD_FILE:
        fd = open(t->log, O_RDONLY|O_CLOEXEC);
        break;

    case ROGUE_FD_PATH:
        fd = open(t->state, O_PATH|O_CLOEXEC);
        break;

    case ROGUE_FD_NULL:
        fd = open("/dev/null", O_RDWR|O_CLOEXEC);
        break;

    case ROGUE_FD_MEMFD:
        fd = memfd_create("rogue", MFD_CLOEXEC|MFD_ALLOW_SEALING);
        break;

    case ROGUE_FD_EVENT:
        fd = eventfd(0, EFD_CLOEXEC);
        break;

    case ROGUE_FD_EPOLL:
        fd = epoll_create1(EPOLL_CLOEXEC);
        break;

    case ROGUE_FD_CONTROL:
        fd = fcntl(t->control, F_DUPFD_CLOEXEC, 0);
        break;

    case ROGUE_FD_CLOSED:
        fd = rogue_pair(SOCK_STREAM, NULL);
        break;

    case ROGUE_FD_UNMET:
        fd = socket(AF_UNIX, SOCK_STREAM|SOCK_CLOEXEC, 0);
        break;

    case ROGUE_FD_LISTENS:
        memset(&addr, 0, sizeof(addr));
        addr.sun_family = AF_UNIX;
        (void) snprintf(addr.sun_path, sizeof(addr.sun_path), "%.80s/door",
                        t->dir);
        (void) unlink(addr.sun_path);
        fd = socket(AF_UNIX, SOCK_STREAM|SOCK_CLOEXEC, 0);

        if (bind(fd, (struct sockaddr *) &addr, sizeof(addr)) == -1
            || listen(fd, 1) == -1)
        {
            test_die("listen");
        }

        break;

    case ROGUE_FD_MAX:
        break;
    }

    if (fd == -1) {
        test_die(rogue_fd_names[kind]);
    }

    return fd;
}


/*
 * ---- what the broker holds -----------------------------------------------
 */

static unsigned
rogue_files(pid_t pid)
{
    DIR       *dir;
    char       path[64];
    unsigned   n;

    (void) snprintf(path, sizeof(path), "/proc/%d/fd", (int) pid);
    dir = opendir(path);

    for (n = 0; dir != NULL && readdir(dir) != NULL; n++) { /* void */ }

    if (dir != NULL) {
        (void) closedir(dir);
    }

    return n;
}


static long
rogue_memory(pid_t pid)
{
    long   kb;
    char   path[64], line[256];
    FILE  *f;

    (void) snprintf(path, sizeof(path), "/proc/%d/status", (int) pid);
    f = fopen(path, "re");
    kb = -1;

    while (f != NULL && fgets(line, sizeof(line), f) != NULL) {
        if (sscanf(line, "VmRSS: %ld", &kb) == 1) {
            break;
        }
    }

    if (f != NULL) {
        (void) fclose(f);
    }

    return kb;
}


/*
 * ---- the broker, its sessions, and what is known of them -----------------
 */

typedef struct {
    uint8_t         bytes[sizeof(sbx_call_t) + sizeof(sbx_config_t) + 512];
    size_t          size;         /* what is sent */
} rogue_datagram_t;

typedef enum {
    ROGUE_DROPPED,                /* the end without a word */
    ROGUE_REFUSED,
    ROGUE_DONE,
    ROGUE_SILENT                  /* neither, in time */
} rogue_result_t;


static test_broker_t    t;
static char             other[64];    /* nobody may touch it */
static char             victim[64];   /* its own tenant's calls may */
static sbx_f_session_t  known[2];     /* as they were */
static pid_t            broker;
static long             settle_memory;
static unsigned         files;
static uint32_t         code;         /* of the last that was refused */
static char             made[64];     /* the session that was made last */
static const char      *last;         /* what was sent, for diagnosis */


/*
 * ---- a call, and what becomes of it --------------------------------------
 */

static void
compose(rogue_datagram_t *d, sbx_op_t op, const char *session)
{
    rogue_op_t          row;
    sbx_call_t          head;
    sbx_create_t        create;
    sbx_patch_t         patch;
    sbx_exec_limits_t   limits;

    memset(d, 0, sizeof(*d));
    row = rogue_op(op);
    test_head(&head, op, session, session == victim ? "acme" : "", "",
              row.body);
    d->size = sizeof(head) + row.body;
    memcpy(d->bytes, &head, sizeof(head));

    /* what is left alone is as it should be */

    switch ((int) op) {

    case SBX_OP_CREATE:
        test_create_body(&create);
        memcpy(d->bytes + sizeof(head), &create, sizeof(create));
        memcpy(((sbx_call_t *) (void *) d->bytes)->tenant, "acme", 5);
        memcpy(((sbx_call_t *) (void *) d->bytes)->user, "alice", 6);
        break;

    case SBX_OP_PATCH:
        memset(&patch, 0, sizeof(patch));
        patch.flags = SBX_PATCH_TIMEOUT;
        patch.timeout = 60000;
        memcpy(d->bytes + sizeof(head), &patch, sizeof(patch));
        break;

    case SBX_OP_EXEC:
        memset(&limits, 0xff, sizeof(limits));
        memcpy(d->bytes + sizeof(head), &limits, sizeof(limits));
        break;
    }
}


static void
post(const rogue_datagram_t *d, const int *fds, unsigned nfds)
{
    ssize_t  n;

    do {
        n = sbx_wire_send(t.control, d->bytes, d->size, fds, nfds, 0);
    } while (n == -1 && (errno == EAGAIN || errno == ETOOMANYREFS)
             && poll(NULL, 0, 1) == 0);

    if (n == -1) {
        test_die(last);
    }
}


static rogue_result_t
await(int fd, sbx_op_t op)
{
    ssize_t         n;
    sbx_wire_t      w;
    sbx_frame_t     f;
    struct pollfd   pfd;
    const uint8_t  *p;
    rogue_result_t  result;

    static uint8_t  buf[sizeof(sbx_frame_t) + SBX_FRAME_MAX];

    /* a session waits for what comes next */

    if (rogue_op(op).class == ROGUE_HANDED) {
        (void) shutdown(fd, SHUT_WR);
    }

    sbx_wire_init(&w, buf, sizeof(buf));
    pfd.fd = fd;
    pfd.events = POLLIN;
    result = ROGUE_SILENT;

    while (result == ROGUE_SILENT && poll(&pfd, 1, TEST_WAIT) == 1) {
        n = read(fd, buf + w.end, w.size - w.end);

        if (n <= 0) {
            result = ROGUE_DROPPED;
            break;
        }

        w.end += (size_t) n;

        while (sbx_wire_next(&w, &f, &p) == 1) {
            if (f.type == SBX_F_SESSION) {
                memcpy(made, p, SBX_ID_MAX + 1);

            } else if (f.type == SBX_F_ERROR) {
                memcpy(&code, p, sizeof(code));
                result = ROGUE_REFUSED;

            } else if (f.type == SBX_F_END
                       || f.type == SBX_F_EXIT || f.type == SBX_F_RAN
                       || (op == SBX_OP_REFUSALS
                           && f.type == SBX_F_ACCEPTED))
            {
                result = ROGUE_DONE;
            }
        }
    }

    (void) close(fd);

    if (result == ROGUE_SILENT) {
        printf("# no answer to %s\n", last);
    }

    return result;
}


/* With a socket of its own, as it should be; blob: one more, or -1. */

static rogue_result_t
send_one(const rogue_datagram_t *d, sbx_op_t op, int blob)
{
    int  fds[2], mine;

    fds[0] = rogue_pair(SOCK_STREAM, &mine);
    fds[1] = blob;
    post(d, fds, blob == -1 ? 1 : 2);
    (void) close(fds[0]);

    return await(mine, op);
}


/*
 * ---- after each batch ----------------------------------------------------
 */

static int
look(const char *id, sbx_f_session_t *info)
{
    test_answer_t  *a;

    a = test_answer(test_call(t.control, SBX_OP_GET, id, ""));
    *info = a->session;
    memset(&info->usage, 0, sizeof(info->usage));

    return a->last == SBX_F_END;
}


static void
begin(void)
{
    if (victim[0] == '\0' || !test_alive(&t, victim)) {
        test_create(&t, "acme", victim);
    }

    (void) look(other, &known[0]);
    (void) look(victim, &known[1]);
    files = rogue_files(broker);
}


static int
settled(void)
{
    int  i;

    for (i = 0; i < TEST_WAIT / 5; i++) {
        if (rogue_files(broker) <= files) {
            return 1;
        }

        (void) poll(NULL, 0, 5);
    }

    printf("# %u descriptors, now %u\n", files, rogue_files(broker));

    return 0;
}


/* changed: the victim may have been. */

static void
same(const char *batch, int changed)
{
    sbx_f_session_t   info;
    test_answer_t    *a;

    a = test_answer(test_call(t.control, SBX_OP_HEALTH, "", ""));
    ok(a->health.ok == 1 && test_pid(&t, "broker.pid") == broker,
       "%s: the broker is well, and the same", batch);
    ok(changed || a->health.sessions == 2, "%s: no session was made or ended",
       batch);
    ok(look(other, &info) && memcmp(&info, &known[0], sizeof(info)) == 0,
       "%s: nobody else's was changed", batch);
    ok(changed || (look(victim, &info)
                   && memcmp(&info, &known[1], sizeof(info)) == 0),
       "%s: nor the one that was named", batch);
    ok(settled(), "%s: no descriptor is left", batch);
}


static unsigned  sent, wrong;


static void
refused(const rogue_datagram_t *d, sbx_op_t op, int blob, const char *what)
{
    char            text[256];
    rogue_result_t  result;

    (void) snprintf(text, sizeof(text), "%s: %s", rogue_op(op).name, what);
    last = text;
    sent++;
    result = send_one(d, op, blob);

    if (result == ROGUE_DROPPED
        || (result == ROGUE_REFUSED
            && (code == SBX_E_INVALID || code == SBX_E_TOO_LARGE
                || code == SBX_E_MANIFEST)))
    {
        return;
    }

    if (wrong++ < 10) {
        printf("# %s: %d, code %u\n", text, (int) result, (unsigned) code);
    }
}


static void
unmake(sbx_op_t op, rogue_result_t result)
{
    if (op == SBX_OP_CREATE && result == ROGUE_DONE) {
        (void) test_destroy(&t, made);
    }
}


static int
rogue_start(const char *name)
{
    if (geteuid() != 0) {
        (void) skip_all("needs root");
        return -1;
    }

    test_open(&t, name);
    t.config.quotas.admin = 1;

    if (!ok(test_start(&t) == 0, "a broker starts")) {
        printf("# %s\n", t.error.text);
        return -1;
    }

    broker = test_pid(&t, "broker.pid");
    test_create(&t, "other", other);
    begin();
    settle_memory = rogue_memory(broker);

    return 0;
}


static int
rogue_end(void)
{
    long         now;
    const char  *sanitized;

    now = rogue_memory(broker);
    sanitized = getenv("SANDBOX_SANITIZE");

    if (sanitized != NULL && sanitized[0] != '\0') {
        skip("a sanitizer keeps freed memory", "the broker's memory");

    } else if (!ok(now - settle_memory < ROGUE_GROWTH,
                   "the broker's memory is as before"))
    {
        printf("# %ld KB, then %ld KB\n", settle_memory, now);
    }

    ok(test_destroy(&t, other), "the session can be destroyed");
    (void) test_destroy(&t, victim);
    test_close(&t);

    return done_testing();
}


#endif
