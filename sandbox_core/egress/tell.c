/*
 * Refusals.  The page counts them all; the broker is told of at most a hundred
 * a second of one session, and how many were left out before.  What it does
 * not take is left out too: nobody waits for it.
 */

#include "egress.h"

#include <string.h>
#include <sys/socket.h>


#define SBX_EG_TOLD_MAX      100       /* a second */
#define SBX_EG_TOLD_SECOND   1000000   /* us */


void
sbx_eg_refused(sbx_eg_session_t *s, sbx_refused_t why,
    const uint8_t *address, unsigned port, const char *name)
{
    size_t               i;
    uint64_t             now;
    sbx_egress_record_t  record;

    s->traffic->refused++;

    now = sbx_now_us();

    if (now - s->told_at >= SBX_EG_TOLD_SECOND) {
        s->told_at = now;
        s->told = 0;
    }

    if (s->told >= SBX_EG_TOLD_MAX) {
        s->untold += s->untold < UINT32_MAX;
        return;
    }

    memset(&record, 0, sizeof(record));
    record.magic = SBX_EGRESS_MAGIC;
    record.type = SBX_EGRESS_REFUSED;
    memcpy(record.session, s->id, sizeof(record.session));
    record.reason = why;
    record.port = port;
    record.more = s->untold;

    if (address != NULL) {
        memcpy(record.address, address, sizeof(record.address));
    }

    for (i = 0; name != NULL && name[i] != '\0'
                && i < sizeof(record.name) - 1; i++)
    {
        record.name[i] = name[i] > ' ' && name[i] < 0x7f ? name[i] : '?';
    }

    if (send(s->egress->control, &record, sizeof(record),
             MSG_DONTWAIT|MSG_NOSIGNAL)
        != (ssize_t) sizeof(record))
    {
        s->untold += s->untold < UINT32_MAX;
        return;
    }

    s->told++;
    s->untold = 0;
}
