/*
 * Uses things up, by the amount: what tests of limits run inside a session.
 * A static program, so that what it costs is little and known.
 *
 *     memory MB [SECONDS]     touches so much, says so, and stays
 *     children MB N           so much in each of N children, all at once
 *     cpu SECONDS N           so much processor time in each of N processes
 *     burn N [wide|wall S]    N processes without end, on every processor
 *                             that the machine has; or for S seconds
 *     churn [N]               short children of 2 ms, one after the other
 *     orphan VERB ...         the same in a double-forked child of a session
 *                             of its own; the parent ends
 *     forks N SECONDS         as many children as there can be, up to N;
 *     threads N SECONDS       or threads: their number is told, they stay
 *     bomb | threadbomb       as many as there can be, without end
 *     files N                 opens as many
 *     write PATH MB [sync]    so much into a file
 *     stack KB                so much of the stack
 *     floor N                 milliseconds that the machine needs to kill so
 *                             many processes
 *     ignore VERB ...         the same, with every signal ignored
 */

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>


#define MB  (1024 * 1024)


static int load(int argc, char **argv);


static double
load_clock(clockid_t id)
{
    struct timespec  ts;

    (void) clock_gettime(id, &ts);

    return (double) ts.tv_sec + (double) ts.tv_nsec / 1e9;
}


static void
load_say(const char *text, long n)
{
    printf("%s %ld\n", text, n);
    (void) fflush(stdout);
}


static void
load_sleep(double seconds)
{
    struct timespec  ts;

    ts.tv_sec = (time_t) seconds;
    ts.tv_nsec = (long) ((seconds - (double) ts.tv_sec) * 1e9);
    (void) nanosleep(&ts, NULL);
}


static void
load_wait(void)
{
    while (wait(NULL) > 0) { /* void */ }
}


static int
load_touch(long mb)
{
    char  *p;

    p = mmap(NULL, (size_t) mb * MB, PROT_READ|PROT_WRITE,
             MAP_PRIVATE|MAP_ANONYMOUS, -1, 0);

    if (p == MAP_FAILED) {
        return 1;
    }

    memset(p, 1, (size_t) mb * MB);

    return 0;
}


static int
load_memory(int argc, char **argv)
{
    if (load_touch(atol(argv[1])) != 0) {
        return 1;
    }

    load_say("touched", atol(argv[1]));

    if (argc > 2) {
        load_sleep(atof(argv[2]));
    }

    return 0;
}


static int
load_children(int argc, char **argv)
{
    long  i;

    (void) argc;

    for (i = 0; i < atol(argv[2]); i++) {
        if (fork() == 0) {
            _exit(load_touch(atol(argv[1])) || pause());
        }
    }

    load_wait();
    load_say("survived", 0);

    return 0;
}


static void
load_burn_cpu(double seconds)
{
    volatile long  i;

    do {
        for (i = 0; i < 20000; i++) { /* void */ }
    } while (load_clock(CLOCK_PROCESS_CPUTIME_ID) < seconds);
}


static int
load_cpu(int argc, char **argv)
{
    long  i, n;

    n = argc > 2 ? atol(argv[2]) : 1;

    for (i = 1; i < n; i++) {
        if (fork() == 0) {
            load_burn_cpu(atof(argv[1]));
            _exit(0);
        }
    }

    load_burn_cpu(atof(argv[1]));
    load_wait();

    return 0;
}


static int
load_burn(int argc, char **argv)
{
    long           i, n;
    double         end;
    cpu_set_t      set;
    volatile long  k;

    n = argc > 1 ? atol(argv[1]) : 1;
    end = argc > 3 ? load_clock(CLOCK_MONOTONIC) + atof(argv[3]) : 1e18;

    if (argc > 2) {
        memset(&set, 0xff, sizeof(set));
        (void) sched_setaffinity(0, sizeof(set), &set);
        (void) sched_getaffinity(0, sizeof(set), &set);
        load_say("processors", CPU_COUNT(&set));
    }

    for (i = 1; i < n; i++) {
        if (fork() == 0) {
            break;
        }
    }

    do {
        for (k = 0; k < 20000; k++) { /* void */ }
    } while (load_clock(CLOCK_MONOTONIC) < end);

    if (i == n) {
        load_wait();
    }

    return 0;
}


static int
load_churn(int argc, char **argv)
{
    long  i, n;

    n = argc > 1 ? atol(argv[1]) : -1;

    for (i = 0; i != n; i++) {
        if (fork() == 0) {
            load_burn_cpu(0.002);
            _exit(0);
        }

        load_wait();
    }

    return 0;
}


static int
load_orphan(int argc, char **argv)
{
    int  fd;

    if (fork() != 0) {
        load_wait();
        return 0;
    }

    (void) setsid();

    if (fork() != 0) {
        _exit(0);
    }

    fd = open("/dev/null", O_RDWR);

    if (fd != -1) {
        (void) dup2(fd, 1);
        (void) dup2(fd, 2);
    }

    _exit(load(argc - 1, argv + 1));
}


static int
load_forks(int argc, char **argv)
{
    int   fds[2];
    char  c;
    long  i;

    (void) argc;

    if (pipe(fds) == -1) {
        return 1;
    }

    for (i = 0; i < atol(argv[1]); i++) {
        switch (fork()) {

        case -1:
            printf("refused %s\n", errno == EAGAIN ? "EAGAIN"
                                                   : strerror(errno));
            load_say("forked", i);
            goto full;

        case 0:
            (void) close(fds[1]);
            _exit((int) read(fds[0], &c, 1));
        }
    }

    load_say("forked", i);

full:

    load_sleep(atof(argv[2]));

    return 0;
}


static void *
load_thread(void *data)
{
    (void) data;
    (void) pause();

    return NULL;
}


static int
load_threads(int argc, char **argv)
{
    int             rc;
    long            i;
    pthread_t       thread;
    pthread_attr_t  attr;

    (void) argc;

    (void) pthread_attr_init(&attr);
    (void) pthread_attr_setstacksize(&attr, 65536);

    for (i = 0; i < atol(argv[1]); i++) {
        rc = pthread_create(&thread, &attr, load_thread, NULL);

        if (rc != 0) {
            printf("refused %s\n", rc == EAGAIN ? "EAGAIN" : strerror(rc));
            break;
        }
    }

    load_say("threads", i);
    load_sleep(atof(argv[2]));

    return 0;
}


static int
load_bomb(int argc, char **argv)
{
    (void) argc;
    (void) argv;

    for ( ;; ) {
        /* each of them goes on here */
        (void) (fork() == -1);
    }

    return 0;
}


static int
load_threadbomb(int argc, char **argv)
{
    pthread_t       thread;
    pthread_attr_t  attr;

    (void) argc;
    (void) argv;

    (void) pthread_attr_init(&attr);
    (void) pthread_attr_setstacksize(&attr, 65536);

    for ( ;; ) {
        if (pthread_create(&thread, &attr, load_thread, NULL) != 0) {
            load_sleep(0.001);
        }
    }

    return 0;
}


static int
load_files(int argc, char **argv)
{
    long  i;

    (void) argc;

    for (i = 3; i < atol(argv[1]); i++) {
        if (open("/dev/null", O_RDONLY) == -1) {
            printf("refused %s\n", errno == EMFILE ? "EMFILE"
                                                   : strerror(errno));
            break;
        }
    }

    load_say("open", i);

    return 0;
}


static int
load_write(int argc, char **argv)
{
    int          fd;
    long         i;
    static char  buf[MB];

    memset(buf, 'x', sizeof(buf));
    fd = open(argv[1], O_CREAT|O_WRONLY|O_TRUNC, 0644);

    for (i = 0; fd != -1 && i < atol(argv[2]); i++) {
        if (write(fd, buf, sizeof(buf)) != sizeof(buf)) {
            break;
        }
    }

    if (argc > 3 && fsync(fd) == -1) {
        return 1;
    }

    load_say("written", i);

    return i < atol(argv[2]);
}


static long __attribute__((noinline))
load_deeper(long kb)
{
    volatile char  page[1024];

    page[0] = 1;
    page[sizeof(page) - 1] = 1;

    return kb <= 1 ? page[0] : load_deeper(kb - 1) + page[0];
}


static int
load_stack(int argc, char **argv)
{
    (void) argc;

    load_say("stacked", load_deeper(atol(argv[1])));

    return 0;
}


static int
load_floor(int argc, char **argv)
{
    long    i, n;
    pid_t   pids[2000];
    double  start;

    (void) argc;

    n = atol(argv[1]);

    for (i = 0; i < n && i < 2000; i++) {
        pids[i] = fork();

        if (pids[i] == 0) {
            (void) pause();
            _exit(0);
        }
    }

    load_sleep(0.2);
    start = load_clock(CLOCK_MONOTONIC);

    for (i = 0; i < n; i++) {
        if (pids[i] > 0) {
            (void) kill(pids[i], SIGKILL);
        }
    }

    load_wait();
    load_say("floor",
             (long) ((load_clock(CLOCK_MONOTONIC) - start) * 1000));

    return 0;
}


static int
load_ignore(int argc, char **argv)
{
    int  sig;

    for (sig = 1; sig < 65; sig++) {
        (void) signal(sig, SIG_IGN);
    }

    (void) signal(SIGCHLD, SIG_DFL);

    return load(argc - 1, argv + 1);
}


static const struct {
    const char   *verb;
    int           least;            /* words, the verb among them */
    int         (*run)(int argc, char **argv);
} load_verbs[] = {
    { "memory", 2, load_memory },
    { "children", 3, load_children },
    { "cpu", 2, load_cpu },
    { "burn", 1, load_burn },
    { "churn", 1, load_churn },
    { "orphan", 2, load_orphan },
    { "forks", 3, load_forks },
    { "threads", 3, load_threads },
    { "bomb", 1, load_bomb },
    { "threadbomb", 1, load_threadbomb },
    { "files", 2, load_files },
    { "write", 3, load_write },
    { "stack", 2, load_stack },
    { "floor", 2, load_floor },
    { "ignore", 2, load_ignore }
};


static int
load(int argc, char **argv)
{
    size_t  i;

    for (i = 0; i < sizeof(load_verbs) / sizeof(load_verbs[0]); i++) {
        if (argc >= load_verbs[i].least
            && strcmp(argv[0], load_verbs[i].verb) == 0)
        {
            return load_verbs[i].run(argc, argv);
        }
    }

    (void) fprintf(stderr, "load: unknown\n");

    return 2;
}


int
main(int argc, char **argv)
{
    return load(argc - 1, argv + 1);
}
