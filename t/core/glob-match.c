/*
 * What a pattern matches, name by name.
 */

#include "glob_match.h"
#include "sandbox_util.h"

#include "tap.h"


/* -1: the pattern is refused; else whether the path matches it. */

static int
matches(const char *pattern, const char *path)
{
    int          rc;
    char         base[256];
    size_t       n;
    uint64_t     states;
    sbx_glob_t  *glob;
    sbx_error_t  e;

    if (sbx_glob_compile(pattern, strlen(pattern), &glob, &e) != 0) {
        return -1;
    }

    (void) snprintf(base, sizeof(base), "%s",
                    strcmp(sbx_glob_base(glob), ".") == 0
                    ? "" : sbx_glob_base(glob));
    n = strlen(base);

    if (strncmp(path, base, n) != 0
        || (n != 0 && strcmp(base, "/") != 0 && path[n] != '/'))
    {
        sbx_glob_free(glob);
        return 0;
    }

    path += n;
    states = sbx_glob_start(glob);
    rc = 0;

    while (*path == '/') {
        path++;
    }

    while (*path != '\0') {
        n = strcspn(path, "/");

        if (sbx_glob_step(glob, states, path, n, path[n] == '/', &states, &e)
            != 0)
        {
            sbx_glob_free(glob);
            return -2;
        }

        path += n;
        path += *path == '/';
    }

    rc = sbx_glob_accepts(glob, states);
    sbx_glob_free(glob);

    return rc;
}


int
main(void)
{
    char         deep[4096], name[256], many[4096];
    size_t       i, n;
    uint64_t     t;
    sbx_glob_t  *glob;
    sbx_error_t  e;

    static const struct {
        const char  *pattern;
        const char  *path;
        int          expected;
    } table[] = {
        { "*.txt", "data.txt", 1 },
        { "*.txt", "data.txtx", 0 },
        { "*.txt", "a/data.txt", 0 },
        { "*.txt", ".txt", 0 },
        { "*.txt", ".a.txt", 0 },
        { ".*", ".a", 1 },
        { ".*", "a", 0 },
        { "data.txt", "data.txt", 1 },
        { "data.txt", "dataxtxt", 0 },
        { "a?c", "abc", 1 },
        { "a?c", "ac", 0 },
        { "a?c", "a\xe6\xb5\x8b" "c", 1 },
        { "a?c", "a\xff" "c", 1 },
        { "a??c", "a\xff\xfe" "c", 1 },
        { "?", ".", 0 },
        { "*", "\xff\xfe", 1 },
        { "*", "a\nb", 1 },
        { "*\xff*", "a\xff" "b", 1 },
        { "\xe6\xb5\x8b*", "\xe6\xb5\x8b\xe8\xaf\x95", 1 },
        { "[abc]x", "bx", 1 },
        { "[abc]x", "dx", 0 },
        { "[!abc]x", "dx", 1 },
        { "[^abc]x", "ax", 0 },
        { "[a-c]x", "bx", 1 },
        { "[]x]", "]", 1 },
        { "[]x]", "x", 1 },
        { "[a", "[a", 1 },
        { "[[:digit:]]*", "7up", 1 },
        { "[[:digit:]]*", "up", 0 },
        { "[\\d]", "d", 1 },
        { "[\\d]", "7", 0 },
        { "[a\\]]", "]", 1 },
        { "[\xe6\xb5\x8b\xe8\xaf\x95]", "\xe8\xaf\x95", 1 },
        { "[!a]", ".", 0 },
        { "{a,b}.c", "a.c", 1 },
        { "{a,b}.c", "b.c", 1 },
        { "{a,b}.c", "c.c", 0 },
        { "x{a,{b,c}d}y", "xcdy", 1 },
        { "x{a,}y", "xy", 1 },
        { "{.a,b}", ".a", 1 },
        { "{*,b}", ".a", 0 },
        { "*{a,ab}*bc", "xabc", 1 },
        { "*{ab,a}*bc", "abc", 1 },
        { "{a}", "{a}", 1 },
        { "{a", "{a", 1 },
        { "a}", "a}", 1 },
        { "a,b", "a,b", 1 },
        { "\\*", "*", 1 },
        { "\\*", "a", 0 },
        { "a\\", "a\\", 1 },
        { "(a|b)$^.+", "(a|b)$^.+", 1 },
        { "(a|b)", "a", 0 },
        { "**", "a", 1 },
        { "**", "a/b/c", 1 },
        { "**", "a/.b/c", 0 },
        { "**", ".a", 0 },
        { "**/*.c", "x.c", 1 },
        { "**/*.c", "a/b/x.c", 1 },
        { "**/*.c", ".a/x.c", 0 },
        { ".a/**/*.c", ".a/b/x.c", 1 },
        { "a/**", "a/b", 1 },
        { "a/**", "a", 0 },
        { "a/**/z", "a/z", 1 },
        { "a/**/z", "a/b/c/z", 1 },
        { "a/**/**/z", "a/b/c/z", 1 },
        { "**/a/**/b", "x/a/y/a/b", 1 },
        { "a**b", "axxb", 1 },
        { "a**b", "a/b", 0 },
        { "src/*/x", "src/y/x", 1 },
        { "./*.c", "x.c", 1 },
        { "a//*.c", "a/x.c", 1 },
        { "/usr/*", "/usr/bin", 1 },
        { "/*", "/usr", 1 },
        { "a*b*c*d", "a1b2c3d", 1 },
        { "a*b*c*d", "a1c2b3d", 0 },
        { "*a?b*", "xxaab", 1 },
        { "*a?b*", "xxab", 0 },
        { "*a?b*", "xxaabb", 1 },
        { "*/../x", "a/x", -1 },
        { "[z-a]", "z", -1 },
        { "[[:nope:]]", "z", -1 },
        { "", "", -1 }
    };

    for (i = 0; i < sbx_nelts(table); i++) {
        if (!ok(matches(table[i].pattern, table[i].path) == table[i].expected,
                "pattern %zu", i))
        {
            printf("# \"%s\", \"%s\": got %d\n", table[i].pattern,
                   table[i].path, matches(table[i].pattern, table[i].path));
        }
    }

    ok(sbx_glob_compile("a/b/*.c", 7, &glob, &e) == 0
       && strcmp(sbx_glob_base(glob), "a/b") == 0,
       "a walk begins where the literal names end");
    ok(!sbx_glob_directories(glob), "files match");
    sbx_glob_free(glob);

    ok(sbx_glob_compile("a/*/", 4, &glob, &e) == 0
       && sbx_glob_directories(glob), "with a slash directories only");
    sbx_glob_free(glob);

    for (n = 0; n + 2 < sizeof(deep); n += 2) {
        memcpy(deep + n, "*/", 3);
    }

    is_int(matches(deep, "a"), -1, "a pattern of 2,000 names is refused");

    memset(many, '{', sizeof(many));
    memset(many + 512, ',', 256);
    memset(many + 768, '}', 256);
    many[1024] = '\0';
    ok(matches(many, "a") <= 0, "braces without end are refused, or nothing");

    /* a name that would take for ever by trial and error */

    memset(name, 'a', 250);
    name[250] = '\0';
    t = sbx_now_us();
    is_int(matches("*a*a*a*a*a*a*a*a*a*a*a*a*b", name), 0, "many stars");
    ok(sbx_now_us() - t < 500000, "take no time");

    t = sbx_now_us();
    i = (size_t) matches("*{a,aa}*{a,aa}*{a,aa}*{a,aa}*{a,aa}*b", name);
    ok(sbx_now_us() - t < 2000000, "stars and braces are bounded");
    ok((int) i == 0 || (int) i == -2, "and never match by mistake");

    return done_testing();
}
