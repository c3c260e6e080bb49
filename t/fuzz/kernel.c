/*
 * What a kernel says to init, all of which the code in it may have written.
 * However it is cut, and however little room there is for what comes of it,
 * the same goes to the call: frames that a worker takes, each result whole or
 * not begun, and no more of them than there may be.  The first two bytes
 * choose the cut and the room.
 */

#include "fuzz.h"
#include "../../sandbox_core/init/code_frame.c"


#define KERNEL_RUN    7               /* the number of the first run */
#define KERNEL_MIX    1099511628211u


static int said(const uint8_t *data, size_t size, size_t step, size_t room);
static void mix(const void *p, size_t n);


static uint64_t   sum, whole_sum;     /* of all, up to the last result */
static size_t     limit;              /* of bytes before the call takes some */
static uint64_t   value;              /* bytes of it that are due */
static unsigned   open;               /* a result is */
static uint64_t   results, bytes;
static unsigned   finished, readied;


int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int        whole;
    uint64_t   first;

    if (size < 2) {
        return 0;
    }

    whole = said(data + 2, size - 2, SIZE_MAX, SBX_INIT_BUFFER);
    first = sum;

    must(said(data + 2, size - 2, (size_t) data[0] + 1,
              4096 + sizeof(sbx_frame_t) + (size_t) data[1] * 256) == whole);
    must(sum == first);

    return 0;
}


static void
mix(const void *p, size_t n)
{
    const uint8_t  *s;

    for (s = p; n != 0; n--, s++) {
        sum = (sum ^ *s) * KERNEL_MIX;
    }
}


static int
said(const uint8_t *data, size_t size, size_t step, size_t room)
{
    int                  rc;
    size_t               n;
    uint8_t             *buf;
    sbx_code_call_t     *run;
    sbx_code_parser_t   *p;
    sbx_code_context_t  *context;

    context = calloc(1, sizeof(sbx_code_context_t));
    run = calloc(1, sizeof(sbx_code_call_t));
    must(context != NULL && run != NULL);

    context->sources[0].fd = -1;
    context->sources[1].fd = -1;
    context->run = run;
    context->executions = KERNEL_RUN;
    context->kernel = SBX_KERNEL_RUNNING;
    run->sent = 1;
    run->context = context;
    run->call.fd = 0;
    p = &context->parser;
    sum = 14695981039346656037u;
    whole_sum = sum;
    limit = room;
    value = 0;
    open = 0;
    results = 0;
    bytes = 0;
    finished = 0;
    readied = 0;
    rc = 0;

    while (size > 0 && rc != -1) {
        n = size < step ? size : step;

        /* what was left, and what came, in a block of its very size */

        buf = malloc(p->end - p->start + n);
        must(buf != NULL);

        if (p->buf != NULL) {
            memcpy(buf, p->buf + p->start, p->end - p->start);
            free(p->buf);
        }

        memcpy(buf + p->end - p->start, data, n);
        p->end = p->end - p->start + n;
        p->start = 0;
        p->buf = buf;
        data += n;
        size -= n;

        for ( ;; ) {
            rc = sbx_code_parse(context);
            must(p->start <= p->end);

            if (rc == -1) {
                break;
            }

            if (rc == 0) {
                if (run->out_end == 0) {
                    break;
                }

                /* the call takes all that there was */

                run->out_end = 0;
            }
        }

        must(run->results <= SBX_RESULTS_MAX);
    }

    /* a line that never ends is not waited for */

    must(rc == -1 || p->state == SBX_CODE_VALUE
         || p->end - p->start <= SBX_CODE_LINE_MAX);

    /* of a result that is malformed as much may have gone as had come */

    if (rc == -1) {
        sum = whole_sum;

    } else {
        mix(&run->ran.flags, sizeof(run->ran.flags));
        mix(&run->results, sizeof(run->results));
    }

    mix(&finished, sizeof(finished));
    mix(&readied, sizeof(readied));

    free(p->buf);
    free(run);
    free(context);

    return rc;
}


/* ---- of init ------------------------------------------------------------ */


int
sbx_code_room(sbx_code_call_t *call, size_t need)
{
    must(need <= limit);

    return limit - call->out_end >= need;
}


void
sbx_code_put(sbx_code_call_t *call, sbx_frame_type_t type, const void *p,
    size_t n, const void *p2, size_t n2)
{
    uint8_t           *frame;
    const char        *name;
    sbx_f_field_t      field;
    sbx_f_result_t     result;

    must(n + n2 <= SBX_FRAME_MAX);
    must(call->out_end + sizeof(sbx_frame_t) + n + n2
         <= SBX_INIT_BUFFER);
    call->out_end += sizeof(sbx_frame_t) + n + n2;

    frame = malloc(n + n2 + 1);
    must(frame != NULL);
    memcpy(frame, p, n);

    if (n2 != 0) {
        memcpy(frame + n, p2, n2);
    }

    switch (type) {

    case SBX_F_RESULT:
        must(!open && sbx_wire_check_result(frame, n + n2, &result) == 0);
        open = 1;
        results++;
        mix(frame, n + n2);
        break;

    case SBX_F_FIELD:
        must(open && value == 0);
        must(sbx_wire_check_field(frame, n + n2, &field, &name) == 0);
        value = field.size;
        open = field.name_len != 0;
        mix(frame, n + n2);
        whole_sum = open ? whole_sum : sum;
        break;

    case SBX_F_PIECE:
        must(open && n + n2 != 0 && n + n2 <= value);
        value -= n + n2;
        bytes += n + n2;
        must(bytes <= SBX_RESULTS_MAX);
        mix(frame, n + n2);
        break;

    default:
        abort();
    }

    free(frame);
}


void
sbx_code_ready(sbx_code_context_t *context)
{
    (void) context;
    readied++;
}


/* The next run has the next number. */

void
sbx_code_finish(sbx_code_context_t *context)
{
    must(!open && value == 0);
    finished++;
    context->executions++;
    context->run->results = 0;
    context->run->failed = 0;
    bytes = 0;
}
