/*
 * Commands of an earlier broker.  Their groups are all that is left to tell
 * of them, and an empty one tells nothing: it may be in a task that init has
 * not read yet, or in its hands, about to be used.  So each stays until init,
 * which takes tasks in their order, has said which it has: those run, or will,
 * and their ends are told as those of any command.  The others (the spare
 * one, and what had not been handed on, or was over) are removed as soon as
 * they are empty.
 *
 * What a broker has asked that is dead may be answered to its successor, whose
 * groups are more than those that were asked for: an answer has the token of
 * its question.
 */

#include "broker.h"


static int sbx_command_found(sbx_cgroup_command_t *group, uint32_t number,
    int busy, void *data);
static uint32_t sbx_command_token(const sbx_session_t *s);
static void sbx_command_is_held(sbx_session_t *s, sbx_command_t *command,
    int kernel);


int
sbx_command_adopt(sbx_session_t *s, sbx_error_t *e)
{
    if (sbx_cgroup_command_list(s->cgroup, sbx_command_found, s, e) != 0) {
        return -1;
    }

    sbx_command_ask(s);

    return 0;
}


/* What still runs counts. */

static int
sbx_command_found(sbx_cgroup_command_t *group, uint32_t number, int busy,
    void *data)
{
    sbx_command_t  *command;
    sbx_session_t  *s;

    s = data;
    command = calloc(1, sizeof(sbx_command_t));

    if (command == NULL) {
        return -1;
    }

    sbx_list_init(&command->link);
    command->number = number;
    command->group = group;
    command->counted = busy != 0;

    sbx_list_append(&s->inherited, &command->link);
    s->ncommands++;

    if (busy) {
        sbx_quota_commands(s, 1);
    }

    return 0;
}


static uint32_t
sbx_command_token(const sbx_session_t *s)
{
    return (uint32_t) s->broker->started;
}


void
sbx_command_ask(sbx_session_t *s)
{
    s->unasked = sbx_command_send_with(s, SBX_OP_COMMANDS,
                                       sbx_command_token(s), -1)
                 != 0 && s->control != -1;

    if (s->unasked) {
        sbx_command_retry(s);
    }
}


void
sbx_command_held(sbx_session_t *s, const sbx_record_t *record)
{
    sbx_node_t     *node;
    sbx_command_t  *command;

    if (record->type == SBX_R_HELD) {
        for (node = s->inherited.next;
             node != &s->inherited;
             node = node->next)
        {
            command = sbx_node_of(node, sbx_command_t, link);

            if (command->number == record->command) {
                sbx_command_is_held(s, command, record->reason != 0);
                break;
            }
        }

        return;
    }

    if (record->command != sbx_command_token(s)) {
        return;
    }

    while (!sbx_list_empty(&s->inherited)) {
        command = sbx_node_of(s->inherited.next, sbx_command_t, link);
        (void) sbx_command_over(s, command->number);
    }
}


static void
sbx_command_is_held(sbx_session_t *s, sbx_command_t *command, int kernel)
{
    sbx_list_remove(&command->link);
    sbx_list_append(kernel ? &s->kernels : &s->running, &command->link);
    command->kernel = kernel != 0;

    if (kernel == command->counted) {
        command->counted = !kernel;
        sbx_quota_commands(s, kernel ? -1 : 1);
    }
}
