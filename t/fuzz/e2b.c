/*
 * Requests of the E2B protocol, to all of its planes, with all that a session
 * may answer: see lib/worker.h.
 */

#include "worker.h"


int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    worker_input(NGX_HTTP_SANDBOX_API_E2B, data, size);

    return 0;
}
