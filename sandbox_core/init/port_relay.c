/*
 * The bytes between a worker and a program that listens.  Each way holds one
 * piece: more is read when that has gone, so each side waits for the other as
 * over a connection of their own.
 *
 * An end that is no end of what the program said would be one to who reads
 * until there is no more.  So the worker is told of a true one by a frame in
 * the call, before it sees the link's; a link that ends without was cut off.
 */

#include "init_port.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>


#define SBX_INIT_PORT_PIECE   16384
#define SBX_INIT_PORT_ROUNDS  8        /* before others have their turn */
#define SBX_INIT_PORT_LAST    64       /* pieces: more than a link holds */


static int sbx_init_port_round(sbx_init_port_t *p);
static int sbx_init_port_move(sbx_init_way_t *w, int from, int to);
static void sbx_init_port_wait(sbx_init_port_t *p);
static int sbx_init_port_end(sbx_init_port_t *p);


int
sbx_init_port_open(sbx_init_port_t *p)
{
    p->bytes = malloc(2 * SBX_INIT_PORT_PIECE);

    if (p->bytes == NULL) {
        return -1;
    }

    p->there.data = p->bytes;
    p->back.data = p->bytes + SBX_INIT_PORT_PIECE;
    sbx_init_port_wait(p);

    return 0;
}


void
sbx_init_port_moves(sbx_init_source_t *source, uint32_t events)
{
    unsigned          i;
    sbx_error_t       e;
    sbx_init_port_t  *p;

    (void) events;

    p = source->data;

    if (p->state != SBX_INIT_PORT_OPEN) {
        return;
    }

    for (i = 0; i < SBX_INIT_PORT_ROUNDS && sbx_init_port_round(p); i++) {
        /* void */
    }

    /* nothing is held of a way that is over */

    if (p->back.refused || p->there.over) {
        sbx_init_port_gone(p);
        return;
    }

    if (p->reset) {
        sbx_init_source_set(&p->link, 0);
        (void) sbx_error(&e, ECONNRESET, SBX_E_UNAVAILABLE,
                         "what listens on port %u of the session has cut the "
                         "connection off", p->port);
        sbx_init_port_fail(p, &e);
        return;
    }

    if (p->back.over && !p->told && sbx_init_port_end(p) != 0) {
        sbx_init_port_free(p);
        return;
    }

    sbx_init_port_wait(p);
}


/* Whether anything has moved. */

static int
sbx_init_port_round(sbx_init_port_t *p)
{
    int  moved;

    moved = sbx_init_port_move(&p->there, p->link.fd, p->socket.fd);

    if (!p->reset && !p->told) {
        moved |= sbx_init_port_move(&p->back, p->socket.fd, p->link.fd);
        p->reset = p->back.over && (errno != 0 || p->there.reset);
    }

    return moved;
}


/* What comes to an end by an error leaves it in errno, else 0. */

static int
sbx_init_port_move(sbx_init_way_t *w, int from, int to)
{
    int      moved;
    ssize_t  n;

    moved = 0;

    if (w->start == w->end && !w->over) {
        n = recv(from, w->data, SBX_INIT_PORT_PIECE, MSG_DONTWAIT);

        if (n > 0) {
            w->start = 0;
            w->end = (size_t) n;
            moved = 1;

        } else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
            errno = n == 0 ? 0 : errno;
            w->over = 1;
            return 0;
        }
    }

    if (w->start != w->end) {
        n = send(to, w->data + w->start, w->end - w->start,
                 MSG_DONTWAIT|MSG_NOSIGNAL);

        if (n > 0) {
            w->start += (size_t) n;
            moved = 1;

        } else if (n == -1 && errno != EAGAIN && errno != EINTR) {
            /*
             * What it says meanwhile is worth hearing all the same.  Of a
             * reset the kernel tells once, and an end after that; one that
             * comes after the program's own end is EPIPE.
             */
            w->refused = 1;
            w->reset |= (errno == ECONNRESET);
            w->start = w->end;
            moved = 1;
        }
    }

    errno = 0;

    return moved;
}


/* The program has said all: 0 if the worker knows. */

static int
sbx_init_port_end(sbx_init_port_t *p)
{
    uint8_t  frame[sizeof(sbx_frame_t) + sizeof(sbx_f_end_t)];

    memset(frame, 0, sizeof(frame));
    (void) sbx_wire_header(frame, SBX_F_END, sizeof(sbx_f_end_t));

    if (sbx_wire_send(p->call.fd, frame, sizeof(frame), NULL, 0,
                      MSG_DONTWAIT)
        != (ssize_t) sizeof(frame))
    {
        return -1;
    }

    p->told = 1;
    (void) shutdown(p->link.fd, SHUT_WR);

    return 0;
}


static void
sbx_init_port_wait(sbx_init_port_t *p)
{
    uint32_t  link, socket;

    link = 0;
    socket = 0;

    if (p->there.start != p->there.end) {
        socket |= EPOLLOUT;

    } else if (!p->there.over) {
        link |= EPOLLIN;
    }

    if (p->back.start != p->back.end) {
        link |= EPOLLOUT;

    } else if (!p->back.over) {
        socket |= EPOLLIN;
    }

    sbx_init_source_set(&p->link, link);
    sbx_init_source_set(&p->socket, socket);
}


void
sbx_init_port_gone(sbx_init_port_t *p)
{
    unsigned       i;
    struct linger  linger;

    if (p->state == SBX_INIT_PORT_OPEN) {

        for (i = 0; i < SBX_INIT_PORT_LAST
                    && sbx_init_port_move(&p->there, p->link.fd,
                                          p->socket.fd);
             i++)
        {
            /* void */
        }

        /* what the program does not take is lost, and it is told so; one
         * that has read all of it sees an end and no reset */

        if (p->there.start != p->there.end) {
            linger.l_onoff = 1;
            linger.l_linger = 0;

            (void) setsockopt(p->socket.fd, SOL_SOCKET, SO_LINGER, &linger,
                              sizeof(struct linger));
        }
    }

    sbx_init_port_free(p);
}
