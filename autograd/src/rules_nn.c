/* Rules of products, convolution, pooling, softmax, losses and dropout. */
#include "rules.h"

/* --- products --- */

/* c = op(a)·op(b). A factor that was transposed gets the transposed gradient. */
kn_tensor *kn__rule_matmul(kn__back *b, int i) {
    const kn_attr_matmul *attr = kn__back_attr(b);
    bool ta = attr->trans_a, tb = attr->trans_b;
    kn_tensor *other = kn__saved_in(b, 1 - i);
    kn_attr_matmul product;
    if (i == 0 && !ta) {
        product = (kn_attr_matmul){false, !tb};
        return KN_GIVE(b, i, matmul, &product, b->g, other);
    }
    if (i == 0) {
        product = (kn_attr_matmul){tb, true};
        return KN_GIVE(b, i, matmul, &product, other, b->g);
    }
    if (!tb) {
        product = (kn_attr_matmul){!ta, false};
        return KN_GIVE(b, i, matmul, &product, other, b->g);
    }
    product = (kn_attr_matmul){true, ta};
    return KN_GIVE(b, i, matmul, &product, b->g, other);
}

/* [...,C] as [rows,C] */
static kn_tensor *as_matrix(kn_tensor *t) {
    if (!t || t->n_dims == 2) return t;
    int64_t columns = t->dim[t->n_dims - 1], rows = 1;
    for (int d = 0; d < t->n_dims - 1; d++) rows *= t->dim[d];
    return kn_reshape(t, KN_SHAPE(rows, columns));
}

/* y [...,O] = x [...,I]·wᵀ + b, w [O,I] */
kn_tensor *kn__rule_linear(kn__back *b, int i) {
    kn_tensor *g = as_matrix(b->g); /* [rows,O] */
    if (i == 2) {
        kn_attr_axes rows = {.mask = 1};
        return KN_GIVE(b, i, sum, &rows, g);
    }
    if (i == 1) {
        kn_attr_matmul product = {true, false};
        return KN_GIVE(b, i, matmul, &product, g, as_matrix(kn__saved_in(b, 0)));
    }
    kn_attr_matmul product = {false, false};
    kn_tensor *w = kn__saved_in(b, 1);
    if (b->g->n_dims == 2) return KN_GIVE(b, i, matmul, &product, g, w);
    kn_tensor *dx = KN_CALL(matmul, &product, g, w);
    return dx ? kn_reshape(dx, kn__back_shape(b, i)) : NULL;
}

/* --- convolution: y = conv(x, w) + b is linear in each of x, w, b --- */

/* The attributes of the gradient for input i, whose sizes it makes. */
static kn_attr_conv conv_attr(const kn__back *b, int i) {
    kn_attr_conv attr = *(const kn_attr_conv *)kn__back_attr(b);
    kn_shape shape = kn__back_shape(b, i);
    for (int d = 0; d < attr.n_spatial; d++) attr.size[d] = shape.dim[2 + d];
    return attr;
}

kn_tensor *kn__rule_conv(kn__back *b, int i) {
    if (i == 2) {
        kn_attr_axes axes = {.mask = ((1u << b->g->n_dims) - 1) & ~2u}; /* all but channels */
        return KN_GIVE(b, i, sum, &axes, b->g);
    }
    kn_attr_conv attr = conv_attr(b, i);
    return i == 0 ? KN_GIVE(b, i, conv_data, &attr, b->g, kn__saved_in(b, 1))
                  : KN_GIVE(b, i, conv_weight, &attr, kn__saved_in(b, 0), b->g);
}

/* dx = conv_data(dy, w) */
kn_tensor *kn__rule_conv_data(kn__back *b, int i) {
    kn_attr_conv attr = conv_attr(b, i);
    return i == 0 ? KN_GIVE(b, i, conv, &attr, b->g, kn__saved_in(b, 1), KN_NONE)
                  : KN_GIVE(b, i, conv_weight, &attr, b->g, kn__saved_in(b, 0));
}

/* dw = conv_weight(x, dy) */
kn_tensor *kn__rule_conv_weight(kn__back *b, int i) {
    kn_attr_conv attr = conv_attr(b, i);
    return i == 0 ? KN_GIVE(b, i, conv_data, &attr, kn__saved_in(b, 1), b->g)
                  : KN_GIVE(b, i, conv, &attr, kn__saved_in(b, 0), b->g, KN_NONE);
}

/* --- pooling --- */

static kn_attr_pool pool_attr(const kn__back *b, int i) {
    kn_attr_pool attr = *(const kn_attr_pool *)kn__back_attr(b);
    kn_shape shape = kn__back_shape(b, i);
    for (int d = 0; d < attr.n_spatial; d++) attr.size[d] = shape.dim[2 + d];
    return attr;
}

kn_tensor *kn__rule_maxpool(kn__back *b, int i) {
    kn_attr_pool attr = pool_attr(b, i);
    return KN_GIVE(b, i, maxpool_back, &attr, b->g, kn__saved_out(b, 1));
}

kn_tensor *kn__rule_maxpool_back(kn__back *b, int i) {
    return KN_GIVE(b, i, maxpool_take, kn__back_attr(b), b->g, kn__saved_in(b, 1));
}

kn_tensor *kn__rule_maxpool_take(kn__back *b, int i) {
    kn_attr_pool attr = pool_attr(b, i);
    return KN_GIVE(b, i, maxpool_back, &attr, b->g, kn__saved_in(b, 1));
}

kn_tensor *kn__rule_avgpool(kn__back *b, int i) {
    kn_attr_pool attr = pool_attr(b, i);
    return KN_GIVE(b, i, avgpool_back, &attr, b->g);
}

kn_tensor *kn__rule_avgpool_back(kn__back *b, int i) {
    return KN_GIVE(b, i, avgpool, kn__back_attr(b), b->g);
}

/* --- softmax --- */

static kn_tensor *sum_along(const kn__back *b, kn_tensor *t) {
    return t ? kn_sum_mask(t, ((const kn_attr_axes *)kn__back_attr(b))->mask, true) : NULL;
}

kn_tensor *kn__rule_softmax(kn__back *b, int i) {
    return KN_GIVE(b, i, softmax_back, kn__back_attr(b), kn__saved_out(b, 0), b->g);
}

/* y·(g - Σ gy): by g its own adjoint; by y: with G for the incoming gradient,
 * G·(g - Σ gy) - g·Σ Gy. */
kn_tensor *kn__rule_softmax_back(kn__back *b, int i) {
    kn_tensor *y = kn__saved_in(b, 0);
    if (i == 1) return KN_GIVE(b, i, softmax_back, kn__back_attr(b), y, b->g);
    kn_tensor *g = kn__saved_in(b, 1);
    kn_tensor *gy = sum_along(b, kn_mul(g, y)), *Gy = sum_along(b, kn_mul(b->g, y));
    return kn_sub(kn_mul(b->g, kn_sub(g, gy)), kn_mul(g, Gy));
}

kn_tensor *kn__rule_logsoftmax(kn__back *b, int i) {
    return KN_GIVE(b, i, logsoftmax_back, kn__back_attr(b), kn__saved_out(b, 0), b->g);
}

/* g - eʸ·Σ g. By g: G - Σ Geʸ; by y: -G·eʸ·Σ g. */
kn_tensor *kn__rule_logsoftmax_back(kn__back *b, int i) {
    kn_tensor *e = kn_exp(kn__saved_in(b, 0));
    if (i == 1) return kn_sub(b->g, sum_along(b, kn_mul(b->g, e)));
    return kn_neg(kn_mul(kn_mul(b->g, e), sum_along(b, kn__saved_in(b, 1))));
}

/* --- losses --- */

/* The forward call left dlogits. To be differentiated in turn it is made from ops instead. */
kn_tensor *kn__rule_cross_entropy(kn__back *b, int i) {
    kn_tensor *dlogits = kn__saved_out(b, 1);
    if (!b->pass->again && dlogits != KN_NONE) {
        bool is_loss = b->node == kn__edge_node(b->pass->from); /* g is one, in kn_backward NONE */
        return is_loss ? dlogits : KN_GIVE(b, i, mul, NULL, dlogits, b->g);
    }
    kn_tensor *logits = kn__saved_in(b, 0), *labels = kn__saved_in(b, 1);
    kn_attr_classes classes = {logits->dim[1]};
    kn_attr_axes axes = {.mask = 2};
    kn_tensor *log_probs = kn_logsoftmax(logits, 1);
    kn_tensor *g = KN_CALL(nll_back, &classes, labels, b->g);
    return KN_GIVE(b, i, logsoftmax_back, &axes, log_probs, g);
}

kn_tensor *kn__rule_nll(kn__back *b, int i) {
    kn_attr_classes classes = {kn__back_shape(b, i).dim[1]};
    return KN_GIVE(b, i, nll_back, &classes, kn__saved_in(b, 1), b->g);
}

kn_tensor *kn__rule_nll_back(kn__back *b, int i) { /* inputs labels, g */
    return KN_GIVE(b, i, nll, NULL, b->g, kn__saved_in(b, 0));
}

kn_tensor *kn__rule_dropout(kn__back *b, int i) {
    return KN_GIVE(b, i, dropout, kn__back_attr(b), b->g, kn__saved_in(b, 1));
}
