/*
 * An egress that only tells what it is told: as refusals, which the broker
 * hands on to whoever asks for them.  Names of rules make it misbehave.
 */

#ifndef BROKER_EGRESS_H
#define BROKER_EGRESS_H

#include "broker_test.h"
#include "egress_wire.h"


#define EGRESS_SENT        1000      /* what a session has used with it */
#define EGRESS_RECEIVED    2000
#define EGRESS_FLOOD       20000     /* refusals, each with another one */


/* The first value of a header, and a resolv.conf that says "# test". */
static char  egress_note[96];


static void
egress_say_more(sbx_egress_say_t type, const char *session, const char *name,
    uint32_t more)
{
    struct pollfd        pfd;
    sbx_egress_record_t  record;

    pfd.fd = SBX_EGRESS_FD;
    pfd.events = POLLOUT;
    memset(&record, 0, sizeof(record));
    record.magic = SBX_EGRESS_MAGIC;
    record.type = type;
    record.reason = SBX_REFUSED_RULE;
    record.port = 443;
    record.more = more;
    (void) snprintf(record.session, sizeof(record.session), "%s", session);
    (void) snprintf(record.name, sizeof(record.name), "%s", name);

    while (sbx_wire_send(SBX_EGRESS_FD, &record, sizeof(record), NULL, 0, 0)
           == -1 && errno == EAGAIN && poll(&pfd, 1, TEST_WAIT) == 1)
    {
        /* void */
    }
}


static void
egress_say(sbx_egress_say_t type, const char *session, const char *name)
{
    egress_say_more(type, session, name, 0);
}


/* What a session has used, as a page that outlives an egress. */

static void
egress_use(int fd, const char *rule)
{
    sbx_traffic_t  *page;

    page = mmap(NULL, sizeof(*page), PROT_READ|PROT_WRITE, MAP_SHARED, fd, 0);

    if (page != MAP_FAILED) {
        page->connections = 3;
        page->refused++;
        page->sent += EGRESS_SENT;
        page->received += EGRESS_RECEIVED;

        if (strcmp(rule, "full.test") == 0) {
            memset(page, 0xff, sizeof(*page));

        } else if (strcmp(rule, "none.test") == 0) {
            memset(page, 0, sizeof(*page));
        }

        (void) munmap(page, sizeof(*page));
    }
}


static const char *
egress_text(int fd, size_t size)
{
    static char  text[SBX_EGRESS_SIZE + 1];
    ssize_t      n;

    n = pread(fd, text, size < sizeof(text) ? size : sizeof(text) - 1, 0);
    text[n < 0 ? 0 : n] = '\0';

    return text;
}


/* The table is taken, but for one that begins with a rule's name. */

static void
egress_config(const sbx_egress_task_t *task, const int *fds, unsigned nfds)
{
    if (nfds < 2) {
        egress_say(SBX_EGRESS_CONFIGURED, "", "descriptors");
        return;
    }

    if (task->size > 1
        && strcmp(egress_text(fds[0], task->size) + 1, "unfit.test") == 0)
    {
        egress_say(SBX_EGRESS_CONFIGURED, "", "unfit.test");
        return;
    }

    egress_say(SBX_EGRESS_CONFIGURED, "", "");

    (void) snprintf(egress_note, sizeof(egress_note), "%s",
                    nfds > 2 ? egress_text(fds[2], 32) : "");

    if (strncmp(egress_text(fds[1], 32), "# test ", 7) == 0) {
        (void) strcat(egress_note, egress_text(fds[1], 32) + 7);
    }
}


static void
egress_task(const sbx_egress_task_t *task, const char *rules,
    const int *fds, unsigned nfds)
{
    int   i;
    char  name[192];

    static const char  *ops[] = { "", "config", "grant", "change", "revoke" };

    if (task->op == SBX_EGRESS_CONFIG) {
        egress_config(task, fds, nfds);
        return;
    }

    if (task->op == SBX_EGRESS_ASK) {
        egress_say(SBX_EGRESS_HERE, "", "");
        return;
    }

    if (task->op == SBX_EGRESS_GRANT && nfds == (task->extra ? 5 : 3)) {
        egress_use(fds[nfds - 1], task->size > 1 ? rules + 1 : "");
    }

    if (task->size > 1 && strcmp(rules + 1, "flood.test") == 0) {
        for (i = 0; i < EGRESS_FLOOD; i++) {
            egress_say_more(SBX_EGRESS_REFUSED, task->session, "flood", 1);
        }
    }

    if (task->size > 1 && strcmp(rules + 1, "nonsense.test") == 0) {
        (void) sbx_wire_send(SBX_EGRESS_FD, "nonsense", 8, NULL, 0, 0);
        return;
    }

    (void) snprintf(name, sizeof(name), "%s-%u-%u-%.40s-%s",
                    task->op < sbx_nelts(ops) ? ops[task->op] : "?",
                    task->mode, task->size,
                    task->size > 1 && task->size < 40 ? rules + 1 : "",
                    egress_note);
    egress_say(SBX_EGRESS_REFUSED, task->session, name);
}


static int
egress_is(void)
{
    int          type;
    socklen_t    len;
    struct stat  st;

    len = sizeof(type);

    return getsockopt(SBX_EGRESS_FD, SOL_SOCKET, SO_TYPE, &type, &len) == 0
           && type == SOCK_SEQPACKET
           && fstat(SBX_EGRESS_CA_FD, &st) == 0 && S_ISREG(st.st_mode)
           && fstat(SBX_EGRESS_CERT_FD, &st) == 0 && S_ISREG(st.st_mode);
}


static int
egress_main(void)
{
    int            fds[SBX_WIRE_FDS_ALL];
    ssize_t        n;
    unsigned       i, nfds;
    struct pollfd  pfd;

    static struct {
        sbx_egress_task_t  task;
        char               rules[SBX_NETWORK_SIZE + 1];
    } got;

    pfd.fd = SBX_EGRESS_FD;
    pfd.events = POLLIN;

    if (strcmp(egress_text(SBX_EGRESS_CERT_FD, 8), "late") == 0) {
        /* the next one is not */
        (void) !ftruncate(SBX_EGRESS_CERT_FD, 0);

    } else {
        (void) !pwrite(SBX_EGRESS_CERT_FD, "certificate", 11, 0);
        egress_say(SBX_EGRESS_READY, "", "");
    }

    while (poll(&pfd, 1, -1) == 1) {
        n = sbx_wire_recv_all(SBX_EGRESS_FD, &got, sizeof(got) - 1, fds,
                              &nfds, 0);

        if (n <= 0) {
            return 0;
        }

        got.rules[n - (ssize_t) sizeof(got.task)] = '\0';
        egress_task(&got.task, got.rules, fds, nfds);

        for (i = 0; i < nfds; i++) {
            (void) close(fds[i]);
        }
    }

    return 1;
}


/* The helpers' directory: the real ones, and ourselves as the egress. */

static void
egress_helpers(test_broker_t *t)
{
    int          in, out;
    char         buf[65536], dir[4096], path[8192];
    size_t       i;
    ssize_t      n;

    static const char  *real[] = { "sandbox-broker", "sandbox-init" };

    (void) snprintf(dir, sizeof(dir), "%s/helpers", t->dir);
    (void) mkdir(dir, 0755);

    for (i = 0; i < sbx_nelts(real); i++) {
        (void) snprintf(path, sizeof(path), "%s/%s", t->helpers, real[i]);
        (void) snprintf(buf, sizeof(buf), "%s/%s", dir, real[i]);
        (void) !symlink(path, buf);
    }

    (void) snprintf(path, sizeof(path), "%s/sandbox-egress", dir);
    in = open("/proc/self/exe", O_RDONLY|O_CLOEXEC);
    out = open(path, O_WRONLY|O_CREAT|O_CLOEXEC, 0755);

    while ((n = read(in, buf, sizeof(buf))) > 0) {
        (void) sbx_write_all(out, buf, (size_t) n);
    }

    (void) close(in);
    (void) close(out);
    (void) strcpy(t->helpers, dir);
}


#endif
