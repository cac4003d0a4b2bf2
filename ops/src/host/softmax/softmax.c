/* Softmax and log-softmax over any axis, and their gradients. */
#include "host/base/chunks.h"
#include "host/base/loops.h"
#include "kernel.h"

typedef struct softmax_work {
    const kn__loop_table *loops;
    char *out;
    const char *x, *g; /* forward: x; backward: y and dy */
    int64_t outer, n, inner, rows_per_chunk;
    size_t element_bytes;
    bool log;
} softmax_work;

/* A chunk is a run of rows (inner == 1), or one slice [n, inner]. */
static void softmax_chunk(void *ctx, int64_t i) {
    const softmax_work *w = ctx;
    int64_t first = i * w->rows_per_chunk, left = w->outer - first;
    int64_t rows = left < w->rows_per_chunk ? left : w->rows_per_chunk;
    size_t at = (size_t)(first * w->n * w->inner) * w->element_bytes;
    char *out = w->out + at;
    const char *x = w->x + at, *g = w->g ? w->g + at : NULL;
    if (w->inner == 1 && g)
        w->loops->softmax_back_rows(out, x, g, rows, w->n, w->log);
    else if (w->inner == 1)
        w->loops->softmax_rows(out, x, rows, w->n, w->log);
    else if (g)
        w->loops->softmax_back_columns(out, x, g, w->n, w->inner, w->log);
    else
        w->loops->softmax_columns(out, x, w->n, w->inner, w->log);
}

enum { CHUNK = 16384 }; /* elements a chunk of rows has at least */

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
    work.rows_per_chunk = work.inner > 1 ? 1 : (CHUNK + work.n - 1) / work.n;
    kn__parallel_for(call->threads, kn__chunks(work.outer, work.rows_per_chunk), softmax_chunk,
                     &work);
    return KN_OK;
}

kn_status kn__host_softmax(kn_op_call *call) {
    return softmax_run(call, NULL, call->op == KN_OP_logsoftmax);
}
kn_status kn__host_softmax_back(kn_op_call *call) {
    return softmax_run(call, call->in[1], call->op == KN_OP_logsoftmax_back);
}
