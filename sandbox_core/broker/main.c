/* sandbox-broker: the keeper, and the broker that it runs. */

#include "broker.h"
#include "keeper.h"

#include <stdio.h>


int
main(int argc, char **argv)
{
    sbx_error_t    e;
    sbx_options_t  options;

    if (sbx_options_parse(argc, argv, &options, &e) != 0) {
        (void) fprintf(stderr, "sandbox-broker: %s\n", e.text);
        return 2;
    }

    return options.keeper ? sbx_keeper_main(&options)
                          : sbx_broker_main(&options);
}
