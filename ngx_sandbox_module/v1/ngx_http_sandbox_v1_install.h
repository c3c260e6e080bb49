/*
 * What the two halves of the install call share.
 */

#ifndef _NGX_HTTP_SANDBOX_V1_INSTALL_H_INCLUDED_
#define _NGX_HTTP_SANDBOX_V1_INSTALL_H_INCLUDED_


#include "../ngx_http_sandbox_package.h"
#include "ngx_http_sandbox_v1_exec.h"


typedef struct {
    sbx_json_list_t   packages;
    sbx_json_str_t    manager;
    uint64_t          timeout;
} ngx_http_sandbox_v1_install_body_t;


typedef struct {
    sbx_json_str_t    name;
    sbx_json_str_t    version;
} ngx_http_sandbox_v1_installed_t;


typedef enum {
    NGX_HTTP_SANDBOX_V1_INSTALL_PLAN,
    NGX_HTTP_SANDBOX_V1_INSTALL_PLANNED,
    NGX_HTTP_SANDBOX_V1_INSTALL_RUN,
    NGX_HTTP_SANDBOX_V1_INSTALL_TOLD
} ngx_http_sandbox_v1_install_step_e;


typedef struct {
    ngx_http_request_t                  *request;
    ngx_http_sandbox_main_conf_t        *smcf;
    ngx_http_sandbox_v1_install_body_t   body;
    ngx_uint_t                           manager;
    sbx_json_str_t                      *names;    /* of body.packages */
    ngx_http_sandbox_v1_install_step_e   step;
    ngx_http_sandbox_v1_command_t        command;  /* of the step */
    sbx_f_exit_t                         end;      /* of the manager */
    ngx_http_sandbox_op_output_t         out;      /* of it */
    ngx_http_sandbox_op_output_t         err;
    ngx_str_t                            argv;     /* of it, for the log */
    uint64_t                             took;     /* us */
    uint64_t                             time;     /* ms, of all steps */
    ngx_msec_t                           start;
    sbx_json_str_t                      *exact;    /* what has been planned */
    size_t                               nexact;
    unsigned                             offline:1;
    unsigned                             planned:1;
} ngx_http_sandbox_v1_install_t;


/* What the step before has told; -1, with nothing in it: that is nothing to
 * go by. */
int ngx_http_sandbox_v1_install_result(
    ngx_http_sandbox_v1_install_t *install, sbx_json_objects_t *result);

/* 200; what frame() returns. */
ngx_int_t ngx_http_sandbox_v1_install_answer(
    ngx_http_sandbox_v1_install_t *install, ngx_http_sandbox_call_t *call);

/* E3007, to finalize with: the manager has failed, or a package may not be
 * installed.  The latter's fmt takes the length and the bytes of its name. */
ngx_int_t ngx_http_sandbox_v1_install_failed(
    ngx_http_sandbox_v1_install_t *install, const char *fmt, ...);
ngx_int_t ngx_http_sandbox_v1_install_denied(
    ngx_http_sandbox_v1_install_t *install, const sbx_json_str_t *name,
    const char *fmt);


#endif /* _NGX_HTTP_SANDBOX_V1_INSTALL_H_INCLUDED_ */
