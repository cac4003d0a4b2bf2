/* Recurrent networks on the host: sizes, the reserve, packed rows, dropout. */
#include <string.h>

#include "host/base/chunks.h"
#include "host/recurrent/recurrent.h"
#include "philox.h"

/* --- sizes --- */

static int64_t rows_of(const kn_attr_rnn *attr) {
    int64_t n = attr->n_lengths ? 0 : attr->steps * attr->batch;
    for (int64_t b = 0; b < attr->n_lengths; b++) n += attr->length[b];
    return n;
}

kn__rnn_layout kn__rnn_layout_of(const kn_attr_rnn *attr, bool keeps) {
    int64_t rows = rows_of(attr), parts = attr->directions * rows * attr->hidden;
    int64_t states = attr->layers * attr->directions * attr->batch * attr->hidden;
    int64_t kept = keeps && attr->mode <= KN_RNN_GRU ? attr->layers : 1;
    /* Without lengths the top layer's y is the call's. */
    int64_t layers_y = attr->n_lengths ? attr->layers : attr->layers - 1;
    if (!keeps && layers_y > 2) layers_y = 2;
    bool cells = attr->mode == KN_RNN_LSTM;
    int64_t extra = keeps && attr->mode <= KN_RNN_GRU ? kept * parts : 0;
    if (!keeps && attr->mode == KN_RNN_GRU) extra = attr->directions * attr->batch * attr->hidden;
    kn__rnn_layout at = {.h = KN_RNN_HEAD};
    at.c = at.h + states;
    at.gates = at.c + (cells ? states : 0);
    at.extra = at.gates + kept * parts * kn__rnn_gates(attr);
    at.y = at.extra + extra;
    at.n = at.y + layers_y * parts;
    return at;
}

int64_t kn__host_rnn_reserve(const kn_attr_rnn *attr, kn_dtype dtype) {
    (void)dtype;
    return kn__rnn_layout_of(attr, true).n;
}

enum { CHUNK_ROWS = 32, SMALL_CHUNK_ROWS = 16 };

void kn__rnn_job_init(kn__rnn_job *job, kn_op_call *call) {
    const kn_attr_rnn *attr = call->attr;
    *job = (kn__rnn_job){.call = call,
                         .attr = attr,
                         .dtype = (kn_dtype)call->in[1]->dtype,
                         .layers = attr->layers,
                         .directions = attr->directions,
                         .n_gates = kn__rnn_gates(attr),
                         .hidden = attr->hidden,
                         .batch = attr->batch,
                         .steps = attr->steps,
                         .n_rows = rows_of(attr),
                         .w = call->in[1]->data};
    job->loops = kn__loops(job->dtype);
    job->bytes = kn_dtype_bytes(job->dtype);
    job->width = job->directions * job->hidden;
    job->gate_rows = job->n_gates * job->hidden;
    job->n_chunks =
        kn__chunks(job->batch, job->batch >= 2 * CHUNK_ROWS ? CHUNK_ROWS : SMALL_CHUNK_ROWS);
    if (!job->batch) job->n_chunks = 1; /* sums of no sequence are zeros */
}

/* How many sequences are longer than t: those that run at step t. */
static void count_rows(int64_t *at, const kn_attr_rnn *attr) {
    int64_t running = attr->batch, before = 0;
    memset(at, 0, (size_t)(attr->steps + 1) * sizeof *at);
    for (int64_t b = 0; b < attr->n_lengths; b++) /* at[t + 1]: sequences of length t */
        if (attr->length[b] < attr->steps) at[attr->length[b] + 1]++;
    for (int64_t t = 0; t < attr->steps; t++) {
        running -= at[t + 1];
        at[t] = before;
        before += running;
    }
    at[attr->steps] = before;
}

void kn__rnn_sort(kn__rnn_job *job, int64_t *index) {
    const kn_attr_rnn *attr = job->attr;
    int64_t *at = index, *next = at + job->steps + 1, *order = next + job->steps + 1;
    count_rows(at, attr);
    for (int64_t t = 0; t < job->steps; t++) next[t] = at[t + 1] - at[t];
    next[job->steps] = 0; /* the first place of each length */
    for (int64_t b = 0; b < attr->n_lengths; b++) order[next[attr->length[b]]++] = b;
    job->at = at;
    job->order = attr->n_lengths ? order : NULL;
}

void kn__rnn_reserve_at(kn__rnn_job *job, char *reserve) {
    kn__rnn_layout at = kn__rnn_layout_of(job->attr, job->keeps);
    job->h_first = kn__rnn_el(job, reserve, at.h), job->c_first = kn__rnn_el(job, reserve, at.c);
    job->gates = kn__rnn_el(job, reserve, at.gates);
    job->extra = kn__rnn_el(job, reserve, at.extra);
    job->y = kn__rnn_el(job, reserve, at.y);
}

/* --- parts --- */

static int64_t kept_layer(const kn__rnn_job *job, int64_t layer) {
    return job->keeps && job->attr->mode <= KN_RNN_GRU ? layer : 0;
}

char *kn__rnn_gates_at(const kn__rnn_job *job, int64_t layer, int64_t direction) {
    int64_t part = kept_layer(job, layer) * job->directions + direction;
    return kn__rnn_el(job, job->gates, part * job->n_rows * job->gate_rows);
}

char *kn__rnn_extra_at(const kn__rnn_job *job, int64_t layer, int64_t direction) {
    int64_t part = kept_layer(job, layer) * job->directions + direction;
    return kn__rnn_el(job, job->extra,
                      part * (job->keeps ? job->n_rows : job->batch) * job->hidden);
}

char *kn__rnn_y_at(const kn__rnn_job *job, int64_t layer) {
    if (layer == job->layers - 1 && !job->order) return job->y_last;
    int64_t part = job->keeps ? layer : layer & 1;
    return kn__rnn_el(job, job->y, part * job->n_rows * job->width);
}

const char *kn__rnn_part(const kn__rnn_job *job, const char *w, int64_t layer, int64_t direction,
                         kn_rnn_part part) {
    return kn__rnn_el(job, w, kn__rnn_part_at(job->attr, layer, direction, part));
}

const char *kn__rnn_input(kn__rnn_job *job, int64_t layer) {
    if (layer == 0) return job->x;
    const char *below = kn__rnn_y_at(job, layer - 1);
    if (!(job->attr->dropout > 0)) return below;
    kn__rnn_drop(job, layer, job->dropped, below);
    return job->dropped;
}

/* --- packed rows --- */

/* Copies every row that runs, between [T,B,n] and packed. */
static void each_row(const kn__rnn_job *job, char *packed, char *padded, int64_t n, bool packs) {
    size_t bytes = (size_t)n * job->bytes;
    for (int64_t t = 0; t < job->steps && bytes; t++)
        for (int64_t row = job->at[t]; row < job->at[t + 1]; row++) {
            char *from = kn__rnn_el(job, packed, row * n);
            char *to = kn__rnn_el(job, padded, (t * job->batch + job->order[row - job->at[t]]) * n);
            memcpy(packs ? from : to, packs ? to : from, bytes);
        }
}

void kn__rnn_pack(const kn__rnn_job *job, char *to, const char *from, int64_t n) {
    each_row(job, to, (char *)(uintptr_t)from, n, true);
}

void kn__rnn_unpack(const kn__rnn_job *job, char *to, const char *from, int64_t n) {
    memset(to, 0, (size_t)(job->steps * job->batch * n) * job->bytes);
    each_row(job, (char *)(uintptr_t)from, to, n, false);
}

/* --- dropout --- */

typedef struct drop_pieces {
    const kn__rnn_job *job;
    int64_t first, n; /* of the mask's elements */
    char *to;
    const char *from;
} drop_pieces;

enum { DROP_PIECE = 1 << 15 };

static void drop_piece(void *ctx, int64_t i) {
    const drop_pieces *p = ctx;
    int64_t at = i * DROP_PIECE, n = p->n - at < DROP_PIECE ? p->n - at : DROP_PIECE;
    p->job->loops->dropout(kn__rnn_el(p->job, p->to, at), kn__rnn_el(p->job, p->from, at),
                           p->first + at, n, p->job->rng, p->job->attr->dropout);
}

/* A mask is that of [T,B,D·H]; of packed rows, which don't begin with a counter, by windows. */
void kn__rnn_drop(const kn__rnn_job *job, int64_t layer, char *to, const char *from) {
    int64_t first = (layer - 1) * kn__rnn_mask(job->attr), n = job->width;
    if (!job->order) {
        drop_pieces pieces = {job, first, job->n_rows * n, to, from};
        kn__parallel_for(job->call->threads, kn__chunks(pieces.n, DROP_PIECE), drop_piece, &pieces);
        return;
    }
    size_t bytes = (size_t)n * job->bytes;
    for (int64_t t = 0; t < job->steps; t++)
        for (int64_t row = job->at[t]; row < job->at[t + 1]; row++) {
            int64_t at = (t * job->batch + job->order[row - job->at[t]]) * n, lead = at % 32;
            memset(job->window[0], 0, (size_t)lead * job->bytes);
            memcpy(kn__rnn_el(job, job->window[0], lead), kn__rnn_el(job, from, row * n), bytes);
            job->loops->dropout(job->window[1], job->window[0], first + at - lead, lead + n,
                                job->rng, job->attr->dropout);
            memcpy(kn__rnn_el(job, to, row * n), kn__rnn_el(job, job->window[1], lead), bytes);
        }
}
