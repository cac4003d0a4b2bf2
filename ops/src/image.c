/* Ops of images: options made explicit, shapes, checks. */
#include <math.h>

#include "run.h"

/* --- resize --- */

static bool resized(kn_op_call *call, const int64_t *from, const int64_t *to) {
    const kn_attr_resize *attr = call->attr;
    const kn_tensor *x = call->in[0];
    bool fits = x->n_dims == attr->n_spatial + 2;
    for (int i = 0; fits && i < attr->n_spatial; i++) fits = x->dim[2 + i] == from[i];
    if (!fits) return kn_op_call_fail(call, KN_ERR_SHAPE, "shapes don't fit");
    int64_t dim[KN_DIMS_MAX] = {x->dim[0], x->dim[1]};
    for (int i = 0; i < attr->n_spatial; i++) dim[2 + i] = to[i];
    return kn__shaped(call, 0, x->n_dims, dim);
}

bool kn__infer_resize(kn_op_call *call) {
    const kn_attr_resize *attr = call->attr;
    return resized(call, attr->in, attr->out);
}
bool kn__infer_resize_back(kn_op_call *call) {
    const kn_attr_resize *attr = call->attr;
    return resized(call, attr->out, attr->in);
}

/* Of spatial dimension i; a size without dimensions: by the scale. */
static bool set_axis(kn_attr_resize *attr, const kn_op_call *call, int i, const kn_shape *sizes,
                     double scale) {
    const int64_t most = INT64_C(1) << 31;
    int64_t in = call->in[0]->dim[2 + i], size = sizes->n_dims ? sizes->dim[i] : 0;
    if (!sizes->n_dims && scale > 0 && (double)in * scale < (double)most)
        size = (int64_t)((double)in * scale);
    if (in < 1 || in > most || size < 1 || size > most) {
        if (sizes->n_dims)
            return kn_op_call_fail(call, KN_ERR_SHAPE,
                                   "dimension %d has %lld elements; it can't have %lld", 2 + i,
                                   (long long)in, (long long)size);
        return kn_op_call_fail(call, KN_ERR_SHAPE,
                               "dimension %d has %lld elements; it can't be scaled by %g", 2 + i,
                               (long long)in, scale);
    }
    attr->in[i] = in, attr->out[i] = size;
    if (attr->mode == KN_RESIZE_CORNERS)
        attr->ratio[i] = size > 1 ? (double)(in - 1) / (double)(size - 1) : 0;
    else if (scale > 0)
        attr->ratio[i] = 1 / scale;
    else
        attr->ratio[i] = attr->mode == KN_RESIZE_LINEAR ? (double)in / (double)size : 0;
    return true;
}

/* n: of x's spatial dimensions. Exactly one of size and scale is given. */
static bool scale_fits(const kn_op_call *call, const kn_shape *size, const double scale[3], int n) {
    bool has_scale = false;
    for (int i = 0; i < 3; i++) {
        if (scale[i] == 0) continue;
        has_scale = true;
        if (size->n_dims)
            return kn_op_call_fail(call, KN_ERR_INVALID,
                                   "both a size and a scale are given: scale[%d] is %g", i,
                                   scale[i]);
        if (i >= n)
            return kn_op_call_fail(call, KN_ERR_INVALID,
                                   "scale[%d] is %g, but x has %d spatial dimensions", i, scale[i],
                                   n);
    }
    if (size->n_dims || has_scale) return true;
    return kn_op_call_fail(call, KN_ERR_INVALID, "neither a size nor a scale is given");
}

static bool set_axes(kn_attr_resize *attr, const kn_op_call *call, const kn_shape *size,
                     const kn_resize_options *o) {
    int n = call->in[0]->n_dims - 2;
    if (!kn__spatial_fits(call, "size", size->n_dims ? size->n_dims : n)) return false;
    *attr = (kn_attr_resize){.n_spatial = n, .mode = (int32_t)o->mode};
    if (attr->mode < 0 || attr->mode > KN_RESIZE_CORNERS)
        return kn_op_call_fail(call, KN_ERR_INVALID, "invalid mode %d", attr->mode);
    if (!kn__reserved_fit((kn_op)call->op, o->unused, o->reserved, 4)) return false;
    if (!scale_fits(call, size, o->scale, n)) return false;
    for (int i = 0; i < n; i++)
        if (!set_axis(attr, call, i, size, o->scale[i])) return false;
    return true;
}

kn_tensor *kn_resize(kn_tensor *x, kn_shape size, const kn_resize_options *options) {
    static const kn_resize_options defaults = {.mode = KN_RESIZE_NEAREST};
    kn_attr_resize attr;
    kn_op_call call;
    kn_op_call_init(&call, KN_OP_resize, &attr, &x, 1);
    if (!kn__check_inputs(&call)) return NULL;
    return set_axes(&attr, &call, &size, options ? options : &defaults) ? kn_op_run(&call) : NULL;
}

/* --- pixel shuffle --- */

static bool shuffles(const kn_op_call *call, int64_t r, bool back) {
    const kn_tensor *x = call->in[0];
    bool fits = x->n_dims == 4 && r >= 1 && r <= 1 << 15;
    if (fits) fits = back ? !(x->dim[2] % r || x->dim[3] % r) : x->dim[1] % (r * r) == 0;
    if (fits) return true;
    return kn_op_call_fail(call, KN_ERR_SHAPE, "r is %lld; it must divide %s of x [B,C,H,W]",
                           (long long)r, back ? "H and W" : "C twice");
}

static kn_tensor *shuffled(kn_tensor *x, int64_t r, bool back) {
    KN__AS(back ? "pixel_unshuffle" : "pixel_shuffle", "x");
    kn_op_call call;
    kn_op_call_init(&call, KN_OP_transpose, NULL, &x, 1);
    if (!kn__check_inputs(&call) || !shuffles(&call, r, back)) return NULL;
    int64_t b = x->dim[0], c = x->dim[1], h = x->dim[2], w = x->dim[3];
    if (back) {
        x = kn_reshape(x, KN_SHAPE(b, c, h / r, r, w / r, r));
        x = kn_transpose(x, KN_SHAPE(0, 1, 3, 5, 2, 4));
        return kn_reshape(x, KN_SHAPE(b, c * r * r, h / r, w / r));
    }
    x = kn_reshape(x, KN_SHAPE(b, c / r / r, r, r, h, w));
    x = kn_transpose(x, KN_SHAPE(0, 1, 4, 2, 5, 3));
    return kn_reshape(x, KN_SHAPE(b, c / r / r, h * r, w * r));
}

kn_tensor *kn_pixel_shuffle(kn_tensor *x, int64_t r) { return shuffled(x, r, false); }
kn_tensor *kn_pixel_unshuffle(kn_tensor *x, int64_t r) { return shuffled(x, r, true); }

/* --- samples at the places of a grid --- */

/* The centres of n elements, in -1 … 1, as column k of the n_rows·n_columns places. */
static kn_tensor *centres(int64_t h, int64_t w, int k, bool corners) {
    int64_t n = k ? h : w;
    double end = corners ? (n > 1 ? 1 : 0) : 1 - 1.0 / (double)n;
    kn_tensor *line = kn_linspace(0 - end, end, n);
    line = kn_reshape(line, k ? KN_SHAPE(h, 1, 1) : KN_SHAPE(1, w, 1));
    return kn_broadcast(line, KN_SHAPE(h, w, 1));
}

kn_tensor *kn_affine_grid(kn_tensor *theta, int64_t h, int64_t w, bool align_corners) {
    KN__AS("affine_grid", "theta");
    kn_op_call call;
    kn_op_call_init(&call, KN_OP_logsumexp, NULL, &theta, 1); /* one input of floats */
    if (!kn__check_inputs(&call)) return NULL;
    if (theta->n_dims != 3 || theta->dim[1] != 2 || theta->dim[2] != 3)
        return kn__fail_shapes(KN_OP_logsumexp, theta, "theta must be [B,2,3]");
    if (h < 1 || w < 1 || h > INT32_MAX || w > INT32_MAX)
        return kn_op_fail(KN_OP_logsumexp, KN_ERR_SHAPE,
                          "h is %lld and w %lld; both must be in 1 … 2^31 - 1", (long long)h,
                          (long long)w);
    const kn_dtype dtype = (kn_dtype)theta->dtype, wide = dtype == KN_F64 ? KN_F64 : KN_F32;
    KN__FRAME_INSIDE(.device = theta->storage->device, .dtype = wide, .autocast = KN_OFF,
                     .math = KN_MATH_STRICT);
    if (dtype != wide) theta = kn_cast(theta, wide);
    kn_tensor *x = centres(h, w, 0, align_corners), *y = centres(h, w, 1, align_corners);
    kn_tensor *one = x ? kn_filled_like(x, 1) : NULL;
    kn_tensor *base = one ? kn_concat(KN_LIST_(x, y, one), 3, 2) : NULL;
    base = kn_reshape(base, KN_SHAPE(1, h * w, 3));
    kn_tensor *grid = kn_matmul(base, theta, &(kn_matmul_options){.trans_b = 1});
    grid = grid ? kn_reshape(grid, KN_SHAPE(theta->dim[0], h, w, 2)) : NULL;
    return kn__given(grid && dtype != wide ? kn_cast(grid, dtype) : grid);
}

static bool gridded(const kn_op_call *call) {
    const kn_tensor *x = call->in[0], *grid = call->in[1];
    if (x->n_dims != 4 || grid->n_dims != 4 || x->dim[0] != grid->dim[0] || grid->dim[3] != 2)
        return kn_op_call_fail(call, KN_ERR_SHAPE, "x must be [B,C,H,W] and grid [B,N,M,2]");
    if (x->dim[2] > 0 && x->dim[3] > 0) return true;
    return kn_op_call_fail(call, KN_ERR_SHAPE, "x has no elements");
}

bool kn__infer_grid_sample(kn_op_call *call) {
    const kn_tensor *x = call->in[0], *grid = call->in[1];
    if (!gridded(call)) return false;
    return kn__shaped(call, 0, 4, (int64_t[]){x->dim[0], x->dim[1], grid->dim[1], grid->dim[2]});
}
bool kn__infer_grid_sample_back(kn_op_call *call) {
    const kn_tensor *x = call->in[0], *grid = call->in[1];
    if (!gridded(call)) return false;
    if (call->in[2]->n != x->dim[0] * x->dim[1] * grid->dim[1] * grid->dim[2])
        return kn_op_call_fail(call, KN_ERR_SHAPE, "shapes don't fit");
    return kn__like(call, 0, x) && kn__like(call, 1, grid);
}

kn_tensor *kn_grid_sample(kn_tensor *x, kn_tensor *grid, const kn_grid_options *options) {
    static const kn_grid_options defaults = {.nearest = 0};
    const kn_grid_options *o = options ? options : &defaults;
    kn_attr_grid attr = {o->nearest, o->border, o->align_corners, 0};
    kn_op_call call;
    kn_op_call_init(&call, KN_OP_grid_sample, &attr, KN_LIST_(x, grid), 2);
    if (!kn__check_readable(KN_OP_grid_sample, call.in, 2)) return NULL;
    if (!kn__reserved_fit(KN_OP_grid_sample, o->unused, o->reserved, 4)) return NULL;
    if (!kn__flag_fit(KN_OP_grid_sample, "nearest", &attr.nearest) ||
        !kn__flag_fit(KN_OP_grid_sample, "border", &attr.border) ||
        !kn__flag_fit(KN_OP_grid_sample, "align_corners", &attr.align))
        return NULL;
    return kn_op_run(&call);
}
