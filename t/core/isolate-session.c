/* What a session is made of, and what it cannot reach: tried from inside. */

#include "inside.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/inotify.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <time.h>


#define ID_ONE   "itest0000000000000000000001"
#define ID_TWO   "itest0000000000000000000002"


/*
 * ---- inside ----------------------------------------------------------------
 */

/* errno of a connect, and that it was told at once */
static int
try_connect(const char *where)
{
    int                  fd, rc;
    time_t               begin;
    struct sockaddr_in   v4 = { .sin_family = AF_INET, .sin_port = htons(80) };
    struct sockaddr_in6  v6 = { .sin6_family = AF_INET6,
                                .sin6_port = htons(80) };

    begin = time(NULL);

    if (strchr(where, ':') != NULL) {
        (void) inet_pton(AF_INET6, where, &v6.sin6_addr);
        fd = socket(AF_INET6, SOCK_STREAM, 0);
        rc = connect(fd, (struct sockaddr *) &v6, sizeof(v6));

    } else {
        (void) inet_pton(AF_INET, where, &v4.sin_addr);
        fd = socket(AF_INET, SOCK_STREAM, 0);
        rc = connect(fd, (struct sockaddr *) &v4, sizeof(v4));
    }

    printf("%s", rc == 0 ? "connected" : strerror(errno));

    return time(NULL) - begin > 1;
}


/* 0 if nothing of process 1 can be had. */
static int
try_init(void)
{
    char           buf[64];
    size_t         i;
    struct iovec   local = { buf, sizeof(buf) };
    struct iovec   remote = { (void *) 4096, 64 };

    static const char  *names[] = {
        "/proc/1/mem", "/proc/1/environ", "/proc/1/maps", "/proc/1/exe",
        "/proc/1/root", "/proc/1/cwd", "/proc/1/fd", "/proc/1/ns/mnt",
        "/proc/1/task/1/fd", "/proc/1/fdinfo", "/proc/1/stack",
        "/proc/1/auxv", "/proc/1/map_files"
    };

    for (i = 0; i < sbx_nelts(names); i++) {
        if (open(names[i], O_RDONLY) != -1) {
            printf("%s opens\n", names[i]);
            return 1;
        }

        if (readlink(names[i], buf, sizeof(buf)) != -1) {
            printf("%s is read\n", names[i]);
            return 1;
        }
    }

    if (ptrace(PTRACE_ATTACH, 1, 0, 0) == 0
        || ptrace(PTRACE_SEIZE, 1, 0, 0) == 0
        || process_vm_readv(1, &local, 1, &remote, 1, 0) != -1)
    {
        printf("process 1 is traced\n");
        return 1;
    }

    return 0;
}


/* As above without the filter and with every capability that is to be had. */
static int
inside_builtin(const char *name, const char *argument)
{
    if (strcmp(name, "connect") == 0) {
        return try_connect(argument);
    }

    if (strcmp(name, "init") == 0) {
        return try_init();
    }

    return 1;
}


/*
 * ---- outside ---------------------------------------------------------------
 */

static void
test_identity(inside_session_t *s)
{
    inside_is(s, "id -u; id -g; id -G; id -un; pwd; umask",
              "1000\n1000\n1000\nuser\n/home/user\n0022\n",
              "a command is the session's user in its home");
    inside_run_as(s, SBX_USER_ROOT, NULL, "id -u; id -un");
    is_str(inside_reply.out, "0\nroot\n", "and may be the session's root");

    inside_is(s, "cat /proc/self/uid_map | tr -s ' '",
              " 0 1800000000 65536\n", "the ids are the session's own");
    inside_is(s, "hostname; cat /etc/hostname",
              "sandbox\nsandbox\n", "the host name is the session's");
    inside_is(s, "grep -c . /proc/self/status > /dev/null;"
              " grep -E 'CapEff|CapPrm|CapInh|CapAmb|NoNewPrivs|Seccomp:'"
              " /proc/self/status | tr -d '\\t\\n'",
              "CapInh:0000000000000000CapPrm:0000000000000000"
              "CapEff:0000000000000000CapAmb:0000000000000000"
              "NoNewPrivs:1Seccomp:2",
              "the user has no capability, and a filter");
    inside_run_as(s, SBX_USER_ROOT, NULL,
                  "grep -E 'CapPrm|CapBnd' /proc/self/status |"
                  " tr -d '\\t\\n'");
    is_str(inside_reply.out, "CapPrm:00000000000001ebCapBnd:00000000000001eb",
           "root has CHOWN, DAC_OVERRIDE, FOWNER, KILL, SETGID, SETPCAP, "
           "SETUID");
    inside_ok(s, "test $(ps ax | wc -l) -le 5 && ! ls /proc/1/fd 2>/dev/null",
              "other processes are not to be seen");
    inside_is(s, "ls /proc/self/fd | tr '\\n' ' '", "0 1 2 3 ",
              "no descriptor is left over");
    inside_is(s, "ulimit -Hc", "0\n", "no core is dumped");
}


static void
test_tree(inside_session_t *s)
{
    inside_run(s, "cat /proc/self/mountinfo /proc/self/mounts"
               " /proc/self/maps /proc/self/cgroup /proc/self/mountstats"
               " 2>/dev/null");
    ok(inside_reply.size > 1000
       && strstr(inside_reply.out, inside_state) == NULL
       && strstr(inside_reply.out, "/sessions/") == NULL
       && strstr(inside_reply.out, "upperdir=upper,") != NULL,
       "mounts, maps and cgroups tell no path of the host");
    inside_is(s, "grep -c itest /proc/self/cgroup", "0\n",
              "nor where the session's groups are");
    inside_ok(s, "! grep -E '^[0-9]+ [0-9]+ [0-9:]+ [^ ]+ [^ ]+ [^ ]+' "
              "/proc/self/mountinfo | grep -v nosuid",
              "every mount is nosuid");
    inside_is(s, "awk '$6 !~ /nodev/ {print $5}' /proc/self/mountinfo |"
              " sort | tr '\\n' ' '", "/dev /dev/pts ",
              "every mount but /dev is nodev");
    inside_ok(s, "! touch /usr/x 2>/dev/null && ! touch /dev/x 2>/dev/null"
              " && ! touch /sys/x 2>/dev/null"
              " && ! touch /proc/sys/kernel/hostname 2>/dev/null",
              "/usr, /dev, /sys and /proc/sys are read-only");
    inside_ok_as(s, SBX_USER_ROOT, "! touch /usr/x 2>/dev/null"
                 " && ! echo x 2>/dev/null > /proc/sys/kernel/core_pattern"
                 " && ! cat /etc/shadow 2>/dev/null"
                 " && ! cat /usr/lib/openssh/ssh-keysign 2>/dev/null"
                 " && ! echo 1 2>/dev/null > /proc/sys/vm/drop_caches"
                 " && ! echo b 2>/dev/null > /proc/sysrq-trigger",
                 "to the session's root as well");
    inside_ok(s, "for i in kcore kallsyms keys timer_list kmsg cmdline"
              " interrupts; do test ! -s /proc/$i || exit 1;"
              " test -z \"$(head -c 1 /proc/$i 2>/dev/null)\" || exit 2; done;"
              " for i in fs irq bus; do"
              " test -z \"$(ls -A /proc/$i)\" || exit 3; done",
              "what of /proc tells of the host is empty");
    inside_ok(s, "for d in /tmp /var/tmp /dev/shm /run/lock /home/user /app"
              " /data /workspace /srv /run/user/1000; do echo x > $d/.probe"
              " && rm $d/.probe || exit 1; done;"
              " ! touch /root/x 2>/dev/null && ! ls /root 2>/dev/null"
              " && ! touch /etc/x 2>/dev/null",
              "the user writes where it should and nowhere else");
    inside_ok_as(s, SBX_USER_ROOT, "echo '192.0.2.1 x' >> /etc/hosts"
                 " && touch /root/x /etc/x /opt/x && rm /etc/x",
                 "the session's root may change the session's /etc");
    inside_ok(s, "test ! -e /etc/ssl/private"
              " && ! ls /etc | grep -E '^(g?shadow|sudoers|fstab|ssh|npmrc|"
              "pip.conf|apt|nginx|resolvconf)'",
              "the host's accounts, keys and settings are not there");
    inside_ok(s, "ls -A /home | grep -qx user && test $(ls -A /home | wc -l)"
              " -eq 1 && test -z \"$(ls -A /mnt /media /opt 2>/dev/null"
              " | grep -v -e : -e x)\"",
              "nor its home directories");
    inside_is(s, "env -i PATH=/a:/b:/usr/bin bash -lc 'echo $PATH'",
              "/a:/b:/usr/bin\n", "a login shell keeps the session's PATH");
    inside_ok(s, "test -c /dev/null && test -c /dev/urandom"
              " && head -c 4 /dev/urandom > /dev/null && echo x > /dev/null"
              " && test $(find /dev -type c | grep -v pts | wc -l) -eq 6"
              " && test -z \"$(find /dev -type b)\""
              " && echo hi | cat /dev/stdin | grep -q hi",
              "/dev has six nodes");
    inside_ok(s, "python3 -c 'import pty,os; m,s=pty.openpty();"
              " print(os.ttyname(s))' | grep -q '^/dev/pts/0$'",
              "terminals are the session's own");
    inside_ok_as(s, SBX_USER_ROOT, "! mknod /tmp/d c 1 1 2>/dev/null"
                 " && ! mknod /tmp/e b 8 0 2>/dev/null && mkfifo /tmp/f",
                 "no device node can be made");
}


static void
test_refused(inside_session_t *s)
{
    inside_ok(s, "! unshare -Ur true 2>/dev/null && ! unshare -m true"
              " 2>/dev/null && ! mount -t tmpfs x /mnt 2>/dev/null"
              " && ! chroot / true 2>/dev/null && ! umount /proc 2>/dev/null"
              " && ! dmesg > /dev/null 2>&1", "namespaces and mounts");
    inside_ok_as(s, SBX_USER_ROOT, "! unshare -m true 2>/dev/null"
                 " && ! mount -t tmpfs x /mnt 2>/dev/null"
                 " && ! umount /proc/kcore 2>/dev/null"
                 " && ! hostname x 2>/dev/null && ! chroot / true 2>/dev/null"
                 " && ! mount -o remount,rw /usr 2>/dev/null",
                 "for the session's root too");
    inside_ok(s, "@init", "process 1 cannot be traced or read by the user");
    inside_ok_as(s, SBX_USER_ROOT, "@init", "nor by the session's root");
    inside_ok(s, "! kill -9 1 2>/dev/null", "nor killed");
    inside_is(s, "@connect 192.0.2.1", "Network is unreachable",
              "an address outside is unreachable at once");
    inside_is(s, "@connect 2001:db8::1", "Network is unreachable",
              "an IPv6 address too");
    inside_is(s, "@connect 127.0.0.1", "Connection refused",
              "the session's own loopback is there");
    inside_ok(s, "python3 -c 'import socket; s=socket.socket();"
              " s.bind((\"127.0.0.1\",80)); s.listen();"
              " c=socket.create_connection((\"127.0.0.1\",80))'",
              "any port may be bound");
    inside_is(s, "ls /sys/class/net /sys/fs/cgroup 2>/dev/null;"
              " tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '", "lo\n",
              "there is one interface, and no cgroupfs");
}


static void
test_sized(inside_session_t *s)
{
    inside_is(s, "nproc; nproc --all;"
              " python3 -c 'import os; print(os.cpu_count(),"
              " len(os.sched_getaffinity(0)))'; grep -c ^processor"
              " /proc/cpuinfo",
              "1\n1\n1 1\n1\n", "one processor is seen");
    inside_is(s, "grep -E 'MemTotal|MemAvailable' /proc/meminfo"
              " | tr -s ' '; free -b | awk '/Mem:/ {print $2}'",
              "MemTotal: 131072 kB\nMemAvailable: 131072 kB\n134217728\n",
              "memory is the session's");
    inside_is(s, "df -k --output=size,used / | tail -1 | awk '{print $1-$2}'",
              "32768\n", "the free disk is the session's limit");
    /* the kernel's own use of an overlay differs by one */
    inside_ok(s, "n=$(df --output=iavail / | tail -1);"
              " test $n -ge 2000 -a $n -le 2001",
              "the free inodes are the session's limit");
}


static void
test_programs(inside_session_t *s)
{
    inside_ok(s, "python3 -c 'import threading, subprocess, json, ssl, os;"
              " t=threading.Thread(target=lambda: None); t.start(); t.join();"
              " subprocess.run([\"true\"], check=True); print(6*7)'"
              " | grep -qx 42", "python3 with threads and children");
    inside_ok(s, "python3 -c 'import asyncio; asyncio.run("
              "asyncio.create_subprocess_exec(\"true\"))'", "asyncio");
    inside_ok(s, "! test -x /usr/bin/git || (git init -q g && cd g &&"
              " git -c user.name=a -c user.email=a@b commit -q"
              " --allow-empty -m x && git log | grep -q x)", "git");
    inside_ok(s, "! test -x /usr/bin/gcc || (echo 'int main(void)"
              "{return 0;}' > a.c && gcc a.c -o a.out && ./a.out)",
              "a compiler and what it made");
    inside_ok(s, "! test -x /usr/bin/node || node -e"
              " 'console.log(6*7)' | grep -qx 42", "node");
    inside_ok(s, "getent hosts localhost > /dev/null"
              " && getent passwd user > /dev/null && date > /dev/null",
              "names are looked up");
    inside_ok(s, "perl -e 'print 1' > /dev/null && tar cf x.tar a.c &&"
              " gzip x.tar && xz --version > /dev/null",
              "the usual tools");
}


static void
test_limits(inside_session_t *s)
{
    inside_ok(s, "e=$(dd if=/dev/zero of=big bs=1M count=64 2>&1); rm big;"
              " echo \"$e\" | grep -q 'No space'",
              "the disk limit is ENOSPC");
    inside_ok(s, "dd if=/dev/zero of=/tmp/big bs=1M count=20 2>/dev/null"
              " && ! dd if=/dev/zero of=/dev/shm/big bs=1M count=20"
              " 2>/dev/null; r=$?; rm -f /tmp/big /dev/shm/big; exit $r",
              "and one for all places");
    inside_ok(s, "mkdir many; cd many; seq 1 3000 | xargs touch 2>/dev/null;"
              " n=$(ls | wc -l); cd ..; rm -rf many;"
              " test $n -gt 1900 -a $n -le 2000",
              "the inode limit");
    inside_run(s, "python3 -c 'b=bytearray(300<<20)'");
    ok(WIFSIGNALED(inside_reply.status)
       || WEXITSTATUS(inside_reply.status) == 137,
       "the memory limit kills the command");
    inside_is(s, "echo alive", "alive\n", "and leaves the session");
    inside_ok(s, "python3 -c '\nimport os,time\nn=0\ntry:\n"
              "  while n<500:\n    if os.fork()==0:\n"
              "      os.close(1); os.close(2)\n"
              "      time.sleep(60); os._exit(0)\n    n+=1\n"
              "except OSError: pass\n"
              "print(n)\nos._exit(0 if 40<n<64 else 1)'",
              "the process limit is EAGAIN");
    inside_is(s, "echo alive", "alive\n", "and is given back");
}


static void
test_two(void)
{
    sbx_error_t       e;
    sbx_usage_t       usage;
    sbx_limits_t      limits;
    inside_session_t  a, b;

    inside_limits(&limits);

    ok(inside_launch(&a, ID_ONE, &limits, "base", &e) == 0
       && inside_launch(&b, ID_TWO, &limits, "base", &e) == 0,
       "two sessions at once");

    inside_run(&a, "for d in /tmp /var/tmp /dev/shm /run/lock /home/user; do"
               " echo secret > $d/bean; done");
    inside_is(&b, "ls /tmp /var/tmp /dev/shm /run/lock /home/user | grep bean",
              "", "what one writes the other does not see");

    memset(&usage, 0, sizeof(usage));
    ok(sbx_disk_usage(a.disk, &usage, &e) == 0 && usage.disk >= 5 * 4096
       && usage.inodes > 5, "the tmpfs tells its use");

    ok(inside_end(&a) == 0 && inside_end(&b) == 0, "both end");

    ok(inside_launch(&a, ID_ONE, &limits, "base", &e) == 0,
       "the id again");
    inside_is(&a, "ls /tmp /var/tmp /dev/shm /run/lock /home/user | grep bean",
              "", "nothing comes back");
    ok(inside_end(&a) == 0, "and ends");
}


static void
left_inotify(void)
{
    int  fd;

    fd = inotify_init1(IN_CLOEXEC);
    ok(fd != -1, "inotify instances of a session are not the host root's");
    (void) close(fd);
}


static void
test_accounts(inside_session_t *s)
{
    inside_left = left_inotify;
    inside_ok(s, "python3 -c '\nimport os,ctypes,time\n"
              "c=ctypes.CDLL(None)\nn=0\n"
              "while c.inotify_init1(0)!=-1: n+=1\n"
              "if os.fork(): os._exit(0 if n>16 else 1)\n"
              "os.close(1); os.close(2); time.sleep(60)'",
              "a session takes all inotify instances that it gets");
}


static unsigned
count_fds(void)
{
    int       fd;
    unsigned  n;

    n = 0;

    for (fd = 0; fd < 1024; fd++) {
        n += fcntl(fd, F_GETFD) != -1;
    }

    return n;
}


static unsigned
count_lines(const char *name)
{
    int       c;
    FILE     *in;
    unsigned  n;

    in = fopen(name, "r");
    n = 0;

    while (in != NULL && (c = getc(in)) != EOF) {
        n += (c == '\n');
    }

    if (in != NULL) {
        (void) fclose(in);
    }

    return n;
}


static void
test_failures(void)
{
    char              dir[256];
    sbx_error_t       e;
    sbx_limits_t      limits;
    inside_session_t  s;

    inside_limits(&limits);

    ok(inside_launch(&s, ID_ONE, &limits, "nothing-here", &e) == -1
       && e.code == SBX_E_TEMPLATE, "an unknown template is refused");
    (void) inside_end(&s);

    ok(inside_launch(&s, ID_ONE, &limits, "../base", &e) == -1
       && e.code == SBX_E_TEMPLATE, "a template's name is no path");
    (void) inside_end(&s);

    /* a failure in the child is told with its text */

    (void) snprintf(dir, sizeof(dir), "%s/base", inside_state);
    (void) unlink(dir);
    ok(inside_launch(&s, ID_ONE, &limits, "base", &e) == -1
       && strstr(e.text, "template's tree") != NULL && e.err == ENOENT,
       "a failure in the child says why");
    ok(inside_end(&s) == 0, "and leaves nothing");
    ok(sbx_base_prepare(inside_state, &e) == 0, "the base is made again");
}


static int
session_test(void)
{
    sbx_error_t       e;
    unsigned          mounts, fds;
    sbx_limits_t      limits;
    inside_session_t  s;

    inside_setup();
    inside_limits(&limits);

    /* where nobody else's come and go */

    if (unshare(CLONE_NEWNS) == -1
        || mount(NULL, "/", NULL, MS_REC|MS_PRIVATE, NULL) == -1)
    {
        printf("Bail out! no mount namespace: %s\n", strerror(errno));
        return 1;
    }

    mounts = count_lines("/proc/self/mountinfo");

    if (!ok(inside_launch(&s, ID_ONE, &limits, "base", &e) == 0,
            "a session starts"))
    {
        printf("# %s: %s\n", e.text, strerror(e.err));
        (void) inside_end(&s);
        inside_done();
        return done_testing();
    }

    test_sized(&s);
    test_identity(&s);
    test_tree(&s);
    test_refused(&s);
    test_programs(&s);
    test_accounts(&s);
    test_limits(&s);

    ok(inside_end(&s) == 0, "nothing is left of the session");

    fds = count_fds();
    test_two();
    test_failures();
    is_int(count_fds(), fds, "no descriptor is kept of what has ended");

    is_int(count_lines("/proc/self/mountinfo"), mounts,
           "the host has no mount more");
    inside_done();

    return done_testing();
}


int
main(int argc, char **argv)
{
    (void) argc;

    return inside_test(argv, session_test);
}
