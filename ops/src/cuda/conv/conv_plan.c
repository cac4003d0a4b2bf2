#include "cuda/conv/conv_plan.h"

#include <stdlib.h>
#include <string.h>

#include "checked.h"

_Static_assert(offsetof(kn__conv_plan, key) == sizeof(kn__cached_plan), "the key follows");

enum {
    UID_X = 'x',
    UID_W = 'w',
    UID_Y = 'y',
    UID_RESIDUAL = 'r',
    UID_BIAS = 'b',
    UID_BETWEEN = '1'
};

/* Of work space for one convolution: engines that want more are left out. */
static const int64_t workspace_most_bytes = (int64_t)1 << 30;

/* --- descriptors: those that a plan is made of take 16 times its memory, and go when it is made
 * --- */

enum { DESCRIPTORS_MAX = 64, HEURISTICS_MAX = 40 };

typedef struct builder {
    const kn__conv_key *key;
    cudnnBackendDescriptor_t made[DESCRIPTORS_MAX];
    int n_made;
    int n_tried; /* engine configurations looked at */
    cudnnBackendDescriptor_t plan;
    size_t workspace_bytes;
    int64_t engine;
    uint32_t notes;
} builder;

static void destroy(cudnnBackendDescriptor_t d) {
    (void)KN_PROF_FN(cudnnBackendDestroyDescriptor, d);
}

static kn_status make(cudnnBackendDescriptor_t *out, builder *p,
                      cudnnBackendDescriptorType_t type) {
    KN_ASSERT(p->n_made < DESCRIPTORS_MAX);
    KN_TRY(KN__CUDNN(cudnnBackendCreateDescriptor, type, out));
    p->made[p->n_made++] = *out;
    return KN_OK;
}

/* Destroys the descriptors made last. */
static void unmake(builder *p, int down_to) {
    while (p->n_made > down_to) destroy(p->made[--p->n_made]);
}

static kn_status set(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                     cudnnBackendAttributeType_t type, int64_t n, const void *values) {
    return KN__CUDNN(cudnnBackendSetAttribute, d, name, type, n, values);
}

static kn_status set_descriptor(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                                cudnnBackendDescriptor_t value) {
    return set(d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}

static kn_status set_int64(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                           int64_t value) {
    return set(d, name, CUDNN_TYPE_INT64, 1, &value);
}

static kn_status set_factor(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                            bool is_double, double value) {
    float single = (float)value;
    return is_double ? set(d, name, CUDNN_TYPE_DOUBLE, 1, &value)
                     : set(d, name, CUDNN_TYPE_FLOAT, 1, &single);
}

static kn_status finish(cudnnBackendDescriptor_t d) { return KN__CUDNN(cudnnBackendFinalize, d); }

static cudnnDataType_t type_of(const kn__conv_key *key) {
    switch (key->dtype) {
        case KN_F64:
            return CUDNN_DATA_DOUBLE;
        case KN_F16:
            return CUDNN_DATA_HALF;
        case KN_BF16:
            return CUDNN_DATA_BFLOAT16;
        default:
            return CUDNN_DATA_FLOAT;
    }
}

/* Of sums: f32 for 16-bit images. */
static cudnnDataType_t compute_type_of(const kn__conv_key *key) {
    return key->dtype == KN_F64 ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT;
}

kn_status kn__conv_device_of_gpu(cudnnBackendDescriptor_t *out, int gpu) {
    int32_t id = gpu;
    KN_TRY(KN__CUDNN(cudnnBackendCreateDescriptor, CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, out));
    KN_TRY(set(*out, CUDNN_ATTR_DEVICEPROP_DEVICE_ID, CUDNN_TYPE_INT32, 1, &id));
    return finish(*out);
}

kn_status kn__conv_device_of_json(cudnnBackendDescriptor_t *out, const char *json) {
    KN_TRY(KN__CUDNN(cudnnBackendCreateDescriptor, CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, out));
    KN_TRY(set(*out, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
               (int64_t)strlen(json) + 1, json));
    return finish(*out);
}

kn_status kn__conv_device_json(char *out, size_t out_bytes, cudnnBackendDescriptor_t device) {
    int64_t n = 0;
    KN_TRY(KN__CUDNN(cudnnBackendGetAttribute, device, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION,
                     CUDNN_TYPE_CHAR, (int64_t)out_bytes - 1, &n, out));
    out[n < (int64_t)out_bytes - 1 ? n : (int64_t)out_bytes - 1] = 0;
    return KN_OK;
}

/* --- the graph --- */

/* From UID_BETWEEN on: a tensor that stays inside the graph, in the precision of the sums. */
static kn_status make_tensor(cudnnBackendDescriptor_t *out, builder *p, int64_t uid,
                             const int64_t *dim) {
    const kn__conv_key *key = p->key;
    int n = key->n_spatial + 2;
    bool inside = uid < 'a';
    int64_t stride[KN__CONV_DIMS], step = 1;
    for (int d = n - 1; d >= 0; d--) {
        stride[d] = step;
        step *= dim[d];
    }
    cudnnDataType_t type = inside ? compute_type_of(key) : type_of(key);
    KN_TRY(make(out, p, CUDNN_BACKEND_TENSOR_DESCRIPTOR));
    KN_TRY(set(*out, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type));
    KN_TRY(set(*out, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, n, dim));
    KN_TRY(set(*out, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, n, stride));
    KN_TRY(set_int64(*out, CUDNN_ATTR_TENSOR_UNIQUE_ID, uid));
    KN_TRY(set_int64(*out, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, key->alignment_bytes));
    if (inside) KN_TRY(set(*out, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &inside));
    return finish(*out);
}

static kn_status make_convolution(cudnnBackendDescriptor_t *out, builder *p) {
    const kn__conv_key *key = p->key;
    int64_t n = key->n_spatial;
    cudnnDataType_t type = compute_type_of(key);
    cudnnConvolutionMode_t mode = key->flip ? CUDNN_CONVOLUTION : CUDNN_CROSS_CORRELATION;
    KN_TRY(make(out, p, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR));
    KN_TRY(set_int64(*out, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, n));
    KN_TRY(set(*out, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type));
    KN_TRY(set(*out, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode));
    KN_TRY(set(*out, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, n, key->padding));
    KN_TRY(set(*out, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, n, key->padding_end));
    KN_TRY(set(*out, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, n, key->dilation));
    KN_TRY(set(*out, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, n, key->stride));
    return finish(*out);
}

/* The names of one operation's descriptor and attributes, per kind. */
static const struct operation_names {
    cudnnBackendDescriptorType_t type;
    cudnnBackendAttributeName_t x, w, y, convolution, alpha, beta;
} names_of[] = {
    [KN__CONV_FORWARD] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
                          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
                          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
                          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
                          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
                          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
                          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA},
    [KN__CONV_DATA] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
                       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
                       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
                       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
                       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
                       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
                       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA},
    [KN__CONV_WEIGHT] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
                         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
                         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
                         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
                         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
                         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
                         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA},
};

static kn_status make_operation(cudnnBackendDescriptor_t *out, builder *p,
                                cudnnBackendDescriptor_t y) {
    const kn__conv_key *key = p->key;
    const struct operation_names *names = &names_of[key->kind];
    cudnnBackendDescriptor_t x, w, convolution;
    KN_TRY(make_tensor(&x, p, UID_X, key->x));
    KN_TRY(make_tensor(&w, p, UID_W, key->w));
    KN_TRY(make_convolution(&convolution, p));
    KN_TRY(make(out, p, names->type));
    KN_TRY(set_descriptor(*out, names->x, x));
    KN_TRY(set_descriptor(*out, names->w, w));
    KN_TRY(set_descriptor(*out, names->y, y));
    KN_TRY(set_descriptor(*out, names->convolution, convolution));
    KN_TRY(set_factor(*out, names->alpha, key->dtype == KN_F64, 1));
    KN_TRY(set_factor(*out, names->beta, key->dtype == KN_F64, key->accumulate ? 1 : 0));
    return finish(*out);
}

/* y = x + b, or relu(x), which passes NaN on as ours does. */
static kn_status make_pointwise(cudnnBackendDescriptor_t *out, builder *p,
                                cudnnBackendDescriptor_t x, cudnnBackendDescriptor_t b,
                                cudnnBackendDescriptor_t y) {
    cudnnDataType_t type = compute_type_of(p->key);
    cudnnPointwiseMode_t mode = b ? CUDNN_POINTWISE_ADD : CUDNN_POINTWISE_RELU_FWD;
    cudnnNanPropagation_t nan = CUDNN_PROPAGATE_NAN;
    cudnnBackendDescriptor_t pointwise;
    KN_TRY(make(&pointwise, p, CUDNN_BACKEND_POINTWISE_DESCRIPTOR));
    KN_TRY(set(pointwise, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode));
    KN_TRY(set(pointwise, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &type));
    if (!b)
        KN_TRY(set(pointwise, CUDNN_ATTR_POINTWISE_NAN_PROPAGATION, CUDNN_TYPE_NAN_PROPOGATION, 1,
                   &nan));
    KN_TRY(finish(pointwise));
    KN_TRY(make(out, p, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR));
    KN_TRY(set_descriptor(*out, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, pointwise));
    KN_TRY(set_descriptor(*out, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x));
    if (b) KN_TRY(set_descriptor(*out, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b));
    KN_TRY(set_descriptor(*out, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y));
    return finish(*out);
}

/* The operations in their order: each writes a tensor of its own, the last one y. */
static kn_status make_graph(cudnnBackendDescriptor_t *out, builder *p) {
    static const int32_t steps[] = {0, KN__CONV_RESIDUAL, KN__CONV_BIAS, KN__CONV_RELU};
    const kn__conv_key *key = p->key;
    const int64_t bias[KN__CONV_DIMS] = {1, key->y[1], 1, 1, 1};
    cudnnBackendDescriptor_t operation[4], before = NULL;
    int32_t left = key->after;
    int n = 0;
    for (int i = 0; i < 4; i++) {
        cudnnBackendDescriptor_t y, b = NULL;
        if (i && !(key->after & steps[i])) continue;
        left &= ~steps[i];
        KN_TRY(make_tensor(&y, p, left ? UID_BETWEEN + i : UID_Y, key->y));
        if (i == 1) KN_TRY(make_tensor(&b, p, UID_RESIDUAL, key->y));
        if (i == 2) KN_TRY(make_tensor(&b, p, UID_BIAS, bias));
        KN_TRY(i ? make_pointwise(&operation[n], p, before, b, y)
                 : make_operation(&operation[n], p, y));
        before = y;
        n++;
    }
    KN_TRY(make(out, p, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR));
    KN_TRY(set(*out, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, n, operation));
    return finish(*out);
}

/* --- choosing an engine --- */

#define NOTE(name) ((uint32_t)1 << CUDNN_NUMERICAL_NOTE_##name)

/* Some versions of cuDNN 9 don't say that this engine for weights is Winograd's method. A card
 * showed squared errors of 4e-7 for windows of 5 x 5, whose tiles are 13 x 13. */
enum { WEIGHT_WINOGRAD = 17, SMALL_WINDOW = 3 };

/* Tensor cores round f32 factors to TF32; Winograd's method loses as much where its tiles are not
 * said to be small. */
static bool rounds_factors(int64_t engine, uint32_t notes, const kn__conv_key *key) {
    const uint32_t small = NOTE(WINOGRAD_TILE_4x4) | NOTE(WINOGRAD_TILE_6x6);
    if (key->dtype != KN_F32) return false;
    if (notes & (NOTE(TENSOR_CORE) | NOTE(WINOGRAD_TILE_13x13))) return true;
    if (key->kind == KN__CONV_WEIGHT && engine == WEIGHT_WINOGRAD &&
        (key->w[2] > SMALL_WINDOW || key->w[3] > SMALL_WINDOW || key->w[4] > SMALL_WINDOW))
        return true;
    return (notes & NOTE(WINOGRAD)) && !(notes & small);
}

/* The same bits each time, nothing compiled at run time, and arithmetic that the mode allows; f64
 * is exact. */
static bool engine_fits(int64_t *number, uint32_t *notes, cudnnBackendDescriptor_t engine,
                        const kn__conv_key *key) {
    cudnnBackendNumericalNote_t numeric[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
    cudnnBackendBehaviorNote_t behaviour[CUDNN_BEHAVIOR_NOTE_TYPE_COUNT];
    int64_t n_numeric = 0, n_behaviour = 0, n = 0;
    if (KN_PROF_FN(cudnnBackendGetAttribute, engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX,
                   CUDNN_TYPE_INT64, 1, &n, number) ||
        KN_PROF_FN(cudnnBackendGetAttribute, engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
                   CUDNN_TYPE_NUMERICAL_NOTE, CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &n_numeric,
                   numeric) ||
        KN_PROF_FN(cudnnBackendGetAttribute, engine, CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE,
                   CUDNN_TYPE_BEHAVIOR_NOTE, CUDNN_BEHAVIOR_NOTE_TYPE_COUNT, &n_behaviour,
                   behaviour)) {
        return false;
    }
    if (n_numeric > CUDNN_NUMERICAL_NOTE_TYPE_COUNT || n_behaviour > CUDNN_BEHAVIOR_NOTE_TYPE_COUNT)
        return false; /* of a later version: notes that don't fit */
    *notes = 0;
    for (int64_t i = 0; i < n_numeric; i++) *notes |= (uint32_t)1 << numeric[i];
    for (int64_t i = 0; i < n_behaviour; i++)
        if (behaviour[i] == CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION) return false;
    if (*notes &
        (NOTE(NONDETERMINISTIC) | NOTE(DOWN_CONVERT_INPUTS) | NOTE(REDUCED_PRECISION_REDUCTION)))
        return false;
    return !rounds_factors(*number, *notes, key) || key->math == KN_MATH_TF32;
}

/* Tries one configuration; *done when it became the plan. */
static kn_status try_config(bool *done, builder *p, cudnnBackendDescriptor_t config,
                            cudnnBackendDescriptor_t device) {
    int mark = p->n_made;
    cudnnBackendDescriptor_t engine, plan;
    int64_t n = 0, bytes = 0, number = 0;
    uint32_t notes = 0;
    p->n_tried++;
    KN_TRY(make(&engine, p, CUDNN_BACKEND_ENGINE_DESCRIPTOR));
    if (KN_PROF_FN(cudnnBackendGetAttribute, config, CUDNN_ATTR_ENGINECFG_ENGINE,
                   CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &n, &engine) ||
        !engine_fits(&number, &notes, engine, p->key)) {
        unmake(p, mark);
        return KN_OK;
    }
    KN_TRY(make(&plan, p, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR));
    KN_TRY(set_descriptor(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config));
    KN_TRY(set_descriptor(plan, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, device));
    /* A configuration that can't be finalised is no error: the next one is tried. */
    if (KN_PROF_FN(cudnnBackendFinalize, plan) ||
        KN_PROF_FN(cudnnBackendGetAttribute, plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                   CUDNN_TYPE_INT64, 1, &n, &bytes) ||
        bytes > workspace_most_bytes) {
        unmake(p, mark);
        return KN_OK;
    }
    p->plan = plan, p->workspace_bytes = (size_t)bytes, p->engine = number, p->notes = notes;
    p->n_made--; /* it stays */
    *done = true;
    return KN_OK;
}

static kn_status try_mode(bool *done, builder *p, cudnnBackendDescriptor_t graph,
                          cudnnBackendDescriptor_t device, cudnnBackendHeurMode_t mode) {
    int mark = p->n_made;
    cudnnBackendDescriptor_t heuristic, config[HEURISTICS_MAX];
    int64_t n = 0;
    KN_TRY(make(&heuristic, p, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR));
    KN_TRY(set_descriptor(heuristic, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph));
    KN_TRY(set(heuristic, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode));
    KN_TRY(set_descriptor(heuristic, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, device));
    if (KN_PROF_FN(cudnnBackendFinalize, heuristic)) { /* this mode knows nothing of the graph */
        unmake(p, mark);
        return KN_OK;
    }
    for (int i = 0; i < HEURISTICS_MAX; i++) {
        KN_TRY(make(&config[i], p, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR));
    }
    KN_TRY(KN__CUDNN(cudnnBackendGetAttribute, heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                     CUDNN_TYPE_BACKEND_DESCRIPTOR, HEURISTICS_MAX, &n, config));
    for (int64_t i = 0; i < n && !*done; i++) KN_TRY(try_config(done, p, config[i], device));
    unmake(p, mark);
    return KN_OK;
}

static kn_status no_engine(const builder *p) {
    static const char *const kinds[] = {"conv", "conv_data", "conv_weight"};
    const kn__conv_key *key = p->key;
    char x[96], w[96], y[96];
    kn_shape shape = {.n_dims = key->n_spatial + 2};
    memcpy(shape.dim, key->x, sizeof key->x);
    kn_shape_text(x, sizeof x, shape);
    memcpy(shape.dim, key->w, sizeof key->w);
    kn_shape_text(w, sizeof w, shape);
    memcpy(shape.dim, key->y, sizeof key->y);
    kn_shape_text(y, sizeof y, shape);
    return KN_FAIL(KN_ERR_UNSUPPORTED,
                   "kn_%s: cuDNN has no engine of full %s precision for x %s, w %s, y %s "
                   "(%d configurations tried)",
                   kinds[key->kind], kn_dtype_name((kn_dtype)key->dtype), x, w, y, p->n_tried);
}

static kn_status build(builder *p, cudnnBackendDescriptor_t device) {
    cudnnBackendDescriptor_t graph;
    bool done = false;
    KN_TRY(make_graph(&graph, p));
    KN_TRY(try_mode(&done, p, graph, device, CUDNN_HEUR_MODE_A));
    if (!done) KN_TRY(try_mode(&done, p, graph, device, CUDNN_HEUR_MODE_FALLBACK));
    return done ? KN_OK : no_engine(p);
}

kn_status kn__conv_plan_create(kn__conv_plan **out, const kn__conv_key *key,
                               cudnnBackendDescriptor_t device) {
    builder made = {.key = key};
    kn_status status = build(&made, device);
    unmake(&made, 0);
    KN_TRY(status);
    kn__conv_plan *p = calloc(1, sizeof *p);
    if (!p) {
        destroy(made.plan);
        return KN_FAIL(KN_ERR_OOM, "no memory for a convolution plan");
    }
    p->key = *key;
    p->plan = made.plan;
    p->workspace_bytes = made.workspace_bytes;
    p->engine = made.engine;
    p->notes = made.notes;
    p->tf32 = rounds_factors(made.engine, made.notes, key);
    *out = p;
    return KN_OK;
}

/* --- running: a pack holds the addresses of one run. A training step comes back with the same
 * ones, so each plan keeps its last pack. --- */

typedef struct kn__conv_pack {
    cudnnBackendDescriptor_t pack;
    kn__conv_data data;
} kn__conv_pack;

static void pack_destroy(kn__conv_pack *pack) {
    if (!pack) return;
    if (pack->pack) destroy(pack->pack);
    free(pack);
}

static kn_status fill_pack(kn__conv_pack *pack) {
    kn__conv_data *d = &pack->data;
    int64_t uid[5] = {UID_X, UID_W, UID_Y}, n = 3;
    void *data[5] = {d->x, d->w, d->y};
    if (d->residual) uid[n] = UID_RESIDUAL, data[n++] = d->residual;
    if (d->bias) uid[n] = UID_BIAS, data[n++] = d->bias;
    KN_TRY(KN__CUDNN(cudnnBackendCreateDescriptor, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR,
                     &pack->pack));
    KN_TRY(set(pack->pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, n, uid));
    KN_TRY(set(pack->pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, n, data));
    KN_TRY(
        set(pack->pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &d->workspace));
    return finish(pack->pack);
}

static kn_status pack_create(kn__conv_pack **out, const kn__conv_data *data) {
    kn__conv_pack *pack = calloc(1, sizeof *pack);
    if (!pack) return KN_FAIL(KN_ERR_OOM, "no memory for a convolution's arguments");
    pack->data = *data;
    kn_status status = fill_pack(pack);
    if (status < 0) {
        pack_destroy(pack);
        return status;
    }
    *out = pack;
    return KN_OK;
}

/* The plan's spare pack where it fits, else a new one. */
static kn_status pack_take(kn__conv_pack **out, kn__conv_plan *plan, const kn__conv_data *data) {
    kn__conv_pack *pack = atomic_exchange_explicit(&plan->spare, NULL, memory_order_acquire);
    if (pack && memcmp(&pack->data, data, sizeof *data) == 0) {
        *out = pack;
        return KN_OK;
    }
    pack_destroy(pack);
    return pack_create(out, data);
}

kn_status kn__conv_plan_run(kn__conv_plan *plan, cudnnHandle_t handle, const kn__conv_data *data) {
    kn__conv_pack *pack = NULL;
    KN_TRY(pack_take(&pack, plan, data));
    const char *label = plan->tf32 ? "cudnnBackendExecute (tf32)" : "cudnnBackendExecute";
    kn_status status = kn__cudnn_status(
        KN_PROF_CALL(label, cudnnBackendExecute(handle, plan->plan, pack->pack)), label);
    pack_destroy(atomic_exchange_explicit(&plan->spare, pack, memory_order_acq_rel));
    return status;
}

void kn__conv_plan_destroy(kn__conv_plan *p) {
    if (!p) return;
    pack_destroy(atomic_load_explicit(&p->spare, memory_order_acquire));
    if (p->plan) destroy(p->plan);
    free(p);
}
