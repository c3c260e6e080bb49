#include "sandbox_error.h"

#include <stdarg.h>
#include <stdio.h>


int
sbx_error(sbx_error_t *e, int err, sbx_code_t code, const char *fmt, ...)
{
    va_list  args;

    if (e == NULL) {
        return -1;
    }

    e->code = code;
    e->err = err;

    va_start(args, fmt);
    (void) vsnprintf(e->text, sizeof(e->text), fmt, args);
    va_end(args);

    return -1;
}
