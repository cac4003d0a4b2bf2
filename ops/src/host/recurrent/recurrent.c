/* Recurrent networks on the host, forward: one product of all inputs of a layer, then chunks of
 * sequences that run through the steps, each with its own product by R and its gates. */
#include "host/recurrent/recurrent.h"

#include <string.h>

#include "host/base/chunks.h"

/* Work space beside the reserve. */
typedef struct forward {
    kn__rnn_job job;
    char *index, *bias;  /* bias: [D,G·H], what the products start from */
    char *panels;        /* [D] packed R */
    int64_t panels_size; /* of each */
    char *h, *c, *pack;  /* of the chunks: [D,B,H], [D,B,H], [D,B,KN_PANEL_DEPTH] */
    char *h_n, *c_n;     /* results, or NULL */
} forward;

static void take_space(forward *f, kn__rnn_space *space) {
    kn__rnn_job *job = &f->job;
    int64_t states = job->directions * job->batch, dropped = 0;
    /* an index is 8 bytes: up to two elements */
    f->index = kn__rnn_take(space, job, 2 * (2 * (job->steps + 1) + job->batch));
    f->bias = kn__rnn_take(space, job, job->directions * job->gate_rows);
    f->panels_size = kn__panel_columns(job->loops, job->gate_rows) * job->hidden;
    if (job->attr->mode == KN_RNN_GRU) {
        f->panels_size = (kn__panel_columns(job->loops, 2 * job->hidden) +
                          kn__panel_columns(job->loops, job->hidden)) *
                         job->hidden;
    }
    f->panels = kn__rnn_take(space, job, job->directions * f->panels_size);
    f->h = kn__rnn_take(space, job, states * job->hidden);
    f->c = kn__rnn_take(space, job, states * job->hidden);
    f->pack = kn__rnn_take(space, job, states * KN_PANEL_DEPTH);
    job->x = kn__rnn_take(space, job, job->attr->n_lengths ? job->n_rows * job->attr->input : 0);
    if (job->attr->dropout > 0) dropped = job->n_rows * job->width;
    job->dropped = kn__rnn_take(space, job, dropped);
    for (int i = 0; i < 2; i++)
        job->window[i] = kn__rnn_take(space, job, dropped ? job->width + 32 : 0);
}

/* The reserve, or work space for what would be in it; and the rest of the work space. */
static kn_status space_make(forward *f) {
    kn__rnn_job *job = &f->job;
    kn__rnn_space space = {NULL, 0};
    void *reserve = job->keeps ? job->call->out[3]->data : NULL, *work = NULL;
    take_space(f, &space);
    KN_TRY(kn__work(&work, job->call, space.used));
    if (!job->keeps) {
        KN_TRY(kn__work(&reserve, job->call,
                        (size_t)kn__rnn_layout_of(job->attr, false).n * job->bytes));
    }
    space = (kn__rnn_space){work, 0};
    take_space(f, &space);
    kn__rnn_sort(job, (int64_t *)(void *)f->index);
    kn__rnn_reserve_at(job, reserve);
    if (job->attr->dropout > 0) {
        KN_ASSERT(reserve); /* it has a head */
        memcpy(reserve, job->call->in[4]->data, 2 * sizeof(int64_t));
        job->rng = reserve;
    }
    return KN_OK;
}

/* --- states: rows in the order of the chunks --- */

static void state_in(const kn__rnn_job *job, char *to, const kn_tensor *from) {
    size_t bytes = (size_t)job->hidden * job->bytes;
    int64_t parts = job->layers * job->directions;
    if (from == KN_NONE) {
        memset(to, 0, (size_t)(parts * job->batch) * bytes);
        return;
    }
    for (int64_t part = 0; part < parts; part++)
        for (int64_t i = 0; i < job->batch; i++) {
            int64_t row = part * job->batch + (job->order ? job->order[i] : i);
            memcpy(to + (size_t)(part * job->batch + i) * bytes,
                   (const char *)from->data + (size_t)row * bytes, bytes);
        }
}

static void state_out(const kn__rnn_job *job, char *to, int64_t direction, const char *from,
                      int64_t first, int64_t rows) {
    size_t bytes = (size_t)job->hidden * job->bytes;
    int64_t part = job->layer * job->directions + direction;
    for (int64_t i = 0; to && i < rows; i++) {
        int64_t row = part * job->batch + (job->order ? job->order[first + i] : first + i);
        memcpy(to + (size_t)row * bytes, from + (size_t)i * bytes, bytes);
    }
}

/* --- a chunk of sequences through all steps --- */

typedef struct chunk {
    int64_t direction, first, rows;
    char *gates, *extra, *y, *h, *c, *pack;
    const char *panels, *bias; /* bias: GRU: of the candidate */
} chunk;

/* What the step's gates are made of. */
static void chunk_products(const kn__rnn_job *job, const chunk *k, char *gates, char *candidate,
                           int64_t m) {
    int64_t h = job->hidden, rows = job->gate_rows;
    kn__panels all = {k->panels, h};
    if (job->attr->mode != KN_RNN_GRU) {
        kn__rnn_product(job, gates, rows, k->h, h, m, all, 0, h, rows, k->pack);
        return;
    }
    kn__panels last = {kn__rnn_el(job, k->panels, kn__panel_columns(job->loops, 2 * h) * h), h};
    for (int64_t i = 0; i < m; i++)
        memcpy(kn__rnn_el(job, candidate, i * h), k->bias, (size_t)h * job->bytes);
    kn__rnn_product(job, gates, rows, k->h, h, m, all, 0, h, 2 * h, k->pack);
    kn__rnn_product(job, candidate, h, k->h, h, m, last, 0, h, h, k->pack);
}

static void chunk_step(const kn__rnn_job *job, const chunk *k, int64_t t, int64_t m) {
    int64_t h = job->hidden, row = job->at[t] + k->first;
    bool is_lstm = job->attr->mode == KN_RNN_LSTM;
    char *gates = kn__rnn_el(job, k->gates, row * job->gate_rows);
    char *extra = kn__rnn_el(job, k->extra, (job->keeps ? row : k->first) * h);
    chunk_products(job, k, gates, extra, m);
    kn__rnn_step step = {.mode = (int)job->attr->mode,
                         .rows = m,
                         .hidden = h,
                         .gates = gates,
                         .candidate = extra,
                         .h = k->h,
                         .c = k->c,
                         .y = kn__rnn_el(job, k->y, row * job->width + k->direction * h),
                         .y_stride = job->width,
                         .cells = is_lstm && job->keeps ? extra : NULL};
    job->loops->rnn_step(&step);
}

static void chunk_run(void *ctx, int64_t i) {
    const forward *f = ctx;
    const kn__rnn_job *job = &f->job;
    int64_t d = i / job->n_chunks, place = i % job->n_chunks, h = job->hidden;
    int64_t first = kn__part(job->batch, job->n_chunks, place);
    chunk k = {.direction = d,
               .first = first,
               .rows = kn__part(job->batch, job->n_chunks, place + 1) - first,
               .gates = kn__rnn_gates_at(job, job->layer, d),
               .extra = kn__rnn_extra_at(job, job->layer, d),
               .y = kn__rnn_y_at(job, job->layer),
               .h = kn__rnn_el(job, f->h, (d * job->batch + first) * h),
               .c = kn__rnn_el(job, f->c, (d * job->batch + first) * h),
               .pack = kn__rnn_el(job, f->pack, (d * job->batch + first) * KN_PANEL_DEPTH),
               .panels = kn__rnn_el(job, f->panels, d * f->panels_size)};
    size_t bytes = (size_t)(k.rows * h) * job->bytes;
    int64_t from = ((job->layer * job->directions + d) * job->batch + first) * h;
    k.bias = kn__rnn_el(job, kn__rnn_part(job, job->w, job->layer, d, KN_RNN_HIDDEN_BIAS),
                        job->attr->mode == KN_RNN_GRU ? 2 * h : 0);
    memcpy(k.h, kn__rnn_el(job, job->h_first, from), bytes);
    if (job->attr->mode == KN_RNN_LSTM) memcpy(k.c, kn__rnn_el(job, job->c_first, from), bytes);
    for (int64_t s = 0; s < job->steps; s++) {
        int64_t t = d ? job->steps - 1 - s : s, m = kn__rnn_running(job, t, first, k.rows);
        if (m > 0) chunk_step(job, &k, t, m);
    }
    state_out(job, f->h_n, d, k.h, first, k.rows);
    state_out(job, f->c_n, d, k.c, first, k.rows);
}

/* --- a layer --- */

static void pack_r(const forward *f, int64_t d) {
    const kn__rnn_job *job = &f->job;
    int64_t h = job->hidden, first = job->attr->mode == KN_RNN_GRU ? 2 * h : job->gate_rows;
    int wide = job->loops->tile_columns;
    const char *r = kn__rnn_part(job, job->w, job->layer, d, KN_RNN_HIDDEN_WEIGHT);
    char *to = kn__rnn_el(job, f->panels, d * f->panels_size);
    job->loops->gemm_pack(to, r, h, 1, first, h, wide, true);
    if (first == job->gate_rows) return;
    job->loops->gemm_pack(kn__rnn_el(job, to, kn__panel_columns(job->loops, first) * h),
                          kn__rnn_el(job, r, first * h), h, 1, h, h, wide, true);
}

/* W's bias and, but for GRU's candidate, R's. */
static void sum_biases(const kn__rnn_job *job, char *bias, int64_t d) {
    const char *of_w = kn__rnn_part(job, job->w, job->layer, d, KN_RNN_INPUT_BIAS);
    const char *of_r = kn__rnn_part(job, job->w, job->layer, d, KN_RNN_HIDDEN_BIAS);
    int64_t both = job->attr->mode == KN_RNN_GRU ? 2 * job->hidden : job->gate_rows;
    memcpy(bias, of_w, (size_t)job->gate_rows * job->bytes);
    job->loops->sum_parts(bias, of_r, 1, 0, both, true);
}

typedef struct skip_pieces {
    const kn__rnn_job *job;
    char *gates;
    const char *x, *bias;
} skip_pieces;

enum { SKIP_ROWS = 64 };

static void skip_piece(void *ctx, int64_t i) {
    const skip_pieces *p = ctx;
    int64_t row = i * SKIP_ROWS, rest = p->job->n_rows - row;
    p->job->loops->rnn_skip(kn__rnn_el(p->job, p->gates, row * p->job->gate_rows),
                            kn__rnn_el(p->job, p->x, row * p->job->hidden), p->bias,
                            rest < SKIP_ROWS ? rest : SKIP_ROWS, p->job->n_gates, p->job->hidden);
}

/* gates [N,G·H] = x·Wᵀ + the biases */
static kn_status layer_inputs(const forward *f, const char *x, int64_t d) {
    const kn__rnn_job *job = &f->job;
    char *gates = kn__rnn_gates_at(job, job->layer, d);
    char *bias = kn__rnn_el(job, f->bias, d * job->gate_rows);
    int64_t inputs = kn__rnn_inputs(job->attr, job->layer);
    sum_biases(job, bias, d);
    if (job->layer == 0 && job->attr->skip) {
        skip_pieces pieces = {job, gates, x, bias};
        kn__parallel_for(job->call->threads, kn__chunks(job->n_rows, SKIP_ROWS), skip_piece,
                         &pieces);
        return KN_OK;
    }
    kn__gemm gemm = {.dtype = job->dtype,
                     .trans_b = true,
                     .m = job->n_rows,
                     .n = job->gate_rows,
                     .k = inputs,
                     .a = x,
                     .b = kn__rnn_part(job, job->w, job->layer, d, KN_RNN_INPUT_WEIGHT),
                     .c = gates,
                     .lda = inputs,
                     .ldb = inputs,
                     .ldc = job->gate_rows};
    kn_status status = kn__gemm_parallel(job->call, &gemm, bias);
    kn__work_end(job->call, job->keeps ? 1 : 2);
    return status;
}

static kn_status layer_run(forward *f, int64_t layer) {
    kn__rnn_job *job = &f->job;
    job->layer = layer;
    const char *x = kn__rnn_input(job, layer);
    for (int64_t d = 0; d < job->directions; d++) {
        if (job->n_rows) KN_TRY(layer_inputs(f, x, d));
        pack_r(f, d);
    }
    kn__parallel_for(job->call->threads, job->directions * job->n_chunks, chunk_run, f);
    return KN_OK;
}

/* x, w, h0|NONE, c0|NONE, state|NONE → y, h_n, c_n, reserve */
kn_status kn__host_rnn(kn_op_call *call) {
    forward f = {0};
    kn__rnn_job *job = &f.job;
    kn__rnn_job_init(job, call);
    job->keeps = call->out[3] != NULL;
    KN_TRY(space_make(&f));
    f.h_n = call->out[1] ? call->out[1]->data : NULL;
    f.c_n = call->out[2] ? call->out[2]->data : NULL;
    state_in(job, job->h_first, call->in[2]);
    if (job->attr->mode == KN_RNN_LSTM)
        state_in(job, job->c_first, call->in[3]);
    else
        f.c_n = NULL;
    KN_ASSERT(call->out[0]); /* kn_rnn always wants it */
    job->y_last = call->out[0]->data;
    if (job->order)
        kn__rnn_pack(job, job->x, call->in[0]->data, job->attr->input);
    else
        job->x = call->in[0]->data;
    for (int64_t layer = 0; layer < job->layers; layer++) KN_TRY(layer_run(&f, layer));
    if (job->order)
        kn__rnn_unpack(job, call->out[0]->data, kn__rnn_y_at(job, job->layers - 1), job->width);
    return KN_OK;
}
