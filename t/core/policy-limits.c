/* Sizes, limits, and how a request's limits are settled. */

#include "tap.h"

#include "sandbox_limits.h"


static void
size_is(const char *s, uint64_t expected)
{
    uint64_t     bytes;
    sbx_error_t  e;

    bytes = 0;

    ok(sbx_size_parse(s, strlen(s), &bytes, &e) == 0 && bytes == expected,
       "size \"%s\" is %llu", s, (unsigned long long) expected);
}


static void
size_refused(const char *s)
{
    uint64_t     bytes;
    sbx_error_t  e;

    bytes = 77;
    memset(&e, 0, sizeof(sbx_error_t));

    ok(sbx_size_parse(s, strlen(s), &bytes, &e) == -1 && bytes == 77
       && e.code == SBX_E_INVALID && e.text[0] != '\0',
       "size \"%s\" is refused and changes nothing", s);
}


static void
limit_is(const char *name, const char *s, uint64_t expected,
    const char *printed)
{
    char                buf[32];
    uint64_t            value;
    sbx_error_t         e;
    const sbx_limit_t  *limit;

    value = 0;
    limit = sbx_limit_find(name, strlen(name), 0);

    ok(limit != NULL && sbx_limit_parse(limit, s, strlen(s), &value, &e) == 0
       && value == expected,
       "%s=%s is taken", name, s);

    if (limit != NULL) {
        buf[sbx_limit_print(limit, value, buf)] = '\0';
        is_str(buf, printed, "and printed as the contract has it");
    }
}


static void
limit_refused(const char *name, const char *s)
{
    uint64_t            value;
    sbx_error_t         e;
    const sbx_limit_t  *limit;

    limit = sbx_limit_find(name, strlen(name), 0);

    ok(limit != NULL && sbx_limit_parse(limit, s, strlen(s), &value, &e) == -1
       && e.code == SBX_E_INVALID,
       "%s=%s is refused", name, s);
}


/* A number of JSON; SBX_UNSET where it is refused. */

static void
number_is(const char *name, const char *s, uint64_t expected)
{
    int                 rc;
    uint64_t            value;
    sbx_error_t         e;
    const sbx_limit_t  *limit;

    value = SBX_UNSET;
    memset(&e, 0, sizeof(sbx_error_t));
    limit = sbx_limit_find(name, strlen(name), 0);
    rc = sbx_limit_number(limit, s, strlen(s), &value, &e);

    ok(value == expected
       && (expected == SBX_UNSET ? rc == -1 && e.code == SBX_E_INVALID
                                 : rc == 0),
       "the number %s is %s=%llu thousandths", s, name,
       (unsigned long long) value);
}


static void
builtin(sbx_limits_t *def, sbx_limits_t *max)
{
    const sbx_limit_t  *limit;

    for (limit = sbx_limit_table; limit->name != NULL; limit++) {
        *sbx_limit_field(def, limit) = limit->fallback;
        *sbx_limit_field(max, limit) = limit->cap;
    }
}


static void
settling(void)
{
    sbx_error_t   e;
    sbx_limits_t  asked, def, max, before;

    builtin(&def, &max);

    sbx_limits_clear(&asked);
    ok(sbx_limits_settle(&asked, &def, &max, &e) == 0,
       "nothing asked for is fine");
    is_int((int64_t) asked.memory, 512 << 20, "memory is the default");
    ok(asked.disk == SBX_UNSET && asked.max_file_size == SBX_UNSET,
       "disk and the largest file are left to who knows the storage");
    asked.disk = 1 << 20;
    ok(sbx_limits_settle(&asked, &def, &max, &e) == 0
       && asked.max_file_size == 1 << 20,
       "and are settled then");
    ok(asked.cpu_seconds == SBX_UNLIMITED, "cpu_seconds is unlimited");

    sbx_limits_clear(&asked);
    asked.disk = 2 << 20;
    ok(sbx_limits_settle(&asked, &def, &max, &e) == 0
       && asked.max_file_size == 2 << 20,
       "the largest file follows the disk that was asked for");

    sbx_limits_clear(&asked);
    asked.memory = max.memory + 1;
    before = asked;
    ok(sbx_limits_settle(&asked, &def, &max, &e) == -1
       && e.code == SBX_E_MANIFEST && strstr(e.text, "memory") != NULL
       && strstr(e.text, "4294967296") != NULL,
       "more than the maximum names the limit and the cap");
    ok(memcmp(&before, &asked, sizeof(asked)) == 0,
       "and a refusal changes nothing");

    sbx_limits_clear(&asked);
    asked.processes = 7;
    ok(sbx_limits_settle(&asked, &def, &max, &e) == -1
       && strstr(e.text, "at least 8") != NULL,
       "less than the minimum names the minimum");

    sbx_limits_clear(&asked);
    asked.memory = SBX_UNLIMITED;
    ok(sbx_limits_settle(&asked, &def, &max, &e) == -1,
       "memory cannot be unlimited");

    max.exec_timeout = 30000;
    sbx_limits_clear(&asked);
    ok(sbx_limits_settle(&asked, &def, &max, &e) == 0
       && asked.exec_timeout == 30000,
       "a built-in default gives way to a lower maximum");

    sbx_limits_clear(&asked);
    asked.exec_timeout = SBX_UNLIMITED;
    ok(sbx_limits_settle(&asked, &def, &max, &e) == -1
       && strstr(e.text, "exec_timeout_s") != NULL,
       "no timeout is refused where there is a maximum");

    max.max_file_size = 1 << 20;
    sbx_limits_clear(&asked);
    ok(sbx_limits_settle(&asked, &def, &max, &e) == 0
       && asked.max_file_size == 1 << 20,
       "the largest file obeys its own maximum");
}


int
main(void)
{
    size_is("0", 0);
    size_is("1048576", 1048576);
    size_is("512KB", 512 * 1024);
    size_is("512KiB", 512 * 1024);
    size_is("512 MB", 512ULL << 20);
    size_is("2GB", 2ULL << 30);
    size_is("3TiB", 3ULL << 40);

    size_refused("");
    size_refused("MB");
    size_refused("-1");
    size_refused("1.5GB");
    size_refused("1kB");
    size_refused("1 M B");
    size_refused("18446744073709551615");
    size_refused("18446744073709551616");
    size_refused("99999999999999TB");
    size_refused("1GBx");
    size_refused("0x10");

    limit_is("cpus", "0.5", 500, "0.5");
    limit_is("cpus", "2", 2000, "2");
    limit_is("cpus", "1.250", 1250, "1.25");
    limit_is("exec_timeout", "1.5", 1500, "1.5");
    limit_is("exec_timeout", "none", SBX_UNLIMITED, "null");
    limit_is("memory", "64MB", 64 << 20, "67108864");
    limit_is("processes", "8", 8, "8");

    limit_refused("cpus", "0");
    limit_refused("cpus", ".5");
    limit_refused("cpus", "1.");
    limit_refused("cpus", "1.2345");
    limit_refused("cpus", "none");
    limit_refused("cpus", "1e3");
    limit_refused("memory", "1MB");
    limit_refused("memory", "none");
    limit_refused("processes", "7");
    limit_refused("processes", "8.0");
    limit_refused("processes", "99999999999999999999");
    limit_refused("open_files", "15");
    limit_refused("disk", "1023KB");
    limit_refused("timeout", "none");

    number_is("timeout", "60", 60000);
    number_is("timeout", "60.0", 60000);
    number_is("timeout", "0.30000000000000004", 300);
    number_is("timeout", "0.1000000000000000055511151231257827", 100);
    number_is("timeout", "33.333333333333336", 33333);
    number_is("timeout", "66.66666666666667", 66667);
    number_is("timeout", "0.9995", 1000);
    number_is("timeout", "0.0005", 1);
    number_is("timeout", "0.00049999999999999999999", SBX_UNSET);
    number_is("timeout", "1e0", 1000);
    number_is("timeout", "1.5E+1", 15000);
    number_is("timeout", "12345e-4", 1235);
    number_is("timeout", "1e-99999999999999999999", SBX_UNSET);
    number_is("timeout", "1e99999999999999999999", SBX_UNSET);
    number_is("timeout", "0e99999999999999999999", SBX_UNSET);
    number_is("timeout", "-1", SBX_UNSET);
    number_is("timeout", "-0", SBX_UNSET);
    number_is("timeout", "31536000.0004", 31536000000);
    number_is("timeout", "31536000.0005", SBX_UNSET);
    number_is("timeout", "99999999999999999999999999", SBX_UNSET);
    number_is("cpus", "0.3333333333333333", 333);
    number_is("cpus", "1e-2", 10);
    number_is("processes", "1e2", SBX_UNSET);
    number_is("memory", "1e9", SBX_UNSET);

    ok(sbx_limit_find("memory", 6, 0) == sbx_limit_find("memory", 6, 1),
       "memory has one name");
    ok(sbx_limit_find("exec_timeout", 12, 1) == NULL
       && sbx_limit_find("exec_timeout_s", 14, 1) != NULL,
       "JSON names differ where units are in them");

    settling();

    return done_testing();
}
