/* Bytes of a file, gzip or not, in order; for the readers of traces. */
#ifndef KN_REPLAY_INPUT_H
#define KN_REPLAY_INPUT_H

#include <knet/status.h>
#include <zlib.h>

#include "replay.h"

typedef struct kn__input {
    gzFile file;
    const char *path;
    uint64_t offset; /* of the next byte, in what gzip holds */
    size_t at, n;    /* in the buffer */
    bool end;
    unsigned char buffer[1 << 16];
} kn__input;

/* The input is large: not on a stack that is small. Errors: IO, naming the path. */
KN_MUST_CHECK kn_status kn__input_open(kn__input *in, const char *path);
void kn__input_close(kn__input *in);
/* Up to n bytes without taking them, n <= sizeof buffer; *got < n at the end of the file.
 * Errors: IO; FORMAT for bad gzip data. */
KN_MUST_CHECK kn_status kn__input_peek(const unsigned char **out, size_t *got, kn__input *in,
                                       size_t n);
/* Takes n bytes into `out` (NULL: throws them away). Errors: also FORMAT when there are fewer. */
KN_MUST_CHECK kn_status kn__input_read(kn__input *in, void *out, uint64_t n);

/* The readers; the input stands at its beginning. */
kn_status kn__read_kntrace(kn__builder *b, kn__input *in);
kn_status kn__read_csv(kn__builder *b, kn__input *in);
kn_status kn__read_torch(kn__builder *b, kn__input *in);

#endif
