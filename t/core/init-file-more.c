/*
 * Searches, archives and watches: frames that no worker sends, and that what
 * lasts takes no server from other calls.
 */

#include "init_test.h"


typedef struct {
    char           path[SBX_PATH_MAX];
    char           owner[64];
    char           target[SBX_PATH_MAX];
    sbx_f_entry_t  entry;
} test_entry_t;


static init_session_t  s;
static init_result_t   r;
static test_entry_t    entries[4096];
static unsigned        nentries;
static int             opened = -1;


static void
file_begin(sbx_f_file_t *file, const char *path, const char *path2,
    init_call_t *call)
{
    uint8_t  buf[sizeof(sbx_f_file_t) + 2 * SBX_PATH_MAX + 64];
    size_t   n;

    file->path_len = (uint32_t) strlen(path);
    file->path2_len = path2 != NULL ? (uint32_t) strlen(path2) : 0;

    memcpy(buf, file, sizeof(*file));
    n = sizeof(*file);
    memcpy(buf + n, path, file->path_len);
    n += file->path_len;

    if (path2 != NULL) {
        memcpy(buf + n, path2, file->path2_len);
        n += file->path2_len;
    }

    init_call(&s, SBX_OP_FILE, NULL, NULL, 0, call);
    init_send(call->fd, SBX_F_FILE, buf, n);
}


static void
take_entry(const uint8_t *payload, size_t size)
{
    const char     *path, *owner, *group, *target;
    test_entry_t   *entry;

    if (nentries == sbx_nelts(entries)) {
        return;
    }

    entry = &entries[nentries++];

    if (sbx_wire_check_entry(payload, size, &entry->entry, &path, &owner,
                             &group, &target)
        != 0)
    {
        (void) strcpy(entry->path, "malformed");
        return;
    }

    (void) sbx_copy_string(entry->path, sizeof(entry->path), path,
                           entry->entry.path_len);
    (void) sbx_copy_string(entry->owner, sizeof(entry->owner), owner,
                           entry->entry.owner_len);
    (void) sbx_copy_string(entry->target, sizeof(entry->target), target,
                           entry->entry.target_len);
}


/* To the end, or to what asks for more: the type of the last frame. */

static int
file_finish(init_call_t *call)
{
    int             fd, rc;
    sbx_frame_t     frame;
    const uint8_t  *payload;

    for ( ;; ) {
        fd = -1;
        rc = init_next(call, &frame, &payload, &fd, INIT_WAIT);

        if (rc != 1) {
            return rc;
        }

        switch (frame.type) {

        case SBX_F_ENTRY:
            take_entry(payload, frame.length);
            break;

        case SBX_F_OPENED:
            take_entry(payload, frame.length);
            opened = fd;
            return SBX_F_OPENED;

        case SBX_F_ERROR:
            memcpy(&r.error, payload, sizeof(r.error));
            return SBX_F_ERROR;

        case SBX_F_END:
            memcpy(&r.end, payload, sizeof(r.end));
            return SBX_F_END;

        default:
            return frame.type;
        }
    }
}


/* The code of the error, or 0. */

static int
file_call(sbx_f_file_t file, const char *path, const char *path2)
{
    int          type;
    init_call_t  call;

    init_result_free(&r);
    nentries = 0;

    file_begin(&file, path, path2, &call);

    do {
        type = file_finish(&call);
    } while (type == SBX_F_MATCH || type == SBX_F_DATA
             || type == SBX_F_READY);

    init_hang_up(&call);

    return type == SBX_F_ERROR ? (int) r.error.code
                               : type == SBX_F_END ? 0 : -1;
}


static const char *
shell(const char *script)
{
    init_shell(&s, script, &r);

    return init_text(r.out);
}


static void
test_search(void)
{
    sbx_f_file_t  file = { .verb = SBX_FILE_SEARCH, .limit = 10 };

    (void) shell("mkdir s; echo alpha > s/a");

    is_int(file_call(file, "s", "alpha"), 0, "a search");
    is_int((int64_t) r.end.count, 1, "finds a line");

    file.size = 5;
    is_int(file_call(file, "s", "alpha"), SBX_E_INVALID,
           "a glob as long as all of it");
    file.size = UINT64_MAX;
    is_int(file_call(file, "s", "alpha"), SBX_E_INVALID, "or longer");
    file.size = 0;
    is_int(file_call(file, "s", ""), SBX_E_INVALID, "no pattern");
    is_int(file_call(file, "s", "(?C1)a"), 0, "a callout is none");
    is_int(file_call(file, "s", "(*LIMIT_MATCH=4000000000)a"), 0,
           "no pattern raises its limits");
    is_int(file_call(file, "s", "\\C"), SBX_E_INVALID, "no half characters");
    (void) shell("echo alpha >> s/a");
    file.limit = 1;
    is_int(file_call(file, "s", "alpha"), 0, "one line is asked for");
    ok(r.end.truncated != 0 && r.end.count == 1, "of two, and that is told");
}


static void
test_condition(void)
{
    int           type;
    init_call_t   call;
    sbx_f_file_t  file = { .verb = SBX_FILE_PUT, .size = SBX_UNSET,
                           .max = SBX_UNSET,
                           .flags = SBX_FILE_F_CONDITION };

    file_begin(&file, "c", "no newline", &call);
    is_int(file_finish(&call), SBX_F_ERROR, "a condition without its parts");
    is_int(r.error.code, SBX_E_INVALID, "is malformed");
    init_hang_up(&call);

    file_begin(&file, "c", "\"x\n", &call);
    type = file_finish(&call);
    is_int(type == SBX_F_ERROR ? (int) r.error.code : -1, SBX_E_PRECONDITION,
           "a tag without its end matches nothing");
    init_hang_up(&call);

    file_begin(&file, "c", "\nW/", &call);
    is_int(file_finish(&call), SBX_F_READY, "and excludes nothing");
    init_hang_up(&call);
}


static void
test_unpack(void)
{
    size_t        i;
    init_call_t   call;
    sbx_f_file_t  file = { .verb = SBX_FILE_UNPACK, .size = SBX_UNSET,
                           .max = SBX_UNSET };

    static char   noise[SBX_FRAME_MAX];

    file_begin(&file, "u", NULL, &call);
    is_int(file_finish(&call), SBX_F_READY, "an archive is waited for");
    init_send(call.fd, SBX_F_STDIN, "x", 1);
    is_int(file_finish(&call), SBX_F_ERROR, "another frame");
    is_int(r.error.code, SBX_E_INVALID, "is refused");
    init_hang_up(&call);

    for (i = 0; i < sizeof(noise); i++) {
        noise[i] = (char) (i * 7 + (i >> 8));
    }

    file_begin(&file, "u", NULL, &call);
    is_int(file_finish(&call), SBX_F_READY, "again");
    init_send(call.fd, SBX_F_DATA, noise, sizeof(noise));
    init_send(call.fd, SBX_F_DATA, NULL, 0);
    is_int(file_finish(&call), SBX_F_ERROR, "noise");
    is_int(r.error.code, SBX_E_INVALID, "is no archive");
    init_hang_up(&call);

    memcpy(noise, "\x1f\x8b\x08\0\0\0\0\0\0\0", 10);
    file_begin(&file, "u", NULL, &call);
    is_int(file_finish(&call), SBX_F_READY, "again");
    init_send(call.fd, SBX_F_DATA, noise, sizeof(noise));
    init_send(call.fd, SBX_F_DATA, NULL, 0);
    is_int(file_finish(&call), SBX_F_ERROR, "noise that seems compressed");
    is_int(r.error.code, SBX_E_INVALID, "is none either");
    init_hang_up(&call);

    file.max = 100;
    memset(noise, 0, sizeof(noise));
    file_begin(&file, "u", NULL, &call);
    is_int(file_finish(&call), SBX_F_READY, "again");
    init_send(call.fd, SBX_F_DATA, noise, sizeof(noise));
    is_int(file_finish(&call), SBX_F_ERROR, "more than was allowed");
    is_int(r.error.code, SBX_E_TOO_LARGE, "is too large");
    init_hang_up(&call);

    file.max = SBX_UNSET;
    file.size = 3;
    file_begin(&file, "u", NULL, &call);
    is_int(file_finish(&call), SBX_F_READY, "again");
    init_send(call.fd, SBX_F_DATA, noise, 1024);
    init_send(call.fd, SBX_F_DATA, NULL, 0);
    is_int(file_finish(&call), SBX_F_ERROR, "another length than was told");
    init_hang_up(&call);

    file_begin(&file, "u", NULL, &call);
    is_int(file_finish(&call), SBX_F_READY, "again");
    init_hang_up(&call);

    ok(init_until(&s, "test -z \"$(ls -A | grep sandbox-upload)\""
                      " && echo yes"),
       "nothing of any is left");
    is_str(shell("ls -d u 2>/dev/null"), "", "nor a directory made for it");
}


static void
test_kinds(void)
{
    int           type;
    unsigned      i, open;
    init_call_t   call[16], more;
    sbx_f_file_t  watch = { .verb = SBX_FILE_WATCH };
    sbx_f_file_t  stat = { .verb = SBX_FILE_STAT };

    for (i = 0, open = 0; i < sbx_nelts(call); i++) {
        file_begin(&watch, "s", NULL, &call[i]);
        open += (file_finish(&call[i]) == SBX_F_READY);
    }

    is_int(open, 16, "as many watches as may be");

    file_begin(&watch, "s", NULL, &more);
    type = file_finish(&more);
    is_int(type == SBX_F_ERROR ? (int) r.error.code : -1, SBX_E_QUOTA,
           "one more is refused");
    is_str(r.error.resource, "watches", "by its name");
    is_int((int64_t) r.error.limit, 16, "and number");
    is_int((int64_t) r.error.retry_after, 1, "until one ends");
    init_hang_up(&more);

    is_int(file_call(stat, "s", NULL), 0, "another call is served");

    /* a worker has nothing to say to a watch; its bytes are not read */

    init_send(call[0].fd, SBX_F_DATA, "x", 1);
    (void) shell(": > s/new");
    is_int(file_finish(&call[0]), SBX_F_CHANGE, "what comes is told");
    is_int(file_finish(&call[1]), SBX_F_CHANGE, "to each");

    for (i = 0; i < sbx_nelts(call); i++) {
        init_hang_up(&call[i]);
    }

    for (i = 0; i < 100; i++) {
        file_begin(&watch, "s", NULL, &more);
        type = file_finish(&more);
        init_hang_up(&more);

        if (type == SBX_F_READY) {
            break;
        }

        (void) usleep(20000);
    }

    is_int(type, SBX_F_READY, "they are given back");

    stat.verb = SBX_FILE_UNPACK + 1;
    is_int(file_call(stat, "s", NULL), SBX_E_INVALID, "a verb that is none");
}


int
main(void)
{
    if (geteuid() != 0) {
        return skip_all("root is needed for namespaces");
    }

    if (init_program() == NULL) {
        return skip_all("sandbox-init has not been built");
    }

    init_defaults();
    init_start(&s);

    test_search();
    test_condition();
    test_unpack();
    test_kinds();

    ok(init_stop(&s), "the session ends");

    return done_testing();
}
