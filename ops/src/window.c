/* Convolution and pooling: options made explicit, shapes, checks. */
#include <stdio.h>

#include "run.h"

/* --- convolution --- */

static bool options_bad(kn_tensor *const in[3], const kn_conv_options *o, int n_spatial) {
    const kn_op op = KN_OP_conv;
    static const char *const names[] = {"stride", "padding", "dilation"};
    const int64_t *fields[] = {o->stride, o->padding, o->dilation};
    for (int f = 0; f < 3; f++) {
        for (int i = 0; i < 3; i++) {
            if (fields[f][i] < 0) {
                kn_op_fail(op, KN_ERR_INVALID, "%s[%d] is %lld", names[f], i,
                           (long long)fields[f][i]);
                return true;
            }
            if (i >= n_spatial && fields[f][i] != 0) {
                kn__fail_inputs(op, "x w b", in, 3, KN_ERR_INVALID,
                                "%s[%d] is given, x has %d spatial dimensions", names[f], i,
                                n_spatial);
                return true;
            }
        }
    }
    for (int i = 0; i < 4; i++) {
        if (!o->reserved[i]) continue;
        kn_op_fail(op, KN_ERR_INVALID, "reserved[%d] is not zero", i);
        return true;
    }
    if (o->groups < 0) kn_op_fail(op, KN_ERR_INVALID, "groups is %lld", (long long)o->groups);
    return o->groups < 0;
}

static kn_attr_conv explicit_options(const kn_conv_options *o, int n_spatial) {
    kn_attr_conv attr = {
        .groups = o->groups ? o->groups : 1, .n_spatial = n_spatial, .flip = o->flip != 0};
    for (int i = 0; i < 3; i++) {
        attr.stride[i] = o->stride[i] ? o->stride[i] : 1;
        attr.padding[i] = o->padding[i];
        attr.dilation[i] = o->dilation[i] ? o->dilation[i] : 1;
    }
    return attr;
}

static bool ranks_fit(kn_op op, kn_tensor *const in[3]) {
    const kn_tensor *x = in[0], *w = in[1];
    if (x->n_dims >= 3 && x->n_dims <= 5 && w->n_dims == x->n_dims) return true;
    kn__fail_inputs(op, "x w b", in, 3, KN_ERR_SHAPE,
                    "x must be [B,C,spatial…] with one to three spatial dimensions and w "
                    "[O,C/groups,window…] with as many");
    return false;
}

static bool channels_fit(kn_op op, kn_tensor *const in[3], const kn_attr_conv *attr) {
    const kn_tensor *x = in[0], *w = in[1], *b = in[2];
    int64_t groups = attr->groups, wanted;
    bool overflows = __builtin_mul_overflow(w->dim[1], groups, &wanted);
    if (w->dim[0] % groups) {
        kn__fail_inputs(op, "x w b", in, 3, KN_ERR_SHAPE,
                        "%lld outputs can't be cut in %lld groups", (long long)w->dim[0],
                        (long long)groups);
    } else if (overflows) {
        kn__fail_inputs(op, "x w b", in, 3, KN_ERR_SHAPE, "%lld groups are too many",
                        (long long)groups);
    } else if (x->dim[1] != wanted || wanted == 0) {
        char text[64] = "";
        if (groups > 1) snprintf(text, sizeof text, " in %lld groups", (long long)groups);
        kn__fail_inputs(op, "x w b", in, b == &kn__none ? 2 : 3, KN_ERR_SHAPE,
                        "x has %lld channels, w expects %lld%s", (long long)x->dim[1],
                        (long long)wanted, text);
    } else if (b != &kn__none && (b->n_dims != 1 || b->dim[0] != w->dim[0])) {
        kn__fail_inputs(op, "x w b", in, 3, KN_ERR_SHAPE, "b must be [%lld]", (long long)w->dim[0]);
    } else {
        return true;
    }
    return false;
}

/* The padded input and the window of spatial dimension i, in elements; false when they can't be
 * counted. Options are held to 31 bits, so that the kernels' index arithmetic can't overflow. */
static bool conv_extents(int64_t *padded, int64_t *window, const kn_tensor *x, const kn_tensor *w,
                         const kn_attr_conv *attr, int i) {
    if (attr->stride[i] > INT32_MAX || attr->padding[i] > INT32_MAX ||
        attr->dilation[i] > INT32_MAX)
        return false;
    return !__builtin_add_overflow(x->dim[2 + i], 2 * attr->padding[i], padded) &&
           !__builtin_mul_overflow(w->dim[2 + i] - 1, attr->dilation[i], window) &&
           !__builtin_add_overflow(*window, 1, window);
}

/* Each spatial size of the result; false with the error pending when the window is larger than the
 * padded input. */
static bool conv_shape(kn_shape *out, kn_op op, kn_tensor *const in[3], const kn_attr_conv *attr) {
    const kn_tensor *x = in[0], *w = in[1];
    *out = (kn_shape){{x->dim[0], w->dim[0]}, x->n_dims};
    for (int i = 0; i < attr->n_spatial; i++) {
        int64_t padded, window;
        if (!conv_extents(&padded, &window, x, w, attr, i)) {
            kn__fail_inputs(op, "x w b", in, 3, KN_ERR_SHAPE,
                            "stride %lld, padding %lld, dilation %lld are too large for dimension "
                            "%d",
                            (long long)attr->stride[i], (long long)attr->padding[i],
                            (long long)attr->dilation[i], 2 + i);
            return false;
        }
        if (w->dim[2 + i] < 1 || window > padded) {
            kn__fail_inputs(op, "x w b", in, 3, KN_ERR_SHAPE,
                            "a window of %lld does not fit in %lld elements of dimension %d",
                            (long long)(w->dim[2 + i] < 1 ? 0 : window), (long long)padded, 2 + i);
            return false;
        }
        out->dim[2 + i] = (padded - window) / attr->stride[i] + 1;
    }
    return true;
}

kn_tensor *kn_conv_attr(kn_tensor *x, kn_tensor *w, kn_tensor *b, const kn_attr_conv *attr) {
    const kn_op op = KN_OP_conv;
    kn_tensor *in[] = {x, w, b};
    if (!kn__floats_check(op, "x w b", in, 3, 1u << 2) || !ranks_fit(op, in)) return NULL;
    kn_op_call call = {.op = op,
                       .n_in = 3,
                       .in = in,
                       .attr = attr,
                       .attr_bytes = sizeof *attr,
                       .dtype = (kn_dtype)x->dtype};
    if (!channels_fit(op, in, attr) || !conv_shape(&call.shape, op, in, attr)) return NULL;
    return kn_op_run(&call);
}

kn_tensor *(kn_conv)(kn_tensor *x, kn_tensor *w, kn_tensor *b, const kn_conv_options *options) {
    static const kn_conv_options defaults = {.groups = 0};
    const kn_op op = KN_OP_conv;
    kn_tensor *in[] = {x, w, b};
    if (!kn__floats_check(op, "x w b", in, 3, 1u << 2) || !ranks_fit(op, in)) return NULL;
    if (!options) options = &defaults;
    if (options_bad(in, options, x->n_dims - 2)) return NULL;
    kn_attr_conv attr = explicit_options(options, x->n_dims - 2);
    return kn_conv_attr(x, w, b, &attr);
}

/* The gradients' inputs come from gradient rules: their shapes were checked by kn_conv. */
kn_tensor *kn_conv_data(kn_tensor *dy, kn_tensor *w, kn_shape x_shape, const kn_attr_conv *attr) {
    kn_tensor *in[] = {dy, w};
    if (!kn__floats_check(KN_OP_conv_data, "dy w", in, 2, 0)) return NULL;
    if (dy->n_dims != x_shape.n_dims || w->n_dims != dy->n_dims || dy->dim[1] != w->dim[0]) {
        return kn__fail_inputs(KN_OP_conv_data, "dy w", in, 2, KN_ERR_SHAPE, "shapes don't fit");
    }
    kn_op_call call = {.op = KN_OP_conv_data,
                       .n_in = 2,
                       .in = in,
                       .attr = attr,
                       .attr_bytes = sizeof *attr,
                       .dtype = (kn_dtype)dy->dtype,
                       .shape = x_shape};
    return kn_op_run(&call);
}

kn_tensor *kn_conv_weight(kn_tensor *x, kn_tensor *dy, kn_shape w_shape, const kn_attr_conv *attr,
                          kn_tensor *into) {
    const kn_op op = KN_OP_conv_weight;
    kn_tensor *in[] = {x, dy, into};
    if (!kn__floats_check(op, "x dy into", in, into ? 3 : 2, 0)) return NULL;
    if (x->n_dims != w_shape.n_dims || dy->n_dims != x->n_dims || dy->dim[1] != w_shape.dim[0] ||
        x->dim[0] != dy->dim[0] || (into && into->n != kn__shape_numel(&w_shape))) {
        return kn__fail_inputs(op, "x dy into", in, into ? 3 : 2, KN_ERR_SHAPE, "shapes don't fit");
    }
    kn_op_call call = {.op = op,
                       .n_in = 2,
                       .in = in,
                       .out = into,
                       .attr = attr,
                       .attr_bytes = sizeof *attr,
                       .dtype = (kn_dtype)x->dtype,
                       .shape = w_shape,
                       .accumulate = into != NULL};
    if (x->n) return kn_op_run(&call);
    if (into) return into; /* an empty batch adds nothing */
    kn_attr_scalars zero = {0, 0};
    kn_op_call fill = {.op = KN_OP_fill,
                       .attr = &zero,
                       .attr_bytes = sizeof zero,
                       .dtype = call.dtype,
                       .shape = w_shape,
                       .device = x->storage->device};
    return kn_op_run(&fill);
}

/* --- pooling --- */

static bool pool_attr(kn_attr_pool *attr, kn_op op, kn_tensor *x, const kn_shape *window,
                      const kn_shape *stride) {
    int n_spatial = x->n_dims - 2;
    if (n_spatial < 1 || n_spatial > 3 || window->n_dims != n_spatial ||
        (stride->n_dims != 0 && stride->n_dims != n_spatial)) {
        kn__fail_inputs(op, "x", &x, 1, KN_ERR_SHAPE,
                        "x must be [B,C,spatial…] with one to three spatial dimensions; window has "
                        "%d, stride %d",
                        window->n_dims, stride->n_dims);
        return false;
    }
    *attr = (kn_attr_pool){{1, 1, 1}, {1, 1, 1}, n_spatial};
    int64_t elements = 1;
    for (int i = 0; i < n_spatial; i++) {
        int64_t w = window->dim[i], s = stride->n_dims ? stride->dim[i] : w;
        if (w < 1 || s < 1 || w > x->dim[2 + i]) {
            kn__fail_inputs(op, "x", &x, 1, KN_ERR_SHAPE,
                            "a window of %lld with stride %lld does not fit in dimension %d",
                            (long long)w, (long long)s, 2 + i);
            return false;
        }
        attr->window[i] = w;
        attr->stride[i] = s < x->dim[2 + i] ? s : x->dim[2 + i]; /* more is one window as well */
        if (elements <= 256) elements = w > 256 ? w : elements * w;
    }
    if (op == KN_OP_maxpool && elements > 256) {
        kn__fail_inputs(op, "x", &x, 1, KN_ERR_UNSUPPORTED,
                        "windows of more than 256 elements are not supported");
        return false;
    }
    return true;
}

static kn_shape pool_shape(const kn_tensor *x, const kn_attr_pool *attr) {
    kn_shape shape = kn_tensor_shape(x);
    for (int i = 0; i < attr->n_spatial; i++) {
        shape.dim[2 + i] = (x->dim[2 + i] - attr->window[i]) / attr->stride[i] + 1;
    }
    return shape;
}

static kn_tensor *pool(kn_op op, kn_tensor *x, const kn_attr_pool *attr) {
    kn_op_call call = {.op = op,
                       .n_in = 1,
                       .in = &x,
                       .attr = attr,
                       .attr_bytes = sizeof *attr,
                       .dtype = (kn_dtype)x->dtype,
                       .shape = pool_shape(x, attr)};
    if (op == KN_OP_maxpool && kn_op_recording(&x, 1)) {
        call.want_aux = true;
        call.aux_dtype = KN_U8;
        call.aux_shape = call.shape;
    }
    return kn_op_run(&call);
}

kn_tensor *(kn_maxpool)(kn_tensor *x, kn_shape window, kn_shape stride) {
    kn_attr_pool attr;
    if (!kn__floats_check(KN_OP_maxpool, "x", &x, 1, 0)) return NULL;
    return pool_attr(&attr, KN_OP_maxpool, x, &window, &stride) ? pool(KN_OP_maxpool, x, &attr)
                                                                : NULL;
}

kn_tensor *(kn_avgpool)(kn_tensor *x, kn_shape window, kn_shape stride) {
    kn_attr_pool attr;
    if (!kn__floats_check(KN_OP_avgpool, "x", &x, 1, 0)) return NULL;
    return pool_attr(&attr, KN_OP_avgpool, x, &window, &stride) ? pool(KN_OP_avgpool, x, &attr)
                                                                : NULL;
}

kn_tensor *kn_avgpool_attr(kn_tensor *x, const kn_attr_pool *attr) {
    return kn__floats_check(KN_OP_avgpool, "x", &x, 1, 0) ? pool(KN_OP_avgpool, x, attr) : NULL;
}

/* The adjoints: `shape` is the other side's. */
static kn_tensor *pool_adjoint(kn_op op, const char *names, kn_tensor *const in[], int n_in,
                               const kn_shape *shape, const kn_attr_pool *attr) {
    kn_op_call call = {.op = op,
                       .n_in = n_in,
                       .in = in,
                       .attr = attr,
                       .attr_bytes = sizeof *attr,
                       .dtype = (kn_dtype)in[0]->dtype,
                       .shape = *shape};
    if (in[0]->n_dims != shape->n_dims || shape->n_dims != attr->n_spatial + 2) {
        return kn__fail_inputs(op, names, in, n_in, KN_ERR_SHAPE, "shapes don't fit");
    }
    return kn_op_run(&call);
}

kn_tensor *kn_maxpool_back(kn_tensor *dy, kn_tensor *offsets, kn_shape x_shape,
                           const kn_attr_pool *attr) {
    const kn_op op = KN_OP_maxpool_back;
    kn_tensor *in[] = {dy, offsets};
    if (!kn__inputs_check(op, "dy offsets", in, 2, 0)) return NULL;
    if (!kn__floats_check(op, "dy", &dy, 1, 0)) return NULL;
    if (!kn__same_shape(dy, offsets)) {
        return kn__fail_inputs(op, "dy offsets", in, 2, KN_ERR_SHAPE, "shapes differ");
    }
    return pool_adjoint(op, "dy offsets", in, 2, &x_shape, attr);
}

kn_tensor *kn_maxpool_take(kn_tensor *x, kn_tensor *offsets, kn_shape y_shape,
                           const kn_attr_pool *attr) {
    const kn_op op = KN_OP_maxpool_take;
    kn_tensor *in[] = {x, offsets};
    if (!kn__inputs_check(op, "x offsets", in, 2, 0)) return NULL;
    if (!kn__floats_check(op, "x", &x, 1, 0)) return NULL;
    return pool_adjoint(op, "x offsets", in, 2, &y_shape, attr);
}

kn_tensor *kn_avgpool_back(kn_tensor *dy, kn_shape x_shape, const kn_attr_pool *attr) {
    if (!kn__floats_check(KN_OP_avgpool_back, "dy", &dy, 1, 0)) return NULL;
    return pool_adjoint(KN_OP_avgpool_back, "dy", &dy, 1, &x_shape, attr);
}
