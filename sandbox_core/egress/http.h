/*
 * Requests of HTTP/1: what http.c, which follows the stream, has from
 * http_head.c, which reads heads.
 */

#ifndef SBX_HTTP_H
#define SBX_HTTP_H

#include "inspect.h"


#define SBX_HTTP_HEAD_MAX    65536       /* of a request, or of trailers */
#define SBX_HTTP_HEADERS     128
#define SBX_HTTP_NAME_MAX    128         /* of a header that is added */
#define SBX_HTTP_ADDED_MAX   (SBX_HTTP_NAME_MAX + SBX_EGRESS_VALUE_MAX + 4)


typedef struct {
    const char  *p;
    size_t       n;
} sbx_http_text_t;

typedef struct {
    sbx_http_text_t   name;
    sbx_http_text_t   value;             /* no white space around it */
    sbx_http_text_t   line;              /* its end included */
    unsigned          left_out:1;
} sbx_http_field_t;

typedef struct {
    sbx_http_text_t   method;
    sbx_http_text_t   line;              /* its end included */
    unsigned          minor;             /* of the version */
    char              host[SBX_NETWORK_HOST_MAX + 3];
    unsigned          port;              /* 0: none is named */
    unsigned          chunked:1;
    unsigned          upgrade:1;         /* to a WebSocket */
    uint64_t          length;            /* of the body, if not chunked */
    sbx_http_field_t  fields[SBX_HTTP_HEADERS];
    size_t            nfields;
} sbx_http_head_t;


/*
 * A head, and trailers: whole, with the empty line, and without any CR or LF
 * that is not of a line's end.  What they give points into p.  0, or 1 and
 * why.
 */
int sbx_http_head_read(const uint8_t *p, size_t n, sbx_http_head_t *head,
    sbx_refused_t *why);
int sbx_http_trailers_read(const uint8_t *p, size_t n,
    sbx_http_head_t *head);

/* Whether the client may have that header added: 0, or 1 where what it says
 * could make it go elsewhere, or nowhere.  Leaves out the client's own. */
int sbx_http_head_added(sbx_http_head_t *head,
    const sbx_eg_header_t *header);
/* Leaves out what asks for another protocol. */
void sbx_http_head_stay(sbx_http_head_t *head);

/* What goes on to the server; the bytes written, never more than the head and
 * SBX_HTTP_ADDED_MAX. */
size_t sbx_http_head_write(const sbx_http_head_t *head,
    const sbx_eg_header_t *header, uint8_t *out);

/* 1: the same name, as servers that make variables of them see it too. */
int sbx_http_named(const sbx_http_text_t *text, const char *name);


#endif
