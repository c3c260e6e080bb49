/*
 * What sessions use, over their lives.  Each that runs is looked at every five
 * seconds, all of them at moments of their own.  A sample is made up of one
 * look at first; where there are too many samples, two become one each, and
 * from then on twice as many looks.  So they cover the whole life of a
 * session evenly, and the last one is as new as the last look.
 *
 * Where no processor time has been used since the last look, nothing has been
 * done either, and nothing else is read: most sessions are idle.
 *
 * A call is told of the present too, which is no sample yet: who asks often
 * does not thin out what there is.  While a session is paused nothing is
 * looked at, and that time is in no span.
 */

#include "broker.h"

#include <string.h>
#include <sys/statfs.h>


#define SBX_SAMPLES_EVERY   5000      /* ms */
#define SBX_SAMPLES_BEGIN   50        /* ms until the first: not while somebody
                                         waits for the session */
#define SBX_SAMPLES_FRESH   1000000   /* us */
#define SBX_SAMPLES_SIZE    15        /* at first */


static void sbx_samples_tick(sbx_timer_t *timer);
static void sbx_samples_look(sbx_session_t *s);
static int sbx_samples_read(sbx_session_t *s, sbx_f_sample_t *sample,
    uint64_t *now, uint64_t *cpu, int idle);
static void sbx_samples_disk(const sbx_session_t *s, sbx_f_sample_t *sample);
static void sbx_samples_merge(sbx_f_sample_t *into,
    const sbx_f_sample_t *sample);
static void sbx_samples_thin(sbx_sampled_t *d);
static unsigned sbx_samples_send(sbx_call_out_t *call,
    const sbx_sampled_t *d, const sbx_samples_t *asked, int now);


void
sbx_samples_open(sbx_session_t *s)
{
    s->sampled.timer.handler = sbx_samples_tick;
    s->sampled.timer.data = s;
    s->sampled.stride = 1;
}


void
sbx_samples_start(sbx_session_t *s)
{
    uint64_t        wait;
    sbx_sampled_t  *d;

    d = &s->sampled;

    if (s->pooled || s->info.status == SBX_STATUS_PAUSED) {
        return;
    }

    wait = SBX_SAMPLES_EVERY;
    d->at = sbx_now_us();

    if (!d->begun && !s->adopted) {
        /* what it used while it was nobody's is not its owner's */
        d->cpu = s->info.usage.cpu_us;
        d->begun = 1;
        wait = SBX_SAMPLES_BEGIN;

    } else if (!d->begun) {
        /* not all of those that are adopted at once */
        wait = s->info.seq * 397 % SBX_SAMPLES_EVERY;
    }

    sbx_timer_set(&s->broker->loop, &d->timer, wait);
}


void
sbx_samples_stop(sbx_session_t *s)
{
    if (s->sampled.timer.set) {
        sbx_timer_del(&s->broker->loop, &s->sampled.timer);
        sbx_samples_look(s);
    }
}


static void
sbx_samples_tick(sbx_timer_t *timer)
{
    sbx_session_t  *s;

    s = timer->data;

    sbx_samples_look(s);
    sbx_timer_set(&s->broker->loop, timer, SBX_SAMPLES_EVERY);
}


static void
sbx_samples_look(sbx_session_t *s)
{
    uint64_t         now, cpu;
    sbx_sampled_t   *d;
    sbx_f_sample_t   sample;

    d = &s->sampled;

    if (sbx_samples_read(s, &sample, &now, &cpu, 1) == 0) {
        d->at = now;
        d->cpu = cpu;
        d->begun = 1;
        sbx_samples_add(d, &sample);
    }
}


/* idle: the last look will do, if the session has been that since. */

static int
sbx_samples_read(sbx_session_t *s, sbx_f_sample_t *sample, uint64_t *now,
    uint64_t *cpu, int idle)
{
    sbx_error_t     e;
    sbx_usage_t     usage;
    sbx_sampled_t  *d;

    d = &s->sampled;
    memset(sample, 0, sizeof(sbx_f_sample_t));

    if (s->cgroup == NULL || sbx_cgroup_session_cpu(s->cgroup, cpu) != 0) {
        return -1;
    }

    if (idle && d->count != 0 && *cpu == d->cpu) {
        *sample = d->ring[d->count - 1];

    } else if (sbx_cgroup_session_memory(s->cgroup, &usage, &e) == 0) {
        sample->memory = usage.memory;
        sample->memory_cache = usage.memory_cache;
        sbx_samples_disk(s, sample);

    } else {
        return -1;
    }

    *now = sbx_now_us();
    sample->time = sbx_broker_clock_ms();
    sample->span = d->begun ? *now - d->at : 0;
    sample->cpu_us = d->begun && *cpu > d->cpu ? *cpu - d->cpu : 0;

    return 0;
}


/* A directory without a quota is not counted. */

static void
sbx_samples_disk(const sbx_session_t *s, sbx_f_sample_t *sample)
{
    sbx_error_t    e;
    sbx_usage_t    usage;
    struct statfs  st;

    sample->disk_total = s->info.limits.disk;

    if (s->info.enforcement.disk == SBX_BY_NONE) {
        if (fstatfs(s->disk, &st) == 0) {
            sample->disk_total = (uint64_t) st.f_blocks
                                 * (uint64_t) st.f_bsize;
        }

    } else if (sbx_disk_usage(s->disk, &usage, &e) == 0) {
        sample->disk = usage.disk;
    }
}


void
sbx_samples_add(sbx_sampled_t *d, const sbx_f_sample_t *sample)
{
    size_t           size;
    sbx_f_sample_t  *ring;

    if (d->count != 0 && d->looks < d->stride) {
        sbx_samples_merge(&d->ring[d->count - 1], sample);
        d->looks++;
        return;
    }

    if (d->count == SBX_SAMPLES_MAX) {
        sbx_samples_thin(d);
    }

    if (d->count == d->size) {
        size = d->size != 0 ? d->size * 2 : SBX_SAMPLES_SIZE;
        ring = realloc(d->ring, size * sizeof(sbx_f_sample_t));

        if (ring == NULL) {

            if (d->count != 0) {
                sbx_samples_merge(&d->ring[d->count - 1], sample);
            }

            return;
        }

        d->ring = ring;
        d->size = (uint32_t) size;
    }

    d->ring[d->count++] = *sample;
    d->looks = 1;
}


static void
sbx_samples_merge(sbx_f_sample_t *into, const sbx_f_sample_t *sample)
{
    uint64_t  span, cpu;

    span = into->span + sample->span;
    cpu = into->cpu_us + sample->cpu_us;

    *into = *sample;
    into->span = span;
    into->cpu_us = cpu;
}


static void
sbx_samples_thin(sbx_sampled_t *d)
{
    uint32_t  i;

    for (i = 0; i < d->count / 2; i++) {
        sbx_samples_merge(&d->ring[2 * i], &d->ring[2 * i + 1]);
        d->ring[i] = d->ring[2 * i];
    }

    d->count /= 2;
    d->stride *= 2;
}


void
sbx_samples_call(sbx_broker_t *b, sbx_call_out_t *call, const void *body)
{
    uint64_t        now, cpu;
    sbx_f_end_t     end;
    sbx_sampled_t  *d;
    sbx_samples_t   asked;
    sbx_session_t  *s;

    memcpy(&asked, body, sizeof(sbx_samples_t));
    s = sbx_service_find(b, call);

    if (s == NULL) {
        return;
    }

    d = &s->sampled;
    now = sbx_now_us();

    if (d->count == 0) {
        sbx_samples_look(s);

    } else if (s->info.status == SBX_STATUS_RUNNING
               && now - d->at > SBX_SAMPLES_FRESH
               && now - d->now_at > SBX_SAMPLES_FRESH
               && sbx_samples_read(s, &d->now, &now, &cpu, 0) == 0)
    {
        d->now_at = now;
    }

    memset(&end, 0, sizeof(sbx_f_end_t));

    if (sbx_service_session(call, s, NULL) == 0) {
        end.count = sbx_samples_send(call, d, &asked, d->now_at > d->at);
        sbx_call_end(call, &end);
    }
}


static unsigned
sbx_samples_send(sbx_call_out_t *call, const sbx_sampled_t *d,
    const sbx_samples_t *asked, int now)
{
    uint32_t               i, n, all, skip;
    const sbx_f_sample_t  *sample;

    all = d->count + (now != 0);
    skip = 0;

    /* twice the same: how many there are, and then the newest of them */

    for (n = 0, i = 0; i < all; i++) {
        sample = i < d->count ? &d->ring[i] : &d->now;
        n += sample->time >= asked->start && sample->time <= asked->end;
    }

    if (asked->last != 0 && n > asked->last) {
        skip = n - asked->last;
    }

    for (n = 0, i = 0; i < all; i++) {
        sample = i < d->count ? &d->ring[i] : &d->now;

        if (sample->time < asked->start || sample->time > asked->end) {
            continue;
        }

        if (n++ >= skip
            && sbx_call_frame(call, SBX_F_SAMPLE, sample,
                              sizeof(sbx_f_sample_t), NULL, 0)
               != 0)
        {
            break;
        }
    }

    return n - skip;
}


void
sbx_samples_close(sbx_session_t *s)
{
    sbx_timer_del(&s->broker->loop, &s->sampled.timer);
    free(s->sampled.ring);
    s->sampled.ring = NULL;
    s->sampled.count = 0;
    s->sampled.size = 0;
}
