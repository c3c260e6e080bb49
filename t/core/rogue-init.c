/*
 * A first process that is its session's enemy's: every record that it may
 * send to the broker, and everything that is none.  What is no record ends
 * its own session; what is one in a wrong place is dropped.  In either case
 * the broker is the same, and another's session answers all the while.
 *
 * This program is also the init, as the session's environment says.  The
 * kinds of records are the wire's own enum: a new one does not compile here
 * until it has its place.
 */

#include "broker_test.h"

#include <dirent.h>
#include <sys/epoll.h>


#define INIT_CONTROL   3
#define INIT_CONFIG    4

#define RECORDS        256        /* kinds, of which a few are known */
#define FLOOD          20000
#define WATCHES        420
#define GOOD           UINT32_MAX /* no attack */


typedef enum {
    FATE_DROPPED,                 /* the session lives */
    FATE_ENDED
} rogue_fate_t;

/* What is wrong with a record. */

typedef enum {
    WRONG_PLACE,                  /* nothing but that nobody asked for it */
    WRONG_VALUES,
    WRONG_ZEROS,
    WRONG_TWICE,
    WRONG_MAGIC,
    WRONG_SHORT,
    WRONG_LONG,
    WRONG_HUGE,
    WRONG_FILE,                   /* a descriptor comes with it */
    WRONG_MAX
} rogue_wrong_t;

static const char  *wrongs[] = {
    "unasked", "of the largest values", "of zeros", "twice",
    "of another magic", "too short", "too long", "of 64 KB",
    "with a descriptor"
};

_Static_assert(sbx_nelts(wrongs) == WRONG_MAX, "each has a name");


/* What no record is, by number after the kinds. */

typedef enum {
    MODE_EMPTY = RECORDS,         /* a datagram of nothing */
    MODE_BYTE,
    MODE_TEXT,
    MODE_RANDOM,
    MODE_HALF_WRITE,              /* it shuts what it writes */
    MODE_HALF_READ,
    MODE_CLOSED,
    MODE_GROUPS,                  /* a flood of questions for groups */
    MODE_READYS,
    MODE_OVERS,                   /* of commands that there never were */
    MODE_WATCHED,                 /* each byte for it wakes its watchers */
    MODE_MAX
} rogue_mode_t;

static const char  *modes[] = {
    "an empty datagram", "a byte", "a text", "random bytes",
    "shut for writing", "shut for reading", "closed",
    "a flood of questions for groups", "ready over and over",
    "ends of commands that never were", "watched by some 100,000"
};

_Static_assert(sbx_nelts(modes) == MODE_MAX - RECORDS, "each has a name");


static int
known(uint32_t type)
{
    switch ((sbx_record_type_t) type) {
    case SBX_R_READY:
    case SBX_R_COMMAND_OVER:
    case SBX_R_REAPED:
    case SBX_R_CUT:
    case SBX_R_BUSY:
    case SBX_R_GROUP:
    case SBX_R_WARM:
    case SBX_R_HELD:
    case SBX_R_HELD_ALL:
        return 1;
    }

    return 0;
}


static rogue_fate_t
record_fate(uint32_t type, rogue_wrong_t wrong)
{
    return known(type) && type != SBX_R_READY && wrong < WRONG_MAGIC
           ? FATE_DROPPED : FATE_ENDED;
}


static rogue_fate_t
mode_fate(unsigned mode)
{
    return mode == MODE_GROUPS || mode == MODE_OVERS
           || mode == MODE_HALF_READ ? FATE_DROPPED : FATE_ENDED;
}


/*
 * ---- as a session's init -------------------------------------------------
 */

static void
say(const void *bytes, size_t size, int fd)
{
    (void) sbx_wire_send(INIT_CONTROL, bytes, size, &fd, fd != -1, 0);
}


static void
record(uint32_t type)
{
    sbx_record_t  r;

    memset(&r, 0, sizeof(r));
    r.magic = SBX_WIRE_MAGIC;
    r.type = type;
    say(&r, sizeof(r), -1);
}


static void
attack_record(uint32_t type, rogue_wrong_t wrong)
{
    int           fd;
    size_t        size;
    sbx_record_t  r;

    static uint8_t  large[65536];

    memset(&r, wrong == WRONG_VALUES ? 0xff : wrong == WRONG_ZEROS ? 0 : 1,
           sizeof(r));
    r.magic = wrong == WRONG_MAGIC ? 0x31584254 : SBX_WIRE_MAGIC;
    r.type = type;
    size = sizeof(r);
    fd = -1;

    switch (wrong) {

    case WRONG_TWICE:
        say(&r, size, -1);
        break;

    case WRONG_SHORT:
        size--;
        break;

    case WRONG_LONG:
    case WRONG_HUGE:
        memcpy(large, &r, sizeof(r));
        say(large, wrong == WRONG_LONG ? size + 1 : sizeof(large), -1);
        return;

    case WRONG_FILE:
        fd = INIT_CONFIG;
        break;

    default:
        break;
    }

    say(&r, size, fd);
}


static void
watch(void)
{
    int                 i, k, epoll, copies[WATCHES];
    struct epoll_event  ev;

    memset(&ev, 0, sizeof(ev));
    ev.events = EPOLLIN|EPOLLET;

    for (i = 0; i < WATCHES; i++) {
        copies[i] = dup(INIT_CONTROL);
    }

    for (i = 0; i < WATCHES; i++) {
        epoll = epoll_create1(0);

        for (k = 0; k < WATCHES; k++) {
            (void) epoll_ctl(epoll, EPOLL_CTL_ADD, copies[k], &ev);
        }
    }
}


static void
attack_mode(unsigned mode)
{
    unsigned      i;
    uint8_t       bytes[sizeof(sbx_record_t)];
    sbx_record_t  r;

    memset(&r, 0, sizeof(r));
    r.magic = SBX_WIRE_MAGIC;

    switch ((rogue_mode_t) mode) {

    case MODE_EMPTY:
        say("", 0, -1);
        break;

    case MODE_BYTE:
        say("x", 1, -1);
        break;

    case MODE_TEXT:
        say("GET / HTTP/1.1\r\n\r\n", 18, -1);
        break;

    case MODE_RANDOM:
        srand(7);

        for (i = 0; i < sizeof(bytes); i++) {
            bytes[i] = (uint8_t) rand();
        }

        say(bytes, sizeof(bytes), -1);
        break;

    case MODE_HALF_WRITE:
        (void) shutdown(INIT_CONTROL, SHUT_WR);
        break;

    case MODE_HALF_READ:
        (void) shutdown(INIT_CONTROL, SHUT_RD);
        break;

    case MODE_CLOSED:
        (void) close(INIT_CONTROL);
        break;

    case MODE_GROUPS:
    case MODE_READYS:
    case MODE_OVERS:
        r.type = mode == MODE_GROUPS ? SBX_R_GROUP
                 : mode == MODE_READYS ? SBX_R_READY : SBX_R_COMMAND_OVER;

        for (i = 0; i < FLOOD; i++) {
            r.command = i;
            r.running = UINT32_MAX - i;
            say(&r, sizeof(r), -1);
        }

        break;

    case MODE_WATCHED:
        watch();
        break;

    case MODE_MAX:
        break;
    }
}


static void
attack(unsigned number)
{
    if (number < RECORDS * WRONG_MAX) {
        attack_record(number / WRONG_MAX, number % WRONG_MAX);

    } else {
        attack_mode(number - RECORDS * WRONG_MAX + RECORDS);
    }
}


static int
init_is(void)
{
    int                type;
    socklen_t          len;
    sbx_init_config_t  config;

    len = sizeof(type);

    return getsockopt(INIT_CONTROL, SOL_SOCKET, SO_TYPE, &type, &len) == 0
           && type == SOCK_SEQPACKET
           && pread(INIT_CONFIG, &config, sizeof(config), 0)
              == sizeof(config)
           && config.magic == SBX_WIRE_MAGIC;
}


/*
 * "E=n": the attack n before it is ready.  Each call of a file has the number
 * of one in its request's id, or 0 for none; a command ends at once and has
 * used more time than there is.
 */

static void
init_task(const sbx_task_t *task, int fd)
{
    uint8_t       frame[sizeof(sbx_frame_t) + sizeof(sbx_f_exit_t)];
    size_t        size;
    unsigned      i;
    sbx_record_t  r;

    memset(frame, 0, sizeof(frame));
    size = sizeof(sbx_f_end_t);

    if (task->op == SBX_OP_EXEC) {
        size = sizeof(sbx_f_exit_t);
        memset(&r, 0xff, sizeof(r));
        r.magic = SBX_WIRE_MAGIC;
        r.type = SBX_R_COMMAND_OVER;
        r.command = task->command;
        r.reason = SBX_REASON_EXITED;

        for (i = 0; i < 3; i++) {
            say(&r, sizeof(r), -1);
        }

    } else if (strlen(task->request_id) < 8) {
        attack((unsigned) atoi(task->request_id) - 1);
    }

    (void) sbx_wire_header(frame, SBX_F_ACCEPTED, 0);
    (void) sbx_wire_send(fd, frame, sizeof(sbx_frame_t), NULL, 0, 0);
    (void) sbx_wire_header(frame, task->op == SBX_OP_EXEC ? SBX_F_EXIT
                                                          : SBX_F_END, size);
    (void) sbx_wire_send(fd, frame, sizeof(sbx_frame_t) + size, NULL, 0, 0);
}


static int
init_main(void)
{
    int            fds[SBX_TASK_FDS_MAX + 8];
    char           env[64];
    ssize_t        n;
    unsigned       i, nfds;
    sbx_task_t     task;
    struct pollfd  pfd;

    memset(env, 0, sizeof(env));
    n = pread(INIT_CONFIG, env, sizeof(env) - 1, sizeof(sbx_init_config_t));

    if (n > 2 && env[0] == 'E') {
        attack((unsigned) atoi(env + 2));
    }

    record(SBX_R_READY);
    pfd.fd = INIT_CONTROL;
    pfd.events = POLLIN;

    while (poll(&pfd, 1, -1) == 1) {
        nfds = sbx_nelts(fds);
        n = sbx_wire_recv(INIT_CONTROL, &task, sizeof(task), fds, &nfds, 0);

        if (n <= 0) {

            /* it stays, so that it is the broker that ends it */

            for ( ;; ) {
                (void) poll(NULL, 0, 60000);
            }
        }

        if (task.op == SBX_OP_CUT) {
            record(SBX_R_CUT);

        } else if (nfds != 0 && (task.op == SBX_OP_FILE
                                 || task.op == SBX_OP_EXEC))
        {
            init_task(&task, fds[0]);
        }

        for (i = 0; i < nfds; i++) {
            (void) close(fds[i]);
        }
    }

    return 1;
}


/* The helpers' directory: the real broker and ourselves as init. */

static void
helpers(test_broker_t *t)
{
    int      in, out;
    char     buf[65536], dir[4096], path[8192];
    ssize_t  n;

    (void) snprintf(dir, sizeof(dir), "%s/helpers", t->dir);
    (void) mkdir(dir, 0755);
    (void) snprintf(path, sizeof(path), "%s/sandbox-broker", t->helpers);
    (void) snprintf(buf, sizeof(buf), "%s/sandbox-broker", dir);

    if (symlink(path, buf) == -1) {
        test_die("symlink");
    }

    (void) snprintf(path, sizeof(path), "%s/sandbox-init", dir);
    in = open("/proc/self/exe", O_RDONLY|O_CLOEXEC);
    out = open(path, O_WRONLY|O_CREAT|O_CLOEXEC, 0755);

    while ((n = read(in, buf, sizeof(buf))) > 0) {
        if (sbx_write_all(out, buf, (size_t) n) == -1) {
            test_die("init");
        }
    }

    (void) close(in);
    (void) close(out);
    (void) strcpy(t->helpers, dir);
}


/*
 * ---- as a server ---------------------------------------------------------
 */

static test_broker_t  t;
static char           other[64];      /* a good one, of somebody else */
static pid_t          broker;


static test_answer_t *
create(int early, char *id)
{
    int             blob;
    char            env[64];
    sbx_create_t    body;
    test_answer_t  *a;

    (void) snprintf(env, sizeof(env), "E=%d", early);
    test_create_body(&body);
    body.capabilities |= SBX_CAP_CODE;
    blob = test_blob(&body, "", early == -1 ? "L=0" : env,
                     early == -1 ? 4 : strlen(env) + 1);
    a = test_answer(test_create_send(t.control, "acme", &body, blob));
    (void) close(blob);
    (void) strcpy(id, a->session.id);

    return a;
}


static int
call_attack(const char *id, unsigned number)
{
    sbx_call_t  head;

    test_head(&head, SBX_OP_FILE, id, "", "", 0);

    if (number != GOOD) {
        (void) snprintf(head.request_id, sizeof(head.request_id), "%u",
                        number + 1);
    }

    return test_send(t.control, &head, NULL, 0, -1);
}


static int
lives(const char *id)
{
    return test_answer(call_attack(id, GOOD))->last == SBX_F_END
           && test_answer(call_attack(id, GOOD))->last == SBX_F_END;
}


static int
ends(const char *id)
{
    int             i;
    test_answer_t  *a;

    for (i = 0; i < TEST_WAIT / 5; i++) {
        a = test_answer(test_call(t.control, SBX_OP_GET, id, ""));

        if (a->last == SBX_F_ERROR) {
            return a->error.code == SBX_E_SESSION
                   && a->error.ended == SBX_ENDED_NODE_RESTART;
        }

        (void) poll(NULL, 0, 5);
    }

    return 0;
}


static int
well(void)
{
    return test_pid(&t, "broker.pid") == broker && lives(other);
}


static int
told(const char *what)
{
    int       fd;
    char      buf[65536];
    ssize_t   n;

    fd = open(t.log, O_RDONLY|O_CLOEXEC);

    if (fd == -1) {
        return 0;
    }

    (void) lseek(fd, -(off_t) (sizeof(buf) / 2), SEEK_END);
    n = read(fd, buf, sizeof(buf) - 1);
    (void) close(fd);

    if (n < 0) {
        return 0;
    }

    buf[n] = '\0';

    return strstr(buf, what) != NULL;
}


static const char *
name_of(unsigned number)
{
    static char  name[128];

    if (number < RECORDS * WRONG_MAX) {
        (void) snprintf(name, sizeof(name), "a record of kind %u, %s",
                        number / WRONG_MAX, wrongs[number % WRONG_MAX]);

    } else {
        (void) snprintf(name, sizeof(name), "%s",
                        modes[number - RECORDS * WRONG_MAX]);
    }

    return name;
}


static void
test_attack(char *id, unsigned number, rogue_fate_t fate)
{
    int       met;
    unsigned  n;

    if (id[0] == '\0') {
        (void) create(-1, id);
    }

    (void) test_answer(call_attack(id, number));

    if (number == RECORDS * WRONG_MAX + MODE_WATCHED - RECORDS) {

        /* what it says is right, and so are the calls that it gets */

        for (n = 0; n < 20 && lives(id); n++) { /* void */ }

        met = n < 20 && ends(id) && told("costs too much");
        id[0] = '\0';

    } else if (fate == FATE_ENDED) {
        met = ends(id);
        id[0] = '\0';

    } else if (number == RECORDS * WRONG_MAX + MODE_HALF_READ - RECORDS) {

        /* it hears nothing, and can be ended all the same */

        met = test_answer(call_attack(id, GOOD))->last != SBX_F_END
              && test_destroy(&t, id);
        id[0] = '\0';

    } else {
        met = lives(id);
    }

    if (!met || !well()) {
        ok(0, "%s", name_of(number));
        id[0] = '\0';
    }
}


static void
test_records(void)
{
    char      id[64];
    unsigned  type, wrong, n;

    id[0] = '\0';
    n = 0;

    /* one session has all that is dropped, one after the other */

    for (type = 0; type < RECORDS; type++) {
        for (wrong = 0; wrong < WRONG_MAX; wrong++) {
            if (record_fate(type, (rogue_wrong_t) wrong) == FATE_DROPPED) {
                test_attack(id, type * WRONG_MAX + wrong, FATE_DROPPED);
                n++;
            }
        }
    }

    ok(id[0] != '\0' && n > 20, "%u records that nobody asked for", n);
    ok(test_destroy(&t, id), "whoever sent them is destroyed");

    id[0] = '\0';
    n = 0;

    for (type = 0; type < RECORDS; type++) {
        for (wrong = 0; wrong < WRONG_MAX; wrong++) {
            if (record_fate(type, (rogue_wrong_t) wrong) == FATE_DROPPED
                || (!known(type) && type != 0 && type != 8
                    && type != RECORDS - 1)
                || (!known(type) && wrong != WRONG_PLACE))
            {
                continue;
            }

            test_attack(id, type * WRONG_MAX + wrong, FATE_ENDED);
            n++;
        }
    }

    ok(n > 30 && well(), "%u that are none, each the end of a session", n);
}


static void
test_modes(void)
{
    char      id[64];
    unsigned  mode;

    for (mode = RECORDS; mode < MODE_MAX; mode++) {
        id[0] = '\0';
        test_attack(id, RECORDS * WRONG_MAX + mode - RECORDS,
                    mode_fate(mode));

        if (id[0] != '\0') {
            ok(test_destroy(&t, id), "%s: it is destroyed",
               modes[mode - RECORDS]);
        }

        ok(well(), "%s: nobody else notices", modes[mode - RECORDS]);
    }
}


/* Of one that is not yet ready. */

static void
test_early(void)
{
    int             met;
    char            id[64];
    unsigned        type, wrong, number;
    test_answer_t  *a;

    static const rogue_wrong_t  some[] = {
        WRONG_PLACE, WRONG_VALUES, WRONG_SHORT, WRONG_FILE
    };

    for (type = 1; known(type); type++) {
        for (wrong = 0; wrong < sbx_nelts(some); wrong++) {
            number = type * WRONG_MAX + some[wrong];
            a = create((int) number, id);

            if (type != SBX_R_READY
                && record_fate(type, some[wrong]) == FATE_DROPPED)
            {
                met = a->last == SBX_F_END && lives(id)
                      && test_destroy(&t, id);

            } else if (type == SBX_R_READY && some[wrong] < WRONG_MAGIC) {

                /* it is ready, and then once more */

                met = id[0] == '\0' || ends(id);

            } else {
                met = a->last == SBX_F_ERROR
                      && a->error.code == SBX_E_UNAVAILABLE;
            }

            if (!met) {
                ok(0, "before it is ready: %s", name_of(number));
            }
        }
    }

    ok(type > 7 && well(), "what comes before ready");
}


/* What a session says of itself is counted for the whole node. */

static void
test_lies(void)
{
    char                id[64];
    uint64_t            told;
    unsigned            i, n;
    test_answer_t      *now;
    sbx_call_t          head;
    sbx_f_metrics_t     before, after;
    sbx_exec_limits_t   limits;

    before = test_answer(test_call(t.control, SBX_OP_METRICS, "", ""))
             ->metrics;
    (void) create(-1, id);
    memset(&limits, 0xff, sizeof(limits));
    test_head(&head, SBX_OP_EXEC, id, "", "", sizeof(limits));

    for (i = 0; i < 20; i++) {
        (void) test_answer(test_send(t.control, &head, &limits,
                                     sizeof(limits), -1));
    }

    ok(lives(id), "commands that end three times each");

    /* what init says of their ends comes by another way than the answers */

    for (i = 0; i < 1000; i++) {
        after = test_answer(test_call(t.control, SBX_OP_METRICS, "", ""))
                ->metrics;

        if (after.used.commands == 0) {
            break;
        }

        (void) poll(NULL, 0, 10);
    }

    for (n = 0, i = 0; i < SBX_METRICS_REASONS; i++) {
        n += (unsigned) (after.commands[i] - before.commands[i]);
    }

    is_int(n, 20, "are counted once");
    told = after.cpu_us - before.cpu_us;
    now = test_answer(test_call(t.control, SBX_OP_GET, id, ""));
    ok(now->last == SBX_F_END && told > 0
       && told <= now->session.usage.cpu_us,
       "and all of them have used no more than their session has");
    is_int((int64_t) after.used.commands, 0, "none of them runs");
    ok(test_destroy(&t, id), "the session is destroyed");
}


/* Commands of an earlier broker are known by their groups. */

static void
test_adopted(void)
{
    char             id[64];
    pid_t            old;
    unsigned         i;
    uint64_t         n;
    sbx_f_metrics_t  after;

    (void) create(-1, id);
    old = broker;
    (void) tap_kill(old, SIGKILL);
    broker = test_await_successor(&t, "broker.pid", old);
    ok(lives(id) && well(), "a broker that has not seen the session begin");

    for (i = 0; i < 3; i++) {
        (void) test_answer(call_attack(id, RECORDS * WRONG_MAX + MODE_OVERS
                                           - RECORDS));
    }

    after = test_answer(test_call(t.control, SBX_OP_METRICS, "", ""))
            ->metrics;

    for (n = 0, i = 0; i < SBX_METRICS_REASONS; i++) {
        n += after.commands[i];
    }

    ok(n <= 3, "cannot be told of other commands than it has handed on");
    ok(after.used.commands <= 3, "nor that they run");
    ok(test_destroy(&t, id) && well(), "and all goes on");
}


static unsigned
broker_files(void)
{
    DIR       *dir;
    char       path[64];
    unsigned   n;

    (void) snprintf(path, sizeof(path), "/proc/%d/fd", (int) broker);
    dir = opendir(path);

    for (n = 0; dir != NULL && readdir(dir) != NULL; n++) { /* void */ }

    if (dir != NULL) {
        (void) closedir(dir);
    }

    return n;
}


int
main(void)
{
    int       i;
    char      id[64];
    unsigned  files;

    if (init_is()) {
        return init_main();
    }

    if (geteuid() != 0) {
        return skip_all("needs root");
    }

    test_open(&t, "rogue-init");
    helpers(&t);

    if (!ok(test_start(&t) == 0, "a broker starts")) {
        printf("# %s\n", t.error.text);
        return done_testing();
    }

    broker = test_pid(&t, "broker.pid");
    (void) create(-1, other);
    (void) create(-1, id);
    (void) test_destroy(&t, id);
    files = broker_files();

    test_records();
    test_modes();
    test_early();
    test_lies();

    for (i = 0; i < TEST_WAIT / 5 && broker_files() > files; i++) {
        (void) poll(NULL, 0, 5);
    }

    ok(broker_files() <= files, "the broker keeps no descriptor");
    test_adopted();
    ok(test_destroy(&t, other), "the other session can be destroyed");
    test_close(&t);

    return done_testing();
}
