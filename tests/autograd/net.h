/* A small network with convolution, pooling, dropout and two dense layers, and one training step of
 * it: for tests that only need something that uses everything. */
#ifndef KNET_AUTOGRAD_TEST_NET_H
#define KNET_AUTOGRAD_TEST_NET_H

#include "autograd_test.h"

enum { NET_BATCH = 16, NET_SIDE = 12, NET_CLASSES = 5 };

typedef struct net {
    kn_params *params;
    kn_optim *optim;
    kn_rng *rng;
    kn_tensor *k, *kb, *w1, *b1, *w2, *b2;
} net;

static inline void net_destroy(net *n) {
    kn_optim_destroy(n->optim);
    kn_params_destroy(n->params);
    kn_rng_destroy(n->rng);
    *n = (net){0};
}

static inline kn_status net_create(net *n) {
    *n = (net){0};
    KN_TRY(kn_params_create(&n->params, &(kn_params_options){.seed = 21}));
    KN_TRY(kn_rng_create(&n->rng, 4));
    n->k = kn_param(n->params, KN_SHAPE(6, 1, 3, 3), kn_init_xavier(), "k");
    n->kb = kn_param(n->params, KN_SHAPE(6), (kn_init){0}, "kb");
    n->w1 = kn_param(n->params, KN_SHAPE(32, 150), kn_init_xavier(), "w1");
    n->b1 = kn_param(n->params, KN_SHAPE(32), (kn_init){0}, "b1");
    n->w2 = kn_param(n->params, KN_SHAPE(NET_CLASSES, 32), kn_init_xavier(), "w2");
    n->b2 = kn_param(n->params, KN_SHAPE(NET_CLASSES), (kn_init){0}, "b2");
    KN_TRY(kn_check());
    return kn_adam_create(&n->optim, n->params, 1e-2, &(kn_adam_options){.clip_norm = 5});
}

static inline kn_tensor *net_loss(net *n, int step) {
    float pixels[NET_BATCH * NET_SIDE * NET_SIDE];
    int64_t classes[NET_BATCH];
    for (int i = 0; i < NET_BATCH * NET_SIDE * NET_SIDE; i++) {
        pixels[i] = (float)((i * 7 + i / 144 * 31 + step * 3) % 23) / 23;
    }
    for (int i = 0; i < NET_BATCH; i++) classes[i] = (i + step) % NET_CLASSES;
    kn_tensor *x = kn_tensor_from(pixels, KN_F32, KN_SHAPE(NET_BATCH, 1, NET_SIDE, NET_SIDE));
    kn_tensor *y = kn_tensor_from(classes, KN_I64, KN_SHAPE(NET_BATCH));
    kn_tensor *h = kn_maxpool(kn_relu(kn_conv(x, n->k, n->kb, NULL)), KN_SHAPE(2, 2), NULL);
    h = kn_dropout(kn_tanh(kn_linear(kn_flatten(h), n->w1, n->b1)), 0.2, n->rng); /* [B,32] */
    return kn_cross_entropy(kn_linear(h, n->w2, n->b2), y);
}

static inline kn_status net_step(net *n, int step, double *loss) {
    KN_TAPE();
    KN_TRY(kn_check());
    kn_tensor *l = net_loss(n, step);
    KN_TRY(kn_backward(l));
    KN_TRY(kn_optim_step(n->optim));
    return kn_item(loss, l);
}

#endif
