/*
 * What the files about ports share: _port.c gets the link and lets nginx's
 * upstream module use it, _port_request.c and _port_response.c are what goes
 * over it, each way.
 */

#ifndef _NGX_HTTP_SANDBOX_V1_PORT_H_INCLUDED_
#define _NGX_HTTP_SANDBOX_V1_PORT_H_INCLUDED_


#include "ngx_http_sandbox_v1.h"


#define NGX_HTTP_SANDBOX_V1_PORT_WORDS   32   /* in all of Connection */


/* What a Connection header names. */

typedef struct {
    ngx_str_t                     word[NGX_HTTP_SANDBOX_V1_PORT_WORDS];
    ngx_uint_t                    nelts;
} ngx_http_sandbox_v1_port_words_t;

typedef struct {
    ngx_http_request_t           *request;
    ngx_http_sandbox_call_t      *call;
    ngx_str_t                     name;       /* for logs */
    ngx_uint_t                    port;
    ngx_connection_t             *socket;     /* until upstream has it */
    ngx_str_t                     upgrade;    /* what the client asks for */
    ngx_uint_t                    received;   /* pieces in this turn */
    ngx_uint_t                    sent;

    /* the request */
    ngx_chain_t                  *free;
    ngx_chain_t                  *busy;

    /* the response */
    ngx_http_status_t             status;
    ngx_http_chunked_t            chunks;
    ngx_array_t                   headers;    /* of ngx_table_elt_t */
    ngx_http_sandbox_v1_port_words_t   words;

    unsigned                      by_name:1;  /* it has an origin of its own */
    unsigned                      head_sent:1;
    unsigned                      begun:1;    /* upstream has the request */
    unsigned                      ended:1;    /* all of it has been said */
    unsigned                      refuses:1;  /* the link, any descriptor */
    unsigned                      length:1;   /* Content-Length has come */
    unsigned                      chunked:1;  /* Transfer-Encoding, too */
} ngx_http_sandbox_v1_port_t;


/* NGX_DECLINED: more words than there may be. */
ngx_int_t ngx_http_sandbox_v1_port_words(
    ngx_http_sandbox_v1_port_words_t *words, const ngx_str_t *value);
ngx_uint_t ngx_http_sandbox_v1_port_has_word(
    const ngx_http_sandbox_v1_port_words_t *words, const u_char *name,
    size_t len);

/* A list of names in lower case, ended by NULL; "x-*" is a beginning. */
ngx_uint_t ngx_http_sandbox_v1_port_listed(const char *const *list,
    const u_char *name, size_t len);

/* Reads Connection and Upgrade; NGX_DECLINED: it is refused as said. */
ngx_int_t ngx_http_sandbox_v1_port_check(ngx_http_sandbox_v1_port_t *port,
    sbx_error_t *e);
ngx_int_t ngx_http_sandbox_v1_port_create_request(ngx_http_request_t *r);
ngx_int_t ngx_http_sandbox_v1_port_reinit_request(ngx_http_request_t *r);

ngx_int_t ngx_http_sandbox_v1_port_status_line(ngx_http_request_t *r);
ngx_int_t ngx_http_sandbox_v1_port_filter_init(void *data);
ngx_int_t ngx_http_sandbox_v1_port_filter(void *data, ssize_t bytes);


#endif /* _NGX_HTTP_SANDBOX_V1_PORT_H_INCLUDED_ */
