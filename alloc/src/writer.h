/* Text and JSON into a buffer or a file, with no memory but the caller's: for what has to be said
 * when there is none, too. */
#ifndef KNET_ALLOC_WRITER_H
#define KNET_ALLOC_WRITER_H

#include <knet/status.h>

typedef struct kn__writer {
    int fd;    /* -1: a buffer alone; what doesn't fit is cut */
    int error; /* errno of the first write that failed; 0: none did */
    size_t n, room;
    char *data; /* always ends in a zero */
} kn__writer;

enum { KN__WRITER_BYTES = 4096 };

/* %p is the process id; false: the path is too long. */
bool kn__path_expand(char *out, size_t out_bytes, const char *path);

kn__writer kn__writer_of(char *buffer, size_t bytes);
/* Opens a file, emptied first unless `append`; "-" is stderr, %p in the path the process id.
 * Errors: IO, naming the path and the function that was called. */
KN_MUST_CHECK kn_status kn__writer_open(kn__writer *out, const char *path, bool append,
                                        const char *function, char *buffer, size_t bytes);
/* Writes what is left and closes. Errors: IO, the same way. */
KN_MUST_CHECK kn_status kn__writer_close(kn__writer *w, const char *path, const char *function);

void kn__write_text(kn__writer *w, const char *text);
void kn__write(kn__writer *w, const char *fmt, ...) KN_PRINTF(2, 3);
/* "300 bytes", "1.5 KiB", "2.25 GiB" */
void kn__write_bytes(kn__writer *w, uint64_t bytes);
/* With its quotes; what is no UTF-8 becomes U+FFFD. */
void kn__write_json_string(kn__writer *w, const char *text);

#endif
