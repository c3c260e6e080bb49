/*
 * The broker that takes a dead keeper's place, and those that come after it:
 * what one leaves to itself as the next keeper, and that to its own broker,
 * as it was or with things lost, stale, twice, or somebody else's; records
 * that are gone, cut or another session's; and a keeper that can take no more
 * for a time.  All else that may happen to a broker happens between
 * (broker.c): a message whose first byte's highest bit is set is of here.
 *
 * Where nothing was wrong with what was left, every session that was there is
 * there.  Whatever was: what is taken is taken once, counts are those of what
 * there is, nobody has another's ids, a keeper with room has all that may
 * outlive a broker, and in the end no descriptor is left.
 */

#include <stddef.h>
#include <stdint.h>

static int heir_message(unsigned kind, unsigned how, const uint8_t *p,
    size_t n);

#define BROKER_MORE  heir_message
#include "broker.c"

/* of how a keeper starts, only what it inherits is looked at */
#define sbx_keeper_start         start_keeper_start
#define sbx_keeper_pid_file      start_keeper_pid_file
#define sbx_keeper_report        start_keeper_report
#define sbx_process_hide         start_process_hide
#define sbx_process_raise_files  start_process_raise_files
int sbx_keeper_start(sbx_keeper_t *k, sbx_error_t *e);
void sbx_keeper_pid_file(sbx_keeper_t *k, const char *name, pid_t pid);
void sbx_keeper_report(sbx_keeper_t *k, const sbx_error_t *e);
int sbx_process_hide(sbx_error_t *e);
void sbx_process_raise_files(void);
#include "../../sandbox_core/broker/keeper_start.c"


#define HEIR_FIRST   400               /* of the descriptors that are left */
#define HEIR_LAST    1000
#define HEIR_KEPT    64
#define HEIR_PIDFD   1                 /* of a session's descriptors */

enum { HEIR_REPLACE, HEIR_FULL, HEIR_RECORD, HEIR_CHECK, HEIR_KINDS };

/* What is wrong with what is left: the second byte. */
enum {
    LEFT_SOUND, LEFT_LOST, LEFT_TWICE, LEFT_NUMBER, LEFT_PID, LEFT_FLAGS,
    LEFT_NAME, LEFT_SOCKET, LEFT_KIND, LEFT_CUT, LEFT_MAGIC, LEFT_ENDLESS,
    LEFT_CLOSED, LEFT_KINDS
};

static void heir_replace(unsigned how, const uint8_t *p, size_t n);
static void heir_ended(void);
static size_t heir_read(int file);
static size_t heir_spoil(size_t count, unsigned how, const uint8_t *p,
    size_t n);
static void heir_write(int file, size_t count, unsigned how, unsigned by);
static void heir_close(void);
static void heir_record(unsigned how, const uint8_t *p, size_t n);
static void heir_check(void);


static sbx_link_t  left[HEIR_KEPT + 1];
static char        lived[HEIR_KEPT][SBX_ID_MAX + 8];


static int
heir_message(unsigned kind, unsigned how, const uint8_t *p, size_t n)
{
    if (kind < 0x80) {
        return 0;
    }

    switch (kind % HEIR_KINDS) {

    case HEIR_REPLACE:
        heir_replace(how, p, n);
        break;

    case HEIR_FULL:
        keeper_full = how & 1;
        break;

    case HEIR_RECORD:
        heir_record(how, p, n);
        break;

    case HEIR_CHECK:
        heir_check();
        break;
    }

    return 1;
}


/* Its record is there and its own. */

static int
heir_readable(const sbx_session_t *s)
{
    int                 ok;
    char               *meta, *rules;
    sbx_error_t         e;
    sbx_record_head_t   head;

    if (sbx_record_read(s->dir, &head, &meta, &rules, &e) != 0) {
        return 0;
    }

    ok = strcmp(head.info.id, s->info.id) == 0
         && head.uid_first == s->uid_first && !head.pooled
         && (head.info.network_size == 0
             || sbx_network_check(rules, head.info.network_size, &e) == 0);
    free(meta);
    free(rules);

    return ok;
}


/* Whom nothing but time, or a word of its own, could end. */

static size_t
heir_lived(void)
{
    size_t                count;
    process_t            *p;
    sbx_node_t           *node;
    const sbx_session_t  *s;

    count = 0;

    for (node = broker->sessions.next; node != &broker->sessions;
         node = node->next)
    {
        s = sbx_node_of(node, const sbx_session_t, link);
        p = process_of(s->info.id);

        if (s->state == SBX_S_RUNNING && s->ended == SBX_ENDED_NOT
            && s->stored && s->recorded && s->nchanges == 0
            && !(s->info.flags & SBX_CREATE_TIED)
            && p != NULL && p->peer != -1 && count < HEIR_KEPT
            && heir_readable(s))
        {
            memcpy(lived[count++], s->info.id, sizeof(lived[0]));
        }
    }

    return count;
}


static void
heir_replace(unsigned how, const uint8_t *p, size_t n)
{
    int             file, sound;
    size_t          i, count, alive;
    sbx_error_t     e;
    sbx_session_t  *s;

    how %= LEFT_KINDS;
    sound = how == LEFT_SOUND && broker->based;
    alive = sound ? heir_lived() : 0;

    file = broker_follows();
    count = heir_read(file);
    broker_crash();
    keeper_end();
    count = heir_spoil(count, how, p, n);
    heir_write(file, count, how, n > 1 ? p[1] : 0);

    keeper_fresh();
    keeper.options->inherit = file;

    if (sbx_keeper_inherit(&keeper, &e) != 0) {
        must(how >= LEFT_CUT);
        (void) close(file);
        keeper_end();
        keeper_fresh();
        heir_ended();
    }

    for (i = 0; i < keeper.nkept; i++) {
        must(keeper.kept[i].msg.flags & SBX_LINK_ORPHAN);
    }

    heir_close();
    broker_start();

    /* what the next configuration of a server would do */

    if (!broker->based) {
        heir_ended();
        say_config(&config);
        connections(1);
    }

    for (i = 0; i < alive; i++) {
        s = sbx_session_find(broker, lived[i]);
        must(s != NULL && s->state == SBX_S_RUNNING && s->orphan);
    }
}


/* Whose broker and keeper have gone ends; and so do their workers'
 * connections. */

static void
heir_ended(void)
{
    unsigned    i;
    process_t  *p;

    for (p = processes; p < processes + BROKER_PROCESSES; p++) {
        if (p->pid != 0) {
            process_die(p);
        }
    }

    for (i = 0; i < BROKER_CONTROLS; i++) {
        if (controls[i] != -1) {
            (void) close(controls[i]);
            controls[i] = -1;
        }
    }
}


/* ---- what is left ------------------------------------------------------- */


/* As an exec finds it: only what is named in it is open, under other numbers
 * here, since this process goes on. */

static size_t
heir_read(int file)
{
    int       fd;
    size_t    count;
    unsigned  i;

    for (count = 0; read(file, &left[count], sizeof(left[0]))
                    == (ssize_t) sizeof(left[0]); count++)
    {
        must(count < HEIR_KEPT);

        for (i = 0; i < sbx_link_fds((sbx_keep_t) left[count].kind); i++) {
            fd = left[count].fds[i];
            must(fcntl(fd, F_GETFD) == 0);
            left[count].fds[i] = fcntl(fd, F_DUPFD, HEIR_FIRST);
            must(left[count].fds[i] != -1
                 && left[count].fds[i] <= HEIR_LAST);

            if (left[count].kind == SBX_KEEP_CONFIG) {
                (void) close(fd);
            }
        }
    }

    return count;
}


static size_t
heir_spoil(size_t count, unsigned how, const uint8_t *p, size_t n)
{
    int          fd;
    unsigned     i, at, by, nfds;
    sbx_link_t  *one, *with, copy;

    if (count == 0 || n < 3) {
        return count;
    }

    by = p[1];
    one = &left[p[0] % count];
    with = &left[p[2] % count];
    nfds = sbx_link_fds((sbx_keep_t) one->kind);

    /* without its configuration a broker takes nothing over, and what was
     * there is swept when it has one: that is "unread" */

    if (how < LEFT_CUT
        && (one->kind == SBX_KEEP_CONFIG || with->kind == SBX_KEEP_CONFIG))
    {
        return count;
    }

    switch (how) {

    case LEFT_LOST:
        *one = left[--count];
        break;

    case LEFT_TWICE:
        copy = *one;

        for (i = 0; i < nfds; i++) {
            copy.fds[i] = fcntl(one->fds[i], F_DUPFD, HEIR_FIRST);
            must(copy.fds[i] != -1);
        }

        copy.number += by & 1;
        copy.pid += by >> 1 & 1;
        left[count++] = copy;
        break;

    case LEFT_NUMBER:
        one->number = by & 1 ? with->number : (uint64_t) by << (p[2] & 63);
        break;

    case LEFT_PID:
        one->pid = by & 1 ? with->pid : (int32_t) by - 4;
        break;

    case LEFT_FLAGS:
        one->flags = by;
        one->status = p[2];
        break;

    case LEFT_NAME:
        copy = *one;
        memcpy(one->id, with->id, sizeof(one->id));
        memcpy(with->id, copy.id, sizeof(one->id));
        break;

    case LEFT_SOCKET:
        at = nfds != 0 ? by % nfds : 0;

        /* which process a descriptor is of, the keeper alone has known: a
         * session that is to end is waited for by it */

        if (one->kind == SBX_KEEP_SESSION && at == HEIR_PIDFD) {
            at = 0;
        }

        /* what is of another kind would be told what is not for it */

        if (nfds != 0 && with->kind == one->kind) {
            fd = one->fds[at];
            one->fds[at] = with->fds[0];
            with->fds[0] = fd;
        }

        break;

    case LEFT_KIND:
        one->kind = (by & 7) == SBX_KEEP_CONFIG ? SBX_KEEP_NONE : by & 7;

        for (i = nfds; i < sbx_link_fds((sbx_keep_t) one->kind); i++) {
            one->fds[i] = fcntl(null, F_DUPFD, HEIR_FIRST);
            must(one->fds[i] != -1);
        }

        break;

    case LEFT_MAGIC:
        one->magic ^= by;
        break;

    case LEFT_ENDLESS:
        memset(one->id, 'i', sizeof(one->id));
        break;

    case LEFT_CLOSED:
        if (nfds != 0) {
            (void) close(one->fds[by % nfds]);
            one->fds[by % nfds] = by & 1 ? -1 : HEIR_LAST;
        }

        break;
    }

    return count;
}


static void
heir_write(int file, size_t count, unsigned how, unsigned by)
{
    size_t  size;

    size = count * sizeof(left[0]);
    must(ftruncate(file, 0) == 0);
    must(pwrite(file, left, size, 0) == (ssize_t) size);

    if (how == LEFT_CUT) {
        must(ftruncate(file, (off_t) (size - (by < size ? by : size))) == 0);
    }

    must(lseek(file, 0, SEEK_SET) == 0);
}


/* What of it the keeper has not taken nobody knows. */

static void
heir_close(void)
{
    int       fd;
    size_t    k;
    unsigned  i, kept;

    for (fd = HEIR_FIRST; fd <= HEIR_LAST; fd++) {
        kept = 0;

        for (k = 0; k < keeper.nkept; k++) {
            for (i = 0; i < sbx_link_fds((sbx_keep_t) keeper.kept[k].msg.kind);
                 i++)
            {
                kept |= keeper.kept[k].fds[i] == fd;
            }
        }

        if (kept) {
            must(fcntl(fd, F_GETFD) == FD_CLOEXEC);

        } else {
            (void) close(fd);
        }
    }
}


/* ---- what is there ------------------------------------------------------ */


static void
heir_record(unsigned how, const uint8_t *p, size_t n)
{
    int             fd;
    char            path[512], other_path[512];
    struct stat     st;
    sbx_session_t  *s, *with;

    s = session_at(n > 0 ? p[0] : 0);
    with = session_at(n > 1 ? p[1] : 0);

    if (s == NULL) {
        return;
    }

    (void) snprintf(path, sizeof(path), "%s/sessions/%s/record", dir,
                    s->info.id);
    (void) snprintf(other_path, sizeof(other_path), "%s/sessions/%s/record",
                    dir, with != NULL ? with->info.id : s->info.id);

    switch (how & 3) {

    case 0:
        (void) unlink(path);
        break;

    case 1:
        if (stat(path, &st) == 0) {
            must(truncate(path, st.st_size - (n > 1 ? p[1] % st.st_size : 0))
                 == 0);
        }

        break;

    case 2:
        if (rename(other_path, path) == -1) {
            must(errno == ENOENT);
        }

        break;

    case 3:
        fd = open(path, O_WRONLY|O_CLOEXEC);

        if (fd != -1) {
            (void) !pwrite(fd, p, n, how >> 2);
            (void) close(fd);
        }

        break;
    }
}


/* All that is to outlive a broker is the keeper's. */

static void
heir_check(void)
{
    sbx_link_t            msg;
    sbx_node_t           *node;
    const sbx_session_t  *s;

    for (node = broker->sessions.next; node != &broker->sessions;
         node = node->next)
    {
        s = sbx_node_of(node, const sbx_session_t, link);

        if (!s->stored || s->unkept || broker->letters != NULL) {
            continue;
        }

        memset(&msg, 0, sizeof(msg));
        msg.kind = SBX_KEEP_SESSION;
        memcpy(msg.id, s->info.id, sizeof(msg.id));
        must(sbx_keeper_find(&keeper, &msg) != NULL);
        must(keeper_full || !s->unkept);
    }
}
