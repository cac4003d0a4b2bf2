/* Calls that write into a tensor that exists, which may share memory with their inputs. */
#include <stdio.h>

#include "run.h"
#include "strided.h"

static size_t bytes_of(const kn_tensor *t) {
    return (size_t)t->n * kn_dtype_bytes((kn_dtype)t->dtype);
}

/* Whether input i, which lies in t's memory, would be overwritten before it is read. Kernels read
 * an element before they write the one in its place; only the values of a part may lie anywhere. */
static bool is_spoiled(const kn_op_call *call, int i, const kn_tensor *t) {
    const kn_tensor *x = call->in[i];
    if (!kn__is_whole(x) || x->storage != t->storage) return false;
    const char *p = x->data, *q = t->data;
    if (p == q && x->n == t->n) return call->op == KN_OP_strided_set && i == 1;
    return p < q + bytes_of(t) && q < p + bytes_of(x);
}

static kn_tensor *copy_of(kn_tensor *x) {
    kn_tensor *y = kn_tensor_new(x->storage->device, (kn_dtype)x->dtype, kn_tensor_shape(x));
    return y && kn__overwrite(y, x) == KN_OK ? y : NULL;
}

static kn_status run(kn_op_call *call) { return kn_op_run(call) ? KN_OK : kn_check(); }

static __attribute__((noinline)) kn_status run_on_copies(kn_op_call *call, const kn_tensor *t) {
    KN_FRAME(.record = KN_OFF);
    kn_tensor *in[KN_IN_NAMED];
    for (int i = 0; i < call->n_in; i++) {
        in[i] = is_spoiled(call, i, t) ? copy_of(call->in[i]) : call->in[i];
        if (!in[i]) return kn_check();
    }
    call->in = in;
    return run(call);
}

kn_status kn__run_into(kn_op_call *call, kn_tensor *t) {
    KN_ASSERT(call->n_in <= KN_IN_NAMED);
    KN_TRY(kn_check());
    if (!kn__is_whole(t)) {
        char text[64];
        snprintf(text, sizeof text, "kn_%s: the result", kn_op_name((kn_op)call->op));
        return kn__fail_unreadable(text, t);
    }
    call->out[0] = t;
    call->given = 1;
    for (int i = 0; i < call->n_in; i++) {
        if (is_spoiled(call, i, t)) return run_on_copies(call, t);
    }
    return run(call);
}

kn_status kn__overwrite(kn_tensor *x, kn_tensor *y) {
    kn_attr_strided attr = kn__strided_whole(x);
    kn_op_call call;
    kn_op_call_init(&call, KN_OP_strided, &attr, &y, 1);
    return kn__run_into(&call, x);
}
