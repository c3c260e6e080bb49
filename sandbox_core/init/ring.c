/*
 * What is kept of the output of processes: rings, made of chunks of one
 * arena that all of them share.  The arena is mapped when the first byte is
 * to be kept, and its pages come as they are used.
 *
 * A ring holds its limit's newest bytes, and what somebody who is attached
 * has yet to read.  When the arena is full, the oldest chunk of all goes
 * that nobody waits for.  Where there is none, a stream that is read has to
 * wait (_room() says so), and one that nobody reads loses what it has.  What
 * may still be on its way to a reader goes after all else.
 */

#include "init_process.h"

#include <string.h>
#include <sys/mman.h>


#define SBX_INIT_CHUNK        4096
#define SBX_INIT_CHUNKS       (SBX_RINGS_MAX / SBX_INIT_CHUNK)
#define SBX_INIT_RING_UNREAD  65536      /* at least so much may wait */


typedef struct {
    sbx_init_ring_t   *ring;
    uint64_t           start;            /* offset of its first byte */
    uint32_t           next;             /* in its ring; or of those free */
    uint32_t           older;            /* among all */
    uint32_t           younger;
} sbx_init_chunk_t;


static uint32_t sbx_init_chunk_new(sbx_init_ring_t *ring);
static uint32_t sbx_init_chunk_evict(void);
static uint64_t sbx_init_chunk_end(uint32_t i);
static uint64_t sbx_init_ring_keep(const sbx_init_ring_t *ring);
static void sbx_init_chunk_drop(sbx_init_ring_t *ring);


static sbx_init_chunk_t   sbx_init_chunks[SBX_INIT_CHUNKS + 1];
static uint8_t           *sbx_init_chunk_memory;
static uint32_t           sbx_init_chunk_free;
static uint32_t           sbx_init_chunks_free;
static uint32_t           sbx_init_chunks_used;    /* ever, from 1 */
static uint32_t           sbx_init_chunk_oldest;
static uint32_t           sbx_init_chunk_youngest;


static uint8_t *
sbx_init_chunk_data(uint32_t i)
{
    return sbx_init_chunk_memory + (size_t) (i - 1) * SBX_INIT_CHUNK;
}


static uint64_t
sbx_init_chunk_end(uint32_t i)
{
    uint32_t  next;

    next = sbx_init_chunks[i].next;

    return next != 0 ? sbx_init_chunks[next].start
                     : sbx_init_chunks[i].ring->next;
}


static uint32_t
sbx_init_chunk_new(sbx_init_ring_t *ring)
{
    void              *p;
    uint32_t           i;
    sbx_init_chunk_t  *chunk;

    if (sbx_init_chunk_memory == NULL) {
        p = mmap(NULL, SBX_RINGS_MAX, PROT_READ|PROT_WRITE,
                 MAP_PRIVATE|MAP_ANONYMOUS|MAP_NORESERVE, -1, 0);

        if (p == MAP_FAILED) {
            return 0;
        }

        (void) madvise(p, SBX_RINGS_MAX, MADV_DONTFORK);
        (void) madvise(p, SBX_RINGS_MAX, MADV_NOHUGEPAGE);
        sbx_init_chunk_memory = p;
    }

    if (sbx_init_chunk_free == 0 && sbx_init_chunks_used == SBX_INIT_CHUNKS
        && !sbx_init_chunk_evict())
    {
        return 0;
    }

    if (sbx_init_chunk_free != 0) {
        i = sbx_init_chunk_free;
        sbx_init_chunk_free = sbx_init_chunks[i].next;
        sbx_init_chunks_free--;

    } else {
        i = ++sbx_init_chunks_used;
    }

    chunk = &sbx_init_chunks[i];
    chunk->ring = ring;
    chunk->start = ring->next;
    chunk->next = 0;
    chunk->younger = 0;
    chunk->older = sbx_init_chunk_youngest;

    if (chunk->older != 0) {
        sbx_init_chunks[chunk->older].younger = i;

    } else {
        sbx_init_chunk_oldest = i;
    }

    sbx_init_chunk_youngest = i;

    if (ring->last != 0) {
        sbx_init_chunks[ring->last].next = i;

    } else {
        ring->first = i;
    }

    ring->last = i;

    return i;
}


/* A ring's first chunk is the oldest that it has. */

static void
sbx_init_chunk_drop(sbx_init_ring_t *ring)
{
    uint32_t           i;
    uint64_t           end;
    sbx_init_chunk_t  *chunk;

    i = ring->first;
    chunk = &sbx_init_chunks[i];
    end = sbx_init_chunk_end(i);

    if (ring->oldest < end) {
        ring->oldest = end;
    }

    ring->first = chunk->next;

    if (ring->first == 0) {
        ring->last = 0;
    }

    if (chunk->older != 0) {
        sbx_init_chunks[chunk->older].younger = chunk->younger;

    } else {
        sbx_init_chunk_oldest = chunk->younger;
    }

    if (chunk->younger != 0) {
        sbx_init_chunks[chunk->younger].older = chunk->older;

    } else {
        sbx_init_chunk_youngest = chunk->older;
    }

    chunk->ring = NULL;
    chunk->next = sbx_init_chunk_free;
    sbx_init_chunk_free = i;
    sbx_init_chunks_free++;
}


static uint32_t
sbx_init_chunk_evict(void)
{
    uint32_t          i, last;
    sbx_init_ring_t  *ring;

    last = 0;

    for (i = sbx_init_chunk_oldest; i != 0; i = sbx_init_chunks[i].younger) {
        ring = sbx_init_chunks[i].ring;

        if (ring->first != i || sbx_init_chunk_end(i) > ring->hold) {
            continue;
        }

        if (sbx_init_chunk_end(i) <= sbx_init_ring_keep(ring)) {
            sbx_init_chunk_drop(ring);
            return 1;
        }

        if (last == 0) {
            last = i;
        }
    }

    if (last != 0) {
        sbx_init_chunk_drop(sbx_init_chunks[last].ring);
        return 1;
    }

    return 0;
}


/* From here on bytes may have yet to come to whom they were sent. */

static uint64_t
sbx_init_ring_keep(const sbx_init_ring_t *ring)
{
    uint64_t  at;

    at = ring->hold < ring->next ? ring->hold : ring->next;

    return at > ring->flight ? at - ring->flight : 0;
}


uint64_t
sbx_init_ring_room(const sbx_init_ring_t *ring, uint64_t want)
{
    uint32_t  i;
    uint64_t  most, room;

    if (ring->hold == SBX_INIT_FREE_HOLD) {
        return want;
    }

    most = ring->limit > SBX_INIT_RING_UNREAD ? ring->limit
                                              : SBX_INIT_RING_UNREAD;

    if (ring->next - ring->hold >= most) {
        return 0;
    }

    most -= ring->next - ring->hold;
    want = want < most ? want : most;

    room = (uint64_t) (sbx_init_chunks_free + SBX_INIT_CHUNKS
                       - sbx_init_chunks_used) * SBX_INIT_CHUNK;

    if (ring->last != 0) {
        room += SBX_INIT_CHUNK
                - (ring->next - sbx_init_chunks[ring->last].start);
    }

    for (i = sbx_init_chunk_oldest;
         i != 0 && room < want;
         i = sbx_init_chunks[i].younger)
    {
        /* its own last one may be written to while the rest is counted */

        if (i != ring->last
            && sbx_init_chunk_end(i) <= sbx_init_chunks[i].ring->hold)
        {
            room += SBX_INIT_CHUNK;
        }
    }

    return room < want ? room : want;
}


void
sbx_init_ring_append(sbx_init_ring_t *ring, const uint8_t *data, size_t n)
{
    size_t    used, size;
    uint32_t  i;

    while (n != 0) {
        i = ring->last;
        used = i != 0 ? (size_t) (ring->next - sbx_init_chunks[i].start)
                      : SBX_INIT_CHUNK;

        if (used == SBX_INIT_CHUNK) {
            i = sbx_init_chunk_new(ring);
            used = 0;
        }

        if (i == 0) {
            /* what comes after a gap begins anew */
            sbx_init_ring_free(ring);
            ring->next += n;
            ring->oldest = ring->next;
            return;
        }

        size = SBX_INIT_CHUNK - used < n ? SBX_INIT_CHUNK - used : n;
        memcpy(sbx_init_chunk_data(i) + used, data, size);

        ring->next += size;
        data += size;
        n -= size;

        sbx_init_ring_trim(ring);
    }
}


void
sbx_init_ring_trim(sbx_init_ring_t *ring)
{
    uint64_t  keep, flown;

    if (ring->next - ring->oldest <= ring->limit) {
        return;
    }

    keep = ring->next - ring->limit;
    flown = sbx_init_ring_keep(ring);
    keep = keep < flown ? keep : flown;

    while (ring->first != 0 && ring->first != ring->last
           && sbx_init_chunk_end(ring->first) <= keep)
    {
        sbx_init_chunk_drop(ring);
    }

    if (ring->oldest < keep) {
        ring->oldest = keep;
    }
}


unsigned
sbx_init_ring_peek(const sbx_init_ring_t *ring, uint64_t from, uint64_t n,
    struct iovec *iov, unsigned niov)
{
    uint32_t  i;
    uint64_t  end, size;
    unsigned  count;

    count = 0;

    for (i = ring->first;
         i != 0 && n != 0 && count < niov;
         i = sbx_init_chunks[i].next)
    {
        end = sbx_init_chunk_end(i);

        if (from >= end) {
            continue;
        }

        size = end - from < n ? end - from : n;

        iov[count].iov_base = sbx_init_chunk_data(i)
                              + (from - sbx_init_chunks[i].start);
        iov[count].iov_len = (size_t) size;
        count++;

        from += size;
        n -= size;
    }

    return count;
}


void
sbx_init_ring_free(sbx_init_ring_t *ring)
{
    uint32_t  i;

    while (ring->first != 0) {
        i = ring->first;
        sbx_init_chunk_drop(ring);
        (void) madvise(sbx_init_chunk_data(i), SBX_INIT_CHUNK,
                       MADV_DONTNEED);
    }

    ring->oldest = ring->next;
}
