/* Reductions. */
#include "cases.h"

static kn_tensor *topk(kn_tensor *x, int64_t k) {
    kn_tensor *values, *indices;
    return kn_topk(&values, &indices, x, k, -1, false) < 0 ? NULL : values;
}
static kn_tensor *sort(kn_tensor *x) {
    kn_tensor *values, *indices;
    return kn_sort_index(&values, &indices, x, -1, false) < 0 ? NULL : values;
}

static kn_tensor *places(kn_tensor *x) {
    kn_tensor *values, *indices;
    return kn_cummax_index(&values, &indices, x, 1) < 0 ? NULL : values;
}
static kn_tensor *unique(kn_tensor *x) {
    kn_tensor *values, *inverse;
    return kn_unique(&values, &inverse, NULL, x) < 0 ? NULL : values;
}

static kn_tensor *line;
static kn_status make_line(void) { return kn_hold(&line, kn_linspace(-3, 3, 10000)); }
static void drop_line(void) { kn_unhold(&line); }

/* clang-format off */
CASE(ops20, logsumexp,   kn_logsumexp(x[0], KN_SHAPE(0), false), .in = {N(1000, 32)}, .both = true)
CASE(ops20, sum,         kn_sum(x[0], KN_ALL, false),         .in = {N(32, 1000)}, .both = true)

CASE(arrays, sum_all,    kn_sum(x[0], KN_ALL, false),         .in = {N(1000, 1000)}, .moved_bytes = 4e6)
CASE(arrays, sum_axis0,  kn_sum(x[0], KN_SHAPE(0), false),    .in = {N(1000, 1000)}, .moved_bytes = 4e6)
CASE(arrays, sum_rows,   kn_sum(x[0], KN_SHAPE(1), false),    .in = {N(1000, 1000)}, .moved_bytes = 4e6)
CASE(arrays, mean_rows,  kn_mean(x[0], KN_SHAPE(1), false),   .in = {N(1000, 1000)})
CASE(arrays, max_rows,   kn_max(x[0], KN_SHAPE(1), false),    .in = {N(1000, 1000)})
CASE(arrays, min_axis0,  kn_min(x[0], KN_SHAPE(0), false),    .in = {N(1000, 1000)})
CASE(arrays, argmax_rows, kn_argmax(x[0], KN_SHAPE(1), false), .in = {N(1000, 1000)})
CASE(arrays, softmax_rows, kn_softmax(x[0], 1),               .in = {N(1000, 1000)}, .both = true)
CASE(arrays, argmin_axis0, kn_argmin(x[0], KN_SHAPE(0), false), .in = {N(1000, 1000)})
CASE(arrays, argmax_all, kn_argmax(x[0], KN_ALL, false),      .in = {N(1000, 1000)})
CASE(arrays, max_all,    kn_max(x[0], KN_ALL, false),         .in = {N(1000, 1000)})
CASE(arrays, mean_axis0, kn_mean(x[0], KN_SHAPE(0), false),   .in = {N(1000, 1000)})
CASE(arrays, prod_rows,  kn_prod(x[0], KN_SHAPE(1), false),   .in = {N(1000, 1000)})
CASE(arrays, var_all,    kn_var(x[0], KN_ALL, false, NULL),   .in = {N(1000, 1000)})
CASE(arrays, var_rows,   kn_var(x[0], KN_SHAPE(1), false, NULL), .in = {N(1000, 1000)})
CASE(arrays, std_axis0,  kn_std(x[0], KN_SHAPE(0), false, NULL), .in = {N(1000, 1000)})
CASE(arrays, norm_all,   kn_norm(x[0], 2, KN_ALL, false),     .in = {N(1000, 1000)})
CASE(arrays, norm_rows,  kn_norm(x[0], 2, KN_SHAPE(1), false), .in = {N(1000, 1000)})
CASE(arrays, norm1_axis0, kn_norm(x[0], 1, KN_SHAPE(0), false), .in = {N(1000, 1000)})
CASE(arrays, logsumexp_rows, kn_logsumexp(x[0], KN_SHAPE(1), false), .in = {N(1000, 1000)})
CASE(arrays, any_rows,   kn_any(x[0], KN_SHAPE(1), false),    .in = {B(1000, 1000)})
CASE(arrays, all_axis0,  kn_all(x[0], KN_SHAPE(0), false),    .in = {B(1000, 1000)})
CASE(arrays, count_nonzero, kn_count_nonzero(x[0], KN_ALL, false), .in = {N(1000, 1000)})
CASE(arrays, count_nonzero_bool, kn_count_nonzero(x[0], KN_ALL, false), .in = {B(1000, 1000)})
CASE(arrays, sum_i64,    kn_sum(x[0], KN_SHAPE(1), false),    .in = {I(0, 100, 1000, 1000)})
CASE(arrays, sum_few_columns, kn_sum(x[0], KN_SHAPE(0), false), .in = {N(500000, 2)})
CASE(arrays, max_few_rows, kn_max(x[0], KN_SHAPE(0), false),  .in = {N(2, 500000)})
CASE(arrays, max_short_rows, kn_max(x[0], KN_SHAPE(1), false), .in = {N(100000, 3)})
CASE(arrays, argmax_short_rows, kn_argmax(x[0], KN_SHAPE(1), false), .in = {N(100000, 10)})
CASE(arrays, cumsum_1m,  kn_cumsum(x[0], 0),                  .in = {N(1000000)})
CASE(arrays, cumsum_rows, kn_cumsum(x[0], 1),                 .in = {N(1000, 1000)})
CASE(arrays, cumsum_axis0, kn_cumsum(x[0], 0),                .in = {N(1000, 1000)})
CASE(arrays, cumprod_rows, kn_cumprod(x[0], 1),               .in = {N(1000, 1000)})
CASE(arrays, sort_1m,    sort(x[0]),                          .in = {N(1000000)})
CASE(arrays, sort_rows,  sort(x[0]),                          .in = {N(1000, 1000)})
CASE(arrays, argsort_rows, kn_argsort(x[0], 1, false),        .in = {N(1000, 1000)})
CASE(arrays, topk_1m,    topk(x[0], 100),                     .in = {N(1000000)})
CASE(arrays, topk_rows,  topk(x[0], 10),                      .in = {N(1000, 1000)})
CASE(arrays, median_rows, kn_median(x[0], KN_SHAPE(1), false), .in = {N(1000, 1000)})
CASE(arrays, quantile_all, kn_quantile(x[0], 0.9, KN_ALL, false), .in = {N(1000000)})
CASE(arrays, nan_median_rows, kn_nan_median(x[0], KN_SHAPE(1), false), .in = {N(1000, 1000)})
CASE(arrays, nan_sum_rows, kn_nan_sum(x[0], KN_SHAPE(1), false), .in = {N(1000, 1000)})
CASE(arrays, cummax_rows, places(x[0]),                       .in = {N(1000, 1000)})
CASE(arrays, logcumsumexp_rows, kn_logcumsumexp(x[0], 1),     .in = {N(1000, 1000)})
CASE(arrays, diff_rows,  kn_diff(x[0], 1, 1),                 .in = {N(1000, 1000)})
CASE(arrays, bincount_1m, kn_bincount(x[0], 1000, KN_NONE),   .in = {I(0, 1000, 1000000)})
CASE(arrays, histogram_1m, kn_histogram(x[0], 100, -3, 3),    .in = {N(1000000)})
CASE(arrays, search_sorted, kn_search_sorted(line, x[0], false), .in = {N(1000000)}, .setup = make_line, .teardown = drop_line)
CASE(arrays, unique_100k, unique(x[0]),                       .in = {I(0, 1000, 100000)})
