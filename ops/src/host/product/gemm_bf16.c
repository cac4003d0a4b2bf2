#include "host/product/gemm_bf16.h"

#include <stdlib.h>

#include "host/base/dnnl.h"
#include "host/base/plans.h"
#include "libgomp.h"

enum { SIDE_A, SIDE_B, SIDE_C, SIDES };

typedef struct product_plan {
    kn__host_plan base;
    kn__layout side[SIDES], scratch; /* scratch NULL: none */
    dnnl_primitive_t primitive;
    size_t scratch_bytes;
} product_plan;

static void plan_destroy(kn__host_plan *base) {
    product_plan *plan = (product_plan *)(void *)base;
    for (int i = 0; i < SIDES; i++) kn__layout_destroy(plan->side[i]);
    kn__layout_destroy(plan->scratch);
    if (plan->primitive) dnnl_primitive_destroy(plan->primitive);
    free(plan);
}

static kn__host_plans plans = {.lock = PTHREAD_MUTEX_INITIALIZER, .destroy = plan_destroy};

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

typedef struct making {
    const kn__gemm *gemm;
    dnnl_status_t status;
} making;

/* A primitive remembers how many threads its maker had: ours run on one. */
static kn_status make(kn__host_plan **out, void *ctx) {
    making *m = ctx;
    product_plan *plan = calloc(1, sizeof *plan);
    m->status = plan ? dnnl_success : dnnl_out_of_memory;
    if (!plan) return KN_ERR_OOM;
    int before = omp_get_max_threads();
    omp_set_num_threads(1);
    m->status = build(plan, m->gemm);
    omp_set_num_threads(before);
    *out = &plan->base;
    if (m->status == dnnl_success) return KN_OK;
    plan_destroy(&plan->base);
    return KN_ERR_INTERNAL;
}

static dnnl_status_t plan_get(product_plan **out, const kn__gemm *g) {
    const int64_t key[KN_PLAN_KEY] = {g->m,   g->n,       g->k,       g->lda,       g->ldb,
                                      g->ldc, g->trans_a, g->trans_b, g->accumulate};
    making m = {.gemm = g, .status = dnnl_success};
    kn__host_plan *plan = NULL;
    if (kn__plan_get(&plan, &plans, key, make, &m) < 0) return m.status;
    *out = (product_plan *)(void *)plan;
    return dnnl_success;
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
    kn__plan_drop(&plans, &plan->base);
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
    kn__plan_drop(&plans, &plan->base);
    return (int)status;
}
