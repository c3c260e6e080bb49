/*
 * Watches with entries, and watches whose events are kept until they are
 * asked for.
 */

#include "file_calls.h"


#define MORE   SBX_FILE_F_MORE
#define DEEP   SBX_FILE_F_RECURSIVE


static uint64_t
watcher(const char *path, uint32_t flags, uint32_t user)
{
    sbx_f_file_t  file = { .verb = SBX_FILE_WATCHER, .flags = flags,
                           .user = user };

    return file_call(file, path, NULL) == 0 ? r.end.count : 0;
}


static int
ask(uint32_t verb, uint64_t number)
{
    sbx_f_file_t  file = { .verb = verb, .size = number };

    return file_call(file, "", NULL);
}


/* "+a *a -b" of the events of a watch below base; "." follows an entry. */

static const char *
told(const char *base)
{
    size_t        n;
    unsigned      i;
    const char   *path;
    static char   buf[8192];

    static const char  marks[] = { '+', '*', '-', '>', '%', '!' };

    buf[0] = '\0';

    for (i = 0, n = 0; i < nchanges && n < sizeof(buf) - 512; i++) {
        path = changes[i].path;

        if (strncmp(path, base, strlen(base)) == 0) {
            path += strlen(base);
            path += *path == '/';
        }

        n += (size_t) snprintf(buf + n, sizeof(buf) - n, "%s%c%s%s",
                               n ? " " : "", marks[changes[i].change], path,
                               changes[i].entry != -1 ? "." : "");
    }

    return buf;
}


static const char *
events(uint64_t number, const char *base)
{
    int          rc;
    static char  error[32];

    rc = ask(SBX_FILE_EVENTS, number);
    (void) snprintf(error, sizeof(error), "error %d", rc);

    return rc == 0 ? told(base) : error;
}


static int
processes(void)
{
    return atoi(shell("ls -d /proc/[0-9]* | wc -l"));
}


/* Besides those that there always are, n are left before long. */

static void
settles(int n, const char *name)
{
    int         i, now;
    static int  idle;

    if (idle == 0) {
        idle = processes();
    }

    for (i = 0; i < 400; i++) {
        now = processes() - idle;

        if (now == n) {
            break;
        }

        (void) usleep(5000);
    }

    is_int(now, n, name);
}


static void
test_stream(void)
{
    int           type;
    init_call_t   call, plain;
    sbx_f_file_t  file = { .verb = SBX_FILE_WATCH, .flags = MORE | DEEP };
    sbx_f_file_t  put = { .flags = SBX_FILE_F_METADATA };

    (void) shell("mkdir -p s/d; ln -s s link");

    is_int(file_call(file, "/etc/passwd", NULL), SBX_E_FILE_TYPE,
           "with more a file is not watched");
    is_int(file_call(file, "s/none", NULL), SBX_E_FILE, "nor what is not");

    nchanges = 0;
    nentries = 0;
    file_send(&call, &file, "/home/user/link", NULL, 0, NULL, 0);
    is_int(file_next(&call, INIT_WAIT), SBX_F_READY, "a watch with entries");
    file.flags = DEEP;
    file_send(&plain, &file, "/home/user/link", NULL, 0, NULL, 0);
    is_int(file_next(&plain, INIT_WAIT), SBX_F_READY, "and a plain one");

#define UNTIL(c, what)                                                       \
    do {                                                                     \
        type = file_next(&(c), INIT_WAIT);                                   \
    } while (type == SBX_F_ENTRY                                             \
             || (type == SBX_F_CHANGE                                        \
                 && strstr(changes[nchanges - 1].path, what) == NULL))

    is_int(file_put(put, "s/new", "x", "k\0v\0", 4), 0, "an upload");
    is_int(file_put(put, "s/new", "xy", "k\0w\0", 4), 0, "another");
    (void) shell("mkdir s/e");
    nchanges = 0;
    UNTIL(plain, "/e");
    is_str(told("/home/user/s"), "+new *new +e", "the plain one");

    nchanges = 0;
    UNTIL(call, "/e");
    (void) shell("echo 1 > s/e/f; chmod 600 s/e/f; : > s/half");
    UNTIL(call, "half");
    is_str(told("/home/user/link"),
           "+new. %new. *new. *new. +e. +e/f. *e/f. %e/f. +half",
           "changes, entries of what is there, by the path that was given");
    is_str(file_metadata(&entries[3], "k"), "w", "with metadata");

    (void) shell("rm s/e/f; mv s/d s/d2; : > s/end1; : > s/end2");
    nchanges = 0;
    UNTIL(call, "end2");
    is_str(told("/home/user/link"), "-e/f >d +d2. +end1. +end2",
           "none of what is gone");
    init_hang_up(&call);

    nchanges = 0;
    UNTIL(plain, "end2");
    is_str(told("/home/user/s"),
           "+e/f *e/f %e/f +half -e/f >d +d2 +end1 +end2",
           "the plain one has neither");
    init_hang_up(&plain);
}


/* What the broker is told when it asks whether the session is idle. */

static uint32_t
busy_calls(void)
{
    s.busy = 12345;
    init_task(&s, SBX_OP_BUSY, NULL, -1, NULL, 0);

    while (s.busy == 12345) {
        init_records(&s, INIT_WAIT);
    }

    return s.busy;
}


static void
test_kept(void)
{
    unsigned      i;
    uint64_t      one, two, top;
    sbx_f_file_t  put = { .flags = SBX_FILE_F_METADATA };

    (void) shell("mkdir -p w/d");

    one = watcher("/home/user/w", MORE | DEEP, SBX_USER_USER);
    two = watcher("w", 0, SBX_USER_ROOT);
    top = watcher("w/d", MORE, SBX_USER_USER);
    ok(one != 0 && two != 0 && top != 0 && one != two && two != top
       && one != top, "three watches have numbers of their own");
    settles(2, "and two processes, one for each user");


    /* the calls that asked for them are over before long */

    for (i = 0; i < 400 && busy_calls() != 0; i++) {
        (void) usleep(5000);
    }

    is_int(busy_calls(), 0, "which keep no session from being idle");

    is_str(events(one, ""), "", "nothing has happened");
    (void) shell("mkdir w/n");
    is_str(events(one, "/home/user/w"), "+n.", "a directory is made");
    (void) shell("echo 1 > w/n/f; : > w/d/x; rm w/d/x");
    is_str(events(one, "/home/user/w"), "+n/f. *n/f. +d/x -d/x",
           "what has, with entries of what is still there");
    is_str(events(two, "/home/user/w"), "+n", "one that is not recursive");
    is_str(events(top, "/home/user/w/d"), "+x -x", "one of a part");
    is_str(events(one, ""), "", "each is told once");

    is_int(file_put(put, "w/up", "1", "k\0v\0", 4), 0, "an upload");
    is_str(events(one, "/home/user/w"), "+up. %up. *up.", "is told at once");
    is_str(file_metadata(&entries[0], "k"), "v", "with its metadata");
    (void) shell("echo 2 >> w/up");
    is_str(events(one, "/home/user/w"), "*up.", "a write");
    (void) shell("echo 2 >> w/up");
    is_str(events(one, "/home/user/w"), "*up.", "and one more");

    (void) shell("rm -r w/d; mkdir w/d; : > w/d/y");
    is_str(events(top, "/home/user/w/d"), "-", "the directory is gone");
    is_str(events(top, ""), "", "the watch is not, but has no more to tell");

    is_int(ask(SBX_FILE_UNWATCH, two), 0, "one ends");
    is_int(ask(SBX_FILE_UNWATCH, two), SBX_E_FILE, "once");
    is_int(ask(SBX_FILE_EVENTS, two), SBX_E_FILE, "and tells no more");
    settles(1, "nor has a process");
    is_int(ask(SBX_FILE_UNWATCH, top), 0, "another ends");
    is_int(ask(SBX_FILE_UNWATCH, one), 0, "and the last");
    settles(0, "nothing is left");

    ok(watcher("w", 0, SBX_USER_USER) > one, "no number comes again");
    is_int(ask(SBX_FILE_UNWATCH, r.end.count), 0, "that one ends, too");

    is_int(ask(SBX_FILE_EVENTS, 0), SBX_E_FILE, "no number");
    is_int(ask(SBX_FILE_EVENTS, UINT64_MAX), SBX_E_FILE, "a wild one");
    is_int((int64_t) watcher("w/none", 0, SBX_USER_USER), 0, "of no path");
    is_int(r.error.code, SBX_E_FILE, "there is none");
    settles(0, "and no process");
}


static void
test_bounds(void)
{
    unsigned      i;
    uint64_t      all[SBX_WATCHERS_MAX], busy;
    init_call_t   call;
    sbx_f_file_t  watch = { .verb = SBX_FILE_WATCH };

    (void) shell("mkdir -p b/c b/q");

    for (i = 0; i < SBX_WATCHERS_MAX; i++) {
        all[i] = watcher(i == 0 ? "b/c" : "b", 0, i & 1);

        if (all[i] == 0) {
            break;
        }
    }

    is_int(i, SBX_WATCHERS_MAX, "as many as a session may have");
    is_int((int64_t) watcher("b", 0, SBX_USER_USER), 0, "one more is not");
    is_int(r.error.code, SBX_E_QUOTA, "given");
    is_str(r.error.resource, "watchers", "by this name");
    is_int((int64_t) r.error.retry_after, 1, "until one is ended");
    is_str(r.error.scope, "session", "to a session");
    is_int((int64_t) r.error.limit, SBX_WATCHERS_MAX, "and number");

    file_send(&call, &watch, "b", NULL, 0, NULL, 0);
    is_int(file_next(&call, INIT_WAIT), SBX_F_READY,
           "a call's own watch is another thing");
    init_hang_up(&call);

    is_int(ask(SBX_FILE_UNWATCH, all[1]), 0, "one ends");
    busy = watcher("b/q", 0, SBX_USER_ROOT);
    ok(busy != 0, "and there is room for one");

    (void) shell("cd b/c; seq 3000 | xargs touch; rm *; : > last");
    is_int(ask(SBX_FILE_EVENTS, all[0]), 0, "more events than are kept");
    is_int(nchanges, SBX_WATCHER_EVENTS + 1, "so many, and one");
    is_int(changes[nchanges - 1].change, SBX_CHANGE_OVERFLOW,
           "which says so");
    (void) shell(": > b/c/next");
    is_str(events(all[0], "/home/user/b/c"), "+next",
           "then it goes on anew");

    for (i = 0; i < SBX_WATCHERS_MAX; i++) {
        (void) ask(SBX_FILE_UNWATCH, i == 1 ? busy : all[i]);
    }
}


/* Long names: the bytes are bounded before the events are. */

static void
test_bytes(void)
{
    uint64_t  one;

    (void) shell("d=l; for i in 1 2 3 4; do d=$d/$(printf %0200d $i); done;"
                 " mkdir -p $d");
    one = watcher("l", DEEP, SBX_USER_USER);
    (void) shell("cd l/*/*/*/*; seq 800 | xargs -n 100 touch");
    is_int(ask(SBX_FILE_EVENTS, one), 0, "long paths");
    ok(nchanges > 500 && nchanges < 700, "%u events of them", nchanges);
    is_int(changes[nchanges - 1].change, SBX_CHANGE_OVERFLOW, "and no more");
    is_int(ask(SBX_FILE_UNWATCH, one), 0, "it ends");
}


/* Who keeps them is of the session's user, who may kill it. */

static void
test_killed(void)
{
    uint64_t  one, two;

    one = watcher("w", 0, SBX_USER_USER);
    (void) shell("for p in /proc/[0-9]*; do p=${p#/proc/};"
                 " [ $p = 1 ] || [ $p = $$ ] || kill -9 $p; done");
    settles(0, "it is killed");
    is_int(ask(SBX_FILE_EVENTS, one), SBX_E_FILE, "its watches are gone");
    two = watcher("w", 0, SBX_USER_USER);
    ok(two > one, "others can be had");
    (void) shell("for p in /proc/[0-9]*; do p=${p#/proc/};"
                 " [ $p = 1 ] || [ $p = $$ ] || kill -STOP $p; done;"
                 " : > w/z;"
                 " for p in /proc/[0-9]*; do p=${p#/proc/};"
                 " [ $p = 1 ] || kill -CONT $p; done");
    is_str(events(two, "/home/user/w"), "+z", "one that was stopped goes on");
    is_int(ask(SBX_FILE_UNWATCH, two), 0, "it ends");
    settles(0, "nothing is left");

    one = watcher("w", 0, SBX_USER_ROOT);
    ok(one != 0, "one is there when the session ends");
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
    settles(0, "nobody serves yet");

    test_stream();
    test_kept();
    test_bounds();
    test_bytes();
    test_killed();

    ok(init_stop(&s), "the session ends");
    free(changes);

    return done_testing();
}
