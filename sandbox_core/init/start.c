/*
 * How process 1 of a session begins.  It was executed as root of the
 * session's user namespace with few capabilities, no_new_privs and a seccomp
 * filter on, inside the session's root; descriptors and configuration as
 * sandbox_wire.h says.  It trusts those and nothing else: no environment, no
 * argument and no file that the session could have changed.
 */

#include "init.h"
#include "sandbox_fault.h"
#include "sandbox_languages.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>


#define SBX_INIT_CONFIG_MAX   (SBX_ENV_MAX + 1024 * 1024)


static int sbx_init_config_check(const sbx_init_config_t *config,
    size_t size, sbx_error_t *e);
static int sbx_init_prepare(sbx_error_t *e);
static void sbx_init_signals(void);


sbx_init_t  sbx_init;


int
sbx_init_main(void)
{
    sbx_error_t  e;

    memset(&e, 0, sizeof(sbx_error_t));

    if (sbx_init_prepare(&e) != 0
        || sbx_init_config_map(SBX_INIT_CONFIG, &sbx_init, &e) != 0
        || sbx_init_loop_open(&e) != 0
        || sbx_init_command_open(&e) != 0
        || sbx_init_file_open(&e) != 0
        || sbx_init_control_open(&e) != 0)
    {
        (void) dprintf(STDERR_FILENO, "sandbox-init: %s%s%s\n", e.text,
                       e.err ? ": " : "", e.err ? strerror(e.err) : "");
        return 1;
    }

    sbx_init_log_begin();
    SBX_FAULT("init-create-opened");
    sbx_init_record(SBX_R_READY);
    SBX_FAULT("init-create-ready");
    sbx_init_loop_run();

    /* nobody is left to ask for anything: the kernel ends the rest with us */

    (void) kill(-1, SIGKILL);

    return 0;
}


static int
sbx_init_prepare(sbx_error_t *e)
{
    int            fd, i;
    struct rlimit  files;

    for (i = 0; i <= STDERR_FILENO; i++) {
        if (fcntl(i, F_GETFD) == -1) {
            /* the lowest number that is free, which is this one */
            fd = open("/dev/null", O_RDWR);

            if (fd != i) {
                return sbx_error(e, errno, SBX_E_INTERNAL,
                                 "cannot open /dev/null");
            }
        }
    }

    for (i = SBX_INIT_CONTROL; i < SBX_INIT_ATTACH + SBX_INIT_ATTACH_MAX;
         i++)
    {
        (void) fcntl(i, F_SETFD, FD_CLOEXEC);
    }

    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == -1
        || prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) == -1)
    {
        return sbx_error(e, errno, SBX_E_INTERNAL, "prctl() failed");
    }

    SBX_FAULT("init-create-executed");
    sbx_init_signals();
    (void) umask(022);

    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        (void) setrlimit(RLIMIT_NOFILE, &files);
    }

    return 0;
}


/* By the system call: the C library keeps two to itself, and what it starts
 * by posix_spawn(), nginx perhaps, ignores them. */

static void
sbx_init_signals(void)
{
    int               n;
    uint64_t          plain[4];        /* the kernel's action: all is 0 */
    sigset_t          all;
    struct sigaction  action;

    memset(plain, 0, sizeof(plain));

    for (n = 1; n < NSIG; n++) {
        (void) syscall(SYS_rt_sigaction, n, plain, NULL, sizeof(uint64_t));
    }

    memset(&action, 0, sizeof(struct sigaction));
    action.sa_handler = SIG_IGN;
    (void) sigaction(SIGPIPE, &action, NULL);

    (void) sigfillset(&all);
    (void) sigprocmask(SIG_SETMASK, &all, NULL);
}


int
sbx_init_config_map(int fd, sbx_init_t *init, sbx_error_t *e)
{
    size_t                    size;
    cpu_set_t                 set;
    struct stat               st;
    const uint8_t            *p;
    const sbx_init_config_t  *config;

    if (fstat(fd, &st) == -1) {
        return sbx_error(e, errno, SBX_E_INTERNAL, "no configuration");
    }

    if (st.st_size < (off_t) sizeof(sbx_init_config_t)
        || st.st_size > SBX_INIT_CONFIG_MAX)
    {
        return sbx_error(e, 0, SBX_E_INTERNAL,
                         "the configuration's size is wrong");
    }

    size = (size_t) st.st_size;
    p = mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0);

    if (p == MAP_FAILED) {
        return sbx_error(e, errno, SBX_E_INTERNAL,
                         "cannot map the configuration");
    }

    (void) close(fd);

    config = (const sbx_init_config_t *) (const void *) p;

    if (sbx_init_config_check(config, size, e) != 0) {
        return -1;
    }

    init->config = config;
    init->env = (const char *) p + sizeof(sbx_init_config_t);
    init->filter = p + sizeof(sbx_init_config_t) + config->env_size;
    init->files_filter = init->filter;
    init->files_filter_size = config->filter_size;

    if (config->files_filter_size != 0) {
        init->files_filter += config->filter_size;
        init->files_filter_size = config->files_filter_size;
    }

    init->languages = (const char *) init->filter + config->filter_size
                      + config->files_filter_size;

    init->network = config->network;
    init->cpus = config->cpus_visible;

    if (init->cpus == 0) {
        init->cpus = sched_getaffinity(0, sizeof(set), &set) == 0
                     ? (unsigned) CPU_COUNT(&set) : 1;
    }

    return 0;
}


#define TERMINATED(s)  (memchr(s, '\0', sizeof(s)) != NULL)

static int
sbx_init_config_check(const sbx_init_config_t *config, size_t size,
    sbx_error_t *e)
{
    const char  *env;

    if (config->magic != SBX_WIRE_MAGIC
        || config->version != SBX_WIRE_VERSION)
    {
        return sbx_error(e, 0, SBX_E_INTERNAL,
                         "the configuration is of another build");
    }

    env = (const char *) config + sizeof(sbx_init_config_t);

    if (config->env_size > SBX_ENV_MAX + 2 * SBX_OWN_ENV_MAX
        || config->filter_size % 8 != 0
        || config->files_filter_size % 8 != 0
        || config->languages_size > SBX_LANGUAGES_SIZE
        || config->files_attach_count > SBX_INIT_ATTACH_MAX
        || config->network > SBX_NETWORK_LISTS
        || size != sizeof(sbx_init_config_t) + config->env_size
                   + (size_t) config->filter_size
                   + config->files_filter_size + config->languages_size
        || (config->env_size != 0 && env[config->env_size - 1] != '\0')
        || !TERMINATED(config->workspace) || config->workspace[0] != '/'
        || !TERMINATED(config->home)
        || !TERMINATED(config->path))
    {
        return sbx_error(e, 0, SBX_E_INTERNAL,
                         "the configuration is malformed");
    }

    return 0;
}
