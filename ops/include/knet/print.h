/* Printing tensors in NumPy's style: a line with dtype, shape and device, then the elements, as
 * np.array2string has them; large tensors are shortened in the middle.
 *
 *     KN_TRY(kn_print(stdout, y, NULL));
 *
 *     f32 [2,3] cpu
 *     [[ 1.    2.5  -3.  ]
 *      [ 0.    0.25  1.  ]]
 */
#ifndef KNET_PRINT_H
#define KNET_PRINT_H

#include <knet/tensor.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Options of kn_print; zeros: NumPy's defaults. */
typedef struct kn_print_options {
    int precision;        /* digits after the point: 8; KN_OFF: none */
    int threshold;        /* tensors of more elements are shortened: 1000; KN_OFF: none */
    int edge_items;       /* shown at each end of a shortened dimension: 3 */
    int width;            /* columns of a line: 75 */
    int bare;             /* 1: without the first line */
    uint64_t reserved[4]; /* zero */
} kn_print_options;

/* Prints t to `out`. It waits for t's stream. Errors: IO if `out` can't be written;
 * INVALID of a negative option that isn't KN_OFF as above. */
KN_API KN_MUST_CHECK kn_status kn_print(FILE *out, kn_tensor *t, const kn_print_options *options);
/* Prints into a buffer, without the last line's end; text that has no room is cut. *length (NULL:
 * not wanted) is that of the whole text. */
KN_API KN_MUST_CHECK kn_status kn_print_text(char *out, size_t out_bytes, size_t *length,
                                             kn_tensor *t, const kn_print_options *options);

#include <knet/sites/print.h>

#ifdef __cplusplus
}
#endif
#endif
