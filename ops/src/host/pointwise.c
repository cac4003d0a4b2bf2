/* Pointwise kernels: one shape, a single element beside it, or general broadcasting by rows. */
#include <string.h>

#include "../kernel.h"
#include "loops.h"
#include "walk.h"

/* Elements a thread takes at a time: enough work to be worth waking it. */
static int64_t grain(kn_op op, kn_dtype dtype) {
    switch ((int)op) {
        case KN_OP_exp:
        case KN_OP_log:
        case KN_OP_tanh:
        case KN_OP_sigm:
            return dtype == KN_F32 ? 16384 : 2048;
        case KN_OP_pow:
        case KN_OP_pow_scalar:
            return 2048;
        default:
            return 32768;
    }
}

/* What the loops need of a call; offsets are in elements. */
typedef struct job {
    const kn_loops *loops;
    kn_op op;
    size_t in_bytes, out_bytes; /* of one element */
    char *out;
    const char *in[3];
    int64_t n, grain;
    double a, b;
    int form;
    walk walk;
} job;

static job job_of(const kn_kernel_call *call) {
    kn_dtype dtype = (kn_dtype)call->in[call->n_in - 1]->dtype; /* where's first is KN_BOOL */
    job j = {.loops = kn__loops(dtype), .op = call->op, .n = call->out->n, .out = call->out->data};
    j.in_bytes = kn_dtype_bytes(dtype);
    j.out_bytes = kn_dtype_bytes((kn_dtype)call->out->dtype);
    for (int i = 0; i < call->n_in; i++) j.in[i] = call->in[i]->data;
    j.grain = grain(call->op, dtype);
    return j;
}

static kn_status spread(const kn_kernel_call *call, const job *j, kn__body_fn body) {
    kn__parallel_for(call->threads, (j->n + j->grain - 1) / j->grain, body, (void *)(uintptr_t)j);
    return KN_OK;
}

static int64_t part_end(const job *j, int64_t i) {
    int64_t end = (i + 1) * j->grain;
    return end < j->n ? end : j->n;
}

/* --- one input --- */

static void unary_part(void *ctx, int64_t i) {
    const job *j = ctx;
    int64_t from = i * j->grain, offset = from * (int64_t)j->in_bytes;
    j->loops->unary(j->op, j->out + offset, j->in[0] + offset, part_end(j, i) - from, j->a, j->b);
}

/* So few elements that making a job would cost more than the work. */
enum { FEW = 1024 };

static kn_status unary(const kn_kernel_call *call, double a, double b) {
    if (call->out->n <= FEW) {
        const kn_tensor *x = call->in[0], *y = call->out;
        kn__loops((kn_dtype)x->dtype)->unary(call->op, y->data, x->data, x->n, a, b);
        return KN_OK;
    }
    job j = job_of(call);
    j.a = a;
    j.b = b;
    return spread(call, &j, unary_part);
}

kn_status kn__host_unary(const kn_kernel_call *call) { return unary(call, 0, 0); }

kn_status kn__host_affine(const kn_kernel_call *call) {
    const kn_attr_scalars *attr = call->attr;
    return unary(call, attr->a, attr->b);
}

static void unary_back_part(void *ctx, int64_t i) {
    const job *j = ctx;
    int64_t from = i * j->grain, offset = from * (int64_t)j->in_bytes;
    j->loops->unary_back(j->op, j->out + offset, j->in[0] + offset, j->in[1] + offset,
                         part_end(j, i) - from);
}

kn_status kn__host_unary_back(const kn_kernel_call *call) {
    if (call->out->n <= FEW) {
        const kn_tensor *s = call->in[0], *g = call->in[1];
        kn__loops((kn_dtype)s->dtype)
            ->unary_back(call->op, call->out->data, s->data, g->data, s->n);
        return KN_OK;
    }
    job j = job_of(call);
    return spread(call, &j, unary_back_part);
}

/* The two ops it stands for, one after the other. */
kn_status kn__host_relu_bias_back(const kn_kernel_call *call) {
    kn_kernel_call part = *call;
    part.op = KN_OP_relu_back, part.aux = NULL, part.attr = NULL;
    KN_TRY(kn__host_unary_back(&part));
    part.op = KN_OP_sum, part.attr = call->attr, part.out = call->aux;
    part.in = &call->out, part.n_in = 1;
    return kn__host_kernels[KN_OP_sum](&part);
}

/* --- two inputs --- */

static void flat_part(void *ctx, int64_t i) {
    const job *j = ctx;
    int64_t from = i * j->grain, offset = from * (int64_t)j->in_bytes;
    j->loops->binary(j->op, j->form, j->out + from * (int64_t)j->out_bytes,
                     j->in[0] + (j->form == KN_FORM_SV ? 0 : offset),
                     j->in[1] + (j->form == KN_FORM_VS ? 0 : offset), part_end(j, i) - from);
}

static void binary_row(const void *ctx, int64_t at, const int64_t from[], int64_t n) {
    const job *j = ctx;
    const int64_t bytes = (int64_t)j->in_bytes;
    j->loops->binary(j->op, j->form, j->out + at * (int64_t)j->out_bytes,
                     j->in[0] + from[0] * bytes, j->in[1] + from[1] * bytes, n);
}

static void walk_binary_part(void *ctx, int64_t i) {
    const job *j = ctx;
    walk_range(&j->walk, i * j->grain, part_end(j, i), binary_row, j);
}

/* A short row beside every row of the other operand is repeated into one long row first. */
enum { TILE = 1024 };

static bool repeats(const walk *w, int operand) {
    return w->n_outer == 1 && w->inner <= TILE / 8 && w->outer[0] > 1 && w->step[operand] == 1 &&
           w->stride[operand][0] == 0 && w->step[!operand] == 1;
}

typedef struct tiled {
    const job *job;
    const char *tile;
    int64_t n;
    int operand; /* the repeated one */
} tiled;

static void tiled_part(void *ctx, int64_t i) {
    const tiled *t = ctx;
    const job *j = t->job;
    int64_t from = i * t->n, n = j->n - from < t->n ? j->n - from : t->n;
    const char *other = j->in[!t->operand] + from * (int64_t)j->in_bytes;
    j->loops->binary(j->op, KN_FORM_VV, j->out + from * (int64_t)j->out_bytes,
                     t->operand ? other : t->tile, t->operand ? t->tile : other, n);
}

static kn_status run_tiled(const kn_kernel_call *call, const job *j, int operand) {
    char tile[TILE * sizeof(double)];
    size_t row_bytes = (size_t)j->walk.inner * j->in_bytes;
    int64_t rows = TILE / j->walk.inner;
    for (int64_t r = 0; r < rows; r++) {
        memcpy(tile + (size_t)r * row_bytes, j->in[operand], row_bytes);
    }
    tiled t = {j, tile, rows * j->walk.inner, operand};
    int threads = j->n >= 2 * j->grain ? call->threads : 1;
    kn__parallel_for(threads, (j->n + t.n - 1) / t.n, tiled_part, &t);
    return KN_OK;
}

static kn_status run_walk(const kn_kernel_call *call, job *j) {
    walk_init(&j->walk, call->out, call->in, 2);
    for (int operand = 0; operand < 2; operand++) {
        if (repeats(&j->walk, operand)) return run_tiled(call, j, operand);
    }
    j->form = !j->walk.step[0] ? KN_FORM_SV : !j->walk.step[1] ? KN_FORM_VS : KN_FORM_VV;
    return spread(call, j, walk_binary_part);
}

kn_status kn__host_binary(const kn_kernel_call *call) {
    const kn_tensor *a = call->in[0], *b = call->in[1], *z = call->out;
    int form = a->n == z->n && b->n == z->n ? KN_FORM_VV
               : b->n == 1                  ? KN_FORM_VS
               : a->n == 1                  ? KN_FORM_SV
                                            : -1;
    if (form >= 0 && z->n <= FEW) {
        kn__loops((kn_dtype)a->dtype)->binary(call->op, form, z->data, a->data, b->data, z->n);
        return KN_OK;
    }
    job j = job_of(call);
    j.form = form;
    return form >= 0 ? spread(call, &j, flat_part) : run_walk(call, &j);
}

kn_status kn__host_compare(const kn_kernel_call *call) { return kn__host_binary(call); }

kn_status kn__host_add_into(const kn_kernel_call *call) {
    const kn_tensor *x = call->out, *y = call->in[0];
    if (x->n <= FEW) {
        kn__loops((kn_dtype)x->dtype)
            ->binary(KN_OP_add, KN_FORM_VV, x->data, x->data, y->data, x->n);
        return KN_OK;
    }
    job j = job_of(call);
    j.op = KN_OP_add;
    j.form = KN_FORM_VV;
    j.in[1] = j.in[0];
    j.in[0] = j.out;
    return spread(call, &j, flat_part);
}

/* --- where --- */

static void where_row(const void *ctx, int64_t at, const int64_t from[], int64_t n) {
    const job *j = ctx;
    const int64_t bytes = (int64_t)j->in_bytes;
    j->loops->where(j->out + at * bytes, (const uint8_t *)j->in[0] + from[0],
                    j->in[1] + from[1] * bytes, j->in[2] + from[2] * bytes, n, j->walk.step);
}

static void where_part(void *ctx, int64_t i) {
    const job *j = ctx;
    walk_range(&j->walk, i * j->grain, part_end(j, i), where_row, j);
}

kn_status kn__host_where(const kn_kernel_call *call) {
    job j = job_of(call);
    walk_init(&j.walk, call->out, call->in, 3);
    return spread(call, &j, where_part);
}
