/*
 * What an installation has come to: what there is to be read of a round, and
 * the answers.
 */

#include "ngx_http_sandbox_v1_install.h"


#define NGX_HTTP_SANDBOX_V1_INSTALLED     4096


static void ngx_http_sandbox_v1_install_members(ngx_http_sandbox_json_t *j,
    const ngx_http_sandbox_v1_install_t *install);


#define INSTALLED(field)  offsetof(ngx_http_sandbox_v1_installed_t, field)

static const sbx_json_field_t  ngx_http_sandbox_v1_installed_fields[] = {

    { .name = "name", .type = SBX_JSON_STRING, .required = 1,
      .max = NGX_HTTP_SANDBOX_PACKAGE_NAME, .offset = INSTALLED(name) },

    { .name = "version", .type = SBX_JSON_STRING, .required = 1,
      .max = NGX_HTTP_SANDBOX_PACKAGE_VERSION,
      .offset = INSTALLED(version) },

    { .name = NULL }
};


static ngx_http_sandbox_v1_installed_t  ngx_http_sandbox_v1_installed_none;

static const sbx_json_field_t  ngx_http_sandbox_v1_result_fields[] = {

    { .name = "packages", .type = SBX_JSON_OBJECTS, .required = 1,
      .max = NGX_HTTP_SANDBOX_V1_INSTALLED, .offset = 0,
      .fields = ngx_http_sandbox_v1_installed_fields,
      .element = &ngx_http_sandbox_v1_installed_none,
      .size = sizeof(ngx_http_sandbox_v1_installed_t) },

    { .name = NULL }
};


/* As strict as a request: whoever wrote it may be anybody in the session. */

int
ngx_http_sandbox_v1_install_result(ngx_http_sandbox_v1_install_t *install,
    sbx_json_objects_t *result)
{
    size_t                            i;
    ngx_str_t                         text;
    sbx_error_t                       e;
    sbx_json_alloc_t                  alloc;
    ngx_http_sandbox_op_output_t     *out;
    ngx_http_sandbox_v1_installed_t  *packages;

    out = &install->command.out;
    ngx_memzero(result, sizeof(sbx_json_objects_t));

    if (out->len == 0 || out->over
        || ngx_http_sandbox_op_output_text(install->request->pool, out, &text)
           != NGX_OK)
    {
        return -1;
    }

    alloc = ngx_http_sandbox_op_allocator(install->request->pool);

    if (sbx_json_bind(text.data, text.len, ngx_http_sandbox_v1_result_fields,
                      result, &alloc, &e)
        != 0)
    {
        result->nelts = 0;
        return -1;
    }

    packages = result->elts;

    for (i = 0; i < result->nelts; i++) {
        if (!ngx_http_sandbox_package_name_ok(install->manager,
                                              (u_char *)
                                                  packages[i].name.data,
                                              packages[i].name.len, 0)
            || !ngx_http_sandbox_package_version_ok((u_char *)
                                                  packages[i].version.data,
                                                packages[i].version.len))
        {
            result->nelts = 0;
            return -1;
        }
    }

    return 0;
}


ngx_int_t
ngx_http_sandbox_v1_install_answer(ngx_http_sandbox_v1_install_t *install,
    ngx_http_sandbox_call_t *call)
{
    size_t                            i;
    ngx_http_sandbox_json_t           j;
    sbx_json_objects_t                result;
    ngx_http_sandbox_v1_installed_t  *packages;

    (void) ngx_http_sandbox_v1_install_result(install, &result);

    packages = result.elts;

    ngx_http_sandbox_json_init(&j, install->request->pool);
    ngx_http_sandbox_json_raw(&j, "{\"installed\":[");

    for (i = 0; i < result.nelts; i++) {
        ngx_http_sandbox_json_raw(&j, i ? ",{\"name\":" : "{\"name\":");
        ngx_http_sandbox_json_string(&j, packages[i].name.data,
                                     packages[i].name.len);
        ngx_http_sandbox_json_raw(&j, ",\"version\":");
        ngx_http_sandbox_json_string(&j, packages[i].version.data,
                                     packages[i].version.len);
        ngx_http_sandbox_json_raw(&j, "}");
    }

    ngx_http_sandbox_json_raw(&j, "]");
    ngx_http_sandbox_v1_install_members(&j, install);
    ngx_http_sandbox_json_raw(&j, ",\"exit_code\":0}");

    return ngx_http_sandbox_op_finish(call,
               ngx_http_sandbox_json_send(install->request, NGX_HTTP_OK, &j));
}


static void
ngx_http_sandbox_v1_install_members(ngx_http_sandbox_json_t *j,
    const ngx_http_sandbox_v1_install_t *install)
{
    ngx_http_sandbox_json_raw(j, ",\"stdout\":");
    ngx_http_sandbox_op_output_json(j, &install->out, install->out.len,
                                    NGX_HTTP_SANDBOX_OP_OUTPUT_TEXT);
    ngx_http_sandbox_json_raw(j, ",\"stderr\":");
    ngx_http_sandbox_op_output_json(j, &install->err, install->err.len,
                                    NGX_HTTP_SANDBOX_OP_OUTPUT_TEXT);
    ngx_http_sandbox_json_raw(j, ",\"stdout_truncated\":");
    ngx_http_sandbox_json_bool(j, install->out.over
                                  || (install->end.flags
                                      & SBX_EXIT_OUT_TRUNCATED));
    ngx_http_sandbox_json_raw(j, ",\"stderr_truncated\":");
    ngx_http_sandbox_json_bool(j, install->err.over
                                  || (install->end.flags
                                      & SBX_EXIT_ERR_TRUNCATED));
    ngx_http_sandbox_json_raw(j, ",\"duration_s\":");
    ngx_http_sandbox_json_seconds(j, install->took);
}


ngx_int_t
ngx_http_sandbox_v1_install_failed(ngx_http_sandbox_v1_install_t *install,
    const char *fmt, ...)
{
    u_char                   text[128];
    va_list                  args;
    ngx_str_t                detail;
    ngx_http_sandbox_json_t  j;

    va_start(args, fmt);
    detail.data = text;
    detail.len = ngx_vslprintf(text, text + sizeof(text), fmt, args) - text;
    va_end(args);

    ngx_http_sandbox_json_init(&j, install->request->pool);
    ngx_http_sandbox_v1_install_members(&j, install);
    ngx_http_sandbox_json_raw(&j, ",\"exit_code\":");
    ngx_http_sandbox_json_int(&j, install->end.exit_code);
    ngx_http_sandbox_json_raw(&j, ",\"reason\":");
    ngx_http_sandbox_json_cstring(&j, sbx_reason_word(install->end.reason));
    ngx_http_sandbox_json_raw(&j, ",\"timed_out\":");
    ngx_http_sandbox_json_bool(&j, install->end.flags & SBX_EXIT_TIMED_OUT);
    ngx_http_sandbox_json_raw(&j, ",\"oom_killed\":");
    ngx_http_sandbox_json_bool(&j, install->end.flags & SBX_EXIT_OOM_KILLED);

    return ngx_http_sandbox_problem_with(install->request,
                                         NGX_HTTP_SANDBOX_INSTALL_FAILED,
                                         &detail, &j);
}


/* fmt takes the name's length and bytes.  Nothing was installed. */

ngx_int_t
ngx_http_sandbox_v1_install_denied(ngx_http_sandbox_v1_install_t *install,
    const sbx_json_str_t *name, const char *fmt)
{
    u_char                   text[NGX_HTTP_SANDBOX_PACKAGE_NAME + 128];
    ngx_str_t                detail;
    ngx_http_sandbox_json_t  j;

    detail.data = text;
    detail.len = ngx_slprintf(text, text + sizeof(text), fmt, name->len,
                              name->data)
                 - text;

    ngx_http_sandbox_json_init(&j, install->request->pool);
    ngx_http_sandbox_json_raw(&j, ",\"package\":");
    ngx_http_sandbox_json_string(&j, name->data, name->len);
    ngx_http_sandbox_v1_install_members(&j, install);
    ngx_http_sandbox_json_raw(&j, ",\"exit_code\":null");

    return ngx_http_sandbox_problem_with(install->request,
                                         NGX_HTTP_SANDBOX_INSTALL_FAILED,
                                         &detail, &j);
}
