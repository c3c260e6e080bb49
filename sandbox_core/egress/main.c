/* sandbox-egress: see egress.h. */

#include "egress.h"
#include "isolate.h"


int
main(void)
{
    return sbx_egress_run(SBX_EGRESS_FD, SBX_EGRESS_CA_FD,
                          SBX_EGRESS_CERT_FD, sbx_egress_confine);
}
