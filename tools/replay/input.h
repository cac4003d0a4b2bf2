/* Bytes of a file or of standard input, gzip or not, in order. */
#ifndef KN_INPUT_H
#define KN_INPUT_H

#include <knet/status.h>
#include <stdbool.h>
#include <stdint.h>
#include <zlib.h>

typedef struct kn__input {
    gzFile file;
    /* For messages. */
    const char *name;
    /* Of the next byte, in what gzip holds. */
    uint64_t offset;
    /* In the buffer. */
    size_t at, n;
    bool end;
    unsigned char buffer[1 << 16];
} kn__input;

/* What messages call the file: "standard input" for "-". */
const char *kn__input_name(const char *path);

/* "-" is standard input. The input is large: not on a stack that is small. Errors: IO, naming the
 * path. */
KN_MUST_CHECK kn_status kn__input_open(kn__input *in, const char *path);
void kn__input_close(kn__input *in);
/* Up to n bytes without taking them, n <= sizeof buffer; *got < n at the end of the file.
 * Errors: IO; FORMAT for bad gzip data. */
KN_MUST_CHECK kn_status kn__input_peek(const unsigned char **out, size_t *got, kn__input *in,
                                       size_t n);
/* Takes n bytes into `out` (NULL: throws them away). Errors: also FORMAT when there are fewer. */
KN_MUST_CHECK kn_status kn__input_read(kn__input *in, void *out, uint64_t n);

#endif
