/* The loops of ops.def's rows: row_loops.c, compiled for each dtype and instruction set.
 *
 *     const kn_row *row = &kn__rows(KN_F32)[KN_OP_mul];
 *     row->f(z, (const void *[]){a, b}, n, 0, 0, false);
 */
#ifndef KN_ROWS_H
#define KN_ROWS_H

#include <knet/op.h>

/* n elements one after the other; what a formula doesn't read may be NULL. Results may stand where
 * inputs stood. p, q: scalars. add: results are added to what is there; forward loops overwrite. */
typedef void (*kn_row_loop)(void *to, const void *const in[], int64_t n, double p, double q,
                            bool add);
typedef struct kn_row {
    kn_row_loop f;      /* in: the inputs; NULL: the dtype has no such row */
    kn_row_loop vs, sv; /* of two inputs: one of them a single element */
    kn_row_loop d[3];   /* in: g, inputs, z; NULL for integers */
    kn_row_loop dd[3][3];
} kn_row;

/* By op; the table of this machine. F16 and BF16: F32's; KN_BOOL: KN_U8's. */
static inline const kn_row *kn__rows(kn_dtype dtype) {
    extern const kn_row *const *kn__row_tables __attribute__((visibility("hidden")));
    extern const uint8_t kn__row_columns[KN_BOOL + 1] __attribute__((visibility("hidden")));
    return kn__row_tables[kn__row_columns[dtype]];
}
/* A given instruction set's table, for tests: 2, 3 or 4; NULL where the machine lacks it. */
const kn_row *kn__rows_isa(kn_dtype dtype, int isa);

#endif
