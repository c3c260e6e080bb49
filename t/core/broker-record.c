/* Records of sessions: whole, or not taken. */

#include "record.h"
#include "sandbox_util.h"
#include "tap.h"

#include <fcntl.h>
#include <poll.h>


static char  dir_name[] = "/tmp/sandbox-record-XXXXXX";


static void
fill(sbx_record_head_t *head)
{
    memset(head, 0, sizeof(*head));
    (void) strcpy(head->info.id, "iabcdefghijklmnopqrstuvwxyz");
    (void) strcpy(head->info.tenant, "acme");
    (void) strcpy(head->info.user, "alice");
    (void) strcpy(head->info.template, "base");
    (void) strcpy(head->key, "k");
    head->uid_first = 1 << 20;
    head->info.seq = 42;
    head->meta_size = 2;
    head->info.meta_size = 2;
    head->env_size = 4;
    head->info.network = SBX_NETWORK_LISTS;
    head->info.network_size = 5;
    head->network_size = 5;
}


static void
damage(int dir, off_t at)
{
    char         byte;
    sbx_auto_fd  fd = -1;

    fd = openat(dir, SBX_RECORD_NAME, O_RDWR|O_CLOEXEC);

    if (pread(fd, &byte, 1, at) == 1) {
        byte ^= 1;
        (void) !pwrite(fd, &byte, 1, at);
    }
}


static int
refused(int dir)
{
    int                rc;
    char              *meta, *network;
    sbx_error_t        e;
    sbx_record_head_t  head;

    rc = sbx_record_read(dir, &head, &meta, &network, &e);
    free(meta);
    free(network);

    return rc == -1;
}


static void
test_damage(int dir, off_t size)
{
    off_t     at;
    unsigned  taken;

    taken = 0;

    for (at = 0; at < size; at++) {
        damage(dir, at);
        taken += !refused(dir);
        damage(dir, at);
    }

    is_int(taken, 0, "a record with any byte changed is refused");
    ok(!refused(dir), "and with none it is taken");

    at = size;

    while (at > 0) {
        at -= at > 64 ? 61 : 1;

        sbx_auto_fd  fd = openat(dir, SBX_RECORD_NAME, O_RDWR|O_CLOEXEC);

        if (ftruncate(fd, at) == -1) {
            break;
        }

        taken += !refused(dir);
    }

    is_int(taken, 0, "one that was cut anywhere is refused");
    (void) unlinkat(dir, SBX_RECORD_NAME, 0);
    ok(refused(dir), "one that is missing as well");
}


int
main(void)
{
    int                   dir, session;
    char                 *meta, *network;
    off_t                 size;
    sbx_error_t           e;
    struct pollfd         pfd;
    sbx_record_job_t     *job;
    sbx_record_head_t     head, got;
    sbx_record_writer_t   w;

    if (mkdtemp(dir_name) == NULL) {
        return 1;
    }

    dir = open(dir_name, O_RDONLY|O_DIRECTORY|O_CLOEXEC);
    is_int(sbx_record_writer_open(&w, dir, &e), 0, "writers start");

    fill(&head);
    job = sbx_record_job(&head, "{}", "A=1", "ab.c", dir);
    size = (off_t) job->size;
    job->session = &session;
    sbx_record_queue(&w, job);

    pfd.fd = w.event;
    pfd.events = POLLIN;
    is_int(poll(&pfd, 1, 20000), 1, "a record is written");
    job = sbx_record_done(&w);
    ok(job != NULL && job->err == 0 && job->session == &session,
       "and told of");
    sbx_record_job_free(job);

    is_int(faccessat(dir, SBX_RECORD_TEMP, F_OK, 0), -1,
           "no temporary is left");
    is_int(sbx_record_read(dir, &got, &meta, &network, &e), 0,
           "it is read back");
    is_str(got.info.id, head.info.id, "id");
    is_int((int64_t) got.info.seq, 42, "seq");
    is_str(meta, "{}", "metadata");
    is_str(network, "ab.c", "rules of its network");
    free(meta);
    free(network);

    test_damage(dir, size);

    sbx_record_writer_close(&w);
    (void) close(dir);
    is_int(rmdir(dir_name), 0, "nothing else is left");

    return done_testing();
}
