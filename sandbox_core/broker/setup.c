#include "broker.h"
#include "packages.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>


#define SBX_SETUP_AGAIN_MIN   500       /* ms */
#define SBX_SETUP_AGAIN_MAX   10000


static int sbx_setup_parts(sbx_broker_t *b, sbx_error_t *e);
static int sbx_setup_programs(sbx_broker_t *b, sbx_error_t *e);
static int sbx_setup_groups(sbx_broker_t *b, const char *name,
    sbx_error_t *e);
static int sbx_setup_storage(sbx_broker_t *b, sbx_error_t *e);
static void sbx_setup_probe(sbx_broker_t *b);
static void sbx_setup_again(sbx_timer_t *timer);
static void sbx_setup_tell(const sbx_broker_t *b,
    const sbx_config_t *config);
static int sbx_setup_isolation(sbx_broker_t *b, sbx_error_t *e);
static void sbx_setup_empty(sbx_broker_t *b);
static void sbx_setup_egress(sbx_broker_t *b, const sbx_config_t *config);


int
sbx_setup(sbx_broker_t *b, sbx_error_t *e)
{
    b->configured = 0;
    b->setup_timer.handler = sbx_setup_again;
    b->setup_timer.data = b;

    if (sbx_setup_base(b, e) != 0 || sbx_sweep(b, e) != 0
        || sbx_setup_parts(b, e) != 0 || sbx_setup_keep_config(b, e) != 0)
    {
        b->problem = *e;

        if (!b->restored) {
            sbx_setup_undo(b);
        }

        b->setup_delay = b->setup_delay ? b->setup_delay * 2
                                        : SBX_SETUP_AGAIN_MIN;

        if (b->setup_delay > SBX_SETUP_AGAIN_MAX) {
            b->setup_delay = SBX_SETUP_AGAIN_MAX;
        }

        sbx_timer_set(&b->loop, &b->setup_timer, b->setup_delay);

        return -1;
    }

    (void) sbx_error(&b->problem, 0, SBX_OK, "%s", "");
    sbx_timer_del(&b->loop, &b->setup_timer);
    b->setup_delay = 0;
    b->configured = 1;
    b->ever_configured = 1;
    b->restored = 1;
    sbx_outlet_configure(b);
    sbx_outlet_await(b);
    sbx_pool_configure(b);

    return 0;
}


/* What was lacking may be there by now: memory, descriptors, room on a disk.
 * Sessions live on meanwhile. */

static void
sbx_setup_again(sbx_timer_t *timer)
{
    char           before[sizeof(((sbx_error_t *) 0)->text)];
    sbx_error_t    e;
    sbx_broker_t  *b;

    b = timer->data;

    if (b->configured || b->ending) {
        return;
    }

    memcpy(before, b->problem.text, sizeof(before));

    if (sbx_setup(b, &e) == 0) {
        sbx_log(SBX_LOG_NOTICE, NULL, 0, "sessions can be made now");

    } else if (strcmp(before, e.text) != 0) {
        sbx_log_error(SBX_LOG_ERROR, NULL, &e, "no session can be made");
    }
}


/*
 * The layers before anything else, so that /doctor can tell why the rest
 * failed.  What an earlier broker has found out is not looked for again.
 */

int
sbx_setup_base(sbx_broker_t *b, sbx_error_t *e)
{
    char  name[32];

    if (b->based) {
        return 0;
    }

    if (b->known.set) {
        b->layers.probed = b->known.probed;
        sbx_storage_named(b->config.storage_dir, b->options->state_dir,
                          b->layers.storage_dir,
                          sizeof(b->layers.storage_dir));

    } else {
        sbx_setup_probe(b);

        if (sbx_preflight(b->options->state_dir, e) != 0) {
            return -1;
        }
    }

    (void) snprintf(name, sizeof(name), "sandbox-%s", b->tag);

    if (sbx_ids_open(b, e) != 0) {
        return -1;
    }

    if (sbx_setup_groups(b, name, e) != 0) {
        b->cgroup_error = *e;
        return -1;
    }

    if (sbx_setup_storage(b, e) != 0) {
        return -1;
    }

    sbx_layers_settle(&b->layers, b->cgroup);
    sbx_layers_storage(&b->layers, b->storage);
    b->based = 1;

    return 0;
}


/* What making sessions needs besides.  It may have been done in part. */

static int
sbx_setup_parts(sbx_broker_t *b, sbx_error_t *e)
{
    return sbx_preflight(b->options->state_dir, e) == 0
           && sbx_token_key(b, e) == 0
           && sbx_setup_isolation(b, e) == 0
           && sbx_setup_programs(b, e) == 0
           && sbx_base_prepare(b->options->state_dir, e) == 0 ? 0 : -1;
}


static int
sbx_setup_programs(sbx_broker_t *b, sbx_error_t *e)
{
    char  path[SBX_PATH_MAX];

    if (snprintf(path, sizeof(path), "%s/sandbox-init",
                 b->options->helper_dir)
        >= (int) sizeof(path))
    {
        return sbx_error(e, 0, SBX_E_UNAVAILABLE,
                         "sandbox_helper_dir is too long");
    }

    if ((b->init_exe == -1 && sbx_init_exe(path, &b->init_exe, e) != 0)
        || (b->filter == NULL
            && sbx_seccomp_rest(&b->filter, &b->filter_size, e) != 0)
        || (b->files_filter == NULL
            && sbx_seccomp_files(&b->files_filter, &b->files_filter_size, e)
               != 0)
        || (b->init_filter == NULL
            && sbx_seccomp_init(&b->init_filter, &b->init_filter_size, e)
               != 0))
    {
        return -1;
    }

    return 0;
}


/* What has once been seen to work does: a probe may fail for a moment's lack
 * of memory as well. */

static void
sbx_setup_probe(sbx_broker_t *b)
{
    size_t        i;
    sbx_probe_t   probe;
    sbx_probed_t  probed;

    b->probed = 1;

    memset(&probe, 0, sizeof(sbx_probe_t));
    probe.state_dir = b->options->state_dir;
    probe.template_dir = b->config.template_dir;
    probe.uid_first = b->config.uid_first;
    probe.storage_dir = b->layers.storage_dir;
    sbx_storage_named(b->config.storage_dir, b->options->state_dir,
                      b->layers.storage_dir, sizeof(b->layers.storage_dir));

    sbx_probe(&probe, &probed);

    for (i = 0; b->known.set && i < SBX_LAYER_MAX; i++) {
        if (b->known.probed.err[i] == 0) {
            probed.err[i] = 0;
        }
    }

    b->layers.probed = probed;
    sbx_layers_settle(&b->layers, b->cgroup);
}


/* Where those of the broker before are, though the keeper may have been moved
 * to another group since; a group that is gone had nothing alive in it. */

static int
sbx_setup_groups(sbx_broker_t *b, const char *name, sbx_error_t *e)
{
    if (b->known.set) {
        if (sbx_cgroup_again(b->config.cgroup, name, &b->known.cgroup,
                             &b->cgroup, e)
            == 0)
        {
            return 0;
        }

        if (e->err != ENOENT) {
            return -1;
        }

        sbx_log_error(SBX_LOG_WARN, NULL, e,
                      "the control groups of the broker before are gone");
    }

    return sbx_cgroup_open(b->config.cgroup, name, &b->cgroup, e);
}


static int
sbx_setup_storage(sbx_broker_t *b, sbx_error_t *e)
{
    const char  *lacks;

    if (b->known.set) {
        return sbx_storage_again(&b->known.storage, b->config.storage_dir,
                                 b->options->state_dir, b->tag, &b->storage,
                                 e);
    }

    if (sbx_storage_open((sbx_storage_kind_t) b->config.storage,
                         b->config.storage_dir, b->options->state_dir, b->tag,
                         &b->storage, e)
        != 0)
    {
        return -1;
    }

    lacks = sbx_storage_lacks(b->storage);

    if (lacks[0] != '\0') {
        sbx_log(SBX_LOG_NOTICE, NULL, 0,
                sbx_storage_kind(b->storage) == SBX_STORAGE_TMPFS
                ? "files of sessions are kept in memory: %s"
                : "the disk of sessions is not limited: %s", lacks);
    }

    return 0;
}


/* What a session that misses a layer means is up to who asks for it. */

static int
sbx_setup_isolation(sbx_broker_t *b, sbx_error_t *e)
{
    char      names[128];
    size_t    i;
    uint64_t  weak;

    /* what was lacking may be there now */

    for (i = 0; !b->probed && i < SBX_LAYER_MAX; i++) {
        if (b->layers.probed.err[i] != 0) {
            sbx_setup_probe(b);
        }
    }

    sbx_layers_settle(&b->layers, b->cgroup);
    sbx_layers_storage(&b->layers, b->storage);

    if (sbx_layers_needed(&b->layers, e) != 0) {
        b->probed = 0;
        return -1;
    }

    memset(&b->enforcement, 0, sizeof(sbx_enforcement_t));
    sbx_cgroup_enforcement(b->cgroup, &b->enforcement);
    sbx_layers_enforcement(&b->layers, &b->enforcement);
    sbx_storage_enforcement(b->storage, &b->enforcement);

    weak = sbx_layers_weak(&b->layers);
    b->isolated = weak == 0;

    if (weak != 0) {
        sbx_layers_names(weak, names, sizeof(names));
        sbx_log(SBX_LOG_WARN, NULL, 0,
                "this machine lacks layers of isolation: %s; sessions are "
                "%s; to mend it: %s", names,
                b->config.require_isolation
                ? "refused (sandbox_require_isolation)"
                : "made without them where they ask for no more",
                sbx_layers_mend(&b->layers, weak));
    }

    return 0;
}


void
sbx_setup_doctor(const sbx_broker_t *b, sbx_doctor_t *d)
{
    memset(d, 0, sizeof(sbx_doctor_t));
    d->state_dir = b->options->state_dir;
    d->template_dir = b->config.template_dir;
    d->layers = &b->layers;
    d->cgroup = b->cgroup;
    d->cgroup_error = b->cgroup_error.code != SBX_OK ? &b->cgroup_error
                                                     : NULL;
    d->require_isolation = b->config.require_isolation;
}


/*
 * The next broker starts with what this one was told last, and with what the
 * first one has found out of the machine.
 */

int
sbx_setup_keep_config(sbx_broker_t *b, sbx_error_t *e)
{
    sbx_auto_fd  fd = -1;

    if (b->based) {
        b->known.set = 1;
        b->known.probed = b->layers.probed;
        sbx_storage_known(b->storage, &b->known.storage);
        sbx_cgroup_known(b->cgroup, &b->known.cgroup);
    }

    fd = sbx_setup_config_fd(b);

    if (fd == -1
        || sbx_broker_tell(b, SBX_LINK_STORE, SBX_KEEP_CONFIG, 0, NULL, &fd)
           != 0)
    {
        return sbx_error(e, errno, SBX_E_UNAVAILABLE,
                         "cannot keep the configuration");
    }

    return 0;
}


int
sbx_setup_config_fd(const sbx_broker_t *b)
{
    sbx_auto_fd  fd = -1;

    fd = memfd_create("config", MFD_CLOEXEC);

    if (fd == -1
        || sbx_write_all(fd, &b->config, sizeof(sbx_config_t)) == -1
        || sbx_write_all(fd, &b->known, sizeof(sbx_known_t)) == -1)
    {
        return -1;
    }

    return sbx_steal_fd(&fd);
}


int
sbx_setup_stored(sbx_broker_t *b, int fd)
{
    int  rc;

    rc = pread(fd, &b->config, sizeof(sbx_config_t), 0)
         == sizeof(sbx_config_t)
         && pread(fd, &b->known, sizeof(sbx_known_t), sizeof(sbx_config_t))
            == sizeof(sbx_known_t);

    (void) close(fd);

    if (!rc) {
        memset(&b->known, 0, sizeof(sbx_known_t));

        return sbx_error(&b->problem, 0, SBX_E_UNAVAILABLE,
                         "the stored configuration is of another size");
    }

    b->restored = 1;

    return 0;
}


/* For whom the new values count. */

static void
sbx_setup_tell(const sbx_broker_t *b, const sbx_config_t *config)
{
    unsigned             i, n;
    const sbx_config_t  *own;

    own = &b->config;

    if (memcmp(&own->max, &config->max, sizeof(own->max)) != 0
        || memcmp(&own->quotas, &config->quotas, sizeof(own->quotas)) != 0
        || memcmp(own->defaults, config->defaults, sizeof(own->defaults))
           != 0)
    {
        sbx_log(SBX_LOG_NOTICE, NULL, 0,
                "new limits and quotas count for new sessions, %u go on as "
                "they are", b->nrunning);
    }

    for (i = 0, n = b->quotas.nlive; i < SBX_SETTINGS; i++) {
        n += b->quotas.settings[i].value != SBX_UNSET;
    }

    if (n != 0) {
        sbx_log(SBX_LOG_NOTICE, NULL, 0,
                "%u quotas and settings of the admin API win over the "
                "configuration", n);
    }
}


void
sbx_setup_change(sbx_broker_t *b, const sbx_config_t *config)
{
    sbx_error_t    e;
    sbx_config_t  *own;

    own = &b->config;

    if (own->uid_first != config->uid_first
        || own->uid_count != config->uid_count)
    {
        sbx_log(SBX_LOG_WARN, NULL, 0,
                "sandbox_uid_range has changed: the new one is used when the "
                "broker is started anew");
    }

    if (strcmp(own->cgroup, config->cgroup) != 0) {
        sbx_log(SBX_LOG_WARN, NULL, 0,
                "sandbox_cgroup has changed: the new one is used when the "
                "broker is started anew");
    }

    if (own->storage != config->storage
        || strcmp(own->storage_dir, config->storage_dir) != 0)
    {
        sbx_log(SBX_LOG_WARN, NULL, 0,
                "sandbox_storage has changed: the new one is used when the "
                "broker is started anew");
    }

    sbx_setup_tell(b, config);

    own->max = config->max;
    own->require_isolation = config->require_isolation;
    memcpy(own->template_dir, config->template_dir,
           sizeof(own->template_dir));
    memcpy(own->binds, config->binds, sizeof(own->binds));
    own->binds_size = config->binds_size;
    own->quotas = config->quotas;
    memcpy(own->templates, config->templates, sizeof(own->templates));
    memcpy(own->defaults, config->defaults, sizeof(own->defaults));
    own->pools = config->pools;
    sbx_setup_egress(b, config);

    if (sbx_packages_change(own, config)) {
        sbx_setup_empty(b);
    }

    sbx_pool_configure(b);

    if (sbx_setup_keep_config(b, &e) != 0) {
        sbx_log_error(SBX_LOG_WARN, NULL, &e, "new configuration");
    }
}


/* Sessions made ahead have what there was when they were launched. */

static void
sbx_setup_empty(sbx_broker_t *b)
{
    unsigned  i;

    for (i = 0; i < b->pools.count; i++) {
        sbx_pool_empty(b->pools.pool[i]);
    }
}


/* And they trust what they were told then. */

static void
sbx_setup_egress(sbx_broker_t *b, const sbx_config_t *config)
{
    unsigned       i;
    const char    *name;
    sbx_config_t  *own;

    own = &b->config;

    if (own->egress_size == config->egress_size
        && memcmp(own->egress, config->egress, own->egress_size) == 0)
    {
        /* files that it names may be others all the same */
        sbx_outlet_configure(b);
        return;
    }

    for (i = 0; i < b->pools.count; i++) {
        name = b->pools.pool[i]->config.template;

        if (sbx_egress_table_tls(own->egress, own->egress_size, name)
            != sbx_egress_table_tls(config->egress, config->egress_size,
                                    name))
        {
            sbx_pool_empty(b->pools.pool[i]);
        }
    }

    memcpy(own->egress, config->egress, sizeof(own->egress));
    own->egress_size = config->egress_size;
    sbx_outlet_configure(b);
}


void
sbx_setup_undo(sbx_broker_t *b)
{
    b->configured = 0;
    b->based = 0;
    memset(&b->known, 0, sizeof(sbx_known_t));

    if (b->cgroup != NULL) {
        sbx_cgroup_close(b->cgroup);
        b->cgroup = NULL;
    }

    sbx_storage_close(b->storage);
    b->storage = NULL;

    if (b->init_exe != -1) {
        (void) close(b->init_exe);
        b->init_exe = -1;
    }

    free(b->filter);
    free(b->files_filter);
    free(b->init_filter);
    b->filter = NULL;
    b->files_filter = NULL;
    b->init_filter = NULL;

    if (b->nsessions == 0) {
        sbx_sweep_close(b);
        sbx_ids_close(b);
    }
}
