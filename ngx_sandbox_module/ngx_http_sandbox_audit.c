/*
 * The audit log: one line of JSON for each call that changes something, at
 * the end of its request, and for what the egress refuses.  A line is one
 * write() to a file that appends, so that those of several workers do not mix;
 * all that a caller can choose is escaped, so that nobody makes lines of his
 * own.  Nothing of a command's input, output or environment and of no file is
 * in it.
 *
 * What cannot be written is lost: no call waits for a disk that is full.
 */

#include "ngx_http_sandbox.h"

#include "sandbox_sha256.h"


#define NGX_HTTP_SANDBOX_AUDIT_ARGV     4096     /* bytes of it that show */
#define NGX_HTTP_SANDBOX_AUDIT_CHANGE   2048


static ngx_uint_t ngx_http_sandbox_audit_is(ngx_http_request_t *r,
    const char *op);
static void ngx_http_sandbox_audit_who(ngx_http_sandbox_json_t *j,
    ngx_http_request_t *r, const ngx_http_sandbox_ctx_t *ctx, const char *op);
static void ngx_http_sandbox_audit_what(ngx_http_sandbox_json_t *j,
    ngx_http_request_t *r, const ngx_http_sandbox_ctx_t *ctx);
static void ngx_http_sandbox_audit_argv(ngx_http_sandbox_json_t *j,
    const ngx_http_sandbox_ctx_t *ctx);
static void ngx_http_sandbox_audit_hash(ngx_http_sandbox_json_t *j,
    const ngx_str_t *argv);
static void ngx_http_sandbox_audit_answer(ngx_http_sandbox_json_t *j,
    ngx_http_request_t *r, const ngx_http_sandbox_ctx_t *ctx);
static void ngx_http_sandbox_audit_cost(ngx_http_sandbox_json_t *j,
    const ngx_http_sandbox_ctx_t *ctx);
static void ngx_http_sandbox_audit_end(ngx_http_request_t *r,
    ngx_http_sandbox_json_t *j);
static void ngx_http_sandbox_audit_write(ngx_http_sandbox_main_conf_t *smcf,
    ngx_log_t *log, ngx_http_sandbox_json_t *j);


/* What a GET begins and is more than a look, and what a POST asks that is only
 * one, or a part of something that has its own line. */

static const char *const  ngx_http_sandbox_audit_more[] = {
    "terminal", NULL
};

static const char *const  ngx_http_sandbox_audit_less[] = {
    "search", "stdin", "resize",
    "list", "stat", "watch", "processes", "output", "contexts", NULL
};


static ngx_uint_t    ngx_http_sandbox_audit_lost;  /* in a row */
static ngx_uint_t    ngx_http_sandbox_audit_torn;  /* a line has no end */


char *
ngx_http_sandbox_set_audit(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_sandbox_main_conf_t  *smcf = conf;

    ngx_str_t  *value;

    if (smcf->audit_set) {
        return "is duplicate";
    }

    smcf->audit_set = 1;
    value = cf->args->elts;

    if (value[1].len == 0) {
        return "needs a path or \"off\"";
    }

    if (cf->args->nelts == 3) {

        if (ngx_strcmp(value[2].data, "argv=hash") == 0) {
            smcf->audit_hash = 1;

        } else if (ngx_strcmp(value[2].data, "argv=full") != 0) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "invalid parameter \"%V\" in \"%V\" "
                               "directive, it must be \"argv=full\" or "
                               "\"argv=hash\"", &value[2], &cmd->name);
            return NGX_CONF_ERROR;
        }
    }

    if (ngx_strcmp(value[1].data, "off") == 0) {
        return NGX_CONF_OK;
    }

    smcf->audit = ngx_conf_open_file(cf->cycle, &value[1]);

    return (smcf->audit == NULL) ? NGX_CONF_ERROR : NGX_CONF_OK;
}


void
ngx_http_sandbox_audit(ngx_http_request_t *r, ngx_http_sandbox_ctx_t *ctx)
{
    ngx_http_sandbox_json_t  j;

    if (!ngx_http_sandbox_audited(r, ctx)) {
        return;
    }

    ngx_http_sandbox_json_init(&j, r->pool);

    ngx_http_sandbox_json_raw(&j, ngx_http_sandbox_audit_torn ? "\n{" : "{");
    ngx_http_sandbox_audit_who(&j, r, ctx, ctx->route->op);
    ngx_http_sandbox_audit_what(&j, r, ctx);
    ngx_http_sandbox_audit_answer(&j, r, ctx);
    ngx_http_sandbox_audit_cost(&j, ctx);
    ngx_http_sandbox_json_raw(&j, ",\"took_s\":");
    ngx_http_sandbox_json_seconds(&j, ngx_http_sandbox_took(r) * 1000);
    ngx_http_sandbox_json_raw(&j, "}\n");

    ngx_http_sandbox_audit_end(r, &j);
}


void
ngx_http_sandbox_audit_step(ngx_http_request_t *r,
    const ngx_http_sandbox_ctx_t *step, ngx_uint_t n)
{
    ngx_http_sandbox_json_t  j;

    if (!ngx_http_sandbox_audited(r, step)) {
        return;
    }

    ngx_http_sandbox_json_init(&j, r->pool);

    ngx_http_sandbox_json_raw(&j, ngx_http_sandbox_audit_torn ? "\n{" : "{");
    ngx_http_sandbox_audit_who(&j, r, step, "run_step");
    ngx_http_sandbox_json_raw(&j, ",\"step\":");
    ngx_http_sandbox_json_int(&j, (int64_t) n);
    ngx_http_sandbox_audit_what(&j, r, step);
    ngx_http_sandbox_audit_cost(&j, step);
    ngx_http_sandbox_json_raw(&j, "}\n");

    ngx_http_sandbox_audit_end(r, &j);
}


ngx_uint_t
ngx_http_sandbox_audited(ngx_http_request_t *r,
    const ngx_http_sandbox_ctx_t *ctx)
{
    ngx_http_sandbox_main_conf_t  *smcf;

    smcf = ngx_http_get_module_main_conf(r, ngx_http_sandbox_module);

    return smcf->audit != NULL && smcf->audit->fd != NGX_INVALID_FILE
           && ctx->route != NULL
           && ngx_http_sandbox_audit_is(r, ctx->route->op);
}


static ngx_uint_t
ngx_http_sandbox_audit_is(ngx_http_request_t *r, const char *op)
{
    ngx_uint_t          look;
    const char *const  *p;

    look = (r->method & (NGX_HTTP_GET|NGX_HTTP_HEAD)) != 0;

    p = look ? ngx_http_sandbox_audit_more : ngx_http_sandbox_audit_less;

    for ( /* void */ ; *p != NULL; p++) {
        if (ngx_strcmp(*p, op) == 0) {
            return look;
        }
    }

    return !look;
}


static void
ngx_http_sandbox_audit_string(ngx_http_sandbox_json_t *j, const char *name,
    const ngx_str_t *value)
{
    ngx_http_sandbox_json_raw(j, name);

    if (value->len == 0) {
        ngx_http_sandbox_json_raw(j, "null");

    } else {
        ngx_http_sandbox_json_string(j, value->data, value->len);
    }
}


/* "": there is none. */

static void
ngx_http_sandbox_audit_word(ngx_http_sandbox_json_t *j, const char *name,
    const char *word)
{
    ngx_str_t  value;

    value.data = (u_char *) word;
    value.len = ngx_strlen(word);

    ngx_http_sandbox_audit_string(j, name, &value);
}


static void
ngx_http_sandbox_audit_number(ngx_http_sandbox_json_t *j, const char *name,
    int64_t n)
{
    ngx_http_sandbox_json_raw(j, name);

    if (n < 0) {
        ngx_http_sandbox_json_raw(j, "null");

    } else {
        ngx_http_sandbox_json_int(j, n);
    }
}


static void
ngx_http_sandbox_audit_who(ngx_http_sandbox_json_t *j, ngx_http_request_t *r,
    const ngx_http_sandbox_ctx_t *ctx, const char *op)
{
    ngx_str_t   id;
    ngx_time_t  *tp;

    tp = ngx_timeofday();
    ngx_http_sandbox_request_id(r, &id);

    ngx_http_sandbox_json_raw(j, "\"time\":");
    ngx_http_sandbox_json_time(j, (int64_t) tp->sec * 1000 + tp->msec);
    ngx_http_sandbox_json_raw(j, ",\"op\":");
    ngx_http_sandbox_json_cstring(j, op);
    ngx_http_sandbox_audit_string(j, ",\"request_id\":", &id);
    ngx_http_sandbox_audit_string(j, ",\"address\":",
                                  &r->connection->addr_text);
    ngx_http_sandbox_audit_string(j, ",\"tenant_id\":", &ctx->tenant);
    ngx_http_sandbox_audit_string(j, ",\"user_id\":", &ctx->user);

    if (ctx->who.len != 0) {
        ngx_http_sandbox_audit_string(j, ",\"by\":", &ctx->who);
    }

    ngx_http_sandbox_audit_string(j, ",\"session_id\":", &ctx->session);
}


/* A change by the admin API is told whole: it is an operator's, no payload. */

static void
ngx_http_sandbox_audit_what(ngx_http_sandbox_json_t *j, ngx_http_request_t *r,
    const ngx_http_sandbox_ctx_t *ctx)
{
    ngx_str_t                      change;
    ngx_http_sandbox_main_conf_t  *smcf;

    smcf = ngx_http_get_module_main_conf(r, ngx_http_sandbox_module);

    if (ctx->argv.len != 0 && smcf->audit_hash) {
        ngx_http_sandbox_audit_hash(j, &ctx->argv);

    } else if (ctx->argv.len != 0) {
        ngx_http_sandbox_audit_argv(j, ctx);
    }

    if (ctx->who.len == 0) {

        if (ctx->network != NULL) {
            ngx_http_sandbox_json_raw(j, ",\"network\":");
            ngx_http_sandbox_json_cstring(j, ctx->network);
        }

        if (ctx->has_path) {
            ngx_http_sandbox_audit_string(j, ",\"path\":", &ctx->path);
        }

        if (ctx->context.len != 0) {
            ngx_http_sandbox_audit_string(j, ",\"context_id\":",
                                          &ctx->context);
            ngx_http_sandbox_audit_string(j, ",\"language\":",
                                          &ctx->language);
        }

        return;
    }

    change = ctx->body;

    if (change.len > NGX_HTTP_SANDBOX_AUDIT_CHANGE) {
        change.len = NGX_HTTP_SANDBOX_AUDIT_CHANGE;
        ngx_http_sandbox_json_raw(j, ",\"change_cut\":true");
    }

    ngx_http_sandbox_audit_string(j, ",\"change\":", &change);
}


static void
ngx_http_sandbox_audit_argv(ngx_http_sandbox_json_t *j,
    const ngx_http_sandbox_ctx_t *ctx)
{
    size_t      len, left;
    u_char     *p, *end;
    ngx_uint_t  n;

    n = 0;
    p = ctx->argv.data;
    end = p + ctx->argv.len;
    left = NGX_HTTP_SANDBOX_AUDIT_ARGV;

    ngx_http_sandbox_json_raw(j, ",\"argv\":[");

    while (p < end && left != 0) {
        len = ngx_strlen(p);

        ngx_http_sandbox_json_raw(j, n++ ? "," : "");
        ngx_http_sandbox_json_string(j, p, ngx_min(len, left));

        /* an empty one counts as well */

        left = (len + 1 > left) ? 0 : left - len - 1;
        p += len + 1;
    }

    ngx_http_sandbox_json_raw(j, "]");

    if (ctx->argv.len > NGX_HTTP_SANDBOX_AUDIT_ARGV) {
        ngx_http_sandbox_json_raw(j, ",\"argv_cut\":true,\"argv_bytes\":");
        ngx_http_sandbox_json_int(j, (int64_t) ctx->argv.len);
        ngx_http_sandbox_audit_hash(j, &ctx->argv);
    }
}


/* Of all arguments, each with its NUL. */

static void
ngx_http_sandbox_audit_hash(ngx_http_sandbox_json_t *j, const ngx_str_t *argv)
{
    u_char        hex[2 * SBX_SHA256_SIZE];
    uint8_t       digest[SBX_SHA256_SIZE];
    sbx_sha256_t  s;

    sbx_sha256_init(&s);
    sbx_sha256_update(&s, argv->data, argv->len);
    sbx_sha256_final(&s, digest);
    (void) ngx_hex_dump(hex, digest, SBX_SHA256_SIZE);

    ngx_http_sandbox_json_raw(j, ",\"argv_sha256\":");
    ngx_http_sandbox_json_string(j, hex, sizeof(hex));
}


static void
ngx_http_sandbox_audit_answer(ngx_http_sandbox_json_t *j,
    ngx_http_request_t *r, const ngx_http_sandbox_ctx_t *ctx)
{
    ngx_str_t  word;

    ngx_http_sandbox_audit_number(j, ",\"status\":",
                                  (int64_t) ngx_http_sandbox_status(r));

    word.data = (u_char *) ctx->error;
    word.len = (ctx->error == NULL) ? 0 : ngx_strlen(ctx->error);
    ngx_http_sandbox_audit_string(j, ",\"error\":", &word);
}


/* A command that began and whose end nobody told has none.  Of code the cost
 * is not known: its interpreter goes on. */

static void
ngx_http_sandbox_audit_cost(ngx_http_sandbox_json_t *j,
    const ngx_http_sandbox_ctx_t *ctx)
{
    if (ctx->pid > 0) {
        ngx_http_sandbox_json_raw(j, ",\"pid\":");
        ngx_http_sandbox_json_int(j, ctx->pid);
    }

    if (ctx->reason != NULL) {
        ngx_http_sandbox_audit_number(j, ",\"exit\":", ctx->exit);
        ngx_http_sandbox_json_raw(j, ",\"reason\":");
        ngx_http_sandbox_json_cstring(j, ctx->reason);

        if (ctx->outcome == NGX_HTTP_SANDBOX_CODE_NONE) {
            ngx_http_sandbox_json_raw(j, ",\"cpu_s\":");
            ngx_http_sandbox_json_seconds(j,
                                         (uint64_t) ngx_max(ctx->cpu_us, 0));
        }

        ngx_http_sandbox_json_raw(j, ",\"wall_s\":");
        ngx_http_sandbox_json_seconds(j, (uint64_t) ngx_max(ctx->wall_us, 0));

        if (ctx->outcome == NGX_HTTP_SANDBOX_CODE_NONE) {
            ngx_http_sandbox_audit_number(j, ",\"memory_peak\":",
                                          ctx->memory_peak);
        }

    } else if (ctx->pid > 0) {
        ngx_http_sandbox_json_raw(j, ",\"exit\":null,\"reason\":null");
    }
}


/* Of no request: the pool is that of the line. */

void
ngx_http_sandbox_audit_refusal(ngx_http_sandbox_main_conf_t *smcf,
    ngx_log_t *log, const sbx_f_refusal_t *refusal)
{
    ngx_pool_t               *pool;
    ngx_http_sandbox_json_t   j;

    if (smcf->audit->fd == NGX_INVALID_FILE) {
        return;
    }

    pool = ngx_create_pool(2048, log);

    if (pool == NULL) {
        return;
    }

    ngx_http_sandbox_json_init(&j, pool);

    ngx_http_sandbox_json_raw(&j, ngx_http_sandbox_audit_torn ? "\n{" : "{");
    ngx_http_sandbox_json_raw(&j, "\"time\":");
    ngx_http_sandbox_json_time(&j, refusal->at);
    ngx_http_sandbox_json_raw(&j, ",\"op\":\"network_refused\"");
    ngx_http_sandbox_audit_word(&j, ",\"tenant_id\":", refusal->tenant);
    ngx_http_sandbox_audit_word(&j, ",\"user_id\":", refusal->user);
    ngx_http_sandbox_audit_word(&j, ",\"session_id\":", refusal->session);
    ngx_http_sandbox_audit_word(&j, ",\"refused\":",
                                sbx_refused_word(refusal->reason));
    ngx_http_sandbox_audit_word(&j, ",\"to_name\":", refusal->name);
    ngx_http_sandbox_audit_word(&j, ",\"to_address\":", refusal->address);
    ngx_http_sandbox_audit_number(&j, ",\"to_port\":",
                                  refusal->port != 0
                                  ? (int64_t) refusal->port : -1);
    ngx_http_sandbox_audit_number(&j, ",\"more\":",
                                  (int64_t) refusal->more);
    ngx_http_sandbox_json_raw(&j, "}\n");

    ngx_http_sandbox_audit_write(smcf, log, &j);

    ngx_destroy_pool(pool);
}


static void
ngx_http_sandbox_audit_end(ngx_http_request_t *r, ngx_http_sandbox_json_t *j)
{
    ngx_http_sandbox_audit_write(
        ngx_http_get_module_main_conf(r, ngx_http_sandbox_module),
        r->connection->log, j);
}


/* A line that was cut off by a full disk is ended by the next one. */

static void
ngx_http_sandbox_audit_write(ngx_http_sandbox_main_conf_t *smcf,
    ngx_log_t *log, ngx_http_sandbox_json_t *j)
{
    u_char       *line, *p;
    ssize_t       n;
    ngx_err_t     err;
    ngx_chain_t  *cl;

    line = j->failed ? NULL : ngx_pnalloc(j->pool, (size_t) j->size);
    n = -1;
    err = NGX_ENOMEM;

    if (line != NULL) {
        for (cl = j->out, p = line; cl != NULL; cl = cl->next) {
            p = ngx_cpymem(p, cl->buf->pos, cl->buf->last - cl->buf->pos);
        }

        n = ngx_write_fd(smcf->audit->fd, line, (size_t) j->size);
        err = (n == -1) ? ngx_errno : 0;
    }

    ngx_http_sandbox_metrics_audit(smcf, n == (ssize_t) j->size);

    if (n == (ssize_t) j->size) {

        if (ngx_http_sandbox_audit_lost != 0) {
            ngx_log_error(NGX_LOG_NOTICE, log, 0,
                          "sandbox: \"%V\" takes lines again, %ui were lost",
                          &smcf->audit->name, ngx_http_sandbox_audit_lost);
        }

        ngx_http_sandbox_audit_lost = 0;
        ngx_http_sandbox_audit_torn = 0;

        return;
    }

    if (n > 0) {
        ngx_http_sandbox_audit_torn = 1;
    }

    /* once, or a full disk would be told of by each call */

    if (ngx_http_sandbox_audit_lost++ == 0) {
        ngx_log_error(NGX_LOG_ALERT, log, err,
                      "sandbox: audit log \"%V\" takes no lines, calls go on "
                      "without", &smcf->audit->name);
    }
}
