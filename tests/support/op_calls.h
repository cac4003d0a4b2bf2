/* Calls of the ops that gradient rules make: they have no public function of their own. Shapes are
 * those of results. `into`: NULL, or a tensor that the result is added to and that is returned. */
#ifndef KNET_OP_CALLS_H
#define KNET_OP_CALLS_H

#include <knet/op.h>
#include <string.h>

static inline kn_tensor *op_run_into(kn_op op, void *attr, kn_tensor *const in[], int n_in,
                                     kn_tensor *into) {
    kn_op_call call;
    kn_op_call_init(&call, op, attr, in, n_in);
    if (into) {
        call.out[0] = into;
        call.given = call.accumulate = 1;
    }
    return kn_op_run(&call);
}

static inline kn_tensor *op_matmul_trans(kn_tensor *a, kn_tensor *b, bool trans_a, bool trans_b,
                                         kn_tensor *into) {
    kn_attr_matmul attr = {trans_a, trans_b};
    return op_run_into(KN_OP_matmul, &attr, KN_LIST_(a, b), 2, into);
}

static inline kn_attr_conv op_conv_sized(const kn_attr_conv *attr, kn_shape shape) {
    kn_attr_conv sized = *attr;
    for (int i = 0; i < attr->n_spatial; i++) sized.size[i] = shape.dim[2 + i];
    return sized;
}
static inline kn_tensor *op_conv_attr(kn_tensor *x, kn_tensor *w, kn_tensor *b,
                                      const kn_attr_conv *attr) {
    kn_attr_conv own = *attr;
    return KN_CALL(conv, &own, x, w, b);
}
static inline kn_tensor *op_conv_data(kn_tensor *dy, kn_tensor *w, kn_shape shape,
                                      const kn_attr_conv *attr) {
    kn_attr_conv own = op_conv_sized(attr, shape);
    return KN_CALL(conv_data, &own, dy, w);
}
static inline kn_tensor *op_conv_weight(kn_tensor *x, kn_tensor *dy, kn_shape shape,
                                        const kn_attr_conv *attr, kn_tensor *into) {
    kn_attr_conv own = op_conv_sized(attr, shape);
    return op_run_into(KN_OP_conv_weight, &own, KN_LIST_(x, dy), 2, into);
}

static inline kn_attr_pool op_pool_sized(const kn_attr_pool *attr, kn_shape shape) {
    kn_attr_pool sized = *attr;
    for (int i = 0; i < attr->n_spatial; i++) sized.size[i] = shape.dim[2 + i];
    return sized;
}
static inline kn_tensor *op_maxpool_back(kn_tensor *dy, kn_tensor *offsets, kn_shape shape,
                                         const kn_attr_pool *attr) {
    kn_attr_pool own = op_pool_sized(attr, shape);
    return KN_CALL(maxpool_back, &own, dy, offsets);
}
static inline kn_tensor *op_maxpool_take(kn_tensor *x, kn_tensor *offsets,
                                         const kn_attr_pool *attr) {
    kn_attr_pool own = *attr;
    return KN_CALL(maxpool_take, &own, x, offsets);
}
static inline kn_tensor *op_avgpool_attr(kn_tensor *x, const kn_attr_pool *attr) {
    kn_attr_pool own = *attr;
    return KN_CALL(avgpool, &own, x);
}
static inline kn_tensor *op_avgpool_back(kn_tensor *dy, kn_shape shape, const kn_attr_pool *attr) {
    kn_attr_pool own = op_pool_sized(attr, shape);
    return KN_CALL(avgpool_back, &own, dy);
}

static inline kn_tensor *op_softmax_back(kn_tensor *y, kn_tensor *g, int axis) {
    kn_attr_axes attr = {1u << axis, 0};
    return KN_CALL(softmax_back, &attr, y, g);
}
static inline kn_tensor *op_logsoftmax_back(kn_tensor *y, kn_tensor *g, int axis) {
    kn_attr_axes attr = {1u << axis, 0};
    return KN_CALL(logsoftmax_back, &attr, y, g);
}
static inline kn_tensor *op_nll_back(kn_tensor *labels, kn_tensor *g, int64_t classes) {
    kn_attr_classes attr = {classes};
    return KN_CALL(nll_back, &attr, labels, g);
}
static inline kn_tensor *op_dropout_state(kn_tensor *x, double p, kn_tensor *state) {
    kn_attr_scalars attr = {p, 0};
    return KN_CALL(dropout, &attr, x, state);
}
static inline kn_tensor *op_slice_back(kn_tensor *g, kn_shape start, kn_shape shape) {
    kn_attr_box attr;
    memcpy(attr.start, start.dim, sizeof attr.start);
    memcpy(attr.size, shape.dim, sizeof attr.size);
    return KN_CALL(slice_back, &attr, g);
}
/* The gradient of a row of one input by its x (z: KN_NONE where no formula reads it). */
static inline kn_tensor *op_row1_back(kn_op back, kn_tensor *g, kn_tensor *x, kn_tensor *z) {
    kn_attr_scalars attr = {0, 0};
    return kn_op_call_run(back, &attr, KN_LIST_(g, x, z), 3);
}

#endif
