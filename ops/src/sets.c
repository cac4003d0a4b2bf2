/* Counts, histograms, searches in sorted lines and sets: made of other ops, but for the search. */
#include <math.h>
#include <string.h>

#include "run.h"

static bool is_float(const kn_tensor *x) { return KN_CLASS_FLOAT >> x->dtype & 1; }

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
        return kn_where(kn_lt(x, kn__constant_like(x, 0)), kn__constant_like(x, outside), x);
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
        return kn__fail_invalid(
            op, x,
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

/* (x - from)/(to - from), by halves, whose differences do not overflow; 1 where from is -infinity.
 */
static kn_tensor *share_of(kn_tensor *x, kn_tensor *from, kn_tensor *to, kn_tensor *inside) {
    kn_tensor *width = kn_axpby(to, from, 0.5, -0.5), *done = kn_axpby(x, from, 0.5, -0.5);
    kn_tensor *one = kn__constant_like(x, 1);
    done = kn_where(inside, done, one);
    return kn_replace_nan(kn_div(done, kn_where(inside, width, one)), 1);
}

/* Between the neighbours of x, which are one and the same before the first place and from the last
 * one on. */
static kn_tensor *interpolated(kn_tensor *x, kn_tensor *places, kn_tensor *values) {
    const double last = (double)places->dim[0] - 1;
    kn_tensor *above = kn_search_sorted(places, x, true);
    kn_tensor *one = above ? kn__filled(x, 1, KN_I64, KN_SCALAR) : NULL;
    kn_tensor *low = kn_clamp(kn_sub(above, one), 0, last), *high = kn_clamp(above, 0, last);
    kn_tensor *from = kn_index_select(places, low, 0), *to = kn_index_select(places, high, 0);
    kn_tensor *at_low = kn_index_select(values, low, 0);
    kn_tensor *inside = kn_logical_and(kn_gt(to, from), kn_gt(x, from));
    kn_tensor *share = inside ? share_of(x, from, to, inside) : NULL;
    kn_tensor *at_high = kn_index_select(values, high, 0);
    kn_tensor *y = kn_add(kn_mul(at_low, kn_affine(share, -1, 1)), kn_mul(at_high, share));
    return kn_where(kn_isnan(x), x, kn_where(inside, y, at_low));
}

kn_tensor *kn_interp(kn_tensor *x, kn_tensor *places, kn_tensor *values) {
    KN__AS("interp", "x", "places", "values");
    kn_op_call call;
    kn_op_call_init(&call, KN_OP_lerp, NULL, KN_LIST_(x, places, values), 3);
    if (!kn__check_inputs(&call)) return NULL;
    if (places->n_dims != 1 || places->dim[0] < 1 || values->n_dims != 1 ||
        values->dim[0] != places->dim[0]) {
        kn_op_call_fail(&call, KN_ERR_SHAPE, "places and values must be [N], with N at least 1");
        return NULL;
    }
    const kn_dtype dtype = (kn_dtype)x->dtype;
    KN__FRAME_INSIDE(.autocast = KN_OFF);
    if (!kn__is_half(dtype)) return kn__given(interpolated(x, places, values));
    kn_tensor *wide = kn_cast(places, KN_F32), *wide_values = kn_cast(values, KN_F32);
    kn_tensor *y = wide && wide_values ? interpolated(kn_cast(x, KN_F32), wide, wide_values) : NULL;
    return kn__given(y ? kn_cast(y, dtype) : NULL);
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
    if (!low || !high) return false;
    if (kn_item(least, low) < 0 || kn_item(most, high) < 0)
        return kn_error_defer(kn_last_error()->status), false;
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
