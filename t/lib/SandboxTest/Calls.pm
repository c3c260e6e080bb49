package SandboxTest::Calls;

# What a session is to be told of each system call of x86-64, by number: the
# policy in words, written without a look at the filter's own tables, so that
# a line missing there is found here.  A number that is not here has no call,
# or one that nobody has judged, and must be ENOSYS.

use strict;
use warnings;

# class => names with their numbers, each group with its reason

my @POLICY = (
    # mounts: the tree belongs to the host, nobody changes it
    refused => [ qw(
        mount:165 umount2:166 pivot_root:155 chroot:161 fsopen:430
        fsconfig:431 fsmount:432 fspick:433 open_tree:428 move_mount:429
        mount_setattr:442
    ) ],

    # namespaces
    refused => [ qw(
        unshare:272 setns:308
    ) ],

    # the kernel itself: modules, other kernels, power, swap
    refused => [ qw(
        init_module:175 finit_module:313 delete_module:176
        kexec_load:246 kexec_file_load:320 reboot:169 swapon:167
        swapoff:168
    ) ],

    # what all share: the clock, names, quotas, accounts, the log
    refused => [ qw(
        settimeofday:164 clock_settime:227 adjtimex:159
        clock_adjtime:305 sethostname:170 setdomainname:171 quotactl:179
        quotactl_fd:443 acct:163 syslog:103 sysfs:139 lookup_dcookie:212
        vhangup:153
    ) ],

    # ports of the machine
    refused => [ qw(
        iopl:172 ioperm:173
    ) ],

    # large parts of the kernel with a history of holes
    refused => [ qw(
        bpf:321 perf_event_open:298 userfaultfd:323 keyctl:250
        add_key:248 request_key:249 fanotify_init:300 fanotify_mark:301
    ) ],

    # files by handle, past every directory's rights
    refused => [ qw(
        name_to_handle_at:303 open_by_handle_at:304
    ) ],

    # memory and descriptors of other processes
    refused => [ qw(
        process_vm_readv:310 process_vm_writev:311 pidfd_getfd:438
        process_mrelease:448 kcmp:312
    ) ],

    # the nodes that memory is taken from
    refused => [ qw(
        mbind:237 set_mempolicy:238 set_mempolicy_home_node:450
        migrate_pages:256 move_pages:279
    ) ],

    # libraries fall back from these
    unknown => [ qw(
        clone3:435 io_uring_setup:425 io_uring_enter:426
        io_uring_register:427
    ) ],

    # asynchronous i/o: contexts that all tenants share
    unknown => [ qw(
        io_setup:206 io_destroy:207 io_getevents:208 io_submit:209
        io_cancel:210 io_pgetevents:333
    ) ],

    # 16-bit segments, secret memory, old libraries
    unknown => [ qw(
        modify_ldt:154 memfd_secret:447 uselib:134 ustat:136
    ) ],

    # newer than the policy: nobody has judged them yet
    unknown => [ qw(
        map_shadow_stack:453 statmount:457 listmount:458
        lsm_get_self_attr:459 lsm_set_self_attr:460 lsm_list_modules:461
        setxattrat:463 getxattrat:464 listxattrat:465 removexattrat:466
        open_tree_attr:467 file_getattr:468 file_setattr:469 listns:470
    ) ],

    # numbers that were never used or are not any more
    unknown => [ qw(
        _sysctl:156 afs_syscall:183 create_module:174
        get_kernel_syms:177 getpmsg:181 nfsservctl:180 putpmsg:182
        query_module:178 security:185 tuxcall:184 vserver:236
    ) ],

    # of the kernel's own trampolines: newer kernels ask no filter
    # about these, and end who calls from elsewhere
    probe => [ qw(
        uretprobe:335 uprobe:336
    ) ],

    # said to be done
    idle => [ qw(
        sync:162
    ) ],

    # allowed where the library that knows names knows these
    either => [ qw(
        cachestat:451 fchmodat2:452 futex_wake:454 futex_wait:455
        futex_requeue:456 mseal:462
    ) ],

    # what programs are made of
    allowed => [ qw(
        accept:43 accept4:288 access:21 alarm:37 arch_prctl:158 bind:49
        brk:12 capget:125 capset:126 chdir:80 chmod:90 chown:92
        clock_getres:229 clock_gettime:228 clock_nanosleep:230 clone:56
        close:3 close_range:436 connect:42 copy_file_range:326 creat:85
        dup:32 dup2:33 dup3:292 epoll_create:213 epoll_create1:291
        epoll_ctl:233 epoll_ctl_old:214 epoll_pwait:281 epoll_pwait2:441
        epoll_wait:232 epoll_wait_old:215 eventfd:284 eventfd2:290
        execve:59 execveat:322 exit:60 exit_group:231 faccessat:269
        faccessat2:439 fadvise64:221 fallocate:285 fchdir:81 fchmod:91
        fchmodat:268 fchown:93 fchownat:260 fcntl:72 fdatasync:75
        fgetxattr:193 flistxattr:196 flock:73 fork:57 fremovexattr:199
        fsetxattr:190 fstat:5 fstatfs:138 fsync:74 ftruncate:77
        futex:202 futex_waitv:449 futimesat:261 get_mempolicy:239
        get_robust_list:274 get_thread_area:211 getcpu:309 getcwd:79
        getdents:78 getdents64:217 getegid:108 geteuid:107 getgid:104
        getgroups:115 getitimer:36 getpeername:52 getpgid:121
        getpgrp:111 getpid:39 getppid:110 getpriority:140 getrandom:318
        getresgid:120 getresuid:118 getrlimit:97 getrusage:98 getsid:124
        getsockname:51 getsockopt:55 gettid:186 gettimeofday:96
        getuid:102 getxattr:191 inotify_add_watch:254 inotify_init:253
        inotify_init1:294 inotify_rm_watch:255 ioctl:16 ioprio_get:252
        ioprio_set:251 kill:62 landlock_add_rule:445
        landlock_create_ruleset:444 landlock_restrict_self:446 lchown:94
        lgetxattr:192 link:86 linkat:265 listen:50 listxattr:194
        llistxattr:195 lremovexattr:198 lseek:8 lsetxattr:189 lstat:6
        madvise:28 membarrier:324 memfd_create:319 mincore:27 mkdir:83
        mkdirat:258 mknod:133 mknodat:259 mlock:149 mlock2:325
        mlockall:151 mmap:9 mprotect:10 mq_getsetattr:245 mq_notify:244
        mq_open:240 mq_timedreceive:243 mq_timedsend:242 mq_unlink:241
        mremap:25 msgctl:71 msgget:68 msgrcv:70 msgsnd:69 msync:26
        munlock:150 munlockall:152 munmap:11 nanosleep:35 newfstatat:262
        open:2 openat:257 openat2:437 pause:34 personality:135
        pidfd_open:434 pidfd_send_signal:424 pipe:22 pipe2:293
        pkey_alloc:330 pkey_free:331 pkey_mprotect:329 poll:7 ppoll:271
        prctl:157 pread64:17 preadv:295 preadv2:327 prlimit64:302
        process_madvise:440 pselect6:270 ptrace:101 pwrite64:18
        pwritev:296 pwritev2:328 read:0 readahead:187 readlink:89
        readlinkat:267 readv:19 recvfrom:45 recvmmsg:299 recvmsg:47
        remap_file_pages:216 removexattr:197 rename:82 renameat:264
        renameat2:316 restart_syscall:219 rmdir:84 rseq:334
        rt_sigaction:13 rt_sigpending:127 rt_sigprocmask:14
        rt_sigqueueinfo:129 rt_sigreturn:15 rt_sigsuspend:130
        rt_sigtimedwait:128 rt_tgsigqueueinfo:297
        sched_get_priority_max:146 sched_get_priority_min:147
        sched_getaffinity:204 sched_getattr:315 sched_getparam:143
        sched_getscheduler:145 sched_rr_get_interval:148
        sched_setaffinity:203 sched_setattr:314 sched_setparam:142
        sched_setscheduler:144 sched_yield:24 seccomp:317 select:23
        semctl:66 semget:64 semop:65 semtimedop:220 sendfile:40
        sendmmsg:307 sendmsg:46 sendto:44 set_robust_list:273
        set_thread_area:205 set_tid_address:218 setfsgid:123
        setfsuid:122 setgid:106 setgroups:116 setitimer:38 setpgid:109
        setpriority:141 setregid:114 setresgid:119 setresuid:117
        setreuid:113 setrlimit:160 setsid:112 setsockopt:54 setuid:105
        setxattr:188 shmat:30 shmctl:31 shmdt:67 shmget:29 shutdown:48
        sigaltstack:131 signalfd:282 signalfd4:289 socket:41
        socketpair:53 splice:275 stat:4 statfs:137 statx:332 symlink:88
        symlinkat:266 sync_file_range:277 syncfs:306 sysinfo:99 tee:276
        tgkill:234 time:201 timer_create:222 timer_delete:226
        timer_getoverrun:225 timer_gettime:224 timer_settime:223
        timerfd_create:283 timerfd_gettime:287 timerfd_settime:286
        times:100 tkill:200 truncate:76 umask:95 uname:63 unlink:87
        unlinkat:263 utime:132 utimensat:280 utimes:235 vfork:58
        vmsplice:278 wait4:61 waitid:247 write:1 writev:20
    ) ],
);

our $LAST = 600;              # well past the newest

my (%class, %name);

for (my $i = 0; $i < @POLICY; $i += 2) {
    for (@{ $POLICY[$i + 1] }) {
        my ($name, $nr) = /^(\w+):(\d+)$/ or die "bad row $_\n";
        die "$name: the number $nr twice\n" if exists $class{$nr};
        $class{$nr} = $POLICY[$i];
        $name{$nr} = $name;
    }
}


sub numbers { return 0 .. $LAST }

sub name { return $name{$_[0]} // "number $_[0]" }

sub class { return $class{$_[0]} // 'unknown' }


1;
