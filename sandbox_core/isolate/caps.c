/*
 * Capabilities: what the broker keeps for its life, and what a session's
 * process 1 keeps in the session's user namespace.
 */

#include "isolate_private.h"

#include <errno.h>
#include <sys/capability.h>
#include <sys/prctl.h>


/* Real root's: clone and mounts, ids of sessions, files owned by them, lo
 * and sysctls of a new network namespace, device nodes, pivot_root.  The
 * last, by which a session cannot better its standing when memory runs out,
 * is kept only where it is held. */
static const cap_value_t  sbx_caps_broker[] = {
    CAP_SYS_ADMIN, CAP_SETUID, CAP_SETGID, CAP_CHOWN, CAP_DAC_OVERRIDE,
    CAP_FOWNER, CAP_NET_ADMIN, CAP_MKNOD, CAP_SYS_CHROOT, CAP_SYS_RESOURCE
};

/* Valid against the session's own ids only.  KILL: init ends commands of
 * any of them.  SETPCAP: it empties their bounding sets.  Never SYS_ADMIN
 * (mounts) nor SYS_PTRACE (init's memory). */
static const cap_value_t  sbx_caps_init[] = {
    CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_FOWNER, CAP_SETUID, CAP_SETGID, CAP_KILL,
    CAP_SETPCAP
};


static int sbx_caps_keep(const cap_value_t *keep, size_t n, sbx_error_t *e);
static int sbx_caps_held(cap_value_t cap);


int
sbx_caps_reduce_broker(sbx_error_t *e)
{
    size_t  n;

    n = sbx_nelts(sbx_caps_broker);

    if (!sbx_caps_held(sbx_caps_broker[n - 1])) {
        n--;
    }

    if (sbx_caps_keep(sbx_caps_broker, n, e) == -1) {
        return -1;
    }

    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == -1) {
        return sbx_error(e, errno, SBX_E_INTERNAL,
                         "cannot set no_new_privs");
    }

    return 0;
}


static int
sbx_caps_held(cap_value_t cap)
{
    cap_t             caps;
    cap_flag_value_t  held;

    held = CAP_CLEAR;
    caps = cap_get_proc();

    if (caps != NULL) {
        (void) cap_get_flag(caps, cap, CAP_PERMITTED, &held);
        (void) cap_free(caps);
    }

    return held == CAP_SET;
}


int
sbx_caps_reduce_init(sbx_error_t *e)
{
    return sbx_caps_keep(sbx_caps_init, sbx_nelts(sbx_caps_init), e);
}


int
sbx_caps_drop_all(sbx_error_t *e)
{
    return sbx_caps_keep(NULL, 0, e);
}


static int
sbx_caps_keep(const cap_value_t *keep, size_t n, sbx_error_t *e)
{
    int          rc, cap;
    cap_t        caps;
    size_t       i;
    cap_value_t  one;

    for (cap = 0; ; cap++) {
        for (i = 0; i < n && keep[i] != cap; i++) { /* void */ }

        if (i != n || prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) == 0) {
            continue;
        }

        rc = prctl(PR_CAPBSET_READ, cap, 0, 0, 0);

        if (rc == -1) {
            break;                    /* past the kernel's last */
        }

        if (rc == 1) {
            return sbx_error(e, errno, SBX_E_UNAVAILABLE,
                             "cannot drop capability %d from the bounding "
                             "set: CAP_SETPCAP is needed at start", cap);
        }
    }

    (void) prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);

    caps = cap_init();
    if (caps == NULL) {
        return sbx_error(e, errno, SBX_E_INTERNAL, "no memory");
    }

    rc = 0;

    for (i = 0; i < n && rc == 0; i++) {
        one = keep[i];
        rc = cap_set_flag(caps, CAP_PERMITTED, 1, &one, CAP_SET);

        if (rc == 0) {
            rc = cap_set_flag(caps, CAP_EFFECTIVE, 1, &one, CAP_SET);
        }
    }

    if (rc == 0) {
        rc = cap_set_proc(caps);
    }

    (void) cap_free(caps);

    if (rc == -1) {
        return sbx_error(e, errno, SBX_E_UNAVAILABLE,
                         "a capability is missing: CHOWN, DAC_OVERRIDE, "
                         "FOWNER, MKNOD, NET_ADMIN, SETGID, SETUID, "
                         "SYS_ADMIN and SYS_CHROOT are needed");
    }

    return 0;
}
