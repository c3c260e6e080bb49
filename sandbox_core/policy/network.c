/* Rules of networks. */

#include "sandbox_network.h"


int
sbx_network_rule_parse(const char *s, size_t len, sbx_network_rule_t *rule, sbx_error_t *e)
{
    (void) s;
    (void) len;
    (void) rule;
    (void) e;

    return -1;
}


size_t
sbx_network_rule_print(const sbx_network_rule_t *rule, char *buf)
{
    (void) rule;
    (void) buf;

    return 0;
}


int
sbx_network_rule_within(const sbx_network_rule_t *inner, const sbx_network_rule_t *outer)
{
    (void) inner;
    (void) outer;

    return -1;
}


int
sbx_network_host_ok(const char *s, size_t len, char *out)
{
    (void) s;
    (void) len;
    (void) out;

    return -1;
}


int
sbx_network_check(const void *rules, size_t size, sbx_error_t *e)
{
    (void) rules;
    (void) size;
    (void) e;

    return -1;
}


int
sbx_network_next(const void *rules, size_t size, size_t *at, char *type, const char **text, sbx_network_rule_t *rule)
{
    (void) rules;
    (void) size;
    (void) at;
    (void) type;
    (void) text;
    (void) rule;

    return -1;
}


int
sbx_network_list(const void *rules, size_t size, sbx_network_list_t *list, sbx_error_t *e)
{
    (void) rules;
    (void) size;
    (void) list;
    (void) e;

    return -1;
}


void
sbx_network_list_free(sbx_network_list_t *list)
{
    (void) list;
}


sbx_network_say_t
sbx_network_say_host(const sbx_network_list_t *list, const char *host, unsigned port)
{
    (void) list;
    (void) host;
    (void) port;

    return (sbx_network_say_t) 0;
}


sbx_network_say_t
sbx_network_say_address(const sbx_network_list_t *list, const uint8_t address[16], unsigned port)
{
    (void) list;
    (void) address;
    (void) port;

    return (sbx_network_say_t) 0;
}


int
sbx_network_means(const sbx_network_list_t *list, const uint8_t address[16], unsigned port)
{
    (void) list;
    (void) address;
    (void) port;

    return -1;
}


sbx_network_class_t
sbx_network_class(const uint8_t address[16])
{
    (void) address;

    return (sbx_network_class_t) 0;
}


const char *
sbx_network_class_word(sbx_network_class_t class)
{
    (void) class;

    return "";
}


const char *
sbx_network_address_print(const uint8_t address[16], char *buf)
{
    (void) address;
    (void) buf;

    return "";
}


int
sbx_egress_row_next(const void *table, size_t size, sbx_egress_row_t *row)
{
    (void) table;
    (void) size;
    (void) row;

    return -1;
}


int
sbx_egress_table_check(const void *table, size_t size, sbx_error_t *e)
{
    (void) table;
    (void) size;
    (void) e;

    return -1;
}


int
sbx_egress_table_grants(const void *table, size_t size, const char *template)
{
    (void) table;
    (void) size;
    (void) template;

    return -1;
}


int
sbx_egress_table_tls(const void *table, size_t size, const char *template)
{
    (void) table;
    (void) size;
    (void) template;

    return -1;
}


int
sbx_network_narrows(const void *table, size_t size, const char *template, sbx_network_mode_t mode, const void *rules, size_t rules_size, const char *at, sbx_error_t *e)
{
    (void) table;
    (void) size;
    (void) template;
    (void) mode;
    (void) rules;
    (void) rules_size;
    (void) at;
    (void) e;

    return -1;
}


const char *
sbx_refused_word(unsigned reason)
{
    (void) reason;

    return "";
}
