/*
 * What there is no room for: in the keeper's store (unkept.c), and among the
 * broker's own descriptors.
 */

#ifndef SBX_UNKEPT_H
#define SBX_UNKEPT_H

#include "broker.h"


/* The keeper's answers to a STORE. */
void sbx_unkept_refused(sbx_broker_t *b, const sbx_link_t *msg);
void sbx_unkept_stored(sbx_broker_t *b, const sbx_link_t *msg);
/* 0: there may be one more session. */
int sbx_unkept_admit(const sbx_broker_t *b, sbx_error_t *e);

/* control.c: of a control connection that was to be stored. */
void sbx_control_stored(sbx_broker_t *b, uint64_t number);
void sbx_control_refused(sbx_broker_t *b, uint64_t number);
/* Whether a descriptor that has just been opened is of those that are kept
 * free: one reserve for calls, two for sessions. */
int sbx_control_crowded(sbx_broker_t *b, int fd, unsigned reserves);


#endif
