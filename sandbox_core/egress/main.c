/* sandbox-egress: see egress.h. */

#include "egress.h"
#include "isolate.h"

#include <sys/prctl.h>


int
main(void)
{
    /* it was started from memory, and would have that name */
    (void) prctl(PR_SET_NAME, "sandbox-egress", 0, 0, 0);

    return sbx_egress_run(SBX_EGRESS_FD, SBX_EGRESS_CA_FD,
                          SBX_EGRESS_CERT_FD, sbx_egress_confine);
}
