/*
 * The quotas that the admin API has set, by name.  A page is those above a
 * name, in the order of names, so that what comes and goes between two pages
 * neither repeats nor hides others.
 */

#include "broker.h"

#include <errno.h>
#include <string.h>


static int
sbx_quota_order(const char *tenant, const char *user,
    const sbx_account_t *account)
{
    int  rc;

    rc = strcmp(tenant, account->tenant);

    return rc != 0 ? rc : strcmp(user, account->user);
}


static int
sbx_quota_compare(const void *one, const void *two)
{
    const sbx_account_t  *a;

    a = *(sbx_account_t *const *) one;

    return sbx_quota_order(a->tenant, a->user,
                           *(sbx_account_t *const *) two);
}


/* How many there are; the caller frees them. */

static int
sbx_quota_collect(const sbx_broker_t *b, const char *tenant,
    const sbx_quota_list_t *ask, sbx_account_t ***found)
{
    int             n;
    unsigned        i;
    sbx_account_t  *a;

    *found = calloc(b->quotas.nlive + 1, sizeof(sbx_account_t *));

    if (*found == NULL) {
        return -1;
    }

    n = 0;

    for (i = 0; i < SBX_ACCOUNT_BUCKETS; i++) {
        for (a = b->quotas.buckets[i]; a != NULL; a = a->next) {

            if (a->is_live
                && (tenant[0] == '\0' || strcmp(tenant, a->tenant) == 0)
                && sbx_quota_order(ask->tenant, ask->user, a) < 0)
            {
                (*found)[n++] = a;
            }
        }
    }

    qsort(*found, (size_t) n, sizeof(sbx_account_t *), sbx_quota_compare);

    return n;
}


void
sbx_quota_tell(sbx_broker_t *b, const char *tenant, const char *user,
    sbx_f_quota_t *quota)
{
    sbx_scope_t           scope;
    const sbx_account_t  *account;

    memset(quota, 0, sizeof(sbx_f_quota_t));
    (void) sbx_copy_string(quota->tenant, sizeof(quota->tenant), tenant,
                           strlen(tenant));
    (void) sbx_copy_string(quota->user, sizeof(quota->user), user,
                           strlen(user));
    sbx_quota_clear(&quota->override);

    scope = user[0] != '\0' ? SBX_SCOPE_USER : SBX_SCOPE_ORGANIZATION;
    sbx_quota_limits(b, scope, tenant, user, 1, &quota->limits);
    sbx_quota_limits(b, scope, tenant, user, 0, &quota->configured);

    account = sbx_quota_account(b, tenant, user, 0);

    if (account == NULL) {
        return;
    }

    quota->used = account->used;

    if (account->is_live) {
        quota->live = 1;
        quota->override = account->live;
        quota->changed = account->changed;
        memcpy(quota->by, account->by, sizeof(quota->by));
    }
}


void
sbx_quota_list(sbx_broker_t *b, sbx_call_out_t *call, const void *body)
{
    int                i, n;
    sbx_error_t        e;
    sbx_f_end_t        end;
    sbx_f_quota_t      quota;
    sbx_account_t    **found;
    sbx_quota_list_t   ask;

    memcpy(&ask, body, sizeof(sbx_quota_list_t));
    n = sbx_quota_collect(b, call->head.tenant, &ask, &found);

    if (n == -1) {
        (void) sbx_error(&e, ENOMEM, SBX_E_UNAVAILABLE, "out of memory");
        sbx_call_error(call, &e);
        return;
    }

    memset(&end, 0, sizeof(sbx_f_end_t));

    for (i = 0; i < n; i++) {
        if (i == SBX_QUOTA_PAGE || (uint32_t) i == ask.limit) {
            end.next = 1;
            break;
        }

        sbx_quota_tell(b, found[i]->tenant, found[i]->user, &quota);
        (void) sbx_call_frame(call, SBX_F_QUOTA, &quota,
                              sizeof(sbx_f_quota_t), NULL, 0);
    }

    free(found);

    if (!call->closed) {
        sbx_call_end(call, &end);
    }
}
