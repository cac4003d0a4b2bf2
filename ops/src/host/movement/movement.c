/* Movement: copies in another order, of any dtype, by the size of an element. */
#include <string.h>

#include "host/base/chunks.h"
#include "host/base/walk.h"
#include "host/movement/strided.h"
#include "host/pointwise/rows.h"
#include "kernel.h"

enum { GRAIN_BYTES = 1 << 17 };

static size_t element(const kn_tensor *t) { return kn_dtype_bytes((kn_dtype)t->dtype); }

/* --- broadcast --- */

typedef struct broadcast_job {
    char *out;
    const char *x;
    const kn__row_loops *add; /* NULL: copy */
    size_t bytes;
    int64_t n, grain;
    kn__walk walk;
} broadcast_job;

static void broadcast_add_row(const void *ctx, int64_t at, const int64_t from[], int64_t n) {
    const broadcast_job *j = ctx;
    char *out = j->out + (size_t)at * j->bytes;
    const char *x = j->x + (size_t)from[0] * j->bytes;
    (j->walk.step[0] ? j->add->f : j->add->vs)(out, (const void *const[]){out, x}, n, 0, 0, false);
}

/* Short rows are made contiguous first: a call for each would cost more. */
static void broadcast_add(const broadcast_job *j, int64_t from, int64_t to) {
    enum { BLOCK = 1024, SHORT = 64 };
    _Alignas(64) char tile[BLOCK * sizeof(double)];
    if (j->walk.inner >= SHORT) {
        kn__walk_range(&j->walk, from, to, broadcast_add_row, j);
        return;
    }
    for (int64_t n; from < to; from += n) {
        char *out = j->out + (size_t)from * j->bytes;
        n = to - from < BLOCK ? to - from : BLOCK;
        kn__walk_copy(&j->walk, 0, tile, j->x, j->bytes, from, from + n);
        j->add->f(out, (const void *const[]){out, tile}, n, 0, 0, false);
    }
}

static void broadcast_part(void *ctx, int64_t i) {
    const broadcast_job *j = ctx;
    int64_t from = i * j->grain, to = from + j->grain < j->n ? from + j->grain : j->n;
    if (j->add)
        broadcast_add(j, from, to);
    else
        kn__walk_copy(&j->walk, 0, j->out + (size_t)from * j->bytes, j->x, j->bytes, from, to);
}

kn_status kn__host_broadcast(kn_op_call *call) {
    broadcast_job j = {.out = call->out[0]->data,
                       .x = call->in[0]->data,
                       .bytes = element(call->out[0]),
                       .n = call->out[0]->n};
    if (call->accumulate & 1) j.add = kn__row_loops_of((kn_dtype)call->out[0]->dtype, KN_OP_add);
    j.grain = kn__even(j.n, GRAIN_BYTES / (int64_t)j.bytes);
    kn__walk_init(&j.walk, call->out[0], call->in, 1);
    kn__parallel_for(call->threads, kn__chunks(j.n, j.grain), broadcast_part, &j);
    return KN_OK;
}

/* --- boxes: a block of a larger array, copied out of it or into it, or added to it --- */

/* Over all of t; both sides dense for now. */
static kn__strided_copy copy_of(const kn_tensor *t, void *to, const void *from) {
    kn__strided_copy c = {.to = to, .from = from, .dtype = (kn_dtype)t->dtype};
    c.n_dims = t->n_dims;
    for (int i = 0; i < t->n_dims; i++) c.dim[i] = t->dim[i];
    kn__strides(c.to_stride, t);
    kn__strides(c.from_stride, t);
    return c;
}

/* Strides of `whole`, and where in it the block at `start` begins. */
static char *window(int64_t stride[], const kn_tensor *whole, const int64_t start[]) {
    int64_t at = 0;
    kn__strides(stride, whole);
    for (int i = 0; i < whole->n_dims; i++) at += start[i] * stride[i];
    return (char *)whole->data + at * (int64_t)element(whole);
}

kn_status kn__host_slice(kn_op_call *call) {
    const kn_attr_box *attr = call->attr;
    kn__strided_copy c = copy_of(call->out[0], call->out[0]->data, NULL);
    c.from = window(c.from_stride, call->in[0], attr->start);
    c.add = call->accumulate & 1;
    kn__strided_copy_run(call->threads, &c);
    return KN_OK;
}

kn_status kn__host_slice_back(kn_op_call *call) {
    const kn_attr_box *attr = call->attr;
    const kn_tensor *g = call->in[0], *out = call->out[0];
    if (!(call->accumulate & 1)) {
        kn_attr_pad zeros = {.value = 0};
        for (int i = 0; i < g->n_dims; i++) {
            zeros.before[i] = attr->start[i];
            zeros.after[i] = out->dim[i] - attr->start[i] - g->dim[i];
        }
        kn__pad_run(call, &zeros);
        return KN_OK;
    }
    kn__strided_copy c = copy_of(g, NULL, g->data);
    c.to = window(c.to_stride, out, attr->start);
    c.add = true;
    kn__strided_copy_run(call->threads, &c);
    return KN_OK;
}

kn_status kn__host_concat(kn_op_call *call) {
    const kn_attr_concat *attr = call->attr;
    int64_t start[KN_DIMS_MAX] = {0}, axis = attr->axis;
    for (int i = 0; i < call->n_in; i++) {
        const kn_tensor *x = call->in[i];
        if (x->n == 0) continue;
        kn__strided_copy c = copy_of(x, NULL, x->data);
        c.to = window(c.to_stride, call->out[0], start);
        kn__strided_copy_run(call->threads, &c);
        start[axis] += x->dim[axis];
    }
    return KN_OK;
}

/* Each band of rows is its block, with zeros left and right. */
kn_status kn__host_block_diag(kn_op_call *call) {
    const kn_tensor *out = call->out[0];
    int64_t left = 0;
    kn_tensor band = {.dtype = out->dtype, .n_dims = 2, .data = out->data, .dim = {0, out->dim[1]}};
    for (int i = 0; i < call->n_in; i++) {
        const kn_tensor *x = call->in[i];
        kn_op_call part = *call;
        kn_attr_pad zeros = {.before = {0, left}, .after = {0, out->dim[1] - left - x->dim[1]}};
        band.dim[0] = x->dim[0];
        part.in = &call->in[i], part.out[0] = &band;
        kn__pad_run(&part, &zeros);
        band.data = (char *)band.data + x->dim[0] * out->dim[1] * (int64_t)element(out);
        left += x->dim[1];
    }
    return KN_OK;
}
