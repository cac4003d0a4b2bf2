/* Optimisers: one pass over all parameters. Learning rate, step count and gradient scale are read
 * from the hyper tensor at run time. Inputs: gradients, m, v (flat arenas; KN_NONE where unused),
 * hyper. The CUDA kernel has the same formulas. */
#include "host/base/chunks.h"
#include "host/base/loops.h"
#include "kernel.h"

#include <math.h>
#include <string.h>

enum { CHUNK = 16384, COPY = 1024 }; /* elements */

typedef void (*optim_loop)(void *w, void *m, void *v, const void *g, int64_t n,
                           const kn__optim_terms *terms);

typedef struct optim_work {
    optim_loop loop;
    const kn__loop_table *loops;
    const kn_attr_optim *attr;
    const int64_t *first; /* [n_parts + 1]: each part's first chunk, of all; then their number */
    size_t element_bytes;
    const char *grad;
    char *m, *v; /* NULL where unused */
    kn__optim_terms terms;
    bool decay_has_rate; /* terms.decay is times the rate already */
    bool stops;          /* nothing moves without a rate: there is no state, or it has the rate */
    bool moves_weights;
    double *sums; /* LAMB: [chunks][2], of squares of weights and of steps */
} optim_work;

static optim_loop loop_of(kn_op op, const kn__loop_table *loops) {
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
        case KN_OP_lamb_step:
            return loops->lamb;
        default:
            return loops->ema;
    }
}

static void *at(char *arena, const optim_work *work, int64_t i) {
    return arena ? arena + (size_t)i * work->element_bytes : NULL;
}

/* A chunk of a part. */
typedef struct piece {
    const kn_optim_part *part;
    int64_t first, n; /* elements of the part */
    int64_t chunk;    /* the part's first one, of all */
} piece;

static piece piece_of(const optim_work *work, int64_t i) {
    int64_t k = 0, end = work->attr->n_parts;
    while (end - k > 1) { /* parts without elements have no chunk: the last one that begins at i */
        int64_t middle = k + (end - k) / 2;
        if (work->first[middle] <= i)
            k = middle;
        else
            end = middle;
    }
    piece p = {.part = &work->attr->part[k], .chunk = work->first[k]};
    p.first = (i - p.chunk) * CHUNK;
    int64_t left = p.part->n - p.first;
    p.n = left < CHUNK ? left : CHUNK;
    return p;
}

static void chunks_count(int64_t *first, const kn_attr_optim *attr) {
    first[0] = 0;
    for (int64_t k = 0; k < attr->n_parts; k++)
        first[k + 1] = first[k] + kn__chunks(attr->part[k].n, CHUNK);
}

static kn__optim_terms terms_at(const optim_work *work, const kn_optim_part *part) {
    kn__optim_terms terms = work->terms;
    terms.rate *= part->rate;
    terms.decay *= part->decay * (work->decay_has_rate ? part->rate : 1);
    terms.inner = work->attr->rate_outside ? 1 : -terms.rate;
    terms.outer = work->attr->rate_outside ? -terms.rate : 1;
    return terms;
}

static void *weight_at(const optim_work *work, const piece *p) {
    return (char *)p->part->w->data + (size_t)p->first * work->element_bytes;
}

/* Of a part with rate 0: the state is updated, the weights stay as they are, also where the step is
 * infinite: it is added to a copy of them. */
static void state_move(const optim_work *work, const piece *p, const kn__optim_terms *terms) {
    _Alignas(64) char copy[COPY * sizeof(double)];
    const char *w = weight_at(work, p);
    int64_t at_arena = p->part->offset + p->first;
    for (int64_t i = 0; i < p->n; i += COPY) {
        int64_t n = p->n - i < COPY ? p->n - i : COPY;
        memcpy(copy, w + (size_t)i * work->element_bytes, (size_t)n * work->element_bytes);
        work->loop(copy, at(work->m, work, at_arena + i), at(work->v, work, at_arena + i),
                   work->grad + (size_t)(at_arena + i) * work->element_bytes, n, terms);
    }
}

/* Chunk i of all chunks of all parts. */
static void optim_chunk(void *ctx, int64_t i) {
    const optim_work *work = ctx;
    piece p = piece_of(work, i);
    int64_t at_arena = p.part->offset + p.first;
    kn__optim_terms terms = terms_at(work, p.part);
    bool stands = work->moves_weights && terms.rate == 0;
    if (stands && !work->stops) state_move(work, &p, &terms);
    if (stands) return;
    work->loop(weight_at(work, &p), at(work->m, work, at_arena), at(work->v, work, at_arena),
               work->grad + (size_t)at_arena * work->element_bytes, p.n, &terms);
}

/* --- LAMB: a pass for the state and the lengths of weights and steps, then the step --- */

static void lamb_state_chunk(void *ctx, int64_t i) {
    const optim_work *work = ctx;
    piece p = piece_of(work, i);
    int64_t at_arena = p.part->offset + p.first;
    kn__optim_terms terms = terms_at(work, p.part);
    work->loops->lamb_state(work->sums + 2 * i, weight_at(work, &p), at(work->m, work, at_arena),
                            at(work->v, work, at_arena),
                            work->grad + (size_t)at_arena * work->element_bytes, p.n, &terms);
}

/* Makes the sums of each part's first chunk the length of its weights over that of its step; 1
 * where one of them is zero. */
static void trusts_make(const optim_work *work) {
    double *sums = work->sums;
    for (int64_t k = 0; k < work->attr->n_parts; k++) {
        int64_t n = kn__chunks(work->attr->part[k].n, CHUNK);
        double weights = 0, steps = 0;
        for (int64_t i = 0; i < n; i++) weights += sums[2 * i], steps += sums[2 * i + 1];
        if (n) sums[0] = weights > 0 && steps > 0 ? sqrt(weights / steps) : 1;
        sums += 2 * n;
    }
}

static void lamb_chunk(void *ctx, int64_t i) {
    const optim_work *work = ctx;
    piece p = piece_of(work, i);
    int64_t at_arena = p.part->offset + p.first;
    kn__optim_terms terms = terms_at(work, p.part);
    if (terms.rate == 0) return;
    terms.rate *= work->sums[2 * p.chunk];
    work->loop(weight_at(work, &p), at(work->m, work, at_arena), at(work->v, work, at_arena), NULL,
               p.n, &terms);
}

/* Adam: Kingma and Ba 2015, algorithm 1, in the form of the end of its section 2; decay as in
 * AdamW, which is why it is times the rate. */
static kn__optim_terms terms_of(kn_op op, const kn_attr_optim *attr, const double hyper[]) {
    kn__optim_terms terms = {.rate = hyper[0],
                             .momentum = attr->momentum,
                             .beta1 = attr->beta1,
                             .beta2 = attr->beta2,
                             .eps = attr->eps,
                             .decay = attr->weight_decay,
                             .grad_scale = hyper[2]};
    if (op != KN_OP_adam_step && op != KN_OP_lamb_step) return terms;
    terms.m_scale = 1 / (1 - pow(attr->beta1, hyper[1]));
    terms.root_scale = 1 / sqrt(1 - pow(attr->beta2, hyper[1]));
    if (op == KN_OP_lamb_step) return terms;
    terms.rate = hyper[0] / (1 - pow(attr->beta1, hyper[1]));
    terms.decay = hyper[0] * attr->weight_decay;
    return terms;
}

kn_status kn__host_optim(kn_op_call *call) {
    const kn_attr_optim *attr = call->attr;
    kn_tensor *grad = call->in[0], *m = call->in[1], *v = call->in[2];
    const kn__loop_table *loops = kn__loops(grad->dtype);
    bool is_lamb = call->op == KN_OP_lamb_step;
    double *hyper = call->in[3]->data;
    void *first = NULL, *sums = NULL;
    KN_TRY(kn__work(&first, call, ((size_t)attr->n_parts + 1) * sizeof(int64_t)));
    chunks_count(first, attr);
    int64_t n_chunks = ((int64_t *)first)[attr->n_parts];
    if (is_lamb) KN_TRY(kn__work(&sums, call, (size_t)n_chunks * 2 * sizeof(double)));
    hyper[1] += 1;
    optim_work work = {.loop = loop_of((kn_op)call->op, loops),
                       .loops = loops,
                       .attr = attr,
                       .first = first,
                       .element_bytes = kn_dtype_bytes(grad->dtype),
                       .grad = grad->data,
                       .m = m == KN_NONE ? NULL : m->data,
                       .v = v == KN_NONE ? NULL : v->data,
                       .decay_has_rate = call->op == KN_OP_adam_step,
                       .sums = sums,
                       .terms = terms_of((kn_op)call->op, attr, hyper)};
    work.stops = call->op == KN_OP_sgd_step ||
                 (!attr->rate_outside &&
                  (call->op == KN_OP_momentum_step || call->op == KN_OP_nesterov_step));
    work.moves_weights = work.loop != loops->ema;
    if (is_lamb) {
        kn__parallel_for(call->threads, n_chunks, lamb_state_chunk, &work);
        trusts_make(&work);
    }
    kn__parallel_for(call->threads, n_chunks, is_lamb ? lamb_chunk : optim_chunk, &work);
    return KN_OK;
}
