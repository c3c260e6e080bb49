/*
 * A broker with an egress that only tells what it is told: what is asked of
 * it, and what it says.
 */

#ifndef BROKER_NETWORK_H
#define BROKER_NETWORK_H

#include "broker_egress.h"

#include <dirent.h>


static test_broker_t   t;
static int             heard;           /* the call of refusals */
static sbx_f_check_t   check;
static unsigned        nchecks;
static unsigned        ended;
static sbx_f_refusal_t refusal;
static size_t          rules_told;
static char            rules[SBX_NETWORK_SIZE];


/*
 * ---- configuration -------------------------------------------------------
 */

static void
row(char type, const char *a, const char *b, const char *c)
{
    size_t       i;
    char        *p;
    const char  *text[3] = { a, b, c };

    p = t.config.egress + t.config.egress_size;
    *p++ = type;

    for (i = 0; i < 3 && text[i] != NULL; i++) {
        (void) strcpy(p, text[i]);
        p += strlen(p) + 1;
    }

    t.config.egress_size = (uint32_t) (p - t.config.egress);
}


static int
tell(void)
{
    int           control;
    sbx_hello_t   hello;
    sbx_client_t  client;

    client = t.client;
    client.spawn = 0;
    control = -1;

    if (sbx_client_start(&client, &control, &hello, &t.error) != 0) {
        printf("# %s\n", t.error.text);
        return -1;
    }

    (void) close(control);

    return 0;
}


static void
take_check(const sbx_frame_t *f, const uint8_t *p)
{
    sbx_f_check_t  c;

    ended |= f->type == SBX_F_END;

    if (f->type == SBX_F_CHECK) {
        memcpy(&c, p, sizeof(c));

        if (strcmp(c.name, "egress") == 0) {
            check = c;
            nchecks++;
        }
    }
}


static int
is_ended(const char *text)
{
    (void) text;

    return ended != 0;
}


/* The egress's pid, as /doctor has it; 0: it does not run, -1: it need not. */

static pid_t
egress_pid(void)
{
    int  fd, pid;

    ended = 0;
    nchecks = 0;
    fd = test_call(t.control, SBX_OP_DOCTOR, "", "");
    test_follow(fd, take_check, is_ended, NULL);
    (void) close(fd);

    if (nchecks == 0) {
        return -1;
    }

    return check.ok && sscanf(check.found, "process %d", &pid) == 1 ? pid : 0;
}


static pid_t
await_egress(pid_t old)
{
    int    i;
    pid_t  pid;

    for (i = 0; i < TEST_WAIT / 10; i++) {
        pid = egress_pid();

        if (pid > 0 && pid != old) {
            return pid;
        }

        (void) poll(NULL, 0, 10);
    }

    return -1;
}


static int
await_logged(const char *text)
{
    int  i;

    for (i = 0; i < TEST_WAIT / 10; i++) {
        if (test_logged(&t, text)) {
            return 1;
        }

        (void) poll(NULL, 0, 10);
    }

    return 0;
}


/*
 * ---- what the egress was told --------------------------------------------
 */

static void
take_refusal(const sbx_frame_t *f, const uint8_t *p)
{
    if (f->type == SBX_F_ACCEPTED) {
        ended = 1;
    }

    if (f->type == SBX_F_REFUSAL) {
        memcpy(&refusal, p, sizeof(refusal));
    }
}


static void
listen_to(void)
{
    ended = 0;
    heard = test_call(t.control, SBX_OP_REFUSALS, "", "");
    test_follow(heard, take_refusal, is_ended, NULL);
}


/* Until the egress has been told that of the session. */

static int
await_told(const char *id, const char *text)
{
    ssize_t         n;
    sbx_frame_t     frame;
    struct pollfd   pfd;

    pfd.fd = heard;
    pfd.events = POLLIN;

    while (poll(&pfd, 1, TEST_WAIT) == 1) {
        n = recv(heard, &frame, sizeof(frame), MSG_WAITALL);

        if (n != sizeof(frame) || frame.type != SBX_F_REFUSAL
            || frame.length != sizeof(refusal)
            || recv(heard, &refusal, sizeof(refusal), MSG_WAITALL)
               != sizeof(refusal))
        {
            break;
        }

        if (strcmp(refusal.session, id) == 0
            && strstr(refusal.name, text) != NULL)
        {
            return 1;
        }
    }

    printf("# \"%s\" is not told; the last was \"%s\" of \"%s\"\n", text,
           refusal.name, refusal.session);

    return 0;
}


/*
 * ---- sessions ------------------------------------------------------------
 */

static void
put(char *buf, uint32_t *size, char type, const char *text)
{
    buf[(*size)++] = type;
    (void) strcpy(buf + *size, text);
    *size += (uint32_t) strlen(text) + 1;
}


static int
sealed(const char *data, size_t size)
{
    int  fd;

    if (size == 0) {
        return -1;
    }

    fd = memfd_create("blob", MFD_CLOEXEC|MFD_ALLOW_SEALING);

    if (fd == -1 || sbx_write_all(fd, data, size) == -1
        || fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE|F_SEAL_SHRINK|F_SEAL_GROW)
           == -1)
    {
        test_die("memfd");
    }

    return fd;
}


static test_answer_t *
create(sbx_network_mode_t mode, const char *rule)
{
    int             blob;
    sbx_create_t    body;
    test_answer_t  *a;

    test_create_body(&body);
    body.network = mode;

    if (rule != NULL) {
        put(rules, &body.network_size, 'a', rule);
    }

    blob = sealed(rules, body.network_size);
    a = test_answer(test_create_send(t.control, "acme", &body, blob));

    if (blob != -1) {
        (void) close(blob);
    }

    return a;
}


static int
made(test_answer_t *a, char *id)
{
    if (a->last != SBX_F_END) {
        printf("# create: %s (%d)\n", a->error.text, a->error.err);
        id[0] = '\0';
        return 0;
    }

    (void) strcpy(id, a->session.id);

    return 1;
}


static int
patch_send(const char *id, sbx_network_mode_t mode, size_t size)
{
    int          blob, fd;
    sbx_call_t   head;
    sbx_patch_t  patch;

    memset(&patch, 0, sizeof(patch));
    patch.flags = SBX_PATCH_NETWORK;
    patch.network = mode;
    patch.network_size = (uint32_t) size;
    blob = sealed(rules, size);
    test_head(&head, SBX_OP_PATCH, id, "acme", "alice", sizeof(patch));
    fd = test_send(t.control, &head, &patch, sizeof(patch), blob);

    if (blob != -1) {
        (void) close(blob);
    }

    return fd;
}


static test_answer_t *
patch(const char *id, sbx_network_mode_t mode, const char *rule)
{
    uint32_t  size;

    size = 0;

    if (rule != NULL) {
        put(rules, &size, 'a', rule);
    }

    return test_answer(patch_send(id, mode, size));
}


static void
take_rules(const sbx_frame_t *f, const uint8_t *p)
{
    ended |= f->type == SBX_F_END || f->type == SBX_F_ERROR;

    if (f->type == SBX_F_NETWORK) {
        rules_told = f->length;
        memcpy(rules, p, f->length);
    }
}


/* Its usage, by a GET. */

static sbx_usage_t *
usage(const char *id)
{
    static sbx_usage_t  u;

    u = test_answer(test_call(t.control, SBX_OP_GET, id, ""))->session.usage;

    return &u;
}


static sbx_f_metrics_t *
metrics(void)
{
    static sbx_f_metrics_t  m;

    m = test_answer(test_call(t.control, SBX_OP_METRICS, "", ""))->metrics;

    return &m;
}


static void
put_file(const char *path, const char *text)
{
    FILE  *file;

    file = fopen(path, "we");

    if (file == NULL || fputs(text, file) == EOF || fclose(file) != 0) {
        test_die(path);
    }
}


/* The process that the session's cgroup has: its init. */

static pid_t
init_of(const char *id)
{
    DIR            *dir;
    char            path[300], text[2048];
    FILE           *file;
    pid_t           pid;
    struct dirent  *entry;

    pid = 0;
    dir = opendir("/proc");

    while (dir != NULL && pid == 0 && (entry = readdir(dir)) != NULL) {
        (void) snprintf(path, sizeof(path), "/proc/%s/cgroup", entry->d_name);
        file = atoi(entry->d_name) > 0 ? fopen(path, "re") : NULL;

        while (file != NULL && fgets(text, sizeof(text), file) != NULL) {
            if (strstr(text, id) != NULL) {
                pid = (pid_t) atoi(entry->d_name);
            }
        }

        if (file != NULL) {
            (void) fclose(file);
        }
    }

    if (dir != NULL) {
        (void) closedir(dir);
    }

    return pid;
}


#endif
