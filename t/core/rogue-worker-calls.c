/*
 * A worker that is somebody else's by now: calls that are well-formed and
 * senseless, random ones, out of order, of the dead, and with sockets that
 * nobody reads.  Each has an answer, and none does harm to others.
 *
 * SANDBOX_TEST_LONG=1: twenty times as many of the random calls.
 */

#include "rogue_worker.h"


#define ROUNDS      2000          /* of random calls */
#define UNREAD      300           /* answers that nobody reads */


/*
 * ---- what is well-formed and senseless -----------------------------------
 */

/* An administrator's own words: what the node is like again. */

static void
restore(void)
{
    size_t               i;
    sbx_drain_t         *drain;
    rogue_datagram_t     d;
    sbx_quota_set_t     *quota;
    sbx_settings_set_t  *settings;

    last = "what undoes it";
    compose(&d, SBX_OP_DRAIN, "");
    drain = (sbx_drain_t *) (void *) (d.bytes + sizeof(sbx_call_t));
    drain->on = 0;
    (void) send_one(&d, SBX_OP_DRAIN, -1);

    compose(&d, SBX_OP_QUOTA_SET, victim);
    d.bytes[offsetof(sbx_call_t, session)] = '\0';
    quota = (sbx_quota_set_t *) (void *) (d.bytes + sizeof(sbx_call_t));
    quota->remove = 1;
    (void) send_one(&d, SBX_OP_QUOTA_SET, -1);

    compose(&d, SBX_OP_SETTINGS_SET, "");
    settings = (sbx_settings_set_t *) (void *) (d.bytes
                                                + sizeof(sbx_call_t));
    settings->mask = (1U << SBX_SETTINGS) - 1;

    for (i = 0; i < SBX_SETTINGS; i++) {
        settings->values[i] = SBX_UNSET;
    }

    (void) send_one(&d, SBX_OP_SETTINGS_SET, -1);
}


/* Each word of a body, one after the other, has each of these. */

static void
test_values(void)
{
    size_t            at, i;
    uint64_t          value;
    unsigned          op, silent;
    rogue_op_t        row;
    rogue_result_t    result;
    rogue_datagram_t  d;

    static const uint64_t  values[] = {
        UINT64_MAX, INT64_MAX, (uint64_t) INT64_MIN, 0x7fffffff80000000,
        1, 0
    };

    for (op = 0; op < ROGUE_OPS; op++) {
        row = rogue_op((sbx_op_t) op);

        if (row.class == ROGUE_NONE || row.class == ROGUE_HELLO
            || row.body == 0)
        {
            continue;
        }

        begin();
        sent = 0;
        silent = 0;
        last = row.name;

        for (at = 0; at + 8 <= row.body; at += 8) {
            for (i = 0; i < sbx_nelts(values); i++) {
                value = values[i];

                /* which would end everybody's */

                if (op == SBX_OP_DRAIN && at == 0) {
                    value &= UINT32_MAX;
                }

                /* of digests and keys one value is like another */

                if (op == SBX_OP_CREATE && i != 0
                    && at >= offsetof(sbx_create_t, key)
                    && at < offsetof(sbx_create_t, limits))
                {
                    continue;
                }

                compose(&d, (sbx_op_t) op, victim);
                memcpy(d.bytes + sizeof(sbx_call_t) + at, &value, 8);
                result = send_one(&d, (sbx_op_t) op, -1);
                silent += result == ROGUE_SILENT
                          || (result == ROGUE_DROPPED
                              && row.class != ROGUE_HANDED);
                sent++;
                unmake((sbx_op_t) op, result);
            }
        }

        if (row.class == ROGUE_ADMIN) {
            restore();
        }

        ok(silent == 0, "%s: %u calls, each has an answer", row.name, sent);
        same(row.name, 1);
    }
}


static void
test_random(unsigned rounds)
{
    size_t            at;
    unsigned          i, n, op, silent;
    rogue_op_t        row;
    rogue_result_t    result;
    rogue_datagram_t  d;

    begin();
    silent = 0;
    srand(23);

    for (i = 0; i < rounds; i++) {

        do {
            op = (unsigned) rand() % ROGUE_OPS;
            row = rogue_op((sbx_op_t) op);
        } while (row.class == ROGUE_NONE || op == SBX_OP_DRAIN
                 || op == SBX_OP_DESTROY_ALL || op == SBX_OP_SETTINGS_SET
                 || op == SBX_OP_QUOTA_SET);

        last = row.name;
        compose(&d, (sbx_op_t) op, victim);

        for (n = 1 + (unsigned) rand() % 4; n != 0; n--) {
            at = rand() % 2 ? (size_t) rand() % d.size
                 : (size_t) rand() % sizeof(sbx_call_t);
            d.bytes[at] = (uint8_t) rand();
        }

        memcpy(&op, d.bytes + offsetof(sbx_call_t, op), sizeof(uint16_t));
        op &= UINT16_MAX;

        if (op == SBX_OP_DRAIN || op == SBX_OP_DESTROY_ALL) {
            continue;
        }

        result = send_one(&d, (sbx_op_t) op, -1);
        silent += result == ROGUE_SILENT;
        unmake((sbx_op_t) op, result);
    }

    is_int(silent, 0, "random calls: each has an answer, or an end");
    same("random calls", 1);
}


/*
 * ---- order ---------------------------------------------------------------
 */

/* Where nobody has said hello, or has said that he only looks. */

static void
test_first(int watch)
{
    int                fd, fds[1], mine, room;
    unsigned           op, done, taken;
    rogue_op_t         row;
    sbx_hello_t        hello;
    sbx_error_t        e;
    struct pollfd      pfd;
    sbx_client_t       client;
    rogue_result_t     result;
    rogue_datagram_t   d;
    struct sockaddr_un addr;

    begin();
    done = 0;
    taken = 0;
    memset(&addr, 0, sizeof(addr));
    addr.sun_family = AF_UNIX;
    (void) snprintf(addr.sun_path, sizeof(addr.sun_path), "%.90s/broker.sock",
                    t.state);

    for (op = 0; op < ROGUE_OPS; op++) {
        row = rogue_op((sbx_op_t) op);

        if (row.class == ROGUE_HELLO || row.class == ROGUE_NONE) {
            continue;
        }

        last = row.name;
        client = t.client;

        if (watch && sbx_client_watch(&client, &fd, &hello, &e) != 0) {
            test_die("watch");
        }

        if (!watch) {
            fd = socket(AF_UNIX, SOCK_SEQPACKET|SOCK_CLOEXEC, 0);

            if (connect(fd, (struct sockaddr *) &addr, sizeof(addr)) == -1) {
                test_die("connect");
            }
        }

        compose(&d, (sbx_op_t) op, victim);
        fds[0] = rogue_pair(SOCK_STREAM, &mine);
        room = (int) sbx_wire_send(fd, d.bytes, d.size, fds, 1, 0);
        (void) close(fds[0]);
        result = room == -1 ? ROGUE_SILENT : await(mine, (sbx_op_t) op);
        done += result == ROGUE_DONE;
        taken += result == ROGUE_SILENT;

        if (!watch) {
            pfd.fd = fd;
            pfd.events = POLLIN;
            hello.ok = 1;
            (void) poll(&pfd, 1, TEST_WAIT);
            (void) !read(fd, &hello, sizeof(hello));
            taken += hello.ok != 0;
        }

        (void) close(fd);
    }

    is_int(taken, 0, watch ? "who only looks has answers"
                           : "a call is no hello, and is told so");
    is_int(done, watch ? 8 : 0, watch ? "to what looks, and to nothing else"
                                      : "and not done");
    same(watch ? "a watch" : "no hello", 0);
}


static void
test_dead(void)
{
    char              dead[64];
    unsigned          op, found;
    rogue_op_t        row;
    rogue_datagram_t  d;

    begin();
    found = 0;
    test_create(&t, "acme", dead);
    (void) test_destroy(&t, dead);

    for (op = 0; op < ROGUE_OPS; op++) {
        row = rogue_op((sbx_op_t) op);

        if (row.class == ROGUE_HANDED || op == SBX_OP_GET
            || op == SBX_OP_DESTROY || op == SBX_OP_PATCH
            || op == SBX_OP_PAUSE || op == SBX_OP_RESUME || op == SBX_OP_END
            || op == SBX_OP_SAMPLES)
        {
            last = row.name;
            compose(&d, (sbx_op_t) op, dead);
            found += send_one(&d, (sbx_op_t) op, -1) != ROGUE_REFUSED
                     || code != SBX_E_SESSION;

            /* nor one that is there, of somebody else */

            compose(&d, (sbx_op_t) op, other);
            memcpy(d.bytes + offsetof(sbx_call_t, tenant), "acme", 5);
            found += send_one(&d, (sbx_op_t) op, -1) != ROGUE_REFUSED
                     || code != SBX_E_SESSION;
        }
    }

    is_int(found, 0, "no call finds a session that is dead, or another's");
    same("the dead", 0);
}


/* One socket for many calls; ends that are shut, or that nobody reads. */

static void
test_sockets(void)
{
    int               fds[2], mine[UNREAD], how;
    unsigned          i, op;
    rogue_op_t        row;
    rogue_datagram_t  d;

    begin();

    for (op = 0; op < ROGUE_OPS; op++) {
        row = rogue_op((sbx_op_t) op);

        if ((row.class != ROGUE_ANSWERED && row.class != ROGUE_HANDED)
            || op == SBX_OP_DESTROY || op == SBX_OP_END
            || op == SBX_OP_PAUSE)
        {
            continue;
        }

        last = row.name;
        compose(&d, (sbx_op_t) op, victim);

        if (op == SBX_OP_CREATE) {
            d.bytes[offsetof(sbx_call_t, session)] = '\0';
        }

        for (how = 0; how < 5; how++) {
            fds[0] = rogue_pair(SOCK_STREAM, &mine[0]);
            fds[1] = mine[0];

            switch (how) {

            case 0:
            case 1:
            case 2:
                (void) shutdown(mine[0], how == 0 ? SHUT_RD
                                         : how == 1 ? SHUT_WR : SHUT_RDWR);
                break;

            case 3:
                post(&d, fds, 1);
                break;
            }

            /* the last: both ends of one pair, the second for a blob */

            post(&d, fds, how == 4 ? 2 : 1);
            (void) close(fds[0]);
            (void) close(mine[0]);
        }
    }

    same("sockets", 1);

    begin();
    compose(&d, SBX_OP_LIST, "");

    for (i = 0; i < UNREAD; i++) {
        fds[0] = rogue_pair(SOCK_STREAM, &mine[i]);
        how = 1;
        (void) setsockopt(mine[i], SOL_SOCKET, SO_RCVBUF, &how, sizeof(how));
        (void) setsockopt(fds[0], SOL_SOCKET, SO_SNDBUF, &how, sizeof(how));
        post(&d, fds, 1);
        (void) close(fds[0]);
    }

    ok(test_alive(&t, other), "answers that nobody reads hold up no other");

    for (i = 0; i < UNREAD; i++) {
        (void) close(mine[i]);
    }

    same("unread", 1);
}


int
main(void)
{
    if (rogue_start("rogue-calls") != 0) {
        return tap_failed ? done_testing() : 0;
    }

    test_values();
    test_random(getenv("SANDBOX_TEST_LONG") != NULL ? 20 * ROUNDS : ROUNDS);
    test_first(0);
    test_first(1);
    test_dead();
    test_sockets();

    return rogue_end();
}
