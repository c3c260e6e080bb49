/*
 * What the admin API has set, in <state>/quotas: a head, then one row for
 * each organization and user that it gave a quota.  The file is written whole
 * by the threads that write records (fsync, rename), one at a time; who asked
 * for the change is answered when a file that has it is safe.  One that cannot
 * be written holds all the same, and is tried again.
 */

#include "broker.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>


#define SBX_QUOTA_MAGIC      0x51584253u      /* "SBXQ" */
#define SBX_QUOTA_VERSION    1
#define SBX_QUOTA_AGAIN      2000             /* ms */


typedef struct {
    uint32_t         magic;
    uint32_t         version;
    uint64_t         sum;             /* of everything after it */
    uint64_t         size;            /* of the whole file */
    uint32_t         count;           /* of rows */
    uint32_t         pad;
    sbx_setting_t    draining;
    sbx_setting_t    settings[SBX_SETTINGS];
} sbx_quota_head_t;

typedef struct {
    sbx_quota_row_t  row;
    int64_t          changed;
    char             by[SBX_BY_MAX + 8];
} sbx_quota_kept_t;

#define SBX_QUOTA_FILE_MAX                                                   \
    (sizeof(sbx_quota_head_t) + SBX_QUOTA_LIVE * sizeof(sbx_quota_kept_t))


static int sbx_quota_read(sbx_broker_t *b, uint8_t **data, sbx_error_t *e);
static int sbx_quota_file_ok(const uint8_t *data, size_t size);
static int sbx_quota_setting_ok(const sbx_setting_t *setting, unsigned i);
static int sbx_quota_load(sbx_broker_t *b, const uint8_t *data);
static void sbx_quota_write(sbx_broker_t *b);
static void sbx_quota_failed(sbx_broker_t *b, int err);
static void sbx_quota_again(sbx_timer_t *timer);
static void sbx_quota_fill(sbx_broker_t *b, sbx_quota_kept_t *kept);
static void sbx_quota_answer(sbx_broker_t *b, sbx_node_t *list, int err);


int
sbx_quota_open(sbx_broker_t *b, sbx_error_t *e)
{
    unsigned                i;
    sbx_quotas_t           *q;
    sbx_auto_free uint8_t  *data = NULL;

    q = &b->quotas;
    sbx_list_init(&q->saved);
    sbx_list_init(&q->waiting);
    sbx_list_init(&q->sweeps);

    for (i = 0; i < SBX_SETTINGS; i++) {
        q->settings[i].value = SBX_UNSET;
        q->settings[i].previous = SBX_UNSET;
    }

    /* names are the callers': which of them meet in a bucket is not */

    if (getrandom(&q->seed, sizeof(q->seed), 0) != sizeof(q->seed)) {
        return sbx_error(e, errno, SBX_E_INTERNAL, "getrandom() failed");
    }

    q->seed |= 1;

    if (sbx_quota_read(b, &data, e) != 0) {
        sbx_log_error(SBX_LOG_ERROR, NULL, e,
                      "quotas and settings of the admin API are lost, those "
                      "of the configuration hold");
        return 0;
    }

    if (data != NULL && sbx_quota_load(b, data) != 0) {
        return sbx_error(e, ENOMEM, SBX_E_INTERNAL, "out of memory");
    }

    return 0;
}


/* 0 and no data: there is no file. */

static int
sbx_quota_read(sbx_broker_t *b, uint8_t **data, sbx_error_t *e)
{
    size_t                  size;
    struct stat             st;
    sbx_auto_fd             fd = -1;
    sbx_auto_free uint8_t  *p = NULL;

    fd = openat(b->state, SBX_QUOTA_FILE,
                O_RDONLY|O_CLOEXEC|O_NOFOLLOW|O_NONBLOCK);

    if (fd == -1 && errno == ENOENT) {
        return 0;
    }

    if (fd == -1 || fstat(fd, &st) == -1) {
        return sbx_error(e, errno, SBX_E_INTERNAL,
                         "\"%s/%s\" cannot be read", b->options->state_dir,
                         SBX_QUOTA_FILE);
    }

    if (!S_ISREG(st.st_mode)
        || st.st_size < (off_t) sizeof(sbx_quota_head_t)
        || st.st_size > (off_t) SBX_QUOTA_FILE_MAX)
    {
        return sbx_error(e, 0, SBX_E_INTERNAL,
                         "\"%s/%s\" is of another make or cut",
                         b->options->state_dir, SBX_QUOTA_FILE);
    }

    size = (size_t) st.st_size;
    p = malloc(size);

    if (p == NULL || sbx_read_full(fd, p, size) != (ssize_t) size) {
        return sbx_error(e, errno, SBX_E_INTERNAL,
                         "\"%s/%s\" cannot be read", b->options->state_dir,
                         SBX_QUOTA_FILE);
    }

    if (!sbx_quota_file_ok(p, size)) {
        return sbx_error(e, 0, SBX_E_INTERNAL, "\"%s/%s\" is damaged",
                         b->options->state_dir, SBX_QUOTA_FILE);
    }

    *data = p;
    p = NULL;

    return 0;
}


static uint64_t
sbx_quota_sum(const uint8_t *data, size_t size)
{
    const size_t  skip = offsetof(sbx_quota_head_t, size);

    return sbx_record_sum(data + skip, size - skip, 0);
}


static int
sbx_quota_file_ok(const uint8_t *data, size_t size)
{
    uint32_t           i;
    sbx_quota_head_t   head;
    sbx_quota_kept_t   kept;

    memcpy(&head, data, sizeof(sbx_quota_head_t));

    if (head.magic != SBX_QUOTA_MAGIC || head.version != SBX_QUOTA_VERSION
        || head.size != size || head.count > SBX_QUOTA_LIVE
        || size != sizeof(sbx_quota_head_t)
                   + head.count * sizeof(sbx_quota_kept_t)
        || head.sum != sbx_quota_sum(data, size)
        || head.draining.value > 1
        || memchr(head.draining.by, '\0', sizeof(head.draining.by)) == NULL)
    {
        return 0;
    }

    for (i = 0; i < SBX_SETTINGS; i++) {
        if (!sbx_quota_setting_ok(&head.settings[i], i)) {
            return 0;
        }
    }

    for (i = 0; i < head.count; i++) {
        memcpy(&kept, data + sizeof(sbx_quota_head_t)
                      + i * sizeof(sbx_quota_kept_t),
               sizeof(sbx_quota_kept_t));

        if (!sbx_quota_row_ok(&kept.row)
            || memchr(kept.by, '\0', sizeof(kept.by)) == NULL)
        {
            return 0;
        }
    }

    return 1;
}


static int
sbx_quota_setting_ok(const sbx_setting_t *setting, unsigned i)
{
    uint64_t            max;
    const sbx_limit_t  *row;

    row = sbx_setting_row(i);
    max = row != NULL ? row->max : 1;

    return memchr(setting->by, '\0', sizeof(setting->by)) != NULL
           && (setting->value <= max || setting->value == SBX_UNSET
               || (setting->value == SBX_UNLIMITED && row != NULL));
}


static int
sbx_quota_load(sbx_broker_t *b, const uint8_t *data)
{
    uint32_t           i;
    sbx_account_t     *account;
    sbx_quota_head_t   head;
    sbx_quota_kept_t   kept;

    memcpy(&head, data, sizeof(sbx_quota_head_t));
    memcpy(b->quotas.settings, head.settings, sizeof(head.settings));
    b->quotas.draining = head.draining;
    data += sizeof(sbx_quota_head_t);

    for (i = 0; i < head.count; i++) {
        memcpy(&kept, data + i * sizeof(sbx_quota_kept_t),
               sizeof(sbx_quota_kept_t));

        account = sbx_quota_account(b, kept.row.tenant, kept.row.user, 1);

        if (account == NULL) {
            return -1;
        }

        b->quotas.nlive += !account->is_live;
        account->is_live = 1;
        account->live = kept.row.limits;
        account->changed = kept.changed;
        memcpy(account->by, kept.by, sizeof(account->by));
    }

    return 0;
}


void
sbx_quota_save(sbx_broker_t *b, sbx_call_out_t *call)
{
    sbx_call_wait(call, &b->quotas.waiting);
    b->quotas.dirty = 1;

    if (!b->quotas.saving) {
        sbx_quota_write(b);
    }
}


static void
sbx_quota_write(sbx_broker_t *b)
{
    size_t                  size;
    sbx_node_t             *node;
    sbx_quotas_t           *q;
    sbx_quota_head_t       *head;
    sbx_record_job_t       *job;
    sbx_auto_free uint8_t  *data = NULL;

    q = &b->quotas;
    q->dirty = 0;

    while (!sbx_list_empty(&q->waiting)) {
        node = q->waiting.next;
        sbx_list_remove(node);
        sbx_list_append(&q->saved, node);
    }

    size = sizeof(sbx_quota_head_t) + q->nlive * sizeof(sbx_quota_kept_t);
    data = calloc(1, size);
    job = NULL;

    if (data != NULL) {
        head = (sbx_quota_head_t *) (void *) data;
        head->magic = SBX_QUOTA_MAGIC;
        head->version = SBX_QUOTA_VERSION;
        head->size = size;
        head->count = q->nlive;
        head->draining = q->draining;
        memcpy(head->settings, q->settings, sizeof(head->settings));
        sbx_quota_fill(b, (sbx_quota_kept_t *) (void *)
                          (data + sizeof(sbx_quota_head_t)));
        head->sum = sbx_quota_sum(data, size);
        job = sbx_record_file(SBX_QUOTA_FILE, data, size, b->state);
    }

    if (job == NULL) {
        sbx_quota_failed(b, ENOMEM);
        return;
    }

    q->saving = 1;
    sbx_timer_del(&b->loop, &q->again);
    sbx_record_queue(&b->writer, job);
}


static void
sbx_quota_fill(sbx_broker_t *b, sbx_quota_kept_t *kept)
{
    unsigned        i;
    sbx_account_t  *account;

    for (i = 0; i < SBX_ACCOUNT_BUCKETS; i++) {
        for (account = b->quotas.buckets[i];
             account != NULL;
             account = account->next)
        {
            if (!account->is_live) {
                continue;
            }

            memcpy(kept->row.tenant, account->tenant,
                   sizeof(kept->row.tenant));
            memcpy(kept->row.user, account->user, sizeof(kept->row.user));
            memcpy(kept->by, account->by, sizeof(kept->by));
            kept->row.limits = account->live;
            kept->changed = account->changed;
            kept++;
        }
    }
}


void
sbx_quota_saved(sbx_broker_t *b, int err)
{
    b->quotas.saving = 0;

    if (err != 0) {
        sbx_quota_failed(b, err);

    } else {
        sbx_quota_answer(b, &b->quotas.saved, 0);
    }

    if (b->quotas.dirty) {
        sbx_quota_write(b);
    }
}


static void
sbx_quota_failed(sbx_broker_t *b, int err)
{
    sbx_quotas_t  *q;

    q = &b->quotas;

    if (!sbx_list_empty(&q->saved)) {
        sbx_log(SBX_LOG_ERROR, NULL, err,
                "what the admin API has set holds, but cannot be kept in "
                "\"%s/%s\": it is tried again", b->options->state_dir,
                SBX_QUOTA_FILE);
    }

    sbx_quota_answer(b, &q->saved, err);

    q->again.handler = sbx_quota_again;
    q->again.data = b;
    sbx_timer_set(&b->loop, &q->again, SBX_QUOTA_AGAIN);
}


static void
sbx_quota_again(sbx_timer_t *timer)
{
    sbx_broker_t  *b;

    b = timer->data;

    if (!b->quotas.saving) {
        sbx_quota_write(b);
    }
}


static void
sbx_quota_answer(sbx_broker_t *b, sbx_node_t *list, int err)
{
    sbx_call_out_t  *call;

    while (!sbx_list_empty(list)) {
        call = sbx_node_of(list->next, sbx_call_out_t, wait);
        sbx_list_remove(&call->wait);
        sbx_admin_answer(b, call, err);
    }
}


void
sbx_quota_close(sbx_broker_t *b)
{
    unsigned        i;
    sbx_account_t  *account;

    sbx_timer_del(&b->loop, &b->quotas.again);

    for (i = 0; i < SBX_ACCOUNT_BUCKETS; i++) {
        while (b->quotas.buckets[i] != NULL) {
            account = b->quotas.buckets[i];
            b->quotas.buckets[i] = account->next;
            free(account);
        }
    }
}
