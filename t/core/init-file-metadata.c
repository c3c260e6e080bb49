/*
 * What entries tell beyond a stat: where a link leads, and metadata, which an
 * upload sets and replaces; and files that are composed of others.
 */

#include "file_calls.h"


#define MORE   SBX_FILE_F_MORE
#define META   SBX_FILE_F_METADATA


static int
look(const char *path)
{
    sbx_f_file_t  file = { .verb = SBX_FILE_STAT, .flags = MORE };

    return file_call(file, path, NULL);
}


static void
test_links(void)
{
    unsigned      i, k;
    sbx_f_file_t  list = { .verb = SBX_FILE_LIST, .flags = MORE,
                           .limit = 60 };

    static const struct {
        const char  *name;
        const char  *target;
        uint32_t     type;
        uint32_t     mode;
    } rows[] = {
        { "abs", "/home/user/l/dir/file", SBX_TYPE_FILE, 0640 },
        { "chain", "/home/user/l/dir/file", SBX_TYPE_FILE, 0640 },
        { "dirlink", "/home/user/l/dir", SBX_TYPE_DIRECTORY, 0750 },
        { "fifo", "/home/user/l/dir/pipe", SBX_TYPE_FIFO, 0600 },
        { "gone", "/nowhere/at all", SBX_TYPE_NONE, 0 },
        { "loop", "/home/user/l/loop", SBX_TYPE_NONE, 0 },
        { "lost", "/home/user/l/dir/../no", SBX_TYPE_NONE, 0 },
        { "magic", "/proc/1/root", SBX_TYPE_NONE, 0 },
        { "out", "/etc/passwd", SBX_TYPE_FILE, 0644 },
        { "shut", "/root/x", SBX_TYPE_NONE, 0 }
    };

    (void) shell("mkdir -p l/dir; cd l; chmod 750 dir; : > dir/file;"
                 " chmod 640 dir/file; mkfifo -m 600 dir/pipe;"
                 " ln -s /home/user/l/dir/file abs; ln -s abs chain;"
                 " ln -s dir dirlink; ln -s dir/pipe fifo;"
                 " ln -s '/nowhere/at all' gone; ln -s dir/../no lost;"
                 " ln -s loop loop; ln -s /proc/1/root magic;"
                 " ln -s ../../../../../../etc/passwd out;"
                 " ln -s /root/x shut");

    is_int(file_call(list, "l", NULL), 0, "a list with more");
    is_int(nentries, sbx_nelts(rows) + 1, "of all");

    for (i = 0, k = 0; i < nentries; i++) {
        if (entries[i].entry.type != SBX_TYPE_LINK) {
            ok(entries[i].entry.target_len == 0
               && entries[i].entry.target_type == 0, "%s is no link",
               entries[i].path);
            continue;
        }

        if (k == sbx_nelts(rows)) {
            break;
        }

        is_str(strrchr(entries[i].path, '/') + 1, rows[k].name, "in order");
        is_str(entries[i].target, rows[k].target, rows[k].name);
        is_int(entries[i].entry.target_type, rows[k].type, "its type");
        is_int(entries[i].entry.target_mode, rows[k].mode, "its mode");
        k++;
    }

    is_int(k, sbx_nelts(rows), "each link");

    list.flags = 0;
    is_int(file_call(list, "l", NULL), 0, "a plain list");
    is_str(entries[1].target, "abs", "has the links' own text");
    is_int(entries[1].entry.target_mode, 0, "and no more");

    list.flags = MORE;
    is_int(file_call(list, "/home/user/l/dirlink/", NULL), 0,
           "a list by a link");
    is_str(entries[0].path, "/home/user/l/dirlink/file",
           "has the path that was asked for");
    is_int(look("/home/user/l/dirlink/file"), 0, "one file by a link");
    is_str(entries[0].path, "/home/user/l/dirlink/file", "has it, too");
    is_int(look("/"), 0, "and the root");
    is_str(entries[0].path, "/", "its own");
    list.verb = SBX_FILE_MKDIR;
    is_int(file_call(list, "l/dirlink", NULL), 0, "a directory by a link");
    is_int((int64_t) r.end.created, 0, "is there");
    is_str(entries[0].path, "/home/user/l/dirlink", "by that name");

    is_int(look("l/chain"), 0, "the same of one");
    is_str(entries[0].target, "/home/user/l/dir/file", "alone");
}


static void
test_metadata(void)
{
    char          big[SBX_FILE_METADATA_MAX + 8];
    sbx_f_file_t  file = { .flags = META };
    sbx_f_file_t  plain = { 0 };
    sbx_f_file_t  move = { .verb = SBX_FILE_MOVE, .flags = MORE };

    is_int(file_put(file, "m/f", "one", "a\0b c\0empty\0\0long\0"
                    "0123456789012345678901234567890123456789"
                    "0123456789012345678901234567890123456789", 99), 0,
           "a file with metadata");
    is_int((int64_t) r.end.created, 1, "is new");

    is_int(look("m/f"), 0, "and looked at");
    is_str(file_metadata(&entries[0], "a"), "b c", "a value");
    is_str(file_metadata(&entries[0], "empty"), "", "one that is empty");
    is_int((int64_t) strlen(file_metadata(&entries[0], "long")), 80,
           "one that commands could not set");
    is_int(entries[0].entry.metadata_len, 99, "no more than that");

    (void) shell("echo two >> m/f; ln -s f m/link");
    is_int(look("m/f"), 0, "it is written by a command");
    is_str(file_metadata(&entries[0], "a"), "b c", "that changes nothing");
    is_int(look("m/link"), 0, "by a link");
    is_str(file_metadata(&entries[0], "a"), "b c", "it is the file's");
    (void) shell("rm m/link");

    is_int(file_call(move, "m/f", "m/g"), 0, "a move");
    is_str(file_metadata(&entries[0], "a"), "b c", "takes it along");
    (void) shell("cp m/g m/f");
    move.user = SBX_USER_ROOT;
    is_int(file_call(move, "m/g", "/dev/g"), 0, "one to another mount");
    is_str(file_metadata(&entries[0], "a"), "b c", "does so, too");

    is_int(file_put(file, "m/f", "three", "c\0d\0", 4), 0, "another upload");
    is_int((int64_t) r.end.created, 0, "replaces the file");
    is_int(look("m/f"), 0, "and");
    is_str(file_metadata(&entries[0], "a"), "-", "all that there was");
    is_str(file_metadata(&entries[0], "c"), "d", "by what is new");

    is_int(file_put(plain, "m/f", "four", NULL, 0), 0, "one without");
    is_int(look("m/f"), 0, "leaves");
    is_int(entries[0].entry.metadata_len, 0, "nothing");

    memset(big, 'v', sizeof(big));
    memcpy(big, "k", 2);
    big[SBX_FILE_METADATA_MAX - 1] = '\0';
    is_int(file_put(file, "m/big", "x", big, SBX_FILE_METADATA_MAX), 0,
           "as much as may be");
    is_int(look("m/big"), 0, "is");
    is_int(entries[0].entry.metadata_len, SBX_FILE_METADATA_MAX, "there");

    memset(big, 'k', 300);
    memcpy(big + 250, "\0v", 3);
    is_int(file_put(file, "m/key", "x", big, 253), 0, "a long key");
    is_int(look("m/key"), 0, "is");
    is_int(entries[0].entry.metadata_len, 253, "there");

    is_int(file_put(file, "m/bad", "x", "\0v\0", 3), SBX_E_PATH,
           "an empty key is malformed");
    is_str(shell("cd m; ls -A"), "big\nf\nkey\n", "and leaves nothing");
}


/* As many files as init keeps metadata of; those that are gone make room. */

static void
test_kept(void)
{
    int           rc;
    char          path[64];
    unsigned      i;
    sbx_f_file_t  file = { .flags = META };
    sbx_f_file_t  move = { .verb = SBX_FILE_MOVE };

    (void) shell("rm -r m; mkdir k");

    for (i = 0, rc = 0; i < 600 && rc == 0; i++) {
        (void) snprintf(path, sizeof(path), "k/%u", i);
        rc = file_put(file, path, "", "k\0v\0", 4);
    }

    is_int(rc, SBX_E_NO_SPACE, "at last there is no room for more");
    is_int(i, 512, "files than that and the one in /dev");
    is_str(shell("ls k | wc -l; ls -A k | grep -c upload"), "511\n0\n",
           "what has none is not there");
    is_int(file_put(file, "k/0", "", "k\0w\0", 4), SBX_E_NO_SPACE,
           "not to replace one either");
    is_int(look("k/0"), 0, "it");
    is_str(file_metadata(&entries[0], "k"), "v", "is as it was");

    is_int(file_call(move, "k/1", "k/moved"), 0, "one is moved");
    (void) shell("rm k/2 k/3; : > k/3");
    is_int(file_put(file, "k/new", "", "k\0n\0", 4), 0,
           "one is gone, and makes room");
    is_int(file_put(file, "k/new2", "", "k\0n\0", 4), 0,
           "one is another now, and does, too");
    is_int(file_put(file, "k/new3", "", "k\0n\0", 4), SBX_E_NO_SPACE,
           "no more");
    is_int(look("k/3"), 0, "that one");
    is_int(entries[0].entry.metadata_len, 0, "has none");
    is_int(look("k/moved"), 0, "the moved one");
    is_str(file_metadata(&entries[0], "k"), "v", "has its own");
    is_int(look("k/new"), 0, "and the new one");
    is_str(file_metadata(&entries[0], "k"), "n", "has, too");

    (void) shell("mv k/4 k/by-hand; cp k/5 k/copy; chmod 0 k/6;"
                 " ln k/7 k/hard; rm k/7");
    is_int(look("k/by-hand"), 0, "moved by a command");
    is_str(file_metadata(&entries[0], "k"), "v", "it is the same file");
    is_int(look("k/copy"), 0, "a copy");
    is_int(entries[0].entry.metadata_len, 0, "is another");
    is_int(look("k/hard"), 0, "another name");
    is_str(file_metadata(&entries[0], "k"), "v", "is none");
}


/* What a program sets is told, if it is a text; and only this prefix. */

static void
test_own(void)
{
    if (strcmp(shell("python3 -c 'import os\n"
                     "open(\"own\", \"w\")\n"
                     "for k, v in ((\"e2b.a\", b\"1\"),"
                     " (\"e2b.n\", b\"x\\0y\"), (\"b\", b\"2\")):\n"
                     "    os.setxattr(\"own\", \"user.\" + k, v)\n"
                     "print(\"set\")' 2>&1"),
               "set\n")
        != 0)
    {
        skip(init_text(r.out), "attributes that a command sets");
        return;
    }

    is_int(look("own"), 0, "attributes that a command has set");
    is_str(file_metadata(&entries[0], "e2b.a"), "1", "are told");
    is_str(file_metadata(&entries[0], "b"), "2", "of any name");
    is_str(file_metadata(&entries[0], "e2b.n"), "-", "if they are texts");
    (void) shell("chmod 0 own");
    is_int(look("own"), 0, "of a file that may not be read");
    is_int(entries[0].entry.metadata_len, 0, "nothing is told");
}


static void
test_compose(void)
{
    sbx_f_file_t  file = { .verb = SBX_FILE_COMPOSE, .flags = MORE };
    init_call_t   call;

#define COMPOSE(to, from)                                                    \
    (nentries = 0, init_result_free(&r),                                     \
     file_send(&call, &file, to, from, sizeof(from) - 1, NULL, 0),           \
     file_finish(&call))

    (void) shell("mkdir c; cd c; echo 1 > a; echo 2 > b; echo 3 > d;"
                 " ln -s d e; mkfifo p; chmod 600 a");

    is_int(COMPOSE("c/x/y/all", "c/a\0c/b\0c/e\0"), 0, "three files");
    is_int((int64_t) r.end.count, 3, "are counted");
    is_int((int64_t) r.end.size, 6, "and measured");
    is_int((int64_t) r.end.created, 1, "the file is new");
    is_str(entries[0].path, "/home/user/c/x/y/all", "told of");
    is_str(shell("cd c; cat x/y/all; ls -A"), "1\n2\n3\nd\np\nx\n",
           "in order; they are gone, a link but not what it led to");

    (void) shell("cd c; echo 1 > a; echo 2 > b; chmod 640 a; cp a a2");
    is_int(COMPOSE("c/a", "c/b\0c/a\0c/b\0"), 0, "onto one of them");
    is_int((int64_t) r.end.created, 0, "it is replaced");
    is_str(shell("cd c; cat a; stat -c %a a; ls -A"),
           "2\n1\n2\n640\na\na2\nd\np\nx\n", "as an upload does");

    is_int(COMPOSE("c/n/x", "c/a\0c/none\0"), SBX_E_FILE, "one is missing");
    is_int(COMPOSE("c/n/x", "c/a\0c/p\0"), SBX_E_FILE_TYPE, "a FIFO");
    is_int(COMPOSE("c/n/x", "c/a\0c\0"), SBX_E_FILE_TYPE, "a directory");
    is_int(COMPOSE("c/n/x", "c/a\0/proc/version\0"), SBX_E_DENIED,
           "one that cannot be taken away");
    is_int(COMPOSE("c/n/x", ""), SBX_E_INVALID, "none at all");
    is_int(COMPOSE("c/n/x", "c/a"), SBX_E_PATH, "a list without its end");
    is_int(COMPOSE("c/x", "c/a\0"), SBX_E_FILE_TYPE, "onto a directory");
    file.max = 3;
    is_int(COMPOSE("c/n/x", "c/a\0"), SBX_E_TOO_LARGE, "larger than allowed");
    file.max = 0;
    (void) shell("truncate -s 30M c/huge; cp c/huge c/huge2");
    is_int(COMPOSE("c/n/x", "c/huge\0c/huge2\0c/huge\0"), SBX_E_NO_SPACE,
           "larger than there is room");
    is_str(shell("cd c; cat a; ls -A; rm huge huge2"),
           "2\n1\n2\na\na2\nd\nhuge\nhuge2\nn\np\nx\n",
           "all that changes no file");

    file.user = SBX_USER_ROOT;
    is_int(COMPOSE("c/r/x", "c/a\0"), 0, "as root");
    is_str(shell("stat -c %u c/r c/r/x"), "0\n0\n", "it is root's");
}


/* With root's rights, but for the session's user. */

static void
test_owned(void)
{
    init_call_t   call;
    sbx_f_file_t  file = { .verb = SBX_FILE_MKDIR, .user = SBX_USER_ROOT,
                           .flags = SBX_FILE_F_OWNED };
    sbx_f_file_t  put = file;
    init_exec_t   x = { .user = SBX_USER_ROOT, .flags = SBX_EXEC_CAP };
    const char   *argv[] = { "/bin/sh", "-c", "mkdir -m 700 /root/h /root/t;"
                             " echo 1 > /root/t/old; echo 2 > /root/t/keep;"
                             " chmod 600 /root/t/*; mkfifo /root/t/p", NULL };

    x.argv = argv;
    init_exec(&s, &x, &r);

    is_int(file_call(file, "/root/h/a/b", NULL), 0, "a directory of root's");
    is_int(file_put(put, "/root/h/c/new", "x", NULL, 0), 0, "an upload");
    is_int(file_put(put, "/root/t/old", "x", NULL, 0), 0, "onto a file");
    is_int(file_put(put, "/root/t/p", "x", NULL, 0), SBX_E_FILE_TYPE,
           "not onto a FIFO");
    is_int(file_put(put, "/usr/new", "x", NULL, 0), SBX_E_DENIED,
           "what is read-only stays so");
    is_int(file_put(put, "/proc/sys/kernel/hostname", "x", NULL, 0),
           SBX_E_FILE_TYPE, "and so do the kernel's files");
    file.verb = SBX_FILE_MOVE;
    is_int(file_call(file, "/root/t/keep", "/root/h/d/moved"), 0, "a move");
    file.verb = SBX_FILE_COMPOSE;
    file_send(&call, &file, "/root/h/e/all", "/root/h/c/new\0", 14, NULL, 0);
    is_int(file_finish(&call), 0, "a composed file");

    argv[2] = "cd /root; stat -c '%n %u %g %a' h h/* h/*/* t/old;"
              " cat h/d/moved";
    init_exec(&s, &x, &r);
    is_str(init_text(r.out),
           "h 0 0 700\nh/a 1000 1000 755\nh/c 1000 1000 755\n"
           "h/d 1000 1000 755\nh/e 1000 1000 755\nh/a/b 1000 1000 755\n"
           "h/d/moved 0 0 600\nh/e/all 1000 1000 644\n"
           "t/old 1000 1000 600\n2\n",
           "what was made is the user's, and nothing else");

    argv[2] = "rm -r /root/h /root/t";
    init_exec(&s, &x, &r);

    /* the user asks by himself: nothing is more than his */

    file.user = SBX_USER_USER;
    file.verb = SBX_FILE_MKDIR;
    is_int(file_call(file, "/root/x", NULL), SBX_E_DENIED,
           "without root's rights it adds none");
}


/* What the E2B protocol expects of older verbs. */

static void
test_verbs(void)
{
    sbx_f_file_t  mkdir = { .verb = SBX_FILE_MKDIR, .flags = MORE };
    sbx_f_file_t  move = { .verb = SBX_FILE_MOVE, .flags = MORE };
    sbx_f_file_t  drop = { .verb = SBX_FILE_DELETE,
                           .flags = SBX_FILE_F_RECURSIVE };
    sbx_f_file_t  list = { .verb = SBX_FILE_LIST, .limit2 = 9 };
    sbx_f_file_t  put = { .user = SBX_USER_ROOT };

    (void) shell("mkdir v; echo a > v/a; echo b > v/b");

    is_int(file_call(mkdir, "v/d/e", NULL), 0, "a directory is made");
    is_int((int64_t) r.end.created, 1, "new");
    is_int(file_call(mkdir, "v/d/e", NULL), 0, "again");
    is_int((int64_t) r.end.created, 0, "it was there");
    is_int(file_call(mkdir, "v/a", NULL), SBX_E_FILE_TYPE, "over a file");
    is_int(file_call(mkdir, "v/a/x", NULL), SBX_E_FILE_TYPE, "below one");

    is_int(file_call(move, "v/a", "v/n/m/b"), 0, "parents are made");
    is_int(file_call(move, "v/b", "v/n/m/b"), 0, "a file goes over another");
    is_str(shell("cat v/n/m/b"), "b\n", "and takes its place");
    is_int(file_call(move, "v/none", "v/o/x"), SBX_E_FILE, "of nothing");
    is_int(file_call(drop, "v/none", NULL), SBX_E_FILE, "nothing is removed");
    is_int(file_call(drop, "v/none/x", NULL), SBX_E_FILE, "nor below it");

    is_int(file_put(put, "v/r/s/f", "x", NULL, 0), 0, "root's upload");
    is_str(shell("stat -c %u v/r v/r/s v/r/s/f v/n v/n/m; ls v"),
           "0\n0\n0\n1000\n1000\nd\nn\nr\n", "parents are their maker's");

    (void) shell("mkdir -p o/a o/a- o/b; : > o/a/z; : > o/a.x; : > o/b/c");
    is_int(file_call(list, "o", NULL), 0, "a list");
    is_int(nentries, 6, "of all");
    is_str(entries[0].path, "/home/user/o/a", "a");
    is_str(entries[1].path, "/home/user/o/a-", "then by bytes");
    is_str(entries[3].path, "/home/user/o/a/z", "of the whole path");

    list.flags = SBX_FILE_F_MORE;
    is_int(file_call(list, "o", NULL), 0, "a list with more");
    is_int(nentries, 6, "of all");
    is_str(entries[1].path, "/home/user/o/a/z", "what is below comes next");
    is_str(entries[2].path, "/home/user/o/a-", "then the other names");
    is_str(entries[5].path, "/home/user/o/b/c", "to the end");
}


/* Servers that cannot set attributes, as where the file system has none. */

static void
refuse_attributes(void)
{
    static struct sock_filter  filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_fsetxattr, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EOPNOTSUPP),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)
    };

    init_files_filter = filter;
    init_files_filter_size = sizeof(filter);
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

    test_links();
    test_metadata();
    test_own();
    test_compose();
    test_verbs();
    test_owned();

    ok(init_stop(&s), "the session ends");
    init_again();

    printf("# metadata that init keeps\n");
    refuse_attributes();
    init_start(&s);

    test_metadata();
    test_kept();

    ok(init_stop(&s), "the session ends");

    return done_testing();
}
