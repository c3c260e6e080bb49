/*
 * sandboxctl template list: the built-in template, and what lies below the
 * directory of templates.
 */

#include "sandboxctl.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>


typedef struct {
    int       json;
    unsigned  n;
} sbx_ctl_list_t;


static int sbx_ctl_template_list(sbx_ctl_list_t *list, const char *dir);
static int sbx_ctl_template_filter(const struct dirent *entry);
static void sbx_ctl_template_show(sbx_ctl_list_t *list, int dirfd,
    const char *dir, const char *name);
static void sbx_ctl_template_print(sbx_ctl_list_t *list, const char *name,
    const char *source, const char *root, const char *note);


int
sbx_ctl_template(const sbx_ctl_command_t *command, int argc, char **argv)
{
    int                     code;
    const char             *templates;
    sbx_ctl_list_t          list;
    const sbx_ctl_option_t  options[] = {
        { "--templates", &templates, NULL },
        { "--json", NULL, &list.json },
        { NULL, NULL, NULL }
    };

    templates = SBX_CTL_TEMPLATES;
    memset(&list, 0, sizeof(sbx_ctl_list_t));

    if (argc > 0 && strcmp(argv[0], "list") == 0) {
        argc--;
        argv++;

    } else if (argc == 0 || strcmp(argv[0], "--help") != 0) {
        return sbx_ctl_refuse(command, "expected \"list\", not",
                              argc > 0 ? argv[0] : "");
    }

    if (sbx_ctl_options(command, argc, argv, options, &code) != 0) {
        return code;
    }

    sbx_ctl_template_print(&list, "base", "built-in", "host",
                           "the machine's own programs, read-only");
    sbx_ctl_template_print(&list, "code-interpreter-v1", "built-in", "host",
                           "another name of base");

    code = sbx_ctl_template_list(&list, templates);

    if (list.json) {
        (void) printf("]}\n");
    }

    return code;
}


static int
sbx_ctl_template_list(sbx_ctl_list_t *list, const char *dir)
{
    int              i, n;
    sbx_auto_fd      fd = -1;
    struct dirent  **entries;

    fd = open(dir, O_RDONLY|O_DIRECTORY|O_CLOEXEC);

    if (fd == -1 && errno == ENOENT) {
        return SBX_CTL_OK;
    }

    n = (fd == -1) ? -1 : scandirat(fd, ".", &entries,
                                    sbx_ctl_template_filter, alphasort);

    if (n == -1) {
        (void) fprintf(stderr, "sandboxctl: %s: %s\n", dir, strerror(errno));
        return SBX_CTL_FAILED;
    }

    for (i = 0; i < n; i++) {
        sbx_ctl_template_show(list, fd, dir, entries[i]->d_name);
        free(entries[i]);
    }

    free(entries);

    return SBX_CTL_OK;
}


static int
sbx_ctl_template_filter(const struct dirent *entry)
{
    return entry->d_name[0] != '.' && strlen(entry->d_name) < SBX_TEMPLATE_MAX;
}


static void
sbx_ctl_template_show(sbx_ctl_list_t *list, int dirfd, const char *dir,
    const char *name)
{
    int          described, root;
    char         path[PATH_MAX];
    struct stat  st;

    (void) snprintf(path, sizeof(path), "%s/template.json", name);
    described = faccessat(dirfd, path, R_OK, 0) == 0;

    (void) snprintf(path, sizeof(path), "%s/rootfs", name);
    root = fstatat(dirfd, path, &st, AT_SYMLINK_NOFOLLOW) == 0
           && S_ISDIR(st.st_mode);

    if (!described && !root) {
        return;
    }

    (void) snprintf(path, sizeof(path), "%s/%s", dir, name);

    sbx_ctl_template_print(list, name, path, root ? "own" : "host",
                           described ? "not offered to sessions yet"
                                     : "template.json is missing");
}


static void
sbx_ctl_template_print(sbx_ctl_list_t *list, const char *name,
    const char *source, const char *root, const char *note)
{
    if (list->json) {
        (void) printf("%s{", list->n++ ? "," : "{\"templates\":[");
        sbx_ctl_json_member(0, "name", name);
        sbx_ctl_json_member(1, "source", source);
        sbx_ctl_json_member(1, "root", root);
        (void) printf(",\"usable\":%s",
                      strcmp(source, "built-in") == 0 ? "true" : "false");
        sbx_ctl_json_member(1, "note", note);
        (void) printf("}");
        return;
    }

    if (list->n++ == 0) {
        (void) printf("%-24s%-6s%s\n", "NAME", "ROOT", "");
    }

    sbx_ctl_text(name, 24);
    sbx_ctl_text(root, 6);
    sbx_ctl_text(note, 0);
    (void) printf("\n");
}
