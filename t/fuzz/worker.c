/*
 * Requests to the native API, to the admin's and to the pages about it, with
 * all that a session may answer: see lib/worker.h.  The first byte chooses
 * the API.
 */

#include "worker.h"


int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const ngx_uint_t  apis[] = {
        NGX_HTTP_SANDBOX_API_V1, NGX_HTTP_SANDBOX_API_V1,
        NGX_HTTP_SANDBOX_API_ADMIN, NGX_HTTP_SANDBOX_API_STATUS
    };

    if (size != 0) {
        worker_input(apis[data[0] & 3], data + 1, size - 1);
    }

    return 0;
}
