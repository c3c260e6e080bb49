/*
 * sandboxctl doctor: the checks of GET /doctor, without any server.
 */

#include "sandboxctl.h"

#include "layers.h"

#include <string.h>


#define SBX_CTL_UID_FIRST   1073741824    /* where sandbox_uid_range begins */


typedef struct {
    int       json;
    unsigned  n;
    unsigned  missing;
} sbx_ctl_checks_t;


static void sbx_ctl_check(const sbx_f_check_t *c, void *data);


int
sbx_ctl_doctor(const sbx_ctl_command_t *command, int argc, char **argv)
{
    int                     code;
    const char             *state, *templates;
    sbx_error_t             e;
    sbx_probe_t             probe;
    sbx_cgroup_t           *cg;
    sbx_doctor_t            d;
    sbx_ctl_checks_t        checks;
    static sbx_layers_t     layers;
    const sbx_ctl_option_t  options[] = {
        { "--state", &state, NULL },
        { "--templates", &templates, NULL },
        { "--json", NULL, &checks.json },
        { NULL, NULL, NULL }
    };

    state = SBX_CTL_STATE;
    templates = SBX_CTL_TEMPLATES;
    memset(&checks, 0, sizeof(sbx_ctl_checks_t));

    if (sbx_ctl_options(command, argc, argv, options, &code) != 0) {
        return code;
    }

    memset(&d, 0, sizeof(sbx_doctor_t));
    memset(&probe, 0, sizeof(sbx_probe_t));
    probe.state_dir = state;
    probe.template_dir = templates;
    probe.uid_first = SBX_CTL_UID_FIRST;
    probe.storage_dir = layers.storage_dir;
    sbx_storage_named(NULL, state, layers.storage_dir,
                      sizeof(layers.storage_dir));
    cg = NULL;

    sbx_probe(&probe, &layers.probed);

    if (sbx_cgroup_open(NULL, SBX_CTL_GROUP, &cg, &e) != 0) {
        cg = NULL;
        d.cgroup_error = &e;
    }

    sbx_layers_settle(&layers, cg);

    d.state_dir = state;
    d.template_dir = templates;
    d.layers = &layers;
    d.cgroup = cg;
    d.require_isolation = 1;

    sbx_doctor(&d, sbx_ctl_check, &checks);

    if (cg != NULL) {
        sbx_cgroup_close(cg);
    }

    if (checks.json) {
        (void) printf("],\"ok\":%s}\n", checks.missing ? "false" : "true");
    }

    return checks.missing ? SBX_CTL_FAILED : SBX_CTL_OK;
}


static void
sbx_ctl_check(const sbx_f_check_t *c, void *data)
{
    sbx_ctl_checks_t  *checks;

    checks = data;
    checks->missing += !c->ok && c->required;

    if (checks->json) {
        (void) printf("%s{", checks->n++ ? "," : "{\"checks\":[");
        sbx_ctl_json_member(0, "name", c->name);
        (void) printf(",\"ok\":%s,\"required\":%s", c->ok ? "true" : "false",
                      c->required ? "true" : "false");
        sbx_ctl_json_member(1, "found", c->found);

        if (c->ok) {
            (void) printf(",\"mend\":null}");

        } else {
            sbx_ctl_json_member(1, "mend", c->mend);
            (void) printf("}");
        }

        return;
    }

    (void) printf("%-8s %s: ", c->ok ? "ok" : c->required ? "MISSING" : "note",
                  c->name);
    sbx_ctl_text(c->found, 0);
    (void) printf("\n");

    if (!c->ok) {
        (void) printf("%-8s ", "");
        sbx_ctl_text(c->mend, 0);
        (void) printf("\n");
    }
}
