/*
 * For tests of sandbox-init: file calls, as a worker makes them.
 */

#ifndef SBX_FILE_CALLS_H
#define SBX_FILE_CALLS_H

#include "init_test.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>


typedef struct {
    char           path[SBX_PATH_MAX];
    char           target[SBX_PATH_MAX + 1];
    char           metadata[SBX_FILE_METADATA_MAX];
    sbx_f_entry_t  entry;
} file_entry_t;


typedef struct {
    uint32_t       change;
    int            entry;            /* in entries, or -1 */
    char           path[SBX_PATH_MAX];
} file_change_t;


static init_session_t   s;
static init_result_t    r;
static file_entry_t     entries[64];
static unsigned         nentries;
static file_change_t   *changes;     /* 8192 of them */
static unsigned         nchanges;


static void
file_send(init_call_t *call, sbx_f_file_t *file, const char *path,
    const void *path2, size_t path2_len, const void *metadata, size_t len)
{
    size_t          n;
    static uint8_t  buf[sizeof(sbx_f_file_t) + SBX_PATH_MAX
                        + SBX_FILE_SOURCES_MAX + SBX_FILE_METADATA_MAX + 64];

    file->path_len = (uint32_t) strlen(path);
    file->path2_len = (uint32_t) path2_len;
    file->metadata_len = (uint32_t) len;

    memcpy(buf, file, sizeof(*file));
    n = sizeof(*file);
    memcpy(buf + n, path, file->path_len);
    n += file->path_len;
    memcpy(buf + n, path2_len != 0 ? path2 : "", path2_len);
    n += path2_len;
    memcpy(buf + n, len != 0 ? metadata : "", len);
    n += len;

    init_call(&s, SBX_OP_FILE, NULL, NULL, 0, call);
    init_send(call->fd, SBX_F_FILE, buf, n);
}


static void
file_entry(const uint8_t *payload, size_t size)
{
    const char    *path, *owner, *group, *target;
    file_entry_t  *entry;

    if (nentries == sbx_nelts(entries)) {
        return;
    }

    entry = &entries[nentries++];
    memset(entry, 0, sizeof(*entry));

    if (sbx_wire_check_entry(payload, size, &entry->entry, &path, &owner,
                             &group, &target)
        != 0)
    {
        (void) strcpy(entry->path, "malformed");
        return;
    }

    (void) sbx_copy_string(entry->path, sizeof(entry->path), path,
                           entry->entry.path_len);
    (void) sbx_copy_string(entry->target, sizeof(entry->target), target,
                           entry->entry.target_len);
    memcpy(entry->metadata, target + entry->entry.target_len,
           entry->entry.metadata_len);
}


static void
file_change(const uint8_t *payload, size_t size)
{
    const char      *path;
    file_change_t   *change;
    sbx_f_change_t   head;

    if (changes == NULL) {
        changes = calloc(8192, sizeof(file_change_t));
    }

    if (nchanges == 8192) {
        return;
    }

    change = &changes[nchanges++];
    memset(change, 0, sizeof(*change));
    change->entry = -1;

    if (sbx_wire_check_change(payload, size, &head, &path) != 0) {
        (void) strcpy(change->path, "malformed");
        return;
    }

    change->change = head.change;
    (void) sbx_copy_string(change->path, sizeof(change->path), path,
                           head.path_len);
}


/* One frame, waited for: its type, 0 (the call's end) or -1 (none came). */

static int
file_next(init_call_t *call, int ms)
{
    int             rc;
    sbx_frame_t     frame;
    const uint8_t  *payload;

    rc = init_next(call, &frame, &payload, NULL, ms);

    if (rc != 1) {
        return rc;
    }

    switch (frame.type) {

    case SBX_F_ENTRY:
        file_entry(payload, frame.length);

        if (nchanges != 0 && changes[nchanges - 1].entry == -1) {
            changes[nchanges - 1].entry = (int) nentries - 1;
        }
        break;

    case SBX_F_CHANGE:
        file_change(payload, frame.length);
        break;

    case SBX_F_ERROR:
        memcpy(&r.error, payload, sizeof(r.error));
        break;

    case SBX_F_END:
        memcpy(&r.end, payload, sizeof(r.end));
        break;
    }

    return frame.type;
}


/* To its end: the code of the error, or 0, or -1 (it was cut). */

static int
file_finish(init_call_t *call)
{
    int  type;

    do {
        type = file_next(call, INIT_WAIT);
    } while (type > 0 && type != SBX_F_ERROR && type != SBX_F_END);

    init_hang_up(call);

    return type == SBX_F_ERROR ? (int) r.error.code
                               : type == SBX_F_END ? 0 : -1;
}


static int
file_call(sbx_f_file_t file, const char *path, const char *path2)
{
    init_call_t  call;

    init_result_free(&r);
    nentries = 0;
    nchanges = 0;

    file_send(&call, &file, path, path2, path2 != NULL ? strlen(path2) : 0,
              NULL, 0);

    return file_finish(&call);
}


static int
file_put(sbx_f_file_t file, const char *path, const char *data,
    const char *metadata, size_t len)
{
    int          type;
    init_call_t  call;

    init_result_free(&r);
    file.verb = SBX_FILE_PUT;
    file.size = SBX_UNSET;
    file.max = file.max != 0 ? file.max : SBX_UNSET;

    file_send(&call, &file, path, NULL, 0, metadata, len);
    type = file_next(&call, INIT_WAIT);

    if (type == SBX_F_READY) {
        init_send(call.fd, SBX_F_DATA, data, strlen(data));
        init_send(call.fd, SBX_F_DATA, NULL, 0);
        return file_finish(&call);
    }

    init_hang_up(&call);

    return type == SBX_F_ERROR ? (int) r.error.code : -1;
}


static const char *
shell(const char *script)
{
    init_shell(&s, script, &r);

    return init_text(r.out);
}


/* The value of a key of the entry's metadata, or "-". */

static const char *
file_metadata(const file_entry_t *entry, const char *key)
{
    const char  *p, *end, *value;

    end = entry->metadata + entry->entry.metadata_len;

    for (p = entry->metadata; p < end; p = value + strlen(value) + 1) {
        value = p + strlen(p) + 1;

        if (strcmp(p, key) == 0) {
            return value;
        }
    }

    return "-";
}


#endif
