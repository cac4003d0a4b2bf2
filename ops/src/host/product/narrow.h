/* Products of matrices of a few columns and steps, for their inner loop. */
#ifndef KN_NARROW_H
#define KN_NARROW_H

#include <stdbool.h>
#include <stdint.h>

enum { KN_NARROW = 4 }; /* most columns and steps */

/* c [m,n] (+)= a [m,k] · b [k,n] of `count` products; n and k are 1 … KN_NARROW. Element (i, l) of
 * a is a[i·a_row + l·a_step]. */
typedef struct kn__narrow {
    void *c;
    const void *a, *b;
    int64_t m, n, k, ldc, a_row, a_step, b_step, b_column;
    bool accumulate;
    int64_t count, next_c, next_a, next_b; /* elements from a product to the next */
} kn__narrow;

#endif
