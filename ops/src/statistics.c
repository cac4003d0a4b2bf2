/* Quantiles, statistics without NaNs, covariances, and what runs along one axis: made of other ops.
 */
#include <math.h>
#include <string.h>

#include "run.h"

static kn_tensor *constant(const kn_tensor *x, double value) { return kn__constant_like(x, value); }
static bool is_float(const kn_tensor *x) { return KN_CLASS_FLOAT >> x->dtype & 1; }

static bool is_narrow(const kn_tensor *x) { return x->dtype == KN_F16 || x->dtype == KN_BF16; }
/* The dtype of a result whose sums were f32: x's; f32 for 16 bits in frames with .autocast. */
static kn_dtype dtype_of_sum(const kn_tensor *x, kn_dtype autocast) {
    return is_narrow(x) && autocast ? KN_F32 : (kn_dtype)x->dtype;
}

/* --- quantiles --- */

/* x [kept…, n]: the axes of the mask as one, the last. */
static kn_tensor *lines_of(kn_tensor *x, uint32_t mask, int64_t n) {
    kn_shape axes = {.n_dims = x->n_dims}, shape = {.n_dims = 1};
    int at = 0;
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < x->n_dims; i++)
            if ((int)(mask >> i & 1) == pass) axes.dim[at++] = i;
    shape.n_dims = x->n_dims - __builtin_popcount(mask) + 1;
    for (int i = 0; i < shape.n_dims - 1; i++) shape.dim[i] = x->dim[axes.dim[i]];
    shape.dim[shape.n_dims - 1] = n;
    bool in_order = true;
    for (int i = 0; i < x->n_dims; i++) in_order = in_order && axes.dim[i] == i;
    return kn_reshape(in_order ? x : kn_transpose(x, axes), shape);
}

/* y with the axes of the mask kept as dimensions of 1, if that is wished. */
static kn_tensor *kept(kn_tensor *y, const kn_tensor *x, uint32_t mask, bool keep_dims) {
    if (!keep_dims || !mask) return y;
    kn_shape shape = kn_tensor_shape(x);
    for (int i = 0; i < x->n_dims; i++)
        if (mask >> i & 1) shape.dim[i] = 1;
    return kn_reshape(y, shape);
}

/* The number at `place` of n sorted ones; the last one, if it is NaN, which counts as largest. */
static kn_tensor *at_place(kn_tensor *sorted, double place, int64_t n) {
    int64_t low = (int64_t)place;
    double share = place - (double)low;
    kn_tensor *y = kn_select(sorted, low, -1);
    if (share > 0) { /* shares of each, whose difference may be infinite */
        kn_tensor *next = kn_select(sorted, low + 1, -1);
        kn_tensor *between = kn_axpby(y, next, 1 - share, share);
        y = kn_where(kn_eq(y, next), y, between);
    }
    kn_tensor *last = kn_select(sorted, n - 1, -1);
    return kn_where(kn_isnan(last), last, y);
}

/* Of each line its own place, among the numbers before the NaNs; of no number NaN. */
static kn_tensor *at_own_place(kn_tensor *sorted, double q) {
    const kn_dtype dtype = (kn_dtype)sorted->dtype, wide = is_narrow(sorted) ? KN_F32 : dtype;
    const double last = (double)sorted->dim[sorted->n_dims - 1] - 1;
    kn_tensor *n = kn_cast(kn_sum(kn_eq(sorted, sorted), KN_SHAPE(-1), true), KN_F64);
    kn_tensor *place = kn_affine(kn_clamp(kn_affine(n, 1, -1), 0, INFINITY), q, 0);
    kn_tensor *low = kn_floor(place), *share = kn_sub(place, low);
    if (!share) return NULL;
    kn_tensor *high = kn_clamp(kn_affine(low, 1, 1), 0, last);
    kn_tensor *y = kn_gather(sorted, kn_cast(low, KN_I64), -1);
    kn_tensor *next = kn_gather(sorted, kn_cast(high, KN_I64), -1);
    kn_tensor *rest = kn_cast(kn_affine(share, -1, 1), wide);
    kn_tensor *is_at = kn_logical_or(kn_eq(share, constant(share, 0)), kn_eq(y, next));
    if (wide != dtype) y = kn_cast(y, wide), next = kn_cast(next, wide);
    kn_tensor *between = kn_add(kn_mul(y, rest), kn_mul(next, kn_cast(share, wide)));
    y = kn_squeeze(kn_where(is_at, y, between), KN_SHAPE(-1));
    return y && wide != dtype ? kn_cast(y, dtype) : y;
}

static kn_tensor *quantile(kn_tensor *x, double q, const kn_shape *axes, bool keep_dims,
                           bool skip_nan) {
    const kn_op op = KN_OP_sort;
    uint32_t mask;
    if (!(q >= 0 && q <= 1)) return kn__fail_invalid(op, x, "q is %g; it must be in 0 … 1", q);
    if (!kn__axes_of(&mask, op, x, axes)) return NULL;
    int64_t n = 1;
    for (int i = 0; i < x->n_dims; i++)
        if (mask >> i & 1) n *= x->dim[i];
    if (n == 0) return kn__fail_shapes(op, x, "there are no elements over the axes");
    KN__FRAME_INSIDE(.autocast = KN_OFF); /* sums and products in full */
    const kn_tensor *whole = x;
    if (!is_float(x)) x = kn_cast(x, KN_F64);
    if (!mask) return x ? kn__given(kn__op_copy(x)) : NULL;
    kn_tensor *lines = x ? lines_of(x, mask, n) : NULL;
    kn_tensor *sorted = lines ? kn_sort(lines, -1, false) : NULL;
    kn_tensor *y = NULL;
    if (sorted) y = skip_nan ? at_own_place(sorted, q) : at_place(sorted, q * (double)(n - 1), n);
    return y ? kn__given(kept(y, whole, mask, keep_dims)) : NULL;
}

kn_tensor *kn_quantile(kn_tensor *x, double q, kn_shape axes, bool keep_dims) {
    KN__AS("quantile", "x");
    return quantile(x, q, &axes, keep_dims, false);
}

kn_tensor *kn_median(kn_tensor *x, kn_shape axes, bool keep_dims) {
    KN__AS("median", "x");
    return quantile(x, 0.5, &axes, keep_dims, false);
}

kn_tensor *kn_nan_quantile(kn_tensor *x, double q, kn_shape axes, bool keep_dims) {
    KN__AS("nan_quantile", "x");
    return quantile(x, q, &axes, keep_dims, true);
}

kn_tensor *kn_nan_median(kn_tensor *x, kn_shape axes, bool keep_dims) {
    KN__AS("nan_median", "x");
    return quantile(x, 0.5, &axes, keep_dims, true);
}

/* --- without NaNs --- */

/* Pending, for the reduction that reads it. */
static kn_tensor *replaced(kn_tensor *x, double value) {
    if (!is_float(x)) return x;
    bool fuse = kn__fuse_begin();
    kn_tensor *y = kn_replace_nan(x, value);
    kn__fuse_end(fuse);
    return y;
}

kn_tensor *kn_nan_mean(kn_tensor *x, kn_shape axes, bool keep_dims) {
    KN__AS("nan_mean", "x");
    if (!kn__check_readable(KN_OP_mean, &x, 1)) return NULL;
    if (!is_float(x)) return kn_mean(x, axes, keep_dims);
    const kn_dtype dtype = dtype_of_sum(x, kn_frame_autocast());
    KN__FRAME_INSIDE(.autocast = KN_OFF);
    if (is_narrow(x)) x = kn_cast(x, KN_F32); /* a sum may not fit it */
    if (!x) return NULL;
    kn_tensor *sum = kn_nan_sum(x, axes, keep_dims);
    kn_tensor *there = kn_sum(kn_eq(x, x), axes, keep_dims);
    kn_tensor *y = there ? kn_div(sum, kn_cast(there, (kn_dtype)x->dtype)) : NULL;
    return kn__given(y && y->dtype != dtype ? kn_cast(y, dtype) : y);
}

/* Of lines without numbers NaN, not the infinity in the place of each NaN. */
static kn_tensor *extreme(kn_tensor *x, const kn_shape *axes, bool keep_dims, bool max) {
    if (!kn__check_readable(max ? KN_OP_max : KN_OP_min, &x, 1)) return NULL;
    KN__FRAME_INSIDE(.autocast = KN_OFF);
    kn_tensor *other = replaced(x, max ? -INFINITY : INFINITY);
    kn_tensor *y = max ? kn_max(other, *axes, keep_dims) : kn_min(other, *axes, keep_dims);
    if (!y || !is_float(x)) return kn__given(y);
    return kn__given(kn_where(kn_all(kn_isnan(x), *axes, keep_dims), constant(x, NAN), y));
}

kn_tensor *kn_nan_max(kn_tensor *x, kn_shape axes, bool keep_dims) {
    KN__AS("nan_max", "x");
    return extreme(x, &axes, keep_dims, true);
}
kn_tensor *kn_nan_min(kn_tensor *x, kn_shape axes, bool keep_dims) {
    KN__AS("nan_min", "x");
    return extreme(x, &axes, keep_dims, false);
}

/* Σ (x - mean)² over the numbers; a difference that is NaN because both are infinite counts. */
static kn_tensor *nan_var(kn_tensor *x, const kn_shape *axes, bool keep_dims, bool population) {
    kn_tensor *is_nan = kn_isnan(x), *none = constant(x, 0);
    kn_tensor *centred = kn_sub(x, kn_nan_mean(x, *axes, true));
    kn_tensor *sum = kn_sum(kn_square(kn_where(is_nan, none, centred)), *axes, keep_dims);
    kn_tensor *n = kn_sum(kn_eq(x, x), *axes, keep_dims);
    if (!sum || !n) return NULL;
    n = kn_affine(kn_cast(n, (kn_dtype)x->dtype), 1, population ? 0 : -1);
    return n ? kn_div(sum, kn_where(kn_gt(n, constant(n, 0)), n, constant(n, NAN))) : NULL;
}

/* The root of it, of std. */
static kn_tensor *nan_spread(kn_tensor *x, const kn_shape *axes, bool keep_dims, bool population,
                             bool root) {
    const kn_op op = KN_OP_var;
    kn_op_call call;
    kn_op_call_init(&call, op, NULL, KN_LIST_(x, &kn__none), 2);
    if (!kn__check_inputs(&call)) return NULL;
    const kn_dtype dtype = dtype_of_sum(x, kn_frame_autocast());
    KN__FRAME_INSIDE(.autocast = KN_OFF);
    if (is_narrow(x)) x = kn_cast(x, KN_F32);
    kn_tensor *y = x ? nan_var(x, axes, keep_dims, population) : NULL;
    if (root && y) { /* its slope at 0 counts as 0 */
        kn_tensor *above = kn_gt(y, constant(y, 0));
        y = kn_where(above, kn_sqrt(kn_where(above, y, constant(y, 1))), y);
    }
    return kn__given(y && y->dtype != dtype ? kn_cast(y, dtype) : y);
}

kn_tensor *kn_nan_var(kn_tensor *x, kn_shape axes, bool keep_dims, bool population) {
    KN__AS("nan_var", "x");
    return nan_spread(x, &axes, keep_dims, population, false);
}
kn_tensor *kn_nan_std(kn_tensor *x, kn_shape axes, bool keep_dims, bool population) {
    KN__AS("nan_std", "x");
    return nan_spread(x, &axes, keep_dims, population, true);
}

/* --- covariances --- */

/* x [V,N] in f32 at least; NULL: an error is pending. */
static kn_tensor *rows_of(kn_tensor *x) {
    const kn_op op = KN_OP_logsumexp; /* one input of floats */
    kn_op_call call;
    kn_op_call_init(&call, op, NULL, &x, 1);
    if (!kn__check_inputs(&call)) return NULL;
    if (x->n_dims < 1 || x->n_dims > 2) return kn__fail_shapes(op, x, "x must be [V,N] or [N]");
    if (x->n_dims == 1) x = kn_unsqueeze(x, 0);
    return x && is_narrow(x) ? kn_cast(x, KN_F32) : x;
}

static kn_tensor *covariances(kn_tensor *rows) {
    kn_tensor *centred = kn_sub(rows, kn_mean(rows, KN_SHAPE(1), true));
    const kn_matmul_options by_itself = {.trans_b = 1};
    kn_tensor *products = kn_matmul(centred, centred, &by_itself);
    double n = rows->dim[1] > 1 ? (double)(rows->dim[1] - 1) : 0;
    return products ? kn_div(products, constant(products, n)) : NULL;
}

/* 0-dimensional if x [N] is. */
static kn_tensor *squared(kn_tensor *y, const kn_tensor *x, kn_dtype dtype) {
    if (y && y->dtype != dtype) y = kn_cast(y, dtype);
    return y && x->n_dims == 1 ? kn_reshape(y, KN_SCALAR) : y;
}

kn_tensor *kn_cov(kn_tensor *x) {
    KN__AS("cov", "x");
    const kn_dtype autocast = kn_frame_autocast();
    KN__FRAME_INSIDE(.autocast = KN_OFF);
    kn_tensor *rows = rows_of(x);
    return rows ? kn__given(squared(covariances(rows), x, dtype_of_sum(x, autocast))) : NULL;
}

kn_tensor *kn_corrcoef(kn_tensor *x) {
    KN__AS("corrcoef", "x");
    const kn_dtype autocast = kn_frame_autocast();
    KN__FRAME_INSIDE(.autocast = KN_OFF);
    kn_tensor *rows = rows_of(x), *y = rows ? covariances(rows) : NULL;
    kn_tensor *deviation = y ? kn_sqrt(kn_diagonal(y, 0, 0, 1)) : NULL;
    if (!deviation) return NULL;
    kn_tensor *by_rows = kn_div(y, kn_unsqueeze(deviation, 1));
    y = kn_clamp(kn_div(by_rows, deviation), -1, 1);
    return kn__given(squared(y, x, dtype_of_sum(x, autocast)));
}

/* --- along one axis --- */

/* The largest element so far, a constant: the sum does not depend on it. */
static kn_tensor *largest_so_far(kn_tensor *x, int axis) {
    KN_FRAME(.record = KN_OFF);
    double most = kn__largest((kn_dtype)x->dtype);
    return kn__given(kn_clamp(kn_cummax(x, axis), -most, most));
}

/* With m no exponential overflows: s = Σ e^(x - m) follows from the sum before by
 * s[i] = e^(x[i] - m[i]) + e^(m[i - 1] - m[i])·s[i - 1]. */
static kn_tensor *logcumsumexp(kn_tensor *x, int axis) {
    kn_tensor *m = largest_so_far(x, axis);
    if (!m) return NULL;
    kn_shape start = {.n_dims = m->n_dims}, end = kn_tensor_shape(m);
    end.dim[axis] = 1;
    kn_tensor *first = kn_slice(m, start, end); /* beside a sum of 0 it counts for nothing */
    end.dim[axis] = m->dim[axis] - 1;
    kn_tensor *before = kn_concat(KN_LIST_(first, kn_slice(m, start, end)), 2, axis);
    kn_tensor *fades = kn_exp(kn_sub(before, m)), *terms = kn_exp(kn_sub(x, m));
    kn_attr_scan attr = {.mask = 1u << axis};
    kn_tensor *sums = fades && terms ? KN_CALL(recur, &attr, fades, terms) : NULL;
    return kn_add(kn_log(sums), m);
}

kn_tensor *kn_logcumsumexp(kn_tensor *x, int axis) {
    KN__AS("logcumsumexp", "x");
    const kn_op op = KN_OP_logsumexp;
    kn_op_call call;
    kn_op_call_init(&call, op, NULL, &x, 1);
    if (!kn__check_inputs(&call) || !kn__axis_of(&axis, op, x)) return NULL;
    if (x->n == 0) return kn__op_copy(x);
    const kn_dtype dtype = dtype_of_sum(x, kn_frame_autocast());
    KN__FRAME_INSIDE(.autocast = KN_OFF);
    if (is_narrow(x)) x = kn_cast(x, KN_F32);
    kn_tensor *y = x ? logcumsumexp(x, axis) : NULL;
    return kn__given(y && y->dtype != dtype ? kn_cast(y, dtype) : y);
}

/* The slices are read where they lie. */
static kn_tensor *difference(kn_tensor *x, int axis) {
    KN__FRAME_INSIDE();
    bool fuse = kn__fuse_begin();
    kn_shape start = {.n_dims = x->n_dims}, stop = kn_tensor_shape(x);
    stop.dim[axis] = stop.dim[axis] > 0 ? stop.dim[axis] - 1 : 0;
    kn_tensor *before = kn_slice(x, start, stop);
    start.dim[axis] = x->dim[axis] > 0 ? 1 : 0;
    kn_tensor *after = kn_slice(x, start, kn_tensor_shape(x));
    kn_tensor *y = x->dtype == KN_BOOL ? kn_ne(after, before) : kn_sub(after, before);
    kn__fuse_end(fuse);
    kn_status status = y && !fuse ? kn_tensor_compute(y) : KN_OK;
    if (status == KN_OK) return kn__given(y);
    kn_error_op("diff");
    return kn_error_defer(status);
}

kn_tensor *kn_diff(kn_tensor *x, int64_t n, int axis) {
    KN__AS("diff", "x");
    if (!kn__axis_of(&axis, KN_OP_sub, x)) return NULL;
    if (n < 0)
        return kn__fail_invalid(KN_OP_sub, x, "n is %lld; it must be at least 0", (long long)n);
    if (n == 0) return kn__op_copy(x);
    for (int64_t i = 0; x && i < n && (i == 0 || x->dim[axis] > 0); i++) {
        kn_tensor *before = x;
        x = difference(before, axis);
        if (i > 0) kn_drop(before);
    }
    return x;
}
