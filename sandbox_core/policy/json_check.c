/*
 * Whether a stranger's text may stand as a value in JSON of our own.
 */

#include "json_parser.h"

#include <string.h>


static int sbx_json_check_open(void *ctx);
static int sbx_json_check_close(void *ctx);


/* What has none is parsed and taken for right. */

static const yajl_callbacks  sbx_json_check_callbacks = {
    NULL, NULL, NULL, NULL, NULL, NULL,
    sbx_json_check_open,          /* start of an object */
    NULL,
    sbx_json_check_close,
    sbx_json_check_open,          /* of an array */
    sbx_json_check_close
};


static int
sbx_json_check_open(void *ctx)
{
    sbx_json_parser_t  *p = ctx;

    return ++p->depth <= SBX_JSON_CHECK_DEPTH;
}


static int
sbx_json_check_close(void *ctx)
{
    sbx_json_parser_t  *p = ctx;

    p->depth--;

    return 1;
}


int
sbx_json_check(const void *text, size_t size, const sbx_json_alloc_t *alloc)
{
    yajl_alloc_funcs   funcs;
    sbx_json_parser_t  p;

    memset(&p, 0, offsetof(sbx_json_parser_t, frames));
    p.alloc = alloc;

    sbx_json_scan(&p, text, size, NULL);

    if (p.bad < size) {
        return -1;
    }

    sbx_json_yajl_funcs(&p, &funcs);

    if (setjmp(p.out_of_memory) != 0) {
        return -1;
    }

    p.yajl = yajl_alloc(&sbx_json_check_callbacks, &funcs, &p);
    (void) yajl_config(p.yajl, yajl_dont_validate_strings, 1);

    return (yajl_parse(p.yajl, text, size) == yajl_status_ok
            && yajl_complete_parse(p.yajl) == yajl_status_ok)
           ? 0 : -1;
}
