/*
 * What is hidden from every run although it lies in the read-only view: files
 * that hold credentials, sockets on which a program of the host listens
 * (read-only mounts do not stop connect), and file systems that are doors
 * rather than files, wherever the host has mounted them once more: through a
 * procfs of the host, /proc/<pid>/root of the caller's own processes would be
 * the host, writable.
 *
 * A path that the caller makes writable by name is shown all the same: what
 * equals or lies below one of these is mounted after it.
 */

#include "box.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>


#define SBX_SOCKETS_PASSES   5
#define SBX_HOMES_MAX        512


static int sbx_secrets_home(sbx_box_t *box, const char *home,
    sbx_error_t *e);
static int sbx_secrets_homes(sbx_box_t *box, sbx_error_t *e);
static int sbx_secrets_system(sbx_box_t *box, sbx_error_t *e);
static int sbx_secrets_listeners(sbx_box_t *box, sbx_error_t *e);
static int sbx_secrets_sockets(sbx_box_t *box, sbx_error_t *e);
static int sbx_secrets_mounts(sbx_box_t *box, sbx_error_t *e);
static int sbx_secrets_mount(const char *path, const char *type, void *data,
    sbx_error_t *e);
static void sbx_secrets_unescape(char *path);
static int sbx_secrets_hide(sbx_box_t *box, const char *path,
    sbx_error_t *e);


/* Below each home directory.  docs/library.md has the same list. */
static const char  *sbx_secrets_of_home[] = {
    ".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker", ".oci",
    ".config/gcloud", ".config/gh", ".config/hub", ".config/glab-cli",
    ".config/op", ".config/rclone", ".config/doctl", ".config/heroku",
    ".config/containers", ".config/git/credentials", ".config/pip",
    ".config/sops", ".config/age", ".netrc", ".git-credentials",
    ".npmrc", ".yarnrc", ".yarnrc.yml", ".pypirc", ".pip", ".gem/credentials",
    ".cargo/credentials", ".cargo/credentials.toml", ".composer/auth.json",
    ".config/composer/auth.json", ".m2/settings.xml",
    ".gradle/gradle.properties", ".terraform.d", ".terraformrc",
    ".vault-token", ".pgpass", ".my.cnf", ".mylogin.cnf", ".s3cfg", ".boto",
    ".password-store", ".local/share/keyrings", ".local/share/kwalletd",
    ".mozilla", ".thunderbird", ".config/google-chrome", ".config/chromium",
    ".config/BraveSoftware", ".config/microsoft-edge", ".config/vivaldi",
    ".config/opera", "snap/firefox", "snap/chromium",
    ".var/app/org.mozilla.firefox", ".cache/mozilla", ".claude",
    ".claude.json", ".codex", ".config/github-copilot", ".bash_history",
    ".zsh_history", ".local/share/fish/fish_history", ".python_history",
    ".psql_history", ".mysql_history", ".node_repl_history", ".Xauthority",
    ".ICEauthority"
};

/* Patterns. */
static const char  *sbx_secrets_of_system[] = {
    "/etc/shadow*", "/etc/gshadow*", "/etc/sudoers", "/etc/sudoers.d",
    "/etc/ssh/*_key", "/etc/ssl/private", "/etc/pki/tls/private",
    "/etc/krb5.keytab", "/etc/wireguard", "/etc/openvpn",
    "/etc/NetworkManager/system-connections", "/etc/letsencrypt",
    "/etc/kubernetes", "/etc/rancher", "/etc/docker", "/etc/machine-key",
    "/etc/security/opasswd", "/var/lib/kubelet", "/var/lib/rancher",
    "/var/lib/docker", "/var/lib/containerd", "/var/backups",
    "/var/spool/cron", "/var/mail", "/var/spool/mail", "/boot/efi",
    "/lost+found"
};


/* Of these the view has its own. */
static const char  *sbx_secrets_not_shown[] = { "/proc", "/sys", "/dev" };

/* Types of file systems; a type that begins with one of them counts too. */
static const char  *sbx_secrets_doors[] = {
    "proc", "sysfs", "cgroup", "devtmpfs", "devpts", "mqueue", "debugfs",
    "tracefs", "securityfs", "selinuxfs", "smackfs", "configfs", "bpf",
    "pstore", "efivarfs", "binfmt_misc", "fusectl", "nsfs", "autofs",
    "rpc_pipefs", "nfsd", "hugetlbfs"
};


int
sbx_box_secrets(sbx_box_t *box, sbx_error_t *e)
{
    if (sbx_secrets_homes(box, e) == -1
        || sbx_secrets_system(box, e) == -1
        || sbx_secrets_listeners(box, e) == -1
        || sbx_secrets_mounts(box, e) == -1)
    {
        return -1;
    }

    /* a home of root's is nobody else's business, whatever its mode */

    if (box->root
        || !sbx_path_within(box->string[SBX_BOX_HOME], "/root"))
    {
        return sbx_secrets_hide(box, "/root", e);
    }

    return 0;
}


/*
 * Not there, or out of reach for good: nothing to hide.  A directory that
 * cannot be searched as it is, but is in something writable, the command
 * could open to itself: that is hidden as a whole.
 */
static int
sbx_secrets_hide(sbx_box_t *box, const char *path, sbx_error_t *e)
{
    size_t       i;
    sbx_spot_t  *spot;
    sbx_where_t  where;
    sbx_error_t  why;

    if (sbx_box_resolve(NULL, path, &where, &why) == -1
        && (why.err != EACCES || !sbx_path_writable(&box->spots, where.path)))
    {
        return 0;
    }

    if (!where.exists || where.path[0] == '\0' || where.path[1] == '\0') {
        return 0;
    }

    for (i = 0; i < box->spots.nelts; i++) {
        if (box->spots.elts[i].kind == SBX_SPOT_HIDE
            && strcmp(box->spots.elts[i].path, where.path) == 0)
        {
            return 0;
        }
    }

    for (i = 0; i < sbx_nelts(sbx_secrets_not_shown); i++) {
        if (sbx_path_within(where.path, sbx_secrets_not_shown[i])) {
            return 0;
        }
    }

    spot = sbx_spot_add(&box->spots, SBX_SPOT_HIDE, where.path, e);

    if (spot == NULL) {
        return -1;
    }

    spot->is_dir = where.is_dir;

    return 0;
}


/* From the file alone: a name service might ask the network. */
static int
sbx_secrets_homes(sbx_box_t *box, sbx_error_t *e)
{
    int             rc;
    FILE           *file;
    size_t          n, i;
    const char     *homes[SBX_HOMES_MAX];
    struct passwd  *pw;

    n = 0;
    rc = 0;
    homes[n++] = box->string[SBX_BOX_HOME];
    rc = sbx_secrets_home(box, homes[0], e);
    file = fopen("/etc/passwd", "re");

    while (rc == 0 && file != NULL && n < SBX_HOMES_MAX
           && (pw = fgetpwent(file)) != NULL)
    {
        for (i = 0; i < n && strcmp(homes[i], pw->pw_dir) != 0; i++) {
            /* void */
        }

        if (i != n) {
            continue;
        }

        homes[n] = strdup(pw->pw_dir);

        if (homes[n] == NULL) {
            rc = sbx_error(e, errno, SBX_E_INTERNAL, "no memory");
            break;
        }

        rc = sbx_secrets_home(box, homes[n++], e);
    }

    if (file != NULL) {
        (void) fclose(file);
    }

    for (i = 1; i < n; i++) {
        free((void *) (uintptr_t) homes[i]);
    }

    return rc;
}


static int
sbx_secrets_home(sbx_box_t *box, const char *home, sbx_error_t *e)
{
    int     n;
    char    path[PATH_MAX];
    size_t  i;

    if (home[0] != '/' || home[1] == '\0'
        || (faccessat(AT_FDCWD, home, F_OK, AT_EACCESS) == -1
            && errno != EACCES))
    {
        return 0;
    }

    for (i = 0; i < sbx_nelts(sbx_secrets_of_home); i++) {
        n = snprintf(path, sizeof(path), "%s/%s", home,
                     sbx_secrets_of_home[i]);

        if (n > 0 && (size_t) n < sizeof(path)
            && (faccessat(AT_FDCWD, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0
                || errno == EACCES)
            && sbx_secrets_hide(box, path, e) == -1)
        {
            return -1;
        }
    }

    return 0;
}


static int
sbx_secrets_system(sbx_box_t *box, sbx_error_t *e)
{
    int     rc;
    size_t  i, k;
    glob_t  found;

    rc = 0;

    for (i = 0; rc == 0 && i < sbx_nelts(sbx_secrets_of_system); i++) {
        if (glob(sbx_secrets_of_system[i], GLOB_NOSORT, NULL, &found) != 0) {
            continue;
        }

        for (k = 0; rc == 0 && k < found.gl_pathc; k++) {
            rc = sbx_secrets_hide(box, found.gl_pathv[k], e);
        }

        globfree(&found);
    }

    return rc;
}


/* The kernel's list passes over some while others come and go. */
static int
sbx_secrets_listeners(sbx_box_t *box, sbx_error_t *e)
{
    size_t    before;
    unsigned  i;

    for (i = 0; i < SBX_SOCKETS_PASSES; i++) {
        before = box->spots.nelts;

        if (sbx_secrets_sockets(box, e) == -1) {
            return -1;
        }

        if (i > 0 && box->spots.nelts == before) {
            break;
        }
    }

    return 0;
}


/*
 * Those of this network namespace, at the start of the run.  One in a
 * directory that the caller made writable is the caller's wish.  All of them,
 * however many: with too many for the kernel to mount over the run fails,
 * and whoever listens on many does not leave those of others open.
 */
static int
sbx_secrets_sockets(sbx_box_t *box, sbx_error_t *e)
{
    int      rc;
    FILE    *file;
    char     line[PATH_MAX + 128], *path;
    size_t   i, n;

    file = fopen("/proc/net/unix", "re");
    rc = 0;
    n = box->spots.nelts;             /* what comes is no place of the run */

    while (rc == 0 && file != NULL && fgets(line, sizeof(line), file) != NULL)
    {
        path = strchr(line, '/');

        if (path == NULL || path[-1] != ' ') {
            continue;
        }

        path[strcspn(path, "\n")] = '\0';

        for (i = 0; i < n; i++) {
            if ((box->spots.elts[i].kind == SBX_SPOT_SCRATCH
                 || box->spots.elts[i].kind == SBX_SPOT_WRITABLE)
                && sbx_path_within(path, box->spots.elts[i].path))
            {
                break;
            }
        }

        if (i == n) {
            rc = sbx_secrets_hide(box, path, e);
        }
    }

    if (file != NULL) {
        (void) fclose(file);
    }

    return rc;
}


static int
sbx_secrets_mounts(sbx_box_t *box, sbx_error_t *e)
{
    return sbx_box_mounts(sbx_secrets_mount, box, e);
}


static int
sbx_secrets_mount(const char *path, const char *type, void *data,
    sbx_error_t *e)
{
    size_t  i;

    for (i = 0; i < sbx_nelts(sbx_secrets_doors); i++) {
        if (strncmp(type, sbx_secrets_doors[i], strlen(sbx_secrets_doors[i]))
            == 0)
        {
            return sbx_secrets_hide(data, path, e);
        }
    }

    return 0;
}


int
sbx_box_mounts(int (*mount)(const char *path, const char *type, void *data,
    sbx_error_t *e), void *data, sbx_error_t *e)
{
    int      rc;
    FILE    *file;
    char    *line, *path, *type, *end;
    size_t   i, room;

    file = fopen("/proc/self/mountinfo", "re");

    if (file == NULL) {
        return sbx_error(e, errno, SBX_E_UNAVAILABLE,
                         "mount namespace: /proc/self/mountinfo cannot be "
                         "read");
    }

    line = NULL;
    room = 0;
    rc = 0;

    while (rc == 0 && getline(&line, &room, file) != -1) {
        /* 36 35 98:0 /root /mount options - type source */

        type = strstr(line, " - ");
        path = line;

        for (i = 0; path != NULL && i < 4; i++) {
            path = strchr(path + 1, ' ');
        }

        end = path == NULL ? NULL : strchr(path + 1, ' ');

        if (type == NULL || end == NULL) {
            continue;
        }

        *end = '\0';
        type += 3;
        type[strcspn(type, " ")] = '\0';
        sbx_secrets_unescape(path + 1);
        rc = mount(path + 1, type, data, e);
    }

    free(line);
    (void) fclose(file);

    return rc;
}


/* Space, tab, newline and backslash are written as "\\040". */
static void
sbx_secrets_unescape(char *path)
{
    char  *to;

    for (to = path; *path != '\0'; path++) {
        if (path[0] == '\\' && path[1] >= '0' && path[1] <= '3'
            && path[2] != '\0' && path[3] != '\0')
        {
            *to++ = (char) ((path[1] - '0') * 64 + (path[2] - '0') * 8
                            + (path[3] - '0'));
            path += 3;

        } else {
            *to++ = *path;
        }
    }

    *to = '\0';
}
