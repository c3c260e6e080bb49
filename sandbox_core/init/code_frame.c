/*
 * Frames of kernels.  All of them may have been written by the code that runs
 * there: each line and size is checked, nothing is believed but that it is
 * text, and a frame is never held whole.  What names another run than the one
 * that goes on is skipped; what is no frame ends the kernel.
 */

#include "init_code.h"

#include <string.h>
#include <sys/ioctl.h>


#define SBX_FRAME_ERRORS   262144     /* bytes of SBX_RESULTS_MAX that are
                                         left for the error */


typedef enum {
    SBX_KERNEL_F_READY,
    SBX_KERNEL_F_RESULT,
    SBX_KERNEL_F_ERROR,
    SBX_KERNEL_F_END,
    SBX_KERNEL_F_MAX
} sbx_kernel_frame_t;


static int sbx_code_parse_head(sbx_code_context_t *context);
static int sbx_code_parse_field(sbx_code_context_t *context);
static int sbx_code_parse_value(sbx_code_context_t *context);
static int sbx_code_parse_lf(sbx_code_context_t *context);
static int sbx_code_parse_skip(sbx_code_context_t *context);
static int sbx_code_line(sbx_code_parser_t *p, size_t most, size_t name_most,
    size_t *name_len, size_t *size, size_t *line);
static void sbx_code_due(sbx_code_context_t *context);
static int sbx_code_begin(sbx_code_context_t *context);
static int sbx_code_captured(sbx_code_context_t *context);
static int sbx_code_complete(sbx_code_context_t *context);
static int sbx_code_mine(const sbx_code_context_t *context);


static const char  *sbx_kernel_frames[SBX_KERNEL_F_MAX] = {
    "ready", "result", "error", "end"
};


int
sbx_code_parse(sbx_code_context_t *context)
{
    switch (context->parser.state) {

    case SBX_CODE_HEAD:
        return sbx_code_parse_head(context);

    case SBX_CODE_DUE:
        context->parser.state = SBX_CODE_FIELD;
        return 1;

    case SBX_CODE_FIELD:
        return sbx_code_parse_field(context);

    case SBX_CODE_VALUE:
        return sbx_code_parse_value(context);

    case SBX_CODE_LF:
        return sbx_code_parse_lf(context);

    case SBX_CODE_SKIP:
        return sbx_code_parse_skip(context);
    }

    return -1;
}


/*
 * "name SP size LF", of which there may be so many bytes; 0: not all of it
 * has come.  The name stays where it is.
 */

static int
sbx_code_line(sbx_code_parser_t *p, size_t most, size_t name_most,
    size_t *name_len, size_t *size, size_t *line)
{
    size_t          i, n, value;
    const uint8_t  *s;

    s = p->buf + p->start;
    n = p->end - p->start;
    n = n < most ? n : most;

    for (i = 0; i < n && i <= name_most && s[i] > ' ' && s[i] <= '~'; i++) {
        /* void */
    }

    if (i == n && i <= name_most && n < most) {
        return 0;
    }

    if (i == 0 || i > name_most || i == n || s[i] != ' ') {
        return -1;
    }

    *name_len = i++;
    value = 0;
    *line = i;

    while (i < n && s[i] >= '0' && s[i] <= '9' && i - *line < 9) {
        value = value * 10 + (size_t) (s[i++] - '0');
    }

    if (i == n) {
        return n < most ? 0 : -1;
    }

    if (i == *line || s[i] != '\n') {
        return -1;
    }

    *size = value;
    *line = i + 1;

    return 1;
}


static int
sbx_code_parse_head(sbx_code_context_t *context)
{
    int                 rc;
    size_t              len, size, line;
    unsigned            type;
    sbx_code_parser_t  *p;

    p = &context->parser;

    if (p->buf == NULL || p->start == p->end) {
        return 0;
    }

    rc = sbx_code_line(p, SBX_CODE_TYPE_MAX + 11, SBX_CODE_TYPE_MAX, &len,
                       &size, &line);

    if (rc != 1) {
        return rc;
    }

    for (type = 0; type < SBX_KERNEL_F_MAX; type++) {
        if (strlen(sbx_kernel_frames[type]) == len
            && memcmp(sbx_kernel_frames[type], p->buf + p->start, len) == 0)
        {
            break;
        }
    }

    if (type == SBX_KERNEL_F_MAX || size > SBX_CODE_FRAME_MAX) {
        return -1;
    }

    p->start += line;
    p->type = type;
    p->body = size;
    p->fields = 0;
    p->passed = 0;
    p->begun = 0;
    p->id = 0;
    p->exit = 256;
    p->state = SBX_CODE_FIELD;

    if (context->run != NULL) {
        sbx_code_due(context);
    }

    return 1;
}


/* What has been written before the frame was is in the pipes by now. */

static void
sbx_code_due(sbx_code_context_t *context)
{
    int       n;
    unsigned  i;

    for (i = 0; i < 2; i++) {
        n = 0;
        context->dues[i] = 0;

        if (context->sources[i].fd != -1
            && ioctl(context->sources[i].fd, FIONREAD, &n) == 0 && n > 0)
        {
            context->dues[i] = (uint64_t) n;
            context->due = 1;
        }
    }
}


/* The frame is about the run that goes on. */

static int
sbx_code_mine(const sbx_code_context_t *context)
{
    return context->run != NULL && context->run->sent
           && context->parser.id == context->executions;
}


static int
sbx_code_parse_field(sbx_code_context_t *context)
{
    int                 rc;
    size_t              len, size, line;
    sbx_f_field_t       field;
    sbx_code_call_t    *run;
    sbx_code_parser_t  *p;

    p = &context->parser;
    run = context->run;

    if (p->body == 0) {
        return sbx_code_complete(context);
    }

    if (p->buf == NULL) {
        return 0;
    }

    rc = sbx_code_line(p, p->body < SBX_CODE_LINE_MAX ? p->body
                                                      : SBX_CODE_LINE_MAX,
                       SBX_FIELD_NAME_MAX, &len, &size, &line);

    if (rc != 1) {
        return rc;
    }

    if (size >= p->body - line) {
        return -1;
    }

    memcpy(p->name, p->buf + p->start, len);
    p->name[len] = '\0';
    p->value = size;
    p->number_len = 0;
    p->forward = 0;
    p->capture = 0;

    switch (p->type) {

    case SBX_KERNEL_F_READY:
        break;

    case SBX_KERNEL_F_END:
        p->capture = strcmp(p->name, "id") == 0
                     || strcmp(p->name, "exit") == 0;
        break;

    default:
        if (p->fields == 0 || (p->fields == 1
                               && p->type == SBX_KERNEL_F_RESULT))
        {
            if (strcmp(p->name, p->fields == 0 ? "id" : "main") != 0) {
                return -1;
            }

            p->capture = 1;
            break;
        }

        if (p->passed == SBX_RESULT_FIELDS_MAX) {
            run->ran.flags |= SBX_RAN_RESULTS_CUT;
            break;
        }

        if (!sbx_code_room(run, sizeof(sbx_frame_t) + sizeof(field) + len)) {
            return 0;
        }

        memset(&field, 0, sizeof(field));
        field.size = size;
        field.name_len = (uint32_t) len;
        sbx_code_put(run, SBX_F_FIELD, &field, sizeof(field), p->name, len);
        p->forward = 1;
        p->passed++;
    }

    if (p->capture && (size == 0 || size >= sizeof(p->number))) {
        return -1;
    }

    if (!p->forward && !p->capture) {
        context->dropped += SBX_CODE_FIELD_COST;
    }

    p->start += line;
    p->body -= line + size + 1;
    p->fields++;
    p->state = SBX_CODE_VALUE;

    return 1;
}


static int
sbx_code_parse_value(sbx_code_context_t *context)
{
    size_t              n, room;
    uint8_t            *s;
    sbx_code_call_t    *run;
    sbx_code_parser_t  *p;

    p = &context->parser;

    if (p->value == 0) {
        p->state = SBX_CODE_LF;
        return 1;
    }

    if (p->buf == NULL || p->start == p->end) {
        return 0;
    }

    s = p->buf + p->start;
    n = p->end - p->start < p->value ? p->end - p->start : p->value;
    n = n < SBX_FRAME_MAX ? n : SBX_FRAME_MAX;
    run = context->run;

    if (p->forward && run->call.fd != -1) {
        if (!sbx_code_room(run, 4096)) {
            return 0;
        }

        room = SBX_INIT_BUFFER - run->out_end - sizeof(sbx_frame_t);
        n = n < room ? n : room;
    }

    if (memchr(s, '\0', n) != NULL) {
        return -1;
    }

    if (p->forward) {
        sbx_code_put(run, SBX_F_PIECE, s, n, NULL, 0);

    } else if (p->capture) {
        memcpy(p->number + p->number_len, s, n);
        p->number_len += n;

    } else {
        context->dropped += n;
    }

    p->start += n;
    p->value -= n;

    return 1;
}


static int
sbx_code_parse_lf(sbx_code_context_t *context)
{
    sbx_code_parser_t  *p;

    p = &context->parser;

    if (p->buf == NULL || p->start == p->end) {
        return 0;
    }

    if (p->buf[p->start] != '\n') {
        return -1;
    }

    p->start++;
    p->state = SBX_CODE_FIELD;

    return p->capture ? sbx_code_captured(context) : 1;
}


static int
sbx_code_parse_skip(sbx_code_context_t *context)
{
    size_t              n;
    sbx_code_parser_t  *p;

    p = &context->parser;

    if (p->body == 0) {
        context->dropped += SBX_CODE_FRAME_COST;
        p->state = SBX_CODE_HEAD;
        return 1;
    }

    if (p->buf == NULL || p->start == p->end) {
        return 0;
    }

    n = p->end - p->start < p->body ? p->end - p->start : p->body;
    context->dropped += n;
    p->start += n;
    p->body -= n;

    return 1;
}


static int
sbx_code_captured(sbx_code_context_t *context)
{
    size_t              i;
    uint64_t            value;
    sbx_code_parser_t  *p;

    p = &context->parser;
    value = 0;

    for (i = 0; i < p->number_len; i++) {
        if (p->number[i] < '0' || p->number[i] > '9') {
            return -1;
        }

        value = value * 10 + (uint64_t) (p->number[i] - '0');
    }

    if (strcmp(p->name, "exit") == 0) {
        p->exit = value;
        return value <= 255 ? 1 : -1;
    }

    if (strcmp(p->name, "id") == 0) {
        p->id = value;

        if (p->type == SBX_KERNEL_F_END) {
            return 1;
        }

        if (!sbx_code_mine(context)) {
            p->state = SBX_CODE_SKIP;
            return 1;
        }

        return p->type == SBX_KERNEL_F_ERROR ? sbx_code_begin(context) : 1;
    }

    /* "main" */

    p->exit = value;

    return sbx_code_begin(context);
}


/* A result that would be too much is left out as a whole.  There is room for
 * this frame: that much was there before the value was read. */

static int
sbx_code_begin(sbx_code_context_t *context)
{
    uint64_t            most;
    sbx_f_result_t      result;
    sbx_code_call_t    *run;
    sbx_code_parser_t  *p;

    p = &context->parser;
    run = context->run;
    most = SBX_RESULTS_MAX;
    result.fields = 0;

    if (p->type == SBX_KERNEL_F_ERROR) {
        result.kind = SBX_RESULT_ERROR;

        if (run->failed) {
            p->state = SBX_CODE_SKIP;
            return 1;
        }

    } else {
        result.kind = p->exit != 0 ? SBX_RESULT_MAIN : SBX_RESULT_DISPLAY;
        most -= SBX_FRAME_ERRORS;
    }

    if (run->results + SBX_CODE_FRAME_COST + p->body > most) {
        run->ran.flags |= SBX_RAN_RESULTS_CUT;
        p->state = SBX_CODE_SKIP;
        return 1;
    }

    run->results += SBX_CODE_FRAME_COST + p->body;
    run->failed |= p->type == SBX_KERNEL_F_ERROR;
    p->begun = 1;
    sbx_code_put(run, SBX_F_RESULT, &result, sizeof(result), NULL, 0);

    return 1;
}


static int
sbx_code_complete(sbx_code_context_t *context)
{
    sbx_f_field_t       field;
    sbx_code_parser_t  *p;

    p = &context->parser;

    switch (p->type) {

    case SBX_KERNEL_F_READY:
        p->state = SBX_CODE_HEAD;
        context->dropped += SBX_CODE_FRAME_COST;
        sbx_code_ready(context);
        return 1;

    case SBX_KERNEL_F_END:
        if (p->fields < 2 || p->exit > 255) {
            return -1;
        }

        p->state = SBX_CODE_HEAD;
        context->dropped += SBX_CODE_FRAME_COST;

        if (sbx_code_mine(context)
            && (context->kernel == SBX_KERNEL_RUNNING || context->over))
        {
            sbx_code_finish(context);
        }

        return 1;

    default:
        if (!p->begun) {
            return -1;
        }

        memset(&field, 0, sizeof(field));

        if (!sbx_code_room(context->run, sizeof(sbx_frame_t)
                                         + sizeof(field)))
        {
            return 0;
        }

        sbx_code_put(context->run, SBX_F_FIELD, &field, sizeof(field), NULL,
                     0);
        p->state = SBX_CODE_HEAD;
        return 1;
    }
}
