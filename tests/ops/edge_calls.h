/* The functions of arrays as a table: calls of x, y, z and numbers, which may be odd. */
#ifndef KNET_EDGE_CALLS_H
#define KNET_EDGE_CALLS_H

#include "ops_test.h"

/* What a call may use. */
typedef struct operands {
    kn_tensor *x, *y, *z;
    int64_t n; /* an axis, an index, a number: any value */
    double p;
    kn_shape axes; /* of n, or odd */
    kn_rng *rng;
} operands;

enum { USES_N = 1, USES_Y = 2, USES_NO_X = 4 };
typedef struct edge_call {
    const char *name;
    int uses;
    kn_tensor *(*fn)(const operands *o);
} edge_call;
extern const edge_call edge_calls[];
extern const int n_edge_calls;

/* The shapes of x, y and z. */
extern const kn_shape edge_shapes[];
extern const int n_edge_shapes;

/* At most 64 elements: floats with NaN and infinity, integers and booleans. */
kn_tensor *edge_odd(kn_shape shape, kn_dtype dtype);

#endif
