/*
 * How the egress is started, and what it can do once it has confined itself:
 * this program is launched in its place and tells what it finds, and what
 * becomes of a child that tries what it may not.
 */

#include "isolate.h"
#include "sandbox_util.h"

#include "tap.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <stddef.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>


#define EGRESS_UID   1800200000u
#define EGRESS_WAIT  60000


/*
 * ---- the egress's stand-in -------------------------------------------------
 */

static char    told[30000];
static size_t  told_size;


static void __attribute__((format(printf, 1, 2)))
say(const char *fmt, ...)
{
    va_list  args;

    va_start(args, fmt);
    told_size += (size_t) vsnprintf(told + told_size,
                                    sizeof(told) - told_size, fmt, args);
    va_end(args);
}


static void
say_file(const char *path, const char *prefix)
{
    char    text[4096], *line;
    size_t  len;

    if (sbx_read_at(AT_FDCWD, path, text, sizeof(text)) == -1) {
        say("%s: none\n", prefix);
        return;
    }

    len = strlen(prefix);

    for (line = text; line != NULL && *line != '\0';
         line = strchr(line, '\n'))
    {
        line += *line == '\n';

        if (strncmp(line, prefix, len) == 0) {
            say("%.*s\n", (int) strcspn(line, "\n"), line);
        }
    }
}


static void
say_what_is(void)
{
    int            fd, high;
    gid_t          groups[1];
    struct stat    st;
    struct rlimit  rl;
    struct dirent *entry;
    DIR           *dir;

    high = 0;

    for (fd = 0; fd < 1024; fd++) {
        if (fcntl(fd, F_GETFD) != -1) {
            high = fd;
        }
    }

    say("ids %u %u %u %u, groups %d\n", getuid(), geteuid(), getgid(),
        getegid(), getgroups(0, groups));
    say("pid %d, session %d, highest descriptor %d\n", (int) getpid(),
        (int) getsid(0), high);
    say("new privileges %d\n", prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0));

    (void) getrlimit(RLIMIT_NOFILE, &rl);
    say("files %lu\n", (unsigned long) rl.rlim_cur);
    (void) getrlimit(RLIMIT_CORE, &rl);
    say("core %lu\n", (unsigned long) rl.rlim_cur);

    say_file("/proc/self/status", "CapEff:");
    say_file("/proc/self/status", "CapPrm:");
    say_file("/proc/self/status", "CapInh:");

    say("environment %s\n", environ[0] == NULL ? "empty" : environ[0]);
    say("write %d %d\n", mkdir("/x", 0700), mkdir("/usr/x", 0700));
    say("shadow %d\n", stat("/etc/shadow", &st));
    say("certificates %d\n", access("/etc/ssl/certs", R_OK));

    dir = opendir("/");

    while (dir != NULL && (entry = readdir(dir)) != NULL) {
        if (strchr("._", entry->d_name[0]) == NULL) {
            say("root has %s\n", entry->d_name);
        }
    }

    if (dir != NULL) {
        (void) closedir(dir);
    }
}


/* What the egress does all day; the return is a line number, or 0. */
static int
do_all_that_is_needed(void)
{
    int                  on = 1, listener, fd, peer, ep, pipes[2];
    char                 buf[8];
    socklen_t            len;
    struct timespec      ts;
    struct epoll_event   ee = { .events = EPOLLIN };
    struct sockaddr_in   sa;
    struct sockaddr_nl   nl = { .nl_family = AF_NETLINK };
    struct {
        struct nlmsghdr  head;
        char             family[4];
    } request = { { sizeof(request), 22 /* RTM_GETADDR */,
                    NLM_F_REQUEST | NLM_F_DUMP, 1, 0 }, { 0 } };

#define NEED(x)  if (!(x)) return __LINE__

    /* from before: a listener is not made any more */

    listener = 6;
    len = sizeof(sa);
    NEED(getsockname(listener, (struct sockaddr *) &sa, &len) == 0);
    NEED((fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0))
         != -1);
    NEED(connect(fd, (struct sockaddr *) &sa, len) == 0
         || errno == EINPROGRESS);
    NEED((peer = accept4(listener, NULL, NULL, SOCK_CLOEXEC)) != -1);
    NEED(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) == 0);
    NEED(setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on)) == 0);
    NEED(setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "reno", 4) == 0);
    NEED((ep = epoll_create1(EPOLL_CLOEXEC)) != -1);
    NEED(epoll_ctl(ep, EPOLL_CTL_ADD, peer, &ee) == 0);
    NEED(send(fd, "hello", 5, MSG_NOSIGNAL) == 5);
    NEED(epoll_wait(ep, &ee, 1, 5000) == 1);
    NEED(pipe2(pipes, O_CLOEXEC | O_NONBLOCK) == 0);
    NEED(splice(peer, NULL, pipes[1], NULL, 5, SPLICE_F_NONBLOCK) == 5);
    NEED(splice(pipes[0], NULL, peer, NULL, 5, SPLICE_F_NONBLOCK) == 5);
    NEED(recv(fd, buf, sizeof(buf), MSG_PEEK) == 5);
    NEED(shutdown(fd, SHUT_WR) == 0);
    NEED(fcntl(fd, F_SETFL, O_NONBLOCK) == 0);
    NEED(close(fd) == 0 && close(peer) == 0);
    NEED((fd = socket(AF_INET6, SOCK_DGRAM, 0)) != -1);
    NEED(close(fd) == 0);
    NEED((fd = socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE)) != -1);
    NEED(sendto(fd, &request, sizeof(request), 0, (struct sockaddr *) &nl,
                sizeof(nl))
         == sizeof(request));
    NEED(recv(fd, told, sizeof(told), 0) > 0);
    NEED(clock_gettime(CLOCK_MONOTONIC, &ts) == 0);
    NEED(syscall(SYS_getrandom, buf, sizeof(buf), 0) == sizeof(buf));
    NEED(pread(4, buf, 1, 0) >= 0);
    NEED(dprintf(STDERR_FILENO, "# confined\n") > 0);
    free(malloc(1 << 22));

    return 0;
}


typedef struct {
    const char  *name;
    void       (*try)(void);
} forbidden_t;

#define TRY(name, ...)                                                        \
    static void name(void) { if (__VA_ARGS__) { told_size = 0; } }

TRY(try_open, open("/", O_RDONLY))
TRY(try_openat, syscall(SYS_openat, AT_FDCWD, "/etc/ssl", O_RDONLY, 0))
TRY(try_openat2, syscall(SYS_openat2, AT_FDCWD, "/", NULL, 0))
TRY(try_stat, syscall(SYS_newfstatat, AT_FDCWD, "/", told, 0))
TRY(try_readlink, readlink("/proc/self/exe", told, 10))
TRY(try_exec, execl("/usr/bin/true", "true", (char *) NULL))
TRY(try_execveat, syscall(SYS_execveat, 3, "", NULL, NULL, AT_EMPTY_PATH))
TRY(try_fork, syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0))
TRY(try_thread, syscall(SYS_clone3, NULL, 0))
TRY(try_ptrace, ptrace(PTRACE_TRACEME, 0, 0, 0))
TRY(try_kill, kill(0, SIGKILL))
TRY(try_unix, socket(AF_UNIX, SOCK_STREAM, 0))
TRY(try_unix_pair, socketpair(AF_UNIX, SOCK_STREAM, 0, (int[2]) { 0 }))
TRY(try_raw, socket(AF_INET, SOCK_RAW, IPPROTO_ICMP))
TRY(try_packet, socket(AF_PACKET, SOCK_DGRAM, 0))
TRY(try_netfilter, socket(AF_NETLINK, SOCK_RAW, NETLINK_NETFILTER))
TRY(try_vsock, socket(40, SOCK_STREAM, 0))
TRY(try_alg, socket(38, SOCK_SEQPACKET, 0))
TRY(try_bind, bind(6, NULL, 0))
TRY(try_listen, listen(6, 1))
TRY(try_filter, setsockopt(6, SOL_SOCKET, 26, NULL, 0))
TRY(try_bpf_filter, setsockopt(6, SOL_SOCKET, 50, NULL, 0))
TRY(try_ulp, setsockopt(6, IPPROTO_TCP, 31, "tls", 3))
TRY(try_ip_options, setsockopt(6, IPPROTO_IP, IP_OPTIONS, NULL, 0))
TRY(try_code, mmap(NULL, 4096, PROT_READ | PROT_EXEC,
                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == NULL)
TRY(try_make_code, mprotect(told, 1, PROT_READ | PROT_EXEC))
TRY(try_memfd, syscall(SYS_memfd_create, "x", 0))
TRY(try_unshare, unshare(CLONE_NEWUSER))
TRY(try_setns, setns(3, 0))
TRY(try_bpf, syscall(SYS_bpf, 0, NULL, 0))
TRY(try_io_uring, syscall(425, 1, NULL))
TRY(try_prctl, prctl(PR_SET_DUMPABLE, 1, 0, 0, 0))
TRY(try_pidfd, syscall(SYS_pidfd_open, 1, 0))
TRY(try_ioctl, syscall(SYS_ioctl, 0, 0x5412 /* TIOCSTI */, told))
TRY(try_limits, syscall(SYS_prlimit64, 2, RLIMIT_CORE, NULL, NULL))
TRY(try_setuid, setuid(0))
TRY(try_empty, ftruncate(4, 0))
TRY(try_write_over, pwrite(4, "key", 3, 0))
TRY(try_append, fcntl(STDERR_FILENO, F_SETFL, 0))
TRY(try_dup, fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 10))
TRY(try_dup2, dup2(STDERR_FILENO, 10))

#define ROW(name)  { #name, try_ ## name }

static const forbidden_t  forbidden[] = {
    ROW(open), ROW(openat), ROW(openat2), ROW(stat), ROW(readlink),
    ROW(exec), ROW(execveat), ROW(fork), ROW(thread), ROW(ptrace),
    ROW(kill), ROW(unix), ROW(unix_pair), ROW(raw), ROW(packet),
    ROW(netfilter), ROW(vsock), ROW(alg), ROW(bind), ROW(listen),
    ROW(filter), ROW(bpf_filter), ROW(ulp), ROW(ip_options), ROW(code),
    ROW(make_code), ROW(memfd), ROW(unshare), ROW(setns), ROW(bpf),
    ROW(io_uring), ROW(prctl), ROW(pidfd), ROW(ioctl), ROW(limits),
    ROW(setuid), ROW(empty), ROW(write_over), ROW(append), ROW(dup),
    ROW(dup2)
};


static int
confined(int (*needed)(void), void (*try)(void))
{
    int          status;
    pid_t        pid;
    sbx_error_t  e;

    pid = fork();

    if (pid == 0) {
        if (sbx_egress_confine(&e) == -1) {
            _exit(255);
        }

        if (needed != NULL) {
            _exit(needed() % 250);
        }

        try();
        _exit(0);
    }

    status = -1;
    (void) waitpid(pid, &status, 0);

    return status;
}


static int
egress_main(void)
{
    int                 fd, status;
    size_t              i;
    struct sockaddr_in  sa;

    say_what_is();

    memset(&sa, 0, sizeof(sa));
    sa.sin_family = AF_INET;
    sa.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    fd = socket(AF_INET, SOCK_STREAM, 0);

    if (fd != 6 || bind(fd, (struct sockaddr *) &sa, sizeof(sa)) == -1
        || listen(fd, 5) == -1)
    {
        say("no listener: %d, %s\n", fd, strerror(errno));
    }

    /* its key, which is written before */

    if (pwrite(4, "key", 3, 0) != 3) {
        say("no key: %s\n", strerror(errno));
    }

    status = confined(do_all_that_is_needed, NULL);
    say("needed: %s %d\n", WIFSIGNALED(status) ? "signal" : "line",
        WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));

    for (i = 0; i < sbx_nelts(forbidden); i++) {
        status = confined(NULL, forbidden[i].try);
        say("%s: %s\n", forbidden[i].name,
            WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS
            ? "killed" : "not killed");
    }

    (void) send(3, told, told_size, 0);
    (void) recv(3, told, 1, 0);

    return 0;
}


/*
 * ---- tests -----------------------------------------------------------------
 */

static unsigned
descriptors(void)
{
    DIR       *dir;
    unsigned   n;

    n = 0;
    dir = opendir("/proc/self/fd");

    while (dir != NULL && readdir(dir) != NULL) {
        n++;
    }

    if (dir != NULL) {
        (void) closedir(dir);
    }

    return n;
}


static int
has(const char *line, const char *name)
{
    if (!ok(strstr(told, line) != NULL, "%s", name)) {
        printf("# no line: %s\n", line);
        return 0;
    }

    return 1;
}


static void
test_what_it_is(const char *mounts)
{
    char          line[128], now[65536];
    const char   *root;

    static const char  *may_be[] = {
        "usr", "lib", "lib32", "lib64", "etc", "dev", "proc"
    };
    size_t        i, seen;
    unsigned      there;

    (void) snprintf(line, sizeof(line), "ids %u %u %u %u, groups 0\n",
                    EGRESS_UID, EGRESS_UID, EGRESS_UID, EGRESS_UID);
    has(line, "it has ids of its own and no group");
    has("pid 1, session 1, highest descriptor 5\n",
        "it is alone in its namespace, and has three descriptors");
    has("new privileges 1\n", "nothing gives it privileges");
    has("files 4321\n", "it may open as many files as was said");
    has("core 0\n", "it leaves no core");
    has("CapEff:\t0000000000000000\n", "it has no capability");
    has("CapPrm:\t0000000000000000\n", "nor one to be had");
    has("CapInh:\t0000000000000000\n", "nor one to be left");
    has("environment empty\n", "its environment is empty");
    has("write -1 -1\n", "it cannot write to its root");
    has("shadow -1\n", "the host's files are not there");

    if (access("/etc/ssl/certs", R_OK) == 0) {
        has("certificates 0\n", "but certificates are");
    }

    seen = there = 0;

    for (root = told; (root = strstr(root, "root has ")) != NULL; seen++) {
        root += sizeof("root has ") - 1;

        for (i = 0; i < sbx_nelts(may_be); i++) {
            there += strncmp(root, may_be[i], strlen(may_be[i])) == 0
                     && root[strlen(may_be[i])] == '\n';
        }
    }

    ok(seen >= 4 && seen == there, "and nothing else of the host: %u of %u",
       there, (unsigned) seen);

    (void) sbx_read_at(AT_FDCWD, "/proc/self/mounts", now, sizeof(now));
    ok(strcmp(now, mounts) == 0, "the caller's mounts are as they were");
}


static void
test_what_it_may(void)
{
    char    line[64];
    size_t  i;

    has("needed: line 0\n", "confined, it can do what it is there for");

#ifdef __SANITIZE_ADDRESS__
    skip("a sanitizer calls more than the program does", "the filter");
    return;
#endif

    for (i = 0; i < sbx_nelts(forbidden); i++) {
        (void) snprintf(line, sizeof(line), "\n%s: killed\n",
                        forbidden[i].name);
        (void) ok(strstr(told, line) != NULL, "killed for: %s",
                  forbidden[i].name);
    }
}


static int
egress_test(void)
{
    int                  pair[2], pidfd;
    char                 key[8];
    pid_t                pid;
    ssize_t              n;
    unsigned             before;
    sbx_error_t          e;
    struct pollfd        pfd;
    sbx_egress_launch_t  launch;

    static char          mounts[65536];

    if (sbx_caps_reduce_broker(&e) == -1) {
        ok(0, "a broker's capabilities: %s", e.text);
        return done_testing();
    }

    before = descriptors();
    (void) sbx_read_at(AT_FDCWD, "/proc/self/mounts", mounts, sizeof(mounts));

    memset(&launch, 0, sizeof(launch));
    launch.uid = EGRESS_UID;
    launch.log = 2;
    launch.open_files = 4321;
    launch.ca = memfd_create("ca", MFD_CLOEXEC);
    launch.cert = memfd_create("cert", MFD_CLOEXEC);

    if (sbx_init_exe("/proc/self/exe", &launch.exe, &e) == -1
        || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == -1)
    {
        ok(0, "set up: %s", e.text);
        return done_testing();
    }

    launch.control = pair[1];
    pid = -1;
    pidfd = -1;

    if (!ok(sbx_egress_launch(&launch, &pid, &pidfd, &e) == 0,
            "it is started"))
    {
        printf("# %s: %s\n", e.text, strerror(e.err));
        return done_testing();
    }

    (void) close(pair[1]);

    pfd.fd = pair[0];
    pfd.events = POLLIN;
    n = poll(&pfd, 1, EGRESS_WAIT) == 1
        ? recv(pair[0], told, sizeof(told) - 1, 0) : -1;

    if (ok(n > 0, "and runs")) {
        told[n] = '\0';
        test_what_it_is(mounts);
        test_what_it_may();

        n = pread(launch.ca, key, sizeof(key), 0);
        ok(n == 3 && memcmp(key, "key", 3) == 0,
           "what it writes of its key is kept");
    }

    /* nobody has the other end: it ends of itself */

    (void) close(pair[0]);
    pfd.fd = pidfd;
    ok(poll(&pfd, 1, EGRESS_WAIT) == 1, "it ends with its control socket");
    (void) close(pidfd);

    launch.uid = 0;
    ok(sbx_egress_launch(&launch, &pid, &pidfd, &e) == -1
       && e.code == SBX_E_INVALID, "it is never root");

    (void) close(launch.exe);
    (void) close(launch.ca);
    (void) close(launch.cert);
    is_int(descriptors(), before, "no descriptor is left");

    return done_testing();
}


int
main(int argc, char **argv)
{
    int    status, result;
    pid_t  pid, got;

    (void) argc;

    if (strcmp(argv[0], "sandbox-egress") == 0) {
        return egress_main();
    }

    if (geteuid() != 0) {
        return skip_all("needs root");
    }

    /* the keeper's stand-in: what the test launches is this one's child */

    (void) fflush(stdout);
    pid = fork();

    if (pid == 0) {
        exit(egress_test());
    }

    result = 255;

    for ( ;; ) {
        got = waitpid(-1, &status, 0);

        if (got == -1) {
            return result;
        }

        if (got == pid) {
            result = WIFEXITED(status) ? WEXITSTATUS(status) : 254;
        }
    }
}
