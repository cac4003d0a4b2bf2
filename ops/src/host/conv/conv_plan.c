/* Making oneDNN's primitives for a convolution, and the cache of them. */
#include "host/conv/conv_plan.h"

#include <dnnl_debug.h>
#include <knet/prof_call.h>
#include <stdlib.h>
#include <string.h>

#include "cancel.h"
#include "host/conv/conv_layout.h"
#include "libgomp.h"

kn_status kn__dnnl_status(dnnl_status_t status, const char *function, const kn__conv_sizes *s) {
    if (status == dnnl_success) return KN_OK;
    return KN_FAIL(
        status == dnnl_out_of_memory ? KN_ERR_OOM : KN_ERR_INTERNAL,
        "%s: %s (x [%lld,%lld,%lld,%lld,%lld], w [%lld,%lld,%lld,%lld,%lld] in %lld "
        "groups, stride %lld,%lld,%lld, padding %lld,%lld,%lld, dilation %lld,%lld,%lld)",
        function, dnnl_status2str(status), (long long)s->batch,
        (long long)(s->groups * s->channels), (long long)s->in[0], (long long)s->in[1],
        (long long)s->in[2], (long long)(s->groups * s->outputs), (long long)s->channels,
        (long long)s->window[0], (long long)s->window[1], (long long)s->window[2],
        (long long)s->groups, (long long)s->stride[0], (long long)s->stride[1],
        (long long)s->stride[2], (long long)s->padding[0], (long long)s->padding[1],
        (long long)s->padding[2], (long long)s->dilation[0], (long long)s->dilation[1],
        (long long)s->dilation[2]);
}

/* --- one plan --- */

/* What the library is asked for: sizes without the dimensions that this convolution lacks. */
typedef struct problem {
    kn__conv_pass pass;
    unsigned flags;
    int n_spatial;
    dnnl_dims_t stride, padding, padding_end, dilation;
    kn__host_conv_plan *plan;
} problem;

int kn__conv_spatial(const kn__conv_sizes *s) {
    for (int i = 0; i < 2; i++)
        if (s->in[i] != 1 || s->window[i] != 1 || s->padding[i] || s->padding_end[i] ||
            s->stride[i] != 1)
            return 3 - i;
    return 1;
}

/* [lead…, the last n_spatial of sizes], plain and with the layout left to the library */
static dnnl_status_t side_init(kn__side *side, const int64_t *lead, int n_lead,
                               const int64_t sizes[3], int n_spatial, dnnl_data_type_t type,
                               bool in_blocks) {
    static const dnnl_format_tag_t plain[] = {
        [3] = dnnl_abc, [4] = dnnl_abcd, [5] = dnnl_abcde, [6] = dnnl_abcdef};
    static const dnnl_format_tag_t blocks[][5] = {{[3] = dnnl_aBc8b, [4] = dnnl_aBcd8b},
                                                  {[3] = dnnl_aBc16b, [4] = dnnl_aBcd16b}};
    dnnl_dims_t dims = {0};
    int n = n_lead + n_spatial;
    for (int i = 0; i < n_lead; i++) dims[i] = lead[i];
    for (int i = 0; i < n_spatial; i++) dims[n_lead + i] = sizes[3 - n_spatial + i];
    dnnl_format_tag_t tag = in_blocks ? blocks[kn__layout_block() == 16][n] : plain[n];
    dnnl_status_t status = kn__layout_create(&side->plain, n, dims, type, tag);
    if (status != dnnl_success) return status;
    return kn__layout_create(&side->blocked, n, dims, type, in_blocks ? tag : dnnl_format_tag_any);
}

static dnnl_status_t bias_init(kn__layout *bias, int64_t outputs, dnnl_data_type_t type) {
    dnnl_dims_t dims = {outputs};
    return kn__layout_create(bias, 1, dims, type, dnnl_a);
}

static dnnl_status_t problem_init(problem *p, const kn__conv_sizes *s, int64_t images) {
    static const int args[][KN_SIDES] = {{DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST},
                                         {DNNL_ARG_DIFF_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DIFF_DST},
                                         {DNNL_ARG_SRC, DNNL_ARG_DIFF_WEIGHTS, DNNL_ARG_DIFF_DST}};
    p->n_spatial = kn__conv_spatial(s);
    for (int i = 0; i < p->n_spatial; i++) {
        int from = 3 - p->n_spatial + i;
        p->stride[i] = s->stride[from];
        p->padding[i] = s->padding[from];
        p->padding_end[i] = s->padding_end[from];
        p->dilation[i] = s->dilation[from] - 1;
    }
    kn__side *side = p->plan->side;
    for (int i = 0; i < KN_SIDES; i++) side[i].arg = args[p->pass][i];
    const int64_t x[] = {images, s->groups * s->channels}, y[] = {images, s->groups * s->outputs};
    const int64_t w[] = {s->groups, s->outputs, s->channels};
    dnnl_data_type_t type = p->flags & KN_PLAN_BF16 ? dnnl_bf16 : dnnl_f32;
    dnnl_data_type_t of_w = p->pass == KN_PASS_WEIGHT ? dnnl_f32 : type;
    int skip = s->groups == 1; /* weights have a dimension of groups only when there are some */
    dnnl_status_t status = side_init(&side[KN_SIDE_X], x, 2, s->in, p->n_spatial, type,
                                     p->flags & KN_PLAN_FROM_BLOCKS);
    if (status == dnnl_success)
        status =
            side_init(&side[KN_SIDE_W], w + skip, 3 - skip, s->window, p->n_spatial, of_w, false);
    if (status == dnnl_success)
        status = side_init(&side[KN_SIDE_Y], y, 2, s->out, p->n_spatial, type,
                           p->flags & KN_PLAN_TO_BLOCKS);
    if (status == dnnl_success && (p->flags & KN_PLAN_BIAS))
        status = bias_init(&p->plan->bias, y[1], type);
    return status;
}

static dnnl_status_t describe(dnnl_primitive_desc_t *out, const problem *p,
                              const_dnnl_primitive_attr_t attr) {
    const kn__side *side = p->plan->side;
    kn__layout_ref x = side[KN_SIDE_X].blocked, w = side[KN_SIDE_W].blocked,
                   y = side[KN_SIDE_Y].blocked, b = p->plan->bias;
    const dnnl_alg_kind_t alg = dnnl_convolution_direct;
    const dnnl_prop_kind_t kind =
        p->flags & KN_PLAN_KEEP ? dnnl_forward_inference : dnnl_forward_training;
    const dnnl_dim_t *step = p->stride, *pad = p->padding, *end = p->padding_end,
                     *dil = p->dilation;
    dnnl_engine_t cpu = kn__dnnl_engine();
#if DNNL_VERSION_MAJOR >= 3
    if (p->pass == KN_PASS_FORWARD)
        return KN_PROF_FN(dnnl_convolution_forward_primitive_desc_create, out, cpu, kind, alg, x, w,
                          b, y, step, dil, pad, end, attr);
    if (p->pass == KN_PASS_DATA)
        return KN_PROF_FN(dnnl_convolution_backward_data_primitive_desc_create, out, cpu, alg, x, w,
                          y, step, dil, pad, end, NULL, attr);
    return KN_PROF_FN(dnnl_convolution_backward_weights_primitive_desc_create, out, cpu, alg, x, w,
                      NULL, y, step, dil, pad, end, NULL, attr);
#else
    dnnl_convolution_desc_t d;
    dnnl_status_t status;
    if (p->pass == KN_PASS_FORWARD)
        status = dnnl_dilated_convolution_forward_desc_init(&d, kind, alg, x, w, b, y, step, dil,
                                                            pad, end);
    else if (p->pass == KN_PASS_DATA)
        status =
            dnnl_dilated_convolution_backward_data_desc_init(&d, alg, x, w, y, step, dil, pad, end);
    else
        status = dnnl_dilated_convolution_backward_weights_desc_init(&d, alg, x, w, NULL, y, step,
                                                                     dil, pad, end);
    if (status != dnnl_success) return status;
    return KN_PROF_FN(dnnl_primitive_desc_create, out, &d, attr, cpu, NULL);
#endif
}

static dnnl_status_t side_finish(kn__side *side, const_dnnl_primitive_desc_t desc, bool result) {
    kn__layout_ref chosen = dnnl_primitive_desc_query_md(desc, dnnl_query_exec_arg_md, side->arg);
    kn__layout copy = NULL;
    if (!chosen) return dnnl_invalid_arguments;
    dnnl_status_t status = kn__layout_copy(&copy, chosen);
    if (status != dnnl_success) return status;
    kn__layout_destroy(side->blocked);
    side->blocked = copy;
    side->bytes = dnnl_memory_desc_get_size(chosen);
    if (dnnl_memory_desc_equal(side->plain, chosen)) return dnnl_success;
    dnnl_primitive_desc_t reorder = NULL;
    status = KN_PROF_FN(dnnl_reorder_primitive_desc_create, &reorder,
                        result ? side->blocked : side->plain, kn__dnnl_engine(),
                        result ? side->plain : side->blocked, kn__dnnl_engine(), NULL);
    if (status != dnnl_success) return status;
    status = KN_PROF_FN(dnnl_primitive_create, &side->reorder, reorder);
    dnnl_primitive_desc_destroy(reorder);
    return status;
}

/* What the library does by reference loops or by column matrices, we do faster. */
static bool is_slow(const_dnnl_primitive_desc_t desc) {
    const char *name = NULL;
    if (dnnl_primitive_desc_query(desc, dnnl_query_impl_info_str, 0, &name) != dnnl_success)
        return false;
    return strstr(name, "ref") || strstr(name, "gemm");
}

static dnnl_status_t plan_finish(problem *p, const_dnnl_primitive_desc_t desc) {
    kn__host_conv_plan *plan = p->plan;
    kn__layout_ref scratch = dnnl_primitive_desc_query_md(desc, dnnl_query_scratchpad_md, 0);
    dnnl_status_t status = scratch ? kn__layout_copy(&plan->scratch, scratch) : dnnl_success;
    if (plan->scratch) plan->scratch_bytes = dnnl_memory_desc_get_size(plan->scratch);
    for (int i = 0; i < KN_SIDES && status == dnnl_success; i++)
        status = side_finish(&plan->side[i], desc, i == kn__result_side(p->pass));
    if (status != dnnl_success) return status;
    return KN_PROF_FN(dnnl_primitive_create, &plan->primitive, desc);
}

/* Any other status but success says that the library has no such thing. */
static bool is_failure(dnnl_status_t status) {
    return status == dnnl_out_of_memory || status == dnnl_invalid_arguments ||
           status == dnnl_runtime_error;
}

/* What follows the sums, in the attribute that owns a copy of it. */
static dnnl_status_t epilogue_set(dnnl_primitive_attr_t attr, const problem *p) {
    dnnl_post_ops_t ops = NULL;
    dnnl_status_t status = dnnl_post_ops_create(&ops);
    if (status == dnnl_success && (p->flags & KN_PLAN_ADD))
        status =
            dnnl_post_ops_append_binary(ops, dnnl_binary_add, p->plan->side[KN_SIDE_Y].blocked);
    if (status == dnnl_success && (p->flags & KN_PLAN_RELU))
#if DNNL_VERSION_MAJOR >= 3
        status = dnnl_post_ops_append_eltwise(ops, dnnl_eltwise_relu, 0, 0);
#else
        status = dnnl_post_ops_append_eltwise(ops, 1, dnnl_eltwise_relu, 0, 0);
#endif
    if (status == dnnl_success) status = dnnl_primitive_attr_set_post_ops(attr, ops);
    if (ops) dnnl_post_ops_destroy(ops);
    return status;
}

/* plan->primitive stays NULL where the library has nothing fast. */
static dnnl_status_t plan_build(problem *p) {
    dnnl_primitive_attr_t attr = NULL;
    dnnl_primitive_desc_t desc = NULL;
    dnnl_status_t status = dnnl_primitive_attr_create(&attr);
    if (status != dnnl_success) return status;
    status = dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user);
    if (status == dnnl_success && (p->flags & (KN_PLAN_ADD | KN_PLAN_RELU)))
        status = epilogue_set(attr, p);
    if (status == dnnl_success) status = describe(&desc, p, attr);
    if (status == dnnl_success && !is_slow(desc)) status = plan_finish(p, desc);
    if (desc) dnnl_primitive_desc_destroy(desc);
    dnnl_primitive_attr_destroy(attr);
    return is_failure(status) ? status : dnnl_success;
}

static void plan_destroy(kn__cached_plan *cached) {
    kn__host_conv_plan *plan = (kn__host_conv_plan *)(void *)cached;
    for (int i = 0; i < KN_SIDES; i++) {
        kn__side *side = &plan->side[i];
        if (side->reorder) dnnl_primitive_destroy(side->reorder);
        kn__layout_destroy(side->plain);
        kn__layout_destroy(side->blocked);
    }
    kn__layout_destroy(plan->bias);
    kn__layout_destroy(plan->scratch);
    if (plan->primitive) dnnl_primitive_destroy(plan->primitive);
    free(plan);
}

/* The library counts an axis with its padding, and a step beyond it, in 32 bits. */
static bool is_countable(const kn__conv_sizes *s) {
    for (int i = 0; i < 3; i++)
        if (s->in[i] + s->padding[i] + s->padding_end[i] + s->stride[i] > INT32_MAX) return false;
    return true;
}

/* A primitive remembers how many threads its maker had: ours run on one. */
static kn_status plan_create(kn__host_conv_plan **out, kn__conv_pass pass, const kn__conv_sizes *s,
                             int64_t images, unsigned flags) {
    if (!kn__dnnl_engine()) return KN_FAIL(KN_ERR_INTERNAL, "dnnl_engine_create: no CPU engine");
    kn__host_conv_plan *plan = calloc(1, sizeof *plan);
    if (!plan) return KN_FAIL(KN_ERR_OOM, "a convolution's plan: no %zu bytes", sizeof *plan);
    problem p = {.pass = pass, .flags = flags, .plan = plan};
    int before = omp_get_max_threads();
    omp_set_num_threads(1);
    dnnl_status_t status = problem_init(&p, s, images);
    if (status == dnnl_success && is_countable(s)) status = plan_build(&p);
    omp_set_num_threads(before);
    if (status != dnnl_success) {
        plan_destroy(&plan->cached);
        return kn__dnnl_status(status, "dnnl_primitive_create", s);
    }
    *out = plan;
    return KN_OK;
}

/* --- the cache --- */

_Static_assert(offsetof(kn__host_conv_plan, key) == sizeof(kn__cached_plan), "the key follows");

kn__plan_cache kn__conv_plan_cache =
    KN__PLAN_CACHE(kn__host_conv_key, KN__HOST_CONV_PLANS, plan_destroy);

static kn__host_conv_key key_of(kn__conv_pass pass, const kn__conv_sizes *s, int64_t images,
                                unsigned flags) {
    kn__host_conv_key key = {pass, flags, images, s->groups, s->channels, s->outputs, {{0}}};
    for (int i = 0; i < 3; i++) {
        key.axis[i].in = s->in[i], key.axis[i].window = s->window[i];
        key.axis[i].stride = s->stride[i], key.axis[i].dilation = s->dilation[i];
        key.axis[i].padding = s->padding[i], key.axis[i].padding_end = s->padding_end[i];
    }
    return key;
}

static kn_status plan_add(kn__cached_plan **out, const kn__host_conv_key *key, kn__conv_pass pass,
                          const kn__conv_sizes *s, int64_t images, unsigned flags) {
    kn__host_conv_plan *made = NULL;
    KN_TRY(plan_create(&made, pass, s, images, flags));
    made->key = *key;
    *out = kn__plan_cache_put(&kn__conv_plan_cache, &made->cached);
    return KN_OK;
}

kn_status kn__conv_plan_get(kn__host_conv_plan **out, kn__conv_pass pass, const kn__conv_sizes *s,
                            int64_t images, unsigned flags) {
    kn__host_conv_key key = key_of(pass, s, images, flags);
    kn__cached_plan *cached = kn__plan_cache_get(&kn__conv_plan_cache, &key);
    kn_status status = KN_OK;
    if (!cached) {
        KN__CANCEL_LATER();
        pthread_mutex_lock(&kn__dnnl_making);
        cached = kn__plan_cache_get(&kn__conv_plan_cache, &key);
        if (!cached) status = plan_add(&cached, &key, pass, s, images, flags);
        pthread_mutex_unlock(&kn__dnnl_making);
    }
    *out = (kn__host_conv_plan *)(void *)cached;
    return status;
}

void kn__conv_plan_drop(kn__host_conv_plan *plan) {
    kn__plan_cache_drop(&kn__conv_plan_cache, plan ? &plan->cached : NULL);
}

size_t kn__conv_plans(void) { return kn__plan_cache_count(&kn__conv_plan_cache); }
