/* Parameters, a root of layers in them, and random numbers: what tests of layers begin with. */
#ifndef TEST_LAYER_FIXTURE_H
#define TEST_LAYER_FIXTURE_H

#include <knet/layer.h>

#include "test.h"

typedef struct fixture {
    kn_params *params;
    kn_layer *net;
    kn_rng *rng;
} fixture;

/* Of f32 or f64. */
static inline void fixture_init(fixture *f, kn_dtype dtype) {
    *f = (fixture){0};
    assert_ok(kn_params_create(&f->params, &(kn_params_options){.seed = 1, .dtype = dtype}));
    assert_ok(kn_layer_create(&f->net, f->params, &(kn_layer_options){.seed = 7}));
    assert_ok(kn_rng_create(&f->rng, 3));
}

static inline void fixture_release(fixture *f) {
    kn_rng_destroy(f->rng);
    kn_layer_destroy(f->net);
    kn_params_destroy(f->params);
}

/* Bit for bit. */
static inline void assert_equal_tensors(kn_tensor *a, kn_tensor *b) {
    assert_ok(kn_check());
    assert_int_equal(kn_tensor_numel(a), kn_tensor_numel(b));
    assert_memory_equal(kn_data(a), kn_data(b),
                        (size_t)kn_tensor_numel(a) * kn_dtype_bytes(kn_tensor_dtype(a)));
}

#endif
