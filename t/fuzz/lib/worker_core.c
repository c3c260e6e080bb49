/*
 * The other side of the worker's calls: a broker, and the init behind it.  No
 * call is one that these would refuse to read; what they answer is the
 * input's.
 */

#include "../../../ngx_sandbox_module/ngx_http_sandbox_call_read.c"

#include "worker_state.h"


#define WORKER_CALLS   16


typedef struct {
    int          fd;
    sbx_call_t   head;
} worker_call_t;


static void worker_blob(const sbx_call_t *head, const uint8_t *body, int fd);
static void worker_frames(worker_call_t *call);
static void worker_frame(worker_call_t *call, const sbx_frame_t *frame,
    const uint8_t *p);
static int worker_socket(int family);
static void worker_say(worker_call_t *call, unsigned type, unsigned how,
    const uint8_t *p, size_t n);


static worker_call_t  calls[WORKER_CALLS];
static ngx_uint_t     ncalls;




void
worker_core(void)
{
    int          fds[SBX_WIRE_FDS_ALL];
    uint8_t      buf[4096];
    ssize_t      n;
    ngx_uint_t   i;
    sbx_error_t  e;
    unsigned     nfds;

    for (i = 0; i < ncalls; i++) {
        worker_frames(&calls[i]);
    }

    for ( ;; ) {
        n = sbx_wire_recv_all(worker.door[1], buf, sizeof(buf), fds, &nfds,
                              MSG_DONTWAIT);

        if (n == -1) {
            return;
        }

        /* no request makes a call that the broker would not read */

        must(sbx_wire_check_call(buf, (size_t) n, &e) == 0);
        must(nfds == 1 || nfds == 2);
        must(ncalls < WORKER_CALLS);
        memcpy(&calls[ncalls].head, buf, sizeof(sbx_call_t));
        calls[ncalls].fd = fds[0];
        worker_blob(&calls[ncalls].head, buf + sizeof(sbx_call_t),
                    nfds == 2 ? fds[1] : -1);

        if (nfds == 2) {
            (void) close(fds[1]);
        }

        worker_frames(&calls[ncalls++]);
    }
}


/* What a CREATE brings is as long as it says, and ended as it says. */

static void
worker_blob(const sbx_call_t *head, const uint8_t *body, int fd)
{
    size_t        size;
    struct stat   st;
    sbx_create_t  create;

    if (head->op != SBX_OP_CREATE) {
        return;
    }

    memcpy(&create, body, sizeof(create));
    must(create.meta_size <= SBX_META_MAX && create.env_size <= SBX_ENV_MAX
         && create.rules_size <= SBX_RULES_MAX
         && create.network_size <= SBX_NETWORK_SIZE);
    size = (size_t) create.meta_size + create.env_size + create.rules_size
           + create.network_size;
    must((size != 0) == (fd != -1));

    if (fd != -1) {
        must(fstat(fd, &st) == 0 && st.st_size == (off_t) size);
    }
}


static void
worker_frames(worker_call_t *call)
{
    ssize_t         n;
    sbx_wire_t      w;
    sbx_frame_t     frame;
    const uint8_t  *payload;

    static uint8_t  buf[sizeof(sbx_frame_t) + SBX_FRAME_MAX];

    /* frames are looked at as they lie in the socket, and only then taken */

    while (call->fd != -1) {
        n = recv(call->fd, buf, sizeof(buf), MSG_DONTWAIT|MSG_PEEK);

        if (n <= 0) {
            return;
        }

        sbx_wire_init(&w, buf, sizeof(buf));
        w.end = (size_t) n;
        n = sbx_wire_next(&w, &frame, &payload);
        must(n != -1);

        if (n == 0) {
            return;
        }

        worker_frame(call, &frame, payload);
        must(recv(call->fd, buf, sizeof(sbx_frame_t) + frame.length, 0)
             == (ssize_t) (sizeof(sbx_frame_t) + frame.length));
    }
}


/* As init would check it. */

static void
worker_frame(worker_call_t *call, const sbx_frame_t *frame, const uint8_t *p)
{
    const char      *s1, *s2, *s3;
    sbx_f_file_t     file;
    sbx_f_code_t     code;
    sbx_f_exec_t     exec;
    sbx_f_process_t  ask;

    switch (frame->type) {

    case SBX_F_FILE:
        must(call->head.op == SBX_OP_FILE);
        must(sbx_wire_check_file(p, frame->length, &file, &s1, &s2) == 0);
        break;

    case SBX_F_CODE:
        must(call->head.op == SBX_OP_CODE);
        must(sbx_wire_check_code(p, frame->length, &code, &s1, &s2, &s3)
             == 0);
        break;

    case SBX_F_EXEC:
        must(call->head.op == SBX_OP_EXEC && frame->length == sizeof(exec));
        memcpy(&exec, p, sizeof(exec));
        must(exec.argc != 0 && exec.strings_size <= SBX_STRINGS_MAX
             && memchr(exec.tag, '\0', SBX_TAG_MAX + 1) != NULL
             && exec.rows <= UINT16_MAX && exec.cols <= UINT16_MAX
             && exec.argc + exec.envc < exec.strings_size);
        break;

    case SBX_F_PROCESS:
        must(frame->length == sizeof(ask));
        memcpy(&ask, p, sizeof(ask));
        must(memchr(ask.tag, '\0', SBX_TAG_MAX + 1) != NULL
             && ask.verb >= SBX_PROCESS_LIST
             && ask.verb <= SBX_PROCESS_LEAVE);
        break;

    case SBX_F_PORT:
        must(call->head.op == SBX_OP_PORT
             && frame->length == sizeof(sbx_f_port_t));
        break;

    case SBX_F_END:
        must(call->head.op == SBX_OP_CREATE && frame->length == 0
             && (call->head.flags & SBX_CALL_TELLS));
        break;

    case SBX_F_STRINGS:
    case SBX_F_STDIN:
    case SBX_F_DATA:
        break;

    default:
        abort();
    }
}


void
worker_core_say(unsigned kind, unsigned how, const uint8_t *p, size_t n)
{
    ngx_uint_t      i;
    sbx_f_error_t   error;
    worker_call_t  *call;

    /* a worker once wrote it: of the broker, it is the JSON that it was */

    if (kind == SBX_F_META) {
        worker.told += worker_json(p, n) == 0 ? 1 : 2;
    }

    i = ncalls;

    if ((how & WORKER_OLDER) && i > 1) {
        i--;
    }

    if (i == 0 || calls[i - 1].fd == -1) {
        return;
    }

    call = &calls[i - 1];

    if (kind != WORKER_REFUSAL) {
        worker_say(call, kind, how, p, n);
        return;
    }

    memset(&error, 0, sizeof(error));
    error.code = n ? p[0] : 0;
    error.retry_after = n > 1 ? p[1] : 0;
    error.ended = n > 2 ? p[2] : 0;
    n = n > 3 ? n - 3 : 0;
    n = ngx_min(n, sizeof(error.text));

    if (n != 0) {
        memcpy(error.text, p + 3, n);
    }

    worker_say(call, SBX_F_ERROR, how, (uint8_t *) &error, sizeof(error));
}


void
worker_core_gone(void)
{
    ngx_uint_t  i;

    for (i = 0; i < ncalls; i++) {
        if (calls[i].fd != -1) {
            (void) close(calls[i].fd);
            calls[i].fd = -1;
        }
    }

    /* their places are free once there is no request to have them */

    if (worker.request == NULL) {
        ncalls = 0;
    }
}


/* One for a port that leads nowhere: it cannot be connected. */

static int
worker_socket(int family)
{
    int  fd;

    fd = socket(family, SOCK_STREAM|SOCK_NONBLOCK|SOCK_CLOEXEC, 0);
    must(fd != -1 && listen(fd, 1) == 0);

    return fd;
}


/* A frame that has the length of its type, unless it is to be wrong. */

static void
worker_say(worker_call_t *call, unsigned frame_type, unsigned how,
    const uint8_t *p, size_t n)
{
    int                              fd;
    size_t                           size;
    unsigned                         nfds;
    const ngx_http_sandbox_shape_t  *shape;

    static uint8_t  buf[sizeof(sbx_frame_t) + SBX_FRAME_MAX];

    size = n;

    for (shape = ngx_http_sandbox_shapes; shape->type != 0; shape++) {
        if (shape->type != frame_type || (how & WORKER_SIZED)) {
            continue;
        }

        size = ngx_max(size, shape->min);
        size = ngx_min(size, shape->max);
    }

    memset(buf, 0, sizeof(sbx_frame_t) + size);

    if (how & WORKER_RAW) {
        size = n;
        memcpy(buf, p, n);

    } else {
        n = ngx_min(n, size);
        (void) sbx_wire_header(buf, (sbx_frame_type_t) frame_type, size);

        if (n != 0) {
            memcpy(buf + sizeof(sbx_frame_t), p, n);
        }

        size += sizeof(sbx_frame_t);
    }

    nfds = 0;
    fd = -1;

    if (how & (WORKER_FOUR|WORKER_SIX)) {
        nfds = 1;
        fd = worker_socket(how & WORKER_FOUR ? AF_INET : AF_INET6);

    } else if (how & (WORKER_FILE|WORKER_OTHER)) {
        nfds = 1;
        fd = how & WORKER_FILE ? open("/etc/passwd", O_RDONLY|O_CLOEXEC)
                               : dup(worker.door[1]);
        must(fd != -1);
    }

    /* a worker that does not read is not waited for */

    (void) !sbx_wire_send(call->fd, buf, size, &fd, nfds, MSG_DONTWAIT);

    if (fd != -1) {
        (void) close(fd);
    }
}


