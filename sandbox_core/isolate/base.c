/*
 * The lower layer of the built-in template, "<state>/base": mount points,
 * the links of a merged /usr, and copies of those files of the host's /etc
 * that programs need and that say nothing about the host.  Root's, read-only
 * to sessions, shared by all.
 *
 * It is built beside and put in place by a link, under a name that is a
 * digest of what it was built from: a broker that starts again finds it, and
 * one that finds the host changed leaves the old tree to the sessions that
 * still have it for their lower layer.
 */

#include "isolate_private.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>


#define SBX_BASE_FORMAT     1          /* changes with what is built here */
#define SBX_BASE_DEPTH      6
#define SBX_BASE_FILE_MAX   (8 * 1024 * 1024)
#define SBX_BASE_NAME       "base-"


/* Below /etc; patterns of one component each.  Never a file with accounts,
 * keys, registry addresses or the network's set-up. */
static const char  *sbx_base_etc[] = {
    "ImageMagick-*", "alternatives", "bindresvport.blacklist",
    "ca-certificates", "ca-certificates.conf", "debian_version",
    "dictionaries-common", "ethertypes", "fonts", "fpc*.cfg", "gai.conf",
    "gnucobol", "gprofng.rc", "groff", "inputrc", "java-*-openjdk",
    "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "locale.alias", "localtime",
    "lsb-release", "magic", "magic.mime", "manpath.config", "matplotlibrc",
    "mime.types", "os-release", "papersize", "perl", "protocols", "python3*",
    "rpc", "services", "sgml", "ssl", "terminfo", "texmf", "timezone", "xml"
};

/* Of some directories only these. */
static const char  *sbx_base_only[] = { "ssl/certs", "ssl/openssl.cnf" };

static const char  *sbx_base_points[] = {
    "dev", "etc", "proc", "run", "sys", "tmp", "usr", "var", "var/tmp"
};

static const struct {
    const char  *target;
    const char  *name;
} sbx_base_links[] = {
    { "../proc/self/mounts", "etc/mtab" },
    { "/run",                "var/run" },
    { "/run/lock",           "var/lock" }
};

static const char  *sbx_base_merged[] = {
    "bin", "sbin", "lib", "lib32", "lib64", "libx32"
};


typedef struct {
    int        out;                   /* -1: digest only */
    uint64_t   digest;
    char       path[PATH_MAX];        /* below /etc */
} sbx_base_t;


static int sbx_base_build(const char *state_dir, const char *name,
    sbx_error_t *e);
static int sbx_base_skeleton(int top, sbx_error_t *e);
static int sbx_base_walk(sbx_base_t *base, int dir, unsigned depth);
static int sbx_base_entry(sbx_base_t *base, int dir, const char *name,
    unsigned depth);
static int sbx_base_wanted(const char *path, unsigned depth);
static int sbx_base_file(const sbx_base_t *base, int dir, const char *name);
static int sbx_base_link(const sbx_base_t *base, int dir, const char *name);
static void sbx_base_digest(sbx_base_t *base, const void *data, size_t n);
static void sbx_base_forget(const char *state_dir, const char *keep);
static int sbx_base_remove(int dir, const char *name, unsigned depth);


int
sbx_base_prepare(const char *state_dir, sbx_error_t *e)
{
    char         name[32], path[PATH_MAX], target[64], next[PATH_MAX];
    size_t       i;
    ssize_t      n;
    struct stat  st;
    sbx_base_t   base;
    sbx_auto_fd  etc = -1;

    if (sbx_inside_prepare(e) == -1) {
        return -1;
    }

    memset(&base, 0, sizeof(base));
    base.out = -1;
    base.digest = 0xcbf29ce484222325u + SBX_BASE_FORMAT;

    for (i = 0; i < sbx_nelts(sbx_base_merged); i++) {
        (void) snprintf(path, sizeof(path), "/%s", sbx_base_merged[i]);
        n = readlink(path, target, sizeof(target));
        sbx_base_digest(&base, target, (n > 0) ? (size_t) n : 0);
    }

    etc = open("/etc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (etc == -1 || sbx_base_walk(&base, etc, 0) == -1) {
        return sbx_error(e, errno, SBX_E_UNAVAILABLE, "cannot read /etc");
    }

    (void) snprintf(name, sizeof(name), SBX_BASE_NAME "%016" PRIx64,
                    base.digest);

    if (snprintf(path, sizeof(path), "%s/%s", state_dir, name)
        >= (int) sizeof(path)
        || snprintf(next, sizeof(next), "%s/base.new", state_dir)
           >= (int) sizeof(next))
    {
        return sbx_error(e, 0, SBX_E_INVALID, "the state directory's name is "
                         "too long");
    }

    if (lstat(path, &st) == -1 && sbx_base_build(state_dir, name, e) == -1) {
        return -1;
    }

    (void) unlink(next);
    (void) snprintf(path, sizeof(path), "%s/base", state_dir);

    if (symlink(name, next) == -1 || rename(next, path) == -1) {
        return sbx_error(e, errno, SBX_E_UNAVAILABLE,
                         "cannot make \"%.180s\"", path);
    }

    sbx_base_forget(state_dir, name);

    return 0;
}


static int
sbx_base_build(const char *state_dir, const char *name, sbx_error_t *e)
{
    mode_t       mask;
    char         draft[64];
    int          rc;
    sbx_base_t   base;
    sbx_auto_fd  state = -1, top = -1, etc = -1;

    (void) snprintf(draft, sizeof(draft), ".%s", name);
    memset(&base, 0, sizeof(base));
    base.out = -1;

    state = open(state_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (state == -1) {
        return sbx_error(e, errno, SBX_E_UNAVAILABLE,
                         "cannot open the state directory \"%.150s\"",
                         state_dir);
    }

    (void) sbx_base_remove(state, draft, 0);

    mask = umask(0);
    rc = mkdirat(state, draft, 0755);

    if (rc == 0) {
        top = openat(state, draft, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        rc = (top == -1) ? -1 : sbx_base_skeleton(top, e);
    }

    if (rc == 0) {
        etc = open("/etc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        base.out = openat(top, "etc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        rc = (etc == -1 || base.out == -1) ? -1 : sbx_base_walk(&base, etc, 0);
    }

    if (base.out != -1) {
        (void) close(base.out);
    }

    (void) umask(mask);

    if (rc == -1 || renameat(state, draft, state, name) == -1) {
        return sbx_error(e, errno, SBX_E_UNAVAILABLE,
                         "cannot build the base template in \"%.150s\"",
                         state_dir);
    }

    return 0;
}


static int
sbx_base_skeleton(int top, sbx_error_t *e)
{
    char         path[64], target[64];
    size_t       i;
    ssize_t      n;
    struct stat  st;

    (void) e;

    for (i = 0; i < sbx_nelts(sbx_base_points); i++) {
        if (mkdirat(top, sbx_base_points[i], 0755) == -1) {
            return -1;
        }
    }

    for (i = 0; i < sbx_nelts(sbx_base_links); i++) {
        if (symlinkat(sbx_base_links[i].target, top, sbx_base_links[i].name)
            == -1)
        {
            return -1;
        }
    }

    for (i = 0; i < sbx_nelts(sbx_base_merged); i++) {
        (void) snprintf(path, sizeof(path), "/%s", sbx_base_merged[i]);

        if (lstat(path, &st) == -1) {
            continue;
        }

        n = readlink(path, target, sizeof(target) - 1);

        if (n > 0) {
            target[n] = '\0';
            n = symlinkat(target, top, sbx_base_merged[i]);

        } else {
            n = mkdirat(top, sbx_base_merged[i], 0755);
        }

        if (n == -1) {
            return -1;
        }
    }

    return 0;
}


/* Copies, or only digests, what is wanted of one directory. */
static int
sbx_base_walk(sbx_base_t *base, int dir, unsigned depth)
{
    int              i, n, rc;
    char             self[32];
    struct dirent  **entries;

    (void) snprintf(self, sizeof(self), "/proc/self/fd/%d", dir);

    /* sorted, so that the digest does not depend on the file system */

    n = scandir(self, &entries, NULL, alphasort);
    if (n == -1) {
        return -1;
    }

    rc = 0;

    for (i = 0; i < n; i++) {
        if (rc == 0 && strcmp(entries[i]->d_name, ".") != 0
            && strcmp(entries[i]->d_name, "..") != 0)
        {
            rc = sbx_base_entry(base, dir, entries[i]->d_name, depth);
        }

        free(entries[i]);
    }

    free(entries);

    return rc;
}


static int
sbx_base_entry(sbx_base_t *base, int dir, const char *name, unsigned depth)
{
    int          rc;
    size_t       len;
    struct stat  st;
    sbx_auto_fd  sub = -1;

    len = strlen(base->path);

    if (snprintf(base->path + len, sizeof(base->path) - len, "%s%s",
                 len ? "/" : "", name)
        >= (int) (sizeof(base->path) - len))
    {
        base->path[len] = '\0';
        return 0;
    }

    rc = 0;

    /* what others may not read on the host, a session does not see */

    if (!sbx_base_wanted(base->path, depth)
        || fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == -1
        || (!S_ISLNK(st.st_mode) && !(st.st_mode & S_IROTH)))
    {
        goto done;
    }

    sbx_base_digest(base, base->path, strlen(base->path) + 1);
    sbx_base_digest(base, &st.st_mtim, sizeof(st.st_mtim));
    sbx_base_digest(base, &st.st_size, sizeof(st.st_size));
    sbx_base_digest(base, &st.st_mode, sizeof(st.st_mode));

    if (S_ISDIR(st.st_mode) && depth < SBX_BASE_DEPTH) {
        sub = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW
                                | O_CLOEXEC);

        if (sub == -1
            || (base->out != -1
                && mkdirat(base->out, base->path, 0755) == -1))
        {
            rc = -1;
            goto done;
        }

        rc = sbx_base_walk(base, sub, depth + 1);

    } else if (base->out != -1 && S_ISLNK(st.st_mode)) {
        rc = sbx_base_link(base, dir, name);

    } else if (base->out != -1 && S_ISREG(st.st_mode)
               && st.st_size <= SBX_BASE_FILE_MAX)
    {
        rc = sbx_base_file(base, dir, name);
    }

done:

    base->path[len] = '\0';

    return rc;
}


static int
sbx_base_wanted(const char *path, unsigned depth)
{
    size_t  i, len;

    if (depth == 0) {
        for (i = 0; i < sbx_nelts(sbx_base_etc); i++) {
            if (fnmatch(sbx_base_etc[i], path, 0) == 0) {
                return 1;
            }
        }

        return 0;
    }

    for (i = 0; i < sbx_nelts(sbx_base_only); i++) {
        len = strcspn(sbx_base_only[i], "/") + 1;

        if (strncmp(path, sbx_base_only[i], len) != 0) {
            continue;
        }

        /* below such a directory: the entry itself or what is under it */

        for ( /* void */ ; i < sbx_nelts(sbx_base_only); i++) {
            len = strlen(sbx_base_only[i]);

            if (strncmp(path, sbx_base_only[i], len) == 0
                && (path[len] == '\0' || path[len] == '/'))
            {
                return 1;
            }
        }

        return 0;
    }

    return 1;
}


static int
sbx_base_file(const sbx_base_t *base, int dir, const char *name)
{
    char         buf[16384];
    ssize_t      n;
    struct stat  st;
    sbx_auto_fd  in = -1, out = -1;

    in = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);

    if (in == -1 || fstat(in, &st) == -1 || !S_ISREG(st.st_mode)) {
        return 0;                     /* it has gone or changed since */
    }

    out = openat(base->out, base->path, O_WRONLY | O_CREAT | O_EXCL
                                        | O_CLOEXEC,
                 (st.st_mode & 0555) | 0444);
    if (out == -1) {
        return -1;
    }

    while ((n = read(in, buf, sizeof(buf))) > 0) {
        if (sbx_write_all(out, buf, (size_t) n) == -1) {
            return -1;
        }
    }

    return (n == 0) ? 0 : -1;
}


static int
sbx_base_link(const sbx_base_t *base, int dir, const char *name)
{
    char     target[PATH_MAX];
    ssize_t  n;

    n = readlinkat(dir, name, target, sizeof(target) - 1);

    if (n <= 0) {
        return 0;
    }

    target[n] = '\0';

    return symlinkat(target, base->out, base->path);
}


/* FNV-1a: names a version, keeps nobody out. */
static void
sbx_base_digest(sbx_base_t *base, const void *data, size_t n)
{
    const uint8_t  *p;

    for (p = data; n != 0; n--, p++) {
        base->digest = (base->digest ^ *p) * 0x100000001b3u;
    }
}


/* Earlier trees go once no session is left that may have one. */
static void
sbx_base_forget(const char *state_dir, const char *keep)
{
    DIR            *dir;
    char            path[PATH_MAX];
    unsigned        live;
    const char     *name;
    struct dirent  *entry;
    sbx_auto_fd     state = -1;

    (void) snprintf(path, sizeof(path), "%s/sessions", state_dir);

    live = 0;
    dir = opendir(path);

    if (dir != NULL) {
        while ((entry = readdir(dir)) != NULL) {
            live += (entry->d_name[0] != '.');
        }

        (void) closedir(dir);
    }

    dir = live ? NULL : opendir(state_dir);
    state = open(state_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (dir == NULL || state == -1) {
        if (dir != NULL) {
            (void) closedir(dir);
        }

        return;
    }

    while ((entry = readdir(dir)) != NULL) {
        name = entry->d_name;
        name += (name[0] == '.');         /* a draft that was not finished */

        if (strncmp(name, SBX_BASE_NAME, sizeof(SBX_BASE_NAME) - 1) == 0
            && strcmp(entry->d_name, keep) != 0)
        {
            (void) sbx_base_remove(state, entry->d_name, 0);
        }
    }

    (void) closedir(dir);
}


static int
sbx_base_remove(int dir, const char *name, unsigned depth)
{
    int             fd;
    DIR            *stream;
    struct dirent  *entry;

    if (unlinkat(dir, name, 0) == 0 || errno == ENOENT) {
        return 0;
    }

    fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    stream = (fd == -1) ? NULL : fdopendir(fd);

    if (stream == NULL) {
        if (fd != -1) {
            (void) close(fd);
        }

        return -1;
    }

    while (depth <= SBX_BASE_DEPTH + 2 && (entry = readdir(stream)) != NULL) {
        if (strcmp(entry->d_name, ".") != 0
            && strcmp(entry->d_name, "..") != 0)
        {
            (void) sbx_base_remove(fd, entry->d_name, depth + 1);
        }
    }

    (void) closedir(stream);

    return unlinkat(dir, name, AT_REMOVEDIR);
}
