/* What the forward and the backward pass of a recurrent network on the host share.
 *
 * Sequences of different lengths are packed: sorted by length, the longest first, so that those
 * that still run at a step are the first ones, and only their rows exist. A step t has rows
 * at[t] … at[t + 1] - 1. Sequences are cut into chunks by their number alone; a chunk runs through
 * all steps on one thread, with R packed once for all of them. */
#ifndef KN_HOST_RECURRENT_H
#define KN_HOST_RECURRENT_H

#include "host/base/loops.h"
#include "host/product/gemm.h"
#include "host/product/panels.h"
#include "rnn.h"

typedef struct kn__rnn_job {
    kn_op_call *call;
    const kn_attr_rnn *attr;
    const kn__loop_table *loops;
    kn_dtype dtype;
    size_t bytes; /* of an element */
    bool keeps;   /* a gradient will read what this pass makes */
    int64_t layers, directions, n_gates, hidden, width, gate_rows; /* width D·H, gate_rows G·H */
    int64_t batch, steps, n_rows;
    const int64_t *at;    /* [T + 1] */
    const int64_t *order; /* [B]: the sequence at each place; NULL: no lengths, x is as packed */
    int64_t n_chunks;
    const char *w;
    const int64_t *rng; /* of dropout */
    /* the reserve, or work space of the same layout */
    char *h_first, *c_first, *gates, *extra, *y;
    char *y_last;    /* of the top layer */
    char *x;         /* of layer 0, packed */
    char *dropped;   /* the input of a layer above it, with dropout */
    char *window[2]; /* a row of it, within whole counters */
    int64_t layer;   /* that is being run */
} kn__rnn_job;

static inline char *kn__rnn_el(const kn__rnn_job *job, const void *base, int64_t element) {
    return (char *)(uintptr_t)base + (size_t)element * job->bytes;
}

/* The layout of the reserve, in elements; its first KN_RNN_HEAD hold dropout's state. */
enum { KN_RNN_HEAD = 16 };
typedef struct kn__rnn_layout {
    int64_t h, c, gates, extra, y, n;
} kn__rnn_layout;
kn__rnn_layout kn__rnn_layout_of(const kn_attr_rnn *attr, bool keeps);

/* Fills in the job's sizes. Memory is added up first and taken in one piece by kn__rnn_take. */
void kn__rnn_job_init(kn__rnn_job *job, kn_op_call *call);
/* Sorts by length, with `index`, [2·(T + 1) + B], which becomes the job's. */
void kn__rnn_sort(kn__rnn_job *job, int64_t *index);
void kn__rnn_reserve_at(kn__rnn_job *job, char *reserve);

/* Between [T,B,n] and packed rows; unpacking leaves zeros elsewhere. */
void kn__rnn_pack(const kn__rnn_job *job, char *to, const char *from, int64_t n);
void kn__rnn_unpack(const kn__rnn_job *job, char *to, const char *from, int64_t n);

/* Of layer l: gates and extra (LSTM: cells; GRU: candidates, of one step where no gradient reads
 * them) of a direction; y; the input. */
char *kn__rnn_gates_at(const kn__rnn_job *job, int64_t layer, int64_t direction);
char *kn__rnn_extra_at(const kn__rnn_job *job, int64_t layer, int64_t direction);
char *kn__rnn_y_at(const kn__rnn_job *job, int64_t layer);
/* With dropout it is made anew. */
const char *kn__rnn_input(kn__rnn_job *job, int64_t layer);
/* Elements of dropout of the input of a layer; back: of its gradient. */
void kn__rnn_drop(const kn__rnn_job *job, int64_t layer, char *to, const char *from);
const char *kn__rnn_part(const kn__rnn_job *job, const char *w, int64_t layer, int64_t direction,
                         kn_rnn_part part);

/* Rows of the chunk that run at step t. */
static inline int64_t kn__rnn_running(const kn__rnn_job *job, int64_t t, int64_t first,
                                      int64_t rows) {
    int64_t n = job->at[t + 1] - job->at[t] - first;
    return n < rows ? n : rows;
}

/* c [m,n] += a [m,k], rows lda apart, · rows first … of panels [depth,n]. */
static inline void kn__rnn_product(const kn__rnn_job *job, char *c, int64_t ldc, const char *a,
                                   int64_t lda, int64_t m, kn__panels panels, int64_t first,
                                   int64_t k, int64_t n, char *pack) {
    kn__panel_job p = {c, ldc, a, lda, 1, m, k, n, first};
    kn__panel_product(job->loops, job->bytes, &p, panels, pack);
}

/* Cuts one piece of work space into parts. */
typedef struct kn__rnn_space {
    char *base;
    size_t used;
} kn__rnn_space;
static inline char *kn__rnn_take(kn__rnn_space *space, const kn__rnn_job *job, int64_t elements) {
    size_t at = space->used;
    space->used += ((size_t)elements * job->bytes + 63) / 64 * 64;
    return space->base ? space->base + at : NULL;
}

#endif
