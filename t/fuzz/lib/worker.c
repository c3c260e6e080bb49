/*
 * The worker of worker.h: its configuration, its requests, and the turns of
 * its events.  What it takes from nginx is nginx's own code, but for what is
 * in worker_nginx.c.
 */

#include "worker_state.h"

#include "e2b/ngx_http_sandbox_e2b.h"

#include <poll.h>


#define WORKER_CONNECTIONS   32
#define WORKER_MODULES       4
#define WORKER_TURNS         2000
#define WORKER_FIXED         4
#define WORKER_SESSION       "i00000000000000000000"


static void worker_begin(void);
static void worker_hash(ngx_hash_t *hash, const char *word, void *value);
static void worker_known(ngx_http_request_t *r, ngx_table_elt_t *h);
static void worker_ask(const uint8_t *p, size_t n);
static void worker_end(void);
static void worker_message(unsigned kind, unsigned how, const uint8_t *p,
    size_t n);
static void worker_nothing(ngx_event_t *ev);


extern ngx_module_t  ngx_http_copy_filter_module;


worker_t  worker;

static ngx_open_file_t      log_file;
static ngx_connection_t     connections[WORKER_CONNECTIONS];
static ngx_event_t          reads[WORKER_CONNECTIONS];
static ngx_event_t          writes[WORKER_CONNECTIONS];
static ngx_event_t          client_read, client_write, turn;
static ngx_http_log_ctx_t   log_ctx;
static ngx_conf_t           conf;
static ngx_http_conf_ctx_t  contexts;
static void             ***cycle_confs[1];
static void                *main_confs[WORKER_MODULES];
static void                *srv_confs[WORKER_MODULES];
static void                *loc_confs[WORKER_MODULES];
static u_char              *asked;     /* the text that a request is in */




static void
worker_begin(void)
{
    int                            size;
    ngx_str_t                     *value;
    ngx_uint_t                     i;
    ngx_http_module_t             *m;
    ngx_http_core_loc_conf_t      *clcf;
    ngx_http_core_srv_conf_t      *cscf;
    ngx_http_sandbox_loc_conf_t   *prev, *slcf;
    ngx_http_sandbox_main_conf_t  *smcf;

    static uint8_t    key[SBX_TOKEN_KEY] = "a key that is no secret of ours";
    static ngx_str_t  prefix = ngx_string("/nowhere/");
    static ngx_str_t  text = ngx_string("text/html");
    static ngx_http_upstream_header_t  no_header;

    log_file.fd = open("/dev/null", O_WRONLY|O_CLOEXEC);
    worker.log.file = &log_file;
    worker.log.log_level = NGX_LOG_INFO;
    worker.log.data = &log_ctx;
    log_ctx.connection = &worker.client;
    turn.log = &worker.log;
    turn.handler = worker_nothing;

    ngx_pagesize = 4096;
    ngx_cacheline_size = 64;
    ngx_time_init();
    (void) ngx_event_timer_init(&worker.log);
    ngx_queue_init(&ngx_posted_events);
    ngx_queue_init(&ngx_posted_next_events);

    worker_events();

    worker.cycle.log = &worker.log;
    worker.cycle.pool = ngx_create_pool(4096, &worker.log);
    worker.cycle.prefix = prefix;
    worker.cycle.conf_prefix = prefix;
    worker.cycle.connections = connections;
    worker.cycle.read_events = reads;
    worker.cycle.write_events = writes;
    worker.cycle.connection_n = WORKER_CONNECTIONS;
    ngx_queue_init(&worker.cycle.reusable_connections_queue);
    ngx_cycle = &worker.cycle;

    for (i = WORKER_CONNECTIONS; i != 0; i--) {
        connections[i - 1].data = worker.cycle.free_connections;
        connections[i - 1].read = &reads[i - 1];
        connections[i - 1].write = &writes[i - 1];
        connections[i - 1].fd = (ngx_socket_t) -1;
        worker.cycle.free_connections = &connections[i - 1];
        worker.cycle.free_connection_n++;
    }

    worker.client.fd = (ngx_socket_t) -1;
    worker.client.read = &client_read;
    worker.client.write = &client_write;
    worker.client.log = &worker.log;
    client_read.log = client_write.log = &worker.log;
    client_read.data = client_write.data = &worker.client;
    client_read.handler = client_write.handler = worker_nothing;

    ngx_http_core_module.ctx_index = 0;
    ngx_http_upstream_module.ctx_index = 1;
    ngx_http_sandbox_module.ctx_index = 2;
    ngx_http_copy_filter_module.ctx_index = 3;
    ngx_http_max_module = WORKER_MODULES;
    ngx_http_module.index = 0;
    worker.cycle.conf_ctx = cycle_confs;
    cycle_confs[0] = (void ***) &contexts;
    contexts.main_conf = main_confs;
    contexts.srv_conf = srv_confs;
    contexts.loc_conf = loc_confs;

    conf.cycle = &worker.cycle;
    conf.pool = worker.cycle.pool;
    conf.temp_pool = worker.cycle.pool;
    conf.log = &worker.log;
    conf.ctx = &contexts;
    conf.module_type = NGX_HTTP_MODULE;

    main_confs[0] = ngx_pcalloc(worker.cycle.pool,
                                sizeof(ngx_http_core_main_conf_t));
    main_confs[1] = ngx_pcalloc(worker.cycle.pool,
                                sizeof(ngx_http_upstream_main_conf_t));
    cscf = ngx_pcalloc(worker.cycle.pool, sizeof(ngx_http_core_srv_conf_t));
    clcf = ngx_pcalloc(worker.cycle.pool, sizeof(ngx_http_core_loc_conf_t));
    cscf->merge_slashes = 1;
    ngx_str_set(&clcf->name, "/");
    clcf->client_body_buffer_size = 16384;
    clcf->aio = NGX_HTTP_AIO_THREADS;           /* of a pool that is there */
    worker_hash(&clcf->types_hash, "html", &text);
    worker_hash(&((ngx_http_upstream_main_conf_t *) main_confs[1])
                 ->headers_in_hash, "x-of-nobody", &no_header);
    srv_confs[0] = cscf;
    loc_confs[0] = clcf;

    m = ngx_http_sandbox_module.ctx;
    smcf = m->create_main_conf(&conf);
    main_confs[2] = smcf;
    conf.args = ngx_array_create(worker.cycle.pool, 3, sizeof(ngx_str_t));
    must(conf.args != NULL);
    value = ngx_array_push_n(conf.args, 3);
    ngx_str_set(&value[0], "egress");
    ngx_str_set(&value[1], "allow");
    ngx_str_set(&value[2], "*");
    must(ngx_http_sandbox_egress_line(&conf, "egress", &smcf->egress)
         == NGX_CONF_OK);
    must(m->init_main_conf(&conf, smcf) == NGX_CONF_OK);
    prev = m->create_loc_conf(&conf);
    slcf = m->create_loc_conf(&conf);
    slcf->api = NGX_HTTP_SANDBOX_API_V1;
    loc_confs[2] = slcf;
    must(m->merge_loc_conf(&conf, prev, slcf) == NGX_CONF_OK);
    slcf->max_json = 65536;

    must(socketpair(AF_UNIX, SOCK_SEQPACKET|SOCK_NONBLOCK|SOCK_CLOEXEC, 0,
                    worker.door) == 0);
    size = 1 << 18;
    (void) setsockopt(worker.door[0], SOL_SOCKET, SO_SNDBUF, &size,
                      sizeof(size));
    smcf->control = worker.door[0];
    smcf->used = 1;
    smcf->request_id = 0;
    smcf->token_key = key;
    must(ngx_http_sandbox_init_process(&worker.cycle) == NGX_OK);
}


/* One of nginx's tables with one word in it. */

static void
worker_hash(ngx_hash_t *hash, const char *word, void *value)
{
    ngx_hash_key_t   key;
    ngx_hash_init_t  init;

    key.key.data = (u_char *) word;
    key.key.len = ngx_strlen(word);
    key.key_hash = ngx_hash_key(key.key.data, key.key.len);
    key.value = value;
    ngx_memzero(&init, sizeof(ngx_hash_init_t));
    init.hash = hash;
    init.key = ngx_hash_key_lc;
    init.max_size = 64;
    init.bucket_size = 64;
    init.name = "fuzz";
    init.pool = worker.cycle.pool;
    must(ngx_hash_init(&init, &key, 1) == NGX_OK);
}


ngx_conf_t *
worker_conf(void)
{
    if (worker.cycle.pool == NULL) {
        worker_begin();
    }

    return &conf;
}


ngx_http_request_t *
worker_request(void)
{
    ngx_pool_t          *pool;
    ngx_http_request_t  *r;

    (void) worker_conf();
    pool = ngx_create_pool(1024, &worker.log);
    r = calloc(1, sizeof(ngx_http_request_t));
    must(pool != NULL && r != NULL);
    r->ctx = calloc(WORKER_MODULES, sizeof(void *));
    r->header_in = calloc(1, sizeof(ngx_buf_t));
    must(r->ctx != NULL && r->header_in != NULL);

    r->signature = NGX_HTTP_MODULE;
    r->pool = pool;
    r->connection = &worker.client;
    r->main = r;
    r->count = 1;
    r->main_conf = main_confs;
    r->srv_conf = srv_confs;
    r->loc_conf = loc_confs;
    r->read_event_handler = ngx_http_block_reading;
    r->headers_in.content_length_n = -1;
    r->headers_out.content_length_n = -1;
    r->headers_out.last_modified_time = -1;
    must(ngx_list_init(&r->headers_in.headers, pool, 4,
                       sizeof(ngx_table_elt_t)) == NGX_OK);
    must(ngx_list_init(&r->headers_out.headers, pool, 4,
                       sizeof(ngx_table_elt_t)) == NGX_OK);
    must(ngx_list_init(&r->headers_out.trailers, pool, 4,
                       sizeof(ngx_table_elt_t)) == NGX_OK);

    worker.client.read->ready = 0;
    worker.client.pool = pool;
    worker.client.data = r;
    worker.request = r;
    worker.over = 0;
    worker.finals = 0;
    worker.final = NGX_DONE;
    worker.status = 0;
    worker.whole = 0;
    worker.header_only = 0;
    worker.type[0] = '\0';
    worker.answer_len = 0;
    worker.answer_lost = 0;
    worker.told = 0;
    worker.said_len = 0;

    return r;
}


void
worker_request_free(ngx_http_request_t *r)
{
    worker_over(r);
}


static void
worker_known(ngx_http_request_t *r, ngx_table_elt_t *h)
{
    u_char  *p, *end;

    if (h->key.len == 4 && ngx_memcmp(h->lowcase_key, "host", 4) == 0) {
        p = ngx_pnalloc(r->pool, h->value.len);
        ngx_strlow(p, h->value.data, h->value.len);
        end = ngx_strlchr(p, p + h->value.len, ':');
        r->headers_in.host = h;
        r->headers_in.server.data = p;
        r->headers_in.server.len = end ? (size_t) (end - p) : h->value.len;
    }

    /* the right one for the session that seeds ask for */

    if (h->value.len == 5 && ngx_memcmp(h->value.data, "right", 5) == 0
        && (h->key.len == 14 || h->key.len == 24))
    {
        h->value.len = NGX_HTTP_SANDBOX_E2B_TOKEN;
        h->value.data = ngx_pcalloc(r->pool, h->value.len + 1);
        ngx_http_sandbox_e2b_token(main_confs[2],
                                   h->key.len == 14
                                   ? NGX_HTTP_SANDBOX_E2B_TOKEN_ENVD
                                   : NGX_HTTP_SANDBOX_E2B_TOKEN_TRAFFIC,
                                   (u_char *) WORKER_SESSION,
                                   sizeof(WORKER_SESSION) - 1,
                                   h->value.data);
    }

    if (h->key.len == 12
        && ngx_memcmp(h->lowcase_key, "content-type", 12) == 0)
    {
        r->headers_in.content_type = h;
    }

    if (h->key.len == 13
        && ngx_memcmp(h->lowcase_key, "authorization", 13) == 0)
    {
        r->headers_in.authorization = h;
    }
}


ngx_int_t
worker_head(ngx_http_request_t *r, u_char *p, size_t n)
{
    ngx_int_t         rc;
    ngx_buf_t        *b;
    ngx_table_elt_t  *h;

    b = r->header_in;
    b->start = b->pos = p;
    b->last = b->end = p + n;
    b->memory = b->temporary = 1;

    if (ngx_http_parse_request_line(r, b) != NGX_OK || r->http_version < 1000)
    {
        return NGX_DECLINED;
    }

    r->method_name.data = r->request_start;
    r->method_name.len = r->method_end - r->request_start + 1;
    r->uri.len = (r->args_start ? r->args_start - 1 : r->uri_end)
                 - r->uri_start;
    r->unparsed_uri.data = r->uri_start;
    r->unparsed_uri.len = r->uri_end - r->uri_start;
    r->valid_unparsed_uri = r->empty_path_in_uri ? 0 : 1;

    if (r->complex_uri || r->quoted_uri || r->empty_path_in_uri) {
        if (r->empty_path_in_uri) {
            r->uri.len++;
        }

        r->uri.data = ngx_pnalloc(r->pool, r->uri.len + 1);

        if (ngx_http_parse_complex_uri(r, 1) != NGX_OK) {
            return NGX_DECLINED;
        }

    } else {
        r->uri.data = r->uri_start;
    }

    if (r->args_start && r->uri_end > r->args_start) {
        r->args.data = r->args_start;
        r->args.len = r->uri_end - r->args_start;
    }

    r->state = 0;

    for ( ;; ) {
        rc = ngx_http_parse_header_line(r, b, 1);

        if (rc == NGX_HTTP_PARSE_HEADER_DONE) {
            return NGX_OK;
        }

        if (rc != NGX_OK) {
            return NGX_DECLINED;
        }

        if (r->invalid_header) {
            continue;
        }

        h = ngx_list_push(&r->headers_in.headers);
        ngx_memzero(h, sizeof(ngx_table_elt_t));
        h->hash = r->header_hash;
        h->key.len = r->header_name_end - r->header_name_start;
        h->key.data = r->header_name_start;
        h->key.data[h->key.len] = '\0';
        h->value.len = r->header_end - r->header_start;
        h->value.data = r->header_start;
        h->value.data[h->value.len] = '\0';
        h->lowcase_key = ngx_pnalloc(r->pool, h->key.len);
        ngx_strlow(h->lowcase_key, h->key.data, h->key.len);
        worker_known(r, h);
    }
}


void
worker_input(ngx_uint_t api, const uint8_t *data, size_t size)
{
    int                           before, after;
    size_t                        n;
    const uint8_t                *end;
    ngx_http_sandbox_loc_conf_t  *slcf;

    (void) worker_conf();
    slcf = loc_confs[2];
    slcf->api = api;

    /* a turn like any other, whatever the one before has spent */

    ngx_http_sandbox_turn_wait(&turn);
    worker_turns();
    before = dup(log_file.fd);
    must(before != -1);
    (void) close(before);

    end = size ? memchr(data, WORKER_ASKED, size) : NULL;
    n = end != NULL ? (size_t) (end - data) : size;
    worker_ask(data, n);
    n += end != NULL;
    data += n;
    size -= n;

    while (size >= WORKER_FIXED) {
        n = (size_t) data[2] | (size_t) data[3] << 8;
        n = ngx_min(n, size - WORKER_FIXED);

        if (data[0] == WORKER_NEXT) {
            worker_end();
            worker_ask(data + WORKER_FIXED, n);

        } else if (worker.request != NULL) {
            worker_message(data[0], data[1], data + WORKER_FIXED, n);
        }

        data += WORKER_FIXED + n;
        size -= WORKER_FIXED + n;
    }

    worker_end();

    after = dup(log_file.fd);
    must(after == before);
    (void) close(after);
}


/* The text of a request; what is none is not asked. */

static void
worker_ask(const uint8_t *p, size_t n)
{
    size_t               len;
    ngx_http_request_t  *r;

    asked = malloc(n ? n : 1);
    must(asked != NULL);
    memcpy(asked, p, n);
    r = worker_request();

    if (worker_head(r, asked, n) != NGX_OK) {
        worker_request_free(r);
        return;
    }

    len = (size_t) (r->header_in->last - r->header_in->pos);

    if (len != 0) {
        r->headers_in.content_length_n = (off_t) len;
    }

    ngx_http_finalize_request(r, ngx_http_sandbox_handler(r));
    worker_turns();
}


/* The core is gone, and what is asked again finds it gone as well. */

static void
worker_end(void)
{
    ngx_uint_t  i;

    for (i = 0; i < 4 && worker.request != NULL; i++) {
        worker_message(WORKER_END, 0, NULL, 0);
    }

    if (worker.request != NULL) {

        /* it waits for its client, who goes as well */

        worker_over(worker.request);

    } else if (worker.finals != 0) {
        must(worker.finals == 1);
        worker_check_answer();
    }

    worker_core_gone();
    worker_turns();
    free(asked);
    asked = NULL;

    must(worker.cycle.free_connection_n == WORKER_CONNECTIONS);
    must(ngx_event_timer_rbtree.root == ngx_event_timer_rbtree.sentinel);
}


/* Until nothing moves any more. */

void
worker_turns(void)
{
    ngx_uint_t         i, turns, moved;
    ngx_queue_t       *q;
    struct pollfd      pfd;
    ngx_connection_t  *c;

    for (turns = 0; turns < WORKER_TURNS; turns++) {
        worker_core();
        moved = !ngx_queue_empty(&ngx_posted_events);
        ngx_event_process_posted(&worker.cycle, &ngx_posted_events);

        while (!ngx_queue_empty(&ngx_posted_next_events)) {
            q = ngx_queue_head(&ngx_posted_next_events);
            ngx_queue_remove(q);
            ngx_queue_insert_tail(&ngx_posted_events, q);
            moved = 1;
        }

        for (i = 0; i < WORKER_CONNECTIONS; i++) {
            c = &connections[i];

            if (c->fd == (ngx_socket_t) -1) {
                continue;
            }

            pfd.fd = c->fd;
            pfd.events = POLLIN|POLLOUT;

            if (poll(&pfd, 1, 0) != 1) {
                continue;
            }

            if ((pfd.revents & (POLLIN|POLLHUP|POLLERR)) && c->read->active
                && !c->read->ready)
            {
                c->read->ready = 1;
                moved = 1;
                c->read->handler(c->read);
            }

            if (c->fd == pfd.fd && (pfd.revents & (POLLOUT|POLLERR))
                && c->write->active && !c->write->ready)
            {
                c->write->ready = 1;
                moved = 1;
                c->write->handler(c->write);
            }
        }

        if (!moved) {
            return;
        }
    }

    /* it turns in circles */

    abort();
}


static void
worker_message(unsigned kind, unsigned how, const uint8_t *p, size_t n)
{
    ngx_http_request_t  *r;

    r = worker.request;

    switch (kind) {

    case WORKER_CLIENT:
        worker.said = p;
        worker.said_len = n;
        worker.client.read->ready = 1;

        if (r->read_event_handler != ngx_http_block_reading
            && r->read_event_handler != ngx_http_test_reading)
        {
            r->read_event_handler(r);
        }

        break;

    case WORKER_END:
        worker_core_gone();
        break;

    case WORKER_TIME:
        ngx_current_msec += n * 1000;
        ngx_event_expire_timers();
        break;

    default:
        worker_core_say(kind, how, p, n);
    }

    worker_turns();
}


static void
worker_nothing(ngx_event_t *ev)
{
    /* void */
}
