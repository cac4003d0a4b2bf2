/* Random ops. State is a tensor I64[2] (seed, offset) made by rng_take; see philox.h for the map
 * from elements to counters. */
#include "host/base/chunks.h"
#include "host/base/loops.h"
#include "kernel.h"
#include "philox.h"

typedef struct random_work {
    const kn__loop_table *loops;
    char *y;
    const char *x;
    const int64_t *state;
    kn_op op;
    int64_t n;
    size_t element_bytes;
    double a, b;
} random_work;

enum { CHUNK = 16384 }; /* elements; a multiple of 32 */

static void random_chunk(void *ctx, int64_t i) {
    const random_work *work = ctx;
    int64_t first = i * CHUNK, n = work->n - first < CHUNK ? work->n - first : CHUNK;
    char *y = work->y + (size_t)first * work->element_bytes;
    if (work->op == KN_OP_uniform)
        work->loops->uniform(y, first, n, work->state, work->a, work->b);
    else if (work->op == KN_OP_normal)
        work->loops->normal(y, first, n, work->state, work->a, work->b);
    else if (work->op == KN_OP_exponential)
        work->loops->exponential(y, first, n, work->state, work->a);
    else if (work->op == KN_OP_bernoulli)
        work->loops->bernoulli(y, first, n, work->state, work->a);
    else
        work->loops->dropout(y, work->x + (size_t)first * work->element_bytes, first, n,
                             work->state, work->a);
}

static kn_status random_run(kn_op_call *call, const kn_tensor *x, const kn_tensor *state, double a,
                            double b) {
    random_work work = {.loops = kn__loops(call->out[0]->dtype),
                        .y = call->out[0]->data,
                        .x = x ? x->data : NULL,
                        .state = state->data,
                        .op = (kn_op)call->op,
                        .n = call->out[0]->n,
                        .element_bytes = kn_dtype_bytes(call->out[0]->dtype),
                        .a = a,
                        .b = b};
    kn__parallel_for(call->threads, kn__chunks(work.n, CHUNK), random_chunk, &work);
    return KN_OK;
}

static kn_status draw(kn_op_call *call) {
    const kn_attr_make *attr = call->attr;
    return random_run(call, NULL, call->in[0], attr->a, attr->b);
}
kn_status kn__host_uniform(kn_op_call *call) { return draw(call); }
kn_status kn__host_normal(kn_op_call *call) { return draw(call); }
kn_status kn__host_exponential(kn_op_call *call) { return draw(call); }
kn_status kn__host_dropout(kn_op_call *call) {
    const kn_attr_scalars *attr = call->attr;
    return random_run(call, call->in[0], call->in[1], attr->a, 0);
}

kn_status kn__host_bernoulli(kn_op_call *call) { return draw(call); }

/* --- those with more than two numbers, or of integers --- */

typedef struct other_work {
    const kn_op_call *call;
    const kn__loop_table *loops;
    kn__truncated truncated;
    kn__feistel permutation;
    int64_t lo;
    uint64_t range;
} other_work;

static void other_chunk(void *ctx, int64_t i) {
    const other_work *w = ctx;
    const kn_tensor *y = w->call->out[0];
    const int64_t *state = w->call->in[0]->data;
    int64_t first = i * CHUNK, n = y->n - first < CHUNK ? y->n - first : CHUNK;
    char *at = (char *)y->data + (size_t)first * kn_dtype_bytes((kn_dtype)y->dtype);
    if (w->call->op == KN_OP_integers)
        w->loops->integers((int64_t *)(void *)at, first, n, state, w->lo, w->range);
    else if (w->call->op == KN_OP_permutation)
        w->loops->permutation((int64_t *)(void *)at, first, n, &w->permutation, y->n);
    else
        w->loops->truncated_normal(at, first, n, state, &w->truncated);
}

static kn_status other_run(other_work *w) {
    kn_dtype dtype = (kn_dtype)w->call->out[0]->dtype;
    w->loops = kn__loops(dtype == KN_F64 ? KN_F64 : KN_F32);
    kn__parallel_for(w->call->threads, kn__chunks(w->call->out[0]->n, CHUNK), other_chunk, w);
    return KN_OK;
}

kn_status kn__host_integers(kn_op_call *call) {
    const kn_attr_make *attr = call->attr;
    other_work w = {.call = call, .lo = (int64_t)attr->a};
    w.range = (uint64_t)((int64_t)attr->b - w.lo);
    return other_run(&w);
}

kn_status kn__host_permutation(kn_op_call *call) {
    const int64_t *state = call->in[0]->data;
    other_work w = {.call = call};
    if (call->out[0]->n <= KN_PERMUTATION_FEW) {
        kn__permutation_few(call->out[0]->data, call->out[0]->n, (uint64_t)state[0],
                            (uint64_t)state[1]);
        return KN_OK;
    }
    kn__permutation_make(&w.permutation, (uint64_t)call->out[0]->n, (uint64_t)state[0],
                         (uint64_t)state[1]);
    return other_run(&w);
}

kn_status kn__host_truncated_normal(kn_op_call *call) {
    other_work w = {.call = call, .truncated = kn__truncated_of(call->attr)};
    return other_run(&w);
}

/* in[0]: the generator's state I64[2], moved on; attr a: the elements the next op makes. */
kn_status kn__host_rng_take(kn_op_call *call) {
    const kn_attr_scalars *attr = call->attr;
    int64_t *state = call->in[0]->data, *out = call->out[0]->data;
    out[0] = state[0], out[1] = state[1];
    state[1] = (int64_t)((uint64_t)state[1] + kn__philox_counters((int64_t)attr->a));
    return KN_OK;
}
