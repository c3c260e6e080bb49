/*
 * TAP for the C tests: ok(), is_int(), is_str(), skip(), done_testing().
 * A test program prints its plan last and returns done_testing().
 */

#ifndef SBX_TAP_H
#define SBX_TAP_H

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>


static int  tap_count;
static int  tap_failed;


static int __attribute__((format(printf, 2, 3), unused))
ok(int passed, const char *fmt, ...)
{
    va_list  args;

    tap_count++;

    printf("%sok %d - ", passed ? "" : "not ", tap_count);
    va_start(args, fmt);
    (void) vprintf(fmt, args);
    va_end(args);
    (void) putchar('\n');
    (void) fflush(stdout);

    if (!passed) {
        tap_failed++;
    }

    return passed;
}


static int __attribute__((unused))
is_int(int64_t got, int64_t expected, const char *name)
{
    if (!ok(got == expected, "%s", name)) {
        printf("# got %lld, expected %lld\n", (long long) got,
               (long long) expected);
        return 0;
    }

    return 1;
}


static int __attribute__((unused))
is_str(const char *got, const char *expected, const char *name)
{
    if (got == NULL) {
        got = "(null)";
    }

    if (!ok(strcmp(got, expected) == 0, "%s", name)) {
        printf("# got \"%s\", expected \"%s\"\n", got, expected);
        return 0;
    }

    return 1;
}


static void __attribute__((unused))
skip(const char *reason, const char *name)
{
    tap_count++;
    printf("ok %d - %s # SKIP %s\n", tap_count, name, reason);
}


/* A pid that was never learnt is -1, which would be everybody. */
static int __attribute__((unused))
tap_kill(pid_t pid, int sig)
{
    if (pid <= 1) {
        errno = ESRCH;
        return -1;
    }

    return kill(pid, sig);
}


/* Before anything else: the whole program is not for this machine. */
static int __attribute__((unused))
skip_all(const char *reason)
{
    printf("1..0 # SKIP %s\n", reason);
    return 0;
}


static int __attribute__((unused))
done_testing(void)
{
    printf("1..%d\n", tap_count);
    return tap_failed ? 1 : 0;
}


#endif
