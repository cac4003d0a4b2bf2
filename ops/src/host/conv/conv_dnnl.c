/* Convolution by oneDNN. The batch is cut into runs of images by shape alone; each run is one
 * call of the library on one thread, between reorders of its images to the library's blocks of
 * channels and back, so that no bit depends on the number of threads. */
#include "host/conv/conv_dnnl.h"

#include <knet/prof_call.h>
#include <stdatomic.h>

#include "host/base/chunks.h"
#include "host/base/loops.h"
#include "host/base/slots.h"
#include "host/conv/conv_over.h"
#include "host/conv/conv_weights.h"
#include "host/product/gemm.h"

/* --- runs of images --- */

typedef struct run_kind {
    kn__host_conv_plan *plan; /* for its number of images */
    char *w;                  /* its weights as the plan wants them; conv_weight: unused */
    kn__kept_weights *kept;   /* what these are of; NULL: of nothing kept */
} run_kind;

typedef struct dnnl_work {
    kn__conv_pass pass;
    const kn__conv_sizes *s;
    int64_t runs;
    run_kind kind[2]; /* of the longer runs, and of those an image shorter */
    char *data[KN_SIDES];
    size_t element_bytes; /* of images */
    const char *bias;
    kn__conv_epilogue finish; /* forward */
    const char *residual;     /* what the plan itself adds; NULL: nothing */
    const kn_tensor *kept;    /* weights whose layouts are kept; NULL: not */
    char *parts;              /* conv_weight: a result a run, in the library's layout */
    size_t part_bytes;
    kn__slots slots;
    _Atomic int status;
} dnnl_work;

static size_t aligned(size_t bytes) { return (bytes + 63) / 64 * 64; }

static dnnl_status_t reorder(const kn__side *side, char *blocked, char *plain, bool to_plain) {
    kn__dnnl_call m = {.n = 0};
    kn__dnnl_add(&m, to_plain ? DNNL_ARG_FROM : DNNL_ARG_TO, side->blocked, blocked);
    kn__dnnl_add(&m, to_plain ? DNNL_ARG_TO : DNNL_ARG_FROM, side->plain, plain);
    return kn__dnnl_execute(&m, side->reorder);
}

/* Where run i's images begin; and which of the two lengths it has. */
static int64_t first_image(const dnnl_work *k, int64_t i) {
    return kn__part(k->s->batch, k->runs, i);
}
static const run_kind *kind_of(const dnnl_work *k, int64_t i) {
    return &k->kind[k->s->batch % k->runs && i >= k->s->batch % k->runs];
}

/* The slot: x and y in the library's layout where that differs, then the library's scratch. */
static size_t slot_bytes(const kn__host_conv_plan *plan) {
    size_t bytes = plan->scratch_bytes;
    for (int i = 0; i < KN_SIDES; i += KN_SIDE_Y - KN_SIDE_X)
        if (plan->side[i].reorder) bytes += aligned(plan->side[i].bytes);
    return bytes;
}

static dnnl_status_t run_images(dnnl_work *k, int64_t i, char *slot) {
    const run_kind *kind = kind_of(k, i);
    const kn__host_conv_plan *plan = kind->plan;
    const kn__conv_sizes *s = k->s;
    size_t image = (size_t)first_image(k, i) * k->element_bytes;
    int result = kn__result_side(k->pass);
    char *plain[KN_SIDES] = {
        [KN_SIDE_X] = k->data[KN_SIDE_X] + image * (size_t)(s->groups * s->channels * s->in_plane),
        [KN_SIDE_Y] = k->data[KN_SIDE_Y] + image * (size_t)(s->groups * s->outputs * s->out_plane)};
    char *data[KN_SIDES] = {plain[KN_SIDE_X], kind->w, plain[KN_SIDE_Y]};
    if (k->parts) data[KN_SIDE_W] = k->parts + (size_t)i * k->part_bytes;
    for (int side = 0; side < KN_SIDES; side++) {
        if (side == KN_SIDE_W || !plan->side[side].reorder) continue;
        data[side] = slot;
        slot += aligned(plan->side[side].bytes);
        if (side == result) continue;
        dnnl_status_t status = reorder(&plan->side[side], data[side], plain[side], false);
        if (status != dnnl_success) return status;
    }
    kn__dnnl_call m = {.n = 0};
    for (int side = 0; side < KN_SIDES; side++)
        kn__dnnl_add(&m, plan->side[side].arg, plan->side[side].blocked, data[side]);
    if (k->bias) kn__dnnl_add(&m, DNNL_ARG_BIAS, plan->bias, k->bias);
    if (k->residual)
        kn__dnnl_add(&m, DNNL_ARG_ATTR_MULTIPLE_POST_OP(0) | DNNL_ARG_SRC_1,
                     plan->side[KN_SIDE_Y].blocked,
                     k->residual + image * (size_t)(s->groups * s->outputs * s->out_plane));
    if (plan->scratch_bytes) kn__dnnl_add(&m, DNNL_ARG_SCRATCHPAD, plan->scratch, slot);
    dnnl_status_t status = kn__dnnl_execute(&m, plan->primitive);
    if (status == dnnl_success && result != KN_SIDE_W && plan->side[result].reorder)
        status = reorder(&plan->side[result], data[result], plain[result], true);
    if (k->pass == KN_PASS_FORWARD) {
        int64_t plane = s->groups * s->outputs * s->out_plane, first = first_image(k, i);
        kn__conv_finish(&k->finish, first * plane, (first_image(k, i + 1) - first) * plane);
    }
    return status;
}

static void run_body(void *ctx, int64_t i) {
    dnnl_work *k = ctx;
    char *slot = kn__slot_take(&k->slots);
    dnnl_status_t status = run_images(k, i, slot);
    kn__slot_give(&k->slots, slot);
    if (status != dnnl_success)
        atomic_store_explicit(&k->status, (int)status, memory_order_relaxed);
}

static const char *label(kn__conv_pass pass) {
    static const char *const labels[] = {"dnnl_convolution_forward",
                                         "dnnl_convolution_backward_data",
                                         "dnnl_convolution_backward_weights"};
    return labels[pass];
}

static kn_status runs_execute(kn_op_call *call, dnnl_work *k) {
    size_t bytes = slot_bytes(k->kind[0].plan);
    if (k->kind[1].plan && slot_bytes(k->kind[1].plan) > bytes) bytes = slot_bytes(k->kind[1].plan);
    KN_TRY(kn__slots_create(&k->slots, call, k->runs, bytes));
    kn_scope scope = kn_scope_begin_static(label(k->pass));
    kn__library_for(k->slots.n, k->runs, run_body, k);
    kn_scope_end(&scope);
    int status = atomic_load_explicit(&k->status, memory_order_relaxed);
    return kn__dnnl_status((dnnl_status_t)status, label(k->pass), k->s);
}

/* --- weights --- */

typedef struct weight_reorder {
    const kn__side *side;
    char *blocked, *plain;
    bool to_plain;
    dnnl_status_t status;
} weight_reorder;

static void weight_reorder_body(void *ctx, int64_t i) {
    weight_reorder *r = ctx;
    (void)i;
    r->status = reorder(r->side, r->blocked, r->plain, r->to_plain);
}

static kn_status weights_reorder(const dnnl_work *k, weight_reorder r) {
    kn_scope scope = kn_scope_begin_static("dnnl_reorder");
    kn__library_for(1, 1, weight_reorder_body, &r);
    kn_scope_end(&scope);
    return kn__dnnl_status(r.status, "dnnl_reorder", k->s);
}

typedef struct weights_make {
    const dnnl_work *k;
    const kn__side *side;
} weights_make;

static kn_status make_weights(void *ctx, char *blocked) {
    const weights_make *make = ctx;
    return weights_reorder(
        make->k, (weight_reorder){
                     .side = make->side, .blocked = blocked, .plain = make->k->data[KN_SIDE_W]});
}

/* The kind's weights in the library's layout: kept ones, or made for this call. */
static kn_status kind_pack(kn_op_call *call, dnnl_work *k, run_kind *kind) {
    const kn__side *side = &kind->plan->side[KN_SIDE_W];
    weights_make make = {k, side};
    kind->w = k->data[KN_SIDE_W];
    if (!side->reorder) return KN_OK;
    if (k->kept)
        KN_TRY(kn__conv_weights_take(&kind->kept, k->kept, side->blocked, 0, side->bytes,
                                     make_weights, &make));
    if (kind->kept) {
        kind->w = kind->kept->data;
        return KN_OK;
    }
    void *memory = NULL;
    KN_TRY(kn__work(&memory, call, side->bytes));
    kind->w = memory;
    return make_weights(&make, kind->w);
}

/* Both kinds', once a call. */
static kn_status weights_pack(kn_op_call *call, dnnl_work *k) {
    KN_TRY(kind_pack(call, k, &k->kind[0]));
    if (!k->kind[1].plan) return KN_OK;
    if (dnnl_memory_desc_equal(k->kind[1].plan->side[KN_SIDE_W].blocked,
                               k->kind[0].plan->side[KN_SIDE_W].blocked)) {
        k->kind[1].w = k->kind[0].w;
        return KN_OK;
    }
    return kind_pack(call, k, &k->kind[1]);
}

static kn_status images_run(kn_op_call *call, dnnl_work *k) {
    kn_status status = weights_pack(call, k);
    if (status == KN_OK) status = runs_execute(call, k);
    for (int i = 0; i < 2; i++) kn__conv_weights_give(k->kind[i].kept);
    return status;
}

/* --- dw: a part each run, summed in their order, then reordered --- */

enum { SUM_CHUNK = 4096 };
typedef struct sum_work {
    const char *parts;
    float *to;
    int64_t n_parts, stride, n; /* stride: elements between parts */
    bool accumulate;
} sum_work;

static void sum_body(void *ctx, int64_t i) {
    const sum_work *sum = ctx;
    int64_t first = i * SUM_CHUNK, left = sum->n - first;
    kn__loops(KN_F32)->sum_parts(sum->to + first, sum->parts + (size_t)first * sizeof(float),
                                 sum->n_parts, sum->stride, left < SUM_CHUNK ? left : SUM_CHUNK,
                                 sum->accumulate);
}

static void parts_sum(kn_op_call *call, sum_work sum) {
    kn__parallel_for(call->threads, kn__chunks(sum.n, SUM_CHUNK), sum_body, &sum);
}

/* out (+)= plain, rounded to bf16 once. */
static void weight_round(kn_op_call *call, char *plain, char *sum) {
    kn_tensor *out = call->out[0];
    const kn__loop_table *loops = kn__loops(KN_F32);
    if (call->accumulate & 1) {
        loops->cast_from(sum, out->data, KN_BF16, out->n);
        parts_sum(call, (sum_work){sum, (void *)plain, 1, out->n, out->n, true});
    }
    loops->cast_to(out->data, plain, KN_BF16, out->n);
}

/* The sum in the library's layout lands in the first part, its plain form in the result or, to be
 * added to that or rounded, in the second part. */
static kn_status weight_finish(kn_op_call *call, dnnl_work *k) {
    char *sum = k->parts, *plain = k->parts + k->part_bytes;
    const kn__side *side = &k->kind[0].plan->side[KN_SIDE_W];
    int64_t n = (int64_t)(side->bytes / sizeof(float)), out_n = call->out[0]->n;
    bool rounds = call->out[0]->dtype != KN_F32, apart = rounds || call->accumulate & 1;
    float *out = call->out[0]->data, *to = apart ? (void *)plain : out;
    sum_work parts = {k->parts, (void *)sum, k->runs, (int64_t)(k->part_bytes / sizeof(float)),
                      n,        false};
    if (!side->reorder) parts.to = to;
    parts_sum(call, parts);
    if (side->reorder)
        KN_TRY(weights_reorder(
            k,
            (weight_reorder){.side = side, .blocked = sum, .plain = (char *)to, .to_plain = true}));
    if (rounds)
        weight_round(call, plain, sum);
    else if (apart)
        parts_sum(call, (sum_work){plain, out, 1, out_n, out_n, true});
    return KN_OK;
}

static kn_status weight_run(kn_op_call *call, dnnl_work *k) {
    void *memory = NULL;
    k->part_bytes = aligned(k->kind[0].plan->side[KN_SIDE_W].bytes);
    KN_TRY(kn__work(&memory, call, (size_t)(k->runs > 2 ? k->runs : 2) * k->part_bytes));
    k->parts = memory;
    KN_TRY(runs_execute(call, k));
    return weight_finish(call, k);
}

/* --- a pass --- */

/* As many runs as keep threads busy; fewer where each would read more weights than image, and of
 * gradients, whose parts take memory. */
enum { RUNS = 16, FEW_RUNS = 8, PARTS_BYTES = 16 << 20 };

static int64_t runs_of(kn__conv_pass pass, const kn__conv_sizes *s) {
    int64_t weights = s->groups * s->outputs * s->channels * s->window_size;
    int64_t image = s->groups * (s->channels * s->in_plane + s->outputs * s->out_plane);
    int64_t most = weights > image ? FEW_RUNS : RUNS;
    if (pass == KN_PASS_WEIGHT) {
        int64_t fit = PARTS_BYTES / (weights * (int64_t)sizeof(float));
        most = fit < 2 ? 2 : (fit < FEW_RUNS ? fit : FEW_RUNS);
    }
    return most < s->batch ? most : s->batch;
}

static kn_status plans_get(dnnl_work *k, unsigned flags) {
    for (int i = 0; i < 2; i++) {
        kn__conv_plan_drop(k->kind[i].plan);
        k->kind[i].plan = NULL;
    }
    int64_t least = k->s->batch / k->runs, rest = k->s->batch % k->runs;
    KN_TRY(kn__conv_plan_get(&k->kind[0].plan, k->pass, k->s, least + (rest > 0), flags));
    if (rest) return kn__conv_plan_get(&k->kind[1].plan, k->pass, k->s, least, flags);
    return KN_OK;
}

/* Parts of gradients can be summed only when they have one layout. */
static bool plans_usable(const dnnl_work *k) {
    const kn__host_conv_plan *a = k->kind[0].plan, *b = k->kind[1].plan;
    if (!a->primitive || (b && !b->primitive)) return false;
    return !b || k->pass != KN_PASS_WEIGHT ||
           dnnl_memory_desc_equal(a->side[KN_SIDE_W].blocked, b->side[KN_SIDE_W].blocked);
}

/* dy, copied where dx is written over it and neither goes through a slot. */
static kn_status dy_place(kn_op_call *call, dnnl_work *k) {
    const char *dy = NULL;
    bool slots = true;
    for (int i = 0; i < 2; i++) {
        const kn__host_conv_plan *plan = k->kind[i].plan;
        if (plan) slots &= plan->side[KN_SIDE_X].reorder || plan->side[KN_SIDE_Y].reorder;
    }
    if (slots) return KN_OK;
    KN_TRY(kn__conv_dy_apart(&dy, call));
    k->data[KN_SIDE_Y] = (char *)(uintptr_t)dy;
    return KN_OK;
}

/* The plans, with as much of what follows the sums as the library does inside: all or nothing. */
static kn_status plans_find(dnnl_work *k, unsigned flags) {
    kn__conv_epilogue *f = &k->finish;
    unsigned inside = f->act == KN_ACT_RELU ? flags & KN_PLAN_RELU : 0;
    flags &= ~(unsigned)KN_PLAN_RELU;
    if (k->bias) flags |= KN_PLAN_BIAS;
    if (flags & KN_PLAN_TO_BLOCKS && f->residual) inside |= KN_PLAN_ADD;
    KN_TRY(plans_get(k, flags | inside));
    if (inside && !plans_usable(k)) {
        inside = 0;
        KN_TRY(plans_get(k, flags));
    }
    if (inside & KN_PLAN_RELU) f->act = KN_ACT_NONE;
    if (inside & KN_PLAN_ADD) {
        k->residual = f->residual;
        f->residual = NULL;
    }
    return KN_OK;
}

kn_status kn__dnnl_conv(bool *done, kn_op_call *call, kn__conv_pass pass, const kn__conv_sizes *s,
                        unsigned flags) {
    dnnl_work k = {.pass = pass,
                   .s = s,
                   .runs = runs_of(pass, s),
                   .element_bytes = kn_dtype_bytes((kn_dtype)call->in[0]->dtype)};
    static const int in_side[][2] = {
        {KN_SIDE_X, KN_SIDE_W}, {KN_SIDE_Y, KN_SIDE_W}, {KN_SIDE_X, KN_SIDE_Y}};
    for (int i = 0; i < 2; i++) k.data[in_side[pass][i]] = call->in[i]->data;
    k.data[kn__result_side(pass)] = call->out[0]->data;
    if (pass == KN_PASS_FORWARD) {
        if (call->in[2] != KN_NONE) k.bias = call->in[2]->data;
        k.finish = kn__conv_finish_of(call);
    }
    if (call->in[0]->dtype == KN_BF16) flags |= KN_PLAN_BF16;
    if (flags & KN_PLAN_KEEP) k.kept = call->in[1];
    kn_status status = plans_find(&k, flags);
    bool usable = status == KN_OK && plans_usable(&k);
    if (usable && pass == KN_PASS_DATA) status = dy_place(call, &k);
    if (usable && status == KN_OK) {
        status = pass == KN_PASS_WEIGHT ? weight_run(call, &k) : images_run(call, &k);
        *done = status == KN_OK;
    }
    for (int i = 0; i < 2; i++) kn__conv_plan_drop(k.kind[i].plan);
    return status;
}
