/* Softmax and log-softmax over any axis, and their gradients. */
#include "host/base/chunks.h"
#include "host/base/loops.h"
#include "kernel.h"

typedef struct softmax_work {
    const kn__loop_table *loops;
    char *out;
    const char *x, *g; /* forward: x; backward: y and dy */
    int64_t outer, n, inner, rows_per_chunk, columns_per_chunk, runs;
    size_t element_bytes;
    bool log;
} softmax_work;

/* A run of rows (inner == 1). */
static void rows_chunk(void *ctx, int64_t i) {
    const softmax_work *w = ctx;
    int64_t first = i * w->rows_per_chunk, left = w->outer - first;
    int64_t rows = left < w->rows_per_chunk ? left : w->rows_per_chunk;
    size_t at = (size_t)(first * w->n) * w->element_bytes;
    if (w->g)
        w->loops->softmax_back_rows(w->out + at, w->x + at, w->g + at, rows, w->n, w->log);
    else
        w->loops->softmax_rows(w->out + at, w->x + at, rows, w->n, w->log);
}

/* A run of columns of one slice [n, inner]. */
static void columns_chunk(void *ctx, int64_t i) {
    const softmax_work *w = ctx;
    int64_t slice = i / w->runs, first = i % w->runs * w->columns_per_chunk,
            left = w->inner - first;
    int64_t columns = left < w->columns_per_chunk ? left : w->columns_per_chunk;
    size_t at = (size_t)(slice * w->n * w->inner + first) * w->element_bytes;
    char *out = w->out + at;
    const char *x = w->x + at;
    if (w->g)
        w->loops->softmax_back_columns(out, x, w->g + at, w->n, w->inner, columns, w->log);
    else
        w->loops->softmax_columns(out, x, w->n, w->inner, columns, w->log);
}

/* Elements that a chunk has at least; and columns, a whole number of those done at a time. */
enum { CHUNK = 16384, COLUMNS = 64 };

static kn_status softmax_run(kn_op_call *call, const kn_tensor *g, bool log) {
    const kn_attr_axes *attr = call->attr;
    const kn_tensor *x = call->in[0];
    softmax_work work = {.loops = kn__loops(x->dtype),
                         .out = call->out[0]->data,
                         .x = x->data,
                         .g = g ? g->data : NULL,
                         .outer = 1,
                         .n = 1,
                         .inner = 1,
                         .element_bytes = kn_dtype_bytes(x->dtype),
                         .log = log};
    int axis = attr->mask ? __builtin_ctz(attr->mask) : 0;
    for (int i = 0; i < x->n_dims; i++) {
        int64_t *size = i < axis ? &work.outer : (i == axis ? &work.n : &work.inner);
        *size *= x->dim[i];
    }
    int64_t lines = work.n ? (CHUNK + work.n - 1) / work.n : 1;
    work.rows_per_chunk = lines;
    work.columns_per_chunk = (lines + COLUMNS - 1) / COLUMNS * COLUMNS;
    work.runs = kn__chunks(work.inner, work.columns_per_chunk);
    if (work.inner == 1)
        kn__parallel_for(call->threads, kn__chunks(work.outer, lines), rows_chunk, &work);
    else
        kn__parallel_for(call->threads, work.outer * work.runs, columns_chunk, &work);
    return KN_OK;
}

kn_status kn__host_softmax(kn_op_call *call) {
    return softmax_run(call, NULL, call->op == KN_OP_logsoftmax);
}
kn_status kn__host_softmax_back(kn_op_call *call) {
    return softmax_run(call, call->in[1], call->op == KN_OP_logsoftmax_back);
}
