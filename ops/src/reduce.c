/* Reductions, and the broadcasts that are their adjoints. */
#include "reduce.h"

#include <math.h>
#include <string.h>

#include <knet/statistics.h>

#include "run.h"

static bool reduced_shape(kn_op_call *call, int r) {
    const kn_attr_axes *attr = call->attr;
    const kn_tensor *x = call->in[0];
    int64_t dim[KN_DIMS_MAX];
    int n_dims = 0;
    for (int i = 0; i < x->n_dims; i++) {
        bool reduced = attr->mask >> i & 1;
        if (!reduced)
            dim[n_dims++] = x->dim[i];
        else if (attr->keep_dims)
            dim[n_dims++] = 1;
    }
    return kn__shaped(call, r, n_dims, dim);
}

bool kn__infer_reduce(kn_op_call *call) { return reduced_shape(call, 0); }

/* Of nothing there is a sum, and no maximum. */
bool kn__infer_extremum(kn_op_call *call) {
    const kn_attr_axes *attr = call->attr;
    const kn_tensor *x = call->in[0];
    for (int i = 0; i < x->n_dims; i++) {
        if ((attr->mask >> i & 1) && x->dim[i] == 0) {
            return kn_op_call_fail(call, KN_ERR_SHAPE, "axis %d has no elements", i);
        }
    }
    return kn__infer_reduce(call);
}

/* Sums of integers are i64. */
bool kn__infer_total(kn_op_call *call) {
    if (call->dtype > KN_BF16) call->dtype = KN_I64;
    return kn__infer_reduce(call);
}

bool kn__infer_mean(kn_op_call *call) {
    if (call->dtype > KN_BF16) call->dtype = KN_F64;
    return kn__infer_reduce(call);
}

bool kn__infer_norm(kn_op_call *call) {
    double p = ((const kn_attr_norm *)call->attr)->p;
    if (p != p) return kn_op_call_fail(call, KN_ERR_INVALID, "p is NaN");
    return p - p == 0 ? kn__infer_reduce(call) : kn__infer_extremum(call);
}

/* A given mean is shaped like the result, or has its axes kept. */
bool kn__infer_var(kn_op_call *call) {
    const kn_attr_var *attr = call->attr;
    const kn_tensor *x = call->in[0], *mean = call->in[1];
    int kept = 0;
    bool fits = true;
    for (int i = 0; i < x->n_dims && mean != &kn__none; i++) {
        bool reduced = attr->mask >> i & 1;
        bool whole = mean->n_dims == x->n_dims;
        if (reduced && !whole) continue;
        int d = whole ? i : kept++;
        fits &= d < mean->n_dims && mean->dim[d] == (reduced ? 1 : x->dim[i]);
    }
    if (mean != &kn__none && mean->n_dims != x->n_dims) fits &= kept == mean->n_dims;
    if (!fits) return kn_op_call_fail(call, KN_ERR_SHAPE, "mean doesn't fit the reduced shape");
    return kn__infer_reduce(call);
}

bool kn__infer_place(kn_op_call *call) {
    const kn_attr_axes *attr = call->attr;
    uint32_t all = (1u << call->in[0]->n_dims) - 1;
    if (attr->mask != all && (attr->mask == 0 || attr->mask & (attr->mask - 1))) {
        return kn_op_call_fail(call, KN_ERR_SHAPE, "axes must be one axis or KN_ALL");
    }
    return kn__infer_extremum(call) && (call->n_out == 1 || reduced_shape(call, 1));
}

/* Fills in attr's mask and runs the call. */
static kn_tensor *reduce_with(kn_op op, kn_tensor *const in[], int n_in, const kn_shape *axes,
                              void *attr) {
    kn_op_call call;
    kn_op_call_init(&call, op, attr, in, n_in);
    kn_attr_axes *first = attr;
    if (!kn__check_readable(op, in, 1) || !kn__axes(&first->mask, &call, axes)) return NULL;
    return kn_op_run(&call);
}

static kn_tensor *reduce(kn_op op, kn_tensor *x, const kn_shape *axes, bool keep_dims) {
    kn_attr_axes attr = {.keep_dims = keep_dims};
    return reduce_with(op, &x, 1, axes, &attr);
}

/* The sum of 64-bit integers could wrap. */
kn_tensor *kn_mean(kn_tensor *x, kn_shape axes, bool keep_dims) {
    if (kn_pending() || !kn__check_readable(KN_OP_mean, &x, 1)) return NULL;
    return reduce(KN_OP_mean, x->dtype == KN_I64 ? kn_cast(x, KN_F64) : x, &axes, keep_dims);
}

#define REDUCTION(name)                                                                            \
    kn_tensor *kn_##name(kn_tensor *x, kn_shape axes, bool keep_dims) {                            \
        return reduce(KN_OP_##name, x, &axes, keep_dims);                                          \
    }
REDUCTION(sum)
REDUCTION(sum_abs)
REDUCTION(sum_square)
REDUCTION(nan_sum)
REDUCTION(prod)
REDUCTION(max)
REDUCTION(min)
REDUCTION(max_abs)
REDUCTION(min_abs)
REDUCTION(logsumexp)
REDUCTION(count_nonzero)
REDUCTION(any)
REDUCTION(all)
REDUCTION(argmax)
REDUCTION(argmin)

kn_tensor *kn_norm(kn_tensor *x, double p, kn_shape axes, bool keep_dims) {
    kn_attr_norm attr = {.keep_dims = keep_dims, .p = p};
    return reduce_with(KN_OP_norm, &x, 1, &axes, &attr);
}

static kn_tensor *spread(kn_op op, kn_tensor *x, const kn_shape *axes, bool keep_dims,
                         const kn_var_options *options) {
    if (options && !kn__reserved_fit(op, options->unused, options->reserved, 4)) return NULL;
    int population = options ? options->population : 0;
    if (!kn__flag_fit(op, "population", &population)) return NULL;
    kn_attr_var attr = {.keep_dims = keep_dims, .correction = population ? 0 : 1};
    kn_tensor *in[] = {x, options && options->mean ? options->mean : KN_NONE};
    return reduce_with(op, in, 2, axes, &attr);
}

kn_tensor *kn_var(kn_tensor *x, kn_shape axes, bool keep_dims, const kn_var_options *options) {
    return spread(KN_OP_var, x, &axes, keep_dims, options);
}
kn_tensor *kn_std(kn_tensor *x, kn_shape axes, bool keep_dims, const kn_var_options *options) {
    return spread(KN_OP_std, x, &axes, keep_dims, options);
}

/* The results of a call of two whose place isn't NULL; on failure none. */
static kn_status both(kn_tensor **values, kn_tensor **indices, kn_op op, kn_tensor *x,
                      const kn_shape *axes, void *attr) {
    if (values) *values = NULL;
    if (indices) *indices = NULL;
    KN_TRY(kn_check());
    if (!values && !indices) {
        kn_op_fail(op, KN_ERR_INVALID, "values and indices are NULL");
        return kn_check();
    }
    kn_op_call call;
    kn_op_call_init(&call, op, attr, &x, 1);
    call.want = (uint8_t)((values ? 1 : 0) | (indices ? 2 : 0));
    kn_attr_axes *first = attr;
    if (!kn__check_readable(op, &x, 1) || !kn__axes(&first->mask, &call, axes)) return kn_check();
    if (!kn_op_run(&call)) return kn_check();
    if (values) *values = call.out[0];
    if (indices) *indices = call.out[1];
    return KN_OK;
}

kn_status kn_max_index(kn_tensor **values, kn_tensor **indices, kn_tensor *x, kn_shape axes,
                       bool keep_dims) {
    kn_attr_axes attr = {.keep_dims = keep_dims};
    return both(values, indices, KN_OP_max_index, x, &axes, &attr);
}
kn_status kn_min_index(kn_tensor **values, kn_tensor **indices, kn_tensor *x, kn_shape axes,
                       bool keep_dims) {
    kn_attr_axes attr = {.keep_dims = keep_dims};
    return both(values, indices, KN_OP_min_index, x, &axes, &attr);
}

/* --- along one axis --- */

bool kn__infer_scan(kn_op_call *call) {
    if (call->dtype > KN_BF16) call->dtype = KN_I64;
    return kn__like(call, 0, call->in[0]);
}

bool kn__infer_extremes(kn_op_call *call) {
    return kn__like(call, 0, call->in[0]) && kn__like(call, 1, call->in[0]);
}

bool kn__infer_recur(kn_op_call *call) {
    if (!kn__same_shape(call->in[0], call->in[1]))
        return kn_op_call_fail(call, KN_ERR_SHAPE, "a and b differ in shape");
    return kn__like(call, 0, call->in[0]);
}

static kn_tensor *scan(kn_op op, kn_tensor *x, int axis) {
    kn_attr_scan attr = {0};
    kn_shape axes = KN_SHAPE(axis);
    return reduce_with(op, &x, 1, &axes, &attr);
}

kn_tensor *kn_cumsum(kn_tensor *x, int axis) { return scan(KN_OP_cumsum, x, axis); }
kn_tensor *kn_cumprod(kn_tensor *x, int axis) { return scan(KN_OP_cumprod, x, axis); }
kn_tensor *kn_cummax(kn_tensor *x, int axis) { return scan(KN_OP_cummax, x, axis); }
kn_tensor *kn_cummin(kn_tensor *x, int axis) { return scan(KN_OP_cummin, x, axis); }

kn_status kn_cummax_index(kn_tensor **values, kn_tensor **indices, kn_tensor *x, int axis) {
    KN__AS("cummax_index", "x");
    kn_attr_scan attr = {0};
    return both(values, indices, KN_OP_cummax, x, &KN_SHAPE(axis), &attr);
}
kn_status kn_cummin_index(kn_tensor **values, kn_tensor **indices, kn_tensor *x, int axis) {
    KN__AS("cummin_index", "x");
    kn_attr_scan attr = {0};
    return both(values, indices, KN_OP_cummin, x, &KN_SHAPE(axis), &attr);
}

bool kn__infer_sort(kn_op_call *call) {
    kn_attr_sort *attr = call->attr;
    const kn_tensor *x = call->in[0];
    int axis = __builtin_ctz(attr->mask);
    if (call->op == KN_OP_sort) attr->k = x->dim[axis];
    if (attr->k < 0 || attr->k > x->dim[axis]) {
        return kn_op_call_fail(call, KN_ERR_SHAPE, "k is %lld; axis %d has %lld elements",
                               (long long)attr->k, axis, (long long)x->dim[axis]);
    }
    kn_shape shape = kn_tensor_shape(x);
    shape.dim[axis] = attr->k;
    return kn__shaped(call, 0, shape.n_dims, shape.dim) &&
           kn__shaped(call, 1, shape.n_dims, shape.dim);
}

/* Result r of a sort alone. */
static kn_tensor *sorted(kn_tensor *x, int axis, bool descending, int r) {
    kn_attr_sort attr = {.descending = descending};
    kn_shape axes = KN_SHAPE(axis);
    kn_op_call call;
    kn_op_call_init(&call, KN_OP_sort, &attr, &x, 1);
    call.want = (uint8_t)(1 << r);
    if (!kn__check_readable(KN_OP_sort, &x, 1) || !kn__axes(&attr.mask, &call, &axes)) return NULL;
    return kn_op_run(&call);
}

kn_tensor *kn_sort(kn_tensor *x, int axis, bool descending) {
    return sorted(x, axis, descending, 0);
}
kn_tensor *kn_argsort(kn_tensor *x, int axis, bool descending) {
    KN__AS("argsort");
    return sorted(x, axis, descending, 1);
}
kn_status kn_sort_index(kn_tensor **values, kn_tensor **indices, kn_tensor *x, int axis,
                        bool descending) {
    KN__AS("sort_index");
    kn_attr_sort attr = {.descending = descending};
    kn_shape axes = KN_SHAPE(axis);
    return both(values, indices, KN_OP_sort, x, &axes, &attr);
}
kn_status kn_topk(kn_tensor **values, kn_tensor **indices, kn_tensor *x, int64_t k, int axis,
                  bool smallest) {
    kn_attr_sort attr = {.descending = !smallest, .k = k};
    kn_shape axes = KN_SHAPE(axis);
    return both(values, indices, KN_OP_topk, x, &axes, &attr);
}

/* --- elements by their index along an axis: for gradients --- */

static bool along_fits(const kn_op_call *call, const kn_tensor *small) {
    const kn_attr_along *attr = call->attr;
    kn_tensor large = {.n_dims = (uint8_t)attr->n_dims};
    if (call->in[1]->dtype != KN_I64)
        return kn_op_call_fail(call, KN_ERR_DTYPE, "index is %s; it must be i64",
                               kn_dtype_name((kn_dtype)call->in[1]->dtype));
    memcpy(large.dim, attr->dim, sizeof attr->dim);
    kn__lines lines = kn__lines_of(&large, attr->mask);
    if (small->n == 0 ||
        (lines.outer * lines.inner > 0 && small->n % (lines.outer * lines.inner) == 0))
        return true;
    return kn_op_call_fail(call, KN_ERR_SHAPE, "index doesn't fit");
}

bool kn__infer_take_along(kn_op_call *call) {
    return along_fits(call, call->in[1]) &&
           kn__shaped(call, 0, call->in[1]->n_dims, call->in[1]->dim);
}

bool kn__infer_put_along(kn_op_call *call) {
    const kn_attr_along *attr = call->attr;
    if (call->in[0]->n != call->in[1]->n)
        return kn_op_call_fail(call, KN_ERR_SHAPE, "g and index differ in size");
    return along_fits(call, call->in[1]) && kn__shaped(call, 0, (int)attr->n_dims, attr->dim);
}

kn_tensor *kn_sum_mask(kn_tensor *x, uint32_t mask, bool keep_dims) {
    kn_attr_axes attr = {mask, keep_dims};
    return KN_CALL(sum, &attr, x);
}

/* --- broadcast --- */

bool kn__infer_broadcast(kn_op_call *call) {
    const kn_attr_shape *attr = call->attr;
    return kn__shaped(call, 0, (int)attr->n_dims, attr->dim);
}

bool kn__broadcasts_to(const kn_tensor *x, const kn_shape *shape) {
    kn_shape both = *shape;
    return kn__shape_numel(shape) >= 0 && kn__broadcast_shape(&both, x) &&
           both.n_dims == shape->n_dims &&
           !memcmp(both.dim, shape->dim, (size_t)shape->n_dims * sizeof shape->dim[0]);
}

kn_tensor *kn_broadcast(kn_tensor *x, kn_shape shape) {
    kn_attr_shape attr = {.n_dims = shape.n_dims};
    kn_op_call call;
    kn_op_call_init(&call, KN_OP_broadcast, &attr, &x, 1);
    if (!kn__check_readable(KN_OP_broadcast, &x, 1)) return NULL;
    if (!kn__broadcasts_to(x, &shape)) {
        char text[256];
        kn_op_call_fail(&call, KN_ERR_SHAPE, "x can't be broadcast to %s",
                        kn_shape_text(text, sizeof text, shape));
        return NULL;
    }
    memcpy(attr.dim, shape.dim, sizeof attr.dim);
    bool same = x->n_dims == shape.n_dims &&
                !memcmp(x->dim, shape.dim, (size_t)x->n_dims * sizeof x->dim[0]);
    return same ? kn__op_same(x) : kn_op_run(&call);
}

/* --- recipes --- */

static const struct {
    kn__fold fold;
    kn__shift shift;
    kn__finish finish;
} recipes[KN_OP_COUNT] = {
    [KN_OP_sum] = {KN__FOLD_SUM, KN__SHIFT_NONE, KN__FINISH_DIVIDE},
    [KN_OP_mean] = {KN__FOLD_SUM, KN__SHIFT_NONE, KN__FINISH_DIVIDE},
    [KN_OP_max] = {KN__FOLD_MAX, KN__SHIFT_NONE, KN__FINISH_DIVIDE},
    [KN_OP_min] = {KN__FOLD_MIN, KN__SHIFT_NONE, KN__FINISH_DIVIDE},
    [KN_OP_prod] = {KN__FOLD_PROD, KN__SHIFT_NONE, KN__FINISH_DIVIDE},
    [KN_OP_sum_abs] = {KN__FOLD_SUM_ABS, KN__SHIFT_NONE, KN__FINISH_DIVIDE},
    [KN_OP_nan_sum] = {KN__FOLD_SUM_KNOWN, KN__SHIFT_NONE, KN__FINISH_DIVIDE},
    [KN_OP_sum_square] = {KN__FOLD_SUM_SQUARE, KN__SHIFT_NONE, KN__FINISH_DIVIDE},
    [KN_OP_max_abs] = {KN__FOLD_MAX_ABS, KN__SHIFT_NONE, KN__FINISH_DIVIDE},
    [KN_OP_min_abs] = {KN__FOLD_MIN_ABS, KN__SHIFT_NONE, KN__FINISH_DIVIDE},
    [KN_OP_logsumexp] = {KN__FOLD_SUM_EXP, KN__SHIFT_MAX, KN__FINISH_LOG},
    [KN_OP_var] = {KN__FOLD_SUM_SQUARE, KN__SHIFT_MEAN, KN__FINISH_VAR},
    [KN_OP_std] = {KN__FOLD_SUM_SQUARE, KN__SHIFT_MEAN, KN__FINISH_STD},
    [KN_OP_count_nonzero] = {KN__FOLD_COUNT, KN__SHIFT_NONE, KN__FINISH_DIVIDE},
    [KN_OP_any] = {KN__FOLD_COUNT, KN__SHIFT_NONE, KN__FINISH_ANY},
    [KN_OP_all] = {KN__FOLD_COUNT, KN__SHIFT_NONE, KN__FINISH_ALL},
};

static void norm_recipe(kn__recipe *r, double p) {
    r->finish = KN__FINISH_DIVIDE;
    if (p == 0) {
        r->fold = KN__FOLD_COUNT;
    } else if (p == 1) {
        r->fold = KN__FOLD_SUM_ABS;
    } else if (p - p != 0) {
        r->fold = p > 0 ? KN__FOLD_MAX_ABS : KN__FOLD_MIN_ABS;
    } else {
        r->fold = p == 2 ? KN__FOLD_SUM_SQUARE : KN__FOLD_SUM_POWER;
        r->finish = KN__FINISH_ROOT;
        r->p = p;
        r->power = 1 / p;
    }
}

kn__recipe kn__reduce_recipe(const kn_op_call *call) {
    const kn_attr_axes *attr = call->attr;
    const kn_tensor *x = call->in[0];
    kn__recipe r = {.fold = recipes[call->op].fold,
                    .shift = recipes[call->op].shift,
                    .finish = recipes[call->op].finish,
                    .n_in = 1,
                    .divisor = 1};
    for (int d = 0; d < x->n_dims; d++) r.n_in *= attr->mask >> d & 1 ? x->dim[d] : 1;
    if (call->op == KN_OP_nan_sum && !(KN_CLASS_FLOAT >> x->dtype & 1)) r.fold = KN__FOLD_SUM;
    if (call->op == KN_OP_mean) r.divisor = (double)r.n_in;
    if (call->op == KN_OP_norm) norm_recipe(&r, ((const kn_attr_norm *)call->attr)->p);
    if (call->op == KN_OP_var || call->op == KN_OP_std) {
        double n = (double)r.n_in - ((const kn_attr_var *)call->attr)->correction;
        r.divisor = n > 0 ? n : 0;
        if (call->in[1] != KN_NONE) r.shift = KN__SHIFT_GIVEN;
    }
    return r;
}
