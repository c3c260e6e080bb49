/*
 * A session that was made ahead becomes somebody's: limits, environment,
 * capabilities and flags are replaced by what the broker sends.  What the
 * session was built with (ids, filters, groups, directories) stays.
 */

#include "init.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>


int
sbx_init_hand_over(int fd)
{
    int                         seals;
    void                       *p;
    size_t                      size;
    struct stat                 st;
    sbx_init_config_t           new;
    static sbx_init_config_t    config;

    seals = fcntl(fd, F_GET_SEALS);

    if (seals == -1 || (seals & F_SEAL_WRITE) == 0
        || (seals & F_SEAL_SHRINK) == 0 || fstat(fd, &st) == -1
        || st.st_size < (off_t) sizeof(sbx_init_config_t)
        || st.st_size > (off_t) sizeof(sbx_init_config_t) + SBX_ENV_MAX)
    {
        return -1;
    }

    size = (size_t) st.st_size;
    p = mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0);

    if (p == MAP_FAILED) {
        return -1;
    }

    memcpy(&new, p, sizeof(sbx_init_config_t));

    if (new.magic != SBX_WIRE_MAGIC || new.version != SBX_WIRE_VERSION
        || size != sizeof(sbx_init_config_t) + (size_t) new.env_size
        || (new.env_size != 0 && ((const char *) p)[size - 1] != '\0'))
    {
        (void) munmap(p, size);
        return -1;
    }

    config = *sbx_init.config;
    config.limits = new.limits;
    config.env_size = new.env_size;
    config.capabilities = new.capabilities;
    config.flags = new.flags;

    sbx_init.config = &config;
    sbx_init.env = (const char *) p + sizeof(sbx_init_config_t);
    sbx_init_launch_env();

    return 0;
}
