/*
 * Making the process of a command.
 *
 * The loop makes a thread that shares all with it; the thread makes the
 * child by vfork, on its own stack, and the kernel stops the thread until
 * the child has executed its program or ended.  Then it writes the number of
 * the command into a pipe, and ends.  Nothing is copied, and:
 *
 *  - only the thread stands still when the session stops the child before
 *    its exec (a process of the same user may send it SIGSTOP);
 *  - the kernel never picks such a child when memory runs out, as it would
 *    one that merely shares init's memory, init dying with it.
 *
 * Thread and child call nothing of libc: they share errno with the loop.
 * What they need is one mapping, which the loop gives back when the kernel
 * has cleared the thread's number in it: from then on nobody is on its stack.
 */

#include "init.h"
#include "init_sys.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>


#define SBX_INIT_STACK         (64 * 1024)
#define SBX_INIT_LAUNCH_TOTAL  (16 * 1024 * 1024)
#define SBX_INIT_LAUNCHES      24      /* at once: each is two of the processes
                                          that init itself may have */
#define SBX_INIT_INTO_CGROUP   0x200000000ull
#define SBX_INIT_ALIGN(n)      (((n) + 15) & ~(size_t) 15)


/* struct clone_args, as far as the group; not every libc has it. */
typedef struct {
    uint64_t   flags;
    uint64_t   pidfd;
    uint64_t   child_tid;
    uint64_t   parent_tid;
    uint64_t   exit_signal;
    uint64_t   stack;
    uint64_t   stack_size;
    uint64_t   tls;
    uint64_t   set_tid;
    uint64_t   set_tid_size;
    uint64_t   cgroup;
} sbx_init_clone_t;


static int sbx_init_launch_thread(void *data);


static int                 sbx_init_launch_pipe[2] = { -1, -1 };
static size_t              sbx_init_launch_used;
static unsigned            sbx_init_launch_threads;
static sbx_init_launch_t  *sbx_init_launch_left;
static size_t              sbx_init_env_count;


void
sbx_init_launch_env(void)
{
    uint32_t  i;

    sbx_init_env_count = 0;

    for (i = 0; i < sbx_init.config->env_size; i++) {
        sbx_init_env_count += sbx_init.env[i] == '\0';
    }
}


int
sbx_init_launch_open(sbx_error_t *e)
{
    sbx_init_launch_env();

    if (pipe2(sbx_init_launch_pipe, O_CLOEXEC) == -1
        || fcntl(sbx_init_launch_pipe[0], F_SETFL, O_NONBLOCK) == -1)
    {
        return sbx_error(e, errno, SBX_E_INTERNAL, "pipe2() failed");
    }

    return sbx_init_launch_pipe[0];
}


sbx_init_launch_t *
sbx_init_launch_new(const sbx_f_exec_t *exec)
{
    size_t              size, slots, nenv, pointers;
    uint8_t            *p;
    sbx_init_launch_t  *launch;

    /* and room for a NULL */
    nenv = (size_t) exec->envc + sbx_init_env_count
           + SBX_INIT_BASE_VARIABLES + SBX_INIT_OFFLINE + SBX_INIT_PACKAGES
           + SBX_INIT_CPUS_VARIABLES + 1;
    pointers = ((size_t) exec->argc + 1 + nenv) * sizeof(char *);

    for (slots = 64; slots < 2 * nenv; slots *= 2) { /* void */ }

    size = SBX_INIT_STACK + SBX_INIT_ALIGN(sizeof(sbx_init_launch_t))
           + SBX_INIT_ALIGN(pointers) + slots * sizeof(uint32_t)
           + exec->strings_size;
    size = (size + 4095) & ~(size_t) 4095;

    if (sbx_init_launch_used != 0
        && sbx_init_launch_used + size > SBX_INIT_LAUNCH_TOTAL)
    {
        return NULL;
    }

    p = mmap(NULL, size, PROT_READ|PROT_WRITE, MAP_PRIVATE|MAP_ANONYMOUS,
             -1, 0);

    if (p == MAP_FAILED) {
        return NULL;
    }

    sbx_init_launch_used += size;

    /* the stack grows down from the structure, which is never above it */

    launch = (sbx_init_launch_t *) (void *) (p + SBX_INIT_STACK);
    launch->size = size;
    launch->stack = p + SBX_INIT_STACK;
    p += SBX_INIT_STACK + SBX_INIT_ALIGN(sizeof(sbx_init_launch_t));
    launch->argv = (char **) (void *) p;
    launch->envp = launch->argv + exec->argc + 1;
    p += SBX_INIT_ALIGN(pointers);
    launch->slots = (uint32_t *) (void *) p;
    launch->nslots = slots;
    launch->strings = (char *) (p + slots * sizeof(uint32_t));
    launch->strings_size = exec->strings_size;
    launch->stdio[0] = -1;
    launch->stdio[1] = -1;
    launch->stdio[2] = -1;
    launch->extra = -1;

    return launch;
}


void
sbx_init_launch_free(sbx_init_launch_t *launch)
{
    if (launch == NULL) {
        return;
    }

    launch->next = sbx_init_launch_left;
    sbx_init_launch_left = launch;

    sbx_init_launch_sweep();
}


void
sbx_init_launch_sweep(void)
{
    sbx_init_launch_t  *launch, **p;

    p = &sbx_init_launch_left;

    while (*p != NULL) {
        launch = *p;

        if (__atomic_load_n(&launch->thread, __ATOMIC_ACQUIRE) != 0) {
            p = &launch->next;
            continue;
        }

        *p = launch->next;
        sbx_init_launch_used -= launch->size;
        sbx_init_launch_threads -= launch->gone;
        (void) munmap(launch->stack - SBX_INIT_STACK, launch->size);

        /* somebody may wait for that */
        sbx_init_loop_wake(0);
    }

    if (sbx_init_launch_left != NULL) {
        sbx_init_loop_wake(sbx_now_us() + 5000);
    }
}


int
sbx_init_launch_room(void)
{
    return sbx_init_launch_threads < SBX_INIT_LAUNCHES;
}


int
sbx_init_launch_go(sbx_init_launch_t *launch)
{
    int  flags, rc;

    flags = CLONE_VM|CLONE_FS|CLONE_FILES|CLONE_SIGHAND|CLONE_THREAD
            |CLONE_SYSVSEM|CLONE_PARENT_SETTID|CLONE_CHILD_CLEARTID;

    rc = clone(sbx_init_launch_thread, launch->stack, flags, launch,
               &launch->thread, NULL, &launch->thread);

    if (rc == -1) {
        return -1;
    }

    launch->gone = 1;
    sbx_init_launch_threads++;

    return 0;
}


/* Inline, so that the child of a vfork goes on in its caller's frame. */

static inline __attribute__((always_inline)) long
sbx_init_clone_inline(int group, unsigned long flags, volatile int32_t *pid,
    volatile unsigned *entered)
{
    long                        rc;
    sbx_init_clone_t            args;
    volatile sbx_init_clone_t  *a;

    flags |= CLONE_PARENT_SETTID;

    if (group != -1) {
        a = &args;
        a->flags = flags | SBX_INIT_INTO_CGROUP;
        a->pidfd = 0;
        a->child_tid = 0;
        a->parent_tid = (uint64_t) (uintptr_t) pid;
        a->exit_signal = SIGCHLD;
        a->stack = 0;
        a->stack_size = 0;
        a->tls = 0;
        a->set_tid = 0;
        a->set_tid_size = 0;
        a->cgroup = (uint64_t) group;

        *entered = 1;
        rc = sbx_sys(SYS_clone3, sbx_sys_ptr(&args), sizeof(args), 0, 0, 0);

        if (rc >= 0 || rc == -EAGAIN || rc == -ENOMEM) {
            return rc;
        }
    }

    /* no such call, or namespaces of groups keep it from the session's */

    *entered = 0;

    return sbx_sys(SYS_clone, (long) (flags | SIGCHLD), 0, sbx_sys_ptr(pid),
                   0, 0);
}


long
sbx_init_clone(int group, unsigned long flags, volatile int32_t *pid,
    volatile unsigned *entered)
{
    return sbx_init_clone_inline(group, flags, pid, entered);
}


static int
sbx_init_launch_thread(void *data)
{
    long                pid;
    uint32_t            index;
    sbx_init_launch_t  *launch;

    launch = data;

    /* the child goes on in this very frame, and never returns from it */

    pid = sbx_init_clone_inline(launch->group, CLONE_VM|CLONE_VFORK,
                                &launch->outcome.pid, &launch->entered);

    if (pid == 0) {
        sbx_init_child(launch);
    }

    if (pid < 0) {
        launch->outcome.stage = SBX_INIT_STAGE_CLONE;
        launch->outcome.err = (int32_t) -pid;
    }

    index = launch->index;

    while (sbx_sys(SYS_write, sbx_init_launch_pipe[1], sbx_sys_ptr(&index),
                   sizeof(index), 0, 0)
           == -EINTR)
    { /* void */ }

    for ( ;; ) {
        (void) sbx_sys(SYS_exit, 0, 0, 0, 0, 0);
    }
}
