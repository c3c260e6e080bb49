/*
 * A tree of files as it is, whole: to be compared with another one, and to be
 * removed.
 */

#ifndef SBX_FUZZ_TREE_H
#define SBX_FUZZ_TREE_H

#include "fuzz.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>


#define TREE_MAX      1024             /* names */
#define TREE_BYTES    65536            /* of a file */

typedef struct {
    char        *path;
    unsigned     type;                 /* of st_mode */
    unsigned     mode;
    char        *text;                 /* a file's, or a link's target */
    size_t       size;
    unsigned     seen;
} name_t;

typedef struct {
    name_t       names[TREE_MAX];
    unsigned     n;
} tree_t;


/* path is "" at the top. */

static void
tree_read(tree_t *tree, int at, const char *path)
{
    int             fd, file;
    DIR            *list;
    ssize_t         n;
    name_t         *name;
    struct stat     st;
    struct dirent  *entry;
    char            text[TREE_BYTES + 1];

    if (path[0] == '\0') {
        tree->n = 0;
    }

    fd = openat(at, ".", O_RDONLY|O_DIRECTORY|O_CLOEXEC);
    list = fd != -1 ? fdopendir(fd) : NULL;
    must(list != NULL);

    while ((entry = readdir(list)) != NULL) {
        if (strcmp(entry->d_name, ".") == 0
            || strcmp(entry->d_name, "..") == 0)
        {
            continue;
        }

        must(tree->n < TREE_MAX);
        name = &tree->names[tree->n++];
        must(fstatat(fd, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0);
        name->path = malloc(strlen(path) + strlen(entry->d_name) + 2);
        must(name->path != NULL);
        (void) sprintf(name->path, "%s/%s", path, entry->d_name);
        name->type = st.st_mode & S_IFMT;
        name->mode = st.st_mode & 07777;
        name->seen = 0;
        n = 0;

        switch (name->type) {

        case S_IFREG:
            file = openat(fd, entry->d_name, O_RDONLY|O_NOFOLLOW|O_CLOEXEC);
            must(file != -1);
            n = read(file, text, sizeof(text));
            must(n == st.st_size);
            (void) close(file);
            break;

        case S_IFLNK:
            n = readlinkat(fd, entry->d_name, text, sizeof(text));
            must(n > 0);
            break;

        case S_IFDIR:
            file = openat(fd, entry->d_name, O_PATH|O_NOFOLLOW|O_CLOEXEC);
            must(file != -1);
            tree_read(tree, file, name->path);
            (void) close(file);
            break;

        default:
            abort();
        }

        name->size = (size_t) n;
        name->text = malloc(name->size + 1);
        must(name->text != NULL);
        memcpy(name->text, text, name->size);
        name->text[name->size] = '\0';
    }

    (void) closedir(list);
}


static void
tree_free(tree_t *tree)
{
    while (tree->n != 0) {
        tree->n--;
        free(tree->names[tree->n].path);
        free(tree->names[tree->n].text);
    }
}


static void
tree_empty(int at)
{
    int             fd, below;
    DIR            *list;
    struct dirent  *entry;

    fd = openat(at, ".", O_RDONLY|O_DIRECTORY|O_CLOEXEC);
    list = fd != -1 ? fdopendir(fd) : NULL;
    must(list != NULL);

    while ((entry = readdir(list)) != NULL) {
        if (strcmp(entry->d_name, ".") == 0
            || strcmp(entry->d_name, "..") == 0
            || unlinkat(fd, entry->d_name, 0) == 0)
        {
            continue;
        }

        below = openat(fd, entry->d_name, O_PATH|O_NOFOLLOW|O_CLOEXEC);
        must(below != -1);
        tree_empty(below);
        (void) close(below);
        must(unlinkat(fd, entry->d_name, AT_REMOVEDIR) == 0);
    }

    (void) closedir(list);
}


static name_t *
tree_find(tree_t *tree, const char *path)
{
    unsigned  i;

    for (i = 0; i < tree->n; i++) {
        if (strcmp(tree->names[i].path, path) == 0) {
            return &tree->names[i];
        }
    }

    return NULL;
}


#endif
