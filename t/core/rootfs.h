/*
 * For tests of sessions in a template with a root file system of its own:
 * one is made in the state directory, of busybox and of what the stand-in for
 * init needs.
 */

#ifndef SBX_TEST_ROOTFS_H
#define SBX_TEST_ROOTFS_H

#include "inside.h"

#include <limits.h>


/* No command of the test itself: all that is run is busybox's. */
static int
inside_builtin(const char *name, const char *argument)
{
    (void) name;
    (void) argument;

    return 1;
}


/* In the state directory. */
static int
shell(const char *command)
{
    char  text[PATH_MAX + 8192];

    (void) snprintf(text, sizeof(text), "cd '%s' && { %s; }", inside_state,
                    command);

    return system(text);
}


/* NAME/rootfs with sh and the programs, and users' names. */
static int
make_base(const char *name, const char *programs)
{
    char  command[2048];

    (void) snprintf(command, sizeof(command),
                    "R=%s/rootfs; mkdir -p $R/bin $R/etc $R/usr/bin"
                    " && cp /bin/busybox $R/bin/"
                    " && for i in sh %s; do"
                    "   ln -s busybox $R/bin/$i || exit 1; done"
                    " && for i in $(ldd /proc/$PPID/exe | grep -o '/[^ ]*');"
                    "   do mkdir -p $R/$(dirname $i)"
                    "   && cp -L $i $R/$i || exit 1; done"
                    " && echo 'root:x:0:0:r:/root:/bin/sh' > $R/etc/passwd",
                    name, programs);

    return shell(command);
}


#endif
