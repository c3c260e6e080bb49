/* A doubly linked list with a head of the same type. */

#ifndef SBX_LIST_H
#define SBX_LIST_H

#include <stddef.h>


typedef struct sbx_node_s  sbx_node_t;

struct sbx_node_s {
    sbx_node_t  *prev;
    sbx_node_t  *next;
};


#define sbx_node_of(node, type, member)                                      \
    ((type *) (void *) ((char *) (node) - offsetof(type, member)))


static inline void
sbx_list_init(sbx_node_t *head)
{
    head->prev = head;
    head->next = head;
}


static inline int
sbx_list_empty(const sbx_node_t *head)
{
    return head->next == head;
}


static inline void
sbx_list_append(sbx_node_t *head, sbx_node_t *node)
{
    node->prev = head->prev;
    node->next = head;
    head->prev->next = node;
    head->prev = node;
}


static inline void
sbx_list_remove(sbx_node_t *node)
{
    node->prev->next = node->next;
    node->next->prev = node->prev;
    node->prev = node;
    node->next = node;
}


#endif
