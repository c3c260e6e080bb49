/* The frame decoder, structural checks, and passed descriptors. */

#include "tap.h"

#include "sandbox_util.h"
#include "wire.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>


static uint8_t  buffer[sizeof(sbx_frame_t) + SBX_FRAME_MAX];


static void
decoding(void)
{
    int             rc;
    size_t          n, i;
    uint8_t         text[64];
    sbx_wire_t      w;
    sbx_frame_t     frame;
    const uint8_t  *payload;

    n = sbx_wire_header(text, SBX_F_STDOUT, 5);
    memcpy(text + n, "hello", 5);
    n += 5;
    n += sbx_wire_header(text + n, SBX_F_END, 0);

    rc = 0;
    sbx_wire_init(&w, buffer, sizeof(buffer));

    /* a byte at a time: the worst that a stream can do */

    for (i = 0; i < n; i++) {
        w.buf[w.end++] = text[i];
        rc = sbx_wire_next(&w, &frame, &payload);

        if (i == 12) {
            ok(rc == 1 && frame.type == SBX_F_STDOUT && frame.length == 5
               && memcmp(payload, "hello", 5) == 0,
               "a frame is whole with its last byte");
            rc = sbx_wire_next(&w, &frame, &payload);
        }

        if (i + 1 < n && rc != 0) {
            ok(0, "no frame before it is whole (byte %zu)", i);
        }
    }

    ok(rc == 1 && frame.type == SBX_F_END && frame.length == 0,
       "an empty frame is whole with its header");
    ok(w.start == w.end, "nothing is left over");

    sbx_wire_init(&w, buffer, sizeof(buffer));
    w.end = sbx_wire_header(buffer, SBX_F_DATA, SBX_FRAME_MAX + 1);
    is_int(sbx_wire_next(&w, &frame, &payload), -1,
           "a frame over the maximum breaks the stream");

    sbx_wire_init(&w, buffer, sizeof(buffer));
    w.end = sbx_wire_header(buffer, SBX_F_DATA, SBX_FRAME_MAX);
    is_int(sbx_wire_next(&w, &frame, &payload), 0,
           "a frame of the maximum fits");
    w.end = sizeof(buffer);
    is_int(sbx_wire_next(&w, &frame, &payload), 1, "and is decoded");
}


static void
make_call(sbx_call_t *call, uint16_t op, size_t body)
{
    memset(call, 0, sizeof(sbx_call_t));
    call->magic = SBX_WIRE_MAGIC;
    call->version = SBX_WIRE_VERSION;
    call->op = op;
    call->size = (uint32_t) (sizeof(sbx_call_t) + body);
}


static void
calls(void)
{
    uint8_t       buf[sizeof(sbx_call_t) + sizeof(sbx_create_t)];
    sbx_call_t    call;
    sbx_error_t   e;
    sbx_create_t  create;

    make_call(&call, SBX_OP_GET, 0);
    ok(sbx_wire_check_call(&call, sizeof(call), &e) == 0, "a call is fine");
    ok(sbx_wire_check_call(&call, sizeof(call) - 1, &e) == -1,
       "a short datagram is refused");

    strcpy(call.session, "i4k2aaaaaaaaaaaaaaaaaaaa");
    ok(sbx_wire_check_call(&call, sizeof(call), &e) == 0,
       "a session id is fine");
    strcpy(call.session, "../../etc");
    ok(sbx_wire_check_call(&call, sizeof(call), &e) == -1
       && strstr(e.text, "session") != NULL,
       "a path is no session id");

    make_call(&call, SBX_OP_GET, 0);
    memset(call.tenant, 'a', sizeof(call.tenant));
    ok(sbx_wire_check_call(&call, sizeof(call), &e) == -1
       && strstr(e.text, "tenant") != NULL,
       "an unterminated string is refused by name");

    make_call(&call, SBX_OP_GET, 0);
    call.magic++;
    ok(sbx_wire_check_call(&call, sizeof(call), &e) == -1, "wrong magic");

    make_call(&call, SBX_OP_GET, 0);
    call.version++;
    ok(sbx_wire_check_call(&call, sizeof(call), &e) == -1, "wrong version");

    make_call(&call, SBX_OP_GET, 0);
    call.flags = ~(uint32_t) SBX_CALL_OWNER;
    ok(sbx_wire_check_call(&call, sizeof(call), &e) == -1, "unknown flags");

    make_call(&call, SBX_OP_GET, 0);
    call.flags = SBX_CALL_OWNER|SBX_CALL_RESUME;
    call.needs = SBX_CREATE_FLAGS;
    call.bars = SBX_CREATE_FLAGS;
    ok(sbx_wire_check_call(&call, sizeof(call), &e) == 0,
       "all that a call may need, and bar");
    call.needs++;
    ok(sbx_wire_check_call(&call, sizeof(call), &e) == -1,
       "needs of what there is not");
    call.needs = 0;
    call.bars++;
    ok(sbx_wire_check_call(&call, sizeof(call), &e) == -1, "and bars");

    make_call(&call, 0, 0);
    ok(sbx_wire_check_call(&call, sizeof(call), &e) == -1, "op 0");

    make_call(&call, SBX_OP_CUT, 0);
    ok(sbx_wire_check_call(&call, sizeof(call), &e) == -1,
       "an op between broker and init is no call");

    memset(&create, 0, sizeof(create));
    make_call(&call, SBX_OP_CREATE, sizeof(create));
    memcpy(buf, &call, sizeof(call));
    memcpy(buf + sizeof(call), &create, sizeof(create));
    ok(sbx_wire_check_call(buf, sizeof(buf), &e) == 0, "a create is fine");

    memset(create.key, 'k', sizeof(create.key));
    memcpy(buf + sizeof(call), &create, sizeof(create));
    ok(sbx_wire_check_call(buf, sizeof(buf), &e) == -1
       && strstr(e.text, "key") != NULL,
       "an unterminated string of the body is refused by name");
    ok(sbx_wire_check_call(buf, sizeof(buf) - 8, &e) == -1,
       "a body of another size is refused");
}


/* Fields "KEY=VALUE\0" after a message. */

static int
line_bad(uint32_t level, uint32_t message, uint32_t fields, const char *text,
    size_t n)
{
    uint8_t        p[sizeof(sbx_f_line_t) + 64];
    const char    *m, *f;
    sbx_f_line_t   line, got;

    memset(&line, 0, sizeof(line));
    line.level = level;
    line.message_len = message;
    line.fields_len = fields;
    memcpy(p, &line, sizeof(line));
    memcpy(p + sizeof(line), text, n);

    return sbx_wire_check_line(p, sizeof(line) + n, &got, &m, &f) != 0
           || memcmp(m, text, message) != 0
           || memcmp(f, text + message, fields) != 0;
}


static void
lines(void)
{
    static const char  text[] = "hello" "a=b\0" "c=d";

    ok(!line_bad(SBX_LINE_ERROR, 5, 8, text, 13)
       && !line_bad(0, 0, 0, "", 0), "lines of a log");
    ok(line_bad(SBX_LINE_ERROR + 1, 5, 8, text, 13), "a level too high");
    ok(line_bad(0, 5, 7, text, 12), "a field without its NUL");
    ok(line_bad(0, 9, 4, text, 13), "a NUL in the message");
    ok(line_bad(0, 5, 8, text, 12) && line_bad(0, 5, 4, text, 13),
       "lengths that are not the frame's");
    ok(line_bad(0, UINT32_MAX, 14, text, 13), "or would wrap");
}


static void
metadata(void)
{
    ok(sbx_wire_metadata_ok("", 0) && sbx_wire_metadata_ok("a\0b\0", 4)
       && sbx_wire_metadata_ok("a\0\0", 3), "metadata");
    ok(!sbx_wire_metadata_ok("a\0b", 3), "a value without its NUL");
    ok(!sbx_wire_metadata_ok("a\0", 2), "a key without a value");
    ok(!sbx_wire_metadata_ok("\0b\0", 3), "a key that is empty");
}


static void
strings(void)
{
    uint8_t        p[sizeof(sbx_f_file_t) + 16];
    const char    *path, *path2;
    sbx_f_file_t   file, got;

    memset(&file, 0, sizeof(file));
    file.verb = SBX_FILE_MOVE;
    file.path_len = 3;
    file.path2_len = 2;
    memcpy(p, &file, sizeof(file));
    memcpy(p + sizeof(file), "abcde", 5);

    ok(sbx_wire_check_file(p, sizeof(file) + 5, &got, &path, &path2) == 0
       && memcmp(path, "abc", 3) == 0 && memcmp(path2, "de", 2) == 0,
       "a file call's two strings are found");
    ok(sbx_wire_check_file(p, sizeof(file) + 4, &got, &path, &path2) == -1,
       "strings longer than the frame are refused");
    ok(sbx_wire_check_file(p, sizeof(file) + 6, &got, &path, &path2) == -1,
       "bytes after the strings are refused");
    p[sizeof(file) + 1] = '\0';
    ok(sbx_wire_check_file(p, sizeof(file) + 5, &got, &path, &path2) == -1,
       "a NUL in a path is refused");

    file.path_len = UINT32_MAX;
    file.path2_len = 6;
    memcpy(p, &file, sizeof(file));
    ok(sbx_wire_check_file(p, sizeof(file) + 5, &got, &path, &path2) == -1,
       "lengths that overflow are refused");
}


static int
descriptors_open(void)
{
    int  fd, n;

    n = 0;

    for (fd = 0; fd < 256; fd++) {
        if (fcntl(fd, F_GETFD) != -1) {
            n++;
        }
    }

    return n;
}


static void
passing(void)
{
    int       sp[2], fds[4], before;
    char      buf[8];
    unsigned  n;

    if (socketpair(AF_UNIX, SOCK_SEQPACKET|SOCK_CLOEXEC, 0, sp) == -1) {
        ok(0, "socketpair");
        return;
    }

    fds[0] = fds[1] = 0;
    is_int(sbx_wire_send(sp[0], "x", 1, fds, 2, 0), 1, "two are sent");
    n = 4;
    is_int(sbx_wire_recv(sp[1], buf, sizeof(buf), fds, &n, 0), 1,
           "a datagram comes");
    is_int(n, 2, "with two descriptors");
    ok(n == 2 && (fcntl(fds[0], F_GETFD) & FD_CLOEXEC), "close-on-exec");

    while (n != 0) {
        (void) close(fds[--n]);
    }

    before = descriptors_open();

    fds[0] = fds[1] = fds[2] = 0;
    (void) sbx_wire_send(sp[0], "x", 1, fds, 3, 0);
    n = 1;
    ok(sbx_wire_recv(sp[1], buf, sizeof(buf), fds, &n, 0) == -1
       && errno == EMSGSIZE && n == 0,
       "more descriptors than expected are refused");
    is_int(descriptors_open(), before, "and closed");

    (void) sbx_wire_send(sp[0], "too long for it", 15, fds, 0, 0);
    n = 1;
    ok(sbx_wire_recv(sp[1], buf, sizeof(buf), fds, &n, 0) == -1
       && errno == EMSGSIZE,
       "a cut datagram is refused");

    (void) close(sp[0]);
    (void) close(sp[1]);
}


/* Taken in pieces, a descriptor comes with the first byte of its own message,
 * once, and not with the last of the one before. */

static void
looking(void)
{
    int       sp[2], fds[SBX_WIRE_FDS_ALL], null, before, ours, came;
    char      buf[8];
    size_t    at, room;
    ssize_t   rc;
    unsigned  n;

    static const char  text[] = "12345678abcd";

    null = open("/dev/null", O_RDONLY|O_CLOEXEC);
    before = descriptors_open();

    for (room = 1; room <= sizeof(buf); room++) {
        if (socketpair(AF_UNIX, SOCK_STREAM|SOCK_CLOEXEC, 0, sp) == -1) {
            ok(0, "socketpair");
            return;
        }

        (void) sbx_wire_send(sp[0], text, 8, NULL, 0, 0);
        (void) sbx_wire_send(sp[0], text + 8, 4, &null, 1, 0);
        came = 0;

        for (at = 0; at < 12; at += (size_t) rc) {
            rc = sbx_wire_recv_looked(sp[1], buf, room, fds, &n, &ours);

            if (rc <= 0 || memcmp(buf, text + at, (size_t) rc) != 0) {
                break;
            }

            if (ours && n != 0) {
                came += at <= 8 && at + (size_t) rc > 8 ? 1 : 100;
            }

            while (n != 0) {
                (void) close(fds[--n]);
            }
        }

        ok(at == 12 && came == 1, "in pieces of %d: %d bytes, descriptors %d",
           (int) room, (int) at, came);
        is_int(sbx_wire_recv_looked(sp[1], buf, room, fds, &n, &ours), -1,
               "no more is there");
        (void) close(sp[0]);
        (void) close(sp[1]);
    }

    is_int(descriptors_open(), before, "all have been closed");
    (void) close(null);
}


/* Fills in a STATE frame; returns its length. */

static size_t
state_frame(uint8_t *p, sbx_f_state_t *state, const char *strings, size_t n)
{
    memcpy(p, state, sizeof(sbx_f_state_t));
    memcpy(p + sizeof(sbx_f_state_t), strings, n);

    return sizeof(sbx_f_state_t) + n;
}


static int
state_bad(sbx_f_state_t state, const char *strings, size_t n)
{
    uint8_t        p[512];
    const char    *cwd, *tag, *args;
    sbx_f_state_t  out;

    n = state_frame(p, &state, strings, n);

    return sbx_wire_check_state(p, n, &out, &cwd, &tag, &args) != 0;
}


static void
states(void)
{
    size_t         n;
    uint8_t        p[512];
    const char    *cwd, *tag, *args;
    sbx_f_state_t  state, out, bad;

    static const char  text[] = "/srvblueecho\0\0x";

    memset(&state, 0, sizeof(state));
    state.pid = 7;
    state.argc = 3;
    state.cwd_len = 4;
    state.tag_len = 4;
    state.args_len = 8;

    n = state_frame(p, &state, text, sizeof(text));

    ok(sbx_wire_check_state(p, n, &out, &cwd, &tag, &args) == 0
       && out.pid == 7 && memcmp(cwd, "/srv", 4) == 0
       && memcmp(tag, "blue", 4) == 0 && strcmp(args, "echo") == 0
       && memcmp(args + 5, "\0x", 3) == 0,
       "a process: directory, tag, arguments");
    ok(sbx_wire_check_state(p, n - 1, &out, &cwd, &tag, &args) != 0
       && sbx_wire_check_state(p, sizeof(state) - 1, &out, &cwd, &tag, &args)
          != 0,
       "one that is cut short is refused");

    bad = state;
    bad.argc = 4;
    ok(state_bad(bad, text, sizeof(text)), "an argument too few");
    bad.argc = 2;
    ok(state_bad(bad, text, sizeof(text)), "an argument too many");
    bad = state;
    bad.cwd_len = 0xfffffffe;
    bad.args_len = 14;
    ok(state_bad(bad, text, sizeof(text)), "a length that would wrap");
    bad = state;
    bad.kind = SBX_KIND_CODE + 1;
    ok(state_bad(bad, text, sizeof(text)), "a kind that is none");
    bad = state;
    bad.cwd_len = 10;
    bad.tag_len = 0;
    bad.args_len = 6;
    ok(state_bad(bad, "/srv\0lue  a\0b\0c", 16),
       "a directory with a NUL in it");
    ok(state_bad(state, "/srvbluee\0\0\0 x  ", 16),
       "an argument without its NUL");

    state.argc = 1;
    state.args_len = 5;
    state.envc = 1;
    state.env_len = 3;
    n = state_frame(p, &state, text, sizeof(text));
    ok(sbx_wire_check_state(p, n, &out, &cwd, &tag, &args) != 0,
       "variables are counted by their NULs");
    state.envc = 2;
    n = state_frame(p, &state, "/srvblueecho\0" "\0" "x", 16);
    ok(sbx_wire_check_state(p, n, &out, &cwd, &tag, &args) == 0
       && memcmp(sbx_wire_state_env(&out, args), "\0x", 3) == 0,
       "and follow the arguments");
}


int
main(void)
{
    states();
    decoding();
    calls();
    lines();
    metadata();
    strings();
    passing();
    looking();

    ok(sbx_name_ok("acme-corp", 9) && sbx_name_ok("a", 1)
       && sbx_name_ok("a.b_c@d:e+f-g", 13), "names of the contract");
    ok(!sbx_name_ok("", 0) && !sbx_name_ok("-a", 2) && !sbx_name_ok("a/b", 3)
       && !sbx_name_ok("a b", 3) && !sbx_name_ok("a\0b", 3)
       && !sbx_name_ok("a\n", 2), "names that are refused");
    ok(sbx_session_id_ok("i01234567890123456789", 21), "a session id");
    ok(!sbx_session_id_ok("i0123456789012345678", 20)
       && !sbx_session_id_ok("x01234567890123456789", 21)
       && !sbx_session_id_ok("iA1234567890123456789", 21)
       && !sbx_session_id_ok("i0123456789/123456789", 21),
       "what is no session id");
    is_str(sbx_reason_word(SBX_REASON_NOT_STARTED), "not_started",
           "the last reason has its word");
    ok(sbx_reason_word(SBX_REASON_MAX) == NULL, "a reason too many has none");
    is_str(sbx_enforce_word(SBX_BY_FILTER), "filter", "enforcement words");

    return done_testing();
}
