/*
 * The broker, from all sides: calls of workers with their descriptors and
 * blobs, configurations, what sessions' first processes and the egress tell,
 * words of the keeper, time, clocks that are set, and its own death, after
 * which the next one goes on with what the keeper and the files have.
 *
 * A message of the input is a byte of its kind, one of how, two of its
 * length, and bytes.  Whatever comes: who asks is answered in frames that can
 * be read, of his own tenant's sessions alone; what a session is made of is
 * what may be; its first process is told what it can read; counts are those
 * of what is there; and in the end nothing is left of anything.
 */

#include "broker_here.h"

#include "packages.h"
#include "sandbox_rules.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>


#define FIXED          4
#define MESSAGES       48
#define PART           0x1e            /* between the parts of a blob */

/* Not 0: it was a message of the target's that has this one in it. */
#ifndef BROKER_MORE
#define BROKER_MORE(kind, how, p, n)   0
#endif

enum {
    M_CALL, M_CREATE, M_DATAGRAM, M_RECORD, M_GONE, M_LINK, M_EGRESS, M_TIME,
    M_CRASH, M_WORKER, M_CONFIG, M_CONTROL, M_CLOCK, M_LAUNCH, M_KINDS
};

/* of the second byte: of calls */
#define HOW_NO_FD      0x01
#define HOW_BLOB       0x02            /* one descriptor more */
#define HOW_OPEN       0x04            /* the blob is not sealed */
#define HOW_FILE       0x08            /* the call's is no socket */
#define HOW_CUT        0x10            /* a datagram of that very length */
#define HOW_OTHER      0x20            /* another tenant's */
#define HOW_NOBODY     0x40            /* any tenant's */
#define HOW_WATCH      0x80            /* by a connection that looks */

static void begin(void);
static void message(unsigned kind, unsigned how, const uint8_t *p, size_t n);
static void say_call(unsigned how, const uint8_t *p, size_t n);
static void say_create(unsigned how, const uint8_t *p, size_t n);
static void say(unsigned how, const void *datagram, size_t n, int blob);
static void say_config(const sbx_config_t *config);
static void connections(unsigned how);
static void leave(void);


static char          dir[64];
static int           null = -1;
static int           controls[BROKER_CONTROLS];   /* the last one looks */
static sbx_config_t  other;

static const char  *const tenants[] = { "acme", "other" };

static const uint16_t  ops[] = {
    SBX_OP_GET, SBX_OP_LIST, SBX_OP_DESTROY, SBX_OP_PATCH, SBX_OP_PAUSE,
    SBX_OP_RESUME, SBX_OP_END, SBX_OP_SAMPLES, SBX_OP_QUOTA_GET,
    SBX_OP_QUOTA_SET, SBX_OP_SETTINGS_GET, SBX_OP_SETTINGS_SET, SBX_OP_DRAIN,
    SBX_OP_DESTROY_ALL, SBX_OP_QUOTA_LIST, SBX_OP_METRICS, SBX_OP_REFUSALS,
    SBX_OP_HEALTH, SBX_OP_DOCTOR, SBX_OP_CAPABILITIES, SBX_OP_TEMPLATES,
    SBX_OP_EXEC, SBX_OP_FILE, SBX_OP_PROCESS, SBX_OP_PORT, SBX_OP_CANCEL,
    SBX_OP_CODE, SBX_OP_LOG, SBX_OP_ENV, SBX_OP_HELLO_CONTROL, SBX_OP_CREATE
};


int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int       before, after;
    size_t    n;
    unsigned  i;

    if (null == -1) {
        begin();
    }

    before = dup(null);
    must(before != -1);
    (void) close(before);
    ncalls = 0;
    configured = 0;
    other = config;

    broker_begin(dir);
    connections(0);

    for (i = 0; i < MESSAGES && size >= FIXED; i++) {
        n = (size_t) data[2] | (size_t) data[3] << 8;
        n = n < size - FIXED ? n : size - FIXED;

        if (!BROKER_MORE(data[0], data[1], data + FIXED, n)) {
            message(data[0] % M_KINDS, data[1], data + FIXED, n);
        }

        broker_turns();
        calls_read();
        broker_check();
        data += FIXED + n;
        size -= FIXED + n;
    }

    broker_end();
    calls_read();

    for (i = 0; i < ncalls; i++) {
        if (calls[i].fd != -1) {
            (void) close(calls[i].fd);
        }
    }

    for (i = 0; i < BROKER_CONTROLS; i++) {
        if (controls[i] != -1) {
            (void) close(controls[i]);
        }
    }

    leave();
    after = dup(null);
    must(after == before);
    (void) close(after);

    return 0;
}


/* ---- before and after --------------------------------------------------- */


static void
away(void)
{
    leave();
    (void) rmdir(dir);
}


static void
begin(void)
{
    const sbx_limit_t  *limit;

    static const char   egress[] = "a*\0d10.0.0.0/8";
    static const char   binds[] = "rdata\0/srv/data\0acme\0\0wall\0/srv/all\0";

    null = open("/dev/null", O_RDWR|O_CLOEXEC);
    must(null != -1);
    (void) snprintf(dir, sizeof(dir), "%s/sbx-fuzz-XXXXXX",
                    access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    must(mkdtemp(dir) != NULL);
    (void) atexit(away);

    config.uid_first = 1 << 30;
    config.uid_count = 12 * 65536;

    for (limit = sbx_limit_table; limit->name != NULL; limit++) {
        *sbx_limit_field(&config.max, limit) = limit->cap;
    }

    memcpy(config.binds, binds, sizeof(binds));
    config.binds_size = sizeof(binds);
    memcpy(config.egress, egress, sizeof(egress));
    config.egress_size = sizeof(egress);
    (void) strcpy(config.templates[0], "extra");
    config.quotas.set = 1;
    config.quotas.admin = 1;
    sbx_quota_clear(&config.quotas.defaults[SBX_SCOPE_NODE]);
    sbx_quota_clear(&config.quotas.defaults[SBX_SCOPE_ORGANIZATION]);
    sbx_quota_clear(&config.quotas.defaults[SBX_SCOPE_USER]);
    config.quotas.defaults[SBX_SCOPE_NODE].sessions = 8;
    config.quotas.defaults[SBX_SCOPE_ORGANIZATION].sessions = 6;
    config.quotas.defaults[SBX_SCOPE_USER].commands = 4;
    config.pools.count = 1;
    (void) strcpy(config.pools.pools[0].template, "extra");
    config.pools.pools[0].sessions = 1;
    config.pools.pools[0].capabilities = SBX_CAP_SHELL|SBX_CAP_CODE;

    for (limit = sbx_limit_table; limit->name != NULL; limit++) {
        *sbx_limit_field(&config.pools.pools[0].limits, limit)
            = limit->fallback;
    }

    config.pools.pools[0].limits.disk = 1 << 20;
    config.pools.pools[0].limits.max_file_size = 1 << 20;
}


/* The directory is as empty as a broker finds it. */

static void
leave(void)
{
    DIR            *list;
    struct dirent  *entry;
    char            path[512];

    (void) snprintf(path, sizeof(path), "%s/sessions", dir);
    must(rmdir(path) == 0 || errno == ENOENT);
    list = opendir(dir);
    must(list != NULL);

    while ((entry = readdir(list)) != NULL) {
        if (entry->d_name[0] != '.') {
            (void) snprintf(path, sizeof(path), "%s/%s", dir, entry->d_name);
            must(unlink(path) == 0);
        }
    }

    (void) closedir(list);
    must(machine_left == 0);
}


/* As a server's: its configuration, then what its workers have.  again: there
 * is a configuration. */

static void
connections(unsigned again)
{
    unsigned    i;
    sbx_call_t  hello;

    if (!again) {
        say_config(&config);
    }

    memset(&hello, 0, sizeof(hello));
    hello.magic = SBX_WIRE_MAGIC;
    hello.version = SBX_WIRE_VERSION;
    hello.size = sizeof(hello);

    for (i = 0; i < BROKER_CONTROLS; i++) {
        hello.op = i == BROKER_CONTROLS - 1 ? SBX_OP_HELLO_WATCH
                                            : SBX_OP_HELLO_CONTROL;

        if (again && controls[i] != -1) {
            continue;
        }

        controls[i] = broker_connect();

        if (controls[i] != -1) {
            (void) !send(controls[i], &hello, sizeof(hello), MSG_NOSIGNAL);
        }
    }

    broker_turns();
}


static void
say_config(const sbx_config_t *c)
{
    int          fd, size;
    sbx_hello_t  hello;

    static struct {
        sbx_call_t    head;
        sbx_config_t  config;
    } datagram;

    fd = broker_connect();

    if (fd == -1) {
        return;
    }

    memset(&datagram.head, 0, sizeof(datagram.head));
    datagram.head.magic = SBX_WIRE_MAGIC;
    datagram.head.version = SBX_WIRE_VERSION;
    datagram.head.op = SBX_OP_HELLO_CONFIG;
    datagram.head.size = sizeof(datagram);
    datagram.config = *c;
    size = 4 * sizeof(datagram);
    (void) setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
    must(send(fd, &datagram, sizeof(datagram), MSG_NOSIGNAL)
         == sizeof(datagram));
    broker_turns();

    if (recv(fd, &hello, sizeof(hello), 0) == sizeof(hello)) {
        must(hello.magic == SBX_WIRE_MAGIC);
        must(hello.ok || hello.error.code != SBX_OK);
        must(memchr(hello.error.text, '\0', sizeof(hello.error.text)));
    }

    (void) close(fd);
    broker_turns();
}


/* ---- what is said ------------------------------------------------------- */


/* The session that a byte means, or NULL. */

static sbx_session_t *
session_at(unsigned which)
{
    sbx_node_t  *node;

    for (node = broker->sessions.next; node != &broker->sessions;
         node = node->next)
    {
        if (which-- == 0) {
            return sbx_node_of(node, sbx_session_t, link);
        }
    }

    for (node = broker->pools.sessions.next; node != &broker->pools.sessions;
         node = node->next)
    {
        if (which-- == 0) {
            return sbx_node_of(node, sbx_session_t, link);
        }
    }

    return NULL;
}


static process_t *
process_at(unsigned which)
{
    sbx_session_t  *s;

    s = session_at(which);

    return s != NULL ? process_of(s->info.id) : NULL;
}


static void
head_of(sbx_call_t *head, unsigned how, uint16_t op, size_t size)
{
    memset(head, 0, sizeof(*head));
    head->magic = SBX_WIRE_MAGIC;
    head->version = SBX_WIRE_VERSION;
    head->op = op;
    head->size = (uint32_t) size;
    (void) strcpy(head->request_id, "0123456789abcdef0123456789abcdef");

    if (!(how & HOW_NOBODY)) {
        (void) strcpy(head->tenant, tenants[(how & HOW_OTHER) != 0]);
        (void) strcpy(head->user, "alice");
    }
}


/* The session's number, flags, what it needs and bars, then the body. */

static void
say_call(unsigned how, const uint8_t *p, size_t n)
{
    size_t          size, body;
    sbx_error_t     e;
    sbx_session_t  *s;
    unsigned        op;

    static uint8_t  buf[sizeof(sbx_call_t) + 8192];
    sbx_call_t     *head = (sbx_call_t *) (void *) buf;

    if (n < 5) {
        return;
    }

    op = ops[p[0] % sbx_nelts(ops)];
    memset(buf, 0, sizeof(buf));
    head_of(head, how, (uint16_t) op, 0);
    s = session_at(p[1]);

    if (s != NULL) {
        memcpy(head->session, s->info.id, sizeof(head->session));

        if ((how & HOW_NOBODY) == 0 && p[2] & 0x80) {
            (void) strcpy(head->tenant, s->info.tenant);
            (void) strcpy(head->user, s->info.user);
        }

    } else if (p[1] & 0x80) {
        (void) strcpy(head->session, "i00000000000000000000");
    }

    head->flags = p[2] & SBX_CALL_FLAGS;
    head->needs = p[3] & SBX_CREATE_FLAGS;
    head->bars = p[4] & SBX_CREATE_FLAGS;
    p += 5;
    n -= 5;

    /* as long as its kind is: what comes of that is the check's to tell */

    for (body = 0; body <= 1024; body += 4) {
        size = sizeof(sbx_call_t) + body;
        head->size = (uint32_t) size;

        if (sbx_wire_check_call(buf, size, &e) == 0) {
            break;
        }
    }

    body = body <= 1024 ? body : 0;

    if (how & HOW_CUT) {
        body = n < 4096 ? n : 4096;
    }

    head->size = (uint32_t) (sizeof(sbx_call_t) + body);
    memcpy(buf + sizeof(sbx_call_t), p, n < body ? n : body);
    say(how, buf, sizeof(sbx_call_t) + body, -1);
}


static int
blob_of(const void *p, size_t n, unsigned how)
{
    int  fd;

    fd = memfd_create("blob", MFD_CLOEXEC|MFD_ALLOW_SEALING);
    must(fd != -1 && pwrite(fd, p, n, 0) == (ssize_t) n);

    if (!(how & HOW_OPEN)) {
        must(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE|F_SEAL_SHRINK|F_SEAL_GROW)
             == 0);
    }

    return fd;
}


/*
 * Flags; template and key; capabilities; network; which limit, and of what
 * size; then the parts of the blob.  A PATCH too, which has two of them.
 */

static void
say_create(unsigned how, const uint8_t *p, size_t n)
{
    int                 blob;
    size_t              i, k, len, parts[4], blob_size;
    unsigned            flags;
    sbx_session_t      *s;
    const sbx_limit_t  *limit;

    struct {
        sbx_call_t      head;
        union {
            sbx_create_t    create;
            sbx_patch_t     patch;
        };
    } datagram;
    static uint8_t  buf[65536];

    if (n < 8) {
        return;
    }

    memset(&datagram, 0, sizeof(datagram));
    head_of(&datagram.head, how, SBX_OP_CREATE,
            sizeof(sbx_call_t) + sizeof(sbx_create_t));
    flags = p[0];

    /* what is left out of the parts is the mark between them */

    memset(parts, 0, sizeof(parts));
    blob_size = 0;

    for (i = 8, k = 0; i < n; i++) {
        if (p[i] == PART && k < 3) {
            k++;
            continue;
        }

        parts[k]++;
        buf[blob_size++] = p[i];
    }

    blob = blob_size ? blob_of(buf, blob_size, how) : -1;

    if (how & HOW_CUT) {
        /* sizes that are others than the blob's, of which one is enormous */
        parts[p[6] & 3] += p[7] | (uint32_t) p[6] << 24;
    }

    if (flags & 0x80) {
        s = session_at(p[1]);
        datagram.head.op = flags & 0x40 ? SBX_OP_PATCH : SBX_OP_RESUME;
        len = sizeof(sbx_call_t) + sizeof(sbx_patch_t);
        datagram.head.size = (uint32_t) len;

        if (s != NULL) {
            memcpy(datagram.head.session, s->info.id,
                   sizeof(datagram.head.session));
        }

        datagram.patch.flags = p[2];
        datagram.patch.timeout = (uint64_t) p[5] << (p[6] & 63);
        datagram.patch.network = p[4] & 3;
        datagram.patch.meta_size = (uint32_t) parts[0];
        datagram.patch.network_size = (uint32_t) parts[1];
        say(how & (unsigned) ~HOW_CUT, &datagram, len, blob);
        return;
    }

    (void) strcpy(datagram.create.template, p[1] & 1 ? "extra" : "base");

    if (p[1] & 2) {
        (void) strcpy(datagram.create.key, p[1] & 4 ? "key" : "another");
    }

    datagram.head.flags = p[1] >> 4;
    memset(datagram.create.body_digest, p[2] >> 4, 16);
    datagram.create.capabilities = p[2] & 15;
    datagram.create.flags = p[3];
    datagram.create.network = p[4] & 3;
    datagram.create.idle_timeout = (uint64_t) (flags & 0x7f) * 1000;

    for (limit = sbx_limit_table; limit->name != NULL; limit++) {
        *sbx_limit_field(&datagram.create.limits, limit) = limit->fallback;
    }

    datagram.create.limits.disk = p[4] & 4 ? SBX_UNSET : 1 << 20;
    datagram.create.limits.max_file_size = p[4] & 4 ? SBX_UNSET : 1 << 20;

    if (p[5] != 0) {
        limit = &sbx_limit_table[p[5] % 16];

        if (limit->name != NULL) {
            *sbx_limit_field(&datagram.create.limits, limit)
                = p[6] >= 64 ? SBX_UNSET - (p[6] & 3)
                             : (uint64_t) p[7] << p[6];
        }
    }

    datagram.create.meta_size = (uint32_t) parts[0];
    datagram.create.env_size = (uint32_t) parts[1];
    datagram.create.rules_size = (uint32_t) parts[2];
    datagram.create.network_size = (uint32_t) parts[3];
    say(how & (unsigned) ~HOW_CUT, &datagram, datagram.head.size, blob);
}


/* With the call's socket, and what else may come. */

static void
say(unsigned how, const void *datagram, size_t n, int blob)
{
    int        fds[4], pair[2], control;
    call_t    *call;
    unsigned   nfds;

    control = controls[how & HOW_WATCH ? BROKER_CONTROLS - 1 : n & 1];

    if (control == -1 || ncalls == BROKER_CALLS) {
        if (blob != -1) {
            (void) close(blob);
        }

        return;
    }

    call = &calls[ncalls];
    memset(call, 0, offsetof(call_t, buf));
    must(socketpair(AF_UNIX, SOCK_STREAM|SOCK_CLOEXEC|SOCK_NONBLOCK, 0, pair)
         == 0);
    nfds = 0;

    if (!(how & HOW_NO_FD)) {
        fds[nfds++] = how & HOW_FILE ? null : pair[1];
    }

    if (blob != -1) {
        fds[nfds++] = blob;
    }

    if (how & HOW_BLOB) {
        fds[nfds++] = null;
    }

    if (sbx_wire_send(control, datagram, n, fds, nfds, MSG_DONTWAIT) != -1) {
        call->fd = pair[0];
        sbx_wire_init(&call->wire, call->buf, sizeof(call->buf));

        if (n >= sizeof(call->head)) {
            memcpy(&call->head, datagram, sizeof(call->head));
        }

        ncalls++;

    } else {
        (void) close(pair[0]);
    }

    (void) close(pair[1]);

    if (blob != -1) {
        (void) close(blob);
    }
}


static void
say_record(unsigned how, const uint8_t *p, size_t n)
{
    process_t     *process;
    sbx_record_t   record;

    if (n < 1) {
        return;
    }

    process = process_at(p[0]);

    if (process == NULL || process->peer == -1) {
        return;
    }

    p++;
    n--;

    if (how & HOW_CUT) {
        (void) sbx_wire_send(process->peer, p, n, &null, how & HOW_BLOB ? 1
                             : 0, MSG_DONTWAIT);
        return;
    }

    /* type, command, running, reason, and time */

    memset(&record, 0, sizeof(record));
    record.magic = SBX_WIRE_MAGIC;
    record.type = n > 0 ? p[0] & 15 : 0;
    record.command = n > 1 ? p[1] : 0;
    record.running = n > 2 ? p[2] : 0;
    record.reason = n > 3 ? p[3] & 15 : 0;
    record.cpu_us = n > 4 ? (uint64_t) p[4] << (how & 63) : 0;
    (void) sbx_wire_send(process->peer, &record, sizeof(record), &null,
                         how & HOW_BLOB ? 1 : 0, MSG_DONTWAIT);
}


/* Of the keeper's words: all but the one that ends everything. */

static void
say_link(unsigned how, const uint8_t *p, size_t n)
{
    int             fds[SBX_LINK_FDS];
    unsigned        i;
    sbx_link_t      msg;
    sbx_session_t  *s;

    if (n < 4) {
        return;
    }

    if (how & HOW_CUT) {
        (void) sbx_wire_send(keeper.link, p, n, NULL, 0, MSG_DONTWAIT);
        return;
    }

    memset(&msg, 0, sizeof(msg));
    msg.magic = SBX_LINK_MAGIC;
    msg.type = p[0] & 15;
    msg.kind = p[1] & 7;
    msg.number = p[2];
    msg.pid = p[3];
    s = session_at(p[3]);

    if (s != NULL) {
        memcpy(msg.id, s->info.id, sizeof(msg.id));
    }

    if (msg.type == SBX_LINK_END) {
        return;
    }

    for (i = 0; i < SBX_LINK_FDS; i++) {
        fds[i] = null;
    }

    i = msg.type == SBX_LINK_STORE && !(how & HOW_NO_FD)
        ? sbx_link_fds((sbx_keep_t) msg.kind) : 0;
    (void) sbx_link_send(keeper.link, &msg, fds, i);
}


static void
say_egress(unsigned how, const uint8_t *p, size_t n)
{
    process_t            *process;
    sbx_session_t        *s;
    sbx_egress_record_t   record;

    process = process_of("");

    if (process == NULL || process->peer == -1 || n < 5) {
        return;
    }

    if (how & HOW_CUT) {
        (void) sbx_wire_send(process->peer, p, n, &null, how & HOW_BLOB ? 1
                             : 0, MSG_DONTWAIT);
        return;
    }

    memset(&record, 0, sizeof(record));
    record.magic = SBX_EGRESS_MAGIC;
    record.type = p[0] & 7;
    s = session_at(p[1]);

    if (s != NULL) {
        memcpy(record.session, s->info.id, sizeof(record.session));
    }

    record.reason = p[2];
    record.port = p[3] * 257u;
    record.more = p[4];
    record.err = how & 3;
    memset(record.address, p[4], sizeof(record.address));
    p += 5;
    n -= 5;
    memcpy(record.name, p, n < sizeof(record.name) ? n
                                                   : sizeof(record.name));
    (void) sbx_wire_send(process->peer, &record, sizeof(record), NULL, 0,
                         MSG_DONTWAIT);
}


/* Bytes from somewhere on; nothing that names files of the machine's. */

static void
config_change(const uint8_t *p, size_t n)
{
    size_t             at, i;
    sbx_egress_row_t   row;

    if (n < 3) {
        return;
    }

    at = ((size_t) p[0] | (size_t) p[1] << 8 | (size_t) (p[2] & 3) << 16)
         % sizeof(other);
    p += 3;
    n -= 3;
    n = n < sizeof(other) - at ? n : sizeof(other) - at;
    memcpy((uint8_t *) &other + at, p, n);
    memset(other.template_dir, 0, sizeof(other.template_dir));
    memset(other.packages, 0, sizeof(other.packages));
    memset(other.package_cache, 0, sizeof(other.package_cache));
    memset(other.trust, 0, sizeof(other.trust));
    memset(&row, 0, sizeof(row));

    while (other.egress_size <= sizeof(other.egress)
           && sbx_egress_row_next(other.egress, other.egress_size, &row)
              == 1)
    {
        if (row.type == SBX_EGRESS_HEADER || row.type == SBX_EGRESS_TLS_HEADER
            || row.type == SBX_EGRESS_CA)
        {
            other.egress_size = 0;
        }
    }

    for (i = 0; i < SBX_POOLS_MAX; i++) {
        if (other.pools.pools[i].sessions > 3) {
            other.pools.pools[i].sessions = 3;
        }
    }

    configured = 1;
    say_config(&other);
}


static void
message(unsigned kind, unsigned how, const uint8_t *p, size_t n)
{
    uint64_t       by;
    call_t        *call;
    process_t     *process;

    switch (kind) {

    case M_CALL:
        say_call(how, p, n);
        break;

    case M_CREATE:
        say_create(how, p, n);
        break;

    case M_DATAGRAM:
        if (n != 0) {
            say(how, p, n, -1);
        }

        break;

    case M_RECORD:
        say_record(how, p, n);
        break;

    case M_GONE:
        process = how & 2 ? process_of("") : process_at(n ? p[0] : 0);

        if (process != NULL && (how & 1)) {
            process_die(process);

        } else if (process != NULL && process->peer != -1) {
            (void) close(process->peer);
            process->peer = -1;
        }

        break;

    case M_LINK:
        say_link(how, p, n);
        break;

    case M_EGRESS:
        say_egress(how, p, n);
        break;

    case M_TIME:
        by = n ? p[0] : 0;
        now_us += by << (how & 31);
        break;

    case M_CRASH:
        broker_crash();
        now_us += how;
        broker_start();
        break;

    case M_WORKER:
        call = ncalls ? &calls[(n ? p[0] : 0) % ncalls] : NULL;

        if (call == NULL || call->fd == -1) {
            break;
        }

        if (how & 1) {
            (void) !send(call->fd, p, n, MSG_NOSIGNAL|MSG_DONTWAIT);
        }

        if (how & 2) {
            by = sizeof(sbx_frame_t);
            (void) sbx_wire_header(call->buf, SBX_F_END, 0);
            (void) !send(call->fd, call->buf, by, MSG_NOSIGNAL|MSG_DONTWAIT);
        }

        call->deaf = (how & 4) != 0;

        if (how & 8) {
            (void) close(call->fd);
            call->fd = -1;
        }

        break;

    case M_CONFIG:
        config_change(p, n);
        break;

    case M_CONTROL:
        if (how & 1 && controls[how >> 1 & 3] != -1) {
            (void) close(controls[how >> 1 & 3]);
            controls[how >> 1 & 3] = -1;
        }

        if (how & 0x80) {
            connections(1);
        }

        break;

    case M_CLOCK:
        wall_us += n ? (int64_t) (int8_t) p[0] * 100000 * (how + 1) : 0;
        break;

    case M_LAUNCH:
        launch_how = how & 3;
        break;
    }
}
