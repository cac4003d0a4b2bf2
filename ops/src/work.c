#include "work.h"

#include <knet/prof_metric.h>

static uint64_t bytes_of(const kn_tensor *t) {
    return (uint64_t)t->n * kn_dtype_bytes((kn_dtype)t->dtype);
}

static bool is_there(const kn_tensor *t) { return t != KN_NONE; }

/* These read as much of their first input as they give. */
static bool picks(const kn_op_call *call) {
    switch ((kn_op)call->op) {
        case KN_OP_slice:
        case KN_OP_strided:
        case KN_OP_index_select:
        case KN_OP_gather:
        case KN_OP_take_along:
            return true;
        default:
            return false;
    }
}

/* Each input read once, each result written once, and read too where it is added to. */
static uint64_t moved_bytes(const kn_op_call *call) {
    uint64_t in = 0, out = 0;
    for (int r = 0; r < call->n_out; r++)
        if (call->want >> r & 1 && call->out[r]) out += bytes_of(call->out[r]);
    for (int i = 0; i < call->n_in; i++) {
        if (!is_there(call->in[i])) continue;
        if (call->in[i]->state == KN_TENSOR_PENDING) continue; /* its chain has a row of its own */
        uint64_t bytes = bytes_of(call->in[i]);
        in += i == 0 && picks(call) && bytes > out ? out : bytes;
    }
    return in + out + (call->accumulate ? out : 0);
}

static int64_t last_dim(const kn_tensor *t, int from_end) {
    return t->n_dims >= from_end ? t->dim[t->n_dims - from_end] : 1;
}

static double per(double n, int64_t of) { return of > 0 ? n / (double)of : 0; }

/* Products and convolutions: two for each product that is summed. Other ops: 0,
 * because moving their data takes more time than the arithmetic. */
static double flops(const kn_op_call *call) {
    const kn_tensor *y = call->out[0];
    if (call->n_in < 2 || !y || !is_there(call->in[0]) || !is_there(call->in[1])) return 0;
    const kn_tensor *a = call->in[0], *b = call->in[1];
    double n_a = (double)a->n, n_b = (double)b->n, n_y = (double)y->n;
    switch ((kn_op)call->op) {
        case KN_OP_matmul: {
            const kn_attr_matmul *attr = call->attr;
            return 2 * n_y * (double)last_dim(a, attr->trans_a ? 2 : 1);
        }
        case KN_OP_linear:
        case KN_OP_linear_act:
            return 2 * n_y * (double)last_dim(a, 1);
        case KN_OP_conv:
        case KN_OP_conv_act: /* y, each from a window of all channels of its group */
            return 2 * n_y * per(n_b, b->dim[0]);
        case KN_OP_conv_data:
            return 2 * n_a * per(n_b, b->dim[0]);
        case KN_OP_conv_weight:
            return 2 * n_b * per(n_y, y->dim[0]);
        case KN_OP_attention: /* q·k of D, and the weights times v */
            return 2 * (n_a + n_y) * (double)last_dim(b, 2);
        default:
            return 0;
    }
}

/* --- who watches --- */

static kn_op_watch_fn watch_fn;
static void *watch_ctx;

void kn_op_watch(kn_op_watch_fn fn, void *ctx) {
    watch_fn = fn;
    watch_ctx = ctx;
}

bool kn__is_watched(void) { return watch_fn != NULL; }
void kn__watch(const kn_op_event *event) { watch_fn(watch_ctx, event); }

static kn_op_event event_of(const kn_op_call *call, uint64_t n_flops, uint64_t n_bytes) {
    kn_op_event e = {.n_ops = 1, .flops = n_flops, .moved_bytes = n_bytes};
    e.name = kn_op_name((kn_op)call->op);
    for (int i = 0; i < call->n_in && e.n_in < KN_OP_EVENT_IN; i++)
        if (is_there(call->in[i])) e.in[e.n_in++] = call->in[i]->storage;
    for (int r = 0; r < call->n_out; r++) {
        const kn_tensor *t = call->want >> r & 1 ? call->out[r] : NULL;
        if (!t || !t->storage) continue;
        e.out[e.n_out++] = t->storage;
        if (call->accumulate >> r & 1 && e.n_in < KN_OP_EVENT_IN) e.in[e.n_in++] = t->storage;
        if (!e.y) e.y = t;
    }
    return e;
}

void kn__end_scope_as(kn_scope *scope, const kn_op_call *call, kn__event_names_fn names,
                      void *ctx) {
    uint64_t n_flops = (uint64_t)flops(call), n_bytes = moved_bytes(call);
    kn_prof_metric(n_flops, n_bytes);
    if (__builtin_expect(kn__is_watched(), 0)) {
        kn_op_event e = event_of(call, n_flops, n_bytes);
        if (names) names(ctx, &e);
        kn__watch(&e);
    }
    kn_scope_end(scope);
}

void kn__end_scope(kn_scope *scope, const kn_op_call *call) {
    kn__end_scope_as(scope, call, NULL, NULL);
}
