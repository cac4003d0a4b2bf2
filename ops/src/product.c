/* Matrix products. */
#include "run.h"

/* A product over no elements is zero; the kernels get none. */
static kn_tensor *of_nothing(kn_op_call *call) {
    if (call->out) return call->out; /* adds nothing */
    kn_attr_scalars attr = {0, 0};
    kn_op_call fill = {.op = KN_OP_fill,
                       .attr = &attr,
                       .attr_bytes = sizeof attr,
                       .dtype = call->dtype,
                       .shape = call->shape,
                       .device = call->in[0]->storage->device};
    return kn_op_run(&fill);
}

static kn_tensor *matmul(kn_tensor *a, kn_tensor *b, const kn_attr_matmul *attr, kn_tensor *into) {
    const kn_op op = KN_OP_matmul;
    kn_tensor *in[] = {a, b, into};
    if (!kn__floats_check(op, "a b into", in, into ? 3 : 2, 0)) return NULL;
    if (a->n_dims != 2 || b->n_dims != 2) {
        return kn__fail_inputs(op, "a b", in, 2, KN_ERR_SHAPE, "both must have two dimensions");
    }
    int64_t m = a->dim[attr->trans_a ? 1 : 0], k = a->dim[attr->trans_a ? 0 : 1],
            k_b = b->dim[attr->trans_b ? 1 : 0], n = b->dim[attr->trans_b ? 0 : 1];
    if (k != k_b) {
        return kn__fail_inputs(op, "a b", in, 2, KN_ERR_SHAPE,
                               "a%s has %lld columns, b%s has %lld rows",
                               attr->trans_a ? " transposed" : "", (long long)k,
                               attr->trans_b ? " transposed" : "", (long long)k_b);
    }
    if (into && into->n != m * n) {
        return kn__fail_inputs(op, "a b into", in, 3, KN_ERR_SHAPE,
                               "the product does not fit into");
    }
    kn_op_call call = {.op = op,
                       .n_in = 2,
                       .in = in,
                       .out = into,
                       .attr = attr,
                       .attr_bytes = sizeof *attr,
                       .dtype = (kn_dtype)a->dtype,
                       .shape = {{m, n}, 2},
                       .accumulate = into != NULL};
    return k == 0 ? of_nothing(&call) : kn_op_run(&call);
}

kn_tensor *(kn_matmul)(kn_tensor *a, kn_tensor *b) {
    kn_attr_matmul attr = {false, false};
    return matmul(a, b, &attr, NULL);
}

kn_tensor *kn_matmul_trans(kn_tensor *a, kn_tensor *b, bool trans_a, bool trans_b,
                           kn_tensor *into) {
    kn_attr_matmul attr = {trans_a, trans_b};
    return matmul(a, b, &attr, into);
}

kn_tensor *(kn_linear)(kn_tensor *x, kn_tensor *w, kn_tensor *b) {
    const kn_op op = KN_OP_linear;
    kn_tensor *in[] = {x, w, b};
    if (!kn__floats_check(op, "x w b", in, 3, 1u << 2)) return NULL;
    if (x->n_dims < 1 || w->n_dims != 2) {
        return kn__fail_inputs(op, "x w b", in, 3, KN_ERR_SHAPE, "x must be [...,I] and w [O,I]");
    }
    int64_t inputs = x->dim[x->n_dims - 1];
    if (w->dim[1] != inputs) {
        return kn__fail_inputs(op, "x w b", in, 3, KN_ERR_SHAPE,
                               "x has %lld features, w expects %lld", (long long)inputs,
                               (long long)w->dim[1]);
    }
    if (b != &kn__none && (b->n_dims != 1 || b->dim[0] != w->dim[0])) {
        return kn__fail_inputs(op, "x w b", in, 3, KN_ERR_SHAPE, "b must be [%lld]",
                               (long long)w->dim[0]);
    }
    kn_op_call call = {
        .op = op, .n_in = 3, .in = in, .dtype = (kn_dtype)x->dtype, .shape = kn_tensor_shape(x)};
    call.shape.dim[x->n_dims - 1] = w->dim[0];
    if (inputs) return kn_op_run(&call);
    if (b == &kn__none) return of_nothing(&call);
    /* Never b itself: the caller may write to its result. */
    return x->n_dims == 1 ? (kn_affine)(b, 1, 0) : (kn_broadcast)(b, call.shape);
}
