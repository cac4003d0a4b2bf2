/* For tests of autograd: what tests of ops use, and a parameter set in each test. */
#ifndef KNET_AUTOGRAD_TEST_H
#define KNET_AUTOGRAD_TEST_H

#include <knet/optim.h>
#include <knet/param.h>
#include <knet/rule.h>
#include <knet/tape.h>

#include "../ops/ops_test.h"

/* A parameter with the listed values. */
static inline kn_tensor *param_of(kn_params *set, kn_shape shape, const char *name,
                                  const float *values) {
    kn_tensor *w = kn_param(set, shape, (kn_init){0}, "%s", name);
    assert_non_null(w);
    float *data = kn_data_mut(w);
    assert_non_null(data);
    memcpy(data, values, (size_t)kn_tensor_numel(w) * sizeof *values);
    return w;
}
#define PARAM(set, shape, name, ...) param_of(set, shape, name, (const float[]){__VA_ARGS__})

static inline double item_of(kn_tensor *t) {
    double x = 0;
    assert_ok(kn_item(&x, t));
    return x;
}

static inline kn_params *params_f32(void) {
    kn_params *set = NULL;
    assert_ok(kn_params_create(&set, &(kn_params_options){.seed = 7}));
    return set;
}

static inline kn_tensor *sum_all(kn_tensor *x) { return kn_sum(x, KN_ALL, false); }

#endif
