/* See trial.h. */

#include "trial.h"
#include "sandbox_util.h"

#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>


static int sbx_trial_packets(void);
static int sbx_trial_control(const sbx_trial_probe_t *probe, uint64_t lasts,
    uint64_t most);


void
sbx_trial_probe_open(sbx_trial_probe_t *probe, int packets)
{
    int  fds[2];

    probe->fds[0] = 0;
    probe->fds[1] = 0;

    if (packets) {
        fds[0] = sbx_trial_packets();
        fds[1] = fds[0];

    } else if (socketpair(AF_UNIX, SOCK_SEQPACKET|SOCK_CLOEXEC|SOCK_NONBLOCK,
                          0, fds)
               == -1)
    {
        return;
    }

    if (fds[0] > 0) {
        memcpy(probe->fds, fds, sizeof(fds));
    }
}


/* One that is connected to itself, or -1. */

static int
sbx_trial_packets(void)
{
    int                 fd;
    socklen_t           len;
    struct sockaddr_in  sin;

    fd = socket(AF_INET, SOCK_DGRAM|SOCK_CLOEXEC|SOCK_NONBLOCK, 0);

    if (fd == -1) {
        return -1;
    }

    memset(&sin, 0, sizeof(sin));
    sin.sin_family = AF_INET;
    sin.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    len = sizeof(sin);

    if (bind(fd, (struct sockaddr *) &sin, len) == -1
        || getsockname(fd, (struct sockaddr *) &sin, &len) == -1
        || connect(fd, (struct sockaddr *) &sin, len) == -1)
    {
        (void) close(fd);
        return -1;
    }

    return fd;
}


void
sbx_trial_probe_close(sbx_trial_probe_t *probe)
{
    if (probe->fds[1] > 0 && probe->fds[1] != probe->fds[0]) {
        (void) close(probe->fds[1]);
    }

    if (probe->fds[0] > 0) {
        (void) close(probe->fds[0]);
    }

    probe->fds[0] = 0;
    probe->fds[1] = 0;
}


uint64_t
sbx_trial_clock(void *data)
{
    struct timespec  ts;

    (void) data;
    (void) clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);

    return (uint64_t) ts.tv_sec * 1000000 + (uint64_t) ts.tv_nsec / 1000;
}


void
sbx_trial_begin(sbx_trial_t *trial)
{
    trial->on = 1;
    trial->score = 0;
    trial->slow_at = 0;
}


sbx_trial_verdict_t
sbx_trial_call(sbx_trial_t *trial, const sbx_trial_probe_t *probe,
    uint64_t took, int slow, uint64_t most)
{
    uint64_t  now;

    if (slow) {
        now = sbx_now_us();

        if (trial->slow_at != 0 && now - trial->slow_at > SBX_TRIAL_FORGET) {
            trial->score = 0;
        }

        trial->slow_at = now;
        trial->score++;
    }

    took = took < SBX_TRIAL_MOST ? took : SBX_TRIAL_MOST;
    trial->score -= sbx_trial_control(probe, took * SBX_TRIAL_TIMES, most);

    if (trial->score < SBX_TRIAL_GUILTY
        && trial->score > -SBX_TRIAL_INNOCENT)
    {
        return SBX_TRIAL_OPEN;
    }

    trial->on = 0;

    return trial->score > 0 ? SBX_TRIAL_IS_GUILTY : SBX_TRIAL_IS_INNOCENT;
}


/* How many of its strokes were slow. */

static int
sbx_trial_control(const sbx_trial_probe_t *probe, uint64_t lasts,
    uint64_t most)
{
    int       slow;
    char      byte;
    uint64_t  spent, last, now;

    slow = 0;
    last = probe->clock(probe->data);

    for (spent = 0; spent < lasts; spent += now - last, last = now) {

        if (probe->fds[0] > 0
            && send(probe->fds[0], "", 1, MSG_DONTWAIT|MSG_NOSIGNAL) == 1)
        {
            (void) recv(probe->fds[1], &byte, 1, MSG_DONTWAIT);
        }

        now = probe->clock(probe->data);

        if (now - last > most) {
            slow++;

            /* that is not of the control, which lasts as long without it */

            last = now - 1;
        }
    }

    return slow;
}
