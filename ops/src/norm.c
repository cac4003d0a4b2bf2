/* Normalization: shapes, options, running statistics. */
#include "run.h"

/* --- what infer checks: attr describes x --- */

static bool describes(const kn_op_call *call, const kn_tensor *x) {
    const kn_attr_normalize *a = call->attr;
    if (a->outer * a->groups * a->channels * a->inner == x->n) return true;
    return kn_op_call_fail(call, KN_ERR_SHAPE, "x is not [%lld,%lld,%lld,%lld]",
                           (long long)a->outer, (long long)a->groups, (long long)a->channels,
                           (long long)a->inner);
}

static bool has_n(const kn_op_call *call, int i, int64_t n, const char *of) {
    const kn_tensor *t = call->in[i];
    if (t == KN_NONE || t->n == n) return true;
    return kn_op_call_fail(call, KN_ERR_SHAPE, "%s has %lld elements; %s are %lld",
                           kn_op_table[call->op].in_name[i], (long long)t->n, of, (long long)n);
}

/* Whether input i has x's dimensions `from` to `to`; dimensions of one element don't count. */
static bool has_dims(const kn_op_call *call, int i, int from, int to) {
    const kn_tensor *x = call->in[0], *t = call->in[i];
    if (t == KN_NONE) return true;
    int d = 0;
    bool fits = true;
    for (int k = from; k < to && fits; k++) {
        if (x->dim[k] == 1) continue;
        while (d < t->n_dims && t->dim[d] == 1) d++;
        fits = d < t->n_dims && t->dim[d++] == x->dim[k];
    }
    while (d < t->n_dims && t->dim[d] == 1) d++;
    if (fits && d == t->n_dims) return true;
    char has[128], want[128];
    kn_shape shape = {.n_dims = to - from};
    for (int k = from; k < to; k++) shape.dim[k - from] = x->dim[k];
    return kn_op_call_fail(call, KN_ERR_SHAPE, "%s is %s; it must be %s",
                           kn_op_table[call->op].in_name[i],
                           kn_shape_text(has, sizeof has, kn_tensor_shape(t)),
                           kn_shape_text(want, sizeof want, shape));
}

static bool one_dim(kn_op_call *call, int r, int64_t n) { return kn__shaped(call, r, 1, &n); }

bool kn__infer_batchnorm(kn_op_call *call) {
    const kn_attr_normalize *a = call->attr;
    const kn_tensor *x = call->in[0];
    if (!describes(call, x)) return false;
    for (int i = 1; i < 5; i++)
        if (!has_n(call, i, a->channels, "channels")) return false;
    int64_t n = a->outer * a->inner;
    if (n < (a->ranks ? 1 : 2)) {
        return kn_op_call_fail(call, KN_ERR_SHAPE, "a channel has %lld elements; training takes %s",
                               (long long)n,
                               a->ranks ? "one or more on every rank" : "two or more");
    }
    if (a->ranks && kn_device_kind_get(call->device) != KN_DEVICE_HOST) {
        return kn_op_call_fail(call, KN_ERR_UNSUPPORTED,
                               "ranks share statistics of tensors on the host; x is on %s",
                               kn_device_name(call->device));
    }
    return kn__like(call, 0, x) && one_dim(call, 1, a->channels) && one_dim(call, 2, a->channels);
}

bool kn__infer_batchnorm_eval(kn_op_call *call) {
    const kn_attr_normalize *a = call->attr;
    if (!describes(call, call->in[0])) return false;
    for (int i = 1; i < 5; i++)
        if (!has_n(call, i, a->channels, "channels")) return false;
    return kn__like(call, 0, call->in[0]);
}

bool kn__infer_rownorm(kn_op_call *call) {
    const kn_attr_normalize *a = call->attr;
    const kn_tensor *x = call->in[0];
    if (!describes(call, x)) return false;
    for (int i = 1; i < call->n_in; i++)
        if (!has_n(call, i, a->groups * a->channels, "channels")) return false;
    if (a->channels * a->inner < 1) {
        return kn_op_call_fail(call, KN_ERR_SHAPE, "there are no elements to normalize");
    }
    if (!kn__like(call, 0, x)) return false;
    for (int r = 1; r < call->n_out; r++)
        if (!one_dim(call, r, a->outer * a->groups)) return false;
    return true;
}

/* g, x, weight, and statistics of `n` → dx, dweight, dbias */
static bool back(kn_op_call *call, int64_t n) {
    const kn_attr_normalize *a = call->attr;
    const kn_tensor *x = call->in[1];
    if (call->in[0]->n != x->n) return kn_op_call_fail(call, KN_ERR_SHAPE, "shapes differ");
    int64_t channels = a->groups * a->channels;
    if (!describes(call, x) || !has_n(call, 2, channels, "channels")) return false;
    if (!has_n(call, 3, n, "statistics") || !has_n(call, 4, n, "statistics")) return false;
    return kn__like(call, 0, x) && one_dim(call, 1, channels) && one_dim(call, 2, channels);
}

bool kn__infer_batchnorm_back(kn_op_call *call) {
    return back(call, ((const kn_attr_normalize *)call->attr)->channels);
}

bool kn__infer_rownorm_back(kn_op_call *call) {
    const kn_attr_normalize *a = call->attr;
    return back(call, a->outer * a->groups);
}

/* --- 16-bit floats: x's storage alone; all else is f32 --- */

/* Whether input i is of f32 or, where it may be, of x's 16 bits; what can't be read fails later. */
static bool is_wide_or(const kn_op_call *call, int i, int like) {
    const kn_tensor *t = call->in[i];
    if (!kn__is_whole(t) || t->dtype == KN_F32 || t->dtype == like) return true;
    const char *x = kn_dtype_name((kn_dtype)call->in[0]->dtype);
    return kn_op_call_fail(call, KN_ERR_DTYPE, "%s is %s; beside x of %s it must be f32%s%s",
                           kn_op_table[call->op].in_name[i], kn_dtype_name((kn_dtype)t->dtype), x,
                           like < 0 ? "" : " or ", like < 0 ? "" : x);
}

/* in: x of 16 bits, n_stats running statistics, weight and bias. */
static bool half_inputs_fit(kn_op op, kn_tensor *const in[], int n_in, int n_stats) {
    kn_op_call call;
    kn_op_call_init(&call, op, NULL, in, n_in);
    for (int i = 1; i < n_in; i++)
        if (!is_wide_or(&call, i, i <= n_stats ? -1 : in[0]->dtype)) return false;
    return true;
}

static kn_tensor *widened(kn_tensor *t) {
    return t && t != KN_NONE && kn__is_half(t->dtype) ? kn_cast(t, KN_F32) : t;
}

/* in, with the weights behind x in f32. */
static void widen_rest(kn_tensor *wide[], kn_tensor *const in[], int n_in) {
    for (int i = 0; i < n_in; i++) wide[i] = i ? widened(in[i]) : in[i];
}

static kn_tensor *narrowed(kn_tensor *y, const kn_tensor *like) {
    return y ? kn_cast(y, (kn_dtype)like->dtype) : NULL;
}

/* --- rows --- */

static kn_tensor *normalized(kn_op op, kn_tensor *const in[], int n_in, double eps,
                             bool (*set)(kn_attr_normalize *attr, const kn_op_call *call,
                                         int64_t by),
                             int64_t by) {
    kn_attr_normalize attr = {.eps = eps};
    kn_op_call call;
    kn_tensor *wide[3] = {NULL};
    if (!kn__check_readable(op, in, 1)) return NULL;
    if (kn__is_half(in[0]->dtype)) {
        if (!half_inputs_fit(op, in, n_in, 0)) return NULL;
        widen_rest(wide, in, n_in);
        in = wide;
    }
    kn_op_call_init(&call, op, &attr, in, n_in);
    if (!kn__check_inputs(&call)) return NULL;
    if (!(eps >= 0)) {
        kn_op_call_fail(&call, KN_ERR_INVALID, "eps is %g; it must not be negative", eps);
        return NULL;
    }
    return set(&attr, &call, by) ? kn_op_run(&call) : NULL;
}

/* The last n dimensions are a row. */
static bool by_axes(kn_attr_normalize *attr, const kn_op_call *call, int64_t n) {
    const kn_tensor *x = call->in[0];
    if (n < 1 || n > x->n_dims) {
        return kn_op_call_fail(call, KN_ERR_SHAPE, "n_axes is %lld; x has %d dimensions",
                               (long long)n, x->n_dims);
    }
    attr->outer = attr->groups = attr->channels = attr->inner = 1;
    for (int i = 0; i < x->n_dims; i++)
        *(i < x->n_dims - n ? &attr->outer : &attr->channels) *= x->dim[i];
    for (int i = 1; i < call->n_in; i++)
        if (!has_dims(call, i, x->n_dims - (int)n, x->n_dims)) return false;
    return true;
}

/* x [B,C,…]: C channels in n groups. */
static bool by_groups(kn_attr_normalize *attr, const kn_op_call *call, int64_t n) {
    const kn_tensor *x = call->in[0];
    if (x->n_dims < 2) return kn_op_call_fail(call, KN_ERR_SHAPE, "x must be [B,C,…]");
    int64_t channels = x->dim[1];
    if (n < 1 || channels % n) {
        return kn_op_call_fail(call, KN_ERR_SHAPE, "%lld channels don't make %lld groups",
                               (long long)channels, (long long)n);
    }
    *attr = (kn_attr_normalize){
        .eps = attr->eps, .outer = x->dim[0], .groups = n, .channels = channels / n, .inner = 1};
    for (int i = 2; i < x->n_dims; i++) attr->inner *= x->dim[i];
    for (int i = 1; i < call->n_in; i++)
        if (!has_dims(call, i, 1, 2)) return false;
    return true;
}

static bool by_channels(kn_attr_normalize *attr, const kn_op_call *call, int64_t unused) {
    (void)unused;
    return by_groups(attr, call, call->in[0]->dim[1]);
}

kn_tensor *kn_layernorm(kn_tensor *x, kn_tensor *weight, kn_tensor *bias, int n_axes, double eps) {
    return normalized(KN_OP_layernorm, KN_LIST_(x, weight, bias), 3, eps, by_axes, n_axes);
}

kn_tensor *kn_rmsnorm(kn_tensor *x, kn_tensor *weight, int n_axes, double eps) {
    return normalized(KN_OP_rmsnorm, KN_LIST_(x, weight), 2, eps, by_axes, n_axes);
}

kn_tensor *kn_groupnorm(kn_tensor *x, kn_tensor *weight, kn_tensor *bias, int64_t groups,
                        double eps) {
    return normalized(KN_OP_groupnorm, KN_LIST_(x, weight, bias), 3, eps, by_groups, groups);
}

kn_tensor *kn_instancenorm(kn_tensor *x, kn_tensor *weight, kn_tensor *bias, double eps) {
    KN__AS("instancenorm");
    return normalized(KN_OP_groupnorm, KN_LIST_(x, weight, bias), 3, eps, by_channels, 0);
}

/* --- batches --- */

/* The kernel writes into the running statistics. Casts that autocast makes of them would be written
 * in their place, and lost. */
static bool are_of_x(const kn_op_call *call) {
    const kn_tensor *x = call->in[0];
    for (int i = 1; i < 3; i++) {
        const kn_tensor *t = call->in[i];
        if (t == KN_NONE || t->dtype == kn__computed(x->dtype)) continue;
        return kn_op_call_fail(call, KN_ERR_DTYPE, "x is %s, %s is %s; see kn_cast",
                               kn_dtype_name((kn_dtype)x->dtype), kn_op_table[call->op].in_name[i],
                               kn_dtype_name((kn_dtype)t->dtype));
    }
    return true;
}

static kn_status claim(const kn_op_call *call) {
    kn__ops_thread *self = kn__ops_thread_get();
    if (!self) return kn_check();
    if (!self->frame) return KN_OK; /* kn_op_run says so */
    kn_pool *pool = NULL;
    kn_stream stream = NULL;
    if (kn__place(&pool, &stream, self, call->device) < 0) return kn_check();
    for (int i = 1; i < 3; i++) {
        if (call->in[i] != KN_NONE) KN_TRY(kn__claim(self, call->in[i]->storage, stream));
    }
    return KN_OK;
}

static bool batch_attr(kn_attr_normalize *attr, const kn_op_call *call,
                       const kn_batchnorm_options *o) {
    const kn_tensor *x = call->in[0];
    double momentum = o->momentum == 0 ? 0.1 : o->momentum, eps = o->eps == 0 ? 1e-5 : o->eps;
    if (!kn__reserved_fit((kn_op)call->op, 0, o->reserved, 3)) return false;
    const kn_batch_ranks *r = o->ranks;
    if (r && (!r->gather_fn || r->rank < 0 || r->rank >= r->size)) {
        return kn_op_call_fail(call, KN_ERR_INVALID, "ranks: rank %d of %d%s", r->rank, r->size,
                               r->gather_fn ? "" : ", without gather_fn");
    }
    if (!(eps > 0) || !(momentum > 0 && momentum <= 1)) {
        return kn_op_call_fail(call, KN_ERR_INVALID,
                               "eps is %g, momentum %g; they must be above 0, momentum at most 1",
                               eps, momentum);
    }
    if (x->n_dims < 2) return kn_op_call_fail(call, KN_ERR_SHAPE, "x must be [B,C,…]");
    *attr = (kn_attr_normalize){.eps = eps,
                                .momentum = momentum,
                                .outer = x->dim[0],
                                .groups = 1,
                                .channels = x->dim[1],
                                .inner = 1,
                                .ranks = o->training && r && r->size > 1 ? r : NULL};
    for (int i = 2; i < x->n_dims; i++)
        *(o->per_activation ? &attr->channels : &attr->inner) *= x->dim[i];
    for (int i = 1; i < 5; i++)
        if (o->per_activation ? !has_n(call, i, attr->channels, "elements of a sample")
                              : !has_dims(call, i, 1, 2))
            return false;
    if (!o->training && (call->in[1] == KN_NONE || call->in[2] == KN_NONE)) {
        return kn_op_call_fail(call, KN_ERR_INVALID,
                               "without .training it takes the running mean and variance");
    }
    if ((call->in[1] == KN_NONE) == (call->in[2] == KN_NONE)) return true;
    return kn_op_call_fail(call, KN_ERR_INVALID, "of the running mean and variance one is KN_NONE");
}

kn_tensor *kn_batchnorm(kn_tensor *x, kn_tensor *running_mean, kn_tensor *running_var,
                        kn_tensor *weight, kn_tensor *bias, const kn_batchnorm_options *options) {
    static const kn_batchnorm_options defaults = {.training = 0};
    kn_batchnorm_options given = options ? *options : defaults, *o = &given;
    kn_tensor *in[] = {x, running_mean, running_var, weight, bias};
    kn_attr_normalize attr;
    kn_op_call call;
    if (!kn__check_readable(KN_OP_batchnorm, in, 1)) return NULL;
    if (!kn__flag_fit(KN_OP_batchnorm, "training", &o->training) ||
        !kn__flag_fit(KN_OP_batchnorm, "per_activation", &o->per_activation))
        return NULL;
    if (kn__is_half(x->dtype)) {
        if (!half_inputs_fit(KN_OP_batchnorm, in, 5, 2)) return NULL;
        widen_rest(in, in, 5);
    }
    kn_op_call_init(&call, KN_OP_batchnorm, &attr, in, 5);
    if (!kn__check_inputs(&call) || !batch_attr(&attr, &call, o)) return NULL;
    if (!o->training) return kn_op_call_run(KN_OP_batchnorm_eval, &attr, in, 5);
    if (!are_of_x(&call)) return NULL;
    kn_status status = claim(&call);
    return status < 0 ? kn_error_defer(status) : kn_op_run(&call);
}

/* --- neighbouring channels --- */

/* The mean of x² over `size` channels, x [B,C,inner] in its padding of zeros: what lies beyond all
 * channels on a side adds nothing. */
static kn_tensor *mean_squares(kn_tensor *x, int64_t size) {
    int64_t c = x->dim[1], before = size / 2 < c ? size / 2 : c;
    int64_t after = (size - 1) / 2 < c ? (size - 1) / 2 : c, used = before + after + 1;
    const kn_pooling_options each = {.stride = {1, 1}};
    kn_tensor *squares = kn_reshape(kn_square(x), KN_SHAPE(x->dim[0], 1, c, x->dim[2]));
    squares =
        kn_pad(squares, KN_SHAPE(0, 0, before, 0), KN_SHAPE(0, 0, after, 0), KN_PAD_CONSTANT, 0);
    kn_tensor *means = kn_avgpool(squares, KN_SHAPE(used, 1), &each);
    return used == size ? means : kn_affine(means, (double)used / (double)size, 0);
}

kn_tensor *kn_lrn(kn_tensor *x, int64_t size, double alpha, double beta, double k) {
    KN__AS("lrn", "x");
    kn_op_call call;
    kn_op_call_init(&call, KN_OP_avgpool, NULL, &x, 1);
    if (!kn__check_inputs(&call)) return NULL;
    if (kn__is_half(x->dtype)) return narrowed(kn_lrn(widened(x), size, alpha, beta, k), x);
    kn_shape shape = kn_tensor_shape(x), flat = KN_SHAPE(shape.dim[0], shape.dim[1], 1);
    if (x->n_dims < 2 || x->dim[1] < 1 || size < 1) {
        char text[96];
        return KN_FAIL_NULL(KN_ERR_SHAPE,
                            "kn_lrn: x is %s, size (%lld); x must be [B,C,…] with channels, size "
                            "at least 1",
                            kn_shape_text(text, sizeof text, shape), (long long)size);
    }
    if (!x->n) return kn_affine(x, 1, 0);
    for (int i = 2; i < shape.n_dims; i++) flat.dim[2] *= shape.dim[i];
    kn_tensor *means = mean_squares(kn_reshape(x, flat), size);
    kn_tensor *factor = kn_pow_scalar(kn_affine(means, alpha, k), -beta);
    return factor ? kn_mul(x, kn_reshape(factor, shape)) : NULL;
}
