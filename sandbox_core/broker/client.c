/*
 * Reaching the broker from the process that uses it, a server's root master.
 *
 * The keeper is reached by fork *and exec*: nothing of the server's memory,
 * descriptors, signals or environment goes with it.  Two forks and setsid()
 * make it nobody's child and nobody's terminal's.  A pipe carries the one
 * line that tells why it could not start; its end without a line means that
 * the broker listens.
 *
 * Two servers may start at once, and a predecessor may still be ending: the
 * socket is tried again until the deadline, the keepers settle among
 * themselves by a lock who stays.
 */

#include "sandbox_client.h"
#include "sandbox_util.h"
#include "wire.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>


#define SBX_CLIENT_STEP       20          /* ms between tries */
#define SBX_CLIENT_REPORT     3           /* the keeper's descriptor of it */
#define SBX_CLIENT_SPAWNS     2
#define SBX_CLIENT_SILENCE    1000000     /* microseconds after a spawn */
#define SBX_CLIENT_ENV        8
#define SBX_CLIENT_SOCKET     "broker.sock"


typedef enum {
    SBX_CLIENT_OK,
    SBX_CLIENT_AGAIN,         /* nobody, or one that is going */
    SBX_CLIENT_FAILED
} sbx_client_result_t;

typedef struct {
    const sbx_client_t   *client;
    uint64_t              deadline;
    uint64_t              spawned;    /* when */
    unsigned              spawns;
    int                   report;
} sbx_client_try_t;

/* Everything that the child needs after fork, made before it. */

typedef struct {
    char                  program[SBX_PATH_MAX];
    char                  failure[SBX_PATH_MAX + 128];
    char                 *argv[16];
    char                 *envp[SBX_CLIENT_ENV + 1];
    int                   report;
} sbx_client_exec_t;


static sbx_client_result_t sbx_client_try(sbx_client_try_t *t, int *control,
    sbx_hello_t *hello, sbx_error_t *e);
static sbx_client_result_t sbx_client_connect(sbx_client_try_t *t, int *fd,
    sbx_error_t *e);
static int sbx_client_address(const char *state_dir, struct sockaddr_un *addr,
    int *dir);
static sbx_client_result_t sbx_client_hello(sbx_client_try_t *t, int fd,
    sbx_op_t op, sbx_hello_t *hello, sbx_error_t *e);
static sbx_client_result_t sbx_client_answer(sbx_client_try_t *t, int fd,
    sbx_hello_t *hello, sbx_error_t *e);
static int sbx_client_spawn(sbx_client_try_t *t, sbx_error_t *e);
static int sbx_client_prepare(const sbx_client_t *client,
    sbx_client_exec_t *x, sbx_error_t *e);
static void sbx_client_child(sbx_client_exec_t *x)
    __attribute__((noreturn));
static void sbx_client_descriptors(sbx_client_exec_t *x);
static int sbx_client_pause(sbx_client_try_t *t, sbx_error_t *e);
static int sbx_client_left(const sbx_client_try_t *t);


/* What the C library and the sanitizers look at; never all of it. */

static const char  *sbx_client_env[] = {
    "PATH=", "TZ=", "ASAN_OPTIONS=", "UBSAN_OPTIONS=", "LSAN_OPTIONS="
};

extern char  **environ;


int
sbx_client_start(const sbx_client_t *client, int *control,
    sbx_hello_t *hello, sbx_error_t *e)
{
    int                  rc;
    sbx_client_try_t     t;
    sbx_client_result_t  result;

    memset(&t, 0, sizeof(sbx_client_try_t));
    t.client = client;
    t.deadline = sbx_now_us() + (uint64_t) client->timeout_ms * 1000;
    t.report = -1;

    *control = -1;
    rc = -1;

    for ( ;; ) {
        result = sbx_client_try(&t, control, hello, e);

        if (result == SBX_CLIENT_OK) {
            rc = 0;
            break;
        }

        if (result == SBX_CLIENT_FAILED || sbx_client_pause(&t, e) != 0) {
            break;
        }

        if (sbx_client_left(&t) == 0) {
            (void) sbx_error(e, 0, SBX_E_UNAVAILABLE,
                             "no broker answers at \"%s/" SBX_CLIENT_SOCKET
                             "\" within %u ms: the log tells why",
                             client->state_dir, client->timeout_ms);
            break;
        }
    }

    if (t.report != -1) {
        (void) close(t.report);
    }

    return rc;
}


int
sbx_client_watch(const sbx_client_t *client, int *control,
    sbx_hello_t *hello, sbx_error_t *e)
{
    sbx_client_t         quiet;
    sbx_client_try_t     t;
    sbx_client_result_t  result;

    quiet = *client;
    quiet.spawn = 0;

    memset(&t, 0, sizeof(sbx_client_try_t));
    t.client = &quiet;
    t.deadline = sbx_now_us() + (uint64_t) client->timeout_ms * 1000;
    t.report = -1;

    *control = -1;

    do {
        sbx_auto_fd  fd = -1;

        result = sbx_client_connect(&t, &fd, e);

        if (result == SBX_CLIENT_OK) {
            result = sbx_client_hello(&t, fd, SBX_OP_HELLO_WATCH, hello, e);
        }

        if (result == SBX_CLIENT_OK) {
            *control = sbx_steal_fd(&fd);
            return 0;
        }

        if (result == SBX_CLIENT_FAILED) {
            return -1;
        }

        (void) poll(NULL, 0, SBX_CLIENT_STEP);

    } while (sbx_client_left(&t) != 0);

    return sbx_error(e, 0, SBX_E_UNAVAILABLE,
                     "the broker at \"%s\" does not answer",
                     client->state_dir);
}


static sbx_client_result_t
sbx_client_try(sbx_client_try_t *t, int *control, sbx_hello_t *hello,
    sbx_error_t *e)
{
    sbx_auto_fd          config = -1, fd = -1;
    sbx_client_result_t  result;

    result = sbx_client_connect(t, &config, e);

    if (result == SBX_CLIENT_OK) {
        result = sbx_client_hello(t, config, SBX_OP_HELLO_CONFIG, hello, e);
    }

    if (result == SBX_CLIENT_OK) {
        result = sbx_client_connect(t, &fd, e);
    }

    if (result == SBX_CLIENT_OK) {
        result = sbx_client_hello(t, fd, SBX_OP_HELLO_CONTROL, hello, e);
    }

    if (result == SBX_CLIENT_OK) {
        *control = sbx_steal_fd(&fd);
    }

    return result;
}


static sbx_client_result_t
sbx_client_connect(sbx_client_try_t *t, int *fd, sbx_error_t *e)
{
    int                  err, rc;
    const char          *dir;
    sbx_auto_fd          s = -1, at = -1;
    struct sockaddr_un   addr;

    dir = t->client->state_dir;
    s = socket(AF_UNIX, SOCK_SEQPACKET|SOCK_CLOEXEC|SOCK_NONBLOCK, 0);

    if (s == -1) {
        (void) sbx_error(e, errno, SBX_E_INTERNAL, "socket() failed");
        return SBX_CLIENT_FAILED;
    }

    rc = sbx_client_address(dir, &addr, &at);

    if (rc == 0) {
        rc = connect(s, (struct sockaddr *) &addr, sizeof(addr));
    }

    if (rc == 0) {
        *fd = sbx_steal_fd(&s);
        return SBX_CLIENT_OK;
    }

    err = errno;

    if (err == EAGAIN || err == EINTR) {
        return SBX_CLIENT_AGAIN;
    }

    if (err != ENOENT && err != ECONNREFUSED) {
        (void) sbx_error(e, err, SBX_E_UNAVAILABLE,
                         "cannot connect to \"%s/" SBX_CLIENT_SOCKET "\"",
                         dir);
        return SBX_CLIENT_FAILED;
    }

    if (!t->client->spawn) {
        (void) sbx_error(e, err, SBX_E_UNAVAILABLE,
                         "no broker listens at \"%s/" SBX_CLIENT_SOCKET
                         "\": start the service sandbox-broker", dir);
        return SBX_CLIENT_FAILED;
    }

    if (t->report == -1
        && (t->spawns == 0
            || (t->spawns < SBX_CLIENT_SPAWNS
                && sbx_now_us() - t->spawned > SBX_CLIENT_SILENCE))
        && sbx_client_spawn(t, e) != 0)
    {
        return SBX_CLIENT_FAILED;
    }

    return SBX_CLIENT_AGAIN;
}


/* A path longer than an address holds is reached through its directory. */

static int
sbx_client_address(const char *state_dir, struct sockaddr_un *addr, int *dir)
{
    int  n;

    memset(addr, 0, sizeof(struct sockaddr_un));
    addr->sun_family = AF_UNIX;

    n = snprintf(addr->sun_path, sizeof(addr->sun_path), "%s/%s", state_dir,
                 SBX_CLIENT_SOCKET);

    if (n < (int) sizeof(addr->sun_path)) {
        return 0;
    }

    *dir = open(state_dir, O_PATH|O_DIRECTORY|O_CLOEXEC);

    if (*dir == -1) {
        return -1;
    }

    (void) snprintf(addr->sun_path, sizeof(addr->sun_path),
                    "/proc/self/fd/%d/%s", *dir, SBX_CLIENT_SOCKET);

    return 0;
}


static sbx_client_result_t
sbx_client_hello(sbx_client_try_t *t, int fd, sbx_op_t op,
    sbx_hello_t *hello, sbx_error_t *e)
{
    int     room;
    size_t  size;

    struct {
        sbx_call_t     head;
        sbx_config_t   config;
    } datagram;

    memset(&datagram, 0, sizeof(datagram));
    size = sizeof(sbx_call_t);

    if (op == SBX_OP_HELLO_CONFIG) {
        datagram.config = *t->client->config;
        size += sizeof(sbx_config_t);

        /* where it has no room for that by itself; calls need no more */

        room = 2 * sizeof(sbx_config_t);
        (void) setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &room, sizeof(room));
    }

    datagram.head.magic = SBX_WIRE_MAGIC;
    datagram.head.version = SBX_WIRE_VERSION;
    datagram.head.op = (uint16_t) op;
    datagram.head.size = (uint32_t) size;

    _Static_assert(sizeof(datagram)
                   == sizeof(sbx_call_t) + sizeof(sbx_config_t),
                   "the body follows the header at once");

    if (sbx_wire_send(fd, &datagram, size, NULL, 0, 0) == -1) {
        return SBX_CLIENT_AGAIN;
    }

    return sbx_client_answer(t, fd, hello, e);
}


static sbx_client_result_t
sbx_client_answer(sbx_client_try_t *t, int fd, sbx_hello_t *hello,
    sbx_error_t *e)
{
    ssize_t        n;
    unsigned       nfds;
    struct pollfd  pfd;

    for ( ;; ) {
        nfds = 0;
        n = sbx_wire_recv(fd, hello, sizeof(sbx_hello_t), NULL, &nfds, 0);

        if (n != -1 || errno != EAGAIN) {
            break;
        }

        if (sbx_client_left(t) == 0) {
            (void) sbx_error(e, 0, SBX_E_UNAVAILABLE,
                             "the broker at \"%s\" does not answer",
                             t->client->state_dir);
            return SBX_CLIENT_FAILED;
        }

        pfd.fd = fd;
        pfd.events = POLLIN;
        (void) poll(&pfd, 1, sbx_client_left(t));
    }

    if (n == 0 || (n == -1 && errno == ECONNRESET)) {
        /* it ends or has died; its successor will answer */
        return SBX_CLIENT_AGAIN;
    }

    if (n != sizeof(sbx_hello_t) || hello->magic != SBX_WIRE_MAGIC) {
        (void) sbx_error(e, n == -1 ? errno : 0, SBX_E_UNAVAILABLE,
                         "the running broker at \"%s\" is of another make: "
                         "restart it", t->client->state_dir);
        return SBX_CLIENT_FAILED;
    }

    if (!hello->ok) {
        *e = hello->error;
        e->text[sizeof(e->text) - 1] = '\0';
        return SBX_CLIENT_FAILED;
    }

    return SBX_CLIENT_OK;
}


static int
sbx_client_spawn(sbx_client_try_t *t, sbx_error_t *e)
{
    int                pipes[2], status;
    pid_t              pid;
    sigset_t           child, old;
    sbx_client_exec_t  x;

    if (sbx_client_prepare(t->client, &x, e) != 0) {
        return -1;
    }

    if (pipe2(pipes, O_CLOEXEC) == -1) {
        return sbx_error(e, errno, SBX_E_INTERNAL, "pipe2() failed");
    }

    x.report = pipes[1];

    /* the caller's own handler must not find a child that it does not know */

    (void) sigemptyset(&child);
    (void) sigaddset(&child, SIGCHLD);
    (void) sigprocmask(SIG_BLOCK, &child, &old);

    pid = fork();

    if (pid == 0) {
        sbx_client_child(&x);
    }

    if (pid != -1) {
        while (waitpid(pid, &status, 0) == -1 && errno == EINTR) {
            /* void */
        }
    }

    (void) sigprocmask(SIG_SETMASK, &old, NULL);
    (void) close(pipes[1]);

    if (pid == -1) {
        (void) close(pipes[0]);
        return sbx_error(e, errno, SBX_E_UNAVAILABLE, "fork() failed");
    }

    t->report = pipes[0];
    t->spawned = sbx_now_us();
    t->spawns++;

    return 0;
}


static int
sbx_client_prepare(const sbx_client_t *client, sbx_client_exec_t *x,
    sbx_error_t *e)
{
    int      n;
    char   **var;
    size_t   i, nenv;

    memset(x, 0, sizeof(sbx_client_exec_t));

    n = snprintf(x->program, sizeof(x->program), "%s/sandbox-broker",
                 client->helper_dir);

    if (n >= (int) sizeof(x->program)) {
        return sbx_error(e, 0, SBX_E_UNAVAILABLE,
                         "the helpers' directory has too long a name");
    }

    (void) snprintf(x->failure, sizeof(x->failure),
                    "cannot execute \"%s\": set sandbox_helper_dir to where "
                    "the helpers are installed", x->program);

    n = 0;
    x->argv[n++] = x->program;
    x->argv[n++] = (char *) (uintptr_t) "--keeper";
    x->argv[n++] = (char *) (uintptr_t) "--state";
    x->argv[n++] = (char *) (uintptr_t) client->state_dir;
    x->argv[n++] = (char *) (uintptr_t) "--helpers";
    x->argv[n++] = (char *) (uintptr_t) client->helper_dir;
    x->argv[n++] = (char *) (uintptr_t) "--log";
    x->argv[n++] = (char *) (uintptr_t) client->log_path;
    x->argv[n++] = (char *) (uintptr_t) "--report";
    x->argv[n++] = (char *) (uintptr_t) "3";

    nenv = 0;

    for (var = environ; var != NULL && *var != NULL; var++) {
        for (i = 0; i < sbx_nelts(sbx_client_env); i++) {
            if (strncmp(*var, sbx_client_env[i], strlen(sbx_client_env[i]))
                == 0 && nenv < SBX_CLIENT_ENV)
            {
                x->envp[nenv++] = *var;
            }
        }
    }

    return 0;
}


/* After fork: async-signal-safe calls only. */

static void
sbx_client_child(sbx_client_exec_t *x)
{
    int               signo;
    pid_t             pid;
    ssize_t           n;
    sigset_t          none;
    struct sigaction  sa;

    (void) setsid();

    pid = fork();

    if (pid != 0) {
        _exit(pid == -1);
    }

    memset(&sa, 0, sizeof(struct sigaction));
    sa.sa_handler = SIG_DFL;

    for (signo = 1; signo < NSIG; signo++) {
        (void) sigaction(signo, &sa, NULL);
    }

    (void) sigemptyset(&none);
    (void) sigprocmask(SIG_SETMASK, &none, NULL);

    if (chdir("/") == 0) {
        sbx_client_descriptors(x);
        (void) execve(x->program, x->argv, x->envp);
    }

    n = write(SBX_CLIENT_REPORT, x->failure, strlen(x->failure));
    (void) n;

    _exit(127);
}


static void
sbx_client_descriptors(sbx_client_exec_t *x)
{
    int  fd, null, report;

    report = fcntl(x->report, F_DUPFD, SBX_CLIENT_REPORT + 1);
    null = open("/dev/null", O_RDWR);

    for (fd = 0; fd < SBX_CLIENT_REPORT; fd++) {
        if (null != fd) {
            (void) dup2(null, fd);
        }
    }

    (void) dup2(report, SBX_CLIENT_REPORT);

    if (syscall(SYS_close_range, SBX_CLIENT_REPORT + 1, ~0U, 0) == -1) {
        for (fd = SBX_CLIENT_REPORT + 1; fd < 65536; fd++) {
            (void) close(fd);
        }
    }
}


/* Waits a little, or for the keeper's word; -1: its start has failed. */

static int
sbx_client_pause(sbx_client_try_t *t, sbx_error_t *e)
{
    char           line[512];
    ssize_t        n;
    struct pollfd  pfd;

    if (t->report == -1) {
        (void) poll(NULL, 0, SBX_CLIENT_STEP);
        return 0;
    }

    pfd.fd = t->report;
    pfd.events = POLLIN;

    if (poll(&pfd, 1, SBX_CLIENT_STEP) != 1) {
        return 0;
    }

    n = sbx_read_full(t->report, line, sizeof(line) - 1);

    (void) close(t->report);
    t->report = -1;

    if (n <= 0) {
        return 0;
    }

    line[n] = '\0';
    line[strcspn(line, "\n")] = '\0';

    return sbx_error(e, 0, SBX_E_UNAVAILABLE, "%s", line);
}


static int
sbx_client_left(const sbx_client_try_t *t)
{
    uint64_t  now;

    now = sbx_now_us();

    return now >= t->deadline ? 0 : (int) ((t->deadline - now) / 1000 + 1);
}
