/* Recurrent networks on the host, back: chunks of sequences run from the last step to the first
 * and leave the gradients of the gates; one product each then gives those of x, W and R. */
#include <string.h>

#include "host/base/chunks.h"
#include "host/base/slots.h"
#include "host/recurrent/recurrent.h"

typedef struct back {
    kn_rnn_job job;
    char *index;
    char *dgates, *dcandidate; /* [D,N,G·H], rows `stride` apart, GRU: [D,N,H] */
    int64_t stride;
    char *before; /* [D,N,H]: h before each step */
    char *panels; /* [D] packed R */
    int64_t panels_size;
    char *dh, *dc, *c_before, *pack; /* of the chunks: [D,B,…] */
    char *sums;                      /* [D,chunks,sums_size] */
    int64_t sums_size;
    char *dy[2];             /* [N,D·H]: of this layer and of the one below */
    char *dx;                /* packed */
    const char *g;           /* dy of the layer; NULL: zeros */
    const char *dh_n, *dc_n; /* or NULL */
    char *dw;                /* or NULL */
    char *dh0, *dc0;         /* or NULL */
} back;

static void take_space(back *b, kn_rnn_space *space) {
    kn_rnn_job *job = &b->job;
    const kn_attr_rnn *attr = job->attr;
    int64_t states = job->directions * job->batch, h = job->hidden;
    int64_t rows = job->directions * job->n_rows, all = job->n_rows * job->width;
    bool is_gru = attr->mode == KN_RNN_GRU, packs = attr->n_lengths != 0;
    b->index = kn__rnn_take(space, job, 2 * (2 * (job->steps + 1) + job->batch));
    /* Rows a power of two apart would meet in the same lines of a cache. */
    b->stride = job->gate_rows + (job->gate_rows % 128 ? 0 : 16);
    b->dgates = kn__rnn_take(space, job, rows * b->stride);
    b->dcandidate = kn__rnn_take(space, job, is_gru ? rows * h : 0);
    b->before = kn__rnn_take(space, job, rows * h);
    b->panels_size = kn__panel_columns(job->loops, h) * job->gate_rows;
    b->panels = kn__rnn_take(space, job, job->directions * b->panels_size);
    b->dh = kn__rnn_take(space, job, states * h);
    b->dc = kn__rnn_take(space, job, states * h);
    b->c_before = kn__rnn_take(space, job, states * h);
    b->pack = kn__rnn_take(space, job, states * KN_PANEL_DEPTH);
    b->sums_size = job->gate_rows + (is_gru ? h : 0);
    b->sums = kn__rnn_take(space, job, job->directions * job->n_chunks * b->sums_size);
    for (int i = 0; i < 2; i++)
        b->dy[i] = kn__rnn_take(space, job, packs || job->layers > 1 ? all : 0);
    b->dx = kn__rnn_take(space, job, packs ? job->n_rows * attr->input : 0);
    job->x = kn__rnn_take(space, job, packs ? job->n_rows * attr->input : 0);
    job->dropped = kn__rnn_take(space, job, attr->dropout > 0 ? all : 0);
    for (int i = 0; i < 2; i++)
        job->window[i] = kn__rnn_take(space, job, attr->dropout > 0 ? job->width + 32 : 0);
}

/* --- a chunk of sequences from the last step to the first --- */

typedef struct chunk {
    int64_t direction, first, rows, state; /* state: its row of [L·D,B] */
    const char *gates, *extra, *y, *panels;
    char *dgates, *dcandidate, *before, *dh, *dc, *c_before, *pack, *sums;
} chunk;

/* How many of the first m rows have a step before t: the others begin with it. */
static int64_t continued(const kn_rnn_job *job, const chunk *k, int64_t t, int64_t m) {
    if (k->direction == 0) return t > 0 ? m : 0;
    int64_t n = t + 1 < job->steps ? kn__rnn_running(job, t + 1, k->first, m) : 0;
    return n > 0 ? n : 0;
}

/* Rows of the state before step t: of the step before it, else of the first states. */
static void gather_before(const kn_rnn_job *job, const chunk *k, int64_t t, int64_t m, char *to,
                          const char *steps, int64_t stride, const char *first) {
    size_t bytes = (size_t)job->hidden * job->bytes;
    int64_t n = continued(job, k, t, m), row = k->first;
    if (n > 0) row += job->at[k->direction ? t + 1 : t - 1];
    for (int64_t i = 0; i < n; i++)
        memcpy(to + (size_t)i * bytes, kn__rnn_el(job, steps, (row + i) * stride), bytes);
    memcpy(to + (size_t)n * bytes, kn__rnn_el(job, first, (k->state + n) * job->hidden),
           (size_t)(m - n) * bytes);
}

/* dh += what flows through R */
static void chunk_products(const back *b, const chunk *k, const char *dgates,
                           const char *dcandidate, int64_t m) {
    const kn_rnn_job *job = &b->job;
    int64_t h = job->hidden, rows = job->gate_rows;
    bool is_gru = job->attr->mode == KN_RNN_GRU;
    kn_panels r = {k->panels, rows};
    kn__rnn_product(job, k->dh, h, dgates, b->stride, m, r, 0, is_gru ? 2 * h : rows, h, k->pack);
    if (is_gru) kn__rnn_product(job, k->dh, h, dcandidate, h, m, r, 2 * h, h, h, k->pack);
}

static void chunk_step(const back *b, const chunk *k, int64_t t, int64_t m) {
    const kn_rnn_job *job = &b->job;
    int64_t h = job->hidden, row = job->at[t] + k->first, column = k->direction * h;
    bool is_lstm = job->attr->mode == KN_RNN_LSTM;
    char *before = kn__rnn_el(job, k->before, row * h), *extra = kn__rnn_el(job, k->extra, row * h);
    char *dgates = kn__rnn_el(job, k->dgates, row * b->stride);
    char *dcandidate = kn__rnn_el(job, k->dcandidate, row * h);
    gather_before(job, k, t, m, before, kn__rnn_el(job, k->y, column), job->width, job->h_first);
    if (is_lstm) gather_before(job, k, t, m, k->c_before, k->extra, h, job->c_first);
    kn_rnn_step step = {.mode = (int)job->attr->mode,
                        .rows = m,
                        .hidden = h,
                        .gates = kn__rnn_el(job, k->gates, row * job->gate_rows),
                        .candidate = extra,
                        .h = before,
                        .c = k->c_before,
                        .y = kn__rnn_el(job, k->y, row * job->width + column),
                        .y_stride = job->width,
                        .cells = extra,
                        .dy = b->g ? kn__rnn_el(job, b->g, row * job->width + column) : NULL,
                        .dy_stride = job->width,
                        .dh = k->dh,
                        .dc = k->dc,
                        .dgates = dgates,
                        .dgates_stride = b->stride,
                        .dcandidate = dcandidate,
                        .sums = k->sums};
    job->loops->rnn_step_back(&step);
    chunk_products(b, k, dgates, dcandidate, m);
}

/* Rows of [L·D,B,H] of this layer and direction, in the order of the chunks; NULL: zeros. */
static void rows_in(const kn_rnn_job *job, const chunk *k, char *to, const char *from) {
    size_t bytes = (size_t)job->hidden * job->bytes;
    if (!from) {
        memset(to, 0, (size_t)k->rows * bytes);
        return;
    }
    for (int64_t i = 0; i < k->rows; i++) {
        int64_t place = k->first + i, row = k->state - k->first;
        row += job->order ? job->order[place] : place;
        memcpy(to + (size_t)i * bytes, from + (size_t)row * bytes, bytes);
    }
}

static void rows_out(const kn_rnn_job *job, const chunk *k, char *to, const char *from) {
    size_t bytes = (size_t)job->hidden * job->bytes;
    for (int64_t i = 0; to && i < k->rows; i++) {
        int64_t place = k->first + i, row = k->state - k->first;
        row += job->order ? job->order[place] : place;
        memcpy(to + (size_t)row * bytes, from + (size_t)i * bytes, bytes);
    }
}

static chunk chunk_of(const back *b, int64_t i) {
    const kn_rnn_job *job = &b->job;
    int64_t d = i / job->n_chunks, place = i % job->n_chunks, h = job->hidden;
    int64_t first = kn__part(job->batch, job->n_chunks, place), row = d * job->batch + first;
    return (chunk){
        .direction = d,
        .first = first,
        .rows = kn__part(job->batch, job->n_chunks, place + 1) - first,
        .state = (job->layer * job->directions + d) * job->batch + first,
        .gates = kn__rnn_gates_at(job, job->layer, d),
        .extra = kn__rnn_extra_at(job, job->layer, d),
        .y = kn__rnn_y_at(job, job->layer),
        .panels = kn__rnn_el(job, b->panels, d * b->panels_size),
        .dgates = kn__rnn_el(job, b->dgates, d * job->n_rows * b->stride),
        .dcandidate = kn__rnn_el(job, b->dcandidate, d * job->n_rows * h),
        .before = kn__rnn_el(job, b->before, d * job->n_rows * h),
        .dh = kn__rnn_el(job, b->dh, row * h),
        .dc = kn__rnn_el(job, b->dc, row * h),
        .c_before = kn__rnn_el(job, b->c_before, row * h),
        .pack = kn__rnn_el(job, b->pack, row * KN_PANEL_DEPTH),
        .sums = kn__rnn_el(job, b->sums, i * b->sums_size),
    };
}

static void chunk_run(void *ctx, int64_t i) {
    const back *b = ctx;
    const kn_rnn_job *job = &b->job;
    chunk k = chunk_of(b, i);
    rows_in(job, &k, k.dh, b->dh_n);
    rows_in(job, &k, k.dc, b->dc_n);
    memset(k.sums, 0, (size_t)b->sums_size * job->bytes);
    for (int64_t s = 0; s < job->steps; s++) {
        int64_t t = k.direction ? s : job->steps - 1 - s;
        int64_t m = kn__rnn_running(job, t, k.first, k.rows);
        if (m > 0) chunk_step(b, &k, t, m);
    }
    rows_out(job, &k, b->dh0, k.dh);
    rows_out(job, &k, b->dc0, k.dc);
}

/* --- the products of a layer --- */

static kn_status multiply(const kn_rnn_job *job, kn_gemm gemm) {
    gemm.dtype = job->dtype;
    if (gemm.m == 0 || gemm.n == 0) return KN_OK;
    kn_status status = kn__gemm_parallel(job->call, &gemm, NULL);
    kn__work_end(job->call, 1);
    return status;
}

/* dx [N,I] = Σ dgates·W over the directions */
static kn_status layer_dx(const back *b, char *dx) {
    const kn_rnn_job *job = &b->job;
    int64_t inputs = kn__rnn_inputs(job->attr, job->layer), rows = job->gate_rows;
    for (int64_t d = 0; d < job->directions; d++) {
        const char *dgates = kn__rnn_el(job, b->dgates, d * job->n_rows * b->stride);
        if (job->layer == 0 && job->attr->skip) {
            job->loops->rnn_skip_back(dx, dgates, b->stride, d > 0, job->n_rows, job->n_gates,
                                      job->hidden);
            continue;
        }
        KN_TRY(multiply(
            job, (kn_gemm){.m = job->n_rows,
                           .n = inputs,
                           .k = rows,
                           .accumulate = d > 0,
                           .a = dgates,
                           .lda = b->stride,
                           .b = kn__rnn_part(job, job->w, job->layer, d, KN_RNN_INPUT_WEIGHT),
                           .ldb = inputs,
                           .c = dx,
                           .ldc = inputs}));
    }
    return KN_OK;
}

/* Long sums, cut along the rows by the shape alone: each part is one call of the library. */
typedef struct long_sum {
    const kn_gemm *gemm;
    char *partial; /* [ways,m,n] */
    size_t bytes;
    int64_t ways;
    kn_slots slots;
    _Atomic int status;
} long_sum;

enum { SUM_ROWS = 1024, WAYS_MOST = 8 };

static void sum_part(void *ctx, int64_t i) {
    long_sum *sum = ctx;
    kn_gemm g = *sum->gemm;
    int64_t first = kn__part(g.k, sum->ways, i);
    g.k = kn__part(g.k, sum->ways, i + 1) - first;
    g.a = (const char *)g.a + (size_t)(first * g.lda) * sum->bytes;
    g.b = (const char *)g.b + (size_t)(first * g.ldb) * sum->bytes;
    g.c = sum->partial + (size_t)(i * g.m * g.n) * sum->bytes;
    void *slot = kn__slot_take(&sum->slots);
    int status = kn__gemm_run(&g, slot);
    kn__slot_give(&sum->slots, slot);
    if (status) atomic_store_explicit(&sum->status, status, memory_order_relaxed);
}

/* to [m,n] = aᵀ·x, a [N,m] within rows lda apart */
static kn_status weights(const kn_rnn_job *job, char *to, const char *a, int64_t lda, int64_t m,
                         const char *x, int64_t n) {
    kn_gemm gemm = {.dtype = job->dtype,
                    .trans_a = true,
                    .m = m,
                    .n = n,
                    .k = job->n_rows,
                    .a = a,
                    .lda = lda,
                    .b = x,
                    .ldb = n,
                    .c = to,
                    .ldc = n};
    int64_t ways = job->n_rows / SUM_ROWS;
    long_sum sum = {
        .gemm = &gemm, .bytes = job->bytes, .ways = ways < WAYS_MOST ? ways : WAYS_MOST};
    if (m == 0 || n == 0) return KN_OK;
    if (ways < 2) return multiply(job, gemm);
    void *partial = NULL;
    KN_TRY(kn__work(&partial, job->call, (size_t)(sum.ways * m * n) * job->bytes));
    sum.partial = partial;
    KN_TRY(kn__slots_create(&sum.slots, job->call, sum.ways, kn__gemm_bytes(&gemm)));
    kn__library_for(sum.slots.n, sum.ways, sum_part, &sum);
    job->loops->sum_parts(to, sum.partial, sum.ways, m * n, m * n, false);
    kn__work_end(job->call, 1);
    int status = atomic_load_explicit(&sum.status, memory_order_relaxed);
    return status ? kn__gemm_fail(status) : KN_OK;
}

static void layer_biases(const back *b, int64_t d) {
    const kn_rnn_job *job = &b->job;
    int64_t rows = job->gate_rows, h = job->hidden, n = job->n_chunks;
    const char *sums = kn__rnn_el(job, b->sums, d * n * b->sums_size);
    int64_t of_w = kn__rnn_part_at(job->attr, job->layer, d, KN_RNN_INPUT_BIAS);
    int64_t of_r = kn__rnn_part_at(job->attr, job->layer, d, KN_RNN_HIDDEN_BIAS);
    char *to = kn__rnn_el(job, b->dw, of_r);
    job->loops->sum_parts(kn__rnn_el(job, b->dw, of_w), sums, n, b->sums_size, rows, false);
    job->loops->sum_parts(to, sums, n, b->sums_size, rows, false);
    if (job->attr->mode == KN_RNN_GRU)
        job->loops->sum_parts(kn__rnn_el(job, to, 2 * h), kn__rnn_el(job, sums, rows), n,
                              b->sums_size, h, false);
}

static kn_status layer_dw(const back *b, const char *x) {
    const kn_rnn_job *job = &b->job;
    int64_t rows = job->gate_rows, h = job->hidden,
            columns = kn__rnn_columns(job->attr, job->layer);
    bool is_gru = job->attr->mode == KN_RNN_GRU;
    for (int64_t d = 0; d < job->directions; d++) {
        const char *dgates = kn__rnn_el(job, b->dgates, d * job->n_rows * b->stride);
        const char *dcandidate = kn__rnn_el(job, b->dcandidate, d * job->n_rows * h);
        const char *before = kn__rnn_el(job, b->before, d * job->n_rows * h);
        char *dr =
            kn__rnn_el(job, b->dw, kn__rnn_part_at(job->attr, job->layer, d, KN_RNN_HIDDEN_WEIGHT));
        char *dw =
            kn__rnn_el(job, b->dw, kn__rnn_part_at(job->attr, job->layer, d, KN_RNN_INPUT_WEIGHT));
        KN_TRY(weights(job, dw, dgates, b->stride, rows, x, columns));
        KN_TRY(weights(job, dr, dgates, b->stride, is_gru ? 2 * h : rows, before, h));
        if (is_gru) {
            char *last = kn__rnn_el(job, dr, 2 * h * h);
            KN_TRY(weights(job, last, dcandidate, h, h, before, h));
        }
        layer_biases(b, d);
    }
    return KN_OK;
}

/* Leaves dy of the layer below in b->g. */
static kn_status layer_run(back *b, int64_t layer) {
    kn_rnn_job *job = &b->job;
    kn_tensor *dx = job->call->out[0];
    job->layer = layer;
    for (int64_t d = 0; d < job->directions; d++)
        job->loops->gemm_pack(kn__rnn_el(job, b->panels, d * b->panels_size),
                              kn__rnn_part(job, job->w, layer, d, KN_RNN_HIDDEN_WEIGHT), 1,
                              job->hidden, job->hidden, job->gate_rows, job->loops->tile_columns,
                              true);
    kn__parallel_for(job->call->threads, job->directions * job->n_chunks, chunk_run, b);
    if (b->dw && (layer > 0 || job->x)) KN_TRY(layer_dw(b, kn__rnn_input(job, layer)));
    if (layer > 0) {
        char *to = b->g == b->dy[0] ? b->dy[1] : b->dy[0];
        KN_TRY(layer_dx(b, to));
        if (job->attr->dropout > 0) kn__rnn_drop(job, layer, to, to);
        b->g = to;
        return KN_OK;
    }
    if (!dx) return KN_OK;
    KN_TRY(layer_dx(b, job->order ? b->dx : dx->data));
    if (job->order) kn__rnn_unpack(job, dx->data, b->dx, job->attr->input);
    return KN_OK;
}

static kn_status space_make(back *b) {
    kn_rnn_job *job = &b->job;
    kn_rnn_space space = {NULL, 0};
    void *work = NULL;
    take_space(b, &space);
    KN_TRY(kn__work(&work, job->call, space.used));
    space = (kn_rnn_space){work, 0};
    take_space(b, &space);
    kn__rnn_sort(job, (int64_t *)(void *)b->index);
    return KN_OK;
}

static void *data_of(const kn_tensor *t) { return t && t != KN_NONE ? t->data : NULL; }

/* x|NONE, w, y, reserve, dy|NONE, dh_n|NONE, dc_n|NONE → dx, dw, dh0, dc0 */
kn_status kn__host_rnn_back(kn_op_call *call) {
    back b = {0};
    kn_rnn_job *job = &b.job;
    kn__rnn_job(job, call);
    job->keeps = true;
    KN_TRY(space_make(&b));
    kn__rnn_reserve_at(job, call->in[3]->data);
    job->rng = call->in[3]->data;
    job->y_last = data_of(call->in[2]);
    b.g = data_of(call->in[4]);
    b.dh_n = data_of(call->in[5]), b.dc_n = data_of(call->in[6]);
    b.dw = data_of(call->out[1]), b.dh0 = data_of(call->out[2]), b.dc0 = data_of(call->out[3]);
    if (job->order) {
        const char *x = data_of(call->in[0]);
        if (x) kn__rnn_pack(job, job->x, x, job->attr->input);
        if (b.g) kn__rnn_pack(job, b.dy[0], b.g, job->width);
        if (b.g) b.g = b.dy[0];
    } else {
        job->x = data_of(call->in[0]);
    }
    for (int64_t layer = job->layers - 1; layer >= 0; layer--) KN_TRY(layer_run(&b, layer));
    return KN_OK;
}
