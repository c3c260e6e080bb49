/*
 * Several files become one: written as an upload is, beside its place, and
 * taken away once it has its name.  Whatever fails before that leaves all as
 * it was.  That they can be taken away is looked at first, and each goes only
 * if its name still means what was read: the composed file may have the name
 * of one of them.
 */

#include "init_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>


#define SBX_INIT_COMPOSE_STEP   60         /* s for a piece */


typedef struct {
    const char   *path;
    dev_t         dev;                      /* of its name: a link's own */
    ino_t         inode;
} sbx_init_source_file_t;


typedef struct {
    sbx_init_source_file_t  *files;
    size_t                   n;
    uint64_t                 size;
} sbx_init_compose_t;


static int sbx_init_compose_look(sbx_init_serve_t *s, sbx_init_compose_t *c,
    sbx_error_t *e);
static int sbx_init_compose_open(sbx_init_serve_t *s,
    sbx_init_source_file_t *file, struct stat *st, sbx_error_t *e);
static int sbx_init_compose_copy(sbx_init_serve_t *s, sbx_init_put_t *put,
    sbx_init_source_file_t *file, sbx_error_t *e);
static int sbx_init_compose_remove(sbx_init_serve_t *s,
    const sbx_init_source_file_t *file, sbx_error_t *e);


int
sbx_init_file_verb_compose(sbx_init_serve_t *s, sbx_f_end_t *end,
    sbx_error_t *e)
{
    int                    rc;
    size_t                 i;
    sbx_init_compose_t     c;
    static sbx_init_put_t  put = { .dir = -1, .fd = -1 };

    if (s->file.max == 0) {
        s->file.max = SBX_UNSET;
    }

    if (sbx_init_compose_look(s, &c, e) != 0) {
        return -1;
    }

    s->file.size = c.size;

    if (sbx_init_put_open(s, &put, e) != 0) {
        return -1;
    }

    for (i = 0, rc = 0; i < c.n && rc == 0; i++) {
        rc = sbx_init_compose_copy(s, &put, &c.files[i], e);
    }

    if (rc == 0) {
        rc = sbx_init_put_end(s, &put, e);
    }

    if (rc != 0) {
        sbx_init_put_drop(s, &put);
        return -1;
    }

    for (i = 0; i < c.n && rc == 0; i++) {
        rc = sbx_init_compose_remove(s, &c.files[i], e);
    }

    if (rc != 0) {
        return -1;
    }

    end->created = !put.exists;
    end->size = put.size;
    end->count = c.n;

    return sbx_init_entry_of(s, put.dir, put.name, s->path, e);
}


/* All that can be known before a byte is written. */

static int
sbx_init_compose_look(sbx_init_serve_t *s, sbx_init_compose_t *c,
    sbx_error_t *e)
{
    int          fd;
    size_t       i;
    const char  *p, *end;
    struct stat  st;

    memset(c, 0, sizeof(sbx_init_compose_t));
    memset(&st, 0, sizeof(st));
    end = s->sources + s->file.path2_len;

    for (p = s->sources; p < end; p += strlen(p) + 1) {
        c->n++;
    }

    if (c->n == 0) {
        return sbx_error(e, 0, SBX_E_INVALID, "there is nothing to compose");
    }

    c->files = calloc(c->n, sizeof(sbx_init_source_file_t));

    if (c->files == NULL) {
        return sbx_init_errno(e, ENOMEM, "the sources");
    }

    for (p = s->sources, i = 0; p < end; p += strlen(p) + 1, i++) {
        if (strlen(p) >= SBX_PATH_MAX) {
            return sbx_init_errno(e, ENAMETOOLONG, "a source");
        }

        c->files[i].path = p;
        sbx_init_serve_alarm(s, SBX_INIT_COMPOSE_STEP);

        fd = sbx_init_compose_open(s, &c->files[i], &st, e);

        if (fd == -1) {
            return -1;
        }

        (void) close(fd);

        c->size += (uint64_t) st.st_size;

        if (c->size > s->file.max) {
            return sbx_error(e, 0, SBX_E_TOO_LARGE,
                             "the file would be larger than is allowed");
        }
    }

    return 0;
}


/* Its content, links followed.  What is remembered is of its own name. */

static int
sbx_init_compose_open(sbx_init_serve_t *s, sbx_init_source_file_t *file,
    struct stat *st, sbx_error_t *e)
{
    char         name[256];
    sbx_auto_fd  dir = -1, fd = -1;
    struct stat  own, in;

    if (sbx_init_parent(s, file->path, 0, name, &dir, e) != 0) {
        return -1;
    }

    if (fstatat(dir, name, &own, AT_SYMLINK_NOFOLLOW) == -1
        || fstatat(dir, "", &in, AT_EMPTY_PATH) == -1
        || faccessat(dir, ".", W_OK|X_OK, AT_EACCESS) == -1)
    {
        return sbx_init_errno(e, errno, "a source");
    }

    if ((in.st_mode & S_ISVTX) && geteuid() != 0
        && own.st_uid != geteuid() && in.st_uid != geteuid())
    {
        return sbx_init_errno(e, EPERM, "a source");
    }

    fd = sbx_init_open_at(dir, name, O_RDONLY|O_NONBLOCK|O_NOCTTY);

    if (fd == -1 || fstat(fd, st) == -1) {
        return sbx_init_errno(e, errno, "a source");
    }

    if (!S_ISREG(st->st_mode) || sbx_init_foreign(fd)) {
        return sbx_error(e, 0, SBX_E_FILE_TYPE,
                         "a source: it is no regular file");
    }

    file->dev = own.st_dev;
    file->inode = own.st_ino;

    return sbx_steal_fd(&fd);
}


static int
sbx_init_compose_copy(sbx_init_serve_t *s, sbx_init_put_t *put,
    sbx_init_source_file_t *file, sbx_error_t *e)
{
    ssize_t          n;
    sbx_auto_fd      fd = -1;
    struct stat      st;
    static uint8_t   buf[65536];

    fd = sbx_init_compose_open(s, file, &st, e);

    if (fd == -1) {
        return -1;
    }

    for ( ;; ) {
        sbx_init_serve_alarm(s, SBX_INIT_COMPOSE_STEP);

        n = read(fd, buf, sizeof(buf));

        if (n == 0) {
            return 0;
        }

        if (n == -1) {
            return sbx_init_errno(e, errno, "a source");
        }

        if (sbx_init_put_write(s, put, buf, (size_t) n, e) != 0) {
            return -1;
        }
    }
}


static int
sbx_init_compose_remove(sbx_init_serve_t *s,
    const sbx_init_source_file_t *file, sbx_error_t *e)
{
    int          rc;
    char         name[256];
    sbx_auto_fd  dir = -1;
    struct stat  st;

    if (sbx_init_parent(s, file->path, 0, name, &dir, NULL) != 0) {
        return 0;
    }

    if (sbx_init_serve_lock(e) != 0) {
        return -1;
    }

    rc = 0;

    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0
        && st.st_dev == file->dev && st.st_ino == file->inode
        && unlinkat(dir, name, 0) == -1 && errno != ENOENT)
    {
        rc = sbx_error(e, errno, SBX_E_DENIED,
                       "a source: it was composed, but cannot be removed");
    }

    sbx_init_serve_unlock();

    return rc;
}
