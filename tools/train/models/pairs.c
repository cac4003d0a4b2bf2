/* From one sequence to another: an LSTM with attention (Luong et al. 2015) and a transformer
 * (Vaswani et al. 2017). x [B,2,T]: the source, and the target one word late; y [B,T]: the target.
 */
#include <math.h>
#include <stdio.h>

#include "layers/layer.h"
#include "model.h"

static bool is_pairs(const char *model, const kn_batch *batch) {
    return kn__batch_fits(model, "x", batch->x, "[B,2,T]");
}

/* x [B,2,T] → [B,T]: source 0, target 1 */
static kn_tensor *half(const kn_batch *batch, int64_t i) { return kn_select(batch->x, i, 1); }

/* --- LSTM with attention --- */

static kn_status lstm_init(void *model, kn_layer *net) {
    const kn__pairs_sizes *s = model;
    const kn_rnn_options rnn = {.hidden = s->width};
    const kn_layer_linear_options bare = {.no_bias = 1};
    kn_layer_embedding(net, "source", s->words, s->width, NULL);
    kn_layer_embedding(net, "target", s->words, s->width, NULL);
    kn__layer_lstm_remember(kn_layer_rnn(net, "encoder", s->width, &rnn));
    kn__layer_lstm_remember(kn_layer_rnn(net, "decoder", s->width, &rnn));
    kn_layer_linear(net, "attention", s->width, s->width, &bare);
    kn_layer_linear(net, "combine", 2 * s->width, s->width,
                    &(kn_layer_linear_options){.act = kn_tanh, .no_bias = 1});
    kn_layer_linear(net, "scores", s->width, s->words, NULL);
    return kn_check();
}

/* The average of the encoder's states [S,B,H] that each state of the decoder [T,B,H] asks for by
 * h·W·e: [T,B,H]. */
static kn_tensor *context(kn_layer *net, kn_tensor *decoded, kn_tensor *encoded) {
    const kn_shape batch_first = KN_SHAPE(1, 0, 2);
    kn_tensor *q = kn_transpose(kn__layer_apply(net, "attention", decoded), batch_first);
    kn_tensor *e = kn_unsqueeze(kn_transpose(encoded, batch_first), 1); /* [B,1,S,H] */
    kn_tensor *c = kn_attention(kn_unsqueeze(q, 1), e, e, &(kn_attention_options){.scale = 1});
    return kn_transpose(kn_squeeze(c, KN_SHAPE(1)), batch_first);
}

static kn_tensor *lstm_predict(void *model, kn_layer *net,
                               const kn_batch *batch) { /* [T,B,words] */
    (void)model;
    kn_tensor *h = NULL, *c = NULL;
    if (!is_pairs("seq2seq", batch)) return NULL;
    kn_tensor *source = kn__layer_apply(net, "source", kn__time_first(half(batch, 0)));
    kn_tensor *target = kn__layer_apply(net, "target", kn__time_first(half(batch, 1)));
    kn_tensor *encoded = kn_layer_rnn_forward(kn_layer_find(net, "encoder"), source,
                                              &(kn_layer_rnn_state){.h_n = &h, .c_n = &c});
    kn_tensor *decoded = kn_layer_rnn_forward(kn_layer_find(net, "decoder"), target,
                                              &(kn_layer_rnn_state){.h0 = h, .c0 = c});
    kn_tensor *both[2] = {context(net, decoded, encoded), decoded};
    return kn__layer_apply(net, "scores", kn__layer_apply(net, "combine", kn_concat(both, 2, 2)));
}

static kn_tensor *lstm_loss(void *model, kn_layer *net, const kn_batch *batch) {
    return kn__words_loss("seq2seq", lstm_predict(model, net, batch), batch->y);
}

const kn_model_kind kn__seq2seq = {
    .name = "seq2seq",
    .summary = "an LSTM that reads, an LSTM with attention that writes",
    .size_bytes = sizeof(kn__pairs_sizes),
    .sizes = &(const kn__pairs_sizes){.words = 10000, .width = 128},
    .init = lstm_init,
    .is_pure = true,
    .predict = lstm_predict,
    .loss = lstm_loss,
    .facts = &(const kn_model_facts){
        .n_params = 4163344,
        .data = "pairs of sentences, 10,000 words, 20 at a time",
        .published = "Knet without attention on a V100: 36 ms forward, 80 with gradients, "
                     "83 with Adam, batch 128",
        .x = {{2, 20}, 2},
        .words = 10000,
        .batch = 128,
        .n_made = 640,
        .optimizer = "adam",
        .lr = 0.001,
        .optim = kn__optim_adam,
        .made = kn__made_pairs}};

/* --- transformer --- */

static void feed_add(kn_layer *parent, const char *name, const kn__pairs_sizes *s) {
    kn_layer *mlp = kn_layer_residual(parent, name);
    kn_layer_linear(mlp, "fc1", s->width, s->ff, &(kn_layer_linear_options){.act = kn_relu});
    kn_layer_linear(mlp, "fc2", s->ff, s->width, NULL);
}

static void attention_add(kn_layer *parent, const char *name, const kn__pairs_sizes *s,
                          int causal) {
    kn_layer *attend = kn_layer_residual(parent, name);
    kn_layer_attention(attend, "attention", s->width, s->heads,
                       &(kn_layer_attention_options){.causal = causal});
}

/* The norm comes after each sum, as in the paper. */
static kn_status transformer_init(void *model, kn_layer *net) {
    const kn__pairs_sizes *s = model;
    const kn_shape width = KN_SHAPE(s->width);
    char name[32];
    kn_layer_embedding(
        net, "source", s->words, s->width,
        &(kn_layer_linear_options){.weight = kn_init_normal(0, 1 / sqrt((double)s->width))});
    kn_layer_embedding(
        net, "target", s->words, s->width,
        &(kn_layer_linear_options){.weight = kn_init_normal(0, 1 / sqrt((double)s->width))});
    kn_layer *encoder = kn_layer_sequential(net, "encoder");
    for (int64_t i = 0; i < s->blocks; i++) {
        snprintf(name, sizeof name, "%d", (int)i);
        kn_layer *block = kn_layer_sequential(encoder, name);
        attention_add(block, "self", s, 0);
        kn_layer_layernorm(block, "norm1", width, NULL);
        feed_add(block, "mlp", s);
        kn_layer_layernorm(block, "norm2", width, NULL);
    }
    kn_layer *decoder = kn_layer_sequential(net, "decoder");
    for (int64_t i = 0; i < s->blocks; i++) {
        snprintf(name, sizeof name, "%d", (int)i);
        kn_layer *block = kn_layer_sequential(decoder, name);
        attention_add(block, "self", s, 1);
        kn_layer_layernorm(block, "norm1", width, NULL);
        kn_layer_attention(block, "cross", s->width, s->heads,
                           &(kn_layer_attention_options){.memory_width = s->width});
        kn_layer_layernorm(block, "norm2", width, NULL);
        feed_add(block, "mlp", s);
        kn_layer_layernorm(block, "norm3", width, NULL);
    }
    kn_layer_linear(net, "scores", s->width, s->words, NULL);
    return kn_check();
}

/* [T,width]: sines in the first half, cosines in the second, of T places. */
static kn_tensor *places(int64_t T, int64_t width) {
    int64_t half_width = width / 2;
    double step = -2 * log(10000.0) / (double)width;
    kn_tensor *rate = kn_exp(kn_affine(kn_arange(0, (double)half_width, 1, 0), step, 0));
    kn_tensor *angle = kn_outer(kn_arange(0, (double)T, 1, 0), rate); /* [T,width/2] */
    return kn_concat((kn_tensor *const[]){kn_sin(angle), kn_cos(angle)}, 2, 1);
}

static kn_tensor *embedded(kn_layer *net, const char *name, kn_tensor *index, int64_t width) {
    KN_FRAME();
    kn_tensor *x = kn_affine(kn__layer_apply(net, name, index), sqrt((double)width), 0);
    return kn_keep(kn_add(x, places(kn_tensor_shape(index).dim[1], width))); /* [B,T,width] */
}

/* What the decoder's x [B,T,W] asks the encoder's m [B,S,W]. */
static kn_tensor *cross(kn_layer *block, kn_tensor *x, kn_tensor *m) {
    KN_FRAME();
    kn_tensor *y = kn_layer_attention_forward(kn_layer_find(block, "cross"), x,
                                              &(kn_layer_attention_inputs){.memory = m});
    return kn_keep(kn_add(x, y));
}

static kn_tensor *transformer_predict(void *model, kn_layer *net, const kn_batch *batch) {
    const kn__pairs_sizes *s = model;
    char path[32];
    if (!is_pairs("transformer", batch)) return NULL;
    kn_tensor *m =
        kn__layer_apply(net, "encoder", embedded(net, "source", half(batch, 0), s->width));
    kn_tensor *x = embedded(net, "target", half(batch, 1), s->width);
    for (int64_t i = 0; i < s->blocks; i++) {
        snprintf(path, sizeof path, "decoder.%d", (int)i);
        kn_layer *block = kn_layer_find(net, path);
        x = kn__layer_apply(block, "norm1", kn__layer_apply(block, "self", x));
        x = kn__layer_apply(block, "norm2", cross(block, x, m));
        x = kn__layer_apply(block, "norm3", kn__layer_apply(block, "mlp", x));
    }
    return kn__layer_apply(net, "scores", x); /* [B,T,words] */
}

static kn_tensor *transformer_loss(void *model, kn_layer *net, const kn_batch *batch) {
    const kn__pairs_sizes *s = model;
    kn_tensor *scores = transformer_predict(model, net, batch);
    if (!scores || !kn__batch_fits("transformer", "y", batch->y, "the target's words")) return NULL;
    return kn_cross_entropy(kn_reshape(scores, KN_SHAPE(-1, s->words)),
                            kn_reshape(batch->y, KN_SHAPE(-1)));
}

const kn_model_kind kn__transformer = {
    .name = "transformer",
    .summary = "an encoder and a decoder of attention",
    .size_bytes = sizeof(kn__pairs_sizes),
    .sizes =
        &(const kn__pairs_sizes){.words = 1000, .width = 128, .heads = 4, .blocks = 2, .ff = 512},
    .init = transformer_init,
    .is_pure = true,
    .recomputes = true,
    .predict = transformer_predict,
    .loss = transformer_loss,
    .facts = &(const kn_model_facts){.n_params = 1310696,
                                     .data = "pairs of sentences, 1,000 words, 20 at a time",
                                     .x = {{2, 20}, 2},
                                     .words = 1000,
                                     .batch = 64,
                                     .n_made = 640,
                                     .optimizer = "adam",
                                     .lr = 0.0005,
                                     .optim = kn__optim_adam,
                                     .made = kn__made_pairs}};
