/*
 * The table of contexts: which there are, which one a call is about, and who
 * waits for it.  Contexts know nothing of each other, but for how many there
 * may be.
 */

#include "init_code.h"

#include <stdio.h>
#include <string.h>
#include <sys/random.h>


#define SBX_CODE_ID_RANDOM   20


static sbx_code_context_t *sbx_code_context_find(const char *id);
static sbx_code_context_t *sbx_code_context_new(const char *id,
    unsigned number, const char *cwd, sbx_error_t *e);
static int sbx_code_language(const char *name, sbx_language_t *language,
    sbx_error_t *e);
static sbx_code_context_t *sbx_code_context_make(sbx_code_call_t *call,
    const char *id, int number, const char *cwd, sbx_error_t *e);
static int sbx_code_id(char *id, sbx_error_t *e);


static sbx_code_context_t  sbx_code_contexts[SBX_CODE_SLOTS];
static unsigned            sbx_code_contexts_end;


sbx_code_context_t *
sbx_code_context_each(sbx_code_context_t *previous)
{
    unsigned  i;

    for (i = previous == NULL ? 0 : previous->place + 1;
         i < sbx_code_contexts_end;
         i++)
    {
        if (sbx_code_contexts[i].used) {
            return &sbx_code_contexts[i];
        }
    }

    return NULL;
}


static sbx_code_context_t *
sbx_code_context_find(const char *id)
{
    sbx_code_context_t  *context;

    for (context = sbx_code_context_each(NULL);
         context != NULL;
         context = sbx_code_context_each(context))
    {
        if (!context->deleted && strcmp(context->id, id) == 0) {
            break;
        }
    }

    return context;
}


sbx_code_context_t *
sbx_code_context_of(sbx_code_call_t *call, const char *id,
    const char *language, const char *cwd, sbx_error_t *e)
{
    int                  number;
    sbx_language_t       l;
    sbx_code_context_t  *context;

    number = -1;

    if (language[0] != '\0' || id[0] == '\0') {
        number = sbx_code_language(language[0] != '\0' ? language : "python",
                                   &l, e);

        if (number == -1) {
            return NULL;
        }

        if (call->ask.verb == SBX_CODE_CREATE) {
            return sbx_code_context_make(call, NULL, number, cwd, e);
        }
    }

    context = sbx_code_context_find(id[0] != '\0' ? id : l.name);

    if (context != NULL) {
        if (number != -1 && context->number != (unsigned) number) {
            (void) sbx_error(e, 0, SBX_E_INVALID,
                             "/context_id: the context \"%s\" is of the "
                             "language \"%s\", not \"%s\"", context->id,
                             context->language.name, language);
            return NULL;
        }

        return context;
    }

    /* the default one of each language is made when it is first used */

    if (id[0] != '\0' && number == -1) {
        number = sbx_language_find(sbx_init.languages,
                                   sbx_init.config->languages_size, id,
                                   strlen(id), &l);
    }

    if (call->ask.verb != SBX_CODE_RUN || number == -1
        || (id[0] != '\0' && strcmp(id, l.name) != 0))
    {
        (void) sbx_error(e, 0, SBX_E_CONTEXT, "there is no context \"%s\"",
                         id);
        return NULL;
    }

    return sbx_code_context_make(call, l.name, number, "", e);
}


sbx_code_context_t *
sbx_code_context_default(unsigned number)
{
    sbx_language_t       l;
    sbx_code_context_t  *context;

    if (sbx_language_get(sbx_init.languages, sbx_init.config->languages_size,
                         number, &l)
        != 0)
    {
        return NULL;
    }

    context = sbx_code_context_find(l.name);

    return context != NULL ? context
                           : sbx_code_context_new(l.name, number, "", NULL);
}


static int
sbx_code_language(const char *name, sbx_language_t *language, sbx_error_t *e)
{
    int             number, n;
    char            names[160];
    unsigned        i;
    sbx_language_t  other;

    number = sbx_language_find(sbx_init.languages,
                               sbx_init.config->languages_size, name,
                               strlen(name), language);

    if (number != -1) {
        return number;
    }

    n = 0;
    names[0] = '\0';

    for (i = 0;
         n < (int) sizeof(names)
         && sbx_language_get(sbx_init.languages,
                             sbx_init.config->languages_size, i, &other)
            == 0;
         i++)
    {
        n += snprintf(names + n, sizeof(names) - (size_t) n, "%s%s",
                      i == 0 ? "" : ", ", other.name);
    }

    return sbx_error(e, 0, SBX_E_INVALID,
                     "/language: must be %s%s",
                     names[0] != '\0' ? "one of " : "one that is there, and "
                     "this machine has none", names);
}


/* Where there may be another; a call that is over is answered. */

static sbx_code_context_t *
sbx_code_context_make(sbx_code_call_t *call, const char *id, int number,
    const char *cwd, sbx_error_t *e)
{
    char                 made[SBX_CONTEXT_MAX + 1];
    unsigned             n;
    sbx_code_context_t  *context;

    n = 0;

    for (context = sbx_code_context_each(NULL);
         context != NULL;
         context = sbx_code_context_each(context))
    {
        n += !context->deleted;
    }

    if (n >= SBX_CONTEXTS_MAX) {
        sbx_code_quota(call, "contexts", SBX_CONTEXTS_MAX,
                       "the session has as many contexts as it may");
        return NULL;
    }

    if (cwd[0] != '/'
        && strlen(cwd) + strlen(sbx_init.config->workspace) + 2
           > SBX_PATH_MAX)
    {
        (void) sbx_error(e, 0, SBX_E_PATH,
                         "the working directory is too long");
        return NULL;
    }

    if (id == NULL && sbx_code_id(made, e) != 0) {
        return NULL;
    }

    return sbx_code_context_new(id != NULL ? id : made, (unsigned) number,
                                cwd, e);
}


static sbx_code_context_t *
sbx_code_context_new(const char *id, unsigned number, const char *cwd,
    sbx_error_t *e)
{
    unsigned             i;
    sbx_code_context_t  *context;

    for (i = 0; i < SBX_CODE_SLOTS && sbx_code_contexts[i].used; i++) {
        /* void */
    }

    if (i == SBX_CODE_SLOTS) {
        (void) sbx_error(e, 0, SBX_E_UNAVAILABLE,
                         "too many contexts are being ended");
        return NULL;
    }

    context = &sbx_code_contexts[i];
    memset(context, 0, sizeof(sbx_code_context_t));
    context->place = i;
    context->number = number;
    context->cwd = strdup(cwd);
    (void) snprintf(context->id, sizeof(context->id), "%s", id);

    if (context->cwd == NULL
        || sbx_language_get(sbx_init.languages,
                            sbx_init.config->languages_size, number,
                            &context->language)
           != 0)
    {
        free(context->cwd);
        (void) sbx_error(e, 0, SBX_E_UNAVAILABLE, "out of memory");
        return NULL;
    }

    sbx_code_pump_open(context);
    context->used = 1;

    if (i >= sbx_code_contexts_end) {
        sbx_code_contexts_end = i + 1;
    }

    return context;
}


static int
sbx_code_id(char *id, sbx_error_t *e)
{
    size_t   i;
    uint8_t  bytes[SBX_CODE_ID_RANDOM];

    static const char  letters[] = "abcdefghijklmnopqrstuvwxyz0123456789";

    if (getrandom(bytes, sizeof(bytes), 0) != sizeof(bytes)) {
        return sbx_error(e, 0, SBX_E_INTERNAL, "no random bytes");
    }

    id[0] = 'c';

    for (i = 0; i < sizeof(bytes); i++) {
        id[i + 1] = letters[bytes[i] % (sizeof(letters) - 1)];
    }

    id[i + 1] = '\0';

    return 0;
}


void
sbx_code_queue(sbx_code_context_t *context, sbx_code_call_t *call)
{
    sbx_code_call_t  **last;

    for (last = &context->queue; *last != NULL; last = &(*last)->next) {
        /* void */
    }

    call->next = NULL;
    *last = call;
}


void
sbx_code_unqueue(sbx_code_context_t *context, sbx_code_call_t *call)
{
    sbx_code_call_t  **p;

    for (p = &context->queue; *p != NULL; p = &(*p)->next) {
        if (*p == call) {
            *p = call->next;
            call->next = NULL;
            return;
        }
    }
}


void
sbx_code_wait(sbx_code_context_t *context, sbx_code_call_t *call)
{
    call->next = context->waiters;
    context->waiters = call;
}


void
sbx_code_unwait(sbx_code_context_t *context, sbx_code_call_t *call)
{
    sbx_code_call_t  **p;

    for (p = &context->waiters; *p != NULL; p = &(*p)->next) {
        if (*p == call) {
            *p = call->next;
            call->next = NULL;
            return;
        }
    }
}


unsigned
sbx_code_waiting(const sbx_code_context_t *context)
{
    unsigned          n;
    sbx_code_call_t  *call;

    for (n = 0, call = context->queue; call != NULL; call = call->next) {
        n++;
    }

    return n;
}


void
sbx_code_free(sbx_code_context_t *context)
{
    unsigned          i;
    sbx_code_call_t  *call;

    while (context->waiters != NULL) {
        call = context->waiters;
        context->waiters = call->next;
        call->next = NULL;
        sbx_code_end(call);
    }

    for (i = 0; i < 2; i++) {
        free(context->kept[i].data);
    }

    sbx_code_pump_close(context);
    free(context->cwd);
    free(context->preload);
    context->used = 0;
}
