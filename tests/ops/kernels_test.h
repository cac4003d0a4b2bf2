/* For tests of the host's kernels: random tensors, comparison with references in double, and with
 * the same op on another number of threads. */
#ifndef KNET_KERNELS_TEST_H
#define KNET_KERNELS_TEST_H

#include <math.h>

#include "ops_test.h"

static const kn_dtype both_dtypes[] = {KN_F32, KN_F64};
#define FOR_BOTH_DTYPES(dtype)                                                                     \
    for (int dtype##_i = 0; dtype##_i < 2; dtype##_i++)                                            \
        for (kn_dtype dtype = both_dtypes[dtype##_i], dtype##_once = 1; dtype##_once;              \
             dtype##_once = 0)

/* Relative error that sums of some hundred products may have. */
static inline double tolerance(kn_dtype dtype) { return dtype == KN_F64 ? 1e-12 : 2e-5; }

static inline kn_tensor *from_doubles(const double *x, kn_dtype dtype, kn_shape shape) {
    int64_t n = 1;
    for (int i = 0; i < shape.n_dims; i++) n *= shape.dim[i];
    if (dtype == KN_F64) return kn_tensor_from(x, KN_F64, shape);
    float *f = malloc((size_t)(n ? n : 1) * sizeof *f);
    assert_non_null(f);
    for (int64_t i = 0; i < n; i++) f[i] = (float)x[i];
    kn_tensor *t = kn_tensor_from(f, KN_F32, shape);
    free(f);
    assert_non_null(t);
    return t;
}

/* Uniform in [-scale, scale). */
static inline kn_tensor *random_scaled(kn_dtype dtype, kn_shape shape, double scale) {
    int64_t n = 1;
    for (int i = 0; i < shape.n_dims; i++) n *= shape.dim[i];
    double *x = malloc((size_t)(n ? n : 1) * sizeof *x);
    assert_non_null(x);
    for (int64_t i = 0; i < n; i++) x[i] = test_random_uniform(-scale, scale);
    kn_tensor *t = from_doubles(x, dtype, shape);
    free(x);
    return t;
}

static inline kn_tensor *random_tensor(kn_dtype dtype, kn_shape shape) {
    return random_scaled(dtype, shape, 1);
}

/* Numbers that shape choices of loops differ by: one, below, at and above vector lengths. */
static inline int64_t odd_size(void) {
    static const int64_t sizes[] = {1, 2, 3, 5, 7, 8, 13, 16, 17, 31, 33, 50, 64, 67, 100, 130};
    return sizes[test_random_below(sizeof sizes / sizeof *sizes)];
}

/* A copy, to be freed. References read elements millions of times. */
static inline double *doubles_of(kn_tensor *t) {
    int64_t n = kn_tensor_numel(t);
    double *x = malloc((size_t)(n ? n : 1) * sizeof *x);
    assert_non_null(x);
    for (int64_t i = 0; i < n; i++) x[i] = ops_at(t, i);
    return x;
}

static inline double dot(kn_tensor *a, kn_tensor *b) {
    assert_int_equal(kn_tensor_numel(a), kn_tensor_numel(b));
    double sum = 0;
    for (int64_t i = 0; i < kn_tensor_numel(a); i++) sum += ops_at(a, i) * ops_at(b, i);
    return sum;
}

static inline void assert_same_bits(kn_tensor *a, kn_tensor *b) {
    assert_non_null(a);
    assert_non_null(b);
    assert_int_equal(kn_tensor_numel(a), kn_tensor_numel(b));
    assert_int_equal(kn_tensor_dtype(a), kn_tensor_dtype(b));
    size_t bytes = (size_t)kn_tensor_numel(a) * kn_dtype_bytes(kn_tensor_dtype(a));
    if (bytes) assert_memory_equal(kn_data(a), kn_data(b), bytes);
}

#endif
