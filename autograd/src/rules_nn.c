/* Rules of products, convolution, pooling, softmax, losses and dropout. */
#include "rules.h"

/* --- products --- */

/* op(a)·op(b) as the gradient of input i: [M,N]. */
static kn_tensor *product(kn__back *back, int i, kn_tensor *a, kn_tensor *b, bool trans_a,
                          bool trans_b) {
    if (!a || !b) return NULL;
    if (!a->n || !b->n) return kn_matmul_trans(a, b, trans_a, trans_b, NULL);
    kn_attr_matmul attr = {trans_a, trans_b};
    kn_op_call call = {.op = KN_OP_matmul,
                       .n_in = 2,
                       .in = (kn_tensor *const[]){a, b},
                       .attr = &attr,
                       .attr_bytes = sizeof attr,
                       .dtype = (kn_dtype)a->dtype,
                       .shape = KN_SHAPE(a->dim[trans_a ? 1 : 0], b->dim[trans_b ? 0 : 1])};
    return kn__back_run(back, i, &call);
}

/* c = op(a)·op(b). A factor that was transposed gets the transposed gradient. */
kn_tensor *kn__rule_matmul(kn__back *b, int i) {
    const kn_attr_matmul *attr = kn__back_attr(b);
    bool ta = attr && attr->trans_a, tb = attr && attr->trans_b;
    kn_tensor *other = kn__back_saved(b, i);
    if (i == 0) {
        return ta ? product(b, i, other, b->g, tb, true) : product(b, i, b->g, other, false, !tb);
    }
    return tb ? product(b, i, b->g, other, true, ta) : product(b, i, other, b->g, !ta, false);
}

/* [...,C] as [rows,C]. */
static kn_tensor *as_matrix(kn_tensor *t) {
    if (!t || t->n_dims == 2) return t;
    int64_t columns = t->dim[t->n_dims - 1], rows = 1;
    for (int d = 0; d < t->n_dims - 1; d++) rows *= t->dim[d];
    return kn_reshape(t, KN_SHAPE(rows, columns));
}

/* y [...,O] = x [...,I]·wᵀ + b, w [O,I] */
kn_tensor *kn__rule_linear(kn__back *b, int i) {
    kn_tensor *g = as_matrix(b->g); /* [rows,O] */
    if (!g) return NULL;
    if (i == 2) {
        kn_attr_axes axes = {.mask = 1};
        kn_op_call sum = {.op = KN_OP_sum,
                          .n_in = 1,
                          .in = &g,
                          .attr = &axes,
                          .attr_bytes = sizeof axes,
                          .dtype = (kn_dtype)g->dtype,
                          .shape = KN_SHAPE(g->dim[1])};
        return kn__back_run(b, i, &sum);
    }
    if (i == 1) return product(b, i, g, as_matrix(kn__back_saved(b, 1)), true, false);
    kn_tensor *w = kn__back_saved(b, 0);
    if (b->g->n_dims == 2) return product(b, i, g, w, false, false);
    kn_tensor *dx = kn_matmul_trans(g, w, false, false, NULL);
    if (!dx) return NULL;
    kn_shape shape = kn_tensor_shape(b->g);
    shape.dim[shape.n_dims - 1] = w->dim[1];
    return kn_reshape(dx, shape);
}

/* --- convolution: y = conv(x, w) + b is linear in each of x, w, b --- */

static kn_tensor *weight_gradient(kn__back *b, int i, kn_tensor *x, kn_tensor *dy,
                                  kn_shape w_shape) {
    if (!x->n || !dy->n) return kn_conv_weight(x, dy, w_shape, kn__back_attr(b), NULL);
    kn_op_call call = {.op = KN_OP_conv_weight,
                       .n_in = 2,
                       .in = (kn_tensor *const[]){x, dy},
                       .attr = kn__back_attr(b),
                       .attr_bytes = sizeof(kn_attr_conv),
                       .dtype = (kn_dtype)dy->dtype,
                       .shape = w_shape};
    return kn__back_run(b, i, &call);
}

kn_tensor *kn__rule_conv(kn__back *b, int i) {
    if (i == 0) {
        return kn_conv_data(b->g, kn__back_saved(b, 0), kn__back_shape(b, 0), kn__back_attr(b));
    }
    if (i == 1) {
        return weight_gradient(b, i, kn__back_saved(b, 1), b->g, kn__back_shape(b, 1));
    }
    kn_attr_axes axes = {.mask = ((1u << b->g->n_dims) - 1) & ~2u}; /* all but channels */
    kn_op_call sum = {.op = KN_OP_sum,
                      .n_in = 1,
                      .in = &b->g,
                      .attr = &axes,
                      .attr_bytes = sizeof axes,
                      .dtype = (kn_dtype)b->g->dtype,
                      .shape = KN_SHAPE(b->g->dim[1])};
    return kn__back_run(b, i, &sum);
}

/* dx = conv_data(dy, w) */
kn_tensor *kn__rule_conv_data(kn__back *b, int i) {
    if (i == 0) return kn_conv_attr(b->g, kn__back_saved(b, 0), KN_NONE, kn__back_attr(b));
    return weight_gradient(b, i, b->g, kn__back_saved(b, 1), kn__back_shape(b, 1));
}

/* dw = conv_weight(x, dy) */
kn_tensor *kn__rule_conv_weight(kn__back *b, int i) {
    if (i == 0) {
        return kn_conv_data(kn__back_saved(b, 0), b->g, kn__back_shape(b, 0), kn__back_attr(b));
    }
    return kn_conv_attr(kn__back_saved(b, 1), b->g, KN_NONE, kn__back_attr(b));
}

/* --- pooling --- */

kn_tensor *kn__rule_maxpool(kn__back *b, int i) {
    (void)i;
    return kn_maxpool_back(b->g, kn__back_saved(b, 0), kn__back_shape(b, 0), kn__back_attr(b));
}

kn_tensor *kn__rule_maxpool_back(kn__back *b, int i) {
    (void)i;
    return kn_maxpool_take(b->g, kn__back_saved(b, 0), kn__back_shape(b, 0), kn__back_attr(b));
}

kn_tensor *kn__rule_maxpool_take(kn__back *b, int i) { return kn__rule_maxpool(b, i); }

kn_tensor *kn__rule_avgpool(kn__back *b, int i) {
    (void)i;
    return kn_avgpool_back(b->g, kn__back_shape(b, 0), kn__back_attr(b));
}

kn_tensor *kn__rule_avgpool_back(kn__back *b, int i) {
    (void)i;
    return kn_avgpool_attr(b->g, kn__back_attr(b));
}

/* --- softmax --- */

static int axis_of(const kn__back *b) {
    return __builtin_ctz(((const kn_attr_axes *)kn__back_attr(b))->mask);
}

static kn_tensor *sum_along(kn_tensor *t, int axis) {
    return t ? kn_sum_mask(t, 1u << axis, true, NULL) : NULL;
}

kn_tensor *kn__rule_softmax(kn__back *b, int i) {
    (void)i;
    return kn_softmax_back(kn__back_saved(b, 0), b->g, axis_of(b));
}

/* y·(g - Σ gy): by g its own adjoint; by y: with G for the incoming gradient,
 * G·(g - Σ gy) - g·Σ Gy. */
kn_tensor *kn__rule_softmax_back(kn__back *b, int i) {
    int axis = axis_of(b);
    kn_tensor *y = kn__back_saved(b, 0);
    if (i == 1) return kn_softmax_back(y, b->g, axis);
    kn_tensor *g = kn__back_saved(b, 1);
    kn_tensor *gy = sum_along(kn_mul(g, y), axis), *Gy = sum_along(kn_mul(b->g, y), axis);
    return kn_sub(kn_mul(b->g, kn_sub(g, gy)), kn_mul(g, Gy));
}

kn_tensor *kn__rule_logsoftmax(kn__back *b, int i) {
    (void)i;
    return kn_logsoftmax_back(kn__back_saved(b, 0), b->g, axis_of(b));
}

/* g - eʸ·Σ g. By g: G - Σ Geʸ; by y: -G·eʸ·Σ g. */
kn_tensor *kn__rule_logsoftmax_back(kn__back *b, int i) {
    int axis = axis_of(b);
    kn_tensor *e = kn_exp(kn__back_saved(b, 0));
    if (i == 1) return kn_sub(b->g, sum_along(kn_mul(b->g, e), axis));
    return kn_neg(kn_mul(kn_mul(b->g, e), sum_along(kn__back_saved(b, 1), axis)));
}

/* --- losses --- */

/* The forward call left dlogits. To be differentiated in turn it is made from ops instead. */
kn_tensor *kn__rule_cross_entropy(kn__back *b, int i) {
    (void)i;
    kn_tensor *dlogits = kn__back_saved(b, 0);
    if (!b->pass->again && dlogits) {
        bool is_loss = b->node == b->pass->from; /* then g is one, and in kn_backward KN_NONE */
        return is_loss ? dlogits : kn_mul(dlogits, b->g);
    }
    kn_tensor *logits = kn__back_saved(b, 1), *labels = kn__back_saved(b, 2);
    kn_tensor *log_probs = kn_logsoftmax(logits, 1);
    kn_tensor *g = kn_nll_back(labels, b->g, kn_tensor_shape(logits));
    return log_probs && g ? kn_logsoftmax_back(log_probs, g, 1) : NULL;
}

kn_tensor *kn__rule_nll(kn__back *b, int i) {
    (void)i;
    return kn_nll_back(kn__back_saved(b, 0), b->g, kn__back_shape(b, 0));
}

kn_tensor *kn__rule_nll_back(kn__back *b, int i) { /* inputs labels, g */
    (void)i;
    return kn_nll(b->g, kn__back_saved(b, 0));
}

kn_tensor *kn__rule_dropout(kn__back *b, int i) {
    (void)i;
    const kn_attr_scalars *attr = kn__back_attr(b);
    return kn_dropout_state(b->g, attr->a, kn__back_saved(b, 0));
}
