/* Matrix products. */
#include "fuse.h"
#include "modes.h"
#include "run.h"

/* --- matmul: matrices, or equally many of them --- */

/* The leading dimensions of both, broadcast; -1: they don't fit, the error is pending. */
static int batch_of(int64_t dim[KN_DIMS_MAX], const kn_op_call *call) {
    const kn_tensor *a = call->in[0], *b = call->in[1];
    if (a->n_dims < 2 || b->n_dims < 2) {
        kn_op_call_fail(call, KN_ERR_SHAPE, "both must have two dimensions or more");
        return -1;
    }
    int n = (a->n_dims > b->n_dims ? a->n_dims : b->n_dims) - 2;
    for (int i = 0; i < n; i++) {
        int in_a = i - n + a->n_dims - 2, in_b = i - n + b->n_dims - 2;
        int64_t p = in_a < 0 ? 1 : a->dim[in_a], q = in_b < 0 ? 1 : b->dim[in_b];
        dim[i] = p == 1 ? q : p;
        if (p == q || p == 1 || q == 1) continue;
        kn_op_call_fail(call, KN_ERR_SHAPE, "dimension %d of the batch is %lld and %lld", i,
                        (long long)p, (long long)q);
        return -1;
    }
    return n;
}

bool kn__infer_matmul(kn_op_call *call) {
    const kn_attr_matmul *attr = call->attr;
    int64_t dim[KN_DIMS_MAX];
    int batch = batch_of(dim, call);
    if (batch < 0) return false;
    const kn_tensor *a = call->in[0], *b = call->in[1];
    const int64_t *of_a = &a->dim[a->n_dims - 2], *of_b = &b->dim[b->n_dims - 2];
    int64_t m = of_a[attr->trans_a ? 1 : 0], k = of_a[attr->trans_a ? 0 : 1];
    int64_t k_b = of_b[attr->trans_b ? 1 : 0], n = of_b[attr->trans_b ? 0 : 1];
    if (k != k_b) {
        return kn_op_call_fail(call, KN_ERR_SHAPE, "a%s has %lld columns, b%s has %lld rows",
                               attr->trans_a ? " transposed" : "", (long long)k,
                               attr->trans_b ? " transposed" : "", (long long)k_b);
    }
    dim[batch] = m;
    dim[batch + 1] = n;
    return kn__shaped(call, 0, batch + 2, dim);
}

/* Matrices times one matrix are one taller product. */
static kn_tensor *stacked_rows(kn_tensor *a, kn_tensor *b, kn_attr_matmul *attr) {
    kn_shape shape = kn_tensor_shape(a);
    int64_t columns = shape.dim[shape.n_dims - 1], n = b->dim[attr->trans_b ? 0 : 1];
    if (columns == 0) return KN_CALL(matmul, attr, a, b);
    kn_tensor *c = KN_CALL(matmul, attr, kn_reshape(a, KN_SHAPE(a->n / columns, columns)), b);
    shape.dim[shape.n_dims - 1] = n;
    return c ? kn_reshape(c, shape) : NULL;
}

static bool options_read(kn_attr_matmul *attr, kn_op op, const kn_matmul_options *o) {
    int trans_a = o->trans_a, trans_b = o->trans_b;
    if (!kn__reserved_fit(op, 0, o->reserved, 4) || !kn__flag_fit(op, "trans_a", &trans_a) ||
        !kn__flag_fit(op, "trans_b", &trans_b))
        return false;
    *attr = (kn_attr_matmul){(uint32_t)trans_a, (uint32_t)trans_b};
    return true;
}

kn_tensor *kn_matmul(kn_tensor *a, kn_tensor *b, const kn_matmul_options *options) {
    kn_attr_matmul attr = {0, 0};
    if (options && !options_read(&attr, KN_OP_matmul, options)) return NULL;
    bool stacks = kn__is_whole(a) && kn__is_whole(b) && a->n_dims > 2 && b->n_dims == 2 &&
                  !attr.trans_a && a->dim[a->n_dims - 1] == b->dim[attr.trans_b ? 1 : 0];
    return stacks ? stacked_rows(a, b, &attr) : KN_CALL(matmul, &attr, a, b);
}

/* --- products that are views of matmul and of pointwise ops --- */

kn_tensor *kn_mv(kn_tensor *a, kn_tensor *x) {
    KN__AS("mv", "a", "x");
    kn_op_call call;
    kn_op_call_init(&call, KN_OP_matmul, NULL, KN_LIST_(a, x), 2);
    if (!kn__check_inputs(&call)) return NULL;
    kn_shape shape = kn_tensor_shape(x);
    if (shape.n_dims < 1 || shape.n_dims == KN_DIMS_MAX) {
        kn_op_call_fail(&call, KN_ERR_SHAPE, "x must have 1 to %d dimensions", KN_DIMS_MAX - 1);
        return NULL;
    }
    if (a->n_dims < 2) {
        kn_op_call_fail(&call, KN_ERR_SHAPE, "a must be [...,M,N]");
        return NULL;
    }
    int64_t columns = a->dim[a->n_dims - 1], n = shape.dim[shape.n_dims - 1];
    if (columns != n) {
        kn_op_call_fail(&call, KN_ERR_SHAPE, "a has %lld columns, x has %lld elements",
                        (long long)columns, (long long)n);
        return NULL;
    }
    shape.dim[shape.n_dims++] = 1;
    kn_tensor *y = kn_matmul(a, kn_reshape(x, shape), NULL);
    if (!y) return NULL;
    shape = kn_tensor_shape(y);
    shape.n_dims--;
    return kn_reshape(y, shape);
}

bool kn__fuse_begin(void) {
    kn__ops_thread *self = kn__ops_thread_get();
    kn__frame *frame = self ? self->frame : NULL;
    bool before = frame && frame->fuse;
    if (frame) frame->fuse = kn__mode_fuse() != KN__MODE_NEVER;
    return before;
}

void kn__fuse_end(bool before) {
    kn__frame *frame = kn__ops_self ? kn__ops_self->frame : NULL;
    if (frame) frame->fuse = before;
}

/* Of 16 bits in f32: a product may not fit them where the sum does. */
kn_tensor *kn__sum_of_products(kn_tensor *a, kn_tensor *b, uint32_t mask) {
    if (!a || !b) return kn_mul(a, b);
    kn_dtype dtype = (kn_dtype)a->dtype;
    bool widens = kn__is_half(dtype) && b->dtype == dtype, before = kn__fuse_begin();
    if (widens) a = kn_cast(a, KN_F32), b = kn_cast(b, KN_F32);
    kn_tensor *product = kn_mul(a, b);
    kn__fuse_end(before);
    kn_tensor *sum = product ? kn_sum_mask(product, mask, false) : NULL;
    return sum && widens && !kn_frame_autocast() ? kn_cast(sum, dtype) : sum;
}

kn_tensor *kn_dot(kn_tensor *a, kn_tensor *b) {
    KN__AS("dot");
    if (!kn__check_readable(KN_OP_matmul, KN_LIST_(a, b), 2)) return NULL;
    if (!kn__same_shape(a, b)) {
        char p[256], q[256];
        return kn_op_fail(KN_OP_matmul, KN_ERR_SHAPE, "a %s and b %s differ in shape",
                          kn_shape_text(p, sizeof p, kn_tensor_shape(a)),
                          kn_shape_text(q, sizeof q, kn_tensor_shape(b)));
    }
    return kn__sum_of_products(a, b, a->n_dims ? (1u << a->n_dims) - 1 : 0);
}

kn_tensor *kn_outer(kn_tensor *a, kn_tensor *b) {
    KN__AS("outer");
    kn_op_call call;
    kn_op_call_init(&call, KN_OP_matmul, NULL, KN_LIST_(a, b), 2);
    if (!kn__check_inputs(&call)) return NULL;
    if (a->n_dims != 1 || b->n_dims != 1) {
        kn_op_call_fail(&call, KN_ERR_SHAPE, "a and b must have one dimension");
        return NULL;
    }
    return kn_matmul(kn_reshape(a, KN_SHAPE(a->n, 1)), kn_reshape(b, KN_SHAPE(1, b->n)), NULL);
}

static kn_tensor *swapped(kn_tensor *x, bool swaps) {
    if (!x || !swaps) return x;
    kn_attr_transpose attr;
    for (int d = 0; d < KN_DIMS_MAX; d++) attr.axis[d] = d;
    attr.axis[x->n_dims - 2] = x->n_dims - 1, attr.axis[x->n_dims - 1] = x->n_dims - 2;
    return KN_CALL(transpose, &attr, x);
}

kn_tensor *kn_geam(kn_tensor *a, kn_tensor *b, double alpha, double beta,
                   const kn_matmul_options *options) {
    KN__AS("geam", "a", "b");
    kn_op_call call;
    kn_op_call_init(&call, KN_OP_axpby, NULL, KN_LIST_(a, b), 2);
    if (!kn__check_inputs(&call)) return NULL;
    kn_attr_matmul trans = {0, 0};
    if (options && !options_read(&trans, KN_OP_axpby, options)) return NULL;
    if (a->n_dims < 2 || b->n_dims < 2) {
        kn_op_call_fail(&call, KN_ERR_SHAPE, "a and b must be matrices");
        return NULL;
    }
    kn_tensor *p = swapped(a, trans.trans_a), *q = swapped(b, trans.trans_b);
    if (!p || !q) return NULL;
    kn_shape both = kn_tensor_shape(p);
    if (!kn__broadcast_shape(&both, q)) {
        kn_op_call_fail(&call, KN_ERR_SHAPE, "a%s and b%s don't broadcast",
                        trans.trans_a ? " transposed" : "", trans.trans_b ? " transposed" : "");
        return NULL;
    }
    return kn_axpby(p, q, alpha, beta);
}

/* affine's gradient alpha·x, added to y */
kn_status kn_axpy_into(kn_tensor *y, double alpha, kn_tensor *x) {
    KN__AS("axpy_into", "x", "y");
    KN_TRY(kn_check());
    kn_attr_scalars attr = {alpha, 0};
    kn_op_call call;
    kn_op_call_init(&call, KN_OP_axpby, NULL, KN_LIST_(x, y), 2);
    call.given = 1; /* y is written: autocast casts neither */
    if (!kn__check_inputs(&call)) return kn_check();
    if (!kn__same_shape(x, y)) {
        char p[256], q[256];
        return KN_FAIL(KN_ERR_SHAPE, "kn_axpy_into: x %s, y %s",
                       kn_shape_text(p, sizeof p, kn_tensor_shape(x)),
                       kn_shape_text(q, sizeof q, kn_tensor_shape(y)));
    }
    kn_op_call_init(&call, KN_OP_affine_back, &attr, KN_LIST_(x, KN_NONE, KN_NONE), 3);
    call.accumulate = 1;
    return kn__run_into(&call, y);
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

bool kn__infer_linear_act(kn_op_call *call) {
    const kn_tensor *r = call->in[3];
    if (!kn__infer_linear(call)) return false;
    if (r == &kn__none || kn__same_shape(r, call->out[0])) return true;
    char p[96];
    return kn_op_call_fail(call, KN_ERR_SHAPE, "the residual must be %s",
                           kn_shape_text(p, sizeof p, kn_tensor_shape(call->out[0])));
}

/* --- linear's gradients by w and b in one: gᵀ·x [O,I] and g's sum over rows [O] --- */

bool kn__infer_linear_weight_bias(kn_op_call *call) {
    const kn_tensor *x = call->in[0], *g = call->in[1];
    if (x->n_dims != 2 || g->n_dims != 2 || x->dim[0] != g->dim[0] || !x->n || !g->n) {
        return kn_op_call_fail(call, KN_ERR_SHAPE, "x must be [R,I] and g [R,O], not empty");
    }
    const int64_t weight[] = {g->dim[1], x->dim[1]};
    return kn__shaped(call, 0, 2, weight) && kn__shaped(call, 1, 1, weight);
}

kn_status kn__linear_bias_back(const kn_op_call *call, kn_kernel_fn reduce) {
    kn_attr_axes rows = {.mask = 1};
    kn_op_call part = *call;
    part.op = KN_OP_sum, part.n_in = 1, part.n_out = 1, part.want = 1, part.attr = &rows;
    part.accumulate = call->accumulate >> 1 & 1;
    part.in = &call->in[1], part.out[0] = call->out[1];
    kn_status status = reduce(&part);
    kn__work_end(&part, call->n_work);
    return status;
}

kn_tensor *kn_linear(kn_tensor *x, kn_tensor *w, kn_tensor *b) {
    return KN_CALL(linear, NULL, x, w, b);
}

/* Gradients that read more than the result are of ops recorded apart. */
static kn_tensor *linear_with(kn_tensor *x, kn_tensor *w, kn_tensor *b, kn_tensor *residual,
                              kn_act act) {
    if (!kn__act_fits(KN_OP_linear_act, (int)act)) return NULL;
    if (!kn_act_keeps_result(act) && kn_op_recording(KN_LIST_(x, w, b, residual), 4))
        return kn__act_apart(linear_with(x, w, b, residual, KN_ACT_NONE), act);
    if (act == KN_ACT_NONE && residual == KN_NONE) return KN_CALL(linear, NULL, x, w, b);
    kn_attr_act attr = {(int32_t)act};
    return KN_CALL(linear_act, &attr, x, w, b, residual);
}

kn_tensor *kn_linear_act(kn_tensor *x, kn_tensor *w, kn_tensor *b, kn_act act) {
    return linear_with(x, w, b, KN_NONE, act);
}

kn_tensor *kn_linear_add(kn_tensor *x, kn_tensor *w, kn_tensor *b, kn_tensor *residual,
                         kn_act act) {
    KN__AS("linear_add", "x", "w", "b", "residual");
    return linear_with(x, w, b, residual, act);
}

/* --- over chosen axes --- */

/* The axes of a list, in its order; false: an error is pending. */
static bool axes_in_order(int out[KN_DIMS_MAX], const kn_op_call *call, const kn_tensor *x,
                          const kn_shape *axes) {
    if (axes->n_dims < 0 || axes->n_dims > x->n_dims)
        return kn_op_call_fail(call, KN_ERR_SHAPE, "axes has %d entries for %d dimensions",
                               axes->n_dims, x->n_dims);
    uint32_t seen = 0;
    for (int i = 0; i < axes->n_dims; i++) {
        if (!kn__axis(&out[i], call, x, axes->dim[i])) return false;
        if (seen >> out[i] & 1)
            return kn_op_call_fail(call, KN_ERR_SHAPE, "axis %d is named twice", out[i]);
        seen |= 1u << out[i];
    }
    return true;
}

/* x as a matrix: the other axes as its rows, `axes` as its columns; or the reverse. *rest: the
 * sizes of the other axes, after those that are there. */
static kn_tensor *as_matrix(kn_tensor *x, const int axes[], int n, bool columns, kn_shape *rest) {
    kn_shape order = {.n_dims = x->n_dims};
    uint32_t summed = 0;
    int64_t inner = 1, outer = 1;
    for (int i = 0; i < n; i++) summed |= 1u << axes[i];
    int at = columns ? x->n_dims - n : 0, other = columns ? 0 : n;
    for (int i = 0; i < n; i++) {
        order.dim[at + i] = axes[i];
        inner *= x->dim[axes[i]];
    }
    for (int i = 0; i < x->n_dims; i++) {
        if (summed >> i & 1) continue;
        order.dim[other++] = i;
        outer *= x->dim[i];
        if (rest->n_dims < KN_DIMS_MAX) rest->dim[rest->n_dims] = x->dim[i];
        rest->n_dims++;
    }
    bool in_order = true;
    for (int i = 0; i < x->n_dims; i++) in_order = in_order && order.dim[i] == i;
    if (!in_order) x = kn_transpose(x, order);
    return kn_reshape(x, columns ? KN_SHAPE(outer, inner) : KN_SHAPE(inner, outer));
}

kn_tensor *kn_tensordot(kn_tensor *a, kn_tensor *b, kn_shape axes_a, kn_shape axes_b) {
    KN__AS("tensordot", "a", "b");
    int in_a[KN_DIMS_MAX], in_b[KN_DIMS_MAX];
    kn_op_call call;
    kn_op_call_init(&call, KN_OP_matmul, NULL, KN_LIST_(a, b), 2);
    if (!kn__check_inputs(&call)) return NULL;
    if (!axes_in_order(in_a, &call, a, &axes_a) || !axes_in_order(in_b, &call, b, &axes_b))
        return NULL;
    int n = axes_a.n_dims;
    bool fit = n == axes_b.n_dims;
    for (int i = 0; fit && i < n; i++) fit = a->dim[in_a[i]] == b->dim[in_b[i]];
    if (!fit) {
        kn_op_call_fail(&call, KN_ERR_SHAPE, "axes_a and axes_b don't pair axes of one size");
        return NULL;
    }
    KN__FRAME_INSIDE();
    kn_shape shape = {.n_dims = 0};
    kn_tensor *rows = as_matrix(a, in_a, n, true, &shape);
    kn_tensor *columns = as_matrix(b, in_b, n, false, &shape);
    if (shape.n_dims > KN_DIMS_MAX) {
        kn_op_call_fail(&call, KN_ERR_SHAPE, "the result has %d dimensions; the limit is %d",
                        shape.n_dims, KN_DIMS_MAX);
        return NULL;
    }
    kn_tensor *c = kn_matmul(rows, columns, NULL), *y = c ? kn_reshape(c, shape) : NULL;
    return kn__given(y);
}

/* c[i] = a[i + 1]·b[i + 2] - a[i + 2]·b[i + 1], counted modulo 3. */
kn_tensor *kn_cross(kn_tensor *a, kn_tensor *b, int axis) {
    KN__AS("cross", "a", "b");
    kn_op_call call;
    kn_op_call_init(&call, KN_OP_mul, NULL, KN_LIST_(a, b), 2);
    if (!kn__check_inputs(&call)) return NULL;
    int n = a->n_dims > b->n_dims ? a->n_dims : b->n_dims; /* of the result, whose axis it is */
    int at = axis < 0 ? axis + n : axis, in_a = at - n + a->n_dims, in_b = at - n + b->n_dims;
    if (at < 0 || at >= n) {
        kn_op_call_fail(&call, KN_ERR_SHAPE, "there is no axis %d in %d dimensions", axis, n);
        return NULL;
    }
    if (in_a < 0 || in_b < 0 || a->dim[in_a] != 3 || b->dim[in_b] != 3) {
        kn_op_call_fail(&call, KN_ERR_SHAPE, "a and b must have 3 elements along axis %d", axis);
        return NULL;
    }
    KN__FRAME_INSIDE();
    kn_tensor *first = kn_mul(kn_roll(a, -1, in_a), kn_roll(b, -2, in_b));
    kn_tensor *last = kn_mul(kn_roll(a, -2, in_a), kn_roll(b, -1, in_b));
    kn_tensor *y = kn_sub(first, last);
    return kn__given(y);
}
