/*
 * What the files of sandbox-init share.  loop.c says how the whole works.
 */

#ifndef SBX_INIT_H
#define SBX_INIT_H

#include "sandbox_util.h"
#include "sandbox_task.h"
#include "wire.h"

#include <sys/epoll.h>
#include <sys/resource.h>


#define SBX_INIT_CONTROL       3         /* descriptors given at exec */
#define SBX_INIT_CONFIG        4
#define SBX_INIT_ATTACH        5
#define SBX_INIT_ATTACH_MAX    8

#define SBX_INIT_NONE          UINT64_MAX   /* no deadline */
#define SBX_INIT_LINGER        10000000     /* us for a worker to close what
                                               has been answered */

/* A buffer holds the largest frame, and a few small ones after it. */
#define SBX_INIT_BUFFER        (sizeof(sbx_frame_t) + SBX_FRAME_MAX + 2048)


/*
 * ---- the loop ----------------------------------------------------------
 */

typedef struct sbx_init_source_s  sbx_init_source_t;

typedef void (*sbx_init_handler_t)(sbx_init_source_t *source,
    uint32_t events);

/* A descriptor that the loop may watch; fd is -1 when there is none. */
struct sbx_init_source_s {
    int                  fd;
    uint32_t             events;       /* 0: not watched */
    sbx_init_handler_t   handler;
    void                *data;
};

int sbx_init_loop_open(sbx_error_t *e);
/* Returns when the session is over. */
void sbx_init_loop_run(void);
void sbx_init_loop_stop(void);
/* The loop will not sleep past this moment of sbx_now_us(). */
void sbx_init_loop_wake(uint64_t at);

void sbx_init_source_set(sbx_init_source_t *source, uint32_t events);
/* Stops watching and closes. */
void sbx_init_source_close(sbx_init_source_t *source);
/* Stops watching; the descriptor is the caller's again. */
int sbx_init_source_take(sbx_init_source_t *source);

/* NULL when the buffers' allowance is used up, unless it is forced. */
uint8_t *sbx_init_buffer_get(int force);
void sbx_init_buffer_put(uint8_t *buffer);


/*
 * ---- what init was given -----------------------------------------------
 */

typedef struct {
    const sbx_init_config_t  *config;
    const char               *env;           /* env_size bytes */
    const uint8_t            *filter;        /* filter_size bytes */
    const uint8_t            *files_filter;
    size_t                    files_filter_size;
    const char               *languages;     /* languages_size bytes */
    unsigned                  cpus;
    unsigned                  network;       /* sbx_network_mode_t, now */
    int                       ending;        /* the session is being ended */
} sbx_init_t;

extern sbx_init_t  sbx_init;

int sbx_init_config_map(int fd, sbx_init_t *init, sbx_error_t *e);
/* Process 1's whole life; the exit status. */
int sbx_init_main(void);


/*
 * ---- broker ------------------------------------------------------------
 */

int sbx_init_control_open(sbx_error_t *e);
void sbx_init_record(sbx_record_type_t type);
/* COMMAND_OVER; end is NULL of one that never was. */
void sbx_init_record_over(uint32_t command, const sbx_f_exit_t *end);
/* A record that is asked for: 0, or 1: try again. */
int sbx_init_record_ask(sbx_record_type_t type, uint32_t command,
    uint32_t reason);
/* Room for a further command's SBX_R_COMMAND_OVER is kept. */
void sbx_init_control_tick(uint64_t now);


/*
 * ---- commands ----------------------------------------------------------
 */

/* Descriptors of the command's group, in SBX_TASK_FD_* order after ATTACH. */
typedef enum {
    SBX_INIT_FD_KILL,
    SBX_INIT_FD_CPU,
    SBX_INIT_FD_MEMORY_PEAK,
    SBX_INIT_FD_OOM,
    SBX_INIT_FD_PIDS_PEAK,
    SBX_INIT_FD_PIDS_EVENTS,
    SBX_INIT_FD_THROTTLE,
    SBX_INIT_FD_IO,
    SBX_INIT_FD_POPULATED,
    SBX_INIT_FD_PIDS_CURRENT,
    SBX_INIT_FD_OOM_EVENT,
    SBX_INIT_FD_CPU_MAX,
    SBX_INIT_FD_DIR,
    SBX_INIT_FD_PROCS,
    SBX_INIT_FD_MAX
} sbx_init_fd_t;


typedef struct sbx_init_command_s  sbx_init_command_t;
typedef struct sbx_init_launch_s   sbx_init_launch_t;
typedef struct sbx_init_process_s  sbx_init_process_t;
typedef struct sbx_init_call_s     sbx_init_call_t;
struct sbx_code_context_s;

typedef enum {
    SBX_INIT_FREE,
    SBX_INIT_ASKED,               /* waits for EXEC */
    SBX_INIT_STRINGS,             /* waits for room or for STRINGS */
    SBX_INIT_INPUT,               /* accepted; waits for the first STDIN */
    SBX_INIT_LAUNCHING,           /* on its way to exec */
    SBX_INIT_RUNNING,
    SBX_INIT_OVER,                /* the leader is reaped; its group, its
                                     output or its answer is not done */
    SBX_INIT_CLOSING              /* answered; the last bytes go out */
} sbx_init_state_t;


typedef struct {
    sbx_init_source_t     source;      /* our end of the pipe */
    sbx_init_command_t   *command;
    sbx_frame_type_t      type;
    uint64_t              total;       /* bytes that came */
    uint64_t              sent;
    uint64_t              last;        /* OVER: bytes still to be read */
    uint64_t              read;        /* when, last */
    uint64_t              paused;      /* until then, unless 0 */
    uint32_t              truncated;
    uint32_t              wide;        /* its pipe has been enlarged */
    uint32_t              held;        /* its ring has no room */
} sbx_init_stream_t;


struct sbx_init_command_s {
    sbx_init_state_t      state;
    uint32_t              number;
    uint64_t              cpus;
    uint64_t              memory;
    int                   fds[SBX_INIT_FD_MAX];
    int                   attach[SBX_TASK_FDS_MAX];
    unsigned              nattach;
    unsigned              core;        /* of attach: spared by FD_DIR */

    sbx_init_source_t     call;
    sbx_wire_t            in;          /* in.buf NULL: no buffer held */
    uint8_t              *out;         /* bytes that the socket did not take */
    size_t                out_start;
    size_t                out_end;
    unsigned              starved:1;   /* waits for a buffer or for room */
    unsigned              accepted:1;
    unsigned              started:1;   /* a process has been made */
    unsigned              exec_done:1; /* exec has succeeded or failed */
    unsigned              reaped:1;
    unsigned              killed:1;
    unsigned              terminated:1;
    unsigned              settled:1;   /* all that it started is dead, if it
                                          was to die */
    unsigned              answered:1;  /* EXIT is on its way */
    unsigned              ended:1;     /* .exit tells how */
    unsigned              told:1;      /* COMMAND_OVER has been sent */
    unsigned              background:1;   /* its output is not its call's */
    unsigned              begun:1;     /* END has been sent, in the
                                          background */
    unsigned              flies:1;     /* its call has output on its way */

    sbx_f_exec_t          exec;
    sbx_init_launch_t    *launch;
    size_t                strings;     /* bytes that have come */

    sbx_init_stream_t     streams[2];
    sbx_init_process_t   *process;
    uint64_t              seq;         /* of the process */
    struct sbx_code_context_s  *code;  /* it is the kernel of that */
    uint64_t              cpu_base;    /* us used before its time counts */

    sbx_init_source_t     input;       /* our end of standard input */
    const uint8_t        *input_data;  /* in the call's buffer */
    size_t                input_left;
    int                   input_last;  /* the byte written last, or -1 */
    unsigned              input_end:1; /* its end has come */
    unsigned              input_eof:1; /* to be closed once it is empty */
    sbx_init_call_t      *writer;      /* whose piece is half written */

    pid_t                 pid;
    char                  program[128];   /* for the line that says why not */
    int                   failed;         /* errno of its exec, or 0 */
    int                   status;
    struct rusage         rusage;
    uint64_t              start;
    uint64_t              end;
    uint64_t              deadline;
    uint64_t              poll;        /* next look at the CPU time */
    uint64_t              recheck;     /* next look at a killed group */
    uint64_t              again;       /* next kill of such a group */
    sbx_init_source_t     oom;         /* the group ran out of memory */
    sbx_init_source_t     events;      /* or, on v2, its file has changed */
    uint64_t              look;        /* next look at whom that has killed */
    unsigned              looks;       /* that are left */
    uint64_t              give_up;     /* OVER: the group is waited for until
                                          then; CLOSING: the worker is */
    sbx_reason_t          reason;      /* why init killed it */
    sbx_f_exit_t          exit;
};


/* exec.c: the call of one command */
/* Descriptors of a group find their places. */
void sbx_init_exec_group(sbx_init_command_t *c, const sbx_task_t *task,
    int *fds, unsigned nfds);
void sbx_init_exec_task(const sbx_task_t *task, int *fds, unsigned nfds);
void sbx_init_exec_refuse(int fd, const sbx_f_error_t *error);
/* Answers with an error instead of a start, and ends the call. */
void sbx_init_exec_fail(sbx_init_command_t *c, const sbx_f_error_t *error);
void sbx_init_exec_send(sbx_init_command_t *c, sbx_frame_type_t type,
    const void *payload, size_t size);
/* Sends what a buffer holds from header to end; keeps what does not go. */
void sbx_init_exec_push(sbx_init_command_t *c, uint8_t *buffer, size_t size);
/* Reads on where the call was held back. */
void sbx_init_exec_resume(sbx_init_command_t *c);
void sbx_init_exec_interest(sbx_init_command_t *c);
/* The worker is gone: the call ends, and with it the command, as a rule. */
void sbx_init_exec_hang_up(sbx_init_command_t *c);
/* In the background the call's end does not wait for the command's. */
void sbx_init_exec_begun(sbx_init_command_t *c);
/* Waits for a buffer or for room. */
void sbx_init_exec_starve(sbx_init_command_t *c);
void sbx_init_exec_starved(void);
void sbx_init_error_fill(sbx_f_error_t *f, const sbx_error_t *e);
/* Of the session's processes; and what may work in a moment. */
void sbx_init_error_quota(sbx_f_error_t *f, uint64_t limit);
void sbx_init_call_full(sbx_f_error_t *error, const char *resource,
    unsigned limit);
void sbx_init_error_soon(sbx_f_error_t *f, int err, const char *text);

/* command_start.c: its launch */
int sbx_init_command_open(sbx_error_t *e);
void sbx_init_command_start(sbx_init_command_t *c, int with_input);

/* command.c: the process of one command */
sbx_init_command_t *sbx_init_command_new(void);
sbx_init_command_t *sbx_init_command_each(sbx_init_command_t *previous);
/* 1 if the process was a command's. */
int sbx_init_command_reap(pid_t pid, int status, const struct rusage *usage);
void sbx_init_command_kill(sbx_init_command_t *c, sbx_reason_t reason);
void sbx_init_command_terminate(void);
/* 0: it has none yet.  One that is on its way has it before .pid says so. */
pid_t sbx_init_command_pid(const sbx_init_command_t *c);
/* To its process group; 0, or -1 with errno. */
int sbx_init_command_signal(sbx_init_command_t *c, int sig);
void sbx_init_command_tick(uint64_t now);
/* Output or answer have gone on: see whether the command can end. */
void sbx_init_command_step(sbx_init_command_t *c);
void sbx_init_command_free(sbx_init_command_t *c);
unsigned sbx_init_command_running(void);

/* The moment of the next look at what a group has used of its limit. */
uint64_t sbx_init_command_next(uint64_t now, uint64_t left, uint64_t cpus);

/* pause.c: FREEZE and THAW */
void sbx_init_pause(uint64_t now);
void sbx_init_resume(uint64_t now);
int sbx_init_paused(void);
void sbx_init_pause_tick(uint64_t now);
/* SIGTERM to what commands have left behind. */
void sbx_init_orphan_terminate(void);

/* log.c: lines of the session's own log */
/* The first line; it is somebody's from now on. */
void sbx_init_log_begin(void);
void sbx_init_log_paused(int paused);
void sbx_init_log_started(const sbx_init_process_t *process);
void sbx_init_log_ended(const sbx_init_process_t *process);
/* What a command has left behind, or that it had no memory. */
void sbx_init_log_left(int32_t pid, int memory);
void sbx_init_log_kernel(const struct sbx_code_context_s *context, int ended);
/* Commands that run and calls that are open. */
unsigned sbx_init_busy(void);

/* left.c: what commands have left in the background */
/* The leader is dead, by itself: its group's limits go on to hold. */
void sbx_init_left_take(const sbx_init_command_t *c);
/* Orphans have died: a group may be empty. */
void sbx_init_left_reaped(void);
void sbx_init_left_tick(uint64_t now);
/* Kills all of them; 1 while some are dying. */
void sbx_init_left_cancel(void);
int sbx_init_left_cancelling(void);
/* The list of a group's processes, and whose it was; NULL: no such group. */
const sbx_f_state_t *sbx_init_left_group(unsigned i, int *procs,
    const char **strings);

/* kill.c */
/* A group that is about to be killed does not wait for its quota. */
void sbx_init_kill_hurry(int fd);
/* By the group's file, or else by walking; the leader (unless 0) itself. */
void sbx_init_kill_group(int fd, pid_t leader);
/* 1 while processes of a leader are to be seen; kills them again. */
int sbx_init_kill_left(pid_t leader);
/* 1: it is dead and waits to be reaped, as far as can be seen. */
int sbx_init_kill_zombie(pid_t pid);

/* exec_limits.c */
/* Fills what the call left out, and refuses what the session lacks. */
int sbx_init_exec_limits(sbx_f_exec_t *exec, sbx_error_t *e);
void sbx_init_launch_limits(sbx_init_launch_t *launch,
    const sbx_init_command_t *c);

/* output.c */
int sbx_init_output_start(sbx_error_t *e);
/* The command's ends; 0, or -1 with errno. */
int sbx_init_output_open(sbx_init_command_t *c, int ends[2]);
void sbx_init_output_watch(sbx_init_command_t *c);
/* What is in the pipes now is the rest of the command's output. */
void sbx_init_output_last(sbx_init_command_t *c);
/* 1 when all of it has been taken. */
int sbx_init_output_done(sbx_init_command_t *c);
void sbx_init_output_close(sbx_init_command_t *c);
void sbx_init_output_tick(uint64_t now);
/* Bytes of init's own, to the ring if there is one. */
void sbx_init_output_keep(sbx_init_command_t *c, sbx_init_stream_t *stream,
    const uint8_t *data, size_t n);
/* What its rings have lost makes the output truncated. */
void sbx_init_output_kept(sbx_init_command_t *c);
/* Somebody has read: what waits for room in a ring may go on. */
void sbx_init_output_room(void);

/* Our end of the stream. */
void sbx_init_output_take(sbx_init_command_t *c, sbx_init_stream_t *stream,
    int fd);
/* A pipe of which our end does not block, owned by the command's user. */
int sbx_init_pipe(const sbx_init_command_t *c, int ours, int fds[2]);

/* stdin.c */
/* The command's end; 0, or -1 with errno. */
int sbx_init_input_open(sbx_init_command_t *c, int *end);
void sbx_init_input_take(sbx_init_command_t *c, int fd);
/* What does not go at once stays in the call's buffer (input_left). */
void sbx_init_input_frame(sbx_init_command_t *c, const uint8_t *data,
    size_t size);
void sbx_init_input_close(sbx_init_command_t *c);
/* Who waits for the pipe is next. */
void sbx_init_input_next(sbx_init_command_t *c);
/* Its end: after what is still to be written. */
void sbx_init_input_eof(sbx_init_command_t *c);
/* write() to it, which remembers the last byte. */
ssize_t sbx_init_input_put(sbx_init_command_t *c, const uint8_t *data,
    size_t size);

/* process.c: what is known of a command, also when it has ended */
/* -1: no memory. */
int sbx_init_process_new(sbx_init_command_t *c);
void sbx_init_process_started(sbx_init_command_t *c);
/* c->exit is its result, if it has been started. */
void sbx_init_process_ended(sbx_init_command_t *c);
/* From now on its output is kept. */
void sbx_init_process_ring(sbx_init_command_t *c);

/* process_call.c */
void sbx_init_call_task(const sbx_task_t *task, int fd);
void sbx_init_call_tick(uint64_t now);
int sbx_init_process_signal(sbx_init_command_t *c,
    const sbx_f_process_t *ask);
int sbx_init_process_check(const sbx_f_process_t *ask, sbx_error_t *e);

/* port.c: calls to ports */
void sbx_init_port_task(int fd, int link);
void sbx_init_port_tick(uint64_t now);
/* Calls that are under way. */
unsigned sbx_init_port_calls(void);
/* Ends them all; there are none after that. */
void sbx_init_port_cut(void);

/* code.c and what belongs to it: interpreters */
void sbx_init_code_task(int fd);
/* The answer to SBX_R_GROUP; all descriptors are taken over. */
void sbx_init_code_group(const sbx_task_t *task, int *fds, unsigned nfds);
void sbx_init_code_warm(const sbx_task_t *task, const int *fds,
    unsigned nfds);
void sbx_init_hand_over(int fd);
void sbx_init_code_tick(uint64_t now);
/* Calls that are not answered. */
unsigned sbx_init_code_calls(void);
/* The same, and one more where a long run has ended since it was asked. */
unsigned sbx_init_code_busy(void);
void sbx_init_code_alive(void);
/* Interrupts what runs, takes out what waits; how many there were. */
unsigned sbx_init_code_cancel(void);
int sbx_init_code_cancelling(void);
void sbx_init_code_ending(void);
void sbx_init_code_thaw(uint64_t frozen_at, uint64_t now);
/* Of a kernel: its ends; it could not be started; it is over. */
int sbx_init_code_pipes(sbx_init_command_t *c);
void sbx_init_code_fail(sbx_init_command_t *c, const sbx_f_error_t *error);
void sbx_init_code_over(sbx_init_command_t *c);
/* Its start has been heard of: what it says may be. */
void sbx_init_code_heard(sbx_init_command_t *c);
/* Its processor time counts from now on. */
void sbx_init_code_cpu(sbx_init_command_t *c);

/* hold.c: calls that have output on its way */
void sbx_init_flight_begin(sbx_init_process_t *process);
void sbx_init_flight_end(int32_t pid, uint64_t seq);
/* SBX_PROCESS_LEAVE; -1: it is not. */
int sbx_init_flight_leaves(int32_t pid, uint64_t seq,
    const sbx_frame_t *frame, const void *payload);

/* tty.c */
/* Both ends; 0, or -1 with errno. */
int sbx_init_tty_open(sbx_init_command_t *c, int *end);
/* To the foreground of its terminal, as the terminal's own keys do. */
int sbx_init_tty_signal(sbx_init_command_t *c, int sig);
int sbx_init_tty_resize(sbx_init_command_t *c, uint32_t rows, uint32_t cols);
/* 1 if there is output that has not been read. */
int sbx_init_tty_pending(int fd);
/* 1: the session has as many terminals as it may. */
int sbx_init_tty_full(void);
/* How many times *eof has to come after the byte last (-1: none) for its
 * reader to meet the end of the input; 0: it has no such character. */
unsigned sbx_init_tty_eof(int fd, int last, uint8_t *eof);

/* usage.c */
void sbx_init_usage(sbx_init_command_t *c, sbx_f_exit_t *x);
/* Microseconds used so far, or 0 where nothing tells. */
uint64_t sbx_init_usage_cpu(sbx_init_command_t *c);
/* The same, of a group's files: */
int sbx_init_usage_cpu_of(int fd, uint64_t *used);
/* processes that the kernel killed for want of memory; */
uint64_t sbx_init_usage_oom_of(int fd);
/* 0: the group is empty; 1: it is not; -1: nothing tells. */
int sbx_init_usage_populated_of(int fd);
uint64_t sbx_init_usage_oom(sbx_init_command_t *c);
/* Whether poll() tells that the file has changed. */
int sbx_init_usage_oom_told(int fd);
int sbx_init_usage_populated(sbx_init_command_t *c);


/*
 * ---- launching ---------------------------------------------------------
 */

#define SBX_INIT_RLIMITS   11
#define SBX_INIT_BASE_VARIABLES   7      /* the allow-list */
#define SBX_INIT_OFFLINE          2
#define SBX_INIT_PACKAGES         6
#define SBX_INIT_CPUS_VARIABLES   10
#define SBX_INIT_CPUS_WORDS       16     /* a cpu_set_t */

typedef enum {
    SBX_INIT_STAGE_NONE,
    SBX_INIT_STAGE_CLONE,         /* no process could be made */
    SBX_INIT_STAGE_SETUP,         /* group, limits, ids, filter */
    SBX_INIT_STAGE_CWD,
    SBX_INIT_STAGE_EXEC
} sbx_init_stage_t;

/* Written by the child, read by the parent once it has gone on. */
typedef struct {
    volatile uint32_t     stage;
    volatile int32_t      err;
    volatile int32_t      pid;         /* set by the kernel */
} sbx_init_outcome_t;

/* All that the child needs; one mapping, with the strings and its stack. */
struct sbx_init_launch_s {
    size_t                size;        /* of the mapping */
    sbx_init_launch_t    *next;        /* in the list of those to unmap */
    volatile int32_t      thread;      /* 0 once the stack is not used */
    sbx_init_outcome_t    outcome;
    uint32_t              index;       /* of the command */

    char                 *strings;     /* the call's table */
    size_t                strings_size;
    size_t                nstrings;    /* pointers that there is room for */
    char                **argv;
    char                **envp;
    uint32_t             *slots;       /* for finding duplicates */
    size_t                nslots;
    uint8_t              *stack;

    const char           *cwd;
    const char           *own;         /* the call's variables, envc */
    const char           *workspace;
    unsigned              default_cwd:1;
    unsigned              root:1;
    unsigned              gone:1;      /* a thread has been made for it */
    uid_t                 uid;
    gid_t                 gid;
    int                   stdio[3];    /* [0] -1: /dev/null */
    int                   extra;       /* the child's descriptor 3, or -1 */
    int                   tty;         /* they are a terminal */
    const int            *attach;
    unsigned              nattach;
    unsigned              core;        /* of attach: spared when entered */
    int                   group;       /* to be cloned into, or -1 */
    volatile unsigned     entered;     /* it was born there */
    int                   pids;        /* pids.current, or -1 */
    uint64_t              processes;   /* the session's limit */
    const void           *filter;
    size_t                filter_size;
    unsigned              cpus;        /* processors to be seen */
    char                  threads[SBX_INIT_CPUS_VARIABLES][40];
    uint64_t              affinity[SBX_INIT_CPUS_WORDS];
    size_t                affinity_size;   /* 0: as init has it */
    struct rlimit64       rlimits[SBX_INIT_RLIMITS];
    int                   resources[SBX_INIT_RLIMITS];
    unsigned              nrlimits;
};

/* cpus.c: before the strings, which need it. */
void sbx_init_launch_cpus(sbx_init_launch_t *launch,
    const sbx_init_command_t *c);
/* NULL: no room now. */
sbx_init_launch_t *sbx_init_launch_new(const sbx_f_exec_t *exec);
void sbx_init_launch_free(sbx_init_launch_t *launch);
/* Frees what threads have left. */
void sbx_init_launch_sweep(void);
/* Checks the table and fills argv, envp and cwd; -1: SBX_E_INVALID. */
int sbx_init_launch_strings(sbx_init_launch_t *launch,
    const sbx_f_exec_t *exec, sbx_error_t *e);
/* The session's variables are others now. */
void sbx_init_launch_env(void);
/* A descriptor that tells of launches that are through: uint32_t indexes. */
int sbx_init_launch_open(sbx_error_t *e);
/*
 * Makes a process in a group, as fork() or, with flags, as clone() does; the
 * process, 0 in it, or the kernel's error.  It calls nothing of libc.  That
 * spares the write to the group's attach file, which has the kernel stop
 * every fork on the machine.  Where the group may not be cloned into (*entered
 * is then 0), an ordinary process is made.
 */
long sbx_init_clone(int group, unsigned long flags, volatile int32_t *pid,
    volatile unsigned *entered);
/* Whether one more may go; who waits for that starves, and tries again. */
int sbx_init_launch_room(void);
/* 0, or -1 with errno. */
int sbx_init_launch_go(sbx_init_launch_t *launch);

/* child.c: runs in memory that it shares with init */
void sbx_init_child(sbx_init_launch_t *launch) __attribute__((noreturn));


/*
 * ---- file calls --------------------------------------------------------
 */

int sbx_init_file_open(sbx_error_t *e);
void sbx_init_file_task(int fd);
int sbx_init_file_reap(pid_t pid, int status);
void sbx_init_file_cut(void);
void sbx_init_file_tick(uint64_t now);
/* 1 while a download is open. */
int sbx_init_file_cutting(void);
/* Calls that are being served. */
unsigned sbx_init_file_calls(void);


#endif
