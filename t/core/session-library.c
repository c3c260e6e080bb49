/*
 * The library of sandboxes without a server, as a program with threads uses
 * it: runs at once, cancel, close while something runs, close twice, what
 * becomes of workspaces.
 */

#include "sandbox_session.h"
#include "tap.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>


#define THREADS   4


typedef struct {
    sbx_sandbox_t         *sb;
    const char            *shell;
    int                    rc;
    sbx_sandbox_result_t   r;
    sbx_error_t            e;
} job_t;


static void *
job_run(void *data)
{
    job_t                  *job;
    sbx_sandbox_command_t   c;

    job = data;
    sbx_sandbox_command_init(&c);
    c.shell = job->shell;
    job->rc = sbx_sandbox_run(job->sb, &c, &job->r, &job->e);

    return NULL;
}


static int
run(sbx_sandbox_t *sb, const char *shell, sbx_sandbox_result_t *r)
{
    job_t  job;

    memset(&job, 0, sizeof(job));
    job.sb = sb;
    job.shell = shell;
    (void) job_run(&job);

    if (job.rc == -1) {
        printf("# %s: %s\n", job.e.text, strerror(job.e.err));
    }

    *r = job.r;

    return job.rc;
}


static char  helper[4096];


static sbx_sandbox_t *
sandbox(const char *workspace)
{
    sbx_error_t             e;
    sbx_sandbox_t          *sb;
    sbx_sandbox_options_t   o;

    sbx_sandbox_options_init(&o);
    o.workspace = workspace;
    o.helper = helper;
    o.backend = SBX_BACKEND_NAMESPACES;
    o.limits.exec_timeout = 60000;

    if (sbx_sandbox_open(&o, &sb, &e) == -1) {
        printf("# %s\n", e.text);
        return NULL;
    }

    return sb;
}


/* Until the command says by a file that it runs. */
static void
await(const sbx_sandbox_t *sb, const char *name)
{
    int   i;
    char  path[4096];

    (void) snprintf(path, sizeof(path), "%s/%s", sbx_sandbox_workspace(sb),
                    name);

    for (i = 0; i < 3000 && access(path, F_OK) == -1; i++) {
        (void) usleep(10000);
    }
}


static void
test_threads(void)
{
    int             i, good;
    job_t           jobs[THREADS];
    char            shell[THREADS][64];
    pthread_t       threads[THREADS];
    sbx_sandbox_t  *sb;

    sb = sandbox(NULL);

    for (i = 0; i < THREADS; i++) {
        (void) snprintf(shell[i], sizeof(shell[i]),
                        "echo run %d; echo x > f%d; exit %d", i, i, i);
        memset(&jobs[i], 0, sizeof(job_t));
        jobs[i].sb = sb;
        jobs[i].shell = shell[i];
        (void) pthread_create(&threads[i], NULL, job_run, &jobs[i]);
    }

    good = 0;

    for (i = 0; i < THREADS; i++) {
        char  want[32];

        (void) pthread_join(threads[i], NULL);
        (void) snprintf(want, sizeof(want), "run %d\n", i);

        if (jobs[i].rc == 0 && jobs[i].r.exit_code == i
            && strcmp(jobs[i].r.out.data, want) == 0 && jobs[i].r.isolated)
        {
            good++;

        } else {
            printf("# %d: %s\n", i, jobs[i].e.text);
        }

        sbx_sandbox_result_free(&jobs[i].r);
    }

    is_int(good, THREADS, "runs of several threads have each its own result");
    sbx_sandbox_free(sb);
}


static void
test_cancel(void)
{
    job_t           job;
    pthread_t       thread;
    sbx_sandbox_t  *sb;

    sb = sandbox(NULL);
    is_int(sbx_sandbox_cancel(sb), 0, "nothing to cancel");

    memset(&job, 0, sizeof(job));
    job.sb = sb;
    job.shell = "trap '' TERM; touch on; setsid sleep 600 & sleep 600";
    (void) pthread_create(&thread, NULL, job_run, &job);
    await(sb, "on");

    is_int(sbx_sandbox_cancel(sb), 1, "cancel ends what runs");
    (void) pthread_join(thread, NULL);
    is_int(job.rc, 0, "which has a result");
    is_str(job.r.reason, "cancelled", "that says so");
    ok(job.r.cancelled && job.r.exit_code == 137, "in its fields, too");
    sbx_sandbox_result_free(&job.r);

    is_int(run(sb, "exit 3", &job.r), 0, "the sandbox is usable afterwards");
    is_int(job.r.exit_code, 3, "with the right result");
    sbx_sandbox_result_free(&job.r);
    sbx_sandbox_free(sb);
}


static void *
closer(void *data)
{
    sbx_sandbox_close(data);

    return NULL;
}


static void
test_close(void)
{
    char             path[4096];
    job_t            job;
    pthread_t        thread, other;
    struct stat      st;
    sbx_sandbox_t   *sb;
    sbx_error_t      e;
    sbx_sandbox_command_t  c;

    sb = sandbox(NULL);
    (void) snprintf(path, sizeof(path), "%s", sbx_sandbox_workspace(sb));
    ok(stat(path, &st) == 0 && (st.st_mode & 07777) == 0700,
       "a private workspace is its owner's alone");

    memset(&job, 0, sizeof(job));
    job.sb = sb;
    job.shell = "touch on; while :; do echo x > f; rm f; done";
    (void) pthread_create(&thread, NULL, job_run, &job);
    await(sb, "on");

    (void) pthread_create(&other, NULL, closer, sb);
    sbx_sandbox_close(sb);
    ok(stat(path, &st) == -1, "close removes it, while a command writes");
    (void) pthread_join(other, NULL);
    (void) pthread_join(thread, NULL);
    is_str(job.rc == 0 ? job.r.reason : job.e.text, "cancelled",
           "what ran is cancelled");
    sbx_sandbox_result_free(&job.r);

    sbx_sandbox_close(sb);
    ok(1, "close twice is harmless, from two threads as well");

    sbx_sandbox_command_init(&c);
    c.shell = "true";
    is_int(sbx_sandbox_run(sb, &c, &job.r, &e), -1, "a run after it fails");
    is_int(e.code, SBX_E_CONFLICT, "as closed");
    ok(stat(path, &st) == -1, "and makes no workspace");
    sbx_sandbox_free(sb);
}


static void
test_given(void)
{
    char                  dir[] = "/var/tmp/sbxlibXXXXXX", path[64];
    struct stat           st;
    sbx_sandbox_t        *sb;
    sbx_sandbox_result_t  r;

    if (mkdtemp(dir) == NULL) {
        skip("no directory", "a given workspace");
        return;
    }

    (void) snprintf(path, sizeof(path), "%s/made", dir);
    sb = sandbox(dir);
    is_str(sbx_sandbox_workspace(sb), dir, "a given workspace");

    if (run(sb, "echo x > made", &r) == -1) {
        skip("its file system takes no idmapped mounts", "is written");
        sbx_sandbox_free(sb);
        (void) rmdir(dir);
        return;
    }

    is_str(r.reason, "exited", "is written");
    sbx_sandbox_result_free(&r);
    sbx_sandbox_free(sb);
    ok(stat(path, &st) == 0 && st.st_uid == geteuid(),
       "and never removed, nor given to another owner");
    (void) unlink(path);
    (void) rmdir(dir);
}


typedef struct {
    size_t  size[2];
} seen_t;


static void
output(int stream, const void *data, size_t size, void *ctx)
{
    seen_t  *seen;

    (void) data;
    seen = ctx;
    seen->size[stream - 1] += size;
}


static void
test_streams(void)
{
    int                    pair[2], i;
    char                  *big;
    seen_t                 seen = { { 0, 0 } };
    sbx_error_t            e;
    sbx_sandbox_t         *sb;
    sbx_sandbox_result_t   r;
    sbx_sandbox_command_t  c;

    sb = sandbox(NULL);
    big = malloc(1000000);
    memset(big, 'x', 1000000);

    sbx_sandbox_command_init(&c);
    c.shell = "tee /dev/stderr";
    c.input = big;
    c.input_size = 1000000;
    c.output = output;
    c.ctx = &seen;
    c.max_output = 2000000;
    is_int(sbx_sandbox_run(sb, &c, &r, &e), 0, "input and output at once");
    ok(seen.size[0] == 1000000 && seen.size[1] == 1000000
       && r.out.total == 1000000 && r.out.data == NULL,
       "all of it comes, by the function");
    sbx_sandbox_result_free(&r);

    sbx_sandbox_command_init(&c);
    c.shell = "exec 0<&-; sleep 0.2; exit 4";
    c.input = big;
    c.input_size = 1000000;
    is_int(sbx_sandbox_run(sb, &c, &r, &e), 0, "input that is not read");
    is_int(r.exit_code, 4, "is no harm");
    sbx_sandbox_result_free(&r);

    i = pipe(pair);
    sbx_sandbox_command_init(&c);
    c.shell = "cat";
    c.input_fd = pair[0];
    (void) write(pair[1], "by a descriptor", 15);
    (void) close(pair[1]);
    is_int(i == 0 ? sbx_sandbox_run(sb, &c, &r, &e) : -1, 0,
           "input from a descriptor");
    is_str(r.out.data, "by a descriptor", "goes through");
    (void) close(pair[0]);
    sbx_sandbox_result_free(&r);

    sbx_sandbox_command_init(&c);
    c.shell = "echo $A-$B";
    c.env = (const char *const []) { "A=1", "B=2", NULL };
    is_int(sbx_sandbox_run(sb, &c, &r, &e), 0, "a run's own variables");
    is_str(r.out.data, "1-2\n", "are there");
    sbx_sandbox_result_free(&r);

    c.env = (const char *const []) { "A", NULL };
    is_int(sbx_sandbox_run(sb, &c, &r, &e), -1, "or are refused");
    is_int(e.code, SBX_E_INVALID, "as invalid");

    sbx_sandbox_command_init(&c);
    is_int(sbx_sandbox_run(sb, &c, &r, &e), -1, "no command is refused");

    c.shell = "sleep 600";
    c.timeout = 200;
    is_int(sbx_sandbox_run(sb, &c, &r, &e), 0, "a run's own time limit");
    is_str(r.reason, "timeout", "is kept");
    sbx_sandbox_result_free(&r);

    free(big);
    sbx_sandbox_free(sb);
}


static void
capability(const char *name, const char *by, void *ctx)
{
    unsigned  *n;

    n = ctx;
    printf("# %s: %s\n", name, by);
    *n += by != NULL;
}


int
main(int argc, char **argv)
{
    char                  *slash;
    unsigned               n;
    sbx_error_t            e;
    sbx_sandbox_t         *sb;
    sbx_sandbox_result_t   r;

    (void) argc;

    /* <build>/t/core/session-library */

    (void) snprintf(helper, sizeof(helper), "%.4000s", argv[0]);
    slash = strstr(helper, "/t/core/");

    if (slash != NULL) {
        (void) strcpy(slash, "/sandbox-session");
    }

    sb = sandbox(NULL);

    if (sb == NULL) {
        return skip_all("sandbox-session is not built");
    }

    if (run(sb, "true", &r) == -1) {
        sbx_sandbox_free(sb);
        return skip_all("no sandbox can be made here");
    }

    sbx_sandbox_result_free(&r);
    n = 0;
    is_int(sbx_sandbox_capabilities(sb, capability, &n, &e), 0,
           "capabilities");
    is_int(n, 9, "of each limit");
    sbx_sandbox_free(sb);

    test_threads();
    test_cancel();
    test_close();
    test_given();
    test_streams();

    return done_testing();
}
