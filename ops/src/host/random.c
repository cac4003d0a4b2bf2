/* Random ops. State is a tensor I64[2] (seed, offset) made by rng_take; see philox.h for the map
 * from elements to counters. */
#include "../kernel.h"
#include "../philox.h"
#include "chunks.h"
#include "loops.h"

typedef struct random_work {
    const kn_loops *loops;
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
kn_status kn__host_dropout(kn_op_call *call) {
    const kn_attr_scalars *attr = call->attr;
    return random_run(call, call->in[0], call->in[1], attr->a, 0);
}

/* in[0]: the generator's state I64[2], moved on; attr a: the elements the next op makes. */
kn_status kn__host_rng_take(kn_op_call *call) {
    const kn_attr_scalars *attr = call->attr;
    int64_t *state = call->in[0]->data, *out = call->out[0]->data;
    out[0] = state[0], out[1] = state[1];
    state[1] = (int64_t)((uint64_t)state[1] + kn__philox_counters((int64_t)attr->a));
    return KN_OK;
}
