/* The geometry of recurrent networks, for both devices: where a parameter lies in w. */
#ifndef KN_RNN_H
#define KN_RNN_H

#include <knet/op.h>

static inline int64_t kn__rnn_gates(const kn_attr_rnn *attr) {
    return attr->mode == KN_RNN_LSTM ? 4 : (attr->mode == KN_RNN_GRU ? 3 : 1);
}
/* Features that a layer reads. */
static inline int64_t kn__rnn_inputs(const kn_attr_rnn *attr, int64_t layer) {
    return layer ? attr->directions * attr->hidden : attr->input;
}
/* Columns of a layer's W: 0 for a layer without one. */
static inline int64_t kn__rnn_columns(const kn_attr_rnn *attr, int64_t layer) {
    return layer == 0 && attr->skip ? 0 : kn__rnn_inputs(attr, layer);
}
/* Elements of a layer's weights in one direction, without biases. */
static inline int64_t kn__rnn_layer_weights(const kn_attr_rnn *attr, int64_t layer) {
    return kn__rnn_gates(attr) * attr->hidden * (kn__rnn_columns(attr, layer) + attr->hidden);
}
/* Where the weights of a layer begin, and where its biases do. */
static inline int64_t kn__rnn_weights_at(const kn_attr_rnn *attr, int64_t layer) {
    int64_t at = layer > 0 ? attr->directions * kn__rnn_layer_weights(attr, 0) : 0;
    if (layer > 1) at += (layer - 1) * attr->directions * kn__rnn_layer_weights(attr, 1);
    return at;
}
static inline int64_t kn__rnn_biases_at(const kn_attr_rnn *attr, int64_t layer) {
    int64_t each = 2 * kn__rnn_gates(attr) * attr->hidden * attr->directions;
    return kn__rnn_weights_at(attr, attr->layers) + layer * each;
}
/* Where a part begins. */
static inline int64_t kn__rnn_part_at(const kn_attr_rnn *attr, int64_t layer, int64_t direction,
                                      kn_rnn_part part) {
    int64_t gates = kn__rnn_gates(attr) * attr->hidden;
    if (part >= KN_RNN_INPUT_BIAS) {
        return kn__rnn_biases_at(attr, layer) +
               (2 * direction + (part - KN_RNN_INPUT_BIAS)) * gates;
    }
    int64_t at = kn__rnn_weights_at(attr, layer) + direction * kn__rnn_layer_weights(attr, layer);
    return at + (part == KN_RNN_HIDDEN_WEIGHT ? gates * kn__rnn_columns(attr, layer) : 0);
}

/* Elements of layer l's dropout mask, rounded up so that each layer's begins with a counter of its
 * own. */
static inline int64_t kn__rnn_mask(const kn_attr_rnn *attr) {
    int64_t n = attr->steps * attr->batch * attr->directions * attr->hidden;
    return (n + 31) / 32 * 32;
}

/* Elements of the host's reserve, result 3 of rnn. */
int64_t kn__host_rnn_reserve(const kn_attr_rnn *attr, kn_dtype dtype);

#endif
