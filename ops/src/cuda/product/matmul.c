/* Products by cublasLt. It thinks in columns: our row-major c = a·b is its cᵀ = bᵀ·aᵀ, so b goes
 * first and a bias along c's rows is what its BIAS epilogue adds. Compute types are strict, unless
 * the call's math mode allows factors of fewer bits.
 */
#include <stdlib.h>
#include <string.h>

#include "cancel.h"
#include "cuda/base/module.h"
#include "plan_cache.h"

/* c [batch,m,n] = act(op(a)·op(b) (+ bias along n) (+ residual)), k summed over */
typedef struct product {
    int64_t batch, m, n, k;
    bool trans_a, trans_b, one_a, one_b; /* one_…: the same matrix for the whole batch */
    kn_act act;
    const void *a, *b;
    void *c;
    const kn_tensor *bias; /* NULL: none */
    const void *residual;  /* like c, added before act; NULL: none */
    bool sums;             /* bias [m] is a result: the sums of op(a) over k */
} product;

enum bias_use { BIAS_NONE, BIAS_ADDED, BIAS_SUMS };

typedef struct lt_key {
    int64_t batch, m, n, k;
    uint32_t gpu, alignment_bytes;
    uint8_t dtype, trans_a, trans_b, accumulate, math; /* math: as asked for */
    uint8_t bias, relu, one;                           /* bias: a bias_use; one: 1: a, 2: b */
} lt_key;

typedef struct lt_plan {
    kn__cached_plan cached;
    lt_key key;
    bool bias_apart;   /* the epilogue is not supported: kernels do its work */
    kn_math_mode math; /* as it is */
    cublasLtMatrixLayoutOpaque_t a, b, c;
    cublasLtMatmulDescOpaque_t product;
    cublasLtMatmulAlgo_t algo;
    size_t workspace_bytes;
} lt_plan;

_Static_assert(offsetof(lt_plan, key) == sizeof(kn__cached_plan), "the key follows");

static const size_t workspace_most_bytes = (size_t)32 << 20;

static void lt_plan_destroy(kn__cached_plan *plan) { free(plan); }
enum { PLANS_MAX = 1024 };
static kn__plan_cache plans = KN__PLAN_CACHE(lt_key, PLANS_MAX, lt_plan_destroy);

/* One handle a GPU; cublasLt's handles may be used by any thread. They live as long as the process:
 * at its end the driver may be gone already. */
static kn_status lt_handle(cublasLtHandle_t *out, int gpu) {
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    static cublasLtHandle_t handle[KN__GPUS_MAX];
    kn_status status = KN_OK;
    KN__CANCEL_LATER();
    pthread_mutex_lock(&mutex);
    if (!handle[gpu]) status = KN__CUBLAS(cublasLtCreate, &handle[gpu]);
    *out = handle[gpu];
    pthread_mutex_unlock(&mutex);
    return status;
}

/* --- plans --- */

static cudaDataType_t type_of(const lt_key *key) {
    switch (key->dtype) {
        case KN_F64:
            return CUDA_R_64F;
        case KN_F16:
            return CUDA_R_16F;
        case KN_BF16:
            return CUDA_R_16BF;
        default:
            return CUDA_R_32F;
    }
}

/* Of sums and factors: f32 for 16-bit matrices. */
static cudaDataType_t scale_type_of(const lt_key *key) {
    return key->dtype == KN_F64 ? CUDA_R_64F : CUDA_R_32F;
}

static kn_status set_bias(cublasLtMatmulDescOpaque_t *description, const kn_tensor *bias) {
    return KN__CUBLAS(cublasLtMatmulDescSetAttribute, description,
                      CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias->data, sizeof bias->data);
}

static cublasComputeType_t compute_type_of(const lt_plan *p) {
    if (p->key.dtype == KN_F64) return CUBLAS_COMPUTE_64F;
    return p->math == KN_MATH_TF32   ? CUBLAS_COMPUTE_32F_FAST_TF32
           : p->math == KN_MATH_BF16 ? CUBLAS_COMPUTE_32F_FAST_16BF
                                     : CUBLAS_COMPUTE_32F;
}

/* relu is the only activation inside. cublasLt has a gelu too; NVIDIA's documentation does not say
 * which formula it computes, nor how exactly. BGRADB stores the sums over k of cublasLt's B, which
 * is our a; it can't add them to a tensor. */
static cublasLtEpilogue_t epilogue_of(const lt_key *key, bool fused) {
    if (!fused) return CUBLASLT_EPILOGUE_DEFAULT;
    if (key->bias == BIAS_SUMS)
        return key->accumulate ? CUBLASLT_EPILOGUE_DEFAULT : CUBLASLT_EPILOGUE_BGRADB;
    if (key->relu) return key->bias ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_RELU;
    return key->bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
}

static kn_status describe_product(lt_plan *p, const kn_tensor *bias, bool fused) {
    const lt_key *key = &p->key;
    cublasOperation_t op[] = {key->trans_b ? CUBLAS_OP_T : CUBLAS_OP_N,
                              key->trans_a ? CUBLAS_OP_T : CUBLAS_OP_N};
    cublasLtEpilogue_t epilogue = epilogue_of(key, fused);
    KN_TRY(KN__CUBLAS(cublasLtMatmulDescInit, &p->product, compute_type_of(p), scale_type_of(key)));
    KN_TRY(KN__CUBLAS(cublasLtMatmulDescSetAttribute, &p->product, CUBLASLT_MATMUL_DESC_TRANSA,
                      &op[0], sizeof op[0]));
    KN_TRY(KN__CUBLAS(cublasLtMatmulDescSetAttribute, &p->product, CUBLASLT_MATMUL_DESC_TRANSB,
                      &op[1], sizeof op[1]));
    KN_TRY(KN__CUBLAS(cublasLtMatmulDescSetAttribute, &p->product, CUBLASLT_MATMUL_DESC_EPILOGUE,
                      &epilogue, sizeof epilogue));
    return bias && fused ? set_bias(&p->product, bias) : KN_OK;
}

/* Row-major [rows, cols] matrices, which to cublasLt are cols × rows by columns. */
static kn_status describe_matrix(cublasLtMatrixLayoutOpaque_t *out, const lt_key *key, int64_t rows,
                                 int64_t cols, bool is_one) {
    KN_TRY(KN__CUBLAS(cublasLtMatrixLayoutInit, out, type_of(key), (uint64_t)cols, (uint64_t)rows,
                      cols));
    if (key->batch == 1) return KN_OK;
    int64_t step = is_one ? 0 : rows * cols;
    int32_t batch = (int32_t)key->batch;
    KN_TRY(KN__CUBLAS(cublasLtMatrixLayoutSetAttribute, out, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT,
                      &batch, sizeof batch));
    return KN__CUBLAS(cublasLtMatrixLayoutSetAttribute, out,
                      CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &step, sizeof step);
}

static kn_status describe_matrices(lt_plan *p) {
    const lt_key *key = &p->key;
    KN_TRY(describe_matrix(&p->a, key, key->trans_a ? key->k : key->m,
                           key->trans_a ? key->m : key->k, key->one & 1));
    KN_TRY(describe_matrix(&p->b, key, key->trans_b ? key->n : key->k,
                           key->trans_b ? key->k : key->n, key->one & 2));
    return describe_matrix(&p->c, key, key->m, key->n, false);
}

static kn_status describe_preference(cublasLtMatmulPreferenceOpaque_t *out, const lt_key *key) {
    static const cublasLtMatmulPreferenceAttributes_t alignments[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    KN_TRY(KN__CUBLAS(cublasLtMatmulPreferenceInit, out));
    KN_TRY(KN__CUBLAS(cublasLtMatmulPreferenceSetAttribute, out,
                      CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace_most_bytes,
                      sizeof workspace_most_bytes));
    uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE; /* parts are not rounded */
    if (kn__is_half(key->dtype))
        KN_TRY(KN__CUBLAS(cublasLtMatmulPreferenceSetAttribute, out,
                          CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &reductions,
                          sizeof reductions));
    for (int i = 0; i < 4; i++) {
        KN_TRY(KN__CUBLAS(cublasLtMatmulPreferenceSetAttribute, out, alignments[i],
                          &key->alignment_bytes, sizeof key->alignment_bytes));
    }
    return KN_OK;
}

/* Asks for the best algorithm. Errors: UNSUPPORTED without a fitting one; cublasLt's. */
static kn_status choose(lt_plan *p, cublasLtHandle_t lt, const kn_tensor *bias, bool fused) {
    cublasLtMatmulPreferenceOpaque_t preference;
    cublasLtMatmulHeuristicResult_t best;
    int n = 0;
    KN_TRY(describe_product(p, bias, fused));
    KN_TRY(describe_preference(&preference, &p->key));
    KN_TRY(KN__CUBLAS(cublasLtMatmulAlgoGetHeuristic, lt, &p->product, &p->b, &p->a, &p->c, &p->c,
                      &preference, 1, &best, &n));
    if (n == 0 || best.state != CUBLAS_STATUS_SUCCESS) {
        return KN_FAIL(KN_ERR_UNSUPPORTED,
                       "cublasLt has no product of %s [%lld,%lld] by [%lld,%lld]",
                       kn_dtype_name((kn_dtype)p->key.dtype), (long long)p->key.m,
                       (long long)p->key.k, (long long)p->key.k, (long long)p->key.n);
    }
    p->algo = best.algo, p->workspace_bytes = best.workspaceSize;
    return KN_OK;
}

/* Versions differ in how they refuse an epilogue: whatever the error, kernels can do its work. */
static kn_status choose_epilogue(lt_plan *p, cublasLtHandle_t lt, const kn_tensor *bias) {
    bool fused = epilogue_of(&p->key, true) != CUBLASLT_EPILOGUE_DEFAULT;
    p->bias_apart = false;
    if (fused && choose(p, lt, bias, true) == KN_OK) return KN_OK;
    p->bias_apart = true;
    return choose(p, lt, bias, false);
}

/* A mode that this GPU has nothing for becomes strict. */
static kn_status build(lt_plan *p, cublasLtHandle_t lt, const kn_tensor *bias) {
    KN_TRY(describe_matrices(p));
    if (p->math != KN_MATH_STRICT && choose_epilogue(p, lt, bias) == KN_OK) return KN_OK;
    p->math = KN_MATH_STRICT;
    return choose_epilogue(p, lt, bias);
}

/* The mode asked for, where the GPU has tensor cores for it: from compute capability 8.0 on. */
static kn_math_mode math_of(const kn_op_call *call, const lt_key *key) {
    kn_device_info info = {.compute_major = 0};
    if (key->math == KN_MATH_STRICT) return KN_MATH_STRICT;
    bool known = kn_device_info_read(&info, sizeof info, call->device) == KN_OK;
    return known && info.compute_major >= 8 ? (kn_math_mode)key->math : KN_MATH_STRICT;
}

static kn_status plan_of(lt_plan **out, const kn_op_call *call, const lt_key *key,
                         cublasLtHandle_t lt, const kn_tensor *bias) {
    lt_plan *p = (lt_plan *)(void *)kn__plan_cache_get(&plans, key);
    if (!p) {
        p = calloc(1, sizeof *p);
        if (!p) return KN_FAIL(KN_ERR_OOM, "no memory for a plan of a product");
        p->key = *key;
        p->math = math_of(call, key);
        kn_status status = build(p, lt, bias);
        if (status < 0) {
            free(p);
            return status;
        }
        p = (lt_plan *)(void *)kn__plan_cache_put(&plans, &p->cached);
    }
    *out = p;
    return KN_OK;
}

/* --- running --- */

/* The largest power of two up to 16, the widest access, that divides every address: more would only
 * make more plans. */
static uint32_t alignment_of(const product *x) {
    uintptr_t all = (uintptr_t)x->a | (uintptr_t)x->b | (uintptr_t)x->c | 16;
    all |= (uintptr_t)x->residual;
    if (x->bias) all |= (uintptr_t)x->bias->data;
    return (uint32_t)(all & (~all + 1));
}

static lt_key key_of(const kn_op_call *call, const product *x) {
    lt_key key;
    memset(&key, 0, sizeof key);
    key.batch = x->batch, key.m = x->m, key.n = x->n, key.k = x->k;
    key.gpu = (uint32_t)kn__gpu_index(call->device);
    key.alignment_bytes = alignment_of(x);
    key.dtype = call->out[0]->dtype;
    key.trans_a = x->trans_a, key.trans_b = x->trans_b;
    key.bias = !x->bias ? BIAS_NONE : x->sums ? BIAS_SUMS : BIAS_ADDED;
    key.accumulate = x->sums ? call->accumulate & 3 : kn__adds(call);
    key.relu = x->act == KN_ACT_RELU, key.one = (uint8_t)(x->one_a | x->one_b << 1);
    key.math = (uint8_t)(key.dtype == KN_F32 ? call->math : KN_MATH_STRICT);
    return key;
}

static const char *label_of(kn_math_mode math) {
    return math == KN_MATH_TF32   ? "cublasLtMatmul (tf32)"
           : math == KN_MATH_BF16 ? "cublasLtMatmul (bf16)"
                                  : "cublasLtMatmul";
}

static kn_status execute(const kn_op_call *call, const product *x, lt_plan *p, cublasLtHandle_t lt,
                         void *workspace) {
    bool is_double = call->out[0]->dtype == KN_F64;
    double one = 1, beta = kn__adds(call) || x->residual ? 1 : 0;
    float one_f = 1, beta_f = (float)beta;
    cublasLtMatmulDescOpaque_t description = p->product;
    if (x->bias && !p->bias_apart) KN_TRY(set_bias(&description, x->bias));
    const void *c = x->residual ? x->residual : x->c;
    const void *one_p = is_double ? (const void *)&one : &one_f;
    const void *beta_p = is_double ? (const void *)&beta : &beta_f;
    const char *label = label_of(p->math);
    return kn__cublas_status(
        KN_PROF_CALL(label, cublasLtMatmul(lt, &description, one_p, x->b, &p->b, x->a, &p->a,
                                           beta_p, c, &p->c, x->c, &p->c, &p->algo, workspace,
                                           p->workspace_bytes, call->stream)),
        label);
}

/* What the epilogue left to do. */
static kn_status finish(const kn_op_call *call, const product *x, bool bias_apart) {
    kn_tensor *y = call->out[0];
    if (x->sums) return bias_apart ? kn__linear_bias_back(call, kn__cuda_reduce) : KN_OK;
    if (bias_apart && x->bias) KN_TRY(kn__bias_add(call, y, x->bias, y->n_dims - 1));
    bool is_inside = x->act == KN_ACT_RELU && !bias_apart;
    return x->act && !is_inside ? kn__activate(call, x->act) : KN_OK;
}

static kn_status run_planned(kn_op_call *call, const product *x, lt_plan *p, cublasLtHandle_t lt) {
    void *workspace = NULL;
    if (p->workspace_bytes) KN_TRY(kn__work(&workspace, call, p->workspace_bytes));
    KN_TRY(execute(call, x, p, lt, workspace));
    return finish(call, x, p->bias_apart);
}

/* Nothing is summed over: the residual or zeros, and the bias. */
static kn_status run_empty(const kn_op_call *call, const product *x) {
    const kn_tensor *y = call->out[0];
    size_t bytes = (size_t)y->n * kn_dtype_bytes((kn_dtype)y->dtype);
    if (x->residual)
        KN_TRY(KN__CUDA(cudaMemcpyAsync, y->data, x->residual, bytes, cudaMemcpyDeviceToDevice,
                        call->stream));
    else
        KN_TRY(kn__zeros(call, 0));
    return finish(call, x, true);
}

static kn_status run(kn_op_call *call, const product *x) {
    if (x->k == 0) return run_empty(call, x);
    lt_key key = key_of(call, x);
    cublasLtHandle_t lt = NULL;
    lt_plan *p = NULL;
    KN_TRY(lt_handle(&lt, (int)key.gpu));
    KN_TRY(plan_of(&p, call, &key, lt, x->bias));
    kn_status status = run_planned(call, x, p, lt);
    kn__plan_cache_drop(&plans, &p->cached);
    return status;
}

/* --- batches: of the leading dimensions, the last ones of which each factor either has or
 * repeats whole go into one call; the others are walked --- */

typedef struct batch {
    int n_dims, n_outer; /* dimensions; those that are walked */
    int64_t dim[KN_DIMS_MAX], step_a[KN_DIMS_MAX], step_b[KN_DIMS_MAX]; /* matrices; 0: repeated */
    int64_t n_outer_products;
} batch;

static void steps_of(int64_t step[], const kn_tensor *t, const batch *b) {
    int64_t size = 1;
    for (int d = b->n_dims - 1; d >= 0; d--) {
        int own_d = d - (b->n_dims - (t->n_dims - 2));
        int64_t own = own_d < 0 ? 1 : t->dim[own_d];
        step[d] = own == 1 ? 0 : size;
        size *= own;
    }
}

/* Dimensions of one element fit any pattern. */
static bool joins(const int64_t step[], const batch *b, int d) {
    for (int e = d + 1; e < b->n_dims; e++) {
        if (b->dim[d] != 1 && b->dim[e] != 1) return (step[d] == 0) == (step[e] == 0);
    }
    return true;
}

static batch batch_of(product *x, const kn_tensor *a, const kn_tensor *b) {
    batch all = {.n_dims = (a->n_dims > b->n_dims ? a->n_dims : b->n_dims) - 2,
                 .n_outer_products = 1};
    for (int d = 0; d < all.n_dims; d++) {
        int in_a = d - all.n_dims + a->n_dims - 2, in_b = d - all.n_dims + b->n_dims - 2;
        int64_t of_a = in_a < 0 ? 1 : a->dim[in_a], of_b = in_b < 0 ? 1 : b->dim[in_b];
        all.dim[d] = of_a == 1 ? of_b : of_a;
    }
    steps_of(all.step_a, a, &all);
    steps_of(all.step_b, b, &all);
    all.n_outer = all.n_dims;
    while (all.n_outer > 0 && joins(all.step_a, &all, all.n_outer - 1) &&
           joins(all.step_b, &all, all.n_outer - 1)) {
        int d = --all.n_outer;
        x->batch *= all.dim[d];
        if (all.dim[d] == 1) continue;
        x->one_a = all.step_a[d] == 0, x->one_b = all.step_b[d] == 0;
    }
    for (int d = 0; d < all.n_outer; d++) all.n_outer_products *= all.dim[d];
    return all;
}

static kn_status run_batch(kn_op_call *call, product *x, const batch *all) {
    size_t bytes = kn_dtype_bytes((kn_dtype)call->out[0]->dtype);
    const char *a = x->a, *b = x->b;
    char *c = x->c;
    for (int64_t i = 0; i < all->n_outer_products; i++) {
        int64_t at_a = 0, at_b = 0, rest = i;
        for (int d = all->n_outer - 1; d >= 0; d--) {
            at_a += rest % all->dim[d] * all->step_a[d];
            at_b += rest % all->dim[d] * all->step_b[d];
            rest /= all->dim[d];
        }
        x->a = a + (size_t)(at_a * x->m * x->k) * bytes;
        x->b = b + (size_t)(at_b * x->k * x->n) * bytes;
        x->c = c + (size_t)(i * x->batch * x->m * x->n) * bytes;
        KN_TRY(run(call, x));
        kn__work_end(call, 0);
    }
    return KN_OK;
}

kn_status kn__cuda_matmul(kn_op_call *call) {
    const kn_attr_matmul *attr = call->attr;
    const kn_tensor *a = call->in[0], *b = call->in[1];
    const int64_t *of_a = &a->dim[a->n_dims - 2], *of_b = &b->dim[b->n_dims - 2];
    product x = {.batch = 1,
                 .m = of_a[attr->trans_a ? 1 : 0],
                 .n = of_b[attr->trans_b ? 0 : 1],
                 .k = of_a[attr->trans_a ? 0 : 1],
                 .trans_a = attr->trans_a,
                 .trans_b = attr->trans_b,
                 .a = a->data,
                 .b = b->data,
                 .c = call->out[0]->data};
    batch all = batch_of(&x, a, b);
    if (x.batch > INT32_MAX) {
        return KN_FAIL(KN_ERR_UNSUPPORTED, "kn_matmul: %s takes up to 2^31 - 1 products, not %lld",
                       kn_device_name(call->device), (long long)x.batch);
    }
    return x.k == 0 ? run_empty(call, &x) : run_batch(call, &x, &all);
}

kn_status kn__cuda_linear(kn_op_call *call) {
    const kn_tensor *w = call->in[1]; /* [O,I] */
    product x = {.batch = 1,
                 .m = call->out[0]->n / w->dim[0],
                 .n = w->dim[0],
                 .k = w->dim[1],
                 .trans_b = true,
                 .a = call->in[0]->data,
                 .b = w->data,
                 .c = call->out[0]->data,
                 .bias = call->in[2] == KN_NONE ? NULL : call->in[2]};
    if (call->op == KN_OP_linear_act) {
        x.act = (kn_act)((const kn_attr_act *)call->attr)->act;
        x.residual = call->in[3] == KN_NONE ? NULL : call->in[3]->data;
    }
    return run(call, &x);
}

kn_status kn__cuda_linear_weight_bias(kn_op_call *call) {
    const kn_tensor *x = call->in[0], *g = call->in[1];
    product p = {.batch = 1,
                 .m = g->dim[1],
                 .n = x->dim[1],
                 .k = x->dim[0],
                 .trans_a = true,
                 .a = g->data,
                 .b = x->data,
                 .c = call->out[0]->data,
                 .bias = call->out[1],
                 .sums = true};
    return run(call, &p);
}
