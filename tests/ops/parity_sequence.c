/* Cases of recurrent networks and attention. */
#include "parity_case.h"

static parity_operand guard(parity_operand o) { return like(o, FILL_GUARD); }

/* --- recurrent networks --- */

typedef struct network {
    kn_rnn_mode mode;
    int64_t steps, batch, inputs, hidden, layers, directions;
    const int64_t *lengths;
} network;

static int64_t params_of(const network *n) {
    kn_rnn_options o = {.hidden = n->hidden,
                        .layers = n->layers,
                        .mode = n->mode,
                        .bidirectional = n->directions == 2};
    int64_t params = kn_rnn_params(n->inputs, &o);
    if (params < 0) abort();
    return params;
}

static void set_network(parity_case *c, const network *n) {
    kn_attr_rnn attr = {.math = KN_MATH_STRICT,
                        .mode = n->mode,
                        .input = n->inputs,
                        .hidden = n->hidden,
                        .layers = n->layers,
                        .directions = n->directions,
                        .steps = n->steps,
                        .batch = n->batch,
                        .n_lengths = n->lengths ? n->batch : 0};
    unsigned char bytes[sizeof attr + 16 * sizeof(int64_t)];
    size_t tail = (size_t)attr.n_lengths * sizeof(int64_t);
    memcpy(bytes, &attr, sizeof attr);
    if (tail) memcpy(bytes + sizeof attr, n->lengths, tail);
    set_attr(c, bytes, sizeof attr + tail);
}

static void recurrent(network n) {
    parity_case *c = parity_add(KN_OP_rnn, COMPARE_CLOSE);
    parity_operand state = U(n.layers * n.directions, n.batch, n.hidden);
    bool is_lstm = n.mode == KN_RNN_LSTM;
    c->n_in = 5, c->in[0] = U(n.steps, n.batch, n.inputs), c->in[1] = U(params_of(&n));
    c->in[2] = state;
    if (is_lstm) c->in[3] = state;
    c->out[0] = OPERAND(GUARD, n.steps, n.batch, n.directions * n.hidden);
    c->out[1] = guard(state);
    if (is_lstm) c->out[2] = guard(state);
    c->host_only = n.inputs == 0; /* cuDNN refuses x of no features */
    set_network(c, &n);
}

/* The reserve is each device's own: its numbers are any on the host. */
static void recurrent_back(network n) {
    parity_case *c = parity_add(KN_OP_rnn_back, COMPARE_CLOSE);
    parity_operand state = U(n.layers * n.directions, n.batch, n.hidden);
    parity_operand x = U(n.steps, n.batch, n.inputs), w = U(params_of(&n));
    parity_operand y = U(n.steps, n.batch, n.directions * n.hidden);
    int64_t kept = (5 * y.shape.dim[0] * n.batch * y.shape.dim[2] + 2 * n.batch * n.hidden) * 8;
    bool is_lstm = n.mode == KN_RNN_LSTM;
    c->n_in = 7, c->in[0] = x, c->in[1] = w, c->in[2] = y, c->in[3] = U(kept + 64), c->in[4] = y;
    c->in[5] = state;
    if (is_lstm) c->in[6] = state;
    c->out[0] = guard(x), c->out[1] = guard(w), c->out[2] = guard(state);
    if (is_lstm) c->out[3] = guard(state);
    c->host_only = true;
    set_network(c, &n);
}

static void recurrent_cases(void) {
    static const int64_t lengths[] = {3, 0, 7, 5, 7};
    for (int mode = KN_RNN_LSTM; mode <= KN_RNN_RELU; mode++) {
        kn_rnn_mode m = (kn_rnn_mode)mode;
        recurrent((network){m, 1, 1, 1, 1, 1, 1, NULL});
        recurrent((network){m, 5, 3, 7, 11, 2, 1, NULL});
        recurrent((network){m, 3, 37, 17, 19, 1, 2, NULL});
        recurrent((network){m, 2, 70, 5, 40, 3, 2, NULL});
        recurrent((network){m, 7, 5, 3, 13, 2, 2, lengths});
        recurrent((network){m, 7, 5, 3, 13, 1, 1, lengths});
        recurrent((network){m, 0, 2, 3, 4, 2, 1, NULL});
        recurrent((network){m, 4, 2, 0, 3, 1, 1, NULL});
        recurrent_back((network){m, 5, 3, 7, 11, 2, 1, NULL});
        recurrent_back((network){m, 3, 37, 5, 19, 2, 2, NULL});
        recurrent_back((network){m, 7, 5, 3, 13, 2, 2, lengths});
        recurrent_back((network){m, 0, 2, 3, 4, 2, 1, NULL});
    }
    recurrent((network){KN_RNN_LSTM, 2, 65, 300, 270, 1, 1, NULL});
    recurrent_back((network){KN_RNN_LSTM, 2, 65, 30, 270, 1, 1, NULL});
}

/* --- attention --- */

typedef struct heads {
    int64_t batch, heads, groups, queries, keys, d, e;
} heads;

/* With dropout's state where attr has one. */
static void attention(heads n, parity_operand mask, kn_attr_attention attr) {
    parity_operand q = U(n.batch, n.heads, n.queries, n.d), k = U(n.batch, n.groups, n.keys, n.d);
    parity_operand v = U(n.batch, n.groups, n.keys, n.e), y = U(n.batch, n.heads, n.queries, n.e);
    parity_operand stats = U(n.batch, n.heads, n.queries, 2);
    parity_case *c = parity_add(KN_OP_attention, COMPARE_CLOSE);
    c->n_in = 5, c->in[0] = q, c->in[1] = k, c->in[2] = v, c->in[3] = mask;
    if (attr.dropout > 0) c->in[4] = STATE;
    c->out[0] = guard(y), c->out[1] = guard(stats);
    set_attr(c, &attr, sizeof attr);
    c = parity_add(KN_OP_attention_back, COMPARE_CLOSE);
    c->n_in = 8, c->in[0] = q, c->in[1] = k, c->in[2] = v, c->in[3] = mask, c->in[4] = y;
    if (attr.dropout > 0) c->in[7] = STATE;
    c->in[5] = like(stats, FILL_POSITIVE), c->in[6] = y;
    c->out[0] = guard(q), c->out[1] = guard(k), c->out[2] = guard(v);
    if (mask.fill != FILL_ABSENT || attr.dropout > 0)
        c->out[3] = OPERAND(GUARD, n.batch, n.heads, n.queries, n.keys);
    set_attr(c, &attr, sizeof attr);
}

static void attention_cases(void) {
    const int before = parity_count();
    const kn_attr_attention plain = {0.3, 0, 0, 0}, causal = {0.3, 1, 0, 0};
    const kn_attr_attention dropped = {0.3, 0, 0, 0.4}, both = {0.3, 1, 2, 0.4};
    attention((heads){1, 1, 1, 1, 1, 1, 1}, NONE, plain);
    attention((heads){2, 4, 2, 7, 11, 5, 3}, NONE, plain);
    attention((heads){2, 3, 1, 53, 300, 16, 8}, NONE, plain);
    attention((heads){1, 2, 2, 61, 61, 64, 64}, NONE, causal);
    attention((heads){1, 2, 1, 5, 290, 8, 33}, NONE, (kn_attr_attention){0.1, 1, 280, 0});
    attention((heads){1, 1, 1, 9, 4, 3, 2}, NONE, (kn_attr_attention){1, 1, -3, 0});
    attention((heads){2, 2, 2, 6, 9, 4, 4}, U(6, 9), plain);
    attention((heads){2, 2, 1, 50, 260, 4, 4}, U(2, 1, 1, 260), causal);
    attention((heads){2, 2, 2, 6, 9, 4, 4}, U(2, 2, 6, 1), plain);
    attention((heads){2, 2, 2, 4, 0, 3, 5}, NONE, plain);
    attention((heads){1, 2, 1, 130, 3, 130, 70}, NONE, plain);
    attention((heads){2, 4, 2, 1, 300, 21, 9}, NONE, plain); /* few queries */
    attention((heads){2, 4, 1, 3, 290, 16, 40}, U(3, 290), (kn_attr_attention){0.2, 1, 280, 0});
    attention((heads){1, 2, 2, 2, 270, 5, 3}, NONE, dropped);
    attention((heads){2, 4, 2, 53, 300, 5, 3}, NONE, dropped);
    attention((heads){1, 2, 2, 37, 41, 8, 4}, U(37, 41), both);
    attention((heads){1, 1, 1, 5, 7, 2, 2}, NONE, (kn_attr_attention){0.3, 0, 0, 1});
    parity_halves_of(parity_count() - before);
}

static void rotary_of(parity_operand x, kn_attr_rotary attr) {
    parity_case *c = parity_add(KN_OP_rotary, COMPARE_CLOSE);
    c->n_in = 1, c->in[0] = x, c->out[0] = guard(x);
    set_attr(c, &attr, sizeof attr);
}

static void rotary_cases(void) {
    rotary_of(U(1, 2), (kn_attr_rotary){10000, 0, 2, 0, 0});
    rotary_of(U(2, 3, 37, 16), (kn_attr_rotary){10000, 0, 16, 0, 0});
    rotary_of(U(2, 3, 37, 16), (kn_attr_rotary){500, 11, 10, 1, 1});
    rotary_of(U(5, 71, 67), (kn_attr_rotary){10000, 3, 32, 0, 1});
    rotary_of(U(4, 3, 5), (kn_attr_rotary){10000, 0, 0, 0, 0});
    rotary_of(U(3, 1031, 8), (kn_attr_rotary){100, -5, 8, 1, 0});
}

/* The blank is the last class, so that labels are others. */
static void ctc_of(int64_t steps, int64_t batch, int64_t classes, int64_t labels, bool lengths,
                   bool zero) {
    for (int gradient = 0; gradient < 2; gradient++) {
        parity_operand x = U(steps, batch, classes);
        parity_case *c = parity_add(KN_OP_ctc, COMPARE_CLOSE);
        c->n_in = 4, c->in[0] = x;
        c->in[1] = INDEX(lengths ? KN_I32 : KN_I64, classes - 1, batch, labels);
        if (lengths) c->in[2] = INDEX(KN_I64, steps + 1, batch);
        if (lengths) c->in[3] = INDEX(KN_U8, labels + 1, batch);
        c->out[0] = OPERAND(GUARD, batch);
        if (gradient) c->out[1] = guard(x);
        ATTR(c, kn_attr_ctc, classes - 1, zero);
    }
}

static void ctc_cases(void) {
    ctc_of(1, 1, 2, 1, false, false);
    ctc_of(7, 3, 5, 3, false, false);
    ctc_of(7, 3, 5, 3, false, true);
    ctc_of(40, 11, 6, 12, true, false);
    ctc_of(40, 11, 6, 12, true, true);
    ctc_of(300, 2, 30, 140, false, false);
    ctc_of(5, 4, 3, 0, false, false);
    ctc_of(2, 3, 4, 2, true, false);
    parity_case *c = parity_add(KN_OP_ctc, COMPARE_CLOSE);
    c->n_in = 4, c->in[0] = U(9, 4, 5), c->in[1] = INDEX(KN_I32, 4, 4, 3);
    c->in[1].fill = FILL_BEYOND;
    c->out[0] = OPERAND(GUARD, 4), c->out[1] = OPERAND(GUARD, 9, 4, 5);
    ATTR(c, kn_attr_ctc, 4, 1);
}

void parity_sequence_cases(void) {
    recurrent_cases();
    attention_cases();
    rotary_cases();
    ctc_cases();
}
