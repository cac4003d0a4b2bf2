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
    /* Rows first … end - 1, at most MOST_ROWS; returns their sum, in order. */
    double (*run)(struct loss_work *work, int64_t first, int64_t end);
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

/* Of rows first … end - 1, at most MOST_ROWS. */
static void labels_read(int64_t to[MOST_ROWS], const kn_tensor *labels, int64_t first,
                        int64_t end) {
    int64_t n = end - first;
#define READ(type)                                                                                 \
    for (int64_t i = 0; i < n; i++) to[i] = ((const type *)labels->data)[first + i];
    if (labels->dtype == KN_I64)
        READ(int64_t)
    else if (labels->dtype == KN_I32)
        READ(int32_t)
    else
        READ(uint8_t)
#undef READ
}

static void loss_chunk(void *ctx, int64_t i) {
    loss_work *work = ctx;
    int64_t first = i * work->rows_per_chunk, end = first + work->rows_per_chunk;
    double sum = work->run(work, first, end < work->rows ? end : work->rows);
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

static double cross_entropy_rows(loss_work *work, int64_t first, int64_t end) {
    double sum = 0;
    for (int64_t r = first; r < end; r++) {
        size_t at = (size_t)(r * work->n) * kn_dtype_bytes(work->x->dtype);
        sum += work->loops->cross_entropy_row(
            work->d ? work->d + at : NULL, (const char *)work->x->data + at, work->n,
            label_at(work->labels, r), work->scale, work->smoothing);
    }
    return sum;
}

kn_status kn__host_cross_entropy(kn_op_call *call) {
    if (kn__is_half(call->dtype)) return kn__widened(call, kn__host_cross_entropy);
    loss_work work = work_of(call->in[0], call->in[1]);
    work.run = cross_entropy_rows;
    work.d = call->out[1] ? call->out[1]->data : NULL;
    work.scale = 1 / (double)work.rows;
    work.smoothing = ((const kn_attr_scalars *)call->attr)->a;
    return loss_mean(call, &work, 1);
}

#define NLL(name, type)                                                                            \
    static double nll_##name(loss_work *work, int64_t first, int64_t end) {                        \
        const type *x = (const type *)work->x->data + first * work->n;                             \
        int64_t label[MOST_ROWS], rows = end - first, n = work->n;                                 \
        double sum = 0;                                                                            \
        labels_read(label, work->labels, first, end);                                              \
        for (int64_t r = 0; r < rows; r++, x += n)                                                 \
            sum += in_range(label[r], n) ? (double)x[label[r]] : (double)NAN;                      \
        return sum;                                                                                \
    }
NLL(f32, float)
NLL(f64, double)

kn_status kn__host_nll(kn_op_call *call) {
    loss_work work = work_of(call->in[0], call->in[1]);
    work.run = work.x->dtype == KN_F64 ? nll_f64 : nll_f32;
    return loss_mean(call, &work, -1);
}

/* Here x is the gradient being made. */
#define NLL_BACK(name, type)                                                                       \
    static double nll_back_##name(loss_work *work, int64_t first, int64_t end) {                   \
        type *d = (type *)work->x->data + first * work->n, value = (type)work->scale;              \
        int64_t label[MOST_ROWS], rows = end - first, n = work->n;                                 \
        labels_read(label, work->labels, first, end);                                              \
        memset(d, 0, (size_t)(rows * n) * sizeof *d);                                              \
        for (int64_t r = 0; r < rows; r++, d += n) {                                               \
            if (in_range(label[r], n))                                                             \
                d[label[r]] = value;                                                               \
            else                                                                                   \
                for (int64_t i = 0; i < n; i++) d[i] = (type)NAN;                                  \
        }                                                                                          \
        return 0;                                                                                  \
    }
NLL_BACK(f32, float)
NLL_BACK(f64, double)

kn_status kn__host_nll_back(kn_op_call *call) {
    loss_work work = work_of(call->out[0], call->in[0]);
    work.run = work.x->dtype == KN_F64 ? nll_back_f64 : nll_back_f32;
    work.scale = -element(call->in[1], 0) / (double)work.rows;
    kn__parallel_for(call->threads, loss_chunks(&work), loss_chunk, &work);
    return KN_OK;
}

static double accuracy_rows(loss_work *work, int64_t first, int64_t end) {
    double sum = 0;
    for (int64_t r = first; r < end; r++) {
        int64_t label = label_at(work->labels, r);
        const char *x = work->x->data;
        x += (size_t)(r * work->n) * kn_dtype_bytes(work->x->dtype);
        if (in_range(label, work->n))
            sum += work->loops->is_among_first(x, work->n, label, work->best);
        else
            sum = (double)NAN;
    }
    return sum;
}

kn_status kn__host_accuracy(kn_op_call *call) {
    loss_work work = work_of(call->in[0], call->in[1]);
    work.run = accuracy_rows;
    work.best = ((const kn_attr_best *)call->attr)->k;
    return loss_mean(call, &work, 1);
}
