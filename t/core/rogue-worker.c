/*
 * A worker that is somebody else's by now, and sends every call that there is
 * with everything in it that can be malformed.  It is refused or dropped, and
 * changes nothing: after each batch the broker is the same, serves, and holds
 * no more than it did.
 */

#include "rogue_worker.h"


/*
 * ---- what is malformed ---------------------------------------------------
 */

static void
batch_sizes(sbx_op_t op)
{
    size_t            i, whole;
    sbx_call_t       *head;
    rogue_datagram_t  d;

    static const int  delta[] = { -1, 1, 8, -4, 400 };

    head = (sbx_call_t *) (void *) d.bytes;

    for (i = 0; i < sbx_nelts(delta); i++) {

        /* what is there, and what is said to be there */

        compose(&d, op, victim);
        whole = d.size;
        d.size = (size_t) ((ssize_t) whole + delta[i]);
        refused(&d, op, -1, "another size");

        head->size = (uint32_t) d.size;
        refused(&d, op, -1, "another size, which it says");

        d.size = whole;
        refused(&d, op, -1, "it says another size");
    }

    compose(&d, op, victim);
    d.size = 1;
    refused(&d, op, -1, "one byte");
    d.size = sizeof(sbx_call_t) - 1;
    refused(&d, op, -1, "less than a header");

    for (i = 0; i < 32; i += 31) {
        compose(&d, op, victim);
        head->size = i ? UINT32_MAX : 0;
        refused(&d, op, -1, "no size at all");
    }
}


static void
batch_header(sbx_op_t op)
{
    unsigned          i;
    sbx_call_t       *head;
    rogue_datagram_t  d;

    static const uint16_t  versions[] = {
        0, 1, SBX_WIRE_VERSION - 1, SBX_WIRE_VERSION + 1, UINT16_MAX
    };

    static const char  *ids[] = {
        "i", "i0", "/", "..", "../../../../etc/passwd",
        "I00000000000000000000", "i0000000000000000000/",
        "i00000000000000000000\n", "j0000000000000000000000"
    };

    static const char  *names[] = { "-", ".", "a b", "a/b", "\x80", "a\n" };

    head = (sbx_call_t *) (void *) d.bytes;

    for (i = 0; i < 32; i++) {
        compose(&d, op, victim);
        head->magic ^= 1U << i;
        refused(&d, op, -1, "magic");
    }

    for (i = 0; i < sbx_nelts(versions); i++) {
        compose(&d, op, victim);
        head->version = versions[i];
        refused(&d, op, -1, "version");
    }

    for (i = 0; i < 32; i++) {
        compose(&d, op, victim);

        if (!((1U << i) & SBX_CALL_FLAGS)) {
            head->flags = 1U << i;
            refused(&d, op, -1, "flags");
        }

        if (!((1U << i) & SBX_CREATE_FLAGS)) {
            head->flags = 0;
            head->needs = 1U << i;
            refused(&d, op, -1, "needs");
            head->needs = 0;
            head->bars = 1U << i;
            refused(&d, op, -1, "bars");
        }
    }

    for (i = 0; i < sbx_nelts(ids); i++) {
        compose(&d, op, victim);
        (void) strcpy(head->session, ids[i]);
        refused(&d, op, -1, "the session's id");
    }

    for (i = 0; i < sbx_nelts(names); i++) {
        compose(&d, op, victim);
        (void) strcpy(head->tenant, names[i]);
        refused(&d, op, -1, "the tenant's name");
        compose(&d, op, victim);
        (void) strcpy(head->user, names[i]);
        refused(&d, op, -1, "the user's name");
    }
}


static void
batch_strings(sbx_op_t op)
{
    size_t                 i;
    rogue_datagram_t       d;
    const rogue_string_t  *s;

    for (i = 0; i < sbx_nelts(rogue_strings); i++) {
        s = &rogue_strings[i];

        if (s->op != 0 && s->op != op) {
            continue;
        }

        compose(&d, op, victim);
        memset(d.bytes + s->offset + (s->op ? sizeof(sbx_call_t) : 0), 'a',
               s->size);
        refused(&d, op, -1, s->name);
    }
}


static void
test_malformed(void)
{
    unsigned    op;
    rogue_op_t  row;

    for (op = 0; op < ROGUE_OPS; op++) {
        row = rogue_op((sbx_op_t) op);

        if (row.class == ROGUE_NONE) {
            continue;
        }

        begin();
        sent = 0;
        wrong = 0;
        batch_sizes((sbx_op_t) op);
        batch_header((sbx_op_t) op);
        batch_strings((sbx_op_t) op);

        ok(wrong == 0 && sent > 100, "%s: %u malformed, none is taken",
           row.name, sent);
        same(row.name, 0);
    }
}


/* Nothing that only the broker says, or says hello, is a call. */

static void
test_no_calls(void)
{
    unsigned          op;
    rogue_op_t        row;
    rogue_datagram_t  d;

    begin();
    sent = 0;
    wrong = 0;

    for (op = 0; op <= UINT16_MAX; op += op < ROGUE_OPS ? 1 : 251) {
        row = rogue_op((sbx_op_t) op);

        if (row.class == ROGUE_HELLO || row.class == ROGUE_INNER
            || row.class == ROGUE_NONE)
        {
            compose(&d, (sbx_op_t) op, victim);
            refused(&d, (sbx_op_t) op, -1, "no call");
        }
    }

    ok(wrong == 0 && sent > 250, "%u kinds that are no calls", sent);
    same("no calls", 0);
}


/*
 * ---- descriptors ---------------------------------------------------------
 */

static void
test_descriptors(void)
{
    int               fds[ROGUE_FDS_MAX], others[ROGUE_FDS_MAX];
    unsigned          op, kind, i, n, taken;
    rogue_op_t        row;
    rogue_datagram_t  d;

    for (kind = 0; kind < ROGUE_FD_MAX; kind++) {
        begin();
        taken = 0;

        for (op = 0; op < ROGUE_OPS; op++) {
            row = rogue_op((sbx_op_t) op);

            if (row.class == ROGUE_NONE || row.class == ROGUE_ADMIN) {
                continue;
            }

            last = row.name;

            /* none, one of the kind, the same twice, three and more */

            for (n = 0; n < 6; n++) {
                /* a call that is as good as any, of a caller who is gone */

                if (n == 1
                    && (kind == ROGUE_FD_STREAM || kind >= ROGUE_FD_CLOSED))
                {
                    continue;
                }

                for (i = 0; i < n; i++) {
                    fds[i] = rogue_fd(&t, (rogue_fd_t) kind, &others[i]);
                }

                /* the call's own is good, what comes with it is not */

                if (n == 2) {
                    (void) close(fds[0]);

                    if (others[0] != -1) {
                        (void) close(others[0]);
                    }

                    fds[0] = rogue_pair(SOCK_STREAM, &others[0]);
                }

                compose(&d, (sbx_op_t) op, victim);
                post(&d, fds, n);

                for (i = 0; i < n; i++) {
                    (void) close(fds[i]);
                }

                if (n == 2
                    && (await(others[0], (sbx_op_t) op) != ROGUE_REFUSED
                        || code != SBX_E_INVALID))
                {
                    printf("# %s: with %s\n", row.name,
                           rogue_fd_names[kind]);
                    taken++;
                }

                for (i = n == 2; i < n; i++) {
                    if (others[i] != -1) {
                        (void) close(others[i]);
                    }
                }
            }
        }

        is_int(taken, 0, rogue_fd_names[kind]);
        same(rogue_fd_names[kind], 0);
    }
}


/* Descriptors that cannot be read by whom they are for. */

static void
test_blobs(void)
{
    int               fd, patch;
    char              bytes[16];
    size_t            i, j;
    unsigned          seals;
    sbx_create_t     *create;
    sbx_patch_t      *change;
    rogue_datagram_t  d;

    static const uint32_t  sizes[] = { 1, 15, 17, 4096, 0x7fffffff,
                                       0xfffffff0, UINT32_MAX };

    begin();
    sent = 0;
    wrong = 0;
    memset(bytes, 'x', sizeof(bytes));
    create = (sbx_create_t *) (void *) (d.bytes + sizeof(sbx_call_t));
    change = (sbx_patch_t *) (void *) (d.bytes + sizeof(sbx_call_t));

    for (patch = 0; patch < 2; patch++) {

        /* each of the seals is missing once, and all of them */

        for (seals = 0; seals < 8; seals++) {
            fd = memfd_create("rogue", MFD_CLOEXEC|MFD_ALLOW_SEALING);

            if (fd == -1 || sbx_write_all(fd, bytes, sizeof(bytes)) == -1
                || fcntl(fd, F_ADD_SEALS, (seals & 1 ? F_SEAL_WRITE : 0)
                                          | (seals & 2 ? F_SEAL_SHRINK : 0)
                                          | (seals & 4 ? F_SEAL_GROW : 0))
                   == -1)
            {
                test_die("memfd");
            }

            compose(&d, patch ? SBX_OP_PATCH : SBX_OP_CREATE, victim);

            if (patch) {
                change->flags = SBX_PATCH_META;
                change->timeout = 0;
                change->meta_size = sizeof(bytes);

            } else {
                d.bytes[offsetof(sbx_call_t, session)] = '\0';
                create->env_size = sizeof(bytes);   /* of no "K=V" */
            }

            if (!patch || seals != 7) {
                refused(&d, patch ? SBX_OP_PATCH : SBX_OP_CREATE, fd,
                        "a blob that may change");
            }

            /* all sizes that it has not, in each of what has one */

            for (i = 0; seals == 7 && i < sbx_nelts(sizes); i++) {
                for (j = 0; j < (patch ? 2 : 4); j++) {
                    compose(&d, patch ? SBX_OP_PATCH : SBX_OP_CREATE,
                            victim);

                    if (patch) {
                        change->flags = SBX_PATCH_META|SBX_PATCH_NETWORK;
                        *(j ? &change->network_size : &change->meta_size)
                            = sizes[i];

                    } else {
                        d.bytes[offsetof(sbx_call_t, session)] = '\0';
                        *(j == 0 ? &create->meta_size
                          : j == 1 ? &create->env_size
                          : j == 2 ? &create->rules_size
                          : &create->network_size) = sizes[i];
                    }

                    refused(&d, patch ? SBX_OP_PATCH : SBX_OP_CREATE, fd,
                            "a blob of another size");
                    refused(&d, patch ? SBX_OP_PATCH : SBX_OP_CREATE, -1,
                            "a blob that is missing");
                }
            }

            (void) close(fd);
        }
    }

    ok(wrong == 0 && sent > 50, "%u blobs that are none", sent);
    same("blobs", 0);
}


int
main(void)
{
    if (rogue_start("rogue-worker") != 0) {
        return tap_failed ? done_testing() : 0;
    }

    test_malformed();
    test_no_calls();
    test_descriptors();
    test_blobs();

    return rogue_end();
}
