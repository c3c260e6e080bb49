/*
 * Packages that are shown in a session, and certificates that it trusts
 * beside its machine's.
 */

#include "inside.h"


#define ID    "itest0000000000000000000001"
#define PEM   "-----BEGIN CERTIFICATE-----\nAdded\n-----END CERTIFICATE-----\n"


static int
inside_builtin(const char *name, const char *argument)
{
    (void) name;
    (void) argument;

    return 1;
}


static int
packages_test(void)
{
    char              dir[192], command[512];
    sbx_error_t       e;
    sbx_limits_t      limits;
    inside_session_t  s;

    inside_setup();
    inside_limits(&limits);

    (void) snprintf(dir, sizeof(dir), "%s/packages", inside_state);
    (void) snprintf(command, sizeof(command),
                    "mkdir -m 0755 %s && echo wheel > %s/file", dir, dir);

    if (!ok(system(command) == 0, "there are packages")) {
        inside_done();
        return done_testing();
    }

    inside_packages = dir;
    inside_trust = PEM;

    if (!ok(inside_launch(&s, ID, &limits, "base", &e) == 0, "a session: %s",
            e.text))
    {
        (void) inside_end(&s);
        inside_done();
        return done_testing();
    }

    inside_is(&s, "cat /opt/packages/file", "wheel\n", "packages are shown");
    inside_run_as(&s, SBX_USER_ROOT, NULL,
                  "exec 2>/dev/null; (echo x > /opt/packages/file);"
                  " (echo x > /opt/packages/more);"
                  " rm -f /opt/packages/file; ls /opt/packages");
    is_str(inside_reply.out, "file\n", "and nobody writes them");
    inside_ok(&s, "! grep -q sbx /proc/self/mountinfo",
              "nor learns where they are");

    inside_is(&s, "cat /etc/ssl/certs/sandbox-egress.pem", PEM,
              "certificates are a file of their own");
    inside_ok(&s, "tail -n 3 /etc/ssl/certs/ca-certificates.crt"
                  " | cmp - /etc/ssl/certs/sandbox-egress.pem",
              "and the end of the machine's");
    inside_is(&s, "stat -c '%a %u' /etc/ssl/certs/*sandbox-egress.pem"
                  " /etc/ssl/certs/ca-certificates.crt | sort -u",
              "644 0\n", "its user does not write them");

    if (access("/etc/ssl/certs/ca-certificates.crt", R_OK) == 0) {
        inside_ok(&s, "test $(grep -c BEGIN"
                      " /etc/ssl/certs/ca-certificates.crt) -gt 1",
                  "which are all there");
    }

    ok(inside_end(&s) == 0, "it ends");

    /* an operator may take them away while the server runs */

    (void) snprintf(command, sizeof(command), "rm -r %s", dir);
    ok(system(command) == 0, "packages are removed");
    inside_trust = NULL;

    if (ok(inside_launch(&s, ID, &limits, "base", &e) == 0,
           "sessions are made none the less: %s", e.text))
    {
        inside_is(&s, "ls /opt/packages", "", "where there is nothing");
        inside_ok(&s, "! test -e /etc/ssl/certs/sandbox-egress.pem",
                  "and no certificate where none is added");
    }

    ok(inside_end(&s) == 0, "nothing is left");
    inside_done();

    return done_testing();
}


int
main(int argc, char **argv)
{
    (void) argc;

    return inside_test(argv, packages_test);
}
