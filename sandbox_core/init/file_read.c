/*
 * Opening a file for a download, and telling of one file.
 */

#include "init_file.h"
#include "sandbox_fault.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>


int
sbx_init_file_verb_open(sbx_init_serve_t *s, sbx_f_end_t *end,
    sbx_error_t *e)
{
    char            path[SBX_PATH_MAX + 64];
    sbx_auto_fd     fd = -1;
    struct stat     st;
    static uint8_t  buf[3 * SBX_PATH_MAX];

    static const sbx_init_more_t  none;

    (void) end;

    /* a FIFO without a writer, or a device, must not hold us */

    fd = sbx_init_open(s, s->path, O_RDONLY|O_NONBLOCK|O_NOCTTY, e);

    if (fd == -1) {
        return -1;
    }

    if (fstat(fd, &st) == -1) {
        return sbx_init_errno(e, errno, "path");
    }

    if (!S_ISREG(st.st_mode) || sbx_init_foreign(fd)) {
        return sbx_error(e, 0, SBX_E_FILE_TYPE,
                         S_ISDIR(st.st_mode) ? "path: it is a directory"
                                             : "path: it is no regular file");
    }

    SBX_FAULT("file-open-opened");

    if (sbx_init_real(fd, path, sizeof(path), e) != 0
        || sbx_init_serve_fd(s, SBX_F_OPENED, buf,
                             sbx_init_entry_fill(buf, &st, path,
                                                 strlen(path), &none),
                             fd, e)
           != 0)
    {
        return -1;
    }

    /* init keeps the call open from here on */

    s->status = SBX_INIT_OPENED;
    SBX_FAULT("file-open-passed");

    return 0;
}


/* A link is told of as one; a path that ends in no name is a directory's. */

int
sbx_init_file_verb_stat(sbx_init_serve_t *s, sbx_f_end_t *end,
    sbx_error_t *e)
{
    char         path[SBX_PATH_MAX], name[256], *last;
    sbx_auto_fd  fd = -1;

    if (sbx_init_path(s->path, path, e) != 0) {
        return -1;
    }

    last = strrchr(path, '/') + 1;

    if (last[0] == '\0' || strcmp(last, ".") == 0 || strcmp(last, "..") == 0)
    {
        fd = sbx_init_open(s, path, O_PATH|O_DIRECTORY, e);

        if (fd == -1) {
            return -1;
        }

        name[0] = '.';
        name[1] = '\0';

    } else if (sbx_init_parent(s, path, 0, name, &fd, e) != 0) {
        return -1;
    }

    end->count = 1;

    return sbx_init_entry_of(s, fd, name, s->path, e);
}
