/* Recurrent networks and attention. Parameters are one tensor on both sides. */
#include "cases.h"

static kn_tensor *recurrent(kn_rnn_mode mode, int64_t hidden, kn_tensor *const x[]) {
    return kn_rnn(x[0], x[1], &(kn_rnn_options){.hidden = hidden, .mode = mode});
}

static kn_tensor *both_ways(kn_tensor *const x[]) {
    const kn_rnn_options o = {.hidden = 128, .mode = KN_RNN_LSTM, .bidirectional = 1};
    return kn_rnn(x[0], x[1], &o);
}

static kn_tensor *two_layers(kn_tensor *const x[]) {
    const kn_rnn_options o = {.hidden = 128,
                              .layers = 2,
                              .mode = KN_RNN_LSTM,
                              .bidirectional = 1,
                              .dropout = 0.2,
                              .rng = cases_rng()};
    return kn_rnn(x[0], x[1], &o);
}

static kn_tensor *attended(kn_tensor *const x[], const kn_attention_options *o) {
    return kn_attention(x[0], x[1], x[2], o);
}

/* --- a block of a transformer encoder: x [B,T,D], the weights of queries, keys, values and the
 * result [4D,D], and of the two layers after it [E,D], [D,E] --- */

static kn_tensor *normed(kn_tensor *x) { return kn_layernorm(x, KN_NONE, KN_NONE, 1, 1e-5); }

/* [B,T,D] as [B,H,T,D/H]; every part of it. */
static kn_tensor *heads_of(kn_tensor *x, int64_t part) {
    kn_shape from = KN_SHAPE(0, 0, part, 0), to = KN_SHAPE(8, 128, part + 8, 32);
    return kn_transpose(kn_slice(x, from, to), KN_SHAPE(0, 2, 1, 3));
}

static kn_tensor *block(kn_tensor *x, kn_tensor *weights, kn_tensor *wide, kn_tensor *narrow) {
    kn_tensor *qkv =
        kn_linear(normed(x), kn_slice(weights, KN_SHAPE(0, 0), KN_SHAPE(768, 256)), KN_NONE);
    qkv = kn_reshape(qkv, KN_SHAPE(8, 128, 24, 32));
    kn_tensor *y = kn_attention(heads_of(qkv, 0), heads_of(qkv, 8), heads_of(qkv, 16), NULL);
    y = kn_reshape(kn_transpose(y, KN_SHAPE(0, 2, 1, 3)), KN_SHAPE(8, 128, 256));
    x = kn_add(x, kn_linear(y, kn_slice(weights, KN_SHAPE(768, 0), KN_SHAPE(1024, 256)), KN_NONE));
    y = kn_linear_act(normed(x), wide, KN_NONE, KN_ACT_GELU);
    return kn_add(x, kn_linear(y, narrow, KN_NONE));
}

/* clang-format off */
CASE(nn, transformer_block, block(x[0], x[1], x[2], x[3]), .in = {N(8, 128, 256), U(-0.06, 0.06, 1024, 256), U(-0.06, 0.06, 1024, 256), U(-0.03, 0.03, 256, 1024)}, .both = true)
CASE(ops20, lstm, recurrent(KN_RNN_LSTM, 128, x), .in = {N(50, 32, 128), U(-0.1, 0.1, 132096)}, .both = true)

CASE(nn, gru_t150_b64_h100,  recurrent(KN_RNN_GRU, 100, x),  .in = {N(150, 64, 100), U(-0.1, 0.1, 60600)}, .both = true)
CASE(nn, lstm_256,           recurrent(KN_RNN_LSTM, 256, x), .in = {N(64, 64, 256), U(-0.1, 0.1, 526336)}, .both = true)
CASE(nn, tanh_128,           recurrent(KN_RNN_TANH, 128, x), .in = {N(64, 32, 128), U(-0.1, 0.1, 33024)}, .both = true)
CASE(nn, relu_128,           recurrent(KN_RNN_RELU, 128, x), .in = {N(64, 32, 128), U(-0.1, 0.1, 33024)}, .both = true)
CASE(nn, lstm_both_ways,     both_ways(x),                   .in = {N(50, 32, 128), U(-0.1, 0.1, 264192)}, .both = true)
CASE(nn, lstm_two_layers,    two_layers(x),                  .in = {N(50, 32, 128), U(-0.1, 0.1, 659456)}, .both = true)
CASE(nn, attention_grouped,  kn_attention(x[0], x[1], x[2], NULL), .in = {N(8, 8, 512, 64), N(8, 2, 512, 64), N(8, 2, 512, 64)}, .both = true)
CASE(nn, attention_t1024,    kn_attention(x[0], x[1], x[2], NULL), .in = {N(8, 8, 1024, 64), N(8, 8, 1024, 64), N(8, 8, 1024, 64)}, .both = true)
CASE(nn, attention_t1,       kn_attention(x[0], x[1], x[2], NULL), .in = {N(1, 8, 1, 64), N(1, 8, 1024, 64), N(1, 8, 1024, 64)}, .both = true)
CASE(nn, attention_causal_t1024, kn_attention(x[0], x[1], x[2], &(kn_attention_options){.causal = 1}), .in = {N(8, 8, 1024, 64), N(8, 8, 1024, 64), N(8, 8, 1024, 64)}, .both = true)
CASE(nn, attention_masked,   attended(x, &(kn_attention_options){.mask = x[3]}), .in = {N(8, 8, 512, 64), N(8, 8, 512, 64), N(8, 8, 512, 64), B(8, 1, 512, 512)}, .both = true)
CASE(nn, attention_dropout,  attended(x, &(kn_attention_options){.dropout = 0.1, .rng = cases_rng()}), .in = {N(8, 8, 512, 64), N(8, 8, 512, 64), N(8, 8, 512, 64)}, .both = true)
