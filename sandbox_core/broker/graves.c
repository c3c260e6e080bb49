/*
 * Ended sessions, so that their owner is told how they ended: a ring in
 * memory, and the same ring in <state>/ended for the next broker.  The file
 * is written without fsync: what a power failure takes with it is an
 * explanation, nothing more.
 */

#include "broker.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>


#define SBX_GRAVES_BUCKETS  (2 * SBX_ENDED_MAX)


static void sbx_graves_load(sbx_broker_t *b);
static uint32_t *sbx_graves_bucket(sbx_graves_t *g, const char *id);
static void sbx_graves_unlink(sbx_graves_t *g, uint32_t i);
static void sbx_graves_link(sbx_graves_t *g, uint32_t i);
static uint64_t sbx_graves_sum(const sbx_grave_t *grave);


int
sbx_graves_open(sbx_broker_t *b, sbx_error_t *e)
{
    sbx_graves_t  *g;

    g = &b->graves;
    g->graves = calloc(SBX_ENDED_MAX, sizeof(sbx_grave_t));
    g->buckets = calloc(SBX_GRAVES_BUCKETS, sizeof(uint32_t));
    g->chain = calloc(SBX_ENDED_MAX, sizeof(uint32_t));

    if (g->graves == NULL || g->buckets == NULL || g->chain == NULL) {
        return sbx_error(e, ENOMEM, SBX_E_INTERNAL, "out of memory");
    }

    g->fd = openat(b->state, "ended", O_RDWR|O_CREAT|O_CLOEXEC|O_NOFOLLOW,
                   0600);

    if (g->fd == -1) {
        return sbx_error(e, errno, SBX_E_UNAVAILABLE,
                         "cannot write to the state directory \"%s\"",
                         b->options->state_dir);
    }

    sbx_graves_load(b);

    return 0;
}


static void
sbx_graves_load(sbx_broker_t *b)
{
    int64_t        now, newest;
    ssize_t        n;
    uint32_t       i, count;
    sbx_grave_t   *grave;
    sbx_graves_t  *g;

    g = &b->graves;
    n = sbx_read_full(g->fd, g->graves, SBX_ENDED_MAX * sizeof(sbx_grave_t));
    count = n > 0 ? (uint32_t) ((size_t) n / sizeof(sbx_grave_t)) : 0;
    now = sbx_broker_clock_ms();
    newest = 0;

    for (i = 0; i < SBX_ENDED_MAX; i++) {
        grave = &g->graves[i];

        if (i >= count || grave->sum != sbx_graves_sum(grave)
            || grave->ended_at + SBX_ENDED_KEPT < now
            || grave->ended_at > now
            || memchr(grave->id, '\0', sizeof(grave->id)) == NULL
            || memchr(grave->tenant, '\0', sizeof(grave->tenant)) == NULL
            || memchr(grave->user, '\0', sizeof(grave->user)) == NULL)
        {
            memset(grave, 0, sizeof(sbx_grave_t));
            continue;
        }

        sbx_graves_link(g, i);

        if (grave->ended_at >= newest) {
            newest = grave->ended_at;
            g->next = (i + 1) % SBX_ENDED_MAX;
        }
    }
}


static uint64_t
sbx_graves_sum(const sbx_grave_t *grave)
{
    return sbx_record_sum((const char *) grave + sizeof(grave->sum),
                          sizeof(sbx_grave_t) - sizeof(grave->sum), 0);
}


static uint32_t *
sbx_graves_bucket(sbx_graves_t *g, const char *id)
{
    return &g->buckets[sbx_record_sum(id, strlen(id), 0)
                       % SBX_GRAVES_BUCKETS];
}


static void
sbx_graves_link(sbx_graves_t *g, uint32_t i)
{
    uint32_t  *bucket;

    bucket = sbx_graves_bucket(g, g->graves[i].id);
    g->chain[i] = *bucket;
    *bucket = i + 1;
}


static void
sbx_graves_unlink(sbx_graves_t *g, uint32_t i)
{
    uint32_t  *at;

    for (at = sbx_graves_bucket(g, g->graves[i].id);
         *at != 0;
         at = &g->chain[*at - 1])
    {
        if (*at == i + 1) {
            *at = g->chain[i];
            return;
        }
    }
}


void
sbx_graves_add(sbx_broker_t *b, const sbx_f_session_t *info,
    sbx_ended_t why, int64_t at)
{
    ssize_t        n;
    uint32_t       i;
    sbx_grave_t   *grave;
    sbx_graves_t  *g;

    g = &b->graves;

    if (g->graves == NULL) {
        return;
    }

    i = g->next;
    g->next = (i + 1) % SBX_ENDED_MAX;
    grave = &g->graves[i];

    if (grave->id[0] != '\0') {
        sbx_graves_unlink(g, i);
    }

    memset(grave, 0, sizeof(sbx_grave_t));
    grave->ended = why;
    grave->ended_at = at;
    memcpy(grave->id, info->id, sizeof(grave->id));
    memcpy(grave->tenant, info->tenant, sizeof(grave->tenant));
    memcpy(grave->user, info->user, sizeof(grave->user));
    grave->sum = sbx_graves_sum(grave);

    sbx_graves_link(g, i);

    n = pwrite(g->fd, grave, sizeof(sbx_grave_t),
               (off_t) (i * sizeof(sbx_grave_t)));
    (void) n;
}


const sbx_grave_t *
sbx_graves_find(sbx_broker_t *b, const char *id)
{
    uint32_t       i;
    sbx_graves_t  *g;

    g = &b->graves;

    if (g->graves == NULL || id[0] == '\0') {
        return NULL;
    }

    for (i = *sbx_graves_bucket(g, id); i != 0; i = g->chain[i - 1]) {
        if (strcmp(g->graves[i - 1].id, id) != 0) {
            continue;
        }

        if (g->graves[i - 1].ended_at + SBX_ENDED_KEPT
            < sbx_broker_clock_ms())
        {
            return NULL;
        }

        return &g->graves[i - 1];
    }

    return NULL;
}


void
sbx_graves_shift(sbx_broker_t *b, int64_t by)
{
    ssize_t        n;
    uint32_t       i;
    sbx_grave_t   *grave;
    sbx_graves_t  *g;

    g = &b->graves;

    if (g->graves == NULL) {
        return;
    }

    for (i = 0; i < SBX_ENDED_MAX; i++) {
        grave = &g->graves[i];

        if (grave->id[0] != '\0') {
            grave->ended_at += by;
            grave->sum = sbx_graves_sum(grave);
        }
    }

    n = pwrite(g->fd, g->graves, SBX_ENDED_MAX * sizeof(sbx_grave_t), 0);
    (void) n;
}


void
sbx_graves_close(sbx_broker_t *b)
{
    free(b->graves.graves);
    free(b->graves.buckets);
    free(b->graves.chain);

    if (b->graves.fd != -1) {
        (void) close(b->graves.fd);
    }

    memset(&b->graves, 0, sizeof(sbx_graves_t));
    b->graves.fd = -1;
}
