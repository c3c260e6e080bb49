/*
 * What a session may do so many times a second, and in a burst so many times
 * at once: a bucket that fills with time.
 */

#include "egress.h"


int
sbx_eg_bucket_take(sbx_eg_bucket_t *bucket, unsigned rate, unsigned burst)
{
    uint64_t  now, full;

    now = sbx_now_us();
    full = (uint64_t) burst * 1000000;

    /* the first time, or after so long that it is full again */

    if (bucket->at == 0 || now - bucket->at >= full / rate) {
        bucket->left = full;

    } else {
        bucket->left += (now - bucket->at) * rate;

        if (bucket->left > full) {
            bucket->left = full;
        }
    }

    bucket->at = now;

    if (bucket->left < 1000000) {
        return 0;
    }

    bucket->left -= 1000000;

    return 1;
}
