/* sandbox-broker: the keeper, and the broker that it runs. */

#include "broker.h"
#include "keeper.h"

#include <stdio.h>
#include <sys/prctl.h>


#if defined(__SANITIZE_ADDRESS__)
#define SBX_LEAK_CHECK  1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SBX_LEAK_CHECK  1
#endif
#endif


int
main(int argc, char **argv)
{
    int            rc;
    sbx_error_t    e;
    sbx_options_t  options;

    if (sbx_options_parse(argc, argv, &options, &e) != 0) {
        (void) fprintf(stderr, "sandbox-broker: %s\n", e.text);
        return 2;
    }

    rc = options.keeper ? sbx_keeper_main(&options)
                        : sbx_broker_main(&options);

    if (rc != 0) {
        _exit(rc);
    }

#ifdef SBX_LEAK_CHECK
    /* the search for leaks looks at this process as a debugger does */
    (void) prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
#endif

    return 0;
}
