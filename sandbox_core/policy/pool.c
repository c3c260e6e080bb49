#include "sandbox_pool.h"

#include <string.h>


static int sbx_pool_names_ok(const char *names);
static int sbx_pool_strings_ok(const char *strings, size_t size);


const char *
sbx_miss_word(sbx_miss_t miss)
{
    switch (miss) {

    case SBX_MISS_EMPTY:
        return "empty";

    case SBX_MISS_STORAGE:
        return "storage";

    case SBX_MISS_FILES:
        return "files";

    case SBX_MISS_LIMITS:
        return "limits";

    case SBX_MISS_MEMORY:
        return "memory_strategy";

    case SBX_MISS_ENV:
        return "env";

    case SBX_MISS_LOST:
        return "lost";

    case SBX_MISSES:
        break;
    }

    return NULL;
}


int
sbx_pools_config_ok(const sbx_pools_config_t *config)
{
    size_t                    used;
    uint32_t                  i;
    const sbx_pool_config_t  *pool;

    if (config->count > SBX_POOLS_MAX
        || config->strings_size > SBX_POOL_STRINGS)
    {
        return 0;
    }

    used = 0;

    for (i = 0; i < config->count; i++) {
        pool = &config->pools[i];

        if (pool->template[0] == '\0'
            || memchr(pool->template, '\0', sizeof(pool->template)) == NULL
            || pool->sessions == 0
            || pool->sessions > SBX_POOL_SESSIONS_MAX
            || !sbx_pool_names_ok(pool->kernels)
            || pool->env_size > config->strings_size - used
            || !sbx_pool_strings_ok(config->strings + used, pool->env_size))
        {
            return 0;
        }

        used += pool->env_size;

        if (pool->preload_size > config->strings_size - used
            || !sbx_pool_strings_ok(config->strings + used,
                                    pool->preload_size))
        {
            return 0;
        }

        used += pool->preload_size;
    }

    return used == config->strings_size;
}


/* They end with an empty one. */

static int
sbx_pool_names_ok(const char *names)
{
    size_t  i, len;

    for (i = 0; i < SBX_POOL_KERNELS; i += len + 1) {
        len = strnlen(names + i, SBX_POOL_KERNELS - i);

        if (len == 0) {
            return 1;
        }
    }

    return 0;
}


static int
sbx_pool_strings_ok(const char *strings, size_t size)
{
    return size == 0 || strings[size - 1] == '\0';
}
