#include "json_parser.h"

#include <inttypes.h>
#include <string.h>


#define SBX_JSON_HOSTS_MAX     256

/* what yajl_alloc_funcs cannot tell: how long a block is */
#define SBX_JSON_HEADER        16


static const sbx_json_field_t  sbx_json_network_fields[] = {

    { .name = "allow", .type = SBX_JSON_STRINGS, .max = SBX_JSON_HOSTS_MAX,
      .offset = offsetof(sbx_json_network_t, allow),
      .seen = offsetof(sbx_json_network_t, allow_seen) },

    { .name = "deny", .type = SBX_JSON_STRINGS, .max = SBX_JSON_HOSTS_MAX,
      .offset = offsetof(sbx_json_network_t, deny) },

    { .name = NULL }
};


void *
sbx_json_palloc(sbx_json_parser_t *p, size_t size)
{
    void  *m;

    m = p->alloc->alloc(p->alloc->ctx, size);

    if (m == NULL) {
        longjmp(p->out_of_memory, 1);
    }

    return m;
}


static void *
sbx_json_yajl_malloc(void *ctx, size_t size)
{
    uint8_t  *m;

    if (size > SIZE_MAX - SBX_JSON_HEADER) {
        longjmp(((sbx_json_parser_t *) ctx)->out_of_memory, 1);
    }

    m = sbx_json_palloc(ctx, size + SBX_JSON_HEADER);
    memcpy(m, &size, sizeof(size_t));

    return m + SBX_JSON_HEADER;
}


static void *
sbx_json_yajl_realloc(void *ctx, void *old, size_t size)
{
    void    *m;
    size_t   had;

    if (old == NULL) {
        return sbx_json_yajl_malloc(ctx, size);
    }

    memcpy(&had, (uint8_t *) old - SBX_JSON_HEADER, sizeof(size_t));

    if (size <= had) {
        return old;
    }

    /* yajl doubles its buffers by itself, so copies stay linear */

    m = sbx_json_yajl_malloc(ctx, size);
    memcpy(m, old, had);

    return m;
}


static void
sbx_json_yajl_free(void *ctx, void *old)
{
    (void) ctx;
    (void) old;
}


void
sbx_json_yajl_funcs(sbx_json_parser_t *p, yajl_alloc_funcs *funcs)
{
    funcs->malloc = sbx_json_yajl_malloc;
    funcs->realloc = sbx_json_yajl_realloc;
    funcs->free = sbx_json_yajl_free;
    funcs->ctx = p;
}


void
sbx_json_copy(sbx_json_parser_t *p, sbx_json_str_t *to, const void *s,
    size_t len)
{
    char  *m;

    if (len == 0) {
        to->data = "";
        to->len = 0;
        return;
    }

    m = sbx_json_palloc(p, len + 1);
    memcpy(m, s, len);
    m[len] = '\0';

    to->data = m;
    to->len = len;
}


/* A place for one more element; room doubles. */

static void *
sbx_json_push(sbx_json_parser_t *p, sbx_json_frame_t *frame, size_t size)
{
    void    *m;
    size_t   room;

    if (frame->nelts == frame->room) {
        room = (frame->room == 0) ? 8 : 2 * frame->room;
        m = sbx_json_palloc(p, room * size);

        if (frame->nelts != 0) {
            memcpy(m, frame->elts, frame->nelts * size);
        }

        frame->elts = m;
        frame->room = room;
    }

    m = (uint8_t *) frame->elts + frame->nelts * size;
    memset(m, 0, size);
    frame->nelts++;

    return m;
}


static int
sbx_json_text_ok(sbx_json_parser_t *p)
{
    if (yajl_get_bytes_consumed(p->yajl) > p->bad) {
        return sbx_json_fail(p, "%s", p->why);
    }

    return 1;
}


/*
 * One more name or value: each costs much more than its bytes do, and whoever
 * parses serves nobody else meanwhile.
 */

static int
sbx_json_count(sbx_json_parser_t *p)
{
    if (p->tokens == SBX_JSON_TOKENS_MAX) {
        p->depth = 0;                         /* the fault is the whole's */
        return sbx_json_fail(p, "has more than %d names and values; send "
                             "less at once", SBX_JSON_TOKENS_MAX);
    }

    p->tokens++;

    return 1;
}


/* One more pair or element is to come: is there room by the row's max? */

static int
sbx_json_room(sbx_json_parser_t *p, sbx_json_frame_t *frame, const char *what)
{
    uint64_t  max;

    max = (frame->filled != NULL) ? frame->filled->max : 0;

    if (max != 0 && frame->nelts >= max) {
        p->depth--;                           /* the fault is the whole's */
        return sbx_json_fail(p, "has more than %" PRIu64 " %s", max, what);
    }

    return 1;
}


static int
sbx_json_scalar(sbx_json_parser_t *p, const sbx_json_scalar_t *s)
{
    sbx_json_str_t    *elt;
    sbx_json_pair_t   *pair;
    sbx_json_frame_t  *frame;

    if (p->depth == 0) {
        return sbx_json_fail(p, "must be an object");
    }

    if (!sbx_json_count(p)) {
        return 0;
    }

    frame = &p->frames[p->depth - 1];

    switch (frame->in) {

    case SBX_JSON_IN_FIELDS:
        return sbx_json_into_fields(p, frame, s);

    case SBX_JSON_IN_MAP:
        if (s->kind != SBX_JSON_TEXT) {
            return sbx_json_fail(p, "must be a string");
        }

        pair = (sbx_json_pair_t *) frame->elts + frame->nelts - 1;
        sbx_json_copy(p, &pair->value, s->s, s->len);
        return 1;

    case SBX_JSON_IN_LIST:
        if (s->kind != SBX_JSON_TEXT) {
            return sbx_json_fail(p, "must be a string");
        }

        if (!sbx_json_room(p, frame, "elements")) {
            return 0;
        }

        elt = sbx_json_push(p, frame, sizeof(sbx_json_str_t));
        sbx_json_copy(p, elt, s->s, s->len);
        return 1;

    case SBX_JSON_IN_OBJECTS:
        return sbx_json_fail(p, "must be an object");

    case SBX_JSON_IN_SKIPPED_LIST:
        frame->nelts++;
        return 1;

    case SBX_JSON_IN_SKIPPED:
        return 1;
    }

    return 0;
}


/* Opening an object or an array. */

static sbx_json_frame_t *
sbx_json_enter(sbx_json_parser_t *p, sbx_json_in_t in)
{
    sbx_json_frame_t  *frame;

    if (p->depth == SBX_JSON_DEPTH) {
        (void) sbx_json_fail(p, "is nested deeper than %d", SBX_JSON_DEPTH);
        return NULL;
    }

    frame = &p->frames[p->depth++];
    memset(frame, 0, sizeof(sbx_json_frame_t));
    frame->in = in;

    return frame;
}


/*
 * An object where a row wants one.  The frame above stays as it is: frames
 * are an array, and its cursor says where this one hangs.
 */

static int
sbx_json_enter_object(sbx_json_parser_t *p, const sbx_json_field_t *field,
    uint8_t *value)
{
    sbx_json_in_t      in;
    sbx_json_frame_t  *frame;

    in = (field->type == SBX_JSON_MAP) ? SBX_JSON_IN_MAP
         : (field->type == SBX_JSON_ANY) ? SBX_JSON_IN_SKIPPED
         : SBX_JSON_IN_FIELDS;

    frame = sbx_json_enter(p, in);

    if (frame == NULL) {
        return 0;
    }

    frame->filled = field;
    frame->value = value;
    frame->target = value;
    frame->fields = field->fields;

    if (field->type == SBX_JSON_NETWORK) {
        frame->fields = sbx_json_network_fields;
        ((sbx_json_network_t *) (void *) value)->mode = SBX_NETWORK_LISTS;
    }

    return 1;
}


/* The next element; it is counted when it closes. */

static int
sbx_json_enter_element(sbx_json_parser_t *p, sbx_json_frame_t *frame)
{
    void                    *element;
    sbx_json_frame_t        *inner;
    const sbx_json_field_t  *field;

    if (!sbx_json_room(p, frame, "elements")) {
        return 0;
    }

    field = frame->filled;
    element = sbx_json_push(p, frame, field->size);
    frame->nelts--;

    if (field->element != NULL) {
        memcpy(element, field->element, field->size);
    }

    inner = sbx_json_enter(p, SBX_JSON_IN_FIELDS);

    if (inner == NULL) {
        return 0;
    }

    inner->fields = field->fields;
    inner->target = element;

    return 1;
}


static int
sbx_json_open(sbx_json_parser_t *p, unsigned array)
{
    uint8_t                 *value;
    sbx_json_in_t            in;
    sbx_json_frame_t        *frame, *inner;
    const sbx_json_field_t  *field;

    if (!sbx_json_count(p)) {
        return 0;
    }

    frame = &p->frames[p->depth - 1];

    switch (frame->in) {

    case SBX_JSON_IN_MAP:
    case SBX_JSON_IN_LIST:
        return sbx_json_fail(p, "must be a string");

    case SBX_JSON_IN_OBJECTS:
        return array ? sbx_json_fail(p, "must be an object")
                     : sbx_json_enter_element(p, frame);

    case SBX_JSON_IN_SKIPPED:
    case SBX_JSON_IN_SKIPPED_LIST:
        in = array ? SBX_JSON_IN_SKIPPED_LIST : SBX_JSON_IN_SKIPPED;
        return sbx_json_enter(p, in) != NULL;

    case SBX_JSON_IN_FIELDS:
        break;
    }

    field = frame->field;

    if (array ? !sbx_json_types[field->type].array
              : !sbx_json_types[field->type].object)
    {
        return sbx_json_fail(p, "%s", sbx_json_types[field->type].wanted);
    }

    value = frame->target + field->offset;
    sbx_json_bound(frame);

    if (!array) {
        return sbx_json_enter_object(p, field, value);
    }

    in = (field->type == SBX_JSON_ANY) ? SBX_JSON_IN_SKIPPED_LIST
         : (field->type == SBX_JSON_OBJECTS) ? SBX_JSON_IN_OBJECTS
         : SBX_JSON_IN_LIST;
    inner = sbx_json_enter(p, in);

    if (inner == NULL) {
        return 0;
    }

    inner->filled = field;
    inner->value = value;

    return 1;
}


static int
sbx_json_required_there(sbx_json_parser_t *p, sbx_json_frame_t *frame)
{
    size_t                   i;
    const sbx_json_field_t  *field;

    for (i = 0; frame->fields[i].name != NULL; i++) {
        field = &frame->fields[i];

        if (field->required && (frame->bound & ((uint64_t) 1 << i)) == 0) {
            frame->key.data = field->name;
            frame->key.len = strlen(field->name);
            frame->keyed = 1;
            return sbx_json_fail(p, "is required");
        }
    }

    return 1;
}


/* The value that just closed was an element of the frame that is now on
 * top. */

static int
sbx_json_leave(sbx_json_parser_t *p)
{
    sbx_json_frame_t  *frame;

    p->depth--;

    if (p->depth != 0) {
        frame = &p->frames[p->depth - 1];

        if (frame->in == SBX_JSON_IN_SKIPPED_LIST
            || frame->in == SBX_JSON_IN_OBJECTS)
        {
            frame->nelts++;
        }

    } else {
        p->end = yajl_get_bytes_consumed(p->yajl);
    }

    return 1;
}


/* yajl's callbacks. */

static int
sbx_json_on_null(void *ctx)
{
    sbx_json_scalar_t  s;

    memset(&s, 0, sizeof(s));
    s.kind = SBX_JSON_NULL;

    return sbx_json_scalar(ctx, &s);
}


static int
sbx_json_on_boolean(void *ctx, int truth)
{
    sbx_json_scalar_t  s;

    memset(&s, 0, sizeof(s));
    s.kind = SBX_JSON_TRUTH;
    s.truth = (truth != 0);

    return sbx_json_scalar(ctx, &s);
}


static int
sbx_json_on_number(void *ctx, const char *text, size_t len)
{
    sbx_json_scalar_t  s;

    memset(&s, 0, sizeof(s));
    s.kind = SBX_JSON_NUMBER;
    s.s = text;
    s.len = len;

    return sbx_json_scalar(ctx, &s);
}


/* What is told by text, decoded. */

static const unsigned char *
sbx_json_decoded(sbx_json_parser_t *p, const unsigned char *text, size_t *len)
{
    uint8_t  *m;

    if (!p->marked || *len == 0 || memchr(text, SBX_JSON_MARK, *len) == NULL) {
        return text;
    }

    m = sbx_json_palloc(p, *len);
    memcpy(m, text, *len);
    *len = sbx_json_unmark(m, *len);

    return m;
}


static int
sbx_json_on_string(void *ctx, const unsigned char *text, size_t len)
{
    sbx_json_scalar_t  s;

    if (!sbx_json_text_ok(ctx)) {
        return 0;
    }

    text = sbx_json_decoded(ctx, text, &len);

    memset(&s, 0, sizeof(s));
    s.kind = SBX_JSON_TEXT;
    s.s = (const char *) text;
    s.len = len;

    return sbx_json_scalar(ctx, &s);
}


static int
sbx_json_on_start_map(void *ctx)
{
    sbx_json_frame_t   *frame;
    sbx_json_parser_t  *p;

    p = ctx;

    if (p->depth != 0) {
        return sbx_json_open(p, 0);
    }

    frame = sbx_json_enter(p, SBX_JSON_IN_FIELDS);
    frame->fields = p->fields;
    frame->target = p->target;

    return 1;
}


static int
sbx_json_on_start_array(void *ctx)
{
    sbx_json_parser_t  *p;

    p = ctx;

    if (p->depth == 0) {
        return sbx_json_fail(p, "must be an object");
    }

    return sbx_json_open(p, 1);
}


static int
sbx_json_find_field(sbx_json_parser_t *p, sbx_json_frame_t *frame)
{
    size_t       i;
    const char  *name;

    for (i = 0; i < SBX_JSON_FIELDS_MAX; i++) {
        name = frame->fields[i].name;

        if (name == NULL && frame->fields[i].lax) {
            frame->field = &frame->fields[i];

            return 1;
        }

        if (name == NULL) {
            return sbx_json_fail(p, "is not a field of this object");
        }

        if (strlen(name) != frame->key.len
            || memcmp(name, frame->key.data, frame->key.len) != 0)
        {
            continue;
        }

        if (frame->given & ((uint64_t) 1 << i)) {
            return sbx_json_fail(p, "is given twice");
        }

        frame->given |= (uint64_t) 1 << i;
        frame->field = &frame->fields[i];

        return 1;
    }

    p->failed = 1;
    (void) sbx_error(p->error, 0, SBX_E_INTERNAL,
                     "a table of fields has more than %d rows",
                     SBX_JSON_FIELDS_MAX);
    return 0;
}


/* Of an object that nobody looks at no key is kept but the last, for what may
 * be wrong after it. */

static void
sbx_json_pass_key(sbx_json_parser_t *p, sbx_json_frame_t *frame,
    const unsigned char *text, size_t len)
{
    if (len > frame->room) {
        frame->room = 2 * len;
        frame->elts = sbx_json_palloc(p, frame->room);
    }

    if (len != 0) {
        memcpy(frame->elts, text, len);
    }

    frame->key.data = frame->elts;
    frame->key.len = len;
    frame->keyed = 1;
}


static int
sbx_json_on_key(void *ctx, const unsigned char *text, size_t len)
{
    sbx_json_pair_t    *pair;
    sbx_json_frame_t   *frame;
    sbx_json_parser_t  *p;

    p = ctx;
    frame = &p->frames[p->depth - 1];
    frame->keyed = 0;

    if (!sbx_json_text_ok(p) || !sbx_json_count(p)) {
        return 0;
    }

    text = sbx_json_decoded(p, text, &len);

    if (frame->in == SBX_JSON_IN_FIELDS) {

        /* a name of the table or of the refusal: needed no longer than until
         * the next key, but the text may lie in a buffer that yajl reuses */

        sbx_json_copy(p, &frame->key, text, len);
        frame->keyed = 1;

        return sbx_json_find_field(p, frame);
    }

    if (frame->in == SBX_JSON_IN_SKIPPED) {
        sbx_json_pass_key(p, frame, text, len);

        return 1;
    }

    if (!sbx_json_room(p, frame, "pairs")) {
        return 0;
    }

    pair = sbx_json_push(p, frame, sizeof(sbx_json_pair_t));
    sbx_json_copy(p, &pair->key, text, len);
    frame->key = pair->key;
    frame->keyed = 1;

    return 1;
}


static int
sbx_json_on_end_map(void *ctx)
{
    sbx_json_map_t     *map;
    sbx_json_frame_t   *frame;
    sbx_json_parser_t  *p;

    p = ctx;
    frame = &p->frames[p->depth - 1];
    frame->keyed = 0;

    if (frame->in == SBX_JSON_IN_FIELDS) {
        return sbx_json_required_there(p, frame) && sbx_json_leave(p);
    }

    if (frame->in == SBX_JSON_IN_MAP) {

        if (!sbx_json_keys_unique(p, frame)) {
            return 0;
        }

        map = frame->value;
        map->elts = frame->elts;
        map->nelts = frame->nelts;
    }

    return sbx_json_leave(p);
}


static int
sbx_json_on_end_array(void *ctx)
{
    sbx_json_list_t     list;
    sbx_json_frame_t   *frame;
    sbx_json_parser_t  *p;
    sbx_json_command_t *command;
    sbx_json_objects_t *objects;

    p = ctx;
    frame = &p->frames[p->depth - 1];

    if (frame->in == SBX_JSON_IN_SKIPPED_LIST) {
        return sbx_json_leave(p);
    }

    list.elts = frame->elts;
    list.nelts = frame->nelts;

    (void) sbx_json_leave(p);

    if (frame->filled->type == SBX_JSON_OBJECTS) {
        objects = frame->value;
        objects->elts = list.elts;
        objects->nelts = list.nelts;
        return 1;
    }

    if (frame->filled->type != SBX_JSON_COMMAND) {
        *(sbx_json_list_t *) frame->value = list;
        return 1;
    }

    if (list.nelts == 0) {
        return sbx_json_fail(p, "must have at least one element");
    }

    command = frame->value;
    command->is_array = 1;
    command->argv = list;

    return 1;
}


static const yajl_callbacks  sbx_json_callbacks = {
    sbx_json_on_null,
    sbx_json_on_boolean,
    NULL,                         /* integer */
    NULL,                         /* double: numbers come as text */
    sbx_json_on_number,
    sbx_json_on_string,
    sbx_json_on_start_map,
    sbx_json_on_key,
    sbx_json_on_end_map,
    sbx_json_on_start_array,
    sbx_json_on_end_array
};


static int
sbx_json_parse(sbx_json_parser_t *p, const void *text, size_t size)
{
    char         *words;
    size_t        i;
    uint8_t      *marked;
    yajl_status   status;

    static const char  newline[] = "\n", blank[] = " \t\n\v\f\r";

    marked = NULL;

    if (size != 0 && memchr(text, '\\', size) != NULL) {
        p->marked = 1;
        marked = sbx_json_palloc(p, size);
        memcpy(marked, text, size);
    }

    sbx_json_scan(p, text, size, marked);

    text = p->marked ? marked : text;
    status = yajl_parse(p->yajl, text, size);

    if (status == yajl_status_ok) {
        status = yajl_complete_parse(p->yajl);
    }

    if (p->failed) {
        return -1;
    }

    if (status != yajl_status_ok) {
        words = (char *) yajl_get_error(p->yajl, 0, text, size);
        words[strcspn(words, newline)] = '\0';
        p->depth = 0;
        (void) sbx_json_fail(p, "is not JSON (%s)", words);
        return -1;
    }

    if (p->bad < size) {
        (void) sbx_json_fail(p, "%s", p->why);
        return -1;
    }

    /* of what begins after the document and does not end yajl says nothing */

    for (i = p->end; text != NULL && i < size; i++) {
        if (memchr(blank, ((const char *) text)[i], sizeof(blank) - 1)
            == NULL)
        {
            (void) sbx_json_fail(p, "is not JSON (something comes after it)");
            return -1;
        }
    }

    return 0;
}


int
sbx_json_bind(const void *text, size_t size, const sbx_json_field_t *fields,
    void *target, const sbx_json_alloc_t *alloc, sbx_error_t *e)
{
    yajl_alloc_funcs   funcs;
    sbx_json_parser_t  p;

    memset(&p, 0, offsetof(sbx_json_parser_t, frames));
    p.alloc = alloc;
    p.error = e;
    p.fields = fields;
    p.target = target;

    sbx_json_yajl_funcs(&p, &funcs);

    if (setjmp(p.out_of_memory) != 0) {
        return sbx_error(e, 0, SBX_E_INTERNAL, "out of memory for JSON");
    }

    p.yajl = yajl_alloc(&sbx_json_callbacks, &funcs, &p);

    /* what yajl would check is checked before it, and more strictly */

    (void) yajl_config(p.yajl, yajl_dont_validate_strings, 1);

    return sbx_json_parse(&p, text, size);
}
