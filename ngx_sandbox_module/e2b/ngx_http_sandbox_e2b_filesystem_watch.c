/*
 * Watching directories, both ways: as a stream, and as a watcher that is asked
 * again and again.
 *
 *   WATCH -> READY, CHANGE, ENTRY ...        WatchDir
 *   WATCHER -> END; EVENTS -> CHANGE, ENTRY ..., END; UNWATCH -> END
 *
 * An entry follows the change that it is of, at once or never.  So a change
 * that may have one waits for the next frame, or for a moment.
 *
 * A watcher is known by its number in its session; the id that clients have
 * also tells how long its directory's path is and whether entries are wanted,
 * which nobody else needs to remember.
 */

#include "ngx_http_sandbox_e2b_files.h"


#define NGX_HTTP_SANDBOX_E2B_WATCH_WAIT   20        /* ms, for an entry */


typedef struct {
    ngx_http_sandbox_stream_t        *stream;
    ngx_str_t                         path;
    sbx_f_file_t                      file;
    ngx_http_sandbox_e2b_fs_body_t    body;

    /* a change that may have an entry */
    ngx_event_t                       wait;
    u_char                           *name;         /* SBX_FRAME_MAX of it */
    size_t                            name_len;
    uint32_t                          change;
    unsigned                          pending:1;
} ngx_http_sandbox_e2b_watch_t;


typedef struct {
    ngx_http_sandbox_json_t           json;
    sbx_f_file_t                      file;
    ngx_http_sandbox_e2b_fs_body_t    body;
    size_t                            root_len;
    ngx_uint_t                        entries;
    ngx_uint_t                        count;
    ngx_uint_t                        open;         /* an event is */
    ngx_uint_t                        lost;
    ngx_str_t                         path;
} ngx_http_sandbox_e2b_watcher_t;


static ngx_int_t ngx_http_sandbox_e2b_watch_frame(
    ngx_http_sandbox_call_t *call, const sbx_frame_t *frame,
    const u_char *payload, ngx_fd_t fd);
static ngx_int_t ngx_http_sandbox_e2b_watch_ready(
    ngx_http_sandbox_call_t *call);
static ngx_int_t ngx_http_sandbox_e2b_watch_change(
    ngx_http_sandbox_e2b_watch_t *watch, const u_char *payload, size_t len);
static ngx_int_t ngx_http_sandbox_e2b_watch_send(
    ngx_http_sandbox_e2b_watch_t *watch, const ngx_str_t *name,
    uint32_t change, const u_char *entry, size_t len);
static ngx_int_t ngx_http_sandbox_e2b_watch_flush(
    ngx_http_sandbox_e2b_watch_t *watch, const u_char *entry, size_t len);
static void ngx_http_sandbox_e2b_watch_waited(ngx_event_t *ev);
static void ngx_http_sandbox_e2b_watch_cleanup(void *data);

static ngx_http_sandbox_e2b_watcher_t *ngx_http_sandbox_e2b_watcher_begin(
    ngx_http_request_t *r, sbx_file_verb_t verb, ngx_int_t *rc);
static ngx_int_t ngx_http_sandbox_e2b_watcher_id(
    ngx_http_sandbox_e2b_watcher_t *watcher);
static ngx_int_t ngx_http_sandbox_e2b_watcher_none(ngx_http_request_t *r,
    const ngx_http_sandbox_e2b_watcher_t *watcher);
static ngx_int_t ngx_http_sandbox_e2b_watcher_call(ngx_http_request_t *r,
    ngx_http_sandbox_e2b_watcher_t *watcher);
static ngx_int_t ngx_http_sandbox_e2b_watcher_frame(
    ngx_http_sandbox_call_t *call, const sbx_frame_t *frame,
    const u_char *payload, ngx_fd_t fd);
static ngx_int_t ngx_http_sandbox_e2b_watcher_event(
    ngx_http_sandbox_e2b_watcher_t *watcher, const sbx_frame_t *frame,
    const u_char *payload);
static ngx_int_t ngx_http_sandbox_e2b_watcher_end(
    ngx_http_sandbox_call_t *call, const sbx_f_end_t *end);


/* Of what is there, one may be told what it is. */

static ngx_uint_t
ngx_http_sandbox_e2b_has_entry(uint32_t change)
{
    return change == SBX_CHANGE_CREATE || change == SBX_CHANGE_WRITE
           || change == SBX_CHANGE_CHMOD;
}


/* ---- as a stream -------------------------------------------------------- */


ngx_int_t
ngx_http_sandbox_e2b_fs_watch(ngx_http_request_t *r)
{
    uint64_t                       ms;
    sbx_error_t                    e;
    ngx_pool_cleanup_t            *cln;
    ngx_http_sandbox_call_t       *call;
    ngx_http_sandbox_e2b_watch_t  *watch;

    watch = ngx_pcalloc(r->pool, sizeof(ngx_http_sandbox_e2b_watch_t));
    cln = ngx_pool_cleanup_add(r->pool, 0);

    if (watch == NULL || cln == NULL) {
        return ngx_http_sandbox_problem(r, NGX_HTTP_SANDBOX_INTERNAL, NULL);
    }

    watch->file.verb = SBX_FILE_WATCH;
    watch->wait.handler = ngx_http_sandbox_e2b_watch_waited;
    watch->wait.data = watch;
    watch->wait.log = r->connection->log;

    cln->handler = ngx_http_sandbox_e2b_watch_cleanup;
    cln->data = watch;

    if (ngx_http_sandbox_e2b_fs_request(r, &watch->body, &watch->file,
                                        &watch->path, &e)
        != 0
        || ngx_http_sandbox_e2b_timeout(r, &ms, &e) != 0)
    {
        return ngx_http_sandbox_problem_core(r, &e);
    }

    if (watch->body.recursive) {
        watch->file.flags |= SBX_FILE_F_RECURSIVE;
    }

    watch->stream = ngx_http_sandbox_e2b_stream(r, "{\"keepalive\":{}}", ms);

    if (watch->stream == NULL) {
        return ngx_http_sandbox_problem(r, NGX_HTTP_SANDBOX_INTERNAL, NULL);
    }

    call = ngx_http_sandbox_e2b_file_call(r, &watch->file, &watch->path, NULL,
                                         watch);

    if (call != NULL) {
        call->frame = ngx_http_sandbox_e2b_watch_frame;
        watch->stream->call = call;
    }

    return ngx_http_sandbox_op_start(r, call);
}


static ngx_int_t
ngx_http_sandbox_e2b_watch_frame(ngx_http_sandbox_call_t *call,
    const sbx_frame_t *frame, const u_char *payload, ngx_fd_t fd)
{
    ngx_int_t                      rc;
    ngx_http_request_t            *r;
    ngx_http_sandbox_e2b_watch_t  *watch;

    r = call->request;
    watch = call->data;

    if (frame->type == SBX_F_ERROR) {
        return ngx_http_sandbox_e2b_fs_failed(call, &watch->path, payload);
    }

    rc = ngx_http_sandbox_op_frame(call, frame, payload, fd);

    if (rc != NGX_DECLINED) {
        return rc;
    }

    if (frame->type == SBX_F_READY && !r->header_sent) {
        return ngx_http_sandbox_op_sent(call,
                                    ngx_http_sandbox_e2b_watch_ready(call));
    }

    if (!r->header_sent) {
        return ngx_http_sandbox_op_broken(call, "a wrong frame for a watch");
    }

    switch (frame->type) {

    case SBX_F_CHANGE:
        rc = ngx_http_sandbox_e2b_watch_change(watch, payload,
                                               frame->length);

        if (rc == NGX_DONE) {

            /* half of what happened must not look like all of it */

            return ngx_http_sandbox_op_finish(call,
                       ngx_http_sandbox_e2b_error(r, "data_loss",
                                   "more happened than could be told: watch "
                                   "again, and list what is there"));
        }

        break;

    case SBX_F_ENTRY:
        rc = ngx_http_sandbox_e2b_watch_flush(watch, payload, frame->length);
        break;

    case SBX_F_END:

        if (ngx_http_sandbox_e2b_watch_flush(watch, NULL, 0) == NGX_ERROR) {
            return ngx_http_sandbox_op_finish(call, NGX_ERROR);
        }

        return ngx_http_sandbox_op_finish(call,
                              ngx_http_sandbox_stream_close(watch->stream));

    default:
        return ngx_http_sandbox_op_broken(call, "a wrong frame for a watch");
    }

    return ngx_http_sandbox_op_sent(call, rc);
}


static ngx_int_t
ngx_http_sandbox_e2b_watch_ready(ngx_http_sandbox_call_t *call)
{
    ngx_int_t                      rc;
    ngx_http_sandbox_e2b_watch_t  *watch;

    watch = call->data;

    /* nothing may happen for hours */

    call->timeout = 0;

    rc = ngx_http_sandbox_stream_open(watch->stream);

    if (rc != NGX_OK) {
        return rc;
    }

    ngx_http_sandbox_json_raw(ngx_http_sandbox_stream_event(watch->stream,
                                                            NULL),
                              "{\"start\":{}}");

    return ngx_http_sandbox_stream_send(watch->stream);
}


/* As stream_send(); NGX_DONE: some were lost. */

static ngx_int_t
ngx_http_sandbox_e2b_watch_change(ngx_http_sandbox_e2b_watch_t *watch,
    const u_char *payload, size_t len)
{
    ngx_int_t        rc;
    ngx_str_t        name;
    const char      *path;
    sbx_f_change_t   change;

    rc = ngx_http_sandbox_e2b_watch_flush(watch, NULL, 0);

    if (rc == NGX_ERROR
        || sbx_wire_check_change(payload, len, &change, &path) != 0)
    {
        return NGX_ERROR;
    }

    if (change.change >= SBX_CHANGE_OVERFLOW) {
        return NGX_DONE;
    }

    ngx_http_sandbox_e2b_below(path, change.path_len, watch->path.len, &name);

    if (!watch->body.entries
        || !ngx_http_sandbox_e2b_has_entry(change.change))
    {
        return ngx_http_sandbox_e2b_watch_send(watch, &name, change.change,
                                               NULL, 0);
    }

    if (watch->name == NULL) {
        watch->name = ngx_palloc(watch->stream->request->pool,
                                 SBX_FRAME_MAX);

        if (watch->name == NULL) {
            return NGX_ERROR;
        }
    }

    ngx_memcpy(watch->name, name.data, name.len);
    watch->name_len = name.len;
    watch->change = change.change;
    watch->pending = 1;

    ngx_add_timer(&watch->wait, NGX_HTTP_SANDBOX_E2B_WATCH_WAIT);

    return rc;
}


static ngx_int_t
ngx_http_sandbox_e2b_watch_send(ngx_http_sandbox_e2b_watch_t *watch,
    const ngx_str_t *name, uint32_t change, const u_char *entry, size_t len)
{
    ngx_http_sandbox_json_t  *j;

    j = ngx_http_sandbox_stream_event(watch->stream, NULL);

    ngx_http_sandbox_json_raw(j, "{\"filesystem\":");
    ngx_http_sandbox_e2b_event(j, name->data, name->len, change);

    if (entry != NULL) {
        ngx_http_sandbox_json_raw(j, ",\"entry\":");

        if (ngx_http_sandbox_e2b_entry(j, entry, len) != NGX_OK) {
            return NGX_ERROR;
        }
    }

    ngx_http_sandbox_json_raw(j, "}}");

    return ngx_http_sandbox_stream_send(watch->stream);
}


/* The change that waits, if one does. */

static ngx_int_t
ngx_http_sandbox_e2b_watch_flush(ngx_http_sandbox_e2b_watch_t *watch,
    const u_char *entry, size_t len)
{
    ngx_str_t  name;

    if (!watch->pending) {
        return NGX_OK;
    }

    watch->pending = 0;

    if (watch->wait.timer_set) {
        ngx_del_timer(&watch->wait);
    }

    name.data = watch->name;
    name.len = watch->name_len;

    return ngx_http_sandbox_e2b_watch_send(watch, &name, watch->change, entry,
                                           len);
}


static void
ngx_http_sandbox_e2b_watch_waited(ngx_event_t *ev)
{
    ngx_http_sandbox_call_t       *call;
    ngx_http_sandbox_e2b_watch_t  *watch;

    watch = ev->data;
    call = watch->stream->call;

    if (call->closed) {
        return;
    }

    switch (ngx_http_sandbox_e2b_watch_flush(watch, NULL, 0)) {

    case NGX_OK:
        return;

    case NGX_AGAIN:

        /* what comes next waits for the client */

        call->stopped = 1;
        return;

    default:
        (void) ngx_http_sandbox_op_finish(call, NGX_ERROR);
    }
}


static void
ngx_http_sandbox_e2b_watch_cleanup(void *data)
{
    ngx_http_sandbox_e2b_watch_t  *watch = data;

    if (watch->wait.timer_set) {
        ngx_del_timer(&watch->wait);
    }
}


/* ---- as a watcher ------------------------------------------------------- */


ngx_int_t
ngx_http_sandbox_e2b_fs_watcher(ngx_http_request_t *r)
{
    ngx_int_t                        rc;
    ngx_http_sandbox_e2b_watcher_t  *watcher;

    watcher = ngx_http_sandbox_e2b_watcher_begin(r, SBX_FILE_WATCHER, &rc);

    if (watcher == NULL) {
        return rc;
    }

    if (watcher->body.recursive) {
        watcher->file.flags |= SBX_FILE_F_RECURSIVE;
    }

    return ngx_http_sandbox_e2b_watcher_call(r, watcher);
}


ngx_int_t
ngx_http_sandbox_e2b_fs_events(ngx_http_request_t *r)
{
    ngx_int_t                        rc;
    ngx_http_sandbox_e2b_watcher_t  *watcher;

    watcher = ngx_http_sandbox_e2b_watcher_begin(r, SBX_FILE_EVENTS, &rc);

    if (watcher == NULL) {
        return rc;
    }

    if (ngx_http_sandbox_e2b_watcher_id(watcher) != NGX_OK) {
        return ngx_http_sandbox_e2b_watcher_none(r, watcher);
    }

    ngx_http_sandbox_json_raw(&watcher->json, "{\"events\":[");

    return ngx_http_sandbox_e2b_watcher_call(r, watcher);
}


ngx_int_t
ngx_http_sandbox_e2b_fs_unwatch(ngx_http_request_t *r)
{
    ngx_int_t                        rc;
    ngx_http_sandbox_e2b_watcher_t  *watcher;

    watcher = ngx_http_sandbox_e2b_watcher_begin(r, SBX_FILE_UNWATCH, &rc);

    if (watcher == NULL) {
        return rc;
    }

    if (ngx_http_sandbox_e2b_watcher_id(watcher) != NGX_OK) {
        return ngx_http_sandbox_e2b_watcher_none(r, watcher);
    }

    return ngx_http_sandbox_e2b_watcher_call(r, watcher);
}


/* NULL: *rc is what the handler returns. */

static ngx_http_sandbox_e2b_watcher_t *
ngx_http_sandbox_e2b_watcher_begin(ngx_http_request_t *r,
    sbx_file_verb_t verb, ngx_int_t *rc)
{
    sbx_error_t                      e;
    ngx_http_sandbox_e2b_watcher_t  *watcher;

    watcher = ngx_pcalloc(r->pool, sizeof(ngx_http_sandbox_e2b_watcher_t));

    if (watcher == NULL) {
        *rc = ngx_http_sandbox_problem(r, NGX_HTTP_SANDBOX_INTERNAL, NULL);
        return NULL;
    }

    watcher->file.verb = verb;
    ngx_http_sandbox_json_init(&watcher->json, r->pool);

    if (ngx_http_sandbox_e2b_fs_request(r, &watcher->body, &watcher->file,
                                        &watcher->path, &e)
        != 0)
    {
        *rc = ngx_http_sandbox_problem_core(r, &e);
        return NULL;
    }

    return watcher;
}


/* "w<number>-<length>-<0 or 1>", as CreateWatcher tells it. */

static ngx_int_t
ngx_http_sandbox_e2b_watcher_id(ngx_http_sandbox_e2b_watcher_t *watcher)
{
    u_char     *p, *dash, *end;
    ngx_int_t   number, len;

    p = (u_char *) watcher->body.watcher.data;

    if (p == NULL || watcher->body.watcher.len < 2 || *p++ != 'w') {
        return NGX_ERROR;
    }

    end = p + watcher->body.watcher.len - 1;
    dash = ngx_strlchr(p, end, '-');

    if (dash == NULL) {
        return NGX_ERROR;
    }

    number = ngx_atoi(p, dash - p);
    p = dash + 1;
    dash = ngx_strlchr(p, end, '-');

    if (dash == NULL || end - dash != 2) {
        return NGX_ERROR;
    }

    len = ngx_atoi(p, dash - p);

    if (number < 0 || len < 0) {
        return NGX_ERROR;
    }

    watcher->file.flags = 0;
    watcher->file.path_len = 0;
    watcher->file.size = (uint64_t) number;
    watcher->root_len = (size_t) len;
    watcher->entries = (dash[1] == '1');

    return NGX_OK;
}


static ngx_int_t
ngx_http_sandbox_e2b_watcher_none(ngx_http_request_t *r,
    const ngx_http_sandbox_e2b_watcher_t *watcher)
{
    return ngx_http_sandbox_e2b_error(r, "not_found",
                                      "watcher with id %*s not found",
                                      ngx_min(watcher->body.watcher.len, 64),
                                      watcher->body.watcher.data);
}


static ngx_int_t
ngx_http_sandbox_e2b_watcher_call(ngx_http_request_t *r,
    ngx_http_sandbox_e2b_watcher_t *watcher)
{
    ngx_http_sandbox_call_t  *call;

    call = ngx_http_sandbox_e2b_file_call(r, &watcher->file, &watcher->path,
                                         NULL, watcher);

    if (call != NULL) {
        call->frame = ngx_http_sandbox_e2b_watcher_frame;
    }

    return ngx_http_sandbox_op_start(r, call);
}


static ngx_int_t
ngx_http_sandbox_e2b_watcher_frame(ngx_http_sandbox_call_t *call,
    const sbx_frame_t *frame, const u_char *payload, ngx_fd_t fd)
{
    ngx_int_t                        rc;
    sbx_f_end_t                      end;
    sbx_f_error_t                    error;
    ngx_http_sandbox_e2b_watcher_t  *watcher;

    watcher = call->data;

    if (frame->type == SBX_F_ERROR) {
        ngx_memcpy(&error, payload, sizeof(sbx_f_error_t));

        if (error.code == SBX_E_FILE
            && watcher->file.verb != SBX_FILE_WATCHER)
        {
            return ngx_http_sandbox_op_finish(call,
                       ngx_http_sandbox_e2b_watcher_none(call->request,
                                                         watcher));
        }

        return ngx_http_sandbox_e2b_fs_failed(call, &watcher->path, payload);
    }

    rc = ngx_http_sandbox_op_frame(call, frame, payload, fd);

    if (rc != NGX_DECLINED) {
        return rc;
    }

    if (frame->type == SBX_F_END) {
        ngx_memcpy(&end, payload, sizeof(sbx_f_end_t));
        return ngx_http_sandbox_e2b_watcher_end(call, &end);
    }

    if (ngx_http_sandbox_op_full(call->request, watcher->json.size,
                                 NGX_HTTP_SANDBOX_OP_LIST_MAX))
    {
        watcher->lost = 1;
    }

    if (watcher->file.verb != SBX_FILE_EVENTS
        || ngx_http_sandbox_e2b_watcher_event(watcher, frame, payload)
           != NGX_OK)
    {
        return ngx_http_sandbox_op_broken(call,
                                          "a wrong frame for a watcher");
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_sandbox_e2b_watcher_event(ngx_http_sandbox_e2b_watcher_t *watcher,
    const sbx_frame_t *frame, const u_char *payload)
{
    ngx_int_t                 rc;
    ngx_str_t                 name;
    const char               *path;
    sbx_f_change_t            change;
    ngx_http_sandbox_json_t  *j;

    j = &watcher->json;

    if (watcher->lost) {
        return NGX_OK;
    }

    if (frame->type == SBX_F_ENTRY) {

        if (!watcher->entries || !watcher->open) {
            return NGX_OK;
        }

        ngx_http_sandbox_json_raw(j, ",\"entry\":");
        rc = ngx_http_sandbox_e2b_entry(j, payload, frame->length);
        ngx_http_sandbox_json_raw(j, "}");
        watcher->open = 0;

        return rc;
    }

    if (frame->type != SBX_F_CHANGE
        || sbx_wire_check_change(payload, frame->length, &change, &path) != 0)
    {
        return NGX_ERROR;
    }

    ngx_http_sandbox_json_raw(j, watcher->open ? "}" : "");
    watcher->open = 0;

    if (change.change >= SBX_CHANGE_OVERFLOW) {
        watcher->lost = 1;
        return NGX_OK;
    }

    ngx_http_sandbox_e2b_below(path, change.path_len, watcher->root_len,
                               &name);
    ngx_http_sandbox_json_raw(j, watcher->count++ ? "," : "");
    ngx_http_sandbox_e2b_event(j, name.data, name.len, change.change);
    watcher->open = 1;

    return NGX_OK;
}


static ngx_int_t
ngx_http_sandbox_e2b_watcher_end(ngx_http_sandbox_call_t *call,
    const sbx_f_end_t *end)
{
    u_char                           text[64], *p;
    ngx_int_t                        rc;
    ngx_http_request_t              *r;
    ngx_http_sandbox_json_t         *j;
    ngx_http_sandbox_e2b_watcher_t  *watcher;

    r = call->request;
    watcher = call->data;
    j = &watcher->json;

    switch (watcher->file.verb) {

    case SBX_FILE_WATCHER:
        p = ngx_sprintf(text, "w%uL-%uz-%ud", end->count, watcher->path.len,
                        watcher->body.entries);

        ngx_http_sandbox_json_raw(j, "{\"watcherId\":");
        ngx_http_sandbox_json_string(j, text, p - text);
        ngx_http_sandbox_json_raw(j, "}");

        rc = ngx_http_sandbox_e2b_reply(r, j);
        break;

    case SBX_FILE_EVENTS:

        if (watcher->lost) {
            rc = ngx_http_sandbox_e2b_error(r, "data_loss",
                                   "more happened than could be told: list "
                                   "what is there");
            break;
        }

        ngx_http_sandbox_json_raw(j, watcher->open ? "}]}" : "]}");

        rc = ngx_http_sandbox_e2b_reply(r, j);
        break;

    default:
        rc = ngx_http_sandbox_e2b_empty(r);
        break;
    }

    return ngx_http_sandbox_op_finish(call, rc);
}
