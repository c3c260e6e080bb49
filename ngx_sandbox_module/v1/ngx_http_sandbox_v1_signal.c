#include "ngx_http_sandbox_v1_exec.h"


/* The signals of Linux by number; what is beyond is a real-time one. */

static const char *const  ngx_http_sandbox_v1_signals[] = {
    NULL, "SIGHUP", "SIGINT", "SIGQUIT", "SIGILL", "SIGTRAP", "SIGABRT",
    "SIGBUS", "SIGFPE", "SIGKILL", "SIGUSR1", "SIGSEGV", "SIGUSR2",
    "SIGPIPE", "SIGALRM", "SIGTERM", "SIGSTKFLT", "SIGCHLD", "SIGCONT",
    "SIGSTOP", "SIGTSTP", "SIGTTIN", "SIGTTOU", "SIGURG", "SIGXCPU",
    "SIGXFSZ", "SIGVTALRM", "SIGPROF", "SIGWINCH", "SIGIO", "SIGPWR",
    "SIGSYS"
};

static const struct {
    const char    *name;
    int32_t        number;
} ngx_http_sandbox_v1_signal_names[] = {
    { "SIGIOT", 6 },
    { "SIGCLD", 17 },
    { "SIGPOLL", 29 },
    { NULL, 0 }
};


/* "+3" and "-3" after a real-time signal's name; -1 for anything else. */

static int32_t
ngx_http_sandbox_v1_signal_offset(const char *p, size_t len, char sign)
{
    ngx_int_t  n;

    if (len == 0) {
        return 0;
    }

    if (p[0] != sign || len > 3) {
        return -1;
    }

    n = ngx_atoi((u_char *) p + 1, len - 1);

    return (n == NGX_ERROR || n > SIGRTMAX - SIGRTMIN) ? -1 : (int32_t) n;
}


int32_t
ngx_http_sandbox_v1_signal_number(const char *name, size_t len)
{
    size_t      i;
    int32_t     n;

    static const size_t  real = sizeof("SIGRTMIN") - 1;

    for (i = 1; i < sbx_nelts(ngx_http_sandbox_v1_signals); i++) {
        if (ngx_strlen(ngx_http_sandbox_v1_signals[i]) == len
            && ngx_memcmp(ngx_http_sandbox_v1_signals[i], name, len) == 0)
        {
            return (int32_t) i;
        }
    }

    for (i = 0; ngx_http_sandbox_v1_signal_names[i].name != NULL; i++) {
        if (ngx_strlen(ngx_http_sandbox_v1_signal_names[i].name) == len
            && ngx_memcmp(ngx_http_sandbox_v1_signal_names[i].name, name, len)
               == 0)
        {
            return ngx_http_sandbox_v1_signal_names[i].number;
        }
    }

    if (len < real) {
        return 0;
    }

    if (ngx_memcmp(name, "SIGRTMIN", real) == 0) {
        n = ngx_http_sandbox_v1_signal_offset(name + real, len - real, '+');
        return (n < 0) ? 0 : SIGRTMIN + n;
    }

    if (ngx_memcmp(name, "SIGRTMAX", real) == 0) {
        n = ngx_http_sandbox_v1_signal_offset(name + real, len - real, '-');
        return (n < 0) ? 0 : SIGRTMAX - n;
    }

    return 0;
}


void
ngx_http_sandbox_v1_signal_json(ngx_http_sandbox_json_t *j, ngx_int_t n)
{
    u_char  name[sizeof("SIGRTMIN+") + NGX_INT_T_LEN];

    if (n == 0) {
        ngx_http_sandbox_json_raw(j, "null");

    } else if (n < (ngx_int_t) sbx_nelts(ngx_http_sandbox_v1_signals)) {
        ngx_http_sandbox_json_cstring(j, ngx_http_sandbox_v1_signals[n]);

    } else {

        /* below SIGRTMIN are two of the C library's own, without names */

        *ngx_sprintf(name, (n < SIGRTMIN) ? "SIG%i"
                           : (n == SIGRTMIN) ? "SIGRTMIN" : "SIGRTMIN+%i",
                     (n < SIGRTMIN) ? n : n - SIGRTMIN) = '\0';
        ngx_http_sandbox_json_cstring(j, (char *) name);
    }
}


/* A name or a number: the table has no type for both. */

int
ngx_http_sandbox_v1_signal_bind(ngx_pool_t *pool, const ngx_str_t *text,
    ngx_http_sandbox_v1_signal_t *signal, sbx_error_t *e)
{
    sbx_json_alloc_t  alloc;

    static const char  pointer[] = "/signal:";

    #define SIGNAL(field)  offsetof(ngx_http_sandbox_v1_signal_t, field)

    static const sbx_json_field_t  names[] = {
        { .name = "type", .type = SBX_JSON_STRING, .offset = SIGNAL(type) },
        { .name = "signal", .type = SBX_JSON_STRING, .required = 1,
          .offset = SIGNAL(name) },
        { .name = NULL }
    };

    static const sbx_json_field_t  numbers[] = {
        { .name = "type", .type = SBX_JSON_STRING, .offset = SIGNAL(type) },
        { .name = "signal", .type = SBX_JSON_COUNT, .required = 1,
          .min = 1, .max = 64, .offset = SIGNAL(number) },
        { .name = NULL }
    };

    ngx_memzero(signal, sizeof(ngx_http_sandbox_v1_signal_t));
    alloc = ngx_http_sandbox_op_allocator(pool);

    if (sbx_json_bind(text->data, text->len, names, signal, &alloc, e) == 0) {
        signal->number = (uint64_t) ngx_http_sandbox_v1_signal_number(
                                       signal->name.data, signal->name.len);

        if (signal->number != 0) {
            return 0;
        }

    } else if (ngx_strncmp(e->text, pointer, sizeof(pointer) - 1) != 0) {
        return -1;

    } else if (sbx_json_bind(text->data, text->len, numbers, signal, &alloc,
                             e)
               == 0)
    {
        return 0;

    } else if (ngx_strncmp(e->text, pointer, sizeof(pointer) - 1) != 0) {
        return -1;
    }

    return sbx_error(e, 0, SBX_E_INVALID,
                     "/signal: must be a signal's name, as \"SIGTERM\" or "
                     "\"SIGRTMIN+1\", or a number from 1 to 64");
}
