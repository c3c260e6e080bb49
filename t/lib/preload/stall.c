/*
 * Loaded into a process: now and then a call that sends descriptors takes
 * longer of the process's own time, as any call does for which a virtual
 * machine was not run for a while.  The file STALL names has four numbers of
 * eight bytes: one of how many calls that is, and its microseconds; how many
 * there were, and of those how many were so.
 */

#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>


enum { EVERY, MICROSECONDS, CALLS, STALLS, NUMBERS };


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


ssize_t
sendmsg(int fd, const struct msghdr *msg, int flags)
{
    ssize_t          n;
    uint64_t         until;
    static ssize_t  (*next)(int, const struct msghdr *, int);

    if (next == NULL) {
        next = (ssize_t (*)(int, const struct msghdr *, int))
               dlsym(RTLD_NEXT, "sendmsg");
    }

    n = next(fd, msg, flags);

    if (n <= 0 || msg->msg_controllen == 0 || stall == NULL
        || stall[EVERY] == 0)
    {
        return n;
    }

    if (++stall[CALLS] % stall[EVERY] == 0) {
        until = used() + stall[MICROSECONDS];
        stall[STALLS]++;

        while (used() < until) { /* void */ }
    }

    return n;
}
