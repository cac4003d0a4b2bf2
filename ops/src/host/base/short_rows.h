/* Many rows copied or filled at once: of rows of a few bytes, a call for each would cost more than
 * its bytes. Longer rows are fine, one call each. Strides are in bytes; no row overlaps another one
 * that is read. */
#ifndef KN_SHORT_ROWS_H
#define KN_SHORT_ROWS_H

#include <stddef.h>
#include <stdint.h>

/* `size` bytes a row. */
void kn__rows_copy(char *to, int64_t to_stride, const char *from, int64_t from_stride, int64_t rows,
                   size_t size);
/* Row r gets the element of `bytes` bytes at from + r·from_stride, n times. */
void kn__rows_fill(char *to, int64_t to_stride, const char *from, int64_t from_stride, int64_t rows,
                   size_t bytes, int64_t n);

#endif
