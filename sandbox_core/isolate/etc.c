/*
 * A session's own files: written into the upper layer as its root's, so that
 * its root may change them.  Ours fit a page each, which the size of the
 * session's tmpfs has room for beside the session's own limit; the texts tell
 * nothing of the host.
 */

#include "isolate_private.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>


#define SBX_PAGE      4096
#define SBX_ETC_MAX   16384      /* passwd and group of a template */

#define SBX_PASSWD_LINE  "user:x:1000:1000:user:/home/user:"
#define SBX_GROUP_LINE   "user:x:1000:\n"


typedef struct {
    const char  *name;
    mode_t       mode;
    unsigned     owner;
    /* a template with a file of this name keeps its own */
    unsigned     builtin_only:1;
    int        (*print)(const sbx_plan_t *plan, char *buf, size_t size);
    const char  *text;
} sbx_etc_t;


static int sbx_etc_passwd(const sbx_plan_t *plan, char *buf, size_t size);
static int sbx_etc_group(const sbx_plan_t *plan, char *buf, size_t size);
static int sbx_etc_hosts(const sbx_plan_t *plan, char *buf, size_t size);
static int sbx_etc_hostname(const sbx_plan_t *plan, char *buf, size_t size);


static const sbx_etc_t  sbx_etc_files[] = {
    { "etc/passwd",   0644, 0, 0, sbx_etc_passwd,   NULL },
    { "etc/group",    0644, 0, 0, sbx_etc_group,    NULL },
    { "etc/hosts",    0644, 0, 0, sbx_etc_hosts,    NULL },
    { "etc/hostname", 0644, 0, 0, sbx_etc_hostname, NULL },

    { "etc/nsswitch.conf", 0644, 0, 1, NULL,
      "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\n"
      "networks: files\nprotocols: files\nservices: files\nrpc: files\n" },

    /* where there is no network, there is no way to it */
    { "etc/resolv.conf", 0644, 0, 0, NULL,
      "nameserver " SBX_NET_ADDRESS4 "\noptions timeout:5 attempts:2\n" },

    { "etc/host.conf", 0644, 0, 1, NULL, "multi on\n" },

    { "etc/environment", 0644, 0, 1, NULL, "" },

    { "etc/shells", 0644, 0, 1, NULL,
      "/bin/sh\n/usr/bin/sh\n/bin/bash\n/usr/bin/bash\n" },

    { "etc/bash.bashrc", 0644, 0, 1, NULL,
      "[ -z \"$PS1\" ] && return\n"
      "shopt -s checkwinsize\n"
      "PS1='\\u@\\h:\\w\\$ '\n" },

    /* PATH is not set: a login shell keeps the session's */
    { "etc/profile", 0644, 0, 0, NULL,
      "if [ -n \"$PS1\" ] && [ -n \"$BASH\" ] && [ -r /etc/bash.bashrc ]\n"
      "then\n"
      "    . /etc/bash.bashrc\n"
      "fi\n"
      "for i in /etc/profile.d/*.sh; do\n"
      "    [ -r \"$i\" ] && . \"$i\"\n"
      "done\n"
      "unset i\n" }
};


uint64_t
sbx_etc_disk(const sbx_plan_t *plan)
{
    size_t    i;
    uint64_t  bytes;

    bytes = (plan->template_fd == -1) ? 0 : 2 * (SBX_ETC_MAX - SBX_PAGE);

    for (i = 0; i < sbx_nelts(sbx_etc_files); i++) {
        if (sbx_etc_files[i].text == NULL
            || sbx_etc_files[i].text[0] != '\0')
        {
            bytes += SBX_PAGE;
        }
    }

    return bytes;
}


uint64_t
sbx_etc_inodes(void)
{
    return sbx_nelts(sbx_etc_files);
}


int
sbx_etc_write(const sbx_plan_t *plan, int upper, sbx_error_t *e)
{
    int               n;
    char              buf[SBX_ETC_MAX];
    uid_t             id;
    size_t            i;
    const char       *text;
    const sbx_etc_t  *file;

    for (i = 0; i < sbx_nelts(sbx_etc_files); i++) {
        sbx_auto_fd  fd = -1;

        file = &sbx_etc_files[i];

        if (file->builtin_only && plan->template_fd != -1) {
            continue;
        }

        text = file->text;
        n = (text != NULL) ? (int) strlen(text)
                           : file->print(plan, buf, sizeof(buf));

        if (n < 0 || (size_t) n >= sizeof(buf)) {
            return sbx_error(e, 0, SBX_E_INTERNAL, "/%s is too long",
                             file->name);
        }

        if (text == NULL) {
            text = buf;
        }

        id = (uid_t) (plan->launch->uid_first + file->owner);
        fd = openat(upper, file->name,
                    O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
                    file->mode);

        if (fd == -1 || sbx_write_all(fd, text, (size_t) n) == -1
            || fchown(fd, id, id) == -1)
        {
            return sbx_error(e, errno, SBX_E_INTERNAL, "cannot write /%s",
                             file->name);
        }
    }

    return 0;
}


/* The template's own file, or "": a link is not followed anywhere. */
static int
sbx_etc_template(const sbx_plan_t *plan, const char *name, char *buf,
    size_t size)
{
    ssize_t      n;
    sbx_auto_fd  fd = -1;

    if (plan->template_fd == -1) {
        return 0;
    }

    fd = sbx_sys_open_inside(plan->template_fd, name,
                             O_RDONLY | O_NONBLOCK | O_NOCTTY);
    if (fd == -1) {
        return 0;
    }

    n = sbx_read_full(fd, buf, size - 1);

    if (n <= 0) {
        return 0;
    }

    buf[n] = '\0';

    if (buf[n - 1] != '\n' && (size_t) n + 1 < size) {
        buf[n++] = '\n';
        buf[n] = '\0';
    }

    return (int) n;
}


/* 1 if a line's third field is the number. */
static int
sbx_etc_has_id(const char *text, const char *number)
{
    size_t       len;
    const char  *p;

    len = strlen(number);

    for (p = text; p != NULL && *p != '\0'; p = strchr(p, '\n')) {
        p += (*p == '\n');
        p = strchr(p, ':');
        p = (p == NULL) ? NULL : strchr(p + 1, ':');

        if (p == NULL) {
            break;
        }

        if (strncmp(p + 1, number, len) == 0 && p[1 + len] == ':') {
            return 1;
        }
    }

    return 0;
}


static int
sbx_etc_passwd(const sbx_plan_t *plan, char *buf, size_t size)
{
    int          n;
    const char  *shell;

    /* asked before the host is left; a template is asked for nothing */
    shell = (plan->template_fd == -1 && access("/bin/bash", X_OK) == 0)
            ? "/bin/bash" : "/bin/sh";

    n = sbx_etc_template(plan, "etc/passwd", buf, size);

    if (n == 0) {
        return snprintf(buf, size,
                        "root:x:0:0:root:/root:%s\n"
                        "daemon:x:1:1:daemon:/usr/sbin:/usr/sbin/nologin\n"
                        "bin:x:2:2:bin:/bin:/usr/sbin/nologin\n"
                        SBX_PASSWD_LINE "%s\n"
                        "nobody:x:65534:65534:nobody:/nonexistent:"
                        "/usr/sbin/nologin\n",
                        shell, shell);
    }

    if (sbx_etc_has_id(buf, "1000")) {
        return n;
    }

    return n + snprintf(buf + n, size - (size_t) n, SBX_PASSWD_LINE "%s\n",
                        shell);
}


static int
sbx_etc_group(const sbx_plan_t *plan, char *buf, size_t size)
{
    int  n;

    n = sbx_etc_template(plan, "etc/group", buf, size);

    if (n == 0) {
        return snprintf(buf, size,
                        "root:x:0:\ndaemon:x:1:\nbin:x:2:\ntty:x:5:\n"
                        "users:x:100:\n" SBX_GROUP_LINE
                        "nogroup:x:65534:\n");
    }

    if (sbx_etc_has_id(buf, "1000")) {
        return n;
    }

    return n + snprintf(buf + n, size - (size_t) n, SBX_GROUP_LINE);
}


static int
sbx_etc_hosts(const sbx_plan_t *plan, char *buf, size_t size)
{
    return snprintf(buf, size,
                    "127.0.0.1\tlocalhost %s\n"
                    "::1\tlocalhost ip6-localhost ip6-loopback\n",
                    plan->launch->host_name);
}


static int
sbx_etc_hostname(const sbx_plan_t *plan, char *buf, size_t size)
{
    return snprintf(buf, size, "%s\n", plan->launch->host_name);
}
