/*
 * A session whose programs watch their sockets so often that what is sent to
 * it costs the egress's time: it is left alone, others are served, and after
 * that it has its network again.  SANDBOX_TEST_LONG=1: the second time, by
 * packets that cost little each, which lasts longer.
 */

#include "egress_test.h"

#include <signal.h>
#include <sys/epoll.h>
#include <time.h>


#define SERVER    "198.51.100.7"
#define EPOLLS    200
#define FEW       20               /* a packet costs little, and too much */
#define COPIES    1000             /* of a descriptor, in each of them */
#define SENDS     1000
#define BYTES     (256u * 1024 * 1024)
#define STOPS     150
#define STOP      20000000         /* ns of one, */
#define GO        2000000          /* from one to the next */


static et_t               t;
static sbx_egress_task_t  one, two;
static int                listener, nepolls, epolls[EPOLLS], copies[COPIES];


static double
now(void)
{
    struct timespec  ts;

    (void) clock_gettime(CLOCK_MONOTONIC, &ts);

    return (double) ts.tv_sec + (double) ts.tv_nsec / 1e9;
}


/* fd is watched n * COPIES times. */

static void
watch(int fd, int n)
{
    int                 i, k;
    struct epoll_event  ev;

    memset(&ev, 0, sizeof(ev));
    ev.events = EPOLLIN|EPOLLET;

    for (k = 0; k < COPIES; k++) {
        copies[k] = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    }

    nepolls = n;

    for (i = 0; i < n; i++) {
        epolls[i] = epoll_create1(EPOLL_CLOEXEC);

        for (k = 0; k < COPIES; k++) {
            if (epoll_ctl(epolls[i], EPOLL_CTL_ADD, copies[k], &ev)
                == -1)
            {
                et_die("epoll_ctl");
            }
        }
    }
}


static void
unwatch(void)
{
    int  i;

    for (i = 0; i < nepolls; i++) {
        (void) close(epolls[i]);
    }

    for (i = 0; i < COPIES; i++) {
        (void) close(copies[i]);
    }
}


/* The next refusal; 0: there is none. */

static int
refusal(sbx_egress_record_t *record)
{
    return et_record(&t, record, ET_WAIT)
           && record->type == SBX_EGRESS_REFUSED;
}


/* Sends what BYTES says. */

static pid_t
fork_writer(int fd)
{
    size_t  n;
    pid_t   pid;

    static char  buf[1024 * 1024];

    (void) fflush(stdout);
    pid = fork();

    if (pid == 0) {
        for (n = 0; n < BYTES; n += sizeof(buf)) {
            if (sbx_write_all(fd, buf, sizeof(buf)) != 0) {
                _exit(1);
            }
        }

        _exit(0);
    }

    return pid;
}


/* Bytes for the client until it is cut: how many came, 0: it is not. */

static int
until_cut(int client, int server)
{
    int   i;
    char  c;

    for (i = 1; i <= SENDS; i++) {
        if (send(server, "x", 1, MSG_NOSIGNAL) != 1
            || recv(client, &c, 1, 0) != 1)
        {
            return i;
        }
    }

    return 0;
}


/* A connection that is watched; how long the session is left alone for. */

static double
check_cut(int n)
{
    int                  i, client, server, quiet, quiet_end, other, far;
    char                 c;
    double               took;
    sbx_egress_record_t  record;

    client = et_connect(&t, &t.one, SERVER, 7);
    server = et_accept(listener);
    quiet = et_connect(&t, &t.one, SERVER, 7);
    quiet_end = et_accept(listener);
    other = et_connect(&t, &t.two, SERVER, 7);
    far = et_accept(listener);
    ok(et_talk(client, server) == 0 && et_talk(quiet, quiet_end) == 0
       && et_talk(other, far) == 0, "all are served at first");
    et_forget(&t);

    watch(client, n);
    i = until_cut(client, server);
    took = now();
    ok(i != 0, "a connection that is watched too often is reset");
    printf("# after %d bytes\n", i);
    ok(refusal(&record) && record.reason == SBX_REFUSED_LIMIT
       && strcmp(record.session, ET_ID) == 0, "the broker is told why");
    is_int(et_says(quiet), -ECONNRESET, "its others are as well");
    ok(et_soon(&t.one.traffic->connections, 0), "it has none then");
    ok(et_talk(other, far) == 0, "another's goes on");
    unwatch();
    (void) close(client);
    (void) close(server);
    (void) close(quiet);
    (void) close(quiet_end);

    /* it waits, and is not refused: that would be sent to it */

    client = et_connect(&t, &t.one, SERVER, 7);
    ok(client != -1 && !et_ready(listener, POLLIN, 200)
       && recv(client, &c, 1, MSG_DONTWAIT) == -1 && errno == EAGAIN,
       "a new one waits");
    ok(et_talk(other, far) == 0, "and another's does not");
    server = et_accept(listener);
    took = now() - took;
    ok(server != -1 && et_talk(client, server) == 0,
       "until the session has its network again");
    printf("# which took %.1f s\n", took);

    (void) close(client);
    (void) close(server);
    (void) close(other);
    (void) close(far);
    (void) et_soon(&t.one.traffic->connections, 0);
    (void) et_soon(&t.two.traffic->connections, 0);

    return took;
}


/* The same socket is connected again and again to where nothing is allowed. */

static void
check_refused(void)
{
    int                   i, fd, client, server;
    char                  c;
    socklen_t             len;
    et_sockaddr_t         sa, none;
    struct timeval        wait = { 1, 0 };
    sbx_egress_record_t   record;

    static const char    *denied[] = { "d198.51.100.8", "a*", NULL };

    et_change(&t, &two, denied);
    client = et_connect(&t, &t.one, SERVER, 7);
    server = et_accept(listener);

    len = et_address(&sa, "198.51.100.8", 7);
    memset(&none, 0, sizeof(none));
    none.any.sa_family = AF_UNSPEC;

    fd = et_socket(&t, t.two.netns, AF_INET, SOCK_STREAM);
    (void) setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait));
    watch(fd, EPOLLS);
    et_forget(&t);

    for (i = 1; i <= SENDS; i++) {
        if (connect(fd, &sa.any, len) == -1) {
            break;
        }

        /* reset, until nobody takes it any more */

        if (recv(fd, &c, 1, 0) == -1 && errno == EAGAIN) {
            break;
        }

        (void) connect(fd, &none.any, sizeof(none));
    }

    ok(i > 1 && i <= SENDS, "whom it costs to refuse is not refused for ever");
    printf("# after %d connections\n", i);

    do {
        i = refusal(&record);
    } while (i && record.reason == SBX_REFUSED_RULE);

    ok(i && record.reason == SBX_REFUSED_LIMIT
       && strcmp(record.session, ET_ID_TWO) == 0, "which is told");
    ok(et_talk(client, server) == 0, "another's connections go on");
    unwatch();
    (void) close(fd);
    (void) close(client);
    (void) close(server);
    (void) et_soon(&t.one.traffic->connections, 0);
}


static void
check_names(void)
{
    int                  i, fd, client, server;
    socklen_t            len;
    et_sockaddr_t        sa;
    sbx_egress_record_t  record;

    /* PTR of "a" */
    static const uint8_t  question[] = {
        0, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 1, 'a', 0, 0, 12, 0, 1
    };
    uint8_t               answer[512];

    client = et_connect(&t, &t.two, SERVER, 7);
    server = et_accept(listener);
    fd = et_socket(&t, t.one.netns, AF_INET, SOCK_DGRAM);
    len = et_address(&sa, SBX_NET_ADDRESS4, 53);
    (void) connect(fd, &sa.any, len);
    watch(fd, EPOLLS);
    et_forget(&t);

    for (i = 1; i <= SENDS; i++) {
        if (send(fd, question, sizeof(question), 0) == -1
            || !et_ready(fd, POLLIN, 1000)
            || recv(fd, answer, sizeof(answer), 0) <= 0)
        {
            break;
        }
    }

    ok(i > 1 && i <= SENDS, "nor is whom it costs to answer");
    printf("# after %d questions\n", i);
    ok(refusal(&record) && record.reason == SBX_REFUSED_LIMIT
       && strcmp(record.session, ET_ID) == 0, "which is told");
    ok(et_talk(client, server) == 0, "another's connections go on");
    unwatch();
    (void) close(fd);
    (void) close(client);
    (void) close(server);
}


/* What honest sessions do costs more than they take, not more than that. */

static void
check_much(void)
{
    int     client, server;
    size_t  n;
    ssize_t got;

    static char  buf[1024 * 1024];

    client = et_connect(&t, &t.one, SERVER, 7);
    server = et_accept(listener);
    et_forget(&t);

    if (fork_writer(server) == -1) {
        et_die("fork");
    }

    (void) close(server);

    for (n = 0; n < BYTES; n += (size_t) got) {
        got = recv(client, buf, sizeof(buf), 0);

        if (got <= 0) {
            break;
        }
    }

    is_int((int64_t) n, BYTES, "who takes much is not cut");
    ok(!et_ready(t.control, POLLIN, 0), "nor told of");
    (void) close(client);
    (void) wait(NULL);
    (void) et_soon(&t.one.traffic->connections, 0);
}


/*
 * What hits the egress hits it in what it does most: here it is stopped, again
 * and again, which is no wait for a processor, while all that it does is to
 * serve one session.
 */

static void
check_stopped(void)
{
    int              i, client, server;
    size_t           n;
    pid_t            writer, stopper;
    ssize_t          got;
    struct timespec  stop, go;

    static char  buf[1024 * 1024];

    client = et_connect(&t, &t.one, SERVER, 7);
    server = et_accept(listener);
    et_forget(&t);
    (void) fflush(stdout);
    stopper = fork();

    if (stopper == 0) {
        memset(&stop, 0, sizeof(stop));
        memset(&go, 0, sizeof(go));
        stop.tv_nsec = STOP;
        go.tv_nsec = GO;

        for (i = 0; i < STOPS; i++) {
            (void) nanosleep(&go, NULL);
            (void) kill(t.egress, SIGSTOP);
            (void) nanosleep(&stop, NULL);
            (void) kill(t.egress, SIGCONT);
        }

        _exit(0);
    }

    for (n = 0; waitpid(stopper, NULL, WNOHANG) == 0; /* void */ ) {
        writer = fork_writer(server);

        do {
            got = recv(client, buf, sizeof(buf), 0);
            n += got > 0 ? (size_t) got : 0;
        } while (got > 0 && n % BYTES != 0);

        (void) waitpid(writer, NULL, 0);

        if (got <= 0) {
            break;
        }
    }

    (void) waitpid(stopper, NULL, 0);
    printf("# %zu MB\n", n >> 20);
    ok(n >= BYTES && et_talk(client, server) == 0,
       "who is served while the egress is stopped is not cut");
    ok(!et_ready(t.control, POLLIN, 0), "nor told of");
    (void) close(client);
    (void) close(server);
    (void) et_soon(&t.one.traffic->connections, 0);
}


int
main(void)
{
    double       took;
    const char  *why;

    static const char  *open_to_all[] = { "a*", NULL };

    static const et_name_t  names[] = {
        { "a.test", SERVER, 60 },
        { NULL, NULL, 0 }
    };

    why = et_open(&t, names);

    if (why != NULL) {
        return skip_all(why);
    }

    (void) et_config(&t, open_to_all);
    et_task_of(&one, &t.one, 0);
    et_task_of(&two, &t.two, 0);

    if (et_grant(&t, &t.one, &one, NULL) != 0) {
        return skip_all("no network can be granted here");
    }

    (void) et_grant(&t, &t.two, &two, NULL);

    listener = et_listen(&t, t.world, SERVER, 7);

    check_much();
    check_stopped();
    took = check_cut(EPOLLS);

    if (getenv("SANDBOX_TEST_LONG") != NULL) {
        ok(check_cut(FEW) > took * 1.5, "the next time lasts longer");
    }

    check_refused();
    check_names();

    is_int(et_close(&t), 0, "the egress ends");

    return done_testing();
}
