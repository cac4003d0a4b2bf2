/* Layers of sequences, and nets of them. */
#include <knet/optim.h>
#include <knet/tape.h>
#include <math.h>

#include "layer_fixture.h"

static void assert_near(kn_tensor *a, kn_tensor *b, double atol) {
    assert_ok(kn_check());
    assert_int_equal(kn_tensor_numel(a), kn_tensor_numel(b));
    const float *x = kn_data(a), *y = kn_data(b);
    for (int64_t i = 0; i < kn_tensor_numel(a); i++) assert_close(x[i], y[i], 0, atol);
}

static void a_recurrent_layer_is_kn_rnn_with_states(void **state) {
    (void)state;
    fixture f;
    fixture_init(&f, KN_F32);
    kn_rnn_options o = {.hidden = 6, .layers = 2, .mode = KN_RNN_GRU, .bidirectional = 1};
    kn_layer *rnn = kn_layer_rnn(f.net, "gru", 5, &o);
    assert_ok(kn_check());
    assert_int_equal(kn_layer_numel(rnn), kn_rnn_params(5, &o));
    KN_FRAME();
    kn_tensor *x = kn_normal(KN_SHAPE(4, 3, 5), 0, 1, f.rng), *w = kn_layer_param(rnn, "weight");
    assert_near(kn_layer_forward(f.net, x), kn_rnn(x, w, &o), 0);
    const int64_t lengths[] = {4, 1, 2};
    kn_tensor *h = NULL, *want = NULL;
    kn_layer_rnn_state at = {.lengths = lengths, .h_n = &h};
    kn_tensor *y = kn_layer_rnn_forward(rnn, x, &at);
    o.lengths = lengths;
    o.h_n = &want;
    assert_near(y, kn_rnn(x, w, &o), 0);
    assert_near(h, want, 0);
    assert_null(kn_layer_rnn_forward(rnn, kn_zeros(KN_SHAPE(4, 2, 6)), NULL));
    assert_fails(kn_check(), KN_ERR_SHAPE, "gru: kn_layer_rnn: x is [4,2,6]; expected [T,B,5]");
    assert_null(kn_layer_rnn_forward(rnn, kn_zeros(KN_SHAPE(4, 5)), &at));
    assert_fails(kn_check(), KN_ERR_SHAPE, "x is [4,5]; expected [T,B,5]");
    kn_layer_rnn(f.net, "bad", 5, &o);
    assert_fails(kn_check(), KN_ERR_INVALID, "bad: lengths, states and rng are of a forward");
    kn_layer_rnn(f.net, "none", 0, &o);
    assert_fails(kn_check(), KN_ERR_INVALID, "0 inputs, 6 hidden");
    kn_layer *flat = kn_layer_flatten(f.net, "flat");
    assert_null(kn_layer_rnn_forward(flat, x, NULL));
    assert_fails(kn_check(), KN_ERR_INVALID, "flat is not a kn_layer_rnn");
    fixture_release(&f);
}

/* softmax(q·kᵀ/√D)·v of one head at a time, in plain ops */
static kn_tensor *plain_attention(kn_layer *layer, kn_tensor *x, int64_t heads, int64_t kv_heads) {
    kn_layer *qkv = kn_layer_find(layer, "qkv"), *out = kn_layer_find(layer, "out");
    kn_shape s = kn_tensor_shape(x);
    int64_t t = s.dim[1], d = s.dim[2] / heads, all = heads + 2 * kv_heads;
    kn_tensor *a = kn_layer_forward(qkv, x), *y[16];
    a = kn_reshape(a, KN_SHAPE(s.dim[0], t, all, d));
    for (int64_t h = 0; h < heads; h++) {
        int64_t g = heads + h * kv_heads / heads;
        kn_tensor *q = kn_select(a, h, 2), *k = kn_select(a, g, 2);
        kn_tensor *v = kn_select(a, g + kv_heads, 2);
        kn_tensor *score =
            kn_affine(kn_matmul(q, k, &(kn_matmul_options){.trans_b = 1}), 1 / sqrt((double)d), 0);
        y[h] = kn_matmul(kn_softmax(score, 2), v, NULL);
    }
    return kn_layer_forward(out, kn_concat(y, (int)heads, 2));
}

static void attention_is_the_softmax_of_its_products(void **state) {
    (void)state;
    fixture f;
    fixture_init(&f, KN_F32);
    kn_layer *full = kn_layer_attention(f.net, "full", 12, 4, NULL);
    kn_layer *shared =
        kn_layer_attention(f.net, "shared", 12, 4, &(kn_layer_attention_options){.kv_heads = 2});
    kn_layer *causal = kn_layer_attention(f.net, "causal", 12, 3,
                                          &(kn_layer_attention_options){.causal = 1, .no_bias = 1});
    assert_ok(kn_check());
    assert_null(kn_layer_param(kn_layer_find(causal, "out"), "bias"));
    KN_FRAME();
    kn_tensor *x = kn_normal(KN_SHAPE(2, 5, 12), 0, 1, f.rng);
    assert_near(kn_layer_forward(full, x), plain_attention(full, x, 4, 4), 1e-5);
    assert_near(kn_layer_forward(shared, x), plain_attention(shared, x, 4, 2), 1e-5);
    /* the first two positions don't see what follows */
    kn_tensor *head = kn_slice(x, KN_SHAPE(0, 0, 0), KN_SHAPE(2, 2, 12));
    assert_near(kn_slice(kn_layer_forward(causal, x), KN_SHAPE(0, 0, 0), KN_SHAPE(2, 2, 12)),
                kn_layer_forward(causal, head), 1e-5);
    assert_null(kn_layer_forward(full, kn_zeros(KN_SHAPE(2, 12))));
    assert_fails(kn_check(), KN_ERR_SHAPE, "full: x has 2 dimensions, not [batch,time,width]");
    assert_null(kn_layer_attention(f.net, "huge", INT64_MAX / 2, 1, NULL));
    assert_fails(kn_check(), KN_ERR_SHAPE, "kn_layer_attention: huge: width 4611686018427387903; ");
    kn_layer_attention(f.net, "odd", 12, 5, NULL);
    assert_fails(kn_check(), KN_ERR_SHAPE, "5 heads must divide the width 12");
    fixture_release(&f);
}

/* A block of a transformer, Vaswani et al. 2017, with the norms first. */
static void transformer_block(kn_layer *parent, const char *name, int64_t width, int64_t heads) {
    kn_layer *block = kn_layer_sequential(parent, name);
    kn_layer *a = kn_layer_residual(block, "attend");
    kn_layer_layernorm(a, "norm", KN_SHAPE(width), NULL);
    kn_layer_attention(a, "attention", width, heads, &(kn_layer_attention_options){.causal = 1});
    kn_layer_dropout(a, "drop", 0.1);
    kn_layer *m = kn_layer_residual(block, "mlp");
    kn_layer_layernorm(m, "norm", KN_SHAPE(width), NULL);
    kn_layer_linear(m, "fc1", width, 4 * width, &(kn_layer_linear_options){.act = kn_gelu});
    kn_layer_linear(m, "fc2", 4 * width, width, NULL);
    kn_layer_dropout(m, "drop", 0.1);
}

/* Predicts the token before: position i sees tokens 0 … i. */
static void a_transformer_learns(void **state) {
    (void)state;
    enum { WORDS = 8, T = 12, B = 16, WIDTH = 16 };
    fixture f;
    kn_optim *adam = NULL;
    double loss = 0, first = 0;
    fixture_init(&f, KN_F32);
    kn_layer_embedding(f.net, "words", WORDS, WIDTH, NULL);
    kn_layer *places = kn_layer_sequential(f.net, "blocks");
    transformer_block(places, "0", WIDTH, 2);
    transformer_block(places, "1", WIDTH, 2);
    kn_layer_linear(f.net, "scores", WIDTH, WORDS, NULL);
    assert_ok(kn_check());
    assert_non_null(kn_params_find(f.params, "blocks.1.attend.attention.qkv.weight"));
    assert_ok(kn_adam_create(&adam, f.params, 1e-2, NULL));
    for (int i = 0; i < 60; i++) {
        KN_TAPE();
        kn_tensor *index = kn_integers(KN_SHAPE(B, T), 0, WORDS, f.rng);
        kn_tensor *y = kn_reshape(
            kn_remainder(kn_affine(kn_cast(index, KN_F32), 3, 1), kn_full(KN_SCALAR, WORDS)),
            KN_SHAPE(B * T));
        kn_tensor *scores = kn_reshape(kn_layer_forward(f.net, index), KN_SHAPE(B * T, WORDS));
        kn_tensor *l = kn_cross_entropy(scores, kn_cast(y, KN_I64));
        assert_ok(kn_backward(l));
        assert_ok(kn_optim_step(adam));
        assert_ok(kn_item(&loss, l));
        if (i == 0) first = loss;
    }
    assert_true(loss < first / 4);
    kn_optim_destroy(adam);
    fixture_release(&f);
}

int main(void) {
    return RUN_TESTS(TEST(a_recurrent_layer_is_kn_rnn_with_states),
                     TEST(attention_is_the_softmax_of_its_products), TEST(a_transformer_learns));
}
