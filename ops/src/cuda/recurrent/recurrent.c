/* Recurrent networks by cuDNN's RNN functions of version 8. All layers are one call, unless there
 * is dropout: then each is a call of its own, with our dropout between them, whose masks are those
 * of the host. Parameters lie as in kn_rnn's w: that is checked once for each kind of network.
 *
 * The reserve begins with the states before the first step, which the gradient reads; then comes
 * what cuDNN keeps for each call, and what lies between the calls. A pass back writes into what
 * cuDNN kept, so it gets a copy: the tape may be walked again. */
#include <stdlib.h>
#include <string.h>

#include "cancel.h"
#include "cuda/base/module.h"
#include "plan_cache.h"
#include "rnn.h"

/* --- a kind of network: its descriptor, kept --- */

typedef struct rnn_key { /* compared byte by byte: clear it first */
    int32_t dtype, gpu, mode, skip, directions, strict;
    int64_t input, hidden, layers;
} rnn_key;

typedef struct rnn_plan {
    kn__cached_plan cached;
    rnn_key key;
    cudnnRNNDescriptor_t rnn;
    cudnnDropoutDescriptor_t dropout;
} rnn_plan;
_Static_assert(offsetof(rnn_plan, key) == sizeof(kn__cached_plan), "the key follows");

static void plan_destroy(kn__cached_plan *cached) {
    rnn_plan *plan = (rnn_plan *)(void *)cached;
    if (plan->rnn) (void)KN_PROF_FN(cudnnDestroyRNNDescriptor, plan->rnn);
    if (plan->dropout) (void)KN_PROF_FN(cudnnDestroyDropoutDescriptor, plan->dropout);
    free(plan);
}
enum { PLANS_MAX = 1024 };
static kn__plan_cache plans = KN__PLAN_CACHE(rnn_key, PLANS_MAX, plan_destroy);

/* One handle a GPU, for one call at a time: calls only enqueue. */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static cudnnHandle_t handles[KN__GPUS_MAX];

static cudnnDataType_t type_of(int32_t dtype) {
    return dtype == KN_F64 ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT;
}

/* The sizes that a key stands for. */
static kn_attr_rnn sizes_of(const rnn_key *key) {
    return (kn_attr_rnn){.mode = key->mode,
                         .input = key->input,
                         .hidden = key->hidden,
                         .layers = key->layers,
                         .directions = key->directions,
                         .skip = key->skip};
}

static int64_t params_of(const kn_attr_rnn *attr) { return kn__rnn_biases_at(attr, attr->layers); }

/* UNSUPPORTED where cuDNN has a part of the parameters elsewhere. */
static kn_status check_part(const rnn_plan *plan, cudnnHandle_t handle, const kn_attr_rnn *attr,
                            int64_t layer, int64_t direction, int gate, bool of_r,
                            cudnnTensorDescriptor_t m, cudnnTensorDescriptor_t b) {
    /* Addresses are made from one that is never read. */
    char *base = (char *)(uintptr_t)4096, *matrix = NULL, *bias = NULL;
    int64_t gates = kn__rnn_gates(attr), element = attr->hidden;
    int64_t columns = of_r ? attr->hidden : kn__rnn_columns(attr, layer);
    size_t bytes = kn_dtype_bytes((kn_dtype)plan->key.dtype), all = (size_t)params_of(attr) * bytes;
    kn_rnn_part weight = of_r ? KN_RNN_HIDDEN_WEIGHT : KN_RNN_INPUT_WEIGHT;
    kn_rnn_part added = of_r ? KN_RNN_HIDDEN_BIAS : KN_RNN_INPUT_BIAS;
    int64_t matrix_at = kn__rnn_part_at(attr, layer, direction, weight) + gate * element * columns;
    int64_t bias_at = kn__rnn_part_at(attr, layer, direction, added) + gate * element;
    KN_TRY(KN__CUDNN(cudnnGetRNNWeightParams, handle, plan->rnn,
                     (int32_t)(layer * attr->directions + direction), all, base,
                     (int32_t)(gate + (of_r ? gates : 0)), m, (void **)&matrix, b, (void **)&bias));
    bool fits = (columns == 0 || matrix == base + (size_t)matrix_at * bytes) &&
                bias == base + (size_t)bias_at * bytes;
    if (fits) return KN_OK;
    return KN_FAIL(KN_ERR_UNSUPPORTED,
                   "kn_rnn: this cuDNN has gate %d of layer %lld, direction %lld elsewhere in w",
                   gate, (long long)layer, (long long)direction);
}

static kn_status check_parts(const rnn_plan *plan, cudnnHandle_t handle) {
    kn_attr_rnn attr = sizes_of(&plan->key);
    cudnnTensorDescriptor_t m = NULL, b = NULL;
    size_t bytes = 0;
    kn_status status = KN__CUDNN(cudnnCreateTensorDescriptor, &m);
    if (status == KN_OK) status = KN__CUDNN(cudnnCreateTensorDescriptor, &b);
    if (status == KN_OK) status = KN__CUDNN(cudnnGetRNNWeightSpaceSize, handle, plan->rnn, &bytes);
    if (status == KN_OK &&
        bytes != (size_t)params_of(&attr) * kn_dtype_bytes((kn_dtype)plan->key.dtype)) {
        status =
            KN_FAIL(KN_ERR_UNSUPPORTED, "kn_rnn: this cuDNN wants %zu bytes of parameters", bytes);
    }
    int64_t n = attr.layers * attr.directions * kn__rnn_gates(&attr) * 2;
    for (int64_t i = 0; i < n && status == KN_OK; i++) {
        int64_t gate = i / 2 % kn__rnn_gates(&attr), part = i / 2 / kn__rnn_gates(&attr);
        status = check_part(plan, handle, &attr, part / attr.directions, part % attr.directions,
                            (int)gate, i % 2 != 0, m, b);
    }
    if (m) (void)KN_PROF_FN(cudnnDestroyTensorDescriptor, m);
    if (b) (void)KN_PROF_FN(cudnnDestroyTensorDescriptor, b);
    return status;
}

static kn_status describe(rnn_plan *plan, cudnnHandle_t handle) {
    static const cudnnRNNMode_t modes[] = {[KN_RNN_LSTM] = CUDNN_LSTM,
                                           [KN_RNN_GRU] = CUDNN_GRU,
                                           [KN_RNN_TANH] = CUDNN_RNN_TANH,
                                           [KN_RNN_RELU] = CUDNN_RNN_RELU};
    const rnn_key *key = &plan->key;
    cudnnDataType_t type = type_of(key->dtype);
    KN_TRY(KN__CUDNN(cudnnCreateDropoutDescriptor, &plan->dropout));
    KN_TRY(KN__CUDNN(cudnnSetDropoutDescriptor, plan->dropout, handle, 0, NULL, 0, 0));
    KN_TRY(KN__CUDNN(cudnnCreateRNNDescriptor, &plan->rnn));
    KN_TRY(KN__CUDNN(cudnnSetRNNDescriptor_v8, plan->rnn, CUDNN_RNN_ALGO_STANDARD, modes[key->mode],
                     CUDNN_RNN_DOUBLE_BIAS,
                     key->directions == 2 ? CUDNN_BIDIRECTIONAL : CUDNN_UNIDIRECTIONAL,
                     key->skip ? CUDNN_SKIP_INPUT : CUDNN_LINEAR_INPUT, type, type,
                     key->strict ? CUDNN_FMA_MATH : CUDNN_DEFAULT_MATH, (int32_t)key->input,
                     (int32_t)key->hidden, (int32_t)key->hidden, (int32_t)key->layers,
                     plan->dropout, CUDNN_RNN_PADDED_IO_ENABLED));
    return check_parts(plan, handle);
}

static kn_status plan_of(rnn_plan **out, const rnn_key *key, cudnnHandle_t handle) {
    rnn_plan *plan = (rnn_plan *)(void *)kn__plan_cache_get(&plans, key);
    if (!plan) {
        plan = calloc(1, sizeof *plan);
        if (!plan) return KN_FAIL(KN_ERR_OOM, "no memory for a plan of kn_rnn");
        plan->key = *key;
        kn_status status = describe(plan, handle);
        if (status < 0) {
            plan_destroy(&plan->cached);
            return status;
        }
        plan = (rnn_plan *)(void *)kn__plan_cache_put(&plans, &plan->cached);
    }
    *out = plan;
    return KN_OK;
}

/* --- a call: one or more stages, each some layers --- */

typedef struct stage {
    int64_t first, layers; /* of the network */
    rnn_plan *plan;
    cudnnRNNDataDescriptor_t x, y;
    cudnnTensorDescriptor_t h;
    size_t weight_bytes, bias_bytes; /* of its layers */
    size_t work_bytes, kept_bytes;
} stage;

typedef struct job {
    const kn_op_call *call;
    const kn_attr_rnn *attr;
    cudnnHandle_t handle;
    kn_dtype dtype;
    size_t bytes, state_bytes; /* of an element; of [L·D,B,H] */
    bool training, strict;
    int gpu;
    int *lengths;
    int64_t n_stages;
    stage *stages;
    size_t work_bytes; /* the most of any stage */
} job;

static size_t whole(size_t bytes) { return (bytes + 255) / 256 * 256; }

static kn_status data_make(cudnnRNNDataDescriptor_t *out, const job *j, int64_t width) {
    double zero = 0; /* in either type */
    KN_TRY(KN__CUDNN(cudnnCreateRNNDataDescriptor, out));
    return KN__CUDNN(cudnnSetRNNDataDescriptor, *out, type_of((int32_t)j->dtype),
                     CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_UNPACKED, (int)j->attr->steps,
                     (int)j->attr->batch, (int)width, j->lengths, &zero);
}

static kn_status state_make(cudnnTensorDescriptor_t *out, const job *j, int64_t layers) {
    int dim[3] = {(int)(layers * j->attr->directions), (int)j->attr->batch, (int)j->attr->hidden};
    int stride[3] = {dim[1] * dim[2], dim[2], 1};
    KN_TRY(KN__CUDNN(cudnnCreateTensorDescriptor, out));
    return KN__CUDNN(cudnnSetTensorNdDescriptor, *out, type_of((int32_t)j->dtype), 3, dim, stride);
}

static kn_status stage_make(stage *s, job *j) {
    const kn_attr_rnn *attr = j->attr;
    rnn_key key;
    memset(&key, 0, sizeof key);
    key.dtype = (int32_t)j->dtype, key.gpu = j->gpu, key.mode = (int32_t)attr->mode;
    key.skip = s->first == 0 && attr->skip, key.directions = (int32_t)attr->directions;
    key.strict = j->strict;
    key.input = kn__rnn_inputs(attr, s->first), key.hidden = attr->hidden;
    key.layers = s->layers;
    int64_t end = s->first + s->layers;
    s->weight_bytes =
        (size_t)(kn__rnn_weights_at(attr, end) - kn__rnn_weights_at(attr, s->first)) * j->bytes;
    s->bias_bytes =
        (size_t)(kn__rnn_biases_at(attr, end) - kn__rnn_biases_at(attr, s->first)) * j->bytes;
    KN_TRY(plan_of(&s->plan, &key, j->handle));
    KN_TRY(data_make(&s->x, j, key.input));
    KN_TRY(data_make(&s->y, j, attr->directions * attr->hidden));
    KN_TRY(state_make(&s->h, j, s->layers));
    KN_TRY(KN__CUDNN(cudnnGetRNNTempSpaceSizes, j->handle, s->plan->rnn,
                     j->training ? CUDNN_FWD_MODE_TRAINING : CUDNN_FWD_MODE_INFERENCE, s->x,
                     &s->work_bytes, &s->kept_bytes));
    if (s->work_bytes > j->work_bytes) j->work_bytes = s->work_bytes;
    return KN_OK;
}

static void job_release(job *j) {
    for (int64_t i = 0; j->stages && i < j->n_stages; i++) {
        stage *s = &j->stages[i];
        if (s->x) (void)KN_PROF_FN(cudnnDestroyRNNDataDescriptor, s->x);
        if (s->y) (void)KN_PROF_FN(cudnnDestroyRNNDataDescriptor, s->y);
        if (s->h) (void)KN_PROF_FN(cudnnDestroyTensorDescriptor, s->h);
        if (s->plan) kn__plan_cache_drop(&plans, &s->plan->cached);
    }
    free(j->lengths);
    free(j->stages);
}

static kn_status handle_of(job *j) {
    cudnnHandle_t *handle = &handles[j->gpu];
    if (!*handle) KN_TRY(KN__CUDNN(cudnnCreate, handle));
    j->handle = *handle;
    return KN__CUDNN(cudnnSetStream, j->handle, j->call->stream);
}

static kn_status job_fill(job *j) {
    const kn_attr_rnn *attr = j->attr;
    if (attr->input == 0) {
        return KN_FAIL(KN_ERR_UNSUPPORTED, "kn_rnn: x of no features has no kernel on %s",
                       kn_device_name(j->call->device));
    }
    KN_TRY(handle_of(j));
    j->lengths = malloc((size_t)attr->batch * sizeof *j->lengths + 1);
    j->stages = calloc((size_t)j->n_stages, sizeof *j->stages);
    if (!j->lengths || !j->stages) return KN_FAIL(KN_ERR_OOM, "no memory for a call of kn_rnn");
    for (int64_t b = 0; b < attr->batch; b++)
        j->lengths[b] = (int)(attr->n_lengths ? attr->length[b] : attr->steps);
    for (int64_t i = 0; i < j->n_stages; i++) {
        j->stages[i].first = j->n_stages == 1 ? 0 : i;
        j->stages[i].layers = j->n_stages == 1 ? attr->layers : 1;
        KN_TRY(stage_make(&j->stages[i], j));
    }
    return KN_OK;
}

static kn_status job_make(job *j, const kn_op_call *call, bool training) {
    const kn_attr_rnn *attr = call->attr;
    *j = (job){.call = call,
               .attr = attr,
               .dtype = (kn_dtype)call->in[1]->dtype,
               .training = training,
               .strict = attr->math == KN_MATH_STRICT,
               .gpu = kn__gpu_index(call->device),
               .n_stages = attr->dropout > 0 ? attr->layers : 1};
    j->bytes = kn_dtype_bytes(j->dtype);
    j->state_bytes =
        (size_t)(attr->layers * attr->directions * attr->batch * attr->hidden) * j->bytes;
    kn_status status = job_fill(j);
    if (status < 0) {
        job_release(j);
        j->n_stages = 0, j->lengths = NULL, j->stages = NULL;
    }
    return status;
}

/* --- the reserve: states, dropout's states, then of each stage: kept, y, the next one's x --- */

static size_t step_bytes(const job *j) { /* of [T,B,D·H] */
    const kn_attr_rnn *attr = j->attr;
    return (size_t)(attr->steps * attr->batch * attr->directions * attr->hidden) * j->bytes;
}
static size_t c_at(const job *j) { return whole(j->state_bytes); }
static size_t rng_at(const job *j) {
    return c_at(j) + (j->attr->mode == KN_RNN_LSTM ? whole(j->state_bytes) : 0);
}
static size_t stage_at(const job *j, int64_t i) {
    size_t at = rng_at(j) + whole((size_t)(j->n_stages + 1) * 2 * sizeof(int64_t));
    for (int64_t k = 0; k < i; k++) at += whole(j->stages[k].kept_bytes) + 2 * whole(step_bytes(j));
    return at;
}
static char *y_of(const job *j, char *reserve, int64_t i) {
    return reserve + stage_at(j, i) + whole(j->stages[i].kept_bytes);
}
/* The input of stage i > 0, with dropout. */
static char *x_of(const job *j, char *reserve, int64_t i) {
    return y_of(j, reserve, i - 1) + whole(step_bytes(j));
}

kn_status kn__cuda_rnn_reserve(size_t *out, const kn_op_call *call) {
    job j;
    bool pushed = false;
    const kn_attr_rnn *attr = call->attr;
    *out = 0;
    if (attr->steps == 0 || attr->batch == 0) return KN_OK;
    KN_TRY(kn__gpu_enter(&pushed, call->device));
    KN__CANCEL_LATER();
    pthread_mutex_lock(&mutex);
    kn_status status = job_make(&j, call, true);
    if (status == KN_OK) *out = stage_at(&j, j.n_stages);
    if (status == KN_OK) job_release(&j);
    pthread_mutex_unlock(&mutex);
    kn__gpu_leave(pushed);
    return status;
}

/* --- forward --- */

static kn_status copy(const job *j, void *to, const void *from, size_t bytes) {
    if (bytes == 0) return KN_OK;
    return KN__CUDA(cudaMemcpyAsync, to, from, bytes, cudaMemcpyDeviceToDevice, j->call->stream);
}
static kn_status zeros(const job *j, void *to, size_t bytes) {
    if (bytes == 0) return KN_OK;
    return KN__CUDA(cudaMemsetAsync, to, 0, bytes, j->call->stream);
}

static void *data_of(const kn_tensor *t) { return t && t != KN_NONE ? t->data : NULL; }

static kn_status keep_state(const job *j, char *to, const kn_tensor *from) {
    return from == KN_NONE ? zeros(j, to, j->state_bytes) : copy(j, to, from->data, j->state_bytes);
}

/* The state of dropout's mask of each stage: of the host's elements. */
static kn_status keep_rng(const job *j, char *to) {
    int64_t *states = (int64_t *)(void *)to, *next = states + 2 * j->n_stages;
    if (j->n_stages == 1) return KN_OK;
    KN_TRY(copy(j, next, j->call->in[4]->data, 2 * sizeof *next));
    for (int64_t i = 1; i < j->n_stages; i++)
        KN_TRY(KN__CUDA_NAMED(
            "rng_take_kernel",
            kn__launch_rng_take(states + 2 * i, next, kn__rnn_mask(j->attr) / 4, j->call->stream)));
    return KN_OK;
}

static kn_status drop(const job *j, char *reserve, int64_t i, void *to, const void *from) {
    const int64_t *state = (const int64_t *)(const void *)(reserve + rng_at(j)) + 2 * i;
    return KN__CUDA_NAMED(
        "dropout_kernel",
        kn__launch_dropout(to, from, j->dtype, (int64_t)(step_bytes(j) / j->bytes),
                           j->attr->dropout, state, j->call->stream));
}

/* The stage's parameters: w itself, or a copy of its two parts. */
static kn_status stage_weights(const void **out, const job *j, const stage *s, const char *w,
                               char *room) {
    *out = w;
    if (j->n_stages == 1) return KN_OK;
    *out = room;
    KN_TRY(copy(j, room, w + (size_t)kn__rnn_weights_at(j->attr, s->first) * j->bytes,
                s->weight_bytes));
    return copy(j, room + s->weight_bytes,
                w + (size_t)kn__rnn_biases_at(j->attr, s->first) * j->bytes, s->bias_bytes);
}

typedef struct forward {
    char *reserve, *work, *room; /* room: for parameters of a stage */
    char *h_n, *c_n;
} forward;

static kn_status stage_forward(const job *j, const forward *f, int64_t i, const void *x, void *y) {
    const stage *s = &j->stages[i];
    const void *w = NULL;
    bool is_lstm = j->attr->mode == KN_RNN_LSTM;
    size_t at = j->state_bytes / (size_t)j->attr->layers * (size_t)s->first;
    char *kept = f->reserve + stage_at(j, i);
    KN_TRY(stage_weights(&w, j, s, data_of(j->call->in[1]), f->room));
    return KN__CUDNN(cudnnRNNForward, j->handle, s->plan->rnn,
                     j->training ? CUDNN_FWD_MODE_TRAINING : CUDNN_FWD_MODE_INFERENCE, NULL, s->x,
                     x, s->y, y, s->h, f->reserve + at, f->h_n ? f->h_n + at : NULL, s->h,
                     is_lstm ? f->reserve + c_at(j) + at : NULL,
                     is_lstm && f->c_n ? f->c_n + at : NULL, s->weight_bytes + s->bias_bytes, w,
                     s->work_bytes, f->work, s->kept_bytes, j->training ? kept : NULL);
}

/* Sequences of no steps, which cuDNN gives zeros: their states are those before, their gradients
 * those of the states behind. */
static kn_status pass_empty(const job *j, void *to, const void *from) {
    const kn_attr_rnn *attr = j->attr;
    size_t width = (size_t)attr->hidden * j->bytes, pitch = (size_t)attr->batch * width;
    size_t rows = (size_t)(attr->layers * attr->directions);
    for (int64_t b = 0; to && b < attr->n_lengths; b++) {
        if (attr->length[b]) continue;
        char *out = (char *)to + (size_t)b * width;
        const char *in = from ? (const char *)from + (size_t)b * width : NULL;
        KN_TRY(in ? KN__CUDA(cudaMemcpy2DAsync, out, pitch, in, pitch, width, rows,
                             cudaMemcpyDeviceToDevice, j->call->stream)
                  : KN__CUDA(cudaMemset2DAsync, out, pitch, 0, width, rows, j->call->stream));
    }
    return KN_OK;
}

static kn_status run_forward(job *j, kn_op_call *call) {
    forward f = {.h_n = data_of(call->out[1]), .c_n = data_of(call->out[2])};
    void *work = NULL, *room = NULL, *reserve = data_of(call->out[3]);
    size_t params = (size_t)params_of(j->attr) * j->bytes;
    KN_TRY(kn__work(&work, call, j->work_bytes + 1));
    if (j->n_stages > 1) KN_TRY(kn__work(&room, call, params));
    if (!reserve) KN_TRY(kn__work(&reserve, call, stage_at(j, j->n_stages)));
    f.work = work, f.room = room, f.reserve = reserve;
    KN_TRY(keep_state(j, f.reserve, call->in[2]));
    if (j->attr->mode == KN_RNN_LSTM) KN_TRY(keep_state(j, f.reserve + c_at(j), call->in[3]));
    KN_TRY(keep_rng(j, f.reserve + rng_at(j)));
    if (j->attr->n_lengths) KN_TRY(zeros(j, call->out[0]->data, step_bytes(j)));
    for (int64_t i = 0; i < j->n_stages; i++) {
        bool last = i == j->n_stages - 1;
        char *y = last ? call->out[0]->data : y_of(j, f.reserve, i);
        if (!last && j->attr->n_lengths) KN_TRY(zeros(j, y, step_bytes(j)));
        KN_TRY(stage_forward(j, &f, i, i ? x_of(j, f.reserve, i) : call->in[0]->data, y));
        if (!last) KN_TRY(drop(j, f.reserve, i + 1, x_of(j, f.reserve, i + 1), y));
    }
    KN_TRY(pass_empty(j, f.h_n, f.reserve));
    return pass_empty(j, f.c_n, f.reserve + c_at(j));
}

/* Result r becomes `from`, or zeros. */
static kn_status pass_on(const kn_op_call *call, int r, const kn_tensor *from) {
    const kn_tensor *to = call->out[r];
    if (!to || !to->n) return KN_OK;
    size_t bytes = (size_t)to->n * kn_dtype_bytes((kn_dtype)to->dtype);
    if (from == KN_NONE) return KN__CUDA(cudaMemsetAsync, to->data, 0, bytes, call->stream);
    return KN__CUDA(cudaMemcpyAsync, to->data, from->data, bytes, cudaMemcpyDeviceToDevice,
                    call->stream);
}

/* Without steps the states stay. */
static kn_status no_steps(const kn_op_call *call) {
    KN_TRY(pass_on(call, 1, call->in[2]));
    return pass_on(call, 2, call->in[3]);
}

static kn_status run(kn_op_call *call, bool training, kn_status (*body)(job *j, kn_op_call *call)) {
    job j;
    KN__CANCEL_LATER();
    pthread_mutex_lock(&mutex);
    kn_status status = job_make(&j, call, training);
    if (status == KN_OK) {
        status = body(&j, call);
        job_release(&j);
    }
    pthread_mutex_unlock(&mutex);
    return status;
}

kn_status kn__cuda_rnn(kn_op_call *call) {
    const kn_attr_rnn *attr = call->attr;
    if (attr->steps == 0 || attr->batch == 0) return no_steps(call);
    return run(call, call->out[3] != NULL, run_forward);
}

/* --- back --- */

typedef struct back {
    char *reserve, *kept, *work, *room; /* room: parameters of a stage, then their gradient */
    char *dy[2], *dx;                   /* between stages; where dx is not wanted */
    char *dw, *dh0, *dc0;
} back;

/* The parts of the stage's gradient into dw. */
static kn_status put_weights(const job *j, const stage *s, char *dw, const char *from) {
    KN_TRY(copy(j, dw + (size_t)kn__rnn_weights_at(j->attr, s->first) * j->bytes, from,
                s->weight_bytes));
    return copy(j, dw + (size_t)kn__rnn_biases_at(j->attr, s->first) * j->bytes,
                from + s->weight_bytes, s->bias_bytes);
}

static char *offset(void *base, size_t at) { return base ? (char *)base + at : NULL; }

static kn_status stage_back(const job *j, const back *b, int64_t i, const void *dy, void *dx) {
    const stage *s = &j->stages[i];
    const kn_op_call *call = j->call;
    bool last = i == j->n_stages - 1, is_lstm = j->attr->mode == KN_RNN_LSTM;
    size_t at = j->state_bytes / (size_t)j->attr->layers * (size_t)s->first;
    size_t params = s->weight_bytes + s->bias_bytes;
    const void *w = NULL, *x = i ? x_of(j, b->reserve, i) : data_of(call->in[0]);
    const void *y = last ? call->in[2]->data : y_of(j, b->reserve, i);
    KN_TRY(copy(j, b->kept, b->reserve + stage_at(j, i), s->kept_bytes));
    KN_TRY(stage_weights(&w, j, s, data_of(call->in[1]), b->room));
    KN_TRY(KN__CUDNN(cudnnRNNBackwardData_v8, j->handle, s->plan->rnn, NULL, s->y, y, dy, s->x, dx,
                     s->h, b->reserve + at, offset(data_of(call->in[5]), at), offset(b->dh0, at),
                     s->h, is_lstm ? b->reserve + c_at(j) + at : NULL,
                     is_lstm ? offset(data_of(call->in[6]), at) : NULL,
                     is_lstm ? offset(b->dc0, at) : NULL, params, w, s->work_bytes, b->work,
                     s->kept_bytes, b->kept));
    if (!b->dw) return KN_OK;
    char *dw = j->n_stages == 1 ? b->dw : b->room + params;
    KN_TRY(zeros(j, dw, params));
    KN_TRY(KN__CUDNN(cudnnRNNBackwardWeights_v8, j->handle, s->plan->rnn, CUDNN_WGRAD_MODE_ADD,
                     NULL, s->x, x, s->h, b->reserve + at, s->y, y, params, dw, s->work_bytes,
                     b->work, s->kept_bytes, b->kept));
    return j->n_stages == 1 ? KN_OK : put_weights(j, s, b->dw, dw);
}

/* Work space: of the library; its kept states; parameters; gradients between stages. */
static kn_status back_space(back *b, const job *j, kn_op_call *call) {
    size_t kept = 0, step = whole(step_bytes(j));
    size_t params = whole((size_t)params_of(j->attr) * j->bytes);
    size_t x = whole((size_t)(j->attr->steps * j->attr->batch * j->attr->input) * j->bytes);
    void *work = NULL, *steps = NULL, *copies = NULL, *room = NULL;
    for (int64_t i = 0; i < j->n_stages; i++)
        if (j->stages[i].kept_bytes > kept) kept = j->stages[i].kept_bytes;
    KN_TRY(kn__work(&work, call, j->work_bytes + 1));
    KN_TRY(kn__work(&copies, call, kept + 1));
    KN_TRY(kn__work(&steps, call, 2 * step + x));
    if (j->n_stages > 1) KN_TRY(kn__work(&room, call, 2 * params));
    b->work = work, b->kept = copies, b->room = room;
    b->dy[0] = steps, b->dy[1] = b->dy[0] + step, b->dx = b->dy[1] + step;
    return KN_OK;
}

static kn_status run_back(job *j, kn_op_call *call) {
    back b = {.reserve = call->in[3]->data,
              .dw = data_of(call->out[1]),
              .dh0 = data_of(call->out[2]),
              .dc0 = data_of(call->out[3])};
    KN_TRY(back_space(&b, j, call));
    char *dx = data_of(call->out[0]);
    const char *dy = data_of(call->in[4]);
    if (dx) b.dx = dx;
    if (!dy) {
        KN_TRY(zeros(j, b.dy[0], step_bytes(j)));
        dy = b.dy[0];
    }
    if (j->attr->n_lengths && dx)
        KN_TRY(zeros(j, dx, (size_t)call->out[0]->n * j->bytes)); /* steps beyond the lengths */
    for (int64_t i = j->n_stages - 1; i >= 0; i--) {
        char *to = i == 0 ? b.dx : (dy == b.dy[0] ? b.dy[1] : b.dy[0]);
        if (i > 0 && j->attr->n_lengths) KN_TRY(zeros(j, to, step_bytes(j)));
        KN_TRY(stage_back(j, &b, i, dy, to));
        if (i > 0) KN_TRY(drop(j, b.reserve, i, to, to));
        dy = to;
    }
    KN_TRY(pass_empty(j, b.dh0, data_of(call->in[5])));
    return pass_empty(j, b.dc0, data_of(call->in[6]));
}

/* Without steps the gradients of the states go through, and the others are zeros. */
static kn_status no_steps_back(const kn_op_call *call) {
    for (int r = 0; r < 4; r++) KN_TRY(pass_on(call, r, r < 2 ? KN_NONE : call->in[3 + r]));
    return KN_OK;
}

kn_status kn__cuda_rnn_back(kn_op_call *call) {
    const kn_attr_rnn *attr = call->attr;
    if (attr->steps == 0 || attr->batch == 0) return no_steps_back(call);
    return run(call, true, run_back);
}
