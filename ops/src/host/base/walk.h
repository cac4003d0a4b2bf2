/* Walking a result and the operands broadcast to it, row by row: dimensions are merged where every
 * operand's elements follow on, so that a row is as long as can be. In a row an operand steps by 1
 * or 0 elements; between rows it moves by its stride. */
#ifndef KN_WALK_H
#define KN_WALK_H

#include <knet/op.h>

enum { WALK_OPERANDS = 3 };

typedef struct kn__walk {
    int n_outer, n_operands;
    int64_t inner; /* elements of a row */
    int64_t outer[KN_DIMS_MAX];
    int64_t stride[WALK_OPERANDS][KN_DIMS_MAX]; /* of the outer dimensions */
    int step[WALK_OPERANDS];                    /* within a row */
} kn__walk;

/* n elements from `at` of the result; from[] are the operands' places. */
typedef void (*kn__walk_row_fn)(const void *ctx, int64_t at, const int64_t from[], int64_t n);

void kn__walk_init(kn__walk *w, const kn_tensor *out, kn_tensor *const in[], int n_in);
/* The same of one operand with a stride for each dimension, of which the last one longer than 1 is
 * 0 or 1. */
void kn__walk_init_strides(kn__walk *w, int n_dims, const int64_t dim[], const int64_t stride[]);
/* Rows, whole or cut, of the result's elements from … to - 1. */
void kn__walk_range(const kn__walk *w, int64_t from, int64_t to, kn__walk_row_fn row,
                    const void *ctx);
/* Operand k, of elements of `bytes` bytes, broadcast: elements from … to - 1 one after the other.
 */
void kn__walk_copy(const kn__walk *w, int k, char *out, const char *x, size_t bytes, int64_t from,
                   int64_t to);
/* n elements of `bytes` bytes each get the value at x. */
void kn__walk_repeat(char *out, const char *x, size_t bytes, int64_t n);

#endif
