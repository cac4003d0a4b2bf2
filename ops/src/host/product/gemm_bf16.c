#include "host/product/gemm_bf16.h"

#include <stdlib.h>

#include "cancel.h"
#include "host/base/dnnl.h"
#include "libgomp.h"

enum { SIDE_A, SIDE_B, SIDE_C, SIDES };

enum { PLANS_MAX = 256 };

typedef struct product_key {
    int64_t m, n, k, lda, ldb, ldc, trans_a, trans_b, accumulate;
} product_key;

typedef struct product_plan {
    kn__cached_plan cached;
    product_key key;
    kn__layout side[SIDES], scratch; /* scratch NULL: none */
    dnnl_primitive_t primitive;
    size_t scratch_bytes;
} product_plan;

_Static_assert(offsetof(product_plan, key) == sizeof(kn__cached_plan), "the key follows");

static void plan_destroy(kn__cached_plan *cached) {
    product_plan *plan = (product_plan *)(void *)cached;
    for (int i = 0; i < SIDES; i++) kn__layout_destroy(plan->side[i]);
    kn__layout_destroy(plan->scratch);
    if (plan->primitive) dnnl_primitive_destroy(plan->primitive);
    free(plan);
}

kn__plan_cache kn__gemm_bf16_cache = KN__PLAN_CACHE(product_key, PLANS_MAX, plan_destroy);

/* --- one plan --- */

static dnnl_status_t side_init(kn__layout *out, int64_t rows, int64_t columns, int64_t ld,
                               bool transposed) {
    const dnnl_dims_t dims = {rows, columns}, strides = {transposed ? 1 : ld, transposed ? ld : 1};
    return kn__layout_strided(out, 2, dims, dnnl_bf16, strides);
}

static dnnl_status_t describe(dnnl_primitive_desc_t *out, const product_plan *plan,
                              const_dnnl_primitive_attr_t attr) {
    kn__layout_ref a = plan->side[SIDE_A], b = plan->side[SIDE_B], c = plan->side[SIDE_C];
#if DNNL_VERSION_MAJOR >= 3
    return dnnl_matmul_primitive_desc_create(out, kn__dnnl_engine(), a, b, NULL, c, attr);
#else
    dnnl_matmul_desc_t d;
    dnnl_status_t status = dnnl_matmul_desc_init(&d, a, b, NULL, c);
    if (status != dnnl_success) return status;
    return dnnl_primitive_desc_create(out, &d, attr, kn__dnnl_engine(), NULL);
#endif
}

/* Adds c to the sum before the sum is rounded. */
static dnnl_status_t add_to_c(dnnl_primitive_attr_t attr) {
    dnnl_post_ops_t ops = NULL;
    dnnl_status_t status = dnnl_post_ops_create(&ops);
#if DNNL_VERSION_MAJOR >= 3
    if (status == dnnl_success) status = dnnl_post_ops_append_sum(ops, 1, 0, dnnl_data_type_undef);
#else
    if (status == dnnl_success) status = dnnl_post_ops_append_sum(ops, 1);
#endif
    if (status == dnnl_success) status = dnnl_primitive_attr_set_post_ops(attr, ops);
    if (ops) dnnl_post_ops_destroy(ops);
    return status;
}

static dnnl_status_t finish(product_plan *plan, const_dnnl_primitive_desc_t desc) {
    kn__layout_ref scratch = dnnl_primitive_desc_query_md(desc, dnnl_query_scratchpad_md, 0);
    dnnl_status_t status = scratch ? kn__layout_copy(&plan->scratch, scratch) : dnnl_success;
    if (plan->scratch) plan->scratch_bytes = dnnl_memory_desc_get_size(plan->scratch);
    return status == dnnl_success ? dnnl_primitive_create(&plan->primitive, desc) : status;
}

static dnnl_status_t build(product_plan *plan, const kn__gemm *g) {
    dnnl_primitive_attr_t attr = NULL;
    dnnl_primitive_desc_t desc = NULL;
    dnnl_status_t status = side_init(&plan->side[SIDE_A], g->m, g->k, g->lda, g->trans_a);
    if (status == dnnl_success)
        status = side_init(&plan->side[SIDE_B], g->k, g->n, g->ldb, g->trans_b);
    if (status == dnnl_success) status = side_init(&plan->side[SIDE_C], g->m, g->n, g->ldc, false);
    if (status == dnnl_success) status = dnnl_primitive_attr_create(&attr);
    if (status == dnnl_success)
        status = dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user);
    if (status == dnnl_success && g->accumulate) status = add_to_c(attr);
    if (status == dnnl_success) status = describe(&desc, plan, attr);
    if (status == dnnl_success) status = finish(plan, desc);
    if (desc) dnnl_primitive_desc_destroy(desc);
    if (attr) dnnl_primitive_attr_destroy(attr);
    return status;
}

/* A primitive remembers how many threads its maker had: ours run on one. */
static dnnl_status_t plan_create(product_plan **out, const kn__gemm *g) {
    product_plan *plan = calloc(1, sizeof *plan);
    if (!plan) return dnnl_out_of_memory;
    int before = omp_get_max_threads();
    omp_set_num_threads(1);
    dnnl_status_t status = build(plan, g);
    omp_set_num_threads(before);
    if (status == dnnl_success)
        *out = plan;
    else
        plan_destroy(&plan->cached);
    return status;
}

static dnnl_status_t plan_add(kn__cached_plan **out, const product_key *key, const kn__gemm *g) {
    product_plan *made = NULL;
    dnnl_status_t status = plan_create(&made, g);
    if (status != dnnl_success) return status;
    made->key = *key;
    *out = kn__plan_cache_put(&kn__gemm_bf16_cache, &made->cached);
    return dnnl_success;
}

static dnnl_status_t plan_get(product_plan **out, const kn__gemm *g) {
    const product_key key = {g->m,   g->n,       g->k,       g->lda,       g->ldb,
                             g->ldc, g->trans_a, g->trans_b, g->accumulate};
    kn__cached_plan *cached = kn__plan_cache_get(&kn__gemm_bf16_cache, &key);
    dnnl_status_t status = dnnl_success;
    if (!cached) {
        KN__CANCEL_LATER();
        pthread_mutex_lock(&kn__dnnl_making);
        cached = kn__plan_cache_get(&kn__gemm_bf16_cache, &key);
        if (!cached) status = plan_add(&cached, &key, g);
        pthread_mutex_unlock(&kn__dnnl_making);
    }
    *out = (product_plan *)(void *)cached;
    return status;
}

/* --- its use --- */

bool kn__gemm_bf16_pays(int64_t m, int64_t n, int64_t k) {
    return m > 0 && n > 0 && k > 0 && kn__dnnl_has_bf16();
}

/* 0 also where there is no plan: the run then says why. */
size_t kn__gemm_bf16_bytes(const kn__gemm *g) {
    product_plan *plan = NULL;
    if (plan_get(&plan, g) != dnnl_success) return 0;
    size_t bytes = plan->scratch_bytes;
    kn__plan_cache_drop(&kn__gemm_bf16_cache, &plan->cached);
    return bytes;
}

int kn__gemm_bf16_run(const kn__gemm *g, void *workspace) {
    product_plan *plan = NULL;
    dnnl_status_t status = plan_get(&plan, g);
    if (status != dnnl_success) return (int)status;
    kn__dnnl_call call = {.n = 0};
    kn__dnnl_add(&call, DNNL_ARG_SRC, plan->side[SIDE_A], g->a);
    kn__dnnl_add(&call, DNNL_ARG_WEIGHTS, plan->side[SIDE_B], g->b);
    kn__dnnl_add(&call, DNNL_ARG_DST, plan->side[SIDE_C], g->c);
    if (plan->scratch_bytes) kn__dnnl_add(&call, DNNL_ARG_SCRATCHPAD, plan->scratch, workspace);
    status = kn__dnnl_execute(&call, plan->primitive);
    kn__plan_cache_drop(&kn__gemm_bf16_cache, &plan->cached);
    return (int)status;
}
