/* Initial values of the recurrent models of the record: char-rnn's are uniform in ±0.08, and LSTMs
 * remember from the start by a bias of 1 of each forget gate. */
#include <knet/models.h>
#include <knet/sequence.h>
#include <math.h>
#include <string.h>

#include "test.h"

enum { FORGET = 1 }; /* of i, f, g, o */

static float *values_of(int64_t *n, kn_tensor *w) {
    *n = kn_tensor_numel(w);
    float *values = malloc((size_t)*n * sizeof *values);
    assert_non_null(values);
    assert_ok(kn_copy_out(values, (size_t)*n * sizeof *values, w));
    return values;
}

/* Values outside of [lo, hi], and the largest magnitude of the others. */
static int64_t outside(double *largest, kn_tensor *w, double lo, double hi) {
    int64_t n = 0, count = 0;
    float *values = values_of(&n, w);
    *largest = 0;
    for (int64_t i = 0; i < n; i++) {
        if (values[i] < lo || values[i] > hi)
            count++;
        else
            *largest = fmax(*largest, fabs((double)values[i]));
    }
    free(values);
    return count;
}

static void assert_ones(kn_tensor *part) {
    double largest = 0;
    assert_int_equal(outside(&largest, part, 1, 1), 0);
    assert_true(kn_tensor_numel(part) > 0);
}

typedef struct fixture {
    kn_params *params;
    kn_model *model;
} fixture;

static void fixture_init(fixture *f, const char *name) {
    assert_ok(kn_params_create(&f->params, &(kn_params_options){.seed = 5}));
    assert_ok(kn_model_create(&f->model, name, f->params));
}

static void fixture_release(fixture *f) {
    kn_model_destroy(f->model);
    kn_params_destroy(f->params);
}

/* All values of the model but those of the forget gates. */
static void characters_start_uniform_in_0_08(void **state) {
    (void)state;
    static const char *const names[] = {"char_lstm", "char_lstm_steps"};
    for (int i = 0; i < 2; i++) {
        fixture f;
        int64_t ones = 0;
        fixture_init(&f, names[i]);
        assert_int_equal(kn_params_numel(f.params), 240321);
        for (int k = 0; k < kn_params_count(f.params); k++) {
            double largest = 0;
            ones += outside(&largest, kn_params_at(f.params, k, NULL), -0.08, 0.08);
            assert_close(largest, 0.08, 0.1, 0);
        }
        assert_int_equal(ones, 2 * 128);
        fixture_release(&f);
    }
}

typedef struct lstm {
    const char *model, *layer;
    int64_t n_in, hidden, layers;
    int bidirectional;
} lstm;

static const lstm lstms[] = {
    {"char_lstm", "lstm", 65, 128, 2, 0},        {"lstm_lm", "lstm", 128, 256, 1, 0},
    {"tagger", "lstm", 128, 50, 1, 1},           {"tagger_chars", "lstm", 128, 50, 1, 1},
    {"tagger_chars", "char_lstm", 20, 64, 1, 1}, {"seq2seq", "encoder", 128, 128, 1, 0},
    {"seq2seq", "decoder", 128, 128, 1, 0},
};

static void forget_gates_start_with_a_bias_of_1(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof lstms / sizeof *lstms; i++) {
        const lstm *l = &lstms[i];
        const kn_rnn_options o = {
            .hidden = l->hidden, .layers = l->layers, .bidirectional = l->bidirectional};
        fixture f;
        double largest = 0;
        fixture_init(&f, l->model);
        kn_tensor *w = kn_layer_param(kn_layer_find(kn_model_net(f.model), l->layer), "weight");
        KN_FRAME(.record = KN_OFF);
        for (int64_t k = 0; k < l->layers; k++)
            for (int d = 0; d <= l->bidirectional; d++)
                assert_ones(kn_rnn_param(w, l->n_in, &o, k, d, FORGET, KN_RNN_INPUT_BIAS));
        assert_int_equal(outside(&largest, w, -0.5, 0.5),
                         l->hidden * l->layers * (l->bidirectional + 1));
        fixture_release(&f);
    }
}

static void forget_gates_of_steps_start_with_a_bias_of_1(void **state) {
    (void)state;
    fixture f;
    fixture_init(&f, "char_lstm_steps");
    for (int k = 0; k < 2; k++) {
        KN_FRAME(.record = KN_OFF);
        kn_layer *i2h = kn_layer_find(kn_model_net(f.model), k ? "i2h1" : "i2h0");
        kn_tensor *part[4]; /* i, f, o, g */
        assert_ok(kn_chunk(part, kn_layer_param(i2h, "bias"), 4, 0));
        assert_ones(part[1]);
    }
    fixture_release(&f);
}

int main(void) {
    return RUN_TESTS(TEST(characters_start_uniform_in_0_08),
                     TEST(forget_gates_start_with_a_bias_of_1),
                     TEST(forget_gates_of_steps_start_with_a_bias_of_1));
}
