/*
 * sandboxctl sessions: what lives, whose it is and what it uses.  A list of
 * the running broker's, then a look at each session for its usage; one that
 * ends meanwhile is left out.
 */

#include "sandboxctl.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <time.h>


#define SBX_CTL_TIME   32


typedef struct {
    sbx_f_session_t  *sessions;
    size_t            n;
    size_t            size;
    int               failed;         /* out of memory */
} sbx_ctl_sessions_t;

typedef void (*sbx_ctl_show_pt)(const sbx_f_session_t *s, int64_t now,
    size_t i);


static void sbx_ctl_session_listed(uint16_t type, const uint8_t *payload,
    size_t size, void *data);
static void sbx_ctl_session_got(uint16_t type, const uint8_t *payload,
    size_t size, void *data);
static void sbx_ctl_session_end(sbx_f_session_t *s);
static void sbx_ctl_session_line(const sbx_f_session_t *s, int64_t now,
    size_t i);
static void sbx_ctl_session_json(const sbx_f_session_t *s, int64_t now,
    size_t i);
static const char *sbx_ctl_session_status(const sbx_f_session_t *s);
static void sbx_ctl_duration(int64_t ms, char buf[SBX_CTL_TIME]);
static void sbx_ctl_size(uint64_t bytes, char buf[SBX_CTL_TIME]);
static void sbx_ctl_time(int64_t ms, char buf[SBX_CTL_TIME]);


int
sbx_ctl_sessions(const sbx_ctl_command_t *command, int argc, char **argv)
{
    int                     code, json;
    size_t                  i, shown;
    int64_t                 now;
    const char             *state;
    sbx_auto_fd             control = -1;
    sbx_list_t              filter;
    sbx_error_t             e;
    struct timespec         ts;
    sbx_ctl_show_pt         show;
    sbx_ctl_sessions_t      list;
    const sbx_ctl_option_t  options[] = {
        { "--state", &state, NULL },
        { "--json", NULL, &json },
        { NULL, NULL, NULL }
    };

    state = SBX_CTL_STATE;
    json = 0;
    memset(&list, 0, sizeof(sbx_ctl_sessions_t));
    memset(&filter, 0, sizeof(sbx_list_t));

    if (sbx_ctl_options(command, argc, argv, options, &code) != 0) {
        return code;
    }

    if (sbx_ctl_connect(state, &control, &e) != 0
        || sbx_ctl_ask(control, SBX_OP_LIST, "", &filter, sizeof(sbx_list_t),
                       sbx_ctl_session_listed, &list, &e)
           != 0)
    {
        (void) fprintf(stderr, "sandboxctl: %s%s%s\n", e.text,
                       e.err != 0 ? ": " : "",
                       e.err != 0 ? strerror(e.err) : "");
        free(list.sessions);
        return SBX_CTL_NO_BROKER;
    }

    show = json ? sbx_ctl_session_json : sbx_ctl_session_line;
    shown = 0;
    (void) clock_gettime(CLOCK_REALTIME, &ts);
    now = (int64_t) ts.tv_sec * 1000 + ts.tv_nsec / 1000000;

    if (json) {
        (void) printf("{\"sessions\":[");
    }

    for (i = 0; i < list.n; i++) {
        list.sessions[i].has_usage = 0;

        (void) sbx_ctl_ask(control, SBX_OP_GET, list.sessions[i].id, NULL, 0,
                           sbx_ctl_session_got, &list.sessions[i], &e);

        if (list.sessions[i].has_usage) {
            show(&list.sessions[i], now, shown++);
        }
    }

    if (json) {
        (void) printf("]}\n");
    }

    free(list.sessions);

    if (list.failed) {
        (void) fprintf(stderr, "sandboxctl: out of memory\n");
        return SBX_CTL_FAILED;
    }

    return SBX_CTL_OK;
}


static void
sbx_ctl_session_listed(uint16_t type, const uint8_t *payload, size_t size,
    void *data)
{
    size_t               room;
    sbx_f_session_t     *sessions;
    sbx_ctl_sessions_t  *list;

    list = data;

    if (type != SBX_F_SESSION || size != sizeof(sbx_f_session_t)) {
        return;
    }

    if (list->n == list->size) {
        room = list->size ? list->size * 2 : 64;
        sessions = realloc(list->sessions, room * sizeof(sbx_f_session_t));

        if (sessions == NULL) {
            list->failed = 1;
            return;
        }

        list->sessions = sessions;
        list->size = room;
    }

    memcpy(&list->sessions[list->n], payload, sizeof(sbx_f_session_t));
    sbx_ctl_session_end(&list->sessions[list->n]);
    list->n++;
}


static void
sbx_ctl_session_got(uint16_t type, const uint8_t *payload, size_t size,
    void *data)
{
    sbx_f_session_t  *s;

    s = data;

    if (type == SBX_F_SESSION && size == sizeof(sbx_f_session_t)) {
        memcpy(s, payload, sizeof(sbx_f_session_t));
        sbx_ctl_session_end(s);
    }
}


static void
sbx_ctl_session_end(sbx_f_session_t *s)
{
    s->id[sizeof(s->id) - 1] = '\0';
    s->tenant[sizeof(s->tenant) - 1] = '\0';
    s->user[sizeof(s->user) - 1] = '\0';
    s->template[sizeof(s->template) - 1] = '\0';
}


static void
sbx_ctl_session_line(const sbx_f_session_t *s, int64_t now, size_t i)
{
    char  age[SBX_CTL_TIME], left[SBX_CTL_TIME];
    char  memory[SBX_CTL_TIME], disk[SBX_CTL_TIME];

    if (i == 0) {
        (void) printf("%-26s %-16s %-12s %-10s %-8s %8s %8s %8s %8s %5s %9s\n",
                      "SESSION", "TENANT", "USER", "TEMPLATE", "STATUS",
                      "AGE", "EXPIRES", "MEMORY", "DISK", "PROCS", "CPU");
    }

    sbx_ctl_duration(now - s->created, age);
    sbx_ctl_duration(s->expires - now, left);
    sbx_ctl_size(s->usage.memory, memory);
    sbx_ctl_size(s->usage.disk, disk);

    (void) printf("%-26s %-16s %-12s %-10s %-8s %8s %8s %8s %8s %5" PRIu64
                  " %8" PRIu64 ".%02us\n", s->id, s->tenant, s->user,
                  s->template, sbx_ctl_session_status(s), age, left, memory,
                  disk, s->usage.processes, s->usage.cpu_us / 1000000,
                  (unsigned) (s->usage.cpu_us % 1000000 / 10000));
}


static void
sbx_ctl_session_json(const sbx_f_session_t *s, int64_t now, size_t i)
{
    char  created[SBX_CTL_TIME], expires[SBX_CTL_TIME];

    (void) now;

    sbx_ctl_time(s->created, created);
    sbx_ctl_time(s->expires, expires);

    (void) printf("%s{", i ? "," : "");
    sbx_ctl_json_member(0, "session_id", s->id);
    sbx_ctl_json_member(1, "tenant_id", s->tenant);
    sbx_ctl_json_member(1, "user_id", s->user);
    sbx_ctl_json_member(1, "template", s->template);
    sbx_ctl_json_member(1, "status", sbx_ctl_session_status(s));
    sbx_ctl_json_member(1, "created_at", created);
    sbx_ctl_json_member(1, "expires_at", expires);

    (void) printf(",\"isolated\":%s,\"usage\":{\"memory\":%" PRIu64
                  ",\"memory_peak\":%" PRIu64 ",\"cpu_seconds\":%" PRIu64
                  ".%06u,\"processes\":%" PRIu64 ",\"disk\":%" PRIu64
                  ",\"inodes\":%" PRIu64 "}}",
                  s->isolated ? "true" : "false", s->usage.memory,
                  s->usage.memory_peak, s->usage.cpu_us / 1000000,
                  (unsigned) (s->usage.cpu_us % 1000000), s->usage.processes,
                  s->usage.disk, s->usage.inodes);
}


static const char *
sbx_ctl_session_status(const sbx_f_session_t *s)
{
    switch ((sbx_status_t) s->status) {

    case SBX_STATUS_RUNNING:
        return "running";

    case SBX_STATUS_PAUSED:
        return "paused";
    }

    return "unknown";
}


/* The two units that matter. */

static void
sbx_ctl_duration(int64_t ms, char buf[SBX_CTL_TIME])
{
    long long  s;

    s = ms > 0 ? ms / 1000 : 0;

    if (s < 60) {
        (void) snprintf(buf, SBX_CTL_TIME, "%llds", s);

    } else if (s < 3600) {
        (void) snprintf(buf, SBX_CTL_TIME, "%lldm%02llds", s / 60, s % 60);

    } else {
        (void) snprintf(buf, SBX_CTL_TIME, "%lldh%02lldm", s / 3600,
                        s % 3600 / 60);
    }
}


static void
sbx_ctl_size(uint64_t bytes, char buf[SBX_CTL_TIME])
{
    if (bytes < 1024 * 1024) {
        (void) snprintf(buf, SBX_CTL_TIME, "%" PRIu64 "K", bytes / 1024);

    } else {
        (void) snprintf(buf, SBX_CTL_TIME, "%" PRIu64 ".%uM", bytes >> 20,
                        (unsigned) ((bytes & 0xfffff) * 10 >> 20));
    }
}


static void
sbx_ctl_time(int64_t ms, char buf[SBX_CTL_TIME])
{
    size_t     n;
    time_t     s;
    struct tm  tm;

    s = (time_t) (ms / 1000);

    if (gmtime_r(&s, &tm) == NULL) {
        buf[0] = '\0';
        return;
    }

    n = strftime(buf, SBX_CTL_TIME, "%Y-%m-%dT%H:%M:%S", &tm);
    (void) snprintf(buf + n, SBX_CTL_TIME - n, ".%03uZ",
                    (unsigned) (ms % 1000));
}
