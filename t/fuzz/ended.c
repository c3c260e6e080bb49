/*
 * How sessions ended, as the next broker finds it.  The first byte's highest
 * bit leaves sums and times as they are, which are put right else: nothing
 * behind them would be reached.
 */

#include "fuzz.h"
#include "../../sandbox_core/broker/graves.c"

#include <sys/mman.h>
#include <time.h>


static void check_ended(uint8_t *p, size_t n, int mend);


static sbx_broker_t  broker;


int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t  *copy;

    if (size == 0) {
        return 0;
    }

    copy = malloc(size);

    if (copy == NULL) {
        return 0;
    }

    memcpy(copy, data + 1, size - 1);
    check_ended(copy, size - 1, data[0] < 0x80);
    free(copy);

    return 0;
}


static void
check_ended(uint8_t *p, size_t n, int mend)
{
    size_t               i;
    int64_t              now;
    sbx_grave_t          grave;
    sbx_graves_t        *g;
    sbx_broker_t        *b;
    sbx_f_session_t      info;
    const sbx_grave_t   *found;

    now = sbx_broker_clock_ms();

    for (i = 0; mend && i + sizeof(grave) <= n; i += sizeof(grave)) {
        memcpy(&grave, p + i, sizeof(grave));
        grave.ended_at = now - (grave.ended_at & 0x3fffff);
        grave.sum = sbx_graves_sum(&grave);
        memcpy(p + i, &grave, sizeof(grave));
    }

    /* as sbx_graves_open(), whose file is one of a directory's */

    b = &broker;
    g = &b->graves;
    g->graves = calloc(SBX_ENDED_MAX, sizeof(sbx_grave_t));
    g->buckets = calloc(SBX_GRAVES_BUCKETS, sizeof(uint32_t));
    g->chain = calloc(SBX_ENDED_MAX, sizeof(uint32_t));
    g->fd = memfd_create("ended", MFD_CLOEXEC);
    must(g->graves != NULL && g->buckets != NULL && g->chain != NULL
         && g->fd != -1 && pwrite(g->fd, p, n, 0) == (ssize_t) n);

    sbx_graves_load(b);
    must(g->next < SBX_ENDED_MAX);

    /* whatever was there, a session that ends is found, and goes again */

    memset(&info, 0, sizeof(info));
    (void) strcpy(info.id, "i00000000000000000000");

    for (i = 0; i < 2; i++) {
        sbx_graves_add(b, &info, SBX_ENDED_EXPIRED, now);
        found = sbx_graves_find(b, info.id);
        must(found != NULL && found->ended == SBX_ENDED_EXPIRED);
    }

    for (i = 0; i + sizeof(grave) <= n; i += sizeof(grave)) {
        memcpy(&grave, p + i, sizeof(grave));
        grave.id[sizeof(grave.id) - 1] = '\0';
        found = sbx_graves_find(b, grave.id);
        must(found == NULL || strcmp(found->id, grave.id) == 0);
    }

    sbx_graves_close(b);
}


int64_t
sbx_broker_clock_ms(void)
{
    struct timespec  ts;

    (void) clock_gettime(CLOCK_REALTIME, &ts);

    return (int64_t) ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}
