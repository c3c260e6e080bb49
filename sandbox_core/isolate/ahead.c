/*
 * What can be changed of a session that was launched ahead, when it is given
 * out: what it is told of its memory, and how much of that its files in
 * memory may take.  The child keeps a descriptor of each for the broker, the
 * first for writing by a mount of its own, since the session's is read-only.
 */

#include "isolate_private.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>


#define SBX_FSPICK_CLOEXEC      0x01u
#define SBX_FSPICK_EMPTY_PATH   0x08u
#define SBX_FSCONFIG_RECONFIGURE  7u


int
sbx_ahead_keep(int top)
{
    sbx_auto_fd  tree = -1;

    tree = sbx_sys_clone_tree(top, "", 0);

    return tree == -1 ? -1 : openat(tree, "meminfo", O_RDWR | O_CLOEXEC);
}


int
sbx_launch_change(const int kept[SBX_LAUNCH_KEPT],
    const sbx_storage_t *storage, const sbx_limits_t *limits, sbx_error_t *e)
{
    char         text[SBX_MEMINFO_MAX], size[32];
    size_t       len;
    sbx_auto_fd  fs = -1;

    len = sbx_inside_meminfo(limits->memory, text);

    if (pwrite(kept[SBX_KEPT_MEMINFO], text, len, 0) != (ssize_t) len
        || ftruncate(kept[SBX_KEPT_MEMINFO], (off_t) len) == -1)
    {
        return sbx_error(e, errno, SBX_E_INTERNAL,
                         "cannot write what the session sees of its memory");
    }

    if (kept[SBX_KEPT_MEMORY] == -1) {
        return 0;
    }

    (void) snprintf(size, sizeof(size), "%" PRIu64,
                    sbx_storage_in_memory(storage, limits));

    fs = (int) syscall(SYS_fspick, kept[SBX_KEPT_MEMORY], "",
                       SBX_FSPICK_CLOEXEC | SBX_FSPICK_EMPTY_PATH);

    if (fs == -1
        || sbx_sys_fsconfig(fs, SBX_FSCONFIG_STRING, "size", size) == -1
        || syscall(SYS_fsconfig, fs, SBX_FSCONFIG_RECONFIGURE, NULL, NULL, 0)
           == -1)
    {
        return sbx_error(e, errno, SBX_E_INTERNAL,
                         "cannot resize the session's files in memory");
    }

    return 0;
}
