/* Comparison of tensors of any dtype with the numbers of golden/. */
#ifndef KNET_GOLDEN_VALUES_H
#define KNET_GOLDEN_VALUES_H

#include "convert.h"
#include "kernels_test.h"

static inline double golden_at(kn_tensor *t, int64_t i) {
    kn_dtype dtype = kn_tensor_dtype(t);
    const char *data = kn_data(t);
    assert_non_null(data);
    return kn__as_double(data + (size_t)i * kn_dtype_bytes(dtype), dtype);
}

static inline double golden_tolerance(kn_tensor *t) {
    switch (kn_tensor_dtype(t)) {
        case KN_F32:
            return 1e-5;
        case KN_F16:
            return 2e-3;
        case KN_BF16:
            return 1.6e-2;
        default:
            return 1e-12;
    }
}

static inline void golden_check(kn_tensor *t, const double *want, size_t n, const char *name) {
    if (!t) print_error("%s: %s\n", name, kn_last_error()->message);
    assert_non_null(t);
    assert_int_equal(kn_tensor_numel(t), n);
    for (size_t i = 0; i < n; i++) {
        double got = golden_at(t, (int64_t)i);
        bool same = got == want[i] || (isnan(got) && isnan(want[i])) ||
                    fabs(got - want[i]) <= golden_tolerance(t) * (fabs(want[i]) + 1);
        if (!same) fail_msg("%s: element %zu is %.17g, expected %.17g", name, i, got, want[i]);
    }
}
#define GOLDEN(expr, name)                                                                         \
    golden_check((expr), golden_##name, sizeof golden_##name / sizeof *golden_##name, #name)

/* An array of f32, of one dimension; and what a tensor of any dtype should hold. */
#define X(...) F32(KN_SHAPE(sizeof((float[]){__VA_ARGS__}) / sizeof(float)), __VA_ARGS__)
#define VALUES(t, ...)                                                                             \
    golden_check(t, (const double[]){__VA_ARGS__},                                                 \
                 sizeof((double[]){__VA_ARGS__}) / sizeof(double), "a tensor")
#define INF INFINITY

#endif
