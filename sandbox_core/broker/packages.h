/*
 * What configuration gives sessions to install with; see packages.c.
 */

#ifndef SBX_BROKER_PACKAGES_H
#define SBX_BROKER_PACKAGES_H

#include "broker.h"


/* Begins as zeros; outlives the launch that points into it. */
typedef struct {
    char  *env;
    char  *trust;
} sbx_packages_own_t;


/* 1: what the master sent can be used. */
int sbx_packages_config_ok(const sbx_config_t *config);
/* Of a reload: sessions that begin have it.  1: it is other than it was. */
int sbx_packages_change(sbx_config_t *own, const sbx_config_t *config);

/*
 * Fills packages, and puts configuration's part before .env and after .trust,
 * which the caller has set; .trust counts where the template's sessions are
 * to trust the egress, and is the egress's certificate.  0 or -1.
 */
int sbx_packages_launch(const sbx_broker_t *b, const char *template,
    sbx_launch_t *launch, sbx_packages_own_t *own, sbx_error_t *e);
void sbx_packages_own_free(sbx_packages_own_t *own);


#endif
