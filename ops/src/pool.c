/* Pooling: options made explicit, shapes, checks. */
#include "run.h"

/* --- windows --- */

static int64_t or_one(int64_t n) { return n ? n : 1; }

/* Of dimension i; false when the window does not fit. More padding than half a window would make
 * windows of padding alone. */
static bool set_window(kn_attr_pool *attr, const kn_op_call *call, int i, int64_t window,
                       const kn_pooling_options *o) {
    int64_t in = call->in[0]->dim[2 + i], stride = o->stride[i] ? o->stride[i] : window,
            dilation = or_one(o->dilation[i]), padding = o->padding[i];
    bool counts = window >= 1 && stride >= 1 && dilation >= 1 && padding >= 0 &&
                  window <= INT32_MAX && dilation <= INT32_MAX;
    int64_t reach = counts ? (window - 1) * dilation + 1 : 0;
    if (counts && padding > reach / 2) {
        return kn_op_call_fail(call, KN_ERR_SHAPE,
                               "padding[%d] is %lld; it must be at most half the window's %lld", i,
                               (long long)padding, (long long)reach);
    }
    if (!counts || reach > in + 2 * padding) {
        return kn_op_call_fail(call, KN_ERR_SHAPE,
                               "a window of %lld with stride %lld does not fit in dimension %d",
                               (long long)window, (long long)stride, 2 + i);
    }
    if (padding && window > 1 && dilation > in) {
        return kn_op_call_fail(
            call, KN_ERR_SHAPE,
            "dilation[%d] is %lld and dimension %d has %lld elements: with padding "
            "a window could miss them all",
            i, (long long)dilation, 2 + i, (long long)in);
    }
    int64_t most = in + 2 * padding; /* more is one window as well */
    attr->window[i] = window;
    attr->stride[i] = stride < most ? stride : most;
    attr->padding[i] = padding;
    attr->dilation[i] = dilation;
    return true;
}

static bool options_fit(const kn_op_call *call, const kn_pooling_options *o, int n_spatial) {
    for (int i = n_spatial; i < 3; i++) {
        if (!o->stride[i] && !o->padding[i] && !o->dilation[i]) continue;
        return kn_op_call_fail(call, KN_ERR_INVALID,
                               "stride, padding or dilation [%d] is given, x has %d spatial "
                               "dimensions",
                               i, n_spatial);
    }
    for (int i = 0; i < 4; i++) {
        if (!o->reserved[i]) continue;
        return kn_op_call_fail(call, KN_ERR_INVALID, "reserved[%d] is not zero", i);
    }
    return true;
}

static bool set_windows(kn_attr_pool *attr, const kn_op_call *call, const kn_shape *window,
                        const kn_pooling_options *o) {
    int n_spatial = call->in[0]->n_dims - 2;
    if (n_spatial < 1 || n_spatial > 3 || window->n_dims != n_spatial) {
        return kn_op_call_fail(call, KN_ERR_SHAPE,
                               "x must be [B,C,spatial…] with one to three spatial dimensions; "
                               "window has %d",
                               window->n_dims);
    }
    *attr = (kn_attr_pool){{1, 1, 1}, {1, 1, 1}, {0}, {1, 1, 1}, {0}, n_spatial, 0, 0, 0};
    attr->inside = o->inside != 0;
    attr->ceil = o->ceil != 0;
    if (!options_fit(call, o, n_spatial)) return false;
    int64_t elements = 1;
    for (int i = 0; i < n_spatial; i++) {
        if (!set_window(attr, call, i, window->dim[i], o)) return false;
        if (elements <= 256) elements = window->dim[i] > 256 ? 257 : elements * window->dim[i];
    }
    if (call->op != KN_OP_maxpool || elements <= 256) return true;
    return kn_op_call_fail(call, KN_ERR_UNSUPPORTED,
                           "windows of more than 256 elements are not supported");
}

/* Windows along dimension i. With `ceil` the last one may end behind the padding, if it begins
 * before it. */
static int64_t windows(const kn_tensor *x, const kn_attr_pool *attr, int i) {
    int64_t in = x->dim[2 + i] + 2 * attr->padding[i],
            reach = (attr->window[i] - 1) * attr->dilation[i] + 1, stride = attr->stride[i],
            left = in - reach, n = left / stride + 1;
    bool more = attr->ceil && left % stride && n * stride < x->dim[2 + i] + attr->padding[i];
    return n + more;
}

static bool small_shape(kn_op_call *call, int r, const kn_tensor *x) {
    const kn_attr_pool *attr = call->attr;
    int64_t dim[KN_DIMS_MAX] = {x->dim[0], x->dim[1]};
    for (int i = 0; i < attr->n_spatial; i++) dim[2 + i] = windows(x, attr, i);
    return kn__shaped(call, r, x->n_dims, dim);
}

/* --- the ops --- */

bool kn__infer_maxpool(kn_op_call *call) {
    return small_shape(call, 0, call->in[0]) && small_shape(call, 1, call->in[0]);
}
bool kn__infer_avgpool(kn_op_call *call) { return small_shape(call, 0, call->in[0]); }

static kn_tensor *pool(kn_op op, kn_tensor *x, const kn_shape *window,
                       const kn_pooling_options *options) {
    static const kn_pooling_options defaults = {.ceil = 0};
    kn_attr_pool attr;
    kn_op_call call;
    kn_op_call_init(&call, op, &attr, &x, 1);
    if (!kn__check_inputs(&call)) return NULL;
    if (!set_windows(&attr, &call, window, options ? options : &defaults)) return NULL;
    return kn_op_run(&call);
}

kn_tensor *(kn_maxpool)(kn_tensor *x, kn_shape window, const kn_pooling_options *options) {
    return pool(KN_OP_maxpool, x, &window, options);
}
kn_tensor *(kn_avgpool)(kn_tensor *x, kn_shape window, const kn_pooling_options *options) {
    return pool(KN_OP_avgpool, x, &window, options);
}

/* --- the adjoints: attr.size is the large side's --- */

bool kn__infer_pool_back(kn_op_call *call) {
    const kn_attr_pool *attr = call->attr;
    const kn_tensor *dy = call->in[0];
    if (dy->n_dims != attr->n_spatial + 2) {
        return kn_op_call_fail(call, KN_ERR_SHAPE, "shapes don't fit");
    }
    if (call->n_in == 2 && !kn__same_shape(dy, call->in[1])) {
        return kn_op_call_fail(call, KN_ERR_SHAPE, "shapes differ");
    }
    int64_t dim[KN_DIMS_MAX] = {dy->dim[0], dy->dim[1]};
    for (int i = 0; i < attr->n_spatial; i++) dim[2 + i] = attr->size[i];
    return kn__shaped(call, 0, dy->n_dims, dim);
}

bool kn__infer_maxpool_take(kn_op_call *call) {
    const kn_attr_pool *attr = call->attr;
    if (call->in[0]->n_dims != attr->n_spatial + 2 || call->in[1]->n_dims != attr->n_spatial + 2) {
        return kn_op_call_fail(call, KN_ERR_SHAPE, "shapes don't fit");
    }
    return kn__like(call, 0, call->in[1]);
}
