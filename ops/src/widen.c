/* Kernels of f32 for calls of f16 and bf16. */
#include <string.h>

#include "run.h"

enum { ALIGNMENT_BYTES = 256 };

/* One piece of work space, cut up. */
typedef struct space {
    char *data;
    size_t used_bytes;
} space;

static size_t bytes_of(const kn_tensor *t) {
    size_t bytes = (size_t)t->n * sizeof(float);
    return (bytes + ALIGNMENT_BYTES - 1) / ALIGNMENT_BYTES * ALIGNMENT_BYTES;
}

static bool is_half(const kn_tensor *t) { return t && t != &kn__none && kn__is_half(t->dtype); }

static void header(kn_tensor *wide, kn_tensor *t, space *s) {
    memset(wide, 0, sizeof *wide);
    wide->dtype = KN_F32;
    wide->n_dims = t->n_dims;
    wide->n = t->n;
    wide->storage = t->storage;
    memcpy(wide->dim, t->dim, sizeof wide->dim);
    wide->data = s->data + s->used_bytes;
    s->used_bytes += bytes_of(t);
}

static kn_status cast(const kn_op_call *call, kn_tensor *to, kn_tensor *from) {
    if (to->n == 0) return KN_OK;
    kn_attr_cast attr = {to->dtype};
    kn_kernel_fn kernel = kn__device_kernel(call->device, KN_OP_cast);
    if (!kernel) return kn_last_error()->status;
    kn_op_call c = *call;
    c.op = KN_OP_cast;
    c.attr = &attr;
    c.in = &from;
    c.n_in = c.n_out = c.want = 1;
    c.given = c.accumulate = c.n_work = 0;
    c.out[0] = to;
    return kernel(&c);
}

static size_t space_wanted(const kn_op_call *call) {
    size_t bytes = 0;
    for (int i = 0; i < call->n_in; i++) bytes += is_half(call->in[i]) ? bytes_of(call->in[i]) : 0;
    for (unsigned left = call->want; left; left &= left - 1) {
        const kn_tensor *t = call->out[__builtin_ctz(left)];
        bytes += is_half(t) ? bytes_of(t) : 0;
    }
    return bytes;
}

/* The call's inputs, and the results that are added to, in f32. */
static kn_status widen(kn_op_call *wide, const kn_op_call *call, kn_tensor in[], kn_tensor *list[],
                       kn_tensor out[], space *s) {
    for (int i = 0; i < call->n_in; i++) {
        list[i] = call->in[i];
        if (!is_half(call->in[i])) continue;
        header(&in[i], call->in[i], s);
        KN_TRY(cast(call, &in[i], call->in[i]));
        list[i] = &in[i];
    }
    for (unsigned left = call->want; left; left &= left - 1) {
        int r = __builtin_ctz(left);
        if (!is_half(call->out[r])) continue;
        header(&out[r], call->out[r], s);
        if (call->accumulate >> r & 1) KN_TRY(cast(call, &out[r], call->out[r]));
        wide->out[r] = &out[r];
    }
    return KN_OK;
}

kn_status kn__widened(kn_op_call *call, kn_kernel_fn kernel) {
    kn_tensor in[KN_IN_NAMED], *list[KN_IN_NAMED], out[KN_OUT_MAX];
    KN_ASSERT(call->n_in <= KN_IN_NAMED);
    void *data = NULL;
    size_t bytes = space_wanted(call);
    KN_TRY(kn__work(&data, call, bytes ? bytes : 1)); /* no tensor has NULL for its data */
    space s = {.data = data};
    kn_op_call wide = *call;
    wide.dtype = KN_F32;
    wide.in = list;
    wide.n_work = 0; /* its own pieces */
    KN_TRY(widen(&wide, call, in, list, out, &s));
    kn_status status = kernel(&wide);
    kn__work_end(&wide, 0);
    for (unsigned left = call->want; left && status == KN_OK; left &= left - 1) {
        int r = __builtin_ctz(left);
        if (wide.out[r] != call->out[r]) status = cast(call, call->out[r], wide.out[r]);
    }
    return status;
}
