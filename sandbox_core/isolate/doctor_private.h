/*
 * The checks of /doctor: a table of rows, each with what it looks at.
 */

#ifndef SBX_DOCTOR_PRIVATE_H
#define SBX_DOCTOR_PRIVATE_H

#include "layers.h"
#include "isolate_private.h"
#include "cgroup_private.h"


/* A setting of the kernel that must be at least min and at most max. */
typedef struct {
    const char   *name;           /* as sysctl writes it */
    int64_t       min;
    int64_t       max;
    const char   *value;          /* to be set */
    const char   *why;
} sbx_doctor_sysctl_t;

typedef struct sbx_doctor_row_s  sbx_doctor_row_t;

/* Fills found, and mend where it returns 0.  c->required is the row's
 * before, and may be changed. */
typedef int (*sbx_doctor_run_pt)(const sbx_doctor_t *d,
    const sbx_doctor_row_t *row, sbx_f_check_t *c);

struct sbx_doctor_row_s {
    const char           *name;
    unsigned              required;
    sbx_doctor_run_pt     run;
    sbx_layer_t           layer;      /* of sbx_check_layer() */
    sbx_doctor_sysctl_t   sysctl;     /* of sbx_check_sysctl() */
};

/* doctor_host.c: what is the host's own; ends with a NULL name. */
extern const sbx_doctor_row_t  sbx_doctor_host[];

void sbx_check_found(sbx_f_check_t *c, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
void sbx_check_mend(sbx_f_check_t *c, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* A drop-in for the service that this process is of, and its restart. */
void sbx_check_unit(sbx_f_check_t *c, const char *setting);
/* ENOENT where a probe found nothing out. */
const char *sbx_check_why(const sbx_doctor_t *d, sbx_layer_t layer);

int sbx_check_layer(const sbx_doctor_t *d, const sbx_doctor_row_t *row,
    sbx_f_check_t *c);
int sbx_check_disk(const sbx_doctor_t *d, const sbx_doctor_row_t *row,
    sbx_f_check_t *c);
int sbx_check_inodes(const sbx_doctor_t *d, const sbx_doctor_row_t *row,
    sbx_f_check_t *c);


#endif
