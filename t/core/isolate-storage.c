/* A session's disk: each kind from below, and what must not happen to it. */

#include "inside.h"
#include "storage_private.h"

#include <dirent.h>
#include <linux/loop.h>
#include <linux/major.h>
#include <sys/file.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>


#define ID       "itest0000000000000000000001"
#define MAKERS   16


static int
inside_builtin(const char *name, const char *argument)
{
    (void) name;
    (void) argument;

    return 1;
}


/* Loop devices with a file below the state directory. */
static unsigned
loops(void)
{
    int             fd;
    DIR            *dir;
    char            path[300], file[PATH_MAX];
    unsigned        n;
    ssize_t         len;
    struct dirent  *entry;

    n = 0;
    dir = opendir("/sys/block");

    while (dir != NULL && (entry = readdir(dir)) != NULL) {
        (void) snprintf(path, sizeof(path), "/sys/block/%.200s/loop/"
                        "backing_file", entry->d_name);
        fd = open(path, O_RDONLY);

        if (fd == -1) {
            continue;
        }

        len = read(fd, file, sizeof(file) - 1);
        (void) close(fd);

        n += len > 0 && strncmp(file, inside_state, strlen(inside_state)) == 0;
    }

    if (dir != NULL) {
        (void) closedir(dir);
    }

    return n;
}


/* A file system is unmounted a moment after its last user has ended. */
static unsigned
loops_at_last(unsigned want)
{
    int  tries;

    for (tries = 0; loops() != want && tries < 2000; tries++) {
        (void) usleep(5000);
    }

    return loops();
}


static unsigned
entries(const char *name)
{
    DIR            *dir;
    char            path[256];
    unsigned        n;
    struct dirent  *entry;

    (void) snprintf(path, sizeof(path), "%s/%s", inside_state, name);
    dir = opendir(path);
    n = 0;

    while (dir != NULL && (entry = readdir(dir)) != NULL) {
        n += entry->d_name[0] != '.'
             && strncmp(entry->d_name, "image.", 6) != 0;
    }

    if (dir != NULL) {
        (void) closedir(dir);
    }

    return n;
}


static void
test_numbers(void)
{
    char                storage_dir[] = "/dev/shm/sbx-storage-XXXXXX";
    char                half[128];
    sbx_error_t         e;
    sbx_limits_t        limits;
    sbx_storage_t      *storage;
    sbx_enforcement_t   enf;

    inside_limits(&limits);
    memset(&enf, 0, sizeof(enf));

    sbx_storage_enforcement(NULL, &enf);
    ok(enf.disk == SBX_BY_TMPFS && enf.inodes == SBX_BY_TMPFS,
       "without a storage files are in a tmpfs");
    is_int((int64_t) sbx_storage_default_disk(NULL, 100 << 20), 50 << 20,
           "whose default is half of the memory");
    is_int((int64_t) sbx_storage_default_disk(NULL, 64ull << 30), 1 << 30,
           "and at most 1 GB");
    ok(sbx_storage_in_memory(NULL, &limits) == limits.disk,
       "all of it is memory");

    if (mkdtemp(storage_dir) == NULL) {
        ok(0, "a directory in memory");
        return;
    }

    ok(sbx_storage_open(SBX_STORAGE_IMAGE, storage_dir, inside_state, "t",
                        &storage, &e) == -1
       && strstr(e.text, "in memory") != NULL,
       "no image is kept in memory");

    /* of an earlier broker, which found a disk there */

    (void) snprintf(half, sizeof(half), "%s/sandbox-t/new.1", storage_dir);
    (void) close(open(half, O_WRONLY | O_CREAT, 0600));
    ok(access(half, F_OK) == 0, "half an image is left there");

    ok(sbx_storage_open(SBX_STORAGE_AUTO, storage_dir, inside_state, "t",
                        &storage, &e) == 0
       && sbx_storage_kind(storage) == SBX_STORAGE_TMPFS
       && strstr(sbx_storage_lacks(storage), "in memory") != NULL,
       "auto is a tmpfs then, and says why");
    ok(access(half, F_OK) == -1, "and the half image is gone");
    sbx_storage_close(storage);

    ok(chmod(storage_dir, 0700) == 0
       && sbx_storage_open(SBX_STORAGE_DIRECTORY, "/nowhere/at/all",
                           inside_state, "t", &storage, &e) == -1
       && e.code == SBX_E_UNAVAILABLE, "a directory that cannot be made");

    (void) snprintf(inside_reply.out, sizeof(inside_reply.out),
                    "rm -rf %s", storage_dir);
    (void) !system(inside_reply.out);
}


/* Whatever is not an image must not be shut down. */
static void
test_forget(void)
{
    int   dir;
    char  path[256];

    dir = open(inside_state, O_RDONLY | O_DIRECTORY);
    sbx_storage_forget(dir);
    (void) close(dir);

    (void) snprintf(path, sizeof(path), "%s/alive", inside_state);
    dir = open(path, O_WRONLY | O_CREAT, 0600);
    ok(dir != -1 && write(dir, "x", 1) == 1 && fsync(dir) == 0,
       "the host's file system is not shut down");
    (void) close(dir);
    (void) unlink(path);
}


static void
test_image(void)
{
    sbx_error_t       e;
    sbx_usage_t       usage;
    sbx_limits_t      limits, large;
    inside_session_t  s;

    inside_limits(&limits);
    limits.max_file_size = 1 << 30;

    if (!ok(inside_launch(&s, ID, &limits, "base", &e) == 0,
            "a session with an image starts"))
    {
        printf("# %s: %s\n", e.text, strerror(e.err));
        (void) inside_end(&s);
        return;
    }

    inside_ok(&s, "n=$(df -k --output=avail / | tail -1);"
              " test $n -ge 32768 -a $n -le 32800",
              "the free disk is the limit");
    inside_ok(&s, "n=$(df --output=iavail / | tail -1);"
              " test $n -ge 2000 -a $n -le 2016",
              "the free inodes are the limit");
    inside_is(&s, "df -k --output=size /dev/shm | tail -1 | tr -d ' '",
              "32768\n", "a quarter of the memory for /dev/shm");
    inside_ok(&s, "! grep -E ' (/tmp|/var/tmp) ext4' /proc/self/mounts"
              " | grep -vE 'rw,nosuid,nodev,noatime.*errors=remount-ro'",
              "mounted as it should be");
    inside_ok(&s, "! cat /proc/self/mountinfo | grep -q sessions/",
              "no path of the host is told");
    inside_ok_as(&s, SBX_USER_ROOT, "for i in 0 1 2 3; do"
                 " ! head -c 1 /dev/loop$i 2>/dev/null"
                 " && ! mknod /tmp/l b 7 $i 2>/dev/null || exit 1; done",
                 "nobody inside has a loop device");

    inside_ok(&s, "cat /dev/zero > big 2>/dev/null;"
              " n=$(stat -c %s big); rm big;"
              " test $n -ge 33000000 -a $n -le 33600000",
              "as much as was asked for can be written");
    inside_ok(&s, "head -c 30000000 /dev/zero > /tmp/a;"
              " ! head -c 10000000 /dev/zero > b 2>/dev/null",
              "one limit for all places");

    memset(&usage, 0, sizeof(usage));
    ok(sbx_disk_usage(s.disk, &usage, &e) == 0 && usage.disk > 30000000
       && usage.inodes > 5, "the image tells its use");
    is_int(loops(), 1, "one loop device");
    is_int(entries("images"), 0, "and no file");

    sbx_storage_forget(s.disk);
    ok(inside_end(&s) == 0, "it ends");
    is_int(loops_at_last(0), 0, "and leaves no loop device");

    large = limits;
    large.disk = 1ull << 50;
    ok(sbx_storage_admit(inside_storage, &limits, &e) == 0
       && sbx_storage_admit(inside_storage, &large, &e) == -1
       && e.code == SBX_E_CAPACITY && strstr(e.text, "MB free") != NULL,
       "more than the host has is refused");
}


/* All at once, for the same loop devices. */
static void
test_race(void)
{
    int           i, status, root;
    pid_t         pids[MAKERS];
    unsigned      good;
    sbx_error_t   e;
    sbx_volume_t  volume;

    memset(&volume, 0, sizeof(volume));
    volume.limits.disk = 2 << 20;
    volume.limits.inodes = 300;
    good = 0;

    (void) fflush(stdout);

    for (i = 0; i < MAKERS; i++) {
        pids[i] = fork();

        if (pids[i] == 0) {
            _exit(sbx_image_make(inside_storage, &volume, &root, &e) == 0
                  && mkdirat(root, "x", 0755) == 0 ? 0 : 1);
        }
    }

    for (i = 0; i < MAKERS; i++) {
        good += waitpid(pids[i], &status, 0) == pids[i] && status == 0;
    }

    is_int(good, MAKERS, "many get an image at once");
    is_int(loops_at_last(0), 0, "and leave nothing");

    /* killed in the middle, whenever that is */

    for (i = 0; i < 60; i++) {
        pids[0] = fork();

        if (pids[0] == 0) {
            volume.limits.inodes = 300 + (uint64_t) i;
            (void) sbx_image_make(inside_storage, &volume, &root, &e);
            _exit(0);
        }

        (void) usleep((unsigned) i * 500);
        (void) kill(pids[0], SIGKILL);
        (void) waitpid(pids[0], &status, 0);
    }

    is_int(loops_at_last(0), 0, "a maker that is killed leaves no device");
}


static void
test_directory(void)
{
    int               rc, tries;
    sbx_error_t       e;
    sbx_limits_t      limits;
    inside_session_t  s;

    if (!ok(sbx_storage_open(SBX_STORAGE_DIRECTORY, NULL, inside_state, "t",
                             &inside_storage, &e) == 0,
            "a storage of directories"))
    {
        return;
    }

    inside_limits(&limits);
    ok(inside_launch(&s, ID, &limits, "base", &e) == 0, "a session starts");
    is_int(entries("storage"), 1, "with a directory of its own");

    inside_ok(&s, "echo x > f && cat f && mkdir -p a/b/c && rm -r a"
              " && mv f g && ln -s g h && cat h", "files are files");
    inside_ok(&s, "python3 -c 'import os\nfor i in range(3000):\n"
              "  os.mkdir(\"d\"); os.chdir(\"d\")'"
              " && mkdir /tmp/shut && touch /tmp/shut/f && chmod 0 /tmp/shut",
              "a tree of 3000 levels");

    ok(inside_end(&s) == 0, "it ends");

    rc = sbx_storage_remove(inside_storage, ID, &e);
    ok(rc == 1, "its files are not removed at once");

    for (tries = 0; rc == 1 && tries < 10000; tries++) {
        (void) usleep(2000);
        rc = sbx_storage_remove(inside_storage, ID, &e);
    }

    is_int(rc, 0, "but then");
    is_int(entries("storage"), 0, "and nothing stays");
    is_int(sbx_storage_remove(inside_storage, ID, &e), 0,
           "what is gone is gone");

    sbx_storage_close(inside_storage);
    inside_storage = NULL;
}


/*
 * Trees that an earlier broker left, each of which another process is at
 * work on for as long as the test likes.
 */

#define TREES   10

static unsigned  swept_found;
static unsigned  swept_over;


static int
swept_alive(const char *id, void *data)
{
    (void) data;

    return strcmp(id, ID) == 0;
}


static int
swept_find(uint32_t project, void *data)
{
    (void) project;
    (void) data;
    swept_found++;

    return 0;
}


static void
swept_end(const char *id, uint32_t project, int removed, void *data)
{
    (void) id;
    (void) project;
    (void) data;
    swept_over += removed != 0;
}


/* Children that remove something, and any that nobody has waited for. */

static unsigned
removers(unsigned *zombies)
{
    char      path[64], text[512], *p;
    FILE     *list;
    pid_t     pid;
    unsigned  n;

    n = 0;
    *zombies = 0;
    (void) snprintf(path, sizeof(path), "/proc/self/task/%d/children",
                    (int) syscall(SYS_gettid));
    list = fopen(path, "re");

    while (list != NULL && fscanf(list, "%d", &pid) == 1) {
        (void) snprintf(path, sizeof(path), "/proc/%d/stat", (int) pid);

        if (sbx_read_at(AT_FDCWD, path, text, sizeof(text)) > 0) {
            p = strrchr(text, ')');
            *zombies += p != NULL && p[2] == 'Z';
            n++;
        }
    }

    if (list != NULL) {
        (void) fclose(list);
    }

    return n;
}


static void
test_swept(void)
{
    int          at[TREES], i;
    char         path[PATH_MAX];
    unsigned     left, rounds, zombies;
    sbx_error_t  e;
    sbx_sweep_t  sweep = { swept_alive, swept_find, swept_end, NULL };

    if (!ok(sbx_storage_open(SBX_STORAGE_DIRECTORY, NULL, inside_state, "t",
                             &inside_storage, &e) == 0,
            "a storage with trees of an earlier broker"))
    {
        return;
    }

    (void) snprintf(path, sizeof(path), "%s/storage/" ID, inside_state);
    (void) mkdir(path, 0700);

    for (i = 0; i < TREES; i++) {
        (void) snprintf(path, sizeof(path), "%s/storage/iold%02d",
                        inside_state, i);
        (void) mkdir(path, 0700);
        at[i] = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        (void) mkdirat(at[i], "d", 0700);
        (void) flock(at[i], LOCK_EX);
    }

    is_int(sbx_storage_sweep(inside_storage, &sweep, &e), 0, "is swept");
    is_int(swept_found, TREES, "and tells of each of them");

    for (rounds = 0; rounds < 20; rounds++) {
        left = sbx_storage_swept(inside_storage, &sweep);
        (void) usleep(5000);
    }

    is_int(left, TREES, "none is gone while another is at work on it");
    is_int(removers(&zombies), 4, "few are removed at a time");
    is_int(entries("storage"), TREES + 1, "and nothing is taken away");

    /* the other one has done all of it here, and half of it there */

    for (i = 0; i < TREES; i++) {
        (void) unlinkat(at[i], "d", AT_REMOVEDIR);
        (void) snprintf(path, sizeof(path), "%s/storage/iold%02d",
                        inside_state, i);

        if (i % 2 == 0) {
            (void) rmdir(path);
        }

        (void) close(at[i]);
    }

    for (rounds = 0; left != 0 && rounds < 10000; rounds++) {
        left = sbx_storage_swept(inside_storage, &sweep);
        (void) usleep(2000);
    }

    is_int(swept_over, TREES, "all are told to be gone");
    is_int(entries("storage"), 1, "and are, but for who lives");
    is_int(removers(&zombies), 0, "no child stays");

    (void) snprintf(path, sizeof(path), "%s/storage/" ID, inside_state);
    (void) rmdir(path);
    sbx_storage_close(inside_storage);
    inside_storage = NULL;
}


static int
storage_test(void)
{
    sbx_error_t  e;

    inside_setup();
    test_numbers();
    test_forget();

    if (sbx_storage_open(SBX_STORAGE_IMAGE, NULL, inside_state, "t",
                         &inside_storage, &e)
        == 0)
    {
        ok(sbx_storage_lacks(inside_storage)[0] == '\0', "images work");
        test_image();
        test_race();
        sbx_storage_close(inside_storage);
        inside_storage = NULL;

    } else {
        skip(e.text, "images");
    }

    test_directory();
    test_swept();
    inside_done();

    return done_testing();
}


int
main(int argc, char **argv)
{
    (void) argc;

    return inside_test(argv, storage_test);
}
