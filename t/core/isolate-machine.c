/* What the machine is found to be able to do, and what is refused early. */

#include "isolate.h"

#include "in_child.h"
#include "tap.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/capability.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>


static char  state[] = "/tmp/sbx-state-XXXXXX";


static int
body_reduce(void)
{
    int          cap;
    cap_t        caps;
    uint64_t     kept;
    uint64_t     wanted;
    sbx_error_t  e;

    wanted =
        1ull << CAP_SYS_ADMIN | 1ull << CAP_SETUID | 1ull << CAP_SETGID
        | 1ull << CAP_CHOWN | 1ull << CAP_DAC_OVERRIDE | 1ull << CAP_FOWNER
        | 1ull << CAP_NET_ADMIN | 1ull << CAP_MKNOD | 1ull << CAP_SYS_CHROOT;

    if (prctl(PR_CAPBSET_READ, CAP_SYS_RESOURCE, 0, 0, 0) == 1) {
        wanted |= 1ull << CAP_SYS_RESOURCE;
    }

    if (sbx_caps_reduce_broker(&e) == -1) {
        return 1;
    }

    kept = 0;

    for (cap = 0; cap < 64; cap++) {
        if (prctl(PR_CAPBSET_READ, cap, 0, 0, 0) == 1) {
            kept |= 1ull << cap;
        }
    }

    if (kept != wanted) {
        return 2;
    }

    caps = cap_get_proc();

    for (cap = 0; cap < 41; cap++) {
        cap_flag_value_t  p, i;

        if (cap_get_flag(caps, cap, CAP_PERMITTED, &p) == -1
            || cap_get_flag(caps, cap, CAP_INHERITABLE, &i) == -1
            || (p == CAP_SET) != ((wanted >> cap) & 1) || i == CAP_SET)
        {
            return 3;
        }
    }

    (void) cap_free(caps);

    return prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1 ? 0 : 4;
}


static int
body_preflight_user(void)
{
    sbx_error_t  e;

    if (setgid(65534) == -1 || setuid(65534) == -1) {
        return 1;
    }

    return sbx_preflight(state, &e) == -1 && strstr(e.text, "root") != NULL
           ? 0 : 2;
}


static int
body_preflight_caps(void)
{
    cap_t        caps;
    cap_value_t  admin = CAP_SYS_ADMIN;
    sbx_error_t  e;

    caps = cap_get_proc();

    if (cap_set_flag(caps, CAP_EFFECTIVE, 1, &admin, CAP_CLEAR) == -1
        || cap_set_flag(caps, CAP_PERMITTED, 1, &admin, CAP_CLEAR) == -1
        || cap_set_proc(caps) == -1)
    {
        return 1;
    }

    (void) cap_free(caps);

    return sbx_preflight(state, &e) == -1
           && strstr(e.text, "cap_sys_admin") != NULL ? 0 : 2;
}


static void
test_exe(void)
{
    int          fd;
    char         path[128];
    struct stat  st;
    sbx_error_t  e;

    (void) snprintf(path, sizeof(path), "%s/init", state);
    fd = open(path, O_WRONLY|O_CREAT|O_EXCL|O_CLOEXEC, 0755);
    ok(fd != -1 && write(fd, "#!/bin/true\n", 12) == 12, "a program");
    (void) close(fd);

    ok(sbx_init_exe(path, &fd, &e) == 0, "is taken");
    ok(fstat(fd, &st) == 0 && (st.st_mode & 07777) == 0111 && st.st_uid == 0
       && st.st_size == 12, "as root's, to be executed and not read");
    ok(fcntl(fd, F_GET_SEALS) == (F_SEAL_SEAL|F_SEAL_SHRINK|F_SEAL_GROW
                                  |F_SEAL_WRITE), "sealed");
    ok(fcntl(fd, F_GETFD) == FD_CLOEXEC, "and closed by an exec");
    ok(write(fd, "x", 1) == -1 && errno == EPERM, "nobody writes it");
    (void) close(fd);

    (void) chmod(path, 0775);
    ok(sbx_init_exe(path, &fd, &e) == -1 && e.code == SBX_E_UNAVAILABLE,
       "one that a group may write is refused");
    (void) chmod(path, 0755);
    (void) !chown(path, 65534, 0);
    ok(sbx_init_exe(path, &fd, &e) == -1, "one of another user's too");
    (void) unlink(path);
    ok(sbx_init_exe(path, &fd, &e) == -1 && e.err == ENOENT
       && strstr(e.text, path) != NULL, "one that is not there is named");
    ok(sbx_init_exe(state, &fd, &e) == -1, "a directory is none");
}


static void
test_base(void)
{
    char         path[128], first[128], second[128];
    ssize_t      n;
    struct stat  st;
    sbx_error_t  e;

    (void) snprintf(path, sizeof(path), "%s/base", state);

    ok(sbx_base_prepare(state, &e) == 0, "the base is made");
    n = readlink(path, first, sizeof(first) - 1);
    first[n > 0 ? n : 0] = '\0';

    ok(sbx_base_prepare(state, &e) == 0, "and again");
    n = readlink(path, second, sizeof(second) - 1);
    second[n > 0 ? n : 0] = '\0';
    is_str(second, first, "it is the same");

    (void) snprintf(path, sizeof(path), "%s/base/etc/passwd", state);
    ok(stat(path, &st) == -1, "no account of the host is in it");
    (void) snprintf(path, sizeof(path), "%s/base/etc/ssl/private", state);
    ok(stat(path, &st) == -1, "and no key");
    (void) snprintf(path, sizeof(path), "%s/base/etc/ld.so.cache", state);
    ok(stat(path, &st) == 0 && st.st_mode == (S_IFREG|0444),
       "the loader's cache is");

    ok(sbx_base_prepare("/proc/nothing", &e) == -1
       && e.code == SBX_E_UNAVAILABLE, "a state directory must be there");
}


int
main(void)
{
    char          command[128];
    sbx_error_t   e;

    if (geteuid() != 0) {
        return skip_all("needs root");
    }

    if (mkdtemp(state) == NULL) {
        return skip_all("no directory below /tmp");
    }

    ok(sbx_preflight(state, &e) == 0, "this machine will do");
    ok(sbx_preflight("/proc/nothing", &e) == -1
       && strstr(e.text, "/proc/nothing") != NULL,
       "a state directory that is not writable is named");
    is_int(in_child(body_preflight_user), 0, "without root it is refused");
    is_int(in_child(body_preflight_caps), 0,
           "a capability that is missing is named");
    is_int(in_child(body_reduce), 0,
           "the broker keeps its capabilities and no more");

    test_exe();
    test_base();

    (void) snprintf(command, sizeof(command), "rm -rf %s", state);
    (void) !system(command);

    return done_testing();
}
