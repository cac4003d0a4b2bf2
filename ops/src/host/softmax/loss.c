/* Losses over rows with integer labels. A label out of range makes its row's loss, and with it the
 * mean, NaN; it is never used as an index. */
#include "host/base/chunks.h"
#include "host/base/loops.h"
#include "kernel.h"
#include "labels.h"

#include <math.h>
#include <string.h>

enum { CHUNK = 8192, MOST_ROWS = 256 }; /* a chunk's elements at least, its rows at most */

typedef struct loss_work {
    const kn__loop_table *loops;
    const kn_tensor *x, *labels; /* x [rows, n] */
    char *d;                     /* NULL: no gradient */
    int64_t rows, n, rows_per_chunk;
    double *sums; /* one a chunk */
    double scale, smoothing;
    int64_t best; /* accuracy: how many scores count */
    void (*row)(struct loss_work *work, int64_t row, double *sum);
} loss_work;

static int64_t label_at(const kn_tensor *labels, int64_t i) {
    return kn__label_at(labels->data, (kn_dtype)labels->dtype, i);
}

static bool in_range(int64_t label, int64_t n) { return label >= 0 && label < n; }

static double element(const kn_tensor *x, int64_t i) {
    return x->dtype == KN_F64 ? ((const double *)x->data)[i] : (double)((const float *)x->data)[i];
}

static void element_set(void *data, kn_dtype dtype, int64_t i, double value) {
    if (dtype == KN_F64)
        ((double *)data)[i] = value;
    else
        ((float *)data)[i] = (float)value;
}

static void loss_chunk(void *ctx, int64_t i) {
    loss_work *work = ctx;
    int64_t first = i * work->rows_per_chunk, end = first + work->rows_per_chunk;
    double sum = 0;
    for (int64_t r = first; r < end && r < work->rows; r++) work->row(work, r, &sum);
    if (work->sums) work->sums[i] = sum;
}

static int64_t loss_chunks(loss_work *work) {
    int64_t rows = (CHUNK + work->n - 1) / work->n;
    work->rows_per_chunk = rows < MOST_ROWS ? rows : MOST_ROWS;
    return kn__chunks(work->rows, work->rows_per_chunk);
}

/* Runs over all rows, and writes the mean of their sums, times `sign`. */
static kn_status loss_mean(kn_op_call *call, loss_work *work, double sign) {
    int64_t n_chunks = loss_chunks(work);
    void *sums = NULL;
    KN_TRY(kn__work(&sums, call, (size_t)n_chunks * sizeof(double)));
    work->sums = sums;
    kn__parallel_for(call->threads, n_chunks, loss_chunk, work);
    double sum = 0;
    for (int64_t i = 0; i < n_chunks; i++) sum += work->sums[i];
    element_set(call->out[0]->data, call->out[0]->dtype, 0, sign * sum / (double)work->rows);
    return KN_OK;
}

static loss_work work_of(const kn_tensor *x, const kn_tensor *labels) {
    return (loss_work){
        .loops = kn__loops(x->dtype), .x = x, .labels = labels, .rows = x->dim[0], .n = x->dim[1]};
}

static void cross_entropy_row(loss_work *work, int64_t r, double *sum) {
    size_t at = (size_t)(r * work->n) * kn_dtype_bytes(work->x->dtype);
    *sum += work->loops->cross_entropy_row(work->d ? work->d + at : NULL,
                                           (const char *)work->x->data + at, work->n,
                                           label_at(work->labels, r), work->scale, work->smoothing);
}

kn_status kn__host_cross_entropy(kn_op_call *call) {
    loss_work work = work_of(call->in[0], call->in[1]);
    work.row = cross_entropy_row;
    work.d = call->out[1] ? call->out[1]->data : NULL;
    work.scale = 1 / (double)work.rows;
    work.smoothing = ((const kn_attr_scalars *)call->attr)->a;
    return loss_mean(call, &work, 1);
}

static void nll_row(loss_work *work, int64_t r, double *sum) {
    int64_t label = label_at(work->labels, r);
    *sum += in_range(label, work->n) ? element(work->x, r * work->n + label) : (double)NAN;
}

kn_status kn__host_nll(kn_op_call *call) {
    loss_work work = work_of(call->in[0], call->in[1]);
    work.row = nll_row;
    return loss_mean(call, &work, -1);
}

/* Here x is the gradient being made. */
static void nll_back_row(loss_work *work, int64_t r, double *sum) {
    (void)sum;
    const kn_tensor *d = work->x;
    int64_t label = label_at(work->labels, r);
    size_t bytes = kn_dtype_bytes(d->dtype);
    memset((char *)d->data + (size_t)(r * work->n) * bytes, 0, (size_t)work->n * bytes);
    if (in_range(label, work->n))
        element_set(d->data, d->dtype, r * work->n + label, work->scale);
    else
        for (int64_t i = 0; i < work->n; i++)
            element_set(d->data, d->dtype, r * work->n + i, (double)NAN);
}

kn_status kn__host_nll_back(kn_op_call *call) {
    loss_work work = work_of(call->out[0], call->in[0]);
    work.row = nll_back_row;
    work.scale = -element(call->in[1], 0) / (double)work.rows;
    kn__parallel_for(call->threads, loss_chunks(&work), loss_chunk, &work);
    return KN_OK;
}

static void accuracy_row(loss_work *work, int64_t r, double *sum) {
    int64_t label = label_at(work->labels, r);
    if (!in_range(label, work->n))
        *sum = (double)NAN;
    else
        *sum += work->loops->is_among_first(
            (const char *)work->x->data + (size_t)(r * work->n) * kn_dtype_bytes(work->x->dtype),
            work->n, label, work->best);
}

kn_status kn__host_accuracy(kn_op_call *call) {
    loss_work work = work_of(call->in[0], call->in[1]);
    work.row = accuracy_row;
    work.best = ((const kn_attr_best *)call->attr)->k;
    return loss_mean(call, &work, 1);
}
