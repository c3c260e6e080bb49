/*
 * Both ends of the framed protocol, without any event loop: an incremental
 * decoder and encoders into buffers.  nginx's side and init's side share
 * them, so that one fuzz target covers both.
 */

#ifndef SBX_WIRE_H
#define SBX_WIRE_H

#include "sandbox_task.h"

#include <sys/types.h>


/*
 * An incremental decoder.  The caller owns buf (size >= sizeof(sbx_frame_t)
 * + SBX_FRAME_MAX).  Fill at buf + end, up to size - end bytes, advance end,
 * then call sbx_wire_next() until it returns 0.
 */
typedef struct {
    uint8_t   *buf;
    size_t     size;
    size_t     start;
    size_t     end;
} sbx_wire_t;

void sbx_wire_init(sbx_wire_t *w, void *buf, size_t size);

/*
 * 1: *frame and *payload (valid until the next fill) are the next frame;
 * 0: more bytes are needed (what is left was moved to the front);
 * -1: the stream is broken (length over SBX_FRAME_MAX).
 */
int sbx_wire_next(sbx_wire_t *w, sbx_frame_t *frame, const uint8_t **payload);

/* Writes a frame's header; returns sizeof(sbx_frame_t). */
size_t sbx_wire_header(void *buf, sbx_frame_type_t type, size_t length);

/*
 * sendmsg/recvmsg of one datagram or stream piece with descriptors, all
 * close-on-exec.  *nfds: in capacity, out received; a message with more is
 * refused and closed (-1, EMSGSIZE), as is a truncated one.  -1 with errno.
 */
ssize_t sbx_wire_send(int fd, const void *buf, size_t n, const int *fds,
    unsigned nfds, int flags);
ssize_t sbx_wire_recv(int fd, void *buf, size_t size, int *fds,
    unsigned *nfds, int flags);

/*
 * For a receiver that must not wait: close() of a stranger's descriptor may.
 * All that came are in fds, also of a message that is refused; the caller
 * sees to each.
 */
#define SBX_WIRE_FDS_ALL   253        /* the kernel's SCM_MAX_FD */

ssize_t sbx_wire_recv_all(int fd, void *buf, size_t size,
    int fds[SBX_WIRE_FDS_ALL], unsigned *nfds, int flags);

/*
 * The same for one that may be out of numbers: what there is none for would be
 * closed by recvmsg() itself, so it is looked at first, and what is closed
 * then has another in the queue.  Descriptors of bytes behind those that are
 * taken are shown as well: of these *ours is 0, and they will come again.
 * Does not wait; EMSGSIZE also where others read the same socket.
 */
ssize_t sbx_wire_recv_looked(int fd, void *buf, size_t size,
    int fds[SBX_WIRE_FDS_ALL], unsigned *nfds, int *ours);

/*
 * Structural checks of received control datagrams: magic, version, exact
 * size for the op, every string NUL terminated inside its array, session id
 * characters.  0 or -1 with SBX_E_INVALID naming the field.  The body (what
 * follows sbx_call_t) is checked too.
 */
int sbx_wire_check_call(const void *buf, size_t n, sbx_error_t *e);
int sbx_wire_check_task(const void *buf, size_t n, sbx_error_t *e);

/* Payload checks for frames that carry fixed parts and strings; -1 if any
 * length is off.  The strings' addresses are set into payload. */
int sbx_wire_check_file(const uint8_t *p, size_t n, sbx_f_file_t *file,
    const char **path, const char **path2);
int sbx_wire_check_entry(const uint8_t *p, size_t n, sbx_f_entry_t *entry,
    const char **path, const char **owner, const char **group,
    const char **target);
/* Where in these their further strings are: "KEY\0VALUE\0" ..., "K=V\0" ... */
#define sbx_wire_file_metadata(file, path)                                    \
    ((path) + (file)->path_len + (file)->path2_len)
#define sbx_wire_entry_metadata(entry, target)                                \
    ((target) + (entry)->target_len)
#define sbx_wire_state_env(state, args)  ((args) + (state)->args_len)
int sbx_wire_metadata_ok(const char *p, size_t n);
int sbx_wire_check_line(const uint8_t *p, size_t n, sbx_f_line_t *line,
    const char **message, const char **fields);
int sbx_wire_check_change(const uint8_t *p, size_t n, sbx_f_change_t *change,
    const char **path);
int sbx_wire_check_match(const uint8_t *p, size_t n, sbx_f_match_t *match,
    const char **path, const char **text);
/* args is state->argc strings, each with its NUL. */
int sbx_wire_check_state(const uint8_t *p, size_t n, sbx_f_state_t *state,
    const char **cwd, const char **tag, const char **args);

/* Frames of code: of a call, and what init answers.  A context's strings are
 * its id, its language and its directory. */
int sbx_wire_check_code(const uint8_t *p, size_t n, sbx_f_code_t *code,
    const char **context, const char **language, const char **cwd);
int sbx_wire_check_context(const uint8_t *p, size_t n,
    sbx_f_context_t *context, const char **id, const char **language,
    const char **cwd);
int sbx_wire_check_result(const uint8_t *p, size_t n, sbx_f_result_t *result);
int sbx_wire_check_field(const uint8_t *p, size_t n, sbx_f_field_t *field,
    const char **name);
int sbx_wire_check_ran(const uint8_t *p, size_t n, sbx_f_ran_t *ran);

/* 1 if s may be the name of a context, or of a language. */
int sbx_context_ok(const char *s, size_t len);
int sbx_language_ok(const char *s, size_t len);

/* 1 if s is a well-formed session id: ^i[a-z0-9]{20,40}$ within SBX_ID_MAX */
int sbx_session_id_ok(const char *s, size_t len);
/* 1 if s matches the contract's pattern for tenant_id and user_id. */
int sbx_name_ok(const char *s, size_t len);


#endif
