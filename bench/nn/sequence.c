/* Recurrent networks of one layer and attention. Parameters are one tensor on both sides. */
#include "cases.h"

static kn_tensor *recurrent(kn_rnn_mode mode, int64_t hidden, kn_tensor *const x[]) {
    return kn_rnn(x[0], x[1], &(kn_rnn_options){.hidden = hidden, .mode = mode});
}

/* clang-format off */
CASE(ops20, lstm, recurrent(KN_RNN_LSTM, 128, x), .in = {N(50, 32, 128), U(-0.1, 0.1, 132096)}, .both = true)

CASE(nn, gru_t150_b64_h100,  recurrent(KN_RNN_GRU, 100, x),  .in = {N(150, 64, 100), U(-0.1, 0.1, 60600)}, .both = true)
CASE(nn, lstm_256,           recurrent(KN_RNN_LSTM, 256, x), .in = {N(64, 64, 256), U(-0.1, 0.1, 526336)}, .both = true)
CASE(nn, tanh_128,           recurrent(KN_RNN_TANH, 128, x), .in = {N(64, 32, 128), U(-0.1, 0.1, 33024)}, .both = true)
CASE(nn, attention_t1024,    kn_attention(x[0], x[1], x[2], NULL), .in = {N(8, 8, 1024, 64), N(8, 8, 1024, 64), N(8, 8, 1024, 64)}, .both = true)
CASE(nn, attention_causal_t1024, kn_attention(x[0], x[1], x[2], &(kn_attention_options){.causal = 1}), .in = {N(8, 8, 1024, 64), N(8, 8, 1024, 64), N(8, 8, 1024, 64)}, .both = true)
