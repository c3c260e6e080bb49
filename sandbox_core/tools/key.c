/*
 * "sandboxctl key": an API key and the line of its digest.  It has the form
 * that E2B's SDKs look for.  The key goes to stderr: a line that is added to a
 * file must not take the key there.
 */

#include "sandboxctl.h"

#include "sandbox_sha256.h"
#include "wire.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>


#define SBX_KEY_BYTES   20
#define SBX_KEY_HEAD    "e2b_"


static void
sbx_ctl_hex(char *dst, const uint8_t *src, size_t n)
{
    size_t  i;

    static const char  digits[] = "0123456789abcdef";

    for (i = 0; i < n; i++) {
        *dst++ = digits[src[i] >> 4];
        *dst++ = digits[src[i] & 15];
    }

    *dst = '\0';
}


int
sbx_ctl_key(const sbx_ctl_command_t *command, int argc, char **argv)
{
    int           i;
    char          key[sizeof(SBX_KEY_HEAD) + 2 * SBX_KEY_BYTES];
    char          hex[2 * SBX_SHA256_SIZE + 1];
    uint8_t       bytes[SBX_KEY_BYTES], digest[SBX_SHA256_SIZE];
    sbx_sha256_t  sha;

    if (argc != 0 && strcmp(argv[0], "--help") == 0) {
        sbx_ctl_help(command);
        return SBX_CTL_OK;
    }

    if (argc != 2) {
        return sbx_ctl_refuse(command, "two names must follow",
                              command->name);
    }

    for (i = 0; i < argc; i++) {
        if (!sbx_name_ok(argv[i], strlen(argv[i]))) {
            return sbx_ctl_refuse(command, "no tenant or user can be called",
                                  argv[i]);
        }
    }

    if (getrandom(bytes, sizeof(bytes), 0) != sizeof(bytes)) {
        (void) fprintf(stderr, "sandboxctl: no random bytes: %s\n",
                       strerror(errno));
        return SBX_CTL_FAILED;
    }

    (void) strcpy(key, SBX_KEY_HEAD);
    sbx_ctl_hex(key + sizeof(SBX_KEY_HEAD) - 1, bytes, sizeof(bytes));

    sbx_sha256_init(&sha);
    sbx_sha256_update(&sha, key, strlen(key));
    sbx_sha256_final(&sha, digest);
    sbx_ctl_hex(hex, digest, sizeof(digest));

    (void) fprintf(stderr, "%s\n", key);
    (void) printf("sha256:%s %s %s\n", hex, argv[0], argv[1]);

    return SBX_CTL_OK;
}
