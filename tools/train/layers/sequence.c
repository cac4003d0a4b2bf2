/* Layers of sequences: recurrent, attention. */
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

kn_layer *kn_layer_rnn(kn_layer *parent, const char *name, int64_t n_in,
                       const kn_rnn_options *options) {
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
    if (n < 0) return NULL;
    recurrent *l = kn__layer_add(parent, name, &recurrent_kind);
    if (!l) return NULL;
    double bound = 1 / sqrt((double)options->hidden);
    l->options = *options;
    l->n_in = n_in;
    if (!(options->dropout > 0) || kn__layer_rng(&l->base))
        l->weight =
            kn__layer_param_add(&l->base, "weight", KN_SHAPE(n), kn_init_uniform(-bound, bound));
    return l->weight ? &l->base : kn__layer_undo(&l->base);
}

kn_tensor *(kn_layer_rnn_forward)(kn_layer *rnn, kn_tensor *x, const kn_layer_rnn_state *state) {
    if (kn_pending()) return NULL;
    if (!rnn || rnn->kind != &recurrent_kind)
        return KN_FAIL_NULL(KN_ERR_INVALID, "kn_layer_rnn_forward: %s is not a kn_layer_rnn",
                            rnn ? rnn->path : "NULL");
    return state ? kn__layer_forward_by(rnn, x, recurrent_run, state) : (kn_layer_forward)(rnn, x);
}

/* --- attention --- */

typedef struct attention {
    kn_layer base;
    kn_layer *qkv, *out;
    int64_t heads, kv_heads, head_width;
    int causal;
} attention;

/* heads [B,N,T,D] first … first+n-1 of all */
static kn_tensor *heads_of(kn_tensor *all, int64_t first, int64_t n) {
    kn_shape s = kn_tensor_shape(all);
    return kn_slice(all, KN_SHAPE(0, first, 0, 0),
                    KN_SHAPE(s.dim[0], first + n, s.dim[2], s.dim[3]));
}

static kn_tensor *attention_forward(kn_layer *layer, kn_tensor *x) {
    const attention *l = (attention *)layer;
    kn_shape s = kn_tensor_shape(x);
    if (s.n_dims != 3)
        return KN_FAIL_NULL(KN_ERR_SHAPE, "x has %d dimensions, not [batch,time,width]", s.n_dims);
    int64_t h = l->heads, g = l->kv_heads, all = h + 2 * g;
    kn_tensor *qkv = (kn_layer_forward)(l->qkv, x); /* [B,T,(H+2G)·D] */
    if (!qkv) return NULL;
    qkv = kn_transpose(kn_reshape(qkv, KN_SHAPE(s.dim[0], s.dim[1], all, l->head_width)),
                       KN_SHAPE(0, 2, 1, 3)); /* [B,H+2G,T,D] */
    if (!qkv) return NULL;
    kn_tensor *y = kn_attention(heads_of(qkv, 0, h), heads_of(qkv, h, g), heads_of(qkv, h + g, g),
                                &(kn_attention_options){.causal = l->causal}); /* [B,H,T,D] */
    y = kn_reshape(kn_transpose(y, KN_SHAPE(0, 2, 1, 3)),
                   KN_SHAPE(s.dim[0], s.dim[1], h * l->head_width));
    return y ? (kn_layer_forward)(l->out, y) : NULL;
}
static const kn__layer_kind attention_kind = {"kn_layer_attention", sizeof(attention),
                                              attention_forward, .is_group = true};

kn_layer *kn_layer_attention(kn_layer *parent, const char *name, int64_t width, int64_t heads,
                             const kn_layer_attention_options *options) {
    kn_layer_attention_options o = options ? *options : (kn_layer_attention_options){0};
    if (kn_pending() || !kn__layer_reserved(&attention_kind, name, o.reserved)) return NULL;
    if (!o.kv_heads) o.kv_heads = heads;
    if (width > INT64_MAX / 3)
        return kn__layer_fail(&attention_kind, name, KN_ERR_SHAPE, "width %lld; the limit is %lld",
                              (long long)width, (long long)(INT64_MAX / 3));
    if (width < 1 || heads < 1 || width % heads || o.kv_heads < 1 || heads % o.kv_heads)
        return kn__layer_fail(&attention_kind, name, KN_ERR_SHAPE,
                              "%lld heads must divide the width %lld, and %lld heads of keys "
                              "those",
                              (long long)heads, (long long)width, (long long)o.kv_heads);
    attention *l = kn__layer_add(parent, name, &attention_kind);
    if (!l) return NULL;
    l->heads = heads;
    l->kv_heads = o.kv_heads;
    l->head_width = width / heads;
    l->causal = o.causal;
    kn_layer_linear_options linear = {.no_bias = o.no_bias};
    l->qkv =
        kn_layer_linear(&l->base, "qkv", width, width + 2 * o.kv_heads * l->head_width, &linear);
    l->out = kn_layer_linear(&l->base, "out", width, width, &linear);
    return l->out ? &l->base : kn__layer_undo(&l->base);
}
