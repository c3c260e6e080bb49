/*
 * A private workspace and who removes it: a process that makes "<dir>/work",
 * waits for the end of the caller, however it comes, then for the end of the
 * runs (each holds a shared lock on <dir>), and removes both.
 *
 * What a command left may be deeper than any stack and any number of
 * descriptors: a directory that is not empty is moved up into <dir> and
 * waits there for its turn.
 */

#include "box.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>


static int sbx_keep_make(const sbx_box_t *box, sbx_box_answer_t *answer,
    int *dir);
static void sbx_keep_remove(int dir);
static void sbx_keep_unlock(int dir, const char *name);
static int sbx_keep_empty(int dir, const char *name, unsigned *number);


void
sbx_box_keep(const sbx_box_t *box)
{
    char              byte;
    sbx_auto_fd       dir = -1;
    sbx_box_answer_t  answer;

    memset(&answer, 0, sizeof(answer));
    answer.magic = SBX_BOX_MAGIC;
    answer.type = SBX_BOX_FAILED;

    if (sbx_keep_make(box, &answer, &dir) == 0) {
        answer.type = SBX_BOX_KEPT;
    }

    (void) send(SBX_BOX_SOCKET, &answer, sizeof(answer), MSG_NOSIGNAL);

    if (answer.type != SBX_BOX_KEPT) {
        return;
    }

    while (recv(SBX_BOX_SOCKET, &byte, 1, 0) == -1 && errno == EINTR) {
        /* void */
    }

    while (flock(dir, LOCK_EX) == -1 && errno == EINTR) { /* void */ }

    sbx_keep_remove(dir);
    *strrchr(answer.text, '/') = '\0';
    (void) rmdir(answer.text);
}


static int
sbx_keep_make(const sbx_box_t *box, sbx_box_answer_t *answer, int *dir)
{
    int        n;
    sbx_box_t  ids;

    n = snprintf(answer->text, sizeof(answer->text), "%s/sandbox-run-XXXXXX",
                 box->string[SBX_BOX_WORKSPACE]);

    if (n < 0 || (size_t) n + 6 >= sizeof(answer->text)
        || mkdtemp(answer->text) == NULL)
    {
        return sbx_error(&answer->error, errno, SBX_E_UNAVAILABLE,
                         "no private workspace can be made in \"%.150s\"",
                         box->string[SBX_BOX_WORKSPACE]);
    }

    *dir = open(answer->text, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (*dir == -1 || mkdirat(*dir, "work", 0700) == -1) {
        (void) sbx_error(&answer->error, errno, SBX_E_UNAVAILABLE,
                         "no private workspace can be made in \"%.150s\"",
                         box->string[SBX_BOX_WORKSPACE]);
        (void) rmdir(answer->text);
        return -1;
    }

    (void) strcat(answer->text, "/work");

    if (!box->root) {
        return 0;
    }

    /* where no idmapped mount is to be had, the runs are the owner: nobody */

    ids = *box;
    memset(&ids.spots, 0, sizeof(ids.spots));

    if (sbx_spot_add(&ids.spots, SBX_SPOT_WRITABLE, answer->text, NULL)
        != NULL)
    {
        struct stat  st;

        if (fstatat(*dir, "work", &st, 0) == 0) {
            ids.spots.elts[0].dev = st.st_dev;
            ids.spots.elts[0].ino = st.st_ino;
        }

        if (sbx_box_ids(&ids, &answer->error) == -1) {
            (void) !fchownat(*dir, "work", SBX_BOX_UID_BASE
                                           + (uid_t) getpid(),
                             SBX_BOX_UID_BASE + (gid_t) getpid(),
                             AT_SYMLINK_NOFOLLOW);
        }

        if (ids.spots.elts[0].tree != -1) {
            (void) close(ids.spots.elts[0].tree);
        }

        free(ids.spots.elts[0].path);
        free(ids.spots.elts);
    }

    return 0;
}


/* Until a pass finds nothing that it can do. */
static void
sbx_keep_remove(int dir)
{
    int             fd, done;
    DIR            *list;
    unsigned        number;
    struct dirent  *entry;

    number = 0;

    do {
        done = 0;
        fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        list = fd == -1 ? NULL : fdopendir(fd);

        if (list == NULL) {
            if (fd != -1) {
                (void) close(fd);
            }

            return;
        }

        while ((entry = readdir(list)) != NULL) {
            if (strcmp(entry->d_name, ".") == 0
                || strcmp(entry->d_name, "..") == 0)
            {
                continue;
            }

            if (unlinkat(dir, entry->d_name, 0) == 0
                || unlinkat(dir, entry->d_name, AT_REMOVEDIR) == 0
                || sbx_keep_empty(dir, entry->d_name, &number) > 0)
            {
                done = 1;
            }
        }

        (void) closedir(list);
    } while (done);
}


/* A directory, and never what a link of its name leads to. */
static void
sbx_keep_unlock(int dir, const char *name)
{
    char         path[64];
    sbx_auto_fd  fd = -1;

    fd = openat(dir, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

    if (fd != -1) {
        (void) snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        (void) !chmod(path, 0700);
    }
}


/* How many entries are gone from it, by removing or by moving up. */
static int
sbx_keep_empty(int dir, const char *name, unsigned *number)
{
    int             fd, gone;
    DIR            *list;
    char            up[32];
    struct dirent  *entry;

    sbx_keep_unlock(dir, name);
    fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    list = fd == -1 ? NULL : fdopendir(fd);

    if (list == NULL) {
        if (fd != -1) {
            (void) close(fd);
        }

        return 0;
    }

    gone = 0;

    while ((entry = readdir(list)) != NULL) {
        if (strcmp(entry->d_name, ".") == 0
            || strcmp(entry->d_name, "..") == 0)
        {
            continue;
        }

        if (unlinkat(fd, entry->d_name, 0) == 0
            || unlinkat(fd, entry->d_name, AT_REMOVEDIR) == 0)
        {
            gone++;
            continue;
        }

        (void) snprintf(up, sizeof(up), "%u", (*number)++);

        sbx_keep_unlock(fd, entry->d_name);

        if (renameat(fd, entry->d_name, dir, up) == 0) {
            gone++;
        }
    }

    (void) closedir(list);

    return gone;
}
