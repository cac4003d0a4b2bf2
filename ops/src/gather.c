/* Elements by a tensor of indices, along one axis: whole slices (index_…), or one index for each
 * element (gather, scatter). */
#include <stdio.h>
#include <string.h>

#include "capture.h"
#include "run.h"

/* --- shapes --- */

static int64_t axis_of(const kn_op_call *call) { return ((const kn_attr_index *)call->attr)->axis; }

/* x with the axis replaced by the index's dimensions; false with the error pending. */
static bool selected_shape(kn_shape *out, const kn_op_call *call, kn_shape x) {
    const kn_tensor *index = call->in[1];
    int axis = (int)axis_of(call);
    out->n_dims = x.n_dims - 1 + index->n_dims;
    if (out->n_dims > KN_DIMS_MAX) {
        return kn_op_call_fail(call, KN_ERR_SHAPE, "the result has %d dimensions; the limit is %d",
                               out->n_dims, KN_DIMS_MAX);
    }
    int n = 0;
    for (int i = 0; i < x.n_dims; i++) {
        if (i != axis) out->dim[n++] = x.dim[i];
        for (int j = 0; i == axis && j < index->n_dims; j++) out->dim[n++] = index->dim[j];
    }
    return true;
}

/* An axis of no elements has nothing to select. */
static bool has_elements(const kn_op_call *call, const kn_shape *x) {
    if (x->dim[axis_of(call)] > 0 || call->in[1]->n == 0) return true;
    return kn_op_call_fail(call, KN_ERR_SHAPE, "axis %d has no elements", (int)axis_of(call));
}

bool kn__infer_index_select(kn_op_call *call) {
    kn_shape x = kn_tensor_shape(call->in[0]), y;
    return selected_shape(&y, call, x) && has_elements(call, &x) &&
           kn__shaped(call, 0, y.n_dims, y.dim);
}

/* Of the result: x's, or the one that the attribute gives. */
static kn_shape whole_shape(const kn_op_call *call) {
    const kn_attr_index *attr = call->attr;
    if (call->in[0] != KN_NONE) return kn_tensor_shape(call->in[0]);
    kn_shape shape = {.n_dims = (int)attr->n_dims};
    memcpy(shape.dim, attr->dim, sizeof shape.dim);
    return shape;
}

static bool is_shape(const kn_tensor *t, const kn_shape *shape) {
    if (t == KN_NONE) return true;
    if (t->n_dims != shape->n_dims) return false;
    return !memcmp(t->dim, shape->dim, (size_t)t->n_dims * sizeof *t->dim);
}

bool kn__infer_index_put(kn_op_call *call) {
    kn_shape x = whole_shape(call), y;
    if (!selected_shape(&y, call, x) || !has_elements(call, &x)) return false;
    if (is_shape(call->in[2], &y)) return kn__shaped(call, 0, x.n_dims, x.dim);
    char text[256];
    return kn_op_call_fail(call, KN_ERR_SHAPE, "y must be %s", kn_shape_text(text, sizeof text, y));
}

/* The index is like x beside the axis: the public functions cut x to it. */
static bool index_fits(const kn_op_call *call, const kn_shape *x) {
    const kn_tensor *index = call->in[1];
    bool fits = index->n_dims == x->n_dims;
    for (int i = 0; fits && i < x->n_dims; i++) {
        fits = i == axis_of(call) || index->dim[i] == x->dim[i];
    }
    if (fits) return has_elements(call, x);
    return kn_op_call_fail(call, KN_ERR_SHAPE,
                           "index must have x's dimensions, at most of x's sizes beside axis %d",
                           (int)axis_of(call));
}

bool kn__infer_gather(kn_op_call *call) {
    kn_shape x = kn_tensor_shape(call->in[0]);
    return index_fits(call, &x) && kn__shaped(call, 0, call->in[1]->n_dims, call->in[1]->dim);
}

static bool like_index(const kn_op_call *call) {
    kn_shape index = kn_tensor_shape(call->in[1]);
    if (is_shape(call->in[2], &index)) return true;
    return kn_op_call_fail(call, KN_ERR_SHAPE, "y must be like index");
}

bool kn__infer_scatter(kn_op_call *call) {
    kn_shape x = whole_shape(call);
    return index_fits(call, &x) && like_index(call) && kn__shaped(call, 0, x.n_dims, x.dim);
}

/* --- the public functions --- */

/* Runs op with the axis, which may be negative. */
static kn_tensor *along(kn_op op, kn_tensor *const in[], int n_in, int axis) {
    if (!kn__check_readable(op, in, n_in)) return NULL;
    kn_attr_index attr = {0};
    kn_op_call call;
    kn_op_call_init(&call, op, &attr, in, n_in);
    if (!kn__axis(&axis, &call, in[0], axis)) return NULL;
    attr.axis = axis;
    return kn_op_run(&call);
}

kn_tensor *kn_index_select(kn_tensor *x, kn_tensor *index, int axis) {
    return along(KN_OP_index_select, KN_LIST_(x, index), 2, axis);
}

kn_tensor *kn_embedding(kn_tensor *w, kn_tensor *index) {
    KN__AS("embedding", "w", "index");
    return along(KN_OP_index_select, KN_LIST_(w, index), 2, 0);
}

kn_tensor *kn_index_add(kn_tensor *x, kn_tensor *index, kn_tensor *y, int axis) {
    return along(KN_OP_index_add, KN_LIST_(x, index, y), 3, axis);
}

kn_tensor *kn_index_set(kn_tensor *x, kn_tensor *index, kn_tensor *y, int axis) {
    return along(KN_OP_index_set, KN_LIST_(x, index, y), 3, axis);
}

/* Whether the index, nowhere larger than x beside the axis, is smaller somewhere: it goes with the
 * first elements of x there. *end: the sizes of that part. */
static bool is_of_part(kn_shape *end, const kn_tensor *x, const kn_tensor *index, int axis) {
    if (!kn__is_whole(x) || !kn__is_whole(index) || index->n_dims != x->n_dims) return false;
    bool is_smaller = false;
    *end = kn_tensor_shape(x);
    if (axis < 0) axis += x->n_dims;
    for (int i = 0; i < x->n_dims; i++) {
        if (i == axis) continue;
        if (index->dim[i] > x->dim[i]) return false;
        is_smaller = is_smaller || index->dim[i] < x->dim[i];
        end->dim[i] = index->dim[i];
    }
    return is_smaller && axis >= 0 && axis < x->n_dims;
}

/* Cut to the index, once the whole call fits: its errors show the x that was given. */
static kn_tensor *part_of(kn_op op, kn_tensor *const in[], int n_in, int axis, kn_shape end) {
    kn_tensor *x = in[0];
    kn_attr_index attr = {.axis = axis < 0 ? axis + x->n_dims : axis};
    kn_op_call call;
    kn_op_call_init(&call, op, &attr, in, n_in);
    kn_shape shape = kn_tensor_shape(x);
    if (!kn__check_inputs(&call) || !has_elements(&call, &shape)) return NULL;
    if (n_in == 3 && !like_index(&call)) return NULL;
    return kn_slice(x, (kn_shape){.n_dims = end.n_dims}, end);
}

static kn_tensor *scattered(kn_op op, kn_tensor *x, kn_tensor *index, kn_tensor *y, int axis) {
    kn_shape end;
    if (!is_of_part(&end, x, index, axis)) return along(op, KN_LIST_(x, index, y), 3, axis);
    kn_tensor *part = part_of(op, KN_LIST_(x, index, y), 3, axis, end);
    if (part) part = along(op, KN_LIST_(part, index, y), 3, axis);
    if (!part) return NULL;
    kn_index_item items[KN_DIMS_MAX];
    for (int i = 0; i < end.n_dims; i++) items[i] = KN_RANGE(0, end.dim[i], 1);
    return kn_set_at(x, part, end.n_dims, items);
}

kn_tensor *kn_gather(kn_tensor *x, kn_tensor *index, int axis) {
    KN__AS("gather");
    kn_shape end;
    if (is_of_part(&end, x, index, axis)) {
        x = part_of(KN_OP_gather, KN_LIST_(x, index), 2, axis, end);
        if (!x) return NULL;
    }
    return along(KN_OP_gather, KN_LIST_(x, index), 2, axis);
}

kn_tensor *kn_scatter(kn_tensor *x, kn_tensor *index, kn_tensor *y, int axis) {
    KN__AS("scatter");
    return scattered(KN_OP_scatter, x, index, y, axis);
}

kn_tensor *kn_scatter_add(kn_tensor *x, kn_tensor *index, kn_tensor *y, int axis) {
    KN__AS("scatter_add");
    return scattered(KN_OP_scatter_add, x, index, y, axis);
}

/* --- several indices as one, and places of elements that are not zero --- */

/* attr: the sizes that the indices count in; the axis is not used. */
bool kn__infer_index_join(kn_op_call *call) {
    for (int i = 1; i < call->n_in; i++) {
        if (kn__same_shape(call->in[i], call->in[0])) continue;
        return kn_op_call_fail(call, KN_ERR_SHAPE, "index[%d] is not like index[0]", i);
    }
    return kn__like(call, 0, call->in[0]);
}

/* [n, n_dims], or a given one of fewer rows; the first `count` rows are filled; count [1]. */
bool kn__infer_nonzero(kn_op_call *call) {
    const kn_tensor *x = call->in[0];
    int64_t rows = call->given & 1 ? call->out[0]->dim[0] : x->n;
    const int64_t one = 1, dim[2] = {rows, x->n_dims};
    return kn__shaped(call, 0, 2, dim) && kn__shaped(call, 1, 1, &one);
}

/* How many elements of x aren't zero; waits for the device. */
static kn_status count_nonzero(int64_t *out, kn_tensor *x) {
    *out = 0;
    if (x->n == 0) return KN_OK;
    kn_op_call call;
    kn_op_call_init(&call, KN_OP_nonzero, NULL, &x, 1);
    call.want = 2;
    kn_tensor *count = kn_op_run(&call);
    if (!count) return kn_check();
    double value;
    KN_TRY(kn_item(&value, count));
    kn_drop(count);
    *out = (int64_t)value;
    return KN_OK;
}

/* The count comes first: the places may be few, and all of them would be 8 bytes a dimension and
 * element. */
kn_tensor *kn_nonzero(kn_tensor *x) {
    if (!kn__check_readable(KN_OP_nonzero, &x, 1)) return NULL;
    char name[64];
    snprintf(name, sizeof name, "kn_%s", kn__name_in_errors(KN_OP_nonzero));
    kn_status status = kn__capture_forbids(kn__ops_self, name); /* it reads the count */
    int64_t count = 0;
    if (status == KN_OK) status = count_nonzero(&count, x);
    if (status < 0) return kn_error_defer(status);
    kn_tensor *y = kn_tensor_new(x->storage->device, KN_I64, KN_SHAPE(count, x->n_dims));
    if (!y) return NULL;
    kn_op_call call;
    kn_op_call_init(&call, KN_OP_nonzero, NULL, &x, 1);
    status = kn__run_into(&call, y);
    return status == KN_OK ? y : kn_error_defer(status);
}
