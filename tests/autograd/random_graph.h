/* Random graphs of pointwise rows, casts, reductions, views and sums in place, with shared
 * subexpressions. */
#ifndef KNET_RANDOM_GRAPH_H
#define KNET_RANDOM_GRAPH_H

#include <knet/tensor.h>

enum { GRAPH_INPUTS = 3 };

/* A scalar of the inputs, which broadcast to each other. reads: data of some values is read on the
 * way. NULL: an error is pending. */
kn_tensor *random_graph(kn_tensor *const x[], uint64_t seed, bool reads);
/* n numbers between -2 and 2. */
void random_graph_values(float *out, int n, uint64_t seed);
/* Copies the bits of a result in F32. Of a NaN, whose sign is the processor's choice, the same. */
kn_status random_graph_bits(uint32_t *out, kn_tensor *t);

#endif
