/*
 * What an earlier broker left.  A session that the keeper still holds and
 * whose record is whole goes on; everything else that bears our name is
 * removed, and its owner is told that the node restarted.
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
#include <sys/stat.h>


#define SBX_ADOPT_SWEEP_WAIT    2000000   /* microseconds, for all */
#define SBX_ADOPT_SWEEP_STEP    5         /* ms */
#define SBX_ADOPT_DEPTH         16


typedef struct {
    char            (*ids)[SBX_ID_MAX + 8];
    size_t            n;
    size_t            size;
    sbx_broker_t     *broker;
} sbx_adopt_list_t;


static int sbx_adopt_take(sbx_session_t *s, const sbx_link_t *msg,
    sbx_error_t *e);
static int sbx_adopt_alive(const char *id, void *data);
static void sbx_adopt_found(const char *id, void *data);
static void sbx_adopt_groups(sbx_broker_t *b);
static void sbx_adopt_stuck(sbx_broker_t *b, const char *id,
    const sbx_error_t *e);
static void sbx_adopt_grave(sbx_broker_t *b, const char *id);
static void sbx_adopt_mounts(sbx_broker_t *b);
static char *sbx_adopt_mount_point(char *line);
static int sbx_adopt_remove_tree(int parent, const char *name, int depth);


void
sbx_adopt_session(sbx_broker_t *b, const sbx_link_t *msg, int *fds)
{
    unsigned            i;
    sbx_error_t         e;
    sbx_session_t      *s;
    const sbx_grave_t  *grave;

    s = sbx_session_make(b);

    if (s == NULL) {
        for (i = 0; i < SBX_LINK_FDS; i++) {
            (void) close(fds[i]);
        }

        return;
    }

    memcpy(s->info.id, msg->id, sizeof(s->info.id));
    s->pid = msg->pid;
    s->control = fds[0];
    s->pidfd = fds[1];
    s->disk = fds[2];
    s->launched.netns = fds[3];
    s->way.traffic = fds[4];
    /* whatever becomes of it, an egress that is there before it knows it */
    s->way.told = b->outlet.pid != 0;
    s->stored = 1;
    s->ready = 1;
    s->recorded = 1;
    s->orphan = (msg->flags & SBX_LINK_ORPHAN) ? 1 : 0;

    if (msg->flags & SBX_LINK_EXITED) {
        s->exited = 1;
        s->status = msg->status;
    }

    sbx_session_insert(s);
    grave = sbx_graves_find(b, s->info.id);

    if (sbx_adopt_take(s, msg, &e) == 0) {
        SBX_FAULT("broker-adopt-taken");
        sbx_session_run(s);
        sbx_way_adopt(s);
        SBX_FAULT("broker-adopt-adopted");

        if (grave != NULL) {
            /* it was ending: nobody is to find it alive again */
            sbx_session_end(s, grave->ended, 0);

        } else if (s->info.flags & SBX_CREATE_TIED) {
            /* the call that it was tied to has gone with our predecessor */
            sbx_session_end(s, SBX_ENDED_NODE_RESTART, 1);
        }

        return;
    }

    sbx_log_error(SBX_LOG_WARN, &(sbx_log_about_t) { NULL, msg->id }, &e,
                  "session is not adopted");

    if (grave == NULL) {
        sbx_graves_add(b, &s->info, SBX_ENDED_NODE_RESTART,
                       sbx_broker_clock_ms());
    }

    sbx_session_end(s, SBX_ENDED_NODE_RESTART, 1);
}


static int
sbx_adopt_take(sbx_session_t *s, const sbx_link_t *msg, sbx_error_t *e)
{
    sbx_broker_t       *b;
    sbx_record_head_t   head;

    b = s->broker;

    /* also of one that is to be removed: its end is to be seen */

    if (sbx_session_watch(s, e) != 0) {
        return -1;
    }

    s->dir = openat(b->sessions_dir, msg->id,
                    O_RDONLY|O_DIRECTORY|O_CLOEXEC|O_NOFOLLOW);

    if (s->dir == -1) {
        return sbx_error(e, errno, SBX_E_INTERNAL,
                         "its directory is missing");
    }

    if (sbx_record_read(s->dir, &head, &s->meta, &s->way.rules, e) != 0) {
        return -1;
    }

    SBX_FAULT("broker-adopt-read");

    if (strcmp(head.info.id, msg->id) != 0) {
        return sbx_error(e, 0, SBX_E_INTERNAL,
                         "its record is another session's");
    }

    if (head.pooled) {
        return sbx_error(e, 0, SBX_E_INTERNAL, "it was never given out");
    }

    s->info = head.info;
    sbx_clock_read(&s->info, head.ahead);
    s->uid_first = head.uid_first;
    /* a first record is written before there is a way out */
    s->way.routed = head.routed || head.info.network != SBX_NETWORK_NONE;
    s->way.told &= s->way.routed;
    memcpy(s->key, head.key, sizeof(s->key));
    memcpy(s->digest, head.digest, sizeof(s->digest));
    s->keyed = s->key[0] != '\0';
    s->adopted = 1;
    sbx_session_order(s);

    if (s->info.seq > b->seq) {
        b->seq = s->info.seq;
    }

    if (sbx_quota_take(s, e) != 0) {
        return -1;
    }

    if (sbx_ids_retake(b, s) != 0) {
        s->uid_first = 0;
        return sbx_error(e, 0, SBX_E_INTERNAL, "its ids are not ours");
    }

    if (s->exited) {
        return sbx_error(e, 0, SBX_E_INTERNAL, "its init has died");
    }

    if (s->info.network_size != 0
        && sbx_network_check(s->way.rules, s->info.network_size, e) != 0)
    {
        return -1;
    }

    if (!b->configured) {
        *e = b->problem;
        return -1;
    }

    if (sbx_command_numbers(s, 1) != 0) {
        return sbx_error(e, errno, SBX_E_INTERNAL,
                         "its commands' numbers cannot be read");
    }

    if (sbx_cgroup_session_create(b->cgroup, msg->id, &s->info.limits, 1,
                                  &s->cgroup, e)
        != 0
        || sbx_cgroup_session_owner(s->cgroup, s->uid_first, 1, e) != 0)
    {
        return -1;
    }

    /* it may have been about to be paused, or resumed: the record is right */

    if (sbx_change_freeze(s, s->info.status == SBX_STATUS_PAUSED, e) != 0
        && s->info.status == SBX_STATUS_PAUSED)
    {
        return -1;
    }

    /* what still runs counts */

    s->hold.inherited = sbx_cgroup_command_reclaim(s->cgroup);
    sbx_quota_commands(s, (int) s->hold.inherited);
    (void) sbx_cgroup_session_ahead(s->cgroup, 0);

    return 0;
}


void
sbx_adopt_sweep(sbx_broker_t *b)
{
    DIR            *dir;
    int             fd;
    struct dirent  *entry;

    sbx_adopt_groups(b);
    SBX_FAULT("broker-sweep-ungrouped");
    sbx_adopt_mounts(b);
    sbx_storage_sweep(b->storage, sbx_adopt_alive, b);
    SBX_FAULT("broker-sweep-emptied");

    fd = openat(b->sessions_dir, ".", O_RDONLY|O_DIRECTORY|O_CLOEXEC);

    if (fd == -1) {
        return;
    }

    dir = fdopendir(fd);

    if (dir == NULL) {
        (void) close(fd);
        return;
    }

    while ((entry = readdir(dir)) != NULL) {

        if (strcmp(entry->d_name, ".") == 0
            || strcmp(entry->d_name, "..") == 0
            || sbx_session_find(b, entry->d_name) != NULL)
        {
            continue;
        }

        sbx_adopt_grave(b, entry->d_name);
        sbx_adopt_remove_dir(b, entry->d_name);
    }

    (void) closedir(dir);
}


static int
sbx_adopt_alive(const char *id, void *data)
{
    return sbx_session_find(data, id) != NULL;
}


static void
sbx_adopt_found(const char *id, void *data)
{
    void              *ids;
    size_t             size;
    sbx_adopt_list_t  *list;

    list = data;

    if (strlen(id) > SBX_ID_MAX
        || sbx_session_find(list->broker, id) != NULL)
    {
        return;
    }

    if (list->n == list->size) {
        size = list->size ? list->size * 2 : 16;
        ids = realloc(list->ids, size * sizeof(list->ids[0]));

        if (ids == NULL) {
            return;
        }

        list->ids = ids;
        list->size = size;
    }

    (void) strcpy(list->ids[list->n++], id);
}


/* All are killed before any is waited for. */

static void
sbx_adopt_groups(sbx_broker_t *b)
{
    int               rc;
    size_t            i, left;
    uint64_t          until;
    sbx_error_t       e;
    sbx_adopt_list_t  list;

    memset(&list, 0, sizeof(sbx_adopt_list_t));
    list.broker = b;

    if (sbx_cgroup_list(b->cgroup, sbx_adopt_found, &list, &e) != 0) {
        sbx_log_error(SBX_LOG_WARN, NULL, &e, "groups cannot be swept");
        return;
    }

    until = sbx_now_us() + SBX_ADOPT_SWEEP_WAIT;

    for ( ;; ) {
        left = 0;

        for (i = 0; i < list.n; i++) {
            rc = sbx_cgroup_sweep(b->cgroup, list.ids[i], &e);

            if (rc == 1) {
                /* those that are dying move to the front */
                memmove(list.ids[left++], list.ids[i], sizeof(list.ids[0]));

            } else if (rc == -1) {
                sbx_adopt_stuck(b, list.ids[i], &e);
            }
        }

        list.n = left;

        if (left == 0 || sbx_now_us() >= until) {
            break;
        }

        (void) poll(NULL, 0, SBX_ADOPT_SWEEP_STEP);
    }

    for (i = 0; i < list.n; i++) {
        sbx_adopt_stuck(b, list.ids[i], NULL);
    }

    free(list.ids);
}


/* What will not die keeps its ids: they must not become another's. */

static void
sbx_adopt_stuck(sbx_broker_t *b, const char *id, const sbx_error_t *e)
{
    char               *meta, *network;
    sbx_error_t         ignored;
    sbx_session_t       s;
    sbx_record_head_t   head;
    sbx_auto_fd         dir = -1;

    sbx_log(SBX_LOG_ERROR, &(sbx_log_about_t) { NULL, id },
            e != NULL ? e->err : 0, "the session's groups stay%s%s",
            e != NULL ? ": " : "", e != NULL ? e->text : "");

    dir = openat(b->sessions_dir, id,
                 O_RDONLY|O_DIRECTORY|O_CLOEXEC|O_NOFOLLOW);

    if (dir != -1
        && sbx_record_read(dir, &head, &meta, &network, &ignored) == 0)
    {
        free(meta);
        free(network);
        memset(&s, 0, sizeof(sbx_session_t));
        s.uid_first = head.uid_first;
        (void) sbx_ids_retake(b, &s);
    }
}


static void
sbx_adopt_grave(sbx_broker_t *b, const char *id)
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


/* Nothing is mounted below the sessions in our namespace; unless something
 * went wrong. */

static void
sbx_adopt_mounts(sbx_broker_t *b)
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
        point = sbx_adopt_mount_point(line);

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
sbx_adopt_mount_point(char *line)
{
    int    i;
    char  *save, *field;

    field = strtok_r(line, " ", &save);

    for (i = 1; field != NULL && i < 5; i++) {
        field = strtok_r(NULL, " ", &save);
    }

    return field;
}


void
sbx_adopt_remove_dir(sbx_broker_t *b, const char *id)
{
    if (id[0] == '\0') {
        return;
    }

    if (sbx_adopt_remove_tree(b->sessions_dir, id, 0) != 0
        && errno != ENOENT)
    {
        sbx_log(SBX_LOG_ERROR, &(sbx_log_about_t) { NULL, id }, errno,
                "the session's directory stays");
    }
}


/* Never through a link. */

static int
sbx_adopt_remove_tree(int parent, const char *name, int depth)
{
    DIR            *dir;
    int             fd;
    struct dirent  *entry;

    if (unlinkat(parent, name, 0) == 0) {
        return 0;
    }

    if (errno != EISDIR || depth == SBX_ADOPT_DEPTH) {
        return -1;
    }

    if (unlinkat(parent, name, AT_REMOVEDIR) == 0) {
        return 0;
    }

    fd = openat(parent, name, O_RDONLY|O_DIRECTORY|O_CLOEXEC|O_NOFOLLOW);

    if (fd == -1) {
        return -1;
    }

    dir = fdopendir(fd);

    if (dir == NULL) {
        (void) close(fd);
        return -1;
    }

    while ((entry = readdir(dir)) != NULL) {
        if (strcmp(entry->d_name, ".") != 0
            && strcmp(entry->d_name, "..") != 0)
        {
            (void) sbx_adopt_remove_tree(dirfd(dir), entry->d_name,
                                         depth + 1);
        }
    }

    (void) closedir(dir);

    return unlinkat(parent, name, AT_REMOVEDIR);
}
