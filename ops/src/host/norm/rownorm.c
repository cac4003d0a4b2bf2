/* Normalization of rows: layernorm, rmsnorm, groupnorm. x is [outer, groups, channels, inner]; a
 * row is one (outer, group). Where inner is 1 the weights are a vector beside the row; elsewhere
 * each stands for a run of `inner` elements. */
#include <math.h>
#include <string.h>

#include "host/base/chunks.h"
#include "host/base/loops.h"
#include "host/norm/numbers.h"

enum { CHUNK = 16384, PARTS_MAX = 64 }; /* elements of a chunk at least; sums of weights at most */

typedef struct rows_work {
    kn__norm_rows p;
    const kn__loop_table *loops;
    int64_t rows, groups, channels, inner, rows_per_chunk;
    size_t bytes;  /* of an element */
    char *dw, *db; /* parts of the weights' gradients, or NULL: one a chunk, or one a row */
} rows_work;

static rows_work work_of(const kn_op_call *call, const kn_tensor *x) {
    const kn_attr_normalize *a = call->attr;
    rows_work w = {.p = {.x = x->data, .n = a->channels * a->inner, .eps = a->eps},
                   .loops = kn__loops(x->dtype),
                   .rows = a->outer * a->groups,
                   .groups = a->groups,
                   .channels = a->channels,
                   .inner = a->inner,
                   .bytes = kn_dtype_bytes(x->dtype)};
    w.rows_per_chunk = (CHUNK + w.p.n - 1) / w.p.n;
    return w;
}

static int64_t rows_of(const rows_work *w, int64_t chunk, int64_t *first) {
    *first = chunk * w->rows_per_chunk;
    int64_t left = w->rows - *first;
    return left < w->rows_per_chunk ? left : w->rows_per_chunk;
}

/* --- forward --- */

static void group_row(const rows_work *w, int64_t r) {
    const kn__norm_rows *p = &w->p;
    double moments[2];
    size_t at = (size_t)(r * p->n) * w->bytes;
    w->loops->norm_moments(moments, (const char *)p->x + at, 1, p->n, 0);
    double rstd = 1 / sqrt(moments[1] / (double)p->n + p->eps);
    number_set(p->mean, w->bytes, r, moments[0]);
    number_set(p->rstd, w->bytes, r, rstd);
    if (!p->y) return;
    for (int64_t c = 0; c < w->channels; c++) {
        int64_t channel = r % w->groups * w->channels + c;
        size_t run = at + (size_t)(c * w->inner) * w->bytes;
        double scale = p->w ? rstd * number_at(p->w, w->bytes, channel) : rstd;
        double shift = p->b ? number_at(p->b, w->bytes, channel) : 0;
        w->loops->norm_scale((char *)p->y + run, (const char *)p->x + run, 1, w->inner, 0,
                             moments[0], scale, shift);
    }
}

static void forward_chunk(void *ctx, int64_t chunk) {
    const rows_work *w = ctx;
    int64_t first, rows = rows_of(w, chunk, &first);
    if (w->inner == 1 && w->groups == 1) {
        w->loops->norm_rows(&w->p, first, rows);
        return;
    }
    for (int64_t r = first; r < first + rows; r++) group_row(w, r);
}

kn_status kn__host_rownorm(kn_op_call *call) {
    if (kn__is_half(call->dtype)) return kn__widened(call, kn__host_rownorm);
    rows_work w = work_of(call, call->in[0]);
    bool centred = call->op != KN_OP_rmsnorm;
    w.p.centred = centred;
    w.p.y = data_of(call->out[0]);
    w.p.mean = centred ? data_of(call->out[1]) : NULL;
    w.p.rstd = data_of(call->out[centred ? 2 : 1]);
    w.p.w = data_of(call->in[1]);
    w.p.b = centred ? data_of(call->in[2]) : NULL;
    kn__parallel_for(call->threads, kn__chunks(w.rows, w.rows_per_chunk), forward_chunk, &w);
    return KN_OK;
}

/* --- back --- */

/* Runs of channel c of row r: Σ g and Σ g·x̂ become parts of the weights' gradients. */
static void group_back_row(const rows_work *w, int64_t r) {
    const kn__norm_rows *p = &w->p;
    size_t at = (size_t)(r * p->n) * w->bytes;
    double mean = number_at(p->mean, w->bytes, r), rstd = number_at(p->rstd, w->bytes, r);
    double sum = 0, dot = 0;
    for (int64_t c = 0; c < w->channels; c++) {
        int64_t channel = r % w->groups * w->channels + c;
        size_t run = at + (size_t)(c * w->inner) * w->bytes;
        double sums[2], weight = p->w ? number_at(p->w, w->bytes, channel) : 1;
        w->loops->norm_back_sums(sums, (const char *)p->g + run, (const char *)p->x + run, 1,
                                 w->inner, 0, mean);
        number_set(w->db, w->bytes, r * w->channels + c, sums[0]);
        number_set(w->dw, w->bytes, r * w->channels + c, sums[1] * rstd);
        sum += weight * sums[0];
        dot += weight * sums[1];
    }
    if (!p->y) return;
    for (int64_t c = 0; c < w->channels; c++) {
        int64_t channel = r % w->groups * w->channels + c;
        size_t run = at + (size_t)(c * w->inner) * w->bytes;
        double weight = p->w ? number_at(p->w, w->bytes, channel) : 1;
        double terms[4] = {weight * rstd, rstd * sum / (double)p->n,
                           rstd * rstd * rstd * dot / (double)p->n, mean};
        w->loops->norm_back_scale((char *)p->y + run, (const char *)p->g + run,
                                  (const char *)p->x + run, 1, w->inner, 0, terms);
    }
}

static void back_chunk(void *ctx, int64_t chunk) {
    const rows_work *w = ctx;
    int64_t first, rows = rows_of(w, chunk, &first);
    if (w->inner != 1 || w->groups != 1) {
        for (int64_t r = first; r < first + rows; r++) group_back_row(w, r);
        return;
    }
    size_t part = (size_t)w->p.n * w->bytes;
    char *dw = w->dw ? w->dw + (size_t)chunk * part : NULL;
    char *db = w->db ? w->db + (size_t)chunk * part : NULL;
    if (dw) memset(dw, 0, part);
    if (db) memset(db, 0, part);
    w->loops->norm_back_rows(&w->p, dw, db, first, rows);
}

/* Work space for `n_parts` parts of a gradient that is wanted. */
static kn_status parts_make(char **out, kn_op_call *call, const kn_tensor *d, int64_t n_parts) {
    void *data = NULL;
    if (d) {
        size_t bytes = (size_t)(n_parts * d->n) * kn_dtype_bytes(d->dtype);
        KN_TRY(kn__work(&data, call, bytes ? bytes : 1));
    }
    *out = data;
    return KN_OK;
}

static void join_parts(const rows_work *w, kn_tensor *d, const char *parts, int64_t n_parts) {
    if (!d) return;
    if (n_parts)
        w->loops->sum_parts(d->data, parts, n_parts, d->n, d->n, false);
    else
        memset(d->data, 0, (size_t)d->n * w->bytes);
}

kn_status kn__host_rownorm_back(kn_op_call *call) {
    if (kn__is_half(call->dtype)) return kn__widened(call, kn__host_rownorm_back);
    rows_work w = work_of(call, call->in[1]);
    kn_tensor *const *d = call->out;
    w.p.g = call->in[0]->data;
    w.p.w = data_of(call->in[2]);
    w.p.mean = data_of(call->in[3]);
    w.p.rstd = call->in[4]->data;
    w.p.y = data_of(d[0]);
    w.p.centred = w.p.mean != NULL;
    bool plain = w.inner == 1 && w.groups == 1;
    if (plain && (d[1] || d[2])) {
        int64_t least = (w.rows + PARTS_MAX - 1) / PARTS_MAX;
        if (w.rows_per_chunk < least) w.rows_per_chunk = least;
    }
    int64_t n_chunks = kn__chunks(w.rows, w.rows_per_chunk);
    int64_t n_parts = plain ? n_chunks : w.rows / w.groups;
    KN_TRY(parts_make(&w.dw, call, d[1], n_parts));
    KN_TRY(parts_make(&w.db, call, d[2], n_parts));
    kn__parallel_for(call->threads, n_chunks, back_chunk, &w);
    join_parts(&w, d[1], w.dw, n_parts);
    join_parts(&w, d[2], w.db, n_parts);
    return KN_OK;
}
