/*
 * How an operator comes by a project quota: the command for the file system
 * that a directory is on, by what /proc/self/mountinfo says of it.
 */

#include "storage_private.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>


#define SBX_PROJECT_FILE   "/var/lib/sandbox.ext4"
#define SBX_PROJECT_WORD   60


typedef struct {
    char   point[200];
    char   type[32];
    char   source[80];
    int    asked;                     /* to be mounted with project quota */
} sbx_project_mount_t;


static const char *sbx_project_word(const char *s, const char *instead);
static int sbx_project_find(const char *dir, sbx_project_mount_t *m);
static int sbx_project_line(char *line, const char *dev,
    sbx_project_mount_t *m);


void
sbx_project_mend(const char *dir, char *buf, size_t size)
{
    const char           *point, *source;
    sbx_project_mount_t   m;

    memset(&m, 0, sizeof(sbx_project_mount_t));
    (void) sbx_project_find(dir, &m);

    dir = sbx_project_word(dir, "DIRECTORY");
    point = sbx_project_word(m.point, "MOUNT_POINT");
    source = sbx_project_word(m.source, "DEVICE");

    if (m.asked) {
        (void) snprintf(buf, size, "%s is mounted with it: modprobe "
                        "quota_v2, or use a kernel with CONFIG_QUOTA and "
                        "CONFIG_QFMT_V2", point);
        return;
    }

    /* the file system of the root cannot be unmounted */

    if (strcmp(m.type, "ext4") == 0 && strcmp(m.point, "/") != 0) {
        (void) snprintf(buf, size, "stop nginx, then: umount %s && tune2fs "
                        "-O project,quota -Q prjquota %s && mount -o "
                        "prjquota %s %s", point, source, source, point);

    } else if (strcmp(m.type, "xfs") == 0 && strcmp(m.point, "/") != 0) {
        (void) snprintf(buf, size, "stop nginx, then: umount %s && mount "
                        "-o prjquota %s %s", point, source, point);

    } else {
        (void) snprintf(buf, size, "stop nginx, then: mkdir -p %s && "
                        "truncate -s 20G " SBX_PROJECT_FILE " && "
                        "mkfs.ext4 -qF "
                        "-O project,quota -E quotatype=prjquota "
                        SBX_PROJECT_FILE " && mount -o loop,prjquota "
                        SBX_PROJECT_FILE " %s", dir, dir);
    }
}


/* A name that a shell takes as it is, and that fits; a cut one would be
 * another's. */
static const char *
sbx_project_word(const char *s, const char *instead)
{
    size_t  n;

    n = strspn(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
                  "0123456789/._-+:@%");

    return n != 0 && n <= SBX_PROJECT_WORD && s[n] == '\0' ? s : instead;
}


const char *
sbx_project_type(const char *dir, char *buf, size_t size)
{
    sbx_project_mount_t  m;

    memset(&m, 0, sizeof(sbx_project_mount_t));

    (void) snprintf(buf, size, "%s", sbx_project_find(dir, &m) == 0 ? m.type
                                                                  : "gone");

    return buf;
}


/* dir, or what is there of its path, may be made later. */
static int
sbx_project_find(const char *dir, sbx_project_mount_t *m)
{
    FILE        *f;
    char         path[SBX_PATH_MAX], dev[32], *line, *slash;
    size_t       size;
    struct stat  st;

    (void) snprintf(path, sizeof(path), "%s", dir);

    while (stat(path, &st) == -1) {
        slash = strrchr(path, '/');

        if (errno != ENOENT || slash == NULL || path[1] == '\0') {
            return -1;
        }

        slash[slash == path] = '\0';
    }

    (void) snprintf(dev, sizeof(dev), "%u:%u", major(st.st_dev),
                    minor(st.st_dev));

    f = fopen("/proc/self/mountinfo", "re");
    if (f == NULL) {
        return -1;
    }

    line = NULL;
    size = 0;

    /* the first: others are bind mounts of parts of it */

    while (getline(&line, &size, f) > 0
           && sbx_project_line(line, dev, m) == -1)
    {
        /* void */
    }

    free(line);
    (void) fclose(f);

    return (m->type[0] != '\0') ? 0 : -1;
}


/* "26 1 254:0 / /point rw - ext4 /dev/vda rw,prjquota" */
static int
sbx_project_line(char *line, const char *dev, sbx_project_mount_t *m)
{
    char  id[32], *rest, options[512];

    rest = strstr(line, " - ");

    if (rest == NULL
        || sscanf(line, "%*s %*s %31s %*s %199s", id, m->point) != 2
        || strcmp(id, dev) != 0)
    {
        return -1;
    }

    if (sscanf(rest + 3, "%31s %79s %511s", m->type, m->source, options)
        != 3)
    {
        m->type[0] = '\0';
        return -1;
    }

    m->asked = strstr(options, "prjquota") != NULL;

    return 0;
}
