/* Convolution: options made explicit, shapes, checks. */
#include <stdio.h>

#include "run.h"

static bool options_fail(const kn_op_call *call, const kn_conv_options *o, int n_spatial) {
    static const char *const names[] = {"stride", "padding", "dilation", "padding_extra"};
    const int64_t *fields[] = {o->stride, o->padding, o->dilation, o->padding_extra};
    for (int f = 0; f < 4; f++) {
        for (int i = 0; i < 3; i++) {
            int64_t least = f < 3 ? 0 : call->op == KN_OP_conv_data ? -INT32_MAX : -o->padding[i];
            if (fields[f][i] < least) {
                kn_op_fail((kn_op)call->op, KN_ERR_INVALID,
                           "%s[%d] is %lld; it must be at least %lld", names[f], i,
                           (long long)fields[f][i], (long long)least);
                return true;
            }
            if (i >= n_spatial && fields[f][i] != 0) {
                kn_op_call_fail(call, KN_ERR_INVALID,
                                "%s[%d] is given, x has %d spatial dimensions", names[f], i,
                                n_spatial);
                return true;
            }
        }
    }
    if (!kn__act_fits((kn_op)call->op, (int)o->act)) return true;
    if (!kn__reserved_fit((kn_op)call->op, 0, o->reserved, 4)) return true;
    if (o->groups < 0) {
        kn_op_fail((kn_op)call->op, KN_ERR_INVALID, "groups is %lld", (long long)o->groups);
    }
    return o->groups < 0;
}

static kn_attr_conv explicit_options(const kn_conv_options *o, int n_spatial) {
    kn_attr_conv attr = {.groups = o->groups ? o->groups : 1,
                         .n_spatial = n_spatial,
                         .flip = o->flip,
                         .act = (int32_t)o->act};
    for (int i = 0; i < 3; i++) {
        attr.stride[i] = o->stride[i] ? o->stride[i] : 1;
        attr.padding[i] = o->padding[i];
        if (__builtin_add_overflow(o->padding[i], o->padding_extra[i], &attr.padding_end[i]))
            attr.padding_end[i] = INT64_MAX;
        attr.dilation[i] = o->dilation[i] ? o->dilation[i] : 1;
    }
    return attr;
}

static bool ranks_fit(const kn_op_call *call) {
    const kn_tensor *x = call->in[0], *w = call->in[1];
    if (x->n_dims >= 3 && x->n_dims <= 5 && w->n_dims == x->n_dims) return true;
    return kn_op_call_fail(call, KN_ERR_SHAPE,
                           "x must be [B,C,spatial…] with one to three spatial dimensions and w "
                           "[O,C/groups,window…] with as many");
}

static bool channels_fit(const kn_op_call *call, const kn_attr_conv *attr) {
    const kn_tensor *x = call->in[0], *w = call->in[1], *b = call->in[2];
    int64_t groups = attr->groups, wanted;
    bool overflows = __builtin_mul_overflow(w->dim[1], groups, &wanted);
    if (w->dim[0] % groups) {
        return kn_op_call_fail(call, KN_ERR_SHAPE, "%lld outputs can't be cut in %lld groups",
                               (long long)w->dim[0], (long long)groups);
    }
    if (overflows) {
        return kn_op_call_fail(call, KN_ERR_SHAPE, "%lld groups are too many", (long long)groups);
    }
    if (wanted == 0) return kn_op_call_fail(call, KN_ERR_SHAPE, "w has no channels");
    if (x->dim[1] != wanted) {
        char text[64] = "";
        if (groups > 1) snprintf(text, sizeof text, " in %lld groups", (long long)groups);
        return kn_op_call_fail(call, KN_ERR_SHAPE, "x has %lld channels, w expects %lld%s",
                               (long long)x->dim[1], (long long)wanted, text);
    }
    if (b != &kn__none && (b->n_dims != 1 || b->dim[0] != w->dim[0])) {
        return kn_op_call_fail(call, KN_ERR_SHAPE, "b must be [%lld]", (long long)w->dim[0]);
    }
    return true;
}

/* The padded input and the window of spatial dimension i, in elements; false when they can't be
 * counted. Options are held to 31 bits, so that the kernels' index arithmetic can't overflow. */
static bool extents(int64_t *padded, int64_t *window, const kn_op_call *call, int i) {
    const kn_attr_conv *attr = call->attr;
    int64_t in = call->in[0]->dim[2 + i], size = call->in[1]->dim[2 + i];
    if (attr->stride[i] > INT32_MAX || attr->padding[i] > INT32_MAX ||
        attr->padding_end[i] > INT32_MAX || attr->dilation[i] > INT32_MAX)
        return false;
    return !__builtin_add_overflow(in, attr->padding[i] + attr->padding_end[i], padded) &&
           !__builtin_mul_overflow(size - 1, attr->dilation[i], window) &&
           !__builtin_add_overflow(*window, 1, window);
}

bool kn__infer_conv(kn_op_call *call) {
    const kn_attr_conv *attr = call->attr;
    const kn_tensor *x = call->in[0], *w = call->in[1];
    if (!ranks_fit(call) || !channels_fit(call, attr)) return false;
    int64_t dim[KN_DIMS_MAX] = {x->dim[0], w->dim[0]};
    for (int i = 0; i < attr->n_spatial; i++) {
        int64_t padded, window;
        if (!extents(&padded, &window, call, i)) {
            return kn_op_call_fail(call, KN_ERR_SHAPE,
                                   "stride %lld, padding %lld, dilation %lld are too large for "
                                   "dimension %d",
                                   (long long)attr->stride[i], (long long)attr->padding[i],
                                   (long long)attr->dilation[i], 2 + i);
        }
        if (w->dim[2 + i] < 1 || window > padded) {
            return kn_op_call_fail(call, KN_ERR_SHAPE,
                                   "a window of %lld does not fit in %lld elements of dimension %d",
                                   (long long)(w->dim[2 + i] < 1 ? 0 : window), (long long)padded,
                                   2 + i);
        }
        dim[2 + i] = (padded - window) / attr->stride[i] + 1;
    }
    return kn__shaped(call, 0, x->n_dims, dim);
}

bool kn__infer_conv_act(kn_op_call *call) {
    const kn_tensor *r = call->in[3];
    if (!kn__infer_conv(call)) return false;
    if (r == &kn__none || kn__same_shape(r, call->out[0])) return true;
    char p[96];
    return kn_op_call_fail(call, KN_ERR_SHAPE, "the residual must be %s",
                           kn_shape_text(p, sizeof p, kn_tensor_shape(call->out[0])));
}

/* Gradients that read more than the result are of ops recorded apart. */
static kn_tensor *run(kn_op_call *call, kn_attr_conv *attr) {
    kn_act act = (kn_act)attr->act;
    if (!kn_act_keeps_result(act) && kn_op_recording(call->in, 4)) {
        attr->act = KN_ACT_NONE;
        return kn__act_apart(run(call, attr), act);
    }
    if (act == KN_ACT_NONE && call->in[3] == KN_NONE) call->op = KN_OP_conv, call->n_in = 3;
    return kn_op_run(call);
}

kn_tensor *kn_conv_add(kn_tensor *x, kn_tensor *w, kn_tensor *b, kn_tensor *residual,
                       const kn_conv_options *options) {
    KN__AS("conv_add", "x", "w", "b", "residual");
    static const kn_conv_options defaults = {.groups = 0};
    kn_attr_conv attr;
    kn_op_call call;
    kn_op_call_init(&call, KN_OP_conv_act, &attr, KN_LIST_(x, w, b, residual), 4);
    if (!kn__check_inputs(&call) || !ranks_fit(&call)) return NULL;
    if (!options) options = &defaults;
    if (options_fail(&call, options, x->n_dims - 2)) return NULL;
    attr = explicit_options(options, x->n_dims - 2);
    if (!kn__flag_fit((kn_op)call.op, "flip", &attr.flip)) return NULL;
    return run(&call, &attr);
}

kn_tensor *kn_conv(kn_tensor *x, kn_tensor *w, kn_tensor *b, const kn_conv_options *options) {
    KN__AS("conv");
    return kn_conv_add(x, w, b, KN_NONE, options);
}

/* --- transposed --- */

static kn_tensor *deconv_fail(const kn_tensor *x, const kn_tensor *w, const char *why) {
    char a[96], b[96];
    return KN_FAIL_NULL(KN_ERR_SHAPE, "kn_deconv: %s (x %s, w %s)", why,
                        kn_shape_text(a, sizeof a, kn_tensor_shape(x)),
                        kn_shape_text(b, sizeof b, kn_tensor_shape(w)));
}

/* The size of each spatial dimension: the least that a convolution takes to x's. The first one that
 * would be empty, or with which the result can't be counted; -1: none. */
static int deconv_sizes(kn_attr_conv *attr, const kn_tensor *x, const kn_tensor *w) {
    kn_shape y = {.n_dims = 2, .dim = {x->dim[0], w->dim[1] * attr->groups}};
    for (int i = 0; i < attr->n_spatial; i++) {
        int64_t grown, window, size;
        if (attr->stride[i] > INT32_MAX || attr->padding[i] > INT32_MAX ||
            attr->padding_end[i] > INT32_MAX || attr->dilation[i] > INT32_MAX)
            return i;
        if (x->dim[2 + i] < 1 || w->dim[2 + i] < 1 ||
            __builtin_mul_overflow(x->dim[2 + i] - 1, attr->stride[i], &grown) ||
            __builtin_mul_overflow(w->dim[2 + i] - 1, attr->dilation[i], &window) ||
            __builtin_add_overflow(grown, window, &size) ||
            __builtin_sub_overflow(size, attr->padding[i] + attr->padding_end[i], &size) ||
            size < 0 || __builtin_add_overflow(size, 1, &attr->size[i]))
            return i;
        y.dim[y.n_dims++] = attr->size[i];
        if (kn__shape_numel(&y) < 0) return i;
    }
    return -1;
}

/* Ends of the result that no window reaches: their padding is negative, which kernels don't take.
 */
typedef struct deconv_ends {
    int64_t keep[3], after[3]; /* elements of the kernel's result that count; zeros after them */
    bool cuts, pads;
} deconv_ends;

/* Takes them off what the kernel makes: where windows reach nothing, an element that is cut. */
static deconv_ends ends_take(kn_attr_conv *attr) {
    deconv_ends ends = {.cuts = false};
    for (int i = 0; i < attr->n_spatial; i++) {
        int64_t end = attr->padding_end[i] < 0 ? attr->padding_end[i] : 0;
        int64_t reached = attr->size[i] + end;
        ends.keep[i] = reached > 0 ? reached : 0;
        ends.after[i] = attr->size[i] - ends.keep[i];
        ends.cuts |= reached < 1;
        ends.pads |= end < 0;
        attr->padding_end[i] -= end;
        if (reached < 1) attr->padding[i] += reached - 1;
        attr->size[i] = reached > 0 ? reached : 1;
    }
    return ends;
}

static kn_tensor *ends_put(kn_tensor *y, const deconv_ends *ends) {
    if (!y || !ends->pads) return y;
    kn_shape none = {.n_dims = y->n_dims}, stop = kn_tensor_shape(y), after = none;
    for (int i = 0; i < y->n_dims - 2; i++) {
        stop.dim[2 + i] = ends->keep[i];
        after.dim[2 + i] = ends->after[i];
    }
    if (ends->cuts) y = kn_slice(y, none, stop);
    return kn_pad(y, none, after, KN_PAD_CONSTANT, 0);
}

static kn_tensor *deconv_finish(kn_tensor *y, kn_tensor *b, kn_act act) {
    if (y && b != KN_NONE) {
        kn_shape shape = {.n_dims = y->n_dims - 1, .dim = {y->dim[1]}};
        for (int i = 1; i < shape.n_dims; i++) shape.dim[i] = 1;
        y = kn_add(y, kn_reshape(b, shape));
    }
    return kn__act_apart(y, act);
}

kn_tensor *kn_deconv(kn_tensor *x, kn_tensor *w, kn_tensor *b, const kn_conv_options *options) {
    KN__AS("deconv", "x", "w", "b");
    static const kn_conv_options defaults = {.groups = 0};
    kn_attr_conv attr;
    kn_op_call call;
    kn_op_call_init(&call, KN_OP_conv_data, &attr, KN_LIST_(x, w), 2);
    if (!kn__check_inputs(&call)) return NULL;
    if (b != KN_NONE && !kn__check_readable(KN_OP_conv, KN_LIST_(x, w, b), 3)) return NULL;
    if (!options) options = &defaults;
    if (x->n_dims < 3 || x->n_dims > 5 || w->n_dims != x->n_dims)
        return deconv_fail(x, w, "x must be [B,O,spatial…], w [O,C/groups,window…] with as many");
    if (options_fail(&call, options, x->n_dims - 2)) return NULL;
    attr = explicit_options(options, x->n_dims - 2);
    if (!kn__flag_fit((kn_op)call.op, "flip", &attr.flip)) return NULL;
    attr.act = KN_ACT_NONE;
    int64_t channels;
    if (x->dim[1] != w->dim[0] || w->dim[0] % attr.groups || w->dim[1] < 1 ||
        __builtin_mul_overflow(w->dim[1], attr.groups, &channels))
        return deconv_fail(x, w, "channels and groups don't fit");
    if (b != KN_NONE && (b->n_dims != 1 || b->dim[0] != channels))
        return deconv_fail(x, w, "b must have an element for each channel of the result");
    int bad = deconv_sizes(&attr, x, w);
    if (bad >= 0) {
        char why[256];
        snprintf(why, sizeof why,
                 "dimension %d of the result would be empty or too large: stride %lld, padding "
                 "%lld and %lld, dilation %lld",
                 2 + bad, (long long)attr.stride[bad], (long long)attr.padding[bad],
                 (long long)attr.padding_end[bad], (long long)attr.dilation[bad]);
        return deconv_fail(x, w, why);
    }
    deconv_ends ends = ends_take(&attr);
    return deconv_finish(ends_put(kn_op_run(&call), &ends), b, options->act);
}

/* --- the gradients: shapes come from rules, which have them from kn_conv --- */

/* dy [B,O,…], w [O,C/groups,…] → dx [B,C,size…] */
bool kn__infer_conv_data(kn_op_call *call) {
    const kn_attr_conv *attr = call->attr;
    const kn_tensor *dy = call->in[0], *w = call->in[1];
    if (dy->n_dims != attr->n_spatial + 2 || w->n_dims != dy->n_dims || dy->dim[1] != w->dim[0]) {
        return kn_op_call_fail(call, KN_ERR_SHAPE, "shapes don't fit");
    }
    int64_t dim[KN_DIMS_MAX] = {dy->dim[0], w->dim[1] * attr->groups};
    for (int i = 0; i < attr->n_spatial; i++) dim[2 + i] = attr->size[i];
    return kn__shaped(call, 0, dy->n_dims, dim);
}

/* x [B,C,…], dy [B,O,…] → dw [O,C/groups,size…] */
bool kn__infer_conv_weight(kn_op_call *call) {
    const kn_attr_conv *attr = call->attr;
    const kn_tensor *x = call->in[0], *dy = call->in[1];
    if (x->n_dims != attr->n_spatial + 2 || dy->n_dims != x->n_dims || x->dim[0] != dy->dim[0] ||
        x->dim[1] % attr->groups) {
        return kn_op_call_fail(call, KN_ERR_SHAPE, "shapes don't fit");
    }
    int64_t dim[KN_DIMS_MAX] = {dy->dim[1], x->dim[1] / attr->groups};
    for (int i = 0; i < attr->n_spatial; i++) dim[2 + i] = attr->size[i];
    return kn__shaped(call, 0, x->n_dims, dim);
}
