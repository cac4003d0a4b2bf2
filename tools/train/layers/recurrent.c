/* Recurrent layers. */
#include <math.h>

#include "layer.h"

/* --- recurrent --- */

typedef struct recurrent {
    kn_layer base;
    kn_tensor *weight;
    int64_t n_in;
    kn_rnn_options options;
} recurrent;

/* A state where the layer is. */
static kn_tensor *placed(const kn_layer *layer, kn_tensor *h) {
    return h && layer->device ? kn_to(h, layer->device) : h;
}

/* ctx: a kn_layer_rnn_state, or NULL. Of another x kn_rnn could name the elements of w alone. */
static kn_tensor *recurrent_run(kn_layer *layer, kn_tensor *x, const void *ctx) {
    const recurrent *l = (recurrent *)layer;
    const kn_layer_rnn_state *state = ctx;
    kn_rnn_options o = l->options;
    kn_shape shape = kn_tensor_shape(x);
    char text[128];
    if (shape.n_dims != 3 || shape.dim[2] != l->n_in)
        return KN_FAIL_NULL(KN_ERR_SHAPE, "kn_layer_rnn: x is %s; expected [T,B,%lld]",
                            kn_shape_text(text, sizeof text, shape), (long long)l->n_in);
    if (!kn_layer_is_training(layer)) o.dropout = 0;
    o.rng = o.dropout > 0 ? layer->root->rng : NULL;
    if (!state) return kn_rnn(x, l->weight, &o);
    o.lengths = state->lengths;
    o.h0 = placed(layer, state->h0);
    o.c0 = placed(layer, state->c0);
    o.h_n = state->h_n;
    o.c_n = state->c_n;
    kn_tensor *y = kn_rnn(x, l->weight, &o);
    if (y && o.h_n) *o.h_n = kn_keep(*o.h_n);
    if (y && o.c_n && o.mode == KN_RNN_LSTM) *o.c_n = kn_keep(*o.c_n);
    return y;
}

static kn_tensor *recurrent_forward(kn_layer *layer, kn_tensor *x) {
    return recurrent_run(layer, x, NULL);
}
static const kn__layer_kind recurrent_kind = {"kn_layer_rnn", sizeof(recurrent), recurrent_forward,
                                              .is_group = false};

kn_layer *kn__layer_rnn_init(kn_layer *parent, const char *name, int64_t n_in,
                             const kn_rnn_options *options, double bound) {
    if (kn_pending()) return NULL;
    if (!options || options->hidden < 1 || n_in < 1)
        return kn__layer_fail(&recurrent_kind, name, KN_ERR_INVALID,
                              "%lld inputs, %lld hidden: both must be 1 or more", (long long)n_in,
                              options ? (long long)options->hidden : 0LL);
    if (options->lengths || options->h0 || options->c0 || options->h_n || options->c_n ||
        options->rng)
        return kn__layer_fail(&recurrent_kind, name, KN_ERR_INVALID,
                              "lengths, states and rng are of a forward: see "
                              "kn_layer_rnn_forward");
    int64_t n = kn_rnn_params(n_in, options);
    if (n < 0) {
        kn_status status = kn_check();
        const kn_error why = *kn_last_error();
        return kn__layer_fail(&recurrent_kind, name, status, "%s", why.message);
    }
    recurrent *l = kn__layer_add(parent, name, &recurrent_kind);
    if (!l) return NULL;
    if (bound <= 0) bound = 1 / sqrt((double)options->hidden);
    l->options = *options;
    l->n_in = n_in;
    if (!(options->dropout > 0) || kn__layer_rng(&l->base))
        l->weight =
            kn__layer_param_add(&l->base, "weight", KN_SHAPE(n), kn_init_uniform(-bound, bound));
    return l->weight ? &l->base : kn__layer_undo(&l->base);
}

kn_layer *kn_layer_rnn(kn_layer *parent, const char *name, int64_t n_in,
                       const kn_rnn_options *options) {
    return kn__layer_rnn_init(parent, name, n_in, options, 0);
}

void kn__layer_lstm_remember(kn_layer *lstm) {
    enum { FORGET = 1 }; /* of the gates i, f, g, o */
    if (kn_pending()) return;
    const recurrent *l = (recurrent *)lstm;
    const kn_rnn_options *o = &l->options;
    KN_FRAME(.record = KN_OFF);
    for (int64_t k = 0; k < (o->layers ? o->layers : 1); k++) {
        for (int d = 0; d <= (o->bidirectional ? 1 : 0); d++) {
            kn_tensor *bias = kn_rnn_param(l->weight, l->n_in, o, k, d, FORGET, KN_RNN_INPUT_BIAS);
            kn_status status = kn_fill_into(bias, 1);
            if (status < 0) kn_error_defer(status);
        }
    }
}

kn_tensor *kn_layer_rnn_forward(kn_layer *rnn, kn_tensor *x, const kn_layer_rnn_state *state) {
    if (kn_pending()) return NULL;
    if (!rnn || rnn->kind != &recurrent_kind)
        return KN_FAIL_NULL(KN_ERR_INVALID, "kn_layer_rnn_forward: %s is not a kn_layer_rnn",
                            rnn ? kn__layer_shown(rnn) : "NULL");
    return state ? kn__layer_forward_by(rnn, x, recurrent_run, state) : kn_layer_forward(rnn, x);
}
