#include "wire.h"
#include "sandbox_util.h"


const char *
sbx_enforce_word(sbx_enforce_t by)
{
    static const char *const  words[] = {
        "none", "cgroup v2", "cgroup v1", "rlimit", "tmpfs",
        "project quota", "image", "poll", "filter"
    };

    return (size_t) by < sbx_nelts(words) ? words[by] : "none";
}


const char *
sbx_ended_word(unsigned ended)
{
    static const char *const  words[] = {
        NULL, "destroyed", "expired", "idle", "admin", "node_restart"
    };

    return ended < sbx_nelts(words) ? words[ended] : NULL;
}


const char *
sbx_reason_word(sbx_reason_t reason)
{
    static const char *const  words[] = {
        "exited", "signal", "timeout", "memory", "cpu_time", "cancelled",
        "disconnected", "session_ended", "not_started"
    };

    return (size_t) reason < sbx_nelts(words) ? words[reason] : NULL;
}
