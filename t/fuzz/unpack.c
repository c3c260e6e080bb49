/*
 * Unpacking an archive into a directory that has something in it already.
 * The input is the entries, each a byte of its type, one of its mode, then
 * its name, its target and its bytes, with 0x1e after each; before them a
 * byte of where it is unpacked to, one of how it comes, and one of the step
 * at its end that fails.
 *
 * Whatever the entries are: nothing is touched that is not below the target;
 * if it fails, all is as it was; if it does not, each name is what its last
 * entry says, nothing else has changed, no link leads out of the archive; and
 * nothing hidden stays.
 */

#include "serve.h"
#include "tree.h"

#include <dirent.h>
#include <errno.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <zlib.h>

static int step_renameat(int from, const char *old, int to, const char *new);
static int step_linkat(int from, const char *old, int to, const char *new,
    int flags);
static int step_unlinkat(int dir, const char *path, int flags);
static long step_syscall(long number, int from, const char *old, int to,
    const char *new, unsigned flags);

#define setrlimit(what, limit)  0
#include "../../sandbox_core/init/file_unpack.c"
#undef setrlimit

#define renameat   step_renameat
#define linkat     step_linkat
#define unlinkat   step_unlinkat
#define syscall    step_syscall
#include "../../sandbox_core/init/file_unpack_move.c"
#undef renameat
#undef linkat
#undef unlinkat
#undef syscall


#define TREE_PATH     (SBX_TAR_PATH_MAX + 64)
#define ENTRIES       24
#define BYTES         TREE_BYTES
#define END           0x1e

static void begin(void);
static void tree_make(void);
static size_t tar_make(const uint8_t *p, size_t n);
static int unpack(const char *path, sbx_f_end_t *end, sbx_error_t *e);
static void check_same(tree_t *one, tree_t *two, const char *but);
static void check_names(tree_t *was, tree_t *is, const char *target);


static char              dir[64];
static int               root = -1;
static sbx_init_share_t  share;
static sbx_init_serve_t  serve;
static sbx_init_config_t config;
static uint8_t           archive[BYTES * 4];
static size_t            archive_len, archive_at, archive_part;
static unsigned          fails;        /* that step; 0: none */
static unsigned          moving;       /* the archive has been whole */
static tree_t            before, after;

static struct {
    sbx_tar_entry_t      entry;
    const uint8_t       *p;
} entries[ENTRIES];
static unsigned          nentries;

static const char  *const targets[] = {
    "/t", "/t/d", "/t/new", "/t/d/new/er", "/t/l", "/t/f", "/o/gone", "/t/d/"
};


int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int           rc;
    size_t        n;
    z_stream      z;
    const char   *target;
    sbx_error_t   e;
    sbx_f_end_t   end;

    static uint8_t  packed[sizeof(archive) + 1024];

    if (size < 3) {
        return 0;
    }

    if (root == -1) {
        begin();
    }

    target = targets[data[0] & 7];
    archive_len = tar_make(data + 3, size - 3);

    if (data[1] & 1) {
        memset(&z, 0, sizeof(z));
        must(deflateInit2(&z, 1, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY)
             == Z_OK);
        z.next_in = archive;
        z.avail_in = (uInt) archive_len;
        z.next_out = packed;
        z.avail_out = sizeof(packed);
        must(deflate(&z, Z_FINISH) == Z_STREAM_END);
        archive_len = z.total_out;
        (void) deflateEnd(&z);
        memcpy(archive, packed, archive_len);
    }

    /* its end, or a bit of it, may be missing */

    n = data[1] >> 4;

    if (data[1] & 2 && n * 64 < archive_len) {
        archive_len -= n * 64;
    }

    if (data[1] & 4) {
        archive[n * 100 % (archive_len + 1)] ^= 1;
    }

    archive_part = data[1] & 8 ? 97 : 65536;
    archive_at = 0;
    fails = data[2];
    moving = 0;

    tree_make();
    tree_read(&before, root, "");
    memset(&e, 0, sizeof(e));
    memset(&end, 0, sizeof(end));
    rc = unpack(target, &end, &e);
    tree_read(&after, root, "");
    must(share.temporary[0] == '\0');

    if (rc != 0) {
        must(e.code > SBX_OK && e.code < SBX_E_MAX && e.text[0] != '\0');
        check_same(&before, &after, NULL);
        check_same(&after, &before, NULL);

    } else {
        must(archive_at == archive_len + 1);
        check_same(&before, &after, data[0] & 7 ? target : "/t");

        if (!(data[1] & 6)) {
            check_names(&before, &after, target);
        }
    }

    tree_free(&before);
    tree_free(&after);
    tree_empty(root);

    return 0;
}


/* ---- a tree, and what is in it ------------------------------------------ */


static void
away(void)
{
    tree_empty(root);
    (void) rmdir(dir);
}


static void
begin(void)
{
    (void) snprintf(dir, sizeof(dir), "%s/sbx-fuzz-XXXXXX",
                    access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    must(mkdtemp(dir) != NULL);
    root = open(dir, O_PATH|O_DIRECTORY|O_CLOEXEC);
    must(root != -1);
    (void) atexit(away);
    (void) strcpy(config.workspace, "/t");
    sbx_init.config = &config;
    serve.share = &share;
    serve.root = root;
    (void) umask(022);
}


static void
file_make(const char *path, const char *text)
{
    int  fd;

    fd = openat(root, path, O_WRONLY|O_CREAT|O_EXCL|O_CLOEXEC, 0644);
    must(fd != -1
         && write(fd, text, strlen(text)) == (ssize_t) strlen(text));
    (void) close(fd);
}


static void
tree_make(void)
{
    must(mkdirat(root, "o", 0755) == 0 && mkdirat(root, "t", 0755) == 0
         && mkdirat(root, "t/d", 0755) == 0
         && mkdirat(root, "t/d/e", 0755) == 0);
    file_make("o/secret", "secret");
    file_make("t/f", "old f");
    file_make("t/a", "old a");
    file_make("t/d/x", "old x");
    must(symlinkat("d", root, "t/l") == 0
         && symlinkat("../o", root, "t/out") == 0
         && symlinkat("f", root, "t/d/s") == 0);
}


/* ---- the archive -------------------------------------------------------- */


static int
tar_write(void *data, const void *p, size_t n, sbx_error_t *e)
{
    size_t  *len = data;

    (void) e;
    must(n <= sizeof(archive) - *len);
    memcpy(archive + *len, p, n);
    *len += n;

    return 0;
}


/* A part of the input, to its end. */

static const uint8_t *
part(const uint8_t **p, size_t *n, size_t *len)
{
    const uint8_t  *from, *to;

    from = *p;
    to = memchr(from, END, *n);
    *len = to != NULL ? (size_t) (to - from) : *n;
    *p += *len + (to != NULL);
    *n -= *len + (to != NULL);

    return from;
}


static void
name_copy(char *to, const uint8_t *p, size_t n)
{
    n = n < SBX_TAR_PATH_MAX - 2 ? n : SBX_TAR_PATH_MAX - 2;
    n = strnlen((const char *) p, n);
    memcpy(to, p, n);
    to[n] = '\0';
}


static size_t
tar_make(const uint8_t *p, size_t n)
{
    size_t             len, made;
    sbx_error_t        e;
    const uint8_t     *from;
    sbx_tar_entry_t   *entry;
    sbx_tar_writer_t   writer;

    made = 0;
    must(sbx_tar_create(&writer, tar_write, &made, &e) == 0);

    for (nentries = 0; nentries < ENTRIES && n >= 3; /* void */ ) {
        entry = &entries[nentries].entry;
        memset(entry, 0, offsetof(sbx_tar_entry_t, path));
        entry->type = (sbx_tar_type_t) (p[0] & 3);
        entry->mode = p[1] * 2u;
        entry->mtime = p[1];
        p += 2;
        n -= 2;
        from = part(&p, &n, &len);
        name_copy(entry->path, from, len);
        from = part(&p, &n, &len);
        name_copy(entry->target, from, len);
        from = part(&p, &n, &len);
        entry->size = entry->type == SBX_TAR_FILE ? len : 0;
        entries[nentries].p = from;
        len = strlen(entry->path);

        /* what is written so is read as the same */

        if (len == 0 || made + 16384 + entry->size > sizeof(archive)
            || (entry->type >= SBX_TAR_SYMLINK && entry->target[0] == '\0')
            || (entry->type == SBX_TAR_FILE && entry->path[len - 1] == '/'))
        {
            continue;
        }

        if (entry->type == SBX_TAR_DIRECTORY && entry->path[len - 1] != '/')
        {
            (void) strcpy(entry->path + len, "/");
        }

        must(sbx_tar_add(&writer, entry, 1000, 1000, "user", &e) == 0);

        if (entry->size != 0) {
            must(sbx_tar_put(&writer, from, entry->size, &e) == 0);
        }

        nentries++;
    }

    must(sbx_tar_finish(&writer, &e) == 0);
    sbx_tar_destroy(&writer);

    return made;
}


/* As sbx_init_file_verb_unpack(), in a process that goes on. */

static int
unpack(const char *path, sbx_f_end_t *end, sbx_error_t *e)
{
    int                       rc;
    static sbx_init_unpack_t  u;

    memset(&u, 0, sizeof(u));
    u.base = u.hidden = u.stage = u.old = u.target = -1;
    u.s = &serve;
    u.e = e;
    u.end = end;
    serve.file.size = SBX_UNSET;
    serve.file.max = 1 << 20;
    (void) strcpy(serve.path, path);
    share.temporary[0] = share.staged[0] = '\0';

    rc = sbx_init_unpack_bound(e);

    if (rc == 0) {
        rc = sbx_init_unpack_begin(&u);
    }

    if (rc == 0) {
        rc = sbx_init_unpack_all(&u);
    }

    if (rc == 0) {
        moving = 1;
        rc = sbx_init_unpack_move(&u);
    }

    if (serve.share->temporary[0] != '\0'
        && sbx_init_tree_remove(&serve, u.base, u.name, NULL) == 0)
    {
        serve.share->temporary[0] = '\0';
    }

    if (u.gzip) {
        (void) inflateEnd(&u.z);
    }

    free(u.log);
    (void) close(u.base);
    (void) close(u.hidden);
    (void) close(u.stage);
    (void) close(u.old);
    (void) close(u.target);

    return rc;
}


/* ---- what came of it ---------------------------------------------------- */


/* What one has the other has, but below a path. */

static void
check_same(tree_t *one, tree_t *two, const char *but)
{
    size_t     n;
    name_t    *a, *b;
    unsigned   i;

    n = but != NULL ? strcspn(but + 1, "/") + 1 : 0;

    for (i = 0; i < one->n; i++) {
        a = &one->names[i];

        if (but != NULL && strncmp(a->path, but, n) == 0
            && (a->path[n] == '/' || a->path[n] == '\0'))
        {
            continue;
        }

        b = tree_find(two, a->path);

        if (b == NULL || a->type != b->type || a->mode != b->mode
            || a->size != b->size || memcmp(a->text, b->text, a->size) != 0)
        {
            (void) fprintf(stderr, "%s is not as it was\n", a->path);
            abort();
        }
    }
}


/* Of a name in an archive, what is left of it. */

static void
name_plain(const char *from, char *to)
{
    size_t  n;

    for (*to = '\0'; *from != '\0'; from += n + (from[n] == '/')) {
        n = strcspn(from, "/");

        if (n != 0 && !(n == 1 && *from == '.')) {
            must(!(n == 2 && memcmp(from, "..", 2) == 0));
            *to++ = '/';
            memcpy(to, from, n);
            to += n;
            *to = '\0';
        }
    }
}


/* Read as a path, it stays within. */

static void
link_within(const char *path, const char *target)
{
    int     depth;
    size_t  n;

    must(target[0] != '/' && target[0] != '\0');

    for (depth = -1; *path != '\0'; path++) {
        depth += *path == '/';
    }

    for ( /* void */ ; *target != '\0'; target += n + (target[n] == '/')) {
        n = strcspn(target, "/");

        if (n == 2 && memcmp(target, "..", 2) == 0) {
            must(--depth >= 0);

        } else if (n != 0 && !(n == 1 && *target == '.')) {
            depth++;
        }
    }
}


static void
check_names(tree_t *was, tree_t *is, const char *target)
{
    char                   plain[TREE_PATH], path[TREE_PATH * 2], *slash;
    name_t                *name, *other;
    unsigned               i, k;
    const sbx_tar_entry_t *entry;

    static char  last[ENTRIES][TREE_PATH];

    target = strcmp(target, "/t/l") == 0 ? "/t/d"
             : strcmp(target, "/t/d/") == 0 ? "/t/d" : target;

    for (i = 0; i < nentries; i++) {
        name_plain(entries[i].entry.path, plain);
        (void) snprintf(last[i], sizeof(last[i]), "%s", plain);
    }

    /* from the last on: what came before it of the same name is gone */

    for (i = nentries; i-- > 0; ) {
        entry = &entries[i].entry;
        (void) snprintf(path, sizeof(path), "%s%s", target, last[i]);
        name = tree_find(is, path);
        must(name != NULL);

        for (k = i + 1; k < nentries && strcmp(last[k], last[i]) != 0; k++) {
            /* void */
        }

        name->seen = 1;

        if (k < nentries) {
            continue;
        }

        switch (entry->type) {

        case SBX_TAR_FILE:
            must(name->type == S_IFREG && name->size == entry->size);
            must(memcmp(name->text, entries[i].p, name->size) == 0);
            must(name->mode == (entry->mode & 0777));
            break;

        case SBX_TAR_DIRECTORY:
            must(name->type == S_IFDIR);
            break;

        case SBX_TAR_SYMLINK:
            must(name->type == S_IFLNK
                 && strcmp(name->text, entry->target) == 0);
            link_within(last[i], entry->target);
            break;

        default:
            must(name->type == S_IFREG);
        }

        /* and what it is in, to the top */

        while ((slash = strrchr(path, '/')) != path) {
            *slash = '\0';
            name = tree_find(is, path);
            must(name != NULL && name->type == S_IFDIR);
            name->seen = 1;
        }
    }

    /* the target and what leads to it is there, in any case */

    (void) snprintf(path, sizeof(path), "%s", target);

    do {
        name = tree_find(is, path);
        must(name != NULL && name->type == S_IFDIR);
        name->seen = 1;
        slash = strrchr(path, '/');
        *slash = '\0';
    } while (slash != path);

    /* all else was there before, and is as it was */

    for (i = 0; i < is->n; i++) {
        name = &is->names[i];
        other = tree_find(was, name->path);
        must(name->seen || other != NULL);
        must(name->seen || (name->type == other->type
                            && name->mode == other->mode
                            && name->size == other->size
                            && memcmp(name->text, other->text, name->size)
                               == 0));
    }

    for (i = 0; i < was->n; i++) {
        must(tree_find(is, was->names[i].path) != NULL);
    }
}


/* ---- what it calls ------------------------------------------------------ */


/* One step of the end fails, as on a disk that is full by then. */

static int
step_fails(void)
{
    if (moving && fails != 0 && --fails == 0) {
        errno = ENOSPC;
        return 1;
    }

    return 0;
}


static int
step_renameat(int from, const char *old, int to, const char *new)
{
    return step_fails() ? -1 : renameat(from, old, to, new);
}


static int
step_linkat(int from, const char *old, int to, const char *new, int flags)
{
    return step_fails() ? -1 : linkat(from, old, to, new, flags);
}


static long
step_syscall(long number, int from, const char *old, int to,
    const char *new, unsigned flags)
{
    must(number == SYS_renameat2);

    return step_fails() ? -1 : syscall(number, from, old, to, new, flags);
}


/* An absolute path is one of the session's. */

static int
step_unlinkat(int at, const char *path, int flags)
{
    if (at == AT_FDCWD) {
        must(path[0] == '/');
        at = root;
        path++;
    }

    return unlinkat(at, path, flags);
}


int
sbx_init_serve_next(sbx_init_serve_t *s, sbx_frame_t *frame,
    const uint8_t **payload, sbx_error_t *e)
{
    size_t  n;

    must(s == &serve);
    (void) e;

    /* the last one is empty, and nobody asks for one after it */

    must(archive_at <= archive_len);
    n = archive_len - archive_at;
    n = n < archive_part ? n : archive_part;
    frame->type = SBX_F_DATA;
    frame->length = (uint32_t) n;
    frame->flags = 0;
    *payload = archive + archive_at;
    archive_at += n ? n : 1;

    return 0;
}


int
sbx_init_serve_frame(sbx_init_serve_t *s, sbx_frame_type_t type,
    const void *payload, size_t size, sbx_error_t *e)
{
    (void) payload;
    (void) e;
    must(s == &serve && type == SBX_F_READY && size == 0);

    return 0;
}
