/* Rules of normalization. One kernel makes the gradients of x, weight and bias; where they are to
 * be differentiated in turn they are made from ops instead. */
#include "rules.h"

/* Which inputs of the op are its weight and bias (-1: it has none), and what statistics are over,
 * of x as [outer, groups, channels, inner]. */
typedef struct norm {
    kn_op back;
    int weight, bias;
    kn_shape axes;
    bool centred;
} norm;

/* The gradient d with the shape and dtype of its input. */
static kn_tensor *fitted(const kn__back *b, int i, kn_tensor *d) {
    if (d && !kn__back_fits(b, i, d)) d = kn_reshape(d, kn__back_shape(b, i));
    return d && kn_tensor_dtype(d) != kn__back_dtype(b, i) ? kn_cast(d, kn__back_dtype(b, i)) : d;
}

static kn_status deliver(kn__back *b, int i, kn_tensor *d) {
    d = fitted(b, i, d);
    return d ? kn__back_deliver(b, i, d) : kn_check();
}

static bool wants(const kn__back *b, int i) { return i >= 0 && kn__back_wants(b, i); }

static kn_status in_one_pass(kn__back *b, const norm *n) {
    kn_tensor *x = kn__saved_in(b, 0), *weight = kn__saved_in(b, n->weight);
    kn_tensor *mean = n->centred ? kn__saved_out(b, 1) : KN_NONE;
    kn_tensor *rstd = kn__saved_out(b, n->centred ? 2 : 1);
    const int input[] = {0, n->weight, n->bias};
    kn_op_call call;
    kn_op_call_init(&call, n->back, kn__back_attr(b), KN_LIST_(b->g, x, weight, mean, rstd), 5);
    call.want = 0;
    for (int r = 0; r < 3; r++) call.want |= (uint8_t)(wants(b, input[r]) << r);
    call.out[0] = wants(b, 0) ? kn__back_over(b, 0) : NULL;
    call.given = call.out[0] != NULL;
    if (!kn_op_run(&call)) return kn_check();
    for (int r = 0; r < 3; r++) {
        if (call.want >> r & 1) KN_TRY(deliver(b, input[r], call.out[r]));
    }
    return KN_OK;
}

/* --- from ops --- */

static kn_tensor *mean_of(kn_tensor *x, const norm *n) { return kn_mean(x, n->axes, true); }

/* x̂ and 1/√(variance + eps) */
static kn_tensor *normalized(kn_tensor **rstd, kn_tensor *x, const norm *n, double eps) {
    kn_tensor *centred = n->centred ? kn_sub(x, mean_of(x, n)) : x;
    *rstd = kn_rsqrt(kn_affine(mean_of(kn_square(centred), n), 1, eps));
    return kn_mul(centred, *rstd);
}

/* dx = (g·w - mean(g·w) - x̂·mean(g·w·x̂))·rstd */
static kn_tensor *input_gradient(kn_tensor *g, kn_tensor *x_hat, kn_tensor *rstd, const norm *n) {
    kn_tensor *along = kn_mul(x_hat, mean_of(kn_mul(g, x_hat), n));
    kn_tensor *rest = n->centred ? kn_sub(g, mean_of(g, n)) : g;
    return kn_mul(kn_sub(rest, along), rstd);
}

static kn_status from_ops(kn__back *b, const norm *n) {
    const kn_attr_normalize *a = kn__back_attr(b);
    const kn_shape shape = KN_SHAPE(a->outer, a->groups, a->channels, a->inner),
                   rows = KN_SHAPE(0, 3);
    kn_tensor *g = kn_reshape(kn__wide(b->g), shape), *weight = kn__saved_in(b, n->weight);
    if (wants(b, n->bias)) KN_TRY(deliver(b, n->bias, kn_sum(g, rows, false)));
    if (!wants(b, 0) && !wants(b, n->weight)) return kn_check();
    kn_tensor *rstd, *x = kn_reshape(kn__wide(kn__saved_in(b, 0)), shape);
    kn_tensor *x_hat = normalized(&rstd, x, n, a->eps);
    if (wants(b, n->weight)) KN_TRY(deliver(b, n->weight, kn_sum(kn_mul(g, x_hat), rows, false)));
    if (!wants(b, 0)) return kn_check();
    if (weight != KN_NONE)
        g = kn_mul(g, kn_reshape(weight, KN_SHAPE(1, a->groups, a->channels, 1)));
    return deliver(b, 0, input_gradient(g, x_hat, rstd, n));
}

static kn_status norm_back(kn__back *b, const norm *n) {
    if (!b->g) return KN_OK;
    bool reads_x = wants(b, 0) || wants(b, n->weight); /* else x needn't be saved */
    if (!b->pass->again && reads_x) return in_one_pass(b, n);
    if (!reads_x || !((const kn_attr_normalize *)kn__back_attr(b))->ranks) return from_ops(b, n);
    return KN_FAIL(KN_ERR_UNSUPPORTED,
                   "kn_batchnorm: no second gradients of a batch that several ranks share");
}

kn_status kn__rule_batchnorm(kn__back *b) {
    const norm n = {KN_OP_batchnorm_back, 3, 4, KN_SHAPE(0, 1, 3), true};
    return norm_back(b, &n);
}

/* Σ g·(x - mean)·rstd, in one pass. */
static kn_tensor *weight_gradient(kn__back *b, kn_tensor *rstd) {
    kn_op_call call;
    kn_tensor *const in[] = {b->g, kn__saved_in(b, 0), KN_NONE, kn__saved_in(b, 1), rstd};
    if (!rstd) return NULL;
    kn_op_call_init(&call, KN_OP_batchnorm_back, kn__back_attr(b), in, 5);
    call.want = 2;
    return kn_op_run(&call);
}

/* y = (x - mean)·s + bias with s = weight·rstd: of the weight Σ g·(x - mean)·rstd, of the variance
 * -½·Σ g·(x - mean)·weight·rstd³. */
kn_tensor *kn__rule_batchnorm_eval(kn__back *b, int i) {
    const kn_attr_normalize *a = kn__back_attr(b);
    const kn_shape shape = KN_SHAPE(a->outer, a->channels, a->inner), row = KN_SHAPE(-1, 1);
    kn_tensor *g = kn_reshape(kn__wide(b->g), shape), *weight = kn__saved_in(b, 3), *d;
    if (i == 4) return fitted(b, i, kn_sum(g, KN_SHAPE(0, 2), false));
    kn_tensor *rstd = kn_rsqrt(kn_affine(kn_reshape(kn__saved_in(b, 2), row), 1, a->eps));
    if (i == 3 && !b->pass->again && kn_tensor_numel(b->g)) {
        return fitted(b, i, weight_gradient(b, rstd));
    }
    kn_tensor *s = weight == KN_NONE || i == 3 ? rstd : kn_mul(rstd, kn_reshape(weight, row));
    if (i <= 1) {
        d = kn_mul(g, s);
        if (i == 1) d = kn_neg(kn_sum(d, KN_SHAPE(0, 2), false));
    } else {
        kn_tensor *x = kn_reshape(kn__wide(kn__saved_in(b, 0)), shape);
        kn_tensor *centred = kn_sub(x, kn_reshape(kn__saved_in(b, 1), row));
        d = kn_mul(kn_sum(kn_mul(g, centred), KN_SHAPE(0, 2), false), kn_reshape(s, KN_SHAPE(-1)));
        kn_tensor *square = i == 2 ? kn_square(kn_reshape(rstd, KN_SHAPE(-1))) : NULL;
        if (i == 2) d = kn_affine(kn_mul(d, square), -0.5, 0);
    }
    return fitted(b, i, d);
}

kn_status kn__rule_rownorm(kn__back *b) {
    bool centred = b->node->op != KN_OP_rmsnorm;
    const norm n = {KN_OP_rownorm_back, 1, centred ? 2 : -1, KN_SHAPE(2, 3), centred};
    return norm_back(b, &n);
}
