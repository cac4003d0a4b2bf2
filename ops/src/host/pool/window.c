/* Pooling over windows, one to three spatial dimensions. */
#include "host/pool/window.h"

#include "host/base/chunks.h"
#include "host/base/loops.h"
#include "host/base/slots.h"
#include "kernel.h"

typedef void (*plane_fn)(const kn__pool_window *w, void *to, const void *from, uint8_t *offsets);

typedef struct window_work {
    kn__pool_window window;
    plane_fn plane;
    const char *from;
    char *to;
    uint8_t *offsets; /* NULL: no offsets wanted */
    size_t from_bytes, to_bytes;
    int64_t planes_per_chunk;
} window_work;

enum { CHUNK = 32768 }; /* elements of x that a chunk has at least */

static kn__pool_window window_of(const kn_attr_pool *attr, const kn_tensor *x, const kn_tensor *y) {
    kn__pool_window w = {.planes = 1, .in_plane = 1, .out_plane = 1};
    int lead = x->n_dims - attr->n_spatial;
    bool tight = true; /* no gap, no element outside of x */
    w.tiles = true;
    for (int i = 0; i < lead; i++) w.planes *= x->dim[i];
    for (int i = 0; i < 3; i++) {
        int s = i - (3 - attr->n_spatial);
        w.in[i] = s < 0 ? 1 : x->dim[lead + s];
        w.out[i] = s < 0 ? 1 : y->dim[lead + s];
        w.size[i] = s < 0 ? 1 : attr->window[s];
        w.stride[i] = s < 0 ? 1 : attr->stride[s];
        w.padding[i] = s < 0 ? 0 : attr->padding[s];
        w.dilation[i] = s < 0 ? 1 : attr->dilation[s];
        tight &= w.stride[i] && !w.padding[i] && w.dilation[i] == 1 &&
                 (w.out[i] - 1) * w.stride[i] + w.size[i] <= w.in[i];
        w.tiles &= w.stride[i] == w.size[i] && w.in[i] == w.out[i] * w.size[i];
        w.in_plane *= w.in[i];
        w.out_plane *= w.out[i];
    }
    w.tiles &= tight;
    w.inside = attr->inside == 1;
    w.sums = attr->inside == 2;
    w.skip_nan = attr->skip_nan != 0;
    w.is_2x2 = tight && !w.skip_nan && w.size[0] == 1 && w.stride[0] == 1 && w.size[1] == 2 &&
               w.stride[1] == 2 && w.size[2] == 2 && w.stride[2] == 2;
    return w;
}

static void window_chunk(void *ctx, int64_t i) {
    const window_work *work = ctx;
    int64_t p = i * work->planes_per_chunk, end = p + work->planes_per_chunk;
    for (; p < end && p < work->window.planes; p++)
        work->plane(&work->window, work->to + (size_t)p * work->to_bytes,
                    work->from + (size_t)p * work->from_bytes,
                    work->offsets ? work->offsets + p * work->window.out_plane : NULL);
}

/* x and y: the large and the small tensor; `from` is whichever is read, call->out[0] the other. */
static kn_status window_run(kn_op_call *call, const kn_tensor *x, const kn_tensor *y,
                            const kn_tensor *offsets, plane_fn plane) {
    window_work work = {.window = window_of(call->attr, x, y),
                        .plane = plane,
                        .from = call->in[0]->data,
                        .to = call->out[0]->data,
                        .offsets = offsets ? offsets->data : NULL};
    size_t element_bytes = kn_dtype_bytes(x->dtype);
    size_t x_bytes = (size_t)work.window.in_plane * element_bytes;
    size_t y_bytes = (size_t)work.window.out_plane * element_bytes;
    work.from_bytes = call->out[0] == x ? y_bytes : x_bytes;
    work.to_bytes = call->out[0] == x ? x_bytes : y_bytes;
    work.planes_per_chunk = kn__chunks(CHUNK, work.window.in_plane);
    kn__parallel_for(call->threads, kn__chunks(work.window.planes, work.planes_per_chunk),
                     window_chunk, &work);
    return KN_OK;
}

kn_status kn__host_maxpool(kn_op_call *call) {
    if (kn__is_half(call->dtype)) return kn__widened(call, kn__host_maxpool);
    return window_run(call, call->in[0], call->out[0], call->out[1],
                      kn__loops(call->out[0]->dtype)->maxpool_plane);
}

typedef struct blocks_work {
    kn__pool_window window;
    void (*blocks)(const kn__pool_window *w, void *y, const void *x);
    char *y;
    const char *x;
    size_t lane_bytes; /* of a block's place */
    int64_t block;
    kn__slots slots; /* bf16: both as f32 */
} blocks_work;

static void blocks_body(void *ctx, int64_t i) {
    const blocks_work *k = ctx;
    size_t lanes = (size_t)i * k->lane_bytes;
    k->blocks(&k->window, k->y + lanes * (size_t)k->window.out_plane,
              k->x + lanes * (size_t)k->window.in_plane);
}

/* The loops know f32 alone. */
static void blocks_bf16(void *ctx, int64_t i) {
    blocks_work *k = ctx;
    const kn__loop_table *loops = kn__loops(KN_F32);
    int64_t n = k->window.in_plane * k->block, n_out = k->window.out_plane * k->block;
    float *x = kn__slot_take(&k->slots), *y = x + n;
    loops->cast_from(x, k->x + (size_t)(i * n) * sizeof(uint16_t), KN_BF16, n);
    k->blocks(&k->window, y, x);
    loops->cast_to(k->y + (size_t)(i * n_out) * sizeof(uint16_t), y, KN_BF16, n_out);
    kn__slot_give(&k->slots, x);
}

kn_status kn__host_pool_blocks(kn_op_call *call, int64_t block) {
    const kn_tensor *x = call->in[0], *y = call->out[0];
    const kn__loop_table *loops = kn__loops(KN_F32);
    blocks_work k = {
        .window = window_of(call->attr, x, y),
        .blocks = call->op == KN_OP_maxpool ? loops->maxpool_blocks : loops->avgpool_blocks,
        .y = y->data,
        .x = x->data,
        .lane_bytes = (size_t)block * sizeof(float),
        .block = block};
    int64_t n = k.window.planes / block;
    if (x->dtype == KN_F32) {
        kn__parallel_for(call->threads, n, blocks_body, &k);
        return KN_OK;
    }
    size_t bytes = (size_t)(k.window.in_plane + k.window.out_plane) * k.lane_bytes;
    KN_TRY(kn__slots_create(&k.slots, call, n, bytes));
    kn__parallel_for(k.slots.n, n, blocks_bf16, &k);
    return KN_OK;
}

kn_status kn__host_maxpool_back(kn_op_call *call) {
    if (kn__is_half(call->dtype)) return kn__widened(call, kn__host_maxpool_back);
    return window_run(call, call->out[0], call->in[0], call->in[1],
                      kn__loops(call->out[0]->dtype)->maxpool_back_plane);
}
kn_status kn__host_maxpool_take(kn_op_call *call) {
    if (kn__is_half(call->dtype)) return kn__widened(call, kn__host_maxpool_take);
    return window_run(call, call->in[0], call->out[0], call->in[1],
                      kn__loops(call->out[0]->dtype)->maxpool_take_plane);
}
kn_status kn__host_avgpool(kn_op_call *call) {
    if (kn__is_half(call->dtype)) return kn__widened(call, kn__host_avgpool);
    return window_run(call, call->in[0], call->out[0], NULL,
                      kn__loops(call->out[0]->dtype)->avgpool_plane);
}
kn_status kn__host_avgpool_back(kn_op_call *call) {
    if (kn__is_half(call->dtype)) return kn__widened(call, kn__host_avgpool_back);
    return window_run(call, call->out[0], call->in[0], NULL,
                      kn__loops(call->out[0]->dtype)->avgpool_back_plane);
}
