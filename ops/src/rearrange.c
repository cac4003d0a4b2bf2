/* Parts of a tensor and their order: a part is a start and a stride for each dimension, so that
 * steps, flips, diagonals and selections are one op; the rest is made of other ops. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "run.h"
#include "strided.h"

/* --- parts --- */

kn_attr_strided kn__strided_whole(const kn_tensor *x) {
    kn_attr_strided attr = {.n_dims = x->n_dims, .n_whole = x->n_dims};
    int64_t step = 1;
    for (int i = x->n_dims - 1; i >= 0; i--) {
        attr.dim[i] = attr.whole[i] = x->dim[i];
        attr.stride[i] = step;
        step *= x->dim[i];
    }
    return attr;
}

/* Whether the part is a run of elements in their order. */
static bool is_run(const kn_attr_strided *attr) {
    int64_t step = 1;
    for (int i = (int)attr->n_dims - 1; i >= 0; i--) {
        if (attr->dim[i] != 1 && attr->stride[i] != step) return false;
        step *= attr->dim[i];
    }
    return true;
}

bool kn__infer_strided(kn_op_call *call) {
    kn_attr_strided *attr = call->attr;
    kn_tensor *x = call->in[0];
    attr->n_whole = x->n_dims;
    for (int i = 0; i < x->n_dims; i++) attr->whole[i] = x->dim[i];
    bool empty = false;
    for (int i = 0; i < attr->n_dims; i++) empty = empty || attr->dim[i] == 0;
    if (call->given || (!empty && !is_run(attr)))
        return kn__shaped(call, 0, (int)attr->n_dims, attr->dim);
    return kn__view(call, 0, x, (int)attr->n_dims, attr->dim, empty ? 0 : attr->start);
}

/* y, where it is there, has the part's shape. */
bool kn__infer_strided_put(kn_op_call *call) {
    const kn_attr_strided *attr = call->attr;
    const kn_tensor *x = call->in[0], *y = call->in[1];
    bool fits = y == KN_NONE || y->n_dims == attr->n_dims;
    for (int i = 0; fits && y != KN_NONE && i < y->n_dims; i++) fits = y->dim[i] == attr->dim[i];
    for (int i = 0; fits && x != KN_NONE && i < x->n_dims; i++) fits = x->dim[i] == attr->whole[i];
    if (!fits) return kn_op_call_fail(call, KN_ERR_SHAPE, "y is not like the part of x");
    return kn__shaped(call, 0, (int)attr->n_whole, attr->whole);
}

kn_tensor *kn__strided(kn_tensor *x, kn_attr_strided *attr) { return KN_CALL(strided, attr, x); }

static void drop_dim(kn_attr_strided *attr, int axis) {
    attr->n_dims--;
    for (int i = axis; i < attr->n_dims; i++) {
        attr->dim[i] = attr->dim[i + 1];
        attr->stride[i] = attr->stride[i + 1];
    }
}

/* Element i of the axis; the axis is removed. */
static kn_tensor *selected(kn_tensor *x, int64_t i, int axis) {
    kn_attr_strided attr = kn__strided_whole(x);
    attr.start = i * attr.stride[axis];
    drop_dim(&attr, axis);
    return kn__strided(x, &attr);
}

bool kn__axis_of(int *axis, kn_op op, kn_tensor *x) {
    kn_op_call call;
    kn_op_call_init(&call, op, NULL, &x, 1);
    return kn__check_readable(op, &x, 1) && kn__axis(axis, &call, x, *axis);
}

static void fail_with(kn_op op, kn_tensor *x, kn_status status, const char *fmt, va_list args) {
    char text[512];
    vsnprintf(text, sizeof text, fmt, args);
    kn_op_call call;
    kn_op_call_init(&call, op, NULL, &x, 1);
    if (kn__check_readable(op, &x, 1)) kn_op_call_fail(&call, status, "%s", text);
}

void *kn__fail_shapes(kn_op op, kn_tensor *x, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    fail_with(op, x, KN_ERR_SHAPE, fmt, args);
    va_end(args);
    return NULL;
}

void *kn__fail_invalid(kn_op op, kn_tensor *x, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    fail_with(op, x, KN_ERR_INVALID, fmt, args);
    va_end(args);
    return NULL;
}

kn_tensor *kn_select(kn_tensor *x, int64_t index, int axis) {
    KN__AS("select");
    const kn_op op = KN_OP_strided;
    if (!kn__axis_of(&axis, op, x)) return NULL;
    int64_t n = x->dim[axis], i = index < 0 ? index + n : index;
    if (i < 0 || i >= n) {
        return kn__fail_shapes(op, x, "index %lld is outside axis %d of %lld elements",
                               (long long)index, axis, (long long)n);
    }
    return selected(x, i, axis);
}

bool kn__axes_of(uint32_t *mask, kn_op op, kn_tensor *x, const kn_shape *axes) {
    kn_op_call call;
    kn_op_call_init(&call, op, NULL, &x, 1);
    return kn__check_readable(op, &x, 1) && kn__axes(mask, &call, axes);
}

kn_tensor *kn_flip(kn_tensor *x, kn_shape axes) {
    KN__AS("flip");
    uint32_t mask;
    if (!kn__axes_of(&mask, KN_OP_strided, x, &axes)) return NULL;
    kn_attr_strided attr = kn__strided_whole(x);
    bool moves = false;
    for (int i = 0; i < x->n_dims; i++) {
        if (!(mask >> i & 1) || attr.dim[i] < 2) continue;
        moves = true;
        attr.start += (attr.dim[i] - 1) * attr.stride[i];
        attr.stride[i] = -attr.stride[i];
    }
    return moves ? kn__strided(x, &attr) : kn__op_copy(x);
}

/* --- diagonals --- */

/* Of the two axes of x: where a diagonal begins and how long it is. */
static int64_t diagonal_size(int64_t *first_row, int64_t *first_column, int64_t rows,
                             int64_t columns, int64_t k) {
    *first_row = k < 0 ? -k : 0;
    *first_column = k > 0 ? k : 0;
    int64_t down = rows - *first_row, across = columns - *first_column;
    int64_t n = down < across ? down : across;
    return n > 0 ? n : 0;
}

kn_tensor *kn_diagonal(kn_tensor *x, int64_t k, int axis_row, int axis_column) {
    KN__AS("diagonal");
    const kn_op op = KN_OP_strided;
    if (!kn__axis_of(&axis_row, op, x) || !kn__axis_of(&axis_column, op, x)) return NULL;
    if (axis_row == axis_column) return kn__fail_shapes(op, x, "axis %d is named twice", axis_row);
    if (k <= -INT64_MAX) k = -INT64_MAX;
    kn_attr_strided attr = kn__strided_whole(x);
    int64_t row, column, rows = attr.dim[axis_row], columns = attr.dim[axis_column];
    int64_t n = diagonal_size(&row, &column, rows, columns, k);
    int64_t down = attr.stride[axis_row], across = attr.stride[axis_column];
    if (n) attr.start = row * down + column * across;
    int high = axis_row > axis_column ? axis_row : axis_column;
    drop_dim(&attr, high);
    drop_dim(&attr, axis_row + axis_column - high);
    attr.dim[attr.n_dims] = n;
    attr.stride[attr.n_dims++] = down + across;
    return kn__strided(x, &attr);
}

kn_tensor *kn_diag(kn_tensor *x, int64_t k) {
    KN__AS("diag");
    const kn_op op = KN_OP_strided_set;
    if (!kn__check_readable(op, &x, 1)) return NULL;
    if (x->n_dims == 2) return kn_diagonal(x, k, 0, 1);
    int64_t beside = k < 0 ? -k : k, n, step;
    if (x->n_dims != 1) return kn__fail_shapes(op, x, "x must have one or two dimensions");
    if (k == INT64_MIN || __builtin_add_overflow(x->n, beside, &n) ||
        __builtin_add_overflow(n, 1, &step)) {
        return kn__fail_shapes(op, x, "diagonal %lld is too far out", (long long)k);
    }
    kn_attr_make make = {.dim = {n, n}, .n_dims = 2, .dtype = x->dtype};
    kn_op_call zeros;
    kn_op_call_init(&zeros, KN_OP_fill, &make, NULL, 0);
    zeros.device = x->storage->device;
    kn_tensor *y = kn_op_run(&zeros);
    if (!y) return NULL;
    kn_attr_strided attr = kn__strided_whole(y);
    attr.start = k < 0 ? beside * n : beside;
    attr.n_dims = 1;
    attr.dim[0] = x->n;
    attr.stride[0] = step;
    return KN_CALL(strided_set, &attr, y, x);
}

/* --- one dimension more or less --- */

kn_tensor *kn_squeeze(kn_tensor *x, kn_shape axes) {
    KN__AS("squeeze");
    uint32_t mask;
    if (!kn__axes_of(&mask, KN_OP_reshape, x, &axes)) return NULL;
    kn_shape shape = {.n_dims = 0};
    for (int i = 0; i < x->n_dims; i++) {
        bool named = mask >> i & 1;
        if (named && x->dim[i] == 1) continue;
        if (named && axes.n_dims >= 0) {
            return kn__fail_shapes(KN_OP_reshape, x, "axis %d has %lld elements, not one", i,
                                   (long long)x->dim[i]);
        }
        shape.dim[shape.n_dims++] = x->dim[i];
    }
    return kn_reshape(x, shape);
}

/* Where a new axis goes among those of x: 0 … n_dims, negative ones from the end. */
static bool new_axis(int *axis, kn_op op, kn_tensor *x) {
    if (!kn__check_readable(op, &x, 1)) return false;
    int at = *axis < 0 ? *axis + x->n_dims + 1 : *axis;
    if (x->n_dims == KN_DIMS_MAX) {
        return kn__fail_shapes(op, x, "x has %d dimensions, the most there are", KN_DIMS_MAX) !=
               NULL;
    }
    if (at < 0 || at > x->n_dims) {
        return kn__fail_shapes(op, x, "a new axis can't be at %d", *axis) != NULL;
    }
    *axis = at;
    return true;
}

static kn_shape with_axis(const kn_tensor *x, int axis, int64_t n) {
    kn_shape shape = {.n_dims = x->n_dims + 1};
    for (int i = 0; i < shape.n_dims; i++) {
        shape.dim[i] = i == axis ? n : x->dim[i - (i > axis)];
    }
    return shape;
}

kn_tensor *kn_unsqueeze(kn_tensor *x, int axis) {
    KN__AS("unsqueeze");
    if (!new_axis(&axis, KN_OP_reshape, x)) return NULL;
    return kn_reshape(x, with_axis(x, axis, 1));
}

/* The checks of the op that joins them, before they get another shape. */
static bool stackable(kn_tensor *const x[], int n_x) {
    kn_op_call call;
    kn_op_call_init(&call, KN_OP_concat, NULL, x, n_x);
    if (!kn__check_inputs(&call)) return false;
    for (int i = 1; i < n_x; i++)
        if (!kn__same_shape(x[i], x[0]))
            return kn_op_call_fail(&call, KN_ERR_SHAPE, "x[%d] does not have the shape of x[0]", i);
    return true;
}

kn_tensor *kn_stack(kn_tensor *const x[], int n_x, int axis) {
    KN__AS("stack");
    if (kn_pending()) return NULL;
    if (n_x < 1 || n_x > UINT16_MAX)
        return kn_op_fail(KN_OP_concat, KN_ERR_INVALID, "n_x is %d; it must be 1 … %d", n_x,
                          UINT16_MAX);
    if (!x) return kn_op_fail(KN_OP_concat, KN_ERR_INVALID, "x is NULL");
    if (!stackable(x, n_x) || !new_axis(&axis, KN_OP_concat, x[0])) return NULL;
    kn_tensor **with = calloc((size_t)n_x, sizeof *with), *y = NULL;
    if (!with) return kn_op_fail(KN_OP_concat, KN_ERR_OOM, "no host memory for %d inputs", n_x);
    int n = 0;
    while (n < n_x && (with[n] = kn_reshape(x[n], with_axis(x[n], axis, 1)))) n++;
    if (n == n_x) y = kn_concat(with, n_x, axis);
    while (n--) kn_drop(with[n]);
    free(with);
    return y;
}

/* --- cut into pieces --- */

/* Piece i of a tensor; NULL: the error is pending. */
typedef kn_tensor *(*piece_fn)(kn_tensor *x, int axis, int64_t start, int64_t size);

static kn_tensor *range_of(kn_tensor *x, int axis, int64_t start, int64_t size) {
    kn_attr_box attr = {{0}, {0}};
    for (int i = 0; i < x->n_dims; i++) attr.size[i] = x->dim[i];
    attr.start[axis] = start;
    attr.size[axis] = size;
    return KN_CALL(slice, &attr, x);
}

static kn_tensor *element_of(kn_tensor *x, int axis, int64_t start, int64_t size) {
    (void)size;
    return selected(x, start, axis);
}

/* sizes: NULL: `n` pieces, whose sizes differ by at most one. */
static kn_status cut(kn_tensor *out[], kn_tensor *x, int axis, const int64_t sizes[], int n,
                     piece_fn piece) {
    int64_t start = 0, dim = x->dim[axis];
    for (int i = 0; i < n; i++) {
        int64_t size = sizes ? sizes[i] : dim / n + (i < dim % n);
        out[i] = piece(x, axis, start, size);
        start += size;
        if (out[i]) continue;
        while (i--) {
            kn_drop(out[i]);
            out[i] = NULL;
        }
        return kn_check();
    }
    return KN_OK;
}

static kn_status named_null(const char *name) {
    kn_op_fail(KN_OP_slice, KN_ERR_INVALID, "%s is NULL", name);
    return kn_check();
}

/* Checks the arguments of a function that cuts x into n pieces. */
static kn_status cuttable(kn_tensor *out[], int n, int *axis, kn_tensor *x) {
    KN_TRY(kn_check());
    if (!out && n > 0) return named_null("out");
    for (int i = 0; i < n; i++) out[i] = NULL;
    return kn__axis_of(axis, KN_OP_slice, x) ? KN_OK : kn_check();
}

kn_status kn_split_axis(kn_tensor *out[], kn_tensor *x, const int64_t sizes[], int n, int axis) {
    KN__AS("split_axis");
    KN_TRY(cuttable(out, n, &axis, x));
    if (!sizes && n > 0) return named_null("sizes");
    int64_t total = 0;
    for (int i = 0; i < n; i++) {
        if (sizes[i] < 0 || __builtin_add_overflow(total, sizes[i], &total)) total = INT64_MIN;
    }
    if (total == x->dim[axis]) return cut(out, x, axis, sizes, n, range_of);
    kn__fail_shapes(KN_OP_slice, x, "%d sizes don't add up to the %lld elements of axis %d", n,
                    (long long)x->dim[axis], axis);
    return kn_check();
}

kn_status kn_split_rows(kn_tensor *out[], kn_tensor *x, const int64_t sizes[], int n) {
    KN__AS("split_rows");
    return kn_split_axis(out, x, sizes, n, 0);
}

kn_status kn_chunk(kn_tensor *out[], kn_tensor *x, int n, int axis) {
    KN__AS("chunk");
    KN_TRY(cuttable(out, n, &axis, x));
    if (n >= 1) return cut(out, x, axis, NULL, n, range_of);
    kn__fail_shapes(KN_OP_slice, x, "n is %d; it must be at least 1", n);
    return kn_check();
}

kn_status kn_unbind(kn_tensor *out[], kn_tensor *x, int n, int axis) {
    KN__AS("unbind");
    KN_TRY(cuttable(out, n, &axis, x));
    if (n == x->dim[axis]) return cut(out, x, axis, NULL, n, element_of);
    kn__fail_shapes(KN_OP_slice, x, "axis %d has %lld elements, n is %d", axis,
                    (long long)x->dim[axis], n);
    return kn_check();
}

/* --- copies of the same elements --- */

kn_tensor *kn_repeat(kn_tensor *x, int64_t n, int axis) {
    KN__AS("repeat");
    const kn_op op = KN_OP_broadcast;
    if (!kn__axis_of(&axis, op, x)) return NULL;
    if (n < 0) return kn__fail_shapes(op, x, "n is %lld; it must be at least 0", (long long)n);
    if (n == 1) return kn__op_copy(x);
    int64_t outer = 1, inner = 1, dim;
    for (int i = 0; i <= axis; i++) outer *= x->dim[i];
    for (int i = axis + 1; i < x->n_dims; i++) inner *= x->dim[i];
    kn_shape shape = kn_tensor_shape(x);
    bool fits = !__builtin_mul_overflow(x->dim[axis], n, &dim);
    shape.dim[axis] = dim;
    if (!fits || kn__shape_numel(&shape) < 0)
        return kn__fail_shapes(op, x, "n is %lld; the result would be too large", (long long)n);
    if (x->n == 0) return kn_reshape(x, shape);
    kn_tensor *y = kn_reshape(x, KN_SHAPE(outer, 1, inner));
    y = y ? kn_broadcast(y, KN_SHAPE(outer, n, inner)) : NULL;
    return y ? kn_reshape(y, shape) : NULL;
}

/* Axes that one broadcast tiles: two dimensions each, and one for all before them. */
enum { TILED_AT_ONCE = (KN_DIMS_MAX - 1) / 2 };

/* The whole tensor `times` along each of the axes from first to end - 1, at most TILED_AT_ONCE of
 * which have another number than 1. */
static kn_tensor *tile_axes(kn_tensor *x, const int64_t times[], int first, int end) {
    kn_shape shape = kn_tensor_shape(x), from = KN_SHAPE(1), to;
    for (int i = 0; i < first; i++) from.dim[0] *= x->dim[i];
    to = from;
    for (int i = first; i < x->n_dims; i++) {
        int64_t n = i < end ? times[i] : 1, d = x->dim[i];
        if (__builtin_mul_overflow(d, n, &shape.dim[i]) || kn__shape_numel(&shape) < 0)
            return kn__fail_shapes(KN_OP_broadcast, x,
                                   "times[%d] is %lld; the result would be too large", i,
                                   (long long)n);
        if (n == 1) {
            from.dim[from.n_dims - 1] *= d;
            to.dim[to.n_dims - 1] *= d;
            continue;
        }
        from.dim[from.n_dims++] = 1, to.dim[to.n_dims++] = n;
        from.dim[from.n_dims++] = d, to.dim[to.n_dims++] = d;
    }
    kn_tensor *y = kn_reshape(x, from);
    y = y ? kn_broadcast(y, to) : NULL;
    return y ? kn_reshape(y, shape) : NULL;
}

kn_tensor *kn_tile(kn_tensor *x, kn_shape times) {
    KN__AS("tile");
    const kn_op op = KN_OP_broadcast;
    if (!kn__check_readable(op, &x, 1)) return NULL;
    if (times.n_dims != x->n_dims)
        return kn__fail_shapes(op, x, "times has %d entries", times.n_dims);
    for (int i = 0; i < x->n_dims; i++)
        if (times.dim[i] < 0)
            return kn__fail_shapes(op, x, "times[%d] is %lld; it must be at least 0", i,
                                   (long long)times.dim[i]);
    kn_tensor *y = NULL;
    for (int first = x->n_dims, end = first; end > 0; end = first) { /* the smallest copies first */
        int n_tiled = 0;
        while (first > 0 && n_tiled + (times.dim[first - 1] != 1) <= TILED_AT_ONCE)
            n_tiled += times.dim[--first] != 1;
        if (n_tiled == 0) continue;
        y = tile_axes(y ? y : x, times.dim, first, end);
        if (!y) return NULL;
    }
    return y ? y : kn__op_copy(x);
}

/* --- roll --- */

bool kn__infer_roll(kn_op_call *call) { return kn__like(call, 0, call->in[0]); }

kn_tensor *kn_roll(kn_tensor *x, int64_t shift, int axis) {
    if (!kn__axis_of(&axis, KN_OP_roll, x)) return NULL;
    int64_t n = x->dim[axis], by = n ? shift % n : 0;
    kn_attr_roll attr = {axis, by < 0 ? by + n : by};
    return attr.shift ? KN_CALL(roll, &attr, x) : kn__op_copy(x);
}

/* --- triangles --- */

bool kn__infer_triangle(kn_op_call *call) {
    const kn_tensor *x = call->in[0];
    if (x->n_dims < 2) return kn_op_call_fail(call, KN_ERR_SHAPE, "x must be [...,rows,columns]");
    return kn__like(call, 0, x);
}

/* A diagonal outside any matrix serves as well as one further out, and cannot overflow. */
static kn_attr_triangle triangle_attr(int64_t diagonal) {
    const int64_t most = INT64_MAX / 4;
    return (kn_attr_triangle){diagonal > most ? most : diagonal < -most ? -most : diagonal};
}

kn_tensor *kn_triu(kn_tensor *x, int64_t diagonal) {
    kn_attr_triangle attr = triangle_attr(diagonal);
    return KN_CALL(triu, &attr, x);
}

kn_tensor *kn_tril(kn_tensor *x, int64_t diagonal) {
    kn_attr_triangle attr = triangle_attr(diagonal);
    return KN_CALL(tril, &attr, x);
}
