/* Whatever a worker sends, the broker stays and others are served. */

#include "broker_test.h"


#define ROUNDS  4000


static const uint16_t  ops[] = {
    SBX_OP_HELLO_CONTROL, SBX_OP_HELLO_CONFIG, SBX_OP_HEALTH, SBX_OP_GET,
    SBX_OP_TEMPLATES, SBX_OP_CREATE, SBX_OP_LIST, SBX_OP_DESTROY,
    SBX_OP_QUOTA_LIST, SBX_OP_EXEC, SBX_OP_FILE, SBX_OP_CUT,
    SBX_OP_TERMINATE, 0, 77, 65535
};

static const size_t  bodies[] = {
    0, 1, sizeof(sbx_create_t), sizeof(sbx_list_t), sizeof(sbx_exec_limits_t),
    sizeof(sbx_config_t), sizeof(sbx_create_t) - 1, sizeof(sbx_quota_list_t)
};


static void
fill(uint8_t *p, size_t n)
{
    while (n-- != 0) {
        *p++ = (uint8_t) rand();
    }
}


/* A datagram that is wrong somewhere, more or less. */

static size_t
compose(uint8_t *datagram, const char *session)
{
    size_t      body, n;
    sbx_call_t  head;

    body = bodies[(size_t) rand() % sbx_nelts(bodies)];
    n = sizeof(sbx_call_t) + body;

    test_head(&head, ops[(size_t) rand() % sbx_nelts(ops)],
              rand() % 2 ? session : "", "acme", "alice", body);
    fill(datagram, n);

    if (rand() % 4 != 0) {
        memcpy(datagram, &head, sizeof(head));
    }

    if (rand() % 4 == 0) {
        datagram[(size_t) rand() % sizeof(head)] ^= (uint8_t) rand();
    }

    if (rand() % 3 == 0) {
        memset(datagram + sizeof(head), rand() % 2 ? 0 : 0xff, body);
    }

    return rand() % 8 == 0 ? (size_t) rand() % (n + 1) : n;
}


/* Descriptors that are seldom what they should be. */

static unsigned
descriptors(int *fds)
{
    int       pair[2];
    unsigned  i, n;

    n = (unsigned) rand() % 4;

    for (i = 0; i < n; i++) {
        fds[i] = -1;

        switch (rand() % 4) {

        case 0:
            fds[i] = open("/dev/null", O_RDWR|O_CLOEXEC);
            break;

        case 1:
            fds[i] = memfd_create("x", MFD_CLOEXEC|MFD_ALLOW_SEALING);
            break;

        case 2:
        case 3:
            if (socketpair(AF_UNIX, rand() % 4 ? SOCK_STREAM : SOCK_SEQPACKET,
                           0, pair) == 0)
            {
                fds[i] = pair[0];
                (void) close(pair[1]);
            }

            break;
        }
    }

    return n;
}


int
main(void)
{
    int             fds[4], i;
    char            id[64];
    pid_t           broker;
    size_t          size;
    ssize_t         n;
    unsigned        k, nfds;
    uint8_t         datagram[sizeof(sbx_call_t) + sizeof(sbx_config_t)];
    test_answer_t  *a;
    test_broker_t   t;

    if (geteuid() != 0) {
        return skip_all("needs root");
    }

    test_open(&t, "garbage");

    if (!ok(test_start(&t) == 0, "a broker starts")) {
        printf("# %s\n", t.error.text);
        return done_testing();
    }

    test_create(&t, "other", id);
    broker = test_pid(&t, "broker.pid");
    srand(11);

    for (i = 0; i < ROUNDS; i++) {
        size = compose(datagram, id);

        if (size == 0) {
            continue;
        }

        nfds = descriptors(fds);

        do {
            n = sbx_wire_send(t.control, datagram, size, fds, nfds, 0);
        } while (n == -1 && errno == EAGAIN && poll(NULL, 0, 1) == 0);

        for (k = 0; k < nfds; k++) {
            (void) close(fds[k]);
        }

        if (n == -1) {
            printf("# round %d: %s\n", i, strerror(errno));
            break;
        }
    }

    is_int(i, ROUNDS, "every datagram is taken");
    ok(test_alive(&t, id), "a session of another tenant is untouched");
    a = test_answer(test_call(t.control, SBX_OP_HEALTH, "", ""));
    ok(a->health.ok == 1, "the broker is well");
    is_int(test_pid(&t, "broker.pid"), broker, "and the same");
    ok(test_destroy(&t, id), "the session can be destroyed");
    test_close(&t);

    return done_testing();
}
