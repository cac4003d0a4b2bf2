/* Recurrent networks on the host, back: in blocks of steps, from the last one to the first. Chunks
 * of sequences leave the gradients of a block's gates; one product each then gives those of x, and
 * adds to those of W and R. */
#include <string.h>

#include "host/base/chunks.h"
#include "host/recurrent/recurrent.h"

enum { BLOCK_ROWS = 1024 }; /* as long a sum as one call of the library takes well */

typedef struct back {
    kn__rnn_job job;
    char *index;
    int64_t begin, end;        /* of the block: how many steps from the last one */
    int64_t most;              /* rows of the largest block */
    char *dgates, *dcandidate; /* of the block: [D,rows,G·H], `stride` apart, GRU: [D,rows,H] */
    int64_t stride;
    char *before; /* of the block: [D,rows,H]: h before each step */
    char *panels; /* [D] packed R */
    int64_t panels_size;
    char *dh, *dc, *c_before, *pack; /* of the chunks: [D,B,…] */
    char *sums;                      /* [D,chunks,sums_size] */
    int64_t sums_size;
    char *dy[2]; /* [N,D·H]: of this layer and of the one below; one direction: in the same place */
    char *dx;    /* packed */
    bool has_x;  /* of layer 0, which may be empty */
    const char *x;           /* the layer's input */
    const char *g;           /* dy of the layer; NULL: zeros */
    const char *dh_n, *dc_n; /* or NULL */
    char *dw;                /* or NULL */
    char *dh0, *dc0;         /* or NULL */
} back;

static int64_t block_steps(const kn__rnn_job *job) {
    return job->batch < BLOCK_ROWS ? BLOCK_ROWS / (job->batch ? job->batch : 1) : 1;
}

static void take_space(back *b, kn__rnn_space *space) {
    kn__rnn_job *job = &b->job;
    const kn_attr_rnn *attr = job->attr;
    int64_t states = job->directions * job->batch, h = job->hidden;
    int64_t steps = block_steps(job), all = job->n_rows * job->width;
    b->most = job->batch * (steps < job->steps ? steps : job->steps);
    int64_t rows = job->directions * b->most;
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
    b->dy[0] = kn__rnn_take(space, job, packs || job->layers > 1 ? all : 0);
    b->dy[1] = kn__rnn_take(space, job, job->directions > 1 && job->layers > 1 ? all : 0);
    b->dx = kn__rnn_take(space, job, packs ? job->n_rows * attr->input : 0);
    job->x = kn__rnn_take(space, job, packs ? job->n_rows * attr->input : 0);
    job->dropped = kn__rnn_take(space, job, attr->dropout > 0 ? all : 0);
    for (int i = 0; i < 2; i++)
        job->window[i] = kn__rnn_take(space, job, attr->dropout > 0 ? job->width + 32 : 0);
}

/* Step s from the end, of a direction. */
static int64_t step_at(const kn__rnn_job *job, int64_t direction, int64_t s) {
    return direction ? s : job->steps - 1 - s;
}

/* A direction's rows in the block. */
typedef struct block {
    int64_t first, n;
} block;
static block block_of(const back *b, int64_t direction) {
    const kn__rnn_job *job = &b->job;
    int64_t t = direction ? b->begin : job->steps - b->end;
    return (block){job->at[t], job->at[t + b->end - b->begin] - job->at[t]};
}

/* --- a chunk of sequences through a block --- */

typedef struct chunk {
    int64_t direction, first, rows, state; /* state: its row of [L·D,B] */
    int64_t block;                         /* the block's first row */
    const char *gates, *extra, *y, *panels;
    char *dgates, *dcandidate, *before, *dh, *dc, *c_before, *pack, *sums;
} chunk;

/* How many of the first m rows have a step before t: the others begin with it. */
static int64_t continued(const kn__rnn_job *job, const chunk *k, int64_t t, int64_t m) {
    if (k->direction == 0) return t > 0 ? m : 0;
    int64_t n = t + 1 < job->steps ? kn__rnn_running(job, t + 1, k->first, m) : 0;
    return n > 0 ? n : 0;
}

/* Rows of the state before step t: of the step before it, else of the first states. */
static void gather_before(const kn__rnn_job *job, const chunk *k, int64_t t, int64_t m, char *to,
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
    const kn__rnn_job *job = &b->job;
    int64_t h = job->hidden, rows = job->gate_rows;
    bool is_gru = job->attr->mode == KN_RNN_GRU;
    kn__panels r = {k->panels, rows};
    kn__rnn_product(job, k->dh, h, dgates, b->stride, m, r, 0, is_gru ? 2 * h : rows, h, k->pack);
    if (is_gru) kn__rnn_product(job, k->dh, h, dcandidate, h, m, r, 2 * h, h, h, k->pack);
}

static void chunk_step(const back *b, const chunk *k, int64_t t, int64_t m) {
    const kn__rnn_job *job = &b->job;
    int64_t h = job->hidden, row = job->at[t] + k->first, column = k->direction * h;
    bool is_lstm = job->attr->mode == KN_RNN_LSTM;
    int64_t place = row - k->block;
    char *before = kn__rnn_el(job, k->before, place * h);
    char *extra = kn__rnn_el(job, k->extra, row * h);
    char *dgates = kn__rnn_el(job, k->dgates, place * b->stride);
    char *dcandidate = kn__rnn_el(job, k->dcandidate, place * h);
    gather_before(job, k, t, m, before, kn__rnn_el(job, k->y, column), job->width, job->h_first);
    if (is_lstm) gather_before(job, k, t, m, k->c_before, k->extra, h, job->c_first);
    kn__rnn_step step = {.mode = (int)job->attr->mode,
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
static void rows_in(const kn__rnn_job *job, const chunk *k, char *to, const char *from) {
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

static void rows_out(const kn__rnn_job *job, const chunk *k, char *to, const char *from) {
    size_t bytes = (size_t)job->hidden * job->bytes;
    for (int64_t i = 0; to && i < k->rows; i++) {
        int64_t place = k->first + i, row = k->state - k->first;
        row += job->order ? job->order[place] : place;
        memcpy(to + (size_t)row * bytes, from + (size_t)i * bytes, bytes);
    }
}

static chunk chunk_of(const back *b, int64_t i) {
    const kn__rnn_job *job = &b->job;
    int64_t d = i / job->n_chunks, place = i % job->n_chunks, h = job->hidden;
    int64_t first = kn__part(job->batch, job->n_chunks, place), row = d * job->batch + first;
    return (chunk){
        .direction = d,
        .first = first,
        .rows = kn__part(job->batch, job->n_chunks, place + 1) - first,
        .state = (job->layer * job->directions + d) * job->batch + first,
        .block = block_of(b, d).first,
        .gates = kn__rnn_gates_at(job, job->layer, d),
        .extra = kn__rnn_extra_at(job, job->layer, d),
        .y = kn__rnn_y_at(job, job->layer),
        .panels = kn__rnn_el(job, b->panels, d * b->panels_size),
        .dgates = kn__rnn_el(job, b->dgates, d * b->most * b->stride),
        .dcandidate = kn__rnn_el(job, b->dcandidate, d * b->most * h),
        .before = kn__rnn_el(job, b->before, d * b->most * h),
        .dh = kn__rnn_el(job, b->dh, row * h),
        .dc = kn__rnn_el(job, b->dc, row * h),
        .c_before = kn__rnn_el(job, b->c_before, row * h),
        .pack = kn__rnn_el(job, b->pack, row * KN_PANEL_DEPTH),
        .sums = kn__rnn_el(job, b->sums, i * b->sums_size),
    };
}

static void chunk_run(void *ctx, int64_t i) {
    const back *b = ctx;
    const kn__rnn_job *job = &b->job;
    chunk k = chunk_of(b, i);
    if (b->begin == 0) {
        rows_in(job, &k, k.dh, b->dh_n);
        rows_in(job, &k, k.dc, b->dc_n);
        memset(k.sums, 0, (size_t)b->sums_size * job->bytes);
    }
    for (int64_t s = b->begin; s < b->end; s++) {
        int64_t t = step_at(job, k.direction, s);
        int64_t m = kn__rnn_running(job, t, k.first, k.rows);
        if (m > 0) chunk_step(b, &k, t, m);
    }
    if (b->end < job->steps) return;
    rows_out(job, &k, b->dh0, k.dh);
    rows_out(job, &k, b->dc0, k.dc);
}

/* --- the products of a layer --- */

static kn_status multiply(const kn__rnn_job *job, kn__gemm gemm) {
    gemm.dtype = job->dtype;
    if (gemm.m == 0 || gemm.n == 0) return KN_OK;
    kn_status status = kn__gemm_parallel(job->call, &gemm, NULL);
    kn__work_end(job->call, 1);
    return status;
}

/* dx [N,I] = Σ dgates·W over the directions: the rows of the block, which are others in the other
 * direction. There dx begins with zeros. */
static kn_status block_dx(const back *b, char *dx) {
    const kn__rnn_job *job = &b->job;
    int64_t inputs = kn__rnn_inputs(job->attr, job->layer);
    for (int64_t d = 0; d < job->directions; d++) {
        const char *dgates = kn__rnn_el(job, b->dgates, d * b->most * b->stride);
        block rows = block_of(b, d);
        char *to = kn__rnn_el(job, dx, rows.first * inputs);
        bool adds = job->directions > 1;
        if (job->layer == 0 && job->attr->skip) {
            job->loops->rnn_skip_back(to, dgates, b->stride, adds, rows.n, job->n_gates,
                                      job->hidden);
            continue;
        }
        KN_TRY(multiply(
            job, (kn__gemm){.m = rows.n,
                            .n = inputs,
                            .k = job->gate_rows,
                            .accumulate = adds,
                            .a = dgates,
                            .lda = b->stride,
                            .b = kn__rnn_part(job, job->w, job->layer, d, KN_RNN_INPUT_WEIGHT),
                            .ldb = inputs,
                            .c = to,
                            .ldc = inputs}));
    }
    return KN_OK;
}

/* to [m,n] (+)= aᵀ·x, a [rows,m] within rows lda apart; the first block writes it */
static kn_status weights(const back *b, char *to, const char *a, int64_t lda, int64_t m,
                         const char *x, int64_t n, int64_t rows) {
    return multiply(&b->job, (kn__gemm){.trans_a = true,
                                        .m = m,
                                        .n = n,
                                        .k = rows,
                                        .accumulate = b->begin > 0,
                                        .a = a,
                                        .lda = lda,
                                        .b = x,
                                        .ldb = n,
                                        .c = to,
                                        .ldc = n});
}

static void layer_biases(const back *b, int64_t d) {
    const kn__rnn_job *job = &b->job;
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

static kn_status block_dw(const back *b) {
    const kn__rnn_job *job = &b->job;
    int64_t gates = job->gate_rows, h = job->hidden,
            columns = kn__rnn_columns(job->attr, job->layer);
    bool is_gru = job->attr->mode == KN_RNN_GRU;
    for (int64_t d = 0; d < job->directions; d++) {
        const char *dgates = kn__rnn_el(job, b->dgates, d * b->most * b->stride);
        const char *dcandidate = kn__rnn_el(job, b->dcandidate, d * b->most * h);
        const char *before = kn__rnn_el(job, b->before, d * b->most * h);
        block rows = block_of(b, d);
        const char *x = kn__rnn_el(job, b->x, rows.first * columns);
        char *dr =
            kn__rnn_el(job, b->dw, kn__rnn_part_at(job->attr, job->layer, d, KN_RNN_HIDDEN_WEIGHT));
        char *dw =
            kn__rnn_el(job, b->dw, kn__rnn_part_at(job->attr, job->layer, d, KN_RNN_INPUT_WEIGHT));
        KN_TRY(weights(b, dw, dgates, b->stride, gates, x, columns, rows.n));
        KN_TRY(weights(b, dr, dgates, b->stride, is_gru ? 2 * h : gates, before, h, rows.n));
        if (is_gru) {
            char *last = kn__rnn_el(job, dr, 2 * h * h);
            KN_TRY(weights(b, last, dcandidate, h, h, before, h, rows.n));
        }
    }
    return KN_OK;
}

/* All blocks of a layer; dx may lie where its dy does. */
static kn_status blocks_run(back *b, char *dx) {
    kn__rnn_job *job = &b->job;
    int64_t inputs = kn__rnn_inputs(job->attr, job->layer), steps = block_steps(job);
    bool wants_dw = b->dw && (job->layer > 0 || b->has_x);
    if (wants_dw) b->x = kn__rnn_input(job, job->layer);
    if (dx && job->directions > 1) memset(dx, 0, (size_t)(job->n_rows * inputs) * job->bytes);
    b->begin = 0;
    do {
        b->end = b->begin + steps < job->steps ? b->begin + steps : job->steps;
        kn__parallel_for(job->call->threads, job->directions * job->n_chunks, chunk_run, b);
        if (wants_dw) KN_TRY(block_dw(b));
        if (dx) KN_TRY(block_dx(b, dx));
        b->begin = b->end;
    } while (b->end < job->steps);
    for (int64_t d = 0; wants_dw && d < job->directions; d++) layer_biases(b, d);
    return KN_OK;
}

/* Leaves dy of the layer below in b->g. */
static kn_status layer_run(back *b, int64_t layer) {
    kn__rnn_job *job = &b->job;
    kn_tensor *dx = job->call->out[0];
    job->layer = layer;
    for (int64_t d = 0; d < job->directions; d++)
        job->loops->gemm_pack(kn__rnn_el(job, b->panels, d * b->panels_size),
                              kn__rnn_part(job, job->w, layer, d, KN_RNN_HIDDEN_WEIGHT), 1,
                              job->hidden, job->hidden, job->gate_rows, job->loops->tile_columns,
                              true);
    if (layer > 0) {
        char *to = job->directions > 1 && b->g == b->dy[0] ? b->dy[1] : b->dy[0];
        KN_TRY(blocks_run(b, to));
        if (job->attr->dropout > 0) kn__rnn_drop(job, layer, to, to);
        b->g = to;
        return KN_OK;
    }
    char *to = dx ? (job->order ? b->dx : dx->data) : NULL;
    KN_TRY(blocks_run(b, to));
    if (dx && job->order) kn__rnn_unpack(job, dx->data, b->dx, job->attr->input);
    return KN_OK;
}

static kn_status space_make(back *b) {
    kn__rnn_job *job = &b->job;
    kn__rnn_space space = {NULL, 0};
    void *work = NULL;
    take_space(b, &space);
    KN_TRY(kn__work(&work, job->call, space.used));
    space = (kn__rnn_space){work, 0};
    take_space(b, &space);
    kn__rnn_sort(job, (int64_t *)(void *)b->index);
    return KN_OK;
}

static void *data_of(const kn_tensor *t) { return t && t != KN_NONE ? t->data : NULL; }

/* x|NONE, w, y, reserve, dy|NONE, dh_n|NONE, dc_n|NONE → dx, dw, dh0, dc0 */
kn_status kn__host_rnn_back(kn_op_call *call) {
    back b = {0};
    kn__rnn_job *job = &b.job;
    kn__rnn_job_init(job, call);
    job->keeps = true;
    KN_TRY(space_make(&b));
    kn__rnn_reserve_at(job, call->in[3]->data);
    job->rng = call->in[3]->data;
    job->y_last = data_of(call->in[2]);
    b.has_x = call->in[0] != KN_NONE;
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
