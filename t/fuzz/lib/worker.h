/*
 * A worker in this process: requests go through the module as nginx's own
 * functions lead them there, and what they ask of the core arrives where the
 * target is the broker, and the init behind it.
 */

#ifndef NGX_FUZZ_WORKER_H
#define NGX_FUZZ_WORKER_H

#include "ngx_http_sandbox.h"

#include "fuzz.h"


/*
 * Requests to an API, and what comes of them: the text of the first up to
 * 0x1d, whose head is as HTTP/1.1 has it and whose body is all that follows;
 * then messages of a byte of their kind, one of what is wrong with them, two
 * of their length, and bytes.  The kind is a frame's type, or one of these.
 * Whatever comes: each request ends once, its JSON is JSON, no line of the log
 * is another's, and nothing is left of it.
 */
#define WORKER_ASKED     0x1d
#define WORKER_CLIENT    0xff          /* bytes of the client */
#define WORKER_END       0xfe          /* the call's other side is gone */
#define WORKER_TIME      0xfd          /* seconds pass: as many as bytes */
#define WORKER_REFUSAL   0xfc          /* ERROR, of the code of the first */
#define WORKER_NEXT      0xfb          /* the text of the next request */

/* of the second byte */
#define WORKER_FILE      0x01          /* it brings a file's descriptor */
#define WORKER_OTHER     0x02          /* or one of another kind */
#define WORKER_RAW       0x04          /* bytes as they are: no frame */
#define WORKER_SIZED     0x08          /* of that very length */
#define WORKER_OLDER     0x10          /* to the call before the last */
#define WORKER_FOUR      0x20          /* it brings a socket of IPv4 */
#define WORKER_SIX       0x40          /* or of IPv6 */

void worker_input(ngx_uint_t api, const uint8_t *data, size_t size);

/* The configuration of a context, for targets of it. */
ngx_conf_t *worker_conf(void);
/* A request with nothing in it, and its end. */
ngx_http_request_t *worker_request(void);
void worker_request_free(ngx_http_request_t *r);
/* Its head; NGX_OK, or it is none. */
ngx_int_t worker_head(ngx_http_request_t *r, u_char *p, size_t n);
/* Levels of what was logged, as bits, since it was last asked. */
ngx_uint_t worker_logged(void);


#endif
