/*
 * What the keeper is told over its link, with descriptors that are as many as
 * they should be or not; and its store, as the program that comes next finds
 * it in a file, whole or cut.  A message of the input is a byte of its kind,
 * one of how, then the fields of which nothing is put right: type, kind,
 * number, process and name; and with another kind the bytes as they are.
 *
 * Whatever comes: what is kept is kept once, with all its descriptors and no
 * other; what is written of it is read as the same; a link that says nonsense
 * is closed, and its broker is killed; and in the end no descriptor is left.
 */

#include "broker_here.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>


#define MESSAGES   64
#define FIXED      8

/* of the second byte */
#define HOW_LESS   0x01                /* one descriptor too few */
#define HOW_MORE   0x02                /* one too many */
#define HOW_RAW    0x04                /* bytes, as many as there are */
#define HOW_MAGIC  0x08                /* another one */
#define HOW_NAME   0x10                /* a name that does not end */
#define HOW_HAND   0x20                /* then the store is handed on */


static void say(unsigned how, const uint8_t *p, size_t n);
static void check_kept(void);
static void check_store(size_t cut);


static int  null = -1;
static int  link_peer;


int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int       before, after, pair[2];
    size_t    n;
    unsigned  i, how;

    if (null == -1) {
        null = open("/dev/null", O_RDWR|O_CLOEXEC);
        must(null != -1);
    }

    before = dup(null);
    must(before != -1);
    (void) close(before);
    must(socketpair(AF_UNIX, SOCK_SEQPACKET|SOCK_CLOEXEC, 0, pair) == 0);
    link_peer = pair[1];
    keeper_begin(pair[0]);

    for (i = 0; i < MESSAGES && size >= FIXED; i++) {
        how = data[0];
        n = how & HOW_RAW ? size - 1 : FIXED - 1;
        n = how & HOW_RAW && data[1] < n ? data[1] : n;
        say(how, data + 1, n);
        keeper_told();
        check_kept();

        if (how & HOW_HAND) {
            check_store(data[1]);
        }

        data += 1 + n;
        size -= 1 + n;

        if (keeper.link == -1) {
            break;
        }
    }

    (void) close(link_peer);
    keeper_end();
    after = dup(null);
    must(after == before);
    (void) close(after);

    return 0;
}


static void
say(unsigned how, const uint8_t *p, size_t n)
{
    int         fds[SBX_LINK_FDS + 1];
    unsigned    i, nfds;
    sbx_link_t  msg;

    for (i = 0; i < SBX_LINK_FDS + 1; i++) {
        fds[i] = null;
    }

    memset(&msg, 0, sizeof(msg));
    msg.magic = SBX_LINK_MAGIC;
    nfds = how & HOW_MORE ? 1 : 0;

    if (how & HOW_RAW) {
        if (n != 0) {
            (void) sbx_wire_send(link_peer, p, n, fds, nfds, MSG_DONTWAIT);
        }

        return;
    }

    msg.type = p[0] & 15;
    msg.kind = p[1] & 7;
    msg.number = p[2] & 7;
    msg.pid = p[3];
    msg.flags = p[4];
    msg.status = p[5];
    (void) snprintf(msg.id, sizeof(msg.id), "i%020u", p[6] & 7u);

    if (msg.type == SBX_LINK_STORE) {
        nfds += sbx_link_fds((sbx_keep_t) msg.kind);
    }

    nfds -= how & HOW_LESS && nfds != 0 ? 1 : 0;
    msg.magic += how & HOW_MAGIC ? p[6] : 0;

    if (how & HOW_NAME) {
        memset(msg.id, 'i', sizeof(msg.id));
    }

    (void) sbx_link_send(link_peer, &msg, fds, nfds);
}


/* Each once, and its descriptors are nobody else's. */

static void
check_kept(void)
{
    size_t             i, k;
    unsigned           n;
    const sbx_kept_t  *a, *b;

    for (i = 0; i < keeper.nkept; i++) {
        a = &keeper.kept[i];
        must(memchr(a->msg.id, '\0', sizeof(a->msg.id)) != NULL);
        must(a->msg.type == SBX_LINK_STORE);

        for (n = 0; n < sbx_link_fds((sbx_keep_t) a->msg.kind); n++) {
            must(fcntl(a->fds[n], F_GETFD) == FD_CLOEXEC);
        }

        for (k = 0; k < i; k++) {
            b = &keeper.kept[k];
            must(a->msg.kind != b->msg.kind
                 || strcmp(a->msg.id, b->msg.id) != 0
                 || (a->msg.kind != SBX_KEEP_SESSION
                     && a->msg.number != b->msg.number));
            must(sbx_link_fds((sbx_keep_t) a->msg.kind) == 0
                 || sbx_link_fds((sbx_keep_t) b->msg.kind) == 0
                 || a->fds[0] != b->fds[0]);
        }
    }
}


/* The file is read to its end, or to where it was cut. */

static void
check_store(size_t cut)
{
    int          store, fds[SBX_LINK_FDS], rc;
    off_t        size;
    size_t       i;
    unsigned     n;
    sbx_link_t   msg;

    store = memfd_create("store", MFD_CLOEXEC);
    must(store != -1);
    keeper_hands_on(store);
    size = lseek(store, 0, SEEK_END);
    must(size == (off_t) (keeper.nkept * sizeof(sbx_link_t)));

    if (cut & 1 && (off_t) (cut / 2) < size) {
        must(ftruncate(store, size - (off_t) (cut / 2)) == 0);
    }

    must(lseek(store, 0, SEEK_SET) == 0);

    for (i = 0; (rc = sbx_link_read(store, &msg, fds)) == 1; i++) {
        must(i < keeper.nkept);
        must(msg.kind == keeper.kept[i].msg.kind
             && msg.number == keeper.kept[i].msg.number
             && msg.pid == keeper.kept[i].msg.pid
             && msg.flags == keeper.kept[i].msg.flags
             && strcmp(msg.id, keeper.kept[i].msg.id) == 0);

        for (n = 0; n < sbx_link_fds((sbx_keep_t) msg.kind); n++) {
            must(fds[n] != keeper.kept[i].fds[n]);
            must(fcntl(fds[n], F_GETFD) == FD_CLOEXEC);
            (void) close(fds[n]);
        }
    }

    must(rc == 0 || (cut & 1 && cut / 2 % sizeof(sbx_link_t) != 0));
    must((rc == 0 && i == keeper.nkept) || cut & 1);

    /* of what was cut off the copies are still there */

    for ( /* void */ ; i < keeper.nkept; i++) {
        for (n = 0; n < sbx_link_fds((sbx_keep_t) keeper.kept[i].msg.kind);
             n++)
        {
            (void) close(keeper_copies[i][n]);
        }
    }

    (void) close(store);
}


/* ---- what a broker's target looks at ------------------------------------ */


void
process_read(process_t *p)
{
    (void) p;
}


void
machine_check_launch(const sbx_launch_t *launch)
{
    (void) launch;
}
