/* Quantiles, sums without NaNs, counts, searches and sets: made of other ops, but for the search
 * and the places of extremes so far. */
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

static kn_tensor *quantile(kn_tensor *x, double q, const kn_shape *axes, bool keep_dims) {
    const kn_op op = KN_OP_sort;
    uint32_t mask;
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
    kn_tensor *y = sorted ? at_place(sorted, q * (double)(n - 1), n) : NULL;
    return y ? kn__given(kept(y, whole, mask, keep_dims)) : NULL;
}

kn_tensor *kn_quantile(kn_tensor *x, double q, kn_shape axes, bool keep_dims) {
    KN__AS("quantile", "x");
    if (!(q >= 0 && q <= 1))
        return kn_op_fail(KN_OP_sort, KN_ERR_INVALID, "q is %g; it must be in 0 … 1", q);
    return quantile(x, q, &axes, keep_dims);
}

kn_tensor *kn_median(kn_tensor *x, kn_shape axes, bool keep_dims) {
    KN__AS("median", "x");
    return quantile(x, 0.5, &axes, keep_dims);
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

kn_tensor *kn_nan_sum(kn_tensor *x, kn_shape axes, bool keep_dims) {
    KN__AS("nan_sum", "x");
    if (!kn__check_readable(KN_OP_sum, &x, 1)) return NULL;
    KN__FRAME_INSIDE();
    return kn__given(kn_sum(replaced(x, 0), axes, keep_dims));
}

kn_tensor *kn_nan_mean(kn_tensor *x, kn_shape axes, bool keep_dims) {
    KN__AS("nan_mean", "x");
    if (!kn__check_readable(KN_OP_mean, &x, 1)) return NULL;
    if (!is_float(x)) return kn_mean(x, axes, keep_dims);
    const kn_dtype dtype = dtype_of_sum(x, kn_frame_autocast());
    KN__FRAME_INSIDE(.autocast = KN_OFF);
    if (is_narrow(x)) x = kn_cast(x, KN_F32); /* a sum may not fit it */
    if (!x) return NULL;
    kn_tensor *sum = kn_sum(replaced(x, 0), axes, keep_dims);
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

/* --- counts --- */

/* Of x without negative elements. Weights are summed in f64, ones in i32 where they fit. */
static kn_tensor *counted(kn_tensor *x, int64_t n, kn_tensor *weights) {
    const kn_dtype dtype = weights ? (kn_dtype)weights->dtype : KN_I64;
    const kn_dtype wide =
        weights ? (is_float(weights) ? KN_F64 : dtype) : (x->n <= INT32_MAX ? KN_I32 : KN_I64);
    kn_tensor *flat = kn_reshape(x, KN_SHAPE(x->n)), *counts = kn__filled(x, 0, wide, KN_SHAPE(n));
    if (weights) weights = kn_cast(kn_reshape(weights, KN_SHAPE(x->n)), wide);
    if (!weights) weights = kn__filled(x, 1, wide, KN_SHAPE(x->n));
    kn_tensor *y = weights && counts ? kn_index_add(counts, flat, weights, 0) : NULL;
    return y && wide != dtype ? kn_cast(y, dtype) : y;
}

/* x, whose negative elements would count from the end. On the host they are found before; else they
 * become an index that is outside. */
static kn_tensor *not_negative(kn_tensor *x) {
    if (x->dtype == KN_U8 || x->n == 0) return x;
    if (kn__ops_self->capture || x->storage->device != kn_device_host()) {
        const double outside = x->dtype == KN_I32 ? (double)INT32_MIN : (double)INT64_MIN;
        return kn_where(kn_lt(x, constant(x, 0)), constant(x, outside), x);
    }
    kn_tensor *least = kn_min(x, KN_ALL, false);
    double value = 0;
    kn_status status = least ? kn_item(&value, least) : kn_check();
    if (status < 0) return kn_error_defer(status);
    if (value >= 0) return x;
    return kn_op_fail(KN_OP_index_add, KN_ERR_INVALID,
                      "an element of x is %lld; it must be 0 or more", (long long)value);
}

/* Whether x and the weights, which may be KN_NONE, can be counted. */
static bool can_count(kn_tensor *x, int64_t n, kn_tensor *weights) {
    KN__AS("bincount", "x", "weights");
    const kn_op op = KN_OP_logical_and; /* two inputs in messages */
    kn_op_call call;
    kn_op_call_init(&call, op, NULL, KN_LIST_(x, weights), weights == KN_NONE ? 1 : 2);
    if (!kn__check_readable(op, call.in, call.n_in)) return false;
    if (!(KN_CLASS_INDEX >> x->dtype & 1))
        return kn_op_call_fail(&call, KN_ERR_DTYPE, "x is %s; it must be i64, i32 or u8",
                               kn_dtype_name((kn_dtype)x->dtype));
    if (call.n_in == 2 && !kn__same_shape(weights, x))
        return kn_op_call_fail(&call, KN_ERR_SHAPE, "weights must have x's shape");
    if (n < 0 || (n == 0 && x->n > 0))
        return kn_op_call_fail(&call, KN_ERR_INVALID, "n is %lld", (long long)n);
    return true;
}

kn_tensor *kn_bincount(kn_tensor *x, int64_t n, kn_tensor *weights) {
    if (kn_pending() || !can_count(x, n, weights)) return NULL;
    KN__AS("bincount", "counts", "x", "weights");
    KN__FRAME_INSIDE(.autocast = KN_OFF);
    x = not_negative(x);
    return x ? kn__given(counted(x, n, weights == KN_NONE ? NULL : weights)) : NULL;
}

bool kn__infer_bin(kn_op_call *call) { return kn__like(call, 0, call->in[0]); }

/* Ranges 1 … bins; 0 and bins + 1 are for what isn't counted. */
kn_tensor *kn_histogram(kn_tensor *x, int64_t bins, double lo, double hi) {
    KN__AS("histogram", "x");
    const kn_op op = KN_OP_bin;
    if (!kn__check_readable(op, &x, 1)) return NULL;
    if (is_float(x) && x->dtype != KN_F64) { /* the ends as an element of x could have them */
        if (isfinite((float)lo)) lo = (double)(float)lo;
        if (isfinite((float)hi)) hi = (double)(float)hi;
    }
    if (bins < 1 || bins > INT32_MAX || !(lo < hi) || !isfinite(hi - lo))
        return kn_op_fail(
            op, KN_ERR_INVALID,
            "bins is %lld, lo is %g, hi is %g; bins must be 1 … 2^31 - 1, lo below hi, "
            "both and hi - lo finite",
            (long long)bins, lo, hi);
    KN__FRAME_INSIDE(.record = KN_OFF, .autocast = KN_OFF);
    if (!is_float(x)) x = kn_cast(x, KN_F64);
    if (x && x->dtype != KN_F64) x = kn_cast(x, KN_F32);
    if (!x) return NULL;
    kn_attr_make attr = {.a = lo, .b = hi, .dim = {bins}, .n_dims = 1};
    kn_tensor *bin = KN_CALL(bin, &attr, x);
    kn_tensor *counts = bin ? counted(bin, bins + 2, NULL) : NULL;
    kn_tensor *y = counts ? kn_slice(counts, KN_SHAPE(1), KN_SHAPE(bins + 1)) : NULL;
    return y ? kn_keep(y) : NULL;
}

/* --- searches and sets --- */

bool kn__infer_search_sorted(kn_op_call *call) {
    const kn_tensor *sorted = call->in[0], *values = call->in[1];
    int n = sorted->n_dims;
    bool fits = n == 1 || (n > 1 && values->n_dims == n);
    for (int i = 0; fits && i < n - 1; i++) fits = sorted->dim[i] == values->dim[i];
    if (!fits)
        return kn_op_call_fail(call, KN_ERR_SHAPE,
                               "sorted must be [N], or have values' leading dimensions");
    return kn__like(call, 0, values);
}

kn_tensor *kn_search_sorted(kn_tensor *sorted, kn_tensor *values, bool right) {
    kn_attr_scalars attr = {right, 0};
    return KN_CALL(search_sorted, &attr, sorted, values);
}

kn_tensor *kn_is_in(kn_tensor *x, kn_tensor *values) {
    KN__AS("is_in", "x", "values");
    kn_op_call call;
    kn_op_call_init(&call, KN_OP_eq, NULL, KN_LIST_(x, values), 2);
    if (!kn__check_inputs(&call)) return NULL;
    int64_t n = values->n;
    if (n == 0) return kn__filled(x, 0, KN_BOOL, kn_tensor_shape(x));
    KN__FRAME_INSIDE(.autocast = KN_OFF);
    kn_tensor *sorted = kn_sort(kn_reshape(values, KN_SHAPE(n)), 0, false);
    kn_tensor *places = sorted ? kn_search_sorted(sorted, x, false) : NULL;
    kn_tensor *inside = places ? kn_clamp(places, 0, (double)(n - 1)) : NULL;
    return inside ? kn__given(kn_eq(kn_index_select(sorted, inside, 0), x)) : NULL;
}

/* Whether each of n sorted elements differs from the one before; the first does. */
static kn_tensor *begins(kn_tensor *sorted, int64_t n) {
    kn_tensor *first = kn__filled(sorted, 1, KN_BOOL, KN_SHAPE(1));
    kn_tensor *before = kn_slice(sorted, KN_SHAPE(0), KN_SHAPE(n - 1));
    kn_tensor *differ = kn_ne(kn_slice(sorted, KN_SHAPE(1), KN_SHAPE(n)), before);
    if (differ && is_float(sorted)) differ = kn_logical_and(differ, kn_eq(before, before));
    return first && differ ? kn_concat(KN_LIST_(first, differ), 2, 0) : NULL;
}

/* The lengths of runs that begin at `starts` in n elements. */
static kn_tensor *lengths(kn_tensor *starts, int64_t n) {
    kn_tensor *end = kn__filled(starts, (double)n, KN_I64, KN_SHAPE(1));
    kn_tensor *later = kn_slice(starts, KN_SHAPE(1), KN_SHAPE(starts->dim[0]));
    return end && later ? kn_sub(kn_concat(KN_LIST_(later, end), 2, 0), starts) : NULL;
}

/* For each element the number of its run, less one. */
static kn_tensor *inverse_of(kn_tensor *begin, kn_tensor *order, const kn_tensor *x) {
    kn_tensor *number = kn_sub(kn_cumsum(begin, 0), kn__filled(x, 1, KN_I64, KN_SCALAR));
    kn_tensor *zeros = kn__filled(x, 0, KN_I64, KN_SHAPE(x->n));
    kn_tensor *y = number && zeros ? kn_scatter(zeros, order, number, 0) : NULL;
    return y ? kn_reshape(y, kn_tensor_shape(x)) : NULL;
}

/* The results that are wanted of x with elements, by sorting them. */
static kn_status unique_of(kn_tensor *out[3], const bool want[3], kn_tensor *x) {
    int64_t n = x->n;
    kn_tensor *sorted = NULL, *order = NULL;
    kn_tensor *flat = kn_reshape(x, KN_SHAPE(n));
    KN_TRY(kn_sort_index(&sorted, want[1] ? &order : NULL, flat, 0, false));
    kn_tensor *begin = begins(sorted, n), *starts = begin ? kn_nonzero(begin) : NULL;
    if (starts) starts = kn_reshape(starts, KN_SHAPE(starts->dim[0]));
    if (!starts) return kn_check();
    if (want[0]) out[0] = kn_index_select(sorted, starts, 0);
    if (want[1]) out[1] = inverse_of(begin, order, x);
    if (want[2]) out[2] = lengths(starts, n);
    return kn_check();
}

/* Whether x has integers that lie in a range no longer than x, such as labels. */
static bool are_near(double *least, double *most, kn_tensor *x) {
    if (is_float(x) || x->dtype == KN_BOOL || kn__ops_self->capture) return false;
    const double far = 0x1p52; /* doubles count in ones up to there */
    kn_tensor *low = kn_min(x, KN_ALL, false), *high = kn_max(x, KN_ALL, false);
    if (!low || !high || kn_item(least, low) < 0 || kn_item(most, high) < 0) return false;
    return *least > -far && *most < far && *most - *least < (double)x->n;
}

/* Their results, by counting each number of the range. */
static kn_status unique_near(kn_tensor *out[3], const bool want[3], kn_tensor *x, double least,
                             double most) {
    kn_tensor *first = kn__filled(x, least, KN_I64, KN_SCALAR);
    kn_tensor *places = kn_sub(kn_cast(x, KN_I64), first);
    kn_tensor *counts = places ? counted(places, (int64_t)(most - least) + 1, NULL) : NULL;
    kn_tensor *there = counts ? kn_nonzero(counts) : NULL;
    if (there) there = kn_reshape(there, KN_SHAPE(there->dim[0]));
    if (!there) return kn_check();
    if (want[0]) out[0] = kn_cast(kn_add(there, first), (kn_dtype)x->dtype);
    if (want[1]) {
        kn_tensor *one = kn__filled(x, 1, KN_I64, KN_SCALAR);
        kn_tensor *numbers = kn_sub(kn_cumsum(kn_ne(counts, kn__constant_like(counts, 0)), 0), one);
        out[1] = numbers ? kn_index_select(numbers, places, 0) : NULL;
    }
    if (want[2]) out[2] = kn_index_select(counts, there, 0);
    return kn_check();
}

static kn_status unique_in_frame(kn_tensor *out[3], const bool want[3], kn_tensor *x) {
    if (!kn__has_frame()) return kn_check();
    KN_FRAME(.autocast = KN_OFF);
    double least = 0, most = 0;
    bool near = are_near(&least, &most, x);
    KN_TRY(kn_check());
    KN_TRY(near ? unique_near(out, want, x, least, most) : unique_of(out, want, x));
    for (int r = 0; r < 3; r++)
        if (out[r]) kn__given(out[r]);
    return kn_check();
}

kn_status kn_unique(kn_tensor **values, kn_tensor **inverse, kn_tensor **counts, kn_tensor *x) {
    KN__AS("unique", "x");
    kn_tensor **const to[] = {values, inverse, counts};
    kn_tensor *out[3] = {NULL, NULL, NULL};
    const bool want[] = {values, inverse, counts};
    for (int r = 0; r < 3; r++)
        if (to[r]) *to[r] = NULL;
    KN_TRY(kn_check());
    if (!values && !inverse && !counts)
        return KN_FAIL(KN_ERR_INVALID, "kn_unique: every result is NULL");
    if (!kn__check_readable(KN_OP_sort, &x, 1)) return kn_check();
    if (x->n > 0) {
        KN_TRY(unique_in_frame(out, want, x));
    } else {
        if (want[0]) out[0] = kn__filled(x, 0, (kn_dtype)x->dtype, KN_SHAPE(0));
        if (want[1]) out[1] = kn__filled(x, 0, KN_I64, kn_tensor_shape(x));
        if (want[2]) out[2] = kn__filled(x, 0, KN_I64, KN_SHAPE(0));
        KN_TRY(kn_check());
    }
    for (int r = 0; r < 3; r++)
        if (to[r]) *to[r] = out[r];
    return KN_OK;
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
    if (n < 0) return kn_op_fail(KN_OP_sub, KN_ERR_INVALID, "n is %lld", (long long)n);
    if (n == 0) return kn__op_copy(x);
    for (int64_t i = 0; x && i < n && (i == 0 || x->dim[axis] > 0); i++) {
        kn_tensor *before = x;
        x = difference(before, axis);
        if (i > 0) kn_drop(before);
    }
    return x;
}
