/*
 * An init that misbehaves, as the session's environment tells it to.
 */

#ifndef BROKER_INIT_H
#define BROKER_INIT_H

#include "broker_test.h"

#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/resource.h>


#define INIT_CONTROL   3
#define INIT_CONFIG    4


#define MANY           200   /* descriptors in one message */
#define SLOW           4000  /* ms until it reads */
#define FEW            150   /* less than its socket holds */
#define FULL           400   /* more than that, and than the queue */
#define ASKS           1000  /* groups that are asked for in one go */


static uint32_t  init_running;
static unsigned  init_residents;
static unsigned  init_frozen;
static unsigned  init_handed;
static char      init_given[64];      /* the environment of the last */
static uint64_t  init_processes;
static uint32_t  init_warms;          /* the language that is asked for */
static unsigned  init_groups;         /* given to "asker" */
static unsigned  init_asked;


/*
 * ---- as a session's init -------------------------------------------------
 */

static void
init_record(sbx_record_type_t type, uint32_t command)
{
    sbx_record_t  record;

    memset(&record, 0, sizeof(record));
    record.magic = SBX_WIRE_MAGIC;
    record.type = type;
    record.command = command;

    (void) sbx_wire_send(INIT_CONTROL, &record, sizeof(record), NULL, 0, 0);
}


/* The commands that run end. */

static void
init_over(void)
{
    for ( /* void */ ; init_running != 0; init_running--) {
        init_record(SBX_R_COMMAND_OVER, init_running);
    }
}


static void
init_frame(int fd, sbx_frame_type_t type, const void *data, size_t size)
{
    uint8_t  buf[1024];
    size_t   n;

    n = sbx_wire_header(buf, type, size);

    if (size != 0) {
        memcpy(buf + n, data, size);
    }

    (void) sbx_wire_send(fd, buf, n + size, NULL, 0, 0);
}


/* An empty datagram, which reads like an end, with many descriptors. */

static void
init_give(void)
{
    int              fds[MANY];
    char             space[CMSG_SPACE(MANY * sizeof(int))];
    unsigned         i;
    struct msghdr    msg;
    struct cmsghdr  *cmsg;

    memset(space, 0, sizeof(space));
    memset(&msg, 0, sizeof(msg));
    msg.msg_control = space;
    msg.msg_controllen = sizeof(space);
    cmsg = CMSG_FIRSTHDR(&msg);
    cmsg->cmsg_level = SOL_SOCKET;
    cmsg->cmsg_type = SCM_RIGHTS;
    cmsg->cmsg_len = CMSG_LEN(sizeof(fds));

    for (i = 0; i < MANY; i++) {
        fds[i] = INIT_CONTROL;
    }

    memcpy(CMSG_DATA(cmsg), fds, sizeof(fds));
    (void) sendmsg(INIT_CONTROL, &msg, 0);
}


/* A process that stays in the command's group, whatever it is told. */

static void
init_reside(const sbx_task_t *task, const int *attach)
{
    unsigned  i;

    init_residents++;

    if (fork() != 0) {
        return;
    }

    for (i = 0; i < task->attach_count; i++) {
        (void) !write(attach[i], "0", 1);
    }

    (void) close(INIT_CONTROL);

    for ( ;; ) {
        (void) poll(NULL, 0, 60000);
    }
}


/* What it is from now on; all that is sealed. */

static void
init_take(int fd)
{
    int                seals;
    ssize_t            n;
    sbx_init_config_t  config;

    seals = fcntl(fd, F_GET_SEALS);

    if (seals == -1 || !(seals & F_SEAL_WRITE)
        || pread(fd, &config, sizeof(config), 0) != sizeof(config)
        || config.magic != SBX_WIRE_MAGIC)
    {
        return;
    }

    n = pread(fd, init_given, sizeof(init_given) - 1, sizeof(config));
    init_given[n < 0 ? 0 : n] = '\0';
    init_processes = config.limits.processes;
    init_handed++;
}


/* Returns when the broker has read all of them. */

static void
init_ask(unsigned n)
{
    int            unread;
    sbx_record_t   record;
    struct pollfd  pfd;

    memset(&record, 0, sizeof(record));
    record.magic = SBX_WIRE_MAGIC;
    record.type = SBX_R_GROUP;
    pfd.fd = INIT_CONTROL;
    pfd.events = POLLOUT;
    init_asked = 1;

    while (n != 0) {
        if (sbx_wire_send(INIT_CONTROL, &record, sizeof(record), NULL, 0, 0)
            == sizeof(record))
        {
            n--;

        } else if (errno != EAGAIN || poll(&pfd, 1, TEST_WAIT) != 1) {
            return;
        }
    }

    do {
        (void) poll(NULL, 0, 1);
    } while (ioctl(INIT_CONTROL, SIOCOUTQ, &unread) == 0 && unread != 0);
}


static void
init_task(const char *env, const sbx_task_t *task, const int *fds)
{
    int           fd;
    uint32_t      i;
    sbx_f_end_t   end;
    sbx_f_exit_t  over;

    fd = fds[0];
    memset(&end, 0, sizeof(end));
    memset(&over, 0, sizeof(over));

    switch (task->op) {

    case SBX_OP_FREEZE:
        init_frozen = 1;
        break;

    case SBX_OP_THAW:
        init_frozen = 0;
        break;

    case SBX_OP_CUT:
        init_record(SBX_R_CUT, 0);
        break;

    case SBX_OP_COMMANDS:
        for (i = init_running; i != 0; i--) {
            init_record(SBX_R_HELD, i);
        }

        init_record(SBX_R_HELD_ALL, task->token);
        break;

    case SBX_OP_HAND_OVER:
        init_take(fd);
        break;

    case SBX_OP_WARM:
        if (strcmp(env, "MODE=mortal") == 0) {
            _exit(7);
        }

        if (strcmp(env, "MODE=brief") == 0) {
            init_warms = task->token;
            init_record(SBX_R_GROUP, 1);
            break;
        }

        init_record(SBX_R_WARM, task->token);
        break;

    case SBX_OP_GROUP:
        if (strcmp(env, "MODE=asker") != 0) {
            init_record(SBX_R_WARM, init_warms);
        }

        if (task->refused == 0) {
            init_groups++;
            init_record(SBX_R_COMMAND_OVER, task->command);
        }

        break;

    case SBX_OP_EXEC:
        if (strcmp(env, "MODE=mortal") == 0) {
            _exit(7);
        }

        if (strcmp(env, "MODE=resident") == 0 && init_residents == 0) {
            init_reside(task, fds + 1);
            init_frame(fd, SBX_F_ACCEPTED, NULL, 0);
            init_frame(fd, SBX_F_EXIT, &over, sizeof(over));
            break;
        }

        over.pid = (int32_t) task->command;
        over.memory_peak = task->processes;
        over.processes_peak = task->cpus;
        over.read_bytes = task->attach_count;
        init_frame(fd, SBX_F_ACCEPTED, NULL, 0);
        init_frame(fd, SBX_F_EXIT, &over, sizeof(over));

        if (strcmp(env, "MODE=obedient") == 0
            || strcmp(env, "MODE=resident") == 0)
        {
            init_running = task->command;

        } else if (strcmp(env, "MODE=endless") != 0) {
            init_record(SBX_R_COMMAND_OVER, task->command);
        }

        break;

    case SBX_OP_TERMINATE:
        if (strcmp(env, "MODE=resident") == 0 && init_running != 0) {
            init_record(SBX_R_COMMAND_OVER, init_running);

        } else if (strcmp(env, "MODE=obedient") == 0) {
            init_over();
        }

        break;

    case SBX_OP_FILE:
        if (strcmp(env, "MODE=nonsense") == 0) {
            (void) sbx_wire_send(INIT_CONTROL, "no", 2, NULL, 0, 0);

        } else if (strcmp(env, "MODE=giver") == 0) {
            init_give();

        } else if (strcmp(env, "MODE=forger") == 0) {
            init_record(SBX_R_WARM, 0);

        } else if (strcmp(env, "MODE=asker") == 0) {
            init_ask(init_asked ? 1 : ASKS);
        }

        end.count = init_frozen;
        end.created = init_handed;
        end.next = init_processes;
        end.size = strcmp(init_given, "COLOUR=blue") == 0;
        end.truncated = init_groups;
        init_frame(fd, SBX_F_ACCEPTED, NULL, 0);
        init_frame(fd, SBX_F_END, &end, sizeof(end));
        break;
    }
}


/* 1 if a launch has given us what an init is given. */

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


static int
init_main(void)
{
    int                 fds[SBX_TASK_FDS_MAX + 8], signo;
    char                env[64];
    ssize_t             n;
    sigset_t            signals;
    unsigned            i, nfds;
    sbx_task_t          task;
    struct pollfd       pfd;
    sbx_init_config_t   config;

    n = pread(INIT_CONFIG, &config, sizeof(config), 0);
    n = n == sizeof(config)
        ? pread(INIT_CONFIG, env, sizeof(env) - 1, sizeof(config)) : 0;
    env[n < 0 ? 0 : n] = '\0';

    if (strcmp(env, "MODE=stillborn") == 0) {
        return 3;
    }

    if (strcmp(env, "MODE=late") == 0) {
        (void) sigemptyset(&signals);
        (void) sigaddset(&signals, SIGUSR1);
        (void) sigaddset(&signals, SIGUSR2);
        (void) sigprocmask(SIG_BLOCK, &signals, NULL);
        (void) sigdelset(&signals, SIGUSR2);
        (void) sigwait(&signals, &signo);
    }

    init_record(SBX_R_READY, 0);

    while (strcmp(env, "MODE=deaf") == 0) {
        (void) poll(NULL, 0, 60000);
    }

    if (strcmp(env, "MODE=slow") == 0) {
        (void) poll(NULL, 0, SLOW);
    }

    while (strcmp(env, "MODE=talker") == 0) {
        init_record(SBX_R_REAPED, 0);
    }

    pfd.fd = INIT_CONTROL;
    pfd.events = POLLIN;

    while (poll(&pfd, 1, -1) == 1) {
        nfds = sbx_nelts(fds);
        n = sbx_wire_recv(INIT_CONTROL, &task, sizeof(task), fds, &nfds, 0);

        if (n <= 0) {
            return 0;
        }

        init_task(env, &task, fds);

        for (i = 0; i < nfds; i++) {
            (void) close(fds[i]);
        }
    }

    return 1;
}


/* The helpers' directory: the real broker and ourselves as init. */

static void
init_helpers(test_broker_t *t)
{
    int          in, out;
    char         buf[65536], dir[4096], path[8192];
    ssize_t      n;

    (void) snprintf(dir, sizeof(dir), "%s/helpers", t->dir);
    (void) mkdir(dir, 0755);

    (void) snprintf(path, sizeof(path), "%s/sandbox-broker", t->helpers);
    (void) snprintf(buf, sizeof(buf), "%s/sandbox-broker", dir);
    (void) !symlink(path, buf);

    (void) snprintf(path, sizeof(path), "%s/sandbox-init", dir);
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
