/*
 * Host ids of sessions, and their names.
 *
 * A session has 65,536 host ids of its own, a slot.  Two brokers of one
 * machine may be configured with the same range, so ids are taken in cells
 * of 128 slots on a grid that is the same for everybody: cell n is ids
 * [n * 2^23, (n + 1) * 2^23), and who holds the abstract socket
 * "nginx-sandbox-ids-<n>" may use it.  The socket is in the keeper's store:
 * a cell stays taken while a session may live, broker or not.  Abstract
 * names belong to the network namespace; brokers that share ids but not that
 * namespace need ranges of their own.
 *
 * A slot is given back when its session's processes, groups and files are
 * gone, and is taken again as late as the search allows.  A broker that is
 * started again gives out none until it has taken again those of all that an
 * earlier one has left, whether it can go on with it or not.
 */

#include "broker.h"
#include "sandbox_fault.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/utsname.h>


#define SBX_IDS_CELL_SIZE   ((uint64_t) SBX_IDS_CELL * SBX_IDS_SLOT)
#define SBX_IDS_END         ((uint64_t) 1 << 31)  /* mount options are int */
#define SBX_IDS_TAG         4       /* characters of the tag in a name */
#define SBX_IDS_RANDOM      22      /* 36^22: 113 bits */


static int sbx_ids_reserve(uint64_t number);
static int sbx_ids_grow(sbx_broker_t *b);
static uint32_t sbx_ids_layout(const sbx_ids_t *ids, uint64_t number,
    uint64_t *first);
static int sbx_ids_add(sbx_broker_t *b, uint64_t number, int fd);
static int sbx_ids_find(sbx_broker_t *b, sbx_slot_t *slot);


static const char  sbx_ids_letters[] = "abcdefghijklmnopqrstuvwxyz0123456789";


int
sbx_ids_open(sbx_broker_t *b, sbx_error_t *e)
{
    int         i;
    uint32_t    n;
    uint64_t    end;
    sbx_ids_t  *ids;

    ids = &b->ids;
    ids->first = b->config.uid_first;
    ids->count = b->config.uid_count;

    if (ids->first < SBX_IDS_SLOT || ids->count < SBX_IDS_SLOT
        || ids->first > SBX_IDS_END
        || ids->count > SBX_IDS_END - ids->first)
    {
        return sbx_error(e, 0, SBX_E_UNAVAILABLE,
                         "sandbox_uid_range must lie within 65536 and "
                         "2147483647 and hold at least 65536 ids");
    }

    /* those of the store were added before the range was known */

    for (n = 0; n < ids->ncells; n++) {
        ids->cells[n].slots = sbx_ids_layout(ids, ids->cells[n].number,
                                             &ids->cells[n].first);
    }

    if (ids->ncells != 0) {
        return 0;
    }

    i = sbx_ids_grow(b);

    if (i == 0) {
        return 0;
    }

    end = ids->first + ids->count - 1;

    return sbx_error(e, 0, SBX_E_UNAVAILABLE,
                     "no ids are free in sandbox_uid_range %llu-%llu: other "
                     "brokers of this machine use them; end one, or give "
                     "this server a range of its own",
                     (unsigned long long) ids->first,
                     (unsigned long long) end);
}


void
sbx_ids_adopt(sbx_broker_t *b, uint64_t number, int fd)
{
    if (sbx_ids_add(b, number, fd) != 0) {
        (void) close(fd);
    }
}


static int
sbx_ids_add(sbx_broker_t *b, uint64_t number, int fd)
{
    sbx_ids_t   *ids;
    sbx_cell_t  *cell;

    ids = &b->ids;

    if (ids->ncells == SBX_IDS_CELLS) {
        return -1;
    }

    cell = &ids->cells[ids->ncells++];
    memset(cell, 0, sizeof(sbx_cell_t));
    cell->number = number;
    cell->fd = fd;
    cell->slots = sbx_ids_layout(ids, number, &cell->first);

    return 0;
}


/* The slots of a cell that lie within the configured range. */

static uint32_t
sbx_ids_layout(const sbx_ids_t *ids, uint64_t number, uint64_t *first)
{
    uint64_t  from, to;

    from = number * SBX_IDS_CELL_SIZE;
    to = from + SBX_IDS_CELL_SIZE;

    if (from < ids->first) {
        from = ids->first;
    }

    if (to > ids->first + ids->count) {
        to = ids->first + ids->count;
    }

    *first = from;

    return from < to ? (uint32_t) ((to - from) / SBX_IDS_SLOT) : 0;
}


static int
sbx_ids_reserve(uint64_t number)
{
    int                 n;
    socklen_t           len;
    sbx_auto_fd         fd = -1;
    struct sockaddr_un  addr;

    fd = socket(AF_UNIX, SOCK_STREAM|SOCK_CLOEXEC, 0);

    if (fd == -1) {
        return -1;
    }

    memset(&addr, 0, sizeof(struct sockaddr_un));
    addr.sun_family = AF_UNIX;
    n = snprintf(addr.sun_path + 1, sizeof(addr.sun_path) - 1,
                 "nginx-sandbox-ids-%llu", (unsigned long long) number);
    len = (socklen_t) (offsetof(struct sockaddr_un, sun_path) + 1
                       + (size_t) n);

    if (bind(fd, (struct sockaddr *) &addr, len) == -1) {
        return -1;
    }

    return sbx_steal_fd(&fd);
}


/* One more cell; -1 with errno: there is none (EADDRINUSE), or none can be had
 * just now. */

static int
sbx_ids_grow(sbx_broker_t *b)
{
    int         err, fd;
    uint64_t    number, last, first;
    sbx_ids_t  *ids;

    ids = &b->ids;

    errno = EADDRINUSE;

    if (ids->ncells == SBX_IDS_CELLS) {
        return -1;
    }

    last = (ids->first + ids->count - 1) / SBX_IDS_CELL_SIZE;

    for (number = ids->first / SBX_IDS_CELL_SIZE; number <= last; number++) {

        if (sbx_ids_layout(ids, number, &first) == 0) {
            continue;
        }

        fd = sbx_ids_reserve(number);

        if (fd == -1) {
            if (errno == EADDRINUSE) {
                continue;
            }

            return -1;
        }

        if (sbx_ids_add(b, number, fd) != 0) {
            (void) close(fd);
            errno = EADDRINUSE;
            return -1;
        }

        if (sbx_broker_tell(b, SBX_LINK_STORE, SBX_KEEP_IDS, number, NULL,
                            &fd)
            != 0)
        {
            err = errno;
            ids->ncells--;
            (void) close(fd);
            errno = err;
            return -1;
        }

        SBX_FAULT("broker-ids-reserved");

        return 0;
    }

    errno = EADDRINUSE;

    return -1;
}


int
sbx_ids_slot(sbx_broker_t *b, sbx_slot_t *taken, sbx_error_t *e)
{
    uint32_t     i, n, slot;
    sbx_cell_t  *cell;

    if (!b->left.known) {
        return sbx_error(e, 0, SBX_E_UNAVAILABLE,
                         "it is not known yet which ids are in use");
    }

    for (i = 0; i < b->ids.ncells || sbx_ids_grow(b) == 0; i++) {
        cell = &b->ids.cells[i];

        if (cell->used >= cell->slots) {
            continue;
        }

        for (n = 0; n < cell->slots; n++) {
            slot = (cell->next + n) % cell->slots;

            if (!cell->taken[slot] && cell->held[slot] == 0) {
                cell->taken[slot] = 1;
                cell->used++;
                cell->next = slot + 1;

                taken->cell = i;
                taken->slot = slot;
                taken->first = cell->first + (uint64_t) slot * SBX_IDS_SLOT;

                return 0;
            }
        }
    }

    if (errno != EADDRINUSE) {
        return sbx_error(e, errno, SBX_E_UNAVAILABLE,
                         "no more ids can be reserved");
    }

    return sbx_error(e, 0, SBX_E_CAPACITY,
                     "every slot of sandbox_uid_range is in use");
}


/* -1: it is none of ours. */

static int
sbx_ids_find(sbx_broker_t *b, sbx_slot_t *slot)
{
    uint32_t     i;
    uint64_t     n;
    sbx_cell_t  *cell;

    for (i = 0; i < b->ids.ncells; i++) {
        cell = &b->ids.cells[i];

        if (slot->first < cell->first) {
            continue;
        }

        n = (slot->first - cell->first) / SBX_IDS_SLOT;

        if (n < cell->slots && cell->first + n * SBX_IDS_SLOT == slot->first)
        {
            slot->cell = i;
            slot->slot = (uint32_t) n;
            return 0;
        }
    }

    return -1;
}


int
sbx_ids_slot_again(sbx_broker_t *b, sbx_slot_t *taken)
{
    sbx_cell_t  *cell;

    if (sbx_ids_find(b, taken) != 0) {
        return -1;
    }

    cell = &b->ids.cells[taken->cell];

    if (cell->taken[taken->slot]) {
        return -1;
    }

    cell->taken[taken->slot] = 1;
    cell->used += cell->held[taken->slot] == 0;

    return 0;
}


int
sbx_ids_hold(sbx_broker_t *b, uint64_t first)
{
    sbx_slot_t   slot;
    sbx_cell_t  *cell;

    slot.first = first;

    if (sbx_ids_find(b, &slot) != 0) {
        return 0;
    }

    cell = &b->ids.cells[slot.cell];

    if (cell->held[slot.slot]++ == 0) {
        cell->used += !cell->taken[slot.slot];
    }

    return 1;
}


void
sbx_ids_release(sbx_broker_t *b, uint64_t first)
{
    sbx_slot_t   slot;
    sbx_cell_t  *cell;

    slot.first = first;

    if (sbx_ids_find(b, &slot) != 0) {
        return;
    }

    cell = &b->ids.cells[slot.cell];

    if (--cell->held[slot.slot] == 0) {
        cell->used -= !cell->taken[slot.slot];
    }
}


void
sbx_ids_slot_give(sbx_broker_t *b, sbx_slot_t *taken)
{
    sbx_cell_t  *cell;

    if (taken->first == 0) {
        return;
    }

    cell = &b->ids.cells[taken->cell];
    cell->taken[taken->slot] = 0;
    cell->used -= cell->held[taken->slot] == 0;
    taken->first = 0;
}


int
sbx_ids_take(sbx_broker_t *b, sbx_session_t *s, sbx_error_t *e)
{
    sbx_slot_t  taken;

    if (sbx_ids_slot(b, &taken, e) != 0) {
        return -1;
    }

    s->cell = taken.cell;
    s->slot = taken.slot;
    s->uid_first = taken.first;

    return 0;
}


/* Of a session of an earlier broker.  Only who has a slot can give it. */

int
sbx_ids_retake(sbx_broker_t *b, sbx_session_t *s, uint64_t first)
{
    sbx_slot_t  taken;

    taken.first = first;

    if (sbx_ids_slot_again(b, &taken) != 0) {
        return -1;
    }

    s->cell = taken.cell;
    s->slot = taken.slot;
    s->uid_first = first;

    return 0;
}


void
sbx_ids_give(sbx_broker_t *b, sbx_session_t *s)
{
    sbx_slot_t  taken;

    taken.first = s->uid_first;
    taken.cell = s->cell;
    taken.slot = s->slot;

    sbx_ids_slot_give(b, &taken);
    s->uid_first = 0;
}


void
sbx_ids_close(sbx_broker_t *b)
{
    uint32_t  i;

    for (i = 0; i < b->ids.ncells; i++) {
        (void) sbx_broker_tell(b, SBX_LINK_DROP, SBX_KEEP_IDS,
                               b->ids.cells[i].number, NULL, NULL);
        (void) close(b->ids.cells[i].fd);
    }

    b->ids.ncells = 0;
}


/* What tells this broker from others: the machine and the state directory. */

int
sbx_ids_tag(sbx_broker_t *b, sbx_error_t *e)
{
    size_t          i;
    ssize_t         n;
    uint64_t        sum;
    char            machine[128];
    struct utsname  name;

    n = sbx_read_at(AT_FDCWD, "/etc/machine-id", machine, sizeof(machine));

    if (n <= 0) {
        if (uname(&name) == -1) {
            return sbx_error(e, errno, SBX_E_INTERNAL, "uname() failed");
        }

        n = snprintf(machine, sizeof(machine), "%s", name.nodename);
    }

    sum = sbx_record_sum(machine, strlen(machine), 0);
    sum = sbx_record_sum(b->options->state_dir,
                         strlen(b->options->state_dir), sum);
    sum ^= sum >> 29;

    for (i = 0; i < sizeof(b->tag) - 1; i++) {
        b->tag[i] = sbx_ids_letters[sum % 36];
        sum /= 36;
    }

    b->tag[i] = '\0';

    return 0;
}


int
sbx_ids_name(sbx_broker_t *b, char id[SBX_ID_MAX + 8], sbx_error_t *e)
{
    size_t   i, n, used;
    uint8_t  random[64];

    n = 0;
    id[n++] = 'i';

    for (i = 0; i < SBX_IDS_TAG; i++) {
        id[n++] = b->tag[i];
    }

    used = sizeof(random);

    for (i = 0; i < SBX_IDS_RANDOM; used++) {

        if (used >= sizeof(random)) {
            if (getrandom(random, sizeof(random), 0)
                != (ssize_t) sizeof(random))
            {
                return sbx_error(e, errno, SBX_E_INTERNAL,
                                 "getrandom() failed");
            }

            used = 0;
        }

        /* 252 is the largest multiple of 36 in a byte */

        if (random[used] < 252) {
            id[n++] = sbx_ids_letters[random[used] % 36];
            i++;
        }
    }

    id[n] = '\0';

    return 0;
}
