/* Attention on the host, by blocks of queries and keys: a block of scores is made, turned into
 * weights, multiplied and forgotten (Dao et al. 2022). Keys and values of a head are packed once
 * for many blocks. Forward, a piece of work is some queries of a head; back, all heads that share
 * keys, so that each gradient is added up in one order. */
#include <math.h>
#include <string.h>

#include "attention.h"
#include "host/base/chunks.h"
#include "host/base/slots.h"
#include "host/product/panels.h"

/* Fewer queries are multiplied in place, where packing keys and values takes longer than the
 * products. With 1024 keys of 64 (Zen 5, AVX-512), the time over that of packing: 1 query 0.4, 2
 * 0.7, 3 0.95, 4 1.1. */
enum { FEW = 4 };
enum { KEYS = 256, QUERIES = 48, QUERIES_PIECE = 5 * QUERIES }; /* 48: whole tiles, but for v4 */

typedef struct job {
    const kn_op_call *call;
    const kn_attr_attention *attr;
    const kn__loop_table *loops;
    size_t bytes;
    int64_t heads, groups, queries, keys, d, e;
    int64_t n_pieces; /* forward: of a head's queries */
    const char *q, *k, *v, *mask;
    int64_t mask_stride[4];
    int64_t panels_k, panels_v, panels_k_rows; /* elements of work space, each */
    kn__slots slots;
    char *stats; /* back reads them */
    /* forward */
    char *y;
    /* back */
    const char *g, *result;
    char *dq, *dk, *dv, *dmask;
    const int64_t *state; /* of dropout; NULL: none */
} job;

static char *el(const job *j, const void *base, int64_t element) {
    return (char *)(uintptr_t)base + (size_t)element * j->bytes;
}

static int64_t at_most(int64_t a, int64_t b) { return a < b ? a : b; }

static void job_make(job *j, kn_op_call *call, const kn_tensor *state) {
    const kn_tensor *q = call->in[0], *k = call->in[1], *v = call->in[2], *mask = call->in[3];
    *j = (job){.call = call,
               .attr = call->attr,
               .loops = kn__loops((kn_dtype)q->dtype),
               .bytes = kn_dtype_bytes((kn_dtype)q->dtype),
               .heads = q->dim[1],
               .groups = k->dim[1],
               .queries = q->dim[2],
               .keys = k->dim[2],
               .d = q->dim[3],
               .e = v->dim[3],
               .q = q->data,
               .k = k->data,
               .v = v->data,
               .mask = mask == KN_NONE ? NULL : mask->data,
               .state = state == KN_NONE ? NULL : state->data};
    if (j->mask) kn__mask_strides(j->mask_stride, mask);
}

/* Products of [m,k] by packed rows first … of b. */
static void multiply(const job *j, char *c, int64_t ldc, const char *a, int64_t stride,
                     int64_t stride_k, int64_t m, int64_t k, int64_t n, kn__panels b, int64_t first,
                     char *pack) {
    kn__panel_job p = {c, ldc, a, stride, stride_k, m, k, n, first};
    if (m && n && k) kn__panel_product(j->loops, j->bytes, &p, b, pack);
}

/* The transpose of rows [n,width], packed: [width,n]; and the rows themselves, [n,width]. Blocks of
 * KEYS rows each, so that products may start at any of them. */
static kn__panels pack_columns(const job *j, char *to, const char *rows, int64_t n, int64_t width) {
    if (n && width) j->loops->gemm_pack(to, rows, width, 1, n, width, j->loops->tile_columns, true);
    return (kn__panels){to, width};
}
static kn__panels pack_rows(const job *j, char *to, const char *rows, int64_t n, int64_t width) {
    if (n && width) j->loops->gemm_pack(to, rows, 1, width, width, n, j->loops->tile_columns, true);
    return (kn__panels){to, n};
}

/* Panels of the keys from `first` on, which is a multiple of KEYS, hence of tile_columns. */
static kn__panels from_key(const job *j, kn__panels p, int64_t first) {
    p.data = el(j, p.data, first * p.depth);
    return p;
}

/* to [m,n], KEYS apart: rows of x times n of `keys` from `key` on, packed by pack_columns unless
 * few queries read them. */
static void multiply_keys(const job *j, char *to, const char *x, const char *keys,
                          const char *packed, int64_t width, int64_t m, int64_t key, int64_t n,
                          char *pack) {
    kn__panels p = {packed, width};
    memset(to, 0, (size_t)(m * KEYS) * j->bytes);
    if (j->queries >= FEW)
        multiply(j, to, KEYS, x, width, 1, m, width, n, from_key(j, p, key), 0, pack);
    for (int64_t i = 0; i < m && j->queries < FEW; i++)
        j->loops->gemv_rows(el(j, to, i * KEYS), 1, el(j, keys, key * width), width,
                            el(j, x, i * width), n, width);
}

/* y [m,width] += weights [m,n], KEYS apart, times those keys, packed by pack_rows unless few
 * queries read them. */
static void add_keys(const job *j, char *y, const char *weights, const char *keys,
                     const char *packed, int64_t width, int64_t m, int64_t key, int64_t n,
                     char *pack) {
    kn__panels p = {packed, j->keys};
    if (j->queries >= FEW) multiply(j, y, width, weights, KEYS, 1, m, n, width, p, key, pack);
    for (int64_t i = 0; i < m && j->queries < FEW; i++)
        j->loops->gemv_columns(el(j, y, i * width), el(j, keys, key * width), width,
                               el(j, weights, i * KEYS), 1, n, width);
}

/* Scores of queries first … against keys from `key` on: what the loops need to know. */
static kn__attention_rows rows_of(const job *j, int64_t b, int64_t h, int64_t first, int64_t m,
                                  int64_t key, int64_t n, char *scores) {
    const int64_t *stride = j->mask_stride;
    int64_t at = b * stride[0] + h * stride[1] + first * stride[2] + key * stride[3];
    return (kn__attention_rows){.rows = m,
                                .n = n,
                                .stride = KEYS,
                                .scores = scores,
                                .scale = j->attr->scale,
                                .mask = j->mask ? el(j, j->mask, at) : NULL,
                                .mask_row = stride[2],
                                .mask_column = stride[3],
                                .seen = j->attr->causal ? first + j->attr->offset + 1 - key : n,
                                .step = j->attr->causal};
}

/* How many keys the last of m queries sees. */
static int64_t keys_seen(const job *j, int64_t first, int64_t m) {
    if (!j->attr->causal) return j->keys;
    int64_t n = first + m + j->attr->offset;
    return n < 0 ? 0 : at_most(n, j->keys);
}

/* Drops weights of `rows` rows from row `row` of all on, keys from `key` on, which is a multiple of
 * KEYS; x [rows,n], KEYS apart. */
static void drop(const job *j, char *x, int64_t row, int64_t rows, int64_t key, int64_t n) {
    int64_t width = kn__dropout_row(j->keys);
    for (int64_t i = 0; j->state && i < rows; i++) {
        char *at = el(j, x, i * KEYS);
        j->loops->dropout(at, at, (row + i) * width + key, n, j->state, j->attr->dropout);
    }
}

/* --- forward --- */

typedef struct space { /* of one piece of work */
    char *k, *v, *k_rows, *scores, *dp, *pack, *small, *dq;
} space;

static void fill_with(const job *j, char *x, int64_t n, double value) {
    for (int64_t i = 0; i < n; i++) {
        if (j->bytes == sizeof(double))
            ((double *)(void *)x)[i] = value;
        else
            ((float *)(void *)x)[i] = (float)value;
    }
}

static void forward_block(const job *j, const space *s, int64_t b, int64_t h, int64_t first,
                          int64_t m) {
    int64_t row = (b * j->heads + h) * j->queries + first, seen = keys_seen(j, first, m);
    int64_t rows = (b * j->groups + h / (j->heads / j->groups)) * j->keys;
    const char *q = el(j, j->q, row * j->d), *k = el(j, j->k, rows * j->d);
    const char *v = el(j, j->v, rows * j->e);
    char *most = s->small, *sum = el(j, most, QUERIES), *factor = el(j, sum, QUERIES);
    char *y = el(j, j->y, row * j->e);
    fill_with(j, most, QUERIES, -INFINITY);
    memset(sum, 0, QUERIES * j->bytes);
    memset(y, 0, (size_t)(m * j->e) * j->bytes);
    for (int64_t key = 0; key < seen; key += KEYS) {
        int64_t n = at_most(KEYS, j->keys - key);
        kn__attention_rows r = rows_of(j, b, h, first, m, key, n, s->scores);
        r.most = most, r.sum = sum, r.factor = factor;
        multiply_keys(j, s->scores, q, k, s->k, j->d, m, key, n, s->pack);
        j->loops->attention_scores(&r);
        drop(j, s->scores, row, m, key, n);
        j->loops->attention_shrink(y, j->e, factor, m, j->e);
        add_keys(j, y, s->scores, v, s->v, j->e, m, key, n, s->pack);
    }
    j->loops->attention_finish(y, j->stats ? el(j, j->stats, 2 * row) : NULL, most, sum, m, j->e);
}

static space space_of(const job *j, char *slot) {
    space s = {.k = slot};
    s.v = el(j, s.k, j->panels_k), s.scores = el(j, s.v, j->panels_v);
    s.pack = el(j, s.scores, QUERIES * KEYS);
    s.small = el(j, s.pack, KEYS * KN_PANEL_DEPTH);
    s.k_rows = el(j, s.small, 4 * QUERIES), s.dp = el(j, s.k_rows, j->panels_k_rows);
    s.dq = el(j, s.dp, QUERIES * KEYS);
    return s;
}

static void forward_piece(void *ctx, int64_t i) {
    job *j = ctx;
    int64_t head = i / j->n_pieces, piece = i % j->n_pieces;
    int64_t b = head / j->heads, h = head % j->heads, group = h / (j->heads / j->groups);
    int64_t end = at_most((piece + 1) * QUERIES_PIECE, j->queries), rows = b * j->groups + group;
    void *slot = kn__slot_take(&j->slots);
    space s = space_of(j, slot);
    if (j->queries >= FEW) {
        pack_columns(j, s.k, el(j, j->k, rows * j->keys * j->d), j->keys, j->d);
        pack_rows(j, s.v, el(j, j->v, rows * j->keys * j->e), j->keys, j->e);
    }
    for (int64_t first = piece * QUERIES_PIECE; first < end; first += QUERIES)
        forward_block(j, &s, b, h, first, at_most(QUERIES, end - first));
    kn__slot_give(&j->slots, slot);
}

/* q, k, v, mask|NONE, state|NONE → y, stats */
kn_status kn__host_attention(kn_op_call *call) {
    if (kn__is_half(call->dtype)) return kn__widened(call, kn__host_attention);
    job j;
    job_make(&j, call, call->in[4]);
    const kn_tensor *q = call->in[0], *y = call->out[0], *stats = call->out[1];
    j.y = y ? y->data : NULL, j.stats = stats ? stats->data : NULL;
    if (q->dim[0] * j.heads * j.queries == 0) return KN_OK;
    j.n_pieces = kn__chunks(j.queries, QUERIES_PIECE);
    if (j.queries >= FEW) {
        j.panels_k = kn__panel_columns(j.loops, j.keys) * j.d;
        j.panels_v = kn__panel_columns(j.loops, j.e) * j.keys;
    }
    int64_t n = q->dim[0] * j.heads * j.n_pieces;
    size_t all =
        (size_t)(j.panels_k + j.panels_v + QUERIES * KEYS + KEYS * KN_PANEL_DEPTH + 4 * QUERIES);
    KN_TRY(kn__slots_create(&j.slots, call, n, all * j.bytes));
    kn__parallel_for(j.slots.n, n, forward_piece, &j);
    return KN_OK;
}

/* --- back --- */

/* Adds a block of queries to the gradients. */
static void back_block(const job *j, const space *s, int64_t b, int64_t h, int64_t first,
                       int64_t m) {
    int64_t head = b * j->heads + h, row = head * j->queries + first;
    int64_t rows = b * j->groups + h / (j->heads / j->groups), seen = keys_seen(j, first, m);
    const char *q = el(j, j->q, row * j->d), *g = el(j, j->g, row * j->e);
    const char *k = el(j, j->k, rows * j->keys * j->d), *v = el(j, j->v, rows * j->keys * j->e);
    char *dq = el(j, s->dq, 0), *delta = s->small;
    kn__panels q_rows = {el(j, dq, QUERIES * j->d), m};
    kn__panels g_rows = {el(j, q_rows.data, QUERIES * kn__panel_columns(j->loops, j->d)), m};
    pack_rows(j, (char *)(uintptr_t)q_rows.data, q, m, j->d);
    pack_rows(j, (char *)(uintptr_t)g_rows.data, g, m, j->e);
    j->loops->attention_delta(delta, el(j, j->result, row * j->e), g, m, j->e);
    memset(dq, 0, (size_t)(m * j->d) * j->bytes);
    if (j->dmask) memset(el(j, j->dmask, row * j->keys), 0, (size_t)(m * j->keys) * j->bytes);
    for (int64_t key = 0; key < seen; key += KEYS) {
        int64_t n = at_most(KEYS, j->keys - key), at = rows * j->keys + key;
        kn__attention_rows r = rows_of(j, b, h, first, m, key, n, s->scores);
        r.dp = s->dp, r.stats = el(j, j->stats, 2 * row), r.delta = delta;
        r.dmask = j->dmask ? el(j, j->dmask, row * j->keys + key) : NULL, r.dmask_row = j->keys;
        multiply_keys(j, s->scores, q, k, s->k, j->d, m, key, n, s->pack);
        multiply_keys(j, s->dp, g, v, s->v, j->e, m, key, n, s->pack);
        drop(j, s->dp, row, m, key, n);
        j->loops->attention_scores_back(&r);
        drop(j, s->scores, row, m, key, n);
        if (j->dv)
            multiply(j, el(j, j->dv, at * j->e), j->e, s->scores, 1, KEYS, n, m, j->e, g_rows, 0,
                     s->pack);
        if (j->dk)
            multiply(j, el(j, j->dk, at * j->d), j->d, s->dp, 1, KEYS, n, m, j->d, q_rows, 0,
                     s->pack);
        add_keys(j, dq, s->dp, k, s->k_rows, j->d, m, key, n, s->pack);
    }
    if (j->dq) memcpy(el(j, j->dq, row * j->d), dq, (size_t)(m * j->d) * j->bytes);
}

static void back_piece(void *ctx, int64_t i) {
    job *j = ctx;
    int64_t b = i / j->groups, group = i % j->groups, each = j->heads / j->groups;
    void *slot = kn__slot_take(&j->slots);
    space s = space_of(j, slot);
    const char *k = el(j, j->k, i * j->keys * j->d), *v = el(j, j->v, i * j->keys * j->e);
    if (j->queries >= FEW) {
        pack_columns(j, s.k, k, j->keys, j->d);
        pack_columns(j, s.v, v, j->keys, j->e);
        pack_rows(j, s.k_rows, k, j->keys, j->d);
    }
    size_t keys = (size_t)j->keys * j->bytes;
    if (j->dk) memset(el(j, j->dk, i * j->keys * j->d), 0, keys * (size_t)j->d);
    if (j->dv) memset(el(j, j->dv, i * j->keys * j->e), 0, keys * (size_t)j->e);
    for (int64_t h = group * each; h < (group + 1) * each; h++)
        for (int64_t first = 0; first < j->queries; first += QUERIES)
            back_block(j, &s, b, h, first, at_most(QUERIES, j->queries - first));
    kn__slot_give(&j->slots, slot);
}

static char *out_of(const kn_op_call *call, int r) {
    return call->out[r] ? call->out[r]->data : NULL;
}

/* q, k, v, mask|NONE, y, stats, g, state|NONE → dq, dk, dv, dmask */
kn_status kn__host_attention_back(kn_op_call *call) {
    if (kn__is_half(call->dtype)) return kn__widened(call, kn__host_attention_back);
    job j;
    job_make(&j, call, call->in[7]);
    j.result = call->in[4]->data, j.stats = call->in[5]->data, j.g = call->in[6]->data;
    j.dq = out_of(call, 0), j.dk = out_of(call, 1), j.dv = out_of(call, 2);
    j.dmask = out_of(call, 3);
    int64_t n = call->in[1]->dim[0] * j.groups, wide = kn__panel_columns(j.loops, j.d);
    if (n == 0) return KN_OK;
    if (j.queries >= FEW) {
        j.panels_k = kn__panel_columns(j.loops, j.keys) * j.d;
        j.panels_v = kn__panel_columns(j.loops, j.keys) * j.e;
        j.panels_k_rows = wide * j.keys;
    }
    size_t all = (size_t)(j.panels_k + j.panels_v + j.panels_k_rows + 2 * QUERIES * KEYS +
                          KEYS * KN_PANEL_DEPTH + 4 * QUERIES +
                          QUERIES * (j.d + wide + kn__panel_columns(j.loops, j.e)));
    KN_TRY(kn__slots_create(&j.slots, call, n, all * j.bytes));
    kn__parallel_for(j.slots.n, n, back_piece, &j);
    return KN_OK;
}
