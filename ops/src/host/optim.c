/* Optimisers: one pass over all parameters. Learning rate, step count and gradient scale are read
 * from the hyper tensor at run time. Inputs: gradients, m, v (flat arenas; KN_NONE where unused),
 * hyper. The same formulas stand in the CUDA kernel. */
#include "../kernel.h"
#include "chunks.h"
#include "loops.h"

#include <math.h>

enum { CHUNK = 16384 };

typedef struct optim_work {
    const kn_loops *loops;
    const kn_attr_optim *attr;
    kn_op op;
    size_t element_bytes;
    const char *grad;
    char *m, *v; /* NULL where unused */
    double rate, scale;
    kn_adam_terms adam;
} optim_work;

static void *at(char *arena, const optim_work *work, int64_t i) {
    return arena ? arena + (size_t)i * work->element_bytes : NULL;
}

static void update(const optim_work *work, const kn_optim_part *part, int64_t first, int64_t n) {
    char *w = (char *)part->w->data + (size_t)first * work->element_bytes;
    int64_t i = part->offset + first;
    const char *g = work->grad + (size_t)i * work->element_bytes;
    const kn_attr_optim *attr = work->attr;
    if (work->op == KN_OP_sgd_step)
        work->loops->sgd(w, g, n, work->rate, attr->weight_decay, work->scale);
    else if (work->op == KN_OP_momentum_step)
        work->loops->momentum(w, at(work->m, work, i), g, n, work->rate, attr->momentum,
                              attr->weight_decay, work->scale);
    else
        work->loops->adam(w, at(work->m, work, i), at(work->v, work, i), g, n, &work->adam);
}

/* Chunk i of all chunks of all parts. */
static void optim_chunk(void *ctx, int64_t i) {
    const optim_work *work = ctx;
    const kn_optim_part *part = work->attr->part;
    for (; i >= kn__chunks(part->n, CHUNK); part++) i -= kn__chunks(part->n, CHUNK);
    int64_t first = i * CHUNK, left = part->n - first;
    update(work, part, first, left < CHUNK ? left : CHUNK);
}

/* Kingma and Ba 2015, algorithm 1, in the form of the end of its section 2; decay as in AdamW. */
static kn_adam_terms adam_terms(const kn_attr_optim *attr, double lr, double step, double scale) {
    return (kn_adam_terms){.beta1 = attr->beta1,
                           .beta2 = attr->beta2,
                           .eps = attr->eps,
                           .rate = lr / (1 - pow(attr->beta1, step)),
                           .root_scale = 1 / sqrt(1 - pow(attr->beta2, step)),
                           .decay = lr * attr->weight_decay,
                           .grad_scale = scale};
}

kn_status kn__host_optim(kn_op_call *call) {
    const kn_attr_optim *attr = call->attr;
    kn_tensor *grad = call->in[0], *m = call->in[1], *v = call->in[2];
    double *hyper = call->in[3]->data;
    hyper[1] += 1;
    optim_work work = {.loops = kn__loops(grad->dtype),
                       .attr = attr,
                       .op = (kn_op)call->op,
                       .element_bytes = kn_dtype_bytes(grad->dtype),
                       .grad = grad->data,
                       .m = m == KN_NONE ? NULL : m->data,
                       .v = v == KN_NONE ? NULL : v->data,
                       .rate = hyper[0],
                       .scale = hyper[2]};
    if (call->op == KN_OP_adam_step) work.adam = adam_terms(attr, hyper[0], hyper[1], hyper[2]);
    int64_t n_chunks = 0;
    for (int64_t i = 0; i < attr->n_parts; i++) n_chunks += kn__chunks(attr->part[i].n, CHUNK);
    kn__parallel_for(call->threads, n_chunks, optim_chunk, &work);
    return KN_OK;
}
