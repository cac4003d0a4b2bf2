/* Files of the MNIST family: idx, plain or gzip.
 *
 * Layout: two zero bytes, one byte of element type, one of the number of dimensions, each dimension
 * as a big-endian 32-bit number, then the elements row by row. Only unsigned bytes (type 8) are
 * read: that is what images and labels are.
 */
#ifndef KN_IDX_H
#define KN_IDX_H

#include <knet/status.h>

enum { KN__IDX_DIMS_MAX = 4 };

typedef struct kn__idx {
    int n_dims;
    int64_t dim[KN__IDX_DIMS_MAX];
    uint8_t *data; /* owns */
    size_t size_bytes;
} kn__idx;

/* Reads the whole file, plain or gzip by its first bytes, which must have n_dims dimensions.
 * Errors: IO and FORMAT, each naming the file and the value found in it; `out` is then untouched.
 */
kn_status kn__idx_read(kn__idx *out, const char *path, int n_dims);
void kn__idx_release(kn__idx *idx);

/* Finds DIR/STEM or DIR/STEM.gz, in this order. IO: neither can be read. */
kn_status kn__idx_find(char *out, size_t out_bytes, const char *dir, const char *stem);

#endif
