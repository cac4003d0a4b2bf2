/* Windows of an image as columns, and columns added up again: rows gathered and added along each
 * spatial dimension. */
#include <stdlib.h>

#include "run.h"

/* One spatial dimension. */
typedef struct axis {
    int64_t in;               /* elements of the image */
    int64_t window, count;    /* elements of a window; windows */
    int64_t stride, dilation; /* at least 1 */
    int64_t padding, whole;   /* on each side; in with both */
} axis;

typedef struct windows {
    int n; /* spatial dimensions */
    axis axis[3];
} windows;

static bool option_fits(const kn_op_call *call, const char *name, int i, int64_t value, int n,
                        int64_t least) {
    if (i >= n && value) {
        return kn_op_call_fail(call, KN_ERR_INVALID, "%s[%d] is given for %d spatial dimensions",
                               name, i, n);
    }
    if (value >= least && value <= INT32_MAX) return true;
    return kn_op_call_fail(call, KN_ERR_INVALID, "%s[%d] is %lld; it must be in %lld … 2^31 - 1",
                           name, i, (long long)value, (long long)least);
}

static bool options_fit(const kn_op_call *call, const kn_unfold_options *o, int n) {
    if (!kn__reserved_fit((kn_op)call->op, 0, o->reserved, 4)) return false;
    for (int i = 0; i < 3; i++) {
        if (!option_fits(call, "stride", i, o->stride[i], n, 0) ||
            !option_fits(call, "padding", i, o->padding[i], n, 0) ||
            !option_fits(call, "dilation", i, o->dilation[i], n, 0))
            return false;
    }
    return true;
}

static bool axis_read(axis *a, const kn_op_call *call, int i, const kn_unfold_options *o) {
    a->stride = o->stride[i] ? o->stride[i] : 1;
    a->dilation = o->dilation[i] ? o->dilation[i] : 1;
    a->padding = o->padding[i];
    if (a->in < 0 || a->in > INT32_MAX)
        return kn_op_call_fail(call, KN_ERR_SHAPE, "dimension %d is %lld", i, (long long)a->in);
    a->whole = a->in + 2 * a->padding;
    bool fits = a->window >= 1 && a->window <= INT32_MAX;
    int64_t reach = fits ? (a->window - 1) * a->dilation + 1 : 0;
    if (!fits || reach > a->whole)
        return kn_op_call_fail(call, KN_ERR_SHAPE,
                               "a window of %lld does not fit in %lld elements of dimension %d",
                               (long long)(fits ? reach : a->window), (long long)a->whole, i);
    a->count = (a->whole - reach) / a->stride + 1;
    return true;
}

/* size: of the image's spatial dimensions. */
static bool windows_read(windows *w, const kn_op_call *call, const kn_shape *window,
                         const int64_t size[], const kn_unfold_options *options) {
    static const kn_unfold_options defaults = {.stride = {0}};
    const kn_unfold_options *o = options ? options : &defaults;
    if (!options_fit(call, o, w->n)) return false;
    if (window->n_dims != w->n)
        return kn_op_call_fail(call, KN_ERR_SHAPE,
                               "the window has %d dimensions; there are %d spatial ones",
                               window->n_dims, w->n);
    for (int i = 0; i < w->n; i++) {
        w->axis[i].in = size[i];
        w->axis[i].window = window->dim[i];
        if (!axis_read(&w->axis[i], call, i, o)) return false;
    }
    return true;
}

/* [window, count]: the place of each element of each window. */
static kn_tensor *places(const kn_tensor *x, const axis *a) {
    int64_t *p = calloc((size_t)a->window, (size_t)a->count * sizeof *p);
    if (!p) return KN_FAIL_NULL(KN_ERR_OOM, "no host memory for windows");
    for (int64_t k = 0; k < a->window; k++)
        for (int64_t i = 0; i < a->count; i++)
            p[k * a->count + i] = i * a->stride + k * a->dilation;
    kn_tensor *t = kn__constant_from(kn_tensor_device(x), p, KN_I64, KN_SHAPE(a->window, a->count));
    free(p);
    return t;
}

/* [0,0,padding…] */
static kn_shape padding_of(const windows *w) {
    kn_shape padding = {.n_dims = 2 + w->n};
    for (int i = 0; i < w->n; i++) padding.dim[2 + i] = w->axis[i].padding;
    return padding;
}

static kn_tensor *unfolded(kn_tensor *x, const windows *w) {
    KN__FRAME_INSIDE();
    kn_shape padding = padding_of(w), order = {.n_dims = 2 + 2 * w->n, .dim = {0, 1}};
    int64_t elements = x->dim[1], count = 1;
    kn_tensor *y = kn_pad(x, padding, padding, KN_PAD_CONSTANT, 0);
    for (int i = w->n - 1; i >= 0 && y; i--) y = kn_index_select(y, places(x, &w->axis[i]), 2 + i);
    for (int i = 0; i < w->n; i++) { /* [B,C,window,count,…]: windows first */
        order.dim[2 + i] = 2 + 2 * i;
        order.dim[2 + w->n + i] = 3 + 2 * i;
        elements *= w->axis[i].window;
        count *= w->axis[i].count;
    }
    if (w->n > 1) y = kn_transpose(y, order);
    return kn__given(kn_reshape(y, KN_SHAPE(x->dim[0], elements, count)));
}

kn_tensor *kn_unfold(kn_tensor *x, kn_shape window, const kn_unfold_options *options) {
    KN__AS("unfold", "x");
    kn_op_call call;
    kn_op_call_init(&call, KN_OP_pad, NULL, &x, 1);
    if (!kn__check_readable(KN_OP_pad, &x, 1)) return NULL;
    windows w = {.n = x->n_dims - 2};
    if (w.n < 1 || w.n > 3)
        return kn__fail_shapes(KN_OP_pad, x,
                               "x must be [B,C,spatial…] with one to three spatial dimensions");
    if (!windows_read(&w, &call, &window, x->dim + 2, options)) return NULL;
    return unfolded(x, &w);
}

/* y [B,C,window,count,…]. */
static kn_tensor *added(kn_tensor *y, const windows *w) {
    for (int i = 0; i < w->n && y; i++) {
        kn_shape shape = {.n_dims = y->n_dims - 1};
        for (int k = 0; k < shape.n_dims; k++) shape.dim[k] = y->dim[k < 2 + i ? k : k + 1];
        shape.dim[2 + i] = w->axis[i].whole;
        y = kn_index_add(kn__filled(y, 0, (kn_dtype)y->dtype, shape), places(y, &w->axis[i]), y,
                         2 + i);
    }
    return y;
}

static kn_tensor *folded(kn_tensor *y, const windows *w, int64_t channels) {
    KN__FRAME_INSIDE();
    kn_shape shape = {.n_dims = 2 + 2 * w->n, .dim = {y->dim[0], channels}}, order = shape;
    for (int i = 0; i < w->n; i++) {
        shape.dim[2 + i] = w->axis[i].window;
        shape.dim[2 + w->n + i] = w->axis[i].count;
        order.dim[2 + 2 * i] = 2 + i;
        order.dim[3 + 2 * i] = 2 + w->n + i;
    }
    order.dim[0] = 0, order.dim[1] = 1;
    kn_tensor *x = kn_reshape(y, shape);
    x = added(w->n > 1 ? kn_transpose(x, order) : x, w);
    if (!x) return NULL;
    kn_shape start = padding_of(w), stop = kn_tensor_shape(x);
    for (int i = 0; i < w->n; i++) stop.dim[2 + i] = w->axis[i].padding + w->axis[i].in;
    return kn__given(kn_slice(x, start, stop));
}

kn_tensor *kn_fold(kn_tensor *y, kn_shape size, kn_shape window, const kn_unfold_options *options) {
    KN__AS("fold", "y");
    kn_op_call call;
    kn_op_call_init(&call, KN_OP_pad, NULL, &y, 1);
    if (!kn__check_readable(KN_OP_pad, &y, 1)) return NULL;
    windows w = {.n = size.n_dims};
    if (w.n < 1 || w.n > 3)
        return kn__fail_shapes(KN_OP_pad, y, "size has %d dimensions; it must have one to three",
                               w.n);
    if (!windows_read(&w, &call, &window, size.dim, options)) return NULL;
    int64_t elements = 1, count = 1;
    bool fits = y->n_dims == 3;
    for (int i = 0; i < w.n; i++)
        fits &= !__builtin_mul_overflow(elements, w.axis[i].window, &elements) &&
                !__builtin_mul_overflow(count, w.axis[i].count, &count);
    if (!fits || y->dim[1] % elements || y->dim[2] != count)
        return kn__fail_shapes(KN_OP_pad, y,
                               "y must be [B, C·%lld, %lld] for windows of %lld elements",
                               (long long)elements, (long long)count, (long long)elements);
    return folded(y, &w, y->dim[1] / elements);
}
