#include "json_parser.h"
#include "sandbox_quota.h"

#include <inttypes.h>
#include <string.h>


static int sbx_json_bind_string(sbx_json_parser_t *p,
    const sbx_json_field_t *field, void *value, const sbx_json_scalar_t *s);
static int sbx_json_bind_bool(sbx_json_parser_t *p,
    const sbx_json_field_t *field, void *value, const sbx_json_scalar_t *s);
static int sbx_json_bind_count(sbx_json_parser_t *p,
    const sbx_json_field_t *field, void *value, const sbx_json_scalar_t *s);
static int sbx_json_bind_limit(sbx_json_parser_t *p,
    const sbx_json_field_t *field, void *value, const sbx_json_scalar_t *s);
static int sbx_json_bind_command(sbx_json_parser_t *p,
    const sbx_json_field_t *field, void *value, const sbx_json_scalar_t *s);
static int sbx_json_bind_network(sbx_json_parser_t *p,
    const sbx_json_field_t *field, void *value, const sbx_json_scalar_t *s);
static int sbx_json_bind_scalar(sbx_json_parser_t *p,
    const sbx_json_field_t *field, void *value, const sbx_json_scalar_t *s);
static int sbx_json_bind_any(sbx_json_parser_t *p,
    const sbx_json_field_t *field, void *value, const sbx_json_scalar_t *s);


const sbx_json_type_row_t  sbx_json_types[] = {
    [SBX_JSON_STRING]  = { "must be a string", sbx_json_bind_string, 0, 0 },
    [SBX_JSON_BOOL]    = { "must be true or false", sbx_json_bind_bool,
                           0, 0 },
    [SBX_JSON_COUNT]   = { "must be an integer", sbx_json_bind_count, 0, 0 },
    [SBX_JSON_LIMIT]   = { "must be a number", sbx_json_bind_limit, 0, 0 },
    [SBX_JSON_STRINGS] = { "must be an array of strings", NULL, 1, 0 },
    [SBX_JSON_MAP]     = { "must be an object of strings", NULL, 0, 1 },
    [SBX_JSON_OBJECT]  = { "must be an object", NULL, 0, 1 },
    [SBX_JSON_COMMAND] = { "must be a string or an array of strings",
                           sbx_json_bind_command, 1, 0 },
    [SBX_JSON_NETWORK] = { "must be true, false or an object",
                           sbx_json_bind_network, 0, 1 },
    [SBX_JSON_OBJECTS] = { "must be an array of objects", NULL, 1, 0 },
    [SBX_JSON_SCALAR]  = { "must be a string or a number",
                           sbx_json_bind_scalar, 0, 0 },
    [SBX_JSON_ANY]     = { "", sbx_json_bind_any, 1, 1 }
};


/* Binders: one value into its place; 1, or 0 after sbx_json_fail(). */

static int
sbx_json_bind_string(sbx_json_parser_t *p, const sbx_json_field_t *field,
    void *value, const sbx_json_scalar_t *s)
{
    if (s->kind != SBX_JSON_TEXT) {
        return sbx_json_fail(p, "must be a string");
    }

    return sbx_json_bind_scalar(p, field, value, s);
}


static int
sbx_json_bind_scalar(sbx_json_parser_t *p, const sbx_json_field_t *field,
    void *value, const sbx_json_scalar_t *s)
{
    if (s->kind != SBX_JSON_TEXT && s->kind != SBX_JSON_NUMBER) {
        return sbx_json_fail(p, "must be a string or a number");
    }

    if (s->len < field->min) {
        return sbx_json_fail(p, field->min == 1
                                ? "must not be empty"
                                : "must be at least %" PRIu64 " bytes long",
                             field->min);
    }

    if (field->max != 0 && s->len > field->max) {
        return sbx_json_fail(p, "must be at most %" PRIu64 " bytes long",
                             field->max);
    }

    sbx_json_copy(p, value, s->s, s->len);

    return 1;
}


static int
sbx_json_bind_bool(sbx_json_parser_t *p, const sbx_json_field_t *field,
    void *value, const sbx_json_scalar_t *s)
{
    (void) field;

    if (s->kind != SBX_JSON_TRUTH) {
        return sbx_json_fail(p, "must be true or false");
    }

    *(uint32_t *) value = s->truth;

    return 1;
}


static int
sbx_json_bind_count(sbx_json_parser_t *p, const sbx_json_field_t *field,
    void *value, const sbx_json_scalar_t *s)
{
    size_t    i;
    uint64_t  n, max, digit;

    /* the two highest values stand for "left out" and "unlimited" */

    max = (field->max == 0) ? SBX_UNLIMITED - 1 : field->max;
    n = 0;

    if (s->kind != SBX_JSON_NUMBER) {
        goto wrong;
    }

    for (i = 0; i < s->len; i++) {
        if (s->s[i] < '0' || s->s[i] > '9') {
            goto wrong;
        }

        digit = (uint64_t) (s->s[i] - '0');

        if (digit > max || n > (max - digit) / 10) {
            goto wrong;
        }

        n = n * 10 + digit;
    }

    if (n < field->min) {
        goto wrong;
    }

    *(uint64_t *) value = n;

    return 1;

wrong:

    if (field->max == 0) {
        return sbx_json_fail(p, "must be an integer of at least %" PRIu64,
                             field->min);
    }

    return sbx_json_fail(p, "must be an integer from %" PRIu64 " to %" PRIu64,
                         field->min, field->max);
}


static const sbx_limit_t *
sbx_json_limit(const sbx_json_field_t *field)
{
    size_t              len;
    const sbx_limit_t  *limit;

    len = strlen(field->limit);
    limit = sbx_limit_find(field->limit, len, 1);

    return limit != NULL ? limit : sbx_quota_find(field->limit, len, 1);
}


static int
sbx_json_bind_limit(sbx_json_parser_t *p, const sbx_json_field_t *field,
    void *value, const sbx_json_scalar_t *s)
{
    sbx_error_t         e;
    const sbx_limit_t  *limit;

    limit = sbx_json_limit(field);

    if (limit == NULL) {
        p->failed = 1;
        (void) sbx_error(p->error, 0, SBX_E_INTERNAL,
                         "no limit is called %s", field->limit);
        return 0;
    }

    if (s->kind == SBX_JSON_TEXT) {

        /* the words that directives take are none of JSON's: null is */

        if (limit->unit != SBX_UNIT_BYTES) {
            return sbx_json_fail(p, "must be a number");
        }

        if (s->len == 0 || s->s[0] < '0' || s->s[0] > '9') {
            return sbx_json_fail(p, "must be bytes or a size such as "
                                 "\"512MB\"");
        }

    } else if (s->kind != SBX_JSON_NUMBER) {
        return sbx_json_fail(p, limit->unit == SBX_UNIT_BYTES
                                ? "must be bytes or a size such as \"512MB\""
                                : "must be a number");
    }

    if (sbx_limit_number(limit, s->s, s->len, value, &e) != 0) {
        return sbx_json_fail(p, "%s%s", e.text,
                             field->nullable && limit->unlimited_ok
                             ? ", or null" : "");
    }

    return 1;
}


static int
sbx_json_bind_command(sbx_json_parser_t *p, const sbx_json_field_t *field,
    void *value, const sbx_json_scalar_t *s)
{
    sbx_json_command_t  *command;

    (void) field;

    if (s->kind != SBX_JSON_TEXT) {
        return sbx_json_fail(p, "must be a string or an array of strings");
    }

    command = value;
    command->is_array = 0;
    sbx_json_copy(p, &command->shell, s->s, s->len);

    return 1;
}


static int
sbx_json_bind_network(sbx_json_parser_t *p, const sbx_json_field_t *field,
    void *value, const sbx_json_scalar_t *s)
{
    sbx_json_network_t  *network;

    (void) field;

    if (s->kind != SBX_JSON_TRUTH) {
        return sbx_json_fail(p, "must be true, false or an object");
    }

    network = value;
    network->mode = s->truth ? SBX_NETWORK_ALL : SBX_NETWORK_NONE;

    return 1;
}


static int
sbx_json_bind_any(sbx_json_parser_t *p, const sbx_json_field_t *field,
    void *value, const sbx_json_scalar_t *s)
{
    (void) p;
    (void) field;
    (void) value;
    (void) s;

    return 1;
}


/* The row under the cursor has its value. */

void
sbx_json_bound(sbx_json_frame_t *frame)
{
    const sbx_json_field_t  *field;

    field = frame->field;
    frame->bound |= (uint64_t) 1 << (field - frame->fields);

    if (field->seen != 0) {
        *(uint32_t *) (void *) (frame->target + field->seen) = 1;
    }
}


static int
sbx_json_null(sbx_json_parser_t *p, sbx_json_frame_t *frame)
{
    const sbx_limit_t       *limit;
    const sbx_json_field_t  *field;

    field = frame->field;

    if (field->type == SBX_JSON_ANY && !field->nullable) {
        sbx_json_bound(frame);
        return 1;
    }

    if (!field->nullable) {
        return sbx_json_fail(p, "%s, not null",
                             sbx_json_types[field->type].wanted);
    }

    if (field->type != SBX_JSON_LIMIT) {
        return 1;
    }

    limit = sbx_json_limit(field);

    if (limit != NULL && limit->unlimited_ok) {
        *(uint64_t *) (void *) (frame->target + field->offset) =
                                                              SBX_UNLIMITED;
        sbx_json_bound(frame);
    }

    return 1;
}


int
sbx_json_into_fields(sbx_json_parser_t *p, sbx_json_frame_t *frame,
    const sbx_json_scalar_t *s)
{
    const sbx_json_field_t     *field;
    const sbx_json_type_row_t  *type;

    field = frame->field;
    type = &sbx_json_types[field->type];

    if (s->kind == SBX_JSON_NULL) {
        return sbx_json_null(p, frame);
    }

    if (type->bind == NULL) {
        return sbx_json_fail(p, "%s", type->wanted);
    }

    if (!type->bind(p, field, frame->target + field->offset, s)) {
        return 0;
    }

    sbx_json_bound(frame);

    return 1;
}
