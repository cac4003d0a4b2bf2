/* Convolution and its gradients: sizes, and the choice between the ways of doing them. */
#include "host/conv/conv.h"

#include <string.h>
#include <time.h>

#include "host/base/chunks.h"
#include "host/base/loops.h"
#include "host/conv/conv_columns.h"
#include "host/conv/conv_direct.h"
#include "host/conv/conv_dnnl.h"
#include "host/conv/conv_layout.h"
#include "host/conv/conv_over.h"
#include "host/conv/conv_route.h"
#include "host/conv/conv_winograd.h"
#include "host/movement/strided.h"
#include "host/pointwise/finish.h"
#include "now.h"
#include "work.h"

/* x [B,C,…], w [O,C/groups,…], y [B,O,…] */
static kn__conv_sizes sizes_of(const kn_attr_conv *attr, const kn_tensor *x, const kn_tensor *w,
                               const kn_tensor *y) {
    kn__conv_sizes s = {.batch = x->dim[0],
                        .groups = attr->groups,
                        .channels = w->dim[1],
                        .outputs = w->dim[0] / attr->groups,
                        .in_plane = 1,
                        .out_plane = 1,
                        .window_size = 1,
                        .flip = attr->flip};
    for (int i = 0; i < 3; i++) {
        int d = i - (3 - attr->n_spatial);
        s.in[i] = d < 0 ? 1 : x->dim[2 + d];
        s.out[i] = d < 0 ? 1 : y->dim[2 + d];
        s.window[i] = d < 0 ? 1 : w->dim[2 + d];
        s.stride[i] = d < 0 ? 1 : attr->stride[d];
        s.padding[i] = d < 0 ? 0 : attr->padding[d];
        s.padding_end[i] = d < 0 ? 0 : attr->padding_end[d];
        s.dilation[i] = d < 0 ? 1 : attr->dilation[d];
        s.in_plane *= s.in[i];
        s.out_plane *= s.out[i];
        s.window_size *= s.window[i];
    }
    return s;
}

/* --- what follows the sums --- */

kn__conv_epilogue kn__conv_finish_of(const kn_op_call *call) {
    const kn_attr_conv *attr = call->attr;
    kn__conv_epilogue f = {.dtype = (kn_dtype)call->out[0]->dtype, .y = call->out[0]->data};
    if (call->op != KN_OP_conv_act) return f;
    f.act = (kn_act)attr->act;
    if (call->in[3] != KN_NONE) f.residual = call->in[3]->data;
    return f;
}

void kn__conv_finish(const kn__conv_epilogue *f, int64_t first, int64_t n) {
    size_t at = (size_t)first * kn_dtype_bytes(f->dtype);
    const char *residual = f->residual ? f->residual + at : NULL;
    kn__finish_run(f->dtype, f->act, f->y + at, residual, n);
}

enum { FINISH_CHUNK = 16384 };
typedef struct finish_work {
    const kn__conv_epilogue *f;
    int64_t n;
} finish_work;

static void finish_body(void *ctx, int64_t i) {
    const finish_work *k = ctx;
    int64_t first = i * FINISH_CHUNK, left = k->n - first;
    kn__conv_finish(k->f, first, left < FINISH_CHUNK ? left : FINISH_CHUNK);
}

void kn__conv_finish_all(const kn__conv_epilogue *f, const kn_op_call *call) {
    if (!f->act && !f->residual) return;
    int64_t n = call->out[0]->n;
    kn__parallel_for(call->threads, kn__chunks(n, FINISH_CHUNK), finish_body, &(finish_work){f, n});
}

/* --- dx over dy --- */

bool kn__conv_is_over(const kn_op_call *call) { return call->in[0]->data == call->out[0]->data; }

kn_status kn__conv_dy_apart(const char **out, kn_op_call *call) {
    const kn_tensor *dy = call->in[0];
    size_t bytes = (size_t)dy->n * kn_dtype_bytes((kn_dtype)dy->dtype);
    void *copy = NULL;
    *out = dy->data;
    if (!kn__conv_is_over(call)) return KN_OK;
    KN_TRY(kn__work(&copy, call, bytes));
    memcpy(copy, dy->data, bytes);
    *out = copy;
    return KN_OK;
}

/* --- the choice --- */

typedef kn_status (*conv_fn)(kn_op_call *call, const kn__conv_sizes *s);

/* in: x, w, b */
static kn_status our_forward(kn_op_call *call, const kn__conv_sizes *s) {
    const kn_tensor *x = call->in[0], *w = call->in[1];
    const kn_tensor *b = call->in[2] == KN_NONE ? NULL : call->in[2];
    return kn__direct_fits(s, (kn_dtype)x->dtype) ? kn__direct_conv(call, s, x, w, b)
                                                  : kn__columns_conv(call, s, x, w, b);
}

/* in: dy, w */
static kn_status our_data(kn_op_call *call, const kn__conv_sizes *s) {
    const kn_tensor *dy = call->in[0], *w = call->in[1];
    return kn__direct_fits(s, (kn_dtype)w->dtype) ? kn__direct_conv_data(call, s, dy, w)
                                                  : kn__columns_conv_data(call, s, dy, w);
}

/* in: x, dy */
static kn_status our_weight(kn_op_call *call, const kn__conv_sizes *s) {
    const kn_tensor *x = call->in[0], *dy = call->in[1];
    return kn__direct_fits_weight(s) ? kn__direct_conv_weight(call, s, x, dy)
                                     : kn__columns_conv_weight(call, s, x, dy);
}

static kn_status ours(kn_op_call *call, kn__conv_pass pass, const kn__conv_sizes *s) {
    static const conv_fn fn[] = {our_forward, our_data, our_weight};
    return fn[pass](call, s);
}

/* Where the library has nothing fast, our own kernels follow. */
static kn_status run_way(kn_op_call *call, kn__conv_pass pass, const kn__conv_sizes *s,
                         kn__conv_route way) {
    bool done = false;
    if (way == KN_CONV_WINOGRAD && kn__winograd_fits(s)) return kn__winograd_conv(call, pass, s, 0);
    if (way != KN_CONV_OURS && !done) KN_TRY(kn__dnnl_conv(&done, call, pass, s, 0));
    return done ? KN_OK : ours(call, pass, s);
}

/* The second of two runs: the first one makes plans and fills caches. */
static kn_status time_way(uint64_t *out_ns, kn_op_call *call, kn__conv_pass pass,
                          const kn__conv_sizes *s, kn__conv_route way) {
    for (int i = 0; i < 2; i++) {
        uint64_t start = kn__now_ns(CLOCK_MONOTONIC);
        KN_TRY(run_way(call, pass, s, way));
        *out_ns = kn__now_ns(CLOCK_MONOTONIC) - start;
        kn__work_end(call, 0);
    }
    return KN_OK;
}

static kn_status measure(kn__conv_route *out, kn_op_call *call, kn__conv_pass pass,
                         const kn__conv_sizes *s) {
    KN_SCOPE("measure routes");
    uint64_t least_ns = UINT64_MAX, ns = 0;
    for (int way = KN_CONV_OURS; way <= KN_CONV_WINOGRAD; way++) {
        KN_TRY(time_way(&ns, call, pass, s, (kn__conv_route)way));
        if (ns >= least_ns) continue;
        least_ns = ns;
        *out = (kn__conv_route)way;
    }
    kn__conv_note(call, pass, s, *out);
    return KN_OK;
}

static kn_status run(kn_op_call *call, kn__conv_pass pass, const kn__conv_sizes *s) {
    kn__conv_route way = KN_CONV_OURS;
    KN_TRY(kn__conv_way(&way, call, pass, s));
    if (way == KN_CONV_MEASURED) KN_TRY(measure(&way, call, pass, s));
    return run_way(call, pass, s, way);
}

/* --- the passes --- */

static void zero_result(const kn_op_call *call) {
    const kn_tensor *out = call->out[0];
    kn__zero_bytes(call->threads, out->data, (size_t)out->n * kn_dtype_bytes((kn_dtype)out->dtype));
}

/* By the library where it has bf16 for these sizes; else as f32. */
static kn_status half(kn_op_call *call, kn__conv_pass pass, const kn__conv_sizes *s,
                      kn_kernel_fn kernel) {
    bool done = false, takes = false;
    KN_TRY(kn__conv_takes_bf16(&takes, call, pass, s));
    if (takes) KN_TRY(kn__dnnl_conv(&done, call, pass, s, 0));
    return done ? KN_OK : kn__widened(call, kernel);
}

kn_status kn__host_conv(kn_op_call *call) {
    kn__conv_sizes s = sizes_of(call->attr, call->in[0], call->in[1], call->out[0]);
    if (kn__is_half(call->dtype)) return half(call, KN_PASS_FORWARD, &s, kn__host_conv);
    return run(call, KN_PASS_FORWARD, &s);
}

kn_status kn__host_conv_blocks(bool *taken, kn_op_call *call, bool from_blocks, bool frozen) {
    kn__conv_sizes s = sizes_of(call->attr, call->in[0], call->in[1], call->out[0]);
    unsigned flags = KN_PLAN_TO_BLOCKS | (from_blocks ? KN_PLAN_FROM_BLOCKS : 0) |
                     (frozen ? KN_PLAN_RELU | KN_PLAN_KEEP : 0);
    bool winograd = false;
    if (call->in[0]->dtype == KN_F32 && kn__layout_block() == KN_WINOGRAD_BLOCK)
        KN_TRY(kn__conv_winograd_pays(&winograd, &s));
    if (winograd) {
        *taken = true;
        return kn__winograd_conv(call, KN_PASS_FORWARD, &s, flags);
    }
    *taken = false;
    return kn__dnnl_conv(taken, call, KN_PASS_FORWARD, &s, flags);
}

kn_status kn__host_conv_data(kn_op_call *call) {
    const kn_tensor *dy = call->in[0];
    kn__conv_sizes s = sizes_of(call->attr, call->out[0], call->in[1], dy);
    if (dy->n > 0 && kn__is_half(call->dtype))
        return half(call, KN_PASS_DATA, &s, kn__host_conv_data);
    if (dy->n > 0) return run(call, KN_PASS_DATA, &s);
    zero_result(call);
    return KN_OK;
}

kn_status kn__host_conv_weight(kn_op_call *call) {
    const kn_tensor *x = call->in[0], *dy = call->in[1];
    kn__conv_sizes s = sizes_of(call->attr, x, call->out[0], dy);
    if (x->n > 0 && dy->n > 0 && kn__is_half(call->dtype))
        return half(call, KN_PASS_WEIGHT, &s, kn__host_conv_weight);
    if (x->n > 0 && dy->n > 0) return run(call, KN_PASS_WEIGHT, &s);
    if (!(call->accumulate & 1)) zero_result(call);
    return KN_OK;
}
