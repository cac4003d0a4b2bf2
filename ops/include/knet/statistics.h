/* Statistics, scans, sorts, searches and sets. Part of ops.h, whose rules hold.
 *
 *     kn_tensor *middle = kn_median(x, KN_SHAPE(0), false);    // x [N,C] → [C]
 */
#ifndef KNET_STATISTICS_H
#define KNET_STATISTICS_H

#include <knet/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/* --- over axes, as kn_sum (KN_ALL: all; KN_SCALAR: none): any dtype --- */
/* The number below which the share q, in 0 … 1, of the elements lies: of n in order that of place
 * q·(n - 1), between two neighbours on the line through them. NumPy's and PyTorch's default.
 * Integers and bools in KN_F64. A NaN among the elements makes NaN; of no elements: a SHAPE error.
 */
KN_API kn_tensor *kn_quantile(kn_tensor *x, double q, kn_shape axes, bool keep_dims);
/* kn_quantile at q = 1/2: of an even number the mean of the middle two, as NumPy's; PyTorch's is
 * the lower one. */
KN_API kn_tensor *kn_median(kn_tensor *x, kn_shape axes, bool keep_dims);
/* The sum of the elements that are not NaN; 0 where all are NaN. */
KN_API kn_tensor *kn_nan_sum(kn_tensor *x, kn_shape axes, bool keep_dims);
/* kn_nan_mean: kn_mean of the elements that are not NaN; kn_nan_max: kn_max of the elements that
 * are not NaN; kn_nan_min: kn_min of the elements that are not NaN; kn_nan_quantile: kn_quantile of
 * the elements that are not NaN; kn_nan_median: kn_median of the elements that are not NaN. Where
 * all are NaN: NaN. */
KN_API kn_tensor *kn_nan_mean(kn_tensor *x, kn_shape axes, bool keep_dims);
KN_API kn_tensor *kn_nan_max(kn_tensor *x, kn_shape axes, bool keep_dims);
KN_API kn_tensor *kn_nan_min(kn_tensor *x, kn_shape axes, bool keep_dims);
KN_API kn_tensor *kn_nan_quantile(kn_tensor *x, double q, kn_shape axes, bool keep_dims);
KN_API kn_tensor *kn_nan_median(kn_tensor *x, kn_shape axes, bool keep_dims);
/* kn_nan_var: kn_var of the elements that are not NaN; kn_nan_std: kn_std of the elements that are
 * not NaN. Of floats; population: divided by n, as NumPy does; else by n - 1. */
KN_API kn_tensor *kn_nan_var(kn_tensor *x, kn_shape axes, bool keep_dims, bool population);
KN_API kn_tensor *kn_nan_std(kn_tensor *x, kn_shape axes, bool keep_dims, bool population);
/* kn_cov: x [V,N], a row for each of V variables → [V,V], the covariances, divided by N - 1;
 * kn_corrcoef: Pearson's correlations of x [V,N], in -1 … 1. x [N] → 0-dim. Of floats. */
KN_API kn_tensor *kn_cov(kn_tensor *x);
KN_API kn_tensor *kn_corrcoef(kn_tensor *x);

/* --- along one axis: any dtype --- */
/* kn_cumsum: the sum of the elements up to each one; kn_cumprod: the product of the elements up to
 * each one. With kn_sum's dtypes. */
KN_API kn_tensor *kn_cumsum(kn_tensor *x, int axis);
KN_API kn_tensor *kn_cumprod(kn_tensor *x, int axis);
/* kn_cummax: the largest element up to each one; kn_cummin: the smallest element up to each one;
 * kn_cummax_index: kn_cummax and the index of the largest element, KN_I64; kn_cummin_index:
 * kn_cummin and the index of the smallest element, KN_I64. In x's dtype. The index is, of equals,
 * the last one's, as PyTorch's; a NaN stays. */
KN_API kn_tensor *kn_cummax(kn_tensor *x, int axis);
KN_API kn_tensor *kn_cummin(kn_tensor *x, int axis);
KN_API KN_MUST_CHECK kn_status kn_cummax_index(kn_tensor **values, kn_tensor **indices,
                                               kn_tensor *x, int axis);
KN_API KN_MUST_CHECK kn_status kn_cummin_index(kn_tensor **values, kn_tensor **indices,
                                               kn_tensor *x, int axis);
/* ln Σ e^x of the elements up to each one, of floats. */
KN_API kn_tensor *kn_logcumsumexp(kn_tensor *x, int axis);
/* Differences of neighbours, n times one after the other; of bools, whether they differ. */
KN_API kn_tensor *kn_diff(kn_tensor *x, int64_t n, int axis);
/* kn_sort: the elements in order; kn_argsort: the indices of the elements in order, KN_I64;
 * kn_sort_index: the elements in order, and their indices. Equal elements keep their order; a NaN
 * counts as larger than all others. */
KN_API kn_tensor *kn_sort(kn_tensor *x, int axis, bool descending);
KN_API kn_tensor *kn_argsort(kn_tensor *x, int axis, bool descending);
KN_API KN_MUST_CHECK kn_status kn_sort_index(kn_tensor **values, kn_tensor **indices, kn_tensor *x,
                                             int axis, bool descending);
/* The k largest or smallest elements in order, the best first, and their indices. Of equal elements
 * those that come first are taken. */
KN_API KN_MUST_CHECK kn_status kn_topk(kn_tensor **values, kn_tensor **indices, kn_tensor *x,
                                       int64_t k, int axis, bool smallest);

/* --- counts: KN_I64, no gradient --- */
/* x, i64, i32 or u8 → [n]: how often each of 0 … n - 1 occurs; with weights (of x's shape; else
 * KN_NONE) their sums, in their dtype, with gradient. An element outside is an INVALID error on the
 * host; on CUDA it is not counted. */
KN_API kn_tensor *kn_bincount(kn_tensor *x, int64_t n, kn_tensor *weights);
/* The elements in each of `bins` ranges of equal width from lo to hi, which belongs to the last
 * one. The ends of the ranges are those of kn_linspace(lo, hi, bins + 1) in f64; of x in f32 or 16
 * bits lo and hi are rounded to f32 before. Others, and NaNs, are not counted. */
KN_API kn_tensor *kn_histogram(kn_tensor *x, int64_t bins, double lo, double hi);

/* --- searches and sets: any dtype, no gradient unless said --- */
/* sorted [...,N] ascending, values [...,M] with the same leading dimensions, or of any shape if
 * sorted is [N] → KN_I64 like values: where each would be inserted, before equal elements, or after
 * them (right). A NaN counts as larger than all others. */
KN_API kn_tensor *kn_search_sorted(kn_tensor *sorted, kn_tensor *values, bool right);
/* places [N] ascending, values [N] → like x: values[i] where x is places[i], on the line between
 * neighbours elsewhere; the first value before the first place, the last after the last. NumPy's
 * interp. With the gradients of all three; NaN where x is. */
KN_API kn_tensor *kn_interp(kn_tensor *x, kn_tensor *places, kn_tensor *values);
/* Whether each element of x is among the values: KN_BOOL like x. NaN is not. */
KN_API kn_tensor *kn_is_in(kn_tensor *x, kn_tensor *values);
/* The different elements of x in ascending order [U]; for each element of x its place among them,
 * like x; how often each occurs [U]; KN_I64. Any of the three may be NULL, if it is not wanted. All
 * NaNs count as equal. values have a gradient: it goes to the first of the equal elements. Waits
 * for the device, as kn_nonzero does. On failure all are NULL. */
KN_API KN_MUST_CHECK kn_status kn_unique(kn_tensor **values, kn_tensor **inverse,
                                         kn_tensor **counts, kn_tensor *x);

#include <knet/sites/statistics.h>

#ifdef __cplusplus
}
#endif
#endif
