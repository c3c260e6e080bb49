/* For tests of what a process can do only once, or must not do to the test. */

#ifndef SBX_TEST_IN_CHILD_H
#define SBX_TEST_IN_CHILD_H

#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>


/* Runs body() in a child; its status. */
static int
in_child(int (*body)(void))
{
    int    status;
    pid_t  pid;

    (void) fflush(stdout);
    pid = fork();

    if (pid == 0) {
        _exit(body());
    }

    return (waitpid(pid, &status, 0) == pid && WIFEXITED(status))
           ? WEXITSTATUS(status) : -1;
}


#endif
