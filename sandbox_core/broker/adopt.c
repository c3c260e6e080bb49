/*
 * Sessions of an earlier broker.  One that the keeper still holds and whose
 * record is whole goes on; all others are ended, in the way that every
 * session ends: their ids are theirs until nothing of them is left.  What the
 * keeper does not hold is swept: sweep.c.
 */

#include "broker.h"
#include "sandbox_fault.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>


#define SBX_ADOPT_DEPTH   16
#define SBX_ADOPT_CLAIM   5000      /* ms */


static int sbx_adopt_take(sbx_session_t *s, const sbx_link_t *msg,
    sbx_error_t *e);
static int sbx_adopt_remove_tree(int parent, const char *name, int depth);


int
sbx_adopt_session(sbx_broker_t *b, const sbx_link_t *msg, int *fds)
{
    sbx_error_t         e;
    sbx_link_t          drop;
    sbx_session_t      *s;
    const sbx_grave_t  *grave;

    /* by this name its directory is opened, and removed */

    if (!sbx_session_id_ok(msg->id, strlen(msg->id))) {
        sbx_log(SBX_LOG_ERROR, NULL, 0, "what the keeper has of a session "
                "without a name is let go");
        drop = *msg;
        drop.type = SBX_LINK_DROP;
        (void) sbx_broker_post(b, &drop, NULL);
        sbx_discard_all(b, fds, SBX_LINK_FDS);
        return 0;
    }

    s = sbx_session_make(b);

    if (s == NULL) {
        return -1;
    }

    memcpy(s->info.id, msg->id, sizeof(s->info.id));
    s->pid = msg->pid;
    s->control = fds[0];
    s->pidfd = fds[1];
    s->disk = fds[2];
    s->launched.netns = fds[3];
    s->way.traffic = fds[4];
    s->killer = fds[5];
    /* whatever becomes of it, an egress that is there before it knows it */
    s->way.told = b->outlet.pid != 0;
    s->stored = 1;
    s->ready = 1;
    s->recorded = 1;
    s->orphan = (msg->flags & SBX_LINK_ORPHAN) ? 1 : 0;
    s->secret = (msg->flags & SBX_LINK_UNTOLD) ? 1 : 0;

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

        } else if (s->secret) {
            /* the call that made it is sent again, unless who made it has
             * gone; one that comes later than this gets another */
            sbx_timer_set(&b->loop, &s->timer, SBX_ADOPT_CLAIM);
        }

        return 0;
    }

    sbx_log_error(SBX_LOG_WARN, &(sbx_log_about_t) { NULL, msg->id }, &e,
                  "session is not adopted");

    if (grave == NULL) {
        sbx_graves_add(b, &s->info, SBX_ENDED_NODE_RESTART,
                       sbx_broker_clock_ms());
    }

    sbx_session_end(s, SBX_ENDED_NODE_RESTART, 1);

    return 0;
}


static int
sbx_adopt_take(sbx_session_t *s, const sbx_link_t *msg, sbx_error_t *e)
{
    int                 rc;
    sbx_broker_t       *b;
    sbx_record_head_t   head;

    b = s->broker;

    /* before anything can fail: whatever becomes of it, they are its own; and
     * the end of one that is to be removed is to be seen, too */

    rc = sbx_ids_retake(b, s, msg->number);

    if (sbx_session_watch(s, e) != 0) {
        return -1;
    }

    if (rc != 0) {
        return sbx_error(e, 0, SBX_E_INTERNAL, "its ids are not ours");
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

    if (strcmp(head.info.id, msg->id) != 0
        || head.uid_first != s->uid_first)
    {
        return sbx_error(e, 0, SBX_E_INTERNAL,
                         "its record is another session's");
    }

    if (head.pooled) {
        return sbx_error(e, 0, SBX_E_INTERNAL, "it was never given out");
    }

    s->info = head.info;
    sbx_clock_read(&s->info, head.ahead);
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

    if (s->exited) {
        return sbx_error(e, 0, SBX_E_INTERNAL, "its init has died");
    }

    if (s->info.network_size != 0
        && sbx_network_check(s->way.rules, s->info.network_size, e) != 0)
    {
        return -1;
    }

    if (!b->based) {
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

    if (sbx_command_adopt(s, e) != 0) {
        return -1;
    }

    (void) sbx_cgroup_session_ahead(s->cgroup, 0);

    return 0;
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
