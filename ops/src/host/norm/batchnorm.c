/* Batch normalization: x is [outer, channels, inner], statistics are by channel. In three steps:
 * statistics of chunks, their combination, and what follows from them for every element. A chunk is
 * a run of the outer dimension, whose length depends on the shape alone. Of a batch that ranks
 * share the combined statistics of each rank are combined in turn, by all of them in the same
 * order.
 *
 * Where inner is 1 a chunk is some rows and its statistics are those of columns, some columns at a
 * time; of a single chunk one thread takes these through all steps while they are in the cache.
 * Elsewhere it does so with a channel, if there are enough of them for all threads. Chunks are
 * combined by Chan, Golub and LeVeque 1983. */
#include <math.h>

#include "host/base/chunks.h"
#include "host/base/loops.h"
#include "host/norm/numbers.h"

enum { CHUNK = 8192, CHANNELS_MANY = 16, COLUMN_ROWS = 128, COLUMN_BLOCK = 512 };

typedef struct batch_work {
    const kn__loop_table *loops;
    const kn_attr_normalize *attr;
    const void *x, *g; /* g: back alone */
    void *y;           /* or dx; NULL: not wanted */
    const kn_tensor *weight, *bias;
    void *mean, *rstd;                /* [channels]; forward: results or NULL; back: inputs */
    void *running_mean, *running_var; /* forward; may be NULL */
    void *dw, *db;                    /* back; NULL: not wanted */
    int64_t outer, channels, inner, chunk, n_chunks;
    size_t bytes; /* of an element */
    double n;     /* elements of a channel, of all ranks */
    /* [n_parts][2·channels + 1]: statistics of chunks, or of ranks, and how many elements of a
     * channel they are of */
    double *parts;
    int64_t n_parts;
    char *terms;  /* [4][channels] for columns: of what norm_column_scale or _back reads */
    double *term; /* [channels][4] for runs */
} batch_work;

static double number_or(const kn_tensor *t, size_t bytes, int64_t i, double otherwise) {
    return t == KN_NONE ? otherwise : number_at(t->data, bytes, i);
}

static batch_work work_of(const kn_op_call *call, const kn_tensor *x) {
    const kn_attr_normalize *a = call->attr;
    batch_work w = {.loops = kn__loops(x->dtype),
                    .attr = a,
                    .x = x->data,
                    .outer = a->outer,
                    .channels = a->channels,
                    .inner = a->inner,
                    .bytes = kn_dtype_bytes(x->dtype)};
    w.chunk = w.inner == 1 ? COLUMN_ROWS : (CHUNK + w.inner - 1) / w.inner;
    w.n_chunks = w.n_parts = kn__chunks(w.outer, w.chunk);
    w.n = (double)(w.outer * w.inner);
    return w;
}

static int64_t chunk_size(const batch_work *w, int64_t chunk) {
    int64_t left = w->outer - chunk * w->chunk;
    return left < w->chunk ? left : w->chunk;
}

static int64_t part_n(const batch_work *w) { return 2 * w->channels + 1; }

static double *part_of(const batch_work *w, int64_t part, int which) {
    return w->parts + part * part_n(w) + which * w->channels;
}

/* The elements of a channel in a part. */
static double *count_of(const batch_work *w, int64_t part) { return part_of(w, part, 2); }

static kn_status work_space(batch_work *w, kn_op_call *call) {
    void *parts, *terms;
    KN_TRY(kn__work(&parts, call, (size_t)(w->n_parts * part_n(w) + 1) * sizeof(double)));
    KN_TRY(kn__work(&terms, call, 4 * (size_t)w->channels * sizeof(double)));
    w->parts = parts;
    w->terms = terms;
    w->term = terms;
    for (int64_t k = 0; k < w->n_chunks; k++)
        *count_of(w, k) = (double)(chunk_size(w, k) * w->inner);
    return KN_OK;
}

/* Where the first run of the chunk begins, in bytes. */
static size_t run_at(const batch_work *w, int64_t channel, int64_t chunk) {
    return (size_t)((chunk * w->chunk * w->channels + channel) * w->inner) * w->bytes;
}

/* Term k of a channel: for columns in the real type, side by side. */
static void term_set(const batch_work *w, int64_t channel, int k, double value) {
    if (w->inner == 1)
        number_set(w->terms, w->bytes, k * w->channels + channel, value);
    else
        w->term[channel * 4 + k] = value;
}

/* --- statistics of a chunk --- */

static void run_statistics(const batch_work *w, int64_t channel, int64_t chunk) {
    size_t at = run_at(w, channel, chunk);
    int64_t n = chunk_size(w, chunk), stride = w->channels * w->inner;
    double out[2];
    if (w->g)
        w->loops->norm_back_sums(out, (const char *)w->g + at, (const char *)w->x + at, n, w->inner,
                                 stride, number_at(w->mean, w->bytes, channel));
    else
        w->loops->norm_moments(out, (const char *)w->x + at, n, w->inner, stride);
    part_of(w, chunk, 0)[channel] = out[0];
    part_of(w, chunk, 1)[channel] = out[1];
}

/* Of n columns from `from` on. */
static void column_statistics(const batch_work *w, int64_t chunk, int64_t from, int64_t n) {
    size_t at = run_at(w, from, chunk), mean = (size_t)from * w->bytes;
    int64_t rows = chunk_size(w, chunk);
    double *first = part_of(w, chunk, 0) + from, *second = part_of(w, chunk, 1) + from;
    if (w->g)
        w->loops->norm_column_sums(first, second, (const char *)w->g + at, (const char *)w->x + at,
                                   (const char *)w->mean + mean, rows, n, w->channels);
    else
        w->loops->norm_column_moments(first, second, (const char *)w->x + at, rows, n, w->channels);
}

/* --- their combination, for one channel --- */

/* The mean, and the sum of squared distances from it. */
static void combine(const batch_work *w, int64_t c, double *mean, double *squares) {
    double n = *count_of(w, 0);
    *mean = part_of(w, 0, 0)[c];
    *squares = part_of(w, 0, 1)[c];
    for (int64_t k = 1; k < w->n_parts; k++) {
        double m = *count_of(w, k), d = part_of(w, k, 0)[c] - *mean;
        *mean += d * (m / (n + m));
        *squares += part_of(w, k, 1)[c] + d * d * (n * m / (n + m));
        n += m;
    }
}

/* Sums of g, and of g·(x - mean). */
static void add_up(const batch_work *w, int64_t c, double *sum, double *dot) {
    *sum = *dot = 0;
    for (int64_t k = 0; k < w->n_parts; k++) {
        *sum += part_of(w, k, 0)[c];
        *dot += part_of(w, k, 1)[c];
    }
}

/* The gradients of weight and bias: of this rank's elements. */
static void weight_gradients(const batch_work *w, int64_t c, double sum, double dot) {
    number_set(w->db, w->bytes, c, sum);
    number_set(w->dw, w->bytes, c, dot * number_at(w->rstd, w->bytes, c));
}

/* The parts become those of the ranks. */
static kn_status ranks_join(batch_work *w, kn_op_call *call) {
    const kn_batch_ranks *ranks = w->attr->ranks;
    void *all;
    KN_TRY(kn__work(&all, call, (size_t)(ranks->size * part_n(w)) * sizeof(double)));
    double *mine = (double *)all + ranks->rank * part_n(w);
    for (int64_t c = 0; c < w->channels; c++) {
        if (w->g) {
            add_up(w, c, &mine[c], &mine[w->channels + c]);
            weight_gradients(w, c, mine[c], mine[w->channels + c]);
        } else {
            combine(w, c, &mine[c], &mine[w->channels + c]);
        }
    }
    mine[2 * w->channels] = w->n;
    KN_TRY(ranks->gather_fn(ranks->ctx, all, part_n(w)));
    w->parts = all;
    w->n_parts = ranks->size;
    w->n = 0;
    for (int r = 0; r < ranks->size; r++) w->n += *count_of(w, r);
    return KN_OK;
}

static void running_step(const batch_work *w, void *running, int64_t c, double value) {
    double momentum = w->attr->momentum;
    if (!running) return;
    double old = number_at(running, w->bytes, c);
    number_set(running, w->bytes, c, (1 - momentum) * old + momentum * value);
}

static void forward_terms(const batch_work *w, int64_t c) {
    double mean, squares;
    combine(w, c, &mean, &squares);
    double rstd = number_rounded(w->bytes, 1 / sqrt(squares / w->n + w->attr->eps));
    number_set(w->mean, w->bytes, c, mean);
    number_set(w->rstd, w->bytes, c, rstd);
    running_step(w, w->running_mean, c, mean);
    running_step(w, w->running_var, c, squares / (w->n - 1));
    term_set(w, c, 0, mean);
    term_set(w, c, 1, rstd * number_or(w->weight, w->bytes, c, 1));
    term_set(w, c, 2, number_or(w->bias, w->bytes, c, 0));
}

/* dx = t0·g - t1 - (x - t3)·t2 */
static void back_terms(const batch_work *w, int64_t c) {
    double sum, dot;
    add_up(w, c, &sum, &dot);
    if (!w->attr->ranks || !w->y) weight_gradients(w, c, sum, dot); /* else they are there */
    double rstd = number_at(w->rstd, w->bytes, c);
    double scale = rstd * number_or(w->weight, w->bytes, c, 1);
    term_set(w, c, 0, scale);
    term_set(w, c, 1, scale * sum / w->n);
    term_set(w, c, 2, scale * rstd * rstd * dot / w->n);
    term_set(w, c, 3, number_at(w->mean, w->bytes, c));
}

static void channel_terms(const batch_work *w, int64_t c) {
    if (w->g)
        back_terms(w, c);
    else
        forward_terms(w, c);
}

/* --- every element --- */

static void run_result(const batch_work *w, int64_t channel, int64_t chunk) {
    if (!w->y) return;
    size_t at = run_at(w, channel, chunk);
    int64_t n = chunk_size(w, chunk), stride = w->channels * w->inner;
    const double *t = w->term + channel * 4;
    if (w->g)
        w->loops->norm_back_scale((char *)w->y + at, (const char *)w->g + at,
                                  (const char *)w->x + at, n, w->inner, stride, t);
    else
        w->loops->norm_scale((char *)w->y + at, (const char *)w->x + at, n, w->inner, stride, t[0],
                             t[1], t[2]);
}

static void column_result(const batch_work *w, int64_t chunk, int64_t from, int64_t n) {
    size_t at = run_at(w, from, chunk), each = (size_t)w->channels * w->bytes;
    int64_t rows = chunk_size(w, chunk);
    const char *terms = w->terms + (size_t)from * w->bytes;
    const void *t[4] = {terms, terms + each, terms + 2 * each, terms + 3 * each};
    if (w->g)
        w->loops->norm_column_back((char *)w->y + at, (const char *)w->g + at,
                                   (const char *)w->x + at, t, rows, n, w->channels);
    else
        w->loops->norm_column_scale((char *)w->y + at, (const char *)w->x + at, t[0], t[1], t[2],
                                    rows, n, w->channels);
}

/* --- the three steps --- */

static int64_t columns_of(const batch_work *w, int64_t from) {
    return w->channels - from < COLUMN_BLOCK ? w->channels - from : COLUMN_BLOCK;
}

static void whole_channel(void *ctx, int64_t c) {
    const batch_work *w = ctx;
    for (int64_t k = 0; k < w->n_chunks; k++) run_statistics(w, c, k);
    channel_terms(w, c);
    for (int64_t k = 0; k < w->n_chunks; k++) run_result(w, c, k);
}

/* Of a single chunk. */
static void whole_columns(void *ctx, int64_t i) {
    const batch_work *w = ctx;
    int64_t from = i * COLUMN_BLOCK, n = columns_of(w, from);
    column_statistics(w, 0, from, n);
    for (int64_t c = from; c < from + n; c++) channel_terms(w, c);
    if (w->y) column_result(w, 0, from, n);
}

/* Chunks of channels, or of some columns. */
static int64_t units(const batch_work *w) {
    return w->n_chunks * (w->inner == 1 ? kn__chunks(w->channels, COLUMN_BLOCK) : w->channels);
}

static void one_statistics(void *ctx, int64_t i) {
    const batch_work *w = ctx;
    int64_t each = units(w) / w->n_chunks, from = i % each * COLUMN_BLOCK;
    if (w->inner == 1)
        column_statistics(w, i / each, from, columns_of(w, from));
    else
        run_statistics(w, i % each, i / each);
}

static void one_result(void *ctx, int64_t i) {
    const batch_work *w = ctx;
    int64_t each = units(w) / w->n_chunks, from = i % each * COLUMN_BLOCK;
    if (w->inner == 1)
        column_result(w, i / each, from, columns_of(w, from));
    else
        run_result(w, i % each, i / each);
}

static kn_status run(batch_work *w, kn_op_call *call) {
    KN_TRY(work_space(w, call));
    bool columns = w->inner == 1, joins = w->attr->ranks && (w->y || !w->g);
    if (!columns && w->channels >= CHANNELS_MANY && !joins) {
        kn__parallel_for(call->threads, w->channels, whole_channel, w);
        return KN_OK;
    }
    if (columns && w->n_chunks == 1 && !joins) {
        kn__parallel_for(call->threads, units(w), whole_columns, w);
        return KN_OK;
    }
    kn__parallel_for(call->threads, units(w), one_statistics, w);
    if (joins) KN_TRY(ranks_join(w, call));
    for (int64_t c = 0; c < w->channels; c++) channel_terms(w, c);
    if (w->y) kn__parallel_for(call->threads, units(w), one_result, w);
    return KN_OK;
}

kn_status kn__host_batchnorm(kn_op_call *call) {
    if (kn__is_half(call->dtype)) return kn__widened(call, kn__host_batchnorm);
    batch_work w = work_of(call, call->in[0]);
    w.running_mean = data_of(call->in[1]);
    w.running_var = data_of(call->in[2]);
    w.weight = call->in[3];
    w.bias = call->in[4];
    w.y = data_of(call->out[0]);
    w.mean = data_of(call->out[1]);
    w.rstd = data_of(call->out[2]);
    return run(&w, call);
}

/* Given statistics: the last of the three steps. */
static kn_status given_terms(batch_work *w, kn_op_call *call) {
    void *terms;
    KN_TRY(kn__work(&terms, call, 4 * (size_t)w->channels * sizeof(double)));
    w->terms = terms;
    w->term = terms;
    w->y = call->out[0]->data;
    for (int64_t c = 0; c < w->channels; c++) {
        double rstd = number_at(call->in[2]->data, w->bytes, c);
        if (!w->attr->by_rstd) rstd = 1 / sqrt(rstd + w->attr->eps);
        term_set(w, c, 0, number_at(call->in[1]->data, w->bytes, c));
        term_set(w, c, 1, rstd * number_or(call->in[3], w->bytes, c, 1));
        term_set(w, c, 2, number_or(call->in[4], w->bytes, c, 0));
    }
    return KN_OK;
}

kn_status kn__host_batchnorm_eval(kn_op_call *call) {
    if (kn__is_half(call->dtype)) return kn__widened(call, kn__host_batchnorm_eval);
    batch_work w = work_of(call, call->in[0]);
    KN_TRY(given_terms(&w, call));
    kn__parallel_for(call->threads, units(&w), one_result, &w);
    return KN_OK;
}

typedef struct blocks_work {
    batch_work w; /* its inner is 1: terms lie side by side */
    int64_t block, inner;
} blocks_work;

/* A block of one image's channels: columns of `inner` rows. */
static void block_result(void *ctx, int64_t i) {
    const blocks_work *k = ctx;
    const batch_work *w = &k->w;
    size_t at = (size_t)(i * k->block * k->inner) * w->bytes;
    size_t each = (size_t)w->channels * w->bytes;
    const char *t = w->terms + (size_t)(i * k->block % w->channels) * w->bytes;
    w->loops->norm_column_scale((char *)w->y + at, (const char *)w->x + at, t, t + each,
                                t + 2 * each, k->inner, k->block, k->block);
}

kn_status kn__host_batchnorm_blocks(kn_op_call *call, int64_t block) {
    blocks_work k = {.w = work_of(call, call->in[0]), .block = block};
    k.inner = k.w.inner;
    k.w.inner = 1;
    KN_TRY(given_terms(&k.w, call));
    kn__parallel_for(call->threads, k.w.outer * k.w.channels / block, block_result, &k);
    return KN_OK;
}

kn_status kn__host_batchnorm_back(kn_op_call *call) {
    if (kn__is_half(call->dtype)) return kn__widened(call, kn__host_batchnorm_back);
    batch_work w = work_of(call, call->in[1]);
    w.g = call->in[0]->data;
    w.weight = call->in[2];
    w.bias = KN_NONE;
    w.mean = call->in[3]->data;
    w.rstd = call->in[4]->data;
    w.y = data_of(call->out[0]);
    w.dw = data_of(call->out[1]);
    w.db = data_of(call->out[2]);
    return run(&w, call);
}
