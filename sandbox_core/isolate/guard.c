/*
 * Where files outlive whoever made them, in a directory of the host's, a
 * program with the set-user-id bit would run as the directory's owner for
 * whoever starts it.  So no mode with that bit or the group's is ever set
 * there: rules before those of a filter, for all files of who has loaded
 * them, since a filter sees no names.
 *
 * openat2() has its mode in memory, where a filter cannot look, and is "not
 * there" for commands; a file server, which finds its paths by it, keeps it.
 * What else takes a mode from memory (io_uring) has no filter's leave.  What
 * is written loses the bits by itself: nobody in a session has CAP_FSETID.
 */

#include "isolate_private.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>


#define SBX_GUARD_BITS        (S_ISUID | S_ISGID)
#define SBX_GUARD_FCHMODAT2   452
#define SBX_GUARD_ALWAYS      UINT32_MAX

/* The kernel looks at open's mode with one of these alone: without, there
 * may be anything in its place.  O_TMPFILE holds O_DIRECTORY as well. */
#define SBX_GUARD_MAKES       (O_CREAT | (O_TMPFILE & ~O_DIRECTORY))

#define SBX_GUARD_RULE_MAX    7             /* instructions */


static const struct {
    uint32_t  nr;
    uint32_t  mode;                         /* which argument */
    uint32_t  flags;                        /* open's, or ALWAYS */
} sbx_guard_modes[] = {
#ifdef SYS_chmod
    { SYS_chmod, 1, SBX_GUARD_ALWAYS },
#endif
#ifdef SYS_open
    { SYS_open, 2, 1 },
#endif
#ifdef SYS_creat
    { SYS_creat, 1, SBX_GUARD_ALWAYS },
#endif
#ifdef SYS_mknod
    { SYS_mknod, 1, SBX_GUARD_ALWAYS },
#endif
    { SYS_fchmod, 1, SBX_GUARD_ALWAYS },
    { SYS_fchmodat, 2, SBX_GUARD_ALWAYS },
    { SBX_GUARD_FCHMODAT2, 2, SBX_GUARD_ALWAYS },
    { SYS_openat, 3, 2 },
    { SYS_mknodat, 2, SBX_GUARD_ALWAYS }
};


static struct sock_filter *
sbx_guard_add(struct sock_filter *p, int code, uint32_t k, uint8_t jt,
    uint8_t jf)
{
    p->code = (uint16_t) code;
    p->k = k;
    p->jt = jt;
    p->jf = jf;

    return p + 1;
}


static struct sock_filter *
sbx_guard_load(struct sock_filter *p, size_t offset)
{
    return sbx_guard_add(p, BPF_LD | BPF_W | BPF_ABS, (uint32_t) offset, 0,
                         0);
}


/* The low half: little endian, and modes and flags are no larger. */
static struct sock_filter *
sbx_guard_argument(struct sock_filter *p, uint32_t arg)
{
    return sbx_guard_load(p, offsetof(struct seccomp_data, args)
                             + arg * sizeof(uint64_t));
}


/* Another call, and what is harmless, goes on behind the rule. */
static struct sock_filter *
sbx_guard_mode(struct sock_filter *p, size_t i)
{
    int  opens;

    opens = (sbx_guard_modes[i].flags != SBX_GUARD_ALWAYS);

    p = sbx_guard_load(p, offsetof(struct seccomp_data, nr));
    p = sbx_guard_add(p, BPF_JMP | BPF_JEQ | BPF_K, sbx_guard_modes[i].nr, 0,
                      opens ? 5 : 3);

    if (opens) {
        p = sbx_guard_argument(p, sbx_guard_modes[i].flags);
        p = sbx_guard_add(p, BPF_JMP | BPF_JSET | BPF_K, SBX_GUARD_MAKES, 0,
                          3);
    }

    p = sbx_guard_argument(p, sbx_guard_modes[i].mode);
    p = sbx_guard_add(p, BPF_JMP | BPF_JSET | BPF_K, SBX_GUARD_BITS, 0, 1);

    return sbx_guard_add(p, BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM, 0, 0);
}


int
sbx_seccomp_guard(sbx_guard_t whom, const void *program, size_t size,
    void **out, size_t *out_size, sbx_error_t *e)
{
    size_t               i, max;
    struct sock_filter  *code, *p;

    max = (sbx_nelts(sbx_guard_modes) * SBX_GUARD_RULE_MAX + 4)
          * sizeof(struct sock_filter);

    code = malloc(max + size);
    if (code == NULL) {
        return sbx_error(e, errno, SBX_E_INTERNAL, "no memory");
    }

    p = code;

    for (i = 0; i < sbx_nelts(sbx_guard_modes); i++) {
        p = sbx_guard_mode(p, i);
    }

    if (whom == SBX_GUARD_COMMAND) {
        p = sbx_guard_load(p, offsetof(struct seccomp_data, nr));
        p = sbx_guard_add(p, BPF_JMP | BPF_JEQ | BPF_K, SYS_openat2, 0, 1);
        p = sbx_guard_add(p, BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS, 0,
                          0);
    }

    if (size == 0) {
        p = sbx_guard_add(p, BPF_RET | BPF_K, SECCOMP_RET_ALLOW, 0, 0);

    } else {
        memcpy(p, program, size);
    }

    *out = code;
    *out_size = (size_t) (p - code) * sizeof(struct sock_filter) + size;

    return 0;
}


int
sbx_programs_choose(const sbx_plan_t *plan, sbx_programs_t *programs,
    sbx_error_t *e)
{
    size_t               size, files_size;
    unsigned             i;
    const void          *files;
    const sbx_launch_t  *launch;

    launch = plan->launch;
    size = launch->filter_size;

    /* commands inherit init's filter: the same one again would only cost, and
       may fail when others have used up the room for machine code */

    if (size == launch->init_filter_size
        && memcmp(launch->filter, launch->init_filter, size) == 0)
    {
        size = 0;
    }

    programs->filter = launch->filter;
    programs->filter_size = size;
    programs->files = launch->files_filter;
    programs->files_size = launch->files_filter_size;

    for (i = 0; i < plan->nbinds && !plan->binds[i].writable; i++) {
        /* void */
    }

    if (i == plan->nbinds) {
        return 0;
    }

    files = launch->filter;
    files_size = size;

    if (launch->files_filter_size != 0) {
        files = launch->files_filter;
        files_size = launch->files_filter_size;
    }

    if (sbx_seccomp_guard(SBX_GUARD_COMMAND, launch->filter, size,
                          &programs->own[0], &programs->filter_size, e)
            == -1
        || sbx_seccomp_guard(SBX_GUARD_FILES, files, files_size,
                             &programs->own[1], &programs->files_size, e)
           == -1)
    {
        return -1;
    }

    programs->filter = programs->own[0];
    programs->files = programs->own[1];

    return 0;
}


void
sbx_programs_free(sbx_programs_t *programs)
{
    free(programs->own[0]);
    free(programs->own[1]);
}
