/*
 * Loaded into a process: now and then a call takes longer of the process's own
 * time, as any call does for which a virtual machine was not run for a while.
 * The file STALL names has seven numbers of eight bytes: one of how many calls
 * that send descriptors that is, or else of how many microseconds in calls
 * that send or receive whatever, and its own microseconds; how many calls
 * there were, and how many stalls; microseconds in calls since the last; 1 if
 * it is those that send "stall".
 */

#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>


enum { EVERY, EACH, MICROSECONDS, CALLS, STALLS, TIME, SAID, NUMBERS };


static volatile uint64_t  *stall;


__attribute__((constructor)) static void
look(void)
{
    int          fd;
    void        *p;
    const char  *name;

    name = getenv("STALL");

    if (name == NULL) {
        return;
    }

    fd = open(name, O_RDWR | O_CLOEXEC);

    if (fd == -1) {
        return;
    }

    p = mmap(NULL, NUMBERS * sizeof(uint64_t), PROT_READ | PROT_WRITE,
             MAP_SHARED, fd, 0);
    (void) close(fd);

    if (p != MAP_FAILED) {
        stall = p;
    }
}


static uint64_t
used(void)
{
    struct timespec  ts;

    (void) clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);

    return (uint64_t) ts.tv_sec * 1000000 + (uint64_t) ts.tv_nsec / 1000;
}


static void
wait_us(uint64_t us)
{
    uint64_t  until;

    until = used() + us;
    stall[STALLS]++;

    while (used() < until) { /* void */ }
}


/* What has begun then is over, and hit in proportion to how long it was. */

static void
passed(uint64_t began)
{
    stall[TIME] += used() - began;

    if (stall[TIME] >= stall[EACH]) {
        stall[TIME] = 0;
        wait_us(stall[MICROSECONDS]);
    }
}


/* Some of what was sent says so itself. */

static void
said(const struct iovec *iov, size_t n, ssize_t sent)
{
    size_t  i;

    if (stall[SAID] == 0 || sent <= 0) {
        return;
    }

    for (i = 0; i < n; i++) {
        if (memmem(iov[i].iov_base, iov[i].iov_len, "stall", 5) != NULL) {
            wait_us(stall[MICROSECONDS]);
            return;
        }
    }
}


ssize_t
sendmsg(int fd, const struct msghdr *msg, int flags)
{
    ssize_t          n;
    uint64_t         began;
    static ssize_t  (*next)(int, const struct msghdr *, int);

    if (next == NULL) {
        next = (ssize_t (*)(int, const struct msghdr *, int))
               dlsym(RTLD_NEXT, "sendmsg");
    }

    if (stall == NULL) {
        return next(fd, msg, flags);
    }

    began = used();
    n = next(fd, msg, flags);

    if (n <= 0 || msg->msg_controllen == 0) {
        said(msg->msg_iov, msg->msg_iovlen, n);

        if (stall[EACH] != 0) {
            passed(began);
        }

        return n;
    }

    stall[CALLS]++;

    if (stall[EVERY] != 0 && stall[CALLS] % stall[EVERY] == 0) {
        wait_us(stall[MICROSECONDS]);

    } else if (stall[EACH] != 0) {
        passed(began);
    }

    return n;
}


ssize_t
send(int fd, const void *p, size_t size, int flags)
{
    ssize_t          n;
    uint64_t         began;
    static ssize_t  (*next)(int, const void *, size_t, int);

    if (next == NULL) {
        next = (ssize_t (*)(int, const void *, size_t, int))
               dlsym(RTLD_NEXT, "send");
    }

    if (stall == NULL || stall[EACH] == 0) {
        return next(fd, p, size, flags);
    }

    began = used();
    n = next(fd, p, size, flags);
    passed(began);

    return n;
}


ssize_t
recv(int fd, void *p, size_t size, int flags)
{
    ssize_t          n;
    uint64_t         began;
    static ssize_t  (*next)(int, void *, size_t, int);

    if (next == NULL) {
        next = (ssize_t (*)(int, void *, size_t, int))
               dlsym(RTLD_NEXT, "recv");
    }

    if (stall == NULL || stall[EACH] == 0) {
        return next(fd, p, size, flags);
    }

    began = used();
    n = next(fd, p, size, flags);
    passed(began);

    return n;
}


ssize_t
writev(int fd, const struct iovec *iov, int n)
{
    ssize_t          sent;
    static ssize_t  (*next)(int, const struct iovec *, int);

    if (next == NULL) {
        next = (ssize_t (*)(int, const struct iovec *, int))
               dlsym(RTLD_NEXT, "writev");
    }

    sent = next(fd, iov, n);

    if (stall != NULL) {
        said(iov, (size_t) n, sent);
    }

    return sent;
}
