/* Optimisers: one pass over all parameters. Learning rate, step count and gradient scale are read
 * from the hyper tensor at run time. Inputs: gradients, m, v (flat arenas; KN_NONE where unused),
 * hyper. The CUDA kernel has the same formulas. */
#include "host/base/chunks.h"
#include "host/base/loops.h"
#include "kernel.h"

#include <math.h>

enum { CHUNK = 16384 };

typedef void (*optim_loop)(void *w, void *m, void *v, const void *g, int64_t n,
                           const kn_optim_terms *terms);

typedef struct optim_work {
    optim_loop loop;
    const kn_attr_optim *attr;
    size_t element_bytes;
    const char *grad;
    char *m, *v; /* NULL where unused */
    kn_optim_terms terms;
    bool decay_has_rate; /* terms.decay is times the rate already */
} optim_work;

static optim_loop loop_of(kn_op op, const kn_loops *loops) {
    switch (op) {
        case KN_OP_sgd_step:
            return loops->sgd;
        case KN_OP_momentum_step:
            return loops->momentum;
        case KN_OP_nesterov_step:
            return loops->nesterov;
        case KN_OP_adagrad_step:
            return loops->adagrad;
        case KN_OP_rmsprop_step:
            return loops->rmsprop;
        case KN_OP_adadelta_step:
            return loops->adadelta;
        case KN_OP_adam_step:
            return loops->adam;
        default:
            return loops->ema;
    }
}

static void *at(char *arena, const optim_work *work, int64_t i) {
    return arena ? arena + (size_t)i * work->element_bytes : NULL;
}

static void update(const optim_work *work, const kn_optim_part *part, int64_t first, int64_t n) {
    char *w = (char *)part->w->data + (size_t)first * work->element_bytes;
    int64_t i = part->offset + first;
    const char *g = work->grad + (size_t)i * work->element_bytes;
    kn_optim_terms terms = work->terms;
    terms.rate *= part->rate;
    terms.decay *= part->decay * (work->decay_has_rate ? part->rate : 1);
    work->loop(w, at(work->m, work, i), at(work->v, work, i), g, n, &terms);
}

/* Chunk i of all chunks of all parts. */
static void optim_chunk(void *ctx, int64_t i) {
    const optim_work *work = ctx;
    const kn_optim_part *part = work->attr->part;
    for (; i >= kn__chunks(part->n, CHUNK); part++) i -= kn__chunks(part->n, CHUNK);
    int64_t first = i * CHUNK, left = part->n - first;
    update(work, part, first, left < CHUNK ? left : CHUNK);
}

/* Adam: Kingma and Ba 2015, algorithm 1, in the form of the end of its section 2; decay as in
 * AdamW, which is why it is times the rate. */
static kn_optim_terms terms_of(kn_op op, const kn_attr_optim *attr, const double hyper[]) {
    kn_optim_terms terms = {.rate = hyper[0],
                            .momentum = attr->momentum,
                            .beta1 = attr->beta1,
                            .beta2 = attr->beta2,
                            .eps = attr->eps,
                            .decay = attr->weight_decay,
                            .grad_scale = hyper[2]};
    if (op != KN_OP_adam_step) return terms;
    terms.rate = hyper[0] / (1 - pow(attr->beta1, hyper[1]));
    terms.root_scale = 1 / sqrt(1 - pow(attr->beta2, hyper[1]));
    terms.decay = hyper[0] * attr->weight_decay;
    return terms;
}

kn_status kn__host_optim(kn_op_call *call) {
    const kn_attr_optim *attr = call->attr;
    kn_tensor *grad = call->in[0], *m = call->in[1], *v = call->in[2];
    double *hyper = call->in[3]->data;
    hyper[1] += 1;
    optim_work work = {.loop = loop_of((kn_op)call->op, kn__loops(grad->dtype)),
                       .attr = attr,
                       .element_bytes = kn_dtype_bytes(grad->dtype),
                       .grad = grad->data,
                       .m = m == KN_NONE ? NULL : m->data,
                       .v = v == KN_NONE ? NULL : v->data,
                       .decay_has_rate = call->op == KN_OP_adam_step,
                       .terms = terms_of((kn_op)call->op, attr, hyper)};
    int64_t n_chunks = 0;
    for (int64_t i = 0; i < attr->n_parts; i++) n_chunks += kn__chunks(attr->part[i].n, CHUNK);
    kn__parallel_for(call->threads, n_chunks, optim_chunk, &work);
    return KN_OK;
}
