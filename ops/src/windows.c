/* Windows of an image as columns, and columns added up again: the elements of each channel are
 * gathered, or added, at one list of places. */
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
    int n;                   /* spatial dimensions */
    int64_t elements, count; /* of a window; windows */
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
        return kn_op_call_fail(call, KN_ERR_SHAPE, "dimension %d is %lld", 2 + i, (long long)a->in);
    a->whole = a->in + 2 * a->padding;
    bool fits = a->window >= 1 && a->window <= INT32_MAX;
    int64_t reach = fits ? (a->window - 1) * a->dilation + 1 : 0;
    if (!fits || reach > a->whole)
        return kn_op_call_fail(call, KN_ERR_SHAPE,
                               "a window of %lld does not fit in %lld elements of dimension %d",
                               (long long)(fits ? reach : a->window), (long long)a->whole, 2 + i);
    a->count = (a->whole - reach) / a->stride + 1;
    return true;
}

static bool counted(windows *w, const kn_op_call *call) {
    int64_t all;
    w->elements = w->count = 1;
    bool fits = true;
    for (int i = 0; i < w->n; i++)
        fits &= !__builtin_mul_overflow(w->elements, w->axis[i].window, &w->elements) &&
                !__builtin_mul_overflow(w->count, w->axis[i].count, &w->count);
    if (fits && !__builtin_mul_overflow(w->elements, w->count, &all)) return true;
    return kn_op_call_fail(call, KN_ERR_SHAPE, "the windows have too many elements");
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
    return counted(w, call);
}

/* [0,0,padding…] */
static kn_shape padding_of(const windows *w) {
    kn_shape padding = {.n_dims = 2 + w->n};
    for (int i = 0; i < w->n; i++) padding.dim[2 + i] = w->axis[i].padding;
    return padding;
}

/* Elements of the padded image. */
static int64_t whole_of(const windows *w) {
    int64_t n = 1;
    for (int i = 0; i < w->n; i++)
        if (__builtin_mul_overflow(n, w->axis[i].whole, &n)) return INT64_MAX;
    return n;
}

/* Places in the padded image, row-major. which: 0: of a window's elements; 1: of windows. */
static void places_fill(int64_t *out, const windows *w, int which) {
    int64_t inner = 1, run = 1;
    out[0] = 0;
    for (int i = w->n - 1; i >= 0; i--) {
        const axis *a = &w->axis[i];
        int64_t size = which ? a->count : a->window, step = which ? a->stride : a->dilation;
        for (int64_t k = size - 1; k >= 0; k--)
            for (int64_t j = 0; j < run; j++) out[k * run + j] = out[j] + k * step * inner;
        run *= size, inner *= a->whole;
    }
}

/* [elements·windows]: where each element of each window lies in the padded image. */
static kn_tensor *places_of(const kn_tensor *t, const windows *w) {
    const int64_t elements = w->elements, count = w->count;
    int64_t *of_window = calloc((size_t)(elements + count), sizeof *of_window);
    int64_t *all = calloc((size_t)elements, (size_t)count * sizeof *all), *to = all;
    kn_tensor *index = NULL;
    if (of_window && all) {
        int64_t *of_count = of_window + elements;
        places_fill(of_window, w, 0);
        places_fill(of_count, w, 1);
        for (int64_t k = 0; k < elements; k++)
            for (int64_t i = 0; i < count; i++) *to++ = of_window[k] + of_count[i];
        index = kn__constant_from(kn_tensor_device(t), all, KN_I64, KN_SHAPE(elements * count));
    } else {
        (void)KN_FAIL_NULL(KN_ERR_OOM, "no host memory for windows");
    }
    free(of_window);
    free(all);
    return index;
}

static kn_tensor *unfolded(kn_tensor *x, const windows *w) {
    KN__FRAME_INSIDE();
    kn_shape padding = padding_of(w);
    int64_t batch = x->dim[0], channels = x->dim[1];
    kn_tensor *y = kn_pad(x, padding, padding, KN_PAD_CONSTANT, 0);
    y = kn_reshape(y, KN_SHAPE(batch, channels, whole_of(w)));
    y = kn_index_select(y, y ? places_of(y, w) : NULL, 2);
    return kn__given(kn_reshape(y, KN_SHAPE(batch, channels * w->elements, w->count)));
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

static kn_tensor *folded(kn_tensor *y, const windows *w) {
    KN__FRAME_INSIDE();
    int64_t batch = y->dim[0], channels = y->dim[1] / w->elements;
    kn_shape shape = {.n_dims = 2 + w->n, .dim = {batch, channels}};
    for (int i = 0; i < w->n; i++) shape.dim[2 + i] = w->axis[i].whole;
    kn_tensor *x = kn__filled(y, 0, (kn_dtype)y->dtype, KN_SHAPE(batch, channels, whole_of(w)));
    y = kn_reshape(y, KN_SHAPE(batch, channels, w->elements * w->count));
    x = x && y ? kn_reshape(kn_index_add(x, places_of(y, w), y, 2), shape) : NULL;
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
    if (y->n_dims != 3 || y->dim[1] % w.elements || y->dim[2] != w.count)
        return kn__fail_shapes(KN_OP_pad, y,
                               "y must be [B, C·%lld, %lld] for windows of %lld elements",
                               (long long)w.elements, (long long)w.count, (long long)w.elements);
    return folded(y, &w);
}
