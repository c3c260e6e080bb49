/*
 * What a run may not do although a command of a session may: a session's
 * files are in memory and go with it, a run's workspace is a directory of
 * the host.  A program that it left there with the set-user-id bit would run
 * as the directory's owner for whoever starts it; so no mode with that bit or
 * the group's is ever set.  openat2() has its mode in memory, where a filter
 * cannot look, and is "not there".
 */

#include "box.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/stat.h>
#include <sys/syscall.h>


#define SBX_GUARD_BITS        (S_ISUID | S_ISGID)
#define SBX_GUARD_FCHMODAT2   452
#define SBX_GUARD_LANDLOCK    444     /* landlock_create_ruleset */
#define SBX_GUARD_ABSTRACT    0x01u   /* LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET */


static const struct {
    uint32_t  nr;
    uint32_t  arg;
} sbx_guard_modes[] = {
#ifdef SYS_chmod
    { SYS_chmod, 1 },
#endif
#ifdef SYS_open
    { SYS_open, 2 },
#endif
#ifdef SYS_creat
    { SYS_creat, 1 },
#endif
#ifdef SYS_mknod
    { SYS_mknod, 1 },
#endif
    { SYS_fchmod, 1 },
    { SYS_fchmodat, 2 },
    { SBX_GUARD_FCHMODAT2, 2 },
    { SYS_openat, 3 },
    { SYS_mknodat, 2 }
};


int
sbx_box_guard_load(void)
{
    size_t              i;
    unsigned            n;
    struct sock_filter  code[8 + 5 * sbx_nelts(sbx_guard_modes)];

    n = 0;

#define SBX_ADD(c, t, f, v)                                                  \
    code[n++] = (struct sock_filter) { (uint16_t) (c), (t), (f), (v) }

    SBX_ADD(BPF_LD | BPF_W | BPF_ABS, 0, 0,
            offsetof(struct seccomp_data, nr));
    SBX_ADD(BPF_JMP | BPF_JEQ | BPF_K, 0, 1, SYS_openat2);
    SBX_ADD(BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ERRNO | ENOSYS);

    for (i = 0; i < sbx_nelts(sbx_guard_modes); i++) {
        /* another call: on to the next pair; else it is decided here */

        SBX_ADD(BPF_JMP | BPF_JEQ | BPF_K, 0, 4, sbx_guard_modes[i].nr);
        SBX_ADD(BPF_LD | BPF_W | BPF_ABS, 0, 0,
                (uint32_t) (offsetof(struct seccomp_data, args)
                            + sbx_guard_modes[i].arg * sizeof(uint64_t)));
        SBX_ADD(BPF_JMP | BPF_JSET | BPF_K, 0, 1, SBX_GUARD_BITS);
        SBX_ADD(BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ERRNO | EPERM);
        SBX_ADD(BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW);
    }

    SBX_ADD(BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW);

#undef SBX_ADD

    return sbx_seccomp_load(code, n * sizeof(struct sock_filter));
}


/* Linux 6.12; the third word of the attribute is not in every header. */
static int
sbx_guard_rules(void)
{
    uint64_t  attr[3] = { 0, 0, SBX_GUARD_ABSTRACT };

    return (int) syscall(SBX_GUARD_LANDLOCK, attr, sizeof(attr), 0);
}


void
sbx_box_scope(void)
{
    sbx_auto_fd  rules = -1;

    rules = sbx_guard_rules();

    if (rules != -1) {
        (void) syscall(SYS_landlock_restrict_self, rules, 0);
    }
}


int
sbx_box_scope_known(void)
{
    sbx_auto_fd  rules = -1;

    rules = sbx_guard_rules();

    return rules != -1;
}
