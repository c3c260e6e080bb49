/*
 * What the files of the module share.  Nothing outside ngx_sandbox_module/
 * includes it.
 */

#ifndef _NGX_HTTP_SANDBOX_H_INCLUDED_
#define _NGX_HTTP_SANDBOX_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "sandbox_client.h"
#include "sandbox_limits.h"
#include "sandbox_wire.h"
#include "wire.h"
#include "json.h"


#define NGX_HTTP_SANDBOX_VERSION   "0.1.0"


typedef enum {
    NGX_HTTP_SANDBOX_API_OFF = 0,
    NGX_HTTP_SANDBOX_API_V1,
    NGX_HTTP_SANDBOX_API_ADMIN,
    NGX_HTTP_SANDBOX_API_METRICS,
    NGX_HTTP_SANDBOX_API_STATUS,
    NGX_HTTP_SANDBOX_API_E2B
} ngx_http_sandbox_api_e;


typedef struct ngx_http_sandbox_keys_s  ngx_http_sandbox_keys_t;
typedef struct ngx_http_sandbox_packages_s  ngx_http_sandbox_packages_t;

/* What the operator grants: rows of sandbox_network.h, of a template or of
 * all that have none of their own. */
typedef struct {
    ngx_array_t                  *rows;       /* of bytes; NULL: none */
    ngx_uint_t                    private_set;
} ngx_http_sandbox_egress_t;

typedef struct {
    ngx_str_t                     state_dir;
    ngx_str_t                     template_dir;
    ngx_str_t                     helper_dir;
    ngx_str_t                     cgroup;
    ngx_uint_t                    storage;    /* sbx_storage_kind_t */
    ngx_str_t                     storage_dir;
    uint64_t                      uid_first;
    uint64_t                      uid_count;
    ngx_flag_t                    require_isolation;
    u_char                       *binds;      /* as in sbx_config_t */
    size_t                        binds_size;
    ngx_http_sandbox_egress_t     egress;
    ngx_array_t                  *egress_resolvers;   /* rows, or NULL */
    ngx_str_t                     egress_ca;
    sbx_limits_t                  def;        /* settled after init */
    sbx_limits_t                  max;
    sbx_quota_config_t           *quotas;     /* as in sbx_config_t */
    ngx_uint_t                    nobody;     /* a location asks not who */
    ngx_uint_t                    anybody;    /* one takes any key */
    sbx_config_t                 *config;     /* what the broker is told */
    ngx_fd_t                      control;    /* to the broker, or -1 */
    ngx_uint_t                    used;       /* a location has an API */
    ngx_int_t                     request_id; /* index of $request_id */
    ngx_open_file_t              *audit;      /* NULL: off */
    ngx_uint_t                    audit_set;
    ngx_uint_t                    audit_hash;
    ngx_shm_zone_t               *metrics;
    ngx_array_t                  *templates;  /* ..._template_t, or NULL */
    ngx_array_t                  *pools;      /* ..._pool_t, or NULL */
    ngx_http_sandbox_packages_t  *packages;   /* NULL: nothing is said */
    u_char                       *token_key;  /* SBX_TOKEN_KEY bytes, NULL
                                                 where no broker was reached */
} ngx_http_sandbox_main_conf_t;


typedef struct {
    ngx_uint_t                    api;        /* ngx_http_sandbox_api_e */
    size_t                        max_json;
    off_t                         max_upload;
    ngx_http_complex_value_t     *tenant;     /* NULL: the body says */
    ngx_http_complex_value_t     *user;

    /* ports */
    ngx_str_t                     port_host;  /* the domain of their names */
    ngx_msec_t                    port_timeout;
    ngx_http_upstream_conf_t      port_upstream;

    ngx_str_t                     e2b_domain; /* of the hosts of sandboxes */
    ngx_http_sandbox_keys_t      *keys;       /* NULL: none are asked for */
} ngx_http_sandbox_loc_conf_t;


/*
 * ---- errors of the HTTP contract ---------------------------------------
 */

typedef enum {
    NGX_HTTP_SANDBOX_UNAUTHENTICATED,          /* E1001 */
    NGX_HTTP_SANDBOX_FORBIDDEN,                /* E1002 */
    NGX_HTTP_SANDBOX_TEMPLATE_NOT_FOUND,       /* E2001 */
    NGX_HTTP_SANDBOX_INVALID_MANIFEST,         /* E2002 */
    NGX_HTTP_SANDBOX_QUOTA_EXCEEDED,           /* E2003 */
    NGX_HTTP_SANDBOX_CAPACITY_EXHAUSTED,       /* E2004 */
    NGX_HTTP_SANDBOX_SESSION_NOT_FOUND,        /* E2009 */
    NGX_HTTP_SANDBOX_SESSION_PAUSED,           /* E2010 */
    NGX_HTTP_SANDBOX_CONFLICT,                 /* E2011 */
    NGX_HTTP_SANDBOX_INVALID_REQUEST,          /* E3001 */
    NGX_HTTP_SANDBOX_PROCESS_NOT_FOUND,        /* E3002 */
    NGX_HTTP_SANDBOX_NETWORK_NOT_PERMITTED,    /* E3003 */
    NGX_HTTP_SANDBOX_CAPABILITY_NOT_SUPPORTED, /* E3004 */
    NGX_HTTP_SANDBOX_CONTEXT_NOT_FOUND,        /* E3005 */
    NGX_HTTP_SANDBOX_COMMAND_NOT_FOUND,        /* E3006 */
    NGX_HTTP_SANDBOX_INSTALL_FAILED,           /* E3007 */
    NGX_HTTP_SANDBOX_OFFSET_GONE,              /* E3008 */
    NGX_HTTP_SANDBOX_NOT_FOUND,                /* E3009 */
    NGX_HTTP_SANDBOX_METHOD_NOT_ALLOWED,       /* E3010 */
    NGX_HTTP_SANDBOX_UNSUPPORTED_MEDIA_TYPE,   /* E3011 */
    NGX_HTTP_SANDBOX_FILE_NOT_FOUND,           /* E4001 */
    NGX_HTTP_SANDBOX_INVALID_PATH,             /* E4002 */
    NGX_HTTP_SANDBOX_PATH_NOT_ALLOWED,         /* E4003 */
    NGX_HTTP_SANDBOX_WRONG_FILE_TYPE,          /* E4004 */
    NGX_HTTP_SANDBOX_PAYLOAD_TOO_LARGE,        /* E4005 */
    NGX_HTTP_SANDBOX_NO_SPACE,                 /* E4006 */
    NGX_HTTP_SANDBOX_ALREADY_EXISTS,           /* E4007 */
    NGX_HTTP_SANDBOX_PRECONDITION_FAILED,      /* E4008 */
    NGX_HTTP_SANDBOX_BROKER_UNAVAILABLE,       /* E5001 */
    NGX_HTTP_SANDBOX_INTERNAL,                 /* E5002 */
    NGX_HTTP_SANDBOX_NOT_IMPLEMENTED,          /* 501 */
    NGX_HTTP_SANDBOX_BAD_GATEWAY,              /* 502 of a port */
    NGX_HTTP_SANDBOX_GATEWAY_TIMEOUT           /* 504 of a port */
} ngx_http_sandbox_error_e;


/*
 * Sends application/problem+json and finalizes nothing: returns what the
 * caller gives to ngx_http_finalize_request().  detail_fmt is ngx_sprintf()'s
 * and may be NULL (the table's default).  The request's body is discarded
 * where it was not read.  After a header was sent it only returns NGX_ERROR.
 */
ngx_int_t ngx_http_sandbox_problem(ngx_http_request_t *r,
    ngx_http_sandbox_error_e error, const char *detail_fmt, ...);

/* The same from an error of the core (code mapped by table; for QUOTA the
 * scope, resource, limit; for SESSION ended and ended_at). */
ngx_int_t ngx_http_sandbox_problem_wire(ngx_http_request_t *r,
    const sbx_f_error_t *error);
ngx_int_t ngx_http_sandbox_problem_core(ngx_http_request_t *r,
    const sbx_error_t *error);

/*
 * A refusal, for the form that an API gives it: ctx->refuse takes the place
 * of the native form.  It is called after the header was sent, too, where a
 * stream may still have a last word, and returns what to finalize with.
 * Nothing of it outlives the call.
 */
typedef struct {
    ngx_http_sandbox_error_e      error;
    ngx_uint_t                    status;
    const char                   *code;         /* "E2009" */
    const char                   *word;         /* "session_not_found" */
    const char                   *title;
    ngx_str_t                     detail;       /* never empty, as is */
    ngx_str_t                     suggestion;   /* this */
    uint64_t                      retry_after;  /* seconds; 0: none */
    const sbx_f_error_t          *core;         /* or NULL; strings of it may
                                                   lack their NUL */
    struct ngx_http_sandbox_json_s
                                 *members;      /* ",\"name\":value" ... that
                                                   the native form has
                                                   besides; NULL: none */
} ngx_http_sandbox_refusal_t;

/* With members. */
ngx_int_t ngx_http_sandbox_problem_with(ngx_http_request_t *r,
    ngx_http_sandbox_error_e error, const ngx_str_t *detail,
    struct ngx_http_sandbox_json_s *members);

/* What a refusal does before its own answer: deals with the rest of the
 * body, and with Retry-After unless it is 0.  NGX_OK, or what to finalize
 * with. */
ngx_int_t ngx_http_sandbox_problem_prepare(ngx_http_request_t *r,
    uint64_t retry_after);

/* A stranger's text for a line of the log, which it must not end; size is
 * dst's, with the NUL. */
void ngx_http_sandbox_printable(u_char *dst, size_t size, const u_char *src,
    size_t len);


/*
 * ---- JSON out ----------------------------------------------------------
 *
 * Grows in the request's pool.  Commas and quotes of structure are the
 * caller's, by _raw; values are escaped here.  After a failed allocation
 * every call is a no-op and _send answers 500.
 */

typedef struct ngx_http_sandbox_json_s {
    ngx_pool_t                   *pool;
    ngx_chain_t                  *out;
    ngx_chain_t                 **last;
    ngx_buf_t                    *buf;
    off_t                         size;
    ngx_uint_t                    failed;
    ngx_uint_t                    ascii;      /* what is not is escaped; off */
    ngx_uint_t                    later;      /* has what is yet to be
                                                 written, and no size */
} ngx_http_sandbox_json_t;

void ngx_http_sandbox_json_init(ngx_http_sandbox_json_t *j, ngx_pool_t *pool);
void ngx_http_sandbox_json_raw(ngx_http_sandbox_json_t *j, const char *s);
void ngx_http_sandbox_json_raw_len(ngx_http_sandbox_json_t *j, const void *s,
    size_t len);
/* A quoted string; invalid UTF-8 becomes U+FFFD, one for each maximal
 * invalid part. */
void ngx_http_sandbox_json_string(ngx_http_sandbox_json_t *j, const void *s,
    size_t len);
/* The same without its quotes: a part of a string, of whole characters. */
void ngx_http_sandbox_json_chars(ngx_http_sandbox_json_t *j, const void *s,
    size_t len);
/* A value that is JSON already and has been checked; it comes on one line. */
void ngx_http_sandbox_json_value(ngx_http_sandbox_json_t *j,
    const void *text, size_t len);
/* What was written to another, but for its first bytes; or that itself, which
 * must not be written to after it, nor go before j does. */
void ngx_http_sandbox_json_copy(ngx_http_sandbox_json_t *j,
    const ngx_http_sandbox_json_t *from, size_t skip);
void ngx_http_sandbox_json_join(ngx_http_sandbox_json_t *j,
    ngx_http_sandbox_json_t *from);
/* As _copy(), but of what is long the text itself, which goes after j does. */
void ngx_http_sandbox_json_refer(ngx_http_sandbox_json_t *j,
    const ngx_http_sandbox_json_t *from, size_t skip);
void ngx_http_sandbox_json_cstring(ngx_http_sandbox_json_t *j, const char *s);
void ngx_http_sandbox_json_base64(ngx_http_sandbox_json_t *j, const void *s,
    size_t len);
void ngx_http_sandbox_json_int(ngx_http_sandbox_json_t *j, int64_t n);
void ngx_http_sandbox_json_bool(ngx_http_sandbox_json_t *j, ngx_uint_t b);
/* microseconds as seconds with up to six digits */
void ngx_http_sandbox_json_seconds(ngx_http_sandbox_json_t *j, uint64_t us);
/* unix milliseconds as a quoted RFC 3339 UTC time */
void ngx_http_sandbox_json_time(ngx_http_sandbox_json_t *j, int64_t ms);

/*
 * A quoted string, or base64 in quotes, that is written when what is before it
 * has been sent.  chain is of bytes in memory; all of it is to stay, or with
 * "free", which is so once for each, is given back to the request's pool as it
 * goes.  For _send() alone.
 */
void ngx_http_sandbox_json_later(ngx_http_sandbox_json_t *j,
    const ngx_chain_t *chain, size_t len, ngx_uint_t base64,
    ngx_uint_t free);
/* The base64 of a part, of whole groups of three bytes but for the last. */
void ngx_http_sandbox_json_base64_piece(ngx_http_sandbox_json_t *j,
    const void *s, size_t len);
/* A part of a string whose parts may end within a character: tail is what was
 * kept of the last one. */
typedef struct {
    u_char                        bytes[8];
    size_t                        len;
} ngx_http_sandbox_json_tail_t;

void ngx_http_sandbox_json_piece(ngx_http_sandbox_json_t *j,
    ngx_http_sandbox_json_tail_t *tail, const u_char *data, size_t len,
    ngx_uint_t last);

/*
 * Sends status and the text as application/json; for the finalizer.  What is
 * long goes in pieces, each when the client has taken the one before, and the
 * worker serves others in between: NGX_DONE, and the request is finalized
 * after the last.
 */
ngx_int_t ngx_http_sandbox_json_send(ngx_http_request_t *r,
    ngx_uint_t status, ngx_http_sandbox_json_t *j);

ngx_int_t ngx_http_sandbox_add_header(ngx_http_request_t *r, const char *key,
    ngx_str_t *value);


/*
 * ---- routes ------------------------------------------------------------
 */

typedef enum {
    NGX_HTTP_SANDBOX_BODY_NONE,   /* read and thrown away */
    NGX_HTTP_SANDBOX_BODY_JSON,   /* whole, up to sandbox_max_json, with the
                                     media type checked; ctx->body */
    NGX_HTTP_SANDBOX_BODY_STREAM, /* the handler reads it, unbuffered */
    NGX_HTTP_SANDBOX_BODY_RPC     /* as JSON; application/connect+json too */
} ngx_http_sandbox_body_e;

/* What a route asks its caller for, where an API has tokens of sessions. */
typedef enum {
    NGX_HTTP_SANDBOX_ACCESS_TOKEN = 0,
    NGX_HTTP_SANDBOX_ACCESS_ANY,  /* the session's id is enough, but a token
                                     that is there must be right */
    NGX_HTTP_SANDBOX_ACCESS_TRAFFIC,  /* a token, or that of ports */
    NGX_HTTP_SANDBOX_ACCESS_OWN   /* the handler looks by itself */
} ngx_http_sandbox_access_e;

typedef struct ngx_http_sandbox_route_s  ngx_http_sandbox_route_t;

struct ngx_http_sandbox_route_s {
    ngx_uint_t                    methods;      /* NGX_HTTP_GET | ... */
    const char                   *path;         /* "sessions/{id}/{path}" */
    ngx_http_sandbox_body_e       body;
    ngx_uint_t                    capability;   /* SBX_CAP_*, 0 none */
    const char                   *op;           /* $sandbox_op */
    /* Starts the work.  Runs once the body is there (JSON, NONE).  Returns
     * NGX_DONE when it goes on in events (the router has taken a reference:
     * the handler ends with ngx_http_finalize_request), else what to
     * finalize with.  That is so for STREAM too: what
     * ngx_http_read_client_request_body() takes besides is given back. */
    ngx_int_t                   (*handler)(ngx_http_request_t *r);
    ngx_uint_t                    access;       /* ngx_http_sandbox_access_e */
};

/* Defined in v1/: ends with path == NULL. */
extern ngx_http_sandbox_route_t  ngx_http_sandbox_v1_routes[];
extern ngx_http_sandbox_route_t  ngx_http_sandbox_admin_routes[];
extern ngx_http_sandbox_route_t  ngx_http_sandbox_metrics_routes[];
extern ngx_http_sandbox_route_t  ngx_http_sandbox_status_routes[];
/* and in e2b/ */
extern ngx_http_sandbox_route_t  ngx_http_sandbox_e2b_control_routes[];
extern ngx_http_sandbox_route_t  ngx_http_sandbox_e2b_envd_routes[];
extern ngx_http_sandbox_route_t  ngx_http_sandbox_e2b_code_routes[];


/* What a request's address has been matched with. */

typedef struct {
    ngx_str_t                     raw;        /* without a leading slash */
    ngx_str_t                     session;
    ngx_str_t                     item;
    ngx_str_t                     path;       /* still encoded */
    ngx_uint_t                    has_path;
    ngx_str_t                     rest;       /* and so it stays */
    u_char                       *base;       /* where the URI begins */
    ngx_uint_t                    allowed;    /* methods of its routes */
    ngx_http_sandbox_route_t     *route;
    ngx_http_sandbox_route_t     *routes;     /* that it is matched with */
    ngx_str_t                     bound;      /* the session that headers or
                                                 the host's name tell */
} ngx_http_sandbox_match_t;

/* The raw URI up to the query; NGX_OK, NGX_ERROR. */
ngx_int_t ngx_http_sandbox_raw_uri(ngx_http_request_t *r, ngx_str_t *uri);


/* How a piece of code ended. */

typedef enum {
    NGX_HTTP_SANDBOX_CODE_NONE,   /* none has begun */
    NGX_HTTP_SANDBOX_CODE_LOST,   /* nobody was there to be told, or to tell */
    NGX_HTTP_SANDBOX_CODE_OK,
    NGX_HTTP_SANDBOX_CODE_ERROR,
    NGX_HTTP_SANDBOX_CODE_TIMEOUT,
    NGX_HTTP_SANDBOX_CODE_CANCELLED,
    NGX_HTTP_SANDBOX_CODE_DIED    /* the interpreter */
} ngx_http_sandbox_code_e;


typedef struct {
    ngx_http_sandbox_route_t     *route;
    ngx_str_t                     session;      /* {id}, checked */
    ngx_str_t                     item;         /* {pid}, {port} ...: as it
                                                   is in the address */
    ngx_str_t                     path;         /* {path} or ?path= or
                                                   ?path_base64=, decoded */
    ngx_uint_t                    has_path;
    ngx_str_t                     rest;         /* {rest}, as it is, from its
                                                   slash on */
    ngx_str_t                     prefix;       /* of the URI, before it */
    ngx_str_t                     body;         /* JSON text */
    size_t                        body_room;    /* the router's */
    ngx_http_client_body_handler_pt  body_pump; /* ngx_http_sandbox_
                                                   body_stream()'s own */
    void                         *data;         /* the handler's own */
    struct ngx_http_sandbox_stream_s  *stream;  /* that is being sent */
    void                         *answer;       /* the same in pieces */
    ngx_int_t                   (*refuse)(ngx_http_request_t *r,
                                    const ngx_http_sandbox_refusal_t
                                        *refusal);
                                                /* NULL: the native form */

    ngx_str_t                     who;          /* of the admin API */
    unsigned                      tenant_bound:1;   /* by configuration */
    unsigned                      user_bound:1;
    unsigned                      created:1;    /* a session, by a run */

    /* of a port that the request is for */
    unsigned                      body_there:1; /* and may be taken */
    unsigned                      body_whole:1; /* and waits for its turn */
    unsigned                      by_name:1;    /* of a host of its own */
    unsigned                      port_auth:1;  /* Authorization is meant for
                                                   it, unless nginx took it */
    const char *const            *port_kept;    /* headers that stay, besides;
                                                   NULL: none */

    /* of calls, as in sbx_call_t */
    uint32_t                      call_flags;
    uint32_t                      needs;
    uint32_t                      bars;

    void                         *e2b;          /* ..._e2b_t; NULL: another
                                                   API */
    ngx_chain_t                  *blocks;       /* that closed calls leave to
                                                   those that follow */
    size_t                       *listed;       /* of _op_share(): a list */

    /* for variables; empty or -1 until known */
    ngx_str_t                     tenant;
    ngx_str_t                     user;
    ngx_int_t                     exit;         /* -1 unknown */
    int32_t                       pid;          /* 0 unknown */
    const char                   *reason;
    int64_t                       cpu_us;       /* -1 unknown, each */
    int64_t                       wall_us;
    int64_t                       memory_peak;
    const char                   *error;        /* E2003, of a constant */
    const char                   *quota_scope;  /* that refused */
    const char                   *quota_resource;
    const char                   *network;      /* of a session that was told;
                                                   a constant */
    ngx_str_t                     argv;         /* each with its NUL */
    ngx_str_t                     context;      /* of an interpreter */
    ngx_str_t                     language;     /* of it */
    ngx_http_sandbox_code_e       outcome;      /* of a piece of code */
} ngx_http_sandbox_ctx_t;

/* The location's content handler. */
ngx_int_t ngx_http_sandbox_handler(ngx_http_request_t *r);

/* A query argument, decoded (+ and %XX; the router has refused bad escapes)
 * into the pool; the first of several.  NGX_OK, NGX_DECLINED if it is not
 * there, NGX_ERROR. */
ngx_int_t ngx_http_sandbox_arg(ngx_http_request_t *r, const char *name,
    ngx_str_t *value);
/* As a number within bounds; NGX_ABORT for a bad one, after which the caller
 * answers E3001 naming it. */
ngx_int_t ngx_http_sandbox_arg_number(ngx_http_request_t *r,
    const char *name, uint64_t min, uint64_t max, uint64_t *value);


/*
 * ---- calls to the core -------------------------------------------------
 *
 * A call lives in the request's pool and dies with it (a pool cleanup closes
 * it: that is how a client that goes away ends its command).  The core may
 * be hostile: every frame's length has been checked against its type's fixed
 * size before frame() sees it.
 */

typedef struct ngx_http_sandbox_call_s  ngx_http_sandbox_call_t;

struct ngx_http_sandbox_call_s {
    ngx_http_request_t           *request;
    void                         *data;

    /*
     * Set by the caller.
     * brings: the type of the frame that may bring a descriptor (OPENED,
     *   SOCKET), 0 for a call that takes none.  SOCKET is not delivered: what
     *   it brings is in socket, the call's to close until taken out.
     * frame: one frame; fd is the passed descriptor or -1, the callee's to
     *   close.  NGX_OK goes on, NGX_DONE: the call is over for
     *   the callee, who finalizes by itself; NGX_AGAIN: stop reading until
     *   ngx_http_sandbox_call_resume(), the frame counts as taken.  payload
     *   is gone with the return and with ngx_http_sandbox_call_close(); a
     *   fixed structure is aligned, and its strings end within it.
     * failed: the call ended without a last frame, after one retry where
     *   nothing had been accepted: NGX_HTTP_SANDBOX_BROKER_UNAVAILABLE, or
     *   INTERNAL for a broken stream.  Called once; the callee finalizes.
     * writable: what was queued has been sent; may be NULL.
     */
    ngx_int_t                   (*frame)(ngx_http_sandbox_call_t *call,
                                    const sbx_frame_t *frame,
                                    const u_char *payload, ngx_fd_t fd);
    void                        (*failed)(ngx_http_sandbox_call_t *call,
                                    ngx_http_sandbox_error_e error);
    void                        (*writable)(ngx_http_sandbox_call_t *call);

    ngx_uint_t                    brings;
    ngx_msec_t                    timeout;      /* without any frame; 0 none */

    /* what follows is the call's own */
    sbx_call_t                    header;
    void                         *body;
    size_t                        body_size;
    ngx_fd_t                      blob;
    ngx_chain_t                  *queue;        /* sent ones too, as long as
                                                   they may be sent again */
    ngx_chain_t                  *queue_tail;
    ngx_chain_t                  *queue_free;
    ngx_chain_t                 **spare;        /* blocks of calls before */
    size_t                        queued;       /* not sent yet */
    size_t                        held;         /* in queue */
    ngx_connection_t             *connection;
    sbx_wire_t                    wire;
    ngx_event_t                   retry;        /* tells of a closed door */
    ngx_queue_t                   wait;         /* for the door */
    ngx_msec_t                    deadline;
    ngx_uint_t                    tries;
    ngx_uint_t                    costly;       /* s, as calls to its session
                                                   are: it is not begun */
    ngx_fd_t                      peer;         /* the end to be sent */
    ngx_fd_t                      passed;       /* received, not delivered */
    ngx_fd_t                      socket;
    ngx_uint_t                   *dead;         /* set when the pool goes */
    struct ngx_http_sandbox_stream_s
                                 *stream;       /* told of the worker's end */
    unsigned                      sent:1;
    unsigned                      accepted:1;
    unsigned                      answered:1;   /* by any frame */
    unsigned                      settled:1;    /* the socket has come */
    unsigned                      refuses:1;    /* any descriptor */
    unsigned                      full:1;       /* of descriptors: it is not
                                                   begun */
    unsigned                      waiting:1;
    unsigned                      mute:1;       /* the peer takes no more */
    unsigned                      stopped:1;    /* reading */
    unsigned                      busy:1;       /* the same, for the callee */
    unsigned                      closed:1;
};

/*
 * Makes a call for r with op; session, tenant and request id are filled from
 * ctx.  body (may be NULL) follows the header; blob (may be -1) is a memfd
 * that the call owns from now on.  NULL when out of memory.
 */
ngx_http_sandbox_call_t *ngx_http_sandbox_call_create(ngx_http_request_t *r,
    sbx_op_t op, const void *body, size_t body_size, ngx_fd_t blob);

/* Sends it; NGX_OK (events follow) or NGX_ERROR (failed() is not called). */
ngx_int_t ngx_http_sandbox_call_start(ngx_http_sandbox_call_t *call);

/*
 * Queues a frame; data is copied.  Frames queued before the call was accepted
 * are kept so that a retry can send them again, up to SBX_STRINGS_MAX and
 * sandbox_max_json.  NGX_OK, NGX_ERROR.
 */
ngx_int_t ngx_http_sandbox_call_queue(ngx_http_sandbox_call_t *call,
    sbx_frame_type_t type, const void *data, size_t size);

/* Splits data into frames of one type. */
ngx_int_t ngx_http_sandbox_call_queue_bytes(ngx_http_sandbox_call_t *call,
    sbx_frame_type_t type, const void *data, size_t size);

/* Bytes queued and not sent yet. */
#define ngx_http_sandbox_call_queued(call)                                   \
    (((call)->mute && (call)->answered) ? NGX_MAX_SIZE_T_VALUE               \
                                        : (call)->queued)

/* The last frame before the call is closed; all that can be done for it. */
void ngx_http_sandbox_call_part(ngx_http_sandbox_call_t *call,
    sbx_frame_type_t type, const void *data, size_t size);

void ngx_http_sandbox_call_resume(ngx_http_sandbox_call_t *call);

/* The callee has work to do with what has come, in turns of its own: nothing
 * more is read from _busy() to _idle(), whoever resumes the call. */
void ngx_http_sandbox_call_busy(ngx_http_sandbox_call_t *call);
void ngx_http_sandbox_call_idle(ngx_http_sandbox_call_t *call);

/* Closes our end; no callback comes after it.  Safe to call twice. */
void ngx_http_sandbox_call_close(ngx_http_sandbox_call_t *call);
/* The client has the answer: what was made for the call is to stay. */
void ngx_http_sandbox_call_told(ngx_http_sandbox_call_t *call);


/*
 * ---- ports ---------------------------------------------------------------
 */

/* What a name of sandbox_port_host leads to. */
extern ngx_http_sandbox_route_t  ngx_http_sandbox_v1_port_route;

char *ngx_http_sandbox_set_port_host(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
void ngx_http_sandbox_port_create_conf(ngx_http_sandbox_loc_conf_t *slcf);
char *ngx_http_sandbox_port_merge_conf(ngx_conf_t *cf,
    ngx_http_sandbox_loc_conf_t *prev, ngx_http_sandbox_loc_conf_t *conf);


extern ngx_module_t  ngx_http_sandbox_module;

ngx_int_t ngx_http_sandbox_add_variables(ngx_conf_t *cf);

/* NULL where no API has seen the request; survives internal redirects. */
ngx_http_sandbox_ctx_t *ngx_http_sandbox_ctx(ngx_http_request_t *r);
/* For the router: NULL when out of memory. */
ngx_http_sandbox_ctx_t *ngx_http_sandbox_ctx_create(ngx_http_request_t *r);


/*
 * ---- inside the module's root --------------------------------------------
 */

/* Bounds of a size directive, as its "post". */

typedef struct {
    off_t                         min;
    off_t                         max;
    ngx_uint_t                    offset;       /* the field is an off_t */
} ngx_http_sandbox_size_bounds_t;

char *ngx_http_sandbox_set_api(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
char *ngx_http_sandbox_set_path(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
char *ngx_http_sandbox_set_cgroup(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
char *ngx_http_sandbox_set_storage(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
char *ngx_http_sandbox_set_uid_range(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
char *ngx_http_sandbox_set_limits(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
char *ngx_http_sandbox_set_bind(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
char *ngx_http_sandbox_set_egress(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
char *ngx_http_sandbox_set_egress_resolver(ngx_conf_t *cf,
    ngx_command_t *cmd, void *conf);
char *ngx_http_sandbox_set_egress_ca(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
char *ngx_http_sandbox_set_exec_timeout(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
char *ngx_http_sandbox_set_size(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
char *ngx_http_sandbox_set_e2b_domain(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);

/* Settles defaults below maxima; NGX_CONF_ERROR is logged. */
char *ngx_http_sandbox_settle_limits(ngx_conf_t *cf,
    ngx_http_sandbox_main_conf_t *smcf);
/* Makes a path below the prefix, or the working directory, absolute. */
ngx_int_t ngx_http_sandbox_full_path(ngx_cycle_t *cycle, ngx_str_t *path);

ngx_int_t ngx_http_sandbox_init_module(ngx_cycle_t *cycle);
ngx_int_t ngx_http_sandbox_init_process(ngx_cycle_t *cycle);
void ngx_http_sandbox_exit_process(ngx_cycle_t *cycle);

/*
 * ---- turns ---------------------------------------------------------------
 */

void ngx_http_sandbox_turn_init(ngx_cycle_t *cycle);
/* Has ev's handler called once those who wait have been; it may be deleted as
 * any posted event, and is in no other queue. */
void ngx_http_sandbox_turn_wait(ngx_event_t *ev);
/* Bytes that were handled without waiting; whether that is enough of them,
 * and who has more waits. */
void ngx_http_sandbox_turn_spend(size_t bytes);
ngx_uint_t ngx_http_sandbox_turn_over(void);
/* Begins a request now or, where enough have begun in this turn, in a later
 * one; returns what a content handler does. */
ngx_int_t ngx_http_sandbox_turn_request(ngx_http_request_t *r,
    ngx_http_handler_pt begin);
/* Of a client's connection, whose request reads a body: 1, and its read event
 * comes again in its turn. */
ngx_uint_t ngx_http_sandbox_turn_yield(ngx_connection_t *c);
/* Whether so many bytes, at 4 ns each, may be handled now; 0: ev waits. */
ngx_uint_t ngx_http_sandbox_turn_may(ngx_event_t *ev, size_t bytes);

/* The body of an answer whose header has gone; returns as _json_send(). */
ngx_int_t ngx_http_sandbox_answer(ngx_http_request_t *r, ngx_chain_t *body);

void ngx_http_sandbox_call_init(ngx_cycle_t *cycle);
void ngx_http_sandbox_call_exit(void);
/* One worker asks the broker for refusals of the egress. */
void ngx_http_sandbox_refusals_init(ngx_cycle_t *cycle,
    ngx_http_sandbox_main_conf_t *smcf);
void ngx_http_sandbox_refusals_exit(void);

/* Whether each "%" has its two digits. */
ngx_uint_t ngx_http_sandbox_escapes_ok(const ngx_str_t *s);
/*
 * ctx->path, from the query or from what the URI has for it, which may be
 * NULL.  NGX_OK; or it is answered, with what that returned, NGX_OK too.
 */
ngx_int_t ngx_http_sandbox_path(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, const ngx_str_t *raw);
/* Before a body is read: nobody else's is to be taken from. */
ngx_int_t ngx_http_sandbox_body_own(ngx_http_request_t *r);
/*
 * Begins to read a body as it comes, of a route with BODY_STREAM.  NGX_OK:
 * what there is may be taken; NGX_AGAIN: that is so once pump is called, and
 * not before; else a status.
 */
ngx_int_t ngx_http_sandbox_body_stream(ngx_http_request_t *r,
    ngx_http_client_body_handler_pt pump);
/* Whether it may be taken. */
#define ngx_http_sandbox_body_there(r)                                        \
    (ngx_http_sandbox_ctx(r)->body_there)
/*
 * Queues what was read of a body as frames, until more than window bytes are
 * queued; passed counts them.  NGX_OK: all of it; NGX_AGAIN: the rest stays
 * until there is room; NGX_ERROR.
 */
ngx_int_t ngx_http_sandbox_body_pass(ngx_http_sandbox_call_t *call,
    sbx_frame_type_t type, size_t window, off_t *passed);
/* Reads what the route asks for, then runs its handler. */
ngx_int_t ngx_http_sandbox_read_body(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);

/*
 * ---- identity ------------------------------------------------------------
 */

/* Who asks where nothing tells. */
#define NGX_HTTP_SANDBOX_DEFAULT_NAME   "default"

/* Fills ctx.  NGX_OK; or it is answered, with what that returned, NGX_OK
 * too. */
ngx_int_t ngx_http_sandbox_identify(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);
/*
 * Names that a body has, or NULL data: checked, and filled from the identity
 * where configuration binds it.  -1: SBX_E_INVALID, SBX_E_FORBIDDEN.
 */
int ngx_http_sandbox_own_names(ngx_http_request_t *r,
    sbx_json_str_t *tenant, sbx_json_str_t *user, sbx_error_t *e);
/* 0: nothing of what a list is asked for is the caller's.  Empty: any. */
ngx_uint_t ngx_http_sandbox_may_see(ngx_http_request_t *r,
    const ngx_str_t *tenant, const ngx_str_t *user);

/* The same by a key of the file. */
ngx_int_t ngx_http_sandbox_keys_identify(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, const ngx_http_sandbox_keys_t *keys);
/* The one key that the request brings, whosever it may be; returns so, too. */
ngx_int_t ngx_http_sandbox_keys_presented(ngx_http_request_t *r,
    ngx_str_t *key);

char *ngx_http_sandbox_set_keys(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
char *ngx_http_sandbox_set_quota(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);


/*
 * ---- seeing: audit log, metrics ------------------------------------------
 *
 * All of it happens in the log phase, once for each request that found a
 * route, however it ended; but a step of a run has a line when it ends.
 */

char *ngx_http_sandbox_set_audit(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
void ngx_http_sandbox_audit(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);
/* The line of a run's step; step has its command and cost, else as ctx. */
void ngx_http_sandbox_audit_step(ngx_http_request_t *r,
    const ngx_http_sandbox_ctx_t *step, ngx_uint_t n);
/* The line of what the egress refused, which is no request's. */
void ngx_http_sandbox_audit_refusal(ngx_http_sandbox_main_conf_t *smcf,
    ngx_log_t *log, const sbx_f_refusal_t *refusal);
/* Whether the request will have a line. */
ngx_uint_t ngx_http_sandbox_audited(ngx_http_request_t *r,
    const ngx_http_sandbox_ctx_t *ctx);

/* The zone of the counters. */
ngx_int_t ngx_http_sandbox_metrics_zone(ngx_conf_t *cf,
    ngx_http_sandbox_main_conf_t *smcf);
void ngx_http_sandbox_metrics_count(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);
void ngx_http_sandbox_metrics_audit(const ngx_http_sandbox_main_conf_t *smcf,
    ngx_uint_t written);
/* What the workers have counted, as text. */
void ngx_http_sandbox_metrics_text(ngx_http_request_t *r,
    ngx_http_sandbox_json_t *j);
/* Refusals by scope and resource, as a JSON array. */
void ngx_http_sandbox_metrics_refusals(ngx_http_request_t *r,
    ngx_http_sandbox_json_t *j);

void ngx_http_sandbox_metrics_family(ngx_http_sandbox_json_t *j,
    const char *name, const char *type, const char *help);
/* The codes of all errors; NULL after the last. */
const char *ngx_http_sandbox_problem_code(ngx_uint_t i);

ngx_int_t ngx_http_sandbox_log_handler(ngx_http_request_t *r);
/* As access_log tells it. */
ngx_uint_t ngx_http_sandbox_status(ngx_http_request_t *r);
/* Milliseconds since the request began. */
ngx_msec_t ngx_http_sandbox_took(ngx_http_request_t *r);


/*
 * ---- templates -----------------------------------------------------------
 */

typedef struct {
    ngx_str_t                     name;
    ngx_str_t                     description;
    sbx_limits_t                  limits;
    sbx_json_map_t                env;
    uint32_t                      capabilities;
    uint32_t                      has_capabilities;
    ngx_str_t                     preload;      /* "NAME\0"... */
    ngx_http_sandbox_egress_t     egress;
    sbx_json_network_t            network;      /* of who asks for none */
    uint32_t                      has_network;
    ngx_str_t                     file;
    ngx_uint_t                    line;         /* 0: a template.json */
} ngx_http_sandbox_template_t;

extern const sbx_json_field_t  ngx_http_sandbox_v1_resource_fields[];

char *ngx_http_sandbox_set_template(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
/* Reads what is in files and checks all; NGX_ERROR is logged. */
ngx_int_t ngx_http_sandbox_templates_settle(ngx_conf_t *cf,
    ngx_http_sandbox_main_conf_t *smcf, sbx_config_t *config);
/* NULL: the configuration says nothing of it. */
ngx_http_sandbox_template_t *ngx_http_sandbox_template_find(
    const ngx_http_sandbox_main_conf_t *smcf, const void *name, size_t len);
/* What a session of that name gets: the built-in one has two names. */
ngx_http_sandbox_template_t *ngx_http_sandbox_template_of(
    const ngx_http_sandbox_main_conf_t *smcf, const void *name, size_t len);
void ngx_http_sandbox_template_limits(
    const ngx_http_sandbox_template_t *template, sbx_limits_t *limits);
ngx_int_t ngx_http_sandbox_template_merge(ngx_pool_t *pool,
    const ngx_http_sandbox_template_t *template, sbx_json_map_t *env);


/*
 * ---- the egress ----------------------------------------------------------
 */

/* 1: "egress", "egress_private" or "egress_header". */
ngx_uint_t ngx_http_sandbox_egress_is(const char *word);
/* Takes such a line: cf->args. */
char *ngx_http_sandbox_egress_line(ngx_conf_t *cf, const char *word,
    ngx_http_sandbox_egress_t *egress);
/* Writes config->egress and checks it, and what templates ask for by
 * themselves; NGX_ERROR is logged. */
ngx_int_t ngx_http_sandbox_egress_settle(ngx_conf_t *cf,
    ngx_http_sandbox_main_conf_t *smcf, sbx_config_t *config);
/* Logs what is wrong in a template's lines or in its file. */
void ngx_http_sandbox_template_fault(ngx_conf_t *cf,
    const ngx_http_sandbox_template_t *template, const char *what);


/*
 * ---- pools ---------------------------------------------------------------
 */

typedef struct {
    ngx_str_t                     name;
    sbx_pool_config_t             config;
    ngx_str_t                     file;
    ngx_uint_t                    line;
} ngx_http_sandbox_pool_t;

char *ngx_http_sandbox_set_pool(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
/* NGX_ERROR is logged. */
ngx_int_t ngx_http_sandbox_pools_settle(ngx_conf_t *cf,
    ngx_http_sandbox_main_conf_t *smcf, sbx_config_t *config);


/* The value of $request_id; empty when out of memory. */
void ngx_http_sandbox_request_id(ngx_http_request_t *r, ngx_str_t *id);

/* As _json_send(), with a media type, which is a constant. */
ngx_int_t ngx_http_sandbox_json_send_as(ngx_http_request_t *r,
    ngx_uint_t status, const char *type, ngx_http_sandbox_json_t *j);


#endif /* _NGX_HTTP_SANDBOX_H_INCLUDED_ */
