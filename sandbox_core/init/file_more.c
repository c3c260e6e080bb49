/*
 * What SBX_FILE_F_MORE adds to an entry: where a link leads in the end, and
 * metadata.  Of a link both are of what it leads to.
 */

#include "init_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>


static int sbx_init_more_link(int dirfd, const char *name,
    sbx_init_more_t *more);
static void sbx_init_more_text(int dirfd, sbx_init_more_t *more);


static char  sbx_init_more_target[SBX_PATH_MAX + 64];
static char  sbx_init_more_metadata[SBX_FILE_METADATA_MAX];


void
sbx_init_more_look(sbx_init_serve_t *s, int dirfd, const char *name,
    const struct stat *st, sbx_init_more_t *more)
{
    mode_t       mode;
    sbx_auto_fd  fd = -1;
    struct stat  target;

    mode = st->st_mode;

    if (S_ISLNK(mode)) {
        fd = sbx_init_more_link(dirfd, name, more);

        if (fd == -1 || fstat(fd, &target) == -1) {
            return;
        }

        mode = target.st_mode;

    } else if (S_ISREG(mode) || S_ISDIR(mode)) {
        fd = sbx_init_open_at(dirfd, name, O_PATH|O_NOFOLLOW);
    }

    if (fd != -1 && (S_ISREG(mode) || S_ISDIR(mode))) {
        more->metadata = sbx_init_more_metadata;
        more->metadata_len = sbx_init_meta_read(s, fd,
                                                sbx_init_more_metadata);
    }
}


/* What it leads to, opened; -1: to nowhere. */

static int
sbx_init_more_link(int dirfd, const char *name, sbx_init_more_t *more)
{
    sbx_auto_fd  fd = -1;
    struct stat  st;

    more->target_type = SBX_TYPE_NONE;
    fd = sbx_init_open_at(dirfd, name, O_PATH);

    /* one without a name is gone, and its path would be another's */

    if (fd == -1 || fstat(fd, &st) == -1 || st.st_nlink == 0) {
        sbx_init_more_text(dirfd, more);
        return -1;
    }

    more->target_type = sbx_init_entry_type(st.st_mode);
    more->target_mode = st.st_mode & 07777;

    if (sbx_init_real(fd, sbx_init_more_target, SBX_PATH_MAX, NULL) != 0) {
        sbx_init_more_text(dirfd, more);

    } else {
        more->target = sbx_init_more_target;
        more->target_len = strlen(sbx_init_more_target);
    }

    return sbx_steal_fd(&fd);
}


/* The link's own text, from where it is. */

static void
sbx_init_more_text(int dirfd, sbx_init_more_t *more)
{
    size_t  len;

    if (more->target_len == 0 || more->target[0] == '/'
        || sbx_init_real(dirfd, sbx_init_more_target, SBX_PATH_MAX, NULL)
           != 0)
    {
        return;
    }

    len = strlen(sbx_init_more_target);

    if (len > 1) {
        sbx_init_more_target[len++] = '/';
    }

    if (sbx_copy_string(sbx_init_more_target + len, SBX_PATH_MAX - len,
                        more->target, more->target_len)
        == 0)
    {
        more->target = sbx_init_more_target;
        more->target_len += len;
    }
}
