/*
 * File calls: what is served, what is refused, and that nothing holds them.
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
    type = file_finish(&call);
    init_hang_up(&call);

    if (opened != -1 && type != SBX_F_OPENED) {
        (void) close(opened);
        opened = -1;
    }

    return type == SBX_F_ERROR ? (int) r.error.code
                               : type == SBX_F_END || type == SBX_F_OPENED
                                 ? 0 : -1;
}


static int
put(const char *path, const void *data, size_t size, uint32_t flags,
    uint32_t mode)
{
    int            type;
    size_t         n;
    init_call_t    call;
    sbx_f_file_t   file = { .verb = SBX_FILE_PUT, .flags = flags,
                            .mode = mode, .size = SBX_UNSET,
                            .max = SBX_UNSET };

    init_result_free(&r);
    file_begin(&file, path, NULL, &call);
    type = file_finish(&call);

    if (type == SBX_F_READY) {
        for ( /* void */ ; size != 0; size -= n) {
            n = size < SBX_FRAME_MAX ? size : SBX_FRAME_MAX;
            init_send(call.fd, SBX_F_DATA, data, n);
            data = (const char *) data + n;
        }

        init_send(call.fd, SBX_F_DATA, NULL, 0);
        type = file_finish(&call);
    }

    init_hang_up(&call);

    return type == SBX_F_END ? 0 : type == SBX_F_ERROR ? (int) r.error.code
                                                       : -1;
}


/* What is in a file, by the descriptor that is passed. */

static const char *
get(const char *path)
{
    ssize_t        n;
    static char    buf[65536];
    sbx_f_file_t   file = { .verb = SBX_FILE_OPEN };

    if (file_call(file, path, NULL) != 0 || opened == -1) {
        return NULL;
    }

    n = read(opened, buf, sizeof(buf) - 1);
    buf[n > 0 ? n : 0] = '\0';
    (void) close(opened);
    opened = -1;

    return buf;
}


static const char *
shell(const char *script)
{
    init_shell(&s, script, &r);

    return init_text(r.out);
}


static const char *
names(void)
{
    size_t        n, len;
    unsigned      i;
    static char   buf[65536];

    for (i = 0, n = 0; i < nentries; i++) {
        len = strlen(entries[i].path);

        if (n + len + 2 > sizeof(buf)) {
            break;
        }

        if (i != 0) {
            buf[n++] = ' ';
        }

        memcpy(buf + n, entries[i].path, len);
        n += len;
    }

    buf[n] = '\0';

    return buf;
}


static const char *
glob(const char *pattern, uint64_t limit, uint64_t skip)
{
    sbx_f_file_t  file = { .verb = SBX_FILE_GLOB, .limit = limit,
                           .skip = skip };

    if (file_call(file, "", pattern) != 0) {
        return "error";
    }

    return names();
}


static void
test_put_and_open(void)
{
    int            flags;
    char          *big;
    size_t         size;
    struct stat    st;
    sbx_f_file_t   file = { .verb = SBX_FILE_OPEN };

    is_int(put("data.txt", "some content", 12, 0, 0), 0, "an upload");
    is_int(r.end.created, 1, "of a new file");
    is_int((int64_t) r.end.size, 12, "and its size");
    is_str(get("data.txt"), "some content", "can be opened");
    is_str(entries[0].path, "/home/user/data.txt", "by its path");
    is_str(entries[0].owner, "user", "belongs to the user");
    is_str(shell("stat -c '%a %U' data.txt; cat data.txt"),
           "644 user\nsome content", "and is there inside");

    is_int(put("data.txt", "other", 5, 0, 0), 0, "another");
    is_int(r.end.created, 0, "replaces it");

    (void) shell("chmod 640 data.txt");
    (void) put("data.txt", "third", 5, 0, 0);
    is_str(shell("stat -c %a data.txt"), "640\n", "a mode is kept");

    is_int(put("a/b/c/deep", "", 0, SBX_FILE_F_MODE, 0600), 0,
           "parents are made");
    is_str(shell("stat -c %a a a/b/c a/b/c/deep"), "755\n755\n600\n",
           "with their modes");

    is_int(put("data.txt", "x", 1, SBX_FILE_F_NO_REPLACE, 0), SBX_E_EXISTS,
           "no replacing where none is wanted");
    is_int(put("fresh", "x", 1, SBX_FILE_F_NO_REPLACE, 0), 0,
           "but a new one");

    size = 5 * 1024 * 1024 + 3;
    big = malloc(size);
    memset(big, 'q', size);
    is_int(put("big", big, size, 0, 0), 0, "five megabytes");
    is_str(shell("tr -d q < big | wc -c; stat -c %s big"),
           "0\n5242883\n", "whole");
    free(big);

    is_int(file_call(file, "big", NULL), 0, "a file is opened");
    flags = fcntl(opened, F_GETFL);
    ok((flags & O_ACCMODE) == O_RDONLY && fstat(opened, &st) == 0
       && S_ISREG(st.st_mode) && st.st_size == 5242883,
       "read-only, the file itself");
    (void) close(opened);
    opened = -1;

    is_int(file_call((sbx_f_file_t) { .verb = SBX_FILE_OPEN }, "missing",
                     NULL), SBX_E_FILE, "what is missing");
    is_int(file_call((sbx_f_file_t) { .verb = SBX_FILE_OPEN }, "data.txt/x",
                     NULL), SBX_E_FILE_TYPE, "below a file");
    is_int(file_call((sbx_f_file_t) { .verb = SBX_FILE_OPEN }, "a", NULL),
           SBX_E_FILE_TYPE, "a directory");
    is_int(file_call((sbx_f_file_t) { .verb = SBX_FILE_OPEN }, "", NULL),
           SBX_E_FILE_TYPE, "the workspace");
    is_int(file_call((sbx_f_file_t) { .verb = SBX_FILE_OPEN }, "/root/x",
                     NULL), SBX_E_DENIED, "in root's home");
    is_int(file_call((sbx_f_file_t) { .verb = SBX_FILE_OPEN,
                                      .user = SBX_USER_ROOT }, "/root/x",
                     NULL), SBX_E_FILE, "which root may look into");

    is_int(put("a", "x", 1, 0, 0), SBX_E_FILE_TYPE, "PUT of a directory");
    is_int(put("data.txt/x", "x", 1, 0, 0), SBX_E_FILE_TYPE, "below a file");
    is_int(put("/etc/passwd", "x", 1, 0, 0), SBX_E_DENIED, "root's file");
    is_int(put("/usr/bin/env", "x", 1, 0, 0), SBX_E_DENIED, "read-only");
    is_int(put("/usr/new", "x", 1, 0, 0), SBX_E_DENIED, "a new one there");
    is_int(put("new/", "x", 1, 0, 0), SBX_E_PATH, "a name with a slash");
    is_int(put("", "x", 1, 0, 0), SBX_E_PATH, "no name");
    is_int(put(".", "x", 1, 0, 0), SBX_E_PATH, ".");
    is_int(put("..", "x", 1, 0, 0), SBX_E_PATH, "..");
    is_int(put("/", "x", 1, 0, 0), SBX_E_PATH, "the root");

    {
        char  longest[300];

        memset(longest, 'n', 299);
        longest[256] = '\0';
        is_int(put(longest, "x", 1, 0, 0), SBX_E_PATH, "a name of 256");
        longest[255] = '\0';
        is_int(put(longest, "x", 1, 0, 0), 0, "one of 255");
        is_str(get(longest), "x", "is there");
    }

    is_str(shell("find / -xdev -name '.sandbox*' 2>/dev/null"), "",
           "no temporary is left");
}


static void
test_links(void)
{
    (void) shell("mkdir l; echo old > l/target; chmod 600 l/target;"
                 " ln -s target l/link; ln -s missing l/dangling;"
                 " ln -s ../l l/dir; ln -s loop2 loop1; ln -s loop1 loop2;"
                 " ln -s /etc/passwd out; ln -s ../../../../../etc/passwd up;"
                 " ln -s /proc/self/root m1; ln -s /proc/1/root m2;"
                 " ln -s /nowhere/x far");

    is_int(put("l/link", "new", 3, 0, 0), 0, "a link is followed");
    is_str(shell("cat l/target; readlink l/link; stat -c %a l/target"),
           "newtarget\n600\n", "to its target");
    is_int(put("l/dangling", "made", 4, 0, 0), 0, "a dangling one");
    is_str(shell("cat l/missing; readlink l/dangling"), "mademissing\n",
           "gets its target");
    is_str(get("l/dir/dir/target"), "new", "links to directories");

    ok(strncmp(init_text(get("out")), "root:x:0:0::/root", 17) == 0,
       "a link to /etc/passwd is the session's");
    ok(strncmp(init_text(get("up")), "root:x:0:0::/root", 17) == 0,
       "so is one with many ..");
    ok(strncmp(init_text(get("../../../../etc/passwd")), "root:x:0:0::/root",
               17) == 0, "and a path with them");

    is_int(put("out", "x", 1, 0, 0), SBX_E_DENIED, "and cannot be written");
    is_int(put("far", "x", 1, 0, 0), SBX_E_DENIED,
           "nor what is far, where the user may not");
    is_int(put("loop1", "x", 1, 0, 0), SBX_E_PATH, "a loop");

#define OPEN(p)  file_call((sbx_f_file_t) { .verb = SBX_FILE_OPEN }, p, NULL)

    is_int(OPEN("loop1"), SBX_E_PATH, "a loop cannot be opened");
    is_int(OPEN("m1/etc/passwd"), SBX_E_PATH, "through /proc/self/root");
    is_int(OPEN("m2/etc/passwd"), SBX_E_DENIED, "through /proc/1/root");
    is_int(OPEN("/proc/self/exe"), SBX_E_PATH, "/proc/self/exe");
    is_int(OPEN("/proc/self/fd/3"), SBX_E_PATH, "/proc/self/fd/3");
    is_int(put("/proc/self/fd/3", "x", 1, 0, 0), SBX_E_FILE_TYPE,
           "which cannot be written");

    is_int(file_call((sbx_f_file_t) { .verb = SBX_FILE_DELETE,
                                      .flags = SBX_FILE_F_RECURSIVE },
                     "l/dir", NULL), 0, "a link to a directory is removed");
    is_str(shell("cat l/target; test -h l/dir || echo gone"), "newgone\n",
           "and nothing behind it");
}


static void
test_types(void)
{
    size_t    i;
    uint64_t  t;

    static const char *const  paths[] = {
        "p", "sock", "lp", "/dev/zero", "/dev/null", "/proc/version",
        "/proc/self/maps", "/proc/kmsg", "/proc/meminfo"
    };

    (void) shell("mkfifo p; ln -s p lp; python3 -c \"import socket;"
                 " socket.socket(socket.AF_UNIX).bind('sock')\"");

    for (i = 0; i < sbx_nelts(paths); i++) {
        t = sbx_now_us();
        ok(OPEN(paths[i]) > 0 && put(paths[i], "x", 1, 0, 0) > 0
           && sbx_now_us() - t < 2000000, "%s is refused at once", paths[i]);
    }

    is_int(OPEN("p"), SBX_E_FILE_TYPE, "a FIFO is of the wrong type");
    is_int(OPEN("sock"), SBX_E_FILE_TYPE, "so is a socket");
    is_int(OPEN("/dev/zero"), SBX_E_FILE_TYPE, "and a device");
    is_int(OPEN("/proc/version"), SBX_E_FILE_TYPE, "and the kernel's file");
}


static void
test_cut_upload(void)
{
    int            type;
    init_call_t    call;
    sbx_f_file_t   file = { .verb = SBX_FILE_PUT, .size = SBX_UNSET,
                            .max = SBX_UNSET };

    (void) shell("mkdir upl; echo old > upl/there");

    file_begin(&file, "upl/there", NULL, &call);
    is_int(file_finish(&call), SBX_F_READY, "an upload begins");
    init_send(call.fd, SBX_F_DATA, "half", 4);
    ok(init_until(&s, "find upl -name '.sandbox*' -size 4c | grep -q . &&"
                      " echo yes"), "its bytes arrive");
    is_str(glob("upl/**", 100, 0), "/home/user/upl/there",
           "its temporary is in no list");
    is_str(glob("upl/.*", 100, 0), "", "of hidden ones neither");
    init_hang_up(&call);
    ok(init_until(&s, "test \"$(ls -A upl)\" = there && echo yes"),
       "a bare end leaves nothing");
    is_str(shell("cat upl/there"), "old\n", "and the old file");

    /* the server is killed by the session */

    file_begin(&file, "upl/there", NULL, &call);
    (void) file_finish(&call);
    init_send(call.fd, SBX_F_DATA, "half", 4);
    ok(init_until(&s, "find upl -name '.sandbox*' -size 4c | grep -q . &&"
                      " echo yes"), "another has begun");
    (void) shell("kill -9 -1");
    type = file_finish(&call);
    ok(type == SBX_F_ERROR && r.error.code == SBX_E_UNAVAILABLE,
       "one whose server is killed is answered (%d)", type);
    init_hang_up(&call);
    is_str(shell("ls -A upl"), "there\n", "and its temporary removed");

    /* sizes */

    file.size = 10;
    file.max = 5;
    file_begin(&file, "upl/x", NULL, &call);
    is_int(file_finish(&call), SBX_F_ERROR, "one that is too large");
    is_int(r.error.code, SBX_E_TOO_LARGE, "is refused before it is sent");
    init_hang_up(&call);

    file.size = SBX_UNSET;
    file_begin(&file, "upl/x", NULL, &call);
    (void) file_finish(&call);
    init_send(call.fd, SBX_F_DATA, "123456", 6);
    is_int(file_finish(&call), SBX_F_ERROR, "or while it is");
    is_int(r.error.code, SBX_E_TOO_LARGE, "when it turns out so");
    init_hang_up(&call);

    file.size = 1ull << 40;
    file.max = SBX_UNSET;
    file_begin(&file, "upl/x", NULL, &call);
    is_int(file_finish(&call), SBX_F_ERROR, "more than the disk has");
    is_int(r.error.code, SBX_E_NO_SPACE, "is no space, before it is sent");
    init_hang_up(&call);

    file.size = 10;
    file_begin(&file, "upl/x", NULL, &call);
    (void) file_finish(&call);
    init_send(call.fd, SBX_F_DATA, "1234", 4);
    init_send(call.fd, SBX_F_DATA, NULL, 0);
    is_int(file_finish(&call), SBX_F_ERROR, "less than was told");
    init_hang_up(&call);
    ok(init_until(&s, "test \"$(ls -A upl)\" = there && echo yes"),
       "none of them leaves anything");

    {
        size_t  size = 80 << 20;
        char   *big = calloc(1, size);

        is_int(put("upl/full", big, size, 0, 0), SBX_E_NO_SPACE,
               "a disk that is full in the middle is no space");
        free(big);
        is_str(shell("ls -A upl"), "there\n", "and nothing stays");
        is_int(put("upl/after", "x", 1, 0, 0), 0, "then there is room again");
    }
}


static void
test_delete(void)
{
#define DELETE(p, f)                                                         \
    file_call((sbx_f_file_t) { .verb = SBX_FILE_DELETE, .flags = f }, p, NULL)

    (void) shell("mkdir -p d/e/f d2; echo x > d/e/f/g; echo x > one;"
                 " mkdir locked; touch locked/x; chmod 555 locked");

    is_int(DELETE("one", 0), 0, "a file");
    is_int(DELETE("one", 0), SBX_E_FILE, "is gone then");
    is_int(DELETE("d2", 0), 0, "an empty directory");
    is_int(DELETE("d", 0), SBX_E_CONFLICT, "one that is not empty");
    is_int(DELETE("d/", SBX_FILE_F_RECURSIVE), 0, "with all in it");
    is_str(shell("ls d 2>/dev/null || echo gone"), "gone\n", "goes");
    is_int(DELETE("locked/x", 0), SBX_E_DENIED, "what is not permitted");
    is_int(DELETE("", SBX_FILE_F_RECURSIVE), SBX_E_DENIED, "the workspace");
    is_int(DELETE("/home/user", SBX_FILE_F_RECURSIVE), SBX_E_DENIED,
           "by its name");
    is_int(DELETE("../user", SBX_FILE_F_RECURSIVE), SBX_E_DENIED,
           "in a roundabout way");
    is_int(file_call((sbx_f_file_t) { .verb = SBX_FILE_DELETE,
                                      .user = SBX_USER_ROOT,
                                      .flags = SBX_FILE_F_RECURSIVE },
                     "/home", NULL), SBX_E_DENIED, "what holds it, for root");
    is_int(DELETE("/", SBX_FILE_F_RECURSIVE), SBX_E_DENIED, "the root");

    (void) shell("python3 -c \"import os\n"
                 "os.mkdir('deep'); os.chdir('deep')\n"
                 "for i in range(1000):\n"
                 "    os.mkdir('x'); os.chdir('x')\n"
                 "open('y', 'w')\"");
    is_int(DELETE("deep", SBX_FILE_F_RECURSIVE), 0, "1,000 levels");
    is_str(shell("ls -A | grep -c '^[.]\\|deep'"), "0\n", "leave nothing");

    (void) shell("mkdir wide; cd wide; seq 3000 | xargs touch");
    is_int(DELETE("wide", SBX_FILE_F_RECURSIVE), 0, "3,000 files");
}


static void
test_lists(void)
{
    unsigned      i;
    sbx_f_file_t  file = { .verb = SBX_FILE_LIST };

    (void) shell("rm -rf g; mkdir -p g/b/c g/.h g/a; cd g; touch a.txt b.txt"
                 " b/x.txt b/c/y.txt .h/z.txt a/1 .dot.txt; ln -s b ln;"
                 " touch 'new\nline'; ln -s /etc/passwd lp; mkfifo ff");

    is_str(glob("g/*.txt", 100, 0), "/home/user/g/a.txt /home/user/g/b.txt",
           "*.txt, without what is hidden");
    is_str(glob("/home/user/g/*.txt", 100, 0),
           "/home/user/g/a.txt /home/user/g/b.txt", "an absolute pattern");
    is_str(glob("g/.*", 100, 0), "/home/user/g/.dot.txt /home/user/g/.h",
           "hidden ones by a dot");
    is_str(glob("g/**/*.txt", 100, 0),
           "/home/user/g/a.txt /home/user/g/b.txt /home/user/g/b/c/y.txt"
           " /home/user/g/b/x.txt", "at any depth, in the order of paths");
    is_str(glob("g/ln/*", 100, 0),
           "/home/user/g/b/c /home/user/g/b/x.txt", "through a link");
    is_str(glob("g/l*/*.txt", 100, 0), "/home/user/g/ln/x.txt",
           "through one that a wildcard matches");
    is_str(glob("g/*/", 100, 0), "/home/user/g/a /home/user/g/b",
           "directories only");
    is_str(glob("g/{a,b}.txt", 100, 0),
           "/home/user/g/a.txt /home/user/g/b.txt", "alternatives");
    is_str(glob("nowhere/*", 100, 0), "error", "a directory must be there");
    is_int(r.error.code, SBX_E_FILE, "and what it lacks is told");
    is_str(glob("*/nowhere/*", 100, 0), "",
           "nothing below what a pattern names");
    is_str(glob("g/*.none", 100, 0), "", "nothing where nothing matches");
    is_int(file_call((sbx_f_file_t) { .verb = SBX_FILE_GLOB }, "", "*/../x"),
           SBX_E_INVALID, "a pattern that is refused");

    is_str(glob("g/**/*.txt", 2, 0), "/home/user/g/a.txt /home/user/g/b.txt",
           "a limit");
    is_int((int64_t) r.end.next, 2, "tells where to go on");
    is_str(glob("g/**/*.txt", 2, 2),
           "/home/user/g/b/c/y.txt /home/user/g/b/x.txt", "from there");
    is_int((int64_t) r.end.next, 0, "and the end");
    is_int((int64_t) r.end.count, 2, "and how many");

    (void) glob("g/*", 100, 0);

    for (i = 0; i < nentries; i++) {
        if (strcmp(entries[i].path, "/home/user/g/lp") == 0) {
            is_str(entries[i].target, "/etc/passwd", "a link's target");
            is_int(entries[i].entry.type, SBX_TYPE_LINK, "and type");
        }

        if (strcmp(entries[i].path, "/home/user/g/ff") == 0) {
            is_int(entries[i].entry.type, SBX_TYPE_FIFO, "a FIFO's");
        }

        if (strcmp(entries[i].path, "/home/user/g/new\nline") == 0) {
            is_int(entries[i].entry.type, SBX_TYPE_FILE, "a name of lines");
        }
    }

    is_int((int) nentries, 8, "all of them");

    is_int(file_call(file, "g", NULL), 0, "a list");
    is_str(names(), "/home/user/g/.dot.txt /home/user/g/.h /home/user/g/a"
           " /home/user/g/a.txt /home/user/g/b /home/user/g/b.txt"
           " /home/user/g/ff /home/user/g/ln /home/user/g/lp"
           " /home/user/g/new\nline", "has what is hidden too");
    file.limit2 = 2;
    is_int(file_call(file, "g/b", NULL), 0, "to a depth");
    is_str(names(), "/home/user/g/b/c /home/user/g/b/c/y.txt"
           " /home/user/g/b/x.txt", "of two");
    is_int(file_call(file, "g/ln", NULL), 0, "of a link to a directory");
    is_int(file_call(file, "missing", NULL), SBX_E_FILE, "a missing one");
    is_int(file_call(file, "g/a.txt", NULL), SBX_E_FILE_TYPE, "of a file");

    (void) shell("rm -rf g; mkdir -p g; cd g; for i in $(seq 60); do mkdir"
                 " n; cd n; done; seq 2000 | xargs touch");
    (void) glob("g/**", 4000, 0);
    is_int((int) nentries, 2060, "a deep and wide tree");
    for (i = 1; i < nentries; i++) {
        if (strcmp(entries[i - 1].path, entries[i].path) >= 0) {
            break;
        }
    }

    is_int((int) i, 2060, "in order, each once");
}


static void
test_others(void)
{
    sbx_f_file_t  stat = { .verb = SBX_FILE_STAT };
    sbx_f_file_t  mkdir = { .verb = SBX_FILE_MKDIR };
    sbx_f_file_t  move = { .verb = SBX_FILE_MOVE };

    (void) shell("echo x > st; ln -sfn st stl; mkdir -p mv");

    is_int(file_call(stat, "st", NULL), 0, "stat");
    is_str(entries[0].path, "/home/user/st", "a path");
    is_int((int64_t) entries[0].entry.size, 2, "a size");
    (void) shell("touch -d @99999999999 st");
    is_int(file_call(stat, "st", NULL), 0, "of a year far away");
    ok(entries[0].entry.mtime_ns == INT64_MAX, "the last time there is");
    is_int(file_call(stat, "stl", NULL), 0, "a link");
    is_str(entries[0].target, "st", "is told of as one");
    is_int(file_call(stat, "/", NULL), 0, "the root");
    is_str(entries[0].path, "/", "has a path too");
    is_int(file_call(stat, "", NULL), 0, "the workspace");
    is_str(entries[0].path, "/home/user", "by its name");
    is_int(file_call(stat, "mv/../st", NULL), 0, "a crooked path");
    is_str(entries[0].path, "/home/user/st", "is told straight");
    is_int(file_call(stat, "missing", NULL), SBX_E_FILE, "nothing");

    is_int(file_call(mkdir, "mk/a/b", NULL), 0, "mkdir with parents");
    is_int(r.end.created, 1, "makes");
    is_int(file_call(mkdir, "mk/a/b", NULL), 0, "again");
    is_int(r.end.created, 0, "is there");
    is_int(file_call(mkdir, "st", NULL), SBX_E_FILE_TYPE, "over a file");
    is_int(file_call(mkdir, "/usr/x", NULL), SBX_E_DENIED, "where not");

    is_int(file_call(move, "st", "mv/new/st"), 0, "move makes parents");
    is_str(entries[0].path, "/home/user/mv/new/st", "and tells where");
    (void) shell("echo y > st");
    move.flags = SBX_FILE_F_NO_REPLACE;
    is_int(file_call(move, "st", "mv/new/st"), SBX_E_EXISTS, "replaces none");
    move.flags = 0;
    is_int(file_call(move, "st", "mv/new/st"), 0, "unless it may");
    is_int(file_call(move, "st", "mv/x"), SBX_E_FILE, "what is not there");
    is_int(file_call(move, "mv", "mv/x/y"), SBX_E_CONFLICT, "into itself");
    is_int(file_call(move, "/home/user", "/tmp/x"), SBX_E_DENIED,
           "the workspace");

    is_int(file_call((sbx_f_file_t) { .verb = 99 }, "x", NULL),
           SBX_E_INVALID, "what is unknown");
    is_int(file_call((sbx_f_file_t) { .verb = SBX_FILE_STAT, .user = 7 },
                     "x", NULL), SBX_E_INVALID, "for an unknown user");
}


/* Servers that the session stops, and more calls than servers. */

static void
test_crowd(void)
{
    int                 i, good;
    static init_call_t  calls[200];
    sbx_f_file_t        file = { .verb = SBX_FILE_PUT, .size = SBX_UNSET,
                                 .max = SBX_UNSET };
    sbx_f_file_t        stat = { .verb = SBX_FILE_STAT };

    for (i = 0; i < 100; i++) {
        file_begin(&stat, "", NULL, &calls[i]);
    }

    for (i = 0, good = 0; i < 100; i++) {
        good += file_finish(&calls[i]) == SBX_F_END;
        init_hang_up(&calls[i]);
    }

    is_int(good, 100, "a hundred calls at once are all served");

    for (i = 0; i < 12; i++) {
        (void) snprintf(entries[0].path, 64, "crowd%d", i);
        file_begin(&file, entries[0].path, NULL, &calls[i]);
        (void) file_finish(&calls[i]);
    }

    file_begin(&stat, "", NULL, &calls[12]);
    file_begin(&stat, "", NULL, &calls[13]);
    init_hang_up(&calls[13]);
    init_hang_up(&calls[0]);
    is_int(file_finish(&calls[12]), SBX_F_END,
           "one that waited is served when another is done");
    init_hang_up(&calls[12]);

    for (i = 1; i < 12; i++) {
        init_send(calls[i].fd, SBX_F_DATA, NULL, 0);
        (void) file_finish(&calls[i]);
        init_hang_up(&calls[i]);
    }

    is_str(shell("ls crowd* | wc -l"), "11\n", "the others end well");
}


/* A server cannot be traced or read by its user. */

static void
test_server_is_closed(void)
{
    init_call_t   call;
    sbx_f_file_t  file = { .verb = SBX_FILE_PUT, .size = SBX_UNSET,
                           .max = SBX_UNSET };

    file_begin(&file, "traced", NULL, &call);
    (void) file_finish(&call);

    is_str(shell("for p in /proc/[0-9]*; do"
                 "  test \"$(cat $p/comm)\" = sandbox-init || continue;"
                 "  for f in exe root cwd fd/0; do readlink $p/$f; done;"
                 "  head -c1 $p/mem $p/environ $p/maps; head -c1 $p/exe;"
                 "done 2>/dev/null | wc -c"), "0\n",
           "nothing of init or of a server can be read");

    init_shell(&s, "for p in /proc/[0-9]*; do"
                 "  test \"$(cat $p/comm)\" = sandbox-init && basename $p;"
                 "done 2>/dev/null | wc -l", &r);
    is_str(init_text(r.out), "2\n", "though two were there");

    init_hang_up(&call);
}


static void
test_cut(void)
{
    int            i;
    init_call_t    call[3];
    struct pollfd  pfd;
    sbx_f_file_t   file = { .verb = SBX_FILE_OPEN };

    for (i = 0; i < 3; i++) {
        file_begin(&file, "data.txt", NULL, &call[i]);
        is_int(file_finish(&call[i]), SBX_F_OPENED, "a download is open");
        (void) close(opened);
        opened = -1;
    }

    pfd.fd = call[0].fd;
    pfd.events = POLLIN;
    is_int(poll(&pfd, 1, 100), 0, "and stays so");

    init_task(&s, SBX_OP_CUT, NULL, -1, NULL, 0);

    for (i = 0; i < 3; i++) {
        is_int(file_finish(&call[i]), 0, "it is cut");
    }

    init_records(&s, 100);
    is_int(s.cut, 0, "which is not told before the workers let go");

    for (i = 0; i < 3; i++) {
        init_hang_up(&call[i]);
    }

    while (s.cut == 0) {
        init_records(&s, INIT_WAIT);
    }

    ok(1, "and is told then");
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

    test_put_and_open();
    test_links();
    test_types();
    test_cut_upload();
    test_delete();
    test_lists();
    test_others();
    test_crowd();
    test_server_is_closed();
    test_cut();

    ok(init_stop(&s), "the session ends");

    return done_testing();
}
