/*
 * Lists: the entries of a directory, to a depth, or those that a pattern
 * selects.
 *
 * A walk reads a directory whole, sorts it and goes through it.  A directory
 * stands in it twice, as the entry "a" and as what is below, "a/": sorted by
 * their bytes, entries come out in the order of their whole paths, and can
 * be counted, skipped and sent as they come.  With SBX_FILE_F_MORE what is
 * below "a" comes right after it, before "a-".  Memory, depth and the number
 * of names looked at are bounded; where a bound is met the list says so.
 */

#include "init_file.h"
#include "glob_match.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>


#define SBX_INIT_LIST_DEPTH    200         /* directories open at once */
#define SBX_INIT_LIST_NAMES    1000000     /* looked at */
#define SBX_INIT_LIST_MEMORY   (48 * 1024 * 1024)


typedef struct {
    char       *name;
    uint64_t    states;        /* GLOB: below it; LIST: levels left */
    unsigned    below:1;       /* "a/" rather than "a" */
} sbx_init_item_t;


typedef struct {
    sbx_init_item_t   *items;
    size_t             n;
    size_t             room;
} sbx_init_items_t;


static int sbx_init_list_directory(sbx_init_list_t *list, int fd,
    uint64_t states);
static int sbx_init_list_read(sbx_init_list_t *list, DIR *dir,
    uint64_t states, sbx_init_items_t *items);
static int sbx_init_list_name(sbx_init_list_t *list, int fd,
    const struct dirent *de, uint64_t states, sbx_init_items_t *items);
static int sbx_init_list_type(int fd, const struct dirent *de);
static int sbx_init_list_add(sbx_init_list_t *list, sbx_init_items_t *items,
    const char *name, uint64_t states, unsigned below);
static int sbx_init_list_emit(sbx_init_list_t *list, int fd,
    const char *name);
static int sbx_init_list_order(const void *one, const void *two);
static int sbx_init_list_key(const sbx_init_item_t *item, size_t i);


static int  sbx_init_list_slash = '/';     /* where it stands among bytes */


int
sbx_init_file_verb_glob(sbx_init_serve_t *s, sbx_f_end_t *end,
    sbx_error_t *e)
{
    int                      rc;
    char                     path[2 * SBX_PATH_MAX];
    const char              *base;
    sbx_auto_fd              fd = -1;
    sbx_glob_t              *glob;
    static sbx_init_list_t   list;

    if (sbx_glob_compile(s->path2, strlen(s->path2), &glob, e) != 0) {
        return -1;
    }

    base = sbx_glob_base(glob);
    path[0] = '\0';

    if (base[0] != '/' && s->path[0] != '\0') {
        (void) sbx_copy_string(path, sizeof(path), s->path, strlen(s->path));
        (void) strcat(path, "/");
    }

    (void) strcat(path, base);

    fd = sbx_init_open(s, path, O_RDONLY|O_DIRECTORY, e);

    if (fd == -1) {
        sbx_glob_free(glob);
        return -1;
    }

    list.s = s;
    list.end = end;
    list.e = e;
    list.glob = glob;
    list.emit = sbx_init_list_emit;

    rc = sbx_init_list_run(&list, fd, sbx_glob_start(glob));

    sbx_glob_free(glob);

    return rc;
}


int
sbx_init_file_verb_list(sbx_init_serve_t *s, sbx_f_end_t *end,
    sbx_error_t *e)
{
    uint64_t                levels;
    sbx_auto_fd             fd = -1;
    static sbx_init_list_t  list;

    fd = sbx_init_open(s, s->path, O_RDONLY|O_DIRECTORY, e);

    if (fd == -1) {
        return -1;
    }

    list.s = s;
    list.end = end;
    list.e = e;
    list.emit = sbx_init_list_emit;

    if (s->file.flags & SBX_FILE_F_MORE) {
        sbx_init_list_slash = 0;
    }

    levels = s->file.limit2 == 0 ? 1 : s->file.limit2;

    return sbx_init_list_run(&list, fd, levels);
}


int
sbx_init_list_run(sbx_init_list_t *list, int fd, uint64_t states)
{
    sbx_f_file_t  *file;

    file = &list->s->file;

    if (file->limit == 0) {
        file->limit = SBX_INIT_LIST_NAMES;
    }

    if (file->verb == SBX_FILE_LIST && (file->flags & SBX_FILE_F_MORE)) {
        if (sbx_init_given(list->s->path, list->path, &list->len, list->e)
            != 0)
        {
            return -1;
        }

    } else {
        if (sbx_init_real(fd, list->path, SBX_PATH_MAX + 64, list->e) != 0) {
            return -1;
        }

        list->len = strlen(list->path);

        if (list->len == 1) {
            list->len = 0;
        }
    }

    list->base = list->len;

    return sbx_init_list_directory(list, fd, states);
}


static int
sbx_init_list_directory(sbx_init_list_t *list, int fd, uint64_t states)
{
    int                rc, next;
    DIR               *dir;
    size_t             i, len, n;
    sbx_init_item_t   *item;
    sbx_init_items_t   items;

    dir = fdopendir(fcntl(fd, F_DUPFD_CLOEXEC, 0));

    if (dir == NULL) {
        return sbx_init_errno(list->e, errno, "path");
    }

    memset(&items, 0, sizeof(sbx_init_items_t));
    rc = sbx_init_list_read(list, dir, states, &items);
    (void) closedir(dir);

    if (items.n != 0) {
        qsort(items.items, items.n, sizeof(sbx_init_item_t),
              sbx_init_list_order);
    }

    len = list->len;

    for (i = 0; i < items.n && rc == 0 && !list->full; i++) {
        item = &items.items[i];
        n = strlen(item->name);

        if (len + 1 + n >= sizeof(list->path)) {
            list->end->truncated = 1;
            continue;
        }

        list->path[len] = '/';
        memcpy(list->path + len + 1, item->name, n);
        list->len = len + 1 + n;

        if (!item->below) {
            rc = list->emit(list, fd, item->name);
            continue;
        }

        if (list->depth == SBX_INIT_LIST_DEPTH) {
            list->end->truncated = 1;
            continue;
        }

        /* what cannot be read has no entries for this user */

        next = sbx_init_open_at(fd, item->name, O_RDONLY|O_DIRECTORY
                                | (list->glob ? 0 : O_NOFOLLOW));

        if (next != -1) {
            list->depth++;
            rc = sbx_init_list_directory(list, next, item->states);
            list->depth--;
            (void) close(next);
        }
    }

    list->len = len;

    for (i = 0; i < items.n; i++) {
        list->memory -= strlen(items.items[i].name) + 1;
        free(items.items[i].name);
    }

    list->memory -= items.room * sizeof(sbx_init_item_t);
    free(items.items);

    return rc;
}


static int
sbx_init_list_read(sbx_init_list_t *list, DIR *dir, uint64_t states,
    sbx_init_items_t *items)
{
    struct dirent  *de;

    while ((de = readdir(dir)) != NULL) {
        if (strcmp(de->d_name, ".") == 0 || strcmp(de->d_name, "..") == 0
            || sbx_init_hidden(de->d_name))
        {
            continue;
        }

        if (++list->names > SBX_INIT_LIST_NAMES) {
            list->end->truncated = 1;
            break;
        }

        if (sbx_init_list_name(list, dirfd(dir), de, states, items) != 0) {
            return -1;
        }
    }

    list->s->share->progress++;

    return sbx_init_serve_late(list->e);
}


static int
sbx_init_list_name(sbx_init_list_t *list, int fd, const struct dirent *de,
    uint64_t states, sbx_init_items_t *items)
{
    int       type, wanted;
    uint64_t  next;

    type = sbx_init_list_type(fd, de);

    if (list->glob == NULL) {
        if (sbx_init_list_add(list, items, de->d_name, 0, 0) != 0) {
            return -1;
        }

        return (type == DT_DIR && states > 1)
               ? sbx_init_list_add(list, items, de->d_name, states - 1, 1)
               : 0;
    }

    if (sbx_glob_step(list->glob, states, de->d_name, strlen(de->d_name),
                      type == DT_DIR, &next, list->e)
        != 0)
    {
        return -1;
    }

    wanted = sbx_glob_accepts(list->glob, next)
             && (type == DT_DIR || !sbx_glob_directories(list->glob));

    if (wanted
        && sbx_init_list_add(list, items, de->d_name, 0, 0) != 0)
    {
        return -1;
    }

    if ((type == DT_DIR || type == DT_LNK)
        && sbx_glob_goes_on(list->glob, next))
    {
        return sbx_init_list_add(list, items, de->d_name, next, 1);
    }

    return 0;
}


static int
sbx_init_list_type(int fd, const struct dirent *de)
{
    struct stat  st;

    if (de->d_type != DT_UNKNOWN) {
        return de->d_type;
    }

    if (fstatat(fd, de->d_name, &st, AT_SYMLINK_NOFOLLOW) == -1) {
        return DT_UNKNOWN;
    }

    return S_ISDIR(st.st_mode) ? DT_DIR
                               : S_ISLNK(st.st_mode) ? DT_LNK : DT_REG;
}


static int
sbx_init_list_add(sbx_init_list_t *list, sbx_init_items_t *items,
    const char *name, uint64_t states, unsigned below)
{
    size_t            room, len;
    sbx_init_item_t  *more;

    len = strlen(name) + 1;

    if (list->memory + len > SBX_INIT_LIST_MEMORY) {
        list->end->truncated = 1;
        return 0;
    }

    if (items->n == items->room) {
        room = items->room == 0 ? 32 : items->room * 2;
        more = realloc(items->items, room * sizeof(sbx_init_item_t));

        if (more == NULL) {
            return sbx_init_errno(list->e, ENOMEM, "the list");
        }

        list->memory += (room - items->room) * sizeof(sbx_init_item_t);
        items->items = more;
        items->room = room;
    }

    more = &items->items[items->n];
    more->name = strdup(name);
    more->states = states;
    more->below = below;

    if (more->name == NULL) {
        return sbx_init_errno(list->e, ENOMEM, "the list");
    }

    list->memory += len;
    items->n++;

    return 0;
}


static int
sbx_init_list_order(const void *one, const void *two)
{
    size_t                  i;
    const sbx_init_item_t  *a, *b;

    a = one;
    b = two;

    for (i = 0; a->name[i] != '\0' && a->name[i] == b->name[i]; i++) {
        /* void */
    }

    return sbx_init_list_key(a, i) - sbx_init_list_key(b, i);
}


static int
sbx_init_list_key(const sbx_init_item_t *item, size_t i)
{
    uint8_t  c;

    c = (uint8_t) item->name[i];

    if (c != '\0') {
        return c;
    }

    return item->below ? sbx_init_list_slash : -1;
}


static int
sbx_init_list_emit(sbx_init_list_t *list, int fd, const char *name)
{
    sbx_f_file_t  *file;

    file = &list->s->file;

    if (list->found++ < file->skip) {
        return 0;
    }

    if (list->end->count == file->limit) {
        list->end->next = file->skip + file->limit;
        list->full = 1;
        return 0;
    }

    if (sbx_init_entry_send(list->s, fd, name, list->path, list->len,
                            list->e)
        != 0)
    {
        /* removed since it was read */
        if (list->e->code == SBX_E_FILE) {
            return 0;
        }

        return -1;
    }

    list->end->count++;

    return 0;
}
