/*
 * Calls about a session's files, as they go over the wire.
 */

#ifndef SANDBOX_FILES_H
#define SANDBOX_FILES_H

#include <stdint.h>


#define SBX_PATH_MAX          4096    /* with its NUL */


/*
 * FILE.  Strings follow in the same frame, lengths without NULs and without
 * a NUL between: path, path2, metadata.  A path is absolute or relative to the
 * workspace; empty is the workspace.  Resolved inside the session, as user.
 */
typedef enum {
    SBX_FILE_OPEN      = 1,   /* -> OPENED, END after the worker's close */
    SBX_FILE_PUT       = 2,   /* -> READY; DATA..., -> END */
    SBX_FILE_DELETE    = 3,   /* -> END */
    SBX_FILE_GLOB      = 4,   /* path2 = pattern; -> ENTRY..., END */
    SBX_FILE_STAT      = 5,   /* -> ENTRY, END */
    SBX_FILE_LIST      = 6,   /* limit2 = depth; -> ENTRY..., END */
    SBX_FILE_MKDIR     = 7,   /* -> ENTRY, END created */
    SBX_FILE_MOVE      = 8,   /* path2 = to; -> ENTRY, END */
    SBX_FILE_SEARCH    = 9,   /* path2 = the glob, .size bytes, then the
                                 pattern; -> MATCH..., END */
    SBX_FILE_WATCH     = 10,  /* -> READY, CHANGE...; until a side closes,
                                 or END once the path itself is gone */
    SBX_FILE_PACK      = 11,  /* -> READY, DATA (to the worker) ..., END */
    SBX_FILE_UNPACK    = 12,  /* -> READY; DATA..., -> END: .count entries,
                                 .size bytes of files */
    SBX_FILE_COMPOSE   = 13,  /* path2 = the sources, each with its NUL: they
                                 become path, in this order, and go; path may
                                 be one of them, and has .max bytes at most
                                 (0: any); -> ENTRY, END: .count sources,
                                 .size bytes.  An error changes no file */

    /* a watch whose events init keeps until they are asked for */
    SBX_FILE_WATCHER   = 14,  /* as WATCH; -> END: .count is its number, not
                                 0 and never given twice */
    SBX_FILE_EVENTS    = 15,  /* .size = its number; -> CHANGE, ENTRY ...,
                                 END; E_FILE if there is none.  All that has
                                 happened before the call is among them */
    SBX_FILE_UNWATCH   = 16   /* .size = its number; -> END */
} sbx_file_verb_t;

typedef struct {
    uint32_t      verb;                   /* sbx_file_verb_t */
    uint32_t      user;                   /* sbx_user_t */
    uint32_t      flags;                  /* SBX_FILE_F_* */
    uint32_t      mode;                   /* PUT, MKDIR: permission bits */
    uint64_t      size;                   /* PUT: length, SBX_UNSET unknown */
    uint64_t      max;                    /* PUT: bytes at most */
    uint64_t      limit;                  /* GLOB, LIST: entries at most */
    uint64_t      skip;                   /* GLOB, LIST: entries to skip */
    uint64_t      limit2;
    uint32_t      path_len;               /* < SBX_PATH_MAX */
    uint32_t      path2_len;              /* < SBX_PATH_MAX; COMPOSE:
                                             <= SBX_FILE_SOURCES_MAX */
    uint32_t      metadata_len;           /* <= SBX_FILE_METADATA_MAX */
    uint32_t      pad;
} sbx_f_file_t;

#define SBX_FILE_F_RECURSIVE    0x01      /* DELETE, WATCH */
#define SBX_FILE_F_NO_REPLACE   0x02      /* PUT, MOVE: E_EXISTS if there */
#define SBX_FILE_F_MODE         0x04      /* mode was given */
#define SBX_FILE_F_CONDITION    0x08      /* PUT: path2 is If-Match, a newline,
                                             If-None-Match; E_PRECONDITION */
#define SBX_FILE_F_FIXED        0x10      /* SEARCH: no regular expression */
#define SBX_FILE_F_GZIP         0x20      /* PACK */
#define SBX_FILE_F_MORE         0x40      /* see below */
#define SBX_FILE_F_METADATA     0x80      /* PUT, COMPOSE: of the new file:
                                             "KEY\0VALUE\0" ...  Without, it
                                             has none, whatever the one had
                                             that it replaces */
#define SBX_FILE_F_OWNED        0x100     /* what is made is the session
                                             user's, whoever makes it; so is a
                                             file that an upload replaces */

/*
 * SBX_FILE_F_MORE: STAT, LIST, MKDIR, MOVE, COMPOSE, WATCH, WATCHER.  Entries
 * tell what a link leads to, and metadata: all "user." attributes of a file
 * or a directory (of a link: of what it leads to) that are texts and fit, by
 * their names without the prefix.  Paths begin with the call's own instead of
 * the real one.  A LIST goes through each directory right after its name.
 *
 * Of watches: path must be a directory, else E_FILE_TYPE.  A new file that was
 * uploaded comes as CREATE, CHMOD, WRITE, as if it had been written in its
 * place; one in a directory that is new as CREATE, WRITE.  An ENTRY follows
 * each CREATE, WRITE and CHMOD of what is there when it is sent.
 */

#define SBX_FILE_METADATA_MAX   4096
#define SBX_FILE_SOURCES_MAX    32768
#define SBX_WATCHERS_MAX        64        /* of a session */
#define SBX_WATCHER_EVENTS      4096      /* kept of one: then OVERFLOW */

#define SBX_SEARCH_TEXT_MAX     1000      /* bytes of a line that are sent */

typedef enum {
    SBX_TYPE_FILE,
    SBX_TYPE_DIRECTORY,
    SBX_TYPE_LINK,
    SBX_TYPE_FIFO,
    SBX_TYPE_SOCKET,
    SBX_TYPE_DEVICE,
    SBX_TYPE_NONE                         /* of a link that leads nowhere */
} sbx_file_type_t;

/* The path follows; it is absolute. */
typedef enum {
    SBX_CHANGE_CREATE,
    SBX_CHANGE_WRITE,
    SBX_CHANGE_REMOVE,
    SBX_CHANGE_RENAME,
    SBX_CHANGE_CHMOD,
    SBX_CHANGE_OVERFLOW                   /* events were lost; no path */
} sbx_change_t;

typedef struct {
    uint32_t      change;                 /* sbx_change_t */
    uint32_t      path_len;
} sbx_f_change_t;

/* Path and line follow. */
typedef struct {
    uint64_t      line;                   /* from 1 */
    uint32_t      path_len;
    uint32_t      text_len;
} sbx_f_match_t;

/* Strings follow: path, owner, group, target, metadata.  With SBX_FILE_F_MORE
 * the target of a link is where it leads in the end, absolute, and
 * target_type and target_mode are of that; one that leads nowhere has its own
 * text, absolute, SBX_TYPE_NONE and 0.  Without, it is the link's own text and
 * they are 0. */
typedef struct {
    uint32_t      type;                   /* sbx_file_type_t */
    uint32_t      mode;                   /* permission bits, 07777 */
    uint64_t      size;
    int64_t       mtime_ns;
    uint64_t      inode;
    uint32_t      path_len;               /* always absolute */
    uint32_t      owner_len;
    uint32_t      group_len;
    uint32_t      target_len;
    uint32_t      target_type;            /* sbx_file_type_t */
    uint32_t      target_mode;
    uint32_t      metadata_len;           /* "KEY\0VALUE\0" ... */
    uint32_t      pad;
} sbx_f_entry_t;


#endif
