/*
 * The manifest's "filesystem": more that may be written, less that may be
 * written or read, and directories of the host.
 *
 * Applied by the child as real root, when the session's root is built and
 * not yet entered: nothing of the session has run, but links of a template
 * are nobody's word.  So each path is walked here, name by name, with links
 * read as text below the session's root; every step is a descriptor, and so
 * is what is mounted and where.
 *
 *   writable    a directory of the session's upper, given to its user; where
 *               the tree is read-only, a small overlay over what is there,
 *               its upper in the session's tmpfs ("own")
 *   bind        a host directory at /mnt/NAME: read-only as an overlay of the
 *               session's own, else the idmapped mount that the parent made
 *   deny_write  the tree bound onto itself, read-only with all below
 *   deny_read   an empty directory or file ("masks") of mode 000, whose owner
 *               is nobody in the session, over what is there
 *
 * What a deny rule names must keep its name.  The kernel refuses to rename or
 * remove a mount point, so every directory above that the session could move
 * away is bound onto itself, and so is every link on the way.  For what is
 * not there a placeholder is made in the session's own storage.
 *
 * Rules are applied kind by kind, shorter paths first: the later wins.
 */

#include "rules_private.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>


#define SBX_USER          1000u
#define SBX_RULES_ALL     (SBX_RULE_KINDS * SBX_RULES_KIND_MAX)

#define SBX_MASK_ATTR     (SBX_MOUNT_RDONLY | SBX_MOUNT_NOSUID               \
                           | SBX_MOUNT_NODEV | SBX_MOUNT_NOEXEC)


static int sbx_rules_bind_open(sbx_plan_t *plan, const sbx_rule_t *rule,
    sbx_error_t *e);
static int sbx_rules_bind_owner(const sbx_plan_t *plan,
    const sbx_rule_t *rule, int fd, int tree, sbx_error_t *e);
static int sbx_rules_depth(const char *path);
static int sbx_rules_compare(const void *one, const void *two);
static int sbx_rules_one(sbx_rules_t *r, const sbx_rule_t *rule,
    sbx_place_t *place, sbx_error_t *e);
static int sbx_rules_in_bind(const sbx_rules_t *r, const sbx_place_t *place);
static int sbx_rules_writable(sbx_rules_t *r, sbx_place_t *place,
    sbx_error_t *e);
static int sbx_rules_layers(const char *lower, const char *upper,
    const char *work, unsigned attr);
static int sbx_rules_overlay(sbx_rules_t *r, const sbx_place_t *place,
    sbx_error_t *e);
static int sbx_rules_bind(sbx_rules_t *r, sbx_place_t *place,
    sbx_error_t *e);
static int sbx_rules_deny(sbx_rules_t *r, sbx_place_t *place,
    sbx_error_t *e);
static int sbx_rules_cover(const sbx_place_t *place, int tree, unsigned attr,
    const char *what, sbx_error_t *e);
static int sbx_rules_deny_write(sbx_rules_t *r, sbx_place_t *place,
    sbx_error_t *e);
static int sbx_rules_deny_read(sbx_rules_t *r, sbx_place_t *place,
    sbx_error_t *e);
static int sbx_rules_masks(sbx_rules_t *r, const sbx_rule_t *rule,
    sbx_error_t *e);


/* In the order of a rule's kind, see sbx_rule_t. */

static int (*const sbx_rules_apply_kind[SBX_RULE_KINDS])(sbx_rules_t *r,
    sbx_place_t *place, sbx_error_t *e) =
{
    sbx_rules_writable,
    sbx_rules_bind,
    sbx_rules_deny_write,
    sbx_rules_deny_read
};


/*
 * ---- the parent ------------------------------------------------------------
 */

int
sbx_rules_prepare(sbx_plan_t *plan, sbx_error_t *e)
{
    int                  rc;
    sbx_rule_t           rule;
    const sbx_launch_t  *launch;

    launch = plan->launch;
    sbx_rule_first(&rule, launch->rules, launch->rules_size);

    while ((rc = sbx_rule_next(&rule)) == 1) {
        if (rule.index >= SBX_RULES_KIND_MAX) {
            rc = -1;
            break;
        }

        if (rule.text[-1] == SBX_RULE_BIND
            && sbx_rules_bind_open(plan, &rule, e) == -1)
        {
            return -1;
        }
    }

    if (rc == -1) {
        return sbx_error(e, 0, SBX_E_INVALID, "file rules are malformed");
    }

    return 0;
}


void
sbx_rules_release(sbx_plan_t *plan)
{
    while (plan->nbinds != 0) {
        plan->nbinds--;
        (void) close(plan->binds[plan->nbinds].fd);
    }
}


/*
 * No name of the path may be a link: it has none when the configuration is
 * read, and one that is there now may have been made by a session that
 * writes a directory above.
 */
static int
sbx_rules_bind_open(sbx_plan_t *plan, const sbx_rule_t *rule, sbx_error_t *e)
{
    sbx_bind_t        bind;
    sbx_auto_fd       fd = -1, tree = -1;
    sbx_plan_bind_t  *open;

    if (!sbx_bind_name_ok(rule->text, strlen(rule->text))
        || sbx_bind_find(plan->launch->binds, plan->launch->binds_size,
                         rule->text, plan->launch->tenant, &bind)
           == -1)
    {
        return sbx_rule_refuse(rule, 0, SBX_BIND_REFUSED, e);
    }

    fd = sbx_sys_open_plain(bind.path, O_PATH | O_DIRECTORY);

    if (fd == -1) {
        return sbx_rule_refuse(rule, errno, "its directory on the host is "
                               "gone, or a link leads there", e);
    }

    tree = sbx_sys_clone_tree(fd, "", 0);

    if (tree == -1) {
        return sbx_rule_refuse(rule, errno, "its directory on the host "
                               "cannot be mounted", e);
    }

    if (bind.writable) {
        if (sbx_rules_bind_owner(plan, rule, fd, tree, e) == -1) {
            return -1;
        }

    } else if (sbx_sys_mount_attr(tree, SBX_MOUNT_RDONLY | SBX_MOUNT_NOSUID
                                        | SBX_MOUNT_NODEV, -1)
               == -1)
    {
        return sbx_error(e, errno, SBX_E_INTERNAL,
                         "cannot make a host directory read-only");
    }

    open = &plan->binds[plan->nbinds++];
    open->fd = sbx_steal_fd(&tree);
    open->writable = bind.writable;
    (void) snprintf(open->name, sizeof(open->name), "%s", rule->text);

    return 0;
}


/* Its owner is the session's user, and nobody else has an id there: what is
 * somebody else's is nobody's, and nothing can be made for others. */
static int
sbx_rules_bind_owner(const sbx_plan_t *plan, const sbx_rule_t *rule, int fd,
    int tree, sbx_error_t *e)
{
    sbx_idmap_t  map;
    struct stat  st;
    sbx_auto_fd  userns = -1;

    if (fstat(fd, &st) == -1) {
        return sbx_error(e, errno, SBX_E_INTERNAL, "fstat() failed");
    }

    if (st.st_uid == 0 || st.st_gid == 0) {
        return sbx_rule_refuse(rule, 0, "its directory on the host belongs "
                               "to root, whom no session may be", e);
    }

    map.uid = st.st_uid;
    map.gid = st.st_gid;
    map.outside = plan->launch->uid_first + SBX_USER;
    map.count = 1;

    userns = sbx_template_userns(&map, e);
    if (userns == -1) {
        return -1;
    }

    if (sbx_sys_mount_attr(tree, SBX_MOUNT_NOSUID | SBX_MOUNT_NODEV, userns)
        == -1)
    {
        return sbx_rule_refuse(rule, errno, "its file system on the host "
                               "takes no idmapped mount", e);
    }

    return 0;
}


/*
 * ---- the child -------------------------------------------------------------
 */

/* In the upper layer they hide whatever a template has of these names. */
int
sbx_rules_points(const sbx_plan_t *plan, sbx_error_t *e)
{
    char      name[SBX_BIND_NAME_MAX + 16];
    uid_t     id;
    unsigned  i;

    id = (uid_t) plan->launch->uid_first;

    for (i = 0; i < plan->nbinds; i++) {
        (void) snprintf(name, sizeof(name), "upper" SBX_BINDS_DIR "/%s",
                        plan->binds[i].name);

        if (mkdirat(plan->root_fd, name, 0755) == -1
            || fchownat(plan->root_fd, name, id, id, AT_SYMLINK_NOFOLLOW)
               == -1)
        {
            return sbx_error(e, errno, SBX_E_INTERNAL, "cannot make \"%s\"",
                             name);
        }
    }

    return 0;
}


int
sbx_rules_apply(const sbx_plan_t *plan, sbx_error_t *e)
{
    size_t              i, n;
    sbx_rule_t          rule;
    sbx_rules_t         r;
    sbx_auto_fd         root = -1;
    static sbx_rule_t   rules[SBX_RULES_ALL];
    static sbx_place_t  place;

    if (plan->launch->rules_size == 0) {
        return 0;
    }

    n = 0;
    sbx_rule_first(&rule, plan->launch->rules, plan->launch->rules_size);

    while (n < SBX_RULES_ALL && sbx_rule_next(&rule) == 1) {
        rules[n++] = rule;
    }

    qsort(rules, n, sizeof(sbx_rule_t), sbx_rules_compare);

    root = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (root == -1) {
        return sbx_error(e, errno, SBX_E_INTERNAL,
                         "cannot open the session's root");
    }

    memset(&r, 0, sizeof(sbx_rules_t));
    r.plan = plan;
    r.root = root;
    r.user = (uid_t) (plan->launch->uid_first + SBX_USER);

    for (i = 0; i < n; i++) {
        if (sbx_rules_one(&r, &rules[i], &place, e) == -1) {
            return -1;
        }
    }

    return 0;
}


static int
sbx_rules_one(sbx_rules_t *r, const sbx_rule_t *rule, sbx_place_t *place,
    sbx_error_t *e)
{
    int  rc;

    place->rule = rule;
    place->fd = -1;

    rc = sbx_rules_apply_kind[rule->order](r, place, e);

    if (place->fd != -1) {
        (void) close(place->fd);
    }

    return rc;
}


static int
sbx_rules_depth(const char *path)
{
    int  n;

    for (n = 0; *path != '\0'; path++) {
        n += (path[0] == '/' && path[1] != '\0');
    }

    return n;
}


static int
sbx_rules_compare(const void *one, const void *two)
{
    const sbx_rule_t  *a = one, *b = two;

    if (a->order != b->order) {
        return (a->order > b->order) ? 1 : -1;
    }

    return sbx_rules_depth(a->text) - sbx_rules_depth(b->text);
}


/* In, or at, a directory of the host. */
static int
sbx_rules_in_bind(const sbx_rules_t *r, const sbx_place_t *place)
{
    char      point[SBX_BIND_NAME_MAX + 16];
    unsigned  i;

    for (i = 0; i < r->plan->nbinds; i++) {
        (void) snprintf(point, sizeof(point), SBX_BINDS_DIR "/%s",
                        r->plan->binds[i].name);

        if (sbx_rule_below(place->path, point)) {
            return 1;
        }
    }

    return 0;
}


static int
sbx_rules_writable(sbx_rules_t *r, sbx_place_t *place, sbx_error_t *e)
{
    place->pin = 0;

    if (sbx_rules_walk(r, place, e) == -1) {
        return -1;
    }

    if (sbx_rules_in_bind(r, place)) {
        return sbx_rule_refuse(place->rule, 0, "a directory of the host is "
                               "there; who may write it is the operator's "
                               "to say", e);
    }

    if (!S_ISDIR(place->st.st_mode)) {
        return sbx_rule_refuse(place->rule, 0, "is, or is below, what is no "
                               "directory", e);
    }

    if (sbx_rules_readonly(place->fd)) {
        return place->rest[0] == '\0'
               ? sbx_rules_overlay(r, place, e)
               : sbx_rule_refuse(place->rule, 0, "is not there and cannot be "
                                 "made in a read-only directory", e);
    }

    if (place->rest[0] != '\0' && sbx_rules_make(r, place, e) == -1) {
        return -1;
    }

    if (place->st.st_uid == r->user || (place->st.st_mode & S_IWOTH)) {
        return 0;
    }

    if (fchownat(place->fd, "", r->user, r->user, AT_EMPTY_PATH) == -1) {
        return sbx_rules_failed(place->rule, "cannot be given to the user",
                                e);
    }

    return 0;
}


/* A detached overlay; read-only where upper and work are NULL. */
static int
sbx_rules_layers(const char *lower, const char *upper, const char *work,
    unsigned attr)
{
    sbx_auto_fd  fs = -1;

    fs = sbx_sys_fsopen("overlay");

    if (fs == -1
        || sbx_sys_fsconfig(fs, SBX_FSCONFIG_STRING, "source", "sandbox")
           == -1
        || sbx_sys_fsconfig(fs, SBX_FSCONFIG_STRING, "lowerdir", lower) == -1
        || (upper != NULL
            && (sbx_sys_fsconfig(fs, SBX_FSCONFIG_STRING, "upperdir", upper)
                == -1
                || sbx_sys_fsconfig(fs, SBX_FSCONFIG_STRING, "workdir", work)
                   == -1))
        || sbx_sys_fsconfig(fs, SBX_FSCONFIG_STRING, "index", "off") == -1
        || sbx_sys_fsconfig(fs, SBX_FSCONFIG_STRING, "metacopy", "off")
           == -1)
    {
        return -1;
    }

    return sbx_sys_fsmount(fs, attr);
}


/* What is there stays to be seen, and is copied up when it is written. */
static int
sbx_rules_overlay(sbx_rules_t *r, const sbx_place_t *place, sbx_error_t *e)
{
    char         dir[32], upper[64], work[64];
    sbx_auto_fd  lower = -1, mount = -1;

    (void) snprintf(dir, sizeof(dir), "../own/%u", r->own);
    (void) snprintf(upper, sizeof(upper), "%s/upper", dir);
    (void) snprintf(work, sizeof(work), "%s/work", dir);

    if (mkdir(dir, 0755) == -1 || mkdir(upper, 0755) == -1
        || mkdir(work, 0755) == -1
        || chown(upper, r->user, r->user) == -1)
    {
        return sbx_rules_failed(place->rule, "there is no room for it", e);
    }

    r->own++;

    lower = sbx_sys_clone_tree(place->fd, "", 0);

    if (lower == -1 || sbx_sys_move_mount(lower, AT_FDCWD, "../host") == -1) {
        return sbx_rules_failed(place->rule, "cannot be mounted", e);
    }

    mount = sbx_rules_layers("../host", upper, work, SBX_MOUNT_NOSUID
                                                     | SBX_MOUNT_NODEV);

    if (mount == -1 || sbx_sys_move_mount_onto(mount, place->fd) == -1) {
        return sbx_rules_failed(place->rule, "cannot be made writable", e);
    }

    return 0;
}


static int
sbx_rules_bind(sbx_rules_t *r, sbx_place_t *place, sbx_error_t *e)
{
    char                    point[SBX_BIND_NAME_MAX + 16];
    unsigned                i;
    sbx_auto_fd             mount = -1;
    const sbx_plan_bind_t  *bind;

    /* the parent has opened them in the order of the manifest */

    i = place->rule->index;

    if (i >= r->plan->nbinds) {
        return sbx_rule_refuse(place->rule, 0, SBX_BIND_REFUSED, e);
    }

    bind = &r->plan->binds[i];

    (void) snprintf(point, sizeof(point), SBX_BINDS_DIR "/%s", bind->name);

    if (sbx_rules_up(r, place, point, e) == -1) {
        return -1;
    }

    if (bind->writable) {
        return (sbx_sys_move_mount_onto(bind->fd, place->fd) == 0)
               ? 0 : sbx_rules_failed(place->rule, "cannot be mounted", e);
    }

    /* through a bind mount inotify and locks would tell of other tenants */

    if (sbx_sys_move_mount(bind->fd, AT_FDCWD, "../host") == -1) {
        return sbx_rules_failed(place->rule, "cannot be mounted", e);
    }

    mount = sbx_rules_layers("../host:../none", NULL, NULL,
                             SBX_MOUNT_RDONLY | SBX_MOUNT_NOSUID
                             | SBX_MOUNT_NODEV);

    if (mount == -1 || sbx_sys_move_mount_onto(mount, place->fd) == -1) {
        return sbx_rules_failed(place->rule, "its file system on the host "
                                "cannot be a layer of an overlay", e);
    }

    return 0;
}


/* What is to be denied is there afterwards, with a name that stays; or, 1,
 * nobody in the session can ever make it. */
static int
sbx_rules_deny(sbx_rules_t *r, sbx_place_t *place, sbx_error_t *e)
{
    place->pin = 1;

    if (sbx_rules_walk(r, place, e) == -1) {
        return -1;
    }

    if (place->rest[0] == '\0') {
        return 0;
    }

    if (sbx_rules_readonly(place->fd) || !S_ISDIR(place->st.st_mode)) {
        return 1;
    }

    if (sbx_rules_in_bind(r, place)) {
        return sbx_rule_refuse(place->rule, 0, "is not there, and is not made "
                               "in a directory of the host", e);
    }

    return sbx_rules_make(r, place, e);
}


/* Over the place, or over itself; tree -1: it could not be cloned. */
static int
sbx_rules_cover(const sbx_place_t *place, int tree, unsigned attr,
    const char *what, sbx_error_t *e)
{
    if (tree == -1
        || sbx_sys_mount_attr(tree, attr, -1) == -1
        || sbx_sys_move_mount_onto(tree, place->fd) == -1)
    {
        return sbx_rules_failed(place->rule, what, e);
    }

    return 0;
}


static int
sbx_rules_deny_write(sbx_rules_t *r, sbx_place_t *place, sbx_error_t *e)
{
    int          rc;
    sbx_auto_fd  tree = -1;

    rc = sbx_rules_deny(r, place, e);

    if (rc != 0) {
        return (rc == 1) ? 0 : -1;
    }

    tree = sbx_sys_clone_tree(place->fd, "", 1);

    return sbx_rules_cover(place, tree, SBX_MOUNT_RDONLY,
                           "cannot be made read-only", e);
}


static int
sbx_rules_deny_read(sbx_rules_t *r, sbx_place_t *place, sbx_error_t *e)
{
    int          rc;
    sbx_auto_fd  tree = -1;

    rc = sbx_rules_deny(r, place, e);

    if (rc != 0) {
        return (rc == 1) ? 0 : -1;
    }

    if (sbx_rules_masks(r, place->rule, e) == -1) {
        return -1;
    }

    tree = sbx_sys_clone_tree(AT_FDCWD, S_ISDIR(place->st.st_mode)
                                        ? "../masks/directory"
                                        : "../masks/file", 0);

    return sbx_rules_cover(place, tree, SBX_MASK_ATTR, "cannot be hidden", e);
}


/* Of a tmpfs of their own: no right to any other file comes with them. */
static int
sbx_rules_masks(sbx_rules_t *r, const sbx_rule_t *rule, sbx_error_t *e)
{
    sbx_auto_fd  top = -1;

    if (r->masked) {
        return 0;
    }

    top = sbx_sys_tmpfs("0755", "64k", SBX_MOUNT_NOSUID | SBX_MOUNT_NODEV
                                       | SBX_MOUNT_NOEXEC);

    if (top == -1
        || mkdirat(top, "directory", 0) == -1
        || mknodat(top, "file", S_IFREG, 0) == -1
        || sbx_sys_move_mount(top, AT_FDCWD, "../masks") == -1)
    {
        return sbx_rules_failed(rule, "cannot be hidden", e);
    }

    r->masked = 1;

    return 0;
}
