/* The table: one line an op, with what it keeps for its gradient. Then the rules of pointwise ops,
 * reductions and movement; rules_nn.c has the rest.
 *
 * Rules call ops that have rules themselves, so the same functions serve higher derivatives. A
 * saved value is kept only when the gradient that needs it is wanted: SAVE(what, for which inputs).
 */
#include "rules.h"
#include "params.h"

enum { FOR_0 = 1, FOR_1 = 2, FOR_2 = 4 };

#define RULE(name, ...)                                                                            \
    { .back = kn__rule_##name, __VA_ARGS__ }
#define SAVES0 .n_saves = 0
#define SAVES1(a) .save = {a}, .n_saves = 1
#define SAVES2(a, b) .save = {a, b}, .n_saves = 2
#define SAVES3(a, b, c) .save = {a, b, c}, .n_saves = 3
#define SAVE(what, when)                                                                           \
    { KN__##what, when }
#define SHAPES(which) .shapes = KN__SHAPES_##which
#define NOTE(what) .note = KN__NOTE_##what
#define NOGRAD                                                                                     \
    { .nograd = 1 }

const kn__rule kn__rules[KN_OP_COUNT] = {
    [KN_OP_neg] = RULE(neg, SAVES0),
    [KN_OP_neg_back] = RULE(neg_back, SAVES0),
    [KN_OP_abs] = RULE(unary, SAVES1(SAVE(IN0, FOR_0))),
    [KN_OP_abs_back] = RULE(abs_back, SAVES1(SAVE(IN0, FOR_1))),
    [KN_OP_sign] = RULE(zero, SAVES0),
    [KN_OP_sign_back] = RULE(zero, SAVES0),
    [KN_OP_exp] = RULE(unary, SAVES1(SAVE(OUT, FOR_0))),
    [KN_OP_exp_back] = RULE(exp_back, SAVES2(SAVE(IN0, FOR_1), SAVE(IN1, FOR_0))),
    [KN_OP_log] = RULE(unary, SAVES1(SAVE(IN0, FOR_0))),
    [KN_OP_log_back] = RULE(log_back, SAVES2(SAVE(IN0, FOR_0 | FOR_1), SAVE(IN1, FOR_0))),
    [KN_OP_sqrt] = RULE(unary, SAVES1(SAVE(OUT, FOR_0))),
    [KN_OP_sqrt_back] = RULE(sqrt_back, SAVES2(SAVE(IN0, FOR_0 | FOR_1), SAVE(IN1, FOR_0))),
    [KN_OP_relu] = RULE(relu, SAVES1(SAVE(OUT, FOR_0))),
    [KN_OP_relu_back] = RULE(relu_back, SAVES1(SAVE(IN0, FOR_1))),
    [KN_OP_sigm] = RULE(unary, SAVES1(SAVE(OUT, FOR_0))),
    [KN_OP_sigm_back] = RULE(sigm_back, SAVES2(SAVE(IN0, FOR_0 | FOR_1), SAVE(IN1, FOR_0))),
    [KN_OP_tanh] = RULE(unary, SAVES1(SAVE(OUT, FOR_0))),
    [KN_OP_tanh_back] = RULE(tanh_back, SAVES2(SAVE(IN0, FOR_0 | FOR_1), SAVE(IN1, FOR_0))),

    [KN_OP_add] = RULE(add, SHAPES(BROADCAST)),
    [KN_OP_sub] = RULE(sub, SHAPES(BROADCAST)),
    [KN_OP_mul] = RULE(mul, SAVES2(SAVE(IN1, FOR_0), SAVE(IN0, FOR_1)), SHAPES(BROADCAST)),
    [KN_OP_div] = RULE(div, SAVES2(SAVE(IN1, FOR_0 | FOR_1), SAVE(OUT, FOR_1)), SHAPES(BROADCAST)),
    [KN_OP_pow] =
        RULE(pow, SAVES3(SAVE(IN0, FOR_0 | FOR_1), SAVE(IN1, FOR_0 | FOR_1), SAVE(OUT, FOR_1)),
             SHAPES(BROADCAST)),
    [KN_OP_maximum] = RULE(maximum, SAVES2(SAVE(IN0, FOR_0 | FOR_1), SAVE(IN1, FOR_0 | FOR_1)),
                           SHAPES(BROADCAST)),
    [KN_OP_minimum] = RULE(maximum, SAVES2(SAVE(IN0, FOR_0 | FOR_1), SAVE(IN1, FOR_0 | FOR_1)),
                           SHAPES(BROADCAST)),
    [KN_OP_eq] = NOGRAD,
    [KN_OP_ne] = NOGRAD,
    [KN_OP_lt] = NOGRAD,
    [KN_OP_le] = NOGRAD,
    [KN_OP_gt] = NOGRAD,
    [KN_OP_ge] = NOGRAD,
    [KN_OP_where] = RULE(where, SAVES1(SAVE(IN0, FOR_1 | FOR_2)), SHAPES(BROADCAST)),
    [KN_OP_affine] = RULE(affine, SAVES0),
    [KN_OP_pow_scalar] = RULE(pow_scalar, SAVES1(SAVE(IN0, FOR_0))),
    [KN_OP_fill] = NOGRAD,
    [KN_OP_add_into] = NOGRAD,
    [KN_OP_relu_bias_back] = NOGRAD,

    [KN_OP_sum] = RULE(sum, SHAPES(FIRST)),
    [KN_OP_mean] = RULE(mean, SHAPES(FIRST)),
    [KN_OP_max] = RULE(extremum, SAVES2(SAVE(IN0, FOR_0), SAVE(OUT, FOR_0))),
    [KN_OP_min] = RULE(extremum, SAVES2(SAVE(IN0, FOR_0), SAVE(OUT, FOR_0))),
    [KN_OP_argmax] = NOGRAD,
    [KN_OP_broadcast] = RULE(broadcast, SHAPES(BROADCAST)),

    [KN_OP_matmul] = RULE(matmul, SAVES2(SAVE(IN1, FOR_0), SAVE(IN0, FOR_1))),
    [KN_OP_linear] = RULE(linear, SAVES2(SAVE(IN1, FOR_0), SAVE(IN0, FOR_1))),
    [KN_OP_conv] = RULE(conv, SAVES2(SAVE(IN1, FOR_0), SAVE(IN0, FOR_1)), SHAPES(TWO)),
    [KN_OP_conv_data] = RULE(conv_data, SAVES2(SAVE(IN1, FOR_0), SAVE(IN0, FOR_1)), SHAPES(TWO)),
    [KN_OP_conv_weight] =
        RULE(conv_weight, SAVES2(SAVE(IN1, FOR_0), SAVE(IN0, FOR_1)), SHAPES(TWO)),
    [KN_OP_maxpool] = RULE(maxpool, SAVES1(SAVE(AUX, FOR_0)), SHAPES(FIRST)),
    [KN_OP_maxpool_back] = RULE(maxpool_back, SAVES1(SAVE(IN1, FOR_0)), SHAPES(FIRST)),
    [KN_OP_maxpool_take] = RULE(maxpool_take, SAVES1(SAVE(IN1, FOR_0)), SHAPES(FIRST)),
    [KN_OP_avgpool] = RULE(avgpool, SHAPES(FIRST)),
    [KN_OP_avgpool_back] = RULE(avgpool_back, SAVES0),

    [KN_OP_softmax] = RULE(softmax, SAVES1(SAVE(OUT, FOR_0))),
    [KN_OP_softmax_back] = RULE(softmax_back, SAVES2(SAVE(IN0, FOR_0 | FOR_1), SAVE(IN1, FOR_0))),
    [KN_OP_logsoftmax] = RULE(logsoftmax, SAVES1(SAVE(OUT, FOR_0))),
    [KN_OP_logsoftmax_back] =
        RULE(logsoftmax_back, SAVES2(SAVE(IN0, FOR_0 | FOR_1), SAVE(IN1, FOR_0))),
    [KN_OP_cross_entropy] =
        RULE(cross_entropy, SAVES3(SAVE(AUX, FOR_0), SAVE(IN0, FOR_0), SAVE(IN1, FOR_0)),
             .knows_one = 1),
    [KN_OP_nll] = RULE(nll, SAVES1(SAVE(IN1, FOR_0)), SHAPES(FIRST)),
    [KN_OP_nll_back] = RULE(nll_back, SAVES1(SAVE(IN0, FOR_1))),
    [KN_OP_accuracy] = NOGRAD,

    [KN_OP_rng_take] = NOGRAD,
    [KN_OP_uniform] = NOGRAD,
    [KN_OP_normal] = NOGRAD,
    [KN_OP_dropout] = RULE(dropout, SAVES1(SAVE(IN1, FOR_0))),

    [KN_OP_slice] = RULE(slice, SHAPES(FIRST)),
    [KN_OP_slice_back] = RULE(slice_back, SHAPES(FIRST)),
    [KN_OP_transpose] = RULE(transpose, SAVES0),
    [KN_OP_concat] = RULE(concat, SHAPES(ALL)),
    [KN_OP_cast] = RULE(cast, NOTE(DTYPE)),
    [KN_OP_reshape] = RULE(reshape, SHAPES(FIRST)),
    [KN_OP_to] = RULE(to, NOTE(DEVICE)),

    [KN_OP_sgd_step] = NOGRAD,
    [KN_OP_momentum_step] = NOGRAD,
    [KN_OP_adam_step] = NOGRAD,
};

/* --- unary: name_back follows name in the table of ops --- */

kn_tensor *kn__rule_unary(kn__back *b, int i) {
    (void)i;
    return kn_unary_back((kn_op)(b->node->op + 1), kn__back_saved(b, 0), b->g);
}

/* A linear or convolution layer that only this relu reads, with a bias that is a parameter: its
 * gradient is the sum of relu's, so one op makes both. NULL: there is no such layer. */
static kn__node *layer_below(const kn__back *b) {
    kn__node *layer = kn__edge_node(kn__node_edges(b->node)[0]);
    if (!b->pass->to_params || !layer || b->g->n == 0) return NULL;
    if (layer->op != KN_OP_linear && layer->op != KN_OP_conv) return NULL;
    return layer->n_users == 1 && kn__edge_param(kn__node_edges(layer)[2]) ? layer : NULL;
}

kn_tensor *kn__rule_relu(kn__back *b, int i) {
    kn__node *layer = layer_below(b);
    if (!layer) return kn__rule_unary(b, i);
    kn__edge *edges = kn__node_edges(layer);
    bool fresh = false;
    kn__param *weight = kn__edge_param(edges[1]);
    if (weight) kn__param_used(weight); /* its gradient comes later, its place before the bias's */
    kn_tensor *db = kn__param_sink(kn__edge_param(edges[2]), b->pass, &fresh);
    if (!db) return NULL;
    int axis = layer->op == KN_OP_linear ? b->g->n_dims - 1 : 1;
    kn_tensor *dx = kn_relu_bias_back(kn__back_saved(b, 0), b->g, axis, db, !fresh);
    edges[2] = 0; /* the bias has its gradient */
    layer->need &= ~(uint64_t)FOR_2;
    return dx;
}

kn_tensor *kn__rule_zero(kn__back *b, int i) {
    (void)b, (void)i;
    return KN_NONE;
}

kn_tensor *kn__rule_neg(kn__back *b, int i) {
    (void)i;
    return kn_neg(b->g);
}

kn_tensor *kn__rule_neg_back(kn__back *b, int i) { return i == 1 ? kn_neg(b->g) : KN_NONE; }

/* The ops below are (s, g) → g·f(s). By g they are their own adjoint; by s they give g·f'(s). */
static kn_tensor *by_g(kn__back *b) {
    return kn_unary_back((kn_op)b->node->op, kn__back_saved(b, 0), b->g);
}

kn_tensor *kn__rule_abs_back(kn__back *b, int i) { return i == 1 ? by_g(b) : KN_NONE; }
kn_tensor *kn__rule_relu_back(kn__back *b, int i) { return i == 1 ? by_g(b) : KN_NONE; }

kn_tensor *kn__rule_exp_back(kn__back *b, int i) { return kn_mul(b->g, kn__back_saved(b, i == 0)); }

kn_tensor *kn__rule_log_back(kn__back *b, int i) { /* f = 1/s */
    if (i == 1) return by_g(b);
    kn_tensor *s = kn__back_saved(b, 0), *g = kn__back_saved(b, 1);
    return kn_neg(kn_div(kn_mul(b->g, g), kn_mul(s, s)));
}

kn_tensor *kn__rule_sqrt_back(kn__back *b, int i) { /* f = 1/2s */
    if (i == 1) return by_g(b);
    kn_tensor *s = kn__back_saved(b, 0), *g = kn__back_saved(b, 1);
    return kn_affine(kn_div(kn_mul(b->g, g), kn_mul(s, s)), -0.5, 0);
}

kn_tensor *kn__rule_sigm_back(kn__back *b, int i) { /* f = s(1 - s) */
    if (i == 1) return by_g(b);
    kn_tensor *s = kn__back_saved(b, 0), *g = kn__back_saved(b, 1);
    return kn_mul(kn_mul(b->g, g), kn_affine(s, -2, 1));
}

kn_tensor *kn__rule_tanh_back(kn__back *b, int i) { /* f = 1 - s² */
    if (i == 1) return by_g(b);
    kn_tensor *s = kn__back_saved(b, 0), *g = kn__back_saved(b, 1);
    return kn_mul(kn_mul(b->g, g), kn_affine(s, -2, 0));
}

/* --- broadcasting --- */

/* Dimensions of g that `shape` lacks or has once. */
static uint32_t broadcast_mask(const kn_tensor *g, const kn_shape *shape) {
    uint32_t mask = 0;
    int lead = g->n_dims - shape->n_dims;
    for (int d = 0; d < g->n_dims; d++) {
        if (d < lead || (shape->dim[d - lead] == 1 && g->dim[d] != 1)) mask |= 1u << d;
    }
    return mask;
}

kn_tensor *kn__back_unbroadcast(kn__back *b, int i, kn_tensor *g) {
    if (!g || !b->node->n_shapes) return g;
    kn_shape shape = kn__back_shape(b, i);
    uint32_t mask = broadcast_mask(g, &shape);
    if (!mask) return g;
    kn_attr_axes axes = {.mask = mask, .keep_dims = shape.n_dims == g->n_dims};
    kn_op_call sum = {.op = KN_OP_sum,
                      .n_in = 1,
                      .in = &g,
                      .attr = &axes,
                      .attr_bytes = sizeof axes,
                      .dtype = (kn_dtype)g->dtype,
                      .shape = shape};
    return kn__back_run(b, i, &sum);
}

kn_tensor *kn__rule_add(kn__back *b, int i) { return kn__back_unbroadcast(b, i, b->g); }

kn_tensor *kn__rule_sub(kn__back *b, int i) {
    return kn__back_unbroadcast(b, i, i == 0 ? b->g : kn_neg(b->g));
}

kn_tensor *kn__rule_mul(kn__back *b, int i) {
    return kn__back_unbroadcast(b, i, kn_mul(b->g, kn__back_saved(b, i)));
}

kn_tensor *kn__rule_div(kn__back *b, int i) { /* d(x/y) = dx/y - (x/y)·dy/y */
    kn_tensor *dx = kn_div(b->g, kn__back_saved(b, 0));
    if (i == 1) dx = kn_neg(kn_mul(dx, kn__back_saved(b, 1)));
    return kn__back_unbroadcast(b, i, dx);
}

static kn_tensor *constant(const kn_tensor *like, double value) {
    return kn__filled(like->storage->device, (kn_dtype)like->dtype, KN_SCALAR, value);
}

/* By x: y·x^(y-1), zero where y is; by y: x^y·log x, zero where x is. The replaced operands keep
 * infinities out of higher derivatives too. */
kn_tensor *kn__rule_pow(kn__back *b, int i) {
    kn_tensor *x = kn__back_saved(b, 0), *y = kn__back_saved(b, 1);
    kn_tensor *zero = constant(x, 0), *one = constant(x, 1), *dx = NULL;
    if (i == 0) {
        kn_tensor *less = kn_where(kn_eq(y, zero), one, kn_affine(y, 1, -1));
        dx = kn_mul(kn_mul(b->g, y), kn_pow(x, less));
    } else {
        kn_tensor *z = kn__back_saved(b, 2);
        dx = kn_mul(kn_mul(b->g, z), kn_log(kn_where(kn_eq(x, zero), one, x)));
    }
    return kn__back_unbroadcast(b, i, dx);
}

/* Ties share. */
kn_tensor *kn__rule_maximum(kn__back *b, int i) {
    kn_tensor *x = kn__back_saved(b, i), *other = kn__back_saved(b, 1 - i);
    kn_dtype dtype = (kn_dtype)b->g->dtype;
    kn_tensor *wins = b->node->op == KN_OP_maximum ? kn_gt(x, other) : kn_lt(x, other);
    kn_tensor *share =
        kn_add(kn_cast(wins, dtype), kn_affine(kn_cast(kn_eq(x, other), dtype), 0.5, 0));
    return kn__back_unbroadcast(b, i, kn_mul(b->g, share));
}

kn_tensor *kn__rule_where(kn__back *b, int i) {
    kn_tensor *condition = kn__back_saved(b, 0), *zero = constant(b->g, 0);
    kn_tensor *dx = i == 1 ? kn_where(condition, b->g, zero) : kn_where(condition, zero, b->g);
    return kn__back_unbroadcast(b, i, dx);
}

kn_tensor *kn__rule_affine(kn__back *b, int i) {
    (void)i;
    const kn_attr_scalars *attr = kn__back_attr(b);
    return attr->a == 1 ? b->g : kn_affine(b->g, attr->a, 0);
}

kn_tensor *kn__rule_pow_scalar(kn__back *b, int i) {
    (void)i;
    double p = ((const kn_attr_scalars *)kn__back_attr(b))->a;
    if (p == 0) return KN_NONE;
    if (p == 1) return b->g;
    return kn_mul(b->g, kn_affine(kn_pow_scalar(kn__back_saved(b, 0), p - 1), p, 0));
}

/* --- reductions --- */

/* A reduced value with its axes back, as ones, so that it broadcasts to `shape`. */
static kn_tensor *with_axes(kn_tensor *t, kn_shape shape, uint32_t mask) {
    if (t->n_dims == shape.n_dims) return t;
    for (int d = 0; d < shape.n_dims; d++) {
        if (mask >> d & 1) shape.dim[d] = 1;
    }
    return kn_reshape(t, shape);
}

static uint32_t mask_of(const kn__back *b) {
    return ((const kn_attr_axes *)kn__back_attr(b))->mask;
}

static kn_tensor *spread(kn__back *b, kn_tensor *g) {
    kn_shape shape = kn__back_shape(b, 0);
    if (!g) return NULL;
    g = with_axes(g, shape, mask_of(b));
    return g ? kn_broadcast(g, shape) : NULL;
}

kn_tensor *kn__rule_sum(kn__back *b, int i) {
    (void)i;
    return spread(b, b->g);
}

kn_tensor *kn__rule_mean(kn__back *b, int i) {
    (void)i;
    kn_shape shape = kn__back_shape(b, 0);
    double n = 1;
    for (int d = 0; d < shape.n_dims; d++) {
        if (mask_of(b) >> d & 1) n *= (double)shape.dim[d];
    }
    return spread(b, kn_affine(b->g, 1 / n, 0));
}

/* max and min: all that tie get equal parts. */
kn_tensor *kn__rule_extremum(kn__back *b, int i) {
    (void)i;
    kn_tensor *x = kn__back_saved(b, 0);
    kn_shape shape = kn_tensor_shape(x);
    uint32_t mask = mask_of(b);
    kn_tensor *y = with_axes(kn__back_saved(b, 1), shape, mask);
    kn_tensor *hits = y ? kn_cast(kn_eq(x, y), (kn_dtype)x->dtype) : NULL;
    kn_tensor *count = hits ? kn_sum_mask(hits, mask, true, NULL) : NULL;
    kn_tensor *g = count ? with_axes(b->g, shape, mask) : NULL;
    return g ? kn_mul(hits, kn_div(g, count)) : NULL;
}

kn_tensor *kn__rule_broadcast(kn__back *b, int i) { return kn__back_unbroadcast(b, i, b->g); }

/* --- movement --- */

kn_tensor *kn__rule_reshape(kn__back *b, int i) {
    (void)i;
    return kn_reshape(b->g, kn__back_shape(b, 0));
}

static kn_shape move_shape(const int64_t *dim, int n_dims) {
    kn_shape shape = {.n_dims = n_dims};
    memcpy(shape.dim, dim, (size_t)n_dims * sizeof *dim);
    return shape;
}

/* Slices of one tensor add up in one buffer: zeros are made for the first alone. */
kn_tensor *kn__rule_slice(kn__back *b, int i) {
    const kn_attr_move *attr = kn__back_attr(b);
    kn_shape shape = kn__back_shape(b, 0);
    kn_dtype dtype = (kn_dtype)b->g->dtype;
    if (dtype != KN_F32 && dtype != KN_F64) {
        return kn_slice_back(b->g, move_shape(attr->start, shape.n_dims), shape);
    }
    kn_op_call call = {.op = KN_OP_slice_back,
                       .n_in = 1,
                       .in = &b->g,
                       .attr = attr,
                       .attr_bytes = sizeof *attr,
                       .dtype = dtype,
                       .shape = shape};
    return kn__back_run(b, i, &call);
}

kn_tensor *kn__rule_slice_back(kn__back *b, int i) {
    (void)i;
    const kn_attr_move *attr = kn__back_attr(b);
    kn_shape start = move_shape(attr->start, kn__back_shape(b, 0).n_dims), stop = start;
    for (int d = 0; d < start.n_dims; d++) stop.dim[d] += kn__back_shape(b, 0).dim[d];
    return kn_slice(b->g, start, stop);
}

kn_tensor *kn__rule_transpose(kn__back *b, int i) {
    (void)i;
    const kn_attr_move *attr = kn__back_attr(b);
    if (b->g->n_dims == 0) return b->g;
    kn_shape inverse = {.n_dims = b->g->n_dims};
    for (int d = 0; d < inverse.n_dims; d++) inverse.dim[attr->start[d]] = d;
    return kn_transpose(b->g, inverse);
}

kn_tensor *kn__rule_concat(kn__back *b, int i) {
    int axis = (int)((const kn_attr_move *)kn__back_attr(b))->start[0];
    kn_shape start = {.n_dims = b->g->n_dims}, stop = kn_tensor_shape(b->g);
    for (int j = 0; j < i; j++) start.dim[axis] += kn__back_shape(b, j).dim[axis];
    stop.dim[axis] = start.dim[axis] + kn__back_shape(b, i).dim[axis];
    return kn_slice(b->g, start, stop);
}

kn_tensor *kn__rule_cast(kn__back *b, int i) {
    (void)i;
    return kn_cast(b->g, *(const kn_dtype *)kn__back_attr(b));
}

kn_tensor *kn__rule_to(kn__back *b, int i) {
    (void)i;
    return kn_to(b->g, *(kn_device *const *)kn__back_attr(b));
}
