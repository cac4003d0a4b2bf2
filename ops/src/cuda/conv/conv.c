/* Convolutions: from calls to plans, and handles to run them with. */
#include <stdlib.h>
#include <string.h>

#include "cancel.h"
#include "cuda/conv/conv_plan.h"

static void plan_destroy(kn__cached_plan *plan) {
    kn__conv_plan_destroy((kn__conv_plan *)(void *)plan);
}
enum { PLANS_MAX = 1024 };
static kn__plan_cache plans = KN__PLAN_CACHE(kn__conv_key, PLANS_MAX, plan_destroy);

/* --- handles: a cuDNN handle serves one thread at a time, so a call takes one, that of its stream
 * where there is one, and puts it back. They live as long as the process: at its end the driver may
 * be gone already. --- */

typedef struct idle_handle {
    struct idle_handle *next;
    cudnnHandle_t handle;
    cudaStream_t stream; /* it worked on last */
} idle_handle;

static pthread_mutex_t handles_mutex = PTHREAD_MUTEX_INITIALIZER;
static idle_handle *idle[KN__GPUS_MAX];
static cudnnBackendDescriptor_t device_of[KN__GPUS_MAX];

static idle_handle *find_idle(int gpu, cudaStream_t stream) {
    pthread_mutex_lock(&handles_mutex);
    idle_handle **at = &idle[gpu];
    while (*at && (*at)->stream != stream) at = &(*at)->next;
    if (!*at) at = &idle[gpu];
    idle_handle *h = *at;
    if (h) *at = h->next;
    pthread_mutex_unlock(&handles_mutex);
    return h;
}

static kn_status make_handle(idle_handle **out) {
    idle_handle *h = calloc(1, sizeof *h);
    if (!h) return KN_FAIL(KN_ERR_OOM, "no memory for a cuDNN handle");
    kn_status status = KN__CUDNN(cudnnCreate, &h->handle);
    if (status < 0) {
        free(h);
        return status;
    }
    *out = h; /* works on stream NULL */
    return KN_OK;
}

static void put_handle(idle_handle *h, int gpu) {
    pthread_mutex_lock(&handles_mutex);
    h->next = idle[gpu];
    idle[gpu] = h;
    pthread_mutex_unlock(&handles_mutex);
}

static kn_status device_description(cudnnBackendDescriptor_t *out, int gpu) {
    kn_status status = KN_OK;
    KN__CANCEL_LATER();
    pthread_mutex_lock(&handles_mutex);
    if (!device_of[gpu]) {
        cudnnBackendDescriptor_t made = NULL;
        status = kn__conv_device_of_gpu(&made, gpu);
        if (status == KN_OK) device_of[gpu] = made;
    }
    *out = device_of[gpu];
    pthread_mutex_unlock(&handles_mutex);
    return status;
}

/* --- keys --- */

/* Sizes with one spatial dimension seen as two. */
static void copy_dims(int64_t *to, const kn_tensor *t) {
    int extra = t->n_dims == 3;
    to[0] = t->dim[0], to[1] = t->dim[1], to[2] = 1;
    for (int d = 2; d < t->n_dims; d++) to[d + extra] = t->dim[d];
}

static void copy_window(kn__conv_key *key, const kn_attr_conv *attr) {
    int extra = attr->n_spatial == 1;
    key->n_spatial = attr->n_spatial + extra;
    key->stride[0] = key->dilation[0] = 1;
    for (int d = 0; d < attr->n_spatial; d++) {
        key->stride[d + extra] = attr->stride[d];
        key->padding[d + extra] = attr->padding[d];
        key->padding_end[d + extra] = attr->padding_end[d];
        key->dilation[d + extra] = attr->dilation[d];
    }
}

static kn__conv_data data_of(const kn_tensor *x, const kn_tensor *w, const kn_tensor *y) {
    return (kn__conv_data){.x = x->data, .w = w->data, .y = y->data};
}

/* The largest power of two up to 16 that divides every address. */
static int32_t alignment_of(const kn__conv_data *d) {
    uintptr_t all = (uintptr_t)d->x | (uintptr_t)d->w | (uintptr_t)d->y | 16;
    all |= (uintptr_t)d->residual | (uintptr_t)d->bias;
    return (int32_t)(all & (~all + 1));
}

/* What follows the sums in a plan or in one kernel: of activations relu alone. */
static int32_t after_of(kn__conv_data *d, const kn_op_call *call) {
    bool acts = call->op == KN_OP_conv_act;
    const kn_tensor *b = call->in[2], *r = acts ? call->in[3] : KN_NONE;
    bool relu = acts && ((const kn_attr_conv *)call->attr)->act == KN_ACT_RELU;
    if (b != KN_NONE) d->bias = b->data;
    if (r != KN_NONE) d->residual = r->data;
    return (b != KN_NONE ? KN__CONV_BIAS : 0) | (r != KN_NONE ? KN__CONV_RESIDUAL : 0) |
           (relu ? KN__CONV_RELU : 0);
}

static kn__conv_key key_of(const kn_op_call *call, kn__conv_kind kind, const kn_tensor *x,
                           const kn_tensor *w, const kn_tensor *y) {
    const kn_attr_conv *attr = call->attr;
    kn__conv_key key;
    memset(&key, 0, sizeof key);
    key.kind = (int32_t)kind;
    key.dtype = call->out[0]->dtype;
    key.gpu = kn__gpu_index(call->device);
    key.accumulate = kn__adds(call);
    key.flip = attr->flip;
    key.math = call->math > KN_MATH_STRICT && key.dtype == KN_F32 ? KN_MATH_TF32 : KN_MATH_STRICT;
    copy_dims(key.x, x);
    copy_dims(key.w, w);
    copy_dims(key.y, y);
    copy_window(&key, attr);
    return key;
}

/* Says, for the next calls too, that there is no engine of 16 bits, or with what follows. */
static kn_status no_plan(kn__conv_plan **out, const kn__conv_key *key) {
    kn__conv_plan *p = calloc(1, sizeof *p);
    if (!p) return KN_FAIL(KN_ERR_OOM, "no memory for a convolution plan");
    p->key = *key;
    *out = p;
    return KN_OK;
}

/* f32's engine, or a kernel after the convolution. */
static bool has_another_way(const kn__conv_key *key, kn_status status) {
    if (key->after) return status == KN_ERR_UNSUPPORTED || status == KN_ERR_CUDA;
    return status == KN_ERR_UNSUPPORTED && kn__is_half((unsigned)key->dtype);
}

static kn_status plan_of(kn__conv_plan **out, const kn__conv_key *key) {
    kn__conv_plan *p = (kn__conv_plan *)(void *)kn__plan_cache_get(&plans, key);
    if (!p) {
        cudnnBackendDescriptor_t device = NULL;
        KN_TRY(device_description(&device, key->gpu));
        kn_status status = kn__conv_plan_create(&p, key, device);
        if (has_another_way(key, status)) status = no_plan(&p, key);
        KN_TRY(status);
        p = (kn__conv_plan *)(void *)kn__plan_cache_put(&plans, &p->cached);
    }
    *out = p;
    return KN_OK;
}

/* --- running --- */

static kn_status run_on(idle_handle *h, const kn_op_call *call, kn__conv_plan *p,
                        const kn__conv_data *data) {
    if (h->stream != call->stream) {
        KN_TRY(KN__CUDNN(cudnnSetStream, h->handle, call->stream));
        h->stream = call->stream;
    }
    return kn__conv_plan_run(p, h->handle, data);
}

static kn_status run_planned(kn_op_call *call, kn__conv_plan *p, kn__conv_data *data) {
    int gpu = p->key.gpu;
    idle_handle *h = find_idle(gpu, call->stream);
    if (!h) KN_TRY(make_handle(&h));
    kn_status status = KN_OK;
    if (p->workspace_bytes) status = kn__work(&data->workspace, call, p->workspace_bytes);
    if (status == KN_OK) status = run_on(h, call, p, data);
    put_handle(h, gpu);
    return status;
}

static kn_status run_forward(kn_op_call *call);

static kn_status run(kn_op_call *call, kn__conv_kind kind, const kn_tensor *x, const kn_tensor *w,
                     const kn_tensor *y) {
    kn__conv_key key = key_of(call, kind, x, w, y);
    kn__conv_data data = data_of(x, w, y);
    kn__conv_plan *p = NULL;
    key.alignment_bytes = alignment_of(&data);
    static const kn_kernel_fn kernel[] = {[KN__CONV_FORWARD] = run_forward,
                                          [KN__CONV_DATA] = kn__cuda_conv_data,
                                          [KN__CONV_WEIGHT] = kn__cuda_conv_weight};
    KN_TRY(plan_of(&p, &key));
    kn_status status = p->plan ? run_planned(call, p, &data) : kn__widened(call, kernel[kind]);
    kn__plan_cache_drop(&plans, &p->cached);
    return status;
}

/* With what follows the sums inside the plan: cuDNN has engines that add a bias, and then more. */
static kn_status run_whole(bool *done, kn_op_call *call) {
    const kn_tensor *x = call->in[0], *w = call->in[1], *y = call->out[0];
    kn__conv_key key = key_of(call, KN__CONV_FORWARD, x, w, y);
    kn__conv_data data = data_of(x, w, y);
    kn__conv_plan *p = NULL;
    key.after = after_of(&data, call);
    if (!data.bias || key.accumulate) return KN_OK;
    key.alignment_bytes = alignment_of(&data);
    KN_TRY(plan_of(&p, &key));
    *done = p->plan != NULL;
    kn_status status = *done ? run_planned(call, p, &data) : KN_OK;
    kn__plan_cache_drop(&plans, &p->cached);
    return status;
}

/* Bias, residual and relu. */
static kn_status finish(const kn_op_call *call) {
    const kn_tensor *y = call->out[0];
    kn__conv_data data = {.y = y->data};
    int32_t after = after_of(&data, call);
    kn__bias_act p = {.dtype = (kn_dtype)y->dtype,
                      .relu = (after & KN__CONV_RELU) != 0,
                      .n = y->n,
                      .channels = y->dim[1],
                      .inner = 1,
                      .y = y->data,
                      .bias = data.bias,
                      .residual = data.residual};
    for (int d = 2; d < y->n_dims; d++) p.inner *= y->dim[d];
    return after ? KN__CUDA_NAMED("bias_act_kernel", kn__launch_bias_act(&p, call->stream)) : KN_OK;
}

/* Without what follows it. Where an input is empty nothing is summed over: zeros. */
static kn_status run_forward(kn_op_call *call) {
    const kn_tensor *x = call->in[0], *w = call->in[1];
    return x->n && w->n ? run(call, KN__CONV_FORWARD, x, w, call->out[0]) : kn__zeros(call, 0);
}

kn_status kn__cuda_conv(kn_op_call *call) {
    const kn_attr_conv *attr = call->attr;
    bool whole = false;
    if (call->in[0]->n && call->in[1]->n) KN_TRY(run_whole(&whole, call));
    if (!whole) {
        KN_TRY(run_forward(call));
        KN_TRY(finish(call));
    }
    bool acts = call->op == KN_OP_conv_act && attr->act && attr->act != KN_ACT_RELU;
    return acts ? kn__activate(call, (kn_act)attr->act) : KN_OK;
}

kn_status kn__cuda_conv_data(kn_op_call *call) {
    const kn_tensor *dy = call->in[0], *w = call->in[1];
    return dy->n && w->n ? run(call, KN__CONV_DATA, call->out[0], w, dy) : kn__zeros(call, 0);
}

kn_status kn__cuda_conv_weight(kn_op_call *call) {
    const kn_tensor *x = call->in[0], *dy = call->in[1];
    return x->n && dy->n ? run(call, KN__CONV_WEIGHT, x, call->out[0], dy) : kn__zeros(call, 0);
}
