/* Rules of products, convolution, pooling, softmax, losses and dropout. */
#include <knet/op_act.h>

#include "params.h"
#include "rules.h"

/* --- products --- */

/* The product that is the gradient of factor i. A factor that was transposed gets the transposed
 * gradient. */
static kn_attr_matmul matmul_back(kn_tensor *in[2], const kn__back *b, int i) {
    const kn_attr_matmul *attr = kn__back_attr(b);
    bool ta = attr->trans_a, tb = attr->trans_b;
    kn_tensor *other = kn__saved_in(b, 1 - i);
    bool g_first = i == 0 ? !ta : tb;
    in[0] = g_first ? b->g : other;
    in[1] = g_first ? other : b->g;
    if (i == 0) return ta ? (kn_attr_matmul){tb, true} : (kn_attr_matmul){false, !tb};
    return tb ? (kn_attr_matmul){true, ta} : (kn_attr_matmul){!ta, false};
}

/* c = op(a)·op(b); a factor that was broadcast gets the sum over the batch. */
kn_tensor *kn__rule_matmul(kn__back *b, int i) {
    kn_tensor *in[2];
    kn_attr_matmul product = matmul_back(in, b, i);
    kn_shape shape = kn__back_shape(b, i);
    bool fits = shape.n_dims == b->g->n_dims;
    for (int d = 0; fits && d < shape.n_dims - 2; d++) fits = shape.dim[d] == b->g->dim[d];
    if (fits) return KN_GIVE(b, i, matmul, &product, in[0], in[1]);
    return kn__give_unbroadcast(b, i, KN_CALL(matmul, &product, in[0], in[1]));
}

/* [...,C] as [rows,C] */
static kn_tensor *as_matrix(kn_tensor *t) {
    if (!t || t->n_dims == 2) return t;
    int64_t columns = t->dim[t->n_dims - 1], rows = 1;
    for (int d = 0; d < t->n_dims - 1; d++) rows *= t->dim[d];
    return kn_reshape(t, KN_SHAPE(rows, columns));
}

/* dx in the shape of input i: by its own header where that is new, so that it has one owner and a
 * later gradient may be written over it. */
static kn_tensor *shaped(const kn__back *b, int i, kn_tensor *dx) {
    const kn_shape shape = kn__back_shape(b, i);
    if (b->pass->again || !kn_tensor_is_unshared(dx)) return kn_reshape(dx, shape);
    dx->n_dims = (uint8_t)shape.n_dims;
    memcpy(dx->dim, shape.dim, sizeof dx->dim);
    return dx;
}

/* Whether the gradient of a linear op's bias comes with that of its weight: on a GPU, where this
 * saves a launch. */
static bool bias_with_weight(const kn__back *b) {
    return !b->pass->again && b->g->n && kn__back_wants(b, 1) && kn__back_wants(b, 2) &&
           kn__saved_in(b, 0)->n && kn_tensor_device(b->g) != kn_device_host();
}

/* Both, into the places that they have or delivered; as a rule's result for the weight. */
static kn_tensor *weight_bias_back(kn__back *b, kn_tensor *x, kn_tensor *g) {
    kn_op_call call;
    kn_op_call_init(&call, KN_OP_linear_weight_bias, NULL, KN_LIST_(x, g), 2);
    call.want = 3;
    for (unsigned r = 2; r-- > 0;) { /* the bias's place is before the weight's */
        bool fresh, adds = KN_CLASS_REAL >> b->g->dtype & 1;
        kn_tensor *to = kn__back_sink(b, 1 + (int)r, &fresh);
        if (kn_pending()) return NULL;
        if (!to || !(fresh || adds)) continue;
        call.out[r] = to;
        call.given |= (uint8_t)(1u << r), call.accumulate |= (uint8_t)(!fresh << r);
    }
    unsigned given = call.given;
    if (!kn_op_run(&call)) return NULL;
    kn_status status = given & 2 ? KN_OK : kn__back_deliver(b, 2, call.out[1]);
    if (status < 0) return kn_error_defer(status);
    return given & 1 ? KN_NONE : call.out[0];
}

/* y [...,O] = x [...,I]·wᵀ + b, w [O,I]. both: the bias's gradient comes with the weight's. */
static kn_tensor *linear_back(kn__back *b, int i, bool both) {
    kn_tensor *g = as_matrix(b->g); /* [rows,O] */
    if (i == 2 && both) return KN_NONE;
    if (i == 2) {
        kn_attr_axes rows = {.mask = 1};
        return KN_GIVE(b, i, sum, &rows, g);
    }
    if (i == 1) {
        kn_attr_matmul product = {true, false};
        kn_tensor *x = as_matrix(kn__saved_in(b, 0));
        if (g && x && both) return weight_bias_back(b, x, g);
        return KN_GIVE(b, i, matmul, &product, g, x);
    }
    kn_attr_matmul product = {false, false};
    kn_tensor *w = kn__saved_in(b, 1);
    if (b->g->n_dims == 2) return KN_GIVE(b, i, matmul, &product, g, w);
    kn_tensor *dx = KN_CALL(matmul, &product, g, w);
    return dx ? shaped(b, i, dx) : NULL;
}

kn_tensor *kn__rule_linear(kn__back *b, int i) { return linear_back(b, i, bias_with_weight(b)); }
/* The bias's gradient is there. */
static kn_tensor *linear_rest(kn__back *b, int i) { return linear_back(b, i, false); }

/* --- convolution: y = conv(x, w) + b is linear in each of x, w, b --- */

/* The attributes of the gradient for input i, whose sizes it makes. */
static kn_attr_conv conv_attr(const kn__back *b, int i) {
    kn_attr_conv attr = *(const kn_attr_conv *)kn__back_attr(b);
    kn_shape shape = kn__back_shape(b, i);
    for (int d = 0; d < attr.n_spatial; d++) attr.size[d] = shape.dim[2 + d];
    attr.act = KN_ACT_NONE;
    return attr;
}

static kn_tensor *data_over(kn__back *b, kn_attr_conv *attr) {
    kn_op_call call;
    kn_op_call_init(&call, KN_OP_conv_data, attr, KN_LIST_(b->g, kn__saved_in(b, 1)), 2);
    call.out[0] = b->g;
    call.given = 1;
    return kn_op_run(&call);
}

kn_tensor *kn__rule_conv(kn__back *b, int i) {
    if (i == 2) {
        kn_attr_axes axes = {.mask = ((1u << b->g->n_dims) - 1) & ~2u}; /* all but channels */
        return KN_GIVE(b, i, sum, &axes, b->g);
    }
    kn_attr_conv attr = conv_attr(b, i);
    if (i == 1) return KN_GIVE(b, i, conv_weight, &attr, kn__saved_in(b, 0), b->g);
    bool is_read = b->node->n_in > 3 && kn__back_wants(b, 3); /* by the residual's gradient */
    if (!is_read && kn__back_over(b, 0)) return data_over(b, &attr);
    return KN_GIVE(b, i, conv_data, &attr, b->g, kn__saved_in(b, 1));
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

/* --- a layer and its activation: y = act(x·wᵀ + b + r), act(conv(x, w) + b + r) --- */

/* g·act'(y), in ops that are differentiated through y: there is no tensor of what came before it.
 * Of 16 bits in f32, as the kernels compute. */
static kn_tensor *act_composed(const kn__back *b, kn_act act, kn_tensor *y) {
    kn_tensor *g = kn__wide(b->g), *z = kn__wide(y);
    kn_tensor *slope = act == KN_ACT_SIGM ? kn_mul(z, kn_affine(z, -1, 1))
                                          : kn_affine(kn_square(z), -1, 1); /* of tanh */
    kn_tensor *dx = kn_mul(g, slope);
    return dx && dx->dtype != b->g->dtype ? kn_cast(dx, (kn_dtype)b->g->dtype) : dx;
}

/* The activation's gradient. It overwrites the incoming gradient if no other node reads that. */
static kn_tensor *act_over(const kn__back *b, kn_act act, kn_tensor *y) {
    if (b->pass->again && act != KN_ACT_RELU) return act_composed(b, act, y);
    kn_op_call call;
    kn_op_call_init(&call, (kn_op)(kn_act_op(act) + 1), NULL, KN_LIST_(b->g, KN_NONE, y), 3);
    if (kn__back_last_use(b)) call.out[0] = b->g, call.given = 1;
    return kn_op_run(&call);
}

/* relu's gradient, and in the same pass the bias's, into the place that it has or delivered. */
static kn_tensor *relu_bias_back(kn__back *b, kn_tensor *y, int axis) {
    kn_attr_axes axes = {((1u << y->n_dims) - 1) & ~(1u << axis), 0};
    kn_op_call call;
    kn_op_call_init(&call, KN_OP_relu_bias_back, &axes, KN_LIST_(y, b->g), 2);
    call.want = 3;
    kn__param *weight = kn__edge_param(kn__node_edges(b->node)[1]);
    if (weight && b->pass->to_params) kn__param_used(weight); /* its place is before the bias's */
    bool fresh;
    kn_tensor *db = kn__back_sink(b, 2, &fresh);
    if (kn_pending()) return NULL;
    if (db) call.out[1] = db, call.given = 2, call.accumulate = fresh ? 0 : 2;
    if (kn__back_last_use(b)) call.out[0] = b->g, call.given |= 1;
    kn_tensor *g = kn_op_run(&call);
    if (!g || db) return g;
    kn_status status = kn__back_deliver(b, 2, call.out[1]);
    return status < 0 ? kn_error_defer(status) : g;
}

/* The activation's gradient into b->g. relu's with the bias's, if no gradient of it is wanted in
 * turn: *bias is then false. `axis`: the bias's. */
static kn_status act_back(kn__back *b, kn_act act, int axis, bool *bias) {
    if (act == KN_ACT_NONE) return KN_OK;
    if (!kn_act_keeps_result(act)) { /* of a call by its op */
        return KN_FAIL(KN_ERR_UNSUPPORTED, "kn_%s: activation %d has no gradient",
                       kn_op_name(b->node->op), (int)act);
    }
    kn_tensor *y = kn__saved_out(b, 0);
    bool is_real = KN_CLASS_REAL >> b->g->dtype & 1; /* the op that makes both takes no 16 bits */
    bool both = act == KN_ACT_RELU && *bias && !b->pass->again && b->g->n && is_real;
    kn_scope scope = kn__derivative_begin((int)kn_act_op(act), 0);
    kn_tensor *g = both ? relu_bias_back(b, y, axis) : act_over(b, act, y);
    kn_scope_end(&scope);
    if (!g) return kn_check();
    b->g = g;
    if (both) *bias = false;
    kn__back_drop(b, 1u << KN_NEED_OUT);
    return KN_OK;
}

/* Then those of the layer without it. is_bare: without an activation, b->g is not the frame's. */
static kn_status layer_back(kn__back *b, int op, bool bias, bool is_bare,
                            kn_tensor *(*rule)(kn__back *b, int i)) {
    for (int i = 2; i >= 0; i--) {
        if (i == 2 ? !bias : !kn__back_wants(b, i)) continue;
        kn_scope scope = kn__derivative_begin(op, i);
        kn_tensor *dx = rule(b, i);
        kn_scope_end(&scope);
        if (!dx) return kn_check();
        if (dx != KN_NONE) KN_TRY(kn__back_deliver(b, i, dx));
        if (i == 1 && op == KN_OP_linear && is_bare && !b->pass->keep) {
            kn_frame_release_to(b->pass->mark); /* views of x, which no other gradient reads */
            kn__back_drop(b, 1);
        }
    }
    return KN_OK;
}

kn_status kn__rule_linear_act(kn__back *b) {
    const kn_attr_act *attr = kn__back_attr(b);
    bool bias = kn__back_wants(b, 2);
    KN_TRY(act_back(b, (kn_act)attr->act, b->g->n_dims - 1, &bias));
    KN_TRY(layer_back(b, KN_OP_linear, bias, !attr->act, bias ? kn__rule_linear : linear_rest));
    return kn__back_wants(b, 3) ? kn__back_deliver(b, 3, b->g) : KN_OK;
}

kn_status kn__rule_conv_act(kn__back *b) {
    const kn_attr_conv *attr = kn__back_attr(b);
    bool bias = kn__back_wants(b, 2);
    KN_TRY(act_back(b, (kn_act)attr->act, 1, &bias));
    KN_TRY(layer_back(b, KN_OP_conv, bias, !attr->act, kn__rule_conv));
    return kn__back_wants(b, 3) ? kn__back_deliver(b, 3, b->g) : KN_OK;
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
    kn_attr_pool attr = pool_attr(b, i);
    return KN_GIVE(b, i, avgpool, &attr, b->g);
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
    kn_dtype dtype = kn__back_dtype(b, i);
    bool is_half = dtype == KN_F16 || dtype == KN_BF16; /* the rest is f32 */
    if (!b->pass->again && dlogits != KN_NONE) {
        bool is_loss = b->g == KN_NONE; /* which stands for one */
        if (is_half) return kn_cast(is_loss ? dlogits : kn_mul(dlogits, b->g), dtype);
        return is_loss ? dlogits : KN_GIVE(b, i, mul, NULL, dlogits, b->g);
    }
    kn_tensor *logits = kn__wide(kn__saved_in(b, 0)), *labels = kn__saved_in(b, 1);
    if (!logits) return NULL;
    kn_attr_classes classes = {logits->dim[1]};
    kn_attr_axes axes = {.mask = 2};
    kn_tensor *log_probs = kn_logsoftmax(logits, 1);
    double smoothing = ((const kn_attr_scalars *)kn__back_attr(b))->a;
    kn_tensor *own = smoothing > 0 ? kn_affine(b->g, 1 - smoothing, 0) : b->g;
    kn_tensor *g = KN_CALL(nll_back, &classes, labels, own);
    if (smoothing > 0) g = kn_add(g, kn_affine(b->g, -smoothing / (double)logits->n, 0));
    if (is_half) return kn_cast(KN_CALL(logsoftmax_back, &axes, log_probs, g), dtype);
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
