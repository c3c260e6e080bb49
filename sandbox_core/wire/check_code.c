/*
 * Checks of the frames of calls that run code.
 */

#include "wire.h"

#include <string.h>


int
sbx_wire_check_code(const uint8_t *p, size_t n, sbx_f_code_t *code,
    const char **context, const char **language, const char **cwd)
{
    if (n < sizeof(sbx_f_code_t)) {
        return -1;
    }

    memcpy(code, p, sizeof(sbx_f_code_t));
    p += sizeof(sbx_f_code_t);
    n -= sizeof(sbx_f_code_t);

    if (code->context_len > SBX_CONTEXT_MAX
        || code->language_len > SBX_LANGUAGE_MAX
        || code->cwd_len >= SBX_PATH_MAX
        || n != (size_t) code->context_len + code->language_len
                + code->cwd_len
        || code->strings_size > SBX_CODE_STRINGS_MAX
        || code->code_size > code->strings_size
        || code->envc > code->strings_size - code->code_size)
    {
        return -1;
    }

    *context = (const char *) p;
    *language = *context + code->context_len;
    *cwd = *language + code->language_len;

    if ((code->context_len != 0 && !sbx_context_ok(*context,
                                                   code->context_len))
        || (code->language_len != 0 && !sbx_language_ok(*language,
                                                        code->language_len))
        || memchr(*cwd, '\0', code->cwd_len) != NULL)
    {
        return -1;
    }

    return 0;
}


int
sbx_wire_check_context(const uint8_t *p, size_t n, sbx_f_context_t *context,
    const char **id, const char **language, const char **cwd)
{
    if (n < sizeof(sbx_f_context_t)) {
        return -1;
    }

    memcpy(context, p, sizeof(sbx_f_context_t));
    p += sizeof(sbx_f_context_t);
    n -= sizeof(sbx_f_context_t);

    if (context->state > SBX_CONTEXT_RUNNING
        || context->id_len > SBX_CONTEXT_MAX
        || context->language_len > SBX_LANGUAGE_MAX
        || context->cwd_len >= SBX_PATH_MAX
        || n != (size_t) context->id_len + context->language_len
                + context->cwd_len)
    {
        return -1;
    }

    *id = (const char *) p;
    *language = *id + context->id_len;
    *cwd = *language + context->language_len;

    return sbx_context_ok(*id, context->id_len)
           && sbx_language_ok(*language, context->language_len)
           && memchr(*cwd, '\0', context->cwd_len) == NULL ? 0 : -1;
}


int
sbx_wire_check_result(const uint8_t *p, size_t n, sbx_f_result_t *result)
{
    if (n != sizeof(sbx_f_result_t)) {
        return -1;
    }

    memcpy(result, p, sizeof(sbx_f_result_t));

    return result->kind <= SBX_RESULT_ERROR && result->fields == 0 ? 0 : -1;
}


/* Names are printable, and none has a space. */

int
sbx_wire_check_field(const uint8_t *p, size_t n, sbx_f_field_t *field,
    const char **name)
{
    size_t  i;

    if (n < sizeof(sbx_f_field_t)) {
        return -1;
    }

    memcpy(field, p, sizeof(sbx_f_field_t));
    p += sizeof(sbx_f_field_t);
    n -= sizeof(sbx_f_field_t);

    if (field->name_len > SBX_FIELD_NAME_MAX || n != field->name_len
        || field->size > SBX_RESULTS_MAX
        || (n == 0 && field->size != 0))
    {
        return -1;
    }

    for (i = 0; i < n; i++) {
        if (p[i] <= ' ' || p[i] > '~') {
            return -1;
        }
    }

    *name = (const char *) p;

    return 0;
}


int
sbx_wire_check_ran(const uint8_t *p, size_t n, sbx_f_ran_t *ran)
{
    if (n != sizeof(sbx_f_ran_t)) {
        return -1;
    }

    memcpy(ran, p, sizeof(sbx_f_ran_t));

    return ran->reason < SBX_REASON_MAX && ran->signal >= 0
           && ran->signal <= 64 && ran->exit_code >= 0
           && ran->exit_code <= 255 ? 0 : -1;
}


int
sbx_context_ok(const char *s, size_t len)
{
    size_t  i;

    if (len == 0 || len > SBX_CONTEXT_MAX) {
        return 0;
    }

    for (i = 0; i < len; i++) {
        if ((s[i] < 'a' || s[i] > 'z') && (s[i] < 'A' || s[i] > 'Z')
            && (s[i] < '0' || s[i] > '9') && s[i] != '_' && s[i] != '-')
        {
            return 0;
        }
    }

    return 1;
}


int
sbx_language_ok(const char *s, size_t len)
{
    size_t  i;

    if (len == 0 || len > SBX_LANGUAGE_MAX) {
        return 0;
    }

    for (i = 0; i < len; i++) {
        if ((s[i] < 'a' || s[i] > 'z') && (s[i] < '0' || s[i] > '9')
            && s[i] != '_')
        {
            return 0;
        }
    }

    return 1;
}
