/* Matrix products. */
#include "run.h"

/* --- matmul: matrices, or equally many of them --- */

static bool batches_fit(const kn_op_call *call) {
    const kn_tensor *a = call->in[0], *b = call->in[1];
    if (a->n_dims < 2 || b->n_dims != a->n_dims) {
        return kn_op_call_fail(call, KN_ERR_SHAPE,
                               "both must have two dimensions, or equally many of which all but "
                               "the last two are alike");
    }
    for (int i = 0; i < a->n_dims - 2; i++) {
        if (a->dim[i] == b->dim[i]) continue;
        return kn_op_call_fail(call, KN_ERR_SHAPE, "dimension %d of the batch is %lld and %lld", i,
                               (long long)a->dim[i], (long long)b->dim[i]);
    }
    return true;
}

bool kn__infer_matmul(kn_op_call *call) {
    const kn_attr_matmul *attr = call->attr;
    if (!batches_fit(call)) return false;
    const kn_tensor *a = call->in[0], *b = call->in[1];
    int rows = a->n_dims - 2;
    int64_t m = a->dim[rows + (attr->trans_a ? 1 : 0)], k = a->dim[rows + (attr->trans_a ? 0 : 1)],
            k_b = b->dim[rows + (attr->trans_b ? 1 : 0)],
            n = b->dim[rows + (attr->trans_b ? 0 : 1)];
    if (k != k_b) {
        return kn_op_call_fail(call, KN_ERR_SHAPE, "a%s has %lld columns, b%s has %lld rows",
                               attr->trans_a ? " transposed" : "", (long long)k,
                               attr->trans_b ? " transposed" : "", (long long)k_b);
    }
    int64_t dim[KN_DIMS_MAX];
    for (int i = 0; i < rows; i++) dim[i] = a->dim[i];
    dim[rows] = m;
    dim[rows + 1] = n;
    return kn__shaped(call, 0, rows + 2, dim);
}

kn_tensor *(kn_matmul)(kn_tensor *a, kn_tensor *b, const kn_matmul_options *options) {
    kn_attr_matmul attr = {0, 0};
    for (int i = 0; options && i < 4; i++) {
        if (!options->reserved[i]) continue;
        return kn_op_fail(KN_OP_matmul, KN_ERR_INVALID, "reserved[%d] is not zero", i);
    }
    if (options) attr = (kn_attr_matmul){options->trans_a != 0, options->trans_b != 0};
    return KN_CALL(matmul, &attr, a, b);
}

/* --- linear --- */

bool kn__infer_linear(kn_op_call *call) {
    const kn_tensor *x = call->in[0], *w = call->in[1], *b = call->in[2];
    if (x->n_dims < 1 || w->n_dims != 2) {
        return kn_op_call_fail(call, KN_ERR_SHAPE, "x must be [...,I] and w [O,I]");
    }
    int64_t inputs = x->dim[x->n_dims - 1];
    if (w->dim[1] != inputs) {
        return kn_op_call_fail(call, KN_ERR_SHAPE, "x has %lld features, w expects %lld",
                               (long long)inputs, (long long)w->dim[1]);
    }
    if (b != &kn__none && (b->n_dims != 1 || b->dim[0] != w->dim[0])) {
        return kn_op_call_fail(call, KN_ERR_SHAPE, "b must be [%lld]", (long long)w->dim[0]);
    }
    int64_t dim[KN_DIMS_MAX];
    for (int i = 0; i < x->n_dims; i++) dim[i] = x->dim[i];
    dim[x->n_dims - 1] = w->dim[0];
    return kn__shaped(call, 0, x->n_dims, dim);
}

kn_tensor *(kn_linear)(kn_tensor *x, kn_tensor *w, kn_tensor *b) {
    return KN_CALL(linear, NULL, x, w, b);
}
