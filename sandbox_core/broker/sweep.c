/*
 * What an earlier broker left and no session of the table owns: groups,
 * mounts, files, directories.  Its owner is told that the node restarted.
 *
 * Something of it may live on for a while, a process that cannot be killed
 * yet or a tree that is large.  It keeps its ids until it is gone: they are
 * its files' and its processes', and the number of its project quota.  So
 * until all that is left is known, nobody is given ids at all.
 */

#include "broker.h"
#include "sandbox_fault.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>


#define SBX_SWEEP_WAIT    2000000   /* microseconds, for all */
#define SBX_SWEEP_STEP    5         /* ms */
#define SBX_SWEEP_AGAIN   250       /* ms: for what is still there then */


typedef struct {
    sbx_broker_t     *broker;
    unsigned          full:1;         /* there was no memory for one */
} sbx_sweep_list_t;


static int sbx_sweep_groups(sbx_broker_t *b, sbx_error_t *e);
static void sbx_sweep_found(const char *id, void *data);
static void sbx_sweep_kill(sbx_broker_t *b);
static int sbx_sweep_owners(sbx_broker_t *b, sbx_error_t *e);
static void sbx_sweep_mounts(sbx_broker_t *b);
static char *sbx_sweep_mount_point(char *line);
static int sbx_sweep_directories(sbx_broker_t *b, sbx_error_t *e);
static void sbx_sweep_grave(sbx_broker_t *b, const char *id);
static unsigned sbx_sweep_trees(sbx_broker_t *b);
static int sbx_sweep_alive(const char *id, void *data);
static int sbx_sweep_tree(uint32_t project, void *data);
static void sbx_sweep_tree_over(const char *id, uint32_t project,
    int removed, void *data);
static void sbx_sweep_tick(sbx_timer_t *timer);


int
sbx_sweep(sbx_broker_t *b, sbx_error_t *e)
{
    sbx_sweep_t  sweep;

    if (b->left.known) {
        return 0;
    }

    sweep.alive = sbx_sweep_alive;
    sweep.found = sbx_sweep_tree;
    sweep.over = sbx_sweep_tree_over;
    sweep.data = b;

    if (sbx_sweep_groups(b, e) != 0) {
        return -1;
    }

    SBX_FAULT("broker-sweep-ungrouped");
    sbx_sweep_mounts(b);

    if (sbx_storage_sweep(b->storage, &sweep, e) != 0) {
        return -1;
    }

    SBX_FAULT("broker-sweep-emptied");

    if (sbx_sweep_directories(b, e) != 0) {
        return -1;
    }

    b->left.known = 1;
    b->left.timer.handler = sbx_sweep_tick;
    b->left.timer.data = b;
    sbx_sweep_tick(&b->left.timer);

    return 0;
}


void
sbx_sweep_close(sbx_broker_t *b)
{
    sbx_timer_del(&b->loop, &b->left.timer);
    free(b->left.groups);
    memset(&b->left, 0, sizeof(sbx_left_t));
}


/*
 * ---- groups --------------------------------------------------------------
 */


/* All are killed before any is waited for. */

static int
sbx_sweep_groups(sbx_broker_t *b, sbx_error_t *e)
{
    uint64_t          until;
    sbx_sweep_list_t  list;

    list.broker = b;
    list.full = 0;

    if (sbx_cgroup_list(b->cgroup, sbx_sweep_found, &list, e) != 0) {
        e->code = SBX_E_UNAVAILABLE;
        return -1;
    }

    if (list.full) {
        return sbx_error(e, ENOMEM, SBX_E_UNAVAILABLE, "out of memory");
    }

    until = sbx_now_us() + SBX_SWEEP_WAIT;

    for ( ;; ) {
        sbx_sweep_kill(b);

        if (b->left.n == 0 || sbx_now_us() >= until) {
            break;
        }

        (void) poll(NULL, 0, SBX_SWEEP_STEP);
    }

    return sbx_sweep_owners(b, e);
}


static void
sbx_sweep_found(const char *id, void *data)
{
    void              *groups;
    size_t             i, size;
    sbx_left_t        *left;
    sbx_sweep_list_t  *list;

    list = data;
    left = &list->broker->left;

    if (strlen(id) > SBX_ID_MAX
        || sbx_session_find(list->broker, id) != NULL)
    {
        return;
    }

    for (i = 0; i < left->n; i++) {
        if (strcmp(left->groups[i].id, id) == 0) {
            return;
        }
    }

    if (left->n == left->size) {
        size = left->size ? left->size * 2 : 16;
        groups = realloc(left->groups, size * sizeof(left->groups[0]));

        if (groups == NULL) {
            list->full = 1;
            return;
        }

        left->groups = groups;
        left->size = size;
    }

    memset(&left->groups[left->n], 0, sizeof(sbx_left_group_t));
    (void) strcpy(left->groups[left->n++].id, id);
}


/* Once more: what is still there moves to the front. */

static void
sbx_sweep_kill(sbx_broker_t *b)
{
    size_t        i, n;
    sbx_left_t   *left;
    sbx_error_t   ignored;

    left = &b->left;
    n = 0;

    for (i = 0; i < left->n; i++) {

        if (sbx_cgroup_sweep(b->cgroup, left->groups[i].id, &ignored) != 0) {
            left->groups[n++] = left->groups[i];
            continue;
        }

        if (left->groups[i].first != 0) {
            sbx_ids_release(b, left->groups[i].first);
        }
    }

    left->n = n;
}


/* What will not die keeps its ids: they must not become another's. */

static int
sbx_sweep_owners(sbx_broker_t *b, sbx_error_t *e)
{
    size_t             i;
    uint64_t           first;
    sbx_left_group_t  *group;

    for (i = 0; i < b->left.n; i++) {
        group = &b->left.groups[i];

        if (group->first != 0) {
            continue;
        }

        if (sbx_cgroup_owner(b->cgroup, group->id, &first) != 0) {
            return sbx_error(e, errno, SBX_E_UNAVAILABLE,
                             "whose the groups of %s are is not known",
                             group->id);
        }

        sbx_log(SBX_LOG_ERROR, &(sbx_log_about_t) { NULL, group->id }, 0,
                "the session's groups stay for now, and its ids with them");

        group->first = sbx_ids_hold(b, first) ? first : 0;
    }

    return 0;
}


/*
 * ---- mounts and directories ----------------------------------------------
 */


/* Nothing is mounted below the sessions in our namespace; unless something
 * went wrong. */

static void
sbx_sweep_mounts(sbx_broker_t *b)
{
    char     self[64], prefix[SBX_PATH_MAX], *point, *line;
    FILE    *mounts;
    size_t   size;
    ssize_t  n;

    /* the kernel's name of it: configuration's may have dots and links */

    (void) snprintf(self, sizeof(self), "/proc/self/fd/%d", b->sessions_dir);
    n = readlink(self, prefix, sizeof(prefix) - 1);
    mounts = n > 0 ? fopen("/proc/self/mountinfo", "re") : NULL;

    if (mounts == NULL) {
        return;
    }

    prefix[n++] = '/';

    line = NULL;
    size = 0;

    while (getline(&line, &size, mounts) != -1) {
        point = sbx_sweep_mount_point(line);

        if (point != NULL && strncmp(point, prefix, (size_t) n) == 0
            && umount2(point, MNT_DETACH|UMOUNT_NOFOLLOW) == 0)
        {
            sbx_log(SBX_LOG_NOTICE, NULL, 0, "\"%s\" was left mounted",
                    point);
        }
    }

    free(line);
    (void) fclose(mounts);
}


/* The fifth field; octal escapes do not occur in our own names. */

static char *
sbx_sweep_mount_point(char *line)
{
    int    i;
    char  *save, *field;

    field = strtok_r(line, " ", &save);

    for (i = 1; field != NULL && i < 5; i++) {
        field = strtok_r(NULL, " ", &save);
    }

    return field;
}


static int
sbx_sweep_directories(sbx_broker_t *b, sbx_error_t *e)
{
    int             fd;
    DIR            *dir;
    struct dirent  *entry;

    fd = openat(b->sessions_dir, ".", O_RDONLY|O_DIRECTORY|O_CLOEXEC);
    dir = fd == -1 ? NULL : fdopendir(fd);

    if (dir == NULL) {
        (void) sbx_error(e, errno, SBX_E_UNAVAILABLE,
                         "cannot list \"%s/sessions\"",
                         b->options->state_dir);

        if (fd != -1) {
            (void) close(fd);
        }

        return -1;
    }

    while ((entry = readdir(dir)) != NULL) {

        if (strcmp(entry->d_name, ".") == 0
            || strcmp(entry->d_name, "..") == 0
            || sbx_session_find(b, entry->d_name) != NULL)
        {
            continue;
        }

        sbx_sweep_grave(b, entry->d_name);
        sbx_adopt_remove_dir(b, entry->d_name);
    }

    (void) closedir(dir);

    return 0;
}


static void
sbx_sweep_grave(sbx_broker_t *b, const char *id)
{
    char               *meta, *network;
    sbx_error_t         e;
    sbx_record_head_t   head;
    sbx_auto_fd         dir = -1;

    dir = openat(b->sessions_dir, id,
                 O_RDONLY|O_DIRECTORY|O_CLOEXEC|O_NOFOLLOW);

    if (dir == -1 || sbx_record_read(dir, &head, &meta, &network, &e) != 0) {
        return;
    }

    free(meta);
    free(network);

    if (strcmp(head.info.id, id) == 0 && !head.pooled
        && sbx_graves_find(b, id) == NULL)
    {
        sbx_graves_add(b, &head.info, SBX_ENDED_NODE_RESTART,
                       sbx_broker_clock_ms());
    }
}


/*
 * ---- trees of files ------------------------------------------------------
 */


static int
sbx_sweep_alive(const char *id, void *data)
{
    return sbx_session_find(data, id) != NULL;
}


/* A project's number is the first id of its session. */

static int
sbx_sweep_tree(uint32_t project, void *data)
{
    return sbx_ids_hold(data, project);
}


static void
sbx_sweep_tree_over(const char *id, uint32_t project, int removed,
    void *data)
{
    if (!removed) {
        sbx_log(SBX_LOG_ERROR, &(sbx_log_about_t) { NULL, id }, 0,
                "the session's files stay, and its ids with them");

    } else if (project != 0) {
        sbx_ids_release(data, project);
    }
}


static unsigned
sbx_sweep_trees(sbx_broker_t *b)
{
    sbx_sweep_t  sweep;

    sweep.alive = sbx_sweep_alive;
    sweep.found = sbx_sweep_tree;
    sweep.over = sbx_sweep_tree_over;
    sweep.data = b;

    return sbx_storage_swept(b->storage, &sweep);
}


static void
sbx_sweep_tick(sbx_timer_t *timer)
{
    unsigned       trees;
    sbx_broker_t  *b;

    b = timer->data;

    sbx_sweep_kill(b);
    trees = sbx_sweep_trees(b);

    if (b->left.n != 0 || trees != 0) {
        sbx_timer_set(&b->loop, timer, SBX_SWEEP_AGAIN);
    }
}
