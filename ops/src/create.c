/* Tensors made from a few numbers. */
#include <math.h>
#include <stdio.h>

#include "run.h"
#include "strided.h"

/* numpy.arange's count; -1: not a number of elements. */
static int64_t count_of(double start, double stop, double step) {
    double n = ceil((stop - start) / step);
    if (!(n == n) || n > 0x1p62) return -1;
    return n > 0 ? (int64_t)n : 0;
}

static kn_tensor *make(kn_op op, double a, double b, int64_t n, kn_dtype dtype) {
    kn_attr_make attr = {.a = a, .b = b, .dim = {n}, .n_dims = 1, .dtype = (int32_t)dtype};
    return kn_op_call_run(op, &attr, NULL, 0);
}

kn_tensor *kn_arange(double start, double stop, double step, kn_dtype dtype) {
    const kn_op op = KN_OP_arange;
    int64_t n = step == 0 ? -1 : count_of(start, stop, step);
    if (dtype == 0) dtype = kn_frame_dtype();
    if (n < 0) {
        bool finite = isfinite(start) && isfinite(stop) && isfinite(step);
        return kn_op_fail(op, KN_ERR_INVALID, "start is %g, stop %g, step %g: %s", start, stop,
                          step,
                          !finite     ? "they must be finite"
                          : step == 0 ? "step must not be 0"
                                      : "too many elements");
    }
    if (!kn_dtype_bytes(dtype) || dtype == KN_BOOL) {
        return kn_op_fail(op, KN_ERR_DTYPE, "%d is no dtype of numbers", (int)dtype);
    }
    return make(op, start, step, n, dtype);
}

kn_tensor *kn_linspace(double first, double last, int64_t n) {
    const kn_op op = KN_OP_linspace;
    if (n < 0)
        return kn_op_fail(op, KN_ERR_INVALID, "n is %lld; it must be at least 0", (long long)n);
    if (!isfinite(first) || !isfinite(last)) {
        return kn_op_fail(op, KN_ERR_INVALID, "first is %g, last %g; they must be finite", first,
                          last);
    }
    return make(op, first, last, n, kn_frame_dtype());
}

kn_tensor *kn_logspace(double first, double last, int64_t n, double base) {
    KN__AS("logspace");
    if (!(base > 0 && isfinite(base)))
        return kn_op_fail(KN_OP_linspace, KN_ERR_INVALID,
                          "base is %g; it must be above 0 and finite", base);
    kn_dtype dtype = kn_frame_dtype();
    KN__FRAME_INSIDE(.dtype = KN_F64); /* rounded once */
    kn_tensor *powers = kn_linspace(first, last, n);
    if (!powers) return NULL;
    kn_tensor *y = kn_cast(kn_pow(kn__constant_like(powers, base), powers), dtype);
    return kn__given(y);
}

kn_tensor *kn_eye(int64_t rows, int64_t columns) {
    KN__AS("eye");
    if (rows < 0 || columns < 0 || kn__shape_numel(&KN_SHAPE(rows, columns)) < 0) {
        return kn_op_fail(KN_OP_fill, KN_ERR_SHAPE,
                          "rows is %lld, columns is %lld: negative or too large", (long long)rows,
                          (long long)columns);
    }
    int64_t n = rows < columns ? rows : columns;
    kn_tensor *ones = kn_ones(KN_SHAPE(n));
    if (!ones) return NULL;
    kn_attr_strided attr = {.n_dims = 1, .n_whole = 2, .dim = {n}, .whole = {rows, columns}};
    attr.stride[0] = columns + 1;
    kn_tensor *y = KN_CALL(strided_add, &attr, KN_NONE, ones); /* to zeros */
    kn_drop(ones);
    return y;
}

static kn_status grid_of(kn_tensor *out[], kn_tensor *const x[], int n) {
    kn_shape all = {.n_dims = n};
    for (int i = 0; i < n; i++) {
        char name[32];
        snprintf(name, sizeof name, "kn_meshgrid: x[%d]", i);
        if (!kn__is_whole(x[i])) return kn__fail_unreadable(name, x[i]);
        if (x[i]->n_dims == 1) {
            all.dim[i] = x[i]->dim[0];
            continue;
        }
        kn_op_fail(KN_OP_broadcast, KN_ERR_SHAPE, "x[%d] has %d dimensions, not 1", i,
                   x[i]->n_dims);
        return kn_check();
    }
    for (int i = 0; i < n; i++) {
        kn_shape line = {.n_dims = n};
        for (int d = 0; d < n; d++) line.dim[d] = d == i ? all.dim[i] : 1;
        kn_tensor *along = kn_reshape(x[i], line);
        out[i] = along ? (n > 1 ? kn_broadcast(along, all) : kn__op_copy(along)) : NULL;
    }
    return kn_check();
}

kn_status kn_meshgrid(kn_tensor *out[], kn_tensor *const x[], int n) {
    KN__AS("meshgrid", "x");
    KN_TRY(kn_check());
    if (n < 1 || n > KN_DIMS_MAX || !x || !out) {
        kn_op_fail(KN_OP_broadcast, KN_ERR_INVALID,
                   "n is %d; it must be 1 … %d, x and out not NULL", n, KN_DIMS_MAX);
        return kn_check();
    }
    for (int i = 0; i < n; i++) out[i] = NULL;
    kn_status status = grid_of(out, x, n);
    for (int i = 0; status < 0 && i < n; i++) out[i] = NULL;
    return status;
}

kn_tensor *kn_one_hot(kn_tensor *index, int64_t n) {
    KN__AS("one_hot", "index");
    const kn_op op = KN_OP_arange;
    kn_op_call given;
    kn_op_call_init(&given, op, NULL, &index, 1);
    if (!kn__check_readable(op, &index, 1)) return NULL;
    if (n < 0) return kn__fail_invalid(op, index, "n is %lld; it must be at least 0", (long long)n);
    if (!(KN_CLASS_INDEX >> index->dtype & 1)) {
        kn_op_call_fail(&given, KN_ERR_DTYPE, "index is %s; it must be i64, i32 or u8",
                        kn_dtype_name((kn_dtype)index->dtype));
        return NULL;
    }
    kn_dtype dtype = kn_frame_dtype();
    if (index->dtype == KN_U8) index = kn_cast(index, KN_I32); /* n may be above 255 */
    if (!index) return NULL;
    kn_attr_make attr = {.b = 1, .dim = {n}, .n_dims = 1, .dtype = index->dtype};
    kn_op_call classes;
    kn_op_call_init(&classes, op, &attr, NULL, 0);
    classes.device = index->storage->device;
    kn_tensor *all = kn_op_run(&classes);
    kn_tensor *column = all ? kn_unsqueeze(index, -1) : NULL;
    kn_tensor *hits = column ? kn_eq(column, all) : NULL;
    return hits ? kn_cast(hits, dtype) : NULL;
}
