/* What several models share. */
#include <stdlib.h>
#include <string.h>

#include "model.h"

/* --- checks of a batch --- */

void *kn__batch_fail(const char *model, const char *part, kn_tensor *t, const char *expected) {
    char text[128];
    if (kn_pending()) return NULL; /* the error that made t NULL */
    if (!t)
        return KN_FAIL_NULL(KN_ERR_INVALID, "%s: %s is missing; expected %s", model, part,
                            expected);
    return KN_FAIL_NULL(KN_ERR_SHAPE, "%s: %s is %s %s; expected %s", model, part,
                        kn_dtype_name(kn_tensor_dtype(t)),
                        kn_shape_text(text, sizeof text, kn_tensor_shape(t)), expected);
}

/* Whether the sizes are those of a text like "[B,2,T]": as many, and equal to its numbers. */
static bool sizes_fit(kn_shape s, const char *at) {
    int i = 0;
    for (; *at && *at != ']'; i++) {
        char *end = NULL;
        int64_t want = strtoll(++at, &end, 10);
        bool is_number = end != at && (*end == ',' || *end == ']');
        if (i == s.n_dims || (is_number && want != s.dim[i])) return false;
        at += strcspn(at, ",]");
    }
    return i == s.n_dims;
}

bool kn__batch_fits(const char *model, const char *part, kn_tensor *t, const char *expected) {
    const char *sizes = strchr(expected, '[');
    if (t && (!sizes || sizes_fit(kn_tensor_shape(t), sizes))) return true;
    (void)kn__batch_fail(model, part, t, expected);
    return false;
}

int64_t kn__batch_size(const char *model, kn_tensor *x) {
    kn_shape s = kn_tensor_shape(x);
    char text[128];
    if (s.n_dims > 0 && s.dim[0] > 0) return s.dim[0];
    if (s.n_dims == 0) return kn__batch_fail(model, "x", x, "[B,…]"), 0;
    (void)KN_FAIL_NULL(KN_ERR_SHAPE, "%s: x is %s: B is 0; expected 1 or more", model,
                       kn_shape_text(text, sizeof text, s));
    return 0;
}

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

kn_tensor *kn__words_loss(const char *model, kn_tensor *scores, kn_tensor *y) {
    kn_shape s = kn_tensor_shape(scores);
    if (!scores || !kn__batch_fits(model, "y", y, "[B,T]")) return NULL;
    kn_tensor *labels = kn__time_first(y);
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
