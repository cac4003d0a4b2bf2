/* Paths, files that reports are written to, and the user's cache. */
#ifndef KN_BASE_FILE_H
#define KN_BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>

enum { KN__PATH_EXPANDED_BYTES = 4096 };

/* This process among those of a job, as its launcher says: "0" without one. */
const char *kn__rank_text(void);
/* The path with the process id for each "%p", the rank of the process in its job (0 without one)
 * for each "%r", and a percent sign for each "%%"; false: it has no room, and `out` holds its
 * begin. */
bool kn__path_expand(char *out, size_t out_bytes, const char *path);
/* Whether the path has a "%p" or "%r", as `what` says, that is expanded. */
bool kn__path_has(const char *path, char what);

/* When the program starts: remembers the folder of now, and whether there is a stderr. */
void kn__start_remember(void);
/* Where a file is that the environment names: where the program was started, wherever it is now or
 * goes to while the file is written; for kn__path_expand. Returns `path`, or `out` with the folder
 * before it; a path that would be too long stays as it is, as does one in a folder whose whole path
 * this process may not follow. */
const char *kn__path_from_start(char out[KN__PATH_EXPANDED_BYTES], const char *path);

/* Writes all of it, also where fd doesn't block; returns 0 or an errno, then ETIMEDOUT if a reader
 * takes nothing for seconds. A reader that has gone and a file that may not grow are errors, not
 * signals: a report that can't be written must not end the program. */
int kn__write_all(int fd, const void *bytes, size_t length);

/* The same to stderr. EBADF, and nothing is written, if the program was started without one: its
 * number may be that of a file of the program's own. */
int kn__stderr_write(const void *bytes, size_t length);

/* A descriptor of the same file above the three standard streams, closed on exec: fd, or a copy,
 * and fd is closed. -1: fd is -1, or errno says why. */
int kn__above_streams(int fd);

/* Opens a file to write from its start, for as long as the program runs: never as one of the three
 * standard streams, which may be closed. -1: errno says why, EWOULDBLOCK that another process has
 * opened it in this way. */
int kn__open_output(const char *path);
const char *kn__output_error(int error);

/* Whether the path is the name of a descriptor, which each process has for itself. */
bool kn__path_is_descriptor(const char *path);

/* stdout or stderr if one of them is this file, as /dev/stdout is; else -1. */
int kn__standard_stream(const char *path);

/* Writes a file; returns 0 or an errno. A regular file that exists, or the one that a link leads
 * to, is replaced once the new one is complete, and stays if it can't be: a full disk loses no
 * report. Devices, pipes, links whose file has no path, and empty files, which their maker may hold
 * open, are written in place; the file that is stdout or stderr through that stream, after what was
 * written there. */
int kn__file_write(const char *path, const char *bytes, size_t length);
/* The same for contents that `write_fn` writes to fd in order; it returns 0 or an errno. */
int kn__file_write_by(const char *path, int (*write_fn)(void *ctx, int fd), void *ctx);
/* Adds to the file. A regular file that the bytes don't fit in stays as it was. */
int kn__file_append(const char *path, const char *bytes, size_t length);

/* The path of a file kept for the user, $XDG_CACHE_HOME/knet/NAME, or .cache/knet/NAME in $HOME.
 * False: neither is an absolute path, the process has more rights than its user, or there is no
 * room. */
bool kn__cache_path(char *out, size_t out_bytes, const char *name);
/* Makes the directories of a path, with a mode as mkdir takes it. Returns 0 or the errno of the
 * first that can't be made. */
int kn__make_parents(const char *path, unsigned mode);

#endif
