/*
 * Makes system calls by number, each in a child of its own since some end in
 * a signal, with arguments that no call can do anything with:
 *
 *     numbers ENTRY FIRST[-LAST]...
 *
 * where ENTRY is "native", "x32" or "int80".  One line for each: the number,
 * and the errno's name, "ok", or the signal's name.
 */

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>


#define X32_BIT   0x40000000L


static long
numbers_native(long nr)
{
    return syscall(nr, -1L, -1L, -1L, -1L, -1L, -1L);
}


static long
numbers_x32(long nr)
{
    return syscall(nr | X32_BIT, -1L, -1L, -1L, -1L, -1L, -1L);
}


static long
numbers_int80(long nr)
{
#if defined(__x86_64__)
    long  rc;

    __asm__ volatile ("int $0x80"
                      : "=a" (rc)
                      : "a" (nr), "b" (-1L), "c" (-1L), "d" (-1L), "S" (-1L),
                        "D" (-1L)
                      : "memory", "r8", "r9", "r10", "r11");

    if (rc < 0 && rc > -4096) {
        errno = (int) -rc;
        return -1;
    }

    return rc;
#else
    (void) nr;
    errno = ENOSYS;
    return -1;
#endif
}


static const struct {
    const char  *name;
    long       (*run)(long nr);
} numbers_entries[] = {
    { "native", numbers_native },
    { "x32", numbers_x32 },
    { "int80", numbers_int80 }
};


static void
numbers_try(long (*run)(long nr), long nr)
{
    int    status;
    long   rc;
    pid_t  pid;

    (void) fflush(stdout);
    pid = fork();

    if (pid == 0) {
        (void) alarm(10);
        errno = 0;
        rc = run(nr);
        printf("%ld %s\n", nr, rc == -1 ? strerrorname_np(errno) : "ok");
        (void) fflush(stdout);
        _exit(0);
    }

    if (pid == -1 || waitpid(pid, &status, 0) != pid) {
        printf("%ld no-child\n", nr);

    } else if (WIFSIGNALED(status)) {
        printf("%ld SIG%s\n", nr, sigabbrev_np(WTERMSIG(status)));
    }
}


int
main(int argc, char **argv)
{
    int     i;
    char   *end;
    long    nr, last;
    size_t  k;

    for (k = 0; k < sizeof(numbers_entries) / sizeof(numbers_entries[0]);
         k++)
    {
        if (argc < 2 || strcmp(argv[1], numbers_entries[k].name) != 0) {
            continue;
        }

        for (i = 2; i < argc; i++) {
            nr = strtol(argv[i], &end, 10);
            last = (*end == '-') ? strtol(end + 1, NULL, 10) : nr;

            for (; nr <= last; nr++) {
                numbers_try(numbers_entries[k].run, nr);
            }
        }

        printf("done\n");
        return 0;
    }

    return 2;
}
