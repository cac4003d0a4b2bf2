/* Gradients of recurrent networks, attention and the CTC loss. x: input, parameters, h0, c0; q, k,
 * v. */
#include "grad_cases.h"

/* y, and the last states, as one tensor. */
static kn_tensor *all_results(kn_tensor *y, kn_tensor *h, kn_tensor *c) {
    if (!y) return NULL;
    kn_tensor *parts[3] = {y, h, c};
    int n = c ? 3 : 2;
    for (int i = 0; i < n; i++)
        parts[i] = kn_reshape(parts[i], KN_SHAPE(kn_tensor_numel(parts[i])));
    return kn_concat(parts, n, 0);
}

/* Of 5 steps and 3 sequences. */
static kn_tensor *recurrent(kn_rnn_options o, kn_tensor *x, kn_tensor *w, kn_tensor *h0,
                            kn_tensor *c0) {
    kn_tensor *h = NULL, *c = NULL;
    o.h0 = h0, o.c0 = c0, o.h_n = &h;
    if (o.mode == KN_RNN_LSTM) o.c_n = &c;
    kn_tensor *y = kn_rnn(x, kn_affine(w, 0.4, -0.3), &o);
    return all_results(y, h, c);
}

static const int64_t lengths[] = {2, 5, 3};

F(f_lstm) {
    CTX;
    return recurrent((kn_rnn_options){.hidden = 2, .layers = 2, .bidirectional = 1}, x[0], x[1],
                     x[2], x[3]);
}
F(f_lstm_packed) {
    CTX;
    return recurrent((kn_rnn_options){.hidden = 2, .bidirectional = 1, .lengths = lengths}, x[0],
                     x[1], x[2], x[3]);
}
F(f_lstm_of_y) {
    CTX;
    return kn_rnn(x[0], x[1], &(kn_rnn_options){.hidden = 2});
}
F(f_lstm_of_states) {
    CTX;
    kn_tensor *h = NULL, *c = NULL;
    kn_rnn_options o = {.hidden = 2, .h_n = &h, .c_n = &c};
    return kn_rnn(x[0], x[1], &o) ? kn_mul(h, c) : NULL;
}
F(f_gru) {
    CTX;
    return recurrent((kn_rnn_options){.hidden = 3, .mode = KN_RNN_GRU, .layers = 2}, x[0], x[1],
                     x[2], NULL);
}
F(f_gru_packed) {
    CTX;
    return recurrent(
        (kn_rnn_options){
            .hidden = 2, .mode = KN_RNN_GRU, .bidirectional = 1, .layers = 2, .lengths = lengths},
        x[0], x[1], x[2], NULL);
}
F(f_gru_skip) {
    CTX;
    return recurrent(
        (kn_rnn_options){.hidden = 2, .mode = KN_RNN_GRU, .bidirectional = 1, .skip_input = 1},
        x[0], x[1], x[2], NULL);
}
F(f_tanh) {
    CTX;
    return recurrent((kn_rnn_options){.hidden = 3, .mode = KN_RNN_TANH, .bidirectional = 1}, x[0],
                     x[1], x[2], NULL);
}
/* Inputs far from relu's kink: a unit is on or off for all random numbers, and each is both. */
F(f_relu) {
    CTX;
    static const double sign[] = {1, 1, -10, -10, -10, -10, 1, 1, 1, 1, 1, 1};
    kn_tensor *in = kn_tensor_from(sign, KN_F64, KN_SHAPE(3, 2, 2));
    return recurrent((kn_rnn_options){.hidden = 2, .mode = KN_RNN_RELU, .layers = 2},
                     kn_add(in, kn_affine(x[0], 0.1, 0)), kn_affine(x[1], 0.05, 0.3),
                     kn_affine(x[2], 0.1, 0), NULL);
}
/* Gates of a multiple of 128 columns, whose rows lie further apart; the weights are constants. */
static kn_tensor *wide(kn_tensor *x, kn_rnn_options o) {
    kn_rng *rng = NULL;
    if (kn_rng_create(&rng, 7) < 0) return GRAD_FAILED;
    kn_tensor *w = kn_uniform(KN_SHAPE(kn_rnn_params(2, &o)), -0.3, 0.3, rng);
    kn_rng_destroy(rng);
    return kn_rnn(x, w, &o);
}
F(f_lstm_wide) {
    CTX;
    return wide(x[0], (kn_rnn_options){.hidden = 32, .layers = 2, .bidirectional = 1});
}
F(f_gru_wide) {
    CTX;
    return wide(x[0], (kn_rnn_options){.hidden = 128, .layers = 2, .mode = KN_RNN_GRU});
}
/* The same mask each time. */
static kn_tensor *with_dropout(const int64_t *rows, kn_tensor *const x[]) {
    kn_rng *rng = NULL;
    if (kn_rng_create(&rng, 7) < 0) return GRAD_FAILED;
    kn_rnn_options o = {
        .hidden = 2, .layers = 3, .dropout = 0.4, .rng = rng, .lengths = rows, .bidirectional = 1};
    kn_tensor *y = kn_rnn(x[0], x[1], &o);
    kn_rng_destroy(rng);
    return y;
}
F(f_dropout) {
    CTX;
    return with_dropout(NULL, x);
}
F(f_dropout_packed) {
    CTX;
    return with_dropout(lengths, x);
}

F(f_attention) {
    CTX;
    return kn_attention(x[0], x[1], x[2], NULL);
}
F(f_attention_causal) {
    CTX;
    return kn_attention(x[0], x[1], x[2], &(kn_attention_options){.causal = 1, .offset = 1});
}
F(f_attention_mask) {
    CTX;
    kn_tensor *mask = F64(KN_SHAPE(2, 1, 3), 0.5, -1, 0.25, 2, 0, -0.5);
    return kn_attention(x[0], x[1], x[2], &(kn_attention_options){.mask = mask, .scale = 0.8});
}
F(f_attention_of_mask) {
    CTX;
    return kn_attention(x[0], x[1], x[2], &(kn_attention_options){.mask = x[3], .causal = 1});
}
/* The same weights each time. */
F(f_attention_dropout) {
    CTX;
    kn_rng *rng = NULL;
    if (kn_rng_create(&rng, 11) < 0) return GRAD_FAILED;
    kn_tensor *y = kn_attention(x[0], x[1], x[2],
                                &(kn_attention_options){.mask = x[3], .dropout = 0.4, .rng = rng});
    kn_rng_destroy(rng);
    return y;
}
F(f_rotary) {
    CTX;
    return kn_rotary(x[0], NULL);
}
F(f_rotary_part) {
    CTX;
    const kn_rotary_options part = {.n = 4, .adjacent = 1, .offset = 3, .base = 50};
    return kn_mul(kn_rotary(x[0], &part), x[0]);
}

static kn_tensor *targets(void) {
    return kn_tensor_from((int64_t[]){1, 2, 2, 3, 1, 3}, KN_I64, KN_SHAPE(2, 3));
}
F(f_ctc) {
    CTX;
    return kn_ctc_loss(x[0], targets(), NULL);
}
F(f_ctc_lengths) {
    CTX;
    kn_tensor *steps = kn_tensor_from((int64_t[]){5, 4}, KN_I64, KN_SHAPE(2));
    kn_tensor *labels = kn_tensor_from((int64_t[]){2, 3}, KN_I64, KN_SHAPE(2));
    const kn_ctc_options o = {
        .lengths = steps, .target_lengths = labels, .reduction = KN_REDUCE_NONE};
    return kn_ctc_loss(kn_logsoftmax(x[0], 2), targets(), &o);
}

#define ONCE(op, f, n, ...)                                                                        \
    { KN_OP_##op, #f, f, n, {__VA_ARGS__}, -1, 1, true }

const grad_case grad_sequence_cases[] = {
    ONCE(rnn, f_lstm, 4, C1(3, 2, 2), C1(224), C1(4, 2, 2), C1(4, 2, 2)),
    ONCE(rnn, f_lstm_packed, 4, C1(5, 3, 2), C1(96), C1(2, 3, 2), C1(2, 3, 2)),
    ONCE(rnn, f_lstm_of_y, 2, C1(4, 2, 3), C1(56)),
    ONCE(rnn, f_lstm_of_states, 2, C1(4, 2, 3), C1(56)),
    ONCE(rnn, f_gru, 3, C1(3, 2, 2), C1(135), C1(2, 2, 3)),
    ONCE(rnn, f_gru_packed, 3, C1(5, 3, 2), C1(168), C1(4, 3, 2)),
    ONCE(rnn, f_gru_skip, 3, C1(3, 2, 2), C1(48), C1(2, 2, 2)),
    ONCE(rnn, f_tanh, 3, C1(3, 2, 2), C1(42), C1(2, 2, 3)),
    ONCE(rnn, f_relu, 3, C1(3, 2, 2), C1(24), C1(2, 2, 2)),
    ONCE(rnn, f_lstm_wide, 1, C1(3, 2, 2)),
    ONCE(rnn, f_gru_wide, 1, C1(3, 2, 2)),
    ONCE(rnn, f_dropout, 2, C1(3, 2, 2), C1(352)),
    ONCE(rnn, f_dropout_packed, 2, C1(5, 3, 2), C1(352)),
    ONCE(attention, f_attention, 3, C1(2, 4, 3, 2), C1(2, 2, 5, 2), C1(2, 2, 5, 3)),
    ONCE(attention, f_attention_causal, 3, C1(1, 2, 4, 3), C1(1, 1, 3, 3), C1(1, 1, 3, 2)),
    ONCE(attention, f_attention_mask, 3, C1(2, 2, 2, 2), C1(2, 2, 3, 2), C1(2, 2, 3, 1)),
    ONCE(attention, f_attention_of_mask, 4, C1(2, 2, 3, 2), C1(2, 1, 4, 2), C1(2, 1, 4, 1),
         C1(2, 1, 4)),
    ONCE(attention, f_attention_dropout, 4, C1(1, 2, 3, 2), C1(1, 1, 5, 2), C1(1, 1, 5, 3),
         C1(3, 5)),
    CASE(rotary, f_rotary, -1, 1, 1, C1(2, 3, 4)),
    CASE(rotary, f_rotary_part, -1, 1, 1, C1(3, 7)),
    ONCE(ctc, f_ctc, 1, C1(7, 2, 4)),
    ONCE(ctc, f_ctc_lengths, 1, C1(6, 2, 4)),
};
const int n_grad_sequence_cases = sizeof grad_sequence_cases / sizeof *grad_sequence_cases;
