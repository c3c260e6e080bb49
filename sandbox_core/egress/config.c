/*
 * What the operator says, read whole before any of it holds.  The broker opens
 * the files; what is in them is read here, where there is no file system.
 */

#include "inspect.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>


#define SBX_EG_TABLE         0         /* of the descriptors */
#define SBX_EG_RESOLV        1
#define SBX_EG_FILES         2
#define SBX_EG_RESOLV_MAX    65536
#define SBX_EG_CA_MAX        (1024 * 1024)
#define SBX_EG_TEMPLATES_MAX 4096


/* What is being read. */
typedef struct {
    sbx_eg_policy_t   **policies;
    size_t              npolicies;
    char               *table;
    size_t              size;
    char               *resolv;
    size_t              resolv_size;
    char               *ca;
    size_t              ca_size;
    const int          *fds;
    unsigned            nfds;
    unsigned            used;
    char               *name;
} sbx_eg_reading_t;


static int sbx_eg_config_read(sbx_eg_reading_t *r,
    const sbx_egress_task_t *task, sbx_error_t *e);
static int sbx_eg_config_rows(sbx_eg_reading_t *r, sbx_error_t *e);
static int sbx_eg_config_row(sbx_eg_reading_t *r,
    const sbx_egress_row_t *row, sbx_error_t *e);
static sbx_eg_policy_t *sbx_eg_config_policy(sbx_eg_reading_t *r,
    const char *template, sbx_error_t *e);
static int sbx_eg_config_rule(sbx_eg_policy_t *policy,
    const sbx_egress_row_t *row, sbx_error_t *e);
static int sbx_eg_config_header(sbx_eg_reading_t *r, sbx_eg_policy_t *policy,
    const sbx_egress_row_t *row, sbx_error_t *e);
static char *sbx_eg_config_file(int fd, size_t max, size_t exact,
    size_t *size, sbx_error_t *e);
static char *sbx_eg_config_next(sbx_eg_reading_t *r, const char *path,
    size_t max, size_t *size, sbx_error_t *e);
static void sbx_eg_config_take(sbx_egress_t *eg, sbx_eg_reading_t *r);
static void sbx_eg_config_done(sbx_eg_reading_t *r);


int
sbx_eg_config(sbx_egress_t *eg, const sbx_egress_task_t *task, int *fds,
    unsigned nfds, char name[SBX_NETWORK_HOST_MAX + 3], sbx_error_t *e)
{
    int               rc;
    sbx_eg_reading_t  r;

    memset(&r, 0, sizeof(r));
    r.fds = fds;
    r.nfds = nfds;
    r.used = SBX_EG_FILES;
    r.name = name;
    name[0] = '\0';

    rc = sbx_eg_config_read(&r, task, e);

    if (rc == 0) {
        rc = sbx_eg_config_rows(&r, e);
    }

    if (rc == 0) {
        rc = sbx_eg_tls_trust(eg, r.ca, r.ca_size, e);
    }

    if (rc == 0) {
        rc = sbx_eg_dns_configure(eg, r.table, r.size, r.resolv,
                                  r.resolv_size, e);
    }

    if (rc == 0) {
        sbx_eg_config_take(eg, &r);
    }

    sbx_eg_config_done(&r);

    return rc;
}


static int
sbx_eg_config_read(sbx_eg_reading_t *r, const sbx_egress_task_t *task,
    sbx_error_t *e)
{
    if (r->nfds < SBX_EG_FILES) {
        return sbx_error(e, 0, SBX_E_INVALID, "a table and a resolv.conf are "
                         "needed");
    }

    r->table = sbx_eg_config_file(r->fds[SBX_EG_TABLE], SBX_EGRESS_SIZE,
                                  task->size, &r->size, e);

    if (r->table == NULL) {
        return -1;
    }

    r->resolv = sbx_eg_config_file(r->fds[SBX_EG_RESOLV], SBX_EG_RESOLV_MAX,
                                   task->extra, &r->resolv_size, e);

    if (r->resolv == NULL) {
        return -1;
    }

    return sbx_egress_table_check(r->table, r->size, e);
}


static int
sbx_eg_config_rows(sbx_eg_reading_t *r, sbx_error_t *e)
{
    int               rc;
    sbx_egress_row_t  row;

    memset(&row, 0, sizeof(row));

    for ( ;; ) {
        rc = sbx_egress_row_next(r->table, r->size, &row);

        if (rc == 0) {
            break;
        }

        if (rc == -1) {
            return sbx_error(e, 0, SBX_E_INVALID, "the table is malformed");
        }

        if (sbx_eg_config_row(r, &row, e) != 0) {
            return -1;
        }
    }

    if (r->used != r->nfds) {
        return sbx_error(e, 0, SBX_E_INVALID, "there are more files than "
                         "rows that name one");
    }

    return 0;
}


static int
sbx_eg_config_row(sbx_eg_reading_t *r, const sbx_egress_row_t *row,
    sbx_error_t *e)
{
    sbx_eg_policy_t  *policy;

    switch (row->type) {

    case SBX_EGRESS_RESOLVER:
        return 0;

    case SBX_EGRESS_CA:
        if (r->ca != NULL) {
            return sbx_error(e, 0, SBX_E_INVALID, "one file of certificates "
                             "is taken");
        }

        r->ca = sbx_eg_config_next(r, row->text[0], SBX_EG_CA_MAX,
                                   &r->ca_size, e);

        return r->ca == NULL ? -1 : 0;

    case SBX_EGRESS_TEMPLATE:
        return sbx_eg_config_policy(r, row->text[0], e) == NULL ? -1 : 0;

    default:
        break;
    }

    /* before the first template: of all that have no part of their own */

    policy = r->npolicies == 0 ? sbx_eg_config_policy(r, "", e)
                               : r->policies[r->npolicies - 1];

    if (policy == NULL) {
        return -1;
    }

    switch (row->type) {

    case SBX_EGRESS_ALLOW:
    case SBX_EGRESS_DENY:
        return sbx_eg_config_rule(policy, row, e);

    case SBX_EGRESS_PRIVATE:
        policy->private = 1;
        return 0;

    case SBX_EGRESS_HEADER:
    case SBX_EGRESS_TLS_HEADER:
        return sbx_eg_config_header(r, policy, row, e);

    default:
        return sbx_error(e, 0, SBX_E_INVALID, "the table has a row of an "
                         "unknown kind");
    }
}


static sbx_eg_policy_t *
sbx_eg_config_policy(sbx_eg_reading_t *r, const char *template,
    sbx_error_t *e)
{
    sbx_eg_policy_t  *policy, **policies;

    if (r->npolicies == SBX_EG_TEMPLATES_MAX) {
        (void) sbx_error(e, 0, SBX_E_INVALID, "there are too many templates");
        return NULL;
    }

    policies = realloc(r->policies,
                       (r->npolicies + 1) * sizeof(sbx_eg_policy_t *));

    if (policies == NULL) {
        (void) sbx_error(e, ENOMEM, SBX_E_INTERNAL, "out of memory");
        return NULL;
    }

    r->policies = policies;
    policy = calloc(1, sizeof(sbx_eg_policy_t));

    if (policy == NULL) {
        (void) sbx_error(e, ENOMEM, SBX_E_INTERNAL, "out of memory");
        return NULL;
    }

    policy->users = 1;
    r->policies[r->npolicies++] = policy;

    if (sbx_copy_string(policy->template, sizeof(policy->template), template,
                        strlen(template))
        != 0)
    {
        (void) sbx_error(e, 0, SBX_E_INVALID, "a template's name is too long");
        return NULL;
    }

    return policy;
}


static int
sbx_eg_config_rule(sbx_eg_policy_t *policy, const sbx_egress_row_t *row,
    sbx_error_t *e)
{
    sbx_network_rule_t   rule, *rules;
    sbx_network_list_t  *list;

    if (sbx_network_rule_parse(row->text[0], strlen(row->text[0]), &rule, e)
        != 0)
    {
        return -1;
    }

    rule.deny = row->type == SBX_EGRESS_DENY;
    list = &policy->rules;

    /* the table's size bounds them */

    rules = realloc(list->rules, (list->n + 1) * sizeof(sbx_network_rule_t));

    if (rules == NULL) {
        return sbx_error(e, ENOMEM, SBX_E_INTERNAL, "out of memory");
    }

    list->rules = rules;
    list->rules[list->n++] = rule;
    list->allows |= !rule.deny;

    return 0;
}


static int
sbx_eg_config_header(sbx_eg_reading_t *r, sbx_eg_policy_t *policy,
    const sbx_egress_row_t *row, sbx_error_t *e)
{
    size_t            i;
    sbx_eg_header_t  *header, *headers;

    headers = calloc(policy->nheaders + 1, sizeof(sbx_eg_header_t));

    if (headers == NULL) {
        return sbx_error(e, ENOMEM, SBX_E_INTERNAL, "out of memory");
    }

    if (policy->nheaders != 0) {
        memcpy(headers, policy->headers,
               policy->nheaders * sizeof(sbx_eg_header_t));
        free(policy->headers);
    }

    policy->headers = headers;
    header = &headers[policy->nheaders++];
    header->tls = row->type == SBX_EGRESS_TLS_HEADER;

    if (!sbx_network_host_ok(row->text[0], strlen(row->text[0]),
                             header->host)
        || sbx_copy_string(header->name, sizeof(header->name), row->text[1],
                           strlen(row->text[1]))
           != 0)
    {
        return sbx_error(e, 0, SBX_E_INVALID, "a header's host or name is "
                         "none");
    }

    header->value = sbx_eg_config_next(r, row->text[2],
                                       SBX_EGRESS_VALUE_MAX + 1,
                                       &header->size, e);

    if (header->value == NULL) {
        return -1;
    }

    if (header->size != 0 && header->value[header->size - 1] == '\n') {
        header->value[--header->size] = '\0';
    }

    for (i = 0; i < header->size; i++) {
        if ((unsigned char) header->value[i] < ' ' && header->value[i] != '\t')
        {
            break;
        }
    }

    if (header->size == 0 || i != header->size
        || header->size > SBX_EGRESS_VALUE_MAX)
    {
        return sbx_error(e, 0, SBX_E_INVALID, "a header's value is one line "
                         "of %d bytes at most", SBX_EGRESS_VALUE_MAX);
    }

    r->name[0] = '\0';

    return 0;
}


/* The next file of a row; r->name is its path until it is found good. */

static char *
sbx_eg_config_next(sbx_eg_reading_t *r, const char *path, size_t max,
    size_t *size, sbx_error_t *e)
{
    char    *data;
    size_t   i;

    (void) snprintf(r->name, SBX_NETWORK_HOST_MAX + 3, "%s", path);

    for (i = 0; r->name[i] != '\0'; i++) {
        if (r->name[i] <= ' ' || (unsigned char) r->name[i] >= 0x7f) {
            r->name[i] = '?';
        }
    }

    if (r->used >= r->nfds) {
        (void) sbx_error(e, 0, SBX_E_INVALID, "a file is missing");
        return NULL;
    }

    data = sbx_eg_config_file(r->fds[r->used], max, SIZE_MAX, size, e);
    r->used++;

    if (data != NULL && max == SBX_EG_CA_MAX) {
        r->name[0] = '\0';
    }

    return data;
}


/* exact: the size that it must have, or SIZE_MAX.  A NUL follows. */

static char *
sbx_eg_config_file(int fd, size_t max, size_t exact, size_t *size,
    sbx_error_t *e)
{
    char         *data;
    size_t        n;
    ssize_t       got;
    struct stat   st;

    if (fstat(fd, &st) == -1 || !S_ISREG(st.st_mode)) {
        (void) sbx_error(e, 0, SBX_E_INVALID, "a file is no regular file");
        return NULL;
    }

    if (st.st_size < 0 || (uint64_t) st.st_size > max
        || (exact != SIZE_MAX && (uint64_t) st.st_size != exact))
    {
        (void) sbx_error(e, 0, SBX_E_INVALID, "a file has the wrong size");
        return NULL;
    }

    data = calloc(1, (size_t) st.st_size + 1);

    if (data == NULL) {
        (void) sbx_error(e, errno, SBX_E_INTERNAL, "out of memory");
        return NULL;
    }

    for (n = 0; n < (size_t) st.st_size; n += (size_t) got) {
        got = pread(fd, data + n, (size_t) st.st_size - n, (off_t) n);

        if (got == 0) {
            break;
        }

        if (got == -1) {
            (void) sbx_error(e, errno, SBX_E_INTERNAL, "pread() failed");
            explicit_bzero(data, (size_t) st.st_size);
            free(data);
            return NULL;
        }
    }

    *size = n;

    return data;
}


/* From here on it holds: every session is judged again. */

static void
sbx_eg_config_take(sbx_egress_t *eg, sbx_eg_reading_t *r)
{
    size_t             i, n;
    sbx_eg_policy_t  **policies;
    sbx_eg_session_t  *s;

    policies = eg->policies;
    n = eg->npolicies;
    eg->policies = r->policies;
    eg->npolicies = r->npolicies;
    r->policies = policies;
    r->npolicies = n;

    for (i = 0; i < SBX_EG_BUCKETS; i++) {
        for (s = eg->buckets[i]; s != NULL; s = s->next) {
            if (s->policy != NULL) {
                sbx_eg_policy_release(s->policy);
            }

            s->policy = sbx_eg_policy_of(eg, s->template);

            if (s->policy != NULL) {
                s->policy->users++;
            }

            sbx_eg_conn_review(s);
        }
    }
}


static void
sbx_eg_config_done(sbx_eg_reading_t *r)
{
    size_t  i;

    for (i = 0; i < r->npolicies; i++) {
        sbx_eg_policy_release(r->policies[i]);
    }

    free(r->policies);
    free(r->table);
    free(r->resolv);
    free(r->ca);
}


sbx_eg_policy_t *
sbx_eg_policy_of(sbx_egress_t *eg, const char *template)
{
    size_t            i;
    sbx_eg_policy_t  *others;

    others = NULL;

    for (i = 0; i < eg->npolicies; i++) {
        if (eg->policies[i]->template[0] == '\0') {
            others = eg->policies[i];

        } else if (strcmp(eg->policies[i]->template, template) == 0) {
            return eg->policies[i];
        }
    }

    return others;
}


void
sbx_eg_policy_release(sbx_eg_policy_t *policy)
{
    size_t  i;

    if (--policy->users != 0) {
        return;
    }

    for (i = 0; i < policy->nheaders; i++) {
        if (policy->headers[i].value != NULL) {
            explicit_bzero(policy->headers[i].value, policy->headers[i].size);
            free(policy->headers[i].value);
        }
    }

    free(policy->headers);
    sbx_network_list_free(&policy->rules);
    free(policy);
}
