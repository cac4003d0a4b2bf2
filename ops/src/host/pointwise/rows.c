/* Rows on the host: the whole of contiguous operands at once, broadcast ones by rows or by blocks.
 *
 * Two inputs go by the forms that their loops have: both vectors, or one of them a single element.
 * Everything else goes by blocks: of each operand that is broadcast, or f16 or bf16, a block is
 * made contiguous and f32 first. Each element's result depends on its operands alone, so that any
 * cut gives the same bits. */
#include "host/pointwise/rows.h"

#include <string.h>

#include "host/base/chunks.h"
#include "host/base/loops.h"
#include "host/pointwise/fused.h"
#include "kernel.h"

enum { OPERANDS = KN__ROW_OPERANDS, RESULTS = KN__ROW_RESULTS, BLOCK = KN__ROW_BLOCK };

typedef kn__row_job job;

/* --- one stretch of contiguous operands --- */

static kn__row_loop loop_of(const kn__row_loops *row, int form) {
    return form == KN__ROW_VV ? row->f : form == KN__ROW_VS ? row->vs : row->sv;
}

static void run_loops(const job *j, int form, void *const to[], const void *const in[], int64_t n,
                      unsigned accumulate) {
    if (j->order == 0) {
        loop_of(j->row, form)(to[0], in, n, j->p, j->q, false);
        return;
    }
    int k = j->n_out;
    if (j->order == 1) { /* the first result is the last that is made: it may be in g's place */
        for (int r = k - 1; r >= 0; r--) {
            if (to[r]) j->row->d[r](to[r], in, n, j->p, j->q, accumulate >> r & 1);
        }
        return;
    }
    const void *one[RESULTS + 2]; /* u_i, the inputs, z */
    memcpy(one + 1, in + k, (size_t)(k + 1) * sizeof *one);
    for (int r = 0; r < k; r++) {
        if (!to[r]) continue;
        bool add = accumulate >> r & 1, any = add;
        for (int i = 0; i < k; i++) {
            if (!in[i]) continue;
            one[0] = in[i];
            j->row->dd[i][r](to[r], one, n, j->p, j->q, any);
            any = true;
        }
        if (!any) memset(to[r], 0, (size_t)n * (j->is_half ? sizeof(float) : j->out_bytes));
    }
}

/* --- by blocks --- */

const void *kn__row_operand(const job *j, int k, const void *x, int64_t from, int64_t n,
                            kn__tile *buffer) {
    kn__tile raw;
    char *dense = j->half_in[k] ? raw.bytes : buffer->bytes;
    if (!j->same[k]) kn__walk_copy(&j->walk[k], 0, dense, x, j->in_bytes[k], from, from + n);
    if (!j->half_in[k]) return j->same[k] ? x : buffer->bytes;
    kn__loops(KN_F32)->cast_from(buffer->f32, j->same[k] ? x : raw.bytes, j->dtype, n);
    return buffer->f32;
}

static __attribute__((noinline)) void block_through_buffers(const job *j, const void *const x[],
                                                            void *const y[], int64_t from,
                                                            int64_t n) {
    kn__tile in_buffer[OPERANDS], out_buffer[RESULTS];
    const kn__loop_table *f32 = kn__loops(KN_F32);
    const void *in[OPERANDS];
    void *to[RESULTS] = {NULL};
    for (int k = 0; k < j->n_in; k++)
        in[k] = x[k] ? kn__row_operand(j, k, x[k], from, n, &in_buffer[k]) : NULL;
    for (int r = 0; r < j->n_out; r++) {
        to[r] = y[r] && j->half_out ? out_buffer[r].bytes : y[r];
        if (y[r] && j->half_out && (j->accumulate >> r & 1))
            f32->cast_from(to[r], y[r], j->dtype, n);
    }
    run_loops(j, j->form, to, in, n, j->accumulate);
    for (int r = 0; r < j->n_out && j->half_out; r++) {
        if (to[r]) f32->cast_to(y[r], to[r], j->dtype, n);
    }
}

const char *kn__row_place(const job *j, int k, const char *x, int64_t from, int64_t n) {
    const kn__walk *w = &j->walk[k];
    int64_t row = from / w->inner, column = from % w->inner, place = column * w->step[0];
    if (column + n > w->inner) return NULL;
    for (int i = w->n_outer - 1; i >= 0; i--) {
        place += row % w->outer[i] * w->stride[0][i];
        row /= w->outer[i];
    }
    return x + (size_t)place * j->in_bytes[k];
}

/* Broadcast operands of a block inside one row are read where they lie: rows as vectors, single
 * elements by the loops' forms for them. False: they must be made contiguous. */
static bool read_in_place(const job *j, int *form, const void *in[], int64_t from, int64_t n) {
    if (j->is_half) return false;
    for (int k = 0; k < j->n_in; k++) {
        if (j->same[k]) continue;
        if (!(in[k] = kn__row_place(j, k, in[k], from, n))) return false;
        if (j->walk[k].step[0]) continue;
        if (j->n_in != 2 || j->order || *form != KN__ROW_VV) return false;
        *form = k ? KN__ROW_VS : KN__ROW_SV;
    }
    return true;
}

static inline const void *ahead(const void *x, int64_t n, size_t bytes) {
    return x ? (const char *)x + (size_t)n * bytes : NULL;
}

/* Elements from `from` on that lie in one row of each operand: at most n; 0: too few to be worth a
 * call of their own. */
static int64_t row_piece(const job *j, int64_t from, int64_t n) {
    enum { WORTH = 64 };
    for (int k = 0; k < j->n_in; k++) {
        if (j->same[k]) continue;
        int64_t inner = j->walk[k].inner, rest = inner - from % inner;
        if (inner < WORTH) return 0;
        if (rest < n) n = rest;
    }
    return n;
}

/* `from` and n: of the piece; in, to: of the block, which begins `at` elements earlier. */
static bool piece_in_place(const job *j, const void *const in[], void *const to[], int64_t at,
                           int64_t from, int64_t n) {
    const void *x[OPERANDS];
    void *y[RESULTS] = {NULL};
    int form = j->form;
    for (int k = 0; k < j->n_in; k++) x[k] = j->same[k] ? ahead(in[k], at, j->in_bytes[k]) : in[k];
    if (!read_in_place(j, &form, x, from, n)) return false;
    for (int r = 0; r < j->n_out; r++) y[r] = (void *)(uintptr_t)ahead(to[r], at, j->out_bytes);
    run_loops(j, form, y, x, n, j->accumulate);
    return true;
}

static inline bool is_dense(const job *j) {
    bool dense = !j->is_half;
    for (int k = 0; k < j->n_in; k++) dense &= j->same[k];
    return dense;
}

void kn__row_block(const job *j, const void *const in[], void *const to[], int64_t from,
                   int64_t n) {
    if (is_dense(j)) {
        run_loops(j, j->form, to, in, n, j->accumulate);
        return;
    }
    for (int64_t at = 0, piece; at < n; at += piece) {
        piece = j->is_half ? 0 : row_piece(j, from + at, n - at);
        if (piece && piece_in_place(j, in, to, at, from + at, piece)) continue;
        KN_ASSERT(at == 0);
        block_through_buffers(j, in, to, from, n);
        return;
    }
}

static void run_block(const job *j, int64_t from, int64_t n) {
    const void *in[OPERANDS];
    void *to[RESULTS] = {NULL};
    for (int k = 0; k < j->n_in; k++)
        in[k] = j->in[k] && j->same[k] ? j->in[k] + (size_t)from * j->in_bytes[k] : j->in[k];
    for (int r = 0; r < j->n_out; r++)
        to[r] = j->out[r] ? j->out[r] + (size_t)from * j->out_bytes : NULL;
    kn__row_block(j, in, to, from, n);
}

/* --- parts: what one thread takes --- */

static int64_t part_end(const job *j, int64_t i) {
    int64_t end = (i + 1) * j->grain;
    return end < j->n ? end : j->n;
}

static void blocks_part(void *ctx, int64_t i) {
    const job *j = ctx;
    for (int64_t from = i * j->grain, end = part_end(j, i); from < end; from += BLOCK) {
        run_block(j, from, end - from < BLOCK ? end - from : BLOCK);
    }
}

static void flat_part(void *ctx, int64_t i) {
    const job *j = ctx;
    size_t from = (size_t)(i * j->grain);
    const void *in[OPERANDS];
    void *to[RESULTS] = {NULL};
    for (int k = 0; k < j->call->n_in; k++)
        in[k] = j->in[k] ? j->in[k] + from * j->in_bytes[k] : NULL;
    for (int r = 0; r < j->call->n_out; r++)
        to[r] = j->out[r] ? j->out[r] + from * j->out_bytes : NULL;
    run_loops(j, j->form, to, in, part_end(j, i) - (int64_t)from, j->call->accumulate);
}

static kn_status spread(const job *j, kn__body_fn body) {
    kn__parallel_for(j->call->threads, kn__chunks(j->n, j->grain), body, (void *)(uintptr_t)j);
    return KN_OK;
}

/* --- two inputs by forms --- */

static void form_part(void *ctx, int64_t i) {
    const job *j = ctx;
    size_t from = (size_t)(i * j->grain);
    const void *in[] = {j->in[0] + (j->form == KN__ROW_SV ? 0 : from * j->in_bytes[0]),
                        j->in[1] + (j->form == KN__ROW_VS ? 0 : from * j->in_bytes[1])};
    loop_of(j->row, j->form)(j->out[0] + from * j->out_bytes, in, part_end(j, i) - (int64_t)from,
                             j->p, j->q, false);
}

static void form_row(const void *ctx, int64_t at, const int64_t from[], int64_t n) {
    const job *j = ctx;
    const void *in[] = {j->in[0] + (size_t)from[0] * j->in_bytes[0],
                        j->in[1] + (size_t)from[1] * j->in_bytes[1]};
    loop_of(j->row, j->form)(j->out[0] + (size_t)at * j->out_bytes, in, n, j->p, j->q, false);
}

static void walk_part(void *ctx, int64_t i) {
    const job *j = ctx;
    kn__walk_range(&j->walk[0], i * j->grain, part_end(j, i), form_row, j);
}

/* Rows of so few elements that a call for each costs more than making a block of each broadcast
 * operand contiguous first (measured with mul and add: of 10, three times less, of 49, a third
 * more). */
enum { SHORT = 32 };

static void short_rows_part(void *ctx, int64_t i) {
    const job *j = ctx;
    kn__tile tile[2];
    for (int64_t n, from = i * j->grain, end = part_end(j, i); from < end; from += n) {
        const void *in[2];
        n = end - from < BLOCK ? end - from : BLOCK;
        for (int k = 0; k < 2; k++) {
            in[k] = j->in[k] + (size_t)from * j->in_bytes[k];
            if (j->same[k]) continue;
            kn__walk_copy(&j->walk[0], k, tile[k].bytes, j->in[k], j->in_bytes[k], from, from + n);
            in[k] = tile[k].bytes;
        }
        j->row->f(j->out[0] + (size_t)from * j->out_bytes, in, n, j->p, j->q, false);
    }
}

/* A short row beside every row of the other operand is repeated into one long row first. */
enum { TILE = 1024 };

static bool repeats(const kn__walk *w, int operand) {
    return w->n_outer == 1 && w->inner <= TILE / 8 && w->outer[0] > 1 && w->step[operand] == 1 &&
           w->stride[operand][0] == 0 && w->step[!operand] == 1;
}

typedef struct tiled {
    const job *job;
    const char *tile;
    int64_t n;
    int operand; /* the repeated one */
} tiled;

static void tiled_part(void *ctx, int64_t i) {
    const tiled *t = ctx;
    const job *j = t->job;
    int64_t from = i * t->n, n = j->n - from < t->n ? j->n - from : t->n;
    const char *other = j->in[!t->operand] + (size_t)from * j->in_bytes[0];
    const void *in[] = {t->operand ? other : t->tile, t->operand ? t->tile : other};
    j->row->f(j->out[0] + (size_t)from * j->out_bytes, in, n, j->p, j->q, false);
}

static kn_status run_tiled(const job *j, int operand) {
    char tile[TILE * sizeof(double)];
    const kn__walk *w = &j->walk[0];
    size_t row_bytes = (size_t)w->inner * j->in_bytes[0];
    int64_t rows = TILE / w->inner;
    for (int64_t r = 0; r < rows; r++) {
        memcpy(tile + (size_t)r * row_bytes, j->in[operand], row_bytes);
    }
    tiled t = {j, tile, rows * w->inner, operand};
    int threads = j->n >= 2 * j->grain ? j->call->threads : 1;
    kn__parallel_for(threads, kn__chunks(j->n, t.n), tiled_part, &t);
    return KN_OK;
}

static kn_status run_forms(job *j) {
    const kn_op_call *call = j->call;
    if (j->same[0] && (j->same[1] || call->in[1]->n == 1)) {
        j->form = j->same[1] ? KN__ROW_VV : KN__ROW_VS;
        return spread(j, form_part);
    }
    if (j->same[1] && call->in[0]->n == 1) {
        j->form = KN__ROW_SV;
        return spread(j, form_part);
    }
    kn__walk *w = &j->walk[0];
    kn__walk_init(w, call->out[0], call->in, 2);
    for (int operand = 0; operand < 2; operand++) {
        if (repeats(w, operand)) return run_tiled(j, operand);
    }
    if (w->inner < SHORT) return spread(j, short_rows_part);
    j->form = !w->step[0] ? KN__ROW_SV : !w->step[1] ? KN__ROW_VS : KN__ROW_VV;
    return spread(j, walk_part);
}

/* --- the kernels --- */

static void job_init(job *j, const kn_op_call *call, const kn__row_loops *row, int order) {
    const kn_attr_scalars *scalars = call->attr;
    const kn_tensor *out = call->out[__builtin_ctz(call->want)];
    j->call = call;
    j->row = row;
    j->n_in = call->n_in;
    j->n_out = call->n_out;
    j->order = order;
    j->form = KN__ROW_VV;
    j->accumulate = call->accumulate;
    j->dtype = (kn_dtype)call->dtype;
    j->p = scalars ? scalars->a : 0;
    j->q = scalars ? scalars->b : 0;
    j->n = out->n;
    j->grain = kn__even(j->n, kn__row_grain((kn_op)call->op, j->dtype, order));
    j->is_half = call->dtype == KN_F16 || call->dtype == KN_BF16;
    j->half_out = j->is_half && out->dtype == call->dtype;
    j->out_bytes = kn_dtype_bytes((kn_dtype)out->dtype);
    for (int r = 0; r < call->n_out; r++)
        j->out[r] = call->want >> r & 1 ? call->out[r]->data : NULL;
    for (int k = 0; k < call->n_in; k++) {
        const kn_tensor *t = call->in[k];
        j->in[k] = t == KN_NONE ? NULL : t->data;
        j->in_bytes[k] = t == KN_NONE ? 0 : kn_dtype_bytes((kn_dtype)t->dtype);
        j->same[k] = t == KN_NONE || t->n == out->n;
        j->half_in[k] = j->is_half && t->dtype == call->dtype;
    }
}

static kn_status run_blocks(job *j) {
    for (int k = 0; k < j->call->n_in; k++) {
        if (j->same[k]) continue;
        const kn_tensor *out = j->call->out[__builtin_ctz(j->call->want)];
        kn__walk_init(&j->walk[k], out, &j->call->in[k], 1);
    }
    return spread(j, blocks_part);
}

static __attribute__((noinline)) kn_status no_loop(const kn_op_call *call) {
    return KN_FAIL(KN_ERR_UNSUPPORTED, "kn_%s: the host has no kernel for %s",
                   kn_op_name((kn_op)call->op),
                   kn_dtype_name(call->dtype ? (kn_dtype)call->dtype : KN_BOOL));
}

/* So few elements that making a job would cost more than the work. */
enum { FEW = 1024 };

static inline bool is_plain(const kn_op_call *call, int64_t n) {
    enum { HALF = KN_DTYPE_BIT_(KN_F16) | KN_DTYPE_BIT_(KN_BF16) };
    return call->flat && n <= FEW && !(HALF >> call->dtype & 1);
}

static __attribute__((noinline)) kn_status run_row(const kn_op_call *call,
                                                   const kn__row_loops *row) {
    job j;
    job_init(&j, call, row, 0);
    if (j.is_half) return run_blocks(&j);
    if (call->n_in == 2) return run_forms(&j);
    bool flat = true;
    for (int k = 0; k < call->n_in; k++) flat = flat && j.same[k];
    return flat ? spread(&j, flat_part) : run_blocks(&j);
}

static inline __attribute__((always_inline)) kn_status host_row(kn_op_call *call, int n_in) {
    const kn__row_loops *row = kn__row_loops_of((kn_dtype)call->dtype, call->op);
    kn__row_loop loop = row->f;
    const kn_tensor *z = call->out[0];
    int64_t n = z->n;
    if (__builtin_expect(!loop, 0)) return no_loop(call);
    if (!is_plain(call, n)) return run_row(call, row);
    const kn_attr_scalars *scalars = call->attr;
    const void *in[3];
    for (int k = 0; k < n_in; k++) in[k] = call->in[k]->data;
    loop(z->data, in, n, scalars ? scalars->a : 0, scalars ? scalars->b : 0, false);
    return KN_OK;
}

kn_status kn__host_row1(kn_op_call *call) { return host_row(call, 1); }
kn_status kn__host_row2(kn_op_call *call) { return host_row(call, 2); }
kn_status kn__host_row3(kn_op_call *call) { return host_row(call, 3); }

static __attribute__((noinline)) kn_status run_row_back(const kn_op_call *call,
                                                        const kn__row_loops *row) {
    job j;
    job_init(&j, call, row, 1);
    return call->flat && !j.is_half ? spread(&j, flat_part) : run_blocks(&j);
}

static inline __attribute__((always_inline)) kn_status host_row_back(kn_op_call *call, int n_x) {
    const kn__row_loops *row = kn__row_loops_of((kn_dtype)call->dtype, call->op - 1u);
    int64_t n = call->in[0]->n;
    if (__builtin_expect(!row->d[0], 0)) return no_loop(call);
    if (!is_plain(call, n)) return run_row_back(call, row);
    const void *in[5];                                           /* g, x…, z */
    for (int k = 0; k < n_x + 2; k++) in[k] = call->in[k]->data; /* NULL of KN_NONE */
    const kn_attr_scalars *scalars = call->attr;
    double p = scalars ? scalars->a : 0, q = scalars ? scalars->b : 0;
    for (int r = n_x - 1; r >= 0; r--) { /* the first may be in g's place */
        if (call->want >> r & 1)
            row->d[r](call->out[r]->data, in, n, p, q, call->accumulate >> r & 1);
    }
    return KN_OK;
}

kn_status kn__host_row1_back(kn_op_call *call) { return host_row_back(call, 1); }
kn_status kn__host_row2_back(kn_op_call *call) { return host_row_back(call, 2); }
kn_status kn__host_row3_back(kn_op_call *call) { return host_row_back(call, 3); }

kn_status kn__host_row_back2(kn_op_call *call) {
    const kn__row_loops *row = kn__row_loops_of((kn_dtype)call->dtype, call->op - 2u);
    if (!row->d[0]) return no_loop(call);
    job j;
    job_init(&j, call, row, 2);
    return call->flat && !j.is_half ? spread(&j, flat_part) : run_blocks(&j);
}

/* relu's gradient, and the sum of it: the two ops it stands for, one after the other. */
kn_status kn__host_relu_bias_back(kn_op_call *call) {
    kn_op_call part = *call;
    kn_tensor *y = call->in[0], *g = call->in[1];
    part.op = KN_OP_relu_back, part.n_in = 3, part.n_out = 1, part.want = 1, part.flat = 1;
    part.attr = NULL, part.accumulate = 0, part.given = 0;
    part.in = (kn_tensor *const[]){g, KN_NONE, y};
    KN_TRY(kn__host_row1_back(&part));
    part.op = KN_OP_sum, part.n_in = 1, part.attr = call->attr;
    part.accumulate = call->accumulate >> 1 & 1;
    part.in = &call->out[0], part.out[0] = call->out[1];
    kn_status status = kn__host_reduce(&part);
    kn__work_end(&part, 0);
    return status;
}
