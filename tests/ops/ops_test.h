/* For tests of ops: the leak fixture (the host's pool ends with the bytes it began with), tensors
 * from lists, and reading them back. */
#ifndef KNET_OPS_TEST_H
#define KNET_OPS_TEST_H

#include <knet/op_act.h>

#include "op_calls.h"
#include "test.h"

static inline uint64_t ops_live_bytes(void) {
    kn_pool_stats stats;
    kn_pool_stats_read(&stats, sizeof stats, kn_device_pool(kn_device_host()));
    return stats.live_bytes;
}

static uint64_t ops_live_before;

static inline int ops_setup(void **state) {
    (void)state;
    ops_live_before = ops_live_bytes();
    return 0;
}

static inline int ops_teardown(void **state) {
    (void)state;
    assert_int_equal(kn_check(), KN_OK);
    assert_int_equal(ops_live_bytes(), ops_live_before);
    return 0;
}

#define OPS_TEST(fn) TEST_WITH(fn, ops_setup, ops_teardown)

/* A tensor of the listed floats. */
#define F32(shape, ...) kn_tensor_from((const float[]){__VA_ARGS__}, KN_F32, (shape))
#define F64(shape, ...) kn_tensor_from((const double[]){__VA_ARGS__}, KN_F64, (shape))
#define I64(shape, ...) kn_tensor_from((const int64_t[]){__VA_ARGS__}, KN_I64, (shape))

#define assert_shape(t, ...)                                                                       \
    do {                                                                                           \
        char want_[256], got_[256];                                                                \
        kn_shape_text(want_, sizeof want_, __VA_ARGS__);                                           \
        kn_shape_text(got_, sizeof got_, kn_tensor_shape(t));                                      \
        assert_string_equal(got_, want_);                                                          \
    } while (0)

/* The op failed: NULL, this status, and a message that contains `text`. */
#define assert_op_fails(expr, want, text)                                                          \
    do {                                                                                           \
        assert_null(expr);                                                                         \
        assert_fails(kn_check(), want, text);                                                      \
    } while (0)

/* Element i as a double, for any float dtype. */
static inline double ops_at(kn_tensor *t, int64_t i) {
    const void *data = kn_data(t);
    assert_non_null(data);
    return kn_tensor_dtype(t) == KN_F64 ? ((const double *)data)[i]
                                        : (double)((const float *)data)[i];
}

/* The activation by its op. */
static inline kn_tensor *ops_activated(kn_tensor *x, kn_act act) {
    static kn_tensor *(*const of[KN_ACTS])(kn_tensor * x) = {
        [KN_ACT_RELU] = (kn_relu),           [KN_ACT_GELU] = (kn_gelu), [KN_ACT_SILU] = (kn_silu),
        [KN_ACT_GELU_TANH] = (kn_gelu_tanh), [KN_ACT_SIGM] = (kn_sigm), [KN_ACT_TANH] = (kn_tanh),
        [KN_ACT_HARDSWISH] = (kn_hardswish)};
    return act ? of[act](x) : x;
}

#define assert_values(t, ...)                                                                      \
    do {                                                                                           \
        const double want_[] = {__VA_ARGS__};                                                      \
        kn_tensor *t_ = (t);                                                                       \
        assert_non_null(t_);                                                                       \
        assert_int_equal(kn_tensor_numel(t_), sizeof want_ / sizeof *want_);                       \
        for (size_t i_ = 0; i_ < sizeof want_ / sizeof *want_; i_++) {                             \
            assert_close(ops_at(t_, (int64_t)i_), want_[i_], 1e-6, 1e-7);                          \
        }                                                                                          \
    } while (0)

#endif
