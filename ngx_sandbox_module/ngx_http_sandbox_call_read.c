/*
 * What comes over a call's own socket.  All of it is hostile: a frame is
 * delivered only with the length that its type has, a descriptor only with
 * a frame that brings one, and only if it is of the kind that this brings: a
 * regular file open for reading, or a socket of the broker's.
 *
 * Buffers hold a whole frame, and most calls wait most of the time: a call
 * has one only while it is read, or holds a part of a frame.
 *
 * A callback may end the request and with it the call; its pool's cleanup
 * then sets what call->dead points to.
 */

#include "ngx_http_sandbox_call.h"
#include "ngx_http_sandbox_stream.h"
#include "ngx_http_sandbox_cost.h"
#include "ngx_http_sandbox_passed.h"
#include "sandbox_fault.h"

#include <linux/magic.h>
#include <sys/vfs.h>


#define NGX_HTTP_SANDBOX_CALL_FRAMES    32        /* read at once */
#define NGX_HTTP_SANDBOX_CALL_BYTES     65536     /* or so many bytes */
#define NGX_HTTP_SANDBOX_CALL_FRAME     4096      /* what one counts as */
#define NGX_HTTP_SANDBOX_CALL_BUFFER    (sizeof(sbx_frame_t) + SBX_FRAME_MAX)
#define NGX_HTTP_SANDBOX_CALL_SPARE     8         /* buffers that are kept */
#define NGX_HTTP_SANDBOX_CALL_FIXED     1280      /* largest fixed payload */


typedef ngx_int_t (*ngx_http_sandbox_check_pt)(ngx_http_sandbox_call_t *call,
    const u_char *payload, size_t len);

typedef struct {
    uint16_t                    type;
    uint16_t                    descriptor;   /* brings one */
    uint32_t                    min;
    uint32_t                    max;
    ngx_http_sandbox_check_pt   check;        /* of what is in it, or NULL */
} ngx_http_sandbox_shape_t;


static void ngx_http_sandbox_call_read(ngx_http_sandbox_call_t *call);
static ngx_int_t ngx_http_sandbox_call_fill(ngx_http_sandbox_call_t *call);
static ngx_int_t ngx_http_sandbox_call_wait(ngx_http_sandbox_call_t *call);
static ngx_int_t ngx_http_sandbox_call_deliver(ngx_http_sandbox_call_t *call,
    const sbx_frame_t *frame, const u_char *payload);
static const ngx_http_sandbox_shape_t *ngx_http_sandbox_call_shape(
    ngx_http_sandbox_call_t *call, const sbx_frame_t *frame,
    const u_char *payload);
static ngx_int_t ngx_http_sandbox_call_check_entry(
    ngx_http_sandbox_call_t *call, const u_char *payload, size_t len);
static ngx_int_t ngx_http_sandbox_call_check_opened(
    ngx_http_sandbox_call_t *call, const u_char *payload, size_t len);
static ngx_int_t ngx_http_sandbox_call_check_change(
    ngx_http_sandbox_call_t *call, const u_char *payload, size_t len);
static ngx_int_t ngx_http_sandbox_call_check_match(
    ngx_http_sandbox_call_t *call, const u_char *payload, size_t len);
static ngx_int_t ngx_http_sandbox_call_check_state(
    ngx_http_sandbox_call_t *call, const u_char *payload, size_t len);
static ngx_int_t ngx_http_sandbox_call_check_line(
    ngx_http_sandbox_call_t *call, const u_char *payload, size_t len);
static ngx_int_t ngx_http_sandbox_call_check_context(
    ngx_http_sandbox_call_t *call, const u_char *payload, size_t len);
static ngx_int_t ngx_http_sandbox_call_check_field(
    ngx_http_sandbox_call_t *call, const u_char *payload, size_t len);
static ngx_int_t ngx_http_sandbox_call_check_owner(
    ngx_http_sandbox_call_t *call, const u_char *payload, size_t len);
static ngx_int_t ngx_http_sandbox_call_check_session(
    ngx_http_sandbox_call_t *call, const u_char *payload, size_t len);
static ngx_uint_t ngx_http_sandbox_call_name(const char *name, size_t size);
static ngx_int_t ngx_http_sandbox_call_owner(ngx_http_sandbox_call_t *call,
    const u_char *payload);
static u_char *ngx_http_sandbox_call_buffer(ngx_http_sandbox_call_t *call);
static void ngx_http_sandbox_call_spare(u_char *p);


#define FIXED(frame, type)  { frame, 0, sizeof(type), sizeof(type), NULL }
#define BYTES(frame)        { frame, 0, 0, SBX_FRAME_MAX, NULL }
#define EMPTY(frame)        { frame, 0, 0, 0, NULL }

/* a structure and strings after it, whose lengths are in it */
#define STRINGS(frame, type, check)                                           \
    { frame, 0, sizeof(type), SBX_FRAME_MAX,                                  \
      ngx_http_sandbox_call_check_ ## check }

/* What the core may say to a worker; what is not here is refused. */

static const ngx_http_sandbox_shape_t  ngx_http_sandbox_shapes[] = {
    FIXED(SBX_F_ERROR, sbx_f_error_t),
    EMPTY(SBX_F_ACCEPTED),
    FIXED(SBX_F_END, sbx_f_end_t),

    { SBX_F_SESSION, 0, sizeof(sbx_f_session_t), sizeof(sbx_f_session_t),
      ngx_http_sandbox_call_check_session },
    BYTES(SBX_F_META),
    BYTES(SBX_F_NETWORK),
    FIXED(SBX_F_HEALTH, sbx_f_health_t),
    FIXED(SBX_F_CHECK, sbx_f_check_t),
    FIXED(SBX_F_CAPABILITY, sbx_f_capability_t),
    FIXED(SBX_F_TEMPLATE, sbx_f_template_t),
    FIXED(SBX_F_QUOTA, sbx_f_quota_t),
    FIXED(SBX_F_SETTING, sbx_f_setting_t),
    FIXED(SBX_F_DRAIN, sbx_f_drain_t),
    FIXED(SBX_F_METRICS, sbx_f_metrics_t),
    FIXED(SBX_F_SAMPLE, sbx_f_sample_t),
    { SBX_F_OWNER, 0, sizeof(sbx_f_owner_t), sizeof(sbx_f_owner_t),
      ngx_http_sandbox_call_check_owner },

    /* commands */
    FIXED(SBX_F_STARTED, sbx_f_started_t),
    BYTES(SBX_F_STDOUT),
    BYTES(SBX_F_STDERR),
    FIXED(SBX_F_EXIT, sbx_f_exit_t),
    STRINGS(SBX_F_STATE, sbx_f_state_t, state),
    FIXED(SBX_F_OUTPUT, sbx_f_output_t),
    BYTES(SBX_F_STRINGS),
    STRINGS(SBX_F_LINE, sbx_f_line_t, line),

    /* files */
    STRINGS(SBX_F_ENTRY, sbx_f_entry_t, entry),
    { SBX_F_OPENED, 1, sizeof(sbx_f_entry_t), SBX_FRAME_MAX,
      ngx_http_sandbox_call_check_opened },
    EMPTY(SBX_F_READY),
    BYTES(SBX_F_DATA),
    STRINGS(SBX_F_CHANGE, sbx_f_change_t, change),
    STRINGS(SBX_F_MATCH, sbx_f_match_t, match),

    /* code */
    STRINGS(SBX_F_CONTEXT, sbx_f_context_t, context),
    FIXED(SBX_F_RESULT, sbx_f_result_t),
    STRINGS(SBX_F_FIELD, sbx_f_field_t, field),
    BYTES(SBX_F_PIECE),
    FIXED(SBX_F_RAN, sbx_f_ran_t),

    /* ports */
    { SBX_F_SOCKET, 1, 0, 0, ngx_http_sandbox_call_check_socket },

    { 0, 0, 0, 0, NULL }
};


#define STRING(frame, type, field)                                            \
    { frame, offsetof(type, field) + sizeof(((type *) 0)->field) - 1 }

/* Last bytes of strings in fixed payloads: each is made to end there. */

static const struct {
    uint16_t    type;
    size_t      last;
} ngx_http_sandbox_strings[] = {
    STRING(SBX_F_ERROR, sbx_f_error_t, text),
    STRING(SBX_F_ERROR, sbx_f_error_t, scope),
    STRING(SBX_F_ERROR, sbx_f_error_t, resource),
    STRING(SBX_F_ERROR, sbx_f_error_t, mend),
    STRING(SBX_F_SESSION, sbx_f_session_t, id),
    STRING(SBX_F_SESSION, sbx_f_session_t, tenant),
    STRING(SBX_F_SESSION, sbx_f_session_t, user),
    STRING(SBX_F_SESSION, sbx_f_session_t, template),
    STRING(SBX_F_HEALTH, sbx_f_health_t, text),
    STRING(SBX_F_CHECK, sbx_f_check_t, name),
    STRING(SBX_F_CHECK, sbx_f_check_t, found),
    STRING(SBX_F_CHECK, sbx_f_check_t, mend),
    STRING(SBX_F_CAPABILITY, sbx_f_capability_t, name),
    STRING(SBX_F_CAPABILITY, sbx_f_capability_t, by),
    STRING(SBX_F_CAPABILITY, sbx_f_capability_t, mend),
    STRING(SBX_F_TEMPLATE, sbx_f_template_t, name),
    STRING(SBX_F_TEMPLATE, sbx_f_template_t, alias),
    STRING(SBX_F_TEMPLATE, sbx_f_template_t, description),
    STRING(SBX_F_QUOTA, sbx_f_quota_t, tenant),
    STRING(SBX_F_QUOTA, sbx_f_quota_t, user),
    STRING(SBX_F_QUOTA, sbx_f_quota_t, by),
    STRING(SBX_F_SETTING, sbx_f_setting_t, by),
    STRING(SBX_F_DRAIN, sbx_f_drain_t, by),
    { 0, 0 }
};


/* File systems whose regular files are none. */

static const uint32_t  ngx_http_sandbox_no_files[] = {
    PROC_SUPER_MAGIC, SYSFS_MAGIC, CGROUP_SUPER_MAGIC, CGROUP2_SUPER_MAGIC,
    FUSE_SUPER_MAGIC, NFS_SUPER_MAGIC, V9FS_MAGIC, DEBUGFS_MAGIC,
    TRACEFS_MAGIC, SECURITYFS_MAGIC, BPF_FS_MAGIC, NSFS_MAGIC, 0
};


/* This worker's. */

static u_char      *ngx_http_sandbox_spare[NGX_HTTP_SANDBOX_CALL_SPARE];
static ngx_uint_t   ngx_http_sandbox_spares;


void
ngx_http_sandbox_call_read_handler(ngx_event_t *rev)
{
    ngx_connection_t         *c, *client;
    ngx_http_sandbox_call_t  *call;

    c = rev->data;
    call = c->data;
    client = call->request->connection;

    if (c->close && !c->error) {

        /* the worker begins to end, of which idle connections are told */

        c->close = 0;
        c->idle = 0;

        ngx_http_sandbox_stream_leave(call->stream);
        return;
    }

    if (c->close) {

        /* the worker's time to end is over */

        ngx_http_sandbox_call_fail(call, NGX_HTTP_SANDBOX_BROKER_UNAVAILABLE);
        return;
    }

    if (rev->timedout) {
        rev->timedout = 0;

        if (call->stopped || call->busy
            || (call->answered && call->timeout == 0))
        {
            ngx_http_sandbox_call_arm(call);
            return;
        }

        ngx_log_error(NGX_LOG_ERR, c->log, NGX_ETIMEDOUT,
                      "sandbox call was not answered in time");

        ngx_http_sandbox_call_fail(call, NGX_HTTP_SANDBOX_BROKER_UNAVAILABLE);
        return;
    }

    ngx_http_sandbox_call_read(call);
    ngx_http_run_posted_requests(client);
}


static void
ngx_http_sandbox_call_read(ngx_http_sandbox_call_t *call)
{
    int             got;
    size_t          bytes;
    u_char         *buf;
    ngx_int_t       rc;
    ngx_uint_t      dead, n;
    sbx_frame_t     frame;
    ngx_event_t    *rev;
    const uint8_t  *payload;

    rev = call->connection->read;

    if (rev->posted || ngx_http_sandbox_turn_over()) {
        ngx_http_sandbox_turn_wait(rev);
        return;
    }

    rc = NGX_OK;
    bytes = 0;
    dead = 0;
    /* cleared before this returns */
    /* cppcheck-suppress autoVariables */
    call->dead = &dead;

    for (n = 0; n < NGX_HTTP_SANDBOX_CALL_FRAMES; n++) {

        if (bytes >= NGX_HTTP_SANDBOX_CALL_BYTES
            || (n != 0 && ngx_http_sandbox_cost_over(
                              ngx_http_sandbox_call_watched(call))))
        {
            break;
        }

        if (call->stopped || call->busy) {
            rc = NGX_AGAIN;
            break;
        }

        got = 0;

        if (call->wire.buf != NULL) {
            got = sbx_wire_next(&call->wire, &frame, &payload);
        }

        if (got == 1) {
            buf = call->wire.buf;
            bytes += sizeof(sbx_frame_t) + frame.length;
            ngx_http_sandbox_turn_spend(NGX_HTTP_SANDBOX_CALL_FRAME
                                        + frame.length);
            rc = ngx_http_sandbox_call_deliver(call, &frame, payload);

            if (dead) {
                ngx_http_sandbox_call_spare(buf);
                return;
            }

            if (call->closed) {
                break;
            }

            if (rc == NGX_AGAIN) {
                call->stopped = 1;
                rc = NGX_OK;
            }

            /* ACCEPTED comes again and again of a call whose session stands
             * still: it is waited for, as long as it says so */

            ngx_http_sandbox_call_arm(call);

        } else {
            rc = (got == 0) ? ngx_http_sandbox_call_fill(call) : NGX_ABORT;
        }

        if (rc != NGX_OK) {
            break;
        }
    }

    call->dead = NULL;

    if (call->closed) {
        ngx_http_sandbox_call_release(call);
        return;
    }

    switch (rc) {

    case NGX_OK:
        ngx_http_sandbox_turn_wait(rev);
        return;

    case NGX_AGAIN:
        if (ngx_http_sandbox_call_wait(call) == NGX_OK) {
            return;
        }

        break;

    case NGX_DONE:
        ngx_http_sandbox_call_close(call);
        return;

    case NGX_DECLINED:
        ngx_http_sandbox_call_lost(call);
        return;

    default:
        break;
    }

    ngx_http_sandbox_call_fail(call, NGX_HTTP_SANDBOX_INTERNAL);
}


/* NGX_OK, NGX_AGAIN, NGX_DECLINED at the end, NGX_ABORT. */

static ngx_int_t
ngx_http_sandbox_call_fill(ngx_http_sandbox_call_t *call)
{
    int                fds[SBX_WIRE_FDS_ALL];
    ssize_t            n;
    unsigned           nfds;
    ngx_err_t          err;
    sbx_wire_t        *wire;
    const char        *session;
    ngx_connection_t  *c;
    sbx_costs_span_t   span;

    c = call->connection;
    wire = &call->wire;
    session = ngx_http_sandbox_call_watched(call);

    if (ngx_http_sandbox_cost_left(session)) {
        ngx_log_error(NGX_LOG_ERR, c->log, 0,
                      "sandbox call ends, as those to its session cost too "
                      "much");
        return NGX_ABORT;
    }

    /* what was passed belongs to a frame of the same piece */

    if (call->passed != NGX_INVALID_FILE && wire->end == 0) {
        ngx_log_error(NGX_LOG_ERR, c->log, 0,
                      "sandbox call brought a descriptor without a frame");
        return NGX_ABORT;
    }

    if (!c->read->ready) {
        return NGX_AGAIN;
    }

    if (wire->buf == NULL && ngx_http_sandbox_call_buffer(call) == NULL) {
        return NGX_ABORT;
    }

    ngx_http_sandbox_cost_begin(session, &span);
    n = call->refuses
        ? sbx_wire_recv_all(c->fd, wire->buf + wire->end,
                            wire->size - wire->end, fds, &nfds, MSG_DONTWAIT)
        : ngx_http_sandbox_passed_receive(c->fd, wire->buf + wire->end,
                                          wire->size - wire->end, fds, &nfds,
                                          call->header.session);
    ngx_http_sandbox_cost_end(session, &span);
    err = (n == -1) ? ngx_socket_errno : 0;

    if (nfds == 1 && n > 0 && call->passed == NGX_INVALID_FILE) {
        call->passed = fds[0];
        nfds = 0;
    }

    if (nfds != 0) {
        while (nfds != 0) {
            ngx_http_sandbox_passed_close(call->header.session,
                                          fds[--nfds]);
        }

        ngx_log_error(NGX_LOG_ERR, c->log, 0,
                      "sandbox call brought a second descriptor");
        return NGX_ABORT;
    }

    if (n == -1) {
        switch (err) {

        case EAGAIN:
            c->read->ready = 0;
            return NGX_AGAIN;

        case ECONNRESET:
            return NGX_DECLINED;

        default:
            ngx_log_error(NGX_LOG_ERR, c->log, err,
                          "sandbox call cannot be read");
            return NGX_ABORT;
        }
    }

    if (n == 0) {
        return NGX_DECLINED;
    }

    wire->end += n;

    return NGX_OK;
}


static ngx_int_t
ngx_http_sandbox_call_wait(ngx_http_sandbox_call_t *call)
{
    if (call->wire.buf != NULL && call->wire.start == call->wire.end) {
        ngx_http_sandbox_call_release(call);
    }

    return ngx_handle_read_event(call->connection->read, 0);
}


static ngx_int_t
ngx_http_sandbox_call_deliver(ngx_http_sandbox_call_t *call,
    const sbx_frame_t *frame, const u_char *payload)
{
    u_char                          *p;
    ngx_fd_t                         fd;
    ngx_int_t                        rc;
    ngx_uint_t                       i;
    const ngx_http_sandbox_shape_t  *shape;

    uint64_t  fixed[NGX_HTTP_SANDBOX_CALL_FIXED / sizeof(uint64_t)];

    shape = ngx_http_sandbox_call_shape(call, frame, payload);

    if (shape == NULL) {
        ngx_log_error(NGX_LOG_ERR, call->connection->log, 0,
                      "sandbox call brought a bad frame, type %ui, %uz bytes",
                      (ngx_uint_t) frame->type, (size_t) frame->length);
        return NGX_ABORT;
    }

    if (frame->type == SBX_F_OWNER) {
        return ngx_http_sandbox_call_owner(call, payload);
    }

    if (frame->type == SBX_F_SOCKET) {
        return ngx_http_sandbox_call_socket(call);
    }

    if (!call->answered) {
        call->answered = 1;

        if (call->blob != NGX_INVALID_FILE) {
            (void) close(call->blob);
            call->blob = NGX_INVALID_FILE;
        }

        ngx_http_sandbox_call_recycle(call);
    }

    if (frame->type == SBX_F_END || frame->type == SBX_F_ERROR) {
        SBX_FAULT("worker-call-ended");
    }

    if (frame->type == SBX_F_ACCEPTED) {
        call->accepted = 1;
        SBX_FAULT("worker-call-accepted");
    }

    fd = NGX_INVALID_FILE;

    if (shape->descriptor) {
        fd = call->passed;
        call->passed = NGX_INVALID_FILE;
    }

    /* a structure may be read where it is: aligned, its strings ended */

    if (frame->length <= sizeof(fixed)) {
        p = (u_char *) fixed;
        ngx_memcpy(p, payload, frame->length);

        for (i = 0; ngx_http_sandbox_strings[i].type != 0; i++) {
            if (ngx_http_sandbox_strings[i].type == frame->type) {
                p[ngx_http_sandbox_strings[i].last] = '\0';
            }
        }

        payload = p;
    }

    rc = call->frame(call, frame, payload, fd);

    if (rc == NGX_OK || rc == NGX_AGAIN) {

        /* the callee may have closed it, or the request may be gone */

        return rc;
    }

    return NGX_DONE;
}


/* For the audit log: nobody was asked who he is, but whose it is is known. */

static ngx_int_t
ngx_http_sandbox_call_owner(ngx_http_sandbox_call_t *call,
    const u_char *payload)
{
    size_t                   i, len;
    ngx_str_t               *name;
    sbx_f_owner_t            owner;
    ngx_http_sandbox_ctx_t  *ctx;

    ctx = ngx_http_sandbox_ctx(call->request);
    ngx_memcpy(&owner, payload, sizeof(sbx_f_owner_t));

    for (i = 0; i < 2; i++) {
        name = (i == 0) ? &ctx->tenant : &ctx->user;
        len = ngx_strnlen((u_char *) (i == 0 ? owner.tenant : owner.user),
                          SBX_NAME_MAX);

        if (name->len != 0 || len == 0) {
            continue;
        }

        name->data = ngx_pnalloc(call->request->pool, len);

        if (name->data == NULL) {
            return NGX_ABORT;
        }

        ngx_memcpy(name->data, i == 0 ? owner.tenant : owner.user, len);
        name->len = len;
    }

    return NGX_OK;
}


/* NULL for a frame that cannot be. */

static const ngx_http_sandbox_shape_t *
ngx_http_sandbox_call_shape(ngx_http_sandbox_call_t *call,
    const sbx_frame_t *frame, const u_char *payload)
{
    const ngx_http_sandbox_shape_t  *shape;

    for (shape = ngx_http_sandbox_shapes; shape->type != 0; shape++) {
        if (shape->type == frame->type) {
            break;
        }
    }

    if (shape->type == 0 || frame->length < shape->min
        || frame->length > shape->max
        || (shape->descriptor && call->brings != frame->type))
    {
        return NULL;
    }

    if (shape->check != NULL
        && shape->check(call, payload, frame->length) != NGX_OK)
    {
        return NULL;
    }

    return shape;
}


static ngx_int_t
ngx_http_sandbox_call_check_entry(ngx_http_sandbox_call_t *call,
    const u_char *payload, size_t len)
{
    const char     *path, *owner, *group, *target;
    sbx_f_entry_t   entry;

    if (sbx_wire_check_entry(payload, len, &entry, &path, &owner, &group,
                             &target)
        != 0)
    {
        return NGX_ERROR;
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_sandbox_call_check_change(ngx_http_sandbox_call_t *call,
    const u_char *payload, size_t len)
{
    const char      *path;
    sbx_f_change_t   change;

    return sbx_wire_check_change(payload, len, &change, &path) == 0
           ? NGX_OK : NGX_ERROR;
}


static ngx_int_t
ngx_http_sandbox_call_check_match(ngx_http_sandbox_call_t *call,
    const u_char *payload, size_t len)
{
    const char     *path, *text;
    sbx_f_match_t   match;

    return sbx_wire_check_match(payload, len, &match, &path, &text) == 0
           ? NGX_OK : NGX_ERROR;
}


static ngx_int_t
ngx_http_sandbox_call_check_state(ngx_http_sandbox_call_t *call,
    const u_char *payload, size_t len)
{
    const char     *cwd, *tag, *args;
    sbx_f_state_t   state;

    if (sbx_wire_check_state(payload, len, &state, &cwd, &tag, &args) != 0) {
        return NGX_ERROR;
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_sandbox_call_check_line(ngx_http_sandbox_call_t *call,
    const u_char *payload, size_t len)
{
    const char    *message, *fields;
    sbx_f_line_t   line;

    return (sbx_wire_check_line(payload, len, &line, &message, &fields) == 0)
           ? NGX_OK : NGX_ERROR;
}


static ngx_int_t
ngx_http_sandbox_call_check_context(ngx_http_sandbox_call_t *call,
    const u_char *payload, size_t len)
{
    const char       *id, *language, *cwd;
    sbx_f_context_t   context;

    if (sbx_wire_check_context(payload, len, &context, &id, &language, &cwd)
        != 0)
    {
        return NGX_ERROR;
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_sandbox_call_check_field(ngx_http_sandbox_call_t *call,
    const u_char *payload, size_t len)
{
    const char     *name;
    sbx_f_field_t   field;

    return sbx_wire_check_field(payload, len, &field, &name) == 0
           ? NGX_OK : NGX_ERROR;
}


/*
 * The broker's, where it was asked for, and before anything else: a session
 * has no say in whose it is.
 */

static ngx_int_t
ngx_http_sandbox_call_check_owner(ngx_http_sandbox_call_t *call,
    const u_char *payload, size_t len)
{
    sbx_f_owner_t  owner;

    ngx_memcpy(&owner, payload, sizeof(sbx_f_owner_t));

    return (call->header.flags & SBX_CALL_OWNER) && !call->answered
           && ngx_http_sandbox_call_name(owner.tenant, sizeof(owner.tenant))
           && ngx_http_sandbox_call_name(owner.user, sizeof(owner.user))
           ? NGX_OK : NGX_ERROR;
}


/* Its id goes into answers and further calls as it is. */

static ngx_int_t
ngx_http_sandbox_call_check_session(ngx_http_sandbox_call_t *call,
    const u_char *payload, size_t len)
{
    sbx_f_session_t  session;

    ngx_memcpy(&session, payload, sizeof(sbx_f_session_t));

    return sbx_session_id_ok(session.id, ngx_strnlen((u_char *) session.id,
                                                     sizeof(session.id)))
           && ngx_http_sandbox_call_name(session.tenant,
                                         sizeof(session.tenant))
           && ngx_http_sandbox_call_name(session.user, sizeof(session.user))
           ? NGX_OK : NGX_ERROR;
}


static ngx_uint_t
ngx_http_sandbox_call_name(const char *name, size_t size)
{
    return sbx_name_ok(name, ngx_strnlen((u_char *) name, size));
}


/*
 * Anything but a regular file could hold the worker up, and so could those of
 * the kernel's own file systems and of a process that serves one.
 */

static ngx_int_t
ngx_http_sandbox_call_check_opened(ngx_http_sandbox_call_t *call,
    const u_char *payload, size_t len)
{
    int              flags;
    ngx_uint_t       i;
    struct statfs    fs;
    ngx_file_info_t  info;

    if (call->passed == NGX_INVALID_FILE
        || ngx_http_sandbox_call_check_entry(call, payload, len) != NGX_OK)
    {
        return NGX_ERROR;
    }

    flags = fcntl(call->passed, F_GETFL);

    if (flags == -1 || (flags & O_ACCMODE) != O_RDONLY || (flags & O_PATH)) {
        return NGX_ERROR;
    }

    if (ngx_fd_info(call->passed, &info) == NGX_FILE_ERROR
        || !ngx_is_file(&info) || fstatfs(call->passed, &fs) == -1)
    {
        return NGX_ERROR;
    }

    for (i = 0; ngx_http_sandbox_no_files[i] != 0; i++) {
        if ((uint32_t) fs.f_type == ngx_http_sandbox_no_files[i]) {
            return NGX_ERROR;
        }
    }

    return NGX_OK;
}


void
ngx_http_sandbox_call_resume(ngx_http_sandbox_call_t *call)
{
    if (call->closed || !call->stopped) {
        return;
    }

    call->stopped = 0;

    ngx_http_sandbox_call_arm(call);
    ngx_post_event(call->connection->read, &ngx_posted_events);
}


static u_char *
ngx_http_sandbox_call_buffer(ngx_http_sandbox_call_t *call)
{
    u_char  *p;

    if (ngx_http_sandbox_spares != 0) {
        p = ngx_http_sandbox_spare[--ngx_http_sandbox_spares];

    } else {
        p = ngx_alloc(NGX_HTTP_SANDBOX_CALL_BUFFER,
                      call->request->connection->log);
    }

    if (p != NULL) {
        sbx_wire_init(&call->wire, p, NGX_HTTP_SANDBOX_CALL_BUFFER);
    }

    return p;
}


static void
ngx_http_sandbox_call_spare(u_char *p)
{
    if (ngx_http_sandbox_spares < NGX_HTTP_SANDBOX_CALL_SPARE) {
        ngx_http_sandbox_spare[ngx_http_sandbox_spares++] = p;
        return;
    }

    ngx_free(p);
}


void
ngx_http_sandbox_call_release(ngx_http_sandbox_call_t *call)
{
    if (call->wire.buf == NULL || call->dead != NULL) {
        return;
    }

    ngx_http_sandbox_call_spare(call->wire.buf);
    ngx_memzero(&call->wire, sizeof(sbx_wire_t));
}


void
ngx_http_sandbox_call_free_spares(void)
{
    while (ngx_http_sandbox_spares != 0) {
        ngx_free(ngx_http_sandbox_spare[--ngx_http_sandbox_spares]);
    }
}
