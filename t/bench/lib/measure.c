/*
 * The clock of the benchmarks: what a call takes, seen by a client that adds
 * as little as a client can.
 *
 *   measure http PORT COUNT FILE...    sends the requests of the files, one
 *                                      after the other on one connection,
 *                                      COUNT times; "@ID" in a later one is
 *                                      the session_id that an earlier answer
 *                                      has; a line of microseconds for each
 *                                      round, a column for each file
 *   measure run COUNT ARG...           starts a program and waits for it
 *   measure core STATE ID COUNT ARG... the same in a session, without nginx
 *
 * A status other than that of the file's first line ends it with 1.
 */

#include "measure.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>


#define FILES_MAX    8
#define TEXT_MAX     65536
#define ID_MAX       48


extern char  **environ;

typedef struct {
    int     status;                   /* that is expected */
    char   *text;                     /* the request */
} request_t;


static char    answer[4 * 1024 * 1024];
static size_t  answered;


void
measure_die(const char *what)
{
    (void) fprintf(stderr, "measure: %s: %s\n", what, strerror(errno));
    exit(1);
}


double
measure_now(void)
{
    struct timespec  ts;

    (void) clock_gettime(CLOCK_MONOTONIC, &ts);

    return (double) ts.tv_sec * 1e6 + (double) ts.tv_nsec / 1e3;
}


long
measure_count(const char *text)
{
    char  *end;
    long   n;

    n = strtol(text, &end, 10);

    if (n < 1 || *end != '\0') {
        errno = EINVAL;
        measure_die(text);
    }

    return n;
}


/* A file: the status, a newline, the request with newlines of its own. */

static void
load(request_t *request, const char *path)
{
    char    *text;
    FILE    *f;
    size_t   n;

    f = fopen(path, "r");
    text = calloc(1, TEXT_MAX);

    if (f == NULL || text == NULL) {
        measure_die(path);
    }

    if (fscanf(f, "%d", &request->status) != 1 || fgetc(f) != '\n') {
        measure_die(path);
    }

    n = fread(text, 1, TEXT_MAX - 1, f);

    if (n == 0) {
        measure_die(path);
    }

    (void) fclose(f);
    request->text = text;
}


static int
dial(int port)
{
    int                 fd, one;
    struct sockaddr_in  sin;

    one = 1;
    memset(&sin, 0, sizeof(sin));
    sin.sin_family = AF_INET;
    sin.sin_port = htons((uint16_t) port);
    sin.sin_addr.s_addr = htonl(INADDR_LOOPBACK);

    fd = socket(AF_INET, SOCK_STREAM|SOCK_CLOEXEC, 0);

    if (fd == -1 || connect(fd, (struct sockaddr *) &sin, sizeof(sin)) == -1)
    {
        measure_die("connect");
    }

    (void) setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));

    return fd;
}


/* Reads one answer: by Content-Length, chunks, or none. */

static int
receive(int fd)
{
    int      status;
    char    *end, *field;
    size_t   head, length;
    ssize_t  n;

    answered = 0;
    head = 0;
    length = SIZE_MAX;

    for ( ;; ) {
        n = recv(fd, answer + answered, sizeof(answer) - 1 - answered, 0);

        if (n <= 0) {
            errno = n == 0 ? ECONNRESET : errno;
            measure_die("recv");
        }

        answered += (size_t) n;
        answer[answered] = '\0';

        if (head == 0) {
            end = strstr(answer, "\r\n\r\n");

            if (end == NULL) {
                continue;
            }

            head = (size_t) (end + 4 - answer);
            *end = '\0';
            field = strcasestr(answer, "\r\nContent-Length:");

            if (field != NULL) {
                length = strtoul(field + 17, NULL, 10);

            } else if (strstr(answer, "\r\nTransfer-Encoding:") == NULL) {
                length = 0;
            }

            *end = '\r';
        }

        if (length != SIZE_MAX ? answered >= head + length
            : answered > head + 4
              && memcmp(answer + answered - 5, "0\r\n\r\n", 5) == 0)
        {
            break;
        }
    }

    status = (int) strtol(answer + 9, NULL, 10);
    memmove(answer, answer + head, answered - head + 1);

    return status;
}


static int
http(int argc, char **argv)
{
    int         fd, n, nfiles, i, status;
    char        id[ID_MAX], text[TEXT_MAX], *at, *hole;
    long        count;
    size_t      len;
    double      start;
    request_t   requests[FILES_MAX];

    if (argc < 3 || argc - 2 > FILES_MAX) {
        return 2;
    }

    count = measure_count(argv[1]);
    nfiles = argc - 2;

    for (i = 0; i < nfiles; i++) {
        load(&requests[i], argv[2 + i]);
    }

    fd = dial((int) strtol(argv[0], NULL, 10));
    id[0] = '\0';

    for (n = 0; n < count; n++) {
        for (i = 0; i < nfiles; i++) {
            len = 0;
            text[0] = '\0';

            for (at = requests[i].text;; at = hole + 3) {
                hole = strstr(at, "@ID");
                len += (size_t) snprintf(text + len, sizeof(text) - len,
                                         "%.*s%s",
                                         hole == NULL ? (int) strlen(at)
                                                      : (int) (hole - at),
                                         at, hole == NULL ? "" : id);

                if (hole == NULL) {
                    break;
                }
            }

            start = measure_now();

            if (send(fd, text, len, MSG_NOSIGNAL) != (ssize_t) len) {
                measure_die("send");
            }

            status = receive(fd);
            (void) printf("%s%.1f", i == 0 ? "" : " ", measure_now() - start);

            if (status != requests[i].status) {
                (void) fprintf(stderr, "measure: %s: answered %d: %s\n",
                               argv[2 + i], status, answer);
                return 1;
            }

            at = strstr(answer, "\"session_id\":\"");

            if (at != NULL) {
                (void) snprintf(id, sizeof(id), "%.*s",
                                (int) strcspn(at + 14, "\""), at + 14);
            }
        }

        (void) printf("\n");
    }

    return 0;
}


static int
run(int argc, char **argv)
{
    int     n, status;
    long    count;
    pid_t   pid;
    double  start;

    if (argc < 2) {
        return 2;
    }

    count = measure_count(argv[0]);

    for (n = 0; n < count; n++) {
        start = measure_now();
        errno = posix_spawn(&pid, argv[1], NULL, NULL, argv + 1, environ);

        if (errno != 0 || waitpid(pid, &status, 0) != pid) {
            measure_die(argv[1]);
        }

        (void) printf("%.1f\n", measure_now() - start);

        if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
            (void) fprintf(stderr, "measure: %s: wait status %d\n", argv[1],
                           status);
            return 1;
        }
    }

    return 0;
}


int
main(int argc, char **argv)
{
    int  rc;

    rc = 2;

    if (argc > 2 && strcmp(argv[1], "http") == 0) {
        rc = http(argc - 2, argv + 2);

    } else if (argc > 2 && strcmp(argv[1], "run") == 0) {
        rc = run(argc - 2, argv + 2);

    } else if (argc > 2 && strcmp(argv[1], "core") == 0) {
        rc = measure_core(argc - 2, argv + 2);
    }

    if (rc == 2) {
        (void) fprintf(stderr, "usage: measure http PORT COUNT FILE...\n"
                               "       measure run COUNT PROGRAM [ARG...]\n"
                               "       measure core STATE ID COUNT PROGRAM"
                               " [ARG...]\n");
    }

    return rc;
}
