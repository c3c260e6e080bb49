/*
 * The key that servers derive tokens of sessions from.  It is kept beside the
 * sessions' records, so that their tokens outlive every process, and told to
 * servers alone.
 */

#include "broker.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/random.h>
#include <unistd.h>


#define SBX_TOKEN_FILE   "token.key"
#define SBX_TOKEN_NEW    "token.key.new"


static int sbx_token_make(sbx_broker_t *b, sbx_error_t *e);


int
sbx_token_key(sbx_broker_t *b, sbx_error_t *e)
{
    ssize_t      n;
    sbx_auto_fd  fd = -1;

    fd = openat(b->state, SBX_TOKEN_FILE, O_RDONLY|O_CLOEXEC|O_NOFOLLOW);

    if (fd == -1 && errno == ENOENT) {
        return sbx_token_make(b, e);
    }

    if (fd == -1) {
        return sbx_error(e, errno, SBX_E_UNAVAILABLE,
                         "cannot open %s in the state directory",
                         SBX_TOKEN_FILE);
    }

    n = read(fd, b->token_key, sizeof(b->token_key));

    if (n != sizeof(b->token_key)) {
        return sbx_error(e, n == -1 ? errno : 0, SBX_E_UNAVAILABLE,
                         "%s in the state directory is not %zu bytes: remove "
                         "it, and sessions have new tokens", SBX_TOKEN_FILE,
                         sizeof(b->token_key));
    }

    return 0;
}


/*
 * Whole under its name, or not there, and there for good before anybody has a
 * token of it.  No other broker has this directory.
 */

static int
sbx_token_make(sbx_broker_t *b, sbx_error_t *e)
{
    sbx_auto_fd  fd = -1;

    fd = openat(b->state, SBX_TOKEN_NEW,
                O_WRONLY|O_CREAT|O_TRUNC|O_CLOEXEC|O_NOFOLLOW, 0600);

    if (fd == -1
        || getrandom(b->token_key, sizeof(b->token_key), 0)
           != sizeof(b->token_key)
        || sbx_write_all(fd, b->token_key, sizeof(b->token_key)) != 0
        || fsync(fd) == -1
        || renameat(b->state, SBX_TOKEN_NEW, b->state, SBX_TOKEN_FILE) == -1
        || fsync(b->state) == -1)
    {
        return sbx_error(e, errno, SBX_E_UNAVAILABLE,
                         "cannot make %s in the state directory",
                         SBX_TOKEN_FILE);
    }

    return 0;
}
