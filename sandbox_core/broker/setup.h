/*
 * How a broker comes to be able to serve, and to make, sessions: from its
 * configuration, and from what an earlier one has left.
 */

#ifndef SBX_SETUP_H
#define SBX_SETUP_H

#include "isolate.h"
#include "layers.h"
#include "link.h"
#include "loop.h"
#include "network.h"
#include "storage.h"


typedef struct {
    char              id[SBX_ID_MAX + 8];
    uint64_t          first;          /* ids that it has; 0: none of ours */
} sbx_left_group_t;

typedef struct {
    sbx_timer_t       timer;
    sbx_left_group_t *groups;         /* that do not die */
    size_t            n;
    size_t            size;
    unsigned          known:1;        /* all of it: no other ids are in use */
} sbx_left_t;

/* What a broker has found out of the machine, for those that come after it:
 * none of them is to decide anew what sessions were made with. */

typedef struct {
    uint32_t             set;
    sbx_probed_t         probed;
    sbx_storage_known_t  storage;
    sbx_cgroup_known_t   cgroup;
} sbx_known_t;


/* setup.c */
/*
 * From b->config.  _base: what sessions that run need, and nothing that might
 * be lacking for a while.  sbx_setup(): all of it; -1: it tries again by
 * itself, and b->problem says why no session can be made until then.
 */
int sbx_setup_base(sbx_broker_t *b, sbx_error_t *e);
int sbx_setup(sbx_broker_t *b, sbx_error_t *e);
void sbx_setup_undo(sbx_broker_t *b);
/* The configuration in the keeper's store: written, and read. */
int sbx_setup_config_fd(const sbx_broker_t *b);
int sbx_setup_stored(sbx_broker_t *b, int fd);
/* A configuration that came later. */
void sbx_setup_doctor(const sbx_broker_t *b, sbx_doctor_t *d);
void sbx_setup_change(sbx_broker_t *b, const sbx_config_t *config);

/* Reads the key of tokens, or makes it. */
int sbx_token_key(sbx_broker_t *b, sbx_error_t *e);
int sbx_setup_keep_config(sbx_broker_t *b, sbx_error_t *e);

/* adopt.c: at start; msg and fds from the keeper's store.  -1: no memory for
 * it. */
int sbx_adopt_session(sbx_broker_t *b, const sbx_link_t *msg, int *fds);
/* Removes <sessions>/<id> with what is in it, mounts first. */
void sbx_adopt_remove_dir(sbx_broker_t *b, const char *id);

/*
 * sweep.c: what no session of the table owns.  0: all of it is gone or going,
 * and the ids that are still in use are taken; -1: that is not known.
 */
int sbx_sweep(sbx_broker_t *b, sbx_error_t *e);
void sbx_sweep_close(sbx_broker_t *b);


#endif
