/* Rules of reductions, scans and sorts. */
#include <float.h>
#include <math.h>

#include "rules.h"
#include "uniform.h"

static const kn_attr_axes *axes_of(const kn__back *b) { return kn__back_attr(b); }

/* A reduced value with its axes back, as ones, so that it broadcasts to `shape`. */
static kn_tensor *with_axes(kn_tensor *t, kn_shape shape, uint32_t mask) {
    if (!t || t->n_dims == shape.n_dims) return t;
    for (int d = 0; d < shape.n_dims; d++) {
        if (mask >> d & 1) shape.dim[d] = 1;
    }
    return kn_reshape(t, shape);
}

/* The same, for the gradient of input 0. */
static kn_tensor *full(const kn__back *b, kn_tensor *t) {
    return with_axes(t, kn__back_shape(b, 0), axes_of(b)->mask);
}

static double count(const kn__back *b) {
    kn_shape shape = kn__back_shape(b, 0);
    double n = 1;
    for (int d = 0; d < shape.n_dims; d++)
        n *= axes_of(b)->mask >> d & 1 ? (double)shape.dim[d] : 1;
    return n;
}

/* t, with `value` where it is 0. */
static kn_tensor *nonzero(kn_tensor *t, double value) {
    if (!t) return NULL;
    return kn_where(kn_eq(t, kn_filled_like(t, 0)), kn_filled_like(t, value), t);
}

/* g/y, 0 where y is 0: of a root at 0. */
static kn_tensor *over(kn_tensor *g, kn_tensor *y) {
    kn_tensor *safe = nonzero(y, 1), *zero = y ? kn_filled_like(y, 0) : NULL;
    return kn_where(kn_eq(y, zero), zero, kn_div(g, safe));
}

/* t in the dtype of input i. */
static kn_tensor *narrow(kn__back *b, int i, kn_tensor *t) {
    kn_dtype dtype = kn__back_dtype(b, i);
    return t && t->dtype != dtype ? kn_cast(t, dtype) : t;
}

/* x·y as the gradient of input i, in its dtype. */
static kn_tensor *give_product(kn__back *b, int i, kn_tensor *x, kn_tensor *y) {
    kn_attr_cast back = {(int32_t)kn__back_dtype(b, i)};
    if (KN_CLASS_REAL >> back.dtype & 1) return KN_GIVE(b, i, mul, NULL, x, y);
    return KN_GIVE(b, i, cast, &back, kn_mul(x, y));
}

static kn_tensor *spread(kn__back *b, int i, kn_tensor *g) {
    kn_shape shape = kn__back_shape(b, i);
    if (g && g->n == 1) return kn__give_uniform(b, i, g);
    kn_attr_shape attr = {.n_dims = shape.n_dims};
    memcpy(attr.dim, shape.dim, sizeof attr.dim);
    g = with_axes(g, shape, axes_of(b)->mask);
    return KN_GIVE(b, i, broadcast, &attr, g);
}

/* --- sums --- */

kn_tensor *kn__rule_sum(kn__back *b, int i) { return spread(b, i, b->g); }

kn_tensor *kn__rule_mean(kn__back *b, int i) {
    return spread(b, i, kn_affine(b->g, 1 / count(b), 0));
}

kn_tensor *kn__rule_sum_abs(kn__back *b, int i) {
    return KN_GIVE(b, i, mul, NULL, kn_sign(kn__saved_in(b, 0)), full(b, b->g));
}

kn_tensor *kn__rule_nan_sum(kn__back *b, int i) {
    kn_tensor *x = kn__saved_in(b, 0), *g = full(b, b->g);
    kn_tensor *zero = g ? kn_filled_like(g, 0) : NULL;
    return KN_GIVE(b, i, where, NULL, kn_eq(x, x), g, zero);
}

kn_tensor *kn__rule_sum_square(kn__back *b, int i) {
    kn_tensor *x = kn__wide(kn__saved_in(b, 0));
    return give_product(b, i, x, full(b, kn_affine(kn__wide(b->g), 2, 0)));
}

/* max and min: all that tie get equal parts. */
static kn_tensor *tied(kn__back *b, kn_tensor *x, kn_tensor **g) {
    kn_tensor *y = full(b, kn__saved_out(b, 0));
    kn_tensor *hits = x && y ? kn_cast(kn_eq(x, y), (kn_dtype)x->dtype) : NULL;
    kn_tensor *n = hits ? kn_sum_mask(kn__wide(hits), axes_of(b)->mask, true) : NULL;
    *g = n ? kn_div(full(b, kn__wide(b->g)), n) : NULL;
    *g = narrow(b, 0, *g);
    return hits;
}

kn_tensor *kn__rule_extremum(kn__back *b, int i) {
    kn_tensor *g, *hits = tied(b, kn__saved_in(b, 0), &g);
    return KN_GIVE(b, i, mul, NULL, hits, g);
}

kn_tensor *kn__rule_extremum_abs(kn__back *b, int i) {
    kn_tensor *x = kn__saved_in(b, 0), *g, *hits = tied(b, kn_abs(x), &g);
    return KN_GIVE(b, i, mul, NULL, kn_mul(hits, kn_sign(x)), g);
}

/* The norm y of x; NaN where it overflowed, as shares of it are unknown: it is infinite, but no
 * element is. */
static kn_tensor *known(const kn__back *b, kn_tensor *x, kn_tensor *y) {
    kn_attr_axes axes = *axes_of(b);
    if (!x || !y || x->n == 0) return y;
    kn_tensor *most = KN_CALL(max_abs, &axes, x);
    most = kn_clamp(most, y->dtype == KN_F64 ? DBL_MAX : FLT_MAX, INFINITY);
    return kn_where(kn_gt(y, most), kn_filled_like(y, NAN), y);
}

/* g·sign(x)·(|x|/y)^(p-1), 0 where x is 0: neither power fits where their product does. Of 16 bits
 * in f32, with y computed again: it may not fit either. */
static kn_tensor *norm_power(kn__back *b, int i, kn_attr_norm *attr) {
    kn_tensor *x = kn__saved_in(b, 0), *y = kn__saved_out(b, 0), *g = full(b, b->g);
    kn_attr_cast back = {(int32_t)x->dtype};
    bool is_real = KN_CLASS_REAL >> x->dtype & 1;
    if (!is_real) {
        x = kn_cast(x, KN_F32), g = kn_cast(g, KN_F32);
        y = KN_CALL(norm, attr, x);
    }
    kn_tensor *zero = x ? kn_filled_like(x, 0) : NULL;
    kn_tensor *share = kn_div(kn_abs(x), full(b, nonzero(known(b, x, y), 1)));
    share = kn_where(kn_eq(x, zero), zero ? kn_filled_like(zero, 1) : NULL, share);
    kn_tensor *slope = kn_mul(kn_sign(x), kn_pow_scalar(share, attr->p - 1));
    if (is_real) return KN_GIVE(b, i, mul, NULL, slope, g);
    return KN_GIVE(b, i, cast, &back, kn_mul(slope, g));
}

kn_tensor *kn__rule_norm(kn__back *b, int i) {
    kn_attr_norm attr = *(const kn_attr_norm *)kn__back_attr(b);
    if (attr.p == 0) return KN_NONE;
    if (attr.p == 1) return kn__rule_sum_abs(b, i);
    if (attr.p - attr.p != 0) return kn__rule_extremum_abs(b, i);
    if (attr.p != 2) return norm_power(b, i, &attr);
    kn_tensor *x = kn__saved_in(b, 0), *y = kn__saved_out(b, 0), *w = kn__wide(x);
    if (w != x) y = KN_CALL(norm, &attr, w);
    return give_product(b, i, w, full(b, over(kn__wide(b->g), known(b, w, y))));
}

/* g·e^(x - y); where all x are -infinity: 0. Of 16 bits in f32, with y computed again: what
 * rounding does to y would scale all elements. */
kn_tensor *kn__rule_logsumexp(kn__back *b, int i) {
    kn_tensor *x = kn__saved_in(b, 0), *y = kn__saved_out(b, 0), *g = full(b, b->g);
    kn_attr_cast back = {(int32_t)x->dtype};
    bool is_real = KN_CLASS_REAL >> x->dtype & 1;
    if (!is_real) {
        kn_attr_axes axes = *axes_of(b);
        x = kn_cast(x, KN_F32), g = kn_cast(g, KN_F32);
        y = KN_CALL(logsumexp, &axes, x);
    }
    if (!y) return NULL;
    double lowest = y->dtype == KN_F64 ? -DBL_MAX : -FLT_MAX;
    y = full(b, kn_maximum(y, kn_filled_like(y, lowest)));
    kn_tensor *share = kn_exp(kn_sub(x, y));
    if (is_real) return KN_GIVE(b, i, mul, NULL, share, g);
    return KN_GIVE(b, i, cast, &back, kn_mul(share, g));
}

/* --- var and std: Σ(x - m)²/d and its root --- */

/* The gradient of Σ(x - m)²/2 by x, or by a given m, times f, which has the result's shape. None of
 * them of 16 bits, where a mean that rounds counts more than the deviations from it. */
static kn_tensor *deviation(kn__back *b, int i, kn_tensor *x, kn_tensor *mean, kn_tensor *f) {
    kn_attr_axes axes = {axes_of(b)->mask, true};
    mean =
        mean == KN_NONE ? KN_CALL(mean, &axes, x) : with_axes(mean, kn_tensor_shape(x), axes.mask);
    kn_tensor *d = kn_sub(x, mean);
    f = with_axes(f, kn_tensor_shape(x), axes.mask);
    if (i == 0) return give_product(b, i, d, f);
    kn_tensor *sum = d ? kn_mul(kn_affine(f, -1, 0), kn_sum_mask(d, axes.mask, true)) : NULL;
    sum = narrow(b, i, sum);
    return sum ? kn_reshape(sum, kn__back_shape(b, 1)) : NULL;
}

/* n - correction, of x. */
static double divisor(const kn__back *b) {
    const kn_tensor *x = kn__saved_in(b, 0);
    double n = -((const kn_attr_var *)kn__back_attr(b))->correction;
    double all = 1;
    for (int d = 0; d < x->n_dims; d++) all *= axes_of(b)->mask >> d & 1 ? (double)x->dim[d] : 1;
    return all + n > 0 ? all + n : 0;
}

kn_tensor *kn__rule_var(kn__back *b, int i) {
    kn_tensor *x = kn__wide(kn__saved_in(b, 0)), *mean = kn__wide(kn__saved_in(b, 1));
    return deviation(b, i, x, mean, kn_affine(kn__wide(b->g), 2 / divisor(b), 0));
}

kn_tensor *kn__rule_std(kn__back *b, int i) {
    kn_attr_var attr = *(const kn_attr_var *)kn__back_attr(b);
    kn_tensor *x = kn__saved_in(b, 0), *y = kn__saved_out(b, 0), *w = kn__wide(x);
    kn_tensor *mean = kn__wide(kn__saved_in(b, 1));
    if (w != x) y = KN_CALL(std, &attr, w, mean);
    return deviation(b, i, w, mean, kn_affine(over(kn__wide(b->g), y), 1 / divisor(b), 0));
}

/* --- scans: y[i] = b[i] + a[i]·y[i - 1]; `exclusive`: y[i - 1] in y's place --- */

static kn_attr_scan turned(const kn_attr_scan *attr, bool exclusive) {
    return (kn_attr_scan){attr->mask, !attr->reverse, exclusive};
}
static kn_attr_scan straight(const kn_attr_scan *attr) {
    return (kn_attr_scan){attr->mask, attr->reverse, true};
}

kn_tensor *kn__rule_cumsum(kn__back *b, int i) {
    kn_attr_scan *attr = kn__back_attr(b), back = turned(attr, attr->exclusive);
    return KN_GIVE(b, i, cumsum, &back, b->g);
}

/* What g of a scan by the factors a is by its terms. */
static kn_tensor *scanned_back(const kn_attr_scan *attr, kn_tensor *a, kn_tensor *g) {
    kn_attr_scan after = turned(attr, true);
    if (attr->exclusive) return KN_CALL(recur, &after, a, g);
    return kn_add(g, KN_CALL(recur, &after, a, kn_mul(a, g)));
}

/* The product of the elements before, times what comes of g and the elements after: right for
 * zeros too. Of 16 bits in f32: neither may fit. */
kn_tensor *kn__rule_cumprod(kn__back *b, int i) {
    const kn_attr_scan *attr = kn__back_attr(b);
    kn_attr_scan before = straight(attr);
    kn_tensor *x = kn__wide(kn__saved_in(b, 0)), *left = KN_CALL(cumprod, &before, x);
    return give_product(b, i, left, scanned_back(attr, x, kn__wide(b->g)));
}

kn_tensor *kn__rule_recur(kn__back *b, int i) {
    const kn_attr_scan *attr = kn__back_attr(b);
    kn_attr_scan before = straight(attr);
    kn_tensor *a = kn__wide(kn__saved_in(b, 0)), *db = scanned_back(attr, a, kn__wide(b->g));
    if (i == 1) return narrow(b, i, db);
    return give_product(b, i, db, KN_CALL(recur, &before, a, kn__wide(kn__saved_in(b, 1))));
}

/* --- prod: the product of the others, of 16 bits in f32: those before or after may not fit --- */

static kn_tensor *others(kn_tensor *x, int axis) {
    kn_attr_scan before = {1u << axis, false, true}, after = {1u << axis, true, true};
    return kn_mul(KN_CALL(cumprod, &before, x), KN_CALL(cumprod, &after, x));
}

/* Several axes are moved to the end and joined. */
static kn_tensor *others_of_many(kn_tensor *x, uint32_t mask) {
    kn_attr_transpose to = {{0}}, back = {{0}};
    int n = 0;
    int64_t reduced = 1;
    for (int pass = 0; pass < 2; pass++) {
        for (int d = 0; d < x->n_dims; d++) {
            if ((int)(mask >> d & 1) != pass) continue;
            back.axis[d] = n;
            to.axis[n++] = d;
            if (pass) reduced *= x->dim[d];
        }
    }
    kn_tensor *moved = KN_CALL(transpose, &to, x);
    if (!moved) return NULL;
    kn_tensor *rows = kn_reshape(moved, KN_SHAPE(reduced ? x->n / reduced : 0, reduced));
    kn_tensor *y = rows ? others(rows, 1) : NULL;
    y = y ? kn_reshape(y, kn_tensor_shape(moved)) : NULL;
    return y ? KN_CALL(transpose, &back, y) : NULL;
}

kn_tensor *kn__rule_prod(kn__back *b, int i) {
    uint32_t mask = axes_of(b)->mask;
    if (mask == 0) return spread(b, i, b->g);
    kn_tensor *x = kn__wide(kn__saved_in(b, 0));
    if (!x) return NULL;
    bool one = (mask & (mask - 1)) == 0;
    kn_tensor *y = one ? others(x, __builtin_ctz(mask)) : others_of_many(x, mask);
    return give_product(b, i, y, full(b, kn__wide(b->g)));
}

/* --- elements that were picked --- */

static kn_tensor *put_back(kn__back *b, int i, kn_tensor *index) {
    kn_shape shape = kn__back_shape(b, i);
    kn_attr_along attr = {.n_dims = (uint32_t)shape.n_dims, .mask = axes_of(b)->mask};
    memcpy(attr.dim, shape.dim, sizeof attr.dim);
    return KN_GIVE(b, i, put_along, &attr, b->g, index);
}

kn_tensor *kn__rule_max_index(kn__back *b, int i) { return put_back(b, i, kn__saved_out(b, 1)); }
kn_tensor *kn__rule_sort(kn__back *b, int i) { return put_back(b, i, kn__saved_out(b, 1)); }

/* An extreme stays for several elements: their gradients add up. */
kn_tensor *kn__rule_cummax(kn__back *b, int i) {
    const kn_attr_scan *scan = kn__back_attr(b);
    kn_shape shape = kn__back_shape(b, i);
    kn_attr_index attr = {.axis = __builtin_ctz(scan->mask), .n_dims = shape.n_dims};
    memcpy(attr.dim, shape.dim, sizeof attr.dim);
    return KN_GIVE(b, i, scatter_add, &attr, KN_NONE, kn__saved_out(b, 1), b->g);
}

kn_tensor *kn__rule_take_along(kn__back *b, int i) {
    return KN_GIVE(b, i, put_along, kn__back_attr(b), b->g, kn__saved_in(b, 1));
}
kn_tensor *kn__rule_put_along(kn__back *b, int i) {
    return KN_GIVE(b, i, take_along, kn__back_attr(b), b->g, kn__saved_in(b, 1));
}
