/*
 * The module's life in nginx's processes.
 *
 * The root master (or the one process of "master_process off") reaches the
 * broker when a configuration is taken into use, starting it where nobody
 * listens, and keeps one control connection for each configuration.  The
 * descriptor is in the cycle's pool: workers inherit it by fork, and it is
 * closed in a process when that forgets the configuration.  The broker ends
 * when the last of them is gone.  Workers never connect by themselves: the
 * broker's socket is root's, and they are not.
 */

#include "ngx_http_sandbox.h"
#include "ngx_http_sandbox_cost.h"
#include "ngx_http_sandbox_passed.h"


#define NGX_HTTP_SANDBOX_START_TIMEOUT   20000


typedef struct {
    ngx_fd_t    fd;
} ngx_http_sandbox_control_t;


static ngx_int_t ngx_http_sandbox_connect(ngx_cycle_t *cycle,
    ngx_http_sandbox_main_conf_t *smcf, ngx_uint_t level, ngx_fd_t *fd);
static char *ngx_http_sandbox_log_path(ngx_cycle_t *cycle);
static ngx_fd_t ngx_http_sandbox_old_control(ngx_cycle_t *cycle,
    ngx_http_sandbox_main_conf_t *smcf);
static void ngx_http_sandbox_close_control(void *data);


/*
 * Runs in the master, as its user, before it becomes a daemon and before any
 * worker of this configuration: at start, in "nginx -t", and on each reload,
 * where a failure would end the master.
 */

ngx_int_t
ngx_http_sandbox_init_module(ngx_cycle_t *cycle)
{
    ngx_int_t                      rc;
    ngx_uint_t                     first;
    ngx_pool_cleanup_t            *cln;
    ngx_http_sandbox_control_t    *control;
    ngx_http_sandbox_main_conf_t  *smcf;

    if (ngx_test_config) {
        return NGX_OK;
    }

    smcf = ngx_http_cycle_get_module_main_conf(cycle,
                                               ngx_http_sandbox_module);

    if (smcf == NULL || !smcf->used) {
        return NGX_OK;
    }

    cln = ngx_pool_cleanup_add(cycle->pool,
                               sizeof(ngx_http_sandbox_control_t));

    if (cln == NULL) {
        return NGX_ERROR;
    }

    control = cln->data;
    control->fd = NGX_INVALID_FILE;
    cln->handler = ngx_http_sandbox_close_control;

    first = ngx_is_init_cycle(ngx_cycle);

    rc = ngx_http_sandbox_connect(cycle, smcf,
                                  first ? NGX_LOG_EMERG : NGX_LOG_ERR,
                                  &control->fd);

    if (rc != NGX_OK) {
        if (first) {
            return NGX_ERROR;
        }

        control->fd = ngx_http_sandbox_old_control(cycle, smcf);
    }

    smcf->control = control->fd;

    return NGX_OK;
}


static ngx_int_t
ngx_http_sandbox_connect(ngx_cycle_t *cycle,
    ngx_http_sandbox_main_conf_t *smcf, ngx_uint_t level, ngx_fd_t *fd)
{
    sbx_error_t   e;
    sbx_hello_t   hello;
    sbx_client_t  client;

    client.state_dir = (char *) smcf->state_dir.data;
    client.helper_dir = (char *) smcf->helper_dir.data;
    client.log_path = ngx_http_sandbox_log_path(cycle);
    client.config = smcf->config;
    client.spawn = (geteuid() == 0);
    client.timeout_ms = NGX_HTTP_SANDBOX_START_TIMEOUT;

    if (client.log_path == NULL) {
        return NGX_ERROR;
    }

    if (sbx_client_start(&client, fd, &hello, &e) != 0) {
        *fd = NGX_INVALID_FILE;
        ngx_log_error(level, cycle->log, e.err, "sandbox: %s", e.text);
        return NGX_ERROR;
    }

    ngx_log_error(NGX_LOG_NOTICE, cycle->log, 0,
                  "sandbox: broker %d, keeper %d", (int) hello.broker_pid,
                  (int) hello.keeper_pid);

    smcf->token_key = ngx_pnalloc(cycle->pool, SBX_TOKEN_KEY);

    if (smcf->token_key == NULL) {
        (void) close(*fd);
        *fd = NGX_INVALID_FILE;

        return NGX_ERROR;
    }

    ngx_memcpy(smcf->token_key, hello.token_key, SBX_TOKEN_KEY);

    return NGX_OK;
}


/* The broker writes to nginx's own log where that is a file. */

static char *
ngx_http_sandbox_log_path(ngx_cycle_t *cycle)
{
    ngx_log_t  *log;
    ngx_str_t   path;

    for (log = cycle->log; log != NULL; log = log->next) {
        if (log->file == NULL || log->file->name.len == 0) {
            continue;
        }

        path = log->file->name;

        if (ngx_http_sandbox_full_path(cycle, &path) != NGX_OK) {
            return NULL;
        }

        return (char *) path.data;
    }

    return "";
}


/*
 * What the configuration before had, for one that could not reach the broker.
 * A module that was loaded anew from another file has another layout: it is
 * not the same object, and has nothing to hand over.
 */

static ngx_fd_t
ngx_http_sandbox_old_control(ngx_cycle_t *cycle,
    ngx_http_sandbox_main_conf_t *smcf)
{
    ngx_fd_t                       fd;
    ngx_uint_t                     i;
    ngx_http_sandbox_main_conf_t  *old;

    for (i = 0; i < ngx_cycle->modules_n; i++) {
        if (ngx_cycle->modules[i] == &ngx_http_sandbox_module) {
            break;
        }
    }

    if (i == ngx_cycle->modules_n) {
        return NGX_INVALID_FILE;
    }

    old = ngx_http_cycle_get_module_main_conf(ngx_cycle,
                                              ngx_http_sandbox_module);

    if (old == NULL || old->control == NGX_INVALID_FILE) {
        return NGX_INVALID_FILE;
    }

    /* in the pool of a cycle that goes */

    if (old->token_key != NULL) {
        smcf->token_key = ngx_pnalloc(cycle->pool, SBX_TOKEN_KEY);

        if (smcf->token_key == NULL) {
            return NGX_INVALID_FILE;
        }

        ngx_memcpy(smcf->token_key, old->token_key, SBX_TOKEN_KEY);
    }

    fd = fcntl(old->control, F_DUPFD_CLOEXEC, 0);

    if (fd == NGX_INVALID_FILE) {
        ngx_log_error(NGX_LOG_ERR, cycle->log, ngx_errno,
                      "sandbox: fcntl(F_DUPFD_CLOEXEC) failed");
    }

    return fd;
}


static void
ngx_http_sandbox_close_control(void *data)
{
    ngx_http_sandbox_control_t  *control = data;

    if (control->fd != NGX_INVALID_FILE) {
        (void) close(control->fd);
        control->fd = NGX_INVALID_FILE;
    }
}


/* Runs in each worker, as its user, and in the process of "master_process
 * off". */

ngx_int_t
ngx_http_sandbox_init_process(ngx_cycle_t *cycle)
{
    ngx_http_sandbox_main_conf_t  *smcf;

    ngx_http_sandbox_turn_init(cycle);
    ngx_http_sandbox_call_init(cycle);
    ngx_http_sandbox_cost_init();

    smcf = ngx_http_cycle_get_module_main_conf(cycle,
                                               ngx_http_sandbox_module);

    /* once for a configuration, and not on the operator's terminal */

    if (smcf != NULL && smcf->used && smcf->nobody && ngx_worker == 0) {
        ngx_log_error(NGX_LOG_WARN, cycle->log, 0,
                      "sandbox: a location answers whoever reaches it, for "
                      "any tenant that he names: \"sandbox_tenant\" or "
                      "\"sandbox_keys\" would bind callers to their own");
    }

    if (smcf != NULL && smcf->used && smcf->anybody && ngx_worker == 0) {
        ngx_log_error(NGX_LOG_WARN, cycle->log, 0,
                      "sandbox: a location with \"sandbox_api e2b\" takes any "
                      "API key, and all who have one share one tenant and "
                      "user, \"" NGX_HTTP_SANDBOX_DEFAULT_NAME "\": "
                      "\"sandbox_keys\" would tell them apart");
    }

    if (smcf != NULL && smcf->used) {
        ngx_http_sandbox_passed_init(cycle);
    }

    if (smcf != NULL) {
        ngx_http_sandbox_refusals_init(cycle, smcf);
    }

    return NGX_OK;
}


/* Runs where the one before did, when nothing is in flight any more. */

void
ngx_http_sandbox_exit_process(ngx_cycle_t *cycle)
{
    ngx_http_sandbox_refusals_exit();
    ngx_http_sandbox_call_exit();
    ngx_http_sandbox_passed_exit();
    ngx_http_sandbox_cost_exit();
}
