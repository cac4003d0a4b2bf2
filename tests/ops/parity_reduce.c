/* Cases of reductions, scans and sorts. */
#include <math.h>

#include "parity_case.h"

/* Without the axes in the mask. */
static parity_operand reduced(parity_operand x, uint32_t mask) {
    parity_operand out = SCALAR(GUARD);
    for (int d = 0; d < x.shape.n_dims; d++) {
        if (!(mask >> d & 1)) out.shape.dim[out.shape.n_dims++] = x.shape.dim[d];
    }
    return out;
}

static bool is_exact(kn_op op) {
    return op == KN_OP_max || op == KN_OP_min || op == KN_OP_max_abs || op == KN_OP_min_abs;
}

static parity_case *reduce_of(kn_op op, uint32_t mask, parity_operand x, bool accumulate) {
    parity_case *c = parity_add(op, is_exact(op) ? COMPARE_EXACT : COMPARE_CLOSE);
    parity_operand out = reduced(x, mask);
    if (op == KN_OP_count_nonzero) out.dtype = KN_I64;
    if (op == KN_OP_any || op == KN_OP_all) out.dtype = KN_BOOL;
    c->n_in = 1, c->in[0] = x, c->accumulate = accumulate;
    c->out[0] = accumulate ? like(out, FILL_UNIFORM) : out;
    if (op == KN_OP_var || op == KN_OP_std) {
        c->n_in = 2;
        ATTR(c, kn_attr_var, mask, false, 1);
    } else if (op == KN_OP_norm) {
        ATTR(c, kn_attr_norm, mask, false, 2);
    } else {
        ATTR(c, kn_attr_axes, mask, false);
    }
    return c;
}

static void reduce_shapes(kn_op op, parity_fill fill) {
    reduce_of(op, 1, like(U(1000003), fill), false);
    reduce_of(op, 1, like(U(8192), fill), false);
    reduce_of(op, 2, like(U(100, 10), fill), false);
    reduce_of(op, 2, like(U(50, 48), fill), false);
    reduce_of(op, 2, like(U(7, 5000), fill), false);
    reduce_of(op, 1, like(U(100, 10), fill), false);
    reduce_of(op, 1, like(U(4099, 257), fill), false);
    reduce_of(op, 1, like(U(20000, 3), fill), false);
    reduce_of(op, 13, like(U(32, 20, 9, 11), fill), false); /* a bias of a convolution */
    reduce_of(op, 13, like(U(64, 6, 24, 24), fill), false);
    reduce_of(op, 2, like(U(9, 31, 45), fill), false);
    reduce_of(op, 5, like(U(8, 3, 70, 2), fill), false);
    reduce_of(op, 0xAA, like(U(2, 3, 2, 3, 2, 3, 2, 3), fill), false);
}

/* One case of each way that a result is made. */
static void reduce_few(kn_op op, parity_fill fill) {
    reduce_of(op, 0, (parity_operand){.fill = fill}, false);
    reduce_of(op, 7, like(U(3, 5, 7), fill), false);
    reduce_of(op, 1, like(U(70001), fill), false);
    reduce_of(op, 2, like(U(37, 131), fill), false);
    reduce_of(op, 1, like(U(131, 37), fill), false);
    reduce_of(op, 2, like(U(5, 67, 11), fill), false);
}

/* The dtypes whose results differ from their elements. */
static void reduce_dtypes(kn_op op, bool floats_alone) {
    static const kn_dtype dtypes[] = {KN_F16, KN_BF16, KN_I64, KN_I32, KN_U8, KN_BOOL};
    for (int t = 0; t < (floats_alone ? 2 : 6); t++) {
        bool integer = t > 1;
        for (int rows = 0; rows < 2; rows++) {
            parity_operand x = of_dtype(rows ? U(70, 300) : U(300, 70), dtypes[t]);
            if (integer) x = like(x, dtypes[t] == KN_BOOL ? FILL_INDEX : FILL_TIES);
            if (op == KN_OP_prod) x = like(x, dtypes[t] == KN_BOOL ? FILL_INDEX : FILL_POSITIVE);
            x.limit = 2;
            parity_case *c = reduce_of(op, rows ? 2 : 1, x, false);
            bool total = op == KN_OP_sum || op == KN_OP_prod || op == KN_OP_sum_abs ||
                         op == KN_OP_sum_square || op == KN_OP_nan_sum;
            if (c->out[0].dtype) continue;
            c->out[0].dtype = dtypes[t];
            if (integer && total) c->out[0].dtype = KN_I64;
            if (integer && op == KN_OP_mean) c->out[0].dtype = KN_F64;
        }
    }
}

static void with_given_mean(kn_op op) {
    parity_case *c = reduce_of(op, 2, U(40, 77), false);
    c->in[1] = U(40);
    c = reduce_of(op, 1, U(40, 77), false);
    c->in[1] = U(1, 77);
    c = reduce_of(op, 1, U(80000), false);
    c->in[1] = SCALAR(UNIFORM);
}

static void norms(void) {
    static const double p[] = {0, 1, 3, 4, -1, 0.5, INFINITY, -INFINITY};
    for (int i = 0; i < 8; i++) {
        parity_case *c = reduce_of(KN_OP_norm, 1, like(U(131, 37), FILL_POSITIVE), false);
        ATTR(c, kn_attr_norm, 1, false, p[i]);
        c = reduce_of(KN_OP_norm, 2, like(U(37, 131), FILL_POSITIVE), false);
        ATTR(c, kn_attr_norm, 2, false, p[i]);
    }
}

/* Columns that are cut into chunks, in packs and not, and rows of a warp each. */
static void long_columns(void) {
    static const kn_op ops[] = {KN_OP_sum, KN_OP_min, KN_OP_std, KN_OP_logsumexp, KN_OP_all};
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
        parity_fill fill = ops[i] == KN_OP_all ? FILL_POSITIVE : FILL_UNIFORM;
        reduce_of(ops[i], 1, like(U(127, 132), fill), false);
        reduce_of(ops[i], 1, like(U(128, 132), fill), false);
        reduce_of(ops[i], 1, like(U(401, 129), fill), false);
        reduce_of(ops[i], 1, like(U(9000, 2), fill), false);
        reduce_of(ops[i], 5, like(U(20, 3, 30, 8), fill), false);
        reduce_of(ops[i], 5, like(U(20, 3, 30, 5), fill), false);
    }
    static const kn_dtype dtypes[] = {KN_F16, KN_BF16, KN_I64, KN_I32, KN_U8};
    for (int t = 0; t < 5; t++) {
        for (int odd = 0; odd < 2; odd++) {
            parity_operand x =
                of_dtype(odd ? OPERAND(TIES, 300, 33) : OPERAND(TIES, 300, 132), dtypes[t]);
            reduce_of(KN_OP_max, 1, x, false)->out[0].dtype = dtypes[t];
            reduce_of(KN_OP_sum, 1, x, false)->out[0].dtype = t < 2 ? dtypes[t] : KN_I64;
        }
    }
    reduce_of(KN_OP_max, 1, OPERAND(SPECIAL, 300, 132), false);
    reduce_of(KN_OP_sum, 1, U(300, 132), true);
    reduce_of(KN_OP_max, 2, U(4099, 1025), false);
}

static void reductions(void) {
    reduce_shapes(KN_OP_sum, FILL_UNIFORM);
    reduce_shapes(KN_OP_max, FILL_UNIFORM);
    reduce_few(KN_OP_min, FILL_TIES);
    reduce_shapes(KN_OP_var, FILL_UNIFORM);
    static const kn_op few[] = {KN_OP_mean,    KN_OP_sum_abs,   KN_OP_sum_square,
                                KN_OP_max_abs, KN_OP_min_abs,   KN_OP_norm,
                                KN_OP_std,     KN_OP_logsumexp, KN_OP_count_nonzero,
                                KN_OP_any,     KN_OP_all,       KN_OP_nan_sum};
    for (size_t i = 0; i < sizeof few / sizeof *few; i++) {
        reduce_few(few[i], few[i] == KN_OP_all ? FILL_POSITIVE : FILL_UNIFORM);
        bool floats = few[i] == KN_OP_norm || few[i] == KN_OP_std || few[i] == KN_OP_logsumexp;
        reduce_dtypes(few[i], floats);
    }
    reduce_few(KN_OP_all, FILL_TIES);
    reduce_of(KN_OP_any, 2, OPERAND(ZERO, 5, 40), false);
    reduce_of(KN_OP_prod, 2, OPERAND(POSITIVE, 37, 13), false);
    reduce_of(KN_OP_prod, 1, OPERAND(POSITIVE, 13, 37), false);
    reduce_of(KN_OP_prod, 7, OPERAND(POSITIVE, 2, 3, 4), false);
    static const kn_op all_dtypes[] = {KN_OP_sum, KN_OP_prod, KN_OP_max, KN_OP_min};
    for (int i = 0; i < 4; i++) reduce_dtypes(all_dtypes[i], false);
    reduce_dtypes(KN_OP_var, true);
    with_given_mean(KN_OP_var);
    with_given_mean(KN_OP_std);
    norms();
    long_columns();
    reduce_of(KN_OP_max, 2, OPERAND(SPECIAL, 50, 13), false);
    reduce_of(KN_OP_min, 1, OPERAND(SPECIAL, 5, 130), false);
    reduce_of(KN_OP_nan_sum, 2, OPERAND(SPECIAL, 200, 2), false); /* with NaN or infinity or both */
    reduce_of(KN_OP_nan_sum, 1, OPERAND(SPECIAL, 2, 200), false);
    reduce_of(KN_OP_logsumexp, 1, OPERAND(SPECIAL, 3, 130), false);
    reduce_of(KN_OP_count_nonzero, 1, OPERAND(SPECIAL, 3, 130), false);
    reduce_of(KN_OP_logsumexp, 2, OPERAND(OFFSET, 9, 300), false)->one_dtype = true;
    reduce_of(KN_OP_var, 2, OPERAND(OFFSET, 9, 300), false)->one_dtype = true;
    reduce_of(KN_OP_var, 1, OPERAND(OFFSET, 300, 9), false)->one_dtype = true;
    reduce_of(KN_OP_std, 3, OPERAND(OFFSET, 300, 301), false)->one_dtype = true;
    reduce_of(KN_OP_sum, 13, U(16, 5, 6, 6), true);
    reduce_of(KN_OP_sum, 1, U(9000), true);
    parity_case *half = reduce_of(KN_OP_sum, 1, of_dtype(U(900, 3), KN_F16), true);
    half->out[0].dtype = KN_F16;
    static const kn_op of_nothing[] = {KN_OP_sum, KN_OP_mean,      KN_OP_prod,
                                       KN_OP_var, KN_OP_logsumexp, KN_OP_norm,
                                       KN_OP_any, KN_OP_all,       KN_OP_count_nonzero};
    for (size_t i = 0; i < sizeof of_nothing / sizeof *of_nothing; i++)
        reduce_of(of_nothing[i], 1, U(0, 6), false);
}

/* --- places --- */

static void place_of(uint32_t mask, parity_operand x) {
    static const kn_op ops[] = {KN_OP_argmax, KN_OP_argmin, KN_OP_max_index, KN_OP_min_index};
    for (int i = 0; i < 4; i++) {
        parity_case *c = parity_add(ops[i], COMPARE_EXACT);
        parity_operand places = of_dtype(reduced(x, mask), KN_I64);
        c->n_in = 1, c->in[0] = x;
        c->out[i > 1] = places;
        if (i > 1) c->out[0] = of_dtype(reduced(x, mask), x.dtype);
        ATTR(c, kn_attr_axes, mask, false);
    }
}

static void places(void) {
    place_of(1, OPERAND(UNIFORM, 1));
    place_of(1, OPERAND(TIES, 1031));
    place_of(1, OPERAND(UNIFORM, 70001));
    place_of(2, OPERAND(UNIFORM, 100, 10));
    place_of(2, OPERAND(TIES, 100, 33));
    place_of(1, OPERAND(TIES, 17, 40));
    place_of(1, OPERAND(UNIFORM, 90, 600));
    place_of(2, OPERAND(UNIFORM, 5, 7, 6));
    place_of(7, OPERAND(UNIFORM, 5, 7, 6));
    place_of(2, OPERAND(SPECIAL, 40, 5));
    place_of(2, OPERAND(UNIFORM, 3, 4000));
    place_of(2, OPERAND(TIES, 3, 6001));
    place_of(2, OPERAND(UNIFORM, 3, 9000));
    place_of(1, OPERAND(SPECIAL, 5000));
    place_of(1, OPERAND(ZERO, 5000));
    place_of(1, OPERAND(TIES, 9000, 3));
    place_of(2, OPERAND(UNIFORM, 2, 300, 37));
    place_of(1, OPERAND(SPECIAL, 200, 7));
    static const kn_dtype dtypes[] = {KN_F16, KN_BF16, KN_I64, KN_I32, KN_U8, KN_BOOL};
    for (int t = 0; t < 6; t++) {
        parity_operand x = of_dtype(OPERAND(INDEX, 40, 300), dtypes[t]);
        x.limit = dtypes[t] == KN_BOOL ? 2 : 50;
        place_of(2, x);
        place_of(1, x);
        parity_operand line = of_dtype(OPERAND(INDEX, 5000), dtypes[t]);
        line.limit = x.limit;
        place_of(1, line);
    }
}

/* --- scans --- */

static parity_case *scan_of(kn_op op, int axis, parity_operand x, bool reverse, bool exclusive) {
    parity_case *c = parity_add(op, COMPARE_CLOSE);
    c->n_in = op == KN_OP_recur ? 2 : 1;
    c->in[0] = x, c->in[1] = x;
    c->out[0] = of_dtype(like(x, FILL_GUARD), x.dtype > KN_BF16 ? KN_I64 : x.dtype);
    if (c->n_in == 1) c->in[1] = NONE;
    ATTR(c, kn_attr_scan, 1u << axis, reverse, exclusive);
    return c;
}

static void scans(void) {
    static const kn_op ops[] = {KN_OP_cumsum, KN_OP_cumprod, KN_OP_recur};
    for (int i = 0; i < 3; i++) {
        bool sum = i == 0;
        for (int way = 0; way < 4; way++) {
            bool reverse = way & 1, exclusive = way & 2;
            scan_of(ops[i], 0, U(1), reverse, exclusive);
            scan_of(ops[i], 0, U(sum ? 70001 : 40), reverse, exclusive);
            scan_of(ops[i], 1, U(7, sum ? 1300 : 30), reverse, exclusive);
            scan_of(ops[i], 1, OPERAND(POSITIVE, 3, 41, 5), reverse, exclusive);
            scan_of(ops[i], 0, U(19, 700), reverse, exclusive);
        }
        scan_of(ops[i], 1, U(4, 0), false, false);
        scan_of(ops[i], 1, OPERAND(FRACTION, 2, sum ? 5377 : 3601), i == 1, false);
        scan_of(ops[i], 0, OPERAND(FRACTION, 150, 33), false, i == 1);
        scan_of(ops[i], 1, OPERAND(FRACTION, 3, 64, 5), true, true);
        scan_of(ops[i], 1, OPERAND(FRACTION, 2, 1000, 3), true, i == 1);
        scan_of(ops[i], 0, OPERAND(SPECIAL, 300), false, false);
        scan_of(ops[i], 0, OPERAND(SPECIAL, 300, 2), false, false);
        scan_of(ops[i], 0, of_dtype(OPERAND(FRACTION, 2000), KN_F16), true, false);
        scan_of(ops[i], 1, of_dtype(U(4, 40), KN_F16), true, false);
        scan_of(ops[i], 0, of_dtype(U(40, 4), KN_BF16), false, true);
    }
    /* Products of the coefficients overflow; the host multiplies zero by them. */
    scan_of(KN_OP_recur, 0, OPERAND(ABOVE_ONE, 20000, 2), false, false)->in[1] =
        OPERAND(ZERO, 20000, 2);
    scan_of(KN_OP_cumsum, 0, of_dtype(U(1500), KN_F16), true, false);
    scan_of(KN_OP_cumsum, 0, U(600000), true, false);
    static const kn_dtype integers[] = {KN_I64, KN_I32, KN_U8, KN_BOOL};
    for (int t = 0; t < 4; t++) {
        parity_operand x = of_dtype(OPERAND(INDEX, 3, 700), integers[t]);
        x.limit = 2;
        scan_of(KN_OP_cumsum, 1, x, false, false);
        scan_of(KN_OP_cumsum, 0, like(of_dtype(U(4000), integers[t]), FILL_INDEX), true, false)
            ->in[0]
            .limit = 2;
        scan_of(KN_OP_cumprod, 0, x, true, true);
    }
}

/* --- extremes so far, and places in sorted lines --- */

static void extremes_of(int axis, parity_operand x) {
    for (int min = 0; min < 2; min++) {
        parity_case *c = parity_add(min ? KN_OP_cummin : KN_OP_cummax, COMPARE_EXACT);
        c->n_in = 1, c->in[0] = x;
        c->out[0] = like(x, FILL_GUARD);
        c->out[1] = of_dtype(like(x, FILL_GUARD), KN_I64);
        ATTR(c, kn_attr_scan, 1u << axis, 0, 0);
    }
}

static void extremes(void) {
    extremes_of(0, U(1));
    extremes_of(0, OPERAND(TIES, 70001));
    extremes_of(1, U(7, 1300));
    extremes_of(1, OPERAND(TIES, 2, 5377));
    extremes_of(1, OPERAND(SPECIAL, 3, 41, 5));
    extremes_of(0, U(19, 700));
    extremes_of(0, OPERAND(SPECIAL, 300, 2));
    extremes_of(1, OPERAND(TIES, 2, 1000, 3));
    extremes_of(1, U(4, 0));
    static const kn_dtype dtypes[] = {KN_F16, KN_BF16, KN_I64, KN_I32, KN_U8, KN_BOOL};
    for (int t = 0; t < 6; t++) {
        parity_operand x = of_dtype(OPERAND(INDEX, 3, 700), dtypes[t]);
        x.limit = dtypes[t] == KN_BOOL ? 2 : 50;
        if (t < 2) x = like(x, FILL_SPECIAL);
        extremes_of(1, x);
        extremes_of(0, x);
    }
}

static void search_of(parity_operand sorted, parity_operand values) {
    for (int right = 0; right < 2; right++) {
        parity_case *c = parity_add(KN_OP_search_sorted, COMPARE_EXACT);
        c->n_in = 2, c->in[0] = sorted, c->in[1] = values;
        c->out[0] = of_dtype(like(values, FILL_GUARD), KN_I64);
        ATTR(c, kn_attr_scalars, right, 0);
    }
}

static void bins_of(int64_t n, double lo, double hi, parity_operand x) {
    parity_case *c = parity_add(KN_OP_bin, COMPARE_EXACT);
    c->n_in = 1, c->in[0] = x;
    c->out[0] = of_dtype(like(x, FILL_GUARD), KN_I64);
    kn_attr_make attr = {.a = lo, .b = hi, .dim = {n}, .n_dims = 1};
    set_attr(c, &attr, sizeof attr);
}

static void bins(void) {
    bins_of(8, -2, 2, OPERAND(TIES, 300)); /* on the ends of ranges */
    bins_of(3, -1, 1, OPERAND(SPECIAL, 40, 5));
    bins_of(1, -2, 3, OPERAND(SPECIAL, 100));
    bins_of(4, -1, 1, SCALAR(TIES));
    bins_of(4, 0, 1, U(0));
}

static void searches(void) {
    search_of(OPERAND(RISING, 1), U(3));
    search_of(OPERAND(RISING, 9), OPERAND(SPECIAL, 7, 5));
    search_of(OPERAND(RISING, 16), OPERAND(TIES, 9000));
    search_of(OPERAND(RISING, 0), U(4, 3));
    search_of(OPERAND(RISING, 12), SCALAR(UNIFORM));
    search_of(OPERAND(RISING, 12), U(0));
    search_of(OPERAND(RISING, 3, 17), OPERAND(SPECIAL, 3, 40));
    search_of(OPERAND(RISING, 2, 3, 8), OPERAND(TIES, 2, 3, 1));
    static const kn_dtype dtypes[] = {KN_F16, KN_BF16, KN_I64, KN_I32, KN_U8, KN_BOOL};
    for (int t = 0; t < 6; t++) {
        parity_operand values = of_dtype(OPERAND(INDEX, 300), dtypes[t]);
        values.limit = dtypes[t] == KN_BOOL ? 2 : 9;
        search_of(of_dtype(OPERAND(RISING, 31), dtypes[t]), values);
    }
}

/* --- sorts --- */

static void sort_of(int axis, int64_t k, parity_operand x) {
    for (int descending = 0; descending < 2; descending++) {
        bool all = k == x.shape.dim[axis];
        parity_case *c = parity_add(all ? KN_OP_sort : KN_OP_topk, COMPARE_EXACT);
        parity_operand out = like(x, FILL_GUARD);
        out.shape.dim[axis] = k;
        c->n_in = 1, c->in[0] = x, c->out[0] = out, c->out[1] = of_dtype(out, KN_I64);
        ATTR(c, kn_attr_sort, 1u << axis, (uint32_t)descending, k);
    }
}

static void along_of(kn_op op, uint32_t mask, parity_operand large, parity_operand index) {
    parity_case *c = parity_add(op, COMPARE_EXACT);
    bool put = op == KN_OP_put_along;
    kn_attr_along attr = {.n_dims = (uint32_t)large.shape.n_dims, .mask = mask};
    memcpy(attr.dim, large.shape.dim, sizeof attr.dim);
    parity_operand small = of_dtype(like(index, put ? FILL_UNIFORM : FILL_GUARD), large.dtype);
    c->n_in = 2, c->in[0] = put ? small : large, c->in[1] = of_dtype(index, KN_I64);
    c->out[0] = put ? like(large, FILL_GUARD) : small;
    set_attr(c, &attr, sizeof attr);
}

static void sorts(void) {
    sort_of(0, 1, U(1));
    sort_of(0, 20, OPERAND(TIES, 20));
    sort_of(0, 5000, U(5000));
    sort_of(1, 600, OPERAND(TIES, 3, 600));
    sort_of(0, 70, OPERAND(TIES, 70, 9));
    sort_of(1, 40, OPERAND(SPECIAL, 7, 40));
    sort_of(1, 33, U(2, 33, 5));
    sort_of(1, 3, U(9, 40));
    sort_of(1, 3, OPERAND(SPECIAL, 9, 40));
    sort_of(0, 5, OPERAND(TIES, 9000));
    sort_of(0, 7, U(9000));
    sort_of(0, 2, U(3000, 3));
    sort_of(0, 0, U(9, 4));
    sort_of(1, 1024, U(2, 1024)); /* a block's line, and more */
    sort_of(1, 1025, OPERAND(TIES, 2, 1025));
    sort_of(1, 4096, U(2, 4096));
    sort_of(1, 4097, OPERAND(SPECIAL, 3, 4097));
    sort_of(0, 6, U(5000, 2));
    sort_of(0, 5000, of_dtype(OPERAND(WIDE, 5000), KN_I64));
    sort_of(0, 5000, of_dtype(OPERAND(SPECIAL, 5000), KN_F16));
    static const kn_dtype dtypes[] = {KN_F16, KN_BF16, KN_I64, KN_I32, KN_U8, KN_BOOL};
    for (int t = 0; t < 6; t++) {
        parity_operand x = of_dtype(OPERAND(INDEX, 3, 700), dtypes[t]);
        x.limit = dtypes[t] == KN_BOOL ? 2 : 200;
        if (t < 2) x = like(x, FILL_SPECIAL);
        if (dtypes[t] == KN_I64 || dtypes[t] == KN_I32) x = like(x, FILL_WIDE);
        sort_of(1, 700, x);
        sort_of(1, 9, x);
    }
    static const kn_dtype sizes[] = {(kn_dtype)0, KN_F16, KN_U8};
    for (int i = 0; i < 3; i++) {
        along_of(KN_OP_take_along, 2, of_dtype(U(4, 9, 5), sizes[i]), INDEX(KN_I64, 9, 4, 3, 5));
        along_of(KN_OP_take_along, 7, of_dtype(U(4, 9, 5), sizes[i]), INDEX(KN_I64, 180, 1));
        along_of(KN_OP_put_along, 2, of_dtype(U(4, 9, 5), sizes[i]), INDEX(KN_I64, 9, 4, 1, 5));
    }
}

void parity_reduce_cases(void) {
    reductions();
    places();
    scans();
    extremes();
    searches();
    bins();
    sorts();
}
