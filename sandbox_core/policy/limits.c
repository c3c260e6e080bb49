#include "sandbox_limits.h"
#include "sandbox_util.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>


#define KB  ((uint64_t) 1024)
#define MB  (1024 * KB)
#define GB  (1024 * MB)
#define TB  (1024 * GB)

#define SECOND  ((uint64_t) 1000)
#define DAY     (86400 * SECOND)


static int sbx_limit_decimal(const char *s, size_t len, uint64_t *value);
static int sbx_limit_integer(const char *s, size_t len, uint64_t *value,
    sbx_error_t *e);
static int sbx_limit_round(const char *s, size_t len, uint64_t *value);
static int sbx_limit_read(const sbx_limit_t *limit, const char *s,
    size_t len, int json, uint64_t *value, sbx_error_t *e);
static int sbx_limit_wrong(const sbx_limit_t *limit, int json,
    sbx_error_t *e);
static void sbx_limit_bound(const sbx_limit_t *limit, uint64_t value,
    char *buf);
static int sbx_limit_settle_one(const sbx_limit_t *limit, uint64_t *value,
    uint64_t def, uint64_t max, sbx_error_t *e);


#define FIELD(f)  offsetof(sbx_limits_t, f)

/*
 *  name, json, unit, offset,
 *  min, max, fallback, cap, in_manifest, in_exec, unlimited_ok, max_only
 */

const sbx_limit_t  sbx_limit_table[] = {

    { "memory", "memory", SBX_UNIT_BYTES, FIELD(memory),
      16 * MB, 64 * TB, 512 * MB, 4 * GB, 1, 1, 0, 0 },

    { "cpus", "cpus", SBX_UNIT_MILLI, FIELD(cpus),
      10, 4096 * 1000, 1000, 4000, 1, 1, 0, 0 },

    { "cpu_seconds", "cpu_seconds", SBX_UNIT_SECONDS, FIELD(cpu_seconds),
      10, 365 * DAY, SBX_UNLIMITED, SBX_UNLIMITED, 1, 1, 1, 0 },

    { "processes", "processes", SBX_UNIT_COUNT, FIELD(processes),
      8, 4194304, 128, 4096, 1, 1, 0, 0 },

    { "max_file_size", "max_file_size", SBX_UNIT_BYTES,
      FIELD(max_file_size),
      1, 64 * TB, SBX_UNSET, SBX_UNSET, 1, 1, 0, 0 },

    { "open_files", "open_files", SBX_UNIT_COUNT, FIELD(open_files),
      16, 1048576, 1024, 65536, 1, 1, 0, 0 },

    { "stack", "stack", SBX_UNIT_BYTES, FIELD(stack),
      64 * KB, 64 * GB, 8 * MB, 1 * GB, 1, 1, 0, 0 },

    { "disk", "disk", SBX_UNIT_BYTES, FIELD(disk),
      1 * MB, 64 * TB, SBX_UNSET, 4 * GB, 1, 0, 0, 0 },

    { "inodes", "inodes", SBX_UNIT_COUNT, FIELD(inodes),
      256, 1000000000, 100000, 1000000, 1, 0, 0, 0 },

    { "exec_timeout", "exec_timeout_s", SBX_UNIT_SECONDS,
      FIELD(exec_timeout),
      1, 365 * DAY, 60 * SECOND, SBX_UNLIMITED, 1, 0, 1, 0 },

    { "max_output", "max_output_bytes", SBX_UNIT_BYTES, FIELD(max_output),
      1, 1 * GB, 1 * MB, 64 * MB, 1, 0, 0, 0 },

    { "timeout", "timeout_s", SBX_UNIT_SECONDS, FIELD(timeout),
      1, 365 * DAY, 300 * SECOND, DAY, 0, 0, 0, 0 },

    { "paused", "paused_s", SBX_UNIT_SECONDS, FIELD(paused),
      1, 365 * DAY, DAY, DAY, 0, 0, 0, 1 },

    { "connections", "connections", SBX_UNIT_COUNT, FIELD(connections),
      1, 65536, 256, 4096, 1, 0, 0, 0 },

    { "network_rate", "network_rate", SBX_UNIT_BYTES, FIELD(network_rate),
      1 * KB, 64 * TB, SBX_UNLIMITED, SBX_UNLIMITED, 1, 0, 1, 0 },

    { "network_bytes", "network_bytes", SBX_UNIT_BYTES,
      FIELD(network_bytes),
      1, 64 * TB, SBX_UNLIMITED, SBX_UNLIMITED, 1, 0, 1, 0 },

    { NULL, NULL, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }
};


void
sbx_limits_clear(sbx_limits_t *l)
{
    /* every byte set makes every field SBX_UNSET */

    memset(l, 0xff, sizeof(sbx_limits_t));
}


const sbx_limit_t *
sbx_limit_find(const char *name, size_t len, int json)
{
    const char         *s;
    const sbx_limit_t  *limit;

    for (limit = sbx_limit_table; limit->name != NULL; limit++) {
        s = json ? limit->json : limit->name;

        if (strlen(s) == len && memcmp(s, name, len) == 0) {
            return limit;
        }
    }

    return NULL;
}


uint64_t *
sbx_limit_field(sbx_limits_t *l, const sbx_limit_t *limit)
{
    return (uint64_t *) (void *) ((char *) l + limit->offset);
}


/* Digits only; SBX_UNLIMITED and SBX_UNSET are out of reach. */

static int
sbx_limit_integer(const char *s, size_t len, uint64_t *value, sbx_error_t *e)
{
    size_t    i;
    uint64_t  n, digit;

    if (len == 0) {
        return sbx_error(e, 0, SBX_E_INVALID, "a number is missing");
    }

    n = 0;

    for (i = 0; i < len; i++) {
        if (s[i] < '0' || s[i] > '9') {
            return sbx_error(e, 0, SBX_E_INVALID,
                             "must be a whole number");
        }

        digit = (uint64_t) (s[i] - '0');

        if (n > (SBX_UNLIMITED - 1 - digit) / 10) {
            return sbx_error(e, 0, SBX_E_INVALID, "the number is too large");
        }

        n = n * 10 + digit;
    }

    *value = n;

    return 0;
}


/* "1", "0.5", "1.250" -> thousandths; more than three decimals are refused
 * rather than rounded, unless they are zeros. */

static int
sbx_limit_decimal(const char *s, size_t len, uint64_t *value)
{
    size_t       i, whole;
    uint64_t     n, fraction, unit;
    const char  *dot;

    dot = memchr(s, '.', len);
    whole = (dot == NULL) ? len : (size_t) (dot - s);

    if (sbx_limit_integer(s, whole, &n, NULL) != 0
        || n > (SBX_UNLIMITED - 1) / 1000 - 1)
    {
        return -1;
    }

    fraction = 0;
    unit = 100;

    for (i = whole + 1; i < len; i++) {
        if (s[i] < '0' || s[i] > '9' || (unit == 0 && s[i] != '0')) {
            return -1;
        }

        fraction += unit * (uint64_t) (s[i] - '0');
        unit /= 10;
    }

    if (dot != NULL && whole + 1 == len) {
        return -1;
    }

    *value = n * 1000 + fraction;

    return 0;
}


/*
 * A number as JSON writes it -> thousandths, to the nearest: what programs
 * reckon has any number of decimals (0.1 + 0.2).  -1 where it is negative or
 * too large.
 */

static int
sbx_limit_round(const char *s, size_t len, uint64_t *value)
{
    int       shift, exponent, sign;
    size_t    i;
    uint64_t  n, up;

    static const uint64_t  most = SBX_UNLIMITED / 100;

    n = 0;
    shift = 3;

    for (i = 0; i < len && s[i] != '.' && s[i] != 'e' && s[i] != 'E'; i++) {
        if (s[i] < '0' || s[i] > '9' || n > most) {
            return -1;
        }

        n = n * 10 + (uint64_t) (s[i] - '0');
    }

    if (i < len && s[i] == '.') {
        for (i++; i < len && s[i] >= '0' && s[i] <= '9'; i++) {
            if (n <= most) {
                n = n * 10 + (uint64_t) (s[i] - '0');
                shift--;
            }
        }
    }

    exponent = 0;
    sign = 1;

    if (i < len && (s[i] == 'e' || s[i] == 'E')) {
        i++;

        if (i < len && (s[i] == '+' || s[i] == '-')) {
            sign = (s[i++] == '-') ? -1 : 1;
        }

        for (/* void */; i < len && s[i] >= '0' && s[i] <= '9'; i++) {
            exponent = (exponent > 1000) ? exponent
                                         : exponent * 10 + (s[i] - '0');
        }
    }

    if (i != len) {
        return -1;
    }

    up = 0;

    for (shift += sign * exponent; shift < 0 && (n | up) != 0; shift++) {
        up = (n % 10 >= 5);
        n /= 10;
    }

    for (n += up; shift > 0 && n != 0; shift--) {
        if (n > most) {
            return -1;
        }

        n *= 10;
    }

    *value = n;

    return 0;
}


int
sbx_size_parse(const char *s, size_t len, uint64_t *bytes, sbx_error_t *e)
{
    size_t    digits, i, n;
    uint64_t  value, factor;

    static const struct {
        const char  *suffix;
        uint64_t     factor;
    } units[] = {
        { "", 1 }, { "B", 1 },
        { "K", KB }, { "KB", KB }, { "KiB", KB },
        { "M", MB }, { "MB", MB }, { "MiB", MB },
        { "G", GB }, { "GB", GB }, { "GiB", GB },
        { "T", TB }, { "TB", TB }, { "TiB", TB },
        { NULL, 0 }
    };

    for (digits = 0; digits < len; digits++) {
        if (s[digits] < '0' || s[digits] > '9') {
            break;
        }
    }

    if (digits == 0) {
        return sbx_error(e, 0, SBX_E_INVALID,
                         "must be bytes or a size such as \"512MB\"");
    }

    if (sbx_limit_integer(s, digits, &value, e) != 0) {
        return -1;
    }

    if (digits < len && s[digits] == ' ') {
        digits++;
    }

    n = len - digits;

    for (i = 0; units[i].suffix != NULL; i++) {
        if (strlen(units[i].suffix) == n
            && memcmp(units[i].suffix, s + digits, n) == 0)
        {
            break;
        }
    }

    factor = units[i].factor;

    if (factor == 0) {
        return sbx_error(e, 0, SBX_E_INVALID,
                         "must be bytes or a size such as \"512MB\" "
                         "(KB, MB, GB, TB)");
    }

    if (value > (SBX_UNLIMITED - 1) / factor) {
        return sbx_error(e, 0, SBX_E_INVALID, "the size is too large");
    }

    *bytes = value * factor;

    return 0;
}


int
sbx_limit_parse(const sbx_limit_t *limit, const char *s, size_t len,
    uint64_t *value, sbx_error_t *e)
{
    if (len == 4 && memcmp(s, "none", 4) == 0) {
        if (!limit->unlimited_ok) {
            return sbx_error(e, 0, SBX_E_INVALID,
                             "cannot be without a limit");
        }

        *value = SBX_UNLIMITED;
        return 0;
    }

    return sbx_limit_read(limit, s, len, 0, value, e);
}


int
sbx_limit_number(const sbx_limit_t *limit, const char *s, size_t len,
    uint64_t *value, sbx_error_t *e)
{
    return sbx_limit_read(limit, s, len, 1, value, e);
}


static int
sbx_limit_read(const sbx_limit_t *limit, const char *s, size_t len, int json,
    uint64_t *value, sbx_error_t *e)
{
    int       rc;
    char      least[32], most[32];
    uint64_t  n;

    rc = -1;
    n = 0;

    switch (limit->unit) {

    case SBX_UNIT_BYTES:
        rc = sbx_size_parse(s, len, &n, e);
        break;

    case SBX_UNIT_COUNT:
        rc = sbx_limit_integer(s, len, &n, e);
        break;

    case SBX_UNIT_MILLI:
    case SBX_UNIT_SECONDS:
        rc = json ? sbx_limit_round(s, len, &n)
                  : sbx_limit_decimal(s, len, &n);
        break;
    }

    if (rc != 0) {
        return sbx_limit_wrong(limit, json, e);
    }

    if (n < limit->min || n > limit->max) {
        sbx_limit_bound(limit, limit->min, least);
        sbx_limit_bound(limit, limit->max, most);

        return sbx_error(e, 0, SBX_E_INVALID,
                         "must be at least %s and at most %s", least, most);
    }

    *value = n;

    return 0;
}


/* By the row alone: a reader of "1e9" wants to know what is a number. */
static int
sbx_limit_wrong(const sbx_limit_t *limit, int json, sbx_error_t *e)
{
    char  least[32], most[32];

    static const char *const  kinds[] = {
        [SBX_UNIT_BYTES] =
            "bytes or a size such as \"512MB\" (KB, MB, GB, TB)",
        [SBX_UNIT_COUNT] = "a whole number",
        [SBX_UNIT_MILLI] = "a number",
        [SBX_UNIT_SECONDS] = "seconds"
    };

    sbx_limit_bound(limit, limit->min, least);
    sbx_limit_bound(limit, limit->max, most);

    return sbx_error(e, 0, SBX_E_INVALID, "must be %s%s, from %s to %s",
                     kinds[limit->unit],
                     !json && (limit->unit == SBX_UNIT_MILLI
                               || limit->unit == SBX_UNIT_SECONDS)
                     ? " with at most three decimals" : "",
                     least, most);
}


/* A bound as one would write it: 16MB. */
static void
sbx_limit_bound(const sbx_limit_t *limit, uint64_t value, char *buf)
{
    size_t  i;

    static const char *const  units[] = { "", "KB", "MB", "GB", "TB" };

    if (limit->unit != SBX_UNIT_BYTES) {
        buf[sbx_limit_print(limit, value, buf)] = '\0';
        return;
    }

    for (i = 0; i + 1 < sbx_nelts(units) && value % KB == 0; i++) {
        value /= KB;
    }

    (void) snprintf(buf, 32, "%" PRIu64 "%s", value, units[i]);
}


size_t
sbx_limit_print(const sbx_limit_t *limit, uint64_t value, char *buf)
{
    int  n;

    if (value >= SBX_UNLIMITED) {
        memcpy(buf, "null", 5);
        return 4;
    }

    if (limit->unit == SBX_UNIT_BYTES || limit->unit == SBX_UNIT_COUNT) {
        n = snprintf(buf, 32, "%" PRIu64, value);
        return (size_t) n;
    }

    n = snprintf(buf, 32, "%" PRIu64 ".%03u", value / 1000,
                 (unsigned) (value % 1000));

    while (buf[n - 1] == '0') {
        n--;
    }

    if (buf[n - 1] == '.') {
        n--;
    }

    buf[n] = '\0';

    return (size_t) n;
}


static int
sbx_limit_settle_one(const sbx_limit_t *limit, uint64_t *value, uint64_t def,
    uint64_t max, sbx_error_t *e)
{
    char  cap[32], got[32];

    if (*value == SBX_UNSET) {
        *value = def;
    }

    if (*value == SBX_UNLIMITED) {

        if (!limit->unlimited_ok) {
            return sbx_error(e, 0, SBX_E_MANIFEST,
                             "%s cannot be without a limit", limit->json);
        }

        if (max == SBX_UNLIMITED) {
            return 0;
        }
    }

    if (*value < limit->min) {
        cap[sbx_limit_print(limit, limit->min, cap)] = '\0';
        return sbx_error(e, 0, SBX_E_MANIFEST,
                         "%s must be at least %s", limit->json, cap);
    }

    if (max == SBX_UNLIMITED || *value <= max) {
        return 0;
    }

    cap[sbx_limit_print(limit, max, cap)] = '\0';
    got[sbx_limit_print(limit, *value, got)] = '\0';

    return sbx_error(e, 0, SBX_E_MANIFEST,
                     "%s asks for %s, but the most that is allowed is %s",
                     limit->json,
                     *value == SBX_UNLIMITED ? "no limit" : got, cap);
}


int
sbx_limits_settle(sbx_limits_t *asked, const sbx_limits_t *def,
    const sbx_limits_t *max, sbx_error_t *e)
{
    uint64_t            d, m, *value;
    sbx_limits_t        settled;
    const sbx_limit_t  *limit;

    settled = *asked;

    for (limit = sbx_limit_table; limit->name != NULL; limit++) {
        value = sbx_limit_field(&settled, limit);
        d = *(const uint64_t *) (const void *)
                ((const char *) def + limit->offset);
        m = *(const uint64_t *) (const void *)
                ((const char *) max + limit->offset);

        if (limit->offset == FIELD(max_file_size)) {
            continue;
        }

        /* the broker knows the kind of storage, and settles once more */

        if (limit->offset == FIELD(disk) && *value == SBX_UNSET
            && d == SBX_UNSET)
        {
            continue;
        }

        /* the built-in default gives way to a lower maximum */

        if (d != SBX_UNSET && m < SBX_UNLIMITED && d > m) {
            d = m;
        }

        if (sbx_limit_settle_one(limit, value, d, m, e) != 0) {
            return -1;
        }
    }

    /* the largest file follows the disk, which is known only now, or later */

    limit = sbx_limit_find("max_file_size", 13, 0);
    d = def->max_file_size;
    m = max->max_file_size;

    if (d == SBX_UNSET || d > settled.disk) {
        d = settled.disk;
    }

    if (m == SBX_UNSET) {
        m = SBX_UNLIMITED;
    }

    if (m != SBX_UNLIMITED && d > m) {
        d = m;
    }

    if (d == SBX_UNSET && settled.max_file_size == SBX_UNSET) {
        *asked = settled;
        return 0;
    }

    if (sbx_limit_settle_one(limit, &settled.max_file_size, d, m, e) != 0) {
        return -1;
    }

    *asked = settled;

    return 0;
}
