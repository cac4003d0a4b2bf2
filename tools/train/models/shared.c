/* What several models share. */
#include "model.h"

kn_tensor *kn__images_fit(kn_tensor *x, int64_t channels, int64_t side) {
    kn_shape s = kn_tensor_shape(x);
    if (!x || s.n_dims != 4) return x; /* the first layer names the error */
    int64_t h = s.dim[2], w = s.dim[3];
    if (side > h && side > w) {
        int64_t top = (side - h) / 2, left = (side - w) / 2;
        x = kn_pad(x, KN_SHAPE(0, 0, top, left), KN_SHAPE(0, 0, side - h - top, side - w - left),
                   KN_PAD_CONSTANT, 0);
        h = w = side;
    }
    if (s.dim[1] == 1 && channels > 1) x = kn_broadcast(x, KN_SHAPE(s.dim[0], channels, h, w));
    return x;
}

kn_tensor *kn__time_first(kn_tensor *x) { return kn_transpose(x, KN_SHAPE(1, 0)); }

kn_tensor *kn__words_loss(kn_tensor *scores, kn_tensor *y) {
    kn_shape s = kn_tensor_shape(scores);
    kn_tensor *labels = kn__time_first(y);
    if (s.n_dims != 3) return scores; /* the error is pending */
    return kn_cross_entropy(kn_reshape(scores, KN_SHAPE(-1, s.dim[2])),
                            kn_reshape(labels, KN_SHAPE(-1)));
}

kn_tensor *kn__layer_apply(kn_layer *self, const char *name, kn_tensor *x) {
    if (kn_pending()) return NULL;
    return kn_layer_forward(kn_layer_find(self, name), x);
}

kn_status kn__optim_sgd(kn_optim **out, kn_params *params, double lr) {
    return kn_sgd_create(out, params, lr, NULL);
}
kn_status kn__optim_momentum(kn_optim **out, kn_params *params, double lr) {
    return kn_momentum_create(out, params, lr, 0.9, NULL);
}
kn_status kn__optim_adam(kn_optim **out, kn_params *params, double lr) {
    return kn_adam_create(out, params, lr, NULL);
}
