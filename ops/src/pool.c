/* Pooling: options made explicit, shapes, checks. */
#include "run.h"

/* --- windows --- */

static int64_t or_one(int64_t n) { return n ? n : 1; }

/* Whether the kernels can count with the numbers of dimension i. */
static bool counts(const kn_op_call *call, int i, int64_t window, const kn_pooling_options *o,
                   int64_t stride_most) {
    static const char *const names[] = {"window", "stride", "padding", "dilation"};
    const int64_t value[] = {window, o->stride[i], o->padding[i], o->dilation[i]};
    const int64_t most[] = {INT32_MAX, stride_most, INT64_MAX, INT32_MAX};
    for (int k = 0; k < 4; k++) {
        int64_t least = k == 0;
        if (value[k] >= least && value[k] <= most[k]) continue;
        return kn_op_call_fail(
            call, k ? KN_ERR_INVALID : KN_ERR_SHAPE, "%s[%d] is %lld; it must be %s", names[k], i,
            (long long)value[k],
            value[k] < least ? (least ? "at least 1" : "at least 0") : "below 2^31");
    }
    int64_t reach = (window - 1) * or_one(o->dilation[i]) + 1;
    if (o->padding[i] <= reach / 2) return true;
    return kn_op_call_fail(call, KN_ERR_SHAPE,
                           "padding[%d] is %lld; it must be at most half the window's %lld", i,
                           (long long)o->padding[i], (long long)reach);
}

/* Of dimension i; false when the window does not fit. More padding than half a window would make
 * windows of padding alone. */
static bool set_window(kn_attr_pool *attr, const kn_op_call *call, int i, int64_t window,
                       const kn_pooling_options *o) {
    int64_t in = call->in[0]->dim[2 + i], stride = o->stride[i] ? o->stride[i] : window,
            dilation = or_one(o->dilation[i]), padding = o->padding[i];
    if (!counts(call, i, window, o, INT64_MAX)) return false;
    int64_t reach = (window - 1) * dilation + 1;
    int64_t beyond = attr->ceil && in > 0 ? stride - 1 : 0; /* one window, as far as x goes */
    if (reach - beyond > in + 2 * padding) {
        return kn_op_call_fail(
            call, KN_ERR_SHAPE, "a window of %lld with stride %lld does not fit in dimension %d%s",
            (long long)reach, (long long)stride, 2 + i, dilation > 1 ? ", dilated as it is" : "");
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

static bool options_fit(kn_attr_pool *attr, const kn_op_call *call, const kn_pooling_options *o,
                        int n_spatial) {
    const kn_op op = (kn_op)call->op;
    attr->ceil = o->ceil, attr->inside = o->inside, attr->skip_nan = o->skip_nan;
    for (int i = n_spatial; i < 3; i++) {
        if (!o->stride[i] && !o->padding[i] && !o->dilation[i]) continue;
        return kn_op_call_fail(call, KN_ERR_INVALID,
                               "stride, padding or dilation [%d] is given, x has %d spatial "
                               "dimensions",
                               i, n_spatial);
    }
    return kn__reserved_fit(op, o->unused, o->reserved, 3) &&
           kn__flag_fit(op, "ceil", &attr->ceil) && kn__flag_fit(op, "inside", &attr->inside) &&
           kn__flag_fit(op, "skip_nan", &attr->skip_nan);
}

static bool set_windows(kn_attr_pool *attr, const kn_op_call *call, const kn_shape *window,
                        const kn_pooling_options *o) {
    int n_spatial = call->in[0]->n_dims - 2;
    if (!kn__spatial_fits(call, "window", window->n_dims)) return false;
    *attr = (kn_attr_pool){{1, 1, 1}, {1, 1, 1}, {0}, {1, 1, 1}, {0}, n_spatial, 0, 0, 0};
    if (!options_fit(attr, call, o, n_spatial)) return false;
    if (call->op != KN_OP_maxpool) attr->skip_nan = 0;
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
    if (!attr->stride[i]) return attr->size[i];
    int64_t in = x->dim[2 + i] + 2 * attr->padding[i],
            reach = (attr->window[i] - 1) * attr->dilation[i] + 1, stride = attr->stride[i],
            left = in - reach, n = left / stride + 1;
    if (left < 0) return 1;
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

kn_tensor *kn_maxpool(kn_tensor *x, kn_shape window, const kn_pooling_options *options) {
    return pool(KN_OP_maxpool, x, &window, options);
}
kn_tensor *kn_avgpool(kn_tensor *x, kn_shape window, const kn_pooling_options *options) {
    return pool(KN_OP_avgpool, x, &window, options);
}

kn_status kn_maxpool_index(kn_tensor **values, kn_tensor **offsets, kn_tensor *x, kn_shape window,
                           const kn_pooling_options *options) {
    KN__AS("maxpool_index");
    static const kn_pooling_options defaults = {.ceil = 0};
    kn_attr_pool attr;
    kn_op_call call;
    if (values) *values = NULL;
    if (offsets) *offsets = NULL;
    KN_TRY(kn_check());
    if (!values && !offsets) {
        kn_op_fail(KN_OP_maxpool, KN_ERR_INVALID, "values and offsets are NULL");
        return kn_check();
    }
    kn_op_call_init(&call, KN_OP_maxpool, &attr, &x, 1);
    if (!kn__check_inputs(&call)) return kn_check();
    if (!set_windows(&attr, &call, &window, options ? options : &defaults)) return kn_check();
    call.want = offsets ? 3 : 1; /* offsets are by-products of values */
    if (!kn_op_run(&call)) return kn_check();
    if (values) *values = call.out[0];
    if (offsets) *offsets = call.out[1];
    return KN_OK;
}

/* --- back from the windows: attr.size is the large side's --- */

/* Of dimension i: the size that is asked for (0: the least), if it has as many windows as x. */
static bool set_size(kn_attr_pool *attr, const kn_op_call *call, const kn_tensor *x, int i,
                     int64_t size) {
    int64_t n = x->dim[2 + i], reach = (attr->window[i] - 1) * attr->dilation[i] + 1;
    int64_t beyond = attr->ceil ? attr->stride[i] - 1 : 0; /* as in set_window */
    if (!size) size = (n - 1) * attr->stride[i] + reach - 2 * attr->padding[i];
    kn_tensor large = {.n_dims = 3};
    for (int d = 0; d < 3; d++) large.dim[2 + d] = size;
    attr->size[i] = size;
    if (n >= 1 && size >= 1 && size + 2 * attr->padding[i] >= reach - beyond &&
        windows(&large, attr, i) == n)
        return true;
    return kn_op_call_fail(call, KN_ERR_SHAPE, "size[%d] is %lld; it doesn't have %lld windows", i,
                           (long long)size, (long long)n);
}

/* The element of x that offset i names, or the lack of one. */
static bool is_inside(const kn_attr_pool *attr, const kn_tensor *x, int64_t i, int64_t offset) {
    for (int d = attr->n_spatial - 1; d >= 0; d--) {
        int64_t n = x->dim[2 + d];
        int64_t at = i % n * attr->stride[d] - attr->padding[d] +
                     offset % attr->window[d] * attr->dilation[d];
        if (at < 0 || at >= attr->size[d]) return false;
        i /= n;
        offset /= attr->window[d];
    }
    return offset == 0;
}

/* The host's kernel writes to these places. Elsewhere a wrong one is skipped. */
static bool offsets_fit(const kn_op_call *call) {
    const kn_attr_pool *attr = call->attr;
    const kn_tensor *x = call->in[0], *offsets = call->in[1];
    if (offsets->dtype != KN_U8)
        return kn_op_call_fail(call, KN_ERR_DTYPE, "offsets must be u8, as of kn_maxpool_index");
    if (!kn__same_shape(x, offsets)) return kn_op_call_fail(call, KN_ERR_SHAPE, "shapes differ");
    if (kn_device_kind_get(call->device) != KN_DEVICE_HOST) return true;
    bool whole = true; /* every window lies inside */
    int64_t elements = 1;
    for (int d = 0; d < attr->n_spatial; d++) {
        int64_t reach = (attr->window[d] - 1) * attr->dilation[d] + 1;
        whole &=
            !attr->padding[d] && (x->dim[2 + d] - 1) * attr->stride[d] + reach <= attr->size[d];
        if (elements <= 256) elements = attr->window[d] > 256 ? 257 : elements * attr->window[d];
    }
    const uint8_t *offset = offsets->data;
    for (int64_t i = 0; i < offsets->n; i++) {
        if (whole ? offset[i] < elements : is_inside(attr, x, i, offset[i])) continue;
        return kn_op_call_fail(call, KN_ERR_INVALID, "offset %d of element %lld is outside",
                               offset[i], (long long)i);
    }
    return true;
}

static kn_tensor *inverse(kn_op op, kn_tensor *const in[], int n_in, const kn_shape *window,
                          const kn_shape *size, const kn_pooling_options *o) {
    kn_attr_pool attr = {{1, 1, 1}, {1, 1, 1}, {0}, {1, 1, 1}, {0}, 0, 0, 0, 0};
    kn_op_call call;
    kn_op_call_init(&call, op, &attr, in, n_in);
    if (!kn__check_inputs(&call)) return NULL;
    int n = attr.n_spatial = in[0]->n_dims - 2;
    if (!kn__spatial_fits(&call, "window", window->n_dims) ||
        !kn__spatial_fits(&call, "size", size->n_dims ? size->n_dims : n))
        return NULL;
    if (!options_fit(&attr, &call, o, n)) return NULL;
    attr.inside = op == KN_OP_avgpool_back ? 2 : 0;
    attr.skip_nan = 0;
    for (int i = 0; i < n; i++) {
        if (!counts(&call, i, window->dim[i], o, INT32_MAX)) return NULL;
        attr.window[i] = window->dim[i];
        attr.stride[i] = o->stride[i] ? o->stride[i] : window->dim[i];
        attr.padding[i] = o->padding[i];
        attr.dilation[i] = or_one(o->dilation[i]);
        if (!set_size(&attr, &call, in[0], i, size->n_dims ? size->dim[i] : 0)) return NULL;
    }
    return n_in == 1 || offsets_fit(&call) ? kn_op_run(&call) : NULL;
}

kn_tensor *kn_maxunpool(kn_tensor *x, kn_tensor *offsets, kn_shape window, kn_shape size,
                        const kn_pooling_options *options) {
    KN__AS("maxunpool", "x", "offsets");
    static const kn_pooling_options defaults = {.ceil = 0};
    return inverse(KN_OP_maxpool_back, KN_LIST_(x, offsets), 2, &window, &size,
                   options ? options : &defaults);
}

/* The adjoint of sums over windows. */
kn_tensor *kn_unpool(kn_tensor *x, kn_shape window, const kn_pooling_options *options) {
    KN__AS("unpool", "x");
    static const kn_pooling_options defaults = {.ceil = 0};
    const kn_shape least = KN_SCALAR;
    return inverse(KN_OP_avgpool_back, &x, 1, &window, &least, options ? options : &defaults);
}

/* --- the adjoints --- */

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
