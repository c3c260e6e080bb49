/*
 * What a broker finds of the one before it: a session's record, and what the
 * admin API has set.  The first byte chooses; its highest bit leaves sums,
 * magic and sizes as they are, which are put right else: nothing behind them
 * would be reached.  What is taken is written again as it was.
 */

#include "fuzz.h"

#include <fcntl.h>

static int state_open(int dir, const char *name, int flags, ...);
#define openat  state_open
#include "../../sandbox_core/broker/record.c"
#include "../../sandbox_core/broker/quota_file.c"
#undef openat

#include <sys/mman.h>


static void check_record(uint8_t *p, size_t n, int mend);
static void check_quotas(uint8_t *p, size_t n, int mend);


static int             file = -1;
static sbx_broker_t    broker;
static sbx_options_t   options;


int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t  *copy;

    if (size == 0) {
        return 0;
    }

    copy = malloc(size);

    if (copy == NULL) {
        return 0;
    }

    memcpy(copy, data + 1, size - 1);
    options.state_dir = "state";

    if (data[0] & 1) {
        check_quotas(copy, size - 1, data[0] < 0x80);

    } else {
        check_record(copy, size - 1, data[0] < 0x80);
    }

    free(copy);

    return 0;
}


/* There is one file, which has every name. */

static int
state_open(int dir, const char *name, int flags, ...)
{
    (void) dir;
    (void) name;
    (void) flags;

    return file == -1 ? -1 : fcntl(file, F_DUPFD_CLOEXEC, 3);
}


static void
state_file(const void *p, size_t n)
{
    if (file == -1) {
        file = memfd_create("state", MFD_CLOEXEC);
    }

    must(file != -1 && ftruncate(file, 0) == 0
         && pwrite(file, p, n, 0) == (ssize_t) n
         && lseek(file, 0, SEEK_SET) == 0);
}


static void
check_record(uint8_t *p, size_t n, int mend)
{
    char                *meta, *network, *env;
    sbx_error_t          e;
    sbx_record_job_t    *job;
    sbx_record_head_t    head;

    if (mend && n >= sizeof(head)) {
        memcpy(&head, p, sizeof(head));
        head.magic = SBX_RECORD_MAGIC;
        head.version = SBX_RECORD_VERSION;
        head.size = n;
        memcpy(p, &head, sizeof(head));
        head.sum = sbx_record_sum(p + offsetof(sbx_record_head_t, size),
                                  n - offsetof(sbx_record_head_t, size), 0);
        memcpy(p, &head, sizeof(head));
    }

    state_file(p, n);

    if (sbx_record_read(-1, &head, &meta, &network, &e) != 0) {
        must(e.code == SBX_E_INTERNAL && meta == NULL && network == NULL);
        return;
    }

    must(sbx_session_id_ok(head.info.id, strlen(head.info.id)));
    must((meta == NULL) == (head.meta_size == 0));
    must((network == NULL) == (head.network_size == 0));
    must(meta == NULL || meta[head.meta_size] == '\0');
    must(network == NULL || network[head.network_size] == '\0');
    must(head.meta_size <= SBX_META_MAX);

    /* an environment is not read here: it is what lies between */

    env = (char *) p + sizeof(head) + head.meta_size;
    job = sbx_record_job(&head, meta, env, network, file);
    must(job != NULL && job->size == n && memcmp(job->data, p, n) == 0);
    sbx_record_job_free(job);
    free(meta);
    free(network);
}


static void
check_quotas(uint8_t *p, size_t n, int mend)
{
    uint8_t            *data, *again;
    uint32_t            live;
    sbx_error_t         e;
    sbx_broker_t       *b;
    sbx_record_job_t   *job;
    sbx_quota_head_t    head;

    if (mend && n >= sizeof(head)) {
        memcpy(&head, p, sizeof(head));
        head.magic = SBX_QUOTA_MAGIC;
        head.version = SBX_QUOTA_VERSION;
        head.size = n;
        head.count = (uint32_t) ((n - sizeof(head))
                                 / sizeof(sbx_quota_kept_t));
        memcpy(p, &head, sizeof(head));
        head.sum = sbx_quota_sum(p, n);
        memcpy(p, &head, sizeof(head));
    }

    state_file(p, n);
    b = &broker;
    memset(&b->quotas, 0, sizeof(b->quotas));
    memset(&b->writer, 0, sizeof(b->writer));
    b->options = &options;
    b->state = file;
    b->writer.todo_last = &b->writer.todo;
    sbx_list_init(&b->quotas.saved);
    sbx_list_init(&b->quotas.waiting);
    sbx_list_init(&b->quotas.sweeps);
    data = NULL;

    if (sbx_quota_read(b, &data, &e) == 0) {
        must(data != NULL && sbx_quota_load(b, data) == 0);
        must(b->quotas.nlive <= SBX_QUOTA_LIVE);
        free(data);

        /* what it writes is read, and is as much */

        live = b->quotas.nlive;
        sbx_quota_write(b);
        job = b->writer.todo;
        must(job != NULL && job->size <= n);
        state_file(job->data, job->size);
        sbx_record_job_free(job);
        sbx_quota_close(b);

        again = NULL;
        must(sbx_quota_read(b, &again, &e) == 0 && again != NULL);
        b->quotas.nlive = 0;
        must(sbx_quota_load(b, again) == 0 && b->quotas.nlive == live);
        free(again);
    }

    sbx_quota_close(b);
}
