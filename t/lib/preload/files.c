/*
 * Loaded into a broker: it may open as many descriptors as the file that
 * FILES_AS names says at that moment, in eight bytes.  So it can be given more
 * by who may raise no limit.
 */

#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>


static const volatile uint64_t  *most;


__attribute__((constructor)) static void
look(void)
{
    int          fd;
    void        *p;
    const char  *name;

    name = getenv("FILES_AS");

    if (name == NULL) {
        return;
    }

    fd = open(name, O_RDONLY | O_CLOEXEC);

    if (fd == -1) {
        return;
    }

    p = mmap(NULL, sizeof(*most), PROT_READ, MAP_SHARED, fd, 0);
    (void) close(fd);

    if (p != MAP_FAILED) {
        most = p;
    }
}


int
getrlimit(__rlimit_resource_t resource, struct rlimit *limit)
{
    if (syscall(SYS_prlimit64, 0, (int) resource, NULL, limit) == -1) {
        return -1;
    }

    if ((int) resource == RLIMIT_NOFILE && most != NULL) {
        limit->rlim_cur = *most;
        limit->rlim_max = *most;
    }

    return 0;
}
