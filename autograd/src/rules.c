/* The table of rules, from ops.def, and the rules of reductions and movement; rules_nn.c has those
 * of products, convolution and losses, rows.c those of pointwise rows.
 *
 * Rules call ops that have rules themselves, so the same functions serve higher derivatives. The
 * last op of each goes through KN_GIVE, which writes into a gradient that exists where it can. */
#include "rules.h"

/* --- the table --- */
#define RULE_EACH(f)                                                                               \
    { .each = kn__rule_##f }
#define RULE_ALL(f)                                                                                \
    { .all = kn__rule_##f }
#define RULE_NOGRAD                                                                                \
    { .nograd = true }
#define ROW_RULES(name)                                                                            \
    [KN_OP_##name] = RULE_ALL(row), [KN_OP_##name##_back] = RULE_ALL(row_back),                    \
    [KN_OP_##name##_back2] = RULE_ALL(row_back2),

const kn__rule kn__rules[KN_OP_COUNT] = {
#define KN_ROW1(name, ...) ROW_RULES(name)
#define KN_ROW2(name, ...) ROW_RULES(name)
#define KN_ROW3(name, ...) ROW_RULES(name)
#define KN_COMPARE(name, ...) [KN_OP_##name] = RULE_NOGRAD,
#define KN_OP(name, in, out, attr, infer, kernel, rule, ...) [KN_OP_##name] = RULE_##rule,
#include <knet/ops.def>
};

/* --- reductions --- */

/* A reduced value with its axes back, as ones, so that it broadcasts to `shape`. */
static kn_tensor *with_axes(kn_tensor *t, kn_shape shape, uint32_t mask) {
    if (!t || t->n_dims == shape.n_dims) return t;
    for (int d = 0; d < shape.n_dims; d++) {
        if (mask >> d & 1) shape.dim[d] = 1;
    }
    return kn_reshape(t, shape);
}

static uint32_t mask_of(const kn__back *b) {
    return ((const kn_attr_axes *)kn__back_attr(b))->mask;
}

static kn_tensor *spread(kn__back *b, int i, kn_tensor *g) {
    kn_shape shape = kn__back_shape(b, i);
    kn_attr_shape attr = {.n_dims = shape.n_dims};
    memcpy(attr.dim, shape.dim, sizeof attr.dim);
    g = with_axes(g, shape, mask_of(b));
    return KN_GIVE(b, i, broadcast, &attr, g);
}

kn_tensor *kn__rule_sum(kn__back *b, int i) { return spread(b, i, b->g); }

kn_tensor *kn__rule_mean(kn__back *b, int i) {
    kn_shape shape = kn__back_shape(b, i);
    double n = 1;
    for (int d = 0; d < shape.n_dims; d++) {
        if (mask_of(b) >> d & 1) n *= (double)shape.dim[d];
    }
    return spread(b, i, kn_affine(b->g, 1 / n, 0));
}

/* max and min: all that tie get equal parts. */
kn_tensor *kn__rule_extremum(kn__back *b, int i) {
    kn_tensor *x = kn__saved_in(b, 0);
    kn_shape shape = kn_tensor_shape(x);
    uint32_t mask = mask_of(b);
    kn_tensor *y = with_axes(kn__saved_out(b, 0), shape, mask);
    kn_tensor *hits = y ? kn_cast(kn_eq(x, y), (kn_dtype)x->dtype) : NULL;
    kn_tensor *count = hits ? kn_sum_mask(hits, mask, true) : NULL;
    kn_tensor *g = count ? with_axes(b->g, shape, mask) : NULL;
    return g ? KN_GIVE(b, i, mul, NULL, hits, kn_div(g, count)) : NULL;
}

kn_tensor *kn__rule_broadcast(kn__back *b, int i) { return kn__give_unbroadcast(b, i, b->g); }

/* --- movement --- */

kn_tensor *kn__rule_reshape(kn__back *b, int i) { return kn_reshape(b->g, kn__back_shape(b, i)); }

/* The block at `start`, of the size that input i wants. */
static kn_attr_box box_for(const kn__back *b, int i, const kn_attr_box *from) {
    kn_attr_box box = *from;
    kn_shape shape = kn__back_shape(b, i);
    memcpy(box.size, shape.dim, sizeof box.size);
    return box;
}

/* Slices of one tensor add up in one buffer: zeros are made for the first alone. */
kn_tensor *kn__rule_slice(kn__back *b, int i) {
    kn_attr_box box = box_for(b, i, kn__back_attr(b));
    return KN_GIVE(b, i, slice_back, &box, b->g);
}

kn_tensor *kn__rule_slice_back(kn__back *b, int i) {
    kn_attr_box box = box_for(b, i, kn__back_attr(b));
    return KN_GIVE(b, i, slice, &box, b->g);
}

kn_tensor *kn__rule_transpose(kn__back *b, int i) {
    const kn_attr_transpose *attr = kn__back_attr(b);
    kn_attr_transpose inverse = {{0}};
    for (int d = 0; d < b->g->n_dims; d++) inverse.axis[attr->axis[d]] = d;
    return KN_GIVE(b, i, transpose, &inverse, b->g);
}

kn_tensor *kn__rule_concat(kn__back *b, int i) {
    const kn_attr_concat *attr = kn__back_attr(b);
    kn_attr_box none = {{0}, {0}}, box = box_for(b, i, &none);
    for (int j = 0; j < i; j++) box.start[attr->axis] += attr->size[j];
    return KN_GIVE(b, i, slice, &box, b->g);
}

kn_tensor *kn__rule_cast(kn__back *b, int i) {
    kn_attr_cast attr = {(int32_t)kn__back_dtype(b, i)};
    return KN_GIVE(b, i, cast, &attr, b->g);
}

kn_tensor *kn__rule_to(kn__back *b, int i) {
    (void)i;
    return kn_to(b->g, ((const kn_attr_to *)kn__back_attr(b))->from);
}
