/*
 * File rules in a template whose links are nobody's word: what they lead to
 * is of the session, their names stay, and the host sees nothing of it.
 */

#include "rootfs.h"

#include "sandbox_rules.h"


#define ID  "itest0000000000000000000031"


static int
make_rootfs(void)
{
    if (make_base("links", "id ls cat touch stat wc mv rm mkdir ln readlink"
                           " rmdir")
        != 0)
    {
        return -1;
    }

    return shell("R=links/rootfs; mkdir -p"
                 " $R/home/user/real $R/opt/repo/git $R/opt/keys"
                 " $R/srv/tree/deep"
                 " && echo config > $R/opt/repo/git/config"
                 " && echo key > $R/opt/keys/key"
                 " && echo real > $R/home/user/real/file"
                 " && echo deep > $R/srv/tree/deep/file"
                 " && chown -R 1000:1000 $R/home/user $R/opt/repo $R/srv"
                 " && ln -s /opt/repo/git $R/home/user/.git"
                 " && ln -s ../../opt/keys/key $R/home/user/key"
                 " && ln -s keys $R/opt/alias"
                 " && ln -s /opt/alias/../alias/./key $R/home/user/winding"
                 " && ln -s ../../../../../../../../../etc/shadow"
                 "   $R/home/user/shadow"
                 " && ln -s b $R/home/user/a && ln -s a $R/home/user/b"
                 " && ln -s /opt/none/file $R/home/user/dangling"
                 " && ln -s none/../../x $R/home/user/up-from-none"
                 " && ln -s /proc/self/root $R/home/user/proc"
                 " && ln -s proc/.. $R/home/user/through-proc"
                 " && ln -s / $R/home/user/slash"
                 " && ln -s /dev/shm $R/home/user/shm"
                 " && ln -s /etc $R/mnt && mkdir -p $R/var"
                 " && chown -h 1000:1000 $R/home/user/*");
}


#define LAUNCH(s, rules)  launch(s, rules, sizeof(rules) - 1)

static int
launch(inside_session_t *s, const char *rules, size_t size)
{
    sbx_error_t   e;
    sbx_limits_t  limits;

    inside_limits(&limits);
    inside_rules = rules;
    inside_rules_size = size;

    if (inside_launch(s, ID, &limits, "links", &e) == -1) {
        ok(0, "a session starts: %s", e.text);
        return -1;
    }

    return 0;
}


static void
both_is(inside_session_t *s, const char *command, const char *expected,
    const char *name)
{
    inside_is(s, command, expected, name);
    inside_run_as(s, SBX_USER_ROOT, NULL, command);
    is_str(inside_reply.out, expected, "and to the session's root");
}


static void
test_refused(const char *rules, size_t size, const char *text)
{
    int               rc;
    sbx_error_t       e;
    sbx_limits_t      limits;
    inside_session_t  s;

    inside_limits(&limits);
    inside_rules = rules;
    inside_rules_size = size;

    rc = inside_launch(&s, ID, &limits, "links", &e);

    ok(rc == -1 && e.code == SBX_E_MANIFEST && strstr(e.text, text) != NULL,
       "%s is refused: %s", rules, rc == -1 ? e.text : "not at all");
    ok(inside_end(&s) == 0, "and nothing is left");
}


static void
test_read(void)
{
    inside_session_t  s;

    if (LAUNCH(&s, "R/home/user/key\0R/home/user/.git/\0"
                   "R/home/user/shadow\0R/home/user/dangling\0") == -1)
    {
        (void) inside_end(&s);
        return;
    }

    both_is(&s, "for f in key .git/config /opt/keys/key /opt/repo/git/config"
            " winding shadow /etc/shadow dangling /opt/none/file; do"
            " cat $f 2>/dev/null && echo $f; ls -A $f/ 2>/dev/null; done",
            "", "what a link leads to is not read, by whichever name");
    both_is(&s, "for l in key .git shadow dangling; do"
            " rm -rf $l; mv $l x; ln -sf /bin/sh $l; mkdir $l; done"
            " 2>/dev/null; for l in key .git shadow dangling; do readlink $l;"
            " done",
            "../../opt/keys/key\n/opt/repo/git\n"
            "../../../../../../../../../etc/shadow\n/opt/none/file\n",
            "the links stay as they are");
    both_is(&s, "for d in /opt /opt/keys /opt/repo /opt/none /etc /home; do"
            " mv $d /moved && echo moved; done 2>/dev/null", "",
            "and so does what is above");
    inside_is(&s, "cat real/file; echo new > real/file; mv real reel;"
              " cat reel/file", "real\nnew\n", "what is beside is as ever");
    ok(inside_end(&s) == 0, "nothing is left of the session");
}


static void
test_write(void)
{
    inside_session_t  s;

    if (LAUNCH(&s, "W/home/user/.git\0W/home/user/winding\0"
                   "W/home/user/dangling\0W/srv/tree\0"
                   "W/home/user/real/file/below\0w/opt\0") == -1)
    {
        (void) inside_end(&s);
        return;
    }

    both_is(&s, "for f in .git/config .git/new /opt/repo/git/config winding"
            " /opt/keys/key /opt/alias/key dangling /opt/none/file"
            " /srv/tree/new /srv/tree/deep/file; do"
            " { echo x > $f && echo $f; } 2>/dev/null; done;"
            " rm -rf .git winding dangling /srv/tree/deep /opt/alias"
            " /opt/keys 2>/dev/null;"
            " cat .git/config winding dangling /srv/tree/deep/file",
            "config\nkey\ndeep\n", "what a link leads to is not written");
    both_is(&s, "rm -f real/file 2>/dev/null; mv real/file x 2>/dev/null;"
            " mv real x 2>/dev/null; mkdir -p real/file/below 2>/dev/null;"
            " ls -d real/file/below 2>/dev/null; cat real/file", "real\n",
            "a file stays where a directory would make the path");
    inside_is(&s, "echo new > real/file; cat real/file; touch /opt/x && rm"
              " /opt/x && mkdir /opt/repo/y && ls /opt/repo", "new\ngit\ny\n",
              "what is beside is as ever");
    ok(inside_end(&s) == 0, "nothing is left of the session");
}


/* A template's own link of that name leads nowhere. */
static void
test_bind(void)
{
    size_t            n;
    char              table[512];
    inside_session_t  s;

    n = (size_t) snprintf(table, sizeof(table), "rkeys%c%s/offer%c%c", 0,
                          inside_state, 0, 0);
    inside_binds = table;
    inside_binds_size = n;

    if (LAUNCH(&s, "Bkeys\0R/mnt/keys/secret\0R/mnt/keys/none\0") != -1) {
        both_is(&s, "cat /mnt/keys/file; cat /mnt/keys/secret"
                " /mnt/keys/none /etc/keys/file 2>/dev/null;"
                " touch /mnt/keys/x 2>/dev/null; ls /mnt /mnt/keys",
                "offered\n/mnt:\nkeys\n\n/mnt/keys:\nfile\nsecret\n",
                "a directory of the host is at its place");
    }

    ok(inside_end(&s) == 0, "nothing is left of the session");
    inside_binds_size = 0;
    test_refused("Bkeys", 6,
                 "/manifest/filesystem/binds/0: " SBX_BIND_REFUSED);
}


static int
rules_test(void)
{
    sbx_error_t       e;
    sbx_limits_t      limits;
    inside_session_t  s;

    if (access("/bin/busybox", X_OK) == -1) {
        return skip_all("needs a static busybox");
    }

    inside_setup();
    inside_limits(&limits);

    if (!ok(make_rootfs() == 0
            && shell("mkdir offer && echo offered > offer/file"
                     " && echo secret > offer/secret") == 0,
            "a rootfs is made"))
    {
        inside_done();
        return done_testing();
    }

    (void) shell("find links offer -ls | sort > before");

    if (inside_launch(&s, ID, &limits, "links", &e) == -1) {
        ok(strstr(e.text, "idmapped") != NULL, "no idmapped mount here: %s",
           e.text);
        ok(inside_end(&s) == 0, "and nothing is left");
        inside_done();
        return done_testing();
    }

    ok(inside_end(&s) == 0, "a session without rules");

    test_read();
    test_write();
    test_bind();

#define REFUSED(rule, text)  test_refused(rule, sizeof(rule), text)

    REFUSED("R/home/user/a", "/manifest/filesystem/deny_read/0: has links");
    REFUSED("W/home/user/a/x", "/deny_write/0: has links");
    REFUSED("w/home/user/b", "/writable/0: has links");
    REFUSED("R/home/user/proc", "the kernel's");
    REFUSED("R/home/user/proc/etc/passwd", "the kernel's");
    REFUSED("W/home/user/through-proc", "the kernel's");
    REFUSED("w/home/user/shm/x", "the kernel's");
    REFUSED("R/home/user/slash", "leads to the root");
    REFUSED("w/home/user/slash", "leads to the root");
    REFUSED("R/home/user/up-from-none", "leads nowhere");

    (void) shell("find links offer -ls | sort > after");
    ok(shell("cmp before after") == 0, "template and host are as they were");
    inside_done();

    return done_testing();
}


int
main(int argc, char **argv)
{
    (void) argc;

    return inside_test(argv, rules_test);
}
