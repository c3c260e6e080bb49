/*
 * The head of a request, read as strictly as the strictest server does: where
 * two servers could differ about whom it is for or where it ends, it is
 * refused.
 */

#include "http.h"

#include <arpa/inet.h>
#include <string.h>
#include <strings.h>


#define SBX_HTTP_METHOD_MAX    32
#define SBX_HTTP_LENGTH_MAX    18        /* digits */


typedef enum {
    SBX_HTTP_HOST,
    SBX_HTTP_LENGTH,
    SBX_HTTP_ENCODING,
    SBX_HTTP_EXPECT,
    SBX_HTTP_CONNECTION,
    SBX_HTTP_UPGRADE,
    SBX_HTTP_SETTINGS,
    SBX_HTTP_ANY
} sbx_http_kind_t;

/* What one head has had. */
typedef struct {
    sbx_http_text_t  target;             /* authority of it; n 0: none */
    unsigned         target_port;        /* what its scheme means */
    unsigned         host:1;
    unsigned         length:1;
    unsigned         encoding:1;
    unsigned         expect:1;
    unsigned         upgrades;
} sbx_http_seen_t;


static int sbx_http_request_line(sbx_http_text_t *rest, sbx_http_head_t *head,
    sbx_http_seen_t *seen);
static int sbx_http_target(const sbx_http_text_t *target,
    const sbx_http_head_t *head, sbx_http_seen_t *seen);
static int sbx_http_fields(sbx_http_text_t *rest, sbx_http_head_t *head);
static int sbx_http_field(const sbx_http_text_t *line,
    sbx_http_field_t *field);
static int sbx_http_field_means(sbx_http_head_t *head,
    sbx_http_field_t *field, sbx_http_seen_t *seen);
static int sbx_http_length(const sbx_http_text_t *value,
    sbx_http_head_t *head);
static int sbx_http_connection(const sbx_http_text_t *value);
static int sbx_http_lists(const sbx_http_text_t *value, const char *name);
static int sbx_http_whom(sbx_http_head_t *head, const sbx_http_seen_t *seen);
static int sbx_http_authority(const sbx_http_text_t *text, char *host,
    unsigned *port);
static sbx_http_kind_t sbx_http_kind(const sbx_http_text_t *name);
static void sbx_http_line(sbx_http_text_t *rest, sbx_http_text_t *line);
static int sbx_http_word(sbx_http_text_t *rest, sbx_http_text_t *word);
static int sbx_http_is(const sbx_http_text_t *text, const char *s);
static int sbx_http_is_any_case(const sbx_http_text_t *text, const char *s);
static int sbx_http_tchar(char ch);


static const char * const  sbx_http_names[] = {
    [SBX_HTTP_HOST] = "host",
    [SBX_HTTP_LENGTH] = "content-length",
    [SBX_HTTP_ENCODING] = "transfer-encoding",
    [SBX_HTTP_EXPECT] = "expect",
    [SBX_HTTP_CONNECTION] = "connection",
    [SBX_HTTP_UPGRADE] = "upgrade",
    [SBX_HTTP_SETTINGS] = "http2-settings"
};


int
sbx_http_head_read(const uint8_t *p, size_t n, sbx_http_head_t *head,
    sbx_refused_t *why)
{
    size_t           i;
    sbx_http_seen_t  seen;
    sbx_http_text_t  rest;

    memset(head, 0, sizeof(*head));
    memset(&seen, 0, sizeof(seen));
    *why = SBX_REFUSED_PROTOCOL;

    rest.p = (const char *) p;
    rest.n = n;

    if (sbx_http_request_line(&rest, head, &seen) != 0
        || sbx_http_fields(&rest, head) != 0)
    {
        return 1;
    }

    for (i = 0; i < head->nfields; i++) {

        if (sbx_http_field_means(head, &head->fields[i], &seen) != 0) {
            return 1;
        }
    }

    if ((seen.length && seen.encoding)
        || (seen.encoding && head->minor == 0))
    {
        return 1;
    }

    if (!seen.host) {
        *why = SBX_REFUSED_HIDDEN;
        return 1;
    }

    if (sbx_http_whom(head, &seen) != 0) {
        return 1;
    }

    /* once, and nothing of the client's before its answer */

    head->upgrade = head->upgrade && seen.upgrades == 1 && !head->chunked
                    && head->length == 0 && head->minor == 1;

    return 0;
}


int
sbx_http_trailers_read(const uint8_t *p, size_t n, sbx_http_head_t *head)
{
    size_t           i;
    sbx_http_text_t  rest;

    memset(head, 0, sizeof(*head));

    rest.p = (const char *) p;
    rest.n = n;

    if (sbx_http_fields(&rest, head) != 0) {
        return 1;
    }

    for (i = 0; i < head->nfields; i++) {

        if (sbx_http_kind(&head->fields[i].name) != SBX_HTTP_ANY) {
            return 1;
        }
    }

    return 0;
}


int
sbx_http_head_added(sbx_http_head_t *head, const sbx_eg_header_t *header)
{
    size_t             i;
    sbx_http_field_t  *field;

    /* the answer would be what the server was sent */

    if (sbx_http_is(&head->method, "TRACE")
        || sbx_http_is(&head->method, "TRACK"))
    {
        return 1;
    }

    if (header->size > SBX_EGRESS_VALUE_MAX
        || strlen(header->name) > SBX_HTTP_NAME_MAX)
    {
        return 1;
    }

    for (i = 0; i < header->size; i++) {

        if (header->value[i] == '\r' || header->value[i] == '\n'
            || header->value[i] == '\0')
        {
            return 1;
        }
    }

    for (i = 0; i < head->nfields; i++) {
        field = &head->fields[i];

        if (sbx_http_named(&field->name, header->name)) {
            field->left_out = 1;

        } else if (sbx_http_kind(&field->name) == SBX_HTTP_CONNECTION
                   && sbx_http_lists(&field->value, header->name))
        {
            return 1;
        }
    }

    return 0;
}


void
sbx_http_head_stay(sbx_http_head_t *head)
{
    size_t  i;

    head->upgrade = 0;

    for (i = 0; i < head->nfields; i++) {

        switch (sbx_http_kind(&head->fields[i].name)) {

        case SBX_HTTP_UPGRADE:
        case SBX_HTTP_SETTINGS:
            head->fields[i].left_out = 1;
            break;

        case SBX_HTTP_HOST:
        case SBX_HTTP_LENGTH:
        case SBX_HTTP_ENCODING:
        case SBX_HTTP_EXPECT:
        case SBX_HTTP_CONNECTION:
        case SBX_HTTP_ANY:
            break;
        }
    }
}


size_t
sbx_http_head_write(const sbx_http_head_t *head,
    const sbx_eg_header_t *header, uint8_t *out)
{
    size_t                   i, n;
    uint8_t                 *p;
    const sbx_http_field_t  *field;

    p = out;

    if (head->line.n != 0) {
        p = mempcpy(p, head->line.p, head->line.n);
    }

    if (header != NULL) {
        n = strlen(header->name);
        p = mempcpy(p, header->name, n);
        p = mempcpy(p, ": ", 2);

        if (header->size != 0) {
            p = mempcpy(p, header->value, header->size);
        }

        p = mempcpy(p, "\r\n", 2);
    }

    for (i = 0; i < head->nfields; i++) {
        field = &head->fields[i];

        if (!field->left_out) {
            p = mempcpy(p, field->line.p, field->line.n);
        }
    }

    p = mempcpy(p, "\r\n", 2);

    return (size_t) (p - out);
}


int
sbx_http_named(const sbx_http_text_t *text, const char *name)
{
    size_t  i;
    char    a, b;

    if (strlen(name) != text->n) {
        return 0;
    }

    for (i = 0; i < text->n; i++) {
        a = text->p[i];
        b = name[i];

        a = (char) ((a >= 'A' && a <= 'Z') ? a | 0x20 : a);
        b = (char) ((b >= 'A' && b <= 'Z') ? b | 0x20 : b);

        if ((a == '_' ? '-' : a) != (b == '_' ? '-' : b)) {
            return 0;
        }
    }

    return 1;
}


/*
 * ---- the request line ------------------------------------------------------
 */

static int
sbx_http_request_line(sbx_http_text_t *rest, sbx_http_head_t *head,
    sbx_http_seen_t *seen)
{
    size_t           i;
    sbx_http_text_t  line, target;

    head->line.p = rest->p;
    sbx_http_line(rest, &line);
    head->line.n = line.n + 2;

    if (sbx_http_word(&line, &head->method) != 0
        || sbx_http_word(&line, &target) != 0)
    {
        return -1;
    }

    if (sbx_http_is(&line, "HTTP/1.1")) {
        head->minor = 1;

    } else if (!sbx_http_is(&line, "HTTP/1.0")) {
        return -1;
    }

    if (head->method.n > SBX_HTTP_METHOD_MAX
        || sbx_http_is(&head->method, "CONNECT"))
    {
        return -1;
    }

    for (i = 0; i < head->method.n; i++) {

        if ((head->method.p[i] < 'A' || head->method.p[i] > 'Z')
            && head->method.p[i] != '-' && head->method.p[i] != '_'
            && (i == 0 || head->method.p[i] < '0' || head->method.p[i] > '9'))
        {
            return -1;
        }
    }

    return sbx_http_target(&target, head, seen);
}


static int
sbx_http_target(const sbx_http_text_t *target, const sbx_http_head_t *head,
    sbx_http_seen_t *seen)
{
    size_t  i, at;

    static const struct {
        const char  *scheme;
        unsigned     port;
    } schemes[] = {
        { "http://", 80 },
        { "https://", 443 }
    };

    for (i = 0; i < target->n; i++) {

        if ((uint8_t) target->p[i] <= ' ' || target->p[i] == 0x7f) {
            return -1;
        }
    }

    if (target->p[0] == '/') {
        return 0;
    }

    if (sbx_http_is(target, "*")) {
        return sbx_http_is(&head->method, "OPTIONS") ? 0 : -1;
    }

    for (i = 0; i < sbx_nelts(schemes); i++) {
        at = strlen(schemes[i].scheme);

        if (target->n > at
            && strncasecmp(target->p, schemes[i].scheme, at) == 0)
        {
            break;
        }
    }

    if (i == sbx_nelts(schemes)) {
        return -1;
    }

    seen->target.p = target->p + at;
    seen->target_port = schemes[i].port;

    while (at < target->n && strchr("/?#", target->p[at]) == NULL) {
        seen->target.n++;
        at++;
    }

    return (seen->target.n != 0) ? 0 : -1;
}


/*
 * ---- headers ---------------------------------------------------------------
 */

/* All up to the empty line, after which nothing is left. */

static int
sbx_http_fields(sbx_http_text_t *rest, sbx_http_head_t *head)
{
    sbx_http_text_t    line;
    sbx_http_field_t  *field;

    for ( ;; ) {
        sbx_http_line(rest, &line);

        if (line.n == 0) {
            return rest->n == 0 ? 0 : -1;
        }

        if (head->nfields == SBX_HTTP_HEADERS) {
            return -1;
        }

        field = &head->fields[head->nfields++];

        if (sbx_http_field(&line, field) != 0) {
            return -1;
        }

        field->line.p = line.p;
        field->line.n = line.n + 2;
    }
}


static int
sbx_http_field(const sbx_http_text_t *line, sbx_http_field_t *field)
{
    size_t            i;
    sbx_http_text_t  *value;

    field->name.p = line->p;

    for (i = 0; i < line->n && sbx_http_tchar(line->p[i]); i++) { /* void */ }

    field->name.n = i;

    /* a line that begins with a space would go on with the one before it */

    if (i == 0 || i == line->n || line->p[i] != ':') {
        return -1;
    }

    value = &field->value;
    value->p = line->p + i + 1;
    value->n = line->n - i - 1;

    for (i = 0; i < value->n; i++) {

        if (((uint8_t) value->p[i] < ' ' && value->p[i] != '\t')
            || value->p[i] == 0x7f)
        {
            return -1;
        }
    }

    while (value->n != 0 && (value->p[0] == ' ' || value->p[0] == '\t')) {
        value->p++;
        value->n--;
    }

    while (value->n != 0 && (value->p[value->n - 1] == ' '
                             || value->p[value->n - 1] == '\t'))
    {
        value->n--;
    }

    return 0;
}


static int
sbx_http_field_means(sbx_http_head_t *head, sbx_http_field_t *field,
    sbx_http_seen_t *seen)
{
    sbx_http_kind_t         kind;
    const sbx_http_text_t  *value;

    kind = sbx_http_kind(&field->name);
    value = &field->value;

    /* "Content_Length" is the other to some, and nothing to most */

    if (kind != SBX_HTTP_ANY
        && memchr(field->name.p, '_', field->name.n) != NULL)
    {
        return -1;
    }

    switch (kind) {

    case SBX_HTTP_HOST:

        if (seen->host) {
            return -1;
        }

        seen->host = 1;

        return sbx_http_authority(value, head->host, &head->port);

    case SBX_HTTP_LENGTH:

        if (seen->length) {
            return -1;
        }

        seen->length = 1;

        return sbx_http_length(value, head);

    case SBX_HTTP_ENCODING:

        if (seen->encoding || !sbx_http_is(value, "chunked")) {
            return -1;
        }

        seen->encoding = 1;
        head->chunked = 1;

        return 0;

    case SBX_HTTP_EXPECT:

        if (seen->expect || !sbx_http_is_any_case(value, "100-continue")) {
            return -1;
        }

        seen->expect = 1;

        return 0;

    case SBX_HTTP_CONNECTION:
        return sbx_http_connection(value);

    case SBX_HTTP_UPGRADE:
        seen->upgrades++;
        head->upgrade = (unsigned) sbx_http_is_any_case(value, "websocket")
                        & 1;
        return 0;

    case SBX_HTTP_SETTINGS:
        field->left_out = 1;
        return 0;

    case SBX_HTTP_ANY:
        return 0;
    }

    return -1;
}


static int
sbx_http_length(const sbx_http_text_t *value, sbx_http_head_t *head)
{
    size_t  i;

    if (value->n == 0 || value->n > SBX_HTTP_LENGTH_MAX) {
        return -1;
    }

    for (i = 0; i < value->n; i++) {

        if (value->p[i] < '0' || value->p[i] > '9') {
            return -1;
        }

        head->length = head->length * 10 + (uint64_t) (value->p[i] - '0');
    }

    return 0;
}


/* It lists what a server is to take for itself: never what says whom a
 * request is for, and where it ends. */

static int
sbx_http_connection(const sbx_http_text_t *value)
{
    return (sbx_http_lists(value, sbx_http_names[SBX_HTTP_HOST])
            || sbx_http_lists(value, sbx_http_names[SBX_HTTP_LENGTH])
            || sbx_http_lists(value, sbx_http_names[SBX_HTTP_ENCODING])
            || sbx_http_lists(value, sbx_http_names[SBX_HTTP_EXPECT]))
           ? -1 : 0;
}


/* 1: a word of the value, whatever is between them, is the name. */

static int
sbx_http_lists(const sbx_http_text_t *value, const char *name)
{
    size_t           i;
    sbx_http_text_t  word;

    for (i = 0; i < value->n; i++) {
        word.p = value->p + i;

        for (word.n = 0; i < value->n && sbx_http_tchar(value->p[i]); i++) {
            word.n++;
        }

        if (sbx_http_named(&word, name)) {
            return 1;
        }
    }

    return 0;
}


/*
 * ---- whom it is for --------------------------------------------------------
 */

/* What the target names is what Host names. */

static int
sbx_http_whom(sbx_http_head_t *head, const sbx_http_seen_t *seen)
{
    char      host[SBX_NETWORK_HOST_MAX + 3];
    unsigned  port, named;

    if (seen->target.n == 0) {
        return 0;
    }

    if (sbx_http_authority(&seen->target, host, &port) != 0) {
        return -1;
    }

    named = head->port != 0 ? head->port : seen->target_port;
    port = port != 0 ? port : seen->target_port;

    return (strcmp(host, head->host) == 0 && port == named) ? 0 : -1;
}


/* "name", "192.0.2.1", "[2001:db8::1]", with ":port" or without. */

static int
sbx_http_authority(const sbx_http_text_t *text, char *host, unsigned *port)
{
    char              address[INET6_ADDRSTRLEN];
    size_t            i, n;
    uint8_t           bytes[16];
    const char       *p, *end;

    p = text->p;
    *port = 0;

    if (text->n > 1 && p[0] == '[') {
        end = memchr(p, ']', text->n);

        if (end == NULL
            || sbx_copy_string(address, sizeof(address), p + 1,
                               (size_t) (end - p) - 1) != 0
            || inet_pton(AF_INET6, address, bytes) != 1
            || inet_ntop(AF_INET6, bytes, host, SBX_NETWORK_HOST_MAX) == NULL)
        {
            return -1;
        }

        n = (size_t) (end - p) + 1;

    } else {
        end = text->n != 0 ? memchr(p, ':', text->n) : NULL;
        n = end != NULL ? (size_t) (end - p) : text->n;

        if (sbx_copy_string(address, sizeof(address), p, n) == 0
            && inet_pton(AF_INET, address, bytes) == 1)
        {
            (void) inet_ntop(AF_INET, bytes, host, SBX_NETWORK_HOST_MAX);

        } else {

            /* as DNS has it, with its root */

            i = n - (n > 1 && p[n - 1] == '.');

            if (i == 0 || i > SBX_NETWORK_HOST_MAX
                || sbx_network_host_ok(p, i, host) != 1)
            {
                return -1;
            }
        }
    }

    if (n == text->n) {
        return 0;
    }

    if (p[n] != ':' || text->n - n < 2 || text->n - n > 6) {
        return -1;
    }

    for (i = n + 1; i < text->n; i++) {

        if (p[i] < '0' || p[i] > '9') {
            return -1;
        }

        *port = *port * 10 + (unsigned) (p[i] - '0');
    }

    return (*port != 0 && *port <= 65535) ? 0 : -1;
}


/*
 * ---- words -----------------------------------------------------------------
 */

static sbx_http_kind_t
sbx_http_kind(const sbx_http_text_t *name)
{
    size_t  i;

    for (i = 0; i < sbx_nelts(sbx_http_names); i++) {

        if (sbx_http_named(name, sbx_http_names[i])) {
            return (sbx_http_kind_t) i;
        }
    }

    return SBX_HTTP_ANY;
}


/* A line without its end, which is there. */

static void
sbx_http_line(sbx_http_text_t *rest, sbx_http_text_t *line)
{
    const char  *end;

    line->p = rest->p;
    end = rest->n != 0 ? memchr(rest->p, '\r', rest->n) : NULL;

    if (end == NULL) {
        line->n = rest->n;
        rest->p += rest->n;
        rest->n = 0;
        return;
    }

    line->n = (size_t) (end - rest->p);
    rest->p = end + 2;
    rest->n -= line->n + 2;
}


/* One that a single space follows. */

static int
sbx_http_word(sbx_http_text_t *rest, sbx_http_text_t *word)
{
    const char  *end;

    word->p = rest->p;
    end = rest->n != 0 ? memchr(rest->p, ' ', rest->n) : NULL;

    if (end == NULL || end == rest->p) {
        return -1;
    }

    word->n = (size_t) (end - rest->p);
    rest->p = end + 1;
    rest->n -= word->n + 1;

    return 0;
}


static int
sbx_http_is(const sbx_http_text_t *text, const char *s)
{
    return strlen(s) == text->n && memcmp(text->p, s, text->n) == 0;
}


static int
sbx_http_is_any_case(const sbx_http_text_t *text, const char *s)
{
    return strlen(s) == text->n && strncasecmp(text->p, s, text->n) == 0;
}


static int
sbx_http_tchar(char ch)
{
    return (ch >= 'a' && ch <= 'z') || (ch >= 'A' && ch <= 'Z')
           || (ch >= '0' && ch <= '9')
           || (ch != '\0' && strchr("!#$%&'*+-.^_`|~", ch) != NULL);
}
