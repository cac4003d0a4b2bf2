/* Gradients of normalization, and of losses that are composed. */
#include "grad_cases.h"

static const double eps = 0.1;

static kn_tensor *batch(kn_tensor *x, kn_tensor *w, kn_tensor *b, kn_batchnorm_options o) {
    o.eps = eps, o.training = 1;
    return kn_batchnorm(x, KN_NONE, KN_NONE, w, b, &o);
}
F(f_batchnorm) {
    CTX;
    return batch(x[0], x[1], x[2], (kn_batchnorm_options){.training = 1});
}
F(f_batchnorm_plain) {
    CTX;
    return batch(x[0], KN_NONE, KN_NONE, (kn_batchnorm_options){.training = 1});
}
F(f_batchnorm_bias) {
    CTX;
    return batch(kn_mul(x[0], x[0]), KN_NONE, x[1], (kn_batchnorm_options){.training = 1});
}
F(f_batchnorm_activation) {
    CTX;
    return batch(x[0], x[1], x[2], (kn_batchnorm_options){.per_activation = 1});
}
F(f_batchnorm_eval) {
    CTX;
    kn_tensor *mean = F64(KN_SHAPE(2), 0.3, -0.2), *var = F64(KN_SHAPE(2), 0.5, 1.5);
    return kn_batchnorm(x[0], mean, var, x[1], x[2], NULL);
}
F(f_batchnorm_running) {
    CTX;
    kn_tensor *var = kn_affine(kn_square(x[2]), 1, 0.5);
    return kn_batchnorm(x[0], x[1], var, x[3], KN_NONE, NULL);
}
F(f_batchnorm_eval_plain) {
    CTX;
    const kn_batchnorm_options each = {.per_activation = 1};
    return kn_batchnorm(kn_square(x[0]), x[1], kn_exp(x[2]), KN_NONE, KN_NONE, &each);
}
F(f_layernorm) {
    CTX;
    return kn_layernorm(x[0], x[1], x[2], 1, eps);
}
F(f_layernorm_two) {
    CTX;
    return kn_layernorm(x[0], x[1], x[2], 2, eps);
}
F(f_layernorm_plain) {
    CTX;
    return kn_layernorm(kn_mul(x[0], x[0]), KN_NONE, KN_NONE, 1, eps);
}
F(f_rmsnorm) {
    CTX;
    return kn_rmsnorm(x[0], x[1], 1, eps);
}
F(f_rmsnorm_plain) {
    CTX;
    return kn_rmsnorm(x[0], KN_NONE, 2, eps);
}
F(f_groupnorm) {
    CTX;
    return kn_groupnorm(x[0], x[1], x[2], 2, eps);
}
F(f_instancenorm) {
    CTX;
    return kn_instancenorm(x[0], x[1], x[2], eps);
}

static kn_tensor *labels(void) { return I64(KN_SHAPE(4), 2, 0, 1, 2); }

F(f_smoothed) {
    CTX;
    return kn_cross_entropy_with(
        x[0], labels(),
        &(kn_cross_entropy_options){.smoothing = 0.2, .ignores = 1, .ignore_index = 1});
}
F(f_class_weights) {
    CTX;
    return kn_cross_entropy_with(x[0], labels(),
                                 &(kn_cross_entropy_options){.weight = x[1], .smoothing = 0.3});
}
F(f_probabilities) {
    CTX;
    return kn_cross_entropy_with(x[0], kn_softmax(x[1], 1),
                                 &(kn_cross_entropy_options){.weight = x[2], .smoothing = 0.3});
}
F(f_places) {
    CTX;
    kn_tensor *y = kn_cross_entropy_with(
        x[0], kn_reshape(labels(), KN_SHAPE(2, 2)),
        &(kn_cross_entropy_options){.smoothing = 0.2, .ignores = 1, .ignore_index = 1});
    return kn_add(y, kn_cross_entropy(x[0], kn_reshape(labels(), KN_SHAPE(2, 2))));
}
F(f_mse_batch) {
    CTX;
    return kn_mse(kn_exp(x[0]), x[1], KN_REDUCE_BATCH);
}

F(f_lrn) {
    CTX;
    return kn_lrn(x[0], 3, 0.5, 0.75, 1.5);
}
F(f_adaptive_avgpool) {
    CTX;
    return kn_adaptive_avgpool(kn_square(x[0]), KN_SHAPE(3, 2));
}
F(f_adaptive_maxpool) {
    CTX;
    return kn_adaptive_maxpool(kn_square(x[0]), KN_SHAPE(3, 2));
}
F(f_global_pools) {
    CTX;
    return kn_sub(kn_global_avgpool(kn_square(x[0])), kn_global_maxpool(kn_square(x[0])));
}
F(f_maxunpool) {
    CTX;
    kn_tensor *y, *offsets;
    if (kn_maxpool_index(&y, &offsets, kn_square(x[0]), KN_SHAPE(2, 2), NULL) < 0)
        return GRAD_FAILED;
    return kn_maxunpool(kn_mul(y, x[1]), offsets, KN_SHAPE(2, 2), KN_SCALAR, NULL);
}
F(f_unpool) {
    CTX;
    return kn_unpool(kn_square(x[0]), KN_SHAPE(2, 2), &(kn_pooling_options){.stride = {1, 2}});
}

const grad_case grad_norm_cases[] = {
    CASE(batchnorm, f_batchnorm, -2, 2, 3, C1(3, 2, 2), C1(2), C1(2)),
    CASE(batchnorm, f_batchnorm, -2, 2, 3, C1(4, 3), C1(3), C1(3)),
    CASE(batchnorm, f_batchnorm, -2, 2, 3, C1(2, 2, 3, 2), C1(2), C1(2)),
    CASE(batchnorm, f_batchnorm_plain, -2, 2, 1, C1(3, 2, 3)),
    CASE(batchnorm, f_batchnorm_bias, -2, 2, 2, C1(3, 2, 3), C1(2)),
    CASE(batchnorm, f_batchnorm_activation, -2, 2, 3, C1(3, 2, 2), C1(2, 2), C1(2, 2)),
    CASE(batchnorm_eval, f_batchnorm_eval, -2, 2, 3, C1(3, 2, 2), C1(2), C1(2)),
    CASE(batchnorm_eval, f_batchnorm_running, -2, 2, 4, C1(3, 2, 2), C1(2), C1(2), C1(2)),
    CASE(batchnorm_eval, f_batchnorm_eval_plain, -2, 2, 3, C1(3, 2, 2), C1(2, 2), C1(2, 2)),
    CASE(layernorm, f_layernorm, -2, 2, 3, C1(3, 5), C1(5), C1(5)),
    CASE(layernorm, f_layernorm_two, -2, 2, 3, C1(2, 2, 3), C1(2, 3), C1(2, 3)),
    CASE(layernorm, f_layernorm_plain, -2, 2, 1, C1(2, 4)),
    CASE(rmsnorm, f_rmsnorm, -2, 2, 2, C1(3, 4), C1(4)),
    CASE(rmsnorm, f_rmsnorm_plain, -2, 2, 1, C1(2, 2, 3)),
    CASE(groupnorm, f_groupnorm, -2, 2, 3, C1(2, 4, 3), C1(4), C1(4)),
    CASE(logsoftmax, f_probabilities, 0.5, 2, 3, C1(4, 3), C1(4, 3), C1(3)),
    CASE(groupnorm, f_groupnorm, -2, 2, 3, C1(2, 4), C1(4), C1(4)),
    CASE(groupnorm, f_instancenorm, -2, 2, 3, C1(2, 3, 4), C1(3), C1(3)),
    CASE(logsoftmax, f_smoothed, -2, 2, 1, C1(4, 3)),
    CASE(logsoftmax, f_places, -2, 2, 1, C1(2, 3, 2)),
    CASE(logsoftmax, f_class_weights, 0.5, 2, 2, C1(4, 3), C1(3)),
    CASE(avgpool, f_lrn, -2, 2, 1, C1(2, 4, 3)),
    CASE(avgpool, f_adaptive_avgpool, -2, 2, 1, C1(2, 2, 5, 3)),
    CASE(maxpool, f_adaptive_maxpool, 0.2, 3, 1, C1(1, 2, 5, 3)),
    CASE(mean, f_global_pools, 0.2, 3, 1, C1(2, 2, 3, 2)),
    CASE(maxpool_back, f_maxunpool, 0.2, 3, 2, C1(1, 2, 4, 4), C1(1, 2, 2, 2)),
    CASE(avgpool_back, f_unpool, -2, 2, 1, C1(1, 2, 3, 2)),
    CASE(square_diff, f_mse_batch, -1, 1, 2, C1(3, 4), C1(4)),
};
const int n_grad_norm_cases = sizeof grad_norm_cases / sizeof *grad_norm_cases;
