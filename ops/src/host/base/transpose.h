/* Transposing in registers. Included by *_loops.c files. */
#ifndef KN_TRANSPOSE_H
#define KN_TRANSPOSE_H

#include <string.h>

#include "host/base/loops.h"

enum { SIDE = 32 / sizeof(real) }; /* of the square block that is transposed in registers */
typedef real side_vec __attribute__((vector_size(32)));
#ifdef KN_REAL_IS_F32
#define INTERLEAVE_LOW(a, b) __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11)
#define INTERLEAVE_HIGH(a, b) __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15)
#else
#define INTERLEAVE_LOW(a, b) __builtin_shufflevector(a, b, 0, 4, 1, 5)
#define INTERLEAVE_HIGH(a, b) __builtin_shufflevector(a, b, 2, 6, 3, 7)
#endif

/* Each of the log2(SIDE) rounds interleaves row i with row i + SIDE/2: a perfect shuffle. */
static inline void transpose_block(real *to, int64_t to_stride, const real *from,
                                   int64_t from_stride) {
    side_vec row[SIDE], next[SIDE];
    KN_UNROLL(8)
    for (int i = 0; i < SIDE; i++) memcpy(&row[i], from + i * from_stride, sizeof row[i]);
    KN_UNROLL(3)
    for (int round = 1; round < SIDE; round *= 2) {
        KN_UNROLL(4)
        for (int i = 0; i < SIDE / 2; i++) {
            next[2 * i] = INTERLEAVE_LOW(row[i], row[i + SIDE / 2]);
            next[2 * i + 1] = INTERLEAVE_HIGH(row[i], row[i + SIDE / 2]);
        }
        KN_UNROLL(8)
        for (int i = 0; i < SIDE; i++) row[i] = next[i];
    }
    KN_UNROLL(8)
    for (int i = 0; i < SIDE; i++) memcpy(to + i * to_stride, &row[i], sizeof row[i]);
}

/* to[l][i] = from[i][l] for i in 0 … n-1, l in 0 … k-1; the two don't overlap. The last blocks
 * overlap the ones before them. */
static inline void transpose(real *to, int64_t to_stride, const real *from, int64_t from_stride,
                             int64_t n, int64_t k) {
    if (n < SIDE || k < SIDE) {
        for (int64_t l = 0; l < k; l++)
            for (int64_t i = 0; i < n; i++) to[l * to_stride + i] = from[i * from_stride + l];
        return;
    }
    for (int64_t block = 0; block < n; block += SIDE)
        for (int64_t l = 0, i = block + SIDE < n ? block : n - SIDE; l < k; l += SIDE) {
            int64_t at = l + SIDE < k ? l : k - SIDE;
            transpose_block(to + at * to_stride + i, to_stride, from + i * from_stride + at,
                            from_stride);
        }
}

#endif
