/*
 * Between parts, and within one, the same thing is looked for: a line's end,
 * two dashes and the boundary.  A part of it that turns out to be none is
 * content, and since only its first byte is a CR, none of it can be the
 * beginning of another.  What was matched at the end of one piece is given
 * out of the delimiter itself once the next piece says that it was content.
 */

#include "multipart.h"

#include <string.h>
#include <strings.h>


enum {
    SBX_MULTIPART_BODY,               /* or before the first part */
    SBX_MULTIPART_SUFFIX,             /* after the boundary */
    SBX_MULTIPART_DASH,
    SBX_MULTIPART_PADDING,
    SBX_MULTIPART_LINE,               /* its LF */
    SBX_MULTIPART_HEAD,
    SBX_MULTIPART_LAST,               /* END is to be told */
    SBX_MULTIPART_EPILOGUE,
    SBX_MULTIPART_FAULT
};


static sbx_multipart_event_t sbx_multipart_body(sbx_multipart_t *m,
    const uint8_t **p, const uint8_t *end, const uint8_t **data,
    size_t *len);
static sbx_multipart_event_t sbx_multipart_search(sbx_multipart_t *m,
    const uint8_t **pp, const uint8_t *end, const uint8_t **data,
    size_t *len);
static sbx_multipart_event_t sbx_multipart_held(sbx_multipart_t *m,
    size_t n, const uint8_t **data, size_t *len);
static sbx_multipart_event_t sbx_multipart_suffix(sbx_multipart_t *m,
    const uint8_t **p, const uint8_t **data, size_t *len);
static sbx_multipart_event_t sbx_multipart_over(sbx_multipart_t *m,
    int state);
static sbx_multipart_event_t sbx_multipart_head(sbx_multipart_t *m,
    const uint8_t **p, const uint8_t *end);
static int sbx_multipart_headers(sbx_multipart_t *m);
static int sbx_multipart_header(sbx_multipart_t *m, char *line, char *end);
static int sbx_multipart_disposition(sbx_multipart_t *m, char *p, char *end);
static int sbx_multipart_parameter(char **pp, char *end,
    sbx_multipart_text_t *name, sbx_multipart_text_t *value);
static size_t sbx_multipart_quoted(char **pp, const char *end);
static int sbx_multipart_extended(sbx_multipart_text_t *value);
static size_t sbx_multipart_decode(char *s, size_t len, int all);
static sbx_multipart_event_t sbx_multipart_fault(sbx_multipart_t *m,
    const char *fault);


static int
sbx_multipart_is(const sbx_multipart_text_t *s, const char *word)
{
    return s->data != NULL && s->len == strlen(word)
           && strncasecmp(s->data, word, s->len) == 0;
}


static char *
sbx_multipart_space(char *p, const char *end)
{
    while (p < end && (*p == ' ' || *p == '\t')) {
        p++;
    }

    return p;
}


static char *
sbx_multipart_token(char *p, const char *end)
{
    while (p < end && (uint8_t) *p > ' ' && *p != 0x7f
           && strchr("()<>@,;:\\\"/[]?=", *p) == NULL)
    {
        p++;
    }

    return p;
}


int
sbx_multipart_init(sbx_multipart_t *m, const void *type, size_t len)
{
    int                   rc;
    size_t                i;
    char                 *p, *end;
    sbx_multipart_text_t  name, value, boundary;

    static const char     form[] = "multipart/form-data";

    memset(m, 0, offsetof(sbx_multipart_t, head));
    memset(&m->name, 0, sizeof(m->name));
    memset(&m->filename, 0, sizeof(m->filename));
    m->fault = NULL;

    if (len < sizeof(form) - 1
        || strncasecmp(type, form, sizeof(form) - 1) != 0)
    {
        return 1;
    }

    if (len > SBX_MULTIPART_HEAD_MAX) {
        return -1;
    }

    memcpy(m->head, type, len);
    end = m->head + len;
    p = sbx_multipart_space(m->head + sizeof(form) - 1, end);

    if (p < end && *p != ';') {
        return 1;
    }

    memset(&boundary, 0, sizeof(boundary));

    while ((rc = sbx_multipart_parameter(&p, end, &name, &value)) == 1) {
        if (!sbx_multipart_is(&name, "boundary")) {
            continue;
        }

        if (boundary.data != NULL) {
            return -1;
        }

        boundary = value;
    }

    if (rc != 0 || boundary.len == 0
        || boundary.len > SBX_MULTIPART_BOUNDARY
        || boundary.data[boundary.len - 1] == ' ')
    {
        return -1;
    }

    for (i = 0; i < boundary.len; i++) {
        if ((uint8_t) boundary.data[i] < ' '
            || (uint8_t) boundary.data[i] > 0x7e)
        {
            return -1;
        }
    }

    memcpy(m->delimiter, "\r\n--", 4);
    memcpy(m->delimiter + 4, boundary.data, boundary.len);
    m->delimiter_len = 4 + boundary.len;

    /* where it may be content after all, with the dash that follows it */

    m->delimiter[m->delimiter_len] = '-';

    /* the first one needs no line before it */

    m->matched = 2;
    m->skip = 2;

    return 0;
}


sbx_multipart_event_t
sbx_multipart_next(sbx_multipart_t *m, const uint8_t **p,
    const uint8_t *end, const uint8_t **data, size_t *len)
{
    sbx_multipart_event_t  event;

    for ( ;; ) {
        event = SBX_MULTIPART_MORE;

        if (m->state == SBX_MULTIPART_FAULT) {
            return SBX_MULTIPART_BROKEN;
        }

        if (m->state == SBX_MULTIPART_LAST) {
            m->state = SBX_MULTIPART_EPILOGUE;
            return SBX_MULTIPART_END;
        }

        if (*p == end) {
            return SBX_MULTIPART_MORE;
        }

        switch (m->state) {

        case SBX_MULTIPART_BODY:
            event = sbx_multipart_body(m, p, end, data, len);
            break;

        case SBX_MULTIPART_SUFFIX:
        case SBX_MULTIPART_DASH:
            event = sbx_multipart_suffix(m, p, data, len);
            break;

        case SBX_MULTIPART_PADDING:
            if (**p == '\r') {
                m->state = SBX_MULTIPART_LINE;

            } else if (**p != ' ' && **p != '\t') {
                event = sbx_multipart_fault(m, "a boundary's line does not "
                                               "end after it");
            }

            (*p)++;
            break;

        case SBX_MULTIPART_LINE:
            if (**p != '\n') {
                event = sbx_multipart_fault(m, "a boundary's line does not "
                                               "end after it");
            }

            (*p)++;
            m->state = (event == SBX_MULTIPART_MORE) ? SBX_MULTIPART_HEAD
                                                     : SBX_MULTIPART_FAULT;
            m->head_len = 0;
            break;

        case SBX_MULTIPART_HEAD:
            event = sbx_multipart_head(m, p, end);
            break;

        default:
            *p = end;
            break;
        }

        if (event != SBX_MULTIPART_MORE) {
            return event;
        }
    }
}


static sbx_multipart_event_t
sbx_multipart_body(sbx_multipart_t *m, const uint8_t **p,
    const uint8_t *end, const uint8_t **data, size_t *len)
{
    if (m->matched == 0) {
        return sbx_multipart_search(m, p, end, data, len);
    }

    while (m->matched < m->delimiter_len && *p < end
           && **p == m->delimiter[m->matched])
    {
        m->matched++;
        (*p)++;
    }

    if (m->matched == m->delimiter_len) {
        m->state = SBX_MULTIPART_SUFFIX;
        return SBX_MULTIPART_MORE;
    }

    return (*p == end) ? SBX_MULTIPART_MORE
                       : sbx_multipart_held(m, m->matched, data, len);
}


/* What is content without any doubt. */

static sbx_multipart_event_t
sbx_multipart_search(sbx_multipart_t *m, const uint8_t **pp,
    const uint8_t *end, const uint8_t **data, size_t *len)
{
    size_t          n;
    const uint8_t  *p, *start, *cr;

    start = *pp;

    for (p = start; p < end; p = cr + n) {
        cr = memchr(p, '\r', (size_t) (end - p));

        if (cr == NULL) {
            p = end;
            break;
        }

        for (n = 1; n < m->delimiter_len && cr + n < end; n++) {
            if (cr[n] != m->delimiter[n]) {
                break;
            }
        }

        if (cr + n == end || n == m->delimiter_len) {
            m->matched = n;
            *pp = cr + n;
            p = cr;
            break;
        }
    }

    if (m->matched == 0) {
        *pp = end;
    }

    if (!m->in_part || p == start) {
        return SBX_MULTIPART_MORE;
    }

    *data = start;
    *len = (size_t) (p - start);

    return SBX_MULTIPART_DATA;
}


/* The first n bytes of the delimiter were content. */

static sbx_multipart_event_t
sbx_multipart_held(sbx_multipart_t *m, size_t n, const uint8_t **data,
    size_t *len)
{
    *data = m->delimiter + m->skip;
    *len = n - m->skip;

    m->state = SBX_MULTIPART_BODY;
    m->matched = 0;
    m->skip = 0;

    return (m->in_part && *len != 0) ? SBX_MULTIPART_DATA
                                     : SBX_MULTIPART_MORE;
}


/* Another boundary may begin as this one does. */

static sbx_multipart_event_t
sbx_multipart_suffix(sbx_multipart_t *m, const uint8_t **p,
    const uint8_t **data, size_t *len)
{
    uint8_t  ch;

    ch = **p;

    if (m->state == SBX_MULTIPART_DASH) {

        if (ch != '-') {
            return sbx_multipart_held(m, m->delimiter_len + 1, data, len);
        }

        (*p)++;

        return sbx_multipart_over(m, SBX_MULTIPART_LAST);
    }

    switch (ch) {

    case '-':
        (*p)++;
        m->state = SBX_MULTIPART_DASH;
        return SBX_MULTIPART_MORE;

    case '\r':
        (*p)++;
        return sbx_multipart_over(m, SBX_MULTIPART_LINE);

    case ' ':
    case '\t':
        (*p)++;
        return sbx_multipart_over(m, SBX_MULTIPART_PADDING);

    default:
        return sbx_multipart_held(m, m->delimiter_len, data, len);
    }
}


static sbx_multipart_event_t
sbx_multipart_over(sbx_multipart_t *m, int state)
{
    int  in_part;

    in_part = m->in_part;

    m->state = state;
    m->in_part = 0;
    m->matched = 0;
    m->skip = 0;

    return in_part ? SBX_MULTIPART_PART_END : SBX_MULTIPART_MORE;
}


static sbx_multipart_event_t
sbx_multipart_head(sbx_multipart_t *m, const uint8_t **p, const uint8_t *end)
{
    char    *head;
    size_t   n;

    head = m->head;

    while (*p < end) {

        if (m->head_len == SBX_MULTIPART_HEAD_MAX) {
            return sbx_multipart_fault(m, "the headers of a part are too "
                                          "long");
        }

        head[m->head_len++] = (char) *(*p)++;
        n = m->head_len;

        if (head[n - 1] != '\n'
            || !((n == 2 && head[0] == '\r')
                 || (n >= 4 && memcmp(head + n - 4, "\r\n\r\n", 4) == 0)))
        {
            continue;
        }

        if (++m->parts > SBX_MULTIPART_PARTS_MAX) {
            return sbx_multipart_fault(m, "it has too many parts");
        }

        if (sbx_multipart_headers(m) != 0) {
            m->state = SBX_MULTIPART_FAULT;
            return SBX_MULTIPART_BROKEN;
        }

        /* nothing at all may be between headers and boundary */

        m->state = SBX_MULTIPART_BODY;
        m->in_part = 1;
        m->matched = 2;
        m->skip = 2;

        return SBX_MULTIPART_PART;
    }

    return SBX_MULTIPART_MORE;
}


static int
sbx_multipart_headers(sbx_multipart_t *m)
{
    char     *p, *end, *stop;
    uint8_t   ch;

    memset(&m->name, 0, sizeof(m->name));
    memset(&m->filename, 0, sizeof(m->filename));

    end = m->head + m->head_len - 2;

    for (p = m->head; p < end; p = stop + 2) {

        for (stop = p; *stop != '\r'; stop++) {
            ch = (uint8_t) *stop;

            if ((ch < ' ' && ch != '\t') || ch == 0x7f) {
                break;
            }
        }

        if (stop[0] != '\r' || stop[1] != '\n' || *p == ' ' || *p == '\t') {
            m->fault = "a header of a part has a control character, or goes "
                       "over two lines";
            return -1;
        }

        if (sbx_multipart_header(m, p, stop) != 0) {
            return -1;
        }
    }

    return 0;
}


static int
sbx_multipart_header(sbx_multipart_t *m, char *line, char *end)
{
    char                  *p;
    sbx_multipart_text_t   name, value;

    p = sbx_multipart_token(line, end);

    name.data = line;
    name.len = (size_t) (p - line);

    if (name.len == 0 || p == end || *p != ':') {
        m->fault = "a header of a part has no name";
        return -1;
    }

    p = sbx_multipart_space(p + 1, end);

    while (end > p && (end[-1] == ' ' || end[-1] == '\t')) {
        end--;
    }

    if (sbx_multipart_is(&name, "content-transfer-encoding")) {
        value.data = p;
        value.len = (size_t) (end - p);

        if (sbx_multipart_is(&value, "binary")
            || sbx_multipart_is(&value, "8bit")
            || sbx_multipart_is(&value, "7bit"))
        {
            return 0;
        }

        m->fault = "a part has a Content-Transfer-Encoding";
        return -1;
    }

    if (!sbx_multipart_is(&name, "content-disposition")) {
        return 0;
    }

    if (sbx_multipart_disposition(m, p, end) != 0) {
        m->fault = "a part's Content-Disposition is malformed";
        return -1;
    }

    return 0;
}


static int
sbx_multipart_disposition(sbx_multipart_t *m, char *p, char *end)
{
    int                    rc;
    sbx_multipart_text_t   type, name, value, extended, *to;

    if (m->name.data != NULL || m->filename.data != NULL) {
        return -1;
    }

    memset(&extended, 0, sizeof(extended));
    type.data = p;
    p = sbx_multipart_token(p, end);
    type.len = (size_t) (p - type.data);

    if (!sbx_multipart_is(&type, "form-data")) {
        return 0;
    }

    p = sbx_multipart_space(p, end);

    if (p < end && *p != ';') {
        return -1;
    }

    while ((rc = sbx_multipart_parameter(&p, end, &name, &value)) == 1) {

        if (sbx_multipart_is(&name, "name")) {
            to = &m->name;

        } else if (sbx_multipart_is(&name, "filename")) {
            to = &m->filename;

        } else if (sbx_multipart_is(&name, "filename*")) {
            to = &extended;

        } else {
            continue;
        }

        if (to->data != NULL) {
            return -1;
        }

        *to = value;

        if (to != &extended) {
            to->len = sbx_multipart_decode((char *) to->data, to->len, 0);
        }
    }

    if (extended.data != NULL) {

        if (sbx_multipart_extended(&extended) != 0) {
            return -1;
        }

        m->filename = extended;
    }

    return rc;
}


/* "; name=value"; 1, 0 at the end, -1. */

static int
sbx_multipart_parameter(char **pp, char *end, sbx_multipart_text_t *name,
    sbx_multipart_text_t *value)
{
    char  *p;

    p = sbx_multipart_space(*pp, end);

    if (p == end) {
        return 0;
    }

    if (*p != ';') {
        return -1;
    }

    p = sbx_multipart_space(p + 1, end);

    /* nothing after a last semicolon */

    if (p == end) {
        *pp = p;
        return 0;
    }

    name->data = p;
    p = sbx_multipart_token(p, end);
    name->len = (size_t) (p - name->data);

    if (name->len == 0 || p == end || *p != '=') {
        return -1;
    }

    p++;
    value->data = p;

    if (p < end && *p == '"') {
        value->data = ++p;
        value->len = sbx_multipart_quoted(&p, end);

        if (p == NULL) {
            return -1;
        }

    } else {
        p = sbx_multipart_token(p, end);
        value->len = (size_t) (p - value->data);

        if (value->len == 0) {
            return -1;
        }
    }

    *pp = p;

    return 1;
}


/*
 * Up to the closing quote, in place; *pp is after that, or NULL where there
 * is none.  A backslash that quotes nothing is one: names have them.
 */

static size_t
sbx_multipart_quoted(char **pp, const char *end)
{
    char    *p, *to;
    size_t   len;

    to = *pp;

    for (p = *pp; p < end && *p != '"'; p++) {
        if (*p == '\\' && p + 1 < end && (p[1] == '"' || p[1] == '\\')) {
            p++;
        }

        *to++ = *p;
    }

    len = (size_t) (to - *pp);
    *pp = (p < end) ? p + 1 : NULL;

    return len;
}


/* RFC 5987: UTF-8'language'text */

static int
sbx_multipart_extended(sbx_multipart_text_t *value)
{
    char    *p;
    size_t   len;

    static const char  charset[] = "utf-8'";

    len = sizeof(charset) - 1;

    if (value->len < len || strncasecmp(value->data, charset, len) != 0) {
        return -1;
    }

    p = memchr(value->data + len, '\'', value->len - len);

    if (p == NULL) {
        return -1;
    }

    p++;
    value->len -= (size_t) (p - value->data);
    value->data = p;
    value->len = sbx_multipart_decode(p, value->len, 1);

    return 0;
}


static int
sbx_multipart_digit(char ch)
{
    if (ch >= '0' && ch <= '9') {
        return ch - '0';
    }

    ch |= 0x20;

    return (ch >= 'a' && ch <= 'f') ? ch - 'a' + 10 : -1;
}


/* Escapes of the three characters that forms escape, or all, in place. */

static size_t
sbx_multipart_decode(char *s, size_t len, int all)
{
    int      high, low, ch;
    size_t   i;
    char    *to;

    to = s;

    for (i = 0; i < len; i++) {
        *to = s[i];

        if (s[i] == '%' && len - i > 2) {
            high = sbx_multipart_digit(s[i + 1]);
            low = sbx_multipart_digit(s[i + 2]);
            ch = (high == -1 || low == -1) ? -1 : high * 16 + low;

            if (ch == '"' || ch == '\r' || ch == '\n' || (all && ch != -1)) {
                *to = (char) ch;
                i += 2;
            }
        }

        to++;
    }

    return (size_t) (to - s);
}


static sbx_multipart_event_t
sbx_multipart_fault(sbx_multipart_t *m, const char *fault)
{
    m->state = SBX_MULTIPART_FAULT;
    m->fault = fault;

    return SBX_MULTIPART_BROKEN;
}
