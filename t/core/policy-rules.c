/* File rules and the table of host directories, as texts. */

#include "tap.h"

#include "sandbox_rules.h"
#include "sandbox_util.h"


#define RULES(s)  s, sizeof(s) - 1


static void
path_is(const char *s, const char *expected)
{
    char         path[SBX_PATH_MAX], again[SBX_PATH_MAX];
    const char  *why;

    why = sbx_rule_path(s, strlen(s), path);

    ok(why == NULL && strcmp(path, expected) == 0, "\"%s\" is \"%s\"%s%s", s,
       expected, why == NULL ? "" : " # ", why == NULL ? "" : why);

    if (why == NULL) {
        ok(sbx_rule_path(path, strlen(path), again) == NULL
           && strcmp(path, again) == 0, "and stays so");
    }
}


static void
path_refused(const char *s, size_t len, const char *name)
{
    char  path[SBX_PATH_MAX];

    ok(sbx_rule_path(s, len, path) != NULL, "refused: %s", name);
}


static void
test_paths(void)
{
    char    s[2 * SBX_PATH_MAX], path[SBX_PATH_MAX];
    size_t  i;

    static const char  *bad[] = {
        "/", "//", "/.", "/./", "..", "../x", "/..", "/a/..", "/a/../b",
        "/proc", "/proc/", "/proc/1", "//proc", "/./proc/1", "/sys",
        "/sys/fs", "/dev", "/dev/null", "/dev/shm/x", "a\tb", "a\nb",
        "\x7f", "a\x1f"
    };

    path_is("/srv/data", "/srv/data");
    path_is("/srv/data/", "/srv/data/");
    path_is("/srv//data///", "/srv/data/");
    path_is("/./srv/./data/.", "/srv/data");
    path_is("//srv", "/srv");
    path_is("x", "/home/user/x");
    path_is("./x/./y/", "/home/user/x/y/");
    path_is(".", "/home/user");
    path_is("./", "/home/user/");
    path_is("...", "/home/user/...");
    path_is("..x", "/home/user/..x");
    path_is("/x..", "/x..");
    path_is("/process", "/process");
    path_is("/devices/x", "/devices/x");
    path_is("/a b", "/a b");
    path_is("/\xc3\xa9", "/\xc3\xa9");
    path_is("/home/proc", "/home/proc");
    path_is("proc", "/home/user/proc");

    for (i = 0; i < sbx_nelts(bad); i++) {
        path_refused(bad[i], strlen(bad[i]), bad[i]);
    }

    path_refused("", 0, "nothing");
    path_refused("a\0b", 3, "a NUL");

    memset(s, 'n', sizeof(s));
    path_refused(s, 256, "a name of 256 bytes");
    ok(sbx_rule_path(s, 255, path) == NULL, "one of 255 is taken");

    for (i = 0; i < sizeof(s); i += 2) {
        s[i] = '/';
    }

    path_refused(s, sizeof(s), "a path of 8192 bytes");
    path_refused(s, SBX_PATH_MAX, "one of 4096");
    ok(sbx_rule_path(s, SBX_PATH_MAX - 1, path) == NULL
       && strlen(path) == SBX_PATH_MAX - 1, "one of 4095 is taken");

    for (i = 0; i < sizeof(s); i++) {
        s[i] = (i % 4 == 3) ? 'x' : '/';
    }

    ok(sbx_rule_path(s, sizeof(s) - 1, path) == NULL
       && strlen(path) < SBX_PATH_MAX, "what is short without its slashes");

    ok(sbx_rule_below("/a/b", "/a") && sbx_rule_below("/a", "/a")
       && sbx_rule_below("/a/", "/a") && !sbx_rule_below("/ab", "/a")
       && !sbx_rule_below("/", "/a") && !sbx_rule_below("", "/a"),
       "below");
}


static void
check_is(const char *rules, size_t size, uint32_t code, const char *text)
{
    sbx_error_t  e;

    memset(&e, 0, sizeof(sbx_error_t));

    ok(sbx_rules_check(rules, size, &e) == (code == SBX_OK ? 0 : -1)
       && e.code == code
       && (text == NULL || strstr(e.text, text) != NULL),
       "rules: %u%s%s", code, text == NULL ? "" : " ",
       text == NULL ? "" : text);
}


static void
test_records(void)
{
    int         rc;
    char        many[4 * (SBX_RULES_KIND_MAX + 1) + 1];
    static char deep[(SBX_RULES_NAMES_MAX / 1024 + 1) * 2050];
    size_t      i, n;
    sbx_rule_t  rule;

    sbx_rule_first(&rule, RULES("R/a\0w/b\0R/c\0Bx\0W/d/\0"));

    n = 0;

    while ((rc = sbx_rule_next(&rule)) == 1) {
        n++;

        if (n == 3) {
            ok(strcmp(rule.text, "/c") == 0 && rule.index == 1
               && strcmp(rule.list, "deny_read") == 0, "the third record");
        }
    }

    ok(rc == 0 && n == 5, "five records");

    sbx_rule_first(&rule, NULL, 0);
    ok(sbx_rule_next(&rule) == 0, "no rules at all");

    check_is(RULES("R/a\0w/b\0R/c\0Bx\0W/d/\0"), SBX_OK, NULL);
    check_is("", 0, SBX_OK, NULL);
    check_is("R/a", 3, SBX_E_INVALID, "malformed");
    check_is("R", 1, SBX_E_INVALID, "malformed");
    check_is(RULES("X/a\0"), SBX_E_INVALID, "malformed");
    check_is(RULES("R/a\0\0"), SBX_E_INVALID, "malformed");
    check_is(RULES("Rrelative\0"), SBX_E_INVALID, "one form");
    check_is(RULES("R//a\0"), SBX_E_INVALID, "one form");
    check_is(RULES("R\0"), SBX_E_MANIFEST, "/manifest/filesystem/deny_read/0");
    check_is(RULES("R/a\0W/a\0W/proc/1\0"), SBX_E_MANIFEST,
             "/manifest/filesystem/deny_write/1: ");
    check_is(RULES("w/\0"), SBX_E_MANIFEST, "/writable/0: is the root");
    check_is(RULES("R/a/../b\0"), SBX_E_MANIFEST,
             "/deny_read/0: holds \"..\"");
    check_is(RULES("Ba\0Bb\0Ba\0"), SBX_E_MANIFEST, "/binds/2: is asked");
    check_is(RULES("B../a\0"), SBX_E_MANIFEST, "/binds/0: ");
    check_is(RULES("R/a\0R/a\0"), SBX_OK, NULL);

    for (i = 0; i <= SBX_RULES_KIND_MAX; i++) {
        memcpy(many + 4 * i, "R/a", 4);
    }

    check_is(many, 4 * SBX_RULES_KIND_MAX, SBX_OK, NULL);
    check_is(many, 4 * (SBX_RULES_KIND_MAX + 1), SBX_E_MANIFEST,
             "holds more than 64");

    /* names of paths, in whichever rules */

    for (i = 0; i <= SBX_RULES_NAMES_MAX / 1024; i++) {
        deep[i * 2050] = i % 2 ? 'R' : 'W';

        for (n = 0; n < 1024; n++) {
            memcpy(deep + i * 2050 + 1 + 2 * n, "/a", 2);
        }
    }

    check_is(deep, SBX_RULES_NAMES_MAX / 1024 * 2050, SBX_OK, NULL);
    memcpy(deep + SBX_RULES_NAMES_MAX / 1024 * 2050, "R/a", 4);
    check_is(deep, SBX_RULES_NAMES_MAX / 1024 * 2050 + 4, SBX_E_MANIFEST,
             "more than 8192 names");
}


static void
test_binds(void)
{
    size_t       n;
    char         name[80];
    sbx_bind_t   bind;
    const char  *p;

    static const char  table[] =
        "ra\0/srv/a\0\0"
        "wb\0/srv/b\0acme\0other\0\0"
        "rc\0/srv/c\0other\0\0";
    static const char  open[] = "ra\0/srv/a\0acme\0";

    n = sizeof(table) - 1;

    ok(sbx_bind_find(table, n, "a", "acme", &bind) == 0 && !bind.writable
       && strcmp(bind.path, "/srv/a") == 0, "offered to all");
    ok(sbx_bind_find(table, n, "b", "acme", &bind) == 0 && bind.writable
       && strcmp(bind.path, "/srv/b") == 0, "to the first of two");
    ok(sbx_bind_find(table, n, "b", "other", &bind) == 0, "to the second");
    ok(sbx_bind_find(table, n, "c", "acme", &bind) == -1, "to another");
    ok(sbx_bind_find(table, n, "b", "acm", &bind) == -1
       && sbx_bind_find(table, n, "b", "acmee", &bind) == -1
       && sbx_bind_find(table, n, "b", "", &bind) == -1,
       "to nobody of a like name");
    ok(sbx_bind_find(table, n, "d", "acme", &bind) == -1
       && sbx_bind_find(table, n, "", "acme", &bind) == -1
       && sbx_bind_find("", 0, "a", "acme", &bind) == -1, "not there");

    for (n = 1; n < sizeof(open); n++) {
        p = open;

        if (sbx_bind_next(&p, open + n, &bind) != -1) {
            break;
        }
    }

    ok(n == sizeof(open), "a table that ends early is seen");
    p = "x";
    ok(sbx_bind_next(&p, p + 1, &bind) == -1, "nor is any byte a mode");

    memset(name, 'n', sizeof(name));
    ok(sbx_bind_name_ok("a", 1) && sbx_bind_name_ok("0.a_b-c", 7)
       && sbx_bind_name_ok(name, 64), "names");
    ok(!sbx_bind_name_ok("", 0) && !sbx_bind_name_ok(".a", 2)
       && !sbx_bind_name_ok("-a", 2) && !sbx_bind_name_ok("A", 1)
       && !sbx_bind_name_ok("a/b", 3) && !sbx_bind_name_ok("a\0b", 3)
       && !sbx_bind_name_ok("a b", 3) && !sbx_bind_name_ok("\xc3\xa9", 2)
       && !sbx_bind_name_ok(name, 65), "and what is none");
}


int
main(void)
{
    test_paths();
    test_records();
    test_binds();

    return done_testing();
}
