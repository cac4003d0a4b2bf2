/* The arrays that golden/norm.py makes, and comparison with its results. */
#ifndef KNET_GOLDEN_ARRAYS_H
#define KNET_GOLDEN_ARRAYS_H

#include "kernels_test.h"

enum { GOLDEN_B = 3, GOLDEN_C = 4, GOLDEN_S = 6 };

/* Element i is (i·a + b) mod m · scale + shift. */
static inline kn_tensor *golden_array(kn_dtype dtype, kn_shape shape, int a, int b, int m,
                                      double scale, double shift) {
    double values[256];
    int64_t n = 1;
    for (int d = 0; d < shape.n_dims; d++) n *= shape.dim[d];
    assert_true(n <= 256);
    for (int i = 0; i < n; i++) values[i] = (i * a + b) % m * scale + shift;
    return from_doubles(values, dtype, shape);
}

static inline kn_tensor *golden_x(kn_dtype dtype, kn_shape shape) {
    return golden_array(dtype, shape, 7, 3, 23, 0.125, -1.25);
}

static inline void golden_check(kn_tensor *t, const double *want, size_t n, const char *name) {
    if (!t) print_error("%s: %s\n", name, kn_last_error()->message);
    assert_non_null(t);
    assert_int_equal(kn_tensor_numel(t), n);
    double tol = kn_tensor_dtype(t) == KN_F64 ? 1e-11 : 2e-5;
    for (size_t i = 0; i < n; i++) {
        double got = ops_at(t, (int64_t)i);
        if (fabs(got - want[i]) <= tol * (fabs(want[i]) + 1)) continue;
        fail_msg("%s: element %zu is %.17g, expected %.17g", name, i, got, want[i]);
    }
}
#define GOLDEN(expr, name)                                                                         \
    golden_check((expr), golden_##name, sizeof golden_##name / sizeof *golden_##name, #name)

#endif
