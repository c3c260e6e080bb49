/*
 * The keeper's store.  It takes what it can hold with room to spare for
 * watching it; what it cannot is refused, and the broker asks again
 * (unkept.c).  Nothing that was taken is ever let go for want of memory.
 */

#include "keeper.h"
#include "sandbox_util.h"

#include <errno.h>
#include <poll.h>
#include <string.h>


#define SBX_KEEPER_STORE   64         /* to begin with */


static int sbx_keeper_grow(sbx_keeper_t *k);


int
sbx_keeper_store_open(sbx_keeper_t *k, sbx_error_t *e)
{
    return sbx_keeper_grow(k) == 0
           ? 0 : sbx_error(e, ENOMEM, SBX_E_INTERNAL, "out of memory");
}


void
sbx_keeper_store_close(sbx_keeper_t *k)
{
    while (k->nkept != 0) {
        sbx_keeper_remove(k, &k->kept[0]);
    }

    free(k->kept);
    free(k->pfds);
}


int
sbx_keeper_store(sbx_keeper_t *k, sbx_link_t *msg, int *fds)
{
    unsigned     i;
    sbx_kept_t  *kept;

    kept = sbx_keeper_find(k, msg);

    if (kept != NULL) {
        sbx_keeper_remove(k, kept);
    }

    if (k->nkept == k->kept_size && sbx_keeper_grow(k) != 0) {
        for (i = 0; i < sbx_link_fds(msg->kind); i++) {
            (void) close(fds[i]);
        }

        return -1;
    }

    kept = &k->kept[k->nkept++];
    memset(kept, 0, sizeof(sbx_kept_t));
    kept->msg = *msg;
    kept->msg.type = SBX_LINK_STORE;

    for (i = 0; i < sbx_link_fds(msg->kind); i++) {
        kept->fds[i] = fds[i];
    }

    return 0;
}


static int
sbx_keeper_grow(sbx_keeper_t *k)
{
    size_t          size;
    sbx_kept_t     *kept;
    struct pollfd  *pfds;

    size = k->kept_size ? k->kept_size * 2 : SBX_KEEPER_STORE;
    pfds = realloc(k->pfds, (size + 2) * sizeof(struct pollfd));

    if (pfds == NULL) {
        return -1;
    }

    k->pfds = pfds;
    kept = realloc(k->kept, size * sizeof(sbx_kept_t));

    if (kept == NULL) {
        return -1;
    }

    k->kept = kept;
    k->kept_size = size;

    return 0;
}


/* A session by its name alone. */

sbx_kept_t *
sbx_keeper_find(sbx_keeper_t *k, const sbx_link_t *msg)
{
    size_t       i;
    sbx_link_t  *m;

    for (i = 0; i < k->nkept; i++) {
        m = &k->kept[i].msg;

        if (m->kind == msg->kind && strcmp(m->id, msg->id) == 0
            && (m->kind == SBX_KEEP_SESSION || m->number == msg->number))
        {
            return &k->kept[i];
        }
    }

    return NULL;
}


void
sbx_keeper_remove(sbx_keeper_t *k, sbx_kept_t *kept)
{
    unsigned  i;

    for (i = 0; i < sbx_link_fds(kept->msg.kind); i++) {
        (void) close(kept->fds[i]);
    }

    *kept = k->kept[--k->nkept];
}
