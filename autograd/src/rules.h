/* The gradient rules, one function an op: called with the input whose gradient is wanted. */
#ifndef KN_RULES_SRC_H
#define KN_RULES_SRC_H

#include "tape.h"

#define KN__RULES(X)                                                                               \
    X(neg)                                                                                         \
    X(neg_back)                                                                                    \
    X(abs_back)                                                                                    \
    X(exp_back)                                                                                    \
    X(log_back)                                                                                    \
    X(sqrt_back) X(relu_back) X(sigm_back) X(tanh_back) X(add) X(sub) X(mul) X(div) X(pow)         \
        X(maximum) X(where) X(affine) X(pow_scalar) X(sum) X(mean) X(extremum) X(broadcast)        \
            X(matmul) X(linear) X(conv) X(conv_data) X(conv_weight) X(maxpool) X(maxpool_back)     \
                X(maxpool_take) X(avgpool) X(avgpool_back) X(softmax) X(softmax_back)              \
                    X(logsoftmax) X(logsoftmax_back) X(cross_entropy) X(nll) X(nll_back)           \
                        X(dropout) X(slice) X(slice_back) X(transpose) X(concat) X(cast)           \
                            X(reshape) X(to) X(unary) X(relu) X(zero)
#define X(name) kn_tensor *kn__rule_##name(kn__back *b, int i);
KN__RULES(X)
#undef X

#endif
